// worked-chain for scratchpad_4096B, emitted by Tilewright.
//   c++ -O3 -std=c++17 -ffp-contract=fast -shared -fPIC worked-chain.cpp -o worked-chain.so
//
// gemm1: C[m,l] += A[m,k] * B[k,l]
// gemm2: E[m,n] += C[m,l] * D[l,n]
// over m < 10, n < 6, k < 7, l < 9
//
// kernel 0: m/4 l/5 ( k/4 ( L.A@L1 L.B@L1 C.gemm1 ) n/3 ( L.D@L1 C.gemm2 ) )
//
// A packed tile is copied at its load into an array of its own, and written tiles are copied back;
// the lines of others come into the cache as they are used.
//   A at L1: packed: software manages L1
//   B at L1: packed: software manages L1
//   D at L1: packed: software manages L1
//   E at L1: packed: software manages L1
// Matrix products run on micro-kernels 6x4 for avx512.
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>

#define TILEWRIGHT_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define TILEWRIGHT_ALWAYS __attribute__((always_inline))
#define TILEWRIGHT_INLINE TILEWRIGHT_ALWAYS inline

namespace worked_chain_code {
using std::int64_t;
using Real = float;
inline Real get(Real x) { return static_cast<Real>(x); }
inline void put(Real& to, Real x) { to = static_cast<Real>(x); }
using Home = Real;  // an element at home of what most tiles write
inline void place(Real*& at, Real* element) { at = element; }
template <class Element>
void place(Real*&, Element*) {}  // not in place: it is converted
inline void copy_row(Real* to, const Real* from, int64_t n) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(Real));
}
template <class From>
TILEWRIGHT_TARGET void copy_row(Real* to, const From* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = get(from[i]);
}
template <class To>
TILEWRIGHT_TARGET void copy_row(To* to, const Real* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) put(to[i], from[i]);
}

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
TILEWRIGHT_INLINE bool equal(const Box<R>& a, const Box<R>& b) {
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

// One tensor's tile at one level (rule 4) and what it holds: a packed array with room for the largest
// tile, its rows `stride` apart, never a multiple of 4 KiB, whatever the tensor's own rows are; or a
// box of the tensor where it lies.
template <int R, class Element = Home>
struct Tile {
  Real* data;
  int64_t stride[at_least_one(R)];
  Element* home;                         // the tensor, row-major
  int64_t home_stride[at_least_one(R)];
  Tile* outer = nullptr;                 // filled from, written to; none: home
  bool sliding = false;
  bool on_chip = false;                  // an intermediate: never read back
  bool moves = true;                     // false: one that is not written either
  bool in_place = false;                 // `data` is the tensor's own memory: nothing is copied
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
      : data(static_cast<Real*>(memory)), home(static_cast<Element*>(tensor)) {
    for (int i = 0; i < R; ++i) {
      stride[i] = packed[i];
      home_stride[i] = row_major[i];
    }
  }
};

template <int R, class Element = Real>
struct View {
  Element* data;
  const int64_t* stride;
  Box<R> at;
  Element* element(const int64_t* index) const {
    int64_t offset = 0;
    for (int i = 0; i < R; ++i) offset += (index[i] - at.d[i].lo) * stride[i];
    return data + offset;
  }
};
template <int R, class Element>
View<R> view(Tile<R, Element>& t) {
  return {t.data, t.stride, t.held};
}
template <int R, class Element>
View<R, Element> home(Tile<R, Element>& t) {
  return {t.home, t.home_stride, Box<R>{}};
}
template <int R, class Element>
TILEWRIGHT_INLINE Real* at(Tile<R, Element>& t, const int64_t (&index)[at_least_one(R)]) {
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

template <int R, class To, class From>
void copy(const Box<R>& part, const View<R, To>& to, const View<R, From>& from) {
  if (empty(part)) return;
  int64_t index[at_least_one(R)];
  for (int i = 0; i < R; ++i) index[i] = part.d[i].lo;
  const int64_t elements = row_length(part);
  do copy_row(to.element(index), from.element(index), elements);
  while (next_row(part, index));
}
// What a tile holds comes from the outer one, or from home.
template <int R, class Element>
void bring(const Box<R>& part, Tile<R, Element>& t) {
  if (t.outer != nullptr)
    copy(part, view(t), view(*t.outer));
  else
    copy(part, view(t), home(t));
}

// Moves what `now` shares with the held tile to where it lies in a tile of `now`.
template <int R, class Element>
void shift(Tile<R, Element>& t, const Box<R>& now) {
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

template <int R, class Element>
int64_t bytes_of(const Tile<R, Element>&, const Box<R>& box) {
  return size(box) * static_cast<int64_t>(sizeof(Element));
}

// A tile in place: where in the tensor the held box begins.
template <int R, class Element>
TILEWRIGHT_INLINE void stand(Tile<R, Element>& t) {
  int64_t first[at_least_one(R)] = {};
  for (int i = 0; i < R; ++i) first[i] = t.held.d[i].lo;
  place(t.data, home(t).element(first));
}

template <int R, class Element>
void load_packed(Tile<R, Element>& t, const Box<R>& tile) {
  Box<R> part = tile;
  if (t.sliding && t.full) {
    part = new_part(t.held, tile);
    if (!equal(part, tile)) shift(t, tile);
  }
  t.held = tile;
  t.full = true;
  t.steps.read(bytes_of(t, part));
  bring(part, t);
}

// Rule 8: brings a tile; nothing moves where it is held.
template <int R, class Element>
TILEWRIGHT_INLINE void load(Tile<R, Element>& t, const Box<R>& tile) {
  t.tile = tile;
  if ((t.full && equal(t.held, tile)) || empty(tile)) return;
  if (!t.in_place) return load_packed(t, tile);
  t.held = tile;
  t.full = true;
  t.steps.read(bytes_of(t, tile));
  stand(t);
}

template <int R, class Element>
void write(Tile<R, Element>& t);

// Makes `tile` what the buffer holds: another one is written if changed, and the new one is read
// back unless it starts afresh (rules 10 and 12).
template <int R, class Element>
void hold_packed(Tile<R, Element>& t, const Box<R>& tile, bool initialises) {
  if (t.full && t.changed) write(t);
  const bool reads_back = !initialises && !t.on_chip && t.merge == nullptr;
  t.sink = t.outer;
  if (t.outer != nullptr) t.sink_tile = t.outer->tile;
  if (reads_back && t.outer != nullptr && !t.outer->on_chip) hold(*t.outer, t.sink_tile, false);
  t.held = tile;
  t.full = true;
  t.fresh = initialises;
  if (!reads_back) return;
  t.steps.read(bytes_of(t, tile));
  bring(tile, t);
}
template <int R, class Element>
TILEWRIGHT_INLINE void hold(Tile<R, Element>& t, const Box<R>& tile, bool initialises) {
  if (t.full && equal(t.held, tile)) return;
  const bool stays = t.on_chip && !t.moves && t.outer == nullptr;
  if (!t.in_place && !stays) return hold_packed(t, tile, initialises);
  if (t.full && t.changed && t.in_place) {
    t.changed = false;
    t.steps.written(bytes_of(t, t.held));
  }
  t.held = tile;
  t.full = true;
  t.fresh = initialises;
  if (!t.in_place) return;
  stand(t);
  if (!initialises) t.steps.read(bytes_of(t, tile));
}

// Writes the held tile to its sink: home, or a tile of the outer buffer that holds it.
template <int R, class Element>
void write_to(Tile<R, Element>& t, Tile<R, Element>* sink, const Box<R>& sink_tile, bool initialises) {
  t.changed = false;
  if (!t.moves) return;
  t.steps.written(bytes_of(t, t.held));
  if (t.in_place) return;
  if (t.merge != nullptr) return add_partial(t);
  if (sink == nullptr) return copy(t.held, home(t), view(t));
  hold(*sink, sink_tile, initialises);
  copy(t.held, view(*sink), view(t));
  sink->changed = true;
}
// When it is replaced, at the end, or about to be read from home.
template <int R, class Element>
void write(Tile<R, Element>& t) {
  const bool there = t.sink != nullptr && t.sink->full && contains(t.sink->held, t.held);
  write_to(t, t.sink, there ? t.sink->held : t.sink_tile, t.fresh);
}
template <int R, class Element>
void flush(Tile<R, Element>& t) {
  if (t.full && t.changed) write(t);
}
// A store node: at once, if changed. `initialises`: every reduction is at its low end there.
template <int R, class Element>
void store(Tile<R, Element>& t, bool initialises) {
  if (t.full && t.changed)
    write_to(t, t.outer, t.outer != nullptr ? t.outer->tile : t.tile, initialises);
}

// The plan's tile at this point. An intermediate's buffer is emptied by another region; a sliding
// one keeps what both regions share.
template <int R, class Element>
void slide(Tile<R, Element>& t, const Box<R>& tile) {
  flush(t);
  if (t.fixed && !equal(new_part(t.tile, tile), tile)) shift(t, tile);
  t.held = tile;
  t.full = true;
}
template <int R, class Element>
TILEWRIGHT_INLINE void fix(Tile<R, Element>& t, const Box<R>& tile) {
  if (t.fixed && equal(t.tile, tile)) return;
  ++t.generation;
  if (t.sliding) slide(t, tile);
  t.tile = tile;
  t.fixed = true;
}
// What of the region has to be computed.
template <int R, class Element>
Box<R> needed(const Tile<R, Element>& t, const Box<R>& region) {
  return t.fixed ? new_part(t.tile, region) : region;
}

// A compute is about to write into the fixed tile.
template <int R, class Element>
TILEWRIGHT_INLINE void update(Tile<R, Element>& t, bool initialises) {
  const bool partial_left = !t.changed;
  const bool same = t.full && equal(t.held, t.tile);
  hold(t, t.tile, initialises);
  if (t.merge != nullptr && !initialises && (partial_left || !same)) restart(t);
  t.changed = true;
}

constexpr int kLanes = 64 / sizeof(Real);
typedef Real Vector __attribute__((vector_size(64)));
typedef Real Unaligned __attribute__((vector_size(64), aligned(sizeof(Real)), may_alias));
// The first lanes of a vector: loads of the others give zero and touch nothing, stores leave them.
typedef __mmask16 Lanes;
TILEWRIGHT_TARGET inline Lanes first_lanes(int64_t n) {
  return static_cast<Lanes>((1u << n) - 1);
}
TILEWRIGHT_TARGET inline Lanes lanes_between(int64_t first, int64_t last) {
  return first < last ? static_cast<Lanes>(first_lanes(last) & ~first_lanes(first)) : Lanes{};
}
TILEWRIGHT_TARGET inline Vector load_part(const Real* p, Lanes lanes) {
  return (Vector)_mm512_maskz_loadu_ps(lanes, p);
}
TILEWRIGHT_TARGET inline void store_part(Real* p, Lanes lanes, Vector v) {
  _mm512_mask_storeu_ps(p, lanes, (__m512)v);
}
// Past the caches, where a line begins.
TILEWRIGHT_TARGET inline void store_past(Real* p, Vector v) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(Vector) == 0)
    _mm512_stream_ps(p, (__m512)v);
  else
    _mm512_storeu_ps(p, (__m512)v);
}

// How far apart neighbours lie, as a type: addresses of many rows are then one register's and numbers.
template <int64_t N>
struct Known {
  constexpr operator int64_t() const { return N; }
};
constexpr int at_most(int size, int most) { return size < most ? size : most; }
constexpr int64_t at_least(int64_t size, int64_t least) { return size > least ? size : least; }
constexpr int64_t kStepsAhead = 8, kProductsAhead = 400, kLongDepth = 48;
constexpr int64_t kLineOfSteps = 16, kKeptBytes = 16384, kLeastKeptSteps = 128;

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
    case 1:
      if constexpr (may_be(M, ROWS, 1))
        outer_product<at_most(1, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 2:
      if constexpr (may_be(M, ROWS, 2))
        outer_product<at_most(2, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 3:
      if constexpr (may_be(M, ROWS, 3))
        outer_product<at_most(3, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 4:
      if constexpr (may_be(M, ROWS, 4))
        outer_product<at_most(4, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 5:
      if constexpr (may_be(M, ROWS, 5))
        outer_product<at_most(5, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 6:
      if constexpr (may_be(M, ROWS, 6))
        outer_product<at_most(6, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 7:
      if constexpr (may_be(M, ROWS, 7))
        outer_product<at_most(7, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 8:
      if constexpr (may_be(M, ROWS, 8))
        outer_product<at_most(8, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 9:
      if constexpr (may_be(M, ROWS, 9))
        outer_product<at_most(9, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 10:
      if constexpr (may_be(M, ROWS, 10))
        outer_product<at_most(10, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    case 11:
      if constexpr (may_be(M, ROWS, 11))
        outer_product<at_most(11, ROWS), NI, Partial, B, AHEAD>(depth, a, a_row, a_k, b, b_k, c, c_row,
            lanes, fresh, i, j, after, to, next, next_k, ahead);
      break;
    default:
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
    case 1:
      if constexpr (Packed ? may_be_left(all, NI, 1) : may_be(all, NI, 1))
        panel<taller(MI, NI, at_most(1, NI)), at_most(1, NI), Partial, M, Apart>(rows, depth, a, a_row, a_k, b,
            b_k, c, c_row, lanes, fresh, j, after, to, next, first);
      return;
    case 2:
      if constexpr (Packed ? may_be_left(all, NI, 2) : may_be(all, NI, 2))
        panel<taller(MI, NI, at_most(2, NI)), at_most(2, NI), Partial, M, Apart>(rows, depth, a, a_row, a_k, b,
            b_k, c, c_row, lanes, fresh, j, after, to, next, first);
      return;
    case 3:
      if constexpr (Packed ? may_be_left(all, NI, 3) : may_be(all, NI, 3))
        panel<taller(MI, NI, at_most(3, NI)), at_most(3, NI), Partial, M, Apart>(rows, depth, a, a_row, a_k, b,
            b_k, c, c_row, lanes, fresh, j, after, to, next, first);
      return;
    case 4:
      if constexpr (Packed ? may_be_left(all, NI, 4) : may_be(all, NI, 4))
        panel<taller(MI, NI, at_most(4, NI)), at_most(4, NI), Partial, M, Apart>(rows, depth, a, a_row, a_k, b,
            b_k, c, c_row, lanes, fresh, j, after, to, next, first);
      return;
    default:
      if constexpr (Packed ? may_be_left(all, NI, NI) : may_be(all, NI, NI))
        return panel<MI, NI, Partial, M, Apart>(rows, depth, a, a_row, a_k, b, b_k, c, c_row, lanes,
                                                fresh, j, after, to, next, first);
  }
}

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
  constexpr int64_t steps = kKeptBytes / (NI * static_cast<int64_t>(sizeof(Vector)));
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
  constexpr int64_t width = Vectors * kLanes;
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

TILEWRIGHT_TARGET inline Vector interleave_first(Vector a, Vector b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
TILEWRIGHT_TARGET inline Vector interleave_last(Vector a, Vector b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
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

// B[k,j] into rows of whole vectors, where its columns are not contiguous as they are.
inline void pack(int64_t columns, int64_t depth, const Real* b, int64_t b_k, int64_t b_column,
                 Real* packed, int64_t packed_k) {
  if (b_k == 1) return transpose(columns, depth, b, b_column, packed, packed_k);
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) packed[k * packed_k + j] = b[k * b_k + j * b_column];
}

// B[k,j] into panels of `Width` columns, `panel` elements from one to the next, each step of the depth
// behind the one before.
template <int Width>
inline void pack_panels(int64_t columns, int64_t depth, const Real* b, int64_t b_k, int64_t b_column,
                        Real* packed, int64_t panel) {
  for (int64_t j = 0; j < columns; j += Width, packed += panel)
    pack(min(columns - j, Width), depth, b + j * b_column, b_k, b_column, packed, Width);
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
  Real* const t_C_L1 = reinterpret_cast<Real*>(memory + 448);
  // E at L1, written to home
  Tile<2> t_E_L1(memory + 640, {3, 1}, tensors[3], {6, 1});
  for (int64_t l_m = 0; l_m < 10; l_m += 4) {
    const int64_t l_m_end = min(l_m + 4, 10);
    for (int64_t l_l = 0; l_l < 9; l_l += 5) {
      const int64_t l_l_end = min(l_l + 5, 9);
      for (int64_t l_k = 0; l_k < 7; l_k += 4) {
        const int64_t l_k_end = min(l_k + 4, 7);
        load(t_A_L1, Box<2>{{{l_m, l_m_end}, {l_k, l_k_end}}});
        load(t_B_L1, Box<2>{{{l_k, l_k_end}, {l_l, l_l_end}}});
        // C.gemm1: C[m,l] += A[m,k] * B[k,l]
        {
          multiply<6, 4, 0, 0>(l_m_end - l_m, l_l_end - l_l, l_k_end - l_k, at(t_A_L1, {l_m, l_k}), Known<4>{}, Known<1>{},
                   at(t_B_L1, {l_k, l_l}), Known<5>{}, t_C_L1, Known<5>{}, l_k == 0);
        }
      }
      for (int64_t l_n = 0; l_n < 6; l_n += 3) {
        load(t_D_L1, Box<2>{{{l_l, l_l_end}, {l_n, l_n + 3}}});
        // C.gemm2: E[m,n] += C[m,l] * D[l,n]
        {
          fix(t_E_L1, Box<2>{{{l_m, l_m_end}, {l_n, l_n + 3}}});
          update(t_E_L1, l_l == 0);
          multiply<6, 4, 0, 3>(l_m_end - l_m, 3, l_l_end - l_l, t_C_L1, Known<5>{}, Known<1>{},
                   at(t_D_L1, {l_l, l_n}), Known<3>{}, at(t_E_L1, {l_m, l_n}), Known<3>{}, l_l == 0);
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
#undef TILEWRIGHT_INLINE
#undef TILEWRIGHT_ALWAYS
