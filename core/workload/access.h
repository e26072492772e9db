// Questions about accesses and what is made of them that several parts ask.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// Whether the loop is one of the index's.
bool indexes(const Affine& index, LoopId loop);
/// Whether the loop is one of some dimension's index.
bool indexes(const Access& access, LoopId loop);
/// How many points of the loops that say which element a gather reads (gather_loops), in these
/// ranges, name one: every index that is no value lies inside the tensor.
/// Cost: constant where each of these loops is in one index at most, which has no other; else a
/// step for each combination of those that share indices, but the longest.
std::int64_t points_named(const Workload& w, const Operator& op, const Access& gather,
                          std::span<const Interval> ranges);
/// The most steps that takes in any ranges.
double most_steps_of_points_named(const Workload& w, const Operator& op, const Access& gather);
/// The two inputs whose products the output sums, as they are written; none: it is no such sum, or
/// both are one.
std::optional<std::array<int, 2>> factors_of(const Output& output);
/// Elements in memory from one to the next along each dimension.
std::vector<std::int64_t> strides_of(const Tensor& t);

}  // namespace tilewright
