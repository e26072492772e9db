// Schedules of products: how large a block's tile is. It stands where the paper asks Ansor.
#include <algorithm>
#include <bit>
#include <limits>

#include "core/base/format.h"
#include "core/workload/access.h"
#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

/// `size` elements shared out over loops, the last first.
void fill(const Workload& w, std::span<const LoopId> loops, std::int64_t size,
          std::vector<Cut>& cuts) {
  for (auto it = loops.rbegin(); it != loops.rend(); ++it) {
    const std::int64_t extent = w.loop(*it).extent;
    const std::int64_t step = std::clamp<std::int64_t>(size, 1, extent);
    cuts.push_back({*it, step});
    size = ceil_div(size, step);
  }
}

class Chooser {
 public:
  Chooser(const Device& d, const Workload& w, const Slice& product, const TileAsked& asked)
      : d_(d), w_(w), id_(product.op), op_(w.op(id_)), together_(product.together), asked_(asked) {
    const auto sums = w.reduction_loops(id_);
    for (LoopId l : op_.loops) {
      if (std::ranges::find(sums, l) != sums.end()) {
        sums_.push_back(l);
        continue;
      }
      if (product.whole.contains(l)) continue;
      const bool a = indexes(op_.inputs.front(), l),
                 b = op_.inputs.size() > 1 && indexes(op_.inputs[1], l);
      (a && b ? batch_ : a ? rows_ : columns_).push_back(l);
    }
  }

  std::vector<std::int64_t> row_sizes() const { return sizes(rows_); }
  std::vector<std::int64_t> column_sizes() const { return sizes(columns_); }
  /// What reads the product in the same blocks needs room, too.
  bool too_deep(std::int64_t m, std::int64_t n, std::int64_t k) const {
    return on_tensor_cores() && k > (m <= 64 && n <= 64 ? 128 : 64);
  }

  /// Blocks of so many rows and columns, and steps of the sum.
  Tile cut(std::int64_t m, std::int64_t n, std::int64_t k) const {
    Tile t;
    std::vector<Cut> cuts, inner;
    fill(w_, rows_, m, cuts);
    fill(w_, columns_, n, cuts);
    for (LoopId l : batch_) cuts.push_back({l, 1});
    fill(w_, sums_, k, inner);
    if (asked_.parts > 1 && !inner.empty()) {
      Cut& most = *std::ranges::max_element(inner, {},
                                            [&](const Cut& c) { return w_.loop(c.loop).extent; });
      const std::int64_t extent = w_.loop(most.loop).extent;
      const std::int64_t part = ceil_div(ceil_div(extent, asked_.parts), most.step) * most.step;
      cuts.push_back({most.loop, std::min(part, extent)});
    }
    for (LoopId l : op_.loops)  // in the order of the operator
      for (const Cut& c : cuts)
        if (c.loop == l) {
          t.grid.push_back(c);
          t.blocks *= ceil_div(w_.loop(l).extent, c.step);
        }
    for (LoopId l : op_.loops)
      for (const Cut& c : inner)
        if (c.loop == l && c.step < part_of(t, l)) t.inner.push_back(c);
    return t;
  }

  /// Fills in what so many blocks of such a tile take. False where none has room, or where they
  /// take more than `most` seconds.
  bool price(Tile& t, std::int64_t blocks, double most) const {
    std::vector<std::int64_t> sizes;
    std::int64_t steps = 1;
    for (LoopId l : op_.loops) {
      sizes.push_back(w_.loop(l).extent);
      for (const std::vector<Cut>& cuts : {t.grid, t.inner})
        for (const Cut& c : cuts)
          if (c.loop == l) sizes.back() = std::min(sizes.back(), c.step);
      for (const Cut& c : t.inner)
        if (c.loop == l) steps *= ceil_div(part_of(t, l), c.step);
    }
    lowering::ProductTile p = product_in_tiles(w_, id_, sizes);
    p.blocks = blocks;
    p.steps = steps;
    p.results *= together_;
    if (asked_.warps > 0) p.warps = asked_.warps;
    lowering::ProductUnit unit = d_.product;
    unit.shared = d_.shared;
    if (least_seconds(unit, p) > most || !lowering::estimate(unit, p)) return false;
    t.threads = p.threads;
    t.registers = p.registers;
    t.shared = p.shared;
    t.seconds = p.seconds;
    t.warps = p.warps;
    t.stages = p.stages;
    return true;
  }

 private:
  /// No estimate is below: an SM does all of its blocks' arithmetic, and loads all that they need.
  static double least_seconds(const lowering::ProductUnit& u, const lowering::ProductTile& p) {
    double loaded = 0;
    for (const lowering::OperandTile& o : p.operands)
      loaded += static_cast<double>(o.rows * o.columns * o.element);
    const double points = static_cast<double>(p.rows * p.columns * p.depth * p.results);
    return static_cast<double>(ceil_div(p.blocks, u.sms) * p.steps) *
           std::max(2 * points * static_cast<double>(u.sms) / u.flops, loaded / u.fill);
  }

  /// What a block has of a loop.
  std::int64_t part_of(const Tile& t, LoopId l) const {
    for (const Cut& c : t.grid)
      if (c.loop == l) return c.step;
    return w_.loop(l).extent;
  }

  std::vector<std::int64_t> sizes(std::span<const LoopId> loops) const {
    std::int64_t all = 1;
    for (LoopId l : loops)
      all = std::min<std::int64_t>(all * w_.loop(l).extent, std::int64_t{1} << 40);
    std::set<std::int64_t> out;
    // Warps of a kernel share all of its products alike: powers of two, where tensor cores take
    // them and there are several.
    if (on_tensor_cores()) {
      for (std::int64_t s : {1, 8, 16, 32, 48, 64, 80, 96, 112, 128})
        if (s <= all && (asked_.warps == 0 || std::has_single_bit(static_cast<std::uint64_t>(s))))
          out.insert(s);
    } else {
      // Even parts, as many as multiprocessors allow, beside the usual sizes.
      for (std::int64_t s : {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256})
        if (s <= all) out.insert(s);
      for (std::int64_t parts = 1; parts <= 2 * d_.sms;
           parts = parts < 16 ? parts + 1 : parts * 5 / 4)
        if (const std::int64_t s = ceil_div(all, parts); s <= 256 && s <= all) out.insert(s);
    }
    if (out.empty()) out.insert(all);
    return {out.begin(), out.end()};
  }

  bool on_tensor_cores() const { return on_matrix_units(w_, id_); }

  const Device& d_;
  const Workload& w_;
  OpId id_;
  const Operator& op_;
  std::int64_t together_;
  TileAsked asked_;
  std::vector<LoopId> rows_, columns_, batch_, sums_;
};

}  // namespace

bool on_matrix_units(const Workload& w, OpId id) {
  const DType t = w.tensor(w.op(id).inputs.front().tensor).dtype;
  return t == DType::f16 || t == DType::bf16;
}

lowering::ProductTile product_in_tiles(const Workload& w, OpId id,
                                       std::span<const std::int64_t> sizes) {
  const Operator& op = w.op(id);
  lowering::ProductTile p{.depth = 1, .results = static_cast<std::int64_t>(op.outputs.size())};
  int rows = 0, columns = 0, depths = 0;  // loops of more than one turn
  std::vector<Interval> ranges;
  for (std::size_t i = 0; i < op.loops.size(); ++i) {
    const LoopId l = op.loops[i];
    ranges.push_back({0, sizes[i]});
    const bool a = indexes(op.inputs.front(), l),
               b = op.inputs.size() > 1 && indexes(op.inputs[1], l);
    const int more = sizes[i] > 1 ? 1 : 0;
    if (w.is_reduction(id, l)) {
      p.depth *= sizes[i];
      depths += more;
    } else if (a && b) {
      p.results *= sizes[i];
      rows += 2 * more;
    } else if (a) {
      p.rows *= sizes[i];
      rows += more;
    } else {
      p.columns *= sizes[i];
      columns += more;
    }
  }
  p.plain = rows <= 1 && columns <= 1 && depths <= 1;
  for (const Access& a : op.inputs) {
    const Box box = footprint(w, op, a, ranges);
    const std::int64_t last = box.rank() == 0 ? 1 : box[box.rank() - 1].size();
    p.operands.push_back(
        {box.size() / std::max<std::int64_t>(1, last), last, size_of(w.tensor(a.tensor).dtype)});
  }
  return p;
}

std::vector<Tile> product_tiles(const Device& d, const Workload& w, std::span<const Slice> slices,
                                const TileAsked& asked) {
  std::vector<Chooser> choosers;
  std::set<std::int64_t> rows, columns;
  for (const Slice& s : slices) {
    choosers.emplace_back(d, w, s, asked);
    const auto m = choosers.back().row_sizes(), n = choosers.back().column_sizes();
    rows.insert(m.begin(), m.end());
    columns.insert(n.begin(), n.end());
  }
  std::vector<Tile> best, least;
  double time = std::numeric_limits<double>::infinity();
  double most = time;  // some tile takes no longer: those that must are not priced
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  const auto attempt = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool keep) {
    std::vector<Tile> all;
    std::int64_t blocks = 0;
    double seconds = 0;
    for (const Chooser& c : choosers) blocks += all.emplace_back(c.cut(m, n, k)).blocks;
    const bool few = asked.most_blocks <= 0 || blocks <= asked.most_blocks;
    if (!few && most < std::numeric_limits<double>::infinity()) return;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!choosers[i].price(all[i], blocks, most)) return;
      seconds = std::max(seconds, all[i].seconds);
    }
    if (few) most = std::min(most, seconds);
    if (!keep) return;
    for (Tile& t : all) t.seconds = seconds;
    if (blocks < fewest) fewest = blocks, least = all;
    if (few && seconds < time * (1 - 1e-9)) time = seconds, best = std::move(all);
  };
  const auto each = [&](bool keep, auto usual) {
    for (std::int64_t m : rows)
      for (std::int64_t n : columns)
        for (std::int64_t k : {16, 32, 64, 128, 256}) {
          if (choosers.front().too_deep(m, n, k)) break;
          if (usual(m) && usual(n) && (keep || k == 32)) attempt(m, n, k, keep);
        }
  };
  each(false,
       [](std::int64_t size) { return size == 1 || size == 16 || size == 64 || size == 128; });
  each(true, [](std::int64_t) { return true; });
  return best.empty() ? least : best;
}

namespace {

/// All that product_tiles() sees of a product, loops by their places.
std::string form_of(const Workload& w, const Slice& s) {
  const Operator& op = w.op(s.op);
  std::string out = formatted("{}x{}", s.together, op.outputs.size());
  for (LoopId l : op.loops)
    out += formatted(" {}{}{}", w.is_reduction(s.op, l) ? "+" : "", s.whole.contains(l) ? "!" : "",
                     w.loop(l).extent);
  for (const Access& a : op.inputs) {
    const Tensor& t = w.tensor(a.tensor);
    out += formatted(" {}[", name_of(t.dtype));
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      out += formatted("{},{},{}", t.shape[d], a.index[d].offset, a.index[d].gathered);
      for (const Term& term : a.index[d].terms)
        out += formatted("+{}*{}", term.coefficient, w.local_index(s.op, term.loop));
      out += ";";
    }
  }
  return out;
}

}  // namespace

std::vector<Tile> TileTable::of(const Device& d, const Workload& w, std::span<const Slice> slices,
                                const TileAsked& asked) {
  std::string key =
      formatted("{}: {} {} {}", d.shared.value, asked.most_blocks, asked.warps, asked.parts);
  for (const Slice& s : slices) key += " | " + form_of(w, s);
  const auto rename = [&](std::vector<Tile>& tiles, const auto& to) {
    for (std::size_t i = 0; i < tiles.size(); ++i)
      for (std::vector<Cut>* cuts : {&tiles[i].grid, &tiles[i].inner})
        for (Cut& c : *cuts) c.loop = to(slices[i].op, c.loop);
  };
  const auto [at, is_new] = known_.try_emplace(key);
  if (is_new) {
    at->second = product_tiles(d, w, slices, asked);
    rename(at->second, [&](OpId op, LoopId l) {
      return LoopId(static_cast<std::size_t>(w.local_index(op, l)));
    });
  }
  std::vector<Tile> tiles = at->second;
  rename(tiles, [&](OpId op, LoopId l) { return w.op(op).loops[l.index()]; });
  return tiles;
}

}  // namespace tilewright::souffle
