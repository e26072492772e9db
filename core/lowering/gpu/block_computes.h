// How the computes of a block are carried out, as products, contractions or point by point, by the
// sizes of their tiles alone: what block_work counts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/lowering/gpu/block_work.h"

namespace tilewright::lowering {

class BlockComputes {
 public:
  /// `tiles`: by BufferId; read when asked.
  BlockComputes(const Workload& w, const ScheduledKernel& k,
                const std::vector<BlockWork::Tile>& tiles)
      : w_(w), k_(k), tiles_(tiles) {}

  /// One output as a product or a contraction, by the rules of blocks' lowering
  /// (block_products.cpp); none: it is neither. `extents`: by the operator's loops; `runs`: how
  /// often the block comes to it.
  std::optional<ProductRun> product(const ScheduleNode& n, const OutputUse& use,
                                    const std::vector<std::int64_t>& extents, double runs) const;
  /// The same compute point by point.
  PointsRun points(const ScheduleNode& n, const std::vector<std::int64_t>& extents, double points,
                   double runs) const;

 private:
  BufferId buffer_read(const ScheduleNode& n, int input) const;
  bool rows_are_neighbours(const ScheduleNode& n, const std::vector<std::int64_t>& extents) const;
  bool fits(const Operator& op, const Access& a, BufferId b, std::size_t outer, std::size_t inner,
            bool in_blocks, const std::vector<std::int64_t>& extents) const;
  bool runs_along_rows(const Access& a, BufferId b, LoopId loop) const;

  const Workload& w_;
  const ScheduledKernel& k_;
  const std::vector<BlockWork::Tile>& tiles_;
};

}  // namespace tilewright::lowering
