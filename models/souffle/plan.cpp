// From a workload to its kernels: analysis, partition, nests, places, trees.
#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>

#include "core/base/format.h"
#include "core/base/progress.h"
#include "core/plan/schedule.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/subgraph.h"
#include "models/souffle/model.h"
#include "models/souffle/units.h"

namespace tilewright::souffle {
namespace {

constexpr int kMostShrink = 256;              // of the room, for an operator alone
constexpr std::array kStages = {6, 4, 2, 1};  // of tiles in a ring, as there is room
constexpr int kMostTries = 12;                // plans of one kernel with fewer tiles kept each

/// Blocks of a kernel that one multiprocessor can run: computing and copying warps, and as many
/// registers a thread as a product of 64 x 64 takes.
std::int64_t most_resident(const Device& d) {
  constexpr std::int64_t kThreads = 32 * (kWarps + 4), kRegisters = 56;
  return std::min(d.blocks, d.registers / (kThreads * kRegisters));
}

class Planner {
 public:
  Planner(const Question& q, const Options& o, Planned& out)
      : q_(q), o_(o), out_(out), w_(*out.workload), units_(q, *out.workload) {}

  std::optional<Reason> run() {
    Steps steps(static_cast<double>(out_.subprograms.size()));
    for (std::size_t s = 0; s < out_.subprograms.size(); ++s, steps.done()) {
      const std::size_t before = out_.plan.kernels.size();
      if (o_.reuse && (whole(s, before, true) || whole(s, before, false))) continue;
      if (auto why = subprogram(s)) return why;
      if (!o_.reuse || out_.cut[s].empty()) continue;
      // Blocks that suit kept tiles may not suit one kernel: without, there may be fewer.
      const Taken kept = take(before);
      o_.reuse = false;
      const auto why = subprogram(s);
      o_.reuse = true;
      if (!why && out_.plan.kernels.size() - before < kept.kernels.size()) continue;
      take(before);
      std::ranges::copy(kept.kernels, std::back_inserter(out_.plan.kernels));
      std::ranges::copy(kept.programs, std::back_inserter(out_.programs));
      out_.subprogram.resize(out_.plan.kernels.size(), s);
      out_.cut[s] = kept.cut;
    }
    return {};
  }

 private:
  /// What has been planned from a kernel on, for the last subprogram.
  struct Taken {
    std::vector<Kernel> kernels;
    std::vector<Program> programs;
    std::string cut;
  };
  Taken take(std::size_t from) {
    const auto at = static_cast<std::ptrdiff_t>(from);
    Taken t{{out_.plan.kernels.begin() + at, out_.plan.kernels.end()},
            {out_.programs.begin() + at, out_.programs.end()},
            out_.cut[now_]};
    out_.plan.kernels.resize(from);
    out_.programs.resize(from);
    out_.subprogram.resize(from);
    out_.cut[now_].clear();
    return t;
  }

  /// Plans a subprogram if no kernel of it has to be cut. Most do not, and cuts take long to find.
  bool whole(std::size_t s, std::size_t before, bool reuse) {
    o_.reuse = reuse;
    whole_ = true;
    const bool found = !subprogram(s);
    o_.reuse = true;
    whole_ = false;
    if (!found) take(before);
    return found;
  }

  std::optional<Reason> subprogram(std::size_t s) {
    now_ = s;
    inside_.assign(w_.operators().size(), false);
    std::vector<Nest> nests = built_nests(w_, out_.device, o_, out_.subprograms[s].ops, table_);
    out_.cut.resize(s + 1);
    if (o_.global_sync) return kernels(std::move(nests));
    for (std::size_t i = 0; i < nests.size();) {
      std::vector<Nest> unit;
      const int phase = nests[i].phase, beside = nests[i].unit;
      for (; i < nests.size() && nests[i].phase == phase && nests[i].unit == beside; ++i)
        unit.push_back(nests[i]);
      if (auto why = kernels(std::move(unit))) return why;
    }
    return {};
  }

  /// These nests as one kernel, or where that is none, as two or more. An operator alone is tried
  /// with less and less room: its tiles can be larger than the estimate (hulls of what it reads).
  std::optional<Reason> kernels(std::vector<Nest> nests, int shrink = 1) {
    std::string why;
    std::set<TensorId> spilled;
    std::vector<UnitKernel> in_units = bound_below_blocks(nests, false);
    for (int tries = 0; tries < kMostTries; ++tries) {
      Program p = program_of(w_, out_.device, o_, nests, spilled);
      const auto kernel = [&](int stages) {
        return kernel_of(w_, *q_.machine, o_, p, leaving(p),
                         formatted("souffle{}", out_.plan.kernels.size() + 1), stages);
      };
      Kernel k = kernel(kStages.front());
      auto full = refused(k, p, why);
      if (full && full->value > 0) {
        // Where the smallest has no room, none has.
        full = refused(k = kernel(kStages.back()), p, why);
        for (std::size_t i = 1; !full && i + 1 < kStages.size(); ++i)
          if (Kernel more = kernel(kStages[i]); !refused(more, p, why)) {
            k = std::move(more);
            break;
          }
      }
      if (!full) {
        // A subprogram is one kernel: what needs barriers has them.
        const bool one = in_units.size() == 1 || (p.phases == 1 && !in_units.empty());
        if (one && takes_less(in_units, k, nests)) return take_units(in_units, "");
        if (p.phases > 1)
          if (const auto unit = with_barriers(nests);
              unit && reads(unit->kernel) <= reads(k) && takes_less({*unit}, k, nests))
            return take_units({*unit}, "");
        out_.plan.kernels.push_back(std::move(k));
        out_.programs.push_back(std::move(p));
        out_.subprogram.push_back(now_);
        return {};
      }
      if (p.kept.empty()) break;
      // At last nothing is kept, as without reuse, before the kernel is cut.
      if (full->value > 0 && tries + 2 < kMostTries) {
        spill(p.kept, *full, spilled);
        continue;
      }
      // A reader that needs less of a tensor than all begins its blocks elsewhere: nothing is kept.
      for (const KeptTile& tile : p.kept) spilled.insert(tile.tensor);
      if (full->value == 0 && tries > 0) break;
    }
    if (in_units.empty() && !whole_) in_units = bound_below_blocks(nests, true);
    if (!in_units.empty()) return take_units(in_units, why);
    if (nests.size() == 1) {
      const bool one = nests.front().ops().size() == 1;
      if (one && shrink >= kMostShrink)
        return Reason{formatted("operator {} has no kernel: {}",
                                w_.op(nests.front().ops().front()).name, why)};
      return alone(nests.front(), one ? 2 * shrink : shrink);
    }
    if (whole_) return Reason{why};
    if (out_.cut[now_].empty()) out_.cut[now_] = why;
    const int first = nests.front().phase, last = nests.back().phase;
    std::vector<Nest> later;
    const int middle = first + (last - first) / 2;
    const std::size_t half = nests.size() / 2;
    for (std::size_t i = 0; i < nests.size(); ++i)
      if (first == last ? i >= half : nests[i].phase > middle) later.push_back(nests[i]);
    nests.resize(nests.size() - later.size());
    if (auto bad = kernels(std::move(nests))) return bad;
    return kernels(std::move(later));
  }

  /// These nests as kernels whose loops are bound to warps and lanes, where no tile would wait for
  /// a barrier: their phases, or one of memory-intensive operators. `cut`: there is no one kernel
  /// of them, so that contractions, too, may be in kernels of their phases. Empty: there are none.
  std::vector<UnitKernel> bound_below_blocks(const std::vector<Nest>& nests, bool cut) {
    if (!o_.units) return {};
    const std::vector<std::vector<OpId>> phases = phases_of(nests);
    bool intensive = false;
    for (const std::vector<OpId>& phase : phases)
      for (OpId id : phase)
        intensive = intensive || out_.analysis.of[id.index()].intensive || w_.is_contraction(id);
    if (intensive && phases.size() > 1 && !cut) return {};
    return units_.kernels(phases);
  }

  /// The nests as one kernel whose loops are bound to warps and lanes, with barriers of all blocks.
  std::optional<UnitKernel> with_barriers(const std::vector<Nest>& nests) {
    return o_.units ? units_.with_barriers(phases_of(nests), o_.reuse) : std::nullopt;
  }

  Bytes reads(const Kernel& k) const { return count(w_, out_.device, o_, Plan{{k}}).read(); }

  static std::vector<std::vector<OpId>> phases_of(const std::vector<Nest>& nests) {
    std::vector<std::vector<OpId>> phases;
    int last = -1;
    for (const Nest& n : nests) {
      if (n.phase != last) phases.emplace_back();
      last = n.phase;
      for (OpId id : n.ops()) phases.back().push_back(id);
    }
    return phases;
  }

  bool takes_less(const std::vector<UnitKernel>& units, const Kernel& k,
                  const std::vector<Nest>& nests) const {
    double sum = 0;
    for (const UnitKernel& u : units) sum += u.seconds;
    std::vector<OpId> ops;
    for (const Nest& n : nests)
      for (OpId id : n.ops()) ops.push_back(id);
    std::ranges::sort(ops);
    const auto part = std::make_shared<const Workload>(subgraph(w_, ops));
    const Result<Schedule> s = resolve(Plan{{k}}, part, q_.machine);
    const auto seconds = s ? units_.seconds(*s) : std::nullopt;
    return !seconds || sum < *seconds;
  }

  /// `why`: there is no one kernel.
  std::optional<Reason> take_units(const std::vector<UnitKernel>& units, const std::string& why) {
    if (units.size() > 1 && out_.cut[now_].empty()) out_.cut[now_] = why;
    for (const UnitKernel& u : units) {
      out_.plan.kernels.push_back(u.kernel);
      out_.plan.kernels.back().name = formatted("souffle{}", out_.plan.kernels.size());
      out_.programs.push_back(program_of_unit(u));
      out_.subprogram.push_back(now_);
    }
    return {};
  }

  /// The nest of each phase.
  Program program_of_unit(const UnitKernel& u) const {
    Program p{.phases = std::max<int>(1, static_cast<int>(u.phases.size()))};
    for (int phase = 0; phase < p.phases; ++phase)
      p.nests.push_back(
          {.others = u.phases.empty() ? u.ops : u.phases[static_cast<std::size_t>(phase)],
           .phase = phase,
           .blocks = u.blocks});
    const std::vector<Node> whole{u.kernel.tree};
    int phase = 0;
    for (const Node& n : u.phases.empty() ? whole : u.kernel.tree.children) {
      if (n.kind == Node::Kind::sync && n.name == "grid") ++phase;
      Nest& nest = p.nests[static_cast<std::size_t>(phase)];
      grid_of(n, nest.grid);
      if (u.phases.empty() || n.kind != Node::Kind::loop) continue;
      nest.blocks = 1;
      for (const Cut& c : nest.grid) nest.blocks *= ceil_div(w_.loop(c.loop).extent, c.step);
    }
    return p;
  }

  /// The loops that blocks share out of a tree that is one nest.
  void grid_of(const Node& n, std::vector<Cut>& grid) const {
    if (n.kind == Node::Kind::pack) return;
    if (n.kind == Node::Kind::loop && n.binding == Binding::grid)
      if (const auto l = w_.find_loop(n.name)) grid.push_back({*l, n.step});
    for (const Node& c : n.children) grid_of(c, grid);
  }

  /// Each operator of a nest in a kernel of its own.
  std::optional<Reason> alone(const Nest& nest, int shrink) {
    Device d = out_.device;
    d.shared = Bytes(d.shared.value / shrink);
    Options apart = o_;
    apart.vertical = apart.horizontal = apart.concat = apart.pack = false;
    for (OpId id : nest.ops()) {
      const OpId one[] = {id};
      if (auto why = kernels(built_nests(w_, d, apart, one, table_), shrink)) return why;
    }
    return {};
  }

  std::set<TensorId> leaving(const Program& p) {
    std::vector<OpId> ops;
    for (const Nest& n : p.nests)
      for (OpId id : n.ops()) ops.push_back(id);
    for (OpId id : ops) inside_[id.index()] = true;
    std::set<TensorId> out;
    for (OpId id : ops)
      for (const Output& o : w_.op(id).outputs) {
        const TensorId t = o.target.tensor;
        if (w_.is_output(t) ||
            std::ranges::any_of(w_.consumers(t), [&](OpId r) { return !inside_[r.index()]; }))
          out.insert(t);
      }
    for (OpId id : ops) inside_[id.index()] = false;
    return out;
  }

  /// The tiles that were used least recently when room ran out, as many as the missing bytes.
  static void spill(std::vector<KeptTile> kept, Bytes missing, std::set<TensorId>& spilled) {
    std::ranges::sort(kept, [](const KeptTile& a, const KeptTile& b) {
      return std::pair(a.gap, a.bytes) > std::pair(b.gap, b.bytes);
    });
    for (const KeptTile& tile : kept) {
      spilled.insert(tile.tensor);
      missing = missing - tile.bytes;
      if (missing.value <= 0) return;
    }
  }

  /// Bytes that are missing where there is no such kernel, 0 where room is not the reason.
  std::optional<Bytes> refused(const Kernel& k, const Program& p, std::string& why) const {
    std::vector<OpId> ops;
    for (const Nest& n : p.nests)
      for (OpId id : n.ops()) ops.push_back(id);
    std::ranges::sort(ops);
    try {
      const auto part = std::make_shared<const Workload>(subgraph(w_, ops));
      const Result<Schedule> s = resolve(Plan{{k}}, part, q_.machine);
      if (!s) {
        why = s.reason();
        return Bytes(0);
      }
      for (const auto& [name, bytes] : memory_use(*s)) {
        const LevelId id = *q_.machine->find(name);
        const Level& level = q_.machine->level(id);
        if (level.managed != Managed::software || level.capacity.value == 0) continue;
        Bytes room = level.capacity;
        if (id == q_.machine->default_level()) room = std::min(room, q_.room_at(id));
        if (bytes <= room) continue;
        why =
            formatted("its tiles take {} bytes of {}, which has {}", bytes.value, name, room.value);
        return bytes - room;
      }
      if (const Bytes place = largest_place(p); place > out_.device.shared) {
        why = formatted("tiles of two shapes would share a place of {} bytes", place.value);
        return Bytes(0);
      }
      const std::int64_t each = ceil_div(s->kernels.front().blocks, out_.device.sms);
      if (p.phases > 1 && each > std::max<std::int64_t>(1, most_resident(out_.device))) {
        why = formatted("{} blocks wait for one another: a multiprocessor has registers for {}",
                        s->kernels.front().blocks, most_resident(out_.device));
        return Bytes(0);
      }
      // A target that has refused a plan already is asked of each kernel: it pads tiles, say.
      if (!q_.room || !q_.refuses) return {};
      const auto no = q_.refuses(*s);
      if (!no) return {};
      why = no->text;
      return Bytes(
          no->shortage ? std::max<std::int64_t>(0, no->shortage->needed - no->shortage->room) : 0);
    } catch (const InputError& e) {
      why = e.what();
      return Bytes(0);
    }
  }

  /// A tensor that is kept has one place in a block, as long and as wide as its tiles in any nest;
  /// one that each phase loads has one a phase.
  Bytes largest_place(const Program& p) const {
    std::map<std::pair<TensorId, int>, std::vector<std::int64_t>> sides;
    std::set<TensorId> kept;
    for (const KeptTile& tile : p.kept) kept.insert(tile.tensor);
    const auto add = [&](const Nest& n, OpId id, std::span<const Cut> inner) {
      const Operator& op = w_.op(id);
      std::vector<Interval> ranges;
      for (LoopId l : op.loops) {
        ranges.push_back({0, w_.loop(l).extent});
        for (const std::span<const Cut> cuts :
             {std::span<const Cut>(n.grid), std::span(n.walk), inner})
          for (const Cut& c : cuts)
            if (c.loop == l) ranges.back().hi = std::min(ranges.back().hi, c.step);
      }
      for (const Access& a : op.inputs) {
        if (is_gather(a)) continue;
        const Box box = footprint(w_, op, a, ranges);
        auto& most = sides[{a.tensor, kept.contains(a.tensor) ? -1 : n.phase}];
        most.resize(static_cast<std::size_t>(box.rank()), 1);
        for (int d = 0; d < box.rank(); ++d)
          most[static_cast<std::size_t>(d)] =
              std::max(most[static_cast<std::size_t>(d)], box[d].size());
      }
    };
    for (const Nest& n : p.nests) {
      for (const Nest::Sum& s : n.sums) add(n, s.op, s.inner);
      for (OpId id : n.others) add(n, id, {});
    }
    Bytes largest;
    for (const auto& [place, most] : sides) {
      std::int64_t bytes = size_of(w_.tensor(place.first).dtype);
      for (std::int64_t side : most) bytes *= side;
      largest = std::max(largest, Bytes(bytes));
    }
    return largest;
  }

  const Question& q_;
  Options o_;
  Planned& out_;
  const Workload& w_;
  std::size_t now_ = 0;
  bool whole_ = false;  ///< no kernel is cut
  std::vector<bool> inside_;
  TileTable table_;
  Units units_;
};

}  // namespace

Result<Device> device_of(const Machine& m, DType type, std::optional<Bytes> room) {
  const auto shared = m.find("shared");
  if (m.kind != "gpu" || m.units.empty() || !shared)
    return Reason{formatted("Souffle plans for GPUs, and {} is none", m.name)};
  const ComputeUnit& sm = m.units.front();
  Device d{.sms = sm.count,
           .registers = sm.registers,
           .shared = room.value_or(m.level(*shared).capacity),
           .blocks = sm.blocks};
  d.shared = std::min(d.shared, m.level(*shared).capacity);
  const auto peak = [&](const char* name) {
    const auto at = sm.peak.find(name);
    return at == sm.peak.end() ? 0.0 : at->second.value;
  };
  d.flops = peak(std::string(name_of(type)).c_str());
  if (d.flops <= 0) d.flops = peak("f32");
  const auto home =
      std::ranges::find_if(m.levels, [](const Level& l) { return l.bandwidth.value > 0; });
  if (d.flops <= 0 || home == m.levels.end() || sm.registers <= 0)
    return Reason{formatted(
        "Souffle needs peak, registers and bandwidths of a GPU: {} does not say them", m.name)};
  d.memory = home->bandwidth.value;
  if (const auto unit = lowering::product_unit(m, type)) d.product = *unit;
  if (const auto at = sm.cycles.find("grid_barrier"); at != sm.cycles.end() && sm.clock_hz > 0)
    d.barrier = at->second / sm.clock_hz;
  if (const auto at = sm.cycles.find("grid_barrier_block");
      at != sm.cycles.end() && sm.clock_hz > 0)
    d.barrier_block = at->second / sm.clock_hz;
  d.fill = m.level(*shared).bandwidth.value > 0 ? m.level(*shared).bandwidth.value
                                                : d.memory / static_cast<double>(d.sms);
  return d;
}

Result<Planned> planned(const Question& q, const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  for (const Operator& op : q.workload->operators())
    if (op.running)
      return Reason{"operator " + op.name + " is running: a tensor expression has its whole sum"};
  const auto device = device_of(*q.machine, q.workload->dtype(), q.room);
  if (!device) return Reason{device.reason()};
  Planned out{.workload = q.workload, .device = *device};
  const auto rewrite = [&out](const char* name) {
    Result<Workload> changed = apply(name, *out.workload);
    if (!changed) return;
    out.workload = std::make_shared<const Workload>(*std::move(changed));
    out.rewrites.emplace_back(name);
  };
  Steps stages(4);
  if (o.vertical) rewrite("compose");
  if (o.horizontal) rewrite("share-loops");
  out.analysis = analyse(*out.workload, o);
  stages.done();
  out.subprograms = partition(*out.workload, out.analysis, out.device, o);
  stages.done();
  if (auto why = Planner(q, o, out).run()) return *why;
  stages.done();
  out.counts = count(*out.workload, out.device, o, out.plan);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace tilewright::souffle
