// How long products by warpgroups and pairs of them take.
#pragma once

#include <initializer_list>

#include "core/lowering/gpu/block_time.h"
#include "core/lowering/gpu/warpgroup_pair.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::lowering {

/// Cycles of a launch that are left where it begins before the one before it has ended: chosen with
/// the numbers of products by warpgroups.
inline constexpr double kLeftOfLaunch = 1588;

/// Rows that begin at no line of 128 bytes touch a line more, and those that begin at no sector of
/// 32 bytes a sector more: how many times as long they take as others.
struct RowsThatStraddle {
  double lines = 1, sectors = 1;
};
/// What a block waits for adds up by a power: neither the longest alone nor all. Chosen with the
/// numbers of products by warpgroups.
double add_up(std::initializer_list<double> all);

/// Tiles one after the other in persistent blocks, each with a ring that fills while it computes.
/// `out_bytes`: of an element of the results; `latency`: of a read from home, in cycles.
PhaseTime time_of(const WarpgroupProduct& p, const Workload& w, std::int64_t out_bytes,
                  double latency, const BlockRates& r);
/// The same of two products. While one warpgroup's operators run, its second product and the
/// others' products are under way.
PhaseTime time_of(const WarpgroupPair& p, const Workload& w, std::int64_t out_bytes, double latency,
                  const BlockRates& r);

/// Whether a launch with fewer blocks than SMs had better begin when the one before, of clusters,
/// has ended. All SMs are free then, and blocks are placed evenly on the groups of SMs that share
/// what L2 gives them. Those of a launch that begins early go to the SMs that clusters leave first,
/// which lie side by side.
bool begins_on_idle_sms(const WarpgroupProduct& p, const Workload& w, const BlockRates& r);

}  // namespace tilewright::lowering
