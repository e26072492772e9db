// Reductions along the very loops that blocks split, beside reductions within a row that are read:
// a normalisation's gradient to its input (sums within a row) with those to its gain and bias (sums
// over rows) in one kernel. A block takes a run of rows one after the other and keeps its part of
// such a sum; blocks add their parts atomically. See bound_tree() for the tree.
#pragma once

#include "models/stitching/stitching.h"

namespace tilewright::stitching {

/// The loops along which blocks may split these vertices, where each block has only a part of the
/// sums in `partial`. Cost: linear in edges.
LoopSet rows_of(const Graph& g, std::span<const int> vertices, std::span<const int> partial);

/// Sets a part's rows, row_count and partial. Sums that nothing in the part reads become partial
/// where rows would otherwise be none, or fewer than a GPU has room for blocks; as few of them as
/// that takes, first those that do not go along contiguous elements. Only 32- and 64-bit sums,
/// which are not rounded each time that a block adds, and only if all of them go along one common
/// loop of rows. Cost: rows_of() for each such sum.
void choose_rows(const Graph& g, Component& part);

/// Gives blocks points of a part whose sums are of all of its points and are not read in it: a
/// thread adds up its own, a block adds atomically what its threads have. False where it has
/// others. Cost: rows_of().
bool sum_points(const Graph& g, Component& part);

/// Joins parts that only sum along others' rows what those read, too: it is then read once. Cost:
/// the square of the parts times their operators.
void join_sums(const Graph& g, std::vector<Component>& parts);

/// Joins parts whose operators run over the same loops and that read the same elements from home:
/// they share a loop, which reads those once. Cost: the square of the parts times their operators.
void join_equal(const Graph& g, std::vector<Component>& parts);

/// Gives each block of a part so many of its columns, where it hands on sums over whole columns and
/// has more of them. False where it does not, or where blocks would share sectors (halves
/// of them: experiments/results/h200-columns-halves.json). Cost: linear in
/// its accesses.
bool take_columns(const Graph& g, Component& part, std::int64_t columns);

/// Bytes that a part's blocks cross to memory, as they are priced: what is compulsory and, where a
/// block has short pieces of rows, as much more as an H200 took for them. Pieces of 32 bytes
/// took 1.6 times as long as whole rows, of 64 bytes 1.4 times (`column-norm:rows=8192,cols=4096`,
/// its last kernel). Where rows begin at no multiple of a sector, pieces cross more sectors: as
/// many more as a piece at a drawn place crosses.
double memory_bytes(const Graph& g, const Component& part);

/// The loop of rows that all partial sums go along, of which a block takes several in turn.
int run_loop(const Graph& g, const Component& c);

/// Lengths of runs that are tried, rows in turn, where a block has `units` rows side by side: so
/// long that there are one to eight blocks an SM. None twice.
std::vector<std::int64_t> row_runs(const Graph& g, const Device& d, const Component& c,
                                   std::int64_t units);

/// Bytes that a block adds to partial sums in global memory.
std::int64_t added_bytes(const Graph& g, const Component& c);
/// Seconds that the GPU takes to add so many bytes atomically, beside everything else, since blocks
/// end together: 4 bytes a clock for each SM, 0.93 TB/s on an H200. There `layernorm-backward:
/// rows=4096,cols=768` took 6 us longer in blocks of 3 rows than of 8, which add 5.2 MB more.
/// For the delta-evaluator and schedules without a tree; overlap() prices the others by the blocks
/// of the last round.
double added_seconds(const Device& d, Bytes added);

}  // namespace tilewright::stitching
