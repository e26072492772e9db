// What the blocks of an SM find in the L1 that they share, and what comes from further away.
#pragma once

#include <utility>
#include <vector>

#include "core/lowering/gpu/thread_program.h"

namespace tilewright::stitching {

struct Device;

class FirstLevel {
 public:
  /// `grid`: the block indices of what runs in `blocks` blocks, outer ones first.
  FirstLevel(const Device& d, const lowering::ThreadProgram& p, std::vector<int> grid,
             double blocks)
      : d_(d), p_(p), k_(*p.kernel), grid_(std::move(grid)), blocks_(blocks), room_(of_tensor()) {}

  /// Of a block's sectors of a load, those that L2 gives: blocks of an SM that follow one another
  /// find in L1 what others of them have brought, where it has room for what all of these read.
  /// Blocks are given out to SMs in turn.
  double from_l2(TensorId t, const lowering::Linear& at, double sectors) const;
  /// Whether other blocks read the same.
  bool others_read(const lowering::Linear& at) const;
  /// How much faster L2 gives a load's sectors that several multiprocessors ask for at about the
  /// same time than such that each asks for alone.
  double asked_together(const lowering::Linear& at) const;
  /// Cycles until a load is there: what other blocks read, too, they have brought to L2. `fresh`:
  /// how often it is not in L1.
  double latency(const lowering::Linear& at, double fresh = 1) const;

 private:
  double most_resident() const;
  double of_tensor() const;
  bool is_read_only(TensorId t) const;

  const Device& d_;
  const lowering::ThreadProgram& p_;
  const ScheduledKernel& k_;
  std::vector<int> grid_;
  double blocks_;
  double room_;  ///< bytes, for a tensor
};

}  // namespace tilewright::stitching
