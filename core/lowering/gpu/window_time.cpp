#include "core/lowering/gpu/window_time.h"

#include <algorithm>
#include <cmath>

#include "core/lowering/gpu/block_computes.h"
#include "core/lowering/gpu/block_work.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::lowering {
namespace {

// Chosen by the plans of h100-convolutions-again.json: fitted to every other of its workloads, the
// root of the mean square of log(price / time) is 0.28 and 0.25 over the others; 0.24 over all, and
// 0.27 over h100-convolutions-drawn.json. Of a copy of a thread whose place is known: instructions
// (assumed), and cycles of the load-store unit that all warps of four wait for; of one whose place
// is computed: instructions.
// Elements that are copied one by one are under way at the same time: all whose places are known,
// else eight of a thread, as device/tilewright_windows.h has it.
constexpr double kOfHeldCopy = 7, kHeldCopyWaits = 10, kOfWindowCopy = 27, kWindowElements = 8;
// Bytes a cycle that come from L2 to one SM at most, however many others wait: Jia et al.,
// Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking; assumed of later ones.
constexpr double kIntoSm = 64;
// Cycles of an SM for a warp's instruction that copies single elements: chosen by products and
// chains of odd sizes (h100-products-odd.json, h100-chains-odd.json), which took as much longer
// than their prices with as many copies. Of an element that leaves alone, instructions (assumed).
constexpr double kOfElementCopy = 4, kOfElementAlone = 6;
// Cycles until the blocks of a cluster have met, and until a block that has all of its sums has
// left them; instructions of an element that leaves (assumed).
constexpr double kWindowsMeet = 760, kWindowEnds = 415, kOfWindowElement = 1;
// Cycles of a stage beside all that it copies and multiplies: threads meet, and the next copies are
// begun before its products. Of 40, 80, 120 and 160 the one by which the least price of the plans
// of h100-convolutions-again.json and -eights is nearest to the fastest (1.021 and 1.042 without).
constexpr double kStageBegins = 80;
// Of blocks that are on an SM together, the part of each that the others do not hide.
constexpr double kNotHidden = 0.41;

/// Cycles that an SM has a stage's products of one block for, copies left out.
double stage_cycles(const WindowProduct& p, double rate) {
  const WindowProduct::Step step = p.step_work(rate);
  const auto warps = static_cast<double>(p.threads() / 32);
  return static_cast<double>(ceil_div(p.steps(), p.warps_k)) *
         std::max({std::max(step.tensor, step.issue) * std::ceil(warps / 4), step.near * warps,
                   p.step_alone(step)});
}

}  // namespace

std::int64_t registers_of(const WindowProduct& p) {
  // Sums, what is read for the next ones, and two for each copy whose place is known: chosen by
  // what ptxas gave the plans of h100-convolutions-again.json, 12 off in the root of the mean
  // square.
  const std::int64_t sums = 4 * p.blocks_m * p.blocks_n, held = p.held() ? p.copies() : 0;
  // Of floats: four of the depth of a thread's rows, and its points' places and elements.
  if (p.tf32)
    return std::min<std::int64_t>(
        255,
        72 + sums + 16 * p.blocks_m + 16 * std::min<std::int64_t>(p.blocks_m, 2) + held * 17 / 8);
  if (p.fma())
    return std::min<std::int64_t>(255, 32 + sums + 8 * p.blocks_m + 4 * p.blocks_n + held * 17 / 8);
  return std::min<std::int64_t>(255, 32 + sums * 5 / 4 + held * 17 / 8);
}

PhaseTime time_of(const WindowProduct& p, const Workload& w, double latency, std::int64_t resident,
                  const BlockRates& r) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double turns = real(p.turns()), copies = real(p.copies());
  const double left = real(p.tile * p.steps() * 16),
               right = real(p.of_tap() * p.in_rows() * p.pitch);
  // Of L2's rate an SM has more where others have no blocks.
  const double busy_sms = real(std::min(p.grid, r.sms));
  const double rate = std::min(kIntoSm, kFilled * r.fill * real(r.sms) / busy_sms);
  const double fill = (left + right) * real(p.element()) / rate;
  // An SM has four schedulers.
  const double issue = copies * real(p.threads()) / 128 * (p.held() ? kOfHeldCopy : kOfWindowCopy);
  // What copies of less than 16 bytes keep an SM busy with.
  const auto served = [&](std::int64_t piece, std::int64_t all) {
    return piece * p.element() == 16 ? 0.0
                                     : real(all) * (p.alone(piece) ? kOfElementCopy : kOfPieces);
  };
  const double near =
      real(p.threads()) / 32 *
      (served(p.left_piece, p.left_copies()) + served(p.right_piece, p.right_copies()));
  const double waits = (p.held() ? copies * real(p.threads()) / 128 * kHeldCopyWaits : 0) + near;
  // What goes element by element comes within the turn.
  const double elements = real(p.elements());
  const double come = elements == 0 ? 0
                      : p.held()    ? latency
                                    : latency * std::ceil(elements / kWindowElements);
  const double products = stage_cycles(p, p.fma() ? r.fma : p.tf32 ? r.tf32 : r.mma);
  const double ahead = std::max<double>(1, real(p.stages - 1));
  PhaseTime t{.blocks = p.grid};
  t.copies = turns * fill;
  t.waits = turns * (latency + fill) / ahead;
  t.tensor = turns * products;
  t.issue = turns * issue;
  t.near = turns * near;
  t.fill = t.copies;
  t.work = std::max(turns * (products + issue + waits + come + (p.floats() ? 0 : kStageBegins)),
                    t.waits);
  const double sums = real(p.tile * p.columns()), each = sums / real(p.share);
  double light = p.vector == 1 ? kOfElementAlone : kOfWindowElement, expensive = 0, read = 0;
  for (const OpId op : p.epilogue.operators)
    for (const Output& out : w.op(op).outputs) count_operations(out.value, light, expensive);
  for (const EpilogueRead& e : p.epilogue.reads) {
    light += 2 * kOfRead;
    if (e.by_row != 0 && e.by_column != 0) read += each * real(size_of(w.tensor(e.tensor).dtype));
  }
  double ends = kWindowEnds + sums * 4 * real(p.warps_k + 1) / 128 +
                each * (light / 128 + expensive / kSpecialUnits) +
                (each * real(size_of(w.tensor(p.result).dtype)) + read) / r.fill +
                (p.epilogue.reads.empty() ? 0 : latency);
  if (p.share > 1)
    ends += kWindowsMeet + sums * 4 * real(p.warps_k) / 128 +
            4 * sums * real(p.share - 1) / real(p.share) / kBytesFromBlocks;
  const double first = latency + std::min(ahead, turns) * (fill + issue + waits) + come;
  t.ends = first + ends;
  const double block = r.block + t.work + t.ends;
  // Blocks that are on an SM together share what comes into it, for which each one's stages wait.
  // In 16 bits the numbers above were chosen without it, and have it.
  const auto shared_fill = [&](double together) {
    if (!p.floats()) return 0.0;
    return std::max(0.0, turns * (latency + together * fill) / ahead - t.work) +
           std::min(ahead, turns) * (together - 1) * fill;
  };
  const double busy = std::max({t.tensor, t.fill, t.issue, t.near}) + ends / 2;
  // Some SMs have no room for a whole cluster of those that are free at the same time.
  const std::int64_t at_once =
      p.share > 1 ? p.share * clusters_at_once(r.sms, resident, p.share) : r.sms * resident;
  std::int64_t here = ceil_div(p.grid * resident, at_once);
  double cycles = 0;
  t.rounds = real(ceil_div(here, resident));
  for (; here > 0; here -= resident) {
    const double together = real(std::min(here, resident));
    cycles += std::max(block * (1 + kNotHidden * (together - 1)) + shared_fill(together),
                       together * busy);
  }
  t.seconds = std::max(cycles, real(p.grid) * r.dispatch) / r.clock;
  return t;
}

}  // namespace tilewright::lowering
