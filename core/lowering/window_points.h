// Products through a window whose points are broadcast to vectors of the other operand's rows, as
// the CPU target emits them (`convolve`): what they take, for whoever chooses that form or prices
// it.
#pragma once

#include <cstdint>

#include "core/workload/workload.h"

namespace tilewright {

/// A tile of such a product.
struct WindowPoints {
  double rows = 1;               ///< of the operand whose rows are lanes: output channels
  double width = 1, height = 1;  ///< points
  double steps = 1;              ///< channels times taps
  double inside = 1;             ///< of the steps' points, those that are no padding
  std::int64_t lanes = 16;       ///< elements of a vector
  std::int64_t registers = 32;   ///< vectors of them
  double multiply_add = 0.5;     ///< cycles a vector
  bool packs = false;            ///< the rows are packed beside, once for each tile
  double ahead = 0;              ///< steps of the next points that pass beside; 0: none
  double near = 28 << 10;        ///< bytes of a group's rows that stay in the first cache
};
/// Of the first cache, what a group's rows have beside points and sums.
inline constexpr double kRowsNear = 0.58;

/// Points whose sums stay in so many registers, of that many vectors of rows each.
std::int64_t points_in_registers(std::int64_t registers, std::int64_t vectors);
/// Vectors of rows beside which points are broadcast: groups of two or three, whichever take fewer
/// cycles. What is left over has a group of fewer vectors and more points.
std::int64_t vectors_beside_points(const WindowPoints& p);
/// Cycles of the tile, one thread. The constants are of what is emitted, as a Zen 4 runs it; what
/// it issues in a cycle is a Zen 3's.
double cycles_of_points(const WindowPoints& p);

/// Of the points of all loops that move a dimension of the access, those whose index is inside the
/// tensor, from 0 to 1; 1 where there are more than 65,536. Cost: one look at each point.
double inside_share(const Workload& w, const Access& a, std::size_t dimension);

}  // namespace tilewright
