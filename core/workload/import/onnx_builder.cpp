// Operators over views, and the workload that they make.
#include "core/workload/import/onnx_builder.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/workload/workload_limits.h"

namespace tilewright::onnx {
namespace {

constexpr std::int64_t kMostUniform = 65536;  // elements that are looked at
DType stored_type(std::int32_t type, DType floats) {
  switch (type) {
    case kFloat:
      return DType::f32;
    case kFloat16:
      return DType::f16;
    case kBfloat16:
      return DType::bf16;
    case kDouble:
      return DType::f64;
    case kInt8:
    case kInt4:
    case kUint4:
      return DType::i8;
    case kBool:
      return floats;  // 0 and 1
    default:
      return DType::i32;
  }
}

/// Whether no value of it is negative.
bool is_unsigned(std::int32_t type) {
  return type == kUint8 || type == kUint16 || type == kUint32 || type == kUint64 ||
         type == kUint4 || type == kBool;
}

}  // namespace

Expr number(double n) { return {.kind = Expr::Kind::constant, .constant = n}; }

Expr call(const char* function, std::vector<Expr> args) {
  Expr e{.kind = Expr::Kind::call, .function = function, .args = std::move(args)};
  if (std::ranges::all_of(e.args, [](const Expr& a) { return a.kind == Expr::Kind::constant; })) {
    double values[3] = {};
    for (std::size_t i = 0; i < e.args.size(); ++i) values[i] = e.args[i].constant;
    const double value = find_expr_function(function)->evaluate(values);
    if (!std::isnan(value)) return number(value);
  }
  return e;
}

std::optional<double> constant(const Expr& e) {
  if (e.kind == Expr::Kind::constant) return e.constant;
  return std::nullopt;
}

Expr Builder::at(Var v) { return {.kind = Expr::Kind::index, .loop = LoopId(v)}; }

Expr Builder::index_of(const Vars& vars) const {
  Expr sum = number(0);
  std::int64_t times = 1;
  for (std::size_t i = vars.size(); i-- > 0; times *= extent(vars[i])) {
    Expr one = at(vars[i]);
    if (times != 1) one = call("mul", {number(static_cast<double>(times)), std::move(one)});
    sum = i + 1 == vars.size() ? std::move(one) : call("add", {std::move(one), std::move(sum)});
  }
  return sum;
}

Expr Builder::guarded(const std::vector<VarTerm>& terms, std::int64_t offset, std::int64_t extent,
                      Expr inside, double outside) {
  Expr sum = number(static_cast<double>(offset));
  std::int64_t low = offset, high = offset;
  for (const auto& [v, c] : terms) {
    Expr term = c == 1 ? at(v) : call("mul", {number(static_cast<double>(c)), at(v)});
    sum = constant(sum) == 0.0 ? std::move(term) : call("add", {std::move(sum), std::move(term)});
    (c < 0 ? low : high) += c * (this->extent(v) - 1);
  }
  if (high >= extent)
    inside = call("select", {call("lt", {number(static_cast<double>(extent - 1)), sum}),
                             number(outside), std::move(inside)});
  if (low < 0)
    inside = call("select", {call("lt", {sum, number(0)}), number(outside), std::move(inside)});
  return inside;
}

// ---- Values

View Builder::view_of_tensor(int tensor, const Shape& shape) {
  View view{.tensor = tensor};
  const std::vector<int>& axes = tensors_[static_cast<std::size_t>(tensor)].dims;
  std::size_t next = 0;
  for (const std::int64_t n : shape) {
    view.dims.emplace_back();
    if (n == 1) continue;
    const int axis = axes[next++];
    const Var v = add_var(axis);
    view.dims.back().push_back(v);
    view.index.push_back({.axis = axis, .plain = v});
  }
  return view;
}

Value Builder::input(const std::string& name, std::int32_t type, Shape shape) {
  Stored s{.name = name, .type = type};
  for (const std::int64_t n : shape)
    if (n != 1) s.dims.push_back(axes_.make(n));
  tensors_.push_back(std::move(s));
  Value v{.type = type, .shape = std::move(shape)};
  v.view = view_of_tensor(static_cast<int>(tensors_.size()) - 1, v.shape);
  return v;
}

Value Builder::known(std::int32_t type, Shape shape, std::vector<double> values) {
  return known(std::make_shared<Literal>(type, std::move(shape), std::move(values)));
}

Value Builder::known(std::shared_ptr<const Literal> literal) {
  Value v{.type = literal->type, .shape = literal->shape, .literal = literal};
  const std::int64_t n = literal->elements();
  if (n < 1 || n > kMostUniform || value_type_of(literal->type).empty()) return v;
  if (literal->missing()) return v;  // drawn, unless the graph's form depends on it
  const std::vector<double> values = literal->read();
  const auto same = [&](double x) { return x == values.front(); };
  if (std::ranges::all_of(values, same)) v.uniform = values.front();
  v.nonnegative = std::ranges::all_of(values, [](double x) { return x >= 0; });
  return v;
}

Value Builder::uniform(std::int32_t type, Shape shape, double value) {
  return {.type = type, .shape = std::move(shape), .uniform = value, .nonnegative = value >= 0};
}

int Builder::constant_tensor(const std::shared_ptr<const Literal>& literal) {
  const auto [it, added] = constants_.emplace(literal.get(), static_cast<int>(tensors_.size()));
  if (!added) return it->second;
  Stored s{.name = literal->name.empty() ? "constant" : literal->name,
           .type = literal->type,
           .literal = literal};
  for (const std::int64_t n : literal->shape)
    if (n != 1) s.dims.push_back(axes_.make(n));
  tensors_.push_back(std::move(s));
  return it->second;
}

View Builder::read(const Value& v) {
  if (!v.view) {
    std::shared_ptr<const Literal> literal = v.literal;
    if (v.uniform && literal && literal->shape != v.shape)
      literal.reset();  // of what it was before
    if (!literal) {
      if (!v.uniform) throw Unsupported{"an input that is left out"};
      const std::int64_t n = elements_of(v.shape);
      if (n < 0 || n > kMostUniform) throw Unsupported{"a constant that is too large"};
      literal = std::make_shared<Literal>(
          v.type, v.shape, std::vector<double>(static_cast<std::size_t>(n), *v.uniform));
    }
    if (value_type_of(literal->type).empty())
      throw Unsupported{"values of a type that is not a number"};
    // A reshaped literal is another one; the first of a name is shared by its readers.
    return view_of_tensor(constant_tensor(literal), v.shape);
  }
  // With variables of its own.
  View view = *v.view;
  normalise(view);
  std::map<Var, Var> own;
  const auto renamed = [&](Var of) {
    const auto [it, added] = own.emplace(of, -1);
    if (added) it->second = add_var(vars_[static_cast<std::size_t>(of)].axis);
    return it->second;
  };
  for (Vars& d : view.dims)
    for (Var& u : d) u = renamed(u);
  for (Entry& e : view.index) {
    if (e.plain >= 0) e.plain = renamed(e.plain);
    for (VarTerm& t : e.terms) t.first = renamed(t.first);
  }
  return view;
}

Expr Builder::operand(const Value& v, std::vector<View>& reads, View* view) {
  if (v.uniform && !std::isnan(*v.uniform)) return number(*v.uniform);
  View own = read(v);
  if (view != nullptr) *view = own;
  reads.push_back(std::move(own));
  return {.kind = Expr::Kind::input, .input = static_cast<int>(reads.size()) - 1};
}

// ---- Operators

namespace {

/// The dimension along which a constant is 0, 1, 2 and so on, each the number of its place.
std::optional<std::size_t> counted(const Value& v) {
  if (v.view || !v.literal || v.literal->shape != v.shape || v.literal->missing()) return {};
  std::optional<std::size_t> along;
  for (std::size_t d = 0; d < v.shape.size(); ++d) {
    if (v.shape[d] == 1) continue;
    if (along) return {};
    along = d;
  }
  if (!along || v.shape[*along] > kMaxIndexed || value_type_of(v.literal->type).empty()) return {};
  const std::vector<double> values = v.literal->read();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != static_cast<double>(i)) return {};
  return along;
}

/// The expression whose inputs are those.
Expr with_inputs(const Expr& e, const std::vector<Expr>& inputs) {
  if (e.kind == Expr::Kind::input) return inputs[static_cast<std::size_t>(e.input)];
  Expr out = e;
  for (Expr& a : out.args) a = with_inputs(a, inputs);
  return out;
}

}  // namespace

Value Builder::map(const std::string& name, std::int32_t type, const std::vector<Value>& ins,
                   const Function& f) {
  Shape shape;
  for (const Value& v : ins) {
    if (v.shape.size() > shape.size())
      shape.insert(shape.begin(), v.shape.size() - shape.size(), 1);
    for (std::size_t i = 1; i <= v.shape.size(); ++i) {
      std::int64_t& n = shape[shape.size() - i];
      const std::int64_t m = v.shape[v.shape.size() - i];
      if (n != 1 && m != 1 && n != m) throw Unsupported{"its shapes do not broadcast"};
      if (n == 1) n = m;
    }
  }
  std::vector<View> reads;
  std::vector<Expr> values;
  std::vector<std::size_t> ranks;
  std::vector<const Value*> of;
  for (const Value& v : ins) {
    const std::size_t before = reads.size();
    values.push_back(operand(v, reads));
    if (reads.size() == before) continue;
    ranks.push_back(v.shape.size());
    of.push_back(&v);
  }
  Expr value = f(values);
  if (const auto c = constant(value)) return uniform(type, shape, *c);
  // Whole dimensions can be read at any cuts.
  const auto with_whole = [&](std::size_t i) {
    std::vector<Value> again = ins;
    const Value whole = plain(name + "_whole", *of[i]);
    for (std::size_t k = 0; k < ins.size(); ++k)
      if (&ins[k] == of[i]) again[k] = whole;
    return map(name, type, again, f);
  };
  if (const auto worst = cut_too_often(reads, ranks, shape.size())) return with_whole(*worst);
  std::vector<Vars> dims(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::ptrdiff_t first = -1;
    // Cuts that a later operand needs are cuts of the first ones', too.
    for (int turn = 0; turn < 2; ++turn)
      for (std::size_t i = 0; i < reads.size(); ++i) {
        const std::size_t missing = shape.size() - ranks[i];
        if (d < missing || reads[i].dims[d - missing].empty()) continue;
        if (first < 0) first = static_cast<std::ptrdiff_t>(i);
        const auto at = static_cast<std::size_t>(first);
        const std::size_t place = d - (shape.size() - ranks[at]);
        if (at == i) continue;
        if (reads[at].dims[place] == reads[i].dims[d - missing]) continue;
        if (unify(reads[at], place, reads[i], d - missing)) continue;
        return with_whole(i);
      }
    if (first >= 0) {
      const auto at = static_cast<std::size_t>(first);
      normalise(reads[at]);
      dims[d] = reads[at].dims[d - (shape.size() - ranks[at])];
    } else {
      dims[d] = vars(shape[d]);
    }
  }
  // Numbers of places are the loop's index: nothing is read.
  std::vector<Expr> read_as;
  std::vector<View> kept;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (const auto d = counted(*of[i])) {
      read_as.push_back(index_of(expanded(dims[*d + shape.size() - ranks[i]])));
      continue;
    }
    read_as.push_back({.kind = Expr::Kind::input, .input = static_cast<int>(kept.size())});
    kept.push_back(reads[i]);
  }
  if (kept.empty()) return emit(name, type, shape, dims, reads, value, Combine::assign);
  if (kept.size() < reads.size()) value = with_inputs(value, read_as);
  return emit(name, type, shape, dims, std::move(kept), value, Combine::assign);
}

Value Builder::reduce(const std::string& name, const Value& v, const std::set<std::size_t>& over,
                      Combine combine, const Function& f) {
  std::vector<View> reads;
  View view;
  Value from = v;
  if (v.uniform) from = copied(name + "_all", v);
  Expr value = f({operand(from, reads, &view)});
  Shape shape = v.shape;
  std::vector<Vars> dims = view.dims;
  bool reduced = false;
  for (const std::size_t d : over) {
    reduced = reduced || !dims[d].empty();
    for (const Var u : dims[d])
      if (!reads_var(reads.front(), u))  // a broadcast counts as often as it is repeated
        return reduce(name, copied(name + "_all", v), over, combine, f);
    shape[d] = 1;
    dims[d].clear();
  }
  return emit(name, v.type, shape, dims, reads, value, reduced ? combine : Combine::assign);
}

Value Builder::emit(const std::string& name, std::int32_t type, Shape shape, std::vector<Vars> dims,
                    std::vector<View> reads, Expr value, Combine combine) {
  Stored s{.name = name, .type = type, .producer = static_cast<int>(ops_.size())};
  Op op{.name = name,
        .target = static_cast<int>(tensors_.size()),
        .reads = std::move(reads),
        .value = std::move(value),
        .combine = combine};
  if (const std::size_t rank = stored_rank(dims); rank > static_cast<std::size_t>(kMaxRank))
    throw CutTooOften{{"a result of " + std::to_string(rank) +
                       " dimensions, cut as its operands are; at most " +
                       std::to_string(kMaxRank)}};
  Value out{.type = type, .shape = std::move(shape)};
  View view{.tensor = op.target};
  for (const Vars& d : dims) {
    view.dims.emplace_back();
    for (const Var v : expanded(d)) {
      const int axis = vars_[static_cast<std::size_t>(v)].axis;
      op.loops.push_back(v);
      s.dims.push_back(axis);
      const Var own = add_var(axis);
      view.dims.back().push_back(own);
      view.index.push_back({.axis = axis, .plain = own});
    }
  }
  tensors_.push_back(std::move(s));
  ops_.push_back(std::move(op));
  out.view = std::move(view);
  return out;
}

// ---- Whole numbers of 8 bits

void Builder::scaled(const Value& real, const Scaled& as) {
  if (!real.view || real.known()) return;
  const View whole = read(as.whole);
  const Stored& s = tensors_[static_cast<std::size_t>(real.view->tensor)];
  // Element by element: stored alike, so that an index of one is one of the other.
  const Stored& from = tensors_[static_cast<std::size_t>(whole.tensor)];
  if (whole.index.size() != from.dims.size() || s.dims.size() != from.dims.size()) return;
  for (std::size_t d = 0; d < s.dims.size(); ++d)
    if (whole.index[d].plain < 0 || !axes_.same(s.dims[d], from.dims[d]) ||
        !axes_.same(whole.index[d].axis, from.dims[d]))
      return;
  Kept kept{.tensor = whole.tensor, .scale = as.scale, .zero = as.zero};
  if (as.axis) {
    const Vars& along = real.view->dims[*as.axis];
    if (along.size() != 1) return;
    kept.axis = vars_[static_cast<std::size_t>(along.front())].axis;
  }
  scaled_.emplace(real.view->tensor, std::move(kept));
}

std::optional<Builder::Scaled> Builder::scaled_of(const Value& v) const {
  if (!v.view) return std::nullopt;
  const auto it = scaled_.find(v.view->tensor);
  if (it == scaled_.end()) return std::nullopt;
  const Kept& kept = it->second;
  Scaled found{.whole = v, .scale = kept.scale, .zero = kept.zero};
  for (const Entry& e : v.view->index) {
    if (e.plain < 0) return std::nullopt;  // what is read outside is zero of the real numbers
    if (kept.axis < 0 || !axes_.same(e.axis, kept.axis)) continue;
    for (std::size_t d = 0; d < v.view->dims.size(); ++d)
      if (v.view->dims[d] == Vars{e.plain}) found.axis = d;
  }
  if (kept.axis >= 0 && !found.axis) return std::nullopt;
  found.whole.type = kInt8;
  found.whole.literal.reset();
  found.whole.uniform.reset();
  found.whole.nonnegative = false;
  found.whole.view->tensor = kept.tensor;
  return found;
}

// ---- The workload

/// Names loops and tensors, and puts what is needed into a specification.
class Finisher {
 public:
  Finisher(Builder& b, const std::string& name) : b_(b) {
    spec_.name = name;
    spec_.dtype = b.dtype_;
  }

  Builder::Result run(const std::vector<std::pair<std::string, Value>>& outputs) {
    live_.assign(b_.ops_.size(), false);
    used_.assign(b_.tensors_.size(), false);
    for (const auto& [name, v] : outputs) {
      const auto at = static_cast<std::size_t>(v.view->tensor);
      used_[at] = true;
      b_.tensors_[at].name = name;
    }
    for (std::size_t i = b_.ops_.size(); i-- > 0;) mark(i);
    preferred_.resize(b_.tensors_.size());
    loops_.resize(b_.ops_.size());
    for (std::size_t i = b_.ops_.size(); i-- > 0;)
      if (live_[i]) name_loops(i);
    Builder::Result out;
    add_tensors(out);
    for (std::size_t i = 0; i < b_.ops_.size(); ++i)
      if (live_[i]) spec_.operators.push_back(operator_of(i));
    for (const auto& [name, v] : outputs) {
      const TensorId id(static_cast<std::size_t>(ids_[static_cast<std::size_t>(v.view->tensor)]));
      spec_.outputs.push_back(id);
      out.names[name] = spec_.tensors[id.index()].name;
    }
    out.spec = std::move(spec_);
    return out;
  }

 private:
  void mark(std::size_t i) {
    Builder::Op& op = b_.ops_[i];
    if (!used_[static_cast<std::size_t>(op.target)]) return;
    live_[i] = true;
    op.loops = b_.expanded(op.loops);
    for (View& r : op.reads) {
      r.dims.clear();
      b_.normalise(r);
      used_[static_cast<std::size_t>(r.tensor)] = true;
      for (const Entry& e : r.index)
        if (e.by >= 0) used_[static_cast<std::size_t>(e.by)] = true;
    }
  }

  std::vector<int> stored_dims(int tensor) const {
    std::vector<int> all;
    for (const int d : b_.tensors_[static_cast<std::size_t>(tensor)].dims)
      for (const int l : b_.axes_.leaves(d)) all.push_back(l);
    return all;
  }

  /// The loop of that number among those of the extent.
  int loop(std::int64_t extent, std::size_t number) {
    std::vector<int>& same = by_extent_[extent];
    while (same.size() <= number) {
      same.push_back(static_cast<int>(spec_.loops.size()));
      static constexpr std::string_view kLetters = "ijklmnpqrstuvwxyzabcdefgh";
      const std::size_t at = same.size() - 1;
      std::string name(1, kLetters[at % kLetters.size()]);
      if (at >= kLetters.size()) name += std::to_string(at / kLetters.size()) + "_";
      spec_.loops.push_back({name + std::to_string(extent), extent});
    }
    return same[number];
  }

  /// Readers come first, so that a writer takes the names that its readers have.
  void name_loops(std::size_t i) {
    Builder::Op& op = b_.ops_[i];
    std::map<Var, int>& names = loops_[i];
    std::set<int> taken;
    const auto take = [&](Var v, int wanted) {
      if (names.contains(v)) return;
      const std::int64_t n = b_.extent(v);
      int l = wanted;
      for (std::size_t k = 0; l < 0 || taken.contains(l); ++k) l = loop(n, k);
      names[v] = l;
      taken.insert(l);
    };
    const auto& target = preferred_[static_cast<std::size_t>(op.target)];
    for (std::size_t d = 0; d < op.loops.size(); ++d)
      if (d < target.size() && target[d] >= 0 && !taken.contains(target[d]))
        take(op.loops[d], target[d]);
    for (const Var v : op.loops) take(v, -1);
    const auto each = [&](int tensor, const std::vector<Entry>& index) {
      auto& prefer = preferred_[static_cast<std::size_t>(tensor)];
      prefer.resize(index.size(), -1);
      for (std::size_t d = 0; d < index.size(); ++d)
        if (index[d].plain >= 0) take(index[d].plain, prefer[d]);
      for (const Entry& e : index)
        for (const auto& [v, c] : e.terms) take(v, -1);
      for (std::size_t d = 0; d < index.size(); ++d)
        if (index[d].plain >= 0 && prefer[d] < 0) prefer[d] = names.at(index[d].plain);
    };
    for (const View& r : op.reads) {
      for (const Entry& e : r.index)
        if (e.by >= 0) each(e.by, e.by_index);
      each(r.tensor, r.index);
    }
  }

  std::string identifier(const std::string& name) {
    std::string out;
    for (const char c : name) {
      const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (word)
        out += c;
      else if (!out.empty() && out.back() != '_')
        out += '_';
    }
    if (out.size() > 48) out = out.substr(out.size() - 48);
    while (!out.empty() && (out.front() == '_' || (out.front() >= '0' && out.front() <= '9')))
      out = out.front() == '_' ? out.substr(1) : "t" + out;
    while (!out.empty() && out.back() == '_') out.pop_back();
    if (out.empty()) out = "t";
    const std::string base = out;
    std::size_t& next = numbers_[base];
    while (!is_identifier(out) || taken_.contains(out) || looks_like_loop(out))
      out = base + "_v" + std::to_string(++next);  // no loop's name
    taken_.insert(out);
    return out;
  }
  static bool looks_like_loop(const std::string& name) {
    return name.size() > 1 && name.find_first_not_of("0123456789_", 1) == name.npos;
  }

  void add_tensors(Builder::Result& out) {
    ids_.assign(b_.tensors_.size(), -1);
    for (std::size_t t = 0; t < b_.tensors_.size(); ++t) {
      Builder::Stored& s = b_.tensors_[t];
      const bool given = s.producer < 0 && !s.literal;
      if (!used_[t]) {
        if (given) out.unused.push_back(s.name);
        continue;
      }
      Tensor tensor{
          .name = identifier(s.name),
          .dtype = s.indexes && s.type != kInt8 ? DType::i32 : stored_type(s.type, b_.dtype_)};
      if (s.type == kBool && s.producer < 0) tensor.dtype = s.indexes ? DType::i32 : DType::i8;
      for (const int d : stored_dims(static_cast<int>(t)))
        tensor.shape.push_back(b_.axes_.extent(d));
      if (tensor.shape.size() > static_cast<std::size_t>(kMaxRank))
        throw InputError({.field = s.name,
                          .value = std::to_string(tensor.shape.size()),
                          .problem = "dimensions are too many, cut as its readers need",
                          .accepted = "at most " + std::to_string(kMaxRank)});
      if (s.literal) tensor.values = SharedValues(s.literal->values);
      if (s.producer < 0 && tensor.drawn() && is_unsigned(s.type)) tensor.least = 0;
      if (given) out.names[s.name] = tensor.name;
      ids_[t] = static_cast<int>(spec_.tensors.size());
      spec_.tensors.push_back(std::move(tensor));
    }
  }

  Affine affine(const std::map<Var, int>& names, const Entry& e) const {
    Affine a{.offset = e.offset};
    if (e.plain >= 0) a.terms = {{LoopId(names.at(e.plain)), 1}};
    for (const auto& [v, c] : e.terms) a.terms.push_back({LoopId(names.at(v)), c});
    return a;
  }

  Operator operator_of(std::size_t i) {
    const Builder::Op& op = b_.ops_[i];
    const std::map<Var, int>& names = loops_[i];
    Operator out{
        .name = spec_.tensors[static_cast<std::size_t>(ids_[static_cast<std::size_t>(op.target)])]
                    .name};
    const auto id = [&](int t) {
      return TensorId(static_cast<std::size_t>(ids_[static_cast<std::size_t>(t)]));
    };
    std::vector<int> position;
    for (const View& r : op.reads) {
      Access a{.tensor = id(r.tensor)};
      for (const Entry& e : r.index) {
        if (e.by < 0) {
          a.index.push_back(affine(names, e));
          continue;
        }
        Access by{.tensor = id(e.by)};
        for (const Entry& inner : e.by_index) by.index.push_back(affine(names, inner));
        a.index.push_back({.gathered = static_cast<int>(out.inputs.size())});
        out.inputs.push_back(std::move(by));
      }
      position.push_back(static_cast<int>(out.inputs.size()));
      out.inputs.push_back(std::move(a));
    }
    Output o{.combine = op.combine};
    o.target.tensor = id(op.target);
    for (const Var v : op.loops) o.target.index.push_back({.terms = {{LoopId(names.at(v)), 1}}});
    o.value = expression(op.value, names, position);
    out.outputs.push_back(std::move(o));
    return out;
  }

  Expr expression(const Expr& e, const std::map<Var, int>& names,
                  const std::vector<int>& position) {
    if (e.kind == Expr::Kind::input) {
      Expr out = e;
      out.input = position[static_cast<std::size_t>(e.input)];
      return out;
    }
    if (e.kind == Expr::Kind::index) {
      const Vars vs = b_.expanded({static_cast<Var>(e.loop.value)});
      if (vs.size() != 1) return expression(b_.index_of(vs), names, position);
      return {.kind = Expr::Kind::index, .loop = LoopId(names.at(vs.front()))};
    }
    Expr out = e;
    for (Expr& a : out.args) a = expression(a, names, position);
    return out;
  }

  Builder& b_;
  WorkloadSpec spec_;
  std::vector<bool> live_, used_;
  std::vector<std::vector<int>> preferred_;  // by tensor and dimension
  std::vector<std::map<Var, int>> loops_;    // by operator
  std::map<std::int64_t, std::vector<int>> by_extent_;
  std::set<std::string> taken_;
  std::map<std::string, std::size_t> numbers_;
  std::vector<int> ids_;
};

Builder::Result Builder::finish(const std::string& name,
                                const std::vector<std::pair<std::string, Value>>& outputs) {
  // What is returned must be written whole, in its own order, by an operator of its own.
  std::vector<std::pair<std::string, Value>> own;
  std::set<int> returned;
  for (const auto& [of, v] : outputs) {
    bool whole = v.view.has_value();
    if (whole) {
      View view = *v.view;
      normalise(view);
      const Stored& s = tensors_[static_cast<std::size_t>(view.tensor)];
      Vars flat;
      for (const Vars& d : view.dims) flat.insert(flat.end(), d.begin(), d.end());
      std::size_t next = 0;
      whole =
          s.producer >= 0 && flat.size() == view.index.size() && !returned.contains(view.tensor);
      for (const Entry& e : view.index) whole = whole && e.plain >= 0 && e.plain == flat[next++];
    }
    own.emplace_back(of, whole ? v : copied(of, v));
    returned.insert(own.back().second.view->tensor);
  }
  fold_casts(returned);
  return Finisher(*this, name).run(own);
}

}  // namespace tilewright::onnx
