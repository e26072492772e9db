// The order of a workload that does not depend on how it is written down.
#include "core/workload/canonical.h"

#include <gtest/gtest.h>

#include <random>

#include "core/workload/text.h"
#include "tests/support/other_order.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

using Ptr = std::shared_ptr<const Workload>;

Ptr named(const std::string& name) {
  return std::make_shared<const Workload>(named_workload(name));
}

/// Names apart: of each operator its loops' sizes and what it reads, in order.
std::vector<std::vector<std::int64_t>> structure(const Workload& w) {
  std::vector<std::vector<std::int64_t>> all;
  for (const Operator& op : w.operators()) {
    auto& one = all.emplace_back();
    for (const LoopId l : op.loops) one.insert(one.end(), {l.value, w.loop(l).extent});
    for (const Access& a : op.inputs) one.push_back(a.tensor.value);
    for (const Output& out : op.outputs) one.push_back(out.target.tensor.value);
  }
  return all;
}

/// Drawn, and built in: whatever the order in which loops, tensors and operators are declared.
TEST(Canonical, OrderOfDeclarationsChangesNothing) {
  std::mt19937_64 random(7);
  std::vector<Ptr> all;
  for (const char* name :
       {"gemm-chain", "gated-ffn", "attention:heads=2", "transformer-block", "conv-chain",
        "lstm:steps=3,layers=2,hidden=64", "random-graph:vertices=40,seed=5", "adam:size=100",
        "bert:layers=1,seq=32,hidden=64,heads=4,ffn=64"})
    all.push_back(named(name));
  testing::RandomOptions o;
  for (int i = 0; i < 60; ++i) {
    o.einsums = i % 3 == 0;
    if (auto c = testing::random_case(random, o)) all.push_back(c->workload);
  }
  int others = 0;
  for (const Ptr& w : all) {
    const Ptr order = in_canonical_order(w);
    EXPECT_EQ(in_canonical_order(order), order) << w->name();
    EXPECT_EQ(order->operators().size(), w->operators().size());
    for (int i = 0; i < 4; ++i) {
      const Ptr other = testing::in_other_order(*w, random);
      others += *other != *w;
      EXPECT_EQ(*in_canonical_order(other), *order) << w->name();
      const Ptr renamed = testing::in_other_order(*w, random, true);
      EXPECT_EQ(structure(*in_canonical_order(renamed)), structure(*order)) << w->name();
    }
  }
  EXPECT_GT(others, 100);
}

/// Results first, then what is reduced; operators from the result back, from left to right.
TEST(Canonical, ResultsThenReductions) {
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("name: rows\nloops: {k: 5, n: 3, m: 4}\noperators:\n"
                         "  - \"other: T[m,n] = C[n,m]\"\n"
                         "  - \"s: S[m] += select(lt(m, k), 0, A[m,k]) * W[k]\"\n"
                         "  - \"d: D[m,n] = B[m,n] - S[m] * T[m,n]\"\n",
                         "rows"));
  const Ptr order = in_canonical_order(w);
  std::string loops, operators, tensors;
  for (const Loop& l : order->loops()) loops += l.name;
  for (const Operator& op : order->operators()) operators += op.name + " ";
  for (const Tensor& t : order->tensors()) tensors += t.name;
  EXPECT_EQ(loops, "mnk");
  EXPECT_EQ(operators, "s other d ");
  EXPECT_EQ(tensors, "AWSCTBD");
}

}  // namespace
}  // namespace tilewright
