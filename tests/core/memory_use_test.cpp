// memory_use beside a walk over every iteration: drawn trees of windows that padding clips.
// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

#include "core/plan/stream.h"
#include "core/workload/text.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// Of one kernel on one level without units: the most bytes that are there together, when each
/// buffer takes its largest tile from a tile's first touch to its last.
std::int64_t walked(const Schedule& s) {
  struct Life {
    std::int64_t from, to;
    Box tile;
  };
  std::map<BufferId, std::vector<Life>> lives;
  std::map<BufferId, std::int64_t> largest;
  std::int64_t time = 0;
  walk(s, [&](const AccessEvent& e) {
    if (e.kind == AccessKind::load || e.kind == AccessKind::compute || e.kind == AccessKind::store)
      ++time;
    if (e.kind != AccessKind::load && e.kind != AccessKind::store && e.kind != AccessKind::read &&
        e.kind != AccessKind::update)
      return;
    std::vector<Life>& own = lives[e.buffer];
    if (own.empty() || own.back().tile != e.tile) own.push_back({time, time, e.tile});
    own.back().to = time;
    largest[e.buffer] = std::max(largest[e.buffer], e.tile.size());
  });
  std::map<std::int64_t, std::int64_t> changes;
  for (const auto& [buffer, own] : lives)
    for (const Life& life : own) {
      const std::int64_t bytes =
          largest[buffer] * size_of(s.workload->tensor(s.kernels[0].buffer(buffer).tensor).dtype);
      changes[life.from] += bytes, changes[life.to + 1] -= bytes;
    }
  std::int64_t now = 0, most = 0;
  for (const auto& [at, bytes] : changes) most = std::max(most, now += bytes);
  return most;
}

TEST(MemoryUse, IsNoLessThanWhatAWalkFinds) {
  std::mt19937_64 random(static_cast<unsigned>(setting("TILEWRIGHT_SEED", 301127)));
  int trees = 0, same = 0;
  for (int i = 0; i < setting("TILEWRIGHT_CASES", 1500); ++i) {
    testing::RandomOptions o{.max_extent = 9};
    o.grid = o.units = o.two_levels = o.drops = o.kernels = false;
    o.planes = i % 4 != 0;
    const auto c = testing::random_case(random, o);
    if (!c || c->plan.kernels.size() != 1) continue;
    try {
      const Result<Schedule> s = resolve(c->plan, c->workload, c->machine);
      if (!s) continue;
      std::int64_t held = 0;
      for (const auto& [level, bytes] : memory_use(*s)) held = std::max(held, bytes.value);
      const std::int64_t there = walked(*s);
      EXPECT_GE(held, there) << testing::describe(*c);
      walk(*s, [&](const AccessEvent& e) {
        if (e.kind != AccessKind::compute) return;
        const auto ranges = ranges_of(*s, s->kernels[0], *e.ranges, e.op);
        EXPECT_LE(touched_bytes(*s->workload, e.op, ranges).value, held) << testing::describe(*c);
      });
      ++trees, same += held == there;
    } catch (const InputError&) {
      continue;  // no tree of this workload
    }
  }
  std::cout << trees << " trees, of which " << same << " hold what a walk finds\n";
  EXPECT_GE(trees, 100);
  EXPECT_GE(same, trees * 4 / 5);
}

/// A window of four elements that moves by two over five of X, of which padding has `before`.
Bytes of_windows(int windows, int before, const std::string& tree) {
  const std::string text = "loops: {x: " + std::to_string(windows) +
                           ", r: 4}\ntensors: {X: [5], F: [r], Y: [x]}\noperators:\n  - \"conv: "
                           "Y[x] += X[2*x + r - " +
                           std::to_string(before) + "] * F[r]\"\n";
  const auto w = std::make_shared<const Workload>(workload_from_yaml(text, "windows"));
  const auto machine = std::make_shared<const Machine>(named_machine("scratchpad:1K"));
  const Result<Schedule> s =
      resolve({.kernels = {{.name = "k", .level = "L1", .tree = parse_tree(tree)}}}, w, machine);
  return memory_use(*s).at("L1");
}

/// The largest tile, of four elements, is the third of six: not the first, second, middle or last.
TEST(MemoryUse, WindowsThatPaddingClipsInTheMiddle) {
  EXPECT_EQ(of_windows(6, 4, "x/1 ( C.conv )"), Bytes(4 * (4 + 4 + 1)));
}

/// It is the second of four. What is unrolled is one unit's.
TEST(MemoryUse, UnrolledLoopsAreNoUnits) {
  for (const char* tree : {"x/1 ( C.conv )", "x/1@unroll ( C.conv )", "x/1@vector ( C.conv )"})
    EXPECT_EQ(of_windows(4, 2, tree), Bytes(4 * (4 + 4 + 1))) << tree;
}

}  // namespace
}  // namespace tilewright
