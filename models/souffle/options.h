// Souffle's options, each written once: the command line, Python, batch lines, sweeps, answers and
// the reference pages read them here.
#pragma once

#include <span>

#include "core/base/option.h"
#include "models/souffle/souffle.h"

namespace tilewright::souffle {

std::span<const OptionSpec> option_specs();
Options options_of(const Settings& settings);

}  // namespace tilewright::souffle
