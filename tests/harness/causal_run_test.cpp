// Is causal attention computed right by every model's plans, on a processor and as CUDA kernels
// executed on the CPU, at odd sizes and in every form that the built-in workload has?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

void expect_right(const Request& r, const std::string& target) {
  const Answer a = run(r, {.target = target, .seconds = 0.0});
  ASSERT_TRUE(a.ok()) << r.subject << " by " << r.model.value_or("") << ": "
                      << a.json.value("reason", std::string());
  EXPECT_TRUE(a.json.value("verified", false)) << r.subject << " by " << r.model.value_or("");
  // A network's answer is a refusal where a kernel has faults.
  if (target != "cpu" && !a.json.contains("kernels_verified")) {
    EXPECT_EQ(a.json.at("faults"), 0) << r.subject << a.json["findings"].dump(1);
  }
}

struct Case {
  const char* workload;
  std::vector<const char*> models;
};

TEST(Causal, CudaKernels) {
  const Case cases[] = {
      {"attention:m=67,l=67,k=32,n=32,causal=1,dtype=f16",
       {"chimera", "mcfuser", "fusionstitching", "unfused"}},
      {"attention:heads=2,m=33,l=91,k=24,n=40,causal=1,online=1",
       {"chimera", "mcfuser", "fusionstitching"}},
      {"attention:heads=6,groups=3,m=33,l=70,k=32,n=20,causal=1,scale=1,dtype=f16",
       {"mcfuser", "unfused"}},
      {"attention:m=45,l=67,k=32,n=32,causal=1,online=1,scale=1,dtype=bf16", {"mcfuser"}},
  };
  for (const Case& c : cases)
    for (const char* model : c.models)
      expect_right({.subject = c.workload, .machine = "h200", .model = model}, "cuda-emulated");
}

TEST(Causal, CpuKernels) {
  for (const char* workload : {"attention:m=67,l=67,k=32,n=32,causal=1",
                               "attention:heads=2,m=33,l=91,k=24,n=40,causal=1,online=1,scale=1",
                               "attention:heads=6,groups=3,m=33,l=70,k=32,n=20,causal=1,dtype=bf16",
                               "attention:m=61,l=75,k=16,n=24,causal=1,online=1,dtype=f64"})
    expect_right({.subject = workload, .machine = "xeon-gold-6240", .model = "chimera"}, "cpu");
}

/// A window of columns is two comparisons; its first blocks hide whole rows of the running maximum.
TEST(Causal, AWindowOfTwoComparisons) {
  const std::string window =
      "name: window\nloops: {m: 70, l: 70, k: 16, n: 24}\noperators:\n"
      "  - 'qk: S[m,l] += Q[m,k] * K[l,k]'\n"
      "  - 'masked: U[m,l] = select(lt(m, l), -32768, select(lt(l, m - 8), -32768, S[m,l]))'\n"
      "  - 'rowmax: R[m] max= U[m,l]; shift[m] = before(R) - after(R) running'\n"
      "  - 'exp: P[m,l] = exp(U[m,l] - R[m])'\n"
      "  - 'rowsum: Z[m] += P[m,l] rescale(exp(shift[m])) running'\n"
      "  - 'rescale: alpha[m] = exp(shift[m])'\n"
      "  - 'pv: O[m,n] += P[m,l] * V[l,n] rescale(alpha[m]) running'\n"
      "  - 'divide: E[m,n] = O[m,n] / Z[m]'\n";
  for (const char* model : {"chimera", "mcfuser", "fusionstitching"})
    expect_right({.subject = "window", .machine = "h200", .subject_text = window, .model = model},
                 "cuda-emulated");
}

/// Few query rows in chunks of keys, which seldom divide them.
TEST(Chunks, CudaKernels) {
  std::mt19937 random(27113);
  const auto draw = [&](int least, int most) {
    return std::to_string(std::uniform_int_distribution(least, most)(random));
  };
  for (const char* form : {"dtype=f16", "dtype=bf16,scale=1", "causal=1,dtype=f16", "causal=1",
                           "dtype=f16,heads=6,groups=3"}) {
    const std::string subject = "attention:m=" + draw(1, 16) + ",l=" + draw(200, 500) +
                                ",k=32,n=" + draw(24, 40) + "," + form;
    expect_right({.subject = subject,
                  .machine = "h200",
                  .rewrites = {"online-softmax", "split-running:" + draw(20, 150)},
                  .model = "tilewright"},
                 "cuda-emulated");
  }
}

/// The planner takes them where blocks of rows would leave most of a GPU without work.
TEST(Chunks, ThePlannerTakesThemForFewRowsOfManyKeys) {
  for (const char* subject : {"attention:heads=4,m=16,l=4099,dtype=f16,online=1",
                              "attention:heads=2,m=400,l=8192,dtype=f16,online=1"}) {
    const Answer a = plan({.subject = subject, .machine = "h200", .model = "tilewright"});
    ASSERT_TRUE(a.ok()) << subject;
    EXPECT_NE(a.json.at("plan").dump().find("split-running:"), std::string::npos)
        << a.json.at("plan").dump();
  }
}

/// Rows of heads that share keys are in one block.
TEST(Chunks, ThePlannerPutsHeadsThatShareKeysTogether) {
  const Answer a =
      plan({.subject = "attention:heads=16,m=2,l=4099,groups=8,causal=1,scale=1,dtype=f16,online=1",
            .machine = "h200",
            .model = "tilewright"});
  ASSERT_TRUE(a.ok());
  const std::string text = a.json.at("plan").dump();
  EXPECT_NE(text.find("split-running:"), std::string::npos) << text;
  EXPECT_NE(text.find("h/8@grid m/2@grid ( li/"), std::string::npos) << text;
}

/// The NPU's scalar unit makes values of indices.
TEST(Causal, OnTheNpu) {
  const Request r{.subject = "ramp",
                  .machine = "ascend910",
                  .subject_text =
                      "name: ramp\ndtype: f16\nloops: {r: 32, c: 64}\noperators:\n"
                      "  - 'y: y[r,c] = x[r,c] * c'\n",
                  .tree = "r/16@grid r/16 ( L.x@UB C.y S.y )",
                  .pins = {"y=UB"}};
  const Answer a = run(r, {.target = "npu", .seconds = 0.0});
  EXPECT_TRUE(a.ok()) << a.json.value("reason", std::string());
  EXPECT_TRUE(a.json.value("verified", false));
}

}  // namespace
}  // namespace tilewright::harness
