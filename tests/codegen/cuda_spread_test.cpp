// Schedules that the model writes for rows of several loops, shared out to lanes and warps: does
// each compute what the reference evaluator computes, move the bytes that `exact` counts, without a
// fault found in it? Are most of the graphs drawn for this one kernel?
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/stitching/bound_tree.h"
#include "tests/codegen/cuda_support.h"
#include "tests/support/random_stitched.h"

namespace tilewright {
namespace {

namespace fs = stitching;

using testing::random_stitched::machine;

const fs::Device& device() {
  static const fs::Device d = *fs::device_of(named_machine("h200"));
  return d;
}

struct Made {
  std::string name;
  std::shared_ptr<const Workload> workload;
  fs::Graph graph;
};
Made made(const std::string& subject) {
  const bool file = subject.find('\n') != std::string::npos;
  auto w = std::make_shared<const Workload>(file ? workload_from_yaml(subject, "test")
                                                 : named_workload(subject));
  fs::Graph g = *fs::Graph::create(w, fs::ridge_of(device(), {}));
  return {subject, std::move(w), std::move(g)};
}

fs::Pattern whole(const fs::Graph& g) {
  fs::Pattern all;
  for (int v = 0; v < g.size(); ++v) all.push_back(v);
  return all;
}

/// About `most` of the whole graph's schedules that share rows' loops out, over their ranking.
std::vector<fs::StitchedKernel> spread_schedules(const fs::Graph& g, std::size_t most) {
  std::vector<fs::StitchedKernel> all = fs::ranked(g, device(), whole(g), {});
  std::erase_if(all, [](const fs::StitchedKernel& k) {
    return std::ranges::all_of(k.parts,
                               [](const fs::Stitched& s) { return s.spread == fs::Spread::turns; });
  });
  std::vector<fs::StitchedKernel> some;
  for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / most))
    some.push_back(all[i]);
  return some;
}

struct Tally {
  int graphs = 0, whole = 0, emitted = 0, refused = 0;
};

void check(const std::vector<std::string>& subjects, std::size_t most, Tally& tally) {
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  for (const std::string& subject : subjects) {
    const Made m = made(subject);
    ++tally.graphs;
    bool one = false;
    for (const fs::StitchedKernel& k : spread_schedules(m.graph, most)) {
      const fs::PlanPrice price{.kernels = {k}, .patterns = {whole(m.graph)}};
      const fs::WrittenPlan written = fs::write_plan(m.graph, device(), price, machine());
      SCOPED_TRACE(subject + ", " + to_text(written.plan.kernels.front().tree));
      EXPECT_EQ(written.unbound.front(), "");
      auto s = resolve(written.plan, m.workload, machine());
      ASSERT_TRUE(s.ok()) << s.reason();
      const std::string prefix = "k" + std::to_string(sources.size());
      auto source = cuda::emit(*s, {.prefix = prefix});
      if (!source) {
        ++tally.refused;
        std::cout << subject << "\n  " << to_text(written.plan.kernels.front().tree) << "\n  "
                  << source.reason() << "\n";
        continue;
      }
      one = true;
      schedules.push_back(std::move(s).value());
      sources.push_back(std::move(source).value());
    }
    tally.whole += one ? 1 : 0;
  }
  tally.emitted += static_cast<int>(sources.size());
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Workload& w = *schedules[i].workload;
    SCOPED_TRACE(w.name() + ": " + sources[i].text.substr(0, 3000));
    const auto run = testing::run_cuda(*module, sources[i], w, 100 + i);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
    EXPECT_LT(run->error, w.dtype() == DType::f32 ? 1e-5 : 2e-3);
    EXPECT_EQ(run->bytes, testing::exact_bytes(schedules[i]))
        << testing::text(run->bytes)
        << "\nexact: " << testing::text(testing::exact_bytes(schedules[i]));
  }
}

/// Sizes that 32, 4 and the number of warps divide, and sizes that nothing divides.
TEST(Spread, BuiltInGraphs) {
  Tally tally;
  check({"attention-unit:batch=2,items=128,width=64,rows=50",
         "attention-unit:batch=2,items=100,width=18,rows=50",
         "attention-unit:batch=3,items=37,width=7,gather=0",
         "attention-unit:batch=2,items=9,width=40,rows=30,dtype=f16",
         "groupnorm:batch=2,groups=3,channels=5,size=150",
         "groupnorm:batch=2,groups=3,channels=4,size=64"},
        6, tally);
  EXPECT_GE(tally.emitted, 30);
  EXPECT_EQ(tally.refused, 0);
}

/// Weights are read once by each block.
TEST(Spread, SmallProducts) {
  const auto gate = [](int n, int c, int j) {
    return "name: gate\nloops: {n: " + std::to_string(n) + ", c: " + std::to_string(c) +
           ", j: " + std::to_string(j) +
           "}\noperators:\n  - z[n,j] += mean[n,c] * W1[c,j]\n  - a[n,j] = relu(z[n,j])\n"
           "  - e[n,c] += a[n,j] * W2[j,c]\n  - g[n,c] = sigmoid(e[n,c])\noutputs: [g]\n";
  };
  Tally tally;
  check({gate(3, 256, 16), gate(2, 50, 6), gate(5, 33, 33)}, 8, tally);
  EXPECT_GE(tally.emitted, 20);
  EXPECT_EQ(tally.refused, 0);
}

/// A graph over rows b of items t and features d: element-wise operators, broadcasts, and sums and
/// maxima over either loop or both, read by later operators.
class Draft {
 public:
  explicit Draft(std::uint64_t seed) : random_(seed) {}

  std::string text() {
    const int items = one_of({2, 5, 12, 33, 70}), width = one_of({3, 4, 18, 32, 40});
    std::string out = "name: drawn\nloops: {b: 3, t: " + std::to_string(items) +
                      ", d: " + std::to_string(width) + "}\noperators:\n";
    const int count = 3 + pick(7);
    made_.push_back("o[b,t,d]");
    out += "  - o[b,t,d] = x[b,t,d] * q[b,d]\n";
    for (int i = 0; i < count; ++i) out += "  - " + op(i) + "\n";
    return out;
  }

 private:
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  int one_of(std::vector<int> all) {
    return all[static_cast<std::size_t>(pick(static_cast<int>(all.size())))];
  }

  /// A tensor whose indices are among these: made before, more often than not, or an input.
  std::string operand(const std::string& loops) {
    std::vector<std::string> all;
    for (const char* input : {"x[b,t,d]", "u[b,t]", "q[b,d]", "w[d]", "s[b]", "p[t,d]"}) {
      const std::string text = input;
      if (fits(text, loops)) all.push_back(text);
    }
    std::vector<std::string> own;
    for (const std::string& t : made_)
      if (fits(t, loops)) own.push_back(t);
    if (!own.empty() && pick(3) > 0) all = std::move(own);
    return all[static_cast<std::size_t>(pick(static_cast<int>(all.size())))];
  }
  static bool fits(const std::string& access, const std::string& loops) {
    for (std::size_t i = access.find('[') + 1; access[i] != ']'; ++i)
      if (access[i] != ',' && loops.find(access[i]) == std::string::npos) return false;
    return true;
  }

  std::string op(int i) {
    const std::string name = "o" + std::to_string(i);
    if (pick(2) == 0) {
      const std::string read = pick(4) > 0 ? "btd" : pick(2) ? "bt" : "bd";
      const std::string into =
          read != "btd"
              ? "b"
              : std::vector<std::string>{"bt", "bd", "b"}[static_cast<std::size_t>(pick(3))];
      const std::string text = (pick(3) ? " += " : " max= ") + whole(read) + " * " + operand(read);
      return made_.emplace_back(name + indices(into)) + text;
    }
    const std::vector<std::string> all = {"btd", "btd", "bt", "bd", "b"};
    const std::string loops = all[static_cast<std::size_t>(pick(5))];
    const std::string a = operand(loops), b = operand(loops);
    const std::string text = pick(3) ? a + " - " + b : "tanh(" + a + ") * " + b;
    return made_.emplace_back(name + indices(loops)) + " = " + text;
  }
  /// An operand with just these indices, so that the operator has them as its loops.
  std::string whole(const std::string& loops) {
    for (std::size_t i = made_.size(); i-- > 0;)
      if (made_[i].ends_with(indices(loops)) && pick(2)) return made_[i];
    return loops == "btd" ? "x[b,t,d]" : loops == "bt" ? "u[b,t]" : "q[b,d]";
  }
  static std::string indices(const std::string& loops) {
    std::string out = "[";
    for (char c : loops) out += (out.size() > 1 ? "," : "") + std::string(1, c);
    return out + "]";
  }

  std::mt19937_64 random_;
  std::vector<std::string> made_;
};

TEST(Spread, DrawnGraphs) {
  const char* const asked = std::getenv("TILEWRIGHT_SEED");
  const char* const cases = std::getenv("TILEWRIGHT_CASES");
  const std::uint64_t seed = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 4711;
  const int count = cases != nullptr ? std::atoi(cases) : 24;
  std::vector<std::string> subjects;
  for (std::uint64_t i = 0; subjects.size() < static_cast<std::size_t>(count); ++i) {
    std::string drawn = Draft(seed + i).text();
    const fs::Graph g = made(drawn).graph;
    const auto parts = fs::components_of(g, whole(g), fs::Options{}.most_operators);
    // One part, of which a kernel can be; where its blocks add their parts of sums, rows are not
    // spread.
    if (parts && parts->size() == 1 && parts->front().partial.empty())
      subjects.push_back(std::move(drawn));
  }
  Tally tally;
  check(subjects, 2, tally);
  std::cout << "seed " << seed << ": " << tally.whole << " of " << tally.graphs
            << " graphs are one kernel; " << tally.emitted << " emitted, " << tally.refused
            << " refused\n";
  EXPECT_GE(tally.whole * 5, tally.graphs * 4);
}

}  // namespace
}  // namespace tilewright
