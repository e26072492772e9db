// The latency-evaluator: what a schedule needs of an SM, and the cycles of its warps.
#include <cmath>

#include "core/base/effort.h"
#include "core/lowering/gpu/thread_program.h"
#include "models/stitching/alike.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr std::int64_t kAddressing = 8;  // registers beside the values: indices, pointers (assumed)
constexpr std::int64_t kMostRegisters = 255;  // of a thread: CUDA C++ Programming Guide

bool has(std::span<const int> vertices, int v) {
  return std::binary_search(vertices.begin(), vertices.end(), v);
}

std::int64_t words(const Vertex& v) { return (v.row_bytes + 3) / 4; }

bool place_first(const Stitched& s, const Group& g, int v) {
  for (const Group& other : s.groups) {
    if (&other == &g) return true;
    if (has(other.vertices, v)) return false;
  }
  return true;
}

}  // namespace

std::int64_t occupancy(const Device& d, std::int64_t registers, std::int64_t shared,
                       std::int64_t threads) {
  std::int64_t blocks = std::min(d.blocks_per_sm, d.threads_per_sm / threads);
  blocks = std::min(blocks, d.registers_per_sm / (registers * threads));
  if (shared > 0) blocks = std::min(blocks, d.shared_per_sm / shared);
  return blocks * (threads / kWarp) * d.sms;
}

double resident_blocks(const Device& d, const Demand& w, std::int64_t shared) {
  const auto threads = static_cast<std::int64_t>(w.warps) * kWarp;
  const auto registers = 8 * ceil_div(static_cast<std::int64_t>(w.registers), std::int64_t{8});
  const std::int64_t warps = occupancy(d, std::min(registers, kMostRegisters), shared, threads);
  return std::max(1.0, static_cast<double>(warps) / w.warps / static_cast<double>(d.sms));
}

Demand largest_of(std::span<const Demand> parts) {
  Demand largest;
  for (const Demand& p : parts) {
    largest.warps = std::max(largest.warps, p.warps);
    largest.registers = std::max(largest.registers, p.registers);
  }
  return largest;
}

// ---- Resources
// ------------------------------------------------------------------------------------

void Part::rows_and_blocks(Stitched& s, std::int64_t threads) const {
  s.rows_per_block = 1;
  for (const Group& g : s.groups)
    s.rows_per_block = std::max(s.rows_per_block, g.scheme == Scheme::thread ? threads
                                                  : g.scheme == Scheme::warp ? threads / kWarp
                                                                             : 1);
  const bool columns = columns_ && s.groups.front().scheme == Scheme::thread;
  if (columns) s.rows_per_block = kWarp;  // a block's warps share its columns' points
  if (points_ || columns) s.rows_per_block *= s.vector * s.turns * s.across;
  if (s.window_along > 0) s.rows_per_block *= s.window_along * s.window_down * s.window_beside;
  if (!c_.partial.empty()) return runs_and_blocks(s);
  s.rows_per_block =
      static_cast<std::int64_t>(std::min(static_cast<double>(s.rows_per_block), c_.row_count));
  s.blocks = s.splits * static_cast<std::int64_t>(
                            ceil_over(c_.row_count, static_cast<double>(s.rows_per_block)));
  s.added_bytes = 0;
  if (s.splits > 1)
    for (int v : c_.vertices)
      if (!g_.vertex(v).reduced.empty())
        s.added_bytes +=
            s.splits * static_cast<std::int64_t>(c_.row_count * tile(v)) * g_.vertex(v).row_bytes;
}

void Part::runs_and_blocks(Stitched& s) const {
  const std::int64_t rows = g_.extent(run_loop(g_, c_));
  s.rows_per_block = std::min(s.rows_per_block * s.rows_in_turn, rows);
  s.blocks = static_cast<std::int64_t>(c_.row_count) / rows * ceil_div(rows, s.rows_per_block);
  s.added_bytes = s.blocks * added_bytes(g_, c_);
}

/// What a block of a written schedule asks for; none: no threads can do as its tree says.
std::optional<Demand> Part::demand(const BoundTree& tree, const std::string& text) const {
  Graph::Priced& priced = g_.priced_on(d_.machine);
  const auto [at, fresh] = priced.schedules->try_emplace(text);
  AskedSchedule& known = at->second;
  const auto listed = [&] {
    if (priced.listed != nullptr) (*priced.listed)[c_.vertices].emplace(known.tree, known.effort);
    return known.demand;
  };
  if (!fresh) return listed();
  const auto [part, unseen] = priced.parts.try_emplace(c_.vertices);
  if (unseen)
    part->second = std::make_shared<const NamelessPart>(NamelessPart::of(g_, d_, c_.vertices));
  const std::shared_ptr<const Workload>& own = part->second->part;
  if (own == nullptr) return std::nullopt;
  known = part->second->demand(tree, [&]() -> std::optional<Demand> {
    Plan plan;
    plan.kernels.push_back(
        {.name = "part", .level = "registers", .tree = tree.tree, .pins = tree.pins});
    const Result<Schedule> schedule = resolve(plan, own, d_.machine);
    if (!schedule) return std::nullopt;
    const auto program = lowering::lower(*schedule, 0);
    if (!program) return std::nullopt;
    Demand asked = demands_of(g_, c_.vertices, d_, *program).front();
    asked.shared_bytes = program->shared_bytes;
    asked.warp_cycles = warp_cycles(g_, c_.vertices, d_, *program);
    return asked;
  });
  priced.spend(c_.vertices, known.tree, known.effort);
  return listed();
}

/// Rows a block, registers, shared memory. False where they do not fit.
bool Part::place(Stitched& s, std::int64_t threads) const {
  rows_and_blocks(s, threads);
  s.registers = registers(s);
  if (!s.written) return place_shared(s, threads) && fits(s, threads);
  const auto tree = bound_tree(g_, d_, s, threads);
  return tree && place_written(s, *tree, text_of(*tree)) && fits(s, threads);
}

bool Part::place(Candidate& c) const {
  Effort::spend(static_cast<std::int64_t>(c_.vertices.size()));
  c.schedule.registers = registers(c.schedule);
  return place_written(c.schedule, c.tree, c.text) && fits(c.schedule, c.threads);
}

bool Part::fits(const Stitched& s, std::int64_t threads) const {
  return s.shared_bytes <= d_.shared_per_sm && s.registers <= kMostRegisters &&
         occupancy(d_, s.registers, s.shared_bytes, threads) > 0;
}

/// As the kernel's threads have it.
bool Part::place_written(Stitched& s, const BoundTree& tree, const std::string& text) const {
  const std::optional<Demand> demand = this->demand(tree, text);
  if (!demand) return false;
  s.demand = *demand;
  s.registers += tree.kept;
  s.shared_bytes = s.shared_unshared_bytes = demand->shared_bytes;
  s.cycles_per_warp = demand->warp_cycles;
  s.recomputed = 1;
  return true;
}

/// As the paper's schedules have it.
bool Part::place_shared(Stitched& s, std::int64_t threads) const {
  std::vector<SharedRequest> requests;
  std::int64_t partials = 0;
  for (const Group& g : s.groups) {
    const Vertex& root = g_.vertex(g.root);
    if (g.scheme == Scheme::block && root.kind == Kind::reduction)
      partials = std::max(partials, threads / kWarp * root.row_bytes);
    if (!g.sub_root || g.scheme != Scheme::block) continue;
    const double bytes = tile(g.root) * static_cast<double>(s.rows_per_block * root.row_bytes);
    if (bytes > static_cast<double>(d_.shared_per_sm)) return false;
    requests.push_back({g.root, static_cast<std::int64_t>(bytes), {}});
    each_reader(s, g.root, [&](const Group& r) { requests.back().readers.push_back(r.root); });
  }
  s.shared_unshared_bytes = partials;
  for (const SharedRequest& r : requests) s.shared_unshared_bytes += r.bytes;
  s.shared_bytes = share(g_, c_.vertices, requests).bytes + partials;
  return true;
}

/// The most values alive at once in a thread: a value lives from its operator to the last that
/// reads it in the group; a sub-root's in registers, to the last group that does.
std::int64_t Part::registers(const Stitched& s) const {
  std::int64_t most = 0;
  for (std::size_t at = 0; at < s.groups.size(); ++at) {
    std::int64_t across = 0;
    for (std::size_t i = 0; i < at; ++i) {
      const Group& from = s.groups[i];
      if (!from.sub_root || from.scheme == Scheme::block) continue;
      bool later = false;
      each_reader(s, from.root, [&](const Group& r) { later = later || &r >= &s.groups[at]; });
      if (later) across += words(g_.vertex(from.root));
    }
    most = std::max(most, across + within(s.groups[at]));
  }
  return kAddressing + most * s.vector * s.across;
}

std::int64_t Part::within(const Group& g) const {
  std::vector<std::int64_t> alive(g.vertices.size() + 1);
  const auto at = [&g](int v) {
    return static_cast<std::size_t>(std::ranges::lower_bound(g.vertices, v) - g.vertices.begin());
  };
  for (std::size_t i = 0; i < g.vertices.size(); ++i) {
    const Vertex& v = g_.vertex(g.vertices[i]);
    std::size_t last = i;
    for (int c : v.consumers)
      if (has(g.vertices, c)) last = std::max(last, at(c));
    for (std::size_t t = i; t <= last; ++t) alive[t] += words(v);
    alive[i] += static_cast<std::int64_t>(g_.workload().op(v.op).inputs.size());  // being read
  }
  return *std::ranges::max_element(alive);
}

// ---- Latency
// --------------------------------------------------------------------------------------

/// Times that a warp goes through `points` points of each of a block's rows.
double Part::rounds(const Stitched& s, Scheme scheme, double points, std::int64_t threads) const {
  const auto rows = static_cast<double>(s.rows_per_block), wide = static_cast<double>(threads);
  switch (scheme) {
    case Scheme::thread:
      return ceil_over(rows, wide) * points;
    case Scheme::warp:
      return ceil_over(rows, wide / kWarp) * ceil_over(points, kWarp);
    case Scheme::block:
      return rows * ceil_over(points, wide);
  }
  return 0;
}

/// Points of a row at which a group computes each of its operators: where its readers do, once
/// for those that read at the same index, again for each other index; once where it is the row's.
std::vector<double> Part::evaluations(const Group& g) const {
  std::vector<double> out(g.vertices.size());
  for (std::size_t i = g.vertices.size(); i-- > 0;) {
    const int v = g.vertices[i];
    double aligned = 0, others = 0;
    for (int e : g_.vertex(v).out) {
      const Edge& edge = g_.edge(e);
      if (!has(g.vertices, edge.to)) continue;
      const auto to = static_cast<std::size_t>(std::ranges::lower_bound(g.vertices, edge.to) -
                                               g.vertices.begin());
      if (edge.bad.empty())
        aligned = std::max(aligned, out[to]);
      else
        others += out[to];
    }
    out[i] = inner(v) <= 1 ? 1 : aligned + others > 0 ? aligned + others : inner(v);
  }
  return out;
}

/// As the paper's: an operator in each group that needs it, what it reads from home with it.
void Part::cost(Stitched& s, std::int64_t threads) const {
  double cycles = 0, computed = 0, points = 0;
  std::vector<bool> stored(c_.vertices.size());
  for (const Group& g : s.groups) {
    const std::vector<double> evaluated = evaluations(g);
    for (std::size_t i = 0; i < g.vertices.size(); ++i) {
      const int v = g.vertices[i];
      const Vertex& x = g_.vertex(v);
      double each = static_cast<double>(x.light) * d_.light +
                    static_cast<double>(x.expensive) * d_.expensive +
                    static_cast<double>(x.outside_inputs) * d_.global;
      double once = 0;  // a row: values that do not change within it
      for (int e : x.in) read(s, g, g_.edge(e).from, each, once);
      if (written_home(v) && !stored[place_of(v)]) {
        stored[place_of(v)] = true;
        const double stores = static_cast<double>(x.outputs) * d_.global;
        (x.kind == Kind::reduction ? once : each) += stores;
      }
      cycles += rounds(s, g.scheme, evaluated[i], threads) * each +
                rounds(s, g.scheme, 1, threads) * once;
      computed += evaluated[i] * c_.row_count;
      if (place_first(s, g, v)) points += g_.points(x.loops);
    }
    cycles += exchange(s, g, threads);
  }
  s.cycles_per_warp = cycles;
  s.recomputed = points > 0 ? computed / points : 1;
}

/// Adds what reading a producer's value takes, where it is none of the group's own.
void Part::read(const Stitched& s, const Group& own, int from, double& each, double& once) const {
  if (has(own.vertices, from)) return;
  if (!in(from)) {
    each += d_.global;
    return;
  }
  for (const Group& g : s.groups) {
    if (g.root != from || !g.sub_root) continue;
    const double cycles = g.scheme == Scheme::block  ? d_.shared
                          : g.scheme == Scheme::warp ? d_.shuffle
                                                     : 0;
    (tile(from) > 1 ? each : once) += cycles;
  }
}

/// Combining partial results, and handing on a sub-root's value.
double Part::exchange(const Stitched& s, const Group& g, std::int64_t threads) const {
  const double tree = 5 * (d_.shuffle + d_.light);
  const Vertex& root = g_.vertex(g.root);
  const auto rows = static_cast<double>(s.rows_per_block);
  const double results = rounds(s, g.scheme, 1, threads) * tile(g.root);
  double cycles = 0;
  if (root.kind == Kind::reduction && g.scheme == Scheme::warp) cycles += results * tree;
  if (root.kind == Kind::reduction && g.scheme == Scheme::block)
    cycles += results * (2 * tree + 2 * d_.shared) + 2 * rows * d_.barrier;
  if (g.sub_root && g.scheme == Scheme::block)
    cycles += rounds(s, g.scheme, tile(g.root), threads) * d_.shared + d_.barrier;
  return cycles;
}

}  // namespace tilewright::stitching
