// One kernel a kind of fault: each with what is wrong planted (true) and without (false). Lines that a
// finding should name end in a comment of their own.
#include "tilewright_device.h"

#define BOTH(NAME, THREADS, PARAMETERS, ARGUMENTS)                                                    \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME##_right PARAMETERS { NAME<false> ARGUMENTS; } \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME##_wrong PARAMETERS { NAME<true> ARGUMENTS; }

// Each thread reads what the next one wrote.
template <bool Wrong>
TW_DEVICE void missing_barrier(const float* in, float* out) {
  TW_SHARED(memory);
  float* const x = reinterpret_cast<float*>(memory);
  x[threadIdx.x] = tw::load_global(in + threadIdx.x);  // barrier: write
  if (!Wrong) tw::block_sync();
  tw::store_global(out + threadIdx.x, x[(threadIdx.x + 1) % blockDim.x]);  // barrier: read
}
BOTH(missing_barrier, 64, (const float* in, float* out), (in, out))

// The same between the lanes of a warp, and a write after the read.
template <bool Wrong>
TW_DEVICE void missing_warp_sync(const float* in, float* out) {
  TW_SHARED(memory);
  float* const x = reinterpret_cast<float*>(memory);
  x[threadIdx.x] = tw::load_global(in + threadIdx.x);
  tw::warp_sync();
  const float next = x[threadIdx.x ^ 1];  // warp: read
  if (!Wrong) tw::warp_sync();
  x[threadIdx.x] = next + 1;  // warp: write
  tw::store_global(out + threadIdx.x, x[threadIdx.x]);
}
BOTH(missing_warp_sync, 32, (const float* in, float* out), (in, out))

// The second warp reads, and the first, which runs after it, writes over what was read.
template <bool Wrong>
TW_DEVICE void written_too_early(const float* in, float* out) {
  TW_SHARED(memory);
  float* const x = reinterpret_cast<float*>(memory);
  if (threadIdx.x < 32) x[threadIdx.x] = tw::load_global(in + threadIdx.x);
  tw::block_sync();
  if (threadIdx.x >= 32) tw::store_global(out + threadIdx.x % 32, x[threadIdx.x % 32]);  // early: read
  if (!Wrong) tw::block_sync();
  if (threadIdx.x < 32) x[threadIdx.x] = 0;  // early: write
}
BOTH(written_too_early, 64, (const float* in, float* out), (in, out))

// A shuffle makes lanes meet, but orders no memory.
template <bool Wrong>
TW_DEVICE void shuffle_is_no_barrier(const float* in, float* out) {
  TW_SHARED(memory);
  float* const x = reinterpret_cast<float*>(memory);
  x[threadIdx.x] = tw::load_global(in + threadIdx.x);  // shuffle: write
  const float sum = tw::shuffle_xor(1.0f, 16);
  if (!Wrong) tw::warp_sync();
  tw::store_global(out + threadIdx.x, sum * x[threadIdx.x ^ 1]);  // shuffle: read
}
BOTH(shuffle_is_no_barrier, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void missing_wait(const float* in, float* out) {
  TW_SHARED(memory);
  const float* const x = reinterpret_cast<const float*>(memory);
  tw::cp_async16(memory + 16 * threadIdx.x, in + 4 * threadIdx.x, 16);  // wait: copy
  tw::cp_async_commit();
  tw::cp_async16(memory + 1024 + 16 * threadIdx.x, in + 4 * threadIdx.x, 16);
  tw::cp_async_commit();
  tw::cp_async_wait<Wrong ? 2 : 1>();
  tw::store_global(out + threadIdx.x, x[4 * threadIdx.x]);  // wait: read
  tw::cp_async_wait<0>();
}
BOTH(missing_wait, 32, (const float* in, float* out), (in, out))

// cp_async_wait is for the copies of the thread that waits; others need a barrier after it.
template <bool Wrong>
TW_DEVICE void wait_is_ones_own(const float* in, float* out) {
  TW_SHARED(memory);
  const float* const x = reinterpret_cast<const float*>(memory);
  tw::cp_async16(memory + 16 * threadIdx.x, in + 4 * threadIdx.x, 16);  // own: copy
  tw::cp_async_commit();
  if (Wrong) tw::block_sync();
  tw::cp_async_wait<0>();
  if (!Wrong) tw::block_sync();
  tw::store_global(out + threadIdx.x, x[4 * (threadIdx.x ^ 32)]);  // own: read
}
BOTH(wait_is_ones_own, 64, (const float* in, float* out), (in, out))

// What is still being copied is written.
template <bool Wrong>
TW_DEVICE void source_written(float* in, float* out) {
  TW_SHARED(memory);
  tw::cp_async16(memory + 16 * threadIdx.x, in + 4 * threadIdx.x, 16);  // source: copy
  tw::cp_async_commit();
  if (!Wrong) tw::cp_async_wait<0>();
  tw::store_global(in + 4 * threadIdx.x, 7.0f);  // source: write
  tw::cp_async_wait<0>();
  tw::store_global(out + threadIdx.x, reinterpret_cast<float*>(memory)[4 * threadIdx.x]);
}
BOTH(source_written, 32, (float* in, float* out), (in, out))

// Two warps read what a third writes, which waits for one of them only.
template <bool Wrong>
TW_DEVICE void waits_for_one_reader(float* in, float* out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float x = 0;
  if (warp < 2) x = tw::load_global(in + lane);  // readers: read
  if (!Wrong) tw::block_sync();
  if (Wrong && warp != 1) tw::barrier(1, 64);
  if (warp == 2) tw::store_global(in + lane, 7.0f);  // readers: write
  tw::store_global(out + threadIdx.x, x);
}
BOTH(waits_for_one_reader, 96, (float* in, float* out), (in, out))

// Two warps add to what a third reads, which waits for the second of them only.
template <bool Wrong>
TW_DEVICE void waits_for_one_adder(float* in, float* out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp < 2) tw::atomic_add(in + lane, 1.0f);  // adders: add
  if (!Wrong) tw::block_sync();
  if (Wrong && warp != 0) tw::barrier(1, 64);
  if (warp == 2) tw::store_global(out + lane, tw::load_global(in + lane));  // adders: read
}
BOTH(waits_for_one_adder, 96, (float* in, float* out), (in, out))

// One element past the end: in has 32 elements, out has 32.
template <bool Wrong>
TW_DEVICE void read_past(const float* in, float* out) {
  const int i = threadIdx.x + (Wrong ? 1 : 0);
  tw::store_global(out + threadIdx.x, tw::load_global(in + i));  // past: read
}
BOTH(read_past, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void plain_read_past(const float* in, float* out) {
  const int i = threadIdx.x + (Wrong ? 1 : 0);
  tw::store_global(out + threadIdx.x, in[i]);  // past: plain read
}
BOTH(plain_read_past, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void write_past(const float* in, float* out) {
  const int i = threadIdx.x + (Wrong ? 1 : 0);
  tw::store_global(out + i, tw::load_global(in + threadIdx.x));  // past: write
}
BOTH(write_past, 32, (const float* in, float* out), (in, out))

// 30 of 32 elements are there: the last copy of four may read two.
template <bool Wrong>
TW_DEVICE void copy_past(const float* in, float* out) {
  TW_SHARED(memory);
  if (threadIdx.x < 8)
    tw::cp_async16(memory + 16 * threadIdx.x, in + 4 * threadIdx.x, threadIdx.x == 7 && !Wrong ? 8 : 16);  // past: copy
  tw::cp_async_commit();
  tw::cp_async_wait<0>();
  tw::block_sync();
  tw::store_global(out + threadIdx.x, reinterpret_cast<float*>(memory)[threadIdx.x]);
}
BOTH(copy_past, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void shared_past(const float* in, float* out) {
  TW_SHARED(memory);
  float* const x = reinterpret_cast<float*>(memory);
  const int i = threadIdx.x + (Wrong ? 1 : 0);
  x[i] = tw::load_global(in + threadIdx.x);  // past: shared
  tw::store_global(out + threadIdx.x, x[i]);
}
BOTH(shared_past, 32, (const float* in, float* out), (in, out))

// An address that is nowhere near anything.
template <bool Wrong>
TW_DEVICE void wild(const float* in, float* out) {
  const float* const p = Wrong ? reinterpret_cast<const float*>(64) : in;
  tw::store_global(out + threadIdx.x, p[threadIdx.x]);  // wild: read
}
BOTH(wild, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void unwritten_shared(const float* in, float* out) {
  TW_SHARED(memory);
  float* const x = reinterpret_cast<float*>(memory);
  if (!Wrong || threadIdx.x != 5) x[threadIdx.x] = tw::load_global(in + threadIdx.x);
  tw::block_sync();
  tw::store_global(out + threadIdx.x, x[threadIdx.x]);  // unwritten: shared
}
BOTH(unwritten_shared, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void unwritten_output(const float* in, float* out) {
  if (!Wrong) tw::store_global(out + threadIdx.x, 0.0f);
  const float before = tw::load_global(out + threadIdx.x);  // unwritten: output
  tw::store_global(out + threadIdx.x, before + tw::load_global(in + threadIdx.x));
}
BOTH(unwritten_output, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void misaligned_ldmatrix(const float* in, float* out) {
  TW_SHARED(memory);
  float* const x = reinterpret_cast<float*>(memory);
  for (int i = threadIdx.x; i < 160; i += 32) x[i] = tw::load_global(in + i % 32);
  tw::warp_sync();
  tw::u32 r[4];
  tw::ldmatrix4(r, memory + 16 * threadIdx.x + (Wrong && threadIdx.x == 9 ? 8 : 0));  // misaligned: row
  tw::store_global(out + threadIdx.x, float(r[0] ^ r[3]));
}
BOTH(misaligned_ldmatrix, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void misaligned_copy(const float* in, float* out) {
  TW_SHARED(memory);
  if (threadIdx.x < 7)
    tw::cp_async16(memory + 16 * threadIdx.x, in + 4 * threadIdx.x + (Wrong ? 1 : 0), 16);  // misaligned: copy
  tw::cp_async_commit();
  tw::cp_async_wait<0>();
  if (threadIdx.x < 7) tw::store_global(out + threadIdx.x, reinterpret_cast<float*>(memory)[4 * threadIdx.x]);
}
BOTH(misaligned_copy, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void misaligned_load(const float* in, float* out) {
  if (threadIdx.x < 7) {
    const tw::b128 x = tw::load_global(reinterpret_cast<const tw::b128*>(in + 4 * threadIdx.x + (Wrong ? 2 : 0)));  // misaligned: load
    tw::store_global(out + threadIdx.x, float(x.x));
  }
}
BOTH(misaligned_load, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void wmma_stride(const float* in, float* out) {
  TW_SHARED(memory);
  float* const x = reinterpret_cast<float*>(memory);
  for (int i = threadIdx.x; i < 512; i += 32) x[i] = tw::load_global(in + i % 32);
  tw::warp_sync();
  tw::WmmaSums s;
  tw::wmma_load_sums(s, x, Wrong ? 18 : 20);  // misaligned: stride
  tw::store_global(out + threadIdx.x, s.r[0]);
}
BOTH(wmma_stride, 32, (const float* in, float* out), (in, out))

// Threads of the last warp skip a barrier.
template <bool Wrong>
TW_DEVICE void divergent_barrier(const float* in, float* out) {
  if (!Wrong || threadIdx.x < 48) tw::block_sync();  // divergent: barrier
  tw::store_global(out + threadIdx.x, tw::load_global(in + threadIdx.x % 32));
}
BOTH(divergent_barrier, 64, (const float* in, float* out), (in, out))

// The halves of a warp come to the same barrier on different lines.
template <bool Wrong>
TW_DEVICE void split_barrier(const float* in, float* out) {
  if (Wrong && threadIdx.x % 32 < 16) {
    tw::store_global(out + threadIdx.x, 1.0f);
    tw::block_sync();  // split: one
  } else {
    tw::store_global(out + threadIdx.x, tw::load_global(in + threadIdx.x % 32));
    tw::block_sync();  // split: other
  }
}
BOTH(split_barrier, 64, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void barrier_counts(const float* in, float* out) {
  tw::barrier(1, Wrong && threadIdx.x >= 32 ? 32 : 64);  // counts: barrier
  tw::store_global(out + threadIdx.x, tw::load_global(in + threadIdx.x % 32));
}
BOTH(barrier_counts, 64, (const float* in, float* out), (in, out))

// Two warps take two barriers in opposite orders.
template <bool Wrong>
TW_DEVICE void deadlock(const float* in, float* out) {
  if (threadIdx.x < 32) {
    tw::barrier(1, 64);  // deadlock: first
    tw::barrier(2, 64);
  } else {
    tw::barrier(Wrong ? 2 : 1, 64);  // deadlock: second
    tw::barrier(Wrong ? 1 : 2, 64);
  }
  tw::store_global(out + threadIdx.x, tw::load_global(in + threadIdx.x % 32));
}
BOTH(deadlock, 64, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void divergent_shuffle(const float* in, float* out) {
  float x = tw::load_global(in + threadIdx.x);
  if (!Wrong || threadIdx.x < 16) x = tw::shuffle_xor(x, 1);  // divergent: shuffle
  if (Wrong) tw::warp_sync();  // divergent: other
  tw::store_global(out + threadIdx.x, x);
}
BOTH(divergent_shuffle, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void ended_lanes(const float* in, float* out) {
  float x = tw::load_global(in + threadIdx.x);
  if (Wrong && threadIdx.x >= 16) return;
  x = tw::shuffle_xor(x, 1);  // ended: shuffle
  tw::store_global(out + threadIdx.x, x);
}
BOTH(ended_lanes, 32, (const float* in, float* out), (in, out))

// Every block writes element 0.
template <bool Wrong>
TW_DEVICE void block_race(const float* in, float* out) {
  if (threadIdx.x == 0)
    tw::store_global(out + (Wrong ? 0 : blockIdx.x), tw::load_global(in + blockIdx.x));  // blocks: write
}
BOTH(block_race, 32, (const float* in, float* out), (in, out))

// A store among atomics.
template <bool Wrong>
TW_DEVICE void atomic_race(const float* in, float* out) {
  const float x = tw::load_global(in + threadIdx.x);
  if (Wrong && blockIdx.x == 3)
    tw::store_global(out + threadIdx.x, x);  // atomics: store
  else
    tw::atomic_add(out + threadIdx.x, x);  // atomics: add
}
BOTH(atomic_race, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void missing_grid_sync(const float* in, float* out, tw::u32* counter) {
  const int i = blockIdx.x * 8 + threadIdx.x;
  if (threadIdx.x < 8) tw::store_global(out + i, tw::load_global(in + i));  // grid: write
  if (!Wrong) tw::grid_sync(counter);
  const float next = threadIdx.x < 8 ? tw::load_global(out + (i + 8) % 32) : 0;  // grid: read
  tw::grid_sync(counter);
  if (threadIdx.x < 8) tw::store_global(out + i, next);
}
BOTH(missing_grid_sync, 32, (const float* in, float* out, tw::u32* counter), (in, out, counter))

// One block leaves before the others meet.
template <bool Wrong>
TW_DEVICE void early_block(const float* in, float* out, tw::u32* counter) {
  if (Wrong && blockIdx.x == 1) return;
  tw::grid_sync(counter);  // early: grid
  if (blockIdx.x == 0) tw::store_global(out + threadIdx.x, tw::load_global(in + threadIdx.x));
}
BOTH(early_block, 32, (const float* in, float* out, tw::u32* counter), (in, out, counter))

// The initialisation of an mbarrier is not waited for.
template <bool Wrong>
TW_DEVICE void unordered_mbarrier(const float* in, float* out) {
  TW_SHARED(memory);
  tw::u64* const b = reinterpret_cast<tw::u64*>(memory);
  if (threadIdx.x == 0) tw::mbarrier_init(b, 32);  // mbarrier: init
  if (!Wrong) tw::warp_sync();
  tw::mbarrier_arrive(b);  // mbarrier: arrive
  tw::mbarrier_wait(b, 0);
  tw::store_global(out + threadIdx.x, tw::load_global(in + threadIdx.x));
}
BOTH(unordered_mbarrier, 32, (const float* in, float* out), (in, out))

// The first warp ends three phases before the second waits for the end of the first: all is in order,
// but a parity cannot tell the first from the third.
template <bool Wrong>
TW_DEVICE void mbarrier_overrun(const float* in, float* out) {
  TW_SHARED(memory);
  tw::u64* const b = reinterpret_cast<tw::u64*>(memory);
  if (threadIdx.x == 0) tw::mbarrier_init(b, 32);
  tw::block_sync();
  if (threadIdx.x < 32) {
    for (int i = 0; i < (Wrong ? 3 : 1); ++i) tw::mbarrier_arrive(b);
    return;
  }
  tw::mbarrier_wait(b, 0);  // mbarrier: overrun
  tw::store_global(out + threadIdx.x % 32, tw::load_global(in + threadIdx.x % 32));
}
BOTH(mbarrier_overrun, 64, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void mbarrier_overwritten(const float* in, float* out) {
  TW_SHARED(memory);
  tw::u64* const b = reinterpret_cast<tw::u64*>(memory);
  if (threadIdx.x == 0) tw::mbarrier_init(b, 32);
  tw::block_sync();
  reinterpret_cast<float*>(memory)[Wrong ? threadIdx.x : threadIdx.x + 2] = 1;  // mbarrier: overwritten
  tw::mbarrier_arrive(b);
  tw::mbarrier_wait(b, 0);
  tw::store_global(out + threadIdx.x, tw::load_global(in + threadIdx.x));
}
BOTH(mbarrier_overwritten, 32, (const float* in, float* out), (in, out))

template <bool Wrong>
TW_DEVICE void mbarrier_never_made(const float* in, float* out) {
  TW_SHARED(memory);
  tw::u64* const b = reinterpret_cast<tw::u64*>(memory);
  if (threadIdx.x == 0) tw::mbarrier_init(b, 32);
  tw::block_sync();
  tw::mbarrier_arrive(b + (Wrong ? 1 : 0));  // mbarrier: never made
  tw::mbarrier_wait(b, 0);
  tw::store_global(out + threadIdx.x, tw::load_global(in + threadIdx.x));
}
BOTH(mbarrier_never_made, 32, (const float* in, float* out), (in, out))

// For launches of whole warps only.
extern "C" __global__ void part_of_a_warp(const float* in, float* out) {
  float d[4] = {};
  const tw::u32 a[4] = {};
  tw::mma_16x8x16<tw::f16>(d, a, 0, 0);  // part of a warp
  if (threadIdx.x < 16) tw::store_global(out + threadIdx.x, d[0] + tw::load_global(in + threadIdx.x));
}

#ifndef __CUDACC__  // of sm_90's header, which not every architecture compiles
// For launches that may begin before the one before has ended.
extern "C" __global__ void reads_before(const float* early, const float* late, float* out) {
  const float x = tw::load_global(early + threadIdx.x);  // before: read
  tw::launches_ended();
  tw::store_global(out + threadIdx.x, x + tw::load_global(late + threadIdx.x));
}
#endif

// A thread that waits, by itself, for what no thread writes.
extern "C" __global__ void endless(const float* in, float* out) {
  while (tw::load_global(in) != 0) {  // endless
  }
  tw::store_global(out + threadIdx.x, 1.0f);
}
