// Kernels of patterns that differ from ones stitched before in names alone.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/stitching/stitching.h"

namespace tilewright::stitching {

/// One device's and one choice of options, for any graphs.
class Alike {
 public:
  using Make = std::function<Result<StitchedKernel>(const Graph&, const Pattern&)>;

  /// What `make` gives for the pattern, or what it gave for one of the same operators, with this
  /// one's vertices and loops in their places. Only the same order of both is taken for the same,
  /// so that ties are decided as they would be. Cost: the pattern's text.
  Result<StitchedKernel> kernel(const Graph& g, const Pattern& p, const Make& make);

 private:
  /// What a kernel names: vertices and loops in the order of the operators, and how those are
  /// ordered among each other.
  struct Names {
    std::vector<int> vertices;
    std::vector<int> loops;
    std::vector<std::size_t> order;
  };
  struct Known {
    Names names;
    Result<StitchedKernel> kernel;
  };
  static Names names_of(const Graph& g, const Pattern& p);
  static StitchedKernel renamed(StitchedKernel k, const Names& from, const Names& to);

  std::map<std::string, Known> known_;  ///< by the workload without names
};

}  // namespace tilewright::stitching
