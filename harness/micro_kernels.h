// The registry of micro-kernels as the verbs use it: by name on every target, and as a list.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright::harness {

/// Throws InputError where --micro-kernel names none of that target and variant (cpu: the
/// instruction set; else empty), listing those there are. Nothing given is nothing wrong.
void check_micro_kernel(std::string_view target, std::string_view variant,
                        const std::optional<std::string>& name);

/// Those of a target, in the registry's order: what each takes and needs, and whether this machine
/// runs it (cpu: natively; npu and cuda-emulated: emulated; cuda: where the target is usable, on a
/// device).
nlohmann::ordered_json micro_kernels_json(std::string_view target, bool usable);

}  // namespace tilewright::harness
