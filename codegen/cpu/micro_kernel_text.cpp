// Outer-product micro-kernels as source (Chimera, section V-B, Algorithm 2): one template for every
// shape, behind one interface, `multiply`, which covers any box with them.
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/prelude.h"
#include "core/base/format.h"
#include "core/lowering/product_loads.h"

namespace tilewright::cpu {
namespace {

constexpr int kMostRows = 12;    // of a micro-kernel's block: those of narrow panels
constexpr int kMostVectors = 5;  // of its width
// Steps that rows of B are fetched ahead where they lie apart: at least, and where nobody has
// fetched them into the second cache, those of so many multiply-adds, which take as long as the
// last cache.
constexpr int kStepsAhead = 8, kProductsAhead = 400;
constexpr int kLongDepth = 48;    // steps that take longer than what is fetched before them
constexpr int kLineOfSteps = 16;  // elements of A, each read in a step of its own

constexpr const char* kKnown = R"(
// How far apart neighbours lie, as a type: addresses of many rows are then one register's and numbers.
template <int64_t N>
struct Known {
  constexpr operator int64_t() const { return N; }
};
)";

constexpr const char* kScalar = R"(
// C[i,j] += A[i,k] * B[k,j], as it is written. `fresh`: C starts from zero.
template <int, int, int64_t, int64_t>
TILEWRIGHT_TARGET inline void multiply(int64_t rows, int64_t columns, int64_t depth, const Real* a,
                                       int64_t a_row, int64_t a_k, const Real* b, int64_t b_k,
                                       Real* c, int64_t c_row, bool fresh) {
  for (int64_t i = 0; i < rows; ++i) {
    Real* const out = c + i * c_row;
    for (int64_t j = 0; j < columns && fresh; ++j) out[j] = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const Real x = a[i * a_row + k * a_k];
      const Real* const row = b + k * b_k;
      for (int64_t j = 0; j < columns; ++j) out[j] += x * row[j];
    }
  }
}
)";

constexpr const char* kThen = R"(
// A long product as a function of its own: between much else a compiler might keep its sums in memory.
template <class Product>
__attribute__((noinline)) TILEWRIGHT_TARGET void by_itself(const Product& product) {
  product();
}
template <int N>
struct Count {
  static constexpr int value = N;
};
// What a product's rows go through before they leave their registers: nothing.
struct Keep {
  static constexpr bool kStores = true;
  static constexpr int kSteps = 1;  // of the depth, in an element of A and of B
  static constexpr bool kWhole = false;  // sums are of whole numbers
  static constexpr bool kFetches = false;
  template <class... Arguments>
  TILEWRIGHT_TARGET TILEWRIGHT_INLINE void operator()(Arguments...) const {}
};
// f(Count<vectors>, Count<whether only `lanes` of the last are C's>, row, column, lanes, sums) for each
// row of a micro-kernel's block; Stores: C gets the sums themselves too. fetch(vectors, row, column): asks
// for what f will read and write of that row.
template <bool Stores, class F, class Fetch>
struct Then : F {
  static constexpr bool kStores = Stores;
  static constexpr int kSteps = 1;  // of the depth, in an element of A and of B
  static constexpr bool kWhole = false;  // sums are of whole numbers
  static constexpr bool kFetches = true;
  Fetch fetch;
};
template <bool Stores, class F, class Fetch>
Then<Stores, F, Fetch> then(F f, Fetch fetch) {
  return {f, fetch};
}
// A block's rows, asked for before its depth: behind it they are there.
template <int MI, int NI, class After>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void fetch_rows(int64_t depth, int64_t i, int64_t j,
                                                    const After& after) {
  if constexpr (After::kFetches)
    if (depth >= kLongDepth)
#pragma GCC unroll 12
      for (int m = 0; m < MI; ++m) after.fetch(Count<NI>{}, i + m, j);
}
// One step of the depth, or several of them.
template <int Steps>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector step(Vector sum, Real x, Vector row) {
  return sum + x * row;
}
// Sums as they leave.
template <int Steps>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE Vector complete(Vector sum) {
  return sum;
}
)";

constexpr const char* kOuterProduct = R"(
// The micro-kernel, Chimera's Algorithm 2: MI rows of NI vectors of C stay in registers while k runs
// (KI is whatever depth the box has); each step loads NI vectors of B, broadcasts MI elements of A
// and starts MI x NI fused multiply-adds. Partial: only `lanes` of a row's last vector are C's.
// (i, j): where the block begins, for `after`. Rows of B that lie apart are fetched ahead, and kept in
// `to`, one behind the other, for the groups of rows that follow. Those fetch columns of the next panel,
// whose rows are `next_k` apart: AHEAD each, so that together they fetch all of it. (Where rows are kept,
// `next_k`: what is fetched of B from its row on.) Of A what lies
// `ahead` elements further is fetched, a row a step: a line of each row in as many steps as it has.
enum class Right { near, apart, kept, before };
// How far ahead rows of B are fetched; `far`: nobody has brought them into the second cache.
template <int MI, int NI>
constexpr int64_t steps_ahead(bool far) {
  return far ? at_least(kProductsAhead / (MI * NI), kStepsAhead) : kStepsAhead;
}
template <int MI, int NI, bool Partial, Right B = Right::near, int AHEAD = 0, class ARow, class AStep,
          class BStep, class CRow, class After>
TILEWRIGHT_TARGET void outer_product(int64_t depth, const Real* a, ARow a_row, AStep a_k,
                                     const Real* b, BStep b_k, Real* c, CRow c_row,
                                     Lanes lanes, bool fresh, int64_t i, int64_t j,
                                     const After& after, Real* to = nullptr,
                                     const Real* next = nullptr, int64_t next_k = 0,
                                     int64_t ahead = 0) {
  Vector acc[MI][NI];
  constexpr bool whole = After::kWhole;  // such sums begin with B's first row
  if constexpr (whole) {
#pragma GCC unroll 12
    for (int n = 0; n < NI; ++n) {
      const Vector first = Partial && n == NI - 1 ? load_part(b + n * kLanes, lanes)
                                                  : *reinterpret_cast<const Unaligned*>(b + n * kLanes);
#pragma GCC unroll 12
      for (int m = 0; m < MI; ++m) acc[m][n] = first;
    }
    b += b_k;
  } else if (fresh) {
#pragma GCC unroll 12
    for (int m = 0; m < MI; ++m)
#pragma GCC unroll 12
      for (int n = 0; n < NI; ++n) acc[m][n] = Vector{};
  } else {
#pragma GCC unroll 12
    for (int m = 0; m < MI; ++m)
#pragma GCC unroll 12
      for (int n = 0; n < NI; ++n) {
        const Real* const from = c + m * c_row + n * kLanes;
        acc[m][n] = Partial && n == NI - 1 ? load_part(from, lanes)
                                           : *reinterpret_cast<const Unaligned*>(from);
      }
  }
  fetch_rows<MI, NI>(depth, i, j, after);
  for (int64_t k = 0; k < depth; ++k) {
    Vector row[NI];
#pragma GCC unroll 12
    for (int n = 0; n < NI; ++n)
      row[n] = Partial && n == NI - 1 ? load_part(b + n * kLanes, lanes)
                                      : *reinterpret_cast<const Unaligned*>(b + n * kLanes);
    if (ahead != 0) __builtin_prefetch(a + ahead + k % kLineOfSteps * a_row);
    if constexpr (B == Right::before) {
      if (next != nullptr) {
#pragma GCC unroll 12
        for (int n = 0; n < AHEAD; ++n) __builtin_prefetch(next + n * kLanes, 0, 2);
        next += next_k;
      }
    }
    if constexpr (B == Right::apart || B == Right::kept) {
      constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(Real));
      const Real* const later = b + (B == Right::kept ? next_k : steps_ahead<MI, NI>(true) * b_k);
#pragma GCC unroll 12
      for (int64_t n = 0; n < NI * kLanes; n += line) __builtin_prefetch(later + n);
    }
    if constexpr (B == Right::kept) {
#pragma GCC unroll 12
      for (int n = 0; n < NI; ++n) *reinterpret_cast<Unaligned*>(to + n * kLanes) = row[n];
      to += NI * kLanes;
    }
#pragma GCC unroll 12
    for (int m = 0; m < MI; ++m) {
      const Real x = a[m * a_row];
#pragma GCC unroll 12
      for (int n = 0; n < NI; ++n) acc[m][n] = step<After::kSteps>(acc[m][n], x, row[n]);
    }
    a += a_k;
    b += b_k;
  }
  // Addresses are found again: kept since the loads above they would take the registers that k needs.
  asm("" : "+r"(c));
#pragma GCC unroll 12
  for (int m = 0; m < MI; ++m) {
    Real* const row = c + m * c_row;
    if constexpr (whole) {
#pragma GCC unroll 12
      for (int n = 0; n < NI; ++n) {
        acc[m][n] = complete<After::kSteps>(acc[m][n]);
        if (!fresh)
          acc[m][n] += Partial && n == NI - 1 ? load_part(row + n * kLanes, lanes)
                                              : *reinterpret_cast<const Unaligned*>(row + n * kLanes);
      }
    }
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

// Whether one of the groups, as even as can be and of `most` at most, has `size` of all. What cannot
// be is not compiled. 0: how many there are is known only when it runs.
constexpr bool may_be(int64_t all, int64_t most, int64_t size) {
  return all == 0 || size == all / ((all + most - 1) / most) ||
         (all % ((all + most - 1) / most) != 0 && size == all / ((all + most - 1) / most) + 1);
}
// The same of full groups and one of what is left.
constexpr bool may_be_left(int64_t all, int64_t most, int64_t size) {
  return all == 0 || (size == most && all >= most) || size == all % most;
}

// Columns that each of so many groups but the first fetches, for all of a panel to be fetched; not known: 1.
constexpr int columns_each(int64_t groups, int columns) {
  return groups < 2 ? 1 : static_cast<int>((columns + groups - 2) / (groups - 1));
}

// ROWS rows at a time at most, in groups as even as they can be: none is left with a single row's few
// accumulators, which could not hide the latency of a multiply-add. M: all rows, or 0.
template <int ROWS, int NI, bool Partial, int64_t M, Right B, int AHEAD = 0, class ARow, class AStep,
          class BStep, class CRow, class After>
TILEWRIGHT_TARGET void rows_of_block(int64_t size, int64_t depth, const Real* a, ARow a_row, AStep a_k,
                             const Real* b, BStep b_k, Real* c, CRow c_row, Lanes lanes,
                             bool fresh, int64_t i, int64_t j, const After& after, Real* to,
                             const Real* next, int64_t next_k, int64_t ahead) {
  switch (size) {
CASES    default:
      if constexpr (may_be(M, ROWS, ROWS))
        outer_product<ROWS, NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row, lanes, fresh, i,
                                            j, after, to, next, next_k, ahead);
      break;
  }
}
// How far ahead A is fetched: rows of the next group, where that soon comes, else further along.
template <int MI, int NI>
inline int64_t ahead_of(bool first, int64_t rows, int64_t depth, int64_t a_row, int64_t a_k) {
  constexpr int64_t soon = 4096;  // elements of a group
  if (!first || a_k != 1) return 0;
  return rows * depth <= soon ? rows * a_row : at_least(2 * kProductsAhead / (MI * NI), kLineOfSteps);
}
// `to`: where the first group keeps B's rows for the others, if B's rows lie apart; `next`: the next
// panel; `first`: nobody has read A's rows before.
template <int ROWS, int NI, bool Partial, int64_t M, bool Apart, class ARow, class AStep, class BStep,
          class CRow, class After>
TILEWRIGHT_TARGET void panel(int64_t rows, int64_t depth, const Real* a, ARow a_row, AStep a_k,
                             const Real* b, BStep b_k, Real* c, CRow c_row, Lanes lanes,
                             bool fresh, int64_t j, const After& after, Real* to, const Real* next,
                             bool first) {
  const int64_t groups = (rows + ROWS - 1) / ROWS, least = rows / groups, larger = rows % groups;
  int64_t g = 0, i = 0;
  if constexpr (Apart) {
    const int64_t size = least + (larger > 0);
    if (groups == 1) {
      if constexpr (M == 0 || M <= ROWS)
        rows_of_block<ROWS, NI, Partial, M, Right::apart>(
            size, depth, a, a_row, a_k, b, b_k, c, c_row, lanes, fresh, i, j, after, to, next, b_k,
            ahead_of<ROWS, NI>(first, size, depth, a_row, a_k));
      return;
    }
    if constexpr (M == 0 || M > ROWS) {
      rows_of_block<ROWS, NI, Partial, M, Right::kept>(
          size, depth, a, a_row, a_k, b, b_k, c, c_row, lanes, fresh, i, j, after, to, next,
          steps_ahead<ROWS, NI>(first) * b_k, ahead_of<ROWS, NI>(first, size, depth, a_row, a_k));
      i = size, a += size * a_row, c += size * c_row;
      constexpr int ahead = columns_each((M + ROWS - 1) / ROWS, NI);
      for (g = 1; g < groups; ++g) {
        const int64_t rest = least + (g < larger), column = (g - 1) * ahead;
        // All of the panel once: each of its rows may be on a page of its own.
        rows_of_block<ROWS, NI, Partial, M, Right::before, ahead>(
            rest, depth, a, a_row, a_k, to, Known<NI * kLanes>{}, c, c_row, lanes, fresh, i, j, after, to,
            column < NI ? next + column * kLanes : nullptr, b_k,
            ahead_of<ROWS, NI>(first, rest, depth, a_row, a_k));
        a += rest * a_row;
        c += rest * c_row;
        i += rest;
      }
    }
  } else {
    for (; g < groups; ++g) {
      const int64_t size = least + (g < larger);
      rows_of_block<ROWS, NI, Partial, M, Right::near>(
          size, depth, a, a_row, a_k, b, b_k, c, c_row, lanes, fresh, i, j, after, to, next, b_k,
          ahead_of<ROWS, NI>(first, size, depth, a_row, a_k));
      a += size * a_row;
      c += size * c_row;
      i += size;
    }
  }
}
)";

constexpr const char* kPanelOf = R"(
// Narrow panels are taller: the accumulators are as many, up to twelve rows.
constexpr int taller(int rows, int vectors, int narrow) {
  return at_most(rows * vectors / narrow, 12);
}

// N: all columns, or 0. Packed: panels are as wide as can be but the last. Apart: as panel() has it.
template <int MI, int NI, bool Partial, int64_t M, int64_t N, bool Packed, bool Apart = false,
          class ARow, class AStep, class BStep, class CRow, class After = Keep>
TILEWRIGHT_TARGET void panel_of(int64_t vectors, int64_t rows, int64_t depth, const Real* a,
                                ARow a_row, AStep a_k, const Real* b, BStep b_k, Real* c,
                                CRow c_row, Lanes lanes, bool fresh, int64_t j = 0,
                                const After& after = {}, Real* to = nullptr,
                                const Real* next = nullptr, bool first = false) {
  constexpr int64_t all = (N + kLanes - 1) / kLanes;
  switch (vectors) {
NARROW    default:
      if constexpr (Packed ? may_be_left(all, NI, NI) : may_be(all, NI, NI))
        return panel<MI, NI, Partial, M, Apart>(rows, depth, a, a_row, a_k, b, b_k, c, c_row, lanes,
                                                fresh, j, after, to, next, first);
  }
}
)";

constexpr const char* kMultiply = R"(
// C[i,j] += A[i,k] * B[k,j], panel by panel of columns. Of B the last panel fetches `then_b`.
template <int MI, int NI, int64_t M, int64_t N, bool Apart, class ARow, class AStep, class BStep,
          class CRow, class After>
TILEWRIGHT_TARGET void multiply_panels(int64_t rows, int64_t columns, int64_t depth, const Real* a,
                                       ARow a_row, AStep a_k, const Real* b, BStep b_k, Real* c,
                                       CRow c_row, bool fresh, const After& after, Real* to,
                                       const Real* then_b) {
  const int64_t vectors = (columns + kLanes - 1) / kLanes, panels = (vectors + NI - 1) / NI;
  for (int64_t p = 0, at = 0; p < panels; ++p) {
    const int64_t size = vectors / panels + (p < vectors % panels);
    const int64_t j = at * kLanes, last = min(columns - j - (size - 1) * kLanes, kLanes);
    at += size;
    const Real* const next = p + 1 < panels ? b + at * kLanes : then_b;
    if (last == kLanes)
      panel_of<MI, NI, false, M, N, false, Apart>(size, rows, depth, a, a_row, a_k, b + j, b_k, c + j,
                                                  c_row, first_lanes(last), fresh, j, after, to, next, p == 0);
    else if constexpr (N == 0 || N % kLanes != 0)
      panel_of<MI, NI, true, M, N, false, Apart>(size, rows, depth, a, a_row, a_k, b + j, b_k, c + j,
                                                 c_row, first_lanes(last), fresh, j, after, to, next, p == 0);
  }
}
// C[i,j] += A[i,k] * B[k,j] for any sizes, by micro-kernels of at most MI rows and NI vectors. Apart: B's
// rows are far from one another; `to` has room for the depth of one panel of NI vectors.
// `fresh`: C starts from zero. M rows and N columns where that is always so, else 0.
// A panel that is kept for several groups of rows is cut along its depth: a part of it stays in the first
// cache, and its rows, each on a page of its own, are no more than a processor remembers pages. C holds
// the sums in between. Where so small a panel has few steps, the sums would be loaded too often.
template <int MI, int NI, int64_t M, int64_t N, bool Apart = false, class ARow, class AStep, class BStep,
          class CRow, class After = Keep>
TILEWRIGHT_TARGET void multiply(int64_t rows, int64_t columns, int64_t depth, const Real* a,
                                ARow a_row, AStep a_k, const Real* b, BStep b_k, Real* c,
                                CRow c_row, bool fresh, const After& after = {},
                                Real* to = nullptr) {
  if (rows <= 0 || columns <= 0) return;
TILES  constexpr int64_t steps = kKeptBytes / (NI * static_cast<int64_t>(sizeof(Vector)));
  if constexpr (Apart && (M == 0 || M > MI) && steps >= kLeastKeptSteps)
    if (rows > MI && depth > 2 * steps) {
      const int64_t parts = (depth + steps / 2) / steps;
      for (int64_t part = 0, k = 0; part < parts; ++part) {
        const int64_t size = depth / parts + (part < depth % parts);
        const Real* const from = b + k * b_k;
        if (part + 1 < parts)
          multiply_panels<MI, NI, M, N, Apart>(rows, columns, size, a + k * a_k, a_row, a_k, from, b_k, c,
                                               c_row, fresh && part == 0, Keep{}, to, from + size * b_k);
        else
          multiply_panels<MI, NI, M, N, Apart>(rows, columns, size, a + k * a_k, a_row, a_k, from, b_k, c,
                                               c_row, false, after, to, b);
        k += size;
      }
      return;
    }
  multiply_panels<MI, NI, M, N, Apart>(rows, columns, depth, a, a_row, a_k, b, b_k, c, c_row, fresh,
                                       after, to, b);
}
// The same where B lies in panels of `Vectors`, at most NI, `b_panel` elements from one to the next, each
// step of the depth behind the one before.
template <int MI, int NI, int64_t M, int64_t N, int Vectors, class ARow, class AStep, class CRow,
          class After = Keep>
TILEWRIGHT_TARGET void multiply_packed(int64_t rows, int64_t columns, int64_t depth, const Real* a,
                                       ARow a_row, AStep a_k, const Real* b, int64_t b_panel,
                                       Real* c, CRow c_row, bool fresh, const After& after = {}) {
  if (rows <= 0) return;
PANELS  constexpr int64_t width = Vectors * kLanes;
  constexpr int tall = taller(MI, NI, Vectors);
  for (int64_t j = 0; j < columns; j += width, b += b_panel) {
    const int64_t size = min((columns - j + kLanes - 1) / kLanes, Vectors);
    const int64_t last = min(columns - j - (size - 1) * kLanes, kLanes);
    if (last == kLanes)
      panel_of<tall, Vectors, false, M, N, true>(size, rows, depth, a, a_row, a_k, b, Known<width>{}, c + j, c_row,
                                          first_lanes(last), fresh, j, after, nullptr, nullptr, j == 0);
    else if constexpr (N == 0 || N % kLanes != 0)
      panel_of<tall, Vectors, true, M, N, true>(size, rows, depth, a, a_row, a_k, b, Known<width>{}, c + j, c_row,
                                         first_lanes(last), fresh, j, after, nullptr, nullptr, j == 0);
  }
}
)";

constexpr const char* kPack = R"(
// B[k,j] into rows of whole vectors, where its columns are not contiguous as they are.
inline void pack(int64_t columns, int64_t depth, const Real* b, int64_t b_k, int64_t b_column,
                 Real* packed, int64_t packed_k) {
TRANSPOSED  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) packed[k * packed_k + j] = b[k * b_k + j * b_column];
}
)";

constexpr const char* kPackPanels = R"(
// B[k,j] into panels of `Width` columns, `panel` elements from one to the next, each step of the depth
// behind the one before.
template <int Width>
inline void pack_panels(int64_t columns, int64_t depth, const Real* b, int64_t b_k, int64_t b_column,
                        Real* packed, int64_t panel) {
  for (int64_t j = 0; j < columns; j += Width, packed += panel)
    pack(min(columns - j, Width), depth, b + j * b_column, b_k, b_column, packed, Width);
}
)";

constexpr const char* kPackTransposed =
    R"(  if (b_k == 1) return transpose(columns, depth, b, b_column, packed, packed_k);
)";

constexpr const char* kTranspose = R"(
// B[k,j], contiguous along k, into rows of whole vectors: kLanes x kLanes at a time. Rows i and
// i + kLanes/2 are interleaved; after log2(kLanes) rounds, rows are columns.
TILEWRIGHT_TARGET inline void transpose(int64_t columns, int64_t depth, const Real* b,
                                        int64_t b_column, Real* packed, int64_t packed_k) {
  for (int64_t j = 0; j < columns; j += kLanes)
    for (int64_t k = 0; k < depth; k += kLanes) {
      const int64_t steps = min(depth - k, kLanes), rows = min(columns - j, kLanes);
      const Lanes lanes = first_lanes(steps);
      Vector from[kLanes], to[kLanes];
      for (int i = 0; i < kLanes; ++i)
        from[i] = i >= rows ? Vector{}
                  : steps == kLanes
                      ? *reinterpret_cast<const Unaligned*>(b + (j + i) * b_column + k)
                      : load_part(b + (j + i) * b_column + k, lanes);
#pragma GCC unroll 4
      for (int round = 1; round < kLanes; round *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < kLanes / 2; ++i) {
          to[2 * i] = interleave_first(from[i], from[i + kLanes / 2]);
          to[2 * i + 1] = interleave_last(from[i], from[i + kLanes / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) from[i] = to[i];
      }
      for (int i = 0; i < steps; ++i)
        *reinterpret_cast<Unaligned*>(packed + (k + i) * packed_k + j) = from[i];
    }
}
)";

/// The cases of a panel's last groups of rows, and of its narrower widths: what is a template's
/// argument there has to be a number.
std::string with_cases(std::string text) {
  std::string rows, narrow;
  for (int n = 1; n < kMostRows; ++n) {
    const std::string size = std::to_string(n);
    rows += "    case " + size + ":\n      if constexpr (may_be(M, ROWS, " + size +
            "))\n        outer_product<at_most(" + size +
            ", ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,\n" +
            "            lanes, fresh, i, j, after, to, next, next_k, ahead);\n      break;\n";
  }
  for (int n = 1; n < kMostVectors; ++n) {
    const std::string size = "at_most(" + std::to_string(n) + ", NI)";
    narrow +=
        "    case " + std::to_string(n) + ":\n      if constexpr (Packed ? may_be_left(all, NI, " +
        std::to_string(n) + ") : may_be(all, NI, " + std::to_string(n) +
        "))\n        panel<taller(MI, NI, " + size + "), " + size +
        ", Partial, M, Apart>(rows, depth, a, a_row, a_k, b,\n" +
        "            b_k, c, c_row, lanes, fresh, j, after, to, next, first);\n      return;\n";
  }
  const auto fill = [&text](std::string_view hole, const std::string& with) {
    text.replace(text.find(hole), hole.size(), with);
  };
  fill("CASES", rows);
  fill("NARROW", narrow);
  return text;
}

/// The first, or the last, halves of two vectors, lane by lane in turn.
std::string interleavings(int lanes) {
  std::string text;
  for (const bool last : {false, true}) {
    text += std::string("\nTILEWRIGHT_TARGET inline Vector interleave_") +
            (last ? "last" : "first") + "(Vector a, Vector b) {\n" +
            "  return __builtin_shufflevector(a, b";
    for (int i = 0; i < lanes / 2; ++i) {
      const int lane = i + (last ? lanes / 2 : 0);
      text += ", " + std::to_string(lane) + ", " + std::to_string(lane + lanes);
    }
    text += ");\n}";
  }
  return text;
}

/// `multiply` and `multiply_packed`; products of quads with several rows go to `tiles`
/// (tiles_text.cpp).
std::string multiply_text(bool tiles) {
  constexpr const char* kTiles =
      R"(  if constexpr (After::kSteps == 4 && (M == 0 || M >= kLeastTileRows))
    if (M != 0 || rows >= kLeastTileRows)
      return multiply_tiles(rows, columns, depth, a, a_row, b, columns, 0, b_k, c, c_row, fresh, after);
)";
  constexpr const char* kPanels =
      R"(  if constexpr (After::kSteps == 4 && (M == 0 || M >= kLeastTileRows))
    if (M != 0 || rows >= kLeastTileRows)
      return multiply_tiles(rows, columns, depth, a, a_row, b, Vectors * kLanes, b_panel, Vectors * kLanes,
                            c, c_row, fresh, after);
)";
  std::string text = kMultiply;
  text.replace(text.find("TILES"), 5, tiles ? kTiles : "");
  text.replace(text.find("PANELS"), 6, tiles ? kPanels : "");
  return text;
}

}  // namespace

std::string target_attribute(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return "";
    case Isa::avx2:
      return "__attribute__((target(\"avx2,fma,f16c\")))";
    case Isa::avx512:
      return "__attribute__((target(\"avx512f,avx512dq,avx512bw,avx512vl,avx2,fma\")))";
    case Isa::avx512_vnni:
    case Isa::amx_int8:
      return "__attribute__((target(\"avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma\")))";
    case Isa::avx512_bf16:
      return "__attribute__((target(\"avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,avx2,fma\")))";
  }
  return "";
}

std::string micro_kernel_text(int vector_bytes, bool f64, int steps, bool whole, bool tiles) {
  const int lanes = vector_bytes / (f64 ? 8 : 4);
  std::string pack = kPack;
  const std::string_view hole = "TRANSPOSED";
  pack.replace(pack.find(hole), hole.size(), vector_bytes == 0 ? "" : kPackTransposed);
  if (vector_bytes == 0) return std::string(kKnown) + kScalar + pack;
  return std::string(kKnown) +
         "constexpr int at_most(int size, int most) { return size < most ? size : most; }\n"
         "constexpr int64_t at_least(int64_t size, int64_t least) { return size > least ? size : "
         "least; }\n" +
         formatted("constexpr int64_t kStepsAhead = {}, kProductsAhead = {}, kLongDepth = {};\n",
                   kStepsAhead, kProductsAhead, kLongDepth) +
         formatted("constexpr int64_t kLineOfSteps = {}, kKeptBytes = {}, kLeastKeptSteps = {};\n",
                   kLineOfSteps, kKeptBytes, kLeastKeptSteps) +
         (kThen + with_cases(std::string(kOuterProduct) + kPanelOf)) + (tiles ? tiles_text() : "") +
         multiply_text(tiles) + interleavings(lanes) + kTranspose + pack + kPackPanels +
         together_text(steps, whole);
}

}  // namespace tilewright::cpu
