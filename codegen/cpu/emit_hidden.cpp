// Columns of attention that a mask hides from all rows of a tile: they are not computed.
#include <algorithm>

#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {

/// On entering a body: the columns that its rows see of each pair of products around which it is
/// the innermost, as whole vectors.
void KernelEmitter::see_columns(NodeId body, const SymRanges& ranges) {
  const std::string lanes =
      std::to_string(std::max<std::int64_t>(1, p_.vector_bytes / p_.element_bytes));
  for (std::size_t i = 0; i < hidden_.size(); ++i) {
    const HiddenColumns& h = hidden_[i];
    if (h.body != body) continue;
    const OpId first = k_.node(h.computes.front()).op;
    const SymRange& rows = range(ranges, first, p_.workload().local_index(first, h.rows));
    const std::int64_t all = p_.workload().loop(h.columns).extent;
    std::string from = "0", to = std::to_string(all);
    for (const MaskEdge& e : h.edges) {
      // Of all rows, the one whose edge leaves most columns.
      const Linear row = e.by_row > 0 ? rows.hi - number(1) : rows.lo;
      const Linear here = e.by_row * row + number(e.offset);
      if (e.by_column < 0)
        to = "min(" + to + ", " + variables_.text(here + number(1)) + ")";
      else
        from = "max(" + from + ", " + variables_.text(number(0) - here) + ")";
    }
    const bool begins = from == "0";
    if (!begins) from += " / " + lanes + " * " + lanes;
    to = "min(" + std::to_string(all) + ", (" + to + " + " + lanes + " - 1) / " + lanes + " * " +
         lanes + ")";
    const std::string name = names_.fresh("visible");
    out_.line("const Range " + name + " = {" + from + ", " + to + "};");
    visible_[i] = variables_.add_range(name + ".lo", name + ".hi", {0, all}, all, true);
    if (begins) visible_[i].lo = number(0);
  }
}

bool KernelEmitter::leaves_out_columns(NodeId id) const {
  return std::ranges::any_of(hidden_, [id](const HiddenColumns& h) {
    return std::ranges::find(h.computes, id) != h.computes.end();
  });
}

/// Whether what is computed in an iteration of the loop depends on which rows these are.
bool KernelEmitter::sees_columns(NodeId loop) const {
  return std::ranges::any_of(hidden_, [&](const HiddenColumns& h) {
    NodeId at = h.body;
    while (at.valid() && at != loop) at = k_.node(at).parent;
    return at.valid() && k_.node(loop).loop == h.rows;
  });
}

/// Before a compute: what of its columns is computed.
void KernelEmitter::leave_out_columns(NodeId id, const SymRanges& ranges) {
  const OpId op = k_.node(id).op;
  for (std::size_t i = 0; i < hidden_.size(); ++i) {
    const HiddenColumns& h = hidden_[i];
    if (std::ranges::find(h.computes, id) == h.computes.end()) continue;
    const int local = p_.workload().local_index(op, h.columns);
    SymRange seen = range(ranges, op, local);
    const std::int64_t all = p_.workload().loop(h.columns).extent;
    const bool has_all = seen.lo == number(0) && seen.hi == number(all);
    if (begins_visible(h, id, has_all)) seen.lo = visible_[i].lo;
    if (has_all) {
      seen.hi = visible_[i].hi;
    } else {
      const std::string name = names_.fresh("seen");
      const std::string low = variables_.text(seen.lo);
      out_.line("const int64_t " + name + " = max(" + low + ", min(" + variables_.text(seen.hi) +
                ", " + variables_.text(visible_[i].hi) + "));");
      seen.hi = variables_.add(name, variables_.lower(seen.lo), all);
    }
    computed_[k_.range_base[op.index()] + static_cast<std::size_t>(local)] = seen;
  }
}

const SymRange& KernelEmitter::computed_range(const SymRanges& ranges, OpId op, int local) const {
  const auto found = computed_.find(k_.range_base[op.index()] + static_cast<std::size_t>(local));
  return found == computed_.end() ? range(ranges, op, local) : found->second;
}

}  // namespace tilewright::cpu
