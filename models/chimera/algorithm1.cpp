// Algorithm 1: the price of one order and one tiling, and the legality of an order.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "models/chimera/flat.h"

namespace tilewright::chimera {

using detail::bit;
using detail::Chain;
using detail::each;
using detail::Flat;
using detail::Mask;
using detail::Point;

namespace detail {
namespace {

std::string name_list(const Workload& w, std::span<const LoopId> loops) {
  std::vector<std::string> names;
  for (LoopId l : loops) names.push_back(w.loop(l).name);
  return join(names);
}

Elements weighted(std::int64_t n, double weight) {
  if (weight == 1.0) return Elements(n);
  const double v = static_cast<double>(n) * weight;
  return Elements(v >= 9.2e18 ? kSaturated : std::llround(v));
}

}  // namespace

void check_order(const Chain& c, const Order& order) {
  const Workload& w = c.workload();
  Mask seen = 0, expected = 0;
  for (LoopId l : c.order_loops()) expected |= bit(l.index());
  const auto accepted = [&] { return "a permutation of " + name_list(w, c.order_loops()); };
  const auto text = [&] {  // to_text would ask for a checked order
    std::string t;
    for (LoopId l : order)
      if (l.valid() && l.index() < w.loops().size())
        t += (t.empty() || w.loop(l).name.size() == 1 ? "" : ",") + w.loop(l).name;
    return t;
  };
  for (LoopId l : order) {
    if (!l.valid() || l.index() >= w.loops().size())
      throw InputError(
          {.field = "order", .value = "", .problem = "names no loop", .accepted = accepted()});
    const std::string& name = w.loop(l).name;
    if (has(seen, l.index()))
      throw InputError({.field = "order",
                        .value = text(),
                        .problem = "has " + name + " twice",
                        .accepted = accepted()});
    if (!has(expected, l.index()) && !c.batch(l))
      throw InputError({.field = "order",
                        .value = name,
                        .problem = "follows from its consumers' loops",
                        .accepted = accepted()});
    seen |= bit(l.index());
  }
  each(expected & ~seen, [&](std::size_t l) {
    throw InputError({.field = "order",
                      .value = text(),
                      .problem = "lacks " + w.loop(LoopId(l)).name,
                      .accepted = accepted()});
  });
}

void check_tiles(const Flat& f, const Tiles& tiles) {
  const Workload& w = f.workload();
  if (tiles.size() != w.loops().size())
    throw InputError({.field = "tiles",
                      .value = std::to_string(tiles.size()),
                      .problem = "is not one entry a loop",
                      .accepted = std::to_string(w.loops().size()) + " entries"});
  for (std::size_t i = 0; i < f.size(); ++i) {
    if (has(f.implicit(), i)) continue;
    const std::int64_t t = tiles[f.loop(i).index()];
    if (t < 1 || t > f.extent(i))
      throw InputError({.field = "tiles: " + w.loop(f.loop(i)).name,
                        .value = std::to_string(t),
                        .problem = "is out of range",
                        .accepted = "1 to " + std::to_string(f.extent(i))});
  }
}

Tiles tiles_of(const Flat& f, const Point& p) {
  const Workload& w = f.workload();
  const Chain& c = f.chain();
  std::vector<Interval> whole;
  for (const Loop& l : w.loops()) whole.push_back({0, l.extent});
  for (std::size_t i = 0; i < f.size(); ++i) whole[f.loop(i).index()] = {0, p.tile[i]};
  const std::vector<Interval> r = c.ranges(whole, false);
  Tiles tiles(w.loops().size(), 1);
  for (std::size_t q = 0; q < c.size(); ++q)
    for (std::size_t i = 0; i < c.op(q).loops.size(); ++i) {
      std::int64_t& t = tiles[c.op(q).loops[i].index()];
      t = std::max(t, std::min(r[c.base(q) + i].size(), w.loop(c.op(q).loops[i]).extent));
    }
  for (std::size_t i = 0; i < f.size(); ++i) tiles[f.loop(i).index()] = p.tile[i];
  return tiles;
}

Price price_of(const Flat& f, const Point& p) {
  const Workload& w = f.workload();
  std::vector<std::int64_t> df(f.foots().size());
  f.footprints(p, df);
  Price price;
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    price.tensors.push_back(
        {.tensor = TensorId(t), .decided_by = has(f.on_chip(), t) ? "on chip" : "held throughout"});
  const detail::Structure& s = f.structure(p.multi);
  for (std::size_t i = 0; i < f.foots().size(); ++i) {
    const std::size_t t = f.foots()[i].tensor.index();
    price.tensors[t].footprint = std::max(price.tensors[t].footprint, Elements(df[i]));
    price.tensors[t].buffer = price.tensors[t].footprint;
  }
  each(f.on_chip(), [&](std::size_t t) {
    price.tensors[t].buffer =
        Elements(f.footprint(f.foots()[f.producer_foot(TensorId(t))], p, s.cut[t]));
  });
  std::int64_t volume = 0;
  std::vector<Mask> multiplied(w.tensors().size(), 0);
  for (const Use& u : f.uses()) {
    int decided_by = -1;
    multiplied[f.foots()[u.foot].tensor.index()] |= f.multipliers(u, p.multi, &decided_by);
    const Elements moved = weighted(f.movement(u, p, df), u.weight);
    TensorPrice& t = price.tensors[f.foots()[u.foot].tensor.index()];
    t.movement = Elements(saturating_add(t.movement.value, moved.value));
    if (decided_by >= 0) t.decided_by = w.loop(f.loop(static_cast<std::size_t>(decided_by))).name;
    volume = saturating_add(volume, moved.value);
  }
  for (TensorPrice& t : price.tensors)
    for (std::size_t i = 0; i < f.size(); ++i)
      if (!has(multiplied[t.tensor.index()] | f.implicit(), i)) t.reused.push_back(f.loop(i));
  price.volume = Elements(volume);
  price.memory = Elements(f.memory(f.options().memory, p, df));
  price.memory_paper = Elements(f.memory(Memory::paper, p, df));
  if (volume == kSaturated || price.memory.value == kSaturated)
    throw InputError({.field = "tiles",
                      .value = to_text(w, f.order()),
                      .problem = "moves more than 2^63 elements",
                      .accepted = "less"});
  price.operations.resize(w.operators().size());
  std::int64_t extra = 0;
  for (std::size_t q = 0; q < f.chain().size(); ++q) {
    const OpId id = f.chain().id(q);
    price.operations[id.index()] = Operations(f.operations(q, p));
    extra = saturating_add(extra, std::max<std::int64_t>(0, price.operations[id.index()].value -
                                                                w.operations(id).value));
  }
  price.recomputed = Operations(extra);
  return price;
}

Legality legality_of(const Flat& f, Mask multi) {
  const auto conflicts = conflicts_of(f.chain(), f.loops(), f.loops_at(multi));
  if (conflicts.empty()) return {};
  const Workload& w = f.workload();
  const Conflict& c = conflicts.front();
  if (!c.inner.valid())
    return {false, "loop " + w.loop(c.output).name + " lies inside the reduction " +
                       w.loop(c.reduction).name + " of " + f.chain().op(c.producer).name +
                       ", which is running: its results so far would be dropped between blocks"};
  return {false, "loop " + w.loop(c.inner).name + ", which only consumers of " +
                     f.chain().op(c.producer).name +
                     " have, lies inside its unfinished reduction " + w.loop(c.reduction).name +
                     " and outside its output loop " + w.loop(c.output).name};
}

}  // namespace detail

namespace {

struct Names {
  std::string_view name;
  int value;
};
constexpr Names kReadings[] = {{"observed", 0}, {"literal", 1}, {"trip-one", 2}};
constexpr Names kEdges[] = {{"full", 0}, {"exact", 1}};
constexpr Names kMemories[] = {{"paper", 0}, {"creq", 1}, {"sum", 2}, {"held", 3}};

template <class E>
std::optional<E> from_name(std::span<const Names> names, std::string_view name) {
  for (const Names& n : names)
    if (n.name == name) return static_cast<E>(n.value);
  return std::nullopt;
}

bool single_letters(const Workload& w) {
  return std::all_of(w.loops().begin(), w.loops().end(),
                     [](const Loop& l) { return l.name.size() == 1; });
}

std::vector<std::string> split(std::string_view text, bool letters) {
  std::vector<std::string> names;
  if (letters) {
    for (char c : text) names.emplace_back(1, c);
    return names;
  }
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    std::string_view name = text.substr(at, comma - at);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    names.emplace_back(name);
    at = comma + 1;
  }
  return names;
}

}  // namespace

std::string_view name_of(Reading r) { return kReadings[static_cast<int>(r)].name; }
std::string_view name_of(Edges e) { return kEdges[static_cast<int>(e)].name; }
std::string_view name_of(Memory m) { return kMemories[static_cast<int>(m)].name; }
std::optional<Reading> reading_from_name(std::string_view name) {
  return from_name<Reading>(kReadings, name);
}
std::optional<Edges> edges_from_name(std::string_view name) {
  return from_name<Edges>(kEdges, name);
}
std::optional<Memory> memory_from_name(std::string_view name) {
  return from_name<Memory>(std::span(kMemories).first(3), name);  // held is for best_plan
}

std::vector<LoopId> order_loops(const Workload& w) {
  const Chain c(w);
  return {c.order_loops().begin(), c.order_loops().end()};
}

Order parse_order(const Workload& w, std::string_view text) {
  const Chain c(w);
  // One loop of a longer name is an order without a comma.
  const bool letters = text.find(',') == std::string_view::npos && !w.find_loop(text);
  Order order;
  if (!text.empty())
    for (const std::string& name : split(text, letters)) {
      const auto loop = w.find_loop(name);
      if (!loop)
        throw InputError({.field = "order",
                          .value = std::string(text),
                          .problem = "has '" + name + "', which is not a loop",
                          .accepted = "a permutation of " + detail::name_list(w, c.order_loops()) +
                                      (single_letters(w) ? "" : ", comma-separated")});
      order.push_back(*loop);
    }
  detail::check_order(c, order);
  return order;
}

std::string to_text(const Workload& w, const Order& order) {
  std::string text;
  const bool letters =
      std::all_of(order.begin(), order.end(), [&](LoopId l) { return w.loop(l).name.size() == 1; });
  for (LoopId l : order) {
    if (!letters && !text.empty()) text += ',';
    text += w.loop(l).name;
  }
  return text;
}

std::vector<Order> all_orders(const Workload& w) {
  Order order = order_loops(w);
  std::int64_t count = 1;
  for (std::size_t i = 2; i <= order.size(); ++i) {
    count *= static_cast<std::int64_t>(i);
    if (count > kMostOrders) return {};
  }
  std::vector<Order> orders;
  do orders.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

Tiles tiles_from(const Workload& w, const std::map<std::string, std::int64_t>& named,
                 std::string_view where) {
  Tiles tiles;
  for (std::size_t l = 0; l < w.loops().size(); ++l)
    tiles.push_back(w.is_batch(LoopId(l)) ? 1 : w.loops()[l].extent);
  std::vector<std::string> known;
  for (const Loop& l : w.loops()) known.push_back(l.name);
  for (const auto& [name, tile] : named) {
    const auto loop = w.find_loop(name);
    if (!loop)
      throw InputError({.where = std::string(where),
                        .field = name,
                        .value = std::to_string(tile),
                        .problem = "is not a loop",
                        .accepted = join(known)});
    if (tile < 1 || tile > w.loop(*loop).extent)
      throw InputError({.where = std::string(where),
                        .field = name,
                        .value = std::to_string(tile),
                        .problem = "is out of range",
                        .accepted = "1 to " + std::to_string(w.loop(*loop).extent)});
    tiles[loop->index()] = tile;
  }
  return tiles;
}

Price price(const Workload& w, const Order& order, const Tiles& tiles, const Options& options) {
  const Flat f(w, order, options);
  detail::check_tiles(f, tiles);
  return detail::price_of(f, f.point(tiles));
}

Legality legality(const Workload& w, const Order& order, const Tiles& tiles) {
  const Flat f(w, order, {});
  if (!tiles.empty()) {
    detail::check_tiles(f, tiles);
    return detail::legality_of(f, f.point(tiles).multi);
  }
  Mask multi = 0;
  for (std::size_t i = 0; i < f.size(); ++i)
    if (f.extent(i) > 1) multi |= bit(i);
  return detail::legality_of(f, multi);
}

struct Pricer::Impl {
  detail::Flat flat;
};

Pricer::Pricer(const Workload& w, Order order, Options options)
    : impl_(new Impl{detail::Flat(w, order, options)}) {}
Pricer::~Pricer() = default;
Pricer::Pricer(Pricer&&) noexcept = default;
Pricer& Pricer::operator=(Pricer&&) noexcept = default;

Pricer::Quick Pricer::quick(std::span<const std::int64_t> tiles) const {
  const Flat& f = impl_->flat;
  const Point p = f.point(tiles);
  std::array<std::int64_t, 32> few;
  std::vector<std::int64_t> many(f.foots().size() > few.size() ? f.foots().size() : 0);
  const std::span<std::int64_t> df = many.empty() ? std::span<std::int64_t>(few) : many;
  f.footprints(p, df);
  Quick q;
  for (const detail::Use& u : f.uses())
    q.volume =
        detail::saturating_add(q.volume, detail::weighted(f.movement(u, p, df), u.weight).value);
  q.memory_paper = f.memory(Memory::paper, p, df);
  q.memory =
      f.options().memory == Memory::paper ? q.memory_paper : f.memory(f.options().memory, p, df);
  return q;
}

Price Pricer::price(const Tiles& tiles) const {
  detail::check_tiles(impl_->flat, tiles);
  return detail::price_of(impl_->flat, impl_->flat.point(tiles));
}

const Workload& Pricer::workload() const { return impl_->flat.workload(); }
const Order& Pricer::order() const { return impl_->flat.order(); }

}  // namespace tilewright::chimera
