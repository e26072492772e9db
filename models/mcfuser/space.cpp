// The space of candidates and what each of the four rules leaves of it (section III-C).
#include <algorithm>
#include <bit>

#include "core/base/format.h"
#include "models/mcfuser/detail.h"

namespace tilewright::mcfuser {
namespace {

std::int64_t times(std::int64_t a, std::int64_t b) { return checked_mul(a, b).value_or(INT64_MAX); }

std::vector<std::int64_t> sizes_of(std::int64_t extent, std::int64_t step) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 1; i <= ceil_div(extent, step); ++i) sizes.push_back(i * step);
  return sizes;
}

std::int64_t padding(std::int64_t extent, std::int64_t tile) {
  return ceil_div(extent, tile) * tile - extent;
}

bool pads_little(std::int64_t extent, std::int64_t tile, double most) {
  const std::int64_t extra = padding(extent, tile);
  if (std::has_single_bit(static_cast<std::uint64_t>(extent))) return extra == 0;
  return static_cast<double>(extra) <= most * static_cast<double>(extent);
}

void add_sizes(Space& s, const Loop& loop, const Options& o) {
  s.sizes.push_back(sizes_of(loop.extent, o.tile_step));
  std::vector<std::int64_t> kept;
  for (std::int64_t t : s.sizes.back())
    if (!o.rules[2] || pads_little(loop.extent, t, o.padding)) kept.push_back(t);
  if (kept.empty()) {
    kept.push_back(*std::ranges::min_element(
        s.sizes.back(), {}, [&](std::int64_t t) { return padding(loop.extent, t); }));
    s.notes.push_back(formatted("rule 3 leaves no tile of {} = {}: {} pads least", loop.name,
                                loop.extent, kept.front()));
  }
  s.kept_sizes.push_back(std::move(kept));
}

std::int64_t product_of(const std::vector<std::vector<std::int64_t>>& sizes) {
  std::int64_t n = 1;
  for (const auto& s : sizes) n = times(n, static_cast<std::int64_t>(s.size()));
  return n;
}

void add_classes(const Chain& c, Space& s, const Options& o) {
  std::map<std::string, std::size_t> seen;
  for (const Expression& e : s.expressions) {
    SubExpression sub = sub_expression(c, e, o.blocks);
    // Without rule 1 every expression stands for itself.
    const std::string key = o.rules[0] ? to_text(c, sub.rest) : to_text(c, e);
    const auto [at, fresh] = seen.emplace(key, s.classes.size());
    if (fresh) {
      auto overwhelmed = overwhelms(c, sub);
      s.classes.push_back({std::move(sub), e, 0, std::move(overwhelmed)});
    }
    ++s.classes[at->second].members;
  }
}

}  // namespace

std::vector<const Class*> Space::kept() const {
  std::vector<const Class*> out;
  for (const Class& c : classes)
    if (!rule2 || !c.overwhelmed) out.push_back(&c);
  return out;
}

void detail::for_each_tuple(const Chain& c, const Space& s,
                            const std::function<void(const Tiles&)>& visit) {
  Tiles tiles(c.workload->loops().size(), 1);
  std::vector<std::size_t> at(c.dims.size(), 0);
  for (std::size_t i = 0; i < c.dims.size(); ++i)
    tiles[c.dims[i].index()] = s.kept_sizes[i].front();
  while (true) {
    visit(tiles);
    std::size_t i = c.dims.size();
    while (i > 0) {
      --i;
      if (++at[i] < s.kept_sizes[i].size()) break;
      at[i] = 0;
      tiles[c.dims[i].index()] = s.kept_sizes[i].front();
      if (i == 0) return;
    }
    tiles[c.dims[i].index()] = s.kept_sizes[i][at[i]];
  }
}

bool detail::fits_roughly(const Chain& c, const Device& d, const Options& o, const Tiles& tiles) {
  return !o.rules[3] || static_cast<double>(shared_memory(c, d, o.shared, tiles)) <=
                            o.slack * static_cast<double>(d.shared.value);
}

Result<Space> space_of(const Chain& c, const Device& d, const Options& o) {
  Space s;
  s.rule2 = o.rules[1];
  s.expressions = all_expressions(c);
  if (!o.flat) std::erase_if(s.expressions, [](const Expression& e) { return !e.deep(); });
  constexpr std::int64_t kMostSizes = std::int64_t{1} << 20;
  for (LoopId l : c.dims) {
    const Loop& loop = c.workload->loop(l);
    if (loop.extent / o.tile_step >= kMostSizes)
      return Reason{formatted("loop {} of {} has more than {} tile sizes; --tile-step makes fewer",
                              loop.name, loop.extent, kMostSizes)};
    add_sizes(s, loop, o);
  }
  add_classes(c, s, o);

  const auto count = [&](const char* rule, std::int64_t expressions, std::int64_t tuples) {
    s.counts.push_back({rule, expressions, tuples, times(expressions, tuples)});
  };
  const auto all = static_cast<std::int64_t>(s.expressions.size());
  const auto classes = static_cast<std::int64_t>(s.classes.size());
  const auto kept = static_cast<std::int64_t>(s.kept().size());
  const std::int64_t tuples = product_of(s.sizes), padded = product_of(s.kept_sizes);
  count("generated", all, tuples);
  count("rule1", classes, tuples);
  count("rule2", kept, tuples);
  count("rule3", kept, padded);
  constexpr std::int64_t kMostTuples = std::int64_t{1} << 26;
  if (padded > kMostTuples) {
    s.notes.push_back(formatted("rule 4 is not counted over {} tuples of tile sizes", padded));
    return s;
  }
  std::int64_t fitting = 0;
  detail::for_each_tuple(
      c, s, [&](const Tiles& t) { fitting += detail::fits_roughly(c, d, o, t) ? 1 : 0; });
  count("rule4", kept, fitting);
  return s;
}

Space narrowed(const Chain& c, Space space, const Expression& e, const Options& o) {
  space.classes = {{sub_expression(c, e, o.blocks), e, 1, std::nullopt}};
  space.counts.back().candidates = space.counts.back().tuples;
  return space;
}

}  // namespace tilewright::mcfuser
