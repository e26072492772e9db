// Nodes of constants that no rule of onnx_fold.cpp computes: they are made a workload of their own,
// which the reference evaluates.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/workload/import/onnx_node.h"
#include "core/workload/reference/evaluate.h"

namespace tilewright::onnx {
namespace {

constexpr std::int64_t kMostEvaluated = 65536;
constexpr double kMostWork = 0x1p24;

Value made_of(const Value& like, const std::vector<double>& values) {
  std::vector<double> own = values;
  for (double& x : own) {
    if (is_integer(like.type)) x = std::nearbyint(x);
    if (like.type == kFloat) x = static_cast<float>(x);
  }
  return Builder::known(like.type, like.shape, std::move(own));
}

}  // namespace

std::optional<std::vector<Value>> evaluated(const NodeReader& n, Saying say) {
  if (!all_small(n)) return std::nullopt;
  Builder own(DType::f64);
  NodeReader node(own, n.node, n.opset, n.in);
  try {
    say(node);
    if (node.not_asked_for() != nullptr) return std::nullopt;
    std::vector<std::pair<std::string, Value>> computed;
    for (std::size_t i = 0; i < node.out.size(); ++i) {
      const Value& v = node.out[i];
      if (v.type == kUnknown || v.known()) continue;
      if (elements_of(v.shape) < 1 || elements_of(v.shape) > kMostEvaluated) return std::nullopt;
      computed.emplace_back("o" + std::to_string(i) + "v", v);
    }
    if (computed.empty()) return node.out;
    const Builder::Result made = own.finish("constants", computed);
    const Workload w = Workload::create(made.spec);
    if (w.flops() > kMostWork) return std::nullopt;
    const TensorValues values = evaluate(w, random_inputs(w, 1), {.threads = 1});
    for (const auto& [name, v] : computed) {
      const auto at = static_cast<std::size_t>(std::stoi(name.substr(1)));
      node.out[at] = made_of(v, values[w.find_tensor(made.names.at(name))->index()]);
    }
    return node.out;
  } catch (const Unsupported&) {
  } catch (const InputError&) {
  }
  return std::nullopt;  // as a node of what is computed
}

}  // namespace tilewright::onnx
