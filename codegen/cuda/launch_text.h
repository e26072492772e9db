// A kernel's function around its body, and the launches that zero what its blocks add to.
#pragma once

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {

struct KernelBody {
  std::string body;
  int threads = 32;
  std::int64_t shared_bytes = 0;
};
/// Text and launches; tiles and notes are left to the caller. Marks what the kernel needs at home.
KernelText launch_text(Program& program, int kernel, const KernelBody& body);

}  // namespace tilewright::cuda
