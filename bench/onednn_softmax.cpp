// oneDNN: softmax(Q K^T) V as a product, a softmax in place and a product.
#include "bench/peer.h"

#if TILEWRIGHT_BENCH_ONEDNN
#include <memory>

#include "bench/onednn.h"

namespace tilewright::bench {
namespace {

using Dims = Matmul::Dims;

class Softmax {
 public:
  Softmax(const dnnl::engine& engine, const Dims& dims)
      : data_(Matmul::plain(dims), engine, nullptr) {
    const int axis = static_cast<int>(dims.size()) - 1;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::softmax_forward::primitive_desc description(
        engine, dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate,
        data_.get_desc(), data_.get_desc(), axis, attributes);
#else
    const dnnl::softmax_forward::primitive_desc description(
        dnnl::softmax_forward::desc(dnnl::prop_kind::forward_inference, data_.get_desc(), axis),
        attributes, engine);
#endif
    scratch_ = dnnl::memory(description.scratchpad_desc(), engine);
    primitive_ = dnnl::softmax_forward(description);
  }
  void run(const dnnl::stream& stream, float* data) {
    data_.set_data_handle(data);
    primitive_.execute(
        stream, {{DNNL_ARG_SRC, data_}, {DNNL_ARG_DST, data_}, {DNNL_ARG_SCRATCHPAD, scratch_}});
  }

 private:
  dnnl::memory data_, scratch_;
  dnnl::softmax_forward primitive_;
};

struct Sizes {
  std::int64_t batch, m, l, k, n;
  explicit Sizes(const Problem& p)
      : batch(p.extent("b")),
        m(p.extent("m")),
        l(p.extent("l")),
        k(p.extent("k")),
        n(p.extent("n")) {}
};

/// All three of some of the batch; `batch` 0: of one element.
struct Three {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Matmul first;
  Softmax softmax;
  Matmul second;

  Three(const Sizes& s, std::int64_t batch, int threads)
      : first(of(threads), dims(batch, s.m, s.k), dims(batch, s.k, s.l), dims(batch, s.m, s.l),
              true),
        softmax(engine, dims(batch, s.m, s.l)),
        second(engine, dims(batch, s.m, s.l), dims(batch, s.l, s.n), dims(batch, s.m, s.n)) {}
  void run(const float* q, const float* k, const float* v, float* p, float* e) {
    first.run(stream, q, k, p);
    softmax.run(stream, p);
    second.run(stream, p, v, e);
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

}  // namespace

std::vector<Entry> onednn_softmax(const Problem& problem, int threads) {
  const Sizes s(problem);
  auto whole = std::make_shared<Three>(s, s.batch, threads);
  std::vector<Entry> all{{.name = "oneDNN", .run = [whole, &problem, threads] {
                            omp_set_num_threads(threads);
                            whole->run(problem.data("Q"), problem.data("K"), problem.data("V"),
                                       problem.data("P"), problem.data("E"));
                          }}};
  if (s.batch < 2) return all;
  // Element by element: the scores stay where the softmax and the second product find them.
  const bool by_batch = s.batch >= threads;
  const int inside = by_batch ? 1 : threads, outside = by_batch ? threads : 1;
  std::vector<std::shared_ptr<Three>> each;
  for (int t = 0; t < outside; ++t) each.push_back(std::make_shared<Three>(s, 0, inside));
  all.push_back({.name = "oneDNN/hot", .run = [each, &problem, s, inside, outside] {
                   omp_set_num_threads(inside);
                   split(s.batch, outside, [&](std::int64_t from, std::int64_t to, int thread) {
                     omp_set_num_threads(inside);
                     for (std::int64_t b = from; b < to; ++b)
                       each[static_cast<std::size_t>(thread)]->run(
                           problem.data("Q") + b * s.m * s.k, problem.data("K") + b * s.l * s.k,
                           problem.data("V") + b * s.l * s.n,
                           problem.data("P") + thread * s.m * s.l,
                           problem.data("E") + b * s.m * s.n);
                   });
                 }});
  return all;
}

}  // namespace tilewright::bench
#endif
