// Views of stored tensors: cutting, joining and shifting what indexes them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/workload/import/onnx_builder.h"

namespace tilewright::onnx {
namespace {

constexpr std::int64_t kMostIndices = std::int64_t{1} << 22;  // of a gathered copy

/// The suffix products of extents, without 1 and the whole.
std::vector<std::int64_t> cuts_of_shape(const Shape& extents) {
  std::vector<std::int64_t> cuts;
  std::int64_t n = 1;
  for (std::size_t i = extents.size(); i-- > 1;) {
    n *= extents[i];
    if (n > 1) cuts.push_back(n);
  }
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

bool divide_one_another(const std::vector<std::int64_t>& cuts) {
  for (std::size_t i = 1; i < cuts.size(); ++i)
    if (cuts[i] % cuts[i - 1] != 0) return false;
  return true;
}

std::vector<std::int64_t> merged(std::vector<std::int64_t> a, const std::vector<std::int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::ranges::sort(a);
  a.erase(std::unique(a.begin(), a.end()), a.end());
  return a;
}

}  // namespace

Var Builder::add_var(int axis) {
  vars_.push_back({.axis = axis});
  return static_cast<Var>(vars_.size()) - 1;
}

void Builder::expand(Var v, Vars& to) {
  const auto at = static_cast<std::size_t>(v);
  if (vars_[at].outer < 0) {
    if (axes_.whole(vars_[at].axis)) return to.push_back(v);
    const auto [outer, inner] = axes_.halves(vars_[at].axis);
    const Var o = add_var(outer), i = add_var(inner);
    vars_[at].outer = o;
    vars_[at].inner = i;
  }
  const Var inner = vars_[at].inner;
  expand(vars_[at].outer, to);
  expand(inner, to);
}

Vars Builder::expanded(const Vars& vs) {
  Vars out;
  for (const Var v : vs) expand(v, out);
  return out;
}

void Builder::expand(const Entry& e, std::vector<Entry>& to) {
  if (e.plain >= 0) {
    const std::vector<int> leaves = axes_.leaves(e.axis);
    const Vars vs = expanded({e.plain});
    TW_CHECK(leaves.size() == vs.size(), "a variable that is cut otherwise than its axis");
    for (std::size_t i = 0; i < vs.size(); ++i) to.push_back({.axis = leaves[i], .plain = vs[i]});
    return;
  }
  TW_CHECK(axes_.whole(e.axis), "a cut axis that is read at an affine form");
  Entry out = e;
  out.terms.clear();
  for (const auto& [v, c] : e.terms) {
    const Vars vs = expanded({v});
    std::int64_t times = c;
    std::vector<VarTerm> terms;
    for (std::size_t i = vs.size(); i-- > 0;) {
      terms.insert(terms.begin(), {vs[i], times});
      times *= extent(vs[i]);
    }
    out.terms.insert(out.terms.end(), terms.begin(), terms.end());
  }
  if (e.by >= 0) {
    out.by_index.clear();
    for (const Entry& inner : e.by_index) expand(inner, out.by_index);
  }
  to.push_back(std::move(out));
}

void Builder::normalise(View& view) {
  for (Vars& d : view.dims) d = expanded(d);
  std::vector<Entry> index;
  for (const Entry& e : view.index) expand(e, index);
  view.index = std::move(index);
}

bool Builder::reads_var(const View& view, Var v) const {
  return std::ranges::any_of(view.index, [&](const Entry& e) {
    const auto named = [&](const Entry& of) {
      return of.plain == v ||
             std::ranges::any_of(of.terms, [&](const VarTerm& t) { return t.first == v; });
    };
    return named(e) || std::ranges::any_of(e.by_index, named);
  });
}

void Builder::rename(View& view, Var from, Var to) {
  const auto in = [&](Entry& e) {
    if (e.plain == from) e.plain = to;
    for (VarTerm& t : e.terms)
      if (t.first == from) t.first = to;
  };
  for (Entry& e : view.index) {
    in(e);
    for (Entry& inner : e.by_index) in(inner);
  }
  for (Vars& d : view.dims) std::ranges::replace(d, from, to);
}

/// v becomes an affine form in every entry.
void Builder::substitute(View& view, Var v, const std::vector<VarTerm>& by, std::int64_t offset) {
  for (Entry& e : view.index) {
    TW_CHECK(e.by < 0, "a view that gathers");
    if (e.plain == v) {
      axes_.make_rigid(e.axis);
      e.plain = -1;
      e.terms = by;
      e.offset = offset;
      continue;
    }
    std::vector<VarTerm> terms;
    for (const auto& [of, c] : e.terms) {
      if (of != v) {
        terms.emplace_back(of, c);
        continue;
      }
      for (const auto& [u, d] : by) terms.emplace_back(u, c * d);
      e.offset += c * offset;
    }
    e.terms = std::move(terms);
  }
}

std::vector<std::int64_t> Builder::cuts_of(const Vars& vs) const {
  Shape extents;
  for (const Var v : vs) extents.push_back(extent(v));
  return cuts_of_shape(extents);
}

/// Cuts a dimension's variables there; cuts divide one another.
bool Builder::refine(View& view, std::size_t dim, const std::vector<std::int64_t>& cuts) {
  for (bool again = true; again;) {
    again = false;
    normalise(view);
    std::int64_t low = 1;
    Vars& vs = view.dims[dim];
    for (std::size_t i = vs.size(); i-- > 0 && !again;) {
      const Var v = vs[i];
      const std::int64_t high = low * extent(v);
      for (const std::int64_t c : cuts) {
        if (c <= low || c >= high) continue;
        if (c % low != 0 || high % c != 0) return false;
        const int axis = vars_[static_cast<std::size_t>(v)].axis;
        if (!has_room(axis)) axes_.make_rigid(axis);
        if (!axes_.split(axis, c / low)) {
          const Var outer = var(high / c), inner = var(c / low);
          substitute(view, v, {{outer, c / low}, {inner, 1}}, 0);
          vs.erase(vs.begin() + static_cast<std::ptrdiff_t>(i));
          vs.insert(vs.begin() + static_cast<std::ptrdiff_t>(i), {outer, inner});
        }
        again = true;
        break;
      }
      low = high;
    }
  }
  return true;
}

bool Builder::unify(View& a, std::size_t da, View& b, std::size_t db) {
  // A cut of one may cut the other, where they have axes in common.
  for (int turn = 0; turn < 64; ++turn) {
    normalise(a);
    normalise(b);
    const auto cuts = merged(cuts_of(a.dims[da]), cuts_of(b.dims[db]));
    if (!divide_one_another(cuts) || !refine(a, da, cuts) || !refine(b, db, cuts)) return false;
    normalise(a);
    normalise(b);
    if (a.dims[da].size() != b.dims[db].size()) continue;
    bool alike = true;
    for (std::size_t i = 0; i < a.dims[da].size(); ++i) {
      const int x = vars_[static_cast<std::size_t>(a.dims[da][i])].axis;
      const int y = vars_[static_cast<std::size_t>(b.dims[db][i])].axis;
      if (!axes_.whole(x) || !axes_.whole(y) || axes_.extent(x) != axes_.extent(y)) {
        alike = false;
        break;
      }
      axes_.unify(x, y);
    }
    if (!alike) continue;
    const Vars from = b.dims[db], to = a.dims[da];
    for (std::size_t i = 0; i < from.size(); ++i) rename(b, from[i], to[i]);
    return true;
  }
  return false;
}

void Builder::demand_unified(View& a, std::size_t da, View& b, std::size_t db) {
  if (!unify(a, da, b, db))
    throw CutTooOften{{"dimensions are cut at places that do not divide one another"}};
}

bool Builder::regroup(View& view, const Shape& to) {
  if (elements_of(to) == 0) throw Unsupported{"an input without elements"};
  const auto cuts = cuts_of_shape(to);
  normalise(view);
  Vars all;
  for (const Vars& d : view.dims) all.insert(all.end(), d.begin(), d.end());
  // Cuts between variables need nothing; those within one are made.
  const std::vector<Vars> before = view.dims;
  view.dims = {all};
  bool done = divide_one_another(merged(cuts_of(all), cuts));
  if (!done) {
    // Only the cuts within one variable matter.
    done = true;
    std::int64_t low = 1;
    for (std::size_t i = all.size(); i-- > 0;) {
      const std::int64_t high = low * extent(all[i]);
      for (const std::int64_t c : cuts)
        if (c > low && c < high && (c % low != 0 || high % c != 0)) done = false;
      low = high;
    }
  }
  if (!done || !refine(view, 0, cuts)) {
    view.dims = before;
    return false;
  }
  all = view.dims.front();
  view.dims.assign(to.size(), {});
  std::size_t next = all.size();
  for (std::size_t d = to.size(); d-- > 0;) {
    std::int64_t n = 1;
    // A dimension of one element may have a variable, too (plain's kept).
    while (next > 0 && (n < to[d] || (to[d] == 1 && n == 1 && extent(all[next - 1]) == 1))) {
      const Var v = all[--next];
      view.dims[d].insert(view.dims[d].begin(), v);
      n *= extent(v);
      if (to[d] == 1) break;
    }
    TW_CHECK(n == to[d], "variables that are not the dimension's");
  }
  return true;
}

bool Builder::window(View& view, std::size_t dim, std::vector<VarTerm> terms, std::int64_t offset,
                     bool outside) {
  normalise(view);
  if (view.dims[dim].size() != 1) return false;
  const Var v = view.dims[dim].front();
  const std::int64_t whole = extent(v);
  int entries = 0;
  bool covers = true;
  for (const Entry& e : view.index) {
    if (e.plain == v) ++entries;
    for (const auto& [u, c] : e.terms) {
      if (u != v) continue;
      ++entries;
      covers = covers && e.terms.size() == 1 && axes_.extent(e.axis) == whole &&
               ((c == 1 && e.offset == 0) || (c == -1 && e.offset == whole - 1));
    }
  }
  if (outside && (entries != 1 || !covers)) return false;
  substitute(view, v, terms, offset);
  view.dims[dim].clear();
  return true;
}

Value Builder::transposed(const Value& v, const std::vector<std::int64_t>& order) {
  Value out = v;
  out.literal.reset();
  View from = v.uniform ? View{} : read(v);
  if (!v.uniform) out.view = from;
  for (std::size_t d = 0; d < order.size(); ++d) {
    const auto at = static_cast<std::size_t>(order[d]);
    out.shape[d] = v.shape[at];
    if (out.view) out.view->dims[d] = from.dims[at];
  }
  return out;
}

Value Builder::reshaped(const std::string& name, const Value& v, const Shape& to) {
  if (elements_of(to) != elements_of(v.shape)) throw Unsupported{"a shape of another size"};
  Value out = v;
  out.shape = to;
  if (v.uniform) return out;
  if (v.literal) {  // the same values in another shape
    auto l = std::make_shared<Literal>(*v.literal);
    l->shape = to;
    out.literal = l;
    out.view.reset();
    return out;
  }
  View view = read(v);
  if (!regroup(view, to)) return gather_copy(name, v, to);
  out.view = std::move(view);
  return out;
}

Value Builder::expanded(const Value& v, const Shape& to) {
  Value out = v;
  out.shape = to;
  if (v.uniform) return out;
  View view = read(v);
  out.literal.reset();
  const std::size_t more = to.size() - v.shape.size();
  view.dims.insert(view.dims.begin(), more, Vars{});
  for (std::size_t d = 0; d < to.size(); ++d)
    if (to[d] != 1 && (d < more || v.shape[d - more] == 1)) view.dims[d] = vars(to[d]);
  out.view = std::move(view);
  return out;
}

Value Builder::sliced(const std::string& name, const Value& v, std::size_t dim, std::int64_t start,
                      std::int64_t step, std::int64_t count) {
  Value out = v;
  out.shape[dim] = count;
  if (v.uniform || (start == 0 && step == 1 && count == v.shape[dim])) return out;
  out.literal.reset();
  View view = read(v);
  normalise(view);
  if (view.dims[dim].size() > 1) {
    // Whole parts of the outermost variable.
    const Var outer = view.dims[dim].front();
    const std::int64_t inner = v.shape[dim] / extent(outer);
    if (step != 1 || start % inner != 0 || count % inner != 0)
      return sliced(name, plain(name + "_whole", v), dim, start, step, count);
    const Vars by = vars(count / inner);
    substitute(view, outer, by.empty() ? std::vector<VarTerm>{} : std::vector<VarTerm>{{by[0], 1}},
               start / inner);
    view.dims[dim].erase(view.dims[dim].begin());
    view.dims[dim].insert(view.dims[dim].begin(), by.begin(), by.end());
  } else if (!view.dims[dim].empty()) {
    const Vars by = vars(count);
    substitute(view, view.dims[dim].front(),
               by.empty() ? std::vector<VarTerm>{} : std::vector<VarTerm>{{by[0], step}}, start);
    view.dims[dim] = by;
  }
  out.view = std::move(view);
  return out;
}

Value Builder::taken(const std::string& name, const Value& v, std::size_t dim,
                     const std::vector<std::int64_t>& indices) {
  const auto count = static_cast<std::int64_t>(indices.size());
  const std::int64_t step = count > 1 ? indices[1] - indices[0] : 1;
  bool even = step != 0;
  for (std::size_t i = 1; i < indices.size(); ++i)
    even = even && indices[i] - indices[i - 1] == step;
  if (even && !indices.empty()) return sliced(name, v, dim, indices.front(), step, count);
  Value out = v;
  out.shape[dim] = count;
  if (v.uniform) return out;
  if (v.shape[dim] == 1) {  // the same again and again
    Shape to = v.shape;
    to[dim] = count;
    return expanded(v, to);
  }
  std::vector<double> list(indices.begin(), indices.end());
  return gathered(name, v, dim, known(kInt32, {count}, std::move(list)));
}

Value Builder::gathered(const std::string& name, const Value& v, std::size_t dim,
                        const Value& indices) {
  if (indices.uniform) {
    Value one = sliced(name, v, dim, static_cast<std::int64_t>(*indices.uniform), 1, 1);
    Shape to = one.shape, wide;
    const auto place = to.erase(to.begin() + static_cast<std::ptrdiff_t>(dim));
    const std::ptrdiff_t at = place - to.begin();
    wide = to;
    to.insert(to.begin() + at, indices.shape.size(), 1);
    wide.insert(wide.begin() + at, indices.shape.begin(), indices.shape.end());
    return expanded(reshaped(name, one, to), wide);
  }
  View view = read(v);
  View by = read(indices);
  normalise(by);
  if (!index_by(view, dim, by))
    return gathered(name, plain(name + "_whole", v, {dim}), dim, indices);
  Shape shape(v.shape.begin(), v.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  std::vector<Vars> dims(view.dims.begin(), view.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  dims.insert(dims.end(), by.dims.begin(), by.dims.end());
  shape.insert(shape.end(), v.shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, v.shape.end());
  dims.insert(dims.end(), view.dims.begin() + static_cast<std::ptrdiff_t>(dim) + 1,
              view.dims.end());
  Expr value{.kind = Expr::Kind::input, .input = 0};
  return emit(name, v.type, shape, dims, {view}, value, Combine::assign);
}

bool Builder::index_by(View& view, std::size_t dim, View by) {
  normalise(view);
  if (view.dims[dim].size() != 1) return false;
  const Var old = view.dims[dim].front();
  const auto indexed = [&](const Entry& e) { return e.plain == old; };
  if (std::ranges::count_if(view.index, indexed) != 1) return false;
  normalise(by);
  tensors_[static_cast<std::size_t>(by.tensor)].indexes = true;
  Entry& e = *std::ranges::find_if(view.index, indexed);
  axes_.make_rigid(e.axis);
  e.plain = -1;
  e.by = by.tensor;
  e.by_index = by.index;
  view.dims[dim].clear();
  return true;
}

Value Builder::copied(const std::string& name, const Value& v) {
  std::vector<View> reads;
  View view;
  Expr value = operand(v, reads, &view);
  std::vector<Vars> dims = view.dims;
  if (view.tensor < 0)
    for (const std::int64_t n : v.shape) dims.push_back(vars(n));
  if (stored_rank(dims) > static_cast<std::size_t>(kMaxRank)) return plain(name, v);
  Value out = emit(name, v.type, v.shape, dims, reads, value, Combine::assign);
  out.nonnegative = v.nonnegative;
  return out;
}

Value Builder::plain(const std::string& name, const Value& v, const std::set<std::size_t>& kept) {
  return gather_copy(name, v, v.shape, kept);
}

std::optional<Value> Builder::whole(const std::string& name, const Value& v) {
  if (!v.view || v.known()) return std::nullopt;
  View view = read(v);
  normalise(view);
  if (std::ranges::all_of(view.dims, [](const Vars& d) { return d.size() <= 1; }))
    return std::nullopt;
  return plain(name + "_whole", v);
}

Value Builder::gather_copy(const std::string& name, const Value& v, const Shape& to,
                           const std::set<std::size_t>& kept) {
  View view = read(v);
  normalise(view);
  // Groups of dimensions, before and after, whose products are the same.
  struct Group {
    std::vector<std::size_t> from, to;
  };
  std::vector<Group> groups;
  for (std::size_t f = 0, t = 0; f < v.shape.size() || t < to.size();) {
    Group g;
    std::int64_t a = 1, b = 1;
    do {
      const bool even = a == b && !g.from.empty();
      if (f < v.shape.size() && ((a <= b && !even) || t == to.size()))
        a *= v.shape[f], g.from.push_back(f++);
      else if (t < to.size())
        b *= to[t], g.to.push_back(t++);
    } while ((a != b || g.from.empty() || g.to.empty()) && (f < v.shape.size() || t < to.size()));
    groups.push_back(std::move(g));
  }
  std::vector<Vars> dims(to.size());
  // What each old variable is of the new ones: the variable itself, or values of a group's.
  struct Made {
    std::vector<std::size_t> over;  // new dimensions
    std::int64_t divisor = 1, modulus = 1;
  };
  std::map<Var, Made> made;
  for (const Group& g : groups) {
    const bool same =
        g.from.size() == 1 && g.to.size() == 1 && view.dims[g.from.front()].size() <= 1;
    if (same) {
      const std::size_t t = g.to.front();
      dims[t] = view.dims[g.from.front()];
      if (dims[t].empty() && kept.contains(t)) dims[t] = {var(1)};
      continue;
    }
    for (const std::size_t t : g.to) {
      dims[t] = kept.contains(t) ? Vars{var(to[t])} : vars(to[t]);
      for (const Var u : dims[t]) axes_.make_rigid(vars_[static_cast<std::size_t>(u)].axis);
    }
    std::int64_t below = 1;
    for (std::size_t i = g.from.size(); i-- > 0;) {
      const Vars& vs = view.dims[g.from[i]];
      for (std::size_t j = vs.size(); j-- > 0;) {
        made[vs[j]] = {g.to, below, extent(vs[j])};
        below *= extent(vs[j]);
      }
    }
  }
  for (Entry& e : view.index) {
    std::vector<VarTerm> terms = e.terms;
    if (e.plain >= 0) terms = {{e.plain, 1}};
    if (std::ranges::none_of(terms, [&](const VarTerm& t) { return made.contains(t.first); }))
      continue;
    // A constant tensor over the new dimensions, and old variables that stay.
    Shape shape;
    std::vector<Entry> index;
    std::map<std::size_t, std::size_t> place;  // new dimension: position
    std::map<Var, std::size_t> kept_place;
    for (const auto& [u, c] : terms) {
      const auto it = made.find(u);
      if (it == made.end()) {
        kept_place.emplace(u, shape.size());
        shape.push_back(extent(u));
        continue;
      }
      for (const std::size_t t : it->second.over)
        if (!dims[t].empty() && place.emplace(t, shape.size()).second) shape.push_back(to[t]);
    }
    const std::int64_t count = elements_of(shape);
    if (count < 0 || count > kMostIndices)
      throw Unsupported{"a reshape whose cuts do not divide one another, of " +
                        std::to_string(count) + " indices"};
    std::vector<double> list(static_cast<std::size_t>(count));
    std::vector<std::int64_t> at(shape.size(), 0);
    for (double& value : list) {
      std::int64_t sum = e.plain >= 0 ? 0 : e.offset;
      for (const auto& [u, c] : terms) {
        const auto it = made.find(u);
        if (it == made.end()) {
          sum += c * at[kept_place.at(u)];
          continue;
        }
        std::int64_t flat = 0;
        for (const std::size_t t : it->second.over) {
          flat *= to[t];
          if (place.contains(t)) flat += at[place.at(t)];
        }
        sum += c * (flat / it->second.divisor % it->second.modulus);
      }
      value = static_cast<double>(sum);
      for (std::size_t d = at.size(); d-- > 0;) {
        if (++at[d] < shape[d]) break;
        at[d] = 0;
      }
    }
    const auto literal = std::make_shared<Literal>(kInt32, shape, std::move(list));
    const int tensor = constant_tensor(literal);
    tensors_[static_cast<std::size_t>(tensor)].indexes = true;
    std::vector<Entry> by(tensors_[static_cast<std::size_t>(tensor)].dims.size());
    // Its stored dimensions are those of more than one element.
    std::size_t stored = 0;
    std::vector<Var> of(shape.size(), -1);
    for (const auto& [t, p] : place) of[p] = dims[t].front();
    for (const auto& [u, p] : kept_place) of[p] = u;
    for (std::size_t p = 0; p < shape.size(); ++p) {
      if (shape[p] == 1) continue;
      const int axis = tensors_[static_cast<std::size_t>(tensor)].dims[stored];
      axes_.unify(axis, vars_[static_cast<std::size_t>(of[p])].axis);
      by[stored++] = {.axis = axis, .plain = of[p]};
    }
    axes_.make_rigid(e.axis);
    e = {.axis = e.axis, .by = tensor, .by_index = std::move(by)};
  }
  view.dims = dims;
  Expr value{.kind = Expr::Kind::input, .input = 0};
  Value out = emit(name, v.type, to, dims, {view}, value, Combine::assign);
  out.nonnegative = v.nonnegative;
  return out;
}

}  // namespace tilewright::onnx
