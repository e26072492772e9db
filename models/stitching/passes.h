// A pass of a part over its row: operators that share a loop, and how their loops are shared out to
// the units that have the row.
#pragma once

#include <span>
#include <vector>

#include "models/stitching/stitching.h"

namespace tilewright::stitching {

/// A loop cut for a unit.
struct Cut {
  int loop = -1;
  std::int64_t step = 1;
  Binding binding = Binding::seq;
};

/// What each warp and lane of a row has of a loop: `turns` steps.
struct LoopShare {
  int loop = -1;
  std::int64_t step = 1, warps = 1, lanes = 1, turns = 1;
  friend bool operator==(const LoopShare&, const LoopShare&) = default;
};

/// Operators that share a loop; `loops` of them within the row, none: values of the row itself.
struct Pass {
  LoopSet loops;
  bool alone = false;     ///< an operator of which less than everything is needed
  bool fetches = false;   ///< gathers, which had better all be under way before they are used
  int bound = -1;         ///< the loop that goes over lanes or threads
  std::int64_t step = 1;  ///< its
  std::vector<LoopShare> shares;  ///< of all loops, the bound one last (Stitched::spread)
  std::vector<int> vertices;
};

/// A pass's loops shared out to `warps` warps of 32 lanes: lanes go along the contiguous loop
/// `bound`, elements of `step` each; where it has fewer than 32 steps, other lanes take other
/// iterations of the longest of the other loops. Warps go along that one first (Spread::others) or
/// along the contiguous one first (Spread::contiguous). What is left of each loop are turns.
std::vector<LoopShare> share_out(const Graph& g, std::span<const int> loops, int bound,
                                 std::int64_t step, std::int64_t warps, Spread spread);
/// The loops of a tree that say so, outermost first:
/// `t/16@warp t/1@lane d/4@lane`, of one loop that a block's threads suffice for `t/1@thread`.
std::vector<Cut> cuts_of(const Graph& g, std::span<const LoopShare> shares, bool in_block);
/// Values that a thread has of what these loops index.
std::int64_t values_of(std::span<const LoopShare> shares, LoopSet indexed);
/// Partial sums that a thread has at once of a reduction over some of the loops.
std::int64_t sums_of(std::span<const LoopShare> shares, LoopSet indexed, LoopSet reduced);
/// How many lanes, and how many warps, have parts of a sum over these loops.
std::int64_t lanes_of(std::span<const LoopShare> shares, LoopSet reduced);
std::int64_t warps_of(std::span<const LoopShare> shares, LoopSet reduced);

/// The loop that walks contiguous elements of what the operator reads at home or writes there, most
/// of them within a row; -1: none does. `whole`: what it walks has an element for every iteration.
struct Contiguous {
  int loop = -1;
  bool whole = false;
};
Contiguous contiguous_of(const Graph& g, const Component& c, int vertex, LoopSet within_row);

/// Whether some operator has several loops within a row.
bool has_nested_rows(const Graph& g, const Component& c);

}  // namespace tilewright::stitching
