// How Hopper's TMA unit copies a tensor: in boxes whose rows are 128 bytes, swizzled in shared
// memory. What a CUtensorMap is made of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/workload/workload.h"

namespace tilewright::lowering {

struct BoxMap {
  static constexpr std::size_t kMost = 5;  ///< dimensions
  using Sizes = std::array<std::int64_t, kMost>;
  TensorId tensor;
  DType type = DType::f16;
  int rank = 3;                   ///< of the kernel's copies; dimensions beyond the tensor's are one
  Sizes extent{1, 1, 1, 1, 1};    ///< elements, the innermost dimension first
  Sizes stride{2, 2, 2, 2, 2};    ///< bytes between neighbours; the first: an element's
  Sizes box{1, 1, 1, 1, 1};       ///< elements from the first that it takes to the last
  Sizes steps{1, 1, 1, 1, 1};     ///< of which it takes every so manieth
  friend bool operator==(const BoxMap&, const BoxMap&) = default;

  /// That a box has along a dimension.
  std::int64_t taken(std::size_t d) const { return (box[d] + steps[d] - 1) / steps[d]; }
  /// Of 128 bytes, in shared memory.
  std::int64_t rows() const { return taken(1) * taken(2) * taken(3) * taken(4); }
};

}  // namespace tilewright::lowering
