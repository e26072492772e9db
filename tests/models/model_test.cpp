// Does every record keep the contract of models/model.h, whatever model it is?
#include "models/model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "core/workload/rewrite/rewrite.h"
#include "core/workload/text.h"
#include "models/registry.h"
#include "tests/support/drawn_graphs.h"

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
/// One plan has one price, in seconds and in bytes: when it is proposed, when it is priced, and
/// where it is explained. Drawn graphs, with sizes that no tile divides; packs and kernels without
/// units among them.
TEST(Models, WhateverIsAskedOfAPlanItsPriceIsOne) {
  const char* asked = std::getenv("TILEWRIGHT_SEED");
  std::mt19937 random(asked != nullptr ? static_cast<unsigned>(std::atoi(asked)) : 2711);
  const auto x = [&](int most) {
    return std::to_string(1 + random() % static_cast<unsigned>(most));
  };
  const std::vector<const char*> machines = {"h200",      "a100",          "epyc-zen5",
                                             "ascend910", "scratchpad:4K", "cache:48K/12,1M/16"};
  std::map<std::string, int> priced;
  for (int i = 0; i < 24; ++i) {
    std::shared_ptr<const Workload> w;
    try {
      switch (i % 4) {
        case 0:
          w = std::make_shared<const Workload>(named_workload("gemm-chain:m=" + x(200) +
                                                              ",n=" + x(90) + ",k=" + x(90) +
                                                              ",l=" + x(200) + ",dtype=f16"));
          break;
        case 1:
          w = std::make_shared<const Workload>(
              named_workload("gemm:m=" + x(300) + ",n=" + x(60) + ",k=" + x(200) + ",dtype=f32"));
          break;
        default:
          w = std::make_shared<const Workload>(workload_from_yaml(
              testing::GraphDrawer(static_cast<unsigned>(random())).text(2 + i % 7), "drawn"));
      }
    } catch (const InputError&) {
      continue;  // drawn text that is no workload
    }
    Question q{.workload = w};
    q.machine = std::make_shared<const Machine>(
        named_machine(machines[static_cast<std::size_t>(i / 4 + i % 2) % machines.size()]));
    for (const Model& m : builtin_models()) q.others.push_back(&m);
    std::vector<const Model*> all = std::exchange(q.others, {});
    for (const Model* m : all) {
      if (!m->propose || !m->price) continue;
      q.others = all;
      std::erase(q.others, m);
      const Result<Proposal> p = [&]() -> Result<Proposal> {
        try {
          return m->propose(q, defaults(*m));
        } catch (const InputError& e) {
          ADD_FAILURE() << m->name << " on " << q.machine->name << ": " << e.what() << to_yaml(*w);
          return Reason{"input"};
        }
      }();
      if (!p) continue;
      Question of = q;
      for (const std::string& name : p->rewrites) {
        Result<Workload> next = tilewright::apply(name, *of.workload);
        ASSERT_TRUE(next.ok());
        of.workload = std::make_shared<const Workload>(std::move(next).value());
      }
      const Result<Price> price = m->price(of, p->plan, defaults(*m));
      if (!price) continue;
      const std::string what = m->name + " on " + q.machine->name + "\n" + to_yaml(*w);
      const auto& said = p->price.traffic;
      if (said.seconds && price->traffic.seconds) {
        EXPECT_NEAR(*said.seconds, *price->traffic.seconds, 1e-6 * *said.seconds) << what;
      }
      if (const auto at = p->detail.find("seconds");
          at != p->detail.end() && at->is_number() && price->traffic.seconds) {
        EXPECT_NEAR(at->get<double>(), *price->traffic.seconds, 1e-6 * at->get<double>()) << what;
      }
      if (!said.entries.empty() && !price->traffic.entries.empty()) {
        EXPECT_EQ(said.entries, price->traffic.entries) << what;
      }
      const std::string boundary = boundary_into(*q.machine, p->level);
      if (const auto at = p->detail.find("volume_bytes");
          at != p->detail.end() && at->is_number() && !said.seconds) {
        const TrafficEntry sum = price->traffic.total(boundary);
        EXPECT_EQ(at->get<std::int64_t>(), (sum.read + sum.written).value) << what;
      }
      ++priced[m->name];
      if (!m->explain) continue;
      const Explained told = m->explain(q, {}, defaults(*m));
      if (told.refused) continue;
      const auto shown = told.detail.contains("shown") ? told.detail.at("shown") : told.detail;
      for (const char* field : {"seconds", "volume_bytes"})
        if (shown.contains(field) && p->detail.contains(field) && shown.at(field).is_number()) {
          const double its = p->detail.at(field).get<double>();
          EXPECT_NEAR(shown.at(field).get<double>(), its, 1e-6 * its)
              << field << " explained, " << what;
        }
    }
  }
  for (const char* name :
       {"chimera", "mcfuser", "fusionstitching", "powerfusion", "souffle", "tilewright"})
    EXPECT_GT(priced[name], 0) << name;
}

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
