// What a schedule takes at least, by which a search leaves schedules out, against what it takes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "core/workload/workload_file.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"
#include "tests/support/drawn_graphs.h"

namespace tilewright::stitching {
namespace {

struct Seen {
  int schedules = 0, violated = 0;
  double sum = 0, worst = 0;
};

/// Every schedule of the part.
void hold(const Graph& g, const Device& d, const Component& c, const std::string& what,
          Seen& seen) {
  const Options options;
  const Part part(g, d, c, options);
  for (const std::int64_t threads : threads_of(options))
    for (Part::Candidate& k : part.candidates(threads)) {
      if (!part.place(k)) continue;
      const double seconds = part.latency(k.schedule, threads);
      ++seen.schedules;
      seen.sum += k.least / seconds;
      seen.worst = std::max(seen.worst, k.least / seconds);
      if (k.least > seconds && seen.violated++ < 5)
        ADD_FAILURE() << what << ": " << k.text << ": at least " << k.least << ", takes "
                      << seconds;
    }
}

class Drawn {
 public:
  explicit Drawn(unsigned seed) : random_(seed) {}

  std::shared_ptr<const Workload> workload() {
    const int kind = pick(0, 4);
    if (kind == 0)
      return std::make_shared<const Workload>(workload_from_yaml(
          testing::GraphDrawer(static_cast<unsigned>(random_())).text(pick(2, 8)), "drawn"));
    static const std::vector<std::string> kRows = {
        "layernorm",   "layernorm-backward", "softmax",          "gelu",
        "column-norm", "cross-entropy",      "rmsnorm-backward", "swiglu"};
    if (kind == 1)
      return std::make_shared<const Workload>(named_workload(
          formatted("{}:rows={},cols={}",
                    kRows[static_cast<std::size_t>(pick(0, static_cast<int>(kRows.size()) - 1))],
                    size(100000), size(20000))));
    static const std::vector<std::string> kTypes = {"f32", "f16", "bf16", "f64"};
    return std::make_shared<const Workload>(named_workload(
        formatted("random-graph:vertices={},rows={},cols={},reach={},seed={},indices={},dtype={}",
                  pick(2, 12), size(4000), size(4000), pick(2, 8), pick(1, 1000000), pick(0, 1),
                  kTypes[static_cast<std::size_t>(pick(0, 3))])));
  }

  /// Neighbours, of one operator to six.
  Pattern pattern(const Graph& g) {
    const int first = pick(0, g.size() - 1), last = std::min(g.size() - 1, first + pick(0, 5));
    Pattern out;
    for (int v = first; v <= last; ++v) out.push_back(v);
    return out;
  }

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

 private:
  /// Of any order of magnitude, odd or not.
  int size(int most) {
    const int n = static_cast<int>(std::exp(
        std::uniform_real_distribution<double>(0, std::log(static_cast<double>(most)))(random_)));
    return pick(0, 1) == 0 ? std::max(1, n) : std::max(16, n / 16 * 16);
  }

  std::mt19937_64 random_;
};

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others.
TEST(Least, IsNoMoreThanAnyScheduleTakes) {
  const auto number = [](const char* name, int standard) {
    const char* text = std::getenv(name);
    return text ? std::atoi(text) : standard;
  };
  const int first = number("TILEWRIGHT_SEED", 100000), cases = number("TILEWRIGHT_CASES", 100);
  Seen seen;
  for (int seed = first; seed < first + cases; ++seed) {
    Drawn drawn(static_cast<unsigned>(seed));
    const std::string machine = std::vector<std::string>{
        "h200", "a100", "v100"}[static_cast<std::size_t>(drawn.pick(0, 2))];
    const Device device = [&] {
      Device d = device_of(named_machine(machine)).value();
      d.machine = std::make_shared<const Machine>(named_machine(machine));
      // Of small working sets L2 keeps a part.
      return drawn.pick(0, 1) == 0 ? d : with_working_set(std::move(d), drawn.pick(1, 100) * 1e6);
    }();
    const auto w = drawn.workload();
    const auto graph = Graph::create(w, ridge_of(device, {}));
    if (!graph) continue;
    for (int n = 0; n < 4; ++n) {
      const Pattern p = drawn.pattern(*graph);
      for (const auto& packing : packings_of(*graph, p, 64))
        for (const Component& c : packing)
          hold(*graph, device, c, formatted("seed {} on {}", seed, machine), seen);
    }
  }
  EXPECT_GT(seen.schedules, 20 * cases);
  std::cout << formatted(
      "{} schedules, {} below; {:.3f} of what they take on average, {:.3f} at most\n",
      seen.schedules, seen.violated, seen.sum / std::max(1, seen.schedules), seen.worst);
}

}  // namespace
}  // namespace tilewright::stitching
