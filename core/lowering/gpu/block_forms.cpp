// What a block needs of an SM, of the forms that blocks' lowering has chosen.
#include <algorithm>

#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/block_time.h"
#include "core/lowering/gpu/block_work.h"
#include "core/lowering/gpu/product_tiles.h"

namespace tilewright::lowering {
namespace {

/// Registers of a contraction, whose operands' places are kept and moved along: ptxas of nvcc 13.0
/// gives the six that it makes of ResNet-50 in f32 80 to 101, and by matrix units eight kernels of
/// convolutions in h200-drawn-seconds-*.json 80 to 127.
constexpr std::int64_t kContraction = 96;
/// Of one whose depth is no more than so many products, of which no places are moved along: it
/// gives 16 of 19 such kernels in h200-drawn-seconds-*.json 27 to 47.
constexpr std::int64_t kShallow = 8, kShallowContraction = 48;
/// Registers of several sums point by point: it gives six kernels of attention of one query row in
/// f32 115 to 168, and spills nothing with 128.
constexpr std::int64_t kSumsByPoints = 112;
/// Of a sum point by point some of whose points do not exist, as a window's beyond the image: which
/// do is looked at in each dimension. It gives 42 such kernels in h200-drawn-seconds-*.json 56 to
/// 80 (quartiles), and 166 without such points 30 to 64.
constexpr std::int64_t kSumsWithEdges = 72;

/// Of a product by matrix units: registers of a thread beside its sums. ptxas of nvcc 13.0 reads
/// two steps of 16 of both operands ahead, one where the depth has a single turn: within 2 in the
/// median of 92 kernels of one product for sm_80 and sm_90a.
std::int64_t beside_sums(const ProductRun& x, const BlockForms& f) {
  const std::int64_t step = 4 * ceil_div(x.rows, std::int64_t{f.warp_rows}) +
                            2 * ceil_div(x.columns, std::int64_t{f.warp_columns});
  return x.runs > 1 ? std::max<std::int64_t>(40, 8 + std::min<std::int64_t>(72, 2 * step))
                    : std::max<std::int64_t>(24, 8 + step);
}

/// About what ptxas gives a thread (kernels of h200-chains.json): sums that are the next product's
/// operand are rounded beside themselves, values of rows are kept.
std::int64_t registers_of(const BlockWork& work, const BlockForms& f, const BlockRates& r) {
  bool chained = false, rows = false, contracts = false, shallow = false, edges = false;
  int by_points = 0;
  for (const BlockPhase& p : work.phases) {
    for (const ProductRun& x : p.products) {
      chained = chained || x.left_sums;
      if (!x.contraction) continue;
      (x.contraction->depth * x.contraction->turns > kShallow ? contracts : shallow) = true;
    }
    for (const PointsRun& x : p.points) {
      rows = rows || (x.reduces && x.in_registers);
      if (x.reduces && !x.in_registers) ++by_points;
      edges = edges || (x.reduces && !x.in_registers && x.sum_edges);
    }
  }
  const bool alone = work.phases.size() == 1 && work.phases.front().multiplies_alone();
  const std::int64_t beside = alone ? beside_sums(work.phases.front().products.front(), f) : 40;
  const std::int64_t down = ceil_div(f.most_rows, f.warp_rows);
  const std::int64_t all = r.tf32 > 0 && work.sums > 0   ? tf32_registers(work.sums, down)
                           : r.mma == 0 && work.sums > 0 ? fma_registers(work.sums, down)
                           : chained ? 44 + ceil_div(5 * work.sums, std::int64_t{4})
                                     : beside + work.sums;
  const std::int64_t least = by_points > 2 && r.mma == 0 ? kSumsByPoints
                             : contracts                 ? kContraction
                             : edges                     ? kSumsWithEdges
                             : shallow                   ? kShallowContraction
                                                         : 0;
  return std::min(most_registers(f.threads, r.registers), std::max(least, all + (rows ? 20 : 0)));
}

}  // namespace

Result<BlockForms> block_forms(const BlockWork& work, const BlockRates& r) {
  const BlockProgram& p = work.program;
  BlockForms f{.warp_rows = p.warp_rows,
               .warp_columns = p.warp_columns,
               .threads = p.threads() + p.copying_threads()};
  for (const BlockPhase& phase : work.phases)
    for (const ProductRun& x : phase.products)
      if (!x.contraction) f.most_rows = std::max(f.most_rows, x.rows);
  if (r.tf32 > 0 && work.sums > 0 &&
      tf32_registers(work.sums, ceil_div(f.most_rows, f.warp_rows)) > kRegistersOfThread)
    return Reason{"a thread has no registers for its sums and the parts of floats"};
  const bool shares = p.registers.blocks > 0;
  f.registers = shares ? p.registers.computing : registers_of(work, f, r);
  const Reason too_few{"its threads need more registers than an SM has"};
  if (f.registers < 1) return too_few;
  const auto resident = [&](std::int64_t registers) {
    return std::min(
        {r.blocks, r.threads / f.threads,
         shares ? p.registers.blocks : blocks_by_registers(f.threads, registers, r.registers),
         r.shared / (p.shared_bytes + kSharedReserved)});
  };
  f.resident = resident(f.registers);
  // Of products by fused multiply-adds ptxas' numbers are known to a tenth; in kernels of 16-bit
  // types it takes no more than these (17 kernels of h100-drawn-seconds-priced.json).
  const bool in_registers = std::ranges::any_of(p.tiles, &BlockTile::in_registers);
  const std::int64_t more = r.mma > 0 && r.tf32 == 0 ? 10 : in_registers ? 11 : 12;
  f.crowded = std::max<std::int64_t>(1, resident(ceil_div(more * f.registers, std::int64_t{10})));
  if (f.resident < 1) return too_few;
  return f;
}

}  // namespace tilewright::lowering
