// The fixed part of every emitted program: boxes, tiles and what moves them.
#pragma once

#include <string>

#include "codegen/cpu/cpu.h"

namespace tilewright::cpu {

struct PreludeOptions {
  bool count = false;
  bool f64 = false;
  int most_steps = 1;   ///< boundaries that one copy crosses, at most
  bool once = false;    ///< some compute is !once
  bool functions = false;  ///< some operator evaluates an expression
  bool atomic = false;  ///< some store is !atomic
};

/// C++17 text, to stand inside the emitted program's namespace after <cmath>, <cstdint>, <cstring>
/// and after the macro TILEWRIGHT_TARGET.
std::string prelude_text(const PreludeOptions& options);

/// `outer_product` and `multiply` (C[i,j] += A[i,k] * B[k,j] on any sizes) by that micro-kernel.
std::string micro_kernel_text(const MicroKernel& kernel, bool f64);
/// The function attribute that the isa needs, or nothing.
std::string target_attribute(Isa isa);

}  // namespace tilewright::cpu
