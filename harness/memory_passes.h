// Passes over memory at full speed: what bandwidths are measured with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tilewright::harness {

/// 64 bytes, whatever the processor's lines are.
struct alignas(64) MemoryLine {
  float lanes[16];
};
/// Passes go over whole multiples of so many lines.
inline constexpr std::size_t kPassLines = 8;

using LineMemory = std::shared_ptr<MemoryLine[]>;
/// As kernels' memory is: in large pages, where the machine has them. 4096-aligned. Throws
/// std::bad_alloc.
LineMemory lines_of_memory(std::size_t bytes);

/// Each over `lines` lines, in the widest vectors that the processor has. What a store fetches
/// before it writes is no part of what a pass names.
void read_pass(const MemoryLine* from, std::size_t lines);
void write_pass(MemoryLine* to, std::size_t lines);
/// Past the caches: nothing is fetched before it is overwritten.
void write_past_pass(MemoryLine* to, std::size_t lines);
void copy_pass(const MemoryLine* from, MemoryLine* to, std::size_t lines);

/// A random cycle through the lines: each holds the number of the next one.
void make_chain(MemoryLine* lines, std::size_t count, std::uint64_t seed);
/// So many steps of it, each waiting for the one before. Returns where it ends.
std::size_t follow_chain(const MemoryLine* lines, std::size_t from, std::size_t steps);
/// So many additions, each waiting for the one before: a cycle each.
std::uint64_t add_chain(std::uint64_t begin, std::size_t steps);

/// Runs about 200 KiB of other code once, which reads no memory: of what ran before, code is in the
/// second cache then, and which way its branches went is forgotten.
void run_other_code();

}  // namespace tilewright::harness
