#include <algorithm>
#include <limits>
#include <tuple>

#include "core/base/format.h"
#include "core/lowering/gpu/warpgroup_finder.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kBoxBytes = 64 * 128;  // bytes of 64 rows of a box
constexpr int kMostTurns = 8;
// Chosen: stages of a ring that has all of an SM; how many times the ring of half of an SM has room
// in the depth, at least, where a block takes all of one; stages of half of an SM that suffice.
constexpr std::int64_t kMostAlone = 12, kDeepRings = 2, kLongRing = 6;
// Sums of a thread beside which ptxas (CUDA 13.0) spills nothing: of two warpgroups where nothing
// follows and no cluster shares the sum, else of one or two, and of three.
constexpr std::int64_t kMostOfTwo = 176, kMostSums = 128, kMostOfThree = 96;
constexpr std::int64_t kFewSums =
    64;  // a thread: two blocks of such have room in an SM's registers

}  // namespace

std::int64_t clusters_at_once(std::int64_t sms, std::int64_t resident, std::int64_t share) {
  if (share <= 2) return std::max<std::int64_t>(1, sms * resident / share);
  return std::max<std::int64_t>(1, 15 * (sms / 8 * resident / share) / 2);
}

std::int64_t shared_alone(std::int64_t bytes, std::int64_t most, std::int64_t blocks,
                          std::int64_t of_sms, std::int64_t share) {
  return blocks <= share * clusters_at_once(of_sms, 1, share) ? std::max(bytes, most) : bytes;
}

/// What operators read takes registers, of elements twice as many, and more where tiles pass an
/// end or are turned: so many sums less a thread, such that ptxas spills none
/// (cuda_warpgroups_test).
std::int64_t WarpgroupFinder::sums_left_out(std::int64_t tile_rows) const {
  std::int64_t read = 0;
  for (const EpilogueRead& r : p_.epilogue.reads) read += r.by_row != 0 && r.by_column != 0 ? 2 : 1;
  if (read == 0) return 0;
  const bool whole = p_.rows % tile_rows == 0 && p_.columns % p_.tile_columns == 0 &&
                     p_.columns_apart == p_.tile_columns;
  return 32 * std::min(2, (read > 3 ? 2 : read > 1 ? 1 : 0) + (whole && !p_.turned ? 0 : 1));
}

void WarpgroupFinder::arrange(int rows, int warps, int stages, const Depth& depth) {
  if (warps <= 0) warps = k_.launch.warps.value_or(0);
  if (stages <= 0) stages = k_.launch.stages.value_or(0);
  // Two warpgroups share a tile where they can, and three where two cannot.
  p_.groups = rows == 192 ? 3 : rows >= 128 ? 2 : 1;
  p_.blocks = rows / 64 / p_.groups;
  if (warps > 0 && warps != 4 * p_.groups)
    refuse(
        formatted("{} warps are asked for, and {} multiply {} rows", warps, 4 * p_.groups, rows));
  const std::int64_t sums = std::int64_t{p_.blocks} * p_.right_columns() / 2;
  if (p_.right_columns() > 256)
    refuse(formatted("its two tiles have {} columns, and an instruction at most 256",
                     p_.right_columns()));
  const std::int64_t fewer = sums_left_out(rows);
  const bool plain = p_.epilogue.operators.empty() && !shared_.valid();
  const std::int64_t most = (p_.groups == 3            ? kMostOfThree
                             : p_.groups == 2 && plain ? kMostOfTwo
                                                       : kMostSums) -
                            fewer;
  if (sums > most)
    refuse(formatted("its tile of {} x {} has {} sums a thread, and there is room for {}", rows,
                     p_.tile_columns, sums, most));
  p_.resident = p_.groups == 1 && sums <= kFewSums - fewer / 2 ? 2 : 1;
  p_.part = p_.depth;
  if (shared_.valid()) {
    p_.part = k_.node(shared_).step * depth.of_one;
    p_.share = static_cast<int>(k_.node(shared_).max_trips);
    if (k_.node(shared_).max_trips > kMostShare)
      refuse(formatted("{} blocks share a tile's sum, and a cluster has at most {}",
                       k_.node(shared_).max_trips, kMostShare));
    if (p_.part % 64 != 0)
      refuse(formatted("blocks have {} each of loop {} of the sum, and take multiples of 64",
                       p_.part, loop_name(k_.node(shared_).loop)));
  }
  const std::int64_t deep = depth.step > 0 ? depth.step : p_.part;
  p_.tiles = p_.count * ceil_div(p_.rows, std::int64_t{rows}) * p_.tiles_across();
  const std::int64_t staged = p_.share > 1 ? 0 : p_.groups * 2 * kBoxBytes, barriers = 16;
  const auto fit = [&](int steps) {
    p_.steps = steps;
    const std::int64_t room =
        s_.machine->level(k_.level).capacity.value / p_.resident - kReservedShared;
    return (room - staged) / (p_.stage_bytes() + barriers);
  };
  // Longer rings gained where they were short or blocks have clusters (h100-products-alone.json):
  // supposed, because clusters with room for two blocks on an SM leave others without any. Sums
  // that clusters share were not timed with them.
  if (p_.resident > 1 && p_.share == 1 && alone() && fit(1) * kDeepRings * 64 < p_.part &&
      (fit(1) < kLongRing || k_.launch.cluster.value_or(1) > 1))
    p_.resident = 1;
  // What lies past the end of a folded depth is the next product's, not zero.
  const bool folds = p_.left_fold + p_.right_fold > 0;
  const bool two =
      deep % 128 == 0 && p_.part % 128 == 0 && (!folds || p_.depth % 128 == 0) && fit(2) >= 3;
  const std::int64_t fits = fit(two ? 2 : 1);
  if (fits < 2) refuse("two stages of its tiles have no room in shared memory");
  if (stages == 1) refuse("one stage is asked for, and a ring has two or more");
  if (stages > fits)
    refuse(formatted("{} stages of its tiles have no room in shared memory", stages));
  const std::int64_t most_stages = p_.groups == 1 && p_.resident == 1 ? kMostAlone : kMostTurns;
  p_.stages = stages > 0 ? stages : static_cast<int>(std::min<std::int64_t>(fits, most_stages));
  if (p_.stages * p_.stage_bytes() < p_.partial_bytes())
    refuse(formatted("{} stages of its tiles have no room for the sums that a cluster adds up",
                     p_.stages));
  p_.shared_bytes = p_.stages * (p_.stage_bytes() + barriers) + staged;
  // Measured (H100, 4096 and 8192 cubed): 512 rows of tiles, and at least four tiles.
  p_.order = std::max(4, 512 / rows);
  if (p_.tiles >= 1 << 30) refuse("it has 2^30 tiles or more");
  if (const int blocks = k_.launch.cluster.value_or(1); blocks > 1) {
    if (twin_ != nullptr) refuse("two products side by side share no operands in clusters");
    share_operands(blocks);
  }
  p_.order = std::max(1, p_.order / p_.down);
  p_.grid = blocks_at_once(p_.cluster() / p_.share);
  p_.shared_bytes =
      shared_alone(p_.shared_bytes, s_.machine->level(k_.level).capacity.value - kReservedShared,
                   p_.grid, s_.machine->units.front().count, p_.cluster());
}

/// One block an SM is all there is.
bool WarpgroupFinder::alone() const {
  const std::int64_t blocks = k_.launch.cluster.value_or(1);
  return p_.tiles <= blocks * clusters_at_once(s_.machine->units.front().count, 1, blocks);
}

/// Where a cluster has so many tiles.
std::int64_t WarpgroupFinder::blocks_at_once(std::int64_t tiles) const {
  const ComputeUnit& sm = s_.machine->units.front();
  const std::int64_t blocks = p_.share * tiles;
  return blocks * std::min(p_.tiles / tiles, clusters_at_once(sm.count, p_.resident, blocks));
}

/// Which tiles a cluster of so many blocks has, so that there are the fewest rounds, no tiles
/// past an end where that can be, and L2 gives the fewest lines of 128 bytes. The blocks of tiles
/// past an end copy and get what the others do.
void WarpgroupFinder::share_operands(int blocks) {
  if (p_.share > 1) refuse("its launch asks for clusters, and its tree has another cluster");
  if (p_.groups_of_rows() > 1) refuse("groups of channels share no operands in clusters");
  const std::int64_t down = ceil_div(p_.rows, std::int64_t{p_.tile_rows()}),
                     across = p_.tiles_across(), size = size_of(p_.operand);
  // Rows that begin at no line touch two.
  const double left = p_.tile_rows() * (of_left_.outer * size % 128 == 0 ? 1 : 2),
               right = p_.tile_columns * (of_right_.outer * size % 128 == 0 ? 1 : 2);
  const std::int64_t at_once =
      blocks * clusters_at_once(s_.machine->units.front().count, p_.resident, blocks);
  std::tuple least{std::numeric_limits<std::int64_t>::max(), false, 0.0};
  for (int d = 1; d <= blocks && blocks <= kMostShare; ++d) {
    const int a = blocks / d;
    // Of images, points past an end are another one's.
    if ((p_.images && (d > 1 || across % a != 0)) || blocks % d != 0 || d > down || a > across ||
        64 % (8 * a) != 0 || 64 % (8 * d) != 0 || p_.tile_columns % (8 * d) != 0)
      continue;
    const std::int64_t tiles = p_.count * round_up(down, d) * round_up(across, a);
    const std::tuple cost{ceil_div(tiles, at_once), tiles > p_.count * down * across,
                          static_cast<double>(tiles) * (left / a + right / d)};
    if (cost < least) least = cost, p_.down = d, p_.across = a, p_.tiles = tiles;
  }
  if (p_.down * p_.across != blocks)
    refuse(formatted("{} x {} tiles make no clusters of {}", down, across, blocks));
}

void WarpgroupFinder::map_result() {
  const std::int64_t size = size_of(w_.tensor(p_.result).dtype), across = 128 / size;
  p_.pitch = of_result_.outer, p_.apart = of_result_.apart;
  p_.boxed = p_.share == 1 && p_.columns_apart == p_.tile_columns && p_.pitch * size % 16 == 0 &&
             p_.apart * size % 16 == 0 &&
             (p_.groups_of_rows() == 1 || p_.rows % p_.tile_rows() == 0) &&
             (p_.turned || p_.tile_columns % across == 0 || p_.tile_columns >= p_.columns);
  const std::int64_t along = p_.turned ? p_.rows : p_.columns;
  if (p_.boxed) {
    const std::int64_t rows = p_.rows * p_.groups_of_rows();
    p_.maps.push_back(p_.turned ? box_map(w_, p_.result, of_result_, rows, p_.columns, p_.tall())
                                : box_map(w_, p_.result, of_result_, p_.columns, rows, 64));
    return;
  }
  // Rows that clusters have added up leave four elements at a time.
  p_.vector = p_.share > 1 ? 4 : static_cast<int>(16 / size);
  while (p_.pitch % p_.vector != 0 || p_.apart % p_.vector != 0 || along % p_.vector != 0 ||
         (!p_.turned && p_.columns_apart % p_.vector != 0))
    p_.vector /= 2;
}

}  // namespace tilewright::lowering
