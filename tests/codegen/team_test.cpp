// Threads that share parts of work: each part once, and all of them seen.
#include "codegen/common/team.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace tilewright::codegen {
namespace {

struct Counted {
  std::vector<int> runs;  ///< by part
  std::vector<int> threads;
  static void work(void* of, int thread, int part) {
    auto& c = *static_cast<Counted*>(of);
    ++c.runs[static_cast<std::size_t>(part)];
    c.threads[static_cast<std::size_t>(part)] = thread;
  }
};

void check(Team& team, int threads, int parts) {
  const auto n = static_cast<std::size_t>(parts);
  Counted counted{std::vector<int>(n, 0), std::vector<int>(n, -1)};
  team.run(parts, Counted::work, &counted);
  for (std::size_t part = 0; part < n; ++part) {
    ASSERT_EQ(counted.runs[part], 1) << part << " of " << parts;
    ASSERT_GE(counted.threads[part], 0);
    ASSERT_LT(counted.threads[part], threads);
  }
}

TEST(Team, EveryPartRunsOnce) {
  for (int threads : {1, 2, 3, 9}) {
    Team team(threads);
    for (int round = 0; round < 300; ++round) check(team, threads, round % 12);
  }
}

/// A thread that is slow leaves parts to the other, which takes its own first and then the last.
TEST(Team, PartsOfASlowThreadAreTakenByTheOther) {
  struct Slow {
    std::atomic<bool> begun = false;
    std::atomic<int> ended = 0;
    std::vector<int> order;  ///< of the helper's parts
    static void work(void* of, int thread, int part) {
      auto& s = *static_cast<Slow*>(of);
      if (thread == 0) {
        EXPECT_EQ(part, 0);
        s.begun = true;
        while (s.ended < 7) std::this_thread::yield();
        return;
      }
      while (!s.begun) std::this_thread::yield();
      s.order.push_back(part);
      ++s.ended;
    }
  };
  Team team(2);
  Slow slow;
  team.run(8, Slow::work, &slow);
  EXPECT_EQ(slow.order, (std::vector<int>{4, 5, 6, 7, 3, 2, 1}));
}

TEST(Team, HelpersThatSleepAreCalled) {
  Team team(2);
  // The caller stays in its part until the helper has run the other.
  struct Both {
    std::atomic<int> begun = 0;
    static void work(void* of, int, int) {
      auto& begun = static_cast<Both*>(of)->begun;
      ++begun;
      while (begun < 2) std::this_thread::yield();
    }
  };
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Both both;
    team.run(2, Both::work, &both);
    EXPECT_EQ(both.begun, 2);
  }
}

/// Programs on as many threads have the same helpers while one is there; calls from several threads
/// of the process do not mix.
TEST(Team, IsSharedByThoseThatAskForAsManyThreads) {
  const std::shared_ptr<Team> team = team_of(3);
  EXPECT_EQ(team_of(3), team);
  EXPECT_NE(team_of(2), team);
  // Parts give others the processor: a call would begin within another's.
  constexpr int kParts = 7;
  struct Slow {
    std::array<std::atomic<int>, kParts> runs{};
    static void work(void* of, int, int part) {
      std::this_thread::yield();
      ++static_cast<Slow*>(of)->runs[static_cast<std::size_t>(part)];
    }
  };
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&team] {
      for (int round = 0; round < 200; ++round) {
        Slow slow;
        team->run(kParts, Slow::work, &slow);
        for (const std::atomic<int>& runs : slow.runs) ASSERT_EQ(runs, 1);
      }
    });
  for (std::thread& c : callers) c.join();
}

}  // namespace
}  // namespace tilewright::codegen
