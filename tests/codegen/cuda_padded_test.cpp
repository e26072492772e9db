// Windows in shared memory with zeros around them: are drawn ones right, with the bytes that
// `exact` counts and nothing found in them, and are they read without conditions, several
// neighbours at once?
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <random>
#include <stdexcept>

#include "codegen/cuda/build.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/support/random_stitched.h"

namespace tilewright {
namespace {

struct Drawn {
  std::string workload, tree;
};

/// A depthwise convolution or a pooling, and a thread's points, a warp's lanes and a block's warps.
Drawn drawn(unsigned seed) {
  std::mt19937 rng(seed);
  const auto one_of = [&](const std::vector<int>& from) {
    return from[std::uniform_int_distribution<std::size_t>(0, from.size() - 1)(rng)];
  };
  const auto text = [](int n) { return std::to_string(n); };
  const int taps = one_of({1, 2, 3, 5, 7}), stride = one_of({1, 1, 2, 3}), pad = taps / 2;
  const int high = one_of({5, 8, 11, 14}), wide = one_of({6, 7, 12, 18, 37}),
            channels = one_of({1, 3, 4}), after = one_of({0, 1, 2});
  const int down = (high - 1) / stride + 1, across = (wide - 1) / stride + 1;
  const bool depthwise = one_of({0, 1, 1}) == 1, same = stride == 1 && taps % 2 == 1;
  const std::string type = std::vector<std::string>{"f32", "f16", "bf16"}[seed % 3];
  const std::string at =
      text(stride) + "*y+r-" + text(pad) + "," + text(stride) + "*x+s-" + text(pad);
  std::string w = "name: w\ndtype: " + type + "\nloops: {b: 2, c: " + text(channels) +
                  ", y: " + text(down) + ", x: " + text(across) + ", r: " + text(taps) +
                  ", s: " + text(taps) + "}\noperators:\n  - conv: Y[b,c,y,x] ";
  w += depthwise ? "+= X[b,c," + at + "] * W[c,r,s]\n" : "max= X[b,c," + at + "]\n";
  if (after == 1) w += "  - after: Z[b,c,y,x] = relu(Y[b,c,y,x] + B[c])\n";
  if (after == 2) w += "  - after: Z[b,c,y,x] = Y[b,c,y,x] + X[b,c,y,x]\n";
  const bool followed = after == 1 || (after == 2 && same);
  if (after == 2 && !same) w.erase(w.rfind("  - after"));
  w += "tensors: {X: [b, c, " + text(high) + ", " + text(wide) + "]" +
       (depthwise ? ", W: [c, r, s]" : "") + "}\noutputs: [" + (followed ? "Z" : "Y") + "]\n";

  const int points = one_of({1, 2, 4}), tall = one_of({1, 2, 3, 4}), lanes_down = one_of({1, 2}),
            warps = one_of({1, 2, 4}), mode = one_of({0, 1, 2});
  const std::string loads = depthwise && one_of({0, 1}) == 1 ? "L.X L.W " : "L.X ";
  std::string around = "b/1@grid ", within;
  const auto rows = [&](int n) { return "y/" + text(std::min(n, down)); };
  around += "c/" + text(mode == 0 ? 1 : std::min(2, channels)) + "@grid ";
  around += rows(tall * lanes_down * warps) + "@grid ";
  // Tiles that begin and end within a row.
  const int piece = std::min(points * one_of({2, 3, 4, 5}), across), pieces = one_of({0, 0, 1, 2});
  if (pieces > 0) around += "x/" + text(piece) + (pieces == 1 ? "@grid " : "@warp ");
  if (mode == 1) around += "c/1@warp ";  // a tile for each warp's channel
  if (warps > 1) within += rows(tall * lanes_down) + "@warp ";
  if (mode == 2) within += "c/1@lane ";  // lanes that share a tile of two channels
  if (lanes_down > 1) within += rows(tall) + "@lane ";
  within += "x/" + text(std::min(points, across)) + "@lane ";
  const std::string body = "r/1 s/1 ( C.conv )";
  return {w,
          around + "( " + loads + within + (followed ? "( " + body + " C.after ) )" : body + " )")};
}

/// The same with channels side by side, which are lanes.
Drawn drawn_beside(unsigned seed) {
  std::mt19937 rng(seed);
  const auto one_of = [&](const std::vector<int>& from) {
    return from[std::uniform_int_distribution<std::size_t>(0, from.size() - 1)(rng)];
  };
  const auto text = [](int n) { return std::to_string(n); };
  const int taps = one_of({2, 3, 5}), stride = one_of({1, 1, 2, 3}), pad = taps / 2,
            high = one_of({5, 8, 11}), wide = one_of({6, 7, 12}),
            channels = one_of({6, 12, 16, 30, 36, 48, 64});
  const int down = (high + 2 * pad - taps) / stride + 1,
            across = (wide + 2 * pad - taps) / stride + 1;
  const bool depthwise = one_of({0, 1, 1}) == 1;
  const std::string type = std::vector<std::string>{"f32", "f16", "bf16"}[seed % 3];
  const std::string at =
      text(stride) + "*y+r-" + text(pad) + "," + text(stride) + "*x+s-" + text(pad);
  const std::string w =
      "name: w\ndtype: " + type + "\nloops: {b: 2, c: " + text(channels) + ", y: " + text(down) +
      ", x: " + text(across) + ", r: " + text(taps) + ", s: " + text(taps) +
      "}\noperators:\n  - conv: Y[b,y,x,c] " +
      (depthwise ? "+= X[b," + at + ",c] * W[r,s,c]\n" : "max= X[b," + at + ",c]\n") +
      "tensors: {X: [b, " + text(high) + ", " + text(wide) + ", c]}\noutputs: [Y]\n";
  const int each = channels % 2 == 0 ? one_of({1, 2}) : 1, lanes = std::min(32, channels / each),
            points = one_of({1, 2, 4}), tall = one_of({1, 2, 4}), warps_down = one_of({1, 2}),
            warps_along = one_of({1, 2}), lanes_along = lanes <= 16 ? 2 : 1;
  const auto part = [&](const std::string& loop, int n, int all, const std::string& unit) {
    return loop + "/" + text(std::min(n, all)) + "@" + unit + " ";
  };
  return {w, "b/1@grid " + part("y", tall * warps_down, down, "grid") +
                 part("x", points * lanes_along * warps_along, across, "grid") +
                 part("c", lanes * each, channels, "grid") + "( L.X " + (depthwise ? "L.W " : "") +
                 (warps_down > 1 ? part("y", tall, down, "warp") : "") +
                 (warps_along > 1 ? part("x", points * lanes_along, across, "warp") : "") +
                 (lanes_along > 1 ? part("x", points, across, "lane") : "") +
                 part("c", each, channels, "lane") + "( r/1 s/1 ( C.conv ) ) )"};
}

/// Groups of few channels side by side: lanes are a group's results, of some groups.
Drawn drawn_groups(unsigned seed) {
  std::mt19937 rng(seed);
  const auto one_of = [&](const std::vector<int>& from) {
    return from[std::uniform_int_distribution<std::size_t>(0, from.size() - 1)(rng)];
  };
  const auto text = [](int n) { return std::to_string(n); };
  const int in = one_of({2, 3, 4, 5, 8}), out = one_of({2, 3, 4, 6, 8}),
            groups = one_of({3, 4, 8, 11}), taps = one_of({1, 3}), stride = one_of({1, 2}),
            pad = taps / 2, size = one_of({6, 9, 12});
  const int points = (size + 2 * pad - taps) / stride + 1;
  const bool joined = one_of({0, 1}) == 1;
  const std::string type = std::vector<std::string>{"f32", "f16", "bf16"}[seed % 3],
                    n = text(points),
                    at = text(stride) + "*y+r-" + text(pad) + "," + text(stride) + "*x+s-" +
                         text(pad);
  const std::string w =
      "name: w\ndtype: " + type + "\nloops: {g: " + text(groups) + ", o: " + text(out) +
      ", c: " + text(in) + ", y: " + n + ", x: " + n + ", r: " + text(taps) + ", s: " + text(taps) +
      "}\noperators:\n  - conv: Y[y,x,g,o] += X[" + at + "," +
      (joined ? text(in) + "*g+c" : "g,c") + "] * W[g,o,r,s,c]\ntensors: {X: [" + text(size) +
      ", " + text(size) + ", " + (joined ? text(groups * in) : "g, c") + "]}\noutputs: [Y]\n";
  const int lanes = out <= 2 ? 2 : out <= 4 ? 4 : 8, tall = one_of({1, 2}), wide = one_of({2, 4});
  const auto part = [&](const std::string& loop, int step, int all, const std::string& unit) {
    return loop + "/" + text(std::min(step, all)) + "@" + unit + " ";
  };
  return {w, part("y", 2 * tall, points, "grid") + part("x", 2 * wide, points, "grid") +
                 part("g", 32 / lanes, groups, "grid") + "( L.X L.W " +
                 part("y", tall, points, "warp") + part("x", wide, points, "warp") +
                 "g/1@lane o/1@lane ( r/1 s/1 c/1 ( C.conv ) ) )"};
}

Schedule schedule_of(const Drawn& d) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(d.workload, "test"));
  Plan plan;
  plan.kernels.push_back({.level = "registers", .tree = parse_tree(d.tree)});
  auto s = resolve(plan, w, testing::random_stitched::machine());
  if (!s.ok()) throw std::runtime_error(d.workload + d.tree + ": " + s.reason());
  return std::move(s).value();
}

/// Drawn ones compute right, are clean and move what `exact` counts.
void expect_right(const std::function<Drawn(unsigned)>& drawn) {
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  std::vector<Drawn> all;
  for (unsigned seed = 1; seed <= 36; ++seed) {
    all.push_back(drawn(seed));
    schedules.push_back(schedule_of(all.back()));
    cuda::EmitOptions options;
    options.prefix = "k" + std::to_string(seed);
    auto source = cuda::emit(schedules.back(), options);
    ASSERT_TRUE(source) << all.back().workload << all.back().tree << ": " << source.reason();
    sources.push_back(std::move(source).value());
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  int stitched = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].workload + all[i].tree);
    const Workload& w = *schedules[i].workload;
    stitched += sources[i].text.find("put_several") != std::string::npos ? 1 : 0;
    const auto run = testing::run_cuda(*module, sources[i], w, 100 + i);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
    EXPECT_LT(run->error, w.dtype() == DType::f32 ? 1e-5 : w.dtype() == DType::f16 ? 2e-3 : 1.6e-2);
    EXPECT_EQ(run->bytes, testing::exact_bytes(schedules[i]))
        << testing::text(run->bytes)
        << "\nexact: " << testing::text(testing::exact_bytes(schedules[i]));
  }
  EXPECT_GT(stitched, 18);
}

TEST(PaddedWindows, DrawnOnesAreRight) { expect_right(drawn); }
TEST(PaddedWindows, ChannelsSideBySideAreRight) { expect_right(drawn_beside); }
TEST(PaddedWindows, GroupsOfFewChannelsAreRight) { expect_right(drawn_groups); }

/// Four points of a row read eight neighbours as two accesses, and nothing asks where they are.
TEST(PaddedWindows, NeighboursAreReadAsOneWithoutConditions) {
  const auto source = cuda::emit(
      schedule_of({"name: w\nloops: {b: 2, c: 3, y: 16, x: 56, r: 5, s: 5}\noperators:\n"
                   "  - conv: Y[b,c,y,x] += X[b,c,y+r-2,x+s-2] * W[c,r,s]\n"
                   "tensors: {X: [b, c, 16, 56], W: [c, r, s]}\n",
                   "b/1@grid c/1@grid ( L.X L.W y/4@warp x/4@lane r/1 s/1 ( C.conv ) )"}),
      {});
  ASSERT_TRUE(source) << source.reason();
  using ::testing::ContainsRegex;
  using ::testing::HasSubstr;
  using ::testing::Not;
  EXPECT_THAT(source->text, HasSubstr("get_several<4>(&X_shared_row"));
  EXPECT_THAT(source->text, HasSubstr("w < 8"));
  EXPECT_THAT(source->text, HasSubstr("put_several<2>(&X_shared["));
  EXPECT_THAT(source->text, Not(ContainsRegex("\\? X_shared")));
}

/// Rows that all blocks have whole come as four at once, though windows begin one element before.
TEST(PaddedWindows, WholeRowsComeFourAtOnce) {
  const auto source = cuda::emit(
      schedule_of(
          {"name: w\ndtype: f16\nloops: {b: 2, c: 3, y: 16, x: 56, r: 3, s: 3}\noperators:\n"
           "  - conv: Y[b,c,y,x] += X[b,c,y+r-1,x+s-1] * W[c,r,s]\n"
           "tensors: {X: [b, c, 16, 56], W: [c, r, s]}\n",
           "b/1@grid c/1@grid ( L.X L.W y/4@warp x/4@lane r/1 s/1 ( C.conv ) )"}),
      {});
  ASSERT_TRUE(source) << source.reason();
  using ::testing::HasSubstr;
  using ::testing::Not;
  EXPECT_THAT(source->text, HasSubstr("load_several<4>(&X_shared_fetched"));
  EXPECT_THAT(source->text, Not(HasSubstr("load_several<1>(&X_shared_fetched")));
}

/// One element is read of rows of two: it has no neighbour that comes with it.
TEST(PaddedWindows, RowsOfOneElementComeAlone) {
  const Schedule s =
      schedule_of({"name: w\nloops: {d: 6, b: 1}\noperators:\n"
                   "  - o: t[d] += x[d,2*b] * y[]\ntensors: {x: [d, 2]}\n",
                   "L.x@shared d/1@lane ( b/1 ( C.o ) )"});
  const auto source = cuda::emit(s, {.prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  const auto module = testing::build_cuda({*source});
  ASSERT_TRUE(module) << module.reason();
  const auto run = testing::run_cuda(*module, *source, *s.workload, 1);
  ASSERT_TRUE(run) << run.reason();
  EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
  EXPECT_LT(run->error, 1e-5);
  EXPECT_EQ(run->bytes, testing::exact_bytes(s)) << testing::text(run->bytes);
}

}  // namespace
}  // namespace tilewright
