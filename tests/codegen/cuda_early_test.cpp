// Launches that begin before the one before them has ended, and what they load meanwhile.
#include <gmock/gmock.h>

#include <stdexcept>

#include "core/base/format.h"
#include "core/lowering/gpu/early.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_support.h"
#include "tests/support/random_stitched.h"

namespace tilewright {
namespace {

Schedule schedule_of(const std::string& workload, const std::vector<std::string>& trees,
                     const std::map<std::string, Pin>& pins = {}) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(workload, "test"));
  Plan plan;
  for (const std::string& tree : trees)
    plan.kernels.push_back({.level = "registers", .tree = parse_tree(tree), .pins = pins});
  auto s = resolve(plan, w, testing::random_stitched::machine());
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

/// What was emitted of a schedule runs without findings, and is right.
void expect_right(const cuda::Source& source, const Schedule& s) {
  const auto module = testing::build_cuda({source});
  ASSERT_TRUE(module) << module.reason();
  const auto run = testing::run_cuda(*module, source, *s.workload, 7);
  ASSERT_TRUE(run) << run.reason();
  EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
  EXPECT_LT(run->error, 1e-5);
}

/// A kernel on Hopper loads what the launch before does not write, and then waits for that to end.
TEST(Early, LaunchesBeginBeforeTheOneBeforeHasEnded) {
  const Schedule s = schedule_of(
      "name: scaled\nloops: {r: 40, c: 64}\noperators:\n  - s: s[r] += x[r,c]\n"
      "  - y: y[r,c] = s[r] * w[c]\noutputs: [y]\n",
      {"r/1@grid c/2@lane ( C.s )", "r/1@grid c/2@lane ( C.y )"});
  const auto source = cuda::emit(s, {.warpgroups = true, .prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  ASSERT_EQ(source->launches.size(), 2u);
  EXPECT_FALSE(source->launches.front().early) << "what is written before a program is not known";
  EXPECT_TRUE(source->launches.back().early);
  const std::string& text = source->text;
  const std::size_t first = text.find(" k_0("), second = text.find(" k_1(");
  ASSERT_NE(second, std::string::npos);
  EXPECT_THAT(text.substr(first, second - first),
              ::testing::Not(::testing::HasSubstr("launched(")));
  const std::size_t waits = text.find("launches_ended", second);
  EXPECT_LT(text.find("// L.w", second), waits);
  EXPECT_LT(waits, text.find("// L.s", second));
  EXPECT_THAT(text.substr(second), ::testing::HasSubstr("load_ahead<2>(&w_own"));
  // Else ptxas moves the read ahead of the wait.
  EXPECT_THAT(text.substr(second), ::testing::HasSubstr("launched(s_home)"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("launched(w_home)")));

  expect_right(*source, s);
  const auto none = testing::build_cuda({*source}, "launches_ended();", "");
  ASSERT_TRUE(none) << none.reason();
  const auto found = testing::run_cuda(*none, *source, *s.workload, 7);
  ASSERT_TRUE(found) << found.reason();
  EXPECT_FALSE(found->report.clean());

  const auto ampere = cuda::emit(s, {.prefix = "k"});
  ASSERT_TRUE(ampere) << ampere.reason();
  EXPECT_THAT(ampere->text, ::testing::Not(::testing::HasSubstr("launches_ended")));
}

/// What a first kernel follows is known in a program: then it loads other tensors at once, and the
/// emulation finds a load of what that launch writes.
TEST(Early, AFirstLaunchBeginsBehindOneThatIsKnown) {
  const Schedule s =
      schedule_of("name: scale\nloops: {r: 40, c: 64}\noperators:\n  - y: y[r,c] = s[r] * w[c]\n",
                  {"r/1@grid c/2@lane ( C.y )"});
  const Schedule sums =
      schedule_of("name: sums\nloops: {r: 40, c: 64}\noperators:\n  - s: s[r] += x[r,c]\n",
                  {"r/1@grid c/2@lane ( C.s )"});
  const auto emitted = [&](const char* written) {
    LaunchBefore before{.schedule = &sums, .writes = {}};
    for (const Tensor& t : s.workload->tensors()) before.writes.push_back(t.name == written);
    return cuda::emit(s, {.warpgroups = true, .prefix = "k", .before = &before}).value();
  };
  const cuda::Source source = emitted("s");
  ASSERT_TRUE(source.launches.front().early);
  EXPECT_LT(source.text.find("// L.w"), source.text.find("launches_ended"));
  EXPECT_LT(source.text.find("launches_ended"), source.text.find("// L.s"));
  const auto findings = [&](const cuda::Source& text, const std::vector<bool>& written) {
    cuda::Source run = text;
    run.written_before = written;
    const auto module = testing::build_cuda({run});
    const auto ran = testing::run_cuda(*module, run, *s.workload, 7);
    EXPECT_LT(ran->error, 1e-5);
    return ran->report.findings.size();
  };
  EXPECT_EQ(findings(source, source.written_before), 0u);
  EXPECT_GT(findings(source, {}), 0u) << "w may be written, and is read before the wait";
  const cuda::Source swapped = emitted("w");
  EXPECT_GT(findings(swapped, source.written_before), 0u);
}

/// A kernel whose blocks add in memory follows the launch that zeroes what they add to, which waits
/// for all before it and writes nothing else.
TEST(Early, BesideZerosAllIsReadBeforeTheWait) {
  const Schedule s =
      schedule_of("name: sums\nloops: {r: 40, c: 64}\noperators:\n  - s: s[c] += x[r,c]\n",
                  {"r/8@grid ( r/1@warp ( c/2@lane ( C.s ) ) S.s!atomic )"});
  const auto source = cuda::emit(s, {.warpgroups = true, .prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  ASSERT_EQ(source->launches.size(), 2u);
  EXPECT_TRUE(source->launches.front().early);
  EXPECT_TRUE(source->launches.back().early);
  const std::string& text = source->text;
  const std::size_t zeroing = text.find(" k_0_zero("), adding = text.find(" k_0(");
  ASSERT_NE(adding, std::string::npos);
  EXPECT_LT(text.find("launches_ended", zeroing), text.find("next_launch_may_begin", zeroing));
  EXPECT_LT(text.find("x_home +", adding), text.find("launches_ended", adding));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("launched(x_home)")));
  expect_right(*source, s);
}

/// Each block that lets the next launch begin takes time for that, and blocks that do not fill
/// their places are put unevenly.
TEST(Early, NextLaunchMayBeginWhereBlocksAreFewOrLong) {
  const auto h200 = std::make_shared<const Machine>(named_machine("h200"));
  const auto early = [&](int rows, int columns, const char* tree) {
    const auto w = std::make_shared<const Workload>(workload_from_yaml(
        formatted(
            "name: gate\nloops: {{r: {}, c: {}}}\noperators:\n  - y: y[r,c] = x[r,c] * s[r]\n",
            rows, columns),
        "test"));
    Plan plan;
    plan.kernels.push_back({.level = "registers", .tree = parse_tree(tree)});
    const auto s = resolve(plan, w, h200);
    EXPECT_TRUE(s.ok()) << s.reason();
    return s.ok() && lowering::lets_next_begin(*s, 0, 128);
  };
  const char* const row = "r/1@grid c/4@thread ( C.y )";
  EXPECT_TRUE(early(60, 512, row));
  EXPECT_FALSE(early(400, 512, row));
  EXPECT_FALSE(early(8192, 400, row));
  EXPECT_FALSE(early(65536, 256, row));
  EXPECT_TRUE(early(65536, 4096, row));
}

/// Beside blocks that have an SM alone there is no room for others; on an SM that one of them has
/// left there is room for several.
TEST(Early, BlocksOfTilesHaveAnSmEachBehindBlocksThatHaveOneAlone) {
  const auto w = std::make_shared<const Workload>(
      named_workload("gated-ffn:m=16,n=768,k=832,l=1344,batch=1,dtype=f16"));
  const auto h200 = std::make_shared<const Machine>(named_machine("h200"));
  const auto launches = [&](const std::string& columns, bool warpgroups = true) {
    Plan plan;
    plan.kernels.push_back(
        {.tree = parse_tree("m/16@grid l/" + columns +
                            "@grid ( k/256 ( C.gate ) k/256 ( C.up ) C.gated S.H )"),
         .launch = {.stages = 3}});
    plan.kernels.push_back(
        {.tree = parse_tree("m/16@grid n/64@grid ( l/192@cluster l/64 ( C.down ) S.E )")});
    const auto s = resolve(plan, w, h200);
    if (!s.ok()) throw std::runtime_error(s.reason());
    const auto source = cuda::emit(*s, {.warpgroups = warpgroups, .prefix = "k"});
    if (!source) throw std::runtime_error(source.reason());
    return source->launches;
  };
  const std::int64_t half = h200->level(*h200->find("shared")).capacity.value / 2;
  const auto few = launches("16");
  ASSERT_EQ(few.front().blocks, 84);
  EXPECT_EQ(few.front().shared_bytes, half);
  EXPECT_GT(few.back().shared_bytes, half);
  // More blocks than SMs share them; launches that do not begin early find all SMs free.
  EXPECT_LT(launches("8").front().shared_bytes, half);
  EXPECT_LT(launches("16", false).front().shared_bytes, half);
}

/// What a plan loads before threads meet, and uses behind that, is under way before they do.
TEST(Early, LoadsStayBeforeTheBarrierThatAPlanPutsBehindThem) {
  const Schedule s = schedule_of(
      "name: behind\nloops: {r: 4, c: 64, j: 8}\noperators:\n  - h: h[r,c] = x[r,c] * 2\n"
      "  - y: y[r,j] += h[r,c] * w[c,j]\noutputs: [y]\n",
      {"r/1@grid ( L.w@registers c/1@thread ( C.h ) Y.block c/32@warp c/1@lane j/1 ( C.y ) )"},
      {{"h", {.level = "shared"}}});
  const auto source = cuda::emit(s, {.prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  const std::string& text = source->text;
  EXPECT_THAT(text, ::testing::ContainsRegex("load_ahead<[0-9]>\\(&w_own"));
  EXPECT_THAT(text, ::testing::ContainsRegex("load_several<[0-9]>\\(&x_own"));
}

}  // namespace
}  // namespace tilewright
