// Operators that are several others: rotary positions, losses, and what onnxruntime's optimiser
// makes of a few nodes (domain com.microsoft).
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

/// Heads are turned by angles of their positions: halves of their width, or pairs.
void say_rotary(NodeReader& n) {
  Builder& b = n.b;
  const bool microsoft = n.node.domain == "com.microsoft";
  const std::size_t cos_at = microsoft ? 2 : 1, sin_at = cos_at + 1, ids_at = microsoft ? 1 : 3;
  const bool pairs = n.integer("interleaved", 0) != 0, flat = n.rank() == 3;
  if (n.real("scale", 1) != 1) throw Unsupported{"a scale"};
  Value x = n.at(0), cosine = n.at(cos_at), sine = n.at(sin_at);
  if (flat) {  // [B, S, heads * width]
    std::int64_t heads = n.integer("num_heads", 0);
    if (heads == 0 && microsoft)
      heads = x.shape[2] / std::max<std::int64_t>(1, 2 * cosine.shape.back());
    if (heads < 1 || x.shape[2] % heads != 0)
      throw Unsupported{"heads that do not share its width"};
    x = b.reshaped(n.name + "_heads", x, {x.shape[0], x.shape[1], heads, x.shape[2] / heads});
  } else if (n.rank() == 4) {
    x = b.transposed(x, {0, 2, 1, 3});
  } else {
    throw Unsupported{"an input of another rank"};
  }
  const std::int64_t width = x.shape[3];
  const std::int64_t turned =
      n.integer("rotary_embedding_dim", 0) > 0 ? n.integer("rotary_embedding_dim", 0) : width;
  if (turned > width || turned % 2 != 0) throw Unsupported{"a width that is no two halves"};
  const auto angles = [&](const Value& cache, const char* what) {
    Value at = cache;
    if (n.has(ids_at)) {
      if (cache.shape.size() != 2) throw Unsupported{"a table of another rank"};
      Value ids = n.at(ids_at);
      if (ids.shape.size() != 2) {  // onnxruntime: where the first one is
        if (elements_of(ids.shape) != 1 || !ids.known())
          throw Unsupported{"a first position that is computed"};
        std::vector<std::int64_t> which(static_cast<std::size_t>(x.shape[1]));
        for (std::size_t i = 0; i < which.size(); ++i)
          which[i] =
              static_cast<std::int64_t>(values_of(ids).front()) + static_cast<std::int64_t>(i);
        if (which.back() >= cache.shape[0] || which.front() < 0)
          throw Unsupported{"a position beyond the table"};
        at = b.reshaped(n.name + what, b.taken(n.name + what, cache, 0, which),
                        {1, x.shape[1], cache.shape[1]});
      } else {
        at = b.gathered(n.name + what, cache, 0, ids);
      }
    }
    if (at.shape.size() != 3 || at.shape[2] != turned / 2)
      throw Unsupported{"angles of another width"};
    return b.reshaped(n.name + what, at, {at.shape[0], at.shape[1], 1, at.shape[2]});
  };
  cosine = angles(cosine, "_cos");
  sine = angles(sine, "_sin");
  const auto half = [&](std::int64_t i) {
    return b.sliced(n.name + "_half", x, 3, pairs ? i : i * turned / 2, pairs ? 2 : 1, turned / 2);
  };
  const Value first = half(0), second = half(1);
  const auto rotated = [&](const std::string& name, const Value& p, const Value& q, const char* f) {
    return b.map(name, x.type, {p, cosine, q, sine}, [&](const Args& a) {
      return call(f, {mul(a[0], a[1]), mul(a[2], a[3])});
    });
  };
  Value real = rotated(n.name + "_real", first, second, "sub"),
        imaginary = rotated(n.name + "_imaginary", second, first, "add");
  Value y;
  if (pairs) {
    Shape apart = real.shape, whole = real.shape;
    apart.push_back(1);
    whole[3] = turned;
    real = b.reshaped(n.name + "_real", real, apart);
    imaginary = b.reshaped(n.name + "_imaginary", imaginary, apart);
    y = b.reshaped(n.name + "_pairs", joined(b, n.name + "_pairs", {real, imaginary}, 4), whole);
  } else {
    y = joined(b, n.name + "_turned", {real, imaginary}, 3);
  }
  if (turned < width)
    y = joined(b, n.name + "_all", {y, b.sliced(n.name + "_rest", x, 3, turned, 1, width - turned)},
               3);
  n.out[0] = flat ? b.reshaped(n.name, y, n.at(0).shape) : b.transposed(y, {0, 2, 1, 3});
}

void say_quick_gelu(NodeReader& n) {
  const double alpha = n.real("alpha", 1.702);
  n.out[0] = n.b.map(n.name, n.at(0).type, {n.at(0)}, [&](const Args& a) {
    return mul(a[0], call("sigmoid", {mul(number(alpha), a[0])}));
  });
}

void say_bias_gelu(NodeReader& n) {
  std::vector<Value> ins = {n.at(0)};
  if (n.has(1)) ins.push_back(n.at(1));
  const bool by_tanh = n.node.op == "FastGelu";
  n.out[0] = n.b.map(n.name, n.at(0).type, ins, [&](const Args& a) {
    const Expr x = a.size() > 1 ? call("add", {a[0], a[1]}) : a[0];
    return by_tanh ? gelu_by_tanh(x) : call("gelu", {x});
  });
}

void say_fused_matmul(NodeReader& n) {
  const auto operand = [&](std::size_t i, const char* attribute) {
    Value v = n.at(i);
    if (n.integer(attribute, 0) == 0) return v;
    std::vector<std::int64_t> order;
    for (std::size_t d = 0; d < v.shape.size(); ++d) order.push_back(static_cast<std::int64_t>(d));
    if (order.size() < 2) throw Unsupported{"a vector that is transposed"};
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    return n.b.transposed(v, order);
  };
  if (n.integer("transBatchA", 0) != 0 || n.integer("transBatchB", 0) != 0)
    throw Unsupported{"batches that are transposed"};
  const double alpha = n.real("alpha", 1);
  const Value product = matrix_product(n.b, alpha == 1 ? n.name : n.name + "_product",
                                       operand(0, "transA"), operand(1, "transB"));
  n.out[0] = alpha == 1 ? product : n.b.map(n.name, product.type, {product}, [&](const Args& a) {
    return mul(number(alpha), a[0]);
  });
}

/// Minus the logarithm of each target's probability, weighted; NegativeLogLikelihoodLoss has the
/// logarithms, SoftmaxCrossEntropyLoss makes them.
void say_loss(NodeReader& n) {
  Builder& b = n.b;
  Value x = n.at(0), target = n.at(1);
  const std::string reduction = n.text("reduction", "mean");
  if (x.shape.size() < 2 || target.shape.size() + 1 != x.shape.size())
    throw Unsupported{"targets of another rank"};
  const std::int64_t classes = x.shape[1];
  if (n.node.op == "SoftmaxCrossEntropyLoss") {
    x = softmax_over(b, n.name + "_log", x, {1}, true);
    if (n.wants(1)) n.out[1] = x;
  }
  const bool ignores = n.has_attribute("ignore_index");
  const auto ignored = static_cast<double>(n.integer("ignore_index", 0));
  Shape with_class = target.shape, along(x.shape.size(), 1);
  with_class.insert(with_class.begin() + 1, 1);
  along[1] = classes;
  if (target.uniform) target = b.copied(n.name + "_targets", target);
  const Value at = b.reshaped(n.name + "_target", target, with_class);
  std::vector<double> count(static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < count.size(); ++i) count[i] = static_cast<double>(i);
  const Value index = Builder::known(kFloat, along, std::move(count));
  std::vector<Value> ins = {at, index};
  if (n.has(2)) ins.push_back(b.reshaped(n.name + "_weight", n.at(2), along));
  // The weight of each element's class, zero for all others.
  const Value weight = b.map(n.name + "_of", x.type, ins, [&](const Args& a) {
    Expr w = call("select", {equal(a[0], a[1]), a.size() > 2 ? a[2] : number(1), number(0)});
    return ignores ? call("select", {equal(a[0], number(ignored)), number(0), std::move(w)}) : w;
  });
  const Value each = b.map(n.name + "_each", x.type, {weight, x}, [](const Args& a) {
    return call("select", {a[0], call("neg", {mul(a[0], a[1])}), number(0)});
  });
  const auto sum = [&](const std::string& name, const Value& v, std::set<std::size_t> over) {
    Value made = b.reduce(name, v, over, Combine::sum, [](const Args& a) { return a[0]; });
    for (auto d = over.rbegin(); d != over.rend(); ++d) made = squeezed(b, made, *d);
    return made;
  };
  std::set<std::size_t> all;
  for (std::size_t d = 0; d < x.shape.size(); ++d) all.insert(d);
  if (reduction == "none") {
    n.out[0] = sum(n.name, each, {1});
  } else if (reduction == "sum") {
    n.out[0] = sum(n.name, each, all);
  } else {
    n.out[0] = b.map(n.name, x.type,
                     {sum(n.name + "_sum", each, all), sum(n.name + "_weights", weight, all)},
                     [](const Args& a) {
                       return call("div", {a[0], a[1]});
                     });
  }
}

}  // namespace

std::vector<Said> library_operators() {
  return {{"RotaryEmbedding", say_rotary},      {"QuickGelu", say_quick_gelu},
          {"BiasGelu", say_bias_gelu},          {"FastGelu", say_bias_gelu},
          {"FusedMatMul", say_fused_matmul},    {"NegativeLogLikelihoodLoss", say_loss},
          {"SoftmaxCrossEntropyLoss", say_loss}};
}

}  // namespace tilewright::onnx
