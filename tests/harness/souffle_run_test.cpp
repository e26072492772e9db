// Do Souffle's kernels compute what they should, with and without barriers, and move what `exact`
// says, on the networks it was shown on and on graphs that nobody named?
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "harness/verbs.h"
#include "tests/support/drawn_graphs.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// All combinations; else those of which no two differ in a single switch of the model. Each is a
/// compilation.
const bool kAll = std::getenv("TILEWRIGHT_LONG") != nullptr;

/// The number of launches that wait for one another.
int expect_right(const std::string& workload, const std::string& step, const char* machine = "a100",
                 OptionValues options = {}) {
  SCOPED_TRACE(workload + " " + step + " " + (options.empty() ? "" : options.begin()->first));
  options["step"] = {step};
  const Request r{.subject = workload, .machine = machine, .model = "souffle", .options = options};
  const Answer a = run(r, {.target = "cuda-emulated", .seconds = 0.0});
  EXPECT_TRUE(a.ok()) << a.json.value("reason", std::string());
  EXPECT_TRUE(a.json.value("verified", false));
  if (!a.ok()) return 0;
  EXPECT_EQ(a.json.at("faults"), 0) << a.json["findings"].dump(1);
  std::int64_t moved = 0;
  for (const ordered_json& t : a.json.at("traffic"))
    for (const char* way : {"read_bytes", "written_bytes", "atomic_bytes"})
      moved += t.at(way).get<std::int64_t>();
  EXPECT_GT(moved, 0);
  const Answer planned = plan(r);
  EXPECT_TRUE(planned.ok());
  EXPECT_EQ(moved, planned.json.at("exact_bytes").get<std::int64_t>());
  int cooperative = 0;
  for (const ordered_json& l : a.json.at("launches")) cooperative += l.value("cooperative", false);
  return cooperative;
}

TEST(SouffleRun, NetworksInEveryStep) {
  int together = 0;
  for (const char* workload :
       {"se-module:size=5,channels=33,squeezed=3", "mmoe:input=37,experts=3,tasks=2,units=11",
        "bert:layers=1,seq=18,hidden=16,heads=2,ffn=24,dtype=f16",
        "lstm:steps=3,layers=2,hidden=8,wavefront=1"})
    for (const char* step : {"V0", "V1", "V2", "V3", "V4"}) {
      const bool small = workload[0] == 's' || workload[0] == 'm';
      if (kAll || small || step[1] >= '3') together += expect_right(workload, step);
    }
  EXPECT_GE(together, 8);  // V3 and V4 of each
  for (const char* workload :
       {"bert:layers=1,seq=24,hidden=32,heads=2,ffn=48",
        "bert:layers=1,seq=11,hidden=16,heads=2,ffn=24,standard=1", "mmoe",
        "lstm:steps=3,layers=2,hidden=16", "se-module:size=6,channels=12,squeezed=4,dtype=f16"})
    expect_right(workload, "V4");
}

TEST(SouffleRun, FurtherNetworks) {
  for (const char* workload :
       {"gpt2:batch=2,past=5,hidden=16,heads=2,mlp=24,layers=1,vocabulary=30",
        "vit-b16:size=16,patch=8,hidden=16,heads=2,mlp=24,layers=1,classes=5",
        "shufflenet-v2:size=16,stem=3,channels=4,stages=1,blocks=2,head=12,classes=5",
        "sar-drn:size=9,channels=4",
        "rednet50:size=16,channels=4,group=2,kernel=3,stages=1,blocks=1,classes=5"})
    for (const char* step : {"V4", "V1", "V2"}) {
      expect_right(workload, step);
      if (!kAll) break;
    }
}

std::string drawn(unsigned seed) {
  const std::string path = ::testing::TempDir() + "/drawn-" + std::to_string(seed) + ".yaml";
  std::ofstream(path) << testing::GraphDrawer(seed).text(5 + static_cast<int>(seed % 4));
  return path;
}

TEST(SouffleRun, GraphsThatNobodyNamed) {
  for (int seed = 21; seed <= 28; ++seed) {
    const std::string name = "random-graph:rows=30,cols=44,seed=" + std::to_string(seed) +
                             (seed % 3 == 0 ? ",indices=1" : "");
    if (seed % 2 == 0) expect_right(name, "V3");
    expect_right(name, "V4");
  }
  for (unsigned seed = 1; seed <= 8; ++seed)
    expect_right(drawn(seed), seed % 4 == 0 ? "V2" : seed % 4 == 1 ? "V3" : "V4");
  for (const char* name :
       {"layernorm:rows=37,cols=50", "squeeze-excite:batch=3,channels=8,size=20,squeezed=4",
        "transformer-block:tokens=24,heads=2,size=8,hidden=40", "column-norm:rows=30,cols=17",
        "cross-entropy:rows=17,cols=90", "conv-chain:ic=7,h=19,w=17,oc1=12,oc2=9",
        "rotary:tokens=9,heads=3,half=21"})
    expect_right(name, "V4");
}

/// Concatenation, packs and sums in parts: all of them, and each off.
TEST(SouffleRun, HorizontalTransforms) {
  const std::vector<OptionValues> switches = {
      {}, {{"concat", {"no"}}}, {{"pack", {"no"}}}, {{"reduction", {"local"}}}};
  for (unsigned seed = 1; seed <= (kAll ? 12 : 4); ++seed) {
    const std::string path = ::testing::TempDir() + "/branches-" + std::to_string(seed) + ".yaml";
    std::ofstream(path) << testing::drawn_branches(seed);
    for (std::size_t i = 0; i < switches.size(); ++i)
      if (kAll || i == seed % switches.size())
        expect_right(path, seed % 2 == 0 ? "V4" : "V2", "h200", switches[i]);
  }
}

}  // namespace
}  // namespace tilewright::harness
