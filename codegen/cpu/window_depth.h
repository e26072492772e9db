// The depth of one product that reads through a window; see emit_depth.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {

/// The sum of a loop's coefficients in an index.
std::int64_t coefficient_of(const Affine& a, LoopId loop);

/// Rows and vectors that stay in registers, which take the fewest cycles over a box of that many:
/// two fused multiply-adds and two loads a cycle, a latency of four. `begins`: boxes begin at
/// multiples of it, and groups of rows had better begin there, too (`at_groups`: they must); 0: at
/// the first row alone.
std::pair<int, int> block_shape(std::int64_t rows, std::int64_t vectors, int registers,
                                std::int64_t begins, bool at_groups);

class KernelEmitter::Depth {
 public:
  Depth(KernelEmitter& e, NodeId id, const Window& x, const SymRanges& ranges);
  /// What convolve needs to pack that many rows of the left operand in, beside a number a step.
  std::int64_t room(std::int64_t packed_rows) const;
  /// The same with that many bytes in place of the rows.
  std::int64_t room_beside(std::int64_t bytes) const;
  /// Of these at most.
  std::int64_t channels() const { return count(channels_); }
  std::int64_t taps() const { return count(taps_); }
  /// Arrays that say what every step reads, and a `Depth` of them with `room`, `kept` and
  /// `prepared` ("nullptr, 0": nothing is); its name.
  std::string emit(std::int64_t& offset, const std::string& room, const std::string& kept,
                   const std::string& prepared);
  /// All its steps, as text.
  std::string steps() const { return size(steps_); }

 private:
  std::int64_t list_bytes() const;
  const SymRange& range(int l) const;
  std::int64_t most(int l) const;
  std::string end(int l) const;
  std::int64_t moves(int l, int dim) const;
  std::int64_t count(const std::vector<int>& loops) const;
  std::string size(const std::vector<int>& loops) const;
  std::string number(const std::vector<int>& loops) const;
  template <class Factor>
  std::string sum(const Factor& factor) const;
  void nest(const std::vector<int>& loops, const std::string& line);

  KernelEmitter& e_;
  const Window& x_;
  const SymRanges& ranges_;
  const Operator& op_;
  OpId id_;
  const Access& access_;
  BufferId buffer_;
  std::vector<std::string> at_;               ///< by op.loops: an index, as text
  std::vector<int> steps_, channels_, taps_;  ///< loops of more than one iteration, in order
};

}  // namespace tilewright::cpu
