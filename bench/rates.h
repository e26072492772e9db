// One row of the table of rates: add it to one of the functions below, or add a function and a line
// in rates.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tilewright::bench {

/// Work that is timed as a whole.
struct Rate {
  std::string name;            ///< unique: what is done, to what
  std::string unit;            ///< what `per_call` counts, in the plural: "plans"
  double per_call = 1;         ///< how many of them one call does
  std::function<void()> call;  ///< throws std::runtime_error where what it found is wrong
  bool seconds = false;        ///< reported as the time of one, not as how many a second
  bool slow = false;           ///< takes a second or so: three turns of one call each
  std::string beside = {};     ///< what to hold it against, and where that comes from
};

std::vector<Rate> model_rates();      ///< Algorithm 1, searches, resolve, exact
std::vector<Rate> simulator_rates();  ///< accesses through a hierarchy of caches
std::vector<Rate> npu_rates();        ///< the emulated NPU: multiply-accumulates, instructions

}  // namespace tilewright::bench
