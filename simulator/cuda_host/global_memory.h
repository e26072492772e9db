// Global memory: tensors and workspace in one range of addresses, far enough apart that a wrong
// index reaches neither another tensor nor memory of ours; and what is known of every cell.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "simulator/cuda_host/cuda_host.h"
#include "simulator/vector_clocks.h"

namespace tilewright::cuda_host {

/// Memory that is zero and taken page by page as it is touched.
class LazyMemory {
 public:
  LazyMemory() = default;
  explicit LazyMemory(std::int64_t bytes);
  ~LazyMemory();
  LazyMemory(LazyMemory&& other) noexcept;
  LazyMemory& operator=(LazyMemory&& other) noexcept;
  unsigned char* data() const { return data_; }
  bool ok() const { return data_ != nullptr; }

 private:
  unsigned char* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Who accesses: a block's thread (or its copies: a component of the block's clocks) at a clock.
struct GlobalAccess {
  std::uint32_t phase = 0;  ///< launches and grid_syncs so far
  std::uint32_t block = 0;
  std::uint32_t component = 0;
  Clock now = 0;
  Seen seen;
  std::uint32_t place = 0;
};

class GlobalMemory {
 public:
  struct Region {
    std::string name;
    std::uintptr_t base = 0;
    std::int64_t bytes = 0;
    std::size_t first_cell = 0;
    int cell_shift = 1;  ///< a cell is an element: 1 << cell_shift bytes
    bool initialised = true;
  };
  struct Outcome {
    bool race = false;
    bool between_blocks = false;
    bool other_wrote = false;
    bool uninitialised = false;
    std::uint32_t other_block = 0, other_component = 0, other_place = 0;
    std::int64_t offset = 0;
  };
  enum class Kind : std::uint8_t { read, write, atomic };

  /// The tensors, then the workspace where it has bytes. Nothing, or why there is no room.
  std::optional<Reason> lay_out(std::span<const Tensor> tensors, std::int64_t workspace_bytes);
  const std::vector<Region>& regions() const { return regions_; }
  bool holds(std::uintptr_t p) const { return p - base_ < extent_; }
  /// The region around p, or -1; nearest() the one that p probably missed.
  int find(std::uintptr_t p) const;
  int nearest(std::uintptr_t p) const;
  Outcome access(int region, std::int64_t offset, std::int64_t bytes, Kind kind,
                 const GlobalAccess& by);
  /// Written tensors back to where they came from.
  void copy_back(std::span<const Tensor> tensors) const;
  void mark_written(int region) {
    written_[static_cast<std::size_t>(region)] = by_launch_[static_cast<std::size_t>(region)] =
        true;
  }
  void launch_begins();
  /// Whether the launch before this one has written there, or may have (Tensor::written_before).
  bool launch_before_wrote(int region) const {
    return by_launch_before_[static_cast<std::size_t>(region)];
  }

 private:
  /// phase 0: none. `who`: block << 32 | component << 1 | atomic.
  struct Record {
    std::uint32_t phase, place;
    std::uint64_t who;
    Clock clock;
    std::uint32_t more;
  };
  /// Record::more. kBlocks: this writer's atomics are also those of other blocks in this phase.
  /// kOthers: others of its block that nothing orders are in readers_ or adders_.
  static constexpr std::uint32_t kBlocks = 1, kOthers = 2;
  /// The last writer, a reader since, and one of another block than that.
  struct Cell {
    Record writer, reader, other_reader;
  };
  /// Lanes that accessed a cell at one place and clock.
  struct Lanes {
    std::uint32_t group, lanes, place;
    Clock clock;
  };
  /// Accesses to a cell that nothing orders, of one block in one phase.
  struct Others {
    std::uint32_t phase = 0, block = 0;
    std::size_t limit = 8;  ///< how many there may be before ordered ones are dropped
    std::vector<Lanes> all;
  };
  static bool unordered(const Record& r, const GlobalAccess& by);
  static bool races(const Record& writer, const GlobalAccess& by);
  static void note(Outcome& outcome, const Record& r, const GlobalAccess& by, bool wrote,
                   std::int64_t offset);
  void read_cell(Cell& cell, std::int64_t offset, bool initialised, const GlobalAccess& by,
                 Outcome& outcome);
  static void remember(Others& others, const Record& r, const GlobalAccess& by);
  static std::uint32_t late_lanes(const Lanes& o, const Seen& seen);
  static void note_others(const Others& others, const GlobalAccess& by, bool wrote,
                          std::int64_t offset, Outcome& outcome);
  void note_writer(const Cell& cell, const GlobalAccess& by, std::int64_t offset, Outcome& outcome);
  void write_cell(Cell& cell, std::int64_t offset, bool atomic, const GlobalAccess& by,
                  Outcome& outcome);

  std::vector<Region> regions_;
  std::vector<bool> written_, by_launch_, by_launch_before_;
  LazyMemory memory_, shadow_;
  std::unordered_map<const Cell*, Others> readers_, adders_;
  std::uintptr_t base_ = 0, extent_ = 0;
  mutable int last_ = 0;
};

}  // namespace tilewright::cuda_host
