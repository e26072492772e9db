// Convolutions of whole numbers of 8 bits, as source: the image as quads or pairs of channels,
// which `convolve_lines` then reads as it reads numbers.
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kQuads = R"(
// Lines of points in quads: an element of the image is four channels of a point, each made unsigned by
// 128 more; one of A is the same four channels of a tap. Before its steps a group of A's rows has
// what takes away from each sum the 128 too many.
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector line_step<4>(Vector sum, Real x, Vector row) {
  // Not by its intrinsic: GCC 12 would then copy every sum to memory in every step.
  asm("vpdpbusd %1, %2, %0" : "+v"(sum) : "v"((Vector)_mm512_set1_ps(x)), "v"(row));
  return sum;
}
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector line_begin<4>(const Real* first) {
  std::int32_t whole;
  std::memcpy(&whole, first, sizeof(whole));
  return (Vector)_mm512_set1_epi32(whole);
}
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector filled<true>(Vector v, int64_t first, int64_t last,
                                                        Vector outside) {
  return (Vector)_mm512_mask_blend_ps(lanes_between(first, last), (__m512)outside, (__m512)v);
}

// Up to 16 elements as bytes.
TILEWRIGHT_TARGET TILEWRIGHT_INLINE __m128i sixteen(const std::int8_t* p, Lanes lanes) {
  return _mm_maskz_loadu_epi8(lanes, p);
}
TILEWRIGHT_TARGET TILEWRIGHT_INLINE __m128i sixteen(const Real* p, Lanes lanes) {
  return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32((__m512)load_part(p, lanes)));
}
constexpr int kTogether = 4;  // channels
constexpr std::uint32_t kOutside = 0x80808080u;  // of the image
// A row of four channels, of which `count` are there, as `n` quads. Whole vectors are written.
template <class T>
TILEWRIGHT_TARGET inline void together_of_row(const T* from, int64_t channel, int64_t count, int64_t n,
                                           Real* to) {
  const __m512i flip = _mm512_set1_epi8(-128);
  for (int64_t j = 0; j < n; j += kLanes) {
    const Lanes lanes = first_lanes(min(n - j, kLanes));
    __m512i quads = _mm512_cvtepu8_epi32(sixteen(from + j, lanes));
    if (count > 1)
      quads = _mm512_or_si512(
          quads, _mm512_slli_epi32(_mm512_cvtepu8_epi32(sixteen(from + channel + j, lanes)), 8));
    if (count > 2)
      quads = _mm512_or_si512(
          quads, _mm512_slli_epi32(_mm512_cvtepu8_epi32(sixteen(from + 2 * channel + j, lanes)), 16));
    if (count > 3)
      quads = _mm512_or_si512(
          quads, _mm512_slli_epi32(_mm512_cvtepu8_epi32(sixteen(from + 3 * channel + j, lanes)), 24));
    _mm512_storeu_si512(to + j, _mm512_xor_si512(quads, flip));
  }
}

// A quad of A: `count` of its numbers are there. `first`: what takes away 128 times their sum.
inline Real together_of(const std::int8_t* from, int64_t channel, int64_t count, std::int32_t& first) {
  std::uint32_t all = 0;
  for (int64_t t = 0; t < count; ++t) {
    const std::int8_t x = from[t * channel];
    all |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(x)) << (8 * t);
    first -= 128 * x;
  }
  Real quad;
  std::memcpy(&quad, &all, sizeof(quad));
  return quad;
}
)";

constexpr const char* kPairs = R"(
// Lines of points in pairs: an element of the image is two channels of a point in 16 bits each, one of A
// is the same two channels of a tap. Before its steps a group of A's rows has what sums begin with: zeros.
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector line_step<2>(Vector sum, Real x, Vector row) {
  return step<2>(sum, x, row);
}
template <>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector filled<true>(Vector v, int64_t first, int64_t last,
                                                        Vector outside) {
  return first_of(lanes_between(first, last), v, outside);
}
constexpr int kTogether = 2;           // channels
constexpr std::uint32_t kOutside = 0;  // of the image
// A row of two channels, of which `count` are there, as `n` pairs. Whole vectors are written.
template <class T>
TILEWRIGHT_TARGET inline void together_of_row(const T* from, int64_t channel, int64_t count, int64_t n,
                                              Real* to) {
  for (int64_t j = 0; j < n; j += kLanes) {
    const int64_t rest = min(n - j, kLanes);
    const __m256i odd = count > 1 ? eight(from + channel + j, rest) : _mm256_setzero_si256();
    *reinterpret_cast<Unaligned*>(to + j) = (Vector)paired(eight(from + j, rest), odd);
  }
}
// A pair of A: `count` of its numbers are there.
inline Real together_of(const std::int8_t* from, int64_t channel, int64_t count, std::int32_t&) {
  return pair_of(from, channel, count);
}
)";

constexpr const char* kConvolve = R"(
// As convolve_lines, of an image in whole numbers of 8 bits: `channels` of them, `channel` elements
// apart, `from` what w.source would be. `d` is of so many channels together; `list` has room for one
// number each, `image` for the part of the image that the window reads. Outside of it there are zeros.
template <int MI, int NI, int STEP, int64_t M, int64_t N, class T, class After>
TILEWRIGHT_TARGET void convolve_bytes(int64_t rows, const Real* a, int64_t group, const T* from,
                                      int64_t channels, int64_t channel, Window w, Depth d,
                                      int64_t* list, Real* image, int64_t band, int64_t copied,
                                      int64_t room, Real* c, int64_t c_row, int64_t c_line,
                                      const After& after) {
  if (rows <= 0 || w.width <= 0 || w.height <= 0 || d.steps <= 0) return;
  Tap low = d.tap[0], high = d.tap[0];
  for (int64_t t = 1; t < d.taps; ++t) {
    const Tap tap = d.tap[t];
    low.row = tap.row < low.row ? tap.row : low.row, high.row = tap.row > high.row ? tap.row : high.row;
    if (tap.column < low.column) low.column = tap.column;
    if (tap.column > high.column) high.column = tap.column;
  }
  const int64_t row = max(w.first_row + low.row, 0);
  const int64_t row_end =
      max(min(w.first_row + (w.height - 1) * w.row_step + high.row + 1, w.rows), row);
  const int64_t column = max(w.first_column + low.column, 0);
  const int64_t column_end =
      max(min(w.first_column + (w.width - 1) * STEP + high.column + 1, w.columns), column);
  const int64_t height = row_end - row, width = column_end - column;
  const T* const corner =
      from + (row - w.first_row) * w.source_row + (column - w.first_column);
  // Rows that follow one another are one.
  const bool flat = width == w.source_row || height == 1;
  for (int64_t q = 0; q < d.channels; ++q) {
    list[q] = q * height * width;
    const int64_t count = min(channels - kTogether * q, kTogether);
    const T* const first = corner + kTogether * q * channel;
    if (flat) {
      together_of_row(first, channel, count, height * width, image + list[q]);
      continue;
    }
    for (int64_t y = 0; y < height; ++y)
      together_of_row(first + y * w.source_row, channel, count, width, image + list[q] + y * width);
  }
  w.source = image + (w.first_row - row) * width + (w.first_column - column);
  w.source_row = width;
  d.channel = list;
  std::memcpy(&d.outside, &kOutside, sizeof(d.outside));
  convolve_lines<MI, NI, STEP, M, N, true>(rows, a, 1, MI, group, w, d, band, d.channels, copied, room,
                                           c, c_row, c_line, true, after);
}
)";

constexpr const char* kVectors512 = R"(
// Vectors of whole numbers of 8 bits, which are f32 in registers. What is stored is rounded and held to
// their range.
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector load_part(const std::int8_t* p, Lanes lanes) {
  return (Vector)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(lanes, p)));
}
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector vector_at(const std::int8_t* p) {
  return (Vector)_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void store(std::int8_t* p, Vector v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32((__m512)v)));
}
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void store_part(std::int8_t* p, Lanes lanes, Vector v) {
  _mm_mask_storeu_epi8(p, lanes, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32((__m512)v)));
}
)";

constexpr const char* kVectors256 = R"(
// Vectors of whole numbers of 8 bits, which are f32 in registers. What is stored is rounded and held to
// their range. Of parts of vectors the bytes are loaded and stored four, two and one at a time.
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector vector_of(std::uint64_t bytes) {
  return (Vector)_mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
}
TILEWRIGHT_TARGET TILEWRIGHT_INLINE std::uint64_t bytes_of_vector(Vector v) {
  const __m256i x = _mm256_cvtps_epi32((__m256)v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_packs_epi16(words, words)));
}
// Lanes that follow one another: where they begin, and how many there are.
TILEWRIGHT_TARGET TILEWRIGHT_INLINE int begin_of(Lanes lanes, int& count) {
  const unsigned bits = static_cast<unsigned>(_mm256_movemask_ps((__m256)lanes));
  count = __builtin_popcount(bits);
  return bits == 0 ? 0 : __builtin_ctz(bits);
}
TILEWRIGHT_TARGET inline Vector load_part(const std::int8_t* p, Lanes lanes) {
  int count;
  const int first = begin_of(lanes, count);
  std::uint64_t all = 0;
  int at = 8 * first;
  p += first;
  if (count == 8) std::memcpy(&all, p, 8);
  if (count & 4) {
    std::uint32_t four;
    std::memcpy(&four, p, 4);
    all |= static_cast<std::uint64_t>(four) << at, at += 32, p += 4;
  }
  if (count & 2) {
    std::uint16_t two;
    std::memcpy(&two, p, 2);
    all |= static_cast<std::uint64_t>(two) << at, at += 16, p += 2;
  }
  if (count & 1) all |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(*p)) << at;
  return vector_of(all);
}
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector vector_at(const std::int8_t* p) {
  std::uint64_t all;
  std::memcpy(&all, p, 8);
  return vector_of(all);
}
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void store(std::int8_t* p, Vector v) {
  const std::uint64_t all = bytes_of_vector(v);
  std::memcpy(p, &all, 8);
}
TILEWRIGHT_TARGET inline void store_part(std::int8_t* p, Lanes lanes, Vector v) {
  int count;
  const int first = begin_of(lanes, count);
  std::uint64_t all = bytes_of_vector(v) >> (8 * first);
  p += first;
  if (count == 8) std::memcpy(p, &all, 8);
  if (count & 4) std::memcpy(p, &all, 4), all >>= 32, p += 4;
  if (count & 2) std::memcpy(p, &all, 2), all >>= 16, p += 2;
  if (count & 1) *p = static_cast<std::int8_t>(all);
}
)";

constexpr const char* kVectors = R"(
template <int STEP>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector every(const std::int8_t* p, int64_t first, int64_t last) {
  if constexpr (STEP == 1) return load_part(p, lanes_between(first, last));
  Vector v{};
  for (int64_t i = first; i < last; ++i) v[i] = p[i * STEP];
  return v;
}
template <int STEP>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector every(const std::int8_t* p) {
  return every<STEP>(p, 0, kLanes);
}
template <int STEP>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector between(const std::int8_t* p, int64_t index,
                                                   int64_t extent, int64_t count) {
  const int64_t first = index >= 0 ? 0 : (STEP - 1 - index) / STEP;
  const int64_t last = extent > index ? (extent - index + STEP - 1) / STEP : 0;
  return every<STEP>(p, min(first, kLanes), min(last, count));
}
)";

}  // namespace

std::string vectors_of_bytes_text(int vector_bytes) {
  return std::string(vector_bytes == 64 ? kVectors512 : kVectors256) + kVectors;
}

std::string bytes_text(int steps) { return std::string(steps == 4 ? kQuads : kPairs) + kConvolve; }

}  // namespace tilewright::cpu
