#include "codegen/npu/reroll.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

namespace tilewright::npu {
namespace {

bool same_shape(const std::vector<Rolled>& a, const std::vector<Rolled>& b);

/// Equal but for the operands' bases.
bool same_shape(const Rolled& a, const Rolled& b) {
  if (a.trips != b.trips || a.choices.size() != b.choices.size()) return false;
  if (a.is_loop()) return same_shape(a.body, b.body);
  for (std::size_t i = 0; i < a.choices.size(); ++i)
    if (a.choices[i].first != b.choices[i].first || a.choices[i].count != b.choices[i].count ||
        !same_shape(a.choices[i].body, b.choices[i].body))
      return false;
  return a.instruction == b.instruction && a.comment == b.comment &&
         std::ranges::equal(a.operands, b.operands, {}, &AffineOperand::coefficients,
                            &AffineOperand::coefficients);
}

bool same_shape(const std::vector<Rolled>& a, const std::vector<Rolled>& b) {
  return std::ranges::equal(
      a, b, [](const Rolled& x, const Rolled& y) { return same_shape(x, y); });
}

/// The bases of all operands, in order.
void bases(const std::vector<Rolled>& body, std::vector<std::int64_t>& all) {
  for (const Rolled& r : body) {
    for (const AffineOperand& o : r.operands) all.push_back(o.base);
    bases(r.body, all);
    for (const Run& c : r.choices) bases(c.body, all);
  }
}

/// Gives every operand a coefficient of one more loop around.
void add_coefficients(std::vector<Rolled>& body, const std::vector<std::int64_t>& by,
                      std::size_t& at) {
  for (Rolled& r : body) {
    for (AffineOperand& o : r.operands) o.coefficients.push_back(by[at++]);
    add_coefficients(r.body, by, at);
    for (Run& c : r.choices) add_coefficients(c.body, by, at);
  }
}

/// Operands said of the position itself instead of the distance from the first.
void count_from_zero(std::vector<Rolled>& body, std::int64_t first) {
  for (Rolled& r : body) {
    for (AffineOperand& o : r.operands) o.base -= o.coefficients.back() * first;
    count_from_zero(r.body, first);
    for (Run& c : r.choices) count_from_zero(c.body, first);
  }
}

/// Iterations with what is compared over and over: which have the same shape, and their bases.
class Iterations {
 public:
  explicit Iterations(std::vector<std::vector<Rolled>> all) : all_(std::move(all)) {
    std::vector<std::size_t> examples;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      bases_.emplace_back();
      bases(all_[i], bases_.back());
      const auto like = std::ranges::find_if(
          examples, [&](std::size_t e) { return same_shape(all_[e], all_[i]); });
      shape_.push_back(static_cast<std::size_t>(like - examples.begin()));
      if (like == examples.end()) examples.push_back(i);
    }
  }

  std::size_t size() const { return all_.size(); }

  /// Turns of `period` iterations from `at` on that advance evenly.
  std::size_t turns(std::size_t at, std::size_t period) const {
    std::size_t n = 1;
    while (at + (n + 1) * period <= size() && advances(at, n, period)) ++n;
    return at + period <= size() ? n : 0;
  }

  std::vector<Rolled> body(std::size_t at, std::size_t period) {
    std::vector<Rolled> all;
    for (std::size_t p = 0; p < period; ++p)
      std::ranges::move(all_[at + p], std::back_inserter(all));
    return all;
  }

  /// What every operand of a turn advances by from `at` on; nothing where there is one turn.
  std::vector<std::int64_t> advance(std::size_t at, std::size_t period, std::size_t turns) const {
    std::vector<std::int64_t> by;
    for (std::size_t p = 0; p < period; ++p)
      for (std::size_t j = 0; j < bases_[at + p].size(); ++j)
        by.push_back(turns < 2 ? 0 : bases_[at + period + p][j] - bases_[at + p][j]);
    return by;
  }

 private:
  bool advances(std::size_t at, std::size_t turn, std::size_t period) const {
    for (std::size_t p = 0; p < period; ++p) {
      const std::size_t now = at + turn * period + p, before = now - period;
      if (shape_[now] != shape_[before]) return false;
      if (turn == 1) continue;
      for (std::size_t j = 0; j < bases_[now].size(); ++j)
        if (bases_[now][j] - bases_[before][j] !=
            bases_[before][j] - bases_[before - period][j])
          return false;
    }
    return true;
  }

  std::vector<std::vector<Rolled>> all_;
  std::vector<std::vector<std::int64_t>> bases_;
  std::vector<std::size_t> shape_;
};

Rolled rolled(const TraceStep& step) {
  Rolled r{.instruction = step.instruction, .comment = step.comment};
  for (IntExpr* e : operands(r.instruction)) {
    TW_CHECK(e->is_literal(), "an operand of a trace that is not a number");
    r.operands.push_back({.base = e->literal()});
    *e = 0;
  }
  return r;
}

/// A trace's loop as loops of the program, and what stands before, between and after them.
void roll_loop(const TraceNode& loop, std::vector<Rolled>& out) {
  std::vector<std::vector<Rolled>> all;
  for (const auto& iteration : loop.iterations) all.push_back(reroll(iteration));
  Iterations iterations(std::move(all));
  for (std::size_t at = 0; at < iterations.size();) {
    std::size_t period = 1, turns = 1;
    for (std::size_t p = 1; p <= kMostPeriod; ++p)
      if (const std::size_t n = iterations.turns(at, p); n > 1 && n * p > turns * period)
        period = p, turns = n;
    if (turns < 2) {
      std::ranges::move(iterations.body(at, 1), std::back_inserter(out));
      ++at;
      continue;
    }
    Rolled r{.counter = loop.counter, .trips = static_cast<std::int64_t>(turns)};
    const std::vector<std::int64_t> by = iterations.advance(at, period, turns);
    r.body = iterations.body(at, period);
    std::size_t first = 0;
    add_coefficients(r.body, by, first);
    if (!r.body.empty()) out.push_back(std::move(r));
    at += turns * period;
  }
}

IntExpr expression(const AffineOperand& o, const std::vector<IntExpr>& scalars) {
  std::optional<IntExpr> sum;
  for (std::size_t j = 0; j < o.coefficients.size(); ++j) {  // outermost first reads best
    const std::int64_t c = o.coefficients[o.coefficients.size() - 1 - j];
    if (c == 0) continue;
    const IntExpr& s = scalars[scalars.size() - o.coefficients.size() + j];
    const IntExpr size = (c < 0 ? -c : c) == 1 ? s : s * IntExpr(c < 0 ? -c : c);
    sum = !sum ? (c < 0 ? -size : size) : (c < 0 ? *sum - size : *sum + size);
  }
  if (!sum) return o.base;
  if (o.base == 0) return *sum;
  return o.base < 0 ? *sum - IntExpr(-o.base) : *sum + IntExpr(o.base);
}

}  // namespace

std::vector<Rolled> reroll(const std::vector<TraceNode>& trace) {
  std::vector<Rolled> all;
  for (const TraceNode& n : trace) {
    if (n.is_loop())
      roll_loop(n, all);
    else
      all.push_back(rolled(n.step));
  }
  return all;
}

void Runs::add(std::vector<Rolled> position) {
  std::vector<std::int64_t> now;
  bases(position, now);
  if (count_ > 0 && same_shape(first_, position)) {
    std::vector<std::int64_t> step(now.size());
    std::ranges::transform(now, last_, step.begin(), std::minus());
    if (count_ == 1 || step == step_) {
      step_ = std::move(step);
      last_ = std::move(now);
      ++count_;
      return;
    }
  }
  close();
  first_ = std::move(position);
  step_.assign(now.size(), 0);
  last_ = std::move(now);
  count_ = 1;
}

void Runs::close() {
  if (count_ == 0) return;
  Run run{.first = begin_, .count = count_, .body = std::move(first_)};
  std::size_t operand = 0;
  add_coefficients(run.body, step_, operand);
  count_from_zero(run.body, run.first);
  found_.push_back(std::move(run));
  begin_ += count_;
  count_ = 0;
}

std::vector<Run> Runs::take() {
  close();
  return std::move(found_);
}

namespace {

/// The first choice whose positions reach past the coordinate.
std::vector<Statement> choose(const std::vector<Run>& choices, std::size_t at,
                              const std::vector<IntExpr>& scalars) {
  std::vector<Statement> then = statements(choices[at].body, scalars);
  if (at + 1 == choices.size()) return then;
  Branch branch{.condition = less(scalars.back(), IntExpr(choices[at + 1].first)),
                .then = std::move(then),
                .otherwise = choose(choices, at + 1, scalars)};
  std::vector<Statement> all;
  all.push_back({.action = std::move(branch)});
  return all;
}

}  // namespace

std::vector<Statement> statements(const std::vector<Rolled>& body,
                                  const std::vector<IntExpr>& scalars) {
  std::vector<Statement> all;
  for (const Rolled& r : body) {
    if (!r.choices.empty()) {
      std::vector<IntExpr> inside = scalars;
      inside.push_back(scalar(r.counter));
      all.push_back({.action = Assign{.name = r.counter, .value = r.coordinate}});
      std::ranges::move(choose(r.choices, 0, inside), std::back_inserter(all));
      continue;
    }
    if (r.is_loop()) {
      std::string name = r.counter;
      for (int i = 2; std::ranges::find(scalars, scalar(name)) != scalars.end(); ++i)
        name = r.counter + "_" + std::to_string(i);
      std::vector<IntExpr> inside = scalars;
      inside.push_back(scalar(name));
      Loop loop{.counter = name, .from = 0, .to = r.trips, .body = statements(r.body, inside)};
      all.push_back({.action = std::move(loop)});
      continue;
    }
    Instruction instruction = r.instruction;
    std::size_t at = 0;
    for (IntExpr* e : operands(instruction)) *e = expression(r.operands[at++], scalars);
    std::visit(
        [&](auto& i) {
          all.push_back({.action = std::move(i), .comment = r.comment});
        },
        instruction);
  }
  return all;
}

}  // namespace tilewright::npu
