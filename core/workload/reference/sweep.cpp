#include "core/workload/reference/sweep.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/workload/reference/cursor.h"
#include "core/workload/reference/threads.h"

namespace tilewright::reference {
namespace {

using Code = Program::Instruction::Code;

// Long enough to make interpreting cheap, short enough for a few rows to stay in the L1 cache.
constexpr std::int64_t kRow = 256;
using Row = std::array<double, kRow>;

// Sums along a row are kept in so many parts, so that an addition need not wait for the one before.
constexpr std::int64_t kLanes = 8;

// A domain is cut into pieces of at least so many points, and into no more pieces than are of use.
constexpr std::int64_t kLeastPiece = std::int64_t{1} << 15;
constexpr std::size_t kMostPieces = 256;
// Where what is reduced cannot be cut by what it is reduced to: so many parts with results of their
// own, and at most so many elements each.
constexpr std::int64_t kParts = 64, kMostPartial = std::int64_t{1} << 14;

double combine_values(Combine combine, double a, double b) {
  switch (combine) {
    case Combine::assign:
      return b;
    case Combine::sum:
      return a + b;
    case Combine::product:
      return a * b;
    case Combine::max:
      return larger(a, b);
    case Combine::min:
      return smaller(a, b);
  }
  return b;
}

template <class F>
double fold(double first, const double* values, std::int64_t n, F f) {
  double r = first;
  std::int64_t i = 0;
  if (n >= 2 * kLanes) {
    std::array<double, kLanes> lanes;
    std::copy_n(values, kLanes, lanes.begin());
    for (i = kLanes; i + kLanes <= n; i += kLanes)
      for (std::int64_t l = 0; l < kLanes; ++l) {
        double& lane = lanes[static_cast<std::size_t>(l)];
        lane = f(lane, values[i + l]);
      }
    for (double lane : lanes) r = f(r, lane);
  }
  for (; i < n; ++i) r = f(r, values[i]);
  return r;
}

template <class F>
void combine_row(double* to, std::int64_t stride, const double* values, std::int64_t n, F f) {
  if (stride == 0) {  // the innermost loop is reduced
    *to = fold(*to, values, n, f);
  } else if (stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = f(to[i], values[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * stride] = f(to[i * stride], values[i]);
  }
}

void write_row(const Cursor& c, double* data, Interval part, const double* row, Combine combine) {
  const Interval valid = intersect(c.valid(), part);
  if (valid.empty()) return;
  double* to = data + c.offset(valid.lo);
  const double* from = row + (valid.lo - part.lo);
  const auto with = [&](auto f) { combine_row(to, c.stride(), from, valid.size(), f); };
  switch (combine) {
    case Combine::assign:
      return with([](double, double b) { return b; });
    case Combine::sum:
      return with([](double a, double b) { return a + b; });
    case Combine::product:
      return with([](double a, double b) { return a * b; });
    case Combine::max:
      return with([](double a, double b) { return combine_values(Combine::max, a, b); });
    case Combine::min:
      return with([](double a, double b) { return combine_values(Combine::min, a, b); });
  }
}

/// Runs a program over rows. Values are where they lie: in a source, or in a row of the stack; so
/// are their errors, where the program asks for them.
class Runner {
 public:
  /// Rows run along domain.loops[inner].
  Runner(const Program& program, std::span<const Source> sources, const Domain& domain,
         std::size_t inner)
      : program_(program),
        sources_(sources),
        domain_(domain),
        inner_(inner),
        errors_(program.give() != Program::Give::value),
        stack_(static_cast<std::size_t>(program.depth())),
        constants_(program.constants().size()),
        at_(stack_.size()) {
    constant_errors_.resize(constants_.size());
    for (std::size_t i = 0; i < constants_.size(); ++i) {
      const double c = program.constants()[i];
      constants_[i].fill(c);
      // Kernels in f32 have the constant rounded: by how much is known.
      const auto rounded = static_cast<double>(static_cast<float>(c));
      const bool exact = program.arithmetic().unit < 0x1p-40 || !std::isfinite(rounded);
      constant_errors_[i].fill(exact ? 0.0 : std::abs(c - rounded));
    }
    if (!errors_) return;
    error_stack_.resize(stack_.size());
    errors_at_.resize(stack_.size());
    zero_.fill(0.0);
  }

  /// What the program gives over that part of the row at `point`; it stays until the next call.
  const double* run(std::span<const Cursor> cursors, std::span<const std::int64_t> point,
                    Interval part) {
    const std::int64_t n = part.size();
    std::size_t top = 0;
    for (const Program::Instruction& i : program_.code()) {
      const auto place = static_cast<std::size_t>(i.place);
      switch (i.code) {
        case Code::source:
          at_[top] = source(cursors[place], sources_[place].data, part, stack_[top]);
          if (errors_)
            errors_at_[top] =
                sources_[place].errors == nullptr
                    ? zero_.data()
                    : source(cursors[place], sources_[place].errors, part, error_stack_[top]);
          ++top;
          break;
        case Code::index:
          index(i.loop, point, part, stack_[top]);
          if (errors_) errors_at_[top] = zero_.data();
          at_[top] = stack_[top].data();
          ++top;
          break;
        case Code::constant:
          if (errors_) errors_at_[top] = constant_errors_[place].data();
          at_[top++] = constants_[place].data();
          break;
        default:
          top -= static_cast<std::size_t>(i.arity);
          call(i, top, n);
          ++top;
          break;
      }
    }
    return errors_ ? given(n) : at_[0];
  }

 private:
  void index(LoopId loop, std::span<const std::int64_t> point, Interval part, Row& row) const {
    const auto at =
        static_cast<std::size_t>(std::ranges::find(domain_.loops, loop) - domain_.loops.begin());
    TW_CHECK(at < domain_.loops.size(), "a program reads the index of a loop outside the domain");
    if (at == inner_)
      std::iota(row.begin(), row.begin() + part.size(), static_cast<double>(part.lo));
    else
      std::fill_n(row.begin(), part.size(), static_cast<double>(point[at]));
  }

  /// Arguments from `top` on; the result takes the place of the first.
  void call(const Program::Instruction& i, std::size_t top, std::int64_t n) {
    // Rules need the arguments beside the result, so that it gets a row of its own.
    double* const to = errors_ ? result_.data() : stack_[top].data();
    if (i.code == Code::max)
      binary(top, n, larger, to);
    else if (i.code == Code::min)
      binary(top, n, smaller, to);
    else
      i.function(&at_[top], n, to);
    if (errors_) {
      i.errors(&at_[top], &errors_at_[top], to, n, program_.arithmetic_of(i),
               error_stack_[top].data());
      errors_at_[top] = error_stack_[top].data();
      std::copy_n(to, n, stack_[top].begin());
    }
    at_[top] = stack_[top].data();
  }

  template <class F>
  void binary(std::size_t top, std::int64_t n, F f, double* to) {
    const double *a = at_[top], *b = at_[top + 1];
    for (std::int64_t i = 0; i < n; ++i) to[i] = f(a[i], b[i]);
  }

  const double* given(std::int64_t n) {
    const double *const value = at_[0], *const error = errors_at_[0];
    const double reach = program_.arithmetic().reach, factor = program_.factor();
    const auto each = [&](auto f) {
      for (std::int64_t i = 0; i < n; ++i)
        result_[static_cast<std::size_t>(i)] = f(value[i], error[i]);
      return result_.data();
    };
    switch (program_.give()) {
      case Program::Give::lowest:
        return each([reach](double v, double e) { return v - reach * e; });
      case Program::Give::highest:
        return each([reach](double v, double e) { return v + reach * e; });
      case Program::Give::largest:
        return each([reach](double v, double e) { return std::abs(v) + reach * e; });
      case Program::Give::squares:
        return each([factor](double v, double e) { return e * e + factor * v * v; });
      default:
        return error;
    }
  }

  static const double* source(const Cursor& c, const double* data, Interval part, Row& row) {
    const Interval valid = intersect(c.valid(), part);
    const std::int64_t stride = c.stride();
    if (valid == part && stride == 1) return data + c.offset(part.lo);
    const std::int64_t n = valid.size();
    if (valid != part) std::fill_n(row.begin(), part.size(), 0.0);
    if (n == 0) return row.data();
    const double* from = data + c.offset(valid.lo);
    double* to = row.data() + (valid.lo - part.lo);
    if (stride == 0)
      std::fill_n(to, n, *from);
    else
      for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
    return row.data();
  }

  const Program& program_;
  std::span<const Source> sources_;
  const Domain& domain_;
  std::size_t inner_;
  bool errors_;
  std::vector<Row> stack_, error_stack_, constants_, constant_errors_;
  std::vector<const double*> at_, errors_at_;
  Row zero_, result_;
};

/// The loop that rows run along: the one that makes reading and writing a point cheapest, the last
/// of those. In units of about an L1 access: elements apart cost a cache line more the farther they
/// are, and a short row its own beginning.
std::size_t innermost(const Domain& domain, std::span<const Source> sources, const Target& target) {
  constexpr double kFarthest = 8, kRowCost = 24;
  const auto cost = [&](std::size_t l) {
    const auto access = [&](const Access& a, std::span<const std::int64_t> shape) {
      const double along = std::abs(static_cast<double>(stride_along(a, shape, domain.loops[l])));
      return std::min(along, kFarthest) +
             kRowCost / static_cast<double>(std::min(domain.ranges[l].size(), kRow));
    };
    double all = access(*target.access, target.shape);
    for (const Source& s : sources) all += access(*s.access, s.shape);
    return all;
  };
  std::size_t best = 0;
  for (std::size_t l = 1; l < domain.loops.size(); ++l)
    if (cost(l) <= cost(best)) best = l;
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

/// A sweep whose rows run along domain.loops[inner], by one thread.
void sweep_piece(const Domain& domain, std::size_t inner, const Program& program,
                 std::span<const Source> sources, const Target& target, Combine combine) {
  // Without loops there is one point: a row of length one that no access moves along.
  const Interval along = domain.loops.empty() ? Interval{0, 1} : domain.ranges[inner];
  std::vector<Cursor> cursors;
  cursors.reserve(sources.size());
  for (const Source& s : sources) cursors.emplace_back(*s.access, s.shape, domain.loops, inner);
  Cursor out(*target.access, target.shape, domain.loops, inner);

  std::vector<std::int64_t> point;
  for (const Interval& r : domain.ranges) point.push_back(r.lo);
  Runner runner(program, sources, domain, inner);
  do {
    for (Cursor& c : cursors) c.move(point, along);
    out.move(point, along);
    if (out.valid().empty()) continue;
    for (std::int64_t lo = along.lo; lo < along.hi; lo += kRow) {
      const Interval part{lo, std::min(lo + kRow, along.hi)};
      write_row(out, target.data, part, runner.run(cursors, point, part), combine);
    }
  } while (advance(point, domain, inner));
}

/// The two halves of a domain along a loop.
std::array<Domain, 2> halves(const Domain& domain, std::size_t loop) {
  std::array<Domain, 2> two{domain, domain};
  const Interval r = domain.ranges[loop];
  two[0].ranges[loop].hi = two[1].ranges[loop].lo = r.lo + r.size() / 2;
  return two;
}

/// The loops that alone index a dimension of the target, so that different values of one write to
/// different elements; `inner` last, because a row that is cut costs more.
std::vector<std::size_t> separating_loops(const Domain& domain, const Target& target,
                                          std::size_t inner) {
  std::vector<std::size_t> loops;
  for (const Affine& f : target.access->index) {
    if (f.terms.size() != 1 || f.terms[0].coefficient == 0) continue;
    const auto at = std::find(domain.loops.begin(), domain.loops.end(), f.terms[0].loop);
    loops.push_back(static_cast<std::size_t>(at - domain.loops.begin()));
  }
  std::stable_partition(loops.begin(), loops.end(), [&](std::size_t l) { return l != inner; });
  return loops;
}

/// The domain in pieces that write to different elements. They follow from the extents alone.
std::vector<Domain> pieces_of(const Domain& domain, const Target& target, std::size_t inner) {
  constexpr std::int64_t kLeastRow = kRow / 4;
  std::vector<Domain> pieces{domain};
  for (std::size_t l : separating_loops(domain, target, inner))
    while (pieces.size() < kMostPieces && pieces.front().points() >= 2 * kLeastPiece &&
           pieces.front().ranges[l].size() >= (l == inner ? 2 * kLeastRow : 2)) {
      std::vector<Domain> finer;
      for (const Domain& piece : pieces)
        for (Domain& half : halves(piece, l)) finer.push_back(std::move(half));
      pieces = std::move(finer);
    }
  return pieces;
}

/// A reduction in parts, each into a copy of the target that starts from the identity; the parts
/// are then combined in order. For reductions to so little that pieces_of finds nothing to cut.
void sweep_parts(const Domain& domain, std::size_t loop, std::size_t inner, const Program& program,
                 std::span<const Source> sources, const Target& target, Combine combine,
                 int threads) {
  std::int64_t elements = 1;
  for (std::int64_t extent : target.shape) elements *= extent;
  const auto size = static_cast<std::size_t>(elements);
  std::vector<double> partial(size * kParts, identity_of(combine));
  const Interval all = domain.ranges[loop];
  for_each_piece(kParts, threads, [&](std::int64_t i) {
    Domain part = domain;
    part.ranges[loop] = {all.lo + all.size() * i / kParts, all.lo + all.size() * (i + 1) / kParts};
    sweep_piece(part, inner, program, sources,
                {target.access, target.shape, &partial[static_cast<std::size_t>(i) * size]},
                combine);
  });
  for (std::size_t i = 0; i < partial.size(); ++i) {
    double& to = target.data[i % size];
    to = combine_values(combine, to, partial[i]);
  }
}

/// The loop that a reduction is cut along where its result cannot be; none where one thread does
/// it.
std::optional<std::size_t> cut_reduction(const Domain& domain, const Target& target,
                                         Combine combine) {
  std::int64_t elements = 1;
  for (std::int64_t extent : target.shape) elements *= extent;
  if (combine == Combine::assign || elements > kMostPartial ||
      domain.points() < 2 * kParts * std::max(elements, kLeastPiece))
    return std::nullopt;
  for (std::size_t l = 0; l < domain.loops.size(); ++l)
    if (domain.ranges[l].size() >= kParts &&
        stride_along(*target.access, target.shape, domain.loops[l]) == 0)
      return l;
  return std::nullopt;
}

}  // namespace

std::int64_t Domain::points() const {
  std::int64_t n = 1;
  for (const Interval& r : ranges) n *= r.size();
  return n;
}

void sweep(const Domain& domain, const Program& program, std::span<const Source> sources,
           const Target& target, Combine combine, int threads) {
  if (domain.points() == 0) return;
  if (domain.points() < 2 * kLeastPiece) {
    const std::size_t inner = domain.loops.empty() ? 0 : innermost(domain, sources, target);
    return sweep_piece(domain, inner, program, sources, target, combine);
  }
  const std::size_t inner = innermost(domain, sources, target);
  const std::vector<Domain> pieces = pieces_of(domain, target, inner);
  constexpr std::size_t kEnough = 16;
  if (pieces.size() < kEnough)
    if (const auto loop = cut_reduction(domain, target, combine))
      return sweep_parts(domain, *loop, inner, program, sources, target, combine, threads);
  for_each_piece(static_cast<std::int64_t>(pieces.size()), threads, [&](std::int64_t i) {
    sweep_piece(pieces[static_cast<std::size_t>(i)], inner, program, sources, target, combine);
  });
}

}  // namespace tilewright::reference
