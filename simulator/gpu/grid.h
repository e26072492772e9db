// The grid loops of a kernel, where they are nothing but a nest around everything else, or around
// everything of each part of a pack: then a block is visited once, and most blocks only repeat
// their neighbours at other addresses.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/stream.h"
#include "simulator/gpu/block_list.h"

namespace tilewright::gpu {

/// Which blocks of the nests are walked, and what the others do. Of a loop of more than kWalked
/// iterations the first three and the last three are; those between are taken to go on as the
/// second does to the third, and the list is refused unless the third but last is where that leads.
/// (Ends of clipped footprints are least or greatest values of affine forms. One that is affine
/// over the second, the third and the third but last iteration is affine over all between.)
class Grid {
 public:
  static constexpr std::int64_t kWalked = 6;
  /// None: the kernel's grid is no such nest, and no pack of them whose blocks follow one another.
  static std::optional<Grid> of(const Machine& m, const ScheduledKernel& k);

  /// With which iteration a walk goes on, told before each one: see LoopSteer. Of the grid's loops
  /// those between the first and the last are passed over where `skip`.
  std::int64_t steer(const LoopPoint& p, bool skip);
  /// A block begins: which nest it is of, and the iterations that steer() was told last.
  std::vector<std::int64_t> here() const;
  /// All blocks in linear order, of those that were walked and where. None: they are not as even as
  /// to say what the others do.
  std::optional<BlockList> all(const BlockList& walked,
                               const std::vector<std::vector<std::int64_t>>& where) const;
  bool skips() const;

 private:
  friend class Others;
  struct Nest {
    std::vector<NodeId> loops;         // outermost first
    std::vector<std::int64_t> counts;  // iterations
    std::vector<std::int64_t> at;      // the walk's
  };
  static std::optional<Nest> nest_of(const ScheduledKernel& k, NodeId part);
  std::vector<Nest> nests_;  // of each part of the pack; of the kernel
  std::size_t now_ = 0;      // whose blocks are walked
};

}  // namespace tilewright::gpu
