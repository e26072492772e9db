// Chimera's Fig. 10 on a chain that takes no time: every version is built, verified and timed,
// points that are finished are not timed again; and batches of kernels.
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/report/experiment.h"
#include "harness/kernel_batch.h"
#include "core/workload/subgraph.h"
#include "harness/schedules.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr const char* kSmall = R"(
id: test/fig10
title: t
source: s
about: a
difference: d
method: ablation
machine: host
threads: 1
draws: 4
rounds: 2
workloads: ["gemm-chain:m=40,n=32,k=32,l=48,batch=2"]
paper:
  - {what: "cost model", version: v-C, value: 2.37}
must_hold: {all_over_baseline: 0}
)";

TEST(Ablation, TimesEveryVersionOnce) {
  const Experiment e = read_experiment(kSmall, "fig10.yaml");
  if (const auto why = missing(e, {})) GTEST_SKIP() << *why;
  Points points;
  const Request request;
  const ReproduceOptions options;
  const Reproduced done = method_of(e).run(e, {request, options, points});
  EXPECT_TRUE(done.holds) << done.reason;
  ASSERT_EQ(done.result["chains"].size(), 1u);
  const ordered_json& versions = done.result["chains"][0]["versions"];
  ASSERT_EQ(versions.size(), 8u);
  for (const auto& [name, v] : versions.items()) {
    EXPECT_GT(v["seconds_min"].get<double>(), 0) << name;
    EXPECT_EQ(v["micro_kernel"] != "scalar", name.find('M') != std::string::npos) << name;
    // Two kernels where nothing is fused.
    const std::string plan = v["plan"];
    EXPECT_EQ(plan.find("; ") == std::string::npos, name.find('F') != std::string::npos) << plan;
  }
  EXPECT_DOUBLE_EQ(done.result["geometric_means"]["baseline"], 1);
  const double c = versions["baseline"]["seconds_median"].get<double>() /
                   versions["v-C"]["seconds_median"].get<double>();
  ASSERT_EQ(done.compared.size(), 1u);
  EXPECT_NEAR(*done.compared[0].ours, c, 1e-9 * c);
  EXPECT_THAT(done.compared[0].ours_source, HasSubstr("measured (clock"));
  EXPECT_THAT(done.report, HasSubstr("| geometric mean | 1.00 |"));
}

TEST(KernelBatch, OneThatFailsCostsNoOther) {
  const Setting s = setting_of({.subject = "gemm:m=30,n=40,k=20", .machine = "scratchpad:1M"});
  const auto schedule = [](const char* tiles) {
    return *schedule_of({.subject = "gemm:m=30,n=40,k=20",
                         .machine = "scratchpad:1M",
                         .tree = "m n ( k ( C.gemm ) )",
                         .tiles = tiles})
                .schedule;
  };
  const std::vector<BatchItem> items = {{schedule("m=7,n=16,k=20")},
                                        {Reason{"no such plan"}},
                                        {schedule("m=30,n=40,k=3"), "scalar"},
                                        {schedule("m=30,n=40,k=3"), "9x9"}};
  auto kernels = verified_kernels(*s.workload, items, reference_of(*s.workload, 7), {.jobs = 2});
  ASSERT_EQ(kernels.size(), 4u);
  ASSERT_TRUE(kernels[0].ok()) << kernels[0].reason();
  EXPECT_EQ(kernels[1].reason(), "no such plan");
  ASSERT_TRUE(kernels[2].ok()) << kernels[2].reason();
  EXPECT_THAT(kernels[3].reason(), HasSubstr("'9x9' is not available"));
  EXPECT_EQ(source_of(*kernels[2].value()).micro_kernel, "scalar");
  for (int i : {0, 2}) EXPECT_GT(kernels[static_cast<std::size_t>(i)].value()->run(), 0);
}

TEST(OperatorAlone, KeepsNamesAndReadsTheIntermediate) {
  const Setting s = setting_of(
      {.subject = "gemm-chain:m=8,n=4,k=5,l=6,relu=1,batch=3", .machine = "scratchpad:1M"});
  const Workload w = subgraph(*s.workload, std::array{*s.workload->find_op("gemm2")});
  EXPECT_EQ(w.operators().size(), 1u);
  EXPECT_EQ(w.loop(*w.find_loop("l")).extent, 6);
  EXPECT_FALSE(w.find_loop("k"));
  ASSERT_EQ(w.outputs().size(), 1u);
  EXPECT_EQ(w.tensor(w.outputs()[0]).name, "E");
  EXPECT_TRUE(w.is_batch(*w.find_loop("b")));
  int inputs = 0;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) inputs += w.is_input(TensorId(t));
  EXPECT_EQ(inputs, 2);
}

}  // namespace
}  // namespace tilewright::harness
