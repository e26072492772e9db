// What emitted kernels are made of: products in f32 on tensor cores, each by three products in TF32.
#pragma once

#include "tilewright_products.h"

namespace tw {

/// A float as two numbers that TF32 has: rounded to 11 bits, and what is left of it, which has either sign, so that errors of
/// several products do not add up. mma does not read the last 13 bits of it. What is left of infinity is NaN: sums with it
/// are NaN. So it is of a NaN, whose first part rounding may make zero.
struct TwoParts { u32 high, low; };
TW_DEVICE TwoParts two_parts(u32 bits) {
  union { u32 u; float f; } whole{bits}, high{(bits + 0x1000u) & 0xffffe000u};
  return {high.u, bits_of(whole.f - high.f)};
}

/// Tensor cores by mma.m16n8k8 of TF32, for operands of f32. a b is a_low b_high + a_high b_low + a_high b_high; a_low b_low,
/// which is left out, is below 2^-22 of it, of either sign. mma cuts its sums off, so it adds up 16 of the depth at a time,
/// the small products first, and these are added to the sum by a rounded addition.
struct Tf32x3 {
  template <int Depth, int M, int N, class Left, class Right>
  TW_MEMBER static void multiply(Sums<M, N>& c, const Left& a, const Right& b, const Place& where, int first) {
    const Place p = where.made_here();
    TW_UNROLL_BY(2)
    for (int step = 0; step < Depth / 16; ++step) {
      // No address moves along with the loop (TW_SHARED).
      const int k = Depth > 32 ? 16 * made_here(step) : 16 * step;
      u32 x[M][8];
      TW_UNROLL
      for (int i = 0; i < M; ++i) left(x[i], a, (p.row * M + i) * 16, k, p.lane);
      add(c.x, x, [&](u32 (&y)[4], int j) { right(y, b, (first + j) * 8, k, p.lane); });
    }
  }
  /// The left operand is sums: a thread has two neighbours of the depth, where a fragment has two that are four apart. So
  /// the right operand's are read in the same order.
  template <int M, int N, int K, class Right>
  TW_MEMBER static void multiply_sums(Sums<M, N>& c, const Sums<M, K>& a, const Right& b, const Place& where, int first,
                                      int first_depth) {
    const Place p = where.made_here();
    const int g = p.lane / 4, t = p.lane % 4 * 2;
    TW_UNROLL
    for (int q = 0; q < K; q += 2) {
      u32 x[M][8];
      TW_UNROLL
      for (int i = 0; i < M; ++i)
        TW_UNROLL
        for (int e = 0; e < 8; ++e) x[i][e] = bits_of(a.x[i][q + e / 4][e % 2 * 2 + e % 4 / 2]);
      const int k = (first_depth + q) * 8 + t;
      add(c.x, x, [&](u32 (&y)[4], int j) {
        TW_UNROLL
        for (int e = 0; e < 4; ++e) y[e] = bits_of(b.value((first + j) * 8 + g, k + e / 2 * 8 + e % 2));
      });
    }
  }
  /// Operands as Elements; sums of rows `row` .. and columns `column` .. of the product.
  template <int M, int N, class Left, class Right>
  TW_MEMBER static void contract(Sums<M, N>& c, const Left& a, const Right& b, int row, int column, int depth, int lane) {
    const int g = lane / 4, t = lane % 4;
    At rows[M][2], columns[N];
    TW_UNROLL
    for (int i = 0; i < M; ++i)
      TW_UNROLL
      for (int h = 0; h < 2; ++h) rows[i][h] = a.outer(row + 16 * i + 8 * h + g);
    TW_UNROLL
    for (int j = 0; j < N; ++j) columns[j] = b.outer(column + 8 * j + g);
    TW_NO_UNROLL
    for (int k = 0; k < depth; k += 16) {
      At in_a[4], in_b[4];
      TW_UNROLL
      for (int e = 0; e < 4; ++e) in_a[e] = a.depth(k + t + 4 * e), in_b[e] = b.depth(k + t + 4 * e);
      u32 x[M][8];
      TW_UNROLL
      for (int i = 0; i < M; ++i)
        TW_UNROLL
        for (int e = 0; e < 8; ++e) x[i][e] = bits_of(float(to_float(a.at(rows[i][e % 2], in_a[e / 2]))));
      add(c.x, x, [&](u32 (&y)[4], int j) {
        TW_UNROLL
        for (int e = 0; e < 4; ++e) y[e] = bits_of(float(to_float(b.at(columns[j], in_b[e]))));
      });
    }
  }

  /// 16 of the depth of M x N blocks of sums: x[i] are two fragments of 16 rows x 8 one behind the other, and `read` gives
  /// two of 8 x 8 columns of block j.
  template <int M, int N, class Read>
  TW_MEMBER static void add(float (&c)[M][N][4], const u32 (&x)[M][8], const Read& read) {
    u32 high[M][2][4], low[M][2][4];
    TW_UNROLL
    for (int i = 0; i < M; ++i)
      TW_UNROLL
      for (int e = 0; e < 8; ++e) {
        const TwoParts parts = two_parts(x[i][e]);
        high[i][e / 4][e % 4] = parts.high, low[i][e / 4][e % 4] = parts.low;
      }
    // Independent sums: an instruction waits for the one before.
    constexpr int kTogether = M <= 2 && N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;
    TW_UNROLL
    for (int j = 0; j < N; j += kTogether) {
      TwoParts y[kTogether][4];
      TW_UNROLL
      for (int n = 0; n < kTogether; ++n) {
        u32 bits[4];
        read(bits, j + n);
        TW_UNROLL
        for (int e = 0; e < 4; ++e) y[n][e] = two_parts(bits[e]);
      }
      float sum[M][kTogether][4] = {};
      TW_UNROLL
      for (int s = 0; s < 6; ++s)
        TW_UNROLL
        for (int n = 0; n < kTogether; ++n)
          TW_UNROLL
          for (int i = 0; i < M; ++i) {
            const int half = s % 2;
            const TwoParts &b0 = y[n][2 * half], &b1 = y[n][2 * half + 1];
            mma_16x8x8_tf32(sum[i][n], s < 2 ? low[i][half] : high[i][half], s / 2 == 1 ? b0.low : b0.high,
                            s / 2 == 1 ? b1.low : b1.high);
          }
      TW_UNROLL
      for (int n = 0; n < kTogether; ++n)
        TW_UNROLL
        for (int i = 0; i < M; ++i)
          TW_UNROLL
          for (int e = 0; e < 4; ++e) c[i][j + n][e] += sum[i][n][e];
    }
  }

 private:
  /// Of 16 rows and 16 of the depth, two fragments of 16 x 8.
  template <class Tile>
  TW_MEMBER static void left(u32 (&x)[8], const AlongDepth<Tile>& a, int m, int k, int lane) {
    if constexpr (sizeof(typename Tile::Element) == 4) {
      TW_UNROLL
      for (int s = 0; s < 2; ++s) {
        u32 four[4];  // 8 x 8 elements of 16 bits are 8 x 4 of 32
        ldmatrix4(four, a.tile.at(a.row + m + lane % 16, a.column + k + 8 * s + lane / 16 * 4));
        TW_UNROLL
        for (int e = 0; e < 4; ++e) x[4 * s + e] = four[e];
      }
    } else {
      left_elements(x, a, m, k, lane);
    }
  }
  template <class Tile>
  TW_MEMBER static void left(u32 (&x)[8], const AcrossDepth<Tile>& a, int m, int k, int lane) {
    left_elements(x, a, m, k, lane);
  }
  template <class Left>
  TW_MEMBER static void left_elements(u32 (&x)[8], const Left& a, int m, int k, int lane) {
    TW_UNROLL
    for (int e = 0; e < 8; ++e) x[e] = bits_of(float(a.value(m + lane / 4 + e % 2 * 8, k + lane % 4 + e / 2 * 4)));
  }
  /// Of 16 of the depth and 8 columns, two fragments of 8 x 8.
  template <class Tile>
  TW_MEMBER static void right(u32 (&y)[4], const AlongDepth<Tile>& b, int n, int k, int lane) {
    if constexpr (sizeof(typename Tile::Element) == 4)
      ldmatrix4(y, b.tile.at(b.row + n + lane % 8, b.column + k + lane / 8 * 4));
    else
      right_elements(y, b, n, k, lane);
  }
  template <class Tile>
  TW_MEMBER static void right(u32 (&y)[4], const AcrossDepth<Tile>& b, int n, int k, int lane) {
    right_elements(y, b, n, k, lane);
  }
  template <class Right>
  TW_MEMBER static void right_elements(u32 (&y)[4], const Right& b, int n, int k, int lane) {
    TW_UNROLL
    for (int e = 0; e < 4; ++e) y[e] = bits_of(float(b.value(n + lane / 4, k + lane % 4 + 4 * e)));
  }
};

}  // namespace tw
