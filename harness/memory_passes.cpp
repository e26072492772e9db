#include "harness/memory_passes.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <random>
#include <vector>

// Compiled for each width, picked as the program is loaded.
// Not under a sanitizer, which is not up yet when that happens.
#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define TILEWRIGHT_EACH_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TILEWRIGHT_EACH_WIDTH
#endif

namespace tilewright::harness {
namespace {

typedef float Line __attribute__((vector_size(64)));

/// Stops the compiler from merging loops over the same memory or turning them into memset or
/// memcpy, which may go past the caches.
inline void keep() { asm volatile("" ::: "memory"); }

TILEWRIGHT_EACH_WIDTH void read_lines(const Line* from, std::size_t lines) {
  Line sum[kPassLines] = {};
  for (std::size_t i = 0; i < lines; i += kPassLines)
#pragma GCC unroll 8
    for (std::size_t u = 0; u < kPassLines; ++u) sum[u] += from[i + u];
  for (std::size_t u = 1; u < kPassLines; ++u) sum[0] += sum[u];
  asm volatile("" : : "m"(sum[0]));
}

TILEWRIGHT_EACH_WIDTH void write_lines(Line* to, std::size_t lines) {
  const Line value = {1.0F};
  for (std::size_t i = 0; i < lines; i += kPassLines) {
#pragma GCC unroll 8
    for (std::size_t u = 0; u < kPassLines; ++u) to[i + u] = value;
    keep();
  }
}

TILEWRIGHT_EACH_WIDTH void copy_lines(const Line* from, Line* to, std::size_t lines) {
  for (std::size_t i = 0; i < lines; i += kPassLines) {
#pragma GCC unroll 8
    for (std::size_t u = 0; u < kPassLines; ++u) to[i + u] = from[i + u];
    keep();
  }
}

const Line* as_lines(const MemoryLine* p) { return reinterpret_cast<const Line*>(p); }
Line* as_lines(MemoryLine* p) { return reinterpret_cast<Line*>(p); }

}  // namespace

LineMemory lines_of_memory(std::size_t bytes) {
  void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<MemoryLine*>(memory), [](MemoryLine* p) { std::free(p); }};
}

void read_pass(const MemoryLine* from, std::size_t lines) { read_lines(as_lines(from), lines); }
void write_pass(MemoryLine* to, std::size_t lines) { write_lines(as_lines(to), lines); }
void copy_pass(const MemoryLine* from, MemoryLine* to, std::size_t lines) {
  copy_lines(as_lines(from), as_lines(to), lines);
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

}  // namespace tilewright::harness
