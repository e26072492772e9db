// Is a set of loops the set it says, with few loops and with many, and its complement too?
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "models/stitching/loop_set.h"

namespace tilewright::stitching {
namespace {

constexpr int kLoops = 200;

struct Both {
  LoopSet set;
  std::vector<bool> has = std::vector<bool>(kLoops);
};

Both drawn(std::mt19937_64& random, int below) {
  Both b;
  for (int i = 0; i < 12; ++i) {
    const std::size_t loop = random() % static_cast<std::size_t>(below);
    b.set.add(loop);
    b.has[loop] = true;
  }
  return b;
}

void expect_equal(const Both& b) {
  for (int l = 0; l < kLoops; ++l)
    EXPECT_EQ(b.set.has(l), b.has[static_cast<std::size_t>(l)]) << l;
}

TEST(LoopSet, IsASetOfAnyNumberOfLoops) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    const Both a = drawn(random, i % 2 == 0 ? 60 : kLoops), b = drawn(random, i % 3 == 0 ? 60 : kLoops);
    Both all{a.set | b.set, a.has}, shared{a.set & b.set, a.has}, but{a.set & ~b.set, a.has};
    std::set<std::size_t> listed, expected;
    for (std::size_t l = 0; l < kLoops; ++l) {
      all.has[l] = a.has[l] || b.has[l];
      shared.has[l] = a.has[l] && b.has[l];
      but.has[l] = a.has[l] && !b.has[l];
      if (a.has[l]) expected.insert(l);
    }
    expect_equal(all);
    expect_equal(shared);
    expect_equal(but);
    a.set.each([&](std::size_t l) { listed.insert(l); });
    EXPECT_EQ(listed, expected);
    EXPECT_EQ(~~a.set, a.set);
    EXPECT_EQ(a.set & ~a.set, LoopSet());
    EXPECT_TRUE((a.set & ~a.set).empty());
    EXPECT_FALSE(a.set.empty());
    EXPECT_TRUE(LoopSet::all().has(kLoops * 10));
    EXPECT_EQ(LoopSet::all() & a.set, a.set);
  }
}

}  // namespace
}  // namespace tilewright::stitching
