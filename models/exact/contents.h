// What every buffer holds at a moment of the evaluation, and how that moves from one iteration of a
// loop to the next.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::exact_model {

/// Which instance of a buffer: the block, and the unit within it (plan.md rule 7).
struct Instance {
  std::int64_t block = 0;
  std::int64_t unit = 0;
  friend auto operator<=>(const Instance&, const Instance&) = default;
};

/// Equal-sized boxes, `first` to `last` by equal steps: the complete tiles of a !once result.
struct Progression {
  Box first;
  Box last;
  std::int64_t count = 1;
  friend bool operator==(const Progression&, const Progression&) = default;
};

struct Content {
  Box tile;
  bool changed = false;
  bool fresh = false;                      ///< outputs: initialised here, not read back
  std::vector<Progression> complete = {};  ///< only where a !once compute asks
  friend bool operator==(const Content&, const Content&) = default;
};

/// Per buffer, what each instance that has been touched holds; and the current tile of each buffer
/// whose tile is fixed at a body.
struct Contents {
  std::vector<std::map<Instance, Content>> held;
  std::vector<Box> fixed;
  friend bool operator==(const Contents&, const Contents&) = default;
};

/// The coordinates of all boxes in `c`, in a fixed order.
std::vector<std::int64_t> coordinates(const Contents& c);
/// True where a and b differ in coordinates only.
bool same_shape(const Contents& a, const Contents& b);
/// `a` with the coordinates of `values`, in the order of coordinates().
Contents with_coordinates(const Contents& a, const std::vector<std::int64_t>& values);

/// Adds a complete tile.
void complete(Content& c, const Box& box);
/// Where `box` is among the complete tiles: progression and position.
struct Found {
  std::size_t progression = 0;
  std::int64_t position = 0;
};
std::optional<Found> find_complete(const Content& c, const Box& box);

}  // namespace tilewright::exact_model
