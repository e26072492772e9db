// Matrix products and chains of them, found in a workload.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::bounds {

/// The loops of an access, by dimension, where every subscript is a loop of its own that runs over
/// the whole dimension.
std::optional<std::vector<LoopId>> whole_loops(const Workload& w, const Access& a);

/// out[..] += x[..] * y[..], every loop in two of the three tensors at least. A loop has one place
/// in a tensor's subscripts; the inputs' may add several loops up, as a convolution's do. Only
/// multiply-adds whose operands lie inside their tensors count: padding needs nothing on chip.
struct Contraction {
  OpId op;
  TensorId x, y, out;
  double volume = 0;  ///< multiply-adds
  /// No set of a elements of x, b of y and c of out allows more than sqrt(spread a b c) of them. An
  /// element of a convolution's image serves `spread` pairs of a place and a tap; else it is 1.
  double spread = 1;
  double elements_x = 0, elements_y = 0, elements_out = 0;  ///< that they touch
};
std::optional<Contraction> contraction_of(const Workload& w, OpId op);

/// A contraction with one loop each that only the first input and the output have (m), the second
/// and the output (n), both inputs (k); other loops are in all three (batch).
struct Product {
  OpId op;
  TensorId a, b, c;
  LoopId m, n, k;
  std::vector<LoopId> batch;
  std::int64_t extent_m = 1, extent_n = 1, extent_k = 1, repeats = 1;
};
std::optional<Product> product_of(const Workload& w, OpId op);

/// C[m,l] += A[m,k] B[k,l]; E[m,n] += C[m,l] D[l,n], C read by nothing else.
struct Chain {
  OpId first, second;
  TensorId a, b, c, d, e;
  LoopId m, l, k, n;
  std::vector<LoopId> batch;
  std::int64_t M = 1, L = 1, K = 1, N = 1, repeats = 1;
};
std::optional<Chain> chain_of(const Workload& w);

/// Bytes an element where all tensors have one type; 0 where they differ.
std::int64_t word_bytes(const Workload& w);

}  // namespace tilewright::bounds
