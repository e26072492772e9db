// Meters by name, and why one cannot be used here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/cpu/cpu.h"
#include "core/base/error.h"
#include "profilers/meter.h"

namespace tilewright::harness {

/// Throws InputError with the names (after `before`, where an option takes other words too).
const profilers::MeterRecord& find_meter(std::string_view name, std::string_view option,
                                         std::string_view before = {});
/// Why the meter is not usable here, with what would help; none: it is.
std::optional<Reason> absent(const profilers::MeterRecord& meter);

/// --isa, of every verb. Throws InputError.
cpu::Isa isa_named(const std::string& name);

}  // namespace tilewright::harness
