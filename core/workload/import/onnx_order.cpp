// Where the largest is, and what constants of an order become: ArgMax, TopK, ScatterElements.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

/// A tensor as [outer, size, inner] around one dimension.
struct Around {
  std::int64_t outer = 1, size = 1, inner = 1;
  Around(const Shape& shape, std::size_t axis) : size(shape[axis]) {
    for (std::size_t d = 0; d < axis; ++d) outer *= shape[d];
    for (std::size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  }
  std::size_t at(std::int64_t o, std::int64_t i, std::int64_t n) const {
    return static_cast<std::size_t>((o * size + i) * inner + n);
  }
};

/// The first index, or the last, at which each row has its largest or least value.
Value index_of(NodeReader& n, const Value& x, std::size_t axis, bool largest, bool last) {
  const std::int64_t size = x.shape[axis];
  Shape whole = x.shape;
  whole[axis] = 1;
  if (size == 1) return Builder::uniform(kInt64, whole, 0);
  const Value most = n.b.reduce(n.name + "_most", x, {axis}, largest ? Combine::max : Combine::min,
                                [](const Args& a) { return a[0]; });
  std::vector<double> count(static_cast<std::size_t>(size));
  std::iota(count.begin(), count.end(), 0.0);
  Shape along(x.shape.size(), 1);
  along[axis] = size;
  const Value index = Builder::known(kFloat, along, std::move(count));
  const double none = last ? -1 : static_cast<double>(size);
  const Value places =
      n.b.map(n.name + "_places", kFloat, {x, most, index}, [&](const Args& a) {
        Expr beyond = largest ? call("lt", {a[0], a[1]}) : call("lt", {a[1], a[0]});
        return call("select", {std::move(beyond), number(none), a[2]});
      });
  return cast(n.b.reduce(n.name + "_index", places, {axis}, last ? Combine::max : Combine::min,
                         [](const Args& a) { return a[0]; }),
              kInt64);
}

void say_arg(NodeReader& n) {
  const std::size_t axis = NodeReader::axis(n.integer("axis", 0), n.rank());
  Value out = index_of(n, n.at(0), axis, n.node.op == "ArgMax",
                       n.integer("select_last_index", 0) != 0);
  if (n.integer("keepdims", 1) == 0) out = squeezed(n.b, out, axis);
  n.out[0] = out;
}

/// Of known values any; of computed ones the largest alone.
void say_top(NodeReader& n) {
  const Value& x = n.at(0);
  const std::size_t axis = NodeReader::axis(n.integer("axis", -1), n.rank());
  const std::int64_t k = n.has(1) ? n.known_integers(1).at(0) : n.integer("k", 1);
  const bool largest = n.integer("largest", 1) != 0;
  if (k < 1 || k > x.shape[axis]) throw Unsupported{"as many as its axis does not have"};
  Value values, indices;
  if (x.known()) {
    const std::vector<double> all = values_of(x);
    const Around from(x.shape, axis);
    Shape shape = x.shape;
    shape[axis] = k;
    const Around to(shape, axis);
    std::vector<double> best(static_cast<std::size_t>(elements_of(shape))), at(best.size());
    for (std::int64_t o = 0; o < from.outer; ++o)
      for (std::int64_t i = 0; i < from.inner; ++i) {
        std::vector<std::int64_t> order(static_cast<std::size_t>(from.size));
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](std::int64_t p, std::int64_t q) {
          const double a = all[from.at(o, p, i)], b = all[from.at(o, q, i)];
          return largest ? a > b : a < b;
        });
        for (std::int64_t r = 0; r < k; ++r) {
          const std::int64_t p = order[static_cast<std::size_t>(r)];
          best[to.at(o, r, i)] = all[from.at(o, p, i)];
          at[to.at(o, r, i)] = static_cast<double>(p);
        }
      }
    values = Builder::known(x.type, shape, std::move(best));
    indices = Builder::known(kInt64, shape, std::move(at));
  } else if (x.shape[axis] == 1) {
    values = x;
    indices = Builder::uniform(kInt64, x.shape, 0);
  } else if (k == 1) {
    values = n.b.reduce(n.name + "_value", x, {axis}, largest ? Combine::max : Combine::min,
                        [](const Args& a) { return a[0]; });
    indices = index_of(n, x, axis, largest, false);
  } else {
    throw Unsupported{"an order of computed values"};
  }
  n.out[0] = values;
  if (n.wants(1)) n.out[1] = indices;
}

void say_scatter(NodeReader& n) {
  const Value &data = n.at(0), &indices = n.at(1), &updates = n.at(2);
  if (!data.known() || !indices.known() || !updates.known())
    throw Unsupported{"elements whose places are not known before the run"};
  if (n.text("reduction", "none") != "none") throw Unsupported{"a reduction"};
  if (indices.shape != updates.shape || indices.shape.size() != data.shape.size())
    throw Unsupported{"as many indices as updates"};
  const std::size_t axis = NodeReader::axis(n.integer("axis", 0), n.rank());
  std::vector<double> out = values_of(data);
  const std::vector<double> at = values_of(indices), with = values_of(updates);
  std::vector<std::int64_t> point(data.shape.size(), 0);
  for (std::size_t i = 0; i < at.size(); ++i) {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < point.size(); ++d) {
      auto p = d == axis ? static_cast<std::int64_t>(at[i]) : point[d];
      if (p < 0) p += data.shape[d];
      if (p < 0 || p >= data.shape[d]) throw Unsupported{"an index outside of its tensor"};
      flat = flat * data.shape[d] + p;
    }
    out[static_cast<std::size_t>(flat)] = with[i];
    for (std::size_t d = point.size(); d-- > 0;) {
      if (++point[d] < indices.shape[d]) break;
      point[d] = 0;
    }
  }
  n.out[0] = Builder::known(data.type, data.shape, std::move(out));
}

void say_range(NodeReader&) { throw Unsupported{"bounds that are not known before the run"}; }

}  // namespace

std::vector<Said> order_operators() {
  return {{"ArgMax", say_arg},
          {"ArgMin", say_arg},
          {"TopK", say_top},
          {"ScatterElements", say_scatter},
          {"Range", say_range}};
}

}  // namespace tilewright::onnx
