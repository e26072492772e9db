// A verified kernel as meters take it: with its shared object, at the addresses that the simulator
// uses.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "codegen/cpu/cpu.h"
#include "core/base/toolchain.h"
#include "core/plan/schedule.h"
#include "harness/verified_kernel.h"
#include "profilers/meter.h"

namespace tilewright::harness {

/// Built, verified, and where each tensor goes while it is measured: where AddressMap puts it, so
/// that simulated and executed addresses are the same. Working memory lies after the last tensor.
class MeteredKernel {
 public:
  /// Emits, builds and verifies. A Reason where any of that fails.
  static Result<std::unique_ptr<MeteredKernel>> make(const Schedule& schedule,
                                                     const cpu::EmitOptions& options,
                                                     const Reference& reference);

  const profilers::BuiltKernel& built() const { return built_; }
  const Verification& verification() const { return kernel_->verification(); }
  const cpu::Source& source() const { return kernel_->source(); }

 private:
  MeteredKernel() = default;
  void place(const Schedule& schedule);
  std::optional<Reason> check(const std::byte* arena) const;

  TemporaryDirectory directory_;
  std::shared_ptr<const Workload> workload_;
  std::unique_ptr<VerifiedKernel> kernel_;
  std::vector<std::vector<std::byte>> before_;  ///< by TensorId: inputs, and NaN for the others
  std::vector<std::vector<double>> after_;      ///< by TensorId: outputs as verified
  profilers::BuiltKernel built_;
};

/// The widest instruction set that runs both here and under the meter.
cpu::Isa isa_for(const profilers::MeterRecord& meter);

}  // namespace tilewright::harness
