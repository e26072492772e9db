// From an argument vector to what it asks, without doing it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/verb.h"

namespace tilewright::cli {

/// What a command line asks.
struct Invocation {
  harness::Asked asked = {};
  bool json = false;
};

/// Options may stand before the verb, so the verb is the first argument that is no option and no
/// option's value: its position, or arguments.size() where there is none.
std::size_t find_verb_position(const std::vector<std::string>& arguments);

/// The verb's options and subject; `arguments` without the verb. Throws InputError for whatever the
/// command line has wrong.
Invocation parse_arguments(const harness::Verb& verb, std::vector<std::string> arguments);

/// What `tilewright VERB --help` prints: its own options, then those of the targets and models that
/// are among `words` (`--help cpu`, `--model NAME --help`), or of all where "all" is, and whose
/// options there are besides. Throws InputError where the word behind --help is neither.
std::string help_of(const harness::Verb& verb, const std::vector<std::string>& words = {});

}  // namespace tilewright::cli
