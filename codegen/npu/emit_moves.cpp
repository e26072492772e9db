// What moves between home, L1, L0A, L0B, L0C and UB, as copies.
#include <algorithm>

#include "codegen/npu/emitter.h"
#include "codegen/npu/vector_unit.h"

namespace tilewright::npu {
namespace {

/// Position of `matrix`, one of the matrices of `box`.
std::int64_t index_of(const Box& box, const Box& matrix, int rows) {
  std::int64_t index = 0;
  for (int d = 0; d + 1 < box.rank(); ++d)
    if (d != rows) index = index * box[d].size() + matrix[d].lo - box[d].lo;
  return index;
}

/// Bytes that take time at an end of a copy: rows of nd are rounded up to blocks.
std::int64_t moved_at(const Piece& end, std::int64_t rows, std::int64_t columns) {
  const std::int64_t size = size_of(end.type);
  if (end.at.layout == Layout::nd) return rows * round_up(columns * size, kBlock);
  return round_up(rows, kFractal) * round_up(columns, kFractal) * size;
}

std::int64_t column_of(const Box& box) { return box.rank() < 1 ? 0 : box[box.rank() - 1].lo; }

}  // namespace

void KernelEmitter::open(BufferId b) {
  TilePlace& p = places_[b.index()];
  Tile& t = tiles_[b.index()];
  t.copy = opens_[b.index()] == 0 ? 0 : (t.copy + 1) % p.copies;
  t.box = state(b).tile;
  t.blocks.clear();
  ++opens_[b.index()];
  if (!measuring_ || p.memory == Memory::l0c) return;
  const Matrices m = matrices_in(b, t.box);
  p.elements = std::max(p.elements, m.count * matrix_elements(b, m));
}

Piece KernelEmitter::home(TensorId t, const Box& matrix) const {
  const tilewright::Tensor& tensor = w_.tensor(t);
  std::int64_t offset = 0;
  for (int d = 0; d < matrix.rank(); ++d)
    offset = offset * tensor.shape[static_cast<std::size_t>(d)] + matrix[d].lo;
  std::int64_t pitch = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (matrix.rank() > 2) pitch = steps_at_home(t)[static_cast<std::size_t>(rows_of(t))];
  Piece p{.memory = Memory::gm,
          .type = tensor.dtype,
          .at = {.place = {tensor.name, offset}, .layout = Layout::nd, .pitch = pitch}};
  p.touches.push_back({.memory = Memory::gm, .tensor = tensor.name, .box = matrix});
  return p;
}

std::vector<std::int64_t> KernelEmitter::steps_at_home(TensorId t) const {
  const std::vector<std::int64_t>& shape = w_.tensor(t).shape;
  std::vector<std::int64_t> by(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) by[d - 1] = by[d] * shape[d];
  return by;
}

std::vector<std::int64_t> KernelEmitter::steps_in(BufferId b) const {
  const Box& box = tiles_[b.index()].box;
  const Matrices m = matrices_of(box);
  std::vector<std::int64_t> by(static_cast<std::size_t>(box.rank()), 1);
  std::int64_t next = matrix_elements(b, m);
  for (int d = box.rank() - 2; d >= 0; --d) {
    by[static_cast<std::size_t>(d)] = d + 2 == box.rank() ? pitch(b, m) : next;
    if (d + 2 < box.rank()) next *= box[d].size();
  }
  return by;
}

/// A part of the buffer's current tile, in one of its matrices.
KernelEmitter::Within KernelEmitter::within_tile(BufferId b, const Box& matrix) const {
  const TilePlace& p = places_[b.index()];
  const Tile& t = tiles_[b.index()];
  if (!contains(t.box, matrix))
    throw Refused{tensor_name(buffer(b).tensor) + " is used at " + std::string(name_of(p.memory)) +
                  " beyond its tile there"};
  const int by = rows_of(buffer(b).tensor);
  const Matrices whole = matrices_in(b, t.box), part = matrices_of(matrix, by);
  std::int64_t pitch = this->pitch(b, whole), offset = t.copy * p.elements, length = 0;
  if (p.layout == Layout::nd) {
    const int rank = matrix.rank();
    const std::int64_t row = pitch;
    std::int64_t outside = matrix_elements(b, whole);
    for (int d = rank - 1; d >= 0; --d) {
      const std::int64_t step = d + 1 == rank ? 1 : d + 2 == rank ? row : outside;
      offset += (matrix[d].lo - t.box[d].lo) * step;
      if (d == by) pitch = step;
      if (d + 2 < rank) outside *= t.box[d].size();
    }
    length = (part.rows - 1) * pitch + part.columns;
  } else {
    std::int64_t row = matrix[by].lo - t.box[by].lo, column = column_of(matrix) - column_of(t.box);
    std::int64_t rows = part.rows, columns = part.columns;
    if (p.transposed) std::swap(row, column), std::swap(rows, columns);
    offset += index_of(t.box, matrix, by) * matrix_elements(b, whole);
    if (row % kFractal != 0 || column % kFractal != 0)
      throw Refused{tensor_name(buffer(b).tensor) + " is cut at " + std::string(name_of(p.memory)) +
                    " inside a fractal: tiles are multiples of 16, or what is left of a loop"};
    const bool by_columns = p.layout == Layout::Nz;
    const std::int64_t major = by_columns ? column : row, minor = by_columns ? row : column;
    const std::int64_t majors = round_up(by_columns ? columns : rows, kFractal);
    const std::int64_t minors = round_up(by_columns ? rows : columns, kFractal);
    offset += major * pitch + minor * kFractal;
    length = (majors - kFractal) * pitch + minors * kFractal;
  }
  return {.offset = offset, .pitch = pitch, .length = length};
}

Piece KernelEmitter::tile(BufferId b, const Box& matrix) const {
  const TilePlace& p = places_[b.index()];
  const auto [offset, pitch, length] = within_tile(b, matrix);
  const std::int64_t size = size_of(p.type);
  Piece piece{.memory = p.memory,
              .type = p.type,
              .at = {.place = {p.name, offset}, .layout = p.layout, .pitch = pitch}};
  piece.touches.push_back({.memory = p.memory,
                           .low = p.address + offset * size,
                           .high = p.address + round_up((offset + length) * size, kBlock)});
  return piece;
}

/// Rows of a block of sums.
Piece KernelEmitter::sums(BufferId b, const SumBlock& block, std::int64_t row) const {
  const TilePlace& p = places_[b.index()];
  const Matrices m = matrices_of(block.box, rows_of(buffer(b).tensor));
  const std::int64_t pitch = round_up(m.rows, kFractal);
  const std::int64_t begin = tiles_[b.index()].copy * p.elements + block.offset;
  Piece piece{
      .memory = Memory::l0c,
      .type = p.type,
      .at = {.place = {p.name, begin + row * kFractal}, .layout = p.layout, .pitch = pitch}};
  const std::int64_t size = size_of(p.type);
  piece.touches.push_back(
      {.memory = Memory::l0c,
       .low = p.address + begin * size,
       .high = p.address + (begin + pitch * round_up(m.columns, kFractal)) * size});
  return piece;
}

/// The next place of a transit, for a matrix of a tensor.
Piece KernelEmitter::transit(Transit& t, TensorId tensor, Layout layout, DType type,
                             std::int64_t rows, std::int64_t columns) {
  const std::int64_t size = size_of(type);
  const std::string memory(name_of(t.memory));
  const auto same = [&](const Buffer& b) {
    return b.tensor == tensor_name(tensor) && b.memory == t.memory;
  };
  auto named = std::ranges::find_if(extra_, same);
  if (named == extra_.end()) {
    extra_.push_back({.name = names_.fresh(tensor_name(tensor) + "_through_" + memory),
                      .memory = t.memory,
                      .elements = 2 * t.bytes / size,
                      .type = type,
                      .tensor = tensor_name(tensor)});
    named = extra_.end() - 1;
  }
  const std::int64_t begin = t.next * t.bytes;
  t.next = 1 - t.next;
  const std::int64_t pitch =
      layout == Layout::nd ? round_up(columns, kBlock / size) : round_up(rows, kFractal);
  Piece piece{.memory = t.memory,
              .type = type,
              .at = {.place = {named->name, begin / size}, .layout = layout, .pitch = pitch}};
  piece.touches.push_back({.memory = t.memory, .low = begin, .high = begin + t.bytes});
  return piece;
}

const KernelEmitter::Way& KernelEmitter::way(Memory from, Memory to) {
  Way& known = ways_[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  if (known.path == nullptr) {
    const auto pipe = copy_pipe(core(), from, to);
    if (!pipe)
      throw Refused{"the machine has no path from " + std::string(name_of(from)) + " to " +
                    std::string(name_of(to))};
    known = {.path = path_between(core(), from, to), .pipe = *pipe};
  }
  return known;
}

bool KernelEmitter::keeps_copies_from(Memory from) const {
  return !measuring_ && (kept_ == Kept::all || (kept_ == Kept::reads && from == Memory::gm));
}

/// Between a part of the buffer's tile and where that comes from or goes to.
void KernelEmitter::count_copy(BufferId b, const Box& part, bool inward) {
  const BufferId outer = buffer(b).outer;
  const Memory own = places_[b.index()].memory;
  const Memory other = outer.valid() ? places_[outer.index()].memory : Memory::gm;
  if (inward && outer.valid()) within_tile(outer, part);
  within_tile(b, part);
  if (!inward && outer.valid()) within_tile(outer, part);
  way(inward ? other : own, inward ? own : other);
  charge(1);
}

/// `rows` x `columns` are the source's.
void KernelEmitter::copy(Piece to, const Piece& from, std::int64_t rows, std::int64_t columns,
                         bool transpose) {
  const auto& [path, pipe] = way(from.memory, to.memory);
  if (!measuring_ && kept_ != Kept::all && !keeps_copies_from(from.memory)) return charge(1);
  const std::int64_t bytes = rows * columns * size_of(to.type);
  const std::int64_t moved =
      std::max(moved_at(from, rows, columns),
               transpose ? moved_at(to, columns, rows) : moved_at(to, rows, columns));
  if (!measuring_ && kept_ == Kept::reads) {
    charge(1);
    const TraceTouch& read = from.touches.front();
    return reads_.push_back(
        {.number = emitted_, .tensor = read.tensor, .box = read.box, .moved = double(moved)});
  }
  std::vector<TraceTouch> touches = from.touches;
  for (TraceTouch& t : to.touches) {
    t.write = true;
    touches.push_back(std::move(t));
  }
  emit_step({.instruction = Copy{.to = to.at,
                                 .from = from.at,
                                 .rows = rows,
                                 .columns = columns,
                                 .transpose = transpose},
             .pipe = pipe,
             .touches = std::move(touches),
             .cycles = path->startup + ceil_div(bytes, path->width.value),
             .latency = path->latency,
             .moved = moved});
}

/// Where the tile of `b` comes from and goes to.
Piece KernelEmitter::outer_of(BufferId b, const Box& matrix) const {
  const BufferId outer = buffer(b).outer;
  return outer.valid() ? tile(outer, matrix) : home(buffer(b).tensor, matrix);
}

void KernelEmitter::move_in(BufferId b, const Box& box) {
  const TilePlace& p = places_[b.index()];
  if (p.memory == Memory::l0c) return sums_in(b, box);
  const BufferId outer = buffer(b).outer;
  if (outer.valid() && places_[outer.index()].memory == Memory::l0c) return sums_out(outer, b);
  if (in_strips(b)) return move_strips(b, box, true);
  const int rows = rows_of(buffer(b).tensor);
  const Matrices m = matrices_of(box, rows);
  const bool through = widened(b) || (outer.valid() && widened(outer));
  if (measuring_ && !through) return charge(m.count);
  for (std::int64_t i = 0; i < m.count; ++i) matrix_in(b, matrix_of(box, i, rows));
}

void KernelEmitter::matrix_in(BufferId b, const Box& matrix) {
  const TilePlace& p = places_[b.index()];
  const TensorId t = buffer(b).tensor;
  const BufferId outer = buffer(b).outer;
  const DType type = w_.tensor(t).dtype;
  const int rows = rows_of(t);
  const bool fractals = p.memory == Memory::l0a || p.memory == Memory::l0b;
  const bool narrows = outer.valid() && widened(outer) && !widened(b), widens = widened(b);
  std::vector<Box> parts{matrix};
  if (narrows || widens) parts = slices(t, matrix, fractals);
  if (measuring_) return charge(static_cast<std::int64_t>(parts.size()));
  const Memory source = outer.valid() ? places_[outer.index()].memory : Memory::gm;
  const bool counted =
      !keeps_copies_from(source) && !narrows && !widens && (!fractals || source == Memory::l1);
  for (const Box& part : parts) {
    if (counted) {
      count_copy(b, part, true);
      continue;
    }
    const Matrices m = matrices_of(part, rows);
    Piece from = outer_of(b, part);
    if (narrows) {
      Piece rounded = transit(*ub_transit_, t, Layout::nd, type, m.rows, m.columns);
      cast(rounded, from, m.rows, m.columns);
      from = std::move(rounded);
    }
    if (fractals && from.memory != Memory::l1) {
      Piece through = transit(*l1_transit_, t, Layout::Nz, p.type, m.rows, m.columns);
      copy(through, from, m.rows, m.columns);
      from = std::move(through);
    }
    if (widens && from.memory != Memory::ub) {
      const Piece narrow = transit(*ub_transit_, t, Layout::nd, type, m.rows, m.columns);
      copy(narrow, from, m.rows, m.columns);
      cast(tile(b, part), narrow, m.rows, m.columns);
    } else {
      copy(tile(b, part), from, m.rows, m.columns, p.transposed);
    }
  }
}

void KernelEmitter::move_out(BufferId b, const Box& box) {
  if (places_[b.index()].memory == Memory::l0c) return sums_out(b, buffer(b).outer);
  if (in_strips(b)) return move_strips(b, box, false);
  const int rows = rows_of(buffer(b).tensor);
  const Matrices m = matrices_of(box, rows);
  for (std::int64_t i = 0; i < m.count; ++i) matrix_out(b, matrix_of(box, i, rows));
}

/// Whether copies are between UB and home alone, of elements as they are.
bool KernelEmitter::in_strips(BufferId b) const {
  return places_[b.index()].memory == Memory::ub && !buffer(b).outer.valid() && !widened(b) &&
         tiles_[b.index()].box.rank() > 2;
}

/// A box in as few copies as there are: rows of several dimensions are those of one matrix where
/// they are as far apart at home and in the tile.
void KernelEmitter::move_strips(BufferId b, const Box& box, bool inward) {
  const TensorId t = buffer(b).tensor;
  const TilePlace& p = places_[b.index()];
  const Tile& tile = tiles_[b.index()];
  if (!contains(tile.box, box))
    throw Refused{tensor_name(t) + " is used at " + std::string(name_of(p.memory)) +
                  " beyond its tile there"};
  const std::vector<std::int64_t> here = steps_in(b), there = steps_at_home(t);
  int first = box.rank() - 1, inner = box.rank() - 2, last = -1;
  for (int d = first - 1; d >= 0; first = d--) {
    if (box[d].size() == 1) continue;
    const auto joins = [&](const std::vector<std::int64_t>& by) {
      return by[static_cast<std::size_t>(d)] ==
             box[last].size() * by[static_cast<std::size_t>(last)];
    };
    if (last < 0)
      inner = d;
    else if (!joins(here) || !joins(there))
      break;
    last = d;
  }
  const bool counted = measuring_ || !keeps_copies_from(inward ? Memory::gm : Memory::ub);
  Box strip = box;
  std::int64_t rows = 1, strips = 1;
  for (int d = 0; d + 1 < box.rank(); ++d) (d < first ? strips : rows) *= box[d].size();
  const std::int64_t columns = box[box.rank() - 1].size();
  for (std::int64_t i = 0; i < strips; ++i) {
    if (counted) {
      way(inward ? Memory::gm : p.memory, inward ? p.memory : Memory::gm);
      charge(1);
      continue;
    }
    std::int64_t rest = i, offset = tile.copy * p.elements;
    for (int d = first - 1; d >= 0; rest /= box[d--].size()) {
      strip[d].lo = box[d].lo + rest % box[d].size();
      strip[d].hi = strip[d].lo + 1;
    }
    for (int d = 0; d < box.rank(); ++d)
      offset += (strip[d].lo - tile.box[d].lo) * here[static_cast<std::size_t>(d)];
    Piece outside = home(t, strip);
    outside.at.pitch = there[static_cast<std::size_t>(inner)];
    const std::int64_t pitch = here[static_cast<std::size_t>(inner)], size = size_of(p.type);
    Piece inside{.memory = p.memory,
                 .type = p.type,
                 .at = {.place = {p.name, offset}, .layout = p.layout, .pitch = pitch}};
    inside.touches.push_back(
        {.memory = p.memory,
         .low = p.address + offset * size,
         .high = p.address + round_up((offset + (rows - 1) * pitch + columns) * size, kBlock)});
    copy(inward ? inside : outside, inward ? outside : inside, rows, columns);
  }
}

/// Running sums are rounded to their tensor's type on their way, whether they are complete or not.
void KernelEmitter::matrix_out(BufferId b, const Box& matrix) {
  const TensorId t = buffer(b).tensor;
  const DType type = w_.tensor(t).dtype;
  std::vector<Box> parts{matrix};
  if (widened(b)) parts = slices(t, matrix, false);
  const bool counted = !keeps_copies_from(places_[b.index()].memory) && (measuring_ || !widened(b));
  for (const Box& part : parts) {
    if (counted) {
      count_copy(b, part, false);
      continue;
    }
    const Matrices m = matrices_of(part, rows_of(t));
    Piece from = tile(b, part);
    if (widened(b) && !measuring_) {
      Piece rounded = transit(*ub_transit_, t, Layout::nd, type, m.rows, m.columns);
      cast(rounded, from, m.rows, m.columns);
      from = std::move(rounded);
    }
    copy(outer_of(b, part), from, m.rows, m.columns);
  }
}

/// From one type to another, both in UB.
void KernelEmitter::cast(const Piece& to, const Piece& from, std::int64_t rows,
                         std::int64_t columns) {
  VectorUnit unit(scratch_name_, [&](Vector v, std::vector<TraceTouch> touches) {
    emit_step(vector_step(std::move(v), std::move(touches), "cast", kept_ != Kept::none));
  });
  const auto value = [](const Piece& p) {
    return Value{.spread = Spread::full,
                 .type = p.type,
                 .place = p.at.place,
                 .pitch = p.at.pitch.literal(),
                 .touches = p.touches};
  };
  unit.apply(VectorOp::cast, value(to), {value(from)}, {.rows = rows, .columns = columns});
}

/// The parts in which a matrix passes through UB as its tensor's type has it: rows of it, and of
/// long ones so many columns of 16 rows as there is room for. `whole`: as one.
std::vector<Box> KernelEmitter::slices(TensorId t, const Box& matrix, bool whole) {
  const int by = rows_of(t);
  const Matrices m = matrices_of(matrix, by);
  const std::int64_t size = size_of(w_.tensor(t).dtype),
                     row_bytes = round_up(m.columns * size, kBlock);
  const std::int64_t rows = std::min(kFractal, m.rows);
  widest_slice_ = std::max(
      widest_slice_, whole ? m.rows * row_bytes : rows * std::min(row_bytes, kFractal * size));
  slice_bytes_ = std::max(slice_bytes_, m.rows * row_bytes);
  if (measuring_ || whole || ub_transit_->bytes >= m.rows * row_bytes) return {matrix};
  const bool all_columns = ub_transit_->bytes >= rows * row_bytes;
  const std::int64_t row_step =
      all_columns ? ub_transit_->bytes / row_bytes / kFractal * kFractal : kFractal;
  const std::int64_t column_step =
      all_columns ? m.columns : ub_transit_->bytes / rows / kBlock * kBlock / size;
  std::vector<Box> parts;
  for (std::int64_t r = 0; r < m.rows; r += row_step)
    for (std::int64_t c = 0; c < m.columns; c += column_step) {
      Box part = matrix;
      const int rank = part.rank();
      const auto cut = [&](int d, std::int64_t from, std::int64_t step) {
        if (d < 0) return;
        const std::int64_t lo = matrix[d].lo + from;
        part[d] = {lo, std::min(matrix[d].hi, lo + step)};
      };
      cut(by, r, row_step);
      cut(rank - 1, c, column_step);
      parts.push_back(std::move(part));
    }
  return parts;
}

/// Sums leave for UB as they are; for L1 and home in slices of rows through UB.
void KernelEmitter::sums_out(BufferId b, BufferId to) {
  const TensorId t = buffer(b).tensor;
  const auto end = [&](const Box& box) { return to.valid() ? tile(to, box) : home(t, box); };
  const bool direct = to.valid() && places_[to.index()].memory == Memory::ub;
  const DType type = w_.tensor(t).dtype;
  for (const SumBlock& block : tiles_[b.index()].blocks) {
    const Matrices m = matrices_of(block.box, rows_of(t));
    if (direct) {
      copy(end(block.box), sums(b, block, 0), m.rows, m.columns);
      continue;
    }
    const std::int64_t row_bytes = round_up(m.columns * size_of(type), kBlock);
    widest_slice_ = std::max(widest_slice_, std::min(kFractal, m.rows) * row_bytes);
    slice_bytes_ = std::max(slice_bytes_, m.rows * row_bytes);
    if (measuring_) continue;
    const std::int64_t step = ub_transit_->bytes >= m.rows * row_bytes
                                  ? m.rows
                                  : ub_transit_->bytes / row_bytes / kFractal * kFractal;
    for (std::int64_t row = 0; row < m.rows; row += step) {
      const std::int64_t rows = std::min(step, m.rows - row);
      Box slice = block.box;
      Interval& range = slice[rows_of(t)];
      range = {range.lo + row, range.lo + row + rows};
      const Piece through = transit(*ub_transit_, t, Layout::nd, type, rows, m.columns);
      copy(through, sums(b, block, row), rows, m.columns);
      copy(end(slice), through, rows, m.columns);
    }
  }
}

/// Partial sums come back, as they were rounded when they left.
void KernelEmitter::sums_in(BufferId b, const Box& box) {
  const TensorId t = buffer(b).tensor;
  const BufferId outer = buffer(b).outer;
  const bool direct = outer.valid() && places_[outer.index()].memory == Memory::ub;
  for (std::int64_t i = 0; i < matrices_of(box, rows_of(t)).count; ++i) {
    const SumBlock block = sum_block(b, matrix_of(box, i, rows_of(t)), true);
    const Matrices m = matrices_of(block.box, rows_of(t));
    const std::int64_t row_bytes = round_up(m.columns * size_of(w_.tensor(t).dtype), kBlock);
    if (!direct) {
      widest_slice_ = std::max(widest_slice_, m.rows * row_bytes);
      slice_bytes_ = std::max(slice_bytes_, m.rows * row_bytes);
    }
    if (measuring_) continue;
    Piece from = outer_of(b, block.box);
    if (!direct) {
      Piece through = transit(*ub_transit_, t, Layout::nd, w_.tensor(t).dtype, m.rows, m.columns);
      copy(through, from, m.rows, m.columns);
      from = std::move(through);
    }
    copy(sums(b, block, 0), from, m.rows, m.columns);
  }
}

}  // namespace tilewright::npu
