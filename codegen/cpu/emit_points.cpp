// Any operator, point by point: loops over its box, a vector at a time along a loop that every
// access walks contiguously or not at all, else one element at a time.
#include <algorithm>

#include "codegen/common/expression.h"
#include "codegen/cpu/emitter.h"
#include "core/ir/expr.h"

namespace tilewright::cpu {

/// The points of one compute's box: the loops over them and the elements that they touch.
class KernelEmitter::Points {
 public:
  Points(KernelEmitter& e, NodeId id, const SymRanges& ranges)
      : e_(e),
        w_(e.p_.workload()),
        n_(e.k_.node(id)),
        op_(w_.op(n_.op)),
        ranges_(ranges),
        reduces_(!w_.reduction_loops(n_.op).empty()) {
    for (const OutputUse& out : n_.writes)
      fresh_.push_back(e.initialises(n_.op, ranges, out.atomic));
    for (LoopId l : op_.loops) names_.push_back(e.names_.fresh(identifier("p_", w_.loop(l).name)));
    runs_ =
        std::ranges::any_of(op_.outputs, [](const Output& o) { return names_outputs(o.value); });
    vector_ = vector_loop();
    e_.p_.prelude.functions = true;
    if (vector_ >= 0) e_.p_.prelude.vectors = true;
  }

  void emit() {
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) input_array(i);
    for (std::size_t o = 0; o < n_.writes.size(); ++o)
      array(n_.writes[o].buffer, name_out(o), false);
    const int opened = open(false, vector_);
    if (vector_ < 0)
      point(Width::one);
    else if (is_reduction(vector_))
      across();
    else
      along();
    close(opened);
  }

  /// What the results so far are multiplied by before this block of the reduction is combined in
  /// (rule 14), where this is done apart from combining.
  void emit_rescaling() {
    const Output& out = output(0);
    if (!out.rescale || fresh_[0] == "true") return;
    open_unless(fresh_[0]);
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      if (w_.gathers(n_.op) || reads_input(*out.rescale, static_cast<int>(i))) input_array(i);
    array(n_.writes[0].buffer, name_out(0), false);
    const int opened = open(false, vector_);
    const auto scaled = [&](Width width) {
      inputs(width, {&*out.rescale});
      e_.out_.line(type(width) + " y0 = " + loaded(width, 0) + ";");
      e_.out_.line("y0 *= " + value(width, *out.rescale) + ";");
      store(width, 0);
    };
    if (vector_ < 0 || is_reduction(vector_))
      scaled(Width::one);
    else
      by_vectors(scaled);
    close(opened + 1);
  }

 private:
  static constexpr std::int64_t kFar = -1;
  enum class Width { one, whole, part };  ///< an element, a vector, the first lanes of one

  BufferId in(std::size_t i) const { return buffer_of_input(n_, static_cast<int>(i)); }
  static std::string name_in(std::size_t i) { return "in" + std::to_string(i); }
  static std::string name_out(std::size_t o) { return "out" + std::to_string(o); }
  static std::string y(std::size_t o) { return "y" + std::to_string(o); }
  const Output& output(std::size_t o) const {
    return op_.outputs[static_cast<std::size_t>(n_.writes[o].output)];
  }
  const SymRange& range_of(int l) const { return e_.range(ranges_, n_.op, l); }
  bool is_reduction(int l) const {
    return w_.is_reduction(n_.op, op_.loops[static_cast<std::size_t>(l)]);
  }
  std::int64_t stride(const Access& a, BufferId b, int l) const {
    return loop_stride(a, op_.loops[static_cast<std::size_t>(l)], e_.layouts_[b.index()].stride);
  }
  std::int64_t input_stride(std::size_t i, int l) const {
    const Access& a = op_.inputs[i];
    return is_gather(a) ? gather_stride(a, l) : stride(a, in(i), l);
  }
  /// Of a gather: elements between neighbours of a loop at home; kFar where other values index
  /// them, or where they are not what vectors hold.
  std::int64_t gather_stride(const Access& a, int l) const {
    const LoopId loop = op_.loops[static_cast<std::size_t>(l)];
    for (const Affine& index : a.index)
      if (index.gathered >= 0 &&
          has_loop(op_.inputs[static_cast<std::size_t>(index.gathered)], loop))
        return kFar;
    const std::int64_t step = loop_stride(a, loop, e_.home_strides(a.tensor));
    return step != 0 && (e_.p_.prelude.bf16 || is_integer(w_.tensor(a.tensor).dtype)) ? kFar : step;
  }
  static std::string type(Width width) { return width == Width::one ? "Real" : "Vector"; }
  static std::string real(Width width) { return width == Width::one ? "Real" : "splat"; }
  static std::string value(Width width, const Expr& e) { return expression(e, real(width)); }
  static std::string identity(Width width, const Output& out) {
    return literal(identity_of(out.combine), real(width));
  }

  /// The longest loop that vectors can run along; -1: none. Along a reduction, lanes are joined at
  /// its end.
  int vector_loop() const {
    if (e_.p_.vector_bytes == 0) return -1;
    for (const Access& a : op_.inputs)
      if (can_leave(w_, op_, a)) return -1;
    int best = -1;
    for (int l = 0; l < static_cast<int>(op_.loops.size()); ++l) {
      if (range_of(l).most < 2 || (best >= 0 && range_of(l).most <= range_of(best).most)) continue;
      bool contiguous = true, walks = false;
      for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
        const std::int64_t step = input_stride(i, l);
        contiguous = contiguous && (step == 0 || step == 1);
        walks = walks || step == 1;
      }
      for (std::size_t o = 0; o < n_.writes.size(); ++o) {
        contiguous = contiguous &&
                     stride(output(o).target, n_.writes[o].buffer, l) == (is_reduction(l) ? 0 : 1);
        if (!is_reduction(l)) continue;
        if (names_outputs(output(o).value))
          for (std::size_t i = 0; i < op_.inputs.size(); ++i)
            contiguous = contiguous && !reads_input(output(o).value, static_cast<int>(i));
        else
          contiguous = contiguous && output(o).combine != Combine::assign;
      }
      if (contiguous && (walks || !is_reduction(l))) best = l;
    }
    return best;
  }

  /// The same of an input; what is gathered is read where its tensor lies.
  void input_array(std::size_t i) const {
    const Access& a = op_.inputs[i];
    if (!is_gather(a)) return array(in(i), name_in(i), true);
    const std::string type = "const " + e_.home_type(a.tensor) + "*";
    e_.out_.line(type + " const " + name_in(i) + " = static_cast<" + type + ">(tensors[" +
                 std::to_string(a.tensor.value) + "]);");
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

  /// The condition under which the access lies within its tensor; empty: always.
  std::string inside(const Access& a) const {
    std::string text;
    if (!can_leave(w_, op_, a)) return text;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      const std::string index = index_text(a.index[d]);
      text += (text.empty() ? "" : " && ") + index + " >= 0 && " + index + " < " +
              std::to_string(w_.tensor(a.tensor).shape[d]);
    }
    return text;
  }

  /// Declares where the element of a gather is, and returns the condition that it is there.
  std::string declare_place(std::size_t i) const {
    const Access& a = op_.inputs[i];
    const std::vector<std::int64_t> strides = e_.home_strides(a.tensor);
    const std::string place = "at" + std::to_string(i);
    std::string offset, condition;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      std::string index = index_text(a.index[d]);
      if (a.index[d].gathered >= 0) {
        const auto by = static_cast<std::size_t>(a.index[d].gathered);
        const Access& by_access = op_.inputs[by];
        const std::string outside = inside(by_access);
        index = "index" + std::to_string(i) + "_" + std::to_string(d);
        e_.out_.line("const int64_t " + index + " = " + (outside.empty() ? "" : outside + " ? ") +
                     "static_cast<int64_t>(" + element(in(by), by_access, name_in(by)) + ")" +
                     (outside.empty() ? ";" : " : 0;"));
        condition += (condition.empty() ? "" : " && ") + index + " >= 0 && " + index + " < " +
                     std::to_string(w_.tensor(a.tensor).shape[d]);
      }
      offset += (d == 0 ? "" : " + ") +
                times(strides[d], index.find(' ') == std::string::npos ? index : "(" + index + ")");
    }
    e_.out_.line("const int64_t " + place + " = " + offset + ";");
    return condition;
  }

  /// What is read by values that name no element is zero.
  void gathered_input(Width width, std::size_t i) const {
    const std::string condition = declare_place(i);
    const Access& a = op_.inputs[i];
    std::string at = name_in(i) + "[at" + std::to_string(i) + "]";
    if (is_integer(w_.tensor(a.tensor).dtype))
      at = "static_cast<Real>(" + at + ")";
    else if (e_.p_.prelude.bf16)
      at = "get(" + at + ")";
    const bool walks = vector_ >= 0 && input_stride(i, vector_) == 1;
    const std::string zero = width == Width::one ? "Real(0)" : "splat(Real(0))";
    e_.out_.line("const " + type(width) + " x" + std::to_string(i) + " = " + condition + " ? " +
                 taken(width, at, walks) + " : " + zero + ";");
  }

  /// An element, or the vector that begins there; of a loop that it does not walk, the same in all
  /// lanes.
  std::string taken(Width width, const std::string& element, bool walks) const {
    if (width == Width::one) return element;
    if (!walks) return "splat(" + element + ")";
    return width == Width::whole ? "vector_at(&" + element + ")"
                                 : "load_part(&" + element + ", lanes)";
  }
  std::string result(std::size_t o) const {
    return element(n_.writes[o].buffer, output(o).target, name_out(o));
  }
  std::string loaded(Width width, std::size_t o) const { return taken(width, result(o), true); }
  void store(Width width, std::size_t o) const {
    if (width == Width::one)
      e_.out_.line(result(o) + " = " + y(o) + ";");
    else if (width == Width::whole)
      e_.out_.line("store(&" + result(o) + ", " + y(o) + ");");
    else
      e_.out_.line("store_part(&" + result(o) + ", lanes, " + y(o) + ");");
  }

  /// Declares what these expressions read at the point.
  void inputs(Width width, const std::vector<const Expr*>& read) const {
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
      if (std::ranges::none_of(read,
                               [&](const Expr* e) { return reads_input(*e, static_cast<int>(i)); }))
        continue;
      if (is_gather(op_.inputs[i])) {
        gathered_input(width, i);
        continue;
      }
      const std::string outside = inside(op_.inputs[i]);
      const std::string at = element(in(i), op_.inputs[i], name_in(i));
      const bool walks = vector_ >= 0 && stride(op_.inputs[i], in(i), vector_) == 1;
      e_.out_.line(
          "const " + type(width) + " x" + std::to_string(i) + " = " +
          (outside.empty() ? taken(width, at, walks) : outside + " ? " + at + " : Real(0)") + ";");
    }
  }
  /// Of all outputs whose values do not name outputs.
  std::vector<const Expr*> values() const {
    std::vector<const Expr*> all;
    for (std::size_t o = 0; o < n_.writes.size(); ++o)
      if (!names_outputs(output(o).value)) all.push_back(&output(o).value);
    return all;
  }

  int open(bool reductions, int except) const {
    int opened = 0;
    for (std::size_t l = 0; l < op_.loops.size(); ++l) {
      if (static_cast<int>(l) == except || is_reduction(static_cast<int>(l)) != reductions)
        continue;
      const SymRange& r = range_of(static_cast<int>(l));
      e_.out_.open("for (int64_t " + names_[l] + " = " + e_.variables_.text(r.lo) + "; " +
                   names_[l] + " < " + e_.variables_.text(r.hi) + "; ++" + names_[l] + ")");
      ++opened;
    }
    return opened;
  }
  void open_unless(const std::string& condition) const {
    e_.out_.open(condition == "false" ? "" : "if (!(" + condition + "))");
  }
  void close(int opened) const {
    for (; opened > 0; --opened) e_.out_.close();
  }

  /// Runs `body` over the vector loop: whole vectors, then what is left over.
  template <class Body>
  void by_vectors(const Body& body) const {
    const SymRange& r = range_of(vector_);
    const std::string& p = names_[static_cast<std::size_t>(vector_)];
    const std::string high = e_.variables_.text(r.hi);
    const std::int64_t lanes = e_.p_.vector_bytes / e_.p_.element_bytes;
    const Linear size = r.hi - r.lo;
    e_.out_.line("int64_t " + p + " = " + e_.variables_.text(r.lo) + ";");
    if (r.most >= lanes) {
      e_.out_.open("for (; " + p + " + kLanes <= " + high + "; " + p + " += kLanes)");
      body(Width::whole);
      e_.out_.close();
    }
    if (size.is_constant() && size.constant % lanes == 0) return;
    e_.out_.open("if (" + p + " < " + high + ")");
    e_.out_.line("const Lanes lanes = first_lanes(" + high + " - " + p + ");");
    body(Width::part);
    e_.out_.close();
  }

  /// What each output is before this block: rescaled where there is something to rescale.
  void start(Width width) const {
    for (std::size_t o = 0; o < n_.writes.size(); ++o) {
      std::string first = identity(width, output(o));
      if (fresh_[o] == "false")
        first = loaded(width, o);
      else if (fresh_[o] != "true")
        first = "(" + fresh_[o] + ") ? " + first + " : " + loaded(width, o);
      e_.out_.line(type(width) + " " + y(o) + " = " + first + ";");
      if (!runs_) continue;
      e_.out_.line("const " + type(width) + " before" + std::to_string(o) + " = " + y(o) + ";");
      e_.out_.line("(void)before" + std::to_string(o) + ";");
    }
    for (std::size_t o = 0; o < n_.writes.size(); ++o) {
      const auto& by = output(o).rescale;
      if (!by || fresh_[o] == "true") continue;
      open_unless(fresh_[o]);
      inputs(width, {&*by});
      e_.out_.line(y(o) + " *= " + value(width, *by) + ";");
      e_.out_.close();
    }
  }

  /// Outputs that name what others were and are, then all of them stored.
  void finish(Width width) const {
    const auto named = [&](int out, bool before) {
      for (std::size_t o = 0; o < n_.writes.size(); ++o)
        if (n_.writes[o].output == out) return (before ? "before" : "y") + std::to_string(o);
      throw Refused{"operator " + op_.name + " reads an output that it does not write here"};
    };
    for (std::size_t o = 0; o < n_.writes.size(); ++o) {
      if (!names_outputs(output(o).value)) continue;
      inputs(width, {&output(o).value});
      e_.out_.line(
          combined(output(o).combine, y(o), expression(output(o).value, real(width), named)));
    }
    for (std::size_t o = 0; o < n_.writes.size(); ++o) store(width, o);
  }

  void point(Width width) const {
    if (!reduces_) {
      inputs(width, values());
      for (std::size_t o = 0; o < n_.writes.size(); ++o)
        e_.out_.line("const " + type(width) + " " + y(o) + " = " + value(width, output(o).value) +
                     ";");
      return finish(width);
    }
    start(width);
    const int opened = open(true, -1);
    inputs(width, values());
    for (std::size_t o = 0; o < n_.writes.size(); ++o)
      if (!names_outputs(output(o).value))
        e_.out_.line(combined(output(o).combine, y(o), value(width, output(o).value)));
    close(opened);
    finish(width);
  }

  /// Vectors of points.
  void along() const {
    by_vectors([this](Width width) { point(width); });
  }

  /// One point at a time; vectors run along its reduction, and their lanes are joined at its end.
  void across() const {
    start(Width::one);
    const auto part = [](std::size_t o) { return "part" + std::to_string(o); };
    for (std::size_t o = 0; o < n_.writes.size(); ++o)
      if (!names_outputs(output(o).value))
        e_.out_.line("Vector " + part(o) + " = " + identity(Width::whole, output(o)) + ";");
    const int opened = open(true, vector_);
    e_.out_.open("");
    by_vectors([&](Width width) {
      inputs(width, values());
      for (std::size_t o = 0; o < n_.writes.size(); ++o) {
        if (names_outputs(output(o).value)) continue;
        std::string next = value(width, output(o).value);
        if (width == Width::part)
          next = "first_of(lanes, " + next + ", " + identity(width, output(o)) + ")";
        e_.out_.line(combined(output(o).combine, part(o), next));
      }
    });
    e_.out_.close();
    close(opened);
    for (std::size_t o = 0; o < n_.writes.size(); ++o) {
      const char* const joined[] = {"", "sum", "product", "max", "min"};
      const Combine combine = output(o).combine;
      if (!names_outputs(output(o).value))
        e_.out_.line(combined(
            combine, y(o),
            std::string("across_") + joined[static_cast<int>(combine)] + "(" + part(o) + ")"));
    }
    finish(Width::one);
  }

  KernelEmitter& e_;
  const Workload& w_;
  const ScheduleNode& n_;
  const Operator& op_;
  const SymRanges& ranges_;
  std::vector<std::string>
      fresh_;  ///< by output: whether this block of the reductions is the first
  bool reduces_;
  bool runs_ = false;               ///< some output names what another was
  int vector_ = -1;                 ///< the loop that vectors run along
  std::vector<std::string> names_;  // by op.loops
};

void KernelEmitter::point_loops(NodeId id, const SymRanges& ranges) {
  Points(*this, id, ranges).emit();
}

void KernelEmitter::rescale(NodeId id, const SymRanges& ranges) {
  Points(*this, id, ranges).emit_rescaling();
}

}  // namespace tilewright::cpu
