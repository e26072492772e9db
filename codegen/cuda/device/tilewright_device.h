// What emitted CUDA kernels call: thin device functions, each one instruction or a few.
//
// This is the border between an emitted .cu file and what runs it. Under nvcc and NVRTC the functions
// are PTX, in this file; it includes nothing, so that NVRTC needs no folders. Compiled by a host
// compiler, the same names come from tilewright_host.h, which executes them on the CPU
// (simulator/cuda_host). An emitted kernel uses nothing of CUDA but these functions, __global__,
// __launch_bounds__, threadIdx, blockIdx, blockDim, gridDim and plain C++, expf and its like.
#pragma once

#if !defined(__CUDACC__)
#include "tilewright_host.h"
#else

#define TW_DEVICE static __device__ __forceinline__
/// A function that stays one.
#define TW_CALLED static __device__ __noinline__
/// Declares `name`, unsigned char*: the block's dynamic shared memory, from a multiple of 1024
/// bytes. TW_STATIC_SHARED: so many bytes that the compiler knows of, and reports (at most 48 KiB).
/// What is added is zero, and no constant to the compiler. From a constant beginning, loops step
/// the register that has it, and ptxas (12.8 and 13.0) then takes addresses computed from it before
/// the loop to move along.
#if defined(TW_STATIC_SHARED)
#define TW_SHARED(name)                                                    \
  __shared__ __align__(1024) unsigned char name##_begin[TW_STATIC_SHARED]; \
  [[maybe_unused]] unsigned char* const name = name##_begin + tw::made_here(0)
#else
#define TW_SHARED(name)                                           \
  extern __shared__ __align__(1024) unsigned char name##_begin[]; \
  [[maybe_unused]] unsigned char* const name = name##_begin + tw::made_here(0)
#endif
#define TW_UNROLL _Pragma("unroll")
#define TW_NO_UNROLL _Pragma("unroll 1")

namespace tw {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i32 = int;
using i64 = long long;

// ---- element types: storage only; arithmetic is in float (or double for f64) -------------------
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
/// 16 bytes, loaded and stored as one.
struct alignas(16) b128 { u32 x, y, z, w; };
struct alignas(8) b64 { u32 x, y; };

TW_DEVICE float to_float(float x) { return x; }
TW_DEVICE double to_float(double x) { return x; }
TW_DEVICE float to_float(int x) { return float(x); }
TW_DEVICE float to_float(signed char x) { return float(x); }
TW_DEVICE float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
TW_DEVICE float to_float(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

/// Rounds to nearest, ties to even.
template <class T> struct Rounded;
template <> struct Rounded<float> {
  static __device__ __forceinline__ float of(float x) { return x; }
};
template <> struct Rounded<double> {
  static __device__ __forceinline__ double of(double x) { return x; }
};
template <> struct Rounded<f16> {
  static __device__ __forceinline__ f16 of(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
};
template <> struct Rounded<bf16> {
  static __device__ __forceinline__ bf16 of(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
};
/// To the nearest that the type holds; of what is no number zero.
template <> struct Rounded<int> {
  static __device__ __forceinline__ int of(float x) {
    int y;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return x == x ? y : 0;
  }
  static __device__ __forceinline__ int of(double x) {
    int y;
    asm("cvt.rni.s32.f64 %0, %1;" : "=r"(y) : "d"(x));
    return x == x ? y : 0;
  }
};
template <> struct Rounded<signed char> {
  template <class R> static __device__ __forceinline__ signed char of(R x) {
    const int y = Rounded<int>::of(x);
    return (signed char)(y < -128 ? -128 : y > 127 ? 127 : y);
  }
};
/// Two rounded values in one register, the first in the low half.
template <class T> struct Packed;
template <> struct Packed<f16> {
  static constexpr bool kBfloat = false;
  static __device__ __forceinline__ u32 of(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
  }
};
template <> struct Packed<bf16> {
  static constexpr bool kBfloat = true;
  static __device__ __forceinline__ u32 of(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
  }
};

// ---- threads ------------------------------------------------------------------------------------
TW_DEVICE void block_sync() { __syncthreads(); }
TW_DEVICE void warp_sync() { __syncwarp(); }
/// Waits until `threads` threads of the block (a multiple of 32) have come to barrier `id`, 1..15.
TW_DEVICE void barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
TW_DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
TW_DEVICE float shuffle_down(float x, int by) { return __shfl_down_sync(0xffffffffu, x, by); }
TW_DEVICE float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
TW_DEVICE double shuffle_xor(double x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
TW_DEVICE double shuffle(double x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
TW_DEVICE u32 ballot(bool p) { return __ballot_sync(0xffffffffu, p); }
/// All blocks of a cooperative launch; `counter` is one word of global memory, zero before the first
/// launch and used by nothing else. Its highest bit changes when the last block arrives: the first
/// block adds what the others lack to 2^31.
///
/// Only the first thread orders memory, after the others have met it: its release covers what they
/// wrote (PTX ISA, memory consistency model, causality order). It reads the counter before its block
/// arrives, and so needs nothing that an addition returns: the addition and the first look at the
/// counter are on their way together.
TW_DEVICE void grid_sync(u32* counter) {
  u32 before = 0, now;
  if (threadIdx.x == 0)
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(before) : "l"(counter) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    const u32 arrive = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(arrive)
                 : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
  }
  __syncthreads();
}

// ---- barriers in shared memory that count arrivals -----------------------------------------------
TW_DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
/// By one thread, before a block_sync. A phase ends when `arrivals` threads have arrived.
TW_DEVICE void mbarrier_init(u64* b, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
               : "memory");
}
TW_DEVICE void mbarrier_arrive(u64* b) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(shared_address(b))
               : "memory");
}
/// x, of which the compiler knows nothing from here on: addresses made of it are computed where they are used,
/// and not all of them before a kernel's loops, where they would take the registers of sums.
TW_DEVICE int made_here(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
template <class T>
TW_DEVICE T* made_here(T* p) {
  asm volatile("" : "+l"(p));
  return p;
}
TW_DEVICE float made_here(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
/// An address, or null. Not by ?:, of which ptxas (13.0) makes a zero and a predicated addition, and then reads the
/// zero before it is there.
template <class T>
TW_DEVICE T* there_if(bool in, T* p) {
  u64 q;
  asm("{ .reg .pred in; setp.ne.u32 in, %2, 0; selp.b64 %0, %1, 0, in; }"
      : "=l"(q)
      : "l"(reinterpret_cast<u64>(p)), "r"(u32(in)));
  return reinterpret_cast<T*>(q);
}
/// This thread arrives when all of its cp_async so far have landed.
TW_DEVICE void mbarrier_arrive_after_copies(u64* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(b))
               : "memory");
}
/// Waits for the end of the phase of that parity: the first phase is 0. Waiting for parity 1 on a
/// fresh barrier returns at once.
TW_DEVICE void mbarrier_wait(u64* b, u32 parity) {
  u32 done;
  do {
#if __CUDA_ARCH__ >= 900
    // Sleeps for a while where test_wait would spin and take issue slots from who is waited for.
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
        : "=r"(done)
        : "r"(shared_address(b)), "r"(parity)
        : "memory");
  } while (!done);
}

// ---- copies --------------------------------------------------------------------------------------
/// 16 bytes from global to shared memory past L1, without waiting; only the first `valid` are read,
/// the others become zero. Both addresses are multiples of 16.
TW_DEVICE void cp_async16(void* shared, const void* global, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid)
               : "memory");
}
/// The same of 4 or 8 bytes, whose addresses are multiples of that. There is none past L1.
template <int Bytes>
TW_DEVICE void cp_async_piece(void* shared, const void* global, int valid) {
  static_assert(Bytes == 4 || Bytes == 8, "what cp.async.cg does not copy");
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
               "l"(global), "n"(Bytes), "r"(valid)
               : "memory");
}
/// The same of 4, 8 or 16 bytes, To bytes behind one address and From behind the other. Of 4 bytes all or none are valid.
template <int Bytes, int To, int From>
TW_DEVICE void cp_async_at(void* shared, const void* global, int valid) {
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0+%3], [%1+%4], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid), "n"(To), "n"(From) : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("cp.async.ca.shared.global [%0+%3], [%1+%4], 8, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid), "n"(To), "n"(From) : "memory");
  else
    asm volatile("{ .reg .pred none; setp.eq.s32 none, %2, 0; cp.async.ca.shared.global [%0+%3], [%1+%4], 4, none; }" ::
                 "r"(shared_address(shared)), "l"(global), "r"(valid), "n"(To), "n"(From) : "memory");
}
TW_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most N of this thread's groups are under way.
template <int N>
TW_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/// Global memory past L1.
template <class T>
TW_DEVICE T load_global(const T* p) {
  T x;
  if constexpr (sizeof(T) == 16) {
    b128 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    x = *reinterpret_cast<T*>(&v);
  } else if constexpr (sizeof(T) == 8) {
    u64 v;
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    x = *reinterpret_cast<T*>(&v);
  } else if constexpr (sizeof(T) == 4) {
    u32 v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    x = *reinterpret_cast<T*>(&v);
  } else if constexpr (sizeof(T) == 2) {
    u16 v;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    x = *reinterpret_cast<T*>(&v);
  } else {
    static_assert(sizeof(T) == 1, "1, 2, 4, 8 or 16 bytes");
    u16 v;  // the low byte
    asm volatile("ld.global.cg.u8 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    x = *reinterpret_cast<T*>(&v);
  }
  return x;
}
/// Global memory that no block writes while the kernel runs: not ordered with other accesses, so that
/// many can be under way.
template <class T>
TW_DEVICE T read_only(const T* p) {
  T x;
  if constexpr (sizeof(T) == 16) {
    b128 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    x = *reinterpret_cast<T*>(&v);
  } else if constexpr (sizeof(T) == 8) {
    u64 v;
    asm("ld.global.nc.u64 %0, [%1];" : "=l"(v) : "l"(p));
    x = *reinterpret_cast<T*>(&v);
  } else if constexpr (sizeof(T) == 4) {
    u32 v;
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
    x = *reinterpret_cast<T*>(&v);
  } else if constexpr (sizeof(T) == 2) {
    u16 v;
    asm("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(p));
    x = *reinterpret_cast<T*>(&v);
  } else {
    static_assert(sizeof(T) == 1, "1, 2, 4, 8 or 16 bytes");
    u16 v; /* the low byte */
    asm("ld.global.nc.u8 %0, [%1];" : "=h"(v) : "l"(p));
    x = *reinterpret_cast<T*>(&v);
  }
  return x;
}
/// 8 bytes of global memory, of which elements in bytes [from, to) are of use; zeros where these are none. Without a
/// branch, so that many are under way. Cached: through L1, of what no block writes while the kernel runs; else past it.
template <class T, bool Cached>
TW_DEVICE b64 load_piece(const b64* p, int from, int to) {
  b64 v;
  const bool there = from < to;
#define TW_LOAD_PIECE(HOW)                                                                                   \
  asm volatile("{ .reg .pred there; setp.ne.u32 there, %2, 0; mov.u32 %0, 0; mov.u32 %1, 0; "                \
               "@there ld.global" HOW ".v2.u32 {%0, %1}, [%3]; }"                                            \
               : "=&r"(v.x), "=&r"(v.y) : "r"(u32(there)), "l"(p) : "memory")
  if constexpr (Cached) TW_LOAD_PIECE("");
  else TW_LOAD_PIECE(".cg");
#undef TW_LOAD_PIECE
  return v;
}
/// What several threads read alike: L1 has it for all but one of them, the `first`, which alone is counted.
template <class T>
TW_DEVICE T read_alike(const T* p, bool) {
  return read_only(p);
}
/// The same of what the launch before may have written, after launches_ended.
template <class T>
TW_DEVICE T read_after_launch(const T* p, bool) {
  return *p;
}
/// The same of what other blocks have written: past L1.
template <class T>
TW_DEVICE T read_alike(T* p, bool) {
  return load_global(static_cast<const T*>(p));
}
/// `store_global`: past L1; `store_home`: with the caching that the device thinks best.
#define TW_STORE(NAME, HOW)                                                                                  \
  template <class T>                                                                                         \
  TW_DEVICE void NAME(T* p, T x) {                                                                           \
    if constexpr (sizeof(T) == 16) {                                                                         \
      const b128 v = *reinterpret_cast<b128*>(&x);                                                           \
      asm volatile("st.global" HOW ".v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y),           \
                   "r"(v.z), "r"(v.w) : "memory");                                                           \
    } else if constexpr (sizeof(T) == 8) {                                                                   \
      asm volatile("st.global" HOW ".u64 [%0], %1;" ::"l"(p), "l"(*reinterpret_cast<u64*>(&x)) : "memory");  \
    } else if constexpr (sizeof(T) == 4) {                                                                   \
      asm volatile("st.global" HOW ".u32 [%0], %1;" ::"l"(p), "r"(*reinterpret_cast<u32*>(&x)) : "memory");  \
    } else {                                                                                                 \
      static_assert(sizeof(T) <= 2, "1, 2, 4, 8 or 16 bytes");                                               \
      if constexpr (sizeof(T) == 2)                                                                          \
        asm volatile("st.global" HOW ".u16 [%0], %1;" ::"l"(p), "h"(*reinterpret_cast<u16*>(&x)) : "memory"); \
      else                                                                                                   \
        asm volatile("st.global" HOW ".u8 [%0], %1;" ::"l"(p), "h"(u16(*reinterpret_cast<unsigned char*>(&x))) : "memory"); \
    }                                                                                                        \
  }
TW_STORE(store_global, ".cg")
TW_STORE(store_home, "")
#undef TW_STORE
/// Adds in global memory, rounded to its type.
TW_DEVICE void atomic_add(float* p, float x) { atomicAdd(p, x); }
TW_DEVICE void atomic_add(double* p, double x) { atomicAdd(p, x); }
/// 16 bits are added with -0 beside them, which changes no number: hardware adds two, and a loop would have to add one.
TW_DEVICE u32* word_of(void* p) { return reinterpret_cast<u32*>(reinterpret_cast<u64>(p) & ~u64(3)); }
TW_DEVICE u32 beside_zero(const void* p, u16 bits) {
  return reinterpret_cast<u64>(p) & 2 ? u32(bits) << 16 | 0x8000u : 0x80000000u | bits;
}
TW_DEVICE void atomic_add(f16* p, float x) {
  asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(word_of(p)), "r"(beside_zero(p, Rounded<f16>::of(x).bits))
               : "memory");
}
TW_DEVICE void atomic_add(bf16* p, float x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(word_of(p)), "r"(beside_zero(p, Rounded<bf16>::of(x).bits))
               : "memory");
#else
  u32* const word = word_of(p);
  const bool high = (reinterpret_cast<u64>(p) & 2) != 0;
  u32 old = *word, seen;
  do {
    seen = old;
    const bf16 now{u16(high ? seen >> 16 : seen & 0xffffu)};
    const u32 sum = Rounded<bf16>::of(to_float(now) + x).bits;
    old = atomicCAS(word, seen, high ? (seen & 0xffffu) | (sum << 16) : (seen & 0xffff0000u) | sum);
  } while (old != seen);
#endif
}
/// Two of 16 bits, in one word.
TW_DEVICE void atomic_add_two(f16* p, float x, float y) {
  asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(p), "r"(Rounded<f16>::of(x).bits | u32(Rounded<f16>::of(y).bits) << 16)
               : "memory");
}
TW_DEVICE void atomic_add_two(bf16* p, float x, float y) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(p), "r"(Rounded<bf16>::of(x).bits | u32(Rounded<bf16>::of(y).bits) << 16)
               : "memory");
#else
  atomic_add(p, x);
  atomic_add(p + 1, y);
#endif
}
/// Four floats, the first on a multiple of 16 bytes.
TW_DEVICE void atomic_add_four(float* p, float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
#else
  atomic_add(p, a);
  atomic_add(p + 1, b);
  atomic_add(p + 2, c);
  atomic_add(p + 3, d);
#endif
}
TW_DEVICE void atomic_add(int* p, double x) { atomicAdd(p, Rounded<int>::of(x)); }

/// The larger and the smaller; NaN if one of them is.
TW_DEVICE float f_max(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return b > a || b != b ? b : a;
#endif
}
TW_DEVICE float f_min(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return b < a || b != b ? b : a;
#endif
}
TW_DEVICE double f_max(double a, double b) { return b > a || b != b ? b : a; }
TW_DEVICE double f_min(double a, double b) { return b < a || b != b ? b : a; }

/// The same for other ways to combine (kLargest, kSmallest, kTimes): again until nobody came between.
template <int How>
TW_DEVICE float combined_by(float a, float b) {
  return How == 1 ? f_max(a, b) : How == 2 ? f_min(a, b) : a * b;
}
template <int How>
TW_DEVICE double combined_by(double a, double b) {
  return How == 1 ? f_max(a, b) : How == 2 ? f_min(a, b) : a * b;
}
/// Floats of one sign are ordered as their bits are, of the other the other way round. The NaN of
/// largest bits is larger than every float so, and with a sign smaller than every one: it stays.
template <int How>
TW_DEVICE void atomic_combine(float* p, float x) {
  if constexpr (How == 1 || How == 2) {
    const bool largest = How == 1;
    const u32 bits = x == x ? __float_as_uint(x) : largest ? 0x7fffffffu : 0xffffffffu;
    const bool below = bits >> 31 != 0;
    if (largest && !below) atomicMax(reinterpret_cast<int*>(p), int(bits));
    if (largest && below) atomicMin(reinterpret_cast<u32*>(p), bits);
    if (!largest && !below) atomicMin(reinterpret_cast<int*>(p), int(bits));
    if (!largest && below) atomicMax(reinterpret_cast<u32*>(p), bits);
    return;
  }
  u32* const word = reinterpret_cast<u32*>(p);
  u32 old = *word, seen;
  do {
    seen = old;
    old = atomicCAS(word, seen, __float_as_uint(combined_by<How>(__uint_as_float(seen), x)));
  } while (old != seen);
}
template <int How>
TW_DEVICE void atomic_combine(double* p, double x) {
  u64* const word = reinterpret_cast<u64*>(p);
  u64 old = *word, seen;
  do {
    seen = old;
    old = atomicCAS(word, seen,
                    u64(__double_as_longlong(combined_by<How>(__longlong_as_double(i64(seen)), x))));
  } while (old != seen);
}
template <int How, class T>
TW_DEVICE void atomic_combine(T* p, float x) {  // 16 bits, in the word that has them
  u32* const word = reinterpret_cast<u32*>(reinterpret_cast<u64>(p) & ~u64(3));
  const bool high = (reinterpret_cast<u64>(p) & 2) != 0;
  u32 old = *word, seen;
  do {
    seen = old;
    const T now{u16(high ? seen >> 16 : seen & 0xffffu)};
    const u32 next = Rounded<T>::of(combined_by<How>(to_float(now), to_float(Rounded<T>::of(x)))).bits;
    old = atomicCAS(word, seen, high ? (seen & 0xffffu) | (next << 16) : (seen & 0xffff0000u) | next);
  } while (old != seen);
}
/// Integers: of them products, too, come out the same in whatever order blocks come.
template <int How>
TW_DEVICE int combined_integers(int a, int b) {
  return How == 0 ? a + b : How == 1 ? (a > b ? a : b) : How == 2 ? (a < b ? a : b) : a * b;
}
template <int How>
TW_DEVICE void combine_integers(int* p, int y) {
  int old = *p, seen;
  do {
    seen = old;
    old = atomicCAS(p, seen, combined_integers<How>(seen, y));
  } while (old != seen);
}
template <int How>
TW_DEVICE void combine_integers(signed char* p, int y) {  // in the word that has it
  u32* const word = reinterpret_cast<u32*>(reinterpret_cast<u64>(p) & ~u64(3));
  const int shift = int(reinterpret_cast<u64>(p) & 3) * 8;
  u32 old = *word, seen;
  do {
    seen = old;
    const int now = (signed char)(seen >> shift);
    const u32 next = u32(combined_integers<How>(now, y)) & 0xffu;
    old = atomicCAS(word, seen, (seen & ~(0xffu << shift)) | (next << shift));
  } while (old != seen);
}
template <int How>
TW_DEVICE void atomic_combine(int* p, float x) { combine_integers<How>(p, Rounded<int>::of(x)); }
template <int How>
TW_DEVICE void atomic_combine(int* p, double x) { combine_integers<How>(p, Rounded<int>::of(x)); }
template <int How>
TW_DEVICE void atomic_combine(signed char* p, float x) { combine_integers<How>(p, Rounded<signed char>::of(x)); }
template <int How>
TW_DEVICE void atomic_combine(signed char* p, double x) { combine_integers<How>(p, Rounded<signed char>::of(x)); }
TW_DEVICE void atomic_add(signed char* p, double x) { combine_integers<0>(p, Rounded<signed char>::of(x)); }

// ---- matrix instructions, by whole warps ---------------------------------------------------------
/// Four 8x8 matrices of 16-bit elements: lane i gives the address of row i % 8 of matrix i / 8
/// (16 bytes, aligned) and gets, in r[j], elements [lane / 4][lane % 4 * 2 .. + 1] of matrix j.
TW_DEVICE void ldmatrix4(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
/// The same of the transposed matrices: r[j] has elements [lane % 4 * 2 .. + 1][lane / 4].
TW_DEVICE void ldmatrix4_transposed(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
/// d[16x8] += a[16x16] * b[16x8], f32 sums. With g = lane / 4 and t = lane % 4:
///   d: [g][2t], [g][2t+1], [g+8][2t], [g+8][2t+1]
///   a, two elements a register: [g][2t..], [g+8][2t..], [g][2t+8..], [g+8][2t+8..]
///   b: [2t..][g], [2t+8..][g]
template <class T>
TW_DEVICE void mma_16x8x16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (Packed<T>::kBfloat)
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// d[16x8] += a[16x8] * b[8x8] in TF32: floats whose last 13 bits are not read. With g = lane / 4 and t = lane % 4:
///   a: [g][t], [g+8][t], [g][t+4], [g+8][t+4]
///   b: [t][g], [t+4][g]
TW_DEVICE void mma_16x8x8_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// WMMA (m16n16k16), the fragments' layout unknown: what Chimera's micro-kernel is made of.
struct WmmaOperand { u32 r[8]; };
struct WmmaSums { float r[8]; };
#define TW_WMMA_LOAD(NAME, SIDE, LAYOUT, TYPE)                                                       \
  TW_DEVICE void NAME(WmmaOperand& o, const TYPE* shared, int stride) {                              \
    asm volatile("wmma.load." SIDE ".sync.aligned." LAYOUT ".m16n16k16.shared.f16 "                  \
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"                                       \
                 : "=r"(o.r[0]), "=r"(o.r[1]), "=r"(o.r[2]), "=r"(o.r[3]), "=r"(o.r[4]),             \
                   "=r"(o.r[5]), "=r"(o.r[6]), "=r"(o.r[7])                                          \
                 : "r"(shared_address(shared)), "r"(stride) : "memory");                             \
  }
/// 16x16 of f16 in shared memory; `stride` elements between rows (columns, where transposed), a
/// multiple of 8; the address a multiple of 32 bytes.
TW_WMMA_LOAD(wmma_load_a, "a", "row", f16)
TW_WMMA_LOAD(wmma_load_a_transposed, "a", "col", f16)
TW_WMMA_LOAD(wmma_load_b, "b", "row", f16)
TW_WMMA_LOAD(wmma_load_b_transposed, "b", "col", f16)
#undef TW_WMMA_LOAD
/// 16x16 of f32 in shared memory; `stride` a multiple of 4.
TW_DEVICE void wmma_load_sums(WmmaSums& s, const float* shared, int stride) {
  asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
               "[%8], %9;"
               : "=f"(s.r[0]), "=f"(s.r[1]), "=f"(s.r[2]), "=f"(s.r[3]), "=f"(s.r[4]), "=f"(s.r[5]),
                 "=f"(s.r[6]), "=f"(s.r[7])
               : "r"(shared_address(shared)), "r"(stride) : "memory");
}
TW_DEVICE void wmma_store_sums(float* shared, const WmmaSums& s, int stride) {
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, "
               "%8}, %9;" ::"r"(shared_address(shared)),
               "f"(s.r[0]), "f"(s.r[1]), "f"(s.r[2]), "f"(s.r[3]), "f"(s.r[4]), "f"(s.r[5]),
               "f"(s.r[6]), "f"(s.r[7]), "r"(stride) : "memory");
}
#define TW_WMMA_MULTIPLY(LAYOUTS)                                                                     \
  asm volatile("wmma.mma.sync.aligned." LAYOUTS ".m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, "   \
               "%7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, "   \
               "%23}, {%0, %1, %2, %3, %4, %5, %6, %7};"                                             \
               : "+f"(s.r[0]), "+f"(s.r[1]), "+f"(s.r[2]), "+f"(s.r[3]), "+f"(s.r[4]),               \
                 "+f"(s.r[5]), "+f"(s.r[6]), "+f"(s.r[7])                                            \
               : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(a.r[4]), "r"(a.r[5]),       \
                 "r"(a.r[6]), "r"(a.r[7]), "r"(b.r[0]), "r"(b.r[1]), "r"(b.r[2]), "r"(b.r[3]),       \
                 "r"(b.r[4]), "r"(b.r[5]), "r"(b.r[6]), "r"(b.r[7]))
/// s += a * b; says which operands were loaded transposed.
template <bool A_transposed, bool B_transposed>
TW_DEVICE void wmma_multiply(WmmaSums& s, const WmmaOperand& a, const WmmaOperand& b) {
  if constexpr (A_transposed && B_transposed) TW_WMMA_MULTIPLY("col.col");
  else if constexpr (A_transposed) TW_WMMA_MULTIPLY("col.row");
  else if constexpr (B_transposed) TW_WMMA_MULTIPLY("row.col");
  else TW_WMMA_MULTIPLY("row.row");
}
#undef TW_WMMA_MULTIPLY

}  // namespace tw
#endif
