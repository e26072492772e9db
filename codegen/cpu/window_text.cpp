// Matrix products whose right operand is read through a window, as convolutions read their input:
// its columns are points of two loops, its depth those of several.
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kWindow = R"(
using std::int32_t;
using std::uint64_t;

// What a step of the depth reads: an element of a channel, moved by a tap.
struct Step {
  int32_t channel, tap;
};
struct Tap {
  int32_t row, column;
};
// The right operand of a product: column j is point (j / width, j % width) of a box, each of which
// reads one element of the source a step. Elements whose row or column is outside [0, rows) or
// [0, columns) are padding, and zero.
struct Window {
  const Real* source;  // what point (0, 0) reads of channel 0 with a tap of (0, 0)
  int64_t height, width;
  int64_t source_row;  // elements from one row of the source to the next
  int64_t first_row, row_step, rows;
  int64_t first_column, columns;
};
// Where a step's element of the source lies from a point's, and its rows of A as they are packed.
struct Read {
  int64_t source, left;
};
// Lists of the steps whose taps are in a set, of the last few sets that were asked for.
struct Lists {
  uint64_t taps[kLists];
  int64_t size[kLists];
  int next;
};
// What was packed of A, and the lists made for it; the next product may want the same.
struct Kept {
  const Real* left;
  int64_t rows, steps;
  Lists lists;
};
struct Depth {
  int64_t channels, taps, steps;
  const int64_t* channel;  // where each lies in the source
  const Tap* tap;
  const Step* step;
  Read* reads;   // room for kLists lists of `steps`
  Real* packed;  // room for all rows of A, a whole number of groups
  const Real* prepared;  // they are packed here, groups `group` elements apart; null: they are not
  int64_t group;
  Kept* kept;    // whether both may still hold something; null: they never do
};

// What will be read next of A: lines to ask for, so many bytes further at every step.
struct Ahead {
  const char* next;
  int64_t bytes;
};

// The micro-kernel (Chimera, Algorithm 2) with the roles of its operands exchanged: MI points of B are
// broadcast to NI vectors of A's rows. So no point has to be moved, however far they are apart.
// Meanwhile a line `ahead` is asked for every few steps.
template <int MI, int NI, int STEP>
TILEWRIGHT_TARGET void point_product(int64_t steps, const Read* read, const Real* packed,
                                     const Real* point, bool fresh, Vector* sums, Ahead& ahead) {
  Vector acc[MI][NI];
#pragma GCC unroll 16
  for (int m = 0; m < MI; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < NI; ++n) acc[m][n] = fresh ? Vector{} : sums[m * NI + n];
  const char* next = ahead.next;
  for (const Read* const end = read + steps; read != end; ++read, next += ahead.bytes) {
    __builtin_prefetch(next, 0, 2);
    const Real* const from = point + read->source;
    const Real* const left = packed + read->left;
    Vector row[NI];
#pragma GCC unroll 16
    for (int n = 0; n < NI; ++n) row[n] = *reinterpret_cast<const Unaligned*>(left + n * kLanes);
#pragma GCC unroll 16
    for (int m = 0; m < MI; ++m) {
      const Real x = from[m * STEP];
#pragma GCC unroll 16
      for (int n = 0; n < NI; ++n) acc[m][n] += x * row[n];
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MI; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < NI; ++n) sums[m * NI + n] = acc[m][n];
  ahead.next = next;
}
typedef void (*PointProduct)(int64_t, const Read*, const Real*, const Real*, bool, Vector*, Ahead&);
template <int MI, int NI, int STEP>
PointProduct of_points(int64_t points) {
  if constexpr (MI > 1)
    if (points < MI) return of_points<MI - 1, NI, STEP>(points);
  return point_product<MI, NI, STEP>;
}
template <int MI, int NI, int STEP>
PointProduct of_shape(int64_t points, int64_t vectors) {
  if constexpr (NI > 1)
    if (vectors < NI) return of_shape<MI, NI - 1, STEP>(points, vectors);
  return of_points<MI, NI, STEP>(points);
}

// Rows of a square are its columns: rows i and i + kLanes/2 are interleaved, log2(kLanes) times.
TILEWRIGHT_TARGET inline void turn(Vector* rows) {
  Vector to[kLanes];
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      to[2 * i] = interleave_first(rows[i], rows[i + kLanes / 2]);
      to[2 * i + 1] = interleave_last(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = to[i];
  }
}

// One vector a point, `apart` from the next, into rows of C: one a lane, `rows` of them.
TILEWRIGHT_TARGET inline void deliver(const Vector* sums, int64_t apart, int64_t points,
                                      int64_t rows, Real* c, int64_t c_row, bool fresh) {
  for (; points > 0; points -= kLanes, sums += kLanes * apart, c += kLanes) {
    Vector turned[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) turned[i] = i < points ? sums[i * apart] : Vector{};
    turn(turned);
    const Lanes lanes = first_lanes(min(points, kLanes));
    for (int64_t i = 0; i < rows; ++i) {
      Real* const to = c + i * c_row;
      store_part(to, lanes, fresh ? turned[i] : turned[i] + load_part(to, lanes));
    }
  }
}

inline int list_of(uint64_t taps, int64_t apart, const Window& w, const Depth& d, Lists& lists) {
  for (int i = 0; i < kLists; ++i)
    if (lists.taps[i] == taps) return i;
  const int i = lists.next++ % kLists;
  Read* const first = d.reads + i * d.steps;
  Read* to = first;
  for (int64_t k = 0; k < d.steps; ++k) {
    const Tap t = d.tap[d.step[k].tap];
    if (taps >> d.step[k].tap & 1)
      *to++ = {d.channel[d.step[k].channel] + t.row * w.source_row + t.column, k * apart};
  }
  lists.taps[i] = taps;
  lists.size[i] = to - first;
  return i;
}

// Points [x, x + points) of a row, by `vectors` of A's rows. Taps that find all of them inside first,
// then the others by which points they do.
template <int MI, int NI, int STEP>
TILEWRIGHT_TARGET void multiply_points(int64_t vectors, const Real* packed, const Window& w,
                                       const Depth& d, Lists& lists, uint64_t inside, int64_t y,
                                       int64_t x, int64_t points, Vector* sums, Ahead& ahead) {
  const Real* const from = w.source + y * w.row_step * w.source_row + x * STEP;
  const auto run = [&](uint64_t taps, int64_t low, int64_t high, bool fresh) {
    const int i = list_of(taps, NI * kLanes, w, d, lists);
    of_shape<MI, NI, STEP>(high - low, vectors)(lists.size[i], d.reads + i * d.steps, packed,
                                                from + low * STEP, fresh, sums + low * vectors,
                                                ahead);
  };
  const auto first_inside = [&](int64_t column) {
    return column >= 0 ? 0 : min((STEP - 1 - column) / STEP, points);
  };
  const auto first_behind = [&](int64_t column) {
    return column + (points - 1) * STEP < w.columns
               ? points
               : max((w.columns - column + STEP - 1) / STEP, first_inside(column));
  };
  uint64_t all = 0;
  int64_t low[kMostTaps], high[kMostTaps];
  for (int64_t t = 0; t < d.taps; ++t) {
    const int64_t column = w.first_column + x * STEP + d.tap[t].column;
    low[t] = first_inside(column), high[t] = first_behind(column);
    if (low[t] == 0 && high[t] == points) all |= uint64_t{1} << t;
  }
  run(all & inside, 0, points, true);
  uint64_t others = inside & ~all;
  for (int64_t t = 0; others != 0; ++t) {
    uint64_t same = 0;
    for (int64_t u = t; u < d.taps; ++u)
      if (low[u] == low[t] && high[u] == high[t]) same |= others & uint64_t{1} << u;
    if (same != 0 && low[t] < high[t]) run(same, low[t], high[t], false);
    others &= ~same;
  }
}

// C[i,j] += A[i,k] * B[k,j] with B read through a window where it lies. Rows of points are c_line
// apart in C. Groups of NI vectors of A's rows are packed, so that all vectors are full.
template <int MI, int NI, int STEP>
TILEWRIGHT_TARGET void convolve(int64_t rows, const Real* a, int64_t a_row, int64_t a_k,
                                const Window& w, const Depth& d, Real* c, int64_t c_row,
                                int64_t c_line, bool fresh) {
  if (rows <= 0 || w.width <= 0 || w.height <= 0 || d.steps <= 0) return;
  constexpr int64_t kGroup = NI * kLanes;
  const int64_t groups = (rows + kGroup - 1) / kGroup, blocks = (w.width + MI - 1) / MI;
  Kept own = {};
  Kept& kept = d.kept ? *d.kept : own;
  const Real* const packed = d.prepared ? d.prepared : d.packed;
  const int64_t group = d.prepared ? d.group : kGroup * d.steps;
  if (kept.left != a || kept.rows != rows || kept.steps != d.steps) {
    for (int64_t g = 0; g < groups && !d.prepared; ++g)
      pack(min(rows - g * kGroup, kGroup), d.steps, a + g * kGroup * a_row, a_k, a_row,
           d.packed + g * kGroup * d.steps, kGroup);
    kept = {a, rows, d.steps, {}};
  }
  Vector sums[MI * NI];
  Ahead ahead = {reinterpret_cast<const char*>(packed), 0};
  const auto row_of_group = [&](int64_t y, int64_t g) {
    uint64_t inside = 0;
    for (int64_t t = 0; t < d.taps; ++t) {
      const int64_t row = w.first_row + y * w.row_step + d.tap[t].row;
      if (row >= 0 && row < w.rows) inside |= uint64_t{1} << t;
    }
    const int64_t here = min(rows - g * kGroup, kGroup), vectors = (here + kLanes - 1) / kLanes;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t x = w.width * b / blocks, points = w.width * (b + 1) / blocks - x;
      multiply_points<MI, NI, STEP>(vectors, packed + g * group, w, d, kept.lists, inside, y, x,
                                    points, sums, ahead);
      Real* const to = c + g * kGroup * c_row + y * c_line + x;
      for (int64_t n = 0; n < vectors; ++n)
        deliver(sums + n, vectors, points, min(here - n * kLanes, kLanes), to + n * kLanes * c_row,
                c_row, fresh);
    }
  };
  // Of A and B, the one that a cache can hold passes more often.
  constexpr int64_t kStays = (1 << 18) / sizeof(Real);
  if (rows * d.steps <= kStays) {
    for (int64_t y = 0; y < w.height; ++y)
      for (int64_t g = 0; g < groups; ++g) row_of_group(y, g);
  } else {
    // While the points of one group are made, the next one comes into the second cache: what is
    // prepared goes on behind these rows.
    for (int64_t g = 0; g < groups; ++g) {
      ahead.next = reinterpret_cast<const char*>(packed + (g + 1) * group);
      ahead.bytes = kGroup * static_cast<int64_t>(sizeof(Real)) / (w.height * blocks) + 1;
      if (g + 1 == groups && !d.prepared) ahead = {reinterpret_cast<const char*>(packed), 0};
      for (int64_t y = 0; y < w.height; ++y) row_of_group(y, g);
    }
  }
}
)";

std::string constant(const char* type, const char* name, int value) {
  return std::string("constexpr ") + type + " " + name + " = " + std::to_string(value) + ";\n";
}

}  // namespace

std::string window_text() {
  return "\n// Taps of a window, and lists of steps that are kept, at most.\n" +
         constant("int", "kMostTaps", kMostTaps) + constant("int", "kLists", kWindowLists) +
         kWindow;
}

}  // namespace tilewright::cpu
