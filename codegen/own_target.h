// The target that a kind of machine has.
#pragma once

#include <string_view>

#include "codegen/target.h"

namespace tilewright::codegen {

/// What plans for a machine of that kind ("gpu") have to run on even where no target is named;
/// null: nothing in particular.
const Target* own_target(std::string_view machine_kind);

}  // namespace tilewright::codegen
