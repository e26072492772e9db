// Products of whole numbers of 8 bits, which some processors add four or two at a time.
#pragma once

#include <cstdint>

#include "core/workload/workload.h"

namespace tilewright {

/// Rows that a product needs to be one of tiles, where the processor has them (AMX).
inline constexpr int kLeastTileRows = 8;

/// Steps of the depth that an element of 32 bits has in such a product, by the width of vectors:
/// four of 8 bits (AVX-512 VNNI), or two that are widened to 16 (AVX2).
constexpr int steps_of_bytes(std::int64_t vector_bytes) { return vector_bytes >= 64 ? 4 : 2; }

/// Whether an operator sums products of two tensors of i8.
bool multiplies_bytes(const Workload& w, OpId op);
/// Whether any operator does.
bool multiplies_bytes(const Workload& w);

}  // namespace tilewright
