// The CPU target's kernels, their tensors in page-aligned memory.
#pragma once

#include <memory>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "harness/target_kernel.h"

namespace tilewright::harness {

class CpuKernel final : public TargetKernel {
 public:
  CpuKernel(cpu::Kernel kernel, const Workload& workload);
  bool needs(TensorId tensor) const override { return tensors_[tensor.index()] != nullptr; }
  std::optional<Reason> write(TensorId tensor, const void* elements) override;
  std::optional<Reason> read(TensorId tensor, void* elements) override;
  Result<double> run() override;
  const cpu::Source& source() const { return kernel_.source(); }

 private:
  cpu::Kernel kernel_;
  std::vector<std::shared_ptr<void>> storage_;
  std::vector<void*> tensors_;  ///< by TensorId; null: not needed
  std::vector<std::size_t> bytes_;
};

}  // namespace tilewright::harness
