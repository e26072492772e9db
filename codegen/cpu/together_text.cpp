// Operands of several steps of the depth at once, as source: pairs of bfloat16, quads and pairs of
// whole numbers of 8 bits.
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kPaired = R"(
// What of an input's tile has been paired already.
template <int R>
struct Paired {
  Box<R> held{};
  const Real* from = nullptr;
  int64_t columns = 0, depth = 0;
  bool is(const Box<R>& now, const Real* b, int64_t n, int64_t k) {
    if (from == b && columns == n && depth == k && equal(held, now)) return true;
    held = now, from = b, columns = n, depth = k;
    return false;
  }
};
)";

constexpr const char* kPairs = R"(
// Products of bfloat16: an element of A and of B is a pair of them, of two steps of the depth (the last
// with zero where there is none), and one instruction adds both products. Sums are f32.
template <class After>
struct Pairs : After {
  static constexpr int kSteps = 2;
};
template <class After>
Pairs<After> pairs(After after) {
  return {after};
}
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector step<2>(Vector sum, Real x, Vector row) {
  return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_castps_si512(_mm512_set1_ps(x)),
                                  (__m512bh)row);
}
// 16 pairs from 32 elements that follow one another, of which `n` are there.
TILEWRIGHT_TARGET inline Vector pairs_along(const Real* p, int64_t n) {
  const Vector first = n >= kLanes ? *reinterpret_cast<const Unaligned*>(p)
                                   : load_part(p, first_lanes(n));
  const Vector last = n >= 2 * kLanes ? *reinterpret_cast<const Unaligned*>(p + kLanes)
                      : n > kLanes    ? load_part(p + kLanes, first_lanes(n - kLanes))
                                      : Vector{};
  return (Vector)_mm512_cvtne2ps_pbh((__m512)last, (__m512)first);
}
// Rows of pairs along k: for A, and for a B whose columns they are.
TILEWRIGHT_TARGET inline void pairs_of_rows(int64_t rows, int64_t depth, const Real* a,
                                            int64_t a_row, int64_t a_k, Real* to, int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < depth; k += 2 * kLanes) {
      const int64_t n = min(depth - k, 2 * kLanes);
      Real gathered[2 * kLanes];
      const Real* from = a + i * a_row + k;
      if (a_k != 1) {
        for (int64_t e = 0; e < n; ++e) gathered[e] = a[i * a_row + (k + e) * a_k];
        from = gathered;
      }
      store_part(to + i * to_row + k / 2, first_lanes((n + 1) / 2), pairs_along(from, n));
    }
}
// Rows of columns, each a pair of steps of the depth. `rows_of_columns`: room for the columns' own rows.
TILEWRIGHT_TARGET inline void pairs_of_columns(int64_t columns, int64_t depth, const Real* b,
                                               int64_t b_k, int64_t b_column, Real* to,
                                               int64_t to_row, Real* rows_of_columns,
                                               int64_t column_row) {
  if (b_column != 1) {
    pairs_of_rows(columns, depth, b, b_column, b_k, rows_of_columns, column_row);
    return transpose(columns, (depth + 1) / 2, rows_of_columns, column_row, to, to_row);
  }
  const __m512i together = _mm512_set_epi16(PAIRED);
  for (int64_t k = 0; k < depth; k += 2)
    for (int64_t j = 0; j < columns; j += kLanes) {
      const Lanes lanes = first_lanes(min(columns - j, kLanes));
      const Vector even = load_part(b + k * b_k + j, lanes);
      const Vector odd = k + 1 < depth ? load_part(b + (k + 1) * b_k + j, lanes) : Vector{};
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
      *reinterpret_cast<Unaligned*>(to + k / 2 * to_row + j) =
          (Vector)_mm512_permutexvar_epi16(together, both);
    }
}
)";

constexpr const char* kQuads = R"(
// Products of whole numbers of 8 bits: an element of A and of B is a quad of them, of four steps of the
// depth (the last with zeros where there are none), and one instruction adds all four products. It
// takes A's as unsigned: each is 128 more than it is, and B's first row takes away what that adds.
// Sums are whole numbers of 32 bits, and leave as f32.
template <class After>
struct Quads : After {
  static constexpr int kSteps = 4;
  static constexpr bool kWhole = true;
};
template <class After>
Quads<After> quads(After after) {
  return {after};
}
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector step<4>(Vector sum, Real x, Vector row) {
  // Not by its intrinsic: GCC 12 would then copy every sum to memory in every step.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"((Vector)_mm512_set1_ps(x)), "vm"(row));
  return sum;
}
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector complete<4>(Vector sum) {
  return (Vector)_mm512_cvtepi32_ps((__m512i)sum);
}
// Up to 16 numbers as bytes, from a tile of numbers or where a tensor's own bytes lie.
TILEWRIGHT_TARGET inline __m128i bytes_of(const Real* p, int64_t n) {
  const Vector x = n == kLanes ? *reinterpret_cast<const Unaligned*>(p) : load_part(p, first_lanes(n));
  return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32((__m512)x));
}
TILEWRIGHT_TARGET inline __m128i bytes_of(const std::int8_t* p, int64_t n) {
  return n == kLanes ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))
                     : _mm_maskz_loadu_epi8(first_lanes(n), p);
}
// Bytes that follow one another, made unsigned or not; whole vectors are written.
TILEWRIGHT_TARGET inline void copy_bytes(const std::int8_t* from, int64_t n, std::int8_t* to, bool more) {
  const __m512i flip = _mm512_set1_epi8(more ? -128 : 0);
  for (int64_t k = 0; k < n; k += 64) {
    const int64_t rest = min(n - k, 64);
    const __m512i x = rest == 64 ? _mm512_loadu_si512(from + k)
                                 : _mm512_maskz_loadu_epi8(~0ull >> (64 - rest), from + k);
    _mm512_storeu_si512(to + k, _mm512_xor_si512(x, flip));
  }
}
TILEWRIGHT_TARGET inline void copy_bytes(const Real* from, int64_t n, std::int8_t* to, bool more) {
  const __m128i flip = _mm_set1_epi8(more ? -128 : 0);
  for (int64_t k = 0; k < n; k += kLanes)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k),
                     _mm_xor_si128(bytes_of(from + k, min(n - k, kLanes)), flip));
}
// Rows of quads along k: for A, whose numbers `more` makes unsigned, and for a B whose columns they are.
template <class T>
TILEWRIGHT_TARGET inline void quads_of_rows(int64_t rows, int64_t depth, const T* a, int64_t a_row,
                                            int64_t a_k, Real* to, int64_t to_row, bool more) {
  for (int64_t i = 0; i < rows; ++i) {
    std::int8_t* const bytes = reinterpret_cast<std::int8_t*>(to + i * to_row);
    if (a_k == 1) {
      copy_bytes(a + i * a_row, depth, bytes, more);
      continue;
    }
    for (int64_t k = 0; k < depth; k += 64) {
      const int64_t n = min(depth - k, 64);
      T gathered[64];
      for (int64_t e = 0; e < n; ++e) gathered[e] = a[i * a_row + (k + e) * a_k];
      copy_bytes(gathered, n, bytes + k, more);
    }
  }
}
// What A's 128 too many add to the sums of each column, taken away: the row before the quads.
TILEWRIGHT_TARGET inline void take_away(int64_t columns, int64_t steps, Real* to, int64_t to_row) {
  const __m512i more = _mm512_set1_epi8(-128);
  for (int64_t j = 0; j < columns; j += kLanes) {
    __m512i sum = _mm512_setzero_si512();
    for (int64_t k = 1; k <= steps; ++k)
      sum = _mm512_dpbusd_epi32(sum, more, _mm512_loadu_si512(to + k * to_row + j));
    _mm512_storeu_si512(to + j, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
  }
}
// Rows of columns, each a quad of steps of the depth, behind the row that is taken away, and rows of
// zeros up to a multiple of so many. `rows_of_columns`: room for the columns' own rows.
template <class T>
TILEWRIGHT_TARGET inline void quads_of_columns(int64_t columns, int64_t depth, const T* b,
                                               int64_t b_k, int64_t b_column, Real* to,
                                               int64_t to_row, Real* rows_of_columns,
                                               int64_t column_row, int64_t multiple) {
  const int64_t steps = (depth + 3) / 4;
  for (int64_t k = steps; k % multiple != 0; ++k)
    for (int64_t j = 0; j < columns; j += kLanes)
      *reinterpret_cast<Unaligned*>(to + (k + 1) * to_row + j) = Vector{};
  if (b_column != 1) {
    quads_of_rows(columns, depth, b, b_column, b_k, rows_of_columns, column_row, false);
    transpose(columns, steps, rows_of_columns, column_row, to + to_row, to_row);
    return take_away(columns, steps, to, to_row);
  }
  for (int64_t k = 0; k < depth; k += 4)
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t n = min(columns - j, kLanes);
      __m512i quad = _mm512_setzero_si512();
      for (int t = static_cast<int>(min(depth - k, 4)); t-- > 0;) {
        const __m512i x = _mm512_cvtepu8_epi32(bytes_of(b + (k + t) * b_k + j, n));
        quad = _mm512_or_si512(quad, _mm512_sllv_epi32(x, _mm512_set1_epi32(8 * t)));
      }
      _mm512_storeu_si512(to + (k / 4 + 1) * to_row + j, quad);
    }
  take_away(columns, steps, to, to_row);
}
// The same of a tensor's own bytes as a panel of `width` columns, of which `columns` are there.
inline Real* quads_of_panel(int64_t width, int64_t columns, int64_t depth, const std::int8_t* b,
                            int64_t b_k, int64_t b_column, Real* to, int64_t multiple) {
  std::int32_t* const first = reinterpret_cast<std::int32_t*>(to);
  for (int64_t i = 0; i < width; ++i) first[i] = 0;
  std::int32_t* quad = first + width;
  for (int64_t k = 0; k < depth; k += 4)
    for (int64_t i = 0; i < width; ++i, ++quad) {
      std::uint32_t all = 0;
      for (int64_t t = 0; t < 4 && k + t < depth && i < columns; ++t) {
        const std::int8_t x = b[(k + t) * b_k + i * b_column];
        all |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(x)) << (8 * t);
        first[i] -= 128 * x;
      }
      *quad = static_cast<std::int32_t>(all);
    }
  for (int64_t k = (depth + 3) / 4; k % multiple != 0; ++k)
    for (int64_t i = 0; i < width; ++i) *quad++ = 0;
  return reinterpret_cast<Real*>(quad);
}
)";

constexpr const char* kWholePairs = R"(
// Products of whole numbers of 8 bits: an element of A and of B is a pair of them in 16 bits, of two
// steps of the depth (the last with zero where there is none). One instruction multiplies and adds both,
// another adds that to the sums, which are whole numbers of 32 bits and leave as f32. B's first row is
// what they begin with: zeros.
template <class After>
struct Pairs : After {
  static constexpr int kSteps = 2;
  static constexpr bool kWhole = true;
};
template <class After>
Pairs<After> pairs(After after) {
  return {after};
}
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector step<2>(Vector sum, Real x, Vector row) {
  // One piece of assembly: GCC 12 would multiply ahead, and keep sums in memory for lack of registers.
  Vector both;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
      : "+x"(sum), "=&x"(both)
      : "x"((Vector)_mm256_set1_ps(x)), "xm"(row));
  return sum;
}
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector complete<2>(Vector sum) {
  return (Vector)_mm256_cvtepi32_ps((__m256i)sum);
}
// Up to eight bytes, as the lowest of a number whose others are zero. Nothing else is touched.
inline std::uint64_t bytes_at(const std::int8_t* p, int64_t n) {
  std::uint64_t all = 0;
  if (n >= 8) {
    std::memcpy(&all, p, 8);
    return all;
  }
  int at = 0;
  if (n & 4) {
    std::uint32_t four;
    std::memcpy(&four, p, 4);
    all = four, at = 32, p += 4;
  }
  if (n & 2) {
    std::uint16_t two;
    std::memcpy(&two, p, 2);
    all |= static_cast<std::uint64_t>(two) << at, at += 16, p += 2;
  }
  if (n & 1) all |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(*p)) << at;
  return all;
}
// Up to eight numbers in 32 bits each, from a tile of numbers, which are rounded and held to the range
// of 8 bits, or where a tensor's own bytes lie. Others are zero.
TILEWRIGHT_TARGET TILEWRIGHT_INLINE __m256i eight(const Real* p, int64_t n) {
  const Vector x = n >= kLanes ? *reinterpret_cast<const Unaligned*>(p) : load_part(p, first_lanes(n));
  return _mm256_max_epi32(_mm256_min_epi32(_mm256_cvtps_epi32((__m256)x), _mm256_set1_epi32(127)),
                          _mm256_set1_epi32(-128));
}
TILEWRIGHT_TARGET TILEWRIGHT_INLINE __m256i eight(const std::int8_t* p, int64_t n) {
  return _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes_at(p, n))));
}
// The lower halves of `even` beside those of `odd`.
TILEWRIGHT_TARGET TILEWRIGHT_INLINE __m256i paired(__m256i even, __m256i odd) {
  return _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xAA);
}
// Numbers that follow one another, in 16 bits; whole vectors of 16 are written.
TILEWRIGHT_TARGET inline void widen_row(const std::int8_t* from, int64_t n, std::int16_t* to) {
  int64_t k = 0;
  for (; k + 16 <= n; k += 16)
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(to + k),
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k))));
  for (; k < n; k += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k),
                     _mm_cvtepi8_epi16(_mm_cvtsi64_si128(
                         static_cast<long long>(bytes_at(from + k, min(n - k, 8))))));
}
TILEWRIGHT_TARGET inline void widen_row(const Real* from, int64_t n, std::int16_t* to) {
  for (int64_t k = 0; k < n; k += kLanes) {
    const __m256i x = eight(from + k, min(n - k, kLanes));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k),
                     _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
  }
}
// Rows of pairs along k: for A, and for a B whose columns they are.
template <class T>
TILEWRIGHT_TARGET inline void pairs_of_rows(int64_t rows, int64_t depth, const T* a, int64_t a_row,
                                            int64_t a_k, Real* to, int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i) {
    std::int16_t* const words = reinterpret_cast<std::int16_t*>(to + i * to_row);
    if (a_k == 1) {
      widen_row(a + i * a_row, depth, words);
      continue;
    }
    for (int64_t k = 0; k < depth; k += 16) {
      const int64_t n = min(depth - k, 16);
      T gathered[16];
      for (int64_t e = 0; e < n; ++e) gathered[e] = a[i * a_row + (k + e) * a_k];
      widen_row(gathered, n, words + k);
    }
  }
}
// Rows of columns, each a pair of steps of the depth, behind the row of what sums begin with.
// `rows_of_columns`: room for the columns' own rows.
template <class T>
TILEWRIGHT_TARGET inline void pairs_of_columns(int64_t columns, int64_t depth, const T* b,
                                               int64_t b_k, int64_t b_column, Real* to,
                                               int64_t to_row, Real* rows_of_columns,
                                               int64_t column_row) {
  for (int64_t j = 0; j < columns; j += kLanes) *reinterpret_cast<Unaligned*>(to + j) = Vector{};
  to += to_row;
  if (b_column != 1) {
    pairs_of_rows(columns, depth, b, b_column, b_k, rows_of_columns, column_row);
    return transpose(columns, (depth + 1) / 2, rows_of_columns, column_row, to, to_row);
  }
  for (int64_t k = 0; k < depth; k += 2, b += 2 * b_k, to += to_row)
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t n = min(columns - j, kLanes);
      const __m256i odd = k + 1 < depth ? eight(b + b_k + j, n) : _mm256_setzero_si256();
      *reinterpret_cast<Unaligned*>(to + j) = (Vector)paired(eight(b + j, n), odd);
    }
}
// A pair of 16 bits of numbers `step` apart, of which `count` are there.
inline Real pair_of(const std::int8_t* from, int64_t step, int64_t count) {
  const std::int16_t two[2] = {count > 0 ? from[0] : std::int8_t{}, count > 1 ? from[step] : std::int8_t{}};
  Real pair;
  std::memcpy(&pair, two, sizeof(pair));
  return pair;
}
// The same of a tensor's own bytes as a panel of `width` columns, of which `columns` are there.
inline Real* pairs_of_panel(int64_t width, int64_t columns, int64_t depth, const std::int8_t* b,
                            int64_t b_k, int64_t b_column, Real* to) {
  for (int64_t i = 0; i < width; ++i) *to++ = 0;
  for (int64_t k = 0; k < depth; k += 2)
    for (int64_t i = 0; i < width; ++i)
      *to++ = pair_of(b + k * b_k + i * b_column, b_k, i < columns ? depth - k : 0);
  return to;
}
)";

/// Lane i of the first half beside lane i of the last, from the highest on.
std::string paired() {
  std::string text;
  for (int i = 15; i >= 0; --i)
    text += (text.empty() ? "" : ", ") + std::to_string(16 + i) + ", " + std::to_string(i);
  return text;
}

}  // namespace

std::string together_text(int steps, bool whole) {
  if (steps == 1) return "";
  if (whole) return std::string(kPaired) + (steps == 4 ? kQuads : kWholePairs);
  std::string pairs = kPairs;
  pairs.replace(pairs.find("PAIRED"), 6, paired());
  return kPaired + pairs;
}

}  // namespace tilewright::cpu
