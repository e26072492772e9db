// Is every element at one address of its own, tiles contiguous, and what is tiled as documented?
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/plan/stream.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using testing::kChain;
using testing::kConv;

Schedule scheduled(const std::string& workload, const std::string& tree,
                   std::map<std::string, std::int64_t> tiles = {},
                   std::map<std::string, Pin> pins = {}) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(workload, "test"));
  auto m = std::make_shared<const Machine>(parse_synthetic_machine("cache:32K/8"));
  const Plan plan{.kernels = {{.tree = parse_tree(tree), .tiles = tiles, .pins = pins}}};
  auto s = resolve(plan, w, m);
  EXPECT_TRUE(s.ok()) << s.reason();
  return s.value();
}

const std::map<std::string, std::int64_t> kSteps{{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}};
constexpr const char* kMlkn = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )";

using Runs = std::vector<std::pair<std::int64_t, std::int64_t>>;
Runs runs(const AddressMap& map, TensorId t, const Box& box) {
  Runs list;
  map.runs(t, box, [&](std::int64_t a, std::int64_t bytes) { list.emplace_back(a, bytes); });
  return list;
}

/// By element of the whole tensor, row order: its offset in elements.
std::vector<std::int64_t> offsets(const AddressMap& map, const Workload& w, TensorId t) {
  std::vector<std::int64_t> list;
  const Tensor& tensor = w.tensor(t);
  for (std::int64_t i = 0; i < tensor.shape[0]; ++i)
    for (std::int64_t j = 0; j < tensor.shape[1]; ++j) {
      const Runs r = runs(map, t, Box{{i, i + 1}, {j, j + 1}});
      EXPECT_EQ(r.size(), 1u);
      EXPECT_EQ(r[0].second, 4);
      list.push_back((r[0].first - map.base(t)) / 4);
    }
  return list;
}

TEST(AddressMap, TiledIsABijectionWithoutGaps) {
  const Schedule s = scheduled(kChain, kMlkn, kSteps);
  const AddressMap map(s, Layout::tiled);
  const Workload& w = *s.workload;
  for (const char* name : {"A", "B", "D", "E"}) {
    const TensorId t = *w.find_tensor(name);
    ASSERT_TRUE(map.tiled(t)) << name;
    const auto list = offsets(map, w, t);
    const std::set<std::int64_t> distinct(list.begin(), list.end());
    EXPECT_EQ(distinct.size(), list.size()) << name;
    EXPECT_EQ(*distinct.begin(), 0);
    EXPECT_EQ(*distinct.rbegin(), static_cast<std::int64_t>(list.size()) - 1) << name;
  }
  const Bytes packed = map.packing_bytes();
  EXPECT_EQ(packed, 2 * (Bytes(4) * (10 * 7 + 7 * 9 + 9 * 6 + 10 * 6)));
}

TEST(AddressMap, EveryTileIsOneRun) {
  const Schedule s = scheduled(kChain, kMlkn, kSteps);
  const AddressMap map(s, Layout::tiled);
  const AddressMap plain(s, Layout::row_major);
  EXPECT_EQ(plain.packing_bytes(), Bytes(0));
  int seen = 0;
  walk(s, [&](const AccessEvent& e) {
    if (e.kind != AccessKind::read && e.kind != AccessKind::update) return;
    const BufferId array = map.array_of(e.kernel, e.buffer);
    const bool on_chip = s.workload->tensor(e.tensor).name == "C";
    EXPECT_EQ(array.valid(), on_chip);
    if (on_chip) return;
    ++seen;
    const Runs one = runs(map, e.tensor, e.box);
    ASSERT_EQ(one.size(), 1u) << to_text(e.box);
    EXPECT_EQ(one[0].second, e.box.size() * 4);
    std::int64_t bytes = 0;
    for (const auto& [a, n] : runs(plain, e.tensor, e.box)) bytes += n;
    EXPECT_EQ(bytes, e.box.size() * 4);
  });
  EXPECT_GT(seen, 20);
}

TEST(AddressMap, ABoxOverSeveralTilesIsTheUnionOfItsElements) {
  const Schedule s = scheduled(kChain, kMlkn, kSteps);
  const AddressMap map(s, Layout::tiled);
  const TensorId a = *s.workload->find_tensor("A");
  for (const Box& box :
       {Box{{1, 9}, {2, 7}}, Box{{0, 10}, {0, 7}}, Box{{3, 4}, {3, 5}}, Box{{4, 8}, {4, 7}}}) {
    std::multiset<std::int64_t> by_runs, by_elements;
    for (const auto& [address, bytes] : runs(map, a, box))
      for (std::int64_t i = 0; i < bytes; i += 4) by_runs.insert(address + i);
    for (std::int64_t i = box[0].lo; i < box[0].hi; ++i)
      for (std::int64_t j = box[1].lo; j < box[1].hi; ++j)
        by_elements.insert(runs(map, a, Box{{i, i + 1}, {j, j + 1}})[0].first);
    EXPECT_EQ(by_runs, by_elements) << to_text(box);
  }
  EXPECT_TRUE(runs(map, a, Box{{3, 3}, {0, 7}}).empty());
}

TEST(AddressMap, RowMajorIsAsDeclaredFromTheArenaOn) {
  const Schedule s = scheduled(kChain, kMlkn, kSteps);
  const AddressMap map(s, Layout::row_major);
  const Workload& w = *s.workload;
  const TensorId a = *w.find_tensor("A"), b = *w.find_tensor("B");
  EXPECT_EQ(map.base(a), AddressMap::kArena);
  EXPECT_EQ(map.base(b), AddressMap::kArena + 4096);
  EXPECT_EQ(runs(map, a, Box{{2, 4}, {3, 5}}), (Runs{{AddressMap::kArena + (2 * 7 + 3) * 4, 8},
                                                     {AddressMap::kArena + (3 * 7 + 3) * 4, 8}}));
  // Whole rows lie end to end.
  EXPECT_EQ(runs(map, a, Box{{2, 4}, {0, 7}}), (Runs{{AddressMap::kArena + 2 * 7 * 4, 56}}));
  EXPECT_EQ(map.base(*w.find_tensor("C")), 0);  // never at home
}

TEST(AddressMap, OnChipIntermediatesAreArraysOfTheirTile) {
  const Schedule s = scheduled(kChain, kMlkn, kSteps);
  const AddressMap map(s, Layout::tiled);
  const TensorId c = *s.workload->find_tensor("C");
  std::int64_t base = -1;
  walk(s, [&](const AccessEvent& e) {
    if (e.kind != AccessKind::update || e.tensor != c) return;
    map.packed_runs(e.kernel, map.array_of(e.kernel, e.buffer), e.tile, e.box,
                    [&](std::int64_t a, std::int64_t bytes) {
                      if (base < 0) base = a;
                      EXPECT_EQ(a, base);
                      EXPECT_EQ(bytes, e.box.size() * 4);
                    });
  });
  EXPECT_GE(base, map.base(*s.workload->find_tensor("E")) + 60 * 4);
  EXPECT_LE(base + 90 * 4, map.end());
}

TEST(AddressMap, ASpilledTensorIsAtHome) {
  const Schedule s = scheduled(kChain, kMlkn, kSteps, {{"C", Pin{.level = "dram"}}});
  const AddressMap map(s, Layout::tiled);
  const TensorId c = *s.workload->find_tensor("C");
  EXPECT_GE(map.base(c), AddressMap::kArena);
  EXPECT_TRUE(map.tiled(c));
}

TEST(AddressMap, HalosStayRowMajor) {
  const char* const conv2d = R"yaml(
loops: {o: 8, y: 12, x: 12, r: 3, s: 3, c: 4}
operators: ["O[o,y,x] += I[c,y+r,x+s] * W[o,c,r,s]"]
)yaml";
  const Schedule s = scheduled(conv2d, "o/4 y/4 x/4 c/2 ( C.O )");
  const AddressMap map(s, Layout::tiled);
  const Workload& w = *s.workload;
  EXPECT_FALSE(map.tiled(*w.find_tensor("I")));
  EXPECT_TRUE(map.tiled(*w.find_tensor("O")));
  EXPECT_TRUE(map.tiled(*w.find_tensor("W")));  // o and c are cut, r and s are not
}

TEST(AddressMap, TilesThatDifferBetweenOperatorsStayRowMajor) {
  const char* const two = R"yaml(
loops: {m: 12, k: 12}
operators: ["f: P[m,k] = 2 * X[m,k]", "g: Q[m,k] = 3 * X[m,k]"]
)yaml";
  const Schedule s = scheduled(two, "( m/4 k/4 ( C.f ) m/3 k/4 ( C.g ) )");
  const AddressMap map(s, Layout::tiled);
  const Workload& w = *s.workload;
  EXPECT_FALSE(map.tiled(*w.find_tensor("X")));
  EXPECT_TRUE(map.tiled(*w.find_tensor("P")));
  EXPECT_TRUE(map.tiled(*w.find_tensor("Q")));
}

TEST(AddressMap, CutsThatDoNotFallTogetherStayRowMajorAndRowsNeedNoTiling) {
  const char* const copy = R"yaml(
loops: {m: 12, k: 12}
operators: ["f: P[m,k] = 2 * X[m,k]"]
)yaml";
  const auto tiled = [&](const char* tree) {
    const Schedule s = scheduled(copy, tree);
    return AddressMap(s, Layout::tiled).tiled(*s.workload->find_tensor("X"));
  };
  EXPECT_TRUE(tiled("m/6 k/4 m/3 ( C.f )"));
  EXPECT_FALSE(tiled("m/6 k/4 m/4 ( C.f )"));
  EXPECT_FALSE(tiled("m/4 ( C.f )"));      // whole rows: as declared already
  EXPECT_FALSE(tiled("m/1 k/4 ( C.f )"));  // pieces of one row: as declared already
}

TEST(AddressMap, TilesFollowRangesThatConsumersGive) {
  // f's x has no loop of its own: what g needs, piece by piece, cuts it.
  const char* const renamed = R"yaml(
loops: {x: 12, k: 8, y: 12}
operators: ["f: P[x,k] = 2 * X[x,k]", "g: Q[y] += P[y,k] * Z[y,k]"]
)yaml";
  const Schedule s = scheduled(renamed, "y/4 k/2 ( C.f C.g )");
  const AddressMap map(s, Layout::tiled);
  EXPECT_TRUE(map.tiled(*s.workload->find_tensor("Z")));
  EXPECT_TRUE(map.tiled(*s.workload->find_tensor("X")));
  walk(s, [&](const AccessEvent& e) {
    if (e.kind != AccessKind::read || s.workload->tensor(e.tensor).name != "X") return;
    EXPECT_EQ(runs(map, e.tensor, e.box).size(), 1u) << to_text(e.box);
  });
}

TEST(AddressMap, ThreeDimensionsScalarsAndOtherTypes) {
  const char* const work = R"yaml(
dtype: f16
loops: {a: 5, b: 7, c: 9}
operators: ["f: S[] = 2 * one[]", "g: P[a,b,c] = S[] * X[a,b,c]"]
outputs: [P]
)yaml";
  const Schedule s = scheduled(work, "( C.f a/2 b/3 c/4 ( C.g ) )");
  const AddressMap map(s, Layout::tiled);
  const Workload& w = *s.workload;
  EXPECT_EQ(runs(map, *w.find_tensor("one"), Box(0)), (Runs{{map.base(*w.find_tensor("one")), 2}}));
  const TensorId x = *w.find_tensor("X");
  std::set<std::int64_t> seen;
  walk(s, [&](const AccessEvent& e) {
    if (e.kind != AccessKind::read || e.tensor != x) return;
    const Runs r = runs(map, x, e.box);
    ASSERT_EQ(r.size(), 1u);
    EXPECT_EQ(r[0].second, 2 * e.box.size());
    for (std::int64_t i = 0; i < r[0].second; i += 2) seen.insert(r[0].first + i);
  });
  EXPECT_EQ(seen.size(), 5u * 7 * 9);
  EXPECT_EQ(*seen.rbegin() - *seen.begin(), 2 * (5 * 7 * 9 - 1));
}

}  // namespace
}  // namespace tilewright
