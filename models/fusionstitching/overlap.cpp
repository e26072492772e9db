// The latency-evaluator that lets latencies overlap: `--stitch latency=overlap`.
#include "models/fusionstitching/overlap.h"

#include <algorithm>
#include <cmath>

#include "models/fusionstitching/column_roots.h"
#include "models/fusionstitching/part.h"

namespace tilewright::fusionstitching {
namespace {

constexpr double kSchedulers =
    4;  // of an SM, an instruction a cycle each: CUDA C++ Programming Guide
constexpr double kSpecialLanes =
    16;  // of an SM, a cycle: CUDA C++ Programming Guide, throughput of instructions
constexpr double kSharpness = 4;
constexpr double kAttained = 0.85;  // of DRAM's bandwidth
constexpr double kScattered =
    0.005;  // more of DRAM's time a doubling of turns: a block's bytes lie apart
constexpr double kSpread = 0.006,
                 kSpreadFrom =
                     4096;  // DRAM's time a doubling of an SM's bytes of one round, from so many on
constexpr double kExposed = 0.1;     // of a chain: at the kernel's end
constexpr double kFilling = 0.01;    // of the time until every place has its first block
constexpr double kInStep = 0.25;     // of a chain: between the first rounds of blocks

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
  double rounds = 0;
  for (const Demand& p : parts) {
    all.blocks += p.blocks;
    all.instructions += p.blocks * p.instructions;
    all.special += p.blocks * p.special;
    all.wavefronts += p.blocks * p.wavefronts;
    all.sectors += p.blocks * p.sectors;
    all.added += p.blocks * p.added;
    rounds += p.blocks * p.chain / (resident * sms);
    all.chain = std::max(all.chain, p.chain);
    all.turns = std::max(all.turns, p.turns);
  }
  const double of_sm = uneven(d, all.blocks) / sms / d.clock_hz;
  const double places = resident * sms, waves = all.blocks / places;
  const double of_round = dram_bytes / std::max(1.0, waves) / sms;
  Overlap t{
      .launch = d.launch / d.clock_hz,
      .dispatch = all.blocks * d.dispatch / d.clock_hz,
      .dram =
          dram_bytes / (kAttained * d.dram_bytes_per_second) *
          (1 + kScattered * std::log2(all.turns) + kSpread * std::log2(1 + of_round / kSpreadFrom)),
      .fill = all.sectors * kSectorBytes * uneven(d, all.blocks) / sms / d.fill_bytes_per_second,
      .issue = all.instructions / kSchedulers * of_sm,
      .special = all.special * kWarp / kSpecialLanes * of_sm,
      .local = all.wavefronts * of_sm,
      .latency = std::max(rounds, all.chain) / d.clock_hz};
  // The second round of blocks waits for the first one's stores; after several they have drifted
  // apart.
  const double exposed = (kExposed + (waves > 1 ? kInStep / std::floor(waves) : 0)) * all.chain +
                         kFilling * std::min(all.blocks, places) * d.dispatch;
  double sum = 0;
  for (double x : {t.dram, t.fill, t.issue, t.special, t.local, t.latency})
    sum += std::pow(x, kSharpness);
  if (all.added > 0)
    t.added = t.launch + added_seconds(d, Bytes(static_cast<std::int64_t>(all.added)));
  t.seconds = t.launch + t.added +
              std::max(t.dispatch, std::pow(sum, 1 / kSharpness) + exposed / d.clock_hz);
  t.turns = all.turns;
  t.blocks = all.blocks, t.resident = resident, t.chain = all.chain;
  return t;
}

}  // namespace tilewright::fusionstitching
