// Launches that begin before the one before them has ended.
#pragma once

#include <functional>

#include "core/lowering/gpu/thread_program.h"

namespace tilewright::lowering {

/// Whether it pays for a kernel: its blocks wait for no others, and are given out no slower than
/// their data come. Blocks of a launch that may begin early are given out at half of the rate.
/// Cost: the kernel's buffers.
bool begins_early(const Schedule& s, int kernel);

/// Puts a barrier of launches into the program: every thread waits there until the launch before
/// has ended and what it wrote is seen. It stands before the first step that stores at home, or
/// reads there what `written` says that the launch before may write; loads of other tensors that
/// stand beside that step go first. Cost: the program's steps.
void wait_for_launches(ThreadProgram& p, const std::function<bool(TensorId)>& written);

}  // namespace tilewright::lowering
