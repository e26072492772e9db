#include "core/workload/reference/places.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/workload/reference/cursor.h"

namespace tilewright::reference {
namespace {

/// Of select(lt(a, b), none, place): the compared inputs, x before the extreme of its row.
struct Compared {
  int x = -1, extreme = -1;
};

std::optional<Compared> compared(const Workload& w, OpId id, const Output& o) {
  const Operator& op = w.op(id);
  const Expr& e = o.value;
  const auto calls = [](const Expr& f, std::string_view name) {
    return f.kind == Expr::Kind::call && f.function == name;
  };
  if (o.combine != Combine::assign || !calls(e, "select") || !calls(e.args[0], "lt") ||
      e.args[1].kind != Expr::Kind::constant)
    return std::nullopt;
  const Expr &a = e.args[0].args[0], &b = e.args[0].args[1];
  if (a.kind != Expr::Kind::input || b.kind != Expr::Kind::input) return std::nullopt;
  const auto is = [&](int x, int extreme, Combine combine) {
    const Access &of = op.inputs[static_cast<std::size_t>(x)],
                 &row = op.inputs[static_cast<std::size_t>(extreme)];
    if (is_gather(of) || is_gather(row) || w.is_input(row.tensor)) return false;
    const Operator& maker = w.op(w.producer(row.tensor));
    return std::ranges::any_of(maker.outputs, [&](const Output& made) {
      return made.target.tensor == row.tensor && made.combine == combine &&
             made.value.kind == Expr::Kind::input &&
             maker.inputs[static_cast<std::size_t>(made.value.input)].tensor == of.tensor;
    });
  };
  if (is(a.input, b.input, Combine::max)) return Compared{a.input, b.input};
  if (is(b.input, a.input, Combine::min)) return Compared{b.input, a.input};
  return std::nullopt;
}

}  // namespace

std::map<std::size_t, double> places_in_doubt(const Workload& w, OpId id, const Output& o,
                                              const Domain& domain, std::span<const Source> sources,
                                              const Arithmetic& in, std::span<double> errors) {
  std::map<std::size_t, double> doubtful;
  const auto inputs = compared(w, id, o);
  if (!inputs) return doubtful;
  const std::size_t n = errors.size();
  const Target elements{&o.target, w.tensor(o.target.tensor).shape, nullptr};
  const auto swept = [&](const Program& program, std::span<const Source> from) {
    std::vector<double> to(n);
    sweep(domain, program, from, {elements.access, elements.shape, to.data()}, Combine::assign, 0);
    return to;
  };
  const auto count = static_cast<int>(sources.size());
  const Program test(o.value.args[0], count), place(o.value.args[2], count);
  const std::vector<double> x = swept(Program::of_source(inputs->x), sources),
                            most = swept(Program::of_source(inputs->extreme), sources),
                            unsure = swept(test.giving(Program::Give::error, in), sources),
                            places = swept(place, sources),
                            off = swept(place.giving(Program::Give::error, in), sources);
  if (std::ranges::any_of(off, [](double e) { return e != 0; })) return doubtful;
  // Of each row, by the elements of m: how many may be the extreme, and how many are: none where m
  // is of another row.
  const Source& row = sources[static_cast<std::size_t>(inputs->extreme)];
  const auto over_rows = [&](auto of_element) {
    std::vector<double> one(n), rows;
    for (std::size_t i = 0; i < n; ++i) one[i] = of_element(i) ? 1 : 0;
    std::int64_t size = 1;
    for (const std::int64_t extent : row.shape) size *= extent;
    rows.resize(static_cast<std::size_t>(size));
    const Source from{elements.access, elements.shape, one.data()};
    sweep(domain, Program::of_source(0), {&from, 1}, {row.access, row.shape, rows.data()},
          Combine::sum, 0);
    const Source back{row.access, row.shape, rows.data()};
    return swept(Program::of_source(0), {&back, 1});
  };
  const auto may_be = [&](std::size_t i) { return unsure[i] > 0 || x[i] == most[i]; };
  const std::vector<double> candidates = over_rows(may_be),
                            extremes = over_rows([&](std::size_t i) { return x[i] == most[i]; });
  for (std::size_t i = 0; i < n; ++i) {
    if (extremes[i] == 0 || !may_be(i)) continue;
    if (candidates[i] == 1)
      errors[i] = 0;
    else if (unsure[i] > 0)
      doubtful[i] = places[i];
  }
  return doubtful;
}

Accepted accepted_places(const Domain& domain, const Source& source, const Target& target,
                         const std::map<std::size_t, double>& doubtful) {
  Accepted accepted;
  if (domain.loops.empty()) return accepted;
  const std::size_t inner = domain.loops.size() - 1;
  Cursor from(*source.access, source.shape, domain.loops, inner),
      to(*target.access, target.shape, domain.loops, inner);
  std::vector<std::int64_t> point;
  for (const Interval& r : domain.ranges) point.push_back(r.lo);
  for (bool more = true; more;) {
    from.move(point, domain.ranges[inner]);
    to.move(point, domain.ranges[inner]);
    const Interval both = intersect(from.valid(), to.valid());
    for (std::int64_t i = both.lo; i < both.hi; ++i)
      if (const auto at = doubtful.find(static_cast<std::size_t>(from.offset(i)));
          at != doubtful.end())
        accepted[static_cast<std::size_t>(to.offset(i))].push_back(at->second);
    more = false;
    for (std::size_t d = inner; d-- > 0 && !more;) {
      more = ++point[d] < domain.ranges[d].hi;
      if (!more) point[d] = domain.ranges[d].lo;
    }
  }
  return accepted;
}

}  // namespace tilewright::reference
