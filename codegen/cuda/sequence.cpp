#include "codegen/cuda/sequence.h"

#include <algorithm>

#include "codegen/cuda/loaded.h"

namespace tilewright::cuda {
namespace {

class DeviceSequence final : public codegen::LaunchSequence {
 public:
  explicit DeviceSequence(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  Result<void*> take(std::int64_t bytes) override {
    Result<Buffer> buffer = device_->allocate(bytes);
    if (!buffer) return buffer.why();
    const std::vector<char> filled(static_cast<std::size_t>(bytes), static_cast<char>(0xff));
    if (auto why = device_->upload(*buffer, filled.data(), bytes)) return *why;
    buffers_.push_back(std::move(buffer).value());
    return reinterpret_cast<void*>(buffers_.back().address());
  }
  std::optional<Reason> write(void* to, const void* from, std::int64_t bytes) override {
    return device_->upload_to(reinterpret_cast<std::uint64_t>(to), from, bytes);
  }
  std::optional<Reason> read(void* to, const void* from, std::int64_t bytes) override {
    return device_->download_from(to, reinterpret_cast<std::uint64_t>(from), bytes);
  }
  std::optional<Reason> add(codegen::TargetKernel& kernel,
                            std::span<void* const> tensors) override {
    for (std::size_t t = 0; t < tensors.size(); ++t)
      if (kernel.needs(TensorId(t)) && tensors[t] == nullptr)
        return Reason{"launches stay on the memory that they are added with"};
    Kernel& loaded = dynamic_cast<LoadedKernel&>(kernel).kernel();
    loaded.give_up_tensors();
    launches_.push_back(loaded.nodes_on(tensors));
    return std::nullopt;
  }
  Result<double> run(std::size_t first, std::size_t last) override {
    if (first == last) return 0.0;
    const Result<Graph> graph = device_->capture(nodes(first, last));
    if (!graph) return graph.why();
    return device_->run(*graph, 1);
  }
  Result<codegen::SequenceTiming> time(std::size_t first, std::size_t last, double budget,
                                       const codegen::Progress& progress) override {
    codegen::SequenceTiming timing;
    // Half of the time for the whole, the rest for launches.
    Result<codegen::Timing> whole = time_runs(
        *device_, [&](int) { return nodes(first, last); }, 1, budget / 2);
    if (!whole) return whole.why();
    timing.whole = std::move(whole).value();
    timing.launches_timed_by = "each in CUDA graphs of its own, on the same tensors again";
    const double each = budget / 2 / static_cast<double>(std::max<std::size_t>(last - first, 1));
    for (std::size_t i = first; i < last; ++i) {
      constexpr double kWarmSeconds = 1e-3;  // what came before has warmed the clocks
      Result<codegen::Timing> one = time_runs(
          *device_, [&](int) { return launches_[i]; }, 1, each, kWarmSeconds);
      if (!one) return one.why();
      timing.launches.push_back(std::move(one->seconds));
      if (progress)
        progress("timing", static_cast<double>(i - first) / static_cast<double>(last - first));
    }
    return timing;
  }

 private:
  std::vector<GraphNode> nodes(std::size_t first, std::size_t last) const {
    std::vector<GraphNode> all;
    for (std::size_t i = first; i < last; ++i)
      all.insert(all.end(), launches_[i].begin(), launches_[i].end());
    return all;
  }

  std::shared_ptr<Device> device_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<GraphNode>> launches_;
};

}  // namespace

Result<std::unique_ptr<codegen::LaunchSequence>> device_sequence(
    const std::shared_ptr<codegen::Device>& device) {
  return std::unique_ptr<codegen::LaunchSequence>(
      std::make_unique<DeviceSequence>(dynamic_cast<const OpenDevice&>(*device).device()));
}

}  // namespace tilewright::cuda
