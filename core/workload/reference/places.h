// Where a row has its largest value, or its least: operators that say its place, and which places a
// right kernel may say. Internal to the evaluator.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "core/workload/reference/sweep.h"

namespace tilewright::reference {

/// By element, row-major: the values that an element may have instead of all between its bounds.
using Accepted = std::map<std::size_t, std::vector<double>>;

/// Of an output of the form select(lt(x, m), none, place), m the largest of x's row (of lt(m, x)
/// the least), place exact: which elements say their place while others of their row may say
/// theirs, and those places. x and m come from one tensor, so their errors come together: the
/// element that is the largest is never less than it, and rounding changes only which element that
/// is. `errors`, of each element by itself, become none in rows in which one element alone may be
/// the largest. Of another output nothing. Cost: some sweeps.
std::map<std::size_t, double> places_in_doubt(const Workload& w, OpId id, const Output& o,
                                              const Domain& domain, std::span<const Source> sources,
                                              const Arithmetic& in, std::span<double> errors);

/// What the elements of `target` may be that combine such elements of sources[source] as they are,
/// by max or min: the place of any of them. Cost: one visit a point.
Accepted accepted_places(const Domain& domain, const Source& source, const Target& target,
                         const std::map<std::size_t, double>& doubtful);

}  // namespace tilewright::reference
