#include "harness/operator_alone.h"

#include <map>
#include <utility>

namespace tilewright::harness {

Workload operator_alone(const Workload& w, OpId id) {
  WorkloadSpec spec{.name = w.op(id).name, .dtype = w.dtype()};
  Operator op = w.op(id);
  std::map<LoopId, LoopId> loops;
  std::map<TensorId, TensorId> tensors;
  for (LoopId& l : op.loops) {
    loops[l] = LoopId(spec.loops.size());
    spec.loops.push_back(w.loop(l));
    l = loops[l];
  }
  const auto rename = [&](Access& a) {
    const auto [at, fresh] = tensors.emplace(a.tensor, TensorId(spec.tensors.size()));
    if (fresh) spec.tensors.push_back(w.tensor(a.tensor));
    a.tensor = at->second;
    for (Affine& index : a.index)
      for (Term& t : index.terms) t.loop = loops.at(t.loop);
  };
  for (Access& a : op.inputs) rename(a);
  for (Output& o : op.outputs) {
    rename(o.target);
    spec.outputs.push_back(o.target.tensor);
  }
  spec.operators = {std::move(op)};
  return Workload::create(std::move(spec));
}

}  // namespace tilewright::harness
