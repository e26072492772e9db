// A workload's tensors, given to every contestant alike, and the answer that each is held against.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/workload/workload.h"

namespace tilewright::bench {

/// What of a workload a peer has to compute.
enum class Kind : std::uint8_t {
  chain,         ///< two matrix products: see Chain
  softmax,       ///< E = softmax(Q K^T) V, the built-in `attention`
  convolutions,  ///< O = conv(M), M = conv(I) or its ReLU: the built-in `conv-chain`
  products,      ///< plain_products() of other workloads
  other
};
Kind kind_of(const Workload& w);

/// to[m,n] = a[m,k] * b[k,n], for each of a batch, perhaps its ReLU; tensors by name, row-major.
struct PlainProduct {
  std::string a, b, to;
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool relu = false;
};
/// The workload as such products, in order; empty where it is anything else.
std::vector<PlainProduct> plain_products(const Workload& w);

/// Any workload of float32: its tensors, row-major and 4096-aligned, inputs seeded as `run`'s are.
class Problem {
 public:
  /// Cost: one evaluation by the reference.
  Problem(const Workload& w, std::uint64_t seed);

  const Workload& workload() const { return *workload_; }
  /// Extent of a loop, 1 where there is none of that name.
  std::int64_t extent(std::string_view loop) const;
  std::int64_t shape(std::string_view tensor, std::size_t dimension) const;
  /// First element; throws std::out_of_range for a name that is no tensor's.
  float* data(std::string_view tensor) const;

  /// Fills every tensor that is no input with NaN, so that what is never written shows.
  void forget() const;
  /// max|x - reference| / max|reference| over the outputs, the reference in float64.
  double error() const;
  /// Whether every element is as near as rounding explains (rounding.h).
  bool right() const;

 private:
  std::shared_ptr<const Workload> workload_;
  std::vector<std::shared_ptr<float[]>> tensors_;
  std::vector<std::vector<double>> reference_, bounds_;  ///< by tensor, of outputs only
};

/// 4096-aligned room.
std::shared_ptr<float[]> aligned_floats(std::int64_t count);

}  // namespace tilewright::bench
