// What emitted kernels are made of, third part: operands of matrix products, the micro-kernels, and the
// functions of expressions.
#pragma once

#include "tilewright_sums.h"

namespace tw {

// ---- operands of a product ---------------------------------------------------------------------
/// Fragments of 16-bit pairs made of a tile of floats, element by element: what ldmatrix would bring.
template <class T, class Operand>
TW_DEVICE u32 pair(const Operand& o, int outer, int k) {
  return Packed<T>::of(o.value(outer, k), o.value(outer, k + 1));
}
template <class T, class Operand>
TW_DEVICE void left_pairs(const Operand& o, u32 (&a)[4], int m, int k, int lane) {
  const int g = lane / 4, t = lane % 4 * 2;
  a[0] = pair<T>(o, m + g, k + t), a[1] = pair<T>(o, m + g + 8, k + t);
  a[2] = pair<T>(o, m + g, k + t + 8), a[3] = pair<T>(o, m + g + 8, k + t + 8);
}
template <class T, class Operand>
TW_DEVICE void right_pairs(const Operand& o, u32 (&b)[4], int n, int k, int lane) {
  const int g = lane / 4, t = lane % 4 * 2;
  b[0] = pair<T>(o, n + g, k + t), b[1] = pair<T>(o, n + g, k + t + 8);
  b[2] = pair<T>(o, n + g + 8, k + t), b[3] = pair<T>(o, n + g + 8, k + t + 8);
}
/// A box of a tile whose rows run along the product's rows (a left operand, [m][k]) or columns (a
/// right one, [n][k]) and whose columns run along its depth.
template <class Tile_>
struct AlongDepth {
  using Tile = Tile_;
  static constexpr bool kAlong = true;
  Tile tile;
  int row, column;  // where the box begins
  TW_MEMBER auto value(int outer, int k) const { return to_float(*tile.at(row + outer, column + k)); }
  /// x[n][e]: row or column outer + Apart n of the product at k + e. `whole`: k + column is a multiple of 4.
  /// Apart: a multiple of 8, as rows are whose chunks are in the same order.
  template <int Apart, int N>
  TW_MEMBER void fours(float (&x)[N][4], int outer, int k, bool whole) const {
    if (whole) {
      const typename Tile::Element* const from = tile.at(row + outer, column + k);
      TW_UNROLL
      for (int n = 0; n < N; ++n) read_strip(x[n], from + Apart * n * Tile::kPitch);
    } else {
      TW_UNROLL
      for (int n = 0; n < N; ++n)
        TW_UNROLL
        for (int e = 0; e < 4; ++e) x[n][e] = value(outer + Apart * n, k + e);
    }
  }
  template <class T>
  TW_MEMBER void left(u32 (&a)[4], int m, int k, int lane) const {
    if constexpr (sizeof(typename Tile::Element) == 2) {
      ldmatrix4(a, tile.at(row + m + lane % 16, column + k + lane / 16 * 8));
    } else {
      left_pairs<T>(*this, a, m, k, lane);
    }
  }
  template <class T>
  TW_MEMBER void right(u32 (&b)[4], int n, int k, int lane) const {
    if constexpr (sizeof(typename Tile::Element) == 2) {
      ldmatrix4(b, tile.at(row + n + lane % 8 + lane / 16 * 8, column + k + lane / 8 % 2 * 8));
    } else {
      right_pairs<T>(*this, b, n, k, lane);
    }
  }
};
/// The other way round: [k][m] or [k][n].
template <class Tile_>
struct AcrossDepth {
  using Tile = Tile_;
  static constexpr bool kAlong = false;
  Tile tile;
  int row, column;
  TW_MEMBER auto value(int outer, int k) const { return to_float(*tile.at(row + k, column + outer)); }
  /// x[n][e]: row or column outer + Apart n of the product at k + e.
  template <int Apart, int N>
  TW_MEMBER void fours(float (&x)[N][4], int outer, int k, bool) const {
    TW_UNROLL
    for (int e = 0; e < 4; ++e) {
      const typename Tile::Element* const from = tile.at(row + k + e, column + outer);
      TW_UNROLL
      for (int n = 0; n < N; ++n)
        x[n][e] = Tile::kSwizzled ? value(outer + Apart * n, k + e) : to_float(from[Apart * n]);
    }
  }
  /// y[n][o]: outer + Apart n + o, at k; outer is a multiple of Width.
  template <int Apart, int N, int Width>
  TW_MEMBER void neighbours(float (&y)[N][Width], int outer, int k) const {
    const typename Tile::Element* const from = tile.at(row + k, column + outer);
    TW_UNROLL
    for (int n = 0; n < N; ++n)
      read_strip(y[n], Tile::kSwizzled ? tile.at(row + k, column + outer + Apart * n) : from + Apart * n);
  }
  template <class T>
  TW_MEMBER void left(u32 (&a)[4], int m, int k, int lane) const {
    if constexpr (sizeof(typename Tile::Element) == 2) {
      ldmatrix4_transposed(
          a, tile.at(row + k + lane % 8 + lane / 16 * 8, column + m + lane / 8 % 2 * 8));
    } else {
      left_pairs<T>(*this, a, m, k, lane);
    }
  }
  template <class T>
  TW_MEMBER void right(u32 (&b)[4], int n, int k, int lane) const {
    if constexpr (sizeof(typename Tile::Element) == 2) {
      ldmatrix4_transposed(b, tile.at(row + k + lane % 16, column + n + lane / 16 * 8));
    } else {
      right_pairs<T>(*this, b, n, k, lane);
    }
  }
};

/// An element of a tile, zero where not `in`: read in any case, from the tile's first element then. A branch would let
/// no other read begin.
template <class Tile>
TW_DEVICE typename Tile::Element read_inside(bool in, const Tile& tile, int row, int column) {
#if !defined(__CUDACC__)
  if (!in) return typename Tile::Element{};  // nobody may have written the first one: the emulator tells of that
#endif
  const typename Tile::Element x = *tile.at(in ? row : 0, in ? column : 0);
  return in ? x : typename Tile::Element{};
}

// ---- operands whose rows, columns or depth are several loops, read element by element -------------
/// What a row or column of a product, or a point of its depth, adds to where an element lies: to its row and
/// column in the tile and, of indices that leave the tensor for some points and not for others, to the index.
struct At {
  int row = 0, column = 0, first = 0, second = 0;
  bool there = true;  // false: the element is zero, whatever the other says
};
/// outer(i) and depth(k) give an At each; inside(a, b): whether the element of both is one of the tensor's.
template <class Tile, class Outer, class Depth, class Inside>
struct Elements {
  Tile tile;
  Outer outer;
  Depth depth;
  Inside inside;
  TW_MEMBER typename Tile::Element at(const At& a, const At& b) const {
    return read_inside(a.there & b.there & inside(a, b), tile, a.row + b.row, a.column + b.column);
  }
};
template <class Tile, class Outer, class Depth, class Inside>
TW_DEVICE Elements<Tile, Outer, Depth, Inside> elements(const Tile& tile, const Outer& outer, const Depth& depth,
                                                        const Inside& inside) {
  return {tile, outer, depth, inside};
}
/// Two elements in one register: 16-bit ones as they are, floats rounded.
template <class T>
TW_DEVICE u32 side_by_side(T low, T high) { return u32(low.bits) | u32(high.bits) << 16; }
template <class T>
TW_DEVICE u32 side_by_side(float low, float high) { return Packed<T>::of(low, high); }

// ---- micro-kernels: c += a * b on a warp's part of a tile ------------------------------------------
/// Tensor cores by mma.m16n8k16, operands by ldmatrix. T: f16 or bf16; Depth a multiple of 16.
template <class T>
struct Mma {
  /// Both operands in shared memory.
  template <int Depth, int M, int N, class Left, class Right>
  TW_MEMBER static void multiply(Sums<M, N>& c, const Left& a, const Right& b, const Place& where,
                                 int first) {
    const Place p = where.made_here();
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
                                      const Place& where, int first, int first_depth) {
    const Place p = where.made_here();
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

  /// Operands as Elements; sums of rows `row` .. and columns `column` .. of the product.
  template <int M, int N, class Left, class Right>
  TW_MEMBER static void contract(Sums<M, N>& c, const Left& a, const Right& b, int row, int column, int depth,
                                 int lane) {
    const int g = lane / 4, t = lane % 4 * 2;
    At rows[M][2], columns[N];
    TW_UNROLL
    for (int i = 0; i < M; ++i)
      TW_UNROLL
      for (int h = 0; h < 2; ++h) rows[i][h] = a.outer(row + 16 * i + 8 * h + g);
    TW_UNROLL
    for (int j = 0; j < N; ++j) columns[j] = b.outer(column + 8 * j + g);
    TW_UNROLL_BY(2)
    for (int k = 0; k < depth; k += 16) {
      At in_a[4], in_b[4];
      TW_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int at = k + t + e / 2 * 8 + e % 2;
        in_a[e] = a.depth(at), in_b[e] = b.depth(at);
      }
      u32 x[M][4];
      TW_UNROLL
      for (int i = 0; i < M; ++i)
        TW_UNROLL
        for (int e = 0; e < 4; ++e)
          x[i][e] = side_by_side<T>(a.at(rows[i][e % 2], in_a[e / 2 * 2]),
                                    a.at(rows[i][e % 2], in_a[e / 2 * 2 + 1]));
      TW_UNROLL
      for (int j = 0; j < N; ++j) {
        const u32 low = side_by_side<T>(b.at(columns[j], in_b[0]), b.at(columns[j], in_b[1]));
        const u32 high = side_by_side<T>(b.at(columns[j], in_b[2]), b.at(columns[j], in_b[3]));
        TW_UNROLL
        for (int i = 0; i < M; ++i) mma_16x8x16<T>(c.x[i][j], x[i], low, high);
      }
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

/// Fused multiply-adds; any type, sums in float, columns in fours. Four of the depth at a time: of an operand whose rows
/// run along the depth a thread reads four points of each of its rows at once, of a right one whose rows run across
/// it four columns. Lanes of a row, and of a column, read the same.
struct Simt {
  template <int M, int N, class Left, class Right>
  TW_MEMBER static void multiply(Sums<M, N>& c, const Left& a, const Right& b, const PlaceOfFours& where,
                                 int first, int depth) {
    const PlaceOfFours p = where.made_here();
    const bool whole = (a.column | b.column) % 4 == 0;
    const int row = p.template row_of<M>(0, 0), column = p.column_of(first, 0, 0);
    if (depth >= 4) ahead(c, a, b, row, column, depth / 4, whole);
    TW_NO_UNROLL
    for (int rest = depth / 4 * 4; rest < depth; ++rest) {
      const int k = made_here(rest);
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
                                      const PlaceOfFours& where, int first, int first_depth) {
    const PlaceOfFours p = where.made_here();
    const int column = p.column_of(first, 0, 0);
    TW_UNROLL
    for (int q = 0; q < K; ++q)
      TW_UNROLL
      for (int k = 0; k < 8; k += 4) {
        float x[2 * M][4];
        TW_UNROLL
        for (int n = 0; n < 2 * M; ++n)
          TW_UNROLL
          for (int e = 0; e < 4; ++e)  // columns q % 2 * 8 + k .. of two blocks are one lane's
            x[n][e] = shuffle(a.x[n / 2][q - q % 2 + e / 2][2 * (n % 2) + e % 2],
                              p.numbered(p.place() / 4 * 4 + q % 2 * 2 + k / 4));
        four(c, x, b, column, (first_depth + q) * 8 + k, b.column % 4 == 0);
      }
  }

  template <int M, int N, class Left, class Right>
  TW_MEMBER static void contract(Sums<M, N>& c, const Left& a, const Right& b, int row, int column, int depth,
                                 int lane) {
    const int g = PlaceOfFours{0, 0, lane}.place() / 4;
    At rows[M][2], columns[N][2];
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      TW_UNROLL
      for (int i = 0; i < M; ++i) rows[i][h] = a.outer(row + 16 * i + 8 * h + g);
      TW_UNROLL
      for (int j = 0; j < N; ++j)
        columns[j][h] = b.outer(column + PlaceOfFours{0, 0, lane}.column_of(0, j, h));
    }
    TW_UNROLL_BY(4)
    for (int k = 0; k < depth; ++k) {
      const At in_a = a.depth(k), in_b = b.depth(k);
      float x[M][2];
      TW_UNROLL
      for (int i = 0; i < M; ++i)
        TW_UNROLL
        for (int h = 0; h < 2; ++h) x[i][h] = to_float(a.at(rows[i][h], in_a));
      TW_UNROLL
      for (int j = 0; j < N; ++j) {
        const float y0 = to_float(b.at(columns[j][0], in_b)), y1 = to_float(b.at(columns[j][1], in_b));
        TW_UNROLL
        for (int i = 0; i < M; ++i) {
          c.x[i][j][0] += x[i][0] * y0, c.x[i][j][1] += x[i][0] * y1;
          c.x[i][j][2] += x[i][1] * y0, c.x[i][j][3] += x[i][1] * y1;
        }
      }
    }
  }

 private:
  /// Four points of the depth at a time. What comes next is read while this is multiplied: a warp may have its scheduler
  /// for itself, and then nothing else hides what it waits for shared memory.
  template <int M, int N, class Left, class Right>
  TW_MEMBER static void ahead(Sums<M, N>& c, const Left& a, const Right& b, int row, int column, int fours,
                              bool whole) {
    constexpr bool kRows = Left::kAlong;  // of others a thread reads single elements: their registers are needed
    float x[2 * M][4], y[N / 2][4];
    if (kRows) a.template fours<8>(x, row, 0, whole);
    part<0>(y, b, column, 0, whole);
    TW_UNROLL_BY(2)
    for (int four_of = 0; four_of < fours; ++four_of) {
      // No address moves along with the loop (TW_SHARED); behind the last, the first is read again.
      const int at = 4 * made_here(four_of), next = four_of + 1 < fours ? at + 4 : 0;
      float next_x[2 * M][4], next_y[N / 2][4];
      a.template fours<8>(kRows ? next_x : x, row, kRows ? next : at, whole);
      part<1>(next_y, b, column, at, whole);
      add<0>(c, x, y, b);
      part<2>(y, b, column, at, whole);
      add<1>(c, x, next_y, b);
      part<3>(next_y, b, column, at, whole);
      add<2>(c, x, y, b);
      part<0>(y, b, column, next, whole);
      add<3>(c, x, next_y, b);
      if constexpr (kRows)
        TW_UNROLL
        for (int n = 0; n < 2 * M; ++n)
          TW_UNROLL
          for (int e = 0; e < 4; ++e) x[n][e] = next_x[n][e];
    }
  }
  /// x[n][e]: row 8 n of the thread's at k + e.
  template <int M2, int M, int N, class Right>
  TW_MEMBER static void four(Sums<M, N>& c, const float (&x)[M2][4], const Right& b, int column, int k, bool whole) {
    float y[N / 2][4];
    part<0>(y, b, column, k, whole), add<0>(c, x, y, b);
    part<1>(y, b, column, k, whole), add<1>(c, x, y, b);
    part<2>(y, b, column, k, whole), add<2>(c, x, y, b);
    part<3>(y, b, column, k, whole), add<3>(c, x, y, b);
  }
  /// What of a right operand one Part of the four takes, for four points of the depth from k on: y[j][e] is column
  /// 16 j + Part at k + e of one whose rows run along the depth, column 16 j + e at k + Part of one whose rows run across.
  template <int Part, int N2, class Tile>
  TW_MEMBER static void part(float (&y)[N2][4], const AlongDepth<Tile>& b, int column, int k, bool whole) {
    if (Tile::kSwizzled == kByFours && whole) {
      const typename Tile::Element* const from = b.tile.at(b.row + column, b.column + k);
      TW_UNROLL
      for (int j = 0; j < N2; ++j) read_strip(y[j], from + (16 * j + Part) * Tile::kPitch);
    } else {
      b.template fours<16>(y, column + Part, k, whole);
    }
  }
  template <int Part, int N2, class Tile>
  TW_MEMBER static void part(float (&y)[N2][4], const AcrossDepth<Tile>& b, int column, int k, bool) {
    b.template neighbours<16>(y, column, k + Part);
  }
  template <int Part, int M2, int M, int N, int N2, class Tile>
  TW_MEMBER static void add(Sums<M, N>& c, const float (&x)[M2][4], const float (&y)[N2][4], const AlongDepth<Tile>&) {
    // Along a column, every other one backwards, and all columns at one point of the depth before the next one.
    TW_UNROLL
    for (int z = 0; z < 4 * N2; ++z)
      TW_UNROLL
      for (int m = 0; m < M2; ++m) {
        const int e = z / N2, j = e % 2 == 0 ? z % N2 : N2 - 1 - z % N2, n = z % 2 == 0 ? m : M2 - 1 - m;
        c.x[n / 2][2 * j + Part / 2][2 * (n % 2) + Part % 2] += x[n][e] * y[j][e];
      }
  }
  template <int Part, int M2, int M, int N, int N2, class Tile>
  TW_MEMBER static void add(Sums<M, N>& c, const float (&x)[M2][4], const float (&y)[N2][4], const AcrossDepth<Tile>&) {
    // Along a row, every other one backwards: ptxas keeps the row's factor, and the last column's, beside the registers,
    // whose two banks give one of them each a cycle.
    TW_UNROLL
    for (int n = 0; n < M2; ++n)
      TW_UNROLL
      for (int q = 0; q < 2 * N; ++q) {
        const int column = n % 2 == 0 ? q : 2 * N - 1 - q, j = column / 2, e = column % 2;
        c.x[n / 2][j][2 * (n % 2) + e] += x[n][Part] * y[j / 2][j % 2 * 2 + e];
      }
  }
  template <int M, int N, class Right>
  TW_MEMBER static void step(Sums<M, N>& c, const float (&x)[M][2], const Right& b, const PlaceOfFours& p,
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
    put(to.at(r, c), to_float(*from.at(r, c)));
  }
}

// ---- functions of expressions ------------------------------------------------------------------
template <class R> TW_DEVICE R f_add(R a, R b) { return a + b; }
template <class R> TW_DEVICE R f_sub(R a, R b) { return a - b; }
template <class R> TW_DEVICE R f_mul(R a, R b) { return a * b; }
#if defined(__CUDACC__)
/// Within 2 units in the last place (PTX ISA, div.full): correct rounding takes three times as long.
TW_DEVICE float f_div(float a, float b) {
  float y;
  asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
#else
TW_DEVICE float f_div(float a, float b) { return a / b; }
#endif
TW_DEVICE double f_div(double a, double b) { return a / b; }
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
#if defined(__CUDACC__)
/// Relative errors of at most 2^-23 and 2^-22.9 (PTX ISA, sqrt.approx and rsqrt.approx).
TW_DEVICE float f_sqrt(float a) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}
TW_DEVICE float f_rsqrt(float a) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}
#else
TW_DEVICE float f_sqrt(float a) { return sqrtf(a); }
TW_DEVICE float f_rsqrt(float a) { return 1.0f / sqrtf(a); }
#endif
TW_DEVICE double f_sqrt(double a) { return sqrt(a); }
TW_DEVICE double f_rsqrt(double a) { return 1.0 / sqrt(a); }
template <class R> TW_DEVICE R f_recip(R a) { return f_div(R(1), a); }
/// Exponents that are known where this is compiled, and of which powers are roots, products and quotients.
template <class R> TW_DEVICE R f_short_pow(R a, R b) {
  if (b == R(-2)) return f_recip(a) * f_recip(a);
  if (b == R(-1)) return f_recip(a);
  if (b == R(-0.5)) return f_rsqrt(a);
  if (b == R(0.5)) return f_sqrt(a);
  if (b == R(0.75)) return f_sqrt(a) * f_sqrt(f_sqrt(a));
  if (b == R(1)) return a;
  if (b == R(1.5)) return a * f_sqrt(a);
  if (b == R(2)) return a * a;
  if (b == R(3)) return a * a * a;
  if (b == R(4)) return (a * a) * (a * a);
  return f_pow(a, b);
}
template <class R> TW_DEVICE R f_relu(R a) { return f_max(a, R(0)); }
TW_DEVICE float f_tanh(float a) { return tanhf(a); }
TW_DEVICE double f_tanh(double a) { return tanh(a); }
template <class R> TW_DEVICE R f_sigmoid(R a) { return f_recip(R(1) + f_exp(-a)); }
TW_DEVICE float f_erf(float a) { return erff(a); }
TW_DEVICE double f_erf(double a) { return erf(a); }
template <class R> TW_DEVICE R f_gelu(R a) {
  return R(0.5) * a * (R(1) + f_erf(a * R(0.70710678118654752440)));
}
template <class R> TW_DEVICE R f_abs(R a) { return a < R(0) ? -a : a; }
template <class R> TW_DEVICE R f_square(R a) { return a * a; }
TW_DEVICE float f_floor(float a) { return floorf(a); }
TW_DEVICE double f_floor(double a) { return floor(a); }
TW_DEVICE float f_round(float a) { return rintf(a); }
TW_DEVICE double f_round(double a) { return rint(a); }
TW_DEVICE float f_sin(float a) { return sinf(a); }
TW_DEVICE double f_sin(double a) { return sin(a); }
TW_DEVICE float f_cos(float a) { return cosf(a); }
TW_DEVICE double f_cos(double a) { return cos(a); }

}  // namespace tw
