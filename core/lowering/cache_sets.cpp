#include "core/lowering/cache_sets.h"

#include <algorithm>

#include "core/base/units.h"

namespace tilewright {
namespace {

/// Elements of a row that lies in one piece, and dimensions outside of it: whole rows follow one
/// another, they are one long row.
std::pair<std::int64_t, std::size_t> row_of(const SetsBox& b) {
  std::size_t outer = b.extents.empty() ? 0 : b.extents.size() - 1;
  std::int64_t row = b.extents.empty() ? 1 : b.extents.back();
  while (outer > 0 && b.extents[outer] == b.shape[outer]) row *= b.extents[--outer];
  return {row, outer};
}

std::int64_t rows_of(const SetsBox& b, std::size_t outer) {
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < outer; ++d) rows *= b.extents[d];
  return rows;
}

}  // namespace

std::int64_t room_of_set(std::int64_t even, std::int64_t ways, bool whole_tile) {
  const bool fits = even <= ways / 2;
  return whole_tile || !fits ? std::max(ways / 2, even + even / 2) : ways / 2;
}

std::int64_t lines_of_box(const SetsBox& b) {
  const auto [row, outer] = row_of(b);
  return rows_of(b, outer) * (row * b.element_bytes / b.line + 1);
}

bool spreads_over_sets(const SetsBox& b, bool whole_tile, std::int64_t most_lines) {
  const auto [row, outer] = row_of(b);
  const std::int64_t rows = rows_of(b, outer), row_bytes = row * b.element_bytes;
  if (rows == 1) return true;
  const std::int64_t about = lines_of_box(b);
  if (about > most_lines || about <= 0) return false;
  std::vector<std::int64_t> stride(b.shape.size(), 1);
  for (std::size_t d = b.shape.size(); d-- > 1;) stride[d - 1] = stride[d] * b.shape[d];
  // Where a row's lines begin and end, on the circle of the sets; whole circles apart.
  std::vector<std::int64_t> changes(static_cast<std::size_t>(b.sets) + 1, 0);
  std::vector<std::int64_t> index(b.extents.size(), 0);
  std::int64_t lines = 0, last = -1, circles = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < outer; ++d) at += index[d] * stride[d];
    std::int64_t first = at * b.element_bytes / b.line;
    const std::int64_t end = (at * b.element_bytes + row_bytes - 1) / b.line;
    if (first == last) ++first;  // rows that follow one another share lines
    if (const std::int64_t more = end + 1 - first; more > 0) {
      lines += more, last = end, circles += more / b.sets;
      const std::int64_t from = first % b.sets, to = from + more % b.sets;
      ++changes[static_cast<std::size_t>(from)];
      --changes[static_cast<std::size_t>(std::min(to, b.sets))];
      if (to > b.sets) ++changes[0], --changes[static_cast<std::size_t>(to - b.sets)];
    }
    for (std::size_t d = outer; d-- > 0;) {
      if (++index[d] < b.extents[d]) break;
      index[d] = 0;
    }
  }
  std::int64_t most = 0, now = circles;
  for (std::size_t set = 0; set + 1 < changes.size(); ++set)
    most = std::max(most, now += changes[set]);
  const std::int64_t even = ceil_div(lines, b.sets);
  return most <= room_of_set(even, b.ways, whole_tile);
}

}  // namespace tilewright
