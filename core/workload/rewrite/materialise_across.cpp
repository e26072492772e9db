// Small operands that are read across the result's rows, from a copy that lies along them.
//
//   y[t,c] += x[t+r,c] * k[c,r]     =>     k_rows[r,c]  = k[c,r]
//                                          y[t,c]      += x[t+r,c] * k_rows[r,c]
//
// Vectors run along a loop whose neighbours are neighbours in all that is read. One operand that
// lies otherwise leaves the whole operator to be computed point by point.
#include <algorithm>
#include <set>

#include "core/base/format.h"
#include "core/workload/access.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"
#include "core/workload/rewrite/written_first.h"

namespace tilewright {
namespace {

/// Points that read each element of a copy, at least.
constexpr double kReadsOfCopy = 4;

/// An input that moves by more than an element along the result's innermost loop, along which
/// another input has neighbours; each of its elements is read several times.
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
    std::set<LoopId> loops;
    const bool plain = std::ranges::all_of(a.index, [&](const Affine& x) {
      return x.plain_loop() && loops.insert(*x.plain_loop()).second;
    });
    const auto elements = static_cast<double>(w.tensor(a.tensor).elements().value);
    if (plain && kReadsOfCopy * elements <= static_cast<double>(w.operations(id).value)) found = i;
  }
  return neighbours ? found : std::nullopt;
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
          "weights where channels are last, read it from a copy that lies along them",
      .source = "packing of operands before a product: Goto and van de Geijn, ACM TOMS 34(3), 2008",
      .function = nullptr,
      .argument = "OP;OP",
      .with = with_rows};
}

}  // namespace tilewright
