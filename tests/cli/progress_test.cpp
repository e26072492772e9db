// Progress: steps divide one another, every planner says how far it is, and the line has an
// estimate.
#include "core/base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "harness/verbs.h"

namespace tilewright::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Steps, DivideTheStepOfTheirCaller) {
  std::vector<double> said;
  const ProgressListener listener([&](double done) { said.push_back(done); });
  Steps outer(2);
  {
    Steps inner(4);
    for (int i = 0; i < 4; ++i) inner.done();
  }
  outer.done();  // says nothing new
  {
    Steps inner(2);
    inner.done();
  }
  outer.done();
  EXPECT_THAT(said, ElementsAre(0.125, 0.25, 0.375, 0.5, 0.75, 1));
}

TEST(Steps, MoreThanThereWereStayTheWhole) {
  double said = 0;
  const ProgressListener listener([&](double done) { said = done; });
  Steps steps(1);
  for (int i = 0; i < 3; ++i) steps.done();
  EXPECT_EQ(said, 1);
}

TEST(Steps, AreHeardByTheInnermostListenerAlone) {
  int outer = 0, inner = 0;
  const ProgressListener first([&](double) { ++outer; });
  {
    const ProgressListener second([&](double) { ++inner; });
    Steps steps(1);
    steps.done();
  }
  EXPECT_EQ(inner, 1);
  EXPECT_EQ(outer, 0);
  Steps steps(1);
  steps.done();
  EXPECT_EQ(outer, 1);
}

struct Said {
  std::vector<std::string> what;
  std::vector<double> done;
};

Said said_by(const std::string& model, const std::string& workload, const std::string& machine,
             bool explained = false) {
  Said all;
  harness::Request request{.subject = workload, .machine = machine, .model = model};
  request.progress = [&](std::string_view what, double done) {
    all.what.emplace_back(what);
    all.done.push_back(done);
  };
  EXPECT_TRUE((explained ? harness::explain(request, false) : harness::plan(request, {})).ok());
  return all;
}

/// At least a step between nothing and all, so that there is a pace to go by.
void expect_a_pace(const Said& all) {
  EXPECT_THAT(all.what, Each("searching"));
  EXPECT_TRUE(std::ranges::is_sorted(all.done)) << ::testing::PrintToString(all.done);
  EXPECT_TRUE(std::ranges::any_of(all.done, [](double d) { return d > 0 && d < 1; }))
      << ::testing::PrintToString(all.done);
}

TEST(Progress, EveryPlannerSaysHowFarItIs) {
  const std::string chain = "gemm-chain:m=64,n=32,k=32,l=64", graph = "layernorm:rows=64,cols=64";
  for (const auto& [model, workload, machine] :
       std::vector<std::array<std::string, 3>>{{"chimera", chain, "scratchpad:16K"},
                                               {"tilewright", "residual-layernorm", "h200"},
                                               {"tilewright", chain, "epyc-zen5"},
                                               {"flashfuser", "flashfuser/G5:m=256", "h100"},
                                               {"fusionstitching", graph, "h200"},
                                               {"xla-priority", graph, "h200"},
                                               {"powerfusion", graph, "h200"},
                                               {"souffle", "bert:layers=4", "a100"}}) {
    SCOPED_TRACE(model + " " + workload);
    expect_a_pace(said_by(model, workload, machine));
  }
}

TEST(Progress, ExplainSaysIt) {
  expect_a_pace(said_by("chimera", "gemm-chain:m=64,n=32,k=32,l=64", "scratchpad:16K", true));
}

TEST(Progress, TheLineHasAnEstimate) {
  // A fifth of the work in the last 6 of 8 seconds: three fifths are left.
  EXPECT_EQ(cli::ProgressLine::line("searching", 0.4, 8, 0.2, 6),
            "searching: 40 %, 8 s, about 18 s left");
  // A step that has not moved yet: at the pace of all before it.
  EXPECT_EQ(cli::ProgressLine::line("bandwidth", 0.25, 8, 0.25, 6),
            "bandwidth: 25 %, 8 s, about 24 s left");
  EXPECT_THAT(cli::ProgressLine::line("building", 0, 3, 0, 3), HasSubstr("building: 3 s"));
}

}  // namespace
}  // namespace tilewright::test
