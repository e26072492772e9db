// Intel PCM: the table that `pcm -csv` prints.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace tilewright::profilers {

/// The columns under "System" (or "SYSTEM") of the last line of what `pcm -csv` prints, by name:
/// READ and WRITE in gigabytes, L2MISS and L3MISS in millions. Two lines of headers, of which the
/// first names a group and the second a column; fields between commas or semicolons; a group that
/// has no name goes on. What is no number ("N/A") is left out. A Reason where it is no such table.
Result<std::map<std::string, double>> pcm_system_columns(std::string_view csv);

}  // namespace tilewright::profilers
