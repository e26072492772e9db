// Tensors put side by side: what is a join, and what may lie in its result.
#include "core/workload/joins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/workload/text.h"

namespace tilewright {
namespace {

/// The operator `c` after others, over the loops and tensors that they name.
Workload joined(const std::string& op, const std::string& more = "") {
  const std::string all = op + more;
  const auto listed = [&](std::initializer_list<std::pair<const char*, const char*>> from,
                          const char* after) {
    std::string list;
    for (const auto& [name, size] : from)
      if (all.find(name + std::string(after)) != std::string::npos ||
          (*after == 0 && (all.find("[" + std::string(name)) != std::string::npos ||
                           all.find("," + std::string(name)) != std::string::npos)))
        list += (list.empty() ? "" : ", ") + std::string(name) + ": " + size;
    return list;
  };
  return workload_from_yaml("name: w\nloops: {" +
                                listed({{"i", "48"}, {"h", "16"}, {"g", "32"}, {"n", "20"}}, "") +
                                "}\ntensors: {" +
                                listed({{"x", "[16, 20]"},
                                        {"y", "[32, 20]"},
                                        {"z", "[24, 20]"},
                                        {"p", "[20, 16]"},
                                        {"q", "[20, 32]"}},
                                       "[") +
                                "}\noperators:\n  - \"c: " + op + "\"\n" + more,
                            "test");
}

TEST(Joins, PartsAreInputsEachZeroBeyondItsPlace) {
  const Workload w = joined("c[i,n] = y[i-16,n] + x[i,n]");
  const auto parts = joined_parts(w, OpId(0));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].input, 1);
  EXPECT_EQ(parts[0].from, 0);
  EXPECT_EQ(parts[0].size, 16);
  EXPECT_EQ(parts[1].input, 0);
  EXPECT_EQ(parts[1].from, 16);
  EXPECT_EQ(place_in_result(w, OpId(0), parts[0]), 0);
  EXPECT_EQ(place_in_result(w, OpId(0), parts[1]), 16 * 20 * 4);
}

TEST(Joins, OtherSumsAreNone) {
  for (const char* op : {"c[i,n] = x[i,n] + z[i-12,n]",  // they overlap
                         "c[i,n] = x[i,n] + y[i-20,n]",  // the last rows are cut off
                         "c[i,n] = x[i,n] * y[i-16,n]", "c[i,n] = x[i,n] + 2 * y[i-16,n]",
                         "c[i,n] = x[i,n] + y[i-16,n] + 1", "c[h,n] = x[h,n] + y[h,n]"})
    EXPECT_TRUE(joined_parts(joined(op), OpId(0)).empty()) << op;
}

/// Rows of the parts alternate in memory.
TEST(Joins, APartOfEachRowHasNoPlaceOfItsOwn) {
  const Workload w = joined("c[n,i] = p[n,i] + q[n,i-16]");
  const auto parts = joined_parts(w, OpId(0));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_FALSE(place_in_result(w, OpId(0), parts[0]));
}

TEST(Joins, WhatOperatorsMakeLiesInTheFirstResultThatHasIt) {
  const std::string more =
      "  - \"a: a[h,n] = x[h,n] * 2\"\n  - \"b: b[g,n] = y[g,n] * 2\"\n"
      "  - \"d: d[i,n] = b[i,n] + a[i-32,n]\"\n  - \"e: e[i,n] = c[i,n] * d[i,n]\"\n"
      "  - \"f: f[i,n] = x[i,n] + b[i-16,n]\"\n  - \"k: k[i,n] = f[i,n] * 3\"\n";
  const Workload w = joined("c[i,n] = a[i,n] + b[i-16,n]", more);
  const auto inside = tensors_inside(w);
  ASSERT_EQ(inside.size(), 2u);
  for (const char* name : {"a", "b"}) {
    const auto at = inside.find(*w.find_tensor(name));
    ASSERT_NE(at, inside.end()) << name;
    const std::string whole = w.tensor(at->second.whole).name;
    EXPECT_TRUE(whole == "c" || whole == "d") << whole;
  }
  const auto nothing = joins_of_nothing(w, inside);
  // One of c and d copies nothing; x is nobody's result, so that f copies.
  EXPECT_EQ(std::ranges::count(nothing, true), 1);
  EXPECT_FALSE(nothing[w.find_op("f")->index()]);
}

/// A copy of `a` whose rows are in pairs to one where they are in one dimension.
Workload reshaped(const std::string& copy) {
  return workload_from_yaml(
      "name: w\nloops: {c: 3, y: 4, p: 2, x: 5, i: 8}\ndtypes: {k: i32, l: i32}\nvalues:\n"
      "  k: [0, 0, 1, 1, 2, 2, 3, 3]\n  l: [0, 1, 0, 1, 0, 1, 0, 1]\noperators:\n"
      "  - \"a: a[c,y,p,x] = g[c,y,p,x] * 2\"\n  - \"b: " +
          copy +
          "\"\n"
          "  - \"d: d[c,i,x] = tanh(b[c,i,x]) + b[c,i,x] * k[i] + l[i]\"\n",
      "test");
}

TEST(Joins, ACopyInAnotherShapeLiesInWhatItCopies) {
  const Workload w = reshaped("b[c,i,x] = a[c,k[i],l[i],x]");
  const OpId copy = *w.find_op("b");
  ASSERT_TRUE(copied_input(w, copy));
  EXPECT_EQ(w.op(copy).inputs[*copied_input(w, copy)].tensor, *w.find_tensor("a"));
  EXPECT_TRUE(same_in_memory(w, copy));
  const auto inside = tensors_inside(w);
  ASSERT_EQ(inside.size(), 1u);
  EXPECT_EQ(inside.begin()->first, *w.find_tensor("b"));
  EXPECT_EQ(inside.begin()->second.whole, *w.find_tensor("a"));
  const auto nothing = joins_of_nothing(w, inside);
  EXPECT_TRUE(nothing[copy.index()]);
  EXPECT_EQ(std::ranges::count(nothing, true), 1);
}

TEST(Joins, OtherCopiesHaveMemoryOfTheirOwn) {
  for (const char* op : {"b[c,i,x] = a[c,l[i],l[i],x]", "b[c,i,x] = a[c,k[i],l[i],x] * 3",
                         "b[c,i,x] = a[c,k[i],k[i],x]", "b[c,i,x] = a[2-c,k[i],l[i],x]",
                         "b[c,i,x] = a[c,k[i],l[i],x-1]"}) {
    const Workload w = reshaped(op);
    EXPECT_TRUE(tensors_inside(w).empty()) << op;
  }
}

/// What leaves the network has memory of its own.
TEST(Joins, OutputsLieNowhere) {
  const Workload w = joined("c[i,n] = a[i,n] + b[i-16,n]",
                            "  - \"a: a[h,n] = x[h,n] * 2\"\n  - \"b: b[g,n] = y[g,n] * 2\"\n");
  EXPECT_TRUE(tensors_inside(w).empty());
}

}  // namespace
}  // namespace tilewright
