// Which slices of a tensor loads bring by themselves (plan.md rule 4).
#include <algorithm>
#include <set>

#include "core/plan/resolver.h"

namespace tilewright::resolving {

namespace {

struct Group {
  std::vector<ReadRef> reads;
  Box box;  ///< with every range beginning at 0 and as long as it can be
};

/// The reads below one load.
class Reads {
 public:
  Reads(const Draft& d, NodeId load) : d_(d), body_(d.body_of(d.node(load).parent)) {}

  const Access& access(const ReadRef& r) const {
    return d_.w.op(r.op).inputs[static_cast<std::size_t>(r.input)];
  }
  /// With whole ranges, or cut as they are at the load.
  Box box(const ReadRef& r, bool whole) const {
    const Operator& op = d_.w.op(r.op);
    std::vector<Interval> ranges;
    for (std::size_t l = 0; l < op.loops.size(); ++l)
      ranges.push_back({0, whole ? d_.w.loop(op.loops[l]).extent
                                 : longest_range(d_, {r.op, static_cast<int>(l)}, body_)});
    return footprint(d_.w, op, access(r), ranges);
  }
  /// Whether they never have an element in common.
  bool apart(const ReadRef& a, const ReadRef& b) const {
    const Box all_a = box(a, true), all_b = box(b, true);
    const bool same_ranges = a.op == b.op || (!inferred(a.op) && !inferred(b.op));
    for (int i = 0; i < all_a.rank(); ++i) {
      if (intersect(all_a[i], all_b[i]).empty()) return true;
      const Affine &x = access(a).index[static_cast<std::size_t>(i)],
                   &y = access(b).index[static_cast<std::size_t>(i)];
      if (!same_ranges || x.terms != y.terms) continue;
      if (std::abs(x.offset - y.offset) >= std::max(length(a, x), length(b, y))) return true;
    }
    return false;
  }

 private:
  bool inferred(OpId op) const { return d_.inferred_at[op.index()].valid(); }
  std::int64_t length(const ReadRef& r, const Affine& index) const {
    std::int64_t n = 1;
    for (const Term& t : index.terms)
      n += std::abs(t.coefficient) *
           (longest_range(d_, {r.op, d_.w.local_index(r.op, t.loop)}, body_) - 1);
    return n;
  }

  const Draft& d_;
  NodeId body_;
};

/// Groups of reads that have no element in common, and whose boxes have none at the load.
std::vector<Group> groups_at(const Draft& d, NodeId load, const std::vector<ReadRef>& all) {
  const Reads reads(d, load);
  std::vector<Group> groups;
  for (const ReadRef& r : all) {
    Group mine{{r}, reads.box(r, false)};
    for (std::size_t i = 0; i < groups.size();) {
      const bool meets = !intersect(groups[i].box, mine.box).empty() ||
                         std::ranges::any_of(groups[i].reads, [&](const ReadRef& other) {
                           return std::ranges::any_of(mine.reads, [&](const ReadRef& own) {
                             return !reads.apart(own, other);
                           });
                         });
      if (!meets) {
        ++i;
        continue;
      }
      mine.box = hull(mine.box, groups[i].box);
      mine.reads.insert(mine.reads.end(), groups[i].reads.begin(), groups[i].reads.end());
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;  // what has grown may meet one that it did not meet before
    }
    groups.push_back(std::move(mine));
  }
  return groups;
}

bool leave_a_gap(const std::vector<Group>& groups) {
  Box all = groups.front().box;
  std::int64_t read = 0;
  for (const Group& g : groups) {
    all = hull(all, g.box);
    read += g.box.size();
  }
  return read < all.size();
}

/// Whether its tiles may be slices: of what slides a tile is a box that moves, and what is dropped
/// is dropped as one.
bool may_be_sliced(const Draft& d, TensorId t, const std::vector<NodeId>& loads) {
  if (d.sliding.contains(t) && d.sliding.at(t)) return false;
  for (const ScheduleNode& n : d.k.nodes)
    if (n.kind == NodeKind::drop && n.tensor == t) return false;
  return std::ranges::all_of(
      loads, [&](NodeId l) { return d.m.level(d.node(l).level).managed == Managed::software; });
}

}  // namespace

Slices slices_of(const Draft& d) {
  Slices slices;
  for (const auto& [t, loads] : d.loads_of) {
    if (d.reads_inside(t, NodeId(0)).size() < 2 || !may_be_sliced(d, t, loads)) continue;
    // Reads that meet at one load are in one group at all of them.
    std::vector<std::vector<ReadRef>> groups;
    bool gap = false;
    for (NodeId load : loads) {
      const std::vector<ReadRef> reads = d.reads_inside(t, d.node(load).parent);
      if (reads.empty()) continue;
      const std::vector<Group> here = groups_at(d, load, reads);
      gap |= leave_a_gap(here);
      for (const Group& g : here) {
        std::vector<ReadRef> mine = g.reads;
        std::erase_if(groups, [&](const std::vector<ReadRef>& other) {
          const bool meets = std::ranges::any_of(
              other, [&](const ReadRef& r) { return std::ranges::find(mine, r) != mine.end(); });
          if (meets) mine.insert(mine.end(), other.begin(), other.end());
          return meets;
        });
        groups.push_back(std::move(mine));
      }
    }
    if (gap && groups.size() > 1) slices.reads[t] = std::move(groups);
  }
  if (slices.empty()) return slices;
  for (const ScheduleNode& n : d.k.nodes) {
    if (n.kind != NodeKind::load) continue;
    std::set<int> brought;
    for (const ReadRef& r : d.reads_inside(n.tensor, n.parent))
      brought.insert(slices.slice_of(n.tensor, r));
    if (brought.empty()) brought.insert(0);  // nobody reads it: refused later
    slices.at.emplace_back(brought.begin(), brought.end());
  }
  return slices;
}

int Slices::slice_of(TensorId t, const ReadRef& read) const {
  const auto sliced = reads.find(t);
  if (sliced == reads.end()) return 0;
  for (std::size_t g = 0; g < sliced->second.size(); ++g)
    if (std::ranges::find(sliced->second[g], read) != sliced->second[g].end())
      return static_cast<int>(g);
  return 0;
}

int Draft::slice_of(BufferId b) const {
  const auto at = slice_of_buffer.find(b);
  return at == slice_of_buffer.end() ? 0 : at->second;
}

}  // namespace tilewright::resolving
