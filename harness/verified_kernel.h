// A kernel that is known to compute what its workload says. Nothing else is ever timed or measured.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "core/base/error.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/workload.h"
#include "harness/request.h"
#include "harness/target_kernel.h"

namespace tilewright::harness {

/// How far a kernel's outputs were from the reference evaluator's in float64 (convention 10).
struct Verification {
  double relative_error = 0;  ///< max |x - ref| / max |ref|, the worst of the outputs
  double tolerance = 0;       ///< tolerance_of(workload)
  double seconds = 0;         ///< that the verifying run took, caches as they were: no timing to report
  bool verified() const { return relative_error <= tolerance; }
};

/// What a workload's kernels are verified on: seeded inputs, already rounded to their types, and
/// what the reference evaluator makes of them. One serves every kernel of the workload.
struct Reference {
  std::vector<std::vector<std::byte>> inputs;  ///< elements, by TensorId; other tensors are empty
  TensorValues outputs;                        ///< by TensorId; other tensors are empty
  double seconds = 0;                          ///< that drawing and evaluating took
};
/// Cost: one evaluation, on all cores.
Reference reference_of(const Workload& workload, std::uint64_t seed);
/// Of the setting's workload as it was named, by the TensorIds of the rewritten one: a rewrite is
/// verified with every kernel.
Reference reference_of(const Setting& setting, std::uint64_t seed);

/// Only verify() makes one. Holds the tensors that it was verified on.
class VerifiedKernel {
 public:
  const Verification& verification() const { return verification_; }
  /// One run on the same tensors. Returns the seconds that it took. The CPU's runs do not fail; one
  /// of another target that may is asked through kernel().
  double run();
  TargetKernel& kernel() { return *kernel_; }
  /// Of a CPU kernel.
  const cpu::Source& source() const;

 private:
  friend struct Verifier;
  VerifiedKernel(std::unique_ptr<TargetKernel> kernel, const Verification& verification)
      : kernel_(std::move(kernel)), verification_(verification) {}
  std::unique_ptr<TargetKernel> kernel_;
  Verification verification_;
};

struct VerifyResult {
  Verification verification;
  std::unique_ptr<VerifiedKernel> kernel;  ///< null where verification failed
  std::optional<Reason> failure = {};      ///< where the target failed before there was a result
};

/// Runs the kernel once on the inputs, outputs filled with NaN before, and holds every output
/// against the reference. `after_run`, where given, is called once the kernel has run, right or
/// wrong. Cost: one run.
VerifyResult verify(std::unique_ptr<TargetKernel> kernel, const Workload& workload,
                    const Reference& reference, const std::function<void()>& after_run = {});
/// The same of a CPU kernel, on seeded inputs. Cost: one run and one evaluation.
VerifyResult verify(cpu::Kernel kernel, const Setting& setting, std::uint64_t seed);

/// What verify() accepts for a workload.
///
/// f32 and f64: eps / 2 times (16 + the longest sum of reduction lengths from an input to an
/// output), eps that of the element type. A wrong edge tile is a thousand times that.
///
/// f16 and bf16: sums are float, so what counts is rounding to 16 bits, eps / 2 each time: of every
/// operator's result on the longest way from an input to an output, the output's included, and once
/// more because an intermediate's error comes out as a sum of many. Two products: 3 eps / 2, 1.5e-3
/// in f16. Never more than 4 eps / 2 (2.0e-3 and 1.6e-2), whatever the workload; sums in float come
/// on top, as above, and are a twentieth of it at 1500 additions.
double tolerance_of(const Workload& workload);

}  // namespace tilewright::harness
