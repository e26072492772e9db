// Products through a window whose points are broadcast to vectors of the other operand's rows, as
// the CPU target emits them (`convolve`): what they take, for whoever chooses that form or prices
// it.
#pragma once

#include <cstdint>

#include "core/workload/workload.h"

namespace tilewright {

/// Which column of an image a tap of a point reads: `first` + `point` for each point + `tap` for
/// each tap across. Taps that find other points inside of the image than the rest are runs of
/// their own.
struct WindowColumns {
  std::int64_t first = 0, point = 1, tap = 1, taps = 1;
  std::int64_t image = 0;  ///< columns that there are; 0: all are inside
};
/// Taps of a channel, at most: of more each is a channel of its own.
inline constexpr int kMostWindowTaps = 64;
/// Of the dimension that `columns` moves; of none where several loops of taps do, or too many taps.
WindowColumns window_columns(const Workload& w, OpId op, const Access& a, std::size_t dimension,
                             LoopId columns);

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
};

/// Vectors of rows beside which points are broadcast.
inline constexpr std::int64_t kPointVectors = 2;
/// Points that stay in so many registers beside that many vectors of sums each.
std::int64_t points_in_registers(std::int64_t registers);
/// Cycles of the tile, one thread. The constants are of what is emitted, as a Zen 4 runs it.
double cycles_of_points(const WindowPoints& p);
/// The same as a Xeon with AMX runs it, for a price: `inside` is of rows alone, runs are counted by
/// the columns that they reach, and few points wait for instructions. `taps_down`: of a channel, in
/// one column. Which form is emitted is still said by cycles_of_points.
double cycles_of_runs(const WindowPoints& p, const WindowColumns& c, double taps_down);

/// Of the points of all loops that move a dimension of the access, those whose index is inside the
/// tensor, from 0 to 1; 1 where there are more than 65,536. Cost: one look at each point.
double inside_share(const Workload& w, const Access& a, std::size_t dimension);

}  // namespace tilewright
