// Resize and Upsample: each element of the result is a sum of a few of its row, at places and with
// weights that are constants. Dimensions are resized one after another.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

constexpr std::size_t kMostReads = 4;  // of an element; more are a product with a matrix
constexpr std::int64_t kMostResized = std::int64_t{1} << 22;  // of an axis, each with what it reads
constexpr std::int64_t kMostWeights = std::int64_t{1} << 22;  // of a matrix

/// One dimension on its way: out elements of in ones.
struct Resized {
  std::int64_t in = 1, out = 1;
  double scale = 1, from = 0, to = 1;  ///< out over in; the part that is cropped
};

/// What an element reads.
struct Tap {
  std::int64_t at = 0;
  double weight = 0;
};
using Taps = std::vector<Tap>;

class Resizing {
 public:
  explicit Resizing(NodeReader& n) : n_(n), b_(n.b) {
    const bool old = n.opset < 11 || n.node.op == "Upsample";
    mode_ = n.text("mode", "nearest");
    way_ = n.text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    rounding_ = n.text("nearest_mode", old ? "floor" : "round_prefer_floor");
    coefficient_ = n.real("cubic_coeff_a", -0.75);
    outside_ = n.integer("exclude_outside", 0) != 0;
    antialias_ = n.integer("antialias", 0) != 0;
    beyond_ = n.real("extrapolation_value", 0);
    if (mode_ == "bilinear" || mode_ == "trilinear") mode_ = "linear";
    if (mode_ != "nearest" && mode_ != "linear" && mode_ != "cubic")
      throw Unsupported{"interpolation " + mode_};
    static constexpr std::string_view kWays =
        " half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
        "tf_crop_and_resize ";
    if (kWays.find(" " + way_ + " ") == kWays.npos) throw Unsupported{"coordinates by " + way_};
    if (mode_ == "nearest" && rounding_ != "floor" && rounding_ != "ceil" &&
        rounding_ != "round_prefer_ceil" && rounding_ != "round_prefer_floor")
      throw Unsupported{"the nearest by " + rounding_};
  }

  void run() {
    Value v = n_.at(0);
    const std::vector<std::size_t> dims = dimensions();
    const std::vector<Resized> axes = sizes(dims);
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const Resized& a = axes[i];
      if (stays(a)) continue;
      v = resized(n_.name + "_d" + std::to_string(dims[i]), v, dims[i], a);
    }
    n_.out[0] = v;
    n_.out[0].nonnegative = n_.at(0).nonnegative && mode_ != "cubic" && beyond_ >= 0;
  }

 private:
  bool crops() const { return way_ == "tf_crop_and_resize"; }
  bool stays(const Resized& a) const { return a.out == a.in && a.scale == 1 && !crops(); }

  std::vector<std::size_t> dimensions() const {
    std::vector<std::size_t> dims(n_.rank());
    std::iota(dims.begin(), dims.end(), std::size_t{0});
    if (!n_.has_attribute("axes")) return dims;
    dims.clear();
    for (const std::int64_t a : n_.integers("axes")) dims.push_back(NodeReader::axis(a, n_.rank()));
    return dims;
  }

  std::vector<Resized> sizes(const std::vector<std::size_t>& dims) const {
    const bool old = n_.node.op == "Upsample" || n_.opset < 11;
    const std::size_t scales_at = old ? 1 : 2, count = dims.size();
    std::vector<double> scales = n_.reals("scales");
    if (n_.has(scales_at)) scales = n_.known_values(scales_at);
    std::vector<std::int64_t> sizes;
    if (n_.has(3)) sizes = n_.known_integers(3);
    if ((scales.size() == count) == (sizes.size() == count))
      throw Unsupported{"a scale or a size for each dimension"};
    std::vector<double> crop;
    if (crops()) crop = n_.known_values(1);
    if (crops() && crop.size() != 2 * count)
      throw Unsupported{"a part to crop that is not two numbers a dimension"};
    std::vector<Resized> axes;
    for (std::size_t i = 0; i < count; ++i) {
      Resized a{.in = n_.at(0).shape[dims[i]]};
      const bool sized = sizes.size() == count;
      a.scale = sized ? static_cast<double>(sizes[i]) / static_cast<double>(a.in) : scales[i];
      // Scales are f32, and so is the product that is cut off: 5 times 2.6 are 13 elements.
      const double many = std::floor(static_cast<float>(a.in) * static_cast<float>(a.scale));
      a.out = sized ? sizes[i] : many >= 1 && many < 0x1p24 ? static_cast<std::int64_t>(many) : 0;
      if (crops()) a.from = crop[i], a.to = crop[i + count];
      axes.push_back(a);
    }
    const std::string policy = n_.text("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch" && sizes.size() == count) {
      if (policy != "not_larger" && policy != "not_smaller")
        throw Unsupported{"an aspect ratio by " + policy};
      const auto less = [](const Resized& x, const Resized& y) { return x.scale < y.scale; };
      const double scale = (policy == "not_larger" ? std::ranges::min_element(axes, less)
                                                   : std::ranges::max_element(axes, less))
                               ->scale;
      for (Resized& a : axes) {
        a.scale = scale;
        a.out =
            static_cast<std::int64_t>(std::min(scale * static_cast<double>(a.in) + 0.5, 0x1p25));
      }
    }
    for (const Resized& a : axes) {
      if (stays(a)) continue;
      if (a.out < 1 || a.out > kMostResized)
        throw Unsupported{"an axis of " + std::to_string(a.out) + " elements, not of 1 to " +
                          std::to_string(kMostResized)};
      // Before the places are counted: an element reads as many as there are for each of the
      // result.
      if (mode_ != "nearest" && antialias_ &&
          2 * reach() > static_cast<double>(kMostReads) * a.scale)
        check_matrix(a.in, a.out);
    }
    return axes;
  }

  /// Where the element lies between those of the input.
  double place(const Resized& a, std::int64_t y) const {
    const auto at = static_cast<double>(y), in = static_cast<double>(a.in),
               out = static_cast<double>(a.out), exact = a.scale * in;
    if (way_ == "asymmetric") return at / a.scale;
    if (way_ == "align_corners") return exact == 1 ? 0 : at * (in - 1) / (exact - 1);
    if (way_ == "pytorch_half_pixel") return exact == 1 ? 0 : (at + 0.5) / a.scale - 0.5;
    if (crops())
      return a.from * (in - 1) + (a.out == 1 ? (a.to - a.from) * (in - 1) / 2
                                             : at * (a.to - a.from) * (in - 1) / (exact - 1));
    const double moved = way_ == "half_pixel" ? 0 : in / 2 * (1 - out / exact);
    return moved + (at + 0.5) / a.scale - 0.5;
  }

  /// On each side, in elements of the input where the scale is 1 or more.
  double reach() const { return mode_ == "linear" ? 1 : 2; }

  static void check_matrix(std::int64_t in, std::int64_t out) {
    if (out > kMostWeights / in) throw Unsupported{"a matrix of weights that is too large"};
  }

  double cubic(double x) const {
    x = std::fabs(x);
    const double a = coefficient_;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
  }

  /// What lies around a place, nearest ones within the tensor: weights that add up to 1.
  Taps taps(const Resized& a, std::int64_t y) const {
    const double x = place(a, y);
    if (crops() && !(x >= 0 && x <= static_cast<double>(a.in - 1))) return {};
    const auto within = [&](std::int64_t p) { return std::clamp<std::int64_t>(p, 0, a.in - 1); };
    if (mode_ == "nearest") {
      const double i = rounding_ == "floor"               ? std::floor(x)
                       : rounding_ == "ceil"              ? std::ceil(x)
                       : rounding_ == "round_prefer_ceil" ? std::floor(x + 0.5)
                                                          : std::ceil(x - 0.5);
      return {{within(static_cast<std::int64_t>(i)), 1}};
    }
    // A larger step than 1 takes in more elements, where it is asked for.
    const double narrow = antialias_ ? std::min(a.scale, 1.0) : 1;
    const auto first = static_cast<std::int64_t>(std::floor(x)) +
                       static_cast<std::int64_t>(std::floor(-reach() / narrow)) + 1;
    const std::int64_t last = 2 * static_cast<std::int64_t>(std::floor(x)) + 1 - first;
    Taps all;
    double sum = 0;
    for (std::int64_t p = first; p <= last; ++p) {
      const double far = (static_cast<double>(p) - x) * narrow;
      double weight = mode_ == "linear" ? std::max(0.0, 1 - std::fabs(far)) : cubic(far);
      if (outside_ && within(p) != p) weight = 0;
      if (weight == 0) continue;
      sum += weight;
      if (all.empty() || all.back().at != within(p))
        all.push_back({within(p), weight});
      else
        all.back().weight += weight;
    }
    if (outside_ || antialias_)
      for (Tap& t : all) t.weight /= sum;
    return all;
  }

  Value resized(const std::string& name, const Value& v, std::size_t dim, const Resized& a) {
    std::vector<Taps> all;
    std::size_t most = 1;
    bool one = true, beyond = false;
    for (std::int64_t y = 0; y < a.out; ++y) {
      all.push_back(taps(a, y));
      most = std::max(most, all.back().size());
      beyond = beyond || all.back().empty();
      one = one && (all.back().empty() || (all.back().size() == 1 && all.back()[0].weight == 1));
    }
    Value out = one ? moved(name, v, dim, a, all) : summed(name, v, dim, all, most);
    if (!beyond) return out;
    std::vector<double> there;
    for (const Taps& t : all) there.push_back(t.empty() ? 0 : 1);
    Shape along(v.shape.size(), 1);
    along[dim] = a.out;
    const Value mask = Builder::known(kBool, along, std::move(there));
    return b_.map(name + "_beyond", v.type, {mask, out}, [&](const Args& x) {
      return call("select", {x[0], x[1], number(beyond_)});
    });
  }

  bool in_pieces(const Value& v, std::size_t dim) {
    if (!v.view) return false;
    View view = b_.read(v);
    b_.normalise(view);
    return view.dims[dim].size() > 1;
  }

  /// Elements that are copied, as an index.
  Value moved(const std::string& name, const Value& v, std::size_t dim, const Resized& a,
              const std::vector<Taps>& all) {
    std::vector<std::int64_t> from;
    for (const Taps& t : all) from.push_back(t.empty() ? 0 : t[0].at);
    bool blocks = a.out % a.in == 0;
    for (std::int64_t y = 0; blocks && y < a.out; ++y)
      blocks = from[static_cast<std::size_t>(y)] == y / (a.out / a.in);
    if (!blocks) return b_.taken(name, v, dim, from);
    // An image that is in pieces already, as one that was made larger before, is put together
    // first: its elements stay where they are, and all that read the result have fewer pieces.
    if (in_pieces(v, dim)) return moved(name, b_.plain(name + "_whole", v), dim, a, all);
    // Each element again and again: a dimension after it, of which nothing depends.
    Shape apart = v.shape, to = v.shape;
    apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 1);
    Shape wide = apart;
    wide[dim + 1] = a.out / a.in;
    to[dim] = a.out;
    return b_.reshaped(name, b_.expanded(b_.reshaped(name + "_apart", v, apart), wide), to);
  }

  /// Elements that are sums of `most` at most.
  Value summed(const std::string& name, const Value& v, std::size_t dim,
               const std::vector<Taps>& all, std::size_t most) {
    const auto out = static_cast<std::int64_t>(all.size());
    Value x = v.uniform ? b_.copied(name + "_image", v) : v;
    Shape shape = x.shape;
    shape[dim] = out;
    if (most > kMostReads || x.shape[dim] == 1) return by_matrix(name, x, dim, all, shape);
    std::vector<Value> places, weights;
    for (std::size_t k = 0; k < most; ++k) {
      std::vector<double> at, weight;
      for (const Taps& t : all) {
        at.push_back(k < t.size() ? static_cast<double>(t[k].at) : 0);
        weight.push_back(k < t.size() ? t[k].weight : 0);
      }
      places.push_back(Builder::known(kInt32, {out}, std::move(at)));
      weights.push_back(Builder::known(kFloat, {out}, std::move(weight)));
    }
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<View> reads, by;
      for (std::size_t k = 0; k < most; ++k) reads.push_back(b_.read(x));
      for (const auto* list : {&places, &weights})
        for (const Value& p : *list) {
          by.push_back(b_.read(p));
          if (out > 1 && by.size() > 1) b_.demand_unified(by[0], 0, by.back(), 0);
        }
      bool done = true;
      for (int again = 0; again < 2; ++again)  // later cuts are the first ones', too
        for (std::size_t d = 0; d < x.shape.size(); ++d)
          for (std::size_t k = 1; k < most && d != dim && x.shape[d] != 1; ++k)
            if (reads[k].dims[d] != reads[0].dims[d])
              done = done && b_.unify(reads[0], d, reads[k], d);
      for (std::size_t k = 0; k < most && done; ++k) done = b_.index_by(reads[k], dim, by[k]);
      if (!done) {
        x = b_.plain(name + "_whole", x, {dim});
        continue;
      }
      b_.normalise(by[0]);
      b_.normalise(reads[0]);
      std::vector<Vars> dims = reads[0].dims;
      dims[dim] = by[0].dims[0];
      Expr sum = number(0);
      for (std::size_t k = 0; k < most; ++k) {
        reads.push_back(by[most + k]);
        Expr term = call("mul", {{.kind = Expr::Kind::input, .input = static_cast<int>(most + k)},
                                 {.kind = Expr::Kind::input, .input = static_cast<int>(k)}});
        sum = k == 0 ? std::move(term) : call("add", {std::move(sum), std::move(term)});
      }
      return b_.emit(name, x.type, shape, dims, reads, std::move(sum), Combine::assign);
    }
    throw Unsupported{"an image that is read in parts"};
  }

  Value by_matrix(const std::string& name, const Value& x, std::size_t dim,
                  const std::vector<Taps>& all, const Shape& shape) {
    const std::int64_t in = x.shape[dim], out = shape[dim];
    check_matrix(in, out);
    std::vector<double> matrix(static_cast<std::size_t>(in * out), 0.0);
    for (std::size_t y = 0; y < all.size(); ++y)
      for (const Tap& t : all[y])
        matrix[y * static_cast<std::size_t>(in) + static_cast<std::size_t>(t.at)] += t.weight;
    const Value weights = Builder::known(kFloat, {out, in}, std::move(matrix));
    // The dimension is the last one's place for the product.
    std::vector<std::int64_t> order(x.shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[dim], order.back());
    const Value product =
        matrix_product(b_, name, b_.transposed(x, order), b_.transposed(weights, {1, 0}));
    return b_.transposed(product, order);
  }

  NodeReader& n_;
  Builder& b_;
  std::string mode_, way_, rounding_;
  double coefficient_ = -0.75, beyond_ = 0;
  bool outside_ = false, antialias_ = false;
};

void say_resize(NodeReader& n) { Resizing(n).run(); }

}  // namespace

std::vector<Said> resize_operators() { return {{"Resize", say_resize}, {"Upsample", say_resize}}; }

}  // namespace tilewright::onnx
