// Matrix products whose right operand is read through a window, as convolutions read their input: its
// columns are points of two loops, its depth those of several.
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kWindow = R"(
// A step of the depth: where it lies in the source, from that of the depth's origin, and how far it
// moves the window's row and column.
struct Step {
  int64_t offset;
  int32_t row, column;
};
// The right operand of a product: column j is point (j / width, j % width) of a box of `width`
// points a row, each of which reads one element of the source a step. Elements whose row or column is
// outside [0, rows) or [0, columns) are padding, and zero.
struct Window {
  const Real* source;  // of point (0, 0) at the depth's origin
  int64_t width;
  int64_t row_stride;  // elements from one row of points to the next
  int64_t first_row, row_step, rows;
  int64_t first_column, columns;
};

TILEWRIGHT_TARGET inline Vector load_first(const Real* p, int64_t n) {
  if (n >= kLanes) return *reinterpret_cast<const Unaligned*>(p);
  return n <= 0 ? Vector{} : load_part(p, first_lanes(n));
}
// Every STEP-th element from p[0], n of them (kLanes at most); nothing past the last is touched.
template <int STEP>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector every(const Real* p, int64_t n) {
  const int64_t span = (n - 1) * STEP + 1;
  if (STEP == 1) return load_first(p, n);
  if (STEP == 2) return evens(load_first(p, span), load_first(p + kLanes, span - kLanes));
  if (STEP == 4)
    return evens(evens(load_first(p, span), load_first(p + kLanes, span - kLanes)),
                 evens(load_first(p + 2 * kLanes, span - 2 * kLanes),
                       load_first(p + 3 * kLanes, span - 3 * kLanes)));
  Vector v = {};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i * STEP];
  return v;
}
template <int STEP>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void copy_every(const Real* from, int64_t n, Real* to) {
  for (; n >= kLanes; n -= kLanes, from += STEP * kLanes, to += kLanes)
    *reinterpret_cast<Unaligned*>(to) = every<STEP>(from, kLanes);
  if (n > 0) store_part(to, first_lanes(n), every<STEP>(from, n));
}

// Columns [first, first + count) of `depth` steps, as rows that are `to_k` apart.
template <int STEP>
TILEWRIGHT_TARGET void gather(const Window& w, const Step* steps, int64_t depth, int64_t first,
                              int64_t count, Real* to, int64_t to_k) {
  for (int64_t done = 0; done < count;) {
    const int64_t row = (first + done) / w.width, column = (first + done) % w.width;
    const int64_t n = min(w.width - column, count - done);
    const int64_t y0 = w.first_row + row * w.row_step, x0 = w.first_column + column * STEP;
    const Real* const from = w.source + row * w.row_stride + column * STEP;
    Real* out = to + done;
    for (int64_t k = 0; k < depth; ++k, out += to_k) {
      const Step s = steps[k];
      const int64_t y = y0 + s.row, x = x0 + s.column;
      if (y >= 0 && y < w.rows && x >= 0 && x + (n - 1) * STEP < w.columns) {
        copy_every<STEP>(from + s.offset, n, out);
        continue;
      }
      int64_t low = 0, high = n;
      if (y < 0 || y >= w.rows) high = 0;
      if (x < 0) low = min((STEP - 1 - x) / STEP, high);
      if (x + (n - 1) * STEP >= w.columns)
        high = max(low, min(high, (w.columns - x + STEP - 1) / STEP));
      for (int64_t i = 0; i < low; ++i) out[i] = 0;
      if (low < high) copy_every<STEP>(from + s.offset + low * STEP, high - low, out + low);
      for (int64_t i = max(low, high); i < n; ++i) out[i] = 0;
    }
    done += n;
  }
}

// C[i,j] += A[i,k] * B[k,j] with B read through a window: a panel of NI vectors by kBlock steps of it
// is gathered into 32 KiB, where it stays while every row of A passes.
template <int MI, int NI, int STEP>
TILEWRIGHT_TARGET void convolve(int64_t rows, int64_t columns, int64_t depth, const Real* a,
                                int64_t a_row, int64_t a_k, const Window& w, const Step* steps,
                                Real* gathered, Real* c, int64_t c_row, bool fresh) {
  if (rows <= 0 || columns <= 0 || depth <= 0) return;
  constexpr int64_t kBlock = kGathered / (NI * kLanes);
  const int64_t vectors = (columns + kLanes - 1) / kLanes, panels = (vectors + NI - 1) / NI;
  const int64_t blocks = (depth + kBlock - 1) / kBlock;
  for (int64_t p = 0, at = 0; p < panels; ++p) {
    const int64_t size = vectors / panels + (p < vectors % panels);
    const int64_t count = min(columns - at * kLanes, size * kLanes);
    const int64_t last = count - (size - 1) * kLanes;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t k = depth * b / blocks, steps_here = depth * (b + 1) / blocks - k;
      gather<STEP>(w, steps + k, steps_here, at * kLanes, count, gathered, NI * kLanes);
      if (last == kLanes)
        panel_of<MI, NI, false>(size, rows, steps_here, a + k * a_k, a_row, a_k, gathered,
                                NI * kLanes, c + at * kLanes, c_row, first_lanes(last),
                                fresh && b == 0);
      else
        panel_of<MI, NI, true>(size, rows, steps_here, a + k * a_k, a_row, a_k, gathered,
                               NI * kLanes, c + at * kLanes, c_row, first_lanes(last),
                               fresh && b == 0);
    }
    at += size;
  }
}
)";

}  // namespace

std::string window_text(int vector_bytes, bool f64) {
  const int lanes = vector_bytes / (f64 ? 8 : 4);
  std::string text = "\nusing std::int32_t;\nconstexpr int64_t kGathered = " +
                     std::to_string(kGatheredBytes) +
                     " / sizeof(Real);\n// Lanes 0, 2, 4, ... of two vectors, one after the other.\n"
                     "TILEWRIGHT_TARGET inline Vector evens(Vector a, Vector b) {\n"
                     "  return __builtin_shufflevector(a, b";
  for (int i = 0; i < lanes; ++i) text += ", " + std::to_string(2 * i);
  return text + ");\n}" + kWindow;
}

}  // namespace tilewright::cpu
