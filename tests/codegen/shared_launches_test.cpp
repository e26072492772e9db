// Which launches of a network threads share.
#include "codegen/common/shared_launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tilewright::codegen {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// Seconds of a launch, left to one thread and shared; in more parts than threads, `finer` times
/// as long.
struct Takes {
  double alone = 0, shared = 0;
  int threads = 2;
  double finer = 1;
};

/// Launches on a clock of their own. One behind a launch of the other kind takes longer by
/// `change`. Other work on the machine adds to a time, now and then.
class Launches final : public TimedLaunches {
 public:
  Launches(std::vector<Takes> takes, double change, double others = 0, unsigned seed = 1)
      : takes_(std::move(takes)), change_(change), others_(others), random_(seed) {}

  std::optional<Reason> clock(const LaunchParts& parts,
                              std::vector<std::vector<double>>& seconds) override {
    for (std::size_t n = 0; n < takes_.size(); ++n) seconds[n].push_back(one(parts, n));
    return std::nullopt;
  }
  Result<double> run(const LaunchParts& parts) override {
    if (++runs > most) return Reason{"it broke"};
    double all = 0;
    for (std::size_t n = 0; n < takes_.size(); ++n) all += one(parts, n);
    return all;
  }
  int threads(std::size_t n) const override { return takes_[n].threads; }
  double now() const override { return now_; }

  /// What all of them take in truth.
  double seconds(const LaunchParts& parts) const {
    double all = 0;
    for (std::size_t n = 0; n < takes_.size(); ++n) all += truth(parts, n);
    return all;
  }
  std::size_t size() const { return takes_.size(); }

  int runs = 0, most = 1 << 30;
  double helpers_wake_at = 0;  ///< until then what is shared takes 10 ms

 private:
  double truth(const LaunchParts& parts, std::size_t n) const {
    const bool shared = parts[n] != 1 && takes_[n].threads > 1;
    return (shared ? takes_[n].shared * (parts[n] > 1 ? takes_[n].finer : 1) : takes_[n].alone) +
           (n > 0 && parts[n] != parts[n - 1] ? change_ : 0);
  }
  double one(const LaunchParts& parts, std::size_t n) {
    double seconds = truth(parts, n);
    if (parts[n] == 0 && now_ < helpers_wake_at) seconds = 10e-3;
    if (random_() % 8 == 0) seconds += others_ * static_cast<double>(random_() % 100) / 100;
    now_ += seconds;
    return seconds;
  }

  std::vector<Takes> takes_;
  double change_, others_, now_ = 0;
  std::mt19937 random_;
};

LaunchParts chosen(Launches& launches, double budget = 0.2) {
  const auto parts = choose_shared(launches, launches.size(), budget);
  EXPECT_TRUE(parts.ok());
  return parts.ok() ? *parts : LaunchParts();
}
LaunchParts chosen(std::vector<Takes> takes, double change, double others = 0) {
  Launches launches(std::move(takes), change, others);
  return chosen(launches);
}

constexpr Takes kLong{8e-5, 4e-5}, kSmall{1e-6, 5e-6};

TEST(SharedLaunches, EachIsSharedWhereThatIsFaster) {
  EXPECT_THAT(chosen({kLong, kSmall, kLong}, 0), ElementsAre(0, 1, 0));
  EXPECT_THAT(chosen({kSmall, kSmall, kLong}, 0), ElementsAre(1, 1, 0));
  // Sharing must gain: 1 % is within what times scatter by.
  EXPECT_THAT(chosen({kLong, kSmall, {8e-5, 7.95e-5}}, 0), ElementsAre(0, 1, 1));
}

TEST(SharedLaunches, OthersOnTheMachineChangeNothing) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Launches launches({kLong, kSmall, kLong, kSmall}, 0, 1e-4, seed);
    EXPECT_THAT(chosen(launches), ElementsAre(0, 1, 0, 1)) << seed;
  }
}

/// A helper's processor was somebody else's for a while.
TEST(SharedLaunches, ALongLaunchIsTriedAgain) {
  Launches launches({kLong, kLong}, 0);
  launches.helpers_wake_at = 0.15;
  EXPECT_THAT(chosen(launches, 1), ElementsAre(0, 0));
}

/// Two changes take longer than they save: all shared, or all alone.
TEST(SharedLaunches, ChangesFromOneKindToTheOtherAreCounted) {
  EXPECT_THAT(chosen({kLong, {4e-5, 5e-5}, kLong}, 2e-5), ElementsAre(0, 0, 0));
  EXPECT_THAT(chosen({{1e-6, 2e-5}, {5e-5, 4e-5}, {1e-6, 2e-5}}, 2e-5), ElementsAre(1, 1, 1));
}

/// The second launch is faster alone, but not by two changes; the last one is, by far more than
/// one.
TEST(SharedLaunches, AStretchOfOneKindIsTriedAsTheOther) {
  EXPECT_THAT(chosen({kLong, {4e-5, 5e-5}, kLong, {2e-5, 30e-5}}, 2e-5), ElementsAre(0, 0, 0, 1));
}

/// Drawn: what is chosen is no slower than each alone, all alone and all shared, but for what is
/// within the gain that a change must have.
TEST(SharedLaunches, DrawnChoicesAreNoWorseThanTheSimpleOnes) {
  std::mt19937 random(61023);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<Takes> takes(2 + random() % 8);
    for (Takes& t : takes) t = {draw(1e-6, 1e-4), draw(1e-6, 1e-4), random() % 4 == 0 ? 1 : 2};
    Launches launches(takes, round % 2 == 0 ? 0 : draw(0, 3e-5));
    const LaunchParts parts = chosen(launches);
    ASSERT_EQ(parts.size(), takes.size());
    LaunchParts each;
    for (const Takes& t : takes) each.push_back(t.threads > 1 && t.shared < 0.97 * t.alone ? 0 : 1);
    for (const LaunchParts& other :
         {each, LaunchParts(takes.size(), 0), LaunchParts(takes.size(), 1)})
      EXPECT_LE(0.98 * launches.seconds(parts), launches.seconds(other) * (1 + 1e-9)) << round;
    if (round % 2 == 0) {
      EXPECT_THAT(parts, ElementsAreArray(each)) << round;
    }
  }
}

/// What takes long and no longer in more parts is cut so; what is short, left to one thread or
/// slower so is not.
TEST(SharedLaunches, LongOnesAreCutFiner) {
  Launches launches(
      {{8e-3, 4e-3}, {8e-5, 4e-5}, {8e-3, 9e-3}, {8e-3, 4e-3, 2, 1.1}, {8e-3, 2e-3, 4}}, 0);
  const auto parts = cut_finer(launches, chosen(launches), 0.2);
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT(*parts, ElementsAre(8, 0, 1, 0, 16));
}

TEST(SharedLaunches, WhatFailsIsSaid) {
  for (const int runs : {0, 3, 40}) {
    Launches launches({kLong, kLong, kSmall}, 0);
    launches.most = runs;
    const auto parts = choose_shared(launches, 3, 0.2);
    ASSERT_FALSE(parts.ok()) << runs;
    EXPECT_EQ(parts.reason(), "it broke");
  }
}

}  // namespace
}  // namespace tilewright::codegen
