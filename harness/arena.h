// Where buffers lie that are not all needed at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tilewright::harness {

/// A buffer that is needed from step `first` to step `last`, both included.
struct Lifetime {
  std::int64_t bytes = 0;
  std::size_t first = 0, last = 0;
};

struct Arena {
  std::vector<std::int64_t> offsets;  ///< by buffer: multiples of 64
  std::int64_t bytes = 0;
};

/// Places buffers so that no two that are needed in one step overlap: the largest first, each at
/// the least offset that is free during its life. At most as large as all of them together. Cost:
/// quadratic in buffers.
Arena placed(std::span<const Lifetime> buffers);

}  // namespace tilewright::harness
