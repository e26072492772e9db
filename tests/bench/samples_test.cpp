// The median, the order of turns, and questions to a child process.
#include "bench/samples.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/child.h"

namespace tilewright::bench {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({1, 100, 2, 4}), 3);
  EXPECT_EQ(median({3, 3, 1000, 3, 1}), 3);
  EXPECT_THROW(median({}), std::invalid_argument);
}

TEST(GeometricMean, OfRatios) {
  EXPECT_DOUBLE_EQ(geometric_mean({2, 8}), 4);
  EXPECT_DOUBLE_EQ(geometric_mean({0.5}), 0.5);
  EXPECT_THROW(geometric_mean({}), std::invalid_argument);
  EXPECT_THROW(geometric_mean({1, 0}), std::invalid_argument);
}

/// Contestants that write their letter and return 1, 2, 3, ... each.
struct Logged {
  std::string log;
  std::vector<Contestant> contestants;

  explicit Logged(const std::string& letters) {
    for (char letter : letters)
      contestants.push_back(
          {.name = std::string(1, letter), .sample = [this, letter, n = 0]() mutable {
             log += letter;
             return static_cast<double>(++n);
           }});
  }
};

TEST(Interleave, TakesTurnsAndTheFirstMovesOn) {
  Logged l("abc");
  const auto samples = interleave(l.contestants, {.rounds = 3, .turn_seconds = 0});
  EXPECT_EQ(l.log,
            "aabbcc"
            "bbccaa"
            "ccaabb");
  for (const Samples& s : samples)  // the first of each pair warms up
    EXPECT_EQ(s.values, (std::vector<double>{2, 4, 6}));
}

TEST(Interleave, RecordsEveryCallOfOneThatNeedsNoWarmUp) {
  Logged l("ab");
  l.contestants[0].warm_up = false;
  const auto samples = interleave(l.contestants, {.rounds = 2, .turn_seconds = 0});
  EXPECT_EQ(l.log,
            "abb"
            "bba");
  EXPECT_EQ(samples[0].values, (std::vector<double>{1, 2}));
  EXPECT_EQ(samples[1].values, (std::vector<double>{2, 4}));
}

TEST(Interleave, SettlesBeforeEachTurn) {
  Logged l("ab");
  interleave(l.contestants, {.rounds = 2, .turn_seconds = 0, .settle = [&] { l.log += '.'; }});
  EXPECT_EQ(l.log, ".aa.bb.bb.aa");
}

TEST(Interleave, RepeatsASampleForATurn) {
  int calls = 0;
  const std::vector<Contestant> one{{.name = "sleeper", .sample = [&] {
                                       std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                       return static_cast<double>(++calls);
                                     }}};
  const auto samples = interleave(one, {.rounds = 1, .turn_seconds = 0.02});
  EXPECT_GE(samples[0].count(), 2U);
  EXPECT_LE(samples[0].count(), 11U);  // 2 ms each at least
  EXPECT_EQ(samples[0].count() + 1, static_cast<std::size_t>(calls));
}

TEST(Interleave, WhoIsFarTooSlowSitsTheRestOut) {
  Logged l("a");
  l.contestants.push_back({.name = "slow", .sample = [] {
                             std::this_thread::sleep_for(std::chrono::milliseconds(3));
                             return 1.0;
                           }});
  const auto samples =
      interleave(l.contestants, {.rounds = 6, .turn_seconds = 0, .most_seconds = 0.001});
  EXPECT_EQ(samples[0].count(), 6U);
  EXPECT_EQ(samples[1].count(), 3U);
}

/// Contestants whose every run takes as said, and how often each ran.
struct Paced {
  std::vector<int> runs;
  std::vector<Contestant> contestants;
  explicit Paced(const std::vector<double>& seconds) : runs(seconds.size()) {
    for (std::size_t i = 0; i < seconds.size(); ++i)
      contestants.push_back({.sample = [this, i, s = seconds[i]] {
                               ++runs[i];
                               return s;
                             },
                             .warm_up = false});
  }
};

TEST(Finalists, AreTheFastestAndTheSlowHalfLeavesAtOnce) {
  Paced p({9, 1, 8, 3, 7, 2, 6, 5});
  EXPECT_EQ(harness::finalists(p.contestants, {.finalists = 2}), (std::vector<std::size_t>{1, 5}));
  // Heats of 1, 2 and no more runs: eight, then four, then two are left.
  EXPECT_EQ(p.runs, (std::vector<int>{1, 3, 1, 3, 1, 3, 1, 3}));
}

TEST(Finalists, WhoeverIsWithinTheMarginStaysToTheLastHeat) {
  Paced p({1.05, 1.02, 1.0, 1.01, 2});
  EXPECT_EQ(harness::finalists(p.contestants, {.finalists = 1, .heats = 3}),
            (std::vector<std::size_t>{2}));
  EXPECT_EQ(p.runs, (std::vector<int>{6, 6, 6, 6, 1}));
}

TEST(Finalists, OneInterruptionSendsNobodyHome) {
  // The fastest is disturbed in its first run, and is within the faster half all the same.
  int runs = 0;
  Paced p({3, 4, 5, 6});
  p.contestants.push_back({.sample = [&] { return ++runs == 1 ? 3.5 : 1.0; }, .warm_up = false});
  EXPECT_EQ(harness::finalists(p.contestants, {.finalists = 1}), (std::vector<std::size_t>{4}));
}

TEST(Finalists, AreAllWhereTheyAreFew) {
  Paced p({2, 1});
  EXPECT_EQ(harness::finalists(p.contestants, {.finalists = 6}), (std::vector<std::size_t>{1, 0}));
}

TEST(AskedInChild, AnswersAndForgets) {
  ASSERT_EQ(std::getenv("TILEWRIGHT_BENCH_TEST"), nullptr);
  const auto answer = asked_in_child([] {
    setenv("TILEWRIGHT_BENCH_TEST", "told", 1);
    return std::string(std::getenv("TILEWRIGHT_BENCH_TEST"));
  });
  EXPECT_EQ(answer, "told");
  EXPECT_EQ(std::getenv("TILEWRIGHT_BENCH_TEST"), nullptr);
  EXPECT_EQ(asked_in_child([] { return std::string(); }), "");
}

TEST(AskedInChild, SaysNothingWhereTheChildGivesUp) {
  EXPECT_EQ(asked_in_child([]() -> std::string { std::abort(); }), std::nullopt);
  EXPECT_EQ(asked_in_child([]() -> std::string { throw std::runtime_error("no"); }), std::nullopt);
}

}  // namespace
}  // namespace tilewright::bench
