// Stacks to run kernel threads on, and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simulator/cuda_host/device/device_api.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tilewright::cuda_host {

/// Where a suspended stack goes on.
#if defined(__x86_64__)
struct Context {
  void* stack = nullptr;
};
#else
struct Context {
  ucontext_t state;
};
#endif

/// Saves the running state in `from` and goes on where `to` was saved. Some nanoseconds on x86-64;
/// elsewhere swapcontext, with its two system calls.
void switch_context(Context& from, Context& to);
/// Makes `context` start `function(argument)`, which never returns, on the stack [low, high).
void prepare_context(Context& context, void* low, void* high, void (*function)(void*),
                     void* argument);

/// Address space for `count` stacks, each from a multiple of its size; a page is memory once it is
/// touched.
class StackSlab {
 public:
  static constexpr std::size_t kBytes = TW_STACK_BYTES;
  explicit StackSlab(std::size_t count);
  ~StackSlab();
  StackSlab(const StackSlab&) = delete;
  StackSlab& operator=(const StackSlab&) = delete;
  bool ok() const { return base_ != nullptr; }
  unsigned char* stack(std::size_t i) const { return base_ + i * kBytes; }

 private:
  unsigned char* mapped_ = nullptr;
  unsigned char* base_ = nullptr;
  std::size_t count_;
};

}  // namespace tilewright::cuda_host
