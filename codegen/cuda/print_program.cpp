// A program's loops, blocks and declarations as text, and the names of what is computed twice.
#include "codegen/cuda/print_program.h"

#include <algorithm>

#include "codegen/cuda/launch_text.h"
#include "core/lowering/gpu/unrolled.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 31;

/// "a < b" for what must be positive.
std::string positive(const Variables& variables, const Linear& x) {
  Linear more, less;
  for (const auto& [id, c] : x.terms) (c > 0 ? more : less).terms[id] = c > 0 ? c : -c;
  (x.constant > 0 ? more : less).constant = std::abs(x.constant);
  return variables.text(less) + " < " + variables.text(more);
}

}  // namespace

ProgramPrinter::ProgramPrinter(ThreadProgram program, bool from_last,
                               std::function<bool(TensorId)> launched)
    : p_(std::move(program)),
      workload_(*p_.workload),
      from_last_(from_last),
      launched_(std::move(launched)) {}

std::string ProgramPrinter::body() {
  if (p_.shared_bytes > 0) out_.line("TW_SHARED(memory);");
  out_.line(std::string("const int block = ") + (from_last_ ? "gridDim.x - 1 - " : "") +
            "blockIdx.x, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;");
  out_.line("(void)block, (void)warp, (void)lane;");
  define_units();
  for (const Value& v : p_.values)
    if (v.storage == Storage::shared)
      out_.line(real() + "* const " + v.name + " = " + shared_place(real(), v.offset) + ";");
  for (const std::string& flip : p_.flips) out_.line("int " + flip + " = 0;");
  defined_.emplace_back();
  print(p_.steps);
  return out_.text();
}

std::vector<TileUse> ProgramPrinter::tiles(const Machine& machine) const {
  std::vector<TileUse> all;
  for (const Value& v : p_.values) {
    const bool shared = v.storage == Storage::shared, direct = v.storage == Storage::direct;
    all.push_back({.tensor = workload_.tensor(v.tensor).name,
                   .level = machine.level(p_.kernel->buffer(v.buffer).level).name,
                   .place = shared   ? "shared, " + real()
                            : direct ? "nowhere"
                                     : "registers",
                   .bytes = shared ? v.elements * p_.element_bytes() : 0,
                   .reason = direct ? "used element by element" : v.reason});
  }
  return all;
}

void ProgramPrinter::define_units() {
  for (const ProgramIndex& i : p_.indices) {
    if (i.kind != ProgramIndex::Kind::unit || i.text == name_of(i.unit)) continue;
    std::string value(name_of(i.unit));
    if (i.stride > 1) value += " / " + std::to_string(i.stride);
    const std::int64_t all = i.unit == Binding::lane ? 32 : p_.warps;
    if (i.stride * i.size < all) value += " % " + std::to_string(i.size);
    out_.line("const int " + i.text + " = " + value + ";");
  }
}

void ProgramPrinter::print(const std::vector<Step>& steps) {
  for (auto s = steps.begin(); s != steps.end(); ++s)
    if (s->at_once)
      s = at_once(s, steps.end());
    else
      print(*s);
}

/// Loads that are all under way before what they bring is used: in a loop of one turn, which only
/// the launch knows. The last of them.
ProgramPrinter::Steps ProgramPrinter::at_once(Steps first, Steps end) {
  end = std::find_if_not(first, end,
                         [](const Step& s) { return s.at_once || s.kind == Step::Kind::declare; });
  for (auto s = first; s != end; ++s)
    if (!s->at_once) print(*s);
  const std::string once = p_.names.fresh("once");
  out_.line("int " + once + " = one_turn();");
  out_.line("TW_NO_UNROLL");
  out_.open("do");
  defined_.emplace_back();
  for (auto s = first; s != end; ++s)
    if (s->at_once) print(*s);
  defined_.pop_back();
  out_.end();
  out_.line("} while (--" + once + " > 0);");
  return end - 1;
}

void ProgramPrinter::print(const Step& s) {
  using Kind = Step::Kind;
  switch (s.kind) {
    case Kind::loop:
      return loop(s);
    case Kind::blocks:
      return blocks(s);
    case Kind::parts:
    case Kind::part:
      return parts(s);
    case Kind::declare:
      return declare(only(s));
    case Kind::hold:
      return hold(s);
    case Kind::load:
    case Kind::stage:
      out_.comment("L." + workload_.tensor(only(s).tensor).name);
      return s.kind == Kind::load ? move(s) : s.fetched.empty() ? stage(s) : fetch(s);
    case Kind::put:
      return fetch(s);
    case Kind::spread:
      return spread(s);
    case Kind::start:
      open_loops(s.dims);
      out_.line(array(only(s)) + " = " + literal_text(identity_of(p_.output_of(only(s)).combine)) +
                ";");
      return close_loops(s.dims.size());
    case Kind::compute:
      return compute(s);
    case Kind::lanes:
      return lanes(s);
    case Kind::exchange:
      return exchange(s);
    case Kind::keep:
      return keep(s);
    case Kind::store:
      out_.comment("S." + workload_.tensor(only(s).tensor).name);
      return move(s);
    case Kind::barrier:
      if (s.launches) {
        out_.line("launches_ended();");
        if (s.next) out_.line("next_launch_may_begin();");
        return;
      }
      if (s.reused) out_.comment("What the last turn left here has been read.");
      return out_.line(s.all_blocks ? "grid_sync(arrivals);"
                       : s.warp     ? "warp_sync();"
                                    : "block_sync();");
  }
}

void ProgramPrinter::declare(const Value& v) {
  std::string sizes;
  for (int id : v.dims) sizes += "[" + std::to_string(index(id).count) + "]";
  out_.line(real() + " " + v.name + (v.storage == Storage::shared ? "_sum" : "") + sizes + ";");
}

void ProgramPrinter::open_loop(int id, std::int64_t step, const std::string& how) {
  const ProgramIndex& i = index(id);
  out_.line(!how.empty() ? how : i.unrolled ? "TW_UNROLL" : "TW_NO_UNROLL");
  out_.open("for (int " + i.text + " = 0; " + i.text + " < " + std::to_string(i.count) + "; " +
            (step == 1 ? "++" + i.text : i.text + " += " + std::to_string(step)) + ")");
  defined_.emplace_back();
}

void ProgramPrinter::close_loop() {
  defined_.pop_back();
  out_.close();
}

void ProgramPrinter::open_loops(const std::vector<int>& ids) {
  for (int id : ids) open_loop(id);
}

void ProgramPrinter::close_loops(std::size_t count) {
  while (count-- > 0) close_loop();
}

void ProgramPrinter::loop(const Step& s) {
  open_loop(
      s.index, 1,
      s.few ? "TW_UNROLL_BY(" + std::to_string(lowering::turns_unrolled(index(s.index).count)) + ")"
            : "");
  print(s.body);
  close_loop();
}

/// The block's iteration of a grid loop, where it has one.
void ProgramPrinter::blocks(const Step& s) {
  const std::string outer = rest_;
  // Loops that several phases share out alike have one name, in each phase's braces.
  const bool braces = s.idle || p_.kernel->co_resident;
  if (braces) {
    out_.open(s.idle ? "if (" + outer + " < " + std::to_string(s.count) + ")" : "");
    defined_.emplace_back();
  }
  if (s.index >= 0)
    out_.line("const int " + index(s.index).text + " = " + outer +
              (s.below == 1 ? ";" : " / " + std::to_string(s.below) + ";"));
  if (s.below > 1 && s.index >= 0) {
    rest_ = p_.names.fresh("rest");
    out_.line("const int " + rest_ + " = " + outer + " % " + std::to_string(s.below) + ";");
  } else if (s.below == 1) {
    rest_ = "0";
  }
  print(s.body);
  rest_ = outer;
  if (braces) close_loop();
}

void ProgramPrinter::parts(const Step& s) {
  if (s.kind == Step::Kind::parts) return print(s.body);
  const std::string outer = rest_;
  rest_ = p_.names.fresh("rest");
  out_.open("if (" + outer + " >= " + std::to_string(s.first) + " && " + outer + " < " +
            std::to_string(s.first + s.count) + ")");
  defined_.emplace_back();
  out_.line("const int " + rest_ + " = " + outer + " - " + std::to_string(s.first) + ";");
  out_.line("(void)" + rest_ + ";");
  print(s.body);
  close_loop();
  rest_ = outer;
}

// ---- expressions ------------------------------------------------------------------------------

/// A name for a value; the same value keeps the name that it has.
std::string ProgramPrinter::named(const std::string& type, const std::string& base,
                                  const std::string& text) {
  for (const auto& scope : defined_)
    if (const auto found = scope.find(type + text); found != scope.end()) return found->second;
  const std::string name = p_.names.fresh(base);
  out_.line("const " + type + " " + name + " = " + text + ";");
  defined_.back()[type + text] = name;
  return name;
}

/// What must hold, by name; empty: it always does.
std::string ProgramPrinter::condition(const std::vector<Linear>& inside) {
  std::string text;
  for (const Linear& x : inside) text = both(text, positive(p_.variables, x));
  return text.empty() ? text : named("bool", "in", text);
}

/// "at + 128 * j": what the compiler does not know stands in a name of its own, so that turns
/// differ by constants.
std::string ProgramPrinter::offset_text(TensorId t, const Linear& flat) {
  Linear base, rest = number(flat.constant);
  for (const auto& [id, c] : flat.terms) (index(id).unrolled ? rest : base).terms[id] = c;
  std::string text;
  if (!base.terms.empty()) {
    const bool wide = workload_.tensor(t).elements().value >= kLongest;
    std::string value;
    for (const auto& [id, c] : base.terms)
      value += (value.empty() ? "" : " + ") +
               (wide ? "i64(" + std::to_string(c) + ") * " + p_.variables.text({{{id, 1}}, 0})
                     : times(c, p_.variables.text({{{id, 1}}, 0})));
    text = named(wide ? "i64" : "int", "at", value);
  }
  const std::string more = p_.variables.text(rest);
  if (text.empty()) return more;
  return more == "0" ? text : text + (more.front() == '-' ? " " : " + ") + more;
}

/// A value in registers; `of_use`: the user's indices for the maker's.
std::string ProgramPrinter::array(const Value& v, const std::map<int, int>& of_use,
                                  int without) const {
  std::string text = v.name + (v.storage == Storage::shared ? "_sum" : "");
  for (int id : v.dims) {
    if (id == without) continue;
    const auto found = of_use.find(id);
    text += "[" + index(found == of_use.end() ? id : found->second).text + "]";
  }
  return text;
}

std::string ProgramPrinter::shared(const Value& v, const Linear& at) const {
  return v.name + "[" + p_.variables.text(at) + "]";
}

/// "lane == 0 && ...": the thread that acts for all that have the same.
std::string ProgramPrinter::owner(const Copies& c) const {
  return both(c.lane ? "lane == " + p_.variables.text(*c.lane) : "",
              c.warp ? "warp == " + p_.variables.text(*c.warp) : "");
}

}  // namespace tilewright::cuda
