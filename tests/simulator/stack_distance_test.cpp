// Does one pass give the misses of every size that walking each cache gives?
#include "simulator/stack_distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/base/error.h"

namespace tilewright {
namespace {

/// The stack as a list that is searched.
struct PlainStack {
  std::vector<std::vector<std::int64_t>> stacks;
  std::vector<DistanceCounts> counts;
  PlainStack(std::size_t sets, std::size_t tensors) : stacks(sets), counts(tensors) {}
  void touch(std::int64_t line, std::size_t tensor) {
    auto& stack = stacks[static_cast<std::size_t>(line) % stacks.size()];
    DistanceCounts& c = counts[tensor];
    const auto at = std::find(stack.begin(), stack.end(), line);
    if (at == stack.end()) {
      ++c.first;
    } else {
      const auto d = static_cast<std::size_t>(at - stack.begin());
      if (c.at.size() <= d) c.at.resize(d + 1, 0);
      ++c.at[d];
      stack.erase(at);
    }
    stack.insert(stack.begin(), line);
  }
};

TEST(StackDistances, AreThoseOfAListThatIsSearched) {
  for (const std::int64_t sets : {1, 3, 8}) {
    StackDistances s(Bytes(64), sets, 3);
    PlainStack plain(static_cast<std::size_t>(sets), 3);
    std::mt19937_64 random(static_cast<std::uint64_t>(sets));
    std::int64_t line = 0;
    for (int i = 0; i < 60000; ++i) {
      // Runs, jumps, and more lines than one deal of places.
      line = random() % 5 == 0 ? static_cast<std::int64_t>(random() % 3000)
                               : line + static_cast<std::int64_t>(random() % 3);
      const int tensor = static_cast<int>(random() % 3);
      s.access(line * 64 + 8, 4, tensor);
      plain.touch(line, static_cast<std::size_t>(tensor));
    }
    for (int t = 0; t < 3; ++t)
      EXPECT_EQ(s.counts(t), plain.counts[static_cast<std::size_t>(t)]) << sets << " sets";
  }
}

TEST(StackDistances, EveryAssociativityAtOnce) {
  std::mt19937_64 random(4);
  std::vector<std::int64_t> trace;
  for (int i = 0; i < 20000; ++i)
    trace.push_back(static_cast<std::int64_t>(random() % (random() % 2 ? 40 : 400)) * 64);
  for (const std::int64_t sets : {1, 4, 7}) {
    StackDistances s(Bytes(64), sets, 1);
    for (const std::int64_t a : trace) s.access(a, 8);
    std::int64_t before = s.total().touches() + 1;
    for (const std::int64_t ways : {1, 2, 3, 5, 8, 16, 17, 33, 64, 100}) {
      CacheHierarchy h({{.name = "L", .capacity = Bytes(64 * sets * ways), .ways = ways}});
      for (const std::int64_t a : trace) h.read(a, 8);
      EXPECT_EQ(s.total().misses(ways), h.total(0).misses) << sets << " sets, " << ways << " ways";
      EXPECT_LE(s.total().misses(ways), before) << "LRU includes its smaller self";
      before = s.total().misses(ways);
    }
  }
}

TEST(StackDistances, CallsEqualSingleAccesses) {
  StackDistances calls(Bytes(64), 3, 3), singles(Bytes(64), 3, 3);
  std::mt19937_64 random(9);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t address = below(20000), count = below(90) + 1;
    const std::int64_t size = std::array{1, 2, 4, 8, 12, 80}[static_cast<std::size_t>(below(6))];
    const int tensor = static_cast<int>(below(3));
    if (i % 3 == 0) {
      calls.elements(address, count, size, tensor);
      for (std::int64_t k = 0; k < count; ++k) singles.access(address + k * size, size, tensor);
    } else if (i % 3 == 1) {
      std::vector<Stream> streams;
      for (std::int64_t s = below(20); s >= 0; --s)
        streams.push_back({.address = 9000 + below(20000),
                           .stride = below(5) == 0 ? 0 : below(40) - 20,
                           .bytes = below(8) == 0 ? 70 : 4,
                           .tensor = static_cast<int>(below(3))});
      calls.streams(streams, count);
      for (std::int64_t k = 0; k < count; ++k)
        for (const Stream& s : streams) singles.access(s.address + k * s.stride, s.bytes, s.tensor);
    } else {
      calls.update(address, count * size, tensor);
      for (std::int64_t a = address; a < address + count * size; a = (a / 64 + 1) * 64) {
        singles.access(a, 1, tensor);
        singles.access(a, 1, tensor);
      }
    }
  }
  for (int t = 0; t < 3; ++t) EXPECT_EQ(calls.counts(t), singles.counts(t)) << "tensor " << t;
}

TEST(StackDistances, WhatCannotBe) {
  EXPECT_THROW(StackDistances(Bytes(48)), InputError);
  EXPECT_THROW(StackDistances(Bytes(64), 0), InputError);
  EXPECT_THROW(StackDistances(Bytes(64), 1, 0), InputError);
}

}  // namespace
}  // namespace tilewright
