// Vectors that threads share, beside one vector a thread.
#include "simulator/vector_clocks.h"

#include <gtest/gtest.h>

#include <random>

namespace tilewright {
namespace {

/// The definition: a vector a thread, all of it copied at every meeting.
class Plain {
 public:
  explicit Plain(int threads)
      : threads_(threads),
        issued_(static_cast<std::size_t>(threads), 0),
        all_(static_cast<std::size_t>(threads),
             ClockVector(2 * static_cast<std::size_t>(threads), 0)) {
    for (int t = 0; t < threads; ++t) of(t)[static_cast<std::size_t>(t)] = 1;
  }
  ClockVector& of(int t) { return all_[static_cast<std::size_t>(t)]; }
  void tick(int t) { ++of(t)[static_cast<std::size_t>(t)]; }
  Clock issue_copy(int t) { return ++issued_[static_cast<std::size_t>(t)]; }
  Clock copies(int t) const { return issued_[static_cast<std::size_t>(t)]; }
  void see_copies(int t, int whose, Clock upto) {
    Clock& c = of(t)[static_cast<std::size_t>(threads_ + whose)];
    c = std::max(c, upto);
  }
  static void join(ClockVector& to, const ClockVector& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
  }
  void meet(const std::vector<int>& members) {
    ClockVector together(of(0).size(), 0);
    for (const int t : members) join(together, of(t));
    for (const int t : members) {
      of(t) = together;
      tick(t);
    }
  }

 private:
  int threads_;
  std::vector<Clock> issued_;
  std::vector<ClockVector> all_;
};

TEST(Clocks, ThreadsThatShareSeeWhatTheyWouldAlone) {
  std::mt19937_64 random(20261126);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Clocks clocks;
  for (int round = 0; round < 60; ++round) {
    const int threads = 1 + below(12);
    clocks.reset(threads);
    Plain plain(threads);
    const bool copies = round % 3 != 0;
    const std::size_t components = 2 * static_cast<std::size_t>(threads);
    Published phase{.at = ClockVector(components, 0)}, ended = phase;
    ClockVector plain_phase(components, 0), plain_ended = plain_phase;
    for (int step = 0; step < 400; ++step) {
      const int t = below(threads), other = below(threads);
      switch (below(copies ? 9 : 6)) {
        case 0: {
          std::vector<int> everyone;
          for (int i = 0; i < threads; ++i) everyone.push_back(i);
          clocks.meet(everyone);
          plain.meet(everyone);
          break;
        }
        case 1: {
          std::vector<int> some;
          for (int i = 0; i < threads; ++i)
            if (below(2) == 0) some.push_back(i);
          clocks.meet(some);
          if (!some.empty()) plain.meet(some);
          break;
        }
        case 2:
          clocks.tick(t);
          plain.tick(t);
          break;
        case 3:
          clocks.publish(t, phase);
          Plain::join(plain_phase, plain.of(t));
          clocks.tick(t);
          plain.tick(t);
          break;
        case 4:
          ended.at = phase.at;
          clocks.seal(ended);
          plain_ended = plain_phase;
          [[fallthrough]];
        case 5:
          for (int i = 0; i < threads; ++i) {
            if (below(3) == 0) continue;
            clocks.join(i, ended);
            Plain::join(plain.of(i), plain_ended);
          }
          break;
        case 6:
          EXPECT_EQ(clocks.issue_copy(t), plain.issue_copy(t));
          break;
        case 7:
          clocks.see_copies(t, t, plain.copies(t));
          plain.see_copies(t, t, plain.copies(t));
          break;
        default:
          clocks.see_copies(t, other, plain.copies(other));
          plain.see_copies(t, other, plain.copies(other));
      }
      ASSERT_EQ(phase.at, plain_phase);
      for (int i = 0; i < threads; ++i) {
        const Seen seen = clocks.seen(i);
        EXPECT_EQ(clocks.now(i), plain.of(i)[static_cast<std::size_t>(i)]);
        for (std::size_t c = 0; c < components; ++c) {
          ASSERT_EQ(seen[c], plain.of(i)[c]) << "round " << round << ", step " << step;
          ASSERT_LE(seen.at_least()[c], plain.of(i)[c]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilewright
