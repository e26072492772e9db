// A verb's options as Python gives them: one JSON object, read key by key.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "experiments/report/reproduce.h"
#include "harness/verbs.h"

namespace tilewright::python {

/// Everything that a verb may be asked.
struct Invocation {
  harness::Request request = {};
  harness::EmitOptions emit = {};
  harness::MeasureOptions measure = {};
  harness::RunOptions run = {};
  harness::ValidateOptions validate = {};
  harness::ReproduceOptions reproduce = {};
  std::string models = "all";  ///< of compare
  std::optional<std::string> out = {};
  std::optional<std::string> batch = {};
  bool resolved = false;
  bool curve = false;
  harness::WalkOptions walk = {};
};

/// Throws InputError naming the option where a value is not of the kind that it takes.
Invocation invocation_of(const nlohmann::ordered_json& options);

}  // namespace tilewright::python
