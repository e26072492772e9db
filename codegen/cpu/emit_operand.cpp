// Right operands whose columns are not contiguous: packed once, before the outermost loop that they
// do not depend on, instead of at every product.
#include <algorithm>

#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kMostPacked = std::int64_t{1} << 26;

}  // namespace

/// Remembers, for the next pass, before which loop the operand of this product can be packed. It
/// must lie at home, where nobody changes it, and be one matrix there: loops of it other than
/// columns and depth stand around.
void KernelEmitter::look_for_hoist(NodeId id, const Product& p, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  const BufferId in_b = buffer_of_input(n, p.right);
  if (hoists_.contains(id) || !is_plain(in_b) || buffer(in_b).role != BufferRole::input ||
      !packed_[in_b.index()].empty() || w.producer(b.tensor).valid())
    return;
  const auto walked = [&](int local) { return stride_of(op, b, in_b, local) != 0; };
  std::size_t first = 0;  // threads' own memory begins inside the loop that they share
  for (std::size_t i = 0; i < open_.size(); ++i)
    if (k_.node(open_[i].id).binding == Binding::grid || (is_parallel(open_[i].id) && !split_))
      first = i + 1;
  for (std::size_t i = first; i < open_.size(); ++i) {
    const ScheduleNode& loop = k_.node(open_[i].id);
    const SymRanges& around = open_[i].around;
    bool one_matrix = true;
    for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
      one_matrix = one_matrix && (l == p.columns || l == p.depth || !walked(l) ||
                                  range(around, n.op, l).most == 1);
    const bool depends = std::ranges::any_of(
        loop.cuts, [&](const OpLoop& c) { return c.op == n.op && walked(c.local); });
    // Within, readers may ask for more than the ranges around the loop.
    bool covers = true;
    for (std::size_t j = i; j < open_.size(); ++j) {
      const bool inferred = std::ranges::any_of(
          k_.node(open_[j].id).infer, [&](const Inference& in) { return in.producer == n.op; });
      const SymRanges& inside = j + 1 < open_.size() ? open_[j + 1].around : ranges;
      for (int l : {p.columns, p.depth}) {
        const SymRange &outer = range(around, n.op, l), &inner = range(inside, n.op, l);
        const bool whole = outer.lo == number(0) &&
                           outer.hi == number(w.loop(op.loops[static_cast<std::size_t>(l)]).extent);
        covers = covers && (!inferred || whole || (outer.lo == inner.lo && outer.hi == inner.hi));
      }
    }
    if (!one_matrix || depends || !covers || loop.max_trips <= 1) continue;
    // Rows a whole odd number of lines apart spread over the sets of a cache.
    const std::int64_t line = 64 / p_.element_bytes;
    const std::int64_t row = (ceil_div(range(around, n.op, p.columns).most, line) | 1) * line;
    const auto elements = checked_mul(row, range(around, n.op, p.depth).most);
    if (!elements || *elements > kMostPacked / p_.element_bytes) continue;
    hoists_[id] = {
        .before = open_[i].id, .product = p, .row = row, .bytes = *elements * p_.element_bytes};
    return;
  }
}

void KernelEmitter::emit_hoists(NodeId loop, const SymRanges& around) {
  for (auto& [id, h] : hoists_) {
    if (h.before != loop) continue;
    if (h.kept) {
      h.name = names_.fresh("kept");
      out_.line("Kept " + h.name + " = {};");
      continue;
    }
    const ScheduleNode& n = k_.node(id);
    const Operator& op = p_.workload().op(n.op);
    const Access& b = op.inputs[static_cast<std::size_t>(h.product.right)];
    const BufferId in_b = buffer_of_input(n, h.product.right);
    std::vector<std::string> at;
    for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
      at.push_back(variables_.text(range(around, n.op, l).lo));
    h.low_depth = at[static_cast<std::size_t>(h.product.depth)];
    h.low_columns = at[static_cast<std::size_t>(h.product.columns)];
    h.name = names_.fresh(identifier("packed_", p_.workload().tensor(b.tensor).name));
    out_.comment(p_.workload().tensor(b.tensor).name + " by rows of " + op.name +
                 "'s columns, once for all iterations of the loop");
    out_.line("Real* const " + h.name + " = reinterpret_cast<Real*>(memory + " +
              std::to_string(h.offset) + ");");
    out_.line("pack(" + size_of_loop(n.op, h.product.columns, around) + ", " +
              size_of_loop(n.op, h.product.depth, around) + ", " + corner(op, b, in_b, at) + ", " +
              std::to_string(stride_of(op, b, in_b, h.product.depth)) + ", " +
              std::to_string(stride_of(op, b, in_b, h.product.columns)) + ", " + h.name + ", " +
              std::to_string(h.row) + ");");
  }
}

}  // namespace tilewright::cpu
