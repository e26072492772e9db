// Operators that put tensors beside one another, or an element where it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// An input of an operator that joins tensors along one dimension: its elements are the result's,
/// as they are.
struct JoinedPart {
  int input = 0;          ///< position in Operator::inputs
  std::size_t dim = 0;    ///< of the result, along which it has its place
  std::int64_t from = 0;  ///< index of its first element there
  std::int64_t size = 0;  ///< elements along it
};

/// The parts of an operator whose result is inputs side by side, each zero beyond its own place, by
/// place; empty where it is anything else.
std::vector<JoinedPart> joined_parts(const Workload& w, OpId op);

/// Where the part begins in the result's memory, in bytes, where both have the same elements in the
/// same order there; nothing where they have not: what is outside of the dimension is longer than
/// one.
std::optional<std::int64_t> place_in_result(const Workload& w, OpId op, const JoinedPart& part);

/// The input, by position, that the operator copies element by element into a tensor of as many;
/// nothing where it is anything else.
std::optional<std::size_t> copied_input(const Workload& w, OpId op);

/// Whether such a copy has the input's elements in the order in which memory has them: dimensions
/// are cut or put together, and index tensors whose values are known say the parts of a number.
bool same_in_memory(const Workload& w, OpId op);

/// A tensor that lies in another one's memory, which has its elements as they are.
struct Inside {
  TensorId whole;
  std::int64_t offset = 0;  ///< in bytes
};
/// Tensors of a network that may lie in what they are joined to, or in what they are copied from,
/// so that nothing is copied: what operators make of its inputs, and no outputs. What several
/// results have a part of lies in the first. That one may lie in another one itself.
std::map<TensorId, Inside> tensors_inside(const Workload& w);

/// By OpId: joins and copies that copy nothing then.
std::vector<bool> joins_of_nothing(const Workload& w, const std::map<TensorId, Inside>& inside);

}  // namespace tilewright
