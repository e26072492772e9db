#include "core/lowering/gpu/block_acts.h"

#include <algorithm>
#include <cmath>

namespace tilewright::lowering {
namespace {

constexpr double kSchedulers = 4;  // of an SM: CUDA C++ Programming Guide
// Instructions of a warp's chain of addresses that are under way at the same time, and of a loop
// that the compiler unrolls.
constexpr double kOfChain = 1.25, kOfLoop = 2.2, kOfCopies = 1.6;
// Instructions that nvcc 13.0 makes, counted in the SASS of kernels of
// h100-drawn-seconds-priced.json for sm_90a: of an index taken apart (a product, two shifts, a
// difference); of an element that a contraction reads (two places added, whether it is there, the
// swizzle, the read, the choice); of an element of its sums on its way to or from a tile; of an
// element copied alone; of a piece of 16 bytes of a tile that is copied whole, of one whose row or
// column may not exist, of one among rows of several dimensions, of one that is moved together from
// several, along rows of one dimension, the same at edges, and where each row is looked at; of one
// more dimension among rows; of a ring's turn, and for each dimension of its box; of an exponential
// or a division beside the special unit's.
constexpr double kOfIndex = 5, kOfElement = 13, kOfSum = 12, kOfCopied = 32, kOfWhole = 3,
                 kOfEdge = 5, kOfPiece = 24, kOfShifted = 19, kOfShiftedEdge = 44,
                 kOfShiftedRows = 79, kOfRowDim = 13, kOfRing = 36, kOfRingDim = 11,
                 kOfExpensive = 7;
// Of an element that a thread reads or writes where its place follows from the last one's: loops of
// 4 to 10 instructions a point with one or two of them in the SASS of nvcc 13.0.
constexpr double kOfPointAccess = 2.5;
// Of an element of a sum that may be outside of its tensor: whether it is there in each dimension,
// and its place anew (SASS of nvcc 13.0: 38 instructions a tap of a pooling, of which 8 are
// others').
constexpr double kOfOutside = 30;
constexpr double kCopiedAtOnce = kElementsAtOnce;
// Elements of sums in registers that a thread stores: one by one, or with others' in 16 bytes.
constexpr double kOfStored = 5.5, kOfStoredTogether = 3;
// Loads under way at the same time in a loop that is unrolled: of single points, of strips.
constexpr double kUnrolled = kPointsUnrolled, kUnrolledStrips = kStripsUnrolled;
// A warp's expensive instruction keeps its scheduler's special units busy.
constexpr double kOfSpecial = 32 / (kSpecialUnits / kSchedulers);

double round_up_to(double n, double of) { return std::ceil(n / of) * of; }

/// Cycles of a warp alone for instructions of which so many are under way at the same time.
double chain(double instructions, const BlockRates& r) { return instructions * r.light / kOfChain; }
double loop(double instructions, const BlockRates& r) { return instructions * r.light / kOfLoop; }

}  // namespace

ActTime points_time(const PointsRun& x, const BlockForms& f, const BlockRates& r) {
  const double threads = 32.0 * f.warps(), results = x.points / x.sum;
  const BlockPoints& way = x.way;
  const bool strip = way.strip >= 0;
  const double width = strip ? static_cast<double>(kStripOfPoints) : 1;
  // Of its reads, those whose neighbours lie side by side.
  const auto in_strips = static_cast<double>(std::ranges::count(way.inputs, true));
  // Doubles: an SM has half as many units for them (CUDA C++ Programming Guide, throughput of
  // instructions) and no special ones, a division is about twenty multiply-adds.
  const double light = x.wide ? 2 * (x.light + 20 * x.expensive) : x.light,
               expensive = x.wide ? 0 : x.expensive;
  const double single = x.narrow;  // a conversion each
  ActTime t;
  t.alone = 2 * r.barrier;
  const double meets = x.gathers ? r.l2 : 0;  // an index from home, or an element
  if (x.sum <= 1) {
    const double rounds = std::ceil(results / width / threads),
                 warps = std::ceil(results / width / 32);
    const double reads = strip ? in_strips + (x.reads - in_strips) * width : x.reads;
    const double instructions = kOfIndex * x.loops + (x.edges ? 3 * x.loops : 0) +
                                kOfPointAccess * (reads + x.writes) + width * (light + single);
    const double of_round = chain(instructions, r) + r.near + meets +
                            expensive * (r.expensive + (width - 1) * kOfSpecial);
    // nvcc unrolls the rounds by four: of those that ask nothing the reads are under way together.
    const double together = x.edges ? 0 : std::floor(rounds / kUnrolled) * kUnrolled;
    t.alone += (rounds - together) * of_round +
               together * (loop(instructions, r) + (r.near + meets) / kUnrolled +
                           expensive * (r.expensive / kUnrolled + width * kOfSpecial));
    t.issue = warps * (instructions + expensive * width * kOfSpecial) / kSchedulers;
    t.near = warps * (reads + x.writes) * width * (x.wide ? 2 : 1);
  } else {
    const PointBlock& at_once = way.at_once;
    const auto members = static_cast<double>(way.members),
               block = static_cast<double>(at_once.block), lanes = std::min(members, 32.0);
    const double rounds = std::ceil(results / block * members / threads),
                 warps = std::ceil(results / block * members / 32),
                 turns = std::ceil(x.sum / (members * width));
    // What is side by side is one read, other operands are read point by point.
    const double apart = strip ? std::max(0.0, x.reads - in_strips) * (width - 1) : 0;
    const double reads = at_once.alike + block * (at_once.own + apart);
    // Threads that share a sum over several loops take each turn's number apart, and places anew.
    const bool numbered = members > 1 && x.sum_loops > 1;
    const double turn = (numbered ? 3 + kOfIndex * (x.sum_loops - 1) : 1) +
                        (numbered ? kOfPointRead : kOfPointAccess) * reads +
                        block * width * (light + single + kOfOutside * x.outside) +
                        (members > 1 && x.sum_edges ? 4 : 0);
    const double begin = kOfIndex * (1 + x.loops) + block * kOfPointRead,
                 ends = block * kOfPointRead * x.writes;
    const double joins = block * x.writes * std::log2(lanes) * (r.shuffle + r.light);
    double exchanged = 0;
    if (members > 32) exchanged = 2 * r.barrier + r.near + members / 32 * (r.near + r.light);
    // Turns that are unrolled together; where each asks whether its points exist, none are.
    const double at_a_time = strip ? kUnrolledStrips : kUnrolled;
    const double together =
        members > 1 && x.sum_edges ? 0 : std::floor(turns / at_a_time) * at_a_time;
    const double special = expensive * block * width * kOfSpecial;
    // Sums of a thread's points are chains of their own.
    const double unrolled = std::max(loop(turn, r), width * r.light) +
                            (expensive * r.expensive + special + r.near) / at_a_time + meets,
                 single_turn = std::max(chain(turn + 3, r), width * r.light) + r.near +
                               expensive * r.expensive + meets;
    t.alone += rounds * (chain(begin + ends, r) + r.near + together * unrolled +
                         (turns - together) * single_turn + joins + exchanged);
    const double all = begin + ends + turns * (turn + special) + block * std::log2(lanes) * 2;
    t.issue = warps * all / kSchedulers;
    t.near = warps * turns * (at_once.alike + block * at_once.own) * width * (x.wide ? 2 : 1);
  }
  t.alone = std::max(t.alone, t.issue);
  return t;
}

ActTime sums_time(const PointsRun& x, const BlockForms& f, const BlockRates& r) {
  // Whole blocks of 16 x 16, whatever of them there is.
  const double elements = x.elements > 0 ? x.elements : round_up_to(x.points, 256);
  const double warps = f.warps(), each = elements / (32 * warps);
  // The compiler reads what is one value a row once for the row.
  const double loaded = each * x.of_elements + std::min(each, f.rows_of_thread()) * x.of_rows;
  // Whether an element exists, and zero where it does not.
  const double instructions =
      20 + each * (x.light + kOfExpensive * x.expensive + 2) + kOfElement * loaded;
  const double special = each * x.expensive * kOfSpecial;
  ActTime t;
  // A thread's elements do not wait for one another.
  t.alone = std::max(loop(instructions, r), special) + (loaded > 0 ? r.near : 0) +
            (x.expensive > 0 ? r.expensive : 0);
  t.issue = (instructions + special) * warps / kSchedulers;
  t.near = loaded * warps;
  if (x.reduces) t.alone += 2 * (r.shuffle + r.light) * f.rows_of_thread();
  // Warps that share rows exchange them: write, wait, read, wait.
  if (x.reduces && f.warp_columns > 1) t.alone += 4 * (r.barrier + r.near);
  t.alone = std::max(t.alone, t.issue);
  return t;
}

ActTime contraction_time(const ProductRun& x, const BlockForms& f, const BlockRates& r) {
  const ProductRun::Contraction& c = *x.contraction;
  const bool matrix = r.mma > 0;
  const double warps = f.warps();
  const auto down = static_cast<double>(c.high), across = static_cast<double>(c.wide);
  const double items = std::ceil(static_cast<double>(c.rows) / (16 * down)) *
                       std::ceil(static_cast<double>(c.columns) / (8 * across)) *
                       static_cast<double>(c.products);
  const auto place = [](int loops) { return 8 + (kOfIndex + 3) * (loops - 1); };
  // Whether an element is there is asked of each where the depth takes part in that, else of rows
  // once a turn; where all are, an address that moves along with the depth is left, which four
  // floats share.
  const double element = c.edges > 0 ? (c.depth_loops > 1 ? kOfElement + 4 : kOfElement / 2)
                         : matrix    ? 5 + (c.depth_loops > 1 ? 4 : 0)
                                     : 2;
  const auto depth = static_cast<double>(c.depth), turns = static_cast<double>(c.turns);
  const double steps = (matrix ? std::ceil(depth / 16) : depth) * turns;
  double step = 0, waits = 0, tensor = 0;
  if (matrix) {
    step = 4 * 2 * (c.depth_loops > 1 ? place(c.depth_loops) : 2) +
           (8 * down + 4 * across) * element + down * across;
    waits = r.near + 33;  // of mma: block_time.cpp
    tensor = down * across * 2048 * kSchedulers / r.mma;
  } else {
    step = 2 + (2 * down + 2 * across) * element + 4 * down * across;
    waits = r.near / kUnrolled;
  }
  const double sums = 4 * down * across;
  const double around = turns * ((2 * down + across) * place(c.row_loops) + 10.0 * c.edges) +
                        sums * 2 * (kOfSum + kOfIndex * (c.row_loops + c.column_loops - 2)) + 60;
  const double of_item =
      loop(around, r) + 2 * r.near + steps * std::max(loop(step, r) + waits, tensor);
  ActTime t;
  t.issue = items * (around + steps * step) / kSchedulers;
  t.near = items * (2 * sums + steps * (matrix ? 8 * down + 4 * across : 2 * (down + across)));
  t.alone = 2 * r.barrier + std::max(std::ceil(items / warps) * of_item, t.issue);
  return t;
}

ActTime copy_time(const CopyRun& x, const BlockWork& work, double latency, int at_once, int groups,
                  int warps, const BlockRates& r) {
  using Way = BlockStep::Way;
  const BlockTile& tile = work.tile(BufferId(x.buffer));
  const auto rows = static_cast<double>(tile.need_rows),
             columns = static_cast<double>(tile.need_columns);
  const double more = kOfRowDim * std::max(0, x.row_dims - 1), threads = 32.0 * warps;
  ActTime t;
  if (x.is(Way::elements)) {
    const double each = std::ceil(rows * columns / threads);
    const double full = std::floor(each / kCopiedAtOnce), rest = each - full * kCopiedAtOnce;
    const double one = kOfCopied + more;
    t.alone = full * (kCopiedAtOnce * one * r.light / kOfCopies + latency) +
              rest * (chain(one, r) + latency);
    t.issue = each * one * warps / kSchedulers;
    return t;
  }
  const double of_row = columns * static_cast<double>(work.element(tile.buffer));
  const double pieces = std::ceil(of_row / x.piece());
  const auto lanes = static_cast<double>(lanes_of_row(static_cast<std::int64_t>(pieces)));
  const double each = std::ceil(rows * lanes / threads) * std::ceil(pieces / lanes);
  if (x.is(Way::shifted)) {
    // What a thread has under way comes before it begins with more; groups have a tile each.
    // Where a box is smaller than its tile, whose rows are whole blocks. Elements of 4 bytes and
    // more are never moved together: they are copied in pieces.
    const bool smaller =
        tile.columns % (16 / work.element(tile.buffer)) != 0 || tile.need_columns != tile.columns;
    const bool of_rows = x.row_dims <= 1;
    const double edges = smaller ? 1 : x.partial;
    const double one = of_rows ? kOfShifted + edges * (kOfShiftedEdge - kOfShifted)
                               : kOfShiftedRows + more,
                 longer = std::ceil(rows * lanes * groups / threads) * std::ceil(pieces / lanes);
    // Pieces of rows of one dimension that are under way together do not wait for one another.
    const double together = of_rows ? std::floor(longer / at_once) * at_once : 0;
    t.alone = (together * loop(one, r) + (longer - together) * chain(one, r) +
               std::ceil(longer / at_once) * latency) /
              groups;
    t.issue = each * one * warps / kSchedulers;
    return t;
  }
  const double one = x.one_size        ? kOfWhole
                     : x.row_dims <= 1 ? kOfWhole + x.partial * (kOfEdge - kOfWhole)
                                       : kOfPiece + more;
  t.alone = each * (x.one_size ? loop(one, r) : chain(one, r));
  t.issue = each * one * warps / kSchedulers;
  return t;
}

ActTime ring_time(const CopyRun& x, bool ahead, const BlockRates& r) {
  const double one = kOfRing + kOfRingDim * x.dims;
  return {.alone = (ahead ? loop(one, r) : chain(one, r)) + r.near, .issue = one};
}

bool swaps(const StoreRun& x, const BlockWork& work, const BlockRates& r) {
  return x.added && (x.swapped || (work.element(x.buffer) == 2 && !r.adds_bf16));
}

ActTime store_time(const StoreRun& x, const BlockWork& work, const BlockForms& f,
                   const BlockRates& r) {
  const BlockTile& tile = work.tile(x.buffer);
  const double threads = 32.0 * f.warps(), compare = 4.0 * x.dims;
  // A word is read, and swapped, before a thread goes on to the next.
  const double swap = swaps(x, work, r) ? 2 * r.l2 : 0;
  ActTime t;
  if (tile.in_registers()) {
    const double each = std::ceil(round_up_to(static_cast<double>(tile.rows), 16) *
                                  round_up_to(static_cast<double>(tile.columns), 16) / threads);
    const double all = 50 + each * (x.aligned && !x.added ? kOfStoredTogether : kOfStored);
    t.alone = chain(all, r) + each * swap;
    t.issue = all * f.warps() / kSchedulers;
    return t;
  }
  const auto elements = static_cast<double>(tile.need_rows * tile.need_columns);
  const double each = std::ceil(elements / threads),
               one = kOfCopied + kOfRowDim * std::max(0, x.row_dims - 1);
  const double warps = std::ceil(elements / 32);
  t.alone = chain(compare, r) + loop(each * one, r) + std::ceil(each / kCopiedAtOnce) * r.near +
            each * swap;
  t.issue = warps * one / kSchedulers;
  return t;
}

}  // namespace tilewright::lowering
