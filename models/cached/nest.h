// The loop trees of a schedule as one nest: its computes, what each touches, and where a touch
// stands among the iterations of the loops around it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/schedule.h"
#include "models/cached/arrays.h"

namespace tilewright::cached {

/// How an operator indexes a tensor, by the kernel's ranges.
struct Reach {
  struct Term {
    std::size_t range = 0;
    std::int64_t coefficient = 1;
  };
  struct Dimension {
    std::vector<Term> terms = {};
    std::int64_t offset = 0;
    std::int64_t extent = 0;  ///< of the tensor
    bool whole = false;       ///< all of it, whatever the ranges
    /// The range that its one term takes as it is; -1: it has other terms.
    int plain = -1;
    /// Where it lies, not clipped; empty where a range is.
    Interval within(const Ranges& r) const;
    /// Where its coefficients are more than one in all: the loop that is cut, in tiles of so many,
    /// and how the index follows, through the indices by which other operators read what this one
    /// makes. A tile of 0: the index leaves none out.
    struct Link {
      std::int64_t coefficient = 1, offset = 0;
      std::vector<Term> others = {};
    };
    std::size_t cut = 0;  ///< a range
    std::int64_t tile = 0;
    std::vector<Link> links = {};
  };
  std::vector<Dimension> index = {};

  /// The box that it touches, clipped; an empty one of rank 1 or more where a range is empty.
  Box box(const Ranges& r) const;
  /// Whether what it touches meets a box, taken for empty where a range is.
  bool meets(const Ranges& r, const Box& box) const;
  /// What a dimension's index leaves out between one tile and the next: it takes `width` from
  /// `first` on, then the next ones `step` further. A step of 1: it leaves none out.
  struct Stride {
    std::int64_t first = 0, step = 1, width = 1;
  };
  Stride stride(std::size_t d, const Ranges& r) const;
};

/// The hull of what accesses touch, with ranges that are inferred on the way to them.
struct Hull;
struct Narrowing;
struct Hull {
  std::vector<Reach> reaches = {};
  std::vector<Narrowing> ahead;  // without `= {}`: clang 14 would want the type whole here

  /// `scratch` is overwritten.
  Box box(const Ranges& r, Ranges& scratch) const;
};
/// An inference: ranges that become what is needed (plan.md, rule 2).
struct Narrowing {
  Hull need = {};
  std::vector<std::int64_t> ranges = {};  ///< by dimension; -1: none
  bool merge = false;

  void apply(Ranges& r, Ranges& scratch) const;
};

/// One access of a compute, in the order in which it makes them.
struct Use {
  int array = 0;
  bool write = false;
  Reach reach = {};
  BufferId tile = {};    ///< packed: the buffer whose tile the array holds
  int fixed = -1;        ///< packed: the node that fixes it
  int hull = -1;         ///< packed: its tile among those of that node
  bool strided = false;  ///< some index has a coefficient of more than one
};

struct NestNode {
  NodeKind kind = NodeKind::sequence;  ///< sequence, loop or compute
  int kernel = -1;
  NodeId id;  ///< none: the root, or a zeroing
  int parent = -1;
  int depth = 0;
  std::vector<int> children = {};
  std::vector<Use> uses = {};                    ///< of a compute
  std::vector<Narrowing> inferences = {};        ///< on entering
  std::vector<std::pair<int, Hull>> tiles = {};  ///< of packed arrays, that are fixed then
  std::uint64_t arrays = 0;                      ///< touched here or below, by number modulo 64
  std::uint64_t written = 0;                     ///< of these, those that are written
  std::vector<int> way = {};                     ///< of a compute: nodes from the root to it
};

inline std::uint64_t bit_of(int array) { return std::uint64_t{1} << (array % 64); }

/// A node on the way from the root to a compute, in one iteration.
struct Frame {
  int node = 0;
  std::int64_t iteration = 0;
  Ranges ranges = {};  ///< inside
};

/// Where a touch stands: frames from the root to its compute, and which of that one's uses it is.
class Path {
 public:
  const Frame& at(std::size_t i) const { return frames_[i]; }  ///< by depth
  Frame& back() { return frames_[size_ - 1]; }
  const Frame& back() const { return frames_[size_ - 1]; }
  std::size_t size() const { return size_; }
  void cut(std::size_t size) { size_ = size; }
  void copy(const Path& from, std::size_t size);
  Frame& push();
  /// By array, up to the last packed one: the tile that it holds, and whether it is to be found
  /// first, from the frame that fixes it. See Nest::tile().
  mutable std::vector<Box> tiles = {};
  mutable std::vector<char> unknown = {};
  std::size_t use = 0;

 private:
  std::vector<Frame> frames_;
  std::size_t size_ = 0;
};

class Nest {
 public:
  Nest(const Schedule& s, Layout layout) : Nest(s, AddressMap(s, layout)) {}
  /// With tensors where the map says, which may be of a schedule with other loops around computes.
  Nest(const Schedule& s, AddressMap map);

  const Schedule& schedule() const { return s_; }
  const AddressMap& map() const { return map_; }
  const std::vector<NestNode>& nodes() const { return nodes_; }
  const NestNode& node(int n) const { return nodes_[static_cast<std::size_t>(n)]; }
  const std::vector<Array>& arrays() const { return arrays_; }
  const Array& array(int a) const { return arrays_[static_cast<std::size_t>(a)]; }

  /// The root alone.
  void begin(Path& path) const;
  /// One step down from the path's last node, to iteration `i` where that is a loop.
  void enter(Path& path, int child, std::int64_t i) const;
  /// From one iteration of the path's last node, a loop, to another.
  void move_on(Path& path, std::int64_t i) const;
  /// The tile that a packed array holds: its node is on the path.
  const Box& tile(const Path& path, const Use& u) const;
  /// Whether the compute does nothing: a range of it is empty.
  bool idle(const NestNode& compute, const Ranges& r) const;
  /// Iterations of the loop from the frame around it.
  std::int64_t trips_of(int loop, const Frame& around) const;

  /// Calls f(use, piece) for what iterations [from, to) of the node touch, each use once, with all
  /// loops within whole; `around` is the frame outside. Only of arrays in `mask`. Ends where f
  /// returns true, and says so.
  template <class F>
  bool sweep(const Path& path, const Frame& around, int node, Interval iterations,
             std::uint64_t mask, F&& f) const;
  /// The same of one use, of the compute `leaf` at or below the node.
  template <class F>
  bool sweep_use(const Path& path, const Frame& around, int node, Interval iterations, int leaf,
                 std::size_t use, F&& f) const;
  /// Whether what sweep(), or with a `leaf` sweep_use(), would call f for has a line; of writes
  /// alone where `writes` is set.
  bool has(const Path& path, const Frame& around, int node, Interval iterations, int leaf,
           std::size_t use, const Spot& x, bool writes = false) const;
  /// Calls f(array, box) for what sweep() calls f(use, piece) for, of all arrays, where boxes of
  /// the tensor say it; g(use, piece) for the rest.
  template <class F, class G>
  void sweep_boxes(const Path& path, const Frame& around, int node, Interval iterations, F&& f,
                   G&& g) const;
  /// Pieces of a use of the path's last node, a compute, as it runs once.
  template <class F>
  bool once(const Path& path, std::size_t use, F&& f) const;

 private:
  void add_kernel(int kernel);
  int add_node(int parent, int kernel, NodeId id);
  void add_uses(NestNode& n);
  void add_body(NestNode& n);
  Reach reach_of(const ScheduledKernel& k, OpId op, const Access& access) const;
  Narrowing narrowing_of(const ScheduledKernel& k, const Inference& i) const;
  int array_of(int kernel, BufferId b, TensorId t);
  void find_strides();
  void find_stride(const NestNode& n, Reach::Dimension& d) const;
  void size_tiles();
  void lay_out();
  void fuse();
  void enter_body(const NestNode& n, Ranges& r, Path* path) const;
  /// Cuts the ranges of a loop to some iterations.
  void cut_to(const NestNode& n, Interval iterations, const Ranges& around, Ranges& r) const;
  /// Calls f(use, ranges) for uses of arrays in `mask` below the node, or for one of the leaf.
  template <class F>
  bool below(int node, Ranges& r, std::uint64_t mask, int leaf, std::size_t use, F&& f) const;
  /// The same below some iterations of a node.
  template <class F>
  bool within(const Frame& around, int node, Interval iterations, std::uint64_t mask, int leaf,
              std::size_t use, F&& f) const;
  template <class F>
  bool of_use(const Path& path, int top, const Use& u, const Ranges& r, F&& f) const;
  template <class F>
  bool of_strided(const Array& a, const Use& u, const Ranges& r, Box& box, int d, int stepped,
                  std::int64_t step, F&& f) const;

  const Schedule& s_;
  AddressMap map_;
  std::vector<NestNode> nodes_;
  std::vector<Array> arrays_;
  struct Key {
    int kernel;
    BufferId buffer;
    TensorId tensor;
  };
  std::vector<Key> keys_;                // by array
  std::size_t tiles_ = 0;                // arrays up to the last packed one
  std::vector<Ranges> whole_;            // by kernel
  mutable std::vector<Ranges> scratch_;  // by depth
  mutable Ranges ahead_;
  mutable Box swept_;
};

inline Interval Reach::Dimension::within(const Ranges& r) const {
  if (whole) return {0, extent};
  if (plain >= 0) {
    const Interval& of = r[static_cast<std::size_t>(plain)];
    return {of.lo + offset, of.hi + offset};
  }
  Interval range{offset, offset + 1};
  for (const Term& t : terms) {
    const Interval& of = r[t.range];
    if (of.empty()) return {};
    const std::int64_t first = t.coefficient * of.lo, last = t.coefficient * (of.hi - 1);
    range.lo += std::min(first, last);
    range.hi += std::max(first, last);
  }
  return range;
}

inline Box Reach::box(const Ranges& r) const {
  Box box(static_cast<int>(index.size()));
  int d = 0;
  for (const Dimension& dimension : index) {
    const Interval range = dimension.within(r);
    if (range.empty()) return Box(1);
    box[d++] = {std::max<std::int64_t>(range.lo, 0), std::min(range.hi, dimension.extent)};
  }
  return box;
}

inline bool Reach::meets(const Ranges& r, const Box& box) const {
  int d = 0;
  for (const Dimension& dimension : index) {
    const Interval& cell = box[d++];
    const Interval range = dimension.within(r);
    if (range.empty() || range.lo >= cell.hi || cell.lo >= range.hi) return false;
  }
  return true;
}

inline Reach::Stride Reach::stride(std::size_t d, const Ranges& r) const {
  const Dimension& dimension = index[d];
  if (dimension.tile == 0) return {};
  Stride s{.first = r[dimension.cut].lo, .step = dimension.tile, .width = dimension.tile};
  for (const Dimension::Link& link : dimension.links) {
    s.first = link.coefficient * s.first + link.offset;
    s.step *= link.coefficient;
    s.width = link.coefficient * (s.width - 1) + 1;
    for (const Term& t : link.others) {
      const Interval& of = r[t.range];
      s.first += t.coefficient * of.lo;
      s.width += t.coefficient * (of.size() - 1);
    }
  }
  return s;
}

// ---- Templates ----------------------------------------------------------------------------------

inline const Box& Nest::tile(const Path& path, const Use& u) const {
  const auto i = static_cast<std::size_t>(u.array);
  if (path.unknown[i] != 0) {
    const NestNode& n = node(u.fixed);
    path.tiles[i] = n.tiles[static_cast<std::size_t>(u.hull)].second.box(
        path.at(static_cast<std::size_t>(n.depth)).ranges, ahead_);
    path.unknown[i] = 0;
  }
  return path.tiles[i];
}

template <class F>
bool Nest::of_use(const Path& path, int top, const Use& u, const Ranges& r, F&& f) const {
  const Array& a = array(u.array);
  const Box* tile = nullptr;
  Box box = u.reach.box(r);
  if (box.empty()) return false;
  if (a.packed) {
    // Where several tiles come and go, each has the array's first places.
    const bool within = node(u.fixed).depth >= node(top).depth;
    if (within && u.hull >= 0) {
      const Hull& hull = node(u.fixed).tiles[static_cast<std::size_t>(u.hull)].second;
      swept_ = hull.box(r, ahead_);
    }
    if (within && (u.hull < 0 || swept_.rank() != box.rank())) swept_ = box;
    for (int d = 0; within && d < box.rank(); ++d)
      swept_[d].hi = std::min(swept_[d].hi, swept_[d].lo + a.extent[static_cast<std::size_t>(d)]);
    const Box& held = within ? swept_ : this->tile(path, u);
    for (int d = 0; d < box.rank(); ++d) {
      const std::int64_t most = a.extent[static_cast<std::size_t>(d)];
      const std::int64_t low = held[d].lo;
      box[d] = {std::max<std::int64_t>(box[d].lo - low, 0), std::min(box[d].hi - low, most)};
    }
    tile = &held;
  }
  if (box.empty()) return false;
  bool stop = false;
  if (u.strided && !a.packed) return of_strided(a, u, r, box, 0, -1, 1, f);
  pieces(a, box, tile, [&](const Piece& p) { stop = stop || f(u, p); });
  return stop;
}

/// The box from dimension `d` on, `stepped` a coordinate that has every `step`-th index alone.
template <class F>
bool Nest::of_strided(const Array& a, const Use& u, const Ranges& r, Box& box, int d, int stepped,
                      std::int64_t step, F&& f) const {
  bool stop = false;
  if (d == box.rank()) {
    pieces(a, box, nullptr, [&](Piece p) {
      if (stepped >= 0) p.stepped = stepped, p.step = step;
      stop = stop || f(u, p);
    });
    return stop;
  }
  const auto i = static_cast<std::size_t>(d);
  const Reach::Stride s = u.reach.stride(i, r);
  const bool within = a.block[i] == a.extent[i];
  if (s.step <= s.width || box[d].size() <= s.width || !a.keeps(d, within))
    return of_strided(a, u, r, box, d + 1, stepped, step, f);
  const Interval all = box[d];
  int coordinate = 0;
  while (a.sources[static_cast<std::size_t>(coordinate)].dimension != d ||
         a.sources[static_cast<std::size_t>(coordinate)].within != within)
    ++coordinate;
  // Close rows of a tile share lines, so that no piece is made of each.
  constexpr std::int64_t kClose = 256, kLine = 64;
  const std::int64_t pitch = a.parts[0].pitch[static_cast<std::size_t>(coordinate)];
  const bool close = s.width > 1 && pitch < kClose;
  // Less than a line is left out.
  if (close && (s.step - s.width) * pitch < kLine)
    return of_strided(a, u, r, box, d + 1, stepped, step, f);
  if (stepped < 0 && !close && (within || a.block[i] == 1)) {
    for (std::int64_t k = 0; k < s.width && !stop; ++k) {
      const std::int64_t lo = s.first + k;
      box[d] = {lo >= all.lo ? lo : lo + ceil_div(all.lo - lo, s.step) * s.step, all.hi};
      if (!box[d].empty()) stop = of_strided(a, u, r, box, d + 1, coordinate, s.step, f);
    }
  } else {
    // Each tile's own box, where they are few.
    constexpr std::int64_t kFew = 24;
    std::int64_t lo = s.first;
    if (lo + s.width <= all.lo) lo += ceil_div(all.lo - lo - s.width + 1, s.step) * s.step;
    if (ceil_div(all.hi - lo, s.step) > kFew)
      return of_strided(a, u, r, box, d + 1, stepped, step, f);
    for (; lo < all.hi && !stop; lo += s.step) {
      box[d] = {std::max(lo, all.lo), std::min(lo + s.width, all.hi)};
      stop = of_strided(a, u, r, box, d + 1, stepped, step, f);
    }
  }
  box[d] = all;
  return stop;
}

template <class F>
bool Nest::below(int at, Ranges& r, std::uint64_t mask, int leaf, std::size_t use, F&& f) const {
  const NestNode& n = node(at);
  if (n.kind == NodeKind::compute) {
    if (leaf >= 0) return f(n.uses[use], r);
    for (const Use& u : n.uses)
      if ((bit_of(u.array) & mask) != 0 && f(u, r)) return true;
    return false;
  }
  const auto into = [&](int c) {
    const NestNode& child = node(c);
    if (child.kind == NodeKind::compute || !child.id.valid() ||
        (child.inferences.empty() && child.parent != 0))
      return below(c, r, mask, leaf, use, f);
    Ranges& inside = scratch_[static_cast<std::size_t>(child.depth)];
    if (child.parent == 0) {
      inside = whole_[static_cast<std::size_t>(child.kernel)];
    } else {
      inside = r;
    }
    enter_body(child, inside, nullptr);
    return below(c, inside, mask, leaf, use, f);
  };
  if (leaf >= 0) return into(node(leaf).way[static_cast<std::size_t>(n.depth) + 1]);
  for (const int c : n.children)
    if ((node(c).arrays & mask) != 0 && into(c)) return true;
  return false;
}

template <class F>
bool Nest::within(const Frame& around, int at, Interval iterations, std::uint64_t mask, int leaf,
                  std::size_t use, F&& f) const {
  const NestNode& n = node(at);
  if (iterations.empty() || (n.arrays & mask) == 0) return false;
  Ranges& r = scratch_[static_cast<std::size_t>(n.depth)];
  if (n.parent == 0)
    r = whole_[static_cast<std::size_t>(n.kernel)];
  else
    r = around.ranges;
  if (n.kind == NodeKind::loop) cut_to(n, iterations, around.ranges, r);
  if (n.kind != NodeKind::compute && n.id.valid()) enter_body(n, r, nullptr);
  return below(at, r, mask, leaf, use, f);
}

template <class F>
bool Nest::sweep(const Path& path, const Frame& around, int at, Interval iterations,
                 std::uint64_t mask, F&& f) const {
  return within(around, at, iterations, mask, -1, 0,
                [&](const Use& u, const Ranges& r) { return of_use(path, at, u, r, f); });
}

template <class F>
bool Nest::sweep_use(const Path& path, const Frame& around, int at, Interval iterations, int leaf,
                     std::size_t use, F&& f) const {
  return within(around, at, iterations, bit_of(node(leaf).uses[use].array), leaf, use,
                [&](const Use& u, const Ranges& r) { return of_use(path, at, u, r, f); });
}

inline bool Nest::has(const Path& path, const Frame& around, int at, Interval iterations, int leaf,
                      std::size_t use, const Spot& x, bool writes) const {
  return within(
      around, at, iterations, bit_of(x.array), leaf, use, [&](const Use& u, const Ranges& r) {
        if (u.array != x.array || (writes && !u.write)) return false;
        if (!array(u.array).packed && !u.strided)
          return x.cell_count == 1 ? u.reach.meets(r, x.cells[0])
                                   : u.reach.meets(r, x.hull) && x.meets(u.reach.box(r));
        return of_use(path, at, u, r,
                      [&](const Use&, const Piece& p) { return touches(array(u.array), p, x); });
      });
}

template <class F, class G>
void Nest::sweep_boxes(const Path& path, const Frame& around, int at, Interval iterations, F&& f,
                       G&& g) const {
  within(around, at, iterations, ~std::uint64_t{0}, -1, 0, [&](const Use& u, const Ranges& r) {
    if (!array(u.array).packed && !u.strided)
      f(u.array, u.reach.box(r));
    else
      of_use(path, at, u, r, [&](const Use& of, const Piece& p) {
        g(of, p);
        return false;
      });
    return false;
  });
}

template <class F>
bool Nest::once(const Path& path, std::size_t use, F&& f) const {
  const Frame& frame = path.back();
  const NestNode& n = node(frame.node);
  // The tile is fixed outside: a compute fixes none.
  return of_use(path, frame.node, n.uses[use], frame.ranges, f);
}

}  // namespace tilewright::cached
