// What emitted kernels are made of, second part: sums in registers, and their ways to tensors and to tiles.
//
// Of a block's warps the first ones compute and the others copy. Computing warps form a grid, `rows` x
// `columns` of them; a warp has whole 16-row blocks of a tile.
#pragma once

#include "tilewright_tiles.h"

namespace tw {

/// A warp's part of a tile of float sums, as mma.m16n8k16 leaves them: x[i][j][e] is row
/// 16 i + lane / 4 + 8 (e / 2), column 8 j + lane % 4 * 2 + e % 2 of its part. In fours (PlaceOf<true>) two
/// blocks of eight columns are shared out together: column 8 (j - j % 2) + lane % 4 * 4 + j % 2 * 2 + e % 2. N, and the
/// first block of a part, are even; and lanes are numbered anew (PlaceOf::place).
template <int M, int N>
struct Sums { float x[M][N][4]; };
/// One value a row of that part, the same in the four lanes that share the row (and in all warps that
/// share it).
template <int M>
struct RowValues { float x[M][2]; };

/// Where a computing warp stands in the block, and whether its threads have columns in fours.
template <bool Fours>
struct PlaceOf {
  int row, column;  // of the grid of warps
  int lane;
  /// The number of a lane, and of whom such a number is. In fours bits 1 and 2 change places: neighbours in bit 0 read
  /// the same of a left operand and neighbours in bit 1 of a right one, and reads of 16 bytes by which pairs of lanes
  /// read the same take half as long.
  static TW_MEMBER int numbered(int x) { return Fours ? (x & 25) | (x & 2) << 1 | (x & 4) >> 1 : x; }
  TW_MEMBER int place() const { return numbered(lane); }
  static constexpr int kNext = 1, kSecond = Fours ? 4 : 2;  // lanes that share a row, by the bits that tell them apart
  template <int M>
  TW_MEMBER int row_of(int i, int half) const { return (row * M + i) * 16 + place() / 4 + 8 * half; }
  TW_MEMBER int column_of(int first, int j, int odd) const {
    if constexpr (Fours) return (first + j - j % 2) * 8 + place() % 4 * 4 + j % 2 * 2 + odd;
    return (first + j) * 8 + place() % 4 * 2 + odd;
  }
  TW_MEMBER PlaceOf made_here() const { return {row, column, tw::made_here(lane)}; }
};
using Place = PlaceOf<false>;
using PlaceOfFours = PlaceOf<true>;

template <int M, int N>
TW_DEVICE void fill(Sums<M, N>& s, float value) {
  value = made_here(value);  // where only some turns begin afresh, the others branch past it
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
template <int M, int N, class F, bool Fours>
TW_DEVICE void each(const PlaceOf<Fours>& where, int first, const F& f) {
  const auto p = where.made_here();
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int j = 0; j < N; ++j)
      TW_UNROLL
      for (int e = 0; e < 4; ++e)
        f(i, j, e, p.template row_of<M>(i, e / 2), p.column_of(first, j, e % 2));
}
/// f(i, half, row) for every row that this thread has a value of.
template <int M, class F, bool Fours>
TW_DEVICE void each_row(const PlaceOf<Fours>& where, const F& f) {
  const auto p = where.made_here();
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) f(i, h, p.template row_of<M>(i, h));
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

struct Sum { template <class R> TW_MEMBER R operator()(R a, R b) const { return a + b; } };
struct Product { template <class R> TW_MEMBER R operator()(R a, R b) const { return a * b; } };
struct Larger { template <class R> TW_MEMBER R operator()(R a, R b) const { return f_max(a, b); } };
struct Smaller { template <class R> TW_MEMBER R operator()(R a, R b) const { return f_min(a, b); } };

/// Combines each row's values over the lanes and the warps that share the row. `scratch`: Warps *
/// M * 16 floats; all computing warps come together, `Threads` threads.
template <int WarpColumns, int Threads, int M, class Combine, bool Fours>
TW_DEVICE void combine_rows(RowValues<M>& v, const PlaceOf<Fours>& p, float* scratch, const Combine& f) {
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      v.x[i][h] = f(v.x[i][h], shuffle_xor(v.x[i][h], p.kNext));
      v.x[i][h] = f(v.x[i][h], shuffle_xor(v.x[i][h], p.kSecond));
    }
  if constexpr (WarpColumns > 1) {
    float* const mine = scratch + (p.row * WarpColumns + p.column) * M * 16;
    if (p.place() % 4 == 0) {
      TW_UNROLL
      for (int i = 0; i < M; ++i)
        TW_UNROLL
        for (int h = 0; h < 2; ++h) mine[i * 16 + p.place() / 4 + 8 * h] = v.x[i][h];
    }
    barrier(1, Threads);
    TW_UNROLL
    for (int i = 0; i < M; ++i)
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float* const at = scratch + p.row * WarpColumns * M * 16 + i * 16 + p.place() / 4 + 8 * h;
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
template <int WarpColumns, int Threads, int M, int N, bool Fours>
TW_DEVICE void join(Sums<M, N / WarpColumns>& total, const Sums<M, N>& part, const PlaceOf<Fours>& p,
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
template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
/// Floats in fours, to rows that begin anywhere: four(at, x) takes four neighbours that begin at a multiple of 16 bytes,
/// which are a thread's own or its last and the next thread's first; one(at, x) what is left of a row at both ends.
template <int M, int N, class Row, class Four, class One>
TW_DEVICE void each_aligned_four(const Sums<M, N>& s, const PlaceOfFours& p, int first, int columns, const Row& row,
                                 const Four& four, const One& one) {
  const int t = p.place() % 4, next = p.numbered(p.place() - t + (t + 1) % 4);
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      float* const to = row(p.template row_of<M>(i, h));
      const int by = int(u32(0) - u32(reinterpret_cast<u64>(to) / 4)) & 3;  // elements of its first four that are before
      float x[7];
      TW_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = s.x[i][e / 2][2 * h + e % 2];
      if (to != nullptr && t == 0)
        TW_UNROLL
        for (int e = 0; e < 3; ++e)
          if (e < by && first * 8 + e < columns) one(to + first * 8 + e, x[e]);
      TW_UNROLL
      for (int j = 0; j < N; j += 2) {
        const bool last = j + 2 == N;
        float after[4], moved[5];
        TW_UNROLL
        for (int e = 0; e < 4; ++e) after[e] = s.x[i][(last ? j : j + 2) + e / 2][2 * h + e % 2];
        TW_UNROLL
        for (int e = 0; e < 3; ++e) x[4 + e] = shuffle(t == 0 ? after[e] : x[e], next);
        TW_UNROLL
        for (int e = 0; e < 5; ++e) moved[e] = (by & 2) != 0 ? x[e + 2] : x[e];
        TW_UNROLL
        for (int e = 0; e < 4; ++e) moved[e] = (by & 1) != 0 ? moved[e + 1] : moved[e];
        const int c = p.column_of(first, j, 0) + by, mine = last && t == 3 ? 4 - by : 4;
        if (to != nullptr) {
          if (mine == 4 && c + 3 < columns) {
            four(to + c, moved);
          } else {
            TW_UNROLL
            for (int e = 0; e < 4; ++e)
              if (e < mine && c + e < columns) one(to + c + e, moved[e]);
          }
        }
        TW_UNROLL
        for (int e = 0; e < 4; ++e) x[e] = after[e];
      }
    }
}
/// The same sums in fours: of each 16 columns a lane gets four neighbours from two lanes.
template <int M, int N>
TW_DEVICE void into_fours(Sums<M, N>& s, int lane) {
  const int place = PlaceOfFours::numbered(lane), from = place / 4 * 4 + place % 2 * 2;
  const bool second = place % 4 >= 2;
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int j = 0; j < N; j += 2)
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        float four[4];
        TW_UNROLL
        for (int e = 0; e < 4; ++e) {
          const float one = shuffle(s.x[i][j][2 * h + e % 2], from + e / 2);
          const float other = shuffle(s.x[i][j + 1][2 * h + e % 2], from + e / 2);
          four[e] = second ? other : one;
        }
        TW_UNROLL
        for (int e = 0; e < 4; ++e) s.x[i][j + e / 2][2 * h + e % 2] = four[e];
      }
}
/// Sums to a tensor and back; row(r) as for copy_async. Whole: rows begin at multiples of 8 bytes (in fours of four
/// elements), and the four lanes of a row move 32 bytes of it at a time (in 16-bit types two blocks of columns, exchanged
/// among them; floats in fours 64), so that no sector is asked for twice. Else elements of 16 bits go in pairs, and
/// floats in fours are moved to where fours may begin.
template <class T, bool Whole, int M, int N, class Row, bool Fours>
TW_DEVICE void write_sums(const Sums<M, N>& s, const PlaceOf<Fours>& p, int first, int columns,
                          const Row& row) {
  if constexpr (!Whole && Fours && kIsFloat<T>)
    return each_aligned_four(
        s, p, first, columns, row,
        [](float* to, const float* x) {
          store_global(reinterpret_cast<b128*>(to), b128{bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])});
        },
        [](float* to, float x) { store_global(to, x); });
  if constexpr (!Whole && !Fours && kIsFloat<T> && N % 2 == 0) {
    Sums<M, N> fours = s;
    into_fours(fours, p.lane);
    return write_sums<T, Whole>(fours, PlaceOfFours{p.row, p.column, p.lane}, first, columns, row);
  }
  const int t = p.place() % 4, four = p.lane - t;
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
          b64 words{left, right};
          if constexpr (!Fours) {
            const int from = four + 2 * (t % 2);
            const u32 a = shuffle_bits(left, from), b = shuffle_bits(left, from + 1);
            const u32 c = shuffle_bits(right, from), d = shuffle_bits(right, from + 1);
            words = t < 2 ? b64{a, b} : b64{c, d};
          }
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
      } else if constexpr (!Fours && sizeof(T) == 2) {
        // Pairs that begin at multiples of 4 bytes: a thread's own, or its second element and the next thread's first.
        const bool odd = (reinterpret_cast<u64>(to) + u64(first * 16)) % 4 != 0;
        const auto put = [&](int c, u32 pair, bool low, bool high) {
          if (to == nullptr) return;
          if (low && high && c + 1 < columns) return store_global(reinterpret_cast<u32*>(to + c), pair);
          T x;
          x.bits = u16(pair);
          if (low && c < columns) store_global(to + c, x);
          x.bits = u16(pair >> 16);
          if (high && c + 1 < columns) store_global(to + c + 1, x);
        };
        u32 own = Packed<T>::of(s.x[i][0][2 * h], s.x[i][0][2 * h + 1]);
        if (odd && t == 0) put(first * 8, own, true, false);
        TW_UNROLL
        for (int j = 0; j < N; ++j) {
          const int c = p.column_of(first, j, 0), k = j + 1 < N ? j + 1 : j;
          const u32 after = Packed<T>::of(s.x[i][k][2 * h], s.x[i][k][2 * h + 1]);
          const u32 next = shuffle_bits(t == 0 ? after : own, four + (t + 1) % 4);
          if (odd) put(c + 1, own >> 16 | next << 16, true, j + 1 < N || t < 3);
          else put(c, own, true, true);
          own = after;
        }
      } else {
        if (to == nullptr) continue;
        TW_UNROLL
        for (int j = 0; j < N; ++j) {
          const int c = p.column_of(first, j, 0);
          if constexpr (Whole && Fours) {
            if (p.column_of(first, j - j % 2, 0) + 3 < columns) {
              if (j % 2 == 0) {
                // What leaves is chosen, though it is always the same: else ptxas has four sums in four registers in a row,
                // as the right operand's four are, and each addition reads two of one bank.
                const bool never = reinterpret_cast<u64>(to) % 16 != 0;
                const float x[4] = {s.x[i][j][2 * h], s.x[i][j][2 * h + 1], s.x[i][j + 1][2 * h], s.x[i][j + 1][2 * h + 1]};
                const auto bits = [&](int e) { return bits_of(never ? x[(e + 1) % 4] : x[e]); };
                store_global(reinterpret_cast<b128*>(to + c), b128{bits(0), bits(1), bits(2), bits(3)});
              }
              continue;
            }
          }
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
/// Whole: rows begin at multiples of 16 bytes.
template <class T, int How = kSum, bool Whole = false, int M, int N, class Row, bool Fours>
TW_DEVICE void add_sums(const Sums<M, N>& s, const PlaceOf<Fours>& p, int first, int columns, const Row& row) {
  if constexpr (!Fours && kIsFloat<T> && How == kSum && N % 2 == 0) {
    Sums<M, N> fours = s;
    into_fours(fours, p.lane);
    return add_sums<T, How>(fours, PlaceOfFours{p.row, p.column, p.lane}, first, columns, row);
  }
  if constexpr (!Whole && Fours && kIsFloat<T> && How == kSum)
    return each_aligned_four(
        s, p, first, columns, row,
        [](float* to, const float* x) { atomic_add_four(to, x[0], x[1], x[2], x[3]); },
        [](float* to, float x) { atomic_add(to, x); });
  TW_UNROLL
  for (int i = 0; i < M; ++i)
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      T* const to = row(p.template row_of<M>(i, h));
      if (to == nullptr) continue;
      bool added = false;  // four neighbours, of two blocks of columns
      TW_UNROLL
      for (int j = 0; j < N; ++j) {
        if constexpr (Whole && Fours) {
          const int c = p.column_of(first, j, 0);
          if (j % 2 == 0)
            added = c + 3 < columns;
          if (added && j % 2 == 0)
            atomic_add_four(to + c, s.x[i][j][2 * h], s.x[i][j][2 * h + 1], s.x[i][j + 1][2 * h], s.x[i][j + 1][2 * h + 1]);
          if (added) continue;
        }
        if constexpr (sizeof(T) == 2 && How == kSum) {
          T* const two = to + p.column_of(first, j, 0);
          if (p.column_of(first, j, 1) < columns && reinterpret_cast<u64>(two) % 4 == 0) {
            atomic_add_two(two, s.x[i][j][2 * h], s.x[i][j][2 * h + 1]);
            continue;
          }
        }
        TW_UNROLL
        for (int o = 0; o < 2; ++o)
          if (p.column_of(first, j, o) < columns)
            combine_at_home<How>(to + p.column_of(first, j, o), s.x[i][j][2 * h + o]);
      }
    }
}
template <class T, int Whole, int M, int N, class Row, bool Fours>
TW_DEVICE void read_sums(Sums<M, N>& s, const PlaceOf<Fours>& p, int first, int columns, const Row& row) {
  warp_sync();  // other lanes wrote what this one reads, and will write it again
  const int t = p.place() % 4, four = p.lane - t;
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
          if constexpr (Fours) {
            s.x[i][j][2 * h] = to_float(T{u16(words.x)});
            s.x[i][j][2 * h + 1] = to_float(T{u16(words.x >> 16)});
            s.x[i][j + 1][2 * h] = to_float(T{u16(words.y)});
            s.x[i][j + 1][2 * h + 1] = to_float(T{u16(words.y >> 16)});
            continue;
          }
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
template <class T, int M, class Element, bool Fours>
TW_DEVICE void write_rows(const RowValues<M>& v, const PlaceOf<Fours>& p, const Element& element) {
  if (p.column != 0 || p.place() % 4 != 0) return;
  each_row<M>(p, [&](int i, int h, int row) {
    T* const to = element(row);
    if (to != nullptr) store_global(to, Rounded<T>::of(v.x[i][h]));
  });
}
/// Each element once, by whom write_rows has write it; the others get it through `scratch`, which holds a
/// float for every row of the tile.
template <class T, int Threads, int M, class Element, bool Fours>
TW_DEVICE void read_rows(RowValues<M>& v, const PlaceOf<Fours>& p, float* scratch, const Element& element) {
  barrier(1, Threads);
  if (p.column == 0 && p.place() % 4 == 0)
    each_row<M>(p, [&](int, int, int row) {
      const T* const from = element(row);
      scratch[row] = from != nullptr ? to_float(load_global(from)) : 0.0f;
    });
  barrier(1, Threads);
  each_row<M>(p, [&](int i, int h, int row) { v.x[i][h] = scratch[row]; });
}
template <class T, int How = kSum, int M, class Element, bool Fours>
TW_DEVICE void add_rows(const RowValues<M>& v, const PlaceOf<Fours>& p, const Element& element) {
  if (p.column != 0 || p.place() % 4 != 0) return;
  each_row<M>(p, [&](int i, int h, int row) {
    T* const to = element(row);
    if (to != nullptr) combine_at_home<How>(to, v.x[i][h]);
  });
}
template <int M, int N, class Tile, bool Fours>
TW_DEVICE void sums_to_tile(const Sums<M, N>& s, const PlaceOf<Fours>& p, int first, const Tile& tile,
                            int row, int column) {
  each<M, N>(p, first, [&](int i, int j, int e, int r, int c) {
    put(tile.at(row + r, column + c), s.x[i][j][e]);
  });
}
template <int M, int N, class Tile, bool Fours>
TW_DEVICE void sums_from_tile(Sums<M, N>& s, const PlaceOf<Fours>& p, int first, const Tile& tile, int row,
                              int column) {
  each<M, N>(p, first, [&](int i, int j, int e, int r, int c) {
    s.x[i][j][e] = to_float(*tile.at(row + r, column + c));
  });
}

}  // namespace tw
