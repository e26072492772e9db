// Do stitched plans, loops bound to warps, lanes and threads, compute what the reference evaluator
// computes: on a processor, where units run one after the other, and as CUDA kernels executed on
// the CPU, which find races and accesses out of bounds?
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <string>

#include "core/base/toolchain.h"
#include "core/plan/file.h"
#include "harness/ask.h"
#include "harness/verbs.h"
#include "tests/support/small_graphs.h"

namespace tilewright::harness {
namespace {

class StitchedOnCpu : public ::testing::TestWithParam<std::string> {};

TEST_P(StitchedOnCpu, IsVerified) {
  Request r;
  r.subject = GetParam();
  r.machine = "h200";
  r.model = "fusionstitching";
  const Answer a = run(r, {.seconds = 0.0});
  EXPECT_TRUE(a.ok()) << a.json.dump(1);
  EXPECT_TRUE(a.json.value("verified", false));
}

INSTANTIATE_TEST_SUITE_P(Graphs, StitchedOnCpu, ::testing::ValuesIn(testing::kSmallGraphs));
INSTANTIATE_TEST_SUITE_P(Sizes, StitchedOnCpu,
                         ::testing::Values("layernorm:rows=5,cols=7", "softmax:rows=3,cols=131",
                                           "layernorm-backward:rows=37,cols=66"));

class StitchedEmulated : public ::testing::TestWithParam<std::string> {};

/// Runs the model's plan under emulation: right, and nothing found in it.
void emulate(const std::string& subject, Answer& a, const std::optional<std::string>& tree = {}) {
  SCOPED_TRACE(subject);
  Request r;
  r.subject = subject;
  r.machine = "h200";
  r.tree = tree;
  if (!tree) r.model = "fusionstitching";
  a = run(r, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  EXPECT_TRUE(a.json.value("verified", false));
  EXPECT_EQ(a.json.at("faults"), 0) << a.json["findings"].dump(1);
}

TEST_P(StitchedEmulated, IsVerifiedWithoutFaults) {
  Answer a;
  emulate(GetParam(), a);
}

INSTANTIATE_TEST_SUITE_P(Graphs, StitchedEmulated, ::testing::ValuesIn(testing::kSmallGraphs));

/// Sums along rows beside sums within a row: one kernel, whose blocks add their parts.
TEST(StitchedEmulated, SumsOfBothKindsAreOneKernel) {
  const char* const kFiles[] = {
      // a bias gradient beside a normalisation's, of rows of two loops
      "name: batches\nloops: {b: 3, r: 13, c: 50}\noperators:\n  - s: s[b,r] += x[b,r,c] * g[c]\n"
      "  - y: y[b,r,c] = x[b,r,c] - s[b,r] / 50\n  - dg: dg[c] += x[b,r,c] * y[b,r,c]\n"
      "  - db: db[c] += x[b,r,c]\n",
      // of which sums go along one
      "name: groups\nloops: {b: 3, r: 13, c: 36}\noperators:\n  - s: s[b,r] += x[b,r,c]\n"
      "  - y: y[b,r,c] = x[b,r,c] - s[b,r]\n  - dg: dg[b,c] += y[b,r,c]\n",
      // statistics of a batch's columns and of its rows; all of it
      "name: both\nloops: {r: 37, c: 50}\noperators:\n  - y: y[r,c] = x[r,c] * m[r,c]\n"
      "  - a: a[r] += y[r,c]\n  - b: b[c] += y[r,c]\n  - q: q[c] += y[r,c] * y[r,c]\n",
      "name: all\nloops: {r: 37, c: 50}\noperators:\n  - y: y[r,c] = x[r,c] - t[r,c]\n"
      "  - loss: loss[] += y[r,c] * y[r,c]\n"};
  std::vector<std::string> subjects = {"layernorm-backward:rows=37,cols=50",
                                       "layernorm-backward:rows=130,cols=768",
                                       "layernorm-backward:rows=37,cols=50,dtype=f64"};
  for (const char* text : kFiles) {
    const std::string path =
        ::testing::TempDir() + "columns" + std::to_string(subjects.size()) + ".yaml";
    std::ofstream(path) << text;
    subjects.push_back(path);
  }
  for (const std::string& subject : subjects)
    for (const char* target : {"cuda-emulated", "cpu"}) {
      SCOPED_TRACE(subject + " on " + target);
      Request r;
      r.subject = subject;
      r.machine = "h200";
      r.model = "fusionstitching";
      r.options["stitch"] = {"bandwidth=yes"};
      const Answer a = run(r, {.target = target, .seconds = 0.0});
      ASSERT_TRUE(a.ok()) << a.json.dump(1);
      EXPECT_TRUE(a.json.value("verified", false));
      if (std::string(target) == "cpu") continue;
      EXPECT_EQ(a.json.at("faults"), 0) << a.json["findings"].dump(1);
      // what is zeroed, and the kernel
      EXPECT_EQ(a.json.at("launches").size(), 2u);
    }
}

/// Sums of everything, whichever blocks have them, and windows that each thread reads for itself:
/// of sizes that neither widths of access nor blocks divide, in every type.
TEST(StitchedEmulated, SumsOfAllPointsAndWindowsAreOneKernel) {
  const char* const kFiles[] = {
      "loops: {i: 41003}\noperators:\n  - y: y[i] = x[i] * z[i]\n  - a: a[] += y[i]\n"
      "  - b: b[] max= x[i]\n  - c: c[] min= z[i]\n",
      "loops: {i: 40960}\noperators:\n  - a: a[] += x[i]\n",
      "loops: {r: 2049, c: 13}\noperators:\n  - y: y[r,c] = x[r,c] * x[r,c]\n  - a: a[] += "
      "y[r,c]\n",
      "loops: {n: 3, i: 29, j: 45, a: 3, b: 5}\ntensors: {x: [n, i, j]}\noperators:\n"
      "  - s: s[n,i,j] += x[n,i+a-1,j+b-2]\n  - y: y[n,i,j] = x[n,i,j] - s[n,i,j] / 15\n",
      "loops: {n: 3, i: 14, j: 14, a: 3, b: 3}\ntensors: {x: [n, 29, 29]}\noperators:\n"
      "  - s: s[n,i,j] max= x[n,2*i+a,2*j+b]\n"};
  for (const char* dtype : {"f32", "f64", "f16"})
    for (const char* text : kFiles) {
      // Sums of 16 bits are not added by blocks: a cast is asked for first.
      if (std::string(dtype) == "f16" && std::string(text).find("a[] +=") != std::string::npos)
        continue;
      const std::string path = ::testing::TempDir() + "points.yaml";
      std::ofstream(path) << "name: points\ndtype: " << dtype << "\n" << text;
      Answer a;
      // The four operators in f64 are two kernels by price (one takes 0.8 of their time).
      std::optional<std::string> tree;
      if (text == kFiles[0] && std::string(dtype) == "f64")
        tree =
            "i/8192@grid ( i/256@warp i/1@lane ( C.y C.a C.b C.c ) S.a!atomic S.b!atomic "
            "S.c!atomic )";
      ASSERT_NO_FATAL_FAILURE(emulate(path, a, tree)) << text;
      EXPECT_LE(a.json.at("launches").size(), 2u) << text;  // what is zeroed, and the kernel
    }
}

/// With slices and reductions in the middle, and rows that steps do not divide. What the emitter
/// refuses is replaced by the model's next choice, and the answer says so. TILEWRIGHT_CASES and
/// TILEWRIGHT_SEED ask for others.
TEST(StitchedEmulated, DrawnGraphsAreVerified) {
  const auto number = [](const char* name, int standard) {
    const char* text = std::getenv(name);
    return text ? std::atoi(text) : standard;
  };
  const int first = number("TILEWRIGHT_SEED", 11), cases = number("TILEWRIGHT_CASES", 20);
  int replaced = 0;
  for (int seed = first; seed < first + cases; ++seed) {
    const std::string subject =
        "random-graph:vertices=10,rows=22,cols=37,seed=" + std::to_string(seed) +
        (seed % 3 == 0 ? ",indices=1" : "");
    Answer a;
    ASSERT_NO_FATAL_FAILURE(emulate(subject, a));
    if (!a.json.contains("replaced")) continue;
    ++replaced;
    std::cout << subject << ": " << a.json["replaced"].dump() << "\n";
    EXPECT_GE(a.json["replaced"][0]["choice"], 1);
    EXPECT_NE(a.json["notes"].dump().find("the target refuses that one"), std::string::npos);
  }
  EXPECT_LE(replaced, cases / 5);
}

/// Sums over columns that are read again, of sizes that neither widths of access nor blocks divide.
TEST(StitchedEmulated, DrawnColumnsAreOneKernel) {
  std::mt19937_64 random(7);
  const auto pick = [&](int low, int high) {
    return std::to_string(std::uniform_int_distribution<int>(low, high)(random));
  };
  for (int i = 0; i < 12; ++i) {
    const std::string subject = "column-norm:rows=" + pick(33, 400) + ",cols=" + pick(9, 130) +
                                (i % 3 == 2 ? ",dtype=f16" : "");
    Answer a;
    ASSERT_NO_FATAL_FAILURE(emulate(subject, a));
    EXPECT_EQ(a.json.at("launches").size(), 1u) << subject;
    EXPECT_FALSE(a.json.contains("replaced")) << subject << a.json["replaced"].dump();
  }
}

/// Convolutions and running operators: large ones fit a block as they are planned, small ones are
/// right, whatever the stride, the window and the last tile.
TEST(StitchedEmulated, ConvolutionsAndRunningOperatorsAreTakenAsPlanned) {
  for (const char* large :
       {"conv-chain:ic=35,h=64,w=64,oc1=231,oc2=52,st1=2,st2=1,k1=7,k2=3,relu=1,batch=3,dtype=bf16",
        "attention:heads=15,m=15,l=1002,k=64,n=64,online=1,scale=1,dtype=f16",
        "conv1d-chain:h=4092,r=5,s=5"}) {
    const Request r{
        .subject = large, .machine = "h200", .model = "fusionstitching", .target = "cuda"};
    const Answer a = harness::plan(r, std::nullopt);
    ASSERT_TRUE(a.ok()) << large << ": " << a.json.value("reason", std::string());
    EXPECT_FALSE(a.json.contains("replaced")) << large << a.json["replaced"].dump(1);
    EXPECT_FALSE(a.json.contains("asked_again")) << large << a.json["asked_again"].dump(1);
  }
  for (const char* small :
       {"conv-chain:ic=5,h=15,w=14,oc1=17,oc2=16,st1=2,st2=1,k1=3,k2=3,relu=1,batch=2,dtype=bf16",
        "attention:heads=2,m=15,l=102,k=24,n=24,online=1,scale=1,dtype=f16",
        "conv1d-chain:h=76,r=5,s=5,dtype=bf16", "conv1d-chain:h=128,r=1,s=3"}) {
    const Request r{.subject = small, .machine = "h200", .model = "fusionstitching"};
    const Answer a = run(r, {.target = "cuda-emulated", .seconds = 0.0});
    ASSERT_TRUE(a.ok()) << small << ": " << a.json.value("reason", std::string());
    EXPECT_TRUE(a.json.value("verified", false)) << small;
    EXPECT_EQ(a.json.at("faults"), 0) << small << a.json["findings"].dump(1);
  }
}

/// Operators that read a tensor in several places (rotary embedding, stencils), and rows longer
/// than a block's threads: the first choice is taken, so what plan prices is what runs.
TEST(StitchedEmulated, ShiftedReadsAreTakenAsPlanned) {
  const auto rotary = [](int heads, int half, const char* dtype) {
    const std::string i = std::to_string(half);
    return "name: rotary\ndtype: " + std::string(dtype) +
           "\nloops: {t: 5, h: " + std::to_string(heads) + ", i: " + i + "}\ntensors: {X: [t, h, " +
           std::to_string(2 * half) +
           "]}\noperators:\n"
           "  - lo: Y1[t,h,i] = X[t,h,i] * c[t,i] - X[t,h,i+" +
           i +
           "] * s[t,i]\n"
           "  - hi: Y2[t,h,i] = X[t,h,i+" +
           i + "] * c[t,i] + X[t,h,i] * s[t,i]\n";
  };
  const std::string texts[] = {
      rotary(7, 64, "f16"), rotary(32, 40, "f32"), rotary(3, 96, "f16"),
      "name: stencil\nloops: {r: 9, c: 254}\ntensors: {X: [r, 256]}\noperators:\n"
      "  - a: A[r,c] = X[r,c] + X[r,c+1] + X[r,c+2]\n  - b: B[r,c] = A[r,c] * X[r,c+1]\n",
      "name: cross_entropy\nloops: {r: 6, c: 5120}\noperators:\n  - mx: M[r] max= X[r,c]\n"
      "  - sm: S[r] += exp(X[r,c] - M[r])\n  - ls: N[r] += (X[r,c] - M[r] - log(S[r])) * T[r,c]\n"};
  const TemporaryDirectory folder;
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    const std::string subject = (folder.path() / "graph.yaml").string();
    std::ofstream(subject) << text;
    Answer a;
    ASSERT_NO_FATAL_FAILURE(emulate(subject, a));
    EXPECT_FALSE(a.json.contains("replaced")) << a.json["replaced"].dump(1);
    Request r;
    r.subject = subject;
    r.machine = "h200";
    r.model = "fusionstitching";
    r.target = "cuda";
    const Answer planned = plan(r, {});
    ASSERT_TRUE(planned.ok()) << planned.json.dump(1);
    EXPECT_FALSE(planned.json.contains("replaced"));
  }
}

/// Parts of a pack that have different numbers of warps: a warp that has no part in a loop must not
/// read what another warp writes, for the warp's barrier between them is not its own.
TEST(StitchedEmulated, WarpsWithoutAPartReadNothing) {
  const TemporaryDirectory folder;
  Request r;
  r.subject = (folder.path() / "graph.yaml").string();
  r.machine = "a100";
  r.model = "fusionstitching";
  r.options = {{"most-operators", {"31"}}, {"compose", {"no"}}};
  std::ofstream(r.subject)
      << "name: pack\ndtype: f32\nloops: {e: 5, a: 3, c: 1, b: 1}\ntensors: {X: [5, 3], s: []}\n"
         "operators:\n  - \"Y0[a,e] = X[4-a,a] * s[]\"\n"
         "  - \"Y1[e,c] max= max(Y0[a,b] * Y0[a,e], s[])\"\n  - \"Y2[b,e,a] = s[] + s[]\"\n";
  const Answer a = run(r, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  EXPECT_TRUE(a.json.value("verified", false));
  EXPECT_EQ(a.json.at("faults"), 0) << a.json["findings"].dump(1);
}

/// What a refused kernel is replaced by: the same operators, no unit, and still right.
TEST(StitchedEmulated, KernelsWithoutUnitsAreVerified) {
  Request r;
  r.subject = "attention-unit:batch=6,items=10,width=16,rows=40";
  r.machine = "h200";
  r.model = "fusionstitching";
  r.options["stitch"] = {"compose=no"};
  Setting setting = setting_of(r);
  const Result<Proposal> bound = proposal_of(r, setting);
  ASSERT_TRUE(bound.ok()) << bound.reason();
  const auto units = [](const Kernel& k) {
    const std::string tree = to_text(k.tree);
    return tree.find("@warp") != tree.npos || tree.find("@lane") != tree.npos ||
           tree.find("@thread") != tree.npos;
  };
  Plan plain = bound->plan;
  for (std::size_t k = 0; k < plain.kernels.size(); ++k) {
    if (!units(plain.kernels[k])) continue;
    const std::string name = plain.kernels[k].name;
    plain.kernels[k] = bound->choices(k).back().kernel;  // the one without units comes last
    plain.kernels[k].name = name;
  }
  ASSERT_NE(plain, bound->plan);
  EXPECT_TRUE(std::ranges::none_of(plain.kernels, units));
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "plan.yaml").string();
  std::ofstream(path) << to_yaml(PlanFile{.workload = *setting.workload,
                                          .workload_name = setting.workload_name,
                                          .machine = "h200",
                                          .model = {},
                                          .plan = plain});
  const Answer a = run({.subject = path}, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  EXPECT_TRUE(a.json.value("verified", false));
  EXPECT_EQ(a.json.at("faults"), 0);
}

}  // namespace
}  // namespace tilewright::harness
