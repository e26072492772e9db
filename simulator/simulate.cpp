#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/lowering/inside_tiles.h"
#include "core/plan/names.h"
#include "core/workload/subgraph.h"
#include "simulator/cache.h"
#include "simulator/gather_walk.h"
#include "simulator/scratchpad.h"
#include "simulator/set_shares.h"
#include "simulator/simulator.h"

namespace tilewright {

namespace {

/// One direction of one buffer: where its movement is counted.
struct Route {
  std::vector<std::size_t> boundaries;  ///< crossed into or out of a level that software manages
  int entry = -1;                       ///< cache that is asked first; -1: none on the way
};

struct BufferRoutes {
  Route in, out;
};

/// Computes of a kernel's walk, about: each iteration counts as often as the first one's.
double computes_of(const ScheduledKernel& k) {
  double all = 0;
  for (const ScheduleNode& n : k.nodes) {
    if (n.kind != NodeKind::compute) continue;
    double runs = 1;
    for (NodeId at = n.parent; at.valid(); at = k.node(at).parent) {
      const ScheduleNode& loop = k.node(at);
      if (loop.kind != NodeKind::loop) continue;
      NodeId outer = loop.parent;  // the loop that cuts the range which this one cuts further
      while (outer.valid() &&
             (k.node(outer).kind != NodeKind::loop || k.node(outer).loop != loop.loop))
        outer = k.node(outer).parent;
      runs *= static_cast<double>(outer.valid() ? (k.node(outer).step + loop.step - 1) / loop.step
                                                : loop.max_trips);
    }
    all += runs;
  }
  return all;
}

class Simulation {
 public:
  Simulation(const Schedule& s, const SimulateOptions& options, const SetShare& share = {})
      : of_(s),
        inside_(with_loops_inside(s)),
        s_(inside_ ? *inside_ : s),
        options_(options),
        share_(share),
        w_(*s.workload),
        m_(*s.machine),
        gathers_(w_, options.seed),
        contents_(s_, [this](const Movement& m) { moved(m); }) {
    operations_.assign(w_.operators().size(), -1);
    set_up_caches();
    if (options.attribute && caches_) set_up_loops();
    for (const ScheduledKernel& k : s_.kernels) {
      auto& routes = routes_.emplace_back();
      for (const Buffer& b : k.buffers) {
        software_ = software_ || managed_by_software(b.level);
        routes.push_back(
            {.in = route(b.outer_level, b.level), .out = route(b.level, b.outer_level)});
      }
      gather_routes_.push_back(has_gathers(w_, k) ? route(m_.home(), k.level) : Route{});
    }
  }

  Simulated run() {
    Skipped skipped{.why_none = why_no_skipping()};
    if (skipped.why_none.empty())
      skipping_ = std::make_unique<Skipping>(
          s_, *map_, *caches_,
          Skipping::Counters{.operations = &operations_, .computes = &computes_, .lines = &lines_},
          share_.count > 1 ? share_.round : 1);
    const AccessSink sink = [this](const AccessEvent& e) { apply(e); };
    if (share_.index == 0 && options_.progress)
      for (const ScheduledKernel& k : s_.kernels) expected_ += computes_of(k);
    if (skipping_ || options_.most_work != 0 || options_.most_computes != 0)
      walk(s_, sink, [this](const LoopPoint& p) { return steer(p); });
    else if (caches_ || s_.kernels.size() == 1 || !options_.skip)
      walk(s_, sink);
    else
      walk_each_once();
    if (skipping_) skipped = skipping_->result();
    if (caches_ && options_.occupancy != nullptr) options_.occupancy->finish(*caches_);
    skipped.of_computes = computes_;
    Simulated out{.traffic = traffic(), .finished = !spent(), .skipped = std::move(skipped)};
    if (options_.most_computes != 0) {
      stop_.computes = computes_;
      if (software_) stop_.buffers = contents_.held();
      out.stop = stop_;
    }
    if (!caches_) return out;
    for (std::size_t c = 0; c < cache_boundary_.size(); ++c) {
      const std::string name = boundary_name(cache_boundary_[c]);
      out.caches.emplace_back(name, caches_->counts(c));
      if (options_.contents) out.contents.push_back(caches_->contents(c));
      if (options_.attribute) out.blame.push_back({.boundary = name, .level = caches_->blame(c)});
    }
    if (options_.attribute)
      for (const LoopId l : loops_) out.loops.push_back(w_.loop(l).name);
    out.dram = caches_->dram();
    return out;
  }

 private:
  struct Moved {
    std::int64_t read = 0, written = 0;
  };

  bool managed_by_software(LevelId l) const { return m_.level(l).managed == Managed::software; }
  bool is_cache(LevelId l) const { return l != m_.home() && !managed_by_software(l); }

  std::string boundary_name(std::size_t index) const {
    for (const auto& [levels, at] : boundaries_)
      if (at == index) return m_.boundary(levels.first, levels.second);
    TW_CHECK(false, "a boundary without a name");
    return {};
  }

  bool spent() const {
    return stopped_ || (options_.most_work != 0 &&
                        lines_ + SimulateOptions::kWorkOfCompute * walked_ > options_.most_work);
  }

  /// Follows the last compute that most_computes lets run; whether it is over, its operands too.
  bool stops_at(const AccessEvent& e) {
    const bool operand =
        e.kind == AccessKind::read || e.kind == AccessKind::gather || e.kind == AccessKind::update;
    if (!operand && computes_ == options_.most_computes) return true;
    if (e.kind == AccessKind::compute) {
      stop_ = {.kernel = e.kernel, .op = e.op};
    } else if (operand) {
      stop_.touched.emplace_back(e.tensor, e.box);
    }
    return false;
  }

  std::int64_t steer(const LoopPoint& p) {
    if (spent()) return p.count - 1;  // the walk runs out, and nobody listens
    return skipping_ ? skipping_->steer(p) : p.next;
  }

  /// What software manages is empty when a kernel begins, so kernels that differ in names alone
  /// move the same: the first of them is walked.
  void walk_each_once() {
    struct Walked {
      NamelessKernel kernel;
      std::unique_ptr<Schedule> alone;
      std::unique_ptr<Simulation> of;
    };
    std::map<std::string, Walked> known;
    for (std::size_t k = 0; k < s_.kernels.size(); ++k) {
      Walked one;
      std::string key = "kernel " + std::to_string(k);
      if (!no_subgraph(w_, s_.kernels[k].ops)) {
        one.kernel = nameless(s_.resolved.kernels[k], w_);
        key = one.kernel.key;
      } else {
        for (std::size_t t = 0; t < w_.tensors().size(); ++t) one.kernel.tensors.emplace_back(t);
        for (std::size_t o = 0; o < w_.operators().size(); ++o)
          one.kernel.operators.emplace_back(o);
      }
      const auto [at, first] = known.try_emplace(key);
      if (first) {
        at->second = {.kernel = one.kernel};
        at->second.alone =
            std::make_unique<Schedule>(Schedule{.workload = s_.workload,
                                                .machine = s_.machine,
                                                .kernels = {s_.kernels[k]},
                                                .resolved = {{s_.resolved.kernels[k]}}});
        at->second.of = std::make_unique<Simulation>(*at->second.alone, options_, share_);
        Simulation& of = *at->second.of;
        of.options_.progress = {};
        walk(*at->second.alone, [&of](const AccessEvent& e) { of.apply(e); });
      }
      add(*at->second.of, at->second.kernel, one.kernel);
      if (expected_ > 0)
        options_.progress(std::min(0.99, static_cast<double>(computes_) / expected_));
    }
  }

  /// What a kernel's walk has counted, as that of one which differs in names alone.
  void add(const Simulation& o, const NamelessKernel& its, const NamelessKernel& kernel) {
    for (const auto& [levels, from] : o.boundaries_) {
      const std::size_t to = intern(levels.first, levels.second);
      for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
        Moved& moved = bytes_[to][kernel.tensors[t].index()];
        moved.read += o.bytes_[from][its.tensors[t].index()].read;
        moved.written += o.bytes_[from][its.tensors[t].index()].written;
      }
    }
    for (std::size_t k = 0; k < kernel.operators.size(); ++k) {
      const std::int64_t more = o.operations_[its.operators[k].index()];
      std::int64_t& count = operations_[kernel.operators[k].index()];
      if (more >= 0) count = std::max<std::int64_t>(count, 0) + more;
    }
    computes_ += o.computes_;
  }

  /// Why every iteration has to be walked; empty: it does not.
  std::string why_no_skipping() const {
    if (!options_.skip) return "not asked for";
    if (options_.most_computes != 0) return "the walk may stop anywhere";
    if (!caches_) return "no hardware cache is touched";
    if (software_) return "software-managed buffers decide what touches the caches";
    if (options_.attribute) return "every miss is looked into";
    if (!options_.distances.empty() || options_.trace != nullptr || options_.occupancy != nullptr)
      return "every touch is told of";
    return Skipping::refusal(*map_, *caches_);
  }

  /// Loops in the order of the trees: an outer one stands before those within it.
  void set_up_loops() {
    for (const ScheduledKernel& k : s_.kernels)
      for (const ScheduleNode& n : k.nodes)
        if (n.kind == NodeKind::loop &&
            std::find(loops_.begin(), loops_.end(), n.loop) == loops_.end())
          loops_.push_back(n.loop);
    lows_.assign(loops_.size(), -1);
    caches_->attribution().expect_loops(loops_.size());
  }

  /// A loop has advanced where its range begins elsewhere than in the compute before that has it.
  void follow_loops(const AccessEvent& e) {
    const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(e.kernel)];
    const Operator& op = w_.op(e.op);
    for (std::size_t local = 0; local < op.loops.size(); ++local) {
      const auto at = std::find(loops_.begin(), loops_.end(), op.loops[local]);
      if (at == loops_.end()) continue;
      const std::int64_t low = (*e.ranges)[k.range_base[e.op.index()] + local].lo;
      std::int64_t& before = lows_[static_cast<std::size_t>(at - loops_.begin())];
      if (before >= 0 && before != low)
        caches_->attribution().advance(static_cast<std::size_t>(at - loops_.begin()));
      before = low;
    }
  }

  void set_up_caches() {
    cache_of_.assign(m_.levels.size(), -1);
    std::vector<CacheGeometry> geometry;
    for (std::size_t l = m_.levels.size(); l-- > 1;) {
      if (!is_cache(LevelId(l))) continue;
      cache_of_[l] = static_cast<int>(geometry.size());
      geometry.push_back(geometry_of(m_.levels[l]));
      const auto path = m_.path(m_.home(), LevelId(l));
      cache_boundary_.push_back(intern(path.back().first, path.back().second));
    }
    if (geometry.empty()) return;
    caches_ = std::make_unique<CacheHierarchy>(
        std::move(geometry), CacheOptions{.tensors = static_cast<int>(w_.tensors().size()),
                                          .cores = options_.cores,
                                          .dram = m_.level(m_.home()).rows,
                                          .seed = options_.seed,
                                          .attribute = options_.attribute});
    map_ = std::make_unique<AddressMap>(of_, options_.layout);
  }

  std::size_t intern(LevelId a, LevelId b) {
    const std::pair key(std::min(a, b), std::max(a, b));
    const auto [at, added] = boundaries_.try_emplace(key, bytes_.size());
    if (added) bytes_.push_back(std::vector<Moved>(w_.tensors().size()));
    return at->second;
  }

  /// The innermost cache on the way is asked; what lies further out is for it to ask.
  Route route(LevelId from, LevelId to) {
    Route r;
    for (const auto& [a, b] : m_.path(from, to)) {
      const LevelId inner = std::max(a, b);
      if (managed_by_software(inner)) r.boundaries.push_back(intern(a, b));
      for (const LevelId l : {a, b}) {
        const int cache = cache_of_[l.index()];
        if (cache >= 0 && (r.entry < 0 || cache < r.entry)) r.entry = cache;
      }
    }
    return r;
  }

  void apply(const AccessEvent& e) {
    if (spent()) return;
    if (options_.most_computes != 0 && stops_at(e)) {
      stopped_ = true;
      return;
    }
    if (caches_ && options_.cores > 1) caches_->on_core(static_cast<int>(e.block % options_.cores));
    if (software_ || e.kind == AccessKind::kernel_begin) contents_.apply(e);
    switch (e.kind) {
      case AccessKind::compute: {
        std::int64_t& count = operations_[e.op.index()];
        count = std::max<std::int64_t>(count, 0) + e.operations;
        ++computes_;
        ++walked_;
        if (expected_ > 0 && walked_ % kComputesTold == 0)
          options_.progress(std::min(0.99, static_cast<double>(computes_) / expected_));
        if (!loops_.empty()) follow_loops(e);
        return;
      }
      case AccessKind::read:
        if (in_caches(e)) touch(e, Touch::read);
        return;
      case AccessKind::gather:
        return gather(e);
      case AccessKind::update:
        if (in_caches(e)) touch(e, e.initialises ? Touch::write : Touch::update);
        return;
      case AccessKind::zero:
        return zero(e);
      default:
        return;
    }
  }

  const Buffer& buffer(int kernel, BufferId b) const {
    return s_.kernels[static_cast<std::size_t>(kernel)].buffer(b);
  }
  const BufferRoutes& routes(int kernel, BufferId b) const {
    return routes_[static_cast<std::size_t>(kernel)][b.index()];
  }

  /// Whether a compute's operand is not in a buffer of software's.
  bool in_caches(const AccessEvent& e) const {
    if (!caches_) return false;
    return !e.buffer.valid() || !managed_by_software(buffer(e.kernel, e.buffer).level);
  }

  enum class Touch : std::uint8_t { read, write, update };

  void touch_run(Touch how, TensorId t, std::int64_t address, std::int64_t bytes, int entry) {
    const auto at = static_cast<std::size_t>(entry);
    lines_ += 1 + bytes / 64;
    if (share_.count > 1) return touch_share(how, t, address, bytes, at);
    if (!options_.distances.empty() || options_.trace != nullptr)
      tell(how, t.value, address, bytes, entry);
    if (how == Touch::update)
      caches_->update(address, bytes, t.value, at);
    else
      caches_->range(address, bytes, how == Touch::write, t.value, at);
    if (options_.occupancy != nullptr) {
      const std::int64_t line = caches_->levels()[at].line.value;
      const std::int64_t lines = (address + bytes - 1) / line - address / line + 1;
      options_.occupancy->touched(how == Touch::update ? 2 * lines : lines, *caches_);
    }
  }

  /// What of a run lies in this share of the sets.
  void touch_share(Touch how, TensorId t, std::int64_t address, std::int64_t bytes,
                   std::size_t entry) {
    const std::int64_t end = address + bytes;
    std::int64_t round = address / share_.round * share_.round;
    for (; round < end; round += share_.round) {
      const std::int64_t first = std::max(address, round + share_.low);
      const std::int64_t last = std::min(end, round + share_.high);
      if (first >= last) continue;
      if (how == Touch::update)
        caches_->update(first, last - first, t.value, entry);
      else
        caches_->range(first, last - first, how == Touch::write, t.value, entry);
    }
  }

  /// Line by line, as the innermost cache is touched.
  void tell(Touch how, int tensor, std::int64_t address, std::int64_t bytes, int entry) {
    if (entry != 0)
      throw InputError({.field = "machine " + m_.name,
                        .problem = "is entered by software past its innermost cache, which a trace "
                                   "or a curve cannot say",
                        .accepted = "a machine of which hardware manages every level"});
    for (StackDistances* d : options_.distances) {
      if (how == Touch::update)
        d->update(address, bytes, tensor);
      else
        d->range(address, bytes, tensor);
    }
    if (options_.trace == nullptr) return;
    const std::int64_t line = caches_->levels().front().line.value;
    for (std::int64_t a = address; a < address + bytes;) {
      const std::int64_t next = std::min((a / line + 1) * line, address + bytes);
      if (how != Touch::write) options_.trace->access(a, next - a, false, tensor);
      if (how != Touch::read) options_.trace->access(a, next - a, true, tensor);
      a = next;
    }
  }

  void touch(const AccessEvent& e, Touch how) {
    touch_box(e.kernel, e.buffer, e.tensor, e.box, e.tiles, how, 0);
  }

  /// `box` of what lies behind a buffer, where it is: an on-chip intermediate's packed array or
  /// home.
  void touch_box(int kernel, BufferId b, TensorId t, const Box& box, const Box* tiles, Touch how,
                 int entry) {
    const auto run = [&](std::int64_t address, std::int64_t bytes) {
      touch_run(how, t, address, bytes, entry);
    };
    if (const BufferId array = map_->array_of(kernel, b); array.valid())
      map_->packed_runs(kernel, array, tiles[array.index()], box, run);
    else
      map_->runs(t, box, run);
  }

  /// A software-managed buffer's movement.
  void moved(const Movement& m) {
    const Buffer& b = buffer(m.kernel, m.buffer);
    const BufferRoutes& both = routes(m.kernel, m.buffer);
    const Route& r = m.inward ? both.in : both.out;
    cross(r, b.tensor, m.box.size(), m.inward);
    if (r.entry < 0) return;
    touch_box(m.kernel, b.outer, b.tensor, m.box, m.tiles, m.inward ? Touch::read : Touch::write,
              r.entry);
  }

  /// What is indexed by values comes from home each time, through the caches on the way.
  void gather(const AccessEvent& e) {
    const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(e.kernel)];
    const Route& in = gather_routes_[static_cast<std::size_t>(e.kernel)];
    cross(in, e.tensor, e.elements, true);
    const int entry = managed_by_software(k.level) ? in.entry : 0;
    if (!caches_ || entry < 0) return;
    gathers_.each(k, e, [&](const Box& box) {
      touch_box(e.kernel, BufferId(), e.tensor, box, e.tiles, Touch::read, entry);
    });
  }

  void cross(const Route& r, TensorId t, std::int64_t elements, bool inward) {
    if (share_.index != 0) return;  // the first share counts what no cache does
    const Tensor& tensor = w_.tensor(t);
    const std::int64_t bytes = elements * size_of(tensor.dtype);
    for (const std::size_t b : r.boundaries) {
      Moved& moved = bytes_[b][t.index()];
      (inward ? moved.read : moved.written) += bytes;
    }
  }

  /// A tensor that blocks add to is written whole first, the way that its stores go.
  void zero(const AccessEvent& e) {
    const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(e.kernel)];
    for (std::size_t b = 0; b < k.buffers.size(); ++b) {
      if (!k.buffers[b].atomic || k.buffers[b].tensor != e.tensor) continue;
      const Route& out = routes(e.kernel, BufferId(b)).out;
      cross(out, e.tensor, e.box.size(), false);
      const int entry = managed_by_software(k.buffers[b].level) ? out.entry : 0;
      if (caches_ && entry >= 0)
        touch_box(e.kernel, k.buffers[b].outer, e.tensor, e.box, e.tiles, Touch::write, entry);
    }
  }

  bool prefetches() const {
    return std::any_of(m_.levels.begin(), m_.levels.end(),
                       [](const Level& l) { return !l.behaviour.prefetch.empty(); });
  }

  Traffic traffic() const {
    Traffic t{
        .source = Source::simulated,
        .by = caches_ ? "cache" : "scratchpad",
        .machine = m_.name,
        .counts = {
            .write_allocate = caches_ != nullptr, .write_back = true, .prefetch = prefetches()}};
    std::map<std::size_t, std::vector<CacheCount>> by_cache;  // by boundary
    for (std::size_t c = 0; c < cache_boundary_.size(); ++c)
      by_cache[cache_boundary_[c]] = caches_->counts(c);
    for (const auto& [levels, index] : boundaries_) {
      const auto cache = by_cache.find(index);
      for (std::size_t i = 0; i < w_.tensors().size(); ++i) {
        TrafficEntry e{.tensor = w_.tensors()[i].name,
                       .boundary = m_.boundary(levels.first, levels.second),
                       .read = Bytes(bytes_[index][i].read),
                       .written = Bytes(bytes_[index][i].written)};
        if (cache != by_cache.end()) {
          const CacheCount& c = cache->second[i];
          e.read += c.read;
          e.written += c.written;
          e.hits = c.hits;
          e.misses = c.misses;
          e.resident_dirty = c.resident_dirty;
        }
        if (share_.count > 1 || !is_zero(e))  // shares are added up entry by entry
          t.entries.push_back(std::move(e));
      }
    }
    t.memory = memory_use(of_);
    for (std::size_t o = 0; o < operations_.size(); ++o)
      if (operations_[o] >= 0) t.operations[w_.operators()[o].name] = Operations(operations_[o]);
    return t;
  }

  const Schedule& of_;              ///< as it was given: says where tensors lie
  std::optional<Schedule> inside_;  ///< with loops within tiles that are larger than the cache
  const Schedule& s_;               ///< what is walked
  SimulateOptions options_;
  SetShare share_;
  const Workload& w_;
  const Machine& m_;
  GatherWalk gathers_;
  BufferContents contents_;
  bool software_ = false;
  std::map<std::pair<LevelId, LevelId>, std::size_t> boundaries_;  // (outer, inner), outer first
  std::vector<std::vector<Moved>> bytes_;                          // by boundary, tensor
  std::vector<std::vector<BufferRoutes>> routes_;                  // by kernel, buffer
  std::vector<Route> gather_routes_;      // by kernel: what is indexed by values, on its way in
  std::vector<std::int64_t> operations_;  // by operator; -1: never ran
  // Caches, if the machine has any.
  std::vector<int> cache_of_;                // by level; -1: no cache
  std::vector<std::size_t> cache_boundary_;  // by cache
  std::unique_ptr<CacheHierarchy> caches_;
  std::unique_ptr<AddressMap> map_;
  std::unique_ptr<Skipping> skipping_;
  std::int64_t computes_ = 0;  // passed over ones too
  std::int64_t walked_ = 0;
  static constexpr std::int64_t kComputesTold = 1024;
  double expected_ = 0;     // computes of the whole walk, about; 0: nobody is told
  std::int64_t lines_ = 0;  // touched, about
  bool stopped_ = false;    // by most_computes
  Stop stop_;
  // Attribution.
  std::vector<LoopId> loops_;       // outermost first
  std::vector<std::int64_t> lows_;  // by loop: where its range began last; -1: not met
};

}  // namespace

Traffic simulate(const Schedule& schedule, const SimulateOptions& options) {
  return simulate_in_detail(schedule, options).traffic;
}

Simulated simulate_in_detail(const Schedule& schedule, const SimulateOptions& options) {
  if (options.threads <= 1) return Simulation(schedule, options).run();
  return simulate_by_sets(schedule, options, [&](const SetShare& share) {
    return Simulation(schedule, options, share).run();
  });
}

}  // namespace tilewright
