// Does the command say what its documents promise?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/cli/command.h"
#include "tests/cli/document.h"
#include "tests/support/places.h"

namespace tilewright::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kTree = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )";
constexpr const char* kTiles = "m=4,n=3,k=4,l=5";

json entry(const json& j, const std::string& tensor) {
  for (const json& e : j["traffic"])
    if (e["tensor"] == tensor) return e;
  return {{"read_bytes", 0}, {"written_bytes", 0}};
}

TEST(Command, HelpNamesEveryRewrite) {
  const Outcome help = tilewright_command({"plan", "--help"});
  const Outcome none = tilewright_command({"plan", kChain, "-m", "h200", "--rewrite", "none"});
  EXPECT_EQ(none.status, 2);
  const std::string accepted = none.err.substr(none.err.find("accepted: ") + 10);
  // The help folds its lines.
  const std::string unfolded = std::regex_replace(help.out, std::regex("\n {3,}"), " ");
  EXPECT_THAT(unfolded, HasSubstr(accepted.substr(0, accepted.find('\n'))));
  const json j =
      document({"plan", "lstm-cell:batch=8,hidden=16", "-m", "h200", "--model", "fusionstitching"});
  EXPECT_EQ(j["plan"]["rewrites"], json({"compose"}));
  const Outcome bad = tilewright_command({"plan", kChain, "-m", "h200", "--rewrite", "compose"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_EQ(bad.lines_of_err(), 1);
  EXPECT_THAT(bad.err, HasSubstr("--rewrite: compose does not apply"));
}

TEST(Command, Lists) {
  for (const char* verb : {"models", "machines", "workloads", "targets", "meters", "experiments"}) {
    const json j = document({verb});
    ASSERT_TRUE(j.contains(verb)) << verb;
    EXPECT_FALSE(j[verb].empty()) << verb;
    const Outcome table = tilewright_command({verb});
    EXPECT_EQ(table.status, 0);
    for (const json& row : j[verb])
      EXPECT_THAT(table.out, HasSubstr(row.value("name", row.value("id", "?"))));
  }
  const json meters = document({"meters"});
  for (const json& meter : meters["meters"])
    EXPECT_NE(meter["usable"].get<bool>(), meter["reason"].is_string()) << meter;
}

TEST(Command, HelpAndVersion) {
  EXPECT_THAT(tilewright_command({"--version"}).out, HasSubstr("tilewright "));
  const Outcome help = tilewright_command({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* verb :
       {"models", "machines", "workloads", "targets", "explain", "plan", "predict", "compare",
        "simulate", "emit", "run", "measure", "validate", "reproduce"}) {
    EXPECT_THAT(help.out, HasSubstr(verb));
    const Outcome one = tilewright_command({verb, "--help"});
    EXPECT_EQ(one.status, 0);
    EXPECT_THAT(one.out, HasSubstr("--json"));
  }
}

/// Each meter: a measurement where it is usable; else status 3 and the reason, and no figure.
TEST(Command, MeasuresOrSaysWhyNot) {
  const json meters = document({"meters"});
  for (const json& meter : meters["meters"]) {
    SCOPED_TRACE(meter["name"].get<std::string>());
    // Kernels of target cpu are none for a meter of a GPU, usable or not.
    const bool usable = meter["usable"] && meter["target"] == "cpu";
    const json j = document(
        {"measure", kChain, "-m", "cache:1K/2,4K/4", "--tree",
         "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "--tiles", kTiles, "--meter", meter["name"]},
        usable ? 0 : 3);
    Arguments validation = {"validate",  kChain, "-m",      "cache:1K/2,4K/4",
                            "--samples", "1",    "--truth", meter["name"]};
    if (meter["target"] != "npu")  // whose plans are drawn otherwise
      validation.insert(validation.end(), {"--orders", "mlkn", "--min-tile", "2"});
    const json v = document(validation, usable ? 0 : 3);
    if (usable) {
      EXPECT_GT(j["traffic"][0]["read_bytes"].get<std::int64_t>(), 0);
      EXPECT_GT(v["points"][0]["true_bytes"].get<std::int64_t>(), 0);
      continue;
    }
    for (const json& answer : {j, v}) {
      EXPECT_FALSE(answer.contains("traffic") || answer.contains("points"));
      if (meter["usable"]) continue;
      EXPECT_THAT(answer["reason"].get<std::string>(),
                  HasSubstr(meter["reason"].get<std::string>()));
    }
  }
}

/// The differences between plan and count, by cause, add up; what a meter does not count is null.
TEST(Command, MeasureExplainsItself) {
  if (!document({"meters"})["meters"][0]["usable"].get<bool>()) GTEST_SKIP() << "no valgrind";
  const json j = document({"measure", kChain, "-m", "cache:1K/2,4K/4", "--tree",
                           "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "--tiles", kTiles, "--executed"});
  EXPECT_EQ(j["source"], "simulated");
  EXPECT_EQ(j["by"], "cachegrind");
  EXPECT_TRUE(j["traffic"][0]["written_bytes"].is_null());
  ASSERT_EQ(j["comparison"].size(), 2u);
  for (const json& c : j["comparison"]) {
    std::int64_t sum = c["plan_misses"];
    for (const json& cause : c["causes"]) sum += cause["lines"].get<std::int64_t>();
    EXPECT_EQ(sum, c["meter_misses"]);
  }
  EXPECT_EQ(j["addresses"][0]["address"], 0x10000000);
}

TEST(Command, ExplainPricesEveryOrder) {
  const json j = document({"explain", kChain, "-m", "scratchpad:4096B", "--order", "all"});
  ASSERT_EQ(j["orders"].size(), 24u);
  std::int64_t last = 0;
  for (const json& o : j["orders"]) {
    expect_keys(o, {"order", "legal", "reason", "volume_elements", "memory_elements", "tensors"});
    EXPECT_EQ(o["legal"].get<bool>(), o["reason"].is_null());
    if (o["volume_elements"].is_null()) continue;
    EXPECT_GE(o["volume_elements"].get<std::int64_t>(), last);
    last = o["volume_elements"];
    for (const char* t : {"A", "B", "C", "D", "E"})
      expect_keys(o["tensors"][t], {"footprint_elements", "movement_elements"});
  }
}

TEST(Command, TheBestOrderAloneIsThePlans) {
  for (const char* capacity : {"300B", "1000B", "4096B"}) {
    const json plan = document(
        {"plan", kChain, "-m", "scratchpad:4096B", "--model", "chimera", "--capacity", capacity});
    const json best = document(
        {"explain", kChain, "-m", "scratchpad:4096B", "--order", "best", "--capacity", capacity});
    ASSERT_EQ(best["orders"].size(), 1u);
    EXPECT_EQ(best["orders"][0]["order"], plan["order"]);
    EXPECT_EQ(best["orders"][0]["volume_bytes"], plan["volume_bytes"]);
    EXPECT_EQ(best["orders"][0]["tree"], plan["plan"]["kernels"][0]["tree"]);
  }
}

TEST(Command, TablesOfOrdersAndPlansFitAScreen) {
  const Outcome orders = tilewright_command(
      {"explain", "gemm-chain3:m=20,n=12,k=8,l=16,p=12", "-m", "scratchpad:1K", "--order", "all"});
  EXPECT_LT(std::ranges::count(orders.out, '\n'), 60);
  EXPECT_THAT(orders.out, HasSubstr("the first 12 of 120 orders; --json has all"));
  // A row of compare's is one line: what has no room is left out.
  const Outcome plans =
      tilewright_command({"compare", "gated-ffn:m=128,n=64,k=256,l=512", "-m", "xeon-gold-6240",
                          "--models", "chimera,mcfuser-chimera,powerfusion"});
  std::istringstream lines(plans.out);
  bool table = false;
  for (std::string line; std::getline(lines, line) && !line.starts_with("simulated");) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_FALSE(table && line.starts_with(" ")) << line;
    table = table || line.starts_with("plan of");
  }
  EXPECT_TRUE(table) << plans.out << plans.err;
}

TEST(Command, ExplainAtTilesIsTable3) {
  const json j = document({"explain", kChain, "-m", "scratchpad:4096B", "--order", "mlkn",
                           "--tiles", kTiles, "--edges", "exact"});
  ASSERT_EQ(j["orders"].size(), 1u);
  const json& t = j["orders"][0]["tensors"];
  EXPECT_EQ(t["A"]["movement_elements"], 10 * 7 * 2);
  EXPECT_EQ(t["B"]["movement_elements"], 7 * 9 * 3);
  EXPECT_EQ(t["C"]["movement_elements"], 0);
  EXPECT_EQ(t["D"]["movement_elements"], 6 * 9 * 3);
  EXPECT_EQ(t["E"]["movement_elements"], 10 * 6 * 2);
  EXPECT_EQ(t["A"]["footprint_elements"], 16);
}

/// The curve's points are plans: given back to exact, a row's tree moves the row's bytes.
TEST(Command, ExplainsCurves) {
  const json j = document({"explain", kChain, "--curve", "-m", "cache:256B,1K"});
  expect_keys(j, {"curve", "minimum", "crossover_bytes", "search_seconds", "levels", "machine"});
  EXPECT_EQ(j["minimum"]["fused"]["traffic_bytes"], 4 * (70 + 63 + 54 + 60));
  EXPECT_EQ(j["minimum"]["unfused"]["traffic_bytes"], 4 * (70 + 63 + 54 + 60 + 2 * 90));
  EXPECT_EQ(j["levels"].size(), 2);
  EXPECT_EQ(j["levels"][0]["level"], "L2");
  const json& row = j["curve"][j["curve"].size() / 2];
  const std::string memory = "scratchpad:" + row["buffer_bytes"].dump() + "B";
  const json exact = document({"predict", kChain, "-m", memory, "--model", "exact", "--tree",
                               row["fused"]["trees"][0].get<std::string>()});
  std::int64_t moved = 0;
  for (const json& e : exact["traffic"])
    moved += e["read_bytes"].get<std::int64_t>() + e["written_bytes"].get<std::int64_t>();
  EXPECT_EQ(moved, row["fused"]["attainable_bytes"]);
  EXPECT_TRUE(exact["fits"]);

  const json one = document({"explain", "gemm:m=6,n=5,k=4", "--curve"});
  EXPECT_TRUE(one["machine"].is_null());
  EXPECT_TRUE(one["minimum"]["fused"]["traffic_bytes"].is_null());
  EXPECT_FALSE(one["curve"][0].contains("fused"));
  // No matrix product: the compulsory bound, and the reason why no more.
  const json rows = document({"explain", "layernorm:rows=16,cols=8", "--curve"});
  EXPECT_TRUE(rows["minimum"]["unfused"]["traffic_bytes"].is_null());
  EXPECT_EQ(rows["curve"][0]["fused"]["proven_bytes"], rows["compulsory_bytes"]);
}

/// What a plan is priced at is a network's time, whose kernels take loops that go together as one.
TEST(Command, PlansSayWhatTheyTakeByThemselves) {
  const std::vector<std::string> plan = {"plan", "flashfuser/C8", "-m", "h200", "--target", "cuda"};
  const std::string table = tilewright_command(plan).out;
  EXPECT_NE(table.find("by this plan alone"), std::string::npos) << table;
  EXPECT_NE(table.find("a kernel of this plan does not"), std::string::npos) << table;
  double apart = 0, predicted = 0;
  const json answer = document(plan);
  for (const json& kernel : answer["kernels_predicted"])
    predicted += kernel["seconds"].get<double>(),
        apart += kernel.value("seconds_of_loops_apart", kernel["seconds"].get<double>());
  EXPECT_GT(apart, 2 * predicted);
  EXPECT_EQ(tilewright_command({"plan", "flashfuser/G1", "-m", "h200", "--target", "cuda"})
                .out.find("by this plan alone"),
            std::string::npos);
}

TEST(Command, PlansAtTheBound) {
  const json best = document(
      {"plan", "gemm-chain:m=512,k=64,l=512,n=64", "-m", "scratchpad:300K", "--model", "bounds"});
  EXPECT_EQ(best["exact_bytes"], 4 * 131072);
  EXPECT_EQ(best["gap"], 1.0);
  EXPECT_EQ(best["volume_bytes"], best["exact_bytes"]);
  EXPECT_EQ(
      document({"plan", kChain, "-m", "scratchpad:8B", "--model", "bounds"}, 3).contains("plan"),
      false);
  EXPECT_TRUE(document({"predict", kChain, "-m", "scratchpad:1K", "--model", "bounds"}, 3)
                  .contains("reason"));
}

/// A plan whose tiles are larger than its cache moves what walking them moves, no less than the
/// bound; what `exact` says of tiles that are held whole was less, so that there was no gap.
TEST(Command, PlansBeyondTheirCacheMoveWhatWalkingTheirTilesMoves) {
  const std::vector<std::string> plan = {
      "plan", "gemm:m=2000,n=2000,k=2000", "-m", "epyc-zen5", "--target", "cpu"};
  const json j = document(plan);
  ASSERT_TRUE(j["gap"].is_number()) << j.dump();
  EXPECT_GE(j["gap"].get<double>(), 1);
  EXPECT_GE(j["exact_bytes"], j["bound_bytes"]);
  const Outcome table = tilewright_command(plan);
  EXPECT_THAT(table.out, HasSubstr("bytes            tiles are larger than the cache"));
}

TEST(Command, PlanPredictSimulate) {
  const Folder folder;
  const std::string file = folder.path("plan.yaml");
  const json plan =
      document({"plan", kChain, "-m", "scratchpad:1K", "--model", "chimera", "-o", file});
  expect_keys(plan, {"plan", "volume_bytes", "bound_bytes", "bound", "gap", "search_seconds",
                     "candidates", "memory", "memory_paper_bytes", "seconds"});
  EXPECT_GE(plan["gap"].get<double>(), 1.0);
  EXPECT_GE(plan["bound_bytes"], 4 * (70 + 63 + 54 + 60));
  EXPECT_EQ(plan["bounds"]["proven"]["bytes"], plan["bound_bytes"]);
  EXPECT_EQ(plan["bounds"]["proven"]["gap"], plan["gap"]);
  EXPECT_GE(plan["bounds"]["attainable"]["bytes"], plan["bound_bytes"]);
  EXPECT_LE(plan["bounds"]["attainable"]["bytes"], plan["exact_bytes"]);
  expect_keys(plan["plan"]["kernels"][0], {"tree", "tiles"});
  expect_keys(plan["candidates"], {"generated", "after"});

  const json exact = document({"predict", file, "--model", "exact"});
  const json simulated = document({"simulate", file});
  expect_keys(simulated, {"source", "by", "machine", "traffic", "counts", "memory", "operations",
                          "seconds", "fits"});
  expect_keys(simulated["counts"], {"write_allocate", "write_back", "prefetch"});
  EXPECT_EQ(exact["traffic"], simulated["traffic"]);
  EXPECT_EQ(exact["operations"], simulated["operations"]);
  EXPECT_EQ(exact["source"], "predicted");
  EXPECT_EQ(simulated["source"], "simulated");
  EXPECT_TRUE(simulated["fits"]);
  const json chimera = document({"predict", file, "--model", "chimera"});
  EXPECT_EQ(chimera["volume_bytes"], plan["volume_bytes"]);
  EXPECT_EQ(document({"predict", file})["by"], "chimera");  // the plan's own model
  // The resolved plan is the same plan.
  const json resolved = document({"explain", file, "--resolved"});
  EXPECT_TRUE(resolved["legal"]);
  EXPECT_FALSE(resolved["trees"].empty());
}

TEST(Command, WorkedRow) {
  const Arguments row = {"-m", "scratchpad:56e", "--tree", kTree, "--tiles", kTiles};
  for (const Arguments& verb :
       {Arguments{"simulate", kChain}, Arguments{"predict", kChain, "--model", "exact"}}) {
    Arguments a = verb;
    a.insert(a.end(), row.begin(), row.end());
    const json j = document(a);
    EXPECT_EQ(entry(j, "A")["read_bytes"], 4 * 140);
    EXPECT_EQ(entry(j, "B")["read_bytes"], 4 * 189);
    EXPECT_EQ(entry(j, "D")["read_bytes"], 4 * 162);
    EXPECT_EQ(entry(j, "E")["read_bytes"], 4 * 60);
    EXPECT_EQ(entry(j, "E")["written_bytes"], 4 * 120);
    EXPECT_EQ(entry(j, "A")["boundary"], "DRAM/L1");
    EXPECT_EQ(j["memory"]["L1"], 4 * 56);
    EXPECT_EQ(j["operations"]["gemm1"], 10 * 7 * 9);
  }
  for (const bool room : {true, false}) {  // a given capacity counts, not the level's
    Arguments a = {"explain",   kChain, "-m", "scratchpad:64K", "--capacity", room ? "56e" : "55e",
                   "--resolved"};
    a.insert(a.end(), row.begin() + 2, row.end());
    const json j = document(a);
    EXPECT_EQ(j["fits"], room);
    EXPECT_EQ(j["fits_reason"].is_null(), room);
  }
}

TEST(Command, ChimeraPricesOrdersOnly) {
  const Arguments row = {"--tiles", kTiles, "-m", "scratchpad:4K", "--model", "chimera"};
  const auto predict = [&row](const char* tree, int status) {
    Arguments a = {"predict", kChain, "--tree", tree};
    a.insert(a.end(), row.begin(), row.end());
    return document(a, status);
  };
  EXPECT_EQ(predict(kTree, 0)["order"], "mlkn");
  EXPECT_EQ(predict("m n l ( k ( C.gemm1 ) C.gemm2 )", 0)["order"], "mnlk");
  const json none = predict("m/8 m/4 l ( k ( C.gemm1 ) n ( C.gemm2 ) )", 3);
  EXPECT_THAT(none["reason"].get<std::string>(), HasSubstr("orders only"));
}

// Another model's plan has an order where its loops are an order's, wherever it loads and whatever
// runs in parallel.
TEST(Command, ChimeraPricesTheOrderOfAnothersPlan) {
  const json j = document({"predict", "mcfuser/G4", "-m", "a100", "--expression", "mnlk", "--tiles",
                           "m=64,n=64,l=64,k=64", "--model", "chimera"});
  EXPECT_EQ(j["order"], "mnlk");
  EXPECT_TRUE(j.contains("notes"));
  const json own = document({"predict", "mcfuser/G4", "-m", "a100", "--order", "mnlk", "--tiles",
                             "m=64,n=64,l=64,k=64", "--model", "chimera"});
  EXPECT_EQ(j["volume_bytes"], own["volume_bytes"]);
}

TEST(Command, McfuserPlansPredictsAndExplains) {
  const json plan = document({"plan", "mcfuser/G4", "-m", "a100", "--model", "mcfuser"});
  expect_keys(plan, {"plan", "volume_bytes", "bound_bytes", "gap", "search_seconds", "candidates",
                     "expression", "expression_paper", "seconds", "memory", "options"});
  EXPECT_EQ(plan["candidates"]["expressions"]["rule2"], 3);
  const json price = document({"predict", "mcfuser/G4", "-m", "a100", "--model", "mcfuser"});
  EXPECT_EQ(price["expression"], plan["expression"]);
  EXPECT_NEAR(price["seconds"], plan["seconds"], 1e-9 * plan["seconds"].get<double>());
  EXPECT_EQ(price["volume_bytes"], plan["volume_bytes"]);
  const json same = document({"plan", "mcfuser/G4", "-m", "a100", "--model", "mcfuser", "--search",
                              "evolutionary", "--seed", "3"});
  EXPECT_LE(same["seconds"], 1.02 * plan["seconds"].get<double>());

  const json e = document({"explain", "gemm-chain:m=64,l=64,k=32,n=64,dtype=f16", "-m", "a100",
                           "--expression", "mnlk", "--tiles", "m=16,n=16,l=16"});
  EXPECT_EQ(e["shown"]["placed"]["none"], "mnl(k(L_A,L_B,C_C),L_D,C_E,S_E)");
  EXPECT_EQ(e["shown"]["placed"]["dag"], "m(L_A,n(l(L_B,C_C,L_D,C_E),S_E))");
  EXPECT_EQ(e["shown"]["removed_loops"], json::array({"k"}));
  EXPECT_EQ(e["shown"]["expression_paper"], "mhnk");
  EXPECT_EQ(e["expressions"].size(), 26u);
  EXPECT_TRUE(e["memory_bound"]);
  EXPECT_THAT(tilewright_command({"explain", "mcfuser/S1", "-m", "a100", "--model", "mcfuser"}).out,
              HasSubstr("DAG after"));
}

TEST(Command, ExplainsSubprograms) {
  const auto said =
      tilewright_command({"explain", "se-module/M0", "-m", "h200", "--model", "souffle"});
  EXPECT_THAT(said.out,
              HasSubstr("9 expressions: 3 rely on many elements, 6 on one; 2 compute-intensive"));
  EXPECT_THAT(said.out, HasSubstr("1 kernels, 3 phases, 2 barriers of all blocks"));
  EXPECT_THAT(said.out, HasSubstr("kept on chip: X"));
  for (const char* layer : {"bert:layers=1", "bert:layers=1,dtype=f16"}) {
    const json two = document({"plan", layer, "-m", "a100", "--model", "souffle", "--split",
                               test::in_sources("experiments/souffle/bert_layer_parts.yaml")});
    EXPECT_EQ(two["parts"].size(), 2u) << layer;
    EXPECT_EQ(two["plan"]["kernels"].size(), 2u) << layer;
  }
}

TEST(Command, ExplainsInTextWithEveryModelThatExplains) {
  int explained = 0;
  const json models = document({"models"});
  for (const json& model : models["models"]) {
    const std::string name = model["name"];
    auto said =
        tilewright_command({"explain", "attention:m=64,l=64", "-m", "h200", "--model", name});
    if (said.status == 3)  // a model of products alone
      said = tilewright_command({"explain", "gemm-chain:m=64,l=64", "-m", "h200", "--model", name});
    if (said.status == 2) continue;
    ++explained;
    EXPECT_EQ(said.status, 0) << name << ": " << said.err;
    EXPECT_GE(std::count(said.out.begin(), said.out.end(), '\n'), 5) << name << ": " << said.out;
  }
  EXPECT_GE(explained, 8);
  const auto said = tilewright_command(
      {"explain", "shuffle-unit", "-m", "h200", "--model", "powerfusion", "--duplicate", "no"});
  EXPECT_THAT(said.out, HasSubstr("16 gOperators before, 11 after"));
  EXPECT_THAT(
      said.out,
      HasSubstr("  + sync block joined(shared, 4, 8, 784) -> joined(shared, 32, 1, 784)\n"));
}

TEST(Command, CompareExplainsEveryDifference) {
  const json j = document({"compare", "gemm-chain:m=100,n=60,k=70,l=90", "-m", "a100"});
  expect_keys(j, {"bound_bytes", "plans", "models", "level"});
  // chimera, mcfuser, mcfuser-chimera, bounds, fusionstitching, xla-rule, unfused, souffle,
  // powerfusion, flashfuser, xla-priority, inductor, tilewright
  ASSERT_EQ(j["plans"].size(), 13u);
  int differ = 0;
  for (const json& p : j["plans"]) {
    EXPECT_EQ(p["simulated_bytes"], p["exact_bytes"]) << p["model"];
    EXPECT_GE(p["gap"], 1.0);
    for (const json& price : p["prices"]) {
      if (!price.contains("causes")) continue;
      std::int64_t sum = 0;
      for (const json& c : price["causes"]) sum += c["bytes"].get<std::int64_t>();
      EXPECT_EQ(sum, price["difference_bytes"]) << p["model"] << " by " << price["by"];
      EXPECT_EQ(price["volume_bytes"].get<std::int64_t>() - sum, p["exact_bytes"]);
      differ += sum != 0;
    }
  }
  EXPECT_GT(differ, 0);
  const std::string text =
      tilewright_command({"compare", "gemm-chain:m=100,n=60,k=70,l=90", "-m", "a100"}).out;
  EXPECT_NE(text.find("least time, predicted: "), std::string::npos) << text;
  EXPECT_NE(text.find("least bytes: "), std::string::npos) << text;
  EXPECT_LT(std::ranges::count(text, '\n'), 50) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110u) << line;
  const json one =
      document({"compare", "mcfuser/G1", "-m", "scratchpad:64K", "--models", "chimera"});
  EXPECT_EQ(one["models"], json::array({"chimera"}));
  document({"compare", "layernorm", "-m", "a100", "--models", "mcfuser"}, 3);
}

TEST(Command, OutcomesThatSayNo) {
  // Does not fit.
  const json tight =
      document({"simulate", kChain, "-m", "scratchpad:55e", "--tree", kTree, "--tiles", kTiles}, 3);
  EXPECT_FALSE(tight["fits"]);
  EXPECT_FALSE(tight["reason"].get<std::string>().empty());
  // A consumer inside its producer's reduction.
  const json illegal = document({"simulate", kChain, "-m", "scratchpad:4K", "--tree",
                                 "m l ( k ( C.gemm1 n ( C.gemm2 ) ) )", "--tiles", kTiles},
                                3);
  EXPECT_FALSE(illegal["legal"]);
  EXPECT_FALSE(illegal["reason"].get<std::string>().empty());
  // Nothing is small enough.
  document({"plan", kChain, "-m", "scratchpad:4B"}, 3);
  // A cache's traffic is not exact's to say.
  const json cache = document({"predict", kChain, "-m", "cache:4K/8", "--model", "exact", "--tree",
                               kTree, "--tiles", kTiles},
                              3);
  EXPECT_THAT(cache["reason"].get<std::string>(), HasSubstr("not available"));
  const Folder folder;
  document({"emit", kChain, "-m", "host", "--order", "mlkn", "--target", "cuda", "-o",
            folder.path("out")},
           3);
  EXPECT_TRUE(folder.names().empty());
  document({"validate", kChain, "-m", "cache:4K/8", "--orders", "mlkn", "--truth", "ncu"}, 3);
}

TEST(Command, OptionsInAnyOrder) {
  const json a =
      document({"simulate", kChain, "-m", "scratchpad:4K", "--tree", kTree, "--tiles", kTiles});
  const json b =
      document({"--tiles", kTiles, "--tree", kTree, "-m", "scratchpad:4K", "simulate", kChain});
  EXPECT_EQ(a, b);
}

TEST(Command, Validate) {
  const Folder folder;
  const Arguments base = {"validate",  "gemm-chain:m=48,n=48,k=48,l=48",
                          "-m",        "cache:4K/8",
                          "--orders",  "mlkn,mlnk",
                          "--samples", "6",
                          "--truth",   "simulator"};
  Arguments a = base;
  a.insert(a.end(), {"--beyond", "--csv", folder.path("points.csv"), "--threads", "2"});
  const json j = document(a);
  expect_keys(j, {"truth", "asked", "valid", "failed", "r2_identity", "r2_fit", "mape", "worst",
                  "bias", "points", "beyond", "full_edges"});
  EXPECT_EQ(j["asked"], j["valid"].get<int>() + j["failed"].get<int>());
  EXPECT_EQ(j["points"].size(), j["valid"]);
  for (const json& p : j["points"]) {
    expect_keys(p, {"order", "tiles", "predicted_bytes", "true_bytes"});
    EXPECT_LE(p["memory_bytes"].get<int>(), 2048);
  }
  for (const json& p : j["beyond"]["points"]) EXPECT_GT(p["memory_bytes"].get<int>(), 2048);
  EXPECT_TRUE(std::filesystem::exists(folder.path("points.csv")));
  // The same whatever the number of threads.
  Arguments one = base;
  one.insert(one.end(), {"--beyond", "--threads", "1"});
  EXPECT_EQ(document(one), j);
  Arguments demanding = base;
  demanding.insert(demanding.end(), {"--min-r2", "1"});
  EXPECT_FALSE(document(demanding, 3)["points"].empty());
}

TEST(Command, UnknownVerbsAreLookedForOnThePath) {
  const Folder folder;
  const std::string script =
      folder.write("tilewright-hello", "#!/bin/sh\necho \"hello $1\"\nexit 5\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const std::string path = folder.path("") + ":/usr/bin:/bin";
  const Outcome o = tilewright_command({"hello", "two words"}, {{"PATH", path}});
  EXPECT_EQ(o.status, 5) << o.err;
  EXPECT_EQ(o.out, "hello two words\n");
}

TEST(Command, NeedsTheCLibraryOnly) {
  const std::string list = "ldd " + test::in_build("tilewright");
  std::FILE* pipe = ::popen(list.c_str(), "r");
  if (pipe == nullptr) GTEST_SKIP() << "no ldd";
  std::string text;
  for (char buffer[512]; std::fgets(buffer, sizeof buffer, pipe) != nullptr;) text += buffer;
  if (::pclose(pipe) != 0) GTEST_SKIP() << "no ldd: " << text;
  for (const char* sanitizer : {"libasan", "libubsan"})
    if (text.find(sanitizer) != std::string::npos) GTEST_SKIP() << "built with sanitizers";
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < text.size(); ++lines) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const bool known = [&line] {
      for (const char* name :
           {"linux-vdso", "libc.so", "libm.so", "ld-linux", "libdl.so", "libpthread.so"})
        if (line.find(name) != std::string::npos) return true;
      return false;
    }();
    EXPECT_TRUE(known) << line;
    begin = end + 1;
  }
  EXPECT_GT(lines, 1u);
}

}  // namespace
}  // namespace tilewright::test
