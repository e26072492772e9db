// Softmax, normalisations and reductions.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

Expr same(const Args& a) { return a[0]; }
Expr minus(const Args& a) { return call("sub", {a[0], a[1]}); }

std::set<std::size_t> from_on(std::size_t first, std::size_t rank) {
  std::set<std::size_t> all;
  for (std::size_t d = first; d < rank; ++d) all.insert(d);
  return all;
}

double elements_over(const Value& x, const std::set<std::size_t>& over) {
  double n = 1;
  for (const std::size_t d : over) n *= static_cast<double>(x.shape[d]);
  return n;
}

void say_softmax(NodeReader& n) {
  const bool old = n.opset < 13;
  if (n.rank() == 0) throw Unsupported{"a softmax of a scalar"};
  const std::size_t axis = NodeReader::axis(n.integer("axis", old ? 1 : -1), n.rank());
  // Before opset 13, over everything from the axis on.
  const std::set<std::size_t> over = old ? from_on(axis, n.rank()) : std::set<std::size_t>{axis};
  n.out[0] = softmax_over(n.b, n.name, n.at(0), over, n.node.op == "LogSoftmax");
}

/// What mean and variance of `over` make of x: (x - mean) / sqrt(variance + epsilon).
struct Normalised {
  Value value, mean, inverse;
};
Normalised normalised(NodeReader& n, const Value& x, const std::set<std::size_t>& over,
                      double epsilon, const std::string& name) {
  const double count = elements_over(x, over);
  const Value sum = n.b.reduce(name + "_sum", x, over, Combine::sum, same);
  const Value mean = n.b.map(name + "_mean", x.type, {sum}, [&](const Args& a) {
    return call("mul", {a[0], number(1 / count)});
  });
  const Value less = n.b.map(name + "_centred", x.type, {x, mean}, minus);
  const Value squares = n.b.reduce(name + "_squares", less, over, Combine::sum,
                                   [](const Args& a) { return call("square", {a[0]}); });
  const Value inverse = n.b.map(name + "_inverse", x.type, {squares}, [&](const Args& a) {
    return call("rsqrt", {call("add", {call("mul", {a[0], number(1 / count)}), number(epsilon)})});
  });
  return {n.b.map(name + "_normal", x.type, {less, inverse},
                  [](const Args& a) {
                    return call("mul", {a[0], a[1]});
                  }),
          mean, inverse};
}

/// x * scale + bias, where they are there.
Value scaled(NodeReader& n, const Value& x, const std::optional<Value>& scale,
             const std::optional<Value>& bias) {
  std::vector<Value> ins = {x};
  if (scale) ins.push_back(*scale);
  if (bias) ins.push_back(*bias);
  if (ins.size() == 1) return x;
  const Value out = n.b.map(n.name, x.type, ins, [&](const Args& a) {
    Expr v = a[0];
    if (scale) v = call("mul", {std::move(v), a[1]});
    return bias ? call("add", {std::move(v), a.back()}) : v;
  });
  if (out.shape != x.shape) throw Unsupported{"a scale or bias of another shape"};
  return out;
}

std::optional<Value> optional(const NodeReader& n, std::size_t i) {
  if (!n.has(i)) return std::nullopt;
  return n.at(i);
}

void say_layer_norm(NodeReader& n) {
  const Value& x = n.at(0);
  const std::size_t axis = NodeReader::axis(n.integer("axis", -1), n.rank());
  const Normalised made =
      normalised(n, x, from_on(axis, n.rank()), n.real("epsilon", 1e-5), n.name);
  n.out[0] = scaled(n, made.value, optional(n, 1), optional(n, 2));
  if (n.wants(1)) n.out[1] = made.mean;
  if (n.wants(2)) n.out[2] = made.inverse;
}

void say_rms_norm(NodeReader& n) {
  const Value& x = n.at(0);
  const std::size_t axis = NodeReader::axis(n.integer("axis", -1), n.rank());
  const std::set<std::size_t> over = from_on(axis, n.rank());
  const double count = elements_over(x, over), epsilon = n.real("epsilon", 1e-5);
  const Value squares = n.b.reduce(n.name + "_squares", x, over, Combine::sum,
                                   [](const Args& a) { return call("square", {a[0]}); });
  const Value normal = n.b.map(n.name + "_normal", x.type, {x, squares}, [&](const Args& a) {
    return call("mul", {a[0], call("rsqrt", {call("add", {call("mul", {a[1], number(1 / count)}),
                                                          number(epsilon)})})});
  });
  n.out[0] = scaled(n, normal, optional(n, 1), std::nullopt);
}

/// A vector of channels along dimension 1 of an image.
Value of_channels(NodeReader& n, std::size_t i, const Shape& image) {
  Shape to(image.size(), 1);
  to[1] = image[1];
  if (elements_of(n.at(i).shape) != to[1]) throw Unsupported{"as many values as channels"};
  return n.b.reshaped(n.name + "_c" + std::to_string(i), n.at(i), to);
}

/// By the batch's own mean and variance; the running ones move towards them.
void say_batch_norm_training(NodeReader& n, double epsilon) {
  const Value& x = n.at(0);
  std::set<std::size_t> over = from_on(2, n.rank());
  over.insert(0);
  const double momentum = n.real("momentum", 0.9);
  const Normalised made = normalised(n, x, over, epsilon, n.name);
  n.out[0] = scaled(n, made.value, of_channels(n, 1, x.shape), of_channels(n, 2, x.shape));
  const auto moved = [&](std::size_t input, const Value& now, const char* what, bool variance) {
    Value old = n.at(input);
    const Value flat = n.b.reshaped(n.name + what, now, old.shape);
    return n.b.map(n.name + what, x.type, {old, flat}, [&](const Args& a) {
      Expr v = a[1];  // of 1 / sqrt(variance + epsilon)
      if (variance)
        v = call("sub", {call("recip", {call("square", {std::move(v)})}), number(epsilon)});
      return call("add", {call("mul", {number(momentum), a[0]}),
                          call("mul", {number(1 - momentum), std::move(v)})});
    });
  };
  if (n.wants(1)) n.out[1] = moved(3, made.mean, "_running_mean", false);
  if (n.wants(2)) n.out[2] = moved(4, made.inverse, "_running_variance", true);
}

void say_batch_norm(NodeReader& n) {
  const Value& x = n.at(0);
  if (x.shape.size() < 2) throw Unsupported{"no channels"};
  const double epsilon = n.real("epsilon", 1e-5);
  if (n.integer("training_mode", 0) != 0) return say_batch_norm_training(n, epsilon);
  std::vector<Value> ins = {x};
  for (std::size_t i = 1; i < 5; ++i) ins.push_back(of_channels(n, i, x.shape));
  n.out[0] = n.b.map(n.name, x.type, ins, [&](const Args& a) {
    Expr gain = call("mul", {a[1], call("rsqrt", {call("add", {a[4], number(epsilon)})})});
    return call("add", {call("mul", {call("sub", {a[0], a[3]}), std::move(gain)}), a[2]});
  });
}

void say_instance_norm(NodeReader& n) {
  const Value& x = n.at(0);
  if (x.shape.size() < 3) throw Unsupported{"no image"};
  const Normalised made = normalised(n, x, from_on(2, n.rank()), n.real("epsilon", 1e-5), n.name);
  n.out[0] = scaled(n, made.value, of_channels(n, 1, x.shape), of_channels(n, 2, x.shape));
}

void say_group_norm(NodeReader& n) {
  const Value& x = n.at(0);
  const std::int64_t groups = n.integer("num_groups", 1);
  if (x.shape.size() < 3 || groups < 1 || x.shape[1] % groups != 0)
    throw Unsupported{"groups that do not divide the channels"};
  Shape to = x.shape;
  to[1] /= groups;
  to.insert(to.begin() + 1, groups);
  const Value cut = n.b.reshaped(n.name + "_groups", x, to);
  const Normalised made =
      normalised(n, cut, from_on(2, to.size()), n.real("epsilon", 1e-5), n.name);
  const auto vector = [&](std::size_t i) {
    Shape as(to.size(), 1);
    as[1] = groups;
    if (elements_of(n.at(i).shape) == x.shape[1])
      as[2] = to[2];  // opset 21: a value a channel
    else if (elements_of(n.at(i).shape) != groups)
      throw Unsupported{"as many values as channels or groups"};
    return n.b.reshaped(n.name + "_g" + std::to_string(i), n.at(i), as);
  };
  const Value done = scaled(n, made.value, vector(1), vector(2));
  n.out[0] = n.b.reshaped(n.name + "_image", done, x.shape);
}

void say_mean_variance(NodeReader& n) {
  std::set<std::size_t> over;
  auto axes = n.integers("axes");
  if (axes.empty()) axes = {0, 2, 3};
  for (const std::int64_t a : axes) over.insert(NodeReader::axis(a, n.rank()));
  n.out[0] = normalised(n, n.at(0), over, 1e-9, n.name).value;
}

void say_reduce(NodeReader& n) {
  const std::string& op = n.node.op;
  const Value& x = n.at(0);
  std::set<std::size_t> over;
  const auto axes = n.integers_of("axes", 1);
  if (axes && !axes->empty())
    for (const std::int64_t a : *axes) over.insert(NodeReader::axis(a, n.rank()));
  else if (n.integer("noop_with_empty_axes", 0) == 0)
    over = from_on(0, n.rank());
  const double count = elements_over(x, over);
  const auto squared = [](const Args& a) { return call("square", {a[0]}); };
  const auto exponent = [](const Args& a) { return call("exp", {a[0]}); };
  const auto size = [](const Args& a) { return call("abs", {a[0]}); };
  const auto then = [&](const Value& v, const Builder::Function& f) {
    return n.b.map(n.name, x.type, {v}, f);
  };
  const std::string part = n.name + "_sum";
  // A sum that something follows is added in 32 bits, and rounded once.
  const bool half = x.type == kFloat16 || x.type == kBfloat16;
  const Value wide = half ? cast(x, kFloat) : x;
  Value out;
  const bool joined = half && over.size() == n.rank();  // of everything: blocks join their parts
  if (op == "ReduceMax" || op == "ReduceMin") {
    const Combine how = op == "ReduceMax" ? Combine::max : Combine::min;
    out = joined ? then(n.b.reduce(n.name + "_of_all", wide, over, how, same), same)
                 : n.b.reduce(n.name, x, over, how, same);
  } else if (op == "ReduceProd") {
    out = n.b.reduce(n.name, x, over, Combine::product, same);
  } else if (op == "ReduceMean") {
    out = then(n.b.reduce(part, wide, over, Combine::sum, same), [&](const Args& a) {
      return call("mul", {a[0], number(1 / count)});
    });
  } else if (op == "ReduceSumSquare") {
    out = n.b.reduce(n.name, x, over, Combine::sum, squared);
  } else if (op == "ReduceL1") {
    out = n.b.reduce(n.name, x, over, Combine::sum, size);
  } else if (op == "ReduceL2") {
    out = then(n.b.reduce(part, wide, over, Combine::sum, squared),
               [](const Args& a) { return call("sqrt", {a[0]}); });
  } else if (op == "ReduceLogSum") {
    out = then(n.b.reduce(part, wide, over, Combine::sum, same),
               [](const Args& a) { return call("log", {a[0]}); });
  } else if (op == "ReduceLogSumExp") {
    const Value most = n.b.reduce(n.name + "_max", x, over, Combine::max, same);
    const Value less = n.b.map(n.name + "_less", x.type, {x, most}, minus);
    const Value sum =
        n.b.reduce(part, half ? cast(less, kFloat) : less, over, Combine::sum, exponent);
    out = n.b.map(n.name, x.type, {sum, most}, [](const Args& a) {
      return call("add", {call("log", {a[0]}), a[1]});
    });
  } else if (joined) {
    out = then(n.b.reduce(part, wide, over, Combine::sum, same), same);
  } else {
    out = n.b.reduce(n.name, x, over, Combine::sum, same);
  }
  out.nonnegative = x.nonnegative && op != "ReduceLogSum" && op != "ReduceLogSumExp";
  if (n.integer("keepdims", 1) == 0)
    for (auto d = over.rbegin(); d != over.rend(); ++d) out = squeezed(n.b, out, *d);
  n.out[0] = out;
}

}  // namespace

Value softmax_over(Builder& b, const std::string& name, const Value& x,
                   const std::set<std::size_t>& over, bool log) {
  const Value most = b.reduce(name + "_max", x, over, Combine::max, same);
  if (log) {
    const Value less = b.map(name + "_less", x.type, {x, most}, minus);
    const Value sum = b.reduce(name + "_sum", less, over, Combine::sum,
                               [](const Args& a) { return call("exp", {a[0]}); });
    return b.map(name, x.type, {less, sum}, [](const Args& a) {
      return call("sub", {a[0], call("log", {a[1]})});
    });
  }
  const Value powers = b.map(name + "_exp", x.type, {x, most}, [](const Args& a) {
    return call("exp", {call("sub", {a[0], a[1]})});
  });
  const Value sum = b.reduce(name + "_sum", powers, over, Combine::sum, same);
  Value out = b.map(name, x.type, {powers, sum}, [](const Args& a) {
    return call("div", {a[0], a[1]});
  });
  out.nonnegative = true;
  return out;
}

namespace {

/// Divided by the norm along an axis, of order 1 or 2. Zeros stay zeros.
void say_lp_norm(NodeReader& n) {
  const Value& x = n.at(0);
  const std::int64_t p = n.integer("p", 2);
  if (p != 1 && p != 2) throw Unsupported{"a norm of order " + std::to_string(p)};
  const std::set<std::size_t> over = {NodeReader::axis(n.integer("axis", -1), n.rank())};
  const Value sum = n.b.reduce(n.name + "_sum", x, over, Combine::sum, [&](const Args& a) {
    return call(p == 1 ? "abs" : "square", {a[0]});
  });
  n.out[0] = n.b.map(n.name, x.type, {x, sum}, [&](const Args& a) {
    Expr norm = p == 1 ? a[1] : call("sqrt", {a[1]});
    return call(
        "div", {a[0], call("select", {call("lt", {number(0), a[1]}), std::move(norm), number(1)})});
  });
}

}  // namespace

std::vector<Said> row_operators() {
  std::vector<Said> all = {{"Softmax", say_softmax},
                           {"LogSoftmax", say_softmax},
                           {"LayerNormalization", say_layer_norm},
                           {"RMSNormalization", say_rms_norm},
                           {"SimplifiedLayerNormalization", say_rms_norm},
                           {"BatchNormalization", say_batch_norm},
                           {"InstanceNormalization", say_instance_norm},
                           {"GroupNormalization", say_group_norm},
                           {"MeanVarianceNormalization", say_mean_variance},
                           {"LpNormalization", say_lp_norm}};
  for (const char* op :
       {"ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceSum", "ReduceSumSquare",
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"})
    all.push_back({op, say_reduce});
  return all;
}

}  // namespace tilewright::onnx
