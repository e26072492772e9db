// What Python asks of a verb: one JSON object of its options, the subject and the machine among
// them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "harness/verb.h"

namespace tilewright::python {

/// Throws InputError naming the option, its value and what is accepted.
harness::Asked asked_of(const harness::Verb& verb, const nlohmann::ordered_json& options);

}  // namespace tilewright::python
