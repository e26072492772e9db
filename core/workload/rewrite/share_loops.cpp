// Products of one tensor that are the same but for the names of their loops get the same loops, so
// that a tree can compute them side by side in one nest and load the tensor once (Souffle's
// horizontal transformation; Xia et al., ASPLOS 2024, section 6.1).
//
//   Q[h,m,e] += X[m,d] * Wq[d,h,e]       Q[h,m,e] += X[m,d] * Wq[d,h,e]
//   V[h,l,v] += X[l,d] * Wv[d,h,v]   =>  V[h,m,e] += X[m,d] * Wv[d,h,e]
//
// Element-wise readers of what has other loops now get them, too. An operator's loops are its own:
// nothing else changes.
#include <algorithm>
#include <map>
#include <optional>

#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

/// From an operator's loops to others, one to one.
class LoopNames {
 public:
  /// False where one of them has another partner already.
  bool pair(LoopId from, LoopId to) {
    const auto [a, first] = to_.emplace(from, to);
    const auto [b, second] = from_.emplace(to, from);
    return a->second == to && b->second == from;
  }
  bool has(LoopId from) const { return to_.contains(from); }
  bool taken(LoopId to) const { return from_.contains(to); }
  LoopId operator()(LoopId from) const { return to_.at(from); }

 private:
  std::map<LoopId, LoopId> to_, from_;
};

void rename_in(Expr& e, const LoopNames& names) {
  if (e.kind == Expr::Kind::index) e.loop = names(e.loop);
  for (Expr& a : e.args) rename_in(a, names);
}

void rename_in(Access& a, const LoopNames& names) {
  for (Affine& f : a.index)
    for (Term& t : f.terms) t.loop = names(t.loop);
}

void rename_in(Operator& op, const LoopNames& names) {
  for (LoopId& l : op.loops) l = names(l);
  for (Access& a : op.inputs) rename_in(a, names);
  for (Output& o : op.outputs) {
    rename_in(o.target, names);
    rename_in(o.value, names);
    if (o.rescale) rename_in(*o.rescale, names);
  }
}

class LoopSharing {
 public:
  explicit LoopSharing(const Workload& w)
      : w_(w), spec_(w.spec()), renamed_(spec_.operators.size()) {}

  Result<Workload> run() {
    std::map<TensorId, std::vector<OpId>> products;  // by tensor: those that read it
    for (OpId id : w_.topological_order()) {
      const bool changed = w_.is_contraction(id)
                               ? as_a_product_before(id, products)
                               : w_.reduction_loops(id).empty() && as_its_producers(id);
      renamed_[id.index()] = changed;
      any_ = any_ || changed;
      if (w_.is_contraction(id))
        for (const Access& a : op(id).inputs) products[a.tensor].push_back(id);
    }
    if (!any_)
      return Reason{"no two products of one tensor differ in the names of their loops alone"};
    rewrite::drop(spec_, std::vector<bool>(spec_.operators.size(), false));
    return Workload::create(std::move(spec_));
  }

 private:
  Operator& op(OpId id) { return spec_.operators[id.index()]; }

  bool as_a_product_before(OpId id, std::map<TensorId, std::vector<OpId>>& products) {
    for (const Access& a : op(id).inputs)
      for (OpId before : products[a.tensor]) {
        if (reads(id, before)) continue;
        const auto names = to_loops_of(id, before, a);
        if (!names) continue;
        const std::vector<LoopId> old = op(id).loops;
        rename_in(op(id), *names);
        return op(id).loops != old;
      }
    return false;
  }

  bool reads(OpId id, OpId producer) {
    return std::ranges::any_of(op(id).inputs,
                               [&](const Access& a) { return w_.producer(a.tensor) == producer; });
  }

  /// The loops of `id` as those of `like`, so that both read the tensor of `a` alike. Of the loops
  /// that do not index it, those of the output in its order, then those of the sum.
  std::optional<LoopNames> to_loops_of(OpId id, OpId like, const Access& a) {
    const Operator& x = op(id);
    const Operator& y = op(like);
    if (x.loops.size() != y.loops.size() || x.outputs.size() != 1 || y.outputs.size() != 1)
      return {};
    for (const Access& b : y.inputs) {
      if (b.tensor != a.tensor) continue;
      LoopNames names;
      bool fits = true;
      for (std::size_t d = 0; d < a.index.size() && fits; ++d)
        fits = same_form(a.index[d], b.index[d], names);
      if (fits && the_rest(x, id, y, like, names)) return names;
    }
    return {};
  }

  static bool same_form(const Affine& x, const Affine& y, LoopNames& names) {
    if (x.gathered >= 0 || y.gathered >= 0 || x.offset != y.offset ||
        x.terms.size() != y.terms.size())
      return false;
    for (std::size_t i = 0; i < x.terms.size(); ++i)
      if (x.terms[i].coefficient != y.terms[i].coefficient ||
          !names.pair(x.terms[i].loop, y.terms[i].loop))
        return false;
    return true;
  }

  bool the_rest(const Operator& x, OpId id, const Operator& y, OpId like, LoopNames& names) {
    const auto is_sum = [&](const Operator& o, OpId of, LoopId l) {
      const auto local = std::ranges::find(o.loops, l) - o.loops.begin();
      return w_.is_reduction(of, w_.op(of).loops[static_cast<std::size_t>(local)]);
    };
    std::vector<LoopId> left;
    for (LoopId l : y.loops)
      if (!names.taken(l)) left.push_back(l);
    for (LoopId l : x.loops) {
      if (names.has(l)) continue;
      const auto match = std::ranges::find_if(left, [&](LoopId other) {
        return is_sum(x, id, l) == is_sum(y, like, other) &&
               spec_.loops[l.index()].extent == spec_.loops[other.index()].extent;
      });
      if (match == left.end() || !names.pair(l, *match)) return false;
      left.erase(match);
    }
    return std::ranges::all_of(x.loops, [&](LoopId l) {
      return spec_.loops[l.index()].extent == spec_.loops[names(l).index()].extent &&
             is_sum(x, id, l) == is_sum(y, like, names(l));
    });
  }

  /// An element-wise operator gets the loops of a producer that has others now.
  bool as_its_producers(OpId id) {
    LoopNames names;
    bool any = false;
    Operator& x = op(id);
    for (const Access& a : x.inputs) {
      const OpId producer = w_.producer(a.tensor);
      if (!producer.valid() || !renamed_[producer.index()]) continue;
      for (const Output& o : op(producer).outputs) {
        if (o.target.tensor != a.tensor) continue;
        for (std::size_t d = 0; d < a.index.size(); ++d) {
          const auto from = a.index[d].plain_loop(), to = o.target.index[d].plain_loop();
          // A loop that walks only a part of the tensor stays what it is.
          if (!from || !to || spec_.loops[from->index()].extent != spec_.loops[to->index()].extent)
            return false;
          if (!names.pair(*from, *to)) return false;
          any = true;
        }
      }
    }
    if (!any) return false;
    for (LoopId l : x.loops)
      if (!names.has(l) && !names.pair(l, l)) return false;
    const std::vector<LoopId> old = x.loops;
    rename_in(x, names);
    return x.loops != old;
  }

  const Workload& w_;
  WorkloadSpec spec_;
  std::vector<bool> renamed_;
  bool any_ = false;
};

}  // namespace

Rewrite share_loops() {
  return {.name = "share-loops",
          .summary =
              "products of one tensor that differ in the names of their loops alone get the same "
              "loops, and so do element-wise operators that read them",
          .source = "Xia et al., ASPLOS 2024, section 6.1",
          .function = [](const Workload& w) { return LoopSharing(w).run(); }};
}

}  // namespace tilewright
