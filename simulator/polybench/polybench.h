// The 30 kernels of PolyBench 4.2 as programs over traced arrays: real loop nests whose misses
// others have counted, in hardware (PAPI) and in simulators.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/cache.h"
#include "simulator/page_walks.h"

namespace tilewright::polybench {

enum class Size : std::uint8_t { small, medium, large };
std::string_view name_of(Size size);
std::optional<Size> size_from_name(std::string_view name);

/// A kernel's parameters, in PolyBench's order; what a kernel has not is 0.
using Sizes = std::array<std::int64_t, 5>;

class Plain;  // see spaces.h
class Traced;

/// Arrays are row-major, each at the next multiple of 4096 from Options::base on, in the order in
/// which PolyBench declares them, of PolyBench's standard types (double; float in deriche, int in
/// floyd-warshall and nussinov). What is recorded is what a compiler at -O2 leaves of the kernel's
/// element accesses where it cannot tell arrays apart: scalars and sums over a scalar stay in
/// registers, an array's element that the innermost loop adds to is loaded once and stored every
/// time, and what an intervening store might have changed is loaded again. Initialisation is not
/// recorded.
struct Kernel {
  std::string_view name;
  std::array<Sizes, 3> sizes;  ///< small, medium, large
  int arrays;                  ///< how many tensors a hierarchy has to tell apart
  void (*traced)(Traced& space, const Sizes& n);
  void (*plain)(Plain& space, const Sizes& n);
  const Sizes& of(Size size) const { return sizes[static_cast<std::size_t>(size)]; }
};

/// All of them, by name.
std::span<const Kernel> kernels();
/// Null where there is none of that name.
const Kernel* find_kernel(std::string_view name);

struct Options {
  std::int64_t base = 0x1000'0000;
  /// Page walks through the caches; the tensor is set to one of its own.
  std::optional<PageWalkOptions> walks = {};
  CacheOptions caches = {};  ///< its tensors are set
  /// Records every access on its own and computes the arrays; counts are the same without.
  bool values = false;
};

struct LevelMisses {
  std::string name;
  std::int64_t hits = 0, misses = 0;
  std::int64_t prefetches = 0;
  std::int64_t walk_misses = 0;  ///< of these misses, the page walker's
  /// Lines brought in: misses and prefetches.
  std::int64_t lines() const { return misses + prefetches; }
};

struct Counted {
  std::int64_t accesses = 0;
  std::int64_t walks = 0;
  std::vector<LevelMisses> levels;               ///< inner to outer
  std::vector<std::vector<double>> values = {};  ///< of the arrays at the end, with Options::values
};

/// Runs a kernel once over empty caches. Cost: linear in what L1 is asked for beyond the lines of
/// the iteration before (all 30 kernels at the medium size some ten seconds); in all accesses with
/// `values` and with caches other than plain ones. Throws InputError for a hierarchy that is wrong.
Counted count(const Kernel& kernel, const Sizes& n, std::vector<CacheGeometry> inner_to_outer,
              const Options& options = {});
/// The same program over plain arrays: their values at the end.
std::vector<std::vector<double>> compute(const Kernel& kernel, const Sizes& n);

}  // namespace tilewright::polybench
