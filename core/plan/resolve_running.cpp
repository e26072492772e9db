// What a running operator may be nested in (plan.md rule 14; docs/formats.md says it for users).
//
// A running result is read inside its own reduction, as it is after the blocks so far: its value at
// one element changes from block to block, and so does everything that is made from it before the
// reduction is complete. Every other rule of a plan tells contents by coordinates alone. So what
// changes may be read by those of the same block only, must not be held as if it were still the
// same, and what the running operator itself has accumulated must be held until the next block.
#include <algorithm>

#include "core/base/format.h"
#include "core/plan/resolver.h"
#include "core/workload/expr.h"

namespace tilewright::resolving {

namespace {

using Loops = std::vector<NodeId>;  ///< loop nodes, innermost first

bool has(const Loops& loops, NodeId n) { return std::ranges::find(loops, n) != loops.end(); }

/// The value of a tensor, as far as it changes while loops of this kernel go on.
struct Changes {
  Loops so_far;  ///< a running result: final after these loops, partial inside all of them
  Loops within;  ///< made from partial results: belongs to one iteration of each of these loops
  bool any() const { return !so_far.empty() || !within.empty(); }
};

class Running {
 public:
  explicit Running(const Draft& d)
      : d_(d), changes_(d.w.tensors().size()), derived_(d.w.tensors().size(), false) {
    for (OpId id : d.w.topological_order()) {
      const Operator& op = d.w.op(id);
      const bool derived = op.running || std::ranges::any_of(op.inputs, [&](const Access& in) {
                             return derived_[in.tensor.index()];
                           });
      for (const Output& out : op.outputs) derived_[out.target.tensor.index()] = derived;
    }
  }

  std::optional<Reason> check() {
    for (OpId op : d_.k.ops)
      if (auto reason = visit(op)) return reason;
    for (std::size_t n = 0; n < d_.k.nodes.size(); ++n)
      if (d_.k.nodes[n].kind == NodeKind::load)
        if (auto reason = check_load(NodeId(n))) return reason;
    return std::nullopt;
  }

 private:
  const std::string& name(TensorId t) const { return d_.w.tensor(t).name; }
  const std::string& name(NodeId loop) const { return d_.w.loop(d_.node(loop).loop).name; }

  /// The loops of several trips around a compute that walk one of these.
  Loops walks(OpId op, std::span<const LoopId> loops) const {
    Loops found;
    if (loops.empty()) return found;
    for (NodeId n = d_.node(d_.compute_of[op.index()]).parent; n.valid(); n = d_.node(n).parent)
      if (d_.node(n).kind == NodeKind::loop && d_.node(n).max_trips > 1 &&
          std::ranges::find(loops, d_.node(n).loop) != loops.end())
        found.push_back(n);
    return found;
  }

  std::optional<Reason> visit(OpId id) {
    const Operator& op = d_.w.op(id);
    const NodeId compute = d_.compute_of[id.index()];
    Loops within;
    for (const Access& in : op.inputs)
      if (auto reason = read(compute, in.tensor, within)) return reason;

    const Loops own = op.running ? walks(id, d_.w.reduction_loops(id)) : Loops();
    // Its own reduction takes all of its iterations together.
    std::erase_if(within, [&](NodeId n) { return d_.w.is_reduction(id, d_.node(n).loop); });
    if (auto reason = check_factors(id, own)) return reason;
    if (auto reason = check_units(id, own)) return reason;
    if (auto reason = check_kept(id, own, within)) return reason;
    for (const Output& out : op.outputs) {
      const TensorId t = out.target.tensor;
      changes_[t.index()] = {own, within};
      if (!within.empty() && d_.leaves(t))
        return Reason{formatted("{} is made from partial results inside {}, and leaves the kernel",
                                name(t), name(within.front()))};
      if (out.combine != Combine::assign && !own.empty())
        if (auto reason = check_held(t, own)) return reason;
    }
    return std::nullopt;
  }

  /// Who reads what changes must be inside all loops that change it; a running result may also be
  /// read after them all.
  std::optional<Reason> read(NodeId compute, TensorId t, Loops& within) const {
    const Changes& c = changes_[t.index()];
    const auto is_around = [&](NodeId l) { return d_.inside(compute, l); };
    const std::string& reader = d_.w.op(d_.node(compute).op).name;
    for (const Loops* loops : {&c.so_far, &c.within}) {
      if (loops == &c.so_far && std::ranges::none_of(*loops, is_around)) continue;
      for (NodeId l : *loops) {
        if (!is_around(l))
          return Reason{
              formatted("{} belongs to one block of {}, since it is made from results so "
                        "far, and {} reads it outside of that loop",
                        name(t), name(l), reader)};
        if (!has(within, l)) within.push_back(l);
      }
    }
    return std::nullopt;
  }

  /// A factor says what changed with one block of the reduction: it must be new for every block
  /// that is rescaled by it, and be used for each once.
  std::optional<Reason> check_factors(OpId id, const Loops& own) const {
    if (own.empty()) return std::nullopt;  // one block: there is nothing to rescale
    const Operator& op = d_.w.op(id);
    for (const Output& out : op.outputs)
      for (std::size_t i = 0; i < op.inputs.size(); ++i)
        if (out.rescale && reads_input(*out.rescale, static_cast<int>(i)))
          if (auto reason = check_factor(id, own, op.inputs[i].tensor)) return reason;
    return std::nullopt;
  }

  std::optional<Reason> check_factor(OpId rescaled, const Loops& own, TensorId factor) const {
    const OpId maker = d_.w.producer(factor);
    if (!maker.valid()) return std::nullopt;
    const std::string& op = d_.w.op(rescaled).name;
    if (!d_.computed_here(maker))
      return Reason{
          formatted("{} is rescaled by {} for every block of {}, and another kernel makes "
                    "that",
                    op, name(factor), name(own.front()))};
    bool same = walks(maker, d_.w.reduction_loops(rescaled)) == own;
    if (d_.w.op(maker).running)
      for (NodeId l : own) same = same && d_.w.is_reduction(maker, d_.node(l).loop);
    if (!same)
      return Reason{
          formatted("{} is rescaled by {}, which {} makes for other blocks of the "
                    "reduction over {}",
                    op, name(factor), d_.w.op(maker).name, name(own.front()))};
    if (d_.w.op(maker).running) return std::nullopt;
    for (const Access& a : d_.w.op(maker).inputs)
      if (derived_[a.tensor.index()])
        if (auto reason = check_factor(rescaled, own, a.tensor)) return reason;
    return std::nullopt;
  }

  /// Each unit would have partial results of its own, and nothing rescales them to one another.
  std::optional<Reason> check_units(OpId id, const Loops& own) const {
    for (NodeId l : own)
      if (unit_of(d_.node(l).binding))
        return Reason{
            formatted("{} is running and reduces {}@{}: nothing combines the results of "
                      "several units",
                      d_.w.op(id).name, name(l), name_of(d_.node(l).binding))};
    return std::nullopt;
  }

  /// !once and sliding take what has these coordinates for what is needed.
  std::optional<Reason> check_kept(OpId id, const Loops& own, const Loops& within) const {
    if (own.empty() && within.empty()) return std::nullopt;
    const NodeId loop = own.empty() ? within.front() : own.front();
    if (d_.node(d_.compute_of[id.index()]).once)
      return Reason{formatted("C.{}!once would skip what changes with every block of {}",
                              d_.w.op(id).name, name(loop))};
    for (const Output& out : d_.w.op(id).outputs) {
      const auto slides = d_.sliding.find(out.target.tensor);
      if (slides != d_.sliding.end() && slides->second)
        return Reason{formatted("{} slides, and changes with every block of {}",
                                name(out.target.tensor), name(loop))};
    }
    return std::nullopt;
  }

  /// What is accumulated on chip stays there until the last block: between them its tile must not
  /// be replaced. (A tile that is no more than an output is read back.)
  std::optional<Reason> check_held(TensorId t, const Loops& own) const {
    for (BufferId b : d_.chain[t.index()]) {
      const Buffer& buffer = d_.k.buffer(b);
      if (buffer.role != BufferRole::intermediate) continue;
      const Unit owner = d_.m.level(buffer.level).private_to;
      for (NodeId n = buffer.fixed_at; n.valid() && d_.inside(n, own.back());
           n = d_.node(n).parent) {
        const ScheduleNode& l = d_.node(n);
        if (l.kind != NodeKind::loop || l.max_trips <= 1) continue;
        const auto unit = unit_of(l.binding);
        if (unit && *unit <= owner) continue;  // every iteration has a buffer of its own
        if (moves_tile(n, buffer))
          return Reason{
              formatted("{} is accumulated over {}, and {} inside it goes on to another "
                        "tile of it: pin it at a loop outside of {}",
                        name(t), name(own.back()), name(n), name(own.back()))};
      }
    }
    return std::nullopt;
  }

  /// Whether the tile may be another one in the next iteration of a loop around the body that fixes
  /// it. Follows which ranges move: those that the loop cuts, and those inferred from them.
  bool moves_tile(NodeId loop, const Buffer& b) const {
    std::vector<bool> moved(d_.k.range_count, false);
    const auto slot = [&](OpId op, int local) {
      return d_.k.range_base[op.index()] + static_cast<std::size_t>(local);
    };
    for (const OpLoop& c : d_.node(loop).cuts) moved[slot(c.op, c.local)] = true;
    const auto moves = [&](OpId op, const Affine& index) {
      return std::ranges::any_of(index.terms, [&](const Term& term) {
        return moved[slot(op, d_.w.local_index(op, term.loop))];
      });
    };
    const auto read_of = [&](const ReadRef& r) -> const Access& {
      return d_.w.op(r.op).inputs[static_cast<std::size_t>(r.input)];
    };
    const auto infer = [&](const Inference& i) {
      const Access& made = d_.w.op(i.producer).outputs[static_cast<std::size_t>(i.output)].target;
      for (std::size_t dim = 0; dim < made.index.size(); ++dim)
        if (const auto plain = made.index[dim].plain_loop())
          moved[slot(i.producer, d_.w.local_index(i.producer, *plain))] = std::ranges::any_of(
              i.reads, [&](const ReadRef& r) { return moves(r.op, read_of(r).index[dim]); });
    };
    Loops bodies;  // from the loop inwards
    for (NodeId n = b.fixed_at; n != d_.node(loop).parent; n = d_.node(n).parent)
      bodies.insert(bodies.begin(), n);
    for (NodeId n : bodies)
      for (const Inference& i : d_.node(n).infer) {
        for (const Inference& ahead : i.lookahead) infer(ahead);
        infer(i);
      }
    for (const Inference& ahead : b.lookahead) infer(ahead);
    return std::ranges::any_of(b.reads,
                               [&](const ReadRef& r) {
                                 return std::ranges::any_of(read_of(r).index, [&](const Affine& a) {
                                   return moves(r.op, a);
                                 });
                               }) ||
           std::ranges::any_of(b.writes, [&](const auto& write) {
             const Output& made =
                 d_.w.op(write.first).outputs[static_cast<std::size_t>(write.second)];
             return std::ranges::any_of(made.target.index,
                                        [&](const Affine& a) { return moves(write.first, a); });
           });
  }

  /// A copy is filled when its coordinates change (rule 8), not when the values do.
  std::optional<Reason> check_load(NodeId load) const {
    const ScheduleNode& n = d_.node(load);
    const Changes& c = changes_[n.tensor.index()];
    for (const Loops* loops : {&c.so_far, &c.within})
      for (NodeId l : *loops) {
        if (!d_.inside(load, l)) continue;
        for (const ReadRef& r : n.reads_below) {
          const Access& a = d_.w.op(r.op).inputs[static_cast<std::size_t>(r.input)];
          const bool with_it = std::ranges::any_of(a.index, [&](const Affine& f) {
            return std::ranges::any_of(f.terms,
                                       [&](const Term& t) { return t.loop == d_.node(l).loop; });
          });
          if (!with_it)
            return Reason{
                formatted("L.{} would keep what an earlier block of {} has made: {} changes "
                          "with every block, and must be read where it is made",
                          name(n.tensor), name(l), name(n.tensor))};
        }
      }
    return std::nullopt;
  }

  const Draft& d_;
  std::vector<Changes> changes_;  // by tensor
  std::vector<bool> derived_;     // by tensor: from a running result of any kernel, complete or not
};

}  // namespace

std::optional<Reason> check_running(const Draft& d) {
  if (std::ranges::none_of(d.k.ops, [&](OpId op) { return d.w.op(op).running; }))
    return std::nullopt;
  return Running(d).check();
}

}  // namespace tilewright::resolving
