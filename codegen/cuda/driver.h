// The CUDA driver, opened at run time, so that one binary starts with and without it: a device, its
// memory, modules, and launches captured in a graph. Nothing here throws; a Reason says what
// failed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/lowering/gpu/box_map.h"

namespace tilewright::cuda {

struct DeviceInfo {
  std::string name;          ///< "NVIDIA H200"
  int driver_version = 0;    ///< of CUDA, that the driver supports: 13000 is 13.0
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t shared_bytes_a_block = 0;  ///< at most, with opt-in
  std::int64_t shared_bytes_a_multiprocessor = 0;
  bool cooperative = false;
};
/// "13.0"
std::string version_text(int driver_version);

/// What the driver says of a loaded kernel.
struct FunctionFigures {
  int registers = 0;             ///< a thread
  std::int64_t local_bytes = 0;  ///< a thread: spilled registers and arrays in local memory
  std::int64_t static_shared_bytes = 0;
};

class Device;

/// Device memory, freed with the object.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  std::uint64_t address() const { return address_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  friend class Device;
  std::shared_ptr<Device> device_;
  std::uint64_t address_ = 0;
  std::int64_t bytes_ = 0;
};

/// A loaded cubin, unloaded with the object.
class Module {
 public:
  Module() = default;
  Module(Module&& other) noexcept { *this = std::move(other); }
  Module& operator=(Module&& other) noexcept;
  ~Module();

 private:
  friend class Device;
  std::shared_ptr<Device> device_;
  void* handle_ = nullptr;
};

/// One launch, or filling memory with zeros, in a graph.
struct GraphNode {
  void* function = nullptr;              ///< of Device::function; null: zeros
  std::vector<std::uint64_t> arguments;  ///< device addresses; zeros: {where}
  std::vector<std::pair<lowering::BoxMap, std::uint64_t>> boxes = {};  ///< parameters after them:
                                                                       ///< tensors and where
  std::int64_t blocks = 1;
  int threads = 128;
  std::int64_t shared_bytes = 0;
  bool cooperative = false;
  bool early = false;  ///< may begin before the node before it has ended
  std::int64_t zeroed_bytes = 0;
};

/// Nodes captured one after the other, ready to launch.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept { *this = std::move(other); }
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();

 private:
  friend class Device;
  std::shared_ptr<Device> device_;
  void* exec_ = nullptr;
};

/// A device's primary context with one stream, current on the thread that uses it. After a fault on
/// the device (an illegal address, a launch that does not end) nothing more works on it: drop all
/// that holds it and open it again.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// A Reason: no driver on this machine, no device, or what the driver said.
  static Result<std::shared_ptr<Device>> open(int ordinal = 0);
  /// How many devices the driver sees, without making a context.
  static Result<int> count();
  /// What open() would find, without making a context.
  static Result<DeviceInfo> describe(int ordinal = 0);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  bool faulted() const { return faulted_; }
  /// A kernel still runs on it and will not end: only the end of this process frees the device.
  bool hung() const { return hung_; }

  Result<Buffer> allocate(std::int64_t bytes);
  std::optional<Reason> upload(const Buffer& to, const void* from, std::int64_t bytes);
  std::optional<Reason> download(void* to, const Buffer& from, std::int64_t bytes);
  /// The same at any device address; the caller sees to it that the bytes lie in one buffer.
  std::optional<Reason> upload_to(std::uint64_t address, const void* from, std::int64_t bytes);
  std::optional<Reason> download_from(void* to, std::uint64_t address, std::int64_t bytes);

  Result<Module> load(const std::string& cubin);
  /// A kernel of the module that may use so much dynamic shared memory.
  Result<void*> function(const Module& module, const std::string& symbol,
                         std::int64_t shared_bytes);
  Result<FunctionFigures> figures(void* function);
  /// Blocks of it that one multiprocessor holds.
  Result<int> resident_blocks(void* function, int threads, std::int64_t shared_bytes);

  Result<Graph> capture(const std::vector<GraphNode>& nodes);
  /// Seconds of `times` launches of the graph, back to back, by events around them. A Reason where
  /// they do not end within `most_seconds`: the device has then hung.
  Result<double> run(const Graph& graph, int times, double most_seconds = 20);
  /// The same of the nodes, each launched by itself.
  Result<double> run(const std::vector<GraphNode>& nodes, int times, double most_seconds = 20);
  /// The nodes once, one after the other, launched directly between the profiler's start and stop:
  /// what a profiler that begins with neither counts. It may run a kernel many times and takes its
  /// time.
  std::optional<Reason> run_profiled(const std::vector<GraphNode>& nodes,
                                     double most_seconds = 120);

 private:
  friend class Buffer;
  friend class Module;
  friend class Graph;
  Device() = default;
  std::optional<Reason> failed(int code, const char* what);
  std::optional<Reason> make_current();
  std::optional<Reason> enqueue(const GraphNode& node);
  Result<double> timed(int times, double most_seconds,
                       const std::function<std::optional<Reason>()>& launch);
  std::optional<Reason> make_map(const lowering::BoxMap& map, std::uint64_t address, void* made);
  /// Until all that was asked for has ended; it hangs where that takes longer.
  std::optional<Reason> wait(double most_seconds);

  DeviceInfo info_;
  int ordinal_ = 0;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  void* before_ = nullptr;  ///< events
  void* after_ = nullptr;
  bool faulted_ = false, hung_ = false;
};

}  // namespace tilewright::cuda
