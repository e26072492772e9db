// A part of a kernel as a tree whose loops are bound to warps, lanes and threads.
#pragma once

#include <map>
#include <string>

#include "models/stitching/stitching.h"

namespace tilewright::stitching {

struct BoundTree {
  Node tree;
  std::map<std::string, Pin> pins;  ///< by tensor: values handed on through shared memory
  std::int64_t kept =
      0;  ///< registers of values that a thread keeps from one pass over its row to the next
};

/// The tree with its pins: two of one text are the same schedule.
std::string text_of(const BoundTree& tree);

/// The part's tree in the scheme that its groups share, at level `registers`:
///  - warp:   `r/8@grid r/1@warp ( c/4@lane ( C.sum ) Y.warp C.mean c/4@lane ( C.sub ) )`, a row a
///  warp;
///  - block:  `r/1@grid ( c/4@thread ( C.sum ) Y.block C.mean c/4@thread ( C.sub ) )`, a row a
///  block;
///  - thread: `r/1@grid c/1024@grid c/4@thread ( C.a C.b )` of points; of points that are read
///  along one loop and written along another, `r/32@grid c/64@grid c/32@warp r/4@lane c/4@lane
///  ( C.a )` (Stitched::across); of rows,
///    `r/256@grid r/1@thread ( c/4 ( C.sum ) C.mean c/4 ( C.sub ) )`, a row a thread;
///  - spread (Stitched::spread), where operators have several loops within a row: `b/1@grid (
///  t/16@warp t/1@lane d/4@lane ( C.score ) Y.block t/1@thread ( C.masked ) ... )`, passes.h;
///  - columns (see runs_over_columns): `c/128@grid r/512@grid ( r/64@warp c/4@lane r/1 ( C.sum )
///    S.sum!atomic )`, `splits` blocks a column;
///  - of parts with partial sums, runs of rows (Stitched::rows_in_turn): `r/42@grid (
///    L.mean@shared L.gain@registers r/1 ( L.x c/4@thread ( C.sum ) Y.block c/4@thread ( C.sub
///    C.columns ) ) S.columns!atomic )` in block scheme, in warp scheme with `r/5@warp` around the
///    run.
/// Operators that run over the same loops and wait for no sum of each other share a loop (a pass).
/// An operator is computed once: later groups read its value where the first one has left it. An
/// input that several passes read is loaded before the first of them. Steps of the innermost loop
/// are Stitched::vector elements; of points a thread takes Stitched::turns, one after the other. A
/// Reason where the schemes differ, or where a row's values fit neither a thread's registers nor
/// shared memory. Cost: about the square of the part's operators.
Result<BoundTree> bound_tree(const Graph& g, const Device& d, const Stitched& s,
                             std::int64_t threads);

/// Of the loops in `among`, the one that walks contiguous elements of the most bytes; -1: none
/// does.
int contiguous_loop(const Graph& g, const Component& c, LoopSet among);
/// Of points of which some tensors have neighbours along one loop and others along another (a
/// transposition): both. Neighbours are elements, along the contiguous loop and of the most bytes
/// along `other`; or, where all have elements along the contiguous loop, but fewer than a line of
/// memory, such pieces.
///
///   y[b,a,c] = x[a,b,c]   =>   along: b, other: a, in pieces of c, where c is short
struct Crossing {
  int along = -1;
  int other = -1;       ///< -1: no transposition
  bool pieces = false;  ///< neighbours are rows of the contiguous loop
  int around = -1;  ///< the next loop of the most bytes: tiles of both lie side by side along it
};
Crossing crossing_loops(const Graph& g, const Component& c);
/// Whether neighbouring elements in memory belong to different rows of the part (sums over rows of
/// a matrix): its rows are columns, and a warp that goes along one would touch a sector an element.
bool runs_over_columns(const Graph& g, const Component& c);
/// Whether it does nothing but go along its columns once: one loop within the row, and no sum that
/// is read here.
bool sums_columns(const Graph& g, const Component& c);
/// Whether such sums may be cut over blocks, which then add to the result atomically.
bool may_split(const Graph& g, const Component& c);
/// Bytes of the smallest element that it reads from home or writes there.
std::int64_t smallest_element(const Graph& g, const Component& c);
/// Elements that one access of a thread may move: 16 bytes of them, as the contiguous loop's extent
/// divides; 1 where there is none.
std::int64_t widest_vector(const Graph& g, const Component& c);
/// The same of another loop.
std::int64_t widest_vector(const Graph& g, const Component& c, int loop);

}  // namespace tilewright::stitching
