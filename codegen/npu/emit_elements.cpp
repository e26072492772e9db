// What the vector unit cannot read or write as it lies: the scalar unit moves it to scratch, or
// from there, an element at a time. Gathers, several loops in one index, padding, other orders of
// loops.
#include <algorithm>

#include "codegen/npu/emitter.h"
#include "codegen/npu/vector_unit.h"

namespace tilewright::npu {
namespace {

/// An affine form over a slab: its value at the slab's first element, and from row to row and from
/// column to column.
struct Form {
  std::int64_t base = 0, row = 0, column = 0;
  std::int64_t at(std::int64_t r, std::int64_t c) const { return base + r * row + c * column; }
};

}  // namespace

bool KernelEmitter::depends(const Operator& op, const Access& a, LoopId loop) const {
  return loop.valid() && std::ranges::any_of(a.index, [&](const Affine& i) {
           return i.gathered >= 0
                      ? depends(op, op.inputs[static_cast<std::size_t>(i.gathered)], loop)
                      : std::ranges::any_of(i.terms, [&](const Term& t) { return t.loop == loop; });
         });
}

/// How an access lies over the slab's loops, if vector instructions can walk it.
std::optional<Spread> KernelEmitter::spread_of(const Access& a, const SlabLoops& at) const {
  std::vector<LoopId> loops;
  const std::vector<std::int64_t>& shape = w_.tensor(a.tensor).shape;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto loop = a.index[d].plain_loop();
    if (!loop || w_.loop(*loop).extent > shape[d] || std::ranges::find(loops, *loop) != loops.end())
      return std::nullopt;
    loops.push_back(*loop);
  }
  const std::size_t rank = loops.size();
  const auto has = [&](LoopId l) { return std::ranges::find(loops, l) != loops.end(); };
  const bool in_columns = rank > 0 && loops[rank - 1] == at.columns;
  if (in_columns && (!at.rows.valid() || (rank > 1 && loops[rank - 2] == at.rows)))
    return Spread::full;
  if (in_columns && !has(at.rows)) return Spread::column;
  if (at.rows.valid() && rank > 0 && loops[rank - 1] == at.rows && !has(at.columns))
    return Spread::row;
  return std::nullopt;
}

/// Whether some access of the operator cannot be walked, or an index is a value.
bool KernelEmitter::by_elements(OpId id) const {
  const Operator& op = w_.op(id);
  const SlabLoops loops = slab_loops(id);
  const auto walked = [&](const Access& a) { return spread_of(a, loops).has_value(); };
  const std::function<bool(const Expr&)> has_index = [&](const Expr& e) {
    return e.kind == Expr::Kind::index || std::ranges::any_of(e.args, has_index);
  };
  return w_.gathers(id) || !std::ranges::all_of(op.inputs, walked) ||
         std::ranges::any_of(
             op.outputs, [&](const Output& o) { return !walked(o.target) || has_index(o.value); });
}

/// The loop of a trace that has no place in the plan's tree: one over what a slab has.
void KernelEmitter::looped(const std::string& counter, std::int64_t n, bool kept,
                           const std::function<void(std::int64_t)>& body) {
  if (!kept || n < 2) {
    for (std::int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  into_.back()->push_back({.counter = counter, .part = parts_.back()});
  const std::size_t at = into_.back()->size() - 1;
  parts_.push_back(0);
  for (std::int64_t i = 0; i < n; ++i) {
    TraceNode& loop = (*into_.back())[at];
    loop.iterations.emplace_back();
    into_.push_back(&loop.iterations.back());
    body(i);
    into_.pop_back();
  }
  parts_.pop_back();
}

/// The access's elements over a slab, from its tile to `scratch` or from there to its tile.
void KernelEmitter::move_elements(const Operator& op, const Access& a, BufferId b,
                                  const ScheduleNode& n, const SlabAt& slab, const Value& scratch,
                                  bool inward, const SlabEmit& emit) {
  const auto form = [&](const Affine& i) {
    Form f{.base = i.offset};
    for (const Term& t : i.terms) {
      f.base += t.coefficient * slab.low(t.loop);
      if (t.loop == slab.loops.rows) f.row += t.coefficient;
      if (t.loop == slab.loops.columns) f.column += t.coefficient;
    }
    return f;
  };
  /// One tensor of the access: where its elements lie, and which of them are there at all.
  struct Walked {
    Form offset = {};
    std::vector<std::pair<Form, std::int64_t>> inside = {};  ///< values, and what they are below
    std::vector<std::int64_t> by;  ///< elements from one index of a dimension to the next
    std::string object = {};
    std::vector<TraceTouch> touches = {};
  };
  const auto strides = [&](TensorId tensor, BufferId of) {
    if (!of.valid()) {  // a gather reads home
      const std::vector<std::int64_t>& shape = w_.tensor(tensor).shape;
      std::vector<std::int64_t> by(shape.size(), 1);
      for (std::size_t d = shape.size(); d-- > 1;) by[d - 1] = by[d] * shape[d];
      return by;
    }
    const Box& box = tiles_[of.index()].box;
    const Matrices m = matrices_of(box);
    std::vector<std::int64_t> by(static_cast<std::size_t>(box.rank()), 1);
    std::int64_t next = matrix_elements(of, m);
    for (int d = box.rank() - 1; d >= 0; --d) {
      const auto at = static_cast<std::size_t>(d);
      if (d + 1 == box.rank()) continue;
      by[at] = d + 2 == box.rank() ? pitch(of, m) : next;
      if (d + 2 < box.rank()) next *= box[d].size();
    }
    return by;
  };
  const auto walked = [&](const Access& access, BufferId of) {
    const Box read = footprint(w_, op, access, slab.at);
    Walked all{.by = strides(access.tensor, of)};
    Box box = read;  // what is there, from its first element on
    if (of.valid()) {
      const Tile& t = tiles_[of.index()];
      const TilePlace& p = places_[of.index()];
      all.object = p.name;
      if (read.empty()) return all;
      box = t.box;
      if (!contains(box, read))
        throw Refused{w_.tensor(access.tensor).name + " is used at UB beyond its tile there"};
      all.offset.base = t.copy * p.elements;
      std::int64_t low = all.offset.base, last = low;
      for (std::size_t d = 0; d < all.by.size(); ++d) {
        const auto at = static_cast<int>(d);
        low += (read[at].lo - box[at].lo) * all.by[d];
        last += (read[at].hi - 1 - box[at].lo) * all.by[d];
      }
      const std::int64_t size = size_of(p.type);
      all.touches.push_back({.memory = Memory::ub,
                             .low = p.address + low * size / kBlock * kBlock,
                             .high = p.address + round_up((last + 1) * size, kBlock)});
    } else {
      all.object = w_.tensor(access.tensor).name;
      if (read.empty()) return all;
      all.touches.push_back({.memory = Memory::gm, .tensor = all.object, .box = read});
    }
    for (std::size_t d = 0; d < access.index.size(); ++d) {
      const std::int64_t low = of.valid() ? box[static_cast<int>(d)].lo : 0;
      if (access.index[d].gathered >= 0) {
        all.offset.base -= low * all.by[d];
        continue;
      }
      const Form f = form(access.index[d]);
      all.inside.emplace_back(f, w_.tensor(access.tensor).shape[d]);
      all.offset.base += (f.base - low) * all.by[d];
      all.offset.row += f.row * all.by[d];
      all.offset.column += f.column * all.by[d];
    }
    return all;
  };
  const auto there = [](const Walked& x, std::int64_t r, std::int64_t c) {
    return std::ranges::all_of(x.inside, [&](const auto& i) {
      const std::int64_t v = i.first.at(r, c);
      return v >= 0 && v < i.second;
    });
  };
  const Walked own = walked(a, b);
  struct Gathered {
    Walked index;
    std::int64_t step = 0, below = 0;
  };
  std::vector<Gathered> gathered;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const int by = a.index[d].gathered;
    if (by < 0) continue;
    const Access& index = op.inputs[static_cast<std::size_t>(by)];
    if (std::ranges::any_of(index.index, [](const Affine& i) { return i.gathered >= 0; }))
      throw Refused{op.name + " gathers by " + w_.tensor(index.tensor).name +
                    ", which it gathers itself, for which the npu target has no code"};
    gathered.push_back({.index = walked(index, codegen::buffer_of_input(n, by)),
                        .step = own.by[d],
                        .below = w_.tensor(a.tensor).shape[d]});
  }
  if (gathered.size() > kMostIndices)
    throw Refused{op.name + " gathers by more than " + std::to_string(kMostIndices) +
                  " indices of one tensor, for which the npu target has no code"};
  const bool by_row = scratch.spread != Spread::column, by_column = scratch.spread != Spread::row;
  const std::int64_t rows = by_row ? slab.shape.rows : 1;
  const std::int64_t columns = by_column ? slab.shape.columns : 1;
  const bool kept = emit.kept && kept_ == Kept::all;
  looped(row_counter_, rows, kept, [&](std::int64_t r) {
    looped(column_counter_, columns, kept, [&](std::int64_t c) {
      if (!there(own, r, c) || own.touches.empty()) return;  // zero, which is there already
      const std::int64_t beside = scratch.spread == Spread::full ? r * scratch.pitch + c
                                  : by_row                       ? r
                                                                 : c;
      Place in_tile{own.object, own.offset.at(r, c)};
      Place in_scratch{scratch.place.object, scratch.offset() + beside};
      Move m{.to = inward ? in_scratch : in_tile, .from = inward ? in_tile : in_scratch};
      std::vector<TraceTouch> touches;
      for (const Gathered& g : gathered) {
        if (g.index.touches.empty() || !there(g.index, r, c)) continue;  // it reads as zero
        m.by.push_back(
            {.value = {g.index.object, g.index.offset.at(r, c)}, .step = g.step, .below = g.below});
        touches.insert(touches.end(), g.index.touches.begin(), g.index.touches.end());
      }
      for (TraceTouch t : own.touches) {
        t.write = !inward;
        touches.push_back(std::move(t));
      }
      touches.push_back(scratch_touch());
      if (!inward) touches.insert(touches.end(), scratch.touches.begin(), scratch.touches.end());
      std::int64_t cycles = core().issue_cycles * statements_of(m);
      if (!b.valid()) {
        const DataPath& path = *path_between(core(), Memory::gm, Memory::ub);
        cycles += path.startup + path.latency;
      }
      emit.step({.instruction = std::move(m),
                 .pipe = Pipe::scalar,
                 .touches = std::move(touches),
                 .comment = op.name,
                 .cycles = cycles});
    });
  });
}

/// The access's values over a slab, in f32 in scratch; zeros where it reads beyond its tensor.
Value KernelEmitter::packed(VectorUnit& unit, const Operator& op, const Access& a, BufferId b,
                            const ScheduleNode& n, const SlabAt& slab, std::optional<Spread> as,
                            const SlabEmit& emit) {
  const bool rows = depends(op, a, slab.loops.rows), columns = depends(op, a, slab.loops.columns);
  const bool fewer_columns = !slab.loops.rows.valid() || slab.shape.columns <= slab.shape.rows;
  const Spread spread = as              ? *as
                        : rows          ? (columns ? Spread::full : Spread::row)
                        : columns       ? Spread::column
                        : fewer_columns ? Spread::column
                                        : Spread::row;
  // A gather reads an element a point, as exact counts it.
  const Value v = unit.temporary(is_gather(a) ? Spread::full : spread, slab.shape);
  const bool outside =
      footprint(w_, op, a, slab.at).empty() ||
      std::ranges::any_of(a.index,
                          [&](const Affine& i) { return i.gathered < 0 && !i.plain_loop(); }) ||
      !spread_of(a, slab.loops);
  if (outside) unit.apply(VectorOp::dup, v, {}, slab.shape, 0);
  move_elements(op, a, b, n, slab, v, true, emit);
  return v;
}

/// A loop's index over a slab.
Value KernelEmitter::index_value(VectorUnit& unit, const Operator& op, LoopId loop,
                                 const SlabAt& slab, const SlabEmit& emit) {
  if (loop != slab.loops.rows && loop != slab.loops.columns)
    return {.constant = static_cast<double>(slab.low(loop))};
  const bool rows = loop == slab.loops.rows;
  const Value v = unit.temporary(rows ? Spread::row : Spread::column, slab.shape);
  looped(rows ? row_counter_ : column_counter_, rows ? slab.shape.rows : slab.shape.columns,
         emit.kept && kept_ == Kept::all, [&](std::int64_t i) {
           Put put{.to = {v.place.object, v.offset() + i}, .value = slab.low(loop) + i};
           const std::int64_t cycles = core().issue_cycles * statements_of(put);
           emit.step({.instruction = std::move(put),
                      .pipe = Pipe::scalar,
                      .touches = {scratch_touch()},
                      .comment = op.name,
                      .cycles = cycles});
         });
  return v;
}

/// Scratch, written: where the scalar unit works in it, too, its instructions come one after
/// another.
TraceTouch KernelEmitter::scratch_touch() const {
  const Buffer& scratch = *std::ranges::find(extra_, scratch_name_, &Buffer::name);
  return {.memory = Memory::ub,
          .write = true,
          .low = scratch.address,
          .high = scratch.address + scratch.bytes()};
}

}  // namespace tilewright::npu
