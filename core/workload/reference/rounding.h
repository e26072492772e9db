// How far from exact a kernel may be that computes what its workload says and rounds as its types
// have it: a bound for every element of every output.
//
// Rounding errors are taken as independent (Higham and Mary, A new approach to probabilistic
// rounding error analysis, SIAM J. Sci. Comput. 41, 2019): what is propagated is a standard
// deviation, and the bound is kReach of them. One rounding to a type of unit roundoff u is off by
// u |x| / sqrt(3). Through an operator, to first order:
//   - a point: sum |df/dx_i| e_i over its inputs, and a rounding in f32 (f64 of f64) of every call
//     in the expression (error_rows.h), but of whole numbers, as loops' indices are, that are added
//     or multiplied and stay within 2^24;
//   - a sum of n terms t: sqrt(sum e_t^2), what an input without the summed loop contributes, and
//     the rounding of a call of such inputs alone, added up instead, and n roundings of partial
//     sums, whatever their order, each of them at most sqrt(S^2 + sum t^2), S the sum itself:
//     partial sums of terms that come in no order of size or sign are not larger. A number that is
//     added r times is rounded alike each time: of a summand that some summed loops do not index, n
//     counts as n r; where r terms are a sum's largest or its smallest, as those are that a clamp
//     cuts off, r^2 comes to n. In 16 bits also a last bit of f32 for each addition of products, which tensor
//     cores cut off: n / 8 of them, or as many as a plan has steps (Rounding::additions);
//   - the place of a row's largest element (ArgMax, written as select(lt(x, most), none, place)) is
//     exact where one element alone may be the largest, else any of those that may be;
//   - an integer result is exact where all that it may be rounds to the same number, else off by
//   one;
//   - the result, where its type is of 16 bits or is f32 and made of f64, is rounded to it once,
//     unless a plan keeps it in registers (Rounding::kept), or every element is a value that was
//     stored in that type before (a slice, relu, the larger of two). Partial sums that a plan
//     stores in such a type are rounded each time (Rounding::partial_stores).
// Errors of a row's statistic (softmax's maximum, a norm's mean) come back together in later sums,
// or cancel there. In 16 bits, where such a statistic is read along loops that are summed later,
// evaluations with every intermediate moved by up to one unit at random (four, and up to 16 where
// an output has 250 to 1,000 elements) say how large errors are: bounds are multiplied by the root
// mean square of what has moved over what was propagated, of 64 neighbours at a time, and by 1.5;
// by no less than 0.6 of that of the whole output, and of outputs of less than 250 elements by 1 at
// least. 0.6 is by experiment: neighbours share their errors, so four evaluations of one row may
// all be small. With 0.3, a kernel that rounds every result as typed was off by up to 1.08 bounds
// (attention of 8 heads, 1,024 tokens, sizes of 128, f16, 14 seeds); with 0.6 by 0.69.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/workload/reference/evaluate.h"

namespace tilewright {

/// Standard deviations that an element may be off by: 2e-9 of normally distributed ones are further
/// off, and most errors are smaller than their bound assumes.
inline constexpr double kReach = 6;

/// Products that a tensor core adds to a sum at once, at least.
inline constexpr std::int64_t kProductsAtOnce = 8;

/// How a kernel rounds, beside what its workload says.
struct Rounding {
  /// By TensorId: intermediates that stay in f32. Empty: none.
  std::vector<bool> kept = {};
  /// By TensorId: how often an element's partial sum is rounded to the tensor's type before the sum
  /// is complete. Empty: never.
  std::vector<double> partial_stores = {};
  /// By TensorId: how often products are added to an element's sum in 16 bits, where that is more
  /// often than once for eight of them. Empty: nowhere.
  std::vector<double> additions = {};
  /// The kernels are another library's, whose sigmoid, tanh and erf may be one polynomial for all
  /// arguments: off by a last bit of 1 where they are small, too.
  bool other = false;
};

/// By TensorId: of outputs that say where a row is largest (or least), the elements for which
/// rounding leaves several places, row-major, and these places: a right kernel has one of them.
using AcceptedPlaces = std::vector<std::map<std::size_t, std::vector<double>>>;

struct Bounded {
  TensorValues values;  ///< of the workload's outputs, as evaluate has them
  TensorValues bounds;  ///< of the outputs: |element - value| of a right kernel is at most this
  /// Bounds of these elements are as of exact ones.
  AcceptedPlaces accepted = {};
};
/// The values that an output is held against: where one of the accepted places is there, that.
/// Nothing where none is accepted: then they are `values`.
std::optional<std::vector<double>> with_places(const std::vector<double>& values,
                                               const AcceptedPlaces& accepted, TensorId output,
                                               DType type, const void* got);
/// Cost: two to three evaluations, of products two where their right operand is an input; four more
/// where statistics in 16 bits are read as said above. Memory: twice that of evaluate.
Bounded evaluate_bounded(const Workload& w, TensorValues inputs, const Rounding& rounding = {});

}  // namespace tilewright
