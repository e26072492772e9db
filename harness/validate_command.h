// A validation as the command line that gives it again.
#pragma once

#include <string>

#include "harness/verbs.h"

namespace tilewright::harness {

/// Quoted for a shell; what decides no figure (--csv, --threads, --min-r2) is left out.
std::string command_of(const Request& r, const ValidateOptions& o);

}  // namespace tilewright::harness
