// Windows that slide over an image, one image at a time (depthwise convolutions, poolings), as the
// CPU target emits them (codegen/cpu/emit_planes.cpp): for that emitter and for whoever prices it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// What vectors there are.
struct VectorUnit {
  std::int64_t lanes = 16, registers = 32;
  std::int64_t element_bytes = 4;
  double multiply_add = 0.5;  ///< cycles a vector
};

/// Which of an operator's loops and of its image's dimensions are what (-1: none), and how many
/// rows of points are computed at once. Loops are positions in Operator::loops.
struct WindowPlane {
  std::size_t image = 0;                        ///< the input that the window slides over
  int rows = -1, columns = -1;                  ///< loops of points; columns is none's
  int down = -1, across = -1;                   ///< loops of taps
  int row_dim = -1, column_dim = -1;            ///< of the image
  std::int64_t row_step = 1, column_step = 1;   ///< elements from one point to the next
  std::int64_t down_step = 1, across_step = 1;  ///< and from one tap to the next
  std::int64_t taps_down = 1, taps_across = 1;
  const Expr* value = nullptr;  ///< combined at each tap, inside of the image
  double outside = 0;           ///< what the image is outside
  bool others = false;          ///< the value reads more than the image
  bool one_by_one = false;      ///< columns are not the image's last dimension: elements are copied
  /// Rows of the image are combined first, then columns of what that gives: a sum or a maximum of
  /// m x n taps takes m + n steps.
  bool in_turn = false;
  std::int64_t points = 1;  ///< rows of points in registers
  std::int64_t band = 1;    ///< rows of points that one copy serves
  std::int64_t phases = 1;  ///< columns of a copy that lie apart
  std::int64_t reach = 0;   ///< elements of a phase beyond its points
  std::int64_t pitch = 0;   ///< elements of a phase of a row

  /// Rows of the image that so many rows of points reach.
  std::int64_t image_rows(std::int64_t rows_of_points) const {
    return row_step * (rows_of_points - 1) + down_step * (taps_down - 1) + 1;
  }
};

/// The taps of all rows that are unrolled, at most.
inline constexpr std::int64_t kMostPlaneTaps = 400;

/// How an operator is such a window where its loops have so many iterations; none where it is not,
/// or where no element is a tap of several points. Cost: a look at the operator.
std::optional<WindowPlane> window_plane(const Workload& w, OpId op,
                                        const std::vector<std::int64_t>& sizes,
                                        const VectorUnit& unit);
/// Cycles of so many rows and columns of points of one image, one thread: of the copy, and of the
/// rest. The constants are fitted to drawn windows on a Zen 5, a Zen 4 and a Zen 3.
struct PlaneCycles {
  double copy = 0, points = 0;
};
PlaneCycles cycles_of_plane(const WindowPlane& p, std::int64_t rows, std::int64_t columns,
                            const VectorUnit& unit);

}  // namespace tilewright
