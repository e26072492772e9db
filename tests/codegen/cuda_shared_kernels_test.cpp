// Kernels that differ in names alone have one function, which each launch calls with its tensors.
#include <gmock/gmock.h>

#include <set>

#include "codegen/cuda/shared_kernels.h"
#include "core/base/format.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_support.h"

namespace tilewright {
namespace {

using cuda::without_names;

TEST(SharedKernels, TextsAreComparedWithoutTheirNames) {
  EXPECT_EQ(without_names("A_home[l_m] = x;// of A\n"), without_names("B7_home[l_i] = x;\n"));
  EXPECT_EQ(without_names("a_x + b_x * a_x"), without_names("b_x + c_x * b_x"));
  EXPECT_NE(without_names("a_x + b_x"), without_names("a_x + a_x"));
  EXPECT_NE(without_names("a_x[4]"), without_names("a_x[5]"));
  // What the device headers, the language and CUDA have keeps its name.
  EXPECT_NE(without_names("load_global(a_x)"), without_names("store_global(a_x)"));
  EXPECT_NE(without_names("static_cast<int>(a_x)"), without_names("const_cast<int>(a_x)"));
  EXPECT_NE(without_names("expf(a_x)"), without_names("logf(a_x)"));
  EXPECT_NE(without_names("__expf(a_x)"), without_names("__logf(a_x)"));
}

/// The functions of all launches, verified on an emulated GPU.
struct Launched {
  std::set<std::string> functions;
  std::size_t launches = 0;
};

Launched run(const std::string& text, const std::vector<std::pair<std::string, std::string>>& trees,
             std::map<std::string, Pin> pins = {}) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(text, "test"));
  Plan plan;
  for (const auto& [name, tree] : trees) {
    plan.kernels.push_back({.name = name, .tree = parse_tree(tree)});
    for (const auto& [tensor, pin] : pins)
      if (tree.find("L." + tensor) != std::string::npos) plan.kernels.back().pins[tensor] = pin;
  }
  const auto s = resolve(plan, w, std::make_shared<const Machine>(named_machine("h200")));
  EXPECT_TRUE(s) << s.reason();
  const auto source = cuda::emit(*s, {.prefix = "k"});
  EXPECT_TRUE(source) << source.reason();
  const auto module = testing::build_cuda({*source});
  EXPECT_TRUE(module) << module.reason();
  const auto got = testing::run_cuda(*module, *source, *w, 3);
  EXPECT_TRUE(got) << got.reason();
  EXPECT_TRUE(got->report.clean()) << got->report.findings.front().text;
  EXPECT_LT(got->error, 1e-5);
  Launched all{.launches = source->launches.size()};
  for (const cuda::Launch& l : source->launches) all.functions.insert(l.symbol);
  return all;
}

TEST(SharedKernels, LayersAreOneFunction) {
  const std::string layers =
      "name: layers\nloops: {m: 32, k: 48, n: 48, p: 48}\noperators:\n"
      "  - \"one: C[m,n] += A[m,k] * B[k,n]\"\n  - \"two: E[m,p] += C[m,n] * D[n,p]\"\n";
  const auto tree = [](char a, char b, char c, const std::string& op, char row, char column) {
    return formatted("m/16@grid {}/16@grid ( {}/16 ( L.{} L.{} C.{} ) S.{} )", column, row, a, b,
                     op, c);
  };
  const Launched same = run(layers, {{"a", tree('A', 'B', 'C', "one", 'k', 'n')},
                                     {"b", tree('C', 'D', 'E', "two", 'n', 'p')}});
  EXPECT_EQ(same.launches, 2u);
  EXPECT_EQ(same.functions.size(), 1u);
  // Another tile is another function.
  const Launched other = run(layers, {{"a", tree('A', 'B', 'C', "one", 'k', 'n')},
                                      {"b", "m/8@grid p/16@grid ( n/16 ( L.C L.D C.two ) S.E )"}});
  EXPECT_EQ(other.functions.size(), 2u);
}

/// Other arithmetic, or the same with its parameters the other way round.
TEST(SharedKernels, OtherValuesAreOtherFunctions) {
  const std::string text =
      "name: values\nloops: {m: 64}\noperators:\n"
      "  - \"one: B[m] = exp(A[m])\"\n  - \"two: C[m] = relu(B[m])\"\n"
      "  - \"three: D[m] = A[m] - C[m]\"\n  - \"four: E[m] = D[m] - A[m]\"\n";
  const Launched all = run(text, {{"a", "m/32@grid ( L.A C.one S.B )"},
                                  {"b", "m/32@grid ( L.B C.two S.C )"},
                                  {"c", "m/32@grid ( L.A L.C C.three S.D )"},
                                  {"d", "m/32@grid ( L.A L.D C.four S.E )"}});
  EXPECT_EQ(all.functions.size(), 4u);
}

/// Kernels whose blocks wait for one another count in a word of their own.
TEST(SharedKernels, BarriersOfAllBlocksAreSharedToo) {
  std::string text = "name: sums\nloops: {m: 40, n: 24}\noperators:\n";
  std::string from = "A";
  std::vector<std::pair<std::string, std::string>> trees;
  std::map<std::string, Pin> pins;
  for (int i = 1; i <= 3; ++i) {
    text += formatted("  - \"sum{0}: s{0}[m] += {1}[m,n]\"\n", i, from) +
            formatted("  - \"scale{0}: X{0}[m,n] = {1}[m,n] / (s{0}[m] + 30)\"\n", i, from);
    trees.emplace_back(
        formatted("k{}", i),
        formatted("m/8@grid n/8@grid ( L.{1} C.sum{0} S.s{0}!atomic ) Y.grid m/8@grid n/8@grid ( "
                  "L.s{0} L.{1} C.scale{0} S.X{0} )",
                  i, from));
    pins[formatted("s{}", i)].level = "DRAM";
    from = formatted("X{}", i);
  }
  const Launched all = run(text, trees, pins);
  EXPECT_EQ(all.launches, 6u);  // a zeroing each
  EXPECT_EQ(all.functions.size(), 2u);
}

}  // namespace
}  // namespace tilewright
