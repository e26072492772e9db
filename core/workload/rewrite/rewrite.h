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
  /// and types; so does everything else that is not in the way.
  Result<Workload> (*function)(const Workload&);
};
const std::vector<Rewrite>& rewrites();

/// One rewrite by name. Throws InputError for a name that is not in rewrites().
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
/// share_loops.cpp
Rewrite share_loops();
/// scale_late.cpp
Rewrite scale_late();

}  // namespace tilewright
