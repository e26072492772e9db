#include "harness/verified_kernel.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/workload/reference/elements.h"
#include "harness/cpu_kernel.h"

namespace tilewright::harness {
namespace {

/// The longest way from an input to each tensor: in additions, and in operators.
struct Depth {
  double additions = 0;
  int operators = 0;
};

Depth depth_of(const Workload& w) {
  std::vector<Depth> depth(w.tensors().size());
  for (OpId id : w.topological_order()) {
    const Operator& op = w.op(id);
    Depth most;
    double sums = 1;
    for (const Access& a : op.inputs) {
      const Depth& d = depth[a.tensor.index()];
      most = {std::max(most.additions, d.additions), std::max(most.operators, d.operators)};
    }
    for (LoopId l : w.reduction_loops(id)) sums *= static_cast<double>(w.loop(l).extent);
    for (const Output& o : op.outputs)
      depth[o.target.tensor.index()] = {most.additions + sums, most.operators + 1};
  }
  Depth most;
  for (TensorId t : w.outputs())
    most = {std::max(most.additions, depth[t.index()].additions),
            std::max(most.operators, depth[t.index()].operators)};
  return most;
}

using Memory = std::unique_ptr<std::byte[]>;

Memory memory_for(const Tensor& tensor) {
  return std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(tensor.bytes().value));
}

Memory forgotten(const Tensor& tensor) {
  Memory memory = memory_for(tensor);
  fill_with_nan(tensor.dtype, static_cast<std::size_t>(tensor.elements().value), memory.get());
  return memory;
}

}  // namespace

double tolerance_of(const Workload& w) {
  const Depth depth = depth_of(w);
  const bool narrow = w.dtype() == DType::f16 || w.dtype() == DType::bf16;
  const double half_ulp = w.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon() / 2
                                                  : std::numeric_limits<float>::epsilon() / 2.0;
  const double sums = half_ulp * (16 + depth.additions);
  if (!narrow) return sums;
  const double half_ulp_narrow = w.dtype() == DType::f16 ? 0x1p-11 : 0x1p-8;
  return half_ulp_narrow * std::min(4, depth.operators + 1) + sums;
}

Reference reference_of(const Workload& w, std::uint64_t seed) {
  const auto start = std::chrono::steady_clock::now();
  TensorValues inputs = random_inputs(w, seed);
  Reference reference;
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    reference.inputs.emplace_back(inputs[t].size() *
                                  static_cast<std::size_t>(size_of(tensor.dtype)));
    encode_elements(tensor.dtype, inputs[t], reference.inputs[t].data());
  }
  TensorValues all = evaluate(w, std::move(inputs), {.outputs_only = true});
  reference.outputs.resize(all.size());
  for (TensorId t : w.outputs()) reference.outputs[t.index()] = std::move(all[t.index()]);
  reference.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return reference;
}

Reference reference_of(const Setting& setting, std::uint64_t seed) {
  if (!setting.original) return reference_of(*setting.workload, seed);
  Reference named = reference_of(*setting.original, seed);
  const Workload& w = *setting.workload;
  Reference own{std::vector<std::vector<std::byte>>(w.tensors().size()),
                TensorValues(w.tensors().size()), named.seconds};
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const bool input = w.is_input(TensorId(t));
    if (!input && !w.is_output(TensorId(t))) continue;
    const Tensor& tensor = w.tensors()[t];
    const auto same = setting.original->find_tensor(tensor.name);
    TW_CHECK(same && setting.original->tensor(*same) == tensor,
             "a rewrite that changes " + tensor.name);
    if (input)
      own.inputs[t] = std::move(named.inputs[same->index()]);
    else
      own.outputs[t] = std::move(named.outputs[same->index()]);
  }
  return own;
}

double VerifiedKernel::run() {
  const Result<double> seconds = kernel_->run();
  TW_CHECK(seconds.ok(), "a run that failed where none can: " + seconds.reason());
  return *seconds;
}

const cpu::Source& VerifiedKernel::source() const {
  const auto* on_cpu = dynamic_cast<const CpuKernel*>(kernel_.get());
  TW_CHECK(on_cpu != nullptr, "the CPU's source of another target's kernel");
  return on_cpu->source();
}

struct Verifier {
  static VerifyResult verify(std::unique_ptr<TargetKernel> kernel, const Workload& w,
                             const Reference& reference, const std::function<void()>& after_run) {
    Verification v{.tolerance = tolerance_of(w)};
    const auto failed = [&v](const Reason& why) {
      v.relative_error = std::numeric_limits<double>::infinity();
      return VerifyResult{v, nullptr, why};
    };
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      if (!kernel->needs(TensorId(t))) continue;
      // What is not an input starts as NaN, so that an element never written shows.
      const std::vector<std::byte>& input = reference.inputs[t];
      const auto why = kernel->write(
          TensorId(t), input.empty() ? forgotten(w.tensors()[t]).get() : input.data());
      if (why) return failed(*why);
    }
    const Result<double> seconds = kernel->run();
    if (!seconds) return failed(Reason{seconds.reason()});
    v.seconds = *seconds;
    if (after_run) after_run();
    for (TensorId t : w.outputs()) {
      TW_CHECK(kernel->needs(t), "a kernel that does not write an output");
      const Tensor& tensor = w.tensor(t);
      const Memory elements = memory_for(tensor);
      if (auto why = kernel->read(t, elements.get())) return failed(*why);
      v.relative_error = std::max(
          v.relative_error,
          tilewright::relative_error(tensor.dtype, elements.get(), reference.outputs[t.index()]));
    }
    if (!v.verified()) return {v, nullptr};
    return {v, std::unique_ptr<VerifiedKernel>(new VerifiedKernel(std::move(kernel), v))};
  }
};

VerifyResult verify(std::unique_ptr<TargetKernel> kernel, const Workload& workload,
                    const Reference& reference, const std::function<void()>& after_run) {
  return Verifier::verify(std::move(kernel), workload, reference, after_run);
}

VerifyResult verify(cpu::Kernel kernel, const Setting& setting, std::uint64_t seed) {
  const Workload& w = *setting.workload;
  return verify(std::make_unique<CpuKernel>(std::move(kernel), w), w, reference_of(setting, seed));
}

}  // namespace tilewright::harness
