// Kernels of one source that differ in names alone: one function for all of them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {

/// The kernel's text without comments, each name that the emitter made replaced by when it is first
/// met: two kernels with equal texts do the same to their parameters, in order. Such a name has an
/// underscore inside, and no device header has it. Linear.
std::string without_names(const std::string& text);

/// Functions that a source has already.
class SharedKernels {
 public:
  /// Gives the launches the names of an earlier kernel's functions, where there is one of the same
  /// text, threads, shared memory and cluster. Returns whether there is: then the text is not
  /// needed.
  bool share(KernelText& kernel);

 private:
  using Key = std::vector<std::string>;
  std::map<Key, std::vector<std::string>> known_;  ///< symbols of the launches
};

}  // namespace tilewright::cuda
