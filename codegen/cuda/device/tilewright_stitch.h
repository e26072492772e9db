// What stitched kernels are made of: a thread's values moved as one, and sums over lanes.
#pragma once

#include "tilewright_products.h"

#if defined(__CUDACC__)
#define TW_UNROLL_4 _Pragma("unroll 4")
#else
#define TW_UNROLL_4
#endif

namespace tw {

/// N neighbours, N * sizeof(T) at most 16, on a multiple of that.
template <class T, int N>
struct alignas(N * sizeof(T)) Several {
  T x[N];
};

/// N elements, as floats (doubles); zeros where not `in`.
template <int N, class T, class R>
TW_DEVICE void load_several(R* to, const T* from, bool in) {
  Several<T, N> v = {};
  if (in) v = read_only(reinterpret_cast<const Several<T, N>*>(from));
  TW_UNROLL
  for (int i = 0; i < N; ++i) to[i] = to_float(v.x[i]);
}
#if defined(__CUDACC__)
template <class T>
TW_DEVICE T read_alike(const T* p, bool) {
  return read_only(p);
}
#else
template <class T>
TW_DEVICE T read_alike(const T* p, bool first) {
  return first ? read_only(p) : *p;
}
#endif
/// What all threads of a block read alike: each loads it, so that none waits for another; L1 has it for all
/// but one of them, the `first`, which alone is counted.
template <int N, class T, class R>
TW_DEVICE void load_alike(R* to, const T* from, bool in, bool first) {
  Several<T, N> v = {};
  if (in) v = read_alike(reinterpret_cast<const Several<T, N>*>(from), first);
  TW_UNROLL
  for (int i = 0; i < N; ++i) to[i] = to_float(v.x[i]);
}
template <class T>
TW_DEVICE auto load_one(const T* from) -> decltype(to_float(*from)) {
  return to_float(read_only(from));
}
template <int N, class T, class R>
TW_DEVICE void store_several(T* to, const R* from, bool in) {
  Several<T, N> v;
  TW_UNROLL
  for (int i = 0; i < N; ++i) v.x[i] = Rounded<T>::of(from[i]);
  if (in) store_home(reinterpret_cast<Several<T, N>*>(to), v);
}
/// Adds N neighbours, rounded to their type, to what is there; where the device can, as one access.
template <int N, class T, class R>
TW_DEVICE void add_several(T* to, const R* from, bool in) {
  if (!in) return;
  TW_UNROLL
  for (int i = 0; i < N; ++i) atomic_add(to + i, from[i]);
}
#if __CUDA_ARCH__ >= 900
template <int N>
TW_DEVICE void add_several(float* to, const float* from, bool in) {
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

struct Sum { template <class R> TW_MEMBER R operator()(R a, R b) const { return a + b; } };
struct Product { template <class R> TW_MEMBER R operator()(R a, R b) const { return a * b; } };
struct Larger { template <class R> TW_MEMBER R operator()(R a, R b) const { return f_max(a, b); } };
struct Smaller { template <class R> TW_MEMBER R operator()(R a, R b) const { return f_min(a, b); } };

/// Combined over `Count` lanes (a power of two), `Stride` apart; each of them gets the result.
template <int Count, int Stride, class R, class Combine>
TW_DEVICE R over_lanes(R x, const Combine& f) {
  TW_UNROLL
  for (int mask = Count / 2; mask > 0; mask /= 2) x = f(x, shuffle_xor(x, mask * Stride));
  return x;
}

}  // namespace tw
