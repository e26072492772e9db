// Where tiles live: which sums stay in registers, how warps share them, and the layout of the rest
// in shared memory.
#include <algorithm>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kMostShared = 232448;    // what a block can have on compute capability 9.0
constexpr std::int64_t kRegisters = 65536;      // of a multiprocessor
constexpr std::int64_t kRegisterThreads = 128;  // ptxas hands registers to four warps at a time
constexpr int kMostWarps = 16;
constexpr std::int64_t kOtherRegisters = 72;  // that a thread needs beside its sums, about
constexpr std::int64_t kSumsAtOnce = 64;      // of a product whose sums live in a tile
constexpr std::int64_t kSharedLine = 128;

std::int64_t round_up(std::int64_t value, std::int64_t to) { return ceil_div(value, to) * to; }

int dimension_of(const Access& a, LoopId loop) {
  for (std::size_t d = 0; d < a.index.size(); ++d)
    if (a.index[d].plain_loop() == loop) return static_cast<int>(d);
  return -1;
}

/// The loop that indexes a dimension, alone.
std::optional<LoopId> loop_at(const Access& a, int dimension) {
  if (dimension < 0) return std::nullopt;
  return a.index[static_cast<std::size_t>(dimension)].plain_loop();
}

bool in_registers(Form f) { return f == Form::sums || f == Form::rows; }

}  // namespace

void KernelEmitter::choose_forms() {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    TilePlace& p = places_[i];
    const Buffer& b = k_.buffers[i];
    p.rows = 1;
    for (std::size_t d = 0; d + 1 < p.most.size(); ++d) p.rows *= p.most[d];
    p.columns = p.most.empty() ? 1 : p.most.back();
    p.stride.assign(p.most.size(), 1);
    for (std::size_t d = p.most.size(); d-- > 2;) p.stride[d - 2] = p.stride[d - 1] * p.most[d - 1];
    p.plain = b.role == BufferRole::output && !b.sliding && b.store.valid() && b.fixed_at.valid() &&
              fresh_at_fix_[i] == "true";
    for (std::size_t n = 0; n < k_.nodes.size() && p.plain; ++n) {
      for (const OutputUse& w : k_.nodes[n].writes)
        if (w.buffer == BufferId(i) && (b.store < NodeId(n) || k_.nodes[n].once)) p.plain = false;
      if (k_.nodes[n].flush == BufferId(i) && NodeId(n) < b.store) p.plain = false;
    }
  }
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (places_[i].form == Form::loaded && !k_.buffers[i].sliding &&
        made_before_all_wait(BufferId(i)))
      places_[i].form = Form::ring;
  std::set<BufferId> banned;
  for (;;) {
    assign_forms(banned);
    if (const auto bad = misused()) {
      banned.insert(*bad);
      continue;
    }
    choose_warps();
    std::int64_t floats = 0, largest = 0;
    std::optional<BufferId> victim;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].form != Form::sums) continue;
      const std::int64_t mine = sums_rows(BufferId(i)) * sums_columns(BufferId(i)) * 4;
      floats += mine;
      if (mine > largest) largest = mine, victim = BufferId(i);
    }
    const std::int64_t together = round_up(threads() + copying_threads(), kRegisterThreads);
    const std::int64_t each = std::min<std::int64_t>(255, kRegisters / together / 8 * 8);
    part_floats_ = std::min(kSumsAtOnce, each - kOtherRegisters - floats);
    if (floats <= each - kOtherRegisters) return;
    banned.insert(*victim);
    places_[victim->index()].reason = "its sums would need too many registers";
  }
}

/// Whether every block has written the tensor, and waited for all others, before it is loaded: then
/// it can be copied ahead like an input.
bool KernelEmitter::made_before_all_wait(BufferId b) const {
  const TensorId t = buffer(b).tensor;
  NodeId last_write, first_load;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    const bool writes =
        (n.kind == NodeKind::store && n.tensor == t) ||
        std::ranges::any_of(n.writes, [&](const OutputUse& w) { return w.tensor == t; });
    for (const OutputUse& w : n.writes)
      if (w.tensor == t && !places_[w.buffer.index()].plain) return false;
    if (writes) last_write = NodeId(i);
    if (n.kind == NodeKind::load && n.buffer == b && !first_load.valid()) first_load = NodeId(i);
  }
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::sync && k_.nodes[i].scope == Unit::machine &&
        last_write < NodeId(i) && NodeId(i) < first_load)
      return true;
  return false;
}

/// Optimistic: what could stay in registers, does; misused() then says what cannot.
void KernelEmitter::assign_forms(const std::set<BufferId>& banned) {
  const bool registers = p_.options.registers && !p_.f64 && micro_kernel().fragments;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (k_.buffers[i].role == BufferRole::input) continue;
    places_[i].form = Form::tile;
    places_[i].row_dim = places_[i].column_dim = -1;
  }
  if (!registers) return;
  for (OpId op : k_.ops) {
    const Operator& o = workload_.op(op);
    std::vector<NodeId> nodes;
    for (std::size_t n = 0; n < k_.nodes.size(); ++n)
      if (k_.nodes[n].kind == NodeKind::compute && k_.nodes[n].op == op) nodes.emplace_back(n);
    if (nodes.size() != 1 || workload_.gathers(op)) continue;
    const ScheduleNode& n = k_.node(nodes[0]);
    const auto product = products_.find(nodes[0]);
    std::optional<LoopId> row, column;
    if (product != products_.end()) {
      row = o.loops[static_cast<std::size_t>(product->second.front().rows)];
      column = o.loops[static_cast<std::size_t>(product->second.front().columns)];
    } else {
      for (std::size_t i = 0; i < o.inputs.size() && !column; ++i) {
        const TilePlace& p = places_[buffer_of_input(n, static_cast<int>(i)).index()];
        if (!in_registers(p.form)) continue;
        row = loop_at(o.inputs[i], p.row_dim);
        if (p.form == Form::sums) column = loop_at(o.inputs[i], p.column_dim);
      }
      if (!row) continue;
      for (const OutputUse& w : n.writes) {
        const Access& a = o.outputs[static_cast<std::size_t>(w.output)].target;
        const auto last = a.index.empty() ? std::nullopt : a.index.back().plain_loop();
        if (!column && last && last != row) column = last;
      }
    }
    bool only_these = true;
    const std::vector<std::int64_t>& most = mosts_.at(nodes[0]);
    for (std::size_t l = 0; l < o.loops.size(); ++l) {
      const bool depth =
          product != products_.end() && static_cast<int>(l) == product->second.front().depth;
      if (o.loops[l] != row && o.loops[l] != column && !depth && most[l] > 1) only_these = false;
    }
    if (!only_these) continue;
    for (const OutputUse& w : n.writes) {
      TilePlace& p = places_[w.buffer.index()];
      const Access& a = o.outputs[static_cast<std::size_t>(w.output)].target;
      if (banned.contains(w.buffer) || !p.covered || buffer(w.buffer).sliding) continue;
      p.row_dim = dimension_of(a, *row);
      p.column_dim = column ? dimension_of(a, *column) : -1;
      if (p.row_dim < 0) continue;
      if (p.column_dim >= 0 && p.column_dim + 1 != static_cast<int>(a.index.size())) continue;
      p.form = p.column_dim >= 0 ? Form::sums : Form::rows;
    }
  }
}

bool KernelEmitter::fragment_op(NodeId compute) const {
  return std::ranges::any_of(k_.node(compute).writes, [&](const OutputUse& w) {
    return in_registers(places_[w.buffer.index()].form);
  });
}

/// A tile in registers that some compute cannot use there, if there is one.
std::optional<BufferId> KernelEmitter::misused() const {
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::compute) continue;
    const Operator& o = workload_.op(n.op);
    const bool fragments = fragment_op(NodeId(i));
    std::optional<LoopId> row, column;
    for (const OutputUse& w : n.writes) {
      const TilePlace& p = places_[w.buffer.index()];
      const Access& a = o.outputs[static_cast<std::size_t>(w.output)].target;
      if (fragments && !in_registers(p.form)) {
        for (const OutputUse& other : n.writes)
          if (in_registers(places_[other.buffer.index()].form)) return other.buffer;
      }
      if (!in_registers(p.form)) continue;
      row = loop_at(a, p.row_dim);
      if (p.form == Form::sums) column = loop_at(a, p.column_dim);
    }
    const auto product = products_.find(NodeId(i));
    for (std::size_t x = 0; x < o.inputs.size(); ++x) {
      const BufferId b = buffer_of_input(n, static_cast<int>(x));
      if (!b.valid()) continue;
      const TilePlace& p = places_[b.index()];
      if (!in_registers(p.form)) continue;
      if (!fragments) return b;
      const auto its_row = loop_at(o.inputs[x], p.row_dim);
      const auto its_column = loop_at(o.inputs[x], p.column_dim);
      if (its_row != row) return b;
      if (product != products_.end()) {
        const int at = static_cast<int>(x);
        bool operand = false;
        for (const Product& one : product->second) {
          const LoopId depth = o.loops[static_cast<std::size_t>(one.depth)];
          if (at == one.right) return b;
          if (at == one.left && (p.form != Form::sums || its_column != depth)) return b;
          operand = operand || at == one.left;
        }
        if (!operand && p.form != Form::rows) return b;
        continue;
      }
      if (p.form == Form::sums && !column) column = its_column;  // a reduction over it
      if (p.form == Form::sums && its_column != column) return b;
    }
  }
  return std::nullopt;
}

void KernelEmitter::choose_warps() {
  std::vector<std::int64_t> rows, columns;  // in blocks of 16
  std::int64_t area = 0;
  for (const auto& [node, products] : products_) {
    const auto& most = mosts_.at(node);
    rows.push_back(ceil_div(most[static_cast<std::size_t>(products.front().rows)], 16));
    columns.push_back(ceil_div(most[static_cast<std::size_t>(products.front().columns)], 16));
    area = std::max(area, rows.back() * columns.back());
  }
  for (const auto& [node, blocks] : contracted_)
    if (!products_.contains(node)) area = std::max(area, blocks);
  for (const TilePlace& p : places_) {
    if (!in_registers(p.form)) continue;
    rows.push_back(ceil_div(p.most[static_cast<std::size_t>(p.row_dim)], 16));
    if (p.form == Form::sums) columns.push_back(ceil_div(p.columns, 16));
  }
  // The most warps that share all the blocks evenly; of a number that was asked for, a divisor.
  // Where that is under half of what is wanted (7, 11, 13 blocks), more than wanted rather than a
  // warp with all.
  const int asked = p_.options.warps > 0 ? p_.options.warps : k_.launch.warps.value_or(0);
  const int wanted = asked > 0 ? asked : area >= 32 ? 8 : 4;
  const auto largest = [&](int most, const std::vector<std::int64_t>& blocks, int divides) {
    const auto even = [&](int w) {
      return (asked == 0 || divides % w == 0) &&
             std::ranges::all_of(blocks, [&](std::int64_t b) { return b % w == 0; });
    };
    int fewer = most;
    while (fewer > 1 && !even(fewer)) --fewer;
    if (asked > 0 || 2 * fewer >= most) return fewer;
    for (int w = most + 1; w <= kMostWarps; ++w)
      if (even(w)) return w;
    return fewer;
  };
  warp_rows_ = rows.empty() ? wanted : largest(wanted, rows, wanted);
  warp_columns_ = rows.empty() ? 1
                               : largest(static_cast<int>(ceil_div(wanted, warp_rows_)), columns,
                                         wanted / warp_rows_);
  for (OpId op : k_.ops)
    for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
      const ScheduleNode& n = k_.nodes[i];
      if (n.kind != NodeKind::compute || n.op != op) continue;
      const auto product = products_.find(NodeId(i));
      for (std::size_t w = 0; w < n.writes.size(); ++w) {
        TilePlace& p = places_[n.writes[w].buffer.index()];
        if (p.form != Form::sums) continue;
        p.split = warp_columns_ == 1 ? Split::whole : Split::columns;
        if (warp_columns_ > 1 && product != products_.end() &&
            places_[buffer_of_input(n, product->second[w].left).index()].form == Form::sums)
          p.split = Split::partial;
      }
    }
}

bool KernelEmitter::is_operand(BufferId b) const {
  return std::ranges::any_of(products_, [&](const auto& products) {
    const ScheduleNode& n = k_.node(products.first);
    return std::ranges::any_of(products.second, [&](const Product& p) {
      return buffer_of_input(n, p.left) == b || buffer_of_input(n, p.right) == b;
    });
  });
}

std::int64_t KernelEmitter::sums_rows(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  return ceil_div(p.most[static_cast<std::size_t>(p.row_dim)], 16) / warp_rows_;
}

std::int64_t KernelEmitter::sums_columns(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  return ceil_div(p.columns, 16) * 2 / (p.split == Split::columns ? warp_columns_ : 1);
}

std::string KernelEmitter::first_column(BufferId b) const {
  if (places_[b.index()].split != Split::columns) return "0";
  return "me.column * " + std::to_string(sums_columns(b));
}

std::string KernelEmitter::sums_type(BufferId b) const {
  if (places_[b.index()].form == Form::rows)
    return "RowValues<" + std::to_string(sums_rows(b)) + ">";
  return "Sums<" + std::to_string(sums_rows(b)) + ", " + std::to_string(sums_columns(b)) + ">";
}

/// Everything in the block's shared memory: barriers, tiles, what warps exchange.
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
  return is_operand(b) || (!p.covered && std::ranges::any_of(k_.nodes, [&](const ScheduleNode& n) {
           for (BufferId f = n.flush; f.valid(); f = buffer(f).outer)
             if (f == b) return true;
           return false;
         }));
}

/// From which phase to which a tile's place holds something of it.
std::pair<int, int> KernelEmitter::alive(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  const NodeId end(k_.nodes.size());
  std::pair<int, int> span{phase_of(end), 0};
  const auto touch = [&](NodeId n) {
    span = {std::min(span.first, phase_of(n)), std::max(span.second, phase_of(n))};
  };
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.buffer == b) touch(NodeId(i));
    for (const InputUse& use : n.reads)
      if (use.buffer == b) touch(NodeId(i));
    for (const OutputUse& use : n.writes)
      if (use.buffer == b) touch(NodeId(i));
  }
  // Zeros are there from the beginning on; what has changed is written at the end.
  if (zero_filled(b)) span.first = 0;
  if (is_written(b) && !p.plain) span.second = phase_of(end);
  return span;
}

/// Whether a computed tile may be rounded to its tensor's 16 bits, as what goes home is.
bool KernelEmitter::can_be_narrow(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  const DType type = workload_.tensor(buffer(b).tensor).dtype;
  return p.form == Form::tile && !p.narrow && p.at_once && !slides(b) && !buffer(b).atomic &&
         micro_kernel().fragments && (type == DType::f16 || type == DType::bf16);
}

void KernelEmitter::lay_out() {
  const bool plain = micro_kernel().plain_rows;
  const int asked_stages =
      p_.options.stages > 0 ? p_.options.stages : k_.launch.stages.value_or(0);
  const auto shape = [&] {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      TilePlace& p = places_[i];
      p.bytes = 0;
      if (in_registers(p.form)) continue;
      const Tensor& t = workload_.tensor(k_.buffers[i].tensor);
      const bool four = (p.form == Form::tile && !p.narrow) || widened(k_.buffers[i].tensor);
      p.element_bytes = p.form == Form::tile && p_.f64 ? 8 : four ? 4 : size_of(t.dtype);
      const std::int64_t vector = 16 / p.element_bytes;
      p.need_rows = std::max(p.need_rows, p.rows);
      p.need_columns = round_up(std::max(p.need_columns, p.columns), vector);
      const std::int64_t chunks = p.need_columns / vector,
                         pairs = chunks == 1 ? 1 : round_up(chunks, 2);
      p.swizzled = !plain;
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
  std::vector<std::pair<int, int>> spans;
  for (std::size_t i = 0; i < places_.size(); ++i) spans.push_back(alive(BufferId(i)));
  const auto total = [&] {
    barrier_bytes_ = 0;
    for (const TilePlace& p : places_)
      if (p.form == Form::ring) barrier_bytes_ += 16 * p.stages;
    const std::int64_t first = round_up(barrier_bytes_, kSharedLine);
    scratch_offset_ = first;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      TilePlace& p = places_[i];
      if (in_registers(p.form)) continue;
      p.bytes = p.need_rows * p.pitch * p.element_bytes * p.stages;
      // As low as the tiles before it allow that are alive in one of its phases.
      p.offset = first;
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t j = 0; j < i; ++j) {
          const TilePlace& q = places_[j];
          const std::int64_t end = q.offset + round_up(q.bytes, kSharedLine);
          if (in_registers(q.form) || q.offset >= p.offset + round_up(p.bytes, kSharedLine) ||
              end <= p.offset || spans[i].second < spans[j].first ||
              spans[j].second < spans[i].first)
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
  const Level& level = p_.machine().level(k_.level);
  if (p_.machine().kind == "gpu" && level.capacity.value > 0)
    room = std::min(room, level.capacity.value - 1024);
  if (p_.options.shared_room > 0) room = p_.options.shared_room;
  shared_bytes_ = total();
  while (shared_bytes_ > room) {
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
    if (reason.empty() && p.form == Form::loaded) reason = "this kernel makes it";
    if (reason.empty() && p.narrow) reason = "rounded: there is no room for wider elements";
    if (reason.empty()) reason = "warps share it";
    uses.push_back({.tensor = tensor_name(k_.buffers[i].tensor),
                    .level = p_.machine().level(k_.buffers[i].level).name,
                    .place = in_registers(p.form)   ? "registers"
                             : p.form == Form::tile ? "shared, " + tile_type(BufferId(i))
                                                    : "shared",
                    .stages = p.stages,
                    .bytes = p.bytes,
                    .reason = reason});
  }
  return uses;
}

}  // namespace tilewright::cuda
