#include "codegen/cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

namespace tilewright::cuda {
namespace {

// The driver's C interface, as its documentation has it ("CUDA Driver API"): handles are pointers,
// device addresses 64-bit numbers, results int (0: success). Names with _v2 are what its header
// maps the plain ones to.
using Handle = void*;
using Address = unsigned long long;

#define TW_DRIVER_FUNCTIONS(F)                                                                     \
  F(cuInit, (unsigned))                                                                            \
  F(cuDriverGetVersion, (int*))                                                                    \
  F(cuGetErrorName, (int, const char**))                                                           \
  F(cuGetErrorString, (int, const char**))                                                         \
  F(cuDeviceGetCount, (int*))                                                                      \
  F(cuDeviceGet, (int*, int))                                                                      \
  F(cuDeviceGetName, (char*, int, int))                                                            \
  F(cuDeviceGetAttribute, (int*, int, int))                                                        \
  F(cuDeviceTotalMem_v2, (std::size_t*, int))                                                      \
  F(cuDevicePrimaryCtxRetain, (Handle*, int))                                                      \
  F(cuDevicePrimaryCtxRelease_v2, (int))                                                           \
  F(cuDevicePrimaryCtxReset_v2, (int))                                                             \
  F(cuCtxSetCurrent, (Handle))                                                                     \
  F(cuModuleLoadData, (Handle*, const void*))                                                      \
  F(cuModuleUnload, (Handle))                                                                      \
  F(cuModuleGetFunction, (Handle*, Handle, const char*))                                           \
  F(cuFuncGetAttribute, (int*, int, Handle))                                                       \
  F(cuFuncSetAttribute, (Handle, int, int))                                                        \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, Handle, int, std::size_t))                 \
  F(cuMemAlloc_v2, (Address*, std::size_t))                                                        \
  F(cuMemFree_v2, (Address))                                                                       \
  F(cuMemcpyHtoDAsync_v2, (Address, const void*, std::size_t, Handle))                             \
  F(cuMemcpyDtoH_v2, (void*, Address, std::size_t))                                                \
  F(cuMemsetD8Async, (Address, unsigned char, std::size_t, Handle))                                \
  F(cuStreamCreate, (Handle*, unsigned))                                                           \
  F(cuStreamSynchronize, (Handle))                                                                 \
  F(cuStreamDestroy_v2, (Handle))                                                                  \
  F(cuStreamBeginCapture_v2, (Handle, int))                                                        \
  F(cuStreamEndCapture, (Handle, Handle*))                                                         \
  F(cuGraphInstantiateWithFlags, (Handle*, Handle, unsigned long long))                            \
  F(cuGraphLaunch, (Handle, Handle))                                                               \
  F(cuProfilerStart, ())                                                                           \
  F(cuProfilerStop, ())                                                                            \
  F(cuGraphExecDestroy, (Handle))                                                                  \
  F(cuGraphDestroy, (Handle))                                                                      \
  F(cuEventCreate, (Handle*, unsigned))                                                            \
  F(cuEventDestroy_v2, (Handle))                                                                   \
  F(cuEventRecord, (Handle, Handle))                                                               \
  F(cuEventQuery, (Handle))                                                                        \
  F(cuEventElapsedTime, (float*, Handle, Handle))                                                  \
  F(cuLaunchKernel, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     Handle, void**, void**))                                                      \
  F(cuLaunchCooperativeKernel, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned,          \
                                unsigned, unsigned, Handle, void**))

struct Table {
#define TW_MEMBER(NAME, PARAMETERS) int(*NAME) PARAMETERS = nullptr;
  TW_DRIVER_FUNCTIONS(TW_MEMBER)
#undef TW_MEMBER
  /// Drivers for CUDA 11 have none.
  int (*cuTensorMapEncodeTiled)(void* map, int type, unsigned rank, void* address,
                                const std::uint64_t* extents, const std::uint64_t* strides,
                                const unsigned* box, const unsigned* steps, int interleave,
                                int swizzle, int promotion, int outside) = nullptr;
  /// Drivers for CUDA 11.7 have none.
  int (*cuLaunchKernelEx)(const void* config, Handle function, void** arguments,
                          void** extra) = nullptr;
  int version = 0;
};

/// CUlaunchConfig with one attribute, and that attribute: 64 bytes of value at a multiple of 8.
struct LaunchAttribute {
  int id = 0;
  alignas(8) std::array<int, 16> value{};
};
struct LaunchConfig {
  unsigned blocks = 1, blocks_y = 1, blocks_z = 1, threads = 1, threads_y = 1, threads_z = 1;
  unsigned shared_bytes = 0;
  Handle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned count = 0;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);
constexpr int kProgrammaticStreamSerialization = 6;  // CU_LAUNCH_ATTRIBUTE_…
constexpr int kEarlyInGraphs = 12030;  // the first driver that captures such launches in graphs

constexpr int kNotReady = 600;          // CUDA_ERROR_NOT_READY
constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
constexpr int kThreadLocalCapture = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

enum DeviceAttribute {
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kMajor = 75,
  kMinor = 76,
  kSharedAMultiprocessor = 81,
  kCooperative = 95,
  kSharedABlock = 97,
};
enum TensorMapWord {
  kF16 = 6,
  kF32 = 7,
  kBf16 = 9,
  kNoInterleave = 0,
  kSwizzle128 = 3,
  kL2Of256 = 3
};
enum FunctionAttribute {
  kStaticShared = 1,
  kLocal = 3,
  kRegisters = 4,
  kMaxDynamicShared = 8,
  kSharedCarveout = 9,
};

/// Errors after which the driver's documentation lets a context do nothing more: an illegal
/// address, a timeout, an assertion, hardware errors, an illegal instruction, a misaligned address,
/// a launch that failed.
bool loses_context(int code) { return code == 700 || code == 702 || (code >= 710 && code <= 719); }

std::string message(const Table& t, int code) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (t.cuGetErrorName(code, &name) != 0 || name == nullptr) return "error " + std::to_string(code);
  if (t.cuGetErrorString(code, &text) != 0 || text == nullptr) return name;
  return std::string(name) + ", " + text;
}

Handle open_library() {
  // By the loader's own paths, then where containers and WSL mount it.
  for (const char* name :
       {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"})
    if (Handle library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

Result<Table> load_table() {
  const Handle library = open_library();
  if (library == nullptr) return Reason{"no NVIDIA driver here (libcuda.so.1 is not found)"};
  Table t;
#define TW_LOAD(NAME, PARAMETERS)                                      \
  t.NAME = reinterpret_cast<int(*) PARAMETERS>(dlsym(library, #NAME)); \
  if (t.NAME == nullptr)                                               \
    return Reason{"the NVIDIA driver here is too old: its libcuda.so.1 has no " #NAME};
  TW_DRIVER_FUNCTIONS(TW_LOAD)
#undef TW_LOAD
  t.cuTensorMapEncodeTiled = reinterpret_cast<decltype(t.cuTensorMapEncodeTiled)>(
      dlsym(library, "cuTensorMapEncodeTiled"));
  t.cuLaunchKernelEx =
      reinterpret_cast<decltype(t.cuLaunchKernelEx)>(dlsym(library, "cuLaunchKernelEx"));
  if (const int code = t.cuInit(0); code != 0)
    return Reason{"the NVIDIA driver does not start: " + message(t, code)};
  t.cuDriverGetVersion(&t.version);
  return t;
}

/// Opened once; it stays.
const Result<Table>& driver() {
  static const Result<Table> table = load_table();
  return table;
}

Result<DeviceInfo> info_of(const Table& t, int device) {
  DeviceInfo info;
  info.driver_version = t.version;
  char name[256] = {};
  std::size_t memory = 0;
  if (t.cuDeviceGetName(name, sizeof name - 1, device) != 0 ||
      t.cuDeviceTotalMem_v2(&memory, device) != 0)
    return Reason{"the device does not say its name and memory"};
  info.name = name;
  info.memory_bytes = static_cast<std::int64_t>(memory);
  const auto attribute = [&](DeviceAttribute which) {
    int value = 0;
    return t.cuDeviceGetAttribute(&value, which, device) == 0 ? value : 0;
  };
  info.major = attribute(kMajor);
  info.minor = attribute(kMinor);
  info.multiprocessors = attribute(kMultiprocessors);
  info.l2_bytes = attribute(kL2Bytes);
  info.shared_bytes_a_block = attribute(kSharedABlock);
  info.shared_bytes_a_multiprocessor = attribute(kSharedAMultiprocessor);
  info.cooperative = attribute(kCooperative) != 0;
  return info;
}

}  // namespace

std::string version_text(int driver_version) {
  return std::to_string(driver_version / 1000) + "." + std::to_string(driver_version % 1000 / 10);
}

// ---- What is freed with its object
// ---------------------------------------------------------------

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Buffer::~Buffer() {
  if (address_ == 0 || device_->make_current()) return;
  driver()->cuMemFree_v2(address_);
}

Module& Module::operator=(Module&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}
Module::~Module() {
  if (handle_ == nullptr || device_->make_current()) return;
  driver()->cuModuleUnload(handle_);
}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(exec_, other.exec_);
  return *this;
}
Graph::~Graph() {
  if (exec_ == nullptr || device_->make_current()) return;
  driver()->cuGraphExecDestroy(exec_);
}

// ---- The device
// ----------------------------------------------------------------------------------

Result<int> Device::count() {
  if (!driver()) return Reason{driver().reason()};
  int count = 0;
  if (const int code = driver()->cuDeviceGetCount(&count); code != 0)
    return Reason{"the NVIDIA driver does not list its devices: " + message(*driver(), code)};
  return count;
}

Result<DeviceInfo> Device::describe(int ordinal) {
  const Result<int> devices = count();
  if (!devices) return Reason{devices.reason()};
  if (ordinal < 0 || ordinal >= *devices)
    return Reason{"the NVIDIA driver sees no device " + std::to_string(ordinal) + " (it sees " +
                  std::to_string(*devices) + ")"};
  int device = 0;
  if (const int code = driver()->cuDeviceGet(&device, ordinal); code != 0)
    return Reason{"the device does not open: " + message(*driver(), code)};
  return info_of(*driver(), device);
}

Result<std::shared_ptr<Device>> Device::open(int ordinal) {
  Result<DeviceInfo> info = describe(ordinal);
  if (!info) return Reason{info.reason()};
  const Table& t = *driver();
  const std::shared_ptr<Device> device(new Device());
  device->info_ = *info;
  t.cuDeviceGet(&device->ordinal_, ordinal);
  if (auto why = device->failed(t.cuDevicePrimaryCtxRetain(&device->context_, device->ordinal_),
                                "making a context"))
    return *why;
  if (auto why = device->make_current()) return *why;
  if (auto why = device->failed(t.cuStreamCreate(&device->stream_, kNonBlocking), "a stream"))
    return *why;
  for (Handle* event : {&device->before_, &device->after_})
    if (auto why = device->failed(t.cuEventCreate(event, 0), "an event")) return *why;
  return device;
}

Device::~Device() {
  // A kernel that does not end would be waited for: only the end of the process frees the device.
  if (context_ == nullptr || hung_) return;
  const Table& t = *driver();
  if (faulted_) {
    // Frees what the fault left unusable; the next open() starts afresh.
    t.cuDevicePrimaryCtxReset_v2(ordinal_);
  } else if (!make_current()) {
    for (Handle event : {before_, after_})
      if (event != nullptr) t.cuEventDestroy_v2(event);
    if (stream_ != nullptr) t.cuStreamDestroy_v2(stream_);
  }
  t.cuCtxSetCurrent(nullptr);
  t.cuDevicePrimaryCtxRelease_v2(ordinal_);
}

std::optional<Reason> Device::failed(int code, const char* what) {
  if (code == 0) return std::nullopt;
  if (loses_context(code)) faulted_ = true;
  return Reason{std::string(what) + ": " + message(*driver(), code)};
}

std::optional<Reason> Device::make_current() {
  if (faulted_) return Reason{"the device faulted before"};
  return failed(driver()->cuCtxSetCurrent(context_), "making the context current");
}

Result<Buffer> Device::allocate(std::int64_t bytes) {
  if (auto why = make_current()) return *why;
  Address address = 0;
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 256));
  if (auto why = failed(driver()->cuMemAlloc_v2(&address, size), "device memory")) return *why;
  Buffer buffer;
  buffer.device_ = shared_from_this();
  buffer.address_ = address;
  buffer.bytes_ = bytes;
  return buffer;
}

std::optional<Reason> Device::upload(const Buffer& to, const void* from, std::int64_t bytes) {
  TW_CHECK(bytes <= to.bytes_, "an upload past its buffer");
  return upload_to(to.address_, from, bytes);
}

std::optional<Reason> Device::upload_to(std::uint64_t address, const void* from,
                                        std::int64_t bytes) {
  if (auto why = make_current()) return why;
  // In the kernels' stream and waited for: a copy from pageable memory may return before its last
  // part has arrived, and a kernel in a stream that waits for no other could run before it.
  const Table& t = *driver();
  if (auto why =
          failed(t.cuMemcpyHtoDAsync_v2(address, from, static_cast<std::size_t>(bytes), stream_),
                 "copying to the device"))
    return why;
  return failed(t.cuStreamSynchronize(stream_), "copying to the device");
}

std::optional<Reason> Device::download(void* to, const Buffer& from, std::int64_t bytes) {
  TW_CHECK(bytes <= from.bytes_, "a download past its buffer");
  return download_from(to, from.address_, bytes);
}

std::optional<Reason> Device::download_from(void* to, std::uint64_t address, std::int64_t bytes) {
  if (auto why = make_current()) return why;
  return failed(driver()->cuMemcpyDtoH_v2(to, address, static_cast<std::size_t>(bytes)),
                "copying from the device");
}

Result<Module> Device::load(const std::string& cubin) {
  if (auto why = make_current()) return *why;
  Module module;
  if (auto why = failed(driver()->cuModuleLoadData(&module.handle_, cubin.data()),
                        "loading the built kernel"))
    return *why;
  module.device_ = shared_from_this();
  return module;
}

Result<void*> Device::function(const Module& module, const std::string& symbol,
                               std::int64_t shared_bytes) {
  if (auto why = make_current()) return *why;
  Handle function = nullptr;
  if (auto why = failed(driver()->cuModuleGetFunction(&function, module.handle_, symbol.c_str()),
                        symbol.c_str()))
    return *why;
  if (shared_bytes > info_.shared_bytes_a_block)
    return Reason{symbol + " needs " + std::to_string(shared_bytes) +
                  " bytes of shared memory a block; " + info_.name + " has " +
                  std::to_string(info_.shared_bytes_a_block)};
  if (auto why = failed(
          driver()->cuFuncSetAttribute(function, kMaxDynamicShared, static_cast<int>(shared_bytes)),
          "asking for shared memory"))
    return *why;
  // Of the memory that L1 and shared memory divide, all to shared: an SM that must divide it anew
  // between two kernels first waits until the one before has left it.
  if (shared_bytes > 0)
    if (auto why = failed(driver()->cuFuncSetAttribute(function, kSharedCarveout, 100),
                          "asking for shared memory"))
      return *why;
  return function;
}

Result<FunctionFigures> Device::figures(void* function) {
  if (auto why = make_current()) return *why;
  int values[3] = {};
  const FunctionAttribute which[3] = {kRegisters, kLocal, kStaticShared};
  for (int i = 0; i < 3; ++i)
    if (auto why = failed(driver()->cuFuncGetAttribute(&values[i], which[i], function),
                          "asking for a kernel's figures"))
      return *why;
  return FunctionFigures{values[0], values[1], values[2]};
}

/// A CUtensorMap, at a multiple of 64 bytes.
std::optional<Reason> Device::make_map(const lowering::BoxMap& map, std::uint64_t address,
                                       void* made) {
  const Table& t = *driver();
  if (t.cuTensorMapEncodeTiled == nullptr)
    return Reason{"the NVIDIA driver here is too old: it copies no boxes of tensors"};
  const int type = map.type == DType::f32 ? kF32 : map.type == DType::bf16 ? kBf16 : kF16;
  std::array<std::uint64_t, lowering::BoxMap::kMost> extents{}, strides{};
  std::array<unsigned, lowering::BoxMap::kMost> box{}, steps{};
  for (std::size_t i = 0; i < lowering::BoxMap::kMost; ++i) {
    extents[i] = static_cast<std::uint64_t>(map.extent[i]);
    strides[i] = static_cast<std::uint64_t>(map.stride[i]);
    box[i] = static_cast<unsigned>(map.box[i]), steps[i] = static_cast<unsigned>(map.steps[i]);
  }
  // The innermost dimension has no stride: its elements follow one another.
  return failed(t.cuTensorMapEncodeTiled(made, type, static_cast<unsigned>(map.rank),
                                         reinterpret_cast<void*>(address), extents.data(),
                                         strides.data() + 1, box.data(), steps.data(),
                                         kNoInterleave, kSwizzle128, kL2Of256, 0),
                "describing a tensor's boxes");
}

Result<int> Device::resident_blocks(void* function, int threads, std::int64_t shared_bytes) {
  if (auto why = make_current()) return *why;
  int blocks = 0;
  if (auto why = failed(driver()->cuOccupancyMaxActiveBlocksPerMultiprocessor(
                            &blocks, function, threads, static_cast<std::size_t>(shared_bytes)),
                        "asking for the occupancy"))
    return *why;
  return blocks;
}

// ---- Launches
// ------------------------------------------------------------------------------------

std::optional<Reason> Device::enqueue(const GraphNode& node) {
  const Table& t = *driver();
  if (node.function == nullptr)
    return failed(t.cuMemsetD8Async(node.arguments.front(), 0,
                                    static_cast<std::size_t>(node.zeroed_bytes), stream_),
                  "zeroing memory");
  std::vector<std::uint64_t> values = node.arguments;
  struct alignas(64) TensorMap {
    std::array<std::uint64_t, 16> words{};
  };
  std::vector<TensorMap> maps(node.boxes.size());
  for (std::size_t i = 0; i < maps.size(); ++i)
    if (auto why = make_map(node.boxes[i].first, node.boxes[i].second, &maps[i])) return why;
  std::vector<void*> arguments;
  for (std::uint64_t& v : values) arguments.push_back(&v);
  for (TensorMap& m : maps) arguments.push_back(&m);
  const auto blocks = static_cast<unsigned>(node.blocks);
  const auto threads = static_cast<unsigned>(node.threads);
  const auto shared = static_cast<unsigned>(node.shared_bytes);
  if (node.early && !node.cooperative && t.cuLaunchKernelEx != nullptr &&
      t.version >= kEarlyInGraphs) {
    LaunchAttribute attribute{.id = kProgrammaticStreamSerialization};
    attribute.value[0] = 1;
    const LaunchConfig config{.blocks = blocks,
                              .threads = threads,
                              .shared_bytes = shared,
                              .stream = stream_,
                              .attributes = &attribute,
                              .count = 1};
    return failed(t.cuLaunchKernelEx(&config, node.function, arguments.data(), nullptr),
                  "launching a kernel");
  }
  const int code = node.cooperative
                       ? t.cuLaunchCooperativeKernel(node.function, blocks, 1, 1, threads, 1, 1,
                                                     shared, stream_, arguments.data())
                       : t.cuLaunchKernel(node.function, blocks, 1, 1, threads, 1, 1, shared,
                                          stream_, arguments.data(), nullptr);
  return failed(code, "launching a kernel");
}

Result<Graph> Device::capture(const std::vector<GraphNode>& nodes) {
  if (auto why = make_current()) return *why;
  const Table& t = *driver();
  if (auto why = failed(t.cuStreamBeginCapture_v2(stream_, kThreadLocalCapture), "capturing"))
    return *why;
  std::optional<Reason> wrong;
  for (const GraphNode& node : nodes)
    if (!wrong) wrong = enqueue(node);
  Handle recorded = nullptr;
  const auto ended = failed(t.cuStreamEndCapture(stream_, &recorded), "ending a capture");
  if (!wrong) wrong = ended;
  Graph graph;
  if (!wrong)
    wrong = failed(t.cuGraphInstantiateWithFlags(&graph.exec_, recorded, 0), "making a graph");
  if (recorded != nullptr) t.cuGraphDestroy(recorded);
  if (wrong) return *wrong;
  graph.device_ = shared_from_this();
  return graph;
}

std::optional<Reason> Device::wait(double most_seconds) {
  const Table& t = *driver();
  if (auto why = failed(t.cuEventRecord(after_, stream_), "an event")) return why;
  // Asked again and again, so that a kernel that never ends is found out.
  const auto start = std::chrono::steady_clock::now();
  int code = 0;
  while ((code = t.cuEventQuery(after_)) == kNotReady) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() > most_seconds) {
      faulted_ = hung_ = true;
      return Reason{"the kernel did not end within " +
                    std::to_string(static_cast<int>(most_seconds)) + " s"};
    }
    if (waited.count() > 0.01) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return failed(code, "running the kernel");
}

Result<double> Device::run(const Graph& graph, int times, double most_seconds) {
  return timed(times, most_seconds, [&] {
    return failed(driver()->cuGraphLaunch(graph.exec_, stream_), "launching a graph");
  });
}

Result<double> Device::run(const std::vector<GraphNode>& nodes, int times, double most_seconds) {
  return timed(times, most_seconds, [&]() -> std::optional<Reason> {
    for (const GraphNode& node : nodes)
      if (auto why = enqueue(node)) return why;
    return std::nullopt;
  });
}

Result<double> Device::timed(int times, double most_seconds,
                             const std::function<std::optional<Reason>()>& launch) {
  if (auto why = make_current()) return *why;
  const Table& t = *driver();
  if (auto why = failed(t.cuEventRecord(before_, stream_), "an event")) return *why;
  for (int i = 0; i < times; ++i)
    if (auto why = launch()) return *why;
  if (auto why = wait(most_seconds)) return *why;
  float milliseconds = 0;
  if (auto why = failed(t.cuEventElapsedTime(&milliseconds, before_, after_), "timing"))
    return *why;
  return milliseconds * 1e-3;
}

std::optional<Reason> Device::run_profiled(const std::vector<GraphNode>& nodes,
                                           double most_seconds) {
  if (auto why = make_current()) return why;
  const Table& t = *driver();
  if (auto why = failed(t.cuProfilerStart(), "starting the profiler")) return why;
  std::optional<Reason> wrong;
  for (const GraphNode& node : nodes)
    if (!wrong) wrong = enqueue(node);
  if (!wrong) wrong = wait(most_seconds);
  const auto stopped = failed(t.cuProfilerStop(), "stopping the profiler");
  return wrong ? wrong : stopped;
}

}  // namespace tilewright::cuda
