// Which orders may have made a loop tree: those that nest its loops as it does.
#include "models/chimera/chain.h"
#include "models/chimera/chimera.h"

namespace tilewright::chimera {
namespace {

using detail::bit;
using detail::Chain;
using detail::each;
using detail::has;
using detail::Mask;

class OrderReader {
 public:
  OrderReader(const Workload& w, const Tiles& tiles) : c_(w), outside_(w.loops().size(), 0) {
    for (LoopId l : c_.order_loops())
      (tiles[l.index()] < w.loop(l).extent ? turning_ : once_).push_back(l);
    for (LoopId l : turning_) multi_ |= bit(l.index());
  }

  std::vector<Order> read(const Node& tree) {
    nest(tree, 0);
    extend(once_, multi_);
    return std::move(orders_);
  }

 private:
  /// The order's loops that a loop of the tree cuts: its own, or those that it follows.
  Mask cut_by(const std::string& name) const {
    const auto l = c_.workload().find_loop(name);
    if (!l) return 0;
    Mask loops = 0;
    for (std::size_t p = 0; p < c_.size(); ++p) {
      const int local = c_.workload().local_index(c_.id(p), *l);
      if (local >= 0) loops |= c_.follows(p, static_cast<std::size_t>(local)).loops;
    }
    return has(multi_, l->index()) ? bit(l->index()) : loops & multi_;
  }

  void nest(const Node& n, Mask around) {
    if (n.kind == Node::Kind::loop) {
      const Mask here = cut_by(n.name);
      each(here, [&](std::size_t l) { outside_[l] |= around & ~here; });
      around |= here;
    }
    for (const Node& child : n.children) nest(child, around);
  }

  /// Every order of `left` after `order` that keeps what lies outside what.
  void extend(const Order& order, Mask left) {
    if (orders_.size() >= static_cast<std::size_t>(kMostOrders)) return;
    if (left == 0) return orders_.push_back(order);
    for (LoopId l : turning_) {
      if (!has(left, l.index()) || (outside_[l.index()] & left) != 0) continue;
      Order longer = order;
      longer.push_back(l);
      extend(longer, left & ~bit(l.index()));
    }
  }

  Chain c_;
  std::vector<LoopId> turning_, once_;
  Mask multi_ = 0;
  std::vector<Mask> outside_;  // by LoopId: loops that the tree has around it
  std::vector<Order> orders_;
};

}  // namespace

std::vector<Order> orders_of(const Workload& w, const Node& tree, const Tiles& tiles) {
  return OrderReader(w, tiles).read(tree);
}

}  // namespace tilewright::chimera
