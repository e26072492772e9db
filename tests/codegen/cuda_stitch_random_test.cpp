// Random graphs of rows under random trees whose loops are bound to warps, lanes and threads: each
// kernel that is emitted computes what the reference evaluator computes, moves the bytes that
// `exact` counts, and has nothing found in it.
#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/codegen/cuda_barriers.h"
#include "tests/support/random_stitched.h"

namespace tilewright {
namespace {

using testing::random_stitched::machine;
using testing::random_stitched::RowMaker;
using testing::random_stitched::WindowMaker;

struct Drawn {
  Schedule schedule;
  cuda::Source source;
};

/// Draws until `count` cases can be emitted.
template <class Make>
std::vector<Drawn> draw(std::mt19937_64& random, int count, const Make& make, int& refused,
                        int& illegal) {
  const char* const types[] = {"f32", "f16", "f32", "f64"};
  const auto on = machine();
  std::vector<Drawn> drawn;
  for (int tries = 0; tries < 100 * count && static_cast<int>(drawn.size()) < count; ++tries) {
    const std::size_t n = drawn.size();
    auto maker = make();
    try {
      const std::string text = maker.workload(types[n % 4]);
      auto w = std::make_shared<const Workload>(workload_from_yaml(text, "random"));
      auto schedule = resolve({.kernels = {maker.kernel()}}, w, on);
      if (!schedule.ok()) {
        ++illegal;
        if (std::getenv("TILEWRIGHT_SHOW") != nullptr) std::cout << schedule.reason() << "\n";
        continue;
      }
      auto source = cuda::emit(*schedule, {.warps = static_cast<int>(random() % 3),
                                           .warpgroups = n % 2 == 1,
                                           .prefix = "k" + std::to_string(n)});
      if (!source.ok()) {
        ++refused;
        if (std::getenv("TILEWRIGHT_SHOW") != nullptr) std::cout << source.reason() << "\n";
        continue;
      }
      drawn.push_back({std::move(schedule).value(), std::move(source).value()});
    } catch (const InputError& e) {
      ++illegal;
      if (std::getenv("TILEWRIGHT_SHOW") != nullptr) std::cout << e.what() << "\n";
    }
  }
  return drawn;
}

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others; TILEWRIGHT_SHOW prints what is refused.
template <class Make>
void run_batch(std::uint64_t seed, int count, bool gathers, const Make& make_from) {
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed = std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  std::mt19937_64 random(seed);
  int refused = 0, illegal = 0;
  const std::vector<Drawn> drawn = draw(
      random, count, [&] { return make_from(random); }, refused, illegal);
  ASSERT_EQ(static_cast<int>(drawn.size()), count);
  std::vector<cuda::Source> sources;
  for (const Drawn& d : drawn) sources.push_back(d.source);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  std::cout << "seed " << seed << ": " << count << " emitted, " << refused << " refused, "
            << illegal << " not legal\n";
  int gathering = 0, stitched = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Drawn& d = drawn[i];
    const Workload& w = *d.schedule.workload;
    // ptxas takes an address that it derives from another array's to move along with that one.
    EXPECT_EQ(d.source.text.find("*>(memory + "), std::string::npos) << d.source.text;
    EXPECT_EQ(d.source.text.find("*>(memory)"), std::string::npos) << d.source.text;
    stitched += d.source.text.find("_tile_layout") == std::string::npos;
    gathering += w.find_tensor("ids") ? 1 : 0;
    const auto run = testing::run_cuda(*module, d.source, w, seed + i);
    ASSERT_TRUE(run) << run.reason();
    const Kernel& k = d.schedule.resolved.kernels.front();
    const std::string what = "seed " + std::to_string(seed) + ", " + d.source.prefix + "\n" +
                             to_yaml(w) + to_text(k.tree);
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text << "\n" << what;
    EXPECT_LT(run->error, w.dtype() == DType::f64   ? 1e-12
                          : w.dtype() == DType::f32 ? 2e-5
                                                    : 4e-3)
        << what;
    EXPECT_EQ(run->bytes, testing::exact_bytes(d.schedule))
        << "the kernel moved\n"
        << testing::text(run->bytes) << "\nexact counts\n"
        << testing::text(testing::exact_bytes(d.schedule)) << "\n"
        << what;
    if (std::getenv("TILEWRIGHT_FIRST") != nullptr && ::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(stitched, 0);
  EXPECT_EQ(gathering > count / 2, gathers) << gathering;
}

/// Each barrier of drawn kernels left out.
template <class Make>
void leave_out(std::uint64_t seed, int count, const Make& make_from,
               testing::BarriersLeftOut& seen) {
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed += std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  std::mt19937_64 random(seed);
  int refused = 0, illegal = 0;
  const std::vector<Drawn> drawn = draw(
      random, count, [&] { return make_from(random); }, refused, illegal);
  std::vector<cuda::Source> sources;
  for (const Drawn& d : drawn) sources.push_back(d.source);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < drawn.size(); ++i)
    seen.look(*module, drawn[i].source, *drawn[i].schedule.workload, seed + i,
              "seed " + std::to_string(seed) + ", " + drawn[i].source.prefix + "\n" +
                  to_yaml(*drawn[i].schedule.workload) +
                  to_text(drawn[i].schedule.resolved.kernels.front().tree));
}

TEST(RandomStitched, BarriersLeftOutAreFound) {
  testing::BarriersLeftOut seen;
  leave_out(
      20281, 8, [](std::mt19937_64& random) { return RowMaker(random, false); }, seen);
  leave_out(
      20282, 5, [](std::mt19937_64& random) { return RowMaker(random, true); }, seen);
  leave_out(
      20283, 8, [](std::mt19937_64& random) { return WindowMaker(random); }, seen);
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 5);
}

TEST(RandomStitched, RowGraphs) {
  run_batch(20273, 40, false, [](std::mt19937_64& random) { return RowMaker(random, false); });
}
TEST(RandomStitched, Indices) {
  run_batch(20276, 40, false,
            [](std::mt19937_64& random) { return RowMaker(random, false, true); });
}
TEST(RandomStitched, Gathers) {
  run_batch(20274, 24, true, [](std::mt19937_64& random) { return RowMaker(random, true); });
}
TEST(RandomStitched, Windows) {
  run_batch(20275, 40, false, [](std::mt19937_64& random) { return WindowMaker(random); });
}

}  // namespace
}  // namespace tilewright
