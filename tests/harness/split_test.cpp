// Parts of a workload, planned by several models and joined: who plans what, and whether the whole
// is what its parts are.
#include "harness/split.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/plan/names.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::harness {
namespace {

const std::string kBlock = "transformer-block:tokens=12,heads=2,size=8,hidden=32";

Request asking(const std::string& models = "") {
  Request r;
  r.subject = kBlock;
  r.machine = "h200";
  if (!models.empty()) r.model = models;
  return r;
}

/// Every operator in one part, every kernel in one part and by its part's model.
void check_parts(const nlohmann::ordered_json& json, std::size_t operators) {
  std::set<std::string> planned;
  std::map<std::string, std::string> model_of;
  std::int64_t bytes = 0;
  for (const auto& part : json["parts"]) {
    for (const auto& op : part["operators"])
      EXPECT_TRUE(planned.insert(op.get<std::string>()).second) << op;
    for (const auto& kernel : part["kernels"])
      model_of[kernel.get<std::string>()] =
          part["model"].is_null() ? "none" : part["model"].get<std::string>();
    EXPECT_FALSE(part["kernels"].empty());
    if (!part["exact_bytes"].is_null()) bytes += part["exact_bytes"].get<std::int64_t>();
  }
  EXPECT_EQ(planned.size(), operators);
  for (const auto& kernel : json["plan"]["kernels"])
    EXPECT_TRUE(model_of.contains(kernel["name"].get<std::string>()));
  EXPECT_EQ(json["plan"]["kernels"].size(), model_of.size());
  if (!json["exact_bytes"].is_null()) {
    EXPECT_EQ(json["exact_bytes"], bytes);
  }
}

TEST(Split, ContractionsGoToChainModelsAndTheRestToGraphModels) {
  const Answer a = plan_in_parts(asking("mcfuser,fusionstitching"), "contractions", {});
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  check_parts(a.json, 33);
  for (const auto& part : a.json["parts"])
    if (part["operators"][0] == "residual1") {
      EXPECT_EQ(part["model"], "fusionstitching");
    }
}

TEST(Split, WhatIsPlannedOnAProcessorIsVerified) {
  Request r = asking();
  r.machine = "epyc-zen5";
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/block.yaml";
  const Answer a = plan_in_parts(r, "contractions", file);
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  check_parts(a.json, 33);
  const Answer ran = run({.subject = file}, {.seconds = 0.0});
  ASSERT_TRUE(ran.ok()) << ran.json.dump(1);
  EXPECT_TRUE(ran.json["verified"]);
}

TEST(Split, WhatIsPlannedForAGpuIsVerified) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/block.yaml";
  const Answer a = plan_in_parts(asking("mcfuser,fusionstitching"), "contractions", file);
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  const Answer ran = run({.subject = file}, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(ran.ok()) << ran.json.dump(1);
  EXPECT_TRUE(ran.json["verified"]);
  EXPECT_EQ(ran.json["faults"], 0);
}

TEST(Split, TheWholeMovesWhatItsPartsMove) {
  Request r = asking();
  r.machine = "scratchpad:64K";
  const Answer a = plan_in_parts(r, "each", {});
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  check_parts(a.json, 33);
  Setting setting = setting_of(r);
  const Result<SplitPlan> split = split_plan(r, "each", setting);
  ASSERT_TRUE(split.ok()) << split.reason();
  const Result<Alone> whole = alone_at(setting, split->plan, setting.machine->default_level());
  ASSERT_TRUE(whole.ok()) << whole.reason();
  EXPECT_EQ(a.json["exact_bytes"], whole->total().value);
}

/// Kernels blocked for different caches: each is counted at its own.
TEST(Split, KernelsOfSeveralCachesAreCountedAtTheirOwn) {
  const auto w = std::make_shared<const Workload>(named_workload("gemm-chain:m=96,n=64,k=80,l=72"));
  const Setting setting{.workload_name = w->name(),
                        .workload = w,
                        .machine = std::make_shared<const Machine>(named_machine("epyc-zen5")),
                        .file = {}};
  const Plan plan{
      {{.name = "first", .level = "L1", .tree = parse_tree("m/16 l/24 ( k/80 ( C.gemm1 ) )")},
       {.name = "second", .level = "L2", .tree = parse_tree("m/48 n/32 ( l/36 ( C.gemm2 ) )")}}};
  const Machine& m = *setting.machine;
  const Result<Alone> both = alone_at(setting, plan, *m.find("L1"));
  ASSERT_TRUE(both.ok()) << both.reason();
  // C is written and read between them in any case.
  std::int64_t sum = 0;
  for (const Kernel& kernel : plan.kernels) {
    const NamelessKernel alone = nameless(kernel, *w);
    const Result<Alone> one = alone_at({.workload_name = "one",
                                        .workload = alone.workload,
                                        .machine = setting.machine,
                                        .file = {}},
                                       {{alone.kernel}}, *m.find(kernel.level));
    ASSERT_TRUE(one.ok()) << one.reason();
    sum += one->total().value;
  }
  EXPECT_EQ(both->total().value, sum);
  EXPECT_TRUE(alone_at(setting, plan, *m.find("L2")).ok());
}

TEST(Split, AFileSaysPartsAndModels) {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& text) {
    return plan_in_parts(asking(), folder.write("parts.yaml", text), {});
  };
  const Answer a = with(
      "parts:\n  - {operators: fc1 biased cubic bent gelu fc2, model: [mcfuser]}\n"
      "  - {operators: [sum1, mean1], model: fusionstitching}\n");
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  check_parts(a.json, 33);
  for (const char* bad :
       {"parts: [{operators: fc3}]", "parts: [{operators: fc1, model: none}]",
        "parts: [{operators: fc1}, {operators: fc1}]", "parts: [{operators: sum1 norm1}]",
        "parts: 3", "parts: [{operators: fc1, options: {nothing: 1}}]", "parts: [{model: mcfuser}]",
        "{}"})
    EXPECT_THROW((void)with(bad), InputError) << bad;
  EXPECT_THROW((void)plan_in_parts(asking(), "nothing-there.yaml", {}), InputError);
  EXPECT_THROW((void)plan_in_parts(asking("exact"), "each", {}), InputError);  // makes no plans
}

TEST(Split, PartsAndModelsWithoutAFile) {
  const Answer a = plan_in_parts(asking("fusionstitching"),
                                 "qk scaled rowmax exp rowsum pv divide=mcfuser; "
                                 "fc1 biased=souffle,mcfuser",
                                 {});
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  check_parts(a.json, 33);
  std::map<std::string, std::string> by;
  for (const auto& part : a.json["parts"])
    by[part["operators"][0].get<std::string>()] = part["model"].get<std::string>();
  EXPECT_EQ(by["qk"], "mcfuser");
  EXPECT_EQ(by["fc1"], "souffle");
  EXPECT_EQ(by["residual1"], "fusionstitching");
  for (const char* bad : {"qk=", "=mcfuser", "qk=mcfuser; pv", "qk=nobody", "none=mcfuser",
                          "qk=mcfuser; qk pv=mcfuser", "qk=exact", ";="})
    EXPECT_THROW((void)plan_in_parts(asking(), bad, {}), InputError) << bad;
  try {
    (void)plan_in_parts(asking(), "every", {});
    FAIL() << "taken";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("contractions"), std::string::npos) << e.what();
  }
}

TEST(Part, IsPlannedAsAWorkload) {
  const Request r = asking("mcfuser");
  const Answer planned = plan(of_part(r, "qk scaled, rowmax exp rowsum pv divide"));
  ASSERT_TRUE(planned.ok()) << planned.json.dump(1);
  EXPECT_EQ(planned.json["plan"]["workload_name"], "qk+scaled+rowmax+exp+rowsum+pv+divide");
  try {
    (void)of_part(r, "qk pv");
    FAIL() << "taken";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("exp"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tilewright::harness
