// Something outside this program that a verb may use: whether it is usable here, and if not why.
#pragma once

#include <string>

namespace tilewright {

struct Availability {
  bool usable = false;
  std::string reason = {};  ///< why not; empty where usable
  std::string detail = {};  ///< what was found
  std::string help = {};    ///< a command that would make it usable; empty where none is known
};

}  // namespace tilewright
