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

CpuKernel::CpuKernel(cpu::Kernel kernel, const Workload& workload) : kernel_(std::move(kernel)) {
  const std::vector<bool>& needed = source().needed;
  for (std::size_t t = 0; t < workload.tensors().size(); ++t) {
    bytes_.push_back(static_cast<std::size_t>(workload.tensors()[t].bytes().value));
    storage_.push_back(t < needed.size() && needed[t] ? allocate(bytes_[t]) : nullptr);
    tensors_.push_back(storage_.back().get());
  }
}

std::optional<Reason> CpuKernel::write(TensorId tensor, const void* elements) {
  std::memcpy(tensors_[tensor.index()], elements, bytes_[tensor.index()]);
  return std::nullopt;
}

std::optional<Reason> CpuKernel::read(TensorId tensor, void* elements) {
  std::memcpy(elements, tensors_[tensor.index()], bytes_[tensor.index()]);
  return std::nullopt;
}

Result<double> CpuKernel::run() {
  const auto start = std::chrono::steady_clock::now();
  kernel_.run(tensors_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tilewright::harness
