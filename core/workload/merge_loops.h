// Loops that always go together as one loop.
#pragma once

#include <functional>
#include <optional>

#include "core/workload/workload.h"

namespace tilewright {

/// Whether two loops that can be one become one; if so they do at once, by the outer one's name.
using MayMerge = std::function<bool(const Loop& outer, const Loop& inner)>;

/// The workload where two loops that index two neighbouring dimensions of every tensor that they
/// index, whole and in the same order, or one dimension as the digits of a number, are one, again
/// and again; nothing where there are no such loops. Tensors and operators keep their order, names
/// and elements: the rows and columns of an image that no window moves over become its points, so
/// that a tile is any run of them, and an image that was made larger has its own rows again.
///
///   y[o,h,w] += x[c,h,w] * k[o,c]   =>   y[o,h] += x[c,h] * k[o,c], h as long as both
///   y[c,h,p] += x[c,2*h+p+r-1] * k[c,r] (p: 2)   =>   y[c,h] += x[c,h+r-1] * k[c,r]
///
/// Inputs must have no values of their own (without_names). `may`: empty allows all pairs. Cost:
/// quadratic in loops.
std::optional<Workload> merged_loops(const Workload& w, const MayMerge& may = {});

/// The same of a workload in which operators that pass nothing to one another, not by others
/// between them either, have loops of their own: copies that share a launch are such, and what is
/// one loop of one of them may be two loops of another. One part's loops keep their names.
///
///   p[m,k,l] = x[k,l,m]; q[k,n,l] = y[k,n,l]   =>   p[m,k] = x[k,m]; q[k_2] = y[k_2]
std::optional<Workload> merged_loops_of_parts(const Workload& w);

}  // namespace tilewright
