#include "harness/cuda_kernel.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tilewright::harness {

int copies_past_l2(const cuda::DeviceInfo& device, const std::vector<std::int64_t>& bytes,
                   const std::vector<bool>& needed) {
  std::int64_t set = 0;
  for (std::size_t t = 0; t < bytes.size(); ++t)
    if (t < needed.size() && needed[t]) set += bytes[t];
  constexpr std::int64_t kMost = 1024;
  const std::int64_t wanted = 2 * device.l2_bytes / std::max<std::int64_t>(set, 1) + 1;
  return static_cast<int>(std::min(wanted, kMost));
}

Result<CudaTiming> time(cuda::Kernel& kernel, double budget) {
  constexpr double kBatchSeconds = 300e-6, kGraphSeconds = 2e-3, kWarmSeconds = 20e-3;
  constexpr int kLeast = 20, kMost = 200, kRunsAGraph = 20;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const Result<double> once = kernel.run_once();
  if (!once) return Reason{once.reason()};
  CudaTiming timing;
  // Short kernels many times a graph, so that what the host does to launch one is hidden; every set
  // of tensors equally often.
  const int fitting = static_cast<int>(std::min<double>(kRunsAGraph, kGraphSeconds / *once));
  const int copies = kernel.copies();
  timing.runs_a_graph = (std::max(fitting, 1) + copies - 1) / copies * copies;
  if (auto why = kernel.capture(timing.runs_a_graph)) return *why;
  double run = 0;
  do {
    const Result<double> seconds = kernel.run_repeated(1);
    if (!seconds) return Reason{seconds.reason()};
    run = *seconds;
  } while (elapsed() < kWarmSeconds);
  timing.graphs_a_batch =
      static_cast<int>(std::ceil(kBatchSeconds / std::max(run * timing.runs_a_graph, 1e-9)));
  for (int batch = 0; batch < kMost && (batch < kLeast || elapsed() < budget); ++batch) {
    const Result<double> seconds = kernel.run_repeated(timing.graphs_a_batch);
    if (!seconds) return Reason{seconds.reason()};
    timing.seconds.push_back(*seconds);
  }
  return timing;
}

}  // namespace tilewright::harness
