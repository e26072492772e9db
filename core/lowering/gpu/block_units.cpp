// Buffers that units of a block have each for itself (rule 7), tiles at several levels, and what is
// kept of them.
#include <algorithm>

#include "core/lowering/checks.h"
#include "core/lowering/gpu/block_lowering.h"
#include "core/lowering/gpu/matrix_access.h"
#include "core/lowering/symbolic.h"

namespace tilewright::lowering {
namespace {

using Form = BlockTile::Form;

/// Whether iterations of a loop around a compute write the same boxes: a sum's own loop, which
/// indexes none of its results.
bool repeats_boxes(const Workload& w, const ScheduleNode& compute, LoopId loop) {
  const Operator& op = w.op(compute.op);
  if (std::ranges::find(op.loops, loop) == op.loops.end()) return false;
  return std::ranges::none_of(compute.writes, [&](const OutputUse& use) {
    const Access& target = op.outputs[static_cast<std::size_t>(use.output)].target;
    return std::ranges::any_of(target.index, [&](const Affine& index) {
      return std::ranges::any_of(index.terms, [&](const Term& t) { return t.loop == loop; });
    });
  });
}

}  // namespace

BlockLowering::BlockLowering(const Schedule& schedule, int kernel, const BlockChoices& choices)
    : schedule_(schedule),
      machine_(*schedule.machine),
      workload_(*schedule.workload),
      k_(schedule.kernels[static_cast<std::size_t>(kernel)]),
      choices_(choices),
      f64_(workload_.dtype() == DType::f64) {
  // Names that are none have been refused; f64, which none takes, has no products.
  micro_kernel_ = find_micro_kernel(choices_.micro_kernel, workload_.dtype());
  if (micro_kernel_ == nullptr) micro_kernel_ = &micro_kernels().front();
  program_.workload = &workload_;
  program_.kernel = &k_;
  program_.tiles.resize(k_.buffers.size());
  fresh_at_fix_.assign(k_.buffers.size(), "");
  for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
    BlockTile& t = program_.tiles[i];
    const Buffer& b = k_.buffers[i];
    t.buffer = BufferId(i);
    t.most.assign(workload_.tensor(b.tensor).shape.size(), 1);
    t.stride.assign(t.most.size(), 1);
    if (b.role != BufferRole::input) continue;
    t.form = makes(b.tensor) || b.sliding || b.outer.valid() ? Form::loaded : Form::ring;
  }
  place_units();
  choose_views();
  for (BlockTile& t : program_.tiles) {
    if (!choices_.tight || t.form != Form::ring) continue;
    t.form = Form::loaded;
    t.reason = "there is no room to copy it ahead of its use";
    if (!chained(t.buffer)) waits_.insert(t.buffer);
  }
  choose_roles();
}

/// The copying role is there where it has something to do.
void BlockLowering::choose_roles() {
  program_.copy_warps = copies(NodeId(0), false) ? choices_.copy_warps : 0;
}

void BlockLowering::note_tile(BufferId b, std::span<const std::int64_t> most) {
  for (std::size_t d = 0; d < most.size(); ++d) at(b).most[d] = std::max(tile(b).most[d], most[d]);
}

/// Whether what it holds decides what moves or is computed (`exact`'s word: tracked).
bool BlockLowering::keeps(BufferId b) const {
  const Buffer& buf = buffer(b);
  return buf.role != BufferRole::intermediate || buf.leaves || buf.sliding || finished_boxes(b) > 0;
}

/// Loops over units of a block around a place whose iterations have buffers of their own.
std::vector<NodeId> BlockLowering::units_around(BufferId b, NodeId place) const {
  std::vector<NodeId> loops = unit_loops(schedule_, k_, place, buffer(b).level);
  std::erase_if(loops, [&](NodeId l) { return k_.node(l).binding == Binding::grid; });
  return loops;
}

void BlockLowering::place_units() {
  for (std::size_t i = 0; i < program_.tiles.size(); ++i) {
    const BufferId b(i);
    if (!keeps(b)) continue;
    std::vector<NodeId> places;
    if (buffer(b).fixed_at.valid()) places.push_back(buffer(b).fixed_at);
    for (std::size_t n = 0; n < k_.nodes.size(); ++n) {
      const ScheduleNode& node = k_.nodes[n];
      const bool writes =
          node.kind == NodeKind::compute && !buffer(b).fixed_at.valid() &&
          std::ranges::any_of(node.writes, [&](const OutputUse& w) { return w.buffer == b; });
      const bool fills =
          node.kind == NodeKind::load || (node.kind == NodeKind::drop && !node.all_units);
      if (writes || (fills && node.buffer == b)) places.emplace_back(n);
    }
    std::map<std::size_t, std::int64_t> most;
    bool back = places.size() > 1;  // whether a unit comes back to what it held
    for (NodeId place : places) {
      const std::vector<NodeId> units = units_around(b, place);
      std::int64_t n = 1;
      for (NodeId l : units) n *= k_.node(l).max_trips;
      most[units.size()] = std::max(most[units.size()], n);
      program_.tiles[i].own = program_.tiles[i].own || n > 1;
      for (NodeId l = place; l.valid() && !units.empty(); l = k_.node(l).parent)
        back = back || (k_.node(l).kind == NodeKind::loop && k_.node(l).max_trips > 1 &&
                        k_.node(l).binding != Binding::grid && l < units.back() &&
                        std::ranges::find(units, l) == units.end());
    }
    // What stands in no loop over units is another's than what stands in one, of a single turn too.
    program_.tiles[i].own = program_.tiles[i].own || most.size() > 1;
    if (!program_.tiles[i].own) continue;
    if (program_.tiles[i].form == Form::ring) program_.tiles[i].form = Form::loaded;
    if (!back) continue;
    program_.tiles[i].units = 0;
    for (const auto& [depth, n] : most) {
      first_unit_[b][depth] = program_.tiles[i].units;
      program_.tiles[i].units += n;
    }
  }
  check_records();
}

/// Every thread knows what tiles hold and which boxes of them are finished, in its local memory.
void BlockLowering::check_records() const {
  // Of all threads that an H100's multiprocessors hold, these are 17 GB of the device's 80.
  constexpr std::int64_t kRecordBytes = 64 * 1024;
  std::int64_t bytes = 0, most = 0;
  BufferId largest(0);
  for (std::size_t i = 0; i < program_.tiles.size(); ++i) {
    const BufferId b(i);
    if (!keeps(b)) continue;
    const auto box = 8 * static_cast<std::int64_t>(workload_.tensor(buffer(b).tensor).shape.size());
    const std::int64_t finished = finished_boxes(b);
    const std::int64_t one = box + 8 + (finished > 0 ? box * (finished + 1) + 4 : 0);
    const std::int64_t all = std::max<std::int64_t>(1, program_.tiles[i].units) * one;
    if (all > most) most = all, largest = b;
    bytes += all;
  }
  if (bytes > kRecordBytes)
    throw Refused{"each thread would keep " + std::to_string(bytes) +
                  " bytes of records of tiles, most of them of " + tensor_name(largest) +
                  ": its local memory has room for " + std::to_string(kRecordBytes)};
}

/// Whether its tile comes from or goes to another level's, or another level's comes from it.
bool BlockLowering::chained(BufferId b) const {
  return buffer(b).outer.valid() ||
         std::ranges::any_of(k_.buffers, [&](const Buffer& inner) { return inner.outer == b; });
}

int BlockLowering::levels_outside(BufferId b) const {
  int n = 0;
  for (BufferId o = buffer(b).outer; o.valid(); o = buffer(o).outer) ++n;
  return n;
}

std::vector<BufferId> BlockLowering::innermost_first() const {
  std::vector<BufferId> all;
  for (std::size_t i = 0; i < program_.tiles.size(); ++i) all.emplace_back(i);
  std::ranges::stable_sort(all, std::ranges::greater(),
                           [&](BufferId b) { return levels_outside(b); });
  return all;
}

/// Inputs at registers whose outer tile is there, with all that is read of it, wherever they are
/// used: no other tile of the outer buffer is loaded between the load and its uses.
void BlockLowering::choose_views() {
  const auto is_in = [&](NodeId n, NodeId around) {
    for (; n.valid(); n = k_.node(n).parent)
      if (n == around) return true;
    return false;
  };
  for (std::size_t i = 0; i < program_.tiles.size(); ++i) {
    const Buffer& b = k_.buffers[i];
    if (b.role != BufferRole::input || !b.outer.valid() || b.sliding ||
        machine_.level(b.level).kind != LevelKind::registers)
      continue;
    bool there = true;
    for (std::size_t n = 0; n < k_.nodes.size() && there; ++n) {
      if (k_.nodes[n].kind != NodeKind::load || k_.nodes[n].buffer != BufferId(i)) continue;
      const NodeId scope = k_.nodes[n].parent;
      for (std::size_t m = n + 1; m < k_.nodes.size(); ++m)
        there = there && (k_.nodes[m].kind != NodeKind::load || k_.nodes[m].buffer != b.outer ||
                          !is_in(NodeId(m), scope));
    }
    if (there) program_.tiles[i].view = b.outer;
  }
}

/// The buffer in whose tile a compute reads an input; none: a gather.
BufferId BlockLowering::buffer_of_input(const ScheduleNode& compute, int input) const {
  BufferId b = lowering::buffer_of_input(compute, input);
  while (b.valid() && views_outer(b)) b = tile(b).view;
  return b;
}

/// How many boxes !once computes may finish in a buffer before its tile is another; 0: none asks.
/// A box more would be computed again.
std::int64_t BlockLowering::finished_boxes(BufferId b) const {
  constexpr std::int64_t kMost = 1 << 20;  // more than any thread's memory has room for
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::compute || !n.once ||
        std::ranges::none_of(n.writes, [&](const OutputUse& w) { return w.buffer == b; }))
      continue;
    std::int64_t boxes = 1;
    const NodeId scope = buffer(b).fixed_at;
    for (NodeId p = n.parent; scope.valid() && p.valid() && p != scope && boxes <= kMost;
         p = k_.node(p).parent)
      if (k_.node(p).kind == NodeKind::loop && !repeats_boxes(workload_, n, k_.node(p).loop))
        boxes *= k_.node(p).max_trips;
    return boxes;
  }
  return 0;
}

bool BlockLowering::is_written(BufferId b) const {
  const Buffer& buf = buffer(b);
  return buf.role == BufferRole::output || buf.leaves;
}

/// A tile that keeps what the next one shares with it, in two places in turn.
bool BlockLowering::slides(BufferId b) const {
  return buffer(b).sliding && (tile(b).form == Form::computed || tile(b).form == Form::loaded);
}

std::int64_t BlockLowering::first_unit(BufferId b, std::size_t loops) const {
  const auto of = first_unit_.find(b);
  return of == first_unit_.end() ? 0 : of->second.at(loops);
}

bool BlockLowering::rows_begin_at(TensorId id, const BoxAtHome& box, std::int64_t elements) const {
  const Tensor& t = workload_.tensor(id);
  if (t.dtype == DType::i8 || t.shape.empty() || box.begins % elements != 0) return false;
  const std::vector<std::int64_t> stride = strides_of(t);
  for (std::size_t d = 0; d + 1 < t.shape.size(); ++d)
    if (t.shape[d] > 1 && stride[d] % elements != 0) return false;
  return true;
}

/// Whether the box is as large as the tile with its padding, its rows one dimension's.
bool BlockLowering::fills(const BlockTile& t, const BoxAtHome& box) const {
  int rows = 0;
  for (std::size_t d = 0; d < box.sizes.size(); ++d) {
    if (box.sizes[d] != t.most[d]) return false;
    if (d + 1 < box.sizes.size() && t.most[d] > 1) ++rows;
  }
  return rows <= 1 && t.rows == t.need_rows && t.columns == t.need_columns;
}

bool BlockLowering::makes(TensorId tensor) const {
  const OpId producer = workload_.producer(tensor);
  return producer.valid() && std::ranges::find(k_.ops, producer) != k_.ops.end();
}

BlockStep::Way BlockLowering::way_of_load(NodeId load, const BoxAtHome& box) const {
  using Way = BlockStep::Way;
  const ScheduleNode& n = k_.node(load);
  const BlockTile& t = tile(n.buffer);
  // Part of another level's tile, or of one that slides: its rows begin anywhere in the tile.
  if (choices_.tight || buffer(n.buffer).outer.valid() || slides(n.buffer)) return Way::elements;
  const std::int64_t size = size_of(workload_.tensor(n.tensor).dtype);
  if (rows_begin_at(n.tensor, box, 16 / size)) return fills(t, box) ? Way::whole : Way::rows;
  if (piece_from_home(load, box) > 0) return Way::pieces;
  return widened(n.buffer) ? Way::elements : Way::shifted;
}

/// Bytes of an asynchronous copy of rows that begin at multiples of so many only; 0: of none.
std::int64_t BlockLowering::piece_from_home(NodeId load, const BoxAtHome& box) const {
  const ScheduleNode& n = k_.node(load);
  const std::int64_t size = size_of(workload_.tensor(n.tensor).dtype);
  if (size <= 8 && rows_begin_at(n.tensor, box, 8 / size)) return 8;
  return size == 4 ? 4 : 0;
}

BlockStep BlockLowering::movement(NodeId load, bool copying, const BoxAtHome& box) const {
  const ScheduleNode& n = k_.node(load);
  using Kind = BlockStep::Kind;
  const bool ring = tile(n.buffer).form == Form::ring;
  return {.kind = !ring     ? Kind::load
                  : copying ? Kind::copy
                            : Kind::take,
          .node = load,
          .tile = n.buffer,
          .other = buffer(n.buffer).outer,
          .way = way_of_load(load, box),
          .piece = piece_from_home(load, box),
          .kept = true};
}

}  // namespace tilewright::lowering
