// What the target cpu is asked, as options: their names, values, defaults and help.
#pragma once

#include <span>

#include "core/base/option.h"

namespace tilewright::cpu {

std::span<const OptionSpec> option_specs();

}  // namespace tilewright::cpu
