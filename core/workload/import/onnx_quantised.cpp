// Quantisation: values are rounded to whole numbers as the file says. Those of 8 bits are kept as
// i8, unsigned ones less 128. A product of two dequantised operands is a sum of whole numbers, from
// which zero points are taken and which is scaled afterwards:
//   sum_k s (q - z) t[n] (w - y) = s t[n] (sum_k q w - z sum_k w - y sum_k q + K z y)
#include <limits>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

constexpr double kHalfOfByte = 128;

struct Range {
  double low = 0, high = 0;
};
/// Of a type that values are quantised to; nothing of others (floats of 8 bits).
std::optional<Range> range_of(std::int32_t type) {
  switch (type) {
    case kInt8:
      return Range{-128, 127};
    case kUint8:
      return Range{0, 255};
    case kInt16:
      return Range{-32768, 32767};
    case kUint16:
      return Range{0, 65535};
    case kInt4:
      return Range{-8, 7};
    case kUint4:
      return Range{0, 15};
    default:
      return std::nullopt;
  }
}

/// A scale or zero point that differs along a dimension of v, and which one it is; `by_blocks`: of
/// as many elements as v has.
struct Along {
  Value values;
  std::optional<std::size_t> axis = {};
  bool by_blocks = false;
};
Along along(NodeReader& n, std::size_t i, const Value& v) {
  const Value& s = n.at(i);
  const std::int64_t block = n.integer("block_size", 0);
  if (elements_of(s.shape) == 1) return {.values = n.b.reshaped(n.name + "_s", s, {})};
  if (block != 0)
    return {.values = by_blocks(n.b, n.name + "_s" + std::to_string(i), s, v.shape,
                                NodeReader::axis(n.integer("axis", 1), v.shape.size()), block),
            .by_blocks = true};
  if (s.shape.size() != 1) throw Unsupported{"scales of another rank"};
  const std::size_t d = NodeReader::axis(n.integer("axis", 1), v.shape.size());
  if (s.shape[0] != v.shape[d]) throw Unsupported{"scales of another size"};
  Shape to(v.shape.size(), 1);
  to[d] = v.shape[d];
  return {.values = n.b.reshaped(n.name + "_s" + std::to_string(i), s, to), .axis = d};
}

/// Whether its values are kept as i8.
bool is_of_bytes(std::int32_t type) { return type == kInt8 || type == kInt4 || type == kUint4; }

/// Unsigned numbers of 8 bits as i8.
Value less_half(Builder& b, const std::string& name, const Value& v) {
  return b.map(name, kInt8, {v}, [](const Args& a) {  // held to the range, whatever is drawn
    const Expr held = call("min", {call("max", {a[0], number(0)}), number(2 * kHalfOfByte - 1)});
    return sub(held, number(kHalfOfByte));
  });
}

/// Whether two of the same known single value.
bool same(const Value& a, const Value& b) {
  return a.uniform && b.uniform && *a.uniform == *b.uniform;
}

void say_quantise(NodeReader& n) {
  const Value& x = n.at(0);
  const auto type =
      n.has(2) ? n.at(2).type : static_cast<std::int32_t>(n.integer("output_dtype", kUint8));
  const auto range = range_of(type);
  if (!range) {
    n.out[0] = x;
    n.note = "quantisation to a type that is not whole numbers of 4, 8 or 16 bits is left out";
    return;
  }
  n.integer("saturate", 1);  // of floats of 8 bits
  const bool bytes = type == kInt8 || type == kUint8;
  const double half = type == kUint8 ? kHalfOfByte : 0;
  const Along scale = along(n, 1, x);
  Value zero = n.has(2) ? along(n, 2, x).values : Builder::uniform(type, {}, 0);
  const auto made = [&](const std::string& name, std::int32_t stored, double less) {
    return n.b.map(name, stored, {x, scale.values, zero}, [&](const Args& a) {
      const auto factor = constant(a[1]);
      const Expr size = factor ? mul(a[0], number(1 / *factor)) : call("div", {a[0], a[1]});
      const auto z = constant(a[2]);
      const auto end = [&](double e) { return z ? number(e - *z) : sub(number(e), a[2]); };
      Expr whole = call("round", {size});
      whole = call("min", {end(range->high), call("max", {end(range->low), std::move(whole)})});
      // No number is the low end, as onnxruntime has it: integers have none to keep. It is told by
      // a comparison that nothing else fails but what is the low end anyway.
      const double least = std::numeric_limits<float>::lowest();
      whole =
          call("select", {call("lt", {number(least), a[0]}), std::move(whole), end(range->low)});
      const Expr shift = z ? number(*z - less) : sub(a[2], number(less));
      return z && *z == less ? whole : add(std::move(whole), shift);
    });
  };
  // What was dequantised with the same scale is there already.
  std::optional<Value> whole;
  if (const auto from = n.b.scaled_of(x); bytes && from && !from->axis && !scale.axis &&
                                          !scale.by_blocks && same(from->scale, scale.values) &&
                                          zero.uniform && from->zero.uniform &&
                                          *from->zero.uniform == *zero.uniform - half)
    whole = from->whole;
  if (!bytes) {
    n.out[0] = made(n.name, type, 0);
    return;
  }
  if (!whole) whole = made(half == 0 ? n.name : n.name + "_i8", kInt8, half);
  if (half == 0) {
    n.out[0] = *whole;
    return;
  }
  n.out[0] =
      n.b.map(n.name, type, {*whole}, [](const Args& a) { return add(a[0], number(kHalfOfByte)); });
  n.b.scaled(n.out[0], {.whole = *whole,
                        .scale = Builder::uniform(kFloat, {}, 1),
                        .zero = Builder::uniform(kFloat, {}, -kHalfOfByte)});
}

void say_dequantise(NodeReader& n) {
  const Value& v = n.at(0);
  const std::int32_t type = n.at(1).type;
  if (is_float(v.type)) {  // what a quantisation left as it is
    n.out[0] = v;
    return;
  }
  const Along scale = along(n, 1, v);
  std::optional<Along> zero;
  if (n.has(2)) zero = along(n, 2, v);
  Value whole = v;
  double half = 0;
  if (v.type == kUint8) {
    half = kHalfOfByte;
    const auto bytes = n.b.scaled_of(v);
    whole = bytes ? bytes->whole : less_half(n.b, n.name + "_i8", v);
  }
  if (!zero)
    zero = Along{.values = Builder::uniform(type, {}, -half)};
  else if (half != 0)
    zero->values = n.b.map(n.name + "_z", type, {zero->values},
                           [](const Args& a) { return sub(a[0], number(kHalfOfByte)); });
  const bool exact = zero->values.uniform && *zero->values.uniform == 0;
  std::vector<Value> ins = {whole, scale.values};
  if (!exact) ins.push_back(zero->values);
  n.out[0] = n.b.map(n.name, type, ins, [](const Args& a) {
    Expr x = a[0];
    if (a.size() > 2) x = sub(std::move(x), a[2]);
    return mul(std::move(x), a[1]);
  });
  if (!is_of_bytes(whole.type) || type != kFloat || whole.uniform) return;
  if (scale.by_blocks || zero->by_blocks || (zero->axis && !scale.axis)) return;
  n.b.scaled(n.out[0],
             {.whole = whole, .scale = scale.values, .zero = zero->values, .axis = scale.axis});
}

}  // namespace

std::optional<Value> whole_product(Builder& b, const std::string& name, const Value& a,
                                   const Value& c) {
  constexpr double kLargest = 1 << 24;  // whole numbers that f32 holds
  const auto left = b.scaled_of(a), right = b.scaled_of(c);
  const std::size_t ra = a.shape.size(), rc = c.shape.size();
  if (!left || !right || ra < 2 || rc < 2) return std::nullopt;
  if (left->axis && *left->axis != ra - 2) return std::nullopt;
  if (right->axis && *right->axis != rc - 1) return std::nullopt;
  const auto depth = static_cast<double>(a.shape.back());
  if (a.shape.back() < 2 || a.shape.back() != c.shape[rc - 2]) return std::nullopt;
  if (depth * kHalfOfByte > kLargest) return std::nullopt;
  // As a row of columns, or a column of rows, of the result.
  const auto shaped = [&](const Value& v, bool row) {
    const std::int64_t n = elements_of(v.shape);
    return n == 1 ? b.reshaped(name + "_s", v, {})
                  : b.reshaped(name + "_s", v, row ? Shape{n} : Shape{n, 1});
  };
  const Value s = shaped(left->scale, false), t = shaped(right->scale, true);
  const Value z = shaped(left->zero, false), y = shaped(right->zero, true);
  const auto none = [](const Value& v) { return v.uniform && *v.uniform == 0; };
  const auto keep = [](const Args& x) { return x[0]; };
  const Value sums = matrix_product(b, name + "_whole", left->whole, right->whole);
  std::vector<Value> ins = {sums};
  int columns = -1, rows = -1;
  if (!none(z)) {  // sums of each column of the right operand
    columns = static_cast<int>(ins.size());
    ins.push_back(
        b.reduce(name + "_columns", cast(right->whole, kFloat), {rc - 2}, Combine::sum, keep));
  }
  if (!none(y)) {
    rows = static_cast<int>(ins.size());
    ins.push_back(
        b.reduce(name + "_rows", cast(left->whole, kFloat), {ra - 1}, Combine::sum, keep));
  }
  const std::size_t first = ins.size();
  // One factor for both operands.
  const Value factor =
      b.map(name + "_scale", kFloat, {s, t}, [](const Args& x) { return mul(x[0], x[1]); });
  ins.push_back(factor), ins.push_back(z), ins.push_back(y);
  return b.map(name, a.type, ins, [&](const Args& x) {
    const Expr &of_left = x[first + 1], &of_right = x[first + 2];
    Expr sum = x[0];
    if (columns >= 0) sum = sub(std::move(sum), mul(of_left, x[static_cast<std::size_t>(columns)]));
    if (rows >= 0) {
      Expr of_row = x[static_cast<std::size_t>(rows)];
      if (columns >= 0) of_row = sub(std::move(of_row), mul(number(depth), of_left));
      sum = sub(std::move(sum), mul(of_right, std::move(of_row)));
    }
    return mul(std::move(sum), x[first]);
  });
}

Value by_blocks(Builder& b, const std::string& name, const Value& v, const Shape& of,
                std::size_t axis, std::int64_t block) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (block < 1 || block > kMost || of[axis] > kMost || v.shape.size() != of.size())
    throw Unsupported{"scales of another rank"};
  Shape blocks = of;
  blocks[axis] = (of[axis] + block - 1) / block;
  if (v.shape != blocks) throw Unsupported{"scales of another size"};
  const auto at = static_cast<std::ptrdiff_t>(axis) + 1;
  Shape apart = blocks, whole = of;
  apart.insert(apart.begin() + at, 1);
  Shape each = apart;
  each[axis + 1] = block;
  whole[axis] = blocks[axis] * block;
  const Value all = b.reshaped(name, b.expanded(b.reshaped(name, v, apart), each), whole);
  return whole == of ? all : b.sliced(name, all, axis, 0, 1, of[axis]);
}

std::vector<Said> quantised_operators() {
  return {{"QuantizeLinear", say_quantise}, {"DequantizeLinear", say_dequantise}};
}

}  // namespace tilewright::onnx
