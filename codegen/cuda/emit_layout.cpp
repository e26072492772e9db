// Where tiles lie in the block's shared memory: their shape, their stages, and which of them share
// a place because their phases do not meet.
#include <algorithm>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kMostShared = 232448;  // what a block can have on compute capability 9.0
constexpr std::int64_t kSharedLine = 128;

}  // namespace

/// Barriers of all blocks before a node that stand in no loop: between them nothing of one phase is
/// in another's way.
int KernelEmitter::phase_of(NodeId node) const {
  int phase = 0;
  for (std::size_t i = 0; i < node.index(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::sync || n.scope != Unit::machine) continue;
    bool in_loop = false;
    for (NodeId p = n.parent; p.valid(); p = k_.node(p).parent)
      in_loop = in_loop || k_.node(p).kind == NodeKind::loop;
    phase += in_loop ? 0 : 1;
  }
  return phase;
}

/// Whether what is read of a tile but not computed must be zero: it adds nothing to products, and a
/// spilled tile may go home before all of it was computed.
bool KernelEmitter::zero_filled(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  if (p.form != Form::tile) return false;
  if (is_operand(b)) return true;
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
std::pair<int, int> KernelEmitter::alive(BufferId b) const {
  const TilePlace& p = places_[b.index()];
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
    if (loads_ahead_.contains(NodeId(i)) && n.buffer == b)
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

/// Loads that may begin before the barrier of all blocks that their phase follows: the first of a
/// buffer in its phase, of a tensor that this kernel does not make, into a stage that no warp holds
/// then.
void KernelEmitter::choose_ahead() {
  loads_ahead_.clear();
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
    const TilePlace& p = places_[n.buffer.index()];
    const OpId producer = workload_.producer(n.tensor);
    const bool made = producer.valid() && std::ranges::find(k_.ops, producer) != k_.ops.end();
    bool dropped = false;  // after the barrier: what came before it would be gone again
    for (std::size_t j = 0; j < i; ++j)
      dropped = dropped || (k_.nodes[j].kind == NodeKind::drop && k_.nodes[j].buffer == n.buffer &&
                            phase_of(NodeId(j)) == phase);
    if (p.form == Form::ring && !made && phase > 0 && first_of_phase && !dropped &&
        !n.only_for.valid() && (first || p.stages > 1))
      loads_ahead_.insert(NodeId(i));
  }
}

/// Whether a computed tile may be rounded to its tensor's 16 bits, as what goes home is.
bool KernelEmitter::can_be_narrow(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  const DType type = workload_.tensor(buffer(b).tensor).dtype;
  return p.form == Form::tile && !p.narrow && p.at_once && !slides(b) && !buffer(b).atomic &&
         !chained(b) && micro_kernel().fragments && (type == DType::f16 || type == DType::bf16);
}

/// Everything in the block's shared memory: barriers, tiles, what warps exchange.
void KernelEmitter::lay_out() {
  const bool plain = micro_kernel().plain_rows;
  const int asked_stages = p_.options.stages > 0 ? p_.options.stages : k_.launch.stages.value_or(0);
  const auto shape = [&] {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      TilePlace& p = places_[i];
      p.bytes = 0;
      if (in_registers(p.form) || views_outer(BufferId(i))) continue;
      const Tensor& t = workload_.tensor(k_.buffers[i].tensor);
      const bool four = (p.form == Form::tile && !p.narrow) || widened(k_.buffers[i].tensor);
      p.element_bytes = p.form == Form::tile && p_.f64 ? 8 : four ? 4 : size_of(t.dtype);
      const std::int64_t vector = 16 / p.element_bytes;
      p.need_rows = std::max(p.need_rows, p.rows);
      p.need_columns = round_up(std::max(p.need_columns, p.columns), vector);
      const std::int64_t chunks = p.need_columns / vector,
                         pairs = chunks == 1 ? 1 : round_up(chunks, 2);
      using Swizzle = TilePlace::Swizzle;
      p.swizzle = plain ? Swizzle::none : Swizzle::rows;
      // Fused multiply-adds read rows that run across the depth as they lie, and four columns at
      // once of a right operand.
      if (micro_kernel().fours && is_operand(BufferId(i)) && !p.left_along)
        p.swizzle = p.right_along ? Swizzle::fours : Swizzle::none;
      p.pitch = (plain ? round_up(chunks + 1, 2) : pairs) * vector;
      p.stages = slides(BufferId(i)) ? 2 : 1;
      if (p.form == Form::ring) {
        bool again = false;
        for (std::size_t n = 0; n < k_.nodes.size(); ++n) {
          if (k_.nodes[n].kind != NodeKind::load || k_.nodes[n].buffer != BufferId(i)) continue;
          for (NodeId l = k_.nodes[n].parent; l.valid(); l = k_.node(l).parent)
            again = again || (k_.node(l).kind == NodeKind::loop && k_.node(l).max_trips > 1 &&
                              k_.node(l).binding != Binding::grid);
        }
        p.stages = !again ? 1 : asked_stages > 0 ? asked_stages : std::max(2, k_.buffers[i].copies);
      }
    }
  };
  shape();
  if (measuring_) choose_ahead();
  std::vector<std::pair<int, int>> spans(places_.size());
  const auto total = [&] {
    for (std::size_t i = 0; i < places_.size(); ++i) spans[i] = alive(BufferId(i));
    barrier_bytes_ = 0;
    for (const TilePlace& p : places_)
      if (p.form == Form::ring) barrier_bytes_ += 16 * p.stages;
    const std::int64_t first = round_up(barrier_bytes_, kSharedLine);
    scratch_offset_ = first;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      TilePlace& p = places_[i];
      if (in_registers(p.form) || views_outer(BufferId(i))) continue;
      p.bytes = p.need_rows * p.pitch * p.element_bytes * p.stages * p.units;
      // As low as the tiles before it allow that are alive in one of its phases.
      p.offset = first;
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t j = 0; j < i; ++j) {
          const TilePlace& q = places_[j];
          const std::int64_t end = q.offset + round_up(q.bytes, kSharedLine);
          if (in_registers(q.form) || q.bytes == 0 ||
              q.offset >= p.offset + round_up(p.bytes, kSharedLine) || end <= p.offset ||
              spans[i].second < spans[j].first || spans[j].second < spans[i].first)
            continue;
          p.offset = end;
          moved = true;
        }
      }
      scratch_offset_ = std::max(scratch_offset_, p.offset + round_up(p.bytes, kSharedLine));
    }
    return scratch_offset_ + 4 * std::max(join_floats_, row_floats_) + half_bytes_;
  };
  std::int64_t room = kMostShared;
  // Blocks that wait for one another share what a multiprocessor has.
  const std::int64_t together = k_.co_resident && p_.machine().kind == "gpu"
                                    ? ceil_div(k_.blocks, p_.machine().units.front().count)
                                    : 1;
  // Also of a kernel at registers: what lies in shared memory is a block's.
  for (const Level& level : p_.machine().levels)
    if (p_.machine().kind == "gpu" && level.managed == Managed::software &&
        level.private_to == Unit::grid && level.capacity.value > 0)
      room = std::min(room, level.capacity.value / together - 1024);
  if (p_.options.shared_room > 0) room = p_.options.shared_room;
  shared_bytes_ = total();
  while (shared_bytes_ > room) {
    if (measuring_ && !loads_ahead_.empty()) {
      // The largest tile is the first to wait.
      const auto bytes = [&](NodeId id) { return places_[k_.node(id).buffer.index()].bytes; };
      const BufferId largest = k_.node(*std::ranges::max_element(loads_ahead_, {}, bytes)).buffer;
      std::erase_if(loads_ahead_, [&](NodeId id) { return k_.node(id).buffer == largest; });
      shared_bytes_ = total();
      continue;
    }
    TilePlace* most = nullptr;
    for (TilePlace& p : places_)
      if (p.form == Form::ring && p.stages > 1 && asked_stages == 0 &&
          (most == nullptr || p.bytes > most->bytes))
        most = &p;
    // Where stages are no longer to be had, the largest computed tile that can be rounded.
    if (most == nullptr) {
      std::optional<BufferId> largest;
      for (std::size_t i = 0; i < places_.size(); ++i)
        if (can_be_narrow(BufferId(i)) &&
            (!largest || places_[i].bytes > places_[largest->index()].bytes))
          largest = BufferId(i);
      if (largest) {
        places_[largest->index()].narrow = true;
        shape();  // with all stages again
        shared_bytes_ = total();
        continue;
      }
    }
    if (most == nullptr)
      throw Refused{"its tiles need " + std::to_string(shared_bytes_) +
                        " bytes of shared memory, padded for its micro-kernel; a block has " +
                        std::to_string(room),
                    Reason::Shortage{shared_bytes_, room}};
    --most->stages;
    shared_bytes_ = total();
  }
}

BlockProgram KernelEmitter::program() const {
  BlockProgram p{.workload = &workload_,
                 .kernel = &k_,
                 .cluster = k_.launch.cluster.value_or(1),
                 .warp_rows = warp_rows_,
                 .warp_columns = warp_columns_,
                 .shared_bytes = shared_bytes_};
  const std::vector<TileUse> uses = tile_uses();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const TilePlace& of = places_[i];
    using Where = BlockTile::Where;
    const auto [first, last] = alive(BufferId(i));
    p.tiles.push_back({.buffer = BufferId(i),
                       .where = views_outer(BufferId(i)) ? Where::uses
                                : of.form == Form::ring  ? Where::ring
                                : of.form == Form::sums  ? Where::fragments
                                : of.form == Form::rows  ? Where::rows
                                                         : Where::shared,
                       .element = in_registers(of.form) ? real() : tile_type(BufferId(i)),
                       .stages = of.stages,
                       .units = of.units,
                       .offset = of.offset,
                       .bytes = of.bytes,
                       .first_phase = first,
                       .last_phase = last,
                       .reason = uses[i].reason});
  }
  p.roles = roles_;
  return p;
}

std::vector<TileUse> KernelEmitter::tile_uses() const {
  std::vector<TileUse> uses;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const TilePlace& p = places_[i];
    std::string reason = p.reason;
    if (reason.empty() && p.form == Form::sums)
      reason = p.split == Split::partial ? "every warp has a part of the sums"
                                         : "its sums stay with the warps that make them";
    if (reason.empty() && p.form == Form::rows) reason = "one value a row";
    if (reason.empty() && p.form == Form::ring)
      reason = p.stages > 1 ? "copied ahead of its use" : "copied once";
    if (reason.empty() && views_outer(BufferId(i))) reason = "read where it lies in the outer tile";
    if (reason.empty() && k_.buffers[i].outer.valid()) reason = "a copy of part of the outer tile";
    if (reason.empty() && p.own) reason = "each unit has its own";
    if (reason.empty() && p.form == Form::loaded) reason = "this kernel makes it";
    if (reason.empty() && p.narrow) reason = "rounded: there is no room for wider elements";
    if (reason.empty()) reason = "warps share it";
    uses.push_back({.tensor = tensor_name(k_.buffers[i].tensor),
                    .level = p_.machine().level(k_.buffers[i].level).name,
                    .place = views_outer(BufferId(i)) ? "registers, at each use"
                             : in_registers(p.form)   ? "registers"
                             : p.form == Form::tile   ? "shared, " + tile_type(BufferId(i))
                                                      : "shared",
                    .stages = p.stages,
                    .bytes = p.bytes,
                    .reason = reason});
  }
  return uses;
}

}  // namespace tilewright::cuda
