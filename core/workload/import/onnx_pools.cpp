// Pooling: what combines windows of an image of any number of dimensions.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_windows.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

std::set<std::size_t> spatial_of(const Value& x) {
  std::set<std::size_t> all;
  for (std::size_t d = 2; d < x.shape.size(); ++d) all.insert(d);
  return all;
}

/// Of each window, combined; what is outside of the image is `outside`. `apart`: not combined, the
/// elements of a window are dimensions of their own, the last.
Value pooled(Builder& b, const std::string& name, const Value& image, const std::vector<Window>& ws,
             Combine combine, double outside, const Builder::Function& f, bool apart = false) {
  Value x = image.uniform ? b.copied(name + "_image", image) : image;
  x = movable(b, name, x, 2, moved_of(ws));
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<View> reads = {b.read(x)};
    View& vx = reads[0];
    std::vector<Vars> at, taps;
    Expr value = f({Expr{.kind = Expr::Kind::input, .input = 0}});
    bool combined = false;
    for (std::size_t i = 0; i < ws.size(); ++i) {
      const Window& w = ws[i];
      at.push_back(w.trivial() ? vx.dims[2 + i] : b.vars(w.out));
      taps.push_back(b.vars(w.kernel));
      combined = combined || w.kernel > 1;
      if (w.trivial() || !w.outside() || outside == 0) continue;
      std::vector<VarTerm> terms;
      for (const Var v : at[i]) terms.emplace_back(v, w.stride);
      for (const Var v : taps[i]) terms.emplace_back(v, w.dilation);
      value = b.guarded(terms, -w.begin, w.in, std::move(value), outside);
    }
    bool done = slide(b, vx, 2, ws, at, taps);
    for (const Vars& t : taps)  // what is repeated counts as often as a window has it
      for (const Var v : t) done = done && (combine != Combine::sum || b.reads_var(vx, v));
    if (!done) {
      x = movable(b, name + "_again", b.copied(name + "_copy", x), 2, moved_of(ws));
      continue;
    }
    Shape shape = {x.shape[0], x.shape[1]};
    std::vector<Vars> dims = {vx.dims[0], vx.dims[1]};
    for (std::size_t i = 0; i < ws.size(); ++i) {
      shape.push_back(ws[i].out);
      dims.push_back(at[i]);
    }
    for (std::size_t i = 0; i < ws.size() && apart; ++i) {
      shape.push_back(ws[i].kernel);
      dims.push_back(taps[i]);
    }
    return b.emit(name, x.type, shape, dims, reads, value,
                  combined && !apart ? combine : Combine::assign);
  }
  throw Unsupported{"an image that is read in parts"};
}

constexpr std::int64_t kMostNumbered = 1 << 24;  // whole numbers that f32 holds

/// 0, step, 2 step, ... along a dimension.
Value steps(std::size_t rank, std::size_t dim, std::int64_t count, double step) {
  Shape to(rank, 1);
  to[dim] = count;
  std::vector<double> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(static_cast<double>(i) * step);
  return Builder::known(kFloat, to, std::move(all));
}

/// Where in the image the largest element of each window is, the first of several. Of an image of
/// `whole` elements, counted row by row or, within a channel, column by column.
Value places_of_largest(NodeReader& n, const std::vector<Window>& ws) {
  Builder& b = n.b;
  const Value& x = n.at(0);
  const std::size_t rank = x.shape.size();
  if (elements_of(x.shape) > kMostNumbered) throw Unsupported{"indices of more than 2^24 elements"};
  const Value taps = pooled(
      b, n.name + "_windows", x, ws, Combine::max, -INFINITY, [](const Args& a) { return a[0]; },
      true);
  Shape shape(taps.shape.begin(), taps.shape.begin() + static_cast<std::ptrdiff_t>(rank)),
      flat = shape;
  flat.push_back(elements_of(taps.shape) / elements_of(shape));
  const Value which =
      said_as(n, n.name + "_tap", "ArgMax", {b.reshaped(n.name + "_windows", taps, flat)},
              {{.name = "axis", .integer = static_cast<std::int64_t>(rank)},
               {.name = "keepdims", .integer = 0}})
          .front();
  // Of each dimension: how far apart its neighbours are counted.
  std::vector<double> apart(rank, 1);
  const bool by_columns = n.integer("storage_order", 0) != 0;
  double next = 1;
  for (std::size_t i = 0; i < ws.size(); ++i) {
    const std::size_t d = by_columns ? 2 + i : rank - 1 - i;
    apart[d] = next;
    next *= static_cast<double>(x.shape[d]);
  }
  apart[1] = next;
  apart[0] = next * static_cast<double>(x.shape[1]);
  std::vector<Value> ins = {which};
  double constant = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    const double step = d < 2 ? 1 : static_cast<double>(ws[d - 2].stride);
    if (d >= 2) constant -= static_cast<double>(ws[d - 2].begin) * apart[d];
    ins.push_back(steps(rank, d, shape[d], step * apart[d]));
  }
  return b.map(n.name + "_places", kInt64, ins, [&](const Args& a) {
    Expr sum = number(constant), left = a[0];
    for (std::size_t d = rank; d-- > 2;) {  // the last dimension's taps are next to one another
      const Window& w = ws[d - 2];
      const auto k = static_cast<double>(w.kernel);
      // Half a step keeps the quotient on its side of a whole number.
      const Expr rows = k == 1 ? left : call("floor", {mul(add(left, number(0.5)), number(1 / k))});
      const Expr tap = sub(left, mul(rows, number(k)));
      if (k > 1)
        sum = add(std::move(sum), mul(tap, number(static_cast<double>(w.dilation) * apart[d])));
      left = rows;
    }
    for (std::size_t i = 1; i < a.size(); ++i) sum = add(std::move(sum), a[i]);
    return sum;
  });
}

void say_max_pool(NodeReader& n) {
  const Value& x = n.at(0);
  const Shape kernel = n.integers("kernel_shape");
  if (x.shape.size() < 3 || kernel.size() + 2 != x.shape.size())
    throw Unsupported{"a kernel of another rank"};
  // Nothing is smaller than zero where nothing is negative.
  const std::vector<Window> at = windows(n, kernel);
  if (!x.nonnegative && std::ranges::any_of(at, &Window::outside))
    n.note = "MaxPool: what is outside of an image that may be negative is left out by its index";
  n.out[0] = pooled(n.b, n.name, x, at, Combine::max, x.nonnegative ? 0 : -INFINITY,
                    [](const Args& a) { return a[0]; });
  n.out[0].nonnegative = x.nonnegative;
  if (n.wants(1)) n.out[1] = places_of_largest(n, at);
}

/// Each element at its index in a larger image of zeros. An index lies in the element's own window,
/// as MaxPool's do, where windows do not overlap; else each place is compared with each index.
void say_max_unpool(NodeReader& n) {
  Builder& b = n.b;
  const Value &x = n.at(0), &places = n.at(1);
  const std::size_t rank = x.shape.size();
  const Shape kernel = n.integers("kernel_shape");
  if (rank < 3 || kernel.size() + 2 != rank || places.shape != x.shape)
    throw Unsupported{"indices or a kernel of another shape"};
  const auto strides = n.integers("strides"), pads = n.integers("pads");
  Shape to = x.shape;
  bool overlap = false;
  std::vector<Window> ws;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    Window w{.kernel = kernel[i],
             .stride = nth(strides, i, 1),
             .begin = nth(pads, i, 0),
             .end = nth(pads, i + kernel.size(), 0),
             .out = x.shape[i + 2]};
    check(w);
    w.in = to[i + 2] = (w.out - 1) * w.stride - w.begin - w.end + w.kernel;
    if (w.begin < 0 || w.end < 0 || w.in < 1) throw Unsupported{"windows that do not fit"};
    overlap = overlap || w.kernel > w.stride;
    ws.push_back(w);
  }
  if (elements_of(to) < 1 || elements_of(to) > kMostNumbered)
    throw Unsupported{"indices of more than 2^24 elements"};
  std::int64_t plane = 1;
  for (std::size_t d = 2; d < rank; ++d) plane *= to[d];
  // Within a channel.
  const Value own = b.map(n.name + "_places", kInt64,
                          {places, steps(rank, 0, to[0], static_cast<double>(plane * to[1])),
                           steps(rank, 1, to[1], static_cast<double>(plane))},
                          [](const Args& a) { return sub(a[0], add(a[1], a[2])); });
  Value out;
  if (overlap) {
    const std::int64_t planes = to[0] * to[1], each = elements_of(x.shape) / planes;
    out = b.reshaped(n.name,
                     said_as(n, n.name + "_all", "ScatterElements",
                             {Builder::uniform(x.type, {planes, plane}, 0),
                              b.reshaped(n.name + "_places", own, {planes, each}),
                              b.reshaped(n.name + "_each", x, {planes, each})},
                             {{.name = "axis", .integer = 1}})
                         .front(),
                     to);
  } else {
    // As often as places are in its stride.
    const auto spread = [&](const char* what, Value v) {
      for (std::size_t i = 0; i < ws.size(); ++i) {
        const auto at = static_cast<std::ptrdiff_t>(i) + 3;
        Shape cut = v.shape, more, whole = v.shape;
        cut.insert(cut.begin() + at, 1);
        more = cut;
        more[i + 3] = ws[i].stride;
        whole[i + 2] *= ws[i].stride;
        v = b.reshaped(n.name + what, b.expanded(b.reshaped(n.name + what, v, cut), more), whole);
        v = b.sliced(n.name + what, v, i + 2, ws[i].begin, 1, ws[i].in);
      }
      return v;
    };
    std::vector<Value> ins = {spread("_places", own), spread("_each", x)};
    double apart = 1;
    for (std::size_t d = rank; d-- > 2;) {
      ins.push_back(steps(rank, d, to[d], apart));
      apart *= static_cast<double>(to[d]);
    }
    out = b.map(n.name + "_all", x.type, ins, [](const Args& a) {
      Expr place = a[2];
      for (std::size_t i = 3; i < a.size(); ++i) place = add(std::move(place), a[i]);
      return select(equal(a[0], place), a[1], number(0));
    });
  }
  if (n.has(2)) {
    const Shape asked = n.known_integers(2);
    if (asked.size() != rank) throw Unsupported{"an output of another rank"};
    for (std::size_t d = 0; d < rank; ++d) {
      if (asked[d] < to[d] || asked[d] > (1 << 24))
        throw Unsupported{"an output that is smaller than its windows"};
      Shape more = out.shape;
      more[d] = asked[d] - to[d];
      if (more[d] > 0)
        out = joined(b, n.name + "_larger", {out, Builder::uniform(x.type, more, 0)}, d);
    }
  }
  n.out[0] = out;
}

/// The norm of each window: of order 1 or 2, or by powers.
void say_lp_pool(NodeReader& n) {
  const Value& x = n.at(0);
  const Shape kernel = n.integers("kernel_shape");
  if (x.shape.size() < 3 || kernel.size() + 2 != x.shape.size())
    throw Unsupported{"a kernel of another rank"};
  const double p = n.opset < 2 ? n.real("p", 2) : static_cast<double>(n.integer("p", 2));
  if (!(p >= 1)) throw Unsupported{"a norm of an order below 1"};
  const Value sum = pooled(n.b, p == 1 ? n.name : n.name + "_sum", x, windows(n, kernel),
                           Combine::sum, 0, [&](const Args& a) {
                             if (p == 2) return call("square", {a[0]});
                             Expr size = call("abs", {a[0]});
                             return p == 1 ? size : call("pow", {std::move(size), number(p)});
                           });
  n.out[0] = p == 1 ? sum : n.b.map(n.name, x.type, {sum}, [&](const Args& a) {
    return p == 2 ? call("sqrt", {a[0]}) : call("pow", {a[0], number(1 / p)});
  });
  n.out[0].nonnegative = true;
}

void say_global_lp(NodeReader& n) {
  const Value& x = n.at(0);
  const double p = n.opset < 2 ? n.real("p", 2) : static_cast<double>(n.integer("p", 2));
  if (!(p >= 1)) throw Unsupported{"a norm of an order below 1"};
  const Value sum = n.b.reduce(n.name + "_sum", x, spatial_of(x), Combine::sum, [&](const Args& a) {
    return call("pow", {call("abs", {a[0]}), number(p)});
  });
  n.out[0] = n.b.map(n.name, x.type, {sum}, [&](const Args& a) {
    return call("pow", {a[0], number(1 / p)});
  });
}

/// By how much the sums of windows are divided, by dimension.
std::vector<double> counts(const Window& w, bool padding) {
  std::vector<double> all;
  for (std::int64_t y = 0; y < w.out; ++y) {
    int count = 0;
    for (std::int64_t r = 0; r < w.kernel; ++r) {
      const std::int64_t at = y * w.stride + r * w.dilation - w.begin;
      count += padding ? at < w.in + w.end : at >= 0 && at < w.in;
    }
    all.push_back(count);
  }
  return all;
}

void say_average_pool(NodeReader& n) {
  const Value& x = n.at(0);
  const Shape kernel = n.integers("kernel_shape");
  if (x.shape.size() < 3 || kernel.size() + 2 != x.shape.size())
    throw Unsupported{"a kernel of another rank"};
  const std::vector<Window> ws = windows(n, kernel);
  const bool padding = n.integer("count_include_pad", 0) != 0;
  const Value sum =
      pooled(n.b, n.name + "_sum", x, ws, Combine::sum, 0, [](const Args& a) { return a[0]; });
  std::vector<Value> ins = {sum};
  double all = 1;
  for (std::size_t i = 0; i < ws.size(); ++i) {
    std::vector<double> c = counts(ws[i], padding);
    if (std::ranges::find(c, 0.0) != c.end()) throw Unsupported{"a window that has no element"};
    if (std::ranges::count(c, c.front()) == static_cast<std::ptrdiff_t>(c.size())) {
      all *= c.front();
      continue;
    }
    for (double& v : c) v = 1 / v;
    Shape to(x.shape.size(), 1);
    to[i + 2] = ws[i].out;
    ins.push_back(Builder::known(kFloat, to, std::move(c)));
  }
  n.out[0] = n.b.map(n.name, x.type, ins, [&](const Args& a) {
    Expr mean = call("mul", {a[0], number(1 / all)});
    for (std::size_t i = 1; i < a.size(); ++i) mean = call("mul", {std::move(mean), a[i]});
    return mean;
  });
  n.out[0].nonnegative = x.nonnegative;
}

void say_global_average(NodeReader& n) {
  const Value& x = n.at(0);
  double count = 1;
  for (const std::size_t d : spatial_of(x)) count *= static_cast<double>(x.shape[d]);
  const Value sum = n.b.reduce(n.name + "_sum", x, spatial_of(x), Combine::sum,
                               [](const Args& a) { return a[0]; });
  n.out[0] = n.b.map(n.name, x.type, {sum}, [&](const Args& a) {
    return call("mul", {a[0], number(1 / count)});
  });
}

void say_global_max(NodeReader& n) {
  n.out[0] = n.b.reduce(n.name, n.at(0), spatial_of(n.at(0)), Combine::max,
                        [](const Args& a) { return a[0]; });
}

/// The squares of neighbouring channels are summed as a window over channels.
void say_lrn(NodeReader& n) {
  const Value& x = n.at(0);
  const std::int64_t size = n.integer("size", 1), c = x.shape.size() > 1 ? x.shape[1] : 0;
  const Window w{.kernel = size, .begin = (size - 1) / 2, .end = size / 2, .in = c, .out = c};
  check(w);
  // As an image [N, 1, C, rest].
  Shape to = {x.shape[0], 1, c, 1};
  for (std::size_t d = 2; d < x.shape.size(); ++d) to[3] *= x.shape[d];
  const Value image = n.b.reshaped(n.name + "_rows", x, to);
  const Window rest{.in = to[3], .out = to[3]};
  const Value squares = pooled(n.b, n.name + "_squares", image, {w, rest}, Combine::sum, 0,
                               [](const Args& a) { return call("square", {a[0]}); });
  const double alpha = n.real("alpha", 1e-4), beta = n.real("beta", 0.75), k = n.real("bias", 1);
  const Value back = n.b.reshaped(n.name + "_back", squares, x.shape);
  n.out[0] = n.b.map(n.name, x.type, {x, back}, [&](const Args& a) {
    Expr sum =
        call("add", {number(k), call("mul", {number(alpha / static_cast<double>(size)), a[1]})});
    return call("div", {a[0], call("pow", {std::move(sum), number(beta)})});
  });
}

}  // namespace

std::vector<Said> pool_operators() {
  return {{"MaxPool", say_max_pool},
          {"MaxUnpool", say_max_unpool},
          {"AveragePool", say_average_pool},
          {"LpPool", say_lp_pool},
          {"GlobalAveragePool", say_global_average},
          {"GlobalMaxPool", say_global_max},
          {"GlobalLpPool", say_global_lp},
          {"LRN", say_lrn}};
}

}  // namespace tilewright::onnx
