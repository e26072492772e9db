// A candidate as a loop tree, and back.
#include <algorithm>

#include "core/plan/schedule.h"
#include "models/flashfuser/flashfuser.h"

namespace tilewright::flashfuser {
namespace {

class Writer {
 public:
  Writer(const Chain& c, const Candidate& one, const Price& p)
      : c_(c), w_(*c.workload), one_(one), price_(p) {}

  Node write() {
    for (Role r : one_.schedule)
      if (r != kK && many(r)) loops_.push_back(r);
    std::vector<Node> body = from(0);
    for (Role r : {kJ, kM})
      if (spatial(r) && many(r)) body = {around(r, std::move(body), Binding::grid)};
    for (auto l = c_.batch.rbegin(); l != c_.batch.rend(); ++l)
      body = {loop(w_.loop(*l).name, one_node(std::move(body)), 1, Binding::grid)};
    return one_node(std::move(body));
  }

 private:
  static Node one_node(std::vector<Node> parts) {
    return parts.size() == 1 ? std::move(parts.front()) : sequence(std::move(parts));
  }
  bool many(Role r) const { return one_.tiles[r] < c_.extent(r); }
  bool spatial(Role r) const { return std::ranges::find(one_.schedule, r) == one_.schedule.end(); }
  Node around(Role r, std::vector<Node> body, Binding b = Binding::seq) const {
    return loop(w_.loop(c_.loops[r]).name, one_node(std::move(body)), one_.tiles[r], b);
  }
  Node one(OpId op) const { return compute(w_.op(op).name); }

  std::vector<Node> first() const {
    std::vector<Node> products, out;
    for (OpId op : c_.first) products.push_back(one(op));
    if (many(kK))
      out.push_back(around(kK, std::move(products)));
    else
      out = std::move(products);
    for (OpId op : c_.between) out.push_back(one(op));
    return out;
  }
  /// What stands where the output's tiles are whole.
  std::vector<Node> last() const {
    std::vector<Node> out;
    for (OpId op : c_.after) out.push_back(one(op));
    if (out.empty() && price_.partial != Place::global)
      out.push_back(store(w_.tensor(c_.partial).name, {}, spatial(kJ) && many(kJ)));
    return out;
  }
  static std::vector<Node> join(std::vector<Node> a, std::vector<Node> b) {
    std::ranges::move(b, std::back_inserter(a));
    return a;
  }

  /// The second product in the loops from `i` on.
  std::vector<Node> second(std::size_t i) const {
    if (i == loops_.size()) {
      std::vector<Node> out{one(c_.second)};
      return loops_over_j() ? out : join(std::move(out), last());
    }
    std::vector<Node> out{around(loops_[i], second(i + 1))};
    return loops_[i] == kJ ? join(std::move(out), last()) : out;
  }
  bool loops_over_j() const { return std::ranges::find(loops_, kJ) != loops_.end(); }

  /// The first product in the loops from `i` on.
  std::vector<Node> made(std::size_t i) const {
    return i == loops_.size() ? first() : std::vector<Node>{around(loops_[i], made(i + 1))};
  }

  std::vector<Node> from(std::size_t i) const {
    // At n's loop the join is made whole; n's loop, and what is inside it, reads it.
    if (i == loops_.size()) return join(first(), second(i));
    if (loops_[i] == kN) return join(made(i + 1), second(i));
    std::vector<Node> out{around(loops_[i], from(i + 1))};
    return loops_[i] == kJ ? join(std::move(out), last()) : out;
  }

  const Chain& c_;
  const Workload& w_;
  const Candidate& one_;
  const Price& price_;
  std::vector<Role> loops_;  ///< but k's, with several trips, outermost first
};

/// Loops of the tree in the order in which they are met.
void collect_loops(const Node& node, std::vector<const Node*>& out) {
  if (node.kind == Node::Kind::loop) out.push_back(&node);
  for (const Node& child : node.children) collect_loops(child, out);
}

}  // namespace

Candidate without_clusters(const Candidate& one) {
  Candidate out = one;
  out.cluster = {1, 1, 1, 1};
  if (std::ranges::find(out.schedule, kK) == out.schedule.end()) out.schedule.push_back(kK);
  return out;
}

Plan plan_of(const Chain& c, const Machine& m, LevelId level, const Candidate& one,
             const Price& p) {
  Kernel k{.name = "fused", .level = m.level(level).name, .tree = Writer(c, one, p).write()};
  const auto home = [&](TensorId t) {
    k.pins[c.workload->tensor(t).name] = {.level = m.level(m.home()).name};
  };
  if (p.joint == Place::global) home(c.joint);
  if (p.partial == Place::global && !c.after.empty()) home(c.partial);
  return {.kernels = {std::move(k)}};
}

Result<Candidate> candidate_of(const Chain& c, const Machine& m, LevelId level, const Device& d,
                               const Options& o, const Plan& plan) {
  const Reason none{"FlashFuser prices its own loop trees: this is none of them"};
  if (plan.kernels.size() != 1) return none;
  Candidate one;
  for (Role r : {kM, kJ, kK, kN}) one.tiles[r] = c.extent(r);
  ByRole<bool> seen{}, bound{};
  std::vector<const Node*> loops;
  collect_loops(plan.kernels.front().tree, loops);
  for (const Node* l : loops)
    for (Role r : {kM, kJ, kK, kN}) {
      if (c.workload->loop(c.loops[r]).name != l->name) continue;
      one.tiles[r] = l->step > 0 ? l->step : one.tiles[r];
      bound[r] = l->binding == Binding::grid;
      if (!seen[r] && !bound[r] && r != kK) one.schedule.push_back(r);
      seen[r] = true;
    }
  // A loop inside n's is met first in the nest before it: n's place is before those of that nest.
  std::vector<LoopSchedule> orders{one.schedule};
  if (const auto n = std::ranges::find(one.schedule, kN); n != one.schedule.end()) {
    LoopSchedule rest = one.schedule;
    std::erase(rest, kN);
    for (std::size_t i = 0; i <= rest.size(); ++i) {
      orders.push_back(rest);
      orders.back().insert(orders.back().begin() + static_cast<std::ptrdiff_t>(i), kN);
    }
  }
  const auto machine = std::make_shared<const Machine>(m);
  const auto given = resolve(plan, c.workload, machine);
  if (!given) return Reason{given.reason()};
  for (LoopSchedule& order : orders) {
    one.schedule = std::move(order);
    if (!seen[kN]) one.schedule.push_back(kN);
    one.schedule.push_back(kK);
    const auto p = price(c, d, o, one);
    if (!p) continue;
    const auto ours = resolve(plan_of(c, m, level, one, *p), c.workload, machine);
    if (!ours) continue;
    const Kernel &a = given->resolved.kernels.front(), &b = ours->resolved.kernels.front();
    if (a.tree == b.tree && a.pins == b.pins && a.tiles == b.tiles && a.level == b.level)
      return one;
  }
  return none;
}

}  // namespace tilewright::flashfuser
