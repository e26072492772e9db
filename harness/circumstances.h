// Where and when a time was measured.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tilewright::harness {

/// The processor's name and its cores, the operating system's and the compiler's, the load average
/// of the last minute (below zero: unknown), the date (UTC) and the command.
nlohmann::ordered_json circumstances(const std::string& command);

}  // namespace tilewright::harness
