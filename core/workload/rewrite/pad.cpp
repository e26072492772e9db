// Rows that begin at no multiple of 16 bytes, as copies whose rows do, padded with zeros: hardware
// that copies boxes or whole vectors reads those. What torch.compile does to products of odd sizes.
//
//   C[m,l] += A[m,k] * B[k,l]   pad:k;l   Ap[m,kp] = A[m,kp]
//   E[m,n] += C[m,l] * D[l,n]     =>      Bp[kp,lp] = B[kp,lp]
//                                         C[m,lp] += Ap[m,kp] * Bp[kp,lp]
//                                         E[m,n] += C[m,lp] * D[lp,n]
//
// An index outside of a tensor reads zero, so copies have zeros behind their rows, and sums over a
// padded loop add zeros. A sum over a loop along which one operand is no copy keeps the loop as it
// is: Ap[m,k] has rows of kp elements then. Results between operators get padded rows for nothing.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

constexpr const char* kLoops = "LOOP;LOOP";
constexpr std::int64_t kRowBytes = 16;

/// The value of an expression of zeros; none where it is not of inputs, constants and calls alone.
std::optional<double> at_zeros(const Expr& e) {
  if (e.kind == Expr::Kind::input) return 0.0;
  if (e.kind == Expr::Kind::constant) return e.constant;
  const ExprFunction* f = e.kind == Expr::Kind::call ? find_expr_function(e.function) : nullptr;
  if (f == nullptr) return std::nullopt;
  std::vector<double> args;
  for (const Expr& a : e.args) {
    const auto value = at_zeros(a);
    if (!value) return std::nullopt;
    args.push_back(*value);
  }
  return f->evaluate(args.data());
}

/// Elements of 16 bytes, of the smallest type of a tensor with rows along the loop.
std::int64_t row_elements(const Workload& w, LoopId l) {
  std::int64_t most = 1;
  const auto look = [&](const Access& a) {
    if (!a.index.empty() && a.index.back().plain_loop() == l)
      most = std::max(most, kRowBytes / size_of(w.tensor(a.tensor).dtype));
  };
  for (const Operator& op : w.operators()) {
    for (const Access& a : op.inputs) look(a);
    for (const Output& o : op.outputs) look(o.target);
  }
  return most;
}

class Padding {
 public:
  Padding(const Workload& w, std::vector<LoopId> loops) : w_(w), spec_(w.spec()) {
    for (const LoopId l : loops) {
      Loop wide{rewrite::unused(spec_.loops, w.loop(l).name + "_padded"),
                round_up(w.loop(l).extent, row_elements(w, l))};
      padded_[l] = LoopId(spec_.loops.size());
      spec_.loops.push_back(std::move(wide));
    }
  }

  Result<Workload> run() {
    for (const OpId id : w_.topological_order()) widen(id);
    std::vector<Operator> all;
    for (std::size_t i = 0; i < spec_.operators.size(); ++i) {
      if (w_.is_contraction(OpId(i)))
        for (Access& a : spec_.operators[i].inputs) read_copy(a, all);
      all.push_back(std::move(spec_.operators[i]));
    }
    if (copies_.empty() && wide_.empty())
      return Reason{"no product reads rows along these loops, and no result between has them"};
    spec_.operators = std::move(all);
    rewrite::drop(spec_, std::vector<bool>(spec_.operators.size(), false));
    return Workload::create(std::move(spec_));
  }

 private:
  LoopId padded(LoopId l) const {
    const auto at = padded_.find(l);
    return at == padded_.end() ? l : at->second;
  }

  /// Every access with the loop has it alone in a dimension that it fills, as written.
  bool fills(const Access& a, LoopId l) const {
    for (std::size_t d = 0; d < a.index.size(); ++d)
      if (std::ranges::any_of(a.index[d].terms, [l](const Term& t) { return t.loop == l; }) &&
          (a.index[d].plain_loop() != l || w_.tensor(a.tensor).shape[d] != w_.loop(l).extent))
        return false;
    return true;
  }
  static bool has(const Access& a, LoopId l) {
    return std::ranges::any_of(a.index, [l](const Affine& i) { return i.plain_loop() == l; });
  }

  /// Whether each reader has a whole loop in each dimension, and so reads nothing outside of it.
  bool read_within(TensorId t) const {
    for (const OpId reader : w_.consumers(t))
      for (const Access& a : w_.op(reader).inputs)
        for (std::size_t d = 0; a.tensor == t && d < a.index.size(); ++d) {
          const auto loop = a.index[d].plain_loop();
          if (!loop || w_.loop(*loop).extent != w_.tensor(t).shape[d]) return false;
        }
    return true;
  }

  /// Whether the tensor is zero outside of the loop's old range: all that is not written wider is.
  bool zero(TensorId t, LoopId l) const {
    const auto at = wide_.find({t, l});
    return at == wide_.end() || at->second;
  }

  /// The operator's loops that are padded, and what it writes with them.
  void widen(OpId id) {
    const Operator& op = w_.op(id);
    if (op.running || op.outputs.size() != 1) return;
    const Output& out = op.outputs.front();
    const bool product = w_.is_contraction(id);
    for (const auto& [l, to] : padded_) {
      if (w_.local_index(id, l) < 0 || !fills(out.target, l) ||
          !std::ranges::all_of(op.inputs, [&, x = l](const Access& a) { return fills(a, x); }))
        continue;
      const bool zeros = std::ranges::any_of(
          op.inputs, [&, x = l](const Access& a) { return has(a, x) && zero(a.tensor, x); });
      if (w_.is_reduction(id, l)) {
        // A longer loop would read behind the end of an operand that stays as it is.
        if (product && zeros && std::ranges::all_of(op.inputs, [&, x = l](const Access& a) {
              return !has(a, x) || wide_.contains({a.tensor, x}) || is_copied(a);
            }))
          rename(id, l, to);
        continue;
      }
      if (w_.is_output(out.target.tensor) || !read_within(out.target.tensor)) continue;
      if (product) {
        wide_[{out.target.tensor, l}] = zeros;
      } else {
        const auto value = at_zeros(out.value);
        if (out.combine != Combine::assign || !value || !std::isfinite(*value) ||
            !std::ranges::all_of(
                op.inputs, [&, x = l](const Access& a) { return has(a, x) && zero(a.tensor, x); }))
          continue;
        wide_[{out.target.tensor, l}] = *value == 0;
      }
      for (std::size_t d = 0; d < out.target.index.size(); ++d)
        if (out.target.index[d].plain_loop() == l)
          spec_.tensors[out.target.tensor.index()].shape[d] = spec_.loops[to.index()].extent;
      rename(id, l, to);
    }
  }

  void rename(OpId id, LoopId from, LoopId to) {
    Operator& op = spec_.operators[id.index()];
    std::ranges::replace(op.loops, from, to);
    const auto in = [&](Access& a) {
      for (Affine& i : a.index)
        for (Term& t : i.terms)
          if (t.loop == from) t.loop = to;
    };
    for (Access& a : op.inputs) in(a);
    for (Output& o : op.outputs) in(o.target);
  }

  /// The loop before it was padded.
  LoopId original(LoopId l) const {
    for (const auto& [from, to] : padded_)
      if (to == l) return from;
    return l;
  }

  /// The loops of a product's operand that is read from a copy, as they were: its rows run along a
  /// padded loop, and its writer has not made them longer. Of others none.
  std::vector<LoopId> loops_of_copy(const Access& a) const {
    if (a.index.size() < 2) return {};
    std::vector<LoopId> loops;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      const auto loop = a.index[d].plain_loop();
      if (!loop || std::ranges::find(loops, original(*loop)) != loops.end()) return {};
      loops.push_back(original(*loop));
      if (w_.tensor(a.tensor).shape[d] != w_.loop(loops.back()).extent) return {};
    }
    if (!padded_.contains(loops.back()) || wide_.contains({a.tensor, loops.back()})) return {};
    return loops;
  }
  bool is_copied(const Access& a) const { return !loops_of_copy(a).empty(); }

  void read_copy(Access& a, std::vector<Operator>& before) {
    const std::vector<LoopId> loops = loops_of_copy(a);
    if (loops.empty()) return;
    const auto [at, is_new] =
        copies_.try_emplace({a.tensor, loops}, TensorId(spec_.tensors.size()));
    if (is_new) {
      Tensor copy = w_.tensor(a.tensor);
      copy.name = rewrite::unused(spec_.tensors, copy.name + "_padded");
      copy.range = 1, copy.least = {}, copy.values = {};
      std::vector<Operator> named(w_.operators().begin(), w_.operators().end());
      named.insert(named.end(), before.begin(), before.end());
      Operator op{.name = rewrite::unused(named, "pad_" + w_.tensor(a.tensor).name)};
      Access read{.tensor = a.tensor}, written{.tensor = at->second};
      for (std::size_t d = 0; d < loops.size(); ++d) {
        const LoopId l = padded(loops[d]);
        op.loops.push_back(l);
        copy.shape[d] = spec_.loops[l.index()].extent;
        read.index.push_back({.terms = {{l}}});
        written.index.push_back({.terms = {{l}}});
      }
      op.inputs.push_back(std::move(read));
      op.outputs.push_back(
          {.target = std::move(written), .value = {.kind = Expr::Kind::input, .input = 0}});
      spec_.tensors.push_back(std::move(copy));
      before.push_back(std::move(op));
    }
    a.tensor = at->second;
  }

  const Workload& w_;
  WorkloadSpec spec_;
  std::map<LoopId, LoopId> padded_;
  std::map<std::pair<TensorId, LoopId>, bool> wide_;  ///< written wider; whether zeros are there
  std::map<std::pair<TensorId, std::vector<LoopId>>, TensorId> copies_;
};

Result<Workload> with_padding(const Workload& w, std::string_view text) {
  std::vector<LoopId> loops;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(';', from), text.size());
    const std::string_view name = text.substr(from, to - from);
    const auto loop = w.find_loop(name);
    if (!loop)
      throw InputError({.field = "rewrite",
                        .value = "'" + std::string(name) + "'",
                        .problem = "is not a loop of " + w.name(),
                        .accepted = kLoops});
    if (w.loop(*loop).extent % row_elements(w, *loop) == 0)
      return Reason{
          formatted("rows along loop {} are whole pieces of 16 bytes", w.loop(*loop).name)};
    loops.push_back(*loop);
    from = to + 1;
  }
  return Padding(w, std::move(loops)).run();
}

}  // namespace

std::vector<LoopId> loops_of_odd_rows(const Workload& w) {
  std::vector<LoopId> loops;
  const auto look = [&](const Access& a) {
    const auto loop = a.index.size() < 2 ? std::nullopt : a.index.back().plain_loop();
    if (loop && w.loop(*loop).extent % row_elements(w, *loop) != 0 &&
        std::ranges::find(loops, *loop) == loops.end())
      loops.push_back(*loop);
  };
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (w.is_contraction(OpId(i)))
      for (const Access& a : w.op(OpId(i)).inputs) look(a);
  return loops;
}

Rewrite pad() {
  return {.name = "pad",
          .summary =
              "products read rows along these loops in copies that begin at multiples of 16 bytes, "
              "zeros behind them; results between operators are written so",
          .source = "PyTorch's torch.compile (torch/_inductor/fx_passes/pad_mm.py)",
          .argument = kLoops,
          .with = with_padding};
}

}  // namespace tilewright
