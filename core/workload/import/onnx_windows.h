// Windows that move over an image: of convolutions, pools and what reads images by offsets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {

/// One dimension of a window.
struct Window {
  std::int64_t kernel = 1, stride = 1, dilation = 1, begin = 0, end = 0, in = 1, out = 1;
  std::int64_t reach() const { return dilation * (kernel - 1) + 1; }
  bool trivial() const {
    return kernel == 1 && begin == 0 && in == out && (stride == 1 || out == 1);
  }
  /// False where all windows lie before the image, or all behind it.
  bool meets() const { return (out - 1) * stride - begin + reach() > 0 && -begin < in; }
  /// Whether any window reads beyond the image.
  bool outside() const { return begin > 0 || (out - 1) * stride - begin + reach() > in; }
};

/// The element of a list, or what stands for it.
std::int64_t nth(const std::vector<std::int64_t>& list, std::size_t i, std::int64_t otherwise);
/// Unsupported where sizes are none.
void check(const Window& w);
/// Of a node's attributes and the image that is its first input.
std::vector<Window> windows(const NodeReader& n, const Shape& kernel);
/// Dimensions from `first` on with one variable each where windows move over them.
Value movable(Builder& b, const std::string& name, const Value& v, std::size_t first,
              const std::vector<bool>& moved);
/// Reads x at the windows; false where that needs a copy.
bool slide(Builder& b, View& x, std::size_t first, const std::vector<Window>& ws,
           const std::vector<Vars>& at, const std::vector<Vars>& taps);
std::vector<bool> moved_of(const std::vector<Window>& ws);

}  // namespace tilewright::onnx
