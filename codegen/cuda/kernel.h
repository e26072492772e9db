// A built CUDA source on a device: its tensors' memory, and its launches as a graph.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "codegen/cuda/build.h"
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/driver.h"

namespace tilewright::cuda {

/// One at a time runs on a device.
class Kernel {
 public:
  /// Loads, and takes memory for every tensor that is needed, `bytes` by TensorId: `copies` sets of
  /// them, which the runs of a graph use in turn. A Reason: what the device has not (shared memory,
  /// room for all blocks of a cooperative launch), or what the driver said.
  static Result<Kernel> load(std::shared_ptr<Device> device, Source source, Binary binary,
                             std::vector<std::int64_t> bytes, int copies = 1);

  /// A tensor's elements into every set of tensors; out of the first one.
  std::optional<Reason> write(TensorId tensor, const void* from);
  std::optional<Reason> read(TensorId tensor, void* to);
  /// The launches once, on the first set. The workspace is zeroed before.
  Result<double> run_once();
  /// The same, for a profiler: see Device::run_profiled.
  std::optional<Reason> run_profiled();
  /// What a run enqueues on that set of tensors, zeroing the workspace first.
  std::vector<GraphNode> nodes(int copy = 0) const;
  /// The same on tensors at these device addresses, by TensorId.
  std::vector<GraphNode> nodes_on(std::span<void* const> tensors) const;
  /// Frees the tensors, after which nothing but nodes_on() is asked.
  void give_up_tensors();

  const Source& source() const { return source_; }
  const Binary& binary() const { return binary_; }
  Device& device() const { return *device_; }
  int copies() const { return copies_; }
  /// Of every launch, in order: what the driver says, and the blocks that a multiprocessor holds.
  const std::vector<FunctionFigures>& figures() const { return figures_; }
  const std::vector<int>& resident_blocks() const { return resident_; }

 private:
  std::optional<Reason> find_functions();
  std::optional<Reason> take_memory();

  std::shared_ptr<Device> device_;
  Source source_;
  Binary binary_;
  int copies_ = 1;
  std::vector<std::int64_t> bytes_;  ///< by TensorId
  Module module_;
  std::vector<void*> functions_;  ///< by launch
  std::vector<FunctionFigures> figures_;
  std::vector<int> resident_;
  std::vector<std::vector<Buffer>> tensors_;  ///< by copy, by TensorId
  Buffer workspace_;
  Graph once_;
};

}  // namespace tilewright::cuda
