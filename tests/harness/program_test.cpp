// Networks as programs: whether what runs is what the workload says.
#include "harness/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <random>

#include "core/base/format.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/text.h"
#include "harness/pipeline.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::harness {
namespace {

Answer ran(const std::string& subject, RunOptions options = {}) {
  Request request;
  request.subject = subject;
  request.machine = "host";
  request.target_options["isa"] = {"generic"};
  options.seconds = 0.01;
  return run(request, options);
}

TEST(Program, ANetworkRunsWithoutAPlanAndIsVerified) {
  const Answer answer =
      ran("transformer-block:tokens=8,heads=2,size=4,hidden=16", {.profile = true});
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["verified"], true);
  EXPECT_EQ(answer.json["kernels_verified"], answer.json["compiled"]);
  // Query, key and value are projected by one kernel each, which is compiled once.
  EXPECT_LT(answer.json["compiled"], answer.json["launches"]);
  EXPECT_LT(answer.json["arena_bytes"], answer.json["handed_on_bytes"]);
  EXPECT_EQ(answer.json["profile"].size(), answer.json["launches"]);
}

/// Joins along the first dimension, one of them in another: their kernels copy nothing, and what
/// they join lies side by side.
/// A mistyped interpreter was once found out after planning and building the whole.
TEST(Program, AnInterpreterThatIsNotThereIsNamedAtOnce) {
  Request request;
  request.subject = "gelu:rows=4,cols=8", request.machine = "host";
  EXPECT_THROW((void)run(request, {.beside = "no-such-python"}), InputError);
}

TEST(Program, AMachineWithoutMemoryOfSoftwareIsNamed) {
  Request request;
  request.subject = "gemm:m=8,n=8,k=8", request.machine = "host";
  const Answer answer = run(request, {.target = "cuda-emulated"});
  ASSERT_FALSE(answer.ok());
  const std::string why = answer.json["reason"].get<std::string>();
  EXPECT_NE(why.find("machine host are filled by hardware"), std::string::npos) << why;
  EXPECT_NE(why.find("machines of kind gpu"), std::string::npos) << why;
}

TEST(Program, WhatIsJoinedLiesInItsPlace) {
  TemporaryFolder folder;
  const std::string path =
      folder.write("joins.yaml",
                   "name: joins\nloops: {i: 16, i2: 16, j: 32, k: 24, l: 56, n: 20, m: 8}\n"
                   "tensors: {x: [8, 20], u: [16, 8], v: [24, 8], s: [16, 16]}\noperators:\n"
                   "  - \"a: a[i,n] += u[i,m] * x[m,n]\"\n"
                   "  - \"b: b[i,n] += s[i,i2] * a[i2,n]\"\n"
                   "  - \"c: c[j,n] = a[j,n] + b[j-16,n]\"\n"
                   "  - \"d: d[k,n] += v[k,m] * x[m,n]\"\n"
                   "  - \"e: e[l,n] = c[l,n] + d[l-32,n]\"\n"
                   "  - \"f: f[l,n] = tanh(e[l,n])\"\n");
  const Answer answer = ran(path, {.split = "followed", .profile = true});
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["verified"], true);
  // e has all of the others.
  EXPECT_EQ(answer.json["arena_bytes"], 56 * 20 * 4);
  EXPECT_EQ(answer.json["handed_on_bytes"], (16 + 16 + 32 + 24 + 56) * 20 * 4);
  for (const auto& kernel : answer.json["profile"])
    if (kernel["kernel"] == "c" || kernel["kernel"] == "e") {
      EXPECT_EQ(kernel["operators"].size(), 1u);
      EXPECT_EQ(kernel["predicted_seconds"], 0);
    }
}

/// Rows in pairs, read as rows of one dimension.
TEST(Program, WhatIsCopiedInAnotherShapeLiesWhereItWas) {
  TemporaryFolder folder;
  const std::string path = folder.write(
      "shapes.yaml",
      "name: shapes\nloops: {c: 6, y: 4, p: 2, x: 20, i: 8}\ndtypes: {k: i32, l: i32}\n"
      "values:\n  k: [0, 0, 1, 1, 2, 2, 3, 3]\n  l: [0, 1, 0, 1, 0, 1, 0, 1]\n"
      "operators:\n  - \"a: a[c,y,p,x] = g[c,y,p,x] * 2\"\n"
      "  - \"b: b[c,i,x] = a[c,k[i],l[i],x]\"\n"
      "  - \"d: d[c,i,x] = tanh(b[c,i,x]) + b[c,i,x]\"\n");
  const Answer answer = ran(path, {.split = "followed", .profile = true});
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["verified"], true);
  EXPECT_EQ(answer.json["arena_bytes"], 6 * 8 * 20 * 4);
  EXPECT_EQ(answer.json["handed_on_bytes"], 2 * 6 * 8 * 20 * 4);
  for (const auto& kernel : answer.json["profile"]) {
    if (kernel["kernel"] == "b") {
      EXPECT_EQ(kernel["predicted_seconds"], 0);
    }
  }
  // In one kernel, whose own tiles may share memory, all are copied that have to be.
  const Answer together = ran(path, {.seconds = 0});
  ASSERT_TRUE(together.ok()) << together.json.dump(1);
  EXPECT_EQ(together.json["verified"], true);
}

/// One operator's results, and those of several that share a loop, of every type.
TEST(Program, AKernelWritesSeveralTypes) {
  const TemporaryFolder folder;
  const auto text = [](const std::string& dtype, const std::string& last) {
    return "name: w\ndtype: " + dtype +
           "\nloops: {a: 37, b: 21, k: 9}\ndtypes: {h: f16, p: bf16, " + "i: i8, n: i32, s: f32, " +
           last +
           "}\noperators:\n  - \"o: h[a,b] = tanh(x[a,b]); p[a,b] = x[a,b] * 0.5; "
           "i[a,b] = round(9 * x[a,b]); n[a,b] = round(900 * x[a,b]); s[a,b] = x[a,b] + h0[b]\"\n"
           "  - t[b] max= x[a,b] * h[a,b]\n  - g[a] += x[a,b] * s[a,b]\n"
           "  - c[a,k] += p[a,b] * W[b,k]\noutputs: [h, p, i, n, s, t, g, c]\n";
  };
  const std::string files[] = {folder.write("a.yaml", text("f32", "h0: f16, t: f16, g: bf16")),
                               folder.write("b.yaml", text("f64", "h0: f32, c: f32")),
                               folder.write("c.yaml", text("f16", "h0: i8, g: f32"))};
  const std::string tiled = "b/8 ( a/5 ( C.o C.t ) ) a/6 ( C.g ) a/4 ( b/7 ( k/3 ( C.c ) ) )";
  const std::pair<std::string, std::string> ways[] = {
      {"generic", ""}, {"avx2", tiled}, {"", ""}, {"", tiled}};
  for (const std::string& file : files)
    for (const auto& [isa, tree] : ways) {
      SCOPED_TRACE(file + " " + isa + " " + tree);
      Request request;
      request.subject = file;
      request.machine = "host";
      if (!tree.empty()) request.tree = tree;
      request.threads = 2;
      if (!isa.empty()) request.target_options["isa"] = {isa};
      const Answer answer = run(request, {.seconds = 0});
      ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
      EXPECT_EQ(answer.json["verified"], true);
    }
}

/// Between kernels rows may be longer than what is written of them.
TEST(Program, KernelsLeaveWhatLiesBehindARow) {
  const TemporaryFolder folder;
  const Answer answer =
      ran(folder.write("w.yaml",
                       "name: w\nloops: {a: 37, b: 5}\ntensors: {x: [a, b], y: [b, 43]}\n"
                       "operators:\n  - y[b,a] = x[a,b] * 0.5\n  - z[a,b] = y[b,a] + x[a,b]\n"),
          {.split = "each"});
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["kernels_verified"], 2);
}

/// A whole plan may have what belongs to a running reduction in two kernels, which are no workloads
/// of their own.
TEST(Program, ARunningReductionIsNotParted) {
  const TemporaryFolder folder;
  Request request;
  request.subject = folder.write(
      "w.yaml",
      "name: w\nloops: {b: 31, c: 29, d: 257, e: 2, f: 13, j: 64, k: 40, l: 7, m: 13, a: 2}\n"
      "tensors: {i0: [14, 2, 32, 13], i1: [29], i2: [42, 9], i3: [64, 31]}\ndtypes: {t3: i32}\n"
      "operators:\n"
      "  - \"o0: t0[c,e,m,f] = select(lt(i1[c], 0.1), neg(i0[f,e,c+3,m]), 0.125)\"\n"
      "  - \"o1: t1[d,e,a] max= t0[2*m-1,-2*a,d,e]\"\n"
      "  - \"s2: S[j,k] = tanh(i0[2*j+3+k,j,0,3])\"\n"
      "  - \"r2: R[j] max= S[j,k]; g[j] = before(R) - after(R) running\"\n"
      "  - \"e2: E[j,k] = exp(S[j,k] - R[j])\"\n"
      "  - \"z2: Z[j] += E[j,k] rescale(exp(g[j])) running\"\n"
      "  - \"a2: A[j] = exp(g[j])\"\n"
      "  - \"p2: P[j,l] += E[j,k] * i2[2+k,l] rescale(A[j]) running\"\n"
      "  - \"q2: Q[j,l] = P[j,l] / Z[j]\"\n"
      "  - \"o3: t3[b,j] = round(4 * tanh(i0[b+j-2,b+j-1,j-3-b,b-j+1])); t4[j,b] = 0.5 * "
      "i3[j,b]\"\noutputs: [t1, Q, t3, t4]\n");
  request.machine = "h200";
  const Answer answer = run(request, {.target = "cuda-emulated"});
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["verified"], true);
}

/// Where the whole is planned in parts after all, no part's plan parts it again.
TEST(Program, ARunningReductionIsNotPartedByPartsPlans) {
  const TemporaryFolder folder;
  Request request;
  request.subject = folder.write(
      "w.yaml",
      "name: w\ndtype: f16\nloops: {a: 87, b: 127, c: 1, d: 4, e: 1, f: 40}\n"
      "tensors: {i0: [33], i1: [127], i2: [127], i3: [3], i4: [7], i5: [43], i6: [1], i7: [88, "
      "182], i8: [127, 129], i9: [384]}\ndtypes: {t4b: f32}\noperators:\n"
      "  - \"t0: t0[f,b] min= (select(lt(i1[b], 0.1), i0[31-b] + i0[3*b+e*127-3+f*127], 0.125)) + "
      "(i1[e] * (1 + 0.01 * e) - (i1[f] * i2[b]) / 3)\"\n"
      "  - \"o1: t1[c] = cos(i3[2-c]) * (0.5 * i2[3])\"\n"
      "  - \"o2: t2[f,c] += 0.1 * (select(lt(2*c, d+3), 0.5, rsqrt(1.5 + square(i0[c] * i4[d*3-3] "
      "* "
      "i5[f]))) - select(lt(i6[c], 0.1), recip(2 + abs(i5[-d+f*3])), 0.125))\"\n"
      "  - \"s3: S3[b,a] = tanh(i7[a,-2*b+181])\"\n"
      "  - \"r3: R3[a] max= S3[b,a]; d3[a] = before(R3) - after(R3) running\"\n"
      "  - \"e3: E3[b,a] = exp(S3[b,a] - R3[a])\"\n"
      "  - \"z3: Z3[a] += E3[b,a] rescale(exp(d3[a])) running\"\n"
      "  - \"a3: A3[a] = exp(d3[a])\"\n"
      "  - \"p3: P3[a,c] += E3[b,a] * i8[b,2+b+c] rescale(A3[a]) running\"\n"
      "  - \"q3: Q3[a,c] = P3[a,c] / Z3[a]\"\n"
      "  - \"o4: t4[] min= i7[-b+2,b] - i8[b-1,-2+b]; t4b[] += sqrt(abs(i9[2+3*b]) + 0.01); t4c[] "
      "+= abs(i8[-2+b,41-b*2])\"\n"
      "  - \"o5: t5[b,a] = i7[3*a+b-1,b+a+2] * i8[a,3*b+3+127*a]; t5b[b,a] = "
      "add(i8[b,-b+a*3-3], i7[a,b]); t5c[b,a] = abs(i9[a])\"\n"
      "outputs: [t0, t1, t2, Q3, t4, t4b, t4c, t5, t5b, t5c]\n");
  request.machine = "h200";
  const Answer answer = run(request, {.target = "cuda-emulated"});
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["verified"], true);
}

TEST(Program, RandomGraphsRunOperatorByOperator) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const Answer answer = ran("random-graph:vertices=14,rows=5,cols=7,seed=" + std::to_string(seed),
                              {.split = "each"});
    ASSERT_TRUE(answer.ok()) << "seed " << seed << ": " << answer.json.dump(1);
    EXPECT_EQ(answer.json["verified"], true);
  }
}

/// A network of a few operators, its sizes and type drawn.
std::string drawn_network(std::mt19937_64& random) {
  const auto one = [&](std::initializer_list<int> of) {
    return *(of.begin() + random() % of.size());
  };
  const std::string type = std::array{"f32", "f16", "bf16"}[random() % 3];
  switch (random() % 5) {
    case 0:
      return formatted("bert:layers=1,seq={},hidden={},heads=2,ffn={},standard={},dtype={}",
                       one({9, 16, 20}), one({16, 32, 48}), one({40, 64}), one({0, 1}), type);
    case 1:
      return formatted(
          "gpt2:batch={},past={},layers=1,hidden={},heads=2,mlp=48,vocabulary={},"
          "dtype={}",
          one({1, 2, 3}), one({3, 8, 13}), one({16, 32}), one({10, 33}), type);
    case 2:
      return formatted("lstm:steps={},layers=2,hidden={},wavefront={},dtype={}", one({2, 3}),
                       one({8, 16, 20}), one({0, 1}), type);
    case 3:
      return formatted(
          "resnext101:size={},channels=16,groups={},width=4,stages=1,blocks=1,"
          "classes=10,dtype={}",
          one({24, 32}), one({1, 4}), type);
    default:
      return formatted(
          "shufflenet-v2:size={},stem=8,channels=16,stages=1,blocks=1,head=16,"
          "classes=10,dtype={}",
          one({16, 24}), type);
  }
}

/// CUDA text of all kernels, run on this CPU; with TILEWRIGHT_LONG every kind of network, too.
TEST(Program, DrawnNetworksRunOnAnEmulatedGpu) {
  const bool all = std::getenv("TILEWRIGHT_LONG") != nullptr;
  std::vector<std::string> networks;
  std::mt19937_64 random(all ? 2 : 1);
  for (int i = 0; i < (all ? 40 : 3); ++i) networks.push_back(drawn_network(random));
  if (all)
    for (const char* name :
         {"efficientnet-b0:size=32,channels=8,blocks=1,classes=10",
          "efficientnet-b0:size=32,channels=8,blocks=1,classes=10,dtype=f16",
          "rednet50:size=32,channels=16,group=4,kernel=3,stages=2,blocks=1,classes=10",
          "swin-b:size=32,patch=4,window=4,width=16,heads=2,mlp=2,stages=2,blocks=2,classes=10",
          "vit-b16:size=32,patch=8,layers=1,hidden=32,heads=2,mlp=64,classes=10",
          "sar-drn:size=16,channels=8", "mmoe", "transformer-block:tokens=16"})
      networks.emplace_back(name);
  for (const std::string& network : networks) {
    Request request;
    request.subject = network;
    request.machine = "h200";
    // On Hopper launches begin early, and the emulation finds what is read too early.
    request.target_options["arch"] = {(&network - networks.data()) % 2 == 1 ? "sm_80" : "sm_90a"};
    const Answer answer = run(request, {.target = "cuda-emulated", .profile = true});
    ASSERT_TRUE(answer.ok()) << network << ": " << answer.json.dump(1);
    EXPECT_EQ(answer.json["verified"], true) << network;
    EXPECT_EQ(answer.json["kernels_verified"], answer.json["compiled"]) << network;
    // An emulator's seconds are none of a GPU's.
    EXPECT_FALSE(answer.json.contains("seconds_median"));
    for (const auto& line : answer.json["profile"]) EXPECT_TRUE(line["seconds"].is_null());
  }
}

/// Weights that a file gives are read once, and what depends on them alone is computed once.
TEST(Program, WhatDependsOnWeightsAloneRunsOnce) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "w.yaml",
      "name: w\nloops: {i: 6}\ntensors: {g: [i], x: [i]}\nvalues: {g: [1, 2, 3, 4, 5, 6]}\n"
      "operators:\n  - \"doubled: d[i] = g[i] + g[i]\"\n  - \"scaled: y[i] = x[i] * d[i]\"\n");
  const Answer answer = ran(path);
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["launches"], 2);
  EXPECT_EQ(answer.json["prepared"], 1);
  EXPECT_EQ(answer.json["weights"], 1);
  EXPECT_EQ(answer.json["drawn"].dump(), "[\"x\"]");
}

/// A program whose launches are those of the evaluator, rounded to the tensors' types.
struct Rounded {
  Program program;
  std::vector<std::size_t> order;
  TensorValues inputs, expected, memory;
  std::optional<std::size_t> wrong;  ///< a launch whose largest element is off by a twentieth

  explicit Rounded(const std::string& path) {
    Request request;
    request.subject = path;
    request.machine = "xeon-gold-6240";
    request.threads = 1;
    Result<ProgramPlan> plan = program_plan(request, "followed");
    program = program_of(request, *plan).value();
    for (std::size_t i = 0; i < program.launches.size(); ++i) order.push_back(i);
    memory = inputs = random_inputs(*program.workload, 1);
    expected = evaluate(*program.workload, inputs);
  }
  std::optional<Reason> verify() {
    const auto run = [&](std::size_t i) -> Result<double> {
      const Launch& l = program.launches[i];
      const Workload& w = *program.kernels[l.kernel].workload;
      TensorValues given(w.tensors().size());
      for (std::size_t t = 0; t < given.size(); ++t)
        if (w.is_input(TensorId(t))) given[t] = memory[l.tensors[t].index()];
      const TensorValues made = evaluate(w, given);
      for (TensorId t : w.outputs()) {
        std::vector<double>& to = memory[l.tensors[t.index()].index()];
        to = made[t.index()];
        if (wrong == i) *std::ranges::max_element(to) *= 1.05;
        round_all(w.tensor(t).dtype, to);
      }
      return 0.0;
    };
    const auto read = [&](TensorId t) -> Result<std::vector<std::byte>> {
      const Tensor& tensor = program.workload->tensor(t);
      std::vector<std::byte> elements(static_cast<std::size_t>(tensor.bytes().value));
      encode_elements(tensor.dtype, memory[t.index()], elements.data());
      return elements;
    };
    return verify_launches(program, order, inputs, expected, {.run = run, .read = read});
  }
};

/// A softmax of large sums: floats of about 1e9 are a hundred apart, bfloat16 of about 300 two.
TEST(Program, SensitiveNetworksAreVerifiedLaunchByLaunch) {
  for (const auto& [type, range] : {std::pair("f32", "1e9"), std::pair("bf16", "300")}) {
    SCOPED_TRACE(type);
    const TemporaryFolder folder;
    Rounded net(folder.write("w.yaml",
                             std::string("name: w\ndtype: ") + type + "\nranges: {w: " + range +
                                 "}\nloops: {n: 9, k: 30, j: 5}\ntensors: {x: [j, k], w: [k, n]}\n"
                                 "operators:\n  - s[j,n] += x[j,k] * w[k,n]\n  - m[j] max= s[j,n]\n"
                                 "  - e[j,n] = exp(s[j,n] - m[j])\n  - d[j] += e[j,n]\n"
                                 "  - y[j,n] = e[j,n] / d[j]\n"));
    ASSERT_GT(net.program.launches.size(), 1u);
    EXPECT_FALSE(net.verify()) << net.verify()->text;
    for (std::size_t i = 0; i < net.order.size(); ++i) {
      net.wrong = i;
      const auto why = net.verify();
      ASSERT_TRUE(why) << "launch " << i;
      EXPECT_NE(why->text.find("kernel " + net.program.launches[i].name + " on what"),
                std::string::npos)
          << why->text;
    }
    net.wrong.reset();
    net.expected[net.program.workload->outputs().front().index()][0] += 0.01;
    const auto why = net.verify();
    ASSERT_TRUE(why);
    EXPECT_NE(why->text.find("its kernels together"), std::string::npos) << why->text;
  }
}

}  // namespace
}  // namespace tilewright::harness
