#include "core/lowering/window_planes.h"

#include <algorithm>
#include <cmath>

#include "core/workload/access.h"
#include "core/workload/box.h"
#include "core/workload/expr.h"

namespace tilewright {
namespace {

constexpr std::int64_t kPlaneBytes = 16 << 10;  // of a band, in the first cache
constexpr std::int64_t kFewPoints = 4;          // rows that may have all else in registers
constexpr std::int64_t kMostAcross = 32;        // taps of a row
constexpr double kInTurn = 0.8;  // of the steps of all taps: rows and columns in turn have at most
constexpr std::int64_t kMostStep = 8;  // elements from one column to the next

std::int64_t coefficient(const Affine& a, LoopId loop) {
  std::int64_t sum = 0;
  for (const Term& t : a.terms)
    if (t.loop == loop) sum += t.coefficient;
  return sum;
}

bool whole(double value) { return std::floor(value) == value && std::abs(value) <= (1 << 24); }

/// Adds `factor` times an expression in loops' indices to an affine form; false: it is no such.
bool add_affine(const Expr& e, std::int64_t factor, Affine& sum) {
  if (e.kind == Expr::Kind::constant) {
    sum.offset += whole(e.constant) ? factor * static_cast<std::int64_t>(e.constant) : 0;
    return whole(e.constant);
  }
  if (e.kind == Expr::Kind::index) {
    sum.terms.push_back({e.loop, factor});
    return true;
  }
  if (e.kind != Expr::Kind::call) return false;
  if (e.function == "neg") return add_affine(e.args[0], -factor, sum);
  if (e.function == "add" || e.function == "sub")
    return add_affine(e.args[0], factor, sum) &&
           add_affine(e.args[1], e.function == "add" ? factor : -factor, sum);
  if (e.function != "mul") return false;
  for (std::size_t c : {0, 1})
    if (e.args[c].kind == Expr::Kind::constant && whole(e.args[c].constant))
      return add_affine(e.args[1 - c], factor * static_cast<std::int64_t>(e.args[c].constant), sum);
  return false;
}

/// Whether a is factor * b + offset.
bool same(const Affine& a, const Affine& b, std::int64_t factor, std::int64_t offset) {
  const auto covers = [&](const Affine& x, const Affine& y, std::int64_t of_x, std::int64_t of_y) {
    return std::ranges::all_of(x.terms, [&](const Term& t) {
      return of_x * coefficient(x, t.loop) == of_y * coefficient(y, t.loop);
    });
  };
  return a.offset == factor * b.offset + offset && covers(a, b, 1, factor) &&
         covers(b, a, factor, 1);
}

/// Looks for the loops and dimensions.
class Finder {
 public:
  Finder(const Workload& w, OpId op, const std::vector<std::int64_t>& sizes)
      : w_(w), id_(op), op_(w.op(op)), sizes_(sizes) {}

  std::optional<WindowPlane> find(const VectorUnit& unit) {
    if (op_.outputs.size() != 1 || w_.gathers(id_) || op_.running) return std::nullopt;
    const Output& out = op_.outputs[0];
    if (out.combine == Combine::assign || out.rescale || names_outputs(out.value) ||
        out.target.index.empty())
      return std::nullopt;
    const auto columns = out.target.index.back().plain_loop();
    if (!columns || w_.is_reduction(id_, *columns)) return std::nullopt;
    p_.columns = w_.local_index(id_, *columns);
    // Rows that leave most lanes idle are left to loops that lie better.
    if (2 * size(p_.columns) < unit.lanes) return std::nullopt;
    int images = 0;
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      if (indexes(op_.inputs[i], *columns)) p_.image = i, ++images;
    if (images != 1 || !find_columns(*columns) || !find_taps() || !find_rows() || !find_value() ||
        !reads_again())
      return std::nullopt;
    return p_;
  }

 private:
  const Access& image() const { return op_.inputs[p_.image]; }
  LoopId loop(int l) const { return op_.loops[static_cast<std::size_t>(l)]; }
  int loops() const { return static_cast<int>(op_.loops.size()); }
  std::int64_t size(int l) const { return l < 0 ? 1 : sizes_[static_cast<std::size_t>(l)]; }
  std::int64_t moved(int l, int dim) const {
    return coefficient(image().index[static_cast<std::size_t>(dim)], loop(l));
  }
  Interval reached(std::size_t d) const {
    std::vector<Interval> all;
    for (LoopId l : op_.loops) all.push_back({0, w_.loop(l).extent});
    return footprint(op_, image().index[d], all);
  }
  bool leaves(std::size_t d) const {
    return !contains(Interval{0, w_.tensor(image().tensor).shape[d]}, reached(d));
  }
  /// The one dimension of the image that the loop moves; -1: none; -2: several.
  int dim_of(int l) const {
    int found = -1;
    for (int d = 0; d < static_cast<int>(image().index.size()); ++d)
      if (indexes(image().index[static_cast<std::size_t>(d)], loop(l)))
        found = found == -1 ? d : -2;
    return found;
  }

  bool find_columns(LoopId columns) {
    const int dim = dim_of(p_.columns);
    if (dim < 0) return false;
    p_.column_dim = dim;
    p_.one_by_one = dim + 1 != static_cast<int>(image().index.size());
    p_.column_step = coefficient(image().index[static_cast<std::size_t>(dim)], columns);
    return p_.column_step >= 1 && p_.column_step <= kMostStep;
  }

  bool find_taps() {
    for (int l = 0; l < loops(); ++l) {
      if (!w_.is_reduction(id_, loop(l)) || size(l) == 1) continue;
      if (size(l) < w_.loop(loop(l)).extent) return false;  // a point's sum goes on elsewhere
      const int dim = dim_of(l);
      if (dim < 0 || moved(l, dim) < 1) return false;
      int& taps = dim == p_.column_dim ? p_.across : p_.down;
      if (taps >= 0) return false;
      taps = l;
      (dim == p_.column_dim ? p_.taps_across : p_.taps_down) = size(l);
      (dim == p_.column_dim ? p_.across_step : p_.down_step) = moved(l, dim);
      if (dim != p_.column_dim) p_.row_dim = dim;
    }
    return p_.taps_across <= kMostAcross;
  }

  /// Rows of points move the dimension that taps or padding do, and nothing but the image.
  bool find_rows() {
    for (std::size_t d = 0; d < image().index.size(); ++d) {
      if (static_cast<int>(d) == p_.column_dim || !leaves(d)) continue;
      if (p_.row_dim >= 0 && p_.row_dim != static_cast<int>(d)) return false;
      p_.row_dim = static_cast<int>(d);
    }
    for (int l = 0; l < loops(); ++l) {
      if (w_.is_reduction(id_, loop(l)) || l == p_.columns) continue;
      const int dim = dim_of(l);
      if (dim == p_.column_dim && size(l) > 1) return false;
      if (dim < 0 || dim != p_.row_dim || moved(l, dim) < 1 || size(l) <= size(p_.rows)) continue;
      const bool alone = std::ranges::count_if(
                             op_.inputs, [&](const Access& a) { return indexes(a, loop(l)); }) == 1;
      if (alone) p_.rows = l, p_.row_step = moved(l, dim);
    }
    return true;
  }

  /// What is combined, without selects on whether the image is left: what there is outside is
  /// filled in as the image is copied.
  bool find_value() {
    const std::vector<std::int64_t>& shape = w_.tensor(image().tensor).shape;
    const Expr* e = &op_.outputs[0].value;
    std::optional<double> outside;
    std::vector<bool> below(shape.size()), above(shape.size());
    while (e->kind == Expr::Kind::call && e->function == "select") {
      const Expr &asked = e->args[0], &then = e->args[1];
      Affine left;  // of the smaller one less the larger: whether it is negative
      if (asked.kind != Expr::Kind::call || asked.function != "lt" ||
          then.kind != Expr::Kind::constant || (outside && *outside != then.constant) ||
          !add_affine(asked.args[0], 1, left) || !add_affine(asked.args[1], -1, left))
        return false;
      bool found = false;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        if (same(left, image().index[d], 1, 0)) found = below[d] = true;
        if (same(left, image().index[d], -1, shape[d] - 1)) found = above[d] = true;
      }
      if (!found) return false;
      outside = then.constant;
      e = &e->args[2];
    }
    if (outside) {
      if (e->kind != Expr::Kind::input) return false;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        const Interval all = reached(d);
        if ((all.lo < 0 && !below[d]) || (all.hi > shape[d] && !above[d])) return false;
      }
      p_.outside = *outside;
    }
    bool indexed = false;
    each_index(*e, [&](LoopId) { indexed = true; });
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      p_.others = p_.others || (i != p_.image && reads_input(*e, static_cast<int>(i)));
    p_.value = e;
    return !indexed && reads_input(*e, static_cast<int>(p_.image));
  }

  /// Whether elements are taps of several points: else nothing is gained by a copy.
  bool reads_again() const {
    if (p_.down >= 0 && p_.rows < 0) return false;
    return p_.taps_across * p_.taps_down >
           std::min(p_.column_step, p_.taps_across) * std::min(p_.row_step, p_.taps_down);
  }

  const Workload& w_;
  const OpId id_;
  const Operator& op_;
  const std::vector<std::int64_t>& sizes_;
  WindowPlane p_;
};

/// How many rows of points at once, as even as they can be, and how a band lies.
void shape(WindowPlane& p, std::int64_t rows, std::int64_t columns, const VectorUnit& unit) {
  const std::int64_t taps = p.taps_across * p.taps_down;
  const std::int64_t room = unit.registers - taps - 2;  // beside what each tap multiplies by
  // With 16 registers what many taps are joined with comes from memory: eight rows' sums have room,
  // and do not wait for one another.
  const bool from_memory = p.others && unit.registers < 32 && taps > unit.registers;
  std::int64_t most =
      from_memory ? std::clamp<std::int64_t>(kMostPlaneTaps / taps, 1, unit.registers / 2)
                  : std::clamp<std::int64_t>(kMostPlaneTaps / 2 / taps, 1, unit.registers / 4);
  if (p.others && room >= kFewPoints) most = std::min(most, room);
  p.points = ceil_div(rows, ceil_div(rows, most));
  p.phases = std::min(p.column_step, p.across_step * (p.taps_across - 1) + 1);
  p.reach = p.across_step * (p.taps_across - 1) / p.column_step;
  const std::int64_t vectors = ceil_div(columns, unit.lanes);
  p.pitch = ceil_div(vectors * unit.lanes + p.reach, unit.lanes) * unit.lanes;
  p.band = p.points;
  while (p.band < rows &&
         p.image_rows(p.band + p.points) * p.phases * p.pitch * unit.element_bytes <= kPlaneBytes)
    p.band += p.points;
  if (p.others || p.rows < 0 || p.taps_down == 1 || p.taps_across == 1) return;
  // Vectors that are combined for a row of points; of rows of the image each is stored, too.
  const std::int64_t of_rows = p.phases * ceil_div(columns + p.reach, unit.lanes);
  const auto direct = static_cast<double>(taps * vectors);
  const auto turns = static_cast<double>((p.taps_down + 2) * of_rows + p.taps_across * vectors);
  p.in_turn = turns < kInTurn * direct;
}

}  // namespace

std::optional<WindowPlane> window_plane(const Workload& w, OpId op,
                                        const std::vector<std::int64_t>& sizes,
                                        const VectorUnit& unit) {
  auto p = Finder(w, op, sizes).find(unit);
  if (!p) return std::nullopt;
  const auto size = [&](int l) { return l < 0 ? 1 : sizes[static_cast<std::size_t>(l)]; };
  shape(*p, size(p->rows), size(p->columns), unit);
  return p;
}

PlaneCycles cycles_of_plane(const WindowPlane& p, std::int64_t rows, std::int64_t columns,
                            const VectorUnit& unit) {
  // Cycles, fitted to drawn windows (experiments/cpu/networks.py --windows): 90 on a Zen 5 and 70
  // on a Zen 4, both with vectors of 64 bytes, which take a Zen 4 two passes, while others used it,
  // and 30 on a Zen 3, with vectors of 32.
  struct Cycles {
    double copied;  ///< a vector of the image copied, its part in each phase stored
    double apart;   ///< the same, of every second element, and 1.5 times as long of fewer
    double splat;   ///< what a tap is joined with, in all lanes of a vector
    double joined;  ///< multiply-adds a tap that is joined with a vector from memory
    double load;    ///< a vector that begins anywhere
    double store;   ///< a vector of points
    double block;   ///< rows of points begun
  };
  constexpr double kElement = 1.6;  // an element copied alone (two such windows on a Zen 5)
  static constexpr Cycles kWide = {2.5, 1.8, 1, 1, 0.8, 0.3, 4.5};
  static constexpr Cycles kLong = {3.2, 3.2, 7.5, 1.45, 0.5, 1, 11};
  static constexpr Cycles kShort = {1.75, 3.7, 0.5, 1.28, 0.6, 1.2, 4};
  constexpr std::int64_t kShortBytes = 32;
  constexpr double kWhole = 0.75;  // cycles of a multiply-add: less where all lanes go at once
  const Cycles& c = unit.lanes * unit.element_bytes <= kShortBytes ? kShort
                    : unit.multiply_add < kWhole                   ? kWide
                                                                   : kLong;
  const double kSplat = c.splat, kJoined = c.joined, kLoad = c.load, kStore = c.store,
               kBlock = c.block;
  const double kCopied = p.column_step == 1                          ? c.copied
                         : p.column_step == 2 || c.apart <= c.copied ? c.apart
                                                                     : 1.5 * c.apart;
  const auto lanes = static_cast<double>(unit.lanes);
  const double vectors = std::ceil(static_cast<double>(columns) / lanes);
  const double copied = std::ceil(static_cast<double>(columns + p.reach) / lanes);
  const double bands = std::ceil(static_cast<double>(rows) / static_cast<double>(p.band));
  const double image_rows =
      static_cast<double>(p.row_step * rows) +
      bands * static_cast<double>(std::max<std::int64_t>(0, p.image_rows(1) - p.row_step));
  const double copy =
      p.one_by_one ? static_cast<double>((columns + p.reach) * p.phases) * image_rows * kElement
                   : copied * image_rows * static_cast<double>(p.column_step) * kCopied;
  const double blocks = std::ceil(static_cast<double>(rows) / static_cast<double>(p.points));
  const double taps = static_cast<double>(p.taps_across * p.taps_down);
  const double sums =
      static_cast<double>(rows) * taps * (p.others ? kJoined : 1) * unit.multiply_add;
  // Each tap of a row of points waits for the one before; vectors of columns pass beside it as far
  // as a processor looks ahead.
  constexpr double kLatency = 4, kAhead = 110;  // cycles, taps
  const auto together = static_cast<double>(std::min(p.points, rows));
  const double waits = blocks * taps * kLatency * std::min(1.0, together * taps / kAhead);
  const double loads = blocks * static_cast<double>(p.image_rows(p.points) * p.taps_across) * kLoad;
  if (p.in_turn) {
    const double each = std::max(kLoad, unit.multiply_add);
    const double all = static_cast<double>(rows);
    const double of_rows = static_cast<double>(p.phases) * copied;
    return {.copy = copy + all * of_rows * (static_cast<double>(p.taps_down) * each + kStore),
            .points = vectors * (all * (static_cast<double>(p.taps_across) * each + kStore) +
                                 blocks * kBlock)};
  }
  return {.copy = copy,
          .points = (p.others ? taps * kSplat : 0) +
                    vectors * (std::max({sums, loads, p.others ? waits : 0}) +
                               static_cast<double>(rows) * kStore + blocks * kBlock)};
}

}  // namespace tilewright
