// The CUDA target's kernels on a device, and how they are timed.
#pragma once

#include <vector>

#include "codegen/cuda/kernel.h"
#include "harness/target_kernel.h"

namespace tilewright::harness {

class CudaKernel final : public TargetKernel {
 public:
  explicit CudaKernel(cuda::Kernel kernel) : kernel_(std::move(kernel)) {}
  bool needs(TensorId tensor) const override {
    const std::vector<bool>& needed = kernel_.source().needed;
    return tensor.index() < needed.size() && needed[tensor.index()];
  }
  std::optional<Reason> write(TensorId tensor, const void* elements) override {
    return kernel_.write(tensor, elements);
  }
  std::optional<Reason> read(TensorId tensor, void* elements) override {
    return kernel_.read(tensor, elements);
  }
  Result<double> run() override { return kernel_.run_once(); }
  cuda::Kernel& kernel() { return kernel_; }

 private:
  cuda::Kernel kernel_;
};

/// Sets of tensors whose inputs and outputs together are twice the device's L2, at most 1024.
int copies_past_l2(const cuda::DeviceInfo& device, const std::vector<std::int64_t>& bytes,
                   const std::vector<bool>& needed);

struct CudaTiming {
  std::vector<double> seconds;  ///< a run, by batch
  int runs_a_graph = 0;         ///< captured one after the other
  int graphs_a_batch = 0;       ///< launched back to back between two events
};
/// At least 20 batches of at least 200 us, then more until `budget` seconds have passed, at most
/// 200 batches. Before them the kernel runs for some milliseconds, so that clocks and caches are
/// warm.
Result<CudaTiming> time(cuda::Kernel& kernel, double budget);

}  // namespace tilewright::harness
