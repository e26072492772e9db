// A block's instructions in the order in which its walk meets them, every operand a number: what
// flags are put into (synchronise.h) and loops are found in (reroll.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/npu/program.h"
#include "core/workload/box.h"

namespace tilewright::npu {

using Instruction = std::variant<Copy, Mad, Vector, SetFlag, WaitFlag, Barrier>;

/// What an instruction touches: bytes of one of the core's memories, or a box of a tensor at home.
struct TraceTouch {
  Memory memory = Memory::ub;
  bool write = false;
  std::int64_t low = 0, high = 0;  ///< bytes [low, high); home: unused
  std::string tensor = {};         ///< home
  Box box = {};                    ///< home
};
bool overlap(const TraceTouch& a, const TraceTouch& b);

struct TraceStep {
  Instruction instruction;
  Pipe pipe = Pipe::scalar;
  std::vector<TraceTouch> touches = {};
  std::string comment = {};
  /// As the machine file has it: how long its pipe is busy, and until its results are there after.
  std::int64_t cycles = 0, latency = 0;
  std::int64_t number = 0;  ///< in the order of the walk
  std::int64_t moved = 0;   ///< copies: bytes that take time, padding of fractals and rows included
};

/// Steps and loops in order. A loop here is one of the plan's: what each iteration came to.
struct TraceNode {
  TraceStep step = {};
  std::string counter = {};  ///< of a loop
  std::vector<std::vector<TraceNode>> iterations = {};
  int part = 0;  ///< of the body of the loop around it: ascending, the same in every iteration
  bool is_loop() const { return !counter.empty(); }
};

/// Accesses that a later step may have to come after.
class Accesses {
 public:
  struct Access {
    std::int64_t step = 0;
    Pipe pipe = Pipe::scalar;
    TraceTouch touch;
  };
  /// Calls `found` for each that `touch` must come after.
  template <class F>
  void conflicts(const TraceTouch& touch, F&& found) const {
    for (const Access& a : by_memory_[static_cast<std::size_t>(touch.memory)])
      if ((a.touch.write || touch.write) && overlap(a.touch, touch)) found(a);
  }
  /// Forgets what whoever comes after this one comes after anyway.
  void add(Access access);

 private:
  std::array<std::vector<Access>, kMemories> by_memory_;
};

/// Every integer operand of an instruction, in a fixed order: what may differ from one iteration to
/// the next.
std::vector<IntExpr*> operands(Instruction& instruction);

}  // namespace tilewright::npu
