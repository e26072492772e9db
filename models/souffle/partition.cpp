// Subprograms: what can wait at a barrier of all blocks (section 5.4, Algorithm 1).
#include <algorithm>
#include <queue>

#include "core/base/format.h"
#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

constexpr std::int64_t kMostThreads = 2048;  // resident on a multiprocessor

/// Breadth first: an operator comes when the last of its producers has.
std::vector<OpId> breadth_first(const Workload& w) {
  std::vector<std::size_t> waiting(w.operators().size());
  std::queue<OpId> ready;
  for (OpId id : w.topological_order()) {
    std::set<OpId> producers;
    for (const Access& a : w.op(id).inputs)
      if (w.producer(a.tensor).valid()) producers.insert(w.producer(a.tensor));
    waiting[id.index()] = producers.size();
    if (producers.empty()) ready.push(id);
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    const OpId id = ready.front();
    ready.pop();
    order.push_back(id);
    std::set<OpId> readers;
    for (const Output& o : w.op(id).outputs)
      for (OpId r : w.consumers(o.target.tensor)) readers.insert(r);
    for (OpId r : readers)
      if (--waiting[r.index()] == 0) ready.push(r);
  }
  return order;
}

std::string why(const Workload& w, OpId op, const Tile& tile) {
  return formatted("{}: {} blocks of {} threads, {} registers a thread, {} bytes of shared memory",
                   w.op(op).name, tile.blocks, tile.threads, tile.registers, tile.shared.value);
}

}  // namespace

std::int64_t blocks_that_wait(const Device& d, const Workload& w, OpId op, const Options& o) {
  return o.global_sync && on_matrix_units(w, op) ? d.sms : 0;
}

Tile schedule_of(const Device& d, const Workload& w, OpId op, const Options& o, TileTable& tiles) {
  const std::string& name = w.op(op).name;
  auto given = o.schedules.find(name);
  if (given == o.schedules.end())
    given = o.schedules.find(name.substr(0, name.find_last_not_of("0123456789") + 1));
  if (given != o.schedules.end()) {
    const Resources& r = given->second;
    return {.blocks = r.blocks, .threads = r.threads, .registers = r.registers, .shared = r.shared};
  }
  TileAsked asked;
  if (o.global_sync) asked = {.most_blocks = blocks_that_wait(d, w, op, o), .warps = kWarps};
  const Slice one[] = {{.op = op}};
  const std::vector<Tile> found = tiles.of(d, w, one, asked);
  return found.empty() ? Tile() : found.front();
}

bool feasible(const Device& d, const Options& o, std::span<const Tile> schedules) {
  std::int64_t grid = 0, threads = 0, registers = 0, shared = 0;
  for (const Tile& t : schedules) {
    grid = std::max(grid, t.blocks);
    threads = std::max(threads, t.threads);
    registers = std::max(registers, t.threads * t.registers);
    shared = std::max(shared, t.shared.value);
  }
  if (grid == 0) return true;
  const bool strict = o.bound == Bound::strict;
  if (o.criterion == Criterion::total) {
    const auto within = [&](std::int64_t each, std::int64_t all) {
      return strict ? grid * each < all * d.sms : grid * each <= all * d.sms;
    };
    return within(registers, d.registers) && within(shared, d.shared.value);
  }
  std::int64_t resident = std::min(d.blocks, kMostThreads / std::max<std::int64_t>(1, threads));
  resident = std::min(resident, d.registers / std::max<std::int64_t>(1, registers));
  if (shared > 0) resident = std::min(resident, d.shared.value / shared);
  return strict ? grid < d.sms * resident : grid <= d.sms * resident;
}

std::vector<Subprogram> partition(const Workload& w, const Analysis& a, const Device& d,
                                  const Options& o) {
  const std::vector<OpId> order =
      o.order == Order::bfs
          ? breadth_first(w)
          : std::vector<OpId>(w.topological_order().begin(), w.topological_order().end());
  std::vector<Subprogram> out(1);
  std::vector<Tile> schedules;
  TileTable table;
  for (OpId id : order) {
    if (a.of[id.index()].intensive && o.split != Split::none) {
      Tile tile;
      if (w.is_contraction(id)) tile = schedule_of(d, w, id, o, table);
      schedules.push_back(tile);
      const bool opens =
          o.split == Split::contractions ? schedules.size() > 1 : !feasible(d, o, schedules);
      if (opens && !out.back().ops.empty()) {
        out.push_back(
            {.opened_by = o.split == Split::contractions ? w.op(id).name : why(w, id, tile)});
        schedules = {tile};
      }
    }
    out.back().ops.push_back(id);
  }
  return out;
}

}  // namespace tilewright::souffle
