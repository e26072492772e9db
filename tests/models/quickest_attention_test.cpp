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

/// Of 16 heads in groups of four, causal, after `term` of T[b,h,m,l].
Planned attention(int m, int l, const std::string& term) {
  const std::string biased = term.empty() ? "T[b,h,m,l]" : "A[b,h,m,l]";
  Question q{.name = "attention",
             .workload = std::make_shared<const Workload>(workload_from_yaml(
                 "name: attention\ndtype: bf16\nloops: {b: 4, h: 4, m: " + std::to_string(m) +
                     ", l: " + std::to_string(l) + ", k: 64, \"n\": 64}\noperators:\n" +
                     "  - S[b,h,m,l] += Q[b,h,m,k] * K[b,l,k]\n" +
                     "  - T[b,h,m,l] = S[b,h,m,l] * 0.125\n" +
                     (term.empty() ? "" : "  - A[b,h,m,l] = " + term + "\n") +
                     "  - U[b,h,m,l] = select(lt(m + " + std::to_string(l - m) + ", l), -inf, " +
                     biased + ")\n  - R[b,h,m] max= U[b,h,m,l]\n" +
                     "  - P[b,h,m,l] = exp(U[b,h,m,l] - R[b,h,m])\n" +
                     "  - Z[b,h,m] += P[b,h,m,l]\n  - O[b,h,m,n] += P[b,h,m,l] * V[b,l,n]\n" +
                     "  - E[b,h,m,n] = O[b,h,m,n] / Z[b,h,m]\n",
                 "attention"))};
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

TEST(PlannerOfAttention, TermsOfScoresAreReadByWarpgroups) {
  for (const char* term :
       {"T[b,h,m,l] + B[b,h,m,l]", "T[b,h,m,l] + B[m,l]", "T[b,h,m,l] + slope[b,h] * (l - m)"}) {
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
  EXPECT_EQ(p.proposal->rewrites[1].substr(0, 14), "split-running:");
  const auto pair = lowering::warpgroup_pair(p.schedule, 0);
  ASSERT_TRUE(pair.ok()) << pair.reason();
  EXPECT_GE(pair->tiles, 66) << "of 132 multiprocessors";
}

}  // namespace
}  // namespace tilewright
