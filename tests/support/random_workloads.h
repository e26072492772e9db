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
  bool einsums = false;    ///< products of any layout with what follows them, and gradients
  bool phases = false;     ///< several nests of blocks with Y.grid between, and packs
  bool reloads = false;    ///< on two levels: intermediates stored outward and loaded back
  bool drops = false;      ///< of tiles that loads bring
  bool clusters = false;   ///< @cluster
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
    if (o_.einsums) return chance(0.25) ? gradient() : einsum();
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

  std::string loops_of(const std::string& names) {
    std::string text;
    for (const char c : names)
      text +=
          (text.empty() ? "loops: {" : ", ") + std::string(1, c) + ": " + std::to_string(extent());
    return text + "}\n";
  }

  /// Some of the names, in any order; each with that chance.
  std::string some_of(std::string names, double p) {
    std::erase_if(names, [&](char) { return !chance(p); });
    std::ranges::shuffle(names, random_);
    return names;
  }

  /// Loops as an access's indices; of an input some are not plain.
  std::string access(const std::string& tensor, const std::string& loops, bool plain) {
    std::string text;
    for (const char c : loops) {
      const int kind = plain ? 9 : pick(0, 14);
      const std::string one(1, c);
      text += text.empty() ? "" : ",";
      text += kind == 0   ? "2*" + one
              : kind == 1 ? one + " + 2"
              : kind == 2 ? one + " - 1"
              : kind == 3 ? one + " + " + loops[pick<std::size_t>(0, loops.size() - 1)]
                          : one;
    }
    return tensor + "[" + text + "]";
  }

  /// A sum (or an extreme) of products over any loops, in any layout, and element-wise operators
  /// behind it whose operands move along any of its loops or none; sometimes rows of them.
  std::string einsum() {
    const std::string names = std::string("abcde").substr(0, pick<std::size_t>(2, 5));
    std::string out = some_of(names, 0.6), left = some_of(names, 0.6), right = some_of(names, 0.6);
    for (const char c : names)
      if (left.find(c) == std::string::npos && right.find(c) == std::string::npos)
        (chance(0.5) ? left : right) += c;
    const std::string combine = chance(0.85) || out.size() == names.size() ? " += " : " max= ";
    std::string text = "  - \"product: T[" + list(out) + "]" +
                       (out.size() == names.size() ? " = " : combine) + access("x", left, false) +
                       " * " + access("w", right, false) + "\"\n";
    std::string last = "T";
    for (int i = 0; i < pick(0, 2); ++i) {
      const std::string n = std::to_string(i);
      text += "  - \"after" + n + ": R" + n + "[" + list(out) + "] = relu(" + last + "[" +
              list(out) + "])" + (chance(0.5) ? " * " : " + ") +
              access("u" + n, some_of(out, 0.5), true) + " - " +
              access("v" + n, some_of(out, 0.5), true) + "\"\n";
      last = "R" + n;
    }
    if (chance(0.3) && out.size() > 1)
      text += "  - \"rows: S[" + list(some_of(out, 0.4)) + "] " + (chance(0.5) ? "+=" : "max=") +
              " " + last + "[" + list(out) + "]\"\n";
    return "name: random-einsum\n" + loops_of(names) + "operators:\n" + text;
  }

  static std::string list(const std::string& loops) {
    std::string text;
    for (const char c : loops) text += (text.empty() ? "" : ",") + std::string(1, c);
    return text;
  }

  /// What a product, a convolution or a softmax goes back by.
  std::string gradient() {
    switch (pick(0, 2)) {
      case 0:
        return "name: random-gradient\n" + loops_of("mnk") +
               "operators:\n  - \"g: G[m,n] = T[m,n] * (1 - square(Y[m,n]))\"\n"
               "  - \"left: A[m,k] += G[m,n] * W[k,n]\"\n"
               "  - \"right: B[k,n] += X[m,k] * G[m,n]\"\n  - \"bias: C[n] += G[m,n]\"\n";
      case 1: {
        const int step = pick(1, 3), apart = pick(1, 2), pad = pick(0, 2), taps = pick(1, 3);
        const std::int64_t size = extent();
        const std::int64_t in =
            std::max<std::int64_t>(1, (size - 1) * step + (taps - 1) * apart + 1 - 2 * pad);
        return "name: random-gradient\nloops: {b: " + std::to_string(pick(1, 3)) +
               ", o: " + std::to_string(extent()) + ", c: " + std::to_string(pick(1, 4)) +
               ", h: " + std::to_string(size) + ", r: " + std::to_string(taps) +
               "}\ntensors: {I: [b, c, " + std::to_string(in) +
               "]}\noperators:\n  - \"weights: W[o,c,r] += D[b,o,h] * I[b,c," +
               std::to_string(step) + "*h + " + std::to_string(apart) + "*r - " +
               std::to_string(pad) + "]\"\n  - \"bias: V[o] += D[b,o,h]\"\n";
      }
      default: {
        const bool rows = chance(0.5);
        const std::string kept = rows ? "r" : "c";
        return "name: random-gradient\n" + loops_of("rc") + "operators:\n  - \"dot: d[" + kept +
               "] += t[r,c] * y[r,c]\"\n  - \"back: g[r,c] = y[r,c] * (t[r,c] - d[" + kept +
               "])\"\n";
      }
    }
  }

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
