// Questions about expressions that several parts ask.
#pragma once

#include "core/workload/workload.h"

namespace tilewright {

/// Whether it names another output of its operator, as it was before or is after (running operators).
bool names_outputs(const Expr& e);
/// Whether it reads that input.
bool reads_input(const Expr& e, int input);

}  // namespace tilewright
