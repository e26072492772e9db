// Vectors in emitted programs: their lanes, functions on them (an exponential of our own), sums and
// extremes across them.
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
  typedef INTEGER Integers __attribute__((vector_size(32)));
  const Integers whole = __builtin_convertvector(n, Integers), half = whole >> 1;
  return a * (Vector)((half + BIAS) << MANTISSA) *
         (Vector)((whole - half + BIAS) << MANTISSA);
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

// f32: a polynomial of degree 6, within 3.1e-9 of e^r on |r| <= ln(2)/2, relative (fitted by
// iteratively reweighted least squares). f64: the Taylor polynomial of degree 13, within 4.3e-18.
constexpr const char* kExponential = R"(
// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln(2) / 2. The high part of ln 2 times n is exact.
// Off by less than one unit in the last place; 0 and infinity where e^x is out of range. What is 0 is
// not computed: a result that underflows takes some processors as long as a hundred others.
TILEWRIGHT_TARGET inline Vector f_exp(Vector x) {
  const auto gone = x < splat(EXP_LOW);  // NaN is not, and stays what it is
  x = min_or_first(gone ? splat(0) : x, splat(EXP_HIGH));
  const Vector n = nearest_integer(x * Real(1.44269504088896340736));
  const Vector r = fused(n, splat(-LN2_LOW), fused(n, splat(-LN2_HIGH), x));
  constexpr Real kTerms[] = {EXP_TERMS, 1, 1};
  Vector e = splat(kTerms[0]);
  for (int i = 1; i < static_cast<int>(sizeof(kTerms) / sizeof(Real)); ++i)
    e = fused(e, r, splat(kTerms[i]));
  return gone ? splat(0) : times_power_of_two(e, n);
}
)";

// Fitted by iteratively reweighted least squares, relative: tanh(x) = x + x^3 p(x^2) for |x| < 5/8,
// within 4.4e-9; erf(x) = x + x p(x^2) for |x| < 1, within 1.3e-9; log(1 - erf(x)) = x p(x) for x
// from 1 to 4.3, where erf(x) is 1, within 3.7e-10 of erf(x); log(1 + x) = x - x^2 / 2 + x^3 p(x) for
// 1 + x from the root of 1/2 to that of 2, within 3.2e-9.
constexpr const char* kSingle = R"(
// Terms of a polynomial, the highest first.
template <int N>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector polynomial(const Real (&terms)[N], Vector x) {
  Vector p = splat(terms[0]);
  for (int i = 1; i < N; ++i) p = fused(p, x, splat(terms[i]));
  return p;
}
// Both are off by less than three units in the last place; NaN stays what it is.
TILEWRIGHT_TARGET inline Vector f_tanh(Vector x) {
  constexpr Real kNear[] = {-0.005704990588128567f, 0.020639091730117798f, -0.05373971536755562f,
                            0.13331441581249237f, -0.3333328068256378f};
  const Vector z = x * x, t = f_abs(x);
  const Vector near = fused(x * z, polynomial(kNear, z), x);
  const Vector far = Real(1) - Real(2) / (f_exp(t + t) + Real(1));
  return t < splat(0.625f) ? near : (x < splat(0) ? -far : far);
}
TILEWRIGHT_TARGET inline Vector f_erf(Vector x) {
  constexpr Real kNear[] = {7.854009163565934e-05f, -0.0008010242017917335f, 0.005188333801925182f,
                            -0.026853814721107483f, 0.1128358542919159f, -0.3761262595653534f,
                            0.12837916612625122f};
  constexpr Real kFar[] = {-1.4133821423456538e-05f, 0.00035233201924711466f,
                           -0.003764659631997347f, 0.024025507271289825f, -0.10654909908771515f,
                           -0.6349583268165588f, -1.128697156906128f};
  const Vector a = f_abs(x), t = min_or_first(a, splat(4.3f));
  const Vector near = fused(x, polynomial(kNear, x * x), x);
  const Vector far = Real(1) - f_exp(t * polynomial(kFar, t));
  return a < splat(1) ? near : (x < splat(0) ? -far : far);
}
TILEWRIGHT_TARGET inline Vector f_gelu(Vector a) {
  return Real(0.5) * a * (Real(1) + f_erf(a * Real(0.70710678118654752440)));
}
// x = 2^n m, m from the root of 1/2 to that of 2, and the logarithm of m beside n ln 2, whose high part
// is exact. Off by less than one unit in the last place; as the library's at and below zero.
TILEWRIGHT_TARGET inline Vector f_log(Vector x) {
  typedef std::int32_t Integers __attribute__((vector_size(sizeof(Vector))));
  constexpr Real kTerms[] = {0.0674663856625557f, -0.11675651371479034f, 0.11888162791728973f,
                             -0.1240558922290802f, 0.14219552278518677f, -0.1666799634695053f,
                             0.2000211924314499f, -0.25000008940696716f, 0.3333331346511841f};
  const auto subnormal = x < splat(1.17549435e-38f);
  const Integers bits = (Integers)(subnormal ? x * Real(8388608) : x);
  const Integers whole = (bits - 0x3f3504f3) >> 23;
  const Vector r = (Vector)(bits - (whole << 23)) - Real(1), z = r * r;
  const Vector n = __builtin_convertvector(whole, Vector) - (subnormal ? splat(23) : splat(0));
  const Vector low = fused(r * z, polynomial(kTerms, r), n * Real(-2.12194440054690583e-4));
  const Vector made = fused(n, splat(0.693359375f), r + fused(z, splat(-0.5f), low));
  const Vector none = splat(__builtin_nanf("")), infinite = splat(__builtin_inff());
  const Vector below = x == splat(0) ? -infinite : none;  // what is below zero, and NaN
  return x > splat(0) ? (x == infinite ? infinite : made) : below;
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
TILEWRIGHT_TARGET inline Vector f_sigmoid(Vector a) { return Real(1) / (Real(1) + f_exp(-a)); }
TILEWRIGHT_TARGET inline Vector f_abs(Vector a) { return a < splat(0) ? -a : a + Real(0); }
TILEWRIGHT_TARGET inline Vector f_square(Vector a) { return a * a; }
TILEWRIGHT_TARGET inline Vector f_round(Vector a) { return nearest_integer(a); }
TILEWRIGHT_TARGET inline Vector f_floor(Vector a) {
  const Vector whole = nearest_integer(a);
  return whole > a ? whole - Real(1) : whole;
}
// No vector code of our own: a lane at a time.
#define TILEWRIGHT_BY_LANE(name)                            \
  TILEWRIGHT_TARGET inline Vector name(Vector a) {          \
    for (int i = 0; i < kLanes; ++i) a[i] = name(Real(a[i])); \
    return a;                                               \
  }
TILEWRIGHT_BY_LANE(f_sin)
TILEWRIGHT_BY_LANE(f_cos)
)";

constexpr const char* kSingleByLane = R"(TILEWRIGHT_BY_LANE(f_log)
TILEWRIGHT_BY_LANE(f_tanh)
TILEWRIGHT_BY_LANE(f_erf)
TILEWRIGHT_BY_LANE(f_gelu)
)";

constexpr const char* kPower = R"(
TILEWRIGHT_TARGET inline Vector pow_by_lane(Vector a, Vector b) {
  for (int i = 0; i < kLanes; ++i) a[i] = std::pow(Real(a[i]), Real(b[i]));
  return a;
}
// Exponents that are the same in all lanes and have a short way: normalisations have 1/2 and 3/4.
TILEWRIGHT_TARGET inline Vector f_pow(Vector a, Vector b) {
  const Real exponent = b[0];
  const Vector others = b - exponent;
  if (across_max(others) != 0 || across_min(others) != 0) return pow_by_lane(a, b);
  if (exponent == Real(0.5)) return f_sqrt(a);
  if (exponent == Real(0.75)) return f_sqrt(a) * f_sqrt(f_sqrt(a));
  if (exponent == Real(2)) return a * a;
  if (exponent == Real(3)) return a * a * a;
  return pow_by_lane(a, b);
}
)";

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at))
    text.replace(at, from.size(), to), at += to.size();
  return text;
}

/// The names that depend on the width and the type.
std::string specialised(std::string text, int vector_bytes, bool f64) {
  text = replaced(text, "STORE_PART", f64 ? kStorePart64 : kStorePart32);
  text = replaced(text, "BITS", f64 ? "8" : "16");
  text = replaced(text, "SUFFIX", f64 ? "pd" : "ps");
  text = replaced(text, "REGISTER",
                  std::string(vector_bytes == 64 ? "__m512" : "__m256") + (f64 ? "d" : ""));
  text = replaced(text, "INTEGER", f64 ? "int64_t" : "std::int32_t");
  text = replaced(text, "BIAS", f64 ? "1023" : "127");
  text = replaced(text, "MANTISSA", f64 ? "52" : "23");
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

std::string exponential(bool f64) {
  std::string text = kExponential;
  text = replaced(text, "EXP_LOW", f64 ? "-746" : "-104");
  text = replaced(text, "EXP_HIGH", f64 ? "710" : "89");
  text = replaced(text, "LN2_HIGH", f64 ? "6.93147180369123816490e-01" : "0.693359375");
  text =
      replaced(text, "LN2_LOW", f64 ? "1.90821492927058770002e-10" : "(-2.12194440054690583e-4)");
  const char* const single =
      "Real(1.3814539415761828e-3), Real(8.36874544620514e-3), Real(4.166838899254799e-2),\n"
      "                             Real(1.666652113199234e-1), Real(4.999999403953552e-1)";
  const char* const twice =
      "1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,\n"
      "                             1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,\n"
      "                             1.0 / 24, 1.0 / 6, 1.0 / 2";
  return replaced(text, "EXP_TERMS", f64 ? twice : single);
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
         specialised(vector_bytes == 64 ? kHardware512 : kHardware256, vector_bytes, f64) +
         strips(vector_bytes, f64) + exponential(f64) + kVectorFunctions +
         (f64 ? kSingleByLane : kSingle) + "#undef TILEWRIGHT_BY_LANE\n" +
         "// One value of a vector's.\n" + across("sum", "f_add", lanes) +
         across("product", "f_mul", lanes) + across("max", "f_max", lanes) +
         across("min", "f_min", lanes) + kPower;
}

}  // namespace tilewright::cpu
