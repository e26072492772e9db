// Parts of a workload as workloads of their own.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/workload/workload.h"

namespace tilewright {

/// The part of a workload that these operators are, as a workload: what they read and do not write
/// is input, what others read of them, what the whole puts out and what nobody reads is output.
/// Loops, tensors and operators keep their names, extents and types, so that a plan of the part is
/// of the same names as a plan of the whole. Operators keep the whole's order; loops and tensors
/// come in the order in which the operators use them. Cost: linear in the whole.
///
/// Throws InputError, with `where` for who asked, where `ops` is empty or not convex (a path from
/// one of them to another leaves the part and comes back: the error names an operator on it), and
/// where it parts tied_operators().
Workload subgraph(const Workload& w, std::span<const OpId> ops, std::string_view where = "part");

/// Why these operators are no part, as subgraph says it; none where they are one.
std::optional<Reason> no_subgraph(const Workload& w, std::span<const OpId> ops);

/// Who makes and who reads a tensor that means something within one block of a running reduction
/// alone: a factor that a running result is rescaled by, or what such a result was before and after
/// a block. At the end it is not what it was for each block, so no cut goes between.
std::vector<std::pair<OpId, OpId>> tied_operators(const Workload& w);

/// Operators by their names, or by the names of tensors that only they write; ascending, each once.
/// Throws InputError for a name that is none.
std::vector<OpId> operators_named(const Workload& w, std::span<const std::string> names,
                                  std::string_view where);

}  // namespace tilewright
