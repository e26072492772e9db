// Operators to index notation; notation.cpp reads it back to the same value.
#include <charconv>

#include "core/workload/text.h"

namespace tilewright {
namespace {

// How tightly the outermost operation of an expression binds.
constexpr int kSum = 1;
constexpr int kProduct = 2;
constexpr int kUnary = 3;
constexpr int kAtom = 4;

std::string number_text(double v) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, v);
  return std::string(buffer, end);
}

class Printer {
 public:
  Printer(const Workload& w, const Operator& op) : w_(w), op_(op) {}

  std::string text() const {
    std::string out = op_.name + ": ";
    for (const Output& o : op_.outputs) {
      if (&o != op_.outputs.data()) out += "; ";
      out += access(o.target) + " " + std::string(name_of(o.combine)) + " " + expr(o.value, kSum);
      if (o.rescale) out += " rescale(" + expr(*o.rescale, kSum) + ")";
    }
    return op_.running ? out + " running" : out;
  }

 private:
  std::string access(const Access& a) const {
    std::string out = w_.tensor(a.tensor).name + "[";
    for (const Affine& index : a.index) {
      if (&index != a.index.data()) out += ",";
      out += index.gathered < 0 ? affine(index)
                                : access(op_.inputs[static_cast<std::size_t>(index.gathered)]);
    }
    return out + "]";
  }

  std::string affine(const Affine& index) const {
    std::string out;
    for (const Term& t : index.terms) {
      // The magnitude after its sign, as text, so that no number needs a special case.
      const bool minus = t.coefficient < 0;
      if (minus || !out.empty()) out += minus ? "-" : "+";
      const std::string digits = std::to_string(t.coefficient).substr(minus ? 1 : 0);
      if (digits != "1") out += digits + "*";
      out += w_.loop(t.loop).name;
    }
    if (index.offset == 0) return out.empty() ? "0" : out;
    if (index.offset > 0 && !out.empty()) out += "+";
    return out + std::to_string(index.offset);
  }

  /// In parentheses when it binds less tightly than its place asks for.
  std::string expr(const Expr& e, int least) const {
    int binds = kAtom;
    const std::string text = bare(e, binds);
    return binds < least ? "(" + text + ")" : text;
  }

  std::string bare(const Expr& e, int& binds) const {
    switch (e.kind) {
      case Expr::Kind::input: return access(op_.inputs[static_cast<std::size_t>(e.input)]);
      case Expr::Kind::constant: return number_text(e.constant);
      case Expr::Kind::index:
        return w_.loop(e.loop).name;
      case Expr::Kind::before: return "before(" + output_name(e.input) + ")";
      case Expr::Kind::after: return "after(" + output_name(e.input) + ")";
      case Expr::Kind::call: break;
    }
    const auto infix = [&](std::string_view sign, int level) {
      binds = level;
      return expr(e.args[0], level) + std::string(sign) + expr(e.args[1], level + 1);
    };
    if (e.function == "add") return infix(" + ", kSum);
    if (e.function == "sub") return infix(" - ", kSum);
    if (e.function == "mul") return infix(" * ", kProduct);
    if (e.function == "div") return infix(" / ", kProduct);
    // A sign before a number is part of the number.
    if (e.function == "neg" && e.args[0].kind != Expr::Kind::constant) {
      binds = kUnary;
      return "-" + expr(e.args[0], kUnary);
    }
    std::string out = e.function + "(";
    for (const Expr& a : e.args) {
      if (&a != e.args.data()) out += ", ";
      out += expr(a, kSum);
    }
    return out + ")";
  }

  const std::string& output_name(int position) const {
    return w_.tensor(op_.outputs[static_cast<std::size_t>(position)].target.tensor).name;
  }

  const Workload& w_;
  const Operator& op_;
};

}  // namespace

std::string to_text(const Workload& w, OpId op) { return Printer(w, w.op(op)).text(); }

}  // namespace tilewright
