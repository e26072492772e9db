#include "core/workload/rewrite/written_first.h"

#include <algorithm>
#include <utility>

#include "core/workload/rewrite/substitute.h"

namespace tilewright::rewrite {

Looked looked_by(const Workload& w, std::vector<LoopId> loops) {
  Looked out{.loops = std::move(loops), .shape = {}};
  for (LoopId l : out.loops) {
    out.shape.push_back(w.loop(l).extent);
    out.elements *= static_cast<double>(out.shape.back());
  }
  return out;
}

Operator written_first(WorkloadSpec& spec, Operator& op, std::size_t input, const Looked& looked) {
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

Result<Workload> after_others(
    const Workload& w, std::span<const std::string_view> names,
    const std::function<void(WorkloadSpec&, OpId, Operator&, const WriteFirst&)>& change) {
  WorkloadSpec spec = w.spec();
  std::vector<Operator> all;
  const WriteFirst write_first = [&](Operator first) {
    spec.operators.push_back(first);  // its name is taken
    all.push_back(std::move(first));
  };
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    Operator op = spec.operators[i];
    if (std::ranges::find(names, op.name) != names.end()) change(spec, OpId(i), op, write_first);
    all.push_back(std::move(op));
  }
  spec.operators = std::move(all);
  return Workload::create(std::move(spec));
}

std::int64_t stride_of(const Workload& w, const Access& a, LoopId l) {
  std::int64_t stride = 0, inner = 1;
  const std::vector<std::int64_t>& shape = w.tensor(a.tensor).shape;
  for (std::size_t d = a.index.size(); d-- > 0; inner *= shape[d])
    for (const Term& t : a.index[d].terms)
      if (t.loop == l) stride += t.coefficient * inner;
  return stride;
}

bool stays_inside(const Workload& w, const Affine& index, std::int64_t extent) {
  std::int64_t least = index.offset, most = index.offset;
  for (const Term& t : index.terms)
    (t.coefficient < 0 ? least : most) += t.coefficient * (w.loop(t.loop).extent - 1);
  return index.gathered < 0 && least >= 0 && most < extent;
}

}  // namespace tilewright::rewrite
