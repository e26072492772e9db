// What the tests of networks share: a network evaluated, and arithmetic over matrices in plain
// loops.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/workload/reference/evaluate.h"
#include "core/workload/text.h"
#include "core/workload/workload_file.h"

namespace tilewright {

using Numbers = std::vector<double>;

struct Evaluated {
  /// Inputs are drawn and multiplied by `scale`: small ones, where an exponential might overflow.
  explicit Evaluated(const std::string& name, double scale = 0.25) : w(named_workload(name)) {
    in = random_inputs(w, 7);
    for (Numbers& all : in)
      for (double& x : all) x *= scale;
    for (std::size_t t = 0; t < in.size(); ++t) round_all(w.tensors()[t].dtype, in[t]);
    out = evaluate(w, in);
  }
  const Numbers& of(const TensorValues& all, const std::string& tensor) const {
    return all[w.find_tensor(tensor)->index()];
  }
  const Numbers& input(const std::string& tensor) const { return of(in, tensor); }
  const Numbers& result(const std::string& tensor) const { return of(out, tensor); }

  Workload w;
  TensorValues in, out;
};

inline void expect_near(const Numbers& got, const Numbers& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  ASSERT_FALSE(got.empty()) << what;
  double most = 0;
  for (double x : wanted) most = std::max(most, std::abs(x));
  ASSERT_GT(most, 0) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], 1e-9 * most) << what << " " << i;
}

/// [rows, depth] times [depth, cols].
inline Numbers product(const Numbers& a, const Numbers& b, std::size_t rows) {
  const std::size_t depth = a.size() / rows, cols = b.size() / depth;
  Numbers c(rows * cols);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < depth; ++k)
      for (std::size_t j = 0; j < cols; ++j) c[i * cols + j] += a[i * depth + k] * b[k * cols + j];
  return c;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

inline std::int64_t input_bytes(const Workload& w) {
  std::int64_t bytes = 0;
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_input(TensorId(t))) bytes += w.tensors()[t].bytes().value;
  return bytes;
}

/// Operators that are sums of products.
inline std::size_t contractions(const Workload& w) {
  std::size_t n = 0;
  for (OpId op : w.topological_order()) n += w.is_contraction(op) ? 1 : 0;
  return n;
}

/// What the contractions read when each reads its inputs from memory, weights and values.
inline std::int64_t read_by_contractions(const Workload& w) {
  std::int64_t bytes = 0;
  for (OpId op : w.topological_order())
    if (w.is_contraction(op))
      for (const Access& in : w.op(op).inputs) bytes += w.tensor(in.tensor).bytes().value;
  return bytes;
}

}  // namespace tilewright
