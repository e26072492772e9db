// Faults as they are found, told apart by kind and places; put into words when the run is over.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "simulator/cuda_host/cuda_host.h"
#include "simulator/cuda_host/image.h"

namespace tilewright::cuda_host {

/// A fault with places still as addresses. `what` is the predicate of the sentence: "reads 4 bytes
/// ...".
struct RawFinding {
  Fault fault;
  std::string kernel;
  std::int64_t block = 0;
  int thread = 0;
  std::uint32_t place = 0;
  std::uint32_t other_place = 0;  ///< 0: no second access
  std::int64_t other_block = 0;
  int other_thread = 0;
  std::string other_what = {};  ///< "wrote", "a copy still under way writes"
  std::string object = {};
  std::int64_t offset = 0;
  std::string what = {};
  /// A fault only if the two places are different lines: one line may be compiled to several
  /// places.
  bool if_lines_differ = false;
  std::int64_t count = 1;
};

class FindingCollector {
 public:
  explicit FindingCollector(int most) : most_(most) {}
  /// True where a finding of these places is known already (and counts it): no need to describe it.
  bool seen_before(Fault fault, std::uint32_t place, std::uint32_t other_place, int object);
  void add(RawFinding finding, int object);
  /// In the order in which they were found, one for each pair of lines.
  void finish(const Image& image, Report& report) const;

 private:
  using Key = std::tuple<Fault, std::uint32_t, std::uint32_t, int>;
  int most_;
  std::map<Key, std::size_t> index_;
  std::vector<RawFinding> found_;
};

}  // namespace tilewright::cuda_host
