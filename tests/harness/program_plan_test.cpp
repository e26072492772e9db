// Networks as programs: parts, kernels shared by what differs in names alone, predicted seconds,
// the arena, and what kernels are made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "core/machine/machine.h"
#include "core/plan/names.h"
#include "core/workload/cut.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "harness/layers.h"
#include "harness/pipeline.h"
#include "harness/program.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::harness {
namespace {

constexpr double kUs = 1e-6;

/// Two launches of one kernel by the same weights, and one that brings more than the cache holds.
TEST(Predictions, ALaunchFindsWhatTheOnesBeforeHaveLeft) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: steps\nloops: {i: 256, j: 256, k: 4096}\noperators:\n  - \"a[i] += W[i,j] * x[j]\"\n"
      "  - \"b[i] += W[i,j] * a[j]\"\n  - \"c[i] += V[i,k] * y[k]\"\n",
      "test"));
  Program program{.workload = w};
  const auto add = [&](std::size_t op, bool another) {
    const auto part = std::make_shared<const Workload>(subgraph(*w, std::array{OpId(op)}));
    if (another)
      program.kernels.push_back({.workload = part, .shared = {.predicted = 10, .again = 2}});
    Launch l{.kernel = program.kernels.size() - 1, .operators = {OpId(op)}};
    for (const Tensor& t : part->tensors()) l.tensors.push_back(*w->find_tensor(t.name));
    program.launches.push_back(std::move(l));
  };
  add(0, true), add(1, false), add(2, true);
  Machine machine = named_machine("epyc-zen5");  // 1 MiB a core
  const auto seconds = predicted_seconds(program, machine);
  ASSERT_EQ(seconds.size(), 3u);
  EXPECT_GT(*seconds[0], 9.9);  // V came between
  EXPECT_NEAR(*seconds[1], 2, 0.1);
  EXPECT_GT(*seconds[2], 9.9);
}

/// What two threads have written along rows comes from the other's cache as far as a thread reads
/// rows that are not its own. To one thread alone half of it does; where nobody shares, nothing.
TEST(Predictions, WhatAnotherCoreHasWrittenIsTakenOver) {
  const auto seconds = [&](const std::string& second, double first_alone, double second_alone) {
    const bool sums = second.find('k') != std::string::npos;
    const auto w = std::make_shared<const Workload>(workload_from_yaml(
        std::string("name: steps\nloops: {i: 256, j: 256") + (sums ? ", k: 256" : "") +
            "}\noperators:\n  - \"a: a[i,j] = x[i,j] + 1\"\n  - \"b: " + second + "\"\n",
        "test"));
    Program program{.workload = w, .threads = 2};
    for (std::size_t op = 0; op < 2; ++op) {
      const auto part = std::make_shared<const Workload>(subgraph(*w, std::array{OpId(op)}));
      const double shared = op == 0 ? 50 : 5, alone = op == 0 ? first_alone : second_alone;
      const std::string depth = sums && op == 1 ? "k/256 " : "";
      program.kernels.push_back(
          {.workload = part,
           .plan = {.tree = parse_tree("i/1 j/256 " + depth + (op == 0 ? "( C.a )" : "( C.b )"))},
           .shared = {.predicted = shared * kUs, .again = shared * kUs},
           .alone = {.predicted = alone * kUs, .again = alone * kUs}});
      Launch l{.kernel = op, .operators = {OpId(op)}};
      for (const Tensor& t : part->tensors()) l.tensors.push_back(*w->find_tensor(t.name));
      program.launches.push_back(std::move(l));
    }
    Machine machine = named_machine("epyc-zen5");  // 1 MiB a core
    machine.units.front().clock_hz = 4e9;
    machine.units.front().cycles["take_over"] = 20;
    return predicted_seconds(program, machine);
  };
  const double half = 256 * 256 * 4 / 2 / 64 * 20 / 4e9;  // 10 us
  const double call = 250 / 4e9;  // of a launch whose kernel ran just before
  const std::string rows = "b[i,j] = a[i,j] * 2", columns = "b[i,j] = a[j,i] * 2",
                    all = "b[i,j] += v[i,k] * a[k,j]";
  EXPECT_NEAR(*seconds(rows, 90, 9)[0], 50 * kUs + call, 1e-9);
  EXPECT_NEAR(*seconds(rows, 90, 9)[1], 5 * kUs + call, 1e-9);
  EXPECT_NEAR(*seconds(columns, 90, 90)[1], 5 * kUs + call + half / 2, 1e-9);
  EXPECT_NEAR(*seconds(all, 90, 90)[1], 5 * kUs + call + half, 1e-9);
  // Alone the second takes 4 us, but has half of a to take over, and b, where it was in parts.
  EXPECT_NEAR(*seconds(columns, 90, 4)[1], 5 * kUs + call + half / 2, 1e-9);
  EXPECT_NEAR(*seconds(columns, 40, 4)[1], 4 * kUs + call, 1e-9);
  EXPECT_NEAR(*seconds(columns, 40, 4)[0], 40 * kUs + call, 1e-9);
}

class CodeOf final : public codegen::Emitted {
 public:
  explicit CodeOf(std::int64_t bytes) : bytes_(bytes) {}
  std::int64_t code_bytes() const override { return bytes_; }
  void describe(nlohmann::ordered_json&) const override {}
  std::vector<codegen::File> files() const override { return {}; }
  std::optional<Reason> cannot_run() const override { return std::nullopt; }
  std::optional<Reason> build(bool, nlohmann::ordered_json&) override { return std::nullopt; }
  Result<std::unique_ptr<codegen::TargetKernel>> load(const std::shared_ptr<codegen::Device>&,
                                                      nlohmann::ordered_json&) override {
    return Reason{"no kernel"};
  }

 private:
  std::int64_t bytes_;
};

/// So many kernels in turn, each one operator of 16 points and of so many bytes of code.
Program launches_in_turn(std::size_t kernels, std::int64_t code_bytes, double predicted) {
  std::string text = "name: many\nloops: {i: 16}\noperators:\n";
  for (std::size_t i = 0; i < kernels; ++i)
    text += "  - \"t" + std::to_string(i) + "[i] = x[i] + " + std::to_string(i) + "\"\n";
  const auto w = std::make_shared<const Workload>(workload_from_yaml(text, "test"));
  Program program{.workload = w};
  for (std::size_t op = 0; op < kernels; ++op) {
    const auto part = std::make_shared<const Workload>(subgraph(*w, std::array{OpId(op)}));
    program.kernels.push_back({.workload = part,
                               .emitted = std::make_shared<CodeOf>(code_bytes),
                               .shared = {.predicted = predicted, .again = predicted}});
    Launch l{.kernel = op, .operators = {OpId(op)}};
    for (const Tensor& t : part->tensors()) l.tensors.push_back(*w->find_tensor(t.name));
    program.launches.push_back(std::move(l));
  }
  return program;
}

/// A launch is called; its code comes from further away where many other kernels have run since.
/// How long each takes the machine's file says.
TEST(Predictions, ALaunchBegins) {
  const auto first_of = [](std::size_t kernels, const std::map<std::string, double>& cycles = {}) {
    const Program program = launches_in_turn(kernels, 0, 0);
    Machine machine = named_machine("epyc-zen5");
    machine.units.front().clock_hz = 4e9;
    for (const auto& [key, number] : cycles) machine.units.front().cycles[key] = number;
    return *predicted_seconds(program, machine)[0];
  };
  EXPECT_GT(first_of(4), 0);
  EXPECT_DOUBLE_EQ(first_of(4), first_of(8));
  EXPECT_GT(first_of(60), 2 * first_of(8));
  const std::map<std::string, double> measured = {{"launch", 40}, {"launch_code", 1000}};
  EXPECT_NEAR(first_of(8, measured) * 4e9, 40, 1e-6);
  EXPECT_NEAR(first_of(60, measured) * 4e9, 1040, 1e-6);
}

/// A GPU's launch waits for code that others have put out of the multiprocessors' caches: of 2 to 8
/// KiB a kernel. In runs of its own it finds it there.
TEST(Predictions, AGpusLaunchWaitsForItsCode) {
  const auto last_of = [](std::size_t kernels, std::int64_t kib, bool alone = false) {
    const Program program = launches_in_turn(kernels, kib << 10, 3 * kUs);
    Machine machine = named_machine("h200");
    machine.units.front().cycles["launch_code"] = 100;
    return (*predicted_seconds(program, machine, alone).back() - 3 * kUs) *
           machine.units.front().clock_hz;
  };
  EXPECT_NEAR(last_of(8, 4), 0, 1e-6);  // 32 KiB stay
  EXPECT_NEAR(last_of(9, 4), 200, 1e-6);
  EXPECT_NEAR(last_of(9, 4, true), 0, 1e-6);
  EXPECT_NEAR(last_of(9, 20), 600, 1e-6);
  EXPECT_NEAR(last_of(40, 2), 0, 1e-6);
  EXPECT_NEAR(last_of(1, 20), 0, 1e-6);
}

/// Two slices of one tensor, each read twice: the second time from the cache, the first one from
/// further away though the tensor's other slice was read just before.
TEST(Predictions, PiecesOfATensorAreInACacheEachAlone) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: pieces\nloops: {i: 256, j: 256, k: 4096}\ntensors: {W: [2, 256, 256]}\noperators:\n"
      "  - \"a[i] += W[0,i,j] * x[j]\"\n  - \"b[i] += W[0,i,j] * a[j]\"\n"
      "  - \"c[i] += W[1,i,j] * b[j]\"\n  - \"d[i] += V[i,k] * y[k]\"\n",
      "test"));
  Program program{.workload = w};
  for (std::size_t op = 0; op < 4; ++op) {
    const auto part = std::make_shared<const Workload>(subgraph(*w, std::array{OpId(op)}));
    program.kernels.push_back({.workload = part, .shared = {.predicted = 10, .again = 2}});
    Launch l{.kernel = op, .operators = {OpId(op)}};
    for (const Tensor& t : part->tensors()) l.tensors.push_back(*w->find_tensor(t.name));
    program.launches.push_back(std::move(l));
  }
  const auto seconds = predicted_seconds(program, named_machine("epyc-zen5"));
  EXPECT_GT(*seconds[0], 9.9);
  EXPECT_NEAR(*seconds[1], 2, 0.1);
  EXPECT_GT(*seconds[2], 9.9);
}

TEST(Arena, WhatIsNeededTogetherDoesNotOverlap) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Lifetime> buffers(1 + random() % 40);
    std::map<std::size_t, std::int64_t> live;
    std::int64_t all = 0, most = 0;
    for (Lifetime& b : buffers) {
      b.bytes = static_cast<std::int64_t>(random() % 5000);
      b.first = random() % 30;
      b.last = b.first + random() % 6;
      all += (b.bytes + 63) / 64 * 64;
      for (std::size_t step = b.first; step <= b.last; ++step)
        most = std::max(most, live[step] += b.bytes);
    }
    const Arena arena = placed(buffers);
    ASSERT_EQ(arena.offsets.size(), buffers.size());
    EXPECT_LE(arena.bytes, all) << "seed " << seed;
    EXPECT_GE(arena.bytes, most) << "seed " << seed;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(arena.offsets[i] % 64, 0);
      EXPECT_LE(arena.offsets[i] + buffers[i].bytes, arena.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        if (buffers[i].first > buffers[j].last || buffers[j].first > buffers[i].last) continue;
        EXPECT_TRUE(arena.offsets[i] + buffers[i].bytes <= arena.offsets[j] ||
                    arena.offsets[j] + buffers[j].bytes <= arena.offsets[i])
            << "seed " << seed << ", buffers " << i << " and " << j;
      }
    }
  }
}

TEST(Arena, AChainTakesTheRoomOfTwo) {
  std::vector<Lifetime> chain;
  for (std::size_t i = 0; i < 10; ++i) chain.push_back({.bytes = 640, .first = i, .last = i + 1});
  EXPECT_EQ(placed(chain).bytes, 2 * 640);
}

std::string random_graph(std::uint64_t seed) {
  return "random-graph:vertices=14,rows=5,cols=7,seed=" + std::to_string(seed);
}

TEST(Cut, FollowedPartsAreEveryOperatorOnceAndWaitForNoOther) {
  for (const std::string& name :
       {random_graph(1), random_graph(2), random_graph(3), random_graph(4), random_graph(5),
        std::string("transformer-block:tokens=8"), std::string("shufflenet-v2:blocks=2"),
        std::string("bert:layers=2,seq=16,hidden=32,heads=2,ffn=64,standard=1")}) {
    const Workload w = named_workload(name);
    std::vector<int> part_of(w.operators().size(), -1);
    const std::vector<Part> parts = cut_followed(w);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      EXPECT_FALSE(no_subgraph(w, parts[p])) << name;
      EXPECT_LE(parts[p].size(), 12u);
      for (OpId op : parts[p]) {
        EXPECT_EQ(part_of[op.index()], -1) << name;
        part_of[op.index()] = static_cast<int>(p);
      }
    }
    // Parts that have all they read are taken away until none is left.
    std::vector<bool> done(parts.size(), false);
    std::size_t left = parts.size();
    for (bool any = true; any && left > 0;) {
      any = false;
      for (std::size_t p = 0; p < parts.size(); ++p) {
        if (done[p]) continue;
        bool ready = true;
        for (OpId op : parts[p])
          for (const Access& a : w.op(op).inputs)
            if (const OpId from = w.producer(a.tensor); from.valid()) {
              const auto at = static_cast<std::size_t>(part_of[from.index()]);
              ready = ready && (at == p || done[at]);
            }
        if (ready) done[p] = any = true, --left;
      }
    }
    EXPECT_EQ(left, 0u) << name;
  }
}

TEST(Cut, AContractionTakesWhatFollowsItAndNoReduction) {
  const Workload w = named_workload("bert:layers=1,seq=16,hidden=32,heads=2,ffn=64,standard=1");
  int attentions = 0;
  for (const Part& part : cut_followed(w)) {
    int contracts = 0, sums = 0;
    for (OpId op : part) {
      contracts += w.is_contraction(op);
      sums += !w.is_contraction(op) && !w.reduction_loops(op).empty();
    }
    // Attention alone has both: two products, the maxima and the sums of its rows.
    if (contracts > 1)
      EXPECT_TRUE(contracts == 2 && sums == 2 && attentions++ == 0);
    else
      EXPECT_FALSE(contracts > 0 && sums > 0);
  }
  EXPECT_EQ(attentions, 1);
  EXPECT_LT(cut_followed(w).size(), w.operators().size());
}

TEST(Names, EqualPartsAreEqualWithoutNamesAndOthersAreNot) {
  const auto workload = [](const char* a, const char* b, const char* rest) {
    return workload_from_yaml(std::string("name: w\nloops: {") + a + ": 4, " + b +
                                  ": 5}\noperators:\n  - \"op: y_" + a + "[" + a + "," + b +
                                  "] = x[" + a + "," + b + "] " + rest + "\"\n",
                              "test");
  };
  EXPECT_EQ(without_names(workload("i", "j", "* 2")), without_names(workload("r", "s", "* 2")));
  EXPECT_FALSE(without_names(workload("i", "j", "* 2")) ==
               without_names(workload("i", "j", "* 3")));
}

/// Rows and columns of an image are one loop wherever nothing tells them apart, on processors, too:
/// rows of 33 would leave a part of a vector each.
TEST(Program, LoopsThatGoTogetherAreOneOnAProcessor) {
  const TemporaryFolder folder;
  Request request;
  request.subject = folder.write("scaled.yaml",
                                 "name: scaled\nloops: {a: 8, b: 96, i: 33, j: 33}\noperators:\n"
                                 "  - \"t: t[a,b,i,j] = x[a,b,i,j] * s[a,b]\"\n"
                                 "  - \"p: p[a,b] += t[a,b,i,j]\"\noutputs: [t, p]\n");
  request.machine = "epyc-zen5";
  request.target_options["isa"] = {"avx2"};
  const Result<ProgramPlan> plan = program_plan(request, std::nullopt);
  ASSERT_TRUE(plan) << plan.reason();
  const Result<Program> program = program_of(request, *plan, 0);
  ASSERT_TRUE(program) << program.reason();
  for (const ProgramKernel& kernel : program->kernels)
    for (const Loop& loop : kernel.workload->loops())
      EXPECT_NE(loop.extent, 33) << kernel.plan.name;
}

/// What a model chose, and what a person writes, runs as it is: no other planner's kernel stands in
/// its place.
TEST(Program, PlansOfOtherModelsAndGivenPlansRunAsTheyAre) {
  Request request;
  request.subject = "pair";
  request.subject_text =
      "name: pair\nloops: {n: 2, c: 32, k: 48, o: 16, h: 28, w: 28}\noperators:\n"
      "  - \"y: y[n,k,h,w] += x[n,c,h,w] * a[k,c]\"\n"
      "  - \"z: z[n,o,h,w] += y[n,k,h,w] * b[o,k]\"\n";
  request.machine = "epyc-zen5", request.target = "cpu";
  request.target_options["isa"] = {"avx2"};
  const auto loops_of = [](const Request& r, std::size_t tune) {
    const Result<ProgramPlan> plan = program_plan(r, std::nullopt);
    EXPECT_TRUE(plan);
    const Result<Program> program = program_of(r, *plan, tune);
    EXPECT_TRUE(program);
    EXPECT_EQ(program->launches.size(), plan->plan.kernels.size());
    std::vector<std::size_t> loops;
    for (const Launch& launch : program->launches)
      loops.push_back(program->kernels[launch.kernel].workload->loops().size());
    return loops;
  };
  EXPECT_LT(loops_of(request, 0).front(), 6u) << "the planner has rows and columns as one loop";
  Request chimera = request;
  chimera.model = "chimera";
  EXPECT_EQ(loops_of(chimera, 0), std::vector<std::size_t>{6});
  EXPECT_EQ(loops_of(chimera, 2), std::vector<std::size_t>{6});
  Request given = request;
  given.tree = "n/1 h/4 ( k/16 c/8 w/28 ( C.y ) o/16 k/16 ( C.z ) )";
  EXPECT_EQ(loops_of(given, 0), std::vector<std::size_t>{6});
}

/// A launch on Hopper loads what the one before it does not write while that still runs. Behind
/// another launch the same operators are another kernel; behind the same one they are the same.
TEST(Program, LaunchesBeginWhileTheOneBeforeRuns) {
  const TemporaryFolder folder;
  Request request;
  request.subject = folder.write(
      "scaled.yaml",
      "name: scaled\nloops: {r: 40, c: 64}\noperators:\n  - s: s[r] += x[r,c]\n"
      "  - y: y[r,c] = s[r] * w[c]\n  - t: t[r] += y[r,c]\n  - z: z[r,c] = t[r] * w[c]\n"
      "  - u: u[r,c] = s[r] * v[c]\noutputs: [z, u]\n");
  request.machine = "h200";
  request.target = "cuda-emulated";
  request.target_options["arch"] = {"sm_90a"};
  const Result<ProgramPlan> plan = program_plan(request, "each");
  ASSERT_TRUE(plan) << plan.reason();
  Result<Program> made = program_of(request, *plan);
  ASSERT_TRUE(made) << made.reason();
  Program& program = made.value();
  std::map<std::string, std::size_t> kernel;
  std::map<std::string, bool> early;
  std::map<std::string, std::string> text;
  for (const std::size_t i : run_order(program).launches) {
    const Launch& l = program.launches[i];
    const std::string name = program.workload->op(l.operators.front()).name;
    const codegen::Emitted& emitted = *program.kernels[l.kernel].emitted;
    nlohmann::ordered_json json;
    emitted.describe(json);
    kernel[name] = l.kernel;
    early[name] = json["launches"].front().value("early", false);
    text[name] = emitted.files().front().text;
  }
  EXPECT_FALSE(early["s"]) << "what runs before a run is not known";
  for (const char* const name : {"y", "t", "z", "u"}) EXPECT_TRUE(early[name]) << name;
  EXPECT_EQ(kernel["y"], kernel["z"]);
  EXPECT_NE(kernel["s"], kernel["t"]);
  const auto waits = text["y"].find("launches_ended");
  EXPECT_LT(text["y"].find("load_ahead"), waits) << text["y"];
  EXPECT_NE(text["u"], text["y"]) << "the launch before it writes none of its inputs";

  ASSERT_FALSE(build_kernels(program, target_named(request.target), false, {}));
  const auto device = open_device(target_named(request.target));
  ASSERT_TRUE(device) << device.reason();
  const TensorValues values = evaluate(*program.workload, random_inputs(*program.workload, 3));
  double worst = 0;
  const auto wrong = verify_kernels(program, *device, values, 3, {}, worst);
  EXPECT_FALSE(wrong) << wrong->text;
}

TEST(Layers, RepeatedLayersAreFolded) {
  Request request;
  request.subject = "bert:layers=3,seq=16,hidden=32,heads=2,ffn=64";
  request.machine = "h200";
  const Answer answer = explain_layers(request, "followed", "souffle");
  ASSERT_TRUE(answer.ok());
  std::size_t operators = 0;
  for (const auto& layer : answer.json["layers"]) {
    EXPECT_EQ(layer["count"].get<std::size_t>() % 3, 0u);
    operators += layer["count"].get<std::size_t>() * layer["operators"].size();
  }
  EXPECT_EQ(operators, answer.json["operators"]);
}

/// Of the part with merged loops the best plan is of copies, which are no operators of the part: it
/// is planned as it is written.
TEST(Programs, APartIsMergedWhereItsBestPlanIsOfOtherOperators) {
  Request request;
  request.subject = "apart",
  request.subject_text =
      "name: apart\nloops: {i: 5, j: 13, e: 16, f: 50, n: 128}\noperators:\n"
      "  - 'y: y[i,j,n] += X[e,i,j,f] * W[n,f,e]'\n";
  request.machine = "xeon-gold-6240", request.target = "cpu";
  ASSERT_FALSE(program_plan(request, "followed")->setting.rewrites.empty());
  Request as_written = request;
  as_written.options["as-written"] = {"on"};
  const Result<ProgramPlan> plan = program_plan(as_written, "followed");
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan->setting.rewrites.empty());
  const Result<Program> program = program_of(request, *plan);
  ASSERT_TRUE(program.ok());
  ASSERT_EQ(program->kernels.size(), 1U);
  EXPECT_EQ(program->kernels.front().workload->operators().front().loops.size(), 4U);
}

/// A product over several loops of patches, and a transposed convolution: rows are written first
/// where that is predicted to be faster, and the product is one of plain matrices. A small one
/// stays as it is.
TEST(Programs, WhatProductsReadInPatchesIsWrittenRowByRowFirst) {
  const auto planned = [&](const std::string& text) {
    Request request;
    request.subject = "patches", request.subject_text = "name: patches\ndtype: f16\n" + text;
    request.machine = "h200", request.target = "cuda";
    const Result<ProgramPlan> plan = program_plan(request, std::nullopt);
    EXPECT_TRUE(plan.ok());
    Result<Program> program = program_of(request, *plan);
    EXPECT_TRUE(program.ok());
    return std::pair(plan->setting.rewrites, std::move(program).value());
  };
  for (const char* text : {"loops: {b: 2, p: 4, q: 4, n: 128, c: 3, r: 16, s: 16}\noperators:\n"
                           "  - 'y: y[b,p,q,n] += X[b,c,p,r,q,s] * W[n,c,r,s]'\n"
                           "  - 'z: z[b,p,q,n] = y[b,p,q,n] + e[n]'\n",
                           "loops: {n: 206, p: 39, a: 2, q: 39, b: 2, c: 8, k: 2, l: 2}\n"
                           "tensors: {X: [c, 38, 38], W: [c, n, 4, 4]}\noperators:\n"
                           "  - 'y: y[n,p,a,q,b] += X[c,p-k,q-l] * W[c,n,a+2*k,b+2*l]'\n"
                           "  - 'z: z[n,p,a,q,b] = relu(y[n,p,a,q,b])'\n"}) {
    const auto [rewrites, program] = planned(text);
    ASSERT_EQ(rewrites, std::vector<std::string>{"materialise-patches"}) << text;
    bool one_loop = false;
    for (const ProgramKernel& k : program.kernels)
      for (std::size_t i = 0; i < k.workload->operators().size(); ++i)
        one_loop = one_loop || (k.workload->is_contraction(OpId(i)) &&
                                k.workload->op(OpId(i)).loops.size() == 3);
    EXPECT_TRUE(one_loop) << "the product's rows, columns and depth are a loop each";
  }
  const auto [rewrites, program] = planned(
      "loops: {p: 2, q: 2, n: 16, c: 2, r: 2, s: 2}\noperators:\n"
      "  - 'y: y[p,q,n] += X[c,p,r,q,s] * W[n,c,r,s]'\n");
  EXPECT_TRUE(rewrites.empty());
  EXPECT_EQ(program.launches.size(), 1U);
}

}  // namespace
}  // namespace tilewright::harness
