// Chimera over an NPU's paths: Cost_d of every path, and its largest.
#include <algorithm>
#include <random>

#include "models/chimera/model.h"

namespace tilewright::chimera {

using nlohmann::ordered_json;

namespace {

/// paths, volume_bytes (into the default level), the costs, memory.
ordered_json paths_json(const PathPlan& plan, const Machine& m) {
  ordered_json json;
  json["paths"] = ordered_json::array();
  const std::string boundary = boundary_into(m, m.default_level());
  std::int64_t volume = 0;
  for (const PathCost& c : plan.costs) {
    ordered_json cost = {{"kernel", c.kernel}, {"path", c.boundary}, {"seconds", c.seconds}};
    if (c.boundary == "cube")
      cost["operations"] = c.bytes.value;
    else
      cost["bytes"] = c.bytes.value, cost["bandwidth_bytes_per_second"] = c.bandwidth;
    if (c.boundary == boundary) volume += c.bytes.value;
    json["paths"].push_back(std::move(cost));
  }
  json["volume_bytes"] = volume;
  json["seconds"] = plan.largest;
  json["cost_largest"] = plan.largest;
  json["cost_sum"] = plan.sum;
  json["blocks"] = plan.blocks;
  json["memory"] = memory_json(plan.memory);
  return json;
}

tilewright::Price priced(const PathPlan& plan, const Machine& m) {
  tilewright::Price out;
  out.traffic = plan.traffic;
  out.detail = paths_json(plan, m);
  out.traffic.by = "chimera";
  out.traffic.seconds = plan.largest;
  return out;
}

constexpr std::int64_t kLanes = 16;
constexpr int kTries = 1000;  // of blocks that do not fit, for each point

class Drawer {
 public:
  Drawer(const Question& q, const CubeChain& chain)
      : w_(*q.workload), q_(q), chain_(chain), random_(q.seed) {}

  /// Blocks whose plan fits and is taken, with that plan; nothing after many tries.
  std::optional<std::pair<PathBlocks, Plan>> draw(const DrawSpace& space) {
    for (int i = 0; i < kTries; ++i) {
      const PathBlocks drawn = blocks();
      const Result<Plan> plan = plan_of(w_, drawn);
      if (!plan) return std::nullopt;
      const Result<Schedule> schedule = resolve(*plan, q_.workload, q_.machine);
      if (!schedule || misfit(*schedule) || (space.accepts && !space.accepts(*schedule))) continue;
      return std::pair(drawn, *plan);
    }
    return std::nullopt;
  }

 private:
  std::int64_t extent(LoopId l) const { return w_.loop(l).extent; }
  std::int64_t up_to(std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(random_);
  }
  /// A multiple of 16 no larger than what covers `whole`; clipped to it.
  std::int64_t part_of(std::int64_t whole, std::int64_t most = 256) {
    return std::min(whole, kLanes * up_to(ceil_div(std::min(whole, most), kLanes)));
  }
  CubeTile tile(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    return {.rows = part_of(rows, 128), .columns = part_of(columns, 128), .depth = part_of(depth, 64)};
  }
  PathBlocks blocks() {
    PathBlocks b;
    b.rows = part_of(extent(chain_.first.rows));
    b.columns = part_of(extent(chain_.first.columns));
    b.depth = part_of(extent(chain_.first.depth));
    b.first = tile(b.rows, b.columns, b.depth);
    if (!chain_.second) return b;
    b.second_columns = part_of(extent(chain_.second->columns));
    b.second = tile(b.rows, b.second_columns, b.columns);
    return b;
  }

  const Workload& w_;
  const Question& q_;
  const CubeChain& chain_;
  std::mt19937_64 random_;
};

/// Algorithm 1's price: the order in which the plan's blocks come.
Price predicted(const Workload& w, const CubeChain& c,
                       const PathBlocks& b) {
  Order order = {c.first.rows};
  Tiles tiles;
  for (const Loop& l : w.loops()) tiles.push_back(l.extent);
  for (LoopId l : c.first.batch) {
    tiles[l.index()] = 1;
    if (!w.is_batch(l)) order.insert(order.begin(), l);
  }
  for (LoopId l : c.first.sums) tiles[l.index()] = 1;
  tiles[c.first.rows.index()] = b.rows;
  tiles[c.first.columns.index()] = b.columns;
  tiles[c.first.depth.index()] = b.depth;
  if (c.second) tiles[c.second->columns.index()] = b.second_columns;
  const bool again = c.second && b.second_columns < w.loop(c.second->columns).extent;
  if (again) order.push_back(c.second->columns);
  order.push_back(c.first.columns);
  order.insert(order.end(), c.first.sums.begin(), c.first.sums.end());
  order.push_back(c.first.depth);
  if (c.second && !again) order.push_back(c.second->columns);
  const Options options{.reading = Reading::trip_one,
                                 .edges = Edges::exact};
  return chimera::price(w, order, tiles, options);
}

}  // namespace

bool over_paths(const Question& q) {
  return q.machine->npu_core &&
         (q.all_levels || (q.needs.every_level && !q.level));
}

Result<Proposal> propose_paths(const Question& q) {
  if (q.room)
    throw InputError({.where = "--capacity",
                      .value = std::to_string(q.room->value) + "B",
                      .problem = "is of one level",
                      .accepted = "a plan over an NPU's paths without it"});
  Result<PathPlan> best = best_paths(*q.workload, q.machine, {});
  if (!best) return Reason{best.reason()};
  Proposal out;
  out.plan = best->plan;
  out.level = q.machine->default_level();
  out.all_levels = q.all_levels;
  out.price = priced(*best, *q.machine);
  out.search_seconds = best->seconds;
  out.detail = paths_json(*best, *q.machine);
  out.detail["search_seconds"] = best->seconds;
  out.detail["candidates"] = best->counted;
  return out;
}

Result<tilewright::Price> price_paths(const Question& q, const Plan& plan) {
  const Result<PathPlan> p = price_paths(plan, q.workload, q.machine, {});
  if (!p) return Reason{p.reason()};
  return priced(*p, *q.machine);
}

Result<std::vector<DrawnPlan>> draw_paths(const Question& q, const DrawSpace& space) {
  const Workload& w = *q.workload;
  const Result<CubeChain> chain = cube_chain(w);
  if (!chain) return Reason{chain.reason()};
  Drawer drawer(q, *chain);
  std::vector<DrawnPlan> drawn;
  for (std::int64_t i = 0; i < space.count; ++i) {
    auto one = drawer.draw(space);
    if (!one) continue;
    DrawnPlan& to = drawn.emplace_back();
    const Price said = predicted(w, *chain, one->first);
    to.plan = std::move(one->second);
    to.price.emplace();
    to.price->traffic.by = "chimera";
    for (const TensorPrice& t : said.tensors)
      to.price->traffic.entries.push_back(
          {.tensor = w.tensor(t.tensor).name,
           .boundary = boundary_into(*q.machine, q.machine->default_level()),
           .read = tilewright::bytes_of(t.movement, w.tensor(t.tensor).dtype)});
  }
  return drawn;
}

}  // namespace tilewright::chimera
