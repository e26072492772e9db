#include "codegen/common/shared_launches.h"

#include <algorithm>
#include <cmath>

namespace tilewright::codegen {
namespace {

/// The choice for launch after launch, held against others by runs of everything.
Result<LaunchParts> among_all(TimedLaunches& launches, LaunchParts best, double budget) {
  constexpr int kFewest = 2, kRuns = 7;
  constexpr double kGain = 0.98;
  const double start = launches.now();
  std::optional<Reason> fault;
  const auto seconds_of = [&](const LaunchParts& parts) {
    double least = HUGE_VAL;
    const double began = launches.now();
    for (int i = 0; i < kRuns && !fault; ++i) {
      if (i >= kFewest && launches.now() - began > budget / 10) break;
      const Result<double> seconds = launches.run(parts);
      if (!seconds)
        fault = seconds.why();
      else
        least = std::min(least, *seconds);
    }
    return least;
  };
  double least = seconds_of(best);
  const auto try_it = [&](const LaunchParts& parts) {
    const double seconds = seconds_of(parts);
    if (seconds < kGain * least) least = seconds, best = parts;
  };
  try_it(LaunchParts(best.size(), 1));
  try_it(LaunchParts(best.size(), 0));
  for (std::size_t from = 0; from < best.size() && launches.now() - start < budget && !fault;) {
    std::size_t to = from + 1;
    while (to < best.size() && best[to] == best[from]) ++to;
    LaunchParts other = best;
    std::fill(other.begin() + static_cast<std::ptrdiff_t>(from),
              other.begin() + static_cast<std::ptrdiff_t>(to), 1 - best[from]);
    try_it(other);
    from = to;
  }
  if (fault) return *fault;
  return best;
}

}  // namespace

Result<LaunchParts> choose_shared(TimedLaunches& launches, std::size_t count, double budget) {
  constexpr int kTurns = 5, kMostTurns = 30;
  constexpr double kLong = 3e-5;  // seconds: far more than it takes threads to begin and end
  constexpr double kWakes = 5e-3;
  constexpr double kGain = 0.97;  // of one thread's time: what sharing must be under
  using Seconds = std::vector<std::vector<double>>;
  Seconds alone(count), shared(count);
  const LaunchParts all_alone(count, 1), all_shared(count, 0);
  const double start = launches.now();
  const auto gains = [&](std::size_t n) {
    return std::ranges::min(shared[n]) < kGain * std::ranges::min(alone[n]);
  };
  const auto doubtful = [&] {
    for (std::size_t n = 0; n < count; ++n)
      if (launches.threads(n) > 1 && !gains(n) && std::ranges::min(alone[n]) > kLong) return true;
    return false;
  };
  for (int turn = 0; turn < kMostTurns && (turn == 0 || launches.now() - start < budget); ++turn) {
    if (turn >= kTurns && !doubtful()) break;
    if (auto why = launches.clock(all_alone, alone)) return *why;
    for (const double called = launches.now(); launches.now() - called < kWakes;)
      if (const auto seconds = launches.run(all_shared); !seconds) return seconds.why();
    if (auto why = launches.clock(all_shared, shared)) return *why;
  }
  LaunchParts each(count);
  for (std::size_t n = 0; n < count; ++n) each[n] = gains(n) ? 0 : 1;
  return among_all(launches, std::move(each), budget);
}

Result<LaunchParts> cut_finer(TimedLaunches& launches, LaunchParts chosen, double budget) {
  constexpr int kTurns = 6, kPartsOfThread = 4;
  constexpr double kLong = 1e-4;  // seconds: others take less than a thread waits for a slow one
  constexpr double kLoss = 1.02;
  LaunchParts finer = chosen;
  for (std::size_t n = 0; n < finer.size(); ++n)
    if (finer[n] == 0 && launches.threads(n) > 1) finer[n] = kPartsOfThread * launches.threads(n);
  if (finer == chosen) return chosen;
  std::vector<std::vector<double>> coarse(chosen.size()), fine(chosen.size());
  const double start = launches.now();
  for (int turn = 0; turn < kTurns && (turn == 0 || launches.now() - start < budget); ++turn) {
    if (auto why = launches.clock(chosen, coarse)) return *why;
    if (auto why = launches.clock(finer, fine)) return *why;
  }
  for (std::size_t n = 0; n < finer.size(); ++n)
    if (std::ranges::min(coarse[n]) < kLong ||
        std::ranges::min(fine[n]) > kLoss * std::ranges::min(coarse[n]))
      finer[n] = chosen[n];
  return finer;
}

}  // namespace tilewright::codegen
