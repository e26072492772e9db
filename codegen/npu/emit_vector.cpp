// Element-wise operators and reductions on the vector unit. An operator runs on slabs of rows and
// columns: its values are computed in f32 in scratch, whatever type its tiles have, and rounded
// once.
#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "codegen/npu/emitter.h"
#include "codegen/npu/expressions.h"
#include "core/workload/expr.h"

namespace tilewright::npu {

/// The loops that a slab's rows and columns run over: those of which all slabs are estimated to
/// take least. Where vector instructions walk all accesses of usual_loops() as they lie, these, if
/// others are not clearly faster.
KernelEmitter::SlabLoops KernelEmitter::slab_loops(OpId id) const {
  auto [at, is_new] = slab_loops_.try_emplace(id.value, SlabLoops{});
  if (!is_new) return at->second;
  const Operator& op = w_.op(id);
  SlabLoops best = usual_loops(id);
  const auto walks = [&](const Access& a) { return spread_of(a, best).has_value(); };
  const bool lie = std::ranges::all_of(op.inputs, walks) &&
                   std::ranges::all_of(op.outputs, walks, &Output::target);
  const bool product = std::ranges::any_of(
      op.outputs, [](const Output& o) { return o.combine == Combine::product; });
  constexpr double kClearly = 0.75;
  double least = (lie ? kClearly : 1) * slabs_take(id, best);
  for (LoopId columns : op.loops)
    for (LoopId rows : op.loops) {
      if (rows == columns ||
          (w_.is_reduction(id, columns) && (w_.is_reduction(id, rows) || product)))
        continue;
      if (const double its = slabs_take(id, {.rows = rows, .columns = columns}); its < least)
        least = its, best = {.rows = rows, .columns = columns};
    }
  best.outer = around_rows(id, best);
  return at->second = best;
}

/// Loops that may go on where the slab's rows end: each access goes by both, or by none. Not where
/// a value is an index.
std::vector<LoopId> KernelEmitter::around_rows(OpId id, const SlabLoops& loops) const {
  const Operator& op = w_.op(id);
  bool reads_index = false;
  for (const Output& o : op.outputs) each_index(o.value, [&](LoopId) { reads_index = true; });
  if (!loops.rows.valid() || w_.gathers(id) || reads_index || w_.is_reduction(id, loops.rows))
    return {};
  std::vector<LoopId> all;
  for (LoopId l : op.loops) {
    if (l == loops.rows || l == loops.columns || w_.is_reduction(id, l)) continue;
    const auto with_rows = [&](const Access& a) {
      return depends(op, a, l) == depends(op, a, loops.rows);
    };
    if (std::ranges::all_of(op.inputs, with_rows) &&
        std::ranges::all_of(op.outputs, with_rows, &Output::target))
      all.push_back(l);
  }
  return all;
}

/// Cycles of all slabs of a tile of an operator: what accesses that do not lie as vector
/// instructions walk them take to be brought, its functions, and what folds.
double KernelEmitter::slabs_take(OpId id, const SlabLoops& loops) const {
  const Operator& op = w_.op(id);
  const auto extent = [&](LoopId l) { return l.valid() ? tile_size(id, l) : 1; };
  const double columns = static_cast<double>(std::min(extent(loops.columns), kEstimatedColumns));
  const double rows = std::min(static_cast<double>(extent(loops.rows)),
                               std::max(16.0, std::floor(kEstimatedElements / columns)));
  double slabs = std::ceil(static_cast<double>(extent(loops.columns)) / columns) *
                 std::ceil(static_cast<double>(extent(loops.rows)) / rows);
  for (LoopId l : op.loops)
    if (l != loops.rows && l != loops.columns) slabs *= static_cast<double>(extent(l));
  const auto repeats = [](double elements) { return std::ceil(elements / kLanes); };
  double instructions = 0, cycles = 0;
  const auto bring = [&](const Access& a) {
    const bool by_rows = depends(op, a, loops.rows), by_columns = depends(op, a, loops.columns);
    const double n = (by_rows ? rows : 1) * (by_columns ? columns : 1);
    if (is_gather(a)) return;  // an element a point, whatever the loops are
    const DType type = w_.tensor(a.tensor).dtype;
    if (type == DType::f16 && !may_lie(id, a, loops)) instructions += 1, cycles += n / kLanes;
    if (!by_columns) {
      // Rows of a dimension further out are more than a stride apart.
      instructions += by_rows && !is_in_last_two(a, loops.rows) ? n : 1;
      cycles += n;
    } else if (!may_lie(id, a, loops)) {
      const double length = by_rows ? std::max(rows, columns) : columns;
      instructions += 2 * std::ceil(length / kLineAtOnce) * (n / length);
      cycles += n * static_cast<double>(1 + core().reduction_repeat);
    }
  };
  for (const Access& a : op.inputs) bring(a);
  for (const Output& o : op.outputs) {
    bring(o.target);
    double functions = o.combine == Combine::assign ? 0 : 1;
    const std::function<void(const Expr&)> count = [&](const Expr& e) {
      functions += e.kind == Expr::Kind::call ? 1 : 0;
      std::ranges::for_each(e.args, count);
    };
    count(o.value);
    instructions += std::max(1.0, functions);
    cycles += std::max(1.0, functions) * rows * repeats(columns);
    if (loops.columns.valid() && w_.is_reduction(id, loops.columns)) {
      instructions += repeats(columns);
      cycles += rows * (repeats(columns) - 1 + static_cast<double>(core().reduction_repeat));
    } else if (loops.rows.valid() && w_.is_reduction(id, loops.rows)) {
      instructions += std::min(rows - 1, repeats(columns));
      cycles += (rows - 1) * repeats(columns);
    }
  }
  return slabs * (instructions * static_cast<double>(core().vector_startup) + cycles);
}

/// The last two dimensions of the access with the most, if vector instructions can walk it and fold
/// what is reduced. Otherwise long loops: a reduced one as columns, but for products, which are
/// folded row by row.
KernelEmitter::SlabLoops KernelEmitter::usual_loops(OpId id) const {
  const Operator& op = w_.op(id);
  const Access* widest = &op.outputs.front().target;
  for (const Access& a : op.inputs)
    if (a.index.size() > widest->index.size()) widest = &a;
  const bool product = std::ranges::any_of(
      op.outputs, [](const Output& o) { return o.combine == Combine::product; });
  const auto reduced = [&](LoopId l) { return l.valid() && w_.is_reduction(id, l); };
  SlabLoops loops;
  const std::size_t rank = widest->index.size();
  const auto plain = [&](std::size_t back) {
    return rank >= back ? widest->index[rank - back].plain_loop().value_or(LoopId()) : LoopId();
  };
  loops.columns = plain(1);
  loops.rows = plain(2);
  if (loops.columns.valid() && (rank < 2 || loops.rows.valid()) && spread_of(*widest, loops) &&
      !(reduced(loops.columns) && (reduced(loops.rows) || product)))
    return loops;
  const auto longest = [&](bool of_sum) {
    LoopId best;
    for (LoopId l : op.loops)
      if (l != loops.columns && reduced(l) == of_sum &&
          (!best.valid() || w_.loop(l).extent > w_.loop(best).extent))
        best = l;
    return best;
  };
  loops = {};
  const bool sums = !w_.reduction_loops(id).empty();
  loops.columns = longest(sums && !product);
  loops.rows = longest(sums && product);
  return loops;
}

namespace {

VectorOp folding(const Operator& op, Combine c) {
  if (c == Combine::sum) return VectorOp::add;
  if (c == Combine::max) return VectorOp::max;
  if (c == Combine::min) return VectorOp::min;
  TW_CHECK(c == Combine::product, op.name);
  return VectorOp::mul;
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

bool reads(const Expr& e, int input) {
  return (e.kind == Expr::Kind::input && e.input == input) ||
         std::ranges::any_of(e.args, [&](const Expr& a) { return reads(a, input); });
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
  SlabLoops loops = slab_loops(n.op);
  const auto all = ranges_of(s_, k_, ranges, n.op);
  const std::vector<Interval> around(all.begin(), all.end());
  const auto local = [&](LoopId l) { return static_cast<std::size_t>(w_.local_index(n.op, l)); };
  std::vector<Interval> at = around;
  // Without rows, slabs have some of the columns.
  const bool in_a_row =
      !loops.rows.valid() && loops.columns.valid() && !w_.is_reduction(n.op, loops.columns);
  // Loops of which slabs have one iteration each, or some rows: reduced ones inside the others.
  struct Walked {
    std::size_t loop;
    std::int64_t step = 1;
  };
  std::vector<Walked> walked;
  std::size_t reduced = 0;  // the first of them that is
  for (const bool sums : {false, true}) {
    if (sums) reduced = walked.size();
    for (LoopId l : op.loops)
      if ((l != loops.columns || in_a_row) && w_.is_reduction(n.op, l) == sums)
        walked.push_back({local(l)});
  }
  const LoopId first = in_a_row ? loops.columns : loops.rows;
  for (const Walked& l : walked)
    if (!first.valid() || l.loop != local(first)) at[l.loop].hi = at[l.loop].lo + 1;
  if (measuring_) return charge(1);
  if (kept_ == Kept::reads) return;  // tiles that are there are computed on
  const auto goes_on = [&](const Walked& l) { return at[l.loop].hi < around[l.loop].hi; };
  const auto is_first = [&](const Walked& l) { return at[l.loop].lo == around[l.loop].lo; };
  const auto begin = [&](const Walked& l) {
    at[l.loop] = {around[l.loop].lo, std::min(around[l.loop].hi, around[l.loop].lo + l.step)};
  };
  const auto sums = std::span<const Walked>(walked).subspan(reduced);
  const auto more_steps = [&] {
    return std::ranges::any_of(sums,
                               [&](const Walked& l) { return around[l.loop].size() > l.step; });
  };
  const auto take = [&](LoopId loop, std::int64_t step) {
    for (Walked& l : walked)
      if (l.loop == local(loop)) l.step = step;
  };
  const std::vector<LoopId> outer = outer_rows(n, around, std::exchange(loops.outer, {}), loops);
  if (first.valid()) {
    std::int64_t most = around[local(first)].size(), has = most;
    for (LoopId l : outer) most *= around[local(l)].size();
    const std::int64_t room = slab_room(n, at, loops, most, more_steps());
    take(first, std::min(has, room));
    for (std::size_t i = outer.size(); i-- > 0 && room >= 2 * has;) {
      const std::int64_t size = around[local(outer[i])].size(), some = std::min(size, room / has);
      take(outer[i], some);
      loops.outer.insert(loops.outer.begin(), outer[i]);
      if (some < size) break;
      has *= size;
    }
  } else {
    slab_room(n, at, loops, 1, more_steps());
  }
  std::ranges::for_each(walked, begin);
  for (bool more = true; more;) {
    slab(n, at, loops,
         {.first = steps.front().initialises,
          .kept = more_steps(),
          .begins = std::ranges::all_of(sums, is_first),
          .ends = std::ranges::none_of(sums, goes_on),
          .last = steps.front().completes},
         false);
    more = false;
    for (std::size_t i = walked.size(); i-- > 0 && !more;) {
      Interval& now = at[walked[i].loop];
      more = goes_on(walked[i]);
      if (more)
        now = {now.hi, std::min(around[walked[i].loop].hi, now.hi + walked[i].step)};
      else
        begin(walked[i]);
    }
  }
}

/// The loops around the slab's rows, outermost first, whose iterations follow one another in every
/// tile that the operator touches as rows do: a row after the last one of an iteration is the first
/// one of the next.
std::vector<LoopId> KernelEmitter::outer_rows(const ScheduleNode& n,
                                              const std::vector<Interval>& around,
                                              const std::vector<LoopId>& candidates,
                                              const SlabLoops& loops) const {
  std::vector<LoopId> outer;
  if (candidates.empty()) return outer;
  const Operator& op = w_.op(n.op);
  const auto size = [&](LoopId l) {
    return around[static_cast<std::size_t>(w_.local_index(n.op, l))].size();
  };
  std::int64_t rows = size(loops.rows);
  const auto goes_on = [&](const Access& a, BufferId b, LoopId loop) {
    const auto steps = [&](LoopId l) {
      SlabLoops its = loops;
      its.rows = l;
      return walked(n.op, a, b, around, its);
    };
    const Walked of_rows = steps(loops.rows), of_loop = steps(loop);
    const auto by_rows = [](const auto& i) { return i.first.row != 0; };
    return of_loop.offset.row == rows * of_rows.offset.row &&
           std::ranges::none_of(of_rows.inside, by_rows) &&
           std::ranges::none_of(of_loop.inside, by_rows);
  };
  for (bool more = true; more;) {
    more = false;
    for (LoopId l : candidates) {
      if (size(l) == 1 || std::ranges::find(outer, l) != outer.end()) continue;
      bool all = true;
      for (std::size_t i = 0; i < op.inputs.size() && all; ++i)
        all = goes_on(op.inputs[i], codegen::buffer_of_input(n, static_cast<int>(i)), l);
      for (std::size_t o = 0; o < n.writes.size() && all; ++o)
        all = goes_on(op.outputs[static_cast<std::size_t>(n.writes[o].output)].target,
                      n.writes[o].buffer, l);
      if (!all) continue;
      outer.insert(outer.begin(), l);
      rows *= size(l);
      more = true;
      break;
    }
  }
  return outer;
}

/// Rows of a slab whose temporaries fit scratch, of so many at most: a multiple of 16, or 32 where
/// elements are bytes, so that a slab's part of a vector of rows is aligned. Without rows, columns:
/// whole repeats.
std::int64_t KernelEmitter::slab_room(const ScheduleNode& n, std::vector<Interval> at,
                                      const SlabLoops& loops, std::int64_t most, bool kept) {
  const auto bytes = [&](const Access& a) { return size_of(w_.tensor(a.tensor).dtype); };
  const Operator& op = w_.op(n.op);
  const bool small =
      std::ranges::any_of(op.inputs, [&](const Access& a) { return bytes(a) == 1; }) ||
      std::ranges::any_of(op.outputs, [&](const Output& o) { return bytes(o.target) == 1; });
  const std::int64_t some = !loops.rows.valid() ? kVector : small ? 32 : 16;
  std::int64_t measured = 1;
  if (most > 1) {
    const LoopId first = loops.rows.valid() ? loops.rows : loops.columns;
    Interval& range = at[static_cast<std::size_t>(w_.local_index(n.op, first))];
    measured = std::min(range.size(), some);
    range.hi = range.lo + measured;
  }
  const std::int64_t need = 4 * slab(n, at, loops, {.kept = kept, .begins = !kept}, true);
  const std::int64_t room = scratch_bytes_ - (scratch_bytes_ > kLaneBytes ? kLaneBytes : 0);
  const std::int64_t fit = need == 0 ? most : room / need * measured;
  if (fit == 0)
    throw Refused{w_.op(n.op).name + " needs " + std::to_string(need) +
                  " bytes of UB to work in, and its tiles leave " + std::to_string(scratch_bytes_)};
  return std::min(most, fit);
}

/// Which of the operator's inputs and outputs, in that order, are brought to scratch and from
/// there, since vector instructions cannot work on them as they lie.
std::vector<bool> KernelEmitter::moved_by_elements(const ScheduleNode& n,
                                                   const std::vector<Interval>& at,
                                                   const SlabLoops& loops) const {
  const Operator& op = w_.op(n.op);
  std::vector<bool> all;
  const auto add = [&](const Access& a, BufferId b) {
    if (!b.valid()) return all.push_back(true);  // a gather
    const Walked x = walked(n.op, a, b, at, loops);
    all.push_back(!as_it_lies(op, a, x, loops, shape_of(n.op, at, loops)));
    if (all.back() && !in_lines(b) && !moves_elements_) throw NeedsMoves{};
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    add(op.inputs[i], codegen::buffer_of_input(n, static_cast<int>(i)));
  for (const OutputUse& out : n.writes)
    add(op.outputs[static_cast<std::size_t>(out.output)].target, out.buffer);
  return all;
}

Shape KernelEmitter::shape_of(OpId op, const std::vector<Interval>& at,
                              const SlabLoops& loops) const {
  const auto size = [&](LoopId l) {
    return l.valid() ? at[static_cast<std::size_t>(w_.local_index(op, l))].size() : 1;
  };
  Shape shape{.rows = size(loops.rows), .columns = size(loops.columns)};
  for (LoopId l : loops.outer) shape.rows *= size(l);
  return shape;
}

/// Temporaries go by its shape and by what is moved alone, instructions also by how far apart the
/// rows of its tiles lie; null where the scalar unit moves what lies elsewhere in every slab, or
/// where a slab reads beyond a tensor.
KernelEmitter::SlabWork* KernelEmitter::slab_work(const ScheduleNode& n,
                                                  const std::vector<Interval>& at,
                                                  const SlabLoops& loops, const SlabSums& sums,
                                                  bool dry, const std::vector<bool>& moved) {
  const Operator& op = w_.op(n.op);
  const Shape shape = shape_of(n.op, at, loops);
  std::vector<std::int64_t> key{&n - k_.nodes.data(), shape.rows, shape.columns};
  key.insert(key.end(), moved.begin(), moved.end());
  key.push_back(sums.kept);
  if (dry) return &slabs_[std::move(key)];
  if (moves_elements_) return nullptr;
  for (const bool is : {sums.first, sums.begins, sums.ends, sums.last}) key.push_back(is);
  bool inside = true;
  const auto add = [&](const Access& a, BufferId b) {
    const Walked x = walked(n.op, a, b, at, loops);
    inside = inside && whole(x, shape);
    key.push_back(x.offset.row);
    key.push_back(x.offset.column);
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    add(op.inputs[i], codegen::buffer_of_input(n, static_cast<int>(i)));
  for (const OutputUse& out : n.writes)
    add(op.outputs[static_cast<std::size_t>(out.output)].target, out.buffer);
  return inside ? &slabs_[std::move(key)] : nullptr;
}

/// One slab; elements of scratch that it took. `dry`: emits nothing.
std::int64_t KernelEmitter::slab(const ScheduleNode& n, const std::vector<Interval>& at,
                                 const SlabLoops& loops, const SlabSums& sums, bool dry) {
  const std::vector<bool> moved = moved_by_elements(n, at, loops);
  SlabWork* const work =
      dry || kept_ == Kept::none ? slab_work(n, at, loops, sums, dry, moved) : nullptr;
  if (work != nullptr && work->instructions > 0) {
    if (!dry) charge(work->instructions);
    return work->elements;
  }
  std::int64_t instructions = 0;
  const std::int64_t elements = make_slab(n, at, loops, sums, moved,
                                          {.step =
                                               [&](TraceStep step) {
                                                 ++instructions;
                                                 if (!dry) emit_step(std::move(step));
                                               },
                                           .kept = !dry});
  if (!dry && 4 * elements > scratch_bytes_ - (scratch_bytes_ > kLaneBytes ? kLaneBytes : 0))
    throw Refused{w_.op(n.op).name + " needs more of UB to work in at the ends of its tensors"};
  if (work != nullptr) *work = {.elements = elements, .instructions = instructions};
  return elements;
}

TraceStep KernelEmitter::vector_step(Vector v, std::vector<TraceTouch> touches,
                                     const std::string& comment, bool kept) const {
  const std::int64_t cycles = core().vector_startup +
                              v.repeat.literal() * repeat_cycles(core(), v.op) +
                              (kept ? bank_cycles(v) : 0);
  return {.instruction = std::move(v),
          .pipe = Pipe::vector,
          .touches = std::move(touches),
          .comment = comment,
          .cycles = cycles};
}

std::int64_t KernelEmitter::make_slab(const ScheduleNode& n, const std::vector<Interval>& at,
                                      const SlabLoops& loops, const SlabSums& sums,
                                      const std::vector<bool>& moved, const SlabEmit& emit) {
  const Operator& op = w_.op(n.op);
  const Shape shape = shape_of(n.op, at, loops);
  const SlabAt here{.w = w_, .op = n.op, .at = at, .loops = loops, .shape = shape};
  VectorUnit unit(scratch_name_, [&](Vector v, std::vector<TraceTouch> touches) {
    if (moves_elements_) touches.push_back(scratch_touch());
    emit.step(vector_step(std::move(v), std::move(touches), op.name, emit.kept));
  });
  const auto tile_value = [&](const Access& a, BufferId b) {
    return *as_it_lies(op, a, walked(n.op, a, b, at, loops), loops, shape);
  };
  const auto read = [&](int input) {
    return std::ranges::any_of(n.writes, [&](const OutputUse& out) {
      return reads(op.outputs[static_cast<std::size_t>(out.output)].value, input);
    });
  };
  // A copy of what is in the tensor, between zeros.
  const Output& only = op.outputs[static_cast<std::size_t>(n.writes.front().output)];
  if (emit.kept && n.writes.size() == 1 && only.combine == Combine::assign &&
      only.value.kind == Expr::Kind::input && !moved[op.inputs.size()]) {
    const auto input = static_cast<std::size_t>(only.value.input);
    const Access& a = op.inputs[input];
    const BufferId b = codegen::buffer_of_input(n, only.value.input);
    const Value to = tile_value(only.target, n.writes.front().buffer);
    if (b.valid() && moved[input] && in_lines(b)) {
      const Walked from = walked(n.op, a, b, at, loops);
      const auto part =
          from.type == to.type ? part_as_it_lies(op, a, from, here, to) : std::nullopt;
      if (part) {
        fill(unit, from, *part, here, to);
        return unit.most();
      }
    }
  }
  const bool by_columns = loops.columns.valid() && w_.is_reduction(n.op, loops.columns);
  const bool by_rows = loops.rows.valid() && w_.is_reduction(n.op, loops.rows);
  std::vector<Value> partial;  // sums in f32, from one slab to the next
  if (sums.kept)
    for (std::size_t o = 0; o < n.writes.size(); ++o)
      partial.push_back(unit.temporary(by_columns ? Spread::row
                                       : by_rows  ? Spread::column
                                                  : Spread::full,
                                       shape));
  std::vector<Value> inputs;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const BufferId b = codegen::buffer_of_input(n, static_cast<int>(i));
    if (!read(static_cast<int>(i)))
      inputs.emplace_back();  // an index
    else if (moved[i])
      inputs.push_back(packed(unit, op, op.inputs[i], b, n, here, std::nullopt, emit));
    else
      inputs.push_back(tile_value(op.inputs[i], b));
  }
  unit.keep();
  Expressions expressions(unit, op.name, inputs, shape,
                          [&](LoopId l) { return index_value(unit, op, l, here, emit); });
  const auto make = [&](const Output& output, BufferId b, bool by_elements, const Value* so_far) {
    const Value out = by_elements ? Value{} : tile_value(output.target, b);
    const auto write = [&](const Value& v, Spread spread) {
      if (!by_elements) return expressions.into(v, out);
      Value from = v;
      if (v.spread != spread) {
        from = unit.temporary(spread, shape);
        expressions.into(v, from);
      }
      move_elements(unit, op, output.target, b, n, here, from, false, emit);
    };
    if (output.combine == Combine::assign) {
      if (by_elements || !expressions.directly(output.value, out)) {
        const bool there = !by_elements && out.type == DType::f32;
        write(expressions.value(output.value, there ? &out : nullptr), Spread::full);
      }
      return;
    }
    const VectorOp fold = folding(op, output.combine);
    // What is reduced is overwritten: always a temporary.
    Value sum = expressions.value(output.value);
    if (sum.spread != Spread::full || sum.place.object != scratch_name_ || unit.is_kept(sum)) {
      const Value own = unit.temporary(Spread::full, shape);
      expressions.into(sum, own);
      sum = own;
    }
    if (by_columns) {
      const Value t = unit.temporary(Spread::row, shape);
      unit.reduce(fold, across(fold), t, sum, shape);
      sum = t;
    } else if (by_rows) {
      sum = unit.fold_rows(fold, sum, shape);
    }
    if (!sums.begins && !sums.ends) return unit.apply(fold, *so_far, {sum, *so_far}, shape);
    if (!sums.begins) {
      unit.apply(fold, sum, {sum, *so_far}, shape);
    } else if (!sums.first) {
      Value before = out;
      if (by_elements) {
        before = packed(unit, op, output.target, b, n, here, sum.spread, emit);
      } else if (out.type != DType::f32) {
        before = unit.temporary(out.spread, shape);
        unit.apply(VectorOp::cast, before, {out}, shape);
      }
      unit.apply(fold, sum, {sum, before}, shape);
    }
    const DType type = w_.tensor(output.target.tensor).dtype;
    if (sums.ends && sums.last && widened(b) && is_integer(type)) {  // readers meet a whole number
      unit.apply(VectorOp::round, sum, {sum}, shape);
      unit.apply(VectorOp::maxs, sum, {sum}, shape, type == DType::i8 ? -0x1p7 : -0x1p31);
      unit.apply(VectorOp::mins, sum, {sum}, shape, type == DType::i8 ? 0x1p7 - 1 : 0x1p31);
    }
    if (sums.ends) return write(sum, sum.spread);
    expressions.into(sum, *so_far);
  };
  for (std::size_t o = 0; o < n.writes.size(); ++o) {
    const OutputUse& out = n.writes[o];
    make(op.outputs[static_cast<std::size_t>(out.output)], out.buffer, moved[op.inputs.size() + o],
         sums.kept ? &partial[o] : nullptr);
    unit.release();
  }
  return unit.most();
}

}  // namespace tilewright::npu
