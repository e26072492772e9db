// Element-wise operators and reductions on the vector unit. An operator runs on slabs of rows and
// columns: its values are computed in f32 in scratch, whatever type its tiles have, and rounded once.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "codegen/npu/emitter.h"

namespace tilewright::npu {
namespace {

constexpr std::int64_t kLanes = kVector / 4;  // f32 elements of a repeat

/// How a value lies over a slab.
enum class Spread : std::uint8_t {
  constant,
  full,    ///< an element for each row and column
  row,     ///< one for each row
  column,  ///< one for each column
};

struct Value {
  Spread spread = Spread::constant;
  double constant = 0;
  DType type = DType::f32;
  Place place = {};          ///< literal offset
  std::int64_t pitch = 0;    ///< full: elements from row to row
  bool blocks = false;       ///< row: each element fills a block (vbrcb)
  std::vector<TraceTouch> touches = {};  ///< tiles; scratch is the vector unit's own
  std::int64_t offset() const { return place.offset.literal(); }
};

struct Shape {
  std::int64_t rows = 1, columns = 1;
};

/// Emits vector instructions; temporaries are a stack in scratch.
class VectorUnit {
 public:
  using Emit = std::function<void(Vector, std::vector<TraceTouch>)>;
  VectorUnit(std::string scratch, Emit emit)
      : scratch_(std::move(scratch)), emit_(std::move(emit)) {}

  std::int64_t most() const { return most_; }  ///< elements that temporaries took

  Value temporary(Spread spread, Shape s) {
    Value v{.spread = spread, .place = {scratch_, used_}};
    v.pitch = round_up(s.columns, kBlock / 4);
    const std::int64_t elements = spread == Spread::full ? s.rows * v.pitch
                                  : spread == Spread::row ? round_up(s.rows, kBlock / 4)
                                                          : v.pitch;
    used_ += elements;
    most_ = std::max(most_, used_);
    return v;
  }

  /// to = op(from...) over the slab; operands of one type but in a cast.
  void apply(VectorOp op, const Value& to, std::vector<Value> from, Shape s, double immediate = 0) {
    for (Value& v : from)
      if (v.spread == Spread::row && to.spread == Spread::full) v = in_blocks(v, s);
    if (to.spread == Spread::row) {  // a vector of rows is one row of columns
      s = {.rows = 1, .columns = s.rows};
    } else if (to.spread == Spread::column) {
      s.rows = 1;
    }
    const auto too_far = [&](const Value& v) { return stride(v, to) > kMaxStride; };
    if (s.rows > 1 && (too_far(to) || std::ranges::any_of(from, too_far))) {
      for (std::int64_t r = 0; r < s.rows; ++r) {
        std::vector<Value> of_row;
        for (const Value& v : from) of_row.push_back(row_of(v, r));
        apply_rows(op, row_of(to, r), of_row, {1, s.columns}, immediate);
      }
      return;
    }
    apply_rows(op, to, from, s, immediate);
  }

  /// Each row of `from` (f32, full) becomes one element of `to` (row); its columns are overwritten.
  void reduce(VectorOp fold, VectorOp across, const Value& to, const Value& from, Shape s) {
    for (std::int64_t c = kLanes; c < s.columns; c += kLanes) {
      Value part = from;
      part.place.offset = from.offset() + c;
      apply(fold, from, {from, part}, {s.rows, std::min(kLanes, s.columns - c)});
    }
    const std::int64_t lanes = std::min(kLanes, s.columns);
    for (std::int64_t r = 0; r < s.rows;) {
      const std::int64_t stride = from.pitch * 4 / kBlock;
      const std::int64_t n = stride > kMaxStride ? 1 : std::min(kMaxRepeat, s.rows - r);
      Vector v{.op = across, .to = {.place = moved(to.place, r)}, .repeat = n};
      v.from.push_back({.place = moved(from.place, r * from.pitch)});
      if (n > 1) v.from.back().repeat_stride = stride;
      if (lanes < kLanes) v.mask = lanes;
      emit_all(std::move(v), to, {from});
      r += n;
    }
  }

  /// A row's element in a block, as an operand over full slabs.
  Value in_blocks(const Value& v, Shape s) {
    if (v.blocks) return v;
    Value to{.spread = Spread::row, .place = {scratch_, used_}, .blocks = true};
    used_ += round_up(s.rows, 8) * 8;
    most_ = std::max(most_, used_);
    for (std::int64_t r = 0; r < s.rows;) {  // eight rows a repeat
      const std::int64_t whole = std::min(kMaxRepeat, (s.rows - r) / 8);
      const std::int64_t n = std::max<std::int64_t>(whole, 1);
      Vector b{.op = VectorOp::brcb, .to = {.place = moved(to.place, r * 8)}, .repeat = n};
      b.from.push_back({.place = moved(v.place, r)});
      if (whole == 0) b.mask = s.rows - r;
      emit_all(std::move(b), to, {v});
      r += whole == 0 ? s.rows - r : 8 * whole;
    }
    return to;
  }

 private:
  static Place moved(const Place& p, std::int64_t by) {
    return {p.object, p.offset.literal() + by};
  }

  static Value row_of(Value v, std::int64_t r) {
    if (v.spread == Spread::full) v.place = moved(v.place, r * v.pitch);
    if (v.spread == Spread::row && v.blocks) v.place = moved(v.place, r * 8);
    return v;
  }

  /// Blocks from one row of an operand to the next.
  static std::int64_t stride(const Value& v, const Value& to) {
    if (v.spread == Spread::full) return v.pitch * size_of(v.type) / kBlock;
    return v.spread == Spread::row && to.spread == Spread::full ? 1 : 0;
  }

  void apply_rows(VectorOp op, const Value& to, const std::vector<Value>& from, Shape s,
                  double immediate) {
    const bool narrow = to.type == DType::f16 &&
                        std::ranges::all_of(from, [](const Value& v) { return v.type == DType::f16; });
    const std::int64_t lanes = narrow ? 2 * kLanes : kLanes;
    const auto instruction = [&](std::int64_t row, std::int64_t column, std::int64_t repeat,
                                 std::int64_t mask, bool along) {
      const auto operand = [&](const Value& v) {
        const bool block = v.spread == Spread::row && v.blocks;
        VectorPlace p{.place = moved(v.place, (v.spread == Spread::full ? row * v.pitch : 0) +
                                                  (block ? row * 8 : column))};
        if (block) p.block_stride = 0;
        if (along && block) p.repeat_stride = 0;
        if (!along && repeat > 1) p.repeat_stride = stride(v, to);
        return p;
      };
      Vector v{.op = op, .to = operand(to), .immediate = immediate, .repeat = repeat};
      for (const Value& f : from) v.from.push_back(operand(f));
      if (mask < lanes) v.mask = mask;
      emit_all(std::move(v), to, from);
    };
    if (s.rows == 1) {
      std::int64_t c = 0;
      for (std::int64_t n; (n = std::min(kMaxRepeat, (s.columns - c) / lanes)) > 0; c += n * lanes)
        instruction(0, c, n, lanes, true);
      if (c < s.columns) instruction(0, c, 1, s.columns - c, true);
      return;
    }
    for (std::int64_t c = 0; c < s.columns; c += lanes)
      for (std::int64_t r = 0; r < s.rows; r += kMaxRepeat)
        instruction(r, c, std::min(kMaxRepeat, s.rows - r), std::min(lanes, s.columns - c), false);
  }

  void emit_all(Vector v, const Value& to, const std::vector<Value>& from) {
    std::vector<TraceTouch> touches;
    for (const Value& f : from)
      touches.insert(touches.end(), f.touches.begin(), f.touches.end());
    for (TraceTouch t : to.touches) {
      t.write = true;
      touches.push_back(std::move(t));
    }
    emit_(std::move(v), std::move(touches));
  }

  std::string scratch_;
  std::int64_t used_ = 0, most_ = 0;
  Emit emit_;
};

std::optional<VectorOp> binary(std::string_view f) {
  static const std::map<std::string_view, VectorOp> all = {
      {"add", VectorOp::add}, {"sub", VectorOp::sub}, {"mul", VectorOp::mul},
      {"div", VectorOp::div}, {"max", VectorOp::max}, {"min", VectorOp::min}};
  const auto at = all.find(f);
  return at == all.end() ? std::nullopt : std::optional(at->second);
}

std::optional<VectorOp> unary(std::string_view f) {
  static const std::map<std::string_view, VectorOp> all = {
      {"exp", VectorOp::exp},     {"log", VectorOp::log},     {"sqrt", VectorOp::sqrt},
      {"rsqrt", VectorOp::rsqrt}, {"recip", VectorOp::recip}, {"relu", VectorOp::relu},
      {"abs", VectorOp::abs}};
  const auto at = all.find(f);
  return at == all.end() ? std::nullopt : std::optional(at->second);
}

/// Computes expressions over a slab.
class Expressions {
 public:
  Expressions(VectorUnit& unit, const std::string& op, const std::vector<Value>& inputs, Shape shape)
      : unit_(unit), op_(op), inputs_(inputs), shape_(shape) {}

  /// In f32, in `to` (f32) where given.
  Value value(const Expr& e, const Value* to = nullptr) {
    switch (e.kind) {
      case Expr::Kind::constant:
        return {.constant = e.constant};
      case Expr::Kind::input:
        return wide(inputs_[static_cast<std::size_t>(e.input)]);
      case Expr::Kind::call:
        return call(e, to);
      case Expr::Kind::index:
        throw Refused{op_ + " reads a loop's index, for which the npu target has no code"};
      default:
        throw Refused{op_ + " reads an output of its own, for which the npu target has no code"};
    }
  }

  /// A value in `to`, of whatever type and spread.
  void into(const Value& v, const Value& to) {
    if (v.spread == Spread::constant && to.type == DType::f32)
      return unit_.apply(VectorOp::dup, to, {}, shape_, v.constant);
    if (v.spread == to.spread && v.place == to.place) return;
    if (v.type == to.type && v.spread != Spread::constant)
      return unit_.apply(VectorOp::copy, to, {v}, shape_);
    Value whole = v;
    if (v.spread != to.spread) {
      whole = unit_.temporary(to.spread, shape_);
      into(v, whole);
    }
    unit_.apply(VectorOp::cast, to, {whole}, shape_);
  }

  /// Where an expression is one operation on what has the type of `to`: done at once, rounded once.
  bool directly(const Expr& e, const Value& to) {
    if (e.kind != Expr::Kind::call || to.type != DType::f16) return false;
    std::vector<Value> from;
    for (const Expr& a : e.args) {
      if (a.kind != Expr::Kind::input) return false;
      from.push_back(inputs_[static_cast<std::size_t>(a.input)]);
      if (from.back().type != to.type || from.back().spread != to.spread) return false;
    }
    const auto op = from.size() == 2 ? binary(e.function) : unary(e.function);
    if (op) unit_.apply(*op, to, from, shape_);
    return op.has_value();
  }

 private:
  /// The tile's values in f32.
  Value wide(const Value& v) {
    if (v.type == DType::f32) return v;
    Value t = unit_.temporary(v.spread, shape_);
    unit_.apply(VectorOp::cast, t, {v}, shape_);
    return t;
  }

  static Spread over(Spread a, Spread b) {
    if (a == b || b == Spread::constant) return a;
    return a == Spread::constant ? b : Spread::full;
  }

  Value result(Spread spread, const Value* to) {
    return to != nullptr && to->spread == spread ? *to : unit_.temporary(spread, shape_);
  }

  Value with(VectorOp op, const Value& v, double immediate, const Value* to) {
    const Value t = result(v.spread, to);
    unit_.apply(op, t, {v}, shape_, immediate);
    return t;
  }

  Value call(const Expr& e, const Value* to) {
    std::vector<Value> args;
    for (const Expr& a : e.args) args.push_back(value(a));
    if (std::ranges::all_of(args, [](const Value& v) { return v.spread == Spread::constant; })) {
      std::vector<double> numbers;
      for (const Value& v : args) numbers.push_back(v.constant);
      return {.constant = find_expr_function(e.function)->evaluate(numbers.data())};
    }
    if (args.size() == 2) return call(e.function, args[0], args[1], to);
    if (args.size() == 1) return call(e.function, args[0], to);
    throw unknown(e.function);
  }

  Refused unknown(const std::string& function) const {
    return Refused{op_ + " calls " + function + ", which the vector unit has no instruction for"};
  }

  Value call(const std::string& f, const Value& a, const Value& b, const Value* to) {
    const auto op = binary(f);
    if (!op) throw unknown(f);
    if (b.spread == Spread::constant) {
      switch (*op) {
        case VectorOp::add:
          return with(VectorOp::adds, a, b.constant, to);
        case VectorOp::sub:
          return with(VectorOp::adds, a, -b.constant, to);
        case VectorOp::mul:
          return with(VectorOp::muls, a, b.constant, to);
        case VectorOp::div:
          return with(VectorOp::muls, a, 1 / b.constant, to);
        case VectorOp::max:
          return with(VectorOp::maxs, a, b.constant, to);
        default:
          return with(VectorOp::mins, a, b.constant, to);
      }
    }
    if (a.spread == Spread::constant) {
      if (*op == VectorOp::sub)
        return with(VectorOp::adds, with(VectorOp::muls, b, -1, nullptr), a.constant, to);
      if (*op == VectorOp::div)
        return with(VectorOp::muls, with(VectorOp::recip, b, 0, nullptr), a.constant, to);
      return call(f, b, a, to);  // the others commute
    }
    const Value t = result(over(a.spread, b.spread), to);
    unit_.apply(*op, t, {a, b}, shape_);
    return t;
  }

  Value call(const std::string& f, const Value& a, const Value* to) {
    if (const auto op = unary(f)) return with(*op, a, 0, to);
    if (f == "neg") return with(VectorOp::muls, a, -1, to);
    if (f == "square") return call("mul", a, a, to);
    if (f == "sigmoid" || f == "tanh") {  // 1 / (1 + e^-x); tanh x = 2 sigmoid(2x) - 1
      const double scale = f == "tanh" ? 2 : 1;
      Value v = with(VectorOp::muls, a, -scale, nullptr);
      v = with(VectorOp::exp, v, 0, &v);
      v = with(VectorOp::adds, v, 1, &v);
      v = with(VectorOp::recip, v, 0, scale == 1 ? to : &v);
      if (scale == 1) return v;
      v = with(VectorOp::muls, v, 2, &v);
      return with(VectorOp::adds, v, -1, to);
    }
    throw unknown(f);
  }

  VectorUnit& unit_;
  const std::string& op_;
  const std::vector<Value>& inputs_;
  Shape shape_;
};

}  // namespace

/// The loops that a slab's rows and columns run over: the last two dimensions of the access with the
/// most.
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
  return fold == VectorOp::add ? VectorOp::rsum
                               : fold == VectorOp::max ? VectorOp::rmax : VectorOp::rmin;
}

}  // namespace

void KernelEmitter::vector_compute(NodeId node, const Ranges& ranges,
                                   const std::vector<SumStep>& steps) {
  const ScheduleNode& n = k_.node(node);
  const Operator& op = w_.op(n.op);
  if (op.outputs.size() != 1)
    throw Refused{op.name + " has several outputs, for which the npu target has no code"};
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

/// Rows of a slab whose temporaries fit scratch: a multiple of 16, so that a slab's part of a vector
/// of rows is aligned.
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
                  " bytes of UB to work in, and its tiles leave " +
                  std::to_string(scratch_bytes_)};
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
  add(op.outputs.front().target, n.writes.front().buffer);
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
    inputs.push_back(
        tile_value(op.inputs[i], codegen::buffer_of_input(n, static_cast<int>(i))));
  const Output& output = op.outputs.front();
  const Value out = tile_value(output.target, n.writes.front().buffer);
  Expressions expressions(unit, op.name, inputs, shape);
  if (output.combine == Combine::assign) {
    if (!expressions.directly(output.value, out)) {
      const Value v = expressions.value(output.value, out.type == DType::f32 ? &out : nullptr);
      expressions.into(v, out);
    }
    return unit.most();
  }
  const VectorOp fold = folding(op, output.combine);
  const bool by_columns = loops.columns.valid() && w_.is_reduction(n.op, loops.columns);
  const bool by_rows = loops.rows.valid() && w_.is_reduction(n.op, loops.rows);
  if (by_columns && by_rows)
    throw Refused{op.name + " sums over both of its last loops, for which the npu target has no code"};
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
  return unit.most();
}

}  // namespace tilewright::npu
