// A verified kernel as meters take it: with its shared object, at the addresses that the simulator
// uses.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "codegen/target.h"
#include "core/base/toolchain.h"
#include "core/plan/schedule.h"
#include "harness/verified_kernel.h"
#include "profilers/meter.h"

namespace tilewright::harness {

/// Built, verified, and where each tensor goes while it is measured: where AddressMap puts it, so
/// that simulated and executed addresses are the same. Working memory lies after the last tensor.
class MeteredKernel {
 public:
  /// Builds what was emitted of the schedule, and verifies it. A Reason where any of that fails,
  /// and where the target's kernels are no shared objects.
  static Result<std::unique_ptr<MeteredKernel>> make(const Schedule& schedule,
                                                     codegen::Emitted& emitted,
                                                     const Reference& reference);
  /// The same, emitted for the meter's target with these options, on one thread.
  static Result<std::unique_ptr<MeteredKernel>> make(const Schedule& schedule,
                                                     const profilers::MeterRecord& meter,
                                                     const Reference& reference);

  const profilers::BuiltKernel& built() const { return built_; }
  const Verification& verification() const { return kernel_->verification(); }

 private:
  MeteredKernel() = default;
  void place(const Schedule& schedule, const codegen::HostObject& object);
  std::optional<Reason> check(const std::byte* arena) const;

  TemporaryDirectory directory_;
  std::shared_ptr<const Workload> workload_;
  std::unique_ptr<VerifiedKernel> kernel_;
  std::vector<std::vector<std::byte>> before_;  ///< by TensorId: inputs, and NaN for the others
  std::vector<std::vector<double>> after_;      ///< by TensorId: outputs as verified
  profilers::BuiltKernel built_;
};

/// The options given, and those that a target's kernels need to run under the meter.
OptionValues options_under(const profilers::MeterRecord& meter, const codegen::Target& target,
                           OptionValues given = {});

}  // namespace tilewright::harness
