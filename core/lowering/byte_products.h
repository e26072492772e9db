// Products of whole numbers of 8 bits, which some processors add four at a time.
#pragma once

#include "core/workload/workload.h"

namespace tilewright {

/// Whether an operator sums products of two tensors of i8.
bool multiplies_bytes(const Workload& w, OpId op);
/// Whether any operator does.
bool multiplies_bytes(const Workload& w);

}  // namespace tilewright
