// The planner's choice does not depend on how a workload is written down.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/models/planner_support.h"
#include "tests/support/other_order.h"
#include "tests/support/random_trees.h"

namespace tilewright::quickest {
namespace {

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others.
int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// Seconds, or bytes where no model knows time; -1: refused.
double figure(const Ptr& w, const std::string& machine) {
  Question q = asked(w, machine);
  for (const Model& m : builtin_models())
    if (m.name != planner().name) q.others.push_back(&m);
  const Result<Proposal> p = planner().propose(q, standard());
  if (!p) return -1;
  if (p->detail.contains("seconds") && p->detail["seconds"].is_number())
    return p->detail["seconds"].get<double>();
  return p->detail.at("volume_bytes").get<double>();
}

TEST(QuickestOrder, DeclarationsInAnotherOrderHaveAPlanAsGood) {
  const int seed = setting("TILEWRIGHT_SEED", 4), cases = setting("TILEWRIGHT_CASES", 40);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  std::vector<Ptr> all = {
      workload("gated-ffn:m=64,n=96,k=128,l=160"),
      workload("attention:heads=2,m=64,n=32,k=32,l=80"),
      workload("random-graph:vertices=9,rows=64,cols=96,seed=5"),
      workload("conv-chain:ic=8,h=14,w=14,oc1=16,oc2=24,st1=1,st2=1,k1=3,k2=1")};
  testing::RandomOptions o{.max_extent = 40};
  for (int i = 0; i < cases; ++i) {
    o.einsums = i % 2 == 0;
    if (auto c = testing::random_case(random, o)) all.push_back(c->workload);
  }
  constexpr std::array kMachines = {"h200", "xeon-gold-6240", "cache:9K/9,100K/5", "ascend910",
                                    "scratchpad:4K"};
  int planned = 0, differ = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string machine = kMachines[i % kMachines.size()];
    const double first = figure(all[i], machine);
    planned += first >= 0;
    for (int turn = 0; turn < 2; ++turn) {
      const double other = figure(testing::in_other_order(*all[i], random), machine);
      differ += other != first;
      EXPECT_EQ(other, first) << "seed " << seed << ": " << all[i]->name() << " on " << machine;
    }
  }
  RecordProperty("planned", planned);
  RecordProperty("differ", differ);
  EXPECT_GT(planned, static_cast<int>(all.size()) / 2);
}

}  // namespace
}  // namespace tilewright::quickest
