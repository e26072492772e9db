// Softmax between products, element-wise operators, sums and extremes along rows as emitted
// kernels, and the exponential that they use.
#include <gmock/gmock.h>

#include <cmath>

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

/// y[i] = f(x[i]) in that type, on the vectors of an instruction set, of every value in `x`.
template <class Real>
std::vector<Real> values_of(const std::string& f, cpu::Isa isa, const std::vector<Real>& x) {
  const std::string n = std::to_string(x.size());
  const Schedule s =
      schedule_of("name: e\ndtype: " + std::string(sizeof(Real) == 4 ? "f32" : "f64") +
                      "\nloops: {i: " + n + "}\noperators: [\"y[i] = " + f + "(x[i])\"]\n",
                  "i/4096 ( C.y )");
  // Contraction off: the bound is one that needs no more fused multiply-adds than the text asks
  // for.
  auto source = cpu::emit(s, {.isa = isa}).value();
  source.flags = {"-O2", "-std=c++17", "-ffp-contract=off"};
  auto kernel = cpu::build(source);
  if (!kernel.ok()) throw std::runtime_error(kernel.reason());
  std::vector<Real> in = x, y(x.size());
  std::vector<void*> pointers(2);
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
    const std::vector<Real> y = values_of("exp", isa, x);
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

TEST(Hyperbolic, TanhAndErfAreWithinThreeUnitsInTheLastPlace) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {infinity, -infinity, 0, std::numeric_limits<float>::quiet_NaN()};
  const int steps = 1 << 18;
  for (int i = 0; i < steps; ++i) {
    const float along = 12 * (2 * static_cast<float>(i) / steps - 1);
    x.push_back(along);
    x.push_back(along / 12);
    x.push_back(along / 4096);
  }
  struct Function {
    const char* name;
    double (*exact)(double);
  };
  for (const Function& f : {Function{"tanh", [](double v) { return std::tanh(v); }},
                            Function{"erf", [](double v) { return std::erf(v); }}})
    for (cpu::Isa isa : testing::isas_here()) {
      if (isa == cpu::Isa::generic) continue;  // it calls the library's
      const std::vector<float> y = values_of(f.name, isa, x);
      EXPECT_EQ(y[0], 1);
      EXPECT_EQ(y[1], -1);
      EXPECT_EQ(y[2], 0);
      EXPECT_TRUE(std::isnan(y[3]));
      double worst = 0;
      float where = 0;
      for (std::size_t i = 4; i < x.size(); ++i)
        if (const double u = ulps<float, double>(y[i], f.exact(static_cast<double>(x[i])));
            u > worst)
          worst = u, where = x[i];
      std::cout << f.name << ", " << cpu::name_of(isa) << ": " << worst << " ulp at " << where
                << "\n";
      EXPECT_LT(worst, 3.0) << f.name << " at " << where;
    }
}

TEST(Logarithm, IsWithinOneUnitInTheLastPlace) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {
      0, -0.0F, -1, infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 1};
  const int steps = 1 << 16;
  for (int i = 0; i < steps; ++i) {
    const float along = static_cast<float>(i + 1) / steps;
    x.push_back(2 * along);                     // about one
    x.push_back(1 + along / 64);                // just above it
    x.push_back(std::exp2(300 * along - 149));  // every size, subnormal ones too
  }
  for (cpu::Isa isa : testing::isas_here()) {
    if (isa == cpu::Isa::generic) continue;  // it calls the library's
    const std::vector<float> y = values_of("log", isa, x);
    EXPECT_EQ(y[0], -infinity);
    EXPECT_EQ(y[1], -infinity);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], infinity);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_TRUE(std::isnan(y[5]));
    EXPECT_EQ(y[6], 0);
    double worst = 0;
    float where = 0;
    for (std::size_t i = 7; i < x.size(); ++i) {
      if (std::isinf(x[i])) continue;
      if (const double u = ulps<float, double>(y[i], std::log(static_cast<double>(x[i])));
          u > worst)
        worst = u, where = x[i];
    }
    std::cout << cpu::name_of(isa) << ": " << worst << " ulp at " << where << "\n";
    EXPECT_LT(worst, 1.0) << where;  // what the emitted text promises
  }
}

}  // namespace
}  // namespace tilewright
