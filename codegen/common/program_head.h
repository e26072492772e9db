// What emitted programs of every target begin with.
#pragma once

#include <string>

#include "core/plan/schedule.h"

namespace tilewright::codegen {

/// Throws InputError unless exported names can begin with it.
void check_prefix(const std::string& prefix);
/// How the file is built, what the workload computes, and each kernel's tree, as comments.
std::string program_head(const Schedule& schedule, const std::string& build_command);

}  // namespace tilewright::codegen
