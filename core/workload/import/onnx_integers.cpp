// Operators that take whole numbers of 8 bits themselves. Each is said as what a file with
// QuantizeLinear and DequantizeLinear says: operands are dequantised, with a scale of 1 where the
// result is whole numbers, so that products sum whole numbers (onnx_quantised.cpp).
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

constexpr double kMostOfByte = 255;

Attribute whole(const char* name, std::int64_t value) { return {.name = name, .integer = value}; }

/// The attributes that an operator has, but for those named.
std::vector<Attribute> others(const NodeReader& n,
                              std::initializer_list<std::string_view> without) {
  std::vector<Attribute> out;
  for (const Attribute& a : n.node.attributes)
    if (n.find(a.name); std::ranges::find(without, a.name) == without.end()) out.push_back(a);
  return out;
}

Value input_or_none(const NodeReader& n, std::size_t i) { return n.has(i) ? n.at(i) : Value{}; }

/// scale * (v - zero), along that axis where they differ.
Value real_of(NodeReader& n, const std::string& name, const Value& v, const Value& scale,
              const Value& zero, std::int64_t axis) {
  Value s = scale;
  if (zero.type != kUnknown && elements_of(zero.shape) > 1 && elements_of(scale.shape) == 1)
    s = n.b.expanded(n.b.reshaped(name + "_s", scale, {1}), zero.shape);
  return said_as(n, name, "DequantizeLinear", {v, s, zero}, {whole("axis", axis)}).front();
}
/// The same of an operand whose scale and zero point are inputs, one after the other.
Value real_input(NodeReader& n, std::size_t i, std::int64_t axis = 0) {
  return real_of(n, n.name + "_real" + std::to_string(i), n.at(i), n.at(i + 1),
                 input_or_none(n, i + 2), axis);
}
/// As the operands of a sum of whole numbers: v - zero.
Value less_zero(NodeReader& n, std::size_t i, std::size_t zero, std::int64_t axis) {
  return real_of(n, n.name + "_whole" + std::to_string(i), n.at(i), Builder::uniform(kFloat, {}, 1),
                 input_or_none(n, zero), axis);
}

Value rounded(NodeReader& n, const Value& real, std::size_t scale) {
  std::vector<Value> in = {real, n.at(scale)};
  if (n.has(scale + 1)) in.push_back(n.at(scale + 1));
  return said_as(n, n.name, "QuantizeLinear", std::move(in)).front();
}

/// Whole numbers of v, their scale and their zero point, all found while running.
std::vector<Value> quantised_by_range(NodeReader& n, const std::string& name, const Value& v) {
  Builder& b = n.b;
  std::set<std::size_t> all;
  for (std::size_t d = 0; d < v.shape.size(); ++d) all.insert(d);
  const auto same = [](const Args& a) { return a[0]; };
  const auto end = [&](const char* what, Combine combine) {
    return b.reshaped(name + what, b.reduce(name + what, v, all, combine, same), {});
  };
  const Value most = end("_most", Combine::max), least = end("_least", Combine::min);
  const Value scale = b.map(name + "_scale", kFloat, {most, least}, [](const Args& a) {
    const Expr range = sub(call("max", {a[0], number(0)}), call("min", {a[1], number(0)}));
    return select(lt(number(0), range), call("div", {range, number(kMostOfByte)}), number(1));
  });
  const Value zero = b.map(name + "_zero", kUint8, {least, scale}, [](const Args& a) {
    const Expr at = call("neg", {call("div", {call("min", {a[0], number(0)}), a[1]})});
    return call("min", {call("max", {nearest_whole(at), number(0)}), number(kMostOfByte)});
  });
  return {said_as(n, name, "QuantizeLinear", {v, scale, zero}).front(), scale, zero};
}

void say_dynamic_quantise(NodeReader& n) {
  const std::vector<Value> made = quantised_by_range(n, n.name, n.at(0));
  for (std::size_t i = 0; i < n.out.size() && i < made.size(); ++i) n.out[i] = made[i];
}

std::int64_t last(const Value& v, std::int64_t before) {
  return std::max<std::int64_t>(0, std::ssize(v.shape) - 1 - before);
}

void say_matmul_integer(NodeReader& n) {
  const Value a = less_zero(n, 0, 2, last(n.at(0), 1)), c = less_zero(n, 1, 3, last(n.at(1), 0));
  n.out[0] = cast(matrix_product(n.b, n.name, a, c), kInt32);
}

void say_conv_integer(NodeReader& n) {
  const Value x = less_zero(n, 0, 2, 0), w = less_zero(n, 1, 3, 0);
  n.out[0] = cast(said_as(n, n.name, "Conv", {x, w}, others(n, {})).front(), kInt32);
}

void say_qlinear_matmul(NodeReader& n) {
  const Value a = real_input(n, 0, last(n.at(0), 1)), c = real_input(n, 3, last(n.at(3), 0));
  n.out[0] = rounded(n, matrix_product(n.b, n.name + "_product", a, c), 6);
}

/// Whole numbers that are added to sums: times both scales.
Value real_bias(NodeReader& n, std::size_t bias, std::size_t scale, std::size_t other) {
  const auto flat = [&](std::size_t i) {
    const Value& v = n.at(i);
    return elements_of(v.shape) == 1 ? n.b.reshaped(n.name + "_s", v, {}) : v;
  };
  return n.b.map(n.name + "_bias", kFloat, {cast(n.at(bias), kFloat), flat(scale), flat(other)},
                 [](const Args& a) { return mul(a[0], mul(a[1], a[2])); });
}

void say_qlinear_conv(NodeReader& n) {
  std::vector<Value> in = {real_input(n, 0), real_input(n, 3)};
  if (n.has(8)) in.push_back(real_bias(n, 8, 1, 4));
  n.out[0] =
      rounded(n, said_as(n, n.name + "_real", "Conv", std::move(in), others(n, {})).front(), 6);
}

void say_qgemm(NodeReader& n) {
  const bool right = n.integer("transB", 0) != 0;
  std::vector<Value> in = {real_input(n, 0), real_input(n, 3, right ? 0 : 1)};
  // The bias is of whole numbers, as the sums are: alpha is theirs, too.
  const double alpha = n.real("alpha", 1);
  if (n.has(6))
    in.push_back(n.b.map(n.name + "_c", kFloat, {real_bias(n, 6, 1, 4)},
                         [&](const Args& a) { return mul(a[0], number(alpha)); }));
  const Value y =
      said_as(n, n.has(7) ? n.name + "_real" : n.name, "Gemm", std::move(in), others(n, {}))
          .front();
  n.out[0] = n.has(7) ? rounded(n, y, 7) : y;
}

/// Two operands of scales and zero points, element by element.
void say_qlinear_binary(NodeReader& n) {
  const char* op = n.node.op == "QLinearAdd" ? "Add" : "Mul";
  n.out[0] =
      rounded(n, said_as(n, n.name + "_real", op, {real_input(n, 0), real_input(n, 3)}).front(), 6);
}

/// One operand, and an operator of the same attributes.
void say_qlinear_unary(NodeReader& n) {
  const std::string op = n.node.op.substr(std::string_view("QLinear").size());
  const bool last_channels = n.integer("channels_last", 0) != 0;
  const auto moved = [&](const Value& v, bool to_last) {
    if (!last_channels) return v;
    std::vector<std::int64_t> order;
    for (std::size_t d = 0; d < v.shape.size(); ++d) order.push_back(static_cast<std::int64_t>(d));
    if (order.size() < 3) throw Unsupported{"no channels"};
    if (to_last)
      std::rotate(order.begin() + 1, order.begin() + 2, order.end());
    else
      std::rotate(order.begin() + 1, order.end() - 1, order.end());
    return n.b.transposed(v, order);
  };
  std::vector<Attribute> attributes = others(n, {"channels_last", "opset"});
  const Value x = moved(real_input(n, 0), false);
  std::vector<Value> in = {x};
  if (op == "Softmax" && n.integer("opset", 13) < 13)
    throw Unsupported{"a softmax over several dimensions"};
  if (op == "ReduceMean") {  // axes are an input since opset 18
    const auto axes = n.integers("axes");
    std::erase_if(attributes, [](const Attribute& a) { return a.name == "axes"; });
    if (!axes.empty())
      in.push_back(Builder::known(kInt64, {std::ssize(axes)}, {axes.begin(), axes.end()}));
  }
  n.out[0] = rounded(
      n,
      moved(said_as(n, n.name + "_real", op, std::move(in), std::move(attributes)).front(), true),
      3);
}

/// Scale and zero point of the result, then each part with its own.
void say_qlinear_concat(NodeReader& n) {
  std::vector<Value> parts;
  for (std::size_t i = 2; i + 1 < n.in.size(); i += 3) parts.push_back(real_input(n, i));
  if (parts.empty()) throw Unsupported{"no parts"};
  const std::size_t dim = NodeReader::axis(n.integer("axis", 0), parts.front().shape.size());
  n.out[0] = rounded(n, joined(n.b, n.name + "_real", parts, dim), 0);
}

void say_qlinear_where(NodeReader& n) {
  n.out[0] = rounded(
      n,
      said_as(n, n.name + "_real", "Where", {n.at(0), real_input(n, 1), real_input(n, 4)}).front(),
      7);
}

void say_bias(NodeReader& n, const Value& y, std::size_t bias) {
  n.out[0] = n.has(bias) ? sum_of(n.b, n.name, y, n.at(bias)) : y;
}

void say_matmul_integer_to_float(NodeReader& n) {
  const Value a =
      real_of(n, n.name + "_a", n.at(0), n.at(2), input_or_none(n, 4), last(n.at(0), 1));
  const Value c =
      real_of(n, n.name + "_b", n.at(1), n.at(3), input_or_none(n, 5), last(n.at(1), 0));
  say_bias(n, matrix_product(n.b, n.has(6) ? n.name + "_product" : n.name, a, c), 6);
}

void say_dynamic_matmul(NodeReader& n) {
  const std::vector<Value> made = quantised_by_range(n, n.name + "_a", n.at(0));
  const Value a = real_of(n, n.name + "_a_real", made[0], made[1], made[2], 0);
  const Value c =
      real_of(n, n.name + "_b", n.at(1), n.at(2), input_or_none(n, 3), last(n.at(1), 0));
  say_bias(n, matrix_product(n.b, n.has(4) ? n.name + "_product" : n.name, a, c), 4);
}

/// Attention of operands that are dequantised first.
void say_qattention(NodeReader& n) {
  const Value x = real_of(n, n.name + "_x", n.at(0), n.at(3), input_or_none(n, 6), 0),
              w = real_of(n, n.name + "_w", n.at(1), n.at(4), input_or_none(n, 7), 1);
  n.in = {x, w, n.at(2), input_or_none(n, 5), input_or_none(n, 8)};
  say_packed_attention(n);
}

/// Numbers of 4 bits, of bytes along the last dimension that have two each, the lower half first.
Value halves(Builder& b, const std::string& name, const Value& v) {
  constexpr double kHalf = 16;
  Shape apart = v.shape, whole = v.shape;
  apart.push_back(1);
  whole.back() *= 2;
  const Value flat = b.reshaped(name, v, apart);
  const auto high = [](const Expr& x) { return call("floor", {mul(x, number(1 / kHalf))}); };
  const Value low = b.map(name + "_low", kFloat, {flat},
                          [&](const Args& a) { return sub(a[0], mul(number(kHalf), high(a[0]))); });
  const Value up = b.map(name + "_high", kFloat, {flat}, [&](const Args& a) { return high(a[0]); });
  return b.reshaped(name, joined(b, name + "_both", {low, up}, v.shape.size()), whole);
}

/// Rows of a table of 4 or 8 bits, which has a scale for each block; they are gathered as they are.
void say_gather_of_blocks(NodeReader& n) {
  Builder& b = n.b;
  const Value &table = n.at(0), &scales = n.at(2);
  const std::int64_t bits = n.integer("bits", 4), block = n.integer("block_size", 128);
  const std::size_t rank = n.rank(), axis = NodeReader::axis(n.integer("gather_axis", 0), rank);
  std::size_t of = NodeReader::axis(n.integer("quantize_axis", 1), rank);
  if (bits != 4 && bits != 8) throw Unsupported{"numbers of " + std::to_string(bits) + " bits"};
  const bool bytes = table.type == kUint8;
  const bool packed = bytes && bits == 4;  // two a byte, along the last dimension
  if (axis == of || (packed && axis == rank - 1))
    throw Unsupported{"blocks along the axis that is gathered"};
  if (scales.shape.size() != rank) throw Unsupported{"scales of another rank"};
  const auto rows = [&](const char* what, const Value& v) {
    return said_as(n, n.name + what, "Gather", {v, n.at(1)},
                   {whole("axis", static_cast<std::int64_t>(axis))})
        .front();
  };
  if (of > axis) of = of + n.at(1).shape.size() - 1;
  Value q = rows("_rows", table);
  if (packed) q = halves(b, n.name + "_rows", q);
  const Value scale = by_blocks(b, n.name + "_scales", rows("_scales", scales), q.shape, of, block);
  Value zero = Builder::uniform(kFloat, {}, !bytes ? 0 : bits == 4 ? 8 : 128);
  if (n.has(3)) {
    Value z = rows("_zeros", n.at(3));
    if (packed) z = halves(b, n.name + "_zeros", z);
    Shape blocks = q.shape;
    if (block > 0) blocks[of] = (blocks[of] + block - 1) / block;
    if (packed && z.shape.back() > blocks.back())
      z = b.sliced(n.name + "_zeros", z, z.shape.size() - 1, 0, 1, blocks.back());
    zero = by_blocks(b, n.name + "_zeros", z, q.shape, of, block);
  }
  n.out[0] = b.map(n.name, scales.type, {q, zero, scale},
                   [](const Args& a) { return mul(sub(a[0], a[1]), a[2]); });
}

/// Weights of 4 or 8 bits in blocks, each with a scale: [columns, blocks, bytes of a block].
void say_matmul_of_bits(NodeReader& n) {
  Builder& b = n.b;
  const std::int64_t depth = n.integer("K", 0), columns = n.integer("N", 0),
                     bits = n.integer("bits", 4), block = n.integer("block_size", 32);
  n.integer("accuracy_level", 0);
  if (bits != 4 && bits != 8) throw Unsupported{"weights of " + std::to_string(bits) + " bits"};
  if (n.has(4)) throw Unsupported{"blocks in another order"};
  if (depth < 1 || columns < 1 || block < 1) throw Unsupported{"no weights"};
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  if (depth > kMost || columns > kMost || block > kMost || block % 2 != 0)
    throw Unsupported{"weights of another size"};
  const std::int64_t blocks = (depth + block - 1) / block, bytes = block * bits / 8;
  // Bytes of `count` numbers a row as rows of numbers, the lower half first.
  const auto apart = [&](const std::string& name, const Value& v, std::int64_t rows,
                         std::int64_t row, std::int64_t count) {
    if (elements_of(v.shape) != rows * row) throw Unsupported{"weights of another size"};
    const Value flat = b.reshaped(name, v, {rows, row});
    if (bits == 8) return cast(flat, kFloat);
    const Value both = halves(b, name, flat);
    return count == 2 * row ? both : b.sliced(name, both, 1, 0, 1, count);
  };
  const Value q = b.reshaped(
      n.name + "_q", apart(n.name + "_bits", n.at(1), columns, blocks * bytes, blocks * block),
      {columns, blocks, block});
  const Value scale = as_shape(b, n.name + "_scales", n.at(2), {columns, blocks, 1});
  Value zero = Builder::uniform(kFloat, {}, bits == 4 ? 8 : 128);
  if (n.has(3)) {
    const Value& z = n.at(3);
    zero = as_shape(b, n.name + "_zeros",
                    is_float(z.type) ? z
                                     : apart(n.name + "_zero_bits", z, columns,
                                             bits == 8 ? blocks : (blocks + 1) / 2, blocks),
                    {columns, blocks, 1});
  }
  const Value real = b.map(n.name + "_weights", n.at(0).type, {q, zero, scale},
                           [](const Args& a) { return mul(sub(a[0], a[1]), a[2]); });
  Value w = b.reshaped(n.name + "_weights", real, {columns, blocks * block});
  if (blocks * block != depth) w = b.sliced(n.name + "_weights", w, 1, 0, 1, depth);
  say_bias(
      n,
      matrix_product(b, n.has(5) ? n.name + "_product" : n.name, n.at(0), b.transposed(w, {1, 0})),
      5);
}

}  // namespace

Value quantised_there_and_back(NodeReader& n, const std::string& name, const Value& v) {
  const std::vector<Value> made = quantised_by_range(n, name + "_q", v);
  return real_of(n, name + "_real", made[0], made[1], made[2], 0);
}

std::vector<Said> integer_operators() {
  return {{"DynamicQuantizeLinear", say_dynamic_quantise},
          {"MatMulInteger", say_matmul_integer},
          {"ConvInteger", say_conv_integer},
          {"QLinearMatMul", say_qlinear_matmul},
          {"QLinearConv", say_qlinear_conv},
          {"QGemm", say_qgemm},
          {"QLinearAdd", say_qlinear_binary},
          {"QLinearMul", say_qlinear_binary},
          {"QLinearSigmoid", say_qlinear_unary},
          {"QLinearLeakyRelu", say_qlinear_unary},
          {"QLinearSoftmax", say_qlinear_unary},
          {"QLinearReduceMean", say_qlinear_unary},
          {"QLinearAveragePool", say_qlinear_unary},
          {"QLinearGlobalAveragePool", say_qlinear_unary},
          {"QLinearConcat", say_qlinear_concat},
          {"QLinearWhere", say_qlinear_where},
          {"MatMulIntegerToFloat", say_matmul_integer_to_float},
          {"DynamicQuantizeMatMul", say_dynamic_matmul},
          {"QAttention", say_qattention},
          {"MatMulNBits", say_matmul_of_bits},
          {"GatherBlockQuantized", say_gather_of_blocks}};
}

}  // namespace tilewright::onnx
