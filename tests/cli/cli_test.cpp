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
#include "tests/support/places.h"

namespace tilewright::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr const char* kChain = "gemm-chain:m=10,n=6,k=7,l=9";
constexpr const char* kTree = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )";
constexpr const char* kTiles = "m=4,n=3,k=4,l=5";

/// The document of a command that ends with this status.
json document(Arguments arguments, int status = 0) {
  arguments.emplace_back("--json");
  const Outcome o = tilewright_command(arguments);
  std::string line;
  for (const std::string& a : arguments) line += a + " ";
  EXPECT_EQ(o.status, status) << line << "\n" << o.err;
  EXPECT_EQ(o.lines_of_err(), status == 0 ? 0 : 1) << o.err;
  json j = json::parse(o.out, nullptr, false);
  EXPECT_FALSE(j.is_discarded()) << line << "\n" << o.out;
  if (j.is_discarded()) return json::object();
  EXPECT_EQ(j.value("schema", 0), 1) << line;
  return j;
}

void expect_keys(const json& j, std::initializer_list<const char*> keys) {
  for (const char* key : keys) EXPECT_TRUE(j.contains(key)) << key << " in " << j.dump();
}

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

TEST(Command, ReproducesBounds) {
  const Folder folder;
  const json gemm = document({"reproduce", "bounds/gemm4096", "--out", folder.path("gemm")});
  EXPECT_TRUE(gemm["holds"]);
  for (const json& row : gemm["measured"]) {
    EXPECT_GE(row["measured_bytes"], row["attainable_bytes"]);
    EXPECT_GE(row["attainable_bytes"], row["proven_bytes"]);
    EXPECT_EQ(row["attainable_dividing_bytes"], row["paper_bound_bytes"]);
  }
  EXPECT_EQ(gemm["measured"].size(), 8);
  const json chain = document({"reproduce", "bounds/chain-32k", "--out", folder.path("chain")});
  EXPECT_TRUE(chain["holds"]);
  EXPECT_EQ(chain["minimum"]["fused"]["buffer_bytes"], 2 * (16385 * 8192 + 1));
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

TEST(Command, Run) {
  const json j =
      document({"run", "gemm-chain:m=61,n=19,k=23,l=47", "-m", "host", "--model", "chimera"});
  expect_keys(j, {"verified", "relative_error", "seconds_median", "gflops", "peak_gflops", "isa",
                  "threads"});
  EXPECT_TRUE(j["verified"]);
  EXPECT_LT(j["relative_error"].get<double>(), j["tolerance"].get<double>());
}

// A chain whose tiles leave partial ones at every edge.
const Arguments kCuda = {
    "gemm-chain:m=61,n=40,k=24,l=47,dtype=f16", "-m",      "h200",          "--tree",
    "m@grid ( l ( k ( C.gemm1 ) C.gemm2 ) )",   "--tiles", "m=32,l=32,k=16"};

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Command, EmitCudaWritesSourceHeadersAndScript) {
  const Folder folder;
  const json j = document(
      Arguments{"emit"} + kCuda +
      Arguments{"--target", "cuda", "-o", folder.path("k"), "--stages", "2", "--warps", "2"});
  std::set<std::string> kinds;
  for (const json& file : j["files"]) {
    const std::filesystem::path path = file.get<std::string>();
    EXPECT_TRUE(std::filesystem::exists(path)) << file;
    kinds.insert(path.extension());
  }
  EXPECT_THAT(kinds, testing::IsSupersetOf({".cu", ".h"})) << j["files"];
  ASSERT_EQ(j["builds"].size(), 2u);
  for (const json& build : j["builds"]) {
    if (build.contains("reason")) GTEST_SKIP() << build["reason"];
    EXPECT_GT(build["launches"][0]["registers"], 0) << build;
  }
  const Outcome o = tilewright_command(
      Arguments{"emit"} + kCuda +
      Arguments{"--target", "cuda", "-o", folder.path("bad"), "--micro-kernel", "6x4"});
  EXPECT_EQ(o.status, 2);
  EXPECT_THAT(o.err, HasSubstr("mma"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("bad")));
}

TEST(Command, RunCudaEmulated) {
  const json j = document(Arguments{"run"} + kCuda + Arguments{"--target", "cuda-emulated"});
  EXPECT_TRUE(j["verified"]);
  EXPECT_GT(j["relative_error"], 0);  // rounded to f16
  EXPECT_LT(j["relative_error"], j["tolerance"]);
  EXPECT_EQ(j["faults"], 0);
  EXPECT_FALSE(j.contains("seconds_median"));
  bool stored = false;
  for (const json& t : j["traffic"])
    if (t["tensor"] == "E") stored = t["written_bytes"] == 61 * 40 * 2;
  EXPECT_TRUE(stored) << j["traffic"];
}

TEST(Command, RunCudaWithoutADriverSaysSo) {
  const json targets = document({"targets"});
  for (const json& t : targets["targets"])
    if (t["name"] == "cuda" && t["usable"]) GTEST_SKIP() << "there is a device here";
  const json j = document(Arguments{"run"} + kCuda + Arguments{"--target", "cuda"}, 3);
  EXPECT_THAT(j["reason"].get<std::string>(),
              HasSubstr("target cuda is not available: no NVIDIA driver"));
  EXPECT_FALSE(j.contains("verified"));
  const Folder folder;
  const std::string batch =
      folder.write("batch.jsonl", R"({"workload": "mcfuser/G1", "model": "mcfuser"})");
  document({"run", "--target", "cuda", "-m", "h200", "--batch", batch}, 3);
}

TEST(Command, BatchBuildsEachLineAndKeepsTheOrder) {
  const Folder folder;
  const std::string tree = R"j("tree": "m@grid ( l ( k ( C.gemm1 ) C.gemm2 ) )")j";
  const std::string batch =
      folder.write("batch.jsonl",
                   R"j({"name": "a", )j" + tree + R"j(, "tiles": {"m": 32, "l": 32, "k": 16}})j" +
                       "\n\n" + R"j({"name": "b", )j" + tree + R"j(, "tiles": "m=99,l=32,k=16"})j" +
                       "\n" + R"j({"name": "c", "model": "mcfuser", "stages": 1})j" + "\n");
  const Outcome o = tilewright_command(
      {"run", kCuda[0], "-m", "h200", "--target", "cuda", "--batch", batch, "--build-only",
       "--arch", "sm_80", "-o", folder.path("out"), "--cache", folder.path("cache"), "--json"});
  if (o.err.find("nothing here builds CUDA") != std::string::npos) GTEST_SKIP() << o.err;
  ASSERT_EQ(o.status, 0) << o.err;
  const json j = json::parse(o.out);
  ASSERT_EQ(j["results"].size(), 3u);
  EXPECT_EQ(j["results"][0]["name"], "a");
  EXPECT_EQ(j["results"][0]["architecture"], "sm_80");
  EXPECT_GT(j["results"][0]["launches"][0]["registers"], 0);
  EXPECT_THAT(j["results"][1]["reason"].get<std::string>(), HasSubstr("99"));
  EXPECT_EQ(j["results"][2]["name"], "c");
  EXPECT_FALSE(j["results"][2].contains("reason")) << j["results"][2];
  // A cubin and its figures, twice; the answers once more, a line each.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("cache")), {}), 4);
  std::ifstream lines(folder.path("out"));
  std::string line;
  for (const json& r : j["results"]) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(json::parse(line), r);
  }
}

TEST(Command, BatchRefusesWhatIsNoRequest) {
  const Folder folder;
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "has no runs in it"},
           {"[1, 2]\n", "batch.jsonl:1"},
           {"{\"workload\": \"gemm\"}\n{\"stage\": 2}\n", "batch.jsonl:2: stage"},
           {"{\"stages\": 9}\n", "1 to 8"},
           {"{\"tiles\": 4}\n", "tiles"}}) {
    const Outcome o = tilewright_command({"run", "--target", "cuda", "-m", "h200", "--build-only",
                                          "--batch", folder.write("batch.jsonl", text)});
    EXPECT_EQ(o.status, 2) << text;
    EXPECT_THAT(o.err, HasSubstr(part));
  }
  EXPECT_EQ(tilewright_command({"run", "--target", "cpu", "-m", "host", "--batch",
                                folder.write("batch.jsonl", "{}")})
                .status,
            2);
}

TEST(Command, EmitWritesWhatBuilds) {
  const Folder folder;
  const json j = document({"emit", kChain, "-m", "host", "--order", "mlkn", "--target", "cpu", "-o",
                           folder.path("kernel")});
  for (const json& file : j["files"])
    EXPECT_TRUE(std::filesystem::exists(file.get<std::string>())) << file;
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

// "rows" of these files are a number: how many rows an activation has.
TEST(Command, ReproducesTablesInUnits) {
  const Folder folder;
  for (const char* id : {"souffle/table1", "souffle/table5"})
    EXPECT_TRUE(document({"reproduce", id, "--out", folder.path("out")})["holds"]) << id;
}

TEST(Command, ReproducesTables) {
  const Folder folder;
  for (const char* id : {"chimera/table3", "chimera/fig2"}) {
    const json j = document({"reproduce", id, "--out", folder.path("out")});
    EXPECT_TRUE(j["holds"]) << j["reason"];
    EXPECT_FALSE(j["rows"].empty());
    for (const char* file : {"out/report.md", "out/result.json", "out/points.csv"})
      EXPECT_TRUE(std::filesystem::exists(folder.path(file))) << file;
  }
}

TEST(Command, ReproducesMcfusersTables) {
  const Folder folder;
  for (const char* id : {"mcfuser/fig2", "mcfuser/fig7", "mcfuser/table1", "mcfuser/table2",
                         "mcfuser/table3", "mcfuser/table4", "mcfuser/compare"}) {
    const json j = document({"reproduce", id, "--out", folder.path("out")});
    EXPECT_TRUE(j["holds"]) << j["reason"];
    EXPECT_FALSE(j["table"].empty());
    for (const json& row : j["table"]) EXPECT_EQ(row.size(), j["columns"].size()) << row;
  }
}

TEST(Command, CountsFlashFusersSpaceByReading) {
  const Folder folder;
  const json j = document({"reproduce", "flashfuser/table3", "--out", folder.path("out")});
  EXPECT_TRUE(j["holds"]) << j["reason"];
  // By hand: 41 schedules, 5^4 cluster sizes; 16 x 1024 x 256 x 256 tiles, of which 5 x 11 x 9 x 9
  // divide.
  EXPECT_EQ(j["compared"][0]["ours"], 41. * 625 * 16 * 1024 * 256 * 256);
  EXPECT_EQ(j["compared"][1]["ours"], 41. * 625 * 5 * 11 * 9 * 9);
  // 140 cluster sizes: of each k (15, 10, 6, 3, 1 pairs of m and n), as many l as are no smaller.
  EXPECT_EQ(j["compared"][2]["ours"], 41. * (15 * 5 + 10 * 4 + 6 * 3 + 3 * 2 + 1) * 4455);
  EXPECT_EQ(j["compared"][3]["ours"], 26. * 140 * 4455);
  EXPECT_EQ(j["compared"][4]["ours"], 16. * 140 * 4455);
}

TEST(Command, ReproducesFig8InSmall) {
  const Folder folder;
  const Outcome o = tilewright_command(
      {"reproduce", "chimera/fig8d", "--out", folder.path("out"), "--samples", "2", "--json"});
  const json j = json::parse(o.out);
  EXPECT_EQ(j["validation"]["asked"], 2);
}

/// A folder as the artifact's: every kernel counted as `l1` and `l2` misses.
void write_counts(const Folder& folder, const json& kernels, const char* l1, const char* l2) {
  std::string papi = "KERNEL ACCESS L1_MISS L2_MISS L1_CI_LOW L1_CI_HIGH L2_CI_LOW L2_CI_HIGH\n";
  std::string dinero = "KERNEL ACCESS L1_MISS L2_MISS\n";
  for (const json& k : kernels) {
    const std::string start = k.get<std::string>() + " -1 " + l1 + " " + l2;
    papi += start + " 1 9223372036854775806 1 2000\n";
    dinero += start + "\n";
  }
  folder.write("papi-small-o2.csv", papi);
  folder.write("dinero-small-l1-l2.csv", dinero);
}

const json kPolybench = {"2mm",
                         "3mm",
                         "adi",
                         "atax",
                         "bicg",
                         "cholesky",
                         "correlation",
                         "covariance",
                         "deriche",
                         "doitgen",
                         "durbin",
                         "fdtd-2d",
                         "floyd-warshall",
                         "gemm",
                         "gemver",
                         "gesummv",
                         "gramschmidt",
                         "heat-3d",
                         "jacobi-1d",
                         "jacobi-2d",
                         "lu",
                         "ludcmp",
                         "mvt",
                         "nussinov",
                         "seidel-2d",
                         "symm",
                         "syr2k",
                         "syrk",
                         "trisolv",
                         "trmm"};

TEST(Command, ReproducesCountedMisses) {
  const Folder folder;
  write_counts(folder, kPolybench, "10000", "0");
  const Arguments arguments{"reproduce", "validation/polybench", "--size", "small",
                            "--data",    folder.path(""),        "--out",  folder.path("out")};
  const json j = document(arguments);
  EXPECT_TRUE(j["holds"]);
  ASSERT_EQ(j["kernels"].size(), 30u);
  EXPECT_EQ(j["by"], (json{"simulated", "no-walks", "lru", "dinero"}));
  const json& gemm = j["kernels"][13];
  EXPECT_EQ(gemm["kernel"], "gemm");
  EXPECT_EQ(gemm["accesses"], 60 * 70 * 2 + 60 * 70 * 80 * 4);
  EXPECT_EQ(gemm["L1"]["lru"], 43125);  // Dinero IV's count of the compiled kernel
  EXPECT_EQ(gemm["L2"]["lru"], 1825);
  EXPECT_NEAR(gemm["L1"]["error"]["lru"].get<double>(), 3.3125, 1e-12);
  EXPECT_EQ(gemm["L1"]["error"]["dinero"], 0);
  EXPECT_EQ(gemm["L2"]["error"]["lru"], 1);
  EXPECT_TRUE(gemm["L1"]["ci_high"].is_null());
  EXPECT_EQ(gemm["L2"]["ci_high"], 2000);
  EXPECT_EQ(j["errors"]["L1"]["dinero"]["median"], 0);
  EXPECT_EQ(j["errors"]["L1"]["simulated"]["kernels"], 30);
  // The chains of GEMMs walked as plans: the same loops, but for the order in which one step's
  // elements are touched and where arrays begin.
  ASSERT_EQ(j["plans"].size(), 2u);
  for (const json& plan : j["plans"]) {
    EXPECT_EQ(plan["L1"]["recorded"],
              j["kernels"][plan["kernel"] == "2mm" ? 0 : 1]["L1"]["no-walks"]);
    EXPECT_NEAR(plan["L1"]["difference"].get<double>(), 0, 0.01);
    EXPECT_NEAR(plan["L2"]["difference"].get<double>(), 0, 0.01);
    EXPECT_GT(plan["L1"]["misses"], 5000);
  }
  for (const char* file : {"out/report.md", "out/result.json", "out/points.csv"})
    EXPECT_TRUE(std::filesystem::exists(folder.path(file))) << file;
  Arguments one = arguments;
  one.insert(one.end(), {"--threads", "1"});
  EXPECT_EQ(document(one), j);
  const Outcome table = tilewright_command(arguments);
  EXPECT_THAT(table.out, HasSubstr("median of the absolute"));
}

TEST(Command, CountedMissesThatAreNotThereOrWrong) {
  const Folder folder;
  Arguments arguments{"reproduce", "validation/polybench", "--size", "small",
                      "--data",    folder.path("none"),    "--out",  folder.path("out")};
  const json j = document(arguments, 3);
  EXPECT_THAT(j["reason"].get<std::string>(), HasSubstr("--data DIR"));
  const Outcome text = tilewright_command(arguments);
  EXPECT_EQ(text.status, 3);
  EXPECT_EQ(text.lines_of_err(), 1);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));

  arguments[5] = folder.path("");
  const auto refused = [&](const char* what) {
    const Outcome o = tilewright_command(arguments);
    EXPECT_EQ(o.status, 2);
    EXPECT_EQ(o.lines_of_err(), 1);
    EXPECT_THAT(o.err, HasSubstr(what));
  };
  write_counts(folder, kPolybench, "many", "0");
  refused("papi-small-o2.csv:2");
  write_counts(folder, {"gemm"}, "1", "1");
  refused("2mm");
  folder.write("papi-small-o2.csv", "kernels\n");
  refused("papi-small-o2.csv:1");
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
