#include "core/workload/cut.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <string_view>
#include <utility>

#include "core/workload/subgraph.h"

namespace tilewright {
namespace {

bool calls(const Expr& e, std::string_view function) {
  return (e.kind == Expr::Kind::call && e.function == function) ||
         std::ranges::any_of(e.args, [&](const Expr& a) { return calls(a, function); });
}

class Sets {
 public:
  explicit Sets(std::size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  std::size_t find(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    a = find(a), b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

std::vector<Part> parts_of(Sets& sets, const Workload& w) {
  std::map<std::size_t, Part> parts;
  for (std::size_t i = 0; i < w.operators().size(); ++i) parts[sets.find(i)].emplace_back(i);
  std::vector<Part> all;
  for (auto& [first, part] : parts) all.push_back(std::move(part));
  return all;
}

/// Operators by how many lie before each at most.
class Levels {
 public:
  explicit Levels(const Workload& w) : w_(w), of_(w.operators().size(), 0) {
    for (OpId op : w.topological_order())
      each_maker(op, [&](OpId p) { of_[op.index()] = std::max(of_[op.index()], 1 + level(p)); });
  }

  /// The operators and those on paths between them. Cost: of what lies before the last of them and
  /// not above the first.
  Part closure(const Part& ops) const {
    int first = level(ops.front());
    for (OpId op : ops) first = std::min(first, level(op));
    std::vector<bool> seen(of_.size(), false), from(of_.size(), false);
    std::vector<OpId> before;  // what they wait for, themselves with it
    const auto meet = [&](OpId op) {
      if (level(op) < first || seen[op.index()]) return;
      seen[op.index()] = true;
      before.push_back(op);
    };
    for (OpId op : ops) meet(op), from[op.index()] = true;
    for (std::size_t i = 0; i < before.size(); ++i) each_maker(before[i], meet);
    std::ranges::sort(before, {}, [this](OpId op) { return level(op); });
    Part both;
    for (OpId op : before) {
      each_maker(op, [&](OpId p) {
        if (from[p.index()]) from[op.index()] = true;
      });
      if (from[op.index()]) both.push_back(op);
    }
    std::ranges::sort(both);
    return both;
  }

  /// Contractions that read what `from` makes, of which no way from it leads through another one.
  /// Cost: what lies after `from` and before those, not how far what follows them reaches.
  std::set<OpId> next_contractions(OpId from) const {
    enum Met : char { never, directly, behind };  // behind: through a contraction, too
    std::vector<Met> met(of_.size(), never);
    std::set<std::pair<int, OpId>> open{{level(from), from}};
    std::set<OpId> found;
    std::size_t direct = 1;  // of the open ones
    met[from.index()] = directly;
    while (direct > 0) {
      const OpId op = open.extract(open.begin()).value().second;
      Met next = met[op.index()];
      if (next == directly) {
        --direct;
        if (op != from && w_.is_contraction(op)) found.insert(op), next = behind;
      }
      for (const Output& out : w_.op(op).outputs)
        for (OpId reader : w_.consumers(out.target.tensor)) {
          Met& its = met[reader.index()];
          if (its == never) open.insert({level(reader), reader});
          direct -= its == directly && next == behind ? 1 : 0;
          direct += its == never && next == directly ? 1 : 0;
          its = std::max(its, next);
        }
    }
    return found;
  }

 private:
  int level(OpId op) const { return of_[op.index()]; }
  template <class F>
  void each_maker(OpId op, F&& f) const {
    for (const Access& a : w_.op(op).inputs)
      if (const OpId p = w_.producer(a.tensor); p.valid()) f(p);
  }

  const Workload& w_;
  std::vector<int> of_;
};

/// What no cut may part: closures of what depends on one block of a running reduction.
Sets inseparable(const Workload& w) {
  Sets sets(w.operators().size());
  const auto tied = tied_operators(w);
  if (tied.empty()) return sets;
  for (const auto& [a, b] : tied) sets.join(a.index(), b.index());
  const Levels levels(w);
  for (bool grown = true; grown;) {
    grown = false;
    for (const Part& part : parts_of(sets, w)) {
      if (part.size() < 2) continue;
      for (OpId op : levels.closure(part)) {
        if (sets.find(op.index()) == sets.find(part.front().index())) continue;
        sets.join(op.index(), part.front().index());
        grown = true;
      }
    }
  }
  return sets;
}

class Cutter {
 public:
  explicit Cutter(const Workload& w)
      : w_(w), levels_(w), atoms_(inseparable(w)), part_(w.operators().size()) {
    for (const Part& atom : parts_of(atoms_, w_)) {
      for (OpId op : atom) atom_of_[op] = atom;
      if (atom.size() > 1) take(atom);
    }
  }

  std::vector<Part> run(bool with_pairs) {
    for (const Pair& pair : with_pairs ? pairs() : std::vector<Pair>()) {
      const bool free = std::ranges::all_of(pair.ops, [&](OpId op) {
        const int p = part_[op.index()];
        return p == 0 || std::ranges::includes(pair.ops, parts_[static_cast<std::size_t>(p) - 1]);
      });
      if (!free) continue;
      const auto before = part_;
      take(pair.ops);
      if (!acyclic()) {
        part_ = before;
        parts_.pop_back();
      }
    }
    for (std::size_t i = 0; i < part_.size(); ++i)
      if (part_[i] == 0 && w_.is_contraction(OpId(i))) take({OpId(i)});
    components();
    std::map<int, Part> parts;
    for (std::size_t i = 0; i < part_.size(); ++i) parts[part_[i]].emplace_back(i);
    std::vector<Part> all;
    for (auto& [id, part] : parts) all.push_back(std::move(part));
    std::ranges::sort(all);
    return all;
  }

 private:
  struct Pair {
    Part ops;
    std::int64_t bytes = 0;  ///< of the tensors between the contractions
  };

  void take(const Part& ops) {
    parts_.push_back(ops);
    for (OpId op : ops) part_[op.index()] = static_cast<int>(parts_.size());
  }

  /// With everything that cannot be parted from them.
  Part whole(Part ops) const {
    for (;;) {
      Part more = ops;
      for (OpId op : ops) more.insert(more.end(), atom_of_.at(op).begin(), atom_of_.at(op).end());
      more = levels_.closure(more);
      if (more == ops) return ops;
      ops = std::move(more);
    }
  }

  /// Adds operators whose every input that is made by an operator is made in the part, and that
  /// read what lies between its contractions, or what such an operator has summed up of it.
  void add_readers(Part& ops, std::set<TensorId>& between) const {
    for (OpId op : w_.topological_order()) {
      if (std::ranges::binary_search(ops, op) || w_.is_contraction(op)) continue;
      bool reads = false, inside = true;
      for (const Access& a : w_.op(op).inputs) {
        const OpId p = w_.producer(a.tensor);
        reads |= between.contains(a.tensor);
        inside &= !p.valid() || std::ranges::binary_search(ops, p);
      }
      if (!reads || !inside) continue;
      ops.insert(std::ranges::upper_bound(ops, op), op);
      if (!w_.reduction_loops(op).empty())
        for (const Output& out : w_.op(op).outputs) between.insert(out.target.tensor);
    }
  }

  std::optional<Pair> pair_of(OpId first, OpId second) const {
    Pair pair{.ops = whole({std::min(first, second), std::max(first, second)})};
    if (std::ranges::count_if(pair.ops, [&](OpId op) { return w_.is_contraction(op); }) != 2)
      return std::nullopt;
    std::set<TensorId> between;
    for (OpId op : pair.ops)
      if (op != second)
        for (const Output& out : w_.op(op).outputs) {
          between.insert(out.target.tensor);
          pair.bytes += w_.tensor(out.target.tensor).bytes().value;
        }
    add_readers(pair.ops, between);
    if (no_subgraph(w_, pair.ops)) return std::nullopt;
    return pair;
  }

  std::vector<Pair> pairs() const {
    std::vector<Pair> all;
    for (OpId first : w_.topological_order())
      if (w_.is_contraction(first))
        for (OpId second : levels_.next_contractions(first))
          if (auto pair = pair_of(first, second)) all.push_back(std::move(*pair));
    std::ranges::stable_sort(all, std::ranges::greater{}, &Pair::bytes);
    return all;
  }

  /// By what each operator is a node of: its part, or itself.
  std::vector<std::size_t> nodes() const {
    std::vector<std::size_t> node(part_.size());
    for (std::size_t i = 0; i < node.size(); ++i)
      node[i] = part_[i] == 0 ? i : parts_[static_cast<std::size_t>(part_[i]) - 1].front().index();
    return node;
  }

  /// How many changes between a part and the rest lie before each node at most; nothing where nodes
  /// wait for one another.
  std::optional<std::vector<int>> depths() const {
    const std::vector<std::size_t> node = nodes();
    std::vector<std::vector<std::size_t>> next(node.size());
    std::vector<int> waiting(node.size(), 0), depth(node.size(), 0);
    for (std::size_t i = 0; i < node.size(); ++i)
      for (const Access& a : w_.op(OpId(i)).inputs) {
        const OpId p = w_.producer(a.tensor);
        if (!p.valid() || node[p.index()] == node[i]) continue;
        next[node[p.index()]].push_back(node[i]);
        ++waiting[node[i]];
      }
    std::vector<std::size_t> ready;
    std::size_t left = 0;
    for (std::size_t i = 0; i < node.size(); ++i) {
      if (node[i] != i) continue;
      ++left;
      if (waiting[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const std::size_t i = ready.back();
      ready.pop_back();
      --left;
      for (std::size_t n : next[i]) {
        const int step = part_[i] == 0 && part_[n] == 0 ? 0 : 1;
        depth[n] = std::max(depth[n], depth[i] + step);
        if (--waiting[n] == 0) ready.push_back(n);
      }
    }
    if (left > 0) return std::nullopt;
    return depth;
  }
  bool acyclic() const { return depths().has_value(); }

  /// What is in no part yet: connected where one reads from the other and both are as deep. A path
  /// that leaves such a component through a part comes back deeper.
  void components() {
    const std::vector<int> depth = *depths();
    Sets sets(part_.size());
    for (std::size_t i = 0; i < part_.size(); ++i) {
      if (part_[i] != 0) continue;
      for (const Access& a : w_.op(OpId(i)).inputs)
        if (const OpId p = w_.producer(a.tensor);
            p.valid() && part_[p.index()] == 0 && depth[p.index()] == depth[i])
          sets.join(p.index(), i);
    }
    for (std::size_t i = 0; i < part_.size(); ++i)
      if (part_[i] == 0) part_[i] = -1 - static_cast<int>(sets.find(i));
  }

  const Workload& w_;
  const Levels levels_;
  Sets atoms_;
  std::map<OpId, Part> atom_of_;
  std::vector<int> part_;    ///< by OpId: place in parts_ from 1; 0: none; below: a component
  std::vector<Part> parts_;  ///< each with an earlier one may be a later one's
};

}  // namespace

std::vector<Part> cut_each(const Workload& w) {
  Sets sets = inseparable(w);
  return parts_of(sets, w);
}

std::vector<bool> constant_operators(const Workload& w) {
  std::vector<bool> constant(w.operators().size(), false);
  for (OpId op : w.topological_order())
    constant[op.index()] = std::ranges::all_of(w.op(op).inputs, [&](const Access& a) {
      const OpId p = w.producer(a.tensor);
      return p.valid() ? constant[p.index()] : static_cast<bool>(w.tensor(a.tensor).values);
    });
  return constant;
}

namespace {

class Follower {
 public:
  Follower(const Workload& w, std::size_t most, std::vector<bool> alone)
      : w_(w),
        most_(most),
        alone_(std::move(alone)),
        sets_(inseparable(w)),
        levels_(w),
        constant_(constant_operators(w)) {}

  std::vector<Part> run() {
    std::map<OpId, Part> before;  // by contraction, those that it reads of
    for (std::size_t i = 0; i < w_.operators().size(); ++i)
      if (w_.is_contraction(OpId(i)))
        for (OpId second : levels_.next_contractions(OpId(i))) before[second].emplace_back(i);
    for (OpId op : w_.topological_order())
      if (const auto at = before.find(op); at != before.end()) join_attention(at->second, op);
    for (OpId op : w_.topological_order())
      if (!w_.is_contraction(op))
        for (OpId producer : producers(op))
          if (join(op, producer)) break;
    return parts_of(sets_, w_);
  }

 private:
  /// Operators that make what `op` reads, those first that it reads element by element, the latest
  /// first.
  std::vector<OpId> producers(OpId op) const {
    std::vector<OpId> same, other;
    const Operator& o = w_.op(op);
    const auto order = w_.topological_order();
    for (auto at = order.rbegin(); at != order.rend(); ++at)
      for (const Access& a : o.inputs) {
        if (w_.producer(a.tensor) != *at) continue;
        const bool follows = a.index == o.outputs.front().target.index;
        (follows ? same : other).push_back(*at);
        break;
      }
    same.insert(same.end(), other.begin(), other.end());
    return same;
  }

  /// One part of a product with the product before it where exponentials lie between the two, and
  /// rows that are reduced: the planner says whether scores leave the chip.
  void join_attention(const Part& before, OpId second) {
    for (OpId first : before) {
      Part ops = levels_.closure({std::min(first, second), std::max(first, second)});
      if (ops.size() > most_) continue;
      add_sums(ops);
      const auto count = [&](auto&& is) { return std::ranges::count_if(ops, is); };
      const auto contracts = [&](OpId op) { return w_.is_contraction(op); };
      const auto reduces = [&](OpId op) { return !w_.reduction_loops(op).empty(); };
      const auto raises = [&](OpId op) {
        return std::ranges::any_of(w_.op(op).outputs,
                                   [](const Output& o) { return calls(o.value, "exp"); });
      };
      if (ops.size() > most_ || count(contracts) != 2 || count(reduces) < 3 || count(raises) == 0 ||
          count([&](OpId op) { return is_alone(op) || constant_[op.index()]; }) > 0 ||
          no_subgraph(w_, ops))
        continue;
      const Sets before = sets_;
      for (OpId op : ops) sets_.join(ops.front().index(), op.index());
      if (acyclic()) return;
      sets_ = before;
    }
  }

  /// Adds reductions of what is made in the part and nowhere else (a softmax's sum).
  void add_sums(Part& ops) const {
    const auto made_here = [&](const Access& a) {
      return std::ranges::binary_search(ops, w_.producer(a.tensor));
    };
    for (OpId maker : Part(ops))
      for (const Output& out : w_.op(maker).outputs)
        for (OpId op : w_.consumers(out.target.tensor))
          if (!std::ranges::binary_search(ops, op) && !w_.reduction_loops(op).empty() &&
              !w_.is_contraction(op) && std::ranges::all_of(w_.op(op).inputs, made_here))
            ops.insert(std::ranges::upper_bound(ops, op), op);
  }

  bool is_alone(OpId op) const { return !alone_.empty() && alone_[op.index()]; }

  bool join(OpId op, OpId producer) {
    const std::size_t a = sets_.find(op.index()), b = sets_.find(producer.index());
    if (a == b) return true;
    if (is_alone(op) || is_alone(producer)) return false;
    if (constant_[op.index()] != constant_[producer.index()]) return false;
    Part ops;
    for (std::size_t i = 0; i < w_.operators().size(); ++i)
      if (sets_.find(i) == a || sets_.find(i) == b) ops.emplace_back(i);
    if (ops.size() > most_) return false;
    const bool contracts = std::ranges::any_of(ops, [&](OpId o) { return w_.is_contraction(o); });
    if (contracts && !w_.reduction_loops(op).empty()) return false;
    if (no_subgraph(w_, ops)) return false;
    const Sets before = sets_;
    sets_.join(a, b);
    if (acyclic()) return true;
    sets_ = before;
    return false;
  }

  bool acyclic() {
    const std::size_t n = w_.operators().size();
    std::vector<std::vector<std::size_t>> next(n);
    std::vector<int> waiting(n, 0);
    std::vector<std::size_t> ready;
    std::size_t left = 0;
    for (std::size_t i = 0; i < n; ++i)
      for (const Access& a : w_.op(OpId(i)).inputs) {
        const OpId p = w_.producer(a.tensor);
        if (!p.valid() || sets_.find(p.index()) == sets_.find(i)) continue;
        next[sets_.find(p.index())].push_back(sets_.find(i));
        ++waiting[sets_.find(i)];
      }
    for (std::size_t i = 0; i < n; ++i)
      if (sets_.find(i) == i) {
        ++left;
        if (waiting[i] == 0) ready.push_back(i);
      }
    while (!ready.empty()) {
      const std::size_t i = ready.back();
      ready.pop_back();
      --left;
      for (std::size_t to : next[i])
        if (--waiting[to] == 0) ready.push_back(to);
    }
    return left == 0;
  }

  const Workload& w_;
  std::size_t most_;
  std::vector<bool> alone_;  ///< by OpId, parts of their own; empty: none
  Sets sets_;
  const Levels levels_;
  std::vector<bool> constant_;
};

}  // namespace

std::vector<Part> cut_followed(const Workload& w, const std::vector<bool>& alone,
                               std::size_t most) {
  return Follower(w, most, alone).run();
}

std::vector<Part> cut_contractions(const Workload& w, bool pairs) { return Cutter(w).run(pairs); }

}  // namespace tilewright
