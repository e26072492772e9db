// The latency-evaluator that lets latencies overlap: `--stitch latency=overlap`.
#include "models/stitching/overlap.h"

#include <algorithm>
#include <cmath>

#include "core/lowering/gpu/block_rules.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr double kSchedulers =
    4;  // of an SM, an instruction a cycle each: CUDA C++ Programming Guide
constexpr double kSpecialLanes =
    16;  // of an SM, a cycle: CUDA C++ Programming Guide, throughput of instructions
constexpr double kSharpness = 5;
constexpr double kAttained = 0.955;  // of DRAM's bandwidth, when its accesses lie best
// More of DRAM's time a doubling of: turns, whose bytes lie a block's width apart; an SM's bytes of
// one round, from so many on; warps of a block that do not wait for one another, and leave it one
// by one.
constexpr double kScattered = 0.0075, kSpread = 0.012, kSpreadFrom = 4096, kApart = 0.0075;
constexpr double kAdding = 16;    // cycles of a block of the last round: all add to the same places
constexpr double kExposed = 0.2;  // of a chain: at the kernel's end, where chains are not the time
constexpr double kFilling = 0.1;  // of the time until every place has its first block
constexpr double kInStep = 0.07;  // of a chain: between the first rounds of blocks
constexpr double kUnfilled = 0.14;  // of a chain: where the last round leaves all places empty
// Where an SM has one block, nothing else hides what its warps do at the same time: of the
// instructions, the part that comes on top, since warps that begin together wait for the same and
// then all have something to issue; and how much longer the chain is for each doubling of a
// thread's registers from kUsual on, shorter down to kFewest, since what a thread has on its way
// comes one after the other. With n blocks an SM the square of 1 / n is left of both. Each is so
// many cycles at most: then warps have drifted apart. Chosen with kFilling by 2,282 stitched
// kernels of h200-drawn-seconds*.json, and by h200-ranking*.json, whose order of schedules of many
// blocks they leave.
constexpr double kTogether = 0.3, kOfRegisters = 0.17, kUsual = 32, kFewest = 16, kInOne = 640;

/// Cycles of a kernel besides its blocks.
double launched(const Device& d, double blocks) {
  return d.launch + d.launch_unit * std::min(blocks, static_cast<double>(d.sms));
}

/// The part of a block's time that no other block of its SM hides.
double unhidden(const Device& d, double blocks) {
  const double share = std::min(1.0, static_cast<double>(d.sms) / std::max(1.0, blocks));
  return share * share;
}

/// Cycles of a block of a part, of which `alone` is not hidden.
double chain_of(const Demand& p, double alone) {
  const double doublings = std::log2(std::max(kFewest, p.registers) / kUsual);
  return p.chain + std::clamp(kOfRegisters * alone * doublings * p.chain, -kInOne, kInOne);
}

/// How much of the time is not the blocks' chains: where these are all of it, none of them is left
/// at the end. `sum`: of the powers of all.
double others(double chains, double sum) {
  return sum > 0 ? 1 - std::pow(chains, kSharpness) / sum : 1;
}

/// Seconds of the busiest SM over the mean: blocks are whole.
double uneven(const Device& d, double blocks) {
  const double each = blocks / static_cast<double>(d.sms);
  return each > 0 ? std::ceil(each) / each : 1;
}

}  // namespace

Overlap overlap(const Device& d, std::span<const Demand> parts, double resident,
                double dram_bytes) {
  const auto sms = static_cast<double>(d.sms);
  Demand all;
  double rounds = 0, apart = 1, adding = 0, swapped = 0;
  for (const Demand& p : parts) all.blocks += p.blocks;
  const double alone = unhidden(d, all.blocks);
  for (const Demand& p : parts) {
    all.instructions += p.blocks * p.instructions;
    all.special += p.blocks * p.special;
    all.wavefronts += p.blocks * p.wavefronts;
    all.sectors += p.blocks * p.sectors;
    // Words alone take less than a sector (experiments/gpu/functions: sums of everything).
    adding += p.blocks * std::min(1.0, p.added / kSectorBytes);
    swapped = std::max(swapped, p.swapped);
    if (!p.meets) apart = std::max(apart, p.warps);
    rounds += p.blocks * (chain_of(p, alone) + p.awaited) / (resident * sms);
    all.chain = std::max(all.chain, chain_of(p, alone));
    all.turns = std::max(all.turns, p.turns);
    all.registers = std::max(all.registers, p.registers);
  }
  const double of_sm = uneven(d, all.blocks) / sms / d.clock_hz;
  const double places = resident * sms, waves = all.blocks / places;
  const double of_round = dram_bytes / std::max(1.0, waves) / sms;
  const double slower = kScattered * std::log2(all.turns) +
                        kSpread * std::log2(1 + of_round / kSpreadFrom) + kApart * std::log2(apart);
  Overlap t{
      .launch = launched(d, all.blocks) / d.clock_hz,
      .dispatch = all.blocks * d.dispatch / d.clock_hz,
      .dram = (1 - d.stays) * dram_bytes / (kAttained * d.dram_bytes_per_second) * (1 + slower),
      .fill = all.sectors * kSectorBytes * uneven(d, all.blocks) / sms /
              ((1 - (1 - lowering::kFilled) * d.stays) * d.fill_bytes_per_second),
      .issue = all.instructions / kSchedulers * of_sm,
      .special = all.special * kWarp / kSpecialLanes * of_sm,
      .local = all.wavefronts * of_sm,
      .latency = std::max(rounds, all.chain) / d.clock_hz};
  // The second round of blocks waits for the first one's stores; after several they have drifted
  // apart. The last one leaves places empty.
  const double steps =
      waves > 1 ? (kInStep + kUnfilled * (std::ceil(waves) - waves)) / std::floor(waves) : 0;
  double sum = 0;
  for (double x : {t.dram, t.fill, t.issue, t.special, t.local, t.latency})
    sum += std::pow(x, kSharpness);
  const double exposed = kExposed * all.chain * others(t.latency, sum) + steps * all.chain +
                         kFilling * std::min(all.blocks, places) * d.dispatch +
                         std::min(kInOne, kTogether * alone * t.issue * d.clock_hz);
  if (adding > 0) t.added = t.launch + std::min(adding, places) * kAdding / d.clock_hz;
  // One of those who wait for a word succeeds each time that all have gone to L2 and back, where
  // they are served one after the other.
  if (swapped > 1)
    t.added += swapped * (d.l2 + std::min(swapped, places) * lowering::kSwapping) / d.clock_hz;
  t.seconds = t.launch + t.added +
              std::max(t.dispatch, std::pow(sum, 1 / kSharpness) + exposed / d.clock_hz);
  t.turns = all.turns;
  t.blocks = all.blocks, t.resident = resident, t.chain = all.chain, t.registers = all.registers;
  return t;
}

double least_overlap(const Device& d, const Demand& part, double dram_bytes) {
  const auto sms = static_cast<double>(d.sms);
  const double of_sm = part.blocks * uneven(d, part.blocks) / sms / d.clock_hz;
  // As many blocks at once as there are threads for, and of DRAM's bytes as few in a round.
  const double places = sms * std::clamp(std::floor(static_cast<double>(d.threads_per_sm) /
                                                    (std::max(1.0, part.warps) * kWarp)),
                                         1.0, static_cast<double>(d.blocks_per_sm));
  // No blocks: it may be any number of them.
  const double of_round = part.blocks > 0 ? dram_bytes / std::max(1.0, part.blocks / sms) / sms : 0;
  const double chain = chain_of({.chain = part.chain}, unhidden(d, part.blocks));
  const double latency = std::max(1.0, part.blocks / places) * chain / d.clock_hz;
  double sum = 0;
  for (double x : {(1 - d.stays) * dram_bytes / (kAttained * d.dram_bytes_per_second) *
                       (1 + kSpread * std::log2(1 + of_round / kSpreadFrom)),
                   part.sectors * kSectorBytes * of_sm * d.clock_hz /
                       ((1 - (1 - lowering::kFilled) * d.stays) * d.fill_bytes_per_second),
                   part.instructions / kSchedulers * of_sm,
                   part.special * kWarp / kSpecialLanes * of_sm, latency})
    sum += std::pow(x, kSharpness);
  return (launched(d, part.blocks) +
          std::max(part.blocks * d.dispatch, std::pow(sum, 1 / kSharpness) * d.clock_hz +
                                                 kExposed * chain * others(latency, sum))) /
         d.clock_hz;
}

}  // namespace tilewright::stitching
