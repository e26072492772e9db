// oneDNN: two convolutions, in the layouts that it picks for itself, a ReLU between as a
// post-operation of the first.
#include "bench/peer.h"

#if TILEWRIGHT_BENCH_ONEDNN
#include <memory>

#include "bench/onednn.h"

namespace tilewright::bench {
namespace {

using dnnl::memory;
using Dims = memory::dims;

memory::desc any(const Dims& d) { return {d, memory::data_type::f32, memory::format_tag::any}; }
memory::desc plain(const Dims& d) { return {d, memory::data_type::f32, memory::format_tag::abcd}; }

dnnl::convolution_forward::primitive_desc describe(const dnnl::engine& engine,
                                                   const memory::desc& source, const Dims& weights,
                                                   const Dims& result, std::int64_t stride,
                                                   bool relu) {
  const Dims strides{stride, stride}, padding{weights[2] / 2, weights[3] / 2};
  dnnl::primitive_attr attributes;
  if (relu) {
    dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
    after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
#else
    after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
#endif
    attributes.set_post_ops(after);
  }
  // Padding behind the last row: what the last window reads beyond the edge.
  const auto behind = [&](std::size_t d) {
    return (result[d] - 1) * stride + weights[d] - padding[d - 2] - source.dims()[d];
  };
#if DNNL_VERSION_MAJOR < 3
  using Text = dnnl::convolution_forward::desc;
  return {Text(dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, source,
               any(weights), any(result), strides, padding, {behind(2), behind(3)}),
          attributes, engine};
#else
  return {engine,
          dnnl::prop_kind::forward_inference,
          dnnl::algorithm::convolution_direct,
          source,
          any(weights),
          any(result),
          strides,
          padding,
          {behind(2), behind(3)},
          attributes};
#endif
}

/// Both convolutions with everything in oneDNN's own layouts, and the ways in and out of them.
class Pair {
 public:
  Pair(const Problem& p, int threads) : problem_(p) {
    omp_set_num_threads(threads);
    const auto& w = p.workload();
    const bool relu = w.find_op("relu").has_value();
    const std::size_t at = w.find_loop("b") ? 1 : 0;
    const auto image = [&](const char* t) {
      return Dims{p.extent("b"), p.shape(t, at), p.shape(t, at + 1), p.shape(t, at + 2)};
    };
    const auto kernel = [&](const char* t) {
      return Dims{p.shape(t, 0), p.shape(t, 1), p.shape(t, 2), p.shape(t, 3)};
    };
    const auto stride = [&](const char* op, const char* loop) -> std::int64_t {
      for (const Access& a : w.op(*w.find_op(op)).inputs)
        for (const Affine& index : a.index)
          for (const Term& t : index.terms)
            if (w.loop(t.loop).name == loop) return t.coefficient;
      return 1;
    };
    const auto first =
        describe(engine_, any(image("I")), kernel("W1"), image("M"), stride("conv1", "y"), relu);
    const auto second =
        describe(engine_, first.dst_desc(), kernel("W2"), image("O"), stride("conv2", "h"), false);
    in_ = memory(first.src_desc(), engine_);
    middle_ = memory(first.dst_desc(), engine_);
    out_ = memory(second.dst_desc(), engine_);
    weights1_ = reordered(plain(kernel("W1")), p.data("W1"), first.weights_desc());
    weights2_ = reordered(plain(kernel("W2")), p.data("W2"), second.weights_desc());
    user_in_ = memory(plain(image("I")), engine_, p.data("I"));
    user_out_ = memory(plain(image("O")), engine_, p.data("O"));
    bring_in_ = dnnl::reorder(user_in_, in_);
    bring_out_ = dnnl::reorder(out_, user_out_);
    first_ = dnnl::convolution_forward(first);
    second_ = dnnl::convolution_forward(second);
    bring_in_.execute(stream_, user_in_, in_);
    stream_.wait();
  }
  void in() { bring_in_.execute(stream_, user_in_, in_); }
  void both() {
    first_.execute(stream_,
                   {{DNNL_ARG_SRC, in_}, {DNNL_ARG_WEIGHTS, weights1_}, {DNNL_ARG_DST, middle_}});
    second_.execute(stream_,
                    {{DNNL_ARG_SRC, middle_}, {DNNL_ARG_WEIGHTS, weights2_}, {DNNL_ARG_DST, out_}});
  }
  void out() { bring_out_.execute(stream_, out_, user_out_); }
  void wait() { stream_.wait(); }

 private:
  memory reordered(const memory::desc& from, float* data, const memory::desc& to) {
    memory source(from, engine_, data), target(to, engine_);
    dnnl::reorder(source, target).execute(stream_, source, target);
    stream_.wait();
    return target;
  }
  const Problem& problem_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  memory in_, middle_, out_, weights1_, weights2_, user_in_, user_out_;
  dnnl::reorder bring_in_, bring_out_;
  dnnl::convolution_forward first_, second_;
};

}  // namespace

std::vector<Entry> onednn_convolutions(const Problem& problem, int threads) {
  auto pair = std::make_shared<Pair>(problem, threads);
  const auto set = [threads] { omp_set_num_threads(threads); };
  return {{.name = "oneDNN",
           .run =
               [pair, set] {
                 set();
                 pair->in(), pair->both(), pair->out(), pair->wait();
               }},
          {.name = "oneDNN/own",
           .run =
               [pair, set] {
                 set();
                 pair->both(), pair->wait();
               },
           .collect = [pair] { pair->out(), pair->wait(); }}};
}

}  // namespace tilewright::bench
#endif
