// Rewrites: workload to workload, the same outputs from the same inputs. Each is checked against
// the evaluator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// A record for every rewrite: feeds the list, the help, the docs and the contract tests. To add
/// one, write its .cpp with `Rewrite my_rewrite()`, its test, and a line each in frame.cpp and
/// CMake.
struct Rewrite {
  std::string name;  ///< "online-softmax"
  std::string summary;
  std::string source;  ///< the paper that it comes from
  /// The rewritten workload, or why it does not apply. Inputs and outputs keep their names, shapes
  /// and types; so does everything else that is not in the way. Null where there is an argument.
  Result<Workload> (*function)(const Workload&) = nullptr;
  std::string argument = {};  ///< the form of what stands behind NAME and a colon; empty: nothing
  /// The same with its argument. Throws InputError for one that is not of the form, or names an
  /// operator that the workload does not have. Null where there is none.
  Result<Workload> (*with)(const Workload&, std::string_view argument) = nullptr;
  /// "compose", "inline:OP;OP"
  std::string form() const { return argument.empty() ? name : name + ":" + argument; }
};
const std::vector<Rewrite>& rewrites();

/// One rewrite by its name or, where it has an argument, "NAME:ARGUMENT". Throws InputError for a
/// name that is not in rewrites(), for an argument too many and for one that is missing or wrong.
Result<Workload> apply(std::string_view name, const Workload& w);

struct RewriteCheck {
  double relative_error = 0.0;  ///< largest over the outputs, as relative_error() defines it
  std::string where;            ///< the output it was found in and how it was evaluated
};
/// Evaluates both workloads on the same seeded inputs and compares every output; `after` also block
/// by block where it has running operators, for several block sizes. Infinity where inputs or
/// outputs differ in name or shape. Cost: a few evaluations of each.
RewriteCheck check_rewrite(const Workload& before, const Workload& after, std::uint64_t seed);

/// online_softmax.cpp
Rewrite online_softmax();
/// compose.cpp
Rewrite compose();
Rewrite compose_gathers();
Rewrite compose_all();
/// split_variance.cpp
Rewrite split_variance();
/// split_sums.cpp
Rewrite split_sums();
/// Operators that `split-sums` would change.
std::vector<OpId> sums_to_split(const Workload& w);
/// split_running.cpp
Rewrite split_running();
/// share_loops.cpp
Rewrite share_loops();
/// scale_late.cpp
Rewrite scale_late();
/// recompute.cpp
Rewrite copies();
Rewrite inlining();
/// hoist.cpp
Rewrite hoist();
/// Operators that `hoist` would change; with `along`, those alone that have a part which moves
/// along the operator's last loop: others are the same in a row.
std::vector<OpId> operators_to_hoist(const Workload& w, bool along = false);
/// pad.cpp
Rewrite pad();
/// Loops along which products read rows that begin at no multiples of 16 bytes: what `pad` may pad.
std::vector<LoopId> loops_of_odd_rows(const Workload& w);
/// pad_results.cpp
Rewrite pad_results();
/// place_results.cpp
Rewrite place_results();
/// channels_last.cpp
Rewrite channels_last();
/// Convolutions that `channels-last` would change.
std::vector<OpId> channels_to_be_last(const Workload& w);
/// materialise.cpp
Rewrite materialise_gathers();
Rewrite materialise_patches();
Rewrite materialise_matrices();
/// Products that `materialise-matrices` would change: those that read an operand through windows,
/// or the others.
std::vector<OpId> no_products_of_matrices(const Workload& w, bool windows);
/// windows.cpp
Rewrite materialise_windows();
/// Products that `materialise-windows` would change.
std::vector<OpId> products_of_windows(const Workload& w);
Rewrite materialise_borders();
/// Operators that `materialise-borders` would change.
std::vector<OpId> readers_beyond_rows(const Workload& w);
/// materialise.cpp
Rewrite materialise_orders();
/// Operators that `materialise-orders` would change.
std::vector<OpId> readers_in_orders(const Workload& w);
/// materialise_across.cpp
Rewrite materialise_across();
/// Operators that `materialise-across` would change.
std::vector<OpId> readers_across(const Workload& w);

}  // namespace tilewright
