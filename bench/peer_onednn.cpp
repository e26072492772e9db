// oneDNN: two matmul primitives, made once and run many times.
#include "bench/peer.h"

#if TILEWRIGHT_BENCH_ONEDNN
#include <memory>

#include "bench/onednn.h"
#endif

namespace tilewright::bench {

#if TILEWRIGHT_BENCH_ONEDNN
std::vector<Entry> onednn_softmax(const Problem& problem, int threads);
std::vector<Entry> onednn_convolutions(const Problem& problem, int threads);
std::vector<Entry> onednn_products(const Problem& problem, int threads);

namespace {

using Dims = Matmul::Dims;

/// Both products of some of the batch, on `threads` threads.
struct Pair {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Matmul first, second;

  /// `batch` 0: of one element, without a batch dimension.
  Pair(const Chain& c, std::int64_t batch, int threads)
      : first(of(threads), dims(batch, c.m(), c.k()), dims(batch, c.k(), c.l()),
              dims(batch, c.m(), c.l())),
        second(engine, dims(batch, c.m(), c.l()), dims(batch, c.l(), c.n()),
               dims(batch, c.m(), c.n())) {}
  void run(const Chain& chain, std::int64_t element, float* c) {
    first.run(stream, chain.a(element), chain.b(element), c);
    second.run(stream, c, chain.d(element), chain.e(element));
    stream.wait();
  }

 private:
  const dnnl::engine& of(int threads) {
    omp_set_num_threads(threads);  // a primitive remembers how many there were
    return engine;
  }
  static Dims dims(std::int64_t batch, std::int64_t rows, std::int64_t columns) {
    return batch > 0 ? Dims{batch, rows, columns} : Dims{rows, columns};
  }
};

/// Whole batch through the first product, then through the second: C is as large as the batch.
Entry batched(const Chain& chain, int threads) {
  auto pair = std::make_shared<Pair>(chain, chain.batch(), threads);
  return {.name = "oneDNN", .run = [pair, &chain, threads] {
            omp_set_num_threads(threads);
            pair->run(chain, 0, chain.c());
          }};
}

/// Element by element, so that the second product finds C where the first one left it; the batch
/// dealt out over the threads where there are enough elements.
Entry hot(const Chain& chain, int threads) {
  const bool by_batch = chain.batch() >= threads;
  const int inside = by_batch ? 1 : threads, outside = by_batch ? threads : 1;
  std::vector<std::shared_ptr<Pair>> pairs;
  for (int t = 0; t < outside; ++t) pairs.push_back(std::make_shared<Pair>(chain, 0, inside));
  return {.name = "oneDNN/hot", .run = [pairs, &chain, inside, outside] {
            omp_set_num_threads(inside);
            split(chain.batch(), outside, [&](std::int64_t from, std::int64_t to, int thread) {
              omp_set_num_threads(inside);
              for (std::int64_t b = from; b < to; ++b)
                pairs[static_cast<std::size_t>(thread)]->run(chain, b, chain.c(thread));
            });
          }};
}

std::string runtime_name(unsigned runtime) {
  switch (runtime) {
    case DNNL_RUNTIME_SEQ:
      return "one thread only";
    case DNNL_RUNTIME_OMP:
      return "OpenMP";
    case DNNL_RUNTIME_TBB:
      return "TBB";
    case DNNL_RUNTIME_THREADPOOL:
      return "its caller's thread pool";
    default:
      return "an unknown runtime";
  }
}

std::string isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 with bf16";
    default:
      return "isa " + std::to_string(static_cast<int>(isa));
  }
}

}  // namespace

Peer onednn() {
  const dnnl_version_t* v = dnnl_version();
  Peer peer{.name = "oneDNN",
            .description = std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
                           std::to_string(v->patch) + "; built on " + runtime_name(v->cpu_runtime) +
                           "; " + isa_name(dnnl::get_effective_cpu_isa()),
            .missing = "",
            .prepare =
                [](const Chain& chain, int threads) {
                  std::vector<Entry> all{batched(chain, threads)};
                  if (chain.batch() > 1) all.push_back(hot(chain, threads));
                  return all;
                },
            .softmax = onednn_softmax,
            .convolutions = onednn_convolutions,
            .products = onednn_products};
  if (v->cpu_runtime != DNNL_RUNTIME_OMP)
    peer.missing = "built on " + runtime_name(v->cpu_runtime) + ": its threads cannot be set";
  return peer;
}

#else

Peer onednn() {
  return {.name = "oneDNN",
          .description = "",
          .missing = "built without it: no libdnnl-dev (dnnl.hpp) when CMake configured",
          .prepare = {}};
}

#endif

}  // namespace tilewright::bench
