// Seeded random workloads, as YAML text: chains of contractions with functions in between, chains
// of convolutions, normalised rows, pairs of products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tilewright::testing {

struct RandomOptions {
  std::int64_t max_extent = 11;   ///< of a loop
  int most_operators = 3;         ///< contractions, 1 or more; element-wise ones come on top
  bool gemm_chains_only = false;  ///< no convolutions, reductions over rows or operators in between
  bool two_levels = true;         ///< half the machines have L2 over L1
  bool loads = true;              ///< explicit L
  bool stores = true;             ///< explicit S
  bool pins = true;               ///< spills, levels, `at`
  bool sliding = true;
  bool once = true;
  bool grid = true;        ///< @grid, and !atomic
  bool units = true;       ///< @warp and levels private to a warp, Y.grid
  bool kernels = true;     ///< sometimes several
  bool recompute = false;  ///< several, always; the later ones make again what they read
  bool planes = false;     ///< chains of two-dimensional convolutions only
  bool gathers = false;    ///< workloads that read by other tensors' values only
  bool indices = false;    ///< operators read their loops' indices
  bool phases = false;     ///< several nests of blocks with Y.grid between, and packs
  bool reloads = false;    ///< on two levels: intermediates stored outward and loaded back
  bool drops = false;      ///< of tiles that loads bring
};

namespace random_trees {

class Dice {
 public:
  explicit Dice(std::mt19937_64& random) : random_(random) {}
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  template <class T>
  T pick(T lo, T hi) {
    return std::uniform_int_distribution<T>(lo, hi)(random_);
  }
  template <class T>
  const T& one_of(const std::vector<T>& items) {
    return items[pick<std::size_t>(0, items.size() - 1)];
  }

 protected:
  std::mt19937_64& random_;
};

class WorkloadMaker : private Dice {
 public:
  WorkloadMaker(std::mt19937_64& random, const RandomOptions& options)
      : Dice(random), o_(options) {}

  std::string text() {
    const int kind = o_.gemm_chains_only ? 0 : pick(0, o_.units ? 6 : 5);
    if (o_.phases && chance(0.4)) return fan();
    if (kind == 6) return pair();
    if (kind <= 2) return gemm_chain();
    if (kind <= 4) return conv_chain();
    return row_norm();
  }

 private:
  /// With indices of two loops, a mask, a band, or something added.
  std::string indexed(const std::string& value, const std::string& a, const std::string& b) {
    if (!o_.indices) return value;
    switch (pick(0, 2)) {
      case 0:
        return "select(lt(" + a + ", " + b + "), " + value + ", 0.25 * " + b + ")";
      case 1:
        return "select(lt(" + b + ", " + a + " + 2), select(lt(" + b + ", " + a + " - 3), 0.5, " +
               value + "), -" + b + ")";
      default:
        return value + " + 0.125 * " + a + " - 0.25";
    }
  }

  std::int64_t extent() { return pick<std::int64_t>(1, o_.max_extent); }

  /// T1[b,m,d1] += T0[b,m,d0] * W1[b,d0,d1]; T2 += T1 * W2; ... with functions in between.
  std::string gemm_chain() {
    const int ops = pick(1, o_.most_operators);
    const bool batch = chance(0.3);
    const std::string b = batch ? "b," : "";
    std::string loops = "m: " + std::to_string(extent());
    if (batch) loops += ", b: " + std::to_string(pick(1, 3));
    for (int i = 0; i <= ops; ++i)
      loops += ", d" + std::to_string(i) + ": " + std::to_string(extent());
    std::string text;
    std::string in = "T0";
    for (int i = 1; i <= ops; ++i) {
      const std::string d0 = "d" + std::to_string(i - 1), d1 = "d" + std::to_string(i);
      const std::string out = "T" + std::to_string(i);
      text += "  - \"gemm" + std::to_string(i) + ": " + out + "[" + b + "m," + d1 + "] += " + in +
              "[" + b + "m," + d0 + "] * W" + std::to_string(i) + "[" + b + d0 + "," + d1 + "]\"\n";
      in = out;
      if (o_.gemm_chains_only || (i == ops && !o_.indices) || !chance(o_.indices ? 0.8 : 0.35))
        continue;
      const std::string index = "[" + b + "m," + d1 + "]";
      in = "R" + std::to_string(i);
      const std::string bias = chance(0.5) ? " + V" + std::to_string(i) + "[" + d1 + "]" : "";
      text += "  - \"act" + std::to_string(i) + ": " + in + index + " = " +
              indexed("relu(" + out + index + bias + ")", "m", d1) + "\"\n";
    }
    return "name: random-gemm\nloops: {" + loops + "}\noperators:\n" + text;
  }

  /// One-dimensional convolutions of one another, with strides, halos and padding, and channels.
  std::string conv_chain() {
    const int ops = pick(1, o_.most_operators);
    const bool channels = chance(0.5);
    std::vector<std::int64_t> length(static_cast<std::size_t>(ops) + 1);
    std::vector<std::int64_t> taps(length.size()), stride(length.size()), pad(length.size());
    length.back() = extent();
    for (std::size_t i = length.size() - 1; i > 0; --i) {
      taps[i] = pick(1, 3);
      stride[i] = pick(1, 2);
      pad[i] = chance(0.4) ? taps[i] / 2 : 0;
      length[i - 1] = std::max<std::int64_t>(1, (length[i] - 1) * stride[i] + taps[i] - 2 * pad[i]);
    }
    std::string loops, tensors, text;
    const auto add = [](std::string& list, const std::string& item) {
      list += (list.empty() ? "" : ", ") + item;
    };
    std::string in = "T0";
    for (std::size_t i = 0; i < length.size(); ++i) {
      const std::string n = std::to_string(i);
      if (i > 0) add(loops, "x" + n + ": " + std::to_string(length[i]));
      if (i > 0) add(loops, "r" + n + ": " + std::to_string(taps[i]));
      const std::int64_t c = pick(1, 3);
      if (channels) add(loops, "c" + n + ": " + std::to_string(c));
      add(tensors,
          "T" + n + ": [" + (channels ? "c" + n + ", " : "") + std::to_string(length[i]) + "]");
      if (i == 0) continue;
      const std::string p = std::to_string(i - 1);
      const std::string c0 = channels ? "c" + p + "," : "", c1 = channels ? "c" + n + "," : "";
      text += "  - \"conv" + n + ": T" + n + "[" + c1 + "x" + n + "] += " + in + "[" + c0 +
              (stride[i] > 1 ? std::to_string(stride[i]) + "*" : "") + "x" + n + " + r" + n +
              (pad[i] > 0 ? " - " + std::to_string(pad[i]) : "") + "] * W" + n + "[" + c1 + c0 +
              "r" + n + "]\"\n";
      in = "T" + n;
      if (!o_.indices || !chance(0.7)) continue;
      const std::string index = "[" + c1 + "x" + n + "]";
      in = "N" + n;
      text += "  - \"act" + n + ": " + in + index + " = " +
              indexed("T" + n + index, "x" + n, channels ? "c" + n : "x" + n) + "\"\n";
    }
    return "name: random-conv\nloops: {" + loops + "}\ntensors: {" + tensors + "}\noperators:\n" +
           text;
  }

  /// Two products that share an input or nothing: what a pack runs side by side.
  std::string pair() {
    const bool share = chance(0.5);
    const std::string loops =
        "m: " + std::to_string(extent()) + ", d0: " + std::to_string(extent()) +
        ", d1: " + std::to_string(extent()) + ", d2: " + std::to_string(extent());
    return "name: random-pair\nloops: {" + loops +
           "}\noperators:\n  - \"left: X[m,d1] += A[m,d0] * B[d0,d1]\"\n  - \"right: Y[m,d2] += " +
           (share ? "A" : "P") + "[m,d0] * Q[d0,d2]\"\n";
  }

  /// Two operators of one input, side by side if need be, and one or two that read both.
  std::string fan() {
    const std::string loops = "r: " + std::to_string(extent()) + ", c: " + std::to_string(extent());
    std::string text = "  - \"a: a[r,c] = exp(x[r,c])\"\n  - \"s: s[";
    text += chance(0.5) ? "r" : "c";
    text += "] += x[r,c]\"\n";
    const std::string sum = text.find("s[r]") != std::string::npos ? "s[r]" : "s[c]";
    text += "  - \"y: y[r,c] = a[r,c] * " + sum + "\"\n";
    if (chance(0.5))
      text += "  - \"z: z[" + std::string(chance(0.5) ? "r" : "c") + "] += y[r,c]\"\n";
    return "name: random-fan\nloops: {" + loops + "}\noperators:\n" + text;
  }

  /// Two consumers of one tensor, and results that are broadcast.
  std::string row_norm() {
    const std::string loops = "r: " + std::to_string(extent()) + ", c: " + std::to_string(extent());
    std::string text = "  - \"sum: s[r] += " + indexed("x[r,c]", "r", "c") + "\"\n";
    if (chance(0.5)) {
      text += "  - \"mean: u[r] = s[r] * 0.5\"\n  - \"sub: d[r,c] = " +
              indexed("x[r,c] - u[r]", "c", "r") + "\"\n";
      if (chance(0.5))
        text += "  - \"var: v[r] += d[r,c] * d[r,c]\"\n  - \"norm: y[r,c] = d[r,c] * v[r]\"\n";
    } else {
      text += "  - \"norm: y[r,c] = " + indexed("x[r,c] * s[r]", "r", "c") + "\"\n";
    }
    return "name: random-norm\nloops: {" + loops + "}\noperators:\n" + text;
  }

  const RandomOptions& o_;
};

}  // namespace random_trees

}  // namespace tilewright::testing
