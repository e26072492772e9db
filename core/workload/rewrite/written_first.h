// An operator's input, written by an operator of its own first. Internal to rewrites.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::rewrite {

/// The loops of the operator that say which element is read, and how many elements that are.
struct Looked {
  std::vector<LoopId> loops;
  std::vector<std::int64_t> shape;
  double elements = 1;
};
/// The operand's elements that these loops say.
Looked looked_by(const Workload& w, std::vector<LoopId> loops);

/// The input of `op` as an operator that writes it, named after its tensor. `op` reads what that
/// one writes.
Operator written_first(WorkloadSpec& spec, Operator& op, std::size_t input, const Looked& looked);

/// The workload where `change` has made each of the operators named read what others write. These
/// go to `write_first`, and stand before it.
using WriteFirst = std::function<void(Operator)>;
Result<Workload> after_others(
    const Workload& w, std::span<const std::string_view> names,
    const std::function<void(WorkloadSpec&, OpId, Operator&, const WriteFirst&)>& change);

/// How many elements the access moves on in memory with each iteration of the loop.
std::int64_t stride_of(const Workload& w, const Access& a, LoopId l);

/// Whether indices of a dimension of so many elements stay inside of the tensor and are no values.
bool stays_inside(const Workload& w, const Affine& index, std::int64_t extent);

}  // namespace tilewright::rewrite
