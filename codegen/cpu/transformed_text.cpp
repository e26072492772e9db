// Convolutions of up to 5 taps a dimension by minimal filtering, F(2, taps): Lavin and Gray, Fast
// algorithms for convolutional neural networks, CVPR 2016, sections 4 and 4.1.
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kTransformed = R"(
// Two points of a row of taps by one product more than there are taps (Toom and Cook's): both are
// polynomials, of elements and of taps, which are multiplied at as many places as their product has
// coefficients, the last of them infinity. Of three taps: (d2 - d0) g0, (d1 + d2) (g0 + g1 + g2) / 2,
// (d2 - d1) (g0 - g1 + g2) / 2, (d3 - d1) g2. Rows and columns alike: tiles of TAPS + 1 elements each
// way, 2 x 2 points. A single tap has one point and one product. No point takes anything of elements
// outside of its own taps: the first leaves out the last place, the second the place 0.
template <int TAPS>
struct Filter {
  static constexpr int kPoints = TAPS > 1 ? 2 : 1, kPlaces = TAPS > 1 ? TAPS + 1 : 1;
  double elements[kPlaces][kPlaces] = {}, taps[kPlaces][TAPS] = {}, points[kPoints][kPlaces] = {};
};
template <int TAPS>
constexpr Filter<TAPS> filter_of() {
  constexpr double kPlace[] = {0, 1, -1, 2, -0.5};
  constexpr int kFinite = Filter<TAPS>::kPlaces - 1;
  Filter<TAPS> f;
  for (int i = 0; i <= kFinite; ++i) {
    // What is zero at all other places.
    double scale = 1, power = 1;
    f.elements[i][0] = 1;
    for (int j = 0, degree = 0; j < kFinite; ++j) {
      if (j == i) continue;
      for (int k = ++degree; k >= 0; --k)
        f.elements[i][k] = (k > 0 ? f.elements[i][k - 1] : 0) - kPlace[j] * f.elements[i][k];
      if (i < kFinite) scale *= kPlace[i] - kPlace[j];
    }
    if (i == kFinite) {
      f.taps[i][TAPS - 1] = f.points[Filter<TAPS>::kPoints - 1][i] = 1;
      continue;
    }
    for (int k = 0; k < TAPS; ++k, power *= kPlace[i]) f.taps[i][k] = power / scale;
    f.points[0][i] = 1, f.points[Filter<TAPS>::kPoints - 1][i] = kPlace[i];
  }
  return f;
}
template <int TAPS>
struct PlacesOf {
  static constexpr int kRows = Filter<TAPS>::kPlaces, kColumns = kRows;
  static constexpr double by(int row, int column) { return filter_of<TAPS>().elements[row][column]; }
};
template <int TAPS>
struct PointsOf {
  static constexpr int kRows = Filter<TAPS>::kPoints, kColumns = Filter<TAPS>::kPlaces;
  static constexpr double by(int row, int column) { return filter_of<TAPS>().points[row][column]; }
};
// A row's sum of vectors, from the last on; Begun: `sum` has some.
template <class Of, int ROW, int COLUMN, bool Begun>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector weighed(const Vector* v, Vector sum) {
  constexpr double by = Of::by(ROW, COLUMN);
  if constexpr (by == 1)
    sum = Begun ? sum + v[COLUMN] : v[COLUMN];
  else if constexpr (by == -1)
    sum = Begun ? sum - v[COLUMN] : -v[COLUMN];
  else if constexpr (by != 0)
    sum = Begun ? sum + v[COLUMN] * static_cast<Real>(by) : v[COLUMN] * static_cast<Real>(by);
  if constexpr (COLUMN > 0) return weighed<Of, ROW, COLUMN - 1, Begun || by != 0>(v, sum);
  return sum;
}
// put(row, its sum), for all rows.
template <class Of, int ROW = 0, class Put>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void weigh(const Vector* v, const Put& put) {
  put(ROW, weighed<Of, ROW, Of::kColumns - 1, false>(v, Vector{}));
  if constexpr (ROW + 1 < Of::kRows) weigh<Of, ROW + 1>(v, put);
}

struct Transformed {
  int64_t band, together;   // rows of tiles, and rows of A, at a time
  const Real* left;         // taps of A's rows: by place, groups of rows, channels
  int64_t group, place;     // elements from one group, or place, to the next
  Real* memory;             // lines of a channel, the right operand, sums, and panels, of
  int64_t lines, right, sums, panels;  // so many elements
};

// The taps of one row and channel, `apart` elements from one place to the next; null: zeros.
template <int DOWN, int ACROSS, class Element>
inline void transform_taps(const Element* from, int64_t row, int64_t column, Real* to, int64_t apart) {
  constexpr Filter<DOWN> down = filter_of<DOWN>();
  constexpr Filter<ACROSS> across = filter_of<ACROSS>();
  for (int r = 0; r < down.kPlaces; ++r) {
    double line[ACROSS] = {};
    for (int c = 0; c < ACROSS && from; ++c)
      for (int k = 0; k < DOWN; ++k) line[c] += down.taps[r][k] * from[k * row + c * column];
    for (int c = 0; c < across.kPlaces; ++c, to += apart) {
      double sum = 0;
      for (int k = 0; k < ACROSS; ++k) sum += across.taps[c][k] * line[k];
      *to = static_cast<Real>(sum);
    }
  }
}

// All channels of `down` rows of `across` tiles, the first element at `row`: by place, `apart` from one
// to the next, and channels, `pitch` apart, of which what is behind the tiles is zero. `memory`: room for
// a channel's elements, every other one apart, and for the places of its rows.
template <int DOWN, int ACROSS>
TILEWRIGHT_TARGET inline void transform_band(const Window& w, const Depth& d, int64_t row,
                                             int64_t down, int64_t across, Real* memory, Real* to,
                                             int64_t pitch, int64_t apart) {
  constexpr int kDown = Filter<DOWN>::kPoints, kRows = Filter<DOWN>::kPlaces;
  constexpr int kAcross = Filter<ACROSS>::kPoints, kColumns = Filter<ACROSS>::kPlaces;
  // Lines follow one another; the last vector of each is written before the next line, into which it
  // may reach.
  const int64_t line = across + (kColumns - 1) / 2, rows = kDown * down + kRows - kDown;
  const int64_t all = rows * line, piece = (all + 4 * kLanes - 1) / kLanes * kLanes;
  Real* const lines = ACROSS > 1 ? memory + kAcross * piece : memory;
  const int64_t above = min(max(-(w.first_row + row), 0), rows);
  const int64_t below = max(min(w.rows - (w.first_row + row), rows), above);
  for (int64_t k = 0; k < d.channels; ++k) {
    const Real* const source = w.source + d.channel[k] + row * w.source_row;
    for (int64_t x = (line - 1) / kLanes * kLanes; x >= 0; x -= kLanes) {
      const int64_t at = w.first_column + kAcross * x;
      const bool whole = at >= 0 && at + kAcross * kLanes <= w.columns;
      Lanes inside[kAcross];
      for (int64_t i = 0; i < kAcross; ++i) {
        const int64_t first = min(max(-(at + i * kLanes), 0), kLanes);
        inside[i] = lanes_between(first, max(min(w.columns - (at + i * kLanes), kLanes), first));
      }
      for (int64_t r = 0; r < rows; ++r) {
        const Real* const from = source + r * w.source_row + kAcross * x;
        Vector v[kAcross] = {};
        if (r >= above && r < below) {
#pragma GCC unroll 2
          for (int i = 0; i < kAcross; ++i)
            v[i] = whole ? every<1>(from + i * kLanes) : load_part(from + i * kLanes, inside[i]);
        }
        *reinterpret_cast<Unaligned*>(memory + r * line + x) = pick<kAcross, 0>(v);
        if constexpr (kAcross > 1)
          *reinterpret_cast<Unaligned*>(memory + piece + r * line + x) = pick<kAcross, kAcross - 1>(v);
      }
    }
    if constexpr (ACROSS > 1)
      for (int64_t x = 0; x < all; x += kLanes) {
        Vector v[kColumns];
#pragma GCC unroll 8
        for (int e = 0; e < kColumns; ++e) v[e] = every<1>(memory + e % 2 * piece + x + e / 2);
        weigh<PlacesOf<ACROSS>>(v, [&](int p, Vector sum) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS {
          *reinterpret_cast<Unaligned*>(lines + p * piece + x) = sum;
        });
      }
    Real* const its = to + k * pitch;
#pragma GCC unroll 8
    for (int64_t c = 0; c < kColumns; ++c)
      for (int64_t r = 0; r < down; ++r) {
        const Real* const from = lines + c * piece + kDown * r * line;
        Real* const into = its + c * apart + r * across;
        for (int64_t x = 0; x < across; x += kLanes) {
          Vector v[kRows];
#pragma GCC unroll 8
          for (int e = 0; e < kRows; ++e) v[e] = every<1>(from + e * line + x);
          weigh<PlacesOf<DOWN>>(v, [&](int p, Vector sum) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS {
            *reinterpret_cast<Unaligned*>(into + p * kColumns * apart + x) = sum;
          });
        }
      }
    if (down * across < pitch)
      for (int64_t p = 0; p < kRows * kColumns; ++p)
        *reinterpret_cast<Unaligned*>(its + p * apart + down * across) = Vector{};
  }
}

// Points of `height` rows, `width` each, one behind the other, of one row of sums. `parts`: room for
// a tile's points times `pitch`. Rows are written as whole vectors, the last of each before the next row.
template <int DOWN, int ACROSS>
TILEWRIGHT_TARGET inline void points_of_sums(const Real* sums, int64_t apart, int64_t pitch,
                                             int64_t across, int64_t height, int64_t width,
                                             Real* parts, Real* to) {
  constexpr int kDown = Filter<DOWN>::kPoints, kRows = Filter<DOWN>::kPlaces;
  constexpr int kAcross = Filter<ACROSS>::kPoints, kColumns = Filter<ACROSS>::kPlaces;
  for (int64_t t = 0; t < pitch; t += kLanes) {
    Vector part[kDown][kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      Vector v[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) v[r] = every<1>(sums + (r * kColumns + c) * apart + t);
      weigh<PointsOf<DOWN>>(v, [&](int y, Vector sum) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS {
        part[y][c] = sum;
      });
    }
#pragma GCC unroll 2
    for (int y = 0; y < kDown; ++y)
      weigh<PointsOf<ACROSS>>(part[y], [&](int x, Vector sum) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS {
        *reinterpret_cast<Unaligned*>(parts + (y * kAcross + x) * pitch + t) = sum;
      });
  }
  for (int64_t y = 0; y < height; ++y) {
    const Real* const first = parts + y % kDown * kAcross * pitch + y / kDown * across;
    for (int64_t x = 0; x < across; x += kLanes) {
      if constexpr (kAcross == 1) {
        *reinterpret_cast<Unaligned*>(to + y * width + x) = every<1>(first + x);
      } else {
        const Vector even = every<1>(first + x), odd = every<1>(first + pitch + x);
        *reinterpret_cast<Unaligned*>(to + y * width + 2 * x) = interleave_first(even, odd);
        *reinterpret_cast<Unaligned*>(to + y * width + 2 * x + kLanes) = interleave_last(even, odd);
      }
    }
  }
}

// C[i,j] = A[i,k] * B[k,j] with B read through a window of DOWN x ACROSS taps that moves by one, of
// which A's rows are transformed. Rows of points are c_line apart in C; M and N: rows of A, and tiles filled up
// to vectors, at a time, where that is always so, else 0.
template <int MI, int NI, int DOWN, int ACROSS, int64_t M, int64_t N, class After = Keep>
TILEWRIGHT_TARGET void convolve_transformed(int64_t rows, const Window& w, const Depth& d,
                                            const Transformed& t, Real* c, int64_t c_row,
                                            int64_t c_line, const After& after = {}) {
  if (rows <= 0 || w.width <= 0 || w.height <= 0) return;
  constexpr int kDown = Filter<DOWN>::kPoints, kAcross = Filter<ACROSS>::kPoints;
  constexpr int kPlaces = Filter<DOWN>::kPlaces * Filter<ACROSS>::kPlaces;
  const int64_t across = (w.width + kAcross - 1) / kAcross, all = (w.height + kDown - 1) / kDown;
  constexpr int64_t kSkew = 64 / sizeof(Real);  // places are not in the same sets of a cache
  for (int64_t first = 0; first < all; first += t.band) {
    const int64_t down = min(t.band, all - first), row = kDown * first;
    const int64_t height = min(kDown * down, w.height - row);
    const int64_t pitch = (down * across + kLanes - 1) / kLanes * kLanes;
    const int64_t right_place = d.channels * pitch + kSkew;
    const int64_t sums_place = t.together * pitch + kSkew;
    Real* const lines = t.memory;
    Real* const right = lines + t.lines;
    Real* const sums = right + t.right;
    Real* const panels = sums + t.sums;
    transform_band<DOWN, ACROSS>(w, d, row, down, across, lines, right, pitch, right_place);
    for (int64_t k = 0; k < d.channels; ++k) d.at[k] = k * pitch;
    Real* const points = lines + (kDown * kAcross * pitch + kLanes);  // of the lines nothing is wanted any more
    for (int64_t i = 0; i < rows; i += t.together) {
      const int64_t here = min(t.together, rows - i);
      for (int64_t p = 0; p < kPlaces; ++p)
        multiply_lines<MI, NI, M, N>(here, pitch, d.channels, t.left + p * t.place + i / MI * t.group,
                                     1, MI, t.group, right + p * right_place, d.at, panels, t.panels,
                                     sums + p * sums_place, pitch, true, 0, Keep{});
      for (int64_t r = 0; r < here; ++r) {
        points_of_sums<DOWN, ACROSS>(sums + r * pitch, sums_place, pitch, across, height, w.width,
                                     lines, points);
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
