// Programs on the emulated NPU as a kernel that is verified and run.
#pragma once

#include <vector>

#include "codegen/npu/npu.h"
#include "codegen/target.h"
#include "core/plan/traffic.h"
#include "simulator/npu/emulator.h"

namespace tilewright::npu {

/// Tensors in the host's memory; a run emulates every kernel, one after the other. Its seconds are
/// simulated.
class LoadedKernel final : public codegen::TargetKernel {
 public:
  /// `timeline`: where to write what every pipe did when, .json or .svg; of several kernels one
  /// file each, its name before the ending.
  LoadedKernel(Source source, const Schedule& schedule, std::optional<std::string> timeline = {})
      : source_(std::move(source)),
        workload_(schedule.workload),
        machine_(schedule.machine),
        timeline_(std::move(timeline)) {}
  bool needs(TensorId tensor) const override { return source_.needed[tensor.index()]; }
  std::optional<Reason> write(TensorId tensor, const void* elements) override;
  std::optional<Reason> read(TensorId tensor, void* elements) override;
  Result<double> run() override;
  void describe_run(nlohmann::ordered_json& answer) const override;
  std::optional<Reason> fault(bool right) const override;
  std::vector<codegen::File> files() const override;
  std::optional<Traffic> counted() const override;
  /// The seconds that the last run has simulated: the next would be the same.
  Result<codegen::Timing> time(std::optional<double> budget,
                               const codegen::Progress& progress) override;

  /// Of the last run, by kernel.
  const std::vector<Report>& reports() const { return reports_; }

 private:
  Source source_;
  std::shared_ptr<const Workload> workload_;
  std::shared_ptr<const Machine> machine_;
  std::optional<std::string> timeline_;
  TensorData data_;
  std::vector<Report> reports_;
  double wall_seconds_ = 0;
};

/// What the copies of all kernels moved, as Traffic: every element once for each path of the
/// machine that it took, in its tensor's type, so that it can be held against exact's count;
/// padding that fractals move too is not in it. DRAM/L2 is not counted by path (see `dram` of the
/// reports).
Traffic emulated_traffic(const std::vector<Report>& reports, const Workload& w, const Machine& m);

}  // namespace tilewright::npu
