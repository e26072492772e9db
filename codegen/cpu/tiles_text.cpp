// Products of whole numbers of 8 bits by tiles of 16 x 64 bytes (AMX), as source: what
// `multiply` and `multiply_packed` call for several rows of quads.
#include <string>

#include "codegen/cpu/prelude.h"
#include "core/lowering/byte_products.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kTilesOfQuads = R"tiles(
// A tile has 16 rows of 16 quads: rows of A with 64 steps of the depth, or 16 rows of B, of 16 columns.
// Four tiles of sums are in use, of 32 rows and 32 columns. B has rows of zeros up to whole tiles.
constexpr int64_t kTileRows = 16;
struct alignas(64) Tiles {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {};
  std::uint8_t rows[16] = {};
};
// Sums of so many rows in the upper and the lower tiles, at most 16 each.
inline void set_tiles(int64_t upper, int64_t lower) {
  Tiles t;
  const int64_t rows[8] = {upper, upper, lower, lower, upper, lower, kTileRows, kTileRows};
  for (int i = 0; i < 8; ++i) t.bytes[i] = 64, t.rows[i] = static_cast<std::uint8_t>(rows[i]);
  asm volatile("ldtilecfg %0" : : "m"(t));
}
// The kernel gives a process the tiles' registers when it is asked to, once.
inline void ask_for_tiles() {
  static const long asked = [] {
    long answer = 158;  // arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
    asm volatile("syscall" : "+a"(answer) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    return answer;
  }();
  (void)asked;
}
// 32 rows of sums, or 16, of 32 columns, or 16, into `sums`, 32 apart. Tiles of A: `a_row` elements from
// row to row, `a_next` from one to the next, `a_lower` to those of the lower rows. Images: A's numbers have
// signs and B's have none, else it is the other way round.
template <bool Lower, bool Right, bool Image>
inline void sum_tiles(int64_t steps, const Real* a, int64_t a_row, int64_t a_next, int64_t a_lower,
                      const Real* b, int64_t b_k, std::int32_t* sums) {
  const int64_t a_bytes = 4 * a_row, b_bytes = 4 * b_k, to_bytes = 4 * 32;
#define TILEWRIGHT_ADD(B, A, C)                                        \
  if constexpr (Image)                                                 \
    asm volatile("tdpbsud %%tmm" B ", %%tmm" A ", %%tmm" C : :);       \
  else                                                                 \
    asm volatile("tdpbusd %%tmm" B ", %%tmm" A ", %%tmm" C : :)
#define TILEWRIGHT_LOAD(T, FROM, APART) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" T : : "r"(FROM), "r"(APART) : "memory")
#define TILEWRIGHT_STORE(T, TO) \
  asm volatile("tilestored %%tmm" T ", (%0,%1,1)" : : "r"(TO), "r"(to_bytes) : "memory")
  asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" : :);
  for (int64_t k = 0; k < steps; k += kTileRows, b += kTileRows * b_k, a += a_next) {
    TILEWRIGHT_LOAD("6", b, b_bytes);
    TILEWRIGHT_LOAD("4", a, a_bytes);
    TILEWRIGHT_ADD("6", "4", "0");
    if constexpr (Right) {
      TILEWRIGHT_LOAD("7", b + kLanes, b_bytes);
      TILEWRIGHT_ADD("7", "4", "1");
    }
    if constexpr (Lower) {
      TILEWRIGHT_LOAD("5", a + a_lower, a_bytes);
      TILEWRIGHT_ADD("6", "5", "2");
      if constexpr (Right) TILEWRIGHT_ADD("7", "5", "3");
    }
  }
  TILEWRIGHT_STORE("0", sums);
  if constexpr (Right) TILEWRIGHT_STORE("1", sums + kLanes);
  if constexpr (Lower) TILEWRIGHT_STORE("2", sums + kTileRows * 32);
  if constexpr (Lower && Right) TILEWRIGHT_STORE("3", sums + kTileRows * 32 + kLanes);
#undef TILEWRIGHT_ADD
#undef TILEWRIGHT_LOAD
#undef TILEWRIGHT_STORE
}
// The block of that many rows and columns.
template <bool Image>
inline void sum_block(bool lower, bool right, int64_t steps, const Real* a, int64_t a_row,
                      int64_t a_next, int64_t a_lower, const Real* b, int64_t b_k,
                      std::int32_t* sums) {
  if (lower && right) return sum_tiles<true, true, Image>(steps, a, a_row, a_next, a_lower, b, b_k, sums);
  if (lower) return sum_tiles<true, false, Image>(steps, a, a_row, a_next, a_lower, b, b_k, sums);
  if (right) return sum_tiles<false, true, Image>(steps, a, a_row, a_next, a_lower, b, b_k, sums);
  sum_tiles<false, false, Image>(steps, a, a_row, a_next, a_lower, b, b_k, sums);
}
// What leaves of a block of sums: `first`, by column, or of images by row, is added. `apart`: of images,
// from one group of 16 rows' numbers to the next.
template <int NI, bool Partial, bool Image, class After>
TILEWRIGHT_TARGET void leave_tiles(int64_t rows, const std::int32_t* sums, const Real* first,
                                   int64_t apart, Real* c, int64_t c_row, Lanes lanes, bool fresh,
                                   int64_t i, int64_t j, const After& after) {
  __m512i begin[NI];
  for (int n = 0; n < NI && !Image; ++n)
    begin[n] = Partial && n == NI - 1 ? (__m512i)load_part(first + n * kLanes, lanes)
                                      : _mm512_loadu_si512(first + n * kLanes);
  for (int64_t m = 0; m < rows; ++m, sums += 32, c += c_row) {
    if constexpr (Image) {
      const Real* const of_row = first + m / kTileRows * apart + m % kTileRows;
      for (int n = 0; n < NI; ++n) begin[n] = (__m512i)_mm512_set1_ps(*of_row);
    }
    Vector acc[NI];
#pragma GCC unroll 2
    for (int n = 0; n < NI; ++n) {
      acc[n] = (Vector)_mm512_cvtepi32_ps(
          _mm512_add_epi32(begin[n], _mm512_load_si512(sums + n * kLanes)));
      Real* const at = c + n * kLanes;
      if (!fresh)
        acc[n] += Partial && n == NI - 1 ? load_part(at, lanes) : *reinterpret_cast<const Unaligned*>(at);
      if constexpr (After::kStores) {
        if (Partial && n == NI - 1)
          store_part(at, lanes, acc[n]);
        else
          *reinterpret_cast<Unaligned*>(at) = acc[n];
      }
    }
    after(Count<NI>{}, Count<Partial>{}, i + m, j, lanes, acc);
  }
}
template <bool Image, class After>
TILEWRIGHT_TARGET void leave_block(int64_t wide, int64_t rows, const std::int32_t* sums, const Real* first,
                                   int64_t apart, Real* c, int64_t c_row, bool fresh, int64_t i, int64_t j,
                                   const After& after) {
  const Lanes lanes = first_lanes(wide > kLanes ? wide - kLanes : wide);
  if (wide == 2 * kLanes)
    leave_tiles<2, false, Image>(rows, sums, first, apart, c, c_row, lanes, fresh, i, j, after);
  else if (wide > kLanes)
    leave_tiles<2, true, Image>(rows, sums, first, apart, c, c_row, lanes, fresh, i, j, after);
  else if (wide == kLanes)
    leave_tiles<1, false, Image>(rows, sums, first, apart, c, c_row, lanes, fresh, i, j, after);
  else
    leave_tiles<1, true, Image>(rows, sums, first, apart, c, c_row, lanes, fresh, i, j, after);
}
// Blocks of sums that wait to leave: after some hundreds of vectors the tiles take hundreds of cycles to begin
// again, so that many blocks are summed in between.
template <bool Image, class After>
struct Waiting {
  static constexpr int64_t kMost = 8;
  struct Block {
    int64_t wide, rows, i, j;
    const Real* first;
    Real* c;
  };
  int64_t apart, c_row;
  bool fresh;
  const After& after;
  int64_t count = 0, upper = 0, lower = 0;
  Block blocks[kMost];
  alignas(64) std::int32_t sums[kMost][32 * 32];

  // The sums of up to 32 rows and 32 columns.
  void sum(int64_t rows, int64_t wide, int64_t steps, const Real* a, int64_t a_row, int64_t a_next,
           int64_t a_lower, const Real* b, int64_t b_k, const Real* first, Real* c, int64_t i, int64_t j) {
    const int64_t high = min(rows, kTileRows), low = rows > high ? rows - high : 1;
    if (high != upper || low != lower) set_tiles(upper = high, lower = low);
    blocks[count] = {wide, rows, i, j, first, c};
    sum_block<Image>(rows > high, wide > kLanes, steps, a, a_row, a_next, a_lower, b, b_k, sums[count]);
    if (++count == kMost) leave();
  }
  TILEWRIGHT_TARGET void leave() {
    for (int64_t k = 0; k < count; ++k) {
      const Block& x = blocks[k];
      leave_block<Image>(x.wide, x.rows, sums[k], x.first, apart, x.c, c_row, fresh, x.i, x.j, after);
    }
    count = 0;
  }
};
// B's columns lie in panels of `width`, `b_panel` elements from one to the next.
template <class After>
TILEWRIGHT_TARGET void multiply_tiles(int64_t rows, int64_t columns, int64_t steps, const Real* a,
                                      int64_t a_row, const Real* b, int64_t width, int64_t b_panel,
                                      int64_t b_k, Real* c, int64_t c_row, bool fresh, const After& after) {
  Waiting<false, After> waiting{0, c_row, fresh, after};
  ask_for_tiles();
  for (int64_t p = 0; p < columns; p += width, b += b_panel)
    for (int64_t i = 0; i < rows; i += 2 * kTileRows)
      for (int64_t n = 0; n < min(columns - p, width); n += 2 * kLanes)
        waiting.sum(min(rows - i, 2 * kTileRows), min(min(columns - p, width) - n, 2 * kLanes), steps,
                    a + i * a_row, a_row, kTileRows, kTileRows * a_row, b + b_k + n, b_k, b + n,
                    c + i * c_row + p + n, i, p + n);
  waiting.leave();
  asm volatile("tilerelease" : :);
}
// Of convolutions, as multiply_lines: A's groups of 16 rows are `group` elements apart, tiles behind one
// another, with what each row's sums begin with in front. As many panels of 32 points are packed at a time
// as `room` elements hold, so that A passes by once for all of them; behind their steps is room up to a
// whole tile, where A has zeros.
template <class After>
TILEWRIGHT_TARGET void multiply_tiled_lines(int64_t rows, int64_t points, int64_t depth, const Real* a,
                                            int64_t group, const Real* b, const int64_t* at, Real* panels,
                                            int64_t room, Real* c, int64_t c_row, int64_t j0,
                                            const After& after) {
  Waiting<true, After> waiting{group, c_row, true, after};
  ask_for_tiles();
  const int64_t of_panel = (depth + kTileRows - 1) / kTileRows * kTileRows * 2 * kLanes;
  const int64_t many = max(room / of_panel, 1) * 2 * kLanes;
  const auto width_of = [&](int64_t j) { return points - j > kLanes ? 2 * kLanes : kLanes; };
  for (int64_t from = 0; from < points; from += many) {
    const int64_t end = min(points, from + many);
    for (int64_t j = from; j < end; j += 2 * kLanes) {
      Real* const panel = panels + (j - from) / (2 * kLanes) * of_panel;
      const int64_t wide = min(points - j, 2 * kLanes), width = width_of(j);
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t n = 0; n < width; n += kLanes)
          *reinterpret_cast<Unaligned*>(panel + k * width + n) =
              wide - n >= kLanes ? *reinterpret_cast<const Unaligned*>(b + at[k] + j + n)
                                 : load_part(b + at[k] + j + n, first_lanes(wide - n));
    }
    for (int64_t i = 0; i < rows; i += 2 * kTileRows) {
      const Real* const left = a + i / kTileRows * group;
      for (int64_t j = from; j < end; j += 2 * kLanes)
        waiting.sum(min(rows - i, 2 * kTileRows), min(points - j, 2 * kLanes), depth, left, kTileRows,
                    kTileRows * kTileRows, group, panels + (j - from) / (2 * kLanes) * of_panel,
                    width_of(j), left - kTileRows, c + i * c_row + j, i, j0 + j);
    }
  }
  waiting.leave();
  asm volatile("tilerelease" : :);
}
)tiles";

}  // namespace

std::string tiles_text() {
  return "// Fewer rows take no longer by vectors.\nconstexpr int64_t kLeastTileRows = " +
         std::to_string(kLeastTileRows) + ";" + kTilesOfQuads;
}

}  // namespace tilewright::cpu
