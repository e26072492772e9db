// Vectors in emitted programs: their lanes, what hardware does with them, sums and extremes across
// them.
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kLanes512 = R"(
constexpr int kLanes = 64 / sizeof(Real);
typedef Real Vector __attribute__((vector_size(64)));
typedef Real Unaligned __attribute__((vector_size(64), aligned(sizeof(Real)), may_alias));
// The first lanes of a vector: loads of the others give zero and touch nothing, stores leave them.
typedef __mmaskBITS Lanes;
TILEWRIGHT_TARGET inline Lanes first_lanes(int64_t n) {
  return static_cast<Lanes>((1u << n) - 1);
}
TILEWRIGHT_TARGET inline Lanes lanes_between(int64_t first, int64_t last) {
  return first < last ? static_cast<Lanes>(first_lanes(last) & ~first_lanes(first)) : Lanes{};
}
TILEWRIGHT_TARGET inline Vector load_part(const Real* p, Lanes lanes) {
  return (Vector)_mm512_maskz_loadu_SUFFIX(lanes, p);
}
TILEWRIGHT_TARGET inline void store_part(Real* p, Lanes lanes, Vector v) {
  _mm512_mask_storeu_SUFFIX(p, lanes, (REGISTER)v);
}
// Past the caches, where a line begins.
TILEWRIGHT_TARGET inline void store_past(Real* p, Vector v) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(Vector) == 0)
    _mm512_stream_SUFFIX(p, (REGISTER)v);
  else
    _mm512_storeu_SUFFIX(p, (REGISTER)v);
}
)";

constexpr const char* kLanes256 = R"(
constexpr int kLanes = 32 / sizeof(Real);
typedef Real Vector __attribute__((vector_size(32)));
typedef Real Unaligned __attribute__((vector_size(32), aligned(sizeof(Real)), may_alias));
// The first lanes of a vector: loads of the others give zero and touch nothing, stores leave them.
typedef __m256i Lanes;
TILEWRIGHT_TARGET inline Lanes first_lanes(int64_t n) {
  return FIRST;
}
TILEWRIGHT_TARGET inline Lanes lanes_between(int64_t first, int64_t last) {
  return _mm256_andnot_si256(first_lanes(first), first_lanes(last));
}
TILEWRIGHT_TARGET inline Vector load_part(const Real* p, Lanes lanes) {
  return (Vector)_mm256_maskload_SUFFIX(p, lanes);
}
// Lanes from the first on, as halves of what is left: a masked store takes some processors as long as
// ten others, and what it stores cannot be loaded before it has left.
STORE_PART// Past the caches, where half a line begins.
TILEWRIGHT_TARGET inline void store_past(Real* p, Vector v) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(Vector) == 0)
    _mm256_stream_SUFFIX(p, (REGISTER)v);
  else
    _mm256_storeu_SUFFIX(p, (REGISTER)v);
}
)";

constexpr const char* kStorePart32 =
    R"(TILEWRIGHT_TARGET inline void store_part(Real* p, Lanes lanes, Vector v) {
  const int all = _mm256_movemask_ps((__m256)lanes);
  __m128 left = _mm256_castps256_ps128((__m256)v);
  if (all & 8) {
    _mm_storeu_ps(p, left);
    if (all & 128) {
      _mm_storeu_ps(p + 4, _mm256_extractf128_ps((__m256)v, 1));
      return;
    }
    left = _mm256_extractf128_ps((__m256)v, 1);
  }
  p += all & 8 ? 4 : 0;
  const int few = all & 8 ? all >> 4 : all;
  if (few & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), left);
    if (few & 4) _mm_store_ss(p + 2, _mm_movehl_ps(left, left));
  } else if (few & 1) {
    _mm_store_ss(p, left);
  }
}
)";

constexpr const char* kStorePart64 =
    R"(TILEWRIGHT_TARGET inline void store_part(Real* p, Lanes lanes, Vector v) {
  const int all = _mm256_movemask_pd((__m256d)lanes);
  const __m128d left = _mm256_castpd256_pd128((__m256d)v), right = _mm256_extractf128_pd((__m256d)v, 1);
  if (all & 2) {
    _mm_storeu_pd(p, left);
    if (all & 8)
      _mm_storeu_pd(p + 2, right);
    else if (all & 4)
      _mm_store_sd(p + 2, right);
  } else if (all & 1) {
    _mm_store_sd(p, left);
  }
}
)";

// Whole numbers in lanes lie in the last bits of such a sum: 64-bit integers are converted by no
// instruction of AVX2.
constexpr const char* kBits = R"(
typedef UNSIGNED Bits __attribute__((vector_size(sizeof(Vector))));
constexpr int kMantissa = sizeof(Real) == 4 ? 23 : 52, kBias = sizeof(Real) == 4 ? 127 : 1023;
constexpr Real kWhole = Real(3) * Real(int64_t{1} << (kMantissa - 1));
// Of whole numbers in [-2^20, 2^20], modulo 2^20 at least.
TILEWRIGHT_TARGET inline Bits bits_of_whole(Vector n) { return (Bits)(n + kWhole); }
TILEWRIGHT_TARGET inline Vector power_of_two(Vector n) {
  return (Vector)((Bits)(n + (kWhole + Real(kBias))) << kMantissa);
}
)";

constexpr const char* kHardware512 = R"(
// Of `v` the first lanes, of `other` the rest.
TILEWRIGHT_TARGET inline Vector first_of(Lanes lanes, Vector v, Vector other) {
  return (Vector)_mm512_mask_mov_SUFFIX((REGISTER)other, lanes, (REGISTER)v);
}
TILEWRIGHT_TARGET inline Vector f_sqrt(Vector a) {
  return (Vector)_mm512_sqrt_SUFFIX((REGISTER)a);
}
// b > a ? b : a, and b < a ? b : a: what the instruction gives for NaN and zeros too. So `a` where
// one is NaN.
TILEWRIGHT_TARGET inline Vector max_or_first(Vector a, Vector b) {
  return (Vector)_mm512_max_SUFFIX((REGISTER)b, (REGISTER)a);
}
TILEWRIGHT_TARGET inline Vector min_or_first(Vector a, Vector b) {
  return (Vector)_mm512_min_SUFFIX((REGISTER)b, (REGISTER)a);
}
// a * b + c, rounded once, whatever the compiler is told of contraction.
TILEWRIGHT_TARGET inline Vector fused(Vector a, Vector b, Vector c) {
  return (Vector)_mm512_fmadd_SUFFIX((REGISTER)a, (REGISTER)b, (REGISTER)c);
}
TILEWRIGHT_TARGET inline Vector nearest_integer(Vector a) {
  return (Vector)_mm512_roundscale_SUFFIX((REGISTER)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a * 2^n, rounded once.
TILEWRIGHT_TARGET inline Vector times_power_of_two(Vector a, Vector n) {
  return (Vector)_mm512_scalef_SUFFIX((REGISTER)a, (REGISTER)n);
}
// Whether a lane of `a` is above that of `b`; NaN is not.
TILEWRIGHT_TARGET inline bool any_above(Vector a, Vector b) {
  return _mm512_cmp_SUFFIX_mask((REGISTER)a, (REGISTER)b, _CMP_GT_OQ) != 0;
}
)";

constexpr const char* kHardware256 = R"(
// Of `v` the first lanes, of `other` the rest.
TILEWRIGHT_TARGET inline Vector first_of(Lanes lanes, Vector v, Vector other) {
  return (Vector)_mm256_blendv_SUFFIX((REGISTER)other, (REGISTER)v, (REGISTER)lanes);
}
TILEWRIGHT_TARGET inline Vector f_sqrt(Vector a) {
  return (Vector)_mm256_sqrt_SUFFIX((REGISTER)a);
}
// b > a ? b : a, and b < a ? b : a: what the instruction gives for NaN and zeros too. So `a` where
// one is NaN.
TILEWRIGHT_TARGET inline Vector max_or_first(Vector a, Vector b) {
  return (Vector)_mm256_max_SUFFIX((REGISTER)b, (REGISTER)a);
}
TILEWRIGHT_TARGET inline Vector min_or_first(Vector a, Vector b) {
  return (Vector)_mm256_min_SUFFIX((REGISTER)b, (REGISTER)a);
}
// a * b + c, rounded once, whatever the compiler is told of contraction.
TILEWRIGHT_TARGET inline Vector fused(Vector a, Vector b, Vector c) {
  return (Vector)_mm256_fmadd_SUFFIX((REGISTER)a, (REGISTER)b, (REGISTER)c);
}
TILEWRIGHT_TARGET inline Vector nearest_integer(Vector a) {
  return (Vector)_mm256_round_SUFFIX((REGISTER)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a * 2^n in two steps, since 2^n itself may be out of range.
TILEWRIGHT_TARGET inline Vector times_power_of_two(Vector a, Vector n) {
  if constexpr (sizeof(Real) == 8) {
    const Vector half = nearest_integer(n * Real(0.5));
    return a * power_of_two(half) * power_of_two(n - half);
  }
  typedef std::int32_t Integers __attribute__((vector_size(32)));
  const Integers whole = (Integers)_mm256_cvtps_epi32((__m256)n), half = whole >> 1;
  return a * (Vector)((half + kBias) << kMantissa) * (Vector)((whole - half + kBias) << kMantissa);
}
// Whether a lane of `a` is above that of `b`; NaN is not.
TILEWRIGHT_TARGET inline bool any_above(Vector a, Vector b) {
  return _mm256_movemask_SUFFIX(_mm256_cmp_SUFFIX((REGISTER)a, (REGISTER)b, _CMP_GT_OQ)) != 0;
}
)";

constexpr const char* kStrips512 = R"(
// Of vectors that follow one another the elements STEP apart, from one on.
constexpr unsigned lanes_from(int vector, int step, int phase) {
  unsigned lanes = 0;
  for (int i = 0; i < kLanes; ++i)
    if ((i * step + phase) / kLanes == vector) lanes |= 1u << i;
  return lanes;
}
template <int VECTOR, int STEP, int PHASE>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector picked(const Vector* v, Vector before) {
  constexpr Lanes lanes = static_cast<Lanes>(lanes_from(VECTOR, STEP, PHASE));
  before = (Vector)_mm512_mask_permutexvar_SUFFIX((REGISTER)before, lanes, PLACES, (REGISTER)v[VECTOR]);
  if constexpr (VECTOR + 1 < STEP) return picked<VECTOR + 1, STEP, PHASE>(v, before);
  return before;
}
template <int STEP, int PHASE>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector pick(const Vector* v) {
  return picked<0, STEP, PHASE>(v, Vector{});
}
)";

/// Behind either of pick().
constexpr const char* kEvery =
    R"(// Elements STEP apart, of lanes [first, last); the others are zero, and nothing of them is touched.
template <int STEP>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector every(const Real* p, int64_t first, int64_t last) {
  if constexpr (STEP == 1) return load_part(p, lanes_between(first, last));
  Vector v[STEP];
  const int64_t low = STEP * first, high = first < last ? STEP * (last - 1) + 1 : low;
  for (int i = 0; i < STEP; ++i)
    v[i] = load_part(p + i * kLanes, lanes_between(min(max(low - i * kLanes, 0), kLanes),
                                                   max(min(high - i * kLanes, kLanes), 0)));
  return pick<STEP, 0>(v);
}
)";

constexpr const char* kStrips256 = R"(
// The vector in whose given lane an element is that is picked, where STEP is odd.
constexpr int vector_with(int lane, int step, int phase) {
  for (int i = 0; i < kLanes; ++i)
    if ((i * step + phase) % kLanes == lane) return (i * step + phase) / kLanes;
  return 0;
}
template <int VECTOR, int STEP, int PHASE>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector mixed(const Vector* v, Vector before) {
  before = __builtin_shufflevector(before, v[VECTOR], MIXED);
  if constexpr (VECTOR + 1 < STEP) return mixed<VECTOR + 1, STEP, PHASE>(v, before);
  return before;
}
// Of vectors that follow one another the elements STEP apart, from one on. Every other element of
// two vectors is one of half the step; of an odd step each element is in a lane of its own.
template <int STEP, int PHASE>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector pick(const Vector* v) {
  if constexpr (STEP == 1) {
    return v[0];
  } else if constexpr (STEP % 2 == 0) {
    Vector half[STEP / 2];
    for (int i = 0; i < STEP / 2; ++i)
      half[i] = PHASE % 2 == 0 ? __builtin_shufflevector(v[2 * i], v[2 * i + 1], EVEN)
                               : __builtin_shufflevector(v[2 * i], v[2 * i + 1], ODD);
    return pick<STEP / 2, PHASE / 2>(half);
  } else {
    const Vector all = mixed<1, STEP, PHASE>(v, v[0]);
    return __builtin_shufflevector(all, all, PICKED);
  }
}
)";

constexpr const char* kStrips = R"(
template <int STEP>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector every(const Real* p) {
  if constexpr (STEP == 1) return *reinterpret_cast<const Unaligned*>(p);
  // The second vector ends with the last element that is wanted: nothing behind it is touched.
  if constexpr (STEP == 2)
    return __builtin_shufflevector(*reinterpret_cast<const Unaligned*>(p),
                                   *reinterpret_cast<const Unaligned*>(p + kLanes - 1), BOTH_ENDS);
  return every<STEP>(p, 0, kLanes);
}
// The first `count` lanes, of them those whose index, STEP apart from `index` on, is in [0, extent).
template <int STEP>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector between(const Real* p, int64_t index, int64_t extent,
                                                   int64_t count) {
  const int64_t first = index >= 0 ? 0 : (STEP - 1 - index) / STEP;
  const int64_t last = extent > index ? (extent - index + STEP - 1) / STEP : 0;
  return every<STEP>(p, min(first, kLanes), min(last, count));
}
)";

constexpr const char* kVectorFunctions = R"(
TILEWRIGHT_TARGET inline Vector f_add(Vector a, Vector b) { return a + b; }
TILEWRIGHT_TARGET inline Vector f_sub(Vector a, Vector b) { return a - b; }
TILEWRIGHT_TARGET inline Vector f_mul(Vector a, Vector b) { return a * b; }
TILEWRIGHT_TARGET inline Vector f_div(Vector a, Vector b) { return a / b; }
TILEWRIGHT_TARGET inline Vector f_lt(Vector a, Vector b) { return a < b ? splat(1) : splat(0); }
TILEWRIGHT_TARGET inline Vector f_select(Vector a, Vector b, Vector c) {
  return a != splat(0) ? b : c;
}
TILEWRIGHT_TARGET inline Vector f_neg(Vector a) { return -a; }
TILEWRIGHT_TARGET inline Vector f_rsqrt(Vector a) { return Real(1) / f_sqrt(a); }
TILEWRIGHT_TARGET inline Vector f_recip(Vector a) { return Real(1) / a; }
// NaN if one of them is. Where `b` is a constant, the compiler sees that it is none.
TILEWRIGHT_TARGET inline Vector f_max(Vector a, Vector b) {
  return b != b ? b : max_or_first(a, b);
}
TILEWRIGHT_TARGET inline Vector f_min(Vector a, Vector b) {
  return b != b ? b : min_or_first(a, b);
}
TILEWRIGHT_TARGET inline Vector f_relu(Vector a) { return max_or_first(a, splat(0)); }
TILEWRIGHT_TARGET inline Vector f_abs(Vector a) { return a < splat(0) ? -a : a + Real(0); }
TILEWRIGHT_TARGET inline Vector f_square(Vector a) { return a * a; }
TILEWRIGHT_TARGET inline Vector f_round(Vector a) { return nearest_integer(a); }
TILEWRIGHT_TARGET inline Vector f_floor(Vector a) {
  const Vector whole = nearest_integer(a);
  return whole > a ? whole - Real(1) : whole;
}
)";

/// The names that depend on the width and the type.
std::string specialised(std::string text, int vector_bytes, bool f64) {
  text = replaced(text, "STORE_PART", f64 ? kStorePart64 : kStorePart32);
  text = replaced(text, "BITS", f64 ? "8" : "16");
  text = replaced(text, "SUFFIX", f64 ? "pd" : "ps");
  text = replaced(text, "REGISTER",
                  std::string(vector_bytes == 64 ? "__m512" : "__m256") + (f64 ? "d" : ""));
  return replaced(text, "FIRST",
                  f64 ? "_mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3))"
                      : "_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),\n"
                        "                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))");
}

/// Vectors of elements that are some apart.
std::string strips(int vector_bytes, bool f64) {
  const int lanes = vector_bytes / (f64 ? 8 : 4);
  const bool wide = vector_bytes == 64;
  std::string even, odd, ends, places, mixed, picked;
  for (int i = 0; i < lanes; ++i) {
    const std::string comma = i == 0 ? "" : ", ";
    even += comma + std::to_string(2 * i), odd += comma + std::to_string(2 * i + 1);
    ends += comma + std::to_string(2 * i + (2 * i < lanes ? 0 : 1));
    const std::string lane = std::to_string(i);
    places += comma + lane + " * STEP + PHASE";
    mixed += comma + "vector_with(" + lane + ", STEP, PHASE) == VECTOR ? kLanes + " + lane + " : " +
             lane;
    picked += comma + "(" + lane + " * STEP + PHASE) % kLanes";
  }
  const std::string set = std::string(wide ? "_mm512_setr_epi" : "_mm256_setr_epi") +
                          (f64 ? "64" : "32") + (f64 && !wide ? "x(" : "(");
  std::string text = wide ? kStrips512 : kStrips256;
  text = replaced(replaced(text, "EVEN", even), "ODD", odd);
  text = replaced(text, "PLACES", set + places + ")");
  text = replaced(replaced(text, "MIXED", mixed), "PICKED", picked);
  return specialised(text, vector_bytes, f64) + kEvery + replaced(kStrips, "BOTH_ENDS", ends);
}

/// Halves joined until one lane has all.
std::string across(const char* name, const char* function, int lanes) {
  std::string text = std::string("TILEWRIGHT_TARGET inline Real across_") + name + "(Vector v) {\n";
  for (int half = lanes / 2; half > 0; half /= 2) {
    text += std::string("  v = ") + function + "(v, __builtin_shufflevector(v, v";
    for (int i = 0; i < lanes; ++i) text += ", " + std::to_string((i + half) % lanes);
    text += "));\n";
  }
  return text + "  return v[0];\n}\n";
}

constexpr const char* kPlanes = R"(
template <int STEP, int PHASE, int PHASES, class F>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void put_phases(const Vector* v, const F& put) {
  if constexpr (STEP == 1)
    put(v[0]);
  else
    put(pick<STEP, PHASE>(v));
  if constexpr (PHASE + 1 < PHASES) put_phases<STEP, PHASE + 1, PHASES>(v, put);
}
// Rows of an image, from the one and the column where its windows begin on: each PHASES rows of
// `pitch` elements, of columns STEP apart. What is outside of the image is filled in.
template <int STEP, int PHASES>
TILEWRIGHT_TARGET inline void copy_plane(Real* plane, int64_t pitch, const Real* from, int64_t next_row,
                                  int64_t rows, int64_t row, int64_t height, int64_t columns,
                                  int64_t column, int64_t width, Vector outside) {
  const int64_t above = min(max(-row, 0), rows), below = max(min(height - row, rows), above);
  for (int64_t j = 0; j < columns; j += kLanes, column += STEP * kLanes, from += STEP * kLanes) {
    Real* to = plane + j;
    const auto put = [&](Vector v) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS {
      store(to, v);
      to += pitch;
    };
    for (int64_t i = 0; i < above * PHASES; ++i) put(outside);
    const Real* p = from + above * next_row;
    Lanes inside[STEP];
    for (int i = 0; i < STEP; ++i)
      inside[i] = lanes_between(min(max(-column - i * kLanes, 0), kLanes),
                                max(min(width - column - i * kLanes, kLanes), 0));
    for (int64_t h = above; h < below; ++h, p += next_row) {
      Vector v[STEP];
      for (int i = 0; i < STEP; ++i)
        v[i] = first_of(inside[i], load_part(p + i * kLanes, inside[i]), outside);
      put_phases<STEP, 0, PHASES>(v, put);
    }
    for (int64_t i = below * PHASES; i < rows * PHASES; ++i) put(outside);
  }
}
// The same of an image whose columns lie `next` elements apart.
template <int STEP, int PHASES>
TILEWRIGHT_TARGET inline void copy_plane_apart(Real* plane, int64_t pitch, const Real* from, int64_t next,
                                        int64_t next_row, int64_t rows, int64_t row, int64_t height,
                                        int64_t columns, int64_t column, int64_t width, Real outside) {
  for (int64_t h = 0; h < rows; ++h)
    for (int phase = 0; phase < PHASES; ++phase) {
      Real* const to = plane + (h * PHASES + phase) * pitch;
      const Real* const p = from + h * next_row + phase * next;
      const bool there = row + h >= 0 && row + h < height;
      const int64_t first = column + phase;  // of this phase; STEP from one to the next
      const int64_t begin = there ? min(first < 0 ? (STEP - 1 - first) / STEP : 0, columns) : columns;
      const int64_t end = first < width ? max(min((width - first + STEP - 1) / STEP, columns), begin) : begin;
      for (int64_t j = 0; j < begin; ++j) to[j] = outside;
      for (int64_t j = begin; j < end; ++j) to[j] = p[j * STEP * next];
      for (int64_t j = end; j < columns; ++j) to[j] = outside;
    }
}
)";

// A row of f16 by instructions; what is left of it under a mask, or one by one (F16C has no masks).
constexpr const char* kFloat16Rows512 =
    R"(TILEWRIGHT_TARGET inline void copy_row(Real* to, const Float16* from, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
  if (i == n) return;
  const __mmask16 left = static_cast<__mmask16>((1u << (n - i)) - 1);
  _mm512_mask_storeu_ps(to + i, left, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(left, from + i)));
}
TILEWRIGHT_TARGET inline void copy_row(Float16* to, const Real* from, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  if (i == n) return;
  const __mmask16 left = static_cast<__mmask16>((1u << (n - i)) - 1);
  _mm256_mask_storeu_epi16(to + i, left, _mm512_cvtps_ph(_mm512_maskz_loadu_ps(left, from + i), _MM_FROUND_TO_NEAREST_INT));
}
)";
constexpr const char* kFloat16Rows256 =
    R"(TILEWRIGHT_TARGET inline void copy_row(Real* to, const Float16* from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < n; ++i) to[i] = _cvtsh_ss(from[i].bits);
}
TILEWRIGHT_TARGET inline void copy_row(Float16* to, const Real* from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) to[i].bits = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}
)";

}  // namespace

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at))
    text.replace(at, from.size(), to), at += to.size();
  return text;
}

std::string planes_text() { return kPlanes; }

std::string rows_of_f16_text(int vector_bytes) {
  return vector_bytes == 64 ? kFloat16Rows512 : kFloat16Rows256;
}

std::string lanes_text(int vector_bytes, bool f64) {
  return specialised(vector_bytes == 64 ? kLanes512 : kLanes256, vector_bytes, f64);
}

std::string vector_functions_text(int vector_bytes, bool f64) {
  const int lanes = vector_bytes / (f64 ? 8 : 4);
  std::string counted;
  for (int i = 0; i < lanes; ++i) counted += (i == 0 ? "" : ", ") + std::to_string(i);
  return "\n// Functions of whole vectors.\n"
         "TILEWRIGHT_TARGET inline Vector splat(Real x) { return x - Vector{}; }\n"
         "TILEWRIGHT_TARGET inline Vector count_from(Real x) {\n  return x + Vector{" +
         counted +
         "};\n}\n"
         "TILEWRIGHT_TARGET inline Vector vector_at(const Real* p) {\n"
         "  return *reinterpret_cast<const Unaligned*>(p);\n}\n"
         "TILEWRIGHT_TARGET inline void store(Real* p, Vector v) {\n"
         "  *reinterpret_cast<Unaligned*>(p) = v;\n}\n"
         "// Elements to where the next vector may be written past the caches, `most` at most.\n"
         "TILEWRIGHT_TARGET inline int64_t before_vector(const Real* p, int64_t most) {\n"
         "  const int64_t over = reinterpret_cast<std::uintptr_t>(p) % sizeof(Vector) / "
         "sizeof(Real);\n"
         "  return over == 0 ? 0 : min(kLanes - over, most);\n}\n" +
         replaced(kBits, "UNSIGNED", f64 ? "std::uint64_t" : "std::uint32_t") +
         specialised(vector_bytes == 64 ? kHardware512 : kHardware256, vector_bytes, f64) +
         strips(vector_bytes, f64) + kVectorFunctions + "// One value of a vector's.\n" +
         across("sum", "f_add", lanes) + across("product", "f_mul", lanes) +
         across("max", "f_max", lanes) + across("min", "f_min", lanes) + functions_text(f64);
}

}  // namespace tilewright::cpu
