// A kernel that is known to compute what its workload says. Nothing else is ever timed or measured.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "core/ir/error.h"
#include "core/ir/workload.h"

namespace tilewright::harness {

/// How far a kernel's outputs were from the reference evaluator's in float64 (convention 10).
struct Verification {
  double relative_error = 0;  ///< max |x - ref| / max |ref|, the worst of the outputs
  double tolerance = 0;       ///< half a unit in the last place, times the additions behind a result
  bool verified() const { return relative_error <= tolerance; }
};

/// Only verify() makes one. Holds the tensors that it was verified on.
class VerifiedKernel {
 public:
  const Verification& verification() const { return verification_; }
  const cpu::Source& source() const { return kernel_.source(); }
  /// By TensorId, null where the kernel needs no memory: inputs as given, outputs of the last run.
  std::span<void* const> tensors() const { return tensors_; }
  /// One run on the same tensors. Returns the seconds that it took.
  double run();

 private:
  friend struct Verifier;
  explicit VerifiedKernel(cpu::Kernel kernel) : kernel_(std::move(kernel)) {}
  cpu::Kernel kernel_;
  std::vector<std::shared_ptr<void>> storage_;
  std::vector<void*> tensors_;
  Verification verification_;
};

struct VerifyResult {
  Verification verification;
  std::unique_ptr<VerifiedKernel> kernel;  ///< null where verification failed
};

/// Runs the kernel once on seeded inputs, outputs filled with NaN before, and holds every output
/// against the reference evaluator. Element types f32 and f64. Cost: one run and one evaluation.
VerifyResult verify(cpu::Kernel kernel, const Workload& workload, std::uint64_t seed);

/// What verify() accepts for a workload: eps / 2 times (16 + the longest sum of reduction lengths from
/// an input to an output), eps that of the element type. A wrong edge tile is a thousand times that.
double tolerance_of(const Workload& workload);

}  // namespace tilewright::harness
