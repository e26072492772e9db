// The harness's turns, and the statistics that only benchmarks print.
#pragma once

#include <vector>

#include "harness/turns.h"

namespace tilewright::bench {

using harness::Contestant;
using harness::interleave;
using harness::Samples;
using harness::seconds_of;
using harness::Turns;
using harness::wait_until_quiet;

/// The middle of the sorted values, the mean of the middle two where their number is even. Throws
/// std::invalid_argument for no values.
double median(std::vector<double> values);

/// exp(mean(log)). Throws std::invalid_argument for no values or one that is not above zero.
double geometric_mean(const std::vector<double>& values);

}  // namespace tilewright::bench
