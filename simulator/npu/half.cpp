#include "simulator/npu/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "simulator/cuda_host/device/tilewright_half.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define TILEWRIGHT_AVX512 __attribute__((target("avx512f")))
#define TILEWRIGHT_F16C __attribute__((target("avx,f16c")))
#endif

namespace tilewright::npu {
namespace {

#if defined(__x86_64__)
bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f");
  return has;
}

TILEWRIGHT_AVX512 std::size_t floats_avx512(const std::uint16_t* from, float* to, std::size_t n) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(h));
  }
  return i;
}

TILEWRIGHT_AVX512 std::size_t halves_avx512(const float* from, std::uint16_t* to, std::size_t n) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 x = _mm512_loadu_ps(from + i);
    if (_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0) break;  // NaN: one by one
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return i;
}

bool has_f16c() {
  static const bool has = [] {  // Clang 14 does not know it by name
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           (c & bit_F16C) != 0;
  }();
  return has;
}

TILEWRIGHT_F16C std::size_t floats_f16c(const std::uint16_t* from, float* to, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(h));
  }
  return i;
}

TILEWRIGHT_F16C std::size_t halves_f16c(const float* from, std::uint16_t* to, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(from + i);
    if (_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0) break;  // NaN: one by one
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return i;
}
#endif

}  // namespace

void floats_of_halves(const std::uint16_t* from, float* to, std::size_t n) {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (has_avx512())
    i = floats_avx512(from, to, n);
  else if (has_f16c())
    i = floats_f16c(from, to, n);
#endif
  for (; i < n; ++i) to[i] = tw_half::float_of_f16(from[i]);
}

void halves_of_floats(const float* from, std::uint16_t* to, std::size_t n) {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (has_avx512())
    i = halves_avx512(from, to, n);
  else if (has_f16c())
    i = halves_f16c(from, to, n);
#endif
  for (; i < n; ++i) to[i] = tw_half::f16_of_float(from[i]);
}

namespace {

template <class T>
void floats_of(const std::byte* from, float* to, std::size_t n) {
  const auto* const values = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<float>(values[i]);
}

template <class T>
void integers_of(const float* from, std::byte* to, std::size_t n) {
  auto* const values = reinterpret_cast<T*>(to);
  for (std::size_t i = 0; i < n; ++i) {
    const double x = std::nearbyint(static_cast<double>(from[i]));
    values[i] = x != x ? T{}
                       : static_cast<T>(std::clamp(x, double{std::numeric_limits<T>::lowest()},
                                                   double{std::numeric_limits<T>::max()}));
  }
}

void floats_of_bf16(const std::uint16_t* from, float* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16);
}

void bf16_of_floats(const float* from, std::uint16_t* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    to[i] = static_cast<std::uint16_t>(nan ? 0x7fffU : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  }
}

}  // namespace

void load_elements(const std::byte* from, DType type, float* to, std::size_t n) {
  switch (type) {
    case DType::f32:
      std::memcpy(to, from, n * sizeof(float));
      return;
    case DType::f16:
      return floats_of_halves(reinterpret_cast<const std::uint16_t*>(from), to, n);
    case DType::bf16:
      return floats_of_bf16(reinterpret_cast<const std::uint16_t*>(from), to, n);
    case DType::i8:
      return floats_of<std::int8_t>(from, to, n);
    case DType::i32:
      return floats_of<std::int32_t>(from, to, n);
    case DType::f64:
      break;
  }
  TW_CHECK(false, "elements of f64");
}

void store_elements(const float* from, DType type, std::byte* to, std::size_t n) {
  switch (type) {
    case DType::f32:
      std::memcpy(to, from, n * sizeof(float));
      return;
    case DType::f16:
      return halves_of_floats(from, reinterpret_cast<std::uint16_t*>(to), n);
    case DType::bf16:
      return bf16_of_floats(from, reinterpret_cast<std::uint16_t*>(to), n);
    case DType::i8:
      return integers_of<std::int8_t>(from, to, n);
    case DType::i32:
      return integers_of<std::int32_t>(from, to, n);
    case DType::f64:
      break;
  }
  TW_CHECK(false, "elements of f64");
}

#if defined(__x86_64__)
namespace {

/// 8 x 8 halves, rows 16 apart: three rounds of interleaving 16, 32 and 64 bits (SSE2).
void transpose_8(const std::uint16_t* from, std::uint16_t* to) {
  __m128i a[8], b[8];
  for (int r = 0; r < 8; ++r)
    a[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * r));
  for (int r = 0; r < 4; ++r) {
    b[2 * r] = _mm_unpacklo_epi16(a[r], a[r + 4]);
    b[2 * r + 1] = _mm_unpackhi_epi16(a[r], a[r + 4]);
  }
  for (int r = 0; r < 4; ++r) {
    a[2 * r] = _mm_unpacklo_epi16(b[r], b[r + 4]);
    a[2 * r + 1] = _mm_unpackhi_epi16(b[r], b[r + 4]);
  }
  for (int r = 0; r < 4; ++r) {
    b[2 * r] = _mm_unpacklo_epi16(a[r], a[r + 4]);
    b[2 * r + 1] = _mm_unpackhi_epi16(a[r], a[r + 4]);
  }
  for (int r = 0; r < 8; ++r) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * r), b[r]);
}

}  // namespace

void transpose_fractal(const std::uint16_t* from, std::uint16_t* to) {
  for (int r = 0; r < 16; r += 8) {
    for (int c = 0; c < 16; c += 8) transpose_8(from + 16 * r + c, to + 16 * c + r);
  }
}
#else
void transpose_fractal(const std::uint16_t* from, std::uint16_t* to) {
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < 16; ++c) to[16 * c + r] = from[16 * r + c];
  }
}
#endif

}  // namespace tilewright::npu
