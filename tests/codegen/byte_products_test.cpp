// Products of whole numbers of 8 bits: the same numbers with and without instructions that add
// four or two of them, at odd sizes, of either layout, packed once or in every run.
#include "core/lowering/byte_products.h"

#include <gmock/gmock.h>

#include <random>

#include "models/exact/exact.h"
#include "tests/codegen/byte_kernels.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

struct Drawn {
  std::int64_t m = 0, n = 0, k = 0, tile_m = 0, tile_n = 0, tile_k = 0;
  bool columns_apart = false, constant = false, followed = false;
};

Schedule schedule_of(const Drawn& d) {
  const std::string right = d.columns_apart ? "B[j,k]" : "B[k,j]";
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  const std::string last =
      d.followed ? "  - \"after: D[i,j] = round(min(max(C[i,j] * s[j] + 0.25, -128), 127))\"\n"
                 : "";
  const auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: bytes\ndtype: f32\nloops: {i: " + text(d.m) + ", j: " + text(d.n) +
          ", k: " + text(d.k) + "}\ndtypes: {A: i8, B: i8" + (d.followed ? ", D: i8" : "") +
          "}\nranges: {A: 127, B: 127" + (d.followed ? ", s: 0.001" : "") +
          "}\noperators:\n  - \"product: C[i,j] += A[i,k] * " + right + "\"\n" + last,
      "test"));
  Kernel kernel{.tree = parse_tree("i/" + text(d.tile_m) + " j/" + text(d.tile_n) + " ( k/" +
                                   text(d.tile_k) + " ( C.product )" +
                                   (d.followed ? " C.after )" : " )"))};
  auto s = resolve(Plan{.kernels = {kernel}}, w, testing::worked_machine("cache:1M/16"));
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

Drawn drawn(std::uint64_t seed) {
  // Panels of a tile of their own are narrower than the micro-kernel, and there are two.
  if (seed == 0)
    return {.m = 4, .n = 182, .k = 64, .tile_m = 4, .tile_n = 91, .tile_k = 64, .constant = true};
  // More blocks of tiles than wait for one another, in panels and where they are put together.
  if (seed == 13 || seed == 14)
    return {.m = 75,
            .n = 330,
            .k = 70,
            .tile_m = 75,
            .tile_n = 330,
            .tile_k = 70,
            .constant = seed == 13,
            .followed = true};
  std::mt19937_64 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  Drawn d{.m = pick(1, 70), .n = pick(1, 120), .k = pick(2, 150)};
  d.tile_m = pick(1, d.m), d.tile_n = pick(1, d.n), d.tile_k = pick(0, 1) ? d.k : pick(1, d.k);
  d.columns_apart = pick(0, 1), d.constant = pick(0, 1), d.followed = pick(0, 1);
  return d;
}

TEST(ByteProducts, AreTheSameNumbersOnEveryInstructionSet) {
  std::vector<cpu::Isa> isas = testing::isas_here();
  for (const cpu::Isa isa : {cpu::Isa::avx512_vnni, cpu::Isa::amx_int8})
    if (cpu::host_runs(isa)) isas.push_back(isa);
  std::vector<cpu::Source> sources;
  std::vector<Schedule> schedules;
  std::vector<Drawn> cases;
  int packed_once = 0;
  for (std::uint64_t seed = 0; seed <= 14; ++seed)
    for (const cpu::Isa isa : isas) {
      cases.push_back(drawn(seed));
      schedules.push_back(schedule_of(cases.back()));
      cpu::EmitOptions options{.isa = isa, .prefix = "k" + std::to_string(sources.size())};
      if (cases.back().constant) options.constant = {"B"};
      auto source = cpu::emit(schedules.back(), options);
      ASSERT_TRUE(source.ok()) << source.reason();
      const bool tiles = isa == cpu::Isa::amx_int8;
      const bool quads = isa == cpu::Isa::avx512_vnni || tiles, pairs = isa == cpu::Isa::avx2;
      EXPECT_THAT(source->notes, Contains(HasSubstr(quads   ? "made in quads"
                                                    : pairs ? "made in pairs of 16 bits"
                                                            : "computed in f32")));
      EXPECT_EQ(source->text.find("vpmaddwd") != std::string::npos, pairs);
      EXPECT_EQ(source->text.find("tdpbusd") != std::string::npos, tiles);
      if (quads || pairs) packed_once += source->kept_bytes > 0 ? 1 : 0;
      sources.push_back(std::move(source).value());
    }
  if (cpu::host_runs(cpu::Isa::avx512_vnni) || cpu::host_runs(cpu::Isa::avx2)) {
    EXPECT_GT(packed_once, 0);
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O1"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Drawn& d = cases[i];
    SCOPED_TRACE(std::string(cpu::name_of(sources[i].isa)) + " m=" + std::to_string(d.m) +
                 " n=" + std::to_string(d.n) + " k=" + std::to_string(d.k) +
                 " tile_k=" + std::to_string(d.tile_k) + (d.columns_apart ? " apart" : "") +
                 (d.constant ? " constant" : "") + (d.followed ? " followed" : ""));
    const Workload& w = *schedules[i].workload;
    EXPECT_TRUE(multiplies_bytes(w));
    expect_whole_numbers(w, sources[i], kernels.value()[i], i, d.followed);
  }
}

// Sums far above 2^24 of the whole range, the lowest number with itself in pairs and quads too:
// each is the exact sum, rounded once as it becomes f32.
TEST(ByteProducts, SumsOfTheWholeRangeAreExact) {
  std::vector<cpu::Isa> isas;
  for (const cpu::Isa isa : {cpu::Isa::avx2, cpu::Isa::avx512_vnni, cpu::Isa::amx_int8})
    if (cpu::host_runs(isa)) isas.push_back(isa);
  if (isas.empty()) GTEST_SKIP() << "no instructions that sum products of 8-bit numbers";
  const Drawn d{.m = 13, .n = 37, .k = 4001, .tile_m = 13, .tile_n = 37, .tile_k = 4001};
  const Schedule s = schedule_of(d);
  const Workload& w = *s.workload;
  for (const bool constant : {false, true})
    for (const cpu::Isa isa : isas) {
      cpu::EmitOptions options{.isa = isa};
      if (constant) options.constant = {"B"};
      const cpu::Source source = cpu::emit(s, options).value();
      auto kernels = cpu::build_all({&source, 1}, {.optimisation = "-O1"});
      ASSERT_TRUE(kernels.ok()) << kernels.reason();
      std::mt19937_64 random(7);
      const auto draw = [&](std::int64_t elements) {
        std::vector<std::int8_t> all(static_cast<std::size_t>(elements));
        // Mostly large ones, so that sums are; every fifth anywhere.
        for (std::int8_t& x : all)
          x = static_cast<std::int8_t>(random() % 5 == 0 ? static_cast<int>(random() % 256) - 128
                                                         : -128 + static_cast<int>(random() % 9));
        return all;
      };
      std::vector<std::int8_t> a = draw(d.m * d.k), b = draw(d.k * d.n);
      std::vector<float> c(static_cast<std::size_t>(d.m * d.n));
      std::vector<void*> pointers(w.tensors().size());
      pointers[w.find_tensor("A")->index()] = a.data();
      pointers[w.find_tensor("B")->index()] = b.data();
      pointers[w.find_tensor("C")->index()] = c.data();
      std::vector<char> kept(static_cast<std::size_t>(source.kept_bytes));
      cpu::Kernel& kernel = kernels.value().front();
      if (!kept.empty()) kernel.prepare(pointers, kept.data());
      kernel.run(pointers, kept.empty() ? nullptr : kept.data());
      int beyond = 0;
      for (std::int64_t i = 0; i < d.m; ++i)
        for (std::int64_t j = 0; j < d.n; ++j) {
          std::int64_t sum = 0;
          for (std::int64_t k = 0; k < d.k; ++k)
            sum += std::int64_t{a[static_cast<std::size_t>(i * d.k + k)]} *
                   b[static_cast<std::size_t>(k * d.n + j)];
          beyond += sum > 1 << 24 ? 1 : 0;
          ASSERT_EQ(c[static_cast<std::size_t>(i * d.n + j)], static_cast<float>(sum))
              << cpu::name_of(isa) << " row " << i << " column " << j;
        }
      EXPECT_GT(beyond, 400);
    }
}

TEST(ByteProducts, TheHostTakesTheInstructionForThemAlone) {
  const Drawn d{.m = 8, .n = 16, .k = 8, .tile_m = 8, .tile_n = 16, .tile_k = 8};
  const Schedule s = schedule_of(d);
  const Workload plain = named_workload("gemm:m=8,n=16,k=8");
  EXPECT_FALSE(multiplies_bytes(plain));
  const auto multiplies = [](const Workload& w) {
    return cpu::host_isa(w) == cpu::Isa::avx512_vnni || cpu::host_isa(w) == cpu::Isa::amx_int8;
  };
  EXPECT_FALSE(multiplies(plain));
  EXPECT_EQ(multiplies(*s.workload), cpu::host_runs(cpu::Isa::avx512_vnni));
  EXPECT_EQ(cpu::host_isa(*s.workload) == cpu::Isa::amx_int8, cpu::host_runs(cpu::Isa::amx_int8));
}

// On chip all lies in reals: what is read where it is made was not rounded, whatever its type.
TEST(WholeNumbers, AreRoundedWhereTheyAreReadAsTheyAreMade) {
  const auto schedule = [](const std::string& dtype, const std::string& made,
                           const std::string& type) {
    const bool whole = made.find("a[i]") != std::string::npos;
    const auto w = std::make_shared<const Workload>(workload_from_yaml(
        "name: whole\ndtype: " + dtype + "\nloops: {i: 30, j: 19}\ndtypes: {u: " + type +
            (whole ? ", a: i8}\nranges: {a: 100}" : "}\nranges: {x: 30}") +
            "\noperators:\n  - \"u[i] " + made + "\"\n  - \"y[i,j] = u[i] * 0.5 + z[j]\"\n",
        "test"));
    return resolve(Plan{.kernels = {{.tree = parse_tree("i/7 ( C.u j/19 ( C.y ) )")}}}, w,
                   testing::worked_machine("cache:1M/16"));
  };
  std::vector<Schedule> schedules;
  std::vector<cpu::Source> sources;
  for (const char* made : {"= x[i] * 2", "= 3 * a[i]", "max= x[i] * 9", "= floor(x[i])",
                           "= max(min(round(x[i]), 90), -90)"})
    for (const char* type : {"i8", "i32"})
      for (const char* dtype : {"f32", "f64"}) {
        schedules.push_back(schedule(dtype, made, type).value());
        sources.push_back(
            cpu::emit(schedules.back(), {.prefix = "k" + std::to_string(sources.size())}).value());
      }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const Workload& w = *schedules[i].workload;
    const TensorValues inputs = random_inputs(w, 5);
    const auto error = [&](auto real) {
      testing::Arrays<decltype(real)> arrays(w, inputs);
      kernels.value()[i].run(arrays.pointers());
      return testing::worst_error(w, arrays, evaluate(w, inputs));
    };
    EXPECT_LT(i % 2 == 1 ? error(double{}) : error(float{}), 1e-5) << i;
  }
  // What is whole already is left as it is written.
  const auto moved = schedule("f32", "= min(max(round(x[i]), -131), 124) + 3", "i8");
  EXPECT_THAT(cpu::emit(*moved, {}).value().text,
              HasSubstr("u[i] = min(max(round(x[i]), -131), 124) + 3"));
  const auto clipped = schedule("f32", "= max(min(round(x[i]), 90), -90)", "i8");
  EXPECT_THAT(cpu::emit(*clipped, {}).value().text,
              HasSubstr("u[i] = max(min(round(x[i]), 90), -90)"));
  const auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: sum\nloops: {i: 30, j: 19, k: 9}\ndtypes: {u: i32, y: i32}\noperators:\n"
      "  - \"u[i] += 3.3 * x[i,k]\"\n  - \"y[i,j] = u[i] + z[j]\"\n",
      "test"));
  const auto sum = [&](const std::vector<std::string>& trees) {
    Plan plan;
    for (const std::string& tree : trees) plan.kernels.push_back({.tree = parse_tree(tree)});
    return cpu::emit(resolve(plan, w, testing::worked_machine("cache:1M/16")).value(), {});
  };
  EXPECT_TRUE(sum({"i/7 ( k/3 ( C.u ) )", "C.y"}).ok());
  EXPECT_THAT(sum({"k/3 i/7 ( C.u )", "C.y"}).reason(), HasSubstr("written in parts before"));
  EXPECT_THAT(sum({"i/7 ( k/3 ( C.u ) j/19 ( C.y ) )"}).reason(), HasSubstr("read or written"));
}

}  // namespace
}  // namespace tilewright
