// FusionStitching as users reach it: options, explanations, drawings, plans that the witnesses
// count alike and that compute what the evaluator computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/toolchain.h"
#include "core/machine/machine.h"
#include "experiments/report/reproduce.h"
#include "harness/ask.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "models/exact/exact.h"
#include "models/fusionstitching/model.h"
#include "simulator/simulator.h"
#include "tests/support/small_graphs.h"

namespace tilewright::harness {
namespace {

Settings stitch_settings(const Request& r) { return settings_of(r, find_model("fusionstitching")); }

using nlohmann::ordered_json;
using ::testing::HasSubstr;

Request request(const std::string& workload, const std::string& machine = "v100") {
  Request r;
  r.subject = workload;
  r.machine = machine;
  r.model = "fusionstitching";
  return r;
}

TEST(StitchOptions, AreReadAndRefusedByName) {
  Request r = request("softmax");
  r.options["stitch"] = {"last-step=select", "beam=5", "call-us=1.5", "skip=no"};
  const auto o = fusionstitching::options_of(stitch_settings(r));
  EXPECT_EQ(o.last_step, fusionstitching::LastStep::select);
  EXPECT_EQ(o.beam, 5);
  EXPECT_DOUBLE_EQ(o.call_seconds, 1.5e-6);
  EXPECT_FALSE(o.skip);
  EXPECT_EQ(stitch_settings(r).to_json()["last_step"], "select");
  const auto error = [&](const char* option) -> std::string {
    r.options["stitch"] = {option};
    try {
      fusionstitching::options_of(stitch_settings(r));
    } catch (const InputError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(error("beam=0"), HasSubstr("beam=a whole number from 1 to 64"));
  EXPECT_THAT(error("bean=3"), HasSubstr("nearest: beam"));
  EXPECT_THAT(error("beam"), HasSubstr("gives no value"));
  EXPECT_THAT(error("last-step="), HasSubstr("unite, select"));
  EXPECT_THAT(error("call-us=-1"), HasSubstr("call-us=a number from 0 to 1e6"));
}

TEST(StitchExplain, SaysWhereEveryTensorLives) {
  const Answer a = explain(request("layernorm"), false);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a.json["stitched"].size(), 1u);
  EXPECT_EQ(a.json["xla_kernels"].size(), 4u);
  EXPECT_EQ(a.json["lives"]["y"], "global memory");
  EXPECT_EQ(a.json["lives"]["sq"], "registers");
  // A sum is handed on by its scheme.
  const std::string sum = a.json["lives"]["sum"].get<std::string>();
  EXPECT_TRUE(sum == "shared memory" || sum == "the first lane's register") << sum;
  const std::string dot = a.json["dot"].get<std::string>();
  for (const char* op : {"sum", "mean", "sub", "sq", "varsum", "rstd", "norm"})
    EXPECT_THAT(dot, HasSubstr("\"" + std::string(op) + "\" [fillcolor"));
  Request unfused = request("layernorm");
  unfused.model = "unfused";
  const Answer each = explain(unfused, false);
  EXPECT_EQ(each.json["stitched"].size(), 7u);
  EXPECT_EQ(each.json["lives"]["sq"], "global memory");
}

TEST(StitchExplain, DrawsAFile) {
  const TemporaryDirectory folder;
  const std::string dot = (folder.path() / "plan.dot").string();
  ASSERT_TRUE(explain(request("softmax"), false, dot).ok());
  EXPECT_THAT(text_of(dot), HasSubstr("digraph plan"));
  const std::string svg = (folder.path() / "plan.svg").string();
  const Answer drawn = explain(request("softmax"), false, svg);
  if (on_path("dot")) {
    EXPECT_TRUE(drawn.ok());
    EXPECT_THAT(text_of(svg), HasSubstr("<svg"));
  } else {
    EXPECT_FALSE(drawn.ok());
    EXPECT_THAT(drawn.json["reason"], HasSubstr("Graphviz"));
    EXPECT_FALSE(std::filesystem::exists(svg));
  }
  Request chain = request("gemm-chain");
  chain.model = "chimera";
  EXPECT_THROW(explain(chain, false, dot), InputError);
}

TEST(StitchPlan, MachinesWithoutCyclesAreAReason) {
  const Answer a = plan(request("softmax", "scratchpad:64K"));
  EXPECT_FALSE(a.ok());
  EXPECT_THAT(a.json["reason"], HasSubstr("GPU"));
}

TEST(StitchPlan, AGatherIsPlannedAndCounted) {
  const Answer a = plan(request("attention-unit:batch=4,items=6,width=8,rows=50"));
  ASSERT_TRUE(a.ok());
  EXPECT_GE(a.json["exact_bytes"].get<std::int64_t>(), a.json["bound_bytes"].get<std::int64_t>());
  Request chimera = request("attention-unit:batch=4,items=6,width=8,rows=50");
  chimera.model = "chimera";
  for (const Answer& refused : {plan(chimera), predict(chimera)}) {
    EXPECT_FALSE(refused.ok());
    EXPECT_THAT(refused.json["reason"], HasSubstr("lookup reads by another tensor's values"));
  }
}

TEST(StitchPlan, PredictedBytesOfBaselinesAreInOrder) {
  for (const std::string& name : testing::kSmallGraphs) {
    SCOPED_TRACE(name);
    const auto bytes = [&](const char* model) {
      Request r = request(name);
      r.model = model;
      const Answer a = predict(r);
      EXPECT_TRUE(a.ok());
      return a.json["volume_bytes"].get<std::int64_t>();
    };
    const std::int64_t own = bytes("fusionstitching"), xla = bytes("xla-rule"),
                       each = bytes("unfused");
    // Where no operator reads another's result, a pack saves launches, and its parts read what they
    // share each.
    if (testing::has_intermediates(named_workload(name)))
      EXPECT_LT(own, each);
    else
      EXPECT_LE(own, each);
    EXPECT_LE(own, xla);
    EXPECT_LE(xla, each);
  }
}

/// exact and the simulator count independently.
TEST(StitchPlan, WitnessesAgree) {
  const auto machine = std::make_shared<const Machine>(named_machine("scratchpad:256K"));
  for (const std::string& name : testing::kSmallGraphs)
    for (const fusionstitching::Stitcher by :
         {fusionstitching::Stitcher::explorer, fusionstitching::Stitcher::xla_rule,
          fusionstitching::Stitcher::unfused}) {
      SCOPED_TRACE(name);
      const Setting setting = setting_of(request(name));
      const auto found = fusionstitching::stitched(setting.workload, *setting.machine, {}, by);
      ASSERT_TRUE(found.ok()) << found.reason();
      const auto schedule = resolve(fusionstitching::plan_of(found->graph, found->price()),
                                    found->graph.shared_workload(), machine);
      ASSERT_TRUE(schedule.ok()) << schedule.reason();
      const Traffic counted = exact(*schedule), simulated = tilewright::simulate(*schedule);
      for (const TrafficEntry& e : counted.entries) {
        EXPECT_EQ(e.read, simulated.at(e.tensor, e.boundary).read) << e.tensor;
        EXPECT_EQ(e.written, simulated.at(e.tensor, e.boundary).written) << e.tensor;
      }
      EXPECT_EQ(counted.operations, simulated.operations);
    }
}

/// What the planner gives for a GPU runs there, though no target was named: a product of this
/// network had tiles that fit shared memory only without the padding of its micro-kernel.
TEST(PlanWithoutTarget, IsOneThatItsMachineTakes) {
  const Request r = request("vit-b16:layers=1", "h100");
  Setting setting = setting_of(r);
  const Result<Proposal> best = propose(planning_model(), r, setting);
  ASSERT_TRUE(best.ok()) << best.reason();
  rewrite(setting, best->rewrites, "test");
  const Result<Schedule> schedule = resolve(best->plan, setting.workload, setting.machine);
  ASSERT_TRUE(schedule.ok()) << schedule.reason();
  const codegen::Target& cuda = codegen::find_target("cuda");
  const auto emitted = cuda.emit(*schedule, settings_for(cuda, {}), 1);
  EXPECT_TRUE(emitted.ok()) << emitted.reason();
}

/// The same of the plans as users get them, with their loops bound to warps, lanes and threads.
TEST(StitchPlan, WitnessesAgreeOnBoundPlans) {
  for (const std::string& name : testing::kSmallGraphs) {
    SCOPED_TRACE(name);
    const Request r = request(name, "h200");
    Setting setting = setting_of(r);
    const Result<Proposal> best = propose(find_model("fusionstitching"), r, setting);
    ASSERT_TRUE(best.ok()) << best.reason();
    rewrite(setting, best->rewrites, "test");
    for (const ordered_json& kernel : best->detail["stitched"])
      EXPECT_TRUE(kernel["class"] == "product" || kernel["without_units"].is_null()) << kernel;
    const Result<Alone> alone = alone_at(setting, best->plan, best->level);
    ASSERT_TRUE(alone.ok()) << alone.reason();
    const Traffic simulated = tilewright::simulate(alone->schedule);
    EXPECT_FALSE(alone->exact.entries.empty());
    for (const TrafficEntry& e : alone->exact.entries) {
      EXPECT_EQ(e.read, simulated.at(e.tensor, e.boundary).read) << e.tensor;
      EXPECT_EQ(e.written, simulated.at(e.tensor, e.boundary).written) << e.tensor;
    }
    EXPECT_EQ(alone->exact.operations, simulated.operations);
  }
}

TEST(StitchSchedules, AreDrawnOverTheRankingAndAskedForByNumber) {
  Request r = request("layernorm:rows=64,cols=96", "h200");
  r.samples = 12;
  r.seed = 3;
  const ordered_json drawn = explain(r, false).json["drawn"];
  ASSERT_EQ(drawn.size(), 12u);
  EXPECT_EQ(drawn, explain(r, false).json["drawn"]);  // the seed says which
  std::set<std::string> trees;
  double last = 0;
  for (const ordered_json& one : drawn) {
    trees.insert(one["tree"].get<std::string>());
    EXPECT_GE(one["seconds"].get<double>(), last);
    last = one["seconds"].get<double>();
    Request asked = request("layernorm:rows=64,cols=96", "h200");
    asked.options["stitch"] = one["request"]["stitch"].get<std::vector<std::string>>();
    const Answer a = plan(asked);
    ASSERT_TRUE(a.ok());
    EXPECT_EQ(a.json["plan"]["kernels"][0]["tree"], one["tree"]);
    EXPECT_DOUBLE_EQ(a.json["seconds"].get<double>(), last);
  }
  EXPECT_EQ(trees.size(), 12u);
  r.options["stitch"] = {"schedule=100000"};
  const Answer beyond = explain(r, false);
  EXPECT_FALSE(beyond.ok());
  EXPECT_THAT(beyond.json["reason"].get<std::string>(), HasSubstr("schedules that a plan can say"));
}

TEST(StitchOptions, BandwidthIsALowerLimit) {
  Request r = request("gelu:rows=4096,cols=4096", "h200");
  r.model = "unfused";
  const auto seconds = [&](const char* option) {
    r.options["stitch"] = {"latency=published", option};
    const Answer a = explain(r, false);
    std::vector<double> out;
    for (const ordered_json& k : a.json["stitched"]) out.push_back(k["seconds"]);
    return out;
  };
  const auto without = seconds("bandwidth=no"), with = seconds("bandwidth=yes");
  ASSERT_EQ(with.size(), 5u);
  for (std::size_t k = 0; k < with.size(); ++k) EXPECT_GE(with[k], without[k]);
  // biased reads x and writes as much at 4.8 TB/s, and reads the bias.
  EXPECT_NEAR(with[0], std::max(without[0], (2 * 4096.0 + 1) * 4096 * 4 / 4.8e12), 1e-12);
}

TEST(StitchReproduce, TablesAndFiguresHold) {
  const TemporaryDirectory folder;
  for (const char* id : {"fusionstitching/table1", "fusionstitching/table2", "fusionstitching/fig1",
                         "fusionstitching/fig7"}) {
    ReproduceOptions options;
    options.id = id;
    options.out = (folder.path() / "out").string();
    const Answer a = reproduce(Request{}, options);
    EXPECT_TRUE(a.ok()) << id << ": " << a.json.value("reason", "");
    EXPECT_FALSE(a.json["table"].empty()) << id;
  }
}

}  // namespace
}  // namespace tilewright::harness
