// Evaluating inputs that are indexed by values. Internal to the evaluator.
#pragma once

#include <span>
#include <vector>

#include "core/reference/evaluate.h"

namespace tilewright::reference {

/// What a gather has read, as a dense array over the loops that its indices name, and the access
/// that reads it there.
struct Gathered {
  Access access;
  std::vector<std::int64_t> shape;
  std::vector<double> data;
};

/// op.inputs[input] over `ranges` (by position in op.loops), some of its dimensions indexed by the
/// values of other inputs. An index outside the tensor reads as zero. On up to `threads`
/// threads (0: all cores). Cost: one visit a point of those loops; memory: 8 bytes a point.
Gathered gather(const Workload& w, const Operator& op, int input, std::span<const Interval> ranges,
                const TensorValues& values, int threads = 1);

}  // namespace tilewright::reference
