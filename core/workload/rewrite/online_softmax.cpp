// Softmax without a second pass: sums of exp(x - max) are kept for the maximum so far and rescaled
// when it grows (Milakov and Gimelshein, arXiv:1805.02867; with a matrix product after it, Dao et
// al., FlashAttention, arXiv:2205.14135, Algorithm 1).
//
//   mx[m]  max= S[m,l]                       mx[m] max= S[m,l], shift[m] = before(mx) - after(mx)
//   P[m,l]    = exp(S[m,l] - mx[m])          P[m,l] = exp(S[m,l] - mx[m])
//   sum[m]   += P[m,l]                  =>   sum[m] rescaled by exp(shift[m]) += P[m,l]
//                                            alpha[m] = exp(shift[m])
//   O[m,n]   += P[m,l] * V[l,n]              O[m,n] rescaled by alpha[m] += P[m,l] * V[l,n]
//   E[m,n]    = O[m,n] / sum[m]              E[m,n] = O[m,n] / sum[m]
//
// Where the first scores of a row may be -inf (a window, a mask that is a tensor), its maximum is
// at least half the least finite number of 32 bits: no difference of two infinities is taken.
//
// What matches is the meaning, not these names or this number of operators: sums over the maximum's
// loops of anything that the maximum enters only as a factor exp(c * max).
#include <algorithm>
#include <map>
#include <optional>

#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/scaling.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

using rewrite::rate_of;
using rewrite::Scaling;
using rewrite::unused;

struct Match {
  OpId max;
  std::map<OpId, std::vector<double>> sums;  ///< accumulated over the maximum's loops: output rates
};

bool is_plain_max(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  return op.outputs.size() == 1 && op.outputs[0].combine == Combine::max && !op.running &&
         !w.reduction_loops(id).empty();
}

// Follows what depends on one maximum, producers first.
class Matcher {
 public:
  Matcher(const Workload& w, OpId max) : w_(w), over_(w.reduction_loops(max)) {
    match_.max = max;
    scaling_.of = w.op(max).outputs[0].target.tensor;
    scaling_.index = w.op(max).outputs[0].target.index;
  }

  Result<Match> run() {
    for (OpId op : w_.topological_order()) {
      if (op == match_.max) continue;
      if (auto reason = visit(op)) return *reason;
    }
    if (match_.sums.empty())
      return Reason{"nothing sums exp(x - " + w_.tensor(scaling_.of).name + ") over " + loops()};
    return match_;
  }

 private:
  std::string loops() const {
    std::vector<std::string> names;
    for (LoopId l : over_) names.push_back(w_.loop(l).name);
    return join(names);
  }
  Reason refusal(OpId op, const std::string& why) const {
    return {"operator " + w_.op(op).name + " " + why};
  }

  bool reads(OpId op, TensorId t) const {
    const auto& inputs = w_.op(op).inputs;
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const Access& a) { return a.tensor == t; });
  }
  bool reads_scaled(OpId op) const {
    return std::any_of(scaling_.scaled.begin(), scaling_.scaled.end(),
                       [&](const auto& s) { return reads(op, s.first); });
  }
  bool reads_final(OpId op) const {
    return std::any_of(scaling_.finals.begin(), scaling_.finals.end(),
                       [&](TensorId t) { return reads(op, t); });
  }
  bool reads_a_sum(OpId op) const {
    for (const auto& [sum, rates] : match_.sums)
      for (const Output& o : w_.op(sum).outputs)
        if (reads(op, o.target.tensor)) return true;
    return false;
  }

  std::optional<Reason> visit(OpId op) {
    const bool reads_max = reads(op, scaling_.of);
    const bool takes_part = reads_scaled(op);
    if (!reads_max && !takes_part && !reads_final(op)) return std::nullopt;
    const auto have = std::count_if(over_.begin(), over_.end(),
                                    [&](LoopId l) { return w_.local_index(op, l) >= 0; });
    if (have == 0 || (!reads_max && !takes_part)) {
      if (takes_part) return refusal(op, "reads one element of what is summed over " + loops());
      if (have > 0 && reads_a_sum(op))
        return refusal(op,
                       "reads a sum over " + loops() + " inside that loop, before it is complete");
      for (const Output& o : w_.op(op).outputs) scaling_.finals.insert(o.target.tensor);
      return std::nullopt;
    }
    return join_in(op);
  }

  // `op` has the maximum's loops and depends on the maximum: it works on a block of them at a time.
  std::optional<Reason> join_in(OpId op) {
    const auto reduced =
        std::count_if(over_.begin(), over_.end(), [&](LoopId l) { return w_.is_reduction(op, l); });
    const auto own = std::count_if(over_.begin(), over_.end(),
                                   [&](LoopId l) { return w_.local_index(op, l) >= 0; });
    const auto all = static_cast<std::ptrdiff_t>(over_.size());
    if (own != all || (reduced != 0 && reduced != all) || w_.op(op).running)
      return refusal(op, "has only some of the loops " + loops());
    for (const Affine& f : scaling_.index)
      for (const Term& t : f.terms)
        if (w_.local_index(op, t.loop) < 0 || w_.is_reduction(op, t.loop))
          return refusal(op, "mixes values of different maxima");
    std::vector<double> rates;
    for (const Output& o : w_.op(op).outputs) {
      const auto rate = rate_of(o.value, w_.op(op), scaling_);
      if (!rate && reads_a_sum(op))
        return refusal(op, "reads a sum over " + loops() +
                               " before the sum is complete; if it divides by the sum, put "
                               "the rewrite scale-late first, which divides later");
      if (!rate)
        return refusal(op, "depends on " + w_.tensor(scaling_.of).name +
                               " otherwise than by a factor exp(c * " +
                               w_.tensor(scaling_.of).name + ")");
      if (o.combine == Combine::product && *rate != 0.0)
        return refusal(op, "multiplies up what is to be rescaled");
      rates.push_back(*rate);
    }
    return reduced == 0 ? keep(op, rates) : accumulate(op, rates);
  }

  std::optional<Reason> keep(OpId op, const std::vector<double>& rates) {
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const Output& o = w_.op(op).outputs[i];
      if (rates[i] == 0.0) continue;
      if (w_.is_output(o.target.tensor))
        return refusal(op, "writes an output of the workload that needs the last maximum");
      scaling_.scaled[o.target.tensor] = {rates[i], o.target.index};
    }
    return std::nullopt;
  }

  std::optional<Reason> accumulate(OpId op, const std::vector<double>& rates) {
    for (const Output& o : w_.op(op).outputs) {
      if (o.combine != Combine::sum)
        return refusal(op, "reduces what is to be rescaled, but not by a sum");
      scaling_.finals.insert(o.target.tensor);
    }
    match_.sums[op] = rates;
    return std::nullopt;
  }

  const Workload& w_;
  std::span<const LoopId> over_;
  Scaling scaling_;
  Match match_;
};

Expr input(int i) { return {.kind = Expr::Kind::input, .input = i}; }
Expr call(std::string f, std::vector<Expr> args) {
  return {.kind = Expr::Kind::call, .function = std::move(f), .args = std::move(args)};
}
// What a value of that rate is multiplied by: exp(rate * (new - old)).
Expr factor(double rate, Expr shift) {
  if (rate == -1.0) return call("exp", {std::move(shift)});
  return call("exp",
              {call("mul", {{.kind = Expr::Kind::constant, .constant = -rate}, std::move(shift)})});
}

// Writes the running form of one match.
class Writer {
 public:
  Writer(const Workload& w, const Match& m) : w_(w), match_(m), spec_(w.spec()) {
    const Output& max = w.op(m.max).outputs[0];
    index_ = max.target.index;
    like_ = w.tensor(max.target.tensor);
    shift_ = add_tensor("shift");
  }

  Workload run() {
    Operator& max = spec_.operators[match_.max.index()];
    max.running = true;
    if (!rewrite::begins_with_a_number(w_, match_.max)) keep_finite(max);
    const Expr before{.kind = Expr::Kind::before, .input = 0};
    const Expr after{.kind = Expr::Kind::after, .input = 0};
    max.outputs.push_back({.target = {shift_, index_}, .value = call("sub", {before, after})});
    std::vector<Operator> operators;
    const std::vector<Operator> old = spec_.operators;
    for (std::size_t i = 0; i < old.size(); ++i) {
      Operator op = old[i];
      if (const auto sum = match_.sums.find(OpId(i)); sum != match_.sums.end())
        rescale(op, sum->second, operators);
      operators.push_back(std::move(op));
    }
    spec_.operators = std::move(operators);
    return Workload::create(std::move(spec_));
  }

 private:
  /// Of scores that are all -inf so far, the maximum is a number of 32 bits below all others.
  void keep_finite(Operator& max) {
    Output& o = max.outputs.front();
    o.value = call("max", {std::move(o.value),
                           {.kind = Expr::Kind::constant, .constant = rewrite::kBelowAllScores}});
    if (w_.is_output(o.target.tensor)) return;
    for (const TensorId t : {o.target.tensor, shift_})
      if (size_of(spec_.tensors[t.index()].dtype) < 4) spec_.tensors[t.index()].dtype = DType::f32;
    like_.dtype = spec_.tensors[shift_.index()].dtype;
  }

  TensorId add_tensor(const std::string& name) {
    Tensor t = like_;
    t.name = unused(spec_.tensors, name);
    spec_.tensors.push_back(std::move(t));
    return TensorId(spec_.tensors.size() - 1);
  }

  // A sum of one tensor works the factor out itself; where more than that is done for each element,
  // an operator of its own does it once a block.
  void rescale(Operator& op, const std::vector<double>& rates, std::vector<Operator>& before) {
    op.running = true;
    const bool simple = op.inputs.size() == 1;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      if (rates[i] == 0.0) continue;
      const TensorId read = simple ? shift_ : alpha(rates[i], before);
      const int at = static_cast<int>(op.inputs.size());
      op.inputs.push_back({read, index_});
      op.outputs[i].rescale = simple ? factor(rates[i], input(at)) : input(at);
    }
  }

  TensorId alpha(double rate, std::vector<Operator>& before) {
    if (const auto made = alphas_.find(rate); made != alphas_.end()) return made->second;
    const TensorId t = add_tensor("alpha");
    alphas_[rate] = t;
    Operator op{.name = unused(spec_.operators, "rescale"), .inputs = {{shift_, index_}}};
    // Loops in the form that Workload::create gives them.
    for (const Affine& f : index_)
      for (const Term& term : f.terms) op.loops.push_back(term.loop);
    op.outputs.push_back({.target = {t, index_}, .value = factor(rate, input(0))});
    spec_.operators.push_back(op);  // its name is taken from now on
    before.push_back(std::move(op));
    return t;
  }

  const Workload& w_;
  const Match& match_;
  WorkloadSpec spec_;
  std::vector<Affine> index_;
  Tensor like_;
  TensorId shift_;
  std::map<double, TensorId> alphas_;
};

Result<Workload> rewrite_all(const Workload& given) {
  std::optional<Workload> done;
  Reason reason{"no operator takes a maximum over a loop"};
  bool first = true;
  // Each match makes one maximum running, so this ends.
  for (bool found = true; found;) {
    found = false;
    const Workload& w = done ? *done : given;
    for (OpId op : w.topological_order()) {
      if (!is_plain_max(w, op)) continue;
      Result<Match> match = Matcher(w, op).run();
      if (match.ok()) {
        done = Writer(w, *match).run();
        found = true;
        break;
      }
      if (first) reason = {match.reason()};
      first = false;
    }
  }
  if (!done) return reason;
  return *std::move(done);
}

}  // namespace

Rewrite online_softmax() {
  return {.name = "online-softmax",
          .summary = "sums of exp(x - max) kept for the maximum so far and rescaled as it grows",
          .source = "Milakov and Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135",
          .function = rewrite_all};
}

}  // namespace tilewright
