// What a kernel takes on the cores, predicted: of blocks that run at once the one that reads most
// is followed, the others taken to be where it is.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "codegen/npu/emitter.h"
#include "codegen/npu/pipeline.h"
#include "codegen/npu/synchronise.h"

namespace tilewright::npu {
namespace {

constexpr std::size_t kQueue = 32;  ///< instructions that a pipe's queue holds (docs/npu.md)
constexpr int kPasses = 3;          ///< over a block, each with the transfers' times of the last

/// A transfer from or to home, as those of all cores at the same step share what they go through.
struct Transfer {
  double bytes = 0, width = 0;
  double dram = std::numeric_limits<double>::infinity();  ///< bytes a cycle that DRAM gives it
  double begin = 0, end = 0, rate = 0;
};

/// Transfers of a block, by direction (in, out), in the order of their pipe.
using Transfers = std::array<std::vector<Transfer>, 2>;

/// One core through one block, in the program's order: what a step waits for comes before it.
class CoreClock {
 public:
  /// `share`: bytes a cycle of the L2, of this core. `before`: as the last pass had them.
  CoreClock(const NpuCore& core, double share, const Transfers& before, Transfers& now)
      : core_(core), share_(share), before_(before), now_(now) {
    flags_.assign(static_cast<std::size_t>(kPipes * kPipes * core.events), 0);
  }

  void run(const std::vector<TraceNode>& body) {
    for (const TraceNode& n : body) {
      if (!n.is_loop()) {
        take(n.step);
        continue;
      }
      spend();
      for (const auto& iteration : n.iterations) {
        spend();
        run(iteration);
      }
    }
  }

  double end() const {
    double end = scalar_;
    for (const PipeState& p : pipes_) end = std::max({end, p.free, p.done});
    return end;
  }

 private:
  struct PipeState {
    double free = 0, done = 0;
    std::array<double, kQueue> started = {};  ///< of the last instructions, in turn
    std::size_t count = 0;
  };

  void spend() { scalar_ += static_cast<double>(core_.issue_cycles); }

  /// When the pipe begins its next instruction, which waits for `ready` besides.
  double begin(Pipe p, double ready = 0) {
    PipeState& s = pipes_[static_cast<std::size_t>(p)];
    double& started = s.started[s.count++ % kQueue];
    scalar_ = std::max(scalar_, started);  // the queue is full until then
    spend();
    started = std::max({s.free, scalar_, ready});
    return started;
  }

  double& flag(Pipe from, Pipe to, const IntExpr& event) {
    const auto pair = static_cast<std::int64_t>(from) * kPipes + static_cast<std::int64_t>(to);
    return flags_[static_cast<std::size_t>(pair * core_.events + event.literal())];
  }

  void take(const TraceStep& step) {
    if (const auto* set = std::get_if<SetFlag>(&step.instruction)) {
      if (set->from == Pipe::scalar) {
        flag(set->from, set->to, set->event) = scalar_;
        return spend();
      }
      PipeState& s = pipes_[static_cast<std::size_t>(set->from)];
      s.free = begin(set->from);
      flag(set->from, set->to, set->event) = std::max(s.free, s.done);
    } else if (const auto* held = std::get_if<WaitFlag>(&step.instruction);
               held != nullptr && held->to == Pipe::scalar) {
      scalar_ = std::max(scalar_, flag(held->from, held->to, held->event));
      spend();
    } else if (step.pipe == Pipe::scalar && (std::holds_alternative<Move>(step.instruction) ||
                                             std::holds_alternative<Put>(step.instruction))) {
      scalar_ += static_cast<double>(step.cycles);
    } else if (const auto* wait = std::get_if<WaitFlag>(&step.instruction)) {
      pipes_[static_cast<std::size_t>(wait->to)].free =
          begin(wait->to, flag(wait->from, wait->to, wait->event));
    } else if (std::holds_alternative<Barrier>(step.instruction)) {
      scalar_ = end();
      spend();
    } else {
      PipeState& s = pipes_[static_cast<std::size_t>(step.pipe)];
      const double from = begin(step.pipe);
      s.free = from + duration(step, from);
      s.done = std::max(s.done, s.free + static_cast<double>(step.latency));
    }
  }

  double duration(const TraceStep& step, double from) {
    const auto* copy = std::get_if<Copy>(&step.instruction);
    if (copy == nullptr) return static_cast<double>(step.cycles);
    const Memory source = step.touches.front().memory, target = step.touches.back().memory;
    const DataPath& path = *path_between(core_, source, target);
    const auto startup = static_cast<double>(path.startup);
    if (source != Memory::gm && target != Memory::gm)
      return startup + static_cast<double>(ceil_div(step.moved, path.width.value));
    const std::size_t way = source == Memory::gm ? 0 : 1;
    Transfer& t = now_[way][next_[way]++];
    t.begin = from;
    t.end = std::ceil(ends(t, before_[1 - way], at_[1 - way]) - 1e-6);
    return t.end - from + startup;
  }

  /// The transfer beside those that go the other way.
  double ends(Transfer& t, const std::vector<Transfer>& others, std::size_t& at) const {
    const double most = std::min(t.width, t.dram);
    double left = t.bytes, now = t.begin;
    t.rate = std::min(most, share_);
    while (at < others.size() && others[at].end <= now) ++at;
    for (std::size_t i = at; i < others.size() && others[i].end > 0 && left > 0; ++i) {
      const Transfer& o = others[i];
      if (o.begin > now) {
        const double alone = std::min(left, (o.begin - now) * t.rate);
        left -= alone;
        now += alone / t.rate;
        if (left <= 0) return now;
      }
      const double its = std::min(o.width, o.dram);
      const double rate = std::min(most, std::max(share_ / 2, share_ - its));
      const double beside = std::min(left, std::max(0.0, o.end - now) * rate);
      left -= beside;
      now += beside / rate;
    }
    return left > 0 ? now + left / t.rate : now;
  }

  const NpuCore& core_;
  double share_;
  const Transfers& before_;
  Transfers& now_;
  std::array<std::size_t, 2> next_{}, at_{};
  double scalar_ = 0;
  std::array<PipeState, kPipes> pipes_{};
  std::vector<double> flags_;
};

template <class F>
void each_copy(const std::vector<TraceNode>& body, F&& f) {
  for (const TraceNode& n : body) {
    for (const auto& iteration : n.iterations) each_copy(iteration, f);
    if (!n.is_loop() && std::holds_alternative<Copy>(n.step.instruction)) f(n.step);
  }
}

std::vector<HomeRead> reads_of(const std::vector<TraceNode>& body) {
  std::vector<HomeRead> all;
  each_copy(body, [&](const TraceStep& s) {
    const TraceTouch& from = s.touches.front();
    if (from.memory == Memory::gm)
      all.push_back({s.number, from.tensor, from.box, static_cast<double>(s.moved)});
  });
  return all;
}

/// What a block reads: what the first one like it does, elsewhere.
struct ReadsOfBlock {
  const std::vector<HomeRead>* like = nullptr;
  const std::vector<TensorId>* tensors = nullptr;  ///< of each
  double moved = 0;                                ///< bytes of all
  Elsewhere at;

  std::size_t size() const { return like->size(); }
  Box box(std::size_t read) const {
    Box box = (*like)[read].box;
    if (at.moved.empty()) return box;
    const std::vector<std::int64_t>& by = at.moved[(*tensors)[read].index()];
    for (int d = 0; d < box.rank(); ++d) {
      box[d].lo += by[static_cast<std::size_t>(d)];
      box[d].hi += by[static_cast<std::size_t>(d)];
    }
    return box;
  }
};

/// A block's instructions with their flags, as its core runs them.
struct FollowedBlock {
  std::vector<TraceNode> trace;
  std::vector<std::size_t> order;  ///< of its reads, in the order of the walk
  Transfers transfers;             ///< without what DRAM gives them
  std::vector<HomeRead> reads;     ///< in the program's order
  std::int64_t instructions = 0;   ///< that its walk took
};

/// Lines of tensors that have been read before.
class LinesRead {
 public:
  LinesRead(const Workload& w, std::int64_t line) : w_(w), line_(line) {}

  /// Of the bytes that the read moves, the part that none has read before; from now on it has been.
  double add(const HomeRead& r) { return add(*w_.find_tensor(r.tensor), r.box, r.moved); }
  double add(const ReadsOfBlock& block, std::size_t read) {
    return add((*block.tensors)[read], block.box(read), (*block.like)[read].moved);
  }

 private:
  double add(TensorId tensor, const Box& box, double moved) {
    Had& had = of(tensor);
    // Cores read the same, and each reads again what it does not keep.
    if (!had.boxes.insert(box).second) return 0;
    const std::vector<std::int64_t>& shape = had.tensor->shape;
    const std::int64_t size = size_of(had.tensor->dtype);
    // Elements that follow one another: of the last dimension, and of those around it for as long
    // as the box has all that is within.
    int around = box.rank();
    std::int64_t run = 1, whole = 1;
    while (around > 0 && run == whole) {
      const auto d = static_cast<std::size_t>(--around);
      run *= box[around].size();
      whole *= shape[d];
    }
    if (box.empty()) return 0;
    std::array<std::int64_t, kMaxRank> pitch{};  // bytes
    std::int64_t offset = 0, place = size;
    for (int d = box.rank() - 1; d >= 0; --d) {
      pitch[static_cast<std::size_t>(d)] = place;
      offset += box[d].lo * place;
      place *= shape[static_cast<std::size_t>(d)];
    }
    std::array<std::int64_t, kMaxRank> at{};  // of the run, from the box's begin
    std::int64_t lines = 0;
    for (int d = 0; d >= 0;) {
      lines += had.take(offset / line_, ceil_div(offset + run * size, line_));
      for (d = around - 1; d >= 0; --d) {
        const auto i = static_cast<std::size_t>(d);
        offset += pitch[i];
        if (++at[i] < box[d].size()) break;
        offset -= at[i] * pitch[i];
        at[i] = 0;
      }
    }
    return moved > 0 ? std::min(1.0, static_cast<double>(lines * line_) / moved) : 0;
  }

  /// Any order.
  struct Before {
    bool operator()(const Box& a, const Box& b) const {
      if (a.rank() != b.rank()) return a.rank() < b.rank();
      for (int d = 0; d < a.rank(); ++d) {
        if (a[d].lo != b[d].lo) return a[d].lo < b[d].lo;
        if (a[d].hi != b[d].hi) return a[d].hi < b[d].hi;
      }
      return false;
    }
  };
  struct Had {
    const tilewright::Tensor* tensor = nullptr;
    std::vector<std::uint64_t> lines = {};  ///< a bit each
    std::set<Box, Before> boxes = {};       ///< all whose lines were had

    /// Of the lines [first, last) those that were not had, which are from now on.
    std::int64_t take(std::int64_t first, std::int64_t last) {
      constexpr std::int64_t kBits = 64;
      std::int64_t fresh = 0;
      for (std::int64_t word = first / kBits; word * kBits < last; ++word) {
        const std::int64_t from = std::max<std::int64_t>(first - word * kBits, 0);
        const std::int64_t count = std::min(last - word * kBits, kBits) - from;
        const std::uint64_t bits = (~std::uint64_t{0} >> (kBits - count)) << from;
        std::uint64_t& own = lines[static_cast<std::size_t>(word)];
        if ((bits & ~own) == 0) continue;
        fresh += std::popcount(bits & ~own);
        own |= bits;
      }
      return fresh;
    }
  };

  Had& of(TensorId tensor) {
    Had& had = had_[tensor];
    if (had.tensor == nullptr) {
      had.tensor = &w_.tensor(tensor);
      had.lines.resize(static_cast<std::size_t>(had.tensor->bytes().value / line_ / 64 + 2));
    }
    return had;
  }

  const Workload& w_;
  std::int64_t line_;
  std::map<TensorId, Had> had_;
};

/// A round of blocks, one a core, and how many rounds are taken to be as long as it.
struct FollowedRound {
  std::int64_t round = 0, times = 1;
};

/// The first ones, whose reads are new, others spread over the rest, since blocks at the ends of
/// tensors do less, and the last one, which may have fewer blocks.
std::vector<FollowedRound> followed_rounds(std::int64_t rounds) {
  std::vector<FollowedRound> all;
  if (rounds <= kFollowedBlocks + 1) {
    for (std::int64_t r = 0; r < rounds; ++r) all.push_back({.round = r});
    return all;
  }
  constexpr std::int64_t kFirst = kFollowedBlocks / 2, kSpread = kFollowedBlocks - kFirst;
  for (std::int64_t r = 0; r < kFirst; ++r) all.push_back({.round = r});
  // Each in the middle of those that it stands for.
  const std::int64_t rest = rounds - 1 - kFirst;
  for (std::int64_t i = 0; i < kSpread; ++i) {
    const std::int64_t begin = rest * i / kSpread, end = rest * (i + 1) / kSpread;
    if (begin < end)
      all.push_back({.round = kFirst + begin + (end - begin) / 2, .times = end - begin});
  }
  all.push_back({.round = rounds - 1});
  return all;
}

}  // namespace

std::vector<TraceNode>& KernelEmitter::traced(std::int64_t block, Kept kept) {
  kept_ = kept;
  trace_.clear();
  into_.assign(1, &trace_);
  begin_block();
  walk(block);
  return trace_;
}

const std::vector<HomeRead>& KernelEmitter::reads_of_block(std::int64_t block) {
  reads_.clear();
  traced(block, Kept::reads);
  return reads_;
}

/// Of a kernel's blocks: blocks that do the same elsewhere are walked once, and count as walked.
class KernelEmitter::BlocksReads {
 public:
  explicit BlocksReads(KernelEmitter& of) : of_(of) {}

  ReadsOfBlock reads(std::int64_t block) {
    Elsewhere at = of_.alike().of(block);
    const auto [known, fresh] = kinds_.try_emplace(at.first);
    Kind& kind = known->second;
    if (fresh) {
      const std::int64_t before = of_.emitted_;
      kind.reads = of_.reads_of_block(at.first);
      kind.instructions = of_.emitted_ - before;
      for (const HomeRead& r : kind.reads) {
        kind.tensors.push_back(*of_.w_.find_tensor(r.tensor));
        kind.moved += r.moved;
      }
    } else {
      of_.charge(kind.instructions);
    }
    return {
        .like = &kind.reads, .tensors = &kind.tensors, .moved = kind.moved, .at = std::move(at)};
  }

  /// `its`: the block's reads.
  const FollowedBlock& followed(const ReadsOfBlock& its, std::int64_t block) {
    FollowedBlock& known = kinds_.at(its.at.first).followed;
    if (known.trace.empty() || known.order.size() != its.size())
      known = trace_of(block);
    else
      of_.charge(known.instructions);
    return known;
  }

 private:
  struct Kind {
    std::vector<HomeRead> reads;
    std::vector<TensorId> tensors;
    double moved = 0;
    std::int64_t instructions = 0;
    FollowedBlock followed;
  };

  FollowedBlock trace_of(std::int64_t block) {
    const std::int64_t before = of_.emitted_;
    FollowedBlock its{.trace = std::move(of_.traced(block, Kept::all))};
    its.instructions = of_.emitted_ - before;
    // Positions of the reads in the walk, before overlapping moves them.
    std::map<std::int64_t, std::size_t> place;
    for (const HomeRead& r : reads_of(its.trace)) place.emplace(r.number, place.size());
    pipeline(its.trace);
    its.reads = reads_of(its.trace);
    for (const HomeRead& r : its.reads) {
      its.order.push_back(place.at(r.number));
      its.transfers[0].push_back({.bytes = r.moved});
    }
    std::size_t in = 0;
    each_copy(its.trace, [&](const TraceStep& s) {
      const Memory from = s.touches.front().memory, to = s.touches.back().memory;
      if (from != Memory::gm && to != Memory::gm) return;
      const auto width = static_cast<double>(path_between(of_.core(), from, to)->width.value);
      if (from == Memory::gm)
        its.transfers[0][in++].width = width;
      else
        its.transfers[1].push_back({.bytes = static_cast<double>(s.moved), .width = width});
    });
    synchronise(its.trace, of_.core().events);
    return its;
  }

  KernelEmitter& of_;
  std::map<std::int64_t, Kind> kinds_;  ///< by the first block of each
};

Result<bool> KernelEmitter::timeable() {
  try {
    check();
    choose_places();
    measure();
    lay_out();
    const ComputeUnit* const cube = cube_unit(*s_.machine);
    if (cube == nullptr) return true;
    const std::int64_t cores = std::min(cube->count, k_.blocks);
    BlocksReads blocks(*this);
    std::int64_t looked_at = 0;  // rounds before this one
    for (const FollowedRound& followed : followed_rounds(ceil_div(k_.blocks, cores))) {
      const std::int64_t first = std::max(looked_at, followed.round - 1) * cores;
      looked_at = followed.round + 1;
      for (std::int64_t b = first; b < std::min(looked_at * cores, k_.blocks); ++b) blocks.reads(b);
    }
    return true;
  } catch (const NeedsMoves&) {
    return with_moves().timeable();
  } catch (const Refused& refused) {
    return Reason{k_.name + ": " + refused.text, refused.shortage};
  }
}

Result<KernelEmitter::Taken> KernelEmitter::cycles() {
  try {
    check();
    choose_places();
    measure();
    lay_out();
    const Machine& m = *s_.machine;
    const ComputeUnit* const cube = cube_unit(m);
    if (cube == nullptr || cube->clock_hz <= 0) return Reason{m.name + " has no cube with a clock"};
    const Level& l2 = m.level(*m.find(level_of(Memory::gm)));
    const double dram = l2.bandwidth.value > 0 ? l2.bandwidth.value / cube->clock_hz
                                               : std::numeric_limits<double>::infinity();
    const std::int64_t cores = std::min(cube->count, k_.blocks);
    const std::int64_t rounds = ceil_div(k_.blocks, cores);
    LinesRead seen(w_, l2.line.value);
    BlocksReads blocks(*this);
    double all = 0, last = 0;
    const std::vector<FollowedRound> followed = followed_rounds(rounds);
    for (std::size_t f = 0; f < followed.size(); ++f) {
      const std::int64_t round = followed[f].round, first = round * cores;
      const std::int64_t beside = std::min(cores, k_.blocks - first);
      // What the rounds in between have read is about what the one before this one has.
      if (f > 0 && followed[f - 1].round + 1 < round)
        for (std::int64_t b = first - cores; b < first; ++b) {
          const ReadsOfBlock reads = blocks.reads(b);
          for (std::size_t i = 0; i < reads.size(); ++i) seen.add(reads, i);
        }
      // The core with most to read: blocks at the ends of tensors do less than others.
      std::vector<ReadsOfBlock> others;
      std::size_t longest = 0;
      for (std::int64_t b = first; b < first + beside; ++b) {
        others.push_back(blocks.reads(b));
        if (others.back().moved > others[longest].moved) longest = others.size() - 1;
      }
      const std::int64_t block = first + static_cast<std::int64_t>(longest);
      const ReadsOfBlock its = others[longest];
      const FollowedBlock& own = blocks.followed(its, block);
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(longest));
      Transfers transfers = own.transfers;
      for (std::size_t i = 0; i < own.order.size(); ++i) {
        const std::size_t at = own.order[i];
        const double fresh =
            own.order.size() == its.size() ? seen.add(its, at) : seen.add(own.reads[i]);
        double together = fresh;
        for (const ReadsOfBlock& other : others)
          if (at < other.size()) together += seen.add(other, at);
        if (fresh > 0) transfers[0][i].dram = dram / together;
      }
      const std::vector<TraceNode>& trace = own.trace;
      const double share =
          core().shared_bandwidth.value / cube->clock_hz / static_cast<double>(beside);
      Transfers before;
      for (int pass = 0; pass < kPasses; ++pass) {
        CoreClock clock(core(), share, before, transfers);
        clock.run(trace);
        last = clock.end();
        before = transfers;
      }
      all += last * static_cast<double>(followed[f].times);
    }
    return Taken{.cycles = all, .steps = measured_ + emitted_};
  } catch (const NeedsMoves&) {
    return with_moves().cycles();
  } catch (const Refused& refused) {
    return Reason{k_.name + ": " + refused.text, refused.shortage};
  }
}

Result<double> predicted_seconds(const Schedule& schedule, const EmitOptions& options,
                                 std::int64_t* steps) {
  const Machine& m = *schedule.machine;
  if (!m.npu_core) return Reason{"machine " + m.name + " has no npu_core"};
  // To follow blocks takes longest: not of kernels beside one that has no time.
  for (std::size_t k = 1; k < schedule.kernels.size(); ++k)
    if (const auto may = merged_or_plain(schedule, k, options, &KernelEmitter::timeable); !may)
      return may.why();
  double cycles = 0;
  for (std::size_t k = 0; k < schedule.kernels.size(); ++k) {
    const auto its = merged_or_plain(schedule, k, options, &KernelEmitter::cycles);
    if (!its) return its.why();
    cycles += its->cycles;
    if (steps != nullptr) *steps += its->steps;
  }
  return cycles / cube_unit(m)->clock_hz;
}

}  // namespace tilewright::npu
