// validate: a model's prediction against the true bytes into the innermost level, over many plans:
// drawn in a model's notation, or a plan with its tiles redrawn.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "core/base/format.h"
#include "harness/ask.h"
#include "harness/iteration.h"
#include "harness/metered_kernel.h"
#include "harness/meters.h"
#include "harness/parallel.h"
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
/// cache keeps the whole strip that they are cut from, and the premise that a tile is gone when the
/// loop that moves it comes round does not hold.
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
  const Model* model = nullptr;   ///< predicts
  const Model* drawer = nullptr;  ///< says plans in its notation; null: tiles of `base` are redrawn
  std::optional<Plan> base = {};
  Question question = {};   ///< of the model
  Question drawn_for = {};  ///< of the drawer
  Settings settings;    ///< of the model, partial tiles at their size unless it is told otherwise
  Settings full_edges;  ///< of the model, partial tiles as full ones
  Settings drawer_settings;
  std::shared_ptr<const Machine> walked = {};  ///< what is simulated: see walked_machine
  LevelId walked_level = {};
  std::string walked_boundary = {};
  LevelId level = {};
  std::string boundary = {};
  Bytes capacity = {};
  Layout layout = Layout::tiled;
  const profilers::MeterRecord* meter = nullptr;  ///< the truth; null: the simulator
  std::optional<Reference> reference = {};        ///< with a meter: what kernels are verified on

  /// Whether partial tiles may be priced in two ways.
  bool has_edges() const { return find_option(model->options, "edges") != nullptr; }
};

struct Point {
  Words words;                      ///< text and tiles, for display where it is a plan
  Plan plan = {};                   ///< of the drawer's words it is made when it is evaluated
  ordered_json tiles = {};          ///< as they are shown
  std::int64_t predicted = 0;       ///< bytes, partial tiles at their size
  std::int64_t predicted_full = 0;  ///< bytes, full edges
  std::int64_t truth = 0;           ///< bytes towards the level
  // Not every truth counts these.
  std::optional<std::int64_t> written = {};  ///< bytes out of it
  std::optional<std::int64_t> resident_dirty = {};
  std::int64_t memory = 0;
  std::int64_t packing = 0;
  std::optional<std::int64_t> iteration = {};  ///< bytes: see harness/iteration.h
  // By tensor: what makes up `predicted`, and where it is known `truth`.
  std::map<std::string, std::int64_t> predicted_by = {}, truth_by = {};
  std::string failure = {};  ///< why it has no truth
};

const Workload& workload(const Subject& s) { return *s.setting.workload; }

/// The truth by a meter, of the plan's kernel on the whole machine. A Reason where there is none.
std::optional<Reason> metered(const Subject& s, Point& p) {
  const Machine& m = *s.setting.machine;
  const Result<Schedule> schedule = resolve(p.plan, s.setting.workload, s.setting.machine);
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
void simulated(const Subject& s, const Schedule& schedule, Point& p) {
  Simulated done{.finished = false};
  if (sure_touches(schedule) <= kMostTouches)
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

/// What the model predicts towards the level, by tensor. A cache that allocates on writes fills the
/// line of an output whether it is read or written next: its bytes towards the level are the larger
/// of the two. An intermediate that goes home is filled when it is written and again when it is
/// read. A model that counts such fills has them among what is read.
std::map<std::string, std::int64_t> towards_level(const Subject& s, const Price& price) {
  std::map<std::string, std::int64_t> by;
  for (const TrafficEntry& e : price.traffic.entries) {
    if (e.boundary != s.boundary) continue;
    const auto id = workload(s).find_tensor(e.tensor);
    const bool between = id && workload(s).is_intermediate(*id);
    const std::int64_t bytes = price.traffic.counts.write_allocate ? e.read.value
                               : between                           ? e.read.value + e.written.value
                                         : std::max(e.read.value, e.written.value);
    if (bytes != 0) by[e.tensor] += bytes;
  }
  return by;
}

std::int64_t sum_of(const std::map<std::string, std::int64_t>& by) {
  std::int64_t sum = 0;
  for (const auto& [tensor, bytes] : by) sum += bytes;
  return sum;
}

/// The model's price of a point's plan, in its own words where it has drawn them.
Result<Price> price_of(const Subject& s, const Point& p, const Settings& settings) {
  if (s.drawer != s.model) return s.model->price(s.question, p.plan, settings);
  Result<Proposal> said = s.model->written(s.question, p.words, settings);
  if (!said) return Reason{said.reason()};
  return std::move(said->price);
}

/// Makes the plan of a drawer's words. A Reason where there is none.
std::optional<Reason> make_plan(const Subject& s, Point& p) {
  if (s.drawer == nullptr) return std::nullopt;
  Result<Proposal> said = s.drawer->written(s.drawn_for, p.words, s.drawer_settings);
  if (!said) return Reason{said.reason()};
  p.plan = std::move(said->plan);
  // As the model shows them: in the order of its notation.
  if (said->price.detail.contains("tiles")) p.tiles = said->price.detail["tiles"];
  return std::nullopt;
}

/// Fills in everything but words, or the plan.
void evaluate(const Subject& s, Point& p) {
  if (!p.failure.empty()) return;
  if (const auto why = make_plan(s, p)) {
    p.failure = why->text;
    return;
  }
  const Result<Schedule> schedule = resolve(p.plan, s.setting.workload, s.walked);
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
  if (const auto bytes = iteration_bytes(*schedule)) p.iteration = bytes->value;
  const Result<Price> price = price_of(s, p, s.settings);
  if (!price) {
    p.failure = price.reason();
    return;
  }
  p.predicted_by = towards_level(s, *price);
  p.predicted_full = p.predicted = sum_of(p.predicted_by);
  if (s.has_edges())
    if (const Result<Price> full = price_of(s, p, s.full_edges))
      p.predicted_full = sum_of(towards_level(s, *full));
  if (s.meter == nullptr) return simulated(s, *schedule, p);
  if (const auto why = metered(s, p)) p.failure = why->text;
}

ordered_json number_json(const std::optional<std::int64_t>& n) {
  return n ? ordered_json(*n) : ordered_json(nullptr);
}

/// How a point is named: in the drawer's notation, or by its tree.
std::string text_key(const Subject& s) { return s.drawer ? s.drawer->notation : "tree"; }

ordered_json point_json(const Subject& s, const Point& p) {
  ordered_json json;
  json[text_key(s)] = p.words.text.value_or("");
  json["tiles"] = p.tiles;
  json["predicted_bytes"] = p.predicted;
  json["true_bytes"] = p.truth;
  if (s.has_edges()) json["predicted_full_edges_bytes"] = p.predicted_full;
  json["written_bytes"] = number_json(p.written);
  json["resident_dirty_bytes"] = number_json(p.resident_dirty);
  json["memory_bytes"] = p.memory;
  json["packing_bytes"] = p.packing;
  json["iteration_bytes"] = number_json(p.iteration);
  json["iteration_over_capacity"] =
      p.iteration && s.capacity.value > 0
          ? ordered_json(static_cast<double>(*p.iteration) / static_cast<double>(s.capacity.value))
          : ordered_json(nullptr);
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

/// The agreement of points by what one whole iteration needs of the capacity: where that is less
/// than all of it, a cache keeps what the model says is moved again.
ordered_json by_iteration_json(const Subject& s, const std::vector<Point>& points) {
  struct Range {
    const char* is;
    double from, below;
  };
  ordered_json rows = ordered_json::array();
  for (const Range& range :
       {Range{"1.5 and more", 1.5, INFINITY}, Range{"1 to 1.5", 1, 1.5}, Range{"below 1", 0, 1}}) {
    std::vector<Point> some;
    for (const Point& p : points) {
      if (!p.failure.empty() || !p.iteration) continue;
      const double ratio =
          static_cast<double>(*p.iteration) / static_cast<double>(s.capacity.value);
      if (ratio >= range.from && ratio < range.below) some.push_back(p);
    }
    rows.push_back({{"iteration_over_capacity", range.is}, {"points", some.size()}});
    rows.back().update(to_json(agreement_of(some, &Point::predicted)));
  }
  return rows;
}

/// asked, valid, failed, the figures, the points: the document's own keys and those of `beyond`.
void add_block(ordered_json& json, const Subject& s, const std::vector<Point>& points) {
  const auto failed = std::count_if(points.begin(), points.end(),
                                    [](const Point& p) { return !p.failure.empty(); });
  json["asked"] = points.size();
  json["valid"] = std::ssize(points) - failed;
  json["failed"] = failed;
  merge(json, to_json(agreement_of(points, &Point::predicted)));
  if (s.has_edges()) json["full_edges"] = to_json(agreement_of(points, &Point::predicted_full));
  json["by_iteration"] = by_iteration_json(s, points);
  json["points"] = ordered_json::array();
  json["failures"] = ordered_json::array();
  for (const Point& p : points) {
    if (p.failure.empty()) {
      json["points"].push_back(point_json(s, p));
    } else {
      json["failures"].push_back(
          {{text_key(s), p.words.text.value_or("")}, {"tiles", p.tiles}, {"reason", p.failure}});
    }
  }
}

std::optional<std::int64_t> number_from(const ordered_json& j) {
  return j.is_null() ? std::nullopt : std::optional(j.get<std::int64_t>());
}

/// evaluate, but for a tiling that was finished before.
void evaluate_once(const Subject& s, Point& p, const std::string& block, const Once& once) {
  const std::string key = formatted("{} {} {}", block, p.words.text.value_or(""), p.tiles.dump());
  const ordered_json found = once(key, [&] {
    evaluate(s, p);
    ordered_json json = point_json(s, p);
    json["predicted_full"] = p.predicted_full;
    json["predicted_by"] = p.predicted_by;
    json["truth_by"] = p.truth_by;
    json["failure"] = p.failure;
    return json;
  });
  p.tiles = found["tiles"];
  p.predicted = found["predicted_bytes"];
  p.predicted_full = found["predicted_full"];
  p.truth = found["true_bytes"];
  p.written = number_from(found["written_bytes"]);
  p.resident_dirty = number_from(found["resident_dirty_bytes"]);
  p.memory = found["memory_bytes"];
  p.packing = found["packing_bytes"];
  p.iteration = number_from(found["iteration_bytes"]);
  p.predicted_by = found["predicted_by"].get<std::map<std::string, std::int64_t>>();
  p.truth_by = found["truth_by"].get<std::map<std::string, std::int64_t>>();
  p.failure = found["failure"];
}

std::vector<Point> evaluated(const Subject& s, std::vector<Point> points, const Request& request,
                             const Once& once, const std::string& what) {
  // Hardware counters see what else the machine does: then one kernel at a time.
  const bool alone = s.meter != nullptr && !s.meter->valgrind;
  const auto work = [&](std::size_t i) {
    if (once)
      evaluate_once(s, points[i], what, once);
    else
      evaluate(s, points[i]);
  };
  parallel_for(points.size(), alone ? 1 : threads_of(request), work, request.progress, what);
  return points;
}

// ---- Drawing
// -------------------------------------------------------------------------------------

/// Which plans a block has. Bytes are of what the plan holds of the level.
DrawSpace space_of(const Subject& s, const ValidateOptions& options, const Request& request) {
  DrawSpace space{.most = Bytes(s.capacity.value / 2), .count = options.samples};
  const OptionSpec* least = s.drawer ? find_option(s.drawer->options, "min-tile") : nullptr;
  space.min_tile = least && s.drawer_settings.given("min-tile")
                       ? s.drawer_settings.integer("min-tile")
                       : kMinTile;
  space.texts = options.orders;
  if (space.texts.empty() && request.order) space.texts = {*request.order};
  if (space.texts == std::vector<std::string>{"all"} && s.drawer && s.drawer->texts)
    space.texts = s.drawer->texts(*s.setting.workload);
  if (options.spill) space.spilled = {*options.spill};
  return space;
}

Point point_of(const Plan& plan) {
  Point p{.plan = plan, .tiles = ordered_json::object()};
  std::vector<std::string> trees;
  for (const Kernel& k : plan.kernels) {
    trees.push_back(to_text(k.tree));
    for (const auto& [loop, size] : k.tiles) p.tiles[loop] = size;
  }
  p.words.text = join(trees, " | ");
  return p;
}

/// What the plan holds of the level; nothing where it is illegal.
std::optional<std::int64_t> held(const Subject& s, const Plan& plan) {
  const Result<Schedule> schedule = resolve(plan, s.setting.workload, s.walked);
  if (!schedule) return std::nullopt;
  const auto memory = memory_use(*schedule);
  const auto used = memory.find(s.walked->level(s.walked_level).name);
  return used == memory.end() ? 0 : used->second.value;
}

/// Plans with the tree of `base` and every tile drawn with equal probability from one to its loop's
/// extent, of those in the space; the base alone where it has no tiles.
std::vector<Point> redrawn(const Subject& s, const DrawSpace& space, std::uint64_t seed) {
  std::vector<Point> points;
  const auto tiled = [](const Kernel& k) { return !k.tiles.empty(); };
  if (std::ranges::none_of(s.base->kernels, tiled)) {
    points.push_back(point_of(*s.base));
    return points;
  }
  std::mt19937_64 random(seed);
  std::set<std::string> seen;
  for (std::int64_t i = 0; i < 200 * space.count && std::ssize(points) < space.count; ++i) {
    Plan plan = *s.base;
    std::map<std::string, std::int64_t> sizes;
    bool small = false;
    for (Kernel& k : plan.kernels)
      for (auto& [name, tile] : k.tiles) {
        const auto loop = workload(s).find_loop(name);
        if (!loop) continue;
        const std::int64_t extent = workload(s).loop(*loop).extent;
        const std::int64_t least = std::min(space.min_tile, extent);
        const auto range = static_cast<std::uint64_t>(extent - least + 1);
        const auto drawn = least + static_cast<std::int64_t>(random() % range);
        tile = sizes.emplace(name, drawn).first->second;
        small = small || tile < std::min(space.some_below, extent);
      }
    if (space.some_below > 0 && !small) continue;
    const auto bytes = held(s, plan);
    if (!bytes || *bytes <= space.least.value || *bytes > space.most.value) continue;
    Point p = point_of(plan);
    if (seen.insert(p.tiles.dump()).second) points.push_back(std::move(p));
  }
  return points;
}

Result<std::vector<Point>> drawn(const Subject& s, const DrawSpace& space) {
  if (s.drawer == nullptr) return redrawn(s, space, s.question.seed);
  const auto words = s.drawer->draw(s.drawn_for, space, s.drawer_settings);
  if (!words) return Reason{words.reason()};
  std::vector<Point> points;
  for (const DrawnPlan& one : *words)
    points.push_back({.words = one.words, .tiles = *one.words.tiles, .failure = one.illegal});
  return points;
}

/// The least that the model predicts for any plan of the space, and what that truly moves; null
/// where there is none, or the model does not draw its own plans.
ordered_json optimum_json(const Subject& s, DrawSpace space, const Once& once) {
  if (s.drawer != s.model) return nullptr;
  space.optimum = true;
  const auto best = drawn(s, space);
  if (!best || best->empty()) return nullptr;
  Point p = best->front();
  if (once)
    evaluate_once(s, p, "optimum", once);
  else
    evaluate(s, p);
  return p.failure.empty() ? point_json(s, p) : ordered_json(nullptr);
}

std::string csv_of(const Subject& s,
                   const std::vector<std::pair<const char*, const std::vector<Point>*>>& blocks) {
  std::set<std::string> tiled;
  for (const auto& [block, points] : blocks)
    for (const Point& p : *points)
      for (const auto& [loop, size] : p.tiles.items()) tiled.insert(loop);
  std::vector<std::string> loops;
  for (const Loop& l : workload(s).loops())
    if (tiled.contains(l.name)) loops.push_back(l.name);
  std::string csv = "block," + text_key(s);
  for (const std::string& l : loops) csv += ",tile_" + l;
  csv +=
      ",predicted_bytes,true_bytes,predicted_full_edges_bytes,written_bytes,resident_dirty_bytes,"
      "memory_bytes\n";
  for (const auto& [block, points] : blocks) {
    for (const Point& p : *points) {
      if (!p.failure.empty()) continue;
      std::string text = p.words.text.value_or("");
      std::replace(text.begin(), text.end(), ',', ' ');
      csv += std::string(block) + "," + text;
      for (const std::string& l : loops)
        csv += "," + (p.tiles.contains(l) ? p.tiles[l].dump() : "");
      for (const std::optional<std::int64_t>& v :
           {std::optional(p.predicted), std::optional(p.truth), std::optional(p.predicted_full),
            p.written, p.resident_dirty, std::optional(p.memory)})
        csv += "," + (v ? std::to_string(*v) : "");
      csv += "\n";
    }
  }
  return csv;
}

// ---- What is asked
// -------------------------------------------------------------------------------

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

/// Who says which plans are looked at: the request's plan, the model itself, the standard model
/// where the request has orders; else the model's own plan is redrawn. A Reason where it has none.
std::optional<Reason> choose_plans(Subject& s, const Request& request,
                                   const ValidateOptions& options) {
  s.base = plan_in_place(request, s.setting);
  const bool orders = !options.orders.empty() || request.order || options.spill;
  if (s.base && orders)
    throw InputError({.where = "--orders",
                      .value = options.orders.empty()
                                   ? request.order.value_or(options.spill.value_or(""))
                                   : options.orders.front(),
                      .problem = "are of a workload, and a plan is given",
                      .accepted = "the plan, whose tiles are redrawn, without them"});
  if (s.base) return std::nullopt;
  const Model* drawer = s.model->draw ? s.model : orders ? &standard_model() : nullptr;
  if (drawer != nullptr) {
    s.drawer = drawer;
    return std::nullopt;
  }
  if (s.model->propose == nullptr)
    throw InputError({.where = "--model",
                      .value = s.model->name,
                      .problem = "makes no plans whose tiles could be redrawn",
                      .accepted = "--orders beside a workload, or a plan"});
  Result<Proposal> own = s.model->propose(s.question, s.settings);
  if (!own) return Reason{own.reason()};
  rewrite(s.setting, own->rewrites, "--model " + s.model->name);
  s.question.workload = s.setting.workload;
  s.base = std::move(own->plan);
  return std::nullopt;
}

Subject subject_of(const Request& asked, const ValidateOptions& options) {
  Request request = asked;
  request.progress = {};
  const Model& model = request.model ? find_model(*request.model) : standard_model();
  if (model.price == nullptr)
    throw InputError({.where = "--model",
                      .value = model.name,
                      .problem = model.no_price.empty() ? "prices no plan" : model.no_price,
                      .accepted = "a model that prices plans"});
  Subject s{.setting = setting_of(request),
            .model = &model,
            .settings = settings_with(request, model, "edges", "exact"),
            .full_edges = settings_with(request, model, "edges", "full", true),
            .drawer_settings = settings_with(request, standard_model(), "edges", "exact")};
  if (model.draw) s.drawer_settings = s.settings;
  if (options.spill && !model.draw)
    throw InputError({.where = "--spill",
                      .value = *options.spill,
                      .problem = "needs a model that draws plans in its own notation",
                      .accepted = "--model " + standard_model().name});
  s.layout = layout_of(request);
  if (options.truth != "simulator") s.meter = &find_meter(options.truth, "--truth", "simulator");
  if (s.meter != nullptr && request.layout)
    throw InputError({.where = "--layout",
                      .value = *request.layout,
                      .problem = "is not what a built kernel has: its tensors are row-major",
                      .accepted = "--truth simulator"});
  const Machine& m = *s.setting.machine;
  s.level = level_of(request, m);
  s.question = question_of(request, s.setting, model);
  s.question.level = s.level;
  s.boundary = boundary_into(m, s.level);
  TW_CHECK(!s.boundary.empty(), "a level that nothing fills");
  s.capacity = capacity_of(request, s.setting, s.level);
  s.walked = std::make_shared<const Machine>(walked_machine(m, s.level));
  s.walked_level = s.walked->levels.size() == m.levels.size() ? s.level : s.walked->default_level();
  s.walked_boundary = boundary_into(*s.walked, s.walked_level);
  return s;
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
                      .problem = "cannot be used with this --truth, which reads no recording",
                      .accepted = "--truth ncu, cuda-events"});
  const auto absent = no_truth(options.truth);
  Subject s = subject_of(request, options);
  auto json = document();
  name_workload(json, s.setting);
  json["machine"] = s.setting.machine->name;
  json["model"] = s.model->name;
  json["truth"] = options.truth;
  json["command"] = command_of(request, options);
  if (absent) return refuse(std::move(json), *absent);
  json["boundary"] = s.boundary;
  json["level"] = s.setting.machine->level(s.level).name;
  json["capacity_bytes"] = s.capacity.value;
  json["spilled"] = options.spill ? ordered_json(*options.spill) : ordered_json(nullptr);
  json["layout"] = s.meter != nullptr ? "row-major" : name_of(s.layout);
  json["seed"] = request.seed;
  json["options"] = s.settings.to_json();
  if (const auto why = choose_plans(s, request, options)) return refuse(std::move(json), why->text);
  name_workload(json, s.setting);
  s.drawn_for = s.question;
  if (s.meter != nullptr) s.reference = reference_of(s.setting, request.seed);

  const DrawSpace inside = space_of(s, options, request);
  const std::string law =
      s.drawer ? "uniform over the integer tilings with memory use of at most half the "
                 "capacity and no tile smaller than min_tile"
               : "tiles of one tree, each uniform from min_tile to its loop's extent, with memory "
                 "use of at most half the capacity";
  json["sampler"] = {{"law", law}, {"min_tile", inside.min_tile}};
  const auto block = [&](const DrawSpace& space, const std::string& what) {
    auto points = drawn(s, space);
    return evaluated(s, points ? std::move(points).value() : std::vector<Point>(), request,
                     options.once, what);
  };
  if (s.drawer != nullptr) {
    DrawSpace none = inside;
    none.count = 0;
    if (const auto any = drawn(s, none); !any) return refuse(std::move(json), any.reason());
  }
  const auto within = block(inside, "simulating tilings");
  add_block(json, s, within);
  json["optimum"] = optimum_json(s, inside, options.once);
  std::vector<Point> beyond, small;
  if (options.beyond) {
    DrawSpace past = inside;
    // Blocks other than the first are a quarter as large, at least eight.
    past.count = std::min(options.samples, std::max<std::int64_t>(8, options.samples / 4));
    DrawSpace tiny = past;
    past.least = inside.most;
    past.most = s.capacity;
    beyond = block(past, "simulating tilings past half the capacity");
    json["beyond"] = {{"law", "as the sampler's, with memory use past half the capacity"}};
    add_block(json["beyond"], s, beyond);
    json["beyond"]["optimum"] = optimum_json(s, past, options.once);
    if (inside.min_tile > 1) {
      tiny.min_tile = 1;
      tiny.some_below = inside.min_tile;
      small = block(tiny, "simulating tilings with small tiles");
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
