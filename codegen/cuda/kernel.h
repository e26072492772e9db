// A built CUDA source on a device: its tensors' memory, and its launches as a graph.
#pragma once

#include <memory>
#include <vector>

#include "codegen/cuda/build.h"
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/driver.h"

namespace tilewright::cuda {

struct KernelOptions {
  /// How often the launches stand in the graph that is timed: so that what starting a graph costs the
  /// host falls between many runs.
  int repeats = 20;
  /// Sets of tensors, used in turn by the runs of that graph. More than one, together larger than L2:
  /// inputs come from memory; one: from L2 where they fit.
  int copies = 1;
};

/// Copies of one kernel share nothing; use one at a time on a device.
class Kernel {
 public:
  /// Loads, and takes memory for every tensor that is needed, `bytes` by TensorId. A Reason: what the
  /// device has not (shared memory, room for all blocks of a cooperative launch), or what the driver said.
  static Result<Kernel> load(std::shared_ptr<Device> device, Source source, Binary binary,
                             std::vector<std::int64_t> bytes, const KernelOptions& options = {});

  /// A tensor's elements into every set of tensors; out of the first one.
  std::optional<Reason> write(TensorId tensor, const void* from);
  std::optional<Reason> read(TensorId tensor, void* to);
  /// The launches once, on the first set. The workspace is zeroed before.
  Result<double> run_once();
  /// Seconds a run, of `graphs` launches of the graph with options.repeats runs each; zeroing the
  /// workspace is part of a run.
  Result<double> run_repeated(int graphs);

  const Source& source() const { return source_; }
  const Binary& binary() const { return binary_; }
  const Device& device() const { return *device_; }
  const KernelOptions& options() const { return options_; }
  /// Of every launch, in order: what the driver says, and the blocks that a multiprocessor holds.
  const std::vector<FunctionFigures>& figures() const { return figures_; }
  const std::vector<int>& resident_blocks() const { return resident_; }

 private:
  std::optional<Reason> find_functions();
  std::optional<Reason> take_memory();
  std::vector<GraphNode> nodes(int copy) const;

  std::shared_ptr<Device> device_;
  Source source_;
  Binary binary_;
  KernelOptions options_;
  std::vector<std::int64_t> bytes_;          ///< by TensorId
  Module module_;
  std::vector<void*> functions_;             ///< by launch
  std::vector<FunctionFigures> figures_;
  std::vector<int> resident_;
  std::vector<std::vector<Buffer>> tensors_; ///< by copy, by TensorId
  Buffer workspace_;
  Graph once_, repeated_;
};

}  // namespace tilewright::cuda
