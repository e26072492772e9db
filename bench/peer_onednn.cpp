// oneDNN: two matmul primitives, made once and run many times.
#include "bench/peer.h"

#if TILEWRIGHT_BENCH_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
#include <memory>
#include <unordered_map>
#endif

namespace tilewright::bench {

#if TILEWRIGHT_BENCH_ONEDNN
namespace {

using dnnl::memory;
using Dims = memory::dims;

memory::desc plain(const Dims& dims) {
  return {dims, memory::data_type::f32,
          dims.size() == 3 ? memory::format_tag::abc : memory::format_tag::ab};
}

/// dst = a * b with scratch memory of its own, so that several may run at once. Dims: [b,]m,n,k.
class Matmul {
 public:
  Matmul(const dnnl::engine& engine, const Dims& a, const Dims& b, const Dims& dst)
      : a_(plain(a), engine, nullptr),
        b_(plain(b), engine, nullptr),
        dst_(plain(dst), engine, nullptr) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine, a_.get_desc(), b_.get_desc(),
                                                   dst_.get_desc(), attributes);
#else
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(a_.get_desc(), b_.get_desc(), dst_.get_desc()), attributes, engine);
#endif
    implementation_ = description.impl_info_str();
    scratch_ = memory(description.scratchpad_desc(), engine);
    primitive_ = dnnl::matmul(description);
    arguments_ = {{DNNL_ARG_SRC, a_},
                  {DNNL_ARG_WEIGHTS, b_},
                  {DNNL_ARG_DST, dst_},
                  {DNNL_ARG_SCRATCHPAD, scratch_}};
  }
  void run(const dnnl::stream& stream, const float* a, const float* b, float* dst) {
    a_.set_data_handle(const_cast<float*>(a));
    b_.set_data_handle(const_cast<float*>(b));
    dst_.set_data_handle(dst);
    primitive_.execute(stream, arguments_);
  }
  const std::string& implementation() const { return implementation_; }

 private:
  memory a_, b_, dst_, scratch_;
  dnnl::matmul primitive_;
  std::unordered_map<int, memory> arguments_;
  std::string implementation_;
};

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
            .prepare = [](const Chain& chain, int threads) {
              std::vector<Entry> all{batched(chain, threads)};
              if (chain.batch() > 1) all.push_back(hot(chain, threads));
              return all;
            }};
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
