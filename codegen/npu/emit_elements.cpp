// What the vector unit cannot read or write as it lies: several loops in one index, padding, other
// orders of loops. Floats it brings to scratch itself, or from there; gathers and other types the
// scalar unit moves, an element at a time.
#include <algorithm>

#include "codegen/npu/emitter.h"
#include "codegen/npu/vector_unit.h"

namespace tilewright::npu {
namespace {

/// The blocks of a value from one of them on.
Value blocks_from(Value v, std::int64_t first) {
  v.place.offset = v.offset() + first * kBlock / size_of(v.type);
  return v;
}

}  // namespace

Interval clipped(std::int64_t begin, std::int64_t step, std::int64_t below, std::int64_t n) {
  Interval all{0, n};
  if (step == 0) return begin >= 0 && begin < below ? all : Interval{0, 0};
  const auto floor_div = [](std::int64_t a, std::int64_t b) { return (a - (a % b + b) % b) / b; };
  const auto up = [&](std::int64_t a, std::int64_t b) { return -floor_div(-a, b); };
  if (step > 0) {
    all.lo = std::max(all.lo, up(-begin, step));
    all.hi = std::min(all.hi, up(below - begin, step));
  } else {
    all.lo = std::max(all.lo, up(begin - below + 1, -step));
    all.hi = std::min(all.hi, floor_div(begin, -step) + 1);
  }
  return all.lo < all.hi ? all : Interval{0, 0};
}

bool whole(const Walked& x, const Shape& shape) {
  return !x.touches.empty() && std::ranges::all_of(x.inside, [&](const auto& i) {
    for (const std::int64_t r : {std::int64_t{0}, shape.rows - 1})
      for (const std::int64_t c : {std::int64_t{0}, shape.columns - 1})
        if (const std::int64_t v = i.first.at(r, c); v < 0 || v >= i.second) return false;
    return true;
  });
}

std::optional<SlabPart> inside_of(const Walked& x, const Shape& shape) {
  SlabPart part{.rows = {0, shape.rows}, .columns = {0, shape.columns}};
  if (x.touches.empty()) return SlabPart{};
  for (const auto& [f, below] : x.inside) {
    if (f.row != 0 && f.column != 0) return std::nullopt;
    if (f.column != 0)
      part.columns = intersect(part.columns, clipped(f.base, f.column, below, shape.columns));
    else
      part.rows = intersect(part.rows, clipped(f.base, f.row, below, shape.rows));
  }
  return part;
}

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

bool is_in_last_two(const Access& a, LoopId loop) {
  for (std::size_t d = 0; d + 2 < a.index.size(); ++d)
    if (std::ranges::find(a.index[d].terms, loop, &Term::loop) != a.index[d].terms.end())
      return false;
  return true;
}

bool KernelEmitter::may_lie(OpId id, const Access& a, const SlabLoops& loops) const {
  const Operator& op = w_.op(id);
  const std::int64_t block = kBlock / size_of(w_.tensor(a.tensor).dtype);
  if (is_gather(a)) return false;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const Affine& index = a.index[d];
    const bool last = d + 1 == a.index.size();
    bool columns = false, anywhere = false;  // where the tile begins, whatever that is
    for (const Term& t : index.terms) {
      if (t.loop == loops.columns) {
        if (!last || t.coefficient != 1) return false;
        columns = true;
      } else if (last && tile_size(id, t.loop) == 1) {
        anywhere = true;
      } else if (last && t.coefficient % block != 0) {
        return false;
      }
    }
    if (last && (!columns || (!anywhere && index.offset % block != 0))) return false;
  }
  return depends(op, a, loops.columns);
}

bool KernelEmitter::along_rows(const Access& a, const SlabLoops& loops) const {
  for (std::size_t d = 0; d < a.index.size(); ++d)
    for (const Term& t : a.index[d].terms)
      if (t.loop == loops.columns && (d + 1 < a.index.size() || t.coefficient != 1)) return false;
  return !a.index.empty() && std::ranges::find(a.index.back().terms, loops.columns, &Term::loop) !=
                                 a.index.back().terms.end();
}

bool KernelEmitter::in_lines(BufferId b) const {
  return b.valid() &&
         (places_[b.index()].type == DType::f32 || places_[b.index()].type == DType::f16);
}

bool KernelEmitter::by_elements(const ScheduleNode& n) const {
  const Operator& op = w_.op(n.op);
  const SlabLoops loops = slab_loops(n.op);
  const auto walks = [&](const Access& a, BufferId b) {
    return in_lines(b) || spread_of(a, loops) || (b.valid() && along_rows(a, loops));
  };
  const std::function<bool(const Expr&)> has_index = [&](const Expr& e) {
    return e.kind == Expr::Kind::index || std::ranges::any_of(e.args, has_index);
  };
  if (w_.gathers(n.op)) return true;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    if (!walks(op.inputs[i], codegen::buffer_of_input(n, static_cast<int>(i)))) return true;
  return std::ranges::any_of(n.writes, [&](const OutputUse& out) {
    const Output& o = op.outputs[static_cast<std::size_t>(out.output)];
    return !walks(o.target, out.buffer) || has_index(o.value);
  });
}

Walked KernelEmitter::walked(OpId id, const Access& a, BufferId of, const std::vector<Interval>& at,
                             const SlabLoops& loops) const {
  const Operator& op = w_.op(id);
  const auto form = [&](const Affine& i) {
    Form f{.base = i.offset};
    for (const Term& t : i.terms) {
      f.base += t.coefficient * at[static_cast<std::size_t>(w_.local_index(id, t.loop))].lo;
      if (t.loop == loops.rows) f.row += t.coefficient;
      if (t.loop == loops.columns) f.column += t.coefficient;
    }
    return f;
  };
  const tilewright::Tensor& tensor = w_.tensor(a.tensor);
  const Box read = footprint(w_, op, a, at);
  Walked all;
  Box box = read;  // what is there, from its first element on
  if (of.valid()) {
    const Tile& t = tiles_[of.index()];
    const TilePlace& p = places_[of.index()];
    all.object = p.name;
    all.type = p.type;
    if (read.empty()) return all;
    box = t.box;
    if (!contains(box, read)) throw Refused{tensor.name + " is used at UB beyond its tile there"};
    all.by = steps_in(of);
    all.offset.base = t.copy * p.elements;
    std::int64_t low = all.offset.base, last = low;
    for (int d = 0; d < box.rank(); ++d) {
      low += (read[d].lo - box[d].lo) * all.by[static_cast<std::size_t>(d)];
      last += (read[d].hi - 1 - box[d].lo) * all.by[static_cast<std::size_t>(d)];
    }
    const std::int64_t size = size_of(p.type);
    all.touches.push_back({.memory = Memory::ub,
                           .low = p.address + low * size / kBlock * kBlock,
                           .high = p.address + round_up((last + 1) * size, kBlock)});
  } else {  // a gather reads home
    all.by = steps_at_home(a.tensor);
    all.object = tensor.name;
    all.type = tensor.dtype;
    if (read.empty()) return all;
    all.touches.push_back({.memory = Memory::gm, .tensor = all.object, .box = read});
  }
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const std::int64_t low = of.valid() ? box[static_cast<int>(d)].lo : 0;
    if (a.index[d].gathered >= 0) {
      all.offset.base -= low * all.by[d];
      continue;
    }
    const Form f = form(a.index[d]);
    Interval all_of{f.base, f.base + 1};
    for (const Term& t : a.index[d].terms) {
      const std::int64_t to =
          t.coefficient * (at[static_cast<std::size_t>(w_.local_index(id, t.loop))].size() - 1);
      (to < 0 ? all_of.lo : all_of.hi) += to;
    }
    if (all_of.lo < 0 || all_of.hi > tensor.shape[d]) all.inside.emplace_back(f, tensor.shape[d]);
    all.offset.base += (f.base - low) * all.by[d];
    all.offset.row += f.row * all.by[d];
    all.offset.column += f.column * all.by[d];
  }
  return all;
}

std::optional<Value> KernelEmitter::as_it_lies(const Operator& op, const Access& a, const Walked& x,
                                               const SlabLoops& loops, const Shape& shape) const {
  const std::int64_t block = kBlock / size_of(x.type);
  if (is_gather(a) || !whole(x, shape) || x.offset.base % block != 0) return std::nullopt;
  const bool rows = depends(op, a, loops.rows), columns = depends(op, a, loops.columns);
  Value v{.spread = !rows && loops.rows.valid() ? Spread::column : Spread::full,
          .type = x.type,
          .place = {x.object, x.offset.base},
          .pitch = shape.rows > 1 ? x.offset.row : round_up(shape.columns, block),
          .touches = x.touches};
  if (columns) {
    if (shape.columns > 1 && x.offset.column != 1) return std::nullopt;
    if (v.spread == Spread::full && (v.pitch < 0 || v.pitch % block != 0)) return std::nullopt;
    return v;
  }
  v.spread = Spread::row;
  if (!rows || (shape.rows > 1 && x.offset.row != 1)) return std::nullopt;
  return v;
}

std::optional<SlabPart> KernelEmitter::part_as_it_lies(const Operator& op, const Access& a,
                                                       const Walked& x, const SlabAt& slab,
                                                       const Value& to) const {
  const bool by_rows = depends(op, a, slab.loops.rows);
  const Shape shape{by_rows ? slab.shape.rows : 1, slab.shape.columns};
  if (is_gather(a) || !depends(op, a, slab.loops.columns)) return std::nullopt;
  if ((to.spread == Spread::full) != (by_rows || !slab.loops.rows.valid())) return std::nullopt;
  if (to.spread != Spread::full && to.spread != Spread::column) return std::nullopt;
  const std::optional<SlabPart> part = inside_of(x, shape);
  if (!part || part->empty()) return part;
  const std::int64_t block = kBlock / size_of(x.type);
  const std::int64_t first = x.offset.at(part->rows.lo, part->columns.lo);
  const bool rows_lie = part->rows.size() == 1 || (x.offset.row >= 0 && x.offset.row % block == 0);
  const bool columns_lie = part->columns.size() == 1 || x.offset.column == 1;
  if (!rows_lie || !columns_lie || first % block != 0) return std::nullopt;
  if (part->columns.lo % (kBlock / size_of(to.type)) != 0) return std::nullopt;
  return part;
}

void KernelEmitter::fill(VectorUnit& unit, const Walked& x, const SlabPart& part,
                         const SlabAt& slab, const Value& to) const {
  const Shape all{to.spread == Spread::full ? slab.shape.rows : 1, slab.shape.columns};
  const Shape some{part.rows.size(), part.columns.size()};
  if (part.empty() || some.rows < all.rows || some.columns < all.columns)
    unit.apply(VectorOp::dup, to, {}, all, 0);
  if (part.empty()) return;
  Value there = to;
  there.place.offset = to.offset() + part.rows.lo * to.pitch + part.columns.lo;
  const Value from{
      .spread = to.spread,
      .type = x.type,
      .place = {x.object, x.offset.at(part.rows.lo, part.columns.lo)},
      .pitch = some.rows > 1 ? x.offset.row : round_up(some.columns, kBlock / size_of(x.type)),
      .touches = x.touches};
  unit.apply(x.type == to.type ? VectorOp::copy : VectorOp::cast, there, {from}, some);
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
void KernelEmitter::move_elements(VectorUnit& unit, const Operator& op, const Access& a, BufferId b,
                                  const ScheduleNode& n, const SlabAt& slab, const Value& scratch,
                                  bool inward, const SlabEmit& emit) {
  const auto there = [](const Walked& x, std::int64_t r, std::int64_t c) {
    return std::ranges::all_of(x.inside, [&](const auto& i) {
      const std::int64_t v = i.first.at(r, c);
      return v >= 0 && v < i.second;
    });
  };
  const Walked own = walked(slab.op, a, b, slab.at, slab.loops);
  if (in_lines(b) && !is_gather(a)) {
    if (own.type == DType::f32) return move_lines(unit, own, slab, scratch, inward, emit);
    TW_CHECK(!inward, op.name);  // packed() casts what comes
    const std::int64_t used = unit.used();
    const Value narrow = unit.temporary(scratch.spread, slab.shape, narrow_scratch());
    unit.apply(VectorOp::cast, narrow, {scratch}, slab.shape);
    move_lines(unit, own, slab, narrow, false, emit);
    return unit.release_to(used);
  }
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
    gathered.push_back(
        {.index = walked(slab.op, index, codegen::buffer_of_input(n, by), slab.at, slab.loops),
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
  // A gather reads an element a point, as exact counts it.
  const Spread spread = as                ? *as
                        : is_gather(a)    ? Spread::full
                        : rows && columns ? Spread::full
                        : rows            ? Spread::row
                        : columns         ? Spread::column
                                          : Spread::one;
  const Walked own = walked(slab.op, a, b, slab.at, slab.loops);
  if (emit.kept && (spread == Spread::full || spread == Spread::column)) {
    const std::int64_t used = unit.used();
    const Value v = unit.temporary(spread, slab.shape);
    if (const auto part = part_as_it_lies(op, a, own, slab, v)) {
      fill(unit, own, *part, slab, v);
      return v;
    }
    unit.release_to(used);
  }
  const bool lines = in_lines(b) && !is_gather(a), all = lines && whole(own, slab.shape);
  if (lines && own.type == DType::f16) {
    const Value wide =
        spread == Spread::one ? unit.blocks(spread, 1) : unit.temporary(spread, slab.shape);
    const std::int64_t used = unit.used();
    const Value narrow = unit.temporary(spread, slab.shape, narrow_scratch());
    if (!all) unit.apply(VectorOp::dup, narrow, {}, slab.shape, 0);
    if (spread != Spread::one)
      move_lines(unit, own, slab, narrow, true, emit);
    else if (all)
      unit.fill_blocks(narrow, {.first = {own.object, own.offset.base}}, 1, own.touches);
    unit.apply(VectorOp::cast, wide, {narrow}, slab.shape);
    unit.release_to(used);
    return spread == Spread::row && !as ? unit.in_blocks(wide, slab.shape) : wide;
  }
  if (spread == Spread::one || (spread == Spread::row && lines && !as)) {
    const std::int64_t elements = spread == Spread::one ? 1 : slab.shape.rows;
    const Value v = unit.blocks(spread, elements);
    if (!lines) {  // the scalar unit moves one, which then fills a block
      const Value one = unit.temporary(Spread::one, slab.shape);
      if (!whole(own, {})) unit.apply(VectorOp::dup, one, {}, slab.shape, 0);
      move_elements(unit, op, a, b, n,
                    {.w = slab.w, .op = slab.op, .at = slab.at, .loops = {}, .shape = {}}, one,
                    true, emit);
      unit.fill_blocks(v, {.first = one.place}, 1, {});
      return v;
    }
    if (!all) unit.clear(v, elements);
    Interval there{0, own.touches.empty() ? 0 : elements};
    for (const auto& [f, below] : own.inside)
      there = intersect(there, clipped(f.base, f.row, below, elements));
    if (!there.empty())
      unit.fill_blocks(blocks_from(v, there.lo),
                       {.first = {own.object, own.offset.at(there.lo, 0)}, .step = own.offset.row},
                       there.size(), own.touches);
    return v;
  }
  const Value v = unit.temporary(spread, slab.shape);
  const bool outside =
      lines
          ? !all
          : footprint(w_, op, a, slab.at).empty() ||
                std::ranges::any_of(
                    a.index, [&](const Affine& i) { return i.gathered < 0 && !i.plain_loop(); }) ||
                !spread_of(a, slab.loops);
  if (outside) unit.apply(VectorOp::dup, v, {}, slab.shape, 0);
  move_elements(unit, op, a, b, n, slab, v, true, emit);
  return v;
}

/// Scratch as elements of 16 bits: a value to begin temporaries like.
Value KernelEmitter::narrow_scratch() {
  if (narrow_name_.empty()) {
    if (scratch_bytes_ == 0) throw Refused{"its tiles leave no UB to work in"};
    narrow_name_ = names_.fresh("scratch16");
    Buffer narrow = *std::ranges::find(extra_, scratch_name_, &Buffer::name);
    narrow.name = narrow_name_, narrow.type = DType::f16;
    narrow.elements *= size_of(DType::f32) / size_of(DType::f16);
    extra_.push_back(std::move(narrow));
  }
  return {.type = DType::f16, .place = {narrow_name_, 0}};
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
  if (scratch_bytes_ == 0) throw Refused{"its tiles leave no UB to work in"};
  const Buffer& scratch = *std::ranges::find(extra_, scratch_name_, &Buffer::name);
  return {.memory = Memory::ub,
          .write = true,
          .low = scratch.address,
          .high = scratch.address + scratch.bytes()};
}

}  // namespace tilewright::npu
