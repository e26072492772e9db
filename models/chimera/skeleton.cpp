// From an order to a loop tree, and from the tree to what it keeps alive.
#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "models/chimera/chain.h"

namespace tilewright::chimera::detail {
namespace {

/// The loops still to be placed, outer first.
struct Rest {
  std::array<std::int8_t, kMaxMask> loop{};
  int count = 0;
  int next = 0;
  Mask deferred = 0;  ///< loops of one trip that would part operators, put last

  void push(int l) {
    if (next > 0 && count == static_cast<int>(loop.size())) {
      std::copy(loop.begin() + next, loop.begin() + count, loop.begin());
      count -= next;
      next = 0;
    }
    loop[static_cast<std::size_t>(count++)] = static_cast<std::int8_t>(l);
  }
  bool empty() const { return next == count; }
  int pop() { return loop[static_cast<std::size_t>(next++)]; }
  void unpop() { --next; }
  Mask mask() const {
    Mask m = 0;
    for (int i = next; i < count; ++i)
      m |= bit(static_cast<std::size_t>(loop[static_cast<std::size_t>(i)]));
    return m;
  }
};

class Builder {
 public:
  Builder(const Chain& c, Mask multi) : c_(c), multi_(multi) {}

  void build(Mask ops, Rest rest, int parent) {
    while (ops != 0) {
      if (rest.empty()) {
        each(ops, [&](std::size_t p) { items_.push_back({-1, static_cast<int>(p), parent, 0}); });
        return;
      }
      const int l = rest.pop();
      const auto x = static_cast<std::size_t>(l);
      const Mask users = with(ops, x);
      if (users == 0) continue;
      const Mask dependents = dependents_of_reducers(ops, users, x);
      const bool once = !has(multi_, x) && !has(rest.deferred, x);
      if (once && (dependents != 0 || parts(l, ops, users))) {
        rest.deferred |= bit(x);
        rest.push(l);
        continue;
      }
      if (dependents == 0) return enclose(l, ops, users, rest, parent);
      // The producers' unfinished reduction first, with what feeds it; then everybody else.
      const Mask reducing = users & ~dependents;
      Mask inside = reducing;
      each(reducing, [&](std::size_t p) { inside |= c_.ancestors_of(p) & ops; });
      enclose(l, inside, reducing, rest, parent);
      rest.unpop();
      ops &= ~inside;
    }
  }

  Skeleton take() { return std::move(items_); }

 private:
  Mask with(Mask ops, std::size_t loop) const {
    Mask users = 0;
    each(ops, [&](std::size_t p) {
      if (has(c_.loops_of(p), loop)) users |= bit(p);
    });
    return users;
  }

  /// Whether a loop around `users` leaves operators behind it, or gives each a loop of its own.
  bool parts(int loop, Mask ops, Mask users) const {
    Mask around = users;
    each(users, [&](std::size_t p) { around |= c_.ancestors_of(p); });
    return (ops & ~around) != 0 ||
           (std::popcount(users) > 1 && c_.stand_in(LoopId(loop), users) != LoopId(loop));
  }

  /// Those of `ops` that need the finished result of one of `users` that reduces over the loop.
  Mask dependents_of_reducers(Mask ops, Mask users, std::size_t loop) const {
    Mask d = 0;
    each(users, [&](std::size_t p) {
      if (has(c_.reductions_of(p), loop) && !c_.op(p).running) d |= c_.dependents_of(p) & ops;
    });
    return d;
  }

  /// One loop around `users` and those before them that must be computed again in each iteration.
  /// Operators that need not be are placed before it, unrelated ones after it.
  void enclose(int loop, Mask ops, Mask users, const Rest& rest, int parent) {
    const Mask cut_below = rest.mask() & multi_;
    Mask before = 0, core = users, feeding = 0;
    each(users, [&](std::size_t p) { feeding |= c_.ancestors_of(p) & ops; });
    each(feeding & ~users, [&](std::size_t p) {  // ascending: producers first
      const bool again = (c_.loops_of(p) & cut_below) != 0 || (c_.ancestors_of(p) & core) != 0;
      (again ? core : before) |= bit(p);
    });
    build(before, rest, parent);
    if (std::popcount(core) > 1 && c_.stand_in(LoopId(loop), core) != LoopId(loop)) {
      // Each walks its own rows in the loop's place: together, one's rows are inferred from the
      // other's below the loop, and so the two would have different ranges at it.
      Rest again = rest;
      again.unpop();
      each(core, [&](std::size_t p) { build(bit(p), again, parent); });
      return build(ops & ~before & ~core, rest, parent);
    }
    const int item = static_cast<int>(items_.size());
    items_.push_back({loop, -1, parent, core});
    build(core, rest, item);
    build(ops & ~before & ~core, rest, parent);
  }

  const Chain& c_;
  Mask multi_;
  Skeleton items_;
};

/// Items that enclose an item, itself excluded, innermost first.
template <class F>
void each_enclosing(const Skeleton& s, int item, F&& f) {
  for (int i = s[static_cast<std::size_t>(item)].parent; i >= 0;
       i = s[static_cast<std::size_t>(i)].parent)
    f(s[static_cast<std::size_t>(i)], i);
}

/// The innermost loop around all of `ops`; -1 for the kernel.
int home_of(const Skeleton& s, int producer_leaf, Mask ops) {
  int home = -1;
  bool found = false;
  each_enclosing(s, producer_leaf, [&](const Item& loop, int i) {
    if (!found && (ops & ~loop.inside) == 0) {
      home = i;
      found = true;
    }
  });
  return home;
}

}  // namespace

Skeleton skeleton_of(const Chain& c, std::span<const LoopId> order, Mask multi, Mask ops) {
  Rest rest;
  for (LoopId l : order) rest.push(l.value);
  Builder builder(c, multi);
  builder.build(ops, rest, -1);
  return builder.take();
}

Skeleton skeleton_of(const Chain& c, std::span<const LoopId> order, Mask multi) {
  return skeleton_of(c, order, multi, c.size() == kMaxMask ? ~Mask{0} : bit(c.size()) - 1);
}

namespace {

class Liveness {
 public:
  Liveness(const Chain& c, const Skeleton& s, Mask multi, Mask on_chip)
      : c_(c), s_(s), multi_(multi), on_chip_(on_chip), leaf_(c.size(), -1) {
    for (std::size_t i = 0; i < s.size(); ++i)
      if (s[i].op >= 0) leaf_[static_cast<std::size_t>(s[i].op)] = static_cast<int>(i);
  }

  Structure analyse() {
    const Workload& w = c_.workload();
    r_.cut.assign(w.tensors().size(), 0);
    r_.live.assign(c_.size(), 0);
    r_.foreign.assign(c_.size(), 0);
    for (std::size_t p = 0; p < c_.size(); ++p) {
      each_enclosing(s_, leaf_[p], [&](const Item& loop, int) {
        if (!has(c_.loops_of(p), static_cast<std::size_t>(loop.loop)))
          r_.foreign[p] |= bit(static_cast<std::size_t>(loop.loop));
      });
      for (const Access& in : c_.op(p).inputs) r_.live[p] |= bit(in.tensor.index());
      for (const Output& out : c_.op(p).outputs) r_.live[p] |= bit(out.target.tensor.index());
    }
    std::vector<int> home(w.tensors().size(), -1);
    each(on_chip_, [&](std::size_t t) { home[t] = keep_intermediate(TensorId(t)); });
    r_.held = r_.live;
    // A moved tile is fixed at its compute, an on-chip one at its home point.
    for (std::size_t p = 0; p < c_.size(); ++p) {
      for (const Access& in : c_.op(p).inputs)
        if (!has(on_chip_, in.tensor.index())) hold(p, in, leaf_[p]);
      for (const Output& out : c_.op(p).outputs) {
        const std::size_t t = out.target.tensor.index();
        if (!has(on_chip_, t))
          hold(p, out.target, leaf_[p]);
        else if (home[t] >= 0)
          hold(p, out.target, home[t], true);
      }
    }
    return std::move(r_);
  }

 private:
  /// From its producer to its last consumer, and through every loop below its home point that one
  /// of them shares with others: the next iteration finds it. Returns its home point.
  int keep_intermediate(TensorId t) {
    const std::size_t producer = c_.position(c_.workload().producer(t));
    Mask users = bit(producer);
    int last = leaf_[producer];
    for (OpId consumer : c_.workload().consumers(t)) {
      const std::size_t q = c_.position(consumer);
      users |= bit(q);
      last = std::max(last, leaf_[q]);
    }
    const int home = home_of(s_, leaf_[producer], users);
    Mask alive = users;
    for (int i = leaf_[producer]; i <= last; ++i)
      if (s_[static_cast<std::size_t>(i)].op >= 0)
        alive |= bit(static_cast<std::size_t>(s_[static_cast<std::size_t>(i)].op));
    each(users, [&](std::size_t p) {
      bool below = true;
      each_enclosing(s_, leaf_[p], [&](const Item& loop, int i) {
        below = below && i != home;
        if (below && has(multi_, static_cast<std::size_t>(loop.loop))) alive |= loop.inside;
      });
    });
    Mask& cut = r_.cut[t.index()];
    if (home >= 0) {
      cut |= bit(static_cast<std::size_t>(s_[static_cast<std::size_t>(home)].loop));
      each_enclosing(s_, home, [&](const Item& loop, int) {
        cut |= bit(static_cast<std::size_t>(loop.loop));
      });
    }
    each(alive, [&](std::size_t p) { r_.live[p] |= bit(t.index()); });
    return home;
  }

  /// A tile fixed at an item outlives it while only loops that do not move the tile turn around it
  /// (plan.md, memory use: a later find counts).
  void hold(std::size_t p, const Access& access, int fixed_at, bool itself = false) {
    const Mask moving = c_.accessed(p, access, multi_) & multi_;
    bool held = true;
    Mask through = 0;
    const auto pass = [&](const Item& loop, int) {
      const auto x = static_cast<std::size_t>(loop.loop);
      held = held && !has(moving, x);
      if (held && has(multi_, x)) through |= loop.inside;
    };
    if (itself) pass(s_[static_cast<std::size_t>(fixed_at)], fixed_at);
    each_enclosing(s_, fixed_at, pass);
    each(through, [&](std::size_t q) { r_.held[q] |= bit(access.tensor.index()); });
  }

  const Chain& c_;
  const Skeleton& s_;
  Mask multi_, on_chip_;
  std::vector<int> leaf_;
  Structure r_;
};

}  // namespace

Structure structure_of(const Chain& c, const Skeleton& s, Mask multi, Mask on_chip) {
  return Liveness(c, s, multi, on_chip).analyse();
}

}  // namespace tilewright::chimera::detail
