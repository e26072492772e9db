// Kernels of our own where bytes decide.
#pragma once

#include <optional>

#include "models/quickest/quickest.h"

namespace tilewright::quickest {

/// One kernel that computes the whole workload and moves few bytes into the level that is planned
/// for. The level is taken as memory that software manages, of the room that is asked for; `exact`
/// counts.
/// A tree has loops around all operators, and below them nests of their own for runs of operators.
/// At the body between them any inputs may be loaded and outputs stored; else computes load what
/// they read. Loops, their order and their steps, the runs and what is loaded are searched for:
/// descents from a few trees and from changed ones, always the same, until `effort` trees are
/// priced or nothing moves but what must. Nothing where no tree is legal and fits. A workload of
/// the signature of one before it, slices of inputs anywhere, is not searched again in the process;
/// the trees count as seen all the same. Cost: for each tree microseconds (Bounds), and for those
/// that may be better hundreds, to resolve and to count them.
std::optional<Kernel> fewest_bytes(const Question& q, const Workload& w, int effort,
                                   Candidates& seen);

}  // namespace tilewright::quickest
