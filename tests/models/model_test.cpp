// Does every record keep the contract of models/model.h, whatever model it is?
#include "models/model.h"

#include <gtest/gtest.h>

#include <set>

#include "core/workload/text.h"
#include "models/registry.h"

namespace tilewright {
namespace {

Question question(const char* workload, const char* machine) {
  Question q{.name = workload};
  q.workload = std::make_shared<const Workload>(named_workload(workload));
  q.machine = std::make_shared<const Machine>(named_machine(machine));
  return q;
}

Settings defaults(const Model& m) { return {m.options, {}, "model " + m.name}; }

TEST(Models, RecordsSayWhatTheyAreAndCanDo) {
  std::set<std::string> names;
  for (const Model& m : builtin_models()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name;
    EXPECT_FALSE(m.summary.empty() || m.source.empty() || m.assumptions.empty()) << m.name;
    EXPECT_TRUE(m.propose || m.price) << m.name;
    EXPECT_EQ(m.price == nullptr, !m.no_price.empty()) << m.name;
    EXPECT_EQ(m.notation.empty(), m.written == nullptr) << m.name;
    EXPECT_TRUE(m.draw == nullptr || m.written != nullptr) << m.name;
  }
  EXPECT_TRUE(builtin_models().front().propose && builtin_models().front().price);
  EXPECT_TRUE(
      std::ranges::any_of(builtin_models(), [](const Model& m) { return m.draw != nullptr; }));
}

/// A proposal's price is the price of its plan, and its words say that plan.
TEST(Models, ProposalsArePricedAndSaidByTheirWords) {
  int priced = 0, said = 0;
  for (const Model& m : builtin_models()) {
    if (!m.propose || !m.price) continue;
    const Question q = question("gemm-chain:m=256,l=256,k=64,n=64,dtype=f16", "h200");
    const Result<Proposal> best = m.propose(q, defaults(m));
    if (!best) continue;
    ASSERT_FALSE(best->plan.kernels.empty()) << m.name;
    const Result<Price> price = m.price(q, best->plan, defaults(m));
    if (price && best->rewrites.empty()) {
      EXPECT_EQ(price->traffic.entries, best->price.traffic.entries) << m.name;
      ++priced;
    }
    if (!m.written || !best->words.text) continue;
    const Result<Proposal> again = m.written(q, best->words, defaults(m));
    ASSERT_TRUE(again.ok()) << m.name << ": " << again.reason();
    EXPECT_EQ(again->plan, best->plan) << m.name;
    ++said;
  }
  EXPECT_GE(priced, 2);
  EXPECT_GE(said, 2);
}

/// Candidates are multiples of a step, and a loop may be shorter than that.
TEST(Models, NoTileIsSaidToBeLargerThanItsLoop) {
  const Question q = question("gemm-chain:m=40,l=24,k=8,n=72,dtype=f16", "h200");
  int tiles = 0;
  for (const Model& m : builtin_models()) {
    if (!m.propose || !m.written) continue;
    const Result<Proposal> best = m.propose(q, defaults(m));
    if (!best || !best->words.tiles) continue;
    for (const auto& [name, tile] : *best->words.tiles) {
      EXPECT_LE(tile, q.workload->loop(*q.workload->find_loop(name)).extent) << m.name << name;
      ++tiles;
    }
    if (!best->detail.contains("expression_tiles")) continue;
    for (const auto& [name, tile] : best->detail["expression_tiles"].items())
      EXPECT_LE(tile, q.workload->loop(*q.workload->find_loop(name)).extent) << m.name << name;
  }
  EXPECT_GT(tiles, 0);
}

}  // namespace
}  // namespace tilewright
