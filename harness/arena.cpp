#include "harness/arena.h"

#include <algorithm>
#include <numeric>

namespace tilewright::harness {
namespace {

constexpr std::int64_t kLine = 64;

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

Arena placed(std::span<const Lifetime> buffers) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::size_t i) { return buffers[i].bytes; });
  Arena arena{.offsets = std::vector<std::int64_t>(buffers.size())};
  std::vector<std::size_t> done;  // by offset
  for (std::size_t i : order) {
    const std::int64_t bytes = whole_lines(buffers[i].bytes);
    std::int64_t at = 0;
    for (std::size_t j : done) {
      const bool together =
          buffers[j].first <= buffers[i].last && buffers[i].first <= buffers[j].last;
      if (!together) continue;
      if (arena.offsets[j] >= at + bytes) break;
      at = std::max(at, arena.offsets[j] + whole_lines(buffers[j].bytes));
    }
    arena.offsets[i] = at;
    arena.bytes = std::max(arena.bytes, at + bytes);
    done.insert(
        std::ranges::upper_bound(done, at, {}, [&](std::size_t j) { return arena.offsets[j]; }), i);
  }
  return arena;
}

}  // namespace tilewright::harness
