// TorchInductor's scheduler on GPUs: pairs of loop nests in the order of the bytes that both share.
// Made from facts of its public source (pytorch/pytorch, torch/_inductor), in the versions that are
// named here by the first digits of their commits:
//  - which values are written to memory: ir.py (StorageBox.should_realize_on_reuse and
//    has_exceeded_max_reads) and graph.py (run_node), with the limits of config.py
//  - pairs, their order, cycles, matching reads: scheduler.py (001077c)
//  - the score and what is refused for it: choices.py (0012d88)
//  - sizes that one kernel can have: codegen/simd.py (SIMDScheduling.can_fuse, candidate_tilings)
//  - sums in two phases: ir.py (Reduction.num_splits), choices.py (reduction_split_factor)
// An operator here is an expression, several of PyTorch's calls: it counts as they do.
// Predictions only: nothing here runs or counts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/option.h"
#include "models/stitching/own_copies.h"
#include "models/stitching/stitching.h"

namespace tilewright::inductor {

using stitching::Device;
using stitching::Graph;
using stitching::Kind;
using stitching::Vertex;

/// Limits of config.py, each with its default.
struct Options {
  std::int64_t reads = 4;           ///< realize_reads_threshold
  std::int64_t gathered_reads = 8;  ///< realize_acc_reads_threshold
  std::int64_t operations = 30;     ///< realize_opcount_threshold
  std::int64_t unrolled = 8;        ///< unroll_reductions_threshold
  std::int64_t nests = 64;          ///< max_fusion_size
  std::int64_t shared_bytes = 10;   ///< score_fusion_memory_threshold
  bool overlap = true;              ///< min_overlap_ratio; older versions have none
  bool reorder = true;              ///< loop_ordering_after_fusion
  bool phases = true;               ///< split_reductions
  stitching::Options kernels = {.products = stitching::Products::points};
};
std::span<const OptionSpec> option_specs();
Options options_of(const Settings& s);

/// A loop of a nest and how far one step of it moves in a tensor, in elements.
struct Stride {
  std::int64_t extent = 1, step = 0;
  friend auto operator<=>(const Stride&, const Stride&) = default;
};

/// What a nest reads or writes of a tensor (MemoryDep): which elements, in which order.
struct Touched {
  TensorId tensor;
  std::int64_t offset = 0;
  int gather = 0;  ///< not 0: which elements is known at run time; a number of its own
  std::vector<Stride> order = {};   ///< loops that move, outermost first; contiguous ones are one
  std::vector<std::int64_t> steps;  ///< of every loop of the nest, before that
  std::int64_t bytes = 0;           ///< of all that the loops pass (dep_size_hint)

  /// The same elements in the same order: reading them once serves both.
  bool same(const Touched& o) const {
    return tensor == o.tensor && offset == o.offset && gather == o.gather && order == o.order;
  }
};

/// Loops that move, outermost first. A loop that goes on where the one within it ends is one with
/// it.
std::vector<Stride> in_order(std::span<const std::int64_t> extents,
                             std::span<const std::int64_t> steps);

/// A loop nest: one value that is written to memory, with all that is computed on the way from
/// others that are. Or several, which one kernel holds (FusedSchedulerNode).
struct Nest {
  std::vector<int> ops;    ///< vertices, ascending; one that is not written may be in several nests
  std::vector<int> gives;  ///< those whose results are written, ascending
  bool library = false;    ///< a product, a running operator: it stays as it is
  std::int64_t points = 1, reduced = 1;  ///< of its group: those that are kept, and of each the sum
  std::int64_t parts =
      1;  ///< in which each sum is taken, by a first kernel; a second one adds them
  std::vector<std::vector<std::int64_t>> kept = {};  ///< extents, of each value; outermost first
  std::vector<Touched> reads = {}, writes = {};      ///< what it reads of itself is left out
  int first = 0, last = 0;                           ///< places of its values in the graph's order
  int values = 1;

  bool reduces() const { return reduced > 1; }
};

/// The values that are written to memory and their nests, in the graph's order. Where no kernel of
/// this repository can hold a nest, the values on its way are written, too. Cost: operators times
/// the operators that each computes on the way.
std::vector<Nest> nests_of(const Graph& g, const Device& d, const Options& o);

/// How good it is to fuse two nests: compared from the first member on, more is better.
struct Score {
  bool alike = false;        ///< both reduce, or neither does
  std::int64_t bytes = 0;    ///< that both touch in the same order
  std::int64_t overlap = 0;  ///< else, of element-wise ones: bytes of tensors that both read
  int nearness = 0;          ///< minus the distance in the graph's order
  friend auto operator<=>(const Score&, const Score&) = default;
};
Score score_of(const Nest& a, const Nest& b, bool overlap = true);

/// One decision, in the order in which they were made; then every pair that shares a tensor and was
/// left apart.
struct Step {
  std::string first = {}, second = {};  ///< the values of each: "rowmax+rowsum"
  Score score;
  std::string refused = {};  ///< why; empty: fused
};

struct Fused {
  std::vector<Nest> kernels;  ///< in launch order
  std::vector<Step> steps;
};
/// The scheduler's rounds: at most ten, each over all pairs of nests that touch the same tensor,
/// best score first; then one in which loops of an element-wise nest may be put in another's order.
/// Deterministic. Cost: rounds times pairs, at most 64 for each nest and tensor.
Fused fuse(const Graph& g, const Device& d, const Options& o);

}  // namespace tilewright::inductor
