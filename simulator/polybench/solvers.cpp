// PolyBench's solvers and factorisations, dynamic programming and deriche's filter. Where an
// innermost loop adds to an element that does not move, `sum` is the register that a compiler keeps
// it in.
#include <algorithm>
#include <cmath>

#include "simulator/polybench/spaces.h"

namespace tilewright::polybench {
namespace {

using I = std::int64_t;

struct Cholesky {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto A = s.array({n, n}, Fill::symmetric);
    for (I i = 0; i < n; ++i) {
      for (I j = 0; j < i; ++j) {
        double sum = A(i, j);
        s.loop(0, j, [&](I k) { A(i, j) = sum -= A(i, k) * A(j, k); });
        A(i, j) = sum / A(j, j);
      }
      double sum = A(i, i);
      s.loop(0, i, [&](I k) {
        const double of_k = A(i, k);
        A(i, i) = sum -= of_k * of_k;
      });
      A(i, i) = std::sqrt(sum);
    }
  }
};

struct Durbin {
  template <class Space>
  static void run(Space& s, const Sizes& size) {
    const I n = size[0];
    auto r = s.array({n});
    auto y = s.array({n});
    auto z = s.array({n}, Fill::zero);  // the kernel's own; PolyBench has it on the stack
    double alpha = -r(0), beta = 1.0;
    y(0) = alpha;
    for (I k = 1; k < n; ++k) {
      beta *= 1 - alpha * alpha;
      double sum = 0.0;
      s.loop(0, k, [&](I i) { sum += r(k - i - 1) * y(i); });
      alpha = -(r(k) + sum) / beta;
      s.loop(0, k, [&](I i) { z(i) = y(i) + alpha * y(k - i - 1); });
      s.loop(0, k, [&](I i) { y(i) = z(i); });
      y(k) = alpha;
    }
  }
};

struct Gramschmidt {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [m, n, u0, u1, u2] = z;
    auto A = s.array({m, n}, Fill::dominant);
    auto R = s.array({n, n}, Fill::zero);
    auto Q = s.array({m, n}, Fill::zero);
    for (I k = 0; k < n; ++k) {
      double norm = 0.0;
      s.loop(0, m, [&](I i) {
        const double of_i = A(i, k);
        norm += of_i * of_i;
      });
      R(k, k) = std::sqrt(norm);
      s.loop(0, m, [&](I i) { Q(i, k) = A(i, k) / R(k, k); });
      for (I j = k + 1; j < n; ++j) {
        double sum = 0.0;  // R(k, j) = 0 is stored over at once
        s.loop(0, m, [&](I i) { R(k, j) = sum += Q(i, k) * A(i, j); });
        s.loop(0, m, [&](I i) { A(i, j) -= Q(i, k) * R(k, j); });
      }
    }
  }
};

struct Lu {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto A = s.array({n, n}, Fill::dominant);
    for (I i = 0; i < n; ++i) {
      for (I j = 0; j < i; ++j) {
        double sum = A(i, j);
        s.loop(0, j, [&](I k) { A(i, j) = sum -= A(i, k) * A(k, j); });
        A(i, j) = sum / A(j, j);
      }
      for (I j = i; j < n && i > 0; ++j) {
        double sum = A(i, j);
        s.loop(0, i, [&](I k) { A(i, j) = sum -= A(i, k) * A(k, j); });
      }
    }
  }
};

struct Ludcmp {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto A = s.array({n, n}, Fill::dominant);
    auto b = s.array({n});
    auto x = s.array({n}, Fill::zero);
    auto y = s.array({n}, Fill::zero);
    for (I i = 0; i < n; ++i) {
      for (I j = 0; j < i; ++j) {
        double w = A(i, j);
        s.loop(0, j, [&](I k) { w -= A(i, k) * A(k, j); });
        A(i, j) = w / A(j, j);
      }
      for (I j = i; j < n; ++j) {
        double w = A(i, j);
        s.loop(0, i, [&](I k) { w -= A(i, k) * A(k, j); });
        A(i, j) = w;
      }
    }
    for (I i = 0; i < n; ++i) {
      double w = b(i);
      s.loop(0, i, [&](I j) { w -= A(i, j) * y(j); });
      y(i) = w;
    }
    for (I i = n - 1; i >= 0; --i) {
      double w = y(i);
      s.loop(i + 1, n, [&](I j) { w -= A(i, j) * x(j); });
      x(i) = w / A(i, i);
    }
  }
};

struct Trisolv {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto L = s.array({n, n}, Fill::dominant);
    auto x = s.array({n}, Fill::zero);
    auto b = s.array({n});
    for (I i = 0; i < n; ++i) {
      double sum = b(i);
      x(i) = sum;
      s.loop(0, i, [&](I j) { x(i) = sum -= L(i, j) * x(j); });
      x(i) = sum / L(i, i);
    }
  }
};

struct FloydWarshall {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto path = s.template array<int>({n, n});
    for (I k = 0; k < n; ++k)
      for (I i = 0; i < n; ++i)
        s.loop(0, n, [&](I j) {
          const int through = path(i, k) + path(k, j);
          path(i, j) = std::min<int>(path(i, j), through);
        });
  }
};

struct Nussinov {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const I n = z[0];
    auto seq = s.template array<char>({n});
    auto table = s.template array<int>({n, n}, Fill::zero);
    for (I i = n - 1; i >= 0; --i)
      for (I j = i + 1; j < n; ++j) {
        int best = table(i, j);
        table(i, j) = best = std::max<int>(best, table(i, j - 1));
        table(i, j) = best = std::max<int>(best, table(i + 1, j));
        int paired = table(i + 1, j - 1);
        if (i < j - 1) paired += seq(i) + seq(j) == 3 ? 1 : 0;
        table(i, j) = best = std::max(best, paired);
        s.loop(i + 1, j, [&](I k) {
          table(i, j) = best = std::max<int>(best, table(i, k) + table(k + 1, j));
        });
      }
  }
};

/// One direction of a recursive filter over a line: to = a * in + a_before * (in before) +
/// feedback.
struct Filter {
  float a, a_before, b1, b2;
  float in = 0, before = 0, out1 = 0, out2 = 0;
  float causal(float now) {
    const float out = a * now + a_before * in + b1 * out1 + b2 * out2;
    return shift(now, out);
  }
  float anticausal(float now) {
    const float out = a * in + a_before * before + b1 * out1 + b2 * out2;
    before = in;
    return shift(now, out);
  }
  float shift(float now, float out) {
    in = now;
    out2 = out1;
    return out1 = out;
  }
};

struct Deriche {
  template <class Space>
  static void run(Space& s, const Sizes& z) {
    const auto [w, h, u0, u1, u2] = z;
    auto in = s.template array<float>({w, h});
    auto out = s.template array<float>({w, h}, Fill::zero);
    auto y1 = s.template array<float>({w, h}, Fill::zero);
    auto y2 = s.template array<float>({w, h}, Fill::zero);
    constexpr float kAlpha = 0.25F;
    const float e = std::exp(-kAlpha), e2 = std::exp(-2 * kAlpha);
    const float k = (1 - e) * (1 - e) / (1 + 2 * kAlpha * e - std::exp(2 * kAlpha));
    const Filter forth{
        .a = k, .a_before = k * e * (kAlpha - 1), .b1 = std::exp2(-kAlpha), .b2 = -e2};
    const Filter back{.a = k * e * (kAlpha + 1), .a_before = -k * e2, .b1 = forth.b1, .b2 = -e2};
    // The store to y1 might have changed `from`, which is read again for the next step.
    const auto step = [&y1](Filter& f, const auto& from, I i, I j) {
      y1(i, j) = f.causal(from(i, j));
      f.in = from(i, j);
    };
    for (I i = 0; i < w; ++i) {
      Filter f = forth;
      s.loop(0, h, [&](I j) { step(f, in, i, j); });
    }
    for (I i = 0; i < w; ++i) {
      Filter f = back;
      s.down(h - 1, 0, [&](I j) { y2(i, j) = f.anticausal(in(i, j)); });
    }
    for (I i = 0; i < w; ++i) s.loop(0, h, [&](I j) { out(i, j) = y1(i, j) + y2(i, j); });
    for (I j = 0; j < h; ++j) {
      Filter f = forth;
      s.loop(0, w, [&](I i) { step(f, out, i, j); });
    }
    for (I j = 0; j < h; ++j) {
      Filter f = back;
      s.down(w - 1, 0, [&](I i) { y2(i, j) = f.anticausal(out(i, j)); });
    }
    for (I i = 0; i < w; ++i) s.loop(0, h, [&](I j) { out(i, j) = y1(i, j) + y2(i, j); });
  }
};

constexpr std::array kSolvers{
    record<Cholesky>("cholesky", 1, {120}, {400}, {2000}),
    record<Deriche>("deriche", 4, {192, 128}, {720, 480}, {4096, 2160}),
    record<Durbin>("durbin", 3, {120}, {400}, {2000}),
    record<FloydWarshall>("floyd-warshall", 1, {180}, {500}, {2800}),
    record<Gramschmidt>("gramschmidt", 3, {60, 80}, {200, 240}, {1000, 1200}),
    record<Lu>("lu", 1, {120}, {400}, {2000}),
    record<Ludcmp>("ludcmp", 4, {120}, {400}, {2000}),
    record<Nussinov>("nussinov", 2, {180}, {500}, {2500}),
    record<Trisolv>("trisolv", 3, {120}, {400}, {2000}),
};

}  // namespace

std::span<const Kernel> solvers() { return kSolvers; }

}  // namespace tilewright::polybench
