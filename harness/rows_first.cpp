#include "harness/rows_first.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/format.h"
#include "core/plan/names.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/subgraph.h"
#include "harness/ask.h"
#include "harness/in_runs.h"
#include "harness/taken.h"

namespace tilewright::harness {
namespace {

constexpr const char* kRowsFirst = "materialise-patches";
constexpr double kFaster = 0.95;  // of the predicted seconds

using Names = std::vector<std::string>;

/// The planner's kernels for these operators, as the target takes them, under names that begin with
/// `name`; none where there are none.
std::vector<Kernel> planned(const Request& request, const Setting& whole, const Names& names,
                            const std::string& name) {
  const auto ops = operators_named(*whole.workload, names, kRowsFirst);
  if (no_subgraph(*whole.workload, ops)) return {};
  Request of = request;
  of.model.reset(), of.rewrites.clear(), of.progress = {};
  const auto w = std::make_shared<const Workload>(subgraph(*whole.workload, ops));
  Setting setting{.workload_name = w->name(),
                  .workload = w,
                  .machine = in_runs(*whole.workload, whole.machine)};
  const Setting before = setting;
  const Model& planner = planning_model();
  Result<Proposal> best = propose(planner, of, setting);
  if (!best || !best->rewrites.empty()) return {};
  const Result<Taken> taken = take(best.value(), setting, target_named(request.target), of,
                                   asked_again(planner, of, before, best->level));
  if (!taken || !best->rewrites.empty()) return {};
  std::vector<Kernel> kernels = std::move(best->plan.kernels);
  for (std::size_t k = 0; k < kernels.size(); ++k)
    kernels[k].name = k == 0 ? name : formatted("{}_{}", name, k + 1);
  return kernels;
}

/// Predicted seconds of all launches of these kernels; infinite where one has none.
double seconds_of(const Request& request, const Setting& setting, std::vector<Kernel> kernels) {
  const Result<Program> program =
      program_of(request, {.setting = setting, .plan = {.kernels = std::move(kernels)}});
  if (!program) return HUGE_VAL;
  double seconds = 0;
  for (const Launch& l : program->launches)
    seconds += program->kernels[l.kernel].least().value_or(HUGE_VAL);
  return seconds;
}

}  // namespace

ProgramPlan with_rows_first(const Request& request, ProgramPlan made) {
  const Workload& before = *made.setting.workload;
  const Machine& m = *made.setting.machine;
  if (m.level(m.default_level()).managed != Managed::software || !apply(kRowsFirst, before).ok())
    return made;
  Setting setting = made.setting;
  rewrite(setting, std::vector<std::string>{kRowsFirst}, "--split");
  const Workload& after = *setting.workload;
  // Of each kernel that has such a product: what is written first, and what comes after it. Of a
  // product whose results are moved, these are kernels of their own.
  Plan plan;
  std::vector<Kernel> theirs, ours;
  for (const Kernel& kernel : made.plan.kernels) {
    Names rows, products, rest;
    for (OpId op : operators_of(kernel, before)) products.push_back(before.op(op).name);
    const auto is_theirs = [&](OpId op) {
      return op.valid() && std::ranges::find(products, after.op(op).name) != products.end();
    };
    for (std::size_t i = 0; i < after.operators().size(); ++i) {
      const Operator& op = after.op(OpId(i));
      if (before.find_op(op.name)) continue;
      const auto of_inputs = [&](const Access& a) { return is_theirs(after.producer(a.tensor)); };
      const auto read = [&](const Output& o) {
        return std::ranges::any_of(after.consumers(o.target.tensor), is_theirs);
      };
      if (std::ranges::any_of(op.inputs, of_inputs))
        rest.push_back(op.name);
      else if (std::ranges::any_of(op.outputs, read))
        rows.push_back(op.name);
    }
    if (rows.empty()) {
      plan.kernels.push_back(kernel);
      continue;
    }
    if (!rest.empty())
      std::erase_if(products, [&](const std::string& name) {
        const OpId op = *after.find_op(name);
        const bool follows = std::ranges::any_of(after.op(op).inputs, [&](const Access& a) {
          const OpId from = after.producer(a.tensor);
          return from.valid() && std::ranges::find(rest, after.op(from).name) != rest.end();
        });
        if (follows) rest.push_back(name);
        return follows;
      });
    theirs.push_back(kernel);
    for (const auto& [names, name] :
         {std::pair(rows, rows.front()), std::pair(products, kernel.name),
          std::pair(rest, kernel.name + "_moved")}) {
      if (names.empty()) continue;
      const std::vector<Kernel> kernels = planned(request, setting, names, name);
      if (kernels.empty()) return made;
      ours.insert(ours.end(), kernels.begin(), kernels.end());
      plan.kernels.insert(plan.kernels.end(), kernels.begin(), kernels.end());
    }
  }
  // A product whose operand its own kernel makes is not parted from it.
  std::size_t planned_ops = 0;
  for (const Kernel& kernel : plan.kernels) planned_ops += operators_of(kernel, after).size();
  if (planned_ops != after.operators().size()) return made;
  if (seconds_of(request, setting, ours) >= kFaster * seconds_of(request, made.setting, theirs))
    return made;
  made.setting = std::move(setting);
  made.plan = std::move(plan);
  return made;
}

}  // namespace tilewright::harness
