// A compute on its box: outer products where the operator is a matrix product in some three of its
// loops, plain loops otherwise.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "codegen/cpu/emitter.h"
#include "core/ir/files.h"

namespace tilewright::cpu {

/// How an operator is a matrix product C[i,j] += A[i,k] * B[k,j]: which input is which, and which
/// loop runs over rows, columns and depth (positions in op.loops; -1: none, of size one).
struct KernelEmitter::Product {
  int left = 0, right = 1;  ///< positions in op.inputs
  int rows = -1, columns = -1, depth = -1;
  bool packs = false;       ///< the right operand's columns are not contiguous
};

namespace {

std::string times(std::int64_t factor, const std::string& text) {
  return factor == 1 ? text : std::to_string(factor) + " * " + text;
}

std::string literal(double value) {
  if (std::isinf(value)) return value > 0 ? "Real(HUGE_VAL)" : "Real(-HUGE_VAL)";
  if (std::isnan(value)) return "Real(NAN)";
  char text[40];
  std::snprintf(text, sizeof text, "Real(%.17g)", value);
  return text;
}

std::string expression(const Expr& e) {
  if (e.kind == Expr::Kind::input) return "x" + std::to_string(e.input);
  if (e.kind == Expr::Kind::constant) return literal(e.constant);
  TW_CHECK(e.kind == Expr::Kind::call, "an operator that does not run has a running expression");
  TW_CHECK(find_expr_function(e.function) != nullptr, "an expression calls an unknown function");
  std::string text = "f_" + e.function + "(";
  for (std::size_t i = 0; i < e.args.size(); ++i)
    text += (i == 0 ? "" : ", ") + expression(e.args[i]);
  return text + ")";
}

/// The value joined to the result so far, `y`.
std::string combined(Combine c, const std::string& y, const std::string& value) {
  switch (c) {
    case Combine::assign: return y + " = " + value + ";";
    case Combine::sum: return y + " += " + value + ";";
    case Combine::product: return y + " *= " + value + ";";
    case Combine::max: return y + " = f_max(" + y + ", " + value + ");";
    case Combine::min: return y + " = f_min(" + y + ", " + value + ");";
  }
  return "";
}

/// Elements between neighbours of a loop in a tensor that lies with these strides.
std::int64_t loop_stride(const Access& a, LoopId loop, const std::vector<std::int64_t>& stride) {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < a.index.size(); ++d)
    for (const Term& t : a.index[d].terms)
      if (t.loop == loop) sum += t.coefficient * stride[d];
  return sum;
}

bool has_loop(const Access& a, LoopId loop) {
  for (const Affine& index : a.index)
    for (const Term& t : index.terms)
      if (t.loop == loop) return true;
  return false;
}

/// Whether some index lies outside the tensor: a convolution's padding.
bool can_leave(const Workload& w, const Operator& op, const Access& a) {
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  for (std::size_t d = 0; d < a.index.size(); ++d)
    if (!contains(Interval{0, w.tensor(a.tensor).shape[d]}, footprint(op, a.index[d], whole)))
      return true;
  return false;
}

BufferId buffer_of_input(const ScheduleNode& n, int input) {
  for (const InputUse& use : n.reads)
    if (std::ranges::find(use.inputs, input) != use.inputs.end()) return use.buffer;
  return {};
}

}  // namespace

void KernelEmitter::visit_compute(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
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
      condition += (condition.empty() ? "" : " && ") + variables_.text(r.lo) + " < " +
                   variables_.text(r.hi);
    r.nonempty = true;
  }
  out_.open(condition.empty() ? "" : "if (" + condition + ")");
  defined_.emplace_back();
  compute_box(id, here);
  defined_.pop_back();
  out_.close();
  if (!n.once) return;
  defined_.pop_back();
  out_.close();
}

void KernelEmitter::compute_box(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  std::vector<SymBox> boxes;
  for (const OutputUse& w : n.writes) {
    boxes.push_back(
        access_box(n.op, op.outputs[static_cast<std::size_t>(w.output)].target, ranges));
    if (!buffer(w.buffer).fixed_at.valid()) {
      select(w.buffer);
      record(w.buffer, boxes.back());
      out_.line("fix(" + ref(w.buffer) + ", " + box_text(boxes.back()) + ");");
    }
    out_.line("update(" + ref(w.buffer) + ", " + initialises(n.op, ranges, w.atomic) + ");");
  }
  const std::string adds = not_yet_added(n.op, n.writes.front().atomic);
  if (!adds.empty()) out_.open("if (" + adds + ")");
  if (const auto product = as_product(id, ranges))
    outer_products(id, *product, ranges);
  else
    scalar_loops(id, ranges);
  if (!adds.empty()) out_.close();
  if (!n.once) return;
  std::string finished;
  for (LoopId l : p_.workload().reduction_loops(n.op)) {
    const SymRange& r = range(ranges, n.op, p_.workload().local_index(n.op, l));
    const Linear missing = number(p_.workload().loop(l).extent) - r.hi;
    if (variables_.upper(missing) <= 0) continue;
    finished += (finished.empty() ? "if (" : " && ") + variables_.text(r.hi) +
                " == " + std::to_string(p_.workload().loop(l).extent);
  }
  for (std::size_t o = 0; o < n.writes.size(); ++o)
    out_.line(finished + (finished.empty() ? "" : ") ") + "completed(" + ref(n.writes[o].buffer) +
              ", " + box_text(boxes[o]) + ");");
}

/// Element-wise: every point of the box, outputs' loops outside, reductions inside.
void KernelEmitter::scalar_loops(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  p_.prelude.functions = true;

  std::vector<std::string> point;
  for (LoopId l : op.loops) point.push_back(names_.fresh(identifier("p_", w.loop(l).name)));
  const auto index_text = [&](const Affine& a) {
    std::string text;
    for (const Term& t : a.terms) {
      const auto local = std::ranges::find(op.loops, t.loop) - op.loops.begin();
      text += (text.empty() ? "" : " + ") + times(t.coefficient,
                                                  point[static_cast<std::size_t>(local)]);
    }
    if (a.offset != 0 || text.empty())
      text += (text.empty() ? "" : " + ") + std::to_string(a.offset);
    return text;
  };
  // An element is array[index * strides - where the held tile begins].
  const auto element = [&](BufferId b, const Access& a, const std::string& array) {
    const auto& stride = layouts_[b.index()].stride;
    std::string text;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      text += "(" + index_text(a.index[d]) + ") * " + std::to_string(stride[d]) + " + ";
    }
    return array + "[" + text + array + "_at]";
  };
  const auto array = [&](BufferId b, const std::string& name, bool is_const) {
    const auto& stride = layouts_[b.index()].stride;
    std::string at;
    for (std::size_t d = 0; d < stride.size(); ++d)
      at += " - " + ref(b) + ".held.d[" + std::to_string(d) + "].lo * " + std::to_string(stride[d]);
    out_.line(std::string(is_const ? "const " : "") + "Real* const " + name + " = " + ref(b) +
              ".data;");
    out_.line("const int64_t " + name + "_at = 0" + at + ";");
  };
  const auto loop = [&](std::size_t l) {
    const SymRange& r = range(ranges, n.op, static_cast<int>(l));
    out_.open("for (int64_t " + point[l] + " = " + variables_.text(r.lo) + "; " + point[l] +
              " < " + variables_.text(r.hi) + "; ++" + point[l] + ")");
  };

  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    array(buffer_of_input(n, static_cast<int>(i)), "in" + std::to_string(i), true);
  for (std::size_t o = 0; o < n.writes.size(); ++o)
    array(n.writes[o].buffer, "out" + std::to_string(o), false);

  const bool reduces = !w.reduction_loops(n.op).empty();
  std::size_t outer_loops = 0;
  if (reduces) {
    for (std::size_t o = 0; o < n.writes.size(); ++o) {
      const Output& out = op.outputs[static_cast<std::size_t>(n.writes[o].output)];
      const std::string fresh = initialises(n.op, ranges, n.writes[o].atomic);
      if (out.combine == Combine::assign || fresh == "false") continue;
      if (fresh != "true") out_.open("if (" + fresh + ")");
      std::size_t opened = 0;
      for (std::size_t l = 0; l < op.loops.size(); ++l)
        if (!w.is_reduction(n.op, op.loops[l])) loop(l), ++opened;
      out_.line(element(n.writes[o].buffer, out.target, "out" + std::to_string(o)) + " = " +
                literal(identity_of(out.combine)) + ";");
      for (; opened > 0; --opened) out_.close();
      if (fresh != "true") out_.close();
    }
  }
  for (const bool reductions : {false, true})
    for (std::size_t l = 0; l < op.loops.size(); ++l)
      if (w.is_reduction(n.op, op.loops[l]) == reductions) loop(l), ++outer_loops;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const Access& a = op.inputs[i];
    std::string inside;
    for (std::size_t d = 0; d < a.index.size() && can_leave(w, op, a); ++d) {
      const std::string at = "(" + index_text(a.index[d]) + ")";
      inside += (inside.empty() ? "" : " && ") + at + " >= 0 && " + at + " < " +
                std::to_string(w.tensor(a.tensor).shape[d]);
    }
    const std::string value = element(buffer_of_input(n, static_cast<int>(i)), a,
                                      "in" + std::to_string(i));
    out_.line("const Real x" + std::to_string(i) + " = " +
              (inside.empty() ? value : inside + " ? " + value + " : Real(0)") + ";");
    out_.line("(void)x" + std::to_string(i) + ";");
  }
  for (std::size_t o = 0; o < n.writes.size(); ++o) {
    const Output& out = op.outputs[static_cast<std::size_t>(n.writes[o].output)];
    out_.line(combined(reduces ? out.combine : Combine::assign,
                       element(n.writes[o].buffer, out.target, "out" + std::to_string(o)),
                       expression(out.value)));
  }
  for (; outer_loops > 0; --outer_loops) out_.close();
}

/// The operator as a matrix product on its tiles, with the loops that are largest; nothing where it
/// is none, or reads beyond its tensors.
std::optional<KernelEmitter::Product> KernelEmitter::as_product(NodeId id,
                                                                const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  if (op.outputs.size() != 1 || op.inputs.size() != 2) return std::nullopt;
  const Output& out = op.outputs[0];
  const Expr& e = out.value;
  if (out.combine != Combine::sum || out.rescale || e.kind != Expr::Kind::call ||
      e.function != "mul" || e.args[0].kind != Expr::Kind::input ||
      e.args[1].kind != Expr::Kind::input || e.args[0].input == e.args[1].input)
    return std::nullopt;
  if (can_leave(w, op, op.inputs[0]) || can_leave(w, op, op.inputs[1])) return std::nullopt;

  const auto stride_in = [&](const Access& a, BufferId b, LoopId l) {
    return loop_stride(a, l, layouts_[b.index()].stride);
  };
  std::optional<Product> best;
  std::int64_t best_size = -1;
  for (int left : {0, 1}) {
    Product p{.left = left, .right = 1 - left};
    const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
    const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
    const auto pick = [&](int& slot, std::size_t l) {
      const auto most = [&](int local) { return range(ranges, n.op, local).most; };
      if (slot < 0 || most(static_cast<int>(l)) > most(slot)) slot = static_cast<int>(l);
    };
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const LoopId loop = op.loops[l];
      const bool in_a = has_loop(a, loop), in_b = has_loop(b, loop);
      const bool in_out = has_loop(out.target, loop);
      if (in_out && in_b && !in_a && !out.target.index.empty() &&
          out.target.index.back().plain_loop() == loop &&
          stride_in(out.target, n.writes[0].buffer, loop) == 1)
        pick(p.columns, l);
      if (in_out && in_a && !in_b) pick(p.rows, l);
      if (!in_out && in_a && in_b) pick(p.depth, l);
    }
    if (p.columns < 0 || p.depth < 0) continue;
    p.packs = stride_in(b, buffer_of_input(n, p.right),
                        op.loops[static_cast<std::size_t>(p.columns)]) != 1;
    const auto most = [&](int local) { return local < 0 ? 1 : range(ranges, n.op, local).most; };
    const std::int64_t size = most(p.columns) * most(p.rows);
    if (size > best_size) best_size = size, best = p;
  }
  return best;
}

void KernelEmitter::outer_products(NodeId id, const Product& p, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  const Access& c = op.outputs[0].target;
  const BufferId in_a = buffer_of_input(n, p.left), in_b = buffer_of_input(n, p.right);
  const BufferId in_c = n.writes[0].buffer;

  // Loops that the product leaves over stand around it; of reductions, only the first step starts
  // from zero.
  std::vector<std::string> at(op.loops.size());
  std::string fresh = initialises(n.op, ranges, n.writes[0].atomic);
  std::size_t opened = 0;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const SymRange& r = range(ranges, n.op, static_cast<int>(l));
    const int local = static_cast<int>(l);
    const bool inner = local == p.rows || local == p.columns || local == p.depth;
    if (inner || r.most == 1) {
      at[l] = variables_.text(r.lo);
      continue;
    }
    at[l] = names_.fresh(identifier("p_", w.loop(op.loops[l]).name));
    out_.open("for (int64_t " + at[l] + " = " + variables_.text(r.lo) + "; " + at[l] + " < " +
              variables_.text(r.hi) + "; ++" + at[l] + ")");
    ++opened;
    if (!w.is_reduction(n.op, op.loops[l]) || fresh == "false") continue;
    const std::string first = at[l] + " == " + variables_.text(r.lo);
    fresh = fresh == "true" ? first : fresh + " && " + first;
  }
  const auto corner = [&](const Access& access, BufferId buf) {
    std::string text = "at(" + ref(buf) + ", {";
    for (std::size_t d = 0; d < access.index.size(); ++d) {
      std::string index;
      for (const Term& t : access.index[d].terms) {
        const auto l = std::ranges::find(op.loops, t.loop) - op.loops.begin();
        const std::string& x = at[static_cast<std::size_t>(l)];
        const bool simple = x.find(' ') == std::string::npos;
        index += (index.empty() ? "" : " + ") + times(t.coefficient, simple ? x : "(" + x + ")");
      }
      const std::int64_t offset = access.index[d].offset;
      if (offset != 0 || index.empty())
        index += (index.empty() ? "" : " + ") + std::to_string(offset);
      text += (d == 0 ? "" : ", ") + index;
    }
    return text + (access.index.empty() ? "0})" : "})");
  };
  const auto stride = [&](const Access& access, BufferId buf, int local) {
    if (local < 0) return std::int64_t{0};
    return loop_stride(access, op.loops[static_cast<std::size_t>(local)],
                       layouts_[buf.index()].stride);
  };
  const auto size = [&](int local) -> std::string {
    if (local < 0) return "1";
    const SymRange& r = range(ranges, n.op, local);
    return variables_.text(r.hi - r.lo);
  };

  std::string right = corner(b, in_b);
  std::string right_stride = std::to_string(stride(b, in_b, p.depth));
  if (p.packs) {
    const std::int64_t row = ceil_div(range(ranges, n.op, p.columns).most, 16) * 16;
    const auto bytes = checked_mul(row * p_.element_bytes, range(ranges, n.op, p.depth).most + 1);
    if (!bytes) throw Refused{"operator " + op.name + " packs more than 64 bits count"};
    scratch_ = std::max(scratch_, *bytes);
    const std::string name = names_.fresh("packed");
    out_.line("Real* const " + name + " = reinterpret_cast<Real*>(memory + " +
              std::to_string(scratch_offset_) + ");");
    out_.line("pack(" + size(p.columns) + ", " + size(p.depth) + ", " + right + ", " +
              right_stride + ", " + std::to_string(stride(b, in_b, p.columns)) + ", " + name +
              ", " + std::to_string(row) + ");");
    right = name;
    right_stride = std::to_string(row);
  }
  out_.line("multiply(" + size(p.rows) + ", " + size(p.columns) + ", " + size(p.depth) + ", " +
            corner(a, in_a) + ", " + std::to_string(stride(a, in_a, p.rows)) + ", " +
            std::to_string(stride(a, in_a, p.depth)) + ",");
  out_.line("         " + right + ", " + right_stride + ", " + corner(c, in_c) + ", " +
            std::to_string(stride(c, in_c, p.rows)) + ", " + fresh + ");");
  for (; opened > 0; --opened) out_.close();
}

}  // namespace tilewright::cpu
