// The text of an operator's points, element by element or a vector at a time: what passes over a
// tile (emit_points.cpp) and what takes another operator's values from its registers
// (emit_followers.cpp) share.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "codegen/common/expression.h"
#include "codegen/cpu/emitter.h"
#include "core/lowering/row_values.h"
#include "core/workload/expr.h"

namespace tilewright::cpu {

enum class Width { one, whole, part };  ///< an element, a vector, the first lanes of one

/// What reads and writes one operator's elements. Names of its arrays end in `suffix`, so that
/// several operators' stand in one scope.
class KernelEmitter::PointText {
 protected:
  static constexpr std::int64_t kFar = -1;
  static constexpr int kInRow = 1000;  ///< numbers of what rows share begin here: no input's

  PointText(KernelEmitter& e, NodeId id, const SymRanges& ranges, std::string suffix = {})
      : e_(e),
        w_(e.p_.workload()),
        id_(id),
        n_(e.k_.node(id)),
        op_(w_.op(n_.op)),
        ranges_(ranges),
        suffix_(std::move(suffix)),
        names_(op_.loops.size()) {
    for (const OutputUse& out : n_.writes)
      fresh_.push_back(e.initialises(n_.op, ranges, out.atomic));
  }

  BufferId in(std::size_t i) const { return buffer_of_input(n_, static_cast<int>(i)); }
  std::string name_in(std::size_t i) const { return "in" + std::to_string(i) + suffix_; }
  std::string name_out(std::size_t o) const { return "out" + std::to_string(o) + suffix_; }
  static std::string y(std::size_t o) { return "y" + std::to_string(o); }
  const Output& output(std::size_t o) const {
    return op_.outputs[static_cast<std::size_t>(n_.writes[o].output)];
  }
  const SymRange& range_of(int l) const { return e_.computed_range(ranges_, n_.op, l); }
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
  /// them, where they may leave the tensor, or where they are not what vectors hold.
  std::int64_t gather_stride(const Access& a, int l) const {
    const LoopId loop = op_.loops[static_cast<std::size_t>(l)];
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      const Affine& index = a.index[d];
      if (index.gathered >= 0 &&
          indexes(op_.inputs[static_cast<std::size_t>(index.gathered)], loop))
        return kFar;
      if (indexes(index, loop) && leaves(a, d)) return kFar;  // not all lanes are there
    }
    const std::int64_t step = loop_stride(a, loop, e_.home_strides(a.tensor));
    return step != 0 && w_.tensor(a.tensor).dtype != e_.p_.prelude.real() ? kFar : step;
  }
  /// How vectors along a loop read an input that lies neither still nor densely within its tensor:
  /// the one dimension that the loop moves, and elements from one lane to the next.
  struct Strip {
    std::size_t dim = 0;
    std::int64_t step = 1;
    bool leaves = false;  ///< some lanes may lie outside the dimension, and are zero
  };
  /// Nothing where the loop does not move the input, or not along its rows by a few elements.
  std::optional<Strip> strip(std::size_t i, int l) const {
    constexpr std::int64_t kMostStep = 8;
    const Access& a = op_.inputs[i];
    const LoopId loop = op_.loops[static_cast<std::size_t>(l)];
    std::optional<Strip> found;
    if (is_gather(a)) return found;
    for (std::size_t d = 0; d < a.index.size(); ++d)
      for (const Term& t : a.index[d].terms) {
        if (t.loop != loop) continue;
        if (found || t.coefficient < 1 || t.coefficient > kMostStep ||
            e_.layouts_[in(i).index()].stride[d] != 1)
          return std::nullopt;
        found = Strip{.dim = d, .step = t.coefficient, .leaves = leaves(a, d)};
      }
    return found;
  }
  bool leaves(const Access& a, std::size_t d) const {
    std::vector<Interval> whole;
    for (LoopId l : op_.loops) whole.push_back({0, w_.loop(l).extent});
    return !contains(Interval{0, w_.tensor(a.tensor).shape[d]}, footprint(op_, a.index[d], whole));
  }

  static std::string type(Width width) { return width == Width::one ? "Real" : "Vector"; }
  static std::string real(Width width) { return width == Width::one ? "Real" : "splat"; }
  static std::string across(Combine combine, const std::string& vector) {
    const char* const joined[] = {"", "sum", "product", "max", "min"};
    return std::string("across_") + joined[static_cast<int>(combine)] + "(" + vector + ")";
  }
  static std::string identity(Width width, const Output& out) {
    return literal(identity_of(out.combine), real(width));
  }

  /// A loop's index as a value; lanes count on along the loop that vectors run along.
  std::string index_value(Width width, LoopId loop) const {
    const auto l = std::ranges::find(op_.loops, loop) - op_.loops.begin();
    const std::string at = "static_cast<Real>(" + names_[static_cast<std::size_t>(l)] + ")";
    if (width == Width::one) return at;
    return (l == vector_ ? "count_from(" : "splat(") + at + ")";
  }
  std::string value(Width width, const Expr& e,
                    const std::function<std::string(int, bool)>& of_output = {}) const {
    const auto of_index = [&](LoopId loop) { return index_value(width, loop); };
    return expression(of_row(width, e), real(width), of_index, of_output);
  }

  /// Declares what of these expressions is the same along the row of vectors that begins here; it
  /// is known to `inputs` and `value` of vectors from here on. `values`: as of `inputs`.
  void begin_values(const std::vector<const Expr*>& read,
                    const std::vector<std::string>& values = {}) {
    in_row_.clear();
    int number = kInRow * (static_cast<int>(id_.value) + 1);
    for (const Expr* e : read) {
      Expr left = *e;
      if (take_values(left, values, number)) in_row_.emplace(e, std::move(left));
    }
  }
  bool take_values(Expr& e, const std::vector<std::string>& values, int& number) const {
    if (e.kind != Expr::Kind::call) return false;
    const bool whole = is_of_row(e, values);
    if (!whole) {
      bool any = false;
      for (Expr& a : e.args) any = take_values(a, values, number) || any;
      return any;
    }
    const std::string name = "x" + std::to_string(number);
    e_.out_.line("Vector " + name + ";");
    e_.out_.open("");
    inputs(Width::one, {&e});
    e_.out_.line(name + " = splat(" + value(Width::one, e) + ");");
    e_.out_.close();
    Expr input;
    input.kind = Expr::Kind::input, input.input = number++;
    e = std::move(input);
    return true;
  }
  /// None of what it reads is in registers, may lie outside, or moves with a reduction.
  bool is_of_row(const Expr& e, const std::vector<std::string>& values) const {
    if (vector_ < 0 || !lowering::is_of_row(op_, e, op_.loops[static_cast<std::size_t>(vector_)]))
      return false;
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
      const Access& a = op_.inputs[i];
      if (!reads_input(e, static_cast<int>(i))) continue;
      if ((!values.empty() && !values[i].empty()) || can_leave(w_, op_, a)) return false;
      for (int l = 0; l < static_cast<int>(op_.loops.size()); ++l)
        if (is_reduction(l) && indexes(a, op_.loops[static_cast<std::size_t>(l)])) return false;
    }
    return true;
  }
  const Expr& of_row(Width width, const Expr& e) const {
    const auto known = width == Width::one ? in_row_.end() : in_row_.find(&e);
    return known == in_row_.end() ? e : known->second;
  }

  /// Declares an array and what to add to indices times strides: where its held tile begins.
  void array(BufferId b, const std::string& name, bool read_only) const {
    const auto& stride = e_.layouts_[b.index()].stride;
    if (e_.is_plain(b)) {
      const bool bytes = e_.lies_in_bytes(b);
      e_.p_.prelude.vectors_of_bytes = e_.p_.prelude.vectors_of_bytes || bytes;
      e_.out_.line(std::string(read_only ? "const " : "") + e_.type_at_home(b) + "* const " + name +
                   " = " + e_.element_address(b, std::vector<std::string>(stride.size(), "0")) +
                   ";");
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

  /// Declares the array of an input; what is gathered is read where its tensor lies.
  void input_array(std::size_t i) const {
    const Access& a = op_.inputs[i];
    if (!is_gather(a)) return array(in(i), name_in(i), true);
    const std::string type = "const " + e_.home_type(a.tensor) + "*";
    e_.out_.line(type + " const " + name_in(i) + " = static_cast<" + type + ">(tensors[" +
                 std::to_string(a.tensor.value) + "]);");
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

  /// The condition under which the access lies within its tensor, all dimensions but one; empty:
  /// always.
  std::string inside(const Access& a, std::optional<std::size_t> except = std::nullopt) const {
    std::string text;
    if (!can_leave(w_, op_, a)) return text;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      if (d == except || !leaves(a, d)) continue;
      if (const auto known = inside_segment(a.index[d], w_.tensor(a.tensor).shape[d])) {
        if (!*known) return "false";
        continue;
      }
      const std::string index = index_text(a.index[d]);
      text += (text.empty() ? "" : " && ") + index + " >= 0 && " + index + " < " +
              std::to_string(w_.tensor(a.tensor).shape[d]);
    }
    return text;
  }

  /// Whether an index stays within a dimension of that extent, where the points are a segment of a
  /// loop; nothing where that does not say.
  std::optional<bool> inside_segment(const Affine& index, std::int64_t extent) const {
    if (segment_.loop < 0 || index.terms.size() != 1 || index.terms[0].coefficient != 1 ||
        index.terms[0].loop != op_.loops[static_cast<std::size_t>(segment_.loop)])
      return std::nullopt;
    const std::int64_t first = segment_.first + index.offset, end = segment_.end + index.offset;
    if (first >= 0 && end <= extent) return true;
    if (end <= 0 || first >= extent) return false;
    return std::nullopt;
  }

  /// Declares where the element of a gather is, and returns the condition that it is there.
  std::string declare_place(std::size_t i) const {
    const Access& a = op_.inputs[i];
    const std::vector<std::int64_t> strides = e_.home_strides(a.tensor);
    const std::string place = "at" + std::to_string(i);
    std::string offset, condition = inside(a);
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
    if (w_.tensor(a.tensor).dtype != e_.p_.prelude.real()) at = "get(" + at + ")";
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
  bool past_caches(std::size_t o) const { return e_.past_caches(n_.writes[o].buffer); }
  /// Where a row is written past the caches, if its vectors may begin anywhere; else empty.
  std::string shifted_row(std::size_t o) const {
    if (!past_caches(o)) return "";
    const std::int64_t lanes = e_.p_.vector_bytes / e_.p_.element_bytes;
    const auto& strides = e_.layouts_[n_.writes[o].buffer.index()].stride;
    const Linear& first = range_of(vector_).lo;
    const bool whole =
        std::ranges::all_of(strides, [&](auto s) { return s == 1 || s % lanes == 0; });
    return whole && first.is_constant() && first.constant % lanes == 0 ? "" : "&" + result(o);
  }
  void store(Width width, std::size_t o) const {
    if (width == Width::one && e_.lies_in_bytes(n_.writes[o].buffer))
      e_.out_.line("put(" + result(o) + ", " + y(o) + ");");
    else if (width == Width::one)
      e_.out_.line(result(o) + " = " + y(o) + ";");
    else if (width == Width::whole)
      e_.out_.line((past_caches(o) ? "store_past(&" : "store(&") + result(o) + ", " + y(o) + ");");
    else
      e_.out_.line("store_part(&" + result(o) + ", lanes, " + y(o) + ");");
  }

  /// Declares what these expressions read at the point. `values`: by input, what is in a register.
  void inputs(Width width, const std::vector<const Expr*>& read,
              const std::vector<std::string>& values = {}) const {
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
      if (std::ranges::none_of(read, [&](const Expr* e) {
            return reads_input(of_row(width, *e), static_cast<int>(i));
          }))
        continue;
      if (!values.empty() && !values[i].empty()) {
        e_.out_.line("const " + type(width) + " x" + std::to_string(i) + " = " + values[i] + ";");
        continue;
      }
      if (is_gather(op_.inputs[i])) {
        gathered_input(width, i);
        continue;
      }
      const Access& a = op_.inputs[i];
      const std::string at = element(in(i), a, name_in(i));
      const auto along = width == Width::one ? std::nullopt : strip(i, vector_);
      const std::string within = along ? inside(a, along->dim) : inside(a);
      const std::string zero = width == Width::one ? "Real(0)" : "splat(Real(0))";
      // Dimensions that a loop moves against each other may go from one element to the next.
      const bool walks = width != Width::one && input_stride(i, vector_) == 1;
      const std::string there = along ? taken_of(*along, width, at, a) : taken(width, at, walks);
      e_.out_.line("const " + type(width) + " x" + std::to_string(i) + " = " +
                   (within.empty() ? there : within + " ? " + there + " : " + zero) + ";");
    }
  }

  /// The vector of a strip that begins with that element.
  std::string taken_of(const Strip& s, Width width, const std::string& at, const Access& a) const {
    const std::string step = std::to_string(s.step);
    if (s.leaves && !middle_)
      return "between<" + step + ">(&" + at + ", " + index_text(a.index[s.dim]) + ", " +
             std::to_string(w_.tensor(a.tensor).shape[s.dim]) + ", " +
             (width == Width::whole ? "kLanes" : "count") + ")";
    if (s.step == 1) return taken(width, at, true);
    if (width == Width::whole) return "every<" + step + ">(&" + at + ")";
    return "between<" + step + ">(&" + at + ", 0, " + step + " * kLanes, count)";
  }

  KernelEmitter& e_;
  const Workload& w_;
  const NodeId id_;
  const ScheduleNode& n_;
  const Operator& op_;
  const SymRanges& ranges_;
  const std::string suffix_;
  /// By output: whether this block of the reductions is the first.
  std::vector<std::string> fresh_;
  int vector_ = -1;  ///< the loop that vectors run along
  /// Indices of a loop that the points are limited to; -1: of none.
  struct Segment {
    int loop = -1;
    std::int64_t first = 0, end = 0;
  };
  Segment segment_ = {};
  std::map<const Expr*, Expr> in_row_;  ///< without what the row shares
  mutable bool middle_ = false;         ///< no lane of any strip is outside its tensor
  std::vector<std::string> names_;      ///< by op.loops
};

}  // namespace tilewright::cpu
