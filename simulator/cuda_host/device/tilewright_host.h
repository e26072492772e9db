// The names of tilewright_device.h on the CPU. Explicit functions call the runtime through a table
// (device_api.h); plain loads and stores reach it through the calls that -fsanitize=thread
// makes the compiler insert, which are defined here: libtsan is not linked.
#pragma once

#include <math.h>
#include <stddef.h>

#include "device_api.h"
#include "tilewright_half.h"

// A frame that a fiber's stack may not hold is an error; the limit is on the command line.
#if defined(__clang__)
#pragma clang diagnostic error "-Wframe-larger-than"
#else
#pragma GCC diagnostic error "-Wframe-larger-than=131072"
#if __GNUC__ >= 12
// A store that is moved behind a loop is read before it, where perhaps nobody has written.
#pragma GCC optimize("no-move-loop-stores")
#endif
#endif

#define __global__ __attribute__((visibility("default")))
#define __launch_bounds__(...)
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define TW_DEVICE static inline __attribute__((always_inline, unused))
#define TW_CALLED static __attribute__((noinline, unused))
#define TW_SHARED(name) \
  [[maybe_unused]] unsigned char *const name##_begin = tw_host_self()->shared, *const name = name##_begin
#define TW_TENSOR_MAP(name) tw::TensorMap name
#define TW_CLUSTER(blocks)
#define TW_UNROLL
#define TW_NO_UNROLL

// ---- the running thread ------------------------------------------------------------------------
#define TW_UNCHECKED __attribute__((no_sanitize("thread"), unused))
static inline __attribute__((always_inline, unused)) tw_thread* tw_host_self(void) {
  return (tw_thread*)((uintptr_t)__builtin_frame_address(0) & ~(TW_STACK_BYTES - 1));
}

struct tw_host_dim3 {
  unsigned x, y, z;
};
static inline __attribute__((always_inline)) tw_host_dim3 tw_host_index(unsigned x, unsigned rest) {
  return {x, rest, rest};
}
#define threadIdx (tw_host_index(tw_host_self()->thread, 0))
#define blockIdx (tw_host_index(tw_host_self()->block, 0))
#define blockDim (tw_host_index(tw_host_self()->threads, 1))
#define gridDim (tw_host_index(tw_host_self()->blocks, 1))

// ---- plain loads and stores --------------------------------------------------------------------
// Inlined into each hook, so that the hook's return address is the place of the access.
#define TW_HOST_ACCESS(POINTER, BYTES, FLAGS)                                                 \
  do {                                                                                        \
    const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);                            \
    if (((uintptr_t)(POINTER) ^ frame) >= TW_STACK_BYTES) { /* not this thread's own stack */ \
      tw_thread* const self = (tw_thread*)(frame & ~(TW_STACK_BYTES - 1));                    \
      self->api.access(self, POINTER, BYTES, FLAGS, __builtin_return_address(0));             \
    }                                                                                         \
  } while (0)
#define TW_HOST_HOOK(NAME, BYTES, FLAGS) \
  extern "C" TW_UNCHECKED void NAME(void* p) { TW_HOST_ACCESS(p, BYTES, FLAGS); }
#define TW_HOST_HOOKS(BYTES)                                                  \
  TW_HOST_HOOK(__tsan_read##BYTES, BYTES, TW_READ)                            \
  TW_HOST_HOOK(__tsan_write##BYTES, BYTES, TW_WRITE)                          \
  TW_HOST_HOOK(__tsan_volatile_read##BYTES, BYTES, TW_READ)                   \
  TW_HOST_HOOK(__tsan_volatile_write##BYTES, BYTES, TW_WRITE)                 \
  TW_HOST_HOOK(__tsan_unaligned_read##BYTES, BYTES, TW_READ | TW_UNALIGNED)   \
  TW_HOST_HOOK(__tsan_unaligned_write##BYTES, BYTES, TW_WRITE | TW_UNALIGNED) \
  extern "C" TW_UNCHECKED void __tsan_read_write##BYTES(void* p) {            \
    TW_HOST_ACCESS(p, BYTES, TW_READ);                                        \
    TW_HOST_ACCESS(p, BYTES, TW_WRITE);                                       \
  }                                                                           \
  extern "C" TW_UNCHECKED void __tsan_unaligned_read_write##BYTES(void* p) {  \
    TW_HOST_ACCESS(p, BYTES, TW_READ | TW_UNALIGNED);                         \
    TW_HOST_ACCESS(p, BYTES, TW_WRITE | TW_UNALIGNED);                        \
  }
TW_HOST_HOOKS(1)
TW_HOST_HOOKS(2)
TW_HOST_HOOKS(4)
TW_HOST_HOOKS(8)
TW_HOST_HOOKS(16)
#undef TW_HOST_HOOKS
#undef TW_HOST_HOOK

extern "C" {
TW_UNCHECKED void __tsan_init(void) {}
TW_UNCHECKED void __tsan_func_entry(void*) {}
TW_UNCHECKED void __tsan_func_exit(void) {}
TW_UNCHECKED void __tsan_read_range(void* p, unsigned long n) {
  TW_HOST_ACCESS(p, n, TW_READ | TW_UNALIGNED);
}
TW_UNCHECKED void __tsan_write_range(void* p, unsigned long n) {
  TW_HOST_ACCESS(p, n, TW_WRITE | TW_UNALIGNED);
}
// Copies of whole structs: recent clangs call the first names, GCC and older clangs the C
// library's, which are defined hidden so that those calls come here. Byte by byte and volatile, or
// a compiler would make each a call of itself.
#define TW_HOST_COPY(NAME)                                                      \
  __attribute__((visibility("hidden"))) TW_UNCHECKED void* NAME(                \
      void* __restrict to, const void* __restrict from, size_t n) TW_NOEXCEPT { \
    TW_HOST_ACCESS(from, n, TW_READ | TW_UNALIGNED);                            \
    TW_HOST_ACCESS(to, n, TW_WRITE | TW_UNALIGNED);                             \
    for (size_t i = 0; i < n; ++i)                                              \
      ((volatile unsigned char*)to)[i] = ((const unsigned char*)from)[i];       \
    return to;                                                                  \
  }
#define TW_HOST_MOVE(NAME)                                                                  \
  __attribute__((visibility("hidden"))) TW_UNCHECKED void* NAME(void* to, const void* from, \
                                                                size_t n) TW_NOEXCEPT {     \
    TW_HOST_ACCESS(from, n, TW_READ | TW_UNALIGNED);                                        \
    TW_HOST_ACCESS(to, n, TW_WRITE | TW_UNALIGNED);                                         \
    const bool down = (uintptr_t)to > (uintptr_t)from;                                      \
    for (size_t i = 0; i < n; ++i) {                                                        \
      const size_t at = down ? n - 1 - i : i;                                               \
      ((volatile unsigned char*)to)[at] = ((const volatile unsigned char*)from)[at];        \
    }                                                                                       \
    return to;                                                                              \
  }
#define TW_HOST_SET(NAME)                                                                  \
  __attribute__((visibility("hidden"))) TW_UNCHECKED void* NAME(void* to, int x, size_t n) \
      TW_NOEXCEPT {                                                                        \
    TW_HOST_ACCESS(to, n, TW_WRITE | TW_UNALIGNED);                                        \
    for (size_t i = 0; i < n; ++i) ((volatile unsigned char*)to)[i] = (unsigned char)x;    \
    return to;                                                                             \
  }
#define TW_NOEXCEPT
TW_HOST_COPY(__tsan_memcpy)
TW_HOST_MOVE(__tsan_memmove)
TW_HOST_SET(__tsan_memset)
#undef TW_NOEXCEPT
#define TW_NOEXCEPT noexcept  // as the C library declares them
TW_HOST_COPY(memcpy)
TW_HOST_MOVE(memmove)
TW_HOST_SET(memset)
#undef TW_NOEXCEPT
#undef TW_HOST_COPY
#undef TW_HOST_MOVE
#undef TW_HOST_SET
}  // extern "C"

// ---- launching: one typed call a kernel ---------------------------------------------------------
template <unsigned... I>
struct tw_host_indices {};
template <unsigned N, unsigned... I>
struct tw_host_range : tw_host_range<N - 1, N - 1, I...> {};
template <unsigned... I>
struct tw_host_range<0, I...> {
  using type = tw_host_indices<I...>;
};
template <class... A>
constexpr int tw_host_count(void (*)(A...)) {
  return int(sizeof...(A));
}
template <class... A, unsigned... I>
TW_UNCHECKED void tw_host_invoke(void (*kernel)(A...), void* const* p, tw_host_indices<I...>) {
  kernel(static_cast<A>(p[I])...);
}
template <class... A>
TW_UNCHECKED void tw_host_call(void (*kernel)(A...), void* const* p) {
  tw_host_invoke(kernel, p, typename tw_host_range<sizeof...(A)>::type());
}
#define TW_HOST_KERNEL(NAME)                                                                       \
  extern "C" __attribute__((visibility("default"))) TW_UNCHECKED int tw_host_parameters_##NAME() { \
    return tw_host_count(NAME);                                                                    \
  }                                                                                                \
  extern "C" __attribute__((visibility("default")))                                                \
  TW_UNCHECKED void tw_host_call_##NAME(void* const* p) {                                          \
    tw_host_call(NAME, p);                                                                         \
  }

namespace tw {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i32 = int;
using i64 = long long;

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct alignas(16) b128 {
  u32 x, y, z, w;
};
struct alignas(8) b64 {
  u32 x, y;
};

TW_DEVICE float to_float(float x) { return x; }
TW_DEVICE double to_float(double x) { return x; }
TW_DEVICE float to_float(int x) { return float(x); }
TW_DEVICE float to_float(signed char x) { return float(x); }
TW_DEVICE float to_float(f16 x) { return tw_half::float_of_f16(x.bits); }
TW_DEVICE float to_float(bf16 x) { return tw_half::float_of_bf16(x.bits); }

template <class T>
struct Rounded;
template <>
struct Rounded<float> {
  static __forceinline__ float of(float x) { return x; }
};
template <>
struct Rounded<double> {
  static __forceinline__ double of(double x) { return x; }
};
template <>
struct Rounded<f16> {
  static __forceinline__ f16 of(float x) { return {tw_half::f16_of_float(x)}; }
};
template <>
struct Rounded<bf16> {
  static __forceinline__ bf16 of(float x) { return {tw_half::bf16_of_float(x)}; }
};
template <>
struct Rounded<int> {
  template <class R>
  static __forceinline__ int of(R x) {
    return x != x                     ? 0
           : double(x) <= -2147483648.0 ? -2147483647 - 1
           : double(x) >= 2147483647.0  ? 2147483647
                                        : int(__builtin_nearbyint(double(x)));
  }
};
template <>
struct Rounded<signed char> {
  template <class R>
  static __forceinline__ signed char of(R x) {
    const int y = Rounded<int>::of(x);
    return static_cast<signed char>(y < -128 ? -128 : y > 127 ? 127 : y);
  }
};
template <class T>
struct Packed;
template <>
struct Packed<f16> {
  static constexpr bool kBfloat = false;
  static __forceinline__ u32 of(float low, float high) {
    return u32(tw_half::f16_of_float(low)) | u32(tw_half::f16_of_float(high)) << 16;
  }
};
template <>
struct Packed<bf16> {
  static constexpr bool kBfloat = true;
  static __forceinline__ u32 of(float low, float high) {
    return u32(tw_half::bf16_of_float(low)) | u32(tw_half::bf16_of_float(high)) << 16;
  }
};

// Each is one call of the runtime, inlined, so that its return address is a place in the kernel.
// clang would make one call of those that end two branches, whose line is then neither's.
#if defined(__clang__)
#define TW_OWN_CALL [[clang::nomerge]]
#else
#define TW_OWN_CALL
#endif
#define TW_CALL(NAME, ...)                           \
  do {                                               \
    tw_thread* const self = tw_host_self();          \
    TW_OWN_CALL self->api.NAME(self, ##__VA_ARGS__); \
  } while (0)

TW_DEVICE void block_sync() { TW_CALL(block_sync); }
TW_DEVICE void warp_sync() { TW_CALL(warp_sync); }
TW_DEVICE void barrier(int id, int threads) { TW_CALL(barrier, id, threads); }
TW_DEVICE void grid_sync(u32* counter) { TW_CALL(grid_sync, counter); }
TW_DEVICE float shuffle_any(float x, int how, int operand) {
  tw_thread* const self = tw_host_self();
  u32 bits;
  TW_OWN_CALL bits = self->api.shuffle(self, tw_half::bits_of_float(x), how, operand);
  return tw_half::float_of_bits(bits);
}
TW_DEVICE float shuffle_xor(float x, int mask) { return shuffle_any(x, TW_SHUFFLE_XOR, mask); }
TW_DEVICE float shuffle_down(float x, int by) { return shuffle_any(x, TW_SHUFFLE_DOWN, by); }
TW_DEVICE float shuffle(float x, int lane) { return shuffle_any(x, TW_SHUFFLE_INDEX, lane); }
TW_DEVICE double shuffle_any(double x, int how, int operand) {
  union {
    double value;
    u32 half[2];
  } both = {x};
  tw_thread* const self = tw_host_self();
  TW_OWN_CALL both.half[0] = self->api.shuffle(self, both.half[0], how, operand);
  TW_OWN_CALL both.half[1] = self->api.shuffle(self, both.half[1], how, operand);
  return both.value;
}
TW_DEVICE double shuffle_xor(double x, int mask) { return shuffle_any(x, TW_SHUFFLE_XOR, mask); }
TW_DEVICE double shuffle(double x, int lane) { return shuffle_any(x, TW_SHUFFLE_INDEX, lane); }
TW_DEVICE u32 ballot(bool p) {
  tw_thread* const self = tw_host_self();
  u32 votes;
  TW_OWN_CALL votes = self->api.ballot(self, p);
  return votes;
}

TW_DEVICE int same_in_warp(int x) { return x; }
TW_DEVICE bool one_of_warp() {
  (void)ballot(true);  // all come here
  return threadIdx.x % 32 == 0;
}

TW_DEVICE u32 shared_address(const void* p) {
  return u32((const unsigned char*)p - tw_host_self()->shared);
}
TW_DEVICE void mbarrier_init(u64* b, u32 arrivals) { TW_CALL(mbarrier_init, b, arrivals); }
TW_DEVICE void mbarrier_arrive(u64* b) { TW_CALL(mbarrier_arrive, b); }
TW_DEVICE void mbarrier_arrive_after_copies(u64* b) { TW_CALL(mbarrier_arrive_after_copies, b); }
TW_DEVICE int made_here(int x) { return x; }
TW_DEVICE float made_here(float x) { return x; }
template <class T>
TW_DEVICE T* made_here(T* p) {
  return p;
}
template <class T>
TW_DEVICE T* there_if(bool in, T* p) {
  return in ? p : nullptr;
}
TW_DEVICE void mbarrier_wait(u64* b, u32 parity) { TW_CALL(mbarrier_wait, b, parity); }

TW_DEVICE void cp_async16(void* shared, const void* global, int valid) {
  TW_CALL(cp_async, shared, global, 16, valid);
}
template <int Bytes>
TW_DEVICE void cp_async_piece(void* shared, const void* global, int valid) {
  static_assert(Bytes == 4 || Bytes == 8, "");
  TW_CALL(cp_async, shared, global, Bytes, valid);
}
template <int Bytes, int To, int From>
TW_DEVICE void cp_async_at(void* shared, const void* global, int valid) {
  const u64 to = reinterpret_cast<u64>(shared) + u64(To), from = reinterpret_cast<u64>(global) + u64(From);
  TW_CALL(cp_async, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), Bytes, valid);
}
TW_DEVICE void cp_async_commit() { TW_CALL(cp_async_commit); }
template <int N>
TW_DEVICE void cp_async_wait() {
  TW_CALL(cp_async_wait, N);
}
template <class T>
TW_DEVICE T load_global(const T* p) {
  static_assert(
      sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "");
  T x;
  TW_CALL(load_global, &x, p, u32(sizeof(T)));
  return x;
}
template <class T>
TW_DEVICE T read_only(const T* p) {
  T x;
  TW_CALL(load_global, &x, p, u32(sizeof(T)));
  return x;
}
/// Only what is of use is read, and counted.
template <class T, bool Cached>
TW_DEVICE b64 load_piece(const b64* p, int from, int to) {
  union {
    b64 all;
    T each[8 / sizeof(T)];
  } piece{b64{}};
  for (int i = from / int(sizeof(T)); i * int(sizeof(T)) < to; ++i)
    piece.each[i] = load_global(reinterpret_cast<const T*>(p) + i);
  return piece.all;
}
template <class T>
TW_DEVICE T read_alike(const T* p, bool first) {
  return first ? read_only(p) : *p;
}
template <class T>
TW_DEVICE T read_after_launch(const T* p, bool first) {
  return read_alike(p, first);
}
template <class T>
TW_DEVICE T read_alike(T* p, bool first) {
  return read_alike(static_cast<const T*>(p), first);
}
template <class T>
TW_DEVICE void store_global(T* p, T x) {
  static_assert(
      sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "");
  TW_CALL(store_global, p, &x, u32(sizeof(T)));
}
template <class T>
TW_DEVICE void store_home(T* p, T x) {
  store_global(p, x);
}
TW_DEVICE void atomic_add(float* p, float x) { TW_CALL(atomic_add, p, TW_F32, x); }
TW_DEVICE void atomic_add(double* p, double x) { TW_CALL(atomic_add, p, TW_F64, x); }
TW_DEVICE void atomic_add(f16* p, float x) { TW_CALL(atomic_add, p, TW_F16, x); }
TW_DEVICE void atomic_add(bf16* p, float x) { TW_CALL(atomic_add, p, TW_BF16, x); }
template <class T>
TW_DEVICE void atomic_add_two(T* p, float x, float y) {
  atomic_add(p, x);
  atomic_add(p + 1, y);
}
TW_DEVICE void atomic_add_four(float* p, float a, float b, float c, float d) {
  atomic_add(p, a);
  atomic_add(p + 1, b);
  atomic_add(p + 2, c);
  atomic_add(p + 3, d);
}
TW_DEVICE void atomic_add(int* p, double x) { TW_CALL(atomic_add, p, TW_I32, Rounded<int>::of(x)); }
TW_DEVICE void atomic_add(signed char* p, double x) {
  TW_CALL(atomic_add, p, TW_I8, Rounded<signed char>::of(x));
}
/// The larger and the smaller; NaN if one of them is.
TW_DEVICE float f_max(float a, float b) { return b > a || b != b ? b : a; }
TW_DEVICE float f_min(float a, float b) { return b < a || b != b ? b : a; }
TW_DEVICE double f_max(double a, double b) { return b > a || b != b ? b : a; }
TW_DEVICE double f_min(double a, double b) { return b < a || b != b ? b : a; }
template <int How>
TW_DEVICE void atomic_combine(float* p, float x) { TW_CALL(atomic_add, p, TW_F32 + 16 * How, x); }
template <int How>
TW_DEVICE void atomic_combine(double* p, double x) { TW_CALL(atomic_add, p, TW_F64 + 16 * How, x); }
template <int How>
TW_DEVICE void atomic_combine(f16* p, float x) { TW_CALL(atomic_add, p, TW_F16 + 16 * How, x); }
template <int How>
TW_DEVICE void atomic_combine(bf16* p, float x) { TW_CALL(atomic_add, p, TW_BF16 + 16 * How, x); }
template <int How>
TW_DEVICE void atomic_combine(int* p, double x) {
  TW_CALL(atomic_add, p, TW_I32 + 16 * How, Rounded<int>::of(x));
}
template <int How>
TW_DEVICE void atomic_combine(signed char* p, double x) {
  TW_CALL(atomic_add, p, TW_I8 + 16 * How, Rounded<signed char>::of(x));
}

TW_DEVICE void ldmatrix4(u32 (&r)[4], const void* row) { TW_CALL(ldmatrix4, r, row, 0); }
TW_DEVICE void ldmatrix4_transposed(u32 (&r)[4], const void* row) { TW_CALL(ldmatrix4, r, row, 1); }
template <class T>
TW_DEVICE void mma_16x8x16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  TW_CALL(mma_16x8x16, d, a, b0, b1, Packed<T>::kBfloat);
}
TW_DEVICE void mma_16x8x8_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  TW_CALL(mma_16x8x8_tf32, d, a, b0, b1);
}
struct WmmaOperand {
  u32 r[8];
};
struct WmmaSums {
  float r[8];
};
TW_DEVICE void wmma_load_a(WmmaOperand& o, const f16* shared, int stride) {
  TW_CALL(wmma_load, o.r, shared, stride, 0, 0);
}
TW_DEVICE void wmma_load_a_transposed(WmmaOperand& o, const f16* shared, int stride) {
  TW_CALL(wmma_load, o.r, shared, stride, 0, 1);
}
TW_DEVICE void wmma_load_b(WmmaOperand& o, const f16* shared, int stride) {
  TW_CALL(wmma_load, o.r, shared, stride, 1, 0);
}
TW_DEVICE void wmma_load_b_transposed(WmmaOperand& o, const f16* shared, int stride) {
  TW_CALL(wmma_load, o.r, shared, stride, 1, 1);
}
TW_DEVICE void wmma_load_sums(WmmaSums& s, const float* shared, int stride) {
  TW_CALL(wmma_load_sums, s.r, shared, stride);
}
TW_DEVICE void wmma_store_sums(float* shared, const WmmaSums& s, int stride) {
  TW_CALL(wmma_store_sums, shared, s.r, stride);
}
template <bool A_transposed, bool B_transposed>
TW_DEVICE void wmma_multiply(WmmaSums& s, const WmmaOperand& a, const WmmaOperand& b) {
  TW_CALL(wmma_multiply, s.r, a.r, b.r, A_transposed, B_transposed);
}


// What tilewright_hopper.h has.
using TensorMap = const tw_box_map*;
TW_DEVICE void mbarriers_made() { TW_CALL(mbarriers_made); }
TW_DEVICE void mbarrier_arrive_expecting(u64* b, u32 bytes) {
  TW_CALL(mbarrier_arrive_expecting, b, bytes);
}
TW_DEVICE void load_box(void* shared, TensorMap map, u64* b, int x, int y, int z) {
  TW_CALL(load_box, shared, map, b, x, y, z);
}
TW_DEVICE void load_box_for(void* shared, TensorMap map, u64* b, int x, int y, int z, u32 mask) {
  TW_CALL(load_box_for, shared, map, b, x, y, z, mask);
}
TW_DEVICE void load_box_of_images(void* shared, TensorMap map, u64* b, int c, int x, int y, int z, int image) {
  const int at[5] = {c, x, y, z, image};
  TW_CALL(load_box_of_images, shared, map, b, at);
}
TW_DEVICE void mbarrier_arrive_of_block(u64* b, u32 rank) { TW_CALL(mbarrier_arrive_of_block, b, rank); }
TW_DEVICE void store_box(TensorMap map, const void* shared, int x, int y, int z) {
  TW_CALL(store_box, map, shared, x, y, z);
}
TW_DEVICE void prefetch_map(TensorMap) {}
TW_DEVICE void stmatrix4_transposed(void* row, const u32 (&r)[4]) {
  TW_CALL(stmatrix4_transposed, row, r);
}
TW_DEVICE void store_boxes_commit() { TW_CALL(store_boxes_commit); }
template <int N>
TW_DEVICE void store_boxes_read() {
  TW_CALL(store_boxes_read, N);
}
TW_DEVICE void launches_ended() { TW_CALL(launches_ended); }
TW_DEVICE void next_launch_may_begin() {}
TW_DEVICE void shared_for_async() { TW_CALL(shared_for_async); }
TW_DEVICE void cluster_sync() { TW_CALL(cluster_sync); }
TW_DEVICE void cluster_meet() { TW_CALL(cluster_sync); }
TW_DEVICE b128 load_of_block(const void* shared, u32 rank) {
  b128 v;
  TW_CALL(load_of_block, &v, shared, rank);
  return v;
}
template <int N>
TW_DEVICE void fewer_registers() {}
template <int N>
TW_DEVICE void more_registers() {}
TW_DEVICE float exp2_quick(float x) { return __builtin_exp2f(x); }
TW_DEVICE u64 operand_at(const void* shared, u32 leading) {
  return u64((shared_address(shared) & 0x3ffff) >> 4) | u64(leading >> 4) << 16 |
         u64(1024 >> 4) << 32 | u64(1) << 62;
}
TW_DEVICE void wgmma_begin() { TW_CALL(wgmma_begin); }
TW_DEVICE void wgmma_commit() { TW_CALL(wgmma_commit); }
template <int N>
TW_DEVICE void wgmma_wait() {
  TW_CALL(wgmma_wait, N);
}
template <class T, int N>
TW_DEVICE void keep(T (&)[N]) {}
template <int N>
struct Wgmma {
  template <class T, bool A_across, bool B_across>
  static __forceinline__ void multiply(float (&d)[N / 2], u64 a, u64 b, int add) {
    TW_CALL(wgmma, d, N, a, b, add,
            (A_across ? TW_A_ACROSS : 0) | (B_across ? TW_B_ACROSS : 0) |
                (Packed<T>::kBfloat ? TW_BFLOAT : 0));
  }
  template <class T, bool B_across>
  static __forceinline__ void multiply_registers(float (&d)[N / 2], const u32 (&a)[4], u64 b) {
    TW_CALL(wgmma_registers, d, N, a, b,
            (B_across ? TW_B_ACROSS : 0) | (Packed<T>::kBfloat ? TW_BFLOAT : 0));
  }
};

#undef TW_CALL
#undef TW_OWN_CALL
}  // namespace tw
