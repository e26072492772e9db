// Signals: windows, and Fourier transforms as products with constant matrices.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

constexpr std::int64_t kMostEntries = std::int64_t{1} << 22;  // of a matrix

/// Hann, Hamming, Blackman: sums of cosines.
void say_window(NodeReader& n) {
  const auto size = n.known_integers(0);
  if (size.size() != 1 || size[0] < 1 || size[0] > (1 << 20)) throw Unsupported{"its size"};
  const bool periodic = n.integer("periodic", 1) != 0;
  const double span =
      static_cast<double>(periodic ? size[0] : std::max<std::int64_t>(1, size[0] - 1));
  const std::string& op = n.node.op;
  const double first = op == "HannWindow" ? 0.5 : op == "HammingWindow" ? 25.0 / 46 : 0.42;
  const double second = op == "BlackmanWindow" ? 0.5 : 1 - first;
  const double third = op == "BlackmanWindow" ? 0.08 : 0;
  std::vector<double> all;
  for (std::int64_t i = 0; i < size[0]; ++i) {
    const double at = 2 * std::numbers::pi * static_cast<double>(i) / span;
    all.push_back(first - second * std::cos(at) + third * std::cos(2 * at));
  }
  n.out[0] = Builder::known(static_cast<std::int32_t>(n.integer("output_datatype", kFloat)), size,
                            std::move(all));
}

/// [from, to]: cosines or sines of 2 pi r c / length, times a factor and each row's weight.
Value matrix(std::int64_t from, std::int64_t to, std::int64_t length, bool sine, double factor,
             const std::vector<double>& weights = {}) {
  if (from > kMostEntries / to) throw Unsupported{"a transform that is too long"};
  std::vector<double> all;
  for (std::int64_t r = 0; r < from; ++r)
    for (std::int64_t c = 0; c < to; ++c) {
      const double at =
          2 * std::numbers::pi * static_cast<double>(r * c % length) / static_cast<double>(length);
      const double w = weights.empty() ? 1 : weights[static_cast<std::size_t>(r)];
      all.push_back(factor * w * (sine ? std::sin(at) : std::cos(at)));
    }
  return Builder::known(kFloat, {from, to}, std::move(all));
}

/// Real and imaginary parts as a last dimension.
Value paired(Builder& b, const std::string& name, const Value& real, const Value& imaginary) {
  Shape one = real.shape;
  one.push_back(1);
  return joined(b, name, {b.reshaped(name, real, one), b.reshaped(name, imaginary, one)},
                one.size() - 1);
}

Value difference(Builder& b, const std::string& name, const Value& x, const Value& y) {
  return b.map(name, x.type, {x, y}, [](const std::vector<Expr>& a) {
    return call("sub", {a[0], a[1]});
  });
}

/// (a + ib)(cos - i sin), or + where it is inverse, over rows that are last.
Value transformed(Builder& b, const std::string& name, const Value& real,
                  const std::optional<Value>& imaginary, const Value& cosine, const Value& sine,
                  bool inverse, const std::function<Value(const Value&)>& placed) {
  const auto times = [&](const char* what, const Value& x, const Value& m) {
    return matrix_product(b, name + what, x, m);
  };
  const Value ac = times("_ac", real, cosine), as = times("_as", real, sine);
  Value out_real = ac, out_imaginary;
  if (imaginary) {
    const Value bc = times("_bc", *imaginary, cosine), bs = times("_bs", *imaginary, sine);
    out_real = inverse ? difference(b, name + "_real", ac, bs) : sum_of(b, name + "_real", ac, bs);
    out_imaginary = inverse ? sum_of(b, name + "_imaginary", as, bc)
                            : difference(b, name + "_imaginary", bc, as);
  } else {
    out_imaginary = b.map(name + "_imaginary", as.type, {as}, [&](const std::vector<Expr>& a) {
      return inverse ? a[0] : call("neg", {a[0]});
    });
  }
  return paired(b, name, placed(out_real), placed(out_imaginary));
}

/// Real numbers from the first half of their transform: each but the first, and the middle one,
/// counts twice.
void say_real_inverse(NodeReader& n, const Value& x, std::size_t axis) {
  Builder& b = n.b;
  const std::int64_t length = n.has(1) ? n.known_integers(1).at(0) : 2 * (x.shape[axis] - 1);
  if (length < 1 || length > (1 << 20) || x.shape.back() != 2) throw Unsupported{"its length"};
  const std::int64_t from = std::min(length / 2 + 1, x.shape[axis]);
  std::vector<double> weights(static_cast<std::size_t>(from), 2);
  weights[0] = 1;
  if (length % 2 == 0 && from == length / 2 + 1) weights.back() = 1;
  std::vector<std::int64_t> order(n.rank() - 1);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[axis], order.back());
  const auto times = [&](std::int64_t i, bool sine) {
    const Value v = squeezed(b, b.sliced(n.name + "_part", x, n.rank() - 1, i, 1, 1), n.rank() - 1);
    return matrix_product(
        b, n.name + (sine ? "_sine" : "_cosine"),
        b.transposed(b.sliced(n.name + "_part", v, axis, 0, 1, from), order),
        matrix(from, length, length, sine, 1 / static_cast<double>(length), weights));
  };
  const Value y = b.transposed(difference(b, n.name, times(0, false), times(1, true)), order);
  Shape to = y.shape;
  to.push_back(1);
  n.out[0] = b.reshaped(n.name, y, to);
}

void say_dft(NodeReader& n) {
  Builder& b = n.b;
  const Value& x = n.at(0);
  if (n.rank() < 2 || x.shape.back() > 2) throw Unsupported{"numbers of more than two parts"};
  std::int64_t asked = n.integer("axis", 1);
  if (n.opset >= 20) asked = n.has(2) ? n.known_integers(2).at(0) : -2;
  const std::size_t axis = NodeReader::axis(asked, n.rank());
  if (axis + 1 == n.rank()) throw Unsupported{"an axis of parts"};
  const std::int64_t length = n.has(1) ? n.known_integers(1).at(0) : x.shape[axis];
  const bool inverse = n.integer("inverse", 0) != 0, half = n.integer("onesided", 0) != 0;
  if (length < 1 || length > (1 << 20)) throw Unsupported{"its length"};
  if (inverse && half) return say_real_inverse(n, x, axis);
  const std::int64_t from = std::min(length, x.shape[axis]), to = half ? length / 2 + 1 : length;
  std::vector<std::int64_t> order(n.rank() - 1);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[axis], order.back());
  const auto part = [&](std::int64_t i) {
    Value v = squeezed(b, b.sliced(n.name + "_part", x, n.rank() - 1, i, 1, 1), n.rank() - 1);
    return b.transposed(b.sliced(n.name + "_part", v, axis, 0, 1, from), order);
  };
  const double factor = inverse ? 1 / static_cast<double>(length) : 1;
  const std::optional<Value> imaginary =
      x.shape.back() == 2 ? std::optional(part(1)) : std::nullopt;
  n.out[0] = transformed(b, n.name, part(0), imaginary, matrix(from, to, length, false, factor),
                         matrix(from, to, length, true, factor), inverse,
                         [&](const Value& v) { return b.transposed(v, order); });
}

/// A transform of each frame of a signal [B, time, 1 or 2].
void say_stft(NodeReader& n) {
  Builder& b = n.b;
  const Value& x = n.at(0);
  if (n.rank() == 3 && x.shape[2] > 1) throw Unsupported{"signals of two parts"};
  if (n.rank() != 2 && n.rank() != 3) throw Unsupported{"a signal of another rank"};
  const std::int64_t step = n.known_integers(1).at(0);
  std::vector<double> window;
  if (n.has(2)) window = n.known_values(2);
  const std::int64_t length = n.has(3)          ? n.known_integers(3).at(0)
                              : !window.empty() ? static_cast<std::int64_t>(window.size())
                                                : 0;
  const std::int64_t time = x.shape[1];
  if (step < 1 || length < 1 || length > time ||
      (!window.empty() && static_cast<std::int64_t>(window.size()) != length))
    throw Unsupported{"frames that do not fit into the signal"};
  const std::int64_t frames = (time - length) / step + 1,
                     to = n.integer("onesided", 1) != 0 ? length / 2 + 1 : length;
  std::vector<std::int64_t> places;
  if (frames > kMostEntries / length) throw Unsupported{"frames that are too many"};
  for (std::int64_t f = 0; f < frames; ++f)
    for (std::int64_t i = 0; i < length; ++i) places.push_back(f * step + i);
  const Value signal = b.reshaped(n.name + "_signal", x, {x.shape[0], time});
  const Value cut = b.reshaped(n.name + "_frames", b.taken(n.name + "_taken", signal, 1, places),
                               {x.shape[0], frames, length});
  n.out[0] = transformed(b, n.name, cut, std::nullopt, matrix(length, to, length, false, 1, window),
                         matrix(length, to, length, true, 1, window), false,
                         [](const Value& v) { return v; });
}

}  // namespace

std::vector<Said> signal_operators() {
  return {{"HannWindow", say_window},
          {"HammingWindow", say_window},
          {"BlackmanWindow", say_window},
          {"DFT", say_dft},
          {"STFT", say_stft}};
}

}  // namespace tilewright::onnx
