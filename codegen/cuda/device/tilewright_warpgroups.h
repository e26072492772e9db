// A whole kernel of a matrix product by Hopper's warpgroups: one warpgroup's first thread copies boxes of both
// operands into a ring of stages by the TMA unit, the others multiply by wgmma and write results through
// shared memory. Where a cluster's blocks share the depth of a tile, each then adds up some of its rows. Where they
// have tiles side by side, each copies a part of what they share, to all of them.
// Plain C++ on top of tilewright_hopper.h.
#pragma once

#include "tilewright_hopper.h"
#include "tilewright_products.h"

namespace tw {

/// Extents of the product, and tiles down that follow one another before those across do: their operands
/// meet in L2. `part`: of the depth, a block's. `apart`: columns from one tile to the next.
struct ProductSize { int rows, columns, depth, count, group, part, apart; };
/// Where a tile of results begins: the first row and column, and which of the `count` products.
struct ProductPlace { int row, column, product; };

/// 64 rows of a tile of results: the first row and column, the ends of both, and which product they are of.
struct ResultPlace { int row, rows, column, columns, product; };

constexpr int kWarpgroup = 128;  // threads
TW_DEVICE b64 two_floats(const float* x) { return {__builtin_bit_cast(u32, x[0]), __builtin_bit_cast(u32, x[1])}; }
TW_DEVICE b128 four_floats(const float* x) {
  return {__builtin_bit_cast(u32, x[0]), __builtin_bit_cast(u32, x[1]), __builtin_bit_cast(u32, x[2]),
          __builtin_bit_cast(u32, x[3])};
}

/// Two neighbours of a row of a product, the first of even number. What is past an end is not read. Whole: no tile
/// has any of that. `top`, `left`: of the tile: what does not depend on the row or the column counts once a tile.
template <bool Whole>
struct ProductElements {
  int row, column, product;
  bool there[2], top, left;

  /// The tile begins at `begin`, and ends with the product.
  TW_MEMBER ProductElements(int row_, int column_, const ProductPlace& begin, int rows, int columns)
      : row(row_), column(column_), product(begin.product),
        there{Whole || (row < rows && column < columns), Whole || (row < rows && column + 1 < columns)},
        top(row == begin.row), left(column == begin.column) {}
  /// What an operator after the product reads for them: from `from` on, `apart` from one to the next. Pairs: both as
  /// one word.
  template <bool ByRow, bool ByColumn, bool Pairs, class T>
  TW_MEMBER void read(float (&x)[2], const T* from, i64 apart) const {
    const bool counts = ByRow || top;
    if constexpr (!ByColumn) {
      x[0] = x[1] = there[0] ? to_float(read_after_launch(from, counts && left)) : 0.0f;
    } else if constexpr (Pairs && sizeof(T) == 4) {
      const b64 two = there[0] ? read_after_launch(reinterpret_cast<const b64*>(from), counts) : b64{};
      x[0] = __builtin_bit_cast(float, two.x), x[1] = __builtin_bit_cast(float, two.y);
    } else if constexpr (Pairs) {
      struct Two { T x[2]; };
      const u32 word = there[0] ? read_after_launch(reinterpret_cast<const u32*>(from), counts) : 0;
      const Two two = __builtin_bit_cast(Two, word);
      x[0] = to_float(two.x[0]), x[1] = to_float(two.x[1]);
    } else {
      x[0] = there[0] ? to_float(read_after_launch(from, counts)) : 0.0f;
      x[1] = there[1] ? to_float(read_after_launch(from + apart, counts)) : 0.0f;
    }
  }
};

/// No operators after a product.
struct NoOperators { static constexpr bool kAny = false; };

/// Operators on a warpgroup's 64 rows of sums in registers, from row `first` of the product on. All that some columns
/// need is read before any of them is changed. Of two products the second one's sums follow the first one's.
template <int Columns, class Operators, int Sums>
TW_DEVICE void change_sums(const Operators& operators, float (&sums)[Sums], int first, const ProductPlace& begin,
                           int rows, int columns, int thread) {
  constexpr int kReads = Operators::kReads, kAtOnce = kReads > 4 ? 1 : kReads > 2 || Columns % 32 != 0 ? 2 : 4;  // of 8 columns
  const int g = thread % 32 / 4, t = thread % 4 * 2, warp = thread / 32;
  TW_UNROLL
  for (int j = 0; j < Columns / 8; j += kAtOnce) {
    float read[kAtOnce][2][kReads][2];
    TW_UNROLL
    for (int i = 0; i < kAtOnce * 2; ++i) {
      const ProductElements<Operators::kWhole> at(first + warp * 16 + g + i % 2 * 8, begin.column + (j + i / 2) * 8 + t, begin, rows,
                                  columns);
      operators.read(read[i / 2][i % 2], at);
    }
    TW_UNROLL
    for (int i = 0; i < kAtOnce * 2; ++i) {
      const ProductElements<Operators::kWhole> at(first + warp * 16 + g + i % 2 * 8, begin.column + (j + i / 2) * 8 + t, begin, rows,
                                  columns);
      float* const x = sums + (j + i / 2) * 4 + i % 2 * 2;
      TW_UNROLL
      for (int n = 0; n < 2; ++n)
        if constexpr (Sums == Columns) x[n] = operators.change(x[n], x[n + Columns / 2], read[i / 2][i % 2], n, at);
        else x[n] = operators.change(x[n], read[i / 2][i % 2], n, at);
    }
  }
}

/// How a warpgroup's 64 rows of sums, Columns of them, go home as Out: through boxes of its own in shared memory,
/// two in turn. Boxed, Vector: as WarpgroupProduct has them. Turned: the rows of sums are columns at home.
template <class Out, int Columns, bool Boxed, int Vector, bool Turned = false>
struct WarpgroupResults {
  static constexpr int kBox = 64 * 128, kBytes = 2 * kBox;
  static constexpr int kAcross = 128 / int(sizeof(Out));  // elements of a box's row
  static constexpr int kHigh = Columns % 64 == 0 ? 64 : Columns % 32 == 0 ? 32 : 16;  // rows of a box that is turned

  /// Where a box has its elements.
  static TW_MEMBER unsigned char* staged(unsigned char* box, int row, int column) {
    const int byte = column * int(sizeof(Out));
    return box + row * 128 + ((byte / 16 ^ (row & 7)) << 4) + byte % 16;
  }
  /// High rows of Wide elements of a box to home, at (row, column) of a product that ends at (rows, columns).
  template <int High, int Wide>
  static TW_MEMBER void pieces(unsigned char* box, Out* home, int row, int rows, int column, int columns, i64 pitch,
                               int thread) {
    constexpr int kBytes = Vector * int(sizeof(Out));
    if constexpr (kBytes == 16) pieces_of<High, Wide, b128>(box, home, row, rows, column, columns, pitch, thread);
    else if constexpr (kBytes == 8) pieces_of<High, Wide, b64>(box, home, row, rows, column, columns, pitch, thread);
    else if constexpr (kBytes == 4) pieces_of<High, Wide, u32>(box, home, row, rows, column, columns, pitch, thread);
    else pieces_of<High, Wide, u16>(box, home, row, rows, column, columns, pitch, thread);
  }
  /// Several are read before they are stored: nothing moves ahead of a store, so that each would wait for its own read.
  template <int High, int Wide, class Piece>
  static TW_MEMBER void pieces_of(unsigned char* box, Out* home, int row, int rows, int column, int columns, i64 pitch,
                                  int thread) {
    constexpr int kPieces = Wide / Vector, kAll = High * kPieces, kTurns = (kAll + kWarpgroup - 1) / kWarpgroup;
    constexpr int kAtOnce = kTurns < 8 ? kTurns : 8;
    TW_NO_UNROLL
    for (int begin = 0; begin < kTurns; begin += kAtOnce) {
      Piece piece[kAtOnce];
      const auto each = [&](const auto& f) {
        TW_UNROLL
        for (int n = 0; n < kAtOnce; ++n) {
          const int i = (begin + n) * kWarpgroup + thread, r = i / kPieces, c = i % kPieces * Vector;
          if (i < kAll && row + r < rows && column + c < columns) f(piece[n], r, c);
        }
      };
      each([&](Piece& x, int r, int c) { x = *reinterpret_cast<const Piece*>(staged(box, r, c)); });
      each([&](Piece& x, int r, int c) { store_home(reinterpret_cast<Piece*>(home + (row + r) * pitch + column + c), x); });
    }
  }
  /// The box before the last has been read: its place is free.
  static TW_MEMBER unsigned char* next_box(unsigned char* mine, int& used, int group, int thread) {
    if constexpr (Boxed) {
      if (thread == 0) store_boxes_read<1>();
      barrier(1 + group, kWarpgroup);
    }
    return mine + (used++ & 1) * kBox;
  }
  /// All of a box is written. Where boxes leave in pieces, a warpgroup that is here again has written the box
  /// before: one barrier a box suffices.
  static TW_MEMBER void written(int group) {
    if constexpr (Boxed) shared_for_async();
    barrier(1 + group, kWarpgroup);
  }

  /// Width columns of sums, from c on.
  template <int Width>
  static TW_MEMBER void straight(const float (&sums)[Columns / 2], int c, unsigned char* box, const TensorMap& out,
                                 Out* home, const ResultPlace& p, i64 pitch, int group, int thread) {
    const int g = thread % 32 / 4, t = thread % 4 * 2, warp = thread / 32;
    TW_UNROLL
    for (int j = 0; j < Width / 8; ++j)
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int r = warp * 16 + g + h * 8, at = j * 8 + t;
        const float x[2] = {sums[(c / 8 + j) * 4 + h * 2], sums[(c / 8 + j) * 4 + h * 2 + 1]};
        if constexpr (sizeof(Out) == 2)
          *reinterpret_cast<u32*>(staged(box, r, at)) = Packed<Out>::of(x[0], x[1]);
        else
          *reinterpret_cast<b64*>(staged(box, r, at)) = two_floats(x);
      }
    written(group);
    if constexpr (Boxed) {
      if (thread == 0) {
        store_box(out, box, p.column + c, p.row, p.product);
        store_boxes_commit();
      }
    } else {
      pieces<64, Width>(box, home, p.row, p.rows, p.column + c, p.columns, pitch, thread);
    }
  }
  /// The same turned: of the rows of sums, those from `from` on that a box has room for.
  template <int Width>
  static TW_MEMBER void turned(const float (&sums)[Columns / 2], int c, int from, unsigned char* box,
                               const TensorMap& out, Out* home, const ResultPlace& p, i64 pitch, int group,
                               int thread) {
    const int lane = thread % 32, warp = thread / 32;
    if constexpr (sizeof(Out) == 2) {
      // Four matrices of 8 x 8: both halves of 16 rows of sums, of 16 columns.
      TW_UNROLL
      for (int j = 0; j < Width / 8; j += 2) {
        const float* const x = sums + (c / 8 + j) * 4;
        const u32 four[4] = {Packed<Out>::of(x[0], x[1]), Packed<Out>::of(x[2], x[3]), Packed<Out>::of(x[4], x[5]),
                             Packed<Out>::of(x[6], x[7])};
        stmatrix4_transposed(staged(box, j * 8 + lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8), four);
      }
    } else if (warp * 16 / kAcross * kAcross == from) {
      TW_UNROLL
      for (int j = 0; j < Width / 8; ++j)
        TW_UNROLL
        for (int e = 0; e < 4; ++e)
          *reinterpret_cast<float*>(staged(box, j * 8 + lane % 4 * 2 + e % 2, warp * 16 + lane / 4 + e / 2 * 8 - from)) =
              sums[(c / 8 + j) * 4 + e];
    }
    written(group);
    if constexpr (Boxed) {
      if (thread == 0) {
        TW_UNROLL
        for (int r = 0; r < Width; r += kHigh)
          store_box(out, box + r * 128, p.row + from, p.column + c + r, p.product);
        store_boxes_commit();
      }
    } else {
      pieces<Width, kAcross>(box, home, p.column + c, p.columns, p.row + from, p.rows, pitch, thread);
    }
  }

  /// `home`: of the product's results; `used`: boxes so far.
  static TW_MEMBER void write(const float (&sums)[Columns / 2], unsigned char* mine, int& used, const TensorMap& out,
                              Out* home, const ResultPlace& p, i64 pitch, int group, int thread) {
    constexpr int kWide = Turned ? 64 : kAcross, kRest = Columns % kWide;
    constexpr int kOfRows = Turned ? 64 / kAcross : 1;  // boxes side by side
    const auto box = [&] { return next_box(mine, used, group, thread); };
    TW_UNROLL
    for (int i = 0; i < Columns / kWide * kOfRows; ++i) {
      const int c = i / kOfRows * kWide, from = i % kOfRows * kAcross;
      if constexpr (Turned) turned<kWide>(sums, c, from, box(), out, home, p, pitch, group, thread);
      else straight<kWide>(sums, c, box(), out, home, p, pitch, group, thread);
    }
    if constexpr (kRest > 0)
      TW_UNROLL
      for (int i = 0; i < kOfRows; ++i) {
        constexpr int kAt = Columns / kWide * kWide;
        if constexpr (Turned) turned<kRest>(sums, kAt, i * kAcross, box(), out, home, p, pitch, group, thread);
        else straight<kRest>(sums, kAt, box(), out, home, p, pitch, group, thread);
      }
  }
};

/// The right operand is a matrix.
struct NoImages { static constexpr bool kAny = false; static constexpr int kPoints = 0, kOfGroup = 0; };
/// One loop of the points of images, Extent of them: which of the image's lines a tap needs for one.
template <int Extent, int Taps = 1, int Stride = 1, int Dilate = 1, int Pad = 0>
struct Along {
  static constexpr int kExtent = Extent, kTaps = Taps;
  static TW_MEMBER int line(int point, int tap) { return point % Extent * Stride + tap % Taps * Dilate - Pad; }
};
/// The right operand is images that have their channels side by side. Columns are points, X innermost, of which a tile
/// has Points. The depth is channels, for one tap of the window after the other. OfGroup: products of a group of
/// channels, which has weights and rows of results of its own; 0: there is one.
template <int Points, class X, class Y, class Z, class Image, int OfGroup = 0>
struct ImagePoints {
  static constexpr bool kAny = true;
  static constexpr int kPoints = Points, kOfGroup = OfGroup;
  static TW_MEMBER void copy(unsigned char* to, const TensorMap& map, u64* full, int channel, int tap, int point) {
    constexpr int kX = X::kExtent, kXY = kX * Y::kExtent, kXYZ = kXY * Z::kExtent;
    constexpr int kTx = X::kTaps, kTxy = kTx * Y::kTaps, kTxyz = kTxy * Z::kTaps;
    if (!one_of_warp()) return;
    load_box_of_images(to, map, full, channel, X::line(point, tap), Y::line(point / kX, tap / kTx),
                       Z::line(point / kXY, tap / kTxy), Image::line(point / kXYZ, tap / kTxyz));
  }
};

/// T: operands, Out: results at home. A tile of Groups * Blocks * 64 rows and Columns columns; a warpgroup has
/// Blocks * 64 rows of it. LeftAcross: the left operand lies [depth][rows], else [rows][depth]; RightAcross:
/// [depth][columns], else [columns][depth]. LeftAll, RightAll: all products have the same. Boxed: results leave in
/// boxes, else in pieces of Vector elements (their rows begin at multiples of so many). Share: blocks of a
/// cluster, which have parts of the depth of one tile. Turned: rows of the product are columns of the results at home,
/// which so have tiles of any 16 of their rows. Down, Across: tiles of a cluster's blocks, which share their operands.
/// LeftBefore, RightBefore: the launch before does not write it, so that boxes of it come before that has ended, those
/// of the first Ahead stages. LeftFold, RightFold: of the depth, in one matrix of the operand, the rest in those that
/// follow; 0: all.
/// Images: the right operand is none, and each tap of the window is a matrix of the left one. Operators: on elements,
/// after the product. Twin: of two products of the same left operand, whose right ones a stage
/// has one behind the other.
template <class T, class Out, int Groups, int Blocks, int Columns, int Stages, int Steps, bool LeftAcross,
          bool RightAcross, bool LeftAll, bool RightAll, bool Boxed, int Vector, int Share, bool Turned, int Down, int Across,
          bool LeftBefore = false, bool RightBefore = false, int Ahead = 0, int LeftFold = 0, int RightFold = 0,
          class Images = NoImages, class Operators = NoOperators, bool Twin = false>
struct WarpgroupProduct {
  static constexpr int kRows = Groups * Blocks * 64;
  static constexpr int kBox = 64 * 128;  // bytes of 64 rows
  static constexpr int kAllColumns = Twin ? 2 * Columns : Columns;
  static constexpr int kHeld = RightAcross ? (Columns + 63) / 64 * 64 : Columns, kOwn = kHeld * 128;  // in boxes
  static constexpr int kLeft = kRows * 128, kRight = (Twin ? 2 : 1) * kOwn, kStep = kLeft + kRight;
  static constexpr int kStage = Steps * kStep;
  static constexpr int kArriving = Images::kAny ? Steps * (kLeft + Images::kPoints * 128) : kStage;
  static constexpr int kTiles = Down * Across;              // of a cluster
  static constexpr int kPeers = Down + Across - 1;          // blocks that copy to this one, itself among them
  static constexpr int kBlocks = Share > 1 ? Share : kTiles;  // of a cluster
  using Results = WarpgroupResults<Out, Columns, Boxed, Vector, Turned>;
  static constexpr int kStaged = Share > 1 ? 0 : Results::kBytes;
  // Sums that the cluster's blocks read of one another lie in the ring as results do at home, rows so far apart that
  // fragments meet in no bank.
  static constexpr int kDown = Turned ? Columns : kRows, kWide = Turned ? kRows : Columns;
  static constexpr int kPitch = kWide + (Turned ? 4 : 8);
  // Registers of an SM, shared out again when roles are known: PTX ISA, setmaxnreg.
  static constexpr int kCopying = Share > 1 ? 56 : Groups == 2 ? 40 : 32;
  static constexpr int kComputing = (Groups == 2 ? 232 : 160) - (Share > 1 ? 8 : 0);
  static_assert(Groups >= 1 && Groups <= 3 && Columns % 16 == 0 && Columns <= 256, "as wgmma has them");
  static_assert(!Twin || kHeld == Columns, "an instruction multiplies by both, one behind the other");
  static_assert(Share == 1 || kTiles == 1, "one or the other");
  static_assert(Share == 1 || !Operators::kAny, "sums of a cluster's blocks leave as they are");
  static_assert(!Twin || (Operators::kAny && kTiles == 1 && kAllColumns <= 256), "operators join two products' sums");
  static_assert(LeftFold % 64 == 0 && RightFold % 64 == 0, "boxes lie in one matrix");
  static_assert(!Images::kAny || (LeftFold > 0 && LeftAll && !LeftAcross && !RightAcross && Down == 1 && !Twin &&
                                  Images::kPoints <= Columns), "boxes of all of a tile's points");
  static_assert(Images::kOfGroup == 0 || kTiles == 1, "boxes of a group's rows go to one block");
  static_assert(kRows % (8 * Across) == 0 && Columns % (8 * Down) == 0, "parts of boxes in whole swizzles");
  static_assert(Share == 1 || (kDown * kPitch * 4 <= Stages * kStage && !Boxed && Vector <= 4), "room for sums");

  /// What lies behind the ring: barriers of full and of free stages.
  struct Ring {
    unsigned char* memory;
    u64 *full, *empty;
    int stage = 0;
    u32 parity = 0;
    TW_MEMBER void next() {
      if (++stage == Stages) stage = 0, parity ^= 1;
    }
    TW_MEMBER unsigned char* left(int step) const { return memory + stage * kStage + step * kStep; }
    TW_MEMBER unsigned char* right(int step) const { return left(step) + kLeft; }
  };

  /// This block's tile of its cluster's.
  static TW_MEMBER int row_of() { return blockIdx.x % kTiles / Across; }
  static TW_MEMBER int column_of() { return blockIdx.x % Across; }
  /// Block `i` of those with which this one shares an operand.
  static TW_MEMBER u32 peer(int i) {
    if (i < Across) return row_of() * Across + i;
    return (i - Across < row_of() ? i - Across : i - Across + 1) * Across + column_of();
  }

  /// Tiles of a cluster, in groups of rows of them.
  static TW_MEMBER ProductPlace place(const ProductSize& s, int tile) {
    constexpr int kHigh = kRows * Down;
    const int width = s.apart * Across;
    const int across = (s.columns + width - 1) / width, down = (s.rows + kHigh - 1) / kHigh;
    const int in = tile % (across * down), first = in / (s.group * across) * s.group;
    const int high = least(down - first, s.group), at = in % (s.group * across);
    return {(first + at % high) * kHigh + row_of() * kRows, at / high * width + column_of() * s.apart,
            tile / (across * down)};
  }
  static TW_MEMBER int tiles(const ProductSize& s) {
    constexpr int kHigh = kRows * Down;
    const int width = s.apart * Across;
    return (s.columns + width - 1) / width * ((s.rows + kHigh - 1) / kHigh) * s.count;
  }

  static TW_MEMBER int group_of(int product) { return Images::kOfGroup > 0 ? product / Images::kOfGroup : 0; }
  /// Where results of a product lie: those of a group after those of the group before.
  static TW_MEMBER Out* home_of(Out* home, int product, i64 pitch, i64 apart, const ProductSize& s) {
    if constexpr (Images::kOfGroup == 0) return home + product * apart;
    else return home + product % Images::kOfGroup * apart + i64(group_of(product)) * s.rows * (Turned ? 1 : pitch);
  }

  /// Where the columns end that a tile has for its own.
  static TW_MEMBER int columns_end(const ProductSize& s, const ProductPlace& p) {
    return s.apart == Columns ? s.columns : least(s.columns, p.column + s.apart);
  }

  /// 64 rows of a tile's results, from `row` of it on. Boxes lie in one matrix of all groups' rows.
  static TW_MEMBER ResultPlace results_place(const ProductSize& s, const ProductPlace& p, int row) {
    const bool all = Boxed && Images::kOfGroup > 0;
    return {p.row + row + (all ? group_of(p.product) * s.rows : 0), s.rows, p.column, columns_end(s, p),
            all ? p.product % (Images::kOfGroup > 0 ? Images::kOfGroup : 1) : p.product};
  }

  /// This block's part of the depth.
  static TW_MEMBER int first_of(const ProductSize& s) { return Share > 1 ? blockIdx.x % Share * s.part : 0; }
  static TW_MEMBER int end_of(const ProductSize& s) {
    return Share > 1 ? least(first_of(s) + s.part, s.depth) : s.depth;
  }

  /// A part of one operand's boxes of a stage: of Parts blocks that need it, the one that is `mine`; to those of `mask`.
  template <bool Across_, int Rows, int Parts>
  static TW_MEMBER void copy_part(unsigned char* to, const TensorMap& map, u64* full, int begin, int depth, int product,
                                  int mine, u32 mask) {
    constexpr int kPart = (Across_ ? 64 : Rows) / Parts;
    TW_UNROLL
    for (int i = 0; i < (Across_ ? Rows / 64 : 1); ++i) {
      unsigned char* const box = to + i * kBox + mine * kPart * 128;
      const int x = Across_ ? begin + i * 64 : depth, y = (Across_ ? depth : begin) + mine * kPart;
      if (!one_of_warp()) continue;
      if constexpr (Parts > 1) load_box_for(box, map, full, x, y, product, mask);
      else load_box(box, map, full, x, y, product);
    }
  }
  /// Where in its matrix a point of the depth lies; `matrix`: of which product, and then which of its own.
  template <int Fold>
  static TW_MEMBER int folded(int depth, int& matrix, const ProductSize& s) {
    if constexpr (Fold == 0) return depth;
    else return matrix = matrix * (s.depth / Fold) + depth / Fold, depth % Fold;
  }
  /// Boxes of a stage: of the left operand, of the right one.
  template <bool Left, bool Right>
  static TW_MEMBER void copy_stage(const Ring& ring, const TensorMap& left, const TensorMap& right,
                                   const TensorMap& twin, const ProductSize& s, const ProductPlace& p, int k) {
    u64* const full = ring.full + ring.stage;
    TW_UNROLL
    for (int step = 0; step < Steps; ++step) {
      int of_left = LeftAll ? 0 : p.product, of_right = RightAll ? 0 : p.product;
      const int left_depth = folded<LeftFold>(k + step * 64, of_left, s);
      const int right_depth = folded<RightFold>(k + step * 64, of_right, s);
      u32 below = 0;  // the first block of each row of the cluster's tiles
      TW_UNROLL
      for (int i = 0; i < Down; ++i) below |= 1u << (i * Across);
      if constexpr (Left && Images::kOfGroup > 0) {
        if (one_of_warp())
          load_box_of_images(ring.left(step), left, full, left_depth, p.row, of_left, group_of(p.product), 0);
      } else if constexpr (Left)
        copy_part<LeftAcross, kRows, Across>(ring.left(step), left, full, p.row, left_depth, of_left, column_of(),
                                             ((1u << Across) - 1) << (row_of() * Across));
      if constexpr (Right && Images::kAny)
        Images::copy(ring.right(step), right, full, left_depth, of_left, p.product * s.columns + p.column);
      if constexpr (Right && !Images::kAny)
        copy_part<RightAcross, kHeld, Down>(ring.right(step), right, full, p.column, right_depth, of_right, row_of(),
                                              below << column_of());
      if constexpr (Right && Twin)
        copy_part<RightAcross, kHeld, 1>(ring.right(step) + kOwn, twin, full, p.column, right_depth, of_right, 0, 0);
    }
  }
  static constexpr bool kBefore = (LeftBefore || RightBefore) && Ahead > 0;
  static_assert(Ahead <= Stages, "stages that are free from the beginning");
  /// What the launch before does not write, of the stages that are free from the beginning.
  static TW_MEMBER void copy_before(Ring ring, const TensorMap& left, const TensorMap& right, const TensorMap& twin,
                                    const ProductSize& s, const ProductPlace& p) {
    for (int k = first_of(s), i = 0; k < end_of(s) && i < Ahead; k += 64 * Steps, ++i) {
      if (one_of_warp()) mbarrier_arrive_expecting(ring.full + ring.stage, kArriving);
      copy_stage<LeftBefore, RightBefore>(ring, left, right, twin, s, p, k);
      ring.next();
    }
  }
  /// `begun`: stages of which copy_before has begun a part.
  static TW_MEMBER void copy(Ring& ring, const TensorMap& left, const TensorMap& right, const TensorMap& twin,
                             const ProductSize& s, const ProductPlace& p, int begun) {
    for (int k = first_of(s); k < end_of(s); k += 64 * Steps) {
      if (kBefore && begun-- > 0) {
        copy_stage<!LeftBefore, !RightBefore>(ring, left, right, twin, s, p, k);
      } else {
        mbarrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
        if (one_of_warp()) mbarrier_arrive_expecting(ring.full + ring.stage, kArriving);
        copy_stage<true, true>(ring, left, right, twin, s, p, k);
      }
      ring.next();
    }
  }

  /// Columns of a tile beyond its points, which no box brings, and which are multiplied all the same.
  static TW_MEMBER void clear_past_points(Ring ring) {
    constexpr int kFrom = Images::kPoints * 128, kPieces = (kOwn - kFrom) / 16;
    for (int i = threadIdx.x; i < Stages * Steps * kPieces; i += kWarpgroup * (Groups + 1)) {
      ring.stage = i / (Steps * kPieces);
      *reinterpret_cast<b128*>(ring.right(i / kPieces % Steps) + kFrom + i % kPieces * 16) = b128{};
    }
    shared_for_async();
  }

  /// To all blocks that copy to this one.
  static TW_MEMBER void give_back(u64* stage, int thread) {
    if constexpr (kTiles > 1) {
      if (thread < kPeers) mbarrier_arrive_of_block(stage, peer(thread));
    } else {
      if (thread == 0) mbarrier_arrive(stage);
    }
  }
  /// One tile's sums. A stage is given back when the products after those that read it are under way.
  static TW_MEMBER void multiply(Ring& ring, float (&sums)[Blocks][kAllColumns / 2], int group, int depth, int thread) {
    int behind = -1;
    for (int k = 0; k < depth; k += 64 * Steps) {
      mbarrier_wait(ring.full + ring.stage, ring.parity);
      TW_UNROLL
      for (int i = 0; i < Blocks; ++i) keep(sums[i]);
      wgmma_begin();
      TW_UNROLL
      for (int step = 0; step < Steps; ++step) {
        const u64 a = operand_at(ring.left(step) + group * Blocks * kBox, kBox),
                  b = operand_at(ring.right(step), kBox);
        // 16 of the depth further: 32 bytes along a row, or 16 rows; descriptors count in 16 bytes.
        TW_UNROLL
        for (int q = 0; q < 4; ++q)
          TW_UNROLL
          for (int i = 0; i < Blocks; ++i)
            Wgmma<kAllColumns>::template multiply<T, LeftAcross, RightAcross>(
                sums[i], a + i * (kBox / 16) + q * (LeftAcross ? 128 : 2), b + q * (RightAcross ? 128 : 2),
                k > 0 || step > 0 || q > 0);
      }
      wgmma_commit();
      TW_UNROLL
      for (int i = 0; i < Blocks; ++i) keep(sums[i]);
      wgmma_wait<1>();
      if (behind >= 0) give_back(ring.empty + behind, thread);
      behind = ring.stage;
      ring.next();
    }
    wgmma_wait<0>();
    TW_UNROLL
    for (int i = 0; i < Blocks; ++i) keep(sums[i]);
    give_back(ring.empty + behind, thread);
  }

  /// A cluster's last tiles may lie past an end. Their blocks copy and get what the others do, and multiply nothing.
  static TW_MEMBER bool is_there(const ProductSize& s, const ProductPlace& p) {
    return kTiles == 1 || (p.row < s.rows && p.column < s.columns);
  }
  static TW_MEMBER void pass(Ring& ring, int depth, int thread) {
    for (int k = 0; k < depth; k += 64 * Steps) {
      mbarrier_wait(ring.full + ring.stage, ring.parity);
      give_back(ring.empty + ring.stage, thread);
      ring.next();
    }
  }

  /// Sums to where the cluster's other blocks find them: in the ring, which nobody uses any more.
  static TW_MEMBER void put(float* partial, const float (&sums)[Blocks][Columns / 2], int group, int thread) {
    const int g = thread % 32 / 4, t = thread % 4 * 2, warp = thread / 32;
    TW_UNROLL
    for (int i = 0; i < Blocks; ++i)
      TW_UNROLL
      for (int j = 0; j < Columns / 8; ++j)
        TW_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int row = (group * Blocks + i) * 64 + warp * 16 + g + h * 8;
          const float* const x = sums[i] + j * 4 + h * 2;
          if constexpr (Turned) {
            partial[(j * 8 + t) * kPitch + row] = x[0];
            partial[(j * 8 + t + 1) * kPitch + row] = x[1];
          } else {
            *reinterpret_cast<b64*>(partial + row * kPitch + j * 8 + t) = two_floats(x);
          }
        }
  }
  /// Some of the tile's rows to home, as they are there: of each block's sums, in the order of the depth.
  static TW_MEMBER void join(const float* partial, Out* home, const ProductSize& s, const ProductPlace& p,
                             i64 pitch, int thread) {
    constexpr int kPer = (kDown + Share - 1) / Share, kPieces = kWide / 4;
    const int top = Turned ? p.column : p.row, left = Turned ? p.row : p.column;
    const int bottom = Turned ? columns_end(s, p) : s.rows, right = Turned ? s.rows : columns_end(s, p);
    const int first = blockIdx.x % Share * kPer, rows = least(least(first + kPer, kDown), bottom - top) - first;
    // Several pieces at a time: what other blocks have comes late.
    constexpr int kThreads = Groups * kWarpgroup, kAll = (kPer * kPieces + kThreads - 1) / kThreads;
    constexpr int kRoom = (Share > 4 ? 12 : Groups == 3 ? 6 : 8) / Share, kAtOnce = kAll < kRoom ? kAll : kRoom;
    for (int begin = thread; begin < rows * kPieces; begin += kAtOnce * kThreads) {
      b128 parts[kAtOnce][Share];
      TW_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * kThreads, row = first + i / kPieces, column = i % kPieces * 4;
        if (i >= rows * kPieces || left + column >= right) continue;
        TW_UNROLL
        for (int b = 0; b < Share; ++b) parts[j][b] = load_of_block(partial + row * kPitch + column, b);
      }
      TW_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * kThreads, row = first + i / kPieces, column = i % kPieces * 4;
        if (i >= rows * kPieces || left + column >= right) continue;
        float sum[4] = {};
        TW_UNROLL
        for (int b = 0; b < Share; ++b) {
          sum[0] += __builtin_bit_cast(float, parts[j][b].x), sum[1] += __builtin_bit_cast(float, parts[j][b].y);
          sum[2] += __builtin_bit_cast(float, parts[j][b].z), sum[3] += __builtin_bit_cast(float, parts[j][b].w);
        }
        leave(sum, home + (top + row) * pitch + left + column, right - left - column);
      }
    }
  }
  /// Four results, or as many as there are, side by side.
  static TW_MEMBER void leave(const float (&sum)[4], Out* to, int there) {
    TW_UNROLL
    for (int v = 0; v < 4; v += Vector) {
      if (v >= there) break;
      if constexpr (Vector == 1) {
        store_home(to + v, Rounded<Out>::of(sum[v]));
      } else if constexpr (sizeof(Out) == 4) {
        if constexpr (Vector == 4) store_home(reinterpret_cast<b128*>(to), four_floats(sum));
        else store_home(reinterpret_cast<b64*>(to + v), two_floats(sum + v));
      } else if constexpr (Vector == 4) {
        store_home(reinterpret_cast<b64*>(to), b64{Packed<Out>::of(sum[0], sum[1]), Packed<Out>::of(sum[2], sum[3])});
      } else {
        store_home(reinterpret_cast<u32*>(to + v), Packed<Out>::of(sum[v], sum[v + 1]));
      }
    }
  }
  /// Of a warpgroup's sums those of the first product.
  static TW_MEMBER float (&of_first(float (&sums)[kAllColumns / 2]))[Columns / 2] {
    return reinterpret_cast<float (&)[Columns / 2]>(sums);
  }
  static TW_MEMBER void run(unsigned char* memory, const TensorMap& left, const TensorMap& right,
                            const TensorMap& out, Out* home, i64 pitch, i64 apart, const ProductSize& s,
                            const Operators& operators = {}) {
    run(memory, left, right, out, right, home, pitch, apart, s, operators);
  }
  static TW_MEMBER void run(unsigned char* memory, const TensorMap& left, const TensorMap& right, const TensorMap& out,
                            const TensorMap& twin, Out* home, i64 pitch, i64 apart, const ProductSize& s,
                            const Operators& operators) {
    unsigned char* const boxes = memory + Stages * kStage;
    u64* const full = made_here(reinterpret_cast<u64*>(boxes + Groups * kStaged));
    Ring ring{memory, full, full + Stages};
    const int thread = threadIdx.x % kWarpgroup, warp = same_in_warp(threadIdx.x / 32), role = warp / 4;
    if (threadIdx.x == 0) {
      prefetch_map(left);
      prefetch_map(right);
      if constexpr (Twin) prefetch_map(twin);
      if constexpr (Boxed) prefetch_map(out);
      for (int i = 0; i < Stages; ++i) {
        mbarrier_init(ring.full + i, 1);
        mbarrier_init(ring.empty + i, Groups * kPeers);
      }
      mbarriers_made();
    }
    if constexpr (Images::kAny && Images::kPoints < Columns) clear_past_points(ring);
    if constexpr (kTiles > 1) cluster_meet();  // nobody copies to where no barriers are
    else block_sync();
    const int first_tile = blockIdx.x / kBlocks, at_once = gridDim.x / kBlocks;
    if constexpr (kBefore) {
      if (warp == 0) copy_before(ring, left, right, twin, s, place(s, first_tile));
    }
    launches_ended();
    if (role == 0) {
      if constexpr (Groups > 1) fewer_registers<kCopying>();
      if (kBlocks == 1 && warp != 0) return;
      for (int tile = first_tile; tile < tiles(s); tile += at_once) {
        if (warp == 0) copy(ring, left, right, twin, s, place(s, tile), tile == first_tile ? Ahead : 0);
        if constexpr (Share > 1) {
          cluster_sync();  // the ring is for sums until they are read
          cluster_meet();
        }
      }
    } else {
      if constexpr (Groups > 1) more_registers<kComputing>();
      const int group = role - 1;
      unsigned char* const mine = boxes + group * kStaged;
      int used = 0;
      for (int tile = first_tile; tile < tiles(s); tile += at_once) {
        float sums[Blocks][kAllColumns / 2];
        const bool there = is_there(s, place(s, tile));
        if (there) multiply(ring, sums, group, end_of(s) - first_of(s), thread);
        else pass(ring, end_of(s) - first_of(s), thread);
        if (tile + at_once >= tiles(s)) next_launch_may_begin();
        if (!there) continue;
        if constexpr (Share > 1) {
          float* const partial = reinterpret_cast<float*>(memory);
          barrier(1 + Groups, Groups * kWarpgroup);  // nobody reads the ring any more
          put(partial, sums, group, thread);
          shared_for_async();  // boxes come there again
          cluster_sync();
          const ProductPlace p = place(s, tile);
          join(partial, home_of(home, p.product, pitch, apart, s), s, p, pitch, threadIdx.x - kWarpgroup);
          cluster_meet();  // no block's sums are overwritten, nor its memory given up, before all are read
        } else {
          const ProductPlace p = place(s, tile);
          if constexpr (Operators::kAny) {
            TW_UNROLL
            for (int i = 0; i < Blocks; ++i)
              change_sums<Columns>(operators, sums[i], p.row + (group * Blocks + i) * 64, p, s.rows, columns_end(s, p),
                                   thread);
          }
          TW_UNROLL
          for (int i = 0; i < Blocks; ++i)
            Results::write(of_first(sums[i]), mine, used, out,
                           Boxed ? home : home_of(home, p.product, pitch, apart, s), results_place(s, p, (group * Blocks + i) * 64),
                           pitch, group, thread);
        }
      }
      if constexpr (Boxed) {
        if (thread == 0) store_boxes_read<0>();
      }
    }
    if constexpr (kTiles > 1) cluster_meet();  // nobody gives a stage back to a block that has ended
  }
};

}  // namespace tw
