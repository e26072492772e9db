// FlashFuser's options: their specs, and the values that were given.
#pragma once

#include "core/base/option.h"
#include "models/flashfuser/flashfuser.h"

namespace tilewright::flashfuser {

std::span<const OptionSpec> option_specs();
Options options_of(const Settings& settings);

}  // namespace tilewright::flashfuser
