// Cuts of a workload into parts that a model can plan.
#pragma once

#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// Operators of one part, ascending.
using Part = std::vector<OpId>;

/// Every operator a part of its own, but for those that subgraph() does not take apart: a running
/// result, what it rescales, and what lies between.
std::vector<Part> cut_each(const Workload& w);

/// Parts around contractions. Two contractions of which one reads what the other makes, at once or
/// through other operators, are one part with what lies between them, and with what else reads of
/// that (softmax's sum and its division); of pairs that exclude one another, the one with more
/// bytes between its contractions is taken first. Other contractions are parts of their own. What
/// remains are connected components of operators that no contraction stands between.
///
/// Without `pairs`, every contraction is a part of its own.
///
/// Every part is one that subgraph() takes, and no two wait for one another. Cost: linear in the
/// workload for each pair of contractions with nothing but other operators between them.
std::vector<Part> cut_contractions(const Workload& w, bool pairs = true);

/// By OpId: operators whose every input has values, or is made by such an operator: what they make
/// is the same in every run.
std::vector<bool> constant_operators(const Workload& w);

/// Parts of a network whose kernels are run one after the other. A contraction, and any operator
/// that reads nothing that an operator makes, begins a part. An operator without a reduction joins
/// the part of what it reads element by element, else of what it reads otherwise, the latest first;
/// a reduction joins such a part where that has no contraction. Two contractions with
/// exponentials and a reduction of another kind between them (attention) are one part. Up to `most`
/// operators a part; constant ones are in parts of their own, and each of `alone` (by OpId; empty:
/// none) is a part. Parts are ones that subgraph() takes, and no two wait for one another. Cost:
/// quadratic in operators.
std::vector<Part> cut_followed(const Workload& w, const std::vector<bool>& alone = {},
                               std::size_t most = 12);

}  // namespace tilewright
