// A schedule as JSON: what is drawn of a plan, and what models written in Python read of it.
#pragma once

#include "core/plan/schedule.h"
#include "harness/answer.h"

namespace tilewright::harness {

/// A list, per kernel: {"name", "level", "blocks", "nodes": the resolved tree, "buffers"}. A node
/// is
/// {"kind", "name", "children"}, a loop also "step", "trips" (at most) and "binding", a load or
/// store "level", one of a tile also "tile" (its extents, the first time the node runs) and
/// "bytes". A buffer is
/// {"tensor", "level", "role", "copies", "tile", "bytes", "fixed_at": the loop in whose body its
/// tile is set, "" at the kernel}; tile and bytes (all copies) as when first filled, null where
/// only a compute says them. Cost: one walk over the nodes.
nlohmann::ordered_json kernels_json(const Schedule& s);

}  // namespace tilewright::harness
