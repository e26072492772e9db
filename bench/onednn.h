// What the ways of using oneDNN share; included only where it is.
#pragma once

#include <omp.h>

#include <dnnl.hpp>
#include <string>
#include <unordered_map>

namespace tilewright::bench {

/// dst = a * b with scratch memory of its own, so that several may run at once. `b_transposed`: b
/// lies by columns. `relu`: of every element of dst. Dims: [b,]m,n,k.
class Matmul {
 public:
  using Dims = dnnl::memory::dims;
  Matmul(const dnnl::engine& engine, const Dims& a, const Dims& b, const Dims& dst,
         bool b_transposed = false, bool relu = false)
      : a_(plain(a), engine, nullptr),
        b_(b_transposed ? by_columns(b) : plain(b), engine, nullptr),
        dst_(plain(dst), engine, nullptr) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (relu) {
      dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
      after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
#else
      after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
#endif
      attributes.set_post_ops(after);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine, a_.get_desc(), b_.get_desc(),
                                                   dst_.get_desc(), attributes);
#else
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(a_.get_desc(), b_.get_desc(), dst_.get_desc()), attributes, engine);
#endif
    scratch_ = dnnl::memory(description.scratchpad_desc(), engine);
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
  static dnnl::memory::desc plain(const Dims& dims) {
    return {dims, dnnl::memory::data_type::f32,
            dims.size() == 3 ? dnnl::memory::format_tag::abc : dnnl::memory::format_tag::ab};
  }

 private:
  static dnnl::memory::desc by_columns(const Dims& dims) {
    return {dims, dnnl::memory::data_type::f32,
            dims.size() == 3 ? dnnl::memory::format_tag::acb : dnnl::memory::format_tag::ba};
  }
  dnnl::memory a_, b_, dst_, scratch_;
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace tilewright::bench
