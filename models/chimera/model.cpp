#include "models/chimera/model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "core/base/format.h"
#include "core/plan/traffic.h"
#include "models/chimera/chain.h"
#include "models/chimera/flat.h"
#include "models/chimera/sampler.h"

namespace tilewright::chimera {
namespace {

using nlohmann::ordered_json;

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
Result<Tiles> steps_of(const Workload& w, const ScheduledKernel& kernel) {
  Tiles tiles;
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
bool same_schedule(const Question& q, const Order& order, const Tiles& tiles,
                   const Options& options, LevelId level, const Kernel& target, bool bare) {
  const Plan plan = plan_of(*q.workload, order, tiles, *q.machine, level, options);
  const Result<Schedule> candidate = resolve(plan, q.workload, q.machine);
  if (!candidate || candidate->resolved.kernels.size() != 1) return false;
  const Kernel& kernel = candidate->resolved.kernels.front();
  return kernel.pins == target.pins && kernel.flags == target.flags &&
         normal(*q.workload, kernel.tree, bare) == normal(*q.workload, target.tree, bare);
}

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
bool streams(const Question& q) { return q.level && q.machine->level(*q.level).name != "L1"; }

/// Section V-B's micro-kernel of a GPU has two by two fragments of 16 x 16: no tile of a product is
/// smaller. A row of an image's points has one at least. A step of the depth has four, since a
/// block waits once a step for what it loads, and one where a window multiplies it; the paper has
/// no number.
void fragments_of_products(const Workload& w, Options& o) {
  constexpr std::int64_t kFragment = 16;
  const auto at_least = [&](LoopId loop, std::int64_t size) {
    std::int64_t& least = o.min_tiles[loop];
    least = std::max(least, std::min(size, w.loop(loop).extent));
    o.multiples[loop] = kFragment;
  };
  for (OpId op : w.topological_order()) {
    if (!multiplies(w, op)) continue;
    const bool window = reads_window(w, op);
    for (LoopId l : w.reduction_loops(op)) at_least(l, window ? kFragment : 4 * kFragment);
    std::vector<LoopId> sides;  // without batch loops: rows and columns, or channels and points
    for (const Affine& a : w.op(op).outputs.front().target.index)
      if (const auto loop = a.plain_loop(); loop && !w.is_batch(*loop)) sides.push_back(*loop);
    if (sides.size() <= 2) {
      for (LoopId l : sides) at_least(l, 2 * kFragment);
    } else {
      at_least(sides.front(), 2 * kFragment);
      at_least(sides.back(), kFragment);
    }
  }
}

}  // namespace

Options options_for(const Question& q, const Settings& settings) {
  Options o = options_of(settings);
  if (settings.given("min-tile")) return o;
  const Workload& w = *q.workload;
  if (detail::shared_by_blocks(*q.machine, q.planned_level(), o)) {
    fragments_of_products(w, o);
    return o;
  }
  if (!q.needs.register_tile) return o;
  const auto& kernel = q.needs.register_tile;
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
        const bool outer = matrix && streams(q);
        const std::int64_t rows = channels ? 2 * lanes : outer ? 2 * kernel->rows : kernel->rows;
        at_least(*loop, !columns ? rows : 2 * extent <= 3 * wide ? extent : 2 * lanes);
        if (channels && reads_window(w, op)) o.multiples[*loop] = 2 * lanes;
        if (columns) o.multiples[*loop] = lanes;
        // A partial tile costs what it is: two rows too many do not buy a larger tile.
        if (outer && !settings.given("edges")) o.edges = Edges::exact;
      }
  }
  return o;
}

ordered_json options_json(const Settings& settings, const Options& used) {
  ordered_json json = settings.to_json();
  json["edges"] = name_of(used.edges);
  return json;
}

Elements room_of(const Question& q, LevelId level) {
  std::int64_t bytes = q.room_at(level).value;
  const bool cache = q.machine->level(level).managed == Managed::hardware;
  if (cache && !q.room) bytes = bytes * q.needs.cache_percent / 100;
  return Elements(bytes / size_of(q.workload->dtype()));
}

nlohmann::ordered_json tiles_json(const Workload& w, const Order& order, const Tiles& tiles) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (tiles.empty()) return json;
  for (LoopId l : order) json[w.loop(l).name] = tiles[l.index()];
  return json;
}

std::set<TensorId> intermediates_named(const Workload& w, std::span<const std::string> names) {
  std::set<TensorId> found;
  for (const std::string& name : names) {
    const auto id = w.find_tensor(name);
    if (id && w.is_intermediate(*id)) {
      found.insert(*id);
      continue;
    }
    std::vector<std::string> there;
    for (std::size_t t = 0; t < w.tensors().size(); ++t)
      if (w.is_intermediate(TensorId(t))) there.push_back(w.tensors()[t].name);
    throw InputError({.where = "--spill",
                      .value = name.empty() ? "an empty text" : name,
                      .problem = "is not an intermediate of " + w.name(),
                      .accepted = there.empty() ? "nothing: the workload has none" : join(there)});
  }
  return found;
}

Result<OrderedTiling> ordered_tiling(const Question& q, const Plan& plan,
                                     const Settings& settings) {
  const Workload& w = *q.workload;
  const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
  if (!schedule) return Reason{schedule.reason()};
  if (schedule->kernels.size() != 1)
    return Reason{kOrdersOnly + std::string("this plan has several kernels")};
  const ScheduledKernel& kernel = schedule->kernels.front();
  if (kernel.ops.size() != w.operators().size())
    return Reason{kOrdersOnly + std::string("this kernel has not every operator")};
  Result<Tiles> tiles = steps_of(w, kernel);
  if (!tiles) return Reason{kOrdersOnly + tiles.reason()};

  Options options = options_of(settings);
  for (const auto& [name, pin] : plan.kernels.front().pins) {
    const auto tensor = w.find_tensor(name);
    if (tensor && w.is_intermediate(*tensor) && q.machine->find(pin.level) == q.machine->home())
      options.spilled.insert(*tensor);
  }
  std::optional<OrderedTiling> best;
  std::int64_t least = 0;
  // A plan of another model says where to load and what runs in parallel; its order is its loops'.
  const Kernel& resolved = schedule->resolved.kernels.front();
  const auto orders = orders_of(w, resolved.tree, *tiles);
  for (bool bare : {false, true}) {
    for (const Order& order : orders) {
      if (!same_schedule(q, order, *tiles, options, kernel.level, resolved, bare)) continue;
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

namespace {

/// The thread blocks that share a GPU; none where one block runs the tiling.
std::optional<detail::Blocks> blocks_of(const Question& q, const OrderedTiling& t) {
  if (!detail::shared_by_blocks(*q.machine, t.level, t.options)) return std::nullopt;
  const Workload& w = *q.workload;
  Kernel k{.tree = tree_of(w, t.order, t.tiles), .tiles = tile_table(w, t.order, t.tiles)};
  return detail::share(w, t.order, t.tiles, t.options, q.machine->level(t.level).instances, k);
}

/// How long the bytes of a tiling take: one block after the other, or what the blocks bring, in
/// rounds of one an instance of the level.
std::optional<double> seconds_of(const Question& q, const OrderedTiling& t, Elements volume) {
  double elements = static_cast<double>(volume.value);
  if (const auto blocks = blocks_of(q, t)) {
    const std::int64_t instances = q.machine->level(t.level).instances;
    elements = blocks->cost(instances) / static_cast<double>(instances);
  }
  return seconds_into(*q.machine, t.level,
                      bytes_of(Elements(std::llround(elements)), q.workload->dtype()));
}

/// What Algorithm 1 says of a tiling, as Traffic. It counts each tensor's movement once; what the
/// producer of a tensor moves of it is `written`, the rest `read`.
Traffic traffic_of(const Question& q, const OrderedTiling& t, const Price& price) {
  Options reads_only = t.options;
  reads_only.write_weight = 0;
  const Workload& w = *q.workload;
  const Price reads = chimera::price(w, t.order, t.tiles, reads_only);
  Traffic traffic;
  traffic.source = Source::predicted;
  traffic.by = "chimera";
  traffic.machine = q.machine->name;
  const std::string boundary = boundary_into(*q.machine, t.level);
  for (std::size_t i = 0; i < price.tensors.size(); ++i) {
    const std::int64_t all = price.tensors[i].movement.value;
    if (all == 0) continue;
    const Tensor& tensor = w.tensor(price.tensors[i].tensor);
    const Elements read = reads.tensors[i].movement;
    traffic.entries.push_back({.tensor = tensor.name,
                               .boundary = boundary,
                               .read = bytes_of(read, tensor.dtype),
                               .written = bytes_of(Elements(all) - read, tensor.dtype)});
  }
  traffic.memory[q.machine->level(t.level).name] = bytes_of(price.memory, w.dtype());
  for (std::size_t o = 0; o < w.operators().size(); ++o)
    traffic.operations[w.operators()[o].name] = price.operations[o];
  traffic.seconds = seconds_of(q, t, price.volume);
  return traffic;
}

/// Whether a plan brings tiles to several levels, so that Algorithm 1 prices each.
bool brings_to_several(const Node& tree, std::set<std::string>& levels) {
  if (tree.kind == Node::Kind::load && !tree.level.empty()) levels.insert(tree.level);
  for (const Node& c : tree.children) brings_to_several(c, levels);
  return levels.size() > 1;
}

/// What Chain throws for, as an outcome, so that other models' rows go on: footprints are boxes
/// known beforehand, and orders are of few loops.
std::optional<Reason> workload_refused(const Workload& w) {
  const std::size_t most = std::max({w.loops().size(), w.tensors().size(), w.operators().size()});
  if (most > detail::kMaxMask)
    return Reason{
        formatted("Chimera orders the loops of at most {0} loops, tensors and operators; {1} "
                  "has {2}",
                  detail::kMaxMask, w.name(), most)};
  for (OpId op : w.topological_order())
    if (w.gathers(op))
      return Reason{w.op(op).name +
                    " reads by another tensor's values, which Chimera does not price"};
  return std::nullopt;
}

ordered_json counted_json(const Search& search) {
  ordered_json after = ordered_json::object();
  const auto count = [&search](auto&& test) {
    return std::count_if(search.ranked.begin(), search.ranked.end(), test);
  };
  after["legal_with_several_trips"] =
      count([](const Solution& s) { return s.order_legality.legal; });
  after["feasible"] = count([](const Solution& s) { return s.feasible; });
  after["fits"] = count([](const Solution& s) { return s.feasible && s.fits; });
  ordered_json json = {{"generated", search.ranked.size()}, {"after", after}};
  for (const auto& [name, n] : search.counted) json[name] = n;
  return json;
}

/// An order or a plan that is priced, and what `predict` shows of it.
tilewright::Price priced(const Question& q, const OrderedTiling& t, const Settings& settings) {
  const Workload& w = *q.workload;
  const Price price = chimera::price(w, t.order, t.tiles, t.options);
  tilewright::Price out;
  out.traffic = traffic_of(q, t, price);
  ordered_json& json = out.detail;
  json["order"] = to_text(w, t.order);
  json["tiles"] = tiles_json(w, t.order, t.tiles);
  if (!t.whole)
    json["notes"] = "the order of the plan's loops; where it loads, stores and binds is not priced";
  json["options"] = options_json(settings, t.options);
  json["volume_elements"] = price.volume.value;
  json["volume_bytes"] = bytes_of(price.volume, w.dtype()).value;
  json["memory_paper_bytes"] = bytes_of(price.memory_paper, w.dtype()).value;
  json["recomputed_operations"] = price.recomputed.value;
  return out;
}

Words words_of(const Workload& w, const Order& order, const Tiles& tiles) {
  Words words{.text = to_text(w, order), .tiles = std::map<std::string, std::int64_t>()};
  for (LoopId l : order) (*words.tiles)[w.loop(l).name] = tiles[l.index()];
  return words;
}

Result<tilewright::Price> price_plan(const Question& q, const Plan& plan,
                                     const Settings& settings) {
  if (const auto refused = workload_refused(*q.workload)) return *refused;
  if (plan.kernels.empty()) return Reason{"the plan has no kernel"};
  std::set<std::string> levels;
  const bool several = brings_to_several(plan.kernels.front().tree, levels);
  if (q.machine->npu_core && (over_paths(q) || several)) return price_paths(q, plan);
  if (over_levels(q) || (plan.kernels.size() == 1 && several))
    return price_levels(q, plan, settings);
  const Result<OrderedTiling> tiling = ordered_tiling(q, plan, settings);
  if (!tiling) return Reason{tiling.reason()};
  return priced(q, *tiling, settings);
}

Result<Proposal> propose(const Question& q, const Settings& settings) {
  if (const auto refused = workload_refused(*q.workload)) return *refused;
  if (over_paths(q)) return propose_paths(q);
  if (over_levels(q)) return propose_levels(q, settings);
  const Workload& w = *q.workload;
  Options options = options_for(q, settings);
  const LevelId level = q.planned_level();
  const Elements room = room_of(q, level);
  const auto start = std::chrono::steady_clock::now();
  // Another model reads the plan alone. For caches few orders' best tiles fit, and ranking all of
  // them takes less time (drawn networks).
  options.counts = !q.of_model;
  const bool alone = q.of_model && q.machine->level(level).managed == Managed::software;
  const auto search = alone ? best_plan_alone : best_plan;
  Result<BestPlan> best = search(w, *q.machine, level, options, room);
  if (!best && !options.min_tiles.empty()) {
    // Tiles that the micro-kernel would like do not fit; a slower kernel is better than none.
    options.min_tiles.clear();
    options.multiples.clear();
    best = search(w, *q.machine, level, options, room);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!best) return Reason{best.reason()};
  if (detail::shared_by_blocks(*q.machine, level, options)) {
    // Blocks are chosen by what they cost. Of orders with the same plan the one that moves least
    // counts, as where a plan is priced.
    if (const auto same = ordered_tiling(q, best->plan, settings); same && same->whole) {
      best.value().solution.order = same->order;
      best.value().solution.tiles = same->tiles;
      best.value().solution.price = chimera::price(w, same->order, same->tiles, options);
    }
  }
  const Solution& solution = best->solution;
  const OrderedTiling chosen{.order = solution.order,
                             .tiles = solution.tiles,
                             .options = options_of(settings),
                             .level = level};
  const auto bytes = [&w](Elements n) { return bytes_of(n, w.dtype()).value; };
  Proposal out;
  out.plan = std::move(best->plan);
  out.price = priced(q, chosen, settings);
  out.level = level;
  out.search_seconds = seconds;
  ordered_json& json = out.detail;
  json["order"] = to_text(w, solution.order);
  json["volume_elements"] = solution.price.volume.value;
  json["volume_bytes"] = bytes(solution.price.volume);
  json["memory"] = {{q.machine->level(level).name, bytes(solution.price.memory)}};
  json["memory_mode"] = name_of(options.memory);
  json["memory_paper_bytes"] = bytes(solution.price.memory_paper);
  json["capacity_bytes"] = bytes(best->capacity);
  json["tightened"] = best->tightened;
  if (const auto blocks = blocks_of(q, chosen)) {
    json["blocks"] = blocks->count;
    json["blocks_bytes"] = bytes(Elements(std::llround(blocks->elements)));
  }
  json["recomputed_operations"] = solution.price.recomputed.value;
  json["seconds"] = or_null(out.price.traffic.seconds);
  json["search_seconds"] = seconds;
  json["candidates"] = counted_json(best->search);
  json["notes"] = best->search.notes;
  json["options"] = options_json(settings, options);
  if (!options.min_tiles.empty()) {
    json["options"]["target"] = q.target;
    for (const auto& [loop, least] : options.min_tiles)
      json["options"]["min_tiles"][w.loop(loop).name] = least;
    for (const auto& [loop, multiple] : options.multiples)
      json["options"]["multiples"][w.loop(loop).name] = multiple;
  }
  out.words = words_of(w, solution.order, solution.tiles);
  return out;
}

// ---- orders as people write them
// -----------------------------------------------------------------

Result<Proposal> written(const Question& q, const Words& words, const Settings& settings) {
  const Workload& w = *q.workload;
  if (over_levels(q)) refuse_of_one_level(words);
  OrderedTiling t{.order = parse_order(w, words.text.value_or("")),
                  .tiles = {},
                  .options = options_for(q, settings),
                  .level = q.planned_level()};
  t.options.spilled.merge(intermediates_named(w, words.spilled));
  if (words.tiles) {
    t.tiles = tiles_from(w, *words.tiles, "--tiles");
  } else {
    const Result<Solution> solved = solve(w, t.order, room_of(q, t.level), t.options);
    if (!solved) return Reason{solved.reason()};
    if (solved->tiles.empty()) return Reason{solved->reason};
    t.tiles = solved->tiles;
  }
  Proposal out;
  out.plan = plan_of(w, t.order, t.tiles, *q.machine, t.level, t.options);
  out.level = t.level;
  out.price = priced(q, t, settings);
  out.words = words_of(w, t.order, t.tiles);
  return out;
}

/// The tiles for which the model predicts the least among those of the space; `given` orders.
std::optional<OrderedTiling> optimum_of(const Question& q, const DrawSpace& space,
                                        std::span<const Order> orders, Options options) {
  const Workload& w = *q.workload;
  options.memory = Memory::held;
  options.min_tile = space.min_tile;
  const Elements most(space.most.value / size_of(w.dtype()));
  std::optional<OrderedTiling> best;
  std::int64_t least = 0;
  for (const Order& order : orders) {
    const auto solved = solve(w, order, most, options);
    if (!solved || solved->tiles.empty()) continue;
    const std::int64_t volume = solved->price.volume.value;
    if (best && volume >= least) continue;
    best = OrderedTiling{order, solved->tiles, options, q.planned_level()};
    least = volume;
  }
  return best;
}

Result<std::vector<DrawnPlan>> draw(const Question& q, const DrawSpace& space,
                                    const Settings& settings) {
  if (over_paths(q)) return draw_paths(q, space);
  const Workload& w = *q.workload;
  Options options = options_of(settings);
  options.spilled.merge(intermediates_named(w, space.spilled));
  const std::int64_t element = size_of(w.dtype());
  std::vector<Order> orders;
  for (const std::string& text : space.texts) orders.push_back(parse_order(w, text));
  if (orders.empty()) {
    const LevelId level = q.planned_level();
    const auto best =
        best_plan(w, *q.machine, level, options, Elements(q.room_at(level).value / element));
    if (!best) return Reason{best.reason()};
    orders.push_back(best->solution.order);
    // The best may be legal at its own tiles alone: then the best of those that any tiles suit.
    if (!best->solution.order_legality.legal)
      for (const Solution& s :
           search(w, Elements(q.room_at(level).value / element), options).ranked)
        if (s.feasible && s.order_legality.legal) {
          orders.back() = s.order;
          break;
        }
  }
  std::vector<DrawnPlan> drawn;
  const auto add = [&](const Order& order, const Tiles& tiles) {
    const Legality legal = legality(w, order, tiles);
    drawn.push_back({.words = words_of(w, order, tiles)});
    if (!legal.legal) drawn.back().illegal = legal.reason;
    drawn.back().words.spilled = space.spilled;
  };
  if (space.optimum) {
    if (const auto best = optimum_of(q, space, orders, options)) add(best->order, best->tiles);
    return drawn;
  }
  const SampleSpace from{.least = Elements(space.least.value / element),
                         .most = Elements(space.most.value / element),
                         .min_tile = space.min_tile,
                         .some_below = space.some_below};
  std::uint64_t seed = q.seed;
  for (const Order& order : orders)
    for (const Tiles& tiles : draw_tilings(w, order, options, from, space.count, seed++))
      add(order, tiles);
  return drawn;
}

/// Every order of a workload of more loops than this is too many.
constexpr std::size_t kMostListed = 8;

}  // namespace

Model model() {
  return {
      .name = "chimera",
      .summary = "data movement of a chain under an order of its tiled loops, and the best order",
      .source = "Zheng et al., Chimera, HPCA 2023, section IV, Algorithm 1",
      .assumptions = {"one memory level holds a tile of every tensor; intermediates stay on chip",
                      "each tensor's movement counts once, an output's re-reading does not",
                      "recomputation and the conflicts of a cache are not priced"},
      .options = option_specs(),
      .every_level = true,
      .notation = "order",
      .propose = propose,
      .price = price_plan,
      .written = written,
      .texts =
          [](const Workload& w) {
            std::vector<std::string> texts;
            if (order_loops(w).size() > kMostListed) return texts;
            for (const Order& o : all_orders(w)) texts.push_back(to_text(w, o));
            return texts;
          },
      .canonical = [](const Workload& w,
                      const std::string& text) { return to_text(w, parse_order(w, text)); },
      .draw = draw,
      .explain = explain};
}

}  // namespace tilewright::chimera
