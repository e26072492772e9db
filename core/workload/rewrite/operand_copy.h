// Operands that an operator of its own writes first, element by element of given loops. Internal to
// rewrites.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/workload/access.h"
#include "core/workload/rewrite/substitute.h"
#include "core/workload/workload.h"

namespace tilewright::rewrite {

/// The loops of the operator that say which element is read, and how many elements that are.
struct Looked {
  std::vector<LoopId> loops;
  std::vector<std::int64_t> shape;
  double elements = 1;
};

/// The operand's elements that these loops say.
inline Looked looked_by(const Workload& w, std::vector<LoopId> loops) {
  Looked out{.loops = std::move(loops), .shape = {}};
  for (LoopId l : out.loops) {
    out.shape.push_back(w.loop(l).extent);
    out.elements *= static_cast<double>(out.shape.back());
  }
  return out;
}

/// The input of `op` as an operator that writes it. `op` reads what that one writes.
inline Operator written_first(WorkloadSpec& spec, Operator& op, std::size_t input,
                              const Looked& looked) {
  const TensorId from = op.inputs[input].tensor;
  Operator first{.name = {}, .loops = looked.loops, .inputs = op.inputs, .outputs = {}};
  Tensor rows{.name = unused(spec.tensors, spec.tensors[from.index()].name + "_rows"),
              .shape = looked.shape,
              .dtype = spec.tensors[from.index()].dtype};
  first.name = unused(spec.operators, rows.name);
  Access access{.tensor = TensorId(spec.tensors.size()), .index = {}};
  for (LoopId l : looked.loops) access.index.push_back({.terms = {{.loop = l}}});
  spec.tensors.push_back(std::move(rows));
  first.outputs.push_back(
      {.target = access, .value = {.kind = Expr::Kind::input, .input = static_cast<int>(input)}});
  drop_unread(first);
  op.inputs[input] = std::move(access);
  drop_unread(op);
  return first;
}

/// How many elements the access moves on in memory with each iteration of the loop.
inline std::int64_t stride_of(const Workload& w, const Access& a, LoopId l) {
  std::int64_t stride = 0, inner = 1;
  const std::vector<std::int64_t>& shape = w.tensor(a.tensor).shape;
  for (std::size_t d = a.index.size(); d-- > 0; inner *= shape[d])
    for (const Term& t : a.index[d].terms)
      if (t.loop == l) stride += t.coefficient * inner;
  return stride;
}

/// Whether indices of this dimension stay inside of the tensor and are no values.
inline bool stays_inside(const Workload& w, const Affine& index, std::int64_t extent) {
  std::int64_t least = index.offset, most = index.offset;
  for (const Term& t : index.terms)
    (t.coefficient < 0 ? least : most) += t.coefficient * (w.loop(t.loop).extent - 1);
  return index.gathered < 0 && least >= 0 && most < extent;
}

}  // namespace tilewright::rewrite
