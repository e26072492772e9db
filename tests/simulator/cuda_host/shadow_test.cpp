// Does the shadow of shared memory, which forgets what is ordered, tell races from order as a full
// history does, over random accesses, meetings and copies?
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include "simulator/cuda_host/shared_shadow.h"

namespace tilewright::cuda_host {
namespace {

constexpr int kCells = 6;

/// Every access of each cell since its last write, that write first.
class History {
 public:
  struct Event {
    int component;
    Clock clock;
    bool write;
  };
  /// The components whose accesses this one races with.
  std::set<int> add(int cell, int component, Clock now, const Seen& seen, bool write) {
    std::vector<Event>& events = cells_[static_cast<std::size_t>(cell)];
    std::set<int> racing;
    for (const Event& e : events)
      if ((write || e.write) && e.clock > seen[e.component]) racing.insert(e.component);
    if (write) events.clear();
    events.push_back({component, now, write});
    return racing;
  }
  /// Whether this read has been made before, with nothing in between: its faults are known.
  bool repeated(int cell, int component, Clock now) const {
    return std::ranges::any_of(cells_[static_cast<std::size_t>(cell)], [&](const Event& e) {
      return !e.write && e.component == component && e.clock == now;
    });
  }
  bool written(int cell) const {
    const std::vector<Event>& events = cells_[static_cast<std::size_t>(cell)];
    return !events.empty() && events.front().write;
  }

 private:
  std::array<std::vector<Event>, kCells> cells_;
};

struct Walk {
  explicit Walk(int threads, unsigned seed) : random(seed), threads(threads) {
    clocks.reset(threads);
    shadow.reset(kCells * SharedShadow::kCellBytes, clocks.components());
  }
  int below(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

  void access() {
    const int t = below(threads), cell = below(kCells);
    const bool copy = below(12) == 0, write = copy || below(reads_per_write) == 0;
    const int component = copy ? clocks.copier(t) : t;
    const Clock now = copy ? clocks.issue_copy(t) : clocks.now(t);
    const auto place = static_cast<std::uint32_t>(1 + below(2));
    const bool fresh = !history.written(cell);
    const bool again = !write && history.repeated(cell, component, now);
    const auto racing = history.add(cell, component, now, clocks.seen(t), write);
    const std::int64_t offset = cell * SharedShadow::kCellBytes;
    const auto outcome = write ? shadow.write(offset, 2, component, now, clocks.seen(t), place)
                               : shadow.read(offset, 2, component, now, clocks.seen(t), place);
    if (!again) {
      ASSERT_EQ(static_cast<bool>(outcome.other), !racing.empty());
      ASSERT_EQ(outcome.uninitialised, !write && fresh);
    }
    if (outcome.other) {
      ASSERT_TRUE(racing.contains(outcome.other.component));
      ++races;
    } else {
      ++ordered;
    }
  }

  /// Some threads meet, or one learns that its copies have landed.
  void order() {
    if (below(3) == 0) {
      const int t = below(threads);
      clocks.see_copies(t, t, clocks.copies(t));
      return;
    }
    std::vector<int> members;
    const int wanted = below(4) == 0 ? 1 : below(5) + 2;
    for (int t = 0; t < threads; ++t)
      if (wanted == 1 || below(wanted) != 0) members.push_back(t);
    clocks.meet(members);
  }

  std::mt19937 random;
  int threads;
  int reads_per_write = 2;
  Clocks clocks;
  SharedShadow shadow;
  History history;
  int races = 0, ordered = 0;
};

TEST(CudaHostShadow, FindsARaceWhereTheFullHistoryHasOne) {
  int races = 0, ordered = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    // From few threads, whose readers fit in a cell, to many, whose readers do not.
    Walk run(seed % 3 == 0 ? 3 : seed % 3 == 1 ? 12 : 70, seed);
    run.reads_per_write = seed % 2 == 0 ? 2 : 25;
    for (int step = 0; step < 3000; ++step) {
      run.below(6) == 0 ? run.order() : run.access();
      if (testing::Test::HasFatalFailure()) return;
    }
    races += run.races;
    ordered += run.ordered;
  }
  EXPECT_GT(races, 1000);
  EXPECT_GT(ordered, 1000);
}

}  // namespace
}  // namespace tilewright::cuda_host
