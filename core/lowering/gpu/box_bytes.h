// What the TMA unit's copies bring into the SMs, as NVIDIA's counters have it
// (l1tex__m_xbar2l1tex_read_bytes): boxes are whole, in sectors of 32 bytes, what lies past an end
// among them. `exact` counts the plan's elements.
#pragma once

#include <cstdint>

#include "core/lowering/gpu/box_map.h"
#include "core/lowering/gpu/warpgroup_pair.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::lowering {

/// Bytes of a box of `rows` rows that begins at those elements of the tensor. `several`: it goes to
/// several blocks of a cluster; bytes into one of them. `group`: its place in a fourth dimension.
std::int64_t box_bytes(const BoxMap& map, std::int64_t column, std::int64_t row,
                       std::int64_t product, std::int64_t rows, bool several,
                       std::int64_t group = 0);

/// All boxes of operands that the kernel's blocks get. Cost: a visit of each row of each box of one
/// tile of results in a row and in a column of tiles.
std::int64_t box_bytes(const WarpgroupProduct& p);
std::int64_t box_bytes(const WarpgroupPair& p);

/// Of all kernels of the schedule; a Reason where one is neither, and why.
Result<std::int64_t> box_bytes(const Schedule& s);

}  // namespace tilewright::lowering
