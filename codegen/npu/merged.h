// Kernels over fewer loops, of which vectors, copies and matrices are longer.
#pragma once

#include <cstddef>
#include <optional>

#include "core/plan/schedule.h"

namespace tilewright::npu {

/// One kernel of the schedule as a schedule of its own, where two loops that index neighbouring
/// dimensions of every tensor are one (merged_loops): the tree has the inner one whole everywhere,
/// so that a tile is a run of both. Tensors keep their names and elements. Nothing where there are
/// no such loops.
std::optional<Schedule> merged_kernel(const Schedule& schedule, std::size_t kernel);

}  // namespace tilewright::npu
