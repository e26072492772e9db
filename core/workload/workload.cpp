#include "core/workload/workload.h"

#include <algorithm>

namespace tilewright {
namespace {

template <class Id, class Items>
std::optional<Id> find_by_name(const Items& items, std::string_view name) {
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i].name == name) return Id(i);
  return std::nullopt;
}

/// Only multiplications of inputs; counts them.
bool is_product(const Expr& e, int& inputs) {
  if (e.kind == Expr::Kind::input) {
    ++inputs;
    return true;
  }
  return e.kind == Expr::Kind::call && e.function == "mul" &&
         std::all_of(e.args.begin(), e.args.end(),
                     [&](const Expr& a) { return is_product(a, inputs); });
}

std::int64_t calls(const Expr& e) {
  std::int64_t n = e.kind == Expr::Kind::call ? 1 : 0;
  for (const Expr& a : e.args) n += calls(a);
  return n;
}

/// True where exactly one dimension of the access is the plain loop and no other mentions it.
bool indexed_plainly(const Access& a, LoopId loop) {
  int plain = 0;
  for (const Affine& index : a.index) {
    if (index.plain_loop() == loop) {
      ++plain;
      continue;
    }
    for (const Term& t : index.terms)
      if (t.loop == loop) return false;
  }
  return plain == 1;
}

}  // namespace

Elements Tensor::elements() const {
  std::int64_t n = 1;
  for (std::int64_t extent : shape) n *= extent;
  return Elements(n);
}

Box Tensor::whole() const {
  Box box(static_cast<int>(shape.size()));
  for (std::size_t d = 0; d < shape.size(); ++d) box[static_cast<int>(d)] = {0, shape[d]};
  return box;
}

std::optional<LoopId> Affine::plain_loop() const {
  if (terms.size() == 1 && terms[0].coefficient == 1 && offset == 0 && gathered < 0)
    return terms[0].loop;
  return std::nullopt;
}

std::optional<LoopId> Workload::find_loop(std::string_view name) const {
  return find_by_name<LoopId>(spec_.loops, name);
}

std::optional<TensorId> Workload::find_tensor(std::string_view name) const {
  return find_by_name<TensorId>(spec_.tensors, name);
}

std::optional<OpId> Workload::find_op(std::string_view name) const {
  if (const auto op = find_by_name<OpId>(spec_.operators, name)) return op;
  const auto tensor = find_tensor(name);
  if (tensor && producer(*tensor).valid()) return producer(*tensor);
  return std::nullopt;
}

bool Workload::is_output(TensorId t) const {
  return std::find(spec_.outputs.begin(), spec_.outputs.end(), t) != spec_.outputs.end();
}

bool Workload::is_intermediate(TensorId t) const {
  return producer(t).valid() && !consumers(t).empty() && !is_output(t);
}

int Workload::local_index(OpId id, LoopId loop) const {
  const std::vector<LoopId>& loops = op(id).loops;
  const auto it = std::find(loops.begin(), loops.end(), loop);
  return it == loops.end() ? -1 : static_cast<int>(it - loops.begin());
}

bool Workload::is_reduction(OpId id, LoopId loop) const {
  const std::span<const LoopId> r = reduction_loops(id);
  return std::find(r.begin(), r.end(), loop) != r.end();
}

bool Workload::is_batch(LoopId loop) const {
  for (const Operator& op : spec_.operators) {
    for (const Output& out : op.outputs)
      if (!indexed_plainly(out.target, loop)) return false;
    for (const Access& in : op.inputs)
      if (!indexed_plainly(in, loop)) return false;
  }
  return true;
}

Operations Workload::operations(OpId id) const {
  std::int64_t n = 1;
  for (LoopId l : op(id).loops) n *= loop(l).extent;
  return Operations(n);
}

bool Workload::gathers(OpId id) const {
  return std::any_of(op(id).inputs.begin(), op(id).inputs.end(), is_gather);
}

bool Workload::is_contraction(OpId id) const {
  if (reduction_loops(id).empty() || gathers(id)) return false;
  for (const Output& out : op(id).outputs) {
    int inputs = 0;
    if (out.combine != Combine::sum || out.rescale || !is_product(out.value, inputs) || inputs < 2)
      return false;
  }
  return true;
}

double Workload::flops() const {
  double total = 0;
  for (std::size_t i = 0; i < spec_.operators.size(); ++i) {
    std::int64_t each = 0;
    for (const Output& out : spec_.operators[i].outputs)
      each += calls(out.value) + (out.combine == Combine::assign ? 0 : 1);
    if (is_contraction(OpId(i)))
      each = 2 * static_cast<std::int64_t>(spec_.operators[i].outputs.size());
    total += static_cast<double>(each) * static_cast<double>(operations(OpId(i)).value);
  }
  return total;
}

bool is_gather(const Access& access) {
  return std::any_of(access.index.begin(), access.index.end(),
                     [](const Affine& index) { return index.gathered >= 0; });
}

std::vector<int> gather_loops(const Operator& op, const Access& access) {
  std::vector<bool> named(op.loops.size());
  const auto name = [&](const Access& a) {
    for (const Affine& index : a.index)
      for (const Term& t : index.terms)
        named[static_cast<std::size_t>(std::find(op.loops.begin(), op.loops.end(), t.loop) -
                                       op.loops.begin())] = true;
  };
  name(access);
  for (const Affine& index : access.index)
    if (index.gathered >= 0) name(op.inputs[static_cast<std::size_t>(index.gathered)]);
  std::vector<int> loops;
  for (std::size_t l = 0; l < named.size(); ++l)
    if (named[l]) loops.push_back(static_cast<int>(l));
  return loops;
}

Interval footprint(const Operator& op, const Affine& index, std::span<const Interval> ranges) {
  Interval r{index.offset, index.offset + 1};
  for (const Term& t : index.terms) {
    const auto it = std::find(op.loops.begin(), op.loops.end(), t.loop);
    TW_CHECK(it != op.loops.end(), "an access has a loop that its operator has not");
    const Interval range = ranges[static_cast<std::size_t>(it - op.loops.begin())];
    if (range.empty()) return {index.offset, index.offset};
    const std::int64_t first = t.coefficient * range.lo;
    const std::int64_t last = t.coefficient * (range.hi - 1);
    r.lo += std::min(first, last);
    r.hi += std::max(first, last);
  }
  return r;
}

Box footprint(const Workload& w, const Operator& op, const Access& access,
              std::span<const Interval> ranges) {
  const Tensor& tensor = w.tensor(access.tensor);
  Box box(static_cast<int>(access.index.size()));
  for (std::size_t d = 0; d < access.index.size(); ++d) {
    const Interval all{0, tensor.shape[d]};
    box[static_cast<int>(d)] = access.index[d].gathered >= 0
                                   ? all
                                   : intersect(footprint(op, access.index[d], ranges), all);
  }
  return box;
}

}  // namespace tilewright
