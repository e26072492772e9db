#include "core/lowering/gpu/block_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/format.h"
#include "core/lowering/gpu/block_acts.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/block_work.h"
#include "core/lowering/gpu/early.h"
#include "core/lowering/gpu/product_tiles.h"
#include "core/lowering/gpu/warpgroup_pair.h"
#include "core/lowering/gpu/warpgroup_product.h"
#include "core/lowering/gpu/warpgroup_time.h"
#include "core/lowering/gpu/window_time.h"

namespace tilewright::lowering {
namespace {

// mma.sync passes 62 % of the dense peak, which wgmma reaches: Luo et al., Benchmarking and
// Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking, tables of tensor core
// throughput. Its latency: the same tables, m16n8k16 with sums of 32 bits.
constexpr double kOfPeak = 0.62, kMmaLatency = 33;
// Of TF32's dense peak, where each product is three: chosen by h200-products-tf32.json, as
// kTf32Turn is.
// Of products of floats on tensor cores, chosen by h200-products-tf32.json and
// h200-products-tf32-planned.json: the part of TF32's dense peak that lasts where each product is
// three, cycles for each float that is parted and not hidden behind products, and for 16 of the
// depth.
constexpr double kOfTf32 = 0.42, kOfTf32Parts = 1.6, kTf32Step = 40;
constexpr double kSchedulers = 4;  // of an SM: CUDA C++ Programming Guide

double find(const ComputeUnit& u, const std::string& name, std::string& lacks) {
  const auto known = u.cycles.find(name);
  if (known != u.cycles.end()) return known->second;
  if (lacks.empty()) lacks = "cycles: " + name;
  return 0;
}

}  // namespace

Result<BlockRates> block_rates(const Machine& m, DType type) {
  const auto shared = m.find("shared");
  if (m.kind != "gpu" || m.units.empty() || !shared)
    return Reason{formatted("{} is not a GPU with shared memory", m.name)};
  const ComputeUnit& u = m.units.front();
  std::string lacks;
  const auto needs = [&](double value, const char* what) {
    if (value <= 0 && lacks.empty()) lacks = what;
    return value;
  };
  BlockRates r;
  r.adds_bf16 = type != DType::bf16 || adds_bf16(u.capability);
  r.clock = needs(u.clock_hz, "clock");
  r.sms = std::max<std::int64_t>(1, u.count);
  r.registers = u.registers > 0 ? u.registers : r.registers;
  r.blocks = u.blocks > 0 ? u.blocks : r.blocks;
  r.shared = m.level(*shared).capacity.value;
  const double an_sm = 2 * static_cast<double>(r.sms) * r.clock;
  const auto peak = [&](DType t) {
    const auto at = u.peak.find(std::string(name_of(t)));
    return at == u.peak.end() ? 0.0 : at->second.value / an_sm;
  };
  // Of 9.x alone: PTX ISA, wgmma and setmaxnreg.
  const bool hopper = u.capability == 0 || static_cast<int>(u.capability) == 9;
  r.gives_registers = hopper;
  const auto each = u.cycles.find("wgmma");
  r.clusters = hopper && each != u.cycles.end();
  if (type == DType::f16 || type == DType::bf16) {
    r.mma = kOfPeak * peak(type);
    if (r.clusters) r.wgmma = 64 * 256 * 16 / each->second;
  }
  r.fma = needs(peak(type == DType::f64 ? type : DType::f32), "peak: f32");
  if (const auto tf32 = u.peak.find("tf32"); type == DType::f32 && tf32 != u.peak.end())
    r.tf32 = kOfTf32 * tf32->second.value / an_sm / 3;
  r.fill = needs(m.level(*shared).bandwidth.value, "bandwidth of shared") / r.clock;
  const auto path = m.path(m.home(), *shared);
  const Level& outer = m.level(path.front().second);
  r.memory = needs(outer.bandwidth.value, "bandwidth from memory") / r.clock;
  if (outer.kind == LevelKind::cache) r.l2_bytes = static_cast<double>(outer.capacity.value);
  r.l2 = find(u, "l2", lacks), r.dram = find(u, "dram", lacks), r.near = find(u, "shared", lacks);
  r.light = find(u, "light", lacks), r.expensive = find(u, "expensive", lacks);
  r.shuffle = find(u, "shuffle", lacks), r.barrier = find(u, "barrier", lacks);
  r.launch = find(u, "launch", lacks), r.dispatch = find(u, "dispatch", lacks);
  r.block = find(u, "block", lacks), r.grid_barrier = find(u, "grid_barrier", lacks);
  if (const auto each = u.cycles.find("grid_barrier_block"); each != u.cycles.end())
    r.grid_barrier_block = each->second;
  if (const auto more = u.cycles.find("launch_together"); more != u.cycles.end())
    r.launch_together = more->second;
  if (const auto each = u.cycles.find("launch_unit"); each != u.cycles.end())
    r.launch_unit = each->second;
  if (!lacks.empty()) return Reason{formatted("{} has no {}", m.name, lacks)};
  return r;
}

namespace {

// Bytes that all blocks together add up at home in a second, after everything else, four neighbours
// at once (h100-products-f32-registers-tiles.json), and one by one, or moved to where fours begin;
// and that they store, where rows begin at no multiple of 16 bytes, so that stores write parts of
// sectors: chosen by products in f32 on an H100 (h100-products-f32.json, its -again and -third),
// and by h200-products-f32-rows.json of floats that are moved to where fours begin.
constexpr double kAddedBytes = 1.2e12, kAddedOneByOne = 6e11, kPartsOfSectors = 6.7e11,
                 kPartsOfFours = 2.4e12;
// Cycles of a launch that are left where it begins before the one before it has ended: its blocks
// are there, and wait. Chosen by h200-drawn-seconds-noon.json, -fresh and -fifth.
constexpr double kLeftOfEarly = 90;
// Assumed: instructions of a turn of a loop. Of an element of sums between registers and shared
// memory, one by one: in the SASS that nvcc 13.0 makes, with its address and swizzle.
constexpr double kOfTurn = 20, kOfElement = 9;
// Of a product, once: a chain of so many instructions before its first operand is read (SASS).
constexpr double kOfProduct = 20;
// Of products by fused multiply-adds: the part of the issue rate that lasts, since additions read
// registers of one bank (dispatch stalls: docs/gpu.md). All warps of an SM wait for the same ring
// and then do the same, so a warp's instructions do not hide another's waits: they come on top.
constexpr double kFmaLasts = 0.85;
// How often a warp waits for shared memory in 16 of the depth, and nothing else of it runs. It and
// kFmaLasts are chosen by h200-products-f32-rows.json.
constexpr double kFmaWaits = 6;
// By h100-products-f32-third.json and -fourth: cycles of a turn in which tiles are waited for and
// the first of their operands are read.
constexpr double kFmaTurn = 100;
// Of a product by matrix units, where tiles are waited for and the first of their operands are
// read: chosen by 116 tiles of h200-products-shallow.json, of depths of 64 to 512.
constexpr double kMmaTurn = 300, kTf32Turn = 600;
// Of floats, the part of a block's time in which blocks of an SM do not hide each other's waits.
constexpr double kTf32InStep = 0.5;
// Cycles of an SM for a warp's instruction that copies pieces of 4 or 8 bytes in them, and of the
// block's four copying warps, which have two or three instructions for each (SASS).
constexpr double kOfFmaPieces = 2, kOfFmaPieceAlone = 3;
// Assumed: of shared memory and L1 together, for a warp's three loads of 8 bytes and a store of 16.
constexpr double kOfShifted = 16;
// Of L2, for threads that copy. Chosen by products by warpgroups (warpgroup_time.cpp); threads that
// copy lose no less: 3456 x 3816 x 2232, whose rows begin at no sector, took 350 us in tiles of 128
// x 160 by mma, 131 us in tiles of 192 x 192 by warpgroups (h100-products-overlap.json). Threads
// that copy lose nothing by lines.
constexpr RowsThatStraddle kCopiedRows{1, 2.47};

class Pricer {
 public:
  /// `missed`: the part of what is used that L2 does not keep.
  Pricer(const BlockRates& r, const BlockForms& f, const BlockWork& work, double latency,
         double missed)
      : r_(r), f_(f), work_(work), latency_(latency), missed_(missed) {}

  PhaseTime phase(const BlockPhase& p, std::int64_t resident) const {
    PhaseTime t{.blocks = p.blocks};
    for (const ProductRun& x : p.products) add(x, t);
    for (const PointsRun& x : p.points) add(x, t);
    for (const StoreRun& x : p.stores) add(x.runs, store_time(x, work_, f_, r_), t);
    // The copying threads' time, and that of the first tile of each ring, which is waited for.
    double first_bytes = 0, copied = 0, copying = 0;
    std::array<double, kCopyWarps> first = {};  // by groups of copying threads
    double loaded = 0;                          // by the threads that compute
    double last = 0;      // elements behind the last whole piece of a tensor come after all others
    bool waited = false;  // for copies that are under way by themselves
    std::size_t parted = 0;  // copies that one group of the copying threads makes
    const int at_once = pieces_at_once(ceil_div(p.blocks, r_.sms));
    struct RingTime {
      double bytes = 0, copying = 0, turns = 0, stages = 1;
    };
    std::map<std::size_t, RingTime> rings;
    using Way = BlockStep::Way;
    const auto shifted = std::ranges::count_if(
        p.copies, [](const CopyRun& c) { return !c.waits && c.is(Way::shifted); });
    for (const CopyRun& c : p.copies) {
      // Of pieces of less than 16 bytes, kOfPieces has what they take.
      const bool straddles = c.is(Way::shifted) || (c.piece() >= 16 && !c.sectors);
      const double longer = r_.mma > 0 && r_.tf32 == 0 && straddles ? kCopiedRows.sectors : 1;
      const double bytes = c.bytes * c.runs * longer;
      if (c.waits) {
        const bool inner = work_.program.kernel->buffer(BufferId(c.buffer)).outer.valid();
        add(c.runs, load_time(c, inner ? 0 : bytes / c.runs, inner ? r_.near : latency_, at_once),
            t);
        if (!inner) loaded += bytes;
        continue;
      }
      copied += bytes;
      if (c.gathered) continue;
      first_bytes = std::max(first_bytes, c.bytes * longer / r_.fill);
      const int groups = copying_groups(static_cast<std::int64_t>(c.stages), shifted);
      ActTime copy = copy_time(c, work_, latency_, at_once, groups, kCopyWarps, r_);
      const ActTime ring = ring_time(c, in_step(p) || multiplies_alone(p), r_);
      if (c.is(Way::pieces) || c.is(Way::shifted)) {
        const double instructions = c.bytes / (c.piece() * 32);
        const double pieces = c.is(Way::shifted) ? c.bytes / (16 * 32) * kOfShifted
                              : in_step(p)       ? instructions * kOfFmaPieces
                                                 : instructions * kOfPieces;
        copy.alone = std::max(
            copy.alone, in_step(p) && c.is(Way::pieces) ? instructions * kOfFmaPieceAlone : pieces);
        if (in_step(p)) t.work += c.runs * pieces, t.issue += c.runs * pieces;
      }
      // Groups have a tile each, whose copy all threads of one group wait for; rings begin with one
      // group after the other.
      if (c.is(Way::shifted))
        first[parted++ % static_cast<std::size_t>(groups)] += copy.alone * groups;
      else
        for (double& f : first) f += copy.alone;
      if (c.is(Way::shifted) && ends_in_piece(c)) last = latency_;
      // Who copies elements, or pieces that are moved together, waits for them itself.
      waited = waited || !(c.is(Way::elements) || c.is(Way::shifted));
      copying += c.runs * (copy.alone + ring.alone);
      RingTime& own = rings[c.buffer];
      own.bytes += bytes, own.turns += c.runs, own.stages = c.stages;
      own.copying += c.runs * (copy.alone + ring.alone);
      t.work += c.runs * ring.alone;
      t.issue += c.runs * (copy.issue + 2 * ring.issue);
    }
    if (multiplies_alone(p))
      t.work += p.products.front().runs *
                (r_.tf32 > 0 ? kTf32Turn / std::ceil(f_.warps() / kSchedulers) : kMmaTurn);
    else if (r_.mma > 0 && r_.tf32 == 0)
      for (const ProductRun& x : p.products)
        if (!x.contraction) t.work += (x.runs - 1) * kMmaTurn;
    t.work += p.turns * (kOfTurn + (in_step(p) ? kFmaTurn : 0)) + p.returns * (latency_ + r_.near);
    // The first tiles are waited for.
    const double firsts = std::ranges::max(first);
    // Memory gives all blocks that are under way together their tiles.
    const std::int64_t in_turn = ceil_div(ceil_div(p.blocks, r_.sms), resident);
    const double memory = r_.mma > 0 && !p.products.empty()
                              ? missed_ * p.compulsory / r_.memory / static_cast<double>(in_turn)
                              : 0;
    for (const auto& [buffer, ring] : rings)
      if (ring.turns > ring.stages)
        t.waits =
            std::max(t.waits, (ring.turns * latency_ +
                               std::max(ring.bytes / r_.fill, ring.copying) + memory + t.work) /
                                  ring.stages);
    t.fill = (copied + loaded + p.stored + p.returned + 2 * p.added) / r_.fill;
    const double in_step = this->in_step(p) ? 1 : together_part(p);
    // Blocks that begin together share the rate from L2, for their first tiles, too.
    const auto alone = [&](double together) {
      if (in_step > 0) together = 1;
      t.copies = std::max(copying - firsts, together * (copied / r_.fill - first_bytes));
      t.ends = last + (waited ? latency_ : 0) + std::max(firsts, together * first_bytes) +
               (p.stored + p.added > 0 ? r_.l2 + together * (p.stored + 2 * p.added) / r_.fill : 0);
      return r_.block + add_up({t.work, std::max(0.0, t.copies), t.waits}) + t.ends;
    };
    rounds(t, resident, in_step, alone);
    return t;
  }

 private:
  /// Whether the tensor that is copied ends within a piece of 8 bytes.
  bool ends_in_piece(const CopyRun& c) const {
    const BlockProgram& p = work_.program;
    return p.workload->tensor(p.kernel->buffer(BufferId(c.buffer)).tensor).bytes().value % 8 != 0;
  }

  bool in_step(const BlockPhase& p) const {
    return r_.mma == 0 &&
           std::ranges::any_of(p.products, [](const ProductRun& x) { return !x.contraction; });
  }

  /// Whether it is one product by matrix units and nothing else.
  bool multiplies_alone(const BlockPhase& p) const { return r_.mma > 0 && p.multiplies_alone(); }

  /// Of such a product: the part of its time in which blocks of an SM, which begin together, do the
  /// same at the same time: until rings have gone round twice.
  double together_part(const BlockPhase& p) const {
    if (!multiplies_alone(p)) return 0;
    double part = r_.tf32 > 0 ? kTf32InStep : 0;
    for (const CopyRun& c : p.copies) {
      if (c.waits) return part;
      part = std::max(part, std::min(1.0, 2 * c.stages / c.runs));
    }
    return part;
  }

  /// A tile by the threads that compute, between two barriers. They wait for it.
  ActTime load_time(const CopyRun& c, double bytes, double latency, int at_once) const {
    ActTime t = copy_time(c, work_, latency, at_once, 1, f_.warps(), r_);
    using Way = BlockStep::Way;
    const bool waited = c.is(Way::shifted) || c.is(Way::elements);  // in its own time
    t.alone += 2 * r_.barrier + bytes / r_.fill + (waited ? 0 : latency);
    return t;
  }

  void add(double runs, const ActTime& of, PhaseTime& t) const {
    t.work += runs * of.alone, t.issue += runs * of.issue, t.near += runs * of.near;
  }

  void add(const ProductRun& x, PhaseTime& t) const {
    if (x.contraction) return add(x.runs, contraction_time(x, f_, r_), t);
    const double rows = std::max(1.0, static_cast<double>(x.rows) / f_.warp_rows);
    // A warp has all columns of a part of the sum where its left operand is its own sums.
    const bool part = x.left_sums && f_.warp_columns > 1;
    const double columns = part ? static_cast<double>(x.columns)
                                : std::max(1.0, static_cast<double>(x.columns) / f_.warp_columns);
    // Tensor cores take 16 of the depth at a time, others as much as there is.
    const double steps =
        (r_.mma > 0 ? static_cast<double>(x.depth) : static_cast<double>(x.deep) / 16) /
        (part ? f_.warp_columns : 1);
    const double warps = f_.warps(), each = std::ceil(warps / kSchedulers);
    const bool matrix = r_.mma > 0;
    const double left = x.left_sums ? 0 : rows;
    double alone = 0, tensor = 0, near = 0, issue = 0;
    // Sums that come from a tile and go back are made a part of the columns at a time, for each of
    // which the left operand is read again.
    const double parts =
        matrix && x.result_tile ? std::max(1.0, columns / static_cast<double>(x.at_once)) : 1;
    if (matrix) {
      const double wide = columns / parts;
      const double one = 2048 * kSchedulers / r_.mma;  // a scheduler's units, m16n8k16
      tensor = rows * wide * one;
      if (r_.tf32 > 0) {
        // As device/tilewright_tf32.h has it: ldmatrix or single floats, their two parts, and sums
        // of 16 of the depth that are added to the sum.
        tensor += kOfTf32Parts * (8 * rows + 4 * wide) + kTf32Step;
        near = 8 * left + 4 * wide;
        issue = (6 + 4) * rows * wide + (x.left_across ? 8 : 2) * left + 4 * wide +
                kOfParts * (8 * rows + 4 * wide);
      } else {
        near = 4 * (left + wide / 2);
        issue = rows * wide + 2 * (left + wide / 2);
      }
      // Floats of a tile in shared memory are read pair by pair and rounded.
      if (x.left_tile && r_.tf32 == 0) near += 8 * rows, issue += 48 * rows;
      // Of the right operand one by one.
      if (x.right_tile && r_.tf32 == 0) near += 4 * wide, issue += 4 * kOfElement * wide;
      alone = parts * (std::max({tensor, kMmaLatency, issue}) + r_.near);
      tensor *= parts, near *= parts, issue *= parts;
    } else {
      // Multiply-adds are issued like all else: a scheduler's units take one at a time.
      const FmaStep step = fma_step(rows, columns, x.left_sums || x.left_across);
      tensor = 16 * rows * columns * 128 / (r_.fma / kSchedulers);
      near = step.served;
      issue = (tensor + step.issued - step.multiply_adds) / kFmaLasts;
      alone = std::max(issue, 16 * 4.0) + (each - 1) * issue + kFmaWaits * r_.near;
    }
    const double all = x.runs * steps;
    double work = all * std::max({alone, each * tensor, each * issue, warps * near});
    // Addresses of operands and sums, where there is little else.
    work += x.runs * kOfProduct * r_.light;
    if (x.result_tile) {
      // Sums come from shared memory and go back, between two barriers.
      const double words = static_cast<double>(x.rows * x.columns) * 128;
      near += 2 * words / 32 / warps / steps;
      work += x.runs * (2 * words / 32 * kOfElement / std::min(warps, kSchedulers) +
                        2 * (r_.barrier + r_.near));
    }
    if (part) work += x.joins * (4 * rows * columns * 2 * warps + 2 * r_.barrier);
    t.work += work;
    // A block's warps go to the schedulers in turn, from the first: two that compute have two of
    // the four, however many blocks an SM has.
    t.tensor += all * each * tensor;
    t.near += all * warps * near;
    t.issue += all * each * issue;
  }

  void add(const PointsRun& x, PhaseTime& t) const {
    if (!x.in_registers) return add(x.runs, points_time(x, f_, r_), t);
    add(x.runs, sums_time(x, f_, r_), t);
  }

  /// Blocks are resident together until an SM has no room; what they share is busy longer.
  /// `in_step`: the part that comes on top of each other.
  /// `alone`: cycles of a block beside so many that began with it, were nothing else shared.
  template <class Alone>
  void rounds(PhaseTime& t, std::int64_t resident, double in_step, const Alone& alone) const {
    const double busy = std::max({t.tensor, t.near, t.issue, t.fill});
    std::int64_t here = ceil_div(t.blocks, r_.sms);
    double cycles = 0;
    // Later rounds' blocks begin one by one.
    const double apart = alone(1);
    const auto taken = [&](double together, double own) {
      return std::max(own + (together - 1) * busy * in_step, together * busy);
    };
    t.rounds = static_cast<double>(ceil_div(here, resident));
    double own = alone(static_cast<double>(std::min(here, resident)));
    for (; here > 0; here -= resident) {
      const auto together = static_cast<double>(std::min(here, resident));
      cycles += taken(together, std::exchange(own, apart));
      if (here > 2 * resident) {  // all alike but the last
        const auto more = static_cast<double>((here - resident - 1) / resident);
        cycles += (more - 1) * taken(together, apart);
        here -= static_cast<std::int64_t>(more - 1) * resident;
      }
    }
    cycles = std::max(cycles, static_cast<double>(t.blocks) * r_.dispatch);
    t.seconds = cycles / r_.clock;
  }

  const BlockRates& r_;
  const BlockForms& f_;
  const BlockWork& work_;
  double latency_, missed_;
};

}  // namespace

double stays(double bytes, double capacity) {
  return capacity <= 0 ? 0 : std::clamp((capacity - bytes) / (0.25 * capacity), 0.0, 1.0);
}

namespace {

/// Of blocks whose warps share their tiles, by one micro-kernel; `latency`: of what is copied,
/// `kept`: the part of it that L2 keeps.
Result<BlockTime> by_blocks(const Schedule& s, int kernel, const BlockRates& r,
                            const BlockChoices& choices, double latency, double kept) {
  const ScheduledKernel& k = s.kernels[static_cast<std::size_t>(kernel)];
  const Result<BlockWork> found = block_work(s, kernel, choices);
  if (!found) return found.why();
  const BlockWork& work = *found;
  if (r.tf32 > 0)
    for (const BlockPhase& p : work.phases)
      if (std::ranges::any_of(p.products,
                              [](const ProductRun& x) { return x.contraction.has_value(); }))
        return Reason{
            formatted("{}: floats that are read one by one are multiplied by fused "
                      "multiply-adds",
                      k.name)};
  double compulsory = 0;
  for (const BlockPhase& p : work.phases) compulsory += p.compulsory;
  const double memory = (1 - kept) * compulsory / r.memory / r.clock;
  const Result<BlockForms> forms = block_forms(work, r);
  if (!forms) return Reason{formatted("{}: {}", k.name, forms.reason())};
  BlockTime t{.memory = memory,
              .warps = forms->warps(),
              .threads = forms->threads,
              .registers = forms->registers,
              .shared = work.program.shared_bytes,
              .resident = forms->resident,
              .barriers = work.barriers,
              .micro_kernel = choices.micro_kernel};
  for (const BlockTile& tile : work.program.tiles)
    if (tile.form == BlockTile::Form::computed && !tile.reason.empty())
      t.tiles.push_back(s.workload->tensor(k.buffer(tile.buffer).tensor).name);
  const Pricer price(r, *forms, work, latency, 1 - kept);
  // A product alone is priced with all of its launch: kMmaTurn and kTf32Turn were chosen so.
  const bool alone = r.mma > 0 && work.phases.size() == 1 && work.phases[0].multiplies_alone();
  const bool early = r.clusters && !alone && !k.co_resident && k.zeroed.empty() &&
                     lets_next_begin(s, kernel, 0, r);
  const double launch = (early ? kLeftOfEarly : r.launch) +
                        r.launch_unit * static_cast<double>(std::min(k.blocks, r.sms));
  double cycles = launch * (k.zeroed.empty() ? 1 : 2);
  double seconds = 0, leaves = 0;
  for (const BlockPhase& p : work.phases) {
    const auto blocks = static_cast<double>(p.blocks);
    const bool floats = r.mma == 0 || r.tf32 > 0,
               fours = floats && r.gives_registers;  // where an instruction adds them
    leaves += blocks * ((p.added - p.added_in_pieces) / (fours ? kAddedBytes : kAddedOneByOne) +
                        p.added_in_pieces / kAddedOneByOne);
    // One of those who wait for a word succeeds each time that all have gone to L2 and back.
    double swapped = 0;
    for (const StoreRun& x : p.stores)
      if (swaps(x, work, r)) swapped = std::max(swapped, x.to_word);
    const auto places = static_cast<double>(r.sms * t.resident);
    if (swapped > 1) leaves += swapped * (r.l2 + std::min(swapped, places) * kSwapping) / r.clock;
    if (k.co_resident && p.blocks > r.sms * t.resident)
      return Reason{formatted("{}: {} blocks wait for one another, {} run at the same time", k.name,
                              p.blocks, r.sms * t.resident)};
    t.phases.push_back(price.phase(p, t.resident));
    // What ptxas gives a thread is known to a fifth: half the time as if it were that much more.
    const double crowded = forms->crowded < t.resident ? price.phase(p, forms->crowded).seconds
                                                       : t.phases.back().seconds;
    // Parts of sectors of all rounds but the last leave while the next one's blocks compute, those
    // of the last one while their threads store.
    const double parts = p.stored_in_pieces * blocks / (floats ? kPartsOfFours : kPartsOfSectors),
                 last = parts / std::max(1.0, t.phases.back().rounds);
    double storing = 0;
    for (const StoreRun& x : p.stores) storing += x.runs * store_time(x, work, *forms, r).alone;
    seconds += std::max((t.phases.back().seconds + crowded) / 2, parts - last);
    leaves += std::max(0.0, last - storing / r.clock);
  }
  if (k.co_resident) cycles += r.launch_together;
  cycles += work.barriers * (r.grid_barrier + r.grid_barrier_block * static_cast<double>(k.blocks));
  t.seconds = cycles / r.clock + std::max(seconds, t.memory) + leaves;
  return t;
}

}  // namespace

Result<BlockTime> block_time(const Schedule& s, int kernel, const BlockRates& r,
                             const BlockOptions& o) {
  const ScheduledKernel& k = s.kernels[static_cast<std::size_t>(kernel)];
  const int warps = o.warps > 0 ? o.warps : k.launch.warps.value_or(0);
  const int stages = o.stages > 0 ? o.stages : k.launch.stages.value_or(0);
  double all = o.working_set;
  if (all <= 0)
    for (const Tensor& x : s.workload->tensors()) all += static_cast<double>(x.bytes().value);
  const double kept = stays(all, r.l2_bytes), latency = kept * r.l2 + (1 - kept) * r.dram;
  const auto from_memory = [&](double compulsory) {
    return (1 - kept) * compulsory / r.memory / r.clock;
  };
  const auto memory_of = [&](const std::vector<TensorId>& tensors) {
    double bytes = 0;
    for (const TensorId x : tensors)
      bytes += static_cast<double>(s.workload->tensor(x).bytes().value);
    return from_memory(bytes);
  };
  if (r.wgmma > 0) {
    const auto by_warpgroups = [&](const auto& p, const std::vector<TensorId>& tensors,
                                   double launch, PhaseTime phase) {
      BlockTime t{.memory = memory_of(tensors),
                  .warps = 4 * p.groups,
                  .threads = p.threads(),
                  .registers = r.registers / (p.threads() * p.resident),
                  .shared = p.shared_bytes,
                  .resident = p.resident,
                  .warpgroups = true};
      t.phases.push_back(std::move(phase));
      // What comes from memory is not all hidden: of plans that wait for the same bytes, the one is
      // faster whose blocks take less beside them.
      t.seconds = launch / r.clock + add_up({t.phases.back().seconds, t.memory});
      return t;
    };
    const auto out_bytes = [&](TensorId t) { return size_of(s.workload->tensor(t).dtype); };
    if (const auto p = warpgroup_product(s, kernel, warps, stages)) {
      std::vector<TensorId> tensors = {p->left, p->right, p->result};
      if (p->twin.valid()) tensors.push_back(p->twin);
      for (const EpilogueRead& read : p->epilogue.reads) tensors.push_back(read.tensor);
      return by_warpgroups(*p, tensors, kLeftOfLaunch,
                           time_of(*p, *s.workload, out_bytes(p->result), latency, r));
    }
    if (const auto p = warpgroup_pair(s, kernel, warps, stages)) {
      std::vector<TensorId> tensors = {p->left, p->right, p->second, p->result};
      tensors.insert(tensors.end(), p->row_results.begin(), p->row_results.end());
      for (const auto* reads : {&p->reads, &p->after_reads})
        for (const EpilogueRead& read : *reads) tensors.push_back(read.tensor);
      // Chunks and what joins them were predicted 0.74 of their time without what is left of a
      // launch, and are 0.93 with it (h100-few-rows-warpgroups.json, -early-joins.json).
      return by_warpgroups(*p, tensors, p->row_results.empty() ? 0 : kLeftOfLaunch,
                           time_of(*p, *s.workload, out_bytes(p->result), latency, r));
    }
  }
  if (const auto p = window_product(s, kernel, warps, stages);
      p && (p->fma() || (p->tf32 ? r.tf32 : r.mma) > 0) && (p->share == 1 || r.clusters)) {
    const std::int64_t registers = registers_of(*p);
    const std::int64_t resident =
        std::min({r.blocks, r.threads / p->threads(), r.registers / (p->threads() * registers),
                  r.shared / (p->shared_bytes + kReservedShared)});
    if (resident < 1) return Reason{formatted("{}: no block has room on an SM", k.name)};
    std::vector<TensorId> tensors = {p->left, p->right, p->result};
    for (const EpilogueRead& read : p->epilogue.reads) tensors.push_back(read.tensor);
    BlockTime t{.memory = memory_of(tensors),
                .warps = p->threads() / 32,
                .threads = p->threads(),
                .registers = registers,
                .shared = p->shared_bytes,
                .resident = resident};
    t.phases.push_back(time_of(*p, *s.workload, latency, resident, r));
    t.seconds = (r.clusters ? kLeftOfLaunch : r.launch) / r.clock +
                std::max(t.phases.back().seconds, t.memory);
    return t;
  }
  BlockChoices choices{.warps = warps, .stages = stages, .gives_registers = r.gives_registers};
  if (r.tf32 == 0 || r.mma > 0) return by_blocks(s, kernel, r, choices, latency, kept);
  // Of floats the quicker one of two micro-kernels.
  BlockRates fma = r, matrix = r;
  fma.tf32 = 0, matrix.mma = r.tf32;
  choices.micro_kernel = "simt";
  const Result<BlockTime> by_fma = by_blocks(s, kernel, fma, choices, latency, kept);
  choices.micro_kernel = "tf32x3";
  const Result<BlockTime> by_matrix = by_blocks(s, kernel, matrix, choices, latency, kept);
  return by_matrix && (!by_fma || by_matrix->seconds < by_fma->seconds) ? by_matrix : by_fma;
}

}  // namespace tilewright::lowering
