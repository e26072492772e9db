// Products of whole numbers of 8 bits, which some processors add four at a time.
#pragma once

#include "core/workload/workload.h"

namespace tilewright {

/// Rows that a product needs to be one of tiles, where the processor has them (AMX).
inline constexpr int kLeastTileRows = 8;

/// Whether an operator sums products of two tensors of i8.
bool multiplies_bytes(const Workload& w, OpId op);
/// Whether any operator does.
bool multiplies_bytes(const Workload& w);

}  // namespace tilewright
