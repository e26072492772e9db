// What stitched kernels are made of: a thread's values moved as one, and sums over lanes.
#pragma once

#include "tilewright_products.h"

namespace tw {

#if defined(__CUDACC__)
#define TW_READ_IF(NAME, ASM, HOW, ORDER)                                                                    \
  template <class T>                                                                                         \
  TW_DEVICE T NAME(const T* p, bool in) {                                                                    \
    T x;                                                                                                     \
    if constexpr (sizeof(T) == 16) {                                                                         \
      b128 v;                                                                                                \
      ASM("{ .reg .pred in; setp.ne.u32 in, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"\
          " @in ld.global" HOW ".v4.u32 {%0, %1, %2, %3}, [%4]; }"                                           \
          : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w) : "l"(p), "r"(u32(in)) ORDER);                    \
      x = *reinterpret_cast<T*>(&v);                                                                         \
    } else if constexpr (sizeof(T) == 8) {                                                                   \
      u64 v;                                                                                                 \
      ASM("{ .reg .pred in; setp.ne.u32 in, %2, 0; mov.b64 %0, 0; @in ld.global" HOW ".u64 %0, [%1]; }"      \
          : "=&l"(v) : "l"(p), "r"(u32(in)) ORDER);                                                          \
      x = *reinterpret_cast<T*>(&v);                                                                         \
    } else if constexpr (sizeof(T) == 4) {                                                                   \
      u32 v;                                                                                                 \
      ASM("{ .reg .pred in; setp.ne.u32 in, %2, 0; mov.b32 %0, 0; @in ld.global" HOW ".u32 %0, [%1]; }"      \
          : "=&r"(v) : "l"(p), "r"(u32(in)) ORDER);                                                          \
      x = *reinterpret_cast<T*>(&v);                                                                         \
    } else if constexpr (sizeof(T) == 2) {                                                                   \
      u16 v;                                                                                                 \
      ASM("{ .reg .pred in; setp.ne.u32 in, %2, 0; mov.b16 %0, 0; @in ld.global" HOW ".u16 %0, [%1]; }"      \
          : "=&h"(v) : "l"(p), "r"(u32(in)) ORDER);                                                          \
      x = *reinterpret_cast<T*>(&v);                                                                         \
    } else {                                                                                                 \
      static_assert(sizeof(T) == 1, "1, 2, 4, 8 or 16 bytes");                                               \
      u16 v; /* the low byte */                                                                              \
      ASM("{ .reg .pred in; setp.ne.u32 in, %2, 0; mov.b16 %0, 0; @in ld.global" HOW ".u8 %0, [%1]; }"       \
          : "=&h"(v) : "l"(p), "r"(u32(in)) ORDER);                                                          \
      x = *reinterpret_cast<T*>(&v);                                                                         \
    }                                                                                                        \
    return x;                                                                                                \
  }
/// What is there, zeros where not `in`: without a branch, which loads of other turns would not pass. `read_if`: what no
/// block writes, in any order; `read_in_place`: under way where it stands.
TW_READ_IF(read_if, asm, ".nc", )
TW_READ_IF(read_in_place, asm volatile, "", : "memory")
#undef TW_READ_IF
#else
template <class T>
TW_DEVICE T read_if(const T* p, bool in) {
  return in ? read_only(p) : T{};
}
#endif

/// 1, which the compiler does not know.
TW_DEVICE int one_turn() {
#if defined(__CUDACC__)
  return gridDim.z;
#else
  return 1;
#endif
}

/// A tensor that the launch before may still be writing when this one begins. It is read in its place behind
/// launches_ended: ptxas moves reads that are `nc`, or whose assembly is not volatile, ahead of that. One that is not
/// const is read in its place as it is.
#if defined(__CUDACC__)
template <class T>
struct Launched {
  const T* at;
};
template <class T>
TW_DEVICE Launched<T> operator+(Launched<T> p, i64 n) {
  return {p.at + n};
}
template <class T>
TW_DEVICE Launched<T> operator-(Launched<T> p, i64 n) {
  return {p.at - n};
}
template <class T>
TW_DEVICE Launched<T> launched(const T* p) {
  return {p};
}
template <class T>
TW_DEVICE T* launched(T* p) {
  return p;
}
#else
template <class T>
TW_DEVICE T* launched(T* p) {
  return p;
}
#endif

template <int N, class T, class R>
TW_DEVICE void spread(R* to, const Several<T, N>& v) {
  TW_UNROLL
  for (int i = 0; i < N; ++i) to[i] = to_float(v.x[i]);
}
/// N elements, as floats (doubles); zeros where not `in`.
template <int N, class T, class R>
TW_DEVICE void load_several(R* to, const T* from) {
  spread(to, read_only(reinterpret_cast<const Several<T, N>*>(from)));
}
template <int N, class T, class R>
TW_DEVICE void load_several(R* to, const T* from, bool in) {
  spread(to, read_if(reinterpret_cast<const Several<T, N>*>(from), in));
}
/// The same, under way before the next barrier: ptxas moves reads that no block writes to where they are used.
template <int N, class T, class R>
TW_DEVICE void load_ahead(R* to, const T* from, bool in = true) {
#if defined(__CUDACC__)
  spread(to, read_in_place(reinterpret_cast<const Several<T, N>*>(from), in));
#else
  load_several<N>(to, from, in);
#endif
}
/// The same of a tensor that the kernel writes, whose address is not const: other blocks wrote it before a
/// barrier of all blocks, and L1 may hold what was there before.
template <int N, class T, class R>
TW_DEVICE void load_several(R* to, T* from) {
  spread(to, load_global(reinterpret_cast<const Several<T, N>*>(from)));
}
template <int N, class T, class R>
TW_DEVICE void load_several(R* to, T* from, bool in) {
  Several<T, N> v{};
  if (in) v = load_global(reinterpret_cast<const Several<T, N>*>(from));
  spread(to, v);
}
template <int N, class T, class R>
TW_DEVICE void load_ahead(R* to, T* from, bool in = true) {
  load_several<N>(to, from, in);
}
/// The same where all threads of a block are `in` or none is: a branch, which keeps the loads of rows that a
/// block may not have from being under way too early.
template <int N, class P, class R>
TW_DEVICE void load_together(R* to, P from, bool in) {
  if (in) return load_several<N>(to, from);
  TW_UNROLL
  for (int i = 0; i < N; ++i) to[i] = R(0);
}
/// What all threads of a block read alike: each loads it, so that none waits for another; L1 has it for all
/// but one of them, the `first`, which alone is counted.
template <int N, class T, class R>
TW_DEVICE void load_alike(R* to, const T* from, bool first) {
  spread(to, read_alike(reinterpret_cast<const Several<T, N>*>(from), first));
}
template <int N, class T, class R>
TW_DEVICE void load_alike(R* to, T* from, bool first) {
  spread(to, read_alike(reinterpret_cast<Several<T, N>*>(from), first));
}
template <int N, class P, class R>
TW_DEVICE void load_alike(R* to, P from, bool in, bool first) {
  if (in) return load_alike<N>(to, from, first);
  TW_UNROLL
  for (int i = 0; i < N; ++i) to[i] = R(0);
}
template <class T>
TW_DEVICE auto load_one(const T* from) -> decltype(to_float(*from)) {
  return to_float(read_only(from));
}
template <class T>
TW_DEVICE auto load_one(T* from) -> decltype(to_float(*from)) {
  return to_float(load_global(static_cast<const T*>(from)));
}
/// The same, zero where not `in`.
template <class T>
TW_DEVICE auto load_one(const T* from, bool in) -> decltype(to_float(*from)) {
  return to_float(read_if(from, in));
}
template <class T>
TW_DEVICE auto load_one(T* from, bool in) -> decltype(to_float(*from)) {
  return in ? load_one(from) : decltype(to_float(*from))(0);
}
#if defined(__CUDACC__)
template <int N, class T, class R>
TW_DEVICE void load_several(R* to, Launched<T> from, bool in = true) {
  spread(to, read_in_place(reinterpret_cast<const Several<T, N>*>(from.at), in));
}
template <int N, class T, class R>
TW_DEVICE void load_ahead(R* to, Launched<T> from, bool in = true) {
  load_several<N>(to, from, in);
}
template <int N, class T, class R>
TW_DEVICE void load_alike(R* to, Launched<T> from, bool) {
  load_several<N>(to, from);
}
template <class T>
TW_DEVICE auto load_one(Launched<T> from, bool in = true) -> decltype(to_float(*from.at)) {
  return to_float(read_in_place(from.at, in));
}
template <class T>
TW_DEVICE T read_alike(Launched<T> from, bool) {
  return read_in_place(from.at, true);
}
#endif
/// The same of elements that a row begins within: of its `first` ones the last alone is read.
template <int N, class P, class R>
TW_DEVICE void load_past_first(R* to, P from, bool first, bool in) {
  R last;
  load_several<N>(to, from, in && !first);
  load_several<1>(&last, from + (N - 1), in && first);
  if (first) to[N - 1] = last;
}
/// N neighbours in shared memory, from a multiple of so many on: to registers, and from there.
template <int N, class R>
TW_DEVICE void get_several(R* to, const R* from) {
  spread(to, *reinterpret_cast<const Several<R, N>*>(from));
}
template <int N, class R>
TW_DEVICE void put_several(R* to, const R* from) {
  Several<R, N> v;
  TW_UNROLL
  for (int i = 0; i < N; ++i) v.x[i] = from[i];
  *reinterpret_cast<Several<R, N>*>(to) = v;
}
template <int N, class T, class R>
TW_DEVICE void store_several(T* to, const R* from, bool in = true) {
  Several<T, N> v;
  TW_UNROLL
  for (int i = 0; i < N; ++i) v.x[i] = Rounded<T>::of(from[i]);
  if (in) store_home(reinterpret_cast<Several<T, N>*>(to), v);
}
/// Adds N neighbours, rounded to their type, to what is there; where the device can, as one access.
template <int N, class T, class R>
TW_DEVICE void add_several(T* to, const R* from, bool in = true) {
  if (!in) return;
  TW_UNROLL
  for (int i = 0; i < N; ++i) atomic_add(to + i, from[i]);
}
/// The same in another way than by adding.
template <int N, int How, class T, class R>
TW_DEVICE void combine_several(T* to, const R* from, bool in = true) {
  if (!in) return;
  TW_UNROLL
  for (int i = 0; i < N; ++i) atomic_combine<How>(to + i, from[i]);
}
#if __CUDA_ARCH__ >= 900
template <int N>
TW_DEVICE void add_several(float* to, const float* from, bool in = true) {
  if (!in) return;
  if constexpr (N == 4)
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(from[0]),
                 "f"(from[1]), "f"(from[2]), "f"(from[3])
                 : "memory");
  else if constexpr (N == 2)
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(from[0]), "f"(from[1])
                 : "memory");
  else
    atomic_add(to, from[0]);
}
#endif
template <class T, class R>
TW_DEVICE void store_one(T* to, R x) {
  store_home(to, Rounded<T>::of(x));
}

/// Combined over `Count` lanes (a power of two), `Stride` apart; each of them gets the result.
template <int Count, int Stride, class R, class Combine>
TW_DEVICE R over_lanes(R x, const Combine& f) {
  TW_UNROLL
  for (int mask = Count / 2; mask > 0; mask /= 2) x = f(x, shuffle_xor(x, mask * Stride));
  return x;
}

}  // namespace tw
