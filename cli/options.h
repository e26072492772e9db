// The options of the command line: one record each feeds the parser, the help and the tests.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/option.h"
#include "experiments/report/reproduce.h"
#include "harness/verbs.h"

namespace tilewright::cli {

/// What a command line asked, filled option by option.
struct Invocation {
  harness::Request request = {};
  harness::EmitOptions emit = {};
  harness::RunOptions run = {};
  harness::MeasureOptions measure = {};
  harness::ValidateOptions validate = {};
  harness::ReproduceOptions reproduce = {};
  harness::WalkOptions walk = {};
  std::string models = "all";
  std::optional<std::string> out = {};
  std::optional<std::string> batch = {};
  bool json = false;
  bool resolved = false;
  bool curve = false;
};

struct Option {
  std::string name;         ///< "--tiles"
  std::string short_name;   ///< "-m", or empty
  std::string value;        ///< what stands for the value in the help; empty: a switch
  std::string help;
  bool repeated = false;    ///< may be given several times
  std::function<void(Invocation&, const std::string& value)> apply = {};
};

/// Those of verbs.
const std::vector<Option>& options();
/// The options of one or several models that have the same.
struct ModelGroup {
  std::string models;  ///< their names, with commas between
  std::span<const OptionSpec> specs;
  std::vector<Option> options;
};
/// First those of every model, then by model. Several may have options of one name.
const std::vector<ModelGroup>& model_options();
/// The record of that name; it must exist.
const Option& option(std::string_view name);

}  // namespace tilewright::cli
