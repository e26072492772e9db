// What a block asks of each resource, from what its threads do: for `--stitch latency=overlap`.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/lowering/gpu/thread_program.h"
#include "models/stitching/accesses.h"
#include "models/stitching/first_level.h"
#include "models/stitching/kept.h"
#include "models/stitching/overlap.h"
#include "models/stitching/part.h"
#include "models/stitching/step_passes.h"

namespace tilewright::stitching {
namespace {

using lowering::Linear;
using lowering::Read;
using lowering::Step;
using lowering::Storage;
using lowering::ThreadProgram;
using lowering::Value;
using lowering::Write;

constexpr double kLoopsAhead = 4;  // turns of a loop whose loads are under way together
constexpr double kLeastAhead = 3;  // loads under way, at least, where registers are short
// Registers of a thread with what it loads ahead, at most: of 53 kernels of which more were
// supposed, ptxas of nvcc 13.0 gives 44 no more (h200-drawn-seconds-morning.json, -dawn, -dusk).
constexpr double kMostAhead = 64;
constexpr double kUnrolled = 8;  // turns of a loop over units that are unrolled whatever they do
constexpr double kOfAccess = 2;  // instructions of an access: its address, itself
// Registers of an access's address in a loop, whose turns share half of it, and that a thread has
// beside these, its loads and what it keeps: indices (SASS of nvcc 13.0).
constexpr double kOfAddress = 2, kOfThread = 8;
// Cycles of a scheduler for an instruction of doubles: half as many units (CUDA C++ Programming
// Guide, throughput of instructions); such instructions of an exponential or a division: 24 and 8
// of them one after the other, and in all of an SM's warps (h100-unit-costs.json).
constexpr double kDoubles = 2, kOfDouble = 18;
// Of an element that a thread brings to shared memory (a load, a conversion, a store, their
// conditions), and more of it for each further dimension that a thread goes along, by which its
// number is divided twice; how many of them are under way together. Counted in the SASS of
// nvcc 13.0: 72 for eight elements of a row, 126 and 197 for eight of two rows.
constexpr double kOfStaged = 9, kOfStagedDimension = 12, kStagedTogether = 1.6;
// The same of neighbours of a tile with zeros around, and of a thread of such a kernel, once: twice
// the instructions in SASS, which are of integers and have half the rate of others. Chosen by
// h200-windows.json.
constexpr double kOfRow = 24, kOfRows = 250;
constexpr double kOfBlock = 20;  // of a warp, once: indices of its block and thread
// Of an element of 16 bits that is loaded or stored: its conversion. Of an access whose place other
// values say: that place in 64 bits, and whether it exists (SASS of nvcc 13.0).
constexpr double kOfHalf = 1, kOfGather = 8;
// Cycles of a warp's instruction before its next one is issued: its own, and 1.1 or more that the
// next one waits for it (stalls "selected" and "wait" of 20 kernels on an H200).
constexpr double kOfIssue = 2;
// Barriers that it takes until all warps have a block's sum: its own, and waiting for the last
// warp.
constexpr double kMeetings = 2;
using Counted = std::map<const void*, Accesses>;

class Tally {
 public:
  /// `kept`: what a walk before this one has found; {}: not known yet.
  /// `counted`: accesses by the step, read or address that makes them; a later walk finds them
  /// there.
  /// `part`: of a pack, whose blocks alone are meant; none: all of the program.
  Tally(const Graph& g, std::span<const int> vertices, const Device& d, const ThreadProgram& p,
        const Step* part, Kept kept, Counted& counted)
      : g_(g),
        d_(d),
        p_(p),
        part_(part),
        k_(*p.kernel),
        accesses_(p),
        grid_(grid_of(part ? part->body : p.steps)),
        l1_(d, p, grid_, blocks()),
        counted_(counted),
        passes_(p),
        known_(std::move(kept)) {
    for (int v : vertices) vertices_[g.workload().op(g.vertex(v).op).name] = v;
    for (const Value& v : p.values)
      if (v.storage == Storage::registers) indexed_.insert(v.dims.begin(), v.dims.end());
    find_indexed(p.steps);
  }

  Demand take() {
    out_.blocks = blocks();
    out_.warps = static_cast<double>(p_.warps);
    out_.chain = d_.block + walk(part_ ? part_->body : p_.steps, 1) + alike_;
    if (p_.kernel->co_resident) out_.chain += d_.launch_together;
    out_.registers = registers();
    // Operations have their cycles; a warp's accesses are issued besides.
    out_.chain += kOfIssue * accessing_ / out_.warps;
    out_.instructions += kOfBlock * out_.warps;
    // Values that find no register are written and read again, at least once.
    const double spilled = std::max(0.0, out_.registers - allowed(out_.registers));
    out_.instructions += 2 * spilled * out_.warps;
    out_.wavefronts += 2 * spilled * out_.warps;
    double awaited = 0;
    for (const Brought& b : brought_) awaited += b.sectors * std::min(1.0, meetings_ / b.times);
    out_.awaited = (1 - d_.stays) * awaited * kSectorBytes * static_cast<double>(d_.sms) *
                   d_.clock_hz / d_.dram_bytes_per_second;
    return out_;
  }

  Kept kept() const { return kept_.registers(); }

 private:
  /// Values of a thread that the compiler loads for the next turn before one has ended, where warps
  /// meet in each.
  double next_turn() const { return meetings_ > 1 ? loaded_ / meetings_ : 0; }

  /// Of a thread: loads ahead take no more than kMostAhead in all.
  double registers() const {
    const double words = p_.f64 ? 2 : 1, own = words * (kept().most + loading_);
    const double all = words * (std::max(kept().most + loading_, ahead_registers_) + next_turn());
    const double each = std::ceil(std::clamp(all, own, std::max(own, kMostAhead)));
    if (!k_.co_resident) return each;
    // Blocks that wait for one another get no more than all of them have room for, if they have.
    const auto threads = static_cast<std::int64_t>(kWarp * out_.warps);
    const std::int64_t most =
        lowering::most_registers(threads * ceil_div(k_.blocks, d_.sms), d_.registers_per_sm);
    return most > 0 ? std::min(each, static_cast<double>(most)) : each;
  }

  /// What a step brings from memory or stores there, and how often a thread comes to it with all
  /// before it done.
  struct Brought {
    double sectors = 0, times = 1;
  };

  double blocks() const { return static_cast<double>(part_ ? part_->count : k_.blocks); }
  static std::vector<int> grid_of(const std::vector<Step>& steps) {
    std::vector<int> all;
    for (const Step& s : steps) {
      if (s.kind == Step::Kind::blocks && s.index >= 0) all.push_back(s.index);
      std::ranges::copy(grid_of(s.body), std::back_inserter(all));
    }
    return all;
  }

  const Value& only(const Step& s) const { return p_.value(s.values.front()); }
  const Vertex& vertex(NodeId compute) const {
    return g_.vertex(vertices_.at(p_.workload->op(k_.node(compute).op).name));
  }
  double size(const std::vector<int>& dims) const {
    double n = 1;
    for (int id : dims) n *= static_cast<double>(p_.index(id).count);
    return n;
  }
  double warps(const Step& s) const {
    return s.copies.warp ? 1 : s.warps == 0 ? out_.warps : s.warps;
  }

  /// What readers of arrays in registers call their indices.
  void find_indexed(const std::vector<Step>& steps) {
    for (const Step& s : steps) {
      for (const Read& r : s.reads)
        for (const auto& [made, used] : r.names) indexed_.insert(used);
      find_indexed(s.body);
    }
  }

  // ---- The walk: cycles of a block's longest warp -----------------------------------------------

  double walk(const std::vector<Step>& steps, double repeats) {
    double cycles = 0, loading = 0;  // loads that follow one another are under way together
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& s = steps[i];
      if (StepPasses::costless(s)) continue;
      if (const NodeId root = passes_.root_of(s); root.valid()) {
        StepPass pass{.root = root};
        passes_.collect(s, 1, pass);
        for (; i + 1 < steps.size() &&
               (StepPasses::costless(steps[i + 1]) || passes_.root_of(steps[i + 1]) == root);
             ++i)
          if (!StepPasses::costless(steps[i + 1])) passes_.collect(steps[i + 1], 1, pass);
        if (pass.steps.size() == 1 && pass.steps.front().first->kind == Step::Kind::start) continue;
        cycles += std::exchange(loading, 0) + run(pass, repeats);
        continue;
      }
      switch (s.kind) {
        case Step::Kind::load:
          loading = std::max(loading, load(s, repeats));
          break;
        case Step::Kind::stage:
          loading = std::max(loading, stage(s, repeats).all());
          break;
        case Step::Kind::hold:
          hold(s, repeats, {});
          break;
        case Step::Kind::loop: {
          const std::size_t begin = kept_.pass();
          const auto turns = static_cast<double>(p_.index(s.index).count);
          cycles += std::exchange(loading, 0) + turns * walk(s.body, repeats * turns);
          kept_.stay_from(begin);
          break;
        }
        case Step::Kind::parts: {
          // Each has some of the blocks; what comes behind waits for the longest one.
          double longest = 0;
          for (const Step& part : s.body)
            longest = std::max(
                longest, walk(part.body, repeats * static_cast<double>(part.count) / blocks()));
          cycles += std::exchange(loading, 0) + longest;
          break;
        }
        case Step::Kind::barrier:
          if (!s.warp) meet(repeats);
          cycles += std::exchange(loading, 0) +
                    (s.all_blocks ? d_.grid_barrier + d_.grid_barrier_block *
                                                          static_cast<double>(p_.kernel->blocks)
                     : s.warp ? 0
                              : d_.barrier);
          break;
        default:
          cycles += std::exchange(loading, 0) + walk(s.body, repeats);
      }
    }
    return cycles + loading;
  }

  void accesses(double instructions) {
    out_.instructions += instructions;
    accessing_ += instructions;
  }

  void add(const Accesses& x, double times, double full, bool home) {
    accesses(kOfAccess * x.count * times);
    out_.wavefronts += x.wavefronts * times * full;
    if (home) out_.sectors += x.sectors * times * full;
  }

  /// Of a load or store that a thread comes to `turns` times, all of a block's warps `times` times.
  /// `sectors`: of these, those that do not lie in L1.
  void bring(const Accesses& x, double times, double full, const Linear& at, double turns,
             bool loaded = false, std::optional<double> sectors = {}) {
    const double all = sectors.value_or(x.sectors * times * full);
    add(x, times, full, false);
    out_.sectors += all / (loaded ? l1_.asked_together(at) : 1);
    if (!l1_.others_read(at)) brought_.push_back({all, turns});
  }
  void bring_loaded(TensorId t, const Accesses& x, double times, double full, const Linear& at,
                    double turns) {
    bring(x, times, full, at, turns, true, l1_.from_l2(t, at, x.sectors * times * full));
  }

  /// The warps of a block wait for one another, so often.
  void meet(double times) {
    out_.meets = true;
    meetings_ = std::max(meetings_, times);
  }

  template <class Make>
  const Accesses& once(const void* key, const Make& make) const {
    const auto [at, fresh] = counted_.try_emplace(key);
    if (fresh) at->second = make();
    return at->second;
  }
  const Accesses& moved(const Step& s, const std::vector<int>& loops = {}) const {
    return once(&s, [&] {
      return accesses_.home(only(s).tensor, s.at, s.dims, s.strip.width, s.copies, s.inside, loops,
                            s.kind == Step::Kind::store && !s.atomic);
    });
  }
  const Accesses& shared(const Linear& at, const std::vector<int>& dims) const {
    return once(&at, [&] { return accesses_.shared(at, dims); });
  }
  /// Turns of loops whose elements a step moves at once.
  double turns_within(const std::vector<int>& dims) const {
    double turns = 1;
    for (int id : dims)
      if (p_.index(id).kind == lowering::ProgramIndex::Kind::loop)
        turns *= static_cast<double>(p_.index(id).count);
    return turns;
  }

  double load(const Step& s, double repeats) {
    bring_loaded(only(s).tensor, moved(s), repeats * warps(s), s.full, s.at, repeats);
    loaded_ += repeats * size(s.dims);
    out_.turns = std::max(out_.turns, turns_within(s.dims));
    kept_.make(s.values.front(), size(only(s).dims));
    return l1_.latency(s.at);
  }

  /// Cycles of bringing a tile: its loads, and what is done with their values.
  struct Staged {
    double waits = 0, work = 0;
    double all() const { return waits + work; }
  };
  /// Of several rows at a time a thread brings neighbours, in turns that differ by constants.
  Staged stage_rows(const Step& s, double repeats) {
    const auto turns = static_cast<double>(p_.turns_of(s)) * size(s.dims);
    const double moving = static_cast<double>(s.threads) > kWarp
                              ? static_cast<double>(s.threads) / kWarp
                          : s.warps == 0 ? 1
                                         : s.warps;
    const double width = static_cast<double>(std::max<std::int64_t>(1, only(s).padded)),
                 once = only(s).padded > 0 ? kOfRows : 0;
    const double each = kOfRow + (size_of(p_.workload->dtype()) == 2 ? kOfHalf * width : 0);
    const double others = accessing_;
    bring(accesses_.staged(s), turns * repeats * moving, s.full, s.from, repeats, true);
    accessing_ = others;
    out_.instructions += ((each - kOfAccess) * turns + once) * repeats * moving;
    const double rounds = size(s.dims) * std::ceil(static_cast<double>(p_.turns_of(s)) /
                                                   static_cast<double>(p_.together_of(s)));
    return {rounds * l1_.latency(s.from), (turns * each + once) * d_.light / kStagedTogether};
  }

  /// Reads before a loop.
  void hold(const Step& s, double times, const std::vector<int>& loops) {
    if (p_.value(s.read.value).padded > 0)
      return window(s.read, s.dims, s.strip.width, times * warps(s), loops);
    add(shared(s.read.at, s.dims), times * warps(s), 1, false);
  }

  /// Reads of a window with zeros around, in all turns of the loops that the compiler knows: what
  /// several of them read is read once, and constants apart, so that no address is computed.
  void window(const Read& r, const std::vector<int>& dims, std::int64_t width, double times,
              const std::vector<int>& loops) {
    std::vector<int> known;
    double turns = 1;
    for (int l : loops)
      if (p_.index(l).unrolled && r.at.terms.contains(l)) {
        known.push_back(l);
        turns *= static_cast<double>(p_.index(l).count);
      }
    const Accesses& x =
        once(&r, [&] { return accesses_.window(r.at + r.own, dims, known, width); });
    accesses(x.count * times / turns);
    out_.wavefronts += x.wavefronts * times / turns;
  }

  /// Threads bring the tile an element at a time, a row of it together.
  Staged stage(const Step& s, double repeats) {
    if (p_.brings_rows(s)) return stage_rows(s, repeats);
    const auto threads = static_cast<double>(s.threads);
    double turns = size(s.elements) * size(s.dims);
    if (!s.elements.empty()) {
      const auto row = static_cast<double>(p_.index(s.elements.back()).count);
      turns *= ceil_over(row, threads) / row;
    }
    const double moving = threads > kWarp ? threads / kWarp : s.warps == 0 ? 1 : s.warps;
    // A thread with a row of its own goes along it: L1 has a sector's other elements.
    double fresh = 1;
    if (s.threads == 1 && !s.elements.empty())
      if (const auto along = s.from.terms.find(s.elements.back()); along != s.from.terms.end()) {
        const auto row = static_cast<double>(p_.index(s.elements.back()).count);
        const double step = static_cast<double>(std::abs(along->second)) * home_bytes(s);
        fresh = std::min(1.0, std::max(1 / row, step / kSectorBytes));
      }
    const double others = accessing_;  // those of the tile are in its own time
    bring(accesses_.staged(s), turns * repeats * moving * fresh, s.full, s.from, repeats, true);
    accessing_ = others;
    // Dimensions that a thread goes along: of the innermost, its part of a row.
    int along = 0;
    for (const int& e : s.elements)
      along += p_.index(e).count > (&e == &s.elements.back() ? s.threads : 1) ? 1 : 0;
    const double each = kOfStaged + kOfStagedDimension * std::max(0, along - 1);
    out_.instructions += (each - kOfAccess * fresh) * turns * repeats * moving;
    const auto own = static_cast<double>(p_.turns_of(s));
    const double rounds = size(s.dims) * std::ceil(own / lowering::kTurnsTogether);
    return {rounds * l1_.latency(s.from, fresh),
            size(s.dims) * own * each * d_.light / kStagedTogether};
  }

  /// Registers of a thread that are taken when the pass begins.
  double before() const {
    return kept_.pass() < known_.before.size() ? known_.before[kept_.pass()] : 0;
  }

  /// What a pass comes to.
  struct Sum {
    double depth = 0, most = 1, after = 0;
    double staged = 0;                          ///< cycles that tiles are waited for
    double loads = 0, loaded = 0, fetches = 0;  ///< cycles; values; accesses
    bool dependent = false, meets = false;
    std::set<int> own;  ///< values that it loads
  };

  double run(const StepPass& pass, double repeats) {
    kept_.next_pass(passes_.loops_of(pass));
    Sum sum;
    const std::size_t first = brought_.size();
    bool along = false;
    for (const auto& [s, times] : pass.steps) {
      along = along || s->warps > 0;
      take(*s, times, repeats, pass, sum);
    }
    const bool unrolled =
        !sum.meets && std::ranges::any_of(pass.loops, [&](int l) { return indexed_.contains(l); });
    const double turns = pass.turns;
    const double fitting = std::min(turns, known_ahead(sum.fetches, sum.loaded));
    // Loops around what is unrolled wait for their loads turn by turn.
    const double together =
        sum.meets  ? 1
        : unrolled ? std::min(fitting, std::max(1.0, turns / pass.waits))
                   : std::min({turns, ahead(pass),
                               sum.dependent ? turns : rooms(sum.fetches, sum.loaded)});
    for (std::size_t i = first; i < brought_.size(); ++i)
      brought_[i].times = std::max(repeats, brought_[i].times / together);
    // Several turns' loads are under way together, in registers; where nothing is kept, with
    // temporaries.
    double under_way = together * sum.loaded;
    if (!unrolled && !sum.meets && along)
      under_way = (fitting + (turns > 1 ? 0.25 : 0)) * sum.loaded + 2 * (sum.most - 1);
    if (unrolled || turns <= kUnrolled)
      ahead_registers_ = std::max(ahead_registers_, before() + under_way);
    loading_ =
        std::max(loading_, 2 * (sum.most - 1) + (turns > 1 && !unrolled ? sum.loaded / 2 : 0));
    // What all threads read alike, outside of loops, is loaded before anything else.
    if (!along) alike_ = std::max(alike_, std::exchange(sum.loads, 0));
    const double rounds = ceil_over(turns, together) * (sum.dependent ? 2 : 1);
    // Loads and those of tiles are under way together.
    return std::max(rounds * sum.loads, sum.staged) +
           sum.depth / std::min(kIndependent, sum.most * turns) + sum.after;
  }

  /// Registers that ptxas gives a thread at most: those that the launch asks for, else no more than
  /// let as many blocks be on an SM as threads do. `kept`: that it needs.
  double allowed(double kept) const {
    const double threads = kWarp * out_.warps;
    const auto asked = p_.asked(d_.sms, d_.registers_per_sm);
    return asked > 0 ? static_cast<double>(lowering::most_registers(
                           static_cast<std::int64_t>(threads) * asked, d_.registers_per_sm))
                     : registers_allowed(d_, threads, kept);
  }

  /// Turns of a loop whose loads find registers: ptxas takes no more than let as many blocks be on
  /// an SM as threads do. Of a turn that is under way each access keeps a part of its address.
  double rooms(double loads, double values) const {
    const double free = allowed(known_.most) - before();
    return std::max(
        1.0, std::floor((free - kOfThread - kOfAddress * loads) / std::max(1.0, loads + values)));
  }

  void take(const Step& s, double times, double repeats, const StepPass& pass, Sum& sum) {
    const double done = times * repeats;
    switch (s.kind) {
      case Step::Kind::load:
        sum.own.insert(s.values.front());
        return fetch(only(s).tensor, moved(s, pass.loops), s, s.at, times * turns_within(s.dims),
                     done, size(s.dims), sum);
      case Step::Kind::stage: {
        const Staged tile = stage(s, done);
        sum.staged = std::max(sum.staged, times * tile.waits);
        sum.after += times * tile.work;
        return;
      }
      case Step::Kind::compute:
        return compute(s, times, done, pass, sum);
      case Step::Kind::lanes: {
        double steps = 0;
        for (int id : s.units) steps += std::log2(p_.lanes_of(id));
        const double sums = size(s.dims), words = p_.f64 ? 2 : 1;  // a shuffle moves a word
        out_.instructions += 2 * words * steps * sums * done * warps(s);
        out_.wavefronts += words * steps * sums * done * warps(s);
        // Those of turns that are unrolled together are issued one a cycle.
        sum.after +=
            pass.joins * steps * (d_.shuffle + words * d_.light) + words * sums * times - 1;
        return;
      }
      case Step::Kind::exchange:
        // A warp's sums go to shared memory, and those who join them read those of a group of
        // warps: each warp all of them, or some.
        meet(done);
        for (const Step::Joined& j : s.joined) {
          // The loop over a group is unrolled, and all that it reads is on its way before the first
          // is added.
          const auto group = static_cast<double>(p_.group_of(j));
          ahead_registers_ = std::max(ahead_registers_, before() + group);
          const double sums = size(j.dims), writers = warps(s);
          const double read = j.shared_out ? sums * group : sums * group * writers;
          const double of_warp = group * static_cast<double>(p_.joined_by_warp(j));
          out_.instructions += done * 2 * (sums * writers + read);
          out_.wavefronts += done * (sums * writers + read);
          const double meetings = p_.value(j.value).uses.empty() ? 1 : kMeetings;
          // Additions of one sum wait for one another; several sums' are issued one a cycle.
          sum.after += times * (2 * d_.shared + meetings * d_.barrier +
                                std::max(group * d_.light, 2 * of_warp));
        }
        return;
      case Step::Kind::hold:
        hold(s, done, pass.loops);
        sum.after += d_.shared / kIndependent;
        return;
      case Step::Kind::keep:
        add(shared(s.at, s.dims), done * warps(s), s.full, false);
        sum.after += d_.shared;
        return;
      case Step::Kind::store: {
        convert(done * warps(s) * size(s.dims));
        if (s.atomic)
          add(moved(s), done * warps(s), s.full, true);
        else
          bring(moved(s), done * warps(s), s.full, s.at, done);
        out_.turns = std::max(out_.turns, times * turns_within(s.dims));
        if (s.atomic) {
          out_.added += accesses_.of_block(s.at, s.dims) * home_bytes(s);
          const double swapped = swaps(s);
          out_.swapped = std::max(out_.swapped, swapped);
          // A thread reads each of its elements, and swaps it, before it goes on to the next.
          if (swapped > 0) sum.after += times * size(s.dims) * 2 * d_.l2;
        }
        return;
      }
      case Step::Kind::barrier:
        if (!s.warp) meet(done);
        sum.meets = sum.meets || times > 1;
        sum.after += times * (d_.barrier + d_.shared);
        return;
      default:
        return;
    }
  }

  /// Elements that are loaded or stored, of all of a block's warps.
  void convert(double elements) {
    if (size_of(p_.workload->dtype()) == 2) accesses(kOfHalf * elements);
  }

  double home_bytes(const Step& s) const {
    return static_cast<double>(size_of(p_.workload->tensor(only(s).tensor).dtype));
  }

  /// Additions to a word of memory that are compared and swapped: of 8 bits, of bf16 where that is
  /// no instruction, products, the largest and smallest of others than f32
  /// (device/tilewright_device.h). Those of all blocks, and of all its parts.
  double swaps(const Step& s) const {
    const double bytes = home_bytes(s);
    const Combine how = p_.output_of(only(s)).combine;
    const DType type = p_.workload->tensor(only(s).tensor).dtype;
    if (how == Combine::sum && bytes >= 2 && (type != DType::bf16 || d_.adds_bf16)) return 0;
    if ((how == Combine::max || how == Combine::min) && type == DType::f32) return 0;
    double times = bytes < 4 ? 4 / bytes : 1;
    for (int i : grid_)
      if (!s.at.terms.contains(i)) times *= static_cast<double>(p_.index(i).count);
    return times;
  }

  /// A load within a pass.
  void fetch(TensorId t, const Accesses& x, const Step& s, const Linear& at, double turns,
             double done, double values, Sum& sum) {
    bring_loaded(t, x, done * warps(s), s.full, at, done);
    loaded_ += done * values;
    out_.turns = std::max(out_.turns, turns);
    // Of a few turns' loads one is not in L1.
    sum.loads = std::max(sum.loads, l1_.latency(at, x.fresh * std::min(turns, kLoopsAhead)));
    sum.loaded += values;
    convert(done * warps(s) * values);
    sum.fetches += x.count;
  }

  void compute(const Step& s, double times, double done, const StepPass& pass, Sum& sum) {
    const Vertex& x = vertex(s.node);
    const double points = size(s.dims);
    sum.most = std::max(sum.most, points);
    const auto expensive = static_cast<double>(x.expensive);
    const double light = static_cast<double>(x.light) - (adds_products(s) ? 1 : 0);
    if (p_.f64) {
      const double calls = kOfDouble * (expensive + x.called_f64);
      out_.instructions += done * warps(s) * points * kDoubles * (light + calls);
      sum.depth += times * points * kDoubles * d_.light * (light + calls);
    } else {
      out_.instructions += done * warps(s) * points * (light + kOfExpensive * expensive + x.called);
      out_.special += done * warps(s) * points * kSpecial * expensive;
      sum.depth += times * points * ((light + x.called) * d_.light + expensive * d_.expensive);
    }
    for (const Read& r : s.reads) read(r, s, times, done, pass, sum);
    for (const Write& w : s.writes) {
      const Value& v = p_.value(w.value);
      if (v.storage == Storage::registers) {
        if (w.sum && passes_.beyond(v.anchor, pass))
          kept_.make_throughout(w.value, size(v.dims));
        else
          kept_.make(w.value, size(v.dims));
      } else if (!w.sum && v.storage == Storage::shared) {
        add(shared(w.shared_at, s.dims), done * warps(s), s.full, false);
        sum.after += d_.shared;
      }
      if (!w.sum && v.storage != Storage::registers && (v.storage == Storage::direct || w.leaves)) {
        const Accesses& out = once(&w.home_at, [&] {
          return accesses_.home(v.tensor, w.home_at, s.dims, 1, w.copies, w.inside, {}, true);
        });
        bring(out, done * warps(s), s.full, w.home_at, done);
        convert(done * warps(s) * points);
        out_.turns = std::max(out_.turns, times);
      }
    }
  }

  /// Whether it adds products of a window with zeros around: one instruction does both. What others
  /// add has conditions.
  bool adds_products(const Step& s) const {
    const Operator& op = p_.workload->op(k_.node(s.node).op);
    return op.outputs.front().combine == Combine::sum &&
           op.outputs.front().value.function == "mul" &&
           std::ranges::any_of(s.reads, [this](const Read& r) {
             return r.value >= 0 && p_.value(r.value).padded > 0;
           });
  }

  void read(const Read& r, const Step& s, double times, double done, const StepPass& pass,
            Sum& sum) {
    if (r.value >= 0 && p_.value(r.value).padded > 0) {
      if (r.from == Read::From::held) return;  // its step has it
      window(r, s.dims, 1, done * warps(s), pass.loops);
      sum.after += d_.shared / kIndependent;
      return;
    }
    switch (r.from) {
      case Read::From::registers:
        kept_.read(r.value);
        return;
      case Read::From::shared:
        add(shared(r.at, s.dims), done * warps(s), s.full, false);
        [[fallthrough]];
      case Read::From::held:
        sum.after += times * d_.shared / kIndependent;
        return;
      case Read::From::home: {
        const Accesses& x = once(&r, [&] {
          return accesses_.home(r.tensor, r.at, s.dims, 1, r.copies, r.inside, pass.loops);
        });
        return fetch(r.tensor, x, s, r.at, times, done, x.count, sum);
      }
      case Read::From::gather:
      case Read::From::run: {
        const lowering::Gather& g = s.run && r.from == Read::From::run ? s.run->gather : r.gather;
        const std::int64_t width = r.from == Read::From::run ? s.run->width : 1;
        Linear at;
        for (const auto& dimension : g.dimensions) {
          at = at + dimension.stride * dimension.index;
          if (dimension.by < 0) continue;
          const Read& by = s.reads[static_cast<std::size_t>(dimension.by)];
          sum.dependent =
              sum.dependent || by.from == Read::From::home || sum.own.contains(by.value);
          // Rows that values name lie anywhere: lanes with values of their own touch other sectors.
          at = at + accesses_.row_of(by, dimension.stride);
        }
        const Accesses& x = once(
            &r, [&] { return accesses_.home(r.tensor, at, s.dims, width, g.copies, g.inside); });
        accesses(kOfGather * done * warps(s) * x.count);
        return fetch(TensorId(), x, s, at, times, done, x.count * static_cast<double>(width), sum);
      }
    }
  }

  /// Turns of unrolled loops whose loads are under way together; each has so many, of so many
  /// values.
  double known_ahead(double loads, double values) const {
    const double fitting = (allowed(known_.most) - before()) / std::max(1.0, values);
    const bool widest = values >= 4 * loads;  // ptxas fetches one more where it nearly fits
    return std::max(std::floor(widest ? fitting + 0.5 : fitting),
                    std::ceil(kLeastAhead / std::max(1.0, loads)));
  }

  /// Turns whose loads are under way together: those that are unrolled together; all, where a
  /// gather does nothing but fetch what registers keep.
  double ahead(const StepPass& pass) const {
    std::size_t computes = 0;
    bool fetches = true;
    for (const auto& [s, times] : pass.steps) {
      if (s->kind != Step::Kind::compute) continue;
      ++computes;
      fetches = fetches && vertex(s->node).reduced.empty() &&
                std::ranges::any_of(s->reads, [](const Read& r) {
                  return r.from == Read::From::gather || r.from == Read::From::run;
                });
      for (const Write& w : s->writes)
        fetches = fetches && p_.value(w.value).storage != Storage::shared;
    }
    return fetches && computes == 1 ? pass.turns : std::max(1.0, pass.turns / pass.waits);
  }

  const Graph& g_;
  const Device& d_;
  const ThreadProgram& p_;
  const Step* part_;
  const ScheduledKernel& k_;
  const AccessCounts accesses_;
  const std::vector<int> grid_;  ///< block indices, outer ones first
  const FirstLevel l1_;
  Counted& counted_;
  std::map<std::string, int> vertices_;
  std::set<int> indexed_;  ///< indices of arrays in registers
  const StepPasses passes_;
  KeptValues kept_;
  Kept known_;
  double ahead_registers_ = 0;  ///< the most that a pass with loads under way has
  double alike_ = 0;            ///< cycles until what all threads read alike is there
  double loading_ = 0;    ///< registers of the pass that needs most for what it loads and computes
  double meetings_ = 0;   ///< of a block's warps, at most, at one place
  double loaded_ = 0;     ///< values of a thread
  double accessing_ = 0;  ///< instructions of accesses, of all of a block's warps
  std::vector<Brought> brought_;
  Demand out_;
};

}  // namespace

std::vector<Demand> demands_of(const Graph& g, std::span<const int> vertices, const Device& d,
                               const ThreadProgram& p) {
  Counted counted;
  const auto of = [&](const Step* part) {
    Tally first(g, vertices, d, p, part, {}, counted);
    first.take();
    return Tally(g, vertices, d, p, part, first.kept(), counted).take();
  };
  const auto pack =
      std::ranges::find(p.steps, Step::Kind::parts, [](const Step& s) { return s.kind; });
  // Where all blocks meet behind a pack, its parts are not all that the kernel does.
  if (pack == p.steps.end() || p.kernel->co_resident) return {of(nullptr)};
  std::vector<Demand> all;
  for (const Step& part : pack->body) all.push_back(of(&part));
  return all;
}

}  // namespace tilewright::stitching
