// A workload in an order that does not depend on how it is written down.
#pragma once

#include <memory>

#include "core/workload/workload.h"

namespace tilewright {

/// The same workload with its operators, loops and tensors in an order that what they compute
/// gives: neither names nor the order in which a file declares them have a part in it. Operators:
/// depth first from the results, what an operator reads from left to right, each after what it
/// reads. Loops: those that index results, then those over which each operator reduces, then the
/// others. Tensors: as operators use them. Of several results that nobody reads, the one of more
/// operators comes first; those that are alike in structure stay in the order in which they are
/// declared. Names are as before, so a plan of the one is a plan of the other. The workload itself,
/// where it is in that order. Cost: linear in its text, but for sorting readers.
std::shared_ptr<const Workload> in_canonical_order(std::shared_ptr<const Workload> w);

}  // namespace tilewright
