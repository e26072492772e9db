// Boxes, mbarriers that count bytes and products of a warpgroup: right, and with one thing wrong.
#include "tilewright_hopper.h"

using namespace tw;

enum Wrong { kNothing, kNoWait, kNotKnown, kFewBytes, kBetween, kNoFence, kNoBegin, kOffset };
#define KERNEL(NAME, THREADS) extern "C" __global__ void __launch_bounds__(THREADS) NAME

// Two phases of one mbarrier: a box from before the tensor's beginning, and one past its end.
template <Wrong wrong>
TW_DEVICE void boxes(u32* out, const TensorMap& in) {
  TW_SHARED(memory);
  u64* const full = reinterpret_cast<u64*>(memory + 2048);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    if (wrong != kNotKnown) mbarriers_made();
  }
  block_sync();
  for (int phase = 0; phase < 2; ++phase) {
    if (threadIdx.x == 0) {
      mbarrier_arrive_expecting(full, wrong == kFewBytes ? 1024 : 2048);
      load_box(memory, in, full, phase * (wrong == kBetween ? 52 : 56) - 8, phase * 18 - 4, 1);
    }
    if (wrong != kNoWait) mbarrier_wait(full, phase);
    for (int i = threadIdx.x; i < 512; i += 32)
      store_global(out + phase * 512 + i, reinterpret_cast<const u32*>(memory)[i]);
    block_sync();
  }
}
KERNEL(boxes_right, 32)(u32* out, TW_TENSOR_MAP(in)) { boxes<kNothing>(out, in); }
KERNEL(boxes_no_wait, 32)(u32* out, TW_TENSOR_MAP(in)) { boxes<kNoWait>(out, in); }
KERNEL(boxes_not_known, 32)(u32* out, TW_TENSOR_MAP(in)) { boxes<kNotKnown>(out, in); }
KERNEL(boxes_few_bytes, 32)(u32* out, TW_TENSOR_MAP(in)) { boxes<kFewBytes>(out, in); }
KERNEL(boxes_between, 32)(u32* out, TW_TENSOR_MAP(in)) { boxes<kBetween>(out, in); }

// Every second point of two lines of the second image, from before its beginning on: of images, or by an
// instruction of three dimensions.
template <bool Images>
TW_DEVICE void points(u32* out, const TensorMap& in) {
  TW_SHARED(memory);
  u64* const full = reinterpret_cast<u64*>(memory + 1024);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarriers_made();
    mbarrier_arrive_expecting(full, 768);
    if (Images) load_box_of_images(memory, in, full, 0, -1, 4, 0, 1);
    else load_box(memory, in, full, 0, -1, 4);
  }
  block_sync();
  mbarrier_wait(full, 0);
  for (int i = threadIdx.x; i < 192; i += 32) store_global(out + i, reinterpret_cast<const u32*>(memory)[i]);
}
KERNEL(points_right, 32)(u32* out, TW_TENSOR_MAP(in)) { points<true>(out, in); }
KERNEL(points_of_three, 32)(u32* out, TW_TENSOR_MAP(in)) { points<false>(out, in); }

// Every word of a box is its number; the box reaches past the tensor's end.
template <Wrong wrong>
TW_DEVICE void stored(const TensorMap& out) {
  TW_SHARED(memory);
  for (int i = threadIdx.x; i < 512; i += 32) reinterpret_cast<u32*>(memory)[i] = i;
  if (wrong != kNoFence) shared_for_async();
  block_sync();
  if (threadIdx.x == 0) {
    store_box(out, memory, 40, 10, 0);
    store_boxes_commit();
    if (wrong != kNoWait) store_boxes_read<0>();
  }
}
KERNEL(stored_right, 32)(TW_TENSOR_MAP(out)) { stored<kNothing>(out); }
KERNEL(stored_no_fence, 32)(TW_TENSOR_MAP(out)) { stored<kNoFence>(out); }
KERNEL(stored_no_wait, 32)(TW_TENSOR_MAP(out)) { stored<kNoWait>(out); }

// What stmatrix writes, transposed, ldmatrix brings back, transposed.
extern "C" __global__ void __launch_bounds__(32) matrices(u32* out) {
  TW_SHARED(memory);
  const u32 lane = threadIdx.x, mine[4] = {lane, lane + 100, lane + 200, lane + 300};
  void* const row = memory + lane * 16;
  stmatrix4_transposed(row, mine);
  warp_sync();
  if (lane < 8) {  // the first matrix's column, which is a row here
    store_global(out + 128 + lane, reinterpret_cast<const u32*>(row)[0]);
  }
  u32 back[4];
  ldmatrix4_transposed(back, row);
  for (int i = 0; i < 4; ++i) store_global(out + lane * 4 + i, back[i]);
}

// 64 x 64 sums over a depth of 64.
template <bool A_across, bool B_across, Wrong wrong>
TW_DEVICE void multiplied(float* out, const TensorMap& a, const TensorMap& b) {
  TW_SHARED(memory);
  u64* const full = reinterpret_cast<u64*>(memory + 16384 + 2048);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarriers_made();
    mbarrier_arrive_expecting(full, 16384);
    load_box(memory, a, full, 0, 0, 0);
    load_box(memory + 8192, b, full, 0, 0, 0);
  }
  block_sync();
  mbarrier_wait(full, 0);
  float d[32];
  const u64 left = operand_at(memory + (wrong == kOffset ? 128 : 0), 8192),
            right = operand_at(memory + 8192, 8192);
  if (wrong != kNoBegin) wgmma_begin();
  for (int q = 0; q < 4; ++q)
    Wgmma<64>::multiply<f16, A_across, B_across>(d, left + q * (A_across ? 128 : 2),
                                                 right + q * (B_across ? 128 : 2), q > 0);
  wgmma_commit();
  if (wrong != kNoWait) wgmma_wait<0>();
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  for (int j = 0; j < 8; ++j)
    for (int e = 0; e < 4; ++e)
      store_global(out + (warp * 16 + g + e / 2 * 8) * 64 + j * 8 + t + e % 2, d[4 * j + e]);
}
#define MULTIPLIED(NAME, A, B, WRONG)                                                  \
  KERNEL(NAME, 128)(float* out, TW_TENSOR_MAP(a), TW_TENSOR_MAP(b)) { \
    multiplied<A, B, WRONG>(out, a, b);                                                \
  }
MULTIPLIED(multiplied_00, false, false, kNothing)
MULTIPLIED(multiplied_01, false, true, kNothing)
MULTIPLIED(multiplied_10, true, false, kNothing)
MULTIPLIED(multiplied_11, true, true, kNothing)
MULTIPLIED(multiplied_no_wait, false, false, kNoWait)
MULTIPLIED(multiplied_no_begin, false, false, kNoBegin)
MULTIPLIED(multiplied_offset, false, false, kOffset)

// A cluster's blocks write 16 bytes a thread, twice, and read what the next block's thread wrote.
enum Missing { kNone, kBeforeRead, kAfterRead, kAtEnd, kRank, kUnwritten };
template <Missing missing>
TW_DEVICE void passed_on(u32* out) {
  TW_SHARED(memory);
  b128* const mine = reinterpret_cast<b128*>(memory) + threadIdx.x;
  for (u32 turn = 0; turn < 2; ++turn) {
    const u32 word = blockIdx.x * 1000 + threadIdx.x * 10 + turn;
    if (missing != kUnwritten || blockIdx.x > 0) *mine = b128{word, word, word, word};
    if (missing != kBeforeRead) cluster_sync();
    const b128 v = load_of_block(mine, missing == kRank ? 3 : (blockIdx.x % 3 + 1) % 3);
    store_global(out + (blockIdx.x * 2 + turn) * 32 + threadIdx.x, v.z);
    if (missing != kAfterRead && (missing != kAtEnd || turn == 0)) cluster_sync();
  }
}
KERNEL(cluster_right, 32)(u32* out) { passed_on<kNone>(out); }
KERNEL(cluster_before, 32)(u32* out) { passed_on<kBeforeRead>(out); }
KERNEL(cluster_after, 32)(u32* out) { passed_on<kAfterRead>(out); }
KERNEL(cluster_end, 32)(u32* out) { passed_on<kAtEnd>(out); }
KERNEL(cluster_rank, 32)(u32* out) { passed_on<kRank>(out); }
KERNEL(cluster_unwritten, 32)(u32* out) { passed_on<kUnwritten>(out); }

// Block 0 of a cluster of two copies a box to both, twice; each block says when it has read it.
enum Lacks { kAll, kBegin, kEnd, kGiveBack, kMask, kPeer };
template <Lacks lacks>
TW_DEVICE void delivered(u32* out, const TensorMap& in) {
  TW_SHARED(memory);
  u64 *const full = reinterpret_cast<u64*>(memory + 2048), *const empty = full + 1;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 2);
    mbarriers_made();
  }
  if (lacks != kBegin) cluster_sync();
  block_sync();
  for (u32 turn = 0; turn < 2; ++turn) {
    if (threadIdx.x == 0) {
      if (lacks != kGiveBack) {
        if (blockIdx.x == 0) mbarrier_wait(empty, turn ^ 1);
      }
      mbarrier_arrive_expecting(full, 2048);
      if (blockIdx.x == 0) load_box_for(memory, in, full, 0, 0, turn, lacks == kMask ? 5 : 3);
    }
    mbarrier_wait(full, turn);
    for (int i = threadIdx.x; i < 512; i += 32)
      store_global(out + (blockIdx.x * 2 + turn) * 512 + i, reinterpret_cast<const u32*>(memory)[i]);
    block_sync();
    if (threadIdx.x == 0) mbarrier_arrive_of_block(empty, lacks == kPeer ? 2 : 0);
  }
  if (lacks != kEnd) cluster_sync();
}
#define DELIVERED(NAME, LACKS) \
  KERNEL(NAME, 32)(u32* out, TW_TENSOR_MAP(in)) { delivered<LACKS>(out, in); }
DELIVERED(delivered_right, kAll)
DELIVERED(delivered_begin, kBegin)
DELIVERED(delivered_end, kEnd)
DELIVERED(delivered_give_back, kGiveBack)
DELIVERED(delivered_mask, kMask)
DELIVERED(delivered_peer, kPeer)
