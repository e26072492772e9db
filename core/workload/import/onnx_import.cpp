// An ONNX file as a workload: its constants and inputs, then node by node.
#include "core/workload/import/onnx_import.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/workload/import/onnx_importer.h"

namespace tilewright {
namespace onnx {
namespace {

constexpr std::size_t kMostOperators = 60000;  // of the workload
constexpr std::size_t kMostVisits = 400000;    // nodes looked at, those of functions each time
constexpr std::size_t kMostNamed = 100;        // unsupported nodes in an error
constexpr std::size_t kMostOfReason = 300;     // characters; a file's texts stand in some

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

/// The first few names, and how many more there are.
std::string some(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  const std::size_t shown = std::min(names.size(), kMost);
  std::string text = join(std::span(names).first(shown));
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

}  // namespace

std::string shown(std::string_view name, std::size_t most) {
  std::string out;
  for (const char c : name.substr(0, most)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

Importer::Importer(const Model& m, const std::string& path, const OnnxOptions& options)
    : m_(m), path_(path), options_(options), b_(floats_of(m)) {}

OnnxImport Importer::run(const std::string& name) {
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
    const auto at = known_.find(of);  // not there: of a graph within a node
    if (at != known_.end() && at->second.view && !given_.contains(of))
      outputs.emplace_back(of, at->second);
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

void Importer::fail(const std::string& field, const std::string& value, const std::string& problem,
                    const std::string& accepted) const {
  throw InputError(
      {.where = path_, .field = field, .value = value, .problem = problem, .accepted = accepted});
}

Builder::Result Importer::made_of(const std::string& name,
                                  const std::vector<std::pair<std::string, Value>>& outputs) {
  try {
    return b_.finish(name, outputs);
  } catch (const Unsupported& u) {
    fail("outputs", "", "cannot be said: " + u.why, "outputs that are computed");
  }
}

void Importer::fail_unsupported() const {
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

void Importer::constants(const Graph& g) {
  for (const Literal& l : g.constants) {
    if (l.elements() < 0) continue;
    if (l.missing()) missing_.push_back(shown(l.name));
    known_[l.name] = Builder::known(std::make_shared<const Literal>(l));
  }
}

std::int64_t Importer::bound(const std::string& name) const {
  const auto it = options_.bind.find(name);
  return it == options_.bind.end() ? 0 : it->second;
}

void Importer::inputs() {
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

void Importer::note(const std::string& text) {
  if (!text.empty() && std::ranges::find(notes_, text) == notes_.end()) notes_.push_back(text);
}

void Importer::nodes(const std::vector<Node>& all, int depth) {
  for (const Node& n : all) {
    if (++steps_ > kMostVisits || b_.operators() > kMostOperators)
      fail("graph", std::to_string(b_.operators()) + " operators", "are too many",
           "at most " + std::to_string(kMostOperators));
    one(n, depth);
  }
}

const Function* Importer::function(const Node& n) const {
  for (const Function& f : m_.functions)
    if (f.name == n.op && (f.domain == n.domain || (f.domain == "ai.onnx" && n.domain.empty())))
      return &f;
  return nullptr;
}

void Importer::one(const Node& n, int depth) {
  if (depth == 0) ++counts_[shown(n.op)];
  try {
    if (const Function* f = function(n)) return call_function(*f, n, depth);
    if (n.domain.empty() && (n.op == "If" || n.op == "Loop" || n.op == "Scan")) {
      if (std::ranges::any_of(n.inputs, [&](const std::string& i) {
            return !known_.contains(i) && lost_.contains(i);
          })) {  // whoever makes it is named
        for (const std::string& o : n.outputs) lose(o);
        return;
      }
      if (n.op == "If") return branch(n, depth);
      return n.op == "Loop" ? loop(n, depth) : scan(n, depth);
    }
    said(n);
  } catch (const Unsupported& u) {
    unsupported(n, u.why);
  } catch (const std::out_of_range&) {
    unsupported(n, "its inputs or attributes are fewer than it takes");
  }
}

/// Says a node; of whole copies of its inputs, where their cuts do not fit.
void Importer::say_whole_if_cut(NodeReader& n, Saying say) {
  try {
    say(n);
  } catch (const CutTooOften&) {
    bool any = false;
    for (Value& v : n.in)
      if (auto whole = b_.whole(n.name, v)) v = *std::move(whole), any = true;
    if (!any) throw;
    n.out.assign(n.out.size(), Value{});
    say(n);
  }
}

void Importer::said(const Node& n) {
  std::vector<Value> in;
  bool lost = false;
  for (const std::string& name : n.inputs) {
    if (name.empty()) {
      in.emplace_back();
      continue;
    }
    const auto it = known_.find(name);
    if (it == known_.end()) {
      if (!lost_.contains(name)) throw Unsupported{"its input " + shown(name) + " is made nowhere"};
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
        say_whole_if_cut(reader, say);
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

Value Importer::constant_of(const Node& n) {
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

void Importer::lose(const std::string& name) {
  if (!name.empty()) lost_.insert(name);
}

void Importer::unsupported(const Node& n, const std::string& why) {
  std::string name = shown(n.name);
  if (name.empty() && !n.outputs.empty()) name = shown(n.outputs.front());
  problems_.push_back(name + ": " + shown(n.op) + ": " + shown(why, kMostOfReason));
  for (const std::string& i : n.inputs)
    if (known_.contains(i)) cut_.push_back(i);
  leave(n);
}

void Importer::leave(const Node& n) {
  for (const std::string& o : n.outputs) {
    if (o.empty()) continue;
    const auto v = options_.skip ? declared(o) : std::nullopt;
    if (v)
      known_[o] = *v, given_.insert(o);
    else
      lose(o);
  }
}

std::optional<Value> Importer::declared(const std::string& name) {
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

namespace {

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
