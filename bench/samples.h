// Timing on a machine that is shared: contestants take turns, so that what else the machine does
// falls on all of them alike, and what is reported is the median.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tilewright::bench {

/// The middle of the sorted values, the mean of the middle two where their number is even. Throws
/// std::invalid_argument for no values.
double median(std::vector<double> values);

/// What one contestant was measured at, in the order of measuring. Seconds, or a rate.
struct Samples {
  std::vector<double> values;
  bool empty() const { return values.empty(); }
  std::size_t count() const { return values.size(); }
  double median() const { return bench::median(values); }
  double least() const;
  double most() const;
};

/// One of those that are compared. `sample` does the work once and returns its measure (seconds, or
/// a rate); it is called once unrecorded at the start of each turn, because the one before it has
/// left its own data in the caches.
struct Contestant {
  std::string name;
  std::function<double()> sample;
  bool warm_up = true;  ///< false: every call is recorded (a loop that warms itself)
};

struct Turns {
  int rounds = 12;              ///< turns of each contestant, at least 1
  double turn_seconds = 0.008;  ///< a turn repeats its sample for about as long, at least once
  /// A contestant that has had so long, and three turns, sits the rest out: what spins on a barrier
  /// while another process has the core can take a thousand times its time.
  double most_seconds = 3;
  /// Called before each turn: waits until threads of the one before have stopped spinning.
  std::function<void()> settle = {};
};

/// Round-robin: in every round each contestant has one turn, the first of them moving on by one
/// from round to round. Returns the samples by contestant. Throws what a sample throws.
std::vector<Samples> interleave(const std::vector<Contestant>& contestants, const Turns& turns);

/// Sleeps until this process has used almost no processor time for two milliseconds, at most 0.1 s:
/// the idle threads of OpenMP and of the BLAS libraries spin for a while after each call.
void wait_until_quiet();

/// exp(mean(log)). Throws std::invalid_argument for no values or one that is not above zero.
double geometric_mean(const std::vector<double>& values);

/// Seconds that `work` took.
double seconds_of(const std::function<void()>& work);

}  // namespace tilewright::bench
