// Operators that compute nothing: views where indices can say them, else sums of shifted reads.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

void say_shape(NodeReader& n) {
  const Shape& s = n.at(0).shape;
  const auto rank = static_cast<std::int64_t>(s.size());
  const auto place = [&](std::int64_t p) {
    return std::clamp<std::int64_t>(p < 0 ? p + rank : p, 0, rank);
  };
  const std::int64_t from = place(n.integer("start", 0)), to = place(n.integer("end", rank));
  std::vector<double> list;
  for (std::int64_t d = from; d < to; ++d)
    list.push_back(static_cast<double>(s[static_cast<std::size_t>(d)]));
  const auto count = static_cast<std::int64_t>(list.size());
  n.out[0] = Builder::known(kInt64, {count}, std::move(list));
}

void say_size(NodeReader& n) {
  n.out[0] = Builder::known(kInt64, {}, {static_cast<double>(elements_of(n.at(0).shape))});
}

void say_constant_of_shape(NodeReader& n) {
  Shape shape = n.known_integers(0);
  const std::int64_t count = elements_of(shape);
  if (count < 1 || std::ranges::any_of(shape, [](auto d) { return d < 0; }))
    throw Unsupported{"a shape without elements, or too large"};
  const Attribute* value = n.find("value");
  double fill = 0;
  std::int32_t type = kFloat;
  if (value != nullptr && value->tensor) {
    if (value->tensor->elements() != 1) throw Unsupported{"a fill of several values"};
    fill = value->tensor->read().front();
    type = value->tensor->type;
  }
  n.out[0] = Builder::uniform(type, std::move(shape), fill);
}

void say_reshape(NodeReader& n) {
  const Value& v = n.at(0);
  const auto asked = n.integers_of("shape", 1);
  if (!asked) throw Unsupported{"no shape"};
  Shape to = *asked;
  std::int64_t known = 1;
  std::ptrdiff_t open = -1;
  for (std::size_t d = 0; d < to.size(); ++d) {
    if (to[d] == 0 && n.integer("allowzero", 0) == 0) {
      if (d >= v.shape.size()) throw Unsupported{"a shape that keeps a dimension there is not"};
      to[d] = v.shape[d];
    }
    if (to[d] == -1) {
      if (open >= 0) throw Unsupported{"a shape with two open dimensions"};
      open = static_cast<std::ptrdiff_t>(d);
      continue;
    }
    if (to[d] < 0 || to[d] > (std::int64_t{1} << 40)) throw Unsupported{"a dimension below zero"};
    if (to[d] > 0 && known > (std::int64_t{1} << 61) / to[d])
      throw Unsupported{"a shape of another size"};
    known *= to[d];
  }
  const std::int64_t count = elements_of(v.shape);
  if (open >= 0) {
    if (known < 1 || count % known != 0) throw Unsupported{"a shape of another size"};
    to[static_cast<std::size_t>(open)] = count / known;
  }
  if (elements_of(to) != count) throw Unsupported{"a shape of another size"};
  n.out[0] = n.b.reshaped(n.name, v, to);
}

void say_flatten(NodeReader& n) {
  const Value& v = n.at(0);
  const std::int64_t axis = n.integer("axis", 1), rank = static_cast<std::int64_t>(n.rank());
  if (axis < -rank || axis > rank) throw Unsupported{"an axis outside of its rank"};
  Shape to = {1, 1};
  for (std::int64_t d = 0; d < rank; ++d)
    to[d < (axis < 0 ? axis + rank : axis) ? 0 : 1] *= v.shape[static_cast<std::size_t>(d)];
  n.out[0] = n.b.reshaped(n.name, v, to);
}

void say_squeeze(NodeReader& n) {
  const Value& v = n.at(0);
  const auto axes = n.integers_of("axes", 1);
  std::vector<bool> gone(v.shape.size(), false);
  if (axes)
    for (const std::int64_t a : *axes) gone[NodeReader::axis(a, gone.size())] = true;
  else
    for (std::size_t d = 0; d < gone.size(); ++d) gone[d] = v.shape[d] == 1;
  Shape to;
  for (std::size_t d = 0; d < gone.size(); ++d) {
    if (gone[d] && v.shape[d] != 1) throw Unsupported{"a dimension that is not 1"};
    if (!gone[d]) to.push_back(v.shape[d]);
  }
  n.out[0] = n.b.reshaped(n.name, v, to);
}

void say_unsqueeze(NodeReader& n) {
  const Value& v = n.at(0);
  const auto axes = n.integers_of("axes", 1);
  if (!axes) throw Unsupported{"no axes"};
  std::vector<bool> fresh(v.shape.size() + axes->size(), false);
  for (const std::int64_t a : *axes) fresh[NodeReader::axis(a, fresh.size())] = true;
  Shape to;
  std::size_t next = 0;
  for (const bool f : fresh) {
    if (!f && next >= v.shape.size()) throw Unsupported{"axes that are named twice"};
    to.push_back(f ? 1 : v.shape[next++]);
  }
  if (next != v.shape.size()) throw Unsupported{"axes that are named twice"};
  n.out[0] = n.b.reshaped(n.name, v, to);
}

void say_transpose(NodeReader& n) { n.out[0] = n.b.transposed(n.at(0), n.permutation(n.rank())); }

void say_slice(NodeReader& n) {
  Value v = n.at(0);
  const auto starts = n.integers_of("starts", 1), ends = n.integers_of("ends", 2),
             axes = n.integers_of("axes", 3), steps = n.integers_of("steps", 4);
  if (!starts || !ends || starts->size() != ends->size())
    throw Unsupported{"as many starts as ends"};
  Shape none = v.shape;  // what is left
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const std::size_t d =
        NodeReader::axis(axes ? axes->at(i) : static_cast<std::int64_t>(i), v.shape.size());
    const std::int64_t step = steps ? steps->at(i) : 1, size = v.shape[d];
    if (step == 0) throw Unsupported{"a step of zero"};
    std::int64_t from = (*starts)[i], to = (*ends)[i];
    if (from < 0) from += size;
    if (to < 0) to += size;
    from = std::clamp<std::int64_t>(from, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
    to = std::clamp<std::int64_t>(to, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
    const std::int64_t count =
        step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    none[d] = std::max<std::int64_t>(count, 0);
    if (elements_of(none) == 0) continue;
    v = n.b.sliced(n.name + "_part", v, d, from, step, count);
  }
  n.out[0] = elements_of(none) == 0 ? Builder::known(v.type, none, {}) : v;
}

void say_split(NodeReader& n) {
  const Value& v = n.at(0);
  const std::size_t d = NodeReader::axis(n.integer("axis", 0), n.rank());
  const auto sizes = n.parts_of(v.shape[d]);
  std::int64_t from = 0;
  for (std::size_t i = 0; i < sizes.size(); from += sizes[i++]) {
    if (sizes[i] > 0) {
      n.out[i] = n.b.sliced(n.name + "_part", v, d, from, 1, sizes[i]);
      continue;
    }
    Shape none = v.shape;
    none[d] = 0;
    n.out[i] = Builder::known(v.type, none, {});
  }
}

void say_concat(NodeReader& n) {
  std::vector<Value> parts;
  const std::size_t d = NodeReader::axis(n.integer("axis", 1), n.rank());
  for (std::size_t i = 0; i < n.in.size(); ++i) {
    if (n.at(i).shape.size() != n.rank()) throw Unsupported{"operands of different ranks"};
    if (n.at(i).shape[d] > 0) parts.push_back(n.at(i));
  }
  if (parts.empty()) throw Unsupported{"no elements"};
  n.out[0] = joined(n.b, n.name, parts, d);
}

void say_expand(NodeReader& n) {
  const Value& v = n.at(0);
  Shape to = n.known_integers(1);
  if (to.size() < v.shape.size()) to.insert(to.begin(), v.shape.size() - to.size(), 1);
  for (std::size_t i = 1; i <= v.shape.size(); ++i) {
    const std::int64_t has = v.shape[v.shape.size() - i];
    std::int64_t& wants = to[to.size() - i];
    if (wants == 1) wants = has;
    if (has != 1 && has != wants) throw Unsupported{"a shape that it does not broadcast to"};
  }
  if (elements_of(to) < 0) throw Unsupported{"a shape that is too large"};
  n.out[0] = elements_of(to) == 0 ? Builder::known(v.type, to, {}) : n.b.expanded(v, to);
}

/// Repeats are a dimension of their own, before the one that is repeated.
void say_tile(NodeReader& n) {
  const Value& v = n.at(0);
  const auto times = n.known_integers(1);
  if (times.size() != v.shape.size()) throw Unsupported{"as many repeats as dimensions"};
  Shape apart, wide, to;
  for (std::size_t d = 0; d < times.size(); ++d) {
    if (times[d] < 1 || times[d] > (1 << 24)) throw Unsupported{"repeats below 1"};
    apart.insert(apart.end(), {1, v.shape[d]});
    wide.insert(wide.end(), {times[d], v.shape[d]});
    to.push_back(times[d] * v.shape[d]);
  }
  if (elements_of(to) < 1) throw Unsupported{"a shape that is too large"};
  const Value cut = n.b.reshaped(n.name + "_apart", v, apart);
  n.out[0] = n.b.reshaped(n.name, n.b.expanded(cut, wide), to);
}

void say_pad(NodeReader& n) {
  Value v = n.at(0);
  const std::string mode = n.text("mode", "constant");
  const auto pads = n.integers_of(n.has_attribute("paddings") ? "paddings" : "pads", 1);
  if (!pads) throw Unsupported{"no pads"};
  std::vector<std::size_t> dims(v.shape.size());
  std::iota(dims.begin(), dims.end(), std::size_t{0});
  if (n.has(3)) {
    dims.clear();
    for (const std::int64_t a : n.known_integers(3)) dims.push_back(NodeReader::axis(a, n.rank()));
  }
  if (pads->size() != 2 * dims.size()) throw Unsupported{"two pads a dimension"};
  double fill = n.real("value", 0);
  if (n.has(2)) fill = values_of(n.at(2)).at(0);
  const Value whole = v;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::size_t d = dims[i];
    const std::int64_t begin = (*pads)[i], end = (*pads)[i + dims.size()], size = v.shape[d],
                       to = size + begin + end;
    if (begin == 0 && end == 0) continue;
    constexpr std::int64_t kMost = 1 << 24;
    if (std::abs(begin) > kMost || std::abs(end) > kMost || to < 1)
      throw Unsupported{"pads that leave nothing"};
    const std::string name = n.name + "_pad" + std::to_string(d);
    if (begin <= 0 && end <= 0) {
      v = n.b.sliced(name, v, d, -begin, 1, to);
      continue;
    }
    if (mode != "constant") {
      constexpr std::int64_t kMostRead = std::int64_t{1} << 22;  // by a list of places
      if (to > kMostRead)
        throw Unsupported{"padding by " + mode + " of more than " + std::to_string(kMostRead) +
                          " elements"};
      std::vector<std::int64_t> from;
      for (std::int64_t y = -begin; y < size + end; ++y) {
        std::int64_t at = y;
        if (mode == "edge")
          at = std::clamp<std::int64_t>(y, 0, size - 1);
        else if (mode == "wrap")
          at = (y % size + size) % size;
        else if (mode == "reflect" && size > 1) {
          const std::int64_t period = 2 * (size - 1);
          at = (y % period + period) % period;
          if (at >= size) at = period - at;
        } else
          throw Unsupported{"a mode of padding " + mode};
        from.push_back(at);
      }
      v = n.b.taken(name, v, d, from);
      continue;
    }
    View view;
    std::vector<View> reads;
    if (v.uniform) v = n.b.copied(name + "_image", v);
    Expr value{.kind = Expr::Kind::input, .input = 0};
    Vars y = n.b.vars(to);
    std::vector<VarTerm> terms;
    for (const Var u : y) terms.emplace_back(u, 1);
    view = n.b.read(v);
    if (!n.b.window(view, d, terms, -begin, true)) {
      view = n.b.read(n.b.plain(name + "_whole", v, {d}));
      n.b.window(view, d, terms, -begin, true);
    }
    view.dims[d] = y;
    if (fill != 0) value = n.b.guarded(terms, -begin, size, std::move(value), fill);
    const bool nonnegative = v.nonnegative && fill >= 0;
    Shape shape = v.shape;
    shape[d] = to;
    const std::vector<Vars> out = view.dims;
    v = n.b.emit(name, v.type, shape, out, {view}, value, Combine::assign);
    v.nonnegative = nonnegative;
  }
  n.out[0] = v;
}

void say_gather(NodeReader& n) {
  const Value &v = n.at(0), &indices = n.at(1);
  const std::size_t d = NodeReader::axis(n.integer("axis", 0), n.rank());
  if (!indices.known()) {
    if (!is_integer(indices.type)) throw Unsupported{"indices that are not whole numbers"};
    n.out[0] = n.b.gathered(n.name, v, d, indices);
    return;
  }
  std::vector<std::int64_t> which = n.known_integers(1);
  for (std::int64_t& w : which) {
    if (w < 0) w += v.shape[d];
    if (w < 0 || w >= v.shape[d]) throw Unsupported{"an index outside of its tensor"};
  }
  if (which.empty()) throw Unsupported{"no indices"};
  Shape to(v.shape.begin(), v.shape.begin() + static_cast<std::ptrdiff_t>(d));
  to.insert(to.end(), indices.shape.begin(), indices.shape.end());
  to.insert(to.end(), v.shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, v.shape.end());
  n.out[0] = n.b.reshaped(n.name, n.b.taken(n.name + "_taken", v, d, which), to);
}

void say_depth_to_space(NodeReader& n) {
  const Value& v = n.at(0);
  const std::int64_t s = n.integer("blocksize", 0);
  if (v.shape.size() != 4 || s < 1 || s > 4096 || v.shape[1] % (s * s) != 0)
    throw Unsupported{"channels that are not divided into whole blocks"};
  const std::int64_t b = v.shape[0], c = v.shape[1] / (s * s), h = v.shape[2], w = v.shape[3];
  const bool columns = n.text("mode", "DCR") == "CRD";
  const Shape cut = columns ? Shape{b, c, s, s, h, w} : Shape{b, s, s, c, h, w};
  const std::vector<std::int64_t> order = columns ? std::vector<std::int64_t>{0, 1, 4, 2, 5, 3}
                                                  : std::vector<std::int64_t>{0, 3, 4, 1, 5, 2};
  n.out[0] = n.b.reshaped(n.name, n.b.transposed(n.b.reshaped(n.name + "_cut", v, cut), order),
                          {b, c, h * s, w * s});
}

void say_space_to_depth(NodeReader& n) {
  const Value& v = n.at(0);
  const std::int64_t s = n.integer("blocksize", 0);
  if (v.shape.size() != 4 || s < 1 || s > 4096 || v.shape[2] % s != 0 || v.shape[3] % s != 0)
    throw Unsupported{"an image that is not divided into whole blocks"};
  const std::int64_t b = v.shape[0], c = v.shape[1], h = v.shape[2] / s, w = v.shape[3] / s;
  const std::vector<std::int64_t> order = n.text("mode", "DCR") == "CRD"
                                              ? std::vector<std::int64_t>{0, 1, 3, 5, 2, 4}
                                              : std::vector<std::int64_t>{0, 3, 5, 1, 2, 4};
  n.out[0] = n.b.reshaped(
      n.name, n.b.transposed(n.b.reshaped(n.name + "_cut", v, {b, c, h, s, w, s}), order),
      {b, c * s * s, h, w});
}

void say_trilu(NodeReader& n) {
  const Value& v = n.at(0);
  if (v.shape.size() < 2) throw Unsupported{"no matrix"};
  const std::int64_t rows = v.shape[v.shape.size() - 2], cols = v.shape.back();
  if (rows * cols > (std::int64_t{1} << 22)) throw Unsupported{"a mask that is too large"};
  const bool upper = n.integer("upper", 1) != 0;
  const std::int64_t k = n.has(1) ? n.known_integers(1).at(0) : 0;
  std::vector<double> mask;
  for (std::int64_t y = 0; y < rows; ++y)
    for (std::int64_t x = 0; x < cols; ++x) mask.push_back(upper ? x - y >= k : x - y <= k);
  n.out[0] = n.b.map(n.name, v.type, {v, Builder::known(kFloat, {rows, cols}, std::move(mask))},
                     [](const Args& a) {
                       return call("select", {a[1], a[0], number(0)});
                     });
}

}  // namespace

Value joined(Builder& b, const std::string& name, const std::vector<Value>& parts,
             std::size_t dim) {
  if (parts.size() == 1) return parts.front();
  Shape shape = parts.front().shape;
  if (dim >= shape.size()) throw Unsupported{"an axis outside of its rank"};
  shape[dim] = 0;
  for (const Value& v : parts) {
    if (v.shape.size() != shape.size()) throw Unsupported{"its inputs have different ranks"};
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (d != dim && v.shape[d] != shape[d]) throw Unsupported{"shapes that differ"};
    shape[dim] += v.shape[dim];
  }
  const Var j = b.var(shape[dim]);
  std::vector<View> reads;
  std::vector<std::size_t> of;  // which part each read is of
  std::vector<Expr> values;
  std::int64_t from = 0;
  bool nonnegative = true;
  for (const Value& part : parts) {
    const std::int64_t size = part.shape[dim];
    nonnegative = nonnegative && part.nonnegative;
    if (part.uniform) {
      Expr c = b.guarded({{j, 1}}, -from, size, number(*part.uniform), 0);
      if (*part.uniform != 0) values.push_back(std::move(c));
      from += size;
      continue;
    }
    View view = b.read(part);
    b.normalise(view);
    if (view.dims[dim].size() > 1) view = b.read(b.plain(name + "_whole", part));
    Expr read{.kind = Expr::Kind::input, .input = static_cast<int>(reads.size())};
    // Outside of a whole tensor there are zeros; outside of a part of one there is the rest of it.
    if (!b.window(view, dim, {{j, 1}}, -from, true)) {
      if (size > 1) b.window(view, dim, {{j, 1}}, -from, false);
      read = b.guarded({{j, 1}}, -from, size, std::move(read), 0);
    }
    view.dims[dim] = {j};
    reads.push_back(std::move(view));
    of.push_back(static_cast<std::size_t>(&part - parts.data()));
    values.push_back(std::move(read));
    from += size;
  }
  const std::vector<std::size_t> ranks(reads.size(), shape.size());
  if (const auto worst = b.cut_too_often(reads, ranks, shape.size())) {
    std::vector<Value> again = parts;
    again[of[*worst]] = b.plain(name + "_whole", parts[of[*worst]]);
    return joined(b, name, again, dim);
  }
  for (std::size_t d = 0; d < shape.size(); ++d)
    for (std::size_t i = 1; d != dim && shape[d] > 1 && i < reads.size() * 2; ++i) {
      const std::size_t at = i % reads.size();  // twice: later cuts are the first ones', too
      if (at != 0 && reads[0].dims[d] != reads[at].dims[d])
        b.demand_unified(reads[0], d, reads[at], d);
    }
  std::vector<Vars> dims;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d == dim)
      dims.push_back({j});
    else
      dims.push_back(reads.empty() ? b.vars(shape[d]) : reads[0].dims[d]);
  }
  // A balanced sum nests the least.
  while (values.size() > 1) {
    std::vector<Expr> halves;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2)
      halves.push_back(call("add", {std::move(values[i]), std::move(values[i + 1])}));
    if (values.size() % 2 == 1) halves.push_back(std::move(values.back()));
    values = std::move(halves);
  }
  Value out = b.emit(name, parts.front().type, shape, dims, reads,
                     values.empty() ? number(0) : values.front(), Combine::assign);
  out.nonnegative = nonnegative;
  return out;
}

std::vector<Said> moving_operators() {
  return {{"Shape", say_shape},
          {"Size", say_size},
          {"ConstantOfShape", say_constant_of_shape},
          {"Reshape", say_reshape},
          {"Flatten", say_flatten},
          {"Squeeze", say_squeeze},
          {"Unsqueeze", say_unsqueeze},
          {"Transpose", say_transpose},
          {"Slice", say_slice},
          {"Split", say_split},
          {"Concat", say_concat},
          {"Expand", say_expand},
          {"Tile", say_tile},
          {"Pad", say_pad},
          {"Gather", say_gather},
          {"DepthToSpace", say_depth_to_space},
          {"SpaceToDepth", say_space_to_depth},
          {"Trilu", say_trilu}};
}

}  // namespace tilewright::onnx
