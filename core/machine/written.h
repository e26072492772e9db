// What writing to a level takes, reading what was written, and beginning to, by the name that a
// machine file has for it.
#pragma once

#include <cctype>
#include <string>

#include "core/machine/machine.h"

namespace tilewright {

/// The key of a line that another core has written and still has.
inline constexpr const char* kTakingOver = "take_over";
/// The keys of what a launch of a program takes until it computes, and of what it takes more where
/// many others have run since its kernel: code comes from the second cache, and no branch of it is
/// foreseen. On a GPU, of a KiB of the kernel's instructions.
inline constexpr const char *kLaunch = "launch", *kLaunchCode = "launch_code";
/// The key of a line that is written to home past the caches.
inline constexpr const char* kWritingPastCaches = "write_past";
/// The key in ComputeUnit::cycles of a line that is written to a level and goes back there:
/// "write_l2", "write_dram" for the home.
inline std::string key_of_writing(const Machine& m, LevelId level) {
  if (level == m.home()) return "write_dram";
  std::string key = "write_";
  for (const char c : m.level(level).name)
    key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}

}  // namespace tilewright
