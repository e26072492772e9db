// Which loop of a part walks memory element after element, and what follows from that.
#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "models/stitching/bound_tree.h"
#include "models/stitching/loops.h"

namespace tilewright::stitching {
namespace {

constexpr std::int64_t kAccess =
    16;  // bytes: the widest access of a thread (CUDA C++ Programming Guide)
constexpr std::int64_t kLine = 128;  // bytes of a line of memory

/// Calls f(access) for what the part reads from home and writes there.
template <class F>
void each_home_access(const Graph& g, const Component& c, F&& f) {
  const Workload& w = g.workload();
  for (int v : c.vertices) {
    const Operator& op = w.op(g.vertex(v).op);
    for (const Access& a : op.inputs) {
      const OpId producer = w.producer(a.tensor);
      const bool own = producer.valid() && std::ranges::any_of(c.vertices, [&](int u) {
                         return g.vertex(u).op == producer;
                       });
      if (!own) f(a);
    }
    for (const Output& o : op.outputs) {
      const auto readers = w.consumers(o.target.tensor);
      const bool leaves =
          w.is_output(o.target.tensor) || std::ranges::any_of(readers, [&](OpId r) {
            return std::ranges::none_of(c.vertices, [&](int u) { return g.vertex(u).op == r; });
          });
      if (leaves) f(o.target);
    }
  }
}

}  // namespace

int contiguous_loop(const Graph& g, const Component& c, LoopSet among) {
  const Workload& w = g.workload();
  // Few of the workload's loops are here.
  std::vector<std::pair<std::size_t, std::int64_t>> bytes;
  each_home_access(g, c, [&](const Access& a) {
    if (a.index.empty()) return;
    for (const Term& t : a.index.back().terms) {
      if (t.coefficient != 1 || !among.has(t.loop)) continue;
      const std::size_t l = t.loop.index();
      auto at = std::ranges::find(bytes, l, [](const auto& own) { return own.first; });
      if (at == bytes.end()) at = bytes.insert(at, {l, 0});
      at->second += w.tensor(a.tensor).bytes().value;
    }
  });
  int best = -1;
  std::int64_t most = 0;
  for (const auto& [l, its] : bytes)
    if (its > most || (its > 0 && its == most && static_cast<int>(l) < best))
      best = static_cast<int>(l), most = its;
  return best;
}

bool runs_over_columns(const Graph& g, const Component& c) {
  const int l = contiguous_loop(g, c, LoopSet::all());
  const bool rows_of_points = std::ranges::all_of(
      c.vertices, [&](int v) { return g.points(g.vertex(v).loops & ~c.rows) <= 1; });
  return l >= 0 && c.rows.has(l) && !rows_of_points;
}

bool sums_columns(const Graph& g, const Component& c) {
  if (!runs_over_columns(g, c)) return false;
  LoopSet loops;
  for (int v : c.vertices) loops |= g.vertex(v).loops & ~c.rows;
  int count = 0;
  loops.each([&](std::size_t) { ++count; });
  if (count != 1) return false;
  return std::ranges::all_of(c.vertices, [&](int v) {
    const Vertex& x = g.vertex(v);
    const bool read = std::ranges::any_of(x.consumers, [&](int r) { return in(c.vertices, r); });
    return (x.loops & ~c.rows) == loops && !(!x.reduced.empty() && read);
  });
}

bool may_split(const Graph& g, const Component& c) {
  return sums_columns(g, c) && std::ranges::all_of(c.vertices, [&](int v) {
           const auto& outputs = g.workload().op(g.vertex(v).op).outputs;
           return g.vertex(v).reduced.empty() || std::ranges::all_of(outputs, [](const Output& o) {
                    return o.combine == Combine::sum;
                  });
         });
}

namespace {

/// By loop, the bytes of what has neighbours along it. `dimension`: of an access, in which these
/// lie; null: it does not count.
using Dimension = std::function<const Affine*(const Access&)>;
std::vector<std::int64_t> bytes_along(const Graph& g, const Component& c, LoopSet without,
                                      const Dimension& dimension) {
  const Workload& w = g.workload();
  std::vector<std::int64_t> bytes(w.loops().size());
  each_home_access(g, c, [&](const Access& a) {
    const Affine* const index = a.index.empty() || is_gather(a) ? nullptr : dimension(a);
    for (std::size_t t = 0; index != nullptr && t < index->terms.size(); ++t)
      if (const Term& term = index->terms[t]; term.coefficient == 1 && !without.has(term.loop))
        bytes[term.loop.index()] += w.tensor(a.tensor).bytes().value;
  });
  return bytes;
}

bool goes(const Affine& i, int along) {
  return std::ranges::any_of(
      i.terms, [&](const Term& t) { return static_cast<int>(t.loop.index()) == along; });
}

/// The innermost dimension in which an access moves along another loop than these.
const Affine* beyond(const Workload& w, const Access& a, const LoopSet& these) {
  for (auto i = a.index.rbegin(); i != a.index.rend(); ++i)
    for (const Term& t : i->terms)
      if (w.loop(t.loop).extent > 1 && !these.has(t.loop)) return &*i;
  return nullptr;
}

}  // namespace

Crossing crossing_loops(const Graph& g, const Component& c) {
  const Workload& w = g.workload();
  const int along = contiguous_loop(g, c, LoopSet::all());
  if (along < 0 || !c.rows.has(along)) return {};
  // Takes out the loop of the most bytes.
  const auto most_of = [&](std::vector<std::int64_t>& bytes) {
    const auto most = std::ranges::max_element(bytes);
    if (most == bytes.end() || std::exchange(*most, 0) == 0) return -1;
    const int l = static_cast<int>(most - bytes.begin());
    return c.rows.has(l) ? l : -1;
  };
  LoopSet taken(static_cast<std::size_t>(along));
  Crossing crossing{.along = along};
  // Of what has both: one element of the crossing loop lies far from the next along the other.
  std::vector<std::int64_t> bytes = bytes_along(g, c, taken, [&](const Access& a) {
    const bool both = !goes(a.index.back(), along) &&
                      std::ranges::any_of(a.index, [&](const Affine& i) { return goes(i, along); });
    return both ? &a.index.back() : nullptr;
  });
  crossing.other = most_of(bytes);
  if (crossing.other < 0) {
    if (g.extent(along) * smallest_element(g, c) >= kLine) return {};
    bytes = bytes_along(g, c, taken, [&](const Access& a) {
      return goes(a.index.back(), along) ? beyond(w, a, taken) : nullptr;
    });
    crossing = {.along = most_of(bytes), .other = most_of(bytes), .pieces = true};
    if (crossing.along < 0 || crossing.other < 0) return {};
    taken.add(static_cast<std::size_t>(crossing.along));
  }
  taken.add(static_cast<std::size_t>(crossing.other));
  bytes = bytes_along(g, c, taken, [&](const Access& a) { return beyond(w, a, taken); });
  crossing.around = most_of(bytes);
  return crossing;
}

std::int64_t widest_vector(const Graph& g, const Component& c) {
  return widest_vector(g, c, contiguous_loop(g, c, LoopSet::all()));
}

std::int64_t widest_vector(const Graph& g, const Component& c, int l) {
  if (l < 0) return 1;
  std::int64_t widest = kAccess / smallest_element(g, c);
  while (widest > 1 && g.extent(l) % widest != 0) widest /= 2;
  return widest;
}

std::int64_t smallest_element(const Graph& g, const Component& c) {
  std::int64_t smallest = kAccess;
  each_home_access(g, c, [&](const Access& a) {
    smallest = std::min<std::int64_t>(smallest, size_of(g.workload().tensor(a.tensor).dtype));
  });
  return smallest;
}

}  // namespace tilewright::stitching
