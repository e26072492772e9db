// The machine files that the library carries, as text.
#pragma once

#include <span>
#include <string_view>

namespace tilewright {

struct MachineFile {
  std::string_view name;  ///< for -m
  std::string_view text;  ///< of its YAML file
};

/// In the order in which users see them.
std::span<const MachineFile> machine_files();

}  // namespace tilewright
