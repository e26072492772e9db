// Reading assembly: one statement a line.
#include <utility>

#include "core/base/document.h"
#include "core/npu/assembly.h"
#include "core/npu/assembly_line.h"

namespace tilewright::npu {
namespace {

constexpr int kMaxDepth = 32;  ///< loops and branches inside one another

// Operands and instructions
// ------------------------------------------------------------------------

constexpr const char* kTypes = "f16, bf16, f32, i8 or i32";
std::optional<DType> element_type(std::string_view name) {
  const auto type = dtype_from_name(name);
  return type == DType::f64 ? std::nullopt : type;
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
    if (!c.transpose && l.take_word("transpose"))
      c.transpose = true;
    else if (!c.add && l.take_word("add"))
      c.add = true;
    else
      l.fail("transpose or add, once");
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

Move read_move(Line& l) {
  Move m{.to = read_place(l)};
  l.expect(",");
  m.from = read_place(l);
  while (m.by.size() < kMostIndices && l.take(",")) {
    l.expect_word("by");
    Move::Index i{.value = read_place(l)};
    i.step = read_setting(l, "step");
    i.below = read_setting(l, "below");
    m.by.push_back(std::move(i));
  }
  return m;
}

Put read_put(Line& l) {
  Put p{.to = read_place(l)};
  l.expect(",");
  p.value = l.expression();
  return p;
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

// The program
// --------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Program read() {
    if (text_.size() > kMostText) {
      throw InputError({.where = where_,
                        .field = "length",
                        .value = std::to_string(text_.size()) + " characters",
                        .problem = "is too long",
                        .accepted = "at most " + std::to_string(kMostText)});
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
    t.type = l.named(element_type, kTypes);
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
    b.type = l.named(element_type, kTypes);
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
    } else if (l.take_word("move")) {
      add(read_move(l), std::move(comment));
    } else if (l.take_word("put")) {
      add(read_put(l), std::move(comment));
    } else if (l.take_word("set_flag")) {
      add(read_flag<SetFlag>(l), std::move(comment));
    } else if (l.take_word("wait_flag")) {
      add(read_flag<WaitFlag>(l), std::move(comment));
    } else if (l.take_word("barrier")) {
      add(read_barrier(l), std::move(comment));
    } else {
      l.fail(
          "a statement: for, if, else, end, let, copy, mad, v..., move, put, set_flag, wait_flag, "
          "barrier");
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
