// A kernel of loops around all operators and of nests below them: what fewest_bytes searches.
// Internal header of the folder.
#pragma once

#include <array>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright::quickest {

/// A loop and its step.
struct Cut {
  LoopId loop = {};
  std::int64_t step = 0;
  friend auto operator<=>(const Cut&, const Cut&) = default;
};
using Cuts = std::vector<Cut>;

/// Consecutive operators in one nest.
struct Run {
  std::vector<OpId> ops;
  Cuts nest;
};

struct Nests {
  Cuts outer;
  std::vector<Run> runs;
  std::set<TensorId> kept;  ///< inputs that are loaded, outputs that are stored, below `outer`
};

/// The tree of these nests, as a kernel that computes from that level.
Kernel kernel_of(const Nests& t, const Workload& w, const std::string& level);

/// Bytes that a tree moves and holds at least, without resolving it. What an operator reads of an
/// input, or writes of an output, is a sum over the iterations of those loops that change its tile,
/// as often as other loops around the innermost of these repeat them; a tile that may be the one
/// before it counts as nothing. So do operators whose readers in the tree need other ranges than
/// the loops give (a halo), and accesses with a loop in two dimensions. Mostly the sum is what
/// `exact` counts; for a legal tree it is never more. What is held are an operator's tiles in one
/// iteration.
class Bounds {
 public:
  /// Keeps `w`.
  explicit Bounds(const Workload& w);
  /// Cost: a microsecond or two for each input and output; where the steps of a dimension's loops
  /// have not been met together before, a footprint for each of its tiles, 4,096 at most.
  std::int64_t moved(const Nests& t);
  /// Cost: microseconds.
  std::int64_t held(const Nests& t) const;

 private:
  /// What an operator reads of an input, or writes of an output, in one access.
  struct Use {
    OpId op;
    const Access* access;
    bool written;
    bool alone;  ///< no other operator has the tensor
  };
  static constexpr int kMostCuts = 3;
  /// How loops cut a dimension, outermost first.
  struct Tiling {
    std::array<Cut, kMostCuts> cuts = {};
    int count = 0;
    /// By bit: whether a step of that cut is to change the tile, and whether one of other loops
    /// that stand around that cut, and in those before it, is.
    unsigned goes_on = 0, begins_again = 0;
    friend auto operator<=>(const Tiling&, const Tiling&) = default;
  };
  static std::int64_t iterations(std::int64_t size, std::span<const std::int64_t> steps);
  std::int64_t moved(const Use& use, const Nests& t, const Run& run);
  /// Elements of a dimension, summed over all tiles that may be others than those before them; less
  /// than 0: there are too many.
  std::int64_t summed(const Use& use, std::size_t dimension, const Tiling& its);

  std::int64_t held(OpId op, const Nests& t, const Run& run) const;

  const Workload& w_;
  std::vector<bool> own_;  ///< by operator: its ranges are those that the tree cuts
  std::map<OpId, std::vector<Use>> uses_;
  std::map<std::pair<const Affine*, Tiling>, std::int64_t> sums_;
};

}  // namespace tilewright::quickest
