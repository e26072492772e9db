// MCFuser's options, each written once: the command line, Python, batch lines, sweeps, answers and
// the reference pages read them here.
#pragma once

#include <optional>
#include <span>

#include "core/base/option.h"
#include "models/mcfuser/mcfuser.h"

namespace tilewright::mcfuser {

std::span<const OptionSpec> option_specs();
/// `flat`: expressions with loops in sequence too; false: nested ones only, Chimera's space. Throws
/// InputError for rules that are none.
Options options_of(const Settings& settings, bool flat);
/// Algorithm 1's parameters; none for the exhaustive search.
std::optional<Evolution> evolution_of(const Settings& settings, std::uint64_t seed);

}  // namespace tilewright::mcfuser
