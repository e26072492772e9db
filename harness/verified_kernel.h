// A kernel that is known to compute what its workload says. Nothing else is ever timed or measured.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "codegen/target.h"
#include "core/base/error.h"
#include "core/plan/schedule.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/rounding.h"
#include "core/workload/workload.h"
#include "harness/answer.h"
#include "harness/request.h"

namespace tilewright::harness {

/// How far a kernel's outputs were from the reference evaluator's in float64, element by element
/// against what rounding explains (core/workload/reference/rounding.h).
struct Verification {
  double relative_error = 0;   ///< max |x - ref| / max |ref|, the worst of the outputs
  double tolerance = 0;        ///< the most that any element may be off, so measured
  double worst = 0;            ///< max |x - ref| / what that element may be off by: right up to 1
  TensorId tensor;             ///< of the worst element; none where all are exact
  Comparison at = {};          ///< the worst element
  std::int64_t elements = 0;   ///< of all outputs
  std::int64_t unseen = 0;     ///< those where a wrong value may pass for a right one (Comparison)
  std::int64_t undefined = 0;  ///< those of them that are NaN, in the reference, too
  double seconds = 0;  ///< that the verifying run took, caches as they were: no timing to report
  /// No element is off by more than it may be, and at most one in twenty is `unseen`.
  bool verified() const { return worst <= 1 && unseen <= elements / 20; }
};
/// Into an answer: verified, relative_error, tolerance, worst_element (null where all are exact),
/// unverifiable_elements.
void add_json(nlohmann::ordered_json& json, const Verification& v, const Workload& workload);
/// Why it failed, in one line. `named`: what a tensor is called there; without it as in the
/// workload.
std::string reason_of(const Verification& v, const Workload& workload,
                      const std::function<std::string(TensorId)>& named = {});

/// What a workload's kernels are verified on: seeded inputs, already rounded to their types, what
/// the reference evaluator makes of them, and how far rounding may take a kernel's outputs from
/// that. One serves every kernel of the workload.
struct Reference {
  std::vector<std::vector<std::byte>> inputs;  ///< elements, by TensorId; other tensors are empty
  TensorValues outputs;                        ///< by TensorId; other tensors are empty
  TensorValues bounds;  ///< like outputs, of a kernel that rounds every intermediate to its type
  AcceptedPlaces accepted = {};  ///< with these bounds
  double seconds = 0;            ///< that drawing and evaluating took
  /// Of kernels that keep some in registers (Rounding::kept), as verify has come to them.
  std::shared_ptr<std::map<std::vector<bool>, Bounded>> others = {};
};
/// Cost: two evaluations (evaluate_bounded), on all cores.
Reference reference_of(const Workload& workload, std::uint64_t seed);
/// On these inputs, by TensorId.
Reference reference_of(const Workload& workload, TensorValues inputs);
/// Of the setting's workload as it was named, by the TensorIds of the rewritten one: a rewrite is
/// verified with every kernel. Bounds are of the rewritten one, which is what kernels compute.
Reference reference_of(const Setting& setting, std::uint64_t seed);

using codegen::TargetKernel;

/// Only verify() makes one. Holds the tensors that it was verified on.
class VerifiedKernel {
 public:
  const Verification& verification() const { return verification_; }
  /// One run on the same tensors. Returns the seconds that it took. A kernel that may fail is asked
  /// through kernel().
  double run();
  TargetKernel& kernel() { return *kernel_; }

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
/// wrong. `schedule`, where given, is what the kernel was made from: in 16 bits it says what is
/// rounded (rounding_of), and bounds are computed anew where that is not every intermediate once.
/// Cost: one run, and in 16 bits evaluate_bounded.
VerifyResult verify(std::unique_ptr<TargetKernel> kernel, const Workload& workload,
                    const Reference& reference, const std::function<void()>& after_run = {},
                    const Schedule* schedule = nullptr);

/// Outputs that a kernel has left, by TensorId, against the reference of its inputs. `schedule`: as
/// of verify.
Verification verification_of(const Workload& workload,
                             const std::vector<std::unique_ptr<std::byte[]>>& outputs,
                             const Reference& reference, const Schedule* schedule = nullptr);

/// What a kernel of the schedule rounds to 16 bits: intermediates, but for those that never leave
/// registers and are no operand of a product; partial sums whenever passes of the reduction's loops
/// bring other tiles between, at most. And how often it adds products to a sum.
Rounding rounding_of(const Schedule& schedule);

}  // namespace tilewright::harness
