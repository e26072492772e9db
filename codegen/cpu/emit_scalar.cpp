// Any operator, element by element: plain loops over its box.
#include <algorithm>

#include "codegen/common/expression.h"
#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {

/// The points of one compute's box: the loops over them and the elements that they touch.
class KernelEmitter::Points {
 public:
  Points(KernelEmitter& e, const ScheduleNode& n, const SymRanges& ranges)
      : e_(e), n_(n), op_(e.p_.workload().op(n.op)), ranges_(ranges) {
    for (LoopId l : op_.loops)
      names_.push_back(e.names_.fresh(identifier("p_", e.p_.workload().loop(l).name)));
  }

  /// Declares an array and what to add to indices times strides: where its held tile begins.
  void array(BufferId b, const std::string& name, bool read_only) const {
    const auto& stride = e_.layouts_[b.index()].stride;
    if (e_.is_plain(b)) {
      e_.out_.line(std::string(read_only ? "const " : "") + "Real* const " + name + " = " +
                   e_.element_address(b, std::vector<std::string>(stride.size(), "0")) + ";");
      e_.out_.line("constexpr int64_t " + name + "_at = 0;");
      return;
    }
    std::string at;
    for (std::size_t d = 0; d < stride.size(); ++d)
      at += " - " + times(stride[d], e_.ref(b) + ".held.d[" + std::to_string(d) + "].lo");
    e_.out_.line(std::string(read_only ? "const " : "") + "Real* const " + name + " = " +
                 e_.ref(b) + ".data;");
    e_.out_.line("const int64_t " + name + "_at = 0" + at + ";");
  }

  std::string element(BufferId b, const Access& a, const std::string& array) const {
    const auto& stride = e_.layouts_[b.index()].stride;
    std::string text;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      const std::string index = index_text(a.index[d]);
      text += times(stride[d], index.find(' ') == std::string::npos ? index : "(" + index + ")");
      text += " + ";
    }
    return array + "[" + text + array + "_at]";
  }

  /// The condition under which the access lies within its tensor; empty: always.
  std::string inside(const Access& a) const {
    const Workload& w = e_.p_.workload();
    std::string text;
    if (!can_leave(w, op_, a)) return text;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      const std::string index = index_text(a.index[d]);
      text += (text.empty() ? "" : " && ") + index + " >= 0 && " + index + " < " +
              std::to_string(w.tensor(a.tensor).shape[d]);
    }
    return text;
  }

  /// Opens the loops that reduce, or the others; how many.
  int open(bool reductions) const {
    int opened = 0;
    for (std::size_t l = 0; l < op_.loops.size(); ++l) {
      if (e_.p_.workload().is_reduction(n_.op, op_.loops[l]) != reductions) continue;
      const SymRange& r = e_.range(ranges_, n_.op, static_cast<int>(l));
      e_.out_.open("for (int64_t " + names_[l] + " = " + e_.variables_.text(r.lo) + "; " +
                   names_[l] + " < " + e_.variables_.text(r.hi) + "; ++" + names_[l] + ")");
      ++opened;
    }
    return opened;
  }

 private:
  std::string index_text(const Affine& a) const {
    std::string text;
    for (const Term& t : a.terms) {
      const auto local = std::ranges::find(op_.loops, t.loop) - op_.loops.begin();
      text += (text.empty() ? "" : " + ") +
              times(t.coefficient, names_[static_cast<std::size_t>(local)]);
    }
    if (text.empty()) return std::to_string(a.offset);
    if (a.offset == 0) return text;
    return text + (a.offset < 0 ? " - " : " + ") + std::to_string(std::abs(a.offset));
  }

  KernelEmitter& e_;
  const ScheduleNode& n_;
  const Operator& op_;
  const SymRanges& ranges_;
  std::vector<std::string> names_;  // by op.loops
};

/// Outputs' loops outside, reductions inside; what starts afresh is set to its identity first.
void KernelEmitter::scalar_loops(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Points points(*this, n, ranges);
  p_.prelude.functions = true;
  const auto close = [&](int loops) {
    for (; loops > 0; --loops) out_.close();
  };
  const auto result = [&](std::size_t o) {
    const Output& out = op.outputs[static_cast<std::size_t>(n.writes[o].output)];
    return points.element(n.writes[o].buffer, out.target, "out" + std::to_string(o));
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    points.array(buffer_of_input(n, static_cast<int>(i)), "in" + std::to_string(i), true);
  for (std::size_t o = 0; o < n.writes.size(); ++o)
    points.array(n.writes[o].buffer, "out" + std::to_string(o), false);

  const bool reduces = !p_.workload().reduction_loops(n.op).empty();
  for (std::size_t o = 0; o < n.writes.size() && reduces; ++o) {
    const Combine combine = op.outputs[static_cast<std::size_t>(n.writes[o].output)].combine;
    const std::string fresh = initialises(n.op, ranges, n.writes[o].atomic);
    if (combine == Combine::assign || fresh == "false") continue;
    if (fresh != "true") out_.open("if (" + fresh + ")");
    const int opened = points.open(false);
    out_.line(result(o) + " = " + literal(identity_of(combine), "Real") + ";");
    close(opened + (fresh != "true" ? 1 : 0));
  }
  int opened = points.open(false);
  opened += points.open(true);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const std::string x = "x" + std::to_string(i);
    const std::string inside = points.inside(op.inputs[i]);
    const std::string value = points.element(buffer_of_input(n, static_cast<int>(i)), op.inputs[i],
                                             "in" + std::to_string(i));
    out_.line("const Real " + x + " = " +
              (inside.empty() ? value : inside + " ? " + value + " : Real(0)") + ";");
  }
  for (std::size_t o = 0; o < n.writes.size(); ++o) {
    const Output& out = op.outputs[static_cast<std::size_t>(n.writes[o].output)];
    out_.line(combined(reduces ? out.combine : Combine::assign, result(o), expression(out.value, "Real")));
  }
  close(opened);
}

}  // namespace tilewright::cpu
