// Where tiles lie in the block's shared memory: their shape, their stages, and which of them share
// a place because their phases do not meet.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <tuple>

#include "core/base/effort.h"
#include "core/lowering/gpu/block_lowering.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/symbolic.h"

namespace tilewright::lowering {
namespace {

using Form = BlockTile::Form;

constexpr std::int64_t kMostShared = 232448;  // what a block can have on compute capability 9.0
constexpr std::int64_t kSharedLine = 128;     // bytes; tiles begin at multiples of it
constexpr std::int64_t kSharedPiece = 16;     // bytes that the widest access reads

/// Elements between rows of a tile in shared memory. `padded`: else pieces of 16 bytes are
/// swizzled.
std::int64_t row_pitch(std::int64_t columns, std::int64_t element_bytes, bool padded) {
  const std::int64_t vector = 16 / element_bytes, pieces = ceil_div(columns, vector);
  if (padded) return round_up(pieces + 1, 2) * vector;
  return (pieces == 1 ? 1 : round_up(pieces, 2)) * vector;
}

/// Nodes that are looked at for a tile, of a unit of Effort: about as long as a schedule's pricing.
constexpr std::size_t kNodesOfUnit = 2000;

/// Of a ring. `again`: a loop comes back to its load; `asked`: 0: none; `copies`: that the plan
/// has.
int ring_stages(bool again, int asked, int copies) {
  return !again ? 1 : asked > 0 ? asked : std::max(2, copies);
}

}  // namespace

std::vector<int> phases_of(const ScheduledKernel& k) {
  std::vector<int> all(k.nodes.size() + 1, 0);
  if (!k.co_resident) return all;  // there is no such barrier
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& n = k.nodes[i];
    bool counts = n.kind == NodeKind::sync && n.scope == Unit::machine;
    for (NodeId p = n.parent; counts && p.valid(); p = k.node(p).parent)
      counts = k.node(p).kind != NodeKind::loop;
    all[i + 1] = all[i] + (counts ? 1 : 0);
  }
  return all;
}

/// Between two such barriers nothing of one phase is in another's way.
int BlockLowering::phase_of(NodeId node) const { return phases_[node.index()]; }

/// Whether what is read of a tile but not computed must be zero: it adds nothing to products, and a
/// spilled tile may go home before all of it was computed.
bool BlockLowering::zero_filled(BufferId b) const {
  const BlockTile& p = tile(b);
  if (p.form != Form::computed) return false;
  if (is_operand(b)) return true;
  // Of an outer level: what is flushed through it goes home with all of it.
  const bool flushed_through = std::ranges::any_of(k_.nodes, [&](const ScheduleNode& n) {
    for (BufferId f = n.flush; f.valid(); f = buffer(f).outer)
      if (buffer(f).outer == b) return true;
    return false;
  });
  if (flushed_through) return true;
  if (p.covered) return false;
  // Stored in a loop below which it is fixed: perhaps before all of it is computed.
  if (buffer(b).store.valid() && buffer(b).fixed_at.valid())
    for (NodeId n = k_.node(buffer(b).store).parent; n.valid() && n != buffer(b).fixed_at;
         n = k_.node(n).parent)
      if (k_.node(n).kind == NodeKind::loop && k_.node(n).max_trips > 1) return true;
  return std::ranges::any_of(k_.nodes, [&](const ScheduleNode& n) {
    for (BufferId f = n.flush; f.valid(); f = buffer(f).outer)
      if (f == b) return true;
    return false;
  });
}

/// From which phase to which a tile's place holds something of it.
std::pair<int, int> BlockLowering::alive(BufferId b) const {
  if (!k_.co_resident) return {0, 0};  // there is one phase
  const BlockTile& p = tile(b);
  const NodeId end(k_.nodes.size());
  std::pair<int, int> span{phase_of(end), 0};
  const auto touch = [&](NodeId n) {
    span = {std::min(span.first, phase_of(n)), std::max(span.second, phase_of(n))};
  };
  // What an inner level's tile comes from or goes to is touched with it.
  const auto keeps_in = [&](BufferId inner) {
    for (; inner.valid(); inner = buffer(inner).outer)
      if (inner == b) return true;
    return false;
  };
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (keeps_in(n.buffer)) touch(NodeId(i));
    if (program_.loads_ahead.contains(NodeId(i)) && n.buffer == b)
      span.first = std::min(span.first, phase_of(NodeId(i)) - 1);
    for (const InputUse& use : n.reads)
      if (keeps_in(use.buffer)) touch(NodeId(i));
    for (const OutputUse& use : n.writes)
      if (keeps_in(use.buffer)) touch(NodeId(i));
  }
  // Zeros are there from the beginning on; what has changed is written at the end.
  if (zero_filled(b)) span.first = 0;
  if (is_written(b) && !p.plain) span.second = phase_of(end);
  return span;
}

/// Whether only the uses of one content bound the time for which a computed tile's place holds
/// something: nothing is kept of it for later, and a product reads no more of its depth than there
/// is.
bool BlockLowering::lives_by_use(BufferId b) const {
  const BlockTile& p = tile(b);
  if (waits_.contains(b)) return true;
  if (p.form != Form::computed || p.own || p.units > 1 || slides(b) || chained(b) ||
      (keeps(b) && !p.plain))
    return false;
  if (!zero_filled(b)) return true;
  // What lies past the tile's rows and columns gives results that nobody reads: unless these stay
  // in registers, where the next product takes whole blocks of them for its depth.
  if (!is_operand(b) || !p.covered || micro_kernel().blocks || !micro_kernel().fragments)
    return false;
  return std::ranges::none_of(program_.products, [&](const auto& of) {
    const ScheduleNode& n = k_.node(of.first);
    return std::ranges::any_of(of.second, [&](const BlockProduct& x) {
      const BufferId result = n.writes[static_cast<std::size_t>(x.write)].buffer;
      return buffer_of_input(n, x.right) == b &&
             (tile(buffer_of_input(n, x.left)).form == Form::sums ||
              tile(result).form == Form::sums);
    });
  });
}

/// Whether a loop has all of an operator's range of it in every turn of what is around: no loop
/// around cuts it, nor what consumers need of the operator.
bool BlockLowering::whole_range(NodeId loop, OpId op) const {
  const LoopId of = k_.node(loop).loop;
  for (NodeId n = k_.node(loop).parent; n.valid(); n = k_.node(n).parent) {
    if (k_.node(n).kind == NodeKind::loop && k_.node(n).loop == of) return false;
    for (const Inference& i : k_.node(n).infer) {
      if (i.producer != op) continue;
      const Access& made = workload_.op(op).outputs[static_cast<std::size_t>(i.output)].target;
      for (std::size_t d = 0; d < made.index.size(); ++d) {
        if (std::ranges::none_of(made.index[d].terms, [&](const Term& t) { return t.loop == of; }))
          continue;
        for (const ReadRef& r : i.reads) {
          const Access& read = workload_.op(r.op).inputs[static_cast<std::size_t>(r.input)];
          if (read.index[d].plain_loop() != of || !whole_range(loop, r.op)) return false;
        }
      }
    }
  }
  return true;
}

/// The innermost loop in which all uses of a loaded tile lie and each of whose iterations loads
/// another box; none: a later iteration may find the tile there.
NodeId BlockLowering::loads_anew(BufferId b) const {
  const auto uses = [&](const ScheduleNode& n) {
    const auto is = [&](const auto& use) { return use.buffer == b; };
    return n.buffer == b || std::ranges::any_of(n.reads, is) || std::ranges::any_of(n.writes, is);
  };
  NodeId found;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& loop = k_.nodes[i];
    if (loop.kind != NodeKind::loop || loop.binding == Binding::grid || loop.max_trips < 2)
      continue;
    // An index that is this loop alone, within the tensor: another iteration's box is another.
    const auto steps = [&](const ReadRef& read) {
      const Operator& op = workload_.op(read.op);
      const Access& a = op.inputs[static_cast<std::size_t>(read.input)];
      if (std::ranges::none_of(loop.cuts, [&](const OpLoop& cut) { return cut.op == read.op; }))
        return false;
      if (!whole_range(NodeId(i), read.op)) return false;
      for (std::size_t d = 0; d < a.index.size(); ++d)
        if (a.index[d].terms.size() == 1 && a.index[d].terms[0].loop == loop.loop &&
            !leaves(workload_, a, d))
          return true;
      return false;
    };
    bool all = true;
    for (std::size_t n = 0; n < k_.nodes.size() && all; ++n) {
      if (!uses(k_.nodes[n])) continue;
      all = n > i && NodeId(n) <= last_below_[i];
      if (k_.nodes[n].kind == NodeKind::load && k_.nodes[n].buffer == b)
        all = all && k_.nodes[n].reads_below.size() == 1 && steps(k_.nodes[n].reads_below.front());
    }
    if (all) found = NodeId(i);
  }
  return found;
}

/// The ring that takes most room and whose tile the computing warps may load themselves.
BlockTile* BlockLowering::largest_that_can_wait() {
  BlockTile* most = nullptr;
  for (BlockTile& p : program_.tiles)
    if (p.form == Form::ring && !p.own && p.units == 1 && !buffer(p.buffer).sliding &&
        !chained(p.buffer) && asked_stages() <= 1 && (most == nullptr || p.bytes > most->bytes))
      most = &p;
  return most;
}

/// From which node to which: what a loop comes back to, in all of the loop. A ring is filled again
/// in every loop around it. What a running operator makes goes from one turn to the next, wherever
/// its tile is fixed.
std::pair<NodeId, NodeId> BlockLowering::used_between(BufferId b) const {
  const NodeId anew = waits_.contains(b) ? loads_anew(b) : NodeId();
  const OpId producer = workload_.producer(buffer(b).tensor);
  const bool running =
      buffer(b).role != BufferRole::input && producer.valid() && workload_.op(producer).running;
  std::pair<NodeId, NodeId> span{NodeId(k_.nodes.size()), NodeId(0)};
  const auto touch = [&](NodeId n) {
    NodeId first = n, last = n;
    const NodeId scope = running || tile(b).form == Form::ring ? NodeId()
                         : waits_.contains(b)                  ? anew
                                                               : buffer(b).fixed_at;
    for (NodeId l = k_.node(n).parent; l.valid() && l != scope; l = k_.node(l).parent)
      if (k_.node(l).kind == NodeKind::loop && k_.node(l).binding != Binding::grid &&
          k_.node(l).max_trips > 1)
        first = l, last = last_below_[l.index()];
    span = {std::min(span.first, first), std::max(span.second, last)};
  };
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    const auto is = [&](const auto& use) { return use.buffer == b; };
    if (n.buffer == b || std::ranges::any_of(n.reads, is) || std::ranges::any_of(n.writes, is))
      touch(NodeId(i));
  }
  return span;
}

/// Loads that may begin before the barrier of all blocks that their phase follows: the first of a
/// buffer in its phase, of a tensor that this kernel does not make, into a stage that no warp holds
/// then.
void BlockLowering::choose_ahead() {
  program_.loads_ahead.clear();
  // What a sliding tile still has decides what is loaded.
  if (k_.launch.ahead.value_or(0) == 0 || std::ranges::any_of(k_.buffers, &Buffer::sliding)) return;
  std::map<BufferId, int> last;  // the phase of a buffer's last load so far
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::load) continue;
    const int phase = phase_of(NodeId(i));
    const auto [seen, first] = last.emplace(n.buffer, phase);
    const bool first_of_phase = first || seen->second != phase;
    seen->second = phase;
    const BlockTile& p = tile(n.buffer);
    bool dropped = false;  // after the barrier: what came before it would be gone again
    for (std::size_t j = 0; j < i; ++j)
      dropped = dropped || (k_.nodes[j].kind == NodeKind::drop && k_.nodes[j].buffer == n.buffer &&
                            phase_of(NodeId(j)) == phase);
    if (p.form == Form::ring && !makes(n.tensor) && phase > 0 && first_of_phase && !dropped &&
        !n.only_for.valid() && (first || p.stages > 1))
      program_.loads_ahead.insert(NodeId(i));
  }
}

/// Whether a computed tile may be rounded to its tensor's 16 bits, as what goes home is.
bool BlockLowering::can_be_narrow(BufferId b) const {
  const BlockTile& p = tile(b);
  const DType type = workload_.tensor(buffer(b).tensor).dtype;
  return p.form == Form::computed && !p.narrow && p.at_once && !slides(b) && !buffer(b).atomic &&
         !chained(b) && micro_kernel().fragments && (type == DType::f16 || type == DType::bf16);
}

int BlockLowering::asked_stages() const {
  return choices_.stages > 0 ? choices_.stages : k_.launch.stages.value_or(0);
}

DType BlockLowering::element(BufferId b) const {
  const BlockTile& t = tile(b);
  if (t.in_registers() || (t.form == Form::computed && !t.narrow))
    return f64_ ? DType::f64 : DType::f32;
  return widened(b) ? DType::i32 : workload_.tensor(buffer(b).tensor).dtype;
}

/// Whether a loop comes back to a load of the buffer.
bool BlockLowering::loaded_again(BufferId b) const {
  for (const ScheduleNode& n : k_.nodes) {
    if (n.kind != NodeKind::load || n.buffer != b) continue;
    for (NodeId l = n.parent; l.valid(); l = k_.node(l).parent)
      if (k_.node(l).kind == NodeKind::loop && k_.node(l).max_trips > 1 &&
          k_.node(l).binding != Binding::grid)
        return true;
  }
  return false;
}

bool BlockLowering::lanes_along(BufferId b, std::size_t dimension) const {
  return std::ranges::any_of(contracted_, [&](const auto& of) {
    if (of.second == 0) return false;
    const std::vector<std::int64_t>& most = mosts_.at(of.first);
    const ScheduleNode& n = k_.node(of.first);
    const Operator& op = workload_.op(n.op);
    const auto reads = [&](int input, const std::vector<int>& group) {
      if (buffer_of_input(n, input) != b) return false;
      int last = -1;  // the loop that neighbouring lanes go along
      for (const int l : group)
        if (most[static_cast<std::size_t>(l)] > 1) last = l;
      if (last < 0) return false;
      const Affine& index = op.inputs[static_cast<std::size_t>(input)].index[dimension];
      return std::ranges::any_of(index.terms, [&](const Term& t) {
        return t.loop == op.loops[static_cast<std::size_t>(last)];
      });
    };
    const std::vector<BlockContraction> all = contractions(of.first, most);
    return std::ranges::any_of(all, [&](const BlockContraction& c) {
      return reads(c.left, c.rows) || reads(c.right, c.columns);
    });
  });
}

/// Rows of the outermost dimension further apart, where lanes go along it and would all read the
/// same bank: eight rows at a time, of 32 banks of 4 bytes.
void BlockLowering::spread_lanes(BufferId b) {
  BlockTile& p = at(b);
  std::size_t outer = 0;
  while (outer < p.most.size() && p.most[outer] == 1) ++outer;
  if (outer + 2 >= p.most.size() || !lanes_along(b, outer)) return;
  std::int64_t rows = 1;
  for (std::size_t d = outer + 1; d + 1 < p.most.size(); ++d) rows *= p.most[d];
  if (rows == 1) return;
  const auto banks = [&](std::int64_t apart) {
    std::uint32_t all = 0;
    for (std::int64_t lane = 0; lane < 8; ++lane)
      all |= std::uint32_t{1} << (lane * apart * p.pitch % 32);
    return std::popcount(all);
  };
  std::int64_t best = rows;
  for (std::int64_t more = 1; more < 8 && more * 16 <= rows; ++more)
    if (banks(rows + more) > banks(best)) best = rows + more;
  p.stride[outer] = best;
  p.need_rows = std::max(p.need_rows, p.most[outer] * best);
}

/// Every tile's rows, pitch and stages.
void BlockLowering::shape() {
  const bool plain = micro_kernel().plain_rows;
  for (std::size_t i = 0; i < program_.tiles.size(); ++i) {
    const BufferId b(i);
    BlockTile& p = at(b);
    p.bytes = 0;
    if (!p.in_shared()) continue;
    p.element_bytes = size_of(element(b));
    p.need_rows = std::max(p.need_rows, p.rows);
    if (choices_.tight) {
      p.need_columns = p.pitch = p.columns;
      p.swizzle = BlockTile::Swizzle::none;
      p.stages = slides(b) ? 2 : 1;
      continue;
    }
    p.need_columns = round_up(std::max(p.need_columns, p.columns), 16 / p.element_bytes);
    using Swizzle = BlockTile::Swizzle;
    p.swizzle = plain ? Swizzle::none : Swizzle::rows;
    // Fused multiply-adds read rows that run across the depth as they lie, and four columns at
    // once of a right operand.
    if (micro_kernel().fours && is_operand(b) && !p.left_along)
      p.swizzle = p.right_along ? Swizzle::fours : Swizzle::none;
    if (read_by_elements(b)) p.swizzle = Swizzle::none;  // addresses are sums of what loops add
    p.pitch = row_pitch(p.need_columns, p.element_bytes, plain);
    // Floats of which lanes read four rows at a time, eight neighbours of each.
    if (micro_kernel().matrix && micro_kernel().f32 && is_operand(b) && p.element_bytes == 4 &&
        !p.left_along && !p.right_along) {
      p.swizzle = Swizzle::none;
      if (p.pitch % 16 == 0) p.pitch += 8;
    }
    if (micro_kernel().fours && p.form == Form::ring && p.element_bytes == 4 && !slides(b) &&
        !p.view.valid() && read_by_elements(b))
      spread_lanes(b);
    p.stages = slides(b) ? 2 : 1;
    if (p.form == Form::ring)
      p.stages = ring_stages(loaded_again(b), asked_stages(), buffer(b).copies);
  }
}

/// Gives every tile its place; what a block needs.
std::int64_t BlockLowering::total() {
  Effort::spend(static_cast<std::int64_t>(program_.tiles.size() * k_.nodes.size() / kNodesOfUnit));
  program_.barrier_bytes = 0;
  std::vector<std::optional<std::pair<NodeId, NodeId>>> uses(program_.tiles.size());
  for (BlockTile& p : program_.tiles) {
    std::tie(p.first_phase, p.last_phase) = alive(p.buffer);
    p.takes_turns = take_turns_ && lives_by_use(p.buffer);
    if (p.takes_turns || (take_turns_ && p.form == Form::ring))
      uses[p.buffer.index()] = used_between(p.buffer);
    if (p.form == Form::ring) program_.barrier_bytes += 16 * p.stages;
  }
  const std::int64_t line = choices_.tight ? kSharedPiece : kSharedLine;
  const std::int64_t first = round_up(program_.barrier_bytes, line);
  std::int64_t end = first;
  // Copying warps run ahead: a ring's place is another tile's after its last use, never before its
  // first.
  const auto gives_way = [&](const BlockTile& ring, const BlockTile& to) {
    return uses[ring.buffer.index()]->second < uses[to.buffer.index()]->first &&
           !zero_filled(to.buffer);
  };
  const auto apart = [&](const BlockTile& p, const BlockTile& q) {
    if (p.last_phase < q.first_phase || q.last_phase < p.first_phase) return true;
    const auto &of_p = uses[p.buffer.index()], &of_q = uses[q.buffer.index()];
    if (!of_p || !of_q || (!p.takes_turns && !q.takes_turns)) return false;
    if (!p.takes_turns) return gives_way(p, q);
    if (!q.takes_turns) return gives_way(q, p);
    return of_p->second < of_q->first || of_q->second < of_p->first;
  };
  for (BlockTile& p : program_.tiles) {
    if (!p.in_shared()) continue;
    p.bytes = p.need_rows * p.pitch * p.element_bytes * p.stages * p.units;
    const std::int64_t bytes = round_up(p.bytes, line);
    // As low as the tiles before it allow that are alive when it is.
    p.offset = first;
    for (bool moved = true; moved;) {
      moved = false;
      for (const BlockTile& q : program_.tiles) {
        if (&q == &p) break;
        const std::int64_t end_of_q = q.offset + round_up(q.bytes, line);
        if (q.in_registers() || q.bytes == 0 || q.offset >= p.offset + bytes ||
            end_of_q <= p.offset || apart(p, q))
          continue;
        p.offset = end_of_q;
        moved = true;
      }
    }
    end = std::max(end, p.offset + bytes);
  }
  program_.scratch_offset = end;
  return end + 4 * std::max(exchanged(), part_room_) + half_bytes_;
}

/// What a block may have.
std::int64_t BlockLowering::room() const {
  if (choices_.shared_room > 0) return choices_.shared_room;
  // Blocks that wait for one another share what a multiprocessor has.
  const bool gpu = machine_.kind == "gpu";
  const std::int64_t together =
      k_.co_resident && gpu ? ceil_div(k_.blocks, machine_.units.front().count) : 1;
  std::int64_t room = kMostShared;
  // Also of a kernel at registers: what lies in shared memory is a block's.
  for (const Level& level : machine_.levels)
    if (gpu && level.managed == Managed::software && level.private_to == Unit::grid &&
        level.capacity.value > 0)
      room = std::min(room, level.capacity.value / together - kSharedReserved);
  return room;
}

/// Everything in the block's shared memory: barriers, tiles, what warps exchange.
void BlockLowering::lay_out() {
  shape();
  if (measuring_) choose_ahead();
  std::int64_t& needed = program_.shared_bytes;
  while ((needed = total()) > room()) {
    if (!take_turns_) {
      take_turns_ = true;
      continue;
    }
    std::set<NodeId>& ahead = program_.loads_ahead;
    if (measuring_ && !ahead.empty()) {
      // The largest tile is the first to wait.
      const auto bytes = [&](NodeId id) { return tile(k_.node(id).buffer).bytes; };
      const BufferId largest = k_.node(*std::ranges::max_element(ahead, {}, bytes)).buffer;
      std::erase_if(ahead, [&](NodeId id) { return k_.node(id).buffer == largest; });
      continue;
    }
    BlockTile* most = nullptr;
    for (BlockTile& p : program_.tiles)
      if (p.form == Form::ring && p.stages > 1 && asked_stages() == 0 &&
          (most == nullptr || p.bytes > most->bytes))
        most = &p;
    if (most != nullptr) {
      --most->stages;
      continue;
    }
    // Where stages are no longer to be had, the largest computed tile that can be rounded.
    for (BlockTile& p : program_.tiles)
      if (can_be_narrow(p.buffer) && (most == nullptr || p.bytes > most->bytes)) most = &p;
    if (most == nullptr && measuring_)
      if (BlockTile* ring = largest_that_can_wait(); ring != nullptr) {
        ring->form = Form::loaded;
        ring->reason = "there is no room to copy it ahead of its use";
        waits_.insert(ring->buffer);
        choose_roles();
        shape();
        continue;
      }
    if (most == nullptr)
      throw Refused{"its tiles need " + std::to_string(needed) +
                        " bytes of shared memory, padded for its micro-kernel; a block has " +
                        std::to_string(room()),
                    Reason::Shortage{needed, room()}};
    most->narrow = true;
    shape();  // with all stages again
  }
  share_registers();
}

/// What the copying role skips, it skips whole; what decides whether computing warps load, it
/// meets.
bool BlockLowering::copies(NodeId id, bool ahead) const {
  const ScheduleNode& n = k_.node(id);
  const auto any_ring = [&] {
    return std::ranges::any_of(program_.tiles,
                               [](const BlockTile& t) { return t.form == Form::ring; });
  };
  switch (n.kind) {
    case NodeKind::drop:
      return !ahead && tile(n.buffer).form == Form::ring;
    case NodeKind::load:
      return ahead ? program_.loads_ahead.contains(id) : tile(n.buffer).form == Form::ring;
    case NodeKind::compute:
      return !ahead && n.once && any_ring();
    case NodeKind::sync:
      return !ahead && n.scope == Unit::machine && any_ring();
    default:
      return std::ranges::any_of(n.children, [&](NodeId c) { return copies(c, ahead); });
  }
}

/// What is read was written before by other warps, and is overwritten after by others: one barrier
/// on either side, but where the act before or after has it already.
BlockBarriers barriers_of(BlockAct act) {
  switch (act) {
    case BlockAct::fill:      // nothing was there
    case BlockAct::load_new:  // the slide had one before
      return {.before = false, .after = true};
    case BlockAct::slide:     // what comes after it ends with one
    case BlockAct::clear:     // the load that follows has one before
    case BlockAct::resume:    // the compute that follows has one before
    case BlockAct::begin:     // the product ends with one
    case BlockAct::exchange:  // warps read what each wrote, and meet again after their results
      return {.before = true, .after = false};
    case BlockAct::load:
    case BlockAct::read_back:
    case BlockAct::hand_over:
    case BlockAct::product:
    case BlockAct::points:
      break;
  }
  return {.before = true, .after = true};
}

BlockProgram BlockLowering::described(std::vector<BlockRole> roles) const {
  BlockProgram p = program_;
  for (BlockTile& t : p.tiles) {
    t.element = element(t.buffer);
    t.reason = reason(t.buffer);
  }
  p.roles = std::move(roles);
  return p;
}

std::string BlockLowering::reason(BufferId b) const {
  const BlockTile& p = tile(b);
  if (!p.reason.empty()) return p.reason;
  if (p.form == Form::sums)
    return p.split == BlockTile::Split::partial ? "every warp has a part of the sums"
                                                : "its sums stay with the warps that make them";
  if (p.form == Form::rows) return "one value a row";
  if (p.form == Form::ring) return p.stages > 1 ? "copied ahead of its use" : "copied once";
  if (p.view.valid()) return "read where it lies in the outer tile";
  if (buffer(b).outer.valid()) return "a copy of part of the outer tile";
  if (p.own) return "each unit has its own";
  if (p.form == Form::loaded) return "this kernel makes it";
  if (p.narrow) return "rounded: there is no room for wider elements";
  return "warps share it";
}

}  // namespace tilewright::lowering
