// Programs as assembly text, and as a listing with numbers and pipes.
#include <functional>

#include "core/base/document.h"
#include "core/base/format.h"
#include "core/npu/assembly.h"

namespace tilewright::npu {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string text(const Place& p) { return p.object + "[" + to_text(p.offset) + "]"; }

std::string text(const MatrixPlace& p) {
  return formatted("{}.{}({})", text(p.place), name_of(p.layout), to_text(p.pitch));
}

std::string text(const VectorPlace& p) {
  if (!p.repeat_stride && !p.block_stride) return text(p.place);
  std::string strides = p.repeat_stride ? to_text(*p.repeat_stride) : "";
  if (p.block_stride) strides += ", " + to_text(*p.block_stride);
  return text(p.place) + "(" + strides + ")";
}

std::string immediate_text(double value) {
  if (value == __builtin_inf()) return "inf";
  return value == -__builtin_inf() ? "-inf" : shortest(value);
}

std::string line(const Copy& c) {
  return formatted("copy {}, {}, rows={}, columns={}{}{}", text(c.to), text(c.from),
                   to_text(c.rows), to_text(c.columns), c.transpose ? ", transpose" : "",
                   c.add ? ", add" : "");
}

std::string line(const Mad& m) {
  return formatted("mad {}, {}, {}, m={}, n={}, k={}, accumulate={}", text(m.c), text(m.a),
                   text(m.b), to_text(m.m), to_text(m.n), to_text(m.k), to_text(m.accumulate));
}

std::string line(const Vector& v) {
  std::string r = std::string(name_of(v.op)) + " " + text(v.to);
  for (const VectorPlace& from : v.from) r += ", " + text(from);
  if (has_immediate(v.op)) r += ", " + immediate_text(v.immediate);
  r += ", repeat=" + to_text(v.repeat);
  if (v.mask) r += ", mask=" + to_text(*v.mask);
  return r;
}

std::string line(const Move& m) {
  std::string r = formatted("move {}, {}", text(m.to), text(m.from));
  for (const Move::Index& i : m.by)
    r += formatted(", by {}, step={}, below={}", text(i.value), to_text(i.step), to_text(i.below));
  return r;
}

std::string line(const Put& p) { return formatted("put {}, {}", text(p.to), to_text(p.value)); }

std::string flag_line(const char* name, Pipe from, Pipe to, const IntExpr& event) {
  return formatted("{} {}, {}, {}", name, name_of(from), name_of(to), to_text(event));
}

std::string line(const Barrier& b) {
  if (b.scope == Barrier::Scope::pipe) return "barrier " + std::string(name_of(b.pipe));
  return b.scope == Barrier::Scope::all ? "barrier all" : "barrier grid";
}

std::string line(const Loop& l) {
  std::string r = "for " + l.counter + " = " + to_text(l.from) + " to " + to_text(l.to);
  return l.step.is(1) ? r : r + " step " + to_text(l.step);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string r;
  for (const std::int64_t extent : shape) r += (r.empty() ? "" : ", ") + std::to_string(extent);
  return r;
}

std::string header(const Program& p) {
  std::string r = p.name.empty() ? "" : ".program " + p.name + "\n";
  r += ".blocks " + std::to_string(p.blocks) + "\n";
  for (const Tensor& t : p.tensors) {
    r += formatted(".{} {} {}[{}]\n", name_of(t.role), t.name, tilewright::name_of(t.type),
                   shape_text(t.shape));
  }
  for (const Buffer& b : p.buffers) {
    r += formatted(".buffer {} {} {}[{}] at {} holds {}\n", b.name, name_of(b.memory),
                   tilewright::name_of(b.type), b.elements, b.address, b.tensor);
  }
  return r;
}

/// The pipe column of a listing: scalar for what the scalar unit does itself.
std::string pipe_text(const Program& p, const NpuCore& core, const Statement& s) {
  const auto memory = [&](const Place& place) {
    const Buffer* buffer = p.buffer(place.object);
    return buffer == nullptr ? Memory::gm : buffer->memory;
  };
  const auto pipe = std::visit(
      Overloaded{
          [&](const Copy& c) { return copy_pipe(core, memory(c.from.place), memory(c.to.place)); },
          [](const Mad&) { return std::optional(Pipe::cube); },
          [](const Vector&) { return std::optional(Pipe::vector); },
          [](const SetFlag& f) { return std::optional(f.from); },
          [](const WaitFlag& f) { return std::optional(f.to); },
          [](const Barrier& b) {
            return b.scope == Barrier::Scope::pipe ? std::optional(b.pipe) : std::nullopt;
          },
          [](const Note&) { return std::optional<Pipe>(); },
          [](const auto&) { return std::optional(Pipe::scalar); }},
      s.action);
  return pipe ? std::string(name_of(*pipe)) : "";
}

class Printer {
 public:
  /// What stands before a statement's indentation; of lines that are no statement (else, end):
  /// null.
  using Margin = std::function<std::string(const Statement*)>;
  explicit Printer(Margin margin) : margin_(std::move(margin)) {}

  void statements(const std::vector<Statement>& all, int depth) {
    for (const Statement& s : all) statement(s, depth);
  }
  std::string take() { return std::move(out_); }

 private:
  void put(const Statement* s, int depth, const std::string& text, const std::string& comment) {
    out_ += margin_(s) + std::string(static_cast<std::size_t>(2 * depth), ' ') + text;
    if (!comment.empty()) out_ += (text.empty() ? "; " : "  ; ") + comment;
    out_ += "\n";
  }
  void statement(const Statement& s, int depth) {
    const bool empty_note = std::holds_alternative<Note>(s.action) && s.comment.empty();
    put(&s, depth, empty_note ? ";" : to_line(s), s.comment);
    if (const auto* loop = std::get_if<Loop>(&s.action)) {
      statements(loop->body, depth + 1);
      put(nullptr, depth, "end", "");
    } else if (const auto* branch = std::get_if<Branch>(&s.action)) {
      statements(branch->then, depth + 1);
      if (!branch->otherwise.empty()) {
        put(nullptr, depth, "else", "");
        statements(branch->otherwise, depth + 1);
      }
      put(nullptr, depth, "end", "");
    }
  }

  Margin margin_;
  std::string out_;
};

}  // namespace

std::string to_line(const Statement& s) {
  return std::visit(
      Overloaded{[](const Note&) { return std::string(); },
                 [](const Assign& a) { return "let " + a.name + " = " + to_text(a.value); },
                 [](const Branch& b) { return "if " + to_text(b.condition); },
                 [](const SetFlag& f) { return flag_line("set_flag", f.from, f.to, f.event); },
                 [](const WaitFlag& f) { return flag_line("wait_flag", f.from, f.to, f.event); },
                 [](const auto& other) { return line(other); }},
      s.action);
}

std::string to_text(const Program& program) {
  Printer printer([](const Statement*) { return std::string(); });
  printer.statements(program.body, 0);
  return header(program) + printer.take();
}

std::string listing(const Program& program, const NpuCore& core) {
  int number = 0;
  Printer printer([&](const Statement* s) {
    if (s == nullptr) return std::string(13, ' ');
    return formatted("{:>5}  {:<4}  ", ++number, pipe_text(program, core, *s));
  });
  printer.statements(program.body, 0);
  return header(program) + printer.take();
}

}  // namespace tilewright::npu
