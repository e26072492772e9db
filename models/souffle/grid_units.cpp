// One kernel of several phases whose loops warps, lanes and threads share out, with barriers of all
// blocks between them: what a thread has in registers before a barrier it has after it.
#include <algorithm>
#include <functional>
#include <set>

#include "core/plan/names.h"
#include "core/plan/schedule.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "models/souffle/units.h"

namespace tilewright::souffle {
namespace {

constexpr std::size_t kMostChoices = 6;  // of a phase
constexpr std::size_t kMostPhases = 6;   // of a kernel: each evaluation costs milliseconds

/// From the root to the compute, as positions among children; empty: it is not there.
bool path_to(const Node& n, const std::string& op, std::vector<std::size_t>& path) {
  if (n.kind == Node::Kind::compute && n.name == op) return true;
  for (std::size_t i = 0; i < n.children.size(); ++i) {
    path.push_back(i);
    if (path_to(n.children[i], op, path)) return true;
    path.pop_back();
  }
  return false;
}

/// Stores a tensor where it is complete: after the outermost loop of a block that its sum goes
/// over, and what then waits for others' parts; or after its compute.
bool store_where_complete(Node& root, const Workload& w, OpId id, const std::string& tensor) {
  std::vector<std::size_t> path;
  if (!path_to(root, w.op(id).name, path)) return false;
  Node* parent = &root;
  std::size_t depth = 0;
  for (;; ++depth) {
    const Node& child = parent->children[path[depth]];
    if (depth + 1 == path.size()) break;
    if (child.kind == Node::Kind::loop && child.binding != Binding::grid)
      if (const auto l = w.find_loop(child.name); l && w.is_reduction(id, *l)) break;
    parent = &parent->children[path[depth]];
  }
  Node stored = store(tensor);
  if (parent->kind == Node::Kind::loop) {
    parent->children = {sequence({parent->children.front(), std::move(stored)})};
    return true;
  }
  auto at = parent->children.begin() + static_cast<std::ptrdiff_t>(path[depth]) + 1;
  while (at != parent->children.end() && at->kind == Node::Kind::sync) ++at;
  parent->children.insert(at, std::move(stored));
  return true;
}

/// Without loops that units go through one iteration after the other: what such a loop reads is in
/// registers as a whole, and stays there. Where that is too much, it is no kernel of threads.
void without_turns(Node& n) {
  for (Node& c : n.children) {
    while (c.kind == Node::Kind::loop && c.binding == Binding::seq && c.children.size() == 1) {
      Node inner = std::move(c.children.front());
      c = std::move(inner);
    }
    without_turns(c);
  }
}

/// Without the loads of values into registers, which stand where nothing is said, and of tensors
/// that several phases read: each phase would need a node of its own.
void without_loads(Node& n, const std::function<bool(const std::string&)>& several) {
  std::erase_if(n.children, [&](const Node& c) {
    return c.kind == Node::Kind::load &&
           (c.level.empty() || c.level == "registers" || several(c.name));
  });
  for (Node& c : n.children) without_loads(c, several);
}

/// What the phase's operators read and no phase makes.
std::set<TensorId> inputs_of(const Workload& w, std::span<const OpId> phase,
                             const std::set<OpId>& all) {
  std::set<TensorId> out;
  for (OpId id : phase)
    for (const Access& a : w.op(id).inputs)
      if (!all.contains(w.producer(a.tensor))) out.insert(a.tensor);
  return out;
}

}  // namespace

std::vector<UnitKernel> Units::choices(std::vector<OpId> ops) {
  std::vector<UnitKernel> out;
  if (!device_ || ops.size() > kMostOperators) return out;
  std::ranges::sort(ops);
  if (no_subgraph(w_, ops)) return out;
  const auto part = std::make_shared<const Workload>(subgraph(w_, ops));
  const std::string key = to_yaml(without_names(*part));
  auto at = choices_.find(key);
  if (at == choices_.end()) {
    at = choices_.emplace(key, Choices{part, {}}).first;
    const stitching::Options options;
    const auto graph = stitching::Graph::create(part, stitching::ridge_of(*device_, options));
    stitching::Pattern all;
    if (graph)
      for (int v = 0; v < graph->size(); ++v) {
        if (graph->vertex(v).kind == stitching::Kind::product) return out;
        all.push_back(v);
      }
    const std::vector<stitching::Pattern> patterns{all};
    const auto price = graph ? stitching::price(*graph, *device_, patterns, options)
                             : Result<stitching::PlanPrice>(Reason{""});
    if (price && price->kernels.size() == 1)
      for (const stitching::WrittenKernel& k :
           stitching::kernel_choices(*graph, *device_, *price, 0, options)) {
        if (at->second.kernels.size() >= kMostChoices || !k.without_units.empty()) break;
        at->second.kernels.push_back({.ops = {}, .kernel = k.kernel, .seconds = k.seconds});
      }
  }
  const Names names(*at->second.of, *part);
  for (const UnitKernel& k : at->second.kernels) {
    out.push_back(k);
    out.back().kernel = names.rename(k.kernel);
    out.back().ops = ops;
  }
  return out;
}

/// The phases' trees one after the other. `reuse`: what a phase has loaded, later ones need not.
std::optional<UnitKernel> Units::joined(const std::shared_ptr<const Workload>& part,
                                        std::span<const UnitKernel* const> phases,
                                        bool reuse) const {
  UnitKernel out;
  out.kernel.level = phases.front()->kernel.level;
  std::set<OpId> all;
  for (const UnitKernel* p : phases) all.insert(p->ops.begin(), p->ops.end());
  std::vector<std::set<TensorId>> inputs;
  for (const UnitKernel* p : phases) inputs.push_back(inputs_of(w_, p->ops, all));
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const Kernel& k = phases[i]->kernel;
    if (k.level != out.kernel.level || !k.tiles.empty() || !k.flags.empty()) return {};
    for (const auto& [tensor, pin] : k.pins)
      if (!out.kernel.pins.emplace(tensor, pin).second) return {};
    Node tree{.kind = Node::Kind::sequence, .children = {k.tree}};
    without_loads(tree, [&](const std::string& name) {
      const auto t = w_.find_tensor(name);
      return t &&
             std::ranges::count_if(inputs, [&](const auto& of) { return of.contains(*t); }) > 1;
    });
    without_turns(tree);
    for (OpId id : phases[i]->ops)
      for (const Output& o : w_.op(id).outputs) {
        const TensorId t = o.target.tensor;
        const auto readers = w_.consumers(t);
        if (std::ranges::none_of(readers, [&](OpId r) {
              return all.contains(r) &&
                     std::ranges::find(phases[i]->ops, r) == phases[i]->ops.end();
            }))
          continue;
        const std::string& name = w_.tensor(t).name;
        if (!store_where_complete(tree, w_, id, name)) return {};
        out.kernel.pins[name] = {.level = q_.machine->level(q_.machine->home()).name};
      }
    if (i > 0) nodes.push_back(sync("grid"));
    std::ranges::move(tree.children, std::back_inserter(nodes));
    if (!reuse && i + 1 < phases.size())
      for (TensorId t : inputs[i])
        if (std::any_of(inputs.begin() + static_cast<std::ptrdiff_t>(i) + 1, inputs.end(),
                        [t](const std::set<TensorId>& later) { return later.contains(t); }))
          nodes.push_back(drop(w_.tensor(t).name));
    out.phases.push_back(phases[i]->ops);
  }
  out.kernel.tree = sequence(std::move(nodes));
  try {
    const auto s = resolve(Plan{{out.kernel}}, part, q_.machine);
    if (!s) return {};
    const auto time = seconds(*s);
    if (!time) return {};
    out.seconds = *time;
    out.blocks = s->kernels.front().blocks;
    out.kernel.tree = s->resolved.kernels.front().tree;  // every load is a node
    if (q_.refuses && q_.refuses(*s)) return {};
  } catch (const InputError&) {
    return {};  // a tensor that is needed on chip and at home, say
  }
  out.ops.assign(all.begin(), all.end());
  return out;
}

std::optional<UnitKernel> Units::with_barriers(std::span<const std::vector<OpId>> phases,
                                               bool reuse) {
  if (!device_ || phases.size() < 2 || phases.size() > kMostPhases) return {};
  std::vector<OpId> all;
  for (const std::vector<OpId>& phase : phases) {
    if (std::ranges::any_of(phase, [&](OpId id) { return is_product(id); })) return {};
    all.insert(all.end(), phase.begin(), phase.end());
  }
  std::ranges::sort(all);
  if (all.size() > kMostOperators || no_subgraph(w_, all)) return {};
  const auto part = std::make_shared<const Workload>(subgraph(w_, all));
  std::vector<std::vector<UnitKernel>> of;
  for (const std::vector<OpId>& phase : phases) {
    of.push_back(choices(phase));
    if (of.back().empty()) return {};
  }
  std::vector<std::size_t> at(phases.size(), 0);
  std::optional<UnitKernel> best;
  const auto attempt = [&](const std::vector<std::size_t>& which) {
    std::vector<const UnitKernel*> kernels;
    for (std::size_t i = 0; i < which.size(); ++i) kernels.push_back(&of[i][which[i]]);
    std::optional<UnitKernel> found = joined(part, kernels, reuse);
    if (!found || (best && best->seconds <= found->seconds)) return false;
    best = std::move(found);
    return true;
  };
  attempt(at);
  // Two phases that read one tensor, with the same loops, say.
  const std::set<OpId> made(all.begin(), all.end());
  for (std::size_t i = 0; i < phases.size(); ++i)
    for (std::size_t j = i + 1; j < phases.size(); ++j) {
      const std::set<TensorId> a = inputs_of(w_, phases[i], made),
                               b = inputs_of(w_, phases[j], made);
      if (best && std::ranges::none_of(a, [&](TensorId t) { return b.contains(t); })) continue;
      std::vector<std::size_t> found = at;
      for (std::size_t x = 0; x < of[i].size(); ++x)
        for (std::size_t y = 0; y < of[j].size(); ++y) {
          std::vector<std::size_t> which = at;
          which[i] = x;
          which[j] = y;
          if (attempt(which)) found = which;
        }
      at = found;
    }
  for (std::size_t i = 0; i < phases.size(); ++i) {
    std::vector<std::size_t> found = at;
    for (std::size_t x = 0; x < of[i].size(); ++x) {
      std::vector<std::size_t> which = at;
      which[i] = x;
      if (attempt(which)) found = which;
    }
    at = found;
  }
  return best;
}

}  // namespace tilewright::souffle
