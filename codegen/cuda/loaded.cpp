#include "codegen/cuda/loaded.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/format.h"

namespace tilewright::cuda {

void OpenDevice::describe(nlohmann::ordered_json& answer) const {
  const DeviceInfo& info = device_->info();
  answer["device"] = {
      {"name", info.name},
      {"driver_version", version_text(info.driver_version)},
      {"compute_capability", std::to_string(info.major) + "." + std::to_string(info.minor)},
      {"multiprocessors", info.multiprocessors},
      {"l2_bytes", info.l2_bytes},
      {"memory_bytes", info.memory_bytes}};
}

int copies_past_l2(const DeviceInfo& device, const std::vector<std::int64_t>& bytes,
                   const std::vector<bool>& needed) {
  std::int64_t set = 0;
  for (std::size_t t = 0; t < bytes.size(); ++t)
    if (t < needed.size() && needed[t]) set += bytes[t];
  constexpr std::int64_t kMost = 1024;
  const std::int64_t wanted = 2 * device.l2_bytes / std::max<std::int64_t>(set, 1) + 1;
  return static_cast<int>(std::min(wanted, kMost));
}

Result<codegen::Timing> time_runs(cuda::Device& device,
                                  const std::function<std::vector<GraphNode>(int)>& nodes,
                                  int copies, double budget, double warm_seconds, LaunchBy launch) {
  constexpr double kBatchSeconds = 300e-6, kGraphSeconds = 2e-3;
  constexpr int kLeast = 20, kMost = 200, kRunsAGraph = 20;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto several = [&](int runs) {
    std::vector<GraphNode> all;
    for (int r = 0; r < runs; ++r)
      for (GraphNode& node : nodes(r % copies)) all.push_back(std::move(node));
    return all;
  };
  const Result<Graph> single = device.capture(several(1));
  if (!single) return Reason{single.reason()};
  const Result<double> once = device.run(*single, 1);
  if (!once) return Reason{once.reason()};
  // Short kernels many times a graph, so that what the host does to launch one is hidden; every set
  // of tensors equally often.
  const int fitting = static_cast<int>(std::min<double>(kRunsAGraph, kGraphSeconds / *once));
  const int runs_a_graph = (std::max(fitting, 1) + copies - 1) / copies * copies;
  const std::vector<GraphNode> all = several(runs_a_graph);
  const Result<Graph> graph = device.capture(all);
  if (!graph) return Reason{graph.reason()};
  const auto launched = [&](int times) {
    return launch == LaunchBy::graph ? device.run(*graph, times) : device.run(all, times);
  };
  double run = 0;
  do {
    const Result<double> seconds = launched(1);
    if (!seconds) return Reason{seconds.reason()};
    run = *seconds / runs_a_graph;
  } while (elapsed() < warm_seconds);
  const int graphs_a_batch =
      static_cast<int>(std::ceil(kBatchSeconds / std::max(run * runs_a_graph, 1e-9)));
  const int runs_a_batch = runs_a_graph * graphs_a_batch;
  codegen::Timing timing;
  for (int batch = 0; batch < kMost && (batch < kLeast || elapsed() < budget); ++batch) {
    const Result<double> seconds = launched(graphs_a_batch);
    if (!seconds) return Reason{seconds.reason()};
    timing.seconds.push_back(*seconds / runs_a_batch);
  }
  timing.runs = std::ssize(timing.seconds) * runs_a_batch;
  timing.detail["batches"] = timing.seconds.size();
  timing.detail["runs_a_batch"] = runs_a_batch;
  timing.detail["timed_by"] =
      launch == LaunchBy::graph
          ? formatted("events around {} launches of a CUDA graph of {} runs", graphs_a_batch,
                      runs_a_graph)
          : formatted("events around {} runs, each kernel launched by itself", runs_a_batch);
  timing.detail["l2"] = copies > 1 ? formatted("cold: {} sets of tensors in turn", copies)
                                   : std::string("warm: every run on the same tensors");
  return timing;
}

Result<codegen::Timing> LoadedKernel::time(std::optional<double> asked, const codegen::Progress&) {
  constexpr double kSeconds = 0.25;
  return time_runs(
      kernel_.device(), [&](int copy) { return kernel_.nodes(copy); }, kernel_.copies(),
      asked.value_or(kSeconds), 20e-3, launch_);
}

}  // namespace tilewright::cuda
