// Small operands that are read across the result's rows, from a copy that lies along them.
//
//   y[t,c] += x[t+r,c] * k[c,r]     =>     k_rows[r,c]  = k[c,r]
//                                          y[t,c]      += x[t+r,c] * k_rows[r,c]
//
//   y[o,t] += x[t+r,c] * k[o,c,r]   =>     x_rows[c,t]  = x[t,c]
//                                          y[o,t]      += x_rows[c,t+r] * k[o,c,r]
//
// Vectors run along a loop whose neighbours are neighbours in all that is read. One operand that
// lies otherwise leaves the whole operator to be computed point by point.
#include <algorithm>
#include <set>
#include <utility>

#include "core/base/format.h"
#include "core/workload/access.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"
#include "core/workload/rewrite/written_first.h"

namespace tilewright {
namespace {

/// Points that read each element of a copy, at least.
constexpr double kReadsOfCopy = 4;

bool is_plain(const Access& a) {
  std::set<LoopId> loops;
  return std::ranges::all_of(a.index, [&](const Affine& x) {
    return x.plain_loop() && loops.insert(*x.plain_loop()).second;
  });
}

/// The one dimension that the loop moves along, forwards, and by how many of it; nothing where
/// several are.
struct Along {
  std::size_t dim = 0;
  std::int64_t step = 1;
};
std::optional<Along> moved_along(const Access& a, LoopId along) {
  std::optional<Along> found;
  for (std::size_t d = 0; d < a.index.size(); ++d)
    for (const Term& t : a.index[d].terms) {
      if (t.loop != along) continue;
      if (found || t.coefficient < 1) return std::nullopt;
      found = {d, t.coefficient};
    }
  return found;
}

/// An input that moves by more elements along the result's innermost loop than if its dimensions
/// had another order. Along that loop another input has neighbours, or the input is read through a
/// window; each of its elements is read several times.
std::optional<std::size_t> read_across(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (op.running || op.outputs.size() != 1 || w.gathers(id)) return std::nullopt;
  const Access& target = op.outputs.front().target;
  const auto along = target.index.empty() ? std::nullopt : target.index.back().plain_loop();
  if (!along || w.loop(*along).extent == 1) return std::nullopt;
  std::optional<std::size_t> found;
  bool neighbours = false;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const Access& a = op.inputs[i];
    const std::int64_t step = std::abs(rewrite::stride_of(w, a, *along));
    neighbours = neighbours || step == 1;
    if (step <= 1 || found) continue;
    const auto moved = moved_along(a, *along);
    const auto elements = static_cast<double>(w.tensor(a.tensor).elements().value);
    if (moved && step > moved->step &&
        kReadsOfCopy * elements <= static_cast<double>(w.operations(id).value))
      found = i;
  }
  return found && (neighbours || !is_plain(op.inputs[*found])) ? found : std::nullopt;
}

/// The input's dimensions in another order, that of the loop last, written by an operator of their
/// own.
Operator window_along(WorkloadSpec& spec, Operator& op, std::size_t input, LoopId along) {
  Access& read = op.inputs[input];
  const std::size_t moved = moved_along(read, along)->dim;
  const Tensor tensor = spec.tensors[read.tensor.index()];
  Access whole{.tensor = read.tensor, .index = {}};
  rewrite::Looked looked;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    const LoopId loop =
        rewrite::add_loop(spec, tensor.name + "_" + std::to_string(d), tensor.shape[d]);
    whole.index.push_back({.terms = {{.loop = loop}}});
    if (d != moved) looked.loops.push_back(loop), looked.shape.push_back(tensor.shape[d]);
  }
  looked.loops.push_back(whole.index[moved].terms[0].loop);
  looked.shape.push_back(tensor.shape[moved]);
  std::vector<Affine> index = std::exchange(read.index, std::move(whole.index));
  Operator first = rewrite::written_first(spec, op, input, looked);
  std::rotate(index.begin() + static_cast<std::ptrdiff_t>(moved),
              index.begin() + static_cast<std::ptrdiff_t>(moved) + 1, index.end());
  for (Access& a : op.inputs)
    if (a.tensor == first.outputs.front().target.tensor) a.index = index;
  return first;
}

Result<Workload> with_rows(const Workload& w, std::string_view text) {
  const auto names = rewrite::split(text, ';');
  for (const std::string_view name : names)
    if (!read_across(w, rewrite::operator_named(w, name, "materialise-across:OP;OP")))
      return Reason{
          formatted("operator {} reads no small tensor across the rows of its result", name)};
  return rewrite::after_others(
      w, names,
      [&](WorkloadSpec& spec, OpId id, Operator& op, const rewrite::WriteFirst& write_first) {
        const std::size_t input = *read_across(w, id);
        const LoopId along = *op.outputs.front().target.index.back().plain_loop();
        if (!is_plain(op.inputs[input])) return write_first(window_along(spec, op, input, along));
        std::vector<LoopId> loops;
        for (const Affine& x : op.inputs[input].index)
          if (x.plain_loop() != along) loops.push_back(*x.plain_loop());
        loops.push_back(along);
        write_first(
            rewrite::written_first(spec, op, input, rewrite::looked_by(w, std::move(loops))));
      });
}

}  // namespace

std::vector<OpId> readers_across(const Workload& w) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (read_across(w, OpId(i))) found.emplace_back(i);
  return found;
}

Rewrite materialise_across() {
  return {
      .name = "materialise-across",
      .summary =
          "operators that read a small tensor across the rows of their result, as a window's "
          "weights where channels are last, or an image with channels last where the result has "
          "them first, read it from a copy that lies along them",
      .source = "packing of operands before a product: Goto and van de Geijn, ACM TOMS 34(3), 2008",
      .function = nullptr,
      .argument = "OP;OP",
      .with = with_rows};
}

}  // namespace tilewright
