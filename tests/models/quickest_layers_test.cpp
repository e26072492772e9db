// The planner and networks of equal layers: has each as good a plan as a layer alone?
#include <gtest/gtest.h>

#include "core/workload/text.h"
#include "models/registry.h"

namespace tilewright {
namespace {

double seconds_of(const std::string& name) {
  Question q{.name = name, .workload = std::make_shared<const Workload>(named_workload(name))};
  q.machine = std::make_shared<const Machine>(named_machine("h100"));
  q.threads = 1;
  const Model& planner = builtin_models().back();
  const Result<Proposal> p = planner.propose(q, {planner.options, {}, "planner"});
  EXPECT_TRUE(p.ok()) << name << (p.ok() ? "" : ": " + p.reason());
  return p.ok() && p->price.traffic.seconds ? *p->price.traffic.seconds : 0;
}

// Twelve layers of BERT in f32 were predicted to take 1.17 times as long as twelve times one: each
// kernel was chosen of fewer. (In f16 a layer's weights stay in L2, and twelve layers' do not.)
TEST(PlannerOfLayers, TwelveTakeTwelveTimesAsLong) {
  const std::string of = "bert:standard=1,dtype=f32,layers=";
  const double one = seconds_of(of + "1"), all = seconds_of(of + "12");
  EXPECT_GT(one, 0);
  EXPECT_NEAR(all / (12 * one), 1, 0.03);
}

}  // namespace
}  // namespace tilewright
