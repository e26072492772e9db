// A recursive-descent parser of index notation; depth and length are bounded.
#include "core/workload/notation.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/workload/notation_lexer.h"
#include "core/workload/workload_limits.h"

namespace tilewright {
namespace {

using notation::Lexer;
using notation::Token;

/// An expression and how deep it is: left-associative chains deepen it without nesting the parser.
struct Deep {
  Expr expr;
  int depth = 1;
};

class Parser {
 public:
  Parser(NotationContext& context, std::string_view text, std::string_view where,
         std::string_view name)
      : context_(context), spec_(context.spec), lexer_(text), where_(where) {
    field_ = name.empty() ? "operators[" + std::to_string(spec_.operators.size()) + "]"
                          : "operators." + std::string(name);
    op_.name = name;
    advance();
    advance();
  }

  Operator run() {
    leading_name();
    statement();
    while (accept(";")) statement();
    if (now_.kind == Token::Kind::name && now_.text == "running") {
      advance();
      op_.running = true;
    }
    if (now_.kind != Token::Kind::end) expected("an operator, ; or the end");
    if (op_.name.empty()) op_.name = tensor_name(op_.outputs.front().target);
    resolve_partials();
    collect_loops();
    return std::move(op_);
  }

 private:
  void advance() {
    now_ = ahead_;
    ahead_ = lexer_.next();
  }
  bool at(std::string_view symbol) const {
    return now_.kind == Token::Kind::symbol && now_.text == symbol;
  }
  bool accept(std::string_view symbol) {
    if (!at(symbol)) return false;
    advance();
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) expected("'" + std::string(symbol) + "'");
  }
  [[noreturn]] void expected(const std::string& what) const {
    const std::string found =
        now_.kind == Token::Kind::end ? "end of text" : "'" + std::string(now_.text) + "'";
    fail(now_, found, "was found", what);
  }
  [[noreturn]] void fail(const Token& token, std::string value, std::string problem,
                         std::string accepted = {}) const {
    throw InputError({.where = where_,
                      .field = field_,
                      .value = "column " + std::to_string(token.column) + ": " + std::move(value),
                      .problem = std::move(problem),
                      .accepted = std::move(accepted)});
  }
  const std::string& tensor_name(const Access& a) const {
    return spec_.tensors[a.tensor.index()].name;
  }

  void leading_name() {
    if (now_.kind != Token::Kind::name || ahead_.text != ":") return;
    if (!op_.name.empty() && op_.name != now_.text)
      fail(now_, std::string(now_.text), "names an operator that is called " + op_.name,
           "one name an operator");
    op_.name = now_.text;
    field_ = "operators." + op_.name;
    advance();
    advance();
  }

  // target combine value [rescale(value)]
  void statement() {
    Output out;
    if (now_.kind != Token::Kind::name) expected("a tensor to write");
    const std::string_view name = now_.text;
    advance();
    out.target = access(name);
    out.combine = combine();
    out.value = expression(0).expr;
    if (now_.kind == Token::Kind::name && now_.text == "rescale") {
      advance();
      expect("(");
      out.rescale = expression(0).expr;
      expect(")");
    }
    op_.outputs.push_back(std::move(out));
  }

  Combine combine() {
    if (accept("=")) return Combine::assign;
    if (accept("+=")) return Combine::sum;
    if (accept("*=")) return Combine::product;
    const bool max = now_.text == "max";
    if ((max || now_.text == "min") && ahead_.text == "=") {
      advance();
      advance();
      return max ? Combine::max : Combine::min;
    }
    expected("=, +=, *=, max= or min=");
  }

  // [index, ...] after the tensor's name
  Access access(std::string_view name) {
    const Token open = now_;
    expect("[");
    Access a;
    if (!at("]")) {
      a.index.push_back(index());
      while (accept(",")) a.index.push_back(index());
    }
    expect("]");
    if (a.index.size() > static_cast<std::size_t>(kMaxRank))
      fail(open, std::string(name), "has " + std::to_string(a.index.size()) + " dimensions",
           "at most " + std::to_string(kMaxRank));
    a.tensor = tensor(name, a.index.size(), open);
    return a;
  }

  TensorId tensor(std::string_view name, std::size_t rank, const Token& token) {
    for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
      if (spec_.tensors[i].name != name) continue;
      const std::size_t has = spec_.tensors[i].shape.size();
      if (has != rank)
        fail(token, std::string(name),
             "is indexed by " + std::to_string(rank) + " indices but has " + std::to_string(has) +
                 " dimensions",
             std::to_string(has) + " indices");
      return TensorId(i);
    }
    if (!is_identifier(name)) fail(token, std::string(name), "is not an identifier for a tensor");
    spec_.tensors.push_back({.name = std::string(name),
                             .shape = std::vector<std::int64_t>(rank, 0),
                             .dtype = spec_.dtype});
    context_.inferred.resize(spec_.tensors.size(), false);
    context_.inferred.back() = true;
    return TensorId(spec_.tensors.size() - 1);
  }

  // An affine form, or an access whose value is the index: table[ids[b],d].
  Affine index() {
    if (now_.kind != Token::Kind::name || ahead_.text != "[") return affine();
    const Token name = now_;
    advance();
    Access by = access(name.text);
    for (const Affine& inner : by.index)
      if (inner.gathered >= 0)
        fail(name, std::string(name.text), "is an index that is itself gathered by a value",
             "an index tensor indexed by loops and integers");
    return {.gathered = input(std::move(by))};
  }

  Affine affine() {
    Affine sum;
    std::int64_t sign = accept("-") ? -1 : 1;
    for (;;) {
      affine_term(sum, sign);
      if (accept("+"))
        sign = 1;
      else if (accept("-"))
        sign = -1;
      else
        return sum;
    }
  }

  // integer | integer * loop | loop | loop * integer
  void affine_term(Affine& sum, std::int64_t sign) {
    const Token start = now_;
    std::int64_t factor = 1;
    std::optional<LoopId> loop;
    if (now_.kind == Token::Kind::number) {
      factor = integer();
      if (accept("*")) loop = loop_name();
      if (!loop) {
        add(sum.offset, sign * factor, start);
        return;
      }
    } else {
      loop = loop_name();
      if (accept("*")) factor = integer();
    }
    const auto same = std::find_if(sum.terms.begin(), sum.terms.end(),
                                   [&](const Term& t) { return t.loop == *loop; });
    if (same == sum.terms.end())
      sum.terms.push_back({*loop, sign * factor});
    else
      add(same->coefficient, sign * factor, start);
  }

  void add(std::int64_t& to, std::int64_t n, const Token& token) const {
    const auto sum = checked_add(to, n);
    if (!sum) fail(token, std::string(token.text), "takes an index past 64 bits");
    to = *sum;
  }

  std::int64_t integer() {
    if (now_.kind != Token::Kind::number) expected("an integer");
    std::int64_t n = 0;
    const char* end = now_.text.data() + now_.text.size();
    const auto [rest, error] = std::from_chars(now_.text.data(), end, n);
    if (error != std::errc() || rest != end)
      fail(now_, std::string(now_.text), "is not an integer within 64 bits");
    advance();
    return n;
  }

  LoopId loop_name() {
    if (now_.kind != Token::Kind::name) expected("a loop or an integer");
    std::vector<std::string> names;
    for (std::size_t i = 0; i < spec_.loops.size(); ++i) {
      if (spec_.loops[i].name == now_.text) {
        advance();
        return LoopId(i);
      }
      names.push_back(spec_.loops[i].name);
    }
    throw unknown_name(where_, field_ + ": column " + std::to_string(now_.column) + ": loop",
                       now_.text, std::move(names));
  }

  Deep call(std::string name, std::vector<Deep> args, const Token& token) const {
    Deep d{.expr = {.kind = Expr::Kind::call, .function = std::move(name)}};
    for (Deep& a : args) {
      d.depth = std::max(d.depth, a.depth + 1);
      d.expr.args.push_back(std::move(a.expr));
    }
    if (d.depth > kMaxExprDepth) too_deep(token);
    return d;
  }
  Deep binary(std::string name, Deep left, Deep right, const Token& token) const {
    std::vector<Deep> args;
    args.push_back(std::move(left));
    args.push_back(std::move(right));
    return call(std::move(name), std::move(args), token);
  }
  [[noreturn]] void too_deep(const Token& token) const {
    fail(token, "", "the expression is nested too deeply",
         "at most " + std::to_string(kMaxExprDepth) + " levels");
  }

  Deep expression(int nesting) {
    if (nesting > kMaxExprDepth) too_deep(now_);
    Deep left = product(nesting);
    while (at("+") || at("-")) {
      const Token token = now_;
      advance();
      left = binary(token.text == "+" ? "add" : "sub", std::move(left), product(nesting), token);
    }
    return left;
  }

  Deep product(int nesting) {
    Deep left = factor(nesting);
    while (at("*") || at("/")) {
      const Token token = now_;
      advance();
      left = binary(token.text == "*" ? "mul" : "div", std::move(left), factor(nesting), token);
    }
    return left;
  }

  Deep factor(int nesting) {
    if (nesting > kMaxExprDepth) too_deep(now_);
    const Token token = now_;
    if (accept("(")) {
      Deep inside = expression(nesting + 1);
      expect(")");
      return inside;
    }
    const bool minus = accept("-");
    const bool infinity =
        now_.kind == Token::Kind::name && now_.text == "inf" && ahead_.text != "[";
    if (now_.kind == Token::Kind::number || infinity)
      return {.expr = {.constant = minus ? -number() : number()}};
    if (minus) {
      std::vector<Deep> args;
      args.push_back(factor(nesting + 1));
      return call("neg", std::move(args), token);
    }
    if (now_.kind != Token::Kind::name) expected("a tensor, a function, a number or (");
    advance();
    if (at("[")) return {.expr = {.kind = Expr::Kind::input, .input = input(access(token.text))}};
    if (at("(")) return function(token, nesting);
    return {.expr = {.kind = Expr::Kind::index, .loop = loop_of(token)}};
  }

  // A name without brackets is a loop's index.
  LoopId loop_of(const Token& token) const {
    std::string loops;
    for (std::size_t i = 0; i < spec_.loops.size(); ++i) {
      if (spec_.loops[i].name == token.text) return LoopId(i);
      loops += (loops.empty() ? "" : ", ") + spec_.loops[i].name;
    }
    const std::string name(token.text);
    fail(token, name, "is not a loop whose index could be read here",
         name + "[...], " + name + "(...) or one of the loops " + loops);
  }

  double number() {
    const Token token = now_;
    advance();
    if (token.text == "inf") return std::numeric_limits<double>::infinity();
    double value = 0;
    const char* end = token.text.data() + token.text.size();
    const auto [rest, error] = std::from_chars(token.text.data(), end, value);
    if (error != std::errc() || rest != end)
      fail(token, std::string(token.text), "is not a number in range");
    return value;
  }

  int input(Access a) {
    const auto it = std::find(op_.inputs.begin(), op_.inputs.end(), a);
    if (it != op_.inputs.end()) return static_cast<int>(it - op_.inputs.begin());
    op_.inputs.push_back(std::move(a));
    return static_cast<int>(op_.inputs.size()) - 1;
  }

  Deep function(const Token& name, int nesting) {
    expect("(");
    if (name.text == "before" || name.text == "after") return partial(name);
    const ExprFunction* f = find_expr_function(name.text);
    if (f == nullptr) {
      std::vector<std::string> names = {"before", "after"};
      for (const ExprFunction& known : expr_functions()) names.emplace_back(known.name);
      throw unknown_name(where_, field_ + ": column " + std::to_string(name.column) + ": function",
                         name.text, std::move(names));
    }
    std::vector<Deep> args;
    if (!at(")")) {
      args.push_back(expression(nesting + 1));
      while (accept(",")) args.push_back(expression(nesting + 1));
    }
    expect(")");
    if (static_cast<int>(args.size()) != f->arity)
      fail(name, std::string(name.text),
           "is called with " + std::to_string(args.size()) + " arguments",
           std::to_string(f->arity));
    return call(std::string(name.text), std::move(args), name);
  }

  // before(TENSOR), after(TENSOR): an output of this operator, which may be written further on.
  Deep partial(const Token& name) {
    if (now_.kind != Token::Kind::name) expected("an output of this operator");
    partials_.push_back(now_);
    advance();
    expect(")");
    // Until all outputs are known, the position is that in partials_.
    return {.expr = {.kind = name.text == "before" ? Expr::Kind::before : Expr::Kind::after,
                     .input = static_cast<int>(partials_.size()) - 1}};
  }

  void resolve_partials() {
    if (partials_.empty()) return;
    for (Output& out : op_.outputs) {
      resolve_partials(out.value);
      if (out.rescale) resolve_partials(*out.rescale);
    }
  }
  void resolve_partials(Expr& e) {
    for (Expr& a : e.args) resolve_partials(a);
    if (e.kind != Expr::Kind::before && e.kind != Expr::Kind::after) return;
    const Token& token = partials_[static_cast<std::size_t>(e.input)];
    std::vector<std::string> names;
    for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
      names.push_back(tensor_name(op_.outputs[i].target));
      if (names.back() != token.text) continue;
      e.input = static_cast<int>(i);
      return;
    }
    throw unknown_name(where_, field_ + ": column " + std::to_string(token.column) + ": output",
                       token.text, std::move(names));
  }

  void collect_loops() {
    const auto add = [&](const Access& a) {
      for (const Affine& index : a.index)
        for (const Term& t : index.terms)
          if (t.coefficient != 0 &&
              std::find(op_.loops.begin(), op_.loops.end(), t.loop) == op_.loops.end())
            op_.loops.push_back(t.loop);
    };
    for (const Output& out : op_.outputs) add(out.target);
    for (const Access& in : op_.inputs) add(in);
  }

  NotationContext& context_;
  WorkloadSpec& spec_;
  Lexer lexer_;
  std::string where_;
  std::string field_;
  Token now_;
  Token ahead_;
  Operator op_;
  std::vector<Token> partials_;
};

}  // namespace

void parse_operator(NotationContext& context, std::string_view text, std::string_view where,
                    std::string_view name) {
  if (text.size() > kMaxNotation)
    throw InputError({.where = std::string(where),
                      .field = "operators[" + std::to_string(context.spec.operators.size()) + "]",
                      .value = std::to_string(text.size()) + " characters",
                      .problem = "are too many",
                      .accepted = "at most " + std::to_string(kMaxNotation)});
  context.inferred.resize(context.spec.tensors.size(), false);
  context.spec.operators.push_back(Parser(context, text, where, name).run());
}

}  // namespace tilewright
