// Images that are read at computed places: GridSample, AffineGrid, CenterCropPad.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

/// An image [N, C, H, W] at the places of a grid [N, rows, columns, 2], from -1 to 1.
class Sampling {
 public:
  explicit Sampling(NodeReader& n) : n_(n), b_(n.b) {
    mode_ = n.text("mode", "linear");
    padding_ = n.text("padding_mode", "zeros");
    aligned_ = n.integer("align_corners", 0) != 0;
    if (mode_ == "bilinear") mode_ = "linear";
    if (mode_ != "linear" && mode_ != "nearest") throw Unsupported{"interpolation " + mode_};
    if (padding_ != "zeros" && padding_ != "border" && padding_ != "reflection")
      throw Unsupported{"a mode of padding " + padding_};
    if (n.rank(0) != 4 || n.rank(1) != 4 || n.at(1).shape[3] != 2 ||
        n.at(0).shape[0] != n.at(1).shape[0])
      throw Unsupported{"an image or a grid of another rank"};
  }

  void run() {
    const Value x = place(0, 3), y = place(1, 2);
    std::vector<Value> ins;
    const int corners = mode_ == "linear" ? 2 : 1;
    for (int dy = 0; dy < corners; ++dy)
      for (int dx = 0; dx < corners; ++dx) {
        ins.push_back(weight(x, y, dx, dy));
        ins.push_back(at(index(x, dx, 3), index(y, dy, 2)));
      }
    n_.out[0] = b_.map(n_.name, n_.at(0).type, ins, [&](const Args& a) {
      Expr sum = mul(a[0], a[1]);
      for (std::size_t i = 2; i < a.size(); i += 2) sum = add(std::move(sum), mul(a[i], a[i + 1]));
      return sum;
    });
  }

 private:
  double size(std::size_t dim) const { return static_cast<double>(n_.at(0).shape[dim]); }

  /// [N, rows, columns] of one coordinate, in elements of the image.
  Value place(std::int64_t which, std::size_t dim) {
    const Value& grid = n_.at(1);
    const Value g = squeezed(b_, b_.sliced(n_.name + "_grid", grid, 3, which, 1, 1), 3);
    const double s = size(dim);
    return b_.map(n_.name + (which == 0 ? "_x" : "_y"), grid.type, {g}, [&](const Args& a) {
      Expr x = aligned_ ? mul(add(a[0], number(1)), number((s - 1) / 2))
                        : sub(mul(add(a[0], number(1)), number(s / 2)), number(0.5));
      if (mode_ == "nearest") x = nearest_whole(x);
      if (padding_ == "border") return call("min", {call("max", {x, number(0)}), number(s - 1)});
      if (padding_ == "zeros") return x;
      // Back and forth between the ends.
      const double low = aligned_ ? 0 : -0.5, range = aligned_ ? s - 1 : s;
      if (range <= 0) return number(0);
      const Expr off = call("abs", {sub(x, number(low))});
      const Expr turn = call("floor", {mul(off, number(1 / range))});
      const Expr left = sub(off, mul(turn, number(range)));
      const Expr odd = sub(turn, mul(number(2), call("floor", {mul(turn, number(0.5))})));
      return select(odd, sub(number(low + range), left), add(number(low), left));
    });
  }

  static Expr corner(const Expr& x, int by) {
    const Expr low = call("floor", {x});
    return by == 0 ? low : add(low, number(by));
  }

  /// The element that is read, within the image.
  Value index(const Value& x, int by, std::size_t dim) {
    return b_.map(n_.name + "_at", kInt32, {x}, [&](const Args& a) {
      return call("min", {call("max", {corner(a[0], by), number(0)}), number(size(dim) - 1)});
    });
  }

  /// [N, 1, rows, columns]: how much of the corner counts; nothing outside of the image.
  Value weight(const Value& x, const Value& y, int dx, int dy) {
    const auto share = [&](const Expr& at, int by, std::size_t dim) {
      const Expr c = corner(at, by), off = sub(at, call("floor", {at}));
      Expr w = mode_ == "nearest" ? number(1) : by == 0 ? sub(number(1), off) : off;
      if (padding_ != "zeros") return w;
      return select(call("lt", {c, number(0)}), number(0),
                    select(call("lt", {number(size(dim) - 1), c}), number(0), std::move(w)));
    };
    const Value w = b_.map(n_.name + "_weight", n_.at(0).type, {x, y}, [&](const Args& a) {
      return mul(share(a[0], dx, 3), share(a[1], dy, 2));
    });
    return b_.reshaped(n_.name + "_weight", w, {w.shape[0], 1, w.shape[1], w.shape[2]});
  }

  /// The image's elements at two index tensors [N, rows, columns].
  Value at(const Value& x, const Value& y) {
    Value image = n_.at(0), column = x, row = y;
    if (image.uniform) image = b_.copied(n_.name + "_image", image);
    if (column.uniform) column = b_.copied(n_.name + "_column", column);
    if (row.uniform) row = b_.copied(n_.name + "_row", row);
    const Shape shape = {image.shape[0], image.shape[1], column.shape[1], column.shape[2]};
    for (int turn = 0; turn < 2; ++turn) {
      View vi = b_.read(image), vx = b_.read(column), vy = b_.read(row);
      bool done = true;
      for (int again = 0; again < 2; ++again) {
        for (std::size_t d = 0; d < 3; ++d)
          if (column.shape[d] != 1) done = done && b_.unify(vx, d, vy, d);
        if (shape[0] != 1) done = done && b_.unify(vx, 0, vi, 0);
      }
      b_.normalise(vx);
      b_.normalise(vy);
      done = done && b_.index_by(vi, 2, vy) && b_.index_by(vi, 3, vx);
      if (!done) {
        image = b_.plain(n_.name + "_whole", image, {2, 3});
        column = b_.plain(n_.name + "_column", column);
        row = b_.plain(n_.name + "_row", row);
        continue;
      }
      return b_.emit(n_.name + "_corner", image.type, shape,
                     {vx.dims[0], vi.dims[1], vx.dims[1], vx.dims[2]}, {vi},
                     {.kind = Expr::Kind::input, .input = 0}, Combine::assign);
    }
    throw Unsupported{"an image that is read in parts"};
  }

  NodeReader& n_;
  Builder& b_;
  std::string mode_, padding_;
  bool aligned_ = false;
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
