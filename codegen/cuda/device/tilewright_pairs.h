// A whole kernel of two matrix products, the first one's results the second one's left operand, by Hopper's
// warpgroups: results of the first stay in registers, where operators between the two change them, and become the
// operand of the second there. One thread copies boxes of all three operands ahead by the TMA unit. The operators
// are the plan's: `Between` has their text. Plain C++ on top of tilewright_hopper.h.
#pragma once

#include "tilewright_warpgroups.h"

namespace tw {

/// Which of a tensor's matrices a product has: product / divide % modulo.
struct MatrixOf {
  int divide, modulo;
  TW_MEMBER int of(int product) const { return product / divide % modulo; }
};
/// Extents: rows of the results, what the second product sums over, columns of the results; how many there are.
/// `section`: with a mask, how many of them have their tiles together. `chunk`: of the right and second operands' rows,
/// `step` apart; of a step of zero there are none.
struct PairSize {
  int rows, middle, columns, count;
  MatrixOf left, right, second, result;
  int section;
  MatrixOf chunk;
  int step;
};
/// Columns of the first product from `from` on, before `to`.
struct PairColumns { int from, to; };
TW_DEVICE int floor_divide(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
/// Where a thread's values are: its first row (the other is 8 further down) and its first column of the
/// tile, which product, and the ends of the tensors.
struct PairPoint { int row, column, product, columns; };

/// What operators read at home: two neighbours of a row of `columns`, `apart` elements from one to the other. Pairs: they
/// lie in one word, which is taken apart where it is used: until then nothing waits for it. Ragged: they may lie past the
/// row's end, and are any elements of it then. `counts`: no other thread of the block reads them; `first`: the first of them.
template <int Bytes> struct WordOf { using Type = u32; };
template <> struct WordOf<8> { using Type = b64; };
template <class T> struct TwoOf { T x[2]; };
template <bool Pairs, class T> struct Neighbours {
  using Word = typename WordOf<2 * sizeof(T)>::Type;
  Word word;
  template <bool Ragged>
  TW_MEMBER void read(const T* row, int column, int columns, i64, bool counts, bool) {
    const int at = Ragged ? least(column, columns - 2) : column;
    word = read_after_launch(reinterpret_cast<const Word*>(row + at), counts && at == column);
  }
  TW_MEMBER float at(int which) const { return to_float(__builtin_bit_cast(TwoOf<T>, word).x[which]); }
};
template <class T> struct Neighbours<false, T> {
  T x[2];
  template <bool Ragged>
  TW_MEMBER void read(const T* row, int column, int columns, i64 apart, bool counts, bool first) {
    TW_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int at = Ragged ? least(column + i, columns - 1) : column + i;
      x[i] = read_after_launch(row + at * apart, (counts || (first && i == 0)) && at == column + i);
    }
  }
  TW_MEMBER float at(int which) const { return to_float(x[which]); }
};

/// exp(factor * a - b), where b is the same for many: one multiply-add and one instruction of the special units.
TW_DEVICE float exp_of_difference(float a, float b, float factor = 1.0f) {
  constexpr float kLog2e = 1.4426950408889634f;
  return exp2_quick(fmaf(a, factor * kLog2e, -b * kLog2e));
}

/// An operand's tile in shared memory: boxes of 64 of the depth and all that lies across it or, where rows run across
/// the depth, the other way round.
template <int Outer, int Depth, bool Across>
struct PairTile {
  static constexpr int kDeep = (Depth + 15) / 16 * 16;
  static constexpr int kBoxes = ((Across ? Outer : Depth) + 63) / 64, kBox = (Across ? kDeep : Outer) * 128;
  static constexpr int kBytes = kBoxes * kBox;
  static TW_MEMBER void load(unsigned char* to, const TensorMap& map, u64* full, int outer, int depth, int product) {
    TW_UNROLL
    for (int i = 0; i < kBoxes; ++i)
      load_box(to + i * kBox, map, full, Across ? outer + i * 64 : depth + i * 64, Across ? depth : outer, product);
  }
  /// From the rows of a warpgroup on, and how much further the q-th 16 of the depth are.
  static TW_MEMBER u64 at(const unsigned char* tile, int group = 0) {
    return operand_at(tile + group * (Across ? kBox : 64 * 128), kBox);
  }
  static TW_MEMBER int further(int q) { return Across ? q * 128 : q / 4 * (kBox / 16) + q % 4 * 2; }
};

/// Tiles of Groups * 64 rows and Columns columns, the sum over the middle in steps of Middle, the first product's depth
/// at once. Ragged: Middle does not divide it. Across: as WarpgroupProduct has it, of each operand.
template <class T, class Out, class Between, int Groups, int Middle, int Columns, int Depth, int Stages, bool LeftAcross,
          bool RightAcross, bool SecondAcross, bool Ragged, bool Boxed, int Vector>
struct WarpgroupPair {
  static constexpr int kRows = Groups * 64;
  using Left = PairTile<kRows, Depth, LeftAcross>;
  using Right = PairTile<Middle, Depth, RightAcross>;
  using Second = PairTile<Columns, Middle, SecondAcross>;
  using Results = WarpgroupResults<Out, Columns, Boxed, Vector>;
  // Registers of an SM, shared out again when roles are known: PTX ISA, setmaxnreg.
  static constexpr int kCopying = Groups == 2 ? 24 : 32, kComputing = Groups == 2 ? 240 : 160;
  // Whether a turn waits for the next one's operand before it waits for the second product. ptxas moves a wait for
  // products forward over arithmetic, to where the operators begin that run meanwhile, but not over a branch. Where edges
  // or masks are, the operators have one.
  // The next operand comes when the second product has given its stage back, if there is only one.
  static constexpr bool kWaitsAhead = !Ragged && !Between::kMasked && !Between::kGuarded && Stages > 1;
  static_assert(Groups >= 1 && Groups <= 3 && Middle % 16 == 0 && Middle <= 256, "as wgmma has them");
  static_assert(Columns % 16 == 0 && Columns <= 256, "as wgmma has them");

  /// Two tiles in turn, each with barriers of full and of free stages.
  struct Ring {
    unsigned char* memory;
    u64 *full, *empty;
    int bytes, stage = 0;
    u32 parity = 0;
    TW_MEMBER unsigned char* tile() const { return memory + stage * bytes; }
    TW_MEMBER void next() {
      if (++stage == Stages) stage = 0, parity ^= 1;
    }
    /// Waits until the stage is free, and expects a tile and so many bytes more.
    TW_MEMBER u64* fill(int more = 0) const {
      mbarrier_wait(empty + stage, parity ^ 1);
      mbarrier_arrive_expecting(full + stage, bytes + more);
      return full + stage;
    }
    TW_MEMBER void wait() const { mbarrier_wait(full + stage, parity); }
    TW_MEMBER void give(bool first) {
      if (first) mbarrier_arrive(empty + stage);
      next();
    }
  };

  /// Tiles of one product follow one another: their operands meet in L2. With a mask rows of more turns come first,
  /// of some products together.
  static TW_MEMBER ProductPlace place(const PairSize& s, int tile) {
    const int down = (s.rows + kRows - 1) / kRows, across = (s.columns + Columns - 1) / Columns;
    if constexpr (!Between::kMasked) {
      return {tile % down * kRows, tile / down % across * Columns, tile / (across * down)};
    } else {
      const int each = s.section * down * across, first = tile / each * s.section;
      const int together = least(s.section, s.count - first) * across;
      const int rows = tile % each / together, other = tile % each % together;
      return {(Between::kLastFirst ? down - 1 - rows : rows) * kRows, other % across * Columns,
              first + other / across};
    }
  }
  /// The block's tile of a round. With a mask every other round goes through the blocks backwards, so that all have
  /// about as many turns.
  static TW_MEMBER int tile_of(int round) {
    const int at = Between::kMasked && round % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    return round * gridDim.x + at;
  }
  static TW_MEMBER int tiles(const PairSize& s) {
    return (s.columns + Columns - 1) / Columns * ((s.rows + kRows - 1) / kRows) * s.count;
  }
  /// Turns of the tile of rows from `row` on: those that a mask leaves an element of.
  struct Turns { int from, to; };
  static TW_MEMBER Turns turns(const PairSize& s, int row) {
    if constexpr (Between::kMasked) {
      const PairColumns c = Between::needed(row, least(row + kRows, s.rows) - 1, s.middle);
      return {c.from / Middle, (c.to + Middle - 1) / Middle};
    } else {
      return {0, (s.middle + Middle - 1) / Middle};
    }
  }

  /// The left operand comes with the first tile of the right one.
  static TW_MEMBER void copy(unsigned char* of_left, u64* left_free, u32& parity, Ring& rights, Ring& seconds,
                             const TensorMap& left, const TensorMap& right, const TensorMap& second, const PairSize& s,
                             const ProductPlace& p) {
    mbarrier_wait(left_free, parity ^ 1);
    parity ^= 1;
    const Turns all = turns(s, p.row);
    const int begin = s.chunk.of(p.product) * s.step;
    for (int turn = all.from; turn < all.to; ++turn) {
      const int l = begin + turn * Middle;
      u64* const full = rights.fill(turn == all.from ? Left::kBytes : 0);
      if (turn == all.from) Left::load(of_left, left, full, p.row, 0, s.left.of(p.product));
      Right::load(rights.tile(), right, full, l, 0, s.right.of(p.product));
      rights.next();
      Second::load(seconds.tile(), second, seconds.fill(), p.column, l, s.second.of(p.product));
      seconds.next();
    }
  }

  static TW_MEMBER void first_product(float (&x)[Middle / 2], u64 left, u64 right) {
    TW_UNROLL
    for (int q = 0; q < Left::kDeep / 16; ++q)
      Wgmma<Middle>::template multiply<T, LeftAcross, RightAcross>(x, left + Left::further(q), right + Right::further(q),
                                                                   q > 0);
    wgmma_commit();
  }
  static TW_MEMBER void second_product(float (&sums)[Columns / 2], u32 (&x)[Middle / 16][4], u64 right) {
    TW_UNROLL
    for (int q = 0; q < Middle / 16; ++q)
      Wgmma<Columns>::template multiply_registers<T, SecondAcross>(sums, x[q], right + Second::further(q));
    wgmma_commit();
  }
  /// The operators between; columns past the end add nothing to what follows. `whole`: columns of the warpgroup's
  /// rows that no mask touches and that are none past the end.
  static TW_MEMBER void between(Between& ops, float (&x)[Middle / 2], const PairPoint& at, const PairColumns& whole) {
    if constexpr (Ragged || Between::kMasked || Between::kGuarded) {
      const int column = at.column - int(threadIdx.x % 4 * 2);
      if (column < whole.from || column + Middle > whole.to) return ops.template step<Ragged, true>(x, at);
    }
    ops.template step<false, false>(x, at);
  }
  static TW_MEMBER PairPoint next_turn(PairPoint at) {
    at.column += Middle;
    return at;
  }
  static TW_MEMBER void pack(u32 (&to)[Middle / 16][4], const float (&x)[Middle / 2]) {
    TW_UNROLL
    for (int q = 0; q < Middle / 16; ++q)
      TW_UNROLL
      for (int i = 0; i < 4; ++i) to[q][i] = Packed<T>::of(x[q * 8 + i * 2], x[q * 8 + i * 2 + 1]);
  }

  /// One tile: while the first product of a turn is under way so is the second one of the turn before, and
  /// while that is the operators of this turn run.
  static TW_MEMBER void compute(Between& ops, float (&sums)[Columns / 2], const unsigned char* left, u64* left_free,
                                Ring& rights, Ring& seconds, const Turns& all, const PairColumns& whole, PairPoint at,
                                int group, bool first) {
    float x[Middle / 2];
    u32 packed[Middle / 16][4];
    TW_UNROLL
    for (int i = 0; i < Columns / 2; ++i) sums[i] = 0;
    ops.begin();
    ops.open(at);
    ops.read(at);
    rights.wait();
    keep(x);
    wgmma_begin();
    first_product(x, Left::at(left, group), Right::at(rights.tile()));
    keep(x);
    wgmma_wait<0>();
    keep(x);
    rights.give(first);
    if (all.from + 1 == all.to && first) mbarrier_arrive(left_free);
    between(ops, x, at, whole);
    if (Between::kReads && all.from + 1 < all.to) ops.read(next_turn(at));
    pack(packed, x);
    if (kWaitsAhead && all.from + 1 < all.to) rights.wait();
    for (int turn = all.from + 1; turn < all.to; ++turn) {
      // Made before the turn's operands have come: its first instruction waits for nothing else.
      u64 operands[3] = {Left::at(left, group), Right::at(rights.tile()), Second::at(seconds.tile())};
      keep(operands);
      // Before the products: between their instructions a warpgroup's threads must not go ways of their own.
      if constexpr (!kWaitsAhead) rights.wait();
      seconds.wait();
      keep(x);
      keep(sums);
      wgmma_begin();
      first_product(x, operands[0], operands[1]);
      second_product(sums, packed, operands[2]);
      keep(x);
      keep(sums);
      wgmma_wait<1>();
      keep(x);
      rights.give(first);
      if (turn + 1 == all.to && first) mbarrier_arrive(left_free);
      at.column += Middle;
      between(ops, x, at, whole);
      if (Between::kReads && turn + 1 < all.to) ops.read(next_turn(at));
      if (kWaitsAhead && turn + 1 < all.to) rights.wait();
      wgmma_wait<0>();
      keep(sums);
      seconds.give(first);
      ops.rescale(sums);
      pack(packed, x);
    }
    seconds.wait();
    keep(sums);
    wgmma_begin();
    second_product(sums, packed, Second::at(seconds.tile()));
    keep(sums);
    wgmma_wait<0>();
    keep(sums);
    seconds.give(first);
  }

  static TW_MEMBER void run(unsigned char* memory, const TensorMap& left, const TensorMap& right, const TensorMap& second,
                            const TensorMap& out, Out* home, i64 pitch, i64 apart, const PairSize& s,
                            const Between& given = {}) {
    unsigned char* const of_right = memory + Left::kBytes;
    unsigned char* const of_second = of_right + Stages * Right::kBytes;
    unsigned char* const boxes = of_second + Stages * Second::kBytes;
    u64* const barriers = made_here(reinterpret_cast<u64*>(boxes + Groups * Results::kBytes));
    u64* const left_free = barriers + 4 * Stages;
    Ring rights{of_right, barriers, barriers + Stages, Right::kBytes};
    Ring seconds{of_second, barriers + 2 * Stages, barriers + 3 * Stages, Second::kBytes};
    const int thread = threadIdx.x % kWarpgroup, role = same_in_warp(threadIdx.x / kWarpgroup);
    if (threadIdx.x == 0) {
      for (int i = 0; i < 4 * Stages; ++i) mbarrier_init(barriers + i, i / Stages % 2 == 0 ? 1 : Groups);
      mbarrier_init(left_free, Groups);
      mbarriers_made();
    }
    block_sync();
    launches_ended();
    if (role == 0) {
      if constexpr (Groups > 1) fewer_registers<kCopying>();
      if (thread != 0) return;
      u32 parity = 0;
      for (int round = 0, tile = tile_of(0); tile < tiles(s); tile = tile_of(++round))
        copy(memory, left_free, parity, rights, seconds, left, right, second, s, place(s, tile));
      return;
    }
    if constexpr (Groups > 1) more_registers<kComputing>();
    const int group = role - 1, g = thread % 32 / 4, t = thread % 4 * 2, warp = thread / 32;
    unsigned char* const mine = boxes + group * Results::kBytes;
    int used = 0;
    for (int round = 0, tile = tile_of(0); tile < tiles(s); tile = tile_of(++round)) {
      const ProductPlace p = place(s, tile);
      const int row = p.row + group * 64;
      const Turns all = turns(s, p.row);
      PairColumns whole{0, s.middle};
      if constexpr (Between::kMasked) whole = Between::whole(row, row + 63, s.middle);
      if constexpr (Between::kGuarded) {
        const int begin = s.chunk.of(p.product) * s.step;
        const PairColumns in = Between::guarded(row, row + 63, begin + s.middle);
        whole = {most(whole.from, in.from - begin), least(whole.to, in.to - begin)};
      }
      float sums[Columns / 2];
      Between ops = given;
      compute(ops, sums, memory, left_free, rights, seconds, all, whole,
              {row + warp * 16 + g, all.from * Middle + t, p.product, s.middle}, group, thread == 0);
      if (tile_of(round + 1) >= tiles(s)) next_launch_may_begin();
      ops.finish(sums, {row + warp * 16 + g, p.column + t, p.product, s.columns});
      const int product = s.result.of(p.product);
      Results::write(sums, mine, used, out, home + product * apart, {row, s.rows, p.column, s.columns, product}, pitch,
                     group, thread);
    }
    if constexpr (Boxed) {
      if (thread == 0) store_boxes_read<0>();
    }
  }
};

}  // namespace tw
