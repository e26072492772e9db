// What instructions do to memory: the ranges that each touches, its cost in cycles, its effect.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "simulator/npu/emulator.h"
#include "simulator/npu/instruction.h"

namespace tilewright::npu {

/// `count` runs of bytes of an object, `stride` apart.
struct Touch {
  int object = 0;
  std::int64_t start = 0, bytes = 0, count = 1, stride = 0;
  bool write = false;
  bool add = false;  ///< reads and writes at once, atomically
};

/// Why an instruction cannot be executed.
struct Refusal {
  Fault fault = Fault::range;
  int object = -1;
  std::int64_t offset = 0;  ///< elements
  std::string problem;      ///< predicate of the sentence
};

/// What an instruction touches and what it costs when nothing holds it up.
struct Work {
  std::vector<Touch> touches;
  std::int64_t cycles = 0;   ///< that the pipe is busy; of transfers from or to GM: start-up only
  std::int64_t latency = 0;  ///< from then until all is there
  std::int64_t bank = 0;     ///< of cycles: bank conflicts
  std::int64_t moved = 0;    ///< copies: bytes that take time
  std::int64_t macs = 0, useful_macs = 0;
};

/// Objects' bytes: objects() in order; null where an object has no place yet.
using Bases = std::vector<std::byte*>;

// Each fills `work` or says why the instruction cannot be.
std::optional<Refusal> plan_copy(const std::vector<Object>& objects, const Instruction& i,
                                 Work& work);
std::optional<Refusal> plan_mad(const NpuCore& core, const std::vector<Object>& objects,
                                const Instruction& i, Work& work);
std::optional<Refusal> plan_vector(const NpuCore& core, const std::vector<Object>& objects,
                                   const Instruction& i, Work& work);

std::optional<Refusal> plan_move(const NpuCore& core, const std::vector<Object>& objects,
                                 const Bases& bases, const Instruction& i, Work& work);
std::optional<Refusal> plan_put(const NpuCore& core, const std::vector<Object>& objects,
                                const Instruction& i, Work& work);

// The effect of what has been planned without a refusal.
void do_copy(const std::vector<Object>& objects, const Bases& bases, const Instruction& i);
void do_mad(const std::vector<Object>& objects, const Bases& bases, const Instruction& i,
            std::vector<float>& room);
void do_vector(const std::vector<Object>& objects, const Bases& bases, const Instruction& i);

void do_move(const std::vector<Object>& objects, const Bases& bases, const Instruction& i);
void do_put(const std::vector<Object>& objects, const Bases& bases, const Instruction& i);

/// A range refusal: "has rows=-1, accepted: 0 to 5".
Refusal out_of_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most);
/// An offset that no object has, or that its memory's alignment forbids; `align` in bytes.
std::optional<Refusal> check_offset(const std::vector<Object>& objects, int object,
                                    std::int64_t offset, std::int64_t align);
/// The first touch beyond its object.
std::optional<Refusal> check_bounds(const std::vector<Object>& objects, const Work& work);

}  // namespace tilewright::npu
