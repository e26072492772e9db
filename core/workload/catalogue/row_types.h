// Element types of papers' rows that depend on the machine.
#pragma once

#include <string_view>

namespace tilewright {

/// Whether the name, with or without parameters, is a row whose paper has f16 on GPUs and NPUs,
/// though its default is another type: "chimera/G1".
bool half_on_accelerators(std::string_view name);

}  // namespace tilewright
