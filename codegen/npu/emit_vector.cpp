// Element-wise operators and reductions on the vector unit. An operator runs on slabs of rows and
// columns: its values are computed in f32 in scratch, whatever type its tiles have, and rounded
// once.
#include <algorithm>
#include <functional>
#include <optional>

#include "codegen/npu/emitter.h"
#include "codegen/npu/vector_unit.h"

namespace tilewright::npu {

/// The loops that a slab's rows and columns run over: the last two dimensions of the access with
/// the most.
KernelEmitter::SlabLoops KernelEmitter::slab_loops(OpId id) const {
  const Operator& op = w_.op(id);
  const Access* widest = &op.outputs.front().target;
  for (const Access& a : op.inputs)
    if (a.index.size() > widest->index.size()) widest = &a;
  SlabLoops loops;
  const std::size_t rank = widest->index.size();
  for (const Affine& i : widest->index)
    if (!i.plain_loop())
      throw Refused{op.name + " reads " + w_.tensor(widest->tensor).name +
                    " through more than a loop, for which the npu target has no code"};
  if (rank >= 1) loops.columns = *widest->index[rank - 1].plain_loop();
  if (rank >= 2) loops.rows = *widest->index[rank - 2].plain_loop();
  return loops;
}

namespace {

/// How an access lies over the slab's loops.
Spread spread_of(const Workload& w, const Operator& op, const Access& a, LoopId rows,
                 LoopId columns) {
  std::vector<LoopId> loops;
  for (const Affine& i : a.index) {
    const auto loop = i.plain_loop();
    if (!loop)
      throw Refused{op.name + " reads " + w.tensor(a.tensor).name +
                    " through more than a loop, for which the npu target has no code"};
    loops.push_back(*loop);
  }
  const std::size_t rank = loops.size();
  const auto has = [&](LoopId l) { return std::ranges::find(loops, l) != loops.end(); };
  const bool in_columns = rank > 0 && loops[rank - 1] == columns;
  if (in_columns && (!rows.valid() || (rank > 1 && loops[rank - 2] == rows))) return Spread::full;
  if (in_columns && !has(rows)) return Spread::column;
  if (rows.valid() && rank > 0 && loops[rank - 1] == rows && !has(columns)) return Spread::row;
  throw Refused{op.name + " has " + w.tensor(a.tensor).name +
                " lie in another way than its widest tensor, for which the npu target has no code"};
}

/// What vector instructions want of a tile's place.
void check_aligned(const Workload& w, const Operator& op, const Access& a, std::int64_t bytes) {
  if (bytes % kBlock != 0)
    throw Refused{op.name + " uses " + w.tensor(a.tensor).name +
                  " from an element on that is not at a multiple of 32 bytes"};
}

VectorOp folding(const Operator& op, Combine c) {
  if (c == Combine::sum) return VectorOp::add;
  if (c == Combine::max) return VectorOp::max;
  if (c == Combine::min) return VectorOp::min;
  throw Refused{op.name + " multiplies up, for which the vector unit has no instruction"};
}

std::int64_t repeat_cycles(const NpuCore& core, VectorOp op) {
  switch (op) {
    case VectorOp::div:
    case VectorOp::exp:
    case VectorOp::log:
    case VectorOp::sqrt:
    case VectorOp::rsqrt:
    case VectorOp::recip:
      return core.slow_repeat;
    default:
      return is_reduction(op) ? core.reduction_repeat : 1;
  }
}

VectorOp across(VectorOp fold) {
  return fold == VectorOp::add   ? VectorOp::rsum
         : fold == VectorOp::max ? VectorOp::rmax
                                 : VectorOp::rmin;
}

}  // namespace

void KernelEmitter::vector_compute(NodeId node, const Ranges& ranges,
                                   const std::vector<SumStep>& steps) {
  const ScheduleNode& n = k_.node(node);
  const Operator& op = w_.op(n.op);
  const SlabLoops loops = slab_loops(n.op);
  const auto around = ranges_of(s_, k_, ranges, n.op);
  const auto local = [&](LoopId l) { return static_cast<std::size_t>(w_.local_index(n.op, l)); };
  std::vector<Interval> at(around.begin(), around.end());
  std::vector<std::size_t> single;  // loops of which slabs have one iteration each
  for (LoopId l : op.loops)
    if (l != loops.rows && l != loops.columns) single.push_back(local(l));
  for (std::size_t l : single) at[l].hi = at[l].lo + 1;
  if (measuring_) return charge(1);
  if (kept_ == Kept::reads) return;  // tiles that are there are computed on
  const Interval rows = loops.rows.valid() ? around[local(loops.rows)] : Interval{0, 1};
  const std::int64_t step = slab_rows(n, at, loops, rows.size());
  bool first = steps.front().initialises;
  for (bool more = true; more;) {
    for (std::int64_t r = rows.lo; r < rows.hi; r += step) {
      if (loops.rows.valid()) at[local(loops.rows)] = {r, std::min(rows.hi, r + step)};
      slab(n, at, loops, first && (r == rows.lo || !w_.is_reduction(n.op, loops.rows)), false);
    }
    more = false;
    for (std::size_t i = single.size(); i-- > 0 && !more;) {
      Interval& now = at[single[i]];
      more = now.hi < around[single[i]].hi;
      now = more ? Interval{now.lo + 1, now.hi + 1}
                 : Interval{around[single[i]].lo, around[single[i]].lo + 1};
      if (more && w_.is_reduction(n.op, op.loops[single[i]])) first = false;
    }
  }
}

/// Rows of a slab whose temporaries fit scratch: a multiple of 16, so that a slab's part of a
/// vector of rows is aligned.
std::int64_t KernelEmitter::slab_rows(const ScheduleNode& n, std::vector<Interval> at,
                                      const SlabLoops& loops, std::int64_t rows) {
  constexpr std::int64_t kRows = 16;
  if (loops.rows.valid()) {
    Interval& range = at[static_cast<std::size_t>(w_.local_index(n.op, loops.rows))];
    range.hi = range.lo + std::min(rows, kRows);
  }
  const std::int64_t need = 4 * slab(n, at, loops, true, true);
  const std::int64_t fit = need == 0 ? rows : scratch_bytes_ / need * kRows;
  if (fit == 0)
    throw Refused{w_.op(n.op).name + " needs " + std::to_string(need) +
                  " bytes of UB to work in, and its tiles leave " + std::to_string(scratch_bytes_)};
  return std::min(rows, fit);
}

/// Temporaries go by its shape alone, instructions also by how far apart the rows of its tiles lie.
/// Throws where a tile lies wrong, but for a dry slab: the slab itself comes next.
KernelEmitter::SlabWork& KernelEmitter::slab_work(const ScheduleNode& n,
                                                  const std::vector<Interval>& at,
                                                  const SlabLoops& loops, bool first, bool dry) {
  const Operator& op = w_.op(n.op);
  const auto size = [&](LoopId l) {
    return l.valid() ? at[static_cast<std::size_t>(w_.local_index(n.op, l))].size() : 1;
  };
  std::vector<std::int64_t> key{&n - k_.nodes.data(), size(loops.rows), size(loops.columns)};
  if (dry) return slabs_[std::move(key)];
  key.push_back(first);
  const auto add = [&](const Access& a, BufferId b) {
    const Within in = within_tile(b, footprint(w_, op, a, at));
    check_aligned(w_, op, a, in.offset * size_of(places_[b.index()].type));
    key.push_back(in.pitch);
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    add(op.inputs[i], codegen::buffer_of_input(n, static_cast<int>(i)));
  for (const OutputUse& out : n.writes)
    add(op.outputs[static_cast<std::size_t>(out.output)].target, out.buffer);
  return slabs_[std::move(key)];
}

/// One slab; elements of scratch that it took. `dry`: emits nothing.
std::int64_t KernelEmitter::slab(const ScheduleNode& n, const std::vector<Interval>& at,
                                 const SlabLoops& loops, bool first, bool dry) {
  SlabWork* const work =
      dry || kept_ == Kept::none ? &slab_work(n, at, loops, first, dry) : nullptr;
  if (work != nullptr && work->instructions > 0) {
    if (!dry) charge(work->instructions);
    return work->elements;
  }
  std::int64_t instructions = 0;
  const std::int64_t elements = make_slab(n, at, loops, first, [&](TraceStep step) {
    ++instructions;
    if (!dry) emit_step(std::move(step));
  });
  if (work != nullptr) *work = {.elements = elements, .instructions = instructions};
  return elements;
}

std::int64_t KernelEmitter::make_slab(const ScheduleNode& n, const std::vector<Interval>& at,
                                      const SlabLoops& loops, bool first,
                                      const std::function<void(TraceStep)>& emit) {
  const Operator& op = w_.op(n.op);
  const auto size = [&](LoopId l) {
    return l.valid() ? at[static_cast<std::size_t>(w_.local_index(n.op, l))].size() : 1;
  };
  const Shape shape{.rows = size(loops.rows), .columns = size(loops.columns)};
  VectorUnit unit(scratch_name_, [&](Vector v, std::vector<TraceTouch> touches) {
    const std::int64_t cycles =
        core().vector_startup + v.repeat.literal() * repeat_cycles(core(), v.op);
    emit({.instruction = std::move(v),
          .pipe = Pipe::vector,
          .touches = std::move(touches),
          .comment = op.name,
          .cycles = cycles});
  });
  const auto tile_value = [&](const Access& a, BufferId b) {
    const Piece p = tile(b, footprint(w_, op, a, at));
    Value v{.spread = spread_of(w_, op, a, loops.rows, loops.columns),
            .type = p.type,
            .place = p.at.place,
            .pitch = p.at.pitch.literal(),
            .touches = p.touches};
    check_aligned(w_, op, a, v.offset() * size_of(v.type));
    return v;
  };
  std::vector<Value> inputs;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    inputs.push_back(tile_value(op.inputs[i], codegen::buffer_of_input(n, static_cast<int>(i))));
  Expressions expressions(unit, op.name, inputs, shape);
  const auto make = [&](const Output& output, const Value& out) {
    if (output.combine == Combine::assign) {
      if (!expressions.directly(output.value, out)) {
        const Value v = expressions.value(output.value, out.type == DType::f32 ? &out : nullptr);
        expressions.into(v, out);
      }
      return;
    }
    const VectorOp fold = folding(op, output.combine);
    const bool by_columns = loops.columns.valid() && w_.is_reduction(n.op, loops.columns);
    const bool by_rows = loops.rows.valid() && w_.is_reduction(n.op, loops.rows);
    if (by_columns && by_rows)
      throw Refused{op.name +
                    " sums over both of its last loops, for which the npu target has no code"};
    // What is reduced is overwritten: always a temporary.
    Value sum = expressions.value(output.value);
    if (sum.spread != Spread::full || sum.place.object != scratch_name_) {
      const Value own = unit.temporary(Spread::full, shape);
      expressions.into(sum, own);
      sum = own;
    }
    if (by_columns && loops.rows.valid()) {
      const Value t = unit.temporary(Spread::row, shape);
      unit.reduce(fold, across(fold), t, sum, shape);
      sum = t;
    } else if (by_columns) {
      throw Refused{op.name + " sums its only loop: the npu target wants rows beside it"};
    } else if (by_rows) {
      Value total = sum;
      total.spread = Spread::column;
      for (std::int64_t r = 1; r < shape.rows; ++r) {
        Value row = total;
        row.place.offset = sum.offset() + r * sum.pitch;
        unit.apply(fold, total, {total, row}, shape);
      }
      sum = total;
    }
    if (!first) {
      Value before = out;
      if (out.type != DType::f32) {
        before = unit.temporary(out.spread, shape);
        unit.apply(VectorOp::cast, before, {out}, shape);
      }
      unit.apply(fold, sum, {sum, before}, shape);
    }
    expressions.into(sum, out);
  };
  for (const OutputUse& out : n.writes) {
    const Output& output = op.outputs[static_cast<std::size_t>(out.output)];
    make(output, tile_value(output.target, out.buffer));
    unit.release();
  }
  return unit.most();
}

}  // namespace tilewright::npu
