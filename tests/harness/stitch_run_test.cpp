// Do stitched plans, loops bound to warps, lanes and threads, compute on a processor what the
// reference evaluator computes? Units run there one after the other.
#include <gtest/gtest.h>

#include "harness/verbs.h"
#include "tests/support/small_graphs.h"

namespace tilewright::harness {
namespace {

class StitchedOnCpu : public ::testing::TestWithParam<std::string> {};

TEST_P(StitchedOnCpu, IsVerified) {
  Request r;
  r.subject = GetParam();
  r.machine = "h200";
  r.model = "fusionstitching";
  const Answer a = run(r, {.seconds = 0.0});
  EXPECT_TRUE(a.ok()) << a.json.dump(1);
  EXPECT_TRUE(a.json.value("verified", false));
}

INSTANTIATE_TEST_SUITE_P(Graphs, StitchedOnCpu, ::testing::ValuesIn(testing::kSmallGraphs));
INSTANTIATE_TEST_SUITE_P(Sizes, StitchedOnCpu,
                         ::testing::Values("layernorm:rows=5,cols=7", "softmax:rows=3,cols=131",
                                           "layernorm-backward:rows=37,cols=66"));

}  // namespace
}  // namespace tilewright::harness
