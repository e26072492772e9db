// Convolutions of 3 x 3 taps by minimal filtering, F(2 x 2, 3 x 3): Lavin and Gray, Fast algorithms
// for convolutional neural networks, CVPR 2016, sections 4 and 4.1.
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kTransformed = R"(
// Two points of a row of three taps, from elements d0 to d3 and taps g0 to g2, by four products:
//   m0 = (d0 - d2) g0, m1 = (d1 + d2) (g0 + g1 + g2) / 2, m2 = (d2 - d1) (g0 - g1 + g2) / 2,
//   m3 = (d1 - d3) g2; points m0 + m1 + m2 and m1 - m2 - m3.
// Rows and columns alike: tiles of 4 x 4 elements, 2 x 2 points, 16 places. No point takes anything of
// elements outside of its own taps.
struct Transformed {
  int64_t band, together;   // rows of tiles, and rows of A, at a time
  const Real* left;         // taps of A's rows: by place, groups of rows, channels
  int64_t group, place;     // elements from one group, or place, to the next
  Real* memory;             // lines of a channel, the right operand, sums, and panels, of
  int64_t lines, right, sums, panels;  // so many elements
};

// The taps of one row and channel, `apart` elements from one place to the next; null: zeros.
template <class Element>
inline void transform_taps(const Element* from, int64_t row, int64_t column, Real* to, int64_t apart) {
  double half[4][3] = {};
  for (int c = 0; c < 3 && from; ++c) {
    const double g0 = from[c * column], g1 = from[row + c * column], g2 = from[2 * row + c * column];
    half[0][c] = g0, half[1][c] = (g0 + g1 + g2) / 2, half[2][c] = (g0 - g1 + g2) / 2, half[3][c] = g2;
  }
  for (int r = 0; r < 4; ++r, to += 4 * apart) {
    const double g0 = half[r][0], g1 = half[r][1], g2 = half[r][2];
    to[0] = static_cast<Real>(g0), to[apart] = static_cast<Real>((g0 + g1 + g2) / 2);
    to[2 * apart] = static_cast<Real>((g0 - g1 + g2) / 2), to[3 * apart] = static_cast<Real>(g2);
  }
}

// All channels of `down` rows of `across` tiles, the first element at `row`: by place, `apart` from one
// to the next, and channels, `pitch` apart, of which what is behind the tiles is zero. `memory`: room for
// a channel's elements, every other one apart, and for the four places of its rows.
TILEWRIGHT_TARGET inline void transform_band(const Window& w, const Depth& d, int64_t row,
                                             int64_t down, int64_t across, Real* memory, Real* to,
                                             int64_t pitch, int64_t apart) {
  // Lines follow one another; the last vector of each is written before the next line, into which it
  // may reach.
  const int64_t line = across + 1, rows = 2 * down + 2, all = rows * line;
  const int64_t piece = (all + 4 * kLanes - 1) / kLanes * kLanes;
  Real* const evens = memory;
  Real* const odds = evens + piece;
  Real* const lines = odds + piece;
  const int64_t above = min(max(-(w.first_row + row), 0), rows);
  const int64_t below = max(min(w.rows - (w.first_row + row), rows), above);
  for (int64_t k = 0; k < d.channels; ++k) {
    const Real* const source = w.source + d.channel[k] + row * w.source_row;
    for (int64_t x = across / kLanes * kLanes; x >= 0; x -= kLanes) {
      const int64_t at = w.first_column + 2 * x;
      const bool whole = at >= 0 && at + 2 * kLanes <= w.columns;
      Lanes inside[2];
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t first = min(max(-(at + i * kLanes), 0), kLanes);
        inside[i] = lanes_between(first, max(min(w.columns - (at + i * kLanes), kLanes), first));
      }
      for (int64_t r = 0; r < rows; ++r) {
        const Real* const from = source + r * w.source_row + 2 * x;
        Vector v[2] = {};
        if (r >= above && r < below) {
          if (whole)
            v[0] = every<1>(from), v[1] = every<1>(from + kLanes);
          else
            v[0] = load_part(from, inside[0]), v[1] = load_part(from + kLanes, inside[1]);
        }
        *reinterpret_cast<Unaligned*>(evens + r * line + x) = pick<2, 0>(v);
        *reinterpret_cast<Unaligned*>(odds + r * line + x) = pick<2, 1>(v);
      }
    }
    for (int64_t x = 0; x < all; x += kLanes) {
      const Vector d0 = every<1>(evens + x), d1 = every<1>(odds + x);
      const Vector d2 = every<1>(evens + x + 1), d3 = every<1>(odds + x + 1);
      *reinterpret_cast<Unaligned*>(lines + x) = d0 - d2;
      *reinterpret_cast<Unaligned*>(lines + piece + x) = d1 + d2;
      *reinterpret_cast<Unaligned*>(lines + 2 * piece + x) = d2 - d1;
      *reinterpret_cast<Unaligned*>(lines + 3 * piece + x) = d1 - d3;
    }
    Real* const its = to + k * pitch;
#pragma GCC unroll 4
    for (int64_t c = 0; c < 4; ++c)
      for (int64_t r = 0; r < down; ++r) {
        const Real* const from = lines + c * piece + 2 * r * line;
        Real* const into = its + c * apart + r * across;
        for (int64_t x = 0; x < across; x += kLanes) {
          const Vector d0 = every<1>(from + x), d1 = every<1>(from + line + x);
          const Vector d2 = every<1>(from + 2 * line + x), d3 = every<1>(from + 3 * line + x);
          *reinterpret_cast<Unaligned*>(into + x) = d0 - d2;
          *reinterpret_cast<Unaligned*>(into + 4 * apart + x) = d1 + d2;
          *reinterpret_cast<Unaligned*>(into + 8 * apart + x) = d2 - d1;
          *reinterpret_cast<Unaligned*>(into + 12 * apart + x) = d1 - d3;
        }
      }
    if (down * across < pitch)
      for (int64_t p = 0; p < 16; ++p)
        *reinterpret_cast<Unaligned*>(its + p * apart + down * across) = Vector{};
  }
}

// Points of `height` rows, `width` each, one behind the other, of one row of sums. `parts`: room for
// four times `pitch`. Rows are written as whole vectors, the last of each before the next row.
TILEWRIGHT_TARGET inline void points_of_sums(const Real* sums, int64_t apart, int64_t pitch,
                                             int64_t across, int64_t height, int64_t width,
                                             Real* parts, Real* to) {
  for (int64_t t = 0; t < pitch; t += kLanes) {
    Vector upper[4], lower[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const Vector m0 = every<1>(sums + c * apart + t), m1 = every<1>(sums + (4 + c) * apart + t);
      const Vector m2 = every<1>(sums + (8 + c) * apart + t);
      const Vector m3 = every<1>(sums + (12 + c) * apart + t);
      upper[c] = m0 + m1 + m2, lower[c] = m1 - m2 - m3;
    }
    *reinterpret_cast<Unaligned*>(parts + t) = upper[0] + upper[1] + upper[2];
    *reinterpret_cast<Unaligned*>(parts + pitch + t) = upper[1] - upper[2] - upper[3];
    *reinterpret_cast<Unaligned*>(parts + 2 * pitch + t) = lower[0] + lower[1] + lower[2];
    *reinterpret_cast<Unaligned*>(parts + 3 * pitch + t) = lower[1] - lower[2] - lower[3];
  }
  for (int64_t y = 0; y < height; ++y) {
    const Real* const first = parts + y % 2 * 2 * pitch + y / 2 * across;
    for (int64_t x = 0; x < across; x += kLanes) {
      const Vector even = every<1>(first + x), odd = every<1>(first + pitch + x);
      *reinterpret_cast<Unaligned*>(to + y * width + 2 * x) = interleave_first(even, odd);
      *reinterpret_cast<Unaligned*>(to + y * width + 2 * x + kLanes) = interleave_last(even, odd);
    }
  }
}

// C[i,j] = A[i,k] * B[k,j] with B read through a window of 3 x 3 taps that moves by one, of which A's
// rows are transformed. Rows of points are c_line apart in C; M and N: rows of A, and tiles filled up
// to vectors, at a time, where that is always so, else 0.
template <int MI, int NI, int64_t M, int64_t N, class After = Keep>
TILEWRIGHT_TARGET void convolve_transformed(int64_t rows, const Window& w, const Depth& d,
                                            const Transformed& t, Real* c, int64_t c_row,
                                            int64_t c_line, const After& after = {}) {
  if (rows <= 0 || w.width <= 0 || w.height <= 0) return;
  const int64_t across = (w.width + 1) / 2, all = (w.height + 1) / 2;
  constexpr int64_t kSkew = 64 / sizeof(Real);  // places are not in the same sets of a cache
  for (int64_t first = 0; first < all; first += t.band) {
    const int64_t down = min(t.band, all - first), row = 2 * first;
    const int64_t height = min(2 * down, w.height - row);
    const int64_t pitch = (down * across + kLanes - 1) / kLanes * kLanes;
    const int64_t right_place = d.channels * pitch + kSkew;
    const int64_t sums_place = t.together * pitch + kSkew;
    Real* const lines = t.memory;
    Real* const right = lines + t.lines;
    Real* const sums = right + t.right;
    Real* const panels = sums + t.sums;
    transform_band(w, d, row, down, across, lines, right, pitch, right_place);
    for (int64_t k = 0; k < d.channels; ++k) d.at[k] = k * pitch;
    Real* const points = lines + (4 * pitch + kLanes);  // of the lines nothing is wanted any more
    for (int64_t i = 0; i < rows; i += t.together) {
      const int64_t here = min(t.together, rows - i);
      for (int64_t p = 0; p < 16; ++p)
        multiply_lines<MI, NI, M, N>(here, pitch, d.channels, t.left + p * t.place + i / MI * t.group,
                                     1, MI, t.group, right + p * right_place, d.at, panels, t.panels,
                                     sums + p * sums_place, pitch, true, 0, Keep{});
      for (int64_t r = 0; r < here; ++r) {
        points_of_sums(sums + r * pitch, sums_place, pitch, across, height, w.width, lines, points);
        Real* const to = c + (i + r) * c_row + row * c_line;
        if (w.height > 1 && c_line != w.width) {
          set_apart(1, height, w.width, points, to, c_row, c_line, true);
          continue;
        }
        const int64_t count = height * w.width;
        for (int64_t j = 0; j < count; j += kLanes) {
          const Vector v = every<1>(points + j);
          const Lanes lanes = first_lanes(min(count - j, kLanes));
          if (j + kLanes <= count) {
            if (After::kStores) *reinterpret_cast<Unaligned*>(to + j) = v;
            after(Count<1>{}, Count<false>{}, i + r, row * w.width + j, lanes, &v);
          } else {
            if (After::kStores) store_part(to + j, lanes, v);
            after(Count<1>{}, Count<true>{}, i + r, row * w.width + j, lanes, &v);
          }
        }
      }
    }
  }
}
)";

}  // namespace

std::string transformed_text() { return kTransformed; }

}  // namespace tilewright::cpu
