#include "core/workload/canonical.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/workload/expr.h"

namespace tilewright {
namespace {

/// A number for a structure: equal ones have equal numbers, on every machine.
class Label {
 public:
  Label& add(std::uint64_t n) {
    for (int byte = 0; byte < 8; ++byte) {
      value_ = (value_ ^ (n & 0xff)) * 0x100000001b3;  // FNV-1a
      n >>= 8;
    }
    return *this;
  }
  Label& add(std::string_view text) {
    for (const char c : text) add(static_cast<unsigned char>(c));
    return add(text.size());
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

class Ordered {
 public:
  explicit Ordered(const Workload& w) : w_(w), above_(w.tensors().size()) {}

  /// Operators in their new order.
  std::vector<OpId> operators() {
    for (std::size_t t = 0; t < above_.size(); ++t) {
      const Tensor& tensor = w_.tensors()[t];
      Label label;
      for (const std::int64_t n : tensor.shape) label.add(static_cast<std::uint64_t>(n));
      above_[t] = label.add(static_cast<std::uint64_t>(tensor.dtype)).value();
    }
    std::vector<std::size_t> depth(w_.operators().size());
    for (const OpId op : w_.topological_order()) {
      const std::uint64_t label = label_of(w_.op(op));
      std::uint64_t place = 0;
      for (const Output& out : w_.op(op).outputs)
        above_[out.target.tensor.index()] = Label().add(label).add(place++).value();
      for (const Access& a : w_.op(op).inputs)
        if (const OpId p = w_.producer(a.tensor); p.valid())
          depth[op.index()] = std::max(depth[op.index()], depth[p.index()] + 1);
    }
    std::vector<OpId> ends;
    for (std::size_t i = 0; i < depth.size(); ++i)
      if (std::ranges::all_of(w_.operators()[i].outputs, [&](const Output& out) {
            return w_.consumers(out.target.tensor).empty();
          }))
        ends.emplace_back(i);
    std::ranges::stable_sort(ends, [&](OpId a, OpId b) {
      const auto key = [&](OpId op) {
        return std::pair(depth[op.index()], above_[w_.op(op).outputs[0].target.tensor.index()]);
      };
      return key(a) > key(b);
    });
    for (const OpId end : ends) take_all_of(end);
    return order_;
  }

 private:
  /// Of an operator, what it computes of what.
  std::uint64_t label_of(const Operator& op) const {
    Label label;
    const auto place = [&](LoopId l) {
      label.add(static_cast<std::uint64_t>(std::ranges::find(op.loops, l) - op.loops.begin()));
    };
    const auto access = [&](const Access& a) {
      label.add(above_[a.tensor.index()]).add(a.index.size());
      for (const Affine& index : a.index) {
        for (const Term& t : index.terms)
          place(t.loop), label.add(static_cast<std::uint64_t>(t.coefficient));
        label.add(static_cast<std::uint64_t>(index.offset));
        label.add(static_cast<std::uint64_t>(index.gathered));
      }
    };
    const std::function<void(const Expr&)> expression = [&](const Expr& e) {
      label.add(static_cast<std::uint64_t>(e.kind)).add(static_cast<std::uint64_t>(e.input));
      label.add(std::bit_cast<std::uint64_t>(e.constant)).add(e.function);
      if (e.kind == Expr::Kind::index) place(e.loop);
      for (const Expr& x : e.args) expression(x);
    };
    for (const LoopId l : op.loops) label.add(static_cast<std::uint64_t>(w_.loop(l).extent));
    std::ranges::for_each(op.inputs, access);
    for (const Output& out : op.outputs) {
      access(out.target);
      label.add(static_cast<std::uint64_t>(out.combine));
      expression(out.value);
      if (out.rescale) expression(*out.rescale);
    }
    return label.value();
  }

  /// The operator after all that it reads. Without recursion: chains may be thousands long.
  void take_all_of(OpId end) {
    taken_.resize(w_.operators().size());
    std::vector<std::pair<OpId, std::size_t>> open{{end, 0}};
    while (!open.empty()) {
      auto& [op, next] = open.back();
      if (taken_[op.index()]) {
        open.pop_back();
      } else if (next < w_.op(op).inputs.size()) {
        const OpId producer = w_.producer(w_.op(op).inputs[next++].tensor);
        if (producer.valid() && !taken_[producer.index()]) open.emplace_back(producer, 0);
      } else {
        taken_[op.index()] = true;
        order_.push_back(op);
        open.pop_back();
      }
    }
  }

  const Workload& w_;
  std::vector<std::uint64_t> above_;  ///< by tensor: how it comes about
  std::vector<bool> taken_;
  std::vector<OpId> order_;
};

/// New numbers for what is taken in turn.
template <class Id>
class Numbers {
 public:
  explicit Numbers(std::size_t many) : now_(many) {}
  void take(Id id) {
    if (now_[id.index()].valid()) return;
    now_[id.index()] = Id(order_.size());
    order_.push_back(id);
  }
  Id of(Id id) const { return now_[id.index()]; }
  const std::vector<Id>& order() const { return order_; }

 private:
  std::vector<Id> now_, order_;
};

}  // namespace

std::shared_ptr<const Workload> in_canonical_order(std::shared_ptr<const Workload> w) {
  const std::vector<OpId> operators = Ordered(*w).operators();
  Numbers<LoopId> loops(w->loops().size());
  Numbers<TensorId> tensors(w->tensors().size());
  std::vector<TensorId> outputs;
  for (const OpId op : operators) {
    for (const Access& a : w->op(op).inputs) tensors.take(a.tensor);
    for (const Output& out : w->op(op).outputs) {
      tensors.take(out.target.tensor);
      if (!w->is_output(out.target.tensor)) continue;
      outputs.push_back(out.target.tensor);
      for (const Affine& index : out.target.index)
        for (const Term& t : index.terms) loops.take(t.loop);
    }
  }
  for (std::size_t t = 0; t < w->tensors().size(); ++t) tensors.take(TensorId(t));  // read by none
  for (const OpId op : operators)
    for (const LoopId l : w->reduction_loops(op)) loops.take(l);
  for (const OpId op : operators)
    for (const LoopId l : w->op(op).loops) loops.take(l);

  WorkloadSpec spec{.name = w->name(), .dtype = w->dtype()};
  for (const LoopId l : loops.order()) spec.loops.push_back(w->loop(l));
  for (const TensorId t : tensors.order()) spec.tensors.push_back(w->tensor(t));
  for (const TensorId t : outputs) spec.outputs.push_back(tensors.of(t));
  const auto renumber = [&](LoopId& l) { l = loops.of(l); };
  const auto renumber_all = [&](Access& a) {
    a.tensor = tensors.of(a.tensor);
    for (Affine& index : a.index)
      for (Term& t : index.terms) renumber(t.loop);
  };
  for (const OpId id : operators) {
    Operator op = w->op(id);
    std::ranges::for_each(op.loops, renumber);
    std::ranges::for_each(op.inputs, renumber_all);
    for (Output& out : op.outputs) {
      renumber_all(out.target);
      each_index(out.value, renumber);
      if (out.rescale) each_index(*out.rescale, renumber);
    }
    spec.operators.push_back(std::move(op));
  }
  if (spec == w->spec()) return w;
  return std::make_shared<const Workload>(Workload::create(std::move(spec)));
}

}  // namespace tilewright
