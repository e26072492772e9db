// Names to ids: the tree's nodes, with rule 9's loads put where no load node is.
#include <algorithm>
#include <set>

#include "core/base/format.h"
#include "core/plan/resolver.h"

namespace tilewright::resolving {

namespace {

template <class Range>
std::vector<std::string> names_of(const Range& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.name);
  return names;
}

std::string suggestion(std::string_view given, const std::vector<std::string>& names) {
  const std::string near = nearest(given, names);
  return near.empty() ? join(names) : formatted("{} (did you mean {}?)", join(names), near);
}

class Binder {
 public:
  explicit Binder(Draft& d) : d_(d) { collect_loads(d.plan.tree); }

  void run() {
    const NodeId root = add(NodeKind::sequence, NodeId());
    bind_body(d_.plan.tree, root);
    d_.number();
    check_operators();
  }

 private:
  void collect_loads(const Node& n) {
    if (n.kind == Node::Kind::load) loaded_.insert(n.name);
    for (const Node& c : n.children) collect_loads(c);
  }

  NodeId add(NodeKind kind, NodeId parent) {
    const NodeId id(d_.k.nodes.size());
    ScheduleNode n;
    n.kind = kind;
    n.parent = parent;
    d_.k.nodes.push_back(std::move(n));
    if (parent.valid()) d_.node(parent).children.push_back(id);
    return id;
  }

  /// The one node after a loop (or the whole tree): a sequence's parts become the body's own.
  void bind_body(const Node& body, NodeId parent) {
    if (body.kind != Node::Kind::sequence) return bind(body, parent, true);
    for (const Node& part : body.children) bind(part, parent, body.children.size() == 1);
  }

  /// `alone`: the parent holds nothing but this node.
  void bind(const Node& n, NodeId parent, bool alone) {
    switch (n.kind) {
      case Node::Kind::loop:
        return bind_loop(n, parent);
      case Node::Kind::sequence:
        return bind_body(n, add(NodeKind::sequence, parent));
      case Node::Kind::pack: {
        const NodeId id = add(NodeKind::pack, parent);
        for (const Node& c : n.children) {
          if (c.first_block) d_.first_blocks[NodeId(d_.k.nodes.size())] = *c.first_block;
          bind(c, id, false);
        }
        return;
      }
      case Node::Kind::load:
        return bind_load(n, parent);
      case Node::Kind::compute:
        return bind_compute(n, parent, alone);
      case Node::Kind::store:
        return bind_store(n, parent);
      case Node::Kind::sync:
        return bind_sync(n, parent);
      case Node::Kind::drop:
        return bind_drop(n, parent);
    }
  }

  std::int64_t step_of(const Node& n, const Loop& loop, bool nested) const {
    if (n.step == 0 && nested)
      d_.bad("loop " + n.name, "", "is nested in itself, without a step",
             formatted("a step, as in {}/4", n.name));
    if (n.step == 0) {
      const auto tile = d_.plan.tiles.find(n.name);
      if (tile == d_.plan.tiles.end())
        d_.bad("loop " + n.name, "", "has neither a step nor a tile",
               formatted("{0}/STEP in the tree or {0}=STEP in the tiles, 1..{1}", n.name,
                         loop.extent));
      return tile->second;
    }
    if (n.step < 1 || n.step > loop.extent)
      d_.bad("loop " + n.name, std::to_string(n.step), "is not a step of this loop",
             formatted("1..{}", loop.extent));
    return n.step;
  }

  void bind_loop(const Node& n, NodeId parent) {
    const auto loop = d_.placement.find_loop(n.name);
    if (!loop)
      d_.bad("loop", n.name, "is not a loop of the workload",
             suggestion(n.name, names_of(d_.w.loops())));
    const bool nested = std::ranges::find(around_, n.name) != around_.end();
    const NodeId id = add(NodeKind::loop, parent);
    d_.node(id).loop = *loop;
    d_.node(id).step = step_of(n, d_.w.loop(*loop), nested);
    d_.node(id).binding = n.binding;
    around_.push_back(n.name);
    bind_body(n.children.front(), id);
    around_.pop_back();
  }

  TensorId tensor(const std::string& name) const {
    const auto t = d_.placement.find_tensor(name);
    if (!t)
      d_.bad("tensor", name, "is not a tensor of the workload",
             suggestion(name, names_of(d_.w.tensors())));
    return *t;
  }

  /// Where the kernel keeps its part of a tensor: a spilled one is read at the kernel's level.
  LevelId on_chip_level(TensorId t) const {
    const LevelId l = d_.level_of(t);
    return l == d_.m.home() ? d_.k.level : l;
  }

  LevelId level(const std::string& name, TensorId t) const {
    if (name.empty()) return on_chip_level(t);
    const auto l = d_.m.find(name);
    if (!l)
      d_.bad("level", name, "is not a level of machine " + d_.m.name,
             suggestion(name, names_of(d_.m.levels)));
    return *l;
  }

  /// One node, or one for each of the tensor's slices.
  std::vector<NodeId> add_loads(TensorId t, LevelId l, NodeId parent, int copies) {
    const std::vector<int> slices = d_.slices.empty() ? std::vector{0} : d_.slices.at[loads_++];
    std::vector<NodeId> loads;
    for (int slice : slices) loads.push_back(add_load(t, slice, l, parent, copies));
    d_.further.insert(d_.further.end(), loads.begin() + 1, loads.end());
    return loads;
  }

  NodeId add_load(TensorId t, int slice, LevelId l, NodeId parent, int copies) {
    if (l == d_.m.home())
      d_.bad("L." + d_.w.tensor(t).name, d_.m.level(l).name, "is where whole tensors live",
             "an on-chip level");
    const NodeId id = add(NodeKind::load, parent);
    d_.node(id).tensor = t;
    d_.node(id).level = l;
    BufferId buffer;
    for (BufferId b : d_.input_buffers[t.index()])
      if (d_.k.buffer(b).level == l && d_.slice_of(b) == slice) buffer = b;
    if (!buffer.valid()) {
      buffer = BufferId(d_.k.buffers.size());
      d_.k.buffers.push_back({.tensor = t, .level = l, .role = BufferRole::input});
      d_.input_buffers[t.index()].push_back(buffer);
      d_.slice_of_buffer[buffer] = slice;
    }
    Buffer& b = d_.k.buffers[buffer.index()];
    b.copies = std::max(b.copies, copies);
    b.sliding = d_.sliding[t];
    d_.node(id).buffer = buffer;
    return id;
  }

  void bind_load(const Node& n, NodeId parent) {
    const TensorId t = tensor(n.name);
    add_loads(t, level(n.level, t), parent, n.copies);
  }

  void bind_compute(const Node& n, NodeId parent, bool alone) {
    const auto op = d_.placement.find_op(n.name);
    if (!op)
      d_.bad("operator", n.name, "is not an operator of the workload",
             suggestion(n.name, names_of(d_.w.operators())));
    if (d_.compute_of[op->index()].valid())
      d_.bad("C." + n.name, "twice", "is computed twice in one kernel", "one compute an operator");
    std::vector<TensorId> implicit;
    for (const Access& a : d_.w.op(*op).inputs) {
      if (is_gather(a)) continue;
      const bool has_load = loaded_.contains(d_.w.tensor(a.tensor).name);
      if (!has_load && !made_here(a.tensor) &&
          std::ranges::find(implicit, a.tensor) == implicit.end())
        implicit.push_back(a.tensor);
    }
    // The loads serve this compute alone, so they share parentheses with nothing else.
    if (!implicit.empty() && !alone) parent = add(NodeKind::sequence, parent);
    std::vector<NodeId> loads;
    for (TensorId t : implicit)
      for (NodeId l : add_loads(t, on_chip_level(t), parent, 1)) loads.push_back(l);
    d_.implicit.insert(d_.implicit.end(), loads.begin(), loads.end());
    const NodeId id = add(NodeKind::compute, parent);
    d_.node(id).op = *op;
    d_.node(id).once = n.once;
    if (n.once)
      for (NodeId l : loads) d_.node(l).only_for = id;
    d_.has_once |= n.once;
    d_.compute_of[op->index()] = id;
  }

  /// On chip in this kernel, judged by the plan's operators before any node is bound.
  bool made_here(TensorId t) const {
    const OpId producer = d_.w.producer(t);
    return producer.valid() && d_.placement.computes(d_.index, producer) &&
           d_.level_of(t) != d_.m.home();
  }

  void bind_store(const Node& n, NodeId parent) {
    const TensorId t = tensor(n.name);
    const LevelId target = n.level.empty() ? d_.m.home() : level(n.level, t);
    const NodeId id = add(NodeKind::store, parent);
    d_.node(id).tensor = t;
    d_.node(id).level = target;
    d_.node(id).atomic = n.atomic;
    d_.node(id).op = d_.w.producer(t);
  }

  void bind_sync(const Node& n, NodeId parent) {
    const NodeId id = add(NodeKind::sync, parent);
    d_.node(id).scope = n.name == "grid"    ? Unit::machine
                        : n.name == "block" ? Unit::grid
                                            : Unit::warp;
    if (n.name == "grid") d_.k.co_resident = true;
  }

  void bind_drop(const Node& n, NodeId parent) {
    const TensorId t = tensor(n.name);
    const LevelId l = level(n.level, t);
    const NodeId id = add(NodeKind::drop, parent);
    d_.node(id).tensor = t;
    d_.node(id).level = l;
  }

  void check_operators() const {
    for (const std::string& name : d_.plan.operators) {
      const auto op = d_.placement.find_op(name);
      if (!op)
        d_.bad("operators", name, "is not an operator of the workload",
               suggestion(name, names_of(d_.w.operators())));
      if (!d_.compute_of[op->index()].valid())
        d_.bad("operators", name, "is listed but the tree does not compute it", "C." + name);
    }
  }

  Draft& d_;
  std::set<std::string> loaded_;
  std::size_t loads_ = 0;            ///< so far, without further slices
  std::vector<std::string> around_;  ///< names of the loops around, outermost first
};

}  // namespace

void bind_tree(Draft& d) { Binder(d).run(); }

void bind_pins(Draft& d) {
  LevelId level = d.m.default_level();
  if (!d.plan.level.empty()) {
    const auto found = d.m.find(d.plan.level);
    if (!found || *found == d.m.home())
      d.bad("level", d.plan.level, "is not an on-chip level of machine " + d.m.name,
            suggestion(d.plan.level, names_of(d.m.levels)));
    level = *found;
  }
  d.k.level = level;
  for (const auto& [name, pin] : d.plan.pins) {
    const auto t = d.placement.find_tensor(name);
    if (!t)
      d.bad("pins", name, "is not a tensor of the workload",
            suggestion(name, names_of(d.w.tensors())));
    if (!pin.level.empty()) {
      const auto l = d.m.find(pin.level);
      if (!l)
        d.bad("pins." + name, pin.level, "is not a level of machine " + d.m.name,
              suggestion(pin.level, names_of(d.m.levels)));
      const bool read_again = d.w.producer(*t).valid() && !d.w.consumers(*t).empty();
      if (*l == d.m.home() && !read_again)
        d.bad("pins." + name, pin.level, "is where this tensor lives anyway",
              "an on-chip level; only what an operator makes and another reads is spilled to home");
      d.pinned[*t] = *l;
    }
    if (!pin.at.empty()) d.home_at[*t] = pin.at;
  }
  for (const auto& [name, flags] : d.plan.flags) {
    const auto t = d.placement.find_tensor(name);
    if (!t)
      d.bad("flags", name, "is not a tensor of the workload",
            suggestion(name, names_of(d.w.tensors())));
    const OpId producer = d.w.producer(*t);
    if (flags.running && !(producer.valid() && d.w.op(producer).running))
      d.bad("flags." + name, "running", "is not a running result",
            "a tensor that the online-softmax rewrite made running");
    d.sliding[*t] = flags.sliding;
  }
}

}  // namespace tilewright::resolving
