// A compute on its box: outer products where the operator is a matrix product in some three of its
// loops (emit_product.cpp), its points otherwise (emit_points.cpp).
#include <algorithm>
#include <map>

#include "codegen/cpu/emitter.h"
#include "core/workload/access.h"
#include "core/workload/text.h"

namespace tilewright::cpu {
namespace {

/// Loops of the dimensions in which a gather leaves its tensor.
std::vector<int> edged_loops(const Workload& w, const Operator& op, const Access& gather) {
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  std::vector<int> loops;
  for (std::size_t l = 0; l < op.loops.size(); ++l)
    for (std::size_t d = 0; d < gather.index.size(); ++d)
      if (indexes(gather.index[d], op.loops[l]) &&
          !contains(Interval{0, w.tensor(gather.tensor).shape[d]},
                    footprint(op, gather.index[d], whole))) {
        loops.push_back(static_cast<int>(l));
        break;
      }
  return loops;
}

}  // namespace

void KernelEmitter::visit_compute(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  if (followed_.contains(id)) return;  // done already, as another's values were made
  out_.comment("C." + to_text(p_.workload(), n.op));
  std::string skip;
  if (n.once) {
    for (const OutputUse& w : n.writes) {
      if (!buffer(w.buffer).fixed_at.valid()) select(w.buffer);
      const SymBox box =
          access_box(n.op, op.outputs[static_cast<std::size_t>(w.output)].target, ranges);
      skip += (skip.empty() ? "" : " && ") + std::string("is_complete(") + ref(w.buffer) + ", " +
              box_text(box) + ")";
    }
    out_.open("if (!(" + skip + "))");
    defined_.emplace_back();
    for (std::size_t i = 0; i < k_.nodes.size(); ++i)
      if (k_.nodes[i].kind == NodeKind::load && k_.nodes[i].only_for == id)
        emit_load(NodeId(i), ranges);
  }
  SymRanges here = ranges;
  std::string condition;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    SymRange& r = here.at[k_.range_base[n.op.index()] + l];
    if (!r.nonempty)
      condition +=
          (condition.empty() ? "" : " && ") + variables_.text(r.lo) + " < " + variables_.text(r.hi);
    r.nonempty = true;
  }
  out_.open(condition.empty() ? "" : "if (" + condition + ")");
  defined_.emplace_back();
  leave_out_columns(id, here);
  compute_box(id, here);
  computed_.clear();
  defined_.pop_back();
  out_.close();
  if (!n.once) return;
  defined_.pop_back();
  out_.close();
}

/// What a compute writes is about to be written: the boxes, by output.
std::vector<SymBox> KernelEmitter::prepare_outputs(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  std::vector<SymBox> boxes;
  for (const OutputUse& w : n.writes) {
    boxes.push_back(
        access_box(n.op, op.outputs[static_cast<std::size_t>(w.output)].target, ranges));
    if (!buffer(w.buffer).fixed_at.valid()) {
      select(w.buffer);
      record(w.buffer, boxes.back());
      fix(w.buffer, boxes.back());
    }
    if (!is_plain(w.buffer))
      out_.line("update(" + ref(w.buffer) + ", " + initialises(n.op, ranges, w.atomic) + ");");
    else if (packed_[w.buffer.index()].empty())
      prefetch(w.buffer, boxes.back());
  }
  return boxes;
}

void KernelEmitter::compute_box(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const std::vector<SymBox> boxes = prepare_outputs(id, ranges);
  count_gathers(id, ranges);
  const std::string adds = not_yet_added(n.op, n.writes.front().atomic);
  if (!adds.empty()) out_.open("if (" + adds + ")");
  const bool hides = leaves_out_columns(id);
  const auto window = hides ? std::nullopt : as_window(id, ranges);
  const auto product = window ? std::nullopt : as_product(id, ranges);
  if (window && !slides(id, *window, ranges))
    convolve(id, *window, ranges);
  else if (product && !reads_right_as_it_lies(id, *product))
    outer_products(id, *product, ranges);
  else if (product && lies_along_depth(id, *product))
    along_depth(id, *product, ranges);
  else if (hides || !by_planes(id, ranges))
    point_loops(id, ranges);
  if (!adds.empty()) out_.close();
  if (!n.once) return;
  const std::string complete = completes(n.op, ranges);
  for (std::size_t o = 0; o < n.writes.size(); ++o)
    out_.line((complete.empty() ? "" : "if (" + complete + ") ") + "completed(" +
              ref(n.writes[o].buffer) + ", " + box_text(boxes[o]) + ");");
}

/// Declares and returns how many points of these loops lie within the access's tensor.
std::string KernelEmitter::count_inside(OpId id, const Access& a, const std::vector<int>& loops,
                                        const SymRanges& ranges) {
  const Workload& w = p_.workload();
  const Operator& op = w.op(id);
  const std::string inside = names_.fresh("inside");
  out_.line("int64_t " + inside + " = 0;");
  std::map<LoopId, std::string> at;
  for (int l : loops) {
    const LoopId loop = op.loops[static_cast<std::size_t>(l)];
    const std::string name = names_.fresh(identifier("p_", w.loop(loop).name));
    const SymRange& r = range(ranges, id, l);
    out_.open("for (int64_t " + name + " = " + variables_.text(r.lo) + "; " + name + " < " +
              variables_.text(r.hi) + "; ++" + name + ")");
    at[loop] = name;
  }
  std::string condition;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const Affine& index = a.index[d];
    if (index.gathered >= 0 ||
        !std::ranges::all_of(index.terms, [&](const Term& t) { return at.contains(t.loop); }))
      continue;  // a value, or within the tensor
    std::string text = std::to_string(index.offset);
    for (const Term& t : index.terms) text += " + " + times(t.coefficient, at[t.loop]);
    condition += (condition.empty() ? "" : " && ") + text + " >= 0 && " + text + " < " +
                 std::to_string(w.tensor(a.tensor).shape[d]);
  }
  out_.line(inside + " += " + condition + ";");
  for (std::size_t l = 0; l < loops.size(); ++l) out_.close();
  return inside;
}

/// What is read by other tensors' values: an element a point of the loops that say which, from
/// home.
void KernelEmitter::count_gathers(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  for (const InputUse& use : n.reads) {
    if (use.buffer.valid()) continue;
    p_.needed[use.tensor.index()] = true;
    if (!p_.options.count) continue;
    std::string bytes = std::to_string(size_of(p_.workload().tensor(use.tensor).dtype));
    const Access& access = op.inputs[static_cast<std::size_t>(use.inputs.front())];
    const std::vector<int> edged = edged_loops(p_.workload(), op, access);
    for (int l : gather_loops(op, access))
      if (std::ranges::find(edged, l) == edged.end())
        bytes += " * (" + size_of_loop(n.op, l, ranges) + ")";
    if (!edged.empty()) bytes += " * " + count_inside(n.op, access, edged, ranges);
    for (const auto& [from, to] : p_.machine().path(p_.machine().home(), k_.level)) {
      const auto at = 2 * (use.tensor.index() * p_.boundaries.size() +
                           static_cast<std::size_t>(p_.boundary(from, to)));
      out_.line("counts[" + std::to_string(at) + "] += " + bytes + ";  // " +
                one_line(p_.machine().boundary(from, to)));
    }
  }
}

}  // namespace tilewright::cpu
