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
// What was packed of A; the next product may want the same.
struct Kept {
  const Real* left;
  int64_t rows, steps;
};
struct Depth {
  int64_t channels, taps, steps;
  const int64_t* channel;  // where each lies in the source
  const Tap* tap;
  const Step* step;
  int64_t* at;   // room for a number a step
  Real* packed;  // room for all rows of A, a whole number of groups
  const Real* prepared;  // they are packed here, groups `group` elements apart; null: they are not
  int64_t group;
  Kept* kept;    // what may still be there; null: nothing ever is
  Real outside = 0;  // what copies have outside of the image
};

// What will be read next of A: lines to ask for, so many bytes further at every step.
struct Ahead {
  const char* next;
  int64_t bytes;
};
// Taps of every channel: where each one's element of the source lies from a channel's, and its rows
// of A, as they are packed, from the channel's.
struct Taps {
  int64_t count, source[kMostTaps], left[kMostTaps];
};

// The micro-kernel (Chimera, Algorithm 2) with the roles of its operands exchanged: MI points of B are
// broadcast to NI vectors of A's rows, channel by channel, each `of_channel` elements of A behind the
// one before, and tap by tap. So no point has to be moved, however far they are apart. Meanwhile a
// line `ahead` is asked for every few steps.
template <int MI, int NI, int STEP>
TILEWRIGHT_TARGET void point_product(int64_t channels, const int64_t* channel, const Taps& taps,
                                     const Real* packed, int64_t of_channel, const Real* point,
                                     bool fresh, Vector* sums, Ahead& ahead) {
  Vector acc[MI][NI];
#pragma GCC unroll 16
  for (int m = 0; m < MI; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < NI; ++n) acc[m][n] = fresh ? Vector{} : sums[m * NI + n];
  const char* next = ahead.next;
  const int64_t count = taps.count;
  // Taps of a channel are no steps that hardware would bring ahead: what is read of A eight steps later.
  constexpr int64_t kLine = 64 / sizeof(Real);
  // No taps: the sums are zero, or as they were.
  const int64_t later = of_channel * (7 / max(count, int64_t{1}) + 1);
  for (int64_t i = 0; i < channels; ++i, packed += of_channel) {
    const Real* const source = point + channel[i];
    for (int64_t t = 0; t < count; ++t, next += ahead.bytes) {
      __builtin_prefetch(next, 0, 2);
      const Real* const from = source + taps.source[t];
      const Real* const left = packed + taps.left[t];
#pragma GCC unroll 4
      for (int64_t n = 0; n < NI * kLanes; n += kLine) __builtin_prefetch(left + later + n);
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
  }
#pragma GCC unroll 16
  for (int m = 0; m < MI; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < NI; ++n) sums[m * NI + n] = acc[m][n];
  ahead.next = next;
}
typedef void (*PointProduct)(int64_t, const int64_t*, const Taps&, const Real*, int64_t, const Real*,
                             bool, Vector*, Ahead&);
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

// One vector a point, `apart` from the next, into rows of C: one a lane, `rows` of them, the first the
// i-th; the first point is the j-th.
template <class After>
TILEWRIGHT_TARGET inline void deliver(const Vector* sums, int64_t apart, int64_t points,
                                      int64_t rows, Real* c, int64_t c_row, bool fresh, int64_t i,
                                      int64_t j, const After& after) {
  for (; points > 0; points -= kLanes, sums += kLanes * apart, c += kLanes, j += kLanes) {
    Vector turned[kLanes];
#pragma GCC unroll 16
    for (int m = 0; m < kLanes; ++m) turned[m] = m < points ? sums[m * apart] : Vector{};
    turn(turned);
    const Lanes lanes = first_lanes(min(points, kLanes));
    for (int64_t m = 0; m < rows; ++m) {
      Real* const to = c + m * c_row;
      const Vector sum = fresh ? turned[m] : turned[m] + load_part(to, lanes);
      if (After::kStores) store_part(to, lanes, sum);
      if (points < kLanes)
        after(Count<1>{}, Count<true>{}, i + m, j, lanes, &sum);
      else
        after(Count<1>{}, Count<false>{}, i + m, j, lanes, &sum);
    }
  }
}

// All taps, and their least and greatest columns.
struct Whole {
  Taps taps;
  uint64_t all;
  int64_t first, last;
};
template <int NI>
Whole whole_of(const Window& w, const Depth& d) {
  Whole whole;
  whole.taps.count = d.taps, whole.all = 0, whole.first = whole.last = 0;
  for (int64_t t = 0; t < d.taps; ++t) {
    whole.taps.source[t] = d.tap[t].row * w.source_row + d.tap[t].column;
    whole.taps.left[t] = t * NI * kLanes;
    whole.all |= uint64_t{1} << t;
    whole.first = t == 0 ? d.tap[t].column : min(whole.first, int64_t{d.tap[t].column});
    whole.last = t == 0 ? d.tap[t].column : max(whole.last, int64_t{d.tap[t].column});
  }
  return whole;
}

// Points [x, x + points) of a row, by `vectors` of A's rows, of channels [first, first + channels).
// Taps that find all points inside first, then the others by which points they do.
template <int MI, int NI, int STEP>
TILEWRIGHT_TARGET void multiply_points(int64_t vectors, const Real* packed, const Window& w,
                                       const Depth& d, const Whole& whole, uint64_t inside,
                                       int64_t first, int64_t channels, int64_t y, int64_t x, int64_t points,
                                       Vector* sums, Ahead& ahead) {
  const Real* const from = w.source + y * w.row_step * w.source_row + x * STEP;
  const int64_t of_channel = d.taps * NI * kLanes, column_of_x = w.first_column + x * STEP;
  if (inside == whole.all && column_of_x + whole.first >= 0 &&
      column_of_x + whole.last + (points - 1) * STEP < w.columns)
    return of_shape<MI, NI, STEP>(points, vectors)(channels, d.channel + first, whole.taps,
                                                   packed + first * of_channel, of_channel, from,
                                                   first == 0, sums, ahead);
  const auto run = [&](uint64_t taps, int64_t low, int64_t high, bool fresh) {
    Taps its;
    its.count = 0;
    for (int64_t t = 0; t < d.taps; ++t) {
      if (!(taps >> t & 1)) continue;
      its.source[its.count] = d.tap[t].row * w.source_row + d.tap[t].column;
      its.left[its.count++] = t * NI * kLanes;
    }
    of_shape<MI, NI, STEP>(high - low, vectors)(channels, d.channel + first, its,
                                                packed + first * of_channel, of_channel,
                                                from + low * STEP, fresh, sums + low * vectors, ahead);
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
    const int64_t column = column_of_x + d.tap[t].column;
    low[t] = first_inside(column), high[t] = first_behind(column);
    if (low[t] == 0 && high[t] == points) all |= uint64_t{1} << t;
  }
  run(all & inside, 0, points, first == 0);
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
// apart in C. Groups of NI vectors of A's rows are packed, so that all vectors are full. Of a group,
// `block` channels at a time meet `band` rows of points, whose sums lie in `sums` meanwhile: that much
// of A stays in the second cache, and comes there once for each band.
template <int MI, int NI, int STEP, class After = Keep>
TILEWRIGHT_TARGET void convolve(int64_t rows, const Real* a, int64_t a_row, int64_t a_k,
                                const Window& w, const Depth& d, int64_t block, int64_t band,
                                Vector* sums, Real* c, int64_t c_row, int64_t c_line, bool fresh,
                                const After& after = {}) {
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
    kept = {a, rows, d.steps};
  }
  const int64_t of_channel = d.taps * kGroup;
  const Whole whole = whole_of<NI>(w, d);
  for (int64_t h = 0; h < w.height; h += band) {
    const int64_t end = min(h + band, w.height);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t here = min(rows - g * kGroup, kGroup), vectors = (here + kLanes - 1) / kLanes;
      const Real* const its = packed + g * group;
      for (int64_t first = 0; first < d.channels; first += block) {
        const int64_t channels = min(block, d.channels - first);
        // What comes next of A follows: meanwhile it comes into the second cache.
        Ahead ahead = {reinterpret_cast<const char*>(its + (first + channels) * of_channel),
                       kGroup * static_cast<int64_t>(sizeof(Real)) / ((end - h) * blocks) + 1};
        for (int64_t y = h; y < end; ++y) {
          uint64_t inside = 0;
          for (int64_t t = 0; t < d.taps; ++t) {
            const int64_t row = w.first_row + y * w.row_step + d.tap[t].row;
            if (row >= 0 && row < w.rows) inside |= uint64_t{1} << t;
          }
          for (int64_t b = 0; b < blocks; ++b) {
            const int64_t x = w.width * b / blocks, points = w.width * (b + 1) / blocks - x;
            multiply_points<MI, NI, STEP>(vectors, its, w, d, whole, inside, first, channels, y, x,
                                          points, sums + ((y - h) * w.width + x) * vectors, ahead);
          }
        }
      }
      // Rows of points that follow one another in C, too, are one.
      const bool dense = c_line == w.width;
      const int64_t lines = dense ? 1 : end - h, points = dense ? (end - h) * w.width : w.width;
      for (int64_t l = 0; l < lines; ++l)
        for (int64_t n = 0; n < vectors; ++n)
          deliver(sums + l * w.width * vectors + n, vectors, points, min(here - n * kLanes, kLanes),
                  c + (g * kGroup + n * kLanes) * c_row + (h + l) * c_line, c_row, fresh,
                  g * kGroup + n * kLanes, (h + l) * w.width, after);
    }
  }
}
)";

std::string constant(const char* type, const char* name, int value) {
  return std::string("constexpr ") + type + " " + name + " = " + std::to_string(value) + ";\n";
}

}  // namespace

std::string window_text() {
  return "\n// Taps of a window, at most.\n" + constant("int", "kMostTaps", kMostTaps) + kWindow;
}

}  // namespace tilewright::cpu
