// Questions about accesses and what is made of them that several parts ask.
#pragma once

#include <array>
#include <optional>

#include "core/workload/workload.h"

namespace tilewright {

/// Whether the loop is one of the index's.
bool indexes(const Affine& index, LoopId loop);
/// Whether the loop is one of some dimension's index.
bool indexes(const Access& access, LoopId loop);
/// The two inputs whose products the output sums, as they are written; none: it is no such sum, or
/// both are one.
std::optional<std::array<int, 2>> factors_of(const Output& output);

}  // namespace tilewright
