// C[m,n] = A[m,k] B[k,n] of f16 in f32, blocks of 64x64: a producer warp copies tiles of 64x32 and
// 32x64 into a ring of stages, four consumer warps multiply them. m and n multiples of 64, k of 32.
#include "tilewright_device.h"

constexpr int kStages = 3, kM = 64, kN = 64, kK = 32;
constexpr int kA = kM * kK * 2, kB = kK * kN * 2, kStage = kA + kB;

// Faults to plant, one at a time.
enum { kNone, kNoFullWait, kNoEmptyWait, kNoArrive, kWrongParity };

// Rows of 16-byte pieces, exchanged so that eight rows of one column lie in different banks.
TW_DEVICE int piece(int row, int column, int pieces) {
  return (row * pieces + (column ^ (row % pieces))) * 16;
}

template <int Fault>
TW_DEVICE void produce(unsigned char* memory, const tw::f16* a, const tw::f16* b, int n, int k,
                       int row, int column, tw::u64* full, tw::u64* empty) {
  const int lane = threadIdx.x % 32;
  for (int step = 0; step < k / kK; ++step) {
    const int stage = step % kStages, round = step / kStages;
    if (Fault != kNoEmptyWait) tw::mbarrier_wait(&empty[stage], (round & 1) ^ 1);  // wait empty
    unsigned char* const tile = memory + stage * kStage;
    for (int i = lane; i < kM * 4; i += 32)
      tw::cp_async16(tile + piece(i / 4, i % 4, 4), a + (row + i / 4) * k + step * kK + i % 4 * 8, 16);  // copy A
    for (int i = lane; i < kK * 8; i += 32)
      tw::cp_async16(tile + kA + piece(i / 8, i % 8, 8), b + (step * kK + i / 8) * n + column + i % 8 * 8, 16);
    tw::mbarrier_arrive_after_copies(&full[stage]);
  }
}

template <int Fault>
TW_DEVICE void consume(unsigned char* memory, tw::f16* c, int n, int k, int row, int column,
                       tw::u64* full, tw::u64* empty) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sums[8][4] = {};
  for (int step = 0; step < k / kK; ++step) {
    const int stage = step % kStages, round = step / kStages;
    if (Fault != kNoFullWait) tw::mbarrier_wait(&full[stage], (round & 1) ^ (Fault == kWrongParity));  // wait full
    unsigned char* const tile = memory + stage * kStage;
    TW_UNROLL
    for (int kk = 0; kk < kK / 16; ++kk) {
      tw::u32 left[4];
      tw::ldmatrix4(left, tile + piece(warp * 16 + lane % 16, kk * 2 + lane / 16, 4));  // read A
      TW_UNROLL
      for (int j = 0; j < 4; ++j) {
        tw::u32 right[4];
        tw::ldmatrix4_transposed(right, tile + kA + piece(kk * 16 + lane % 16, j * 2 + lane / 16, 8));
        tw::mma_16x8x16<tw::f16>(sums[2 * j], left, right[0], right[1]);
        tw::mma_16x8x16<tw::f16>(sums[2 * j + 1], left, right[2], right[3]);
      }
    }
    if (Fault != kNoArrive) tw::mbarrier_arrive(&empty[stage]);
  }
  // Through shared memory, so that rows are written whole.
  tw::barrier(1, 128);
  unsigned char* const tile = memory;
  TW_UNROLL
  for (int j = 0; j < 8; ++j) {
    const int at = (warp * 16 + lane / 4) * kN + j * 8 + lane % 4 * 2;
    *reinterpret_cast<tw::u32*>(tile + 2 * at) = tw::Packed<tw::f16>::of(sums[j][0], sums[j][1]);
    *reinterpret_cast<tw::u32*>(tile + 2 * (at + 8 * kN)) = tw::Packed<tw::f16>::of(sums[j][2], sums[j][3]);
  }
  tw::warp_sync();
  for (int i = lane; i < 16 * 8; i += 32) {
    const tw::b128 x = *reinterpret_cast<const tw::b128*>(tile + (warp * 16 + i / 8) * 128 + i % 8 * 16);
    tw::store_global(reinterpret_cast<tw::b128*>(c + (row + warp * 16 + i / 8) * n + column + i % 8 * 8), x);
  }
}

template <int Fault>
TW_DEVICE void gemm(const tw::f16* a, const tw::f16* b, tw::f16* c, const int* sizes) {
  TW_SHARED(memory);
  const int n = tw::load_global(sizes), k = tw::load_global(sizes + 1);
  tw::u64* const full = reinterpret_cast<tw::u64*>(memory + kStages * kStage);
  tw::u64* const empty = full + kStages;
  if (threadIdx.x == 0)
    for (int i = 0; i < kStages; ++i) {
      tw::mbarrier_init(&full[i], 32);
      tw::mbarrier_init(&empty[i], 128);
    }
  tw::block_sync();
  const int row = blockIdx.x / (n / kN) * kM, column = blockIdx.x % (n / kN) * kN;
  if (threadIdx.x >= 128)
    produce<Fault>(memory, a, b, n, k, row, column, full, empty);
  else
    consume<Fault>(memory, c, n, k, row, column, full, empty);
}

#define KERNEL(NAME, FAULT)                                                                     \
  extern "C" __global__ void __launch_bounds__(160)                                             \
      NAME(const tw::f16* a, const tw::f16* b, tw::f16* c, const int* sizes) {                  \
    gemm<FAULT>(a, b, c, sizes);                                                                \
  }
KERNEL(gemm_right, kNone)
KERNEL(gemm_no_full_wait, kNoFullWait)
KERNEL(gemm_no_empty_wait, kNoEmptyWait)
KERNEL(gemm_no_arrive, kNoArrive)
KERNEL(gemm_wrong_parity, kWrongParity)
