// Which parts of tensors gathers read.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/workload/reference/evaluate.h"

namespace tilewright {

/// The sectors of tensors that gathers touch, each counted once however often it is looked up: what a
/// memory that is read in sectors must give at least. Tensors begin at a sector.
class TouchedSectors {
 public:
  /// `indices`: the values that gathers are indexed by (gather_indices). `sector`: bytes.
  TouchedSectors(const Workload& w, const TensorValues& indices, std::int64_t sector)
      : w_(w), indices_(indices), sector_(sector) {}

  /// What op.inputs[input], a gather, reads. Cost: one visit a row that it looks up.
  void add(OpId op, int input);
  /// Of what was added so far; a last sector that the tensor does not fill counts as far as it is
  /// filled.
  Bytes of(TensorId tensor) const;

 private:
  const Workload& w_;
  const TensorValues& indices_;
  std::int64_t sector_;
  std::map<std::size_t, std::vector<bool>> touched_;  ///< by tensor
};

}  // namespace tilewright
