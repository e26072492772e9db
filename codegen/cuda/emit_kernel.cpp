// A kernel's tree, walked once for the copying warp and once for the computing ones.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "codegen/common/expression.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/launch_text.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/block_time.h"
#include "core/lowering/gpu/block_work.h"
#include "core/lowering/gpu/early.h"
#include "core/lowering/gpu/warpgroup_pair.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::cuda {
namespace {

/// What is asked for; else of floats what is priced to be quicker, as the planner's price supposes.
std::string micro_kernel_of(const Program& p, int index) {
  if (!p.options.micro_kernel.empty() || p.workload().dtype() != DType::f32)
    return p.options.micro_kernel;
  if (p.by_fma) return "simt";
  const auto rates = lowering::block_rates(p.machine(), DType::f32);
  if (!rates || rates->tf32 == 0) return "";
  const auto time = lowering::block_time(p.schedule, index, *rates,
                                         {.warps = p.options.warps, .stages = p.options.stages});
  return time ? time->micro_kernel : "";
}

}  // namespace

KernelEmitter::KernelEmitter(Program& program, int index, bool tight)
    : RangeEmitter(program.workload(), program.schedule.kernels[static_cast<std::size_t>(index)]),
      p_(program),
      index_(index),
      tight_(tight),
      choices_{
          .micro_kernel = tight ? program.options.micro_kernel : micro_kernel_of(program, index),
          .warps = program.options.warps,
          .copy_warps = program.options.copy_warps,
          .stages = program.options.stages,
          .registers = program.options.registers,
          .shared_room = program.options.shared_room,
          .gives_registers = program.options.warpgroups,
          .tight = tight},
      block_(program.schedule, index, choices_) {
  for (const Buffer& b : k_.buffers)
    names_of_.push_back(names_.fresh(identifier("", tensor_name(b.tensor)) + "_tile"));
}

std::string KernelEmitter::expression_text(
    const Expr& e, OpId op, const std::vector<std::string>& loops,
    const std::function<std::string(int, bool)>& of_output) const {
  const auto of_index = [&](LoopId loop) {
    return real() + "(" + loops[static_cast<std::size_t>(workload_.local_index(op, loop))] + ")";
  };
  return expression(e, real(), of_index, of_output, true);
}

/// What an operator gives one of its outputs.
std::string KernelEmitter::made_text(const Output& out, OpId op,
                                     const std::vector<std::string>& loops,
                                     const std::function<std::string(int, bool)>& of_output) const {
  return made_as(workload_.tensor(out.target.tensor).dtype, out,
                 expression_text(out.value, op, loops, of_output));
}

std::string KernelEmitter::ref(BufferId b) const { return held(b); }

Result<KernelText> KernelEmitter::emit() {
  try {
    check();
    pass();  // how large tiles are, and which computes use them whole
    block_.choose_forms();
    forms_chosen_ = true;
    pass();  // what products read of them
    block_.lay_out();
    measuring_ = false;
    block_.keep_ahead();
    pass();
    block_.lay_out();
  } catch (const Refused& refused) {
    return Reason{k_.name + ": " + refused.text, refused.shortage};
  }
  KernelText text = launch_text(p_, index_,
                                {.body = out_.text(),
                                 .threads = threads() + copying_threads(),
                                 .shared_bytes = shared_bytes(),
                                 .resident = resident()});
  text.gives_registers = block_.program().registers.blocks > 0;
  text.tiles = tile_uses();
  text.notes = notes_;
  text.program = lowering::describe(block_.described(roles_));
  text.cold = cold();
  return text;
}

/// Bytes of shared memory of a block of the launch before, where that is by warpgroups; else 0.
std::int64_t KernelEmitter::shared_before() const {
  const auto before = p_.before(index_);
  if (!p_.options.micro_kernel.empty() || !before) return 0;
  const auto product = lowering::warpgroup_product(before->schedule, before->kernel,
                                                   p_.options.warps, p_.options.stages);
  if (product) return product->shared_bytes;
  const auto pair = lowering::warpgroup_pair(before->schedule, before->kernel, p_.options.warps,
                                             p_.options.stages);
  return pair ? pair->shared_bytes : 0;
}

/// That the launch asks for: more than half of an SM's, where each block can have one, but finds no
/// room beside a block of the launch before. Blocks of a launch that begins early would else find
/// several places on the SMs that this leaves alone: 1.19 times the time, of a gated layer of 84
/// blocks on 48 SMs (h200-tiles-alone-turns.json).
std::int64_t KernelEmitter::shared_bytes() const {
  const std::int64_t bytes = block_.program().shared_bytes;
  const Machine& m = p_.machine();
  const auto shared = m.find("shared");
  if (!shared || !p_.begins_early(index_) || k_.blocks > m.units.front().count) return bytes;
  const std::int64_t all = m.level(*shared).capacity.value, before = shared_before();
  const bool beside = before + bytes + 2 * lowering::kSharedReserved <= all;
  return before == 0 || beside ? bytes : std::max(bytes, all / 2);
}

/// A chain of convolutions spills with 40 registers; drawn kernels of 64 and more do not.
constexpr std::int64_t kLeastOfBounds = 64;

/// Blocks of an SM that ptxas has to leave registers for. Of floats as many as the price supposes,
/// unless that leaves a thread fewer registers than kLeastOfBounds: left alone, ptxas gives it up
/// to 255, and half of the blocks have room. Else as many as there are, where the price supposes
/// those.
std::int64_t KernelEmitter::resident() const {
  if (const std::int64_t blocks = block_.program().registers.blocks; blocks > 0) return blocks;
  const Machine& m = p_.machine();
  if (m.kind != "gpu") return 0;
  const std::int64_t asked =
      lowering::blocks_asked(k_.blocks, threads() + copying_threads(), m.units.front().count,
                             m.units.front().registers, lowering::kLeastOfTiled);
  const bool floats = std::ranges::all_of(workload_.tensors(), [](const Tensor& t) {
    return t.dtype == DType::f32 || is_integer(t.dtype);
  });
  const auto known = lowering::block_rates(m, floats ? DType::f32 : workload_.dtype());
  const auto work = lowering::block_work(p_.schedule, index_, choices_);
  if (!known || !work) return asked;
  lowering::BlockRates rates = *known;
  if (floats)
    (block_.micro_kernel().matrix ? rates.mma : rates.tf32) =
        block_.micro_kernel().matrix ? rates.tf32 : 0;
  const auto forms = lowering::block_forms(*work, rates);
  if (!forms) return asked;
  const std::int64_t left =
      lowering::most_registers(forms->threads, rates.registers / forms->resident);
  if (floats && forms->resident > 1 && left >= kLeastOfBounds) return forms->resident;
  return asked <= forms->resident ? asked : 0;
}

/// What this target has no code for.
void KernelEmitter::check() const {
  if (k_.blocks > 0x7fffffff) throw Refused{"it has more than 2^31 blocks"};
  for (const Loop& l : workload_.loops())
    if (l.extent >= (std::int64_t{1} << 31))
      throw Refused{"loop " + l.name + " has 2^31 iterations or more"};
  check_blocks(workload_, k_, true);
  for (const Buffer& b : k_.buffers) {
    const Level& level = p_.machine().level(b.level);
    const std::string what = tensor_name(b.tensor) + " at " + level.name;
    if (level.managed != Managed::software)
      throw Refused{what + ": the caches of machine " + p_.machine().name +
                    " are filled by hardware, and this target's kernels fill levels that software "
                    "manages, as machines of kind gpu have them"};
    if (level.private_to < Unit::grid)
      throw Refused{what + ": no memory that software manages is shared by blocks"};
    if (level.private_to == Unit::cluster)
      throw Refused{what + ": clusters of thread blocks are not emitted"};
  }
  check_sums(workload_, k_, "cuda", true);
}

void KernelEmitter::pass() {
  out_ = Lines(1);
  variables_ = {};
  divisors_.clear();
  met_at_ = 0;
  roles_.clear();
  steps_.clear();
  block_.forget_room();
  const Names kept = names_;
  out_.line("TW_SHARED(memory);");
  out_.line("const int thread = threadIdx.x, warp = thread / 32;");
  declare();
  if (p_.begins_early(index_)) {
    out_.line("launches_ended();");
    if (lowering::lets_next_begin(p_.schedule, index_, 0)) out_.line("next_launch_may_begin();");
  }
  if (has_copies(NodeId(0))) {
    out_.open("if (warp >= " + std::to_string(threads() / 32) + ")");
    out_.comment("Copying warps: every tile that is loaded, as soon as there is room for it.");
    if (const auto& r = block_.program().registers; r.blocks > 0)
      out_.line("fewer_registers<" + std::to_string(r.copying) + ">();");
    out_.line("const int copier = thread - " + std::to_string(threads()) + ";");
    copying_ = true;
    walk();
    out_.line("return;");
    out_.close();
    roles_.push_back({.name = "copy",
                      .first_warp = threads() / 32,
                      .warps = copying_threads() / 32,
                      .steps = std::exchange(steps_, {})});
  }
  names_ = kept;
  copying_ = false;
  if (const auto& r = block_.program().registers; r.blocks > 0)
    out_.line("more_registers<" + std::to_string(r.computing) + ">();");
  out_.line("const " + place_type() + " me{warp / " +
            std::to_string(block_.program().warp_columns) + ", warp % " +
            std::to_string(block_.program().warp_columns) + ", thread % 32};");
  out_.line("(void)me;");
  const auto filled = [&](const BlockTile& t) { return block_.zero_filled(t.buffer); };
  if (std::ranges::any_of(tiles(), filled)) {
    out_.comment("What is read of a tile but not computed: it adds nothing to products.");
    act(BlockAct::fill, [&] {
      for (const BlockTile& t : tiles()) {
        if (!filled(t)) continue;
        out_.line("for (int i = thread; i < " +
                  std::to_string(t.need_rows * t.pitch * t.stages * t.units) +
                  "; i += " + std::to_string(threads()) + ") " + name(t.buffer) +
                  "_data[i] = " + (t.narrow ? tile_type(t.buffer) + "{}" : "0") + ";");
      }
    });
  }
  walk();
  names_ = kept;
  roles_.push_back(
      {.name = "compute", .warps = threads() / 32, .steps = std::exchange(steps_, {})});
}

void KernelEmitter::walk() {
  rest_ = "block";
  blocks_here_ = k_.blocks;
  open_.clear();
  defined_.assign(1, {});
  fixed_.assign(k_.buffers.size(), std::nullopt);
  out_.line("const int block = blockIdx.x;");
  out_.line("(void)block;");
  SymRanges ranges = whole_ranges();
  for (std::size_t i = 0; i < tiles().size(); ++i) {
    const BufferId b(i);
    const BlockTile& p = tiles()[i];
    const std::string rank = std::to_string(p.most.size());
    if (p.form == Form::ring)
      out_.line("Ring<" + rank + ", " + std::to_string(p.stages) + "> " + name(b) + "_ring{" +
                name(b) + "_barriers};");
    const std::string each = p.units > 1 ? "[" + std::to_string(p.units) + "]" : "";
    const auto record = [&] { out_.line("Held<" + rank + "> " + name(b) + "_held" + each + ";"); };
    const bool early = block_.slides(b) && buffer(b).role == BufferRole::intermediate &&
                       (copying_ || !block_.is_written(b));
    if (early && has_record(b)) record();
    if (const std::int64_t most = block_.finished_boxes(b); most > 0)
      out_.line("Finished<" + rank + ", " + std::to_string(most) + "> " + name(b) + "_finished" +
                each + ";");
    if (p.own) out_.line("int " + name(b) + "_unit = " + (p.units > 1 ? "0;" : "-1;"));
    if (copying_) continue;
    if (block_.chained(b) && buffer(b).fixed_at.valid())
      out_.line("Box<" + rank + "> " + name(b) + "_fixed{};");
    if (block_.slides(b))
      out_.line("int " + name(b) + "_place" + each + (each.empty() ? " = 0;" : " = {};"));
    if (p.form == Form::sums || p.form == Form::rows) out_.line(sums_type(b) + " " + name(b) + ";");
    if (!early && has_record(b)) record();
  }
  enter_body(NodeId(0), ranges);
  visit_children(NodeId(0), ranges);
  if (copying_) return;
  for (BufferId b : block_.innermost_first()) {
    const BlockTile& p = block_.tile(b);
    if (!block_.is_written(b) || p.plain) continue;
    const std::string unit = name(b) + "_unit";
    if (p.units > 1)
      out_.open("for (" + unit + " = 0; " + unit + " < " + std::to_string(p.units) + "; ++" + unit +
                ")");
    out_.open("if (" + held(b) + ".changed)");
    write_out(b, nullptr);
    out_.close();
    if (p.units > 1) out_.close();
  }
}

std::string KernelEmitter::first_column(BufferId b) const {
  if (block_.tile(b).split != Split::columns) return "0";
  return "me.column * " + std::to_string(block_.sums_columns(b));
}

std::string KernelEmitter::sums_type(BufferId b) const {
  if (block_.tile(b).form == Form::rows)
    return "RowValues<" + std::to_string(block_.sums_rows(b)) + ">";
  return "Sums<" + std::to_string(block_.sums_rows(b)) + ", " +
         std::to_string(block_.sums_columns(b)) + ">";
}

std::vector<TileUse> KernelEmitter::tile_uses() const {
  std::vector<TileUse> uses;
  for (const BlockTile& t : tiles()) {
    const Buffer& b = buffer(t.buffer);
    uses.push_back({.tensor = tensor_name(b.tensor),
                    .level = p_.machine().level(b.level).name,
                    .place = t.view.valid()             ? "registers, at each use"
                             : t.in_registers()         ? "registers"
                             : t.form == Form::computed ? "shared, " + tile_type(t.buffer)
                                                        : "shared",
                    .stages = t.stages,
                    .bytes = t.bytes,
                    .reason = block_.reason(t.buffer)});
  }
  return uses;
}

void KernelEmitter::enter_body(NodeId body, SymRanges& ranges) {
  const ScheduleNode& n = k_.node(body);
  for (BufferId b : n.fixes) settle(b, body);
  for (const Inference& i : n.infer) infer(i, ranges, false);
  for (std::size_t i = 0; i < k_.buffers.size(); ++i)
    for (const BlockPart& part : k_.buffers[i].parts) {
      if (part.body != body) continue;
      fixed_[i] = part_of(k_.buffers[i], part, ranges);
      record(BufferId(i), *fixed_[i]);
      begin_finished(BufferId(i));
    }
  for (BufferId b : n.fixes) {
    if (!buffer(b).parts.empty()) continue;
    const SymBox tile = tile_of(buffer(b), ranges);
    record(b, tile);
    fixed_[b.index()] = tile;
    if (block_.chained(b) && !copying_) out_.line(name(b) + "_fixed = " + box_text(tile) + ";");
    begin_finished(b);
    if (block_.slides(b) && buffer(b).role == BufferRole::intermediate) {
      const std::string now = names_.fresh(name(b) + "_now");
      out_.line("const Box<" + std::to_string(tile.size()) + "> " + now + " = " + box_text(tile) +
                ";");
      out_.open("if (!" + held(b) + ".is(" + now + "))");
      if (block_.is_written(b) && !copying_) {
        out_.open("if (" + held(b) + ".changed)");
        write_out(b, nullptr);
        out_.close();
      }
      slide(b, now);
      out_.close();
    }
    if (!block_.is_written(b)) continue;
    const OpId op = workload_.producer(buffer(b).tensor);
    block_.note_fresh(b, initialises(op, ranges, buffer(b).atomic));
  }
}

void KernelEmitter::visit(NodeId id, const SymRanges& ranges) {
  if (copying_ && !has_copies(id)) return;
  const ScheduleNode& n = k_.node(id);
  switch (n.kind) {
    case NodeKind::loop:
      return nest(
          {.kind = n.binding == Binding::grid ? BlockStep::Kind::blocks : BlockStep::Kind::loop,
           .node = id,
           .index = workload_.loop(n.loop).name + "/" + std::to_string(n.step),
           .count = n.max_trips},
          [&] {
            n.binding == Binding::grid ? visit_grid_loop(id, ranges) : visit_loop(id, ranges);
          });
    case NodeKind::sequence:
      return visit_children(id, ranges);
    case NodeKind::pack: {
      const std::string outer = rest_;
      const std::int64_t outer_blocks = blocks_here_;
      for (NodeId c : n.children) {
        if (copying_ && !has_copies(c)) continue;
        const std::int64_t first = k_.node(c).first_block, blocks = blocks_of(k_, c);
        rest_ = names_.fresh("rest");
        out_.open("if (" + outer + " >= " + std::to_string(first) + " && " + outer + " < " +
                  std::to_string(first + blocks) + ")");
        out_.line("const int " + rest_ + " = " + outer + " - " + std::to_string(first) + ";");
        defined_.emplace_back();
        blocks_here_ = blocks;
        nest({.kind = BlockStep::Kind::part, .node = c, .first = first, .count = blocks}, [&] {
          visit_by_blocks({&c, 1}, ranges);
        });
        defined_.pop_back();
        out_.close();
      }
      rest_ = outer;
      blocks_here_ = outer_blocks;
      return;
    }
    case NodeKind::load:
      if (n.only_for.valid()) return;  // its compute brings it, where that runs
      return visit_load(id, ranges);
    case NodeKind::compute:
      return visit_compute(id, ranges);
    case NodeKind::store:
      return visit_store(id, ranges);
    case NodeKind::sync:
      if (n.scope == Unit::machine && copying_) load_ahead(id, ranges);
      if (n.scope == Unit::machine)
        steps_.push_back({.kind = BlockStep::Kind::barrier, .node = id});
      if (n.scope == Unit::machine) return out_.line("grid_sync(arrivals);");
      if (!copying_) meet();
      return;
    case NodeKind::drop:
      return visit_drop(id);
  }
}

void KernelEmitter::visit_drop(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  const BlockTile& p = block_.tile(n.buffer);
  if (block_.views_outer(n.buffer)) return;  // whoever uses it reads it again
  out_.comment("D." + tensor_name(n.tensor));
  steps_.push_back({.kind = BlockStep::Kind::drop, .node = id, .tile = n.buffer});
  if (p.form == Form::ring) {
    out_.line(name(n.buffer) + (copying_ ? "_ring.full = false;" : "_ring.drop();"));
  } else if (n.all_units && p.units > 1) {
    out_.line("for (auto& held : " + name(n.buffer) + "_held) held.full = false;");
  } else {
    if (!n.all_units) settle(n.buffer, id);
    out_.line(held(n.buffer) + ".full = false;");
  }
}

/// Copies that the next phase needs and no phase makes, before all blocks wait: a ring that holds
/// the tile already takes no other where the load stands. Of loops, the first iteration.
void KernelEmitter::load_ahead(NodeId barrier, const SymRanges& ranges) {
  for (NodeId p = k_.node(barrier).parent; p.valid(); p = k_.node(p).parent)
    if (k_.node(p).kind == NodeKind::loop) return;
  const std::vector<NodeId>& all = k_.node(k_.node(barrier).parent).children;
  const auto first = std::ranges::find(all, barrier) + 1;
  const auto end = std::find_if(first, all.end(), [&](NodeId id) { return waits(id); });
  ahead_ = true;
  if (std::any_of(first, end, [&](NodeId id) { return has_copies(id); })) {
    const auto fixed = fixed_;
    out_.comment("For the next phase, before blocks wait for one another.");
    out_.open("");
    defined_.emplace_back();
    const std::size_t known = variables_.count();
    nest({.kind = BlockStep::Kind::ahead, .node = barrier}, [&] {
      visit_by_blocks({first, end}, ranges);
    });
    variables_.forget(known);
    defined_.pop_back();
    out_.close();
    fixed_ = fixed;
  }
  ahead_ = false;
}

void KernelEmitter::visit_children(NodeId parent, const SymRanges& ranges) {
  visit_by_blocks(k_.node(parent).children, ranges);
}

/// What no grid loop shares out is the first block's, what follows one another together.
void KernelEmitter::visit_by_blocks(std::span<const NodeId> ids, const SymRanges& ranges) {
  const auto of_all = [&](NodeId id) {
    return blocks_here_ == 1 || shares_out(id) || waits(id) || k_.node(id).kind == NodeKind::drop;
  };
  for (std::size_t i = 0; i < ids.size();) {
    if ((copying_ && !has_copies(ids[i])) || of_all(ids[i])) {
      visit(ids[i++], ranges);
      continue;
    }
    out_.open("if (" + rest_ + " == 0)");
    defined_.emplace_back();
    const std::int64_t outer = blocks_here_;
    const std::size_t known = variables_.count();
    for (; i < ids.size() && !of_all(ids[i]); ++i) {
      blocks_here_ = 1;
      visit(ids[i], ranges);
      blocks_here_ = outer;
    }
    variables_.forget(known);
    defined_.pop_back();
    out_.close();
  }
}

/// Whether something in it is told to blocks: a loop's iterations, or the parts of a pack.
bool KernelEmitter::shares_out(NodeId id) const {
  const ScheduleNode& n = k_.node(id);
  return n.kind == NodeKind::pack || (n.kind == NodeKind::loop && n.binding == Binding::grid) ||
         std::ranges::any_of(n.children, [&](NodeId c) { return shares_out(c); });
}

bool KernelEmitter::waits(NodeId id) const {
  const ScheduleNode& n = k_.node(id);
  return n.kind == NodeKind::sync ||
         std::ranges::any_of(n.children, [&](NodeId c) { return waits(c); });
}

/// The block's iteration of a grid loop, where it has one.
void KernelEmitter::visit_grid_loop(NodeId id, const SymRanges& around) {
  const std::string outer_rest = rest_;
  const std::int64_t inner_blocks = blocks_below(k_, id);
  const std::string index = names_.fresh(identifier("i_", workload_.loop(k_.node(id).loop).name));
  const Cut c = cut(id, around);
  out_.line("const int " + index + " = " + outer_rest +
            (inner_blocks == 1 ? "" : " / " + std::to_string(inner_blocks)) + ";");
  out_.line("const int " + c.name + " = " + (c.low == "0" ? "" : c.low + " + ") + index + " * " +
            std::to_string(c.step) + ";");
  out_.open("if (" + c.name + " < " + c.high + ")");
  if (inner_blocks > 1) {
    rest_ = names_.fresh("rest");
    out_.line("const int " + rest_ + " = " + outer_rest + " % " + std::to_string(inner_blocks) +
              ";");
  } else {
    rest_ = "0";
  }
  const std::int64_t outer_blocks = std::exchange(blocks_here_, inner_blocks);
  visit_body(id, c, around);
  blocks_here_ = outer_blocks;
  rest_ = outer_rest;
}

void KernelEmitter::visit_loop(NodeId id, const SymRanges& around) {
  const Binding binding = k_.node(id).binding;
  const Cut c = cut(id, around);
  if (ahead_) {
    out_.line("const int " + c.name + " = " + c.low + ";");
    out_.open("if (" + c.name + " < " + c.high + ")");
    return visit_body(id, c, around);
  }
  out_.line(binding == Binding::unroll || binding == Binding::vector ? "TW_UNROLL"
                                                                     : "TW_NO_UNROLL");
  out_.open("for (int " + c.name + " = " + c.low + "; " + c.name + " < " + c.high + "; " + c.name +
            " += " + std::to_string(c.step) + ")");
  visit_body(id, c, around);
}

/// What stands within an iteration, and its end.
void KernelEmitter::visit_body(NodeId id, const Cut& c, const SymRanges& around) {
  const ScheduleNode& n = k_.node(id);
  const Linear& low = around.at[slot(n.cuts.front())].lo;
  // A loop of a single turn is where it begins, and ends where it does.
  const std::int64_t each = n.max_trips == 1 ? 0 : n.step;
  divisors_[c.inner.lo.terms.begin()->first] = std::gcd(each, divisor(low));
  defined_.emplace_back();
  if (!c.whole_steps) {
    out_.line("const int " + c.end + " = least(" + c.next() + ", " + c.high + ");");
    divisors_[c.inner.hi.terms.begin()->first] =
        std::gcd(std::gcd(each, divisor(low)), divisor(around.at[slot(n.cuts.front())].hi));
  }
  SymRanges inside = inside_of(id, c, around);
  open_.push_back({id, c.name, c.end, c.low, c.high, around});
  enter_body(id, inside);
  visit_children(id, inside);
  open_.pop_back();
  defined_.pop_back();
  out_.close();
}

}  // namespace tilewright::cuda
