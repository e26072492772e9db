#include "models/stitching/first_level.h"

#include <algorithm>
#include <cmath>

#include "models/stitching/gpu_time.h"
#include "models/stitching/loops.h"
#include "models/stitching/overlap.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr double kVectorElements = 8;  // that a thread loads at once, at most
// Cycles of a load that L1 has: Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU
// Architecture via Microbenchmarking, table of memory latencies.
constexpr double kL1 = 40.7;
// Bytes that blocks read past L1, all the same ones or of one of 8 or of 32 places, over those that
// each reads for itself: 19, 18 and 11 TB/s over 7.2 on an H200, and as much on an H100
// (h100-cold.json).
constexpr double kMostTogether = 2.6;

}  // namespace

using lowering::Linear;

/// Blocks that an SM has at the same time, at most.
double FirstLevel::most_resident() const {
  const double threads = kWarp * static_cast<double>(p_.warps);
  return std::max(1.0, std::min(static_cast<double>(d_.blocks_per_sm),
                                std::floor(static_cast<double>(d_.threads_per_sm) / threads)));
}
/// Bytes of L1 for each tensor that the kernel reads: what tiles leave of the memory that both
/// share.
double FirstLevel::of_tensor() const {
  double read = 0;
  for (std::size_t t = 0; t < p_.workload->tensors().size(); ++t)
    read += is_read_only(TensorId(t)) && !p_.workload->consumers(TensorId(t)).empty() ? 1 : 0;
  const double tiles = most_resident() * static_cast<double>(p_.shared_bytes);
  return std::max(0.0, static_cast<double>(d_.shared_per_sm) - tiles) / std::max(1.0, read);
}
bool FirstLevel::is_read_only(TensorId t) const {
  const OpId producer = p_.workload->producer(t);
  return !producer.valid() || std::ranges::find(k_.ops, producer) == k_.ops.end();
}
double FirstLevel::from_l2(TensorId t, const Linear& at, double sectors) const {
  if (!t.valid() || !is_read_only(t)) return sectors;
  const auto bytes = static_cast<double>(size_of(p_.workload->tensor(t).dtype));
  double all = 1, span = kVectorElements;
  for (int i : grid_) all *= static_cast<double>(p_.index(i).count);
  for (const auto& [id, c] : at.terms)
    if (const auto& index = p_.index(id); index.kind != lowering::ProgramIndex::Kind::block)
      span += std::abs(static_cast<double>(c)) * static_cast<double>(index.count - 1);
  if (all != blocks_) return sectors;  // phases with a barrier between
  const double room = room_, resident = most_resident();
  double least = sectors, blocks = 1, others = 1;
  for (auto inner = grid_.rbegin();; ++inner) {
    const double touched = std::min(sectors * others, span * bytes / kSectorBytes + 1),
                 own = std::max(1.0, blocks / static_cast<double>(d_.sms));
    if (touched * kSectorBytes * std::max(1.0, resident / own) > room) break;
    least = std::min(least, touched / own);
    if (inner == grid_.rend()) break;
    const auto count = static_cast<double>(p_.index(*inner).count);
    blocks *= count;
    if (const auto term = at.terms.find(*inner); term != at.terms.end())
      others *= count, span += std::abs(static_cast<double>(term->second)) * (count - 1);
  }
  return least;
}

bool FirstLevel::others_read(const Linear& at) const {
  return std::ranges::any_of(grid_,
                             [&](int i) { return p_.index(i).count > 1 && !at.terms.contains(i); });
}
double FirstLevel::asked_together(const Linear& at) const {
  const double sms = static_cast<double>(d_.sms),
               under_way = std::min(blocks_, most_resident() * sms);
  double left = under_way, different = 1;
  for (auto inner = grid_.rbegin(); inner != grid_.rend() && left > 1; ++inner) {
    const double count = std::min(left, static_cast<double>(p_.index(*inner).count));
    if (at.terms.contains(*inner)) different *= count;
    left = std::ceil(left / count);
  }
  return std::min(kMostTogether, std::cbrt(std::clamp(under_way / different, 1.0, sms)));
}
double FirstLevel::latency(const Linear& at, double fresh) const {
  return std::min(1.0, fresh) * (others_read(at) ? d_.l2 : d_.home()) +
         (1 - std::min(1.0, fresh)) * kL1;
}

}  // namespace tilewright::stitching
