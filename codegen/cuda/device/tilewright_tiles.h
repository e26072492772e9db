// What emitted kernels are made of: boxes, tiles in shared memory, rings of loaded tiles, sums in
// registers, and the matrix products on them. Plain C++ on top of tilewright_device.h.
//
// Of a block's warps the first ones compute and the others copy. Computing warps form a grid, `rows` x
// `columns` of them; a warp has whole 16-row blocks of a tile.
#pragma once

#include "tilewright_device.h"

#if defined(__CUDACC__)
#define TW_MEMBER __device__ __forceinline__
#define TW_PRAGMA(TEXT) _Pragma(#TEXT)
#define TW_UNROLL_BY(N) TW_PRAGMA(unroll N)
#else
#define TW_MEMBER inline
#define TW_UNROLL_BY(N)
#endif

namespace tw {

// ---- ranges and boxes --------------------------------------------------------------------------
struct Range { int lo, hi; };
TW_DEVICE int least(int a, int b) { return a < b ? a : b; }
TW_DEVICE int most(int a, int b) { return a > b ? a : b; }
TW_DEVICE bool empty(Range r) { return r.hi <= r.lo; }
TW_DEVICE bool equal(Range a, Range b) { return a.lo == b.lo && a.hi == b.hi; }
TW_DEVICE Range hull(Range a, Range b) {
  return empty(a) ? b : empty(b) ? a : Range{least(a.lo, b.lo), most(a.hi, b.hi)};
}
TW_DEVICE Range clip(Range r, int extent) { return {most(r.lo, 0), least(r.hi, extent)}; }
/// Where offset + coefficient * range + ... lies; empty where one of the ranges is.
TW_DEVICE Range reach(int offset) { return {offset, offset + 1}; }
template <class... Rest>
TW_DEVICE Range reach(int offset, int coefficient, Range r, Rest... rest) {
  const Range other = reach(offset, rest...);
  if (empty(r) || empty(other)) return {offset, offset};
  const int first = coefficient * r.lo, last = coefficient * (r.hi - 1);
  return {other.lo + least(first, last), other.hi + most(first, last)};
}
/// Of a tensor, one range a dimension; R = 0 is a scalar.
template <int R>
struct Box { Range d[R > 0 ? R : 1]; };
template <int R>
TW_DEVICE bool equal(const Box<R>& a, const Box<R>& b) {
  bool same = true;
  TW_UNROLL
  for (int i = 0; i < R; ++i) same = same && equal(a.d[i], b.d[i]);
  return same;
}
template <int R>
TW_DEVICE bool empty(const Box<R>& b) {
  bool none = false;
  TW_UNROLL
  for (int i = 0; i < R; ++i) none = none || empty(b.d[i]);
  return none;
}
template <int R>
TW_DEVICE Box<R> hull(const Box<R>& a, const Box<R>& b) {
  if (empty(a)) return b;
  if (empty(b)) return a;
  Box<R> r{};
  TW_UNROLL
  for (int i = 0; i < R; ++i) r.d[i] = hull(a.d[i], b.d[i]);
  return r;
}

/// What a buffer holds (rule 4) and whether it has changed since it was filled. The same in every
/// thread.
template <int R>
struct Held {
  Box<R> box{};
  bool full = false, changed = false;
  TW_MEMBER bool is(const Box<R>& b) const { return full && equal(box, b); }
  TW_MEMBER void now(const Box<R>& b) { box = b, full = true, changed = false; }
};

/// What of `now` is not held where the two differ in one dimension only, and that is one range; all of
/// it where nothing can be kept (rule 8).
template <int R>
TW_DEVICE Box<R> needed(const Held<R>& h, const Box<R>& now) {
  if (!h.full || R == 0 || empty(h.box) || empty(now)) return now;
  int differs = 0, differences = 0;
  bool held = true;
  for (int i = 0; i < R; ++i) {
    held = held && h.box.d[i].lo <= now.d[i].lo && now.d[i].hi <= h.box.d[i].hi;
    if (equal(h.box.d[i], now.d[i])) continue;
    differs = i;
    ++differences;
  }
  Box<R> part = now;
  const Range before = h.box.d[differs], after = now.d[differs];
  if (held)
    part.d[differs] = {after.lo, after.lo};
  else if (differences == 1 && most(before.lo, after.lo) < least(before.hi, after.hi) &&
           !(after.lo < before.lo && after.hi > before.hi))
    part.d[differs] = after.lo < before.lo ? Range{after.lo, before.lo} : Range{before.hi, after.hi};
  return part;
}

// ---- tiles in shared memory --------------------------------------------------------------------
/// Rows of Pitch elements, Pitch * sizeof(T) a multiple of 16. Swizzled: 16-byte chunks are exchanged
/// within a row by its number, so that eight rows' chunks of one column lie in different banks.
template <class T, int Rows, int Columns, int Pitch, bool Swizzled>
struct Tile {
  using Element = T;
  static constexpr int kRows = Rows, kColumns = Columns, kPitch = Pitch;
  static constexpr int kVector = 16 / int(sizeof(T)), kChunks = Pitch / kVector;
  T* data;
  TW_MEMBER static int offset(int row, int column) {
    int chunk = column / kVector;
    if constexpr (Swizzled) {
      static_assert(kChunks % 8 == 0 || kChunks == 4 || kChunks == 2 || kChunks == 1, "pitch");
      chunk ^= kChunks % 8 == 0 ? row & 7 : kChunks == 4 ? (row >> 1) & 3
               : kChunks == 2 ? (row >> 2) & 1 : 0;
    }
    return row * Pitch + chunk * kVector + column % kVector;
  }
  TW_MEMBER T* at(int row, int column) const { return data + offset(row, column); }
};

/// f(row, chunk) for every chunk of 16 bytes of a tile, shared out among threads: neighbours of a row to
/// neighbouring lanes, and no group of eight lanes in two rows where a row has eight chunks or more, so
/// that what a request fetches is what a row's part needs.
template <int Threads, int Rows, int Chunks, class F>
TW_DEVICE void each_chunk(int thread, const F& f) {
  constexpr int kLanes = Chunks >= 32 ? 32 : Chunks > 16 ? 32 : Chunks > 8 ? 16 : Chunks > 4 ? 8
                         : Chunks > 2 ? 4 : Chunks;
  constexpr int kStep = Threads / kLanes;
  const int first = thread / kLanes, lane = thread % kLanes;
  TW_UNROLL_BY(16)
  for (int n = 0; n < (Rows + kStep - 1) / kStep; ++n)
    TW_UNROLL
    for (int part = 0; part < (Chunks + kLanes - 1) / kLanes; ++part) {
      const int r = first + n * kStep, c = lane + part * kLanes;
      if ((Rows % kStep == 0 || r < Rows) && (Chunks % kLanes == 0 || c < Chunks)) f(r, c);
    }
}
/// Fills a tile, its padding with zeros, by asynchronous copies of 16 bytes: the tensor's rows begin
/// at multiples of 16 bytes. row(r) is the address of row r's first element, null for a row that does
/// not exist; `any` some address in the tensor.
template <int Threads, class Tile, class Row>
TW_DEVICE void copy_async(const Tile& tile, int thread, int columns,
                          const typename Tile::Element* any, const Row& row) {
  using T = typename Tile::Element;
  constexpr int kChunks = Tile::kColumns / Tile::kVector;
  const auto chunk = [&](int r, int c) {
    const T* const from = row(r);
    const int count = from == nullptr ? 0 : least(most(columns - c, 0), Tile::kVector);
    cp_async16(tile.at(r, c), count > 0 ? from + c : any, count * int(sizeof(T)));
  };
  each_chunk<Threads, Tile::kRows, kChunks>(thread, [&](int r, int c) { chunk(r, c * Tile::kVector); });
}
/// The same for a box that is as large as the tile, its rows `stride` elements apart from `from` on.
template <int Threads, class Tile>
TW_DEVICE void copy_whole(const Tile& tile, int thread, const typename Tile::Element* from, i64 stride) {
  constexpr int kChunks = Tile::kColumns / Tile::kVector;
  each_chunk<Threads, Tile::kRows, kChunks>(thread, [&](int r, int c) {
    cp_async16(tile.at(r, c * Tile::kVector), from + r * stride + c * Tile::kVector, 16);
  });
}
/// The same, element by element through registers, for rows that begin anywhere.
template <class Tile, class Row>
TW_DEVICE void copy_elements(const Tile& tile, int thread, int threads, int columns, const Row& row) {
  using T = typename Tile::Element;
  TW_UNROLL_BY(4)
  for (int i = thread; i < Tile::kRows * Tile::kColumns; i += threads) {
    const int r = i / Tile::kColumns, c = i % Tile::kColumns;
    const T* const from = row(r);
    *tile.at(r, c) = from != nullptr && c < columns ? load_global(from + c) : T{};
  }
}
/// A tile of floats from a tensor's elements, and back.
template <class T, class Tile, class Row>
TW_DEVICE void read_tile(const Tile& tile, int thread, int threads, int columns, const Row& row) {
  for (int i = thread; i < Tile::kRows * Tile::kColumns; i += threads) {
    const int r = i / Tile::kColumns, c = i % Tile::kColumns;
    const T* const from = row(r);
    *tile.at(r, c) = from != nullptr && c < columns ? to_float(load_global(from + c))
                                                    : typename Tile::Element(0);
  }
}
template <class T, class Tile, class Row>
TW_DEVICE void write_tile(const Tile& tile, int thread, int threads, int columns, const Row& row) {
  for (int i = thread; i < Tile::kRows * Tile::kColumns; i += threads) {
    const int r = i / Tile::kColumns, c = i % Tile::kColumns;
    T* const to = row(r);
    if (to != nullptr && c < columns) store_global(to + c, Rounded<T>::of(*tile.at(r, c)));
  }
}
template <class T, class Tile, class Row>
TW_DEVICE void add_tile(const Tile& tile, int thread, int threads, int columns, const Row& row) {
  for (int i = thread; i < Tile::kRows * Tile::kColumns; i += threads) {
    const int r = i / Tile::kColumns, c = i % Tile::kColumns;
    T* const to = row(r);
    if (to != nullptr && c < columns) atomic_add(to + c, *tile.at(r, c));
  }
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
TW_DEVICE typename Tile::Element* element(const Tile& tile, const int (&stride)[R], const Box<R>& box,
                                          const int (&index)[R]) {
  int row = 0;
  for (int d = 0; d + 1 < R; ++d) row += (index[d] - box.d[d].lo) * stride[d];
  return tile.at(row, index[R - 1] - box.d[R - 1].lo);
}
/// What two tiles of a sliding buffer share, from the old to the new.
template <int R, class Tile>
TW_DEVICE void keep_shared(const Tile& to, const Tile& from, const int (&stride)[R], const Box<R>& now,
                           const Box<R>& old, int thread, int threads) {
  Box<R> both = now;
  for (int d = 0; d < R; ++d)
    both.d[d] = {most(now.d[d].lo, old.d[d].lo), least(now.d[d].hi, old.d[d].hi)};
  each_point(both, thread, threads, [&](const int (&index)[R]) {
    *element<R>(to, stride, now, index) = *element<R>(from, stride, old, index);
  });
}
/// Part of a tile from its tensor.
template <int R, class Tile>
TW_DEVICE void load_part(const Tile& tile, const int (&stride)[R], const Box<R>& box, const Box<R>& part,
                         const typename Tile::Element* home, const i64 (&home_stride)[R], int thread,
                         int threads) {
  each_point(part, thread, threads, [&](const int (&index)[R]) {
    i64 at = 0;
    for (int d = 0; d < R; ++d) at += index[d] * home_stride[d];
    *element<R>(tile, stride, box, index) = load_global(home + at);
  });
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
  TW_MEMBER void copies_started() const { mbarrier_arrive_after_copies(barriers + stage); }
  TW_MEMBER void elements_stored() const { mbarrier_arrive(barriers + stage); }
  /// Computing side: gives back the tile so far and waits for the next.
  TW_MEMBER void take(const Box<R>& box, int lane) {
    if (full) {
      warp_sync();
      mbarrier_arrive(barriers + Stages + stage);
    }
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

// ---- sums in registers -------------------------------------------------------------------------
/// A warp's part of a tile of float sums, as mma.m16n8k16 leaves them: x[i][j][e] is row
/// 16 i + lane / 4 + 8 (e / 2), column 8 j + lane % 4 * 2 + e % 2 of its part.
template <int M, int N>
struct Sums { float x[M][N][4]; };
/// One value a row of that part, the same in the four lanes that share the row (and in all warps that
/// share it).
template <int M>
struct RowValues { float x[M][2]; };

/// Where a computing warp stands in the block.
struct Place {
  int row, column;  // of the grid of warps
  int lane;
  template <int M>
  TW_MEMBER int row_of(int i, int half) const { return (row * M + i) * 16 + lane / 4 + 8 * half; }
  TW_MEMBER int column_of(int first, int j, int odd) const {
    return (first + j) * 8 + lane % 4 * 2 + odd;
  }
};

template <int M, int N>
TW_DEVICE void fill(Sums<M, N>& s, float value) {
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int j = 0; j < N; ++j)
      TW_UNROLL
      for (int e = 0; e < 4; ++e) s.x[i][j][e] = value;
}
template <int M>
TW_DEVICE void fill(RowValues<M>& v, float value) {
  TW_UNROLL
  for (int i = 0; i < M; ++i) v.x[i][0] = v.x[i][1] = value;
}
/// f(i, j, e, row, column) for every element that this thread has; `first`: the part's first block of
/// eight columns.
template <int M, int N, class F>
TW_DEVICE void each(const Place& p, int first, const F& f) {
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int j = 0; j < N; ++j)
      TW_UNROLL
      for (int e = 0; e < 4; ++e)
        f(i, j, e, p.template row_of<M>(i, e / 2), p.column_of(first, j, e % 2));
}
/// f(i, half, row) for every row that this thread has a value of.
template <int M, class F>
TW_DEVICE void each_row(const Place& p, const F& f) {
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) f(i, h, p.template row_of<M>(i, h));
}
template <int M, int N>
TW_DEVICE void scale(Sums<M, N>& s, const RowValues<M>& by) {
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int j = 0; j < N; ++j)
      TW_UNROLL
      for (int e = 0; e < 4; ++e) s.x[i][j][e] *= by.x[i][e / 2];
}

TW_DEVICE u32 bits_of(float x) {
  union { float f; u32 u; } both{x};
  return both.u;
}
#if defined(__CUDACC_RTC__)
constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000u);  // it has no __builtin_huge_valf
#else
constexpr float kInfinity = __builtin_huge_valf();
#endif

struct AddOf { TW_MEMBER float operator()(float a, float b) const { return a + b; } };
struct ProductOf { TW_MEMBER float operator()(float a, float b) const { return a * b; } };
struct MaxOf { TW_MEMBER float operator()(float a, float b) const { return fmaxf(a, b); } };
struct MinOf { TW_MEMBER float operator()(float a, float b) const { return fminf(a, b); } };

/// Combines each row's values over the lanes and the warps that share the row. `scratch`: Warps *
/// M * 16 floats; all computing warps come together, `Threads` threads.
template <int WarpColumns, int Threads, int M, class Combine>
TW_DEVICE void combine_rows(RowValues<M>& v, const Place& p, float* scratch, const Combine& f) {
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      v.x[i][h] = f(v.x[i][h], shuffle_xor(v.x[i][h], 1));
      v.x[i][h] = f(v.x[i][h], shuffle_xor(v.x[i][h], 2));
    }
  if constexpr (WarpColumns > 1) {
    float* const mine = scratch + (p.row * WarpColumns + p.column) * M * 16;
    if (p.lane % 4 == 0) {
      TW_UNROLL
      for (int i = 0; i < M; ++i)
        TW_UNROLL
        for (int h = 0; h < 2; ++h) mine[i * 16 + p.lane / 4 + 8 * h] = v.x[i][h];
    }
    barrier(1, Threads);
    TW_UNROLL
    for (int i = 0; i < M; ++i)
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float* const at = scratch + p.row * WarpColumns * M * 16 + i * 16 + p.lane / 4 + 8 * h;
        float all = at[0];
        TW_UNROLL
        for (int w = 1; w < WarpColumns; ++w) all = f(all, at[w * M * 16]);
        v.x[i][h] = all;
      }
    barrier(1, Threads);
  }
}

/// Sums of which every warp of a row of warps has a part, over all columns: each warp gets the totals
/// of its own columns. `scratch`: Warps * WarpColumns * M * 128 floats.
template <int WarpColumns, int Threads, int M, int N>
TW_DEVICE void join(Sums<M, N / WarpColumns>& total, const Sums<M, N>& part, const Place& p,
                    float* scratch) {
  constexpr int kOwn = N / WarpColumns;
  constexpr int kBlock = M * 128;
  float* const row = scratch + p.row * WarpColumns * WarpColumns * kBlock;
  TW_UNROLL
  for (int j = 0; j < kOwn; ++j) {
    TW_UNROLL
    for (int w = 0; w < WarpColumns; ++w)
      TW_UNROLL
      for (int i = 0; i < M; ++i)
        TW_UNROLL
        for (int e = 0; e < 4; ++e)
          row[(p.column * WarpColumns + w) * kBlock + (i * 4 + e) * 32 + p.lane] =
              part.x[i][w * kOwn + j][e];
    barrier(1, Threads);
    TW_UNROLL
    for (int i = 0; i < M; ++i)
      TW_UNROLL
      for (int e = 0; e < 4; ++e) {
        float all = 0;
        TW_UNROLL
        for (int w = 0; w < WarpColumns; ++w)
          all += row[(w * WarpColumns + p.column) * kBlock + (i * 4 + e) * 32 + p.lane];
        total.x[i][j][e] = all;
      }
    barrier(1, Threads);
  }
}

TW_DEVICE u32 shuffle_bits(u32 x, int lane) {
  union { float f; u32 u; } in, out;
  in.u = x;
  out.f = shuffle(in.f, lane);
  return out.u;
}
/// Sums to a tensor and back; row(r) as for copy_async. Whole: rows begin at multiples of 8 bytes, and the
/// four lanes of a row move 32 bytes of it at a time (in 16-bit types two blocks of columns, exchanged
/// among them), so that no sector is asked for twice.
template <class T, bool Whole, int M, int N, class Row>
TW_DEVICE void write_sums(const Sums<M, N>& s, const Place& p, int first, int columns,
                          const Row& row) {
  const int t = p.lane % 4, four = p.lane - t;
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      T* const to = row(p.template row_of<M>(i, h));
      if constexpr (Whole && sizeof(T) == 2) {
        TW_UNROLL
        for (int j = 0; j < N; j += 2) {
          const u32 left = Packed<T>::of(s.x[i][j][2 * h], s.x[i][j][2 * h + 1]);
          const u32 right = Packed<T>::of(s.x[i][j + 1][2 * h], s.x[i][j + 1][2 * h + 1]);
          const int from = four + 2 * (t % 2);
          const u32 a = shuffle_bits(left, from), b = shuffle_bits(left, from + 1);
          const u32 c = shuffle_bits(right, from), d = shuffle_bits(right, from + 1);
          const b64 words = t < 2 ? b64{a, b} : b64{c, d};
          const int at = (first + j) * 8 + 4 * t;
          if (to == nullptr) continue;
          if (at + 3 < columns) {
            store_global(reinterpret_cast<b64*>(to + at), words);
            continue;
          }
          TW_UNROLL
          for (int e = 0; e < 4; ++e)
            if (at + e < columns) {
              T x;
              x.bits = u16((e < 2 ? words.x : words.y) >> (16 * (e % 2)));
              store_global(to + at + e, x);
            }
        }
      } else {
        if (to == nullptr) continue;
        TW_UNROLL
        for (int j = 0; j < N; ++j) {
          const int c = p.column_of(first, j, 0);
          const float x = s.x[i][j][2 * h], y = s.x[i][j][2 * h + 1];
          if constexpr (Whole) {
            if (c + 1 < columns) {
              store_global(reinterpret_cast<b64*>(to + c), b64{bits_of(x), bits_of(y)});
              continue;
            }
          }
          if (c < columns) store_global(to + c, Rounded<T>::of(x));
          if (c + 1 < columns) store_global(to + c + 1, Rounded<T>::of(y));
        }
      }
    }
}
template <class T, int M, int N, class Row>
TW_DEVICE void add_sums(const Sums<M, N>& s, const Place& p, int first, int columns, const Row& row) {
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      T* const to = row(p.template row_of<M>(i, h));
      if (to == nullptr) continue;
      TW_UNROLL
      for (int j = 0; j < N; ++j)
        TW_UNROLL
        for (int o = 0; o < 2; ++o)
          if (p.column_of(first, j, o) < columns)
            atomic_add(to + p.column_of(first, j, o), s.x[i][j][2 * h + o]);
    }
}
template <class T, bool Whole, int M, int N, class Row>
TW_DEVICE void read_sums(Sums<M, N>& s, const Place& p, int first, int columns, const Row& row) {
  warp_sync();  // other lanes wrote what this one reads, and will write it again
  const int t = p.lane % 4, four = p.lane - t;
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const T* const from = row(p.template row_of<M>(i, h));
      const auto value = [&](int c) {
        return from != nullptr && c < columns ? to_float(load_global(from + c)) : 0.0f;
      };
      if constexpr (Whole && sizeof(T) == 2) {
        TW_UNROLL
        for (int j = 0; j < N; j += 2) {
          const int at = (first + j) * 8 + 4 * t;
          b64 words{0, 0};
          if (from != nullptr && at + 3 < columns)
            words = load_global(reinterpret_cast<const b64*>(from + at));
          else
            words = {Packed<T>::of(value(at), value(at + 1)), Packed<T>::of(value(at + 2), value(at + 3))};
          TW_UNROLL
          for (int half = 0; half < 2; ++half) {
            const int owner = four + 2 * half + t / 2;
            const u32 a = shuffle_bits(words.x, owner), b = shuffle_bits(words.y, owner);
            const u32 pair = t % 2 == 0 ? a : b;
            s.x[i][j + half][2 * h] = to_float(T{u16(pair)});
            s.x[i][j + half][2 * h + 1] = to_float(T{u16(pair >> 16)});
          }
        }
      } else {
        TW_UNROLL
        for (int j = 0; j < N; ++j) {
          const int c = p.column_of(first, j, 0);
          if constexpr (Whole) {
            if (from != nullptr && c + 1 < columns) {
              const b64 words = load_global(reinterpret_cast<const b64*>(from + c));
              union { u32 u; float f; } x{words.x}, y{words.y};
              s.x[i][j][2 * h] = x.f;
              s.x[i][j][2 * h + 1] = y.f;
              continue;
            }
          }
          s.x[i][j][2 * h] = value(c);
          s.x[i][j][2 * h + 1] = value(c + 1);
        }
      }
    }
  warp_sync();
}
/// One value a row, to a tensor and back: by the lanes with lane % 4 == 0 of the first column of warps.
template <class T, int M, class Element>
TW_DEVICE void write_rows(const RowValues<M>& v, const Place& p, const Element& element) {
  if (p.column != 0 || p.lane % 4 != 0) return;
  each_row<M>(p, [&](int i, int h, int row) {
    T* const to = element(row);
    if (to != nullptr) store_global(to, Rounded<T>::of(v.x[i][h]));
  });
}
/// Each element once, by whom write_rows has write it; the others get it through `scratch`, which holds a
/// float for every row of the tile.
template <class T, int Threads, int M, class Element>
TW_DEVICE void read_rows(RowValues<M>& v, const Place& p, float* scratch, const Element& element) {
  barrier(1, Threads);
  if (p.column == 0 && p.lane % 4 == 0)
    each_row<M>(p, [&](int, int, int row) {
      const T* const from = element(row);
      scratch[row] = from != nullptr ? to_float(load_global(from)) : 0.0f;
    });
  barrier(1, Threads);
  each_row<M>(p, [&](int i, int h, int row) { v.x[i][h] = scratch[row]; });
}
template <class T, int M, class Element>
TW_DEVICE void add_rows(const RowValues<M>& v, const Place& p, const Element& element) {
  if (p.column != 0 || p.lane % 4 != 0) return;
  each_row<M>(p, [&](int i, int h, int row) {
    T* const to = element(row);
    if (to != nullptr) atomic_add(to, v.x[i][h]);
  });
}
template <int M, int N, class Tile>
TW_DEVICE void sums_to_tile(const Sums<M, N>& s, const Place& p, int first, const Tile& tile,
                            int row, int column) {
  each<M, N>(p, first, [&](int i, int j, int e, int r, int c) {
    *tile.at(row + r, column + c) = s.x[i][j][e];
  });
}
template <int M, int N, class Tile>
TW_DEVICE void sums_from_tile(Sums<M, N>& s, const Place& p, int first, const Tile& tile, int row,
                              int column) {
  each<M, N>(p, first, [&](int i, int j, int e, int r, int c) {
    s.x[i][j][e] = *tile.at(row + r, column + c);
  });
}

// ---- operands of a product ---------------------------------------------------------------------
/// A box of a tile whose rows run along the product's rows (a left operand, [m][k]) or columns (a
/// right one, [n][k]) and whose columns run along its depth.
template <class Tile_>
struct AlongDepth {
  using Tile = Tile_;
  Tile tile;
  int row, column;  // where the box begins
  TW_MEMBER auto value(int outer, int k) const { return to_float(*tile.at(row + outer, column + k)); }
  /// Element [outer][k] .. [outer][k + 1] as one register.
  template <class T>
  TW_MEMBER u32 pair(int outer, int k) const { return Packed<T>::of(value(outer, k), value(outer, k + 1)); }
  template <class T>
  TW_MEMBER void left(u32 (&a)[4], int m, int k, int lane) const {
    if constexpr (sizeof(typename Tile::Element) == 2) {
      ldmatrix4(a, tile.at(row + m + lane % 16, column + k + lane / 16 * 8));
    } else {
      const int g = lane / 4, t = lane % 4 * 2;
      a[0] = pair<T>(m + g, k + t), a[1] = pair<T>(m + g + 8, k + t);
      a[2] = pair<T>(m + g, k + t + 8), a[3] = pair<T>(m + g + 8, k + t + 8);
    }
  }
  template <class T>
  TW_MEMBER void right(u32 (&b)[4], int n, int k, int lane) const {
    if constexpr (sizeof(typename Tile::Element) == 2) {
      ldmatrix4(b, tile.at(row + n + lane % 8 + lane / 16 * 8, column + k + lane / 8 % 2 * 8));
    } else {
      const int g = lane / 4, t = lane % 4 * 2;
      b[0] = pair<T>(n + g, k + t), b[1] = pair<T>(n + g, k + t + 8);
      b[2] = pair<T>(n + g + 8, k + t), b[3] = pair<T>(n + g + 8, k + t + 8);
    }
  }
};
/// The other way round: [k][m] or [k][n].
template <class Tile_>
struct AcrossDepth {
  using Tile = Tile_;
  Tile tile;
  int row, column;
  TW_MEMBER auto value(int outer, int k) const { return to_float(*tile.at(row + k, column + outer)); }
  template <class T>
  TW_MEMBER u32 pair(int outer, int k) const { return Packed<T>::of(value(outer, k), value(outer, k + 1)); }
  template <class T>
  TW_MEMBER void left(u32 (&a)[4], int m, int k, int lane) const {
    if constexpr (sizeof(typename Tile::Element) == 2) {
      ldmatrix4_transposed(
          a, tile.at(row + k + lane % 8 + lane / 16 * 8, column + m + lane / 8 % 2 * 8));
    } else {
      const int g = lane / 4, t = lane % 4 * 2;
      a[0] = pair<T>(m + g, k + t), a[1] = pair<T>(m + g + 8, k + t);
      a[2] = pair<T>(m + g, k + t + 8), a[3] = pair<T>(m + g + 8, k + t + 8);
    }
  }
  template <class T>
  TW_MEMBER void right(u32 (&b)[4], int n, int k, int lane) const {
    if constexpr (sizeof(typename Tile::Element) == 2) {
      ldmatrix4_transposed(b, tile.at(row + k + lane % 16, column + n + lane / 16 * 8));
    } else {
      const int g = lane / 4, t = lane % 4 * 2;
      b[0] = pair<T>(n + g, k + t), b[1] = pair<T>(n + g, k + t + 8);
      b[2] = pair<T>(n + g + 8, k + t), b[3] = pair<T>(n + g + 8, k + t + 8);
    }
  }
};

// ---- micro-kernels: c += a * b on a warp's part of a tile ------------------------------------------
/// Tensor cores by mma.m16n8k16, operands by ldmatrix. T: f16 or bf16; Depth a multiple of 16.
template <class T>
struct Mma {
  /// Both operands in shared memory.
  template <int Depth, int M, int N, class Left, class Right>
  TW_MEMBER static void multiply(Sums<M, N>& c, const Left& a, const Right& b, const Place& p,
                                 int first) {
    TW_UNROLL
    for (int k = 0; k < Depth; k += 16) {
      u32 x[M][4];
      TW_UNROLL
      for (int i = 0; i < M; ++i) a.template left<T>(x[i], (p.row * M + i) * 16, k, p.lane);
      TW_UNROLL
      for (int j = 0; j < N; j += 2) step(c, x, b, j, (first + j) * 8, k, p.lane);
    }
  }
  /// The left operand is sums: columns 8 * first_depth .. of the tile that they are a part of.
  template <int M, int N, int K, class Right>
  TW_MEMBER static void multiply_sums(Sums<M, N>& c, const Sums<M, K>& a, const Right& b,
                                      const Place& p, int first, int first_depth) {
    TW_UNROLL
    for (int k = 0; k < K; k += 2) {
      u32 x[M][4];
      TW_UNROLL
      for (int i = 0; i < M; ++i) {
        x[i][0] = Packed<T>::of(a.x[i][k][0], a.x[i][k][1]);
        x[i][1] = Packed<T>::of(a.x[i][k][2], a.x[i][k][3]);
        x[i][2] = Packed<T>::of(a.x[i][k + 1][0], a.x[i][k + 1][1]);
        x[i][3] = Packed<T>::of(a.x[i][k + 1][2], a.x[i][k + 1][3]);
      }
      TW_UNROLL
      for (int j = 0; j < N; j += 2)
        step(c, x, b, j, (first + j) * 8, (first_depth + k) * 8, p.lane);
    }
  }

 private:
  template <int M, int N, class Right>
  TW_MEMBER static void step(Sums<M, N>& c, const u32 (&x)[M][4], const Right& b, int j, int n,
                             int k, int lane) {
    u32 y[4];
    b.template right<T>(y, n, k, lane);
    TW_UNROLL
    for (int i = 0; i < M; ++i) {
      mma_16x8x16<T>(c.x[i][j], x[i], y[0], y[1]);
      mma_16x8x16<T>(c.x[i][j + 1], x[i], y[2], y[3]);
    }
  }
};

/// Fused multiply-adds in the same layout of sums; any type, sums in float.
struct Simt {
  template <int M, int N, class Left, class Right>
  TW_MEMBER static void multiply(Sums<M, N>& c, const Left& a, const Right& b, const Place& p,
                                 int first, int depth) {
    TW_UNROLL_BY(4)
    for (int k = 0; k < depth; ++k) {
      float x[M][2];
      TW_UNROLL
      for (int i = 0; i < M; ++i)
        TW_UNROLL
        for (int h = 0; h < 2; ++h) x[i][h] = a.value(p.template row_of<M>(i, h), k);
      step(c, x, b, p, first, k);
    }
  }
  template <int M, int N, int K, class Right>
  TW_MEMBER static void multiply_sums(Sums<M, N>& c, const Sums<M, K>& a, const Right& b,
                                      const Place& p, int first, int first_depth) {
    TW_UNROLL
    for (int q = 0; q < K; ++q)
      TW_UNROLL
      for (int k = 0; k < 8; ++k) {
        float x[M][2];
        TW_UNROLL
        for (int i = 0; i < M; ++i)
          TW_UNROLL
          for (int h = 0; h < 2; ++h)
            x[i][h] = shuffle(a.x[i][q][2 * h + k % 2], p.lane / 4 * 4 + k / 2);
        step(c, x, b, p, first, (first_depth + q) * 8 + k);
      }
  }

 private:
  template <int M, int N, class Right>
  TW_MEMBER static void step(Sums<M, N>& c, const float (&x)[M][2], const Right& b, const Place& p,
                             int first, int k) {
    TW_UNROLL
    for (int j = 0; j < N; ++j) {
      const float y0 = b.value(p.column_of(first, j, 0), k);
      const float y1 = b.value(p.column_of(first, j, 1), k);
      TW_UNROLL
      for (int i = 0; i < M; ++i) {
        c.x[i][j][0] += x[i][0] * y0, c.x[i][j][1] += x[i][0] * y1;
        c.x[i][j][2] += x[i][1] * y0, c.x[i][j][3] += x[i][1] * y1;
      }
    }
  }
};

/// Chimera's micro-kernel for tensor cores (section V-B): 2 x 2 fragments of 16 x 16 stay loaded while
/// the depth runs. The fragments' layout is the hardware's own, so sums come from shared memory and go
/// back there. Warps take the 32 x 32 blocks of the tile in turn; Rows, Columns, Depth multiples of 16.
struct Wmma2x2 {
  template <int Rows, int Columns, int Depth, bool LeftAcross, bool RightAlong, class Sum, class Left,
            class Right>
  TW_MEMBER static void multiply(const Sum& c, int row, int column, const Left& a, const Right& b,
                                 int warp, int warps) {
    constexpr int kAcross = (Columns + 31) / 32, kBlocks = (Rows + 31) / 32 * kAcross;
    for (int block = warp; block < kBlocks; block += warps) {
      const int m = block / kAcross * 32, n = block % kAcross * 32;
      WmmaSums s[2][2];
      TW_UNROLL
      for (int i = 0; i < 2; ++i)
        TW_UNROLL
        for (int j = 0; j < 2; ++j)
          if (m + 16 * i < Rows && n + 16 * j < Columns)
            wmma_load_sums(s[i][j], c.at(row + m + 16 * i, column + n + 16 * j), Sum::kPitch);
      for (int k = 0; k < Depth; k += 16) {
        WmmaOperand x[2], y[2];
        TW_UNROLL
        for (int i = 0; i < 2; ++i) {
          if (m + 16 * i < Rows) {
            if constexpr (LeftAcross)
              wmma_load_a_transposed(x[i], a.tile.at(a.row + k, a.column + m + 16 * i), Left::Tile::kPitch);
            else
              wmma_load_a(x[i], a.tile.at(a.row + m + 16 * i, a.column + k), Left::Tile::kPitch);
          }
          if (n + 16 * i < Columns) {
            if constexpr (RightAlong)
              wmma_load_b_transposed(y[i], b.tile.at(b.row + n + 16 * i, b.column + k), Right::Tile::kPitch);
            else
              wmma_load_b(y[i], b.tile.at(b.row + k, b.column + n + 16 * i), Right::Tile::kPitch);
          }
        }
        TW_UNROLL
        for (int i = 0; i < 2; ++i)
          TW_UNROLL
          for (int j = 0; j < 2; ++j)
            if (m + 16 * i < Rows && n + 16 * j < Columns)
              wmma_multiply<LeftAcross, RightAlong>(s[i][j], x[i], y[j]);
      }
      TW_UNROLL
      for (int i = 0; i < 2; ++i)
        TW_UNROLL
        for (int j = 0; j < 2; ++j)
          if (m + 16 * i < Rows && n + 16 * j < Columns)
            wmma_store_sums(c.at(row + m + 16 * i, column + n + 16 * j), s[i][j], Sum::kPitch);
    }
  }
};
/// A tile of floats rounded to another tile's type: what a matrix instruction takes.
template <class From, class To>
TW_DEVICE void round_tile(const From& from, const To& to, int thread, int threads) {
  for (int i = thread; i < To::kRows * To::kColumns; i += threads) {
    const int r = i / To::kColumns, c = i % To::kColumns;
    *to.at(r, c) = Rounded<typename To::Element>::of(*from.at(r, c));
  }
}

// ---- functions of expressions ------------------------------------------------------------------
template <class R> TW_DEVICE R f_add(R a, R b) { return a + b; }
template <class R> TW_DEVICE R f_sub(R a, R b) { return a - b; }
template <class R> TW_DEVICE R f_mul(R a, R b) { return a * b; }
template <class R> TW_DEVICE R f_div(R a, R b) { return a / b; }
TW_DEVICE float f_max(float a, float b) { return fmaxf(a, b); }
TW_DEVICE double f_max(double a, double b) { return fmax(a, b); }
TW_DEVICE float f_min(float a, float b) { return fminf(a, b); }
TW_DEVICE double f_min(double a, double b) { return fmin(a, b); }
TW_DEVICE float f_pow(float a, float b) { return powf(a, b); }
TW_DEVICE double f_pow(double a, double b) { return pow(a, b); }
template <class R> TW_DEVICE R f_lt(R a, R b) { return a < b ? R(1) : R(0); }
template <class R> TW_DEVICE R f_select(R a, R b, R c) { return a != R(0) ? b : c; }
template <class R> TW_DEVICE R f_neg(R a) { return -a; }
#if defined(__CUDACC__)
/// ex2.approx of a * log2(e): within 2 + 1.16 |a| units in the last place (CUDA C++ Programming Guide).
TW_DEVICE float f_exp(float a) { return __expf(a); }
#else
TW_DEVICE float f_exp(float a) { return expf(a); }
#endif
TW_DEVICE double f_exp(double a) { return exp(a); }
TW_DEVICE float f_log(float a) { return logf(a); }
TW_DEVICE double f_log(double a) { return log(a); }
TW_DEVICE float f_sqrt(float a) { return sqrtf(a); }
TW_DEVICE double f_sqrt(double a) { return sqrt(a); }
template <class R> TW_DEVICE R f_rsqrt(R a) { return R(1) / f_sqrt(a); }
template <class R> TW_DEVICE R f_recip(R a) { return R(1) / a; }
template <class R> TW_DEVICE R f_relu(R a) { return a > R(0) ? a : R(0); }
TW_DEVICE float f_tanh(float a) { return tanhf(a); }
TW_DEVICE double f_tanh(double a) { return tanh(a); }
template <class R> TW_DEVICE R f_sigmoid(R a) { return R(1) / (R(1) + f_exp(-a)); }
TW_DEVICE float f_erf(float a) { return erff(a); }
TW_DEVICE double f_erf(double a) { return erf(a); }
template <class R> TW_DEVICE R f_gelu(R a) {
  return R(0.5) * a * (R(1) + f_erf(a * R(0.70710678118654752440)));
}
template <class R> TW_DEVICE R f_abs(R a) { return a < R(0) ? -a : a; }
template <class R> TW_DEVICE R f_square(R a) { return a * a; }

}  // namespace tw
