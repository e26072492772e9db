// The real-valued optimum of one order ("Lagrange multipliers", section IV-B), for any order of a
// chain whose footprints are monomials.
#include <algorithm>
#include <array>
#include <cmath>

#include "models/chimera/solver.h"

namespace tilewright::chimera::detail {
namespace {

/// coefficient * exp(sum of x, or of -x, over the variables in mask)
struct Monomial {
  double coefficient = 1;
  Mask mask = 0;  ///< of variables
};

/// minimise sum of objective (each falling in its variables) subject to every sum of a row of
/// constraints <= 1 (each rising in its variables) and lo <= x <= hi, where x = log T.
struct Program {
  std::vector<Monomial> objective;
  std::vector<std::vector<Monomial>> rows;
  std::vector<double> lo, hi;
  std::size_t n() const { return lo.size(); }
};

/// Of a point: the tiles exp(x), and the trips for one element exp(-x), by which monomials
/// multiply.
struct Powers {
  explicit Powers(std::span<const double> x) {
    for (std::size_t v = 0; v < x.size(); ++v) {
      up[v] = std::exp(x[v]);
      down[v] = 1 / up[v];
    }
  }
  std::array<double, kMaxMask> up, down;
};

double value(const Monomial& m, std::span<const double> power) {
  double product = m.coefficient;
  each(m.mask, [&](std::size_t v) { product *= power[v]; });
  return product;
}

double sum(std::span<const Monomial> ms, std::span<const double> power) {
  double s = 0;
  for (const Monomial& m : ms) s += value(m, power);
  return s;
}

/// tau * objective - sum of logarithms of the slacks; infinite outside.
double barrier(const Program& p, double tau, std::span<const double> x) {
  const Powers power(x);
  double f = tau * sum(p.objective, power.down);
  const auto slack = [&](double s) { f = s > 0 ? f - std::log(s) : INFINITY; };
  for (const auto& row : p.rows) slack(1 - sum(row, power.up));
  for (std::size_t v = 0; v < p.n(); ++v) {
    slack(x[v] - p.lo[v]);
    slack(p.hi[v] - x[v]);
  }
  return f;
}

struct Quadratic {
  std::vector<double> gradient, hessian;
};

void add_monomial(Quadratic& q, const Monomial& m, double value, double sign, double scale) {
  const std::size_t n = q.gradient.size();
  each(m.mask, [&](std::size_t i) {
    q.gradient[i] += scale * sign * value;
    each(m.mask, [&](std::size_t j) { q.hessian[i * n + j] += scale * value; });
  });
}

Quadratic expand(const Program& p, double tau, std::span<const double> x) {
  const std::size_t n = p.n();
  const Powers power(x);
  Quadratic q{std::vector<double>(n, 0), std::vector<double>(n * n, 0)};
  for (const Monomial& m : p.objective) add_monomial(q, m, value(m, power.down), -1, tau);
  std::vector<double> g(n);
  for (const auto& row : p.rows) {
    const double slack = 1 - sum(row, power.up);
    std::fill(g.begin(), g.end(), 0.0);
    for (const Monomial& m : row) {
      const double v = value(m, power.up);
      add_monomial(q, m, v, 1, 1 / slack);
      each(m.mask, [&](std::size_t i) { g[i] += v; });
    }
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) q.hessian[i * n + j] += g[i] * g[j] / (slack * slack);
  }
  for (std::size_t v = 0; v < n; ++v) {
    const double a = x[v] - p.lo[v], b = p.hi[v] - x[v];
    q.gradient[v] += 1 / b - 1 / a;
    q.hessian[v * n + v] += 1 / (a * a) + 1 / (b * b);
  }
  return q;
}

/// Solves H d = -g for a positive definite H, by elimination without pivoting.
std::vector<double> newton_step(Quadratic q) {
  const std::size_t n = q.gradient.size();
  std::vector<double> d(n);
  for (std::size_t i = 0; i < n; ++i) d[i] = -q.gradient[i];
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t r = i + 1; r < n; ++r) {
      const double f = q.hessian[r * n + i] / q.hessian[i * n + i];
      for (std::size_t c = i; c < n; ++c) q.hessian[r * n + c] -= f * q.hessian[i * n + c];
      d[r] -= f * d[i];
    }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t c = i + 1; c < n; ++c) d[i] -= q.hessian[i * n + c] * d[c];
    d[i] /= q.hessian[i * n + i];
  }
  return d;
}

void minimise(const Program& p, std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (double tau = 8; tau < 1e7; tau *= 30) {
    double now = barrier(p, tau, x);
    for (int step = 0; step < 12; ++step) {
      const Quadratic q = expand(p, tau, x);
      const std::vector<double> d = newton_step(q);
      double slope = 0;
      for (std::size_t v = 0; v < d.size(); ++v) slope += d[v] * q.gradient[v];
      if (!(slope < -1e-6)) break;
      double t = 1, then = 0;
      for (;; t /= 2) {
        for (std::size_t v = 0; v < d.size(); ++v) y[v] = x[v] + t * d[v];
        then = barrier(p, tau, y);
        if (then <= now + 0.1 * t * slope || t < 1e-9) break;
      }
      if (t < 1e-9) break;
      x = y;
      now = then;
    }
  }
}

}  // namespace

std::optional<RealOptimum> real_optimum(const Flat& f, std::int64_t capacity) {
  for (const Foot& foot : f.foots())
    if (!foot.plain) return std::nullopt;
  Program p;
  RealOptimum r{std::vector<double>(f.size(), 1)};
  std::vector<int> variable(f.size(), -1);
  Mask multi = f.implicit();
  for (std::size_t i = 0; i < f.size(); ++i) {
    const auto least = static_cast<double>(least_tile(f.options(), f.loop(i), f.extent(i)));
    const auto extent = static_cast<double>(f.extent(i));
    r.tile[i] = has(f.implicit(), i) ? 1 : least;
    if (has(f.implicit(), i) || least >= extent) continue;
    variable[i] = static_cast<int>(p.n());
    p.lo.push_back(std::log(least));
    p.hi.push_back(std::log(extent));
    multi |= bit(i);
  }
  const auto monomial = [&](double coefficient, Mask tiled, Mask trips) {
    Monomial m{coefficient, 0};
    each(tiled, [&](std::size_t i) {
      if (variable[i] < 0)
        m.coefficient *= r.tile[i];
      else
        m.mask |= bit(static_cast<std::size_t>(variable[i]));
    });
    each(trips, [&](std::size_t i) {
      m.coefficient *= static_cast<double>(f.extent(i));
      if (variable[i] < 0)
        m.coefficient /= r.tile[i];
      else
        m.mask |= bit(static_cast<std::size_t>(variable[i]));
    });
    return m;
  };
  double scale = 0;
  for (const Use& u : f.uses()) {
    const Foot& foot = f.foots()[u.foot];
    double whole = u.weight;
    each(foot.accessed, [&](std::size_t i) { whole *= static_cast<double>(f.extent(i)); });
    p.objective.push_back(monomial(whole, 0, f.multipliers(u, multi) & ~foot.accessed));
  }
  const bool one_tile = f.options().memory == Memory::paper;
  const Structure& s = f.structure(multi);
  const double room = static_cast<double>(capacity);
  const auto size_of = [&](const Foot& foot) {
    const Mask cut =
        one_tile || !has(f.on_chip(), foot.tensor.index()) ? ~Mask{0} : s.cut[foot.tensor.index()];
    double whole = 1 / room;
    each(foot.accessed & ~cut, [&](std::size_t i) { whole *= static_cast<double>(f.extent(i)); });
    return monomial(whole, foot.accessed & cut, 0);
  };
  const auto add_row = [&](Mask tensors) {
    p.rows.emplace_back();
    for (const Foot& foot : f.foots()) {
      if (!has(tensors, foot.tensor.index())) continue;
      tensors &= ~bit(foot.tensor.index());
      p.rows.back().push_back(size_of(foot));
    }
  };
  if (f.options().memory == Memory::sum) {
    add_row(~Mask{0});
  } else {
    for (std::size_t op = 0; op < f.chain().size(); ++op) {
      Mask own = 0;
      for (std::size_t i : f.foots_of(op)) own |= bit(f.foots()[i].tensor.index());
      add_row(one_tile ? own : f.options().memory == Memory::held ? s.held[op] : s.live[op]);
    }
  }
  std::vector<double> x(p.n());
  double step = 0.5;
  const auto start = [&] {
    for (std::size_t v = 0; v < p.n(); ++v) x[v] = p.lo[v] + step * (p.hi[v] - p.lo[v]);
    const Powers power(x);
    return std::all_of(p.rows.begin(), p.rows.end(),
                       [&](const auto& row) { return sum(row, power.up) < 1; });
  };
  for (; !start(); step /= 2)
    if (step < 1e-9) return std::nullopt;
  scale = sum(p.objective, Powers(x).down);
  for (Monomial& m : p.objective) m.coefficient /= scale;
  minimise(p, x);
  r.volume = scale * sum(p.objective, Powers(x).down);
  for (std::size_t i = 0; i < f.size(); ++i)
    if (variable[i] >= 0) r.tile[i] = std::exp(x[static_cast<std::size_t>(variable[i])]);
  return r;
}

}  // namespace tilewright::chimera::detail
