// Evaluating inputs that are indexed by values. Internal to the evaluator.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/workload/reference/evaluate.h"

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

/// Elements base + i * stride of a row-major tensor, i in `valid`.
struct GatheredRow {
  std::int64_t base = 0, stride = 0;
  Interval valid = {};
};
/// Calls f for what op.inputs[input] reads over the operator's whole loops, row by row; of the
/// tensors' values only those that index it are looked at. What lies outside the tensor is not
/// read.
void each_gathered(const Workload& w, const Operator& op, int input, const TensorValues& values,
                   const std::function<void(const GatheredRow&)>& f);

}  // namespace tilewright::reference
