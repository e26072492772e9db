// A stand-in for the NVIDIA driver, for tests on machines without one: device memory is the host's,
// and the kernel "gemm" is computed here (C = A B of f16, 40x24x33). It checks that calls come in
// an order that the driver accepts: nothing before cuInit, no launch outside a capture, no memory
// freed twice.
//
// $TILEWRIGHT_FAKE_CUDA plants a fault: "wrong" (a wrong last element), "illegal" (an illegal
// address, after which the context is lost until it is reset), "hang" (a graph that never ends),
// "none" (no device). "any" takes a kernel of any name and size for that product. Several may be
// named. Between cuProfilerStart and Stop kernels may be launched outside a capture; each appends a
// line to the file $TILEWRIGHT_FAKE_LAUNCHES, its name and blocks, which is what a profiler would
// see.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "core/workload/reference/elements.h"

namespace {

using Address = unsigned long long;
using Handle = void*;

constexpr int kSuccess = 0, kInvalid = 1, kNotInitialised = 3, kNoDevice = 100, kNotReady = 600,
              kIllegalAddress = 700;

struct Node {
  bool zeros = false;
  Address to = 0;
  std::size_t bytes = 0;
  Address tensors[3] = {};
};

struct State {
  bool initialised = false, lost = false, capturing = false, hung = false, profiling = false;
  std::list<std::string> functions;
  int retained = 0;
  std::map<Address, std::size_t> memory;  // and how many bytes
  std::vector<Node> recording;
  std::list<std::vector<Node>> graphs;  // kept: what hangs or is lost is never destroyed
  std::list<double> events;
  double microseconds = 0;  // of "device" time, 2 a run
} state;

bool planted(const char* fault) {
  const char* asked = std::getenv("TILEWRIGHT_FAKE_CUDA");
  return asked != nullptr && std::strstr(asked, fault) != nullptr;
}

int ready() {
  if (!state.initialised) return kNotInitialised;
  return state.lost ? kIllegalAddress : kSuccess;
}

void gemm(const Node& node) {
  constexpr int kM = 40, kN = 24, kK = 33;
  // A kernel has its tensors in an order of its own: their sizes tell them apart.
  const auto of = [&](int count) -> void* {
    for (const Address x : node.tensors)
      if (state.memory.at(x) == sizeof(std::uint16_t) * static_cast<std::size_t>(count))
        return reinterpret_cast<void*>(x);
    std::abort();
  };
  const auto tensor = [&](int count) {
    return tilewright::decode_elements(tilewright::DType::f16, of(count),
                                       static_cast<std::size_t>(count));
  };
  const std::vector<double> a = tensor(kM * kK), b = tensor(kK * kN);
  std::vector<double> c(kM * kN);
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j)
      for (int k = 0; k < kK; ++k)
        c[static_cast<std::size_t>(i * kN + j)] +=
            a[static_cast<std::size_t>(i * kK + k)] * b[static_cast<std::size_t>(k * kN + j)];
  if (planted("wrong")) c.back() += 1;
  tilewright::encode_elements(tilewright::DType::f16, c, of(kM * kN));
}

int launch(Handle function, unsigned blocks, unsigned threads, unsigned shared, void** arguments) {
  if (int code = ready()) return code;
  const bool fits = planted("any") || (blocks == 6 && threads == 256 && shared == 1024);
  if (function == nullptr || !fits) return kInvalid;
  Node node;
  for (int i = 0; i < 3; ++i) {
    node.tensors[i] = *static_cast<Address*>(arguments[i]);
    if (!state.memory.contains(node.tensors[i])) return kIllegalAddress;
  }
  if (state.capturing) return state.recording.push_back(node), kSuccess;
  if (const char* file = std::getenv("TILEWRIGHT_FAKE_LAUNCHES"))
    std::ofstream(file, std::ios::app)
        << *static_cast<std::string*>(function) << ' ' << blocks << '\n';
  // Launched by itself it takes longer than in a graph.
  if (!state.profiling) state.microseconds += 5;
  return gemm(node), kSuccess;
}

int token;  // what handles point to

}  // namespace

extern "C" {

int cuInit(unsigned) {
  state.initialised = true;
  return planted("none") ? kNoDevice : kSuccess;
}
int cuDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
int cuGetErrorName(int code, const char** name) {
  *name = code == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == kNoDevice     ? "CUDA_ERROR_NO_DEVICE"
                                  : "CUDA_ERROR";
  return kSuccess;
}
int cuGetErrorString(int, const char** text) { return *text = "planted", kSuccess; }
int cuDeviceGetCount(int* count) { return *count = 1, kSuccess; }
int cuDeviceGet(int* device, int) { return *device = 0, kSuccess; }
int cuDeviceGetName(char* name, int size, int) {
  return std::strncpy(name, "Fake H100", static_cast<std::size_t>(size)), kSuccess;
}
int cuDeviceGetAttribute(int* value, int which, int) {
  switch (which) {
    case 16:
      *value = 132;
      break;
    case 38:
      *value = 1 << 20;
      break;
    case 75:
      *value = 9;
      break;
    case 76:
      *value = 0;
      break;
    case 81:
      *value = 233472;
      break;
    case 95:
      *value = 1;
      break;
    case 97:
      *value = 232448;
      break;
    default:
      return kInvalid;
  }
  return kSuccess;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = std::size_t{1} << 30, kSuccess; }
int cuDevicePrimaryCtxRetain(Handle* context, int) {
  if (!state.initialised) return kNotInitialised;
  ++state.retained;
  return *context = &token, state.lost ? kIllegalAddress : kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int) { return --state.retained < 0 ? kInvalid : kSuccess; }
int cuDevicePrimaryCtxReset_v2(int) {
  state.lost = false;
  for (const auto& [address, bytes] : state.memory) std::free(reinterpret_cast<void*>(address));
  state.memory.clear();
  return kSuccess;
}
int cuCtxSetCurrent(Handle) { return ready(); }
int cuModuleLoadData(Handle* module, const void* image) {
  if (int code = ready()) return code;
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return kInvalid;
  return *module = &token, kSuccess;
}
int cuModuleUnload(Handle) { return ready(); }
int cuModuleGetFunction(Handle* function, Handle, const char* name) {
  if (!planted("any") && std::string(name) != "gemm") return kInvalid;
  return *function = &state.functions.emplace_back(name), kSuccess;
}
int cuFuncGetAttribute(int* value, int which, Handle) {
  return *value = which == 4 ? 32 : which == 0 ? 1024 : 0, kSuccess;
}
int cuFuncSetAttribute(Handle, int which, int) {
  return which == 8 || which == 9 ? kSuccess : kInvalid;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Handle, int, std::size_t) {
  return *blocks = 4, kSuccess;
}
int cuMemAlloc_v2(Address* address, std::size_t bytes) {
  if (int code = ready()) return code;
  *address = reinterpret_cast<Address>(std::malloc(bytes));
  std::memset(reinterpret_cast<void*>(*address), 0xff, bytes);
  state.memory[*address] = bytes;
  return kSuccess;
}
int cuMemFree_v2(Address address) {
  if (state.memory.erase(address) == 0) return kInvalid;
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Handle) {
  if (int code = ready()) return code;
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), kSuccess;
}
int cuStreamSynchronize(Handle) { return ready(); }
int cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  if (int code = ready()) return code;
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), kSuccess;
}
int cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, Handle) {
  if (!state.capturing && value == 0)
    return std::memset(reinterpret_cast<void*>(to), value, bytes), kSuccess;
  if (value != 0) return kInvalid;
  state.recording.push_back({.zeros = true, .to = to, .bytes = bytes});
  return kSuccess;
}
int cuStreamCreate(Handle* stream, unsigned) { return *stream = &token, ready(); }
int cuStreamDestroy_v2(Handle) { return ready(); }
int cuStreamBeginCapture_v2(Handle, int) {
  if (state.capturing) return kInvalid;
  state.capturing = true;
  state.recording.clear();
  return ready();
}
int cuStreamEndCapture(Handle, Handle* graph) {
  if (!state.capturing) return kInvalid;
  state.capturing = false;
  return *graph = &state.graphs.emplace_back(state.recording), kSuccess;
}
int cuGraphInstantiateWithFlags(Handle* exec, Handle graph, unsigned long long) {
  return *exec = &state.graphs.emplace_back(*static_cast<std::vector<Node>*>(graph)), kSuccess;
}
int cuGraphLaunch(Handle exec, Handle) {
  if (int code = ready()) return code;
  if (planted("hang")) return state.hung = true, kSuccess;
  if (planted("illegal")) return state.lost = true, kSuccess;
  for (const Node& node : *static_cast<std::vector<Node>*>(exec)) {
    if (node.zeros)
      std::memset(reinterpret_cast<void*>(node.to), 0, node.bytes);
    else
      gemm(node), state.microseconds += 2;
  }
  return kSuccess;
}
int cuGraphExecDestroy(Handle exec) { return exec == nullptr ? kInvalid : kSuccess; }
int cuGraphDestroy(Handle graph) { return graph == nullptr ? kInvalid : kSuccess; }
int cuProfilerStart() { return state.profiling = true, ready(); }
int cuProfilerStop() { return state.profiling = false, ready(); }
int cuEventCreate(Handle* event, unsigned) {
  return *event = &state.events.emplace_back(0), ready();
}
int cuEventDestroy_v2(Handle event) { return event == nullptr ? kInvalid : kSuccess; }
int cuEventRecord(Handle event, Handle) {
  return *static_cast<double*>(event) = state.microseconds, ready();
}
int cuEventQuery(Handle) { return state.hung ? kNotReady : ready(); }
int cuEventElapsedTime(float* milliseconds, Handle before, Handle after) {
  *milliseconds =
      static_cast<float>((*static_cast<double*>(after) - *static_cast<double*>(before)) * 1e-3);
  return kSuccess;
}
int cuLaunchKernel(Handle f, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned shared, Handle, void** arguments, void**) {
  return launch(f, x, threads, shared, arguments);
}
int cuLaunchCooperativeKernel(Handle f, unsigned x, unsigned, unsigned, unsigned threads, unsigned,
                              unsigned, unsigned shared, Handle, void** arguments) {
  return launch(f, x, threads, shared, arguments);
}
}
