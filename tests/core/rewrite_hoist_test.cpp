// hoist: do expressions compute the same, and once for each element of what moves them?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/core/rewrite_support.h"

namespace tilewright {
namespace {

Workload of(const std::string& loops, const std::string& operators) {
  return workload_from_yaml("name: test\nloops: {" + loops + "}\noperators:\n" + operators, "test");
}

TEST(Hoist, PartsThatFewerLoopsMoveAreOperators) {
  const Workload w =
      of("i: 8, j: 9, k: 5",
         "  - p: y[i,j] += x[i,j,k] * exp(a[j]) + log(abs(b[i,k]) + 1) / exp(a[j])\n");
  const Result<Workload> r = apply("hoist:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12);
  const std::string text = to_yaml(*r);
  for (const char* op : {"p_part[j] = exp(a[j])", "p_part_2[i,k] = log(abs(b[i,k]) + 1)",
                         "y[i,j] += x[i,j,k] * p_part[j] + p_part_2[i,k] / p_part[j]"})
    EXPECT_THAT(text, testing::HasSubstr(op));
  EXPECT_TRUE(operators_to_hoist(*r).empty());
}

TEST(Hoist, WhatIsLightOrMovesWithAllLoopsStays) {
  for (const auto& [loops, op] : {std::pair("i: 8, j: 9", "y[i,j] = x[i,j] * (a[j] + 1)"),
                                  {"i: 8, j: 9", "y[i,j] = exp(x[i,j] + a[j])"},
                                  {"i: 8, h: 3", "y[i,h] = x[i,h] * exp(a[i])"}}) {
    const Workload w = of(loops, formatted("  - p: {}\n", op));
    EXPECT_TRUE(operators_to_hoist(w).empty()) << op;
    EXPECT_THAT(apply("hoist:p", w).reason(),
                testing::StartsWith("operator p computes no function"));
  }
  for (const char* bad : {"hoist", "hoist:", "hoist:q", "hoist:p;"})
    EXPECT_THROW(apply(bad, of("i: 8, j: 9", "  - p: y[i,j] = x[i,j] * exp(a[j])\n")), InputError)
        << bad;
}

/// Tensors of every set of loops, in nested functions, sums and gathers.
TEST(Hoist, DrawnExpressionsComputeTheSame) {
  std::mt19937_64 random(30112);
  const auto any = [&](std::initializer_list<const char*> of) {
    return std::string(of.begin()[random() % of.size()]);
  };
  int changed = 0;
  for (int i = 0; i < 200; ++i) {
    std::function<std::string(int)> drawn = [&](int depth) -> std::string {
      if (depth == 0)
        return any({"x[i,j,k]", "a[i]", "b[j]", "c[k]", "d[i,k]", "e[j,k]", "x[i,j,k]", "i", "2"});
      if (random() % 3 == 0)
        return "(" + drawn(depth - 1) + any({" + ", " * ", " - "}) + drawn(depth - 1) + ")";
      return any({"exp", "tanh", "sin", "relu", "sigmoid"}) + "(" + drawn(depth - 1) + ")";
    };
    const std::string sum = any({"=", "+=", "max="});
    const Workload w = of("i: 7, j: 4, k: 9", formatted("  - p: y[i,j{}] {} {} + x[i,j,k]\n",
                                                        sum == "=" ? ",k" : "", sum, drawn(3)));
    const Result<Workload> r = apply("hoist:p", w);
    EXPECT_EQ(r.ok(), !operators_to_hoist(w).empty());
    if (!r.ok()) continue;
    ++changed;
    EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12) << to_yaml(w);
    EXPECT_TRUE(operators_to_hoist(*r).empty()) << to_yaml(*r);
  }
  EXPECT_GT(changed, 60);
}

}  // namespace
}  // namespace tilewright
