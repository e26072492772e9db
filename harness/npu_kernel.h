// Programs on the emulated NPU as a kernel that is verified and run.
#pragma once

#include <vector>

#include "codegen/npu/npu.h"
#include "core/plan/traffic.h"
#include "harness/target_kernel.h"
#include "simulator/npu/emulator.h"

namespace tilewright::harness {

/// Tensors in the host's memory; a run emulates every kernel, one after the other. Its seconds are
/// simulated.
class NpuKernel final : public TargetKernel {
 public:
  NpuKernel(const npu::Source& source, const Workload& w, const Machine& machine,
            npu::EmulatorOptions options = {})
      : source_(source), w_(w), machine_(machine), options_(options) {}
  bool needs(TensorId tensor) const override { return source_.needed[tensor.index()]; }
  std::optional<Reason> write(TensorId tensor, const void* elements) override;
  std::optional<Reason> read(TensorId tensor, void* elements) override;
  Result<double> run() override;

  /// Of the last run, by kernel.
  const std::vector<npu::Report>& reports() const { return reports_; }

 private:
  const npu::Source& source_;
  const Workload& w_;
  const Machine& machine_;
  npu::EmulatorOptions options_;
  npu::TensorData data_;
  std::vector<npu::Report> reports_;
};

/// What the copies of all kernels moved, as Traffic: every element once for each path of the machine
/// that it took, in its tensor's type, so that it can be held against exact's count; padding that
/// fractals move too is not in it. DRAM/L2 is not counted by path (see `dram` of the reports).
Traffic emulated_traffic(const std::vector<npu::Report>& reports, const Workload& w,
                         const Machine& m);

/// A tensor at a boundary of which two counts differ.
struct PathDifference {
  std::string tensor, boundary;
  Bytes exact, emulated;  ///< read and written
};
/// At every boundary that exact counts, and every one that the emulator saw; read and written
/// together.
std::vector<PathDifference> path_differences(const Traffic& exact, const Traffic& emulated);

}  // namespace tilewright::harness
