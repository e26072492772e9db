// Launches that begin before the one before them has ended.
#pragma once

#include <functional>

#include "core/lowering/gpu/thread_program.h"

namespace tilewright::lowering {

struct BlockRates;

/// Whether a kernel had better say as soon as it may that the next launch may begin; else that
/// begins when this one's blocks have ended. To say so takes time of every block, which must not be
/// more than the kernel's data take to come. And blocks of the next launch take the room that is
/// left: if they are not so many as have room on all SMs, and more than a few, some SMs get too
/// many. `threads`: of a block; 0: of a kernel whose loops are bound to no units, which has few
/// blocks an SM. Cost: the kernel's buffers.
bool lets_next_begin(const Schedule& s, int kernel, std::int64_t threads);
bool lets_next_begin(const Schedule& s, int kernel, std::int64_t threads, const BlockRates& r);

/// Puts a barrier of launches into the program: every thread waits there until the launch before
/// has ended and what it wrote is seen. It stands before the first step that stores at home, or
/// reads there what `written` says that the launch before may write; loads of other tensors that
/// stand beside that step go first. `next`: the next launch may begin then. Cost: the program's
/// steps.
void wait_for_launches(ThreadProgram& p, const std::function<bool(TensorId)>& written, bool next);

}  // namespace tilewright::lowering
