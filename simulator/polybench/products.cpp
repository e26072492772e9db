// PolyBench's products of matrices and vectors, and data mining. Where an innermost loop adds to an
// element that does not move, `sum` is the register that a compiler keeps it in.
#include <cmath>

#include "simulator/polybench/spaces.h"

namespace tilewright::polybench {
namespace {

using I = std::int64_t;
constexpr double kAlpha = 1.5, kBeta = 1.2;

struct Gemm {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [ni, nj, nk, u0, u1] = z;
    auto C = s.array({ni, nj});
    auto A = s.array({ni, nk});
    auto B = s.array({nk, nj});
    for (I i = 0; i < ni; ++i) {
      s.loop(0, nj, [&](I j) { C(i, j) *= kBeta; });
      for (I k = 0; k < nk; ++k) s.loop(0, nj, [&](I j) { C(i, j) += kAlpha * A(i, k) * B(k, j); });
    }
  }
};

/// to(i, j) = start(i, j) + factor * sum over k of a(i, k) * b(k, j), stored at every step.
template <class Space, class To, class A, class B>
void product(Space& s, I n, I m, I depth, double factor, bool scaled, To to, A a, B b) {
  for (I i = 0; i < n; ++i)
    for (I j = 0; j < m; ++j) {
      double sum = scaled ? to(i, j) * kBeta : 0.0;
      to(i, j) = sum;
      s.loop(0, depth, [&](I k) { to(i, j) = sum += factor * a(i, k) * b(k, j); });
    }
}

struct TwoMm {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [ni, nj, nk, nl, u0] = z;
    auto tmp = s.array({ni, nj}, Fill::zero);
    auto A = s.array({ni, nk});
    auto B = s.array({nk, nj});
    auto C = s.array({nj, nl});
    auto D = s.array({ni, nl});
    product(s, ni, nj, nk, kAlpha, false, tmp, A, B);
    product(s, ni, nl, nj, 1.0, true, D, tmp, C);
  }
};

struct ThreeMm {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [ni, nj, nk, nl, nm] = z;
    auto E = s.array({ni, nj}, Fill::zero);
    auto A = s.array({ni, nk});
    auto B = s.array({nk, nj});
    auto F = s.array({nj, nl}, Fill::zero);
    auto C = s.array({nj, nm});
    auto D = s.array({nm, nl});
    auto G = s.array({ni, nl}, Fill::zero);
    product(s, ni, nj, nk, 1.0, false, E, A, B);
    product(s, nj, nl, nm, 1.0, false, F, C, D);
    product(s, ni, nl, nj, 1.0, false, G, E, F);
  }
};

struct Atax {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto A = s.array({m, n});
    auto x = s.array({n});
    auto y = s.array({n});
    auto tmp = s.array({m});
    s.loop(0, n, [&](I i) { y(i) = 0.0; });
    for (I i = 0; i < m; ++i) {
      double sum = 0.0;
      s.loop(0, n, [&](I j) { tmp(i) = sum += A(i, j) * x(j); });
      s.loop(0, n, [&](I j) { y(j) += A(i, j) * tmp(i); });
    }
  }
};

struct Bicg {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto A = s.array({n, m});
    auto sv = s.array({m});
    auto q = s.array({n});
    auto p = s.array({m});
    auto r = s.array({n});
    s.loop(0, m, [&](I i) { sv(i) = 0.0; });
    for (I i = 0; i < n; ++i) {
      q(i) = 0.0;
      s.loop(0, m, [&](I j) {
        sv(j) += r(i) * A(i, j);
        q(i) += A(i, j) * p(j);
      });
    }
  }
};

struct Doitgen {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [nq, nr, np, u0, u1] = z;
    auto A = s.array({nr, nq, np});
    auto sum = s.array({np});
    auto C4 = s.array({np, np});
    for (I r = 0; r < nr; ++r)
      for (I q = 0; q < nq; ++q) {
        for (I p = 0; p < np; ++p) {
          double at = 0.0;
          sum(p) = at;
          s.loop(0, np, [&](I t) { sum(p) = at += A(r, q, t) * C4(t, p); });
        }
        s.loop(0, np, [&](I p) { A(r, q, p) = sum(p); });
      }
  }
};

struct Gemver {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto A = s.array({n, n});
    auto u1 = s.array({n}), v1 = s.array({n}), u2 = s.array({n}), v2 = s.array({n});
    auto w = s.array({n}), x = s.array({n}), y = s.array({n}), zv = s.array({n});
    for (I i = 0; i < n; ++i) s.loop(0, n, [&](I j) { A(i, j) += u1(i) * v1(j) + u2(i) * v2(j); });
    for (I i = 0; i < n; ++i) {
      double sum = x(i);
      s.loop(0, n, [&](I j) { x(i) = sum += kBeta * A(j, i) * y(j); });
    }
    s.loop(0, n, [&](I i) { x(i) += zv(i); });
    for (I i = 0; i < n; ++i) {
      double sum = w(i);
      s.loop(0, n, [&](I j) { w(i) = sum += kAlpha * A(i, j) * x(j); });
    }
  }
};

struct Gesummv {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto A = s.array({n, n});
    auto B = s.array({n, n});
    auto tmp = s.array({n});
    auto x = s.array({n});
    auto y = s.array({n});
    for (I i = 0; i < n; ++i) {
      tmp(i) = 0.0;
      y(i) = 0.0;
      s.loop(0, n, [&](I j) {
        tmp(i) += A(i, j) * x(j);
        y(i) += B(i, j) * x(j);
      });
      const double of_a = kAlpha * tmp(i);
      y(i) = of_a + kBeta * y(i);
    }
  }
};

struct Mvt {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto A = s.array({n, n});
    auto x1 = s.array({n}), x2 = s.array({n}), y1 = s.array({n}), y2 = s.array({n});
    for (I i = 0; i < n; ++i) {
      double sum = x1(i);
      s.loop(0, n, [&](I j) { x1(i) = sum += A(i, j) * y1(j); });
    }
    for (I i = 0; i < n; ++i) {
      double sum = x2(i);
      s.loop(0, n, [&](I j) { x2(i) = sum += A(j, i) * y2(j); });
    }
  }
};

struct Symm {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto C = s.array({m, n});
    auto A = s.array({m, m});
    auto B = s.array({m, n});
    for (I i = 0; i < m; ++i)
      for (I j = 0; j < n; ++j) {
        double sum = 0.0;
        s.loop(0, i, [&](I k) {
          C(k, j) += kAlpha * B(i, j) * A(i, k);
          sum += B(k, j) * A(i, k);
        });
        C(i, j) = kBeta * C(i, j) + kAlpha * B(i, j) * A(i, i) + kAlpha * sum;
      }
  }
};

struct Syr2k {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto C = s.array({n, n});
    auto A = s.array({n, m});
    auto B = s.array({n, m});
    for (I i = 0; i < n; ++i) {
      s.loop(0, i + 1, [&](I j) { C(i, j) *= kBeta; });
      for (I k = 0; k < m; ++k)
        s.loop(0, i + 1,
               [&](I j) { C(i, j) += A(j, k) * kAlpha * B(i, k) + B(j, k) * kAlpha * A(i, k); });
    }
  }
};

struct Syrk {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto C = s.array({n, n});
    auto A = s.array({n, m});
    for (I i = 0; i < n; ++i) {
      s.loop(0, i + 1, [&](I j) { C(i, j) *= kBeta; });
      for (I k = 0; k < m; ++k)
        s.loop(0, i + 1, [&](I j) { C(i, j) += kAlpha * A(i, k) * A(j, k); });
    }
  }
};

struct Trmm {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto A = s.array({m, m});
    auto B = s.array({m, n});
    for (I i = 0; i < m; ++i)
      for (I j = 0; j < n; ++j) {
        double sum = B(i, j);
        s.loop(i + 1, m, [&](I k) { B(i, j) = sum += A(k, i) * B(k, j); });
        B(i, j) = kAlpha * sum;
      }
  }
};

/// mean(j) = the mean of data's column j.
template <class Space, class Data, class Mean>
void means(Space& s, I m, I n, Data data, Mean mean) {
  for (I j = 0; j < m; ++j) {
    double sum = 0.0;
    mean(j) = sum;
    s.loop(0, n, [&](I i) { mean(j) = sum += data(i, j); });
    mean(j) = sum / static_cast<double>(n);
  }
}

struct Covariance {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto data = s.array({n, m});
    auto cov = s.array({m, m}, Fill::zero);
    auto mean = s.array({m}, Fill::zero);
    means(s, m, n, data, mean);
    for (I i = 0; i < n; ++i) s.loop(0, m, [&](I j) { data(i, j) -= mean(j); });
    for (I i = 0; i < m; ++i)
      for (I j = i; j < m; ++j) {
        double sum = 0.0;
        cov(i, j) = sum;
        s.loop(0, n, [&](I k) { cov(i, j) = sum += data(k, i) * data(k, j); });
        sum /= static_cast<double>(n) - 1.0;
        cov(i, j) = sum;
        cov(j, i) = sum;
      }
  }
};

struct Correlation {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto data = s.array({n, m});
    auto corr = s.array({m, m}, Fill::zero);
    auto mean = s.array({m}, Fill::zero);
    auto stddev = s.array({m}, Fill::zero);
    means(s, m, n, data, mean);
    for (I j = 0; j < m; ++j) {
      double sum = 0.0;
      stddev(j) = sum;
      s.loop(0, n, [&](I i) {
        const double off = data(i, j) - mean(j);
        stddev(j) = sum += off * off;
      });
      const double deviation = std::sqrt(sum / static_cast<double>(n));
      stddev(j) = deviation <= 0.1 ? 1.0 : deviation;
    }
    const double root = std::sqrt(static_cast<double>(n));
    for (I i = 0; i < n; ++i)
      s.loop(0, m, [&](I j) {
        const double off = data(i, j) - mean(j);
        data(i, j) = off;
        data(i, j) = off / (root * stddev(j));
      });
    for (I i = 0; i < m - 1; ++i) {
      corr(i, i) = 1.0;
      for (I j = i + 1; j < m; ++j) {
        double sum = 0.0;
        corr(i, j) = sum;
        s.loop(0, n, [&](I k) { corr(i, j) = sum += data(k, i) * data(k, j); });
        corr(j, i) = sum;
      }
    }
    corr(m - 1, m - 1) = 1.0;
  }
};

constexpr std::array kProducts{
    record<TwoMm>("2mm", 5, {40, 50, 70, 80}, {180, 190, 210, 220}, {800, 900, 1100, 1200}),
    record<ThreeMm>("3mm", 7, {40, 50, 60, 70, 80}, {180, 190, 200, 210, 220},
                    {800, 900, 1000, 1100, 1200}),
    record<Atax>("atax", 4, {116, 124}, {390, 410}, {1900, 2100}),
    record<Bicg>("bicg", 5, {116, 124}, {390, 410}, {1900, 2100}),
    record<Correlation>("correlation", 4, {80, 100}, {240, 260}, {1200, 1400}),
    record<Covariance>("covariance", 3, {80, 100}, {240, 260}, {1200, 1400}),
    record<Doitgen>("doitgen", 3, {20, 25, 30}, {40, 50, 60}, {140, 150, 160}),
    record<Gemm>("gemm", 3, {60, 70, 80}, {200, 220, 240}, {1000, 1100, 1200}),
    record<Gemver>("gemver", 9, {120}, {400}, {2000}),
    record<Gesummv>("gesummv", 5, {90}, {250}, {1300}),
    record<Mvt>("mvt", 5, {120}, {400}, {2000}),
    record<Symm>("symm", 3, {60, 80}, {200, 240}, {1000, 1200}),
    record<Syr2k>("syr2k", 3, {60, 80}, {200, 240}, {1000, 1200}),
    record<Syrk>("syrk", 2, {60, 80}, {200, 240}, {1000, 1200}),
    record<Trmm>("trmm", 2, {60, 80}, {200, 240}, {1000, 1200}),
};

}  // namespace

std::span<const Kernel> products() { return kProducts; }

}  // namespace tilewright::polybench
