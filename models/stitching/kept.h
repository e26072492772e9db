// What a thread's registers keep from one pass over a schedule's tree to a later one, and how many
// loads they leave room for. For `--stitch latency=overlap`.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "models/stitching/stitching.h"

namespace tilewright::stitching {

/// Registers that are taken, of a thread.
struct Kept {
  double most = 0;             ///< at the same time
  std::vector<double> before;  ///< when each pass begins
};

class KeptValues {
 public:
  /// Passes are counted from one; zero: before all of them.
  std::size_t pass() const { return pass_; }
  /// The next pass goes over so many of the workload's loops.
  void next_pass(std::size_t loops) { ++pass_, loops_ = std::max(loops_, loops); }
  void make(int value, double registers) {
    values_.try_emplace(value, Value{registers, pass_, pass_});
  }
  void read(int value);
  /// A sum over rows that follow one another: kept throughout.
  void make_throughout(int value, double registers) { throughout_[value] = registers; }
  /// What passes up to this one have made and later ones of a loop read stays until the loop's end,
  /// which is now.
  void stay_from(std::size_t pass);
  Kept registers() const;

 private:
  struct Value {
    double count = 0;
    std::size_t made = 0, last = 0;  ///< passes
  };
  std::map<int, Value> values_;  ///< by a value of the program
  std::map<int, double> throughout_;
  std::size_t pass_ = 0, loops_ = 0;
};

/// Registers that a thread may have without fewer blocks on an SM than what it keeps allows: ptxas
/// takes about so many for loads, before it waits for the first.
double registers_allowed(const Device& d, double threads, double kept);

}  // namespace tilewright::stitching
