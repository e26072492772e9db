// How fast caches are taken to be where a machine file does not say it.
#pragma once

#include <memory>
#include <string>

#include "core/machine/machine.h"

namespace tilewright {

/// Hertz of a processor whose clock is unknown.
inline constexpr double kAssumedClock = 3e9;

/// What the source of an assumed number begins with.
inline constexpr const char* kAssumedSource = "assumed: ";

/// The machine with an assumed bandwidth of each cache (and scratchpad) that has none, in bytes a
/// cycle of its first unit: a first cache 32, a further one 12, memory 6 for one core alone
/// (`cycles: stream`) and 12 for all. They lie between what `calibrate` measured on a Zen 4 (32,
/// 27, 8) and on an Emerald Rapids (43, 11, 6). Sources say "assumed". The same machine where all
/// are known.
std::shared_ptr<const Machine> with_assumed_speed(std::shared_ptr<const Machine> machine);

}  // namespace tilewright
