#include "core/workload/joins.h"

#include <algorithm>

#include "core/workload/access.h"
#include "core/workload/cut.h"
#include "core/workload/values.h"

namespace tilewright {
namespace {

/// The inputs that an expression adds up, each once; false where it is no such sum.
bool adds_inputs(const Expr& e, std::vector<int>& inputs) {
  if (e.kind == Expr::Kind::input) {
    if (std::ranges::find(inputs, e.input) != inputs.end()) return false;
    inputs.push_back(e.input);
    return true;
  }
  return e.kind == Expr::Kind::call && e.function == "add" &&
         std::ranges::all_of(e.args, [&](const Expr& a) { return adds_inputs(a, inputs); });
}

/// The part that one input is; nothing where it is none.
std::optional<JoinedPart> part_of(const Workload& w, const Operator& op, int input) {
  const Access& a = op.inputs[static_cast<std::size_t>(input)];
  const Access& c = op.outputs.front().target;
  const auto& shape = w.tensor(a.tensor).shape;
  const auto& whole = w.tensor(c.tensor).shape;
  if (shape.size() != whole.size()) return std::nullopt;
  std::optional<JoinedPart> part;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const Affine& index = a.index[d];
    const auto loop = c.index[d].plain_loop();
    if (!loop || w.loop(*loop).extent != whole[d] || index.gathered >= 0 ||
        index.terms.size() != 1 || index.terms[0].loop != *loop || index.terms[0].coefficient != 1)
      return std::nullopt;
    if (index.offset == 0 && shape[d] == whole[d]) continue;
    if (part || index.offset > 0 || shape[d] - index.offset > whole[d]) return std::nullopt;
    part = JoinedPart{.input = input, .dim = d, .from = -index.offset, .size = shape[d]};
  }
  return part;
}

/// Whether the operator computes each element of its one result once, from others as they are.
bool assigns_once(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  return op.outputs.size() == 1 && !op.running && w.reduction_loops(id).empty() &&
         op.outputs[0].combine == Combine::assign && !op.outputs[0].rescale;
}

/// Where a copy reads, as a sum of what each loop adds.
class ReadFrom {
 public:
  ReadFrom(const Workload& w, OpId id) : w_(w), op_(w.op(id)) {
    for (const LoopId l : op_.loops)
      by_loop_.emplace_back(static_cast<std::size_t>(w.loop(l).extent), 0);
  }

  /// False: an index that is no such sum, is not known, or leaves the tensor.
  bool add(const Affine& index, std::int64_t size, std::int64_t stride) {
    if (index.gathered >= 0) return add_known(index.gathered, size, stride);
    std::int64_t least = index.offset, most = index.offset;
    for (const Term& t : index.terms) {
      std::vector<std::int64_t>& adds = of(t.loop);
      for (std::size_t i = 0; i < adds.size(); ++i)
        adds[i] += t.coefficient * stride * static_cast<std::int64_t>(i);
      (t.coefficient < 0 ? least : most) += t.coefficient * (std::ssize(adds) - 1);
    }
    always_ += index.offset * stride;
    return least >= 0 && most < size;
  }

  /// Whether that is where the result has the element.
  bool is(const Access& target) const {
    const std::vector<std::int64_t> strides = strides_of(w_.tensor(target.tensor));
    if (always_ != 0) return false;
    for (std::size_t l = 0; l < by_loop_.size(); ++l) {
      std::int64_t stride = 0;
      for (std::size_t d = 0; d < target.index.size(); ++d)
        if (target.index[d].plain_loop() == op_.loops[l]) stride = strides[d];
      for (std::size_t i = 0; i < by_loop_[l].size(); ++i)
        if (by_loop_[l][i] != stride * static_cast<std::int64_t>(i)) return false;
    }
    return true;
  }

 private:
  std::vector<std::int64_t>& of(LoopId loop) {
    return by_loop_[static_cast<std::size_t>(std::ranges::find(op_.loops, loop) -
                                             op_.loops.begin())];
  }

  /// A value of an index tensor of one dimension for each place of one loop.
  bool add_known(int input, std::int64_t size, std::int64_t stride) {
    const Access& a = op_.inputs[static_cast<std::size_t>(input)];
    const Tensor& t = w_.tensor(a.tensor);
    const auto loop = a.index.size() == 1 ? a.index[0].plain_loop() : std::nullopt;
    if (!loop || !t.values || t.values->list.empty() || t.shape[0] != w_.loop(*loop).extent ||
        std::ssize(t.values->list) != t.shape[0])
      return false;
    std::vector<std::int64_t>& adds = of(*loop);
    for (std::size_t i = 0; i < adds.size(); ++i) {
      const auto value = static_cast<std::int64_t>(t.values->list[i]);
      if (value < 0 || value >= size) return false;
      adds[i] += value * stride;
    }
    return true;
  }

  const Workload& w_;
  const Operator& op_;
  std::vector<std::vector<std::int64_t>> by_loop_;  ///< by position in the operator's loops
  std::int64_t always_ = 0;
};

}  // namespace

std::optional<std::size_t> copied_input(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (!assigns_once(w, id) || op.outputs[0].value.kind != Expr::Kind::input) return std::nullopt;
  const auto input = static_cast<std::size_t>(op.outputs[0].value.input);
  const Tensor& from = w.tensor(op.inputs[input].tensor);
  const Tensor& to = w.tensor(op.outputs[0].target.tensor);
  if (from.dtype != to.dtype || from.elements() != to.elements()) return std::nullopt;
  return input;
}

bool same_in_memory(const Workload& w, OpId id) {
  const auto input = copied_input(w, id);
  if (!input) return false;
  const Access& a = w.op(id).inputs[*input];
  const std::vector<std::int64_t>& shape = w.tensor(a.tensor).shape;
  const std::vector<std::int64_t> strides = strides_of(w.tensor(a.tensor));
  ReadFrom from(w, id);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!from.add(a.index[d], shape[d], strides[d])) return false;
  return from.is(w.op(id).outputs[0].target);
}

std::vector<JoinedPart> joined_parts(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  std::vector<int> inputs;
  if (!assigns_once(w, id) || !adds_inputs(op.outputs[0].value, inputs) ||
      inputs.size() != op.inputs.size())
    return {};
  std::vector<JoinedPart> parts;
  for (const int input : inputs) {
    const auto part = part_of(w, op, input);
    if (!part || (!parts.empty() && part->dim != parts.front().dim)) return {};
    parts.push_back(*part);
  }
  std::ranges::sort(parts, {}, &JoinedPart::from);
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (parts[i - 1].from + parts[i - 1].size > parts[i].from) return {};
  return parts;
}

std::optional<std::int64_t> place_in_result(const Workload& w, OpId id, const JoinedPart& part) {
  const Operator& op = w.op(id);
  const Tensor& whole = w.tensor(op.outputs.front().target.tensor);
  const Tensor& own = w.tensor(op.inputs[static_cast<std::size_t>(part.input)].tensor);
  if (own.dtype != whole.dtype) return std::nullopt;
  std::int64_t bytes = part.from * static_cast<std::int64_t>(size_of(whole.dtype));
  for (std::size_t d = 0; d < whole.shape.size(); ++d) {
    if (d < part.dim && whole.shape[d] != 1) return std::nullopt;
    if (d > part.dim) bytes *= whole.shape[d];
  }
  return bytes;
}

std::map<TensorId, Inside> tensors_inside(const Workload& w) {
  constexpr std::int64_t kLine = 64;  // rows begin as in memory of their own
  const std::vector<bool> constant = constant_operators(w);
  const auto handed_on = [&](TensorId t) {
    const OpId by = w.producer(t);
    return by.valid() && !constant[by.index()] && !w.is_output(t);
  };
  std::map<TensorId, Inside> inside;
  for (const OpId op : w.topological_order()) {
    const TensorId whole = w.op(op).outputs.front().target.tensor;
    if (!handed_on(whole)) continue;
    if (same_in_memory(w, op)) {
      const TensorId from = w.op(op).inputs[*copied_input(w, op)].tensor;
      if (handed_on(from)) inside.try_emplace(whole, Inside{.whole = from});
      continue;
    }
    for (const JoinedPart& part : joined_parts(w, op)) {
      const TensorId own = w.op(op).inputs[static_cast<std::size_t>(part.input)].tensor;
      const auto at = place_in_result(w, op, part);
      if (at && *at % kLine == 0 && handed_on(own)) inside.try_emplace(own, Inside{whole, *at});
    }
  }
  return inside;
}

std::vector<bool> joins_of_nothing(const Workload& w, const std::map<TensorId, Inside>& inside) {
  std::vector<bool> nothing(w.operators().size(), false);
  for (std::size_t o = 0; o < nothing.size(); ++o) {
    const Operator& op = w.operators()[o];
    const TensorId result = op.outputs.front().target.tensor;
    const auto lies = [&](TensorId t, TensorId whole) {
      const auto at = inside.find(t);
      return at != inside.end() && at->second.whole == whole;
    };
    nothing[o] =
        std::ranges::any_of(op.inputs, [&](const Access& a) { return lies(result, a.tensor); }) ||
        (!op.inputs.empty() &&
         std::ranges::all_of(op.inputs, [&](const Access& a) { return lies(a.tensor, result); }));
  }
  return nothing;
}

}  // namespace tilewright
