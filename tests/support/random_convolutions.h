// Seeded random chains of two-dimensional convolutions, as YAML text: strides, padding less than,
// equal to and more than half a window, windows of the second and third convolution (which make
// their producers compute halos again), batch, ReLU in between. And single convolutions of one to
// three dimensions with their gradients.
#pragma once

#include <string>

#include "core/base/format.h"
#include "tests/support/random_workloads.h"

namespace tilewright::testing::random_trees {

class ConvolutionMaker : private Dice {
 public:
  explicit ConvolutionMaker(std::mt19937_64& random) : Dice(random) {}

  std::string text() {
    const int ops = chance(0.8) ? 2 : 3;
    const bool batch = chance(0.25);
    b_ = batch ? "b," : "";
    std::int64_t rows = pick<std::int64_t>(3, ops == 2 ? 10 : 8);
    std::int64_t columns = chance(0.5) ? rows : pick<std::int64_t>(1, 8);
    std::int64_t channels = pick<std::int64_t>(1, 4);
    if (batch) add(loops_, "b: " + std::to_string(pick(2, 3)));
    add(loops_, "c0: " + std::to_string(channels));
    tensor("T0", rows, columns, "c0");
    std::string in = "T0";
    for (int i = 1; i <= ops; ++i) {
      const std::string n = std::to_string(i), out = "T" + n;
      const std::string rows_index = dimension("y" + n, "r" + n, rows);
      const std::string columns_index = dimension("x" + n, "s" + n, columns);
      channels = pick<std::int64_t>(1, 4);
      add(loops_, "c" + n + ": " + std::to_string(channels));
      tensor(out, rows, columns, "c" + n);
      const std::string c0 = "c" + std::to_string(i - 1),
                        at = "[" + b_ + "c" + n + ",y" + n + ",x" + n + "]";
      text_ += "  - \"conv" + n + ": " + out + at + " += " + in + "[" + b_ + c0 + "," + rows_index +
               "," + columns_index + "] * W" + n + "[c" + n + "," + c0 + ",r" + n + ",s" + n +
               "]\"\n";
      in = out;
      if (i == ops || !chance(0.4)) continue;
      in = "R" + n;
      text_ += "  - \"relu" + n + ": " + in + at + " = relu(" + out + at + ")\"\n";
    }
    return "name: random-convolutions\nloops: {" + loops_ + "}\ntensors: {" + tensors_ +
           "}\noperators:\n" + text_;
  }

 private:
  static void add(std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ", ") + item;
  }
  void tensor(const std::string& name, std::int64_t rows, std::int64_t columns,
              const std::string& channel) {
    add(tensors_, name + ": [" + b_ + channel + "," + std::to_string(rows) + "," +
                      std::to_string(columns) + "]");
  }

  /// Declares the loops of one dimension and makes `size` that of the output; the input's index.
  std::string dimension(const std::string& along, const std::string& window, std::int64_t& size) {
    const std::int64_t taps = pick<std::int64_t>(1, 3);
    const std::int64_t stride = pick<std::int64_t>(1, 2);
    const std::int64_t padding = chance(0.7) ? taps / 2 : pick<std::int64_t>(0, taps - 1);
    size = std::max<std::int64_t>(1, (size + 2 * padding - taps) / stride + 1);
    add(loops_, along + ": " + std::to_string(size));
    add(loops_, window + ": " + std::to_string(taps));
    return (stride > 1 ? std::to_string(stride) + "*" : "") + along + "+" + window +
           (padding > 0 ? "-" + std::to_string(padding) : "");
  }

  std::string b_, loops_, tensors_, text_;
};

/// One convolution of one to three dimensions, or the gradient of its weights or (without strides)
/// of its input: padding, strides, dilation, groups, channels first or last, odd sizes.
class GradientMaker : private Dice {
 public:
  explicit GradientMaker(std::mt19937_64& random) : Dice(random) {}

  std::string text() {
    const int kind = pick(0, 3);  // 0: forward, 1: of the input, else of the weights
    const int dimensions = pick(1, 3);
    const bool last = chance(0.25);
    const std::string groups = chance(0.4) ? "g," : "";
    std::string loops = formatted("n: {}, c: {}, o: {}", pick(1, 3), pick(1, 9), pick(1, 20));
    if (!groups.empty()) loops += formatted(", g: {}", pick(1, 3));
    std::string points, window, moved, sizes;
    for (int d = 0; d < dimensions; ++d) {
      const std::string y(1, "xyz"[d]), r(1, "rst"[d]);
      const std::int64_t out = pick<std::int64_t>(1, dimensions == 3 ? 5 : 14);
      const std::int64_t taps = pick<std::int64_t>(1, dimensions == 3 ? 3 : 5);
      const std::int64_t stride = kind == 1 ? 1 : pick<std::int64_t>(1, 2), apart = pick(1, 2);
      const std::int64_t pad = pick<std::int64_t>(0, (taps - 1) * apart);
      const std::int64_t span = (out - 1) * stride + (taps - 1) * apart + 1;
      loops += formatted(", {}: {}, {}: {}", y, out, r, taps);
      points += y + ",", window += r + ",";
      moved += kind == 1 ? formatted("{}-{}*{}+{},", y, apart, r, pad)
                         : formatted("{}*{}+{}*{}-{},", stride, y, apart, r, pad);
      sizes += formatted("{},", kind == 1 ? std::max<std::int64_t>(1, out - pad + taps / 2)
                                          : std::max<std::int64_t>(1, span - 2 * pad));
    }
    const auto at = [&](const std::string& channel, const std::string& space) {
      const std::string lead = groups + channel + ",";
      std::string all = "n," + (last ? space + lead : lead + space);
      all.pop_back();
      return all;
    };
    std::string weights = chance(0.3) ? window + groups + "c,o," : groups + "o,c," + window;
    weights.pop_back();
    const std::string read = kind == 1 ? "o" : "c", made = kind == 1 ? "c" : "o";
    std::string factors[] = {"X[" + at(read, moved) + "]", "W[" + weights + "]"};
    std::string target = "Y[" + at(made, points) + "]";
    if (kind > 1) factors[1] = "G[" + at(made, points) + "]", target = "T[" + weights + "]";
    if (chance(0.3)) std::swap(factors[0], factors[1]);
    return formatted("name: gradient\nloops: {{{}}}\ntensors: {{X: [{}]}}\noperators:\n"
                     "  - \"op: {} += {} * {}\"\n",
                     loops, at(read, sizes), target, factors[0], factors[1]);
  }
};

}  // namespace tilewright::testing::random_trees
