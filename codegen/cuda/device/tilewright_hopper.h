// Hopper's own instructions (sm_90a): copies of boxes by the TMA unit, and matrix products of a warpgroup
// from shared memory (PTX ISA: cp.async.bulk.tensor, wgmma). Under a host compiler the same names come from
// tilewright_host.h.
#pragma once

#include "tilewright_device.h"

#if defined(__CUDACC__)
#define TW_TENSOR_MAP(name) const __grid_constant__ tw::TensorMap name
/// Of a kernel: so many blocks that follow one another are a cluster.
#define TW_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)

namespace tw {

/// How a tensor lies in global memory and in which boxes it is copied: a CUtensorMap, made on the host.
struct alignas(64) TensorMap { u64 words[16]; };

// ---- what the threads of a warp have in common ------------------------------------------------------
/// x, which is the same in all threads of the warp. The compiler knows that of what comes from here alone: it keeps
/// addresses and descriptors in uniform registers, where an instruction of a warp reads them. Made of threadIdx, each
/// takes a copy into one, which the next instruction waits for.
TW_DEVICE int same_in_warp(int x) { return __shfl_sync(0xffffffffu, x, 0); }
/// True in one thread of the warp, the same each time. All come here. What it does alone needs no loop over threads.
TW_DEVICE bool one_of_warp() {
  u32 one;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(one));
  return one != 0;
}

// ---- launches that overlap ------------------------------------------------------------------------
/// Of a launch that may begin before the one before it has ended: until that has, and what it wrote is seen. Every
/// thread calls it before it reads or writes at home.
TW_DEVICE void launches_ended() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// The next launch may begin, if it is one of those: its blocks take the room that this one's leave.
TW_DEVICE void next_launch_may_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- mbarriers ------------------------------------------------------------------------------------
/// After mbarrier_init, before others use the barriers: makes them known to the TMA unit.
TW_DEVICE void mbarriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/// One arrival, and the phase does not end before so many bytes more have come by copies.
TW_DEVICE void mbarrier_arrive_expecting(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
}

// ---- copies of boxes ------------------------------------------------------------------------------
/// The map is on its way to where the TMA unit reads it.
TW_DEVICE void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
/// A box of a tensor of three dimensions, from element (x, y, z) on, x the innermost: into shared memory (a
/// multiple of 1024 bytes), with zeroes for what is outside of the tensor. Its bytes arrive at `b`.
TW_DEVICE void load_box(void* shared, const TensorMap& map, u64* b, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], [%2];" ::"r"(shared_address(shared)), "l"(&map), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
/// The same to where `shared` and `b` lie in each of the cluster's blocks that have a bit in `mask`.
TW_DEVICE void load_box_for(void* shared, const TensorMap& map, u64* b, int x, int y, int z, u32 mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)), "l"(&map), "r"(shared_address(b)), "r"(x), "r"(y),
      "r"(z), "h"(static_cast<unsigned short>(mask))
      : "memory");
}
/// The same of a tensor of five dimensions: images whose points have their channels side by side.
TW_DEVICE void load_box_of_images(void* shared, const TensorMap& map, u64* b, int channel, int x, int y, int z,
                                  int image) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(shared_address(shared)), "l"(&map), "r"(shared_address(b)), "r"(channel), "r"(x), "r"(y),
      "r"(z), "r"(image)
      : "memory");
}
/// The other way; what is outside of the tensor is left out.
TW_DEVICE void store_box(const TensorMap& map, const void* shared, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
                   &map), "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
TW_DEVICE void store_boxes_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until at most N of this thread's groups of store_box have still to read shared memory.
template <int N>
TW_DEVICE void store_boxes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
/// What this thread wrote to shared memory can be read by store_box and by wgmma.
TW_DEVICE void shared_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Four matrices of 8 x 8 elements of 16 bits, as a warp has them in fragments, transposed: lane l has where row l % 8
/// of matrix l / 8 begins, 16 bytes that are a column of it.
TW_DEVICE void stmatrix4_transposed(void* row, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// ---- clusters of blocks ---------------------------------------------------------------------------
/// All threads of the cluster's blocks come to it before any goes on, and see what others wrote before.
TW_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}
/// The same of what was read alone, or of mbarriers that were made known: what others wrote before need not be seen.
/// cluster_sync waits until all that a thread wrote at home has come there.
TW_DEVICE void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");
}
/// One arrival at the mbarrier that lies in the cluster's block `rank` as `b` does here.
TW_DEVICE void mbarrier_arrive_of_block(u64* b, u32 rank) {
  asm volatile(
      "{ .reg .b32 at; mapa.shared::cluster.u32 at, %0, %1; mbarrier.arrive.shared::cluster.b64 _, "
      "[at]; }" ::"r"(shared_address(b)), "r"(rank) : "memory");
}
/// 16 bytes of the shared memory of the cluster's block `rank`, which lie there as `shared` does here.
TW_DEVICE b128 load_of_block(const void* shared, u32 rank) {
  b128 v;
  asm volatile(
      "{ .reg .b32 at; mapa.shared::cluster.u32 at, %4, %5; ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [at]; }"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(shared_address(shared)), "r"(rank) : "memory");
  return v;
}

// ---- registers of a warpgroup ---------------------------------------------------------------------
template <int N>
TW_DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N>
TW_DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

/// 2 to the power of x; zero where that is no normal number.
TW_DEVICE float exp2_quick(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- products of a warpgroup ----------------------------------------------------------------------
/// Where an operand lies in shared memory: rows of 128 bytes in groups of eight, whose pieces of 16 bytes are
/// swizzled. `leading`: bytes to the next 64 elements, of an operand whose rows run across the depth.
TW_DEVICE u64 operand_at(const void* shared, u32 leading) {
  return u64((shared_address(shared) & 0x3ffff) >> 4) | u64(leading >> 4) << 16 | u64(1024 >> 4) << 32 |
         u64(1) << 62;
}
TW_DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TW_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until at most N of the warpgroup's committed groups are under way.
template <int N>
TW_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
/// Nothing of x is moved across this point.
template <int N>
TW_DEVICE void keep(float (&x)[N]) {
  TW_UNROLL
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N>
TW_DEVICE void keep(u32 (&x)[N]) {
  TW_UNROLL
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i])::"memory");
}
template <int N>
TW_DEVICE void keep(u64 (&x)[N]) {
  TW_UNROLL
  for (int i = 0; i < N; ++i) asm volatile("" : "+l"(x[i])::"memory");
}

// Sums eight at a time: in the text of an instruction, and as its operands.
#define TW_NAMES_1 "%3, %4, %5, %6, %7, %8, %9, %10"
#define TW_NAMES_2 TW_NAMES_1 ", " "%11, %12, %13, %14, %15, %16, %17, %18"
#define TW_NAMES_3 TW_NAMES_2 ", " "%19, %20, %21, %22, %23, %24, %25, %26"
#define TW_NAMES_4 TW_NAMES_3 ", " "%27, %28, %29, %30, %31, %32, %33, %34"
#define TW_NAMES_5 TW_NAMES_4 ", " "%35, %36, %37, %38, %39, %40, %41, %42"
#define TW_NAMES_6 TW_NAMES_5 ", " "%43, %44, %45, %46, %47, %48, %49, %50"
#define TW_NAMES_7 TW_NAMES_6 ", " "%51, %52, %53, %54, %55, %56, %57, %58"
#define TW_NAMES_8 TW_NAMES_7 ", " "%59, %60, %61, %62, %63, %64, %65, %66"
#define TW_NAMES_9 TW_NAMES_8 ", " "%67, %68, %69, %70, %71, %72, %73, %74"
#define TW_NAMES_10 TW_NAMES_9 ", " "%75, %76, %77, %78, %79, %80, %81, %82"
#define TW_NAMES_11 TW_NAMES_10 ", " "%83, %84, %85, %86, %87, %88, %89, %90"
#define TW_NAMES_12 TW_NAMES_11 ", " "%91, %92, %93, %94, %95, %96, %97, %98"
#define TW_NAMES_13 TW_NAMES_12 ", " "%99, %100, %101, %102, %103, %104, %105, %106"
#define TW_NAMES_14 TW_NAMES_13 ", " "%107, %108, %109, %110, %111, %112, %113, %114"
#define TW_NAMES_15 TW_NAMES_14 ", " "%115, %116, %117, %118, %119, %120, %121, %122"
#define TW_NAMES_16 TW_NAMES_15 ", " "%123, %124, %125, %126, %127, %128, %129, %130"
#define TW_SUMS_1 TW_EIGHT(0)
#define TW_SUMS_2 TW_SUMS_1, TW_EIGHT(8)
#define TW_SUMS_3 TW_SUMS_2, TW_EIGHT(16)
#define TW_SUMS_4 TW_SUMS_3, TW_EIGHT(24)
#define TW_SUMS_5 TW_SUMS_4, TW_EIGHT(32)
#define TW_SUMS_6 TW_SUMS_5, TW_EIGHT(40)
#define TW_SUMS_7 TW_SUMS_6, TW_EIGHT(48)
#define TW_SUMS_8 TW_SUMS_7, TW_EIGHT(56)
#define TW_SUMS_9 TW_SUMS_8, TW_EIGHT(64)
#define TW_SUMS_10 TW_SUMS_9, TW_EIGHT(72)
#define TW_SUMS_11 TW_SUMS_10, TW_EIGHT(80)
#define TW_SUMS_12 TW_SUMS_11, TW_EIGHT(88)
#define TW_SUMS_13 TW_SUMS_12, TW_EIGHT(96)
#define TW_SUMS_14 TW_SUMS_13, TW_EIGHT(104)
#define TW_SUMS_15 TW_SUMS_14, TW_EIGHT(112)
#define TW_SUMS_16 TW_SUMS_15, TW_EIGHT(120)
#define TW_FOUR(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3])
#define TW_EIGHT(I) TW_FOUR(I), TW_FOUR(I + 4)
#define TW_WGMMA(N, EIGHTS, TYPE, NEXT_A, NEXT_B)                                                         \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; wgmma.mma_async.sync.aligned.m64n" #N                \
               "k16.f32." TYPE "." TYPE " {" TW_NAMES_##EIGHTS "}, %0, %1, p, 1, 1, " #NEXT_A ", " #NEXT_B \
               "; }"                                                                                      \
               : "+l"(a), "+l"(b), "+r"(add), TW_SUMS_##EIGHTS)
#define TW_WGMMA_OF(N, EIGHTS, TYPE)                                    \
  if constexpr (A_across && B_across) TW_WGMMA(N, EIGHTS, TYPE, 1, 1); \
  else if constexpr (A_across) TW_WGMMA(N, EIGHTS, TYPE, 1, 0);        \
  else if constexpr (B_across) TW_WGMMA(N, EIGHTS, TYPE, 0, 1);        \
  else TW_WGMMA(N, EIGHTS, TYPE, 0, 0)
// Operands that are read alone have the numbers after the sums': A3 and B.
#define TW_WGMMA_REGISTERS(N, EIGHTS, A3, B, TYPE, NEXT_B)                                                 \
  asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE \
               "." TYPE " {" TW_NAMES_##EIGHTS "}, {%0, %1, %2, %" #A3 "}, %" #B ", p, 1, 1, " #NEXT_B     \
               "; }"                                                                                       \
               : "+r"(a0), "+r"(a1), "+r"(a2), TW_SUMS_##EIGHTS : "r"(a[3]), "l"(b))
#define TW_WGMMA_COLUMNS(N, EIGHTS, A3, B)                                              \
  template <> struct Wgmma<N> {                                                   \
    template <class T, bool A_across, bool B_across>                              \
    static __device__ __forceinline__ void multiply(float (&d)[N / 2], u64 a, u64 b, int add) { \
      if constexpr (Packed<T>::kBfloat) { TW_WGMMA_OF(N, EIGHTS, "bf16"); }       \
      else { TW_WGMMA_OF(N, EIGHTS, "f16"); }                                     \
    }                                                                             \
    template <class T, bool B_across>                                             \
    static __device__ __forceinline__ void multiply_registers(float (&d)[N / 2], const u32 (&a)[4], u64 b) { \
      u32 a0 = a[0], a1 = a[1], a2 = a[2];                                        \
      if constexpr (Packed<T>::kBfloat && B_across) TW_WGMMA_REGISTERS(N, EIGHTS, A3, B, "bf16", 1); \
      else if constexpr (Packed<T>::kBfloat) TW_WGMMA_REGISTERS(N, EIGHTS, A3, B, "bf16", 0);        \
      else if constexpr (B_across) TW_WGMMA_REGISTERS(N, EIGHTS, A3, B, "f16", 1);       \
      else TW_WGMMA_REGISTERS(N, EIGHTS, A3, B, "f16", 0);                               \
    }                                                                             \
  };
/// d[64 x N] = a[64 x 16] * b[16 x N] + (add ? d : 0), by operand_at of both; across: rows run across the depth.
/// Thread t of the warpgroup has, with g = t % 32 / 4: d[4 j + e] of row t / 32 * 16 + g + e / 2 * 8 and column
/// 8 j + t % 4 * 2 + e % 2. multiply_registers: d += a * b, with a in registers, two elements a word, where
/// word i has row g + i % 2 * 8 and columns i / 2 * 8 + t % 4 * 2 and the next: what d of 16 columns becomes
/// when its neighbours are packed.
template <int N> struct Wgmma;
TW_WGMMA_COLUMNS(16, 1, 11, 12)
TW_WGMMA_COLUMNS(32, 2, 19, 20)
TW_WGMMA_COLUMNS(48, 3, 27, 28)
TW_WGMMA_COLUMNS(64, 4, 35, 36)
TW_WGMMA_COLUMNS(80, 5, 43, 44)
TW_WGMMA_COLUMNS(96, 6, 51, 52)
TW_WGMMA_COLUMNS(112, 7, 59, 60)
TW_WGMMA_COLUMNS(128, 8, 67, 68)
TW_WGMMA_COLUMNS(144, 9, 75, 76)
TW_WGMMA_COLUMNS(160, 10, 83, 84)
TW_WGMMA_COLUMNS(176, 11, 91, 92)
TW_WGMMA_COLUMNS(192, 12, 99, 100)
TW_WGMMA_COLUMNS(208, 13, 107, 108)
TW_WGMMA_COLUMNS(224, 14, 115, 116)
TW_WGMMA_COLUMNS(240, 15, 123, 124)
TW_WGMMA_COLUMNS(256, 16, 131, 132)
#undef TW_NAMES_1
#undef TW_SUMS_1
#undef TW_NAMES_2
#undef TW_SUMS_2
#undef TW_NAMES_3
#undef TW_SUMS_3
#undef TW_NAMES_4
#undef TW_SUMS_4
#undef TW_NAMES_5
#undef TW_SUMS_5
#undef TW_NAMES_6
#undef TW_SUMS_6
#undef TW_NAMES_7
#undef TW_SUMS_7
#undef TW_NAMES_8
#undef TW_SUMS_8
#undef TW_NAMES_9
#undef TW_SUMS_9
#undef TW_NAMES_10
#undef TW_SUMS_10
#undef TW_NAMES_11
#undef TW_SUMS_11
#undef TW_NAMES_12
#undef TW_SUMS_12
#undef TW_NAMES_13
#undef TW_SUMS_13
#undef TW_NAMES_14
#undef TW_SUMS_14
#undef TW_NAMES_15
#undef TW_SUMS_15
#undef TW_NAMES_16
#undef TW_SUMS_16
#undef TW_WGMMA_COLUMNS
#undef TW_WGMMA_OF
#undef TW_WGMMA_REGISTERS
#undef TW_WGMMA
#undef TW_EIGHT
#undef TW_FOUR

}  // namespace tw
#endif
