#include "core/workload/subgraph.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/base/format.h"
#include "core/workload/expr.h"

namespace tilewright {
namespace {

/// By OpId.
std::vector<bool> members(const Workload& w, std::span<const OpId> ops) {
  std::vector<bool> in(w.operators().size(), false);
  for (OpId op : ops) in[op.index()] = true;
  return in;
}

struct Fault {
  OpId op;  ///< that the fault is found at
  std::string problem, accepted;
};

/// An operator outside that reads from the part, directly or not, and that the part reads from.
std::optional<Fault> not_convex(const Workload& w, const std::vector<bool>& in) {
  // By OpId: the operator of the part that one outside comes after; none: it comes after none.
  std::vector<OpId> after(in.size());
  auto left = std::ranges::count(in, true);
  for (OpId op : w.topological_order()) {
    if (left == 0) break;  // nothing of the part comes later
    left -= in[op.index()] ? 1 : 0;
    for (const Access& a : w.op(op).inputs) {
      const OpId producer = w.producer(a.tensor);
      if (!producer.valid()) continue;
      const OpId first = in[producer.index()] ? producer : after[producer.index()];
      if (!in[op.index()]) {
        if (first.valid()) after[op.index()] = first;
      } else if (!in[producer.index()] && first.valid()) {
        return Fault{
            op,
            formatted("is not a part: {} reads what {} makes from what {} makes, and {} is "
                      "outside",
                      w.op(op).name, w.op(producer).name, w.op(first).name, w.op(producer).name),
            "with " + w.op(producer).name + ", or without one of the others"};
      }
    }
  }
  return std::nullopt;
}

void inputs_of(const Expr& e, std::vector<int>& inputs) {
  if (e.kind == Expr::Kind::input) inputs.push_back(e.input);
  for (const Expr& a : e.args) inputs_of(a, inputs);
}

/// Whether `op` makes the tensor from what a running result was before and after a block.
bool makes_of_one_block(const Operator& op, TensorId t) {
  return std::ranges::any_of(op.outputs, [&](const Output& out) {
    return out.target.tensor == t && names_outputs(out.value);
  });
}

/// Inputs of an operator that mean something within one block of a reduction alone.
std::vector<TensorId> tensors_of_one_block(const Workload& w, const Operator& op) {
  std::vector<int> inputs;
  for (const Output& out : op.outputs)
    if (out.rescale) inputs_of(*out.rescale, inputs);
  std::vector<TensorId> tensors;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const TensorId t = op.inputs[i].tensor;
    const OpId producer = w.producer(t);
    if (producer.valid() && (std::ranges::find(inputs, static_cast<int>(i)) != inputs.end() ||
                             makes_of_one_block(w.op(producer), t)))
      tensors.push_back(t);
  }
  return tensors;
}

/// A running operator and what makes the factors that it rescales by are on one side or the other.
std::optional<Fault> parted_rescaling(const Workload& w, const std::vector<bool>& in) {
  std::vector<bool> near = in;  // and what reads from it
  for (std::size_t i = 0; i < in.size(); ++i)
    for (const Output& out : w.operators()[i].outputs)
      for (OpId reader : in[i] ? w.consumers(out.target.tensor) : std::span<const OpId>())
        near[reader.index()] = true;
  for (OpId op : w.topological_order())
    for (TensorId t :
         near[op.index()] ? tensors_of_one_block(w, w.op(op)) : std::vector<TensorId>()) {
      const OpId producer = w.producer(t);
      if (in[producer.index()] == in[op.index()]) continue;
      return Fault{op,
                   formatted("parts {} from {}, which reads {} for each block of a running "
                             "reduction",
                             w.op(producer).name, w.op(op).name, w.tensor(t).name),
                   "both or neither"};
    }
  return std::nullopt;
}

std::string names_of(const Workload& w, const std::vector<bool>& in, const char* separator) {
  std::string names;
  for (std::size_t i = 0; i < in.size(); ++i)
    if (in[i]) names += (names.empty() ? "" : separator) + w.operators()[i].name;
  return names;
}

/// "gemm1+relu", within what a workload may be called.
std::string name_of_part(const Workload& w, const std::vector<bool>& in) {
  constexpr std::size_t kMost = 96;
  std::string name = names_of(w, in, "+");
  if (name.size() <= kMost) return name;
  const auto first = std::ranges::find(in, true) - in.begin();
  return formatted("{}+{}_more", w.operators()[static_cast<std::size_t>(first)].name,
                   std::ranges::count(in, true) - 1);
}

std::optional<Fault> fault_of(const Workload& w, const std::vector<bool>& in) {
  if (std::ranges::count(in, true) == 0)
    return Fault{OpId(), "has no operator", "one operator or more"};
  if (auto fault = not_convex(w, in)) return fault;
  return parted_rescaling(w, in);
}

}  // namespace

std::vector<std::pair<OpId, OpId>> tied_operators(const Workload& w) {
  std::vector<std::pair<OpId, OpId>> tied;
  for (OpId op : w.topological_order())
    for (TensorId t : tensors_of_one_block(w, w.op(op))) tied.emplace_back(w.producer(t), op);
  return tied;
}

std::optional<Reason> no_subgraph(const Workload& w, std::span<const OpId> ops) {
  const auto fault = fault_of(w, members(w, ops));
  if (!fault) return std::nullopt;
  return Reason{fault->problem};
}

Workload subgraph(const Workload& w, std::span<const OpId> ops, std::string_view where) {
  const std::vector<bool> in = members(w, ops);
  if (const auto fault = fault_of(w, in))
    throw InputError({.where = std::string(where),
                      .value = names_of(w, in, " "),
                      .problem = fault->problem,
                      .accepted = fault->accepted});
  WorkloadSpec spec{.name = name_of_part(w, in), .dtype = w.dtype()};
  std::map<LoopId, LoopId> loops;
  std::map<TensorId, TensorId> tensors;
  const auto rename = [&](Access& a) {
    const auto [at, fresh] = tensors.emplace(a.tensor, TensorId(spec.tensors.size()));
    if (fresh) spec.tensors.push_back(w.tensor(a.tensor));
    a.tensor = at->second;
    for (Affine& index : a.index)
      for (Term& t : index.terms) t.loop = loops.at(t.loop);
  };
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!in[i]) continue;
    Operator op = w.operators()[i];
    for (LoopId& l : op.loops) {
      const auto [at, fresh] = loops.emplace(l, LoopId(spec.loops.size()));
      if (fresh) spec.loops.push_back(w.loop(l));
      l = at->second;
    }
    for (Access& a : op.inputs) rename(a);
    const auto renumber = [&](LoopId& l) { l = loops.at(l); };
    for (Output& out : op.outputs) {
      each_index(out.value, renumber);
      if (out.rescale) each_index(*out.rescale, renumber);
      const TensorId whole = out.target.tensor;
      rename(out.target);
      const auto readers = w.consumers(whole);
      if (w.is_output(whole) || readers.empty() ||
          std::ranges::any_of(readers, [&](OpId c) { return !in[c.index()]; }))
        spec.outputs.push_back(out.target.tensor);
    }
    spec.operators.push_back(std::move(op));
  }
  return Workload::create(std::move(spec));
}

std::vector<OpId> operators_named(const Workload& w, std::span<const std::string> names,
                                  std::string_view where) {
  std::vector<OpId> ops;
  for (const std::string& name : names) {
    const auto op = w.find_op(name);
    if (!op) {
      std::vector<std::string> all;
      for (const Operator& o : w.operators()) all.push_back(o.name);
      const std::string near = nearest(name, all);
      throw InputError({.where = std::string(where),
                        .value = name,
                        .problem = "is not an operator of " + w.name(),
                        .accepted = join(all) + (near.empty() ? "" : " (nearest: " + near + ")")});
    }
    ops.push_back(*op);
  }
  std::ranges::sort(ops);
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  return ops;
}

}  // namespace tilewright
