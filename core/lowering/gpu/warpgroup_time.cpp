#include "core/lowering/gpu/warpgroup_time.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "core/lowering/gpu/block_computes.h"
#include "core/lowering/gpu/block_work.h"

namespace tilewright::lowering {
namespace {

// Of products by warpgroups, chosen by h100-products-planned.json and h100-products-overlap.json so
// that tiles that they choose take least over the fastest ones that were timed, and so that the
// root of the mean square of log(price / time) is least. Bytes a cycle: that boxes take to all SMs
// from L2, over what copying threads load; that come into one SM. Rows of a box that begin at no
// line of 128 bytes touch two, and at no sector a sector more: how much longer L2 takes for them,
// and an SM. The part of wgmma's rate that lasts. Cycles: of a launch that is left; that a box
// takes longer than a load, more where others copy it; until a tile's results leave, and for each
// 64 rows by one column of a warpgroup. Of two blocks on an SM, the part of results that is not
// hidden.
constexpr double kBoxes = 1.637, kOneSm = 73.5;
constexpr RowsThatStraddle kRowsFromL2{1.774, 2.846}, kRowsIntoSm{1.093, 1.533};
constexpr double kWgmmaLasts = 0.902, kBoxLatency = 494, kOthersLatency = 126;
constexpr double kResults = 359, kResultColumns = 2.757, kResultsBeside = 0.87;
// The following were fitted to the tiles of h100-products*.json of 2026-11-26 and -27, of kernels
// that copied descriptors in each turn: 442 of clusters that share operands. Boxes of clusters come
// at fewer bytes a cycle from L2, supposed because it gives what blocks alone ask for at the same
// time once. The root of the mean square of log(price / time) was 0.10 over the 442, and 0.14 by
// the rate of blocks alone.
constexpr double kBoxesOfClusters = 0.91;
constexpr RowsThatStraddle kRowsOfClusters{1.30, 1.94};
// Chosen by h100-products-alone.json and -before: stages beyond which a longer ring gained nothing;
// cycles of a tile more where a thread has more than 128 sums, whose ring has three stages.
constexpr double kStagesThatHelp = 8, kResultsOfMany = 1700;
// Of a cluster that shares a sum: cycles until its 2, 4 or 8 blocks have met twice, and what its
// boxes take from L2. Each block goes along rows of its own part, so that what one box leaves of a
// line the next one finds. Chosen by the 324 such tiles of h200-products-narrow-tiles.json and
// h200-products-deep-tiles.json: the root of the mean square of log(price / time) is 0.10 over
// them, 0.17 by the numbers of clusters that share operands and 2130, 1790 and 1530 cycles; over 58
// tiles of h200-products-slow.json, -shallow-after, -evening-after and -fresh-depths, by which
// nothing was chosen, it is 0.10 and was 0.15.
constexpr double kClusterOfTwo = 1190, kClusterOfFour = 446, kClusterOfEight = 444;
constexpr double kBoxesOfParts = 0.83;
constexpr RowsThatStraddle kRowsOfParts{1.06, 1.53};

// Of launches with fewer blocks than SMs, chosen by gated layers, chains of 128 rows and products
// on an H200 (h200-launches-on-idle-sms.json): what a group of SMs that all have blocks waits
// longer for L2 than the price of all SMs says, and the cycles that a launch must be expected to
// gain where it begins when the one before has ended. It loses about 1,000 by that.
constexpr double kCrowded = 1.31, kOnIdleSms = 3000;

double touched(const BoxMap& m, const RowsThatStraddle& by) {
  const std::int64_t row = m.stride[1];
  return row % 128 == 0 ? 1 : row % 32 == 0 ? by.lines : by.sectors;
}

/// Cycles of an SM for the operators on a tile's sums, while no product of the block is under way.
double operators_time(const WarpgroupProduct& p, const Workload& w, double latency,
                      const BlockRates& r) {
  if (p.epilogue.operators.empty()) return 0;
  const double elements = static_cast<double>(p.tile_rows()) * p.tile_columns;
  double light = 0, expensive = 0, bytes = 0;
  for (const OpId op : p.epilogue.operators)
    for (const Output& out : w.op(op).outputs) count_operations(out.value, light, expensive);
  for (const EpilogueRead& read : p.epilogue.reads) {
    light += kOfRead;
    if (read.by_row != 0 && read.by_column != 0)
      bytes += elements * static_cast<double>(size_of(w.tensor(read.tensor).dtype));
  }
  return elements * (light / 128 + expensive / kSpecialUnits) + bytes / (kBoxes * r.fill) +
         (p.epilogue.reads.empty() ? 0 : latency);
}

// Of two products with operators between them. Fitted to h200-pairs-drawn.json, 306 plans of 80
// drawn chains and attentions: of products and of operators, the part of the shorter that is not
// hidden beside the longer; cycles of a turn beside both where operators reduce rows, and where
// several warpgroups take turns; cycles of a turn of a warpgroup that no other hides, beside its
// own, and more where operators reduce rows; how much longer operators take that one warp of a
// scheduler has by itself; cycles of a tile beside its first and last products and its results, of
// several warpgroups more; and of a launch with blocks on both multiprocessors of each pair, which
// share what they get from L2. The root of the mean square of log(price / time) is 0.077 (0.107 by
// what was fitted to h100-attention-masks.json and h100-chain-plans.json).
constexpr double kNotBeside = 0.36, kNotBesideOfThree = 0.31, kPairTurn = 210,
                 kPairTurnOfSeveral = 133, kPairAlone = 289, kPairTurnAlone = 93,
                 kPairOperatorsAlone = 1.42, kPairTile = 530, kPairTileOfSeveral = 680,
                 kPairNeighbours = 800;
// Of what these kernels share with products by warpgroups, what their numbers were fitted beside.
// Then launches did not overlap, and 1,050 cycles of one were left, which are left out now: chains
// of h200-chains-third.json, by warpgroups, were priced 1.19 times their time with them.
// Of L2, for the boxes of a pair, as for threads that copy (block_time.cpp).
constexpr RowsThatStraddle kRowsOfPairs{1.31, 2.47};
constexpr double kPairBoxes = 1.33, kPairOneSm = 59;
constexpr double kPairLatency = 149, kPairResults = 372;
constexpr double kPairLoad = 4;  // cycles of a warp's load of words of eight rows: supposed

}  // namespace

double add_up(std::initializer_list<double> all) {
  constexpr double kTogether = 3.556;
  double sum = 0;
  for (const double x : all) sum += std::pow(x, kTogether);
  return std::pow(sum, 1 / kTogether);
}

namespace {

/// `of_group`: of what L2 gives to a group of SMs, the part that its blocks ask for; 0: of all SMs
/// alike.
PhaseTime time_of(const WarpgroupProduct& p, const Workload& w, std::int64_t out_bytes,
                  double latency, const BlockRates& r, double of_group) {
  const bool shares = p.cluster() > p.share;
  const double rows = p.tile_rows(), own_columns = p.tile_columns, columns = p.right_columns(),
               rate = kBoxes * r.fill;
  const double from_l2 = p.share > 1       ? kBoxesOfParts * r.fill
                         : p.cluster() > 1 ? kBoxesOfClusters * r.fill
                                           : rate;
  const RowsThatStraddle& straddle = p.share > 1       ? kRowsOfParts
                                     : p.cluster() > 1 ? kRowsOfClusters
                                                       : kRowsFromL2;
  // An instruction reads both operands from shared memory, 128 bytes a cycle.
  const double one = std::max(64 * columns * 16 / r.wgmma, (64 + columns) * 32 / 128) / kWgmmaLasts;
  const double tensor = 4.0 * p.steps * p.blocks * p.groups * one;
  const double depth = 128.0 * p.steps, left = rows / p.across, right = columns / p.down;
  const double lines = left * touched(p.maps[0], straddle) + right * touched(p.maps[1], straddle),
               own =
                   left * touched(p.maps[0], kRowsIntoSm) + right * touched(p.maps[1], kRowsIntoSm);
  const double of_sm = std::max(own, rows + columns) / kOneSm;
  const double results = rows * own_columns * static_cast<double>(out_bytes) / rate / p.share;
  const double turns = std::ceil(static_cast<double>(p.part) / (64.0 * p.steps));
  // Of clusters of more than two only as many run at the same time as there are with one block an
  // SM: five of the six plans in h100-products-shares.json and the two recordings above whose 3, 5,
  // 6 or 7 blocks had more took longer by a round, the two that had no more did not, and neither of
  // 4 and 8 (h100-products-of-128-rows.json: 32 clusters of 4 and 16 of 8).
  std::int64_t together_most = p.grid;
  if (p.share > 2)
    together_most = std::min(together_most, p.share * clusters_at_once(r.sms, 1, p.share));
  const auto blocks = static_cast<double>(p.tiles * p.share),
             grid = static_cast<double>(together_most), sms = static_cast<double>(r.sms);
  // A cluster of more than two that finds no SMs without blocks has its blocks beside others.
  const double alone =
      p.cluster() > 2 ? static_cast<double>(p.cluster() * clusters_at_once(r.sms, 1, p.cluster()))
                      : sms;
  PhaseTime t{.blocks = p.grid};
  const double operators = operators_time(p, w, latency, r);
  t.rounds = std::ceil(blocks / grid);
  // All rounds but the last have all blocks.
  for (const bool last : {false, true}) {
    const double active = last ? blocks - (t.rounds - 1) * grid : grid;
    const double times = last ? 1 : t.rounds - 1;
    // Blocks of one SM share what fills it and its matrix units; all SMs share L2.
    const double together = std::ceil(active / alone),
                 busy = of_group > 0 ? of_group : active / (together * sms);
    const double fill = depth * std::max(of_sm, busy * lines / from_l2);
    const double comes = latency + kBoxLatency + (shares ? kOthersLatency : 0) + fill;
    // A stage is free when the next one is full and its own products are done.
    const double stages = std::min<double>(p.stages, kStagesThatHelp);
    const double waits = std::max((comes + tensor) / stages, comes / (stages - 1));
    double ends = kResults + kResultColumns * p.blocks * own_columns + results;
    if (p.blocks * p.right_columns() > 2 * 128) ends += kResultsOfMany;
    if (!last && p.resident > 1) ends *= kResultsBeside;
    if (p.share > 1)  // a tile's sums, by all blocks of a cluster
      ends += (p.share == 2   ? kClusterOfTwo
               : p.share <= 4 ? kClusterOfFour
                              : kClusterOfEight) +
              together * (static_cast<double>(p.partial_bytes()) / 128 +
                          4 * rows * columns * (p.share - 1) / p.share / kBytesFromBlocks);
    const double turn = add_up({waits, together * fill, together * tensor});
    ends += together * operators;
    t.copies += times * turns * fill;
    t.waits += times * turns * waits;
    t.tensor += times * turns * tensor;
    t.fill += times * (turns * fill + results);
    t.work += times * turns * turn;
    t.ends += times * ends + (last ? comes : 0);
  }
  t.seconds = (t.work + t.ends) / r.clock;
  return t;
}

}  // namespace

PhaseTime time_of(const WarpgroupProduct& p, const Workload& w, std::int64_t out_bytes,
                  double latency, const BlockRates& r) {
  return time_of(p, w, out_bytes, latency, r, 0);
}

bool begins_on_idle_sms(const WarpgroupProduct& p, const Workload& w, const BlockRates& r) {
  if (p.grid >= r.sms || p.cluster() > 1 || r.wgmma <= 0) return false;
  const auto cycles = [&](double busy) {
    return time_of(p, w, size_of(w.tensor(p.result).dtype), r.dram, r, busy).seconds * r.clock;
  };
  const double part = static_cast<double>(p.grid) / static_cast<double>(r.sms);
  return cycles(kCrowded) - cycles(kCrowded * part) > kOnIdleSms;
}

PhaseTime time_of(const WarpgroupPair& p, const Workload& w, std::int64_t out_bytes, double latency,
                  const BlockRates& r) {
  const double groups = p.groups, middle = p.tile_middle, columns = p.tile_columns;
  const auto steps = [](double depth) { return std::ceil(depth / 16); };
  // Cycles of one warpgroup a turn: an instruction reads shared operands, 128 bytes a cycle.
  const double first = steps(static_cast<double>(p.depth)) *
                       std::max(64 * middle * 16 / r.wgmma, (64 + middle) * 32 / 128),
               second = steps(middle) * std::max(64 * columns * 16 / r.wgmma, columns * 32 / 128);
  double light = 0.5, expensive = 0;  // an element is half of a rounded pair
  bool exchanges = false;             // threads of a row
  for (const PairOperator& o : p.between) {
    if (o.domain != PairValue::Place::middle || o.scales) continue;
    const bool reduces = !w.reduction_loops(o.op).empty();
    exchanges = exchanges || reduces;
    for (const Output& out : w.op(o.op).outputs) {
      if (reduces && out.combine == Combine::assign) continue;  // once a row
      count_operations(*bound_of(out).of, light, expensive);
      light += out.combine == Combine::assign ? 0 : 1;
    }
  }
  // A comparison and a choice for each edge, in the turns that it goes through alone.
  light -= 2 * static_cast<double>(p.edges.size()) * (1 - p.part_masked());
  for (const Expr& e : p.guarded) {
    double not_taken = 1, special = 0;  // and a choice, but in few turns
    count_operations(e, not_taken, special);
    light -= not_taken;
  }
  // Threads read for themselves, a warp eight rows at once.
  double read_bytes = 0, loads = 0;
  for (const EpilogueRead& r : p.reads) {
    if (r.by_column == 0) continue;
    const double rows = p.by_row(r) ? 64 * groups : 1;
    light += kOfRead;
    read_bytes += (r.diagonal ? rows + middle : rows * middle) *
                  static_cast<double>(size_of(w.tensor(r.tensor).dtype));
    loads += 4 * middle / 8 * (p.by_row(r) && !p.rows_share(r) ? 2 : 1) * (r.pairs ? 1 : 2);
  }
  if (w.op(p.second_op).outputs.front().rescale)
    light += columns / middle;  // what there is so far, rescaled
  const double operators =
      64 * middle * (light / 128 + expensive / kSpecialUnits) + kPairLoad * loads;
  const auto together = static_cast<double>(ceil_div(p.grid, r.sms));
  const double products = together * groups * (first + second),
               others = together * groups * operators;
  const double apart = p.groups == 3 ? kNotBesideOfThree : kNotBeside;
  const bool several = groups * together > 1;
  const double beside = std::max(products, others) + apart * std::min(products, others) +
                        (exchanges ? kPairTurn : 0) + (several ? kPairTurnOfSeveral : 0),
               alone = first + std::max(second, kPairOperatorsAlone * operators) + kPairAlone +
                       (exchanges ? kPairTurnAlone : 0),
               turn = std::max(beside, alone);
  PhaseTime t{.blocks = p.grid};
  t.rounds = static_cast<double>(ceil_div(p.tiles, p.grid));
  const auto turns = static_cast<double>(p.most_turns());
  const double rate = kPairBoxes * r.fill,
               stage = static_cast<double>(p.right_bytes() + p.second_bytes());
  const double lines = static_cast<double>(p.right_bytes()) * touched(p.maps[1], kRowsOfPairs) +
                       static_cast<double>(p.second_bytes()) * touched(p.maps[2], kRowsOfPairs);
  const double busy = static_cast<double>(p.grid) / (together * static_cast<double>(r.sms));
  const double fill =
      std::max((stage + read_bytes) / kPairOneSm, busy * (lines + read_bytes) / rate);
  const double comes = latency + kPairLatency + fill;
  double after_bytes = 0;  // that the operators on a tile's results wait for
  for (const EpilogueRead& r : p.after_reads)
    after_bytes += (p.by_row(r) ? groups * 64 : 1) * (r.by_column == 0 ? 1 : columns) *
                   static_cast<double>(size_of(w.tensor(r.tensor).dtype));
  const double results = groups * 64 * columns * static_cast<double>(out_bytes) / rate +
                         columns * groups * 64 / 128 * 4 +
                         (p.after_reads.empty() ? 0 : latency + after_bytes / rate);
  t.copies = turns * fill;
  t.waits = turns * (comes + turn) / std::max(1, p.stages);
  t.tensor = turns * groups * (first + second);
  t.issue = turns * groups * operators;
  t.work = turns * turn;
  t.fill = t.copies + t.rounds * results;
  // A tile's first product waits for its operands, its results for its last product.
  const double sms = static_cast<double>(r.sms), paired = static_cast<double>(p.grid) - sms / 2;
  t.ends = comes + kPairNeighbours * std::clamp(paired / (sms / 2), 0.0, 1.0) +
           t.rounds * (kPairResults + results + first + second + kPairTile +
                       (p.groups > 1 ? kPairTileOfSeveral : 0));
  t.seconds = (r.block + std::max({t.work, t.waits, together * t.copies}) + t.ends) / r.clock;
  return t;
}

}  // namespace tilewright::lowering
