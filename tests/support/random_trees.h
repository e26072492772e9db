// Seeded random workloads, machines and loop trees: chains of two to four operators with edges,
// halos, strides and padding, split, nested and reordered at every depth, with loads, stores,
// spills, recomputation, sliding, !once, grids, units and two levels. Not every plan is legal:
// `resolve` says which, and callers skip the others.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "core/plan/schedule.h"
#include "core/workload/text.h"
#include "tests/support/random_convolutions.h"
#include "tests/support/random_gathers.h"
#include "tests/support/random_workloads.h"

namespace tilewright::testing {

struct RandomCase {
  std::shared_ptr<const Workload> workload;
  std::shared_ptr<const Machine> machine;
  Plan plan;
};

/// What a failing case was, to be run by hand.
inline std::string describe(const RandomCase& c) {
  std::string text = to_yaml(*c.workload) + "machine: " + c.machine->name + "\n";
  for (const Level& l : c.machine->levels)
    text += "  " + l.name + " private to " + std::string(name_of(l.private_to)) + "\n";
  for (const Kernel& k : c.plan.kernels) {
    text += "tree: " + to_text(k.tree) + "\n";
    for (const auto& [t, pin] : k.pins)
      text += "  pin " + t + ": level '" + pin.level + "' at '" + pin.at + "'\n";
    for (const auto& [t, f] : k.flags) text += "  sliding " + t + "\n";
  }
  return text;
}

namespace random_trees {

class Maker : private Dice {
 public:
  Maker(std::mt19937_64& random, const RandomOptions& options) : Dice(random), o_(options) {}

  std::optional<RandomCase> make() {
    try {
      const std::string text = o_.planes    ? ConvolutionMaker(random_).text()
                               : o_.gathers ? GatherMaker(random_, o_).text()
                                            : WorkloadMaker(random_, o_).text();
      return make(workload_from_yaml(text, "random"));
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  RandomCase make(Workload workload) {
    RandomCase c;
    c.workload = std::make_shared<const Workload>(std::move(workload));
    w_ = c.workload.get();
    c.machine = std::make_shared<const Machine>(machine());
    const auto order = w_->topological_order();
    std::vector<OpId> ops(order.begin(), order.end());
    if (o_.recompute && ops.size() > 1) {
      recompute(c.plan, ops);
      return c;
    }
    const double cuts = o_.gathers ? 0.4 : 0.1;  // a table is another kernel's
    const std::size_t cut =
        o_.kernels && ops.size() > 1 && chance(cuts) ? pick<std::size_t>(1, ops.size() - 1) : 0;
    if (cut > 0)
      c.plan.kernels.push_back(kernel({ops.begin(), ops.begin() + static_cast<long>(cut)}));
    c.plan.kernels.push_back(kernel({ops.begin() + static_cast<long>(cut), ops.end()}));
    return c;
  }

 private:
  /// Two or three kernels, each with some of the operators before its own once more: those that it
  /// has readers of.
  void recompute(Plan& plan, const std::vector<OpId>& ops) {
    std::size_t begin = 0;
    while (begin < ops.size()) {
      const std::size_t end =
          plan.kernels.size() == 2 ? ops.size() : pick<std::size_t>(begin + 1, ops.size());
      std::vector<OpId> own(ops.begin() + static_cast<long>(begin),
                            ops.begin() + static_cast<long>(end));
      const std::size_t again = begin == 0 ? 0 : pick<std::size_t>(0, begin);
      for (std::size_t i = begin; i-- > begin - again;)
        if (std::ranges::any_of(w_->op(ops[i]).outputs, [&](const Output& out) {
              const auto readers = w_->consumers(out.target.tensor);
              return std::ranges::find_first_of(readers, own) != readers.end();
            }))
          own.insert(own.begin(), ops[i]);
      plan.kernels.push_back(kernel(own));
      begin = end;
    }
  }

  Machine machine() {
    two_levels_ = o_.two_levels && chance(0.5);
    Machine m = parse_synthetic_machine(two_levels_ ? "scratchpad:1M,1M" : "scratchpad:1M");
    for (Level& l : m.levels) l.instances = 1 << 20;
    warps_ = o_.units && chance(0.15);
    if (warps_) m.levels.back().private_to = Unit::warp;
    if (two_levels_ && o_.units && chance(0.15)) m.levels[1].private_to = Unit::machine;
    return m;
  }

  // ---- trees

  struct Range {
    std::string loop;
    std::int64_t size;
  };

  Kernel kernel(const std::vector<OpId>& ops) {
    Kernel k;
    ops_ = ops;
    std::vector<Range> ranges;
    for (const Loop& l : w_->loops()) ranges.push_back({l.name, l.extent});
    grids_ = o_.grid && chance(0.25) ? pick(1, 2) : 0;
    k.tree = o_.phases ? phases(ops, ranges) : body(ops, ranges, pick(2, 7), 0);
    pins_and_flags(k);
    if (o_.phases) cross_blocks(k);
    if (o_.loads) add_loads(k);
    if (o_.stores) add_stores(k);
    if (o_.reloads && two_levels_) add_reloads(k);
    if (o_.drops) add_drops(k);
    tidy(k.tree);
    return k;
  }

  /// Loops that may go around all of `ops`: no reduction of an operator that another one reads.
  std::vector<std::size_t> candidates(const std::vector<OpId>& ops,
                                      const std::vector<Range>& ranges) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const LoopId loop = *w_->find_loop(ranges[i].loop);
      bool any = false, bad = false;
      for (std::size_t j = 0; j < ops.size(); ++j) {
        any |= w_->local_index(ops[j], loop) >= 0;
        bad |= j + 1 < ops.size() && w_->is_reduction(ops[j], loop) && !w_->op(ops[j]).running &&
               !chance(0.03);
      }
      if (any && !bad) found.push_back(i);
    }
    return found;
  }

  Node body(const std::vector<OpId>& ops, std::vector<Range> ranges, int loops, int depth) {
    const auto may = candidates(ops, ranges);
    const bool split = ops.size() > 1 && chance(0.3);
    if (loops > 0 && !may.empty() && !split && chance(0.9)) {
      const std::size_t i = one_of(may);
      std::int64_t& size = ranges[i].size;
      const std::int64_t most = chance(0.4) ? std::min<std::int64_t>(size, 3) : size;
      const std::int64_t step = pick<std::int64_t>(1, std::max<std::int64_t>(1, most));
      size = step;
      Binding binding = Binding::seq;
      if (grids_ > 0 && depth < 2) {
        binding = Binding::grid;
        --grids_;
      } else if (warps_ && chance(0.25)) {
        binding = Binding::warp;
      } else if (o_.clusters && chance(0.3)) {
        binding = Binding::cluster;
      } else if (chance(0.05)) {
        binding = chance(0.5) ? Binding::vector : Binding::unroll;
      }
      return loop(ranges[i].loop, body(ops, ranges, loops - 1, depth + 1), step, binding);
    }
    if (ops.size() == 1) return compute(w_->op(ops[0]).name, o_.once && chance(0.08));
    const std::size_t at = pick<std::size_t>(1, ops.size() - 1);
    std::vector<Node> parts{
        body({ops.begin(), ops.begin() + static_cast<long>(at)}, ranges, loops, depth)};
    if (depth == 0 && o_.units && chance(0.3)) parts.push_back(sync("grid"));
    parts.push_back(body({ops.begin() + static_cast<long>(at), ops.end()}, ranges, loops, depth));
    const bool side_by_side = depth <= 1 && w_->name() == "random-pair" && chance(0.6);
    if (!side_by_side || parts.size() != 2) return sequence(std::move(parts));
    Node pack{.kind = Node::Kind::pack};
    pack.children = std::move(parts);
    return pack;
  }

  /// Nests of blocks one after the other, a barrier of all between most of them; the first two side
  /// by side where that may be; sometimes a loop around it all.
  Node phases(const std::vector<OpId>& ops, std::vector<Range> ranges) {
    std::vector<Node> parts;
    std::optional<std::int64_t> first_block;
    bool inside_loop = false;
    std::string around;
    std::int64_t step = 0;
    if (const auto may = candidates(ops, ranges); !may.empty() && chance(0.3)) {
      Range& r = ranges[one_of(may)];
      around = r.loop;
      step = r.size = pick<std::int64_t>(1, r.size);
      inside_loop = true;
    }
    group_of_.assign(w_->operators().size(), 0);
    for (std::size_t begin = 0; begin < ops.size();) {
      const std::size_t end = std::min(ops.size(), begin + pick<std::size_t>(1, 2));
      const std::vector<OpId> own(ops.begin() + static_cast<long>(begin),
                                  ops.begin() + static_cast<long>(end));
      for (OpId op : own) group_of_[op.index()] = begin;
      grids_ = chance(0.9) ? pick(1, 2) : 0;
      const bool after_pack = parts.size() == 1 && w_->name() == "random-fan" && chance(0.5);
      Node part = body(own, ranges, pick(1, 4), 0);
      if (after_pack) {
        Node pack{.kind = Node::Kind::pack};
        pack.children.push_back(std::move(parts.back()));
        pack.children.push_back(std::move(part));
        if (chance(0.4)) first_block = pack.children.back().first_block = pick(3, 40);
        parts.back() = std::move(pack);
      } else {
        if (!parts.empty() && chance(0.9)) parts.push_back(sync("grid"));
        // On the blocks of the pack's second part, or others.
        if (first_block && chance(0.5)) {
          part.first_block = chance(0.7) ? first_block : pick(0, 40);
          Node alone{.kind = Node::Kind::pack};
          alone.children.push_back(std::move(part));
          part = std::move(alone);
        }
        parts.push_back(std::move(part));
      }
      begin = end;
    }
    if (inside_loop && chance(0.8)) parts.push_back(sync("grid"));
    Node all = sequence(std::move(parts));
    return inside_loop ? loop(around, std::move(all), step) : std::move(all);
  }

  /// What one nest makes and a later one reads goes home, mostly, by a store of the blocks that
  /// make it.
  void cross_blocks(Kernel& k) {
    for (OpId op : ops_)
      for (const Output& out : w_->op(op).outputs) {
        const TensorId t = out.target.tensor;
        const std::string& name = w_->tensor(t).name;
        const bool crosses = std::ranges::any_of(w_->consumers(t), [&](OpId reader) {
          return group_of_[reader.index()] != group_of_[op.index()];
        });
        if (!crosses || !w_->is_intermediate(t) || chance(0.15)) continue;
        k.pins[name].level = "DRAM";
        std::vector<Node*> path;
        if (!path_to(k.tree, w_->op(op).name, path) || chance(0.05)) continue;
        std::size_t outermost = 0;
        bool partial = false;
        for (std::size_t i = 0; i < path.size(); ++i)
          if (path[i]->kind == Node::Kind::loop && path[i]->binding == Binding::grid) {
            outermost = i;
            const auto loop = w_->find_loop(path[i]->name);
            partial = partial || w_->is_reduction(op, *loop);
          }
        insert(path, pick(outermost, path.size() - 1), store(name, "DRAM", partial && chance(0.95)),
               false);
      }
  }

  void pins_and_flags(Kernel& k) {
    for (std::size_t t = 0; t < w_->tensors().size(); ++t) {
      const TensorId id(t);
      const std::string& name = w_->tensor(id).name;
      if (o_.sliding && chance(0.2)) k.flags[name].sliding = true;
      if (!o_.pins || !w_->is_intermediate(id)) continue;
      if (chance(0.15))
        k.pins[name].level = "DRAM";
      else if (two_levels_ && chance(0.2))
        k.pins[name].level = "L2";
      if (chance(0.15))
        k.pins[name].at = one_of(std::vector<Loop>(w_->loops().begin(), w_->loops().end())).name;
    }
  }

  // ---- loads and stores

  /// The nodes from the tree's root to the compute of `op`, outermost first; empty: not in it.
  bool path_to(Node& n, const std::string& op, std::vector<Node*>& path) {
    path.push_back(&n);
    if (n.kind == Node::Kind::compute && n.name == op) return true;
    for (Node& c : n.children)
      if (path_to(c, op, path)) return true;
    path.pop_back();
    return false;
  }

  /// Puts `node` into the parentheses of path[at], before or after what leads to the end of path.
  static void insert(const std::vector<Node*>& path, std::size_t at, Node node, bool before) {
    if (path[at]->kind == Node::Kind::pack) ++at;  // into the part, not beside it
    Node& around = *path[at];
    std::vector<Node>* parts = &around.children;
    std::size_t position = 0;
    if (around.kind == Node::Kind::loop && around.children[0].kind == Node::Kind::sequence) {
      parts = &around.children[0].children;
      if (at + 2 < path.size()) position = static_cast<std::size_t>(path[at + 2] - parts->data());
    } else if (around.kind == Node::Kind::sequence) {
      position = static_cast<std::size_t>(path[at + 1] - parts->data());
    } else {
      Node inner = std::move(around);
      Node both{.kind = Node::Kind::sequence};
      if (inner.kind == Node::Kind::loop) {
        Node child = std::move(inner.children[0]);
        both.children.push_back(std::move(child));
        both.children.insert(both.children.begin() + (before ? 0 : 1), std::move(node));
        inner.children[0] = std::move(both);
        around = std::move(inner);
      } else {
        both.children.push_back(std::move(inner));
        both.children.insert(both.children.begin() + (before ? 0 : 1), std::move(node));
        around = std::move(both);
      }
      return;
    }
    parts->insert(parts->begin() + static_cast<long>(position + (before ? 0 : 1)), std::move(node));
  }

  static bool loads(const Node& n, const std::string& tensor, const std::string& level) {
    return n.kind == Node::Kind::load && n.name == tensor && n.level == level;
  }
  /// A load of it stands before the end of the path, in parentheses around that.
  static bool governed(const std::vector<Node*>& path, const std::string& tensor,
                       const std::string& level) {
    for (std::size_t i = 0; i + 1 < path.size(); ++i)
      for (const Node& c : path[i]->children) {
        if (&c == path[i + 1]) break;
        if (loads(c, tensor, level)) return true;
      }
    return false;
  }

  bool only_gathered(TensorId t) const {
    const auto consumers = w_->consumers(t);
    return !consumers.empty() && std::ranges::all_of(consumers, [&](OpId op) {
      return std::ranges::all_of(w_->op(op).inputs,
                                 [&](const Access& a) { return a.tensor != t || is_gather(a); });
    });
  }

  void add_loads(Kernel& k) {
    for (std::size_t t = 0; t < w_->tensors().size(); ++t) {
      const TensorId id(t);
      const std::string& name = w_->tensor(id).name;
      const bool spilled = k.pins.contains(name) && k.pins[name].level == "DRAM";
      const bool made_here = std::ranges::find(ops_, w_->producer(id)) != ops_.end();
      if (made_here && !spilled &&
          !(two_levels_ && k.pins.contains(name) && k.pins[name].level == "L2"))
        continue;
      if (only_gathered(id) && !chance(0.05)) continue;  // resolve says why not
      if (!chance(0.45)) continue;
      std::vector<std::string> levels{"L1"};
      if (two_levels_ && chance(0.5))
        levels = {"L2", "L1"};
      else if (two_levels_ && chance(0.2))
        levels = {"L2"};
      for (OpId op : w_->consumers(id)) {
        std::size_t from = 0;
        for (const std::string& level : levels) {
          std::vector<Node*> path;
          if (!path_to(k.tree, w_->op(op).name, path)) continue;
          if (governed(path, name, level)) continue;
          const std::size_t at =
              pick<std::size_t>(std::min(from, path.size() - 1), path.size() - 1);
          insert(path, at, load(name, level, chance(0.1) ? 2 : 1), true);
          from = at;
        }
      }
    }
  }

  /// Tiles that are loaded are dropped somewhere after a reader.
  void add_drops(Kernel& k) {
    for (std::size_t t = 0; t < w_->tensors().size(); ++t)
      for (OpId op : w_->consumers(TensorId(t))) {
        if (!chance(0.35)) continue;
        std::vector<Node*> path;
        if (!path_to(k.tree, w_->op(op).name, path)) continue;
        const std::string level = two_levels_ && chance(0.3) ? "L2" : "L1";
        insert(path, pick<std::size_t>(0, path.size() - 1), drop(w_->tensors()[t].name, level),
               false);
      }
  }

  void add_stores(Kernel& k) {
    for (OpId op : ops_)
      for (const Output& out : w_->op(op).outputs) {
        const std::string& name = w_->tensor(out.target.tensor).name;
        if (o_.phases && stored(k.tree, name)) continue;
        const bool on_chip = w_->is_intermediate(out.target.tensor) &&
                             !(k.pins.contains(name) && k.pins[name].level == "DRAM");
        std::vector<std::string> levels;
        if (two_levels_ && chance(0.3)) levels.push_back("L2");
        if (!on_chip && chance(0.4)) levels.push_back("DRAM");
        std::size_t last = std::size_t(-1);
        for (const std::string& level : levels) {
          std::vector<Node*> path;
          if (!path_to(k.tree, w_->op(op).name, path)) continue;
          const std::size_t at = pick<std::size_t>(0, std::min(last, path.size() - 1));
          const bool grid_outside =
              std::any_of(path.begin(), path.begin() + static_cast<long>(at) + 1,
                          [](const Node* n) { return n->binding == Binding::grid; });
          insert(path, at, store(name, level, level == "DRAM" && chance(grid_outside ? 0.5 : 0.05)),
                 false);
          last = at;
        }
      }
  }

  /// An intermediate stored to the outer level and loaded back to the inner one for its consumers.
  void add_reloads(Kernel& k) {
    for (OpId op : ops_)
      for (const Output& out : w_->op(op).outputs) {
        const TensorId id = out.target.tensor;
        const std::string& name = w_->tensor(id).name;
        if (!w_->is_intermediate(id) || k.pins.contains(name)) continue;
        std::vector<Node*> path;
        if (!path_to(k.tree, w_->op(op).name, path)) continue;
        if (!stored(k.tree, name))
          insert(path, pick<std::size_t>(0, path.size() - 1), store(name, "L2"), false);
        for (OpId consumer : w_->consumers(id)) {
          path.clear();
          if (!path_to(k.tree, w_->op(consumer).name, path) || governed(path, name, "L1")) continue;
          insert(path, pick<std::size_t>(0, path.size() - 1), load(name, "L1"), true);
        }
      }
  }
  static bool stored(const Node& n, const std::string& tensor) {
    return (n.kind == Node::Kind::store && n.name == tensor) ||
           std::ranges::any_of(n.children, [&](const Node& c) { return stored(c, tensor); });
  }

  /// Sequences of one node are that node.
  static void tidy(Node& n) {
    for (Node& c : n.children) tidy(c);
    while (n.kind == Node::Kind::sequence && n.children.size() == 1) {
      Node only = std::move(n.children[0]);
      n = std::move(only);
    }
  }

  const RandomOptions& o_;
  const Workload* w_ = nullptr;
  bool two_levels_ = false;
  bool warps_ = false;
  int grids_ = 0;
  std::vector<OpId> ops_;
  std::vector<std::size_t> group_of_;  ///< by OpId: the nest of blocks that computes it
};

}  // namespace random_trees

/// One case; nothing where the workload that was drawn is none. About half of the plans are legal.
inline std::optional<RandomCase> random_case(std::mt19937_64& random,
                                             const RandomOptions& options = {}) {
  return random_trees::Maker(random, options).make();
}

/// A tree of the given workload.
inline RandomCase random_case_of(std::mt19937_64& random, const Workload& workload,
                                 const RandomOptions& options = {}) {
  return random_trees::Maker(random, options).make(workload);
}

/// A drawn workload, which is in f32, in another type.
inline std::shared_ptr<const Workload> with_type(const Workload& w, const std::string& type) {
  std::string text = to_yaml(w);
  const std::size_t at = text.find("dtype: f32");
  if (at != std::string::npos) text.replace(at, 10, "dtype: " + type);
  return std::make_shared<const Workload>(workload_from_yaml(text, "random"));
}

}  // namespace tilewright::testing
