#include "core/workload/joins.h"

#include <algorithm>

#include "core/workload/cut.h"

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

}  // namespace

std::vector<JoinedPart> joined_parts(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  std::vector<int> inputs;
  if (op.outputs.size() != 1 || op.running || !w.reduction_loops(id).empty() ||
      op.outputs[0].combine != Combine::assign || op.outputs[0].rescale ||
      !adds_inputs(op.outputs[0].value, inputs) || inputs.size() != op.inputs.size())
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
    nothing[o] = !op.inputs.empty() && std::ranges::all_of(op.inputs, [&](const Access& a) {
      const auto at = inside.find(a.tensor);
      return at != inside.end() && at->second.whole == op.outputs.front().target.tensor;
    });
  }
  return nothing;
}

}  // namespace tilewright
