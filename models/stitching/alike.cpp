#include "models/stitching/alike.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/effort.h"
#include "core/plan/names.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"

namespace tilewright::stitching {
namespace {

/// Positions of the values in ascending order.
std::vector<std::size_t> order_of(const std::vector<int>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  return order;
}

int in_place_of(int name, const std::vector<int>& from, const std::vector<int>& to) {
  const auto at = std::ranges::find(from, name);
  TW_CHECK(at != from.end(), "a kernel names what is not its pattern's");
  return to[static_cast<std::size_t>(at - from.begin())];
}

}  // namespace

/// As subgraph() orders them.
NamesInOrder names_in_order(const Graph& g, const Pattern& p) {
  NamesInOrder out{.vertices = p, .loops = {}, .order = {}};
  std::ranges::sort(out.vertices, {}, [&](int v) { return g.vertex(v).op; });
  for (int v : out.vertices)
    for (LoopId l : g.workload().op(g.vertex(v).op).loops) {
      const int loop = static_cast<int>(l.index());
      if (std::ranges::find(out.loops, loop) == out.loops.end()) out.loops.push_back(loop);
    }
  out.order = order_of(out.vertices);
  std::ranges::copy(order_of(out.loops), std::back_inserter(out.order));
  return out;
}

std::string text_without_names(const Graph& g, const Pattern& p) {
  auto& [last, text] = g.priced().text;
  if (last == p) return text;
  last = p;
  text.clear();
  std::vector<OpId> ops;
  for (int v : p) ops.push_back(g.vertex(v).op);
  if (no_subgraph(g.workload(), ops)) return text;
  return text = to_yaml(without_names(subgraph(g.workload(), ops)));
}

Stitched renamed(Stitched s, const NamesInOrder& from, const NamesInOrder& to) {
  const auto vertex = [&](int& v) { v = in_place_of(v, from.vertices, to.vertices); };
  std::ranges::for_each(s.component.vertices, vertex);
  std::ranges::for_each(s.component.partial, vertex);
  LoopSet rows;
  for (std::size_t i = 0; i < from.loops.size(); ++i)
    if (s.component.rows.has(from.loops[i])) rows.add(static_cast<std::size_t>(to.loops[i]));
  s.component.rows = rows;
  if (s.component.along >= 0)
    s.component.along = in_place_of(s.component.along, from.loops, to.loops);
  for (Group& group : s.groups) {
    vertex(group.root);
    std::ranges::for_each(group.vertices, vertex);
  }
  return s;
}

Result<StitchedKernel> Alike::kernel(const Graph& g, const Pattern& p, const Make& make) {
  std::string text = text_without_names(g, p);
  if (text.empty()) return make(g, p);
  NamesInOrder names = names_in_order(g, p);
  const auto at = known_.find(text);
  if (at == known_.end()) {
    Result<StitchedKernel> made = make(g, p);
    known_.emplace(std::move(text), Known{std::move(names), made});
    return made;
  }
  const auto& [of, kernel] = at->second;
  // A reason names operators.
  if (!kernel || !kernel->without_units.empty() || of.order != names.order) return make(g, p);
  StitchedKernel out = *kernel;
  for (Stitched& s : out.parts) s = renamed(std::move(s), of, names);
  return out;
}

namespace {

/// Devices whose machines are told apart by what they say.
bool same(const Device& a, Device b) {
  const bool machines = a.machine == b.machine ||
                        (a.machine != nullptr && b.machine != nullptr && *a.machine == *b.machine);
  b.machine = a.machine;
  return machines && a == b;
}

/// Parts are kept for a few devices, and of each so many.
constexpr std::size_t kDevices = 8, kParts = 4096;

/// What is known of parts of this text. Of the bytes that are used again only what stays counts.
std::shared_ptr<AlikeDemands> known_of(Device d, const std::string& text) {
  d.working_set = 0;
  using Parts = std::map<std::string, std::shared_ptr<AlikeDemands>>;
  static std::mutex mutex;
  static std::vector<std::pair<Device, Parts>> devices;
  const std::lock_guard lock(mutex);
  auto at = std::ranges::find_if(devices, [&](const auto& one) { return same(one.first, d); });
  if (at == devices.end()) {
    if (devices.size() == kDevices) devices.erase(devices.begin());
    at = devices.insert(devices.end(), {std::move(d), {}});
  }
  Parts& parts = at->second;
  if (parts.size() == kParts && !parts.contains(text)) parts.clear();
  std::shared_ptr<AlikeDemands>& known = parts[text];
  if (known == nullptr) known = std::make_shared<AlikeDemands>();
  return known;
}

}  // namespace

NamelessPart NamelessPart::of(const Graph& g, const Device& d, const std::vector<int>& vertices) {
  std::vector<OpId> ops;
  for (int v : vertices) ops.push_back(g.vertex(v).op);
  if (no_subgraph(g.workload(), ops)) return {};
  NamelessPart out{.part = std::make_shared<const Workload>(subgraph(g.workload(), ops))};
  const Workload nameless = tilewright::without_names(*out.part);
  out.without_names = std::make_shared<const Names>(*out.part, nameless);
  out.known = known_of(d, to_yaml(nameless));
  return out;
}

AskedSchedule NamelessPart::demand(const BoundTree& tree,
                                   const std::function<std::optional<Demand>()>& make) const {
  Kernel k = without_names->rename({.tree = tree.tree, .pins = tree.pins});
  std::string text = text_of(BoundTree{.tree = std::move(k.tree), .pins = std::move(k.pins)});
  {
    const std::lock_guard lock(known->mutex);
    if (const auto at = known->of_tree.find(text); at != known->of_tree.end()) return at->second;
  }
  AskedSchedule made{.tree = std::hash<std::string>()(text)};
  {
    const Effort counted(std::numeric_limits<std::int64_t>::max());
    made.demand = make();
    made.effort = std::numeric_limits<std::int64_t>::max() - Effort::remaining();
  }
  const std::lock_guard lock(known->mutex);
  known->of_tree.try_emplace(std::move(text), made);
  return made;
}

namespace {

/// A kernel, by whom it was stitched first, and what it took.
struct StitchedOnce {
  NamesInOrder names;
  Result<StitchedKernel> kernel = Reason{};
  std::string named = {};   ///< the operators with names, where reasons are given
  std::int64_t effort = 0;  ///< without its schedules'
  EffortOfSchedules asked;
};

/// Of one device and one choice of options.
struct StitchedKernels {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const StitchedOnce>> known;
};

constexpr std::size_t kKernels = 8192;

std::shared_ptr<StitchedKernels> kernels_of(Device d, const Options& o) {
  struct Of {
    Device device;
    Options options;
    std::shared_ptr<StitchedKernels> kernels;
  };
  static std::mutex mutex;
  static std::vector<Of> all;
  d.working_set = 0;
  const std::lock_guard lock(mutex);
  auto at = std::ranges::find_if(
      all, [&](const Of& one) { return one.options == o && same(one.device, d); });
  if (at == all.end()) {
    if (all.size() == kDevices) all.erase(all.begin());
    at = all.insert(all.end(), {std::move(d), o, std::make_shared<StitchedKernels>()});
  }
  return at->kernels;
}

std::string text_with_names(const Graph& g, const Pattern& p) {
  std::vector<OpId> ops;
  for (int v : p) ops.push_back(g.vertex(v).op);
  return to_yaml(subgraph(g.workload(), ops));
}

std::vector<int> renamed(std::vector<int> vertices, const NamesInOrder& from,
                         const NamesInOrder& to) {
  for (int& v : vertices) v = in_place_of(v, from.vertices, to.vertices);
  return vertices;
}

}  // namespace

Result<StitchedKernel> stitched_like(const Graph& g, const Device& d, const Pattern& p,
                                     const Options& o,
                                     const std::function<Result<StitchedKernel>()>& make) {
  std::string key = text_without_names(g, p);
  if (key.empty()) return make();
  NamesInOrder names = names_in_order(g, p);
  for (const int v : p) key += name_of(g.vertex(v).kind).front();
  for (const std::size_t i : names.order) key += ' ' + std::to_string(i);
  const std::shared_ptr<StitchedKernels> kernels = kernels_of(d, o);
  Graph::Priced& priced = g.priced_on(d.machine);
  std::shared_ptr<const StitchedOnce> known;
  {
    const std::lock_guard lock(kernels->mutex);
    if (const auto at = kernels->known.find(key); at != kernels->known.end()) known = at->second;
  }
  // A reason names operators.
  if (known != nullptr && (known->named.empty() || known->named == text_with_names(g, p))) {
    Effort::spend(known->effort);
    for (const auto& [vertices, schedules] : known->asked) {
      const std::vector<int> own = renamed(vertices, known->names, names);
      for (const auto& [tree, effort] : schedules) priced.spend(own, tree, effort);
    }
    if (!known->kernel) return known->kernel;
    StitchedKernel out = *known->kernel;
    for (Stitched& s : out.parts) s = renamed(std::move(s), known->names, names);
    return out;
  }
  auto made = std::make_shared<StitchedOnce>(StitchedOnce{.names = std::move(names)});
  const std::int64_t before = Effort::remaining() + priced.effort;
  struct Listing {
    Graph::Priced& priced;
    EffortOfSchedules* outer;
    ~Listing() { priced.listed = outer; }
  } const listing{priced, std::exchange(priced.listed, &made->asked)};
  Result<StitchedKernel> kernel = make();
  if (!kernel || !kernel->without_units.empty()) made->named = text_with_names(g, p);
  made->effort = before - Effort::remaining() - priced.effort;
  made->kernel = kernel;
  const std::lock_guard lock(kernels->mutex);
  if (kernels->known.size() == kKernels) kernels->known.clear();
  kernels->known.try_emplace(std::move(key), std::move(made));
  return kernel;
}

}  // namespace tilewright::stitching
