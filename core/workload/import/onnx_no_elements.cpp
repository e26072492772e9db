// Nodes that read a tensor without elements, such as a past of no steps.
#include <algorithm>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {

bool without_elements(NodeReader& n) {
  constexpr std::string_view keeps =
      " Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Cast Ceil Celu Clip Cos Cosh "
      "Dropout "
      "Elu Erf Exp Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax Identity "
      "InstanceNormalization LayerNormalization LeakyRelu Log LogSoftmax Mish Neg Not "
      "RMSNormalization Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus "
      "Softsign Sqrt Swish Tan Tanh ThresholdedRelu ";
  constexpr std::string_view joins =
      " Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or PRelu "
      "Pow "
      "Sub Sum Where Xor ";
  constexpr std::string_view views = " Concat Shape Size Slice Split ";
  const auto is_one = [word = " " + n.node.op + " "](std::string_view of) {
    return of.find(word) != of.npos;
  };
  const auto none = [](const Value& v) { return v.type != kUnknown && elements_of(v.shape) == 0; };
  if (std::ranges::none_of(n.in, none)) return false;
  const std::string& op = n.node.op;
  if (is_one(keeps) && none(n.at(0))) {
    n.out[0] = Builder::known(
        op == "Cast" ? static_cast<std::int32_t>(n.integer("to", kFloat)) : n.at(0).type,
        n.at(0).shape, {});
    return true;
  }
  if (is_one(joins)) {
    Shape out;
    for (std::size_t i = 0; i < n.in.size(); ++i) {
      const Shape& s = n.at(i).shape;
      if (s.size() > out.size()) out.insert(out.begin(), s.size() - out.size(), 1);
      for (std::size_t d = 1; d <= s.size(); ++d) {
        std::int64_t& to = out[out.size() - d];
        if (to != 1 && s[s.size() - d] != 1 && to != s[s.size() - d])
          throw Unsupported{"its shapes do not broadcast"};
        if (to == 1) to = s[s.size() - d];
      }
    }
    const bool truth = op == "And" || op == "Or" || op == "Xor" || op == "Equal" ||
                       op.starts_with("Less") || op.starts_with("Greater");
    n.out[0] = Builder::known(truth ? kBool : n.at(op == "Where" ? 1 : 0).type, out, {});
    return true;
  }
  if (op == "MatMul" && n.at(0).shape.size() == 2 && n.at(1).shape.size() == 2) {
    const Shape to = {n.at(0).shape[0], n.at(1).shape[1]};
    n.out[0] = elements_of(to) == 0 ? Builder::known(n.at(0).type, to, {})
                                    : Builder::uniform(n.at(0).type, to, 0);  // a sum of nothing
    return true;
  }
  for (std::size_t i = 0; i < n.in.size(); ++i) {
    if (!none(n.in[i])) continue;
    // Behind the first input, a list of nothing: axes, scales.
    const bool list = i > 0 && n.in[i].literal != nullptr && n.in[i].shape.size() == 1;
    if (is_one(views) ? i > 0 && n.in[i].literal == nullptr : !list)
      throw Unsupported{"an input without elements"};
  }
  return false;
}

}  // namespace tilewright::onnx
