#include "core/lowering/mask.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// exp of this and less is zero in f32, also with numbers below the normal ones.
constexpr double kExpIsZero = -104;
constexpr double kMostF16 = 65504;
constexpr double kExact = 1 << 24;  // integers up to here are numbers of f32
constexpr std::size_t kMostConditions = 4;

/// Bounds of a value. `finite`: it is a number; else it may also be infinite or none.
struct Range {
  double lo = -kInfinity, hi = kInfinity;
  bool finite = false;
  bool is(double x) const { return lo == x && hi == x; }
  bool infinite() const { return lo == hi && std::isinf(lo); }
};
Range constant(double x) { return {x, x, std::isfinite(x)}; }
Range number() { return {-kInfinity, kInfinity, true}; }

Range added(const Range& a, const Range& b) {
  if (a.finite && b.finite) return {a.lo + b.lo, a.hi + b.hi, true};
  if (a.infinite() && (b.finite || b.is(a.lo))) return a;
  if (b.infinite() && a.finite) return b;
  return {};
}
Range negated(const Range& a) { return {-a.hi, -a.lo, a.finite}; }
Range multiplied(const Range& a, const Range& b) {
  if (a.infinite() && b.finite && b.lo > 0) return a;
  if (a.infinite() && b.finite && b.hi < 0) return negated(a);
  if (b.infinite() && a.finite) return multiplied(b, a);
  if (!a.finite || !b.finite) return {};
  const auto times = [](double x, double y) { return x == 0 || y == 0 ? 0 : x * y; };
  const auto [lo, hi] =
      std::minmax({times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi)});
  return {lo, hi, true};
}
Range greater(const Range& a, const Range& b) {
  if (a.is(-kInfinity)) return b;
  if (b.is(-kInfinity)) return a;
  if (!a.finite || !b.finite) return {};
  return {std::max(a.lo, b.lo), std::max(a.hi, b.hi), true};
}
Range either(const Range& a, const Range& b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), a.finite && b.finite};
}

/// by_row * row + by_column * column + offset, the offset any number.
struct Plane {
  std::int64_t by_row = 0, by_column = 0;
  double offset = 0;
};
std::optional<Plane> plane(const Expr& e, LoopId rows, LoopId columns) {
  if (e.kind == Expr::Kind::constant)
    return std::abs(e.constant) < kExact ? std::optional(Plane{0, 0, e.constant}) : std::nullopt;
  if (e.kind == Expr::Kind::index) {
    if (e.loop == rows) return Plane{1, 0, 0};
    if (e.loop == columns) return Plane{0, 1, 0};
    return std::nullopt;
  }
  if (e.kind != Expr::Kind::call || e.args.empty()) return std::nullopt;
  const auto a = plane(e.args[0], rows, columns);
  if (!a) return std::nullopt;
  const auto scaled = [](const Plane& p, double by) -> std::optional<Plane> {
    const auto integer = static_cast<std::int64_t>(by);
    if (static_cast<double>(integer) != by) return std::nullopt;
    return Plane{p.by_row * integer, p.by_column * integer, p.offset * by};
  };
  if (e.function == "neg") return scaled(*a, -1);
  if (e.args.size() != 2) return std::nullopt;
  const auto b = plane(e.args[1], rows, columns);
  if (!b) return std::nullopt;
  const bool minus = e.function == "sub";
  if (e.function == "add" || minus)
    return Plane{a->by_row + (minus ? -b->by_row : b->by_row),
                 a->by_column + (minus ? -b->by_column : b->by_column),
                 a->offset + (minus ? -b->offset : b->offset)};
  if (e.function != "mul") return std::nullopt;
  if (b->by_row == 0 && b->by_column == 0) return scaled(*a, b->offset);
  if (a->by_row == 0 && a->by_column == 0) return scaled(*b, a->offset);
  return std::nullopt;
}

}  // namespace

std::optional<MaskEdge> true_beyond(const Expr& e, LoopId rows, LoopId columns) {
  if (e.kind != Expr::Kind::call || e.function != "lt") return std::nullopt;
  const auto a = plane(e.args[0], rows, columns), b = plane(e.args[1], rows, columns);
  if (!a || !b) return std::nullopt;
  const MaskEdge m{a->by_row - b->by_row, a->by_column - b->by_column,
                   static_cast<std::int64_t>(std::floor(a->offset - b->offset))};
  if (m.by_column == 0) return std::nullopt;
  return m;
}
MaskEdge opposite(const MaskEdge& m) { return {-m.by_row, -m.by_column, -m.offset - 1}; }

namespace {

class Prover {
 public:
  Prover(const Workload& w, const MaskedChain& c) : w_(w), c_(c) {}

  std::vector<MaskEdge> run() {
    for (const OpId id : c_.between)
      for (const Output& o : w_.op(id).outputs) collect(o.value);
    if (conditions_.empty() || conditions_.size() > kMostConditions) return {};
    // Of every condition, one of its two values leaves elements out: that which proves most.
    std::vector<MaskEdge> best;
    for (std::size_t values = 0; values < std::size_t{1} << conditions_.size(); ++values)
      if (auto found = proven(values); found.size() > best.size()) best = std::move(found);
    return best;
  }

 private:
  void collect(const Expr& e) {
    if (const auto m = true_beyond(e, c_.rows, c_.columns);
        m && exact(*m) && !contains(*m) && !contains(opposite(*m)))
      conditions_.push_back(*m);
    for (const Expr& a : e.args) collect(a);
  }
  bool contains(const MaskEdge& m) const {
    return std::ranges::find(conditions_, m) != conditions_.end();
  }
  bool exact(const MaskEdge& m) const {
    const auto most = [](std::int64_t by, std::int64_t n) {
      return std::abs(static_cast<double>(by)) * static_cast<double>(n);
    };
    return most(m.by_row, w_.loop(c_.rows).extent) + most(m.by_column, w_.loop(c_.columns).extent) +
               std::abs(static_cast<double>(m.offset)) <
           kExact;
  }

  std::vector<MaskEdge> proven(std::size_t values) {
    const auto out = [&](std::size_t i) { return (values >> i & 1) != 0; };
    std::vector<bool> kept(conditions_.size(), true);
    for (bool again = true; again;) {
      again = false;
      // Elements that no kept condition leaves out: what a row's maximum is at least.
      truth_.assign(conditions_.size(), std::nullopt);
      for (std::size_t i = 0; i < kept.size(); ++i)
        if (kept[i]) truth_[i] = !out(i);
      made_.clear(), rows_.clear();
      walk(false);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if (!kept[i]) continue;
        truth_.assign(conditions_.size(), std::nullopt);
        truth_[i] = out(i);
        made_.clear();
        if (!walk(true)) kept[i] = false, again = true;
      }
    }
    std::vector<MaskEdge> edges;
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (kept[i]) edges.push_back(out(i) ? conditions_[i] : opposite(conditions_[i]));
    if (!every_row(edges)) edges.clear();
    return edges;
  }

  /// Whether every row has an element that is beyond no edge.
  bool every_row(std::span<const MaskEdge> edges) const {
    const std::int64_t rows = w_.loop(c_.rows).extent, columns = w_.loop(c_.columns).extent;
    // A row's columns are an interval whose ends are each the least, or the greatest, of some
    // lines: where two lines are far enough apart at the first row and at the last one they are
    // between.
    for (const std::int64_t row : {std::int64_t{0}, rows - 1}) {
      double from = 0, to = static_cast<double>(columns - 1), slack = 0;
      for (const MaskEdge& m : edges) {
        const double at =
            static_cast<double>(-(m.by_row * row + m.offset)) / static_cast<double>(m.by_column);
        (m.by_column > 0 ? from = std::max(from, at) : to = std::min(to, at));
        if (std::abs(m.by_column) != 1) slack = 1;  // a column between may be no integer
      }
      if (to - from < slack) return false;
    }
    return true;
  }

  /// What operators make. Masked: of elements that are left out; whether they add nothing.
  bool walk(bool masked) {
    bool nothing = true;
    const double most = static_cast<double>(c_.depth) * kMostF16 * kMostF16;
    made_[w_.op(c_.first).outputs.front().target.tensor] =
        c_.operand == DType::f16 ? Range{-most, most, true} : number();
    for (const OpId id : c_.between) {
      const Operator& op = w_.op(id);
      const bool reduces = !w_.reduction_loops(id).empty();
      for (const Output& o : op.outputs) {
        const Range v = value(op, o.value);
        const TensorId t = o.target.tensor;
        if (!reduces) {
          made_[t] = v;
        } else if (o.combine == Combine::assign) {
          made_[t] = {};
        } else if (!masked) {
          made_[t] = rows_[t] = of_row(o.combine, v);
        } else {
          made_[t] = rows_[t];
          nothing = nothing && adds_nothing(o.combine, v, rows_[t]);
        }
      }
    }
    if (!masked) return true;
    // One factor is made here.
    for (const Access& a : w_.op(c_.second).inputs)
      if (const auto v = made_.find(a.tensor); v != made_.end() && of_elements(a))
        nothing = nothing && v->second.is(0);
    return nothing;
  }
  bool of_elements(const Access& a) const {
    return std::ranges::any_of(a.index, [&](const Affine& i) {
      return std::ranges::any_of(i.terms, [&](const Term& t) { return t.loop == c_.columns; });
    });
  }
  /// Of a row that has at least one such element, and others that add nothing.
  static Range of_row(Combine c, const Range& v) {
    if (c == Combine::max) return {v.lo, kInfinity, v.finite};
    if (c == Combine::min) return {-kInfinity, v.hi, v.finite};
    return {};
  }
  static bool adds_nothing(Combine c, const Range& v, const Range& row) {
    switch (c) {
      case Combine::sum:
        return v.is(0);
      case Combine::product:
        return v.is(1);
      case Combine::max:
        return row.finite && v.hi <= row.lo && (v.finite || v.is(-kInfinity));
      case Combine::min:
        return row.finite && v.lo >= row.hi && (v.finite || v.is(kInfinity));
      case Combine::assign:
        break;
    }
    return false;
  }

  Range value(const Operator& op, const Expr& e) const {
    switch (e.kind) {
      case Expr::Kind::constant:
        return constant(e.constant);
      case Expr::Kind::index:
        return {0, static_cast<double>(w_.loop(e.loop).extent - 1), true};
      case Expr::Kind::input: {
        const TensorId t = op.inputs[static_cast<std::size_t>(e.input)].tensor;
        const auto v = made_.find(t);
        if (v != made_.end()) return v->second;
        // Given from outside: a bias, a mask.
        return w_.producer(t).valid() ? Range{} : number();
      }
      case Expr::Kind::call:
        return call(op, e);
      default:
        return {};
    }
  }

  Range call(const Operator& op, const Expr& e) const {
    const auto at = [&](std::size_t i) { return value(op, e.args[i]); };
    const std::string& f = e.function;
    if (f == "lt") return less(op, e);
    if (f == "select") {
      const Range c = at(0);
      if (c.is(0)) return at(2);
      return c.lo > 0 || c.hi < 0 ? at(1) : either(at(1), at(2));
    }
    if (f == "add") return added(at(0), at(1));
    if (f == "sub") return added(at(0), negated(at(1)));
    if (f == "neg") return negated(at(0));
    if (f == "mul") return multiplied(at(0), at(1));
    if (f == "div" && e.args[1].kind == Expr::Kind::constant && e.args[1].constant != 0)
      return multiplied(at(0), constant(1 / e.args[1].constant));
    if (f == "max") return greater(at(0), at(1));
    if (f == "relu") return greater(at(0), constant(0));
    if (f == "min") return negated(greater(negated(at(0)), negated(at(1))));
    if (f == "exp") {
      const Range a = at(0);
      if (a.hi <= kExpIsZero && (a.finite || a.is(-kInfinity))) return constant(0);
      return {0, kInfinity, false};
    }
    return {};
  }

  Range less(const Operator& op, const Expr& e) const {
    if (const auto m = true_beyond(e, c_.rows, c_.columns)) {
      for (std::size_t i = 0; i < conditions_.size(); ++i) {
        if (truth_[i] && conditions_[i] == *m) return constant(*truth_[i] ? 1 : 0);
        if (truth_[i] && conditions_[i] == opposite(*m)) return constant(*truth_[i] ? 0 : 1);
      }
    }
    const Range a = value(op, e.args[0]), b = value(op, e.args[1]);
    if (a.finite && b.finite && a.hi < b.lo) return constant(1);
    if (a.finite && b.finite && a.lo >= b.hi) return constant(0);
    return {0, 1, true};
  }

  const Workload& w_;
  const MaskedChain& c_;
  std::vector<MaskEdge> conditions_;  ///< elements at which each is true
  std::vector<std::optional<bool>> truth_;
  std::map<TensorId, Range> made_, rows_;
};

std::int64_t floor_of(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/// `high`: the greatest, else the least, that rows add on an edge.
MaskColumns columns_of(std::span<const MaskEdge> edges, std::int64_t low, std::int64_t high,
                       std::int64_t all, bool greatest) {
  MaskColumns c{0, all};
  for (const MaskEdge& m : edges) {
    const std::int64_t row = (m.by_row > 0) == greatest ? high : low;
    const std::int64_t here = m.by_row * row + m.offset;
    if (m.by_column < 0)
      c.to = std::min(c.to, floor_of(here, -m.by_column) + 1);
    else
      c.from = std::max(c.from, -floor_of(here, m.by_column));
  }
  return c;
}

}  // namespace

std::vector<MaskEdge> mask_edges(const Workload& w, const MaskedChain& chain) {
  return Prover(w, chain).run();
}

std::optional<bool> value_within(std::span<const MaskEdge> edges, const Expr& condition,
                                 LoopId rows, LoopId columns) {
  const auto m = true_beyond(condition, rows, columns);
  if (!m) return std::nullopt;
  for (const MaskEdge& e : edges) {
    if (e == *m) return false;
    if (e == opposite(*m)) return true;
  }
  return std::nullopt;
}

MaskColumns columns_needed(std::span<const MaskEdge> edges, std::int64_t low, std::int64_t high,
                           std::int64_t all) {
  return columns_of(edges, low, high, all, true);
}

MaskColumns columns_whole(std::span<const MaskEdge> edges, std::int64_t low, std::int64_t high,
                          std::int64_t all) {
  return columns_of(edges, low, high, all, false);
}

}  // namespace tilewright::lowering
