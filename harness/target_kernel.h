// A built kernel, whatever it runs on: what verification and timing ask of every target.
#pragma once

#include <optional>

#include "core/base/error.h"
#include "core/workload/workload.h"

namespace tilewright::harness {

class TargetKernel {
 public:
  virtual ~TargetKernel() = default;
  /// Whether it reads or writes the tensor at home. Of others nothing is written or read.
  virtual bool needs(TensorId tensor) const = 0;
  /// The tensor's elements, row-major, Tensor::bytes() of them, to where the kernel runs and back.
  /// A Reason where the target failed.
  virtual std::optional<Reason> write(TensorId tensor, const void* elements) = 0;
  virtual std::optional<Reason> read(TensorId tensor, void* elements) = 0;
  /// One run on the tensors as they are. Returns the seconds that it took.
  virtual Result<double> run() = 0;
};

}  // namespace tilewright::harness
