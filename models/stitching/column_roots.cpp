#include "models/stitching/column_roots.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "models/stitching/bound_tree.h"
#include "models/stitching/loops.h"

namespace tilewright::stitching {
namespace {

constexpr double kEnoughRows = 128;  // a block each, for about every SM of a large GPU
constexpr double kAddedOfClock = 4;  // bytes, for each SM
constexpr auto kWholeSector = static_cast<std::int64_t>(kSectorBytes);
constexpr double kBesidePiece = 19;  // bytes: from the two sizes in memory_bytes()'s comment
constexpr std::array<std::int64_t, 6> kBlocksOfSm = {1, 2, 3, 4, 6, 8};

bool read_among(const Graph& g, std::span<const int> vertices, int v) {
  return std::ranges::any_of(g.vertex(v).consumers, [&](int c) { return in(vertices, c); });
}

/// Whether blocks may add up its result.
bool may_be_partial(const Graph& g, int v) {
  const Workload& w = g.workload();
  return !g.vertex(v).reduced.empty() &&
         std::ranges::all_of(w.op(g.vertex(v).op).outputs, [&](const Output& o) {
           return o.combine == Combine::sum && size_of(w.tensor(o.target.tensor).dtype) >= 4;
         });
}

/// Loops of rows that every one of these goes along.
LoopSet common_loops(const Graph& g, std::span<const int> partial, LoopSet rows) {
  for (int v : partial) rows &= g.vertex(v).reduced;
  return rows;
}

/// Rows of a part, some of its sums partial.
struct Choice {
  LoopSet rows;
  std::vector<int> partial;
};

/// All sums that nothing here reads are partial, then as many as can be are made whole again.
Choice least_partial(const Graph& g, const Component& part) {
  Choice all;
  for (int v : part.vertices)
    if (may_be_partial(g, v) && !read_among(g, part.vertices, v)) all.partial.push_back(v);
  // Threads go along contiguous elements, blocks along the others.
  const int along = contiguous_loop(g, part, LoopSet::all());
  const LoopSet allowed = along < 0 ? LoopSet::all() : ~bit(along);
  all.rows = rows_of(g, part.vertices, all.partial) & allowed;
  std::vector<int> tried = all.partial;
  std::stable_partition(tried.begin(), tried.end(),
                        [&](int v) { return along >= 0 && g.vertex(v).reduced.has(along); });
  for (int v : tried) {
    std::vector<int> fewer = all.partial;
    std::erase(fewer, v);
    const LoopSet rows = rows_of(g, part.vertices, fewer) & allowed;
    if (rows.empty() || g.points(rows) < std::min(kEnoughRows, g.points(all.rows))) continue;
    all = {.rows = rows, .partial = std::move(fewer)};
  }
  return all;
}

/// Whether it makes sums, and no more than sums that nothing in it reads.
bool only_sums(const Graph& g, const Component& part) {
  bool sums = false;
  for (int v : part.vertices) {
    if (g.vertex(v).reduced.empty()) continue;
    if (!may_be_partial(g, v) || read_among(g, part.vertices, v)) return false;
    sums = true;
  }
  return sums;
}

/// Whether both read the same tensor by the same indices, from home.
bool read_alike(const Graph& g, const Component& a, const Component& b) {
  const Workload& w = g.workload();
  const auto any_input = [&](const Component& c, auto&& f) {
    return std::ranges::any_of(
        c.vertices, [&](int v) { return std::ranges::any_of(w.op(g.vertex(v).op).inputs, f); });
  };
  return any_input(a, [&](const Access& x) {
    return !is_gather(x) && any_input(b, [&](const Access& y) {
      return x.tensor == y.tensor && x.index == y.index;
    });
  });
}

}  // namespace

LoopSet rows_of(const Graph& g, std::span<const int> vertices, std::span<const int> partial) {
  const auto place = [&](int v) {
    return static_cast<std::size_t>(std::ranges::lower_bound(vertices, v) - vertices.begin());
  };
  LoopSet rows = LoopSet::all();
  std::vector<bool> carries(vertices.size());  // a reduction of this part is needed to compute it
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    const Vertex& v = g.vertex(vertices[i]);
    const LoopSet whole = in(partial, vertices[i]) ? LoopSet() : v.reduced;
    rows &= ~whole;
    carries[i] = v.kind == Kind::reduction;
    for (int e : v.in) {
      const int from = g.edge(e).from;
      if (!in(vertices, from)) continue;
      rows &= ~g.edge(e).bad;
      if (!carries[place(from)]) continue;
      carries[i] = true;
      // A reduction is not computed again by every block along a loop that its value has not.
      rows &= ~(v.loops & ~g.edge(e).indexed);
    }
    const bool read_outside =
        std::ranges::any_of(v.consumers, [&](int c) { return !in(vertices, c); });
    if (!read_among(g, vertices, vertices[i]) || read_outside || v.leaves) rows &= v.loops & ~whole;
  }
  return rows;
}

void choose_rows(const Graph& g, Component& part) {
  part.rows = rows_of(g, part.vertices, {});
  part.row_count = g.points(part.rows);
  const bool handed_on = std::ranges::any_of(part.vertices, [&](int v) {
    return !g.vertex(v).reduced.empty() && read_among(g, part.vertices, v);
  });
  // Where every sum is whole in a column, a column's rows may be cut over blocks (may_split).
  if (!part.rows.empty() && (!handed_on || part.row_count >= kEnoughRows)) return;
  if (g.vertex(part.vertices.front()).kind == Kind::product) return;
  Choice choice = least_partial(g, part);
  if (choice.partial.empty() || common_loops(g, choice.partial, choice.rows).empty()) return;
  if (!part.rows.empty() && g.points(choice.rows) <= part.row_count) return;
  part.rows = choice.rows;
  part.row_count = g.points(choice.rows);
  part.partial = std::move(choice.partial);
}

bool sum_points(const Graph& g, Component& part) {
  const auto may = [&](int v) {
    const auto& outputs = g.workload().op(g.vertex(v).op).outputs;
    return may_be_partial(g, v) || std::ranges::all_of(outputs, [](const Output& o) {
             return o.combine == Combine::max || o.combine == Combine::min;  // not rounded
           });
  };
  Component points{.vertices = part.vertices};
  for (int v : part.vertices) {
    if (g.vertex(v).reduced.empty()) continue;
    if (!may(v) || read_among(g, part.vertices, v)) return false;
    points.partial.push_back(v);
  }
  if (points.partial.empty()) return false;
  points.rows = rows_of(g, points.vertices, points.partial);
  if (common_loops(g, points.partial, points.rows) != points.rows) return false;
  for (int v : part.vertices)
    if (!(g.vertex(v).loops & ~points.rows).empty()) return false;
  points.row_count = g.points(points.rows);
  if (points.rows.empty() || points.rows == part.rows) return false;
  part = std::move(points);
  return true;
}

void join_sums(const Graph& g, std::vector<Component>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!only_sums(g, parts[i])) continue;
    for (std::size_t j = 0; j < parts.size(); ++j) {
      if (i == j || !read_alike(g, parts[i], parts[j])) continue;
      Component both;
      std::ranges::merge(parts[i].vertices, parts[j].vertices, std::back_inserter(both.vertices));
      choose_rows(g, both);
      if (both.rows.empty()) sum_points(g, both);
      if (both.partial.empty() || both.rows != parts[j].rows) continue;
      parts[j] = std::move(both);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i--));
      break;
    }
  }
}

void join_equal(const Graph& g, std::vector<Component>& parts) {
  const auto loops = [&g](const Component& c) {
    LoopSet all;
    for (int v : c.vertices) all |= g.vertex(v).loops;
    return all;
  };
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (std::size_t j = i + 1; j < parts.size(); ++j) {
      if (loops(parts[i]) != loops(parts[j]) || !read_alike(g, parts[i], parts[j])) continue;
      Component both;
      std::ranges::merge(parts[i].vertices, parts[j].vertices, std::back_inserter(both.vertices));
      choose_rows(g, both);
      if (both.rows.empty() && !sum_points(g, both)) continue;
      parts[i] = std::move(both);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(j));
      j = i;  // what is joined may read what others read
    }
}

bool take_columns(const Graph& g, Component& part, std::int64_t columns) {
  if (!part.partial.empty() || !runs_over_columns(g, part) || sums_columns(g, part)) return false;
  const int along = contiguous_loop(g, part, part.rows);
  if (g.extent(along) <= columns || columns * smallest_element(g, part) < kWholeSector)
    return false;
  const std::int64_t all = g.extent(along);
  part.along = along;
  part.columns = columns;
  part.rows &= ~bit(along);
  part.row_count = g.points(part.rows) * static_cast<double>(ceil_div(all, columns));
  return true;
}

double memory_bytes(const Graph& g, const Component& part) {
  const auto bytes = static_cast<double>(compulsory_of(g, part.vertices).value);
  if (part.along < 0) return bytes;
  const std::int64_t element = smallest_element(g, part);
  const auto piece = static_cast<double>(part.columns * element);
  // Rows that begin anywhere: a piece's ends are in sectors that its neighbours have, too.
  const auto ends =
      static_cast<double>(kWholeSector - std::gcd(g.extent(part.along) * element, kWholeSector));
  return bytes * (1 + kBesidePiece / piece) * (1 + ends / piece);
}

int run_loop(const Graph& g, const Component& c) {
  const LoopSet common = common_loops(g, c.partial, c.rows);
  int longest = -1;
  common.each([&](std::size_t at) {
    const int l = static_cast<int>(at);
    if (longest < 0 || g.extent(l) > g.extent(longest)) longest = l;
  });
  return longest;
}

std::vector<std::int64_t> row_runs(const Graph& g, const Device& d, const Component& c,
                                   std::int64_t units) {
  const std::int64_t rows = g.extent(run_loop(g, c));
  const double others = c.row_count / static_cast<double>(rows);
  std::vector<std::int64_t> out;
  for (std::int64_t blocks : kBlocksOfSm) {
    const double wanted = std::max(1.0, static_cast<double>(blocks * d.sms) / others);
    const auto in_turn = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(rows) / wanted / static_cast<double>(units)));
    if (std::ranges::find(out, in_turn) == out.end()) out.push_back(in_turn);
  }
  return out;
}

double added_seconds(const Device& d, Bytes added) {
  return static_cast<double>(added.value) /
         (kAddedOfClock * static_cast<double>(d.sms) * d.clock_hz);
}

std::int64_t added_bytes(const Graph& g, const Component& c) {
  double bytes = 0;
  for (int v : c.partial) {
    const Vertex& x = g.vertex(v);
    bytes += g.points(x.loops & ~x.reduced & ~c.rows) * static_cast<double>(x.row_bytes);
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace tilewright::stitching
