// What experiments/gpu/weights times: a line of JSON for each.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>

#define OK(x)                                                        \
  do {                                                               \
    if (const cudaError_t e_ = (x)) {                                \
      std::fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e_)); \
      std::exit(1);                                                  \
    }                                                                \
  } while (0)

constexpr int kStage = 16384, kStages = 12, kDeep = 64, kWide = 64;

__device__ unsigned shared_at(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
__device__ void expect(std::uint64_t* b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_at(b)), "r"(bytes)
               : "memory");
}
__device__ void wait(std::uint64_t* b, unsigned phase) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra again; }" ::"r"(
          shared_at(b)),
      "r"(phase)
      : "memory");
}
/// A ring of stages of 16 KB: stage i of the block is asked for by `copy(i, place, barrier)`, and its place again as soon
/// as it is there. Nothing is computed.
template <class Copy>
__device__ void ring(char* memory, std::uint64_t* full, long stages, Copy copy) {
  if (threadIdx.x != 0) return;
  for (int s = 0; s < kStages; ++s)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_at(full + s)));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  const auto ask = [&](long i) {
    expect(full + i % kStages, kStage);
    copy(i, memory + i % kStages * kStage, full + i % kStages);
  };
  for (long i = 0; i < stages && i < kStages; ++i) ask(i);
  for (long i = 0; i < stages; ++i) {
    wait(full + i % kStages, unsigned(i / kStages) & 1);
    if (i + kStages < stages) ask(i + kStages);
  }
}
/// All bytes, as they lie, a stage after the other in turn by all blocks.
__global__ void __launch_bounds__(32) as_they_lie(const char* w, long stages) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ std::uint64_t full[kStages];
  const long mine = (stages - blockIdx.x + gridDim.x - 1) / gridDim.x;
  ring(memory, full, mine, [&](long i, char* at, std::uint64_t* b) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_at(at)),
        "l"(w + (blockIdx.x + i * gridDim.x) * kStage), "r"(kStage), "r"(shared_at(b))
        : "memory");
  });
}
/// A matrix as kernels of products read it: tiles of `wide` columns, each cut `share` times in its depth; boxes of 64 by 64.
__global__ void __launch_bounds__(32)
    as_tiles(const __grid_constant__ CUtensorMap map, int tiles, int wide, int share, long part) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ std::uint64_t full[kStages];
  const int boxes = wide / kWide, all = tiles * share;
  const long steps = part / kDeep * boxes / 2, mine = (all - blockIdx.x + gridDim.x - 1) / gridDim.x;
  ring(memory, full, mine * steps, [&](long i, char* at, std::uint64_t* b) {
    const int piece = int(blockIdx.x + i / steps * gridDim.x);
    for (long n = 0; n < 2; ++n) {
      const long box = i % steps * 2 + n;
      const int x = piece / share * wide + int(box % boxes) * kWide,
                y = int(piece % share * part + box / boxes * kDeep);
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
          "[%2];" ::"r"(shared_at(at + n * kStage / 2)),
          "l"(&map), "r"(shared_at(b)), "r"(x), "r"(y)
          : "memory");
    }
  });
}

cudaStream_t stream;

/// Microseconds a run, of 20 in a graph: the least of seven.
double us(const std::function<void()>& run) {
  constexpr int n = 20;
  cudaGraph_t graph;
  cudaGraphExec_t made;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < n; ++i) run();
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&made, graph, 0));
  cudaEvent_t begin, end;
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreate(&end));
  float least = 1e30f;
  for (int i = 0; i < 8; ++i) {
    OK(cudaEventRecord(begin, stream));
    OK(cudaGraphLaunch(made, stream));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventSynchronize(end));
    float ms = 0;
    OK(cudaEventElapsedTime(&ms, begin, end));
    if (i > 0 && ms < least) least = ms;
  }
  OK(cudaGraphExecDestroy(made));
  OK(cudaGraphDestroy(graph));
  return least * 1e3 / n;
}

using Encode = decltype(&cuTensorMapEncodeTiled);

CUtensorMap map_of(void* at, long columns, long rows) {
  static Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult how;
    OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &how));
    return reinterpret_cast<Encode>(found);
  }();
  CUtensorMap map;
  const cuuint64_t size[2] = {cuuint64_t(columns), cuuint64_t(rows)}, pitch[1] = {cuuint64_t(columns) * 2};
  const cuuint32_t box[2] = {kWide, kDeep}, step[2] = {1, 1};
  if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, at, size, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
    std::fprintf(stderr, "no map of %ld x %ld\n", rows, columns);
    std::exit(1);
  }
  return map;
}

/// A row: its name and the depths and columns of its weights, of the first product and of the second. `firsts`: weights of
/// the first, 2 where it is gated.
int main(int count, char** given) {
  OK(cudaStreamCreate(&stream));
  int sms = 0;
  OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  constexpr int room = kStages * kStage;
  OK(cudaFuncSetAttribute(as_they_lie, cudaFuncAttributeMaxDynamicSharedMemorySize, room));
  OK(cudaFuncSetAttribute(as_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, room));
  for (int g = 1; g + 4 < count; g += 5) {
    const char* name = given[g];
    const long firsts = std::atol(given[g + 1]), k = std::atol(given[g + 2]), l = std::atol(given[g + 3]),
               n = std::atol(given[g + 4]), first = 2 * firsts * k * l, bytes = first + 2 * l * n;
    char* w = nullptr;
    OK(cudaMalloc(&w, bytes + kStage));
    OK(cudaMemset(w, 1, bytes + kStage));
    const auto say = [&](const char* what, long b, int blocks, double time) {
      std::printf("{\"row\": \"%s\", \"what\": \"%s\", \"bytes\": %ld, \"blocks\": %d, \"us\": %.3f}\n", name, what, b,
                  blocks, time);
      std::fflush(stdout);
    };
    for (const int blocks : {sms, sms * 3 / 5})
      say("as they lie", bytes, blocks,
          us([&] { as_they_lie<<<blocks, 32, room, stream>>>(w, (bytes + kStage - 1) / kStage); }));
    // Both weights of a gated layer stand for one matrix of twice the columns.
    const CUtensorMap of_first = map_of(w, firsts * l, k), of_second = map_of(w + first, n, l);
    constexpr int kShare = 8;
    const int across = int((n + 127) / 128), all = across * kShare < sms ? across * kShare : sms;
    const long part = (l / kDeep + kShare - 1) / kShare * kDeep;
    for (const int wide : {128, 256}) {
      const int tiles = int((firsts * l + wide - 1) / wide), blocks = tiles < sms ? tiles : sms;
      say(wide == 128 ? "in tiles, 128 columns first" : "in tiles, 256 columns first", bytes, blocks, us([&] {
            as_tiles<<<blocks, 32, room, stream>>>(of_first, tiles, wide, 1, k / kDeep * kDeep);
            as_tiles<<<all, 32, room, stream>>>(of_second, across, 128, kShare, part);
          }));
    }
    OK(cudaFree(w));
  }
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
}
