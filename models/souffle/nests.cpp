// Which operators the same blocks compute, and in which phase (sections 6.1 to 6.4).
#include <algorithm>
#include <functional>
#include <map>

#include "core/workload/bytes_read.h"
#include "models/souffle/souffle.h"

namespace tilewright::souffle {

bool Nest::has(OpId op) const {
  return std::ranges::find(others, op) != others.end() ||
         std::ranges::any_of(sums, [&](const Sum& s) { return s.op == op; });
}

std::vector<OpId> Nest::ops() const {
  std::vector<OpId> out;
  for (const Sum& s : sums) out.push_back(s.op);
  out.insert(out.end(), others.begin(), others.end());
  return out;
}

bool may_sum_over_blocks(const Workload& w, const Options& o, OpId op) {
  return o.reduction != Reduction::local &&
         std::ranges::all_of(w.op(op).outputs, [&](const Output& out) {
           const DType t = w.tensor(out.target.tensor).dtype;
           return out.combine == Combine::sum && t != DType::i8 && t != DType::i32;
         });
}

double seconds_of_parts(const Workload& w, const Device& d, const Options& o,
                        std::span<const OpId> sums, std::int64_t parts, bool waits) {
  // Elements of 16 bits that all blocks add a second, one at a time: of one case, a
  // BERT layer whose second product of the feed-forward network takes 43 us more in four parts on
  // an H200 than whole. Ten drawn sums (experiments/gpu/half_sums, h200-half-sums.json) reach
  // 2.5e10 to 1.5e11, the smallest the least.
  constexpr double kHalves = 2.7e10;
  double bytes = 0, halves = 0;
  for (OpId op : sums)
    for (const Output& out : w.op(op).outputs) {
      const Tensor& t = w.tensor(out.target.tensor);
      bytes += static_cast<double>(t.bytes().value);
      if (size_of(t.dtype) == 2) halves += static_cast<double>(t.elements().value);
    }
  const double launch = 1e-6 * o.launch_us;
  const double wait = !waits ? 0 : o.global_sync ? barrier_seconds(d, o, d.sms) : launch;
  return launch + wait + static_cast<double>(parts + 1) * bytes / d.memory +
         static_cast<double>(parts) * halves / kHalves;
}

bool is_cut(const Workload& w, const Cut& c) { return c.step < w.loop(c.loop).extent; }

bool reads_own_tile(const Workload& w, std::span<const Cut> grid, const Access& read, OpId writer) {
  for (const Output& o : w.op(writer).outputs) {
    if (o.target.tensor != read.tensor) continue;
    for (const Cut& c : grid) {
      if (!is_cut(w, c)) continue;
      const auto at = std::ranges::find_if(
          o.target.index, [&](const Affine& f) { return f.plain_loop() == c.loop; });
      if (at == o.target.index.end()) return false;  // a part of a sum
      const auto dim = static_cast<std::size_t>(at - o.target.index.begin());
      if (read.index[dim].plain_loop() != c.loop) return false;
    }
  }
  return true;
}

Bytes most_alive(const Workload& w, const Nest& n, OpId more) {
  struct Life {
    std::int64_t bytes = 0;
    std::size_t first = 0, last = 0;
  };
  std::map<TensorId, Life> lives;
  std::size_t step = 0;
  const auto touch = [&](OpId id, std::span<const Cut> inner) {
    const Operator& op = w.op(id);
    std::vector<Interval> ranges;
    for (LoopId l : op.loops) {
      std::int64_t size = w.loop(l).extent;
      for (const std::span<const Cut> cuts :
           {std::span<const Cut>(n.grid), std::span<const Cut>(n.walk), inner})
        for (const Cut& c : cuts)
          if (c.loop == l) size = std::min(size, c.step);
      ranges.push_back({0, size});
    }
    const auto add = [&](const Access& a) {
      if (is_gather(a)) return;
      const std::int64_t copies = inner.empty() || &a == &op.outputs.front().target ? 1 : 2;
      const std::int64_t bytes =
          copies * footprint(w, op, a, ranges).size() * size_of(w.tensor(a.tensor).dtype);
      Life& life = lives.emplace(a.tensor, Life{0, step, step}).first->second;
      life.bytes = std::max(life.bytes, bytes);
      life.last = step;
    };
    for (const Access& a : op.inputs) add(a);
    for (const Output& o : op.outputs) add(o.target);
  };
  for (const Nest::Sum& s : n.sums) touch(s.op, s.inner);  // side by side
  for (OpId id : n.others) ++step, touch(id, {});
  if (more.valid()) ++step, touch(more, {});
  Bytes most;
  for (std::size_t at = 0; at <= step; ++at) {
    Bytes sum;
    for (const auto& [tensor, life] : lives)
      if (life.first <= at && at <= life.last) sum += Bytes(life.bytes);
    most = std::max(most, sum);
  }
  return most;
}

namespace {

constexpr std::size_t kLookBack = 64;  ///< nests that a new one may take its blocks from

class NestBuilder {
 public:
  NestBuilder(const Workload& w, const Device& d, const Options& o, std::span<const OpId> ops,
              TileTable& table)
      : w_(w),
        d_(d),
        o_(o),
        level_(w.operators().size(), 0),
        nest_(w.operators().size(), -1),
        inside_(w.operators().size(), false),
        room_(Bytes(d.shared.value / 20 * 19)),
        table_(table) {
    for (OpId id : ops) inside_[id.index()] = true;
    for (OpId id : w.topological_order())
      if (inside_[id.index()]) ops_.push_back(id);
  }

  std::vector<Nest> run() {
    find_levels();
    beside_ = side_by_side(w_, d_, o_, ops_, level_, table_);
    for (OpId id : ops_) place(id);
    std::ranges::stable_sort(nests_, {}, [](const Nest& n) { return std::pair(n.phase, n.unit); });
    return std::move(nests_);
  }

 private:
  bool inside(OpId id) const { return id.valid() && inside_[id.index()]; }
  bool product(OpId id) const { return w_.is_contraction(id); }
  bool many(OpId id) const { return !w_.reduction_loops(id).empty(); }

  // ---- levels: the phase that an operator could have ----

  /// 1 where a barrier must stand between, whatever the tiles.
  int weight(OpId reader, const Access& a) const {
    const OpId writer = w_.producer(a.tensor);
    if (!o_.vertical || product(reader) || is_gather(a)) return 1;
    if (o_.sync == Sync::literal && many(reader)) return 1;
    for (const Output& o : w_.op(writer).outputs) {
      if (o.target.tensor != a.tensor) continue;
      for (std::size_t d = 0; d < a.index.size(); ++d)
        if (a.index[d].plain_loop() != o.target.index[d].plain_loop() &&
            w_.tensor(a.tensor).shape[d] > kWhole)
          return 1;
    }
    return 0;
  }

  void find_levels() {
    std::vector<bool> rooted(w_.operators().size(), true);
    for (OpId id : ops_)
      for (const Access& a : w_.op(id).inputs) {
        const OpId p = w_.producer(a.tensor);
        if (!inside(p)) continue;
        const int weighs = weight(id, a);
        level_[id.index()] = std::max(level_[id.index()], level_[p.index()] + weighs);
        rooted[id.index()] = rooted[id.index()] && weighs == 1;
      }
    // What only a later phase needs, tile by tile, is computed there.
    for (auto it = ops_.rbegin(); it != ops_.rend(); ++it) {
      if (!rooted[it->index()]) continue;
      int latest = -1;
      bool beside = false;
      for (const Output& o : w_.op(*it).outputs)
        for (OpId r : w_.consumers(o.target.tensor)) {
          if (!inside(r)) continue;
          int weighs = 0;
          for (const Access& a : w_.op(r).inputs)
            if (a.tensor == o.target.tensor) weighs = std::max(weighs, weight(r, a));
          const int at = level_[r.index()] - weighs;
          latest = latest < 0 ? at : std::min(latest, at);
          beside = beside || weighs == 0;
        }
      if (beside && latest > level_[it->index()]) level_[it->index()] = latest;
    }
  }

  std::set<OpId> readers(OpId id) const {
    std::set<OpId> out;
    for (const Output& o : w_.op(id).outputs)
      for (OpId r : w_.consumers(o.target.tensor)) out.insert(r);
    return out;
  }

  // ---- joining ----

  /// The operator computes its part in blocks of this grid.
  bool grid_suits(const std::vector<Cut>& grid, OpId id) const {
    return std::ranges::all_of(grid, [&](const Cut& c) {
      if (!is_cut(w_, c)) return true;
      if (w_.local_index(id, c.loop) < 0) return false;
      return !w_.is_reduction(id, c.loop) || (may_sum_over_blocks(w_, o_, id) &&
                                              (!product(id) || o_.reduction == Reduction::split));
    });
  }

  bool fits(const Nest& n, OpId more) const { return most_alive(w_, n, more) <= room_; }

  bool can_join(const Nest& n, int at, OpId id) const {
    if (!grid_suits(n.grid, id)) return false;
    std::vector<Cut> cuts = n.grid;
    cuts.insert(cuts.end(), n.walk.begin(), n.walk.end());
    for (const Cut& c : n.walk)
      if (w_.local_index(id, c.loop) < 0 || w_.is_reduction(id, c.loop)) return false;
    for (const Access& a : w_.op(id).inputs) {
      const OpId p = w_.producer(a.tensor);
      if (!inside(p)) continue;
      if (nest_[p.index()] != at) {
        if (nests_[static_cast<std::size_t>(nest_[p.index()])].phase >= n.phase) return false;
      } else if (is_gather(a) || !reads_own_tile(w_, cuts, a, p)) {
        return false;
      }
    }
    return true;
  }

  /// A product beside products: it reads what they read, or is read with them.
  int beside(OpId id) const {
    if (!o_.horizontal) return -1;
    const int ready = std::max(earliest(id), level_[id.index()]);
    for (std::size_t back = 0; back < nests_.size() && back < kLookBack; ++back) {
      const auto at = static_cast<int>(nests_.size() - 1 - back);
      const Nest& n = nests_[static_cast<std::size_t>(at)];
      if (n.phase != ready || n.sums.empty() || !n.walk.empty()) continue;
      const OpId other = n.sums.front().op;
      if (!product(other) || beside_[other.index()].group != beside_[id.index()].group ||
          level_[other.index()] != level_[id.index()] ||
          !std::ranges::is_permutation(w_.op(other).loops, w_.op(id).loops) || !can_join(n, at, id))
        continue;
      // A tensor has one tile in a block.
      const bool clash = std::ranges::any_of(n.sums, [&](const Nest::Sum& s) {
        return std::ranges::any_of(w_.op(id).inputs, [&](const Access& a) {
          return std::ranges::any_of(w_.op(s.op).inputs, [&](const Access& b) {
            return a.tensor == b.tensor && !(a == b);
          });
        });
      });
      if (!clash) return at;
    }
    return -1;
  }

  /// The first phase in which all that it reads is at home.
  int earliest(OpId id) const {
    int phase = 0;
    for (const Access& a : w_.op(id).inputs)
      if (const OpId p = w_.producer(a.tensor); inside(p))
        phase = std::max(phase, nests_[static_cast<std::size_t>(nest_[p.index()])].phase + 1);
    return phase;
  }

  void place(OpId id) {
    if (product(id)) {
      if (const int at = beside(id); at >= 0) {
        Nest& n = nests_[static_cast<std::size_t>(at)];
        Nest::Sum sum{.op = id, .inner = n.sums.front().inner, .stages = n.sums.front().stages};
        n.sums.push_back(sum);
        if (fits(n, OpId())) {
          nest_[id.index()] = at;
          return;
        }
        n.sums.pop_back();
      }
    } else if (o_.vertical && !(o_.sync == Sync::literal && many(id))) {
      int best = -1;
      for (const Access& a : w_.op(id).inputs) {
        const OpId p = w_.producer(a.tensor);
        if (!inside(p)) continue;
        const int at = nest_[p.index()];
        const Nest& n = nests_[static_cast<std::size_t>(at)];
        if (can_join(n, at, id) && fits(n, id) &&
            (best < 0 || n.phase > nests_[static_cast<std::size_t>(best)].phase))
          best = at;
      }
      if (best >= 0) {
        nests_[static_cast<std::size_t>(best)].others.push_back(id);
        nest_[id.index()] = best;
        return;
      }
    } else if (o_.horizontal && !product(id)) {
      if (const int at = sums_beside(id); at >= 0) {
        nests_[static_cast<std::size_t>(at)].others.push_back(id);
        nest_[id.index()] = at;
        return;
      }
    }
    open(id);
  }

  /// Without vertical joining: sums of the same loops that read the same tensor.
  int sums_beside(OpId id) const {
    if (!many(id)) return -1;
    for (const Access& a : w_.op(id).inputs)
      for (OpId other : w_.consumers(a.tensor)) {
        if (other == id || !inside(other) || product(other) || !many(other)) continue;
        const int at = nest_[other.index()];
        if (at < 0 || w_.op(other).loops != w_.op(id).loops) continue;
        const Nest& n = nests_[static_cast<std::size_t>(at)];
        if (n.phase >= earliest(id) && n.sums.empty() && can_join(n, at, id) && fits(n, id))
          return at;
      }
    return -1;
  }

  // ---- new nests ----

  /// All nests of a phase, or those of a wider product, or this one alone.
  int unit_of(OpId id) const {
    const Beside& b = beside_[id.index()];
    const auto products = static_cast<int>(w_.operators().size());
    if (o_.pack && !b.alone) return -1;
    return b.wide >= 0 ? b.wide : products + static_cast<int>(nests_.size());
  }

  void open(OpId id) {
    Nest n;
    n.phase = std::max(earliest(id), o_.vertical ? level_[id.index()] : 0);
    if (product(id))
      open_product(n, id);
    else
      open_light(n, id);
    n.blocks = 1;
    for (const Cut& c : n.grid) n.blocks *= ceil_div(w_.loop(c.loop).extent, c.step);
    n.unit = unit_of(id);
    nest_[id.index()] = static_cast<int>(nests_.size());
    nests_.push_back(std::move(n));
  }

  void open_product(Nest& n, OpId id) {
    const Tile& tile = beside_[id.index()].tile;
    n.grid = tile.grid;
    n.warps = tile.warps;
    n.threads = tile.threads;
    n.registers = tile.registers;
    n.shared = tile.shared;
    n.sums.push_back({id, tile.inner, tile.stages});
    // The blocks of a nest whose tiles a reader of this product reads again.
    if (!o_.reuse || !o_.vertical) return;
    for (std::size_t back = 0; back < nests_.size() && back < kLookBack; ++back) {
      const Nest& other = nests_[nests_.size() - 1 - back];
      if (other.blocks * 2 < tile.blocks || other.walk.size() > 0 || !reads_with(id, other))
        continue;
      if (std::ranges::any_of(other.grid, [&](const Cut& c) {
            return w_.local_index(id, c.loop) < 0 || w_.is_reduction(id, c.loop);
          }))
        continue;
      Nest with{.grid = other.grid, .sums = n.sums};
      for (Cut& c : with.sums.front().inner) c.step = w_.loop(c.loop).extent;
      std::erase_if(with.sums.front().inner, [](const Cut&) { return true; });
      if (!fits(with, OpId())) continue;
      n.grid = other.grid;
      n.sums = with.sums;
      return;
    }
  }

  /// Whether element-wise readers of `id` read a tensor that the other nest touches.
  bool reads_with(OpId id, const Nest& other) const {
    std::set<TensorId> touched;
    for (OpId op : other.ops()) {
      for (const Access& a : w_.op(op).inputs) touched.insert(a.tensor);
      for (const Output& o : w_.op(op).outputs) touched.insert(o.target.tensor);
    }
    std::vector<OpId> next = {id};
    std::set<OpId> seen;
    while (!next.empty()) {
      const OpId at = next.back();
      next.pop_back();
      for (OpId r : readers(at)) {
        if (!inside(r) || many(r) || !seen.insert(r).second || seen.size() > 32) continue;
        for (const Access& a : w_.op(r).inputs)
          if (w_.producer(a.tensor) != at && touched.contains(a.tensor) &&
              grid_suits(other.grid, r))
            return true;
        next.push_back(r);
      }
    }
    return false;
  }

  void open_light(Nest& n, OpId id) {
    if (o_.vertical && take_blocks_of_a_producer(n, id)) {
      n.others.push_back(id);
      if (fits(n, OpId()) || walks(n)) return;
      n = {.phase = n.phase};
    }
    rows(n, id);
    n.others.push_back(id);
    if (fits(n, OpId()) || walks(n)) return;
    if (!many(id)) return;
    // The sum of a row that no block has room for.
    n.others.clear();
    n.sums.push_back({.op = id});
    const auto sums = w_.reduction_loops(id);
    for (LoopId l : sums) n.sums.front().inner.push_back({l, w_.loop(l).extent});
    while (!fits(n, OpId())) {
      const auto largest = std::ranges::max_element(n.sums.front().inner, {}, &Cut::step);
      if (largest->step == 1) break;
      largest->step = ceil_div(largest->step, 2);
    }
    std::erase_if(n.sums.front().inner, [&](const Cut& c) { return !is_cut(w_, c); });
  }

  bool take_blocks_of_a_producer(Nest& n, OpId id) const {
    std::int64_t most = 0;
    for (const Access& a : w_.op(id).inputs) {
      const OpId p = w_.producer(a.tensor);
      if (!inside(p)) continue;
      const Nest& other = nests_[static_cast<std::size_t>(nest_[p.index()])];
      const std::int64_t bytes = w_.tensor(a.tensor).bytes().value;
      if (bytes <= most || !grid_suits(other.grid, id) || !reads_own_tile(w_, other.grid, a, p))
        continue;
      most = bytes;
      n.grid = other.grid;
    }
    return most > 0;
  }

  /// Blocks for every multiprocessor: outer loops one by one, the last in even parts; where results
  /// are few, the loops of the sum too.
  void rows(Nest& n, OpId id) const {
    std::int64_t blocks = 1;
    const auto add = [&](LoopId l) {
      const std::int64_t extent = w_.loop(l).extent;
      const std::int64_t parts = std::min(extent, std::max<std::int64_t>(1, d_.sms / blocks));
      const std::int64_t step = ceil_div(extent, parts);
      n.grid.push_back({l, step});
      blocks *= ceil_div(extent, step);
    };
    const std::set<LoopId> whole = o_.vertical ? whole_loops(w_, inside_, id) : std::set<LoopId>();
    for (LoopId l : w_.op(id).loops)
      if (!w_.is_reduction(id, l) && !whole.contains(l)) add(l);
    if (o_.vertical && o_.reduction == Reduction::split && may_sum_over_blocks(w_, o_, id) &&
        pays_parts(id, blocks))
      for (LoopId l : w_.reduction_loops(id))
        if (blocks * 2 <= d_.sms) add(l);
    std::erase_if(n.grid, [&](const Cut& c) { return !is_cut(w_, c); });
  }

  /// Whether blocks that read a part each, and then wait for one another, are done sooner.
  bool pays_parts(OpId id, std::int64_t blocks) const {
    const std::int64_t parts = d_.sms / blocks;
    if (parts < 2) return false;
    double bytes = 0;
    for (const Access& a : w_.op(id).inputs)
      bytes += static_cast<double>(bytes_read(w_, w_.op(id), a).value);
    const double saved =
        bytes / static_cast<double>(blocks) / d_.fill * (1 - 1 / static_cast<double>(parts));
    return saved > seconds_of_parts(w_, d_, o_, {&id, 1}, parts, true);
  }

  /// A block walks a loop of all its operators so that tiles fit.
  bool walks(Nest& n) const {
    if (!n.sums.empty()) return false;
    std::vector<LoopId> loops;
    for (LoopId l : w_.op(n.others.front()).loops)
      if (std::ranges::all_of(n.others, [&](OpId id) {
            return w_.local_index(id, l) >= 0 && !w_.is_reduction(id, l);
          }))
        loops.push_back(l);
    // Last those that a reader picks from: it could not be in the same nest.
    const std::set<LoopId> whole = whole_loops(w_, inside_, n.others.front());
    std::stable_partition(loops.begin(), loops.end(), [&](LoopId l) { return !whole.contains(l); });
    for (LoopId l : loops) {
      std::int64_t step = w_.loop(l).extent;
      for (const Cut& c : n.grid)
        if (c.loop == l) step = c.step;
      if (step == 1) continue;
      n.walk.push_back({l, step});
      while (n.walk.back().step > 1 && !fits(n, OpId()))
        n.walk.back().step = ceil_div(n.walk.back().step, 2);
      if (fits(n, OpId())) return true;
    }
    n.walk.clear();
    return false;
  }

  const Workload& w_;
  const Device& d_;
  const Options& o_;
  std::vector<OpId> ops_;
  std::vector<int> level_, nest_;
  std::vector<bool> inside_;
  std::vector<Beside> beside_;
  std::vector<Nest> nests_;
  Bytes room_;
  TileTable& table_;
};

}  // namespace

std::vector<Nest> built_nests(const Workload& w, const Device& d, const Options& o,
                              std::span<const OpId> ops, TileTable& table) {
  return NestBuilder(w, d, o, ops, table).run();
}

}  // namespace tilewright::souffle
