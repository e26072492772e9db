// Where the data of a schedule lie, as arrays of rows, and what of them a box is.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/plan/schedule.h"
#include "core/plan/stream.h"

namespace tilewright::cached {

/// A tensor at home, or the packed array of an on-chip intermediate. Its dimensions are those of
/// the tensor, in blocks where it is laid out by tile; the last ones are taken together as one, in
/// bytes, as far as they are contiguous or closer than a line.
struct Array {
  TensorId tensor;
  std::int64_t base = 0;
  std::int64_t bytes = 0;
  int rank = 0;                                    ///< of the tensor
  int dims = 1;                                    ///< of the array, the last in bytes
  std::array<std::int64_t, kMaxRank> extent = {};  ///< of the tensor, or of the largest tile
  std::array<std::int64_t, kMaxRank> block = {};   ///< by tensor dimension; 1 where it is not tiled
  std::array<std::int64_t, kMaxRank> pitch = {};   ///< bytes from one block to the next
  std::int64_t element = 0;
  bool packed = false;

  int first_fused() const { return dims - 1; }
};

/// A box of an array: intervals of its outer dimensions, and bytes of each row.
struct Piece {
  int dims = 1;
  std::array<Interval, kMaxRank> at = {};
  // Bytes of a row left of this one up to `left`, and right of it from `right` on, are another
  // piece's, which has the line that both share.
  static constexpr std::int64_t kFar = std::int64_t{1} << 60;
  std::int64_t left = -kFar, right = kFar;

  bool cut() const { return left != -kFar || right != kFar; }
  Interval& bytes() { return at[static_cast<std::size_t>(dims - 1)]; }
  const Interval& bytes() const { return at[static_cast<std::size_t>(dims - 1)]; }
};

/// Bytes of one row.
struct RowBytes {
  std::array<std::int64_t, kMaxRank> at = {};  ///< outer dimensions
  Interval bytes = {};
};

/// A line of an array: what of it lies in the row that it begins in, and in the next one.
struct Spot {
  int array = 0;
  std::int64_t address = 0;  ///< of the line's first byte
  std::array<RowBytes, 2> rows = {};
  int count = 1;
};

/// Calls f(piece) for a box of the array's tensor, in elements; of a packed array, from its tile's
/// low end. Boxes that take in a cut block at the edge of a tiled tensor are several pieces.
/// `tile`: of a packed array the sizes of its tile, where they are smaller than the largest.
template <class F>
void pieces(const Array& a, const Box& box, const Box* tile, F&& f);

/// Address of the first byte of a row of the piece.
inline std::int64_t row_address(const Array& a, const Piece& p) {
  std::int64_t address = a.base + p.bytes().lo;
  for (int d = 0; d + 1 < p.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    address += p.at[i].lo * a.pitch[i];
  }
  return address;
}

/// What of the line the piece touches first, or last; null: nothing.
inline const RowBytes* touched_row(const Piece& p, const Spot& x, bool last = false) {
  for (int r = 0; r < x.count; ++r) {
    const RowBytes& row = x.rows[static_cast<std::size_t>(last ? x.count - 1 - r : r)];
    bool in = p.bytes().lo < row.bytes.hi && row.bytes.lo < p.bytes().hi;
    for (int d = 0; in && d + 1 < p.dims; ++d) {
      const auto i = static_cast<std::size_t>(d);
      in = row.at[i] >= p.at[i].lo && row.at[i] < p.at[i].hi;
    }
    if (in) return &row;
  }
  return nullptr;
}
inline bool touches(const Piece& p, const Spot& x) { return touched_row(p, x) != nullptr; }

/// The same lines with dimensions taken together whose rows leave no whole line between them.
Piece merged(const Array& a, Piece p, std::int64_t line);

/// Lines of the piece, on average where its rows begin anywhere in a line.
std::int64_t lines(const Array& a, const Piece& p, std::int64_t line);
/// One of the piece's lines; `where` says how far along each dimension, from 0 to 1.
Spot spot(const Array& a, int array, const Piece& p, std::int64_t line,
          const std::array<double, kMaxRank>& where);

/// Lines of the piece that fall into the set of the line at `address`, of `sets` sets. Exact where
/// the piece has rows in up to two outer dimensions of more than a few indices, else an estimate.
/// Cost: a logarithm of the sets for each index of all outer dimensions but the longest.
double lines_in_set(const Array& a, const Piece& p, std::int64_t address, std::int64_t line,
                    std::int64_t sets);

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
  const auto place = [&] {
    Piece p{.dims = a.dims};
    const int fused = a.first_fused();
    std::int64_t lo = 0, hi = 0, low_height = a.element, high_height = a.element;
    for (int d = 0; d < a.rank; ++d) {
      const auto i = static_cast<std::size_t>(d);
      const Interval& range = part[d];
      if (d + 1 == a.rank) {
        lo += range.lo * low_height;
        hi += range.hi * high_height;
        break;
      }
      const Interval blocks = {range.lo / a.block[i], ceil_div(range.hi, a.block[i])};
      low_height *= std::min(a.block[i], a.extent[i] - blocks.lo * a.block[i]);
      high_height *= std::min(a.block[i], a.extent[i] - (blocks.hi - 1) * a.block[i]);
      if (d < fused) {
        p.at[i] = blocks;
      } else {
        lo += blocks.lo * a.pitch[i];
        hi += (blocks.hi - 1) * a.pitch[i];
      }
    }
    if (a.rank == 0) hi = a.element;
    p.bytes() = {lo, hi};
    f(p);
  };
  // Rows of blocks at the edge are shorter: apart from the others.
  const auto split = [&](auto&& self, int d) -> void {
    if (d >= a.first_fused()) return place();
    const auto i = static_cast<std::size_t>(d);
    const std::int64_t whole = a.extent[i] - a.extent[i] % a.block[i];
    if (part[d].lo < whole && whole < part[d].hi) {
      const Interval both = part[d];
      part[d] = {both.lo, whole};
      self(self, d + 1);
      part[d] = {whole, both.hi};
      self(self, d + 1);
      part[d] = both;
      return;
    }
    self(self, d + 1);
  };
  if (!box.empty()) split(split, 0);
}

}  // namespace tilewright::cached
