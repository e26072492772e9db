#include "models/quickest/merged_part.h"

#include <algorithm>
#include <utility>

#include "core/workload/merge_loops.h"

namespace tilewright::quickest {

std::optional<MergedPart> MergedPart::of(const Workload& part) {
  WorkloadSpec spec = part.spec();
  for (Tensor& t : spec.tensors) t.values = {};
  MergedPart all;
  const auto loops_of = [&](const Loop& l) -> std::vector<Loop>& {
    return all.merged_.try_emplace(l.name, std::vector{l}).first->second;
  };
  std::optional<Workload> w =
      merged_loops(Workload::create(std::move(spec)), [&](const Loop& outer, const Loop& inner) {
        const std::vector<Loop> those = loops_of(inner);
        all.merged_.erase(inner.name);
        std::vector<Loop>& both = loops_of(outer);
        both.insert(both.end(), those.begin(), those.end());
        return true;
      });
  if (!w) return std::nullopt;
  all.workload_ = std::make_shared<const Workload>(std::move(*w));
  return all;
}

std::vector<std::int64_t> MergedPart::steps(const std::vector<Loop>& loops,
                                            std::int64_t step) const {
  std::vector<std::int64_t> all(loops.size(), 1);
  for (std::size_t i = loops.size(); i-- > 0;) {
    all[i] = std::min(step, loops[i].extent);
    step /= loops[i].extent;
    if (step == 0) break;
  }
  return all;
}

Node MergedPart::split(const Node& n, const std::map<std::string, std::int64_t>& tiles,
                       std::map<std::string, std::int64_t> around) const {
  const auto merged = n.kind == Node::Kind::loop ? merged_.find(n.name) : merged_.end();
  std::vector<Node> nest;  // outermost first
  if (merged != merged_.end()) {
    const std::vector<std::int64_t> own =
        steps(merged->second, n.step > 0 ? n.step : tiles.at(n.name));
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Loop& l = merged->second[i];
      const auto [whole, is_outermost] = around.try_emplace(l.name, l.extent);
      if (own[i] >= whole->second && !is_outermost) continue;
      whole->second = own[i];
      nest.push_back(loop(l.name, {}, own[i], n.binding));
    }
  }
  Node body = n;
  body.children.clear();
  for (const Node& c : n.children) {
    Node one = split(c, tiles, around);
    if (body.kind == Node::Kind::sequence && one.kind == Node::Kind::sequence)
      std::ranges::move(one.children, std::back_inserter(body.children));
    else
      body.children.push_back(std::move(one));
  }
  if (merged == merged_.end()) return body;
  Node all = std::move(body.children.front());
  for (; !nest.empty(); nest.pop_back()) {
    nest.back().children = {std::move(all)};
    all = std::move(nest.back());
  }
  return all;
}

std::optional<Plan> MergedPart::split(const Plan& plan) const {
  Plan all = plan;
  for (Kernel& k : all.kernels) {
    for (const auto& [tensor, pin] : k.pins)
      if (merged_.contains(pin.at)) return std::nullopt;
    k.tree = split(k.tree, k.tiles, {});
    std::erase_if(k.tiles, [&](const auto& tile) { return merged_.contains(tile.first); });
  }
  return all;
}

}  // namespace tilewright::quickest
