// Convolutions: what multiplies windows of an image of any number of dimensions.
#include "core/workload/import/onnx_windows.h"

#include <algorithm>
#include <cmath>

namespace tilewright::onnx {

std::int64_t nth(const std::vector<std::int64_t>& list, std::size_t i, std::int64_t otherwise) {
  return i < list.size() ? list[i] : otherwise;
}

void check(const Window& w) {
  constexpr std::int64_t kMost = 1 << 24;
  for (const std::int64_t n : {w.kernel, w.stride, w.dilation})
    if (n < 1 || n > kMost) throw Unsupported{"a kernel, stride or dilation below 1"};
  if (std::abs(w.begin) > kMost || std::abs(w.end) > kMost || w.out < 1 || w.out > kMost)
    throw Unsupported{"windows that do not fit into the image"};
}

std::vector<Window> windows(const NodeReader& n, const Shape& kernel) {
  const auto strides = n.integers("strides"), dilations = n.integers("dilations"),
             pads = n.integers("pads");
  const std::string same = n.text("auto_pad", "NOTSET");
  const bool ceil = n.integer("ceil_mode", 0) != 0;
  std::vector<Window> all;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    Window w{.kernel = kernel[i],
             .stride = nth(strides, i, 1),
             .dilation = nth(dilations, i, 1),
             .in = n.at(0).shape[i + 2]};
    check(w);
    if (same == "SAME_UPPER" || same == "SAME_LOWER") {
      w.out = (w.in + w.stride - 1) / w.stride;
      const std::int64_t pad = std::max<std::int64_t>(0, (w.out - 1) * w.stride + w.reach() - w.in);
      w.begin = same == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
      w.end = pad - w.begin;
    } else {
      if (same != "VALID") {
        w.begin = nth(pads, i, 0);
        w.end = nth(pads, i + kernel.size(), 0);
      }
      const std::int64_t room = w.in + w.begin + w.end - w.reach();
      if (room < 0) throw Unsupported{"windows that do not fit into the image"};
      w.out = (ceil ? room + w.stride - 1 : room) / w.stride + 1;
      // No window begins behind the image and its padding before.
      if (ceil && (w.out - 1) * w.stride >= w.in + w.begin) --w.out;
    }
    check(w);
    all.push_back(w);
  }
  return all;
}

/// Dimensions from `first` on with one variable each where windows move over them.
Value movable(Builder& b, const std::string& name, const Value& v, std::size_t first,
              const std::vector<bool>& moved) {
  View view = b.read(v);
  b.normalise(view);
  std::set<std::size_t> kept;
  bool copy = false;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    if (!moved[i]) continue;
    kept.insert(first + i);
    copy = copy || view.dims[first + i].size() != 1;
  }
  return copy ? b.plain(name + "_whole", v, kept) : v;
}

/// Reads x at the windows; false where that needs a copy.
bool slide(Builder& b, View& x, std::size_t first, const std::vector<Window>& ws,
           const std::vector<Vars>& at, const std::vector<Vars>& taps) {
  for (std::size_t i = 0; i < ws.size(); ++i) {
    const Window& w = ws[i];
    if (w.trivial()) continue;
    std::vector<VarTerm> terms;
    for (const Var v : at[i]) terms.emplace_back(v, w.stride);
    for (const Var v : taps[i]) terms.emplace_back(v, w.dilation);
    if (!b.window(x, first + i, terms, -w.begin, w.outside())) return false;
  }
  return true;
}

std::vector<bool> moved_of(const std::vector<Window>& ws) {
  std::vector<bool> moved;
  for (const Window& w : ws) moved.push_back(!w.trivial());
  return moved;
}

namespace {

using Args = std::vector<Expr>;

/// Of a convolution, the taps that read the image in any window: those at either end that meet
/// padding alone add nothing. All of them where none reads it.
std::pair<std::int64_t, std::int64_t> taps_inside(const Window& w) {
  std::int64_t first = 0, end = w.kernel;
  while (first < end && (w.out - 1) * w.stride - w.begin + first * w.dilation < 0) ++first;
  while (end > first && (end - 1) * w.dilation - w.begin >= w.in) --end;
  return first == end ? std::pair{std::int64_t{0}, w.kernel} : std::pair{first, end};
}

/// With the bias of each channel, if the node has one.
Value biased(NodeReader& n, const std::string& name, const Value& conv, std::size_t channels) {
  constexpr std::size_t kBias = 2;
  if (!n.has(kBias)) return conv;
  Shape to(conv.shape.size(), 1);
  to[channels] = conv.shape[channels];
  if (elements_of(n.at(kBias).shape) != to[channels]) throw Unsupported{"a bias of another size"};
  return sum_of(n.b, name, conv, n.b.reshaped(n.name + "_bias", n.at(kBias), to));
}

/// Whether each variable that is summed over indexes an operand: what is repeated in both counts as
/// often as it is repeated.
bool sums_all(const Builder& b, const std::vector<View>& reads, const std::vector<Vars>& over) {
  return std::ranges::all_of(over, [&](const Vars& vars) {
    return std::ranges::all_of(vars, [&](Var v) {
      return std::ranges::any_of(reads, [&](const View& read) { return b.reads_var(read, v); });
    });
  });
}

/// The image with as much of `fill` around it as the windows reach; they read it from its corner.
/// Nothing where it lies in parts.
std::optional<Value> padded_as_it_lies(Builder& b, const std::string& name, const Value& image,
                                       std::vector<Window>& ws, double fill) {
  const Value x = movable(b, name, image, 2, std::vector<bool>(ws.size(), true));
  std::vector<View> reads = {b.read(x)};
  Expr value{.kind = Expr::Kind::input, .input = 0};
  Shape shape = x.shape;
  std::vector<std::pair<std::size_t, Var>> moved;
  for (std::size_t i = 0; i < ws.size(); ++i) {
    Window& w = ws[i];
    if (!w.outside()) continue;
    const std::int64_t end = std::max(w.in, (w.out - 1) * w.stride - w.begin + w.reach());
    const Var at = b.var(w.begin + end);
    if (!b.window(reads[0], 2 + i, {{at, 1}}, -w.begin, true)) return std::nullopt;
    value = b.guarded({{at, 1}}, -w.begin, w.in, std::move(value), fill);
    shape[2 + i] = w.in = w.begin + end;
    w.begin = w.end = 0;
    moved.emplace_back(2 + i, at);
  }
  std::vector<Vars> dims = reads[0].dims;
  for (const auto& [d, at] : moved) dims[d] = {at};
  return b.emit(name, image.type, shape, dims, reads, value, Combine::assign);
}

Value padded(Builder& b, const std::string& name, const Value& image, std::vector<Window>& ws,
             double fill) {
  for (const bool plain : {false, true}) {
    std::vector<Window> moved = ws;
    const Value& whole = plain ? b.plain(name + "_whole", image) : image;
    const auto made = padded_as_it_lies(b, name, whole, moved, fill);
    if (!made) continue;
    ws = std::move(moved);
    return *made;
  }
  throw Unsupported{"an image that is read in parts"};
}

/// Of each window and each output channel, the sum of products; what is outside of the image is
/// zero.
Value convolved(Builder& b, const std::string& own, const std::string& name, Value x, Value w,
                std::vector<Window> ws, std::int64_t g, std::int32_t type) {
  const std::size_t spatial = ws.size();
  const std::int64_t c = x.shape[1], m = w.shape[0];
  // Where windows meet the padding alone there is no element to read. Of many taps kernels for
  // processors ask for each whether it lies outside.
  constexpr std::int64_t kManyTaps = 64;
  std::int64_t all_taps = 1;
  for (const Window& d : ws) all_taps *= d.kernel;
  if (!std::ranges::all_of(ws, &Window::meets) ||
      (g == 1 && all_taps > kManyTaps && std::ranges::any_of(ws, &Window::outside)))
    x = padded(b, own + "_padded", x, ws, 0);
  x = movable(b, own, x, 2, moved_of(ws));
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<View> reads = {b.read(x), b.read(w)};
    View &vx = reads[0], &vw = reads[1];
    // Groups are a dimension of their own.
    Shape xs = x.shape, ks = w.shape;
    xs[1] = c / g;
    xs.insert(xs.begin() + 1, g);
    ks[0] = m / g;
    ks.insert(ks.begin(), g);
    bool done = b.regroup(vx, xs) && b.regroup(vw, ks);
    if (done && g > 1) done = b.unify(vx, 1, vw, 0);
    if (done && c / g > 1) done = b.unify(vx, 2, vw, 2);
    std::vector<Vars> at, taps;
    for (std::size_t i = 0; i < spatial; ++i) {
      if (!done) break;
      b.normalise(vw);
      if (ws[i].trivial())
        at.push_back(vx.dims[3 + i]);
      else
        at.push_back(b.vars(ws[i].out));
      taps.push_back(vw.dims[3 + i]);
      done = taps.back().size() <= 1;
    }
    done = done && slide(b, vx, 3, ws, at, taps);
    if (!done || !sums_all(b, reads, {vw.dims[2]}) || !sums_all(b, reads, taps)) {
      x = turn == 0 ? b.plain(own + "_whole", x, {}) : padded(b, own + "_padded", x, ws, 0);
      x = movable(b, own + "_again", x, 2, moved_of(ws));
      w = b.plain(own + "_kernel", w);
      continue;
    }
    Shape shape = {x.shape[0], m};
    std::vector<Vars> dims = {vx.dims[0], vw.dims[0]};
    dims[1].insert(dims[1].end(), vw.dims[1].begin(), vw.dims[1].end());
    for (std::size_t i = 0; i < spatial; ++i) {
      shape.push_back(ws[i].out);
      dims.push_back(at[i]);
    }
    bool sums = !vw.dims[2].empty();
    for (const Vars& t : taps) sums = sums || !t.empty();
    Expr value = call("mul", {Expr{.kind = Expr::Kind::input, .input = 0},
                              Expr{.kind = Expr::Kind::input, .input = 1}});
    return b.emit(name, type, shape, dims, reads, value, sums ? Combine::sum : Combine::assign);
  }
  throw Unsupported{"an image whose cuts do not fit its groups"};
}

/// The same of whole numbers of 8 bits, whose sums are scaled afterwards. What is outside of the
/// image is its zero point there: sum (q - z) w = sum q w - z sum w. Nothing of other values, and
/// of windows that sum one channel each or few outputs of it, which gain nothing.
std::optional<Value> whole_convolution(NodeReader& n, const std::string& name, const Value& x,
                                       const Value& w, std::vector<Window> ws, std::int64_t g) {
  constexpr std::int64_t kLeastChannels = 2, kLeastOutputs = 4;  // of a group
  Builder& b = n.b;
  const auto image = b.scaled_of(x), kernel = b.scaled_of(w);
  if (!image || !kernel || image->axis || (kernel->axis && *kernel->axis != 0)) return std::nullopt;
  const auto zero = image->zero.uniform;
  if (!zero || !kernel->zero.uniform || *kernel->zero.uniform != 0) return std::nullopt;
  if (w.shape[1] < kLeastChannels || w.shape[0] / g < kLeastOutputs) return std::nullopt;
  const bool outside = std::ranges::any_of(ws, &Window::outside);
  if (std::ranges::any_of(ws, [](const Window& d) { return d.begin < 0; })) return std::nullopt;
  Value whole = image->whole;
  if (outside && *zero != 0) whole = padded(b, n.name + "_padded", whole, ws, *zero);
  const Value sums = convolved(b, n.name, n.name + "_sums", whole, kernel->whole, ws, g, kFloat);
  const auto by_channel = [&](const Value& v) {
    Shape to(x.shape.size(), 1);
    to[1] = elements_of(v.shape);
    return b.reshaped(n.name + "_s", v, to[1] == 1 ? Shape{} : to);
  };
  const Value scale =
      b.map(n.name + "_scale", kFloat, {by_channel(kernel->scale), by_channel(image->scale)},
            [](const Args& a) {
              return call("mul", {a[0], a[1]});
            });
  std::vector<Value> ins = {sums, scale};
  if (*zero != 0) {
    std::set<std::size_t> over;
    for (std::size_t d = 1; d < w.shape.size(); ++d) over.insert(d);
    ins.push_back(by_channel(b.reduce(n.name + "_offset", cast(kernel->whole, kFloat), over,
                                      Combine::sum, [&](const Args& a) {
                                        return call("mul", {a[0], number(*zero)});
                                      })));
  }
  return b.map(name, x.type, ins, [](const Args& a) {
    return call("mul", {a.size() > 2 ? call("sub", {a[0], a[2]}) : a[0], a[1]});
  });
}

void say_conv(NodeReader& n) {
  Builder& b = n.b;
  Value x = n.at(0), w = n.at(1);
  if (x.shape.size() < 3 || w.shape.size() != x.shape.size())
    throw Unsupported{"operands that are not images"};
  const std::size_t spatial = x.shape.size() - 2;
  const std::int64_t g = n.integer("group", 1), c = x.shape[1], m = w.shape[0];
  if (g < 1 || m % g != 0 || c != w.shape[1] * g) throw Unsupported{"groups that do not divide"};
  std::vector<Window> ws = windows(n, {w.shape.begin() + 2, w.shape.end()});
  if (x.uniform) x = b.copied(n.name + "_image", x);
  if (w.uniform) w = b.copied(n.name + "_kernel", w);
  for (std::size_t i = 0; i < spatial; ++i) {
    const auto [first, end] = taps_inside(ws[i]);
    if (end - first == ws[i].kernel) continue;
    w = b.sliced(n.name + "_taps", w, 2 + i, first, 1, end - first);
    ws[i].begin -= first * ws[i].dilation;
    ws[i].kernel = end - first;
  }
  const std::string name = n.has(2) ? n.name + "_conv" : n.name;
  auto made = whole_convolution(n, name, x, w, ws, g);
  if (!made) made = convolved(b, n.name, name, x, w, ws, g, x.type);
  n.out[0] = biased(n, n.name, *made, 1);
}

/// With zeros between the elements of a dimension, so many that they are `apart` from one another.
Value spread(Builder& b, const std::string& name, const Value& v, std::size_t dim,
             std::int64_t apart) {
  if (v.shape[dim] == 1) return v;
  Shape cut = v.shape, zeros = v.shape, whole = v.shape;
  cut.insert(cut.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 1);
  zeros = cut;
  zeros[dim + 1] = apart - 1;
  whole[dim] *= apart;
  const Value all =
      joined(b, name, {b.reshaped(name, v, cut), Builder::uniform(v.type, zeros, 0)}, dim + 1);
  return b.sliced(name, b.reshaped(name, all, whole), dim, 0, 1, (v.shape[dim] - 1) * apart + 1);
}

/// Sums of a transposed convolution, and where the result lies in them.
struct Spread {
  Value sums;  ///< image, phases of all dimensions, channels, then q of each
  std::vector<std::int64_t> phases, starts;  ///< of each dimension
};

/// Dimensions whose phases would be one dimension too many for a tensor.
std::vector<bool> too_many(std::int64_t images, std::int64_t groups, std::int64_t channels,
                           const std::vector<Window>& ws) {
  std::vector<bool> whole(ws.size(), false);
  int dims = (images > 1) + (groups > 1) + (channels > 1) + static_cast<int>(ws.size());
  for (const Window& d : ws) dims += d.stride > 1;
  for (std::size_t i = ws.size(); i-- > 0 && dims > kMaxRank;)
    if (ws[i].stride > 1) whole[i] = true, --dims;
  return whole;
}

/// Of a dimension, y + begin of the result is stride * (q + first) + r, with r in [0, stride): its
/// phase. X is read at q + first - j and the kernel at r + stride * j, for each j, so that each
/// phase is a convolution of its own, which nothing stands between. Kernels are as long as whole
/// strides. Nothing where an operand's cuts do not fit: then copies of them are read.
std::optional<Spread> spread_out(Builder& b, const std::string& name, const Value& x,
                                 const Value& w, const std::vector<Window>& ws, std::int64_t g) {
  std::vector<View> reads = {b.read(x), b.read(w)};
  View &vx = reads[0], &vw = reads[1];
  const std::int64_t c = x.shape[1];
  Shape xs = x.shape, ks = w.shape;
  xs[1] = c / g;
  xs.insert(xs.begin() + 1, g);
  ks[0] = c / g;
  ks.insert(ks.begin(), g);
  if (!b.regroup(vx, xs) || !b.regroup(vw, ks)) return std::nullopt;
  if (g > 1 && !b.unify(vx, 1, vw, 0)) return std::nullopt;
  if (c / g > 1 && !b.unify(vx, 2, vw, 1)) return std::nullopt;
  if (!sums_all(b, reads, {vw.dims[1]})) return std::nullopt;
  const std::vector<bool> whole = too_many(x.shape[0], g, w.shape[1], ws);
  bool sums = !vw.dims[1].empty();
  Spread made;
  Shape shape = {x.shape[0], 1, w.shape[1] * g};
  std::vector<Vars> dims = {vx.dims[0], {}, vw.dims[0]};
  dims[2].insert(dims[2].end(), vw.dims[2].begin(), vw.dims[2].end());
  const auto floored = [](std::int64_t p, std::int64_t q) { return (p - (p % q + q) % q) / q; };
  for (std::size_t i = 0; i < ws.size(); ++i) {
    const Window& d = ws[i];
    if (whole[i]) {  // every element of the image for every one of the result
      const Vars y = b.vars(d.out);
      std::vector<VarTerm> terms;
      b.normalise(vx);
      for (const Var v : vx.dims[3 + i]) terms.emplace_back(v, -d.stride);
      for (const Var v : y) terms.emplace_back(v, 1);
      sums = sums || !vx.dims[3 + i].empty();
      if (!b.window(vw, 3 + i, terms, d.begin, true)) return std::nullopt;
      made.phases.push_back(1);
      made.starts.push_back(0);
      shape.push_back(d.out);
      dims.push_back(y);
      continue;
    }
    const std::int64_t first = floored(d.begin, d.stride), start = d.begin - d.stride * first;
    const std::int64_t points = ceil_div(start + d.out, d.stride);
    const Vars r = b.vars(d.stride), q = b.vars(points);
    Vars taps = b.vars(d.kernel / d.stride);
    std::vector<VarTerm> of_image, of_kernel;
    for (const Var v : q) of_image.emplace_back(v, 1);
    for (const Var v : r) of_kernel.emplace_back(v, 1);
    for (const Var v : taps) {
      of_image.emplace_back(v, -d.dilation);
      of_kernel.emplace_back(v, d.stride);
    }
    if (!b.window(vx, 3 + i, of_image, first, true) ||
        (!vw.dims[3 + i].empty() && !b.window(vw, 3 + i, of_kernel, 0, false)))
      return std::nullopt;
    sums = sums || !taps.empty();
    made.phases.push_back(d.stride);
    made.starts.push_back(start);
    shape[1] *= d.stride;
    dims[1].insert(dims[1].end(), r.begin(), r.end());
    shape.push_back(points);
    dims.push_back(q);
  }
  Expr value = call("mul", {Expr{.kind = Expr::Kind::input, .input = 0},
                            Expr{.kind = Expr::Kind::input, .input = 1}});
  made.sums =
      b.emit(name, x.type, shape, dims, reads, value, sums ? Combine::sum : Combine::assign);
  return made;
}

/// The phases beside one another, and of all points those of the result.
Value together(Builder& b, const std::string& name, const Spread& s,
               const std::vector<Window>& ws) {
  const std::size_t spatial = ws.size();
  const Shape& from = s.sums.shape;
  Shape cut = {from[0]}, whole = {from[0], from[2]};
  cut.insert(cut.end(), s.phases.begin(), s.phases.end());
  cut.insert(cut.end(), from.begin() + 2, from.end());
  std::vector<std::int64_t> order = {0, static_cast<std::int64_t>(spatial) + 1};
  for (std::size_t i = 0; i < spatial; ++i) {
    order.push_back(static_cast<std::int64_t>(spatial + 2 + i));
    order.push_back(static_cast<std::int64_t>(1 + i));
    whole.push_back(from[3 + i] * s.phases[i]);
  }
  Value v = b.transposed(b.reshaped(name, s.sums, cut), order);
  if (from[1] > 1) v = b.copied(name + "_together", v);
  v = b.reshaped(name, v, whole);
  for (std::size_t i = 0; i < spatial; ++i)
    v = b.sliced(name + "_part", v, 2 + i, s.starts[i], 1, ws[i].out);
  return v;
}

void say_conv_transpose(NodeReader& n) {
  Builder& b = n.b;
  Value x = n.at(0), w = n.at(1);
  if (x.shape.size() < 3 || w.shape.size() != x.shape.size())
    throw Unsupported{"operands that are not images"};
  const std::size_t spatial = x.shape.size() - 2;
  const std::int64_t g = n.integer("group", 1), c = x.shape[1];
  if (g < 1 || c % g != 0 || w.shape[0] != c) throw Unsupported{"groups that do not divide"};
  const auto strides = n.integers("strides"), dilations = n.integers("dilations"),
             more = n.integers("output_padding"), asked = n.integers("output_shape");
  auto pads = n.integers("pads");
  const std::string same = n.text("auto_pad", "NOTSET");
  std::vector<Window> ws;
  for (std::size_t i = 0; i < spatial; ++i) {
    Window d{.kernel = w.shape[i + 2],
             .stride = nth(strides, i, 1),
             .dilation = nth(dilations, i, 1),
             .begin = same == "NOTSET" ? nth(pads, i, 0) : 0,
             .end = same == "NOTSET" ? nth(pads, i + spatial, 0) : 0,
             .in = x.shape[i + 2]};
    check(d);
    const std::int64_t whole = (d.in - 1) * d.stride + d.reach() + nth(more, i, 0);
    std::int64_t out = whole - d.begin - d.end;
    if (same.starts_with("SAME")) out = d.in * d.stride;
    if (asked.size() == spatial) out = asked[i];
    if (same.starts_with("SAME") || asked.size() == spatial) {
      const std::int64_t pad = std::max<std::int64_t>(0, whole - out);  // else zeros at the end
      d.begin = same == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
    }
    d.out = out;
    check(d);
    ws.push_back(d);
  }
  for (std::size_t i = 0; i < spatial; ++i)
    if (ws[i].stride > 1 && ws[i].dilation > 1) {
      w = spread(b, n.name + "_spread", w, 2 + i, ws[i].dilation);
      ws[i].kernel = ws[i].reach();
      ws[i].dilation = 1;
    }
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t whole = ceil_div(ws[i].kernel, ws[i].stride) * ws[i].stride;
    if (whole == ws[i].kernel) continue;
    Shape zeros = w.shape;
    zeros[2 + i] = whole - ws[i].kernel;
    w = joined(b, n.name + "_kernel", {w, Builder::uniform(w.type, zeros, 0)}, 2 + i);
    ws[i].kernel = whole;
  }
  x = movable(b, n.name, x.uniform ? b.copied(n.name + "_image", x) : x, 2,
              std::vector<bool>(spatial, true));
  w = movable(b, n.name + "_kernel", w.uniform ? b.copied(n.name + "_kernel", w) : w, 2,
              std::vector<bool>(spatial, true));
  const std::string name = n.name + "_phases";
  auto made = spread_out(b, name, x, w, ws, g);
  if (!made) {
    const auto whole = [&](const char* what, const Value& v) {
      return movable(b, n.name + what, b.copied(n.name + what, v), 2,
                     std::vector<bool>(spatial, true));
    };
    made = spread_out(b, name, whole("_image", x), whole("_kernel", w), ws, g);
  }
  if (!made) throw Unsupported{"an image that is read in parts"};
  made->sums = biased(n, n.name + "_biased", made->sums, 2);  // where they are made
  n.out[0] = together(b, n.name, *made, ws);
}

}  // namespace

std::vector<Said> window_operators() {
  return {{"Conv", say_conv}, {"ConvTranspose", say_conv_transpose}};
}

}  // namespace tilewright::onnx
