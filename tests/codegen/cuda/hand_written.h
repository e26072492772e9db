// A CUDA source written by hand over device/tilewright_device.h: what the run time is tried on
// apart from the emitter. C[m,n] = A[m,k] B[k,n] of f16, a 16x16 tile a block, sums in float.
#pragma once

#include "codegen/cuda/cuda.h"

namespace tilewright::cuda::test {

inline constexpr const char* kGemmText = R"cuda(#include "tilewright_device.h"

extern "C" __global__ void __launch_bounds__(256)
gemm(const tw::f16* A, const tw::f16* B, tw::f16* C) {
  TW_SHARED(shared);
  tw::f16* a = reinterpret_cast<tw::f16*>(shared);
  tw::f16* b = a + 16 * 16;
  const int tiles = (N_EXTENT + 15) / 16;
  const int i = threadIdx.x / 16, j = threadIdx.x % 16;
  const int row = blockIdx.x / tiles * 16 + i, column = blockIdx.x % tiles * 16 + j;
  float sum = 0;
  for (int k0 = 0; k0 < K_EXTENT; k0 += 16) {
    const bool left = row < M_EXTENT && k0 + j < K_EXTENT;
    const bool right = k0 + i < K_EXTENT && column < N_EXTENT;
    a[i * 16 + j] = left ? tw::load_global(A + row * K_EXTENT + k0 + j) : tw::Rounded<tw::f16>::of(0);
    b[i * 16 + j] =
        right ? tw::load_global(B + (k0 + i) * N_EXTENT + column) : tw::Rounded<tw::f16>::of(0);
    tw::block_sync();
    for (int k = 0; k < 16; ++k) sum += tw::to_float(a[i * 16 + k]) * tw::to_float(b[k * 16 + j]);
    tw::block_sync();
  }
  if (row < M_EXTENT && column < N_EXTENT)
    tw::store_global(C + row * N_EXTENT + column, tw::Rounded<tw::f16>::of(sum));
}
)cuda";

/// Tensors A, B and C are 0, 1 and 2, as in the built-in workload gemm.
inline Source hand_written_gemm(int m, int n, int k) {
  const auto define = [](const char* name, int value) {
    return std::string("#define ") + name + " " + std::to_string(value) + "\n";
  };
  Source s;
  s.file_name = "gemm.cu";
  s.text = define("M_EXTENT", m) + define("N_EXTENT", n) + define("K_EXTENT", k) + kGemmText;
  s.prefix = "gemm";
  s.needed = {true, true, true};
  s.launches = {{.symbol = "gemm",
                 .tensors = {TensorId(0), TensorId(1), TensorId(2)},
                 .blocks = std::int64_t{(m + 15) / 16} * ((n + 15) / 16),
                 .threads = 256,
                 .shared_bytes = 2 * 16 * 16 * 2}};
  return s;
}

}  // namespace tilewright::cuda::test
