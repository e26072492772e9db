// Candidates drawn from the pruned space, to be held against what they truly take.
#include <map>
#include <random>
#include <set>

#include "models/mcfuser/mcfuser.h"

namespace tilewright::mcfuser {
namespace {

/// Uniform over [0, n), the same on every platform.
std::size_t below(std::mt19937_64& random, std::size_t n) {
  const std::uint64_t least = (0 - std::uint64_t{n}) % n;
  std::uint64_t x = 0;
  do x = random();
  while (x < least);
  return static_cast<std::size_t>(x % n);
}

}  // namespace

std::vector<Candidate> draw_candidates(const Chain& c, const Space& s, const Device& d,
                                       const Options& o, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<const Class*> groups = s.kept();
  std::map<const Class*, Pricer> pricers;
  for (const Class* group : groups) pricers.try_emplace(group, c, group->sub, d, o);
  std::set<std::pair<const Class*, Tiles>> seen;
  std::vector<Candidate> drawn;
  const double most = o.slack * static_cast<double>(d.shared.value);
  for (std::size_t i = 0; i < 1000 * count && drawn.size() < count && !groups.empty(); ++i) {
    const Class* const group = groups[below(random, groups.size())];
    Tiles tiles(c.workload->loops().size(), 1);
    for (std::size_t dim = 0; dim < c.dims.size(); ++dim)
      tiles[c.dims[dim].index()] = s.kept_sizes[dim][below(random, s.kept_sizes[dim].size())];
    if (o.rules[3] && static_cast<double>(shared_memory(c, d, o.shared, tiles)) > most) continue;
    if (!seen.emplace(group, tiles).second) continue;
    const double seconds = pricers.at(group).quick(tiles).seconds;
    drawn.push_back({.group = group, .tiles = std::move(tiles), .seconds = seconds});
  }
  return drawn;
}

}  // namespace tilewright::mcfuser
