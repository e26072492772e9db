// Elements as a kernel has them in memory, to and from the evaluator's doubles.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/units.h"

namespace tilewright {

/// Writes values as elements of that type, each rounded as round_to does; size_of(type) bytes each,
/// native byte order. On all cores. f16 is IEEE 754's binary16, bf16 the upper half of binary32.
void encode_elements(DType type, std::span<const double> values, void* to);
/// `count` elements that are NaN, so that one never written shows; integers have none: the least
/// value.
void fill_with_nan(DType type, std::size_t count, void* to);
/// The elements' values, exactly. On all cores.
std::vector<double> decode_elements(DType type, const void* from, std::size_t count);
/// relative_error (evaluate.h) of as many elements of that type as the reference has. On all cores.
double relative_error(DType type, const void* got, std::span<const double> reference);

}  // namespace tilewright
