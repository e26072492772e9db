// Every verb: those of the harness, and those about the papers' tables and figures.
#pragma once

#include <span>
#include <string_view>

#include "harness/verb.h"

namespace tilewright::harness {

/// In the order of the help.
std::span<const Verb> verbs();
/// Null where there is none.
const Verb* find_verb(std::string_view name);
/// {"schema", "verbs": [their records]}: what `tilewright help --json` prints, and what Python's
/// functions are made from.
nlohmann::ordered_json verbs_json();

}  // namespace tilewright::harness
