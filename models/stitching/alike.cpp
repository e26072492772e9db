#include "models/stitching/alike.h"

#include <algorithm>
#include <numeric>

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
  std::vector<OpId> ops;
  for (int v : p) ops.push_back(g.vertex(v).op);
  if (no_subgraph(g.workload(), ops)) return "";
  return to_yaml(without_names(subgraph(g.workload(), ops)));
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

std::optional<Demand> NamelessPart::demand(
    const BoundTree& tree, const std::function<std::optional<Demand>()>& make) const {
  Kernel k = without_names->rename({.tree = tree.tree, .pins = tree.pins});
  std::string text = text_of(BoundTree{.tree = std::move(k.tree), .pins = std::move(k.pins)});
  std::optional<AlikeDemands::Known> found;
  {
    const std::lock_guard lock(known->mutex);
    if (const auto at = known->of_tree.find(text); at != known->of_tree.end()) found = at->second;
  }
  if (found) {
    Effort::spend(found->effort);
    return found->demand;
  }
  const std::int64_t before = Effort::remaining();
  const std::optional<Demand> made = make();
  const std::int64_t effort = before - Effort::remaining();
  const std::lock_guard lock(known->mutex);
  known->of_tree.try_emplace(std::move(text), AlikeDemands::Known{made, effort});
  return made;
}

}  // namespace tilewright::stitching
