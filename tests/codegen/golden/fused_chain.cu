// gemm-chain for scratchpad_232448B, emitted by Tilewright.
//   nvcc -std=c++17 -I . -gencode arch=compute_90a,code=sm_90a -cubin gemm-chain.cu
//
// gemm1: C[m,l] += A[m,k] * B[k,l]
// relu: C1[m,l] = relu(C[m,l])
// gemm2: E[m,n] += C1[m,l] * D[l,n]
// over m < 512, n < 64, k < 64, l < 512
//
// kernel 0: m/64@grid ( L.A@L1 l/64 ( L.B@L1 C.gemm1 C.relu L.D@L1 C.gemm2 ) S.E@DRAM )
//
// Tiles:
//   A at L1: shared, 8192 bytes (copied once)
//   B at L1: shared, 16384 bytes in 2 stages (copied ahead of its use)
//   D at L1: shared, 16384 bytes in 2 stages (copied ahead of its use)
//   C at L1: registers (its sums stay with the warps that make them)
//   C1 at L1: registers (its sums stay with the warps that make them)
//   E at L1: registers (its sums stay with the warps that make them)
// Matrix products run on micro-kernels mma.
// Launches, in order:
//   chain_0<<<8, 256, 41088>>>
#include "tilewright_products.h"

using namespace tw;

// m/64@grid ( L.A@L1 l/64 ( L.B@L1 C.gemm1 C.relu L.D@L1 C.gemm2 ) S.E@DRAM )
extern "C" __global__ void __launch_bounds__(256) chain_0(const f16* A_home, const f16* B_home, const f16* D_home, f16* E_home) {
  TW_SHARED(memory);
  const int thread = threadIdx.x, warp = thread / 32;
  using A_tile_layout = Tile<f16, 64, 64, 64, true>;
  f16* const A_tile_data = reinterpret_cast<f16*>(memory_begin + made_here(128));
  u64* const A_tile_barriers = reinterpret_cast<u64*>(memory_begin + made_here(0));
  using B_tile_layout = Tile<f16, 64, 64, 64, true>;
  f16* const B_tile_data = reinterpret_cast<f16*>(memory_begin + made_here(8320));
  u64* const B_tile_barriers = reinterpret_cast<u64*>(memory_begin + made_here(16));
  using D_tile_layout = Tile<f16, 64, 64, 64, true>;
  f16* const D_tile_data = reinterpret_cast<f16*>(memory_begin + made_here(24704));
  u64* const D_tile_barriers = reinterpret_cast<u64*>(memory_begin + made_here(48));
  float* const scratch = reinterpret_cast<float*>(memory_begin + made_here(41088));
  (void)scratch;
  if (thread == 0) {
    start_ring<1>(A_tile_barriers, 128, 4); start_ring<2>(B_tile_barriers, 128, 4); start_ring<2>(D_tile_barriers, 128, 4);
  }
  block_sync();
  if (warp >= 4) {
    // Copying warps: every tile that is loaded, as soon as there is room for it.
    const int copier = thread - 128;
    const int block = blockIdx.x;
    (void)block;
    Ring<2, 1> A_tile_ring{A_tile_barriers};
    Ring<2, 2> B_tile_ring{B_tile_barriers};
    Ring<2, 2> D_tile_ring{D_tile_barriers};
    const int i_m = block;
    const int l_m = i_m * 64;
    if (l_m < 512) {
      // L.A
      const Box<2> A_box = Box<2>{{{l_m, l_m + 64}, {0, 64}}};
      if (A_tile_ring.needs(A_box)) {
        A_tile_ring.fill(A_box);
        copy_whole<128, 64>(A_tile_layout{A_tile_data + A_tile_ring.stage * 4096}, copier, A_home + i64(l_m) * 64);
        A_tile_ring.copies_started();
      }
      TW_NO_UNROLL
      for (int l_l = 0; l_l < 512; l_l += 64) {
        // L.B
        const Box<2> B_box = Box<2>{{{0, 64}, {l_l, l_l + 64}}};
        if (B_tile_ring.needs(B_box)) {
          B_tile_ring.fill(B_box);
          copy_whole<128, 512>(B_tile_layout{B_tile_data + B_tile_ring.stage * 4096}, copier, B_home + i64(l_l));
          B_tile_ring.copies_started();
        }
        // L.D
        const Box<2> D_box = Box<2>{{{l_l, l_l + 64}, {0, 64}}};
        if (D_tile_ring.needs(D_box)) {
          D_tile_ring.fill(D_box);
          copy_whole<128, 64>(D_tile_layout{D_tile_data + D_tile_ring.stage * 4096}, copier, D_home + i64(l_l) * 64);
          D_tile_ring.copies_started();
        }
      }
    }
    return;
  }
  const Place me{warp / 1, warp % 1, thread % 32};
  (void)me;
  const int block = blockIdx.x;
  (void)block;
  Ring<2, 1> A_tile_ring{A_tile_barriers};
  Ring<2, 2> B_tile_ring{B_tile_barriers};
  Ring<2, 2> D_tile_ring{D_tile_barriers};
  Sums<1, 8> C_tile;
  Sums<1, 8> C1_tile;
  Sums<1, 8> E_tile;
  const int i_m = block;
  const int l_m = i_m * 64;
  if (l_m < 512) {
    // L.A
    const Box<2> A_box = Box<2>{{{l_m, l_m + 64}, {0, 64}}};
    if (A_tile_ring.needs(A_box)) A_tile_ring.take(A_box, me.lane);
    TW_NO_UNROLL
    for (int l_l = 0; l_l < 512; l_l += 64) {
      // L.B
      const Box<2> B_box = Box<2>{{{0, 64}, {l_l, l_l + 64}}};
      if (B_tile_ring.needs(B_box)) B_tile_ring.take(B_box, me.lane);
      // C.gemm1: C[m,l] += A[m,k] * B[k,l]
      {
        fill(C_tile, 0);
        Mma<f16>::template multiply<64>(C_tile, AlongDepth<A_tile_layout>{A_tile_layout{A_tile_data + A_tile_ring.stage * 4096}, 0, 0}, AcrossDepth<B_tile_layout>{B_tile_layout{B_tile_data + B_tile_ring.stage * 4096}, 0, 0}, me, 0);
      }
      // C.relu: C1[m,l] = relu(C[m,l])
      {
        each<1, 8>(me, 0, [&](int i, int j, int e, int r, int c) {
          (void)i, (void)j, (void)e, (void)r, (void)c;
          const float x0 = C_tile.x[i][j][e];
          C1_tile.x[i][j][e] = f_relu(x0);
        });
      }
      // L.D
      const Box<2> D_box = Box<2>{{{l_l, l_l + 64}, {0, 64}}};
      if (D_tile_ring.needs(D_box)) D_tile_ring.take(D_box, me.lane);
      // C.gemm2: E[m,n] += C1[m,l] * D[l,n]
      {
        if (l_l == 0) fill(E_tile, 0);
        Mma<f16>::multiply_sums(E_tile, C1_tile, AcrossDepth<D_tile_layout>{D_tile_layout{D_tile_data + D_tile_ring.stage * 4096}, 0, 0}, me, 0, 0);
      }
    }
    // S.E
    write_sums<f16, true>(E_tile, me, 0, 64, [&](int r) -> f16* { return there_if(r < 64, E_home + i64(l_m) * 64 + i64(r) * 64); });
  }
}

