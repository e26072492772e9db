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
};

/// What came of it. Other work on the machine only adds to a time, so the number is the least of
/// the samples, and it is believed where several samples come near it.
struct Gauged {
  double seconds = 0;  ///< a unit
  double spread = 0;   ///< how far the fifth of them, in order, is above the least, as a fraction
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

/// What is known of a number and what another pass found: the lesser, with the passes that met it.
Gauged met_again(const Gauged& known, const Gauged& now);

/// The number of these samples; a Reason where they scatter, with the numbers, or are too few.
Result<Gauged> gauged(const std::string& name, std::vector<double> samples);

/// What an interrupted calibration kept, by Gauge::name; no file: nothing. Lines that are not of
/// its form are left out. Throws InputError where the file cannot be read.
std::map<std::string, Gauged> read_part(const std::string& path);

/// The machine with the numbers in place of what it said, each with its source: "measured DATE:
/// ...". `measured`: by Gauge::name.
Machine with_measured(Machine m, const std::map<std::string, Gauged>& measured);

}  // namespace tilewright::harness
