#include "simulator/cuda_host/fiber.h"

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)  // GCC's word for it
#define TILEWRIGHT_ADDRESSES_CHECKED 1
#elif defined(__has_feature)  // Clang's
#if __has_feature(address_sanitizer)
#define TILEWRIGHT_ADDRESSES_CHECKED 1
#endif
#endif
#if defined(TILEWRIGHT_ADDRESSES_CHECKED)
#include <sanitizer/asan_interface.h>
#endif

namespace tilewright::cuda_host {
namespace {

/// Nothing of what frames left on a stack is held against who has that memory next.
void forget_frames([[maybe_unused]] void* low, [[maybe_unused]] std::size_t bytes) {
#if defined(TILEWRIGHT_ADDRESSES_CHECKED)
  __asan_unpoison_memory_region(low, bytes);
#endif
}

}  // namespace

#if defined(__x86_64__)
// The System V ABI's callee-saved registers; kernels change neither MXCSR nor the x87 control word.
asm(R"(
.text
.p2align 4
.local tilewright_switch
.type tilewright_switch,@function
tilewright_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tilewright_switch,.-tilewright_switch
.p2align 4
.local tilewright_start
.type tilewright_start,@function
tilewright_start:
  movq %r12, %rdi
  callq *%r13
  ud2
.size tilewright_start,.-tilewright_start
)");
extern "C" void tilewright_switch(void** from, void* to);
extern "C" void tilewright_start();

void switch_context(Context& from, Context& to) { tilewright_switch(&from.stack, to.stack); }

void prepare_context(Context& context, void* low, void* high, void (*function)(void*),
                     void* argument) {
  forget_frames(low, static_cast<std::size_t>(static_cast<char*>(high) - static_cast<char*>(low)));
  // As tilewright_switch pops them; the stack is a multiple of 16 at the call in tilewright_start.
  auto** top =
      reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(high) & ~std::uintptr_t(15));
  *--top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&tilewright_start);
  *--top = nullptr;                            // rbp
  *--top = nullptr;                            // rbx
  *--top = argument;                           // r12
  *--top = reinterpret_cast<void*>(function);  // r13
  *--top = nullptr;                            // r14
  *--top = nullptr;                            // r15
  context.stack = top;
}
#else
void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

namespace {
// makecontext passes ints: a pointer goes in halves.
void start(unsigned f_high, unsigned f_low, unsigned a_high, unsigned a_low) {
  const auto whole = [](unsigned high, unsigned low) {
    return (static_cast<std::uintptr_t>(high) << 32) | low;
  };
  reinterpret_cast<void (*)(void*)>(whole(f_high, f_low))(
      reinterpret_cast<void*>(whole(a_high, a_low)));
}
}  // namespace

void prepare_context(Context& context, void* low, void* high, void (*function)(void*),
                     void* argument) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = low;
  context.state.uc_stack.ss_size =
      static_cast<std::size_t>(static_cast<char*>(high) - static_cast<char*>(low));
  context.state.uc_link = nullptr;
  const auto f = reinterpret_cast<std::uintptr_t>(function);
  const auto a = reinterpret_cast<std::uintptr_t>(argument);
  makecontext(&context.state, reinterpret_cast<void (*)()>(start), 4,
              static_cast<unsigned>(f >> 32), static_cast<unsigned>(f),
              static_cast<unsigned>(a >> 32), static_cast<unsigned>(a));
}
#endif

StackSlab::StackSlab(std::size_t count) : count_(count) {
  void* const p = mmap(nullptr, (count + 1) * kBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return;
  mapped_ = static_cast<unsigned char*>(p);
  base_ = mapped_ + (kBytes - reinterpret_cast<std::uintptr_t>(p) % kBytes) % kBytes;
}
StackSlab::~StackSlab() {
  if (mapped_ == nullptr) return;
  forget_frames(mapped_, (count_ + 1) * kBytes);
  munmap(mapped_, (count_ + 1) * kBytes);
}

}  // namespace tilewright::cuda_host
