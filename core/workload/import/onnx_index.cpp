// Elements by index: GatherElements, GatherND, ScatterElements, ScatterND, OneHot. Known indices
// are constant tensors. What computed ones write is found by comparing each place with each index.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

constexpr std::int64_t kMostPlaces = std::int64_t{1} << 22;   // of a constant index tensor
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 24;  // whole ones that f32 holds

std::vector<double> numbers(const std::vector<std::int64_t>& list) {
  return {list.begin(), list.end()};
}

/// Known indices counted from 0 on. Unsupported outside of [-size, size).
std::vector<std::int64_t> from_zero(std::vector<std::int64_t> which, std::int64_t size) {
  for (std::int64_t& w : which) {
    if (w < 0) w += size;
    if (w < 0 || w >= size) throw Unsupported{"an index outside of its tensor"};
  }
  return which;
}

/// Computed ones counted from 0 on.
Expr from_zero(const Expr& index, std::int64_t size) {
  return select(lt(index, number(0)), add(index, number(static_cast<double>(size))), index);
}
Value from_zero(Builder& b, const std::string& name, const Value& v, std::int64_t size) {
  return b.map(name, v.type, {v}, [&](const Args& a) { return from_zero(a[0], size); });
}

void demand_whole_numbers(const Value& indices) {
  if (!is_integer(indices.type)) throw Unsupported{"indices that are not whole numbers"};
}

/// Elements of x at `indices` along an axis; the other dimensions are those of the indices.
Value elements_at(Builder& b, const std::string& name, const Value& x, std::size_t axis,
                  const Value& indices) {
  Value from = x, by = indices;
  for (std::size_t d = 0; d < x.shape.size(); ++d) {
    if (d == axis) continue;
    if (by.shape[d] > x.shape[d]) throw Unsupported{"an index outside of its tensor"};
    if (by.shape[d] < x.shape[d]) from = b.sliced(name + "_part", from, d, 0, 1, by.shape[d]);
  }
  if (from.shape[axis] == 1) return b.expanded(from, by.shape);
  if (from.uniform) return Builder::uniform(x.type, by.shape, *from.uniform);
  if (by.uniform) {
    const auto at = static_cast<std::int64_t>(*by.uniform);
    const Value one = b.sliced(name, from, axis, from_zero({at}, from.shape[axis]).front(), 1, 1);
    return b.expanded(one, by.shape);
  }
  if (by.known()) {
    std::vector<std::int64_t> list;
    for (const double v : values_of(by)) list.push_back(static_cast<std::int64_t>(v));
    by = Builder::known(kInt32, by.shape, numbers(from_zero(list, from.shape[axis])));
  }
  if (!by.known()) by = from_zero(b, name + "_indices", by, from.shape[axis]);
  for (int turn = 0; turn < 2; ++turn) {
    View vx = b.read(from), vi = b.read(by);
    bool done = true;
    for (int again = 0; again < 2; ++again)  // later cuts are the first dimensions', too
      for (std::size_t d = 0; d < by.shape.size(); ++d)
        if (d != axis && by.shape[d] != 1 && vx.dims[d] != vi.dims[d])
          done = done && b.unify(vi, d, vx, d);
    b.normalise(vi);
    if (!done || !b.index_by(vx, axis, vi)) {
      from = b.plain(name + "_whole", from, {axis});
      by = by.view ? b.plain(name + "_indices", by) : by;
      continue;
    }
    const std::vector<Vars> dims = vi.dims;
    return b.emit(name, x.type, by.shape, dims, {vx}, {.kind = Expr::Kind::input, .input = 0},
                  Combine::assign);
  }
  throw Unsupported{"indices whose cuts do not fit its tensor's"};
}

void say_gather_elements(NodeReader& n) {
  const Value &x = n.at(0), &indices = n.at(1);
  demand_whole_numbers(indices);
  if (x.shape.size() != indices.shape.size()) throw Unsupported{"its inputs have different ranks"};
  const std::size_t axis = NodeReader::axis(n.integer("axis", 0), n.rank());
  n.out[0] = elements_at(n.b, n.name, x, axis, indices);
}

/// x[batches..., at..., rest...] for each row of the indices' last dimension.
void say_gather_nd(NodeReader& n) {
  Builder& b = n.b;
  const Value &x = n.at(0), &indices = n.at(1);
  demand_whole_numbers(indices);
  const auto batches =
      static_cast<std::size_t>(std::max<std::int64_t>(0, n.integer("batch_dims", 0)));
  if (indices.shape.empty() || batches >= indices.shape.size())
    throw Unsupported{"indices of another rank"};
  const std::size_t last = indices.shape.size() - 1;
  const auto deep = static_cast<std::size_t>(indices.shape[last]);
  if (deep < 1 || batches + deep > x.shape.size()) throw Unsupported{"indices of another rank"};
  for (std::size_t d = 0; d < batches; ++d)
    if (indices.shape[d] != x.shape[d]) throw Unsupported{"batches that differ"};
  // One tensor of indices a dimension, from 0 on where they are known.
  std::vector<Value> along;
  for (std::size_t k = 0; k < deep; ++k) {
    if (indices.known()) {
      const auto all = n.known_integers(1);
      std::vector<std::int64_t> list;
      for (std::size_t i = k; i < all.size(); i += deep) list.push_back(all[i]);
      along.push_back(Builder::known(kInt32, {indices.shape.begin(), indices.shape.end() - 1},
                                     numbers(from_zero(list, x.shape[batches + k]))));
      // Kept as a tensor, as others are.
      along.back().uniform.reset();
    } else {
      const Value at = squeezed(
          b, b.sliced(n.name + "_at", indices, last, static_cast<std::int64_t>(k), 1, 1), last);
      along.push_back(from_zero(b, n.name + "_indices", at, x.shape[batches + k]));
    }
  }
  n.out[0] = read_at(b, n.name, x, batches, batches, std::move(along));
}

// ---- Writing
// --------------------------------------------------------------------------------------

struct Way {
  std::string name;  ///< none, add, mul, max, min
  Combine combine() const {
    return name == "mul"   ? Combine::product
           : name == "max" ? Combine::max
           : name == "min" ? Combine::min
                           : Combine::sum;
  }
  double nothing() const { return identity_of(combine()); }
  Expr with(Expr before, Expr update) const {
    const char* f = name == "mul" ? "mul" : name == "max" ? "max" : name == "min" ? "min" : "add";
    return call(f, {std::move(before), std::move(update)});
  }
};

Way way_of(const NodeReader& n) {
  const Way way{n.text("reduction", "none")};
  for (const char* known : {"none", "add", "mul", "max", "min"})
    if (way.name == known) return way;
  throw Unsupported{"a reduction " + way.name};
}

/// The data with what is written into it. `at_each(name, last)`: an operator that combines the
/// updates of each element, or gives the number of the last one, from 1 on; 0: there is none.
/// `taken(from)`: the update of each element by its number from 0 on.
template <class AtEach, class Taken>
Value written_into(Builder& b, const std::string& name, const Value& data, const Value& updates,
                   const Way& way, const AtEach& at_each, const Taken& taken) {
  if (way.name != "none") {
    const Value all = at_each(name + "_written", false);
    return b.map(name, data.type, {data, all}, [&](const Args& a) { return way.with(a[0], a[1]); });
  }
  // Several updates of one element: the last one stays, as in onnxruntime and PyTorch.
  const Value last = at_each(name + "_last", true);
  Value update = Builder::uniform(data.type, data.shape, updates.uniform.value_or(0));
  if (!updates.uniform)
    update = taken(b.map(name + "_from", kInt64, {last}, [](const Args& a) {
      return call("max", {sub(a[0], number(1)), number(0)});
    }));
  return b.map(name, data.type, {last, update, data},
               [](const Args& a) { return select(a[0], a[1], a[2]); });
}

/// Whether each place is written, and the update that it gets: the last of several.
struct Inverse {
  std::vector<double> hit;
  std::vector<std::int64_t> from;
  bool twice = false;
};
Inverse inverse_of(const std::vector<std::int64_t>& places, std::int64_t count) {
  if (count > kMostPlaces) throw Unsupported{"a tensor of too many places"};
  Inverse out{.hit = std::vector<double>(static_cast<std::size_t>(count)),
              .from = std::vector<std::int64_t>(static_cast<std::size_t>(count))};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto p = static_cast<std::size_t>(places[i]);
    out.twice = out.twice || out.hit[p] != 0;
    out.hit[p] = 1;
    out.from[p] = static_cast<std::int64_t>(i);
  }
  return out;
}

/// data [places, rest] with updates [indices, rest] at known places.
Value written(Builder& b, const std::string& name, const Value& data, const Inverse& inverse,
              const Value& updates, const Way& way) {
  const Value taken = b.taken(name + "_updates", updates, 0, inverse.from);
  const Shape rows = {data.shape[0], 1};
  const Value hit = Builder::known(kBool, rows, inverse.hit);
  if (hit.uniform == 1.0 && way.name == "none") return taken;
  return b.map(name, data.type, {hit, data, taken}, [&](const Args& a) {
    return select(a[0], way.name == "none" ? a[2] : way.with(a[1], a[2]), a[1]);
  });
}

/// The same where `flat` [indices] is computed, or names a place more than once.
Value compared(Builder& b, const std::string& name, const Value& data, const Value& flat,
               const Value& updates, const Way& way) {
  const std::int64_t places = data.shape[0], count = flat.shape[0], rest = data.shape[1];
  if (places > kMostCompared / count || count > kMostNumbers ||
      places * count > kMostCompared / std::max<std::int64_t>(1, rest))
    throw Unsupported{"computed places, of which too many would be compared"};
  const Value index = flat.uniform ? b.copied(name + "_indices", flat) : flat;
  const auto at_each = [&](const std::string& of, bool last) {
    const Vars place = b.vars(places);
    std::vector<View> reads;
    Expr same = equal(b.operand(index, reads), b.index_of(place));
    std::vector<Vars> dims = {place, {}};
    Expr value = add(b.index_of(reads[0].dims[0]), number(1));
    if (!last) {
      value = b.operand(updates, reads);
      if (reads.size() > 1) {
        if (count > 1) b.demand_unified(reads[0], 0, reads[1], 0);
        dims[1] = reads[1].dims[1];
      } else {
        dims[1] = b.vars(rest);
      }
    }
    const Combine combine = last ? Combine::max : way.combine();
    value = select(std::move(same), std::move(value), number(last ? 0 : way.nothing()));
    return b.emit(of, last ? std::int32_t{kInt64} : data.type, {places, last ? 1 : rest}, dims,
                  reads, std::move(value), count > 1 ? combine : Combine::assign);
  };
  return written_into(b, name, data, updates, way, at_each, [&](const Value& from) {
    if (count == 1) return b.expanded(updates, data.shape);
    return b.gathered(name + "_update", updates, 0, b.reshaped(name + "_from", from, {places}));
  });
}

void say_scatter_nd(NodeReader& n) {
  Builder& b = n.b;
  const Value &data = n.at(0), &indices = n.at(1), &updates = n.at(2);
  demand_whole_numbers(indices);
  const Way way = way_of(n);
  if (indices.shape.empty()) throw Unsupported{"indices of another rank"};
  const auto deep = static_cast<std::size_t>(indices.shape.back());
  if (deep < 1 || deep > data.shape.size()) throw Unsupported{"indices of another rank"};
  std::int64_t places = 1, rest = 1;
  for (std::size_t d = 0; d < data.shape.size(); ++d) (d < deep ? places : rest) *= data.shape[d];
  const std::int64_t count = elements_of(indices.shape) / indices.shape.back();
  if (elements_of(updates.shape) != count * rest) throw Unsupported{"as many updates as indices"};
  const Value before = b.reshaped(n.name + "_places", data, {places, rest}),
              with = b.reshaped(n.name + "_each", updates, {count, rest});
  Value out;
  std::optional<Inverse> inverse;
  Value flat;
  if (indices.known()) {
    const auto all = n.known_integers(1);
    std::vector<std::int64_t> at;
    for (std::size_t i = 0; i < all.size(); i += deep) {
      std::int64_t p = 0;
      for (std::size_t k = 0; k < deep; ++k)
        p = p * data.shape[k] + from_zero({all[i + k]}, data.shape[k]).front();
      at.push_back(p);
    }
    inverse = inverse_of(at, places);
    flat = Builder::known(kInt32, {count}, numbers(at));
  } else {
    for (std::size_t k = 0; k < deep; ++k) {
      const std::size_t last = indices.shape.size() - 1;
      Value part = b.sliced(n.name + "_at", indices, last, static_cast<std::int64_t>(k), 1, 1);
      part = b.reshaped(n.name + "_at", part, {count});
      const auto size = static_cast<double>(data.shape[k]);
      part = from_zero(b, n.name + "_at", part, data.shape[k]);
      if (k == 0)
        flat = part;
      else
        flat = b.map(n.name + "_flat", kInt64, {flat, part}, [&](const Args& a) {
          return call("add", {call("mul", {a[0], number(size)}), a[1]});
        });
    }
  }
  if (inverse && (!inverse->twice || way.name == "none"))
    out = written(b, n.name, before, *inverse, with, way);
  else
    out = compared(b, n.name, before, flat, with, way);
  n.out[0] = b.reshaped(n.name, out, data.shape);
}

/// With `fill` behind its end.
Value longer(Builder& b, const std::string& name, const Value& v, std::size_t dim,
             std::int64_t size, double fill) {
  Shape more = v.shape;
  more[dim] = size - v.shape[dim];
  if (more[dim] == 0) return v;
  return joined(b, name, {v, Builder::uniform(v.type, more, fill)}, dim);
}

/// Computed indices along an axis; the other dimensions of indices and updates are those of data.
Value compared_along(Builder& b, const std::string& name, const Value& data, Value indices,
                     const Value& updates, std::size_t axis, const Way& way) {
  const std::int64_t size = data.shape[axis], count = indices.shape[axis];
  if (elements_of(data.shape) > kMostCompared / count || count > kMostNumbers)
    throw Unsupported{"computed places, of which too many would be compared"};
  if (indices.uniform) indices = b.copied(name + "_indices_all", indices);
  const auto at_each = [&](const std::string& of, bool last) {
    const Vars place = b.vars(size);
    std::vector<View> reads;
    Expr same = equal(from_zero(b.operand(indices, reads), size), b.index_of(place));
    b.normalise(reads[0]);
    Expr value = add(b.index_of(reads[0].dims[axis]), number(1));
    if (!last) {
      value = b.operand(updates, reads);
      for (std::size_t d = 0; d < data.shape.size() && reads.size() > 1; ++d)
        if (indices.shape[d] > 1) b.demand_unified(reads[0], d, reads[1], d);
    }
    b.normalise(reads[0]);
    std::vector<Vars> dims = reads[0].dims;
    dims[axis] = place;
    value = select(std::move(same), std::move(value), number(last ? 0 : way.nothing()));
    const Combine combine = last ? Combine::max : way.combine();
    return b.emit(of, last ? std::int32_t{kInt64} : data.type, data.shape, dims, reads,
                  std::move(value), count == 1 ? Combine::assign : combine);
  };
  return written_into(b, name, data, updates, way, at_each, [&](const Value& from) {
    return elements_at(b, name + "_update", updates, axis, from);
  });
}

void say_scatter_elements(NodeReader& n) {
  Builder& b = n.b;
  const Value& data = n.at(0);
  Value indices = n.at(1), updates = n.at(2);
  demand_whole_numbers(indices);
  const Way way = way_of(n);
  const std::size_t rank = data.shape.size(), axis = NodeReader::axis(n.integer("axis", 0), rank);
  if (indices.shape != updates.shape || indices.shape.size() != rank)
    throw Unsupported{"as many indices as updates"};
  for (std::size_t d = 0; d < rank; ++d)
    if (d != axis && indices.shape[d] > data.shape[d])
      throw Unsupported{"an index outside of its tensor"};
  const std::int64_t size = data.shape[axis];
  if (indices.known()) {
    const auto which = from_zero(n.known_integers(1), size);
    std::vector<std::int64_t> at, point(rank, 0);
    for (const std::int64_t w : which) {
      std::int64_t flat = 0;
      for (std::size_t d = 0; d < rank; ++d)
        flat = flat * data.shape[d] + (d == axis ? w : point[d]);
      at.push_back(flat);
      for (std::size_t d = rank; d-- > 0;) {
        if (++point[d] < indices.shape[d]) break;
        point[d] = 0;
      }
    }
    const std::int64_t places = elements_of(data.shape);
    const Inverse inverse = inverse_of(at, places);
    if (!inverse.twice || way.name == "none") {
      const Value before = b.reshaped(n.name + "_places", data, {places, 1}),
                  with = b.reshaped(n.name + "_each", updates, {elements_of(updates.shape), 1});
      n.out[0] = b.reshaped(n.name, written(b, n.name, before, inverse, with, way), data.shape);
      return;
    }
  }
  for (std::size_t d = 0; d < rank; ++d) {
    if (d == axis || indices.shape[d] == data.shape[d]) continue;
    updates = longer(b, n.name + "_updates", updates, d, data.shape[d], 0);
    // No place is so far before the first.
    indices = longer(b, n.name + "_indices", indices, d, data.shape[d], -0x1p23);
  }
  n.out[0] = compared_along(b, n.name, data, indices, updates, axis, way);
}

/// New keys or values at each sequence's own place in a cache [batch, ..., time, ...].
void say_tensor_scatter(NodeReader& n) {
  Builder& b = n.b;
  const Value &data = n.at(0), &updates = n.at(1);
  const std::size_t rank = n.rank(), axis = NodeReader::axis(n.integer("axis", -2), rank);
  if (axis == 0 || updates.shape.size() != rank) throw Unsupported{"an update of another rank"};
  const std::int64_t count = updates.shape[axis], size = data.shape[axis];
  Shape first(rank, 1), along(rank, 1), all = updates.shape;
  first[0] = data.shape[0];
  along[axis] = count;
  if (count > size || all[0] != first[0])
    throw Unsupported{"an update that is larger than the cache"};
  std::vector<double> steps;
  for (std::int64_t i = 0; i < count; ++i) steps.push_back(static_cast<double>(i));
  const Value begin =
      n.has(2) ? b.reshaped(n.name + "_first", n.at(2), first) : Builder::uniform(kInt64, first, 0);
  const bool round = n.text("mode", "linear") == "circular";
  const Value at = b.map(
      n.name + "_at", kInt64, {begin, Builder::known(kInt64, along, steps)}, [&](const Args& a) {
        const Expr sum = add(a[0], a[1]), whole = number(static_cast<double>(size));
        return round ? sub(sum, mul(whole, call("floor", {call("div", {sum, whole})}))) : sum;
      });
  n.out[0] = compared_along(b, n.name, data, b.expanded(at, all), updates, axis, Way{"none"});
}

void say_one_hot(NodeReader& n) {
  Builder& b = n.b;
  Value indices = n.at(0);
  const auto depth = n.known_integers(1);
  if (depth.size() != 1 || depth[0] < 1 || depth[0] > (1 << 24)) throw Unsupported{"its depth"};
  if (n.at(2).shape != Shape{2}) throw Unsupported{"values that are not two"};
  const std::size_t axis = NodeReader::axis(n.integer("axis", -1), n.rank() + 1);
  if (indices.uniform) indices = b.copied(n.name + "_indices", indices);
  std::vector<View> reads;
  const Vars place = b.vars(depth[0]);
  Expr which = b.operand(indices, reads);
  which = select(call("lt", {which, number(0)}),
                 call("add", {which, number(static_cast<double>(depth[0]))}), which);
  const auto one = [&](std::int64_t i) {
    return b.operand(squeezed(b, b.sliced(n.name + "_value", n.at(2), 0, i, 1, 1), 0), reads);
  };
  Expr off = one(0), on = one(1);
  Shape shape = indices.shape;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), depth[0]);
  std::vector<Vars> dims = reads[0].dims;
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), place);
  n.out[0] =
      b.emit(n.name, n.at(2).type, shape, dims, reads,
             select(equal(std::move(which), b.index_of(place)), std::move(on), std::move(off)),
             Combine::assign);
}

}  // namespace

Value read_at(Builder& b, const std::string& name, const Value& tensor, std::size_t batches,
              std::size_t first, std::vector<Value> indices) {
  Value x = tensor;
  const std::size_t deep = indices.size(), last = indices.front().shape.size();
  const Shape& of = indices.front().shape;
  Shape shape(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(first));
  shape.insert(shape.end(), of.begin() + static_cast<std::ptrdiff_t>(batches), of.end());
  shape.insert(shape.end(), x.shape.begin() + static_cast<std::ptrdiff_t>(first + deep),
               x.shape.end());
  if (x.uniform) return Builder::uniform(x.type, shape, *x.uniform);
  for (int turn = 0; turn < 2; ++turn) {
    View vx = b.read(x);
    std::vector<View> by;
    for (const Value& v : indices) by.push_back(b.read(v));
    bool done = true;
    for (int again = 0; again < 2; ++again)  // later cuts are the first dimensions', too
      for (std::size_t d = 0; d < last; ++d) {
        if (of[d] == 1) continue;
        for (std::size_t k = 1; k < deep; ++k)
          if (by[k].dims[d] != by[0].dims[d]) done = done && b.unify(by[0], d, by[k], d);
        if (d < batches && vx.dims[d] != by[0].dims[d]) done = done && b.unify(by[0], d, vx, d);
      }
    for (View& v : by) b.normalise(v);
    for (std::size_t k = 0; k < deep && done; ++k)
      if (x.shape[first + k] != 1) done = b.index_by(vx, first + k, by[k]);
    if (!done) {
      std::set<std::size_t> kept;
      for (std::size_t k = 0; k < deep; ++k)
        if (x.shape[first + k] != 1) kept.insert(first + k);
      x = b.plain(name + "_whole", x, kept);
      for (Value& v : indices)
        if (v.view) v = b.plain(name + "_indices", v);
      continue;
    }
    b.normalise(vx);
    const auto at = [&](std::size_t d) { return static_cast<std::ptrdiff_t>(d); };
    std::vector<Vars> dims(by[0].dims.begin(), by[0].dims.begin() + at(batches));
    dims.insert(dims.end(), vx.dims.begin() + at(batches), vx.dims.begin() + at(first));
    dims.insert(dims.end(), by[0].dims.begin() + at(batches), by[0].dims.end());
    dims.insert(dims.end(), vx.dims.begin() + at(first + deep), vx.dims.end());
    return b.emit(name, x.type, shape, dims, {vx}, {.kind = Expr::Kind::input, .input = 0},
                  Combine::assign);
  }
  throw Unsupported{"indices whose cuts do not fit its tensor's"};
}

Expr equal(const Expr& a, const Expr& b) {
  return call("sub", {number(1), call("max", {call("lt", {a, b}), call("lt", {b, a})})});
}

std::vector<Said> index_operators() {
  return {{"GatherElements", say_gather_elements},
          {"GatherND", say_gather_nd},
          {"ScatterElements", say_scatter_elements},
          {"Scatter", say_scatter_elements},
          {"ScatterND", say_scatter_nd},
          {"TensorScatter", say_tensor_scatter},
          {"OneHot", say_one_hot}};
}

}  // namespace tilewright::onnx
