// A block's instructions in the order in which its walk meets them, every operand a number: what
// flags are put into (synchronise.h) and loops are found in (reroll.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/npu/program.h"
#include "core/workload/box.h"

namespace tilewright::npu {

using Instruction = std::variant<Copy, Mad, Vector, Move, Put, SetFlag, WaitFlag, Barrier>;

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
    bool write = false;
  };
  /// Calls `found` for each that `touch` must come after.
  template <class F>
  void conflicts(const TraceTouch& touch, F&& found) const {
    if (touch.memory != Memory::gm) {
      for (const Local& a : by_memory_[static_cast<std::size_t>(touch.memory)])
        if ((a.write || touch.write) && a.low < touch.high && touch.low < a.high) found(a);
      return;
    }
    const auto home = at_home_.find(touch.tensor);
    if (home == at_home_.end()) return;
    const auto [first, last] = home->second.near(touch.box);
    for (auto a = first; a != last; ++a)
      if ((a->second.write || touch.write) && !intersect(a->second.box, touch.box).empty())
        found(a->second);
  }
  /// Forgets what whoever comes after this one comes after anyway. Cost, as of conflicts(): what
  /// there is in a core's memory, or at home about what the box touches.
  void add(std::int64_t step, Pipe pipe, const TraceTouch& touch);

 private:
  struct Local : Access {
    std::int64_t low = 0, high = 0;
  };
  struct AtHome : Access {
    Box box;
  };
  /// Boxes of a tensor, found by where they begin in the dimension in which most begin elsewhere:
  /// a long tensor is touched a box at a time, and never as a whole.
  struct Home {
    using Boxes = std::multimap<std::int64_t, AtHome>;
    Boxes boxes = {};
    int dimension = 0;
    std::int64_t longest = 0;     ///< that a box was in `dimension`
    std::size_t looked_at = 128;  ///< boxes at which the dimension is chosen again
    /// Those that may overlap the box, and others.
    std::pair<Boxes::const_iterator, Boxes::const_iterator> near(const Box& box) const;
    void add(AtHome access);
    void choose_dimension();
  };
  std::array<std::vector<Local>, kMemories> by_memory_;  ///< but home
  std::map<std::string, Home, std::less<>> at_home_;     ///< by tensor
};

/// Every integer operand of an instruction, in a fixed order: what may differ from one iteration to
/// the next.
std::vector<IntExpr*> operands(Instruction& instruction);

}  // namespace tilewright::npu
