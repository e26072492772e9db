// Timing on a machine that is shared: contestants take turns, so that what else the machine does
// falls on all of them alike, and what is reported is the median.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tilewright::harness {

/// What one contestant was measured at, in the order of measuring. Seconds, or a rate.
struct Samples {
  std::vector<double> values;
  bool empty() const { return values.empty(); }
  std::size_t count() const { return values.size(); }
  double median() const;
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

/// How contestants are sent home before the last comparison.
struct Heats {
  std::size_t finalists = 6;  ///< that are left, at least 1
  /// Of the fastest run's time: whoever is within it stays until the last heat.
  double margin = 1.1;
  int heats = 5;  ///< at most
  std::function<void()> settle = {};
};

/// Successive halving: in each heat whoever is left takes a turn, one of heat h repeating its
/// sample h times; then those leave whose fastest run so far is in the slower half and outside the
/// margin. After the last heat the finalists are those with the fastest runs. A contestant that
/// leaves is slower than the margin by its own fastest run, so an interruption must hit each of its
/// runs to send a fast one home, and no number of a finalist comes from the heats. Returns the
/// finalists, fastest first, as positions in `contestants`. Throws what a sample throws.
std::vector<std::size_t> finalists(const std::vector<Contestant>& contestants, const Heats& heats);

/// Sleeps until this process has used almost no processor time for two milliseconds, at most 0.1 s:
/// the idle threads of OpenMP and of the BLAS libraries spin for a while after each call.
void wait_until_quiet();

/// Seconds that `work` took.
double seconds_of(const std::function<void()>& work);

}  // namespace tilewright::harness
