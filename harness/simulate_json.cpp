#include "harness/simulate_json.h"

#include <algorithm>
#include <set>

namespace tilewright::harness {

using nlohmann::ordered_json;

ordered_json blame_json(const std::vector<Blame>& blame, const std::vector<std::string>& loops,
                        const std::vector<std::string>& tensors) {
  ordered_json all = ordered_json::array();
  for (const Blame& b : blame) {
    ordered_json one{{"boundary", b.boundary}, {"tensors", ordered_json::array()}};
    ordered_json evictions = ordered_json::object();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const MissKinds& m = b.level.misses[t];
      ordered_json by_loop = ordered_json::object();
      for (std::size_t l = 0; l < b.level.by_loop.size(); ++l)
        if (b.level.by_loop[l][t] != 0)
          by_loop[l < loops.size() ? loops[l] : "none"] = b.level.by_loop[l][t];
      if (m.total() != 0)
        one["tensors"].push_back({{"tensor", tensors[t]},
                                  {"compulsory", m.compulsory},
                                  {"capacity", m.capacity},
                                  {"conflict", m.conflict},
                                  {"by_loop", std::move(by_loop)}});
      ordered_json whose = ordered_json::object();
      for (std::size_t v = 0; v < tensors.size(); ++v)
        if (b.level.evictions[t][v] != 0) whose[tensors[v]] = b.level.evictions[t][v];
      if (!whose.empty()) evictions[tensors[t]] = std::move(whose);
    }
    one["evictions"] = std::move(evictions);
    all.push_back(std::move(one));
  }
  return all;
}

ordered_json behaviour_json(
    const std::vector<std::pair<std::string, std::vector<CacheCount>>>& caches) {
  ordered_json all = ordered_json::array();
  for (const auto& [boundary, counts] : caches) {
    CacheCount sum;
    for (const CacheCount& c : counts) {
      sum.handed += c.handed;
      sum.prefetches += c.prefetches;
      sum.useful_prefetches += c.useful_prefetches;
      sum.invalidations += c.invalidations;
    }
    if (sum == CacheCount{}) continue;
    all.push_back({{"boundary", boundary},
                   {"handed_bytes", sum.handed.value},
                   {"prefetches", sum.prefetches},
                   {"useful_prefetches", sum.useful_prefetches},
                   {"invalidations", sum.invalidations}});
  }
  return all;
}

namespace {

ordered_json box_json(const Box& box) {
  ordered_json all = ordered_json::array();
  for (const Interval& d : box) all.push_back({d.lo, d.hi});
  return all;
}

ordered_json cache_json(const Level& level, const std::vector<std::vector<CacheLine>>& sets,
                        const Workload& w) {
  const std::int64_t lines = level.capacity.value / geometry_of(level).line.value;
  ordered_json by_tensor = ordered_json::object(), all = ordered_json::array();
  for (const std::vector<CacheLine>& set : sets) {
    ordered_json ways = ordered_json::array();
    for (const CacheLine& l : set) {
      const std::string& name = w.tensors()[static_cast<std::size_t>(l.tensor)].name;
      by_tensor[name] = by_tensor.value(name, 0) + 1;
      ways.push_back({{"tensor", name}, {"dirty", l.dirty}});
    }
    all.push_back(std::move(ways));
  }
  ordered_json json{{"level", level.name}, {"lines", lines}, {"by_tensor", std::move(by_tensor)}};
  if (lines <= kLinesShown) json["sets"] = std::move(all);
  return json;
}

}  // namespace

ordered_json stop_json(const Simulated& s, const Schedule& schedule) {
  const Workload& w = *schedule.workload;
  const Machine& m = *schedule.machine;
  ordered_json json{{"computes", s.stop.computes},
                    {"finished", s.finished},
                    {"operator", s.stop.op.valid() ? ordered_json(w.op(s.stop.op).name) : nullptr},
                    {"touched", ordered_json::array()},
                    {"held", ordered_json::array()}};
  for (const auto& [t, box] : s.stop.touched) {
    ordered_json shape = ordered_json::array();
    for (const std::int64_t extent : w.tensor(t).shape) shape.push_back(extent);
    json["touched"].push_back(
        {{"tensor", w.tensor(t).name}, {"shape", std::move(shape)}, {"box", box_json(box)}});
  }
  std::size_t cache = 0;
  for (std::size_t l = m.levels.size(); l-- > 1;) {
    const Level& level = m.levels[l];
    if (level.managed != Managed::software) {
      json["held"].push_back(cache_json(level, s.contents[cache++], w));
      continue;
    }
    ordered_json buffers = ordered_json::array();
    const ScheduledKernel& k = schedule.kernels[static_cast<std::size_t>(s.stop.kernel)];
    for (const BufferContents::Held& h : s.stop.buffers)
      if (k.buffer(h.buffer).level == LevelId(l))
        buffers.push_back({{"tensor", w.tensor(k.buffer(h.buffer).tensor).name},
                           {"box", box_json(h.box)},
                           {"dirty", h.changed}});
    json["held"].push_back({{"level", level.name}, {"buffers", std::move(buffers)}});
  }
  return json;
}

ordered_json skipped_json(const Skipped& s) {
  if (!s.why_none.empty()) return {{"none", s.why_none}};
  ordered_json loops = ordered_json::array();
  for (const Skipped::OfLoop& l : s.loops)
    loops.push_back({{"kernel", l.kernel}, {"loop", l.loop}, {"iterations", l.iterations}});
  return {{"computes", s.computes}, {"of_computes", s.of_computes}, {"loops", std::move(loops)}};
}

ordered_json dram_json(const DramCount& d) {
  return {{"reads", d.reads},
          {"writes", d.writes},
          {"row_hits", d.row_hits},
          {"row_misses", d.row_misses},
          {"row_conflicts", d.row_conflicts}};
}

ordered_json gpu_json(const gpu::Simulated& s, const gpu::Options& how) {
  ordered_json kernels = ordered_json::array();
  bool exact = true;
  for (const gpu::KernelRun& k : s.kernels) {
    exact = exact && k.simulated == k.blocks;
    kernels.push_back({{"blocks", k.blocks},
                       {"blocks_per_sm", k.blocks_per_sm},
                       {"resident_blocks", k.resident},
                       {"walked_blocks", k.walked},
                       {"simulated_blocks", k.simulated}});
  }
  return {
      {"sms", s.sms},         {"partitions", s.partitions}, {"schedule", gpu::name_of(how.order)},
      {"jitter", how.jitter}, {"approximate", !exact},      {"kernels", std::move(kernels)}};
}

namespace {

std::int64_t sets_of(const CacheGeometry& g) {
  return g.ways == 0 ? 1 : g.capacity.value / (g.line.value * g.ways);
}

std::vector<DistanceCounts> by_tensor(const StackDistances& s) {
  std::vector<DistanceCounts> all;
  for (int t = 0; t < s.tensors(); ++t) all.push_back(s.counts(t));
  return all;
}

ordered_json points(const StackDistances& s, const std::vector<std::string>& tensors, bool ways) {
  const std::vector<DistanceCounts> counts = by_tensor(s);
  std::size_t deepest = 0;
  for (const DistanceCounts& c : counts) deepest = std::max(deepest, c.at.size());
  ordered_json all = ordered_json::array();
  std::vector<std::int64_t> sizes{1, 2, 3};
  while (sizes.back() < static_cast<std::int64_t>(deepest))
    sizes.push_back(2 * sizes[sizes.size() - 2]);
  for (const std::int64_t n : sizes) {
    ordered_json point;
    if (ways) point["ways"] = n;
    point["capacity_bytes"] = n * s.sets() * s.line().value;
    ordered_json misses = ordered_json::object();
    for (std::size_t t = 0; t < tensors.size(); ++t)
      if (counts[t].touches() != 0) misses[tensors[t]] = counts[t].misses(n);
    point["misses"] = std::move(misses);
    all.push_back(std::move(point));
    if (n >= static_cast<std::int64_t>(deepest)) break;
  }
  return all;
}

}  // namespace

Curves::Curves(const CacheGeometry& innermost, int tensors)
    : associative_(innermost.line, 1, tensors),
      sets_(innermost.line, sets_of(innermost), tensors) {}

ordered_json Curves::json(const std::vector<std::string>& tensors) const {
  ordered_json touches = ordered_json::object();
  for (int t = 0; t < associative_.tensors(); ++t)
    if (const std::int64_t n = associative_.counts(t).touches(); n != 0)
      touches[tensors[static_cast<std::size_t>(t)]] = n;
  return {{"line_bytes", associative_.line().value},
          {"touches", std::move(touches)},
          {"fully_associative", points(associative_, tensors, false)},
          {"sets", sets_.sets()},
          {"by_ways", points(sets_, tensors, true)}};
}

std::string Curves::csv(const std::vector<std::string>& tensors) const {
  const std::vector<DistanceCounts> counts = by_tensor(associative_);
  std::string text = "capacity_bytes";
  for (const std::string& t : tensors) text += "," + t;
  text += "\n";
  std::set<std::size_t> sizes{1};
  for (const DistanceCounts& c : counts)
    for (std::size_t d = 1; d < c.at.size(); ++d)
      if (c.at[d] != 0) sizes.insert(d + 1);
  std::vector<std::int64_t> misses;  // by tensor, of the size at hand
  std::size_t before = 0;
  for (const DistanceCounts& c : counts) misses.push_back(c.touches());
  for (const std::size_t lines : sizes) {
    for (std::size_t t = 0; t < counts.size(); ++t)
      for (std::size_t d = before; d < std::min(lines, counts[t].at.size()); ++d)
        misses[t] -= counts[t].at[d];
    before = lines;
    text += std::to_string(static_cast<std::int64_t>(lines) * associative_.line().value);
    for (const std::int64_t m : misses) text += "," + std::to_string(m);
    text += "\n";
  }
  return text;
}

CachesOf caches_of(const Machine& m, std::string_view option) {
  CachesOf caches;
  for (std::size_t l = m.levels.size(); l-- > 1;) {
    if (m.levels[l].managed == Managed::software) continue;
    caches.levels.push_back(geometry_of(m.levels[l]));
    const auto path = m.path(m.home(), LevelId(l));
    caches.boundaries.push_back(m.boundary(path.back().first, path.back().second));
  }
  if (caches.levels.empty())
    throw InputError({.where = std::string(option),
                      .value = m.name,
                      .problem = "has no hardware cache to touch",
                      .accepted = "a machine with one, such as cache:48K/12,1M/16"});
  return caches;
}

}  // namespace tilewright::harness
