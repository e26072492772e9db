// Questions for the planner, and the planner itself.
#pragma once

#include <memory>
#include <string>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/registry.h"

namespace tilewright::quickest {

using Ptr = std::shared_ptr<const Workload>;

inline Ptr workload(const std::string& name) {
  return std::make_shared<const Workload>(named_workload(name));
}

inline Question question(const std::string& w, const std::string& machine, int threads = 1) {
  Question q{.name = w, .workload = workload(w)};
  q.machine = std::make_shared<const Machine>(named_machine(machine));
  q.threads = threads;
  return q;
}

inline Question asked(const Ptr& w, const std::string& machine = "h200") {
  return {.workload = w, .machine = std::make_shared<const Machine>(named_machine(machine))};
}

inline const Model& planner() { return builtin_models().back(); }
inline Settings standard() { return {planner().options, {}, "planner"}; }

}  // namespace tilewright::quickest
