#include "core/workload/reference/error_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "core/base/error.h"

namespace tilewright::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// How many roundings the functions are off by as kernels compute them: quotients and roots by
// approximations and a step of Newton, the others by polynomials or the device's instructions.
constexpr double kQuotient = 3, kFunction = 6;

/// One point: the arguments' values and errors, and the result.
struct Point {
  std::array<double, 3> x, e;
  double v;
  const Arithmetic& in;

  double rounding(double times = 1) const { return times * in.unit * std::abs(v); }
  double reach(int a) const { return in.reach * e[static_cast<std::size_t>(a)]; }
};

using Rule = double (*)(const Point&);

/// Whole numbers that f32 holds, loops' indices for one, are added and multiplied without an error;
/// so are infinities.
bool is_exact(const Point& p) {
  if (p.e[0] != 0 || p.e[1] != 0) return false;
  const auto whole = [](double x) { return std::abs(x) <= 0x1p24 && x == std::nearbyint(x); };
  return std::isinf(p.v) || (whole(p.v) && whole(p.x[0]) && whole(p.x[1]));
}

double sum(const Point& p) {
  // An infinity takes in whatever is added to it.
  if (std::isinf(p.v) && std::isfinite(p.e[0]) && std::isfinite(p.e[1])) return 0;
  return is_exact(p) ? 0 : p.e[0] + p.e[1] + p.rounding();
}

double product(const Point& p) {
  if (is_exact(p)) return 0;
  return std::abs(p.x[0]) * p.e[1] + std::abs(p.x[1]) * p.e[0] + p.reach(0) * p.e[1] + p.rounding();
}

double quotient(const Point& p) {
  const double least = std::abs(p.x[1]) - p.reach(1);
  const double moved = p.e[0] + std::abs(p.v) * p.e[1];
  return (moved == 0 ? 0 : least > 0 ? moved / least : kInfinity) + p.rounding(kQuotient);
}

/// Of max; of min the values change places, their errors do not. Only an argument that may be the
/// result counts.
double extreme(const Point& p, double x, double y, double ex, double ey) {
  const double apart = p.in.reach * (ex + ey);
  return x - y > apart ? ex : y - x > apart ? ey : std::max(ex, ey);
}

double power(const Point& p) {
  const double size = std::abs(p.x[0]) - p.reach(0);
  const double along = p.e[0] == 0 ? 0 : size > 0 ? std::abs(p.x[1]) * p.e[0] / size : kInfinity;
  const double logarithm = p.x[0] == 0 ? 0 : std::abs(std::log(std::abs(p.x[0])));
  return std::abs(p.v) * (along + logarithm * p.e[1]) +
         p.rounding(kFunction + std::abs(p.x[1]) * logarithm);
}

/// Its result is known but where the arguments may change places.
double less(const Point& p) {
  const double unsure = p.in.reach * (p.e[0] + p.e[1]);
  return unsure > 0 && std::abs(p.x[0] - p.x[1]) <= unsure ? 1 / p.in.reach : 0;
}

double selected(const Point& p) {
  if (p.e[0] == 0) return p.x[0] != 0 ? p.e[1] : p.e[2];
  return std::max({p.e[1], p.e[2], std::abs(p.x[1] - p.x[2]) / p.in.reach});
}

double exponential(const Point& p) {
  if (std::isinf(p.x[0]) && p.e[0] == 0) return 0;
  const double r = p.reach(0);
  // v * expm1(r) / reach, where r is small without calling it, where it is large without infinity
  const double moved = r < 0.01 ? p.v * p.e[0] * (1 + r)
                       : r < 1  ? p.v * std::expm1(r) / p.in.reach
                                : (std::exp(p.x[0] + r) - p.v) / p.in.reach;
  return moved + p.rounding(kFunction + 2 * std::abs(p.x[0]));
}

double logarithm(const Point& p) {
  const double least = p.x[0] - p.reach(0);
  return (p.e[0] == 0 ? 0
          : least > 0 ? p.e[0] / least
                      : kInfinity) +
         p.rounding(kFunction) + 2 * p.in.unit;
}

double root(const Point& p) {
  const double r = p.reach(0);
  const double moved =
      r == 0 ? 0 : (std::sqrt(p.x[0] + r) - std::sqrt(std::max(p.x[0] - r, 0.0))) / p.in.reach;
  return moved + p.rounding(kQuotient);
}

double reciprocal_root(const Point& p) {
  const double r = p.reach(0);
  const double moved = r == 0       ? 0
                       : p.x[0] > r ? (1 / std::sqrt(p.x[0] - r) - p.v) / p.in.reach
                                    : kInfinity;
  return moved + p.rounding(kQuotient);
}

double reciprocal(const Point& p) {
  const double least = std::abs(p.x[0]) - p.reach(0);
  return (p.e[0] == 0 ? 0
          : least > 0 ? std::abs(p.v) * p.e[0] / least
                      : kInfinity) +
         p.rounding(kQuotient);
}

double rectified(const Point& p) { return p.x[0] < -p.reach(0) ? 0 : p.e[0]; }

// Of the curved ones: the derivative here, and how much it may change on the way.
double hyperbolic(const Point& p) {
  // by exponentials it is a difference from 1
  return std::min(1.0, 1 - p.v * p.v + 0.77 * p.reach(0)) * p.e[0] + p.rounding(kFunction) +
         p.in.unit + p.in.absolute;
}
double sigmoid(const Point& p) {
  return std::min(0.25, p.v * (1 - p.v) + 0.1 * p.reach(0)) * p.e[0] +
         p.rounding(kFunction + 2 * std::abs(p.x[0]) * (1 - p.v)) + p.in.absolute;
}
double error_function(const Point& p) {
  constexpr double kMost = 2 * std::numbers::inv_sqrtpi;
  return std::min(kMost, kMost * std::exp(-p.x[0] * p.x[0]) + p.reach(0)) * p.e[0] +
         p.rounding(kFunction) + p.in.unit * std::min(1.0, std::abs(p.x[0])) + p.in.absolute;
}
/// x / 2 (1 + erf): for x < 0 a difference, as exact as its terms are.
double gelu(const Point& p) {
  constexpr double kSteepest = 1.13;
  return kSteepest * p.e[0] + p.rounding(kFunction) +
         (p.in.unit * kQuotient + p.in.absolute) * std::abs(p.x[0]);
}

double squared(const Point& p) {
  return (2 * std::abs(p.x[0]) + p.reach(0)) * p.e[0] + p.rounding();
}

/// Of a step, all of which an element may be off by: with deviations of half of it beside it, which
/// are added as squares, the bound is no less than the step and their own.
double stepped(const Point& p, double steps) { return std::sqrt(2) * steps / p.in.reach; }
/// Known but where a whole number lies between what the argument may be.
double floored(const Point& p) {
  const double r = p.reach(0);
  return r == 0 ? 0 : stepped(p, std::floor(p.x[0] + r) - std::floor(p.x[0] - r));
}
double nearest(const Point& p) {
  const double r = p.reach(0);
  return r == 0 ? 0 : stepped(p, std::nearbyint(p.x[0] + r) - std::nearbyint(p.x[0] - r));
}
/// Of sin and cos, whose derivatives are at most 1.
double wave(const Point& p) { return p.e[0] + p.rounding(kFunction) + p.in.unit; }

struct Named {
  std::string_view name;
  int arity;
  Rule rule;
};
constexpr std::array kRules = {
    Named{"add", 2, sum},
    Named{"sub", 2, sum},
    Named{"mul", 2, product},
    Named{"div", 2, quotient},
    Named{"max", 2, [](const Point& p) { return extreme(p, p.x[0], p.x[1], p.e[0], p.e[1]); }},
    Named{"min", 2, [](const Point& p) { return extreme(p, p.x[1], p.x[0], p.e[0], p.e[1]); }},
    Named{"pow", 2, power},
    Named{"lt", 2, less},
    Named{"select", 3, selected},
    Named{"neg", 1, [](const Point& p) { return p.e[0]; }},
    Named{"exp", 1, exponential},
    Named{"log", 1, logarithm},
    Named{"sqrt", 1, root},
    Named{"rsqrt", 1, reciprocal_root},
    Named{"recip", 1, reciprocal},
    Named{"relu", 1, rectified},
    Named{"tanh", 1, hyperbolic},
    Named{"sigmoid", 1, sigmoid},
    Named{"erf", 1, error_function},
    Named{"gelu", 1, gelu},
    Named{"abs", 1, [](const Point& p) { return p.e[0]; }},
    Named{"square", 1, squared},
    Named{"floor", 1, floored},
    Named{"round", 1, nearest},
    Named{"sin", 1, wave},
    Named{"cos", 1, wave},
};

// Of the rule in that place: known where this is compiled, so that it is inlined.
template <std::size_t Place>
void over_row(const double* const* values, const double* const* errors, const double* result,
              std::int64_t n, const Arithmetic& in, double* to) {
  constexpr auto kArity = static_cast<std::size_t>(kRules[Place].arity);
  for (std::int64_t i = 0; i < n; ++i) {
    Point p{.x = {}, .e = {}, .v = result[i], .in = in};
    for (std::size_t a = 0; a < kArity; ++a) p.x[a] = values[a][i], p.e[a] = errors[a][i];
    to[i] = kRules[Place].rule(p);
  }
}

template <std::size_t... Places>
constexpr std::array<ErrorRule, sizeof...(Places)> rows_of(std::index_sequence<Places...>) {
  return {over_row<Places>...};
}
constexpr auto kRows = rows_of(std::make_index_sequence<kRules.size()>{});

}  // namespace

ErrorRule error_rule(std::string_view function) {
  const auto* found = std::find_if(kRules.begin(), kRules.end(),
                                   [function](const Named& n) { return n.name == function; });
  TW_CHECK(found != kRules.end(), "a function whose errors are not known");
  return kRows[static_cast<std::size_t>(found - kRules.begin())];
}

}  // namespace tilewright::reference
