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
// What a step of a block of channels reads: of the source, from where a block of points begins there, and
// of A, as it is packed, from the block's first channel.
struct Reads {
  int64_t source, left;
};

// The micro-kernel (Chimera, Algorithm 2) with the roles of its operands exchanged: MI points of B are
// broadcast to NI vectors of A's rows, step by step. So no point has to be moved, however far they are
// apart. Meanwhile a line `ahead` is asked for every few steps, and what is read of A a channel later,
// where steps of wide vectors have time for it.
template <int MI, int NI, int STEP>
TILEWRIGHT_TARGET void point_product(int64_t steps, const Reads* reads, const Real* packed,
                                     int64_t of_channel, const Real* point, bool fresh, Vector* sums,
                                     Ahead& ahead) {
  Vector acc[MI][NI];
#pragma GCC unroll 32
  for (int m = 0; m < MI; ++m)
#pragma GCC unroll 32
    for (int n = 0; n < NI; ++n) acc[m][n] = fresh ? Vector{} : sums[m * NI + n];
  const char* next = ahead.next;
  // Taps of a channel are no steps that hardware would bring ahead.
  constexpr int64_t kLine = 64 / sizeof(Real);
  const int64_t later = max(of_channel, 8 * NI * kLanes);
  for (int64_t i = 0; i < steps; ++i, next += ahead.bytes) {
    __builtin_prefetch(next, 0, 2);
    const Real* const from = point + reads[i].source;
    const Real* const left = packed + reads[i].left;
    if constexpr (sizeof(Vector) == 64)
#pragma GCC unroll 4
      for (int64_t n = 0; n < NI * kLanes; n += kLine) __builtin_prefetch(left + later + n);
    Vector row[NI];
#pragma GCC unroll 32
    for (int n = 0; n < NI; ++n) row[n] = *reinterpret_cast<const Unaligned*>(left + n * kLanes);
#pragma GCC unroll 32
    for (int m = 0; m < MI; ++m) {
      const Real x = from[m * STEP];
#pragma GCC unroll 32
      for (int n = 0; n < NI; ++n) acc[m][n] += x * row[n];
    }
  }
#pragma GCC unroll 32
  for (int m = 0; m < MI; ++m)
#pragma GCC unroll 32
    for (int n = 0; n < NI; ++n) sums[m * NI + n] = acc[m][n];
  ahead.next = next;
}
typedef void (*PointProduct)(int64_t, const Reads*, const Real*, int64_t, const Real*, bool, Vector*,
                             Ahead&);
template <int MI, int NI, int STEP>
PointProduct of_points(int64_t points) {
  if constexpr (MI > 1)
    if (points < MI) return of_points<MI - 1, NI, STEP>(points);
  return point_product<MI, NI, STEP>;
}
// Whether rows in groups of NI vectors have one of n; rows: 0 where nobody knows.
constexpr bool has_group(int64_t rows, int NI, int n) {
  return rows == 0 || (n == NI ? rows > (NI - 1) * kLanes
                               : (rows + kLanes - 1) / kLanes % NI == n);
}
// A group of fewer vectors has more points.
template <int MI, int NI, int STEP, int64_t M, int N = NI>
PointProduct of_shape(int64_t points, int64_t vectors) {
  if constexpr (N > 1)
    if (vectors < N) return of_shape<MI, NI, STEP, M, N - 1>(points, vectors);
  if constexpr (has_group(M, NI, N)) return of_points<MI * NI / N, N, STEP>(points);
  return nullptr;
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

// The steps of a block of channels in runs whose taps find the same points [low, high) of a block inside:
// all of them in the first, which may have no steps, in the others what is left where padding begins. A
// run's first step is `begin`, and each channel has `taps` of its steps, so that fewer channels are its
// first ones.
struct Runs {
  int64_t count, begin[kMostTaps + 1], taps[kMostTaps + 1], low[kMostTaps + 1], high[kMostTaps + 1];
  PointProduct product[kMostTaps + 1], last[kMostTaps + 1];  // of a whole group of rows; of the last one
  Reads reads[kMostReads];
};
// What runs were listed for. `first`: the channel; `x`: the first point, kAnyPoint of all points that
// no tap moves beyond an edge.
constexpr int64_t kAnyPoint = -1;
struct ListedFor {
  int64_t first, x, points;
  uint64_t inside;
};
inline bool same(const ListedFor& a, const ListedFor& b) {
  return a.first == b.first && a.x == b.x && a.points == b.points && a.inside == b.inside;
}
// Of points [x, x + points) of a row; `inside`: taps whose row is. The last group of A's rows has
// `vectors` of them. Reads begin at the first of the channels.
template <int MI, int NI, int STEP, int64_t M>
void find_runs(int64_t vectors, const Window& w, const Depth& d, int64_t channels,
               const int64_t* channel, uint64_t inside, int64_t x, int64_t points, Runs& runs) {
  const auto first_inside = [&](int64_t column) {
    return column >= 0 ? 0 : min((STEP - 1 - column) / STEP, points);
  };
  const auto first_behind = [&](int64_t column) {
    return column + (points - 1) * STEP < w.columns
               ? points
               : max((w.columns - column + STEP - 1) / STEP, first_inside(column));
  };
  int64_t low[kMostTaps], high[kMostTaps], taken = 0;
  for (int64_t t = 0; t < d.taps; ++t) {
    const int64_t column = w.first_column + x * STEP + d.tap[t].column;
    low[t] = first_inside(column), high[t] = first_behind(column);
    if (low[t] >= high[t]) inside &= ~(uint64_t{1} << t);
  }
  runs.count = 0;
  for (int64_t from = 0, until = points; runs.count == 0 || inside != 0; ++runs.count) {
    int64_t its[kMostTaps], source[kMostTaps], count = 0;
    for (int64_t t = 0; t < d.taps; ++t) {
      if (!(inside >> t & 1) || low[t] != from || high[t] != until) continue;
      its[count] = t * NI * kLanes;
      source[count++] = d.tap[t].row * w.source_row + d.tap[t].column;
      inside &= ~(uint64_t{1} << t);
    }
    runs.begin[runs.count] = taken, runs.taps[runs.count] = count;
    for (int64_t i = 0; i < channels; ++i)
      for (int64_t t = 0; t < count; ++t)
        runs.reads[taken++] = {channel[i] - channel[0] + source[t],
                               i * d.taps * NI * kLanes + its[t]};
    runs.low[runs.count] = from, runs.high[runs.count] = until;
    runs.product[runs.count] = of_shape<MI, NI, STEP, M>(until - from, NI);
    runs.last[runs.count] = of_shape<MI, NI, STEP, M>(until - from, vectors);
    for (int64_t t = d.taps - 1; t >= 0; --t)
      if (inside >> t & 1) from = low[t], until = high[t];
  }
}

// C[i,j] += A[i,k] * B[k,j] with B read through a window where it lies. Rows of points are c_line
// apart in C; M: how many rows A has where that is always so, else 0. Groups of NI vectors of A's rows are
// packed, so that all vectors are full. Of a group, `block` channels at a time meet `band` rows of
// points, whose sums lie in `sums` meanwhile: that much of A stays in the first cache, and comes there
// once for each band and block of points.
template <int MI, int NI, int STEP, int64_t M, class After = Keep>
TILEWRIGHT_TARGET void convolve(int64_t rows, const Real* a, int64_t a_row, int64_t a_k,
                                const Window& w, const Depth& d, int64_t block, int64_t band,
                                Vector* sums, Real* c, int64_t c_row, int64_t c_line, bool fresh,
                                const After& after = {}) {
  if (rows <= 0 || w.width <= 0 || w.height <= 0 || d.steps <= 0) return;
  constexpr int64_t kGroup = NI * kLanes;
  const int64_t groups = (rows + kGroup - 1) / kGroup;
  const int64_t last = (rows - (groups - 1) * kGroup + kLanes - 1) / kLanes;  // vectors
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
  // Runs are listed once for all groups of rows, rows of points and, where channels are equally far
  // apart, blocks of channels that find the same points inside.
  bool even = true;
  for (int64_t i = 2; i < d.channels; ++i)
    even &= d.channel[i] - d.channel[i - 1] == d.channel[1] - d.channel[0];
  int64_t low_tap = 0, high_tap = 0;
  for (int64_t t = 0; t < d.taps; ++t) {
    low_tap = min(low_tap, d.tap[t].column);
    high_tap = max(high_tap, d.tap[t].column);
  }
  constexpr int kListed = 12;  // a corner's four edges, and what lies between, of two sizes
  Runs lists[kListed];
  ListedFor listed[kListed];
  int known = 0, next = 0, at = 0;
  for (int64_t h = 0; h < w.height; h += band) {
    const int64_t end = min(h + band, w.height);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t here = min(rows - g * kGroup, kGroup), vectors = (here + kLanes - 1) / kLanes;
      const int64_t most = MI * NI / vectors, blocks = (w.width + most - 1) / most;
      const Real* const its = packed + g * group;
      for (int64_t first = 0; first < d.channels; first += block) {
        const int64_t channels = min(block, d.channels - first);
        // What comes next of A follows: meanwhile it comes into the second cache.
        Ahead ahead = {reinterpret_cast<const char*>(its + (first + channels) * of_channel),
                       kGroup * static_cast<int64_t>(sizeof(Real)) / ((end - h) * blocks) + 1};
        for (int64_t b = 0; b < blocks; ++b) {
          const int64_t x = w.width * b / blocks, points = w.width * (b + 1) / blocks - x;
          for (int64_t y = h; y < end; ++y) {
            uint64_t inside = 0;
            for (int64_t t = 0; t < d.taps; ++t) {
              const int64_t row = w.first_row + y * w.row_step + d.tap[t].row;
              if (row >= 0 && row < w.rows) inside |= uint64_t{1} << t;
            }
            const int64_t column = w.first_column + x * STEP;
            const bool within = column + low_tap >= 0 &&
                                column + (points - 1) * STEP + high_tap < w.columns;
            const int64_t from_channel = even ? 0 : first;
            const ListedFor wanted = {from_channel, within ? kAnyPoint : x, points, inside};
            if (at >= known || !same(listed[at], wanted))
              for (at = 0; at < known && !same(listed[at], wanted);) ++at;
            if (at == known) {
              at = next, next = (next + 1) % kListed, known = max(known, at + 1);
              find_runs<MI, NI, STEP, M>(last, w, d, min(block, d.channels - from_channel),
                                         d.channel + from_channel, inside, x, points, lists[at]);
              listed[at] = wanted;
            }
            const Runs& runs = lists[at];
            const Real* const from =
                w.source + d.channel[first] + y * w.row_step * w.source_row + x * STEP;
            Vector* const to = sums + ((y - h) * w.width + x) * vectors;
            for (int64_t r = 0; r < runs.count; ++r)
              (vectors == NI ? runs.product : runs.last)[r](
                  runs.taps[r] * channels, runs.reads + runs.begin[r], its + first * of_channel,
                  of_channel, from + runs.low[r] * STEP, first == 0 && r == 0,
                  to + runs.low[r] * vectors, ahead);
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
  return "\n// Taps of a window, and steps of a block of channels, at most.\n" +
         constant("int", "kMostTaps", kMostTaps) + constant("int", "kMostReads", kMostReads) +
         kWindow;
}

}  // namespace tilewright::cpu
