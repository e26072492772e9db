#include "models/cached/nest.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tilewright::cached {

void Path::copy(const Path& from, std::size_t size) {
  if (frames_.size() < size) frames_.resize(size);
  for (std::size_t i = 0; i < size; ++i) frames_[i] = from.frames_[i];
  size_ = size;
  tiles = from.tiles;
  unknown = from.unknown;
}

Frame& Path::push() {
  if (size_ == frames_.size()) frames_.emplace_back();
  return frames_[size_++];
}

Box Hull::box(const Ranges& r, Ranges& scratch) const {
  const Ranges* in = &r;
  if (!ahead.empty()) {
    // No inference of those ahead has some ahead of its own.
    Ranges none;
    scratch = r;
    for (const Narrowing& n : ahead) n.apply(scratch, none);
    in = &scratch;
  }
  if (reaches.size() == 1) {
    const Box touched = reaches[0].box(*in);
    return touched.empty() ? Box(1) : touched;
  }
  Box box;
  bool first = true;
  for (const Reach& reach : reaches) {
    const Box touched = reach.box(*in);
    if (touched.empty()) continue;
    box = first ? touched : hull(box, touched);
    first = false;
  }
  return first ? Box(1) : box;
}

void Narrowing::apply(Ranges& r, Ranges& scratch) const {
  const Box box = need.box(r, scratch);
  const bool nothing = box.empty();
  for (std::size_t d = 0; d < ranges.size(); ++d) {
    if (ranges[d] < 0) continue;
    Interval& range = r[static_cast<std::size_t>(ranges[d])];
    const Interval needed = nothing ? Interval{} : box[static_cast<int>(d)];
    range = merge ? hull(range, needed) : needed;
  }
}

Nest::Nest(const Schedule& s, AddressMap map) : s_(s), map_(std::move(map)) {
  nodes_.push_back({.kind = NodeKind::sequence});
  for (const ScheduledKernel& k : s.kernels) whole_.push_back(whole_ranges(s, k));
  for (std::size_t k = 0; k < s.kernels.size(); ++k) add_kernel(static_cast<int>(k));
  for (std::size_t n = 1; n < nodes_.size(); ++n)
    if (nodes_[n].id.valid() && nodes_[n].kind != NodeKind::compute) add_body(nodes_[n]);
  for (std::size_t a = 0; a < arrays_.size(); ++a)
    if (arrays_[a].packed) tiles_ = a + 1;
  int deepest = 0;
  for (std::size_t n = nodes_.size(); n-- > 1;) {
    for (const Use& u : nodes_[n].uses)
      if (u.write) nodes_[n].written |= bit_of(u.array);
    nodes_[static_cast<std::size_t>(nodes_[n].parent)].arrays |= nodes_[n].arrays;
    nodes_[static_cast<std::size_t>(nodes_[n].parent)].written |= nodes_[n].written;
    deepest = std::max(deepest, nodes_[n].depth);
  }
  scratch_.resize(static_cast<std::size_t>(deepest) + 1);
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].kind != NodeKind::compute) continue;
    std::vector<int>& way = nodes_[n].way;
    for (int at = static_cast<int>(n); at >= 0; at = node(at).parent) way.push_back(at);
    std::ranges::reverse(way);
  }
  find_strides();
  size_tiles();
  lay_out();
  fuse();
}

int Nest::array_of(int kernel, BufferId b, TensorId t) {
  const BufferId packed = map_.array_of(kernel, b);
  const Key key{packed.valid() ? kernel : -1, packed, packed.valid() ? TensorId() : t};
  for (std::size_t a = 0; a < keys_.size(); ++a)
    if (keys_[a].kernel == key.kernel && keys_[a].buffer == key.buffer &&
        (packed.valid() || keys_[a].tensor == t))
      return static_cast<int>(a);
  keys_.push_back(key);
  const Tensor& tensor = s_.workload->tensor(t);
  arrays_.push_back({.tensor = t,
                     .rank = static_cast<int>(tensor.shape.size()),
                     .element = size_of(tensor.dtype),
                     .packed = packed.valid()});
  return static_cast<int>(arrays_.size()) - 1;
}

int Nest::add_node(int parent, int kernel, NodeId id) {
  const int at = static_cast<int>(nodes_.size());
  nodes_.push_back({.kernel = kernel, .id = id, .parent = parent, .depth = node(parent).depth + 1});
  nodes_[static_cast<std::size_t>(parent)].children.push_back(at);
  return at;
}

void Nest::add_kernel(int kernel) {
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(kernel)];
  std::vector<int> at(k.nodes.size(), -1);
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& n = k.nodes[i];
    if (n.kind == NodeKind::load || n.kind == NodeKind::store || n.kind == NodeKind::sync) continue;
    at[i] = add_node(n.parent.valid() ? at[n.parent.index()] : 0, kernel, NodeId(i));
    NestNode& added = nodes_.back();
    added.kind = n.kind == NodeKind::pack ? NodeKind::sequence : n.kind;
    if (i == 0)
      for (const TensorId t : k.zeroed) {
        const int zero = add_node(at[0], kernel, NodeId());
        const int array = array_of(kernel, BufferId(), t);
        nodes_[static_cast<std::size_t>(zero)].kind = NodeKind::compute;
        Use whole{.array = array, .write = true};
        for (const std::int64_t extent : s_.workload->tensor(t).shape)
          whole.reach.index.push_back({.terms = {}, .offset = 0, .extent = extent, .whole = true});
        nodes_[static_cast<std::size_t>(zero)].uses = {whole};
        nodes_[static_cast<std::size_t>(zero)].arrays = bit_of(array);
      }
    if (n.kind == NodeKind::compute) add_uses(nodes_[static_cast<std::size_t>(at[i])]);
  }
  for (NestNode& n : nodes_)
    for (Use& u : n.uses)
      if (n.kernel == kernel && u.tile.valid()) u.fixed = at[k.buffer(u.tile).fixed_at.index()];
}

void Nest::add_uses(NestNode& n) {
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(n.kernel)];
  const ScheduleNode& compute = k.node(n.id);
  const Operator& op = s_.workload->op(compute.op);
  const auto add = [&](BufferId b, TensorId t, const Access& access, bool write) {
    const int array = array_of(n.kernel, b, t);
    Use use{.array = array,
            .write = write,
            .reach = reach_of(k, compute.op, access),
            .tile = map_.array_of(n.kernel, b)};
    n.uses.push_back(std::move(use));
    n.arrays |= bit_of(array);
  };
  for (const InputUse& use : compute.reads)
    for (const int i : use.inputs)
      add(use.buffer, use.tensor, op.inputs[static_cast<std::size_t>(i)], false);
  for (const OutputUse& use : compute.writes)
    add(use.buffer, use.tensor, op.outputs[static_cast<std::size_t>(use.output)].target, true);
}

Reach Nest::reach_of(const ScheduledKernel& k, OpId op, const Access& access) const {
  Reach reach;
  const Tensor& tensor = s_.workload->tensor(access.tensor);
  for (std::size_t d = 0; d < access.index.size(); ++d) {
    Reach::Dimension& dimension = reach.index.emplace_back();
    dimension.offset = access.index[d].offset;
    dimension.extent = tensor.shape[d];
    for (const Term& t : access.index[d].terms)
      dimension.terms.push_back(
          {.range = k.range_base[op.index()] +
                    static_cast<std::size_t>(s_.workload->local_index(op, t.loop)),
           .coefficient = t.coefficient});
    if (dimension.terms.size() == 1 && dimension.terms[0].coefficient == 1)
      dimension.plain = static_cast<int>(dimension.terms[0].range);
  }
  return reach;
}

Narrowing Nest::narrowing_of(const ScheduledKernel& k, const Inference& i) const {
  Narrowing n{.merge = i.merge};
  for (const ReadRef& r : i.reads)
    n.need.reaches.push_back(
        reach_of(k, r.op, s_.workload->op(r.op).inputs[static_cast<std::size_t>(r.input)]));
  for (const Inference& ahead : i.lookahead) n.need.ahead.push_back(narrowing_of(k, ahead));
  const Operator& producer = s_.workload->op(i.producer);
  for (const Affine& index : producer.outputs[static_cast<std::size_t>(i.output)].target.index) {
    const auto loop = index.plain_loop();
    n.ranges.push_back(loop ? static_cast<std::int64_t>(k.range_base[i.producer.index()]) +
                                  s_.workload->local_index(i.producer, *loop)
                            : -1);
  }
  return n;
}

/// What happens on entering a body.
void Nest::add_body(NestNode& n) {
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(n.kernel)];
  const ScheduleNode& body = k.node(n.id);
  for (const Inference& i : body.infer) n.inferences.push_back(narrowing_of(k, i));
  for (const BufferId b : body.fixes)
    for (std::size_t a = 0; a < arrays_.size(); ++a) {
      if (!arrays_[a].packed || keys_[a].kernel != n.kernel || keys_[a].buffer != b) continue;
      const Buffer& buffer = k.buffer(b);
      Hull tile;
      for (const ReadRef& r : buffer.reads)
        tile.reaches.push_back(
            reach_of(k, r.op, s_.workload->op(r.op).inputs[static_cast<std::size_t>(r.input)]));
      if (buffer.reads.empty())
        for (const auto& [op, output] : buffer.writes)
          tile.reaches.push_back(reach_of(
              k, op, s_.workload->op(op).outputs[static_cast<std::size_t>(output)].target));
      for (const Inference& i : buffer.lookahead) tile.ahead.push_back(narrowing_of(k, i));
      n.tiles.emplace_back(static_cast<int>(a), std::move(tile));
      // Its users find it there.
      for (NestNode& user : nodes_)
        for (Use& u : user.uses)
          if (u.array == static_cast<int>(a)) u.hull = static_cast<int>(n.tiles.size()) - 1;
    }
}

/// Of indices with a coefficient of more than one, in which tiles their loop is cut: a compute
/// touches a tile as one box, and leaves out what is between one tile's box and the next.
void Nest::find_strides() {
  for (NestNode& n : nodes_)
    for (Use& u : n.uses)
      for (Reach::Dimension& d : u.reach.index) {
        find_stride(n, d);
        u.strided = u.strided || d.tile > 0;
      }
}

namespace {

/// How an index follows its range with the largest coefficient; none where some are negative.
std::optional<Reach::Dimension::Link> link_of(const Reach::Dimension& d, std::size_t& range) {
  const auto most = std::ranges::max_element(d.terms, {}, &Reach::Term::coefficient);
  if (d.whole || d.terms.empty()) return std::nullopt;
  Reach::Dimension::Link link{.coefficient = most->coefficient, .offset = d.offset};
  range = most->range;
  for (const Reach::Term& t : d.terms) {
    if (t.coefficient <= 0) return std::nullopt;
    if (t.range != range) link.others.push_back(t);
  }
  return link;
}

}  // namespace

void Nest::find_stride(const NestNode& n, Reach::Dimension& d) const {
  std::size_t range = 0;
  auto link = link_of(d, range);
  if (!link) return;
  std::int64_t by = link->coefficient;
  std::vector<Reach::Dimension::Link> links{*link};
  std::vector<std::size_t> cut;  // ranges that are cut further in
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(std::max(n.kernel, 0))];
  for (int at = n.parent; at > 0; at = node(at).parent) {
    // What is inferred is cut as that is which it is inferred from.
    const auto& inferences = node(at).inferences;
    for (auto i = inferences.rbegin(); i != inferences.rend(); ++i) {
      const auto of = std::ranges::find(i->ranges, static_cast<std::int64_t>(range));
      if (of == i->ranges.end()) continue;
      if (i->merge || i->need.reaches.size() != 1 || !i->need.ahead.empty()) return;
      const Reach& need = i->need.reaches[0];
      link = link_of(need.index[static_cast<std::size_t>(of - i->ranges.begin())], range);
      if (!link) return;
      for (const Reach::Term& t : link->others)
        if (std::ranges::find(cut, t.range) != cut.end()) return;
      by *= link->coefficient;
      links.push_back(*link);
    }
    const ScheduleNode& body = k.node(node(at).id);
    for (const OpLoop& c : body.cuts) {
      cut.push_back(k.range_base[c.op.index()] + static_cast<std::size_t>(c.local));
      if (cut.back() == range) d.tile = by > 1 ? body.step : 0;
    }
    if (d.tile == 0) continue;
    std::ranges::reverse(links);
    d.links = std::move(links);
    d.cut = range;
    return;
  }
}

/// The largest tile of each packed array, as the first two iterations of all loops have it.
void Nest::size_tiles() {
  for (std::size_t a = 0; a < arrays_.size(); ++a) {
    Array& array = arrays_[a];
    array.extent.fill(1);
    if (!array.packed)
      std::ranges::copy(s_.workload->tensor(array.tensor).shape, array.extent.begin());
  }
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    if (nodes_[n].kind == NodeKind::compute) continue;
    const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(nodes_[n].kernel)];
    if (k.node(nodes_[n].id).fixes.empty()) continue;
    std::vector<int> way;
    for (int at = static_cast<int>(n); at != 0; at = node(at).parent) way.push_back(at);
    for (std::int64_t i = 0; i < 2; ++i) {
      Path path;
      begin(path);
      for (std::size_t w = way.size(); w-- > 0;) {
        const bool loop = node(way[w]).kind == NodeKind::loop;
        const std::int64_t count = loop ? trips_of(way[w], path.back()) : 1;
        enter(path, way[w], std::min(i, count - 1));
      }
      for (const auto& [a, hull] : nodes_[n].tiles) {
        const Box tile = hull.box(path.back().ranges, ahead_);
        for (int d = 0; d < tile.rank(); ++d) {
          Array& array = arrays_[static_cast<std::size_t>(a)];
          std::int64_t& most = array.extent[static_cast<std::size_t>(d)];
          most = std::max(most, tile[d].size());
        }
      }
    }
  }
}

void Nest::lay_out() {
  for (std::size_t a = 0; a < arrays_.size(); ++a) {
    Array& array = arrays_[a];
    if (!array.packed) array.base = map_.base(array.tensor);
    for (const AddressMap::Region& r : map_.regions())
      if (array.packed && r.kernel == keys_[a].kernel && r.buffer == keys_[a].buffer)
        array.base = r.base;
    array.block = array.extent;
    if (!array.packed && map_.tiled(array.tensor))
      for (int d = 0; d < array.rank; ++d) {
        const auto i = static_cast<std::size_t>(d);
        array.block[i] = std::min(map_.block(array.tensor)[d].size(), array.extent[i]);
      }
    array.bytes = array.element;
    for (int d = 0; d < array.rank; ++d) array.bytes *= array.extent[static_cast<std::size_t>(d)];
    array.list_sources();
  }
}

/// Takes coordinates together with the one outside them where every use has them whole, or where
/// rows are shorter than a line.
void Nest::fuse() {
  constexpr std::int64_t kLine = 64;
  // By array: dimensions, and places within blocks, that every use has whole.
  struct Whole {
    std::array<bool, kMaxRank> all, within;
    std::array<std::int64_t, kMaxRank> step;  ///< from one tile to the next, where some is left out
  };
  std::vector<Whole> whole(arrays_.size());
  /// Takes what a use does not touch whole off; false where it touches nothing.
  const auto narrow = [&](const Use& u, const Ranges& ranges, Whole& w) {
    const Box box = u.reach.box(ranges);
    const Array& a = array(u.array);
    if (box.empty()) return false;
    for (int d = 0; d < box.rank(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      const bool blocks = a.block[i] < a.extent[i];
      const Reach::Stride stride = u.strided ? u.reach.stride(i, ranges) : Reach::Stride{};
      if (stride.step > stride.width) w.step[i] = std::max(w.step[i], stride.step);
      if (box[d].size() < a.extent[i] || stride.step > stride.width) {
        w.all[i] = false;
        if (!blocks) w.within[i] = false;
      }
      if (blocks && (box[d].lo % a.block[i] != 0 ||
                     (box[d].hi % a.block[i] != 0 && box[d].hi != a.extent[i])))
        w.within[i] = false;
    }
    return true;
  };
  for (Whole& w : whole) w.all.fill(true), w.within.fill(true), w.step.fill(1);
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    std::vector<int> computes;  // in this body
    std::ranges::copy_if(nodes_[n].children, std::back_inserter(computes), [&](int c) {
      return node(c).kind == NodeKind::compute && node(c).id.valid();
    });
    if (computes.empty()) continue;
    std::vector<int> way;
    for (int at = static_cast<int>(n); at != 0; at = node(at).parent) way.push_back(at);
    // The first iterations of all loops, the second, one further on, the last; and these mixed, as
    // at a tensor's edge iterations may touch nothing.
    std::vector<std::vector<bool>> seen;
    for (const int c : computes) seen.emplace_back(node(c).uses.size(), false);
    for (std::size_t which = 0; which < 8; ++which) {
      Path path;
      begin(path);
      for (std::size_t w = way.size(); w-- > 0;) {
        const std::int64_t last =
            node(way[w]).kind == NodeKind::loop ? trips_of(way[w], path.back()) - 1 : 0;
        const std::array at{std::int64_t{0}, std::min<std::int64_t>(1, last), (last + 1) / 2, last};
        const std::size_t of = which < 4 ? which : (which + w + 1) % 4;
        enter(path, way[w], std::max<std::int64_t>(at[of], 0));
      }
      for (std::size_t c = 0; c < computes.size(); ++c) {
        enter(path, computes[c], 0);
        for (std::size_t i = 0; i < seen[c].size(); ++i) {
          const Use& u = node(computes[c]).uses[i];
          if (narrow(u, path.back().ranges, whole[static_cast<std::size_t>(u.array)]))
            seen[c][i] = true;
        }
        path.cut(path.size() - 1);
      }
    }
    for (std::size_t c = 0; c < computes.size(); ++c)
      for (std::size_t i = 0; i < seen[c].size(); ++i)
        if (Whole& w = whole[static_cast<std::size_t>(node(computes[c]).uses[i].array)];
            !seen[c][i])
          w.all.fill(false), w.within.fill(false);
  }
  for (std::size_t n = 0; n < arrays_.size(); ++n) {
    Array& array = arrays_[n];
    const Whole& w = whole[n];
    const auto is_whole = [&](int j) {
      const Array::Source& s = array.sources[static_cast<std::size_t>(j)];
      return s.within ? w.within[static_cast<std::size_t>(s.dimension)]
                      : w.all[static_cast<std::size_t>(s.dimension)];
    };
    int first = array.count - 1;
    bool all = is_whole(first);
    while (first > 0) {
      array.measure(std::min(first + 1, kMaxRank));
      const std::int64_t pitch = array.parts[0].pitch[static_cast<std::size_t>(first - 1)];
      const auto d =
          static_cast<std::size_t>(array.sources[static_cast<std::size_t>(first - 1)].dimension);
      if (!all && first < kMaxRank && (pitch > kLine || pitch * w.step[d] > kLine)) break;
      all = is_whole(--first) && all;
    }
    array.measure(first + 1);
  }
}

void Nest::begin(Path& path) const {
  path.cut(0);
  path.push() = {};
  path.tiles.resize(tiles_);
  path.unknown.assign(tiles_, 1);
}

void Nest::enter_body(const NestNode& n, Ranges& r, Path* path) const {
  for (const Narrowing& i : n.inferences) i.apply(r, ahead_);
  if (path == nullptr) return;
  for (const auto& [array, tile] : n.tiles) path->unknown[static_cast<std::size_t>(array)] = 1;
}

void Nest::cut_to(const NestNode& n, Interval iterations, const Ranges& around, Ranges& r) const {
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(n.kernel)];
  const ScheduleNode& loop = k.node(n.id);
  for (const OpLoop& c : loop.cuts) {
    const std::size_t slot = k.range_base[c.op.index()] + static_cast<std::size_t>(c.local);
    const Interval range = around[slot];
    r[slot] = {range.lo + iterations.lo * loop.step,
               std::min(range.lo + iterations.hi * loop.step, range.hi)};
  }
}

void Nest::enter(Path& path, int child, std::int64_t i) const {
  const NestNode& n = node(child);
  Frame& f = path.push();
  const Frame& around = path.at(path.size() - 2);
  f.node = child;
  f.iteration = i;
  if (n.parent == 0)
    f.ranges = whole_[static_cast<std::size_t>(n.kernel)];
  else
    f.ranges = around.ranges;
  if (!n.id.valid() || n.kind == NodeKind::compute) return;
  if (n.kind == NodeKind::loop)
    cut(s_.kernels[static_cast<std::size_t>(n.kernel)], n.id, i, around.ranges, f.ranges);
  enter_body(n, f.ranges, &path);
}

void Nest::move_on(Path& path, std::int64_t i) const {
  Frame& f = path.back();
  const NestNode& n = node(f.node);
  const Frame& around = path.at(path.size() - 2);
  f.iteration = i;
  // Else what is inferred has changed other ranges than those that the loop cuts.
  if (!n.inferences.empty()) f.ranges = around.ranges;
  cut(s_.kernels[static_cast<std::size_t>(n.kernel)], n.id, i, around.ranges, f.ranges);
  enter_body(n, f.ranges, &path);
}

bool Nest::idle(const NestNode& compute, const Ranges& r) const {
  if (!compute.id.valid()) return false;
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(compute.kernel)];
  const auto own = ranges_of(s_, k, r, k.node(compute.id).op);
  return std::ranges::any_of(own, [](const Interval& i) { return i.empty(); });
}

std::int64_t Nest::trips_of(int loop, const Frame& around) const {
  const NestNode& n = node(loop);
  return trips(s_.kernels[static_cast<std::size_t>(n.kernel)], n.id, around.ranges);
}

}  // namespace tilewright::cached
