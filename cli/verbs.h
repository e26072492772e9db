// The verbs of the command line: one record each feeds the dispatch, the help and the tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "harness/answer.h"

namespace tilewright::cli {

struct Verb {
  std::string name;
  std::string summary;
  std::string subject;                ///< "W", "PLAN", "ID", or empty where it takes none
  std::vector<std::string> options;   ///< names of Option records
  std::string details;                ///< further lines of the help
  harness::Answer (*run)(const Invocation&) = nullptr;
  /// The table for people, of a document that `run` made.
  std::string (*table)(const nlohmann::ordered_json&) = nullptr;
  bool plans = false;  ///< makes or takes plans: has the options of models, too
};

const std::vector<Verb>& verbs();
/// Null where there is none.
const Verb* find_verb(std::string_view name);

}  // namespace tilewright::cli
