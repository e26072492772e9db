// What the accesses of a warp's lanes take, from their addresses.
#pragma once

#include <vector>

#include "core/lowering/gpu/thread_program.h"

namespace tilewright::stitching {

/// Of a warp, in one turn.
struct Accesses {
  double count = 0;       ///< instructions
  double sectors = 0;     ///< of 32 bytes, that all of them bring from L2
  double fresh = 1;       ///< how much of what they touch that is: L1 keeps what is loaded
  double wavefronts = 0;  ///< passes of 128 bytes, or of 32 banks of shared memory
};

class AccessCounts {
 public:
  explicit AccessCounts(const lowering::ThreadProgram& p) : p_(p) {}
  /// Of elements `at` of a tensor at home, for all values of `dims`, `width` of them at once; by
  /// the first of their copies, where all of `inside` is positive. Where a block's and a turn's
  /// part of the address begins is taken as aligned. `loops`: around it; elements of `dims` and
  /// turns of them that lie within a sector bring it once, the mean of all turns is given.
  /// `stored`: L1 keeps nothing, and each instruction's sectors go to L2.
  Accesses home(TensorId t, const lowering::Linear& at, const std::vector<int>& dims,
                std::int64_t width, const lowering::Copies& copies,
                const std::vector<lowering::Linear>& inside, const std::vector<int>& loops = {},
                bool stored = false) const;
  /// Of a tile that comes to shared memory: an element a thread, along the tile's rows; of a padded
  /// one neighbours.
  Accesses staged(const lowering::Step& stage) const;
  /// Of a padded tile in shared memory, for all values of `dims` and of the turns of `loops`: what
  /// several of them read is read once, `width` neighbours at a time.
  Accesses window(const lowering::Linear& at, const std::vector<int>& dims,
                  const std::vector<int>& loops, std::int64_t width) const;
  /// Of shared memory.
  Accesses shared(const lowering::Linear& at, const std::vector<int>& dims) const;
  /// Elements that all threads of a block have, each once.
  double of_block(const lowering::Linear& at, const std::vector<int>& dims) const;
  /// An address that differs in every lane in which the value that names a row does.
  lowering::Linear row_of(const lowering::Read& by, std::int64_t stride) const;

 private:
  Accesses staged_rows(const lowering::Step& stage) const;
  /// The value of an expression in a lane of the first warp, its loops at their beginning.
  std::int64_t in_lane(const lowering::Linear& x, std::int64_t lane) const;
  /// What a lane lacks for itself alone: conditions on others are another's.
  bool takes_part(std::int64_t lane, const std::vector<lowering::Linear>& inside) const;
  /// Of `dims`, values that the address has.
  double elements(const lowering::Linear& at, const std::vector<int>& dims) const;
  const lowering::ThreadProgram& p_;
};

}  // namespace tilewright::stitching
