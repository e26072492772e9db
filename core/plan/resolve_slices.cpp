// Which slices of a tensor loads bring by themselves (plan.md rule 4).
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/plan/resolver.h"

namespace tilewright::resolving {

namespace {

struct Group {
  std::vector<ReadRef> reads;
  Box box;  ///< with every range beginning at 0 and as long as it can be
};

/// The reads below one load, by their number: what each touches is found once.
class Reads {
 public:
  Reads(const Draft& d, NodeId load, const std::vector<ReadRef>& all) {
    const NodeId body = d.body_of(d.node(load).parent);
    std::map<OpId, std::vector<std::int64_t>> lengths;
    for (const ReadRef& r : all) {
      const Operator& op = d.w.op(r.op);
      std::vector<std::int64_t>& its = lengths[r.op];
      for (std::size_t l = its.size(); l < op.loops.size(); ++l)
        its.push_back(longest_range(d, {r.op, static_cast<int>(l)}, body));
      std::vector<Interval> whole, cut;
      for (std::size_t l = 0; l < op.loops.size(); ++l) {
        whole.push_back({0, d.w.loop(op.loops[l]).extent});
        cut.push_back({0, its[l]});
      }
      const Access& access = op.inputs[static_cast<std::size_t>(r.input)];
      Read read{.ref = r,
                .access = &access,
                .inferred = d.inferred_at[r.op.index()].valid(),
                .whole = footprint(d.w, op, access, whole),
                .cut = footprint(d.w, op, access, cut)};
      for (const Affine& index : access.index) {
        std::int64_t n = 1;
        for (const Term& t : index.terms)
          n += std::abs(t.coefficient) *
               (its[static_cast<std::size_t>(d.w.local_index(r.op, t.loop))] - 1);
        read.lengths.push_back(n);
      }
      reads_.push_back(std::move(read));
    }
  }

  const ReadRef& ref(std::size_t read) const { return reads_[read].ref; }
  /// With ranges cut as they are at the load.
  const Box& box(std::size_t read) const { return reads_[read].cut; }
  /// Whether they never have an element in common.
  bool apart(std::size_t one, std::size_t other) const {
    const Read &a = reads_[one], &b = reads_[other];
    const bool same_ranges = a.ref.op == b.ref.op || (!a.inferred && !b.inferred);
    for (int i = 0; i < a.whole.rank(); ++i) {
      if (intersect(a.whole[i], b.whole[i]).empty()) return true;
      const auto at = static_cast<std::size_t>(i);
      const Affine &x = a.access->index[at], &y = b.access->index[at];
      if (!same_ranges || x.terms != y.terms) continue;
      if (std::abs(x.offset - y.offset) >= std::max(a.lengths[at], b.lengths[at])) return true;
    }
    return false;
  }

 private:
  struct Read {
    ReadRef ref;
    const Access* access;
    bool inferred;
    Box whole, cut;
    std::vector<std::int64_t> lengths = {};  ///< by dimension, of a cut range's indices
  };
  std::vector<Read> reads_;
};

/// Groups of reads that have no element in common, and whose boxes have none at the load.
std::vector<Group> groups_at(const Draft& d, NodeId load, const std::vector<ReadRef>& all) {
  const Reads reads(d, load, all);
  std::vector<std::pair<std::vector<std::size_t>, Box>> groups;
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::vector<std::size_t> mine{r};
    Box box = reads.box(r);
    for (std::size_t i = 0; i < groups.size();) {
      const auto& [others, their_box] = groups[i];
      const bool meets =
          !intersect(their_box, box).empty() || std::ranges::any_of(others, [&](std::size_t other) {
            return std::ranges::any_of(mine,
                                       [&](std::size_t own) { return !reads.apart(own, other); });
          });
      if (!meets) {
        ++i;
        continue;
      }
      box = hull(box, their_box);
      mine.insert(mine.end(), others.begin(), others.end());
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;  // what has grown may meet one that it did not meet before
    }
    groups.emplace_back(std::move(mine), box);
  }
  std::vector<Group> named;
  for (const auto& [numbers, box] : groups) {
    named.push_back({.reads = {}, .box = box});
    for (std::size_t r : numbers) named.back().reads.push_back(reads.ref(r));
  }
  return named;
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
    std::vector<std::vector<Group>> by_load;
    bool gap = false;
    for (NodeId load : loads) {
      const std::vector<ReadRef> reads = d.reads_inside(t, d.node(load).parent);
      if (reads.empty()) continue;
      by_load.push_back(groups_at(d, load, reads));
      gap |= leave_a_gap(by_load.back());
    }
    if (!gap) continue;
    // Reads that meet at one load are in one group at all of them.
    std::vector<std::vector<ReadRef>> groups;
    for (const std::vector<Group>& here : by_load)
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
    if (groups.size() > 1) slices.reads[t] = std::move(groups);
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
