// What the files of this folder share.
#pragma once

#include <bit>

#include "models/mcfuser/mcfuser.h"

namespace tilewright::mcfuser::detail {

template <class Tag>
constexpr std::uint64_t bit(Id<Tag> id) {
  return std::uint64_t{1} << id.index();
}
template <class Tag>
constexpr bool has(std::uint64_t mask, Id<Tag> id) {
  return (mask >> id.index()) & 1;
}

/// A count that a double holds, at most what 64 bits do.
constexpr std::int64_t whole(double x) {
  return x < 9.2e18 ? static_cast<std::int64_t>(x) : INT64_MAX;
}

/// A product of inputs summed over a loop; online softmax's, rescaled as it goes, too (which
/// Workload::is_contraction leaves out).
bool is_product(const Workload& w, OpId op);

/// Every loop of the expression.
Mask loops_of(const Expression& e);
/// Its loops among `mask`, outer first; they must be nested in each other.
std::vector<LoopId> nesting(const Expression& e, Mask mask);

/// A loop around a statement.
struct Around {
  LoopId loop;
  bool bound = false;
};

/// How many of the loops `path` around a compute stay around a load or store that it needs, of a
/// tensor indexed by `indexed`; `reduced`: the loops that the compute reduces (stores).
std::size_t depth_of(Kind kind, std::span<const Around> path, Mask indexed, Mask reduced,
                     Hoist hoist, Stores stores);

/// A statement with the loops that its compute has and how many of them it keeps.
struct Statement {
  Kind kind;
  OpId op;
  TensorId tensor;
  std::vector<Around> path;  ///< of the compute, outer first
  std::size_t depth = 0;     ///< of the statement
};
/// All statements of an expression, computes in program order, each after its loads and before its
/// stores.
std::vector<Statement> statements_of(const Chain& c, const SubExpression& s, Mask once, Hoist hoist,
                                     Stores stores);

/// Loops of one trip at these tiles.
Mask once_at(const Chain& c, std::span<const std::int64_t> tiles);
/// Operations at one point of the operator: 2 a multiply-add, otherwise one a function called and
/// one a combination.
double flops_at_point(const Operator& op, bool product);
/// Every tuple of tile sizes that rule 3 keeps, the last dimension fastest.
void for_each_tuple(const Chain& c, const Space& s, const std::function<void(const Tiles&)>& visit);
/// Rule 4, where it prunes.
bool fits_roughly(const Chain& c, const Device& d, const Options& o, const Tiles& tiles);
std::string statement_name(const Workload& w, Kind kind, OpId op, TensorId tensor);

}  // namespace tilewright::mcfuser::detail
