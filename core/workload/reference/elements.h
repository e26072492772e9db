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
/// relative_error (evaluate.h) of as many elements of that type as the reference has. An infinity
/// of f16 or bf16 that is not one in both counts as the type's largest value: near that end the
/// last rounding decides. On all cores.
double relative_error(DType type, const void* got, std::span<const double> reference);

/// Elements beside a reference and what each may be off by (rounding.h).
struct Comparison {
  double relative_error = 0;  ///< max |got - reference| / max |reference|, as relative_error
  double tolerance = 0;       ///< max bound / max |reference|
  double worst = 0;           ///< max |got - reference| / bound: right up to 1
  std::int64_t element = 0;   ///< where that is, row-major, and what stands there
  double got = 0, reference = 0, bound = 0;
  /// Elements whose bound is more than kUnseen of the larger of |reference| and the root mean
  /// square of all: a wrong value may pass for a right one. None where the reference is zero
  /// throughout (x - x) and bounds are finite.
  std::int64_t unseen = 0;
  /// Those of the unseen where both are NaN, as a negative number's root.
  std::int64_t undefined = 0;
};
inline constexpr double kUnseen = 0.25;
/// All are of one length. Infinite errors where an element or its reference, but not both, is no
/// finite number; an infinite bound is met by every finite element, and counted in `unseen`. On all
/// cores.
Comparison compare(DType type, const void* got, std::span<const double> reference,
                   std::span<const double> bounds);

}  // namespace tilewright
