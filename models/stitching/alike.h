// Kernels of patterns that differ from ones stitched before in names alone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/names.h"
#include "models/stitching/bound_tree.h"
#include "models/stitching/stitching.h"

namespace tilewright::stitching {

/// What a kernel of these operators names: vertices and loops in the order of the operators, and
/// how those are ordered among each other.
struct NamesInOrder {
  std::vector<int> vertices;
  std::vector<int> loops;
  std::vector<std::size_t> order;
};
NamesInOrder names_in_order(const Graph& g, const Pattern& p);
/// The operators as a workload without names; empty: they are none.
std::string text_without_names(const Graph& g, const Pattern& p);
/// A part's schedule for other operators, in the places of its own.
Stitched renamed(Stitched s, const NamesInOrder& from, const NamesInOrder& to);

/// What stitch() gives for the pattern: what `make` gave for one like it, whichever graph, model
/// or thread asked, or gives for this one; for as much Effort as if it had been made anew. Only the
/// same order of vertices and loops is taken for the same; of refusals and of kernels without
/// units, which name operators, only the same names. Cost: the pattern's text.
Result<StitchedKernel> stitched_like(const Graph& g, const Device& d, const Pattern& p,
                                     const Options& o,
                                     const std::function<Result<StitchedKernel>()>& make);

/// One device's and one choice of options, for any graphs.
class Alike {
 public:
  using Make = std::function<Result<StitchedKernel>(const Graph&, const Pattern&)>;

  /// What `make` gives for the pattern, or what it gave for one of the same operators, with this
  /// one's vertices and loops in their places. Only the same order of both is taken for the same,
  /// so that ties are decided as they would be. Cost: the pattern's text.
  Result<StitchedKernel> kernel(const Graph& g, const Pattern& p, const Make& make);

 private:
  struct Known {
    NamesInOrder names;
    Result<StitchedKernel> kernel;
  };
  std::map<std::string, Known> known_;  ///< by text_without_names()
};

/// What schedules ask of a device, of parts that differ in names alone: every graph, model and
/// thread of the process finds what another has counted.
struct AlikeDemands {
  std::mutex mutex;
  std::map<std::string, AskedSchedule> of_tree;  ///< by its text without names
};

/// A part of a graph as a workload of its own, with what is known of those that are alike.
struct NamelessPart {
  /// Without `part` where the vertices are none.
  static NamelessPart of(const Graph& g, const Device& d, const std::vector<int>& vertices);

  std::shared_ptr<const Workload> part;
  std::shared_ptr<const Names> without_names;  ///< of the part's
  std::shared_ptr<AlikeDemands> known;

  /// What `make` gives for the tree, or gave for one like it. Spends no Effort, but says it.
  AskedSchedule demand(const BoundTree& tree,
                       const std::function<std::optional<Demand>()>& make) const;
};

}  // namespace tilewright::stitching
