// A kernel's function around its body, and the launches that zero what its blocks add to.
#pragma once

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {

struct KernelBody {
  std::string body;
  int threads = 32;
  std::int64_t shared_bytes = 0;
  std::int64_t resident = 0;  ///< blocks that a multiprocessor must have registers for; 0: any
};
/// Text and launches; tiles and notes are left to the caller. Marks what the kernel needs at home.
KernelText launch_text(Program& program, int kernel, const KernelBody& body);

/// An array in the block's shared memory, so many bytes from its beginning, at an address that the
/// compiler makes from no other array's and no other's from it: where a loop steps the register of
/// an array's address, ptxas (12.8, 13.0) takes what was computed from it to move along.
std::string shared_place(const std::string& type, std::int64_t bytes);

/// The device headers' names for how blocks combine what they have of a result at home, and for
/// how threads do.
std::string combining(Combine c);
std::string joining(Combine c);
/// A value that an operator gives an output, rounded where its type is of whole numbers.
std::string made_as(DType type, const Output& out, const std::string& value);

/// Blocks that must be resident on each multiprocessor: more than one where all wait for one
/// another.
std::int64_t resident_blocks(const Machine& m, const Launch& l);
/// Where threads or registers of a multiprocessor do not suffice for that.
std::optional<Reason> too_many_wait(const Machine& m, const Launch& l);

}  // namespace tilewright::cuda
