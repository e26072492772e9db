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
/// the loops give (a halo), and accesses with a loop in two dimensions. What is held are the
/// largest tiles that are there while an operator computes: its own, those that later operators
/// still read, and those that the next iteration finds again.
class Bounds {
 public:
  struct Least {
    std::int64_t bytes = 0;
    bool exact = false;  ///< a legal tree has neither more nor less
  };
  /// Keeps `w`.
  explicit Bounds(const Workload& w);
  /// As `exact` counts. Cost: a microsecond or two for each input and output; where the steps of a
  /// dimension's loops have not been met together before, a footprint for each of its tiles, 4,096
  /// at most.
  Least moved(const Nests& t);
  /// As memory_use says. Cost: the same, and the operators times the tensors.
  Least held(const Nests& t) const;

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
  /// Elements of a dimension, over all tiles that may be others than those before them.
  struct Sum {
    std::int64_t elements = -1;  ///< less than 0: there are too many tiles
    bool exact = false;          ///< what was left out is the tile before it
    bool plain = false;          ///< nothing was left out, and no tile is empty
  };
  static std::int64_t iterations(std::int64_t size, std::span<const std::int64_t> steps);
  Least moved(const Use& use, const Nests& t, const Run& run);
  const Sum& summed(const Use& use, std::size_t dimension, const Tiling& its);

  // nests_held.cpp
  struct Place;
  struct Tile;
  struct Sides;
  std::vector<Tile> tiles_of(const Nests& t, const std::vector<Place>& places) const;
  std::int64_t bytes(OpId op, const Access& a, const Nests& t, const Cuts* nest) const;
  bool is_plain(OpId op, const Access& a) const;

  const Workload& w_;
  std::vector<bool> own_;  ///< by operator: its ranges are those that the tree cuts
  bool all_alone_ = true;  ///< of all operators, and no input is read twice
  std::map<OpId, std::vector<Use>> uses_;
  std::map<std::pair<const Affine*, Tiling>, Sum> sums_;
};

}  // namespace tilewright::quickest
