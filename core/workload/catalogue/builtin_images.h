// Layers of networks over images, written as the operators of a workload.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {

using Loops = std::vector<std::string>;

/// A tensor of channels (one dimension, or groups and channels of a group), rows and columns.
struct Image {
  std::string tensor;
  Loops channels;
  std::int64_t size = 1;  ///< rows, and as many columns
};

struct Window {
  std::int64_t kernel = 1, stride = 1, dilation = 1;
  /// Padding keeps the rows of a stride of 1.
  std::int64_t rows(std::int64_t of) const { return (of - 1) / stride + 1; }
};

/// Appends operators to a workload; names them, their tensors and the loops.
class ConvNet {
 public:
  explicit ConvNet(DType dtype) : d_(dtype) {}

  RawWorkload take() { return d_.take(); }
  void op(const std::string& notation) { d_.op(notation); }
  void weights(const std::string& tensor, std::int64_t terms) { d_.weights(tensor, terms); }
  void declare(const std::string& tensor, const std::string& dimensions) {
    d_.tensor(tensor, dimensions);
  }

  /// The loop of that role and extent.
  std::string loop(const std::string& role, std::int64_t extent) {
    const std::string name = role + std::to_string(extent);
    if (extents_.emplace(name, extent).second) d_.loop(name, extent);
    return name;
  }
  /// A loop for channels that are made from an image: another than the image's.
  Loops channels(std::int64_t many, const Image& from) {
    const std::string usual = "c" + std::to_string(many);
    return {loop(std::ranges::find(from.channels, usual) == from.channels.end() ? "c" : "e", many)};
  }
  std::int64_t extent(const Loops& loops) const {
    std::int64_t n = 1;
    for (const std::string& l : loops) n *= extents_.at(l);
    return n;
  }
  std::string at(const Image& i) { return "[" + dimensions(i) + "]"; }
  std::string dimensions(const Image& i) {
    return text(i.channels) + "," + loop("y", i.size) + "," + loop("x", i.size);
  }

  Image input(std::int64_t channels, std::int64_t size) {
    const Image in{"image", {loop("c", channels)}, size};
    const std::string rows = std::to_string(size);
    d_.tensor(in.tensor, in.channels.front() + "," + rows + "," + rows);
    return in;
  }

  /// Channels that `in` and `out` both have are not summed over: groups, or a convolution of each
  /// channel for itself. Weights are drawn so that the result varies by one part in `damped` of
  /// what its input does (variances), and are named W_NAME.
  Image convolution(const std::string& name, const Image& in, const Loops& out,
                    const Window& w = {}, std::int64_t damped = 1) {
    const Image made{name, out, w.rows(in.size)};
    Loops of = out;
    for (const std::string& l : in.channels)
      if (std::ranges::find(out, l) == out.end()) of.push_back(l);
    const std::string window = windowed(in, made, w);
    if (w.kernel > 1)
      for (const char* tap : {"r", "s"}) of.push_back(loop(tap, w.kernel));
    d_.op(name + ": " + name + at(made) + " += " + in.tensor + window + " * W_" + name + "[" +
          text(of) + "]");
    d_.weights("W_" + name, extent(of) / extent(out) * damped);
    return made;
  }
  Image biased(const Image& in) {
    return mapped("b", in, "{} + b_" + in.tensor + "[" + text(in.channels) + "]");
  }
  Image relu(const Image& in) { return mapped("r", in, "relu({})"); }
  Image swish(const Image& in) { return mapped("w", in, "{} * sigmoid({})"); }
  /// name_suffix = value of each element {}.
  Image mapped(const std::string& suffix, const Image& in, const std::string& value) {
    const Image made{in.tensor + "_" + suffix, in.channels, in.size};
    std::string filled = value;
    for (std::size_t i = filled.find("{}"); i != filled.npos; i = filled.find("{}"))
      filled.replace(i, 2, in.tensor + at(in));
    d_.op(made.tensor + ": " + made.tensor + at(made) + " = " + filled);
    return made;
  }
  Image added(const std::string& name, const Image& a, const Image& b) {
    const Image made{name, a.channels, a.size};
    d_.op(name + ": " + name + at(made) + " = " + a.tensor + at(a) + " + " + b.tensor + at(a));
    return made;
  }
  /// The largest of 3 x 3, stride 2. Outside of the image there are zeros: right after a ReLU.
  Image pooled(const std::string& name, const Image& in) {
    const Window w{3, 2};
    const Image made{name, in.channels, w.rows(in.size)};
    const std::string window = windowed(in, made, w);
    d_.op(name + ": " + name + at(made) + " max= " + in.tensor + window);
    return made;
  }
  /// The mean of each channel: name[channels].
  void mean(const std::string& name, const Image& in) {
    const std::string of = "[" + text(in.channels) + "]", sum = name + "_sum";
    d_.op(sum + ": " + sum + of + " += " + in.tensor + at(in));
    const double size = static_cast<double>(in.size);
    d_.op(name + ": " + name + of + " = " + sum + of + " * " + number_text(1.0 / (size * size)));
  }
  /// A product of a vector with weights, and a bias: name_b[out].
  void product(const std::string& name, const std::string& from, const Loops& in,
               const std::string& out) {
    d_.op(name + ": " + name + "[" + out + "] += " + from + "[" + text(in) + "] * W_" + name + "[" +
          out + "," + text(in) + "]");
    d_.weights("W_" + name, extent(in));
    d_.op(name + "_b: " + name + "_b[" + out + "] = " + name + "[" + out + "] + b_" + name + "[" +
          out + "]");
  }
  RawWorkload classified(const Image& in, std::int64_t classes) {
    mean("mean", in);
    product("fc", "mean", in.channels, loop("n", classes));
    return take();
  }

  static std::string text(const Loops& loops) {
    std::string out;
    for (const std::string& l : loops) out += (out.empty() ? "" : ",") + l;
    return out;
  }

  /// What the window around each element of `made` reads.
  std::string windowed(const Image& in, const Image& made, const Window& w) {
    const auto index = [&](const char* rows, const char* tap) {
      const auto times = [](std::int64_t n, const std::string& l) {
        return n == 1 ? l : std::to_string(n) + "*" + l;
      };
      const std::string at = times(w.stride, loop(rows, made.size));
      if (w.kernel == 1) return at;
      return at + "+" + times(w.dilation, loop(tap, w.kernel)) + "-" +
             std::to_string(w.dilation * (w.kernel / 2));
    };
    return "[" + text(in.channels) + "," + index("y", "r") + "," + index("x", "s") + "]";
  }

 private:
  Draft d_;
  std::map<std::string, std::int64_t> extents_;
};

}  // namespace tilewright::builtin
