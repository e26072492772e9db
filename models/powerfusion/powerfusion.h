// PowerFusion (Ma et al., POWERFUSION: A Tensor Compiler with Explicit Data Movement Description
// and Instruction-level Graph IR, 2023): operators of a graph are put together by what their data
// movement costs; each kernel is a GIR (gir.h) whose moves rewriting (optimise.h) takes away.
// Predictions only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/powerfusion/build.h"
#include "models/powerfusion/optimise.h"
#include "models/stitching/stitching.h"

namespace tilewright::powerfusion {

using stitching::Device;
using stitching::Graph;
using stitching::PlanPrice;
using stitching::StitchedKernel;
/// Operators of one kernel: vertices of a Graph, ascending.
using Operators = stitching::Pattern;

/// What a kernel's GIR takes: by resources that work at the same time (models/stitching/overlap.h);
/// by the bytes of its moves at each tier's bandwidth, how well they lie and how many are under
/// way, and by its syncs; by bytes alone. The paper has a model and prints no formula. automatic:
/// overlap where the machine's file has cycles of instructions, else parallel.
enum class PriceBy : std::uint8_t { automatic, overlap, parallel, bytes };
enum class Search : std::uint8_t { automatic, exhaustive, bound, beam };
enum class Library : std::uint8_t { ridge, type, none };
std::optional<PriceBy> price_by_from_name(std::string_view name);
std::optional<Search> search_from_name(std::string_view name);
std::optional<Library> library_from_name(std::string_view name);
std::optional<ScopeTest> scope_test_from_name(std::string_view name);

/// Every open point of the paper, the default first.
struct Options {
  Rewriting rewriting;
  bool duplicate = true;  ///< moves (slices, gathers, transposes) are made again by each reader
  Library library = Library::ridge;
  double ridge = 0;  ///< flops a byte; 0: the machine's, f32 over DRAM
  Search search = Search::automatic;
  int exact = 10;  ///< operators up to which the search is exact (Search::automatic)
  int beam = 8;
  PriceBy price = PriceBy::automatic;
  double launch_us = 2;  ///< of a kernel, PriceBy::parallel and bytes
  bool pack = true;      ///< independent operators in one kernel

  stitching::Options kernels() const;
};

/// Flops a byte from which on a contraction is a library's: stitching's, of the option.
double ridge_of(const Device& d, const Options& o);

// ---- Price --------------------------------------------------------------------------------------

/// Seconds of a GIR without its launch: its moves, one after the other, each bytes over bandwidth *
/// coalescing * parallelism, and its syncs. coalescing: of segments' bytes over the 32-byte sectors
/// that they lie in. parallelism: bytes that all resident units have under way over those that the
/// bandwidth needs to hide DRAM's latency (Little), at most 1.
double parallel_seconds(const Gir& g, const Device& d);
/// A kernel's by `o.price`, launch included. `bytes`: that it moves at least.
double gir_seconds(std::span<const Gir> parts, const Device& d, const Options& o, double bytes);
/// Of a kernel's launch.
double launch_seconds(const Device& d, const Options& o);
/// A compute-bound operator's kernel: the longer of arithmetic and bytes, and a launch. 0 where the
/// machine's file gives no rates.
double library_seconds(const Graph& g, int vertex, const Device& d, const Options& o);

// ---- Search (section 6) -------------------------------------------------------------------------

/// What a kernel of these operators takes; infinite where it cannot be.
using KernelCost = std::function<double(const Operators&)>;
struct Merging {
  std::vector<Operators> kernels;
  double cost = 0;
  std::int64_t states = 0;  ///< partial plans looked at
};
/// Every way to part `vertices` (ascending) into kernels that can be put in an order. Cost:
/// exponential.
Merging exhaustive_merging(const Graph& g, const Operators& vertices, const KernelCost& cost);
/// The same result: operators in topological order, each into every open kernel or a new one, while
/// what no later merge removes (`least` of each kernel) is below the best plan so far, `start` at
/// first.
Merging bounded_merging(const Graph& g, const Operators& vertices, const KernelCost& cost,
                        const KernelCost& least, std::optional<Merging> start = {});
/// The best `width` partial plans after each operator, by `least`; their ends by `cost`, which is
/// not asked of those whose kernels' `bound`s say enough.
Merging beam_merging(const Graph& g, const Operators& vertices, const KernelCost& cost,
                     const KernelCost& least, int width, int most_operators,
                     const KernelCost& bound = {});

/// Bytes that no operator added later takes away, at DRAM's rate, and a launch; infinite where no
/// kernel can hold the operators so far.
double least_seconds(const Graph& g, const Device& d, const Options& o, const Operators& kernel);
/// The same with what every kernel takes by `o.price` besides those bytes: no more than its
/// seconds.
double bound_seconds(const Graph& g, const Device& d, const Options& o, const Operators& kernel);

}  // namespace tilewright::powerfusion
