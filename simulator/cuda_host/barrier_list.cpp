#include "simulator/cuda_host/barrier_list.h"

#include <algorithm>

namespace tilewright::cuda_host {

std::vector<Barrier> BarrierList::finish(const Image& image) const {
  std::vector<std::uint32_t> calls;
  for (const auto& [call, c] : calls_) calls.push_back(call);
  const std::map<std::uint32_t, Place> lines = image.lines(calls);
  std::map<std::uint32_t, std::uint32_t> root;  // a call that stands for its barrier
  for (const std::uint32_t call : calls) root[call] = call;
  const auto join = [&](std::uint32_t one, std::uint32_t other) {
    const std::uint32_t from = root.at(other), to = root.at(one);
    for (auto& [call, r] : root)
      if (r == from) r = to;
  };
  for (const auto& [one, other] : met_) join(one, other);
  std::map<std::pair<std::string, Place>, std::uint32_t> on_line;
  for (const auto& [call, place] : lines)
    if (place.line != 0)
      join(on_line.try_emplace({calls_.at(call).kind, place}, call).first->second, call);
  std::map<std::uint32_t, std::size_t> index;
  std::vector<Barrier> barriers;
  for (const auto& [call, c] : calls_) {
    const auto [at, fresh] = index.try_emplace(root.at(call), barriers.size());
    if (fresh) barriers.push_back({.kind = c.kind});
    Barrier& b = barriers[at->second];
    b.calls.push_back(call);
    b.threads += c.threads;
    const auto line = lines.find(call);
    if (line != lines.end() && std::ranges::find(b.places, line->second) == b.places.end())
      b.places.push_back(line->second);
  }
  return barriers;
}

}  // namespace tilewright::cuda_host
