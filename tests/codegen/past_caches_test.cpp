// Outputs that are written past the caches: which ones, and that they are right wherever rows
// begin.
#include "core/lowering/past_caches.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "tests/codegen/kernel_support.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

Schedule schedule_of(const std::string& workload, const std::string& tree, const std::string& tiles,
                     const std::string& machine) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(workload, "test"));
  const Kernel k{.tree = parse_tree(tree), .tiles = parse_tiles(tiles)};
  auto s = resolve(Plan{.kernels = {k}}, w, testing::worked_machine(machine));
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

/// By tensor's name: whether it is stored past the caches.
std::map<std::string, bool> past(const Schedule& s) {
  std::map<std::string, bool> found;
  const ScheduledKernel& k = s.kernels.front();
  for (std::size_t b = 0; b < k.buffers.size(); ++b)
    found[s.workload->tensor(k.buffers[b].tensor).name] = stored_past_caches(s, k, BufferId(b));
  return found;
}

/// Runs it on every instruction set here, by one thread and by two. Returns the first source whose
/// instruction set has vectors.
template <class Real>
std::optional<std::string> check(const Schedule& s, double tolerance) {
  std::vector<cpu::Source> sources;
  std::optional<std::string> vectors;
  for (cpu::Isa isa : testing::isas_here())
    for (int threads : {1, 2}) {
      auto source = cpu::emit(
          s, {.isa = isa, .threads = threads, .prefix = "k" + std::to_string(sources.size())});
      if (!source.ok()) throw std::runtime_error(source.reason());
      if (isa != cpu::Isa::generic && !vectors) vectors = source.value().text;
      sources.push_back(std::move(source).value());
    }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  if (!kernels.ok()) throw std::runtime_error(kernels.reason());
  const Workload& w = *s.workload;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TensorValues inputs = random_inputs(w, 5);
    testing::Arrays<Real> arrays(w, inputs);
    kernels.value()[i].run(arrays.pointers());
    EXPECT_LT(testing::worst_error(w, arrays, evaluate(w, inputs)), tolerance)
        << cpu::name_of(sources[i].isa) << ", " << sources[i].threads << " threads, "
        << to_text(s.resolved.kernels.front().tree) << " " << to_yaml(w);
  }
  return vectors;
}

bool says(const std::optional<std::string>& text, const std::string& what) {
  return !text || text->find(what) != std::string::npos;
}

constexpr const char* kPoints =
    "name: t\nloops: {m: 60, n: 70}\noperators:\n"
    "  - \"T[m,n] = X[m,n] * 2 + b[n]\"\n  - \"Y[m,n] = relu(T[m,n])\"\n";

TEST(PastCaches, OnlyWhatTheLastCacheCannotHold) {
  const std::string tree = "m ( C.T C.Y )";
  const auto at = [&](const std::string& machine) {
    return past(schedule_of(kPoints, tree, "m=7", machine));
  };
  EXPECT_TRUE(at("cache:16K/8").at("Y"));  // of 16,800 B, beside as many that are read
  EXPECT_TRUE(at("cache:32K/8").at("Y"));
  EXPECT_FALSE(at("cache:34K/17").at("Y"));  // less than half of the cache
  EXPECT_FALSE(at("cache:1M/16").at("Y"));
  EXPECT_FALSE(at("cache:4K/8,1M/16").at("Y"));  // the last cache decides
  EXPECT_FALSE(at("cache:16K/8").at("T"));       // it stays
  EXPECT_FALSE(at("cache:16K/8").at("X"));
  EXPECT_FALSE(at("scratchpad:16K").at("Y"));
}

TEST(PastCaches, NotWhatIsSummedUp) {
  const std::string w =
      "name: t\nloops: {m: 60, n: 70, k: 9}\noperators:\n  - \"C[m,n] += A[m,k] * B[k,n]\"\n";
  EXPECT_FALSE(past(schedule_of(w, "m k ( C.C )", "m=7,k=3", "cache:16K/8")).at("C"));
}

TEST(PastCaches, RowsBeginAnywhere) {
  std::mt19937 random(20261127);
  const auto drawn = [&](int least, int most) {
    return std::to_string(std::uniform_int_distribution(least, most)(random));
  };
  for (int round = 0; round < 4; ++round) {
    const std::string n = round == 0 ? "64" : drawn(33, 150);
    const std::string loops = "loops: {m: " + drawn(20, 50) + ", n: " + n + "}\n";
    const std::string tiles = "m=" + drawn(3, 25);
    const Schedule plain = schedule_of("name: t\ndtype: f32\n" + loops +
                                           "operators:\n  - \"T[m,n] = X[m,n] * 2 + b[n]\"\n"
                                           "  - \"Y[m,n] = relu(T[m,n])\"\n",
                                       "m ( C.T C.Y )", tiles, "cache:4K/8");
    const auto text = check<float>(plain, 1e-5);
    EXPECT_TRUE(says(text, "store_past(&")) << n;
    EXPECT_TRUE(says(text, "_mm_sfence();")) << n;
    EXPECT_EQ(says(text, "= before_vector("), n != "64") << n;
    // Columns in tiles, two outputs, doubles.
    const Schedule cut = schedule_of("name: t\ndtype: f64\n" + loops +
                                         "operators:\n  - \"Y[m,n] = X[m,n] - r[m]\"\n"
                                         "  - \"Z[m,n] = X[m,n] * b[n]\"\noutputs: [Y, Z]\n",
                                     "m n ( C.Y C.Z )", tiles + ",n=" + drawn(9, 33), "cache:4K/8");
    EXPECT_TRUE(says(check<double>(cut, 1e-12), "store_past(&")) << n;
  }
}

// Vectors of every second and third element are put together of those that lie there.
TEST(PastCaches, RowsThatAreReadInSteps) {
  for (const int step : {2, 3}) {
    const std::string by = std::to_string(step);
    const Schedule s = schedule_of(
        "name: t\ndtype: f32\nloops: {m: 40, n: 45, k: " + std::to_string(44 * step + 2) +
            "}\ntensors: {X: [m, k], T: [m, k]}\noperators:\n"
            "  - \"T[m,k] = relu(X[m,k])\"\n"
            "  - \"Y[m,n] = T[m," +
            by + "*n+1]\"\n",
        "m ( C.T C.Y )", "m=7", "cache:4K/8");
    const auto text = check<float>(s, 1e-5);
    EXPECT_TRUE(says(text, "= before_vector(")) << step;
    EXPECT_TRUE(says(text, "between<" + by + ">(")) << step;
  }
}

TEST(PastCaches, BehindAProduct) {
  const Schedule s = schedule_of(
      "name: t\nloops: {m: 37, l: 45, k: 19}\noperators:\n  - \"C[m,l] += A[m,k] * B[k,l]\"\n"
      "  - \"Y[m,l] = relu(C[m,l] + b[l])\"\n",
      "m l ( k ( C.C ) C.Y )", "m=10,l=17,k=19", "cache:8K/8");
  EXPECT_TRUE(past(s).at("Y"));
  check<float>(s, 1e-5);
}

}  // namespace
}  // namespace tilewright
