// How Hopper's TMA unit copies a tensor: as one of three dimensions, in boxes of two of them whose
// rows are 128 bytes, swizzled in shared memory. What a CUtensorMap is made of.
#pragma once

#include <array>
#include <cstdint>

#include "core/workload/workload.h"

namespace tilewright::lowering {

struct BoxMap {
  TensorId tensor;
  DType type = DType::f16;
  std::array<std::int64_t, 3> extent{1, 1, 1};  ///< elements, the innermost dimension first
  std::array<std::int64_t, 3> stride{2, 2,
                                     2};  ///< bytes between neighbours; the first: an element's
  std::array<int, 2> box{1, 1};           ///< elements; one of the third dimension
  friend bool operator==(const BoxMap&, const BoxMap&) = default;
};

}  // namespace tilewright::lowering
