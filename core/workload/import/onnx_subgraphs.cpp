// Nodes that have graphs of their own: If, Loop and Scan, and calls of the file's functions. The
// body's nodes stand in the node's place, those of a loop once for each turn.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_importer.h"

namespace tilewright::onnx {
namespace {

constexpr int kMostCalls = 16;             // functions within functions
constexpr std::int64_t kMostTurns = 4096;  // of a loop
/// Turns of a loop that values end, all of which are computed.
constexpr double kMostChosenTurns = 64;
constexpr const char* kFoundWhileRunning = "a number of turns that is found while running";

using Known = std::map<std::string, Value>;

/// Names of a graph within a node are its own: at the end those around mean what they did.
class Scope {
 public:
  Scope(Known& known, const Graph& g) : known_(known) {
    for (const ValueInfo& v : g.inputs) keep(v.name);
    for (const Literal& l : g.constants) keep(l.name);
    for (const Node& n : g.nodes)
      for (const std::string& o : n.outputs) keep(o);
  }
  ~Scope() {
    for (auto& [name, value] : around_)
      if (value)
        known_[name] = std::move(*value);
      else
        known_.erase(name);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  void keep(const std::string& name) {
    const auto at = known_.find(name);
    around_.emplace(name, at == known_.end() ? std::nullopt : std::optional(at->second));
  }

  Known& known_;
  std::map<std::string, std::optional<Value>> around_;
};

/// A function's nodes, and graphs within them, under the names and with the attributes of a call.
class Call {
 public:
  Call(const Function& f, const Node& n)
      : f_(f), n_(n), prefix_((n.outputs.empty() ? n.op : n.outputs.front()) + "/") {
    for (std::size_t i = 0; i < f.inputs.size(); ++i)
      names_[f.inputs[i]] = i < n.inputs.size() ? n.inputs[i] : "";
    for (std::size_t i = 0; i < f.outputs.size() && i < n.outputs.size(); ++i)
      if (!n.outputs[i].empty()) names_[f.outputs[i]] = n.outputs[i];
  }

  Node node(Node of) const {
    for (std::string& i : of.inputs) i = named(i);
    for (std::string& o : of.outputs) o = named(o);
    std::vector<Attribute> own;
    for (const Attribute& a : of.attributes) {
      const Attribute* given = a.refers_to.empty() ? &a : attribute(a.refers_to);
      if (given == nullptr) continue;
      own.push_back(*given);
      own.back().name = a.name;
      if (given == &a && a.graph) own.back().graph = std::make_shared<const Graph>(graph(*a.graph));
    }
    of.attributes = std::move(own);
    return of;
  }

 private:
  Graph graph(Graph of) const {
    for (Node& n : of.nodes) n = node(std::move(n));
    for (Literal& l : of.constants) l.name = named(l.name);
    for (auto* list : {&of.inputs, &of.outputs, &of.others})
      for (ValueInfo& v : *list) v.name = named(v.name);
    return of;
  }
  std::string named(const std::string& name) const {
    if (name.empty()) return name;
    const auto it = names_.find(name);
    return it == names_.end() ? prefix_ + name : it->second;
  }
  /// The call's, or the function's own; nullptr: neither.
  const Attribute* attribute(const std::string& name) const {
    if (const Attribute* given = n_.find(name)) return given;
    for (const Attribute& d : f_.defaults)
      if (d.name == name) return &d;
    return nullptr;
  }

  const Function& f_;
  const Node& n_;
  std::string prefix_;
  std::map<std::string, std::string> names_;
};

}  // namespace

void Importer::branch(const Node& n, int depth) {
  if (depth >= kMostCalls) throw Unsupported{"branches nested too deeply"};
  const auto it = n.inputs.empty() ? known_.end() : known_.find(n.inputs.front());
  if (it == known_.end()) throw Unsupported{"a condition that is not known"};
  const Value condition = it->second;
  if (!condition.known()) return both_branches(n, depth, condition);
  const auto c = values_of(condition);
  const Attribute* a = n.find(!c.empty() && c.front() != 0 ? "then_branch" : "else_branch");
  if (a == nullptr || !a->graph) throw Unsupported{"no branch"};
  if (a->graph->outputs.size() != n.outputs.size()) throw Unsupported{"other outputs"};
  std::vector<Value> made;
  {
    const Scope scope(known_, *a->graph);
    constants(*a->graph);
    if (!once(*a->graph, depth)) return leave(n);  // what cannot be said is named
    for (const ValueInfo& o : a->graph->outputs) made.push_back(given(o.name));
  }
  for (std::size_t i = 0; i < n.outputs.size(); ++i) known_[n.outputs[i]] = made[i];
}

void Importer::both_branches(const Node& n, int depth, const Value& condition) {
  if (elements_of(condition.shape) != 1) throw Unsupported{"a condition of several elements"};
  std::vector<Value> made[2];
  for (const bool then : {true, false}) {
    const Attribute* a = n.find(then ? "then_branch" : "else_branch");
    if (a == nullptr || !a->graph) throw Unsupported{"no branch"};
    if (a->graph->outputs.size() != n.outputs.size()) throw Unsupported{"other outputs"};
    const Scope scope(known_, *a->graph);
    constants(*a->graph);
    if (!once(*a->graph, depth)) return leave(n);
    for (const ValueInfo& o : a->graph->outputs) made[then ? 0 : 1].push_back(given(o.name));
  }
  const Value one = b_.reshaped(n.outputs.front() + "_condition", condition, {});
  for (std::size_t i = 0; i < n.outputs.size(); ++i) {
    const Value &x = made[0][i], &y = made[1][i];
    if (x.shape != y.shape)
      throw Unsupported{"branches of different shapes, one of which is chosen while running"};
    known_[n.outputs[i]] =
        b_.map(n.outputs[i], x.type, {one, x, y},
               [](const std::vector<Expr>& a) { return select(a[0], a[1], a[2]); });
  }
  for (const std::string& i : n.inputs) read_.insert(i);
}

bool Importer::once(const Graph& body, int depth) {
  const std::size_t before = problems_.size();
  nodes(body.nodes, depth + 1);
  return problems_.size() == before && std::ranges::all_of(body.outputs, [&](const ValueInfo& v) {
           return known_.contains(v.name);
         });
}

const Value& Importer::given(const std::string& name) const {
  const auto it = known_.find(name);
  if (it == known_.end()) throw Unsupported{"its input " + shown(name) + " is not known"};
  return it->second;
}

Value Importer::stacked(const std::string& name, std::vector<Value> turns, std::size_t dim) {
  if (turns.empty()) throw Unsupported{"no turn, so that a result has no elements"};
  for (Value& v : turns) {
    if (dim > v.shape.size()) throw Unsupported{"an axis outside of its rank"};
    Shape to = v.shape;
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(dim), 1);
    v = b_.reshaped(name, v, to);
  }
  return joined(b_, name, turns, dim);
}

const Graph& Importer::body_of(const Node& n, int depth) {
  if (depth >= kMostCalls) throw Unsupported{"loops nested too deeply"};
  const Attribute* a = n.find("body");
  if (a == nullptr || !a->graph) throw Unsupported{"no body"};
  return *a->graph;
}

void Importer::loop(const Node& n, int depth) {
  const Graph& body = body_of(n, depth);
  const std::size_t states = n.inputs.size() < 2 ? 0 : n.inputs.size() - 2;
  if (n.inputs.size() < 2 || body.inputs.size() != states + 2 ||
      body.outputs.size() != n.outputs.size() + 1 || n.outputs.size() < states)
    throw Unsupported{"a body of other inputs or outputs"};
  const auto number_of = [&](const std::string& name) {
    const Value& v = given(name);
    if (!v.known()) throw Unsupported{kFoundWhileRunning};
    const auto all = values_of(v);
    return all.empty() ? 0.0 : all.front();
  };
  const double most = n.inputs[0].empty() ? INFINITY : number_of(n.inputs[0]);
  std::vector<std::vector<Value>> turns(n.outputs.size() - states);
  // Where values end the loop, all turns are computed; one after the end leaves the states as they
  // are.
  std::optional<Value> live;
  const auto goes_on = [&](const std::string& name) {
    const Value& v = given(name);
    if (v.known()) return number_of(name) != 0;
    if (!turns.empty() || most > kMostChosenTurns || elements_of(v.shape) != 1)
      throw Unsupported{kFoundWhileRunning};
    const Value one = b_.reshaped(n.name + "_condition", v, {});
    live = live ? b_.map(n.name + "_goes_on", kBool, {*live, one},
                         [](const std::vector<Expr>& a) {
                           return call("mul", {a[0], a[1]});
                         })
                : one;
    return true;
  };
  std::vector<Value> state;
  for (std::size_t i = 0; i < states; ++i) state.push_back(given(n.inputs[i + 2]));
  bool on = n.inputs[1].empty() || most < 1 || goes_on(n.inputs[1]);
  {
    const Scope scope(known_, body);
    constants(body);
    for (std::int64_t t = 0; on && static_cast<double>(t) < most; ++t) {
      if (t >= kMostTurns) throw Unsupported{"more than " + std::to_string(kMostTurns) + " turns"};
      known_[body.inputs[0].name] = Builder::known(kInt64, {}, {static_cast<double>(t)});
      known_[body.inputs[1].name] = Builder::uniform(kBool, {}, 1);
      for (std::size_t i = 0; i < states; ++i) known_[body.inputs[i + 2].name] = state[i];
      if (!once(body, depth)) return leave(n);
      for (std::size_t i = 0; i < states; ++i) {
        const Value& made = known_.at(body.outputs[i + 1].name);
        if (live && made.shape != state[i].shape)
          throw Unsupported{"states that change their shapes while values may end the loop"};
        state[i] =
            !live ? made
                  : b_.map(n.name + "_state", made.type, {*live, made, state[i]},
                           [](const std::vector<Expr>& a) { return select(a[0], a[1], a[2]); });
      }
      for (std::size_t i = 0; i < turns.size(); ++i)
        turns[i].push_back(known_.at(body.outputs[i + 1 + states].name));
      if (static_cast<double>(t + 1) < most) on = goes_on(body.outputs[0].name);
    }
  }
  for (std::size_t i = 0; i < n.outputs.size(); ++i)
    if (!n.outputs[i].empty())
      known_[n.outputs[i]] = i < states ? state[i] : stacked(n.outputs[i], turns[i - states], 0);
  note("Loop and Scan are unrolled over their turns");
  for (const std::string& i : n.inputs) read_.insert(i);
}

void Importer::scan(const Node& n, int depth) {
  const Graph& body = body_of(n, depth);
  const auto integers = [&](const char* name) {
    const Attribute* a = n.find(name);
    return a == nullptr ? std::vector<std::int64_t>{} : a->integers;
  };
  const Attribute* many = n.find("num_scan_inputs");
  if (m_.opset < 9 || many == nullptr || !many->integer || *many->integer < 1 ||
      static_cast<std::size_t>(*many->integer) > n.inputs.size())
    throw Unsupported{"as many scanned inputs as it has not, or an opset before 9"};
  const auto scanned = static_cast<std::size_t>(*many->integer);
  const std::size_t states = n.inputs.size() - scanned;
  if (body.inputs.size() != n.inputs.size() || body.outputs.size() != n.outputs.size() ||
      n.outputs.size() < states)
    throw Unsupported{"a body of other inputs or outputs"};
  const auto axes = integers("scan_input_axes"), back = integers("scan_input_directions"),
             out_axes = integers("scan_output_axes"), out_back = integers("scan_output_directions");
  const auto nth = [](const std::vector<std::int64_t>& list, std::size_t i) {
    return i < list.size() ? list[i] : 0;
  };
  std::vector<Value> state, over;
  std::vector<std::size_t> axis;
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    (i < states ? state : over).push_back(given(n.inputs[i]));
    if (i < states) continue;
    axis.push_back(NodeReader::axis(nth(axes, i - states), over.back().shape.size()));
    if (over.back().shape[axis.back()] != over[0].shape[axis[0]])
      throw Unsupported{"scanned inputs of different lengths"};
  }
  const std::int64_t count = over[0].shape[axis[0]];
  if (count > kMostTurns) throw Unsupported{"more than " + std::to_string(kMostTurns) + " turns"};
  std::vector<std::vector<Value>> turns(n.outputs.size() - states);
  {
    const Scope scope(known_, body);
    constants(body);
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::size_t i = 0; i < states; ++i) known_[body.inputs[i].name] = state[i];
      for (std::size_t i = 0; i < scanned; ++i) {
        const std::int64_t at = nth(back, i) != 0 ? count - 1 - t : t;
        known_[body.inputs[states + i].name] =
            squeezed(b_, b_.sliced(n.name + "_turn", over[i], axis[i], at, 1, 1), axis[i]);
      }
      if (!once(body, depth)) return leave(n);
      for (std::size_t i = 0; i < states; ++i) state[i] = known_.at(body.outputs[i].name);
      for (std::size_t i = 0; i < turns.size(); ++i)
        turns[i].push_back(known_.at(body.outputs[i + states].name));
    }
  }
  for (std::size_t i = 0; i < n.outputs.size(); ++i) {
    if (n.outputs[i].empty()) continue;
    if (i < states) {
      known_[n.outputs[i]] = state[i];
      continue;
    }
    std::vector<Value>& all = turns[i - states];
    if (nth(out_back, i - states) != 0) std::ranges::reverse(all);
    if (all.empty()) throw Unsupported{"no turn, so that a result has no elements"};
    known_[n.outputs[i]] =
        stacked(n.outputs[i], all,
                NodeReader::axis(nth(out_axes, i - states), all.front().shape.size() + 1));
  }
  note("Loop and Scan are unrolled over their turns");
  for (const std::string& i : n.inputs) read_.insert(i);
}

void Importer::call_function(const Function& f, const Node& n, int depth) {
  if (depth >= kMostCalls) throw Unsupported{"functions nested too deeply"};
  const Call call(f, n);
  std::vector<Node> body;
  for (const Node& node : f.nodes) body.push_back(call.node(node));
  nodes(body, depth + 1);
}

}  // namespace tilewright::onnx
