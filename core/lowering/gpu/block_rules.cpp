#include "core/lowering/gpu/block_rules.h"

#include <algorithm>
#include <vector>

#include "core/base/units.h"
#include "core/lowering/gpu/product_tiles.h"

namespace tilewright::lowering {
namespace {

constexpr int kMostComputingWarps = 16;

bool divides_all(int warps, std::span<const std::int64_t> blocks) {
  return std::ranges::all_of(blocks, [&](std::int64_t b) { return b % warps == 0; });
}

}  // namespace

WarpGrid warp_grid(std::span<const std::int64_t> rows, std::span<const std::int64_t> columns,
                   std::span<const ProductBlocks> products, std::int64_t area, int asked,
                   bool rows_stay) {
  const int wanted = asked > 0 ? asked : area >= 32 ? 8 : 4;
  // Where fewer is under half of what is wanted (7, 11, 13 blocks), more than wanted rather than a
  // warp with all.
  const auto largest = [&](int most, std::span<const std::int64_t> blocks, int divides) {
    const auto even = [&](int w) {
      return (asked == 0 || divides % w == 0) && divides_all(w, blocks);
    };
    int fewer = most;
    while (fewer > 1 && !even(fewer)) --fewer;
    if (asked > 0 || 2 * fewer >= most) return fewer;
    for (int w = most + 1; w <= kMostComputingWarps; ++w)
      if (even(w)) return w;
    return fewer;
  };
  if (rows.empty()) return {wanted, 1};
  WarpGrid grid;
  grid.rows = largest(wanted, rows, wanted);
  grid.columns = largest(ceil_div(wanted, grid.rows), columns, wanted / grid.rows);
  if (rows_stay) return grid;
  const auto read = [&](const WarpGrid& g) {
    std::int64_t all = 0;
    for (const auto& [r, c] : products) all += fragments_read(r, c, g.rows, g.columns);
    return all;
  };
  const int warps = grid.warps();
  for (int r = 1; r <= warps; ++r)
    if (const WarpGrid other{r, warps / r}; other.warps() == warps && divides_all(r, rows) &&
                                            divides_all(other.columns, columns) &&
                                            read(other) < read(grid))
      grid = other;
  return grid;
}

std::int64_t row_pitch(std::int64_t columns, std::int64_t element_bytes, bool padded) {
  const std::int64_t vector = 16 / element_bytes, pieces = ceil_div(columns, vector);
  if (padded) return round_up(pieces + 1, 2) * vector;
  return (pieces == 1 ? 1 : round_up(pieces, 2)) * vector;
}

int ring_stages(bool again, int asked, int copies) {
  return !again ? 1 : asked > 0 ? asked : std::max(2, copies);
}

std::pair<std::int64_t, std::int64_t> contraction_blocks(std::int64_t rows, std::int64_t columns,
                                                         std::int64_t products, std::int64_t warps,
                                                         bool fours) {
  for (const auto& [m, w] : {std::pair{2, 4}, {1, 4}, {2, 2}, {1, 2}})
    if (ceil_div(rows, std::int64_t{16}) >= m && ceil_div(columns, std::int64_t{8}) >= w &&
        ceil_div(rows, std::int64_t{16} * m) * ceil_div(columns, std::int64_t{8} * w) * products >=
            warps)
      return {m, w};
  return {1, fours ? 2 : 1};
}

std::int64_t most_registers(std::int64_t threads, std::int64_t of_sm) {
  constexpr std::int64_t kMost = 255;
  constexpr std::int64_t kTogether = 128;  // ptxas hands registers to four warps at a time
  return std::min(kMost, of_sm / round_up(threads, kTogether) / 8 * 8);
}

}  // namespace tilewright::lowering
