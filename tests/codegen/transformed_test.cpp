// Convolutions by minimal filtering: taps, channels, rows, images, paddings, groups and tiles are
// drawn, in f32 and f64, and what follows the sums.
#include <gmock/gmock.h>

#include <limits>
#include <random>

#include "core/base/format.h"
#include "core/lowering/window_transform.h"
#include "core/workload/text.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

struct Drawn {
  std::string text, tree;
  bool f64 = false;
  int threads = 1;
};

/// A sum over channels and taps, with what may follow it.
Drawn drawn(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  const std::int64_t n = pick(1, 2), g = pick(0, 3) == 0 ? 2 : 1, o = pick(20, 80);
  constexpr std::pair<int, int> kTaps[] = {{3, 3}, {3, 3}, {3, 3}, {5, 5}, {2, 2},
                                           {1, 3}, {5, 1}, {3, 5}, {2, 3}};
  const auto [down, across] = kTaps[static_cast<std::size_t>(pick(0, 8))];
  const std::int64_t c = std::max(down, across) > 3 ? pick(64, 90) : pick(32, 60), y = pick(4, 29),
                     x = pick(4, 41);
  const std::int64_t above = pick(0, std::min(down - 1, 2));
  const std::int64_t before = pick(0, std::min(across - 1, 2));
  const bool followed = pick(0, 2) > 0, joined = followed && pick(0, 1) == 1;
  const auto index = [&](const char* point, const char* tap, std::int64_t begin) {
    return formatted("{}+{}{}", point, tap, begin > 0 ? "-" + std::to_string(begin) : "");
  };
  // Behind the last tap there may be nothing, too.
  const std::int64_t h = y + down - 1 - above - pick(0, down - 1);
  const std::int64_t w = x + across - 1 - before - pick(0, across - 1);
  Drawn d{.f64 = pick(0, 3) == 0, .threads = static_cast<int>(pick(1, 2))};
  d.text = formatted(
      "name: transformed\ndtype: {}\nloops: {{n: {}, g: {}, o: {}, y: {}, x: {}, c: {}, r: {}, q: "
      "{}}}\ntensors: {{X: [n, g, c, {}, {}]}}\noperators:\n"
      "  - \"sums: C[n,g,o,y,x] += X[n,g,c,{},{}] * W[g,o,c,r,q]\"\n",
      d.f64 ? "f64" : "f32", n, g, o, y, x, c, down, across, h, w, index("y", "r", above),
      index("x", "q", before));
  if (followed)
    d.text += formatted("  - \"after: D[n,g,o,y,x] = max(C[n,g,o,y,x] + b[g,o]{}, 0)\"\n",
                        joined ? " + R[n,g,o,y,x]" : "");
  const auto tile = [&](std::int64_t extent, std::int64_t most) {
    return pick(0, 1) == 1 ? extent : pick(std::min(extent, most), extent);
  };
  const std::int64_t rows = pick(0, 1) == 1 ? o : std::min<std::int64_t>(o, 12 * pick(2, 4));
  d.tree = formatted("n/1 g/1 o/{} y/{} x/{} ( C.sums {})", rows, tile(y, 4),
                     pick(0, 3) > 0 ? x : tile(x, 6), followed ? "C.after " : "");
  if (pick(0, 3) > 0) return d;
  // What puts the rows behind others has tiles that begin within a group of them.
  const std::int64_t before_them = pick(1, 70), all = o + before_them + pick(0, 20);
  const std::size_t at = d.text.find("o: ");
  d.text.insert(at, formatted("i: {}, ", all));
  d.text += formatted("  - \"moved: E[n,g,i,y,x] = {}[n,g,i-{},y,x] * 2\"\n", followed ? "D" : "C",
                      before_them);
  d.tree = formatted("n/1 g/1 i/{} ( C.sums {}C.moved )", std::min(all, 8 * pick(2, 8)),
                     followed ? "C.after " : "");
  return d;
}

Schedule schedule_of(const std::string& text, const std::string& tree) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(text, "test"));
  auto s = resolve(Plan{.kernels = {{.tree = parse_tree(tree)}}}, w,
                   testing::cached(*testing::worked_machine("scratchpad:4M")));
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

/// Tensors after a run.
template <class Real>
testing::Arrays<Real> results_of(const Workload& w, const cpu::Source& source, cpu::Kernel& kernel,
                                 const TensorValues& inputs) {
  testing::Arrays<Real> arrays(w, inputs);
  std::vector<std::byte> kept(static_cast<std::size_t>(source.kept_bytes));
  kernel.prepare(arrays.pointers(), kept.data());
  kernel.run(arrays.pointers(), kept.data());
  return arrays;
}

TEST(Transformed, ComputesWhatIsDrawn) {
  std::vector<cpu::Source> sources;
  std::vector<Schedule> schedules;
  std::vector<Drawn> cases;
  int transformed = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed)
    for (const cpu::Isa isa : {cpu::Isa::avx2, cpu::Isa::avx512}) {
      if (!cpu::host_runs(isa)) continue;
      cases.push_back(drawn(seed));
      SCOPED_TRACE(cases.back().text + cases.back().tree);
      schedules.push_back(schedule_of(cases.back().text, cases.back().tree));
      auto source = cpu::emit(schedules.back(), {.isa = isa,
                                                 .threads = cases.back().threads,
                                                 .prefix = "k" + std::to_string(sources.size()),
                                                 .constant = {"W"}});
      ASSERT_TRUE(source.ok()) << source.reason();
      transformed += source->text.find(" convolve_transformed<") != std::string::npos ? 1 : 0;
      sources.push_back(std::move(source).value());
    }
  if (sources.empty()) GTEST_SKIP() << "no vectors on this processor";
  EXPECT_GT(3 * transformed, 2 * static_cast<int>(sources.size()));
  auto kernels = cpu::build_all(sources, {.optimisation = "-O1"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Workload& w = *schedules[i].workload;
    const TensorValues inputs = random_inputs(w, i);
    const auto error = [&](const auto& arrays) {
      return testing::worst_error(w, arrays, evaluate(w, inputs));
    };
    cpu::Kernel& kernel = kernels.value()[i];
    EXPECT_LT(cases[i].f64 ? error(results_of<double>(w, sources[i], kernel, inputs))
                           : error(results_of<float>(w, sources[i], kernel, inputs)),
              cases[i].f64 ? 1e-13 : 1e-5)
        << cpu::name_of(sources[i].isa) << "\n"
        << cases[i].text << cases[i].tree;
  }
}

/// A point takes nothing of elements outside of its own taps: beside infinity and beside 1e30 what
/// sees zeros alone is zero.
class Taps : public ::testing::TestWithParam<int> {};
TEST_P(Taps, PointsTakeTheirOwnAlone) {
  if (!cpu::host_runs(cpu::Isa::avx2)) GTEST_SKIP() << "not run by this processor";
  const int taps = GetParam(), before = (taps - 1) / 2, behind = taps - 1 - before;
  const Schedule s =
      schedule_of(formatted("name: far\nloops: {{o: 24, y: 13, x: 18, c: 64, r: {}, q: {}}}\n"
                            "tensors: {{X: [c, 13, 18]}}\noperators:\n"
                            "  - \"sums: C[o,y,x] += X[c,y+r-{},x+q-{}] * W[o,c,r,q]\"\n",
                            taps, taps, before, before),
                  "o/24 y/13 x/18 ( C.sums )");
  const Workload& w = *s.workload;
  auto source = cpu::emit(s, {.isa = cpu::Isa::avx2, .constant = {"W"}});
  ASSERT_TRUE(source.ok()) << source.reason();
  ASSERT_THAT(source->text, ::testing::HasSubstr(" convolve_transformed<"));
  auto kernel = cpu::build(*source, {.optimisation = "-O1"});
  ASSERT_TRUE(kernel.ok()) << kernel.reason();
  TensorValues inputs = random_inputs(w, 1);
  const TensorId image = *w.find_tensor("X"), sums = *w.find_tensor("C");
  for (const double far : {1e30, std::numeric_limits<double>::infinity()})
    for (const auto& [row, column] : {std::pair(4, 6), {5, 7}, {0, 17}, {12, 0}}) {
      auto& values = inputs[image.index()];
      std::ranges::fill(values, 0.0);
      values[static_cast<std::size_t>((3 * 13 + row) * 18 + column)] = far;
      auto got = results_of<float>(w, *source, kernel.value(), inputs);
      const auto points = got.arrays[sums.index()].values();
      for (int y = 0; y < 13; ++y)
        for (int x = 0; x < 18; ++x) {
          const auto within = [&](int from, int to) {
            return to - from >= -before && to - from <= behind;
          };
          const bool sees = within(y, row) && within(x, column);
          EXPECT_EQ(points[static_cast<std::size_t>(y * 18 + x)] == 0, !sees)
              << far << " " << row << " " << column << ": " << y << " " << x;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Transformed, Taps, ::testing::Values(3, 5));

/// Groups of rows begin where tiles do, bands are all of the tiles, and twice the channels take
/// about twice as long.
TEST(Transformed, BandsAreOfTheTile) {
  for (const std::int64_t begins : {0, 8, 18, 7})
    for (const double side : {7.0, 14.0, 27.0, 56.0}) {
      TransformedWindow w{.rows = begins > 0 ? static_cast<double>(begins) : 50,
                          .width = side,
                          .height = side,
                          .channels = 32,
                          .begins = begins,
                          .lanes = 8,
                          .registers = 16};
      const TransformedBands bands = bands_of_transformed(w);
      const auto down = static_cast<std::int64_t>(std::ceil(side / 2));
      EXPECT_GE(bands.tiles * bands.bands, down);
      EXPECT_LT(bands.tiles * (bands.bands - 1), down);
      const auto across = static_cast<std::int64_t>(std::ceil(side / 2));
      const TransformedBlock block = block_of_transformed(w, (bands.tiles * across + 7) / 8);
      EXPECT_EQ(bands.rows % block.rows, 0);
      EXPECT_EQ(begins % block.rows, 0);
      EXPECT_LE(block.rows * block.vectors + block.vectors, 15);
      TransformedWindow twice = w;
      twice.channels = 64;
      EXPECT_GT(bands_of_transformed(twice).cycles, 1.5 * bands.cycles);
      EXPECT_LT(bands_of_transformed(twice).cycles, 2.5 * bands.cycles);
    }
}

}  // namespace
}  // namespace tilewright
