// E[m,n] = (A[m,k] B[k,l]) D[l,n] of f16, m = l = 512, k = n = 64: a block has 64 rows of A and E; a
// warp copies B and D by 64 of l, four warps multiply, the intermediate staying in registers.
#include "tilewright_device.h"

constexpr int kL = 512, kK = 64, kN = 64, kStep = 64, kStages = 2;
constexpr int kTile = 64 * 64 * 2;

TW_DEVICE int piece(int row, int column) { return row * 128 + (column ^ (row % 8)) * 16; }

TW_DEVICE void copy_tile(unsigned char* to, const tw::f16* from, int stride) {
  for (int i = threadIdx.x % 32; i < 512; i += 32)
    tw::cp_async16(to + piece(i / 8, i % 8), from + i / 8 * stride + i % 8 * 8, 16);
}

// d[16 x 64] += a[16 x 64] in registers * b[64 x 64] in shared memory.
TW_DEVICE void multiply(float (&d)[8][4], const tw::u32 (&a)[4][4], const unsigned char* b, int lane) {
  TW_UNROLL
  for (int k = 0; k < 4; ++k) {
    TW_UNROLL
    for (int j = 0; j < 4; ++j) {
      tw::u32 r[4];
      tw::ldmatrix4_transposed(r, b + piece(k * 16 + lane % 16, j * 2 + lane / 16));
      tw::mma_16x8x16<tw::f16>(d[2 * j], a[k], r[0], r[1]);
      tw::mma_16x8x16<tw::f16>(d[2 * j + 1], a[k], r[2], r[3]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(160)
    chain(const tw::f16* a, const tw::f16* b, const tw::f16* d, tw::f16* e) {
  TW_SHARED(memory);
  tw::u64* const full = reinterpret_cast<tw::u64*>(memory + (1 + 2 * kStages) * kTile);
  tw::u64* const empty = full + kStages;
  tw::u64* const first = empty + kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      tw::mbarrier_init(&full[i], 32);
      tw::mbarrier_init(&empty[i], 4);
    }
    tw::mbarrier_init(first, 32);
  }
  tw::block_sync();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp == 4) {
    copy_tile(memory, a + blockIdx.x * 64 * kK, kK);
    tw::mbarrier_arrive_after_copies(first);
    for (int step = 0; step < kL / kStep; ++step) {
      const int stage = step % kStages, round = step / kStages;
      tw::mbarrier_wait(&empty[stage], (round & 1) ^ 1);
      copy_tile(memory + (1 + 2 * stage) * kTile, b + step * kStep, kL);
      copy_tile(memory + (2 + 2 * stage) * kTile, d + step * kStep * kN, kN);
      tw::mbarrier_arrive_after_copies(&full[stage]);
    }
    return;
  }
  tw::mbarrier_wait(first, 0);
  tw::u32 left[4][4];
  TW_UNROLL
  for (int k = 0; k < 4; ++k)
    tw::ldmatrix4(left[k], memory + piece(warp * 16 + lane % 16, k * 2 + lane / 16));
  float sums[8][4] = {};
  for (int step = 0; step < kL / kStep; ++step) {
    const int stage = step % kStages, round = step / kStages;
    tw::mbarrier_wait(&full[stage], round & 1);
    float c[8][4] = {};
    multiply(c, left, memory + (1 + 2 * stage) * kTile, lane);
    tw::u32 middle[4][4];  // sums of one product are laid out as the left operand of the next
    TW_UNROLL
    for (int k = 0; k < 4; ++k)
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        middle[k][2 * h] = tw::Packed<tw::f16>::of(c[2 * k + h][0], c[2 * k + h][1]);
        middle[k][2 * h + 1] = tw::Packed<tw::f16>::of(c[2 * k + h][2], c[2 * k + h][3]);
      }
    multiply(sums, middle, memory + (2 + 2 * stage) * kTile, lane);
    tw::warp_sync();
    if (lane == 0) tw::mbarrier_arrive(&empty[stage]);
  }
  TW_UNROLL
  for (int j = 0; j < 8; ++j) {
    tw::f16* const row = e + (blockIdx.x * 64 + warp * 16 + lane / 4) * kN + j * 8 + lane % 4 * 2;
    tw::store_global(reinterpret_cast<tw::u32*>(row), tw::Packed<tw::f16>::of(sums[j][0], sums[j][1]));
    tw::store_global(reinterpret_cast<tw::u32*>(row + 8 * kN), tw::Packed<tw::f16>::of(sums[j][2], sums[j][3]));
  }
}
