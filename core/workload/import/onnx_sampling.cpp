// Images that are read at computed places: GridSample, AffineGrid, CenterCropPad.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

/// An image [N, C, D..., H, W] at the places of a grid [N, ..., 2 or 3], from -1 to 1: along each
/// dimension some elements around the place, weighted.
class Sampling {
 public:
  explicit Sampling(NodeReader& n) : n_(n), b_(n.b) {
    mode_ = n.text("mode", "linear");
    padding_ = n.text("padding_mode", "zeros");
    aligned_ = n.integer("align_corners", 0) != 0;
    if (mode_ == "bilinear") mode_ = "linear";
    if (mode_ == "bicubic") mode_ = "cubic";
    if (mode_ != "linear" && mode_ != "nearest" && mode_ != "cubic")
      throw Unsupported{"interpolation " + mode_};
    if (padding_ != "zeros" && padding_ != "border" && padding_ != "reflection")
      throw Unsupported{"a mode of padding " + padding_};
    deep_ = n.rank(0) - 2;
    const Shape& grid = n.at(1).shape;
    if (n.rank(0) < 4 || n.rank(0) > 5 || grid.size() != n.rank(0) ||
        grid.back() != static_cast<std::int64_t>(deep_) || n.at(0).shape[0] != grid[0])
      throw Unsupported{"an image or a grid of another rank"};
  }

  void run() {
    for (std::size_t d = 0; d < deep_; ++d) {
      const Value at = place(d);
      index_.emplace_back();
      weight_.emplace_back();
      const int first = mode_ == "cubic" ? -1 : 0;
      const int end = mode_ == "cubic" ? 3 : mode_ == "linear" ? 2 : 1;
      for (int by = first; by < end; ++by) {
        index_.back().push_back(index(at, by, d));
        weight_.back().push_back(weight(at, by, d));
      }
    }
    n_.out[0] = summed(n_.name, {});
  }

 private:
  double size(std::size_t d) const { return static_cast<double>(n_.at(0).shape[2 + d]); }

  /// Back and forth between the ends of dimension d.
  Expr reflected(const Expr& x, std::size_t d) const {
    const double low = aligned_ ? 0 : -0.5, range = aligned_ ? size(d) - 1 : size(d);
    if (range <= 0) return number(0);
    const Expr off = call("abs", {sub(x, number(low))});
    const Expr turn = call("floor", {mul(off, number(1 / range))});
    const Expr left = sub(off, mul(turn, number(range)));
    const Expr odd = sub(turn, mul(number(2), call("floor", {mul(turn, number(0.5))})));
    return select(odd, sub(number(low + range), left), add(number(low), left));
  }
  Expr within(const Expr& x, std::size_t d) const {
    return call("min", {call("max", {x, number(0)}), number(size(d) - 1)});
  }

  /// [N, ...] of one coordinate, in elements of the image. The grid has that of columns first.
  Value place(std::size_t d) {
    const Value& grid = n_.at(1);
    const std::size_t last = grid.shape.size() - 1;
    const auto which = static_cast<std::int64_t>(deep_ - 1 - d);
    const Value g = squeezed(b_, b_.sliced(n_.name + "_grid", grid, last, which, 1, 1), last);
    const double s = size(d);
    return b_.map(n_.name + "_place", grid.type, {g}, [&](const Args& a) {
      Expr x = aligned_ ? mul(add(a[0], number(1)), number((s - 1) / 2))
                        : sub(mul(add(a[0], number(1)), number(s / 2)), number(0.5));
      if (mode_ == "nearest") x = nearest_whole(x);
      if (mode_ == "cubic" || padding_ == "zeros") return x;  // each element by itself
      return padding_ == "border" ? within(x, d) : reflected(x, d);
    });
  }

  static Expr corner(const Expr& x, int by) {
    const Expr low = call("floor", {x});
    return by == 0 ? low : add(low, number(by));
  }

  /// The element that is read, within the image.
  Value index(const Value& x, int by, std::size_t d) {
    return b_.map(n_.name + "_at", kInt32, {x}, [&](const Args& a) {
      Expr at = corner(a[0], by);
      // Whole numbers are reflected to whole numbers, but for rounding.
      if (mode_ == "cubic" && padding_ == "reflection") at = nearest_whole(reflected(at, d));
      return within(at, d);
    });
  }

  /// How much the element counts: by the fraction of the place behind its corner.
  Expr share(const Expr& at, int by) const {
    if (mode_ == "nearest") return number(1);
    const Expr off = sub(at, call("floor", {at}));
    if (mode_ == "linear") return by == 0 ? sub(number(1), off) : off;
    constexpr double kA = -0.75;  // of the cubic's outer parts
    const Expr t = by < 1 ? off : sub(number(1), off);
    if (by == 0 || by == 1)  // ((a + 2) t - (a + 3)) t^2 + 1
      return add(mul(sub(mul(number(kA + 2), t), number(kA + 3)), mul(t, t)), number(1));
    const Expr u = add(t, number(1));  // ((a u - 5 a) u + 8 a) u - 4 a
    return sub(mul(add(mul(sub(mul(number(kA), u), number(5 * kA)), u), number(8 * kA)), u),
               number(4 * kA));
  }

  /// [N, 1, ...]: nothing outside of the image.
  Value weight(const Value& x, int by, std::size_t d) {
    const Value w = b_.map(n_.name + "_weight", n_.at(0).type, {x}, [&](const Args& a) {
      Expr s = share(a[0], by);
      if (padding_ != "zeros") return s;
      const Expr c = corner(a[0], by);
      return select(lt(c, number(0)), number(0),
                    select(lt(number(size(d) - 1), c), number(0), std::move(s)));
    });
    Shape to = w.shape;
    to.insert(to.begin() + 1, 1);
    return b_.reshaped(n_.name + "_weight", w, to);
  }

  /// The sum over the elements around the place along all dimensions but the first, whose are
  /// chosen.
  Value summed(const std::string& name, const std::vector<Value>& chosen) {
    const std::size_t d = chosen.size();
    if (d == deep_) return read_at(b_, n_.name + "_element", n_.at(0), 1, 2, chosen);
    std::vector<Value> ins;
    for (std::size_t t = 0; t < index_[d].size(); ++t) {
      std::vector<Value> with = chosen;
      with.push_back(index_[d][t]);
      ins.push_back(weight_[d][t]);
      ins.push_back(summed(n_.name + "_row", with));
    }
    return b_.map(name, n_.at(0).type, ins, [&](const Args& a) {
      Expr sum = mul(a[0], a[1]);
      for (std::size_t i = 2; i < a.size(); i += 2) sum = add(std::move(sum), mul(a[i], a[i + 1]));
      return sum;
    });
  }

  NodeReader& n_;
  Builder& b_;
  std::string mode_, padding_;
  bool aligned_ = false;
  std::size_t deep_ = 0;                            // dimensions
  std::vector<std::vector<Value>> index_, weight_;  // of each dimension, of each element around
};

void say_grid_sample(NodeReader& n) { Sampling(n).run(); }

/// The places of a grid from -1 to 1, moved by a matrix.
void say_affine_grid(NodeReader& n) {
  const auto size = n.known_integers(1);
  const std::size_t deep = size.size() - 2;  // spatial dimensions
  const Value& theta = n.at(0);
  const auto wide = static_cast<std::int64_t>(deep);
  if (size.size() < 4 || size.size() > 5 || theta.shape != Shape{size[0], wide, wide + 1})
    throw Unsupported{"a matrix of another shape"};
  const bool aligned = n.integer("align_corners", 0) != 0;
  std::int64_t points = 1;
  for (std::size_t d = 0; d < deep; ++d) {
    if (size[d + 2] < 1 || points > (1 << 20) / size[d + 2])
      throw Unsupported{"a grid that is too large"};
    points *= size[d + 2];
  }
  std::vector<double> base;
  for (std::int64_t p = 0; p < points; ++p) {
    std::vector<double> one;
    std::int64_t left = p;
    for (std::size_t d = deep; d-- > 0;) {  // the last dimension is the first coordinate
      const auto count = static_cast<double>(size[d + 2]),
                 i = static_cast<double>(left % size[d + 2]);
      left /= size[d + 2];
      one.push_back(!aligned ? (2 * i + 1) / count - 1 : count > 1 ? 2 * i / (count - 1) - 1 : -1);
    }
    base.insert(base.end(), one.begin(), one.end());
    base.push_back(1);
  }
  const Value grid = Builder::known(kFloat, {points, wide + 1}, std::move(base));
  const Value made = matrix_product(n.b, n.name, grid, n.b.transposed(theta, {0, 2, 1}));
  Shape to = {size[0]};
  to.insert(to.end(), size.begin() + 2, size.end());
  to.push_back(wide);
  n.out[0] = cast(n.b.reshaped(n.name, made, to), theta.type);
}

/// The middle of a dimension, or zeros around it.
void say_centre(NodeReader& n) {
  Value v = n.at(0);
  const auto size = n.known_integers(1);
  auto axes = n.integers("axes");
  if (axes.empty())
    for (std::size_t d = 0; d < v.shape.size(); ++d) axes.push_back(static_cast<std::int64_t>(d));
  if (axes.size() != size.size()) throw Unsupported{"as many sizes as axes"};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t d = NodeReader::axis(axes[i], v.shape.size());
    const std::int64_t has = v.shape[d], wants = size[i];
    if (wants < 1 || wants > (1 << 24)) throw Unsupported{"a size below 1, or too large"};
    if (wants <= has) {
      v = n.b.sliced(n.name + "_crop", v, d, (has - wants) / 2, 1, wants);
      continue;
    }
    std::vector<Value> parts;
    const auto zeros = [&](std::int64_t count) {
      Shape shape = v.shape;
      shape[d] = count;
      if (count > 0) parts.push_back(Builder::uniform(v.type, shape, 0));
    };
    zeros((wants - has) / 2);
    parts.push_back(v);
    zeros(wants - has - (wants - has) / 2);
    v = joined(n.b, n.name + "_pad" + std::to_string(d), parts, d);
  }
  n.out[0] = v;
}

}  // namespace

std::vector<Said> sampling_operators() {
  return {{"GridSample", say_grid_sample},
          {"AffineGrid", say_affine_grid},
          {"CenterCropPad", say_centre}};
}

}  // namespace tilewright::onnx
