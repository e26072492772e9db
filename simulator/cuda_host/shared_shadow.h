// What is known of a block's shared memory, by cells of two bytes: who wrote it last, and who has
// read it since.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/vector_clocks.h"

namespace tilewright::cuda_host {

/// One end of an access pair: a component of the clocks and a place.
struct Accessor {
  std::uint32_t place = 0;
  int component = -1;
  explicit operator bool() const { return component >= 0; }
};

class SharedShadow {
 public:
  static constexpr std::int64_t kCellBytes = 2;
  /// What an access found. `other` is set where the two race.
  struct Outcome {
    Accessor other;
    bool other_wrote = false;
    bool uninitialised = false;
    bool barrier = false;     ///< an mbarrier lies there
    std::int64_t offset = 0;  ///< of the cell in question
  };

  void reset(std::int64_t bytes, int components);
  /// `component` accesses [offset, offset + bytes) at its clock `now`, having seen `seen`.
  Outcome read(std::int64_t offset, std::int64_t bytes, int component, Clock now, const Seen& seen,
               std::uint32_t place);
  Outcome write(std::int64_t offset, std::int64_t bytes, int component, Clock now, const Seen& seen,
                std::uint32_t place);
  /// Who of the threads wrote one of the cells after its clock in `fenced`; nobody: all is well.
  Accessor unfenced(std::int64_t offset, std::int64_t bytes, std::span<const Clock> fenced) const;
  /// The cells become (or stop being) part of an mbarrier.
  void mark_barrier(std::int64_t offset, bool is_barrier);
  /// Whether the barrier's initialisation is known to one who has seen `seen`.
  Outcome barrier_use(std::int64_t offset, const Seen& seen) const;

 private:
  static constexpr std::uint16_t kNobody = 0xffff;
  static constexpr std::uint8_t kMany = 0xff;
  static constexpr int kInline = 3;
  static constexpr int kGroup = 32;
  /// Readers of one group of components (a warp) that read at the same place and clock: lanes often
  /// do.
  struct Reader {
    Clock clock;
    std::uint32_t place, group, lanes;
  };
  struct Cell {
    Clock write_clock = 0;
    std::uint32_t write_place = 0;
    std::uint16_t writer = kNobody;
    std::uint8_t readers = 0;  ///< used entries of `reader`, or kMany
    bool barrier = false;
    Reader reader[kInline];  ///< kMany: reader[0].clock indexes many_
  };
  /// Readers that do not fit in a cell, and how many there may be before ordered ones are dropped.
  struct Many {
    std::vector<Reader> readers;
    std::size_t limit = 0;
  };

  std::span<const Reader> readers(const Cell& cell) const;
  void add_reader(Cell& cell, const Reader& self, const Seen& seen);
  void add_to_many(Many& many, const Reader& self, const Seen& seen);
  Accessor racing_reader(const Cell& cell, const Seen& seen) const;
  std::uint32_t late_lanes(const Reader& reader, const Seen& seen) const;
  int keep_late(std::span<Reader> readers, const Seen& seen) const;
  void clear_readers(Cell& cell);

  std::vector<Cell> cells_;
  std::vector<Many> many_;
  std::vector<std::uint32_t> free_;
  int components_ = 0;
};

}  // namespace tilewright::cuda_host
