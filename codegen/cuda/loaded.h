// The CUDA target's kernels on a device, and how they are timed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "codegen/cuda/kernel.h"
#include "codegen/target.h"

namespace tilewright::cuda {

/// A device as the harness opens it.
class OpenDevice final : public codegen::Device {
 public:
  explicit OpenDevice(std::shared_ptr<cuda::Device> device) : device_(std::move(device)) {}
  void describe(nlohmann::ordered_json& answer) const override;
  bool faulted() const override { return device_->faulted(); }
  bool hung() const override { return device_->hung(); }
  const std::shared_ptr<cuda::Device>& device() const { return device_; }

 private:
  std::shared_ptr<cuda::Device> device_;
};

/// How runs that are timed are launched: many in a CUDA graph, or kernel by kernel.
enum class LaunchBy : std::uint8_t { graph, stream };

class LoadedKernel final : public codegen::TargetKernel {
 public:
  LoadedKernel(Kernel kernel, LaunchBy launch) : kernel_(std::move(kernel)), launch_(launch) {}
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
  std::optional<Reason> run_profiled() override { return kernel_.run_profiled(); }
  /// As time_runs() says, for a quarter of a second.
  Result<codegen::Timing> time(std::optional<double> budget,
                               const codegen::Progress& progress) override;
  Kernel& kernel() { return kernel_; }

 private:
  Kernel kernel_;
  LaunchBy launch_;
};

/// At least 20 batches of at least 200 us, then more until `budget` has passed, at most 200
/// batches. A run enqueues nodes(i) where i counts up to `copies` again and again. Before the
/// batches runs go on for some milliseconds, so that clocks and caches are warm. By stream, what
/// the host takes to launch a kernel is in the time where the kernel before it is shorter.
Result<codegen::Timing> time_runs(cuda::Device& device,
                                  const std::function<std::vector<GraphNode>(int)>& nodes,
                                  int copies, double budget, double warm_seconds = 20e-3,
                                  LaunchBy launch = LaunchBy::graph);

/// Sets of tensors whose inputs and outputs together are twice the device's L2, at most 1024.
int copies_past_l2(const DeviceInfo& device, const std::vector<std::int64_t>& bytes,
                   const std::vector<bool>& needed);

}  // namespace tilewright::cuda
