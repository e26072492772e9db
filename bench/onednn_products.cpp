// oneDNN: matrix products one after the other, a ReLU behind one of them as its post-operation.
#include "bench/peer.h"

#if TILEWRIGHT_BENCH_ONEDNN
#include <memory>

#include "bench/onednn.h"

namespace tilewright::bench {

std::vector<Entry> onednn_products(const Problem& problem, int threads) {
  struct Step {
    std::unique_ptr<Matmul> product;
    const float *a, *b;
    float* to;
  };
  struct All {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::vector<Step> steps;
  };
  omp_set_num_threads(threads);  // a primitive remembers how many there were
  auto all = std::make_shared<All>();
  for (const PlainProduct& p : plain_products(problem.workload())) {
    const auto dims = [&](std::int64_t rows, std::int64_t columns) {
      return p.batch > 1 ? Matmul::Dims{p.batch, rows, columns} : Matmul::Dims{rows, columns};
    };
    all->steps.push_back({std::make_unique<Matmul>(all->engine, dims(p.m, p.k), dims(p.k, p.n),
                                                   dims(p.m, p.n), false, p.relu),
                          problem.data(p.a), problem.data(p.b), problem.data(p.to)});
  }
  return {{.name = "oneDNN", .run = [all, threads] {
             omp_set_num_threads(threads);
             for (Step& s : all->steps) s.product->run(all->stream, s.a, s.b, s.to);
             all->stream.wait();
           }}};
}

}  // namespace tilewright::bench
#endif
