// materialise-matrices: do contractions compute the same, and is each of them a product of matrices
// afterwards?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/core/rewrite_support.h"

namespace tilewright {
namespace {

Workload workload(const std::string& yaml) {
  return workload_from_yaml("name: test\n" + yaml, "test");
}

/// What is read and written by the product.
std::string text_of(const Workload& w, const std::string& op) {
  const std::string text = to_yaml(w);
  const std::size_t at = text.find("- " + op + ": ");
  return text.substr(at + op.size() + 4, text.find('\n', at) - at - op.size() - 4);
}

TEST(Matrices, OperandsAndResultsAreBroughtTogether) {
  const Workload w = workload(
      "loops: {b: 4, c: 5, d: 6, e: 7, f: 3}\ntensors: {X: [c, e, b, f], W: [f, d, e]}\n"
      "operators:\n  - p: y[b,d,c] += X[c,e,b,f] * W[f,d,e]\n");
  const Result<Workload> r = apply("materialise-matrices:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12);
  // c is the innermost loop of the results, so that X has the columns, and they are moved.
  EXPECT_EQ(text_of(*r, "p"), "y_sums[d,b,c] += X_rows[b,c,e,f] * W_rows[d,e,f]");
  EXPECT_EQ(text_of(*r, "y_moved"), "y[b,d,c] = y_sums[d,b,c]");
  EXPECT_TRUE(no_products_of_matrices(*r, false).empty());
}

TEST(Matrices, WhatLiesSoIsLeftWhereItIs) {
  // Loops of each role follow one another, in any order of the roles.
  for (const auto& [loops, op] :
       {std::pair("a: 30, b: 4, c: 5, d: 6, e: 7, f: 3", "y[a,b,c,d] += X[a,b,e,f] * W[e,f,c,d]"),
        {"a: 30, b: 4, c: 5, d: 6, e: 7, f: 3", "y[a,b,c,d] += X[e,f,a,b] * W[c,d,e,f]"},
        {"a: 30, c: 5, e: 7, g: 2", "y[g,a,c] += X[g,a,e] * W[g,e,c]"},
        {"a: 30, c: 5, e: 7, g: 2", "y[a,g,c] += X[g,a,e] * W[e,g,c]"}}) {
    const Workload w = workload(formatted("loops: {{{}}}\noperators:\n  - p: {}\n", loops, op));
    EXPECT_TRUE(no_products_of_matrices(w, false).empty()) << op;
  }
  // Only the operand that has them apart is copied.
  const Workload w = workload(
      "loops: {a: 30, b: 4, c: 15, e: 7, f: 3}\ntensors: {X: [a, e, b, f]}\n"
      "operators:\n  - p: y[a,b,c] += X[a,e,b,f] * W[e,f,c]\n");
  const Result<Workload> r = apply("materialise-matrices:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_EQ(text_of(*r, "p"), "y[a,b,c] += X_rows[a,b,e,f] * W[e,f,c]");
}

TEST(Matrices, WhereResultsAreMovedOperandsKeepTheirOrder) {
  const Workload w = workload(
      "loops: {a: 30, b: 4, c: 15, e: 7, f: 3}\ntensors: {W: [f, e, c]}\n"
      "operators:\n  - p: y[b,c,a] += X[a,b,e,f] * W[f,e,c]\n");
  const Result<Workload> r = apply("materialise-matrices:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12);
  // The order of the results, b before a, would have X copied.
  EXPECT_EQ(text_of(*r, "p"), "y_sums[c,a,b] += X[a,b,e,f] * W_rows[c,e,f]");
}

TEST(Matrices, ImagesWhosePatchesAreNoMoreThanTheWeightsAreWrittenByPatches) {
  for (const char* step : {"y+r-1,x+s-1", "2*y+r-1,3*x+s"}) {
    const Workload w = workload(formatted(
        "loops: {{n: 2, o: 24, y: 3, x: 4, c: 5, r: 3, s: 3}}\ntensors: {{I: [n,c,6,11]}}\n"
        "operators:\n  - p: O[n,o,y,x] += I[n,c,{}] * W[o,c,r,s]\n",
        step));
    const Result<Workload> r = apply("materialise-matrices:p", w);
    ASSERT_TRUE(r.ok()) << r.reason();
    EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12);
    EXPECT_EQ(text_of(*r, "I_rows"), formatted("I_rows[n,y,x,c,r,s] = I[n,c,{}]", step));
    EXPECT_TRUE(no_products_of_matrices(w, false).empty());
    EXPECT_EQ(no_products_of_matrices(w, true).size(), 1);
  }
}

/// Loops of every role, drawn in number, extent and order.
TEST(Matrices, DrawnContractionsComputeTheSame) {
  std::mt19937_64 random(30111);
  const auto number = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int changed = 0, moved = 0;
  for (int i = 0; i < 150; ++i) {
    std::string loops, of_role[4];  // batch, rows, columns, depth
    for (int role = 0; role < 4; ++role)
      for (int n = number(role == 0 ? 0 : 1, role == 0 ? 2 : 3); n > 0; --n) {
        const char name = static_cast<char>('a' + loops.size() / 6);
        loops += formatted("{}: {}, ", name, number(1, 4));
        of_role[role] += name;
      }
    const auto tensor = [&](std::string all) {
      if (number(0, 3) > 0) std::ranges::shuffle(all, random);
      std::string text;
      for (const char c : all) text += (text.empty() ? "" : ",") + std::string(1, c);
      return text;
    };
    const auto& [batch, rows, columns, depth] = of_role;
    const std::string x = tensor(batch + rows + depth), v = tensor(batch + depth + columns);
    const Workload w = workload(formatted(
        "loops: {{{}}}\noperators:\n  - p: y[{}] += X[{}] * W[{}]\n", loops,
        tensor(batch + rows + columns), number(0, 1) == 0 ? x : v, number(0, 1) == 0 ? x : v));
    if (no_products_of_matrices(w, false).empty()) continue;
    ++changed;
    const Result<Workload> r = apply("materialise-matrices:p", w);
    ASSERT_TRUE(r.ok()) << r.reason();
    EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12) << to_yaml(w) << to_yaml(*r);
    EXPECT_TRUE(no_products_of_matrices(*r, false).empty()) << to_yaml(w) << to_yaml(*r);
    moved += r->find_op("y_moved").has_value();
  }
  EXPECT_GT(changed, 30);
  EXPECT_GT(moved, 10);
}

TEST(Matrices, RefusesWhatIsNoProductOfTensorsThatAreReadOnce) {
  const std::string none = "operator p is no product";
  for (const char* yaml :
       {// A product of matrices, a window over more points than channels, a sum that one operand
        // has alone, a single column.
        "loops: {m: 8, k: 8, n: 8}\noperators:\n  - p: O[m,n] += I[m,k] * W[k,n]\n",
        "loops: {o: 8, c: 8, y: 4, x: 4, r: 3, s: 3}\ntensors: {I: [c,6,6]}\noperators:\n"
        "  - p: O[o,y,x] += I[c,y+r,x+s] * W[o,c,r,s]\n",
        "loops: {m: 8, k: 8, n: 8, j: 3}\noperators:\n  - p: O[n,m] += I[j,k,m] * W[k,n]\n",
        "loops: {m: 8, k: 2, j: 2, n: 1}\noperators:\n  - p: O[m,n] += I[k,m,j] * W[k,j,n]\n"})
    EXPECT_THAT(apply("materialise-matrices:p", workload(yaml)).reason(), testing::StartsWith(none))
        << yaml;
  const Workload w = workload(
      "loops: {a: 30, b: 4, c: 15, e: 7, f: 3}\ntensors: {X: [a, e, b, f]}\n"
      "operators:\n  - p: y[a,b,c] += X[a,e,b,f] * W[e,f,c]\n");
  for (const char* bad : {"materialise-matrices", "materialise-matrices:", "materialise-matrices:q",
                          "materialise-matrices:p;"})
    EXPECT_THROW(apply(bad, w), InputError) << bad;
}

}  // namespace
}  // namespace tilewright
