#include "bench/problem.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>

#include "core/workload/reference/elements.h"
#include "core/workload/reference/rounding.h"

namespace tilewright::bench {
namespace {

bool has_operators(const Workload& w, std::initializer_list<std::string_view> names) {
  return std::ranges::all_of(names, [&](std::string_view n) { return w.find_op(n).has_value(); });
}

}  // namespace

std::shared_ptr<float[]> aligned_floats(std::int64_t count) {
  constexpr std::size_t kAlignment = 4096;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<float*>(memory), [](float* p) { std::free(p); }};
}

Kind kind_of(const Workload& w) {
  if (w.dtype() != DType::f32) return Kind::other;
  if (has_operators(w, {"gemm1", "gemm2"}) && w.operators().size() == 2) return Kind::chain;
  if (has_operators(w, {"qk", "exp", "rowsum", "pv", "divide"}) && !w.find_op("scaled"))
    return Kind::softmax;
  if (has_operators(w, {"conv1", "conv2"})) return Kind::convolutions;
  return plain_products(w).empty() ? Kind::other : Kind::products;
}

std::vector<PlainProduct> plain_products(const Workload& w) {
  std::vector<PlainProduct> all;
  const auto loops_of = [&](const Access& a) {
    std::vector<LoopId> loops;
    for (const Affine& i : a.index)
      if (const auto loop = i.plain_loop()) loops.push_back(*loop);
    return loops.size() == a.index.size() ? loops : std::vector<LoopId>();
  };
  for (OpId id : w.topological_order()) {
    const Operator& op = w.op(id);
    if (op.outputs.size() != 1) return {};
    const Output& out = op.outputs[0];
    const Access& target = out.target;
    if (!all.empty() && op.inputs.size() == 1 && out.combine == Combine::assign &&
        out.value.kind == Expr::Kind::call && out.value.function == "relu" && !all.back().relu &&
        w.tensor(op.inputs[0].tensor).name == all.back().to &&
        w.consumers(op.inputs[0].tensor).size() == 1 && op.inputs[0].index == target.index) {
      all.back().relu = true;
      all.back().to = w.tensor(target.tensor).name;
      continue;
    }
    if (!w.is_contraction(id) || op.inputs.size() != 2) return {};
    const auto a = loops_of(op.inputs[0]), b = loops_of(op.inputs[1]), to = loops_of(target);
    const std::size_t rank = to.size();
    if ((rank != 2 && rank != 3) || a.size() != rank || b.size() != rank) return {};
    const std::size_t f = rank - 2;  // loops of the batch
    if (f == 1 && (a[0] != to[0] || b[0] != to[0])) return {};
    if (a[f] != to[f] || b[f + 1] != to[f + 1] || a[f + 1] != b[f]) return {};
    all.push_back({w.tensor(op.inputs[0].tensor).name, w.tensor(op.inputs[1].tensor).name,
                   w.tensor(target.tensor).name, f == 1 ? w.loop(to[0]).extent : 1,
                   w.loop(to[f]).extent, w.loop(to[f + 1]).extent, w.loop(a[f + 1]).extent, false});
  }
  return all;
}

Problem::Problem(const Workload& w, std::uint64_t seed)
    : workload_(std::make_shared<const Workload>(w)) {
  TensorValues inputs = random_inputs(w, seed);
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    tensors_.push_back(aligned_floats(w.tensors()[t].elements().value));
    if (!w.is_input(TensorId(t))) continue;
    std::ranges::transform(inputs[t], tensors_[t].get(),
                           [](double x) { return static_cast<float>(x); });
  }
  Bounded all = evaluate_bounded(w, std::move(inputs));
  reference_ = std::move(all.values), bounds_ = std::move(all.bounds);
  forget();
}

std::int64_t Problem::extent(std::string_view loop) const {
  const auto l = workload_->find_loop(loop);
  return l ? workload_->loop(*l).extent : 1;
}

std::int64_t Problem::shape(std::string_view tensor, std::size_t dimension) const {
  const auto t = workload_->find_tensor(tensor);
  if (!t) throw std::out_of_range("no tensor of that name");
  return workload_->tensor(*t).shape.at(dimension);
}

float* Problem::data(std::string_view tensor) const {
  const auto t = workload_->find_tensor(tensor);
  if (!t) throw std::out_of_range("no tensor of that name");
  return tensors_[t->index()].get();
}

void Problem::forget() const {
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    if (!workload_->is_input(TensorId(t)))
      std::fill_n(tensors_[t].get(), workload_->tensors()[t].elements().value,
                  std::numeric_limits<float>::quiet_NaN());
}

double Problem::error() const {
  double worst = 0;
  for (TensorId t : workload_->outputs()) {
    const std::vector<double>& reference = reference_[t.index()];
    worst = std::max(
        worst, relative_error(std::span<const float>(tensors_[t.index()].get(), reference.size()),
                              reference));
  }
  return worst;
}

bool Problem::right() const {
  return std::ranges::all_of(workload_->outputs(), [this](TensorId t) {
    return compare(DType::f32, tensors_[t.index()].get(), reference_[t.index()], bounds_[t.index()])
               .worst <= 1;
  });
}

}  // namespace tilewright::bench
