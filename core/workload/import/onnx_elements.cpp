// Operators that work element by element.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

Expr opposite(Expr a) { return sub(number(1), std::move(a)); }

/// A number is one that is below 1 or above 0.
Expr is_number(const Expr& a) { return call("max", {lt(a, number(1)), lt(number(0), a)}); }

/// log(1 + exp(x)) without overflow.
Expr softplus(const Expr& x) {
  return add(call("relu", {x}),
             call("log", {add(number(1), call("exp", {call("neg", {call("abs", {x})})}))}));
}

Expr clipped(Expr x, double low, double high) {
  if (low > -INFINITY) x = call("max", {std::move(x), number(low)});
  if (high < INFINITY) x = call("min", {std::move(x), number(high)});
  return x;
}

/// The whole number next to zero.
Expr truncated(const Expr& x) {
  return select(lt(x, number(0)), call("neg", {call("floor", {call("neg", {x})})}),
                call("floor", {x}));
}

/// Where numbers end and infinity begins, in the type that a workload computes with.
double largest(std::int32_t type) {
  return type == kDouble ? std::numeric_limits<double>::max()
                         : static_cast<double>(std::numeric_limits<float>::max());
}

bool never_negative(std::string_view op) {
  return op == "Relu" || op == "Sigmoid" || op == "Exp" || op == "Abs" || op == "Softplus" ||
         op == "HardSigmoid" || op == "Sqrt";
}

/// One value in, one out.
void say_function(NodeReader& n) {
  const std::string& op = n.node.op;
  const double alpha = n.real("alpha", op == "LeakyRelu"     ? 0.01
                                       : op == "HardSigmoid" ? 0.2
                                       : op == "Selu"        ? 1.67326319217681884765625
                                                             : 1.0);
  const double beta = n.real("beta", 0.5);
  const bool by_tanh = n.text("approximate", "none") == "tanh";
  const double gamma = n.real("gamma", 1.05070102214813232421875);
  n.out[0] = n.b.map(n.name, n.at(0).type, {n.at(0)}, [&](const Args& a) -> Expr {
    const Expr& x = a[0];
    if (op == "Gelu" && by_tanh) return gelu_by_tanh(x);
    if (op == "Gelu") return call("gelu", {x});
    if (op == "Selu")
      return mul(
          number(gamma),
          select(lt(number(0), x), x,
                 mul(number(alpha), sub(call("exp", {call("min", {x, number(0)})}), number(1)))));
    if (const auto known = activation(op, x, alpha, beta)) return *known;
    throw Unsupported{"an element-wise function that expressions do not have"};
  });
  n.out[0].nonnegative = never_negative(op);
}

void say_shrink(NodeReader& n) {
  const double most = n.real("lambd", 0.5), bias = n.real("bias", 0);
  n.out[0] = n.b.map(n.name, n.at(0).type, {n.at(0)}, [&](const Args& a) {
    return select(lt(a[0], number(-most)), add(a[0], number(bias)),
                  select(lt(number(most), a[0]), sub(a[0], number(bias)), number(0)));
  });
}

void say_erf(NodeReader& n) {
  n.out[0] =
      n.b.map(n.name, n.at(0).type, {n.at(0)}, [](const Args& a) { return call("erf", {a[0]}); });
}

/// Many in, one out, one after another: Sum, Min, Max, Mean.
void say_many(NodeReader& n) {
  const std::string& op = n.node.op;
  const char* f = op == "Min" ? "min" : op == "Max" ? "max" : "add";
  n.out[0] = n.b.map(n.name, n.at(0).type, n.in, [&](const Args& a) {
    Expr sum = a[0];
    for (std::size_t i = 1; i < a.size(); ++i) sum = call(f, {std::move(sum), a[i]});
    return op == "Mean" ? mul(std::move(sum), number(1.0 / static_cast<double>(a.size()))) : sum;
  });
}

/// Floor, Ceil and Round; of whole numbers themselves.
void say_rounding(NodeReader& n) {
  const std::string& op = n.node.op;
  if (is_integer(n.at(0).type)) {
    n.out[0] = n.at(0);
    return;
  }
  n.out[0] = n.b.map(n.name, n.at(0).type, {n.at(0)}, [&](const Args& a) {
    if (op == "Floor") return call("floor", {a[0]});
    if (op == "Ceil") return call("neg", {call("floor", {call("neg", {a[0]})})});
    return nearest_whole(a[0]);
  });
  n.out[0].nonnegative = n.at(0).nonnegative;
}

/// Of the circle and of the hyperbola.
void say_angle(NodeReader& n) {
  const std::string& op = n.node.op;
  n.out[0] = n.b.map(n.name, n.at(0).type, {n.at(0)}, [&](const Args& a) {
    const Expr &x = a[0], size = call("abs", {x}), one = number(1);
    const auto signed_as_x = [&](Expr of) {
      return select(lt(x, number(0)), call("neg", {of}), of);
    };
    if (op == "Sin") return call("sin", {x});
    if (op == "Cos") return call("cos", {x});
    if (op == "Tan") return call("div", {call("sin", {x}), call("cos", {x})});
    const Expr up = call("exp", {x}), down = call("exp", {call("neg", {x})});
    if (op == "Sinh") return mul(number(0.5), sub(up, down));
    if (op == "Cosh") return mul(number(0.5), add(up, down));
    if (op == "Asinh")
      return signed_as_x(call("log", {add(size, call("sqrt", {add(call("square", {x}), one)}))}));
    if (op == "Acosh") return call("log", {add(x, call("sqrt", {sub(call("square", {x}), one)}))});
    return signed_as_x(  // Atanh
        mul(number(0.5), call("log", {call("div", {add(one, size), sub(one, size)})})));
  });
}

/// Of any number, in three steps: what is above 1 by its reciprocal, then turned by an eighth of a
/// circle, then 11 terms of the series, of which the next is below 1e-10.
Value arc_tangent(Builder& b, const std::string& name, const Value& x) {
  constexpr double kQuarter = 1.5707963267948966, kTurn = 0.41421356237309503;
  const Value inner = b.map(name + "_inner", x.type, {x}, [](const Args& a) {
    const Expr size = call("abs", {a[0]});
    return select(lt(number(1), size), call("recip", {size}), size);
  });
  const Value turned = b.map(name + "_turned", x.type, {inner}, [&](const Args& a) {
    const Expr &t = a[0], one = number(1);
    return select(lt(number(kTurn), t), call("div", {sub(t, one), add(t, one)}), t);
  });
  return b.map(name, x.type, {x, inner, turned}, [&](const Args& a) {
    const Expr &z = a[2], square = call("square", {z});
    Expr series = number(1.0 / 21);
    for (int k = 19; k > 0; k -= 2) series = sub(number(1.0 / k), mul(square, std::move(series)));
    Expr angle = mul(z, std::move(series));
    angle = add(std::move(angle), select(lt(number(kTurn), a[1]), number(kQuarter / 2), number(0)));
    const Expr outer = lt(number(1), call("abs", {a[0]}));
    // Where it is outside: the quarter less the angle. All of it with the sign of x.
    const Expr sign = select(lt(a[0], number(0)), number(-1), number(1));
    const Expr way = select(outer, number(-1), number(1));
    return mul(sign, add(select(outer, number(kQuarter), number(0)), mul(way, std::move(angle))));
  });
}

void say_arc(NodeReader& n) {
  const Value& x = n.at(0);
  const std::string part = n.name + "_ratio";
  if (n.node.op == "Atan") {
    n.out[0] = arc_tangent(n.b, n.name, x);
  } else if (n.node.op == "Asin") {
    n.out[0] = arc_tangent(n.b, n.name, n.b.map(part, x.type, {x}, [](const Args& a) {
      const Expr rest = mul(sub(number(1), a[0]), add(number(1), a[0]));
      return call("div", {a[0], call("sqrt", {rest})});
    }));
  } else {  // Acos: twice the angle of half of it
    const Value half =
        arc_tangent(n.b, n.name + "_half", n.b.map(part, x.type, {x}, [](const Args& a) {
          return call("sqrt", {call("div", {sub(number(1), a[0]), add(number(1), a[0])})});
        }));
    n.out[0] = n.b.map(n.name, x.type, {half}, [](const Args& a) { return mul(number(2), a[0]); });
  }
}

void say_kind(NodeReader& n) {
  const bool up = n.integer("detect_positive", 1) != 0, down = n.integer("detect_negative", 1) != 0;
  const std::int32_t type = n.at(0).type;
  n.out[0] = n.b.map(n.name, kBool, {n.at(0)}, [&](const Args& a) -> Expr {
    if (n.node.op == "IsNaN") return opposite(is_number(a[0]));
    const Expr over = lt(number(largest(type)), a[0]), under = lt(a[0], number(-largest(type)));
    if (!up && !down) return number(0);
    return !down ? over : !up ? under : call("max", {over, under});
  });
  n.out[0].nonnegative = true;
}

/// A whole number divided by zero is zero, as is what is left: on every target the same.
Expr unless_zero(const Expr& divisor, Expr quotient) {
  const auto c = constant(divisor);
  return c ? (*c == 0 ? number(0) : std::move(quotient))
           : select(divisor, std::move(quotient), number(0));
}

/// Of whole numbers, and of real ones with the sign of the first (fmod) or of the second operand.
void say_mod(NodeReader& n) {
  const bool as_first = n.integer("fmod", 0) != 0;
  const std::int32_t type = n.at(0).type;
  n.out[0] = n.b.map(n.name, type, {n.at(0), n.at(1)}, [&](const Args& a) {
    const Expr &x = a[0], &y = a[1], quotient = call("div", {x, y});
    Expr rest = sub(x, mul(y, as_first ? truncated(quotient) : call("floor", {quotient})));
    if (is_integer(type)) return unless_zero(y, std::move(rest));
    const Expr apart = lt(mul(x, y), number(0));  // of infinity: all of it, or up to it
    return select(lt(number(largest(type)), call("abs", {y})), as_first ? x : select(apart, y, x),
                  std::move(rest));
  });
}

/// Bits of whole numbers that move are powers of two. Numbers with a sign keep it.
void say_shift(NodeReader& n) {
  const bool left = n.text("direction", "LEFT") == "LEFT";
  const std::int32_t type = n.at(0).type;
  const double bits = type == kUint8 || type == kInt8     ? 8
                      : type == kUint16 || type == kInt16 ? 16
                                                          : 32;
  const double half =
      type == kInt8 || type == kInt16 || type == kInt32 || type == kInt64 ? std::exp2(bits - 1) : 0;
  n.out[0] = n.b.map(n.name, n.at(0).type, {n.at(0), n.at(1)}, [&](const Args& a) {
    // Further than there are bits, or by less than none: nothing is left but the sign.
    const Expr by = select(lt(a[1], number(0)), number(bits), call("min", {a[1], number(bits)}));
    const Expr power = call("pow", {number(2), by});
    if (!left) return call("floor", {call("div", {a[0], power})});
    const Expr whole = mul(a[0], power), most = number(std::exp2(bits));
    const Expr from = half == 0 ? whole : add(whole, number(half));
    return sub(whole, mul(most, call("floor", {call("div", {from, most})})));
  });
}

void say_bits_not(NodeReader& n) {
  const std::int32_t type = n.at(0).type;
  const double most = type == kUint8 ? 255 : type == kUint16 ? 65535 : -1;
  if (type == kUint32 || type == kUint64) throw Unsupported{"bits that i32 does not have"};
  n.out[0] =
      n.b.map(n.name, type, {n.at(0)}, [&](const Args& a) { return sub(number(most), a[0]); });
}

Expr power(const Expr& x, const Expr& y) {
  const auto c = constant(y);
  if (c == 2.0) return call("square", {x});
  if (c == 1.0) return x;
  if (c == 3.0) return mul(x, call("square", {x}));
  if (c == 0.5) return call("sqrt", {x});
  if (c == -0.5) return call("rsqrt", {x});
  if (c == -1.0) return call("recip", {x});
  return call("pow", {x, y});
}

/// Before opset 7 the second operand was aligned at "axis".
Value second(const NodeReader& n) {
  Value b = n.at(1);
  if (n.opset >= 7 || n.integer("broadcast", 0) == 0 || !n.has_attribute("axis")) return b;
  const std::size_t axis = NodeReader::axis(n.integer("axis", 0), n.rank());
  Shape to = b.shape;
  while (axis + to.size() < n.rank()) to.push_back(1);
  return n.b.reshaped(n.name + "_aligned", b, to);
}

void say_arithmetic(NodeReader& n) {
  const std::string& op = n.node.op;
  const std::int32_t type = n.at(0).type;
  n.out[0] = n.b.map(n.name, type, {n.at(0), second(n)}, [&](const Args& a) {
    const auto c = constant(a[1]);
    if (op == "Add") return add(a[0], a[1]);
    if (op == "Sub") return sub(a[0], a[1]);
    if (op == "Mul") return mul(a[0], a[1]);
    if (op == "Pow") return power(a[0], a[1]);
    if (op == "Div" && !is_integer(type) && c && *c != 0 &&
        std::exp2(std::round(std::log2(std::fabs(*c)))) == *c)
      return mul(a[0], number(1 / *c));  // exactly the same
    const Expr quotient = call("div", {a[0], a[1]});
    return is_integer(type) ? unless_zero(a[1], truncated(quotient)) : quotient;
  });
  n.out[0].nonnegative = (op == "Add" || op == "Mul") && n.at(0).nonnegative && n.at(1).nonnegative;
}

/// Whether an element may be NaN, as far as the file says.
bool may_be_nan(const Value& v) {
  constexpr std::int64_t kMostSeen = 65536;
  if (!is_float(v.type)) return false;
  if (v.uniform) return std::isnan(*v.uniform);
  if (!v.literal || v.literal->missing() || elements_of(v.shape) > kMostSeen) return true;
  return std::ranges::any_of(values_of(v), [](double x) { return std::isnan(x); });
}

/// 0 where one of the operands is NaN, which is neither below nor above another, else the opposite
/// of `otherwise`: then the first operand is at most the second, or at least. `open`: which may be
/// NaN.
Expr holds_of_numbers(const Args& a, const std::vector<std::size_t>& open, const Expr& otherwise,
                      bool at_most) {
  if (open.empty()) return opposite(otherwise);
  const Expr& x = a[open.front()];
  if (open.size() == 2) return select(otherwise, number(0), is_number(call("max", {x, a[1]})));
  // What is at most a constant is below one that is larger.
  const auto c = constant(a[1 - open.front()]);
  if (!c || !std::isfinite(*c)) return select(otherwise, number(0), is_number(x));
  const double apart = std::fabs(*c) / 2 + 1;
  return select(
      otherwise, number(0),
      at_most == (open.front() == 0) ? lt(x, number(*c + apart)) : lt(number(*c - apart), x));
}

void say_comparison(NodeReader& n) {
  const std::string& op = n.node.op;
  std::vector<std::size_t> open;
  if (op.ends_with("Equal"))
    for (const std::size_t i : {0, 1})
      if (may_be_nan(n.at(i))) open.push_back(i);
  n.out[0] = n.b.map(n.name, kBool, {n.at(0), second(n)}, [&](const Args& a) {
    if (op == "Less") return lt(a[0], a[1]);
    if (op == "Greater") return lt(a[1], a[0]);
    if (op == "LessOrEqual") return holds_of_numbers(a, open, lt(a[1], a[0]), true);
    if (op == "GreaterOrEqual") return holds_of_numbers(a, open, lt(a[0], a[1]), false);
    if (op == "And") return mul(a[0], a[1]);
    if (op == "Or") return call("max", {a[0], a[1]});
    if (op == "Xor") return call("abs", {sub(a[0], a[1])});
    return holds_of_numbers(a, open, call("max", {lt(a[0], a[1]), lt(a[1], a[0])}), true);  // Equal
  });
  n.out[0].nonnegative = true;
}

void say_not(NodeReader& n) {
  n.out[0] = n.b.map(n.name, kBool, {n.at(0)}, [](const Args& a) { return opposite(a[0]); });
}

void say_where(NodeReader& n) {
  n.out[0] = n.b.map(n.name, n.at(1).type, {n.at(0), n.at(1), n.at(2)},
                     [](const Args& a) { return select(a[0], a[1], a[2]); });
}

/// A gate, and what it lets through.
void say_swiglu(NodeReader& n) {
  const double alpha = n.real("alpha", 1);
  n.out[0] = n.b.map(n.name, n.at(0).type, {n.at(0), n.at(1)}, [&](const Args& a) {
    return mul(mul(a[0], call("sigmoid", {mul(number(alpha), a[0])})), a[1]);
  });
}

void say_prelu(NodeReader& n) {
  n.out[0] = n.b.map(n.name, n.at(0).type, {n.at(0), n.at(1)}, [](const Args& a) {
    return select(lt(a[0], number(0)), mul(a[0], a[1]), a[0]);
  });
}

void say_clip(NodeReader& n) {
  std::vector<Value> ins = {n.at(0)};
  if (n.opset >= 11) {
    const bool low = n.has(1), high = n.has(2);
    if (low) ins.push_back(n.at(1));
    if (high) ins.push_back(n.at(2));
    n.out[0] = n.b.map(n.name, n.at(0).type, ins, [&](const Args& a) {
      Expr x = a[0];
      if (low) x = call("max", {std::move(x), a[1]});
      if (high) x = call("min", {std::move(x), a.back()});
      return x;
    });
  } else {
    const double low = n.real("min", -INFINITY), high = n.real("max", INFINITY);
    n.out[0] =
        n.b.map(n.name, n.at(0).type, ins, [&](const Args& a) { return clipped(a[0], low, high); });
  }
  n.out[0].nonnegative = n.at(0).nonnegative || (n.has(1) && n.at(1).nonnegative);
}

void say_cast(NodeReader& n) {
  const auto to =
      static_cast<std::int32_t>(n.node.op == "CastLike" ? n.at(1).type : n.integer("to", kFloat));
  const Value& v = n.at(0);
  if (value_type_of(to).empty()) throw Unsupported{"a cast to a type that is not a number"};
  if (to == kBool && v.type != kBool) {
    n.out[0] = n.b.map(n.name, kBool, {v},
                       [](const Args& a) { return select(a[0], number(1), number(0)); });
    return;
  }
  if (is_integer(to) && is_float(v.type)) {
    n.out[0] = n.b.map(n.name, to, {v}, [](const Args& a) { return truncated(a[0]); });
    n.out[0].nonnegative = v.nonnegative;
    return;
  }
  n.out[0] = n.b.rounded(n.name, v, to);
}

void say_identity(NodeReader& n) {
  // Dropout's ratio and whether it trains, from opset 12 on.
  const auto zero = [&](std::size_t i) { return n.at(i).known() && values_of(n.at(i)).at(0) == 0; };
  if (n.has(2) && !zero(2) && !(n.has(1) && zero(1)))
    throw Unsupported{"elements that are left out at random, for training"};
  n.out[0] = n.at(0);
  if (n.node.op == "Dropout" && n.wants(1)) n.out[1] = Builder::uniform(kBool, n.at(0).shape, 1);
}

}  // namespace

Expr add(Expr a, Expr b) { return call("add", {std::move(a), std::move(b)}); }
Expr sub(Expr a, Expr b) { return call("sub", {std::move(a), std::move(b)}); }
Expr mul(Expr a, Expr b) { return call("mul", {std::move(a), std::move(b)}); }
Expr lt(Expr a, Expr b) { return call("lt", {std::move(a), std::move(b)}); }
Expr select(Expr c, Expr a, Expr b) {
  return call("select", {std::move(c), std::move(a), std::move(b)});
}

Value cast(const Value& v, std::int32_t type) {
  Value out = v;
  out.type = type;
  return out;
}

Value sum_of(Builder& b, const std::string& name, const Value& x, const Value& y) {
  return b.map(name, x.type, {x, y}, [](const Args& a) { return add(a[0], a[1]); });
}

Expr nearest_whole(const Expr& x) { return call("round", {x}); }

Expr gelu_by_tanh(const Expr& x) {
  return mul(mul(number(0.5), x),
             add(number(1),
                 call("tanh", {mul(number(0.7978845608028654),
                                   add(x, mul(mul(number(0.044715), x), call("square", {x}))))})));
}

std::optional<Expr> activation(std::string_view name, const Expr& x, double alpha, double beta) {
  if (name == "Relu") return call("relu", {x});
  if (name == "Tanh") return call("tanh", {x});
  if (name == "Sigmoid") return call("sigmoid", {x});
  if (name == "Exp") return call("exp", {x});
  if (name == "Log") return call("log", {x});
  if (name == "Sqrt") return call("sqrt", {x});
  if (name == "Abs") return call("abs", {x});
  if (name == "Neg") return call("neg", {x});
  if (name == "Reciprocal") return call("recip", {x});
  if (name == "Softplus") return softplus(x);
  if (name == "Softsign") return call("div", {x, add(number(1), call("abs", {x}))});
  if (name == "Sign") return sub(lt(number(0), x), lt(x, number(0)));
  if (name == "Mish") return mul(x, call("tanh", {softplus(x)}));
  if (name == "Swish") return mul(x, call("sigmoid", {mul(number(alpha), x)}));
  if (name == "LeakyRelu") return select(lt(x, number(0)), mul(number(alpha), x), x);
  if (name == "ThresholdedRelu") return select(lt(number(alpha), x), x, number(0));
  if (name == "Elu")
    return select(lt(x, number(0)),
                  mul(number(alpha), sub(call("exp", {call("min", {x, number(0)})}), number(1))),
                  x);
  if (name == "Celu")
    return add(
        call("relu", {x}),
        call("min",
             {number(0), mul(number(alpha),
                             sub(call("exp", {mul(call("min", {x, number(0)}), number(1 / alpha))}),
                                 number(1)))}));
  if (name == "HardSigmoid") return clipped(add(mul(number(alpha), x), number(beta)), 0, 1);
  if (name == "HardSwish") return mul(x, clipped(add(mul(number(1.0 / 6), x), number(0.5)), 0, 1));
  if (name == "Affine") return add(mul(number(alpha), x), number(beta));
  return std::nullopt;
}

std::vector<Said> element_operators() {
  std::vector<Said> all = {{"Erf", say_erf},
                           {"Sum", say_many},
                           {"Min", say_many},
                           {"Max", say_many},
                           {"Mean", say_many},
                           {"Not", say_not},
                           {"Where", say_where},
                           {"PRelu", say_prelu},
                           {"Clip", say_clip},
                           {"Cast", say_cast},
                           {"CastLike", say_cast},
                           {"Identity", say_identity},
                           {"Dropout", say_identity},
                           {"Shrink", say_shrink},
                           {"IsNaN", say_kind},
                           {"IsInf", say_kind},
                           {"Mod", say_mod},
                           {"Asin", say_arc},
                           {"Acos", say_arc},
                           {"Atan", say_arc},
                           {"SwiGLU", say_swiglu},
                           {"BitShift", say_shift},
                           {"BitwiseNot", say_bits_not}};
  for (const char* op : {"Floor", "Ceil", "Round"}) all.push_back({op, say_rounding});
  for (const char* op : {"Sin", "Cos", "Tan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"})
    all.push_back({op, say_angle});
  for (const char* op : {"Relu",       "Tanh",     "Sigmoid",     "Exp",
                         "Log",        "Sqrt",     "Abs",         "Neg",
                         "Reciprocal", "Softplus", "Softsign",    "Sign",
                         "Mish",       "Swish",    "LeakyRelu",   "ThresholdedRelu",
                         "Elu",        "Celu",     "HardSigmoid", "HardSwish",
                         "Gelu",       "Selu"})
    all.push_back({op, say_function});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Pow"}) all.push_back({op, say_arithmetic});
  for (const char* op :
       {"Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "Equal"})
    all.push_back({op, say_comparison});
  return all;
}

}  // namespace tilewright::onnx
