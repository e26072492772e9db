// One operator's value computed where another reads it. Internal to rewrites.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::rewrite {

/// The reader with its input's value computed in its own expression, as `producer` assigns it to
/// `written`: the producer's loops replaced by the affine forms that the input is read at,
/// in what it reads and where it has a loop's index as a value.
///
///   pre[b,g] = x[b,g] + w[g];  i[b,j] = tanh(pre[b,j+8])   =>   i[b,j] = tanh(x[b,j+8] + w[j+8])
///
/// A Reason where that would be another value or no operator:
///  - the input is read by a gather; or outside of its tensor by a sum or an extreme, which counts
///    zeros there (where the reader sums nothing, the value is chosen by the index: the producer's
///    inside, zero outside);
///  - a loop of the reader would index nothing any more, so that a sum over it would lose its
///  points;
///  - a tensor would be read wholly outside, or an expression or a coefficient would be too large,
///  or an index that is a value.
/// Nothing else is asked: whether it is worth while, and whether the reader may change, is the
/// caller's. Cost: linear in both expressions.
Result<Operator> substitute(const WorkloadSpec& spec, const Operator& reader, int input,
                            const Operator& producer, const Output& written);

/// The workload without these operators, tensors that no other has, and loops that no other has.
void drop(WorkloadSpec& spec, const std::vector<bool>& gone);
/// The same of operators whose results nobody reads, and that are no outputs; of operators with
/// several results, those that somebody reads stay. Cost: the square of the operators, at most
/// their cube.
void drop_unneeded(WorkloadSpec& spec);

/// `wanted`, or the first of wanted_2, wanted_3, ... that none of these has for a name.
template <class Items>
std::string unused(const Items& items, const std::string& wanted) {
  const auto taken = [&](const std::string& name) {
    return std::any_of(items.begin(), items.end(), [&](const auto& i) { return i.name == name; });
  };
  std::string name = wanted;
  for (int n = 2; taken(name); ++n) name = wanted + "_" + std::to_string(n);
  return name;
}

/// The parts of an argument that stand between these letters.
std::vector<std::string_view> split(std::string_view text, char at);
/// Throws InputError for a name that the workload has no operator of.
OpId operator_named(const Workload& w, std::string_view name, const std::string& accepted);
/// Only what an expression mentions, or what that is gathered by, stays an input of the operator.
void drop_unread(Operator& op);
/// One more loop, of this name or one like it.
LoopId add_loop(WorkloadSpec& spec, const std::string& name, std::int64_t extent);
/// Its loops in the form that Workload::create gives them: outputs' first, then inputs'.
void name_loops(Operator& op);
/// How often an expression reads an input.
int uses_of(const Expr& e, int input);

}  // namespace tilewright::rewrite
