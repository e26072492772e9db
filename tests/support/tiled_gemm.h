// The tiled GEMM that the golden counts of the simulator are of.
#pragma once

#include <cstdint>

namespace tilewright::testing {

/// GEMM 512^3, fp32, tiles of 64, loops ii jj kk i k j; A at 0x10000000, B and C after it, 512 rows
/// of `leading` elements each. Calls row(a, b, c) for each i and k: addresses of A[i][k] and of the
/// first of 64 elements of B[k] and C[i]. 404,750,336 accesses: a load of A; for each j of B and C,
/// a store of C.
template <class Row>
void tiled_gemm(std::int64_t leading, Row&& row) {
  constexpr std::int64_t n = 512, tile = 64, element = 4, arena = 0x10000000;
  const auto at = [leading](std::int64_t matrix, std::int64_t r, std::int64_t c) {
    return arena + (matrix * n * leading + r * leading + c) * element;
  };
  for (std::int64_t ii = 0; ii < n; ii += tile)
    for (std::int64_t jj = 0; jj < n; jj += tile)
      for (std::int64_t kk = 0; kk < n; kk += tile)
        for (std::int64_t i = ii; i < ii + tile; ++i)
          for (std::int64_t k = kk; k < kk + tile; ++k)
            row(at(0, i, k), at(1, k, jj), at(2, i, jj));
}

}  // namespace tilewright::testing
