#include "core/workload/import/onnx_import.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/workload/import/onnx_node.h"

namespace tilewright {
namespace onnx {
namespace {

constexpr int kMostCalls = 16;                 // functions within functions
constexpr std::size_t kMostOperators = 60000;  // of the workload
constexpr std::int64_t kMostTurns = 4096;      // of a loop
constexpr std::size_t kMostVisits = 400000;    // nodes looked at, those of functions each time
constexpr std::size_t kMostNamed = 100;        // unsupported nodes in an error
constexpr std::size_t kMostOfReason = 300;     // characters; a file's texts stand in some

std::string shown(std::string_view name, std::size_t most = 80) {
  std::string out;
  for (const char c : name.substr(0, most)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

/// The floating type that most of the file is of.
DType floats_of(const Model& m) {
  const auto is = [&](std::int32_t type) {
    return std::ranges::any_of(m.graph.inputs, [&](const ValueInfo& v) { return v.type == type; });
  };
  if (is(kFloat)) return DType::f32;
  if (is(kFloat16)) return DType::f16;
  if (is(kBfloat16)) return DType::bf16;
  if (is(kDouble)) return DType::f64;
  std::map<std::int32_t, std::int64_t> count;
  for (const Literal& l : m.graph.constants) ++count[l.type];
  if (count[kFloat16] > count[kFloat]) return DType::f16;
  if (count[kBfloat16] > count[kFloat]) return DType::bf16;
  return DType::f32;
}

/// Of a node that reads something without elements: whether what it makes is known by that. Throws
/// Unsupported where its operator is none that may read such a thing.
bool without_elements(NodeReader& n) {
  constexpr std::string_view keeps =
      " Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Cast Ceil Celu Clip Cos Cosh "
      "Dropout "
      "Elu Erf Exp Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax Identity "
      "InstanceNormalization LayerNormalization LeakyRelu Log LogSoftmax Mish Neg Not "
      "RMSNormalization Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus "
      "Softsign Sqrt Swish Tan Tanh ThresholdedRelu ";
  constexpr std::string_view joins =
      " Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or PRelu "
      "Pow "
      "Sub Sum Where Xor ";
  constexpr std::string_view views = " Concat Shape Size Slice Split ";
  const auto is_one = [word = " " + n.node.op + " "](std::string_view of) {
    return of.find(word) != of.npos;
  };
  const auto none = [](const Value& v) { return v.type != kUnknown && elements_of(v.shape) == 0; };
  if (std::ranges::none_of(n.in, none)) return false;
  const std::string& op = n.node.op;
  if (is_one(keeps) && none(n.at(0))) {
    n.out[0] = Builder::known(
        op == "Cast" ? static_cast<std::int32_t>(n.integer("to", kFloat)) : n.at(0).type,
        n.at(0).shape, {});
    return true;
  }
  if (is_one(joins)) {
    Shape out;
    for (std::size_t i = 0; i < n.in.size(); ++i) {
      const Shape& s = n.at(i).shape;
      if (s.size() > out.size()) out.insert(out.begin(), s.size() - out.size(), 1);
      for (std::size_t d = 1; d <= s.size(); ++d) {
        std::int64_t& to = out[out.size() - d];
        if (to != 1 && s[s.size() - d] != 1 && to != s[s.size() - d])
          throw Unsupported{"its shapes do not broadcast"};
        if (to == 1) to = s[s.size() - d];
      }
    }
    const bool truth = op == "And" || op == "Or" || op == "Xor" || op == "Equal" ||
                       op.starts_with("Less") || op.starts_with("Greater");
    n.out[0] = Builder::known(truth ? kBool : n.at(op == "Where" ? 1 : 0).type, out, {});
    return true;
  }
  if (op == "MatMul" && n.at(0).shape.size() == 2 && n.at(1).shape.size() == 2) {
    const Shape to = {n.at(0).shape[0], n.at(1).shape[1]};
    n.out[0] = elements_of(to) == 0 ? Builder::known(n.at(0).type, to, {})
                                    : Builder::uniform(n.at(0).type, to, 0);  // a sum of nothing
    return true;
  }
  for (std::size_t i = 0; i < n.in.size(); ++i)
    if (none(n.in[i]) && (i == 0 ? !is_one(views) : n.in[i].literal == nullptr))
      throw Unsupported{"an input without elements"};
  return false;
}

/// The first few names, and how many more there are.
std::string some(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  const std::size_t shown = std::min(names.size(), kMost);
  std::string text = join(std::span(names).first(shown));
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

class Importer {
 public:
  Importer(const Model& m, const std::string& path, const OnnxOptions& options)
      : m_(m), path_(path), options_(options), b_(floats_of(m)) {}

  OnnxImport run(const std::string& name) {
    constants(m_.graph);
    inputs();
    nodes(m_.graph.nodes, 0);
    if (!options_.skip && !problems_.empty()) fail_unsupported();
    std::vector<std::pair<std::string, Value>> outputs;
    std::set<std::string> seen;
    for (const ValueInfo& v : m_.graph.outputs)
      if (known_.contains(v.name) && seen.insert(v.name).second)
        outputs.emplace_back(v.name, known_.at(v.name));
    for (const std::string& of : cut_) {  // what only skipped nodes read
      if (!seen.insert(of).second || read_.contains(of)) continue;
      const Value& v = known_.at(of);
      if (v.view && !given_.contains(of)) outputs.emplace_back(of, v);
    }
    if (!missing_.empty())
      note("drawn by seed, as the file of their data is not there: " + some(missing_));
    if (outputs.empty()) fail("outputs", "", "none can be computed", "a graph with outputs");
    for (const auto& [of, v] : outputs)
      if (v.type == kSequence) fail("outputs", shown(of), "is a sequence", "tensors");
    std::vector<std::string> none;
    for (const auto& [of, v] : outputs)
      if (elements_of(v.shape) < 1) none.push_back(shown(of));
    if (none.size() == outputs.size())
      fail("outputs", some(none), none.size() == 1 ? "has no elements" : "have no elements",
           "at least one");
    std::erase_if(outputs, [](const auto& o) { return elements_of(o.second.shape) < 1; });
    if (!none.empty()) note("outputs without elements are left out: " + some(none));
    Builder::Result made = made_of(name, outputs);
    OnnxImport out{.workload = Workload::create(std::move(made.spec)),
                   .producer = shown(m_.producer),
                   .opset = m_.opset,
                   .nodes = counts_,
                   .notes = notes_,
                   .skipped = problems_,
                   .unused = made.unused,
                   .tensors = made.names};
    for (std::string& u : out.unused) u = shown(u);
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& field, const std::string& value,
                         const std::string& problem, const std::string& accepted) const {
    throw InputError(
        {.where = path_, .field = field, .value = value, .problem = problem, .accepted = accepted});
  }

  Builder::Result made_of(const std::string& name,
                          const std::vector<std::pair<std::string, Value>>& outputs) {
    try {
      return b_.finish(name, outputs);
    } catch (const Unsupported& u) {
      fail("outputs", "", "cannot be said: " + u.why, "outputs that are computed");
    }
  }

  [[noreturn]] void fail_unsupported() const {
    const std::size_t shown = std::min(problems_.size(), kMostNamed);
    std::vector<std::string> lines(problems_.begin(),
                                   problems_.begin() + static_cast<std::ptrdiff_t>(shown));
    if (problems_.size() > shown)
      lines.push_back("and " + std::to_string(problems_.size() - shown) + " more");
    throw InputError(
        {.where = path_,
         .value = std::to_string(problems_.size()) + (problems_.size() == 1 ? " node" : " nodes"),
         .problem = "cannot be imported",
         .accepted = "the operators of docs/onnx.md; import --skip takes the rest",
         .lines = std::move(lines)});
  }

  void constants(const Graph& g) {
    for (const Literal& l : g.constants) {
      if (l.elements() < 0) continue;
      if (l.missing()) missing_.push_back(shown(l.name));
      known_[l.name] = Builder::known(std::make_shared<const Literal>(l));
    }
  }

  std::int64_t bound(const std::string& name) const {
    const auto it = options_.bind.find(name);
    return it == options_.bind.end() ? 0 : it->second;
  }

  void inputs() {
    std::vector<std::string> open;
    std::set<std::string> names;
    const auto dimension = [&](const ValueInfo& v, std::size_t d) {
      const Dimension& of = (*v.shape)[d];
      if (of.value && *of.value > 0) return *of.value;
      const std::string name =
          of.name.empty() ? shown(v.name) + "." + std::to_string(d) : shown(of.name);
      names.insert(name);
      if (const auto it = options_.bind.find(name); it != options_.bind.end()) return it->second;
      if (std::ranges::find(open, name) == open.end()) open.push_back(name);
      return std::int64_t{1};
    };
    std::vector<std::pair<const ValueInfo*, Shape>> all;
    for (const ValueInfo& v : m_.graph.inputs) {
      if (known_.contains(v.name)) continue;  // an initialiser with a default
      if (!v.shape) fail("inputs", shown(v.name), "has no shape", "inputs of known ranks");
      Shape shape;
      for (std::size_t d = 0; d < v.shape->size(); ++d) shape.push_back(dimension(v, d));
      // Whole numbers, such as lengths or a rate that a branch asks for, may be known: one for all.
      if (is_integer(v.type) || v.type == kBool) {
        names.insert(shown(v.name));
        if (const auto it = options_.bind.find(v.name); it != options_.bind.end()) {
          known_[v.name] =
              Builder::uniform(v.type, std::move(shape), static_cast<double>(it->second));
          note(shown(v.name) + " is " + std::to_string(it->second) + " everywhere, as bound");
          continue;
        }
      }
      all.emplace_back(&v, std::move(shape));
    }
    for (const auto& [name, n] : options_.bind)
      if (!names.contains(name))
        fail("--bind", name, "is not a symbolic dimension, nor whole numbers, of the inputs",
             names.empty() ? "none: every dimension is a number"
                           : join(std::vector<std::string>(names.begin(), names.end())));
    if (!open.empty())
      fail("dimensions", join(open), open.size() == 1 ? "is not bound" : "are not bound",
           "--bind " + open.front() + "=1" + (open.size() > 1 ? ",..." : "") +
               ", or model.onnx:" + open.front() + "=1");
    for (auto& [v, shape] : all) {
      if (value_type_of(v->type).empty())
        fail("inputs", shown(v->name), "is of a type that is not a number", "numbers");
      if (elements_of(shape) < 0)
        fail("inputs", shown(v->name), "has too many elements", "less than 2^62");
      if (elements_of(shape) == 0) {  // such as a past of no steps
        known_[v->name] = Builder::known(v->type, shape, {});
        note(shown(v->name) + " has no elements");
        continue;
      }
      known_[v->name] = b_.input(v->name, v->type, shape);
      given_.insert(v->name);
      if (v->type == kInt64 || v->type == kUint64 || v->type == kUint32)
        note("integers of 64 bits are i32");
    }
  }

  void note(const std::string& text) {
    if (!text.empty() && std::ranges::find(notes_, text) == notes_.end()) notes_.push_back(text);
  }

  void nodes(const std::vector<Node>& all, int depth) {
    for (const Node& n : all) {
      if (++steps_ > kMostVisits || b_.operators() > kMostOperators)
        fail("graph", std::to_string(b_.operators()) + " operators", "are too many",
             "at most " + std::to_string(kMostOperators));
      one(n, depth);
    }
  }

  const Function* function(const Node& n) const {
    for (const Function& f : m_.functions)
      if (f.name == n.op && (f.domain == n.domain || (f.domain == "ai.onnx" && n.domain.empty())))
        return &f;
    return nullptr;
  }

  void one(const Node& n, int depth) {
    if (depth == 0) ++counts_[shown(n.op)];
    try {
      if (const Function* f = function(n)) return call_function(*f, n, depth);
      if (n.op == "If" && n.domain.empty()) return branch(n, depth);
      if (n.op == "Loop" && n.domain.empty()) return loop(n, depth);
      if (n.op == "Scan" && n.domain.empty()) return scan(n, depth);
      said(n);
    } catch (const Unsupported& u) {
      unsupported(n, u.why);
    } catch (const std::out_of_range&) {
      unsupported(n, "its inputs or attributes are fewer than it takes");
    }
  }

  void said(const Node& n) {
    std::vector<Value> in;
    bool lost = false;
    for (const std::string& name : n.inputs) {
      if (name.empty()) {
        in.emplace_back();
        continue;
      }
      const auto it = known_.find(name);
      if (it == known_.end()) {
        if (!lost_.contains(name))
          throw Unsupported{"its input " + shown(name) + " is made nowhere"};
        lost = true;
        in.emplace_back();
        continue;
      }
      in.push_back(it->second);
    }
    const Saying say = saying_of(n.op);
    const bool standard = n.domain.empty() || n.domain == "com.microsoft";
    const bool constant = n.op == "Constant";
    if (lost) {  // its inputs' makers are named; it too, where it could not be said in any case
      if (!standard || (say == nullptr && !constant))
        throw Unsupported{"the operator is not supported"};
      for (const std::string& o : n.outputs) lose(o);
      return;
    }
    NodeReader reader(b_, n, m_.opset, std::move(in));
    bool asked = constant;  // whether its attributes are known to be read
    if (constant) {
      reader.out.at(0) = constant_of(n);
    } else {
      if (standard && reader.out.empty()) return;  // nobody can read what it makes
      std::optional<std::vector<Value>> folded;
      if (standard) folded = fold(reader);
      // Matrices of 8 bits are multiplied as they are.
      const bool matrix = n.op == "DequantizeLinear" && reader.has(0) && reader.rank() >= 2;
      if (!folded && standard && !matrix && say != nullptr) {
        folded = evaluated(reader, say);
        asked = folded.has_value();
      }
      if (folded) {
        for (std::size_t i = 0; i < reader.out.size() && i < folded->size(); ++i)
          reader.out[i] = (*folded)[i];
      } else {
        if (!standard || say == nullptr) throw Unsupported{"the operator is not supported"};
        if (without_elements(reader))
          asked = true;
        else
          say(reader);
      }
    }
    if (const Attribute* a = asked ? nullptr : reader.not_asked_for())
      throw Unsupported{"its attribute " + shown(a->name) + " is not supported"};
    note(reader.note);
    for (std::size_t i = 0; i < n.outputs.size(); ++i) {
      if (n.outputs[i].empty()) continue;
      if (reader.out[i].type == kUnknown)
        throw Unsupported{"its output " + std::to_string(i) + " cannot be said"};
    }
    for (std::size_t i = 0; i < n.outputs.size(); ++i)
      if (!n.outputs[i].empty()) known_[n.outputs[i]] = reader.out[i];
    for (const std::string& i : n.inputs) read_.insert(i);
  }

  static Value constant_of(const Node& n) {
    for (const Attribute& a : n.attributes) {
      if (a.name == "value" && a.tensor) return Builder::known(a.tensor);
      if (a.name == "value_float" && a.number) return Builder::known(kFloat, {}, {*a.number});
      if (a.name == "value_int" && a.integer)
        return Builder::known(kInt64, {}, {static_cast<double>(*a.integer)});
      if (a.name == "value_floats")
        return Builder::known(kFloat, {static_cast<std::int64_t>(a.numbers.size())}, a.numbers);
      if (a.name == "value_ints")
        return Builder::known(kInt64, {static_cast<std::int64_t>(a.integers.size())},
                              {a.integers.begin(), a.integers.end()});
    }
    throw Unsupported{"a constant of text, or sparse"};
  }

  void lose(const std::string& name) {
    if (!name.empty()) lost_.insert(name);
  }

  /// Under --skip its outputs become inputs, where their shapes are known.
  void unsupported(const Node& n, const std::string& why) {
    std::string name = shown(n.name);
    if (name.empty() && !n.outputs.empty()) name = shown(n.outputs.front());
    problems_.push_back(name + ": " + shown(n.op) + ": " + shown(why, kMostOfReason));
    for (const std::string& i : n.inputs)
      if (known_.contains(i)) cut_.push_back(i);
    for (const std::string& o : n.outputs) {
      if (o.empty()) continue;
      const auto v = options_.skip ? declared(o) : std::nullopt;
      if (v)
        known_[o] = *v, given_.insert(o);
      else
        lose(o);
    }
  }

  std::optional<Value> declared(const std::string& name) {
    for (const auto* list : {&m_.graph.others, &m_.graph.outputs})
      for (const ValueInfo& v : *list) {
        if (v.name != name || !v.shape || value_type_of(v.type).empty()) continue;
        Shape shape;
        for (const Dimension& d : *v.shape) shape.push_back(d.value ? *d.value : bound(d.name));
        if (std::ranges::all_of(shape, [](auto d) { return d > 0; }) && elements_of(shape) > 0)
          return b_.input(name, v.type, shape);
      }
    return std::nullopt;
  }

  /// A branch whose condition is known stands in its node's place.
  void branch(const Node& n, int depth) {
    if (depth >= kMostCalls) throw Unsupported{"branches nested too deeply"};
    const auto it = n.inputs.empty() ? known_.end() : known_.find(n.inputs.front());
    if (it == known_.end()) throw Unsupported{"a condition that is not known"};
    if (!it->second.known()) return both_branches(n, depth, it->second);
    const auto c = values_of(it->second);
    const Attribute* a = n.find(!c.empty() && c.front() != 0 ? "then_branch" : "else_branch");
    if (a == nullptr || !a->graph) throw Unsupported{"no branch"};
    if (a->graph->outputs.size() != n.outputs.size()) throw Unsupported{"other outputs"};
    constants(*a->graph);
    nodes(a->graph->nodes, depth + 1);
    for (std::size_t i = 0; i < n.outputs.size(); ++i) {
      const auto made = known_.find(a->graph->outputs[i].name);
      if (made == known_.end())
        lose(n.outputs[i]);
      else
        known_[n.outputs[i]] = Value(made->second);
    }
  }

  /// Of a condition that is found while running both are computed, and each element is chosen.
  void both_branches(const Node& n, int depth, const Value& condition) {
    if (elements_of(condition.shape) != 1) throw Unsupported{"a condition of several elements"};
    std::vector<Value> made[2];
    for (const bool then : {true, false}) {
      const Attribute* a = n.find(then ? "then_branch" : "else_branch");
      if (a == nullptr || !a->graph) throw Unsupported{"no branch"};
      if (a->graph->outputs.size() != n.outputs.size()) throw Unsupported{"other outputs"};
      constants(*a->graph);
      if (!once(*a->graph, depth)) {  // what cannot be said is named
        for (const std::string& o : n.outputs) lose(o);
        return;
      }
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

  /// Runs a body's nodes once; false where one of them cannot be said.
  bool once(const Graph& body, int depth) {
    const std::size_t before = problems_.size();
    nodes(body.nodes, depth + 1);
    return problems_.size() == before && std::ranges::all_of(body.outputs, [&](const ValueInfo& v) {
             return known_.contains(v.name);
           });
  }

  const Value& given(const std::string& name) const {
    const auto it = known_.find(name);
    if (it == known_.end()) throw Unsupported{"its input " + shown(name) + " is not known"};
    return it->second;
  }

  /// What turns leave, one behind the other, as a dimension of its own.
  Value stacked(const std::string& name, std::vector<Value> turns, std::size_t dim) {
    if (turns.empty()) throw Unsupported{"no turn, so that a result has no elements"};
    for (Value& v : turns) {
      if (dim > v.shape.size()) throw Unsupported{"an axis outside of its rank"};
      Shape to = v.shape;
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(dim), 1);
      v = b_.reshaped(name, v, to);
    }
    return joined(b_, name, turns, dim);
  }

  const Graph& body_of(const Node& n, int depth) {
    if (depth >= kMostCalls) throw Unsupported{"loops nested too deeply"};
    const Attribute* a = n.find("body");
    if (a == nullptr || !a->graph) throw Unsupported{"no body"};
    constants(*a->graph);
    return *a->graph;
  }

  void lose_all(const Node& n) {
    for (const std::string& o : n.outputs) lose(o);
  }

  /// Turns whose number is known stand one after another.
  void loop(const Node& n, int depth) {
    const Graph& body = body_of(n, depth);
    const std::size_t states = n.inputs.size() < 2 ? 0 : n.inputs.size() - 2;
    if (n.inputs.size() < 2 || body.inputs.size() != states + 2 ||
        body.outputs.size() != n.outputs.size() + 1 || n.outputs.size() < states)
      throw Unsupported{"a body of other inputs or outputs"};
    const auto number_of = [&](const std::string& name) {
      const Value& v = given(name);
      if (!v.known()) throw Unsupported{"a number of turns that is found while running"};
      const auto all = values_of(v);
      return all.empty() ? 0.0 : all.front();
    };
    const double most = n.inputs[0].empty() ? INFINITY : number_of(n.inputs[0]);
    bool goes_on = n.inputs[1].empty() || number_of(n.inputs[1]) != 0;
    std::vector<Value> state;
    for (std::size_t i = 0; i < states; ++i) state.push_back(given(n.inputs[i + 2]));
    std::vector<std::vector<Value>> turns(n.outputs.size() - states);
    for (std::int64_t t = 0; goes_on && static_cast<double>(t) < most; ++t) {
      if (t >= kMostTurns) throw Unsupported{"more than " + std::to_string(kMostTurns) + " turns"};
      known_[body.inputs[0].name] = Builder::known(kInt64, {}, {static_cast<double>(t)});
      known_[body.inputs[1].name] = Builder::uniform(kBool, {}, 1);
      for (std::size_t i = 0; i < states; ++i) known_[body.inputs[i + 2].name] = state[i];
      if (!once(body, depth)) return lose_all(n);
      goes_on = number_of(body.outputs[0].name) != 0;
      for (std::size_t i = 0; i < states; ++i) state[i] = known_.at(body.outputs[i + 1].name);
      for (std::size_t i = 0; i < turns.size(); ++i)
        turns[i].push_back(known_.at(body.outputs[i + 1 + states].name));
    }
    for (std::size_t i = 0; i < n.outputs.size(); ++i)
      if (!n.outputs[i].empty())
        known_[n.outputs[i]] = i < states ? state[i] : stacked(n.outputs[i], turns[i - states], 0);
    note("Loop and Scan are unrolled over their turns");
    for (const std::string& i : n.inputs) read_.insert(i);
  }

  void scan(const Node& n, int depth) {
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
               out_axes = integers("scan_output_axes"),
               out_back = integers("scan_output_directions");
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
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::size_t i = 0; i < states; ++i) known_[body.inputs[i].name] = state[i];
      for (std::size_t i = 0; i < scanned; ++i) {
        const std::int64_t at = nth(back, i) != 0 ? count - 1 - t : t;
        known_[body.inputs[states + i].name] =
            squeezed(b_, b_.sliced(n.name + "_turn", over[i], axis[i], at, 1, 1), axis[i]);
      }
      if (!once(body, depth)) return lose_all(n);
      for (std::size_t i = 0; i < states; ++i) state[i] = known_.at(body.outputs[i].name);
      for (std::size_t i = 0; i < turns.size(); ++i)
        turns[i].push_back(known_.at(body.outputs[i + states].name));
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

  /// The body, under the names of the call, in the node's place.
  void call_function(const Function& f, const Node& n, int depth) {
    if (depth >= kMostCalls) throw Unsupported{"functions nested too deeply"};
    const std::string prefix = (n.outputs.empty() ? n.op : n.outputs.front()) + "/";
    std::map<std::string, std::string> names;
    for (std::size_t i = 0; i < f.inputs.size(); ++i)
      names[f.inputs[i]] = i < n.inputs.size() ? n.inputs[i] : "";
    for (std::size_t i = 0; i < f.outputs.size() && i < n.outputs.size(); ++i)
      if (!n.outputs[i].empty()) names[f.outputs[i]] = n.outputs[i];
    const auto named = [&](const std::string& name) {
      if (name.empty()) return name;
      const auto it = names.find(name);
      return it == names.end() ? prefix + name : it->second;
    };
    std::vector<Node> body;
    for (Node node : f.nodes) {
      for (std::string& i : node.inputs) i = named(i);
      for (std::string& o : node.outputs) o = named(o);
      std::vector<Attribute> own;
      for (Attribute& a : node.attributes) {
        if (a.refers_to.empty()) {
          own.push_back(a);
          continue;
        }
        const Attribute* given = n.find(a.refers_to);
        for (const Attribute& d : f.defaults)
          if (given == nullptr && d.name == a.refers_to) given = &d;
        if (given == nullptr) continue;
        own.push_back(*given);
        own.back().name = a.name;
      }
      node.attributes = std::move(own);
      body.push_back(std::move(node));
    }
    nodes(body, depth + 1);
  }

  const Model& m_;
  std::string path_;
  const OnnxOptions& options_;
  Builder b_;
  std::map<std::string, Value> known_;
  std::set<std::string> lost_, given_, read_;
  std::vector<std::string> problems_, notes_, cut_, missing_;
  std::map<std::string, std::int64_t> counts_;
  std::size_t steps_ = 0;
};

/// A workload's name from a file's.
std::string workload_name(const std::string& path) {
  std::string out;
  for (const char c : std::filesystem::path(path).stem().string().substr(0, 100)) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += word || c == '_' || c == '-' || c == '.' ? c : '_';
  }
  return out.empty() ? "model" : out;
}

}  // namespace
}  // namespace onnx

OnnxImport import_onnx(std::string_view bytes, const std::string& path,
                       const OnnxOptions& options) {
  try {
    const onnx::Model model = onnx::read_model(bytes, path);
    return onnx::Importer(model, path, options).run(onnx::workload_name(path));
  } catch (const InputError& e) {
    throw e.located(path);
  }
}

OnnxImport import_onnx(const std::string& path, const OnnxOptions& options) {
  const MappedFile file(path, "an .onnx file");
  return import_onnx(file.bytes(), path, options);
}

}  // namespace tilewright
