// Phases of a kernel that differ in names and numbers alone, as one function that each calls: the
// code is there once, so that it stays in the instruction cache and compiles once.
#pragma once

#include <string>

namespace tilewright::cuda {

struct SharedPhases {
  std::string functions;  ///< before the kernel
  std::string body;       ///< the kernel's, with calls in the place of phases
};

/// `body`: the text of a kernel whose parameters are `parameters`, as the emitter prints it;
/// `symbol`: what functions are named after. A phase is what lies between two grid_sync() of one
/// block of the text. Those that repeat at least kRepeats times become calls; what they use of the
/// kernel and what differs among them are arguments. Everything else is left as it is.
SharedPhases share_phases(const std::string& body, const std::string& parameters,
                          const std::string& symbol);

}  // namespace tilewright::cuda
