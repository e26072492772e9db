// How long a convolution takes as window_product.h arranges it.
#pragma once

#include "core/lowering/gpu/block_time.h"
#include "core/lowering/gpu/window_product.h"

namespace tilewright::lowering {

/// Of a thread, as ptxas gives them, about.
std::int64_t registers_of(const WindowProduct& p);

/// All warps copy, ahead, and multiply; a block's tiles are one. `latency`: of a read from home, in
/// cycles; `resident`: blocks of an SM.
PhaseTime time_of(const WindowProduct& p, const Workload& w, double latency, std::int64_t resident,
                  const BlockRates& r);

}  // namespace tilewright::lowering
