#include "core/lowering/gpu/product_tiles.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

namespace tilewright::lowering {
namespace {

constexpr int kCopying = 4;  // warps
constexpr int kMostWarps = 8, kMostStages = 6;
constexpr std::int64_t kLine = 128;
constexpr std::int64_t kMostSumsOfThread = 128;  // of a thread
constexpr std::int64_t kMostRegisters = 255;
// mma.sync passes 62 % of the dense peak, which wgmma reaches: Luo et al., Benchmarking and
// Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking, tables of tensor core
// throughput.
constexpr double kMma = 0.62;
// Shared memory's banks: CUDA C++ Programming Guide, 32 of 4 bytes a clock.
constexpr double kBanks = 128;
// Chosen by the recording of 2026-11-23 (h200-networks.json): with two stages a step of 64 takes
// 0.6 us in tiles of 64 x 64, which are busy for 0.3: a tile is under way for 0.9.
constexpr double kUnderWay = 0.9e-6;
constexpr double kStep = 0.1e-6;   // assumed: two barriers and a branch
constexpr double kBlock = 1.5e-6;  // assumed: until the first tiles are there, and results written
// Chosen by the same recording: 64 steps of three products in tiles whose columns are two loops
// take ten times as long.
constexpr double kByElements = 10;

std::int64_t round_up(std::int64_t x, std::int64_t to) { return ceil_div(x, to) * to; }

/// As block_layout.cpp has it: whole blocks of 16, rows an even number of 16 bytes. `exact`: the
/// depth, where a product reads no more of it than there is.
std::int64_t ring_bytes(const OperandTile& o, std::int64_t stages,
                        std::optional<std::int64_t> exact) {
  const std::int64_t vector = 16 / o.element;
  const bool along = o.columns == exact;
  const std::int64_t rows = !along && o.rows == exact ? o.rows : round_up(o.rows, 16);
  const std::int64_t columns = along ? o.columns : round_up(o.columns, 16);
  return round_up(rows * round_up(columns, 2 * vector) * o.element * stages, kLine);
}

bool is_vector(const ProductTile& t) { return t.rows == 1 || t.columns == 1; }

/// With one arrangement of warps, and so many stages.
bool price(const ProductUnit& u, ProductTile& t, int warp_rows, int warp_columns, int stages) {
  const std::int64_t rows = ceil_div(t.rows, 16), columns = ceil_div(t.columns, 16);
  const int warps = warp_rows * warp_columns;
  const std::int64_t turns = t.steps > 1 ? stages : 1;  // what is loaded once has one place
  t.threads = 32 * (warps + kCopying);
  // A product of a vector is no product of fragments: a thread has some of its results.
  const bool vector = is_vector(t);
  const std::int64_t padded = vector ? t.rows * t.columns : rows * columns * 256;
  const std::int64_t sums = ceil_div(padded * t.results, 32 * warps);
  if (sums > kMostSumsOfThread) return false;
  const auto operands = static_cast<std::int64_t>(t.operands.size());
  const bool fma = !u.matrix && !vector;
  t.registers = fma ? std::min(fma_registers(sums, t.results * rows / warp_rows),
                               u.registers / round_up(t.threads, 128) / 8 * 8)
                    : std::min(kMostRegisters, 44 + ceil_div(5 * sums, 4) +
                                                   10 * std::max<std::int64_t>(0, operands - 2));
  std::int64_t shared = round_up(16 * turns * operands, kLine);
  double loaded = 0;
  for (const OperandTile& o : t.operands) {
    shared += ring_bytes(o, turns, fma ? std::optional(t.depth) : std::nullopt);
    loaded += static_cast<double>(o.rows * o.columns * o.element);
  }
  t.shared = Bytes(shared);
  if (t.registers < 1) return false;
  // Registers are handed out to four warps at a time.
  const std::int64_t resident = std::min({u.blocks, u.threads / t.threads,
                                          u.registers / (t.threads * round_up(t.registers, 8)),
                                          u.shared.value / (shared + 1024)});
  if (resident < 1) return false;
  const double sms = static_cast<double>(u.sms);
  const double points = static_cast<double>(padded * t.depth * t.results);
  const double even = 4.0 * std::ceil(warps / 4.0) / warps;  // an SM has four schedulers
  const FmaStep each = fma_step(static_cast<double>(rows) / warp_rows,
                                2 * static_cast<double>(columns) / warp_columns, false);
  const double arithmetic =
      2 * points / (u.flops / sms) * even * (fma ? each.issued / each.multiply_adds : 1);
  const double fragments =
      static_cast<double>(fragments_read(rows, columns, warp_rows, warp_columns) * t.results * 16 *
                          t.depth) *
      static_cast<double>(t.operands.empty() ? 2 : t.operands.front().element);
  const double by_fma =
      each.served * kBanks * warps * static_cast<double>(t.results * t.depth) / 16;
  const double read = ((vector ? loaded : fma ? by_fma : fragments) + loaded) / u.shared_rate;
  double busy = std::max({arithmetic, read, loaded / u.fill});
  if (u.matrix && !t.plain && !vector) busy *= kByElements;
  const auto here = ceil_div(t.blocks, u.sms);
  const double together = static_cast<double>(std::min(here, resident));
  const double alone = std::max((kUnderWay + busy) / static_cast<double>(turns), busy + kStep);
  const double step = std::max(alone, together * busy);
  t.seconds = static_cast<double>(ceil_div(here, resident)) *
              (kBlock + (t.steps > 1 ? static_cast<double>(t.steps) * step : together * busy));
  t.warps = warps;
  t.stages = static_cast<int>(turns);
  return true;
}

}  // namespace

FmaStep fma_step(double rows, double columns, bool left_across) {
  FmaStep s{.multiply_adds = 64 * rows * columns};
  // Assumed: addresses and the loop; 16 bytes of eight or of four addresses take two cycles.
  constexpr double kOther = 8;
  s.issued = s.multiply_adds + (left_across ? 32 : 8) * rows + 8 * columns + kOther;
  s.served = (left_across ? 32 : 16) * rows + 16 * columns;
  return s;
}

std::int64_t fma_registers(std::int64_t sums, std::int64_t rows) {
  return std::min(kMostRegisters, 44 + sums + 16 * rows);
}

std::optional<ProductUnit> product_unit(const Machine& m, DType type) {
  const auto shared = m.find("shared");
  if (m.kind != "gpu" || m.units.empty() || !shared) return {};
  const ComputeUnit& sm = m.units.front();
  ProductUnit u{.sms = sm.count, .registers = sm.registers, .blocks = sm.blocks};
  u.shared = m.level(*shared).capacity;
  u.matrix = type == DType::f16 || type == DType::bf16;
  const auto peak = [&](DType t) {
    const auto at = sm.peak.find(std::string(name_of(t)));
    return at == sm.peak.end() ? 0.0 : at->second.value;
  };
  u.flops = peak(type) * (u.matrix ? kMma : 1);
  if (u.flops <= 0) u.flops = peak(DType::f32);
  u.fill = m.level(*shared).bandwidth.value;
  u.shared_rate = kBanks * sm.clock_hz;
  if (u.flops <= 0 || u.fill <= 0 || u.shared_rate <= 0 || u.registers <= 0 || u.shared.value <= 0)
    return {};
  return u;
}

bool estimate(const ProductUnit& u, ProductTile& tile) {
  const std::int64_t rows = ceil_div(tile.rows, 16), columns = ceil_div(tile.columns, 16);
  const int most = tile.warps > 0 ? tile.warps : kMostWarps;
  ProductTile best = tile, t = tile;  // one copy of the operands for all arrangements
  bool found = false;
  // Many warps first: fewer only where that is faster.
  for (int warps = most; warps > 0; --warps)
    for (int r = 1; r <= warps; ++r) {
      const int c = warps / r;
      if (r * c != warps) continue;
      if (is_vector(tile) ? r > 1 : rows % r != 0 || columns % c != 0) continue;
      // An SM's four schedulers have a part of the matrix units each.
      if (u.matrix && !is_vector(tile) && rows * columns >= 4 && warps % 4 != 0) continue;
      for (int stages = 2; stages <= kMostStages; ++stages) {
        if (tile.stages > 0 && stages != tile.stages) continue;
        if (!price(u, t, r, c, stages) || (found && t.seconds > best.seconds * 0.98)) continue;
        best.threads = t.threads, best.registers = t.registers, best.shared = t.shared;
        best.seconds = t.seconds, best.warps = t.warps, best.stages = t.stages;
        found = true;
        if (tile.steps == 1) break;
      }
    }
  if (found) tile = best;
  return found;
}

std::optional<ProductTile> best_tile(const ProductUnit& unit, const ProductShape& s) {
  std::optional<ProductTile> best;
  const auto cut = [](std::int64_t all, std::int64_t step) { return std::min(all, step); };
  for (std::int64_t m = 16; m <= 128; m += 16)
    for (std::int64_t n = 16; n <= 128; n += 16)
      for (std::int64_t k = 16; k <= 128; k *= 2) {
        if (m >= s.rows + 16 || n >= s.columns + 16 || k >= 2 * s.depth) continue;
        ProductTile t{
            .rows = cut(s.rows, m), .columns = cut(s.columns, n), .depth = cut(s.depth, k)};
        t.operands = {{t.rows, t.depth, s.element}, {t.depth, t.columns, s.element}};
        t.steps = ceil_div(s.depth, k);
        t.blocks = s.batch * ceil_div(s.rows, m) * ceil_div(s.columns, n);
        if (estimate(unit, t) && (!best || t.seconds < best->seconds)) best = t;
      }
  return best;
}

}  // namespace tilewright::lowering
