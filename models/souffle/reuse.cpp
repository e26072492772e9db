// Where tensors live between phases, and which blocks each nest has (section 6.5).
#include <algorithm>
#include <map>

#include "core/base/format.h"
#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

constexpr int kUnits = 1 << 20;  // more than nests of a phase have

std::string grid_text(const Nest& n) {
  std::string out;
  for (const Cut& c : n.grid) out += formatted("{}/{} ", c.loop.index(), c.step);
  return out;
}

/// What one block of the nest has of a tensor, as text: equal for equal tiles of equal grids.
std::string tile_text(const Workload& w, const Nest& n, OpId id, const Access& a) {
  const Operator& op = w.op(id);
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  std::string out = formatted("{}:", a.tensor.index());
  for (const Affine& f : a.index) {
    const bool cut = std::ranges::any_of(f.terms, [&](const Term& t) {
      return std::ranges::any_of(n.grid,
                                 [&](const Cut& c) { return c.loop == t.loop && is_cut(w, c); });
    });
    if (f.gathered >= 0) return "";
    const Interval box = footprint(op, f, whole);
    out += formatted("{},{}", box.lo, box.hi);
    if (cut)
      for (const Term& t : f.terms) out += formatted("+{}*{}", t.coefficient, t.loop.index());
    out += ";";
  }
  return out + " " + grid_text(n);
}

class Reuse {
 public:
  Reuse(const Workload& w, const Device& d, const Options& o, std::vector<Nest> nests,
        const std::set<TensorId>& spilled)
      : w_(w), d_(d), o_(o), spilled_(spilled) {
    p_.nests = std::move(nests);
  }

  Program run() {
    number_phases();
    for (std::size_t i = 0; i < p_.nests.size(); ++i)
      for (OpId id : p_.nests[i].ops()) nest_[id] = i;
    if (o_.reuse) hold_operands();
    find_firsts();
    find_places();
    if (o_.sync == Sync::needed) join_phases();
    return std::move(p_);
  }

 private:
  void number_phases() {
    int last = -1, number = -1;
    for (Nest& n : p_.nests) {
      if (n.phase != last) ++number;
      last = n.phase;
      n.phase = number;
    }
    p_.phases = number + 1;
  }

  /// Operands that several phases read alike are loaded whole, so that they can stay.
  void hold_operands() {
    std::map<std::string, std::set<int>> phases;
    const auto each = [&](auto&& then) {
      for (Nest& n : p_.nests)
        for (Nest::Sum& s : n.sums)
          for (const Access& a : w_.op(s.op).inputs)
            if (w_.is_input(a.tensor) && !spilled_.contains(a.tensor))
              then(n, tile_text(w_, n, s.op, a));
    };
    each([&](Nest& n, const std::string& key) { phases[key].insert(n.phase); });
    each([&](Nest& n, const std::string& key) {
      if (key.empty() || phases[key].size() < 2) return;
      Nest whole = n;
      for (Nest::Sum& s : whole.sums) s.inner.clear();
      // In place: the sums are walked.
      if (most_alive(w_, whole) <= d_.shared)
        for (Nest::Sum& s : n.sums) s.inner.clear();
    });
  }

  std::vector<std::string> tiles_of(const Nest& n) const {
    std::vector<std::string> out;
    if (!n.walk.empty()) return out;
    const auto add = [&](OpId id, const Access& a) {
      if (spilled_.contains(a.tensor)) return;
      const std::string key = tile_text(w_, n, id, a);
      if (!key.empty()) out.push_back(key);
    };
    for (const Nest::Sum& s : n.sums)
      for (const Access& a : w_.op(s.op).inputs)
        if (s.inner.empty()) add(s.op, a);
    for (OpId id : n.others)
      for (const Access& a : w_.op(id).inputs) add(id, a);
    for (OpId id : n.ops())
      for (const Output& o : w_.op(id).outputs) add(id, o.target);
    return out;
  }

  /// Nests of one phase and unit stand side by side where there is room for their blocks, each on
  /// the blocks that have tiles of its own from before. Where nothing waits, there is room for any.
  void find_firsts() {
    std::map<std::string, std::int64_t> at;
    for (std::size_t i = 0; i < p_.nests.size();) {
      std::size_t end = i;
      std::int64_t all = 0, largest = 0;
      for (; end < p_.nests.size() && p_.nests[end].phase == p_.nests[i].phase &&
             p_.nests[end].unit == p_.nests[i].unit;
           ++end) {
        all += p_.nests[end].blocks;
        largest = std::max(largest, p_.nests[end].blocks);
      }
      const std::span<Nest> unit(p_.nests.data() + i, end - i);
      const std::int64_t room = p_.phases == 1 ? all : std::max(d_.sms, largest);
      const bool fits = all <= room && stand_side_by_side(unit, room, at);
      for (Nest& n : unit) {
        if (!fits) n.first = 0;
        for (const std::string& key : tiles_of(n)) at[key] = n.first;
      }
      i = end;
    }
  }

  bool stand_side_by_side(std::span<Nest> nests, std::int64_t room,
                          const std::map<std::string, std::int64_t>& at) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    const auto free = [&](std::int64_t first, std::int64_t blocks) {
      return first + blocks <= room && std::ranges::none_of(taken, [&](const auto& t) {
               return first < t.second && t.first < first + blocks;
             });
    };
    std::vector<bool> placed(nests.size(), false);
    for (const bool wanted : {true, false})
      for (std::size_t k = 0; k < nests.size(); ++k) {
        Nest& n = nests[k];
        if (placed[k]) continue;
        std::int64_t first = -1;
        if (wanted && o_.reuse)
          for (const std::string& key : tiles_of(n))
            if (const auto found = at.find(key);
                found != at.end() && free(found->second, n.blocks)) {
              first = found->second;
              break;
            }
        if (!wanted) {  // at the beginning, or the first place after another
          first = free(0, n.blocks) ? 0 : room;
          for (const auto& t : taken)
            if (free(t.second, n.blocks)) first = std::min(first, t.second);
        }
        if (first < 0) continue;
        if (!free(first, n.blocks)) return false;
        n.first = first;
        taken.emplace_back(first, first + n.blocks);
        placed[k] = true;
      }
    return true;
  }

  const Nest& nest(OpId id) const { return p_.nests[nest_.at(id)]; }

  /// Home, or on chip.
  void find_places() {
    for (const Nest& n : p_.nests)
      for (OpId id : n.ops())
        for (const Output& o : w_.op(id).outputs) place(n, id, o);
    for (const Nest& n : p_.nests)
      for (OpId id : n.ops())
        for (const Access& a : w_.op(id).inputs)
          if (!is_gather(a) && (!o_.reuse || spilled_.contains(a.tensor)))
            p_.dropped.insert(a.tensor);
    std::map<std::string, std::pair<int, KeptTile>> inputs;
    for (const Nest& n : p_.nests) {
      if (!n.walk.empty() || !o_.reuse) continue;
      const auto add = [&](OpId id, const Access& a) {
        if (!w_.is_input(a.tensor) && nest_.contains(w_.producer(a.tensor))) return;
        if (spilled_.contains(a.tensor)) return;
        const std::string key = tile_text(w_, n, id, a) + std::to_string(n.first);
        const auto [seen, is_new] =
            inputs.emplace(key, std::pair(n.phase, KeptTile{a.tensor, bytes(n, id, a), 0}));
        seen->second.second.gap = std::max(seen->second.second.gap, n.phase - seen->second.first);
        seen->second.first = n.phase;
      };
      for (const Nest::Sum& s : n.sums)
        if (s.inner.empty())
          for (const Access& a : w_.op(s.op).inputs) add(s.op, a);
      for (OpId id : n.others)
        for (const Access& a : w_.op(id).inputs)
          if (!is_gather(a)) add(id, a);
    }
    for (const auto& [key, tile] : inputs)
      if (tile.second.gap > 0) p_.kept.push_back(tile.second);
  }

  /// Phases between which no block waits for another are one: nests one after the other.
  void join_phases() {
    for (int phase = p_.phases - 2; phase >= 0; --phase) {
      if (waits_after(phase)) continue;
      for (Nest& n : p_.nests) {
        if (n.phase <= phase) continue;
        // Not side by side with those before: an order of its own.
        if (n.phase == phase + 1) n.unit += kUnits * (phase + 1);
        --n.phase;
      }
      --p_.phases;
    }
  }

  /// Whether a block reads in the next phase what another may have written in this one.
  bool waits_after(int phase) const {
    for (const Nest& n : p_.nests) {
      if (n.phase != phase + 1) continue;
      for (OpId id : n.ops())
        for (const Access& a : w_.op(id).inputs) {
          const auto from = nest_.find(w_.producer(a.tensor));
          if (from == nest_.end()) continue;
          const Nest& writer = p_.nests[from->second];
          if (writer.phase != phase) continue;
          if (is_gather(a) || cuts_of(writer) != cuts_of(n) || writer.first != n.first ||
              !reads_own_tile(w_, n.grid, a, from->first))
            return true;
        }
    }
    return false;
  }

  /// The grid without loops that a block has whole.
  std::vector<Cut> cuts_of(const Nest& n) const {
    std::vector<Cut> cuts = n.grid;
    std::erase_if(cuts, [&](const Cut& c) { return !is_cut(w_, c); });
    return cuts;
  }

  Bytes bytes(const Nest& n, OpId id, const Access& a) const {
    const Operator& op = w_.op(id);
    std::vector<Interval> ranges;
    for (LoopId l : op.loops) {
      std::int64_t size = w_.loop(l).extent;
      for (const Cut& c : n.grid)
        if (c.loop == l) size = std::min(size, c.step);
      ranges.push_back({0, size});
    }
    return Bytes(footprint(w_, op, a, ranges).size() * size_of(w_.tensor(a.tensor).dtype));
  }

  void place(const Nest& n, OpId id, const Output& o) {
    const TensorId t = o.target.tensor;
    bool elsewhere = false, own = true;
    int gap = 0;
    for (OpId r : w_.consumers(t)) {
      if (!nest_.contains(r) || &nest(r) == &n) continue;
      const Nest& other = nest(r);
      elsewhere = true;
      gap = std::max(gap, other.phase - n.phase);
      own = own && o_.reuse && !spilled_.contains(t) && other.grid == n.grid &&
            other.first == n.first && n.walk.empty() && other.walk.empty() && !leaves(t);
      for (const Access& a : w_.op(r).inputs)
        if (a.tensor == t) own = own && !is_gather(a) && reads_own_tile(w_, n.grid, a, id);
    }
    if (!elsewhere) return;
    if (own)
      p_.kept.push_back({t, bytes(n, id, o.target), gap});
    else
      p_.home.insert(t);
  }

  /// What must be at home anyway is read from there.
  bool leaves(TensorId t) const {
    return w_.is_output(t) ||
           std::ranges::any_of(w_.consumers(t), [&](OpId r) { return !nest_.contains(r); });
  }

  const Workload& w_;
  const Device& d_;
  const Options& o_;
  const std::set<TensorId>& spilled_;
  Program p_;
  std::map<OpId, std::size_t> nest_;
};

}  // namespace

Program program_of(const Workload& w, const Device& d, const Options& o, std::vector<Nest> nests,
                   const std::set<TensorId>& spilled) {
  return Reuse(w, d, o, std::move(nests), spilled).run();
}

}  // namespace tilewright::souffle
