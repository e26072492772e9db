// Bounds of trees that fewest_bytes searches, beside `exact` and memory_use: drawn trees of drawn
// workloads. TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others.
#include "models/quickest/nests.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "core/plan/schedule.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "models/model.h"
#include "tests/support/random_trees.h"

namespace tilewright::quickest {
namespace {

using Ptr = std::shared_ptr<const Workload>;

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct Draw {
  std::mt19937_64 random;
  std::int64_t upto(std::int64_t n) {  ///< 1 to n
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  }
  bool one_in(int n) { return upto(n) == 1; }
};

/// A convolution with padding and strides, perhaps with what follows each point.
Ptr window(Draw& draw) {
  const std::int64_t h = draw.upto(7), taps = draw.upto(4), stride = draw.upto(3),
                     dilation = draw.upto(2), pad = draw.upto(3) - 1;
  const std::int64_t size = std::max<std::int64_t>(1, (h - 1) * stride + draw.upto(4) - 1);
  const auto n = [](std::int64_t x) { return std::to_string(x); };
  std::string text = "loops: {o: " + n(draw.upto(4)) + ", i: " + n(draw.upto(4)) + ", h: " + n(h) +
                     ", w: " + n(draw.upto(5)) + ", r: " + n(taps) + ", s: 2}\ntensors: {X: [4, " +
                     n(size) + ", 6]}\noperators:\n  - \"conv: Y[o,h,w] += X[i, " + n(stride) +
                     "*h + " + n(dilation) + "*r - " + n(pad) + ", w + s] * F[o,i,r,s]\"\n";
  if (draw.one_in(2)) text += "  - \"bias: Z[o,h,w] = relu(Y[o,h,w] + B[o])\"\n";
  try {
    return std::make_shared<const Workload>(workload_from_yaml(text, "drawn"));
  } catch (const InputError&) {
    return nullptr;
  }
}

Cuts cuts_of(Draw& draw, const Workload& w, std::vector<LoopId> loops, std::size_t most) {
  std::ranges::shuffle(loops, draw.random);
  Cuts cuts;
  for (LoopId l : loops) {
    if (cuts.size() >= most || draw.one_in(3)) continue;
    cuts.push_back({l, draw.one_in(2) ? 1 : draw.upto(w.loop(l).extent)});
    // The same loop again, further in.
    if (draw.one_in(4) && cuts.back().step > 1) cuts.push_back({l, draw.upto(cuts.back().step)});
  }
  return cuts;
}

Nests nests_of(Draw& draw, const Workload& w) {
  Nests t;
  std::vector<LoopId> all;
  for (std::size_t l = 0; l < w.loops().size(); ++l) all.emplace_back(l);
  t.outer = cuts_of(draw, w, all, static_cast<std::size_t>(draw.upto(5)) - 1);
  for (OpId op : w.topological_order()) {
    if (!t.runs.empty() && draw.one_in(2)) {
      t.runs.back().ops.push_back(op);
      continue;
    }
    t.runs.push_back({{op}, cuts_of(draw, w, w.op(op).loops, 8)});
  }
  for (std::size_t i = 0; i < w.tensors().size(); ++i)
    if (const TensorId id(i); (w.is_input(id) || w.is_output(id)) && draw.one_in(3))
      t.kept.insert(id);
  return t;
}

TEST(Nests, BoundsAreNoMoreThanWhatIsCounted) {
  const auto machine = std::make_shared<const Machine>(named_machine("scratchpad:1G"));
  Draw draw{std::mt19937_64(static_cast<unsigned>(setting("TILEWRIGHT_SEED", 301126)))};
  int trees = 0, same = 0, alone = 0, held_same = 0, exact_moved = 0, exact_held = 0;
  for (int i = 0; i < setting("TILEWRIGHT_CASES", 150); ++i) {
    Ptr w;
    if (draw.one_in(2)) {
      w = window(draw);
    } else {
      testing::RandomOptions o{.max_extent = 9};
      o.planes = draw.one_in(3), o.einsums = draw.one_in(3), o.gathers = draw.one_in(4);
      if (const auto c = testing::random_case(draw.random, o)) w = c->workload;
    }
    if (w == nullptr) continue;
    Bounds bounds(*w);
    for (int n = 0; n < 20; ++n) {
      const Nests t = nests_of(draw, *w);
      const Bounds::Least moved = bounds.moved(t), held = bounds.held(t);
      const Kernel k = kernel_of(t, *w, "L1");
      try {
        const Result<Schedule> s = resolve({.kernels = {k}}, w, machine);
        if (!s) continue;
        const Traffic traffic = exact(*s);
        const TrafficEntry all = traffic.total("DRAM/L1");
        const std::int64_t counted = (all.read + all.written).value;
        const std::int64_t holds = traffic.memory.at("L1").value;
        const std::string tree = to_text(k.tree) + "\n" + to_yaml(*w);
        EXPECT_LE(moved.bytes, counted) << tree;
        EXPECT_LE(held.bytes, holds) << tree;
        EXPECT_TRUE(!moved.exact || moved.bytes == counted)
            << moved.bytes << " " << counted << tree;
        EXPECT_TRUE(!held.exact || held.bytes == holds) << held.bytes << " " << holds << tree;
        ++trees;
        exact_moved += moved.exact, exact_held += held.exact;
        held_same += held.bytes == holds;
        if (w->operators().size() == 1) ++alone, same += moved.bytes == counted;
      } catch (const InputError&) {
        continue;  // no tree of this workload
      }
    }
  }
  std::cout << trees << " trees; of " << alone << " of one operator " << same
            << " move what the bound says; " << held_same
            << " hold what it says; known to be exact: " << exact_moved << " and " << exact_held
            << "\n";
  EXPECT_GE(trees, 200);
  EXPECT_GE(same, alone * 3 / 4);
  EXPECT_GE(held_same, trees / 3);
}

/// Worked by hand: C[m,l] += A[m,k] B[k,l], m = 10, l = 9, k = 7.
TEST(Nests, BoundsOfAProduct) {
  const Workload w = named_workload("gemm:m=10,n=9,k=7");
  const auto loop = [&](const char* name) { return *w.find_loop(name); };
  Bounds bounds(w);
  Nests t{.runs = {{{OpId(0)}, {}}}};
  t.outer = {{loop("m"), 4}, {loop("n"), 5}, {loop("k"), 4}};
  // A is loaded for each block of columns, B for each block of rows, C written once.
  EXPECT_EQ(bounds.moved(t).bytes, 4 * (2 * 70 + 3 * 63 + 90));
  EXPECT_EQ(bounds.held(t).bytes, 4 * (4 * 4 + 4 * 5 + 4 * 5));
  // Sums go on after other blocks: all but the first read back what was written.
  t.outer = {{loop("k"), 4}, {loop("m"), 4}, {loop("n"), 5}};
  EXPECT_EQ(bounds.moved(t).bytes, 4 * (70 + 3 * 63 + 2 * 90 + 90));
}

}  // namespace
}  // namespace tilewright::quickest
