// A kernel that no plan can say with units: loops that a block runs one after the other, tiles in
// shared memory. Its price is that of kernels of blocks (core/lowering/gpu/block_time.h).
#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "core/base/format.h"
#include "core/lowering/gpu/block_time.h"
#include "core/workload/subgraph.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr std::int64_t kMostRowsOfBlock = 1024;
constexpr double kAllBytes = 1e18;  // of a program of which a cache keeps nothing

/// Times of trees of some operators: of a plan of them alone or, where they are no part (operators
/// that a running reduction ties to others), of the whole workload, the others one by one.
class BlockPrices {
 public:
  /// A Reason where the machine's file lacks a number.
  static Result<BlockPrices> of(const Graph& g, const Device& d, const Pattern& p) {
    if (d.machine == nullptr) return Reason{"no machine file is given"};
    Result<lowering::BlockRates> rates = lowering::block_rates(*d.machine, g.workload().dtype());
    if (!rates) return Reason{rates.reason()};
    BlockPrices out;
    out.rates_ = std::move(rates).value();
    out.machine_ = d.machine;
    out.working_set_ = d.working_set > 0 ? d.working_set : kAllBytes;
    std::vector<OpId> ops;
    for (int v : p) ops.push_back(g.vertex(v).op);
    out.workload_ = g.shared_workload();
    if (no_subgraph(g.workload(), ops))
      out.add_others(g, p);
    else
      out.workload_ = std::make_shared<const Workload>(subgraph(g.workload(), ops));
    return out;
  }

  Result<lowering::BlockTime> of(const Node& tree) const {
    Plan plan;
    const auto add = [&plan](const Node& n) {
      plan.kernels.push_back({.name = formatted("k{}", plan.kernels.size()), .tree = n});
    };
    std::ranges::for_each(before_, add);
    add(tree);
    std::ranges::for_each(after_, add);
    const Result<Schedule> schedule = resolve(plan, workload_, machine_);
    if (!schedule) return Reason{schedule.reason()};
    return lowering::block_time(*schedule, static_cast<int>(before_.size()), rates_,
                                {.working_set = working_set_});
  }

 private:
  void add_others(const Graph& g, const Pattern& p) {
    std::vector<Pattern> all = {p};
    for (int v = 0; v < g.size(); ++v)
      if (!std::ranges::binary_search(p, v)) all.push_back({v});
    std::vector<Node>* where = &before_;
    for (const Pattern& kernel : launch_order(g, std::move(all)))
      if (kernel == p)
        where = &after_;
      else if (const auto parts = components_of(g, kernel, 1))
        where->push_back(tree_without_units(g, {.component = parts->front()}));
  }

  lowering::BlockRates rates_;
  std::shared_ptr<const Workload> workload_;
  std::shared_ptr<const Machine> machine_;
  double working_set_ = 0;
  std::vector<Node> before_, after_;  ///< trees of kernels
};

/// The part with so many rows a block as take the least time.
Result<Stitched> tiled(const Graph& g, const Device& d, Stitched s) {
  const auto prices = BlockPrices::of(g, d, s.component.vertices);
  if (!prices) return Reason{prices.reason()};
  const auto most = std::min(kMostRowsOfBlock, static_cast<std::int64_t>(s.component.row_count));
  std::optional<Stitched> best;
  double least = std::numeric_limits<double>::infinity();
  std::string why;
  Node before;
  for (s.rows_per_block = 1; s.rows_per_block <= most; s.rows_per_block *= 2) {
    Node tree = tree_without_units(g, s);
    if (tree == before) break;
    const auto time = prices->of(tree);
    before = std::move(tree);
    if (!time && why.empty()) why = time.reason();
    if (!time || time->seconds >= least) continue;
    best = s;
    least = time->seconds;
    best->blocks = time->phases.empty() ? 1 : time->phases.front().blocks;
    best->registers = time->registers;
    best->shared_bytes = best->shared_unshared_bytes = time->shared;
    best->cycles_per_warp = time->seconds * d.clock_hz;
  }
  if (!best) return Reason{std::move(why)};
  return *std::move(best);
}

}  // namespace

Result<StitchedKernel> without_units(const Graph& g, const Device& d, const Pattern& p,
                                     const Options& o, std::string why) {
  const auto parts = components_of(g, p, o.most_operators);
  if (!parts) return Reason{"the operators cannot be one kernel"};
  std::vector<Stitched> chosen;
  Node pack;
  pack.kind = Node::Kind::pack;
  for (const Component& c : *parts) {
    Stitched s{.component = c, .groups = Part(g, d, c, o).groups()};
    for (Group& group : s.groups) group.scheme = Scheme::block;
    auto t = tiled(g, d, std::move(s));
    if (!t) return Reason{t.reason()};
    pack.children.push_back(tree_without_units(g, *t));
    chosen.push_back(std::move(t).value());
  }
  const auto prices = BlockPrices::of(g, d, p);
  if (!prices) return Reason{prices.reason()};
  const auto time = prices->of(chosen.size() == 1 ? pack.children.front() : pack);
  if (!time) return Reason{time.reason()};
  StitchedKernel k = put_together(g, d, o, std::move(chosen), time->threads);
  k.seconds = time->seconds;
  for (Stitched& s : k.parts)
    s.demand = {.blocks = static_cast<double>(s.blocks),
                .warps = static_cast<double>(time->warps),
                .meets = true,
                .shared_bytes = s.shared_bytes,
                .registers = static_cast<double>(s.registers)};
  k.without_units = std::move(why);
  k.schedules = 1;
  return k;
}

}  // namespace tilewright::stitching
