// Two matrix products with operators between them by Hopper's warpgroups: the template of
// device/tilewright_pairs.h with the plan's tile, and a struct of the plan's operators, on the
// values that a thread has in registers.
#include "codegen/cuda/emit_pairs.h"

#include <algorithm>
#include <cmath>

#include "codegen/common/expression.h"
#include "codegen/cuda/emit_warpgroups.h"
#include "core/workload/text.h"

namespace tilewright::cuda {
namespace {

using lowering::EpilogueRead;
using lowering::PairOperator;
using lowering::PairValue;
using lowering::WarpgroupPair;
using Place = PairValue::Place;

constexpr int kSpareOfFirst = 16;  // registers; ptxas spills some of the largest tiles with them

std::string literal_text(double value) {
  if (std::isinf(value)) return value > 0 ? "kInfinity" : "-kInfinity";
  return codegen::literal(value, "float");
}

/// The struct of operators. Elements of a tile: inner (middle) and sums (columns), other arrays
/// beside them; values of rows are members, two each.
class OperatorsText {
 public:
  OperatorsText(const Workload& w, const WarpgroupPair& p) : w_(w), p_(p) {
    for (const PairValue& v : p.values)
      names_.push_back(v.place != Place::row ? array(v.place, v.slot)
                                             : identifier("row_", w.tensor(v.tensor).name));
  }

  std::string text(const std::string& name) {
    out_.open("struct " + name);
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (p_.values[i].place == Place::row) out_.line("float " + names_[i] + "[2];");
    for (const TensorId t : p_.row_results) out_.line("float* " + home(t) + ";");
    for (const EpilogueRead& r : p_.reads) {
      out_.line("const " + type_of(r) + "* " + home(r.tensor) + ";");
      if (r.by_column == 0) {
        out_.line("float " + held(r) + "[" + rows_of(r) + "];");
        continue;
      }
      declare(r, Place::middle);
      if (r.end > 0) out_.line("int " + end(r) + ";");
    }
    for (const EpilogueRead& r : p_.after_reads)
      out_.line("const " + type_of(r) + "* " + home(r.tensor) + ";");
    mask();
    begin(), open(), read(), step(), rescale(), finish();
    out_.end();
    out_.line("};");
    return out_.text();
  }

 private:
  static std::string array(Place place, int slot) {
    const std::string first = place == Place::middle ? "inner" : "sums";
    return slot == 0 ? first : first + std::to_string(slot);
  }
  std::string home(TensorId t) const { return identifier("home_", w_.tensor(t).name); }
  const std::string& name(TensorId t) const {
    return names_[static_cast<std::size_t>(p_.find(t) - p_.values.data())];
  }
  static std::string yes(bool b) { return b ? "true" : "false"; }
  std::string type_of(const EpilogueRead& r) const {
    return element_type(w_.tensor(r.tensor).dtype);
  }
  std::string rows_of(const EpilogueRead& r) const { return p_.by_row(r) ? "2" : "1"; }
  std::string from(const EpilogueRead& r) const {
    return identifier("from_", w_.tensor(r.tensor).name);
  }
  /// Columns of the tile's chunk that there are.
  std::string end(const EpilogueRead& r) const {
    return identifier("end_", w_.tensor(r.tensor).name);
  }
  std::string held(const EpilogueRead& r) const {
    return identifier("held_", w_.tensor(r.tensor).name);
  }
  std::string size(Place place) const {
    return std::to_string((place == Place::middle ? p_.tile_middle : p_.tile_columns) / 2);
  }
  /// A thread's element, or its row's value.
  std::string at(TensorId t) const {
    if (const EpilogueRead* const r = p_.read(t)) {
      if (r->by_column == 0) return held(*r) + (p_.by_row(*r) ? "[h]" : "[0]");
      const std::string wide = std::to_string(eights(place_of(*r))),
                        shared = "[(i / 4 + h * " + wide + ") % (" + wide + " + 1)]";
      const std::string x = held(*r) +
                            (p_.rows_share(*r) ? shared
                             : p_.by_row(*r)   ? std::string("[i / 2]")
                                               : std::string("[i / 4]")) +
                            ".at(i % 2)";
      if (r->end == 0) return x;
      return "Masked && at.column + i / 4 * 8 + i % 2 >= " + end(*r) + " ? 0.0f : " + x;
    }
    return name(t) + (p_.find(t)->place == Place::row ? "[h]" : "[i]");
  }

  /// Columns of rows low to high outside of which the mask leaves nothing, and in which it leaves
  /// all.
  void mask() {
    out_.line("static constexpr bool kMasked = " + yes(!p_.edges.empty()) +
              ", kLastFirst = " + yes(!p_.edges.empty() && p_.last_first()) + ";");
    out_.line("static constexpr bool kGuarded = " + yes(guarded()) + ";");
    if (!p_.edges.empty()) columns("needed", p_.edges, true), columns("whole", p_.edges, false);
    if (guarded()) columns("guarded", p_.guards, false);
  }
  /// Whether some turns evaluate what the others do not have to.
  bool guarded() const { return !p_.guards.empty() || p_.read_ends(); }
  void columns(const std::string& named, const std::vector<lowering::MaskEdge>& edges,
               bool needed) {
    out_.open("static TW_MEMBER PairColumns " + named + "(int low, int high, int all)");
    out_.line("(void)low, (void)high;");
    std::string from = "0", to = "all";
    for (const EpilogueRead& r : p_.reads)
      if (named == "guarded" && r.end > 0) to = "least(" + to + ", " + std::to_string(r.end) + ")";
    for (const lowering::MaskEdge& m : edges) {
      const bool high = (m.by_row > 0) == needed;
      // A tile of several heads has rows from the first to the last of each.
      const std::string row = !p_.joined.valid() ? (high ? "high" : "low")
                              : high             ? std::to_string(p_.inner_rows - 1)
                                                 : "0";
      const std::string here =
          std::to_string(m.by_row) + " * " + row + " + " + std::to_string(m.offset);
      const std::string by = std::to_string(std::abs(m.by_column));
      if (m.by_column < 0)
        to = "least(" + to + ", floor_divide(" + here + ", " + by + ") + 1)";
      else
        from = "most(" + from + ", -floor_divide(" + here + ", " + by + "))";
    }
    out_.line("return {" + from + ", " + to + "};");
    out_.close();
  }

  void begin() {
    out_.comment("What sums over rows start from.");
    out_.open("TW_MEMBER void begin()");
    for (const PairOperator& o : p_.between)
      if (!w_.reduction_loops(o.op).empty())
        for (const Output& out : w_.op(o.op).outputs)
          if (out.combine != Combine::assign) {
            const std::string& n = name(out.target.tensor);
            out_.line(n + "[0] = " + n + "[1] = " + literal_text(identity_of(out.combine)) + ";");
          }
    out_.close();
  }

  /// Whose columns a read has.
  Place place_of(const EpilogueRead& r) const {
    return std::ranges::find(p_.reads, r.tensor, &EpilogueRead::tensor) != p_.reads.end()
               ? Place::middle
               : Place::columns;
  }
  /// Eights of a thread's columns.
  int eights(Place place) const {
    return (place == Place::middle ? p_.tile_middle : p_.tile_columns) / 8;
  }
  /// What a thread has of a read: where its rows begin, and two neighbours of each eight columns.
  /// Where its two rows read the same along diagonals, those of the first, and of the second row
  /// its first ones.
  void declare(const EpilogueRead& r, Place place) {
    const int wide = eights(place);
    out_.line("const " + type_of(r) + "* " + from(r) + "[" + rows_of(r) + "];");
    out_.line("Neighbours<" + yes(r.pairs) + ", " + type_of(r) + "> " + held(r) + "[" +
              std::to_string(p_.rows_share(r) ? wide + 1
                             : p_.by_row(r)   ? 2 * wide
                                              : wide) +
              "];");
  }

  /// Where the tile's rows are at home, and what is read once.
  void open() {
    out_.comment("A tile's rows at home; what they have one number of is read here.");
    out_.open("TW_MEMBER void open(const PairPoint& at)");
    out_.line("(void)at;");
    for (const EpilogueRead& r : p_.reads) find_rows(r);
    out_.close();
  }
  void find_rows(const EpilogueRead& r) {
    out_.open("TW_UNROLL for (int h = 0; h < " + rows_of(r) + "; ++h)");
    const std::string last = std::to_string(p_.rows - 1);
    if (p_.by_row(r))
      out_.line("const int row = " +
                (p_.rows % p_.tile_rows() == 0 ? "at.row + h * 8"
                                               : "least(at.row + h * 8, " + last + ")") +
                ";");
    std::string place = home(r.tensor);
    const auto add = [&](std::int64_t by, const std::string& index) {
      if (by != 0) place += " + i64(" + index + ") * " + std::to_string(by);
    };
    const std::string inner = std::to_string(p_.inner_rows);
    const bool joined = p_.joined.valid();
    add(r.by_row, joined ? "row % " + inner : "row");
    if (joined) add(r.by_product.back(), "row / " + inner);
    std::int64_t below = 1;
    for (std::size_t i = p_.products.size(); i-- > 0;) {
      const std::int64_t extent = w_.loop(p_.products[i]).extent;
      const std::string index =
          "at.product / " + std::to_string(below) + " % " + std::to_string(extent);
      add(r.by_product[i], index);
      if (r.end > 0 && r.chunk == i)
        out_.line(end(r) + " = " + std::to_string(r.end) + " - " + index + " * " +
                  std::to_string(p_.middle) + ";");
      below *= extent;
    }
    if (r.offset != 0) place += " + " + std::to_string(r.offset);
    if (r.by_column != 0)
      out_.line(from(r) + "[h] = " + place + ";");
    else
      out_.line(held(r) + "[h] = to_float(read_after_launch(" + place + ", at.column % 8 == 0 && " +
                counts(r, "at.row + h * 8") + "));");
    out_.close();
  }
  /// Of rows that read the same elements the first one counts; one that does not exist never does.
  std::string counts(const EpilogueRead& r, const std::string& row) const {
    const bool joined_rows = p_.joined.valid();
    if (r.diagonal && !joined_rows)
      return "(" + row + ") % " + std::to_string(p_.tile_rows()) + " == 0";
    if (r.diagonal) {
      const std::string first = "(" + row + ") % " + std::to_string(p_.inner_rows) + " == 0";
      return first + " && " + exists(r, row);
    }
    if (!p_.by_row(r)) return "at.row % " + std::to_string(p_.tile_rows()) + " == 0";
    const std::string inner = std::to_string(p_.inner_rows), all = std::to_string(p_.rows);
    if (!p_.joined.valid() || (r.by_row != 0 && r.by_product.back() != 0)) return row + " < " + all;
    if (r.by_row != 0) return row + " < " + inner;
    return row + " < " + all + " && (" + row + ") % " + inner + " == 0";
  }

  /// Of reads along diagonals: a row that there is, and whose elements no row of another product
  /// reads.
  std::string exists(const EpilogueRead& r, const std::string& row) const {
    return row + " < " +
           std::to_string(p_.joined.valid() && r.by_product.back() == 0 ? p_.inner_rows : p_.rows);
  }

  /// Elements that a turn reads at home, before its product is waited for.
  void read() {
    const bool any =
        std::ranges::any_of(p_.reads, [](const EpilogueRead& r) { return r.by_column != 0; });
    out_.line("static constexpr bool kReads = " + yes(any) + ";");
    out_.comment("What a turn reads at home.");
    out_.open("TW_MEMBER void read(const PairPoint& at)");
    out_.line("(void)at;");
    for (const EpilogueRead& r : p_.reads)
      if (r.by_column != 0) read_elements(r, Place::middle);
    out_.close();
  }
  void read_elements(const EpilogueRead& r, Place place) {
    const int wide = eights(place);
    const bool ragged = place == Place::middle ? p_.ragged() : p_.columns % p_.tile_columns != 0,
               share = p_.rows_share(r), rows = p_.by_row(r);
    out_.open("TW_UNROLL for (int i = 0; i < " +
              std::to_string(share  ? wide + 1
                             : rows ? 2 * wide
                                    : wide) +
              "; ++i)");
    const std::string all = std::to_string(wide),
                      h = share  ? "i / " + all
                          : rows ? std::string("i % 2")
                                 : std::string("0"),
                      eight = share  ? "i % " + all
                              : rows ? std::string("i / 2")
                                     : std::string("i"),
                      row = "at.row" + (rows ? " + " + h + " * 8" : "");
    out_.line(held(r) + "[i].template read<" + yes(ragged || r.end > 0) + ">(" + from(r) + "[" + h +
              "], at.column + " + eight + " * 8, " + (r.end > 0 ? end(r) : "at.columns") + ", " +
              std::to_string(r.by_column) + ", " + counts(r, row) + ", " +
              (r.diagonal ? "at.column % 8 == 0 && " + eight + " == 0 && " + exists(r, row)
                          : std::string("false")) +
              ");");
    out_.close();
  }

  void step() {
    out_.comment(
        "One turn. Edge: some columns may lie past the end. Masked: the mask may touch some.");
    out_.line("template <bool Edge, bool Masked>");
    out_.open("TW_MEMBER void step(float (&inner)[" + size(Place::middle) +
              "], const PairPoint& at)");
    out_.line("(void)at;");
    extra_arrays(Place::middle, p_.middle_arrays);
    for (const PairOperator& o : p_.between) compute(o, false);
    const Operator& second = w_.op(p_.second_op);
    std::string operand;
    for (const Access& a : second.inputs)
      if (const PairValue* v = p_.find(a.tensor); v != nullptr && v->place == Place::middle)
        operand = at(a.tensor);
    if (operand != "inner[i]") {
      open_elements(Place::middle, false);
      out_.line("inner[i] = " + operand + ";");
      out_.close();
    }
    out_.open("if (Edge)");
    out_.comment("Such columns must add nothing, whatever the operators made of them.");
    open_elements(Place::middle, true);
    out_.line("if (past) inner[i] = 0.0f;");
    out_.close();
    out_.close();
    out_.close();
  }

  void rescale() {
    out_.comment("The second product's sums so far.");
    out_.open("TW_MEMBER void rescale(float (&sums)[" + size(Place::columns) + "])");
    const Operator& second = w_.op(p_.second_op);
    if (const auto& factor = second.outputs.front().rescale) {
      out_.line("float factor[2];");
      out_.open("TW_UNROLL for (int h = 0; h < 2; ++h)");
      define_inputs(second, true);
      out_.line("factor[h] = " + expression(*factor) + ";");
      out_.close();
      out_.comment("After the first turns few do: no row of the warp has a new maximum.");
      out_.line("if (tw::ballot(factor[0] != 1.0f || factor[1] != 1.0f) == 0) return;");
      out_.line("TW_UNROLL for (int i = 0; i < " + size(Place::columns) +
                "; ++i) sums[i] *= factor[i / 2 % 2];");
    } else {
      out_.line("(void)sums;");
    }
    out_.close();
  }

  void finish() {
    out_.comment("After the last turn.");
    out_.open("TW_MEMBER void finish(float (&sums)[" + size(Place::columns) +
              "], const PairPoint& at)");
    out_.line("(void)at;");
    for (const PairValue& v : p_.values)
      if (v.parts) {
        out_.open("TW_UNROLL for (int h = 0; h < 2; ++h)");
        join(at(v.tensor), v.combine);
        out_.close();
      }
    extra_arrays(Place::columns, p_.column_arrays);
    out_.line("[[maybe_unused]] constexpr bool Edge = " +
              std::string(p_.columns % p_.tile_columns != 0 ? "true" : "false") + ";");
    for (const EpilogueRead& r : p_.after_reads) {
      if (r.by_column != 0)
        declare(r, Place::columns);
      else
        out_.line("float " + held(r) + "[" + rows_of(r) + "];");
      find_rows(r);
      if (r.by_column != 0) read_elements(r, Place::columns);
    }
    for (const PairOperator& o : p_.after) compute(o, true);
    if (!p_.row_results.empty()) {
      const std::string rows = std::to_string(p_.rows);
      out_.comment("Of the four threads of a row the first one stores its numbers.");
      out_.open("TW_UNROLL for (int h = 0; h < 2; ++h)");
      out_.open("if (at.column == 0 && at.row + h * 8 < " + rows + ")");
      out_.line("const i64 place = i64(at.product) * " + rows + " + at.row + h * 8;");
      for (const TensorId t : p_.row_results)
        out_.line("store_home(" + home(t) + " + place, " + at(t) + ");");
      out_.close();
      out_.close();
    }
    if (const std::string result = at(p_.result); result != "sums[i]") {
      open_elements(Place::columns, false);
      out_.line("sums[i] = " + result + ";");
      out_.close();
    }
    out_.close();
  }

  void extra_arrays(Place place, int count) {
    for (int i = 1; i < count; ++i)
      out_.line("float " + array(place, i) + "[" + size(place) + "];");
  }

  /// The four threads of a row have parts each.
  void join(const std::string& value, Combine c) {
    for (const char* lane : {"1", "2"})
      out_.line(codegen::combined(c, value, "shuffle_xor(" + value + ", " + lane + ")"));
  }

  /// `i`: element, `h`: which of the two rows, `past`: beyond the last column.
  void open_elements(Place place, bool edge) {
    out_.open("TW_UNROLL for (int i = 0; i < " + size(place) + "; ++i)");
    out_.line("[[maybe_unused]] const int h = i / 2 % 2;");
    if (edge) out_.line("const bool past = Edge && at.column + i / 4 * 8 + i % 2 >= at.columns;");
  }

  std::string expression(const Expr& e) const {
    // The exponential of a difference has an instruction less where it is taken as one.
    if (e.kind == Expr::Kind::call && e.function == "exp" && e.args[0].kind == Expr::Kind::call &&
        e.args[0].function == "sub")
      return "exp_of_difference(" + expression(e.args[0].args[0]) + ", " +
             expression(e.args[0].args[1]) +
             (factor_ != 1 ? ", " + codegen::literal(factor_, "float") : "") + ")";
    if (e.kind == Expr::Kind::call) {
      std::string text = "f_" + e.function + "(";
      for (std::size_t i = 0; i < e.args.size(); ++i)
        text += (i == 0 ? "" : ", ") + expression(e.args[i]);
      text += ")";
      if (std::ranges::find(p_.guarded, e) != p_.guarded.end())
        return "(Masked ? " + text + (p_.guard(e)->value ? " : 1.0f)" : " : 0.0f)");
      const auto within = lowering::value_within(p_.edges, e, p_.rows_loop, p_.middle_loop);
      return within ? "(Masked ? " + text + (*within ? " : 1.0f)" : " : 0.0f)") : text;
    }
    const auto of_index = [&](LoopId loop) -> std::string {
      if (p_.joined.valid() && (loop == p_.rows_loop || loop == p_.joined))
        return "float((at.row + h * 8) " + std::string(loop == p_.joined ? "/ " : "% ") +
               std::to_string(p_.inner_rows) + ")";
      if (loop == p_.rows_loop) return "(float(at.row) + float(h * 8))";
      // Of indices below 2^24 the sum is exact, and needs no conversion for each element.
      if (loop == p_.middle_loop || loop == p_.columns_loop)
        return "(float(at.column) + float(i / 4 * 8 + i % 2))";
      std::int64_t below = 1;
      for (std::size_t i = p_.products.size(); i-- > 0 && p_.products[i] != loop;)
        below *= w_.loop(p_.products[i]).extent;
      return "float(at.product / " + std::to_string(below) + " % " +
             std::to_string(w_.loop(loop).extent) + ")";
    };
    const auto of_output = [&](int output, bool before) {
      return (before ? "before" : "now") + std::to_string(output);
    };
    return codegen::expression(e, "float", of_index, of_output);
  }

  bool has(TensorId t) const { return p_.find(t) != nullptr || p_.read(t) != nullptr; }
  bool once_a_row(TensorId t) const {
    const EpilogueRead* const r = p_.read(t);
    return r != nullptr ? r->by_column == 0 : p_.find(t)->place == Place::row;
  }
  /// Inputs as x0, x1, ...; with `rows` those alone that have one value a row.
  void define_inputs(const Operator& op, bool rows = false) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      if (const TensorId t = op.inputs[i].tensor; has(t) && (!rows || once_a_row(t)))
        out_.line("[[maybe_unused]] const float x" + std::to_string(i) + " = " + at(t) + ";");
  }

  /// Of elements that are a number times what lies there, the number.
  double factor_of(const Operator& op) const {
    for (const Access& a : op.inputs)
      if (const PairValue* v = p_.find(a.tensor); v != nullptr && v->factor != 1) return v->factor;
    return 1;
  }

  void compute(const PairOperator& o, bool after) {
    const Operator& op = w_.op(o.op);
    out_.comment("C." + to_text(w_, o.op) + (o.scales ? ", in what reads it" : ""));
    factor_ = factor_of(op);
    if (o.scales) return pass_on(op);
    if (!w_.reduction_loops(o.op).empty()) return reduce(op, o.domain, after);
    if (o.domain == Place::row)
      out_.open("TW_UNROLL for (int h = 0; h < 2; ++h)");
    else
      open_elements(o.domain, false);
    define_inputs(op);
    for (std::size_t i = 0; i < op.outputs.size(); ++i)
      out_.line("const float y" + std::to_string(i) + " = " + expression(op.outputs[i].value) +
                ";");
    for (std::size_t i = 0; i < op.outputs.size(); ++i)
      out_.line(at(op.outputs[i].target.tensor) + " = y" + std::to_string(i) + ";");
    out_.close();
  }

  /// Elements that differ from those that the operator reads by their factor alone.
  void pass_on(const Operator& op) {
    const std::string to = at(op.outputs.front().target.tensor);
    for (const Access& a : op.inputs) {
      const std::string from = at(a.tensor);
      if (from == to || p_.find(a.tensor)->place != Place::middle) continue;
      open_elements(Place::middle, false);
      out_.line(to + " = " + from + ";");
      out_.close();
    }
  }

  /// Each thread four parts, of its two rows and every other column, so that few instructions wait
  /// for one another.
  void reduce(const Operator& op, Place domain, bool after) {
    out_.open("");
    const auto each = [&](const auto& what) {
      for (std::size_t i = 0; i < op.outputs.size(); ++i)
        if (op.outputs[i].combine != Combine::assign) what(op.outputs[i], std::to_string(i));
    };
    // Parts begin with the first four elements: ptxas does not know that they are what a sum or a
    // maximum with the neutral element is. It takes a few registers more.
    // Where some elements are past an end or masked it gained nothing.
    const bool first = p_.spare >= kSpareOfFirst && !p_.ragged() && p_.edges.empty() && !guarded();
    each([&](const Output& o, const std::string& n) {
      const std::string start = literal_text(identity_of(o.combine));
      out_.line("float part" + n + "[4]" +
                (first ? "" : " = {" + start + ", " + start + ", " + start + ", " + start + "}") +
                ";");
    });
    open_elements(domain, true);
    define_inputs(op);
    each([&](const Output& o, const std::string& n) {
      const std::string part = "part" + n + "[i % 4]",
                        value = expression(*lowering::bound_of(o).of);
      if (first)
        out_.line("if (i < 4) " + part + " = past ? " + literal_text(identity_of(o.combine)) +
                  " : " + value + ";");
      out_.line((first ? "else if (!past) " : "if (!past) ") +
                codegen::combined(o.combine, part, value));
    });
    out_.close();
    out_.open("TW_UNROLL for (int h = 0; h < 2; ++h)");
    define_inputs(op, true);
    each([&](const Output& o, const std::string& n) {
      const PairValue& v = *p_.find(o.target.tensor);
      const std::string part = "part" + n + "[h * 2]";
      out_.line(codegen::combined(o.combine, part, "part" + n + "[h * 2 + 1]"));
      if (!v.parts) join(part, o.combine);
      if (factor_ != 1) out_.line(part + " *= " + codegen::literal(factor_, "float") + ";");
      const std::string row = at(v.tensor);
      if (after) out_.line(row + " = " + literal_text(identity_of(o.combine)) + ";");
      out_.line("[[maybe_unused]] const float before" + n + " = " + row + ";");
      out_.line("float now" + n + " = before" + n +
                (o.rescale ? " * " + expression(*o.rescale) : "") + ";");
      out_.line(codegen::combined(o.combine, "now" + n, part));
      if (const auto bound = lowering::bound_of(o).bound)
        out_.line(codegen::combined(o.combine, "now" + n, literal_text(*bound)));
      out_.line(row + " = now" + n + ";");
    });
    for (const Output& o : op.outputs)
      if (o.combine == Combine::assign)
        out_.line(at(o.target.tensor) + " = " + expression(o.value) + ";");
    out_.close();
    out_.close();
  }

  const Workload& w_;
  const WarpgroupPair& p_;
  std::vector<std::string> names_;
  double factor_ = 1;  ///< of the elements that the operator reads
  Lines out_{0};
};

}  // namespace

KernelText emit_pair(Program& p, int index, const WarpgroupPair& pair) {
  const Workload& w = p.workload();
  const auto name = [&](TensorId t) { return identifier("", w.tensor(t).name); };
  const auto yes = [](bool b) { return b ? ", true" : ", false"; };
  const auto number = [](std::int64_t n) { return ", " + std::to_string(n); };
  KernelText text;
  Launch launch{.symbol = p.options.prefix + "_" + std::to_string(index),
                .tensors = {pair.result},
                .maps = pair.maps,
                .blocks = pair.grid,
                .threads = pair.threads(),
                .shared_bytes = pair.shared_bytes,
                .early = true};
  launch.tensors.insert(launch.tensors.end(), pair.row_results.begin(), pair.row_results.end());
  const std::string out = element_type(w.tensor(pair.result).dtype),
                    operators = "Operators_" + launch.symbol;
  std::vector<EpilogueRead> reads = pair.reads;
  reads.insert(reads.end(), pair.after_reads.begin(), pair.after_reads.end());
  std::string list = home_parameters(p, launch, {.reads = reads}).list;
  for (const lowering::BoxMap& m : pair.maps) {
    list += ", TW_TENSOR_MAP(" + name(m.tensor) + "_map)";
    p.needed[m.tensor.index()] = true;
  }
  const auto of = [](const lowering::MatrixAccess& m) {
    return ", {" + std::to_string(m.divide) + ", " + std::to_string(m.modulo) + "}";
  };
  std::string given;
  std::vector<TensorId> homes = pair.row_results;
  for (const EpilogueRead& r : reads) homes.push_back(r.tensor);
  if (!homes.empty()) given = "  " + operators + " given;\n";
  for (const TensorId t : homes)
    given += "  given." + identifier("home_", w.tensor(t).name) + " = " + home_of(w, t) + ";\n";
  text.text = OperatorsText(w, pair).text(operators) +
              "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(launch.threads) +
              number(pair.resident) + ") " + launch.symbol + "(" + list +
              ") {\n  TW_SHARED(memory);\n" + given + "  using Pair = WarpgroupPair<" +
              element_type(pair.operand) + ", " + out + ", " + operators + number(pair.groups) +
              number(pair.tile_middle) + number(pair.tile_columns) + number(pair.depth) +
              number(pair.stages) + yes(pair.left_across) + yes(pair.right_across) +
              yes(pair.second_across) + yes(pair.ragged()) + yes(pair.boxed) + number(pair.vector) +
              ">;\n  Pair::run(memory, " + name(pair.left) + "_map, " + name(pair.right) +
              "_map, " + name(pair.second) + "_map, " + name(pair.boxed ? pair.result : pair.left) +
              "_map, " + home_of(w, pair.result) + number(pair.of_result.outer) +
              number(pair.of_result.apart) + ",\n            {" + std::to_string(pair.rows) +
              number(pair.middle) + number(pair.columns) + number(pair.count) + of(pair.of_left) +
              of(pair.of_right) + of(pair.of_second) + of(pair.of_result) + number(pair.section) +
              of({.divide = pair.chunk_divide, .modulo = pair.chunk_modulo}) +
              number(pair.chunk_step) + "}" + (homes.empty() ? "" : ", given") + ");\n}\n";
  text.launches.push_back(std::move(launch));
  const std::string level = level_of_tiles(p, index);
  const auto shared = [&](TensorId t, int stages, std::int64_t bytes) {
    text.tiles.push_back({w.tensor(t).name, level, "shared", stages, stages * bytes,
                          "boxes that the TMA unit copies ahead of their use"});
  };
  shared(pair.left, 1, pair.left_bytes());
  shared(pair.right, pair.stages, pair.right_bytes());
  shared(pair.second, pair.stages, pair.second_bytes());
  for (const PairValue& v : pair.values)
    text.tiles.push_back({w.tensor(v.tensor).name, level, "registers", 1, 0,
                          v.place == Place::row ? "one value a row"
                                                : "the sums of a warpgroup's matrix instructions"});
  text.program = lowering::describe(pair, p.schedule, index);
  p.used.push_back("wgmma");
  return text;
}

}  // namespace tilewright::cuda
