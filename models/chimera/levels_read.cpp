// A plan over several levels read back into the blocks that made it.
#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "models/chimera/levels_detail.h"

namespace tilewright::chimera {
namespace {

using detail::Chain;
using detail::Flat;

/// Which level a loop is of is read off the loads: below an operator's loads to a level, and above
/// those to the next, are that next level's loops.
class LevelReader {
 public:
  LevelReader(const Workload& w, const Machine& m) : w_(w), m_(m), chain_(w), levels_(chip_levels(m)) {}

  Result<std::vector<LevelTiling>> read(const Node& tree) {
    steps_.assign(levels_.size(), {});
    turning_.assign(levels_.size(), {});
    visit(tree);
    if (!why_.empty()) return Reason{why_};
    match(tree);
    collect(tree);
    if (!why_.empty()) return Reason{why_};
    Tiles tiles;
    for (std::size_t l = 0; l < w_.loops().size(); ++l)
      tiles.push_back(w_.is_batch(LoopId(l)) ? 1 : w_.loops()[l].extent);
    const Order order(chain_.order_loops().begin(), chain_.order_loops().end());
    const Flat f(w_, order, {});
    std::vector<LevelTiling> all;
    for (std::size_t d = 0; d < levels_.size(); ++d) {
      for (const auto& [loop, step] : steps_[d]) {
        if (step > tiles[loop.index()])
          return Reason{"loop " + w_.loop(loop).name + " has larger steps inside than outside"};
        tiles[loop.index()] = step;
      }
      all.push_back({levels_[d], order, detail::tiles_of(f, f.point(tiles))});
    }
    return all;
  }
  std::span<const std::vector<LoopId>> turning() const { return turning_; }

 private:
  void fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }

  /// Every compute, with the loops and loads on its way from the root.
  void visit(const Node& n) {
    const std::size_t before = way_.size();
    if (n.kind == Node::Kind::loop) way_.push_back(&n);
    if (n.kind == Node::Kind::compute) assign(n);
    for (const Node& c : n.children) {
      if (c.kind == Node::Kind::load)
        way_.push_back(&c);
      else
        visit(c);
    }
    way_.resize(before);
  }

  void assign(const Node& compute) {
    const auto op = w_.find_op(compute.name);
    if (!op) return fail(compute.name + " is not an operator");
    std::size_t depth = 0;
    bool loads = false;
    std::map<const Node*, std::size_t> mine;
    for (const Node* n : way_) {
      if (n->kind == Node::Kind::loop) {
        mine[n] = depth;
        continue;
      }
      const auto tensor = w_.find_tensor(n->name);
      const auto level = m_.find(n->level);
      const auto& inputs = w_.op(*op).inputs;
      // A load of an intermediate may begin at any level; a workload's input is loaded to each.
      const bool reads = tensor && w_.is_input(*tensor) && std::any_of(inputs.begin(), inputs.end(), [&](const Access& a) {
                           return a.tensor == *tensor;
                         });
      for (std::size_t d = 0; reads && level && d < levels_.size(); ++d)
        if (levels_[d] == *level) depth = std::max(depth, d + 1);
      loads = loads || reads;
    }
    if (!loads) return;
    for (const auto& [loop, at] : mine) {
      if (at >= levels_.size()) return fail("a loop lies inside the innermost level's loads");
      if (const auto [it, fresh] = depth_.emplace(loop, at); !fresh && it->second != at)
        return fail("loop " + loop->name + " is of two levels");
    }
  }

  /// An operator that reads intermediates alone: its loops are of the level whose loops of that name
  /// have that step.
  void match(const Node& n) {
    if (n.kind == Node::Kind::loop && !depth_.contains(&n)) {
      std::set<std::size_t> same;
      for (const auto& [other, depth] : depth_)
        if (other->name == n.name && other->step == n.step) same.insert(depth);
      if (same.size() == 1) depth_[&n] = *same.begin();
    }
    for (const Node& c : n.children) match(c);
  }

  void collect(const Node& n) {
    if (n.kind == Node::Kind::loop) {
      const auto loop = w_.find_loop(n.name);
      const auto at = depth_.find(&n);
      if (!loop || n.step == 0) return fail("loop " + n.name + " has no step of its own");
      if (at == depth_.end()) return fail("no load says which level loop " + n.name + " is of");
      const auto order = chain_.order_loops();
      const bool ordered = std::find(order.begin(), order.end(), *loop) != order.end();
      if (ordered) {
        const auto [step, fresh] = steps_[at->second].emplace(*loop, n.step);
        if (fresh)
          turning_[at->second].push_back(*loop);
        else if (step->second != n.step)
          return fail("loop " + n.name + " has two steps at one level");
      }
    }
    for (const Node& c : n.children) collect(c);
  }

  const Workload& w_;
  const Machine& m_;
  Chain chain_;
  std::vector<LevelId> levels_;
  std::string why_;
  std::vector<const Node*> way_;
  std::map<const Node*, std::size_t> depth_;
  std::vector<std::map<LoopId, std::int64_t>> steps_;
  std::vector<std::vector<LoopId>> turning_;
};

}  // namespace

Result<std::vector<LevelTiling>> tilings_of(const Workload& w, const Machine& m,
                                            const Kernel& kernel, const LevelsOptions& options) {
  LevelReader reader(w, m);
  Result<std::vector<LevelTiling>> read = reader.read(kernel.tree);
  if (!read) return read;
  const Result<std::vector<Order>> orders = distinct_orders(w, options.model);
  if (!orders) return Reason{orders.reason()};
  std::vector<LevelTiling> tilings = std::move(read).value();
  const Reason none{"it is not the tree of one order and one tile a level"};
  if (!detail::choose_orders(w, m, tilings, *orders, options, reader.turning())) return none;
  const Plan again = plan_of(w, tilings, m, options.model);
  if (to_text(again.kernels.front().tree) != to_text(kernel.tree)) return none;
  return tilings;
}

}  // namespace tilewright::chimera
