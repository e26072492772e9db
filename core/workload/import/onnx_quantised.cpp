// Models with quantisation as their graphs of real numbers: what is rounded to 8 bits and back
// stays as it is, integer weights become scale * (weight - zero point), and the import says so.
#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

constexpr const char* kNote =
    "quantisation is left out: values stay real numbers, which kernels do not round";

/// A scale or zero point along the axis, or of blocks of it.
Value along(NodeReader& n, std::size_t i, const Value& v) {
  const Value& s = n.at(i);
  if (elements_of(s.shape) == 1) return n.b.reshaped(n.name + "_s", s, {});
  if (s.shape.size() != 1 || n.integer("block_size", 0) != 0) throw Unsupported{"scales by blocks"};
  const std::size_t d = NodeReader::axis(n.integer("axis", 1), v.shape.size());
  if (s.shape[0] != v.shape[d]) throw Unsupported{"scales of another size"};
  Shape to(v.shape.size(), 1);
  to[d] = v.shape[d];
  return n.b.reshaped(n.name + "_s" + std::to_string(i), s, to);
}

void say_quantise(NodeReader& n) {
  n.out[0] = n.at(0);
  n.note = kNote;
}

void say_dequantise(NodeReader& n) {
  const Value& v = n.at(0);
  n.note = kNote;
  if (is_float(v.type)) {  // what a quantisation left as it is
    n.out[0] = v;
    return;
  }
  std::vector<Value> ins = {v, along(n, 1, v)};
  if (n.has(2)) ins.push_back(along(n, 2, v));
  n.out[0] = n.b.map(n.name, n.at(1).type, ins, [](const Args& a) {
    Expr x = a[0];
    if (a.size() > 2) x = call("sub", {std::move(x), a[2]});
    return call("mul", {std::move(x), a[1]});
  });
}

}  // namespace

std::vector<Said> quantised_operators() {
  return {{"QuantizeLinear", say_quantise}, {"DequantizeLinear", say_dequantise}};
}

}  // namespace tilewright::onnx
