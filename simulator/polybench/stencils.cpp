// PolyBench's stencils.
#include "simulator/polybench/spaces.h"

namespace tilewright::polybench {
namespace {

using I = std::int64_t;

struct Adi {
  /// One half step: p and q forward, then `to` backward. `to(i, j)` and `beside` (the weighted
  /// neighbours across) are given by line i and place j; the last value is `kept` in a register
  /// where the compiler sees that it is the one just stored.
  template <class Space, class P, class Q, class Get, class Beside, class Set>
  static void line(Space& s, I n, P p, Q q, I i, double a, double b, double c, Get get,
                   Beside beside, Set set, bool kept) {
    set(0, 1.0);
    p(i, 0) = 0.0;
    q(i, 0) = 1.0;
    s.loop(1, n - 1, [&](I j) {
      const double below = a * p(i, j - 1) + b;
      p(i, j) = -c / below;
      const double across = beside(j);
      q(i, j) = (across - a * q(i, j - 1)) / below;
    });
    set(n - 1, 1.0);
    double last = 1.0;
    s.down(n - 2, 1, [&](I j) {
      const double share = p(i, j) * (kept ? last : get(j + 1));
      set(j, last = share + q(i, j));
    });
  }

  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I steps = z[0], n = z[1];
    auto u = s.array({n, n});
    auto v = s.array({n, n}, Fill::zero);
    auto p = s.array({n, n}, Fill::zero);
    auto q = s.array({n, n}, Fill::zero);
    const double dx = 1.0 / static_cast<double>(n), dt = 1.0 / static_cast<double>(steps);
    const double mul1 = 2.0 * dt / (dx * dx), mul2 = 1.0 * dt / (dx * dx);
    const double a = -mul1 / 2, b = 1 + mul1, c = a;
    const double d = -mul2 / 2, e = 1 + mul2, f = d;
    for (I t = 1; t <= steps; ++t) {
      for (I i = 1; i < n - 1; ++i)
        line(
            s, n, p, q, i, a, b, c, [&](I j) -> double { return v(j, i); },
            [&](I j) {
              const double west = -d * u(j, i - 1), here = (1 + 2 * d) * u(j, i);
              return west + here - f * u(j, i + 1);
            },
            [&](I j, double x) { v(j, i) = x; }, false);
      for (I i = 1; i < n - 1; ++i)
        line(
            s, n, p, q, i, d, e, f, [&](I j) -> double { return u(i, j); },
            [&](I j) {
              const double north = -a * v(i - 1, j), here = (1 + 2 * a) * v(i, j);
              return north + here - c * v(i + 1, j);
            },
            [&](I j, double x) { u(i, j) = x; }, true);
    }
  }
};

struct Fdtd2d {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [steps, nx, ny, u0, u1] = z;
    auto ex = s.array({nx, ny});
    auto ey = s.array({nx, ny});
    auto hz = s.array({nx, ny});
    auto fict = s.array({steps});
    for (I t = 0; t < steps; ++t) {
      s.loop(0, ny, [&](I j) { ey(0, j) = fict(t); });
      for (I i = 1; i < nx; ++i)
        s.loop(0, ny, [&](I j) { ey(i, j) -= 0.5 * (hz(i, j) - hz(i - 1, j)); });
      for (I i = 0; i < nx; ++i)
        s.loop(1, ny, [&](I j) { ex(i, j) -= 0.5 * (hz(i, j) - hz(i, j - 1)); });
      for (I i = 0; i < nx - 1; ++i)
        s.loop(0, ny - 1,
               [&](I j) { hz(i, j) -= 0.7 * (ex(i, j + 1) - ex(i, j) + ey(i + 1, j) - ey(i, j)); });
    }
  }
};

struct Heat3d {
  template <class Space, class From, class To>
  static void step(Space& s, I n, From from, To to) {
    for (I i = 1; i < n - 1; ++i)
      for (I j = 1; j < n - 1; ++j)
        s.loop(1, n - 1, [&](I k) {
          const double here = from(i, j, k);
          const double planes = from(i + 1, j, k) - 2.0 * here + from(i - 1, j, k);
          const double rows = from(i, j + 1, k) - 2.0 * here + from(i, j - 1, k);
          const double along = from(i, j, k + 1) - 2.0 * here + from(i, j, k - 1);
          to(i, j, k) = 0.125 * planes + 0.125 * rows + 0.125 * along + here;
        });
  }
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I steps = z[0], n = z[1];
    auto A = s.array({n, n, n});
    auto B = s.array({n, n, n});
    for (I t = 1; t <= steps; ++t) {
      step(s, n, A, B);
      step(s, n, B, A);
    }
  }
};

struct Jacobi1d {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I steps = z[0], n = z[1];
    auto A = s.array({n});
    auto B = s.array({n});
    for (I t = 0; t < steps; ++t) {
      s.loop(1, n - 1, [&](I i) { B(i) = 0.33333 * (A(i - 1) + A(i) + A(i + 1)); });
      s.loop(1, n - 1, [&](I i) { A(i) = 0.33333 * (B(i - 1) + B(i) + B(i + 1)); });
    }
  }
};

struct Jacobi2d {
  template <class Space, class From, class To>
  static void step(Space& s, I n, From from, To to) {
    for (I i = 1; i < n - 1; ++i)
      s.loop(1, n - 1, [&](I j) {
        to(i, j) =
            0.2 * (from(i, j) + from(i, j - 1) + from(i, j + 1) + from(i + 1, j) + from(i - 1, j));
      });
  }
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I steps = z[0], n = z[1];
    auto A = s.array({n, n});
    auto B = s.array({n, n});
    for (I t = 0; t < steps; ++t) {
      step(s, n, A, B);
      step(s, n, B, A);
    }
  }
};

struct Seidel2d {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I steps = z[0], n = z[1];
    auto A = s.array({n, n});
    for (I t = 0; t < steps; ++t)
      for (I i = 1; i < n - 1; ++i)
        s.loop(1, n - 1, [&](I j) {
          const double above = A(i - 1, j - 1) + A(i - 1, j) + A(i - 1, j + 1);
          const double here = A(i, j - 1) + A(i, j) + A(i, j + 1);
          const double below = A(i + 1, j - 1) + A(i + 1, j) + A(i + 1, j + 1);
          A(i, j) = (above + here + below) / 9.0;
        });
  }
};

constexpr std::array kStencils{
    record<Adi>("adi", 4, {40, 60}, {100, 200}, {500, 1000}),
    record<Fdtd2d>("fdtd-2d", 4, {40, 60, 80}, {100, 200, 240}, {500, 1000, 1200}),
    record<Heat3d>("heat-3d", 2, {40, 20}, {100, 40}, {500, 120}),
    record<Jacobi1d>("jacobi-1d", 2, {40, 120}, {100, 400}, {500, 2000}),
    record<Jacobi2d>("jacobi-2d", 2, {40, 90}, {100, 250}, {500, 1300}),
    record<Seidel2d>("seidel-2d", 1, {40, 120}, {100, 400}, {500, 2000}),
};

}  // namespace

std::span<const Kernel> stencils() { return kStencils; }

}  // namespace tilewright::polybench
