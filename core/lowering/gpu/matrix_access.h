// Accesses of tensors whose two innermost indices in question are a matrix, and the other loops
// tell matrices apart: how these lie in memory, and in which boxes the TMA unit copies them.
#pragma once

#include <span>

#include "core/lowering/gpu/box_map.h"
#include "core/workload/access.h"
#include "core/workload/workload.h"

namespace tilewright::lowering {

/// Elements between neighbours along both loops of the matrix and between matrices. Which matrix
/// one of all products has: product / divide % modulo, products counted in the order of their
/// loops.
struct MatrixAccess {
  std::int64_t inner = 0, outer = 0, apart = 0;
  std::int64_t divide = 1, modulo = 1;
};

bool has_whole_loop(const Access& a, LoopId loop);
/// Throws Refused where some index is no whole loop.
void check_whole_loops(const Workload& w, const Access& a);
/// Throws Refused where some index is no loop, or one of another extent than the dimension and not
/// among `partial`.
void check_loops(const Workload& w, const Access& a, std::span<const LoopId> partial);
/// Throws Refused where some index is no loop, or one that is longer than the dimension: rows may
/// be longer than what is written of them.
void check_loops_within(const Workload& w, const Access& a);
/// Elements of the loop's dimension that it reaches.
std::int64_t reached(const Workload& w, const Access& a, LoopId loop);
/// `products`: loops that tell matrices apart, outermost first. The tensor has all of them, none,
/// or some that follow one another. `joined`: a loop that `inner` stands for, too. Throws Refused
/// where no number of elements lies between matrices.
MatrixAccess matrix_access(const Workload& w, const Access& a, LoopId inner, LoopId outer,
                           std::span<const LoopId> products, LoopId joined = {});
/// Throws Refused where rows do not begin at multiples of 16 bytes, which boxes need.
void check_box_rows(const Workload& w, TensorId t, const MatrixAccess& m);
/// Boxes of 128 bytes of a row and `tall` rows, of matrices of `outer` rows of `inner` elements.
BoxMap box_map(const Workload& w, TensorId t, const MatrixAccess& m, std::int64_t inner,
               std::int64_t outer, int tall);

}  // namespace tilewright::lowering
