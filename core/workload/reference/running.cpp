// Which operators take part in a running reduction: those that must be evaluated together, a block
// of it at a time.
#include <algorithm>
#include <numeric>

#include "core/workload/reference/operators.h"

namespace tilewright::reference {
namespace {

bool has_loop(const Workload& w, OpId op, LoopId loop) { return w.local_index(op, loop) >= 0; }

bool reads_to_rescale(const Expr& e, const Operator& op, TensorId t) {
  if (e.kind == Expr::Kind::input) return op.inputs[static_cast<std::size_t>(e.input)].tensor == t;
  return std::any_of(e.args.begin(), e.args.end(),
                     [&](const Expr& a) { return reads_to_rescale(a, op, t); });
}

// The running reduction loop of an operator; none where it is not running. One with several is
// blocked over the one that most running operators reduce, since it shares that one with them.
LoopId running_loop(const Workload& w, OpId op) {
  if (!w.op(op).running) return {};
  LoopId best;
  std::ptrdiff_t most = 0;
  for (LoopId l : w.reduction_loops(op)) {
    std::ptrdiff_t n = 0;
    for (std::size_t i = 0; i < w.operators().size(); ++i)
      if (w.operators()[i].running && w.is_reduction(OpId(i), l)) ++n;
    if (n > most) best = l;
    most = std::max(most, n);
  }
  return best;
}

class Grouping {
 public:
  explicit Grouping(const Workload& w) : w_(w), parent_(w.operators().size()) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    for (LoopId loop : running_loops()) join(loop);
  }

  std::vector<Group> groups() {
    std::vector<Group> all;
    std::vector<std::size_t> group_of(parent_.size());
    for (OpId op : w_.topological_order()) {
      const std::size_t root = find(op.index());
      const auto seen = std::find_if(all.begin(), all.end(), [&](const Group& g) {
        return find(g.ops.front().index()) == root;
      });
      group_of[op.index()] = static_cast<std::size_t>(seen - all.begin());
      if (seen == all.end()) all.emplace_back();
      all[group_of[op.index()]].ops.push_back(op);
    }
    for (Group& g : all) settle(g);
    return ordered(std::move(all), group_of);
  }

 private:
  std::size_t find(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }

  std::vector<LoopId> running_loops() const {
    std::vector<LoopId> loops;
    for (std::size_t i = 0; i < w_.operators().size(); ++i) {
      const LoopId l = running_loop(w_, OpId(i));
      if (l.valid() && std::find(loops.begin(), loops.end(), l) == loops.end()) loops.push_back(l);
    }
    return loops;
  }

  // Operators without the loop belong to its blocks only where a block's rescaling needs them.
  std::vector<bool> helpers(LoopId loop) const {
    std::vector<bool> helps(w_.operators().size());
    const auto order = w_.topological_order();
    for (std::size_t i = order.size(); i-- > 0;) {
      const OpId op = order[i];
      if (has_loop(w_, op, loop)) continue;
      for (const Output& o : w_.op(op).outputs) {
        for (OpId user : w_.consumers(o.target.tensor)) {
          if (helps[user.index()]) helps[op.index()] = true;
          if (running_loop(w_, user) != loop) continue;
          for (const Output& to : w_.op(user).outputs)
            if (to.rescale && reads_to_rescale(*to.rescale, w_.op(user), o.target.tensor))
              helps[op.index()] = true;
        }
      }
    }
    return helps;
  }

  // Joins the running operators of the loop with what lies between them. Whatever only feeds them,
  // or only reads what they have completed, stays outside: it is evaluated whole.
  void join(LoopId loop) {
    const std::vector<bool> helps = helpers(loop);
    const auto inside = [&](OpId op) { return has_loop(w_, op, loop) || helps[op.index()]; };
    const auto order = w_.topological_order();
    std::vector<bool> below(parent_.size()), above(parent_.size());  // a running operator
    const auto runs = [&](OpId op) { return running_loop(w_, op) == loop; };
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (!below[order[i].index()] && !runs(order[i])) continue;
      each_reader(order[i], [&](OpId user) {
        if (inside(user)) below[user.index()] = true;
      });
    }
    for (std::size_t i = order.size(); i-- > 0;)
      each_reader(order[i], [&](OpId user) {
        if (inside(user) && (runs(user) || above[user.index()])) above[order[i].index()] = true;
      });
    const auto member = [&](OpId op) {
      return runs(op) || (inside(op) && below[op.index()] && above[op.index()]);
    };
    for (OpId op : order)
      each_reader(op, [&](OpId user) {
        if (member(op) && member(user) && inside(user))
          parent_[find(user.index())] = find(op.index());
      });
  }

  template <class F>
  void each_reader(OpId op, F&& f) const {
    for (const Output& o : w_.op(op).outputs)
      for (OpId user : w_.consumers(o.target.tensor)) f(user);
  }

  // Finds the loop that the group runs over, and checks that every operator can.
  void settle(Group& g) const {
    for (OpId op : g.ops)
      if (!g.running.valid()) g.running = running_loop(w_, op);
    if (!g.running.valid()) return;
    for (OpId op : g.ops) {
      const LoopId own = running_loop(w_, op);
      if (own.valid() && own != g.running) refuse(op, "runs over another loop than its readers");
      if (own.valid() || !w_.is_reduction(op, g.running)) continue;
      each_reader(op, [&](OpId user) {
        if (std::find(g.ops.begin(), g.ops.end(), user) != g.ops.end())
          refuse(op, "is read inside its reduction over '" + w_.loop(g.running).name +
                         "' but is not running");
      });
    }
  }

  // Groups so that what one reads comes before it.
  std::vector<Group> ordered(std::vector<Group> all,
                             const std::vector<std::size_t>& group_of) const {
    std::vector<Group> done;
    std::vector<bool> taken(all.size());
    while (done.size() < all.size()) {
      const std::size_t before = done.size();
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (taken[i] || !ready(all[i], i, taken, group_of)) continue;
        taken[i] = true;
        done.push_back(all[i]);
      }
      if (done.size() == before) {
        const auto stuck = std::find(taken.begin(), taken.end(), false) - taken.begin();
        refuse(all[static_cast<std::size_t>(stuck)].ops.front(),
               "needs a result that is complete only after its own running reduction");
      }
    }
    return done;
  }

  bool ready(const Group& g, std::size_t self, const std::vector<bool>& taken,
             const std::vector<std::size_t>& group_of) const {
    for (OpId op : g.ops)
      for (const Access& a : w_.op(op).inputs) {
        const OpId from = w_.producer(a.tensor);
        if (from.valid() && group_of[from.index()] != self && !taken[group_of[from.index()]])
          return false;
      }
    return true;
  }

  [[noreturn]] void refuse(OpId op, const std::string& problem) const {
    throw InputError({.field = "operators." + w_.op(op).name,
                      .problem = problem,
                      .accepted = "running operators that can be evaluated block by block"});
  }

  const Workload& w_;
  std::vector<std::size_t> parent_;
};

}  // namespace

std::vector<Group> running_groups(const Workload& w) { return Grouping(w).groups(); }

}  // namespace tilewright::reference
