#include "models/stitching/window_tiles.h"

#include <bit>

#include "models/stitching/passes.h"

namespace tilewright::stitching {
namespace {

constexpr std::int64_t kMostPoints = 32;          // of a thread
constexpr std::int64_t kFewLanes = 16;            // along channels that lie side by side, at least
constexpr std::int64_t kMostWindowThreads = 256;  // of a block
constexpr std::int64_t kMostShared = 4096;        // elements of an operand that a block keeps

std::int64_t power_of_two(std::int64_t x) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(x)));
}

class WindowTreeWriter {
 public:
  WindowTreeWriter(const Graph& g, const Stitched& s, const WindowLoops& image)
      : g_(g), w_(g.workload()), s_(s), c_(s.component), image_(image) {}

  /// Of channels side by side: lanes are channels, warps lie along and down the image.
  Result<BoundTree> write_beside(std::int64_t threads) {
    const std::int64_t wide = s_.window_along, tall = s_.window_down, each = s_.window_beside;
    const std::int64_t all = ceil_div(extent(image_.beside), each),
                       of_group = image_.within < 0 ? 1 : power_of_two(extent(image_.within));
    if (of_group > kWarp) return Reason{"its groups have more channels than a warp has lanes"};
    const std::int64_t most = std::min(kWarp / of_group, all), few = kFewLanes / of_group;
    std::int64_t of_channels = most;
    while (of_channels > std::max<std::int64_t>(1, few) && all % of_channels != 0) --of_channels;
    if (all % of_channels != 0) of_channels = most;
    const std::int64_t lanes_along = kWarp / of_group / power_of_two(of_channels),
                       warps = threads / kWarp;
    const std::int64_t across = ceil_div(extent(image_.along), wide * lanes_along),
                       rows = image_.down < 0 ? 1 : ceil_div(extent(image_.down), tall);
    std::int64_t warps_down = 1;
    while (warps_down * warps_down < warps && 2 * warps_down <= power_of_two(rows)) warps_down *= 2;
    const std::int64_t warps_along = warps / warps_down;
    if (warps_along > power_of_two(across)) return Reason{"its images leave warps without a point"};
    std::vector<Cut> around, within;
    for (int l : rows_around()) around.push_back({l, 1, Binding::grid});
    if (image_.down >= 0) cut(around, image_.down, tall * warps_down, Binding::grid);
    cut(around, image_.along, wide * lanes_along * warps_along, Binding::grid);
    cut(around, image_.beside, of_channels * each, Binding::grid);
    if (warps_down > 1) within.push_back({image_.down, tall, Binding::warp});
    if (warps_along > 1) within.push_back({image_.along, wide * lanes_along, Binding::warp});
    if (lanes_along > 1) within.push_back({image_.along, wide, Binding::lane});
    within.push_back({image_.beside, each, Binding::lane});
    if (image_.within >= 0) within.push_back({image_.within, 1, Binding::lane});
    std::vector<Node> nodes = loads();
    nodes.push_back(nest(within, sequence(computes())));
    return BoundTree{.tree = nest(around, sequence(std::move(nodes))), .kept = wide * tall * each};
  }

  Result<BoundTree> write(std::int64_t threads) {
    if (image_.beside >= 0) return write_beside(threads);
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
    if (has_several()) cut(around, image_.within, s_.window_beside, Binding::grid);
    if (image_.down >= 0) cut(around, image_.down, tall * lanes_down * warps_down, Binding::grid);
    cut(around, image_.along, wide * across, Binding::grid);
    if (more_warps > 1) around.push_back({further, more_lanes, Binding::warp});
    if (warps_down > 1) within.push_back({image_.down, tall * lanes_down, Binding::warp});
    if (more_lanes > 1) within.push_back({further, 1, Binding::lane});
    if (lanes_down > 1) within.push_back({image_.down, tall, Binding::lane});
    within.push_back({image_.along, wide, Binding::lane});
    if (has_several()) within.push_back({image_.within, s_.window_beside, Binding::lane});
    std::vector<Node> nodes = loads();
    nodes.push_back(nest(within, sequence(computes())));
    return BoundTree{.tree = nest(around, sequence(std::move(nodes))),
                     .kept = wide * tall * s_.window_beside};
  }

 private:
  std::int64_t extent(int l) const { return g_.extent(l); }
  /// Whether a thread has several iterations of the loop that the image has not.
  bool has_several() const {
    return image_.beside < 0 && image_.within >= 0 && s_.window_beside > 1;
  }
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
        if (c_.rows.has(l) && at != image_.along && at != image_.down && at != image_.beside &&
            (at != image_.within || (image_.beside < 0 && !has_several())) &&
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

/// The row's loop that an index is, and nothing else; -1: none.
int plain_row(const Affine& index, const Component& c) {
  const auto loop = index.plain_loop();
  return loop && c.rows.has(*loop) ? static_cast<int>(loop->index()) : -1;
}

/// The loop of the groups whose channels follow one another in a dimension; -1: there are none.
int joined_groups(const Workload& w, const Affine& index, const Component& c, LoopSet reduced) {
  if (index.terms.size() != 2 || index.offset != 0) return -1;
  const bool first = c.rows.has(index.terms[0].loop);
  const Term &group = index.terms[first ? 0 : 1], &channel = index.terms[first ? 1 : 0];
  const bool are = c.rows.has(group.loop) && reduced.has(channel.loop) &&
                   channel.coefficient == 1 && group.coefficient == w.loop(channel.loop).extent;
  return are ? static_cast<int>(group.loop.index()) : -1;
}

/// The loops of a window's image; none: it is none. `results`: what is made of it.
std::optional<WindowLoops> image_of(const Workload& w, const Access& a, const Access& results,
                                    const Component& c, LoopSet reduced) {
  if (a.index.empty()) return std::nullopt;
  WindowLoops own;
  std::size_t d = a.index.size() - 1;
  const auto depth = a.index[d].plain_loop();
  own.beside = joined_groups(w, a.index[d], c, reduced);
  if (own.beside < 0 && depth && reduced.has(*depth) && d > 0)
    own.beside = plain_row(a.index[--d], c);
  if (own.beside >= 0) {
    const auto last = results.index.empty() ? std::nullopt : results.index.back().plain_loop();
    if (!last || !c.rows.has(*last) || loops_of(a).has(*last)) return std::nullopt;
    own.within = static_cast<int>(last->index());
    while (own.along < 0 && d-- > 0) own.along = image_loop(a.index[d], c, reduced);
    if (own.along < 0) return std::nullopt;
    while (own.down < 0 && d-- > 0) own.down = image_loop(a.index[d], c, reduced);
    return own;
  }
  d = a.index.size() - 1;
  own.along = image_loop(a.index[d], c, reduced);
  if (own.along < 0) {
    own.beside = plain_row(a.index[d], c);
    while (own.beside >= 0 && own.along < 0 && d-- > 0)
      own.along = image_loop(a.index[d], c, reduced);
    if (own.along < 0) return std::nullopt;
  }
  while (own.down < 0 && d-- > 0) own.down = image_loop(a.index[d], c, reduced);
  for (const Affine& i : results.index)
    if (const int row = plain_row(i, c);
        own.beside < 0 && row >= 0 && !loops_of(a).has(*i.plain_loop()))
      own.within = row;
  return own;
}

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
      const auto image = image_of(w, a, w.op(x.op).outputs.front().target, c, x.reduced);
      if (!image) continue;
      if (own) return std::nullopt;
      own = image;
    }
    if (!own || own->down == own->along || own->beside == own->along) return std::nullopt;
    if (found && *found != *own) return std::nullopt;
    found = own;
  }
  return found;
}

void each_window_tile(const Graph& g, const WindowLoops& loops, Stitched& s,
                      const std::function<void(Stitched&)>& f) {
  const std::int64_t width = g.extent(loops.along);
  const std::int64_t height = loops.down < 0 ? 1 : g.extent(loops.down);
  // No more than an eighth of the points are computed for nothing.
  const auto fills = [](std::int64_t part, std::int64_t all) {
    return 8 * part * ceil_div(all, part) <= 9 * all;
  };
  if (loops.beside >= 0) {
    const std::int64_t most = loops.within < 0 ? 2 : 1;
    for (s.window_beside = 1; s.window_beside <= most; ++s.window_beside)
      for (std::int64_t wide : {1, 2, 4, 8})
        for (std::int64_t tall : {1, 2, 4, 7, 8}) {
          const std::int64_t points = tall * wide * s.window_beside;
          if (points > kMostPoints || points < 4 || !fills(tall, height) || !fills(wide, width) ||
              g.extent(loops.beside) % s.window_beside != 0)
            continue;
          s.window_along = wide, s.window_down = tall;
          f(s);
        }
    s.window_along = s.window_down = 0, s.window_beside = 1;
    return;
  }
  for (std::int64_t each : {1, 2, 4, 8}) {
    if (each > 1 && (loops.within < 0 || g.extent(loops.within) % each != 0)) continue;
    for (std::int64_t wide : {1, 2, 4}) {
      if (width % wide != 0) continue;
      for (std::int64_t tall : {1, 2, 4, 7, 8, 14}) {
        const std::int64_t points = tall * wide * each;
        if (tall > height || points > kMostPoints || (points < 4 && height > 4)) continue;
        if (!fills(tall, height)) continue;
        s.window_along = wide, s.window_down = tall, s.window_beside = each;
        f(s);
      }
    }
  }
  s.window_along = s.window_down = 0, s.window_beside = 1;
}

Result<BoundTree> window_tree(const Graph& g, const Stitched& s, std::int64_t threads) {
  const auto image = window_loops(g, s.component);
  if (!image) return Reason{"it has no windows"};
  if (threads > kMostWindowThreads)
    return Reason{"its blocks would be larger than its images need"};
  return WindowTreeWriter(g, s, *image).write(threads);
}

}  // namespace tilewright::stitching
