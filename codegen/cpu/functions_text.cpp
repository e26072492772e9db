// Functions of vectors in emitted programs, of our own: exponential, logarithm, sine and cosine,
// tanh, erf and powers. Coefficients are of polynomials through Chebyshev nodes, or fitted by
// iteratively reweighted least squares, in f32 and f64; the errors named are of the polynomials.
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

// exp: degree 6 within 3.1e-9 of e^r on |r| <= ln(2)/2, relative. log: log(1 + r) = r - r^2/2 + r^3
// p(r), within 3.3e-9, r from sqrt(1/2) - 1 to sqrt(2) - 1. sin and cos on |x| <= 1.02 pi/4: within
// 1.3e-8 and 1.2e-9. tanh(x) = x + x^3 p(x^2) for |x| < 5/8, within 4.4e-9; erf(x) = x + x p(x^2)
// for |x| < 1, within 1.3e-9; log2(1 - erf(x)) = x p(x) for x from 1 to 4.3, where erf(x) is 1,
// within 3.7e-10 of erf(x). 2^f = 1 + f p(f) for |f| <= 0.505, within 9.3e-9.
constexpr const char* kTerms32 = R"(
constexpr Real kExpLow = -104, kExpHigh = 89;
constexpr Real kLn2High = 0.693359375f, kLn2Low = -2.12194440054690583e-4f;
constexpr Real kExp[] = {1.3814539415761828e-3f, 8.36874544620514e-3f, 4.166838899254799e-2f,
                         1.666652113199234e-1f, 4.999999403953552e-1f, 1, 1};
constexpr Real kLog[] = {-0.062015000730752945f, 0.1053086444735527f, -0.10646191984415054f,
                         0.11037783324718475f, -0.12450743466615677f, 0.14286524057388306f,
                         -0.1666800081729889f, 0.2000001072883606f, -0.24999989569187164f,
                         0.3333333432674408f};
constexpr std::uint32_t kRootOfHalf = 0x3f3504f3;
// Of pi / 2, and the largest that is reduced by them.
constexpr Real kQuarter[] = {1.570796251296997f, 7.549789415861596e-08f, 5.390302953474238e-15f};
constexpr Real kMostAngle = 1e5f;
constexpr Real kSin[] = {2.7237576887273462e-06f, -0.00019839989545289427f, 0.008333331905305386f,
                         -0.1666666716337204f};
constexpr Real kCos[] = {2.4537750505260192e-05f, -0.0013888254761695862f, 0.0416666641831398f};
constexpr Real kTanh[] = {-0.005704990588128567f, 0.020639091730117798f, -0.05373971536755562f,
                          0.13331441581249237f, -0.3333328068256378f};
constexpr Real kErf[] = {7.854009163565934e-05f, -0.0008010242017917335f, 0.005188333801925182f,
                         -0.026853814721107483f, 0.1128358542919159f, -0.3761262595653534f,
                         0.12837916612625122f};
constexpr Real kErfFar[] = {-2.0390794816194102e-05f, 0.0005083076539449394f,
                            -0.005431255791336298f, 0.03466147929430008f, -0.15371786057949066f,
                            -0.9160512089729309f, -1.6283657550811768f};
// 2 / ln 2 in two parts; of 2 atanh(s) = 2 s + s^3 p(s^2) the terms of p, within 6e-10; of 2^f.
constexpr Real kTwoPerLn2 = 2.885390043258667f, kTwoPerLn2Low = 3.851925982253235e-08f;
constexpr Real kAtanh[] = {0.2333046793937683f, 0.2855082154273987f, 0.4000012278556824f,
                           0.6666666865348816f};
constexpr Real kExp2[] = {0.0001545416162116453f, 0.0013392016990110278f, 0.009618080221116543f,
                          0.05550355091691017f, 0.24022650718688965f, 0.6931471824645996f};
)";

// exp: the Taylor polynomial of degree 13, within 4.3e-18. 2 atanh(s) = 2 s + s^3 p(s^2), s from
// the logarithm's r by r / (2 + r), within 1.1e-18. sin and cos: within 6.2e-18 and 1.4e-18. tanh
// as in f32, within 8.1e-18; erf near within 2e-17. erfc(x) = exp(-x^2) p(t), t = (x - 5/2) / (x +
// 5/2), for x from 1 to 6, where erf(x) is 1, within 3.8e-18 of erf(x).
constexpr const char* kTerms64 = R"(
constexpr Real kExpLow = -746, kExpHigh = 710;
constexpr Real kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
constexpr Real kExp[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                         1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1, 1};
constexpr Real kAtanh[] = {0.13086626147840102, 0.13268773138656886, 0.15386239702814658,
                           0.18181795640132906, 0.22222222391713917, 0.28571428570803614,
                           0.4000000000000088, 0.6666666666666666};
constexpr std::uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
// Of pi / 2, and the largest that is reduced by them.
constexpr Real kQuarter[] = {1.5707963267948966, 6.123233995736765e-17, 1.082856673921914e-32};
constexpr Real kMostAngle = 1e6;
constexpr Real kSin[] = {-7.584263996034166e-13, 1.605848950955874e-10, -2.5052105961377e-08,
                         2.7557319218542833e-06, -0.0001984126984126402, 0.008333333333333331,
                         -0.16666666666666666};
constexpr Real kCos[] = {4.7445191096480046e-14, -1.1470437475266499e-11, 2.087675564036913e-09,
                         -2.755731922096008e-07, 2.4801587301584066e-05, -0.0013888888888888887,
                         0.041666666666666664};
constexpr Real kTanh[] = {6.485163482793113e-06, -3.12011014257974e-05, 9.257116129556769e-05,
                          -0.0002375906496055562, 0.0005896606577757043, -0.0014557754120478055,
                          0.0035921217511549622, -0.008863235103240878, 0.021869488519008305,
                          -0.05396825396789699, 0.13333333333333042, -0.3333333333333333};
constexpr Real kErf[] = {5.957176147748911e-11, -1.1372848856791674e-09, 1.4659775274047436e-08,
                         -1.6350312701054695e-07, 1.6461000484121368e-06, -1.4925595266831182e-05,
                         0.0001205533111164271, -0.000854832698083379, 0.0052239776248180145,
                         -0.026866170645076792, 0.11283791670954879, -0.3761263890318375,
                         0.1283791670955126};
constexpr Real kErfFar[] = {-1.587633893127344e-06, -2.2328516517555215e-06, 7.499735050763299e-06,
                            1.8596747731144528e-05, -3.4175718896856294e-05, -0.00012887483134837842,
                            0.0002283799633257643, 0.0008759152875774328, -0.0026423659518134547,
                            -0.003993701160123029, 0.03992253907546523, -0.12503305237891782,
                            0.2517131932174488, -0.37173673394897294, 0.2108063640611436};
)";

constexpr const char* kPolynomial = R"(
// Terms of a polynomial, the highest first.
template <int N>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector polynomial(const Real (&terms)[N], Vector x) {
  Vector p = splat(terms[0]);
  for (int i = 1; i < N; ++i) p = fused(p, x, splat(terms[i]));
  return p;
}
)";

constexpr const char* kTwoTo32 = R"(// 2^(whole + f) where that is a normal number; |f| <= 0.505.
TILEWRIGHT_TARGET inline Vector two_to(Vector whole, Vector f) {
  return fused(f, polynomial(kExp2, f), splat(1)) * power_of_two(whole);
}
)";

constexpr const char* kFunctions =
    R"(// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln(2) / 2. The high part of ln 2 times n is exact.
// Off by less than one unit in the last place; 0 and infinity where e^x is out of range. What is 0 is
// not computed: a result that underflows takes some processors as long as a hundred others.
TILEWRIGHT_TARGET inline Vector f_exp(Vector x) {
  const auto gone = x < splat(kExpLow);  // NaN is not, and stays what it is
  x = min_or_first(gone ? splat(0) : x, splat(kExpHigh));
  const Vector n = nearest_integer(x * Real(1.44269504088896340736));
  const Vector r = fused(n, splat(-kLn2Low), fused(n, splat(-kLn2High), x));
  const Vector e = polynomial(kExp, r);
  return gone ? splat(0) : times_power_of_two(e, n);
}
TILEWRIGHT_TARGET inline Vector f_sigmoid(Vector a) { return Real(1) / (Real(1) + f_exp(-a)); }
// x = 2^n m, m from sqrt(1/2) to sqrt(2); m is returned. For x that is a normal number above zero.
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector mantissa_of(Vector x, Vector& n) {
  constexpr auto kOne = decltype(+kRootOfHalf){kBias} << kMantissa;
  const Bits shifted = ((Bits)x + (kOne - kRootOfHalf)) >> kMantissa;  // n and the bias
  n = (Vector)(shifted | (Bits)splat(kWhole)) - (kWhole + Real(kBias));
  return (Vector)((Bits)x - (shifted << kMantissa) + kOne);
}
// log x = n log 2 + log m, off by less than one unit in the last place. Numbers below the normal ones
// are scaled; of zero it is -infinity, of what is below zero NaN, and NaN stays what it is.
TILEWRIGHT_TARGET inline Vector f_log(Vector x) {
  constexpr Real kLeast = std::numeric_limits<Real>::min(), kMost = std::numeric_limits<Real>::max();
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  const auto small = x < splat(kLeast);
  Vector n;
  const Vector r = mantissa_of(small ? x * Real(int64_t{2} << kMantissa) : x, n) - Real(1);
  n = small ? n - Real(kMantissa + 1) : n;
LOG_OF_R
  return ((x > splat(0)) & (x <= splat(kMost))) ? y
         : x == splat(0)                    ? splat(-kInfinity)
         : x < splat(0)                     ? splat(std::numeric_limits<Real>::quiet_NaN())
                                            : x;
}
// sin(x + QUARTERS pi / 2), off by less than two units in the last place. Angles so large that pi / 2
// in three parts is not exact enough go to the library.
template <int QUARTERS>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector sine(Vector x) {
  if (any_above(f_abs(x), splat(kMostAngle))) {
    for (int i = 0; i < kLanes; ++i) x[i] = QUARTERS == 0 ? std::sin(Real(x[i])) : std::cos(Real(x[i]));
    return x;
  }
  const Vector n = nearest_integer(x * Real(0.63661977236758134308));
  Vector r = fused(n, splat(-kQuarter[0]), x);
  r = fused(n, splat(-kQuarter[1]), r);
  r = fused(n, splat(-kQuarter[2]), r);
  const Vector z = r * r;
  const Vector sin = fused(r * z, polynomial(kSin, z), r);
  const Vector cos = fused(z * z, polynomial(kCos, z), fused(z, splat(Real(-0.5)), splat(1)));
  const Bits quarter = bits_of_whole(n) + QUARTERS;
  const Vector v = (quarter & 1) != 0 ? cos : sin;
  return (Vector)((Bits)v ^ ((quarter & 2) << (8 * sizeof(Real) - 2)));
}
TILEWRIGHT_TARGET inline Vector f_sin(Vector x) { return sine<0>(x); }
TILEWRIGHT_TARGET inline Vector f_cos(Vector x) { return sine<1>(x); }
// Off by less than three units in the last place, as erf is; NaN stays what it is.
TILEWRIGHT_TARGET inline Vector f_tanh(Vector x) {
  const Vector z = x * x, t = f_abs(x);
  const Vector near = fused(x * z, polynomial(kTanh, z), x);
TANH_FAR
  return t < splat(0.625) ? near : (x < splat(0) ? -far : far);
}
TILEWRIGHT_TARGET inline Vector f_erf(Vector x) {
  const Vector a = f_abs(x), t = min_or_first(a, splat(MOST_OF_ERF));
  const Vector near = fused(x, polynomial(kErf, x * x), x);
ERF_FAR
  return a < splat(1) ? near : (x < splat(0) ? -far : far);
}
TILEWRIGHT_TARGET inline Vector f_gelu(Vector a) {
  return Real(0.5) * a * (Real(1) + f_erf(a * Real(0.70710678118654752440)));
}
TILEWRIGHT_TARGET inline Vector pow_by_lane(Vector a, Vector b) {
  for (int i = 0; i < kLanes; ++i) a[i] = std::pow(Real(a[i]), Real(b[i]));
  return a;
}
POWERS// Exponents that are the same in all lanes and have a short way (lowering::kShortPowers).
TILEWRIGHT_TARGET inline Vector f_pow(Vector a, Vector b) {
  const Real exponent = b[0];
  const Vector others = b - exponent;
  if (across_max(others) != 0 || across_min(others) != 0) return other_pow(a, b);
  if (exponent == Real(-2)) return Real(1) / a * (Real(1) / a);
  if (exponent == Real(-1)) return Real(1) / a;
  if (exponent == Real(-0.5)) return Real(1) / f_sqrt(a);
  if (exponent == Real(0.5)) return f_sqrt(a);
  if (exponent == Real(0.75)) return f_sqrt(a) * f_sqrt(f_sqrt(a));
  if (exponent == Real(1)) return a;
  if (exponent == Real(1.5)) return a * f_sqrt(a);
  if (exponent == Real(2)) return a * a;
  if (exponent == Real(3)) return a * a * a;
  if (exponent == Real(4)) return (a * a) * (a * a);
  return other_pow(a, b);
}
)";

constexpr const char* kLogOfR32 = R"(  const Vector z = r * r;
  const Vector low = fused(n, splat(kLn2Low), r * z * polynomial(kLog, r));
  const Vector y = fused(n, splat(kLn2High), r + fused(z, splat(Real(-0.5)), low));)";
constexpr const char* kLogOfR64 =
    R"(  const Vector s = r / (Real(2) + r), z = s * s, half = Real(0.5) * r * r;
  const Vector low = fused(s, half + z * polynomial(kAtanh, z), n * kLn2Low);
  const Vector y = fused(n, splat(kLn2High), r - (half - low));)";

constexpr const char* kTanhFar32 = R"(  const Vector most = min_or_first(t, splat(9.5f));
  const Vector whole = nearest_integer(most * kTwoPerLn2);
  const Vector power = two_to(whole, fused(most, splat(kTwoPerLn2), -whole));
  const Vector far = Real(1) - Real(2) / (power + Real(1));)";
constexpr const char* kTanhFar64 =
    "  const Vector far = Real(1) - Real(2) / (f_exp(t + t) + Real(1));";

constexpr const char* kErfFar32 =
    R"(  const Vector power = t * polynomial(kErfFar, t), whole = nearest_integer(power);
  const Vector far = Real(1) - two_to(whole, power - whole);)";
constexpr const char* kErfFar64 =
    R"(  const Vector square = t * t, left = Real(1) - fused(t, t, -square);
  const Vector p = polynomial(kErfFar, (t - Real(2.5)) / (t + Real(2.5)));
  const Vector far = Real(1) - f_exp(-square) * left * p;)";

// x^y = 2^(y log2 x). log2 x is a sum of two numbers, so that y times it is exact enough: s and
// its error are those of (m - 1) / (m + 1), log2 m = 2 / ln 2 atanh(s).
constexpr const char* kPowers32 =
    R"(// Off by less than three units in the last place where x is normal and above zero, or zero and y above
// zero. Others are the library's, and their vectors.
TILEWRIGHT_TARGET inline Vector other_pow(Vector x, Vector y) {
  constexpr Real kLeast = std::numeric_limits<Real>::min(), kMost = std::numeric_limits<Real>::max();
  const auto zero = (x == splat(0)) & (y > splat(0));
  const auto usual = (x >= splat(kLeast)) & (x <= splat(kMost)) & (f_abs(y) <= splat(1e6f));
  if (any_above(splat(1), usual | zero ? splat(1) : splat(0))) return pow_by_lane(x, y);
  Vector n;
  const Vector m = mantissa_of(zero ? splat(1) : x, n);
  const Vector over = m - Real(1), under = m + Real(1), under_low = m - (under - Real(1));
  const Vector s = over / under, z = s * s;
  const Vector s_low = fused(-s, under_low, fused(-s, under, over)) / under;
  const Vector high = s * kTwoPerLn2;
  const Vector tail = s * z * polynomial(kAtanh, z);
  Vector low = fused(s, splat(kTwoPerLn2), -high) + s * kTwoPerLn2Low;
  low += (s_low + Real(0.5) * tail) * kTwoPerLn2;
  const Vector sum = n + high;
  low += high - (sum - n);
  const Vector log2 = sum + low, log2_low = low - (log2 - sum);
  const Vector most = max_or_first(min_or_first(y * log2, splat(200)), splat(-200));
  const Vector power = nearest_integer(most);
  const Vector left = fused(y, log2, -most) + y * log2_low;  // of little use where it was cut off
  const Vector f = (most - power) + max_or_first(min_or_first(left, splat(1)), splat(-1));
  const Vector e = times_power_of_two(fused(f, polynomial(kExp2, f), splat(1)), power);
  return zero ? splat(0) : e;
}
)";
constexpr const char* kPowers64 =
    R"(TILEWRIGHT_TARGET inline Vector other_pow(Vector a, Vector b) { return pow_by_lane(a, b); }
)";

}  // namespace

std::string functions_text(bool f64) {
  std::string text = kFunctions;
  text = replaced(text, "LOG_OF_R", f64 ? kLogOfR64 : kLogOfR32);
  text = replaced(text, "MOST_OF_ERF", f64 ? "6" : "4.3f");
  text = replaced(text, "ERF_FAR", f64 ? kErfFar64 : kErfFar32);
  text = replaced(text, "TANH_FAR", f64 ? kTanhFar64 : kTanhFar32);
  text = replaced(text, "POWERS", f64 ? kPowers64 : kPowers32);
  return (f64 ? kTerms64 : kTerms32) + std::string(kPolynomial) + (f64 ? "" : kTwoTo32) + text;
}

}  // namespace tilewright::cpu
