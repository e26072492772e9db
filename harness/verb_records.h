// What the records of this folder's verbs share.
#pragma once

#include <utility>
#include <vector>

#include "core/base/option.h"
#include "harness/verb.h"

namespace tilewright::harness {

inline constexpr const char* kPlanHelp =
    "PLAN is a plan file, as plan -o writes it, or a workload. Of a workload, --tree and --tiles\n"
    "say the plan; or --order says it, with --tiles or with the best tiles; or --model takes the\n"
    "model's best plan. Without any of these it is the plan that the verb plan prints.";

using Specs = std::vector<OptionSpec>;

inline Specs operator+(Specs a, const Specs& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Specs one(OptionSpec spec) { return {std::move(spec)}; }

/// What says a plan.
inline Specs plan_options() {
  return shared_options({"machine", "rewrite", "model", "tree", "tiles", "pin", "flag", "level",
                         "order", "capacity"});
}

/// -o
inline OptionSpec out(Writes writes, const char* help) {
  return {.name = "out",
          .kind = OptionKind::path,
          .writes = writes,
          .value = writes == Writes::folder ? "DIR" : "FILE",
          .help = help,
          .letter = "o"};
}

/// The verbs that build kernels or run on the machine, in the order of the help: calibrate, emit,
/// run, measure.
std::vector<Verb> kernel_verbs();

}  // namespace tilewright::harness
