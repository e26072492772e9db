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
#include "harness/meters.h"
#include "harness/schedules.h"
#include "harness/statistics.h"
#include "harness/validate_command.h"
#include "harness/validate_cuda.h"
#include "harness/validate_npu.h"
#include "harness/validated_points.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using namespace validation;

/// Tiles below this are drawn only by --beyond, in the block `small_tiles`: of tiles so small a
/// cache keeps the whole strip that they are cut from, and the premise that a tile is gone when the
/// loop that moves it comes round does not hold.
constexpr std::int64_t kMinTile = 4;

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
  evaluate(s, p, "optimum", once);
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
  check_model_options(request, standard_model().name);
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
