// A GEMM chain's tensors, given to every contestant alike, and the answer that each is held
// against.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/workload/workload.h"

namespace tilewright::bench {

/// C[b,m,l] += A[b,m,k] * B[b,k,l]; E[b,m,n] += C[b,m,l] * D[b,l,n], all float32 and row-major,
/// 4096-aligned. A and B and D are `run`'s own seeded inputs.
class Chain {
 public:
  /// What makes the workload no such chain; empty where it is one.
  static std::string why_not(const Workload& w);
  /// A Reason unless the workload is such a chain. Cost: one evaluation by the reference.
  static Result<Chain> create(const Workload& w, std::uint64_t seed);

  std::int64_t batch() const { return batch_; }
  std::int64_t m() const { return m_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  std::int64_t l() const { return l_; }
  /// The first element of batch element `b`.
  const float* a(std::int64_t b = 0) const { return a_.get() + b * m_ * k_; }
  const float* b(std::int64_t b = 0) const { return b_.get() + b * k_ * l_; }
  const float* d(std::int64_t b = 0) const { return d_.get() + b * l_ * n_; }
  float* c(std::int64_t b = 0) const { return c_.get() + b * m_ * l_; }
  float* e(std::int64_t b = 0) const { return e_.get() + b * m_ * n_; }

  /// Fills C and E with NaN, so that what is never written shows.
  void forget() const;
  /// max|E - reference| / max|reference|, the reference in float64 from the evaluator.
  double error() const;
  /// Whether every element is as near as rounding explains (rounding.h).
  bool right() const;

 private:
  using Floats = std::shared_ptr<float[]>;
  std::int64_t batch_ = 1, m_ = 0, n_ = 0, k_ = 0, l_ = 0;
  Floats a_, b_, d_, c_, e_;
  std::vector<double> reference_, bounds_;
};

}  // namespace tilewright::bench
