// How a compute gets its inputs, and where its results go.
#include <algorithm>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {

/// An input at the compute's point.
Read Lowering::read(const Use& use) {
  const Operator& op = workload_.op(k_.node(use.node).op);
  const Access& a = op.inputs[static_cast<std::size_t>(use.input)];
  Read r{.from = Read::From::gather, .input = use.input, .tensor = a.tensor};
  if (is_gather(a)) {
    r.gather = gather(use);
    return r;
  }
  const std::size_t at = used_by_.at({use.node, use.input});
  const Value& v = values_[at];
  if (v.storage == Storage::shared) return read_shared(use);
  const Key key = use_key(use);
  r.value = static_cast<int>(at);
  if (v.storage == Storage::registers) {
    r.from = Read::From::registers;
    r.names = *match(v.key, key, v.scope);
    return r;
  }
  r.from = Read::From::home;
  r.inside = facts_[use.node.index()].inside;
  for (Linear& x : there(use)) r.inside.push_back(std::move(x));
  r.at = flat(v.tensor, key);
  r.copies = copies(key, v.around);
  return r;
}

Write Lowering::write(std::size_t value) const {
  const Value& v = values_[value];
  Write w{.value = static_cast<int>(value), .sum = v.sum};
  if (w.sum) {
    for (const Linear& x : facts_[v.producer.index()].inside)
      if (std::ranges::find(v.inside, x) == v.inside.end()) w.inside.push_back(x);
    return w;
  }
  if (v.storage == Storage::registers) return w;
  w.inside = v.inside;
  w.copies = copies(v.key, v.around);  // units with an instance of their own fill it
  w.leaves = leaves(v);
  if (v.storage == Storage::shared) w.shared_at = shared_at(v, v.key);
  w.home_at = flat(v.tensor, v.key);
  return w;
}

void Lowering::compute(NodeId id, std::vector<Step>& out) {
  const Operator& op = workload_.op(k_.node(id).op);
  Step step{.kind = Step::Kind::compute, .node = id};
  count_units(step, loops_around(id));
  step.dims = facts_[id.index()].elements;
  step.point = facts_[id.index()].point;
  step.run = run_of(id);
  if (step.run) {
    step.run->gather = gather({id, step.run->input});
    const std::set<int> by = named_by(id, step.run->input);
    step.run->named_by.assign(by.begin(), by.end());
  }
  for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i) {
    if (step.run && i == step.run->input) {
      Read r{.from = Read::From::run, .input = i};
      r.tensor = op.inputs[static_cast<std::size_t>(i)].tensor;
      step.reads.push_back(std::move(r));
    } else {
      step.reads.push_back(read({id, i}));
    }
  }
  for (std::size_t at : made_by_.at(id)) step.writes.push_back(write(at));
  out.push_back(std::move(step));
  for (std::size_t at : made_by_.at(id)) {
    const Value& v = values_[at];
    if (v.storage == Storage::shared && !v.sum) written_.push_back(at);
    if (leaves(v) && !v.sum && v.storage == Storage::registers) store(at, out);
  }
}

}  // namespace tilewright::lowering
