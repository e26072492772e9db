// Who must wait for whom before a value is read (section 5.1, figure 5).
#pragma once

#include "models/powerfusion/gir.h"

namespace tilewright::powerfusion {

/// How a scope is decided: by who has each element, or as the text of section 5.1 is printed, the
/// patterns first. The printed test is wrong where patterns are equal and the units are not.
enum class ScopeTest : std::uint8_t { units, printed };

/// The scope between a slice that is written and one of the same tensor that is read: lane where
/// every element that a lane reads is one that it (or, of a value that all lanes have, any) wrote;
/// warp, block where the same holds of warps, of blocks; else, and where something is read that was
/// not written, device. Elements outside the tensor and iterations that do not exist are left
/// aside. Never too small; where a dimension's digits differ and are more than 2^17 combinations,
/// it may be too large. Cost: the digits squared, and those combinations.
Scope scope_between(const Gir& g, const Slice& written, const Slice& read);
Scope scope_between(const Gir& g, const Slice& written, const Slice& read, ScopeTest test);

/// Whether both have the same elements in the same lanes, trips and items.
bool same_content(const Gir& g, const Slice& a, const Slice& b);

}  // namespace tilewright::powerfusion
