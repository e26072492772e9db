// Constants: what computes shapes, masks and scalars is computed here.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/workload/expr_rows.h"
#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

constexpr std::int64_t kMostFolded = std::int64_t{1} << 20;
constexpr std::int64_t kMostOfFile = 64;  // values of a file stay there, but for scalars
constexpr std::int64_t kMostFloats = 65536;

struct Array {
  std::int32_t type = kUnknown;
  Shape shape;
  std::vector<double> values;
};

std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> s(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) s[d - 1] = s[d] * shape[d];
  return s;
}

/// Calls f(multi-index) over a shape in row-major order.
template <class F>
void each_point(const Shape& shape, F f) {
  const std::int64_t n = elements_of(shape);
  std::vector<std::int64_t> at(shape.size(), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    f(at);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 1; i <= out.size(); ++i) {
    const std::int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const std::int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != 1 && y != 1 && x != y) throw Unsupported{"its shapes do not broadcast"};
    out[out.size() - i] = x == 1 ? y : x;
  }
  if (elements_of(out) > kMostFolded || elements_of(out) < 0)
    throw Unsupported{"a constant of more than a million elements"};
  return out;
}

double element(const Array& a, const std::vector<std::int64_t>& at) {
  std::int64_t flat = 0;
  const std::size_t skip = at.size() - a.shape.size();
  for (std::size_t d = 0; d < a.shape.size(); ++d)
    flat = flat * a.shape[d] + (a.shape[d] == 1 ? 0 : at[d + skip]);
  return a.values[static_cast<std::size_t>(flat)];
}

using One = double (*)(double);
const std::map<std::string_view, One>& ones() {
  static const std::map<std::string_view, One> all = {
      {"Neg", [](double x) { return -x; }},
      {"Abs", [](double x) { return std::fabs(x); }},
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Round", [](double x) { return std::nearbyint(x); }},
      {"Reciprocal", [](double x) { return 1 / x; }},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Tanh", [](double x) { return std::tanh(x); }},
      {"Relu", [](double x) { return x > 0 ? x : 0; }},
      {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"Not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
      {"Sign", [](double x) { return x > 0   ? 1.0
                                     : x < 0 ? -1.0
                                             : 0.0; }},
      {"IsNaN", [](double x) { return std::isnan(x) ? 1.0 : 0.0; }},
      {"IsInf", [](double x) { return std::isinf(x) ? 1.0 : 0.0; }},
  };
  return all;
}

std::int64_t bits(double x) { return std::fabs(x) < 0x1p62 ? static_cast<std::int64_t>(x) : 0; }

using Two = double (*)(double, double);
const std::map<std::string_view, Two>& twos() {
  static const std::map<std::string_view, Two> all = {
      {"Add", [](double x, double y) { return x + y; }},
      {"Sub", [](double x, double y) { return x - y; }},
      {"Mul", [](double x, double y) { return x * y; }},
      {"Div", [](double x, double y) { return x / y; }},
      {"Pow", [](double x, double y) { return std::pow(x, y); }},
      {"Min", smaller},
      {"Max", larger},
      {"Equal", [](double x, double y) { return x == y ? 1.0 : 0.0; }},
      {"Less", [](double x, double y) { return x < y ? 1.0 : 0.0; }},
      {"Greater", [](double x, double y) { return x > y ? 1.0 : 0.0; }},
      {"LessOrEqual", [](double x, double y) { return x <= y ? 1.0 : 0.0; }},
      {"GreaterOrEqual", [](double x, double y) { return x >= y ? 1.0 : 0.0; }},
      {"And", [](double x, double y) { return x != 0 && y != 0 ? 1.0 : 0.0; }},
      {"Or", [](double x, double y) { return x != 0 || y != 0 ? 1.0 : 0.0; }},
      {"Xor", [](double x, double y) { return (x != 0) != (y != 0) ? 1.0 : 0.0; }},
      {"BitwiseAnd", [](double x, double y) { return static_cast<double>(bits(x) & bits(y)); }},
      {"BitwiseOr", [](double x, double y) { return static_cast<double>(bits(x) | bits(y)); }},
      {"BitwiseXor", [](double x, double y) { return static_cast<double>(bits(x) ^ bits(y)); }},
  };
  return all;
}

bool compares(std::string_view op) {
  return op == "Equal" || op == "Less" || op == "Greater" || op == "LessOrEqual" ||
         op == "GreaterOrEqual";
}

class Folder {
 public:
  explicit Folder(const NodeReader& n) : n_(n) {
    for (std::size_t i = 0; i < n.in.size(); ++i)
      in_.push_back(n.has(i) ? Array{n.in[i].type, n.in[i].shape, values_of(n.in[i])} : Array{});
  }

  std::optional<std::vector<Value>> run() {
    const std::string& op = n_.node.op;
    if (const auto f = ones().find(op); f != ones().end()) return one(map1(f->second));
    if (const auto f = twos().find(op); f != twos().end() && in_.size() == 2)
      return one(map2(op, f->second));
    if (op == "Mod") return one(mod());
    if (op == "Where") return one(where());
    if (op == "Cast") return one(cast());
    if (op == "Range") return one(range());
    if (op == "ConstantOfShape") return one(filled());
    if (op == "Gather") return one(gather());
    if (op == "GatherElements") return one(gather_elements());
    if (op == "Concat") return one(concat());
    if (op == "Slice") return one(slice());
    if (op == "Transpose") return one(transpose());
    if (op == "Expand") return one(expand());
    if (op == "Tile") return one(tile());
    if (op == "Trilu") return one(trilu());
    if (op == "CumSum") return one(cumulated());
    if (op == "NonZero") return one(nonzero());
    if (op == "Split") return split();
    if (op.starts_with("Reduce")) return reduce(op);
    return std::nullopt;
  }

 private:
  static std::optional<std::vector<Value>> one(std::optional<Array> a) {
    if (!a) return std::nullopt;
    return std::vector<Value>{Builder::known(a->type, std::move(a->shape), std::move(a->values))};
  }
  const Array& in(std::size_t i) const {
    n_.at(i);
    return in_[i];
  }
  std::int64_t integer(std::size_t i) const {
    if (in(i).values.empty()) throw Unsupported{"a constant without values"};
    return static_cast<std::int64_t>(in(i).values.front());
  }
  static Array like(const Array& a, Shape shape) {
    const std::int64_t n = elements_of(shape);
    if (n < 0 || n > kMostFolded) throw Unsupported{"a constant of more than a million elements"};
    return {a.type, std::move(shape), std::vector<double>(static_cast<std::size_t>(n))};
  }

  Array map1(One f) {
    Array a = in(0);
    if (n_.integer("detect_negative", 1) == 0 || n_.integer("detect_positive", 1) == 0)
      throw Unsupported{"infinities of one sign"};
    for (double& x : a.values) x = f(x);
    if (n_.node.op.starts_with("Is")) a.type = kBool;
    return a;
  }
  Array map2(std::string_view op, Two f) {
    const Array &x = in(0), &y = in(1);
    Array out = like(x, broadcast(x.shape, y.shape));
    const bool whole = op == "Div" && is_integer(x.type);
    std::size_t next = 0;
    each_point(out.shape, [&](const auto& at) {
      const double b = element(y, at);
      const double v = whole && b == 0 ? 0 : f(element(x, at), b);
      out.values[next++] = whole ? std::trunc(v) : v;
    });
    if (compares(op)) out.type = kBool;
    return out;
  }
  Array mod() {
    const Array &x = in(0), &y = in(1);
    const bool c = n_.integer("fmod", 0) != 0;
    Array out = like(x, broadcast(x.shape, y.shape));
    std::size_t next = 0;
    each_point(out.shape, [&](const auto& at) {
      const double a = element(x, at), b = element(y, at);
      double r = b == 0 && is_integer(x.type) ? 0 : std::fmod(a, b);
      if (!c && r != 0 && (r < 0) != (b < 0)) r += b;
      out.values[next++] = r;
    });
    return out;
  }
  Array where() {
    const Array &c = in(0), &x = in(1), &y = in(2);
    Array out = like(x, broadcast(broadcast(c.shape, x.shape), y.shape));
    std::size_t next = 0;
    each_point(out.shape, [&](const auto& at) {
      out.values[next++] = element(c, at) != 0 ? element(x, at) : element(y, at);
    });
    return out;
  }
  std::optional<Array> cast() {
    Array a = in(0);
    const auto to = static_cast<std::int32_t>(n_.integer("to", kFloat));
    if (value_type_of(to).empty()) return std::nullopt;
    for (double& x : a.values) {
      if (to == kBool) x = x != 0 ? 1 : 0;
      if (is_integer(to) && !is_integer(a.type)) x = std::isnan(x) ? 0 : std::trunc(x);
      if (to == kFloat) x = static_cast<float>(x);
    }
    a.type = to;
    return a;
  }
  Array range() {
    const double start = in(0).values.at(0), limit = in(1).values.at(0), step = in(2).values.at(0);
    const double count = std::ceil((limit - start) / step);
    if (!(std::fabs(count) <= static_cast<double>(kMostFolded)))
      throw Unsupported{"a range of more than a million elements"};
    Array out = like(in(0), {std::max<std::int64_t>(0, static_cast<std::int64_t>(count))});
    for (std::size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = start + step * static_cast<double>(i);
    return out;
  }
  std::optional<Array> filled() {
    Shape shape;
    for (const double d : in(0).values) {
      if (d < 0 || d > 0x1p40) throw Unsupported{"a dimension below zero, or too large"};
      shape.push_back(static_cast<std::int64_t>(d));
    }
    if (elements_of(shape) > kMostFloats || elements_of(shape) < 0) return std::nullopt;
    const Attribute* value = n_.find("value");
    Array of{kFloat, {}, {0}};
    if (value != nullptr && value->tensor) of = {value->tensor->type, {}, value->tensor->read()};
    Array out = like(of, shape);
    if (of.values.empty()) throw Unsupported{"a fill without a value"};
    std::ranges::fill(out.values, of.values.front());
    return out;
  }
  Array pick(const Array& a, std::size_t axis, const std::vector<std::int64_t>& which,
             const Shape& in_place) {
    Shape shape(a.shape.begin(), a.shape.begin() + static_cast<std::ptrdiff_t>(axis));
    shape.insert(shape.end(), in_place.begin(), in_place.end());
    shape.insert(shape.end(), a.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
                 a.shape.end());
    Array out = like(a, shape);
    std::int64_t outer = 1, inner = 1;
    for (std::size_t d = 0; d < axis; ++d) outer *= a.shape[d];
    for (std::size_t d = axis + 1; d < a.shape.size(); ++d) inner *= a.shape[d];
    std::size_t next = 0;
    for (std::int64_t o = 0; o < outer; ++o)
      for (const std::int64_t w : which)
        for (std::int64_t i = 0; i < inner; ++i)
          out.values[next++] =
              a.values[static_cast<std::size_t>((o * a.shape[axis] + w) * inner + i)];
    return out;
  }
  Array gather() {
    const Array &a = in(0), &indices = in(1);
    const std::size_t axis = NodeReader::axis(n_.integer("axis", 0), a.shape.size());
    std::vector<std::int64_t> which;
    for (const double d : indices.values) {
      auto w = static_cast<std::int64_t>(d);
      if (w < 0) w += a.shape[axis];
      if (w < 0 || w >= a.shape[axis]) throw Unsupported{"an index is outside of the tensor"};
      which.push_back(w);
    }
    return pick(a, axis, which, indices.shape);
  }
  Array gather_elements() {
    const Array &a = in(0), &indices = in(1);
    const std::size_t axis = NodeReader::axis(n_.integer("axis", 0), a.shape.size());
    if (indices.shape.size() != a.shape.size())
      throw Unsupported{"its inputs have different ranks"};
    for (std::size_t d = 0; d < a.shape.size(); ++d)
      if (d != axis && indices.shape[d] > a.shape[d])
        throw Unsupported{"an index is outside of the tensor"};
    Array out = like(a, indices.shape);
    const auto strides = strides_of(a.shape);
    std::size_t next = 0;
    each_point(indices.shape, [&](const auto& at) {
      auto w = static_cast<std::int64_t>(indices.values[next]);
      if (w < 0) w += a.shape[axis];
      if (w < 0 || w >= a.shape[axis]) throw Unsupported{"an index is outside of the tensor"};
      std::int64_t flat = 0;
      for (std::size_t d = 0; d < at.size(); ++d) flat += (d == axis ? w : at[d]) * strides[d];
      out.values[next++] = a.values[static_cast<std::size_t>(flat)];
    });
    return out;
  }
  Array concat() {
    const std::size_t axis = NodeReader::axis(n_.integer("axis", 0), in(0).shape.size());
    Shape shape = in(0).shape;
    shape[axis] = 0;
    for (const Array& a : in_) {
      if (a.shape.size() != shape.size()) throw Unsupported{"its inputs have different ranks"};
      for (std::size_t d = 0; d < shape.size(); ++d)
        if (d != axis && a.shape[d] != shape[d]) throw Unsupported{"its shapes differ"};
      shape[axis] += a.shape[axis];
    }
    Array out = like(in(0), shape);
    std::int64_t outer = 1, inner = 1;
    for (std::size_t d = 0; d < axis; ++d) outer *= shape[d];
    for (std::size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
    std::size_t next = 0;
    for (std::int64_t o = 0; o < outer; ++o)
      for (const Array& a : in_) {
        const std::int64_t n = a.shape[axis] * inner;
        for (std::int64_t i = 0; i < n; ++i)
          out.values[next++] = a.values[static_cast<std::size_t>(o * n + i)];
      }
    return out;
  }
  std::optional<Array> slice() {
    if (n_.opset < 10) return std::nullopt;  // its starts are attributes: the workload says it
    Array a = in(0);
    const auto starts = n_.known_integers(1), ends = n_.known_integers(2);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const std::size_t axis = NodeReader::axis(
          n_.has(3) ? n_.known_integers(3).at(i) : static_cast<std::int64_t>(i), a.shape.size());
      const std::int64_t step = n_.has(4) ? n_.known_integers(4).at(i) : 1, n = a.shape[axis];
      const auto place = [&](std::int64_t p) {
        if (p < 0) p = p < -n ? -1 : p + n;
        return std::clamp<std::int64_t>(p, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
      };
      if (step == 0 || i >= ends.size()) throw Unsupported{"a slice without a step or an end"};
      std::vector<std::int64_t> which;
      std::int64_t from = starts[i] < 0 ? std::max<std::int64_t>(starts[i] + n, step > 0 ? 0 : -1)
                                        : std::min(starts[i], step > 0 ? n : n - 1);
      const std::int64_t to = ends[i] < -n && step < 0 ? -1 : place(ends[i]);
      for (; step > 0 ? from < to : from > to; from += step) which.push_back(from);
      a = pick(a, axis, which, {static_cast<std::int64_t>(which.size())});
    }
    return a;
  }
  Array transpose() {
    const Array& a = in(0);
    const std::vector<std::int64_t> order = n_.permutation(a.shape.size());
    Shape shape;
    for (const std::int64_t d : order) shape.push_back(a.shape.at(static_cast<std::size_t>(d)));
    Array out = like(a, shape);
    const auto strides = strides_of(a.shape);
    std::size_t next = 0;
    each_point(shape, [&](const auto& at) {
      std::int64_t flat = 0;
      for (std::size_t d = 0; d < at.size(); ++d)
        flat += at[d] * strides[static_cast<std::size_t>(order[d])];
      out.values[next++] = a.values[static_cast<std::size_t>(flat)];
    });
    return out;
  }
  Array expand() {
    const auto to = n_.known_integers(1);
    Array out = like(in(0), broadcast(in(0).shape, to));
    std::size_t next = 0;
    each_point(out.shape, [&](const auto& at) { out.values[next++] = element(in(0), at); });
    return out;
  }
  Array tile() {
    const auto times = n_.known_integers(1);
    const Array& a = in(0);
    Shape shape = a.shape;
    if (times.size() != shape.size()) throw Unsupported{"its repeats are not its rank's"};
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (times[d] < 0 || times[d] > kMostFolded) throw Unsupported{"a repeat below zero"};
      shape[d] *= times[d];
    }
    Array out = like(a, shape);
    const auto strides = strides_of(a.shape);
    std::size_t next = 0;
    each_point(shape, [&](const auto& at) {
      std::int64_t flat = 0;
      for (std::size_t d = 0; d < at.size(); ++d) flat += at[d] % a.shape[d] * strides[d];
      out.values[next++] = a.values[static_cast<std::size_t>(flat)];
    });
    return out;
  }
  Array trilu() {
    Array a = in(0);
    if (a.shape.size() < 2) throw Unsupported{"it is not a matrix"};
    const bool upper = n_.integer("upper", 1) != 0;
    const std::int64_t k = n_.has(1) ? integer(1) : 0;
    std::size_t next = 0;
    each_point(a.shape, [&](const auto& at) {
      const std::int64_t off = at[at.size() - 1] - at[at.size() - 2] - k;
      if (upper ? off < 0 : off > 0) a.values[next] = 0;
      ++next;
    });
    return a;
  }
  std::optional<Array> cumulated() {
    Array a = in(0);
    const std::size_t axis = NodeReader::axis(integer(1), a.shape.size());
    if (n_.integer("exclusive", 0) != 0 || n_.integer("reverse", 0) != 0) return std::nullopt;
    const std::int64_t stride = strides_of(a.shape)[axis];
    std::size_t next = 0;
    each_point(a.shape, [&](const auto& at) {
      if (at[axis] > 0) a.values[next] += a.values[next - static_cast<std::size_t>(stride)];
      ++next;
    });
    return a;
  }
  Array nonzero() {
    const Array& a = in(0);
    std::vector<std::vector<double>> rows(a.shape.size());
    std::size_t next = 0;
    each_point(a.shape, [&](const auto& at) {
      if (a.values[next++] != 0)
        for (std::size_t d = 0; d < at.size(); ++d) rows[d].push_back(static_cast<double>(at[d]));
    });
    Array out{kInt64, {static_cast<std::int64_t>(rows.size()), 0}, {}};
    for (const auto& r : rows) {
      out.shape[1] = static_cast<std::int64_t>(r.size());
      out.values.insert(out.values.end(), r.begin(), r.end());
    }
    return out;
  }
  std::optional<std::vector<Value>> split() {
    const Array& a = in(0);
    const std::size_t axis = NodeReader::axis(n_.integer("axis", 0), a.shape.size());
    std::vector<Value> out;
    std::int64_t from = 0;
    for (const std::int64_t n : n_.parts_of(a.shape[axis])) {
      std::vector<std::int64_t> which(static_cast<std::size_t>(n));
      std::iota(which.begin(), which.end(), from);
      from += n;
      Array part = pick(a, axis, which, {n});
      out.push_back(Builder::known(part.type, part.shape, std::move(part.values)));
    }
    return out;
  }
  std::optional<std::vector<Value>> reduce(std::string_view op) {
    const Array& a = in(0);
    std::vector<bool> over(a.shape.size(), false);
    const auto axes = n_.integers_of("axes", 1);
    if (axes && !axes->empty())
      for (const std::int64_t x : *axes) over[NodeReader::axis(x, a.shape.size())] = true;
    else if (n_.integer("noop_with_empty_axes", 0) == 0)
      over.assign(over.size(), true);
    double start = 0;
    Two f = [](double x, double y) { return x + y; };
    if (op == "ReduceProd")
      start = 1, f = [](double x, double y) { return x * y; };
    else if (op == "ReduceMax")
      start = a.type == kBool ? 0 : -INFINITY, f = larger;
    else if (op == "ReduceMin")
      start = a.type == kBool ? 1 : INFINITY, f = smaller;
    else if (op != "ReduceSum")
      return std::nullopt;
    Shape whole = a.shape, kept;
    for (std::size_t d = 0; d < over.size(); ++d) {
      if (over[d]) whole[d] = 1;
      if (!over[d] || n_.integer("keepdims", 1) != 0) kept.push_back(whole[d]);
    }
    Array out = like(a, whole);
    std::ranges::fill(out.values, start);
    const auto strides = strides_of(whole);
    std::size_t next = 0;
    each_point(a.shape, [&](const auto& at) {
      std::int64_t flat = 0;
      for (std::size_t d = 0; d < at.size(); ++d) flat += over[d] ? 0 : at[d] * strides[d];
      double& x = out.values[static_cast<std::size_t>(flat)];
      x = f(x, a.values[next++]);
    });
    out.shape = kept;
    return one(out);
  }

  const NodeReader& n_;
  std::vector<Array> in_;
};

}  // namespace

std::vector<double> values_of(const Value& v) {
  const std::int64_t n = elements_of(v.shape);
  if (n < 0 || n > kMostFolded) throw Unsupported{"a constant of more than a million elements"};
  if (v.uniform) return std::vector<double>(static_cast<std::size_t>(n), *v.uniform);
  if (!v.literal) throw Unsupported{"it needs values that are known before the run"};
  if (value_type_of(v.literal->type).empty()) throw Unsupported{"values that are not numbers"};
  return v.literal->read();
}

bool all_small(const NodeReader& n) {
  for (std::size_t i = 0; i < n.in.size(); ++i) {
    if (!n.has(i)) continue;
    const Value& v = n.in[i];
    const std::int64_t count = elements_of(v.shape);
    if (!v.known() || count < 0 || count > kMostFolded) return false;
    if (v.literal && value_type_of(v.literal->type).empty()) return false;
    if (v.literal && v.literal->missing()) return false;
    if (!is_float(v.type)) continue;
    if (count >
        (v.literal && !v.literal->values.file.empty() && !v.uniform ? kMostOfFile : kMostFloats))
      return false;
  }
  return !n.in.empty();
}

std::optional<std::vector<Value>> fold(const NodeReader& n) {
  // A large uniform result stays one number.
  if (!all_small(n) || (n.node.op == "Expand" && n.at(0).uniform)) return std::nullopt;
  return Folder(n).run();
}

}  // namespace tilewright::onnx
