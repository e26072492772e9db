// A factor that a sum does not run over is applied behind the sum, once for each of its results:
// softmax as it is written in textbooks divides before the product with V, FlashAttention after it
// (Dao et al., arXiv:2205.14135, section 3.1), which `online-softmax` needs.
//
//   W[m,l]  = P[m,l] / sum[m]           O_unscaled[m,n] += P[m,l] * V[l,n]
//   O[m,n] += W[m,l] * V[l,n]      =>   O[m,n]           = O_unscaled[m,n] / sum[m]
//
// Between the factor and the sum there may be element-wise operators that are linear in what is
// scaled (a dropout's mask). What is stored in between is no longer scaled: in 16 bits it must not
// become too large.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/workload/access.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

/// An operator's value as `rest` with the factor applied: rest / factor, or rest * factor.
struct Split {
  Expr rest, factor;
  bool divides = false;
};

bool has_input(const Expr& e) {
  return e.kind == Expr::Kind::input || std::ranges::any_of(e.args, has_input);
}
/// Only inputs, constants and calls.
bool is_plain(const Expr& e) {
  return (e.kind == Expr::Kind::input || e.kind == Expr::Kind::constant ||
          e.kind == Expr::Kind::call) &&
         std::ranges::all_of(e.args, is_plain);
}

std::vector<Split> splits(const Expr& e) {
  if (e.kind != Expr::Kind::call || (e.function != "div" && e.function != "mul")) return {};
  std::vector<Split> all{{e.args[0], e.args[1], e.function == "div"}};
  if (e.function == "mul") all.push_back({e.args[1], e.args[0], false});
  std::erase_if(all, [](const Split& s) {
    return !has_input(s.factor) || !has_input(s.rest) || !is_plain(s.factor);
  });
  return all;
}

/// Whether a multiple of the input makes the same multiple of the expression.
bool is_linear(const Expr& e, int input) {
  if (e.kind == Expr::Kind::input) return e.input == input;
  if (e.kind != Expr::Kind::call || rewrite::uses_of(e, input) != 1) return false;
  if (e.function == "neg") return is_linear(e.args[0], input);
  if (e.function == "div") return is_linear(e.args[0], input);
  return e.function == "mul" && (is_linear(e.args[0], input) || is_linear(e.args[1], input));
}

/// The index with affine forms in the place of loops.
Affine composed(const Affine& f, const std::map<LoopId, Affine>& forms) {
  Affine r{.offset = f.offset};
  for (const Term& t : f.terms) {
    const Affine& form = forms.at(t.loop);
    r.offset += t.coefficient * form.offset;
    for (const Term& u : form.terms) {
      const auto same = std::ranges::find(r.terms, u.loop, &Term::loop);
      if (same != r.terms.end())
        same->coefficient += t.coefficient * u.coefficient;
      else
        r.terms.push_back({u.loop, t.coefficient * u.coefficient});
    }
  }
  std::erase_if(r.terms, [](const Term& t) { return t.coefficient == 0; });
  return r;
}

/// One factor, and the sums that it can be applied behind.
class Late {
 public:
  Late(const Workload& w, OpId from, Split split) : w_(w), from_(from), split_(std::move(split)) {}

  /// Why it cannot move, or nothing.
  std::optional<std::string> find() {
    const Operator& op = w_.op(from_);
    std::vector<Access> factor = op.inputs;
    for (std::size_t i = 0; i < factor.size(); ++i)
      if (rewrite::uses_of(split_.factor, static_cast<int>(i)) == 0) factor[i].index.clear();
    for (const Access& a : factor)
      if (is_gather(a)) return "its factor is looked up";
    return follow(from_, factor);
  }

  Workload write() {
    WorkloadSpec spec = w_.spec();
    leave_out_the_factor(spec);
    for (const auto& [sum, factor] : sums_) apply_behind(spec, sum, factor);
    rewrite::drop_unneeded(spec);
    return Workload::create(std::move(spec));
  }

  /// Names of the operators that apply it now.
  const std::vector<std::string>& made() const { return made_; }

 private:
  /// Everyone who reads what `id` writes; `factor` is indexed by loops of `id`.
  std::optional<std::string> follow(OpId id, const std::vector<Access>& factor) {
    const Access& written = w_.op(id).outputs[0].target;
    const std::string name = "'" + w_.tensor(written.tensor).name + "'";
    const DType type = w_.tensor(written.tensor).dtype;
    if (type == DType::i8 || type == DType::i32) return name + " is of integers";
    if (w_.is_output(written.tensor)) return name + " is an output of the workload";
    if (w_.consumers(written.tensor).empty()) return "nothing reads " + name;
    for (OpId reader : w_.consumers(written.tensor))
      if (auto reason = join_in(id, reader, factor)) return reason;
    return std::nullopt;
  }

  std::optional<std::string> join_in(OpId id, OpId reader, const std::vector<Access>& factor) {
    const Operator& op = w_.op(reader);
    const std::string who = "operator " + op.name;
    const TensorId t = w_.op(id).outputs[0].target.tensor;
    const auto reads = std::ranges::count(op.inputs, t, &Access::tensor);
    const auto input = std::ranges::find(op.inputs, t, &Access::tensor) - op.inputs.begin();
    if (!seen_.insert(reader).second || reads != 1 || op.outputs.size() != 1 || op.running ||
        !is_linear(op.outputs[0].value, static_cast<int>(input)))
      return who + " is not linear in it";
    const Access& read = op.inputs[static_cast<std::size_t>(input)];
    if (is_gather(read)) return who + " looks it up";
    if (!inside(op, read)) return who + " reads it outside of it, where it is zero";
    const auto here = moved(w_.op(id), read, factor);
    if (!here) return who + " reads it at an index that it is not written at";
    const DType type = w_.tensor(op.outputs[0].target.tensor).dtype;
    if (type == DType::i8 || type == DType::i32) return who + " writes integers";
    const bool sums = op.outputs[0].combine == Combine::sum;
    const bool kept = std::ranges::none_of(*here, [&](const Access& a) {
      return std::ranges::any_of(w_.reduction_loops(reader),
                                 [&](LoopId l) { return indexes(a, l); });
    });
    if (sums && !w_.reduction_loops(reader).empty()) {
      if (!kept) return who + " sums over a loop that the factor depends on";
      sums_.emplace_back(reader, *here);
      return std::nullopt;
    }
    if (op.outputs[0].combine != Combine::assign || !w_.reduction_loops(reader).empty())
      return who + " reduces it, but not by a sum";
    return follow(reader, *here);
  }

  bool inside(const Operator& op, const Access& read) const {
    std::vector<Interval> whole;
    for (LoopId l : op.loops) whole.push_back({0, w_.loop(l).extent});
    for (std::size_t d = 0; d < read.index.size(); ++d)
      if (!contains({0, w_.tensor(read.tensor).shape[d]}, footprint(op, read.index[d], whole)))
        return false;
    return true;
  }

  /// The factor's accesses by the reader's loops.
  static std::optional<std::vector<Access>> moved(const Operator& producer, const Access& read,
                                                  const std::vector<Access>& factor) {
    std::map<LoopId, Affine> forms;
    const Access& written = producer.outputs[0].target;
    for (std::size_t d = 0; d < written.index.size(); ++d)
      if (const auto loop = written.index[d].plain_loop()) forms[*loop] = read.index[d];
    std::vector<Access> here = factor;
    for (Access& a : here)
      for (Affine& f : a.index) {
        if (std::ranges::any_of(f.terms, [&](const Term& t) { return !forms.contains(t.loop); }))
          return std::nullopt;
        f = composed(f, forms);
      }
    return here;
  }

  /// What is left is computed as before; where that is nothing but an input, it is read directly.
  void leave_out_the_factor(WorkloadSpec& spec) {
    Operator rest = spec.operators[from_.index()];
    rest.outputs[0].value = split_.rest;
    const TensorId t = rest.outputs[0].target.tensor;
    bool direct = split_.rest.kind == Expr::Kind::input;
    std::map<OpId, Operator> readers;
    for (OpId reader : w_.consumers(t)) {
      if (!direct) break;
      const Operator& op = w_.op(reader);
      const auto input = std::ranges::find(op.inputs, t, &Access::tensor) - op.inputs.begin();
      const Result<Operator> now =
          rewrite::substitute(spec, op, static_cast<int>(input), rest, rest.outputs[0]);
      direct = now.ok();
      if (direct) readers[reader] = *now;
    }
    if (direct)
      for (auto& [id, op] : readers) spec.operators[id.index()] = std::move(op);
    rewrite::drop_unread(rest);
    spec.operators[from_.index()] = std::move(rest);
  }

  void apply_behind(WorkloadSpec& spec, OpId sum, const std::vector<Access>& factor) {
    Operator& op = spec.operators[sum.index()];
    const Access target = op.outputs[0].target;
    Tensor unscaled = spec.tensors[target.tensor.index()];
    unscaled.name = rewrite::unused(spec.tensors, unscaled.name + "_unscaled");
    op.outputs[0].target.tensor = TensorId(spec.tensors.size());
    Operator apply{.name = rewrite::unused(spec.operators, op.name + "_scale")};
    for (const Affine& f : target.index)
      for (const Term& t : f.terms) apply.loops.push_back(t.loop);
    apply.inputs = {op.outputs[0].target};
    spec.tensors.push_back(std::move(unscaled));
    const Expr value{.kind = Expr::Kind::input, .input = 0};
    apply.outputs.push_back({.target = target,
                             .value = {.kind = Expr::Kind::call,
                                       .function = split_.divides ? "div" : "mul",
                                       .args = {value, of(split_.factor, factor, apply.inputs)}}});
    made_.push_back(apply.name);
    spec.operators.push_back(std::move(apply));
  }

  /// The factor's expression with its inputs among `inputs`.
  static Expr of(const Expr& e, const std::vector<Access>& factor, std::vector<Access>& inputs) {
    Expr r = e;
    if (e.kind == Expr::Kind::input) {
      const Access& a = factor[static_cast<std::size_t>(e.input)];
      const auto at = std::ranges::find(inputs, a) - inputs.begin();
      if (at == std::ssize(inputs)) inputs.push_back(a);
      r.input = static_cast<int>(at);
    }
    for (std::size_t i = 0; i < e.args.size(); ++i) r.args[i] = of(e.args[i], factor, inputs);
    return r;
  }

  const Workload& w_;
  OpId from_;
  Split split_;
  std::set<OpId> seen_;
  std::vector<std::pair<OpId, std::vector<Access>>> sums_;
  std::vector<std::string> made_;
};

Result<Workload> rewrite_all(const Workload& given) {
  std::optional<Workload> done;
  std::string reason = "no operator divides or multiplies by a value";
  bool first = true;
  std::set<std::string> made;  // stay behind the sum that they were moved behind
  for (bool found = true; found;) {
    found = false;
    const Workload& w = done ? *done : given;
    for (OpId id : w.topological_order()) {
      const Operator& op = w.op(id);
      if (made.contains(op.name) || op.outputs.size() != 1 || op.running ||
          op.outputs[0].combine != Combine::assign)
        continue;
      for (Split& s : splits(op.outputs[0].value)) {
        Late late(w, id, std::move(s));
        if (const auto why = late.find()) {
          if (first) reason = "the factor of operator " + op.name + " stays: " + *why;
          first = false;
          continue;
        }
        done = late.write();
        made.insert(late.made().begin(), late.made().end());
        found = true;
        break;
      }
      if (found) break;
    }
  }
  if (!done) return Reason{reason};
  return *std::move(done);
}

}  // namespace

Rewrite scale_late() {
  return {.name = "scale-late",
          .summary =
              "divisions and multiplications by what a later sum does not run over, behind "
              "the sum",
          .source = "Dao et al., arXiv:2205.14135, section 3.1",
          .function = rewrite_all};
}

}  // namespace tilewright
