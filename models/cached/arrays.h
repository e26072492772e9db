// Where the data of a schedule lie, as arrays of rows, and what of them a box is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/plan/schedule.h"
#include "core/plan/stream.h"

namespace tilewright::cached {

/// A tensor at home, or the packed array of an on-chip intermediate. Where it is laid out by tile a
/// place is told by the block of each dimension and what is within it, else by what is within the
/// one block that there is. The last of these coordinates are taken together as one, in bytes, as
/// far as no access cuts them or as what they tell apart is closer than a line.
struct Array {
  TensorId tensor;
  std::int64_t base = 0;
  std::int64_t bytes = 0;
  int rank = 0;                                    ///< of the tensor
  int dims = 1;                                    ///< coordinates, the last in bytes
  std::array<std::int64_t, kMaxRank> extent = {};  ///< of the tensor, or of the largest tile
  std::array<std::int64_t, kMaxRank> block = {};   ///< by tensor dimension; the extent: one block
  std::int64_t element = 0;
  bool packed = false;

  /// A coordinate: the block of a tensor's dimension, or what is within it.
  struct Source {
    int dimension = 0;
    bool within = false;
  };
  std::array<Source, 2 * kMaxRank> sources = {};
  int count = 0;  ///< of sources, outermost first; those from dims - 1 on are in the bytes

  /// Blocks at the edges are smaller and have distances of their own: by a bit for each dimension
  /// whose blocks are told apart, set where they are those of the edge.
  struct Part {
    std::array<std::int64_t, kMaxRank> pitch = {};  ///< bytes from one index to the next
    std::array<Interval, kMaxRank> whole = {};      ///< the indices that there are
    // Of an array in one block, by dimension: its size, and bytes from one index to the next.
    std::array<std::int64_t, kMaxRank> shape = {}, stride = {};
  };
  /// Of a packed array beside the largest tile's, the first one: those of smaller tiles that were
  /// asked for, whose rows are closer. All begin where the array does.
  mutable std::vector<Part> parts = {};

  // Of an array in one block: the coordinate of a dimension; -1: in the bytes.
  bool one_block = false;
  std::array<int, kMaxRank> place = {};

  std::int64_t edge(int d) const {
    const auto i = static_cast<std::size_t>(d);
    return extent[i] - extent[i] % block[i];
  }
  /// Whether blocks, or places within blocks, of a dimension are told apart.
  bool keeps(int dimension, bool within) const {
    for (int j = 0; j + 1 < dims; ++j) {
      const Source& s = sources[static_cast<std::size_t>(j)];
      if (s.dimension == dimension && s.within == within) return true;
    }
    return false;
  }
  /// Bytes from the array's begin to an element.
  std::int64_t offset(const std::array<std::int64_t, kMaxRank>& at) const;
  /// Says how places are told: sources, and of `coordinates` of them each a part's distances.
  void list_sources();
  void measure(int coordinates);
  /// The part of a packed array whose tile has these sizes, cut to the largest ones.
  int part_of(const Box& tile) const;

 private:
  Part part_in_one_block(const std::array<std::int64_t, kMaxRank>& shape) const;
};

/// A box of an array: intervals of its outer coordinates, and bytes of each row.
struct Piece {
  int dims = 1;
  int part = 0;
  std::array<Interval, kMaxRank> at = {};
  // Bytes of a row left of this one up to `left`, and right of it from `right` on, are another
  // piece's, which has the line that both share.
  static constexpr std::int64_t kFar = std::int64_t{1} << 60;
  std::int64_t left = -kFar, right = kFar;
  // Of one outer coordinate only every `step`-th index from the first on: what a stride leaves out.
  int stepped = -1;
  std::int64_t step = 1;

  std::int64_t step_of(int d) const { return d == stepped ? step : 1; }
  /// Indices of a coordinate.
  std::int64_t count(int d) const {
    return ceil_div(at[static_cast<std::size_t>(d)].size(), step_of(d));
  }
  /// From here on, in a coordinate: the first index that it has.
  std::int64_t from(int d, std::int64_t low) const {
    const std::int64_t lo = at[static_cast<std::size_t>(d)].lo, s = step_of(d);
    return low <= lo ? lo : lo + ceil_div(low - lo, s) * s;
  }
  bool cut() const { return left != -kFar || right != kFar; }
  Interval& bytes() { return at[static_cast<std::size_t>(dims - 1)]; }
  const Interval& bytes() const { return at[static_cast<std::size_t>(dims - 1)]; }
};

inline std::int64_t pitch_of(const Array& a, const Piece& p, int d) {
  return a.parts[static_cast<std::size_t>(p.part)].pitch[static_cast<std::size_t>(d)];
}

/// Bytes of one row.
struct RowBytes {
  std::array<std::int64_t, kMaxRank> at = {};  ///< outer coordinates
  Interval bytes = {};
};

/// A line of an array: what of it lies in the row that it begins in, and in the next one.
struct Spot {
  int array = 0;
  int part = 0;
  std::int64_t address = 0;  ///< of the line's first byte
  std::array<RowBytes, 2> rows = {};
  int count = 1;
  /// Of a tensor at home: the boxes of elements that have bytes in the line, and what holds all.
  static constexpr int kMostCells = 16;
  std::array<Box, kMostCells> cells = {};
  int cell_count = 0;
  Box hull = {};

  bool meets(const Box& box) const {
    for (int c = 0; c < cell_count; ++c) {
      const Box& cell = cells[static_cast<std::size_t>(c)];
      bool in = true;
      for (int d = 0; in && d < box.rank(); ++d)
        in = box[d].lo < cell[d].hi && cell[d].lo < box[d].hi;
      if (in) return true;
    }
    return false;
  }
};

/// Calls f(piece) for a box of the array's tensor, in elements; of a packed array, from its tile's
/// low end. Boxes of a tiled tensor that take in blocks at its edge, or parts of blocks, are
/// several pieces. `tile`: of a packed array the sizes of its tile, where they are smaller than the
/// largest.
template <class F>
void pieces(const Array& a, const Box& box, const Box* tile, F&& f);

/// Address of the first byte of a row of the piece.
inline std::int64_t row_address(const Array& a, const Piece& p) {
  std::int64_t address = a.base + p.bytes().lo;
  for (int d = 0; d + 1 < p.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    address += p.at[i].lo * pitch_of(a, p, d);
  }
  return address;
}

/// The row of a piece of a packed array that has bytes of a line, by its addresses: the first or
/// the last one. It may have been touched as a part of another tile.
std::optional<RowBytes> row_at(const Array& a, const Piece& p, Interval line, bool last);

/// What of the line the piece touches first, or last.
inline std::optional<RowBytes> touched_row(const Array& a, const Piece& p, const Spot& x,
                                           bool last = false) {
  if (a.packed && (p.part != 0 || x.part != 0))
    return row_at(a, p, {x.address, x.address + x.rows[0].bytes.size()}, last);
  if (p.part != x.part) return std::nullopt;
  for (int r = 0; r < x.count; ++r) {
    const RowBytes& row = x.rows[static_cast<std::size_t>(last ? x.count - 1 - r : r)];
    bool in = p.bytes().lo < row.bytes.hi && row.bytes.lo < p.bytes().hi;
    for (int d = 0; in && d + 1 < p.dims; ++d) {
      const auto i = static_cast<std::size_t>(d);
      in = row.at[i] >= p.at[i].lo && row.at[i] < p.at[i].hi &&
           (row.at[i] - p.at[i].lo) % p.step_of(d) == 0;
    }
    if (in) return row;
  }
  return std::nullopt;
}
inline bool touches(const Array& a, const Piece& p, const Spot& x) {
  return touched_row(a, p, x).has_value();
}
/// Whether both are parts of tiles of other sizes, of which `by` lies over all of `p`.
bool lies_over(const Array& a, const Piece& by, const Piece& p);

/// The same lines with dimensions taken together whose rows leave no whole line between them.
Piece merged(const Array& a, Piece p, std::int64_t line);

/// Merged pieces of one box, those that lie end to end in one. They are of use for counting only:
/// their coordinates may be of another part.
std::vector<Piece> joined(const Array& a, const std::vector<Piece>& pieces, std::int64_t line);

/// The lines of a piece, for counting: rows of bytes, some distances apart.
struct Rows {
  int dims = 0;  ///< outer ones
  std::array<std::int64_t, kMaxRank> pitch = {}, count = {};
  std::int64_t first = 0;  ///< address of the first row
  std::int64_t bytes = 0;  ///< of a row
  /// A line of the first row counts where its first byte is after `low`, up to `high`: less than
  /// all where another piece has the line that both share.
  std::int64_t low = 0, high = 0;
  std::int64_t lines = 0;  ///< on average where the rows begin anywhere in a line
};
/// Of a piece that is not empty.
Rows rows_of(const Array& a, const Piece& p, std::int64_t line);

/// Adds the lines of each row, [first, last).
void list_rows(const Rows& rows, std::int64_t line,
               std::vector<std::pair<std::int64_t, std::int64_t>>& out);

/// Lines of the piece, on average where its rows begin anywhere in a line.
std::int64_t lines(const Array& a, const Piece& p, std::int64_t line);
/// One of the piece's lines; `where` says how far along each dimension, from 0 to 1.
Spot spot(const Array& a, int array, const Piece& p, std::int64_t line,
          const std::array<double, kMaxRank>& where);

/// Lines that fall into the set of the line at `address`, of `sets` sets; where they are `enough`,
/// some number from there on. Exact where there are rows in up to two outer dimensions of more than
/// a few indices, else an estimate. Cost: a logarithm of the sets for each index of all outer
/// dimensions but the longest.
double lines_in_set(const Rows& rows, std::int64_t address, std::int64_t line, std::int64_t sets,
                    double enough);

// ---- Template -----------------------------------------------------------------------------------

template <class F>
void pieces(const Array& a, const Box& box, const Box* tile, F&& f) {
  Box part = box;
  if (tile != nullptr && a.dims == 1 && a.rank > 1) {
    Piece p{.dims = 1};
    std::int64_t lo = 0, hi = 0, width = a.element;
    for (int d = a.rank - 1; d >= 0; --d) {
      lo += box[d].lo * width;
      hi += (box[d].hi - 1) * width;
      width *= (*tile)[d].size();
    }
    p.bytes() = {lo, hi + a.element};
    if (!box.empty()) f(p);
    return;
  }
  if (box.empty()) return;
  if (a.rank == 0) {
    Piece p{.dims = 1};
    p.bytes() = {0, a.element};
    return f(p);
  }
  if (a.one_block) {
    Piece p{.dims = a.dims, .part = tile == nullptr ? 0 : a.part_of(*tile)};
    const auto& stride = a.parts[static_cast<std::size_t>(p.part)].stride;
    std::int64_t first = 0, last = 0;
    for (int d = 0; d < a.rank; ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (a.place[i] >= 0) {
        p.at[static_cast<std::size_t>(a.place[i])] = box[d];
      } else {
        first += box[d].lo * stride[i];
        last += (box[d].hi - 1) * stride[i];
      }
    }
    p.bytes() = {first, last + a.element};
    return f(p);
  }
  // Blocks and places within them, by tensor dimension, of the part of the box that is at hand.
  std::array<Interval, kMaxRank> blocks = {}, within = {};
  int edges = 0;
  const auto place = [&] {
    Piece p{.dims = a.dims, .part = edges};
    std::array<std::int64_t, kMaxRank> first{}, last{};
    for (int d = 0; d < a.rank; ++d) {
      const auto i = static_cast<std::size_t>(d);
      first[i] = part[d].lo, last[i] = part[d].hi - 1;
    }
    std::int64_t outer = 0;
    for (int j = 0; j + 1 < a.dims; ++j) {
      const auto c = static_cast<std::size_t>(j);
      const auto i = static_cast<std::size_t>(a.sources[c].dimension);
      p.at[c] = a.sources[c].within ? within[i] : blocks[i];
      outer += p.at[c].lo * pitch_of(a, p, j);
      // The last byte of the first row.
      if (a.sources[c].within)
        last[i] = last[i] - last[i] % a.block[i] + within[i].lo;
      else
        last[i] = blocks[i].lo * a.block[i] + last[i] % a.block[i];
    }
    p.bytes() = {a.offset(first) - outer, a.offset(last) + a.element - outer};
    f(p);
  };
  const auto split = [&](auto&& self, int d) -> void {
    if (d == a.rank) return place();
    const auto i = static_cast<std::size_t>(d);
    const std::int64_t size = a.block[i], edge = a.edge(d);
    const bool keeps_within = a.keeps(d, true), keeps = keeps_within || a.keeps(d, false);
    const Interval both = part[d];
    const auto go = [&](std::int64_t lo, std::int64_t hi) {
      if (lo >= hi) return;
      part[d] = {lo, hi};
      blocks[i] = {lo / size, ceil_div(hi, size)};
      within[i] =
          blocks[i].size() == 1 ? Interval{lo % size, (hi - 1) % size + 1} : Interval{0, size};
      self(self, d + 1);
    };
    if (!keeps) {
      go(both.lo, both.hi);
    } else {
      std::int64_t lo = both.lo;
      const std::int64_t hi = std::min(both.hi, edge);
      if (keeps_within && lo < hi) {
        // What is cut of the first and of the last block is apart.
        const std::int64_t begin = std::min(round_up(lo, size), hi);
        const std::int64_t end = std::max(hi - hi % size, begin);
        go(lo, begin);
        go(begin, end);
        go(end, hi);
      } else {
        go(lo, hi);
      }
      lo = std::max(both.lo, edge);
      if (lo < both.hi && edge < a.extent[i]) {
        edges |= 1 << d;
        go(lo, both.hi);
        edges &= ~(1 << d);
      }
    }
    part[d] = both;
  };
  split(split, 0);
}

}  // namespace tilewright::cached
