#include "bench/samples.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>

namespace tilewright::bench {
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

double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("the median of no values");
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

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

double geometric_mean(const std::vector<double>& values) {
  if (values.empty()) throw std::invalid_argument("the geometric mean of no values");
  double sum = 0;
  for (double v : values) {
    if (!(v > 0)) throw std::invalid_argument("a geometric mean of what is not above zero");
    sum += std::log(v);
  }
  return std::exp(sum / static_cast<double>(values.size()));
}

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return seconds_since(start);
}

}  // namespace tilewright::bench
