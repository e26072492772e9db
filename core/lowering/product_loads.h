// What a block of a product in registers loads: one count for whoever emits it or prices it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/workload/access.h"

namespace tilewright {

/// Loads of a step of the depth, over a block of so many rows and vectors, and its part of the
/// block's sums. Where the depth is long, vectors of the right operand come from the second cache:
/// they count more than twice. Where it is short, lines of sums count, too: rows begin anywhere.
inline double product_loads(double rows, double vectors, double depth) {
  constexpr double kLongDepth = 128, kFurther = 2.25;
  const double of_right = depth < kLongDepth ? 1 : kFurther;
  return rows + of_right * vectors + 2 * rows * (vectors + 1) / std::max(depth, 1.0);
}

// Panels of a right operand that a block's first group of rows keeps for the others: one rule for
// whoever emits or prices them.

/// Bytes of a kept panel that stays in the first cache: half of the smallest ones. It has so many
/// steps at least, else sums would be loaded too often.
inline constexpr std::int64_t kKeptBytes = 16 << 10, kLeastKeptSteps = 128;

/// Whether panels of so many bytes a step are cut along their depth to stay in the first cache.
constexpr bool cuts_panels(std::int64_t step) { return kLeastKeptSteps * step <= kKeptBytes; }

/// Whether panels are kept of an operand whose rows lie `apart` bytes apart: where hardware does
/// not bring the next ones by itself. Where panels are cut and many groups of `group` rows read
/// them, so are rows that are closer but do not stay in the first cache: they may begin anywhere in
/// a line, and what lies between them is brought along.
constexpr bool keeps_panels(std::int64_t apart, std::int64_t step, std::int64_t rows,
                            std::int64_t group, std::int64_t depth) {
  constexpr std::int64_t kApart = 1024, kLeastDepth = 16, kManyGroups = 4;
  if (depth < kLeastDepth) return false;
  if (apart >= kApart) return true;
  return cuts_panels(step) && apart > step && rows >= kManyGroups * group &&
         depth * apart > kKeptBytes;
}

/// Elements of the result that read each element of an input: the points of loops that it has not.
inline std::int64_t rows_that_meet(const Workload& w, const Operator& op, const Access& input) {
  std::int64_t rows = 1;
  for (const LoopId l : op.loops)
    if (indexes(op.outputs[0].target, l) && !indexes(input, l)) rows *= w.loop(l).extent;
  return rows;
}

/// Whether rows of a right operand that lie along the depth are read as they lie, and sums are
/// vectors along the depth, joined at its end: where an operand that changes from run to run would
/// be turned for so few rows. One row is read so at any depth; sums of more are joined quickly
/// enough beside a depth of eight steps a row.
constexpr bool reads_along_depth(std::int64_t rows, std::int64_t depth) {
  constexpr std::int64_t kMostRows = 16, kStepsOfRow = 8;
  return rows == 1 || (rows <= kMostRows && kStepsOfRow * rows <= depth);
}

}  // namespace tilewright
