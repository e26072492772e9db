// Meters by name, and why one cannot be used here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/target.h"
#include "core/base/error.h"
#include "profilers/meter.h"

namespace tilewright::harness {

/// Throws InputError with the names (after `before`, where an option takes other words too).
const profilers::MeterRecord& find_meter(std::string_view name, std::string_view option,
                                         std::string_view before = {});
/// Why the meter is not usable here, with what would help; none: it is.
std::optional<Reason> absent(const profilers::MeterRecord& meter);

/// The first target whose kernels the meter measures.
const codegen::Target& target_of(const profilers::MeterRecord& meter);
/// Whether it measures this target's kernels.
bool measures(const profilers::MeterRecord& meter, const codegen::Target& target);

}  // namespace tilewright::harness
