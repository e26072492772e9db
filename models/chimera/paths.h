// Chimera on a graph of paths (HPCA 2023, sections IV-C and V-B): an NPU's cube reads from L0A and
// L0B and adds up in L0C, siblings each with a capacity and paths of its own, and results leave
// through the Unified Buffer. Least largest Cost_d = DV_d / bw_d over every path d.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/plan/traffic.h"
#include "core/workload/matrix_product.h"
#include "core/workload/workload.h"

namespace tilewright::chimera {

/// The buffers around a cube, by name: L1, UB, L0A, L0B, L0C.
struct CubeLevels {
  LevelId l1, ub, l0a, l0b, l0c;
};
/// A Reason where the machine lacks one of them.
Result<CubeLevels> cube_levels(const Machine& m);

/// A product, or two with element-wise operators between them.
struct CubeChain {
  MatrixProduct first;
  std::optional<MatrixProduct> second;
  std::vector<OpId> between;
};
/// A Reason where the workload is no such chain.
Result<CubeChain> cube_chain(const Workload& w);

/// What `mad` gets at a time. Multiples of the cube's 16 lanes, or more than what is left of a loop.
struct CubeTile {
  std::int64_t rows = 0, columns = 0, depth = 0;
  friend bool operator==(const CubeTile&, const CubeTile&) = default;
};

/// Section V-B's micro-kernel: the tile with which a block loads least into L0 (the most arithmetic
/// intensity; M1 = N1 where the block is much larger), whose operands of 2 bytes fit `left` and
/// `right` bytes and whose fp32 sums fit `sums` bytes; ties: deeper. All 0 where none does.
CubeTile mad_tile(const CubeTile& block, Bytes left, Bytes right, Bytes sums,
                  std::int64_t lanes = 16);

/// Blocks at L1 of the first product's loops and of the second's columns, and what `mad` gets of each
/// product's block.
struct PathBlocks {
  std::int64_t rows = 0, depth = 0, columns = 0;
  std::int64_t second_columns = 0;
  CubeTile first, second;
};
/// The kernel of these blocks: batch, rows and the last product's columns over cores; the first
/// product's columns one block after the other, each multiplied on at once. Sums stay in L0C until
/// they are complete. A Reason where the workload is no such chain.
Result<Plan> plan_of(const Workload& w, const PathBlocks& blocks);

struct PathOptions {
  /// Elements of 16 bits a lane row of the cube: M2 = N2 in the paper.
  std::int64_t lanes = 16;
  bool cube = true;   ///< the cube's own time is one more cost (a roofline); the paper has paths only
  bool fused = true;  ///< a chain of two products in one kernel; else each operator is a kernel
};

/// DV_d and Cost_d of one path.
struct PathCost {
  std::string kernel;
  std::string boundary;  ///< as Machine::boundary; "cube" for the multiplications
  Bytes bytes;           ///< DV_d of the whole workload; multiply-accumulates for "cube"
  double bandwidth = 0;  ///< of what runs at the same time, bytes a second
  double seconds = 0;    ///< Cost_d
};

struct PathPlan {
  Plan plan;
  std::vector<PathCost> costs;  ///< of all kernels
  Traffic traffic;              ///< by exact
  double largest = 0;           ///< summed over kernels, each its slowest path
  double sum = 0;               ///< of all paths of all kernels
  std::map<std::string, Bytes> memory;
  std::int64_t blocks = 0;      ///< of the last kernel
  std::map<std::string, std::int64_t> counted;  ///< blocks priced, those that did not fit
  double seconds = 0;           ///< that the search took
};

/// What a plan costs on the machine's paths: bytes by `exact`; a path's bandwidth is the machine
/// file's of its target level, times the cores that have a block, in whole rounds of blocks; a level
/// that all cores share gives no more than its own. A Reason where the plan is illegal, does not fit
/// or a bandwidth is unknown.
Result<PathPlan> price_paths(const Plan& plan, std::shared_ptr<const Workload> w,
                             std::shared_ptr<const Machine> m, const PathOptions& options);

/// The best plan for a product, or for a chain of two products with element-wise operators between:
/// blocks at L1 (batch and rows over cores, and where that is cheaper the last product's columns,
/// its producer recomputed) and, in them, mad_tile's blocks at L0. Every block size that changes a
/// number of trips is priced. A Reason where the workload is no such chain or nothing fits.
Result<PathPlan> best_paths(const Workload& w, std::shared_ptr<const Machine> m,
                            const PathOptions& options);

}  // namespace tilewright::chimera
