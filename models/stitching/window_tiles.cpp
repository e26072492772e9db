#include "models/stitching/window_tiles.h"

#include <bit>

#include "models/stitching/passes.h"

namespace tilewright::stitching {
namespace {

constexpr std::int64_t kMostPoints = 32;          // of a thread
constexpr std::int64_t kMostWindowThreads = 256;  // of a block
constexpr std::int64_t kMostShared = 4096;        // elements of an operand that a block keeps

std::int64_t power_of_two(std::int64_t x) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(x)));
}

class WindowTreeWriter {
 public:
  WindowTreeWriter(const Graph& g, const Stitched& s, const WindowLoops& image)
      : g_(g), w_(g.workload()), s_(s), c_(s.component), image_(image) {}

  Result<BoundTree> write(std::int64_t threads) {
    const std::int64_t wide = s_.window_along, tall = s_.window_down;
    const std::int64_t columns = ceil_div(extent(image_.along), wide);
    const std::int64_t across = ceil_div(columns, ceil_div(columns, kWarp));  // lanes along a row
    const std::int64_t lanes = power_of_two(across);
    const std::int64_t rows = image_.down < 0 ? 1 : ceil_div(extent(image_.down), tall);
    const std::int64_t lanes_down = std::min(kWarp / lanes, power_of_two(rows));
    const std::int64_t more_lanes = kWarp / lanes / lanes_down, warps = threads / kWarp;
    const std::int64_t blocks_down = ceil_div(rows, lanes_down * warps);
    const std::int64_t warps_down = ceil_div(rows, lanes_down * blocks_down);
    const std::int64_t more_warps = warps / warps_down, more = more_lanes * more_warps;
    const std::vector<int> all = rows_around();
    int further = -1;
    for (int l : all)
      if (more > 1 && extent(l) > 1 &&
          (further < 0 || extent(l) >= std::min(more, extent(further))))
        further = l;
    if (more > 1 && (further < 0 || extent(further) < more))
      return Reason{"its images leave threads without a point"};
    std::vector<Cut> around, within;
    for (int l : all) around.push_back({l, l == further ? more : 1, Binding::grid});
    if (image_.down >= 0) cut(around, image_.down, tall * lanes_down * warps_down, Binding::grid);
    cut(around, image_.along, wide * across, Binding::grid);
    if (more_warps > 1) around.push_back({further, more_lanes, Binding::warp});
    if (warps_down > 1) within.push_back({image_.down, tall * lanes_down, Binding::warp});
    if (more_lanes > 1) within.push_back({further, 1, Binding::lane});
    if (lanes_down > 1) within.push_back({image_.down, tall, Binding::lane});
    within.push_back({image_.along, wide, Binding::lane});
    std::vector<Node> nodes = loads();
    nodes.push_back(nest(within, sequence(computes())));
    return BoundTree{.tree = nest(around, sequence(std::move(nodes))), .kept = wide * tall};
  }

 private:
  std::int64_t extent(int l) const { return g_.extent(l); }
  const Operator& op(int v) const { return w_.op(g_.vertex(v).op); }
  void cut(std::vector<Cut>& cuts, int l, std::int64_t step, Binding binding) const {
    cuts.push_back({l, std::min(step, extent(l)), binding});
  }
  Node nest(std::span<const Cut> cuts, Node body) const {
    for (std::size_t i = cuts.size(); i-- > 0;)
      body = loop(w_.loops()[static_cast<std::size_t>(cuts[i].loop)].name, std::move(body),
                  cuts[i].step, cuts[i].binding);
    return body;
  }

  /// The part's rows but for the image's, in the order of its last operator.
  std::vector<int> rows_around() const {
    std::vector<int> all;
    for (std::size_t i = c_.vertices.size(); i-- > 0;)
      for (LoopId l : op(c_.vertices[i]).loops) {
        const int at = static_cast<int>(l.index());
        if (c_.rows.has(l) && at != image_.along && at != image_.down &&
            std::ranges::find(all, at) == all.end())
          all.push_back(at);
      }
    return all;
  }

  /// What a block's windows cover, and what all points multiply it by.
  std::vector<Node> loads() const {
    std::vector<Node> nodes;
    std::vector<TensorId> known;
    for (int v : c_.vertices) {
      const LoopSet reduced = g_.vertex(v).reduced;
      if (reduced.empty()) continue;
      for (const Access& a : op(v).inputs) {
        const LoopSet own = loops_of(a);
        const bool image = own.has(image_.along) || (image_.down >= 0 && own.has(image_.down));
        std::int64_t elements = 1;
        for (LoopId l : op(v).loops)
          if (reduced.has(l) && own.has(l)) elements *= extent(static_cast<int>(l.index()));
        if (is_gather(a) || (own & reduced).empty() || (!image && elements > kMostShared) ||
            std::ranges::find(known, a.tensor) != known.end())
          continue;
        known.push_back(a.tensor);
        nodes.push_back(load(w_.tensor(a.tensor).name));
      }
    }
    return nodes;
  }

  std::vector<Node> computes() const {
    std::vector<Node> nodes;
    for (int v : c_.vertices) {
      std::vector<Cut> taps;
      for (LoopId l : op(v).loops)
        if (g_.vertex(v).reduced.has(l)) taps.push_back({static_cast<int>(l.index())});
      // Taps along a row are the innermost loop.
      std::ranges::stable_partition(taps, [&](const Cut& t) { return !along_row(v, t.loop); });
      nodes.push_back(nest(taps, compute(op(v).name)));
    }
    return nodes;
  }
  bool along_row(int v, int tap) const {
    return std::ranges::any_of(op(v).inputs, [&](const Access& a) {
      return !a.index.empty() && loops_of(a.index.back()).has(image_.along) &&
             loops_of(a.index.back()).has(tap);
    });
  }

  const Graph& g_;
  const Workload& w_;
  const Stitched& s_;
  const Component& c_;
  const WindowLoops& image_;
};

/// The row's loop of an index that goes along a window; -1: it is none.
int image_loop(const Affine& index, const Component& c, LoopSet reduced) {
  int found = -1;
  bool tap = false;
  for (const Term& t : index.terms) {
    tap = tap || reduced.has(t.loop);
    if (!c.rows.has(t.loop)) continue;
    if (found >= 0 || t.coefficient <= 0) return -1;
    found = static_cast<int>(t.loop.index());
  }
  return tap ? found : -1;
}

}  // namespace

std::optional<WindowLoops> window_loops(const Graph& g, const Component& c) {
  const Workload& w = g.workload();
  if (!c.partial.empty() || c.along >= 0) return std::nullopt;
  const auto made_here = [&](TensorId t) {
    const OpId producer = w.producer(t);
    return producer.valid() &&
           std::ranges::any_of(c.vertices, [&](int u) { return g.vertex(u).op == producer; });
  };
  std::optional<WindowLoops> found;
  for (int v : c.vertices) {
    const Vertex& x = g.vertex(v);
    if ((x.loops & ~c.rows) != x.reduced) return std::nullopt;
    if (x.reduced.empty()) continue;
    std::optional<WindowLoops> own;
    for (const Access& a : w.op(x.op).inputs) {
      if (made_here(a.tensor) || is_gather(a)) return std::nullopt;
      const int along = a.index.empty() ? -1 : image_loop(a.index.back(), c, x.reduced);
      if (along < 0) continue;
      if (own) return std::nullopt;
      own = {.along = along};
      for (std::size_t d = a.index.size() - 1; d-- > 0 && own->down < 0;)
        own->down = image_loop(a.index[d], c, x.reduced);
    }
    if (!own || own->down == own->along) return std::nullopt;
    if (found && (found->along != own->along || found->down != own->down)) return std::nullopt;
    found = own;
  }
  return found;
}

void each_window_tile(const Graph& g, const WindowLoops& loops, Stitched& s,
                      const std::function<void(Stitched&)>& f) {
  const std::int64_t width = g.extent(loops.along);
  const std::int64_t height = loops.down < 0 ? 1 : g.extent(loops.down);
  for (std::int64_t wide : {1, 2, 4}) {
    if (width % wide != 0) continue;
    for (std::int64_t tall : {1, 2, 4, 7, 8, 14}) {
      if (tall > height || tall * wide > kMostPoints || (tall * wide < 4 && height > 4)) continue;
      // No more than an eighth of the rows are computed for nothing.
      if (8 * tall * ceil_div(height, tall) > 9 * height) continue;
      s.window_along = wide, s.window_down = tall;
      f(s);
    }
  }
  s.window_along = s.window_down = 0;
}

Result<BoundTree> window_tree(const Graph& g, const Stitched& s, std::int64_t threads) {
  const auto image = window_loops(g, s.component);
  if (!image) return Reason{"it has no windows"};
  if (threads > kMostWindowThreads)
    return Reason{"its blocks would be larger than its images need"};
  return WindowTreeWriter(g, s, *image).write(threads);
}

}  // namespace tilewright::stitching
