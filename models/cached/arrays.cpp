#include "models/cached/arrays.h"

#include <algorithm>
#include <cmath>

namespace tilewright::cached {

namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/// Sum of floor((a * i + b) / m) for i from 0 to n - 1, by Euclid's algorithm.
std::int64_t floor_sum(std::int64_t n, std::int64_t m, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  for (;;) {
    const std::int64_t qa = floor_div(a, m), qb = floor_div(b, m);
    sum += qa * (n * (n - 1) / 2) + qb * n;
    a -= qa * m;
    b -= qb * m;
    const std::int64_t last = a * n + b;
    if (last < m) return sum;
    n = last / m;
    b = last % m;
    std::swap(a, m);
  }
}

/// Of `n` of the rows, `pitch` apart and the first one `from` bytes after the first of all, the
/// lines that begin at `set` modulo `round`.
std::int64_t rows_in_set(const Rows& rows, std::int64_t from, std::int64_t pitch, std::int64_t n,
                         std::int64_t round, std::int64_t set) {
  const std::int64_t high = rows.high + from - set, low = rows.low + from - set;
  if (n == 1 || pitch % round == 0) return n * (floor_div(high, round) - floor_div(low, round));
  return floor_sum(n, round, pitch, high) - floor_sum(n, round, pitch, low);
}

constexpr std::int64_t kMostRows = 64;

}  // namespace

std::int64_t Array::offset(const std::array<std::int64_t, kMaxRank>& at) const {
  std::int64_t before = 0, inside = 0, height = 1, width = 1;
  for (int d = 0; d < rank; ++d) width *= extent[static_cast<std::size_t>(d)];
  for (int d = 0; d < rank; ++d) {
    const auto i = static_cast<std::size_t>(d);
    width /= extent[i];
    const std::int64_t low = at[i] - at[i] % block[i];
    const std::int64_t high = std::min(block[i], extent[i] - low);
    before += low * height * width;
    inside = inside * high + at[i] - low;
    height *= high;
  }
  return (before + inside) * element;
}

void Array::list_sources() {
  count = 0;
  for (const bool inner : {false, true})
    for (int d = 0; d < rank; ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (inner ? block[i] > 1 || extent[i] == 1 : block[i] < extent[i])
        sources[static_cast<std::size_t>(count++)] = {d, inner};
    }
  count = std::max(count, 1);
}

void Array::measure(int coordinates) {
  dims = coordinates;
  one_block = rank > 0;
  for (int d = 0; d < rank; ++d) {
    const auto i = static_cast<std::size_t>(d);
    one_block = one_block && block[i] == extent[i];
    place[i] = -1;
  }
  for (int j = 0; j + 1 < dims; ++j) {
    const Source& s = sources[static_cast<std::size_t>(j)];
    place[static_cast<std::size_t>(s.dimension)] = j;
  }
  if (one_block) {
    parts.assign(1, part_in_one_block(extent));
    return;
  }
  parts.assign(std::size_t{1} << rank, {});
  for (std::size_t e = 0; e < parts.size(); ++e) {
    const auto height = [&](int d) {
      const auto i = static_cast<std::size_t>(d);
      return (e >> d & 1) != 0 ? extent[i] % block[i] : block[i];
    };
    for (int j = 0; j + 1 < dims; ++j) {
      const Source& s = sources[static_cast<std::size_t>(j)];
      const auto d = static_cast<std::size_t>(s.dimension);
      std::int64_t pitch = element;
      for (int o = 0; o < rank; ++o) {
        if (o < s.dimension && !s.within) pitch *= height(o);
        if (o > s.dimension) pitch *= s.within ? height(o) : extent[static_cast<std::size_t>(o)];
      }
      auto& whole = parts[e].whole[static_cast<std::size_t>(j)];
      if (!s.within) {
        pitch *= block[d];
        const std::int64_t full = extent[d] / block[d];
        whole = (e >> s.dimension & 1) != 0 ? Interval{full, full + 1} : Interval{0, full};
      } else {
        whole = {0, height(s.dimension)};
      }
      parts[e].pitch[static_cast<std::size_t>(j)] = std::max<std::int64_t>(pitch, 1);
    }
  }
}

Array::Part Array::part_in_one_block(const std::array<std::int64_t, kMaxRank>& shape) const {
  Part part{.shape = shape};
  std::int64_t width = element;
  for (int d = rank - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    part.stride[i] = width;
    width *= shape[i];
    if (place[i] < 0) continue;
    part.pitch[static_cast<std::size_t>(place[i])] = part.stride[i];
    part.whole[static_cast<std::size_t>(place[i])] = {0, shape[i]};
  }
  return part;
}

int Array::part_of(const Box& tile) const {
  constexpr std::size_t kMostShapes = 64;
  std::array<std::int64_t, kMaxRank> shape = extent;
  for (int d = 0; d < rank; ++d) {
    const auto i = static_cast<std::size_t>(d);
    shape[i] = std::clamp<std::int64_t>(tile[d].size(), 1, extent[i]);
  }
  for (std::size_t p = 0; p < parts.size(); ++p)
    if (parts[p].shape == shape) return static_cast<int>(p);
  if (parts.size() >= kMostShapes) return 0;
  parts.push_back(part_in_one_block(shape));
  return static_cast<int>(parts.size() - 1);
}

namespace {

/// From dimension `d` on, of rows that begin at `from` or later: the first row, or the last, with
/// bytes in [first, end), all counted from the array's begin.
bool find_row(const Array& a, const Piece& p, int d, std::int64_t from, Interval sought, bool last,
              RowBytes& row) {
  const auto i = static_cast<std::size_t>(d);
  if (d + 1 == p.dims) {
    row.bytes = {sought.lo - from, sought.hi - from};
    return row.bytes.lo < p.bytes().hi && p.bytes().lo < row.bytes.hi;
  }
  // What lies within one index.
  std::int64_t lo = p.bytes().lo, hi = p.bytes().hi;
  for (int in = d + 1; in + 1 < p.dims; ++in) {
    const Interval& of = p.at[static_cast<std::size_t>(in)];
    lo += of.lo * pitch_of(a, p, in);
    hi += (of.hi - 1) * pitch_of(a, p, in);
  }
  const std::int64_t pitch = pitch_of(a, p, d);
  const Interval& all = p.at[i];
  const std::int64_t begin = std::max(all.lo, floor_div(sought.lo - from - hi, pitch) + 1);
  const std::int64_t end = std::min(all.hi, floor_div(sought.hi - 1 - from - lo, pitch) + 1);
  for (std::int64_t n = 0; n < end - begin; ++n) {
    row.at[i] = last ? end - 1 - n : begin + n;
    if (find_row(a, p, d + 1, from + row.at[i] * pitch, sought, last, row)) return true;
  }
  return false;
}

}  // namespace

std::optional<RowBytes> row_at(const Array& a, const Piece& p, Interval line, bool last) {
  RowBytes row;
  if (!find_row(a, p, 0, 0, {line.lo - a.base, line.hi - a.base}, last, row)) return std::nullopt;
  return row;
}

bool lies_over(const Array& a, const Piece& by, const Piece& p) {
  if (!a.packed || by.part == p.part) return false;
  const Piece all = merged(a, by, 1);
  if (all.dims > 1) return false;
  const Piece other = merged(a, p, std::int64_t{1} << 40);
  return all.bytes().lo <= other.bytes().lo && other.bytes().hi <= all.bytes().hi;
}

Piece merged(const Array& a, Piece p, std::int64_t line) {
  while (p.dims > 1) {
    const auto outer = static_cast<std::size_t>(p.dims - 2);
    const Interval rows = p.at[outer];
    const std::int64_t pitch = pitch_of(a, p, p.dims - 2);
    const Interval bytes = p.bytes();
    if (rows.size() > 1 && (p.cut() || pitch * p.step_of(p.dims - 2) - bytes.size() >= line)) break;
    --p.dims;
    if (p.stepped == p.dims - 1) p.stepped = -1, p.step = 1;
    p.bytes() = {rows.lo * pitch + bytes.lo, (rows.hi - 1) * pitch + bytes.hi};
    if (p.left != -Piece::kFar) p.left += rows.lo * pitch;
    if (p.right != Piece::kFar) p.right += rows.lo * pitch;
  }
  return p;
}

namespace {

/// Whether the rows of `b` begin where those of `a` end.
bool follows(const Array& array, const Piece& a, const Piece& b) {
  if (a.dims != b.dims || a.cut() || b.cut() || a.stepped >= 0 || b.stepped >= 0) return false;
  for (int d = 0; d + 1 < a.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (a.at[i].size() != b.at[i].size()) return false;
    if (a.at[i].size() > 1 && pitch_of(array, a, d) != pitch_of(array, b, d)) return false;
  }
  return row_address(array, b) == row_address(array, a) + a.bytes().size();
}

}  // namespace

std::vector<Piece> joined(const Array& a, const std::vector<Piece>& pieces, std::int64_t line) {
  std::vector<Piece> out;
  for (const Piece& piece : pieces) {
    if (piece.bytes().empty()) continue;
    // Rows that leave nothing between them: what is less than a line may be the next piece.
    Piece next = merged(a, piece, 1);
    while (!out.empty() && follows(a, out.back(), next)) {
      Piece both = out.back();
      out.pop_back();
      both.bytes().hi += next.bytes().size();
      next = merged(a, both, 1);
    }
    out.push_back(next);
  }
  for (Piece& p : out) p = merged(a, p, line);
  return out;
}

Rows rows_of(const Array& a, const Piece& piece, std::int64_t line) {
  const Piece p = merged(a, piece, line);
  Rows out{.first = row_address(a, p), .bytes = p.bytes().size()};
  std::int64_t rows = 1;
  bool aligned = true;
  for (int d = 0; d + 1 < p.dims; ++d) {
    const std::int64_t count = p.count(d);
    if (count == 1) continue;
    const std::int64_t pitch = pitch_of(a, p, d) * p.step_of(d);
    rows *= count;
    aligned = aligned && pitch % line == 0;
    out.pitch[static_cast<std::size_t>(out.dims)] = pitch;
    out.count[static_cast<std::size_t>(out.dims++)] = count;
  }
  const std::int64_t begin = p.bytes().lo;
  out.high = out.first + std::min(p.bytes().hi - 1, p.right - line) - begin;
  out.low = out.first + std::max(begin - line, p.left) - begin;
  if (out.high <= out.low) return out;
  if (aligned) {
    out.lines = rows * (floor_div(out.high, line) - floor_div(out.low, line));
    return out;
  }
  // Rows begin anywhere in a line, at multiples of an element.
  const std::int64_t slack = p.cut() ? 0 : line - a.element - (line - 1);
  out.lines =
      std::llround(static_cast<double>(rows) * static_cast<double>(out.high - out.low + slack) /
                   static_cast<double>(line));
  return out;
}

void list_rows(const Rows& rows, std::int64_t line,
               std::vector<std::pair<std::int64_t, std::int64_t>>& out) {
  std::array<std::int64_t, kMaxRank> at = {};
  for (;;) {
    std::int64_t first = rows.first;
    for (int d = 0; d < rows.dims; ++d)
      first += at[static_cast<std::size_t>(d)] * rows.pitch[static_cast<std::size_t>(d)];
    out.emplace_back(first / line, (first + rows.bytes - 1) / line + 1);
    int d = rows.dims - 1;
    for (; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      if (++at[i] < rows.count[i]) break;
      at[i] = 0;
    }
    if (d < 0) return;
  }
}

std::int64_t lines(const Array& a, const Piece& piece, std::int64_t line) {
  return piece.bytes().empty() ? 0 : rows_of(a, piece, line).lines;
}

namespace {

/// Adds a cell to the ones before it, to the last of them where they lie side by side.
void add_cell(Spot& x, const Box& cell) {
  x.hull = x.cell_count == 0 ? cell : hull(x.hull, cell);
  if (x.cell_count > 0) {
    Box& last = x.cells[static_cast<std::size_t>(x.cell_count - 1)];
    int differ = -1, count = 0;
    for (int d = 0; d < cell.rank(); ++d)
      if (last[d] != cell[d]) differ = d, ++count;
    if (count == 1 && last[differ].hi == cell[differ].lo) {
      last[differ].hi = cell[differ].hi;
      return;
    }
    if (x.cell_count == Spot::kMostCells) {
      last = hull(last, cell);
      return;
    }
  }
  x.cells[static_cast<std::size_t>(x.cell_count++)] = cell;
}

/// Which elements of a tensor at home have bytes in the line.
void find_cells(const Array& a, Spot& x, std::int64_t line) {
  const std::int64_t lo = std::max<std::int64_t>(x.address - a.base, 0);
  const std::int64_t hi = std::min(x.address + line - a.base, a.bytes);
  const std::int64_t end = ceil_div(hi, a.element);
  for (std::int64_t e = lo / a.element; e < end;) {
    Box cell(a.rank);
    if (a.rank == 0) return add_cell(x, cell);
    std::array<std::int64_t, kMaxRank> low{}, high{};
    std::int64_t rest = e, height = 1, width = 1;
    for (int d = 0; d < a.rank; ++d) width *= a.extent[static_cast<std::size_t>(d)];
    for (int d = 0; d < a.rank; ++d) {
      const auto i = static_cast<std::size_t>(d);
      width /= a.extent[i];
      const std::int64_t at = rest / (height * width);
      low[i] = at - at % a.block[i];
      rest -= low[i] * height * width;
      high[i] = std::min(a.block[i], a.extent[i] - low[i]);
      height *= high[i];
    }
    // Within the block, rows along the last dimension.
    std::int64_t run = 0;
    for (int d = a.rank - 1; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      const std::int64_t at = rest % high[i];
      rest /= high[i];
      cell[d] = {low[i] + at, low[i] + at + 1};
      if (d < a.rank - 1) continue;
      run = std::min(high[i] - at, end - e);
      cell[d].hi = cell[d].lo + run;
    }
    add_cell(x, cell);
    e += run;
  }
}

}  // namespace

Spot spot(const Array& a, int array, const Piece& piece, std::int64_t line,
          const std::array<double, kMaxRank>& where) {
  const Piece p = merged(a, piece, line);
  std::int64_t row = a.base;
  for (int d = 0; d + 1 < p.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    row += pitch_of(a, p, d) *
           (p.at[i].lo + p.step_of(d) * std::min(static_cast<std::int64_t>(
                                                     where[i] * static_cast<double>(p.count(d))),
                                                 p.count(d) - 1));
  }
  const std::int64_t from = floor_div(row + p.bytes().lo, line);
  const std::int64_t count = floor_div(row + p.bytes().hi - 1, line) - from + 1;
  const auto i = static_cast<std::size_t>(p.dims - 1);
  const std::int64_t n =
      from + std::min(static_cast<std::int64_t>(where[i] * static_cast<double>(count)), count - 1);
  Spot x{.array = array, .part = p.part, .address = n * line};
  if (!a.packed) find_cells(a, x, line);
  // The row of the line's first byte in the piece, and of what of the line lies before that.
  const std::int64_t begin = row_address(a, p);
  const std::int64_t before = std::max<std::int64_t>(begin - x.address, 0);
  std::int64_t offset = x.address + before - a.base;
  const Array::Part& part = a.parts[static_cast<std::size_t>(p.part)];
  for (int d = 0; d + 1 < a.dims; ++d) {
    const auto o = static_cast<std::size_t>(d);
    x.rows[0].at[o] = std::min(offset / part.pitch[o], part.whole[o].hi - 1);
    offset -= x.rows[0].at[o] * part.pitch[o];
  }
  offset -= before;
  x.rows[0].bytes = {offset, offset + line};
  if (a.dims == 1) return x;
  const std::int64_t over = offset + line - part.pitch[static_cast<std::size_t>(a.dims - 2)];
  if (over <= 0) return x;
  x.rows[1] = x.rows[0];
  x.rows[1].bytes = {0, over};
  for (int d = a.dims - 2; d >= 0; --d) {
    const auto o = static_cast<std::size_t>(d);
    if (++x.rows[1].at[o] < part.whole[o].hi) {
      x.count = 2;
      break;
    }
    x.rows[1].at[o] = part.whole[o].lo;
  }
  return x;
}

double lines_in_set(const Rows& rows, std::int64_t address, std::int64_t line, std::int64_t sets,
                    double enough) {
  if (rows.high <= rows.low) return 0;
  const std::int64_t round = line * sets;
  const std::int64_t set = floor_div(address, line) % sets * line;
  if (rows.dims == 0) return static_cast<double>(rows_in_set(rows, 0, 0, 1, round, set));
  // The longest outer dimension in closed form, the others index by index.
  std::array<std::int64_t, kMaxRank> at = {}, step = {}, size = {}, pitch = {};
  int dims = 0;  // the others
  std::int64_t times = 1, others = 1, n = 1, apart = 0;
  for (int d = 0; d < rows.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    std::int64_t count = rows.count[i], distance = rows.pitch[i];
    if (distance % round == 0) {
      times *= count;
      continue;
    }
    if (count > n) std::swap(count, n), std::swap(distance, apart);
    if (count == 1) continue;
    others *= count;
    size[static_cast<std::size_t>(dims)] = count;
    step[static_cast<std::size_t>(dims)] = 1;
    pitch[static_cast<std::size_t>(dims++)] = distance;
  }
  auto scale = static_cast<double>(times);
  for (int d = 0; others > kMostRows && d < dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    const std::int64_t keep = std::max<std::int64_t>(size[i] * kMostRows / others, 1);
    step[i] = ceil_div(size[i], keep);
    const std::int64_t taken = ceil_div(size[i], step[i]);
    scale *= static_cast<double>(size[i]) / static_cast<double>(taken);
    others = others / size[i] * taken;
  }
  std::int64_t sum = 0;
  for (;;) {
    std::int64_t from = 0;
    for (int d = 0; d < dims; ++d)
      from += at[static_cast<std::size_t>(d)] * pitch[static_cast<std::size_t>(d)];
    sum += rows_in_set(rows, from, apart, n, round, set);
    if (scale * static_cast<double>(sum) >= enough) break;
    int d = dims - 1;
    for (; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      at[i] += step[i];
      if (at[i] < size[i]) break;
      at[i] = 0;
    }
    if (d < 0) break;
  }
  return scale * static_cast<double>(std::max<std::int64_t>(sum, 0));
}

}  // namespace tilewright::cached
