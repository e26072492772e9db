// worked-chain for scratchpad_4096B, emitted by Tilewright.
//   c++ -O3 -std=c++17 -ffp-contract=fast -shared -fPIC worked-chain.cpp -o worked-chain.so
//
// gemm1: C[m,l] += A[m,k] * B[k,l]
// gemm2: E[m,n] += C[m,l] * D[l,n]
// over m < 10, n < 6, k < 7, l < 9
//
// kernel 0: m/4 l/5 ( k/4 ( L.A@L1 L.B@L1 C.gemm1 ) n/3 ( L.D@L1 C.gemm2 ) )
//
// Every load of the tree copies a tile into a packed array, every store copies one back: the
// copies that the plan counts are the packing, and rows of tensors never reach the micro-kernel.
// Matrix products run on the 6x4 micro-kernel for avx512.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>

#define TILEWRIGHT_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))

namespace worked_chain_code {
using std::int64_t;
using Real = float;

struct Range {  // [lo, hi)
  int64_t lo, hi;
};
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
inline bool empty(Range r) { return r.hi <= r.lo; }
inline bool equal(Range a, Range b) { return a.lo == b.lo && a.hi == b.hi; }
inline Range hull(Range a, Range b) {
  return empty(a) ? b : empty(b) ? a : Range{min(a.lo, b.lo), max(a.hi, b.hi)};
}
inline Range clip(Range r, int64_t extent) { return {max(r.lo, 0), min(r.hi, extent)}; }

// Where offset + coefficient * range + ... lies; empty where one of the ranges is.
inline Range reach(int64_t offset) { return {offset, offset + 1}; }
template <class... Rest>
Range reach(int64_t offset, int64_t coefficient, Range r, Rest... rest) {
  const Range other = reach(offset, rest...);
  if (empty(r) || empty(other)) return {offset, offset};
  const int64_t first = coefficient * r.lo, last = coefficient * (r.hi - 1);
  return {other.lo + min(first, last), other.hi + max(first, last)};
}

constexpr int at_least_one(int rank) { return rank > 0 ? rank : 1; }

template <int R>
struct Box {  // of a tensor, one range a dimension; R = 0 is a scalar
  Range d[at_least_one(R)];
};
template <int R>
bool equal(const Box<R>& a, const Box<R>& b) {
  for (int i = 0; i < R; ++i)
    if (!equal(a.d[i], b.d[i])) return false;
  return true;
}
template <int R>
int64_t size(const Box<R>& box) {
  int64_t n = 1;
  for (int i = 0; i < R; ++i) n *= max(box.d[i].hi - box.d[i].lo, 0);
  return n;
}
template <int R>
bool empty(const Box<R>& box) {
  return size(box) == 0;
}
template <int R>
bool contains(const Box<R>& outer, const Box<R>& inner) {
  for (int i = 0; i < R; ++i)
    if (inner.d[i].lo < outer.d[i].lo || inner.d[i].hi > outer.d[i].hi) return false;
  return true;
}
template <int R>
Box<R> hull(const Box<R>& a, const Box<R>& b) {
  if (empty(a)) return b;
  if (empty(b)) return a;
  Box<R> r{};
  for (int i = 0; i < R; ++i) r.d[i] = hull(a.d[i], b.d[i]);
  return r;
}
template <int R>
Box<R> intersect(const Box<R>& a, const Box<R>& b) {
  Box<R> r{};
  for (int i = 0; i < R; ++i) r.d[i] = {max(a.d[i].lo, b.d[i].lo), min(a.d[i].hi, b.d[i].hi)};
  return r;
}
// What of `now` is not in `held` where the two differ in one dimension only, and that is one range;
// all of `now` where nothing can be kept (rule 8).
template <int R>
Box<R> new_part(const Box<R>& held, const Box<R>& now) {
  if (R == 0 || empty(held) || empty(now)) return now;
  int differs = 0, differences = 0;
  for (int i = 0; i < R && differences < 2; ++i)
    if (!equal(held.d[i], now.d[i])) {
      differs = i;
      ++differences;
    }
  Box<R> part = now;
  const Range h = held.d[differs], n = now.d[differs];
  if (contains(held, now))
    part.d[differs] = {n.lo, n.lo};
  else if (differences == 1 && max(h.lo, n.lo) < min(h.hi, n.hi) && !(n.lo < h.lo && n.hi > h.hi))
    part.d[differs] = n.lo < h.lo ? Range{n.lo, h.lo} : Range{h.hi, n.hi};
  return part;
}

struct Steps {  // the boundaries that a copy crosses: counted in a counting build only
  void crosses(int64_t*) {}
  void read(int64_t) {}
  void written(int64_t) {}
};

template <class T>
void add_partial(T&) {}
template <class T>
void restart(T&) {}

// One tensor's tile at one level (rule 4): a packed array with room for the largest tile, and what
// it holds. Packing happens here, in the copies that the plan counts; rows lie `stride` apart, never
// a multiple of 4 KiB, whatever the tensor's own rows are.
template <int R>
struct Tile {
  Real* data;
  int64_t stride[at_least_one(R)];
  Real* home;                            // the tensor, row-major
  int64_t home_stride[at_least_one(R)];
  Tile* outer = nullptr;                 // filled from, written to; none: home
  bool sliding = false;
  bool on_chip = false;                  // an intermediate: never read back
  bool moves = true;                     // false: one that is not written either
  void (*merge)(Real&, Real) = nullptr;  // atomic: how a partial joins the tensor
  Real identity = 0;
  Steps steps;

  Box<R> tile{};  // as fixed by the plan at this point
  bool fixed = false;
  Box<R> held{};  // what `data` holds
  bool full = false, changed = false;
  Tile* sink = nullptr;  // `outer` and its tile, when the held tile came
  Box<R> sink_tile{};
  bool fresh = false;    // the held tile was initialised, not read

  Box<R>* complete = nullptr;   // !once: boxes found complete, by their first element
  int64_t* complete_since = nullptr;
  int64_t generation = 1;

  Tile(void* memory, const int64_t (&packed)[at_least_one(R)], void* tensor,
       const int64_t (&row_major)[at_least_one(R)])
      : data(static_cast<Real*>(memory)), home(static_cast<Real*>(tensor)) {
    for (int i = 0; i < R; ++i) {
      stride[i] = packed[i];
      home_stride[i] = row_major[i];
    }
  }
};

template <int R>
struct View {
  Real* data;
  const int64_t* stride;
  Box<R> at;
  Real* element(const int64_t* index) const {
    int64_t offset = 0;
    for (int i = 0; i < R; ++i) offset += (index[i] - at.d[i].lo) * stride[i];
    return data + offset;
  }
};
template <int R>
View<R> view(Tile<R>& t) {
  return {t.data, t.stride, t.held};
}
template <int R>
View<R> home(Tile<R>& t) {
  return {t.home, t.home_stride, Box<R>{}};
}
template <int R>
Real* at(Tile<R>& t, const int64_t (&index)[at_least_one(R)]) {
  return view(t).element(index);
}

// The next row of `part` in address order, or in the opposite one; false after the last.
template <int R>
bool next_row(const Box<R>& part, int64_t* index, bool backwards = false) {
  for (int i = R - 2; i >= 0; --i) {
    index[i] += backwards ? -1 : 1;
    if (part.d[i].lo <= index[i] && index[i] < part.d[i].hi) return true;
    index[i] = backwards ? part.d[i].hi - 1 : part.d[i].lo;
  }
  return false;
}
template <int R>
int64_t row_length(const Box<R>& part) {
  return R == 0 ? 1 : part.d[at_least_one(R) - 1].hi - part.d[at_least_one(R) - 1].lo;
}

template <int R>
void copy(const Box<R>& part, const View<R>& to, const View<R>& from) {
  if (empty(part)) return;
  int64_t index[at_least_one(R)];
  for (int i = 0; i < R; ++i) index[i] = part.d[i].lo;
  const auto bytes = static_cast<std::size_t>(row_length(part)) * sizeof(Real);
  do std::memcpy(to.element(index), from.element(index), bytes);
  while (next_row(part, index));
}

// Moves what `now` shares with the held tile to where it lies in a tile of `now`.
template <int R>
void shift(Tile<R>& t, const Box<R>& now) {
  const Box<R> kept = intersect(t.held, now);
  if (empty(kept)) return;
  const View<R> from = view(t), to = {t.data, t.stride, now};
  int64_t first[at_least_one(R)];
  for (int i = 0; i < R; ++i) first[i] = kept.d[i].lo;
  const bool backwards = to.element(first) > from.element(first);
  for (int i = 0; i < R - 1 && backwards; ++i) first[i] = kept.d[i].hi - 1;
  const auto bytes = static_cast<std::size_t>(row_length(kept)) * sizeof(Real);
  do std::memmove(to.element(first), from.element(first), bytes);
  while (next_row(kept, first, backwards));
}

template <int R>
int64_t bytes_of(const Box<R>& box) {
  return size(box) * static_cast<int64_t>(sizeof(Real));
}

// Rule 8: brings a tile; nothing moves where it is held.
template <int R>
void load(Tile<R>& t, const Box<R>& tile) {
  t.tile = tile;
  if (empty(tile) || (t.full && equal(t.held, tile))) return;
  Box<R> part = tile;
  if (t.sliding && t.full) {
    part = new_part(t.held, tile);
    if (!equal(part, tile)) shift(t, tile);
  }
  t.held = tile;
  t.full = true;
  copy(part, view(t), t.outer != nullptr ? view(*t.outer) : home(t));
  t.steps.read(bytes_of(part));
}

template <int R>
void write(Tile<R>& t);

// Makes `tile` what the buffer holds: another one is written if changed, and the new one is read
// back unless it starts afresh (rules 10 and 12).
template <int R>
void hold(Tile<R>& t, const Box<R>& tile, bool initialises) {
  if (t.full && equal(t.held, tile)) return;
  if (t.full && t.changed) write(t);
  const bool reads_back = !initialises && !t.on_chip && t.merge == nullptr;
  t.sink = t.outer;
  if (t.outer != nullptr) t.sink_tile = t.outer->tile;
  if (reads_back && t.outer != nullptr && !t.outer->on_chip) hold(*t.outer, t.sink_tile, false);
  t.held = tile;
  t.full = true;
  t.fresh = initialises;
  if (!reads_back) return;
  copy(tile, view(t), t.outer != nullptr ? view(*t.outer) : home(t));
  t.steps.read(bytes_of(tile));
}

// Writes the held tile to its sink: home, or a tile of the outer buffer that holds it.
template <int R>
void write_to(Tile<R>& t, Tile<R>* sink, const Box<R>& sink_tile, bool initialises) {
  t.changed = false;
  if (!t.moves) return;
  t.steps.written(bytes_of(t.held));
  if (t.merge != nullptr) return add_partial(t);
  if (sink == nullptr) return copy(t.held, home(t), view(t));
  hold(*sink, sink_tile, initialises);
  copy(t.held, view(*sink), view(t));
  sink->changed = true;
}
// When it is replaced, at the end, or about to be read from home.
template <int R>
void write(Tile<R>& t) {
  const bool there = t.sink != nullptr && t.sink->full && contains(t.sink->held, t.held);
  write_to(t, t.sink, there ? t.sink->held : t.sink_tile, t.fresh);
}
template <int R>
void flush(Tile<R>& t) {
  if (t.full && t.changed) write(t);
}
// A store node: at once, if changed. `initialises`: every reduction is at its low end there.
template <int R>
void store(Tile<R>& t, bool initialises) {
  if (t.full && t.changed)
    write_to(t, t.outer, t.outer != nullptr ? t.outer->tile : t.tile, initialises);
}

// The plan's tile at this point. An intermediate's buffer is emptied by another region; a sliding
// one keeps what both regions share.
template <int R>
void fix(Tile<R>& t, const Box<R>& tile) {
  if (t.fixed && equal(t.tile, tile)) return;
  ++t.generation;
  if (t.sliding) {
    flush(t);
    if (t.fixed && !equal(new_part(t.tile, tile), tile)) shift(t, tile);
    t.held = tile;
    t.full = true;
  }
  t.tile = tile;
  t.fixed = true;
}
// What of the region has to be computed.
template <int R>
Box<R> needed(const Tile<R>& t, const Box<R>& region) {
  return t.fixed ? new_part(t.tile, region) : region;
}

// A compute is about to write into the fixed tile.
template <int R>
void update(Tile<R>& t, bool initialises) {
  const bool partial_left = !t.changed;
  const bool same = t.full && equal(t.held, t.tile);
  hold(t, t.tile, initialises);
  if (t.merge != nullptr && !initialises && (partial_left || !same)) restart(t);
  t.changed = true;
}

// The micro-kernel, Chimera's Algorithm 2: MI rows of NI vectors of C stay in registers while k runs
// (KI is whatever depth the box has); each step loads NI vectors of B, broadcasts MI elements of A
// and starts MI x NI fused multiply-adds. The last vector of a row may have only `last` elements
// that are C's: what B has beyond them is read and thrown away.
typedef Real Vector __attribute__((vector_size(64)));
typedef Real Unaligned __attribute__((vector_size(64), aligned(sizeof(Real)), may_alias));
constexpr int kLanes = 64 / sizeof(Real);

template <int MI, int NI>
TILEWRIGHT_TARGET void outer_product(int64_t depth, const Real* a, int64_t a_row, int64_t a_k,
                                     const Real* b, int64_t b_k, Real* c, int64_t c_row,
                                     int64_t last, bool fresh) {
  Vector acc[MI][NI];
  const bool partial = last < kLanes;
#pragma GCC unroll 8
  for (int m = 0; m < MI; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < NI; ++n) {
      acc[m][n] = Vector{};
      if (fresh) continue;
      const Real* const from = c + m * c_row + n * kLanes;
      if (n == NI - 1 && partial) {
        Real edge[kLanes] = {};
        for (int64_t i = 0; i < last; ++i) edge[i] = from[i];
        acc[m][n] = *reinterpret_cast<const Unaligned*>(edge);
      } else {
        acc[m][n] = *reinterpret_cast<const Unaligned*>(from);
      }
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector row[NI];
#pragma GCC unroll 8
    for (int n = 0; n < NI; ++n)
      row[n] = *reinterpret_cast<const Unaligned*>(b + k * b_k + n * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MI; ++m) {
      const Real x = a[m * a_row + k * a_k];
#pragma GCC unroll 8
      for (int n = 0; n < NI; ++n) acc[m][n] += x * row[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MI; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < NI; ++n) {
      Real* const to = c + m * c_row + n * kLanes;
      if (n == NI - 1 && partial) {
        Real edge[kLanes];
        *reinterpret_cast<Unaligned*>(edge) = acc[m][n];
        for (int64_t i = 0; i < last; ++i) to[i] = edge[i];
      } else {
        *reinterpret_cast<Unaligned*>(to) = acc[m][n];
      }
    }
  }
}

// All rows of NI vectors of columns.
template <int NI>
TILEWRIGHT_TARGET void panel(int64_t rows, int64_t depth, const Real* a, int64_t a_row, int64_t a_k,
                             const Real* b, int64_t b_k, Real* c, int64_t c_row, int64_t last,
                             bool fresh) {
  int64_t i = 0;
  for (; i + 6 <= rows; i += 6)
    outer_product<6, NI>(depth, a + i * a_row, a_row, a_k, b, b_k, c + i * c_row, c_row, last,
                            fresh);
  a += i * a_row;
  c += i * c_row;
  switch (rows - i) {
    case 1:
      return outer_product<1, NI>(depth, a, a_row, a_k, b, b_k, c, c_row, last, fresh);
    case 2:
      return outer_product<2, NI>(depth, a, a_row, a_k, b, b_k, c, c_row, last, fresh);
    case 3:
      return outer_product<3, NI>(depth, a, a_row, a_k, b, b_k, c, c_row, last, fresh);
    case 4:
      return outer_product<4, NI>(depth, a, a_row, a_k, b, b_k, c, c_row, last, fresh);
    case 5:
      return outer_product<5, NI>(depth, a, a_row, a_k, b, b_k, c, c_row, last, fresh);
    default:
      return;
  }
}

// C[i,j] += A[i,k] * B[k,j] for any sizes. `fresh`: C starts from zero. b is read up to the next
// whole vector.
TILEWRIGHT_TARGET inline void multiply(int64_t rows, int64_t columns, int64_t depth, const Real* a,
                                       int64_t a_row, int64_t a_k, const Real* b, int64_t b_k,
                                       Real* c, int64_t c_row, bool fresh) {
  for (int64_t j = 0; j < columns; j += 4 * kLanes) {
    const int64_t width = min(4 * kLanes, columns - j);
    const int64_t vectors = (width + kLanes - 1) / kLanes;
    const int64_t last = width - (vectors - 1) * kLanes;
    switch (vectors) {
      case 1:
        panel<1>(rows, depth, a, a_row, a_k, b + j, b_k, c + j, c_row, last, fresh);
        break;
      case 2:
        panel<2>(rows, depth, a, a_row, a_k, b + j, b_k, c + j, c_row, last, fresh);
        break;
      case 3:
        panel<3>(rows, depth, a, a_row, a_k, b + j, b_k, c + j, c_row, last, fresh);
        break;
      default:
        panel<4>(rows, depth, a, a_row, a_k, b + j, b_k, c + j, c_row, last, fresh);
        break;
    }
  }
}

// B[k,j] into rows of whole vectors, where its columns are not contiguous as they are.
inline void pack(int64_t columns, int64_t depth, const Real* b, int64_t b_k, int64_t b_column,
                 Real* packed, int64_t packed_k) {
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) packed[k * packed_k + j] = b[k * b_k + j * b_column];
}

// m/4 l/5 ( k/4 ( L.A@L1 L.B@L1 C.gemm1 ) n/3 ( L.D@L1 C.gemm2 ) )
TILEWRIGHT_TARGET void kernel_0(void* const* tensors, char* workspace, int64_t* counts) {
  (void)counts;
  char* const memory = workspace;
  (void)memory;
  // A at L1, loaded from home
  Tile<2> t_A_L1(memory + 0, {4, 1}, tensors[1], {7, 1});
  // B at L1, loaded from home
  Tile<2> t_B_L1(memory + 128, {5, 1}, tensors[2], {9, 1});
  // D at L1, loaded from home
  Tile<2> t_D_L1(memory + 320, {3, 1}, tensors[4], {6, 1});
  // C at L1, stays
  Tile<2> t_C_L1(memory + 448, {5, 1}, tensors[0], {9, 1});
  t_C_L1.on_chip = true;
  t_C_L1.moves = false;
  // E at L1, written to home
  Tile<2> t_E_L1(memory + 640, {3, 1}, tensors[3], {6, 1});
  for (int64_t l_m = 0; l_m < 10; l_m += 4) {
    const int64_t l_m_end = min(l_m + 4, 10);
    for (int64_t l_l = 0; l_l < 9; l_l += 5) {
      const int64_t l_l_end = min(l_l + 5, 9);
      fix(t_C_L1, Box<2>{{{l_m, l_m_end}, {l_l, l_l_end}}});
      for (int64_t l_k = 0; l_k < 7; l_k += 4) {
        const int64_t l_k_end = min(l_k + 4, 7);
        load(t_A_L1, Box<2>{{{l_m, l_m_end}, {l_k, l_k_end}}});
        load(t_B_L1, Box<2>{{{l_k, l_k_end}, {l_l, l_l_end}}});
        // C.gemm1: C[m,l] += A[m,k] * B[k,l]
        {
          update(t_C_L1, l_k == 0);
          multiply(l_m_end - l_m, l_l_end - l_l, l_k_end - l_k, at(t_A_L1, {l_m, l_k}), 4, 1,
                   at(t_B_L1, {l_k, l_l}), 5, at(t_C_L1, {l_m, l_l}), 5, l_k == 0);
        }
      }
      for (int64_t l_n = 0; l_n < 6; l_n += 3) {
        load(t_D_L1, Box<2>{{{l_l, l_l_end}, {l_n, l_n + 3}}});
        // C.gemm2: E[m,n] += C[m,l] * D[l,n]
        {
          fix(t_E_L1, Box<2>{{{l_m, l_m_end}, {l_n, l_n + 3}}});
          update(t_E_L1, l_l == 0);
          multiply(l_m_end - l_m, 3, l_l_end - l_l, at(t_C_L1, {l_m, l_l}), 5, 1,
                   at(t_D_L1, {l_l, l_n}), 3, at(t_E_L1, {l_m, l_n}), 3, l_l == 0);
        }
      }
    }
  }
  flush(t_E_L1);
}

}  // namespace worked_chain_code

extern "C" {
// Bytes of working memory that run needs, from a multiple of 4096.
std::int64_t worked_chain_workspace(void) { return 4096; }

// Tensors, by position: C (stays on chip: may be null), A, B, E, D.
void worked_chain_run(void* const* tensors, void* workspace, std::int64_t* counts) {
  worked_chain_code::kernel_0(tensors, static_cast<char*>(workspace), counts);
}
}

#undef TILEWRIGHT_TARGET
