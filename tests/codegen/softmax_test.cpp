// Softmax between products, element-wise operators, sums and extremes along rows as emitted
// kernels, and the exponential that they use.
#include <gmock/gmock.h>

#include <cmath>

#include "core/base/format.h"
#include "core/lowering/hidden_columns.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

Schedule schedule_of(const std::string& workload, const std::string& tree,
                     const std::string& tiles = "") {
  auto w = std::make_shared<const Workload>(workload.find('\n') == std::string::npos
                                                ? named_workload(workload)
                                                : workload_from_yaml(workload, "test"));
  Kernel k{.tree = parse_tree(tree)};
  if (!tiles.empty()) k.tiles = parse_tiles(tiles);
  auto s = resolve(Plan{.kernels = {k}}, w, testing::worked_machine("scratchpad:1M"));
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

/// Runs every schedule on every instruction set here, its tiles copied on one, in place on others.
template <class Real = float>
void check_everywhere(const std::vector<Schedule>& schedules, double tolerance = 1e-5,
                      int threads = 1) {
  std::vector<cpu::Source> sources;
  std::vector<const Schedule*> of;
  for (const Schedule& s : schedules)
    for (cpu::Isa isa : testing::isas_here()) {
      const Result<Schedule> in_place =
          resolve(s.resolved, s.workload, testing::cached(*s.machine));
      ASSERT_TRUE(in_place.ok()) << in_place.reason();
      auto source = cpu::emit(
          isa == cpu::Isa::avx2 ? s : *in_place,
          {.isa = isa, .threads = threads, .prefix = "k" + std::to_string(sources.size())});
      ASSERT_TRUE(source.ok()) << source.reason();
      sources.push_back(std::move(source).value());
      of.push_back(&s);
    }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < of.size(); ++i) {
    const Workload& w = *of[i]->workload;
    const TensorValues inputs = random_inputs(w, 5);
    testing::Arrays<Real> arrays(w, inputs);
    kernels.value()[i].run(arrays.pointers());
    EXPECT_LT(testing::worst_error(w, arrays, evaluate(w, inputs)), tolerance)
        << cpu::name_of(sources[i].isa) << " " << to_text(of[i]->resolved.kernels.front().tree);
  }
}

constexpr const char* kTwoPasses =
    "m ( l ( k ( C.qk ) C.rowmax ) l ( C.exp n ( C.pv ) C.rowsum ) n ( C.divide ) )";
constexpr const char* kOnline =
    "m ( l ( k ( C.qk ) C.rowmax C.exp C.rescale n ( C.pv ) C.rowsum ) n ( C.divide ) )";

TEST(Softmax, InTwoPassesAndOnline) {
  check_everywhere({
      schedule_of("attention:m=37,l=45,k=19,n=21", kTwoPasses, "m=10,l=17,k=19,n=21"),
      schedule_of("attention:m=37,l=45,k=19,n=21,online=1", kOnline, "m=10,l=17,k=8,n=9"),
      schedule_of("attention:m=16,l=64,k=16,n=32,online=1,heads=3,scale=1",
                  "b/1 m ( l ( k ( C.qk ) C.scaled C.rowmax C.exp C.rescale n ( C.pv ) C.rowsum ) "
                  "n ( C.divide ) )",
                  "m=8,l=32,k=16,n=32"),
      schedule_of("attention:m=13,l=37,k=11,n=17,online=1,heads=6,groups=3,scale=1",
                  "b/1 h/2 m ( l ( k ( C.qk ) C.scaled C.rowmax C.exp C.rescale n ( C.pv ) "
                  "C.rowsum ) n ( C.divide ) )",
                  "m=5,l=16,k=11,n=17"),
  });
}

/// Masks that read indices: in tiles at odd places, in vectors and what is left of them.
TEST(Softmax, UnderACausalMask) {
  check_everywhere({
      schedule_of("attention:m=37,l=45,k=19,n=21,causal=1",
                  "m ( l ( k ( C.qk ) C.masked C.rowmax ) l ( C.exp n ( C.pv ) C.rowsum ) "
                  "n ( C.divide ) )",
                  "m=10,l=17,k=19,n=21"),
      schedule_of("attention:m=37,l=45,k=19,n=21,causal=1,online=1",
                  "m ( l ( k ( C.qk ) C.masked C.rowmax C.exp C.rescale n ( C.pv ) C.rowsum ) n ( "
                  "C.divide ) )",
                  "m=10,l=17,k=8,n=9"),
  });
}

/// An attention of two heads whose operator `masked` makes U of S.
std::string attention_masked(const std::string& masked, const std::string& rest = "") {
  return "name: a\nloops: {b: 2, m: 53, l: 61, k: 7, n: 18}\noperators:\n"
         "  - \"qk: S[b,m,l] += Q[b,m,k] * K[b,l,k]\"\n"
         "  - \"masked: U[b,m,l] = " +
         masked +
         "\"\n"
         "  - \"rowmax: R[b,m] max= U[b,m,l]\"\n"
         "  - \"exp: P[b,m,l] = exp(U[b,m,l] - R[b,m])\"\n"
         "  - \"rowsum: Z[b,m] += P[b,m,l]\"\n"
         "  - \"pv: O[b,m,n] += P[b,m,l] * V[b,l,n]\"\n"
         "  - \"divide: E[b,m,n] = O[b,m,n] / Z[b,m]\"\n" +
         rest;
}
constexpr const char* kWholeRows =
    "b/1 m/8 n/18 ( l/61 k/7 ( C.qk ) C.masked C.rowmax C.exp C.rowsum l/61 ( C.pv ) C.divide )";
constexpr const char* kCutRows =
    "b/2 m/8 ( l/13 k/7 ( C.qk ) m/3 ( l/13 ( C.masked C.rowmax ) ) "
    "l/29 ( C.exp C.rowsum n/9 ( C.pv ) ) C.divide )";
constexpr const char* kBlocks =
    "b/2 m/8 ( l/13 ( k/7 ( C.qk ) C.masked C.rowmax ) l/29 ( C.exp n/18 ( C.pv ) C.rowsum ) "
    "C.divide )";

/// Columns that add nothing to a tile's rows are not computed: what their places in a tile held
/// before, of rows that saw them, must not show.
TEST(Softmax, WithoutColumnsThatAMaskHides) {
  const std::string causal = "select(lt(m, l), -inf, S[b,m,l])";
  const std::string later = "select(lt(l, m), -inf, S[b,m,l])";
  const std::string window = "select(lt(m + 3, l), -inf, select(lt(l, m - 20), -inf, S[b,m,l]))";
  const std::string first = "select(lt(l, 17), S[b,m,l], -inf)";
  std::vector<Schedule> all;
  for (const std::string& masked : {causal, later, window, first})
    for (const char* tree : {kWholeRows, kCutRows, kBlocks})
      all.push_back(schedule_of(attention_masked(masked), tree));
  for (const Schedule& s : all)
    EXPECT_EQ(lowering::hidden_columns(*s.workload, s.kernels.front()).size(), 1U);
  check_everywhere(all);
  // Rows that see more have more to do: threads take tiles of rows in turn.
  constexpr const char* kOneHead =
      "m/5 b/2 n/18 ( l/61 k/7 ( C.qk ) C.masked C.rowmax C.exp C.rowsum l/61 ( C.pv ) C.divide )";
  check_everywhere({schedule_of(attention_masked(causal), kOneHead)}, 1e-5, 3);
}

TEST(Softmax, ColumnsThatSomebodyElseReadsAreComputed) {
  const auto hidden = [](const std::string& workload, const char* tree) {
    const Schedule s = schedule_of(workload, tree);
    return lowering::hidden_columns(*s.workload, s.kernels.front()).size();
  };
  const std::string causal = "select(lt(m, l), -inf, S[b,m,l])";
  EXPECT_EQ(hidden(attention_masked(causal), kWholeRows), 1U);
  // A score may be less, so the masked one may be the largest.
  EXPECT_EQ(hidden(attention_masked("select(lt(m, l), -1000, S[b,m,l])"), kWholeRows), 0U);
  EXPECT_EQ(hidden(attention_masked("S[b,m,l] * 2"), kWholeRows), 0U);
  EXPECT_EQ(hidden(attention_masked(causal, "outputs: [E, P]\n"), kWholeRows), 0U);
  // Row 0 sees nothing at all.
  EXPECT_EQ(hidden(attention_masked("select(lt(m, l + 1), -inf, S[b,m,l])"), kWholeRows), 0U);
}

TEST(Softmax, WithoutItsMaximum) {
  const std::string workload =
      "name: s\nloops: {m: 29, l: 35, k: 11, n: 18}\noperators:\n"
      "  - \"S[m,l] += Q[m,k] * K[l,k]\"\n  - \"P[m,l] = exp(S[m,l])\"\n"
      "  - \"Z[m] += P[m,l]\"\n  - \"O[m,n] += P[m,l] * V[l,n]\"\n"
      "  - \"E[m,n] = O[m,n] / Z[m]\"\n";
  check_everywhere({schedule_of(workload, "m ( l ( k ( C.S ) C.P C.Z n ( C.O ) ) n ( C.E ) )",
                                "m=8,l=16,k=11,n=18")});
}

TEST(Softmax, InDoublePrecision) {
  check_everywhere<double>(
      {schedule_of("attention:m=19,l=23,k=7,n=9,online=1,dtype=f64", kOnline, "m=10,l=5,k=7,n=9")},
      1e-13);
}

TEST(Points, EveryFunctionAndEveryCombination) {
  check_everywhere({
      schedule_of(
          "name: f\nloops: {i: 5, j: 39}\noperators:\n"
          "  - \"a[i,j] = gelu(x[i,j]) + tanh(x[i,j]) * sigmoid(y[i,j]) - erf(y[i,j])\"\n"
          "  - \"b[i,j] = sqrt(abs(x[i,j])) + rsqrt(square(y[i,j]) + 1) / recip(z[j] + 2)\"\n"
          "  - \"c[i,j] = select(lt(x[i,j], y[i,j]), log(abs(x[i,j]) + 1), pow(2, z[j]))\"\n"
          "  - \"d[i,j] = max(a[i,j], neg(b[i,j])) + min(c[i,j], v[i]) * relu(x[i,j])\"\n",
          "i/2 j/20 ( C.a C.b C.c C.d )"),
      schedule_of(
          "name: r\nloops: {i: 9, j: 50}\noperators:\n  - \"a[i] max= x[i,j]\"\n"
          "  - \"b[i] min= x[i,j]\"\n  - \"p[i] *= y[i,j]\"\n  - \"q[j] += x[i,j] * x[i,j]\"\n"
          "  - \"z[i] += exp(a[i] - b[i]) * q[j] + p[i] / 3\"\n",
          "( i/4 ( j/33 ( C.a C.b C.p C.q ) ) i/9 ( C.z ) )"),
  });
}

/// Indices of the loop that vectors run along and of others, in sums, extremes and rescaled
/// results.
TEST(Points, Indices) {
  const std::string operators =
      "  - \"a[i,j] = x[i,j] * j + select(lt(i, j - 5), i, -j)\"\n"
      "  - \"b[j,i] = x[i,j] + 0.5 * i - j\"\n"
      "  - \"s[i] += select(lt(j, 2 * i + 3), j, 0) * x[i,j]\"\n"
      "  - \"t[j] max= x[i,j] * i\"\n"
      "  - \"r[i] = 0.125 * i\"\n";
  const std::string loops = "loops: {i: 23, j: 77}\noperators:\n";
  check_everywhere(
      {schedule_of("name: f\n" + loops + operators, "i/5 j/33 ( C.a C.b C.s C.t C.r )")});
  check_everywhere<double>({schedule_of("name: f\ndtype: f64\n" + loops + operators,
                                        "i/5 j/33 ( C.a C.b C.s C.t C.r )")},
                           1e-13);
}

TEST(Points, SeveralOutputsOfWhichOneIsReadInOneRow) {
  const std::string two =
      "operators:\n  - \"T3: T3[c,w] = X[c,w]; T3b[c,w] = X[c,w] + 1\"\n"
      "  - \"T4[c,w] = T3[0,w]\"\n";
  check_everywhere({
      schedule_of("name: t\nloops: {c: 4000, w: 8}\n" + two, "c ( C.T3 ) c ( C.T4 )", "c=1000"),
      schedule_of("name: t\nloops: {c: 40, w: 24}\n" + two + "  - \"T5[c,w] = T3b[c,w] * 2\"\n",
                  "w/9 ( c ( C.T3 ) c ( C.T4 ) c ( C.T5 ) )", "c=7"),
  });
}

/// y[j,i], an expression of x[i] and z[j] in that type, on the vectors of an instruction set.
template <class Real>
std::vector<Real> values_of(const std::string& expression, cpu::Isa isa, const std::vector<Real>& x,
                            const std::vector<Real>& z = {1}) {
  const Schedule s = schedule_of(
      formatted(
          "name: e\ndtype: {}\nloops: {{j: {}, i: {}}}\noperators: [\"y[j,i] = {} + 0 * z[j]\"]\n",
          sizeof(Real) == 4 ? "f32" : "f64", z.size(), x.size(), expression),
      "j/1 i/4096 ( C.y )");
  // Contraction off: the bound is one that needs no more fused multiply-adds than the text asks
  // for.
  auto source = cpu::emit(s, {.isa = isa}).value();
  source.flags = {"-O2", "-std=c++17", "-ffp-contract=off"};
  auto kernel = cpu::build(source);
  if (!kernel.ok()) throw std::runtime_error(kernel.reason());
  std::vector<Real> in = x, factors = z, y(x.size() * z.size());
  std::vector<void*> pointers(3);
  pointers[s.workload->find_tensor("z")->index()] = factors.data();
  pointers[s.workload->find_tensor("x")->index()] = in.data();
  pointers[s.workload->find_tensor("y")->index()] = y.data();
  kernel.value().run(pointers);
  return y;
}

/// Units in the last place between a result and the value that it stands for.
template <class Real, class Wide>
double ulps(Real got, Wide exact) {
  const Real nearest = static_cast<Real>(exact);
  if (got == nearest) return 0;
  const Real next = std::nextafter(std::abs(nearest), std::numeric_limits<Real>::infinity());
  if (std::isinf(next)) return std::isinf(got) || got == std::nextafter(nearest, Real(0)) ? 1 : 1e9;
  const Wide unit = static_cast<Wide>(next) - static_cast<Wide>(std::abs(nearest));
  return static_cast<double>(std::abs(static_cast<Wide>(got) - exact) / unit);
}

template <class Real, class Wide>
void check_exponential(Real low, Real high) {
  std::vector<Real> x = {0,
                         -Real(0),
                         std::numeric_limits<Real>::infinity(),
                         -std::numeric_limits<Real>::infinity(),
                         std::numeric_limits<Real>::quiet_NaN(),
                         std::numeric_limits<Real>::max(),
                         std::numeric_limits<Real>::lowest(),
                         std::numeric_limits<Real>::denorm_min()};
  const int steps = 1 << 19;
  for (int i = 0; i < steps; ++i) {
    const Real along = low + (high - low) * static_cast<Real>(i) / static_cast<Real>(steps);
    x.push_back(along);
    x.push_back(along / Real(1024));
  }
  for (cpu::Isa isa : testing::isas_here()) {
    if (isa == cpu::Isa::generic) continue;  // it calls the library's
    const std::vector<Real> y = values_of("exp(x[i])", isa, x);
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 1);
    EXPECT_EQ(y[2], std::numeric_limits<Real>::infinity());
    EXPECT_EQ(y[3], 0);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], std::numeric_limits<Real>::infinity());
    EXPECT_EQ(y[6], 0);
    EXPECT_EQ(y[7], 1);
    double worst = 0;
    Real where = 0;
    for (std::size_t i = 8; i < x.size(); ++i)
      if (const double u = ulps<Real, Wide>(y[i], std::exp(static_cast<Wide>(x[i]))); u > worst)
        worst = u, where = x[i];
    std::cout << cpu::name_of(isa) << ", " << sizeof(Real) << " bytes: " << worst << " ulp at "
              << where << "\n";
    EXPECT_LT(worst, 1.0) << where;  // what the emitted text promises
  }
}

TEST(Exponential, IsWithinOneUnitInTheLastPlace) {
  check_exponential<float, double>(-105.0F, 90.0F);
  check_exponential<double, long double>(-747.0, 711.0);
}

/// Of one function: the worst error over arguments to both sides of zero up to each of `most`, and
/// what the library gives for those that are special.
template <class Real, class Wide>
void check_function(const char* name, Wide (*exact)(Wide), std::initializer_list<Real> most,
                    double units) {
  const Real infinity = std::numeric_limits<Real>::infinity();
  std::vector<Real> x = {infinity,
                         -infinity,
                         0,
                         -Real(0),
                         std::numeric_limits<Real>::quiet_NaN(),
                         std::numeric_limits<Real>::max(),
                         std::numeric_limits<Real>::denorm_min(),
                         Real(3) * std::numeric_limits<Real>::denorm_min(),
                         Real(1)};
  const std::size_t special = x.size();
  const int steps = 1 << 14;
  for (const Real end : most)
    for (int i = 0; i < steps; ++i) {
      const Real along = 2 * static_cast<Real>(i) / static_cast<Real>(steps) - 1;
      for (const Real part : {1, 12, 4096}) x.push_back(end * along / part);
      x.push_back(1 + along / 2);
    }
  for (cpu::Isa isa : testing::isas_here()) {
    if (isa == cpu::Isa::generic) continue;  // it calls the library's
    const std::vector<Real> y = values_of(std::string(name) + "(x[i])", isa, x);
    double worst = 0;
    Real where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Wide right = exact(static_cast<Wide>(x[i]));
      if (std::isnan(right) || std::isinf(right) || i < special) {
        const bool same =
            std::isnan(right) ? std::isnan(y[i]) : (ulps<Real, Wide>(y[i], right)) < units;
        EXPECT_TRUE(same) << name << " at " << x[i] << ": " << y[i];
        continue;
      }
      if (const double u = ulps<Real, Wide>(y[i], right); u > worst) worst = u, where = x[i];
    }
    std::cout << name << ", " << cpu::name_of(isa) << ", " << sizeof(Real) << " bytes: " << worst
              << " ulp at " << where << "\n";
    EXPECT_LT(worst, units) << name << " at " << where;  // what the emitted text promises
  }
}

template <class Wide>
Wide natural(Wide v) {
  return v < 0 ? std::numeric_limits<Wide>::quiet_NaN() : std::log(v);
}

TEST(Functions, LogarithmIsWithinOneUnitInTheLastPlace) {
  check_function<float, double>("log", natural<double>, {2, 1e30F}, 1);
  check_function<double, long double>("log", natural<long double>, {2, 1e300}, 1);
}

TEST(Functions, SineAndCosineAreWithinTwoUnitsInTheLastPlace) {
  const std::initializer_list<float> floats = {3, 400, 9e4F, 1e8F};
  check_function<float, double>(
      "sin", [](double v) { return std::sin(v); }, floats, 2);
  check_function<float, double>(
      "cos", [](double v) { return std::cos(v); }, floats, 2);
  const std::initializer_list<double> doubles = {3, 400, 9e5, 1e9};
  check_function<double, long double>(
      "sin", [](long double v) { return std::sin(v); }, doubles, 2);
  check_function<double, long double>(
      "cos", [](long double v) { return std::cos(v); }, doubles, 2);
}

TEST(Functions, TanhAndErfAreWithinThreeUnitsInTheLastPlace) {
  check_function<float, double>(
      "tanh", [](double v) { return std::tanh(v); }, {12}, 3);
  check_function<float, double>(
      "erf", [](double v) { return std::erf(v); }, {12}, 3);
  check_function<double, long double>(
      "tanh", [](long double v) { return std::tanh(v); }, {24}, 3);
  check_function<double, long double>(
      "erf", [](long double v) { return std::erf(v); }, {12}, 3);
}

TEST(Functions, PowersAreWithinThreeUnitsInTheLastPlace) {
  const auto powers = []<class Real, class Wide>(Real, Wide) {
    std::vector<Real> x = {0,
                           1,
                           std::numeric_limits<Real>::infinity(),
                           std::numeric_limits<Real>::quiet_NaN(),
                           -2,
                           std::numeric_limits<Real>::denorm_min()};
    for (int i = 1; i < 5000; ++i) {
      x.push_back(static_cast<Real>(i) / 1700);
      x.push_back(static_cast<Real>(std::pow(1.01, 2 * i - 5000)));
      x.push_back(static_cast<Real>(-i) / 80);
    }
    const std::vector<Real> z = {-2,         -1, Real(-0.5), Real(0.5),  Real(0.75), 1,
                                 Real(1.5),  2,  Real(2.2),  3,          Real(3.7),  4,
                                 Real(-0.3), 17, Real(0.01), Real(-41.5)};
    for (const char* call : {"pow(x[i], z[j])", "pow(abs(z[j]), x[i])"})
      for (cpu::Isa isa : testing::isas_here()) {
        if (isa == cpu::Isa::generic) continue;  // it calls the library's
        const std::vector<Real> y = values_of(call, isa, x, z);
        for (std::size_t j = 0; j < z.size(); ++j) {
          const Wide factor = static_cast<Wide>(z[j]);
          double worst = 0;
          Real where = 0;
          for (std::size_t i = 0; i < x.size(); ++i) {
            const Wide of = static_cast<Wide>(x[i]);
            const Wide right =
                call[4] == 'x' ? std::pow(of, factor) : std::pow(std::abs(factor), of);
            const Real got = y[j * x.size() + i];
            if (std::isnan(right)) {
              EXPECT_TRUE(std::isnan(got)) << call << " at " << x[i];
            } else if (const double u = ulps<Real, Wide>(got, right); u > worst) {
              worst = u, where = x[i];
            }
          }
          EXPECT_LT(worst, 3) << call << " at " << where << " and " << z[j] << ", "
                              << cpu::name_of(isa);
        }
      }
  };
  powers(0.0F, 0.0);
  powers(0.0, 0.0L);
}

}  // namespace
}  // namespace tilewright
