// Rewritten workloads as users reach them: named on the command line, in plan files and by a model;
// planned, counted, walked, run and verified against the workload as it was named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "codegen/cpu/loaded.h"
#include "core/base/toolchain.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/text.h"
#include "harness/ask.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "harness/verified_kernel.h"
#include "models/exact/exact.h"
#include "models/fusionstitching/model.h"

namespace tilewright::harness {
namespace {

Settings stitch_settings(const Request& r) { return settings_of(r, find_model("fusionstitching")); }

Result<fusionstitching::StitchedPlan> stitched(const Request& r) {
  const Setting s = setting_of(r);
  return fusionstitching::stitched(s.workload, *s.machine,
                                   fusionstitching::options_of(stitch_settings(r)));
}

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

Request request(const std::string& workload, const std::string& machine = "h200") {
  Request r;
  r.subject = workload;
  r.machine = machine;
  r.model = "fusionstitching";
  return r;
}

std::string error_of(const Request& r) {
  try {
    setting_of(r);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

std::int64_t compulsory_of(const std::string& workload) {
  return named_workload(workload).compulsory_bytes().value;
}

TEST(Rewrites, AreAppliedInOrderAndRefusedByName) {
  Request r = request("attention:heads=1,m=8,l=12,k=4,n=4");
  r.rewrites = {"online-softmax"};
  const Setting s = setting_of(r);
  EXPECT_EQ(s.workload->spec().operators,
            named_workload("attention:heads=1,m=8,l=12,k=4,n=4,online=1").spec().operators);
  EXPECT_EQ(s.as_named(), named_workload("attention:heads=1,m=8,l=12,k=4,n=4"));
  EXPECT_EQ(s.rewrites, r.rewrites);
  r.rewrites = {"online-softmax", "online-softmax"};
  EXPECT_THAT(error_of(r), HasSubstr("--rewrite: online-softmax does not apply"));
  r.rewrites = {"onlin"};
  EXPECT_THAT(error_of(r), HasSubstr("--rewrite"));
  EXPECT_THAT(error_of(r), HasSubstr("online-softmax, compose, compose-gathers, compose-all"));
}

/// Issue 5's gap: MCFuser's plans of a chain with softmax.
TEST(Rewrites, McfuserPlansOnlineSoftmaxOfAChain) {
  const std::string chain = "attention:heads=1,m=64,l=64,k=32,n=32";
  Request rewritten = request(chain, "a100"), built_in = request(chain + ",online=1", "a100");
  rewritten.model = built_in.model = "mcfuser";
  rewritten.rewrites = {"online-softmax"};
  const Answer a = plan(rewritten), b = plan(built_in);
  ASSERT_TRUE(a.ok() && b.ok()) << a.json.dump() << b.json.dump();
  EXPECT_EQ(a.json["plan"]["kernels"], b.json["plan"]["kernels"]);
  EXPECT_EQ(a.json["plan"]["rewrites"], ordered_json({"online-softmax"}));
  EXPECT_EQ(a.json["plan"]["workload"], chain);
}

TEST(Composed, LstmCellIsOneKernelThatReadsOnce) {
  const std::string cell = "lstm-cell:batch=32768,hidden=256";
  const Answer a = plan(request(cell));
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  EXPECT_EQ(a.json["plan"]["rewrites"], ordered_json({"compose"}));
  EXPECT_EQ(a.json["plan"]["workload"], cell);
  ASSERT_EQ(a.json["plan"]["kernels"].size(), 1u);
  EXPECT_EQ(a.json["volume_bytes"], compulsory_of(cell));
  EXPECT_EQ(a.json["bound_bytes"], compulsory_of(cell));
  Request as_written = request(cell);
  as_written.options["stitch"] = {"compose=no", "pick=score"};
  const Answer b = plan(as_written);
  ASSERT_TRUE(b.ok());
  EXPECT_FALSE(b.json["plan"].contains("rewrites"));
  EXPECT_EQ(b.json["plan"]["kernels"].size(), 2u);
  EXPECT_GT(b.json["volume_bytes"].get<std::int64_t>(), compulsory_of(cell));
  // Joined, what is read in slices goes through shared memory: about as fast, but for the barrier,
  // for which the composed kernel is chosen.
  as_written.options["stitch"] = {"compose=no"};
  const Answer joined = plan(as_written);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(joined.json["plan"]["kernels"].size(), 1u);
  EXPECT_NEAR(joined.json["seconds"].get<double>() / a.json["seconds"].get<double>(), 1, 0.01);
  EXPECT_EQ(predict(request(cell)).json["volume_bytes"], compulsory_of(cell));
  EXPECT_EQ(explain(request(cell), false).json["rewrites"], ordered_json({"compose"}));
}

TEST(Composed, BandwidthDecidesAlsoWhereScheduleHasNoSuchTerm) {
  for (const char* bandwidth : {"bandwidth=yes", "bandwidth=no"}) {
    Request r = request("lstm-cell:batch=4096,hidden=768");
    r.options["stitch"] = {bandwidth};
    const auto found = stitched(r);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->rewrites, Names{"compose"}) << bandwidth;
    // A schedule is of the composition.
    r.options["stitch"].push_back("schedule=3");
    const auto third = stitched(r);
    ASSERT_TRUE(third.ok());
    EXPECT_EQ(third->rewrites, Names{"compose"});
  }
}

/// Three operators would look the rows up again each: on an H200 95 us instead of 38.
TEST(Composed, LookingUpAgainHasItsPrice) {
  for (const char* bandwidth : {"bandwidth=yes", "bandwidth=no"}) {
    Request r = request("attention-unit:batch=2560,items=100,width=64");
    r.options["stitch"] = {bandwidth};
    const auto found = stitched(r);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->rewrites, Names{}) << bandwidth;
  }
}

/// The tile of an operator that reads x at two places is a box around both.
TEST(Composed, OperatorsReadATensorAtOnePlace) {
  const auto planned = [](const std::string& reader) {
    std::vector<Names> rewrites;
    const Workload w = workload_from_yaml(
        "name: t\ndtype: f32\nloops: {i: 8, j: 4}\noperators:\n  - 'p[i] = x[i] * k[i]'\n" + reader,
        "t");
    for (const auto& c : fusionstitching::compositions(w)) rewrites.push_back(c.rewrites);
    return rewrites;
  };
  EXPECT_EQ(planned("  - 'y[j] = p[j] + z[j]'\n  - 'u[j] = p[j+4]'\n"),
            std::vector<Names>{{"compose"}});
  EXPECT_TRUE(planned("  - 'y[j] = p[j] * p[j+4]'\n").empty());
  EXPECT_TRUE(planned("  - 'y[j] = p[j] * x[j+4]'\n").empty());
}

TEST(Composed, BytesOfSlicesAddUpAndOverlapsDoNot) {
  const auto bytes = [](const std::string& operators) {
    const Workload w = workload_from_yaml(
        "name: t\ndtype: f32\nloops: {i: 4, j: 3}\ntensors: {x: [9, 5]}\noperators:\n" + operators,
        "t");
    std::vector<OpId> all;
    for (std::size_t o = 0; o < w.operators().size(); ++o) all.emplace_back(o);
    return bytes_read(w, *w.find_tensor("x"), all).value;
  };
  EXPECT_EQ(bytes("  - 'y[i,j] = x[i,j] + x[i+4,j]'\n"), 4 * 24);
  EXPECT_EQ(bytes("  - 'y[i,j] = x[i,j]'\n  - 'z[i,j] = x[i,j]'\n"), 4 * 12);
  EXPECT_EQ(bytes("  - 'y[i,j] = x[i,j] + x[i+1,j+1] * x[i,j]'\n"), 4 * (12 + 12 - 6));
  EXPECT_EQ(bytes("  - 'y[i,j] = x[i,j] + x[i,j+1] + x[i,j+2]'\n"), 4 * 20);
  EXPECT_EQ(bytes("  - 'y[i,j] = x[i-1,j] + x[i+6,j]'\n"), 4 * (9 + 9));
}

/// Rows and columns that vectors divide and that they do not.
class ComposedCell : public ::testing::TestWithParam<const char*> {};

TEST_P(ComposedCell, IsVerifiedOnBothTargets) {
  for (const char* target : {"cpu", "cuda-emulated"}) {
    const Answer a = run(request(GetParam()), {.target = target, .seconds = 0.0});
    ASSERT_TRUE(a.ok()) << a.json.dump(1);
    EXPECT_TRUE(a.json.value("verified", false));
    EXPECT_EQ(a.json["rewrites"], ordered_json({"compose"}));
    EXPECT_EQ(a.json.value("faults", 0), 0) << a.json.dump(1);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ComposedCell,
                         ::testing::Values("lstm-cell:batch=6,hidden=20",
                                           "lstm-cell:batch=5,hidden=29",
                                           "lstm-cell:batch=3,hidden=6"));

/// Fusionstitching does not compose this one by itself.
TEST(Composed, IsVerifiedOnBothTargetsWhereAskedFor) {
  Request asked = request("lstm-cell:batch=5,hidden=37");
  asked.rewrites = {"compose"};
  for (const char* target : {"cpu", "cuda-emulated"}) {
    const Answer a = run(asked, {.target = target, .seconds = 0.0});
    ASSERT_TRUE(a.ok()) << a.json.dump(1);
    EXPECT_TRUE(a.json.value("verified", false));
    EXPECT_EQ(a.json["rewrites"], ordered_json({"compose"}));
    EXPECT_EQ(a.json.value("faults", 0), 0) << a.json.dump(1);
  }
}

TEST(Composed, APlanFileSaysAllThatIsNeeded) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "plan.yaml").string();
  const Answer made = plan(request("lstm-cell:batch=6,hidden=20"), path);
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(text_of(path), HasSubstr("rewrites: [compose]"));
  Request from_file;
  from_file.subject = path;
  const Scheduled on = schedule_of(from_file);
  ASSERT_TRUE(on.schedule) << on.refusal.json.dump();
  EXPECT_EQ(on.setting.rewrites, Names{"compose"});
  EXPECT_FALSE(on.setting.workload->find_tensor("pre"));
  const Answer ran = run(from_file, {.target = "cuda-emulated", .seconds = 0.0});
  EXPECT_TRUE(ran.ok() && ran.json.value("verified", false)) << ran.json.dump(1);
  // The same bytes, whoever counts them.
  Request by_exact = from_file;
  by_exact.model = "exact";
  EXPECT_TRUE(explain(from_file, true).ok());
  EXPECT_TRUE(predict(from_file).ok());
  const Answer walked = simulate(from_file, {});
  EXPECT_TRUE(walked.ok()) << walked.json.dump(1);
  EXPECT_EQ(walked.json["rewrites"], ordered_json({"compose"}));
  // A plan is of one workload.
  from_file.rewrites = {"compose-all"};
  EXPECT_THAT(error_of(from_file), HasSubstr("is a plan already"));
  std::ofstream(path) << "workload: \"lstm-cell:batch=6,hidden=20\"\nrewrites: [componse]\n"
                         "machine: h200\nkernels: [{tree: \"( C.i )\"}]\n";
  from_file.rewrites.clear();
  EXPECT_THAT(error_of(from_file), HasSubstr("plan.yaml: rewrites"));
  std::ofstream(path) << "workload: \"softmax:rows=4,cols=4\"\nrewrites: [compose]\n"
                         "machine: h200\nkernels: [{tree: \"( C.sum )\"}]\n";
  EXPECT_THAT(error_of(from_file), HasSubstr("does not apply"));
}

TEST(Composed, TreesInPlaceAreOfTheRewrittenWorkload) {
  Request r = request("lstm-cell:batch=6,hidden=20");
  r.model.reset();
  r.rewrites = {"compose"};
  r.tree =
      "b/2@grid b/1@warp j/4@lane ( C.input C.forget C.cell C.out C.kept C.state C.bent C.hidden )";
  const Answer a = run(r, {.target = "cuda-emulated", .seconds = 0.0});
  EXPECT_TRUE(a.ok() && a.json.value("verified", false)) << a.json.dump(1);
  r.rewrites.clear();  // pre is computed nowhere
  EXPECT_THROW(run(r, {.target = "cuda-emulated", .seconds = 0.0}), InputError);
}

/// The reference is of the workload as it was named: what a wrong rewrite computes is not verified.
TEST(Composed, IsVerifiedAgainstTheWorkloadAsNamed) {
  Request r = request("lstm-cell:batch=4,hidden=8");
  r.model.reset();
  r.rewrites = {"compose"};
  r.tree = "b j ( C.input C.forget C.cell C.out C.kept C.state C.bent C.hidden )";
  r.tiles = "b=2,j=4";
  Setting s = setting_of(r);
  const Reference named = reference_of(*s.original, 7), own = reference_of(s, 7);
  for (const char* tensor : {"xw", "hw", "bias", "c0"})
    EXPECT_EQ(own.inputs[s.workload->find_tensor(tensor)->index()],
              named.inputs[s.original->find_tensor(tensor)->index()]);
  for (const char* tensor : {"c1", "h1"})
    EXPECT_EQ(own.outputs[s.workload->find_tensor(tensor)->index()],
              named.outputs[s.original->find_tensor(tensor)->index()]);
  // A slice off by one, as a wrong rewrite might have it.
  WorkloadSpec wrong = s.workload->spec();
  for (Operator& op : wrong.operators)
    if (op.name == "forget") --op.inputs[0].index[1].offset;
  const auto kernel_of = [&](const std::shared_ptr<const Workload>& w) {
    Setting with = s;
    with.workload = w;
    const auto schedule = resolve(*plan_in_place(r, with), w, s.machine);
    TW_CHECK(schedule.ok(), schedule.reason());
    auto source = cpu::emit(*schedule, {});
    TW_CHECK(source.ok(), source.reason());
    auto built = cpu::build(*source);
    TW_CHECK(built.ok(), built.reason());
    return verify(std::make_unique<cpu::LoadedKernel>(std::move(built).value(), *w), *w,
                  reference_of(with, 7));
  };
  EXPECT_TRUE(kernel_of(s.workload).kernel);
  EXPECT_FALSE(kernel_of(std::make_shared<const Workload>(Workload::create(wrong))).kernel);
}

TEST(Composed, ComparesAndWitnessesCountAlike) {
  const Answer a = compare(request("lstm-cell:batch=6,hidden=20"), "fusionstitching,xla-rule");
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  const ordered_json &own = a.json["plans"][0], &xla = a.json["plans"][1];
  EXPECT_EQ(own["rewrites"], ordered_json({"compose"}));
  EXPECT_FALSE(xla.contains("rewrites"));
  EXPECT_EQ(own["exact_bytes"], own["simulated_bytes"]) << own.dump(1);
  EXPECT_LT(own["exact_bytes"].get<std::int64_t>(), xla["exact_bytes"].get<std::int64_t>());
  for (const ordered_json& price : own["prices"]) EXPECT_TRUE(price.contains("volume_bytes"));
}

}  // namespace
}  // namespace tilewright::harness
