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
  // The first dimension may stand behind those of batches, and the last two be transposed.
  const auto operand = [&](std::size_t i, const char* attribute, const char* batches) {
    Value v = n.at(i);
    const bool last = n.integer(attribute, 0) != 0, first = n.integer(batches, 0) != 0;
    if (!last && !first) return v;
    std::vector<std::int64_t> order;
    for (std::size_t d = 0; d < v.shape.size(); ++d) order.push_back(static_cast<std::int64_t>(d));
    if (order.size() < 2) throw Unsupported{"a vector that is transposed"};
    if (first) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
    if (last) std::swap(order[order.size() - 1], order[order.size() - 2]);
    return n.b.transposed(v, order);
  };
  const double alpha = n.real("alpha", 1);
  const Value product =
      matrix_product(n.b, alpha == 1 ? n.name : n.name + "_product",
                     operand(0, "transA", "transBatchA"), operand(1, "transB", "transBatchB"));
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

/// Columns of blocks, added up where they lie in an image: a transposed convolution whose weights
/// are 1 at each column's own place.
void say_col2im(NodeReader& n) {
  Builder& b = n.b;
  const std::vector<std::int64_t> image = n.known_integers(1), block = n.known_integers(2);
  const std::size_t rank = image.size();
  const auto each = [&](const char* attribute, std::size_t count, std::int64_t otherwise) {
    std::vector<std::int64_t> of = n.integers(attribute);
    if (of.empty()) of.assign(count, otherwise);
    if (of.size() != count) throw Unsupported{"attributes of another rank"};
    return of;
  };
  const auto dilations = each("dilations", rank, 1), strides = each("strides", rank, 1),
             pads = each("pads", 2 * rank, 0);
  constexpr std::int64_t kMostTaps = 4096, kMostOnes = 1 << 22, kMost = std::int64_t{1} << 31;
  std::int64_t taps = 1;
  for (const std::int64_t k : block)
    if (taps = k < 1 || k > kMostTaps ? 0 : taps * k; taps > kMostTaps) taps = 0;
  for (std::size_t d = 0; d < rank; ++d)
    if (dilations[d] < 1 || dilations[d] > kMost || image[d] < 1 || image[d] > kMost ||
        std::min(pads[d], pads[rank + d]) < 0 || std::max(pads[d], pads[rank + d]) > kMost)
      throw Unsupported{"blocks that do not fit the image"};
  if (n.rank() != 3 || block.size() != rank || taps < 1 || n.at(0).shape[1] % taps != 0)
    throw Unsupported{"columns of another shape"};
  const std::int64_t channels = n.at(0).shape[1] / taps;
  if (channels > kMostOnes / taps / taps) throw Unsupported{"too many channels"};
  Shape columns = {n.at(0).shape[0], channels * taps}, weight = {channels * taps, 1};
  std::vector<std::int64_t> more;  // of the image behind the last block
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t reach = dilations[d] * (block[d] - 1) + 1;
    const std::int64_t room = image[d] + pads[d] + pads[rank + d] - reach;
    if (room < 0 || strides[d] < 1) throw Unsupported{"blocks that do not fit the image"};
    columns.push_back(room / strides[d] + 1);
    weight.push_back(block[d]);
    more.push_back(room % strides[d]);
  }
  if (elements_of(columns) != elements_of(n.at(0).shape))
    throw Unsupported{"columns of another shape"};
  std::vector<double> ones(static_cast<std::size_t>(channels * taps * taps));
  for (std::int64_t c = 0; c < channels * taps; ++c)
    ones[static_cast<std::size_t>(c * taps + c % taps)] = 1;
  const auto list = [](const char* name, std::vector<std::int64_t> of) {
    return Attribute{.name = name, .integers = std::move(of)};
  };
  n.out[0] = said_as(n, n.name, "ConvTranspose",
                     {b.reshaped(n.name + "_columns", n.at(0), columns),
                      Builder::known(n.at(0).type, weight, std::move(ones))},
                     {{.name = "group", .integer = channels},
                      list("dilations", dilations),
                      list("strides", strides),
                      list("pads", pads),
                      list("output_padding", more)})
                 .front();
}

/// Each channel's window over what stands before it, some of which was kept.
void say_causal_conv(NodeReader& n) {
  Builder& b = n.b;
  const Value& x = n.at(0);
  const Value& w = n.at(1);
  if (x.shape.size() != 3 || w.shape.size() != 3) throw Unsupported{"an input of another rank"};
  const std::string way = n.text("activation", "none");
  if (way != "none" && way != "silu" && way != "swish") throw Unsupported{"an activation " + way};
  const std::int64_t kept = w.shape[2] - 1, channels = x.shape[1];
  if (n.has(3) && n.at(3).shape != Shape{x.shape[0], channels, kept})
    throw Unsupported{"a state of another shape"};
  Value all = x;
  if (kept > 0)
    all = joined(
        b, n.name + "_all",
        {n.has(3) ? n.at(3) : Builder::uniform(x.type, {x.shape[0], channels, kept}, 0), x}, 2);
  std::vector<Value> in = {all, w};
  if (n.has(2)) in.push_back(n.at(2));
  const Value y = said_as(n, way == "none" ? n.name : n.name + "_conv", "Conv", std::move(in),
                          {{.name = "group", .integer = channels}})
                      .front();
  n.out[0] = way == "none" ? y : b.map(n.name, y.type, {y}, [](const Args& a) {
    return mul(a[0], call("sigmoid", {a[0]}));
  });
  if (!n.wants(1)) return;
  if (kept < 1) throw Unsupported{"a state without elements"};
  n.out[1] = b.sliced(n.name + "_state", all, 2, x.shape[2], 1, kept);
}

/// A state of keys times values that each step decays, corrects, adds to and reads; step by step.
void say_linear_attention(NodeReader& n) {
  Builder& b = n.b;
  constexpr std::int64_t kMostSteps = 4096;
  const std::string rule = n.text("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta",
             delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") throw Unsupported{"an update rule " + rule};
  n.integer("chunk_size", 64);  // how, not what
  const std::int64_t hq = n.integer("q_num_heads", 0), hk = n.integer("kv_num_heads", 0);
  if (hq < 1 || hk < 1 || hq % hk != 0)
    throw Unsupported{"heads of queries that keys do not divide"};
  const Value& q = n.at(0);
  const std::int64_t batch = q.shape.at(0), steps = q.shape.at(1), wide = n.at(2).shape.at(2) / hk,
                     deep = n.at(1).shape.at(2) / hk, group = hq / hk;
  if (steps > kMostSteps) throw Unsupported{"more than 4096 steps"};
  const auto wants = [&](std::size_t i, const Shape& shape) {
    if (n.at(i).shape != shape) throw Unsupported{"an input of another shape"};
  };
  wants(0, {batch, steps, hq * deep});
  wants(1, {batch, steps, hk * deep});
  wants(2, {batch, steps, hk * wide});
  if (n.has(3)) wants(3, {batch, hk, deep, wide});
  double scale = n.real("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(deep));
  // One step of [batch, steps, ...] as those dimensions.
  const auto step = [&](const char* what, const Value& v, std::int64_t t, Shape to) {
    return b.reshaped(n.name + what, b.sliced(n.name + what, v, 1, t, 1, 1), to);
  };
  const auto times = [&](const std::string& name, const Value& x, const Value& y) {
    return b.map(name, q.type, {x, y}, [](const Args& a) { return mul(a[0], a[1]); });
  };
  const auto heads_of = [&](const Value& v) {
    if (v.shape.size() != 3 || v.shape[0] != batch || v.shape[1] != steps ||
        (v.shape[2] != 1 && v.shape[2] != hk && v.shape[2] != hk * deep))
      throw Unsupported{"an input of another shape"};
    const std::int64_t own = std::max<std::int64_t>(1, v.shape[2] / hk);
    return Shape{batch, v.shape[2] / own, own, 1};
  };
  Value state = n.has(3) ? n.at(3) : Builder::uniform(q.type, {batch, hk, deep, wide}, 0);
  std::vector<Value> out;
  for (std::int64_t t = 0; t < steps; ++t) {
    const std::string name = n.name + "_t" + std::to_string(t);
    const Value k = step("_k", n.at(1), t, {batch, hk, deep, 1});
    Value v = step("_v", n.at(2), t, {batch, hk, 1, wide});
    if (gated) {
      const Value g = step("_g", n.at(4), t, heads_of(n.at(4)));
      state = b.map(name + "_decayed", q.type, {state, g},
                    [](const Args& a) { return mul(a[0], call("exp", {a[1]})); });
    }
    if (delta) {
      const Value seen = b.reduce(name + "_seen", times(name + "_kept", state, k), {2},
                                  Combine::sum, [](const Args& a) { return a[0]; });
      const Value rate = step("_b", n.at(5), t, heads_of(n.at(5)));
      v = b.map(name + "_new", q.type, {rate, v, seen},
                [](const Args& a) { return mul(a[0], sub(a[1], a[2])); });
    }
    state = b.map(name + "_state", q.type, {state, k, v},
                  [](const Args& a) { return add(a[0], mul(a[1], a[2])); });
    const Value asked = step("_q", q, t, {batch, hk, group, deep});
    const Value y = b.map(name + "_y", q.type, {matrix_product(b, name + "_read", asked, state)},
                          [&](const Args& a) { return mul(a[0], number(scale)); });
    out.push_back(b.reshaped(name + "_row", y, {batch, 1, hq * wide}));
  }
  n.out[0] = joined(b, n.name, out, 1);
  if (n.wants(1)) n.out[1] = state;
}

}  // namespace

Value as_shape(Builder& b, const std::string& name, const Value& v, const Shape& to) {
  if (elements_of(v.shape) != elements_of(to)) throw Unsupported{"an input of another size"};
  return b.reshaped(name, v, to);
}

std::vector<Said> library_operators() {
  return {{"RotaryEmbedding", say_rotary},
          {"QuickGelu", say_quick_gelu},
          {"BiasGelu", say_bias_gelu},
          {"FastGelu", say_bias_gelu},
          {"FusedMatMul", say_fused_matmul},
          {"TransposeMatMul", say_fused_matmul},
          {"Col2Im", say_col2im},
          {"CausalConvWithState", say_causal_conv},
          {"LinearAttention", say_linear_attention},
          {"NegativeLogLikelihoodLoss", say_loss},
          {"SoftmaxCrossEntropyLoss", say_loss}};
}

}  // namespace tilewright::onnx
