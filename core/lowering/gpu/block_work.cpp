#include "core/lowering/gpu/block_work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "core/base/format.h"
#include "core/lowering/checks.h"
#include "core/lowering/gpu/block_computes.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

std::int64_t extent(const Interval& i) { return std::max<std::int64_t>(0, i.hi - i.lo); }
std::int64_t volume(const Box& b) {
  std::int64_t n = 1;
  for (int d = 0; d < b.rank(); ++d) n *= extent(b[d]);
  return n;
}
/// What the walk finds of a buffer's tile.
struct FoundTile {
  std::vector<std::int64_t> extents = {};  ///< of the largest, by dimension
  std::optional<Box> now = {};
  std::optional<Box> brought = {};      ///< by the last load of it,
  std::vector<NodeId> brought_in = {};  ///< in these loops' turns
  std::size_t brought_at = 0;           ///< and phase
  bool covered = true, at_once = true;  ///< as blocks' lowering has it
  bool fresh = false;                   ///< it starts afresh wherever it is fixed

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t e : extents) n *= e;
    return n;
  }
};
/// A compute, for one iteration of each loop around it.
struct FoundCompute {
  NodeId node;
  std::size_t phase = 0;
  std::vector<Interval> ranges;  ///< of the operator's loops
  std::vector<std::int64_t> extents;
  double runs = 1, joins = 1, points = 1;
  std::vector<std::pair<BufferId, Box>> tiles;  ///< of what it reads and writes
};

struct FoundLoad {
  NodeId node;
  std::size_t phase = 0, copy = 0;  ///< which of the phase
  BoxAtHome box;
};

/// One block's work, by a walk of the tree in which one iteration of every loop stands for all, the
/// first where nothing else is said: tiles have one size as emitted, the last one is computed
/// whole.
class BlockWalk {
 public:
  /// `at`: which iteration, by node.
  BlockWalk(const Schedule& s, const ScheduledKernel& k, const std::vector<std::int64_t>& at)
      : s_(s), k_(k), w_(*s.workload), at_(at), tiles_(k.buffers.size()) {
    out_.phases.emplace_back();
    body(NodeId(0), whole_ranges(s_, k_), 1);
    finish_phase();
  }

  /// The work, once blocks' lowering has decided by `choices` how it is done.
  Result<BlockWork> lowered(int kernel, const BlockChoices& choices) &&;
  /// Points of all computes, to compare a kernel's blocks.
  double operations() const { return operations(0); }
  /// Whether an operator has nothing to do in these iterations: a part of a concatenation that lies
  /// elsewhere.
  bool idle() const { return idle_; }

 private:
  struct Frame {
    NodeId loop;
    double trips;
  };

  void body(NodeId id, Ranges ranges, double runs) {
    const ScheduleNode& n = k_.node(id);
    for (const Inference& i : n.infer) infer(s_, k_, i, ranges);
    for (std::size_t i = 0; i < k_.buffers.size(); ++i)
      for (const BlockPart& part : k_.buffers[i].parts)
        if (part.body == id) note(BufferId(i), part_of(k_.buffers[i], part, ranges));
    for (BufferId b : n.fixes) {
      const Buffer& buffer = k_.buffer(b);
      if (!buffer.parts.empty()) continue;
      note(b, tile_of(s_, k_, buffer, ranges));
      if (buffer.role == BufferRole::output || buffer.leaves)
        tiles_[b.index()].fresh = begins(w_.producer(buffer.tensor), buffer.atomic);
    }
    for (NodeId c : n.children) visit(c, ranges, runs);
  }

  void visit(NodeId id, const Ranges& ranges, double runs) {
    const ScheduleNode& n = k_.node(id);
    switch (n.kind) {
      case NodeKind::loop:
        return visit_loop(id, ranges, runs);
      case NodeKind::sequence:
        for (NodeId c : n.children) visit(c, ranges, runs);
        return;
      case NodeKind::pack:
        return visit_pack(n, ranges, runs);
      case NodeKind::load:
        return visit_load(id, ranges);
      case NodeKind::compute:
        return visit_compute(id, ranges, runs);
      case NodeKind::store:
        return visit_store(id, runs);
      case NodeKind::sync:
        if (n.scope != Unit::machine) return;
        out_.barriers += static_cast<int>(runs);
        finish_phase();
        out_.phases.emplace_back();
        return;
      case NodeKind::drop:
        return;
    }
  }

  /// Points of computes from the `first` on.
  double operations(std::size_t first) const {
    double all = 0;
    for (std::size_t i = first; i < computes_.size(); ++i) {
      const FoundCompute& c = computes_[i];
      all += c.runs * c.points * static_cast<double>(w_.op(k_.node(c.node).op).inputs.size() + 1);
    }
    return all;
  }

  /// A block has one of the parts: the one with most to do stands for as many blocks as do as much.
  void visit_pack(const ScheduleNode& pack, const Ranges& ranges, double runs) {
    struct Part {
      std::size_t computes, copies, stores;  ///< the first of each
      BlockTotals totals;
      double operations;
    };
    BlockPhase& p = phase();
    const BlockTotals around = p;
    std::vector<Part> parts;
    for (NodeId c : pack.children) {
      static_cast<BlockTotals&>(p) = {};
      Part& part = parts.emplace_back(computes_.size(), p.copies.size(), p.stores.size());
      visit(c, ranges, runs);
      part.totals = p, part.operations = operations(part.computes);
    }
    const auto most = std::ranges::max_element(parts, {}, &Part::operations);
    double blocks = 0;
    for (auto part = parts.begin(); part != parts.end(); ++part) {
      blocks += static_cast<double>(part->totals.blocks) *
                (most->operations > 0 ? part->operations / most->operations : 1);
      if (part == most) continue;
      const bool last = part + 1 == parts.end();
      const auto none = [](auto& all, std::size_t from, std::size_t to) {
        for (; from < to; ++from) all[from].runs = 0;
      };
      none(computes_, part->computes, last ? computes_.size() : part[1].computes);
      none(p.copies, part->copies, last ? p.copies.size() : part[1].copies);
      none(p.stores, part->stores, last ? p.stores.size() : part[1].stores);
    }
    static_cast<BlockTotals&>(p) = most->totals;
    p.blocks = std::max(around.blocks, static_cast<std::int64_t>(std::ceil(blocks)));
    p.turns += around.turns;
    p.stored += around.stored, p.added += around.added;
    p.returns += around.returns, p.returned += around.returned;
    p.stored_in_pieces += around.stored_in_pieces, p.added_in_pieces += around.added_in_pieces;
  }

  void visit_loop(NodeId id, const Ranges& ranges, double runs) {
    const ScheduleNode& n = k_.node(id);
    const std::int64_t count = trips(k_, id, ranges);
    if (count <= 0) return;
    Ranges inner = ranges;
    cut(k_, id, iteration(id, count), ranges, inner);
    const bool grid = n.binding == Binding::grid;
    if (grid) phase().blocks = std::max(phase().blocks, blocks_with(id));
    const double more = grid ? 1 : static_cast<double>(count);
    if (!grid) phase().turns += runs * more;
    path_.push_back({id, static_cast<double>(count)});
    body(id, std::move(inner), runs * more);
    path_.pop_back();
  }

  /// The block's own part of a tile that is kept from one nest of blocks to another.
  Box part_of(const Buffer& b, const BlockPart& part, const Ranges& ranges) const {
    Box box(static_cast<int>(part.loops.size()));
    for (std::size_t d = 0; d < part.loops.size(); ++d)
      box[static_cast<int>(d)] =
          part.loops[d] < 0
              ? Interval{0, w_.tensor(b.tensor).shape[d]}
              : ranges_of(s_, k_, ranges, part.op)[static_cast<std::size_t>(part.loops[d])];
    return box;
  }

  /// Whether every reduction of the operator is at its low end in all turns of the loops around: of
  /// its whole range, or of the block's share.
  bool begins(OpId op, bool atomic) const {
    return std::ranges::none_of(path_, [&](const Frame& f) {
      const ScheduleNode& loop = k_.node(f.loop);
      return f.trips > 1 && !(atomic && loop.binding == Binding::grid) &&
             std::ranges::any_of(loop.cuts, [&](const OpLoop& c) {
               return c.op == op &&
                      w_.is_reduction(op, w_.op(op).loops[static_cast<std::size_t>(c.local)]);
             });
    });
  }

  std::int64_t iteration(NodeId loop, std::int64_t count) const {
    return std::min(at_[loop.index()], count - 1);
  }

  /// Blocks of the loop's nest: with those of the grid loops around it.
  std::int64_t blocks_with(NodeId id) const {
    std::int64_t all = blocks_of(k_, id);
    for (const Frame& f : path_)
      if (k_.node(f.loop).binding == Binding::grid) all *= k_.node(f.loop).max_trips;
    return all;
  }

  /// The ranges at the innermost body of the path where one loop is in another iteration.
  Ranges other(std::size_t changed) const {
    Ranges r = whole_ranges(s_, k_);
    for (const Inference& i : k_.node(NodeId(0)).infer) infer(s_, k_, i, r);
    for (std::size_t d = 0; d < path_.size(); ++d) {
      Ranges inner = r;
      const std::int64_t at = iteration(path_[d].loop, static_cast<std::int64_t>(path_[d].trips));
      cut(k_, path_[d].loop, d != changed ? at : at > 0 ? at - 1 : 1, r, inner);
      for (const Inference& i : k_.node(path_[d].loop).infer) infer(s_, k_, i, inner);
      r = std::move(inner);
    }
    return r;
  }

  /// How often what `box` says changes in one block, by rule 8: each turn of the innermost loop
  /// that changes it and of all around that.
  template <class BoxOf>
  double changes(const BoxOf& box, const Ranges& ranges) const {
    return changes(box, ranges, path_.size());
  }
  /// The same of a box that the outermost `depth` loops decide.
  template <class BoxOf>
  double changes(const BoxOf& box, const Ranges& ranges, std::size_t depth) const {
    const Box first = box(ranges);
    double runs = 1;
    bool counts = false;
    for (std::size_t d = depth; d-- > 0;) {
      if (k_.node(path_[d].loop).binding == Binding::grid || path_[d].trips <= 1) continue;
      counts = counts || first != box(other(d));
      if (counts) runs *= path_[d].trips;
    }
    return runs;
  }

  /// How many such boxes there are in one block.
  template <class BoxOf>
  double boxes(const BoxOf& box, const Ranges& ranges, std::size_t depth) const {
    const Box first = box(ranges);
    double all = 1;
    for (std::size_t d = 0; d < depth; ++d)
      if (k_.node(path_[d].loop).binding != Binding::grid && path_[d].trips > 1 &&
          first != box(other(d)))
        all *= path_[d].trips;
    return all;
  }

  /// How many loops of the path decide which box of its tensor a buffer has: a tile that is fixed
  /// stays for all turns of the loops within the body where it is.
  std::size_t deciding(const Buffer& b) const {
    if (!b.fixed_at.valid()) return path_.size();
    std::size_t depth = path_.size();
    while (depth > 0 && path_[depth - 1].loop != b.fixed_at) --depth;
    return depth;
  }

  void visit_load(NodeId id, const Ranges& ranges) {
    const ScheduleNode& n = k_.node(id);
    const auto of = [&](const Ranges& r) { return load_box(s_, k_, id, r); };
    const Box box = of(ranges);
    note(n.buffer, box);
    needs(n.tensor);
    // What an earlier load has brought in the same turns of all loops is there.
    const auto points = static_cast<double>(volume(box));
    if (!comes(n.buffer, box)) return;
    loads_.push_back({id, phase_now(), phase().copies.size(), at_home(n.tensor, of, box)});
    phase().copies.push_back(
        {.runs = changes(of, ranges),
         .bytes = points * static_cast<double>(size_of(w_.tensor(n.tensor).dtype)),
         .dims = box.rank(),
         .row_dims = row_dims(box),
         .partial = partial(n.tensor, box),
         .buffer = n.buffer.index()});
  }

  /// Whether a load's tile is another than its buffer's last one, which a load in the same turns of
  /// all loops has brought.
  bool comes(BufferId b, const Box& box) {
    std::vector<NodeId> turning;
    for (const Frame& f : path_)
      if (f.trips > 1) turning.push_back(f.loop);
    FoundTile& t = tiles_[b.index()];
    const bool there = t.brought == box && t.brought_in == turning && t.brought_at == phase_now();
    t.brought = box, t.brought_in = std::move(turning), t.brought_at = phase_now();
    return !there;
  }

  /// Dimensions of more than one element, but for the last.
  static int row_dims(const Box& box) {
    int rows = 0;
    for (int d = 0; d + 1 < box.rank(); ++d) rows += extent(box[d]) > 1 ? 1 : 0;
    return rows;
  }
  /// Of all such boxes of the tensor, the part that is smaller.
  double partial(TensorId id, const Box& box) const {
    double whole = 1;
    for (int d = 0; d < box.rank(); ++d) {
      const std::int64_t all = w_.tensor(id).shape[static_cast<std::size_t>(d)];
      if (extent(box[d]) > 0 && all % extent(box[d]) != 0)
        whole *= 1 - 1 / static_cast<double>(ceil_div(all, extent(box[d])));
    }
    return 1 - whole;
  }

  /// Rows of boxes begin where the first one's do, and as far from there as turns of the loops
  /// around move them; the last box may be smaller.
  template <class BoxOf>
  BoxAtHome at_home(TensorId id, const BoxOf& of, const Box& box) const {
    BoxAtHome at{.begins = 0};
    for (int d = 0; d < box.rank(); ++d) {
      const std::int64_t size = extent(box[d]),
                         all = w_.tensor(id).shape[static_cast<std::size_t>(d)];
      at.sizes.push_back(size > 0 && all % size == 0 ? size : 0);
    }
    if (box.rank() == 0) return at;
    const int last = box.rank() - 1;
    at.begins = box[last].lo;
    for (std::size_t d = 0; d < path_.size(); ++d)
      if (path_[d].trips > 1) at.begins = std::gcd(at.begins, of(other(d))[last].lo - box[last].lo);
    return at;
  }

  void visit_store(NodeId id, double runs) {
    const ScheduleNode& n = k_.node(id);
    const double bytes = static_cast<double>(tiles_[n.buffer.index()].elements() *
                                             size_of(w_.tensor(n.tensor).dtype));
    (n.atomic ? phase().added : phase().stored) += runs * bytes;
    if (!rows_aligned(n.tensor)) leaves_in_pieces(n.buffer, runs * bytes, n.atomic);
    stores(n.buffer, runs, n.atomic);
    needs(n.tensor);
  }

  /// Bytes of the sectors that a tile's rows touch over their own: one sector more a row, where the
  /// next row does not go on where it ends.
  double in_sectors(BufferId b, TensorId id) const {
    constexpr double kSector = 32;
    const Tensor& t = w_.tensor(id);
    const std::int64_t columns = tiles_[b.index()].extents.back();
    if (columns >= t.shape.back()) return 1;
    return 1 + kSector / static_cast<double>(columns * size_of(t.dtype));
  }

  void stores(BufferId b, double runs, bool added) {
    const std::vector<std::int64_t>& most = tiles_[b.index()].extents;
    int rows = 0;
    for (std::size_t d = 0; d + 1 < most.size(); ++d) rows += most[d] > 1 ? 1 : 0;
    phase().stores.push_back({.runs = runs,
                              .buffer = b,
                              .dims = static_cast<int>(most.size()),
                              .row_dims = rows,
                              .added = added,
                              .aligned = rows_aligned(k_.buffer(b).tensor)});
    if (!added) return;
    StoreRun& s = phase().stores.back();
    const Tensor& home = w_.tensor(k_.buffer(b).tensor);
    const std::int64_t element = size_of(home.dtype);
    const double parts = runs * static_cast<double>(tiles_[b.index()].elements() * phase().blocks) /
                         static_cast<double>(home.elements().value);
    s.to_word = std::max(1.0, parts) * std::max(1.0, 4.0 / static_cast<double>(element));
    for (const Output& o : w_.op(w_.producer(k_.buffer(b).tensor)).outputs)
      if (o.target.tensor == k_.buffer(b).tensor)
        s.swapped = element == 1 || (o.combine != Combine::sum &&
                                     (o.combine == Combine::product || home.dtype != DType::f32));
  }

  /// Bytes of rows that begin anywhere: stored, they count with the sectors that they touch.
  void leaves_in_pieces(BufferId b, double bytes, bool added) {
    if (added)
      phase().added_in_pieces += bytes;
    else
      phase().stored_in_pieces += bytes * in_sectors(b, k_.buffer(b).tensor);
  }

  bool rows_aligned(TensorId id) const {
    const Tensor& t = w_.tensor(id);
    const std::int64_t size = size_of(t.dtype), together = size == 2 ? 8 : 16;
    return t.shape.size() < 2 || t.shape.back() * size % together == 0;
  }

  void needs(TensorId t) {
    if (needed_.insert(t).second)
      phase().compulsory += static_cast<double>(w_.tensor(t).bytes().value);
  }

  void note(BufferId b, const Box& box) {
    FoundTile& t = tiles_[b.index()];
    t.now = box;
    t.extents.resize(static_cast<std::size_t>(box.rank()), 1);
    for (int d = 0; d < box.rank(); ++d) {
      std::int64_t& most = t.extents[static_cast<std::size_t>(d)];
      most = std::max(most, extent(box[d]));
    }
  }

  void visit_compute(NodeId id, const Ranges& ranges, double runs) {
    const ScheduleNode& n = k_.node(id);
    const auto own = ranges_of(s_, k_, ranges, n.op);
    FoundCompute c{.node = id, .phase = phase_now(), .runs = runs, .joins = runs};
    c.ranges.assign(own.begin(), own.end());
    for (const Interval& i : own)
      c.extents.push_back(extent(i)), c.points *= static_cast<double>(c.extents.back());
    if (c.points == 0) {
      idle_ = true;
      return;
    }
    const Operator& op = w_.op(n.op);
    const bool begun = begins(n.op, n.writes.front().atomic);
    for (const OutputUse& use : n.writes) {
      const auto of = [&](const Ranges& r) { return write_box(s_, k_, n.op, use.output, r); };
      FoundTile& t = tiles_[use.buffer.index()];
      if (!k_.buffer(use.buffer).fixed_at.valid() || !t.now) note(use.buffer, of(ranges));
      t.covered = t.covered && of(ranges) == *t.now;
      t.at_once = t.at_once && begun;
      c.tiles.emplace_back(use.buffer, *t.now);
      // Written where another takes its place, or at the end, without a store node.
      const Buffer& b = k_.buffer(use.buffer);
      if ((b.role != BufferRole::output && !b.leaves) || b.store.valid()) continue;
      const double bytes = static_cast<double>(volume(*t.now) * size_of(w_.tensor(b.tensor).dtype));
      const std::size_t depth = deciding(b);
      const double leaves = changes(of, ranges, depth);
      (b.atomic ? phase().added : phase().stored) += leaves * bytes;
      if (!rows_aligned(b.tensor)) leaves_in_pieces(use.buffer, leaves * bytes, b.atomic);
      stores(use.buffer, leaves, b.atomic);
      needs(b.tensor);
      // A sum that left before it was complete comes back.
      if (b.atomic || w_.reduction_loops(n.op).empty()) continue;
      const double comes_back = leaves - boxes(of, ranges, depth);
      phase().returns += comes_back;
      phase().returned += comes_back * bytes;
    }
    for (const InputUse& use : n.reads)
      if (!use.buffer.valid()) {
        const auto each = gathered_elements(s_, k_, n.op, use.inputs.front(), ranges);
        phase().copies.push_back({.runs = 1,
                                  .bytes = runs * static_cast<double>(each) * 32,
                                  .gathered = true,
                                  .buffer = k_.buffers.size() + use.tensor.index()});
      }
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const BufferId b = buffer_of_input(n, static_cast<int>(i));
      if (!b.valid() || !tiles_[b.index()].now) continue;
      FoundTile& t = tiles_[b.index()];
      // Points outside of the tensor are read as zeros, which registers do not hold.
      if (k_.buffer(b).role != BufferRole::input)
        t.covered = t.covered && !can_leave(w_, op, op.inputs[i]) &&
                    footprint(w_, op, op.inputs[i], own) == *t.now;
      c.tiles.emplace_back(b, *t.now);
    }
    // Loops of the sum within one result.
    for (const Frame& f : path_)
      for (const OpLoop& cut : k_.node(f.loop).cuts)
        if (cut.op == n.op && k_.node(f.loop).binding != Binding::grid &&
            w_.is_reduction(n.op, op.loops[static_cast<std::size_t>(cut.local)]))
          c.joins /= f.trips;
    computes_.push_back(std::move(c));
  }

  /// How the boxes of a product of a compute lie in their tiles.
  BoxesInTiles boxes_of(const FoundCompute& c, const BlockLowering& block, int write) const {
    return [this, &c, &block, write](std::optional<int> input) {
      const ScheduleNode& n = k_.node(c.node);
      const Operator& op = w_.op(n.op);
      const OutputUse& use = n.writes[static_cast<std::size_t>(write)];
      const BufferId b = input ? block.buffer_of_input(n, *input) : use.buffer;
      const Access& a = input ? op.inputs[static_cast<std::size_t>(*input)]
                              : op.outputs[static_cast<std::size_t>(use.output)].target;
      const Box box = footprint(w_, op, a, c.ranges);
      const auto of = std::ranges::find(c.tiles, b, &std::pair<BufferId, Box>::first);
      const Box& tile = of == c.tiles.end() ? box : of->second;
      std::vector<BoxInTile> found;
      for (int d = 0; d < box.rank(); ++d)
        // A part of a tile begins at multiples of its size.
        found.push_back({.tile = extent(tile[d]),
                         .box = extent(box[d]),
                         .covers = box[d] == tile[d],
                         .apart = std::max<std::int64_t>(1, extent(box[d]))});
      return found;
    };
  }

  /// A compute's ranges, as far as their size and the whole loop's tell.
  PointRanges point_ranges(const FoundCompute& c) const {
    const OpId id = k_.node(c.node).op;
    const Operator& op = w_.op(id);
    return {.most = c.extents,
            .divides =
                [this, &op, &c](int l) {
                  const auto at = static_cast<std::size_t>(l);
                  return std::gcd(c.extents[at], w_.loop(op.loops[at]).extent);
                },
            .begins =
                [this, &op, &c](const Access& a, BufferId b, int) {
                  const auto of = std::ranges::find(c.tiles, b, &std::pair<BufferId, Box>::first);
                  if (of == c.tiles.end()) return std::int64_t{1};
                  const Interval box = footprint(op, a.index.back(), c.ranges),
                                 tile = of->second[of->second.rank() - 1];
                  return std::gcd(box.lo - tile.lo, box == tile ? 0 : extent(box));
                }};
  }

  BlockPhase& phase() { return out_.phases.back(); }
  std::size_t phase_now() const { return out_.phases.size() - 1; }
  void finish_phase() { needed_.clear(); }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;
  const std::vector<std::int64_t>& at_;
  BlockWork out_;
  std::vector<FoundTile> tiles_;        ///< by BufferId
  std::vector<FoundCompute> computes_;  ///< as the walk comes to them
  std::vector<FoundLoad> loads_;
  std::vector<Frame> path_;
  std::set<TensorId> needed_;
  bool idle_ = false;
};

Result<BlockWork> BlockWalk::lowered(int kernel, const BlockChoices& choices) && try {
  BlockLowering block(s_, kernel, choices);
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    const BufferId b(i);
    const FoundTile& t = tiles_[i];
    block.note_tile(b, t.extents);
    if (!t.covered) block.note_part(b);
    if (!t.at_once) block.note_added(b);
    if (t.fresh) block.note_fresh(b, "true");
  }
  for (const FoundCompute& c : computes_) {
    const std::vector<BlockProduct> all = block.as_products(c.node, c.extents);
    block.note_compute(
        c.node, c.extents, !all.empty() && std::ranges::all_of(all, [&](const BlockProduct& p) {
          return block.product_fits(c.node, p, c.extents, boxes_of(c, block, p.write));
        }));
  }
  block.choose_forms();
  for (const FoundCompute& c : computes_)
    if (const auto* all = block.products(c.node))
      for (const BlockProduct& p : *all)
        block.product_fits(c.node, p, c.extents, boxes_of(c, block, p.write));
  std::vector<std::optional<PointsRun>> points(computes_.size());
  for (std::size_t i = 0; i < computes_.size(); ++i) {
    const FoundCompute& c = computes_[i];
    const BlockStep::Method method = block.way_of(c.node, c.extents).method;
    if (method != BlockStep::Method::points && method != BlockStep::Method::fragments) continue;
    points[i] = points_run(block, c.node, point_ranges(c), c.points, c.runs,
                           method == BlockStep::Method::fragments);
  }
  block.lay_out();
  for (std::size_t i = 0; i < computes_.size(); ++i) {
    const FoundCompute& c = computes_[i];
    BlockPhase& phase = out_.phases[c.phase];
    if (points[i])
      phase.points.push_back(*std::move(points[i]));
    else if (const auto* all = block.products(c.node))
      for (const BlockProduct& p : *all)
        phase.products.push_back(product_run(block, c.node, p, c.extents, c.runs, c.joins));
    else
      for (const BlockContraction& p : block.contractions(c.node, c.extents))
        phase.products.push_back(contraction_run(block, c.node, p, c.extents, c.runs, c.joins));
  }
  for (BlockPhase& p : out_.phases)
    for (CopyRun& c : p.copies)
      if (!c.gathered) c.stages = block.tile(BufferId(c.buffer)).stages;
  for (const FoundLoad& l : loads_) {
    CopyRun& c = out_.phases[l.phase].copies[l.copy];
    c.way = block.way_of_load(l.node, l.box);
    c.waits = block.tile(BufferId(c.buffer)).form == BlockTile::Form::loaded;
    c.of_piece = static_cast<double>(block.piece_from_home(l.node, l.box));
    c.one_size = (c.is(BlockStep::Way::whole) || c.is(BlockStep::Way::rows)) && c.row_dims <= 1 &&
                 std::ranges::find(l.box.sizes, 0) == l.box.sizes.end();
    const TensorId t = k_.node(l.node).tensor;
    c.sectors = block.rows_begin_at(t, l.box, 32 / size_of(w_.tensor(t).dtype));
  }
  for (BlockPhase& p : out_.phases) {
    const auto elsewhere = [](const auto& run) { return run.runs == 0; };  // in other blocks
    std::erase_if(p.products, elsewhere), std::erase_if(p.points, elsewhere);
    std::erase_if(p.copies, elsewhere), std::erase_if(p.stores, elsewhere);
  }
  out_.sums = block.sums_alive();
  out_.program = std::move(block).take();
  return std::move(out_);
} catch (const Refused& refused) {
  return Reason{formatted("{}: {}", k_.name, refused.text), refused.shortage};
}

/// Whether an operator reads through a window: the first block's is cut off at the tensor's edge.
bool has_windows(const Workload& w, const ScheduledKernel& k) {
  return std::ranges::any_of(k.ops, [&](OpId op) {
    return std::ranges::any_of(w.op(op).inputs, [](const Access& a) {
      return std::ranges::any_of(a.index,
                                 [](const Affine& i) { return i.offset < 0 && !i.terms.empty(); });
    });
  });
}

/// Turns of a loop in which operators may have work that have none in the first: the middle one,
/// the last one, and where a tensor, one of several that are joined, is in the middle. Joined
/// tensors may be joined with others again.
std::set<std::int64_t> busy_turns(const Workload& w, const ScheduledKernel& k,
                                  const ScheduleNode& loop) {
  std::set<std::int64_t> turns = {loop.max_trips / 2, loop.max_trips - 1};
  std::map<LoopId, std::int64_t> ahead = {{loop.loop, 0}};  // of loops that run with this one
  for (std::size_t o = k.ops.size(); o-- > 0;)              // readers first
    for (const Access& a : w.op(k.ops[o]).inputs)
      for (std::size_t d = 0; d < a.index.size() && !is_gather(a); ++d) {
        const Affine& i = a.index[d];
        if (i.terms.size() != 1 || !ahead.contains(i.terms[0].loop)) continue;
        const std::int64_t from = ahead.at(i.terms[0].loop), by = i.terms[0].coefficient;
        const std::int64_t middle = (w.tensor(a.tensor).shape[d] / 2 - i.offset) / by - from;
        turns.insert(std::clamp<std::int64_t>(middle / loop.step, 0, loop.max_trips - 1));
        const OpId maker = w.producer(a.tensor);
        if (by != 1 || !maker.valid() || std::ranges::find(k.ops, maker) == k.ops.end()) continue;
        for (const Output& out : w.op(maker).outputs)
          if (out.target.tensor == a.tensor)
            if (const auto made = out.target.index[d].plain_loop())
              ahead.try_emplace(*made, from + i.offset);
      }
  return turns;
}

}  // namespace

std::int64_t BlockWork::element(BufferId b) const {
  return size_of(program.workload->tensor(program.kernel->buffer(b).tensor).dtype);
}

Result<BlockWork> block_work(const Schedule& s, int kernel, const BlockChoices& choices) {
  const ScheduledKernel& k = s.kernels[static_cast<std::size_t>(kernel)];
  for (const ScheduleNode& n : k.nodes)
    if (n.kind == NodeKind::loop && n.binding != Binding::grid && unit_of(n.binding))
      return Reason{formatted("{}: loop {} is bound to {}", k.name, s.workload->loop(n.loop).name,
                              name_of(n.binding))};
  std::vector<std::int64_t> at(k.nodes.size(), 0);
  auto most = std::make_unique<BlockWalk>(s, k, at);
  const bool idle = most->idle();
  const auto consider = [&] {
    auto other = std::make_unique<BlockWalk>(s, k, at);
    const bool more = other->operations() > most->operations();
    if (more) most = std::move(other);
    return more;
  };
  if (!idle && has_windows(*s.workload, k)) {
    // A block in the middle: tiles are laid out for the largest.
    for (std::size_t n = 0; n < k.nodes.size(); ++n)
      if (k.nodes[n].kind == NodeKind::loop) at[n] = k.nodes[n].max_trips / 2;
    consider();
  }
  // Some blocks do more than the first one: the most that changing one loop after the other finds.
  for (std::size_t n = 0; n < k.nodes.size() && idle; ++n) {
    if (k.nodes[n].kind != NodeKind::loop) continue;
    std::int64_t best = 0;
    for (const std::int64_t trip : busy_turns(*s.workload, k, k.nodes[n])) {
      at[n] = trip;
      if (trip > 0 && consider()) best = trip;
    }
    at[n] = best;
  }
  return std::move(*most).lowered(kernel, choices);
}

}  // namespace tilewright::lowering
