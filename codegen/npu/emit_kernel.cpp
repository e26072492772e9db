// A kernel's blocks as one program.
#include <algorithm>
#include <numeric>

#include "codegen/npu/emitter.h"
#include "codegen/npu/pipeline.h"
#include "codegen/npu/synchronise.h"
#include "core/workload/expr.h"

namespace tilewright::npu {

KernelEmitter::KernelEmitter(const Schedule& schedule, int index, const EmitOptions& options)
    : BlockWalk(schedule, schedule.kernels[static_cast<std::size_t>(index)]),
      index_(index),
      options_(options) {
  for (const char* reserved : {"block", "blocks"}) names_.fresh(reserved);
  for (const tilewright::Tensor& t : w_.tensors()) names_.fresh(t.name);
  row_counter_ = names_.fresh("row");
  column_counter_ = names_.fresh("column");
}

KernelEmitter KernelEmitter::with_moves() const {
  KernelEmitter again(s_, index_, options_);
  again.widens_ = true;
  again.moves_elements_ = widens_;
  return again;
}

Result<KernelSource> KernelEmitter::emit() {
  try {
    check();
    choose_places();
    measure();
    lay_out();
    KernelSource source;
    source.program = program();
    source.instructions = emitted_;
    source.flags = flags_;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const TilePlace& p = places_[i];
      source.tiles.push_back({.tensor = tensor_name(buffer(BufferId(i)).tensor),
                              .level = std::string(name_of(p.memory)),
                              .layout = std::string(name_of(p.layout)),
                              .type = std::string(name_of(p.type)),
                              .copies = p.copies,
                              .bytes = p.copies * copy_bytes(BufferId(i))});
    }
    return source;
  } catch (const NeedsMoves&) {
    return with_moves().emit();
  } catch (const Refused& refused) {
    return Reason{k_.name + ": " + refused.text, refused.shortage};
  }
}

Result<bool> KernelEmitter::taken() {
  try {
    check();
    choose_places();
    measure();
    lay_out();
    walk_alike(emitted_, [&](std::int64_t block) { traced(block, Kept::none); });
    return true;
  } catch (const NeedsMoves&) {
    return with_moves().taken();
  } catch (const Refused& refused) {
    return Reason{k_.name + ": " + refused.text, refused.shortage};
  }
}

std::int64_t KernelEmitter::capacity(Memory m) const {
  return s_.machine->level(*s_.machine->find(level_of(m))).capacity.value;
}

/// What this target has no code for.
void KernelEmitter::check() const {
  codegen::check_blocks(w_, k_);
  lowering::refuse_once(w_, k_, "npu");
  codegen::check_sums(w_, k_, "npu");
  for (const ScheduleNode& n : k_.nodes) {
    if (n.kind == NodeKind::loop && n.binding != Binding::grid && unit_of(n.binding))
      throw Refused{"loop " + w_.loop(n.loop).name + " is bound to " +
                    std::string(name_of(n.binding)) + ", and a core has no such units"};
    if (n.kind == NodeKind::sync && n.scope == Unit::machine)
      throw Refused{"Y.grid: the npu target does not let blocks wait for one another"};
    if (n.kind == NodeKind::store && n.atomic)
      throw Refused{"S." + tensor_name(n.tensor) +
                    "!atomic: the npu target adds nothing up at home"};
  }
  for (OpId op : k_.ops)
    if (w_.op(op).running)
      throw Refused{w_.op(op).name +
                    " reads its sum while it runs, for which the npu target has "
                    "no code"};
  for (const tilewright::Buffer& b : k_.buffers)
    if (b.sliding)
      throw Refused{tensor_name(b.tensor) + " slides: the npu target keeps no part of a tile"};
}

/// The grid loops, outermost first, where each is inside the one before and blocks count them all;
/// otherwise none: blocks then differ by their number only.
std::vector<NodeId> KernelEmitter::grid_loops() const {
  std::vector<NodeId> loops;
  std::int64_t blocks = 1;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind == NodeKind::pack) return {};
    if (n.kind != NodeKind::loop || n.binding != Binding::grid) continue;
    NodeId p = n.parent;
    while (p.valid() && !loops.empty() && p != loops.back()) p = k_.node(p).parent;
    if (!loops.empty() && !p.valid()) return {};
    loops.emplace_back(i);
    blocks *= n.max_trips;
  }
  return blocks == k_.blocks ? loops : std::vector<NodeId>{};
}

/// One block's program, loops found again.
std::vector<Rolled> KernelEmitter::block_program(std::int64_t block) {
  traced(block, Kept::all);
  pipeline(trace_);
  flags_ += synchronise(trace_, core().events).flags;
  return reroll(trace_);
}

/// The blocks from `first` on that differ in the coordinates from `depth` on.
std::vector<Rolled> KernelEmitter::by_coordinate(const std::vector<NodeId>& loops,
                                                 std::size_t depth, std::int64_t first) {
  const bool linear = loops.empty();
  if (depth == (linear ? 1 : loops.size())) return block_program(first);
  const std::int64_t inside = linear ? 1 : blocks_below(k_, loops[depth]);
  const std::int64_t count = linear ? k_.blocks : k_.node(loops[depth]).max_trips;
  Runs positions;
  for (std::int64_t i = 0; i < count; ++i)
    positions.add(by_coordinate(loops, depth + 1, first + i * inside));
  Rolled choice;
  choice.choices = positions.take();
  choice.coordinate = scalar("block");
  if (inside > 1) choice.coordinate = choice.coordinate / IntExpr(inside);
  if (depth > 0) choice.coordinate = choice.coordinate % IntExpr(count);
  choice.counter = linear ? "number" : counters_.at(w_.loop(k_.node(loops[depth]).loop).name);
  std::vector<Rolled> all;
  all.push_back(std::move(choice));
  return all;
}

/// Empty buffers, the first copy of each to be filled next.
void KernelEmitter::begin_block() {
  tiles_.assign(places_.size(), {});
  opens_.assign(places_.size(), 0);
  parts_.assign(1, 0);
  lanes_made_ = {};
  for (auto* t : {&ub_transit_, &l1_transit_})
    if (*t) (*t)->next = 0;
}

Program KernelEmitter::program() {
  std::vector<Rolled> body = by_coordinate(grid_loops(), 0, 0);
  emitted_ += 2 * flags_;
  Program p{.blocks = k_.blocks};
  declare(p);
  p.body = statements(body, {});
  return p;
}

void KernelEmitter::declare(Program& p) const {
  for (std::size_t t = 0; t < w_.tensors().size(); ++t) {
    const tilewright::Tensor& tensor = w_.tensors()[t];
    bool used = false, written = false;
    for (const tilewright::Buffer& b : k_.buffers) {
      if (b.tensor != TensorId(t)) continue;
      written |= b.role == BufferRole::output || b.leaves;
      used |= b.role != BufferRole::intermediate || b.leaves;
    }
    // A chain of buffers that ends on chip: its inner ones only look like outputs.
    for (const tilewright::Buffer& b : k_.buffers)
      if (b.tensor == TensorId(t) && b.role == BufferRole::intermediate && !b.leaves) used = false;
    for (OpId op : k_.ops)  // a gather reads home
      used |= std::ranges::any_of(w_.op(op).inputs, [&](const Access& a) {
        return a.tensor == TensorId(t) && is_gather(a);
      });
    if (!used) continue;
    const bool kept =
        w_.is_output(TensorId(t)) || std::ranges::any_of(w_.consumers(TensorId(t)), [&](OpId op) {
          return std::ranges::find(k_.ops, op) == k_.ops.end();
        });
    p.tensors.push_back(
        {.name = tensor.name,
         .role = !written ? Role::input
                 : kept   ? Role::output
                          : Role::scratch,
         .type = tensor.dtype,
         .shape = tensor.shape.empty() ? std::vector<std::int64_t>{1} : tensor.shape});
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const TilePlace& place = places_[i];
    if (place.elements == 0) continue;
    p.buffers.push_back({.name = place.name,
                         .memory = place.memory,
                         .address = place.address,
                         .elements = place.copies * place.elements,
                         .type = place.type,
                         .tensor = tensor_name(buffer(BufferId(i)).tensor)});
  }
  for (const Buffer& b : extra_) p.buffers.push_back(b);
}

void KernelEmitter::begin_part(NodeId node) { parts_.back() = node.value; }

void KernelEmitter::begin_iteration(NodeId loop, std::int64_t i) {
  const ScheduleNode& n = k_.node(loop);
  if (measuring_ || n.binding == Binding::grid) return;
  std::vector<TraceNode>& around = *into_.back();
  if (i == 0)
    around.push_back({.counter = counters_.at(w_.loop(n.loop).name), .part = parts_.back()});
  around.back().iterations.emplace_back();
  into_.push_back(&around.back().iterations.back());
  parts_.push_back(0);
}

void KernelEmitter::end_iteration(NodeId loop) {
  if (measuring_ || k_.node(loop).binding == Binding::grid) return;
  into_.pop_back();
  parts_.pop_back();
}

/// Instructions to come. Blocks are measured before any is made, by the least that they have: what
/// is too long is refused then.
void KernelEmitter::charge(std::int64_t instructions) {
  std::int64_t& so_far = measuring_ ? measured_ : emitted_;
  so_far += instructions;
  if (so_far > options_.most_instructions) throw too_long();
}

Refused KernelEmitter::too_long() const {
  return Refused{"it unrolls to more than " + std::to_string(options_.most_instructions) +
                 " instructions"};
}

const BlockKinds& KernelEmitter::alike() {
  // A block has an instruction.
  if (k_.blocks > options_.most_instructions) throw too_long();
  if (!alike_)
    alike_.emplace(s_, k_, grid_loops(), [&](OpId op, LoopId loop) {
      bool is_constant = false;  // in a slab
      const SlabLoops slab = slab_loops(op);
      for (const Output& o : w_.op(op).outputs)
        each_index(o.value, [&](LoopId i) {
          is_constant |= i == loop && i != slab.rows && i != slab.columns;
        });
      return is_constant;
    });
  return *alike_;
}

void KernelEmitter::walk_alike(std::int64_t& so_far,
                               const std::function<void(std::int64_t block)>& walk_one) {
  std::int64_t all = 0;
  for (const AlikeBlocks& b : alike().all()) {
    const std::int64_t before = so_far;
    walk_one(b.first);
    // Neither one's instructions nor the blocks are more than most_instructions.
    all = std::min(all + (so_far - before) * b.times, options_.most_instructions + 1);
  }
  so_far = all;
  if (all > options_.most_instructions) throw too_long();
}

void KernelEmitter::emit_step(TraceStep step) {
  charge(1);
  if (measuring_) return;
  if (kept_ != Kept::all) return;
  step.number = emitted_;
  into_.back()->push_back({.step = std::move(step), .part = parts_.back()});
}

}  // namespace tilewright::npu
