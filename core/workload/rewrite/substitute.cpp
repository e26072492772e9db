#include "core/workload/rewrite/substitute.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/workload/expr.h"
#include "core/workload/rewrite/build.h"
#include "core/workload/workload_limits.h"

namespace tilewright::rewrite {
namespace {

constexpr int kMostNodes = 256;  // of an expression: one that reads a value twice doubles it

/// to += by * what; false past 64 bits.
bool add_scaled(Affine& to, const Affine& what, std::int64_t by) {
  const auto add = [by](std::int64_t& sum, std::int64_t x) {
    const auto scaled = checked_mul(x, by);
    const auto all = scaled ? checked_add(sum, *scaled) : std::nullopt;
    if (all) sum = *all;
    return all.has_value();
  };
  for (const Term& t : what.terms) {
    auto at = std::ranges::find(to.terms, t.loop, &Term::loop);
    if (at == to.terms.end()) at = to.terms.insert(at, {t.loop, 0});
    if (!add(at->coefficient, t.coefficient)) return false;
  }
  return add(to.offset, what.offset);
}

std::vector<Interval> whole(const WorkloadSpec& spec, const Operator& op) {
  std::vector<Interval> ranges;
  for (LoopId l : op.loops) ranges.push_back({0, spec.loops[l.index()].extent});
  return ranges;
}

/// Nodes of an expression, and how deep they are nested.
struct Size {
  int nodes = 0, depth = 0;
};
Size size_of(const Expr& e) {
  Size s{.nodes = 1};
  for (const Expr& a : e.args) {
    const Size inner = size_of(a);
    s.nodes += inner.nodes;
    s.depth = std::max(s.depth, inner.depth);
  }
  ++s.depth;
  return s;
}

/// The affine form as a value, 2 * i + 1, say.
Expr value_of(const Affine& form) {
  const auto number = [](std::int64_t n) { return value(static_cast<double>(n)); };
  std::optional<Expr> sum;
  const auto add = [&](Expr e) { sum = sum ? make("add", {*std::move(sum), std::move(e)}) : e; };
  for (const Term& t : form.terms) {
    const Expr i = index(t.loop);
    add(t.coefficient == 1 ? i : make("mul", {number(t.coefficient), i}));
  }
  if (form.offset != 0 || !sum) add(number(form.offset));
  return *std::move(sum);
}

class Substitution {
 public:
  Substitution(const WorkloadSpec& spec, const Operator& reader, int input,
               const Operator& producer, const Output& written)
      : spec_(spec),
        op_(reader),
        input_(input),
        read_(reader.inputs[static_cast<std::size_t>(input)]),
        producer_(producer),
        written_(written) {}

  Result<Operator> run() {
    if (auto why = unreadable()) return *why;
    if (auto why = find_edges()) return *why;
    places_.assign(producer_.inputs.size(), -1);
    for (Output& o : op_.outputs)
      if (auto why = replace(o.value)) return *why;
    drop_unread(op_);
    if (auto why = broken()) return *why;
    return op_;
  }

 private:
  const std::string& name(TensorId t) const { return spec_.tensors[t.index()].name; }
  Reason refusal(const std::string& why) const {
    return {op_.name + " " + why + ", so that " + name(read_.tensor) + " is not computed there"};
  }

  std::optional<Reason> unreadable() const {
    const auto indexed_by = [&](const Access& a) {
      return std::ranges::any_of(a.index, [&](const Affine& i) { return i.gathered == input_; });
    };
    if (is_gather(read_) || std::ranges::any_of(op_.inputs, indexed_by))
      return refusal("gathers by value what may name no element");
    return std::nullopt;
  }

  /// Where the input is read outside of its tensor, so that the value is zero and the producer's
  /// expression must not be taken: by dimension, before the first or behind the last element.
  struct Edge {
    std::size_t dim = 0;
    bool behind = false;
  };

  std::optional<Reason> find_edges() {
    const std::vector<Interval> ranges = whole(spec_, op_);
    const std::vector<std::int64_t>& shape = spec_.tensors[read_.tensor.index()].shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const Interval reach = footprint(op_, read_.index[d], ranges);
      for (const Edge edge : {Edge{d, false}, Edge{d, true}}) {
        if (edge.behind ? reach.hi <= shape[d] : reach.lo >= 0) continue;
        if (!assigns_each_point())
          return refusal("sums what is outside of the tensor, which is zero there");
        if (is_zero_beyond(edge)) continue;
        if (!is_value(read_.index[d]))
          return refusal(
              "reads outside of the tensor, which is zero there, at a place that is no "
              "value");
        edges_.push_back(edge);
      }
    }
    return std::nullopt;
  }

  /// Whether the reader combines nothing: each point of its loops is an element of each output.
  bool assigns_each_point() const {
    return !op_.running && std::ranges::all_of(op_.outputs, [](const Output& o) {
      return o.combine == Combine::assign;
    });
  }

  /// Whether what the producer reads there is outside of its own tensors, too, and the expression
  /// of these zeros is zero, whatever else it reads.
  bool is_zero_beyond(const Edge& edge) const {
    const auto zero = [&](int input) { return ends_at(static_cast<std::size_t>(input), edge); };
    return vanishes(written_.value, zero, zero);
  }

  /// Whether an input of the producer has an edge where its output has it.
  bool ends_at(std::size_t input, const Edge& edge) const {
    const Access& a = producer_.inputs[input];
    const auto loop = written_.target.index[edge.dim].plain_loop();
    const std::int64_t extent = spec_.tensors[read_.tensor.index()].shape[edge.dim];
    for (std::size_t d = 0; loop && d < a.index.size(); ++d) {
      const Affine& at = a.index[d];
      if (at.gathered >= 0 || at.terms.size() != 1 || at.terms[0].loop != *loop) continue;
      const std::int64_t by = at.terms[0].coefficient;
      if (by <= 0) continue;
      if (edge.behind ? by * extent + at.offset >= spec_.tensors[a.tensor.index()].shape[d]
                      : at.offset - by < 0)
        return true;
    }
    return false;
  }

  /// The value inside of the edges, and zero beyond.
  Expr inside(Expr e) const {
    for (const Edge& edge : edges_) {
      const std::int64_t end =
          edge.behind ? spec_.tensors[read_.tensor.index()].shape[edge.dim] : 0;
      Expr below = make("lt", {value_of(read_.index[edge.dim]), value(static_cast<double>(end))});
      e = edge.behind ? make("select", {std::move(below), std::move(e), value(0)})
                      : make("select", {std::move(below), value(0), std::move(e)});
    }
    return e;
  }

  /// The producer's index with its loops replaced.
  std::optional<Affine> composed(const Affine& index) const {
    Affine r{.offset = index.offset};
    for (const Term& t : index.terms) {
      const auto& target = written_.target.index;
      const auto d =
          std::ranges::find_if(target, [&](const Affine& i) { return i.plain_loop() == t.loop; });
      TW_CHECK(d != target.end(), "an assignment over a loop that its output has not");
      const Affine& at = read_.index[static_cast<std::size_t>(d - target.begin())];
      if (!add_scaled(r, at, t.coefficient)) return std::nullopt;
    }
    std::erase_if(r.terms, [](const Term& t) { return t.coefficient == 0; });
    const auto position = [&](const Term& t) { return std::ranges::find(op_.loops, t.loop); };
    std::ranges::sort(r.terms, {}, position);
    return r;
  }

  /// Where the reader has an input of the producer, its gathers' indices first; nothing where an
  /// index is past 64 bits.
  std::optional<int> place_of(int producers) {
    int& place = places_[static_cast<std::size_t>(producers)];
    if (place >= 0) return place;
    Access a = producer_.inputs[static_cast<std::size_t>(producers)];
    for (Affine& index : a.index) {
      if (index.gathered >= 0) {
        const auto by = place_of(index.gathered);
        if (!by) return std::nullopt;
        index.gathered = *by;
      } else if (auto at = composed(index)) {
        index = *std::move(at);
      } else {
        return std::nullopt;
      }
    }
    const auto same = std::ranges::find(op_.inputs, a);
    place = static_cast<int>(same - op_.inputs.begin());
    if (same == op_.inputs.end()) op_.inputs.push_back(std::move(a));
    return place;
  }

  /// The producer's expression with the reader's inputs.
  std::optional<Reason> adapt(Expr& e) {
    if (e.kind == Expr::Kind::input) {
      const auto at = place_of(e.input);
      if (!at) return refusal("would have an index past 64 bits");
      e.input = *at;
    }
    if (e.kind == Expr::Kind::index) {
      const auto at = composed({.terms = {{e.loop, 1}}});
      if (!at || !is_value(*at))
        return refusal(
            "would have an index as a value that f32 does not hold, or of a loop whose "
            "name is not its own");
      e = value_of(*at);
      return std::nullopt;
    }
    for (Expr& a : e.args)
      if (auto why = adapt(a)) return why;
    return std::nullopt;
  }

  /// Whether expressions can have the form's value: f32 holds it and every partial sum of it.
  bool is_value(const Affine& form) const {
    constexpr auto kMost = static_cast<double>(kMaxIndexed);
    double most = std::abs(static_cast<double>(form.offset));
    for (const Term& t : form.terms) {
      if (why_no_value(spec_, t.loop)) return false;
      most += std::abs(static_cast<double>(t.coefficient)) *
              static_cast<double>(spec_.loops[t.loop.index()].extent);
    }
    return most <= kMost;
  }

  std::optional<Reason> replace(Expr& e) {
    if (e.kind == Expr::Kind::input && e.input == input_) {
      Expr value = written_.value;
      if (auto why = adapt(value)) return why;
      e = inside(std::move(value));
      return std::nullopt;
    }
    for (Expr& a : e.args)
      if (auto why = replace(a)) return why;
    return std::nullopt;
  }

  /// What Workload::create would refuse, or would take for another operator.
  std::optional<Reason> broken() const {
    for (const Output& o : op_.outputs) {
      const Size s = size_of(o.value);
      if (s.nodes > kMostNodes || s.depth > kMaxExprDepth)
        return refusal("would have an expression that is too large");
    }
    const std::vector<Interval> ranges = whole(spec_, op_);
    std::vector<bool> indexes(op_.loops.size());
    const auto mark = [&](const Affine& index) {
      for (const Term& t : index.terms)
        indexes[static_cast<std::size_t>(std::ranges::find(op_.loops, t.loop) -
                                         op_.loops.begin())] = true;
    };
    for (const Output& o : op_.outputs) std::ranges::for_each(o.target.index, mark);
    for (const Access& a : op_.inputs) {
      std::ranges::for_each(a.index, mark);
      for (std::size_t d = 0; d < a.index.size(); ++d) {
        const Interval tensor{0, spec_.tensors[a.tensor.index()].shape[d]};
        if (a.index[d].gathered < 0 &&
            intersect(footprint(op_, a.index[d], ranges), tensor).empty())
          return refusal("would read " + name(a.tensor) + " wholly outside");
      }
    }
    for (std::size_t l = 0; l < indexes.size(); ++l)
      if (!indexes[l])
        return refusal("would have nothing that " + spec_.loops[op_.loops[l].index()].name +
                       " indexes");
    return std::nullopt;
  }

  const WorkloadSpec& spec_;
  Operator op_;
  int input_;
  const Access read_;
  const Operator& producer_;
  const Output& written_;
  std::vector<int> places_;  ///< of the producer's inputs among the reader's
  std::vector<Edge> edges_;  ///< beyond which the producer's expression need not be zero
};

}  // namespace

Result<Operator> substitute(const WorkloadSpec& spec, const Operator& reader, int input,
                            const Operator& producer, const Output& written) {
  return Substitution(spec, reader, input, producer, written).run();
}

namespace {

bool is_one_of(std::string_view function, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, function) != names.end();
}

}  // namespace

bool is_finite(const Expr& e, const OfInput& finite) {
  if (e.kind == Expr::Kind::constant) return std::isfinite(e.constant);
  if (e.kind == Expr::Kind::input) return finite(e.input);
  if (e.kind != Expr::Kind::call) return e.kind == Expr::Kind::index;
  return is_one_of(e.function, {"add", "sub", "mul", "max", "min", "neg", "relu", "abs", "square",
                                "tanh", "sigmoid", "erf", "gelu", "sin", "cos"}) &&
         std::ranges::all_of(e.args, [&](const Expr& a) { return is_finite(a, finite); });
}

bool vanishes(const Expr& e, const OfInput& zero, const OfInput& finite) {
  const auto is_zero = [&](const Expr& a) { return vanishes(a, zero, finite); };
  if (e.kind == Expr::Kind::constant) return e.constant == 0;
  if (e.kind == Expr::Kind::input) return zero(e.input);
  if (e.kind != Expr::Kind::call) return false;
  if (e.function == "mul") return is_finite(e, finite) && std::ranges::any_of(e.args, is_zero);
  if (e.function == "select") return is_zero(e.args[1]) && is_zero(e.args[2]);
  return is_one_of(e.function, {"add", "sub", "max", "min", "neg", "relu", "abs", "square", "tanh",
                                "erf", "gelu", "sin", "sqrt", "floor", "round"}) &&
         std::ranges::all_of(e.args, is_zero);
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(at, from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

OpId operator_named(const Workload& w, std::string_view name, const std::string& accepted) {
  if (const auto op = w.find_op(name)) return *op;
  throw InputError({.field = "rewrite",
                    .value = "'" + std::string(name) + "'",
                    .problem = "is no operator of the workload",
                    .accepted = accepted});
}

void drop_unread(Operator& op) {
  const std::vector<Access> old = std::move(op.inputs);
  op.inputs.clear();
  std::vector<int> moved(old.size(), -1);
  const std::function<int(int)> keep = [&](int i) {
    int& to = moved[static_cast<std::size_t>(i)];
    if (to >= 0) return to;
    Access a = old[static_cast<std::size_t>(i)];
    for (Affine& index : a.index)
      if (index.gathered >= 0) index.gathered = keep(index.gathered);
    op.inputs.push_back(std::move(a));
    return to = static_cast<int>(op.inputs.size()) - 1;
  };
  const std::function<void(Expr&)> visit = [&](Expr& e) {
    if (e.kind == Expr::Kind::input) e.input = keep(e.input);
    for (Expr& a : e.args) visit(a);
  };
  for (Output& o : op.outputs) visit(o.value);
}

int uses_of(const Expr& e, int input) {
  if (e.kind == Expr::Kind::input) return e.input == input ? 1 : 0;
  int n = 0;
  for (const Expr& a : e.args) n += uses_of(a, input);
  return n;
}

namespace {

/// Erases what is not marked. Returns the new position of each.
template <class T>
std::vector<std::size_t> keep_marked(std::vector<T>& items, const std::vector<bool>& marked) {
  std::vector<std::size_t> moved(items.size());
  std::vector<T> kept;
  for (std::size_t i = 0; i < items.size(); ++i) {
    moved[i] = kept.size();
    if (marked[i]) kept.push_back(std::move(items[i]));
  }
  items = std::move(kept);
  return moved;
}

}  // namespace

void drop(WorkloadSpec& spec, const std::vector<bool>& gone) {
  std::vector<Operator> kept;
  std::vector<bool> tensor(spec.tensors.size()), loop(spec.loops.size());
  const auto mark = [&](const Access& a) { tensor[a.tensor.index()] = true; };
  for (std::size_t i = 0; i < spec.operators.size(); ++i) {
    if (gone[i]) continue;
    Operator& o = spec.operators[i];
    for (LoopId l : o.loops) loop[l.index()] = true;
    std::ranges::for_each(o.inputs, mark);
    for (const Output& out : o.outputs) mark(out.target);
    kept.push_back(std::move(o));
  }
  spec.operators = std::move(kept);
  const auto tensors = keep_marked(spec.tensors, tensor), loops = keep_marked(spec.loops, loop);
  const auto renumber = [&](Access& a) {
    a.tensor = TensorId(tensors[a.tensor.index()]);
    for (Affine& index : a.index)
      for (Term& t : index.terms) t.loop = LoopId(loops[t.loop.index()]);
  };
  for (Operator& o : spec.operators) {
    for (LoopId& l : o.loops) l = LoopId(loops[l.index()]);
    std::ranges::for_each(o.inputs, renumber);
    for (Output& out : o.outputs) {
      renumber(out.target);
      const auto move = [&](LoopId& l) { l = LoopId(loops[l.index()]); };
      each_index(out.value, move);
      if (out.rescale) each_index(*out.rescale, move);
    }
  }
  for (TensorId& t : spec.outputs) t = TensorId(tensors[t.index()]);
}

LoopId add_loop(WorkloadSpec& spec, const std::string& name, std::int64_t extent) {
  spec.loops.push_back({unused(spec.loops, name), extent});
  return LoopId(spec.loops.size() - 1);
}

void name_loops(Operator& op) {
  op.loops.clear();
  const auto name = [&op](const Access& a) {
    for (const Affine& i : a.index)
      for (const Term& t : i.terms)
        if (std::ranges::find(op.loops, t.loop) == op.loops.end()) op.loops.push_back(t.loop);
  };
  for (const Output& o : op.outputs) name(o.target);
  std::ranges::for_each(op.inputs, name);
}

void drop_unneeded(WorkloadSpec& spec) {
  std::vector<bool> gone(spec.operators.size());
  const auto is_read = [&](TensorId t) {
    if (std::ranges::find(spec.outputs, t) != spec.outputs.end()) return true;
    for (std::size_t i = 0; i < gone.size(); ++i)
      if (!gone[i] && std::ranges::any_of(spec.operators[i].inputs,
                                          [&](const Access& a) { return a.tensor == t; }))
        return true;
    return false;
  };
  for (bool any = true; any;) {
    any = false;
    for (std::size_t i = 0; i < gone.size(); ++i) {
      if (gone[i]) continue;
      Operator& op = spec.operators[i];
      const auto unread = [&](const Output& o) { return !is_read(o.target.tensor); };
      if (std::ranges::all_of(op.outputs, unread)) {
        gone[i] = any = true;
      } else if (std::erase_if(op.outputs, unread) > 0) {
        drop_unread(op);
        any = true;
      }
    }
  }
  drop(spec, gone);
}

}  // namespace tilewright::rewrite
