// From an argument vector to what it asks, without doing it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/verbs.h"

namespace tilewright::cli {

/// Options may stand before the verb, so the verb is the first argument that is no option and no
/// option's value: its position, or arguments.size() where there is none.
std::size_t find_verb_position(const std::vector<std::string>& arguments);

/// The verb's options and subject; `arguments` without the verb. Throws InputError for whatever the
/// command line has wrong.
Invocation parse_arguments(const Verb& verb, std::vector<std::string> arguments);

}  // namespace tilewright::cli
