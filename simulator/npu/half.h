// Elements of every type but f64 as floats and back, many at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/units.h"

namespace tilewright::npu {

/// n f16 values, exactly.
void floats_of_halves(const std::uint16_t* from, float* to, std::size_t n);
/// Rounded to nearest even; a NaN becomes 0x7fff, whatever the processor.
void halves_of_floats(const float* from, std::uint16_t* to, std::size_t n);

/// n elements of a type, any but f64, at an address aligned to it. Integers are rounded to nearest
/// even and kept to what the type holds; a NaN becomes 0.
void load_elements(const std::byte* from, DType type, float* to, std::size_t n);
void store_elements(const float* from, DType type, std::byte* to, std::size_t n);

/// to[c][r] = from[r][c] of 16 x 16 halves.
void transpose_fractal(const std::uint16_t* from, std::uint16_t* to);

}  // namespace tilewright::npu
