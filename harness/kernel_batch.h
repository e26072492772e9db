// Many kernels of one workload: emitted, built a few dozen at a time, verified one by one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "harness/answer.h"
#include "harness/verified_kernel.h"

namespace tilewright::harness {

/// One kernel of a batch: a plan's schedule, and the micro-kernel that its products run on.
struct BatchItem {
  Result<Schedule> schedule;
  std::string micro_kernel = {};  ///< empty: each product's own
};

struct BatchOptions {
  cpu::Isa isa = cpu::host_isa();
  int threads = 1;  ///< that each kernel runs on
  int jobs = 1;     ///< compilers at once
  Progress progress = {};
};

/// By item: a kernel that computes what the workload says, or why there is none. Kernels that are
/// built together share the code of their micro-kernels, and all of the batch their tensors, so run
/// one at a time. Cost: 0.05 s of compiling and two runs a kernel, where one alone takes a second.
std::vector<Result<std::unique_ptr<VerifiedKernel>>> verified_kernels(
    const Workload& workload, std::span<const BatchItem> items, const Reference& reference,
    const BatchOptions& options);

/// Of a kernel of the CPU: its source, which names its micro-kernels.
const cpu::Source& source_of(VerifiedKernel& kernel);

}  // namespace tilewright::harness
