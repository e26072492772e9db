// Chimera's options, each written once: the command line, Python, batch lines, sweeps, answers and
// the reference pages read them here.
#pragma once

#include <span>

#include "core/base/option.h"
#include "models/chimera/chimera.h"
#include "models/chimera/levels.h"

namespace tilewright::chimera {

std::span<const OptionSpec> option_specs();
/// What they say of one level.
Options options_of(const Settings& settings);
/// What decides between levels.
Objective objective_of(const Settings& settings);

}  // namespace tilewright::chimera
