#include "core/workload/merge_loops.h"

#include <algorithm>
#include <map>

#include "core/workload/access.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

bool reads_index(const Expr& e, LoopId loop) {
  return (e.kind == Expr::Kind::index && e.loop == loop) ||
         std::ranges::any_of(e.args, [&](const Expr& arg) { return reads_index(arg, loop); });
}

bool reads_index(const Operator& op, LoopId loop) {
  return std::ranges::any_of(op.outputs, [&](const Output& o) {
    return reads_index(o.value, loop) || (o.rescale && reads_index(*o.rescale, loop));
  });
}

template <class Op, class Function>
void for_each_access(Op& op, const Function& function) {
  for (auto& a : op.inputs) function(a);
  for (auto& o : op.outputs) function(o.target);
}

void renumber(Expr& e, LoopId gone) {
  if (e.loop.valid() && e.loop.index() > gone.index()) e.loop = LoopId(e.loop.index() - 1);
  for (Expr& arg : e.args) renumber(arg, gone);
}

/// Where a tensor has the two loops: its dimension of the outer one.
constexpr int kNone = -1, kUnseen = -2;

class Merger {
 public:
  Merger(const WorkloadSpec& spec, LoopId outer, LoopId inner)
      : spec_(spec), outer_(outer), inner_(inner), at_(spec.tensors.size(), kUnseen) {}

  bool possible() {
    for (const Operator& op : spec_.operators) {
      const auto in_loops = [&](LoopId l) { return std::ranges::find(op.loops, l); };
      if ((in_loops(outer_) == op.loops.end()) != (in_loops(inner_) == op.loops.end()))
        return false;
      if (reads_index(op, outer_) || reads_index(op, inner_)) return false;
      bool same = true;
      for_each_access(op, [&](const Access& a) { same = same && goes_together(a); });
      if (!same) return false;
    }
    return true;
  }

  WorkloadSpec merged() const {
    WorkloadSpec spec = spec_;
    Loop& outer = spec.loops[outer_.index()];
    outer.extent *= spec.loops[inner_.index()].extent;
    for (Operator& op : spec.operators) {
      for_each_access(op, [&](Access& a) { drop(a); });
      std::erase(op.loops, inner_);
      for (LoopId& l : op.loops) renumber(l);
      for (Output& o : op.outputs) {
        tilewright::renumber(o.value, inner_);
        if (o.rescale) tilewright::renumber(*o.rescale, inner_);
      }
    }
    for (std::size_t t = 0; t < at_.size(); ++t) {
      if (at_[t] < 0) continue;
      auto& shape = spec.tensors[t].shape;
      shape[static_cast<std::size_t>(at_[t])] = outer.extent;
      shape.erase(shape.begin() + at_[t] + 1);
    }
    spec.loops.erase(spec.loops.begin() + static_cast<std::ptrdiff_t>(inner_.index()));
    return spec;
  }

 private:
  bool goes_together(const Access& a) {
    const std::vector<std::int64_t>& shape = spec_.tensors[a.tensor.index()].shape;
    int found = kNone, uses = 0;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      if (counts_together(a.index[d])) continue;
      uses += indexes(a.index[d], outer_) + indexes(a.index[d], inner_);
      if (d + 1 < a.index.size() && a.index[d].plain_loop() == outer_ &&
          a.index[d + 1].plain_loop() == inner_ && shape[d] == spec_.loops[outer_.index()].extent &&
          shape[d + 1] == spec_.loops[inner_.index()].extent)
        found = static_cast<int>(d);
    }
    if (uses != (found == kNone ? 0 : 2)) return false;
    int& at = at_[a.tensor.index()];
    if (at == kUnseen) at = found;
    return at == found;
  }

  /// Whether the index has both only as a number of two digits: the inner loop is the last one.
  bool counts_together(const Affine& index) const {
    const auto of = [&](LoopId l) { return std::ranges::find(index.terms, l, &Term::loop); };
    const auto outer = of(outer_), inner = of(inner_);
    return index.gathered < 0 && outer != index.terms.end() && inner != index.terms.end() &&
           outer->coefficient == inner->coefficient * spec_.loops[inner_.index()].extent;
  }

  void drop(Access& a) const {
    if (const int at = at_[a.tensor.index()]; at >= 0) a.index.erase(a.index.begin() + at + 1);
    for (Affine& index : a.index) {
      const auto inner = std::ranges::find(index.terms, inner_, &Term::loop);
      if (inner != index.terms.end()) {  // they count together
        std::ranges::find(index.terms, outer_, &Term::loop)->coefficient = inner->coefficient;
        index.terms.erase(inner);
      }
      for (Term& t : index.terms) renumber(t.loop);
    }
  }
  void renumber(LoopId& l) const {
    if (l.index() > inner_.index()) l = LoopId(l.index() - 1);
  }

  const WorkloadSpec& spec_;
  LoopId outer_, inner_;
  std::vector<int> at_;  ///< by TensorId
};

/// By operator, the first one that it is connected with by tensors that one writes and one reads.
std::vector<std::size_t> connected(const Workload& w) {
  std::vector<std::size_t> first(w.operators().size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    first[i] = i;
    for (const Access& a : w.operators()[i].inputs) {
      const OpId producer = w.producer(a.tensor);
      if (!producer.valid()) continue;
      const std::size_t one = first[i], other = first[producer.index()];
      for (std::size_t j = 0; j <= i; ++j)
        if (first[j] == one || first[j] == other) first[j] = std::min(one, other);
    }
  }
  return first;
}

void replace(Expr& e, const std::map<LoopId, LoopId>& by) {
  if (const auto at = by.find(e.loop); e.kind == Expr::Kind::index && at != by.end())
    e.loop = at->second;
  for (Expr& arg : e.args) replace(arg, by);
}

void replace(Operator& op, const std::map<LoopId, LoopId>& by) {
  const auto own = [&](LoopId& l) {
    if (const auto at = by.find(l); at != by.end()) l = at->second;
  };
  for_each_access(op, [&](Access& a) {
    for (Affine& index : a.index)
      for (Term& t : index.terms) own(t.loop);
  });
  for (LoopId& l : op.loops) own(l);
  for (Output& o : op.outputs) {
    replace(o.value, by);
    if (o.rescale) replace(*o.rescale, by);
  }
}

/// Where parts have loops in common: each with its own.
std::optional<Workload> with_own_loops(const Workload& w) {
  const std::vector<std::size_t> part = connected(w);
  std::optional<WorkloadSpec> spec;
  std::map<LoopId, std::size_t> owner;                      // the part that has it first
  std::map<std::size_t, std::map<LoopId, LoopId>> renamed;  // by part
  for (std::size_t i = 0; i < part.size(); ++i) {
    std::map<LoopId, LoopId>& own = renamed[part[i]];
    for (const LoopId l : w.operators()[i].loops) {
      if (owner.try_emplace(l, part[i]).first->second == part[i] || own.contains(l)) continue;
      if (!spec) spec = w.spec();
      own[l] = rewrite::add_loop(*spec, w.loop(l).name, w.loop(l).extent);
    }
    if (spec) replace(spec->operators[i], own);
  }
  if (!spec) return std::nullopt;
  return Workload::create(std::move(*spec));
}

std::optional<WorkloadSpec> merged_once(const WorkloadSpec& spec, const MayMerge& may) {
  for (std::size_t a = 0; a < spec.loops.size(); ++a)
    for (std::size_t b = 0; b < spec.loops.size(); ++b) {
      if (a == b) continue;
      Merger merger(spec, LoopId(a), LoopId(b));
      if (merger.possible() && (!may || may(spec.loops[a], spec.loops[b]))) return merger.merged();
    }
  return std::nullopt;
}

}  // namespace

std::optional<Workload> merged_loops(const Workload& w, const MayMerge& may) {
  std::optional<WorkloadSpec> spec;
  for (auto next = merged_once(w.spec(), may); next; next = merged_once(*spec, may))
    spec = std::move(next);
  if (!spec) return std::nullopt;
  return Workload::create(std::move(*spec));
}

std::optional<Workload> merged_loops_of_parts(const Workload& w) {
  const std::optional<Workload> apart = with_own_loops(w);
  return merged_loops(apart ? *apart : w);
}

}  // namespace tilewright
