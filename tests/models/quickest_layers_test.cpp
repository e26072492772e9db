// The planner beside others: has each of a network's equal layers as good a plan as a layer alone,
// and a graph as good a one as any model proposes?
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "core/workload/rewrite/rewrite.h"
#include "core/workload/text.h"
#include "models/registry.h"

namespace tilewright {
namespace {

const Model& planner() { return builtin_models().back(); }

Question question(const std::string& name) {
  Question q{.name = name, .workload = std::make_shared<const Workload>(named_workload(name))};
  q.machine = std::make_shared<const Machine>(named_machine("h100"));
  q.threads = 1;
  return q;
}

double seconds_of(const std::string& name) {
  const Result<Proposal> p = planner().propose(question(name), {planner().options, {}, "planner"});
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

/// What others propose of graphs, priced as the planner prices its own: sums beside one another
/// over the same tensor, slices that two operators read, columns whose variance is split, small
/// products that a kernel of units takes with what is around them (up to 2.5 times). Of seven
/// more seeds one has a plan priced 17 % lower: column-norm of 8057 rows, which computes a
/// difference twice. The planner computes nothing twice.
TEST(PlannerOfGraphs, NoOtherProposalIsPricedMuchLower) {
  const char* const seed = std::getenv("TILEWRIGHT_SEED");
  std::mt19937_64 random(seed ? std::strtoull(seed, nullptr, 10) : 26112026);
  const auto size = [&](int least, int most) {
    return std::to_string(least + static_cast<int>(random() % (most - least)));
  };
  const std::vector<std::string> names = {
      "layernorm-backward:rows=" + size(500, 40000) + ",cols=" + size(100, 2000),
      "rotary:tokens=" + size(200, 9000) + ",heads=" + size(2, 40) + ",half=64",
      "column-norm:rows=" + size(4200, 9000) + ",cols=" + size(500, 5000),
      "attention:heads=" + size(1, 9) + ",m=" + size(1, 40) + ",l=" + size(20, 300) +
          ",k=" + size(8, 64) + ",n=" + size(8, 64) + ",dtype=f16"};
  int compared = 0;
  for (const std::string& name : names) {
    const Question q = question(name);
    const double ours = seconds_of(name);
    for (const Model& m : builtin_models()) {
      if (m.propose == nullptr || &m == &planner()) continue;
      const Result<Proposal> p = m.propose(q, {m.options, {}, m.name});
      if (!p) continue;
      Question whole = q;
      for (const std::string& rewrite : p->rewrites)
        whole.workload =
            std::make_shared<const Workload>(*tilewright::apply(rewrite, *whole.workload));
      const Result<Price> price =
          planner().price(whole, p->plan, {planner().options, {}, "planner"});
      if (!price || !price->traffic.seconds) continue;
      EXPECT_LE(ours, 1.25 * *price->traffic.seconds) << name << ": " << m.name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 6);
}

}  // namespace
}  // namespace tilewright
