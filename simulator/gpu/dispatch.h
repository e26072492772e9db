// Which resident block goes on next.
#pragma once

#include <cstdint>

#include "simulator/gpu/block_list.h"
#include "simulator/gpu/gpu.h"
#include "simulator/gpu/l2.h"

namespace tilewright::gpu {

struct Dispatch {
  BlockOrder order = BlockOrder::timed;
  std::int64_t sms = 1;
  std::int64_t resident = 1;
  int partitions = 1;
  double jitter = 0;
  std::uint64_t seed = 1;  ///< of this list's paces
  std::int64_t limit = 0;  ///< blocks that run; 0: all
};

/// Blocks on their places, and the loop over time.
class Places {
 public:
  Places(const BlockList& blocks, const Dispatch& how, L2& l2);
  /// Runs on until block `last` is to start; with `drain` until the blocks before it have ended.
  void run(std::int64_t last, bool drain);

 private:
  struct Place {
    std::int64_t block = -1;  // -1: free
    std::size_t piece = 0;
    double time = 0, pace = 1;
  };
  bool take(Place& p, std::int64_t last);
  void step(Place& p, int side);
  void tick(std::int64_t last);
  double pace(std::int64_t block) const;
  int side(std::size_t place) const;

  const BlockList& blocks_;
  const Dispatch& how_;
  L2& l2_;
  std::vector<Place> places_;
  std::int64_t next_ = 0;  // block to be dispatched
  std::int64_t running_ = 0;
  double now_ = 0, tick_ = 0;
};

/// Runs the blocks of a list on an L2. Where there is a limit below the list's size, `mark` is
/// called twice: when block limit / 2 is to start, and when block `limit` would be. As many blocks
/// are under way at either time, so that what lies between is the work of half of the limit.
template <class F>
void dispatch(const BlockList& blocks, const Dispatch& how, L2& l2, F&& mark) {
  Places places(blocks, how, l2);
  if (how.limit == 0 || how.limit >= blocks.size()) return places.run(blocks.size(), true);
  places.run(how.limit / 2, false);
  mark();
  places.run(how.limit, false);
  mark();
  places.run(how.limit, true);
}

}  // namespace tilewright::gpu
