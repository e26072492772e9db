// The options of the command line: one record each feeds the parser, the help and the tests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  void (*apply)(Invocation&, const std::string& value) = nullptr;
};

const std::vector<Option>& options();
/// The record of that name; it must exist.
const Option& option(std::string_view name);

}  // namespace tilewright::cli
