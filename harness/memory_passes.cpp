#include "harness/memory_passes.h"

#ifdef __SSE__
#include <immintrin.h>
#endif

#include <cstring>
#include <new>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "codegen/common/host_memory.h"

namespace tilewright::harness {
namespace {

/// Stops the compiler from merging loops over the same memory or turning them into memset or
/// memcpy, which may go past the caches.
inline void keep() { asm volatile("" ::: "memory"); }

/// Code that no other of them has, whose branches nobody foresees.
template <std::size_t Which, std::size_t... Steps>
[[gnu::noipa]] std::uint64_t some_code(std::uint64_t x, std::index_sequence<Steps...>) {
  const auto step = [&](std::uint64_t number) {
    x = x * 0x9e3779b97f4a7c15 + number;
    if ((x >> 60 & 1) != 0) {
      x ^= x >> 29;
      asm volatile("" : "+r"(x));
    }
  };
  (step(Which * sizeof...(Steps) + Steps + 1), ...);
  return x;
}
template <std::size_t... Which>
std::uint64_t all_code(std::uint64_t x, std::index_sequence<Which...>) {
  ((x = some_code<Which>(x, std::make_index_sequence<64>())), ...);
  return x;
}

// One version a width of registers, picked as the program is loaded. A vector wider than a register
// goes through the stack, element by element: that would be timed, not the cache.
#define TILEWRIGHT_PASSES(TARGET, BYTES)                                                      \
  TARGET void read_lines(const MemoryLine* memory, std::size_t lines) {                       \
    typedef float Part __attribute__((vector_size(BYTES), may_alias));                        \
    constexpr std::size_t kSums = 8;                                                          \
    const Part* const from = reinterpret_cast<const Part*>(memory);                           \
    Part sum[kSums] = {};                                                                     \
    for (std::size_t i = 0; i < lines * (64 / (BYTES)); i += kSums)                           \
      _Pragma("GCC unroll 8") for (std::size_t u = 0; u < kSums; ++u) sum[u] += from[i + u];  \
    for (std::size_t u = 1; u < kSums; ++u) sum[0] += sum[u];                                 \
    asm volatile("" : : "m"(sum[0]));                                                         \
  }                                                                                           \
  TARGET void write_lines(MemoryLine* memory, std::size_t lines) {                            \
    typedef float Part __attribute__((vector_size(BYTES), may_alias));                        \
    Part* const to = reinterpret_cast<Part*>(memory);                                         \
    const Part value = {1.0F};                                                                \
    for (std::size_t i = 0; i < lines * (64 / (BYTES)); i += kPassLines) {                    \
      _Pragma("GCC unroll 8") for (std::size_t u = 0; u < kPassLines; ++u) to[i + u] = value; \
      keep();                                                                                 \
    }                                                                                         \
  }                                                                                           \
  TARGET void copy_lines(const MemoryLine* memory, MemoryLine* other, std::size_t lines) {    \
    typedef float Part __attribute__((vector_size(BYTES), may_alias));                        \
    const Part* const from = reinterpret_cast<const Part*>(memory);                           \
    Part* const to = reinterpret_cast<Part*>(other);                                          \
    for (std::size_t i = 0; i < lines * (64 / (BYTES)); i += kPassLines) {                    \
      _Pragma("GCC unroll 8") for (std::size_t u = 0; u < kPassLines; ++u) to[i + u] =        \
          from[i + u];                                                                        \
      keep();                                                                                 \
    }                                                                                         \
  }
// Not under a sanitizer, which is not up yet when versions are picked.
#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
TILEWRIGHT_PASSES(__attribute__((target("default"))), 16)
TILEWRIGHT_PASSES(__attribute__((target("avx2"))), 32)
TILEWRIGHT_PASSES(__attribute__((target("avx512f"))), 64)
#else
TILEWRIGHT_PASSES(, 16)
#endif
#undef TILEWRIGHT_PASSES

}  // namespace

LineMemory lines_of_memory(std::size_t bytes) {
  const std::shared_ptr<void> memory = codegen::host_memory(bytes, 4096);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, static_cast<MemoryLine*>(memory.get())};
}

void read_pass(const MemoryLine* from, std::size_t lines) { read_lines(from, lines); }
void write_pass(MemoryLine* to, std::size_t lines) { write_lines(to, lines); }
void write_past_pass(MemoryLine* to, std::size_t lines) {
#ifdef __SSE__
  const __m128 value = _mm_set1_ps(1.0F);
  for (std::size_t i = 0; i < lines; ++i)
    for (std::size_t lane = 0; lane < 16; lane += 4) _mm_stream_ps(to[i].lanes + lane, value);
  _mm_sfence();
#else
  write_pass(to, lines);
#endif
}
void copy_pass(const MemoryLine* from, MemoryLine* to, std::size_t lines) {
  copy_lines(from, to, lines);
}

void make_chain(MemoryLine* lines, std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(lines + order[i], &order[(i + 1) % count], sizeof(std::size_t));
}

std::size_t follow_chain(const MemoryLine* lines, std::size_t from, std::size_t steps) {
  for (std::size_t i = 0; i < steps; ++i) {
    std::memcpy(&from, lines + from, sizeof from);
    asm volatile("" : "+r"(from));
  }
  return from;
}

std::uint64_t add_chain(std::uint64_t begin, std::size_t steps) {
  for (std::size_t i = 0; i < steps; i += 16)
#pragma GCC unroll 16
    for (int u = 0; u < 16; ++u) {
      begin += i;
      asm volatile("" : "+r"(begin));
    }
  return begin;
}

void run_other_code() {
  static std::uint64_t at = 1;
  at = all_code(at, std::make_index_sequence<128>());
}

}  // namespace tilewright::harness
