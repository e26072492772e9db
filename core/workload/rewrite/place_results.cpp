// Products whose results only a move reads, as a transposition behind a matrix product, write them
// where the move does.
//
//   t[a,b,c] += x[a,b,k] * w[k,c]     =>     y[a,c,b] += x[a,b,k] * w[k,c]
//   y[a,c,b]  = t[a,b,c]
//
// A kernel of the product and the move brings results through shared memory once more, or to home
// and back. Which matrix has the rows is the product's own choice, so its kernels write either
// order. Values are the same to the bit.
#include <algorithm>
#include <map>

#include "core/workload/access.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

/// Loops of an access that reads or writes each element of its tensor once, by a loop a dimension.
std::optional<std::vector<LoopId>> loops_of_whole(const WorkloadSpec& spec, const Access& a) {
  std::vector<LoopId> loops;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto l = a.index[d].plain_loop();
    if (!l || std::ranges::find(loops, *l) != loops.end() ||
        spec.loops[l->index()].extent != spec.tensors[a.tensor.index()].shape[d])
      return std::nullopt;
    loops.push_back(*l);
  }
  return loops;
}

/// The operator that does nothing but bring these results to where they belong, in other order.
std::optional<OpId> move_of(const Workload& w, const WorkloadSpec& spec, OpId product) {
  const Operator& op = spec.operators[product.index()];
  const Access& target = op.outputs.front().target;
  if (!w.is_contraction(product) || op.running || op.outputs.size() != 1 ||
      w.is_output(target.tensor))
    return std::nullopt;
  const std::span<const OpId> readers = w.consumers(target.tensor);
  if (readers.size() != 1) return std::nullopt;
  const Operator& move = spec.operators[readers.front().index()];
  if (move.running || move.inputs.size() != 1 || move.outputs.size() != 1) return std::nullopt;
  const Output& moved = move.outputs.front();
  const auto written = loops_of_whole(spec, target), read = loops_of_whole(spec, move.inputs[0]),
             to = loops_of_whole(spec, moved.target);
  const auto type = [&](const Access& a) { return spec.tensors[a.tensor.index()].dtype; };
  if (moved.combine != Combine::assign || moved.value.kind != Expr::Kind::input || !written ||
      !read || !to || read->size() != to->size() || type(target) != type(moved.target))
    return std::nullopt;
  return readers.front();
}

Result<Workload> placed(const Workload& w) {
  WorkloadSpec spec = w.spec();
  std::vector<bool> gone(spec.operators.size());
  for (std::size_t i = 0; i < spec.operators.size(); ++i) {
    const auto move = move_of(w, spec, OpId(i));
    if (!move) continue;
    Operator& op = spec.operators[i];
    Access& target = op.outputs.front().target;
    const Operator& by = spec.operators[move->index()];
    std::map<LoopId, LoopId> own;  // by the move's loop
    for (std::size_t d = 0; d < target.index.size(); ++d)
      own[*by.inputs[0].index[d].plain_loop()] = *target.index[d].plain_loop();
    target = by.outputs.front().target;
    for (Affine& index : target.index) index.terms.front().loop = own.at(index.terms.front().loop);
    rewrite::name_loops(op);
    gone[move->index()] = true;
  }
  if (std::ranges::find(gone, true) == gone.end())
    return Reason{"no product's results are read by a move alone"};
  rewrite::drop(spec, gone);
  return Workload::create(std::move(spec));
}

}  // namespace

Rewrite place_results() {
  return {.name = "place-results",
          .summary =
              "products whose results only a move reads, as a transposition, write them where the "
              "move does",
          .source =
              "producer-consumer fusion by inlining, of what is read in the place of what is "
              "written: Ragan-Kelley et al., Halide, PLDI 2013",
          .function = placed};
}

}  // namespace tilewright
