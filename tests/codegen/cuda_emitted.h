// Sources of single kernels that tests emit, and what ptxas says of them.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>

#include "codegen/cuda/build.h"
#include "codegen/cuda/cuda.h"

namespace tilewright::testing {

inline cuda::Source emitted(const Schedule& schedule, const cuda::EmitOptions& options) {
  const auto source = cuda::emit(schedule, options);
  if (!source.ok()) throw std::runtime_error(source.reason());
  return *source;
}

/// Appends a kernel to those that are built together.
inline void add_kernel(cuda::Source& all, const cuda::Source& one) {
  all.text += one.text;
  all.launches.push_back(one.launches.back());
}

/// Built for sm_90a, no kernel has registers or arrays in local memory.
inline void expect_no_spills(const cuda::Source& all) {
  const auto built = cuda::build(all, {.architecture = "sm_90a"});
  ASSERT_TRUE(built.ok()) << built.reason();
  ASSERT_EQ(built->kernels.size(), all.launches.size());
  for (const cuda::KernelFigures& k : built->kernels) {
    EXPECT_EQ(k.spill_store_bytes + k.spill_load_bytes, 0) << k.symbol;
    EXPECT_EQ(k.stack_bytes, 0) << k.symbol;
  }
}

}  // namespace tilewright::testing
