// A sweep's points and rows.
#include "harness/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/error.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr const char* kSweep = R"(
name: tiles
workloads: ["gemm-chain:m=64,n=32,k=32,l=64"]
machines: [scratchpad:32K]
models: [chimera, exact]
orders: [mlkn, mlnk]
tiles: {m: [16, 32], l: {from: 8, to: 32, times: 2}, k: 16, n: 16}
)";

std::string refused(const std::string& text) {
  try {
    read_sweep(text, "s.yaml");
  } catch (const InputError& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "";
}

TEST(Sweep, IsEveryCombinationOnce) {
  const Sweep sweep = read_sweep(kSweep, "s.yaml");
  EXPECT_EQ(sweep.name, "tiles");
  ASSERT_EQ(sweep.points.size(), 2u * 2 * 2 * 3);
  EXPECT_EQ(sweep.points.front().model, "chimera");
  EXPECT_EQ(sweep.points.front().tiles,
            (std::map<std::string, std::int64_t>{{"k", 16}, {"l", 8}, {"m", 16}, {"n", 16}}));
  std::set<std::string> ids;
  for (const SweepPoint& p : sweep.points) {
    EXPECT_EQ(sweep_point_from_json(ordered_json::parse(to_json(p).dump())), p);
    ids.insert(id_of(p));
  }
  EXPECT_EQ(ids.size(), sweep.points.size());
}

TEST(Sweep, ParametersOrdersAndOptionsMultiply) {
  const Sweep sweep = read_sweep(R"(
name: s
workloads:
  - chimera/G1
  - gemm-chain: {m: [64, 128], l: {from: 32, to: 96, plus: 32}, n: 64}
machines: [scratchpad:32K, a100]
orders: all
options: {edges: [full, exact], reading: observed}
)",
                                 "s.yaml");
  EXPECT_EQ(sweep.points.size(), (1 + 2 * 3) * 2u * 2 * 24);
  EXPECT_EQ(sweep.points.back().workload, "gemm-chain:m=128,l=96,n=64");
  EXPECT_EQ(sweep.points.back().options,
            (std::map<std::string, std::string>{{"edges", "exact"}, {"reading", "observed"}}));
}

TEST(Sweep, TilesOfLoopsThatAWorkloadLacksAreNotItsPoints) {
  const Sweep sweep = read_sweep(R"(
name: s
workloads: ["gemm:m=64,n=64,k=64", "gemm-chain:m=64,n=64,k=64,l=64"]
machines: [scratchpad:32K]
orders: [mnk, mlkn]
tiles: {l: [8, 16], m: 16}
)",
                                 "s.yaml");
  // gemm has neither l nor mlkn, the chain not mnk.
  ASSERT_EQ(sweep.points.size(), 1u + 2);
  EXPECT_EQ(sweep.points[0].order, "mnk");
  EXPECT_FALSE(sweep.points[0].tiles.contains("l"));
}

TEST(Sweep, SaysWhatItDoesNotAccept) {
  const std::string head = "name: s\nworkloads: [gemm-chain]\nmachines: [scratchpad:32K]\n";
  EXPECT_EQ(refused(head), "");
  EXPECT_THAT(refused(head + "tile: {m: 4}\n"), HasSubstr("did you mean tiles"));
  EXPECT_THAT(refused(head + "tiles: {m: 4}\n"), HasSubstr("orders beside it"));
  EXPECT_THAT(refused(head + "orders: [mlkn]\ntiles: {q: 4}\n"),
              HasSubstr("is a loop of no workload"));
  EXPECT_THAT(refused(head + "orders: [mlkq]\n"), HasSubstr("mlkq is an order of no workload"));
  EXPECT_THAT(refused(head + "orders: [mlkn]\ntiles: {m: {from: 4, to: 8}}\n"),
              HasSubstr("one step"));
  EXPECT_THAT(refused(head + "verb: plan\norders: [mlkn]\n"), HasSubstr("what plan finds"));
  EXPECT_THAT(refused(head + "verb: run\n"), HasSubstr("predict, plan, simulate"));
  EXPECT_THAT(refused(head + "models: [chimaera]\n"), HasSubstr("accepted: chimera"));
  EXPECT_THAT(refused(head + "options: {edge: full}\n"), HasSubstr("nearest edges"));
  EXPECT_THAT(refused("name: s\nworkloads: [gem-chain]\nmachines: [a100]\n"),
              HasSubstr("gem-chain"));
  EXPECT_THAT(refused("name: s\nworkloads: [gemm-chain]\nmachines: [b100]\n"), HasSubstr("b100"));
  EXPECT_THAT(
      refused(
          head +
          "orders: all\ntiles: {m: {from: 1, to: 500, plus: 1}, l: {from: 1, to: 500, plus: 1}}\n"),
      HasSubstr("too many points"));
}

TEST(SweepRows, AreWhatTheVerbsAnswer) {
  const Sweep sweep = read_sweep(kSweep, "s.yaml");
  const auto rows = sweep_rows(sweep.points);
  ASSERT_EQ(rows.size(), sweep.points.size());
  std::size_t done = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepPoint& p = sweep.points[i];
    Request r;
    r.subject = p.workload;
    r.machine = p.machine;
    r.model = p.model;
    r.order = p.order;
    r.tiles =
        "k=16,n=16,m=" + std::to_string(p.tiles.at("m")) + ",l=" + std::to_string(p.tiles.at("l"));
    const Answer answer = predict(r);
    EXPECT_EQ(rows[i]["status"], answer.ok() ? "done" : "refused");
    if (!answer.ok()) {
      EXPECT_EQ(rows[i]["reason"], answer.json["reason"]);
      continue;
    }
    ++done;
    EXPECT_EQ(rows[i]["tile_l"], p.tiles.at("l"));
    std::int64_t read = 0;
    for (const ordered_json& t : answer.json["traffic"])
      read += t["read_bytes"].get<std::int64_t>();
    EXPECT_EQ(rows[i]["read_bytes"], read);
    if (p.model == "chimera") {
      EXPECT_EQ(rows[i]["volume_bytes"], answer.json["volume_bytes"]);
    }
    for (const auto& [key, value] : rows[i].items()) EXPECT_FALSE(value.is_structured()) << key;
  }
  EXPECT_GE(done, 12u);
}

TEST(SweepRows, PlansSimulationsAndWhatIsWrongWithAPoint) {
  const auto one = [](SweepPoint p) { return sweep_rows({std::move(p)}).front(); };
  const std::string chain = "gemm-chain:m=64,n=32,k=32,l=64";
  const ordered_json planned = one({"plan", chain, "scratchpad:32K", "chimera"});
  EXPECT_EQ(planned["status"], "done");
  EXPECT_GE(planned["gap"].get<double>(), 1);
  EXPECT_FALSE(planned["order"].get<std::string>().empty());
  const ordered_json walked = one({"simulate",
                                   chain,
                                   "cache:4K/8,64K/8",
                                   "chimera",
                                   "mlkn",
                                   {{"m", 16}, {"l", 16}, {"k", 16}, {"n", 16}}});
  EXPECT_EQ(walked["source"], "simulated");
  EXPECT_GT(walked["read_bytes L2/L1"].get<std::int64_t>(),
            walked["read_bytes DRAM/L2"].get<std::int64_t>());
  EXPECT_EQ(walked["read_bytes"], walked["read_bytes DRAM/L2"]);
  const ordered_json large =
      one({"predict", chain, "scratchpad:32K", "chimera", "mlkn", {{"m", 65}}});
  EXPECT_EQ(large["status"], "bad input");
  EXPECT_THAT(large["reason"].get<std::string>(), HasSubstr("65"));
  EXPECT_EQ(one({"plan", chain, "scratchpad:8B", "chimera"})["status"], "refused");
  EXPECT_EQ(
      one({"predict", chain, "scratchpad:32K", "chimera", "", {}, {{"min_tile", "0"}}})["status"],
      "bad input");
  EXPECT_THROW(sweep_point_from_json({{"verb", 3}}), InputError);
}

}  // namespace
}  // namespace tilewright::harness
