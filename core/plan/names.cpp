#include "core/plan/names.h"

#include <type_traits>
#include <utility>

namespace tilewright {

Workload without_names(const Workload& w) {
  WorkloadSpec spec = w.spec();
  spec.name = "part";
  const auto number = [](auto& all, const char* letter) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i].name = letter + std::to_string(i);
  };
  number(spec.loops, "l");
  number(spec.tensors, "t");
  number(spec.operators, "o");
  for (Tensor& t : spec.tensors) t.values = {}, t.range = 1;
  return Workload::create(std::move(spec));
}

Names::Names(const Workload& from, const Workload& to) {
  for (std::size_t i = 0; i < from.loops().size(); ++i)
    names_["l" + from.loops()[i].name] = to.loops()[i].name;
  for (std::size_t i = 0; i < from.tensors().size(); ++i)
    names_["t" + from.tensors()[i].name] = to.tensors()[i].name;
  for (std::size_t i = 0; i < from.operators().size(); ++i)
    names_["o" + from.operators()[i].name] = to.operators()[i].name;
}

std::string Names::of(char kind, const std::string& name) const {
  const auto found = names_.find(kind + name);
  return found == names_.end() ? name : found->second;
}

std::string Names::compute(const std::string& name) const {
  return names_.contains("o" + name) ? of('o', name) : of('t', name);
}

void Names::rename(Node& n) const {
  if (n.kind == Node::Kind::loop) n.name = of('l', n.name);
  if (n.kind == Node::Kind::load || n.kind == Node::Kind::store || n.kind == Node::Kind::drop)
    n.name = of('t', n.name);
  if (n.kind == Node::Kind::compute) n.name = compute(n.name);
  for (Node& c : n.children) rename(c);
}

Kernel Names::rename(Kernel k) const {
  k.name = compute(k.name);
  for (std::string& o : k.operators) o = compute(o);
  rename(k.tree);
  const auto keys = [&](auto& map, char kind) {
    std::decay_t<decltype(map)> out;
    for (auto& [name, value] : map) out[of(kind, name)] = std::move(value);
    map = std::move(out);
  };
  keys(k.tiles, 'l'), keys(k.pins, 't'), keys(k.flags, 't');
  for (auto& [tensor, pin] : k.pins) pin.at = of('l', pin.at);
  return k;
}

}  // namespace tilewright
