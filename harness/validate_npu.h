// validate --truth emulator: predicted bytes against those that emulated programs copy.
#pragma once

#include "harness/answer.h"
#include "harness/verbs.h"

namespace tilewright::harness {

/// Of a product or a chain of two: seeded blocks at L1 and tiles at L0, multiples of 16 (or what is
/// left of a loop). Each plan's program is emulated and verified. `predicted_bytes` is Algorithm 1's
/// volume at the blocks of L1 (exact edges), `true_bytes` what copies moved between L2 and the cores;
/// `exact` says on how many paths exact's count is the emulator's, to the byte.
Answer validate_npu(const Request& request, const ValidateOptions& options);

}  // namespace tilewright::harness
