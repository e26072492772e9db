// The planner's attention on a GPU as programs write it: a step an operator, with masks and terms
// that are added to scores.
#include <gtest/gtest.h>

#include "core/lowering/gpu/warpgroup_pair.h"
#include "core/workload/text.h"
#include "models/model.h"
#include "models/quickest/partition.h"
#include "models/registry.h"

namespace tilewright {
namespace {

struct Planned {
  Result<Proposal> proposal;
  std::shared_ptr<const Workload> workload;  ///< after the proposal's rewrites
  Schedule schedule;
};

Planned planned(const std::string& yaml) {
  Question q{.name = "attention",
             .workload = std::make_shared<const Workload>(workload_from_yaml(yaml, "attention"))};
  q.machine = std::make_shared<const Machine>(named_machine("h200"));
  q.threads = 1;
  const Model& planner = builtin_models().back();
  Planned p{.proposal = planner.propose(q, {planner.options, {}, "planner"})};
  if (!p.proposal) throw std::runtime_error(p.proposal.reason());
  p.workload = quickest::rewritten(q.workload, p.proposal->rewrites);
  auto s = resolve(p.proposal->plan, p.workload, q.machine);
  if (!s) throw std::runtime_error(s.reason());
  p.schedule = std::move(s).value();
  return p;
}

/// Of 16 heads in groups of four, causal, after `term` of T[b,h,m,l].
Planned attention(int m, int l, const std::string& term) {
  const std::string biased = term.empty() ? "T[b,h,m,l]" : "A[b,h,m,l]";
  return planned(
      "name: attention\ndtype: bf16\nloops: {b: 4, h: 4, m: " + std::to_string(m) +
      ", l: " + std::to_string(l) + ", k: 64, \"n\": 64}\noperators:\n" +
      "  - S[b,h,m,l] += Q[b,h,m,k] * K[b,l,k]\n" + "  - T[b,h,m,l] = S[b,h,m,l] * 0.125\n" +
      (term.empty() ? "" : "  - A[b,h,m,l] = " + term + "\n") + "  - U[b,h,m,l] = select(lt(m + " +
      std::to_string(l - m) + ", l), -inf, " + biased + ")\n  - R[b,h,m] max= U[b,h,m,l]\n" +
      "  - P[b,h,m,l] = exp(U[b,h,m,l] - R[b,h,m])\n" +
      "  - Z[b,h,m] += P[b,h,m,l]\n  - O[b,h,m,n] += P[b,h,m,l] * V[b,l,n]\n" +
      "  - E[b,h,m,n] = O[b,h,m,n] / Z[b,h,m]\n");
}

TEST(PlannerOfAttention, TermsOfScoresAreReadByWarpgroups) {
  for (const char* term : {"T[b,h,m,l] + B[b,h,m,l]", "T[b,h,m,l] + B[m,l]",
                           "T[b,h,m,l] + slope[b,h] * (l - m)", "T[b,h,m,l] + B[h,m-l+639]"}) {
    const Planned p = attention(640, 640, term);
    ASSERT_EQ(p.schedule.kernels.size(), 1U) << term;
    const auto pair = lowering::warpgroup_pair(p.schedule, 0);
    ASSERT_TRUE(pair.ok()) << term << ": " << pair.reason();
    EXPECT_EQ(pair->reads.size(), 1U) << term;
    EXPECT_EQ(pair->edges.size(), 1U) << term;  // the mask still empties turns
  }
}

/// More than seven operators are parted step by step.
TEST(PlannerOfAttention, FewRowsBehindAMaskAreSplitOverKeys) {
  const Planned p = attention(43, 2347, "");
  ASSERT_EQ(p.proposal->rewrites.size(), 2U);
  EXPECT_EQ(p.proposal->rewrites[0], "online-softmax");
  EXPECT_EQ(p.proposal->rewrites[1].substr(0, 14), "split-running:");
  const auto pair = lowering::warpgroup_pair(p.schedule, 0);
  ASSERT_TRUE(pair.ok()) << pair.reason();
  EXPECT_GE(pair->tiles, 66) << "of 132 multiprocessors";
}

/// Parts that were joined to what is added behind the second product are taken out of them again.
TEST(PlannerOfAttention, WhatIsAddedBehindItStaysInItsKernel) {
  for (const char* term : {"T[b,m,l] + B[m,l]", "T[b,m,l] + B[b,m-l+1039]"}) {
    const Planned p = planned(
        "name: attention\ndtype: f16\nloops: {b: 32, m: 1040, l: 1040, k: 128, \"n\": 128}\n"
        "operators:\n  - S[b,m,l] += Q[b,m,k] * K[b,l,k]\n  - T[b,m,l] = S[b,m,l] * 0.0883\n"
        "  - A[b,m,l] = " +
        std::string(term) +
        "\n  - R[b,m] max= A[b,m,l]\n  - P[b,m,l] = exp(A[b,m,l] - R[b,m])\n"
        "  - Z[b,m] += P[b,m,l]\n  - O[b,m,n] += P[b,m,l] * V[b,l,n]\n"
        "  - E[b,m,n] = O[b,m,n] / Z[b,m]\n  - F[b,m,n] = E[b,m,n] + X[b,m,n]\n");
    ASSERT_EQ(p.schedule.kernels.size(), 1U) << term;
    const auto pair = lowering::warpgroup_pair(p.schedule, 0);
    ASSERT_TRUE(pair.ok()) << term << ": " << pair.reason();
    EXPECT_EQ(pair->after_reads.size(), 1U) << term;
  }
}

/// A softmax's sum that is declared behind the second product is in its loop all the same.
TEST(PlannerOfAttention, TheOrderOfOperatorsChangesNothing) {
  const std::vector<std::string> operators = {
      "S[b,m,l] += Q[b,m,k] * K[b,l,k]",   "R[b,m] max= S[b,m,l]",
      "P[b,m,l] = exp(S[b,m,l] - R[b,m])", "Z[b,m] += P[b,m,l]",
      "O[b,m,n] += P[b,m,l] * V[b,l,n]",   "E[b,m,n] = O[b,m,n] / Z[b,m]"};
  std::optional<double> seconds;
  for (const std::vector<std::size_t>& order : std::vector<std::vector<std::size_t>>{
           {0, 1, 2, 3, 4, 5}, {0, 1, 2, 4, 3, 5}, {2, 0, 5, 4, 3, 1}, {5, 4, 3, 2, 1, 0}}) {
    std::string text;
    for (const std::size_t i : order) text += "  - " + operators[i] + "\n";
    const Planned p = planned(
        "name: attention\ndtype: f16\nloops: {b: 12, m: 512, l: 512, k: 64, \"n\": 64}\n"
        "operators:\n" +
        text);
    ASSERT_EQ(p.schedule.kernels.size(), 1U) << text;
    ASSERT_TRUE(p.proposal->price.traffic.seconds);
    if (!seconds) seconds = p.proposal->price.traffic.seconds;
    EXPECT_DOUBLE_EQ(*p.proposal->price.traffic.seconds, *seconds) << text;
  }
}

}  // namespace
}  // namespace tilewright
