// Schedules of products: how large a block's tile is. It stands where the paper asks Ansor.
#include <algorithm>
#include <bit>
#include <limits>

#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

bool has_loop(const Access& a, LoopId l) {
  return std::ranges::any_of(a.index, [&](const Affine& f) {
    return std::ranges::any_of(f.terms, [&](const Term& t) { return t.loop == l; });
  });
}

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
  Chooser(const Device& d, const Workload& w, OpId id, const std::set<LoopId>& whole,
          const TileAsked& asked)
      : d_(d), w_(w), id_(id), op_(w.op(id)), asked_(asked) {
    const auto sums = w.reduction_loops(id);
    for (LoopId l : op_.loops) {
      if (std::ranges::find(sums, l) != sums.end()) {
        sums_.push_back(l);
        continue;
      }
      if (whole.contains(l)) continue;
      const bool a = has_loop(op_.inputs.front(), l),
                 b = op_.inputs.size() > 1 && has_loop(op_.inputs[1], l);
      (a && b ? batch_ : a ? rows_ : columns_).push_back(l);
    }
  }

  Tile best() {
    const std::int64_t most = asked_.most_blocks;
    Tile best, least;
    double time = std::numeric_limits<double>::infinity();
    std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t m : sizes(rows_))
      for (std::int64_t n : sizes(columns_))
        for (std::int64_t k : {16, 32, 64, 128, 256}) {
          // What reads the product in the same blocks needs room, too.
          if (on_tensor_cores() && k > (m <= 64 && n <= 64 ? 128 : 64)) break;
          const std::optional<Tile> t = tile(m, n, k);
          if (!t) continue;
          if (t->blocks < fewest) {
            fewest = t->blocks;
            least = *t;
          }
          if (most > 0 && t->blocks > most) continue;
          if (t->seconds < time * (1 - 1e-9)) {
            time = t->seconds;
            best = *t;
          }
        }
    return best.grid.empty() && best.seconds == 0 ? least : best;
  }

 private:
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

  std::optional<Tile> tile(std::int64_t m, std::int64_t n, std::int64_t k) const {
    Tile t;
    std::vector<Cut> cuts;
    fill(w_, rows_, m, cuts);
    fill(w_, columns_, n, cuts);
    for (LoopId l : batch_) cuts.push_back({l, 1});
    std::vector<Cut> inner;
    fill(w_, sums_, k, inner);
    std::vector<std::int64_t> sizes;
    std::int64_t steps = 1;
    for (LoopId l : op_.loops) {
      std::int64_t size = w_.loop(l).extent;
      for (const Cut& c : cuts)
        if (c.loop == l) size = c.step;
      for (const Cut& c : inner)
        if (c.loop == l) {
          size = c.step;
          steps *= ceil_div(w_.loop(l).extent, c.step);
        }
      sizes.push_back(std::min(size, w_.loop(l).extent));
    }
    for (LoopId l : op_.loops)  // in the order of the operator
      for (const Cut& c : cuts)
        if (c.loop == l) {
          t.grid.push_back(c);
          t.blocks *= ceil_div(w_.loop(l).extent, c.step);
        }
    for (LoopId l : op_.loops)
      for (const Cut& c : inner)
        if (c.loop == l && c.step < w_.loop(l).extent) t.inner.push_back(c);
    lowering::ProductTile p = product_in_tiles(w_, id_, sizes);
    p.blocks = t.blocks;
    p.steps = steps;
    p.results *= asked_.together;
    if (asked_.warps > 0) p.warps = asked_.warps;
    lowering::ProductUnit unit = d_.product;
    unit.shared = d_.shared;
    if (!lowering::estimate(unit, p)) return {};
    t.threads = p.threads;
    t.registers = p.registers;
    t.shared = p.shared;
    t.seconds = p.seconds;
    t.warps = p.warps;
    t.stages = p.stages;
    return t;
  }

  const Device& d_;
  const Workload& w_;
  OpId id_;
  const Operator& op_;
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
    const bool a = has_loop(op.inputs.front(), l),
               b = op.inputs.size() > 1 && has_loop(op.inputs[1], l);
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

Tile product_tile(const Device& d, const Workload& w, OpId op, const std::set<LoopId>& whole,
                  const TileAsked& asked) {
  return Chooser(d, w, op, whole, asked).best();
}

}  // namespace tilewright::souffle
