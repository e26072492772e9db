// The CPU target's kernels, their tensors in page-aligned memory.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "codegen/target.h"

namespace tilewright::cpu {

/// Page-aligned memory of a workload's tensors, taken when one is first asked for. Kernels that
/// share it work on the same pages, so that no luck with addresses comes between them.
class Tensors {
 public:
  explicit Tensors(const Workload& workload);
  /// A tensor's first element, Tensor::bytes() of them. Throws std::bad_alloc.
  void* at(TensorId tensor);
  bool has(TensorId tensor) const { return storage_[tensor.index()] != nullptr; }
  void give_up(TensorId tensor) { storage_[tensor.index()] = nullptr; }
  std::size_t bytes(TensorId tensor) const { return bytes_[tensor.index()]; }
  DType type(TensorId tensor) const { return types_[tensor.index()]; }

 private:
  std::vector<std::shared_ptr<void>> storage_;
  std::vector<std::size_t> bytes_;
  std::vector<DType> types_;
};

class LoadedKernel final : public codegen::TargetKernel {
 public:
  LoadedKernel(Kernel kernel, const Workload& workload);
  /// On tensors that other kernels of the workload use too: one at a time.
  LoadedKernel(Kernel kernel, std::shared_ptr<Tensors> tensors);
  bool needs(TensorId tensor) const override { return tensors_[tensor.index()] != nullptr; }
  std::optional<Reason> write(TensorId tensor, const void* elements) override;
  std::optional<Reason> read(TensorId tensor, void* elements) override;
  bool place(TensorId tensor, void* elements) override;
  Result<double> run() override;
  std::int64_t scratch_bytes() const override { return kernel_.scratch_bytes(); }
  void share_scratch(std::shared_ptr<void> memory, std::int64_t bytes) override {
    kernel_.share_scratch(std::move(memory), bytes);
  }
  int threads() const override { return source().in_parts ? source().threads : 1; }
  std::unique_ptr<codegen::BoundKernel> bound() override;
  /// Kernel and peak turn by turn, so that what else the machine does falls on both alike.
  Result<codegen::Timing> time(std::optional<double> budget,
                               const codegen::Progress& progress) override;
  const Source& source() const { return kernel_.source(); }

 private:
  std::shared_ptr<void> kept();

  Kernel kernel_;
  std::shared_ptr<Tensors> memory_;
  /// What is packed once, by where the constant tensors lie.
  std::map<std::vector<void*>, std::shared_ptr<void>> kept_;
  std::vector<void*> tensors_;  ///< by TensorId; null: not needed
};

}  // namespace tilewright::cpu
