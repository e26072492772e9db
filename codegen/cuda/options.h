// What the targets cuda and cuda-emulated is asked, as options: their names, values, defaults and
// help.
#pragma once

#include <span>

#include "core/base/option.h"

namespace tilewright::cuda {

/// Of kernels that are built for a device.
std::span<const OptionSpec> option_specs();
/// Of kernels that are executed on the CPU instead.
std::span<const OptionSpec> emulated_option_specs();

}  // namespace tilewright::cuda
