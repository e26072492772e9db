// Convolutions of whole numbers of 8 bits: the very numbers of the reference with and without
// instructions that add four or two of them. Channels, outputs, groups, taps, strides, dilations,
// paddings and tiles are drawn, and whether a sum is stored or goes on to a number of 8 bits.
#include <gmock/gmock.h>

#include <random>

#include "core/lowering/byte_products.h"
#include "models/exact/exact.h"
#include "tests/codegen/byte_kernels.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

struct Drawn {
  std::string text, tree;
  bool followed = false;
};

std::string text_of(std::int64_t n) { return std::to_string(n); }

/// A sum over channels and taps, of groups and images, and what it becomes.
Drawn drawn(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  const std::int64_t n = pick(1, 2), g = pick(0, 2) == 0 ? pick(2, 3) : 1, o = pick(4, 40);
  const std::int64_t c = pick(2, 23), r = pick(1, 3), q = pick(1, 3), step = pick(1, 3);
  const std::int64_t apart = pick(1, 2), p = pick(1, 12), w = pick(1, 37);
  const std::int64_t above = pick(0, r - 1) * apart, before = pick(0, q - 1) * apart;
  // Behind the last window there may be nothing, too.
  const auto image = [&](std::int64_t points, std::int64_t taps, std::int64_t begin) {
    return std::max<std::int64_t>(
        1, (points - 1) * step + (taps - 1) * apart + 1 - begin - pick(0, 2));
  };
  const auto index = [&](const std::string& point, const std::string& tap, std::int64_t begin) {
    return (step == 1 ? "" : text_of(step) + "*") + point + "+" +
           (apart == 1 ? "" : text_of(apart) + "*") + tap + (begin > 0 ? "-" + text_of(begin) : "");
  };
  Drawn d{.followed = pick(0, 1) == 1};
  d.text =
      "name: bytes\ndtype: f32\nloops: {n: " + text_of(n) + ", g: " + text_of(g) +
      ", o: " + text_of(o) + ", y: " + text_of(p) + ", x: " + text_of(w) + ", c: " + text_of(c) +
      ", r: " + text_of(r) + ", q: " + text_of(q) + "}\ntensors: {X: [n, g, c, " +
      text_of(image(p, r, above)) + ", " + text_of(image(w, q, before)) +
      "]}\ndtypes: {X: i8, W: i8" + (d.followed ? ", D: i8" : "") + "}\nranges: {X: 127, W: 127" +
      (d.followed ? ", s: 0.001" : "") + "}\noperators:\n  - \"sums: C[n,g,o,y,x] += X[n,g,c," +
      index("y", "r", above) + "," + index("x", "q", before) + "] * W[g,o,c,r,q]\"\n" +
      (d.followed ? "  - \"after: D[n,g,o,y,x] = round(min(max(C[n,g,o,y,x] * s[o] + 0.25, "
                    "-128), 127))\"\n"
                  : "");
  const auto tile = [&](std::int64_t extent) {
    return text_of(pick(0, 1) ? extent : pick(1, extent));
  };
  // A tile of some of the channels is computed in f32.
  const std::string channels = text_of(pick(0, 3) ? c : pick(1, c));
  d.tree = "n/" + tile(n) + " g/" + tile(g) + " o/" + tile(o) + " y/" + tile(p) + " x/" +
           text_of(w) + " ( c/" + channels + " ( C.sums )" + (d.followed ? " C.after )" : " )");
  return d;
}

TEST(ByteConvolutions, AreTheSameNumbersOnEveryInstructionSet) {
  std::vector<cpu::Isa> isas = testing::isas_here();
  for (const cpu::Isa isa : {cpu::Isa::avx512_vnni, cpu::Isa::amx_int8})
    if (cpu::host_runs(isa)) isas.push_back(isa);
  std::vector<cpu::Source> sources;
  std::vector<Schedule> schedules;
  std::vector<Drawn> cases;
  int together = 0, in_tiles = 0;
  for (std::uint64_t seed = 1; seed <= 14; ++seed)
    for (const cpu::Isa isa : isas) {
      cases.push_back(drawn(seed));
      SCOPED_TRACE(cases.back().text + cases.back().tree);
      const auto w =
          std::make_shared<const Workload>(workload_from_yaml(cases.back().text, "test"));
      auto s = resolve(Plan{.kernels = {Kernel{.tree = parse_tree(cases.back().tree)}}}, w,
                       testing::worked_machine("cache:1M/16"));
      ASSERT_TRUE(s.ok()) << s.reason();
      schedules.push_back(std::move(s).value());
      auto source = cpu::emit(
          schedules.back(),
          {.isa = isa, .prefix = "k" + std::to_string(sources.size()), .constant = {"W"}});
      ASSERT_TRUE(source.ok()) << source.reason();
      together += source->text.find("void convolve_bytes(") != std::string::npos ? 1 : 0;
      in_tiles += source->text.find("convolve_bytes<16, 2") != std::string::npos ? 1 : 0;
      sources.push_back(std::move(source).value());
    }
  if (cpu::host_runs(cpu::Isa::avx512_vnni) || cpu::host_runs(cpu::Isa::avx2)) {
    EXPECT_GT(together, 6);
  }
  if (cpu::host_runs(cpu::Isa::amx_int8)) {
    EXPECT_GT(in_tiles, 2);
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O1"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SCOPED_TRACE(std::string(cpu::name_of(sources[i].isa)) + "\n" + cases[i].text + cases[i].tree);
    const Workload& w = *schedules[i].workload;
    EXPECT_TRUE(multiplies_bytes(w));
    expect_whole_numbers(w, sources[i], kernels.value()[i], i, cases[i].followed);
  }
}

}  // namespace
}  // namespace tilewright
