// Kernels of parts, what they take, and a choice among all that could be.
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <set>

#include "core/base/format.h"
#include "models/stitching/alike.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {

StitchedKernel put_together(const Graph& g, const Device& d, const Options& o,
                            std::vector<Stitched> parts, std::int64_t threads) {
  StitchedKernel k{.parts = std::move(parts), .threads = threads};
  std::int64_t registers = 0, shared = 0;
  double cycles = 0;
  Bytes added;
  for (const Stitched& s : k.parts) {
    added += Bytes(s.added_bytes);
    const std::int64_t warps = s.blocks * (threads / kWarp);
    registers = std::max(registers, s.registers);
    shared = std::max(shared, s.shared_bytes);
    k.warps += warps;
    cycles += static_cast<double>(warps) * s.cycles_per_warp;
  }
  k.occupancy = occupancy(d, registers, shared, threads);
  if (k.occupancy == 0) return k;
  k.waves = std::ceil(static_cast<double>(k.warps) / static_cast<double>(k.occupancy));
  k.cycles = k.waves * cycles / static_cast<double>(k.warps);  // a pack's warps: their mean
  k.seconds = k.cycles / d.clock_hz;
  double bytes = 0;  // each part reads for itself
  for (const Stitched& s : k.parts) bytes += memory_bytes(g, s.component);
  if (o.bandwidth || o.latency == Latency::overlap)
    k.seconds = std::max(k.seconds, bytes / d.dram_bytes_per_second + added_seconds(d, added));
  if (std::ranges::any_of(k.parts, [](const Stitched& s) { return s.demand.blocks == 0; }))
    return k;
  std::vector<Demand> demands;
  for (const Stitched& s : k.parts) demands.push_back(s.demand);
  k.overlap = overlap(d, demands, resident_blocks(d, largest_of(demands), shared), bytes);
  if (o.latency == Latency::overlap) k.seconds = k.overlap.seconds;
  return k;
}

double price_of(const StitchedKernel& k, const Options& o) {
  return o.latency == Latency::overlap ? k.seconds : k.cycles;
}

bool StitchedKernel::written() const { return std::ranges::all_of(parts, &Stitched::written); }

Bytes compulsory_of(const Graph& g, std::span<const int> pattern) {
  const Workload& w = g.workload();
  std::vector<OpId> sorted;
  for (int v : pattern) sorted.push_back(g.vertex(v).op);
  std::ranges::sort(sorted);
  const auto own = [&](OpId op) { return op.valid() && std::ranges::binary_search(sorted, op); };
  std::map<TensorId, std::vector<OpId>> reads;  // by whom
  Bytes sum;
  for (int v : pattern) {
    const OpId id = g.vertex(v).op;
    for (const Access& a : w.op(id).inputs) {
      if (own(w.producer(a.tensor))) continue;
      std::vector<OpId>& readers = reads[a.tensor];
      if (readers.empty() || readers.back() != id) readers.push_back(id);
    }
    for (const Output& o : w.op(id).outputs) {
      const TensorId t = o.target.tensor;
      const auto readers = w.consumers(t);
      if (std::ranges::any_of(readers, [&](OpId r) { return !own(r); }) || w.is_output(t))
        sum += w.tensor(t).bytes();
    }
  }
  for (const auto& [t, readers] : reads) sum += bytes_read(w, t, readers);
  return sum;
}

namespace {

/// The schedules of a pattern whose parts are these, each tree once.
void rank(const Graph& g, const Device& d, const Options& o, const std::vector<Component>& parts,
          std::vector<StitchedKernel>& all) {
  std::set<std::string> trees;
  for (std::int64_t threads : threads_of(o)) {
    std::vector<Stitched> best;
    std::int64_t tried = 0;
    for (const Component& c : parts)
      if (auto s = Part(g, d, c, o).best(threads, tried)) best.push_back(std::move(*s));
    if (best.size() != parts.size()) continue;
    const auto work = [&](const Stitched& s) {
      return static_cast<double>(s.blocks) * s.cycles_per_warp;
    };
    const auto longest =
        static_cast<std::size_t>(std::ranges::max_element(best, {}, work) - best.begin());
    Part(g, d, parts[longest], o).each(threads, [&](const Stitched& s) {
      const auto tree = bound_tree(g, d, s, threads);
      if (!tree || !trees.insert(to_text(tree->tree)).second) return;
      std::vector<Stitched> together = best;
      together[longest] = s;
      StitchedKernel k = put_together(g, d, o, std::move(together), threads);
      if (k.occupancy > 0) all.push_back(std::move(k));
    });
  }
}

}  // namespace

std::vector<StitchedKernel> ranked(const Graph& g, const Device& d, const Pattern& p,
                                   const Options& asked) {
  Options o = asked;
  o.written = true;
  std::vector<StitchedKernel> all;
  for (const std::vector<Component>& parts : packings_of(g, p, o.most_operators))
    rank(g, d, o, parts, all);
  std::ranges::stable_sort(all, {}, [&o](const StitchedKernel& k) { return price_of(k, o); });
  // First the one that stitch() takes. Among ties it depends on all numbers of threads, also of
  // those whose trees are here by another's.
  if (const auto taken = stitch(g, d, p, o)) {
    const auto same = std::ranges::find_if(all, [&](const StitchedKernel& k) {
      return k.overlap == taken->overlap && k.cycles == taken->cycles;
    });
    if (same != all.end()) std::rotate(all.begin(), same, same + 1);
  }
  for (StitchedKernel& k : all) k.schedules = static_cast<std::int64_t>(all.size());
  return all;
}

std::vector<StitchedKernel> choices(const Graph& g, const Device& d, const Pattern& p,
                                    const Options& o) {
  std::vector<StitchedKernel> all = ranked(g, d, p, o);
  if (auto last = without_units(g, d, p, o, "the target takes none of its schedules with units"))
    all.push_back(std::move(last).value());
  return all;
}

std::vector<Pattern> launch_order(const Graph& g, std::vector<Pattern> kernels) {
  std::ranges::sort(kernels);
  std::vector<std::size_t> kernel_of(static_cast<std::size_t>(g.size()));
  for (std::size_t k = 0; k < kernels.size(); ++k)
    for (int v : kernels[k]) kernel_of[static_cast<std::size_t>(v)] = k;
  std::vector<int> waiting(kernels.size());
  std::vector<std::vector<std::size_t>> readers(kernels.size());
  for (const Edge& e : g.edges()) {
    const std::size_t a = kernel_of[static_cast<std::size_t>(e.from)];
    const std::size_t b = kernel_of[static_cast<std::size_t>(e.to)];
    if (a == b) continue;
    readers[a].push_back(b);
    ++waiting[b];
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t k = 0; k < kernels.size(); ++k)
    if (waiting[k] == 0) ready.push(k);
  std::vector<Pattern> order;
  while (!ready.empty()) {
    const std::size_t k = ready.top();
    ready.pop();
    order.push_back(kernels[k]);
    for (std::size_t b : readers[k])
      if (--waiting[b] == 0) ready.push(b);
  }
  return order;
}

Result<PlanPrice> price(const Graph& g, const Device& d, std::span<const Pattern> patterns,
                        const Options& o, Known* known) {
  Known own;
  Known& stitched = known != nullptr ? *known : own;
  PlanPrice out;
  std::vector<bool> taken(static_cast<std::size_t>(g.size()));
  std::vector<Pattern> all;
  Alike alike;
  const auto stitched_of = [&](const Pattern& pattern) -> const Result<StitchedKernel>& {
    auto it = stitched.find(pattern);
    if (it == stitched.end())
      it = stitched
               .emplace(pattern, alike.kernel(g, pattern,
                                              [&](const Graph& of, const Pattern& p) {
                                                return stitch(of, d, p, o);
                                              }))
               .first;
    return it->second;
  };
  for (const Pattern& p : patterns) {
    if (p.size() < 2 || !stitched_of(p)) continue;
    all.push_back(p);
    for (int v : p) taken[static_cast<std::size_t>(v)] = true;
  }
  for (int v = 0; v < g.size(); ++v)
    if (!taken[static_cast<std::size_t>(v)]) all.push_back({v});
  for (Pattern& pattern : launch_order(g, std::move(all))) {
    if (g.vertex(pattern.front()).kind == Kind::product) {
      out.kernels.emplace_back();
    } else {
      const Result<StitchedKernel>& k = stitched_of(pattern);
      if (!k) return Reason{k.reason()};
      out.seconds += k->seconds;
      out.kernels.push_back(*k);
    }
    out.patterns.push_back(std::move(pattern));
  }
  return out;
}

std::vector<Pattern> parts_of(const PlanPrice& p) {
  std::vector<Pattern> out;
  for (std::size_t k = 0; k < p.kernels.size(); ++k) {
    if (p.kernels[k].parts.empty()) out.push_back(p.patterns[k]);
    for (const Stitched& s : p.kernels[k].parts) out.push_back(s.component.vertices);
  }
  return out;
}

Result<PlanPrice> with_schedule(const Graph& g, const Device& d, PlanPrice p, const Options& o) {
  if (o.schedule == 1) return p;
  const auto longest = std::ranges::max_element(p.kernels, {}, &StitchedKernel::seconds);
  if (longest == p.kernels.end() || longest->parts.empty())
    return Reason{"no kernel of the plan is stitched"};
  const auto at = static_cast<std::size_t>(longest - p.kernels.begin());
  std::vector<StitchedKernel> all = ranked(g, d, p.patterns[at], o);
  if (std::cmp_greater(o.schedule, all.size()))
    return Reason{formatted("schedule={}: kernel {} has {} schedules that a plan can say",
                            o.schedule, at + 1, all.size())};
  p.seconds -= longest->seconds;
  *longest = std::move(all[static_cast<std::size_t>(o.schedule - 1)]);
  p.seconds += longest->seconds;
  return p;
}

}  // namespace tilewright::stitching
