#include "core/plan/names.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "core/plan/file.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"

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
  for (Tensor& t : spec.tensors) t.values = {}, t.range = 1, t.least = {};
  return Workload::create(std::move(spec));
}

Workload with_constants(const Workload& w, const std::vector<bool>& constant) {
  WorkloadSpec spec = w.spec();
  for (std::size_t t = 0; t < spec.tensors.size(); ++t)
    spec.tensors[t].values = constant[t] ? SharedValues(Values{}) : SharedValues();
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

namespace {

void computes_of(const Node& node, std::vector<std::string>& names) {
  if (node.kind == Node::Kind::compute) names.push_back(node.name);
  for (const Node& child : node.children) computes_of(child, names);
}

}  // namespace

std::vector<OpId> operators_of(const Kernel& kernel, const Workload& w) {
  std::vector<std::string> names;
  computes_of(kernel.tree, names);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return operators_named(w, names, "plan");
}

std::optional<Reason> no_workloads(const Plan& plan, const Workload& w) {
  for (const Kernel& kernel : plan.kernels)
    if (auto why = no_subgraph(w, operators_of(kernel, w))) return why;
  return std::nullopt;
}

NamelessKernel nameless(const Kernel& kernel, const Workload& w) {
  const std::vector<OpId> operators = operators_of(kernel, w);
  NamelessKernel out{.operators = operators,
                     .tensors = {},
                     .part = subgraph(w, operators),
                     .workload = {},
                     .kernel = {},
                     .key = {}};
  for (const Tensor& t : out.part.tensors()) out.tensors.push_back(*w.find_tensor(t.name));
  out.workload = std::make_shared<const Workload>(without_names(out.part));
  out.kernel = Names(out.part, *out.workload).rename(kernel);
  out.kernel.name = "kernel";
  out.kernel.by.clear();
  out.key = to_json(Plan{{out.kernel}}).dump() + to_yaml(*out.workload);
  return out;
}

}  // namespace tilewright
