// Matrix products whose right operand is read through a window, vectors along its points: what a
// step of the depth reads is laid out as one line of points first, where it does not lie so.
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kLines = R"(
// Taps that move columns alike, and rows by a multiple of the rows' step, share a copy of a channel:
// lines of the window's width, of which each tap's points are some that follow one another.
struct Copy {
  int64_t column, row, last, at;  // how far columns move, and the first and last of the rows
};
struct Copies {
  Copy copy[kMostTaps];
  int64_t count, size;     // size: elements of a channel's
  int64_t tap[kMostTaps];  // where each tap's first point lies in them
};
inline void find_copies(const Window& w, const Depth& d, Copies& c) {
  const int64_t step = max(w.row_step, 1);
  c.count = c.size = 0;
  const auto of = [&](const Tap& t) {
    int64_t i = 0;
    while (i < c.count && (c.copy[i].column != t.column || (c.copy[i].row - t.row) % step != 0)) ++i;
    return i;
  };
  for (int64_t t = 0; t < d.taps; ++t) {
    const int64_t i = of(d.tap[t]), row = d.tap[t].row;
    if (i == c.count) c.copy[c.count++] = {d.tap[t].column, row, row, 0};
    c.copy[i].row = min(c.copy[i].row, row), c.copy[i].last = max(c.copy[i].last, row);
  }
  for (int64_t i = 0; i < c.count; ++i) {
    c.copy[i].at = c.size;
    c.size += ((c.copy[i].last - c.copy[i].row) / step + w.height) * w.width;
  }
  c.size += kLanes;
  for (int64_t t = 0; t < d.taps; ++t) {
    const Copy& copy = c.copy[of(d.tap[t])];
    c.tap[t] = copy.at + (d.tap[t].row - copy.row) / step * w.width;
  }
}

// v, and what is outside where it is not filled: zero, as it was loaded.
template <bool Filled>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector filled(Vector v, int64_t, int64_t, Vector) {
  return v;
}

// Channels [first, first + channels), what is outside as d has it: zero, or Filled. Lines are written as
// whole vectors, the
// last of each before those of the next line, which it may reach into; behind a channel is room.
template <int STEP, bool Filled>
TILEWRIGHT_TARGET void copy_lines(const Window& w, const Depth& d, const Copies& c, int64_t first,
                                  int64_t channels, Real* to) {
  const int64_t step = max(w.row_step, 1), next = step * w.source_row;
  const Vector outside = splat(d.outside);
  for (int64_t q = 0; q < c.count; ++q) {
    const Copy& copy = c.copy[q];
    const int64_t column = w.first_column + copy.column, row = w.first_row + copy.row;
    const int64_t low = column >= 0 ? 0 : (STEP - 1 - column) / STEP;
    const int64_t high = w.columns > column ? (w.columns - column + STEP - 1) / STEP : 0;
    const int64_t rows = (copy.last - copy.row) / step + w.height;
    const int64_t above = row >= 0 ? 0 : min((step - 1 - row) / step, rows);
    const int64_t below = row < w.rows ? max(min((w.rows - row + step - 1) / step, rows), above) : above;
    if (STEP == 1 && next == w.width && below > above && low < high) {
      // Lines follow one another in the source, too: what is between the first element that is there
      // and the last is copied as one, then what is outside becomes zero.
      const int64_t edge = max(w.width - high, 0), from = above * w.width + low;
      const int64_t to_end = below * w.width - edge;
      for (int64_t i = 0; i < channels; ++i) {
        Real* const line = to + i * c.size + copy.at;
        const Real* const source =
            w.source + d.channel[first + i] + copy.row * w.source_row + copy.column;
        int64_t x = from;
        for (; x + kLanes <= to_end; x += kLanes)
          *reinterpret_cast<Unaligned*>(line + x) = every<1>(source + x);
        if (x < to_end) *reinterpret_cast<Unaligned*>(line + x) = every<1>(source + x, 0, to_end - x);
        for (x = 0; x < above * w.width; ++x) line[x] = d.outside;
        for (int64_t r = above; r < below; ++r) {
          for (x = 0; x < low; ++x) line[r * w.width + x] = d.outside;
          for (x = w.width - edge; x < w.width; ++x) line[r * w.width + x] = d.outside;
        }
        for (x = below * w.width; x < rows * w.width; ++x) line[x] = d.outside;
      }
      continue;
    }
    for (int64_t x = (w.width - 1) / kLanes * kLanes; x >= 0; x -= kLanes) {
      const int64_t begin = min(max(low - x, 0), kLanes);
      const int64_t end = max(min(high - x, min(w.width - x, kLanes)), 0);
      for (int64_t i = 0; i < channels; ++i) {
        const Real* from = w.source + d.channel[first + i] + copy.row * w.source_row + copy.column +
                           x * STEP + above * next;
        Real* line = to + i * c.size + copy.at + x;
        for (int64_t r = 0; r < above; ++r, line += w.width)
          *reinterpret_cast<Unaligned*>(line) = outside;
        if (begin == 0 && end == kLanes)
          for (int64_t r = above; r < below; ++r, line += w.width, from += next)
            *reinterpret_cast<Unaligned*>(line) = every<STEP>(from);
        else
          for (int64_t r = above; r < below; ++r, line += w.width, from += next)
            *reinterpret_cast<Unaligned*>(line) =
                filled<Filled>(every<STEP>(from, begin, end), begin, end, outside);
        for (int64_t r = below; r < rows; ++r, line += w.width)
          *reinterpret_cast<Unaligned*>(line) = outside;
      }
    }
  }
}

// How a panel of the right operand lies: the line of each step `at` elements from b; the same, and
// written behind one another for those who come next; so.
enum Lie { kListed, kPacks, kPacked };

// A step of it, and what a row's sums begin with, where they are of whole numbers.
template <int Steps>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector line_step(Vector sum, Real x, Vector row) {
  return sum + x * row;
}
template <int Steps>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector line_begin(const Real*) {
  return Vector{};
}

// The micro-kernel on such a panel. Where `after` says that sums are of whole numbers, C starts from
// nothing, and the steps of A's group have what its sums begin with in front.
template <int MI, int NI, int LIE, bool Partial, class After>
TILEWRIGHT_TARGET void line_product(int64_t depth, const Real* a, int64_t a_row, int64_t a_k,
                                    const Real* b, const int64_t* at, Real* panel, Real* c,
                                    int64_t c_row, Lanes lanes, bool fresh, int64_t i, int64_t j,
                                    const After& after) {
  Vector acc[MI][NI];
#pragma GCC unroll 12
  for (int m = 0; m < MI; ++m)
#pragma GCC unroll 12
    for (int n = 0; n < NI; ++n) {
      const Real* const from = c + m * c_row + n * kLanes;
      acc[m][n] = After::kWhole            ? line_begin<After::kSteps>(a + m * a_row - a_k)
                  : fresh                  ? Vector{}
                  : Partial && n == NI - 1 ? load_part(from, lanes)
                                           : *reinterpret_cast<const Unaligned*>(from);
    }
  fetch_rows<MI, NI>(depth, i, j, after);
  for (int64_t k = 0; k < depth; ++k, a += a_k, panel += NI * kLanes) {
    // Weights follow one another, and hardware begins anew with every page of them.
    __builtin_prefetch(a + (4096 / sizeof(Real)), 0, 2);
    const Real* const line = LIE == kPacked ? panel : b + at[k];
    Vector row[NI];
#pragma GCC unroll 12
    for (int n = 0; n < NI; ++n) {
      row[n] = LIE != kPacked && Partial && n == NI - 1
                   ? load_part(line + n * kLanes, lanes)
                   : *reinterpret_cast<const Unaligned*>(line + n * kLanes);
      if (LIE == kPacks) *reinterpret_cast<Unaligned*>(panel + n * kLanes) = row[n];
    }
#pragma GCC unroll 12
    for (int m = 0; m < MI; ++m) {
      const Real x = a[m * a_row];
#pragma GCC unroll 12
      for (int n = 0; n < NI; ++n) acc[m][n] = line_step<After::kSteps>(acc[m][n], x, row[n]);
    }
  }
  // Addresses are found again: kept since the loads above they would take the registers that k needs.
  asm("" : "+r"(c));
#pragma GCC unroll 12
  for (int m = 0; m < MI; ++m) {
    Real* const row = c + m * c_row;
#pragma GCC unroll 12
    for (int n = 0; n < NI; ++n) acc[m][n] = complete<After::kSteps>(acc[m][n]);
#pragma GCC unroll 12
    for (int n = 0; n < NI && After::kStores; ++n) {
      if (Partial && n == NI - 1)
        store_part(row + n * kLanes, lanes, acc[m][n]);
      else
        *reinterpret_cast<Unaligned*>(row + n * kLanes) = acc[m][n];
    }
    after(Count<NI>{}, Count<Partial>{}, i + m, j, lanes, acc[m]);
  }
}
// The one of that many rows and vectors. M rows and N points where that is always so, else 0; of them
// groups of ROWS and panels of at most MOST vectors. The first of several groups packs.
template <int MI, int NI, int ROWS, int MOST, int64_t M, int64_t N, class After>
TILEWRIGHT_TARGET void lines_of(Lie lie, int64_t rows, int64_t vectors, bool partial, int64_t depth,
                                const Real* a, int64_t a_row, int64_t a_k, const Real* b,
                                const int64_t* at, Real* panel, Real* c, int64_t c_row, Lanes lanes,
                                bool fresh, int64_t i, int64_t j, const After& after) {
  if constexpr (NI > 1)
    if (vectors < NI)
      return lines_of<MI, NI - 1, ROWS, MOST, M, N>(lie, rows, vectors, partial, depth, a, a_row, a_k,
                                                    b, at, panel, c, c_row, lanes, fresh, i, j, after);
  if constexpr (MI > 1)
    if (rows < MI)
      return lines_of<MI - 1, NI, ROWS, MOST, M, N>(lie, rows, vectors, partial, depth, a, a_row, a_k,
                                                    b, at, panel, c, c_row, lanes, fresh, i, j, after);
  if constexpr (may_be_left(M, ROWS, MI) && may_be((N + kLanes - 1) / kLanes, MOST, NI)) {
#define TILEWRIGHT_LINES(LIE, PARTIAL)                                                              \
  return line_product<MI, NI, LIE, PARTIAL>(depth, a, a_row, a_k, b, at, panel, c, c_row, lanes,    \
                                            fresh, i, j, after)
    if constexpr (N == 0 || N % kLanes != 0)
      if (partial) {
        if constexpr (M == 0 || M > ROWS) {
          if (lie == kPacked) TILEWRIGHT_LINES(kPacked, true);
          if constexpr (MI == ROWS)
            if (lie == kPacks) TILEWRIGHT_LINES(kPacks, true);
        }
        if constexpr (M == 0 || M <= ROWS) TILEWRIGHT_LINES(kListed, true);
      }
    if constexpr (N == 0 || N >= kLanes) {
      if constexpr (M == 0 || M > ROWS) {
        if (lie == kPacked) TILEWRIGHT_LINES(kPacked, false);
        if constexpr (MI == ROWS)
          if (lie == kPacks) TILEWRIGHT_LINES(kPacks, false);
      }
      if constexpr (M == 0 || M <= ROWS) TILEWRIGHT_LINES(kListed, false);
    }
#undef TILEWRIGHT_LINES
  }
}

// A block of the depth: C[i,j] += A[i,k] * B[k,j] by groups of MI rows, `group` elements apart in A, and
// panels of NI vectors of points. The first group packs the panels; there is room for all of them
// where `room` elements are enough, else for one.
template <int MI, int NI, int64_t M, int64_t N, class After>
TILEWRIGHT_TARGET void multiply_lines(int64_t rows, int64_t points, int64_t depth, const Real* a,
                                      int64_t a_row, int64_t a_k, int64_t group, const Real* b,
                                      const int64_t* at, Real* panels_at, int64_t room, Real* c,
                                      int64_t c_row, bool fresh, int64_t j0, const After& after) {
  const int64_t vectors = (points + kLanes - 1) / kLanes, panels = (vectors + NI - 1) / NI;
  const int64_t groups = (rows + MI - 1) / MI;
  // Rows of A pass by once where all panels stay in the second cache, else each panel does.
  constexpr int64_t kFew = (1 << 17) / sizeof(Real);
  const bool all = rows * depth > kFew && vectors * kLanes * depth <= room;
  const auto block = [&](int64_t p, int64_t g) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS {
    const int64_t size = vectors / panels + (p < vectors % panels);
    const int64_t j = (p * (vectors / panels) + min(p, vectors % panels)) * kLanes;
    const int64_t last = min(points - j - (size - 1) * kLanes, kLanes);
    lines_of<MI, NI, MI, NI, M, N>(groups == 1 ? kListed
                                   : g == 0    ? kPacks
                                               : kPacked,
                                   min(rows - g * MI, MI), size, last < kLanes, depth, a + g * group,
                                   a_row, a_k, b + j, at, panels_at + (all ? j * depth : 0),
                                   c + g * MI * c_row + j, c_row, first_lanes(last), fresh, g * MI,
                                   j0 + j, after);
  };
  if (all) {
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t p = 0; p < panels; ++p) block(p, g);
  } else {
    for (int64_t p = 0; p < panels; ++p)
      for (int64_t g = 0; g < groups; ++g) block(p, g);
  }
}

// The same, or by tiles of quads (tiles_text.cpp), whose groups have 16 rows.
template <int MI, int NI, int64_t M, int64_t N, class After>
TILEWRIGHT_TARGET void lines_by(int64_t rows, int64_t points, int64_t depth, const Real* a,
                                int64_t a_row, int64_t a_k, int64_t group, const Real* b,
                                const int64_t* at, Real* panels_at, int64_t room, Real* c,
                                int64_t c_row, bool fresh, int64_t j0, const After& after) {
  if constexpr (MI == 16)
    multiply_tiled_lines(rows, points, depth, a, group, b, at, panels_at, room, c, c_row, j0, after);
  else
    multiply_lines<MI, NI, M, N>(rows, points, depth, a, a_row, a_k, group, b, at, panels_at, room, c,
                                 c_row, fresh, j0, after);
}

// C[i,j] += A[i,k] * B[k,j] with B read through a window, `block` channels at a time; behind their
// copies, `copied` elements, is room for panels. Rows of points are c_line apart in C; the first point
// is the j0-th. Once: a block has all channels.
template <int MI, int NI, int STEP, int64_t M, int64_t N, bool Once, class After>
TILEWRIGHT_TARGET void convolve_band(int64_t rows, const Real* a, int64_t a_row, int64_t a_k,
                                     int64_t group, const Window& w, const Depth& d, int64_t block,
                                     int64_t copied, int64_t room, Real* c, int64_t c_row,
                                     int64_t c_line, int64_t j0, bool fresh, const After& after) {
  if (rows <= 0 || w.width <= 0 || w.height <= 0 || d.steps <= 0) return;
  const bool dense = w.height == 1 || c_line == w.width;
  const int64_t lines = dense ? 1 : w.height, points = dense ? w.width * w.height : w.width;
  bool lies = STEP == 1 && (!dense || w.height == 1 || w.row_step * w.source_row == w.width);
  for (int64_t t = 0; t < d.taps; ++t) {
    const int64_t row = w.first_row + d.tap[t].row, column = w.first_column + d.tap[t].column;
    lies = lies && row >= 0 && row + (w.height - 1) * w.row_step < w.rows && column >= 0 &&
           column + (w.width - 1) * STEP < w.columns;
  }
  Copies copies;
  if (!lies) find_copies(w, d, copies);
  int64_t* const at = d.at;
  // A block of all channels may have steps in any order.
  const int64_t of_channel = d.steps / d.channels;
  for (int64_t first = 0; first < d.channels; first += block) {
    const int64_t channels = min(block, d.channels - first);
    const int64_t k0 = first * of_channel, steps = channels * of_channel;
    if (!lies) copy_lines<STEP, After::kWhole>(w, d, copies, first, channels, d.packed);
    for (int64_t k = 0; k < steps; ++k) {
      const Step s = d.step[k0 + k];
      const Tap t = d.tap[s.tap];
      at[k] = lies ? d.channel[s.channel] + t.row * w.source_row + t.column
                   : (s.channel - first) * copies.size + copies.tap[s.tap];
    }
    const Real* b = lies ? w.source : d.packed;
    for (int64_t l = 0; l < lines; ++l, b += lies ? w.row_step * w.source_row : w.width) {
      if constexpr (!Once)
        if (first + block < d.channels) {
          lines_by<MI, NI, M, N>(rows, points, steps, a + k0 * a_k, a_row, a_k, group, b, at,
                                       d.packed + copied, room, c + l * c_line, c_row,
                                       fresh && first == 0, 0, Keep{});
          continue;
        }
      lines_by<MI, NI, M, N>(rows, points, steps, a + k0 * a_k, a_row, a_k, group, b, at,
                                   d.packed + copied, room, c + l * c_line, c_row,
                                   fresh && first == 0, j0 + l * w.width, after);
    }
  }
}

// Sums that lie row after row of points, to where their rows are c_line apart.
TILEWRIGHT_TARGET inline void set_apart(int64_t rows, int64_t height, int64_t width, const Real* sums,
                                        Real* c, int64_t c_row, int64_t c_line, bool fresh) {
  const int64_t left = width % kLanes;
  const Lanes lanes = first_lanes(left);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t y = 0; y < height; ++y, sums += width) {
      Real* const to = c + i * c_row + y * c_line;
      for (int64_t x = 0; x + kLanes <= width; x += kLanes) {
        Vector sum = *reinterpret_cast<const Unaligned*>(sums + x);
        if (!fresh) sum += *reinterpret_cast<const Unaligned*>(to + x);
        *reinterpret_cast<Unaligned*>(to + x) = sum;
      }
      if (left == 0) continue;
      Vector sum = load_part(sums + width - left, lanes);
      if (!fresh) sum += load_part(to + width - left, lanes);
      store_part(to + width - left, lanes, sum);
    }
}

// Whether rows of points fill so many more vectors one behind the other than each alone that their
// sums had better be set apart afterwards, which takes some cycles a vector.
inline bool fill_more(const Window& w, int64_t steps) {
  const int64_t alone = w.height * ((w.width + kLanes - 1) / kLanes);
  const int64_t together = (w.height * w.width + kLanes - 1) / kLanes;
  return (alone - together) * steps > 16 * alone;
}

// The same by bands of so many rows of points: copies of more channels have room then, and what is
// added to once for each block of them stays in the second cache. Rows that are apart in C are summed
// one behind the other in `apart` where that fills more lanes; null: they are not.
template <int MI, int NI, int STEP, int64_t M, int64_t N, bool Once, class After = Keep>
TILEWRIGHT_TARGET void convolve_lines(int64_t rows, const Real* a, int64_t a_row, int64_t a_k,
                                      int64_t group, const Window& w, const Depth& d, int64_t band,
                                      int64_t block, int64_t copied, int64_t room, Real* c,
                                      int64_t c_row, int64_t c_line, bool fresh,
                                      const After& after = {}, Real* apart = nullptr) {
  for (int64_t h = 0; h < w.height; h += band) {
    Window part = w;
    part.height = min(band, w.height - h);
    part.first_row += h * w.row_step;
    part.source += h * w.row_step * w.source_row;
    if constexpr (N == 0 && !After::kWhole)
      if (apart && c_line != w.width && fill_more(part, d.steps)) {
        convolve_band<MI, NI, STEP, M, 0, Once>(rows, a, a_row, a_k, group, part, d, block, copied,
                                                room, apart, part.height * w.width, w.width, 0, true,
                                                after);
        set_apart(rows, part.height, w.width, apart, c + h * c_line, c_row, c_line, fresh);
        continue;
      }
    convolve_band<MI, NI, STEP, M, N, Once>(rows, a, a_row, a_k, group, part, d, block, copied, room,
                                            c + h * c_line, c_row, c_line, h * w.width, fresh, after);
  }
}
)";

}  // namespace

std::string lines_of_points_text() { return kLines; }

}  // namespace tilewright::cpu
