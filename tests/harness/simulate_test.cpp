// simulate beside the traffic: traces there and back, curves, attribution, cores.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/verbs.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

Request chain() {
  return {.subject = "gemm-chain:m=48,n=32,k=40,l=36",
          .machine = "cache:1K/2,4K/4",
          .tree = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )",
          .tiles = "m=16,l=16,k=8,n=8"};
}

std::int64_t sum(const ordered_json& traffic, const std::string& boundary, const char* key) {
  std::int64_t all = 0;
  for (const ordered_json& e : traffic["traffic"])
    if (e["boundary"] == boundary) all += e.value(key, std::int64_t{0});
  return all;
}

TEST(SimulateVerb, ASavedTraceWalksToTheSameTraffic) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() + "/chain.tw");
  const Answer plan = simulate(chain(), {.save_trace = file});
  ASSERT_TRUE(plan.ok());
  const Answer trace = simulate({.machine = chain().machine}, {.trace = file});
  EXPECT_EQ(trace.json["traffic"], plan.json["traffic"]);
  EXPECT_GT(sum(plan.json, "DRAM/L2", "misses"), 100);
  EXPECT_EQ(trace.json["trace"]["format"], "tilewright");
}

TEST(SimulateVerb, TextTraces) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() + "/t.din");
  std::ofstream(file) << "0 0\n1 40\n0 4\n2 1000\n0 80\n";
  const Answer a = simulate({.machine = "cache:64B/1"}, {.trace = file});
  const ordered_json& e = a.json["traffic"][0];
  EXPECT_EQ(e["tensor"], "trace");
  EXPECT_EQ(e["boundary"], "DRAM/L1");
  EXPECT_EQ(e["read_bytes"], 256);
  EXPECT_EQ(e["written_bytes"], 64);
  EXPECT_EQ(a.json["trace"]["instruction_fetches_left_out"], 1);
}

TEST(SimulateVerb, TheCurvePassesThroughTheCacheThatWasWalked) {
  Request r = chain();
  const Answer a = simulate(r, {.curve = true});
  const ordered_json& c = a.json["curve"];
  EXPECT_EQ(c["sets"], 8);
  bool met = false;
  for (const ordered_json& p : c["by_ways"]) {
    if (p["ways"] != 2) continue;
    met = true;
    std::int64_t misses = 0;
    for (const auto& [tensor, n] : p["misses"].items()) misses += n.get<std::int64_t>();
    EXPECT_EQ(misses, sum(a.json, "L2/L1", "misses"));
  }
  EXPECT_TRUE(met);
  r.machine = "cache:3K";
  const Answer associative = simulate(r);
  for (const ordered_json& p : c["fully_associative"]) {
    if (p["capacity_bytes"] != 3072) continue;
    std::int64_t misses = 0;
    for (const auto& [tensor, n] : p["misses"].items()) misses += n.get<std::int64_t>();
    EXPECT_EQ(misses, sum(associative.json, "DRAM/L1", "misses"));
  }
}

TEST(SimulateVerb, AttributionAddsUpAndBlamesTheLoopThatComesRound) {
  const Answer a = simulate(chain(), {.attribute = true});
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a.json["attribution"][0]["boundary"], "L2/L1");
  for (const ordered_json& b : a.json["attribution"]) {
    std::int64_t misses = 0, blamed = 0, seen = 0;
    for (const ordered_json& t : b["tensors"]) {
      misses += t["compulsory"].get<std::int64_t>() + t["capacity"].get<std::int64_t>() +
                t["conflict"].get<std::int64_t>();
      seen += t["capacity"].get<std::int64_t>() + t["conflict"].get<std::int64_t>();
      for (const auto& [loop, n] : t["by_loop"].items()) {
        blamed += n.get<std::int64_t>();
        // B is read again when m comes round (a tile of it within one l, too, by rows).
        if (t["tensor"] == "B") {
          EXPECT_TRUE(loop == "m" || loop == "none") << loop;
        }
      }
    }
    EXPECT_EQ(misses, sum(a.json, b["boundary"], "misses"));
    EXPECT_EQ(blamed, seen);
  }
}

TEST(SimulateVerb, CoresHavePrivateCachesOfTheirOwn) {
  Request r = chain();
  r.tree = "m@grid l ( k ( C.gemm1 ) n ( C.gemm2 ) )";
  r.machine = "cache:2K/2,8K/4,64K/8";
  const Answer one = simulate(r), three = simulate(r, {.cores = 3});
  EXPECT_EQ(three.json["cores"], 3);
  // Each of three blocks reads B afresh into its private caches; the shared one has it.
  EXPECT_GE(sum(three.json, "L3/L2", "misses"), sum(one.json, "L3/L2", "misses"));
  EXPECT_EQ(sum(three.json, "DRAM/L3", "misses"), sum(one.json, "DRAM/L3", "misses"));
}

TEST(SimulateVerb, BlocksRunSideBySideOnAGpu) {
  Request r{.subject = "gemm:m=512,n=256,k=256"};
  r.machine = "h200";
  r.tree = "m@grid n@grid ( k ( C.gemm ) S.C )";
  r.tiles = "m=32,n=32,k=16";
  const Answer a = simulate(r);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a.json["by"], "gpu");
  EXPECT_EQ(a.json["layout"], "row-major");
  EXPECT_EQ(a.json["gpu"]["sms"], 132);
  EXPECT_EQ(a.json["gpu"]["approximate"], false);
  EXPECT_EQ(a.json["gpu"]["kernels"][0]["resident_blocks"], 128);
  // Each of 16 x 8 blocks reads 32 rows of A and 32 columns of B; all of it fits in L2.
  EXPECT_EQ(sum(a.json, "L2/shared", "read_bytes"), 128 * 2 * 32 * 256 * 4);
  EXPECT_EQ(sum(a.json, "DRAM/L2", "read_bytes"), (512 * 256 + 256 * 256) * 4);
  const Answer walked = simulate(r, {.cores = 1});
  EXPECT_EQ(walked.json["by"], "cache");
  EXPECT_FALSE(walked.json.contains("gpu"));
  EXPECT_EQ(sum(walked.json, "L2/shared", "read_bytes"), sum(a.json, "L2/shared", "read_bytes"));
}

TEST(SimulateVerb, WhatIsSkippedAndWhoWalksChangesNoCount) {
  Request r = chain();
  r.subject = "gemm-chain:m=256,n=32,k=64,l=64";
  r.machine = "cache:2K/2,4K/4";  // a tile's operands fit into the innermost
  const Answer some = simulate(r), all = simulate(r, {.skip = false});
  r.threads = 3;
  const Answer shared = simulate(r);
  EXPECT_EQ(some.json["traffic"], all.json["traffic"]);
  EXPECT_EQ(shared.json["traffic"], all.json["traffic"]);
  EXPECT_EQ(shared.json["threads"], 3);
  EXPECT_EQ(some.json["operations"], all.json["operations"]);
  EXPECT_EQ(all.json["skipped"], ordered_json({{"none", "not asked for"}}));
  EXPECT_EQ(some.json["skipped"]["of_computes"], 16 * 4 * (8 + 4));
  EXPECT_GT(some.json["skipped"]["computes"], 16 * 4 * (8 + 4) / 2);
  EXPECT_EQ(some.json["skipped"]["loops"][0]["loop"], "m/16");
  const Answer attributed = simulate(r, {.attribute = true});
  EXPECT_EQ(attributed.json["threads"], 1);
  EXPECT_EQ(attributed.json["why_serial"], "misses are told apart by a fully associative cache");
}

TEST(SimulateVerb, OccupancyIsATraceOfCountersAndATable) {
  const TemporaryFolder folder;
  const std::string json = folder.path() + "/o.json", csv = folder.path() + "/o.csv";
  const Answer a = simulate(chain(), {.occupancy = json, .stride = 100});
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(simulate(chain()).json["traffic"], a.json["traffic"]);
  std::ifstream in(json);
  const ordered_json o = ordered_json::parse(in);
  EXPECT_EQ(o["kind"], "occupancy");
  EXPECT_EQ(o["stride_accesses"], 100);
  EXPECT_EQ(o["levels"][0], ordered_json({{"level", "L1"}, {"lines", 16}, {"line_bytes", 64}}));
  std::int64_t samples = 0, before = -1;
  ordered_json last;
  for (const ordered_json& e : o["traceEvents"]) {
    if (e["ph"] != "C" || e["name"] != "L1") continue;
    EXPECT_GT(e["ts"], before);
    before = e["ts"];
    std::int64_t lines = 0;
    for (const auto& [tensor, n] : e["args"].items()) lines += n.get<std::int64_t>();
    EXPECT_LE(lines, 16);
    last = e;
    ++samples;
  }
  EXPECT_EQ(samples, a.json["occupancy"]["samples"]);
  EXPECT_EQ(before, a.json["occupancy"]["accesses"]);
  EXPECT_EQ(before, sum(a.json, "L2/L1", "hits") + sum(a.json, "L2/L1", "misses"));

  ASSERT_TRUE(simulate(chain(), {.occupancy = csv, .stride = 100}).ok());
  std::ifstream rows(csv);
  std::string line, l1;
  std::getline(rows, line);
  EXPECT_EQ(line, "accesses,level,A,B,C,D,E");
  while (std::getline(rows, line))
    if (line.find(",L1,") != std::string::npos) l1 = line;
  std::string wanted = std::to_string(before) + ",L1";
  for (const char* t : {"A", "B", "C", "D", "E"})
    wanted += "," + std::to_string(last["args"][t].get<std::int64_t>());
  EXPECT_EQ(l1, wanted);
}

TEST(SimulateVerb, WhatCannotBeAskedTogether) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() + "/t.din");
  std::ofstream(file) << "0 0\n";
  EXPECT_THROW(simulate(chain(), {.trace = file}), InputError);
  EXPECT_THROW(simulate({.machine = "scratchpad:4K"}, {.trace = file}), InputError);
  EXPECT_THROW(simulate({}, {.trace = file}), InputError);
  EXPECT_THROW(simulate({.machine = "cache:4K"}, {.trace = file + "x"}), InputError);
  EXPECT_THROW(simulate({.machine = "cache:4K"}, {.trace = folder.path()}), InputError);
  EXPECT_THROW(simulate({.machine = "cache:4K"}, {.trace = file, .cores = 2}), InputError);
  EXPECT_THROW(simulate({.machine = "cache:4K"}, {.trace = file, .skip = false}), InputError);
  EXPECT_THROW(simulate({.machine = "cache:4K", .threads = 2}, {.trace = file}), InputError);
  EXPECT_THROW(simulate(chain(), {.attribute = true, .cores = 2}), InputError);
  EXPECT_THROW(simulate(chain(), {.stride = 5}), InputError);
  EXPECT_THROW(simulate(chain(), {.save_trace = "/no/such/folder/t"}), InputError);
  Request r = chain();
  r.machine = "scratchpad:8K";
  EXPECT_THROW(simulate(r, {.curve = true}), InputError);
}

/// Memory that software manages holds what a model says: an output counts as what is read or written
/// of it, as predictions have it. Reads alone were compared before.
TEST(Validate, ModelsAreExactOnMemoryThatSoftwareManages) {
  for (const auto& [model, machine] :
       {std::pair("chimera", "scratchpad:4K"), {"flashfuser", "h100"}}) {
    Request request{.subject = "gemm-chain:m=130,n=64,k=48,l=96,dtype=f16", .machine = machine};
    request.model = model;
    const Answer a = validate(request, {.samples = 5});
    ASSERT_TRUE(a.ok()) << a.json.dump(1);
    EXPECT_GE(a.json["valid"], 1) << model;
    EXPECT_EQ(a.json["mape"], 0) << model << a.json.dump(1);
  }
}

}  // namespace
}  // namespace tilewright::harness
