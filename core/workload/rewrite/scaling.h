// How expressions depend on a value m that changes while they are accumulated. Internal to
// rewrites.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/workload/workload.h"

namespace tilewright::rewrite {

/// What is known of the tensors that depend on m, when m is the tensor `of` read at `index`.
struct Scaling {
  TensorId of;
  std::vector<Affine> index;
  /// Tensors that equal something without m times exp(rate * m), with the index they are written
  /// at.
  struct Scaled {
    double rate = 0.0;
    std::vector<Affine> index;
  };
  std::map<TensorId, Scaled> scaled;
  /// Tensors that are right only once m has its last value.
  std::set<TensorId> finals;
};

/// r where the expression equals something without m times exp(r * m): 0 where it does not depend
/// on m at all; nothing where it depends on m in another way. A change of m by d then changes it by
/// a factor of exp(r * d).
std::optional<double> rate_of(const Expr& e, const Operator& op, const Scaling& s);

/// Below all scores of which a maximum is taken, and a number: differences with it are none of two
/// infinities. What some targets make of it, its product with the logarithm of two, is finite, too.
inline constexpr double kBelowAllScores = std::numeric_limits<float>::lowest() / 2;

/// Whether the value at the first place of a maximum's loops is a number in every row, if products
/// and tensors that are read alone are: what is masked by -inf there, or added by a tensor, may be
/// none. Cost: the operators before.
bool begins_with_a_number(const Workload& w, OpId max);

}  // namespace tilewright::rewrite
