// Reading assembly: one statement a line, integer expressions by recursive descent.
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/npu/assembly.h"

namespace tilewright::npu {
namespace {

constexpr std::size_t kMaxText = std::size_t{4} << 20;
constexpr int kMaxDepth = 32;                ///< loops and branches inside one another
constexpr int kMaxParentheses = 32;
constexpr std::size_t kMaxNodes = 512;       ///< of one expression
constexpr std::size_t kMaxShown = 32;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

std::string shown(std::string_view text) {
  std::string r;
  for (char c : text.substr(0, kMaxShown)) {
    r += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  }
  return text.size() > kMaxShown ? r + "..." : r;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// One line, without its comment. Every failure names its line and column.
class Line {
 public:
  Line(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  [[noreturn]] void fail(std::size_t at, std::string_view found, std::string expected) const {
    throw InputError({.where = where_,
                      .field = "column " + std::to_string(at + 1),
                      .value = found.empty() ? "end of line" : shown(found),
                      .problem = "is not accepted here",
                      .accepted = std::move(expected)});
  }
  [[noreturn]] void fail(std::string expected) {
    skip();
    fail(at_, text_.substr(at_), std::move(expected));
  }

  bool at_end() {
    skip();
    return at_ == text_.size();
  }
  void end() {
    if (!at_end()) fail("the end of the line");
  }
  /// Takes the symbol if it comes next.
  bool take(std::string_view symbol) {
    skip();
    if (text_.substr(at_, symbol.size()) != symbol) return false;
    at_ += symbol.size();
    return true;
  }
  void expect(std::string_view symbol) {
    if (!take(symbol)) fail("'" + std::string(symbol) + "'");
  }
  std::string_view word() {
    skip();
    const std::size_t from = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }
  /// Takes that word if it comes next.
  bool take_word(std::string_view wanted) {
    const std::size_t from = at_;
    if (word() == wanted) return true;
    at_ = from;
    return false;
  }
  void expect_word(std::string_view wanted) {
    if (!take_word(wanted)) fail(std::string(wanted));
  }
  std::string identifier(const char* what) {
    skip();
    const std::size_t from = at_;
    const std::string_view name = word();
    if (!is_identifier(name)) {
      fail(from, name.empty() ? text_.substr(from) : name,
           std::string(what) + ": letters, digits and _, at most 64, no C++ keyword");
    }
    return std::string(name);
  }
  /// A word that `from_name` knows.
  template <class F>
  auto named(F from_name, const char* accepted) {
    skip();
    const std::size_t from = at_;
    const std::string_view name = word();
    const auto value = from_name(name);
    if (!value) fail(from, name.empty() ? text_.substr(from) : name, accepted);
    return *value;
  }
  std::int64_t integer(std::int64_t least, std::int64_t most) {
    skip();
    const std::size_t from = at_;
    const std::string_view digits = word();
    std::int64_t value = 0;
    const char* const last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, value);
    if (digits.empty() || error != std::errc() || end != last || value < least || value > most) {
      fail(from, digits.empty() ? text_.substr(from) : digits,
           "an integer from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
  }
  double real() {
    skip();
    const std::size_t from = at_;
    std::string_view rest = text_.substr(at_);
    if (take("-inf")) return -__builtin_inf();
    if (take("inf")) return __builtin_inf();
    double value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || !std::isfinite(value)) fail(from, rest, "a number, inf or -inf");
    at_ += static_cast<std::size_t>(end - rest.data());
    return value;
  }

  /// or > and > comparison > sum > product > unary > primary
  IntExpr expression() {
    IntExpr e = conjunction();
    while (take("||")) e = combined(IntOp::logical_or, std::move(e), conjunction());
    return e;
  }

 private:
  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  IntExpr combined(IntOp op, IntExpr a, const IntExpr& b) {
    if (a.code().size() + b.code().size() > kMaxNodes) {
      fail("an expression of at most " + std::to_string(kMaxNodes) + " parts");
    }
    return IntExpr::binary(op, std::move(a), b);
  }
  IntExpr conjunction() {
    IntExpr e = comparison();
    while (take("&&")) e = combined(IntOp::logical_and, std::move(e), comparison());
    return e;
  }
  IntExpr comparison() {
    static constexpr std::array<std::pair<std::string_view, IntOp>, 6> kSymbols = {
        {{"<=", IntOp::less_equal}, {">=", IntOp::greater_equal}, {"==", IntOp::equal},
         {"!=", IntOp::not_equal}, {"<", IntOp::less}, {">", IntOp::greater}}};
    IntExpr e = sum();
    for (const auto& [symbol, op] : kSymbols) {
      if (take(symbol)) return combined(op, std::move(e), sum());
    }
    return e;
  }
  IntExpr sum() {
    IntExpr e = product();
    while (true) {
      if (take("+")) e = combined(IntOp::add, std::move(e), product());
      else if (take("-")) e = combined(IntOp::subtract, std::move(e), product());
      else return e;
    }
  }
  IntExpr product() {
    IntExpr e = unary();
    while (true) {
      if (take("*")) e = combined(IntOp::multiply, std::move(e), unary());
      else if (take("/")) e = combined(IntOp::divide, std::move(e), unary());
      else if (take("%")) e = combined(IntOp::modulo, std::move(e), unary());
      else return e;
    }
  }
  IntExpr unary() {
    Nested nested(*this);
    skip();
    if (text_.substr(at_, 2) != "!=" && take("!")) {
      return IntExpr::unary(IntOp::logical_not, unary());
    }
    if (take("-")) return IntExpr::unary(IntOp::negate, unary());
    return primary();
  }
  IntExpr primary() {
    if (take("(")) {
      IntExpr e = expression();
      expect(")");
      return e;
    }
    skip();
    if (at_ < text_.size() && is_digit(text_[at_])) return integer(0, INT64_MAX);
    const std::size_t from = at_;
    const std::string name = identifier("a number, a scalar or an expression in parentheses");
    if (!take("(")) return scalar(name);
    if (name != "min" && name != "max") fail(from, name, "min(a, b) or max(a, b)");
    IntExpr a = expression();
    expect(",");
    const IntExpr b = expression();
    expect(")");
    return combined(name == "min" ? IntOp::minimum : IntOp::maximum, std::move(a), b);
  }

  /// Bounds recursion: parentheses and signs inside one another.
  struct Nested {
    explicit Nested(Line& l) : line(l) {
      if (++line.depth_ > kMaxParentheses) {
        line.fail("at most " + std::to_string(kMaxParentheses) + " parentheses and signs deep");
      }
    }
    ~Nested() { --line.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Line& line;
  };

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Operands and instructions ------------------------------------------------------------------------

std::optional<DType> element_type(std::string_view name) {
  const auto type = dtype_from_name(name);
  return type == DType::f16 || type == DType::f32 ? type : std::nullopt;
}

Place read_place(Line& l) {
  Place p{.object = l.identifier("a tensor or buffer"), .offset = {}};
  l.expect("[");
  p.offset = l.expression();
  l.expect("]");
  return p;
}

MatrixPlace read_matrix(Line& l) {
  MatrixPlace p{.place = read_place(l)};
  l.expect(".");
  p.layout = l.named(layout_from_name, "a layout: nd, Nz, Zz or Zn");
  l.expect("(");
  p.pitch = l.expression();
  l.expect(")");
  return p;
}

VectorPlace read_vector_place(Line& l) {
  VectorPlace p{.place = read_place(l)};
  if (!l.take("(")) return p;
  if (!l.take(",")) {
    p.repeat_stride = l.expression();
    if (l.take(")")) return p;
    l.expect(",");
  }
  p.block_stride = l.expression();
  l.expect(")");
  return p;
}

/// ", NAME=expression"
IntExpr read_setting(Line& l, const char* name) {
  l.expect(",");
  l.expect_word(name);
  l.expect("=");
  return l.expression();
}

Copy read_copy(Line& l) {
  Copy c{.to = read_matrix(l)};
  l.expect(",");
  c.from = read_matrix(l);
  c.rows = read_setting(l, "rows");
  c.columns = read_setting(l, "columns");
  while (l.take(",")) {
    if (!c.transpose && l.take_word("transpose")) c.transpose = true;
    else if (!c.add && l.take_word("add")) c.add = true;
    else l.fail("transpose or add, once");
  }
  return c;
}

Mad read_mad(Line& l) {
  Mad m{.c = read_place(l)};
  l.expect(",");
  m.a = read_place(l);
  l.expect(",");
  m.b = read_place(l);
  m.m = read_setting(l, "m");
  m.n = read_setting(l, "n");
  m.k = read_setting(l, "k");
  m.accumulate = read_setting(l, "accumulate");
  return m;
}

Vector read_vector(Line& l, VectorOp op) {
  Vector v{.op = op, .to = read_vector_place(l)};
  for (int i = 0; i < sources_of(op); ++i) {
    l.expect(",");
    v.from.push_back(read_vector_place(l));
  }
  if (has_immediate(op)) {
    l.expect(",");
    v.immediate = l.real();
  }
  v.repeat = read_setting(l, "repeat");
  if (!l.at_end()) v.mask = read_setting(l, "mask");
  return v;
}

template <class Flag>
Flag read_flag(Line& l) {
  constexpr const char* kAccepted = "a pipe: S, V, M, MTE1, MTE2, MTE3 or FIX";
  Flag f;
  f.from = l.named(pipe_from_name, kAccepted);
  l.expect(",");
  f.to = l.named(pipe_from_name, kAccepted);
  l.expect(",");
  f.event = l.expression();
  return f;
}

Barrier read_barrier(Line& l) {
  if (l.take_word("all")) return {.scope = Barrier::Scope::all};
  if (l.take_word("grid")) return {.scope = Barrier::Scope::grid};
  return {.scope = Barrier::Scope::pipe,
          .pipe = l.named(pipe_from_name, "all, grid, or a pipe: S, V, M, MTE1, MTE2, MTE3, FIX")};
}

// The program --------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Program read() {
    if (text_.size() > kMaxText) {
      throw InputError({.where = where_,
                        .field = "length",
                        .value = std::to_string(text_.size()) + " characters",
                        .problem = "is too long",
                        .accepted = "at most " + std::to_string(kMaxText)});
    }
    open_.push_back({.body = &program_.body});
    for (std::size_t from = 0; from < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', from), text_.size());
      ++number_;
      read_line(text_.substr(from, end - from));
      from = end + 1;
    }
    if (open_.size() > 1) {
      throw InputError({.where = where_at(open_.back().line),
                        .field = "loop or branch",
                        .value = "end of text",
                        .problem = "comes before its end",
                        .accepted = "a line that says end"});
    }
    return std::move(program_);
  }

 private:
  /// A body that statements go to, and what it belongs to.
  struct Open {
    std::vector<Statement>* body;
    int line = 0;
    bool branch = false;  ///< of an if, which may go on with else
  };

  std::string where_at(int line) const { return where_ + ":" + std::to_string(line); }

  void read_line(std::string_view text) {
    const std::size_t mark = text.find(';');
    std::string_view comment;
    if (mark != text.npos) comment = trimmed(text.substr(mark + 1));
    Line l(text.substr(0, mark), where_at(number_));
    if (l.at_end()) {
      if (mark != text.npos) open_.back().body->push_back({Note{}, std::string(comment)});
    } else if (l.take(".")) {
      read_directive(l);
    } else {
      read_statement(l, std::string(comment));
    }
    l.end();
  }

  void read_directive(Line& l) {
    if (l.take_word("program")) {
      program_.name = l.identifier("a name");
    } else if (l.take_word("blocks")) {
      program_.blocks = l.integer(1, 65535);
    } else if (l.take_word("buffer")) {
      read_buffer(l);
    } else if (l.take_word("input")) {
      read_tensor(l, Role::input);
    } else if (l.take_word("output")) {
      read_tensor(l, Role::output);
    } else if (l.take_word("scratch")) {
      read_tensor(l, Role::scratch);
    } else {
      l.fail("program, blocks, input, output, scratch or buffer");
    }
  }

  void read_tensor(Line& l, Role role) {
    Tensor t{.name = l.identifier("a tensor"), .role = role};
    t.type = l.named(element_type, "f16 or f32");
    l.expect("[");
    std::int64_t elements = 1;
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    do {
      t.shape.push_back(l.integer(1, kMost / elements));
      elements *= t.shape.back();
    } while (t.shape.size() < 16 && l.take(","));
    l.expect("]");
    program_.tensors.push_back(std::move(t));
  }

  void read_buffer(Line& l) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    Buffer b{.name = l.identifier("a buffer")};
    b.memory = l.named(memory_from_name, "a memory: L1, L0A, L0B, L0C or UB");
    b.type = l.named(element_type, "f16 or f32");
    l.expect("[");
    b.elements = l.integer(1, kMost);
    l.expect("]");
    l.expect_word("at");
    b.address = l.integer(0, kMost);
    l.expect_word("holds");
    b.tensor = l.identifier("the tensor that it holds");
    program_.buffers.push_back(std::move(b));
  }

  template <class Action>
  Statement& add(Action action, std::string comment) {
    open_.back().body->push_back({std::move(action), std::move(comment)});
    return open_.back().body->back();
  }

  void enter(std::vector<Statement>& body, bool branch, const Line& l) {
    if (open_.size() > static_cast<std::size_t>(kMaxDepth)) {
      l.fail(0, "nesting", "at most " + std::to_string(kMaxDepth) + " loops and branches deep");
    }
    open_.push_back({&body, number_, branch});
  }

  void read_statement(Line& l, std::string comment) {
    const auto op = vector_op_from_name(peek(l));
    if (op) {
      l.word();
      add(read_vector(l, *op), std::move(comment));
    } else if (l.take_word("for")) {
      read_loop(l, std::move(comment));
    } else if (l.take_word("if")) {
      Statement& s = add(Branch{.condition = l.expression()}, std::move(comment));
      enter(std::get<Branch>(s.action).then, true, l);
    } else if (l.take_word("else")) {
      read_else(l);
    } else if (l.take_word("end")) {
      if (open_.size() == 1) l.fail(0, "end", "a loop or branch that this would end");
      open_.pop_back();
    } else if (l.take_word("let")) {
      Assign a{.name = l.identifier("a scalar")};
      l.expect("=");
      a.value = l.expression();
      add(std::move(a), std::move(comment));
    } else {
      read_instruction(l, std::move(comment));
    }
  }

  static std::string_view peek(Line l) { return l.word(); }

  void read_instruction(Line& l, std::string comment) {
    if (l.take_word("copy")) {
      add(read_copy(l), std::move(comment));
    } else if (l.take_word("mad")) {
      add(read_mad(l), std::move(comment));
    } else if (l.take_word("set_flag")) {
      add(read_flag<SetFlag>(l), std::move(comment));
    } else if (l.take_word("wait_flag")) {
      add(read_flag<WaitFlag>(l), std::move(comment));
    } else if (l.take_word("barrier")) {
      add(read_barrier(l), std::move(comment));
    } else {
      l.fail("a statement: for, if, else, end, let, copy, mad, v..., set_flag, wait_flag, barrier");
    }
  }

  void read_loop(Line& l, std::string comment) {
    Loop loop{.counter = l.identifier("a loop's counter")};
    l.expect("=");
    loop.from = l.expression();
    l.expect_word("to");
    loop.to = l.expression();
    if (l.take_word("step")) loop.step = l.expression();
    Statement& s = add(std::move(loop), std::move(comment));
    enter(std::get<Loop>(s.action).body, false, l);
  }

  void read_else(Line& l) {
    if (!open_.back().branch || open_.size() == 1) l.fail(0, "else", "an if that this belongs to");
    open_.pop_back();
    Branch& branch = std::get<Branch>(open_.back().body->back().action);
    open_.push_back({&branch.otherwise, number_, false});
  }

  std::string_view text_;
  std::string where_;
  Program program_;
  std::vector<Open> open_;
  int number_ = 0;
};

}  // namespace

Program parse_assembly(std::string_view text, std::string_view where) {
  return Reader(text, where).read();
}

}  // namespace tilewright::npu
