// Do PowerFusion's kernels of loops compute what they should on CPUs and on the emulated NPU, and
// what of an NPU's units cannot do them is said?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using ::testing::HasSubstr;

const bool kAll = std::getenv("TILEWRIGHT_LONG") != nullptr;

Answer ran(const std::string& workload, const char* machine, const char* target) {
  const Request r{.subject = workload, .machine = machine, .model = "powerfusion"};
  return run(r, {.target = target, .seconds = 0.0});
}

void expect_right(const std::string& workload, const char* machine, const char* target) {
  SCOPED_TRACE(workload + " on " + machine);
  const Answer a = ran(workload, machine, target);
  EXPECT_TRUE(a.ok()) << a.json.value("reason", std::string());
  EXPECT_TRUE(a.json.value("verified", false));
}

/// Every kernel is one that the CUDA emitter runs: right, without a fault, and moving exact's
/// bytes.
TEST(PowerFusionRun, TheEmulatedGpuMovesWhatExactCounts) {
  std::vector<std::string> workloads = {"shuffle-unit:channels=10,size=48",
                                        "kv-attention:batch=2,past=9,heads=2,size=32",
                                        "involution:size=6",
                                        "se-module:size=7,channels=12,squeezed=3",
                                        "layernorm:rows=33,cols=70",
                                        "softmax:rows=17,cols=96,dtype=f16"};
  if (kAll)
    for (int seed = 1; seed <= 40; ++seed)
      workloads.push_back("random-graph:rows=20,cols=37,vertices=" + std::to_string(3 + seed % 6) +
                          ",seed=" + std::to_string(seed));
  for (const std::string& workload : workloads) {
    SCOPED_TRACE(workload);
    const Answer a = ran(workload, "h200", "cuda-emulated");
    ASSERT_TRUE(a.ok()) << a.json.value("reason", std::string());
    EXPECT_TRUE(a.json.value("verified", false));
    EXPECT_EQ(a.json.at("faults"), 0) << a.json["findings"].dump(1);
    std::int64_t moved = 0;
    for (const auto& t : a.json.at("traffic"))
      for (const char* way : {"read_bytes", "written_bytes", "atomic_bytes"})
        moved += t.at(way).get<std::int64_t>();
    const Answer planned = plan({.subject = workload,
                                 .machine = "h200",
                                 .model = "powerfusion",
                                 .target = "cuda-emulated"});
    ASSERT_TRUE(planned.ok());
    EXPECT_EQ(moved, planned.json.at("exact_bytes").get<std::int64_t>());
  }
}

TEST(PowerFusionRun, LoopsOnACpu) {
  // Each is a compilation: without TILEWRIGHT_LONG one of seven.
  const char* types[] = {"f32", "f64", "bf16"};
  int at = 0;
  for (const char* workload :
       {"layernorm:rows=30,cols=41", "softmax:rows=17,cols=70", "gelu:rows=9,cols=50",
        "shuffle-unit:channels=10,size=35", "involution:size=8",
        "se-module:size=7,channels=12,squeezed=3", "kv-attention:batch=3,past=9,heads=2,size=8",
        "column-norm:rows=30,cols=17"})
    for (int t = 0; t < 3; ++t)
      if (kAll || at++ % 7 == 0)
        expect_right(std::string(workload) + ",dtype=" + types[t], "epyc-zen5", "cpu");
  for (int seed = 31; seed <= (kAll ? 60 : 33); ++seed)
    expect_right("random-graph:rows=20,cols=37,vertices=" + std::to_string(3 + seed % 6) +
                     ",seed=" + std::to_string(seed) + (seed % 3 == 0 ? ",indices=1" : ""),
                 seed % 2 == 0 ? "epyc-zen5" : "host", "cpu");
}

TEST(PowerFusionRun, TheEmulatedNpuWhereItsUnitsCan) {
  // Products are library kernels in tiles of the cube's memories.
  const Answer products = run({.subject = "gemm-chain:m=64,n=32,k=48,l=64,dtype=f16",
                               .machine = "ascend910",
                               .model = "powerfusion",
                               .options = {{"library", {"type"}}}},
                              {.target = "npu", .seconds = 0.0});
  EXPECT_TRUE(products.ok()) << products.json.value("reason", std::string());
  EXPECT_TRUE(products.json.value("verified", false));
  for (const char* workload : {"layernorm:rows=33,cols=70", "softmax:rows=64,cols=96",
                               "gelu:rows=20,cols=48", "rmsnorm:rows=17,cols=35"})
    for (const char* machine : {"ascend910", "ascend910b"})
      expect_right(std::string(workload) + ",dtype=f16", machine, "npu");
  // What no unit takes in tiles goes element by element through the scalar one.
  for (const char* workload :
       {"shuffle-unit:channels=10,size=48", "kv-attention:batch=3,past=15,heads=2,size=16"})
    expect_right(std::string(workload) + ",dtype=f16", "ascend910", "npu");
  const Answer a = ran("layernorm:rows=33,cols=70,dtype=f64", "ascend910", "npu");
  EXPECT_FALSE(a.ok());
  EXPECT_THAT(a.json.value("reason", std::string()), HasSubstr("no unit of a core in f64"));
}

}  // namespace
}  // namespace tilewright::harness
