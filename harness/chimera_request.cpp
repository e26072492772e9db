#include "harness/chimera_request.h"

#include <algorithm>
#include <map>

#include "harness/registry.h"

namespace tilewright::harness {
namespace {

/// The tree without loops of one trip, sequences spliced: what two trees that mean the same share.
/// `bare`: without loads, stores, barriers and bindings either, of which an order says nothing.
void flatten(const Workload& w, const Node& node, bool bare, std::vector<Node>& into) {
  if (node.kind == Node::Kind::sequence) {
    for (const Node& child : node.children) flatten(w, child, bare, into);
    return;
  }
  if (bare && node.kind != Node::Kind::loop && node.kind != Node::Kind::compute) return;
  if (node.kind == Node::Kind::loop) {
    const auto loop = w.find_loop(node.name);
    const bool once =
        loop && node.step >= w.loop(*loop).extent && (bare || node.binding == Binding::seq);
    std::vector<Node> body;
    for (const Node& child : node.children) flatten(w, child, bare, body);
    if (once) {
      into.insert(into.end(), body.begin(), body.end());
    } else {
      Node copy = node;
      if (bare) copy.binding = Binding::seq;
      copy.children = {sequence(std::move(body))};
      into.push_back(std::move(copy));
    }
    return;
  }
  into.push_back(node);
}

Node normal(const Workload& w, const Node& tree, bool bare) {
  std::vector<Node> parts;
  flatten(w, tree, bare, parts);
  return sequence(std::move(parts));
}

/// The step of every loop of a kernel; a reason where a loop has two.
Result<chimera::Tiles> steps_of(const Workload& w, const ScheduledKernel& kernel) {
  chimera::Tiles tiles;
  for (std::size_t i = 0; i < w.loops().size(); ++i)
    tiles.push_back(w.is_batch(LoopId(i)) ? 1 : w.loops()[i].extent);
  std::map<LoopId, std::int64_t> seen;
  for (const ScheduleNode& n : kernel.nodes) {
    if (n.kind != NodeKind::loop) continue;
    const std::int64_t step = std::min(n.step, w.loop(n.loop).extent);
    if (const auto [at, fresh] = seen.emplace(n.loop, step); !fresh && at->second != step)
      return Reason{"loop " + w.loop(n.loop).name + " is cut by several steps"};
    tiles[n.loop.index()] = step;
  }
  return tiles;
}

constexpr const char* kOrdersOnly = "Chimera's Algorithm 1 prices orders only: ";

/// Whether the plan of this order and these tiles resolves to `target`; `bare`: to its loops and
/// computes.
bool same_schedule(const Setting& s, const chimera::Order& order, const chimera::Tiles& tiles,
                   const chimera::Options& options, LevelId level, const Kernel& target,
                   bool bare) {
  Plan plan = chimera::plan_of(*s.workload, order, tiles, *s.machine, level, options);
  const Result<Schedule> candidate = resolve(plan, s.workload, s.machine);
  if (!candidate || candidate->resolved.kernels.size() != 1) return false;
  const Kernel& kernel = candidate->resolved.kernels.front();
  return kernel.pins == target.pins && kernel.flags == target.flags &&
         normal(*s.workload, kernel.tree, bare) == normal(*s.workload, target.tree, bare);
}

}  // namespace

Settings chimera_settings(const Request& request) {
  return settings_among(request, chimera::option_specs(), "model chimera");
}

chimera::Options chimera_options(const Request& request) {
  return chimera::options_of(chimera_settings(request));
}

namespace {

/// A micro-kernel loads and stores its accumulators once a visit: over 48 steps of the reduction
/// that leaves 91 % of its limit of operations an element (section V-B). Twice that is not cut.
std::int64_t least_depth(std::int64_t extent) {
  constexpr std::int64_t kDepth = 48;
  return extent <= 2 * kDepth ? extent : kDepth;
}

/// A matrix product, rescaled between blocks of its reduction or not.
bool multiplies(const Workload& w, OpId op) {
  if (w.is_contraction(op)) return true;
  const auto& outputs = w.op(op).outputs;
  return outputs.size() == 1 && outputs[0].rescale && outputs[0].combine == Combine::sum &&
         outputs[0].value.function == "mul";
}

/// Whether some operand is read through a window that overlaps itself, as a convolution's input is.
bool reads_window(const Workload& w, OpId op) {
  for (const Access& a : w.op(op).inputs)
    for (const Affine& index : a.index)
      if (std::ranges::count_if(index.terms,
                                [&](const Term& t) { return w.loop(t.loop).extent > 1; }) > 1)
        return true;
  return false;
}

/// A plan for an outer cache leaves no operand in the first one: groups of rows share what of the
/// right operand passes through it.
bool streams(const Request& r) { return r.level && *r.level != "all" && *r.level != "L1"; }

}  // namespace

chimera::Options chimera_options(const Request& r, const Workload& w) {
  const Settings settings = chimera_settings(r);
  chimera::Options o = chimera::options_of(settings);
  if (!r.target || settings.given("min-tile")) return o;
  const std::optional<RegisterTile> kernel = target_needs(r, w.dtype()).register_tile;
  if (!kernel) return o;
  const std::int64_t lanes = kernel->lanes;
  const auto at_least = [&](LoopId loop, std::int64_t size) {
    std::int64_t& least = o.min_tiles[loop];
    least = std::max(least, std::min(size, w.loop(loop).extent));
  };
  for (OpId op : w.topological_order()) {
    if (!multiplies(w, op)) continue;
    for (LoopId l : w.reduction_loops(op)) at_least(l, least_depth(w.loop(l).extent));
    const auto& index = w.op(op).outputs.front().target.index;
    const bool matrix = std::ranges::count_if(index, [&](const Affine& a) {
                          return !a.plain_loop() || !w.is_batch(*a.plain_loop());
                        }) == 2;
    for (std::size_t d = 0; d < index.size(); ++d)
      if (const auto loop = index[d].plain_loop(); loop && !w.is_batch(*loop)) {
        const bool columns = d + 1 == index.size();
        // A panel is two vectors at least; what one micro-kernel nearly covers is not cut.
        const std::int64_t extent = w.loop(*loop).extent, wide = kernel->vectors * lanes;
        // Channels of an image: what is read from the second cache serves those of one tile, and
        // pairs of vectors run across them where a window is read.
        const bool channels = d + 3 == index.size() && !columns;
        const bool outer = matrix && streams(r);
        const std::int64_t rows = channels ? 2 * lanes : outer ? 2 * kernel->rows : kernel->rows;
        at_least(*loop, !columns ? rows : 2 * extent <= 3 * wide ? extent : 2 * lanes);
        if (channels && reads_window(w, op)) o.multiples[*loop] = 2 * lanes;
        if (columns) o.multiples[*loop] = lanes;
        // A partial tile costs what it is: two rows too many do not buy a larger tile.
        if (outer && !settings.given("edges")) o.edges = chimera::Edges::exact;
      }
  }
  return o;
}

nlohmann::ordered_json options_json(const Request& request, const chimera::Options& o) {
  nlohmann::ordered_json json = chimera_settings(request).to_json();
  json["edges"] = chimera::name_of(o.edges);
  return json;
}

TensorId intermediate_named(const Workload& w, const std::string& name, const char* option) {
  const auto id = w.find_tensor(name);
  if (id && w.is_intermediate(*id)) return *id;
  std::vector<std::string> names;
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_intermediate(TensorId(t))) names.push_back(w.tensors()[t].name);
  throw InputError({.where = option,
                    .value = name.empty() ? "nothing" : name,
                    .problem = "is no intermediate of " + w.name(),
                    .accepted = names.empty() ? "nothing: the workload has none" : join(names)});
}

Elements capacity_elements(const Request& request, const Setting& setting, LevelId level) {
  std::int64_t bytes = capacity_of(request, setting, level).value;
  const bool cache = setting.machine->level(level).managed == Managed::hardware;
  if (cache && !request.capacity)
    bytes = bytes * target_needs(request, setting.workload->dtype()).cache_percent / 100;
  return Elements(bytes / size_of(setting.workload->dtype()));
}

nlohmann::ordered_json tiles_json(const Workload& w, const chimera::Order& order,
                                  const chimera::Tiles& tiles) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (tiles.empty()) return json;
  for (LoopId l : order) json[w.loop(l).name] = tiles[l.index()];
  return json;
}

Result<OrderedTiling> ordered_tiling(const Request& request, const Setting& setting,
                                     const Plan& plan) {
  const Workload& w = *setting.workload;
  const Result<Schedule> schedule = resolve(plan, setting.workload, setting.machine);
  if (!schedule) return Reason{schedule.reason()};
  if (schedule->kernels.size() != 1)
    return Reason{kOrdersOnly + std::string("this plan has several kernels")};
  const ScheduledKernel& kernel = schedule->kernels.front();
  if (kernel.ops.size() != w.operators().size())
    return Reason{kOrdersOnly + std::string("this kernel has not every operator")};
  Result<chimera::Tiles> tiles = steps_of(w, kernel);
  if (!tiles) return Reason{kOrdersOnly + tiles.reason()};

  chimera::Options options = chimera_options(request);
  for (const auto& [name, pin] : plan.kernels.front().pins) {
    const auto tensor = w.find_tensor(name);
    if (tensor && w.is_intermediate(*tensor) &&
        setting.machine->find(pin.level) == setting.machine->home())
      options.spilled.insert(*tensor);
  }
  std::optional<OrderedTiling> best;
  std::int64_t least = 0;
  // A plan of another model says where to load and what runs in parallel; its order is its loops'.
  const Kernel& resolved = schedule->resolved.kernels.front();
  const auto orders = chimera::orders_of(w, resolved.tree, *tiles);
  for (bool bare : {false, true}) {
    for (const chimera::Order& order : orders) {
      if (!same_schedule(setting, order, *tiles, options, kernel.level, resolved, bare)) continue;
      const std::int64_t volume = chimera::price(w, order, *tiles, options).volume.value;
      if (best && volume >= least) continue;
      best = {order, *tiles, options, kernel.level, !bare};
      least = volume;
    }
    if (best) break;
  }
  if (!best) return Reason{kOrdersOnly + std::string("no order of the loops has this loop tree")};
  return *best;
}

Result<OrderedTiling> named_tiling(const Request& request, const Setting& setting) {
  const Workload& w = *setting.workload;
  OrderedTiling out;
  out.order = chimera::parse_order(w, request.order.value_or(""));
  out.options = chimera_options(request);
  out.level = level_of(request, *setting.machine);
  if (request.tiles) {
    out.tiles = chimera::tiles_from(w, tiles_of(request, w), "--tiles");
    return out;
  }
  const Elements capacity = capacity_elements(request, setting, out.level);
  Result<chimera::Solution> solved = chimera::solve(w, out.order, capacity, out.options);
  if (!solved) return Reason{solved.reason()};
  if (solved->tiles.empty()) return Reason{solved->reason};
  out.tiles = solved->tiles;
  return out;
}

}  // namespace tilewright::harness
