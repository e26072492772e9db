// Programs as kernels of a plan.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

Node in_loops(const Workload& w, std::span<const Cut> cuts, Binding binding, Node body) {
  for (auto it = cuts.rbegin(); it != cuts.rend(); ++it)
    body = loop(w.loop(it->loop).name, std::move(body), it->step, binding);
  return body;
}

Node of_parts(std::vector<Node> parts) {
  return parts.size() == 1 ? std::move(parts.front()) : sequence(std::move(parts));
}

class TreeWriter {
 public:
  TreeWriter(const Workload& w, const Program& p, const std::set<TensorId>& leaves, int stages)
      : w_(w), p_(p), leaves_(leaves), stages_(stages) {
    for (const KeptTile& k : p.kept) kept_.insert(k.tensor);
    for (const Nest& n : p.nests) blocks_ = std::max(blocks_, n.first + n.blocks);
  }

  Node tree() {
    std::vector<std::vector<Node>> phases;
    std::vector<std::set<TensorId>> loaded;
    for (std::size_t i = 0; i < p_.nests.size();) {
      if (i == 0 || p_.nests[i].phase != p_.nests[i - 1].phase) {
        phases.emplace_back();
        loaded.emplace_back();
      }
      std::size_t end = i;
      bool first_blocks = true;  // all begin there: one after another
      for (; end < p_.nests.size() && p_.nests[end].phase == p_.nests[i].phase &&
             p_.nests[end].unit == p_.nests[i].unit;
           ++end)
        first_blocks = first_blocks && p_.nests[end].first == 0;
      loaded_.clear();
      Node pack;
      pack.kind = Node::Kind::pack;
      for (; i < end; ++i) {
        Node part = nest(p_.nests[i]);
        if (first_blocks) {
          phases.back().push_back(std::move(part));
          continue;
        }
        part.first_block = p_.nests[i].first;
        pack.children.push_back(std::move(part));
      }
      if (!first_blocks) phases.back().push_back(std::move(pack));
      loaded.back().insert(loaded_.begin(), loaded_.end());
    }
    std::set<TensorId> later;
    for (std::size_t phase = phases.size(); phase-- > 0;) {
      for (TensorId t : loaded[phase])
        if (p_.dropped.contains(t) && later.contains(t))
          phases[phase].push_back(drop(w_.tensor(t).name));
      if (phase + 1 < phases.size()) phases[phase].push_back(sync("grid"));
      later.insert(loaded[phase].begin(), loaded[phase].end());
    }
    std::vector<Node> all;
    for (std::vector<Node>& phase : phases) std::ranges::move(phase, std::back_inserter(all));
    return of_parts(std::move(all));
  }

 private:
  Node nest(const Nest& n) {
    std::vector<Node> body;
    std::set<TensorId> made;         // here, and on chip
    std::map<TensorId, Access> has;  // loaded here, as it was read
    for (std::size_t i = 0; i < n.sums.size();) {
      std::vector<Node> steps;
      std::map<TensorId, Access> within;
      const std::vector<Cut>& inner = n.sums[i].inner;
      std::vector<OpId> done;
      for (; i < n.sums.size() && n.sums[i].inner == inner; ++i) {
        loads(n.sums[i].op, made, within, steps,
              inner.empty() ? 1 : std::min(stages_, n.sums[i].stages));
        steps.push_back(compute(w_.op(n.sums[i].op).name));
        done.push_back(n.sums[i].op);
      }
      if (inner.empty()) {
        std::ranges::move(steps, std::back_inserter(body));
        has = within;
      } else {
        body.push_back(in_loops(w_, inner, Binding::seq, of_parts(std::move(steps))));
      }
      for (OpId id : done) stores(n, id, made, body);
    }
    for (OpId id : n.others) {
      loads(id, made, has, body);
      body.push_back(compute(w_.op(id).name));
      stores(n, id, made, body);
    }
    // Blocks taken from another nest may be shared out over loops that nothing here has.
    std::vector<Cut> grid;
    std::ranges::copy_if(n.grid, std::back_inserter(grid), [&](const Cut& c) {
      return std::ranges::any_of(n.ops(), [&](OpId id) { return w_.local_index(id, c.loop) >= 0; });
    });
    // One block beside many is one iteration: what no loop shares out begins at no block.
    if (grid.empty() && blocks_ > 1)
      for (LoopId l : w_.op(n.ops().front()).loops)
        if (grid.empty() && !w_.is_reduction(n.ops().front(), l) &&
            std::ranges::none_of(n.walk, [&](const Cut& c) { return c.loop == l; }))
          grid.push_back({l, w_.loop(l).extent});
    return in_loops(w_, grid, Binding::grid,
                    in_loops(w_, n.walk, Binding::seq, of_parts(std::move(body))));
  }

  void loads(OpId id, const std::set<TensorId>& made, std::map<TensorId, Access>& has,
             std::vector<Node>& into, int copies = 1) {
    std::set<TensorId> here;  // one tile has all that an operator reads of a tensor
    for (const Access& a : w_.op(id).inputs) {
      if (is_gather(a) || made.contains(a.tensor)) continue;
      if (kept_.contains(a.tensor) && w_.producer(a.tensor).valid() && computed_here(a.tensor))
        continue;
      const auto at = has.find(a.tensor);
      if (at != has.end() && at->second == a) continue;
      has.insert_or_assign(a.tensor, a);
      loaded_.insert(a.tensor);
      if (here.insert(a.tensor).second) into.push_back(load(w_.tensor(a.tensor).name, "", copies));
    }
  }

  bool computed_here(TensorId t) const {
    return std::ranges::any_of(p_.nests, [&](const Nest& n) { return n.has(w_.producer(t)); });
  }

  void stores(const Nest& n, OpId id, std::set<TensorId>& made, std::vector<Node>& into) {
    const bool atomic = std::ranges::any_of(
        n.grid, [&](const Cut& c) { return is_cut(w_, c) && w_.is_reduction(id, c.loop); });
    for (const Output& o : w_.op(id).outputs) {
      const TensorId t = o.target.tensor;
      const bool home = p_.home.contains(t);
      if (!home) made.insert(t);
      if (home || leaves_.contains(t)) into.push_back(store(w_.tensor(t).name, "", atomic));
    }
  }

  const Workload& w_;
  const Program& p_;
  const std::set<TensorId>& leaves_;
  int stages_;
  std::set<TensorId> kept_;
  std::set<TensorId> loaded_;  ///< in this phase
  std::int64_t blocks_ = 1;
};

}  // namespace

Kernel kernel_of(const Workload& w, const Machine& m, const Options& o, const Program& p,
                 const std::set<TensorId>& leaves, const std::string& name, int stages) {
  Kernel k{.name = name};
  k.launch.warps = p.nests.size() == 1 ? p.nests.front().warps : kWarps;
  if (o.pipeline && p.phases > 1) k.launch.ahead = 1;
  k.tree = TreeWriter(w, p, leaves, stages).tree();
  for (TensorId t : p.home) k.pins[w.tensor(t).name] = {.level = m.level(m.home()).name};
  return k;
}

}  // namespace tilewright::souffle
