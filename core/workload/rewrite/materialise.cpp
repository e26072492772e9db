// Operands of matrix products that are looked up, written by an operator of their own first.
//
//   y[b,e] += T[ids[b],d] * W[d,e]     =>     T_rows[b,d] = T[ids[b],d]
//                                             y[b,e]     += T_rows[b,d] * W[d,e]
//
// Kernels of matrix products copy boxes of their operands. Rows whose numbers are known only at run
// time are no box, so that such a product is computed element by element. A sum that reads each row
// for many columns is faster after a copy of the rows; whether that is so is the caller's question.
#include "core/workload/access.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

/// Whether the operator sums products of two inputs, of which it looks one up.
bool is_product_of_gathers(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  return !op.running && op.outputs.size() == 1 && w.gathers(id) &&
         !w.reduction_loops(id).empty() && factors_of(op.outputs.front());
}

/// The loops of the operator that say which element is read, and how many elements that are.
struct Looked {
  std::vector<LoopId> loops;
  std::vector<std::int64_t> shape;
  double elements = 1;
};

Looked looked_up(const WorkloadSpec& spec, const Operator& op, const Access& read) {
  Looked out;
  for (int l : gather_loops(op, read)) {
    out.loops.push_back(op.loops[static_cast<std::size_t>(l)]);
    out.shape.push_back(spec.loops[out.loops.back().index()].extent);
    out.elements *= static_cast<double>(out.shape.back());
  }
  return out;
}

/// The input of `op` as an operator that writes it. `op` reads what that one writes.
Operator written_first(WorkloadSpec& spec, Operator& op, std::size_t input, const Looked& looked) {
  const TensorId from = op.inputs[input].tensor;
  Operator first{.name = {}, .loops = looked.loops, .inputs = op.inputs, .outputs = {}};
  Tensor rows{.name = rewrite::unused(spec.tensors, spec.tensors[from.index()].name + "_rows"),
              .shape = looked.shape,
              .dtype = spec.tensors[from.index()].dtype};
  first.name = rewrite::unused(spec.operators, rows.name);
  Access access{.tensor = TensorId(spec.tensors.size()), .index = {}};
  for (LoopId l : looked.loops) access.index.push_back({.terms = {{.loop = l}}});
  spec.tensors.push_back(std::move(rows));
  first.outputs.push_back(
      {.target = access,
       .value = {.kind = Expr::Kind::input, .input = static_cast<int>(input)}});
  rewrite::drop_unread(first);
  op.inputs[input] = std::move(access);
  rewrite::drop_unread(op);
  return first;
}

Result<Workload> with_operands(const Workload& w) {
  WorkloadSpec spec = w.spec();
  std::vector<Operator> all;
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    Operator op = spec.operators[i];
    if (is_product_of_gathers(w, OpId(i))) {
      const double points = static_cast<double>(w.operations(OpId(i)).value);
      for (std::size_t input = 0; input < op.inputs.size();) {
        const Looked looked = looked_up(spec, op, op.inputs[input]);
        // What indices are looked up by stays where it is, and so does what is read once.
        const bool whole = is_gather(op.inputs[input]) && looked.elements < points &&
                           rewrite::uses_of(op.outputs.front().value, static_cast<int>(input)) > 0;
        if (!whole) {
          ++input;
          continue;
        }
        all.push_back(written_first(spec, op, input, looked));
        spec.operators.push_back(all.back());  // its name is taken
        input = 0;
      }
    }
    all.push_back(std::move(op));
  }
  if (all.size() == w.operators().size())
    return Reason{"no sum of products reads what it looks up for several of its results"};
  spec.operators = std::move(all);
  return Workload::create(std::move(spec));
}

}  // namespace

Rewrite materialise_gathers() {
  return {.name = "materialise-gathers",
          .summary =
              "what a matrix product looks up is written by an operator of its own first, so that "
              "the product reads a plain matrix",
          .source = "packing of operands before a product: Goto and van de Geijn, ACM TOMS 34(3), 2008",
          .function = with_operands};
}

}  // namespace tilewright
