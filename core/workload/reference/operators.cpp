#include "core/workload/reference/operators.h"

#include <algorithm>

#include "core/workload/expr.h"
#include "core/workload/reference/gather.h"
#include "core/workload/reference/sweep.h"

namespace tilewright::reference {
namespace {

Target target_of(const Workload& w, const Output& o, TensorValues& values) {
  const TensorId t = o.target.tensor;
  return {&o.target, w.tensor(t).shape, values[t.index()].data()};
}

// The operator's inputs, then for each output its values `before` and `after` (Program's order).
std::vector<Source> sources_of(const Workload& w, const Operator& op, const TensorValues& values,
                               const TensorValues& before, const std::vector<Gathered>& gathered) {
  std::vector<Source> sources;
  for (const Access& a : op.inputs)
    sources.push_back({&a, w.tensor(a.tensor).shape, values[a.tensor.index()].data()});
  for (std::size_t i = 0; i < gathered.size(); ++i)
    if (!gathered[i].data.empty())
      sources[i] = {&gathered[i].access, gathered[i].shape, gathered[i].data.data()};
  for (std::size_t j = 0; j < before.size(); ++j) {
    const Access& a = op.outputs[j].target;
    sources.push_back({&a, w.tensor(a.tensor).shape, before[j].data()});
    sources.push_back({&a, w.tensor(a.tensor).shape, values[a.tensor.index()].data()});
  }
  return sources;
}

}  // namespace

void run_operator(const Workload& w, OpId id, std::span<const Interval> ranges, bool initialise,
                  TensorValues& values, int threads) {
  const Operator& op = w.op(id);
  const int inputs = static_cast<int>(op.inputs.size());
  const Domain all{op.loops, {ranges.begin(), ranges.end()}};
  Domain once = all;  // each element of the outputs once: reductions at their low end
  for (std::size_t i = 0; i < op.loops.size(); ++i)
    if (w.is_reduction(id, op.loops[i])) once.ranges[i].hi = once.ranges[i].lo + 1;

  if (initialise) {
    for (const Output& o : op.outputs)
      if (o.combine != Combine::assign)
        sweep(once, Program::of_constant(identity_of(o.combine)), {}, target_of(w, o, values),
              Combine::assign, threads);
  }
  const bool looks_back = std::any_of(op.outputs.begin(), op.outputs.end(),
                                      [](const Output& o) { return names_outputs(o.value); });
  TensorValues before;  // by output
  if (looks_back)
    for (const Output& o : op.outputs) before.push_back(values[o.target.tensor.index()]);
  std::vector<Gathered> gathered;  // by input; empty data where it is affine
  for (int i = 0; w.gathers(id) && i < inputs; ++i)
    gathered.push_back(is_gather(op.inputs[static_cast<std::size_t>(i)])
                           ? gather(w, op, i, ranges, values, threads)
                           : Gathered{});
  const std::vector<Source> sources = sources_of(w, op, values, before, gathered);

  for (const Output& o : op.outputs)
    if (o.rescale && !initialise)
      sweep(once, Program(*o.rescale, inputs), sources, target_of(w, o, values), Combine::product,
            threads);
  if (!run_contraction(w, id, ranges, values, threads)) {
    for (const Output& o : op.outputs)
      if (!names_outputs(o.value))
        sweep(all, Program(o.value, inputs), sources, target_of(w, o, values), o.combine, threads);
  }
  // Last, since they read what the others have become.
  for (const Output& o : op.outputs)
    if (names_outputs(o.value))
      sweep(once, Program(o.value, inputs), sources, target_of(w, o, values), o.combine, threads);
}

bool indexed_along(const Operator& op, const Access& a, LoopId loop) {
  if (is_gather(a)) {
    const std::vector<int> loops = gather_loops(op, a);
    return std::any_of(loops.begin(), loops.end(),
                       [&](int l) { return op.loops[static_cast<std::size_t>(l)] == loop; });
  }
  for (const Affine& f : a.index)
    for (const Term& t : f.terms)
      if (t.loop == loop && t.coefficient != 0) return true;
  return false;
}

bool depends_on(const Operator& op, const Expr& e, LoopId loop) {
  if (e.kind == Expr::Kind::index) return e.loop == loop;
  if (e.kind == Expr::Kind::input)
    return indexed_along(op, op.inputs[static_cast<std::size_t>(e.input)], loop);
  return std::ranges::any_of(e.args, [&](const Expr& a) { return depends_on(op, a, loop); });
}

double repeats(const Workload& w, OpId id, const Expr& e) {
  if (e.kind == Expr::Kind::constant) return 1;  // a mask's
  const auto is_constant = [](const Expr& x) { return x.kind == Expr::Kind::constant; };
  if (e.kind == Expr::Kind::call) {
    const auto of = [&](std::size_t i) { return repeats(w, id, e.args[i]); };
    if (e.function == "add" || e.function == "sub") return std::max(of(0), of(1));
    if (e.function == "neg") return of(0);
    if (e.function == "mul" && is_constant(e.args[0])) return of(1);
    if ((e.function == "mul" || e.function == "div") && is_constant(e.args[1])) return of(0);
  }
  double n = 1;
  for (LoopId l : w.reduction_loops(id))
    if (!depends_on(w.op(id), e, l)) n *= static_cast<double>(w.loop(l).extent);
  return n;
}

}  // namespace tilewright::reference
