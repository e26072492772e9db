// A whole kernel of a convolution as a product of matrices that are nowhere made: the left operand's rows run along
// channels and window, as they lie at home; of the right one a block has the part of the image that its points' windows
// cover, with zeros around, and a column of the product is a place in it. Tensor cores by mma.m16n8k16, of floats three
// products of TF32 (Tf32x3) or fused multiply-adds on the same sums. Blocks of a cluster may have parts of the channels of one tile; they then add up what each has, each some rows.
// Plain C++ on top of tilewright_products.h.
#pragma once

#include "tilewright_hopper.h"
#include "tilewright_tf32.h"

namespace tw {

/// Where a block's tile begins: row of the product, point of the image, and which of the products.
struct WindowPlace { int row, y, x, product; };

/// An element of the product, for operators after it: its row, its point's last loop and all its other loops.
struct WindowElement {
  static constexpr bool kWhole = false;
  int row, column, product;
  bool top, left;  // of the tile: what does not depend on the row or the point counts once
  template <bool ByRow, bool ByColumn, bool Pairs, class T>
  TW_MEMBER void read(float (&x)[2], const T* from, i64) const {
    x[0] = to_float(read_after_launch(from, (ByRow || top) && (ByColumn || left)));
    x[1] = 0.0f;
  }
};

/// No operators after a convolution.
struct NoWindowOperators {
  static constexpr bool kAny = false;
  static constexpr int kReads = 1;
  TW_MEMBER void read(float (&)[1][2], const WindowElement&) const {}
  TW_MEMBER float change(float sum, const float (&)[1][2], int, const WindowElement&) const { return sum; }
};

constexpr int odd_eights(int n) { return (n + 7) / 8 % 2 == 1 ? (n + 7) / 8 * 8 : (n + 7) / 8 * 8 + 8; }

/// T: operands, Out: results at home. S has constants:
///   kRows, kTile: rows of the product, and of a tile; kTileY, kTileX, kOutY, kOutX: points; kWide: the last loop's
///   kChannels, kStep, kPart, kShare: all; a stage's; a block's; blocks of a cluster
///   kTapsY, kTapsX, kStrideY, kStrideX, kDilateY, kDilateX, kPadY, kPadX: the window
///   kInY, kInX, kInRow, kInChannel: the image, and elements between its rows and channels
///   kLeftRow: elements between rows of the left operand; kLeftPiece, kRightPiece: elements of a copy
///   kLead, kPitch: columns before the first that is needed, and of a row in shared memory
///   kBeside: points have their channels side by side, at home and in shared memory; kInColumn: elements between points
///   at home; kLeftTapY, kLeftTapX: between taps of the left operand, which has channels side by side, too
///   kTurned: results have rows side by side; kOutColumn: elements between their points
///   kFlat: the points are all of the image, one line, so that a stage's channels follow one another at home, and in
///   shared memory as well: kPitch apart
///   kBlocksM, kBlocksN, kWarpsM, kWarpsN, kWarpsK: of 16 x 8, a warp's; warps side by side, and in turn in the depth
///   kStages, kAhead: copied while others are read, or all of them at once; kOutRow, kOutLine, kVector: elements between rows and lines of results; of a store
///   kTf32: floats are multiplied on tensor cores
///   kEarly: the launch may begin before the one before has ended; kLeftBefore: that one does not write the left operand
template <class T, class Out, class S, class Operators = NoWindowOperators>
struct WindowProduct {
  static constexpr int kThreads = 32 * S::kWarpsM * S::kWarpsN * S::kWarpsK;
  static constexpr int kTaps = S::kTapsY * S::kTapsX;
  static constexpr bool kFloats = sizeof(T) == 4, kAdds = kFloats && !S::kTf32;  // fused multiply-adds
  /// Of the depth, what a stage has for one tap: channels side by side are read several at once, zeros behind.
  static constexpr int kRead = kFloats ? 4 : 16, kOfTap = S::kBeside ? (S::kStep + kRead - 1) / kRead * kRead : S::kStep;
  static constexpr int kDepth = kOfTap * kTaps, kSteps = (kDepth + 15) / 16;
  /// Elements from a point to the next where channels lie side by side: neighbours are read from different banks.
  static constexpr int kPoint = !kFloats ? kOfTap + 8 : kOfTap / 4 % 2 == 1 ? kOfTap : kOfTap + 4;
  static constexpr int kLeftPitch = kSteps * 16 + 16 / int(sizeof(T));  // rows of eight meet in no bank
  /// Copied through a register: no asynchronous copy is that small.
  template <int Piece>
  static constexpr bool kAlone = Piece * sizeof(T) < 4;
  static constexpr int kPoints = S::kTileY * S::kTileX;
  static constexpr int kInRows = (S::kTileY - 1) * S::kStrideY + (S::kTapsY - 1) * S::kDilateY + 1;
  static constexpr int kChannel = S::kFlat ? S::kPitch : odd_eights(kInRows * S::kPitch);
  static constexpr int kRightRows = S::kFlat ? 1 : S::kBeside ? kInRows * S::kPitch : S::kStep * kInRows;
  static constexpr int kRightWide = S::kFlat ? S::kStep * S::kPitch : S::kBeside ? kOfTap : S::kPitch;
  static constexpr int kRightApart = S::kFlat || S::kBeside ? 0 : S::kPitch, kRightGroup = S::kFlat || S::kBeside ? 1 : kInRows;
  static constexpr int kRightGroupApart = S::kBeside ? kPoint : kChannel;
  static constexpr int kLeft = S::kTile * kLeftPitch;
  static constexpr int kStage = kLeft + (S::kBeside ? kInRows * S::kPitch * kPoint : S::kStep * kChannel);  // elements
  static constexpr int kColumns = 8 * S::kBlocksN * S::kWarpsN;
  /// Sums lie as results do: rows of points or, turned, points of rows.
  static constexpr int kSumPitch = S::kTurned ? S::kTile + 4 : kColumns + (40 - kColumns % 32) % 32;
  static constexpr int kSums = (S::kTurned ? kColumns : S::kTile) * kSumPitch;  // floats of a warp's share of the depth
  static constexpr int kTurns = (S::kPart + S::kStep - 1) / S::kStep;
  static constexpr int kTable = kTaps == 1 ? 0 : (S::kBeside ? 16 : 64) * kSteps;  // bytes
  static constexpr int kChannelLeft = S::kBeside ? 1 : kTaps;  // elements of the left operand from a channel to the next
  /// Eight points of a column block lie side by side in shared memory, from a multiple of 16 bytes.
  static constexpr bool kAligned = !kFloats && !S::kBeside && kTaps == 1 && S::kStrideX == 1 && S::kLead == 0 && S::kPitch % 8 == 0 &&
                                   (S::kTileY == 1 || S::kTileX % 8 == 0);
  static_assert(16 * S::kBlocksM * S::kWarpsM == S::kTile && kColumns >= kPoints, "warps have the tile");
  static_assert(S::kStages > 1 || kTurns == 1, "a stage is filled while another is read");
  static_assert(S::kAhead == kTurns ? S::kStages >= kTurns : S::kAhead < S::kStages, "a stage is filled while it is read");

  struct At { int x, y, z, w; };
  /// Of eight points the four lanes of a row have two each, of fused multiply-adds. Channels side by side are read 16 bytes at once:
  /// of neighbouring points, which meet in no bank though points lie two or three apart in the image.
  static constexpr int kNextPoint = S::kBeside && kAdds ? 4 : 1, kLanePoint = S::kBeside && kAdds ? 1 : 2;
  static constexpr int kPlaces = kAdds ? 2 * S::kBlocksN : S::kBlocksN;  // of a thread's points

  /// Rows of Wide elements, Piece of them a copy: from(row, column, there) is where they begin at home, and `there` how
  /// many exist; the others are zero.
  /// A row lies Pitch elements behind the one before, the first of Group rows Apart behind that of the group before.
  template <int Piece, int Wide, int Pitch, int Group, int Apart, class From>
  static TW_MEMBER void copy_rows(T* to, int rows, int thread, const From& from) {
    const auto place = [&](int row) { return Group == 1 ? row * Apart : row / Group * Apart + row % Group * Pitch; };
    constexpr int kPieces = Wide / Piece, kAtOnce = 8;
    if constexpr (kAlone<Piece>) {
      for (int begin = thread; begin < rows * kPieces; begin += kAtOnce * kThreads) {
        T x[kAtOnce];
        TW_UNROLL
        for (int e = 0; e < kAtOnce; ++e) {
          const int i = begin + e * kThreads;
          int there = 0;
          const T* const p = from(i / kPieces, i % kPieces, there);
          const T read = read_after_launch(p, there > 0);  // without a branch: all are under way at the same time
          x[e] = there > 0 ? read : T{};
        }
        TW_UNROLL
        for (int e = 0; e < kAtOnce; ++e) {
          const int i = begin + e * kThreads;
          if (i < rows * kPieces) to[place(i / kPieces) + i % kPieces] = x[e];
        }
      }
    } else {
      for (int i = thread; i < rows * kPieces; i += kThreads) {
        const int column = i % kPieces * Piece;
        int there = 0;
        const T* const p = from(i / kPieces, column, there);
        T* const at = to + place(i / kPieces) + column;
        const int bytes = most(0, least(there, Piece)) * int(sizeof(T));
        if constexpr (Piece * sizeof(T) == 16) cp_async16(at, p, bytes);
        else cp_async_piece<Piece * int(sizeof(T))>(at, p, bytes);
      }
    }
  }

  /// Where a row of a stage's left operand is at home, and how many of its elements from `column` on exist.
  static TW_MEMBER auto left_from(const T* left, const WindowPlace& p, int channel, int channels) {
    const int rows = least(S::kRows - p.row, S::kTile), depth = channels * kTaps;
    if constexpr (S::kBeside) {
      return [=](int row, int column, int& there) {
        const int tap = column / kOfTap, c = column % kOfTap;
        there = row < rows && tap < kTaps ? channels - c : 0;
        return there > 0 ? left + (i64(p.row + row) * S::kLeftRow + tap / S::kTapsX * S::kLeftTapY +
                                   tap % S::kTapsX * S::kLeftTapX + (channel + c))
                         : left;
      };
    } else
    return [=](int row, int column, int& there) {
      there = row < rows ? depth - column : 0;
      return there > 0 ? left + (i64(p.row + row) * S::kLeftRow + i64(channel) * kTaps + column) : left;
    };
  }
  /// The same of what the points of this tile need of the image.
  static TW_MEMBER auto right_from(const T* right, const WindowPlace& p, int channel, int channels) {
    if constexpr (S::kFlat) {
      return [=](int, int column, int& there) {
        there = channels * S::kPitch - column;
        return there > 0 ? right + (i64(channel) * S::kInChannel + column) : right;
      };
    } else if constexpr (S::kBeside) {
      const int high = (least(S::kTileY, S::kOutY - p.y) - 1) * S::kStrideY + (S::kTapsY - 1) * S::kDilateY + 1;
      const int wide = (least(S::kTileX, S::kOutX - p.x) - 1) * S::kStrideX + (S::kTapsX - 1) * S::kDilateX + 1;
      const int y = p.y * S::kStrideY - S::kPadY, x = p.x * S::kStrideX - S::kPadX;
      return [=](int row, int column, int& there) {
        const int line = row / S::kPitch, point = row % S::kPitch;
        const bool in = line < high && point < wide && y + line >= 0 && y + line < S::kInY && x + point >= 0 && x + point < S::kInX;
        there = in ? channels - column : 0;
        return there > 0 ? right + (i64(y + line) * S::kInRow + i64(x + point) * S::kInColumn + (channel + column)) : right;
      };
    } else {
      const int high = (least(S::kTileY, S::kOutY - p.y) - 1) * S::kStrideY + (S::kTapsY - 1) * S::kDilateY + 1;
      const int wide = (least(S::kTileX, S::kOutX - p.x) - 1) * S::kStrideX + (S::kTapsX - 1) * S::kDilateX + 1;
      const int y = p.y * S::kStrideY - S::kPadY, x = p.x * S::kStrideX - S::kPadX - S::kLead;
      const int end = least(S::kInX, x + S::kLead + wide);
      return [=](int row, int column, int& there) {
        const int c = row / kInRows, line = row % kInRows;
        const bool in = c < channels && line < high && y + line >= 0 && y + line < S::kInY && x + column >= 0;
        there = in ? end - (x + column) : 0;
        return there > 0 ? right + (i64(channel + c) * S::kInChannel + i64(y + line) * S::kInRow + (x + column)) : right;
      };
    }
  }
  /// Channels from `channel` on, `channels` of them, into a stage.
  static TW_MEMBER void copy_left(T* stage, const T* left, const WindowPlace& p, int channel, int channels, int thread) {
    copy_rows<S::kLeftPiece, kSteps * 16, 0, 1, kLeftPitch>(stage, S::kTile, thread,
                                                            left_from(left, p, channel, channels));
  }
  static TW_MEMBER void copy_right(T* stage, const T* right, const WindowPlace& p, int channel, int channels, int thread) {
    copy_rows<S::kRightPiece, kRightWide, kRightApart, kRightGroup, kRightGroupApart>(
        stage + kLeft, kRightRows, thread, right_from(right, p, channel, channels));
  }

  /// Copies of a thread whose places are known once for all stages that are whole: elements from where a stage's begin
  /// at home, or none; where they go, and above that their bytes.
  template <int N>
  struct Held {
    int from[N], to[N];
  };
  static constexpr int kToBits = 20;
  static constexpr int each(int pieces) { return (pieces + kThreads - 1) / kThreads; }
  static constexpr int kLeftEach = each(S::kTile * kSteps * 16 / S::kLeftPiece);
  static constexpr int kRightEach = each(kRightRows * (kRightWide / S::kRightPiece));
  static constexpr int kSumsEach = 4 * S::kBlocksM * S::kBlocksN;
  static constexpr int kElements = (kAlone<S::kLeftPiece> ? kLeftEach : 0) + (kAlone<S::kRightPiece> ? kRightEach : 0);
  static constexpr int kBeside = kAdds ? 8 * S::kBlocksM + 4 * S::kBlocksN : kFloats ? 16 * S::kBlocksM + 64 : 0;
  static constexpr bool kHeld = kTurns > 1 && kStage < 1 << kToBits &&
                                2 * (kLeftEach + kRightEach) + kElements + kSumsEach + kBeside <= (kFloats ? 190 : 168);
  static constexpr bool kWhole = S::kChannels % S::kPart == 0 && S::kPart % S::kStep == 0;  // all stages

  template <int Piece, int Wide, int Pitch, int Group, int Apart, int N, class From>
  static TW_MEMBER void hold(Held<N>& held, int offset, const T* home, int rows, int thread, const From& from) {
    constexpr int kPieces = Wide / Piece;
    TW_UNROLL
    for (int e = 0; e < N; ++e) {
      const int i = thread + e * kThreads, row = i / kPieces, column = i % kPieces * Piece;
      int there = 0;
      const T* const p = from(row, column, there);
      const int bytes = most(0, least(there, Piece)) * int(sizeof(T));
      held.from[e] = int(p - home);
      const int at = offset + (Group == 1 ? row * Apart : row / Group * Apart + row % Group * Pitch) + column;
      held.to[e] = i < rows * kPieces ? at | bytes << kToBits : -1;
    }
  }
  /// Those copies begin; what is copied element by element is read. Threads have as many but for the last; there are no
  /// other branches, each of which would wait for those before. What does not exist is read where its row begins.
  template <int Piece, int N>
  static TW_MEMBER void begin_held(const Held<N>& held, T* stage, const T* home, T* x) {
    TW_UNROLL
    for (int e = 0; e < N; ++e) {
      const T* const p = home + held.from[e];
      if constexpr (kAlone<Piece>) {
        x[e] = read_after_launch(p, held.to[e] >> kToBits > 0);
        continue;
      }
      if (e == N - 1 && held.to[e] < 0) continue;
      const int bytes = held.to[e] >> kToBits;
      T* const at = stage + (held.to[e] & ((1 << kToBits) - 1));
      if constexpr (Piece * sizeof(T) == 16) cp_async16(at, p, bytes);
      else if constexpr (!kAlone<Piece>) cp_async_piece<Piece * int(sizeof(T))>(at, p, bytes);
    }
  }
  template <int Piece, int N>
  static TW_MEMBER void end_held(const Held<N>& held, T* stage, const T* x) {
    if constexpr (kAlone<Piece>) {
      TW_UNROLL
      for (int e = 0; e < N; ++e)
        if (e < N - 1 || held.to[e] >= 0)
          stage[held.to[e] & ((1 << kToBits) - 1)] = held.to[e] >> kToBits > 0 ? x[e] : T{};
    }
  }

  static TW_MEMBER void multiply(float (&sums)[S::kBlocksM][S::kBlocksN][4], const T* stage, const At* table,
                                 const int (&place)[kPlaces], int m, int share, int lane) {
    if constexpr (kAdds) return multiply_floats(sums, stage, table, place, m, share, lane);
    else if constexpr (kFloats) return multiply_parts(sums, stage, table, place, m, share, lane);
    else return multiply_pairs(sums, stage, table, place, m, share, lane);
  }
  /// A thread has 2 kBlocksM rows, of which it reads four of the depth at once, and 2 kBlocksN points.
  static TW_MEMBER void multiply_floats(float (&sums)[S::kBlocksM][S::kBlocksN][4], const T* stage, const At* table,
                                        const int (&place)[kPlaces], int m, int share, int lane) {
    const T* const right = stage + kLeft;
    const T* const left = stage + (m * 16 + lane / 4) * kLeftPitch;
    // A loop's instructions want to stay in the instruction cache (32 KB): a multiply-add is 16 bytes.
    constexpr int kFours = S::kBlocksM * S::kBlocksN <= 20 ? 4 : 2;
    TW_NO_UNROLL
    for (int step = share; step < kSteps; step += S::kWarpsK) {
      const int s = made_here(step);
      TW_UNROLL_BY(kFours)
      for (int four = 0; four < 16; four += 4) {
        const int k = s * 16 + four;
        if (kDepth % 16 != 0 && k >= kDepth) break;
        float x[2 * S::kBlocksM][4];
        TW_UNROLL
        for (int i = 0; i < 2 * S::kBlocksM; ++i) read_strip(x[i], left + 8 * i * kLeftPitch + k);
        if constexpr (S::kBeside) {
          const T* const of = right + (kTaps > 1 ? reinterpret_cast<const int*>(table)[k / 4] : k);
          TW_UNROLL
          for (int j = 0; j < kPlaces; ++j) {
            float y[4];
            read_strip(y, of + place[j]);
            TW_UNROLL
            for (int e = 0; e < 4; ++e)
              TW_UNROLL
              for (int i = 0; i < 2 * S::kBlocksM; ++i) sums[i / 2][j / 2][i % 2 * 2 + j % 2] += x[i][e] * y[e];
          }
          continue;
        }
        At at;
        if constexpr (kTaps > 1) at = table[k / 4];
        // Channels past a stage's end are multiplied by zero, and are any that exist.
        else at = {k * kChannel, least(k + 1, kDepth - 1) * kChannel, least(k + 2, kDepth - 1) * kChannel,
                   least(k + 3, kDepth - 1) * kChannel};
        const int of[4] = {at.x, at.y, at.z, at.w};
        TW_UNROLL
        for (int e = 0; e < 4; ++e) {
          float y[kPlaces];
          TW_UNROLL
          for (int j = 0; j < kPlaces; ++j) y[j] = right[of[e] + place[j]];
          TW_UNROLL
          for (int i = 0; i < 2 * S::kBlocksM; ++i)
            TW_UNROLL
            for (int j = 0; j < kPlaces; ++j) sums[i / 2][j / 2][i % 2 * 2 + j % 2] += x[i][e] * y[j];
        }
      }
    }
  }
  /// Floats in two parts on tensor cores: 16 of the depth of eight points are four of each lane.
  static TW_MEMBER void multiply_parts(float (&sums)[S::kBlocksM][S::kBlocksN][4], const T* stage, const At* table,
                                       const int (&place)[kPlaces], int m, int share, int lane) {
    const T* const right = stage + kLeft;
    const T* const left = stage + (m * 16 + lane % 16) * kLeftPitch + lane / 16 * 4;
    TW_NO_UNROLL
    for (int step = share; step < kSteps; step += S::kWarpsK) {
      const int s = made_here(step);
      u32 x[S::kBlocksM][8];
      TW_UNROLL
      for (int i = 0; i < S::kBlocksM; ++i)
        TW_UNROLL
        for (int half = 0; half < 2; ++half) {
          u32 four[4];
          ldmatrix4(four, left + i * 16 * kLeftPitch + s * 16 + half * 8);
          TW_UNROLL
          for (int e = 0; e < 4; ++e) x[i][4 * half + e] = four[e];
        }
      // Channels past a stage's end are multiplied by zero, and are any that exist.
      if constexpr (S::kBeside) {
        const int k = kTaps > 1 ? reinterpret_cast<const int*>(table)[s * 4 + lane / 8]
                                : least(s * 16 + lane / 8 * 4, kDepth - 4);
        Tf32x3::add(sums, x, [&](u32 (&y)[4], int j) { ldmatrix4(y, right + k + place[j]); });
      } else {
        At at;
        if constexpr (kTaps > 1) {
          at = table[s * 4 + lane % 4];
        } else {
          const auto channel = [&](int e) { return least(s * 16 + lane % 4 + 4 * e, kDepth - 1) * kChannel; };
          at = {channel(0), channel(1), channel(2), channel(3)};
        }
        const T* const of[4] = {right + at.x, right + at.y, right + at.z, right + at.w};
        Tf32x3::add(sums, x, [&](u32 (&y)[4], int j) {
          TW_UNROLL
          for (int e = 0; e < 4; ++e) y[e] = bits_of(float(of[e][place[j]]));
        });
      }
    }
  }
  static TW_MEMBER void multiply_pairs(float (&sums)[S::kBlocksM][S::kBlocksN][4], const T* stage, const At* table,
                                       const int (&place)[kPlaces], int m, int share, int lane) {
    const T* const right = stage + kLeft;
    const T* const left = stage + (m * 16 + lane % 16) * kLeftPitch + lane / 16 * 8;
    // Of few sums the reads of a step are under way beside the products of the one before.
    constexpr int kAtOnce = S::kBlocksM * S::kBlocksN <= 16 ? 2 : 1;
    TW_UNROLL_BY(kAtOnce)
    for (int step = share; step < kSteps; step += S::kWarpsK) {
      const int s = made_here(step);
      u32 x[S::kBlocksM][4];
      TW_UNROLL
      for (int i = 0; i < S::kBlocksM; ++i) ldmatrix4(x[i], left + i * 16 * kLeftPitch + s * 16);
      if constexpr (S::kBeside || kAligned) {
        const T* of = right;
        if constexpr (S::kBeside)
          of += (kTaps > 1 ? reinterpret_cast<const int*>(table)[s * 4] : s * 16) + lane / 8 % 2 * 8;
        else  // Channels past a stage's end are multiplied by zero, and are any that exist.
          of += least(s * 16 + lane % 16, kDepth - 1) * kChannel;
        TW_UNROLL
        for (int j = 0; j < S::kBlocksN; j += 2) {
          u32 y[4];
          if constexpr (S::kBeside)
            ldmatrix4(y, of + place[j]);
          else
            ldmatrix4_transposed(y, of + place[j]);
          TW_UNROLL
          for (int b = 0; b < 2 && j + b < S::kBlocksN; ++b)
            TW_UNROLL
            for (int i = 0; i < S::kBlocksM; ++i) mma_16x8x16<T>(sums[i][j + b], x[i], y[2 * b], y[2 * b + 1]);
        }
        continue;
      }
      At at;
      if constexpr (kTaps == 1) {
        const int first = (s * 16 + lane % 4 * 2) * kChannel;
        // Channels past a stage's end are multiplied by zero, and are any that exist.
        at = {first, first + kChannel, first + 8 * kChannel, first + 9 * kChannel};
        if constexpr (kDepth % 16 != 0) {
          const int k = s * 16 + lane % 4 * 2;
          at.x = k < kDepth ? at.x : 0, at.y = k + 1 < kDepth ? at.y : 0;
          at.z = k + 8 < kDepth ? at.z : 0, at.w = k + 9 < kDepth ? at.w : 0;
        }
      } else {
        at = table[s * 4 + lane % 4];
      }
      const T* const of[4] = {right + at.x, right + at.y, right + at.z, right + at.w};
      TW_UNROLL
      for (int j = 0; j < S::kBlocksN; ++j) {
        const u32 low = side_by_side<T>(of[0][place[j]], of[1][place[j]]);
        const u32 high = side_by_side<T>(of[2][place[j]], of[3][place[j]]);
        TW_UNROLL
        for (int i = 0; i < S::kBlocksM; ++i) mma_16x8x16<T>(sums[i][j], x[i], low, high);
      }
    }
  }

  /// Some elements side by side, after the operators, to home.
  static TW_MEMBER void leave(const float (&sum)[4], int row, int point, Out* home, const WindowPlace& p,
                              const Operators& operators) {
    TW_UNROLL
    for (int v = 0; v < 4; v += S::kVector) {
      // Of one line the places are known without a division for each element.
      const int y = S::kTileY == 1 ? p.y : p.y + (point + v) / S::kTileX;
      const int x = p.x + (S::kTileY == 1 ? point + v : (point + v) % S::kTileX);
      if (point + v >= kPoints || y >= S::kOutY || x >= S::kOutX) continue;
      float out[S::kVector];
      TW_UNROLL
      for (int e = 0; e < S::kVector; ++e) {
        const int flat = y * S::kOutX + x + e;
        const WindowElement at{p.row + row, flat % S::kWide, p.product + flat / S::kWide * S::kOfLine, row == 0,
                               point + v + e == 0};
        float read[Operators::kReads][2];
        operators.read(read, at);
        out[e] = operators.change(sum[v + e], read, 0, at);
      }
      store(home + (i64(p.row + row) * S::kOutRow + i64(y) * S::kOutLine + x), out);
    }
  }
  static TW_MEMBER void store(Out* to, const float (&out)[S::kVector]) {
    if constexpr (S::kVector == 1) {
      store_home(to, Rounded<Out>::of(out[0]));
    } else if constexpr (sizeof(Out) == 4) {
      if constexpr (S::kVector == 4) store_home(reinterpret_cast<b128*>(to), four_floats_of(out));
      else store_home(reinterpret_cast<b64*>(to), b64{bits_of(out[0]), bits_of(out[1])});
    } else if constexpr (S::kVector == 4) {
      store_home(reinterpret_cast<b64*>(to), b64{Packed<Out>::of(out[0], out[1]), Packed<Out>::of(out[2], out[3])});
    } else {
      store_home(reinterpret_cast<u32*>(to), Packed<Out>::of(out[0], out[1]));
    }
  }
  /// The same of four rows of a point, side by side at home.
  static TW_MEMBER void leave_rows(const float (&sum)[4], int row, int point, Out* home, const WindowPlace& p,
                                   const Operators& operators) {
    const int y = p.y + point / S::kTileX, x = p.x + point % S::kTileX;
    if (y >= S::kOutY || x >= S::kOutX) return;
    const int flat = y * S::kOutX + x;
    TW_UNROLL
    for (int v = 0; v < 4; v += S::kVector) {
      if (p.row + row + v >= S::kRows) continue;
      float out[S::kVector];
      TW_UNROLL
      for (int e = 0; e < S::kVector; ++e) {
        const WindowElement at{p.row + row + v + e, flat % S::kWide, p.product + flat / S::kWide * S::kOfLine,
                               row + v + e == 0, point == 0};
        float read[Operators::kReads][2];
        operators.read(read, at);
        out[e] = operators.change(sum[v + e], read, 0, at);
      }
      store(home + (i64(y) * S::kOutLine + i64(x) * S::kOutColumn + (p.row + row + v)), out);
    }
  }
  static TW_MEMBER b128 four_floats_of(const float* x) { return {bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])}; }
  static TW_MEMBER void add(float (&sum)[4], const b128& x) {
    sum[0] += __builtin_bit_cast(float, x.x), sum[1] += __builtin_bit_cast(float, x.y);
    sum[2] += __builtin_bit_cast(float, x.z), sum[3] += __builtin_bit_cast(float, x.w);
  }

  static TW_MEMBER void run(unsigned char* memory, const T* left, const T* right, Out* home, const WindowPlace& p,
                            const Operators& operators = {}) {
    At* const table = reinterpret_cast<At*>(memory);
    T* const ring = reinterpret_cast<T*>(memory + kTable);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int m = warp % S::kWarpsM * S::kBlocksM, n = warp / S::kWarpsM % S::kWarpsN * S::kBlocksN;
    const int of_depth = warp / (S::kWarpsM * S::kWarpsN);
    const int rank = S::kShare > 1 ? int(blockIdx.x % S::kShare) : 0;
    if constexpr (kTaps > 1 && S::kBeside) {
      int* const places = reinterpret_cast<int*>(memory);
      for (int i = thread; i < kSteps * 4; i += kThreads) {
        const int k = i * 4, tap = k / kOfTap;
        const int point = tap / S::kTapsX * S::kDilateY * S::kPitch + tap % S::kTapsX * S::kDilateX;
        places[i] = k < kDepth ? point * kPoint + k % kOfTap : 0;
      }
    } else if constexpr (kTaps > 1) {
      int* const places = reinterpret_cast<int*>(memory);
      for (int i = thread; i < kSteps * 16; i += kThreads) {
        const int k = kAdds     ? i
                      : kFloats ? i / 16 * 16 + i / 4 % 4 + i % 4 * 4
                                : i / 16 * 16 + i / 4 % 4 * 2 + i % 4 / 2 * 8 + i % 2,
                  tap = k % kTaps;
        places[i] = k < kDepth ? k / kTaps * kChannel + tap / S::kTapsX * S::kDilateY * S::kPitch + tap % S::kTapsX * S::kDilateX : 0;
      }
    }
    int place[kPlaces];
    TW_UNROLL
    for (int j = 0; j < kPlaces; ++j) {
      // Of two blocks that are read together the upper half of the warp has the second's.
      const int point = kAligned || (S::kBeside && !kFloats)
                            ? (n + least(j + lane / 16, S::kBlocksN - 1)) * 8 + (S::kBeside ? lane % 8 : 0)
                        : kFloats && S::kBeside && !kAdds ? (n + j) * 8 + lane % 8
                        : kAdds ? (n + j / 2) * 8 + lane % 4 * kLanePoint + j % 2 * kNextPoint
                                  : (n + j) * 8 + lane / 4;
      const int y = point / S::kTileX, x = point % S::kTileX;
      place[j] = point < kPoints ? y * S::kStrideY * S::kPitch + x * S::kStrideX + S::kLead : S::kLead;
      if constexpr (S::kBeside) place[j] *= kPoint;
    }
    float sums[S::kBlocksM][S::kBlocksN][4];
    TW_UNROLL
    for (int i = 0; i < S::kBlocksM; ++i)
      TW_UNROLL
      for (int j = 0; j < S::kBlocksN; ++j)
        TW_UNROLL
        for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
    const int first = rank * S::kPart, channels = least(S::kPart, S::kChannels - first);
    const int turns = (channels + S::kStep - 1) / S::kStep;
    Held<kHeld ? kLeftEach : 1> of_left;
    Held<kHeld ? kRightEach : 1> of_right;
    T left_x[S::kAhead][kHeld && kAlone<S::kLeftPiece> ? kLeftEach : 1];
    T right_x[S::kAhead][kHeld && kAlone<S::kRightPiece> ? kRightEach : 1];
    const T* const left_home = left + (i64(p.row) * S::kLeftRow + i64(first) * kChannelLeft);
    const T* const right_home = right + i64(first) * S::kInChannel;
    if constexpr (kHeld)
      hold<S::kLeftPiece, kSteps * 16, 0, 1, kLeftPitch>(of_left, 0, left_home, S::kTile, thread,
                                                         left_from(left, p, first, S::kStep));
    // `x`: which of the arrays has what goes element by element.
    const auto left_begins = [&](int turn, int x) {
      if (turn >= turns) return;
      T* const stage = ring + turn % S::kStages * kStage;
      const int rest = channels - turn * S::kStep;
      if (kHeld && (kWhole || rest >= S::kStep))
        begin_held<S::kLeftPiece>(of_left, stage, left_home + turn * (S::kStep * kChannelLeft), left_x[x]);
      else
        copy_left(stage, left, p, first + turn * S::kStep, least(S::kStep, rest), thread);
    };
    const auto right_begins = [&](int turn, int x) {
      if (turn >= turns) return;
      T* const stage = ring + turn % S::kStages * kStage;
      const int rest = channels - turn * S::kStep;
      if (kHeld && (kWhole || rest >= S::kStep))
        begin_held<S::kRightPiece>(of_right, stage, right_home + i64(turn) * (S::kStep * S::kInChannel), right_x[x]);
      else
        copy_right(stage, right, p, first + turn * S::kStep, least(S::kStep, rest), thread);
    };
    // Elements that go one by one wait in registers: they are read with the others.
    constexpr bool kBefore = S::kLeftBefore && !kAlone<S::kLeftPiece>;
    if constexpr (kBefore) {
      TW_UNROLL
      for (int i = 0; i < S::kAhead; ++i) left_begins(i, i);
    }
    if constexpr (kHeld)
      hold<S::kRightPiece, kRightWide, kRightApart, kRightGroup, kRightGroupApart>(
          of_right, kLeft, right_home, kRightRows, thread, right_from(right, p, first, S::kStep));
    if constexpr (S::kEarly) launches_ended();
    const auto ends = [&](int turn, int x) {
      if (!kHeld || turn >= turns || !(kWhole || channels - turn * S::kStep >= S::kStep)) return;
      end_held<S::kLeftPiece>(of_left, ring + turn % S::kStages * kStage, left_x[x]);
      end_held<S::kRightPiece>(of_right, ring + turn % S::kStages * kStage, right_x[x]);
    };
    TW_UNROLL
    for (int i = 0; i < S::kAhead; ++i) {
      if constexpr (!kBefore) left_begins(i, i);
      right_begins(i, i);
      cp_async_commit();
    }
    TW_UNROLL
    for (int i = 0; i < S::kAhead; ++i) ends(i, i);
    TW_NO_UNROLL
    for (int turn = 0; turn < turns; ++turn) {
      cp_async_wait<S::kAhead - 1>();
      block_sync();
      if constexpr (S::kAhead < kTurns) {
        left_begins(turn + S::kAhead, 0);
        right_begins(turn + S::kAhead, 0);
      }
      if constexpr (kTurns > 1) cp_async_commit();
      multiply(sums, ring + turn % S::kStages * kStage, table, place, m, of_depth, lane);
      if constexpr (S::kAhead < kTurns) ends(turn + S::kAhead, 0);
    }
    block_sync();  // nobody reads the ring any more
    if constexpr (S::kEarly) next_launch_may_begin();
    float* const parts = reinterpret_cast<float*>(memory + kTable);
    TW_UNROLL
    for (int i = 0; i < S::kBlocksM; ++i)
      TW_UNROLL
      for (int j = 0; j < S::kBlocksN; ++j)
        TW_UNROLL
        for (int h = 0; h < 2; ++h) {
          if constexpr (S::kTurned) {
            float* const at =
                parts + of_depth * kSums + ((n + j) * 8 + lane % 4 * kLanePoint) * kSumPitch + (m + i) * 16 + lane / 4 + h * 8;
            at[0] = sums[i][j][h * 2], at[kNextPoint * kSumPitch] = sums[i][j][h * 2 + 1];
            continue;
          } else if constexpr (kNextPoint > 1) {
            float* const at =
                parts + of_depth * kSums + ((m + i) * 16 + lane / 4 + h * 8) * kSumPitch + (n + j) * 8 + lane % 4 * kLanePoint;
            at[0] = sums[i][j][h * 2], at[kNextPoint] = sums[i][j][h * 2 + 1];
            continue;
          }
          *reinterpret_cast<b64*>(parts + of_depth * kSums + ((m + i) * 16 + lane / 4 + h * 8) * kSumPitch + (n + j) * 8 +
                                  lane % 4 * 2) = b64{bits_of(sums[i][j][h * 2]), bits_of(sums[i][j][h * 2 + 1])};
        }
    block_sync();
    constexpr int kPer = S::kTile / S::kShare, kAll = S::kTurned ? kColumns : S::kTile, kLine = S::kTurned ? S::kTile / 4 : kColumns / 4;
    // Of a block of a cluster some rows, in pieces of four.
    constexpr int kOfLine = S::kTurned ? kPer / 4 : kLine, kLines = S::kTurned ? kColumns : kPer;
    if constexpr (S::kShare > 1) {
      if constexpr (S::kWarpsK > 1) {
        for (int i = thread; i < kAll * kLine; i += kThreads) {
          float* const at = parts + i / kLine * kSumPitch + i % kLine * 4;
          float sum[4] = {};
          TW_UNROLL
          for (int w = 0; w < S::kWarpsK; ++w) add(sum, *reinterpret_cast<const b128*>(at + w * kSums));
          *reinterpret_cast<b128*>(at) = four_floats_of(sum);
        }
      }
      cluster_sync();
    }
    for (int i = thread; i < kLines * kOfLine; i += kThreads) {
      const int row = rank * kPer + (S::kTurned ? i % kOfLine * 4 : i / kOfLine);
      const int point = S::kTurned ? i / kOfLine : i % kOfLine * 4;
      if (point >= kPoints || p.row + row >= S::kRows) continue;
      float sum[4] = {};
      const float* const at = parts + (S::kTurned ? point * kSumPitch + row : row * kSumPitch + point);
      if constexpr (S::kShare > 1) {
        b128 x[S::kShare];
        TW_UNROLL
        for (int b = 0; b < S::kShare; ++b) x[b] = load_of_block(at, b);
        TW_UNROLL
        for (int b = 0; b < S::kShare; ++b) add(sum, x[b]);
      } else {
        TW_UNROLL
        for (int w = 0; w < S::kWarpsK; ++w) add(sum, *reinterpret_cast<const b128*>(at + w * kSums));
      }
      if constexpr (S::kTurned) leave_rows(sum, row, point, home, p, operators);
      else leave(sum, row, point, home, p, operators);
    }
    if constexpr (S::kShare > 1) cluster_meet();  // no block's sums are given up before all are read
  }
};

}  // namespace tw
