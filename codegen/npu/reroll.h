// Loops found again in what was unrolled: iterations that are the same but for operands that advance
// evenly become one loop, whose operands are affine in its counter. What is not the same (the first
// tiles, which nothing has to wait for; partial tiles at the edges; the last, which set no more flags)
// stays before and after it. Tiles that take turns in two places make a loop of two iterations a turn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/npu/trace.h"

namespace tilewright::npu {

/// base + the sum of coefficient * counter over the loops around it, innermost first.
struct AffineOperand {
  std::int64_t base = 0;
  std::vector<std::int64_t> coefficients = {};
  friend bool operator==(const AffineOperand&, const AffineOperand&) = default;
};

struct Run;

/// An instruction, a loop, or a choice by a coordinate of the block.
struct Rolled {
  Instruction instruction = Barrier{};  ///< its integer operands zero
  std::string comment = {};
  std::vector<AffineOperand> operands = {};
  std::string counter = {};   ///< of a loop; of a choice, the coordinate
  std::int64_t trips = 0;     ///< of a loop
  std::vector<Rolled> body = {};
  std::vector<Run> choices;       ///< by the coordinate, ascending
  IntExpr coordinate = {};        ///< of a choice, from `block`
  bool is_loop() const { return trips > 0; }
};

/// What is the same for `count` positions from `first` on, but for operands that advance evenly:
/// these have one more coefficient, of the position.
struct Run {
  std::int64_t first = 0, count = 0;
  std::vector<Rolled> body = {};
};

/// Most iterations of the plan's loop that one turn of a found loop may stand for.
constexpr std::size_t kMostPeriod = 4;

/// Cost: linear in the trace, times kMostPeriod for each loop around an instruction.
std::vector<Rolled> reroll(const std::vector<TraceNode>& trace);

/// The runs that the positions of a coordinate fall into, told one after the other. Memory: the runs,
/// not the positions.
class Runs {
 public:
  void add(std::vector<Rolled> position);
  std::vector<Run> take();

 private:
  void close();

  std::vector<Run> found_;
  std::vector<Rolled> first_;               ///< the open run's first position
  std::vector<std::int64_t> last_, step_;   ///< its last position's bases, and what they advance by
  std::int64_t begin_ = 0, count_ = 0;
};

/// As statements. `scalars`: the counters and coordinates around, outermost first; a loop's counter
/// gets a name of its own within its nest.
std::vector<Statement> statements(const std::vector<Rolled>& body,
                                  const std::vector<IntExpr>& scalars);

}  // namespace tilewright::npu
