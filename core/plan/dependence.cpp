#include "core/plan/dependence.h"

#include <algorithm>
#include <map>

#include "core/base/format.h"

namespace tilewright {

namespace {

using Loops = std::vector<NodeId>;

/// Nodes from the root to `n`, itself included.
std::vector<NodeId> path_to(const ScheduledKernel& k, NodeId n) {
  std::vector<NodeId> path;
  for (; n.valid(); n = k.node(n).parent) path.push_back(n);
  std::ranges::reverse(path);
  return path;
}

bool is_around(const ScheduledKernel& k, NodeId outer, NodeId n) {
  for (; n.valid() && n >= outer; n = k.node(n).parent)
    if (n == outer) return true;
  return false;
}

/// Which kind of unit runs a loop's iterations, as far as barriers tell them apart.
std::optional<Unit> unit_here(const ScheduleNode& loop) {
  const auto unit = loop.kind == NodeKind::loop && loop.max_trips > 1 ? unit_of(loop.binding)
                                                                      : std::optional<Unit>();
  return unit == Unit::cluster ? Unit::grid : unit;
}

/// One end of a dependence: a node, and how operators access the tensor there.
struct End {
  NodeId node;
  std::vector<std::pair<OpId, const Access*>> accesses;
};

class Finder {
 public:
  Finder(const Schedule& s, const ScheduledKernel& k)
      : s_(s), k_(k), w_(*s.workload), readers_(k.buffers.size()) {
    for (std::size_t i = 0; i < k.nodes.size(); ++i) {
      const ScheduleNode& n = k.nodes[i];
      if (n.kind == NodeKind::compute) compute_of_[n.op] = NodeId(i);
      for (const InputUse& use : n.reads)
        if (use.buffer.valid()) readers_[use.buffer.index()].emplace_back(i);
      if (n.kind != NodeKind::load) continue;
      if (const BufferId from = k.buffer(n.buffer).outer; from.valid())
        readers_[from.index()].emplace_back(i);
      else if (n.flush.valid())
        from_home_[n.tensor].emplace_back(i);
    }
  }

  std::vector<Dependence> find() {
    for (const Buffer& b : k_.buffers) {
      if (b.role == BufferRole::intermediate) at_buffer(b);
      if (!b.outer.valid() && b.role == BufferRole::output) at_home(b);
    }
    return std::move(found_);
  }

  /// Blocks run in any order: what goes home is written by one of them each, or added up.
  std::optional<Reason> check_home() const {
    for (const Buffer& b : k_.buffers) {
      if (b.outer.valid() || (b.role != BufferRole::output && !b.leaves)) continue;
      const OpId op = w_.producer(b.tensor);
      const NodeId compute = compute_of(op);
      const End writer = writer_of(b, compute);
      if (auto reason = written_by_several(b, op)) return reason;
      for (NodeId l : path_to(k_, compute)) {
        if (unit_here(k_.node(l)) != Unit::grid || dimension(writer, l)) continue;
        const LoopId loop = k_.node(l).loop;
        // A cluster's blocks add up what they have before it leaves (rule 12).
        const bool joined = b.atomic || k_.node(l).binding == Binding::cluster;
        if (joined && w_.is_reduction(op, loop)) continue;
        const bool all = w_.local_index(op, loop) < 0;
        return Reason{formatted("{} of loop {}@grid would write {}{} home",
                                all ? "every block" : "several blocks", w_.loop(loop).name,
                                all ? "" : "the same elements of ", w_.tensor(b.tensor).name)};
      }
    }
    return std::nullopt;
  }

 private:
  BufferId id_of(const Buffer& b) const {
    return BufferId(static_cast<std::size_t>(&b - k_.buffers.data()));
  }

  NodeId compute_of(OpId op) const { return compute_of_.at(op); }

  /// Warps, lanes and threads with tiles of their own, all of which make the same one.
  std::optional<Reason> written_by_several(const Buffer& b, OpId op) const {
    const Unit owner = s_.machine->level(b.level).private_to;
    for (NodeId l : path_to(k_, b.store.valid() ? b.store : compute_of(op))) {
      const ScheduleNode& n = k_.node(l);
      const auto unit = unit_here(n);
      if (!unit || *unit <= Unit::grid || *unit > owner || w_.local_index(op, n.loop) >= 0)
        continue;
      return Reason{formatted("every {} of loop {}@{} would write {} home", name_of(n.binding),
                              w_.loop(n.loop).name, name_of(n.binding), w_.tensor(b.tensor).name)};
    }
    return std::nullopt;
  }

  End reader_of(NodeId node, std::span<const ReadRef> refs) const {
    End end{node, {}};
    for (const ReadRef& r : refs)
      end.accesses.emplace_back(r.op, &w_.op(r.op).inputs[static_cast<std::size_t>(r.input)]);
    return end;
  }

  End writer_of(const Buffer& b, NodeId node) const {
    const OpId op = w_.producer(b.tensor);
    End end{node, {}};
    for (const Output& o : w_.op(op).outputs)
      if (o.target.tensor == b.tensor) end.accesses.emplace_back(op, &o.target);
    return end;
  }

  /// What is on chip: written by its compute, or by the store that comes from further in.
  void at_buffer(const Buffer& b) {
    const BufferId id = id_of(b);
    NodeId writes = compute_of(w_.producer(b.tensor));
    // A tensor's written buffers stand one after the other, the inner ones first.
    if (id.index() > 0)
      if (const Buffer& inner = k_.buffers[id.index() - 1];
          inner.outer == id && inner.role == BufferRole::output && inner.store.valid())
        writes = inner.store;
    const End writer = writer_of(b, writes);
    const Unit owner = s_.machine->level(b.level).private_to;
    for (NodeId reader : readers_[id.index()]) {
      const ScheduleNode& n = k_.node(reader);
      std::vector<ReadRef> refs = n.reads_below;
      for (const InputUse& use : n.reads)
        if (use.buffer == id)
          for (int input : use.inputs) refs.push_back({n.op, input});
      depend(b, id, owner, writer, reader_of(reader, refs));
    }
  }

  /// What goes home and is read back there.
  void at_home(const Buffer& b) {
    const auto loads = from_home_.find(b.tensor);
    if (loads == from_home_.end()) return;
    for (NodeId load : loads->second)
      depend(b, {}, Unit::machine, writer_of(b, b.store),
             reader_of(load, k_.node(load).reads_below));
  }

  void depend(const Buffer& b, BufferId place, Unit owner, const End& writer, const End& reader) {
    const NodeId compute = compute_of(w_.producer(b.tensor));
    const End end{writer.node.valid() ? writer.node : compute, writer.accesses};
    // A store outside of the blocks' loops is of what all of them have made.
    const auto made = apart(b, place, owner, {compute, writer.accesses}, reader);
    const auto stored = apart(b, place, owner, end, reader);
    const auto scope = made && stored ? std::min(*made, *stored) : made ? made : stored;
    if (!scope) return;
    found_.push_back({b.tensor, place, writer.node, reader.node, *scope, {}});
    for (NodeId l : path_to(k_, reader.node)) {
      const ScheduleNode& n = k_.node(l);
      if (n.kind == NodeKind::loop && n.max_trips > 1 && !unit_of(n.binding) &&
          is_around(k_, l, compute) && !places_differ(b, place, l, end, reader))
        found_.push_back({b.tensor, place, compute, reader.node, *scope, l});
    }
  }

  /// The widest kind of unit whose members differ between who writes an element and who reads it,
  /// as the scope of the barrier that brings them together. None: the same unit does both.
  std::optional<Unit> apart(const Buffer& b, BufferId place, Unit owner, const End& writer,
                            const End& reader) const {
    std::vector<NodeId> from = path_to(k_, writer.node), to = path_to(k_, reader.node);
    std::size_t shared = 0;
    while (shared < from.size() && shared < to.size() && from[shared] == to[shared]) ++shared;
    from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(shared));
    to.erase(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(shared));

    if (k_.blocks > 1 && (b.atomic || first_block(from) != first_block(to) ||
                          !alike(writer, from, reader, to, Unit::grid)))
      return Unit::machine;
    if (owner > Unit::grid && owner != Unit::warp) return std::nullopt;  // each unit has its own
    const auto bound = [&](const std::vector<NodeId>& path, Unit unit) {
      return std::ranges::any_of(path, [&](NodeId n) { return unit_here(k_.node(n)) == unit; });
    };
    const auto any = [&](const std::vector<NodeId>& path) {
      return bound(path, Unit::warp) || bound(path, Unit::lane) || bound(path, Unit::thread);
    };
    // Stores share out what they write as they like.
    const OpId op = writer.accesses.front().first;
    const NodeId compute = compute_of(op);
    std::vector<NodeId> making = path_to(k_, compute);
    making.erase(making.begin(),
                 making.begin() + static_cast<std::ptrdiff_t>(std::min(shared, making.size())));
    if (!place.valid()) return any(making) || any(to) ? std::optional(Unit::grid) : std::nullopt;
    if (!any(from)) return std::nullopt;  // made by all alike
    const bool threads = bound(from, Unit::thread) || bound(to, Unit::thread);
    const auto reduced = [&](Unit unit) {
      return std::ranges::any_of(from, [&](NodeId n) {
        return unit_here(k_.node(n)) == unit && w_.is_reduction(op, k_.node(n).loop);
      });
    };
    if (owner <= Unit::grid) {
      if (threads && (reduced(Unit::thread) || !alike(writer, from, reader, to, Unit::thread)))
        return Unit::grid;
      if (reduced(Unit::warp) || !alike(writer, from, reader, to, Unit::warp)) return Unit::grid;
    }
    if (reduced(Unit::lane) || !alike(writer, from, reader, to, Unit::lane)) return Unit::warp;
    return std::nullopt;
  }

  std::int64_t first_block(const std::vector<NodeId>& path) const {
    std::int64_t first = 0;
    for (NodeId n : path) first += k_.node(n).first_block;
    return first;
  }

  /// Whether an operator's range is what a loop around it cuts: its readers inside the loop need no
  /// more of it, nor do theirs.
  bool follows(OpId op, NodeId loop) const {
    const LoopId cut = k_.node(loop).loop;
    for (std::size_t i = loop.index(); i < k_.nodes.size(); ++i) {
      if (!is_around(k_, loop, NodeId(i))) break;
      for (const Inference& need : k_.nodes[i].infer) {
        if (need.producer != op) continue;
        const Access& made = w_.op(op).outputs[static_cast<std::size_t>(need.output)].target;
        for (std::size_t d = 0; d < made.index.size(); ++d)
          for (const ReadRef& r : need.reads)
            if (made.index[d].plain_loop() == cut &&
                (w_.op(r.op).inputs[static_cast<std::size_t>(r.input)].index[d].plain_loop() !=
                     cut ||
                 !follows(r.op, loop)))
              return false;
      }
    }
    return true;
  }

  /// The one dimension that a loop cuts through all accesses as it is, without halo or stride.
  std::optional<int> dimension(const End& end, NodeId loop) const {
    std::optional<int> found;
    for (const auto& [op, a] : end.accesses) {
      if (!follows(op, loop)) return std::nullopt;
      std::optional<int> here;
      for (std::size_t d = 0; d < a->index.size(); ++d) {
        const bool in = std::ranges::any_of(
            a->index[d].terms, [&](const Term& t) { return t.loop == k_.node(loop).loop; });
        if (!in) continue;
        if (here || a->index[d].plain_loop() != k_.node(loop).loop) return std::nullopt;
        here = static_cast<int>(d);
      }
      if (!here || (found && *found != *here)) return std::nullopt;
      found = here;
    }
    return found;
  }

  /// What tells a loop's units apart, beside the dimension that it cuts: the steps that cut that
  /// dimension on the way there, where the first one begins, and how many blocks an iteration has.
  struct Cut {
    int dim = 0;
    std::vector<std::int64_t> steps;
    std::int64_t begin = 0, trips = 0, blocks = 0;
    friend bool operator==(const Cut&, const Cut&) = default;
  };

  /// Whether units of a kind are the same for every element: nothing is left to tell them apart,
  /// or the same cuts of the same dimensions. What is written outside of the loops of units within
  /// a block is written by all of them.
  bool alike(const End& writer, const std::vector<NodeId>& from, const End& reader,
             const std::vector<NodeId>& to, Unit unit) const {
    const auto made = cuts(writer, from, unit), used = cuts(reader, to, unit);
    if (!made || !used) return false;
    if (made->empty() && unit != Unit::grid) return true;
    return *made == *used;
  }

  /// Where a loop's range begins in the first iterations of those around it: readers that need less
  /// of a tensor than all may begin it elsewhere.
  std::int64_t begin_of(NodeId loop) const {
    if (begins_.empty()) {
      begins_.resize(k_.nodes.size());
      Ranges r = whole_ranges(s_, k_);
      for (const Inference& i : k_.node(NodeId(0)).infer) infer(s_, k_, i, r);
      find_begins(NodeId(0), r);
    }
    return begins_[loop.index()];
  }

  void find_begins(NodeId id, const Ranges& around) const {
    const ScheduleNode& node = k_.node(id);
    if (node.kind != NodeKind::loop) {
      for (NodeId c : node.children) find_begins(c, around);
      return;
    }
    const OpLoop& first = node.cuts.front();
    begins_[id.index()] =
        around[k_.range_base[first.op.index()] + static_cast<std::size_t>(first.local)].lo;
    if (std::ranges::none_of(node.children, [&](NodeId c) { return has_loops(c); })) return;
    Ranges inside = around;
    cut(k_, id, 0, around, inside);
    for (const Inference& i : node.infer) infer(s_, k_, i, inside);
    for (NodeId c : node.children) find_begins(c, inside);
  }

  bool has_loops(NodeId id) const {
    const ScheduleNode& node = k_.node(id);
    return node.kind == NodeKind::loop ||
           std::ranges::any_of(node.children, [&](NodeId c) { return has_loops(c); });
  }

  /// None: a loop does not cut one dimension as it is.
  std::optional<std::vector<Cut>> cuts(const End& end, const std::vector<NodeId>& path,
                                       Unit unit) const {
    std::vector<Cut> all;
    for (std::size_t i = 0; i < path.size(); ++i) {
      if (unit_here(k_.node(path[i])) != unit) continue;
      const auto dim = dimension(end, path[i]);
      if (!dim) return std::nullopt;
      Cut c{.dim = *dim,
            .steps = {},
            .begin = begin_of(path[i]),
            .trips = k_.node(path[i]).max_trips};
      for (std::size_t j = 0; j <= i; ++j) {
        const ScheduleNode& n = k_.node(path[j]);
        if (n.kind == NodeKind::loop && n.max_trips > 1 && dimension(end, path[j]) == dim)
          c.steps.push_back(n.step);
      }
      if (unit == Unit::grid) c.blocks = blocks_below(k_, path[i]);
      all.push_back(std::move(c));
    }
    return all;
  }

  /// Whether each iteration of a loop around both has another part of the place: what the next one
  /// writes is not what this one still reads.
  bool places_differ(const Buffer& b, BufferId place, NodeId loop, const End& writer,
                     const End& reader) const {
    if (place.valid() &&
        (!b.fixed_at.valid() || !is_around(k_, b.fixed_at, loop) || b.fixed_at == loop))
      return false;  // another tile takes the place of this one
    const auto dim = dimension(reader, loop);
    return dim && dimension(writer, loop) == dim;
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;
  std::map<OpId, NodeId> compute_of_;
  std::vector<std::vector<NodeId>> readers_;           // by buffer: computes, and loads out of it
  std::map<TensorId, std::vector<NodeId>> from_home_;  // loads of what the kernel makes
  std::vector<Dependence> found_;
  mutable std::vector<std::int64_t> begins_;  // by node, of loops: when first asked
};

/// Loops and parts of packs around a barrier that are around neither of two nodes: there are ways
/// past it.
bool always_between(const ScheduledKernel& k, NodeId barrier, NodeId a, NodeId b) {
  for (NodeId n = barrier; n.valid(); n = k.node(n).parent) {
    const NodeId parent = k.node(n).parent;
    const bool part = parent.valid() && k.node(parent).kind == NodeKind::pack;
    if (!part && k.node(n).kind != NodeKind::loop) continue;
    if (!is_around(k, n, a) && !is_around(k, n, b)) return false;
  }
  return true;
}

std::string name_of_node(const Workload& w, const ScheduledKernel& k, NodeId id) {
  const ScheduleNode& n = k.node(id);
  if (n.kind == NodeKind::compute) return "C." + w.op(n.op).name;
  return (n.kind == NodeKind::store ? "S." : "L.") + w.tensor(n.tensor).name;
}

/// Loops whose units a barrier waits for: inside them only some would come.
std::optional<Reason> check_place(const Workload& w, const ScheduledKernel& k, NodeId barrier) {
  const Unit scope = k.node(barrier).scope;
  for (NodeId n = k.node(barrier).parent; n.valid(); n = k.node(n).parent) {
    const ScheduleNode& around = k.node(n);
    if (around.kind == NodeKind::pack && scope == Unit::machine)
      return Reason{
          "Y.grid stands in a part of a pack: the other parts' blocks would not come to it"};
    const auto unit = around.kind == NodeKind::loop ? unit_of(around.binding) : std::nullopt;
    if (!unit || *unit <= scope) continue;
    return Reason{
        formatted("Y.{} stands inside loop {}@{}: {} that have no iteration left would "
                  "not come to it",
                  barrier_name(scope), w.loop(around.loop).name, name_of(around.binding),
                  *unit == Unit::grid ? "blocks" : "threads")};
  }
  return std::nullopt;
}

}  // namespace

std::vector<Dependence> dependences(const Schedule& s, const ScheduledKernel& k) {
  return Finder(s, k).find();
}

NodeId barrier_of(const ScheduledKernel& k, const Dependence& d) {
  if (!d.writer.valid()) return {};
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const NodeId id(i);
    if (k.nodes[i].kind != NodeKind::sync || k.nodes[i].scope > d.scope ||
        !always_between(k, id, d.writer, d.reader))
      continue;
    const bool between = d.loop.valid()
                             ? is_around(k, d.loop, id) && (id > d.reader || id < d.writer)
                             : d.writer < id && id < d.reader;
    if (between) return id;
  }
  return {};
}

std::optional<Reason> check_barriers(const Schedule& s, const ScheduledKernel& k) {
  const Workload& w = *s.workload;
  for (std::size_t i = 0; i < k.nodes.size(); ++i)
    if (k.nodes[i].kind == NodeKind::sync)
      if (auto reason = check_place(w, k, NodeId(i))) return reason;
  if (auto reason = Finder(s, k).check_home()) return reason;
  for (const Dependence& d : dependences(s, k)) {
    const std::string reader = name_of_node(w, k, d.reader), tensor = w.tensor(d.tensor).name;
    if (d.scope == Unit::machine && d.buffer.valid()) {
      const Level& level = s.machine->level(k.buffer(d.buffer).level);
      if (level.private_to != Unit::machine)
        return Reason{
            formatted("{} lies in memory of the block that makes it at {}, and {} reads it "
                      "in another: pin it to {}",
                      tensor, level.name, reader, s.machine->level(s.machine->home()).name)};
    }
    const std::string others = d.scope == Unit::machine ? "other blocks"
                               : d.scope == Unit::grid  ? "other warps of its block"
                                                        : "other lanes of its warp";
    if (!d.writer.valid())
      return Reason{
          formatted("{} reads what {} have of {}: S.{} and then Y.{} must stand before it", reader,
                    others, tensor, tensor, barrier_name(d.scope))};
    if (barrier_of(k, d).valid()) continue;
    const std::string writer = name_of_node(w, k, d.writer);
    if (d.loop.valid())
      return Reason{formatted(
          "{} writes {} again in the next iteration of {}, while {} may still be "
          "at {}: Y.{} must stand between",
          writer, tensor, w.loop(k.node(d.loop).loop).name, others, reader, barrier_name(d.scope))};
    return Reason{formatted("{} reads what {} of {} has written: Y.{} must stand between", reader,
                            writer, others, barrier_name(d.scope))};
  }
  return std::nullopt;
}

}  // namespace tilewright
