// What experiments/gpu/cold times: a line of JSON for each.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#define OK(x)                                                        \
  do {                                                               \
    if (const cudaError_t e_ = (x)) {                                \
      std::fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e_)); \
      std::exit(1);                                                  \
    }                                                                \
  } while (0)

/// N instructions, each once, in kernels that differ by ID.
template <int ID, int N>
__global__ void __launch_bounds__(128) code(float* p, float a, float b) {
  float x[4] = {a, b, a + ID, b + ID};
#pragma unroll
  for (int i = 0; i < N; ++i) x[i % 4] = fmaf(x[i % 4], a, b);
  if (x[0] + x[1] + x[2] + x[3] == 1.2345f) p[threadIdx.x] = x[0];
}
/// A block reads its part in `turns`, each after the one before.
__global__ void __launch_bounds__(128)
    in_turns(const uint4* w, long first, int turns, int each, float* p) {
  const uint4* at = w + (first + blockIdx.x) * long(turns) * each * 128;
  unsigned sum = 0;
  for (int t = 0; t < turns; ++t) {
#pragma unroll 8
    for (int i = 0; i < each; ++i) {
      const uint4 v = at[(t * each + i) * 128 + threadIdx.x];
      sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    __syncthreads();
    at += sum == 0x12345;
  }
  if (sum == 0x7777) p[threadIdx.x] = sum;
}
/// Past L1: blocks read one of so many places.
__global__ void __launch_bounds__(256)
    alike(const uint4* w, int places, long each, float* p) {
  const uint4* at = w + long(blockIdx.x % places) * each;
  unsigned sum = 0;
#pragma unroll 8
  for (long i = threadIdx.x; i < each; i += 256) {
    const uint4 v = __ldcg(at + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x7777) p[threadIdx.x] = sum;
}

cudaStream_t stream;

/// Microseconds a launch, of n in a graph.
double us(const std::function<void(int)>& launch, int n) {
  cudaGraph_t graph;
  cudaGraphExec_t run;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < n; ++i) launch(i);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&run, graph, 0));
  cudaEvent_t begins, ends;
  OK(cudaEventCreate(&begins));
  OK(cudaEventCreate(&ends));
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(run, stream));
  double best = 1e30;
  for (int r = 0; r < 7; ++r) {
    OK(cudaEventRecord(begins, stream));
    OK(cudaGraphLaunch(run, stream));
    OK(cudaEventRecord(ends, stream));
    OK(cudaEventSynchronize(ends));
    float ms = 0;
    OK(cudaEventElapsedTime(&ms, begins, ends));
    best = ms * 1e3 / n < best ? ms * 1e3 / n : best;
  }
  OK(cudaGraphExecDestroy(run));
  OK(cudaGraphDestroy(graph));
  return best;
}

using Code = void (*)(float*, float, float);
template <int N, int... I>
std::vector<Code> kernels(std::integer_sequence<int, I...>) {
  return {code<I, N>...};
}
template <int N>
void codes(float* p) {
  const auto all = kernels<N>(std::make_integer_sequence<int, 8>());
  for (int blocks : {16, 132})
    for (int distinct : {1, 2, 4, 8})
      std::printf("{\"what\": \"code\", \"bytes\": %d, \"blocks\": %d, \"distinct\": %d, \"us\": %.3f}\n",
                  16 * N, blocks, distinct, us([&](int i) {
                    all[i % distinct]<<<blocks, 128, 0, stream>>>(p, .5f, .25f);
                  }, 64));
}

int main() {
  OK(cudaStreamCreate(&stream));
  float* p;
  uint4* w;
  constexpr long kBytes = 256l << 20;
  OK(cudaMalloc(&p, 4096));
  OK(cudaMalloc(&w, kBytes));
  OK(cudaMemset(w, 1, kBytes));
  for (int i = 0; i < 200; ++i) in_turns<<<1024, 128, 0, stream>>>(w, 0, 4, 4, p);
  OK(cudaStreamSynchronize(stream));
  codes<64>(p), codes<512>(p), codes<1024>(p), codes<2048>(p);
  for (int blocks : {16, 132})
    for (int turns : {1, 2, 4, 8})
      for (int each : {2, 8})
        for (double of : {0.0, 16e6, 32e6, 64e6, 128e6}) {
          const double one = double(blocks) * turns * each * 2048;
          const int parts = of < one ? 1 : int(of / one);
          std::printf("{\"what\": \"turns\", \"blocks\": %d, \"turns\": %d, \"bytes\": %d, \"of_bytes\": %.0f, \"us\": %.3f}\n",
                      blocks, turns, each * 2048, parts * one, us([&](int i) {
                        in_turns<<<blocks, 128, 0, stream>>>(w, long(i % parts) * blocks, turns, each, p);
                      }, parts < 16 ? 64 / parts * parts : parts));
        }
  for (long kb : {16, 64, 128})
    for (int blocks : {132, 528, 1056})
      for (int places : {1, 8, 32, blocks}) {
        if (places * kb * 1024 > 30e6) continue;
        std::printf("{\"what\": \"alike\", \"blocks\": %d, \"bytes\": %ld, \"places\": %d, \"us\": %.3f}\n",
                    blocks, kb * 1024, places, us([&](int) {
                      alike<<<blocks, 256, 0, stream>>>(w, places, kb * 64, p);
                    }, 20));
      }
  return 0;
}
