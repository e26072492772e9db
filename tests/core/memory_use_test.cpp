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

struct Tree {
  const char *loops, *operators, *tree;
  std::vector<std::string> sliding = {};
  const char* tensors = "";
};

/// What one iteration leaves for the next is met where it is most: no two neighbours among the
/// first ones, a middle one and the last had it.
TEST(MemoryUse, WhatAnIterationLeavesToTheNext) {
  const Tree trees[] = {
      // After the first iterations, as the filter is there by then.
      {"x1: 13, r1: 1, x2: 13, r2: 1, x3: 6, r3: 3",
       "T1[x1] += T0[x1+r1] * W1[r1]; T2[x2] += T1[x2+r2] * W2[r2]; T3[x3] += T2[2*x3+r3] * W3[r3]",
       "x3/1 ( ( r1/1 ( L.W1@L1 x1/5@vector r1/1 x1/1 ( L.T0@L1x2 C.T1 ) ) x2/1@vector r2/1 "
       "( C.T2 ) ) r3/3 r3/3@unroll ( L.W3@L1 C.T3 ) )"},
      // Where padding clips neither.
      {"x1: 6, r1: 1, x2: 6, r2: 1, x3: 7, r3: 2",
       "T1[x1] += T0[x1+r1] * W1[r1]; T2[x2] += T1[x2+r2] * W2[r2]; T3[x3] += T2[x3+r3-1] * W3[r3]",
       "x1/6 x1/6 ( L.W1@L1 x3/1 x3/1 ( x1/1@vector r1/1 ( C.T1 ) r3/1 ( x2/2 ( L.W2@L1 C.T2 ) "
       "r3/1 "
       "( C.T3 ) ) ) )"},
      // After two of which each slid on from the one before.
      {"x1: 9, r1: 3, x2: 9, r2: 1, x3: 7, r3: 3",
       "T1[x1] += T0[2*x1+r1-1] * W1[r1]; T2[x2] += T1[x2+r2] * W2[r2]; T3[x3] += T2[x3+r3] * "
       "W3[r3]",
       "x3/1@unroll ( L.W1@L1 x2/9 ( r1/1 ( L.T0@L1 r1/1 r1/1 ( C.T1 ) ) r2/1 x2/3 r2/1 ( C.T2 ) ) "
       "x3/1 r3/3 r3/2 x3/1 ( C.T3 ) )",
       {"T1", "T2"}},
      // Where the range that padding clips is known further in alone.
      {"c0: 1, y1: 3, r1: 3, x1: 2, s1: 1, c1: 3, y2: 5, r2: 3, x2: 2, s2: 3, c2: 3, y3: 6, r3: 2, "
       "x3: 1, s3: 2, c3: 4",
       "T1[c1,y1,x1] += T0[c0,y1+r1,x1+s1] * W1[c1,c0,r1,s1]; T2[c2,y2,x2] += "
       "T1[c1,y2+r2-2,x2+s2-1] * W2[c2,c1,r2,s2]; T3[c3,y3,x3] += T2[c2,y3+r3-1,x3+s3] * "
       "W3[c3,c2,r3,s3]",
       "y3/1 ( L.T0@L1 c1/2 ( L.W1@L1 c0/1 s1/1 c0/1 r1/1 y1/1 ( C.T1 ) ) x3/1 ( y2/2 r2/1 x2/1 "
       "y2/2 c2/2 ( C.T2 ) y3/1 ( c3/1 y3/1 ( C.T3 ) S.T3@DRAM ) ) )",
       {},
       "tensors: {T0: [c0, 5, 2], T1: [c1, y1, x1], T2: [c2, y2, x2], T3: [c3, y3, x3]}\n"}};
  for (const Tree& t : trees) {
    SCOPED_TRACE(t.tree);
    std::string text = std::string("loops: {") + t.loops + "}\n" + t.tensors + "operators:\n";
    for (std::string_view rest = t.operators; !rest.empty();) {
      const std::size_t end = rest.find("; ");
      text += "  - \"" + std::string(rest.substr(0, 2)) + ": " + std::string(rest.substr(0, end)) +
              "\"\n";
      rest = end == rest.npos ? "" : rest.substr(end + 2);
    }
    const auto w = std::make_shared<const Workload>(workload_from_yaml(text, "windows"));
    const auto machine = std::make_shared<const Machine>(named_machine("scratchpad:1K"));
    Kernel k{.name = "k", .level = "L1", .tree = parse_tree(t.tree)};
    for (const std::string& tensor : t.sliding) k.flags[tensor].sliding = true;
    const Result<Schedule> s = resolve({.kernels = {k}}, w, machine);
    ASSERT_TRUE(s) << s.reason();
    EXPECT_GE(memory_use(*s).at("L1").value, walked(*s));
  }
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
