#include "core/reference/sweep.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tilewright::reference {
namespace {

using Code = Program::Instruction::Code;

// Long enough to make interpreting cheap, short enough for a few rows to stay in the L1 cache.
constexpr std::int64_t kRow = 256;
using Row = std::array<double, kRow>;

constexpr int kMaxArity = 3;

std::int64_t floor_div(std::int64_t a, std::int64_t b) {  // b > 0
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}
std::int64_t ceiling_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

// Values of `i` for which 0 <= base + c*i < extent, within `range`.
Interval inside(std::int64_t base, std::int64_t c, std::int64_t extent, Interval range) {
  if (c == 0) return base >= 0 && base < extent ? range : Interval{range.lo, range.lo};
  const Interval hit =
      c > 0 ? Interval{ceiling_div(-base, c), floor_div(extent - 1 - base, c) + 1}
            : Interval{ceiling_div(base - (extent - 1), -c), floor_div(base, -c) + 1};
  return intersect(hit, range);
}

// An access with its loops as positions in the domain, the innermost loop apart.
class Cursor {
 public:
  Cursor(const Access& access, std::span<const std::int64_t> shape, const Domain& domain,
         std::size_t inner) {
    std::int64_t stride = 1;
    dims_.resize(shape.size());
    for (std::size_t d = shape.size(); d-- > 0;) {
      Dim& dim = dims_[d];
      dim.extent = shape[d];
      dim.stride = stride;
      stride *= shape[d];
      dim.offset = access.index[d].offset;
      for (const Term& t : access.index[d].terms) {
        const auto at = std::find(domain.loops.begin(), domain.loops.end(), t.loop);
        TW_CHECK(at != domain.loops.end(), "an access names a loop outside the domain");
        const auto position = static_cast<std::size_t>(at - domain.loops.begin());
        if (position == inner)
          dim.inner += t.coefficient;
        else
          dim.outer.push_back({position, t.coefficient});
      }
      inner_stride_ += dim.inner * dim.stride;
    }
  }

  // At a new row: where i = 0 lies, and which i of `range` fall inside the array.
  void move(std::span<const std::int64_t> point, Interval range) {
    base_ = 0;
    valid_ = range;
    for (const Dim& dim : dims_) {
      std::int64_t at = dim.offset;
      for (const auto& [position, coefficient] : dim.outer) at += coefficient * point[position];
      valid_ = inside(at, dim.inner, dim.extent, valid_);
      base_ += at * dim.stride;
    }
  }
  std::int64_t offset(std::int64_t i) const { return base_ + i * inner_stride_; }
  std::int64_t stride() const { return inner_stride_; }
  Interval valid() const { return valid_; }

 private:
  struct Dim {
    std::int64_t extent = 0;
    std::int64_t stride = 0;
    std::int64_t offset = 0;
    std::int64_t inner = 0;
    std::vector<std::pair<std::size_t, std::int64_t>> outer;
  };
  std::vector<Dim> dims_;
  std::int64_t inner_stride_ = 0;
  std::int64_t base_ = 0;
  Interval valid_;
};

void read_row(const Cursor& c, const double* data, Interval part, Row& row) {
  const Interval valid = intersect(c.valid(), part);
  const auto n = static_cast<std::size_t>(part.size());
  if (valid.empty()) {
    std::fill_n(row.begin(), n, 0.0);
    return;
  }
  if (valid != part) std::fill_n(row.begin(), n, 0.0);
  const double* from = data + c.offset(valid.lo);
  double* to = row.data() + (valid.lo - part.lo);
  const std::int64_t stride = c.stride();
  for (std::int64_t i = 0; i < valid.size(); ++i) to[i] = from[i * stride];
}

double combine_values(Combine c, double a, double b) {
  switch (c) {
    case Combine::assign:
      return b;
    case Combine::sum:
      return a + b;
    case Combine::product:
      return a * b;
    case Combine::max:
      return b > a || std::isnan(b) ? b : a;
    case Combine::min:
      return b < a || std::isnan(b) ? b : a;
  }
  return b;
}

template <class F>
void combine_row(double* to, std::int64_t stride, const double* values, std::int64_t n, F f) {
  if (stride == 0) {  // the innermost loop is reduced
    double r = *to;
    for (std::int64_t i = 0; i < n; ++i) r = f(r, values[i]);
    *to = r;
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) to[i * stride] = f(to[i * stride], values[i]);
}

void write_row(const Cursor& c, double* data, Interval part, const Row& row, Combine combine) {
  const Interval valid = intersect(c.valid(), part);
  if (valid.empty()) return;
  double* to = data + c.offset(valid.lo);
  const double* from = row.data() + (valid.lo - part.lo);
  switch (combine) {
    case Combine::assign:
      combine_row(to, c.stride(), from, valid.size(), [](double, double b) { return b; });
      return;
    case Combine::sum:
      combine_row(to, c.stride(), from, valid.size(), [](double a, double b) { return a + b; });
      return;
    default:
      combine_row(to, c.stride(), from, valid.size(),
                  [combine](double a, double b) { return combine_values(combine, a, b); });
  }
}

template <class F>
void binary(std::vector<Row>& stack, std::size_t& top, std::int64_t n, F f) {
  --top;
  double* a = stack[top - 1].data();
  const double* b = stack[top].data();
  for (std::int64_t i = 0; i < n; ++i) a[i] = f(a[i], b[i]);
}

void call(const ExprFunction& f, std::vector<Row>& stack, std::size_t& top, std::int64_t n) {
  const auto arity = static_cast<std::size_t>(f.arity);
  top -= arity;
  std::array<double, kMaxArity> args{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    for (std::size_t a = 0; a < arity; ++a) args[a] = stack[top + a][i];
    stack[top][i] = f.evaluate(args.data());
  }
  ++top;
}

// Leaves the values of one part of a row in stack[0].
void run(const Program& program, std::span<const Source> sources, std::span<const Cursor> cursors,
         Interval part, std::vector<Row>& stack) {
  const std::int64_t n = part.size();
  std::size_t top = 0;
  for (const Program::Instruction& i : program.code()) {
    switch (i.code) {
      case Code::source: {
        const auto s = static_cast<std::size_t>(i.source);
        read_row(cursors[s], sources[s].data, part, stack[top++]);
        break;
      }
      case Code::constant:
        std::fill_n(stack[top++].begin(), n, i.constant);
        break;
      case Code::add:
        binary(stack, top, n, [](double a, double b) { return a + b; });
        break;
      case Code::sub:
        binary(stack, top, n, [](double a, double b) { return a - b; });
        break;
      case Code::mul:
        binary(stack, top, n, [](double a, double b) { return a * b; });
        break;
      case Code::max:
        binary(stack, top, n, [](double a, double b) { return b > a || a != a ? b : a; });
        break;
      case Code::min:
        binary(stack, top, n, [](double a, double b) { return b < a || a != a ? b : a; });
        break;
      case Code::neg:
        for (std::int64_t j = 0; j < n; ++j) {
          double& v = stack[top - 1][static_cast<std::size_t>(j)];
          v = -v;
        }
        break;
      case Code::call:
        call(*i.function, stack, top, n);
        break;
    }
  }
}

// The loop that rows run along: the longest, the last of those.
std::size_t innermost(const Domain& domain) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < domain.ranges.size(); ++i)
    if (domain.ranges[i].size() >= domain.ranges[best].size()) best = i;
  return best;
}

// Moves `point` to the next row; false after the last.
bool advance(std::vector<std::int64_t>& point, const Domain& domain, std::size_t inner) {
  for (std::size_t d = point.size(); d-- > 0;) {
    if (d == inner) continue;
    if (++point[d] < domain.ranges[d].hi) return true;
    point[d] = domain.ranges[d].lo;
  }
  return false;
}

}  // namespace

Program::Program(const Expr& e, int inputs) { emit(e, inputs, 0); }

Program Program::of_constant(double value) {
  return Program(Expr{.kind = Expr::Kind::constant, .constant = value}, 0);
}

Program Program::of_source(int source) {
  return Program(Expr{.kind = Expr::Kind::input, .input = source}, 0);
}

void Program::emit(const Expr& e, int inputs, int below) {
  depth_ = std::max(depth_, below + 1);
  switch (e.kind) {
    case Expr::Kind::input:
      code_.push_back({.code = Code::source, .source = e.input});
      return;
    case Expr::Kind::before:
      code_.push_back({.code = Code::source, .source = inputs + 2 * e.input});
      return;
    case Expr::Kind::after:
      code_.push_back({.code = Code::source, .source = inputs + 2 * e.input + 1});
      return;
    case Expr::Kind::constant:
      code_.push_back({.code = Code::constant, .constant = e.constant});
      return;
    case Expr::Kind::call:
      break;
  }
  int args = 0;
  for (const Expr& a : e.args) emit(a, inputs, below + args++);
  const ExprFunction* f = find_expr_function(e.function);
  TW_CHECK(f != nullptr && f->arity == args && args <= kMaxArity,
           "a checked workload calls '" + e.function + "'");
  // Those that take one instruction are inlined; max and min treat a NaN as fmax and fmin do.
  constexpr std::array<std::pair<std::string_view, Code>, 6> kInlined{{{"add", Code::add},
                                                                       {"sub", Code::sub},
                                                                       {"mul", Code::mul},
                                                                       {"max", Code::max},
                                                                       {"min", Code::min},
                                                                       {"neg", Code::neg}}};
  for (const auto& [name, code] : kInlined) {
    if (name == e.function) {
      code_.push_back({.code = code});
      return;
    }
  }
  code_.push_back({.code = Code::call, .function = f});
}

std::int64_t Domain::points() const {
  std::int64_t n = 1;
  for (const Interval& r : ranges) n *= r.size();
  return n;
}

void sweep(const Domain& domain, const Program& program, std::span<const Source> sources,
           const Target& target, Combine combine) {
  if (domain.points() == 0) return;
  // Without loops there is one point: a row of length one that no access moves along.
  const bool scalar = domain.loops.empty();
  const std::size_t inner = scalar ? 0 : innermost(domain);
  const Interval along = scalar ? Interval{0, 1} : domain.ranges[inner];

  std::vector<Cursor> cursors;
  cursors.reserve(sources.size());
  for (const Source& s : sources) cursors.emplace_back(*s.access, s.shape, domain, inner);
  Cursor out(*target.access, target.shape, domain, inner);

  std::vector<std::int64_t> point;
  for (const Interval& r : domain.ranges) point.push_back(r.lo);
  std::vector<Row> stack(static_cast<std::size_t>(program.depth()));
  do {
    for (Cursor& c : cursors) c.move(point, along);
    out.move(point, along);
    if (out.valid().empty()) continue;
    for (std::int64_t lo = along.lo; lo < along.hi; lo += kRow) {
      const Interval part{lo, std::min(lo + kRow, along.hi)};
      run(program, sources, cursors, part, stack);
      write_row(out, target.data, part, stack[0], combine);
    }
  } while (advance(point, domain, inner));
}

}  // namespace tilewright::reference
