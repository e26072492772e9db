// Workload::compulsory_bytes: a lower bound, so only elements that no plan can do without count.
#include <algorithm>

#include "core/workload/workload.h"

namespace tilewright {
namespace {

/// Sorted, disjoint, not touching.
using Set = std::vector<Interval>;

std::int64_t count(const Set& s) {
  std::int64_t n = 0;
  for (const Interval& i : s) n += i.size();
  return n;
}

Set normalised(Set s) {
  std::sort(s.begin(), s.end(), [](Interval a, Interval b) { return a.lo < b.lo; });
  Set out;
  for (const Interval& i : s) {
    if (i.empty()) continue;
    if (!out.empty() && i.lo <= out.back().hi)
      out.back().hi = std::max(out.back().hi, i.hi);
    else
      out.push_back(i);
  }
  return out;
}

constexpr std::int64_t kMostWork = 1 << 20;  // intervals; beyond it the bound only gets weaker

/// {v + c * i : v in values, i in loop}.
Set plus(const Set& values, std::int64_t c, const Set& loop) {
  Set out;
  for (const Interval& range : loop) {
    if (c == 1 || c == -1) {
      // Every v + i of two intervals: one interval.
      const Interval scaled = c == 1 ? range : Interval{1 - range.hi, 1 - range.lo};
      for (const Interval& v : values) out.push_back({v.lo + scaled.lo, v.hi + scaled.hi - 1});
      continue;
    }
    for (std::int64_t i = range.lo; i < range.hi; ++i) {
      for (const Interval& v : values) out.push_back({v.lo + c * i, v.hi + c * i});
      if (static_cast<std::int64_t>(out.size()) > kMostWork) return normalised(std::move(out));
    }
  }
  return normalised(std::move(out));
}

Set clipped(const Set& s, std::int64_t extent) {
  Set out;
  for (const Interval& i : s) out.push_back(intersect(i, Interval{0, extent}));
  return normalised(std::move(out));
}

Set united(Set a, const Set& b) {
  a.insert(a.end(), b.begin(), b.end());
  return normalised(std::move(a));
}

bool within(const Set& inner, const Set& outer) { return united(inner, outer) == outer; }

/// What of a tensor is needed: the product of one set a dimension.
struct Need {
  std::vector<Set> dims;
  std::int64_t elements = 0;
  bool exact = true;  ///< these very elements; else as many at least, whichever they are

  /// Takes in another need where together they are again such a product: where they differ in one
  /// dimension only, as slices of one tensor do, or one is part of the other. Otherwise the larger
  /// one stands, which is less than both.
  void join(Need other) {
    if (elements > 0 && exact && other.exact) {
      std::size_t differ = 0, at = 0;
      bool part = true;
      for (std::size_t d = 0; d < dims.size(); ++d) {
        part = part && within(other.dims[d], dims[d]);
        if (dims[d] == other.dims[d]) continue;
        ++differ;
        at = d;
      }
      if (part) return;
      if (differ == 1) {
        dims[at] = united(std::move(dims[at]), other.dims[at]);
        elements = 1;
        for (const Set& s : dims) elements *= count(s);
        return;
      }
    }
    if (other.elements > elements) *this = std::move(other);
  }
};

class Needs {
 public:
  explicit Needs(const Workload& w) : w_(w), needs_(w.tensors().size()) {
    for (TensorId t : w.outputs()) whole(t);
    const std::span<const OpId> order = w.topological_order();
    for (auto it = order.rbegin(); it != order.rend(); ++it) visit(w.op(*it));
  }
  std::int64_t elements(TensorId t) const { return needs_[t.index()].elements; }

 private:
  void whole(TensorId t) {
    Need need{.elements = w_.tensor(t).elements().value};
    for (std::int64_t extent : w_.tensor(t).shape) need.dims.push_back({{0, extent}});
    needs_[t.index()] = std::move(need);
  }

  void visit(const Operator& op) {
    // The largest need of one output is a subset of what the operator must compute.
    const Output* most = &op.outputs.front();
    for (const Output& out : op.outputs)
      if (elements(out.target.tensor) > elements(most->target.tensor)) most = &out;
    const Need& need = needs_[most->target.tensor.index()];
    if (need.elements == 0) return;
    std::vector<Set> values(op.loops.size());
    for (std::size_t i = 0; i < op.loops.size(); ++i)
      values[i] = {{0, w_.loop(op.loops[i]).extent}};
    for (std::size_t d = 0; d < most->target.index.size(); ++d)
      if (const auto loop = most->target.index[d].plain_loop())
        values[local(op, *loop)] = need.dims[d];
    for (const Access& in : op.inputs) read(op, in, values, need.exact);
  }

  static std::size_t local(const Operator& op, LoopId loop) {
    return static_cast<std::size_t>(std::find(op.loops.begin(), op.loops.end(), loop) -
                                    op.loops.begin());
  }

  /// The values of loops for which dimensions that one loop alone indexes lie inside the tensor:
  /// with the others, nothing is read.
  std::vector<Set> inside(const Operator& op, const Access& in, std::vector<Set> values) const {
    for (std::size_t d = 0; d < in.index.size(); ++d) {
      const Affine& a = in.index[d];
      if (a.terms.size() != 1 || a.gathered >= 0) continue;
      const std::int64_t c = a.terms[0].coefficient;
      Set& loop = values[local(op, a.terms[0].loop)];
      const std::int64_t last = w_.tensor(in.tensor).shape[d] - 1;
      const std::int64_t low = c > 0 ? -a.offset : a.offset - last;  // |c| * value >= low
      const std::int64_t high = c > 0 ? last - a.offset : a.offset;
      const Interval may{low <= 0 ? 0 : ceil_div(low, std::abs(c)),
                         high < 0 ? 0 : high / std::abs(c) + 1};
      for (Interval& i : loop) i = intersect(i, may);
      loop = normalised(std::move(loop));
    }
    return values;
  }

  void read(const Operator& op, const Access& in, const std::vector<Set>& all, bool exact) {
    const std::vector<Set> values = inside(op, in, all);
    if (std::ranges::any_of(values, &Set::empty)) return;
    Need need{.elements = 1, .exact = exact && !is_gather(in)};
    std::vector<bool> taken(op.loops.size(), false);
    for (std::size_t d = 0; d < in.index.size(); ++d) {
      bool tied = false;
      // Of a gathered dimension one index at least is read; every value may be the same.
      Set s = {{in.index[d].offset, in.index[d].offset + 1}};
      for (const Term& t : in.index[d].terms) {
        const std::size_t l = local(op, t.loop);
        tied = tied || taken[l];
        // A loop that indexes two dimensions ties them together: in the second, one value counts.
        const Set one = {{values[l].front().lo, values[l].front().lo + 1}};
        s = plus(s, t.coefficient, taken[l] ? one : values[l]);
      }
      // How much of it lies inside then depends on that value.
      if (tied && leaves(op, in, d, values)) return;
      need.exact = need.exact && !tied;
      for (const Term& t : in.index[d].terms) taken[local(op, t.loop)] = true;
      need.dims.push_back(clipped(s, w_.tensor(in.tensor).shape[d]));
      need.elements *= count(need.dims.back());
    }
    if (need.elements > 0) needs_[in.tensor.index()].join(std::move(need));
  }

  /// Whether some index of a dimension lies outside the tensor.
  bool leaves(const Operator& op, const Access& in, std::size_t d,
              const std::vector<Set>& values) const {
    std::int64_t low = in.index[d].offset, high = low;
    for (const Term& t : in.index[d].terms) {
      const Set& loop = values[local(op, t.loop)];
      const std::int64_t first = t.coefficient * loop.front().lo;
      const std::int64_t last = t.coefficient * (loop.back().hi - 1);
      low += std::min(first, last), high += std::max(first, last);
    }
    return low < 0 || high >= w_.tensor(in.tensor).shape[d];
  }

  const Workload& w_;
  std::vector<Need> needs_;
};

}  // namespace

Bytes Workload::compulsory_bytes() const {
  const Needs needs(*this);
  Bytes total;
  for (std::size_t t = 0; t < spec_.tensors.size(); ++t) {
    const TensorId id(t);
    if (is_input(id)) total += bytes_of(Elements(needs.elements(id)), spec_.tensors[t].dtype);
    if (is_output(id)) total += spec_.tensors[t].bytes();
  }
  return total;
}

}  // namespace tilewright
