// Schedules of products: how large a block's tile is. It stands where the paper asks Ansor.
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

constexpr std::int64_t kStages = 3;  // copies of the operands' tiles
constexpr std::int64_t kMostSumsAThread = 128;
// Assumed: what a block waits for its first tiles, and a step for a barrier.
constexpr double kBlock = 1e-6, kStep = 1e-7;

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
  Chooser(const Device& d, const Workload& w, OpId id, const std::set<LoopId>& whole)
      : d_(d), w_(w), id_(id), op_(w.op(id)) {
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

  Tile best(std::int64_t most) {
    Tile best, least;
    double time = std::numeric_limits<double>::infinity();
    std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t m : sizes(rows_))
      for (std::int64_t n : sizes(columns_))
        for (std::int64_t k : {16, 32, 64, 128, 256}) {
          if (k > 64 && on_tensor_cores()) break;
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
    // them.
    if (on_tensor_cores()) {
      for (std::int64_t s : {1, 8, 16, 32, 64, 128})
        if (s <= all) out.insert(s);
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

  bool on_tensor_cores() const {
    const DType t = w_.tensor(op_.inputs.front().tensor).dtype;
    return t == DType::f16 || t == DType::bf16;
  }

  std::optional<Tile> tile(std::int64_t m, std::int64_t n, std::int64_t k) const {
    Tile t;
    std::vector<Cut> cuts;
    fill(w_, rows_, m, cuts);
    fill(w_, columns_, n, cuts);
    for (LoopId l : batch_) cuts.push_back({l, 1});
    std::vector<Interval> ranges;
    std::vector<Cut> inner;
    fill(w_, sums_, k, inner);
    double trips = 1;
    for (LoopId l : op_.loops) {
      std::int64_t size = w_.loop(l).extent;
      for (const Cut& c : cuts)
        if (c.loop == l) size = c.step;
      for (const Cut& c : inner)
        if (c.loop == l) {
          size = c.step;
          trips *= static_cast<double>(ceil_div(w_.loop(l).extent, c.step));
        }
      ranges.push_back({0, std::min(size, w_.loop(l).extent)});
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
    double operands = 0, sums = 0, points = 1;
    for (const Access& a : op_.inputs)
      operands += static_cast<double>(footprint(w_, op_, a, ranges).size()) *
                  static_cast<double>(size_of(w_.tensor(a.tensor).dtype));
    for (const Output& o : op_.outputs)
      sums += static_cast<double>(footprint(w_, op_, o.target, ranges).size());
    for (const Interval& r : ranges) points *= static_cast<double>(r.size());
    t.threads = sums >= 4096 ? 256 : 128;
    const double each = sums / static_cast<double>(t.threads);
    t.registers =
        std::min<std::int64_t>(255, 40 + static_cast<std::int64_t>(std::ceil(1.25 * each)));
    t.shared = Bytes(static_cast<std::int64_t>(operands * kStages + 4 * sums));
    if (t.shared > d_.shared || each > kMostSumsAThread) return {};
    const double waves = std::ceil(static_cast<double>(t.blocks) / static_cast<double>(d_.sms));
    const double arithmetic = 2 * points * trips * static_cast<double>(op_.outputs.size()) /
                              (d_.flops / static_cast<double>(d_.sms));
    t.seconds = waves * (std::max(arithmetic, operands * trips / d_.fill) + kStep * trips + kBlock);
    return t;
  }

  const Device& d_;
  const Workload& w_;
  OpId id_;
  const Operator& op_;
  std::vector<LoopId> rows_, columns_, batch_, sums_;
};

}  // namespace

Tile product_tile(const Device& d, const Workload& w, OpId op, const std::set<LoopId>& whole,
                  std::int64_t most) {
  return Chooser(d, w, op, whole).best(most);
}

}  // namespace tilewright::souffle
