#include "harness/verified_kernel.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>

#include "core/reference/evaluate.h"

namespace tilewright::harness {
namespace {

constexpr std::size_t kAlignment = 4096;

std::shared_ptr<void> allocate(std::int64_t bytes) {
  const std::size_t whole =
      (static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)) + kAlignment - 1) / kAlignment *
      kAlignment;
  void* memory = std::aligned_alloc(kAlignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, std::free};
}

template <class Element>
void fill(void* memory, std::int64_t count, const std::vector<double>& values) {
  auto* out = static_cast<Element*>(memory);
  // What is not an input starts as NaN, so that an element never written shows.
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = values.empty() ? std::numeric_limits<Element>::quiet_NaN()
                            : static_cast<Element>(values[static_cast<std::size_t>(i)]);
}

template <class Element>
double error_of(const void* memory, const std::vector<double>& reference) {
  return relative_error(std::span<const Element>(static_cast<const Element*>(memory),
                                                 reference.size()),
                        reference);
}

}  // namespace

double tolerance_of(const Workload& w) {
  std::vector<double> depth(w.tensors().size(), 0);  // additions behind each tensor's elements
  for (OpId id : w.topological_order()) {
    const Operator& op = w.op(id);
    double most = 0, sums = 1;
    for (const Access& a : op.inputs) most = std::max(most, depth[a.tensor.index()]);
    for (LoopId l : w.reduction_loops(id)) sums *= static_cast<double>(w.loop(l).extent);
    for (const Output& o : op.outputs) depth[o.target.tensor.index()] = most + sums;
  }
  double most = 0;
  for (TensorId t : w.outputs()) most = std::max(most, depth[t.index()]);
  const double half_ulp = w.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon() / 2
                                                  : std::numeric_limits<float>::epsilon() / 2.0;
  return half_ulp * (16 + most);
}

double VerifiedKernel::run() {
  const auto start = std::chrono::steady_clock::now();
  kernel_.run(tensors_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Verifier {
  static VerifyResult verify(cpu::Kernel kernel, const Workload& w, std::uint64_t seed) {
    auto candidate = std::unique_ptr<VerifiedKernel>(new VerifiedKernel(std::move(kernel)));
    TensorValues inputs = random_inputs(w, seed);
    const std::vector<bool>& needed = candidate->source().needed;
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      const Tensor& tensor = w.tensors()[t];
      const bool kept = t < needed.size() && needed[t];
      candidate->storage_.push_back(kept ? allocate(tensor.bytes().value) : nullptr);
      candidate->tensors_.push_back(candidate->storage_.back().get());
      if (!kept) continue;
      const auto fill_one = tensor.dtype == DType::f64 ? fill<double> : fill<float>;
      fill_one(candidate->tensors_[t], tensor.elements().value, inputs[t]);
    }
    candidate->run();
    const TensorValues reference = evaluate(w, std::move(inputs));
    Verification& v = candidate->verification_;
    v.tolerance = tolerance_of(w);
    for (TensorId t : w.outputs()) {
      const auto error = w.tensor(t).dtype == DType::f64 ? error_of<double> : error_of<float>;
      const void* got = candidate->tensors_[t.index()];
      TW_CHECK(got != nullptr, "a kernel that does not write an output");
      v.relative_error = std::max(v.relative_error, error(got, reference[t.index()]));
    }
    if (!v.verified()) return {v, nullptr};
    const Verification result = v;
    return {result, std::move(candidate)};
  }
};

VerifyResult verify(cpu::Kernel kernel, const Workload& workload, std::uint64_t seed) {
  return Verifier::verify(std::move(kernel), workload, seed);
}

}  // namespace tilewright::harness
