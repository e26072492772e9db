// Shared memory shared between values that are never needed at the same time (section 4.4).
#include <algorithm>

#include "models/stitching/stitching.h"

namespace tilewright::stitching {
namespace {

/// Immediate dominators of a part's vertices under a virtual entry, by position; -1: the entry.
/// Vertices are in topological order and there is no cycle, so that one pass of the algorithm is
/// enough.
class Dominators {
 public:
  Dominators(const Graph& g, std::span<const int> vertices) : vertices_(vertices) {
    for (std::size_t i = 0; i < vertices.size(); ++i) {
      int idom = -1;
      bool first = true;
      for (int e : g.vertex(vertices[i]).in) {
        const int from = position(g.edge(e).from);
        if (from < 0) continue;
        idom = first ? from : intersect(idom, from);
        first = false;
      }
      idom_.push_back(idom);
    }
  }

  /// Whether every path from the entry to `v` passes `by`; v itself counts.
  bool dominates(int by, int v) const {
    const int wanted = position(by);
    int at = position(v);
    while (at > wanted) at = idom_[static_cast<std::size_t>(at)];
    return at == wanted;
  }

 private:
  int position(int v) const {
    const auto it = std::ranges::lower_bound(vertices_, v);
    return it != vertices_.end() && *it == v ? static_cast<int>(it - vertices_.begin()) : -1;
  }
  int intersect(int a, int b) const {
    while (a != b) {
      int& later = a > b ? a : b;
      later = idom_[static_cast<std::size_t>(later)];
    }
    return a;
  }

  std::span<const int> vertices_;
  std::vector<int> idom_;
};

struct Space {
  std::int64_t offset = 0, bytes = 0;
  std::vector<const SharedRequest*> held;
};

}  // namespace

SharedSpace share(const Graph& g, std::span<const int> vertices,
                  std::span<const SharedRequest> requests) {
  const Dominators tree(g, vertices);
  SharedSpace out;
  std::vector<Space> spaces;
  for (const SharedRequest& r : requests) {
    const auto over = [&](const SharedRequest* q) {
      return q->vertex != r.vertex && tree.dominates(q->vertex, r.vertex) &&
             std::ranges::all_of(q->readers, [&](int reader) {
               return reader != r.vertex && tree.dominates(reader, r.vertex);
             });
    };
    Space* best = nullptr;
    for (Space& s : spaces)
      if (s.bytes >= r.bytes && (best == nullptr || s.bytes < best->bytes) &&
          std::ranges::all_of(s.held, over))
        best = &s;
    if (best == nullptr) {
      spaces.push_back({out.bytes, r.bytes, {}});
      out.bytes += r.bytes;
      best = &spaces.back();
    }
    best->held.push_back(&r);
    out.offsets.push_back(best->offset);
  }
  return out;
}

}  // namespace tilewright::stitching
