// A running reduction in chunks that begin anew, which are joined as blocks are: what rescales a
// sum for a larger maximum rescales a chunk's sum for the maximum of all (flash-decoding: Dao,
// Haziza, Massa and Sizov, Flash-Decoding for long-context inference, 2023). Chunks are
// independent, so that attention with few queries has work for a whole machine.
//
//   R[m] max= S[m,l]; d[m] = before(R)       R_part[lo,m] max= S[lo,m,li]; d[lo,m] = before(R_part)
//     - after(R) running                       - after(R_part) running
//   P[m,l] = exp(S[m,l] - R[m])         =>   P[lo,m,li] = exp(S[lo,m,li] - R_part[lo,m])
//   Z[m] += P[m,l]                           Z_part[lo,m] += P[lo,m,li]
//     rescale(exp(d[m])) running               rescale(exp(d[lo,m])) running
//                                            R[m] max= R_part[lo,m]
//                                            Z[m] += Z_part[lo,m] * exp(R_part[lo,m] - R[m])
//
// Where chunks do not divide the loop, the last one's scores behind its end are -inf. Where masks
// may leave a chunk without a score, its maximum is half the least finite number of 32 bits: then
// its terms are zero, and so is what its sums are joined with.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/base/format.h"
#include "core/workload/expr.h"
#include "core/workload/rewrite/build.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/scaling.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

constexpr const char* kIterations = "ITERATIONS";
constexpr double kNothing = -std::numeric_limits<double>::infinity();  // of a maximum

using rewrite::index;
using rewrite::make;
using rewrite::read;
using rewrite::value;

bool looks_back(const Operator& op) {
  return std::ranges::any_of(op.outputs, [](const Output& o) { return names_outputs(o.value); });
}

/// An expression's value where inputs have these; nothing where it is not of inputs, constants,
/// indices and calls alone.
std::optional<double> value_at(const Expr& e, const std::vector<double>& inputs) {
  if (e.kind == Expr::Kind::input) return inputs[static_cast<std::size_t>(e.input)];
  if (e.kind == Expr::Kind::constant) return e.constant;
  if (e.kind == Expr::Kind::index) return 3.0;
  const ExprFunction* f = e.kind == Expr::Kind::call ? find_expr_function(e.function) : nullptr;
  if (f == nullptr) return std::nullopt;
  std::vector<double> args;
  for (const Expr& a : e.args) {
    const auto x = value_at(a, inputs);
    if (!x) return std::nullopt;
    args.push_back(*x);
  }
  return f->evaluate(args.data());
}

/// One running reduction with what is computed block by block around it.
class Splitter {
 public:
  Splitter(const Workload& w, OpId root, std::int64_t chunk) : w_(w), root_(root), spec_(w.spec()) {
    loop_.length = chunk;
  }

  Result<Workload> run() {
    if (auto why = find()) return *why;
    const Loop& whole = w_.loop(loop_.whole);
    ragged_ = whole.extent % loop_.length != 0;
    if (ragged_ && whole.extent > rewrite::kExactInF32)
      return refusal(root_, formatted("runs over {} iterations, which chunks of {} do not divide, "
                                      "and indices past {} are not exact in f32",
                                      whole.extent, loop_.length, rewrite::kExactInF32));
    loop_.chunk = rewrite::add_loop(spec_, whole.name + "o", ceil_div(whole.extent, loop_.length));
    loop_.within = rewrite::add_loop(spec_, whole.name + "i", loop_.length);
    for (const LoopId l : {loop_.chunk, loop_.within})
      if (auto why = why_no_value(spec_, l)) return Reason{*why};
    make_parts();
    for (const OpId id : chunked_) cut(spec_.operators[id.index()]);
    if (auto why = mask_the_end()) return *why;
    keep_finite();
    for (const OpId id : chunked_)
      if (auto why = join_chunks(id)) return *why;
    for (std::size_t i = 0; i < spec_.operators.size(); ++i)
      if (i >= w_.operators().size() || chunked_.contains(OpId(i)))
        rewrite::name_loops(spec_.operators[i]);
    rewrite::drop_unneeded(spec_);
    return Workload::create(std::move(spec_));
  }

 private:
  Reason refusal(OpId op, const std::string& why) const {
    return {"operator " + w_.op(op).name + " " + why};
  }
  bool has(OpId op, LoopId l) const { return w_.local_index(op, l) >= 0; }

  /// The operators that work on a chunk at a time.
  std::optional<Reason> find() {
    const Operator& root = w_.op(root_);
    if (w_.reduction_loops(root_).size() != 1) return refusal(root_, "runs over several loops");
    loop_.whole = w_.reduction_loops(root_).front();
    if (w_.loop(loop_.whole).extent <= loop_.length)
      return refusal(root_, formatted("runs over {} iterations, which are no two chunks of {}",
                                      w_.loop(loop_.whole).extent, loop_.length));
    chunked_.insert(root_);
    for (const OpId id : w_.topological_order())
      if (id != root_ && std::ranges::any_of(w_.op(id).inputs, [&](const Access& a) {
            return reads_in_chunk(id, a);
          }))
        chunked_.insert(id);
    std::set<LoopId> of_root;
    for (const Affine& i : root.outputs.front().target.index)
      for (const Term& t : i.terms) of_root.insert(t.loop);
    // What they read of all the root's loops is made in the chunk, too; other operands stay whole.
    const auto order = w_.topological_order();
    for (auto id = order.rbegin(); id != order.rend(); ++id)
      if (has(*id, loop_.whole) && !w_.is_reduction(*id, loop_.whole) && !w_.op(*id).running &&
          std::ranges::all_of(of_root, [&](LoopId l) { return has(*id, l); }) && feeds(*id))
        chunked_.insert(*id);
    for (const OpId id : chunked_)
      if (auto why = check(id)) return why;
    return std::nullopt;
  }

  /// Whether it reads something that changes from block to block.
  bool reads_in_chunk(OpId id, const Access& a) const {
    const OpId p = w_.producer(a.tensor);
    if (!p.valid() || !chunked_.contains(p)) return false;
    return !w_.is_reduction(p, loop_.whole) || has(id, loop_.whole) || of_one_block(a.tensor);
  }
  /// Neither a result of the reduction nor one along it: what was before and after a block.
  bool of_one_block(TensorId t) const {
    for (const Output& o : w_.op(w_.producer(t)).outputs)
      if (o.target.tensor == t) return o.combine == Combine::assign;
    return false;
  }
  bool feeds(OpId id) const {
    return std::ranges::any_of(w_.op(id).outputs, [&](const Output& o) {
      return std::ranges::any_of(w_.consumers(o.target.tensor),
                                 [&](OpId reader) { return chunked_.contains(reader); });
    });
  }

  std::optional<Reason> check(OpId id) const {
    if (w_.is_reduction(id, loop_.whole) && !w_.op(id).running)
      return refusal(id, "reduces what is made in chunks, and is not running");
    for (const Access& a : w_.op(id).inputs)
      if (const OpId p = w_.producer(a.tensor);
          p.valid() && p != root_ && chunked_.contains(p) && w_.is_reduction(p, loop_.whole))
        return refusal(id, "reads the sum '" + w_.tensor(a.tensor).name + "' in chunks");
    for (const Output& o : w_.op(id).outputs) {
      const TensorId t = o.target.tensor;
      if (is_integer(w_.tensor(t).dtype)) return refusal(id, "writes integers");
      const bool reduced = w_.is_reduction(id, loop_.whole);
      if (reduced && o.combine != Combine::assign) continue;  // joined
      if (w_.is_output(t)) return refusal(id, "writes an output of the workload in chunks");
      for (const OpId reader : w_.consumers(t)) {
        if (!chunked_.contains(reader))
          return refusal(reader, "reads '" + w_.tensor(t).name + "' outside of the chunks");
        for (const Access& a : w_.op(reader).inputs)
          if (a.tensor == t && a.index != o.target.index)
            return refusal(reader, "reads '" + w_.tensor(t).name + "' at another index");
      }
      for (const Affine& i : o.target.index)
        if (!reduced && std::ranges::count(i.terms, loop_.whole, &Term::loop) != 0 &&
            i.plain_loop() != loop_.whole)
          return refusal(id, "writes at an index of several loops");
    }
    return std::nullopt;
  }

  /// Tensors of a chunk: results get others to be joined, what lies between gets their dimension.
  /// Rows' values have 32 bits at least, as they are rounded once more where chunks are joined.
  void make_parts() {
    for (const OpId id : chunked_)
      for (const Output& o : w_.op(id).outputs) {
        const TensorId t = o.target.tensor;
        parts_[t] = t;
        Tensor part = w_.tensor(t);
        part.shape.insert(part.shape.begin(), spec_.loops[loop_.chunk.index()].extent);
        bool along = false;
        for (std::size_t d = 0; d < o.target.index.size(); ++d)
          if (o.target.index[d].plain_loop() == loop_.whole)
            part.shape[d + 1] = loop_.length, along = true;
        if (!along && size_of(part.dtype) < 4) part.dtype = DType::f32;
        if (o.combine != Combine::assign && w_.is_reduction(id, loop_.whole)) {
          if (!w_.is_output(t)) spec_.tensors[t.index()].dtype = part.dtype;
          part.name = rewrite::unused(spec_.tensors, part.name + "_part");
          parts_[t] = TensorId(spec_.tensors.size());
          spec_.tensors.push_back(std::move(part));
        } else {
          spec_.tensors[t.index()] = std::move(part);
        }
      }
  }

  Access cut(Access a) const {
    const auto part = parts_.find(a.tensor);
    for (Affine& i : a.index) {
      if (part == parts_.end())
        loop_.cut(i);
      else if (const auto at = std::ranges::find(i.terms, loop_.whole, &Term::loop);
               at != i.terms.end())
        at->loop = loop_.within;
    }
    if (part != parts_.end()) {
      a.tensor = part->second;
      a.index.insert(a.index.begin(), Affine{.terms = {{loop_.chunk, 1}}});
    }
    return a;
  }
  void cut(Operator& op) const {
    for (Access& a : op.inputs) a = cut(std::move(a));
    for (Output& o : op.outputs) {
      o.target = cut(std::move(o.target));
      loop_.cut(o.value);
      if (o.rescale) loop_.cut(*o.rescale);
    }
  }

  /// A maximum's value as online-softmax has it where rows may begin without a score.
  static bool is_finite(const Expr& e) {
    return e.kind == Expr::Kind::call && e.function == "max" &&
           e.args[1] == value(rewrite::kBelowAllScores);
  }

  /// Scores behind the loop's end, in the last chunk, are -inf.
  std::optional<Reason> mask_the_end() {
    if (!ragged_) return std::nullopt;
    const Operator& root = w_.op(root_);
    const Output& maximum = root.outputs.front();
    const Expr& of = is_finite(maximum.value) ? maximum.value.args[0] : maximum.value;
    if (maximum.combine != Combine::max || of.kind != Expr::Kind::input)
      return refusal(root_, "takes no maximum of a tensor, so that chunks must divide its loop");
    const TensorId scores = root.inputs[static_cast<std::size_t>(of.input)].tensor;
    if (!parts_.contains(scores))
      return refusal(root_, "takes the maximum of '" + w_.tensor(scores).name +
                                "', which is whole: chunks must divide its loop");
    if (auto why = ends_in_zeros(scores)) return why;
    const auto within = [&](Expr score) {
      return loop_.until(w_.loop(loop_.whole).extent, std::move(score), kNothing);
    };
    const OpId maker = w_.producer(scores);
    Operator& op = spec_.operators[maker.index()];
    if (op.outputs.size() == 1 && op.outputs.front().combine == Combine::assign) {
      op.outputs.front().value = within(std::move(op.outputs.front().value));
      return std::nullopt;
    }
    Tensor masked = spec_.tensors[scores.index()];
    masked.name = rewrite::unused(spec_.tensors, masked.name + "_within");
    const TensorId to(spec_.tensors.size());
    spec_.tensors.push_back(std::move(masked));
    for (const OpId id : chunked_)
      for (Access& a : spec_.operators[id.index()].inputs)
        if (a.tensor == scores) a.tensor = to;
    Operator edge{.name = rewrite::unused(spec_.operators, w_.op(root_).name + "_end")};
    for (const Output& o : op.outputs)
      if (o.target.tensor == scores) edge.inputs = {o.target};
    Access target = edge.inputs.front();
    target.tensor = to;
    edge.outputs = {{.target = std::move(target), .value = within(read(0))}};
    spec_.operators.push_back(std::move(edge));
    return std::nullopt;
  }

  /// Nothing, where scores of -inf add nothing to any sum.
  std::optional<Reason> ends_in_zeros(TensorId scores) const {
    std::set<TensorId> zeros;
    for (const OpId id : w_.topological_order()) {
      if (id == root_ || !chunked_.contains(id) || !has(id, loop_.whole)) continue;
      const Operator& op = w_.op(id);
      bool concerned = false;
      for (const Access& a : op.inputs) concerned |= a.tensor == scores || zeros.contains(a.tensor);
      const bool sums = w_.is_reduction(id, loop_.whole);
      if (!concerned && !sums) continue;
      for (const Output& o : op.outputs) {
        bool zero = concerned && (!sums || o.combine == Combine::sum);
        for (const double other : {0.7, -1.3}) {
          std::vector<double> inputs;
          for (const Access& a : op.inputs)
            inputs.push_back(a.tensor == scores         ? kNothing
                             : zeros.contains(a.tensor) ? 0.0
                                                        : other);
          zero = zero && value_at(o.value, inputs) == 0.0;
        }
        if (!zero)
          return refusal(id,
                         "is not zero for a score of -inf, so that chunks must divide the loop");
        if (!sums) zeros.insert(o.target.tensor);
      }
    }
    return std::nullopt;
  }

  /// The maximum of a chunk that may have nothing but -inf is a finite number below all scores.
  void keep_finite() {
    const Output& given = w_.op(root_).outputs.front();
    if (given.combine != Combine::max || never_all_masked()) return;
    Output& o = spec_.operators[root_.index()].outputs.front();
    if (is_finite(o.value)) return;
    o.value = make("max", {std::move(o.value), value(rewrite::kBelowAllScores)});
  }
  /// Scores are products, scaled by constants alone.
  bool never_all_masked() const {
    for (const OpId id : chunked_) {
      if (!has(id, loop_.whole) || w_.is_reduction(id, loop_.whole) || w_.is_contraction(id))
        continue;
      const Operator& op = w_.op(id);
      const bool of_maximum = std::ranges::any_of(op.inputs, [&](const Access& a) {
        const OpId p = w_.producer(a.tensor);
        return p.valid() && chunked_.contains(p) && w_.is_reduction(p, loop_.whole);
      });
      if (of_maximum) continue;
      for (const Output& o : op.outputs)
        if (op.inputs.size() != 1 || !scales(o.value)) return false;
    }
    // Scores that are read as they are may be anything.
    return std::ranges::all_of(w_.op(root_).inputs,
                               [&](const Access& a) { return parts_.contains(a.tensor); });
  }
  static bool scales(const Expr& e) {
    if (e.kind == Expr::Kind::constant) return std::isfinite(e.constant);
    if (e.kind == Expr::Kind::call && (e.function == "mul" || e.function == "div"))
      return std::ranges::all_of(e.args, scales);
    return e.kind == Expr::Kind::input;
  }

  /// The results of all chunks from those of each.
  std::optional<Reason> join_chunks(OpId id) {
    if (!w_.is_reduction(id, loop_.whole)) return std::nullopt;
    const Operator& op = w_.op(id);
    for (const Output& o : op.outputs) {
      if (o.combine == Combine::assign) continue;
      Operator join{.name = rewrite::unused(spec_.operators, op.name + "_join")};
      join.inputs = {cut(o.target)};
      Expr joined = read(0);
      if (o.rescale) {
        auto by = last_block(*o.rescale, op, join.inputs);
        if (!by) return refusal(id, "is rescaled by what is not made of its maximum alone");
        joined = make("mul", {std::move(joined), *std::move(by)});
      }
      join.outputs = {{.target = o.target, .value = std::move(joined), .combine = o.combine}};
      spec_.operators.push_back(std::move(join));
    }
    return std::nullopt;
  }

  /// What a chunk is rescaled by: the expression with its result as it was before, and that of all
  /// chunks as it is after the last block.
  std::optional<Expr> last_block(const Expr& e, const Operator& of,
                                 std::vector<Access>& inputs) const {
    const auto add = [&](Access a) {
      const auto at = std::ranges::find(inputs, a) - inputs.begin();
      if (at == std::ssize(inputs)) inputs.push_back(std::move(a));
      return read(static_cast<std::size_t>(at));
    };
    switch (e.kind) {
      case Expr::Kind::before:
        return add(cut(of.outputs[static_cast<std::size_t>(e.input)].target));
      case Expr::Kind::after:
        return add(of.outputs[static_cast<std::size_t>(e.input)].target);
      case Expr::Kind::input: {
        const Access& a = of.inputs[static_cast<std::size_t>(e.input)];
        if (!parts_.contains(a.tensor)) return is_gather(a) ? std::nullopt : std::optional(add(a));
        const Operator& maker = w_.op(w_.producer(a.tensor));
        for (const Output& o : maker.outputs)
          if (o.target.tensor == a.tensor && o.combine == Combine::assign)
            return last_block(o.value, maker, inputs);
        return std::nullopt;
      }
      default: {
        Expr r = e;
        for (Expr& a : r.args) {
          auto x = last_block(a, of, inputs);
          if (!x) return std::nullopt;
          a = *std::move(x);
        }
        return r;
      }
    }
  }

  const Workload& w_;
  OpId root_;
  WorkloadSpec spec_;
  rewrite::CutLoop loop_;
  bool ragged_ = false;
  std::set<OpId> chunked_;
  std::map<TensorId, TensorId> parts_;  ///< by what an operator of a chunk writes
};

Result<Workload> split_all(const Workload& given, std::string_view text) {
  std::int64_t chunk = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chunk);
  if (error != std::errc() || end != text.data() + text.size() || chunk < 1)
    throw InputError({.field = "rewrite",
                      .value = "'" + std::string(text) + "'",
                      .problem = "is no number of iterations",
                      .accepted = "1 or more"});
  Workload w = given;
  bool any = false;
  Reason reason{"no operator looks back at a running reduction"};
  for (const Operator& op : given.operators()) {
    if (!op.running || !looks_back(op)) continue;
    Result<Workload> split = Splitter(w, *w.find_op(op.name), chunk).run();
    if (split)
      w = *std::move(split), any = true;
    else
      reason = {split.reason()};
  }
  if (!any) return reason;
  return w;
}

}  // namespace

Rewrite split_running() {
  return {
      .name = "split-running",
      .summary = "running reductions in chunks of so many iterations, which are joined afterwards",
      .source = "Dao, Haziza, Massa and Sizov, Flash-Decoding for long-context inference, 2023",
      .argument = kIterations,
      .with = split_all};
}

}  // namespace tilewright
