// Orders and running sums: ArgMax, TopK, Hardmax, CumSum. A few of the largest of a long row are
// found one after the other; else an order of computed values is made of the rank of each, which
// compares it with all others. Long running sums are made of shifted ones.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

/// Whole numbers from 0 on that f32 has.
constexpr std::int64_t kMostCounted = std::int64_t{1} << 24;
constexpr std::int64_t kMostReversed = std::int64_t{1} << 22;
/// 0, 1, 2, .. along an axis of a shape, in f32.
Value counted(const Shape& shape, std::size_t axis) {
  const std::int64_t size = shape[axis];
  if (size > kMostCounted)
    throw Unsupported{"an axis of more than " + std::to_string(kMostCounted) + " elements"};
  std::vector<double> count(static_cast<std::size_t>(size));
  std::iota(count.begin(), count.end(), 0.0);
  Shape along(shape.size(), 1);
  along[axis] = size;
  return Builder::known(kFloat, along, std::move(count));
}

/// The first index, or the last, at which each row has its largest or least value.
Value index_of(NodeReader& n, const Value& x, std::size_t axis, bool largest, bool last) {
  const std::int64_t size = x.shape[axis];
  Shape whole = x.shape;
  whole[axis] = 1;
  if (size == 1) return Builder::uniform(kInt64, whole, 0);
  const Value most = n.b.reduce(n.name + "_most", x, {axis}, largest ? Combine::max : Combine::min,
                                [](const Args& a) { return a[0]; });
  const Value index = counted(x.shape, axis);
  const double none = last ? -1 : static_cast<double>(size);
  const Value places = n.b.map(n.name + "_places", kFloat, {x, most, index}, [&](const Args& a) {
    Expr beyond = largest ? call("lt", {a[0], a[1]}) : call("lt", {a[1], a[0]});
    return call("select", {std::move(beyond), number(none), a[2]});
  });
  return cast(n.b.reduce(n.name + "_index", places, {axis}, last ? Combine::max : Combine::min,
                         [](const Args& a) { return a[0]; }),
              kInt64);
}

void say_arg(NodeReader& n) {
  const std::size_t axis = NodeReader::axis(n.integer("axis", 0), n.rank());
  Value out =
      index_of(n, n.at(0), axis, n.node.op == "ArgMax", n.integer("select_last_index", 0) != 0);
  if (n.integer("keepdims", 1) == 0) out = squeezed(n.b, out, axis);
  n.out[0] = out;
}

/// Itself where every dimension is one that is stored, so that a sum over it counts each element
/// once.
Value stored(Builder& b, const std::string& name, const Value& v) {
  if (v.uniform) return b.copied(name, v);
  const View view = b.read(v);
  for (const Vars& d : view.dims)
    for (const Var u : d)
      if (!b.reads_var(view, u)) return b.copied(name, v);
  return v;
}

/// How many of its row stand before each element, equal ones in their order.
Value rank_of(NodeReader& n, const Value& x, std::size_t axis, bool largest) {
  Builder& b = n.b;
  std::vector<View> reads;
  Expr one = b.operand(x, reads), other = b.operand(x, reads);
  for (std::size_t d = 0; d < x.shape.size(); ++d)
    if (d != axis && x.shape[d] != 1) b.demand_unified(reads[0], d, reads[1], d);
  for (View& v : reads) b.normalise(v);
  const Expr before = b.index_of(reads[1].dims[axis]), here = b.index_of(reads[0].dims[axis]);
  if (!largest) std::swap(one, other);
  Expr value =
      call("select",
           {call("lt", {one, other}), number(1),
            call("select", {call("lt", {other, one}), number(0), call("lt", {before, here})})});
  const std::vector<Vars> dims = reads[0].dims;
  // Whole numbers: how rounding may move them is known not to matter.
  return b.emit(n.name + "_rank", kInt64, x.shape, dims, reads, std::move(value), Combine::sum);
}

/// The elements of the first k ranks, or where they are.
Value of_ranks(NodeReader& n, const Value& x, const Value& rank, std::size_t axis, std::int64_t k,
               bool places) {
  Builder& b = n.b;
  std::vector<View> reads;
  const Expr its = b.operand(rank, reads);
  Expr value;
  if (!places) {
    value = b.operand(x, reads);
    for (std::size_t d = 0; d < x.shape.size(); ++d)
      if (x.shape[d] != 1) b.demand_unified(reads[0], d, reads[1], d);
  }
  b.normalise(reads[0]);
  std::vector<Vars> dims = reads[0].dims;
  if (places) value = b.index_of(dims[axis]);
  dims[axis] = b.vars(k);
  Shape shape = x.shape;
  shape[axis] = k;
  value = call("select", {equal(its, b.index_of(dims[axis])), std::move(value), number(0)});
  return b.emit(n.name + (places ? "_indices" : "_values"), places ? std::int32_t{kInt64} : x.type,
                shape, dims, reads, std::move(value), Combine::sum);
}

/// Rows from which on work that grows more slowly than their square is worth more operators.
constexpr std::int64_t kLongRow = 64;
constexpr std::int64_t kFew = 16;  ///< that are found one after the other

/// The k largest or least of each row and where they are, one after the other: each the largest of
/// what is smaller than the one before, or equal and behind it. Work: k times the row.
std::pair<Value, Value> first_ones(NodeReader& n, const Value& x, std::size_t axis, std::int64_t k,
                                   bool largest) {
  Builder& b = n.b;
  const std::int64_t size = x.shape[axis];
  const Value index = counted(x.shape, axis);
  const Combine combine = largest ? Combine::max : Combine::min;
  const double none = identity_of(combine), nowhere = static_cast<double>(size);
  const auto before = [largest](const Expr& p, const Expr& q) {
    return largest ? call("lt", {q, p}) : call("lt", {p, q});
  };
  std::vector<Value> values, places;
  for (std::int64_t r = 0; r < k; ++r) {
    const std::string name = n.name + "_" + std::to_string(r);
    Value left = x;  // those that were taken are none
    if (r > 0)
      left = b.map(
          name + "_left", x.type, {x, values.back(), places.back(), index}, [&](const Args& a) {
            Expr equal_one = call("select", {call("lt", {a[2], a[3]}), a[0], number(none)});
            return call("select",
                        {before(a[1], a[0]), a[0],
                         call("select", {before(a[0], a[1]), number(none), std::move(equal_one)})});
          });
    const auto same = [](const Args& a) { return a[0]; };
    const Value most = b.reduce(name + "_value", left, {axis}, combine, same);
    const std::vector<Value> asked =
        r == 0 ? std::vector{x, most, index}
               : std::vector{x, most, index, values.back(), places.back()};
    const Value where = b.map(name + "_where", kFloat, asked, [&](const Args& a) {
      Expr here = a[2];
      if (r > 0)  // an equal one that was taken stands before
        here = call("select", {before(a[3], a[1]), std::move(here),
                               call("select", {call("lt", {a[4], a[2]}), a[2], number(nowhere)})});
      return call("select", {equal(a[0], a[1]), std::move(here), number(nowhere)});
    });
    places.push_back(cast(b.reduce(name + "_index", where, {axis}, Combine::min, same), kInt64));
    values.push_back(most);
  }
  return {joined(b, n.name + "_values", values, axis),
          joined(b, n.name + "_indices", places, axis)};
}

void say_top(NodeReader& n) {
  const Value& x = n.at(0);
  if (n.rank() == 0) throw Unsupported{"an order of a scalar"};
  const std::size_t axis = NodeReader::axis(n.integer("axis", -1), n.rank());
  const auto count = n.has(1) ? n.known_integers(1) : std::vector{n.integer("k", 1)};
  const std::int64_t k = count.empty() ? 0 : count.front(), size = x.shape[axis];
  const bool largest = n.integer("largest", 1) != 0;
  if (k < 1 || k > size) throw Unsupported{"as many as its axis does not have"};
  Value values, indices;
  if (size == 1) {
    values = x;
    indices = Builder::uniform(kInt64, x.shape, 0);
  } else if (k == 1) {
    values = n.b.reduce(n.name + "_value", x, {axis}, largest ? Combine::max : Combine::min,
                        [](const Args& a) { return a[0]; });
    indices = index_of(n, x, axis, largest, false);
  } else if (size >= kLongRow && k <= kFew) {
    std::tie(values, indices) = first_ones(n, stored(n.b, n.name + "_of", x), axis, k, largest);
  } else {
    if (elements_of(x.shape) > kMostCompared / size)
      throw Unsupported{"an order of computed values, of which too many would be compared"};
    const Value each = stored(n.b, n.name + "_of", x), rank = rank_of(n, each, axis, largest);
    values = of_ranks(n, each, rank, axis, k, false);
    indices = of_ranks(n, each, rank, axis, k, true);
  }
  n.out[0] = values;
  if (n.wants(1)) n.out[1] = indices;
}

/// 1 at the first largest element of each row. Before opset 13 a row is everything from the axis
/// on.
void say_hardmax(NodeReader& n) {
  Value x = n.at(0);
  const bool old = n.opset < 13;
  const Shape shape = x.shape;
  std::size_t axis = NodeReader::axis(n.integer("axis", old ? 1 : -1), n.rank());
  if (old) {
    const Shape before(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
    const std::int64_t rows = elements_of(before);
    x = n.b.reshaped(n.name + "_rows", x, {rows, elements_of(shape) / rows});
    axis = 1;
  }
  const Value at = index_of(n, x, axis, true, false);
  n.out[0] = n.b.map(n.name, x.type, {at, counted(x.shape, axis)},
                     [](const Args& a) { return equal(a[0], a[1]); });
  if (old) n.out[0] = n.b.reshaped(n.name, n.out[0], shape);
}

/// With each element what stands `by` before it (behind it, where reversed), or the identity.
Value shifted(Builder& b, const std::string& name, const Value& x, std::size_t axis,
              std::int64_t by, bool reverse, Combine combine, bool added) {
  const double start = identity_of(combine);
  const std::int64_t offset = reverse ? by : -by;
  std::vector<View> reads;
  Expr other = b.operand(x, reads), value;
  Vars to = b.vars(x.shape[axis]);
  const std::vector<VarTerm> terms{{to.front(), 1}};
  TW_CHECK(b.window(reads[0], axis, terms, offset, true),
           "a dimension of one variable is read anywhere");
  reads[0].dims[axis] = to;
  if (start != 0) other = b.guarded(terms, offset, x.shape[axis], std::move(other), start);
  value = std::move(other);
  if (added) {
    Expr here = b.operand(x, reads);
    for (std::size_t d = 0; d < x.shape.size(); ++d)
      if (x.shape[d] != 1) b.demand_unified(reads[0], d, reads[1], d);
    value = call(combine == Combine::product ? "mul" : "add", {std::move(here), std::move(value)});
  }
  for (View& v : reads) b.normalise(v);
  const std::vector<Vars> dims = reads[0].dims;
  return b.emit(name, x.type, x.shape, dims, reads, std::move(value), Combine::assign);
}

/// Twice as many elements behind one another are added up in each step (Hillis and Steele, Data
/// parallel algorithms, Communications of the ACM 29, 1986). Work: the row times the logarithm of
/// its length.
Value added_up(NodeReader& n, Value x, std::size_t axis, Combine combine, bool exclusive,
               bool reverse) {
  x = n.b.plain(n.name + "_of", x, {axis});
  const std::int64_t size = x.shape[axis];
  for (std::int64_t by = 1; by < size; by *= 2)
    x = shifted(n.b, n.name + "_by" + std::to_string(by), x, axis, by, reverse, combine, true);
  return exclusive ? shifted(n.b, n.name, x, axis, 1, reverse, combine, false) : x;
}

/// The sum, or product, of what stands before each element, one for each.
void say_running(NodeReader& n) {
  Builder& b = n.b;
  const Combine combine = n.node.op == "CumProd" ? Combine::product : Combine::sum;
  const double start = identity_of(combine);
  if (n.rank() == 0) throw Unsupported{"of a scalar"};
  const auto axes = n.known_integers(1);
  if (axes.size() != 1) throw Unsupported{"an axis that is not one"};
  const std::size_t axis = NodeReader::axis(axes.front(), n.rank());
  const bool exclusive = n.integer("exclusive", 0) != 0, reverse = n.integer("reverse", 0) != 0;
  const Value x = stored(b, n.name + "_of", n.at(0));
  const std::int64_t size = x.shape[axis];
  if (size == 1) {
    n.out[0] = exclusive ? Builder::uniform(x.type, x.shape, start) : n.at(0);
    return;
  }
  if (size >= kLongRow) {
    n.out[0] = added_up(n, x, axis, combine, exclusive, reverse);
    n.out[0].nonnegative = n.at(0).nonnegative;
    return;
  }
  if (elements_of(x.shape) > kMostCompared / size)
    throw Unsupported{"a running sum that is too long"};
  std::vector<View> reads;
  Expr value = b.operand(x, reads);
  const Vars to = b.vars(size);
  b.normalise(reads[0]);
  std::vector<Vars> dims = reads[0].dims;
  const Expr from = b.index_of(dims[axis]), here = b.index_of(to);
  dims[axis] = to;
  // Whether it is left out, or is taken.
  const Expr &low = reverse ? from : here, &high = reverse ? here : from;
  if (exclusive)
    value = call("select", {call("lt", {high, low}), std::move(value), number(start)});
  else
    value = call("select", {call("lt", {low, high}), number(start), std::move(value)});
  n.out[0] = b.emit(n.name, x.type, x.shape, dims, reads, std::move(value), combine);
  n.out[0].nonnegative = n.at(0).nonnegative;
}

/// Ones along a diagonal, in the shape of another tensor.
void say_eye(NodeReader& n) {
  const Value& x = n.at(0);
  if (x.shape.size() != 2 || elements_of(x.shape) > (1 << 22))
    throw Unsupported{"no matrix, or too large"};
  const std::int64_t k = n.integer("k", 0);
  std::vector<double> values;
  for (std::int64_t y = 0; y < x.shape[0]; ++y)
    for (std::int64_t i = 0; i < x.shape[1]; ++i) values.push_back(i == y + k);
  n.out[0] = Builder::known(static_cast<std::int32_t>(n.integer("dtype", x.type)), x.shape,
                            std::move(values));
}

/// What a known condition leaves of an axis, or of all elements in their order.
void say_compress(NodeReader& n) {
  Value x = n.at(0);
  const std::vector<double> keep = n.known_values(1);
  if (!n.has_attribute("axis")) x = n.b.reshaped(n.name + "_flat", x, {elements_of(x.shape)});
  const std::size_t axis = NodeReader::axis(n.integer("axis", 0), x.shape.size());
  std::vector<std::int64_t> which;
  for (std::size_t i = 0; i < keep.size() && static_cast<std::int64_t>(i) < x.shape[axis]; ++i)
    if (keep[i] != 0) which.push_back(static_cast<std::int64_t>(i));
  if (which.empty()) throw Unsupported{"a result without elements"};
  n.out[0] = n.b.taken(n.name, x, axis, which);
}

/// The first elements of each sequence, of lengths that are known, backwards.
void say_reverse_sequence(NodeReader& n) {
  Builder& b = n.b;
  const Value& x = n.at(0);
  const std::size_t time = NodeReader::axis(n.integer("time_axis", 0), n.rank()),
                    batch = NodeReader::axis(n.integer("batch_axis", 1), n.rank());
  if (time == batch) throw Unsupported{"axes that are the same"};
  if (elements_of({x.shape[time], x.shape[batch]}) > kMostReversed || elements_of(x.shape) < 0)
    throw Unsupported{"sequences of more than " + std::to_string(kMostReversed) +
                      " elements altogether"};
  const auto lengths = n.known_integers(1);
  if (static_cast<std::int64_t>(lengths.size()) != x.shape[batch])
    throw Unsupported{"lengths that are not one a sequence"};
  std::vector<Value> parts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > x.shape[time]) throw Unsupported{"a length beyond its axis"};
    std::vector<std::int64_t> order(static_cast<std::size_t>(x.shape[time]));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::reverse(order.begin(), order.begin() + lengths[i]);
    const Value one = b.sliced(n.name + "_one", x, batch, static_cast<std::int64_t>(i), 1, 1);
    parts.push_back(b.taken(n.name + "_back", one, time, order));
  }
  n.out[0] = joined(b, n.name, parts, batch);
}

void say_range(NodeReader&) { throw Unsupported{"bounds that are not known before the run"}; }

}  // namespace

std::vector<Said> order_operators() {
  return {{"ArgMax", say_arg},
          {"ArgMin", say_arg},
          {"TopK", say_top},
          {"Hardmax", say_hardmax},
          {"CumSum", say_running},
          {"CumProd", say_running},
          {"EyeLike", say_eye},
          {"Compress", say_compress},
          {"ReverseSequence", say_reverse_sequence},
          {"Range", say_range}};
}

}  // namespace tilewright::onnx
