// Results between two kernels with longer rows (the rewrite pad-results), on simulator/cuda_host:
// whichever form writes them and whichever reads them, what lies behind a row is neither written
// nor read. The emulation finds a read of what nobody wrote.
#include <random>

#include "core/base/format.h"
#include "core/plan/file.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/codegen/cuda_support.h"

namespace tilewright {
namespace {

constexpr std::uint64_t kSeed = 29011;

struct Case {
  const char *loops, *operators, *first, *second;
  const char* micro_kernel;  ///< of both kernels
};

/// Odd extents are drawn where a loop has a question mark.
std::string drawn(std::string loops, std::mt19937_64& random) {
  for (std::size_t at; (at = loops.find('?')) != std::string::npos;)
    loops.replace(at, 1,
                  std::to_string(2 * std::uniform_int_distribution<int>(33, 120)(random) + 1));
  return loops;
}

TEST(LongerRows, AreWrittenAndReadByEveryForm) {
  constexpr const char *kAcross = "  - first: C[m,l] += A[m,k] * B[k,l]\n",
                       *kAlong = "  - first: C[m,l] += A[m,k] * B[l,k]\n",
                       *kSecond = "  - second: E[m,n] += C[m,l] * D[l,n]\n";
  const std::string across = std::string(kAcross) + kSecond, along = std::string(kAlong) + kSecond,
                    followed =
                        "  - first: G[m,l] += A[m,k] * B[l,k]\n  - act: C[m,l] = relu(G[m,l])\n" +
                        std::string(kSecond),
                    image =
                        "  - first: M[d,y,x] += W[d,c] * X[c,y,x]\n"
                        "  - second: O[e,y,x] += V[e,d] * M[d,y,x]\n";
  const Case cases[] = {
      // By windows, whose left operand has pieces of 16 bytes, and by warpgroups.
      {"m: 70, k: 40, l: ?, \"n\": 64", across.c_str(),
       "m/64@grid l/64@grid ( k/32 ( C.first ) S.C )",
       "m/64@grid n/64@grid ( l/64@cluster l/64 ( C.second ) S.E )", "mma, wgmma"},
      {"m: 70, k: 40, l: ?, \"n\": 51", across.c_str(),
       "m/64@grid l/64@grid ( k/32 ( C.first ) S.C )",
       "m/32@grid n/51@grid ( l/32 ( C.second ) S.E )", "mma, mma"},
      // Boxes of results that end within a row.
      {"m: 70, k: 40, l: ?, \"n\": 64", along.c_str(),
       "m/64@grid l/64@grid ( k/40 ( C.first ) S.C )",
       "m/64@grid n/64@grid ( l/64 ( C.second ) S.E )", "wgmma, wgmma"},
      {"m: 70, k: 40, l: ?, \"n\": 64", followed.c_str(),
       "m/64@grid l/64@grid ( k/40 ( C.first ) C.act S.C )",
       "m/64@grid n/64@grid ( l/64 ( C.second ) S.E )", "wgmma, wgmma"},
      // Lines of an image are one row of points.
      {"c: 16, d: 128, e: 64, y: 14, x: 14", image.c_str(),
       "d/64@grid y/2@grid x/14@grid ( c/16 ( C.first ) S.M )",
       "e/64@grid y/14@grid x/14@grid ( d/64 ( C.second ) S.O )", "mma, wgmma"},
      {"c: 16, d: 128, e: 40, y: 7, x: 7", image.c_str(),
       "d/64@grid y/7@grid x/7@grid ( c/16 ( C.first ) S.M )",
       "e/40@grid y/7@grid x/7@grid ( d/64 ( C.second ) S.O )", "mma, wgmma"},
  };
  std::mt19937_64 random(kSeed);
  for (const Case& c : cases) {
    const std::string text = formatted("name: drawn\ndtype: f16\nloops: {{{}}}\noperators:\n{}",
                                       drawn(c.loops, random), c.operators);
    const Workload before = workload_from_yaml(text, "drawn");
    Result<Workload> longer = apply("pad-results", before);
    if (!longer) {  // rows of the second product's other operand begin anywhere: by hand
      WorkloadSpec spec = before.spec();
      Tensor& t = spec.tensors[before.find_tensor("C")->index()];
      t.shape.back() = round_up(t.shape.back(), std::int64_t{8});
      longer = Workload::create(std::move(spec));
    }
    const auto w = std::make_shared<const Workload>(std::move(longer).value());
    Kernel one{.name = "one"}, two{.name = "two"};
    one.tree = parse_tree(c.first), two.tree = parse_tree(c.second);
    const auto s =
        resolve({.kernels = {one, two}}, w, std::make_shared<const Machine>(named_machine("h200")));
    ASSERT_TRUE(s.ok()) << s.reason() << text;
    const auto source = cuda::emit(*s, {.warpgroups = true});
    ASSERT_TRUE(source.ok()) << source.reason() << text;
    EXPECT_EQ(source->micro_kernel, c.micro_kernel) << text;
    const auto module = testing::build_cuda({*source});
    ASSERT_TRUE(module.ok()) << module.reason();
    const auto run = testing::run_cuda(*module, *source, *w, kSeed, {});
    ASSERT_TRUE(run.ok()) << run.reason() << text;
    EXPECT_TRUE(run->report.clean()) << text << run->report.findings.front().text;
    EXPECT_LT(run->error, 4e-3) << text;
    EXPECT_EQ(testing::text(run->bytes), testing::text(testing::sm_bytes(*s))) << text;
  }
}

}  // namespace
}  // namespace tilewright
