// A kernel an operator: what fusion is held against.
#pragma once

#include "core/workload/workload.h"

namespace tilewright::harness {

/// One operator of a workload as a workload: what it reads is input, what it writes output. Loops
/// and tensors keep their names, so that its kernels are kernels of the whole workload's plans too.
Workload operator_alone(const Workload& w, OpId id);

}  // namespace tilewright::harness
