#include "harness/cpu_kernel.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tilewright::harness {
namespace {

constexpr std::size_t kAlignment = 4096;

std::shared_ptr<void> allocate(std::size_t bytes) {
  const std::size_t whole =
      (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, std::free};
}

}  // namespace

CpuTensors::CpuTensors(const Workload& workload) : storage_(workload.tensors().size()) {
  for (const Tensor& t : workload.tensors())
    bytes_.push_back(static_cast<std::size_t>(t.bytes().value));
}

void* CpuTensors::at(TensorId tensor) {
  std::shared_ptr<void>& memory = storage_[tensor.index()];
  if (memory == nullptr) memory = allocate(bytes(tensor));
  return memory.get();
}

CpuKernel::CpuKernel(cpu::Kernel kernel, const Workload& workload)
    : CpuKernel(std::move(kernel), std::make_shared<CpuTensors>(workload)) {}

CpuKernel::CpuKernel(cpu::Kernel kernel, std::shared_ptr<CpuTensors> tensors)
    : kernel_(std::move(kernel)), memory_(std::move(tensors)) {
  const std::vector<bool>& needed = source().needed;
  for (std::size_t t = 0; t < needed.size(); ++t)
    tensors_.push_back(needed[t] ? memory_->at(TensorId(t)) : nullptr);
}

std::optional<Reason> CpuKernel::write(TensorId tensor, const void* elements) {
  std::memcpy(tensors_[tensor.index()], elements, memory_->bytes(tensor));
  return std::nullopt;
}

std::optional<Reason> CpuKernel::read(TensorId tensor, void* elements) {
  std::memcpy(elements, tensors_[tensor.index()], memory_->bytes(tensor));
  return std::nullopt;
}

Result<double> CpuKernel::run() {
  const auto start = std::chrono::steady_clock::now();
  kernel_.run(tensors_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tilewright::harness
