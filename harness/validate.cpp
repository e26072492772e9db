// validate: Chimera's prediction against the true bytes into the innermost level, over many
// tilings.
#include <algorithm>
#include <map>
#include <optional>

#include "core/base/format.h"
#include "harness/chimera_request.h"
#include "harness/metered_kernel.h"
#include "harness/meters.h"
#include "harness/parallel.h"
#include "harness/registry.h"
#include "harness/sampler.h"
#include "harness/schedules.h"
#include "harness/statistics.h"
#include "harness/validate_command.h"
#include "harness/validate_cuda.h"
#include "harness/validate_npu.h"
#include "harness/verbs.h"
#include "simulator/simulator.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// Tiles below this are drawn only by --beyond, in the block `small_tiles`: of tiles so small a
/// cache keeps the whole strip that they are cut from, and Algorithm 1's premise, that a tile is
/// gone when the loop that moves it comes round, does not hold.
constexpr std::int64_t kMinTile = 4;
/// Walks that take more work than this (SimulateOptions::most_work; about ten seconds) are given
/// up.
constexpr std::int64_t kMostWork = 8'000'000'000;
/// Walks are not begun if two iterations of their outermost loop touch more lines than this: those
/// are walked at least, though what a loop within them repeats may be passed over, mostly all but a
/// twentieth.
constexpr double kMostTouches = 20.0 * kMostWork;

/// What all points share.
struct Subject {
  Setting setting;
  std::shared_ptr<const Machine> walked;  ///< what is simulated: see walked_machine
  LevelId walked_level;
  std::string walked_boundary;
  chimera::Options exact_edges;
  chimera::Options full_edges;
  LevelId level;
  std::string boundary;
  Bytes capacity;
  Layout layout = Layout::tiled;
  const profilers::MeterRecord* meter = nullptr;  ///< the truth; null: the simulator
  std::optional<Reference> reference = {};        ///< with a meter: what kernels are verified on
  const ModelRecord* model = nullptr;             ///< what predicts; null: Chimera's Algorithm 1
  Request request = {};                           ///< of that model
};

struct Point {
  chimera::Order order;
  chimera::Tiles tiles;
  std::int64_t predicted = 0;       ///< bytes, exact edges
  std::int64_t predicted_full = 0;  ///< bytes, full edges
  std::int64_t truth = 0;           ///< bytes towards the level
  // Not every truth counts these.
  std::optional<std::int64_t> written = {};  ///< bytes out of it
  std::optional<std::int64_t> resident_dirty = {};
  std::int64_t memory = 0;
  std::int64_t packing = 0;
  // By tensor: what makes up `predicted`, and where it is known `truth`.
  std::map<std::string, std::int64_t> predicted_by = {}, truth_by = {};
  std::string failure = {};  ///< why it has no truth
};

const Workload& workload(const Subject& s) { return *s.setting.workload; }

/// About how many cache lines a walk touches: for each operator its computes times its tiles'
/// lines.
double touches(const Workload& w, const Point& p, const chimera::Price& price) {
  double sum = 0;
  for (std::size_t o = 0; o < w.operators().size(); ++o) {
    const Operator& op = w.operators()[o];
    double points = 1, lines = 0;
    for (LoopId l : op.loops) points *= static_cast<double>(p.tiles[l.index()]);
    const auto add = [&](TensorId t) {
      for (const chimera::TensorPrice& one : price.tensors)
        if (one.tensor == t)
          lines += 1 + static_cast<double>(bytes_of(one.footprint, w.tensor(t).dtype).value) / 64;
    };
    for (const Access& a : op.inputs) add(a.tensor);
    for (const Output& out : op.outputs) add(out.target.tensor);
    sum += static_cast<double>(price.operations[o].value) / points * lines;
  }
  return sum;
}

/// The truth by a meter, of the plan's kernel on the whole machine. A Reason where there is none.
std::optional<Reason> metered(const Subject& s, Point& p) {
  const Machine& m = *s.setting.machine;
  const Plan plan = chimera::plan_of(workload(s), p.order, p.tiles, m, s.level, s.exact_edges);
  const Result<Schedule> schedule = resolve(plan, s.setting.workload, s.setting.machine);
  if (!schedule) return Reason{schedule.reason()};
  const auto kernel = MeteredKernel::make(*schedule, *s.meter, *s.reference);
  if (!kernel) return Reason{kernel.reason()};
  const auto measured = s.meter->make()->measure((*kernel)->built(), m);
  if (!measured) return Reason{measured.reason()};
  const Traffic& t = measured->traffic;
  if (const auto why = t.unavailable.find(s.boundary); why != t.unavailable.end())
    return Reason{why->second};
  p.truth = t.total(s.boundary).read.value;
  if (t.counts.write_back) p.written = t.total(s.boundary).written.value;
  return std::nullopt;
}

/// The truth by the simulator.
void simulated(const Subject& s, const Schedule& schedule, const chimera::Price& price, Point& p) {
  const Workload& w = workload(s);
  std::int64_t trips = 1;  // an order names no loop where each runs point by point
  if (!p.order.empty()) {
    const LoopId outermost = p.order.front();
    trips = ceil_div(w.loop(outermost).extent, p.tiles[outermost.index()]);
  }
  const double sure = touches(w, p, price) * std::min(1.0, 2.0 / static_cast<double>(trips));
  Simulated done{.finished = false};
  if (sure <= kMostTouches)
    done = simulate_in_detail(schedule, {.layout = s.layout, .most_work = kMostWork});
  if (!done.finished) {
    p.failure = "its walk would take more than " + std::to_string(kMostWork / 1'000'000'000) +
                " billion steps";
    return;
  }
  const Traffic& traffic = done.traffic;
  const TrafficEntry total = traffic.total(s.walked_boundary);
  p.truth = total.read.value;
  for (const TrafficEntry& e : traffic.entries)
    if (e.boundary == s.walked_boundary) p.truth_by[e.tensor] += e.read.value;
  p.written = total.written.value;
  p.resident_dirty = total.resident_dirty.value;
  p.packing = AddressMap(schedule, s.layout).packing_bytes().value;
}

/// What another model than Chimera's says of the point's plan. Each tensor counts once: a cache
/// that allocates on writes fills an output's line whether it is read or written next, so that its
/// bytes towards the level are the larger of the two. A Reason where the model does not price the
/// plan.
std::optional<Reason> price_by_model(const Subject& s, Point& p) {
  const Machine& m = *s.setting.machine;
  Setting with_plan = s.setting;
  with_plan.file =
      PlanFile{.workload = workload(s),
               .workload_name = s.setting.workload_name,
               .machine = m.name,
               .model = {},
               .plan = chimera::plan_of(workload(s), p.order, p.tiles, m, s.level, s.exact_edges)};
  const Answer answer = s.model->price(s.request, with_plan);
  if (!answer.ok()) return Reason{answer.json.value("reason", "not priced by " + s.model->name)};
  for (const ordered_json& e : answer.json.at("traffic"))
    if (e.at("boundary") == s.boundary)
      p.predicted_by[e.at("tensor").get<std::string>()] += std::max(
          e.at("read_bytes").get<std::int64_t>(), e.at("written_bytes").get<std::int64_t>());
  for (const auto& [tensor, bytes] : p.predicted_by) p.predicted += bytes;
  p.predicted_full = p.predicted;
  return std::nullopt;
}

/// What Algorithm 1 says, with exact and with full edges.
void price_by_chimera(const Subject& s, const chimera::Price& price, Point& p) {
  const Workload& w = workload(s);
  p.predicted = bytes_of(price.volume, w.dtype()).value;
  p.predicted_full =
      bytes_of(chimera::price(w, p.order, p.tiles, s.full_edges).volume, w.dtype()).value;
  for (const chimera::TensorPrice& t : price.tensors)
    if (t.movement.value != 0)
      p.predicted_by[w.tensor(t.tensor).name] =
          bytes_of(t.movement, w.tensor(t.tensor).dtype).value;
}

/// Fills in everything but order and tiles.
void evaluate(const Subject& s, Point& p) {
  const Workload& w = workload(s);
  const chimera::Price price = chimera::price(w, p.order, p.tiles, s.exact_edges);
  if (s.model == nullptr) price_by_chimera(s, price, p);
  if (const auto legal = chimera::legality(w, p.order, p.tiles); !legal.legal) {
    p.failure = legal.reason;
    return;
  }
  const Plan plan = chimera::plan_of(w, p.order, p.tiles, *s.walked, s.walked_level, s.exact_edges);
  const Result<Schedule> schedule = resolve(plan, s.setting.workload, s.walked);
  if (!schedule) {
    p.failure = schedule.reason();
    return;
  }
  const auto memory = memory_use(*schedule);
  const auto used = memory.find(s.walked->level(s.walked_level).name);
  p.memory = used == memory.end() ? 0 : used->second.value;
  if (const auto why = misfit(*schedule)) {
    p.failure = why->text;
    return;
  }
  if (s.model != nullptr)
    if (const auto why = price_by_model(s, p)) {
      p.failure = why->text;
      return;
    }
  if (s.meter == nullptr) return simulated(s, *schedule, price, p);
  if (const auto why = metered(s, p)) p.failure = why->text;
}

ordered_json number_json(const std::optional<std::int64_t>& n) {
  return n ? ordered_json(*n) : ordered_json(nullptr);
}

ordered_json point_json(const Subject& s, const Point& p) {
  ordered_json json;
  json["order"] = chimera::to_text(workload(s), p.order);
  json["tiles"] = tiles_json(workload(s), p.order, p.tiles);
  json["predicted_bytes"] = p.predicted;
  json["true_bytes"] = p.truth;
  if (s.model == nullptr) json["predicted_full_edges_bytes"] = p.predicted_full;
  json["written_bytes"] = number_json(p.written);
  json["resident_dirty_bytes"] = number_json(p.resident_dirty);
  json["memory_bytes"] = p.memory;
  json["packing_bytes"] = p.packing;
  if (p.truth_by.empty()) return json;
  json["tensors"] = ordered_json::object();
  for (const Tensor& t : workload(s).tensors()) {
    const auto of = [&t](const auto& by) { return by.contains(t.name) ? by.at(t.name) : 0; };
    if (of(p.predicted_by) != 0 || of(p.truth_by) != 0)
      json["tensors"][t.name] = {{"predicted_bytes", of(p.predicted_by)},
                                 {"true_bytes", of(p.truth_by)}};
  }
  return json;
}

Agreement agreement_of(const std::vector<Point>& points, std::int64_t Point::*prediction) {
  std::vector<double> x, y;
  for (const Point& p : points) {
    if (!p.failure.empty()) continue;
    x.push_back(static_cast<double>(p.*prediction));
    y.push_back(static_cast<double>(p.truth));
  }
  return agreement(x, y);
}

/// asked, valid, failed, the figures, the points: the document's own keys and those of `beyond`.
void add_block(ordered_json& json, const Subject& s, const std::vector<Point>& points) {
  const auto failed = std::count_if(points.begin(), points.end(),
                                    [](const Point& p) { return !p.failure.empty(); });
  json["asked"] = points.size();
  json["valid"] = std::ssize(points) - failed;
  json["failed"] = failed;
  merge(json, to_json(agreement_of(points, &Point::predicted)));
  if (s.model == nullptr)
    json["full_edges"] = to_json(agreement_of(points, &Point::predicted_full));
  json["points"] = ordered_json::array();
  json["failures"] = ordered_json::array();
  for (const Point& p : points) {
    if (p.failure.empty()) {
      json["points"].push_back(point_json(s, p));
    } else {
      json["failures"].push_back({{"order", chimera::to_text(workload(s), p.order)},
                                  {"tiles", tiles_json(workload(s), p.order, p.tiles)},
                                  {"reason", p.failure}});
    }
  }
}

std::optional<std::int64_t> number_from(const ordered_json& j) {
  return j.is_null() ? std::nullopt : std::optional(j.get<std::int64_t>());
}

/// evaluate, but for a tiling that was finished before.
void evaluate_once(const Subject& s, Point& p, const std::string& block, const Once& once) {
  const std::string key = formatted("{} {} {}", block, chimera::to_text(workload(s), p.order),
                                    tiles_json(workload(s), p.order, p.tiles).dump());
  const ordered_json found = once(key, [&] {
    evaluate(s, p);
    ordered_json json = point_json(s, p);
    json["predicted_full"] = p.predicted_full;
    json["predicted_by"] = p.predicted_by;
    json["truth_by"] = p.truth_by;
    json["failure"] = p.failure;
    return json;
  });
  p.predicted = found["predicted_bytes"];
  p.predicted_full = found["predicted_full"];
  p.truth = found["true_bytes"];
  p.written = number_from(found["written_bytes"]);
  p.resident_dirty = number_from(found["resident_dirty_bytes"]);
  p.memory = found["memory_bytes"];
  p.packing = found["packing_bytes"];
  p.predicted_by = found["predicted_by"].get<std::map<std::string, std::int64_t>>();
  p.truth_by = found["truth_by"].get<std::map<std::string, std::int64_t>>();
  p.failure = found["failure"];
}

std::vector<Point> evaluated(const Subject& s, std::vector<Point> points, const Request& request,
                             const Once& once, const std::string& what) {
  // Hardware counters see what else the machine does: then one kernel at a time.
  const bool alone = s.meter != nullptr && !s.meter->valgrind;
  const auto work = [&](std::size_t i) {
    if (once) evaluate_once(s, points[i], what, once);
    else evaluate(s, points[i]);
  };
  parallel_for(points.size(), alone ? 1 : threads_of(request), work, request.progress, what);
  return points;
}

/// The tilings of one block. Blocks other than the first are a quarter as large, at least eight.
std::vector<Point> drawn(const Subject& s, const std::vector<chimera::Order>& orders,
                         const ValidateOptions& options, const Request& request,
                         const SampleSpace& space, bool first) {
  const std::int64_t count =
      first ? options.samples
            : std::min(options.samples, std::max<std::int64_t>(8, options.samples / 4));
  std::vector<Point> points;
  std::uint64_t seed = request.seed;
  for (const chimera::Order& order : orders)
    for (chimera::Tiles& tiles :
         draw_tilings(workload(s), order, s.exact_edges, space, count, seed++))
      points.push_back({.order = order, .tiles = std::move(tiles)});
  return points;
}

/// The least that the model predicts for any of the orders in the space that tilings are drawn
/// from, and what that truly moves; null where there is none.
ordered_json optimum_json(const Subject& s, const std::vector<chimera::Order>& orders,
                          const SampleSpace& space, const Once& once) {
  if (s.model != nullptr) return nullptr;  // only Chimera's model is solved over this space
  chimera::Options options = s.exact_edges;
  options.memory = chimera::Memory::held;
  options.min_tile = space.min_tile;
  std::optional<Point> best;
  for (const chimera::Order& order : orders) {
    const auto solved = chimera::solve(workload(s), order, space.most, options);
    if (!solved || solved->tiles.empty()) continue;
    Point p{.order = order, .tiles = solved->tiles};
    p.predicted = bytes_of(solved->price.volume, workload(s).dtype()).value;
    if (!best || p.predicted < best->predicted) best = std::move(p);
  }
  if (!best) return nullptr;
  if (once) evaluate_once(s, *best, "optimum", once);
  else evaluate(s, *best);
  return best->failure.empty() ? point_json(s, *best) : ordered_json(nullptr);
}

std::string csv_of(const Subject& s,
                   const std::vector<std::pair<const char*, const std::vector<Point>*>>& blocks) {
  const Workload& w = workload(s);
  std::string csv = "block,order";
  for (LoopId l : chimera::order_loops(w)) csv += ",tile_" + w.loop(l).name;
  csv +=
      ",predicted_bytes,true_bytes,predicted_full_edges_bytes,written_bytes,resident_dirty_bytes,"
      "memory_bytes\n";
  for (const auto& [block, points] : blocks) {
    for (const Point& p : *points) {
      if (!p.failure.empty()) continue;
      std::string order = chimera::to_text(w, p.order);
      std::replace(order.begin(), order.end(), ',', ' ');
      csv += std::string(block) + "," + order;
      for (LoopId l : chimera::order_loops(w)) csv += "," + std::to_string(p.tiles[l.index()]);
      for (const std::optional<std::int64_t>& v :
           {std::optional(p.predicted), std::optional(p.truth), std::optional(p.predicted_full),
            p.written, p.resident_dirty, std::optional(p.memory)})
        csv += "," + (v ? std::to_string(*v) : "");
      csv += "\n";
    }
  }
  return csv;
}

/// The machine that is walked. Where every level is a cache, what the innermost one misses does not
/// depend on those outside it (none evicts from another unless it is inclusive), so it alone is
/// walked, over home.
Machine walked_machine(const Machine& m, LevelId level) {
  const bool caches = std::all_of(m.levels.begin(), m.levels.end(), [](const Level& l) {
    return l.kind == LevelKind::home || l.kind == LevelKind::registers ||
           (l.kind == LevelKind::cache && l.managed == Managed::hardware &&
            l.behaviour.inclusion != Inclusion::inclusive);
  });
  if (!caches || level != m.default_level()) return m;
  Machine alone = m;
  alone.plan_level.clear();
  alone.levels = {m.level(m.home()), m.level(level)};
  alone.levels.back().filled_by.clear();
  return alone;
}

Subject subject_of(const Request& request, const ValidateOptions& options) {
  Subject s{.setting = setting_of(request)};
  if (request.model.value_or("chimera") != "chimera") {
    s.model = &find_model(*request.model);
    s.request = request;
    s.request.order.reset();  // which tilings are drawn, not which plan is priced
    s.request.progress = {};
    if (options.spill)
      throw InputError({.where = "--spill",
                        .value = *options.spill,
                        .problem = "is Chimera's",
                        .accepted = "--model chimera"});
  }
  if (s.setting.file || request.tree || request.tiles)
    throw InputError({.where = "validate",
                      .value = request.subject,
                      .problem = "is a plan, and the tilings are drawn",
                      .accepted = "a workload with --orders"});
  s.layout = layout_of(request);
  if (options.truth != "simulator") s.meter = &find_meter(options.truth, "--truth", "simulator");
  if (s.meter != nullptr && request.layout)
    throw InputError({.where = "--layout",
                      .value = *request.layout,
                      .problem = "is not what a built kernel has: its tensors are row-major",
                      .accepted = "--truth simulator"});
  s.exact_edges = chimera_options(request);
  if (!request.options.contains("edges")) s.exact_edges.edges = chimera::Edges::exact;
  if (options.spill)
    s.exact_edges.spilled.insert(intermediate_named(workload(s), *options.spill, "--spill"));
  s.full_edges = s.exact_edges;
  s.full_edges.edges = chimera::Edges::full;
  const Machine& m = *s.setting.machine;
  s.level = level_of(request, m);
  const auto steps = m.path(m.home(), s.level);
  TW_CHECK(!steps.empty(), "a level that nothing fills");
  s.boundary = m.boundary(steps.back().first, steps.back().second);
  s.capacity = capacity_of(request, s.setting, s.level);
  s.walked = std::make_shared<const Machine>(walked_machine(m, s.level));
  s.walked_level = s.walked->levels.size() == m.levels.size() ? s.level : s.walked->default_level();
  const auto walked_steps = s.walked->path(s.walked->home(), s.walked_level);
  TW_CHECK(!walked_steps.empty(), "a level that nothing fills");
  s.walked_boundary = s.walked->boundary(walked_steps.back().first, walked_steps.back().second);
  return s;
}

std::vector<chimera::Order> orders_of(const Subject& s, const ValidateOptions& options,
                                      const Request& request) {
  std::vector<chimera::Order> orders;
  for (const std::string& text : options.orders)
    orders.push_back(chimera::parse_order(workload(s), text));
  if (orders.empty() && request.order)
    orders.push_back(chimera::parse_order(workload(s), *request.order));
  if (orders.empty()) {
    const auto best = chimera::best_plan(workload(s), *s.setting.machine, s.level, s.exact_edges,
                                         Elements(s.capacity.value / size_of(workload(s).dtype())));
    if (best) orders.push_back(best->solution.order);
  }
  return orders;
}

/// Where the truth asked for is not to be had, why.
std::optional<std::string> no_truth(const std::string& truth) {
  if (truth == "simulator") return std::nullopt;
  if (auto why = absent(find_meter(truth, "--truth", "simulator"))) return why->text;
  return std::nullopt;
}

}  // namespace

Answer validate(const Request& request, const ValidateOptions& options) {
  check_model_options(request);
  if (on_gpu(options.truth)) return validate_cuda(request, options);
  if (options.truth == "emulator") return validate_npu(request, options);
  if (options.recorded)
    throw InputError({.where = "--recorded",
                      .value = *options.recorded,
                      .problem = "is not what this truth reads",
                      .accepted = "--truth ncu, cuda-events"});
  const auto absent = no_truth(options.truth);
  Subject s = subject_of(request, options);
  auto json = document();
  name_workload(json, s.setting);
  json["machine"] = s.setting.machine->name;
  json["model"] = s.model == nullptr ? "chimera" : s.model->name;
  json["truth"] = options.truth;
  json["command"] = command_of(request, options);
  if (absent) return refuse(std::move(json), *absent);
  json["boundary"] = s.boundary;
  json["level"] = s.setting.machine->level(s.level).name;
  json["capacity_bytes"] = s.capacity.value;
  json["spilled"] = options.spill ? ordered_json(*options.spill) : ordered_json(nullptr);
  json["layout"] = s.meter != nullptr ? "row-major" : name_of(s.layout);
  json["seed"] = request.seed;
  json["options"] = options_json(request, s.exact_edges);
  if (s.meter != nullptr) s.reference = reference_of(s.setting, request.seed);
  const auto orders = orders_of(s, options, request);
  if (orders.empty()) return refuse(std::move(json), "no order of the workload fits the level");

  const Elements whole(s.capacity.value / size_of(workload(s).dtype()));
  const Elements half(whole.value / 2);
  const std::int64_t min_tile = request.options.contains("min-tile")
                                    ? chimera_settings(request).integer("min-tile")
                                    : kMinTile;
  json["sampler"] = {{"law",
                      "uniform over the integer tilings with memory use of at most half the "
                      "capacity and no tile smaller than min_tile"},
                     {"min_tile", min_tile}};
  const auto block = [&](const SampleSpace& space, bool first, const std::string& what) {
    return evaluated(s, drawn(s, orders, options, request, space, first), request, options.once, what);
  };
  const SampleSpace inside{.most = half, .min_tile = min_tile};
  const auto within = block(inside, true, "simulating tilings");
  add_block(json, s, within);
  json["optimum"] = optimum_json(s, orders, inside, options.once);
  std::vector<Point> beyond, small;
  if (options.beyond) {
    const SampleSpace past{.least = half, .most = whole, .min_tile = min_tile};
    beyond = block(past, false, "simulating tilings past half the capacity");
    json["beyond"] = {{"law", "as the sampler's, with memory use past half the capacity"}};
    add_block(json["beyond"], s, beyond);
    json["beyond"]["optimum"] = optimum_json(s, orders, past, options.once);
    if (min_tile > 1) {
      small = block({.most = half, .min_tile = 1, .some_below = min_tile}, false,
                    "simulating tilings with small tiles");
      json["small_tiles"] = {{"law", "as the sampler's, with some tile smaller than min_tile"}};
      add_block(json["small_tiles"], s, small);
    }
  }
  if (options.csv)
    write_file(*options.csv,
               csv_of(s, {{"half", &within}, {"beyond", &beyond}, {"small_tiles", &small}}),
               "--csv");
  if (json["valid"] == 0)
    return refuse(std::move(json), within.empty()
                                       ? "no tiling fits half the capacity"
                                       : "no tiling could be evaluated: " + within.front().failure);
  if (options.min_r2)
    if (const auto why = below(agreement_of(within, &Point::predicted), *options.min_r2))
      return refuse(std::move(json), *why);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
