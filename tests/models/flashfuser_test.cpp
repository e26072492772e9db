// FlashFuser: the printed counts, the search against every candidate, and drawn chains.
#include <gtest/gtest.h>

#include <random>

#include "core/plan/schedule.h"
#include "core/workload/text.h"
#include "models/flashfuser/model.h"
#include "models/registry.h"

namespace tilewright::flashfuser {
namespace {

std::shared_ptr<const Workload> shared(const std::string& name) {
  return std::make_shared<const Workload>(named_workload(name));
}

Asked on(const std::string& name, const char* machine, std::int64_t cluster = 16) {
  const Settings settings(option_specs(), {{"cluster", {std::to_string(cluster)}}}, "test");
  const Question q{.workload = shared(name),
                   .machine = std::make_shared<const Machine>(named_machine(machine))};
  return asked_of(q, settings).value();
}

TEST(FlashFuser, CountsThePrintedSpace) {
  EXPECT_EQ(all_schedules().size(), 41u);
  const Asked a = on("flashfuser/G5:m=256", "h100");
  const auto funnel = funnel_of(a.chain, a.device, a.options);
  ASSERT_EQ(funnel.size(), 6u);
  EXPECT_DOUBLE_EQ(funnel[0].ours, 41.0 * 625 * 16 * 1024 * 256 * 256);
  EXPECT_DOUBLE_EQ(funnel[1].ours, 41.0 * 625 * 5 * 11 * 9 * 9);
  for (std::size_t i : {0U, 1U, 2U, 4U})  // three digits
    EXPECT_NEAR(*funnel[i].as_counted / *funnel[i].paper, 1, 0.002) << funnel[i].rule;
  // Rule 3: the paper's number is 24 schedules of 41, ours 26.
  EXPECT_NEAR(*funnel[3].as_counted / *funnel[3].paper, 26.0 / 24, 0.003);
  EXPECT_EQ(clusters(ClusterRule::whole, 16).size(), 70u);
  EXPECT_EQ(clusters(ClusterRule::equal, 16).size(), 35u);
  EXPECT_EQ(clusters(ClusterRule::at_most, 16).size(), 105u);
  EXPECT_EQ(clusters(ClusterRule::counted, 16).size(), 135u);
}

/// By hand: m 32, j 64, k 16, n 32 in f16, tiles of 16, j over four blocks of a cluster that has
/// two along n: shuffle groups of 2, reduce groups of 2.
TEST(FlashFuser, PricesByHand) {
  const Asked a = on("gemm-chain:m=32,l=64,k=16,n=32,dtype=f16", "h100");
  Candidate one{{kN}, {1, 4, 1, 2}, {16, 16, 16, 16}};
  EXPECT_EQ(shuffle_group(one.cluster), 2);
  EXPECT_EQ(reduce_group(one.cluster), 2);
  const auto p = price(a.chain, a.device, a.options, one, true);
  ASSERT_TRUE(p);
  // A by each of 4 blocks along j; B and D by each of 2 along m; E once, added up in the cluster.
  EXPECT_EQ(p->global, 2 * (4 * 32 * 16 + 2 * 16 * 64 + 2 * 64 * 32 + 32 * 32));
  EXPECT_EQ(p->exchange, 0);
  EXPECT_EQ(p->shuffle, 2 * 32 * 64);  // each element of C to one other block
  EXPECT_EQ(p->scatter, 4 * 32 * 32);  // of two partial sums of E one moves
  EXPECT_EQ(p->blocks, 8);
  one.cluster = {1, 2, 2, 2};  // k is spatial, but has no second block's work
  EXPECT_FALSE(price(a.chain, a.device, a.options, one));
}

/// The search's best is the best of every schedule, cluster shape and tile that may run at all.
TEST(FlashFuser, SearchIsTheBestOfAll) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 6; ++i) {
    std::string name = i % 2 == 0 ? "gemm-chain:" : "gated-ffn:";
    for (const char* l : {"m=", "n=", "k=", "l="})
      name += l + std::to_string(16 + random() % 5 * 16 + (i % 3 == 0 ? random() % 9 : 0)) + ",";
    SCOPED_TRACE(name += "dtype=f16");
    const Asked a = on(name, "h200", 4);
    const Found found = search(a.chain, a.device, a.options, 1);
    ASSERT_FALSE(found.best.empty());
    double least = INFINITY;
    for (const LoopSchedule& s : all_schedules())
      for (std::int64_t cm : {1, 2, 4})
        for (std::int64_t cj : {1, 2, 4})
          for (std::int64_t ck : {1, 2, 4})
            for (std::int64_t cn : {1, 2, 4})
              for (std::int64_t m : tiles_of(a.chain.extent(kM), a.options))
                for (std::int64_t j : tiles_of(a.chain.extent(kJ), a.options))
                  for (std::int64_t k : tiles_of(a.chain.extent(kK), a.options))
                    for (std::int64_t n : tiles_of(a.chain.extent(kN), a.options)) {
                      if (cm * cj * ck > 4 || std::ranges::find(s, kN) == s.end()) continue;
                      const auto p =
                          price(a.chain, a.device, a.options, {s, {cm, cj, ck, cn}, {m, j, k, n}});
                      if (p && p->joint != Place::global && p->partial != Place::global)
                        least = std::min(least, p->seconds);
                    }
    EXPECT_EQ(found.best.front().seconds, least);
  }
}

std::string drawn_chain(std::mt19937_64& random) {
  const bool gated = random() % 3 == 0;
  std::string name = gated ? "gated-ffn:" : "gemm-chain:";
  for (const char* l : {"m=", "n=", "k=", "l="}) {
    const std::int64_t size = 1 + static_cast<std::int64_t>(random() % 300);
    name += l + std::to_string(random() % 2 == 0 ? 16 * (1 + size / 16) : size) + ",";
  }
  if (random() % 3 == 0) name += "batch=" + std::to_string(2 + random() % 3) + ",";
  if (!gated && random() % 2 == 0) name += "relu=1,";
  constexpr std::array kTypes = {"f16", "bf16", "f32"};
  return name + "dtype=" + kTypes[random() % 3];
}

TEST(FlashFuser, DrawnChains) {
  const Model record = model();
  const Settings settings(record.options, {}, "test");
  const auto models = builtin_models();
  const auto exact = std::ranges::find(models, "exact", &Model::name);
  constexpr std::uint64_t kSeed = 25;
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 100; ++i) {
    const std::string name = drawn_chain(random);
    constexpr std::array kMachines = {"h200", "a100", "scratchpad:64K", "xeon-gold-6240"};
    const char* machine = kMachines[random() % kMachines.size()];
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ": " + name + " on " + machine);
    const Question q{.workload = shared(name),
                     .machine = std::make_shared<const Machine>(named_machine(machine))};
    const Result<Proposal> one = record.propose(q, settings);
    ASSERT_TRUE(one.ok()) << one.reason();
    const auto schedule = resolve(one->plan, q.workload, q.machine);
    ASSERT_TRUE(schedule.ok()) << schedule.reason();
    EXPECT_FALSE(misfit(*schedule));
    const Asked a = asked_of(q, settings).value();
    const Found found = search(a.chain, a.device, a.options, 1);
    const auto best = price(a.chain, a.device, a.options, found.best.front().candidate, true);
    EXPECT_TRUE(std::isfinite(best->seconds) && best->seconds > 0);
    EXPECT_GE(best->global, static_cast<double>(q.workload->compulsory_bytes().value));
    const Result<Proposal> again = record.propose(q, settings);
    EXPECT_EQ(again->plan, one->plan);
    EXPECT_EQ(again->price.traffic, one->price.traffic);
    // The model prices its own tree as it did when it proposed it.
    const Result<tilewright::Price> priced = record.price(q, one->plan, settings);
    ASSERT_TRUE(priced.ok()) << priced.reason() << to_text(one->plan.kernels.front().tree);
    EXPECT_EQ(priced->traffic.entries, one->price.traffic.entries);
    // A level that software manages moves what the model says, to the byte.
    if (machine != std::string_view("xeon-gold-6240")) {
      const Result<tilewright::Price> truth =
          exact->price(q, one->plan, Settings(exact->options, {}, "test"));
      ASSERT_TRUE(truth.ok()) << truth.reason();
      for (const TrafficEntry& e : one->price.traffic.entries) {
        const TrafficEntry t = truth->traffic.at(e.tensor, e.boundary);
        EXPECT_EQ(e.read + e.written, t.read + t.written)
            << e.tensor << " " << e.boundary << " " << to_text(one->plan.kernels.front().tree);
      }
    }
    // Without clusters nothing beats the clustered best, whose space it is a part of.
    if (one->price.traffic.seconds && !found.spills) {
      EXPECT_LE(best->seconds, *one->price.traffic.seconds);
    }
  }
}

TEST(FlashFuser, RefusesWhatIsNoChain) {
  for (const char* name : {"gemm", "attention", "layernorm", "gemm-chain3", "conv-chain"})
    EXPECT_FALSE(chain_of(shared(name)).ok()) << name;
}

}  // namespace
}  // namespace tilewright::flashfuser
