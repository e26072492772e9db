// All operators that the import knows, by name.
#include <map>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {

Saying saying_of(std::string_view op) {
  static const std::map<std::string_view, Saying> all = [] {
    std::map<std::string_view, Saying> out;
    for (const auto make :
         {element_operators, product_operators, window_operators, row_operators, moving_operators,
          recurrent_operators, quantised_operators, order_operators, index_operators,
          resize_operators, library_operators, attention_operators, sampling_operators,
          signal_operators, microsoft_operators, integer_operators, pool_operators,
          region_operators, sequence_operators})
      for (const Said& s : make()) out.emplace(s.op, s.say);
    return out;
  }();
  const auto it = all.find(op);
  return it == all.end() ? nullptr : it->second;
}

std::vector<Value> said_as(NodeReader& n, const std::string& name, std::string_view op,
                           std::vector<Value> in, std::vector<Attribute> attributes,
                           std::size_t outputs) {
  constexpr std::int64_t kOpset = 21;
  const Node node{
      .op = std::string(op), .outputs = {outputs, name}, .attributes = std::move(attributes)};
  NodeReader reader(n.b, node, kOpset, std::move(in));
  const Saying say = saying_of(op);
  if (say == nullptr) throw Unsupported{"an operator of its own that is not supported"};
  say(reader);
  if (const Attribute* a = reader.not_asked_for())
    throw Unsupported{"its attribute " + a->name + " is not supported"};
  if (!reader.note.empty()) n.note = reader.note;
  return std::move(reader.out);
}

}  // namespace tilewright::onnx
