#include "models/powerfusion/scope.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace tilewright::powerfusion {
namespace {

constexpr std::int64_t kMostCombinations = 1 << 17;

/// A slice's digits of one place, with the weight of each in the unit's number.
struct Position {
  std::vector<std::pair<int, std::int64_t>> digits;  ///< index in the unit map, weight
  std::int64_t count = 1;
};
Position position_of(const UnitMap& units, Place place) {
  Position p;
  for (std::size_t i = units.size(); i-- > 0;) {
    if (units[i].place != place) continue;
    p.digits.emplace_back(static_cast<int>(i), p.count);
    p.count *= units[i].count;
  }
  return p;
}

std::int64_t units_at(const Gir& g, Place place) {
  return place == Place::block ? g.blocks : place == Place::warp ? g.warps : kLanes;
}

/// The dimension whose base has the digit; -1: none.
int dimension_with(const Slice& s, int digit) {
  for (std::size_t d = 0; d < s.base.size(); ++d)
    for (const BaseTerm& t : s.base[d].terms)
      if (t.digit == digit) return static_cast<int>(d);
  return -1;
}

/// Compares who has what is written with who reads it.
class Checker {
 public:
  Checker(const Gir& g, const Slice& w, const Slice& r)
      : g_(g), w_(w), r_(r), wu_(units(w)), ru_(units(r)) {}

  /// Whether every element that a unit reads is with the unit of that number, at this place.
  bool same(Place place) const {
    const Position writer = position_of(wu_, place), reader = position_of(ru_, place);
    const std::int64_t readers = reader.digits.empty() ? units_at(g_, place) : reader.count;
    bool any = false;
    for (const auto& [digit, weight] : writer.digits) {
      const std::int64_t count = wu_[static_cast<std::size_t>(digit)].count;
      if (count <= 1) continue;
      any = true;
      if (readers > writer.count) return false;  // some have nothing
      const int d = dimension_with(w_, digit);
      if (d < 0) continue;  // a sum's: all have the result
      // Where all of a place read, each element is read by more than the one that has it.
      if (reader.digits.empty()) return false;
      if (!by_structure(static_cast<std::size_t>(d), digit, weight, count, reader) &&
          !by_enumeration(static_cast<std::size_t>(d), digit, weight, count, reader))
        return false;
    }
    // Units beside those that compute it have nothing either.
    return any || writer.digits.empty() || readers <= std::max<std::int64_t>(1, writer.count) ||
           writer.count == 1;
  }

  /// Whether the writer has all that the reader reads along the dimension.
  bool covers(std::size_t dim) const {
    if (is_whole(dim) || (same_terms(dim) && w_.base[dim].offset == r_.base[dim].offset))
      return true;
    return every_coordinate(dim, {}, [&](std::int64_t coordinate, const auto&) {
      return digits_at(dim, coordinate).has_value();
    });
  }

 private:
  const UnitMap& units(const Slice& s) const { return g_.maps[static_cast<std::size_t>(s.units)]; }

  /// Both index the dimension by digits of the same steps, and this one has the same weight.
  bool by_structure(std::size_t dim, int digit, std::int64_t weight, std::int64_t count,
                    const Position& reader) const {
    const Base &a = w_.base[dim], &b = r_.base[dim];
    if (a.offset != b.offset || a.terms.size() != b.terms.size()) return false;
    int match = -1;
    for (const BaseTerm& t : a.terms) {
      const auto same = std::ranges::find_if(b.terms, [&](const BaseTerm& u) {
        return u.coefficient == t.coefficient && ru_[static_cast<std::size_t>(u.digit)].count ==
                                                     wu_[static_cast<std::size_t>(t.digit)].count;
      });
      if (same == b.terms.end()) return false;
      if (t.digit == digit) match = same->digit;
    }
    return std::ranges::any_of(reader.digits, [&](const auto& at) {
      return at.first == match && at.second == weight &&
             ru_[static_cast<std::size_t>(match)].count == count;
    });
  }

  /// The writer's digits at a coordinate, by index in its unit map; none: the element is none of
  /// its.
  std::optional<std::map<int, std::int64_t>> digits_at(std::size_t dim,
                                                       std::int64_t coordinate) const {
    std::vector<BaseTerm> terms = w_.base[dim].terms;
    std::ranges::sort(terms, std::ranges::greater{}, &BaseTerm::coefficient);
    std::int64_t rest = coordinate - w_.base[dim].offset;
    std::map<int, std::int64_t> out, loops;
    for (const BaseTerm& t : terms) {
      if (t.coefficient <= 0 || rest < 0) return {};
      const Digit& d = wu_[static_cast<std::size_t>(t.digit)];
      const std::int64_t value = std::min(rest / t.coefficient, d.count - 1);
      out[t.digit] = value;
      loops[d.loop] += value * d.step;
      rest -= value * t.coefficient;
    }
    for (const auto& [loop, value] : loops)
      if (value >= g_.loops[static_cast<std::size_t>(loop)].extent) return {};
    if (rest != 0) return {};
    return out;
  }

  /// Whether the writer has every element of the dimension.
  bool is_whole(std::size_t dim) const {
    const Base& b = w_.base[dim];
    const std::int64_t size = g_.tensors[static_cast<std::size_t>(w_.tensor)].shape[dim];
    if (b.offset > 0 || (b.terms.empty() && size > 1 + b.offset)) return false;
    if (b.terms.empty()) return true;
    const int loop = wu_[static_cast<std::size_t>(b.terms.front().digit)].loop;
    std::int64_t reach = 1;
    for (std::size_t i = wu_.size(); i-- > 0;) {
      const Digit& d = wu_[i];
      const auto term = std::ranges::find(b.terms, static_cast<int>(i), &BaseTerm::digit);
      if (term == b.terms.end()) {
        if (d.loop == loop && d.count > 1) return false;
        continue;
      }
      if (d.loop != loop || term->coefficient != d.step || d.step > reach) return false;
      reach += d.step * (d.count - 1);
    }
    return std::min(reach, g_.loops[static_cast<std::size_t>(loop)].extent) + b.offset >= size;
  }

  /// Terms of both have the same coefficients, counts and loops' extents.
  bool same_terms(std::size_t dim) const {
    const auto& a = w_.base[dim].terms;
    const auto& b = r_.base[dim].terms;
    if (a.size() != b.size()) return false;
    return std::ranges::equal(a, b, [&](const BaseTerm& t, const BaseTerm& u) {
      const Digit &x = wu_[static_cast<std::size_t>(t.digit)],
                  &y = ru_[static_cast<std::size_t>(u.digit)];
      return t.coefficient == u.coefficient && x.count == y.count && x.step == y.step &&
             g_.loops[static_cast<std::size_t>(x.loop)].extent ==
                 g_.loops[static_cast<std::size_t>(y.loop)].extent;
    });
  }

  /// Whether f(coordinate, digits) holds for all that the reader reads along the dimension, other
  /// digits among `more` taking every value. False where those are too many to try.
  template <class F>
  bool every_coordinate(std::size_t dim, const std::set<int>& more, F&& f) const {
    std::set<int> involved = more;
    for (const BaseTerm& t : r_.base[dim].terms) involved.insert(t.digit);
    std::int64_t combinations = 1;
    for (int d : involved) {
      combinations *= ru_[static_cast<std::size_t>(d)].count;
      if (combinations > kMostCombinations) return false;
    }
    const std::int64_t size = g_.tensors[static_cast<std::size_t>(r_.tensor)].shape[dim];
    std::vector<std::int64_t> at(ru_.size(), 0);
    for (std::int64_t n = 0; n < combinations; ++n) {
      std::int64_t rest = n;
      for (int d : involved) {
        at[static_cast<std::size_t>(d)] = rest % ru_[static_cast<std::size_t>(d)].count;
        rest /= ru_[static_cast<std::size_t>(d)].count;
      }
      if (!exists(at)) continue;
      std::int64_t coordinate = r_.base[dim].offset;
      for (const BaseTerm& t : r_.base[dim].terms)
        coordinate += t.coefficient * at[static_cast<std::size_t>(t.digit)];
      if (coordinate >= 0 && coordinate < size && !f(coordinate, at)) return false;
    }
    return true;
  }

  bool by_enumeration(std::size_t dim, int digit, std::int64_t weight, std::int64_t count,
                      const Position& reader) const {
    std::set<int> placed;
    for (const auto& [d, w] : reader.digits) placed.insert(d);
    return every_coordinate(dim, placed, [&](std::int64_t coordinate, const auto& at) {
      std::int64_t position = 0;
      for (const auto& [d, w] : reader.digits) position += w * at[static_cast<std::size_t>(d)];
      const auto digits = digits_at(dim, coordinate);
      return digits && position / weight % count == digits->at(digit);
    });
  }

  /// Whether the iteration exists; digits that are not set count 0.
  bool exists(const std::vector<std::int64_t>& at) const {
    std::map<int, std::int64_t> below;  // by loop: what its inner digits come to
    for (std::size_t i = ru_.size(); i-- > 0;) {
      std::int64_t& value = below[ru_[i].loop];
      if (value >= ru_[i].step) return false;
      value += ru_[i].step * at[i];
    }
    return std::ranges::all_of(below, [&](const auto& l) {
      return l.second < g_.loops[static_cast<std::size_t>(l.first)].extent;
    });
  }

  const Gir& g_;
  const Slice &w_, &r_;
  const UnitMap &wu_, &ru_;
};

}  // namespace

Scope scope_between(const Gir& g, const Slice& written, const Slice& read) {
  for (const Slice* s : {&written, &read})
    if (std::ranges::any_of(s->base, &Base::looked_up)) return Scope::device;
  const Checker check(g, written, read);
  for (std::size_t d = 0; d < written.base.size(); ++d)
    if (!check.covers(d)) return Scope::device;
  if (!check.same(Place::block)) return Scope::device;
  if (!check.same(Place::warp)) return Scope::block;
  return check.same(Place::lane) ? Scope::lane : Scope::warp;
}

Scope scope_between(const Gir& g, const Slice& written, const Slice& read, ScopeTest test) {
  if (test == ScopeTest::printed && pattern_of(g, written) == pattern_of(g, read))
    return Scope::lane;
  return scope_between(g, written, read);
}

bool same_content(const Gir& g, const Slice& a, const Slice& b) {
  if (a.tensor != b.tensor || a.base.size() != b.base.size()) return false;
  const UnitMap &u = g.maps[static_cast<std::size_t>(a.units)],
                &v = g.maps[static_cast<std::size_t>(b.units)];
  // Digits that index the slice, and where all of a place have the same, the others do not matter.
  const auto shown = [&](const UnitMap& units, const Slice& s) {
    std::vector<std::tuple<Place, std::int64_t, std::int64_t, std::int64_t, std::size_t>> out;
    for (Place place : {Place::block, Place::warp, Place::lane}) {
      const Position p = position_of(units, place);
      for (const auto& [digit, weight] : p.digits) {
        const std::int64_t count = units[static_cast<std::size_t>(digit)].count;
        if (count <= 1) continue;
        const int d = dimension_with(s, digit);
        out.emplace_back(place, weight, count, 0,
                         d < 0 ? s.base.size() : static_cast<std::size_t>(d));
      }
    }
    for (std::size_t d = 0; d < s.base.size(); ++d)
      for (const BaseTerm& t : s.base[d].terms)
        if (units[static_cast<std::size_t>(t.digit)].count > 1)
          out.emplace_back(units[static_cast<std::size_t>(t.digit)].place, t.coefficient,
                           units[static_cast<std::size_t>(t.digit)].count, 1, d);
    std::ranges::sort(out);
    return out;
  };
  for (std::size_t d = 0; d < a.base.size(); ++d)
    if (a.base[d].offset != b.base[d].offset || a.base[d].looked_up || b.base[d].looked_up)
      return false;
  return shown(u, a) == shown(v, b);
}

}  // namespace tilewright::powerfusion
