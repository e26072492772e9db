// What a target asks of the plans that it is to run, so that a model can plan for it without
// knowing which target it is.
#pragma once

#include <cstdint>
#include <optional>

namespace tilewright {

/// The block of a product's output that one step of a micro-kernel updates in registers.
struct RegisterTile {
  std::int64_t rows = 1;
  std::int64_t vectors = 1;  ///< of `lanes` columns each
  std::int64_t lanes = 1;    ///< elements of the workload's type
};

struct TargetNeeds {
  /// Tiles smaller than this leave its registers idle.
  std::optional<RegisterTile> register_tile = {};
  /// Of a cache, the part that a kernel's tiles may fill: a cache holds the tile that comes beside
  /// the one that goes.
  int cache_percent = 100;
  /// Tiles must be placed at every level of the machine, not at one.
  bool every_level = false;
  /// Of a GPU, the compute capability whose instructions its text may have; 0: the machine's.
  double capability = 0;
};

}  // namespace tilewright
