#include "codegen/cpu/loaded.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>

#include "codegen/common/host_memory.h"

namespace tilewright::cpu {

namespace {

/// Floats too small to be normal become zero: a multiply-add of one takes a hundred times as long
/// on some processors, and adds less than 2^-126 of what it is multiplied by.
void drop_subnormal(std::span<std::byte> floats) {
  for (std::size_t at = 0; at + sizeof(float) <= floats.size(); at += sizeof(float)) {
    float x = 0;
    std::memcpy(&x, &floats[at], sizeof x);
    if (std::fpclassify(x) != FP_SUBNORMAL) continue;
    x = 0;
    std::memcpy(&floats[at], &x, sizeof x);
  }
}

}  // namespace

Tensors::Tensors(const Workload& workload) : storage_(workload.tensors().size()) {
  for (const Tensor& t : workload.tensors()) {
    bytes_.push_back(static_cast<std::size_t>(t.bytes().value));
    types_.push_back(t.dtype);
  }
}

void* Tensors::at(TensorId tensor) {
  std::shared_ptr<void>& memory = storage_[tensor.index()];
  if (memory == nullptr) memory = codegen::host_memory(bytes(tensor), 4096);
  if (memory == nullptr) throw std::bad_alloc();
  return memory.get();
}

LoadedKernel::LoadedKernel(Kernel kernel, const Workload& workload)
    : LoadedKernel(std::move(kernel), std::make_shared<Tensors>(workload)) {}

LoadedKernel::LoadedKernel(Kernel kernel, std::shared_ptr<Tensors> tensors)
    : kernel_(std::move(kernel)), memory_(std::move(tensors)) {
  const std::vector<bool>& needed = source().needed;
  for (std::size_t t = 0; t < needed.size(); ++t)
    tensors_.push_back(needed[t] ? memory_->at(TensorId(t)) : nullptr);
}

std::optional<Reason> LoadedKernel::write(TensorId tensor, const void* elements) {
  std::memcpy(tensors_[tensor.index()], elements, memory_->bytes(tensor));
  if (source().constant[tensor.index()]) kept_.clear();
  return std::nullopt;
}

std::optional<Reason> LoadedKernel::read(TensorId tensor, void* elements) {
  std::memcpy(elements, tensors_[tensor.index()], memory_->bytes(tensor));
  return std::nullopt;
}

bool LoadedKernel::place(TensorId tensor, void* elements) {
  if (tensors_[tensor.index()] != elements && memory_->has(tensor)) kept_.clear();
  tensors_[tensor.index()] = elements;
  memory_->give_up(tensor);
  return true;
}

/// Packed where it has not been yet; null where nothing is packed once.
std::shared_ptr<void> LoadedKernel::kept() {
  if (source().kept_bytes == 0) return nullptr;
  std::vector<void*> where;
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    if (source().constant[t]) where.push_back(tensors_[t]);
  std::shared_ptr<void>& memory = kept_[where];
  if (memory == nullptr) {
    std::vector<std::byte> packed(static_cast<std::size_t>(source().kept_bytes));
    kernel_.prepare(tensors_, packed.data());
    bool floats = true;  // one that is of doubles computes in these
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const DType type = memory_->type(TensorId(t));
      floats = floats && type != DType::f64 && (!source().constant[t] || type == DType::f32);
    }
    if (floats) drop_subnormal(packed);
    // A step of a recurrent layer packs what the step before has packed.
    memory = codegen::shared_memory(packed);
    if (memory == nullptr) throw std::bad_alloc();
  }
  return memory;
}

std::unique_ptr<codegen::BoundKernel> LoadedKernel::bound() {
  class Bound final : public codegen::BoundKernel {
   public:
    Bound(Kernel::Launch launch, std::shared_ptr<void> kept)
        : launch_(std::move(launch)), kept_(std::move(kept)) {}
    void run(int thread, int part, int parts) override { launch_.run(thread, part, parts); }
    void place(TensorId tensor, void* elements) override {
      launch_.tensors[tensor.index()] = elements;
    }

   private:
    Kernel::Launch launch_;
    std::shared_ptr<void> kept_;
  };
  std::shared_ptr<void> packed = kept();
  return std::make_unique<Bound>(kernel_.launch(tensors_, packed.get()), packed);
}

Result<double> LoadedKernel::run() {
  const std::shared_ptr<void> packed = kept();
  const auto start = std::chrono::steady_clock::now();
  kernel_.run(tensors_, packed.get());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<codegen::Timing> LoadedKernel::time(std::optional<double> budget,
                                           const codegen::Progress& progress) {
  constexpr int kLeast = 5, kMost = 200;
  constexpr double kPeakSeconds = 0.03, kSeconds = 2;
  const double asked = budget.value_or(kSeconds);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  codegen::Timing timing{.peak_source = "measured: fused multiply-adds in the same run"};
  for (int round = 0; round < kMost && (round < kLeast || elapsed() < asked); ++round) {
    timing.peak_gflops.push_back(fma_peak_gflops(source().isa, source().threads, kPeakSeconds));
    // Short kernels several times a turn, so that the turn is about as long as the peak's.
    double turn = 0;
    do {
      const Result<double> seconds = run();
      if (!seconds) return Reason{seconds.reason()};
      timing.seconds.push_back(*seconds);
      turn += *seconds;
    } while (turn < kPeakSeconds);
    if (progress) progress("timing", std::min(1.0, elapsed() / asked));
    // A kernel that takes seconds is timed less often, so that the whole ends.
    if (round + 1 >= 3 && elapsed() > 4 * asked) break;
  }
  timing.runs = std::ssize(timing.seconds);
  return timing;
}

}  // namespace tilewright::cpu
