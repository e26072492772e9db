// What emitted kernels are made of, first part: tiles in shared memory, and rings of loaded tiles.
// Plain C++ on top of tilewright_device.h.
#pragma once

#include "tilewright_boxes.h"

/// Turns of a copy that are written out: fewer where a kernel has so much to fetch that
/// instructions count.
#if !defined(TW_COPIES_AT_ONCE)
#define TW_COPIES_AT_ONCE 16
#define TW_ELEMENTS_AT_ONCE 4
#endif

namespace tw {

/// Rows of Pitch elements, Pitch * sizeof(T) a multiple of 16. Swizzled: 16-byte chunks are exchanged
/// within a row by its number, so that eight rows' chunks of one column lie in different banks. Rows begin at
/// multiples of 32 bytes: a sector of 32 bytes that a copy puts across two such pieces of shared memory is fetched
/// twice on an H200 (docs/gpu.md).
/// By fours (kByFours): four rows after one another have their chunks in the same order, and the next four in another.
constexpr int kByFours = 2;
template <class T, int Rows, int Columns, int Pitch, int Swizzled>
struct Tile {
  using Element = T;
  static constexpr int kRows = Rows, kColumns = Columns, kPitch = Pitch;
  static constexpr int kSwizzled = Swizzled;
  static constexpr int kVector = 16 / int(sizeof(T)), kChunks = Pitch / kVector;
  T* data;
  TW_MEMBER static int offset(int row, int column) {
    if constexpr (Swizzled == 0) return row * Pitch + column;
    int chunk = column / kVector;
    if constexpr (Swizzled == kByFours) {
      chunk ^= kChunks % 4 == 0 ? (row >> 2) & 3 : kChunks % 2 == 0 ? (row >> 2) & 1 : 0;
    } else if constexpr (Swizzled != 0) {
      static_assert(kChunks % 2 == 0 || kChunks == 1, "pitch");
      chunk ^= kChunks % 8 == 0 ? row & 7 : kChunks % 4 == 0 ? (row >> 1) & 3
               : kChunks % 2 == 0 ? (row >> 2) & 1 : 0;
    }
    return row * Pitch + chunk * kVector + column % kVector;
  }
  TW_MEMBER T* at(int row, int column) const { return data + offset(row, column); }
};
/// A result as its integer type has it.
template <class T, class Real>
TW_DEVICE Real whole_number(Real x) {
  return Real(Rounded<T>::of(x));
}

/// A result into a tile, rounded where the tile's elements are narrower.
template <class T, class Real>
TW_DEVICE void put(T* at, Real value) {
  *at = Rounded<T>::of(value);
}

/// N neighbours, N * sizeof(T) at most 16, on a multiple of that.
template <class T, int N>
struct alignas(N * sizeof(T)) Several {
  T x[N];
};
/// Neighbours of a tile, as floats, and back.
template <class T, class Real, int N>
TW_DEVICE void read_strip(Real (&to)[N], const T* from) {
  const Several<T, N> v = *reinterpret_cast<const Several<T, N>*>(from);
  TW_UNROLL
  for (int i = 0; i < N; ++i) to[i] = to_float(v.x[i]);
}
template <class T, class Real, int N>
TW_DEVICE void put_strip(T* to, const Real (&from)[N]) {
  Several<T, N> v;
  TW_UNROLL
  for (int i = 0; i < N; ++i) v.x[i] = Rounded<T>::of(from[i]);
  *reinterpret_cast<Several<T, N>*>(to) = v;
}

/// f(row, chunk) for every chunk of 16 bytes of a tile, shared out among threads: neighbours of a row to
/// neighbouring lanes, as many lanes a row as the next power of two, so that no group of eight lanes is
/// in two rows where a row has more than four chunks.
template <int Threads, int Rows, int Chunks, class F>
TW_DEVICE void each_chunk(int thread, const F& f) {
  constexpr int kLanes = Chunks > 16 ? 32 : Chunks > 8 ? 16 : Chunks > 4 ? 8 : Chunks > 2 ? 4 : Chunks;
  constexpr int kStep = Threads / kLanes;
  thread = made_here(thread);
  const int first = thread / kLanes, lane = thread % kLanes;
  TW_UNROLL_BY(TW_COPIES_AT_ONCE)
  for (int n = 0; n < (Rows + kStep - 1) / kStep; ++n)
    TW_UNROLL
    for (int part = 0; part < (Chunks + kLanes - 1) / kLanes; ++part) {
      const int r = first + n * kStep, c = lane + part * kLanes;
      if ((Rows % kStep == 0 || r < Rows) && (Chunks % kLanes == 0 || c < Chunks)) f(r, c);
    }
}
/// Fills a tile, its padding with zeros, by asynchronous copies of `Bytes`, at multiples of which the tensor's rows begin.
/// row(r) is the address of row r's first element, null for a row that does not exist; `any` some address in the tensor.
template <int Threads, int Bytes, class Tile, class Row>
TW_DEVICE void copy_async(const Tile& tile, int thread, int columns, const typename Tile::Element* any, const Row& row) {
  using T = typename Tile::Element;
  constexpr int kPiece = Bytes / int(sizeof(T));
  each_chunk<Threads, Tile::kRows, Tile::kColumns / kPiece>(thread, [&](int r, int piece) {
    const T* const from = row(r);
    const int c = piece * kPiece, count = from == nullptr ? 0 : least(most(columns - c, 0), kPiece);
    cp_async_at<Bytes, 0, 0>(tile.at(r, c), count > 0 ? from + c : any, count * int(sizeof(T)));
  });
}
/// Rows of one dimension, Stride elements apart, in pieces of `Bytes`, to which each row begins. `Edges`: what of the tile
/// is from row `rows` or column `columns` on becomes zero; else all of it exists. A thread has pieces of a row that are
/// constants apart, and rows whose chunks are in the same order every kAlike turns: few instructions are no copies.
template <int Threads, int Bytes, i64 Stride, bool Edges, class Tile>
struct CopiedRows {
  using T = typename Tile::Element;
  static constexpr int kSize = int(sizeof(T)), kPiece = Bytes / kSize, kPieces = Tile::kColumns / kPiece;
  static constexpr int kLanes = kPieces > 16 ? 32 : kPieces > 8 ? 16 : kPieces > 4 ? 8 : kPieces > 2 ? 4 : kPieces;
  static constexpr int kParts = (kPieces + kLanes - 1) / kLanes;
  static constexpr int kStep = Threads / kLanes, kTurns = (Tile::kRows + kStep - 1) / kStep;
  static constexpr int kOrder = Tile::kSwizzled == 0 ? 1 : Tile::kSwizzled == kByFours ? 16 : 8;  // rows
  static constexpr int kAlike = kStep % kOrder == 0         ? 1
                                : kStep % (kOrder / 2) == 0 ? 2
                                : kStep % (kOrder / 4) == 0 ? 4
                                                            : kOrder;
  static constexpr int kAtOnce = kTurns < 64 ? kTurns : 64;
  T* to[kAlike];
  const T* from;
  int row, rows, column, columns;

  /// Parts Part to kParts of the row of turn N.
  template <int N, int Part>
  TW_MEMBER void parts(const T* at) const {
    if constexpr (Part < kParts) {
      const int c = column + Part * kLanes * kPiece;
      if (kPieces % kLanes == 0 || c < Tile::kColumns) {
        constexpr int kTo = N / kAlike * kAlike * kStep * Tile::kPitch * kSize + Part * kLanes * Bytes;
        const bool there = !Edges || (row + N * kStep < rows && c < columns);
        cp_async_at<Bytes, kTo, Part * kLanes * Bytes>(
            to[N % kAlike], at, !there ? 0 : !Edges || kPiece == 1 ? Bytes : least(columns - c, kPiece) * kSize);
      }
      parts<N, Part + 1>(at);
    }
  }
  /// Turns N to kAtOnce of those from `done` on.
  template <int N>
  TW_MEMBER void turns(int done) const {
    if constexpr (N < kAtOnce) {
      if ((kTurns % kAtOnce == 0 || done + N < kTurns) && (Tile::kRows % kStep == 0 || row + N * kStep < Tile::kRows))
        parts<N, 0>(from + N * kStep * Stride);
      turns<N + 1>(done);
    }
  }
  TW_MEMBER static void copy(const Tile& tile, int thread, int rows, int columns, const T* from) {
    thread = made_here(thread);
    const int first = thread / kLanes, column = thread % kLanes * kPiece;
    TW_NO_UNROLL
    for (int done = 0; done < kTurns; done += kAtOnce) {
      const int row = kTurns > kAtOnce ? made_here(first + done * kStep) : first;
      CopiedRows of{{}, from + (row * Stride + column), row, rows, column, columns};
      TW_UNROLL
      for (int a = 0; a < kAlike; ++a) of.to[a] = tile.at(row + a * kStep, column);
      of.template turns<0>(done);
    }
  }
};
/// A box that is as large as the tile.
template <int Threads, i64 Stride, class Tile>
TW_DEVICE void copy_whole(const Tile& tile, int thread, const typename Tile::Element* from) {
  CopiedRows<Threads, 16, Stride, false, Tile>::copy(tile, thread, Tile::kRows, Tile::kColumns, from);
}
/// One of so many rows and columns.
template <int Threads, int Bytes, i64 Stride, class Tile>
TW_DEVICE void copy_rows(const Tile& tile, int thread, int rows, int columns, const typename Tile::Element* from) {
  if (rows >= Tile::kRows && columns >= Tile::kColumns)
    CopiedRows<Threads, Bytes, Stride, false, Tile>::copy(tile, thread, rows, columns, from);
  else CopiedRows<Threads, Bytes, Stride, true, Tile>::copy(tile, thread, rows, columns, from);
}
/// 16 bytes from byte `by` on of 24, `by` below 8 and a multiple of an element's size.
template <class T>
TW_DEVICE b128 shifted(const b64 (&w)[3], int by) {
  const bool one = (by & 4) != 0;
  u32 b[5] = {one ? w[0].y : w[0].x, one ? w[1].x : w[0].y, one ? w[1].y : w[1].x, one ? w[2].x : w[1].y,
              one ? w[2].y : w[2].x};
  if constexpr (sizeof(T) < 4)
    TW_UNROLL
    for (int i = 0; i < 4; ++i) b[i] = u32((u64(b[i + 1]) << 32 | b[i]) >> (by % 4 * 8));
  return {b[0], b[1], b[2], b[3]};
}
/// Their first `bytes`, then zeros.
TW_DEVICE b128 first_bytes(const b128& x, int bytes) {
  const auto of = [&](u32 word, int before) {
    const int bits = 8 * (bytes - before);
    return bits >= 32 ? word : bits <= 0 ? 0u : word & ((1u << bits) - 1);
  };
  return {of(x.x, 0), of(x.y, 4), of(x.z, 8), of(x.w, 12)};
}
/// Of 24 bytes the pieces that have some of bytes [from, to); zeros for the others.
template <class T, bool Cached>
TW_DEVICE void load_pieces(b64 (&words)[3], const b64* pieces, int from, int to) {
  words[0] = load_piece<T, Cached>(pieces, from, least(to, 8));
  words[1] = load_piece<T, Cached>(pieces + 1, 0, least(to - 8, 8));
  words[2] = load_piece<T, Cached>(pieces + 2, 0, to - 16);
}
/// What of a tensor 16 bytes of a tile are: from which address on, in bytes, and how many elements.
struct ShiftedPart { u64 at; int count; };
/// What a thread has of a tile's 16-byte pieces, kAll in number: lanes go along rows.
template <int Threads, class Tile>
struct ShiftedPieces {
  using T = typename Tile::Element;
  static constexpr int kSize = int(sizeof(T)), kOf = Tile::kVector, kChunks = Tile::kColumns / kOf;
  static constexpr int kLanes = kChunks > 16 ? 32 : kChunks > 8 ? 16 : kChunks > 4 ? 8 : kChunks > 2 ? 4 : kChunks;
  static constexpr int kStep = Threads / kLanes, kParts = (kChunks + kLanes - 1) / kLanes;
  static constexpr int kAll = (Tile::kRows + kStep - 1) / kStep * kParts;
  int first, lane;
  TW_MEMBER int row_of(int n) const { return first + n / kParts * kStep; }
  TW_MEMBER int column_of(int n) const { return (lane + n % kParts * kLanes) * kOf; }
  /// `batch` are taken at a time: the last may go past them all.
  TW_MEMBER bool mine(int n, int batch) const {
    return (kAll % batch == 0 || n < kAll) && (Tile::kRows % kStep == 0 || row_of(n) < Tile::kRows) &&
           (kChunks % kLanes == 0 || column_of(n) < Tile::kColumns);
  }
};
template <class T>
TW_DEVICE bool goes_beyond(const ShiftedPart& p, u64 whole_pieces) {
  return p.count > 0 && p.at + u64(p.count * int(sizeof(T))) > whole_pieces;
}
/// The same as copy_async through registers, for rows that begin anywhere: of each 16 bytes of the tile the aligned
/// pieces of 8 bytes at home that hold them, moved together. A thread has `AtOnce` of them under way. Nothing is read
/// beyond `end`, the tensor's. Cached: no block writes the tensor while the kernel runs, and L1 has the piece that two
/// neighbours share.
template <int Threads, int AtOnce, bool Cached, class Tile, class Row>
TW_DEVICE void copy_shifted(const Tile& tile, int thread, int columns, const typename Tile::Element* end, const Row& row) {
  using T = typename Tile::Element;
  using Pieces = ShiftedPieces<Threads, Tile>;
  constexpr int kSize = Pieces::kSize, kOf = Pieces::kOf, kBatch = Pieces::kAll < AtOnce ? Pieces::kAll : AtOnce;
  thread = made_here(thread);
  const Pieces pieces_of{thread / Pieces::kLanes, thread % Pieces::kLanes};
  const u64 whole_pieces = reinterpret_cast<u64>(end) & ~u64(7);
  const auto part = [&](int n) {
    const T* const from = there_if(pieces_of.mine(n, kBatch), row(pieces_of.row_of(n)));
    return ShiftedPart{reinterpret_cast<u64>(from) + u64(pieces_of.column_of(n) * kSize),
                       from == nullptr ? 0 : least(most(columns - pieces_of.column_of(n), 0), kOf)};
  };
  bool beyond = false;  // some were left out
  TW_NO_UNROLL
  for (int done = 0; done < Pieces::kAll; done += kBatch) {
    b64 words[kBatch][3];
    int by[kBatch];
    TW_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const ShiftedPart p = part(done + i);
      by[i] = int(p.at % 8);
      const bool left_out = goes_beyond<T>(p, whole_pieces);
      load_pieces<T, Cached>(words[i], reinterpret_cast<const b64*>(p.at & ~u64(7)), by[i],
                             left_out ? 0 : by[i] + p.count * kSize);
      beyond = beyond || left_out;
    }
    TW_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (!pieces_of.mine(done + i, kBatch)) continue;
      const int c = pieces_of.column_of(done + i);
      b128 x = shifted<T>(words[i], by[i]);
      if (columns - c < kOf) x = first_bytes(x, (columns - c) * kSize);
      *reinterpret_cast<b128*>(tile.at(pieces_of.row_of(done + i), c)) = x;
    }
  }
  // The tensor's last elements, where it ends within a piece.
  if (beyond)
    TW_NO_UNROLL
    for (int n = 0; n < Pieces::kAll; ++n) {
      const ShiftedPart p = part(n);
      if (!goes_beyond<T>(p, whole_pieces)) continue;
      T last_ones[kOf];  // all are under way together
      TW_UNROLL
      for (int e = 0; e < kOf; ++e)
        if (e < p.count) last_ones[e] = load_global(reinterpret_cast<const T*>(p.at) + e);
      TW_UNROLL
      for (int e = 0; e < kOf; ++e)
        if (e < p.count) *tile.at(pieces_of.row_of(n), pieces_of.column_of(n) + e) = last_ones[e];
    }
}
/// Rows of one dimension, Stride elements apart. A thread has every kStep-th row: where a piece of it begins within 8
/// bytes comes again after kPeriod of them, so that addresses are constants apart, and shifts are few.
template <int Threads, int AtOnce, bool Cached, i64 Stride, bool Edges, class Tile>
struct ShiftedRows {
  using T = typename Tile::Element;
  using Pieces = CopiedRows<Threads, 16, Stride, Edges, Tile>;
  static constexpr int kSize = Pieces::kSize, kOf = Pieces::kPiece, kLanes = Pieces::kLanes, kParts = Pieces::kParts,
                       kStep = Pieces::kStep, kTurns = Pieces::kTurns, kAlike = Pieces::kAlike;
  static constexpr i64 kApart = kStep * Stride * kSize;
  static constexpr int kPeriod = kApart % 8 == 0 ? 1 : kApart % 4 == 0 ? 2 : kApart % 2 == 0 ? 4 : 8;
  static constexpr int kUnit = kPeriod > kAlike ? kPeriod : kAlike;
  static constexpr int kMost = AtOnce > kParts ? AtOnce / kParts : 1, kRounds = (kTurns + kMost - 1) / kMost;
  static constexpr int kEven = (kTurns + kRounds - 1) / kRounds;
  static constexpr int kAtOnce = kRounds == 1 ? kTurns : (kEven + kUnit - 1) / kUnit * kUnit;

  TW_MEMBER static void copy(const Tile& tile, int thread, int rows, int columns, const T* from) {
    thread = made_here(thread);
    const int first = thread / kLanes, lane = thread % kLanes;
    TW_NO_UNROLL
    for (int done = 0; done < kTurns; done += kAtOnce) {
      const int row = kTurns > kAtOnce ? made_here(first + done * kStep) : first;
      const b64* at[kPeriod];
      int by[kPeriod];
      T* to[kAlike];
      TW_UNROLL
      for (int a = 0; a < kPeriod; ++a) {
        const u64 begin = reinterpret_cast<u64>(from + ((row + a * kStep) * Stride + lane * kOf));
        at[a] = reinterpret_cast<const b64*>(begin & ~u64(7)), by[a] = int(begin % 8);
      }
      TW_UNROLL
      for (int a = 0; a < kAlike; ++a) to[a] = tile.at(row + a * kStep, lane * kOf);
      const auto mine = [&](int n, int part) {
        return (kTurns % kAtOnce == 0 || done + n < kTurns) && (Tile::kRows % kStep == 0 || row + n * kStep < Tile::kRows) &&
               (Pieces::kPieces % kLanes == 0 || lane + part * kLanes < Pieces::kPieces);
      };
      b64 words[kAtOnce][kParts][3];
      TW_UNROLL
      for (int n = 0; n < kAtOnce; ++n)
        TW_UNROLL
        for (int part = 0; part < kParts; ++part) {
          const int left = columns - (lane + part * kLanes) * kOf, count = Edges ? least(most(left, 0), kOf) : kOf;
          const bool there = mine(n, part) && (!Edges || row + n * kStep < rows);
          load_pieces<T, Cached>(words[n][part], at[n % kPeriod] + (n / kPeriod * kPeriod * kApart + part * kLanes * 16) / 8,
                                 by[n % kPeriod], there && count > 0 ? by[n % kPeriod] + count * kSize : 0);
        }
      TW_UNROLL
      for (int n = 0; n < kAtOnce; ++n)
        TW_UNROLL
        for (int part = 0; part < kParts; ++part) {
          if (!mine(n, part)) continue;
          b128 x = shifted<T>(words[n][part], by[n % kPeriod]);
          const int left = columns - (lane + part * kLanes) * kOf;
          if (Edges && left < kOf) x = first_bytes(x, left * kSize);
          *reinterpret_cast<b128*>(to[n % kAlike] + n / kAlike * kAlike * kStep * Tile::kPitch + part * kLanes * kOf) = x;
        }
    }
  }
};
/// A box of so many rows and columns. EndsWithin: the tensor's last elements are no whole piece of 8 bytes.
template <int Threads, int AtOnce, bool Cached, i64 Stride, bool EndsWithin, class Tile>
TW_DEVICE void copy_shifted_rows(const Tile& tile, int thread, int rows, int columns, const typename Tile::Element* from,
                                 const typename Tile::Element* end) {
  using T = typename Tile::Element;
  if (EndsWithin && reinterpret_cast<u64>(from + ((rows - 1) * Stride + columns)) > (reinterpret_cast<u64>(end) & ~u64(7)))
    copy_shifted<Threads, AtOnce, Cached>(tile, thread, columns, end, [&](int r) -> const T* {
      return there_if(r < rows, from + r * Stride);
    });
  else if (rows >= Tile::kRows && columns >= Tile::kColumns)
    ShiftedRows<Threads, AtOnce, Cached, Stride, false, Tile>::copy(tile, thread, rows, columns, from);
  else
    ShiftedRows<Threads, AtOnce, Cached, Stride, true, Tile>::copy(tile, thread, rows, columns, from);
}
/// f(address in the tensor, element in the tile) for every element of a tile, shared out among threads; a
/// null address: there is none. row(r) as for copy_async.
template <class Tile, class Row, class F>
TW_DEVICE void each_element(const Tile& tile, int thread, int threads, int columns, const Row& row,
                            const F& f) {
  TW_UNROLL_BY(TW_ELEMENTS_AT_ONCE)
  for (int i = thread; i < Tile::kRows * Tile::kColumns; i += threads) {
    const int r = i / Tile::kColumns, c = i % Tile::kColumns;
    const auto at = row(r);
    f(there_if(at != nullptr && c < columns, at + c), tile.at(r, c));
  }
}
struct CopyElement {
  template <class From, class To>
  TW_MEMBER void operator()(const From* from, To* to) const {
    *to = from != nullptr ? To(load_global(from)) : To{};
  }
};
/// The same as copy_async, element by element through registers, for rows that begin anywhere and
/// elements that are narrower at home.
template <class Tile, class Row>
TW_DEVICE void copy_elements(const Tile& tile, int thread, int threads, int columns, const Row& row) {
  each_element(tile, thread, threads, columns, row, CopyElement{});
}
/// A tile of floats from a tensor's elements, back, and added to them.
template <class T, class Tile, class Row>
TW_DEVICE void read_tile(const Tile& tile, int thread, int threads, int columns, const Row& row) {
  using Real = typename Tile::Element;
  each_element(tile, thread, threads, columns, row, [](const T* from, Real* to) {
    *to = from != nullptr ? to_float(load_global(from)) : Real(0);
  });
}
template <class T, class Tile, class Row>
TW_DEVICE void write_tile(const Tile& tile, int thread, int threads, int columns, const Row& row) {
  using Element = typename Tile::Element;
  each_element(tile, thread, threads, columns, row, [](T* to, const Element* from) {
    if (to != nullptr) store_global(to, Rounded<T>::of(to_float(*from)));
  });
}
/// How blocks combine what each of them has of a result at home.
constexpr int kSum = 0, kLargest = 1, kSmallest = 2, kTimes = 3;
template <int How, class T, class R>
TW_DEVICE void combine_at_home(T* p, R x) {
  if constexpr (How == kSum) atomic_add(p, x);
  else atomic_combine<How>(p, x);
}
template <class T, int How = kSum, class Tile, class Row>
TW_DEVICE void add_tile(const Tile& tile, int thread, int threads, int columns, const Row& row) {
  using Element = typename Tile::Element;
  each_element(tile, thread, threads, columns, row, [](T* to, const Element* from) {
    if (to != nullptr) combine_at_home<How>(to, to_float(*from));
  });
}

/// f(index by dimension) for every point of a box, shared out among threads.
template <int R, class F>
TW_DEVICE void each_point(const Box<R>& box, int thread, int threads, const F& f) {
  int count = 1;
  for (int d = 0; d < R; ++d) count *= most(box.d[d].hi - box.d[d].lo, 0);
  for (int p = thread; p < count; p += threads) {
    int index[R > 0 ? R : 1], rest = p;
    for (int d = R - 1; d >= 0; --d) {
      const int size = box.d[d].hi - box.d[d].lo;
      index[d] = box.d[d].lo + rest % size;
      rest /= size;
    }
    f(index);
  }
}
/// An element of a tile that holds `box`; `stride`: rows of the tile, by dimension but the last.
template <int R, class Tile>
TW_DEVICE typename Tile::Element* element(const Tile& tile, const int (&stride)[R > 0 ? R : 1],
                                          const Box<R>& box, const int (&index)[R > 0 ? R : 1]) {
  int row = 0;
  for (int d = 0; d + 1 < R; ++d) row += (index[d] - box.d[d].lo) * stride[d];
  constexpr int last = R > 0 ? R - 1 : 0;
  return tile.at(row, R > 0 ? index[last] - box.d[last].lo : 0);
}
/// What two tiles of a sliding buffer share, from the old to the new.
template <int R, class Tile>
TW_DEVICE void keep_shared(const Tile& to, const Tile& from, const int (&stride)[R > 0 ? R : 1],
                           const Box<R>& now, const Box<R>& old, int thread, int threads) {
  Box<R> both = now;
  for (int d = 0; d < R; ++d)
    both.d[d] = {most(now.d[d].lo, old.d[d].lo), least(now.d[d].hi, old.d[d].hi)};
  each_point(both, thread, threads, [&](const int (&index)[R > 0 ? R : 1]) {
    *element<R>(to, stride, now, index) = *element<R>(from, stride, old, index);
  });
}
/// Part of a tile from its tensor.
template <int R, class Tile, class Home>
TW_DEVICE void load_part(const Tile& tile, const int (&stride)[R > 0 ? R : 1], const Box<R>& box,
                         const Box<R>& part, const Home* home, const i64 (&home_stride)[R > 0 ? R : 1],
                         int thread, int threads) {
  each_point(part, thread, threads, [&](const int (&index)[R > 0 ? R : 1]) {
    i64 at = 0;
    for (int d = 0; d < R; ++d) at += index[d] * home_stride[d];
    *element<R>(tile, stride, box, index) = typename Tile::Element(load_global(home + at));
  });
}

/// Rows of a tile between neighbours, by dimension.
template <int R>
struct Strides { int d[R > 0 ? R : 1]; };
template <class To, class From> struct Element {
  static TW_MEMBER To of(From x) { return Rounded<To>::of(to_float(x)); }
};
template <class T> struct Element<T, T> {
  static TW_MEMBER T of(T x) { return x; }
};
/// Part of one tile, which holds from_box, to another one's place for it. Of both tiles what both hold.
template <int R, class To, class From>
TW_DEVICE void copy_part(const To& to, const Strides<R>& to_stride, const Box<R>& to_box, const From& from,
                         const Strides<R>& from_stride, const Box<R>& from_box, const Box<R>& part, int thread,
                         int threads) {
  using T = typename To::Element;
  using F = typename From::Element;
  Box<R> here = part;
  for (int d = 0; d < R; ++d)
    here.d[d] = {most(part.d[d].lo, most(to_box.d[d].lo, from_box.d[d].lo)),
                 least(part.d[d].hi, least(to_box.d[d].hi, from_box.d[d].hi))};
  each_point(here, thread, threads, [&](const int (&index)[R > 0 ? R : 1]) {
    int row = 0, from_row = 0, column = 0, from_column = 0;
    for (int d = 0; d + 1 < R; ++d) {
      row += (index[d] - to_box.d[d].lo) * to_stride.d[d];
      from_row += (index[d] - from_box.d[d].lo) * from_stride.d[d];
    }
    if (R > 0) {
      column = index[R > 0 ? R - 1 : 0] - to_box.d[R > 0 ? R - 1 : 0].lo;
      from_column = index[R > 0 ? R - 1 : 0] - from_box.d[R > 0 ? R - 1 : 0].lo;
    }
    *to.at(row, column) = Element<T, F>::of(*from.at(from_row, from_column));
  });
}
template <class Tile>
TW_DEVICE void clear_tile(const Tile& tile, int thread, int threads) {
  for (int i = thread; i < Tile::kRows * Tile::kColumns; i += threads)
    *tile.at(i / Tile::kColumns, i % Tile::kColumns) = typename Tile::Element{};
}

/// Tiles of one tensor that the copying warps bring while the others compute: `Stages` of them in a
/// circle, each with a barrier that says it is full and one that says it is free. Copying and
/// computing warps walk the same loops and meet the same loads, each with a Ring of its own.
template <int R, int Stages>
struct Ring {
  u64* barriers;  // full[Stages], free[Stages]
  Box<R> held{};
  bool full = false;
  int stage = Stages - 1;
  u32 parity = 1;
  /// Rule 8: nothing moves where the tile is held.
  TW_MEMBER bool needs(const Box<R>& box) const { return !full || !equal(held, box); }
  TW_MEMBER void advance(const Box<R>& box) {
    held = box;
    full = true;
    stage = stage + 1 == Stages ? 0 : stage + 1;
    parity ^= stage == 0 ? 1u : 0u;
  }
  /// Copying side: waits until the next stage is free; what follows fills it.
  TW_MEMBER void fill(const Box<R>& box) {
    advance(box);
    mbarrier_wait(barriers + Stages + stage, parity ^ 1);
  }
  /// The same of groups of copying threads, of which each fills stages of its own, so that several tiles are under
  /// way: whether the next one is this group's.
  template <int Groups>
  TW_MEMBER bool fill_mine(const Box<R>& box, int group) {
    advance(box);
    if (stage % Groups != group % Groups) return false;
    mbarrier_wait(barriers + Stages + stage, parity ^ 1);
    return true;
  }
  TW_MEMBER void copies_started() const { mbarrier_arrive_after_copies(barriers + stage); }
  TW_MEMBER void elements_stored() const { mbarrier_arrive(barriers + stage); }
  /// Computing side: gives back the tile so far; the next load brings another, whatever its box.
  TW_MEMBER void drop() {
    if (!full) return;
    warp_sync();
    mbarrier_arrive(barriers + Stages + stage);
    full = false;
  }
  /// The same, and waits for the next.
  TW_MEMBER void take(const Box<R>& box, int lane) {
    drop();
    advance(box);
    mbarrier_wait(barriers + stage, parity);
  }
};
/// By one thread, before the block's first synchronisation.
template <int Stages>
TW_DEVICE void start_ring(u64* barriers, u32 copying_threads, u32 computing_warps) {
  TW_UNROLL
  for (int i = 0; i < Stages; ++i) {
    mbarrier_init(barriers + i, copying_threads);
    mbarrier_init(barriers + Stages + i, computing_warps * 32);
  }
}

}  // namespace tw
