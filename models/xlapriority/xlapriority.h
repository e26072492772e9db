// XLA's priority fusion on GPUs: producers in a queue by the time that fusing each into all of its
// users saves, by XLA's own model of a kernel's time. Made from facts of its public source
// (openxla/xla), in the versions that are named here by the first digits of their commits:
//  - the queue: xla/service/gpu/transforms/priority_fusion.cc (1aea158)
//  - times: xla/service/gpu/model/gpu_performance_model.cc (1b98628), gpu_performance_model_base.cc
//    (1adb0d7) and .h (270c6f8), coalescing_analysis.cc (7974f7e, its heuristic)
//  - operations, reads of an operand, code size: gpu_hlo_cost_analysis.cc (1e78ab1),
//    hlo_op_profiles_data.h (091793f)
//  - limits: xla/service/gpu/gpu_fusible.cc and .h (0708d3c)
//  - the pass after it: xla/service/gpu/multi_output_fusion.cc (01c2ee7)
// An operator here is an expression, several of XLA's instructions: it counts as they do.
// Predictions only: nothing here runs or counts.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/option.h"
#include "models/stitching/own_copies.h"
#include "models/stitching/stitching.h"

namespace tilewright::xlapriority {

using stitching::Device;
using stitching::Graph;
using stitching::Kind;
using stitching::Vertex;

/// What the source leaves to flags or has changed from version to version; each with its default.
struct Options {
  double launch_seconds = 1e-6;  ///< kKernelLaunchOverhead
  double parallelism = 0.95;     ///< of computing and memory: 1 takes the longer, 0 the sum
  double l2_speedup = 2.5;       ///< kL2CacheSpeedup, over DRAM
  double l1_speedup = 8;         ///< kL1CacheSpeedup, over L2
  int most_operands = 96;    ///< and outputs: MaxOperandsAndOutputsPerFusion, 64 in older versions
  bool duplicate = true;     ///< a producer of several users is computed in each
  bool multi_output = true;  ///< the pass after it
  stitching::Options kernels = {.products = stitching::Products::points};
};
std::span<const OptionSpec> option_specs();
Options options_of(const Settings& s);

/// What XLA's model takes of a GPU.
struct Gpu {
  double clock_ghz = 1;
  double cores = 1;      ///< SMs
  double fpus = 128;     ///< of an SM: 64 below compute capability 8.6
  int capability = 0;    ///< 90: sm_90; 0: not said
  double bandwidth = 1;  ///< of DRAM, bytes a second
  double l2_bytes = 0;
  double l1_bytes = 0;  ///< of an SM; of the machine file, the capacity of shared memory
  double threads_per_core = 2048;
};
Gpu gpu_of(const Device& d);

/// How XLA writes a kernel, which says how many blocks it has.
enum class Emitter : std::uint8_t { loop, reduction, transpose };
std::string_view name_of(Emitter e);
struct Launch {
  double blocks = 1, threads = 128;
};

/// One of XLA's fusions, or an operator alone: the operators of it and what its model says of it.
struct Fusion {
  std::vector<int> ops;    ///< vertices, ascending
  std::vector<int> gives;  ///< those whose results leave it, ascending

  struct Read {
    TensorId tensor;
    double utilization = 0;  ///< elements read over elements, each access counted
    double emitted = 0;      ///< times that code of the read is written
    std::set<int> roots;     ///< see Costs
  };
  std::vector<Read> reads = {};      ///< of tensors that others make, by tensor
  std::map<int, double> roots = {};  ///< utilization by root
  double flops = 0, code = 0, splits = 0;
  double bytes_written = 0;
  Emitter emitter = Emitter::loop;
  Launch launch = {};
  bool transposes = false;  ///< reads along another dimension than it writes
  bool reduces = false;     ///< a sum of 16 or more of which XLA writes no loop
  int reductions = 0;       ///< that are written as such
  double shared_bytes = 0;
  double read_seconds = 0, write_seconds = 0, compute_seconds = 0;
  double seconds = 0;  ///< without the launch

  const Read* find(TensorId t) const;
  bool has(int v) const { return std::ranges::binary_search(ops, v); }
};

/// What one operator is to XLA's cost analysis.
struct Operation {
  double flops = 0;   ///< of all its points: cycles, by the profile of its instructions
  double code = 0;    ///< instructions of XLA's that it is
  double splits = 0;  ///< of them those that split a basic block: sums, padding
};
Operation operation_of(const Workload& w, OpId op, int capability);

/// A sum as XLA's emitter sees it: [outer, reduced, kept] (columns) or [outer, kept, reduced]
/// (rows).
struct Reduction {
  bool rows = true;
  double outer = 1, kept = 1, reduced = 1;
  bool written =
      false;  ///< as such; else by a loop in each thread (IsUnnestedReductionFasterThanElemental)
  friend bool operator==(const Reduction&, const Reduction&) = default;
};
Reduction reduction_of(const Workload& w, OpId op);

/// What fusions of a graph's operators cost. An operator's utilization is the number of times that
/// it is computed over the points that it has: results are computed once, and what is read is
/// computed once for every read (FusionCalculateUtilizations). Reads at the index that is written
/// share one value, so that utilizations are kept by roots: a result, or an operator that is read
/// at another index.
class Costs {
 public:
  Costs(const Graph& g, const Gpu& gpu, const Options& o);
  const Graph& graph() const { return g_; }
  /// Cost: linear in its operators' accesses.
  Fusion fusion(std::vector<int> ops, std::vector<int> gives) const;
  /// The union that fusing a producer into a consumer makes; of both results where both leave it.
  Fusion fused(const Fusion& producer, const Fusion& consumer, bool both = false) const;
  /// Seconds of the kernel that both would be, without its launch, as XLA estimates it from each
  /// alone (EstimateRunTimeForFusion). `both`: the producer's result is written, too.
  double fused_seconds(const Fusion& producer, const Fusion& consumer, bool both = false) const;
  /// Why the producer is not fused into the consumer; none where it may be. Checked in XLA's order,
  /// and last whether a kernel of ours can hold both.
  std::optional<std::string> refusal(const Fusion& producer, const Fusion& consumer,
                                     bool both = false) const;
  /// Why two kernels that read the same tensor are not made one (LegalToFuse and
  /// ShapesCompatibleForMultiOutputFusion).
  std::optional<std::string> sibling_refusal(const Fusion& a, const Fusion& b) const;
  /// A product, a running operator or what is tied to one: it stays as it is.
  bool is_library(int v) const { return library_[static_cast<std::size_t>(v)]; }

 private:
  struct Shape {
    Emitter emitter = Emitter::loop;
    Launch launch;
    double elements = 1;  ///< of the loop that the kernel is
    std::optional<Reduction> sum = std::nullopt;
    friend bool operator==(const Shape& a, const Shape& b) {
      return a.emitter == b.emitter && a.elements == b.elements && a.sum == b.sum;
    }
  };
  void spread(Fusion& f) const;
  int hero(std::span<const int> ops, int v) const;
  Launch launch_of(Shape& s, int v) const;
  Shape shape_of(std::span<const int> ops, std::span<const int> gives) const;
  double read_seconds(double blocks, double net, double total, double rate) const;
  double common_utilization(const Fusion& p, TensorId t, const Fusion& c) const;
  double utilization_of(const Fusion& consumer, const Fusion& producer) const;
  double combined(double compute, double memory) const;
  double compute_seconds(double flops, const Launch& l) const;
  double dram_rate(TensorId t, bool coalesced) const;
  std::optional<std::string> over_budget(const Fusion& a, const Fusion& b, bool vertical) const;
  std::optional<std::string> not_held(const Fusion& both) const;

  const Graph& g_;
  Gpu gpu_;
  Options o_;
  std::vector<bool> library_;
  std::vector<Operation> operations_;     ///< by vertex
  std::vector<Reduction> sums_;           ///< by vertex
  std::vector<bool> transposes_, unary_;  ///< by vertex
};

/// One decision, in the order in which they were made.
struct Step {
  enum class Made : std::uint8_t { fused, siblings, both_outputs, slower, refused };
  Made made = Made::fused;
  std::string producer = {};  ///< its operators, results first named last: "a+b"
  std::vector<std::string> consumers = {};
  double unfused = 0, fused = 0;  ///< seconds; 0 where refused
  std::string why = {};           ///< where refused
};
std::string_view name_of(Step::Made m);

struct Fused {
  std::vector<Fusion> kernels;  ///< of all operators; some are in several
  std::vector<Step> steps;
};
/// How priorities are kept as fusions are made.
enum class Bookkeeping : std::uint8_t {
  incremental,  ///< those that a fusion may change, from times that are kept by pair
  anew,         ///< all, from nothing, before every fusion; the oracle of tests
};
/// The pass, and the one of several outputs after it. Deterministic: of equal priorities the
/// producer that was made last, as XLA has it. Cost: a fusion() for each pair of a producer and its
/// user, each time one of both has changed.
Fused fuse(const Costs& costs, const Options& o, Bookkeeping b = Bookkeeping::incremental);

/// Seconds of all kernels, launches with them; products are left out.
double seconds_of(const Costs& costs, std::span<const Fusion> kernels, const Options& o);

}  // namespace tilewright::xlapriority
