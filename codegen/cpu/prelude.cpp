// Text of the emitted programs' fixed part. Rule numbers are those of the plan's design document.
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kBoxes = R"(
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
)";

constexpr const char* kNoCount = R"(
struct Steps {  // the boundaries that a copy crosses: counted in a counting build only
  void crosses(int64_t*) {}
  void read(int64_t) {}
  void written(int64_t) {}
};
)";

constexpr const char* kCount = R"(
struct Steps {  // the boundaries that a copy crosses, each with its bytes read and written
  int64_t* step[kMostSteps] = {};
  int steps = 0;
  void crosses(int64_t* bytes) { step[steps++] = bytes; }
  void read(int64_t bytes) {
    for (int i = 0; i < steps; ++i) step[i][0] += bytes;
  }
  void written(int64_t bytes) {
    for (int i = 0; i < steps; ++i) step[i][1] += bytes;
  }
};
)";

constexpr const char* kTile = R"(
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
)";

constexpr const char* kNotAtomic = R"(
template <class T>
void add_partial(T&) {}
template <class T>
void restart(T&) {}
)";

constexpr const char* kAtomic = R"(
template <int R, class Element>
struct Tile;
template <int R, class Element>
void add_partial(Tile<R, Element>& t);
template <int R, class Element>
void restart(Tile<R, Element>& t);

inline void merge_sum(Real& a, Real b) { a += b; }
inline void merge_product(Real& a, Real b) { a *= b; }
inline void merge_max(Real& a, Real b) { a = b > a ? b : a; }
inline void merge_min(Real& a, Real b) { a = b < a ? b : a; }
)";

constexpr const char* kAtomicBodies = R"(
// Joins a block's partial result with the tensor's (rule 12), one block at a time.
template <int R, class Element>
void add_partial(Tile<R, Element>& t) {
#ifdef _OPENMP
#pragma omp critical(tilewright_partial)
#endif
  if (!empty(t.held)) {
    int64_t index[at_least_one(R)];
    for (int i = 0; i < R; ++i) index[i] = t.held.d[i].lo;
    const View<R> from = view(t);
    const View<R, Element> to = home(t);
    do {
      const Real* const partial = from.element(index);
      Element* const target = to.element(index);
      for (int64_t i = 0; i < row_length(t.held); ++i) {
        Real joined = get(target[i]);
        t.merge(joined, partial[i]);
        put(target[i], joined);
      }
    } while (next_row(t.held, index));
  }
}
// The partial has left: the next one starts from nothing.
template <int R, class Element>
void restart(Tile<R, Element>& t) {
  if (empty(t.held)) return;
  int64_t index[at_least_one(R)];
  for (int i = 0; i < R; ++i) index[i] = t.held.d[i].lo;
  do {
    Real* const row = view(t).element(index);
    for (int64_t i = 0; i < row_length(t.held); ++i) row[i] = t.identity;
  } while (next_row(t.held, index));
}
)";

constexpr const char* kOnce = R"(
// !once (rule 13): boxes that a compute has finished in a tile that has not been replaced since.
template <int R, class Element>
int64_t first_element(const Tile<R, Element>& t, const Box<R>& box) {
  int64_t offset = 0;
  for (int i = 0; i < R; ++i) offset += (box.d[i].lo - t.tile.d[i].lo) * t.stride[i];
  return offset;
}
template <int R, class Element>
bool is_complete(const Tile<R, Element>& t, const Box<R>& box) {
  if (!t.fixed || empty(box) || !contains(t.tile, box)) return false;
  const int64_t at = first_element(t, box);
  return t.complete_since[at] == t.generation && equal(t.complete[at], box);
}
template <int R, class Element>
void completed(Tile<R, Element>& t, const Box<R>& box) {
  const int64_t at = first_element(t, box);
  t.complete_since[at] = t.generation;
  t.complete[at] = box;
}
)";

constexpr const char* kPrefetch = R"(
// Asks for the lines of a box, from its first element: sizes and strides by dimension.
template <int R>
void prefetch(const Real* first, const int64_t (&size)[R], const int64_t (&stride)[R]) {
  constexpr int64_t kLine = 64 / sizeof(Real);
  for (int i = 0; i < R; ++i)
    if (size[i] <= 0) return;
  int64_t index[R] = {};
  for (;;) {
    const Real* row = first;
    for (int i = 0; i < R - 1; ++i) row += index[i] * stride[i];
    for (int64_t j = 0; j < size[R - 1]; j += kLine) __builtin_prefetch(row + j);
    int i = R - 2;
    while (i >= 0 && ++index[i] == size[i]) index[i--] = 0;
    if (i < 0) return;
  }
}
)";

constexpr const char* kFunctions = R"(
inline Real f_add(Real a, Real b) { return a + b; }
inline Real f_sub(Real a, Real b) { return a - b; }
inline Real f_mul(Real a, Real b) { return a * b; }
inline Real f_div(Real a, Real b) { return a / b; }
// NaN if one of them is.
inline Real f_max(Real a, Real b) {
  const Real most = b > a ? b : a;
  return b == b ? most : b;
}
inline Real f_min(Real a, Real b) {
  const Real least = b < a ? b : a;
  return b == b ? least : b;
}
inline Real f_pow(Real a, Real b) { return std::pow(a, b); }
inline Real f_lt(Real a, Real b) { return a < b ? Real(1) : Real(0); }
inline Real f_select(Real a, Real b, Real c) { return a != Real(0) ? b : c; }
inline Real f_neg(Real a) { return -a; }
inline Real f_exp(Real a) { return std::exp(a); }
inline Real f_log(Real a) { return std::log(a); }
inline Real f_sqrt(Real a) { return std::sqrt(a); }
inline Real f_rsqrt(Real a) { return Real(1) / std::sqrt(a); }
inline Real f_recip(Real a) { return Real(1) / a; }
inline Real f_relu(Real a) { return a < Real(0) ? Real(0) : a; }
inline Real f_tanh(Real a) { return std::tanh(a); }
inline Real f_sigmoid(Real a) { return Real(1) / (Real(1) + std::exp(-a)); }
inline Real f_erf(Real a) { return std::erf(a); }
inline Real f_gelu(Real a) {
  return Real(0.5) * a * (Real(1) + std::erf(a * Real(0.70710678118654752440)));
}
inline Real f_abs(Real a) { return std::fabs(a); }
inline Real f_square(Real a) { return a * a; }
inline Real f_floor(Real a) { return std::floor(a); }
inline Real f_round(Real a) { return std::nearbyint(a); }
inline Real f_sin(Real a) { return std::sin(a); }
inline Real f_cos(Real a) { return std::cos(a); }
)";

}  // namespace

std::string prelude_text(const PreludeOptions& options) {
  std::string text = "using std::int64_t;\nusing Real = ";
  text += options.f64 ? "double;\n" : "float;\n";
  text += elements_text(options);
  text += kBoxes;
  if (options.count)
    text += "\nconstexpr int kMostSteps = " + std::to_string(options.most_steps) + ";\n";
  text += options.count ? kCount : kNoCount;
  text += options.atomic ? kAtomic : kNotAtomic;
  text += kTile;
  if (options.atomic) text += kAtomicBodies;
  if (options.once) text += kOnce;
  if (options.prefetch) text += kPrefetch;
  if (options.functions) text += kFunctions;
  return text;
}

}  // namespace tilewright::cpu
