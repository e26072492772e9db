#include "core/workload/box.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tilewright {
namespace {

std::set<std::vector<std::int64_t>> points(const Box& b) {
  std::set<std::vector<std::int64_t>> out;
  if (b.empty()) return out;
  std::vector<std::int64_t> p;
  for (const Interval& i : b) p.push_back(i.lo);
  for (;;) {
    out.insert(p);
    int d = b.rank() - 1;
    while (d >= 0 && ++p[static_cast<std::size_t>(d)] == b[d].hi) {
      p[static_cast<std::size_t>(d)] = b[d].lo;
      --d;
    }
    if (d < 0) return out;
  }
}

TEST(Box, SizesAndText) {
  const Box b{{0, 4}, {2, 7}};
  EXPECT_EQ(b.size(), 20);
  EXPECT_EQ(to_text(b), "[0,4)x[2,7)");
  EXPECT_EQ(Box(0).size(), 1);
  EXPECT_EQ(to_text(Box(0)), "[]");
  EXPECT_TRUE((Box{{3, 3}, {0, 9}}).empty());
}

TEST(Box, HullAndIntersection) {
  const Box a{{0, 2}, {0, 2}};
  const Box b{{1, 5}, {1, 3}};
  EXPECT_EQ(hull(a, b), (Box{{0, 5}, {0, 3}}));
  EXPECT_EQ(intersect(a, b), (Box{{1, 2}, {1, 2}}));
  EXPECT_EQ(hull(a, Box{{7, 7}, {0, 1}}), a);
  EXPECT_TRUE(contains(hull(a, b), a));
  EXPECT_FALSE(contains(a, b));
}

TEST(NewPart, HandCases) {
  EXPECT_EQ(new_part(Box{{0, 6}, {0, 4}}, Box{{4, 10}, {0, 4}}), (Box{{6, 10}, {0, 4}}));
  EXPECT_EQ(new_part(Box{{4, 10}}, Box{{0, 6}}), (Box{{0, 4}}));
  // Several dimensions, no overlap, or held inside: all of it.
  EXPECT_EQ(new_part(Box{{0, 6}, {0, 4}}, Box{{4, 10}, {4, 8}}), (Box{{4, 10}, {4, 8}}));
  EXPECT_EQ(new_part(Box{{0, 4}}, Box{{4, 8}}), (Box{{4, 8}}));
  EXPECT_EQ(new_part(Box{{2, 4}}, Box{{0, 8}}), (Box{{0, 8}}));
  EXPECT_EQ(new_part(Box{{0, 0}}, Box{{0, 8}}), (Box{{0, 8}}));
  // Nothing new, also where several dimensions shrank.
  EXPECT_TRUE(new_part(Box{{0, 8}, {0, 8}}, Box{{2, 4}, {3, 4}}).empty());
  EXPECT_TRUE(new_part(Box{{0, 8}}, Box{{0, 8}}).empty());
}

TEST(NewPart, IsExactlyWhatIsMissingOrEverything) {
  const unsigned seed = 20240611;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> coordinate(0, 5);
  const auto interval = [&] {
    const std::int64_t lo = coordinate(random);
    return Interval{lo, lo + coordinate(random)};
  };
  int partial = 0;
  for (int i = 0; i < 5000; ++i) {
    const int rank = 1 + i % 3;
    Box held(rank);
    Box now(rank);
    int differ = 0;
    for (int d = 0; d < rank; ++d) {
      held[d] = interval();
      now[d] = coordinate(random) < 3 ? held[d] : interval();
      differ += held[d] == now[d] ? 0 : 1;
    }
    const Box fresh = new_part(held, now);
    if (fresh == now) {
      const bool keepable = differ <= 1 && !held.empty() && !now.empty() &&
                            !intersect(held, now).empty();
      for (int d = 0; d < rank; ++d)
        EXPECT_TRUE(!keepable || held[d] == now[d] ||
                    (now[d].lo < held[d].lo && now[d].hi > held[d].hi));
      continue;
    }
    ++partial;
    std::set<std::vector<std::int64_t>> want = points(now);
    for (const auto& p : points(held)) want.erase(p);
    EXPECT_EQ(points(fresh), want) << to_text(held) << " " << to_text(now);
  }
  EXPECT_GT(partial, 100);
}

}  // namespace
}  // namespace tilewright
