// GIR's values and its text.
#include "models/powerfusion/gir.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/base/format.h"
#include "core/workload/bytes_read.h"

namespace tilewright::powerfusion {
namespace {

constexpr std::array<std::string_view, 4> kTiers = {"lane", "warp", "shared", "dram"};
constexpr std::array<std::string_view, 4> kScopes = {"lane", "warp", "block", "device"};
constexpr std::array<std::string_view, 5> kPlaces = {"block", "warp", "lane", "trip", "item"};
constexpr std::array<std::string_view, 6> kKinds = {"move",   "ew",        "bcast",
                                                    "reduce", "transpose", "sync"};

template <class T>
auto name_at(const T& names, auto value) {
  return names[static_cast<std::size_t>(value)];
}

/// Lanes' and items' digits of a slice, by distance.
std::vector<std::pair<std::int64_t, std::int64_t>> spread_of(const Gir& g, const Slice& s) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;  // distance, count
  const UnitMap& units = g.maps[static_cast<std::size_t>(s.units)];
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Digit& d = units[i];
    if (d.count <= 1 || (d.place != Place::lane && d.place != Place::item)) continue;
    std::int64_t distance = 0;
    for (std::size_t dim = 0; dim < s.base.size(); ++dim)
      for (const BaseTerm& t : s.base[dim].terms)
        if (t.digit == static_cast<int>(i))
          distance += t.coefficient * stride_of(g.tensors[static_cast<std::size_t>(s.tensor)], dim);
    if (distance != 0) out.emplace_back(std::abs(distance), d.count);
  }
  std::ranges::sort(out);
  return out;
}

/// A base's terms as coefficient and extent: all digits of a loop as that loop, where they are in
/// it as they make it up.
std::vector<std::pair<std::int64_t, std::int64_t>> loops_of(const Gir& g, const UnitMap& units,
                                                            const Base& b) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  std::set<int> whole;
  for (const BaseTerm& t : b.terms) {
    const Digit& d = units[static_cast<std::size_t>(t.digit)];
    const std::int64_t each = t.coefficient / d.step;
    const auto in_step = [&](std::size_t i) {
      const auto term = std::ranges::find(b.terms, static_cast<int>(i), &BaseTerm::digit);
      return term != b.terms.end() && term->coefficient == each * units[i].step;
    };
    bool all = true;
    for (std::size_t i = 0; i < units.size(); ++i)
      all = all && (units[i].loop != d.loop || in_step(i));
    if (!all)
      out.emplace_back(t.coefficient, d.count);
    else if (whole.insert(d.loop).second)
      out.emplace_back(each, g.loops[static_cast<std::size_t>(d.loop)].extent);
  }
  return out;
}

}  // namespace

std::string_view name_of(Tier t) { return name_at(kTiers, t); }
std::string_view name_of(Scope s) { return name_at(kScopes, s); }
std::string_view name_of(Place p) { return name_at(kPlaces, p); }
std::string_view name_of(GKind k) { return name_at(kKinds, k); }

Tier highest_tier(Scope s) { return static_cast<Tier>(s); }

std::int64_t stride_of(const Tensor& t, std::size_t dimension) {
  std::int64_t n = 1;
  for (std::size_t d = dimension + 1; d < t.shape.size(); ++d) n *= t.shape[d];
  return n;
}

SlicePattern pattern_of(const Gir& g, const Slice& s) {
  SlicePattern p;
  const auto all = spread_of(g, s);
  std::size_t i = 0;
  for (; i < all.size() && all[i].first == p.width; ++i) p.width *= all[i].second;
  if (i < all.size()) {
    p.stride = all[i].first;
    p.num = all[i++].second;
    for (; i < all.size() && all[i].first == p.stride * p.num; ++i) p.num *= all[i].second;
  }
  for (; i < all.size(); ++i) p.times *= all[i].second;
  return p;
}

double elements_of(const Gir& g, const Slice& s) {
  const UnitMap& units = g.maps[static_cast<std::size_t>(s.units)];
  const Tensor& t = g.tensors[static_cast<std::size_t>(s.tensor)];
  double n = 1;
  for (std::size_t dim = 0; dim < s.base.size(); ++dim) {
    const Base& b = s.base[dim];
    double points = 1;
    for (const BaseTerm& term : b.terms)
      points *= static_cast<double>(units[static_cast<std::size_t>(term.digit)].count);
    double read = 0;
    for (const Interval& i : intervals_read(b.offset, loops_of(g, units, b), t.shape[dim]))
      read += static_cast<double>(i.size());
    n *= b.looked_up ? static_cast<double>(t.shape[dim]) : std::min(read, points);
  }
  return n;
}

// ---- Text
// ------------------------------------------------------------------------------------------

namespace {

std::string base_text(const Base& b) {
  if (b.looked_up) return "?";
  std::string out;
  for (const BaseTerm& t : b.terms) {
    if (!out.empty() && t.coefficient >= 0) out += '+';
    out += formatted("{}*d{}", t.coefficient, t.digit);
  }
  if (b.offset != 0 || out.empty()) {
    if (!out.empty() && b.offset >= 0) out += '+';
    out += formatted("{}", b.offset);
  }
  return out;
}

std::string units_text(const Gir& g, const UnitMap& units) {
  std::string out;
  for (const Digit& d : units)
    out += formatted(" {} {}/{}:{}", name_of(d.place),
                     g.loops[static_cast<std::size_t>(d.loop)].name, d.step, d.count);
  return out;
}

std::string slice_text(const Gir& g, const Slice& s) {
  const SlicePattern p = pattern_of(g, s);
  std::string base;
  for (const Base& b : s.base) base += (base.empty() ? "" : ", ") + base_text(b);
  std::string out =
      formatted("{} [{}] ({}, {}, {}, {}", g.tensors[static_cast<std::size_t>(s.tensor)].name, base,
                name_of(s.tier), p.num, p.width, p.stride);
  if (p.times > 1) out += formatted(", {}", p.times);
  return out + formatted(") u{}", s.units);
}

std::string op_text(const GOp& op) {
  std::string out(name_of(op.kind));
  if (!op.name.empty()) out += ' ' + op.name;
  if (op.kind == GKind::sync || op.kind == GKind::reduce)
    out += formatted(" {}", name_of(op.scope));
  for (int s : op.in) out += formatted(" s{}", s);
  return out + formatted(" -> s{}", op.out);
}

}  // namespace

std::string to_text(const Gir& g) {
  std::string out = formatted("gir {} blocks {} warps {}\n", g.name, g.blocks, g.warps);
  for (const Loop& l : g.loops) out += formatted("loop {} {}\n", l.name, l.extent);
  for (std::size_t t = 0; t < g.tensors.size(); ++t) {
    out += formatted("tensor {} {}", g.tensors[t].name, name_of(g.tensors[t].dtype));
    for (std::int64_t n : g.tensors[t].shape) out += formatted(" {}", n);
    if (std::ranges::binary_search(g.leaving, static_cast<int>(t))) out += " out";
    out += '\n';
  }
  for (std::size_t u = 0; u < g.maps.size(); ++u)
    out += formatted("units u{}{}\n", u, units_text(g, g.maps[u]));
  for (std::size_t s = 0; s < g.slices.size(); ++s)
    out += formatted("slice s{} {}\n", s, slice_text(g, g.slices[s]));
  for (const GOp& op : g.ops) out += op_text(op) + '\n';
  return out;
}

nlohmann::ordered_json to_json(const Gir& g) {
  using nlohmann::ordered_json;
  ordered_json out = {{"name", g.name}, {"blocks", g.blocks}, {"warps", g.warps}};
  out["units"] = ordered_json::array();
  for (const UnitMap& units : g.maps) {
    ordered_json digits = ordered_json::array();
    for (const Digit& d : units)
      digits.push_back({{"place", name_of(d.place)},
                        {"loop", g.loops[static_cast<std::size_t>(d.loop)].name},
                        {"step", d.step},
                        {"count", d.count}});
    out["units"].push_back(digits);
  }
  out["slices"] = ordered_json::array();
  for (const Slice& s : g.slices) {
    const SlicePattern p = pattern_of(g, s);
    ordered_json base = ordered_json::array();
    for (const Base& b : s.base) base.push_back(base_text(b));
    out["slices"].push_back({{"tensor", g.tensors[static_cast<std::size_t>(s.tensor)].name},
                             {"tier", name_of(s.tier)},
                             {"base", base},
                             {"num", p.num},
                             {"width", p.width},
                             {"stride", p.stride},
                             {"times", p.times},
                             {"units", s.units}});
  }
  out["gops"] = ordered_json::array();
  for (const GOp& op : g.ops) {
    ordered_json one = {{"kind", name_of(op.kind)}};
    if (!op.name.empty()) one["operator"] = op.name;
    if (op.kind == GKind::sync || op.kind == GKind::reduce) one["scope"] = name_of(op.scope);
    one["in"] = op.in;
    one["out"] = op.out;
    out["gops"].push_back(one);
  }
  return out;
}

}  // namespace tilewright::powerfusion
