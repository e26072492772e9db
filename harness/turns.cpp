#include "harness/turns.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void take_turn(const Contestant& contestant, double turn_seconds, Samples& samples) {
  if (contestant.warm_up) contestant.sample();
  const auto start = Clock::now();
  do {
    samples.values.push_back(contestant.sample());
  } while (seconds_since(start) < turn_seconds);
}

}  // namespace

double Samples::median() const { return harness::median(values); }

double Samples::least() const { return *std::min_element(values.begin(), values.end()); }
double Samples::most() const { return *std::max_element(values.begin(), values.end()); }

std::vector<Samples> interleave(const std::vector<Contestant>& contestants, const Turns& turns) {
  const std::size_t n = contestants.size();
  constexpr int kLeastTurns = 3;
  std::vector<Samples> samples(n);
  std::vector<double> spent(n, 0.0);
  for (int round = 0; round < std::max(1, turns.rounds); ++round)
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t who = (i + static_cast<std::size_t>(round)) % n;
      if (round >= kLeastTurns && spent[who] > turns.most_seconds) continue;
      if (turns.settle) turns.settle();
      spent[who] +=
          seconds_of([&] { take_turn(contestants[who], turns.turn_seconds, samples[who]); });
    }
  return samples;
}

std::vector<std::size_t> finalists(const std::vector<Contestant>& contestants, const Heats& heats) {
  std::vector<std::size_t> left(contestants.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  std::vector<double> least(contestants.size(), INFINITY);
  for (int heat = 1; heat <= heats.heats && (heat == 1 || left.size() > heats.finalists); ++heat) {
    for (std::size_t who : left) {
      if (heats.settle) heats.settle();
      const Contestant& c = contestants[who];
      if (c.warm_up) c.sample();
      for (int i = 0; i < heat; ++i) least[who] = std::min(least[who], c.sample());
    }
    std::ranges::stable_sort(left, {}, [&](std::size_t who) { return least[who]; });
    const double most = heats.margin * least[left.front()];
    const std::size_t half = std::max((left.size() + 1) / 2, heats.finalists);
    while (left.size() > half && least[left.back()] > most) left.pop_back();
  }
  if (left.size() > heats.finalists) left.resize(heats.finalists);
  return left;
}

void wait_until_quiet() {
  constexpr auto kNap = std::chrono::milliseconds(2);
  constexpr double kQuiet = 0.1, kMost = 0.1;
  const auto start = Clock::now();
  while (seconds_since(start) < kMost) {
    const double used = processor_seconds();
    const auto nap = Clock::now();
    std::this_thread::sleep_for(kNap);
    if (processor_seconds() - used < kQuiet * seconds_since(nap)) return;
  }
}

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return seconds_since(start);
}

}  // namespace tilewright::harness
