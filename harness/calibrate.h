// A machine file whose numbers are measured.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/machine/machine.h"

namespace tilewright::harness {

/// One number to measure, alone: seconds a unit of it ("DRAM/L3": a byte).
struct Gauge {
  std::string name;  ///< "bandwidth L2/L1", "cycle"
  /// Made when its turn comes: what one sample takes, in seconds a unit. A Reason: why it cannot be
  /// measured here.
  std::function<Result<std::function<double()>>()> prepare;
  /// Numbers of one group, which follow one another in the list, are taken from one another: they
  /// are measured in turn. Empty: alone.
  std::string group = {};
};

/// What came of it. Other work on the machine only adds to a time, so the number is that of the
/// fastest round, and it is believed where several rounds come near it.
struct Gauged {
  double seconds = 0;  ///< a unit
  double spread = 0;   ///< how far the fifth round, in order, is above the fastest, as a fraction
  int samples = 0;
  std::string date = {};
  /// Passes over all numbers that came within kMostSpread of it. A core that shares its units with
  /// a busy one takes the same longer time for as long as one number is measured.
  int met = 1;
};

/// A number whose spread is above this is not written.
inline constexpr double kMostSpread = 0.10;

/// A number is written that so many passes have met.
inline constexpr int kMet = 2;

/// What is known of a group's numbers and what another pass found: the pass that took less over
/// all, with the passes that met it. As many of both.
std::vector<Gauged> met_again(const std::vector<Gauged>& known, const std::vector<Gauged>& now);

/// One sample of each number of a group, one behind the other.
using Round = std::vector<double>;
/// The group's numbers: those of the round that took least, of each number in proportion to its
/// least sample. A core that changes its speed changes it for all of a round, so differences are of
/// numbers at one speed. A Reason where rounds scatter, with the numbers, or are too few.
Result<std::vector<Gauged>> gauged(const std::string& name, const std::vector<Round>& rounds);

/// What an interrupted calibration kept, by Gauge::name; no file: nothing. Lines that are not of
/// its form are left out. Throws InputError where the file cannot be read.
std::map<std::string, Gauged> read_part(const std::string& path);

/// The machine with the numbers in place of what it said, each with its source: "measured DATE:
/// ...". `measured`: by Gauge::name.
Machine with_measured(Machine m, const std::map<std::string, Gauged>& measured);

}  // namespace tilewright::harness
