// Parts of images that are found while running: RoiAlign, and convolutions whose windows' elements
// lie where offsets say. Each place is read as four elements around it, weighted.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_windows.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

/// Along one dimension, the two elements around a place and how much each counts.
struct Around {
  Value index[2], weight[2];
};

/// 0, step, 2 step, ... from `first` on along a dimension.
Value steps(std::size_t rank, std::size_t dim, std::int64_t count, double first, double step) {
  Shape to(rank, 1);
  to[dim] = count;
  std::vector<double> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(first + static_cast<double>(i) * step);
  return Builder::known(kFloat, to, std::move(all));
}

class Regions {
 public:
  explicit Regions(NodeReader& n) : n_(n), b_(n.b), x_(n.at(0)), rois_(n.at(1)) {
    rows_ = n.integer("output_height", 1);
    columns_ = n.integer("output_width", 1);
    samples_ = n.integer("sampling_ratio", 0);
    scale_ = n.real("spatial_scale", 1);
    const std::string way =
        n.text("coordinate_transformation_mode", n.opset < 16 ? "output_half_pixel" : "half_pixel");
    half_ = way == "half_pixel";
    if (!half_ && way != "output_half_pixel") throw Unsupported{"coordinates " + way};
    const std::string mode = n.text("mode", "avg");
    largest_ = mode == "max";
    if (!largest_ && mode != "avg") throw Unsupported{"a mode " + mode};
    if (x_.shape.size() != 4 || rois_.shape.size() != 2 || rois_.shape[1] != 4 ||
        n.at(2).shape != Shape{rois_.shape[0]})
      throw Unsupported{"an input of another rank"};
    constexpr std::int64_t kMost = 4096;
    for (const std::int64_t e : {rows_, columns_})
      if (e < 1 || e > kMost) throw Unsupported{"an output of another size"};
    if (samples_ < 1)
      throw Unsupported{"a number of samples that is found while running (sampling_ratio 0)"};
    if (samples_ > kMost / std::max(rows_, columns_)) throw Unsupported{"too many samples"};
    if (!is_integer(n.at(2).type)) throw Unsupported{"indices that are not whole numbers"};
  }

  void run() {
    const std::int64_t count = rois_.shape[0], rows = rows_ * samples_,
                       columns = columns_ * samples_;
    const Around y = around(2, 1, rows_), x = around(3, 0, columns_);
    const Shape whole = {count, rows, columns};
    const Value batch =
        b_.expanded(b_.reshaped(n_.name + "_batch", cast(n_.at(2), kInt32), {count, 1, 1}), whole);
    const Value image = b_.transposed(x_, {1, 0, 2, 3});
    std::vector<Value> ins;
    for (int dy = 0; dy < 2; ++dy)
      for (int dx = 0; dx < 2; ++dx) {
        ins.push_back(y.weight[dy]);
        ins.push_back(x.weight[dx]);
        ins.push_back(
            read_at(b_, n_.name + "_corner", image, 0, 1,
                    {batch, b_.expanded(y.index[dy], whole), b_.expanded(x.index[dx], whole)}));
      }
    const Value sampled = b_.map(n_.name + "_samples", x_.type, ins, [&](const Args& a) {
      Expr all = mul(mul(a[0], a[1]), a[2]);
      for (std::size_t i = 3; i < a.size(); i += 3) {
        Expr one = mul(mul(a[i], a[i + 1]), a[i + 2]);
        all = largest_ ? call("max", {std::move(all), std::move(one)})
                       : add(std::move(all), std::move(one));
      }
      return all;
    });
    const Value cut = b_.reshaped(n_.name + "_cut", sampled,
                                  {x_.shape[1], count, rows_, samples_, columns_, samples_});
    Value made =
        b_.reduce(largest_ ? n_.name : n_.name + "_sum", cut, {3, 5},
                  largest_ ? Combine::max : Combine::sum, [](const Args& a) { return a[0]; });
    if (!largest_)
      made = b_.map(n_.name, x_.type, {made}, [&](const Args& a) {
        return mul(a[0], number(1 / static_cast<double>(samples_ * samples_)));
      });
    made = b_.reshaped(n_.name, made, {x_.shape[1], count, rows_, columns_});
    n_.out[0] = b_.transposed(made, {1, 0, 2, 3});
  }

 private:
  /// Of dimension `dim` of the image; `first`: which of a region's numbers begins it.
  Around around(std::size_t dim, std::int64_t first, std::int64_t bins) {
    const std::int64_t count = rois_.shape[0];
    const auto end = [&](std::int64_t i) {
      return b_.reshaped(n_.name + "_end", b_.sliced(n_.name + "_end", rois_, 1, i, 1, 1),
                         {count, 1, 1});
    };
    const std::size_t at = dim - 1;
    const auto size = static_cast<double>(x_.shape[dim]);
    const std::int64_t all = bins * samples_;
    const Value step = steps(3, at, all, 0.5, 1);
    const Value place = b_.map(
        n_.name + "_place", rois_.type, {end(first), end(first + 2), step}, [&](const Args& a) {
          const auto scaled = [&](const Expr& e) {
            const Expr s = scale_ == 1 ? e : mul(e, number(scale_));
            return half_ ? sub(s, number(0.5)) : s;
          };
          const Expr begin = scaled(a[0]);
          Expr length = sub(scaled(a[1]), begin);
          if (!half_) length = call("max", {std::move(length), number(1)});
          return add(begin, mul(a[2], mul(length, number(1 / static_cast<double>(all)))));
        });
    const auto held = [&](const Expr& x) {
      return call("min", {call("max", {x, number(0)}), number(size - 1)});
    };
    Around out;
    for (const int by : {0, 1}) {
      out.index[by] = b_.map(n_.name + "_at", kInt32, {place}, [&](const Args& a) {
        const Expr low = call("floor", {held(a[0])});
        return by == 0 ? low : call("min", {add(low, number(1)), number(size - 1)});
      });
      out.weight[by] = b_.map(n_.name + "_weight", x_.type, {place}, [&](const Args& a) {
        const Expr at_ = held(a[0]), off = sub(at_, call("floor", {at_}));
        const Expr w = by == 0 ? sub(number(1), off) : off;
        return select(lt(a[0], number(-1)), number(0),
                      select(lt(number(size), a[0]), number(0), w));
      });
    }
    return out;
  }

  NodeReader& n_;
  Builder& b_;
  Value x_, rois_;
  std::int64_t rows_ = 0, columns_ = 0, samples_ = 0;
  double scale_ = 1;
  bool half_ = true, largest_ = false;
};

void say_roi_align(NodeReader& n) { Regions(n).run(); }

/// A convolution whose window's elements are moved by offsets [N, groups * taps * 2, rows,
/// columns].
void say_deform_conv(NodeReader& n) {
  Builder& b = n.b;
  const Value &x = n.at(0), &w = n.at(1), &offset = n.at(2);
  if (x.shape.size() != 4 || w.shape.size() != 4 || offset.shape.size() != 4)
    throw Unsupported{"an image that has not two dimensions"};
  Shape kernel = n.integers("kernel_shape");
  if (kernel.empty()) kernel = {w.shape[2], w.shape[3]};
  if (kernel != Shape{w.shape[2], w.shape[3]}) throw Unsupported{"a kernel of another shape"};
  const std::vector<Window> ws = windows(n, kernel);
  const std::int64_t g = n.integer("group", 1), og = n.integer("offset_group", 1),
                     batch = x.shape[0], c = x.shape[1], taps = kernel[0] * kernel[1];
  if (g < 1 || og < 1 || c % g != 0 || c % og != 0 || w.shape[1] != c / g || w.shape[0] % g != 0)
    throw Unsupported{"groups that do not divide"};
  const Shape out = {ws[0].out, ws[1].out};
  if (offset.shape != Shape{batch, og * taps * 2, out[0], out[1]})
    throw Unsupported{"offsets of another shape"};
  // Places of [N, groups, taps, rows, columns].
  const Value moved = b.reshaped(n.name + "_offsets", offset, {batch, og, taps, 2, out[0], out[1]});
  Around around[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const Window& d = ws[i];
    const auto size = static_cast<double>(x.shape[2 + i]);
    std::vector<double> tap;
    for (std::int64_t t = 0; t < taps; ++t)
      tap.push_back(static_cast<double>((i == 0 ? t / kernel[1] : t % kernel[1]) * d.dilation));
    const Value of_tap = Builder::known(kFloat, {1, 1, taps, 1, 1}, std::move(tap));
    const Value of_window =
        steps(5, 3 + i, d.out, -static_cast<double>(d.begin), static_cast<double>(d.stride));
    const Value by =
        squeezed(b, b.sliced(n.name + "_offset", moved, 3, static_cast<std::int64_t>(i), 1, 1), 3);
    const Value place = b.map(n.name + "_place", x.type, {by, of_tap, of_window},
                              [](const Args& a) { return add(a[0], add(a[1], a[2])); });
    for (const int more : {0, 1}) {
      const auto corner = [&](const Expr& at) {
        const Expr low = call("floor", {at});
        return more == 0 ? low : add(low, number(1));
      };
      around[i].index[more] = b.map(n.name + "_at", kInt32, {place}, [&](const Args& a) {
        return call("min", {call("max", {corner(a[0]), number(0)}), number(size - 1)});
      });
      const Value weight = b.map(n.name + "_weight", x.type, {place}, [&](const Args& a) {
        const Expr off = sub(a[0], call("floor", {a[0]})), at = corner(a[0]);
        const Expr share = more == 0 ? sub(number(1), off) : off;
        return select(lt(at, number(0)), number(0),
                      select(lt(number(size - 1), at), number(0), share));
      });
      around[i].weight[more] =
          b.reshaped(n.name + "_weight", weight, {batch, og, 1, taps, out[0], out[1]});
    }
  }
  const Value image = b.reshaped(n.name + "_image", x, {batch, og, c / og, x.shape[2], x.shape[3]});
  std::vector<Value> ins;
  for (int dy = 0; dy < 2; ++dy)
    for (int dx = 0; dx < 2; ++dx) {
      ins.push_back(around[0].weight[dy]);
      ins.push_back(around[1].weight[dx]);
      ins.push_back(
          read_at(b, n.name + "_corner", image, 2, 3, {around[0].index[dy], around[1].index[dx]}));
    }
  if (n.has(4)) {
    if (n.at(4).shape != Shape{batch, og * taps, out[0], out[1]})
      throw Unsupported{"a mask of another shape"};
    ins.push_back(b.reshaped(n.name + "_mask", n.at(4), {batch, og, 1, taps, out[0], out[1]}));
  }
  const Value columns = b.map(n.name + "_columns", x.type, ins, [](const Args& a) {
    Expr sum = mul(mul(a[0], a[1]), a[2]);
    for (std::size_t i = 3; i + 2 < a.size(); i += 3)
      sum = add(std::move(sum), mul(mul(a[i], a[i + 1]), a[i + 2]));
    return a.size() % 3 == 0 ? sum : mul(std::move(sum), a.back());
  });
  std::vector<Value> in = {
      b.reshaped(n.name + "_columns", columns, {batch, c * taps, out[0], out[1]}),
      b.reshaped(n.name + "_kernel", w, {w.shape[0], w.shape[1] * taps, 1, 1})};
  if (n.has(3)) in.push_back(n.at(3));
  n.out[0] = said_as(n, n.name, "Conv", std::move(in), {{.name = "group", .integer = g}}).front();
}

}  // namespace

std::vector<Said> region_operators() {
  return {{"RoiAlign", say_roi_align}, {"DeformConv", say_deform_conv}};
}

}  // namespace tilewright::onnx
