// Convolutions that read images with their channels side by side.
//
//                                                    I_last[b,h,v,c] = I[b,c,h,v]
//   O[b,o,y,x] += I[b,c,y+r-1,x+s-1] * W[o,c,r,s] =>  W_last[o,r,s,c] = W[o,c,r,s]
//                                                    O[b,o,y,x] += I_last[b,y+r-1,x+s-1,c] *
//                                                                  W_last[o,r,s,c]
//
// For each tap of the window a kernel can then copy boxes of both operands, whose rows are
// channels. Rows begin at multiples of 16 bytes: tensors have more channels where loops have
// another number, and what lies behind is neither written nor read. An image that another operator
// writes is written so, and not copied.
//
// Of fewer channels than 16 bytes have, the taps of a row of the window lie side by side with them,
// in rows of at most 128 bytes. Copies then have zeros: of a channel that there is not, and around
// the image.
//
//                                                    I_last[b,h,v,d] = I[b,h,v-3,d]
//   O[b,o,y,x] += I[b,2*y+r-3,2*x+s-3,c] * W[o,c,r,s]
//                                                =>  W_last[o,r,s,d] = W[o,d,r,s]
//                                                    O[b,o,y,x] += I_last[b,2*y+r-3,2*x+s,d] *
//                                                                  W_last[o,r,s,d]
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/base/format.h"
#include "core/workload/access.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

constexpr std::int64_t kRowsAt = 16;
constexpr std::int64_t kRow = 128;  // of a box of Hopper's TMA unit

/// A convolution: which input is the image, its dimension of channels, and the window's loops in
/// the order of the image's dimensions.
struct Window {
  std::size_t image = 0;
  std::size_t channel_at = 0;
  LoopId rows, channel;
  std::vector<LoopId> taps, ones;  ///< ones: loops of the weights that have one iteration
  /// Of few channels, how many copies have, and the image's dimension whose taps lie beside them.
  std::int64_t few = 0;
  std::size_t beside = 0;
};

std::int64_t extent(const WorkloadSpec& spec, LoopId l) { return spec.loops[l.index()].extent; }

/// Whether it reads more than whole loops: a window, steps, padding.
bool through_window(const Affine& i) {
  return i.terms.size() > 1 || i.offset != 0 || (i.terms.size() == 1 && i.terms[0].coefficient > 1);
}

/// Whether so few channels can lie beside the taps of the innermost direction, and how.
bool takes_few(const WorkloadSpec& spec, const Operator& op, Window& of) {
  const Access& read = op.inputs[of.image];
  const Tensor& tensor = spec.tensors[read.tensor.index()];
  // With channels first other kernels are faster: a stem of 32 images takes 76 us there, 126 so.
  if (read.index.size() < 2 || of.channel_at + 1 != read.index.size()) return false;
  of.beside = read.index.size() - 2;
  std::int64_t step = 0, taps = 0;
  for (const Term& t : read.index[of.beside].terms) {
    if (extent(spec, t.loop) == 1) continue;
    const bool point = indexes(op.outputs.front().target, t.loop);
    if (t.coefficient < 1 || (point ? step : taps) != 0 || (!point && t.coefficient != 1))
      return false;
    (point ? step : taps) = point ? t.coefficient : extent(spec, t.loop);
  }
  if (step == 0 || taps == 0) return false;
  const std::int64_t size = size_of(tensor.dtype);
  for (of.few = 2; of.few < extent(spec, of.channel) || of.few * step * size % kRowsAt != 0;)
    of.few *= 2;
  return of.few * taps * size <= kRow;
}

/// Not so a result that has longer rows than are written.
bool written_whole(const WorkloadSpec& spec, TensorId t) {
  const std::vector<std::int64_t>& shape = spec.tensors[t.index()].shape;
  const auto whole = [&](const Output& o) {
    for (std::size_t d = 0; o.target.tensor == t && d < shape.size(); ++d) {
      const auto loop = o.target.index[d].plain_loop();
      if ((loop ? extent(spec, *loop) : 1) != shape[d]) return false;
    }
    return true;
  };
  return std::ranges::all_of(
      spec.operators, [&](const Operator& op) { return std::ranges::all_of(op.outputs, whole); });
}

/// One that sums products of an image read through a window and of weights, in one group.
std::optional<Window> window_of(const WorkloadSpec& spec, const Operator& op) {
  if (op.running || op.outputs.size() != 1 || op.inputs.size() != 2) return std::nullopt;
  const Output& out = op.outputs.front();
  if (out.rescale || out.combine != Combine::sum || !factors_of(out)) return std::nullopt;
  const auto points = [&](const Access& a) {
    return std::ranges::count_if(out.target.index, [&](const Affine& i) {
      const auto loop = i.plain_loop();
      return loop && indexes(a, *loop) && extent(spec, *loop) > 1;
    });
  };
  const std::size_t image = points(op.inputs[0]) > points(op.inputs[1]) ? 0 : 1;
  const Access &read = op.inputs[image], &weights = op.inputs[1 - image];
  const bool window = std::ranges::any_of(read.index, through_window);
  if ((!window && points(read) < 2) || read.tensor == weights.tensor || is_gather(read) ||
      is_gather(weights))
    return std::nullopt;
  Window found{.image = image};
  for (const Affine& i : out.target.index) {
    const auto loop = i.plain_loop();
    if (!loop) return std::nullopt;
    if (extent(spec, *loop) == 1) continue;
    if (indexes(read, *loop) == indexes(weights, *loop)) return std::nullopt;
    if (!indexes(weights, *loop)) continue;
    if (found.rows.valid()) return std::nullopt;
    found.rows = *loop;
  }
  if (!found.rows.valid()) return std::nullopt;
  for (const Affine& i : weights.index) {
    const auto loop = i.plain_loop();
    if (!loop) return std::nullopt;
    if (extent(spec, *loop) == 1) {
      found.ones.push_back(*loop);
      continue;
    }
    const auto at = std::ranges::find_if(
        read.index, [&](const Affine& of_image) { return of_image.plain_loop() == loop; });
    if (at == read.index.end() || indexes(out.target, *loop)) continue;
    if (found.channel.valid()) return std::nullopt;
    found.channel = *loop;
    found.channel_at = static_cast<std::size_t>(at - read.index.begin());
  }
  // With channels last and no window it is a product of matrices.
  if (!found.channel.valid() || (!window && found.channel_at + 1 == read.index.size()))
    return std::nullopt;
  // One channel is none: a depthwise convolution, or an image of one.
  const Tensor& tensor = spec.tensors[read.tensor.index()];
  if (!written_whole(spec, read.tensor)) return std::nullopt;
  if (tensor.shape[found.channel_at] != extent(spec, found.channel)) return std::nullopt;
  if (extent(spec, found.channel) < kRowsAt / size_of(tensor.dtype) && !takes_few(spec, op, found))
    return std::nullopt;
  for (std::size_t d = 0; d < read.index.size(); ++d) {
    if (d == found.channel_at) continue;
    for (const Term& t : read.index[d].terms)
      if (!indexes(out.target, t.loop) && extent(spec, t.loop) > 1) found.taps.push_back(t.loop);
  }
  const auto known = [&](const Affine& i) {
    const LoopId loop = *i.plain_loop();
    return extent(spec, loop) == 1 || loop == found.rows || loop == found.channel ||
           std::ranges::find(found.taps, loop) != found.taps.end();
  };
  if (weights.index.size() != found.ones.size() + found.taps.size() + 2 ||
      !std::ranges::all_of(weights.index, known))
    return std::nullopt;
  return found;
}

std::int64_t padded(const WorkloadSpec& spec, const Window& of, DType type) {
  return round_up(extent(spec, of.channel), kRowsAt / size_of(type));
}

/// Whether rows along a tensor's last dimension, `at`, begin at multiples of 16 bytes.
bool is_last(const Tensor& t, std::size_t at) {
  return at + 1 == t.shape.size() && t.shape.back() * size_of(t.dtype) % kRowsAt == 0;
}

/// The order of the dimensions with `at` last.
std::vector<std::size_t> with_last(std::size_t dimensions, std::size_t at) {
  std::vector<std::size_t> order(dimensions);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::rotate(order.begin() + static_cast<std::ptrdiff_t>(at),
              order.begin() + static_cast<std::ptrdiff_t>(at) + 1, order.end());
  return order;
}

template <class T>
std::vector<T> in_order(const std::vector<T>& from, const std::vector<std::size_t>& order) {
  std::vector<T> to;
  for (const std::size_t d : order) to.push_back(from[d]);
  return to;
}

using Names = std::vector<std::string_view>;

/// Whether each channel of an operator's results is of the same channel of this input alone.
bool keeps_channels(const Output& o, const Access& a, std::size_t channel_at) {
  if (a.index.size() != o.target.index.size()) return false;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto loop = o.target.index[d].plain_loop();
    if (!loop || !indexes(a.index[d], *loop)) return false;
  }
  return a.index[channel_at].plain_loop().has_value();
}

/// Whether every access takes whole channels of the tensor.
bool whole_channels(const WorkloadSpec& spec, TensorId t, const Window& of) {
  const auto whole = [&](const Access& a) {
    if (a.tensor != t) return true;
    const auto loop = a.index[of.channel_at].plain_loop();
    return !is_gather(a) && loop && extent(spec, *loop) == extent(spec, of.channel);
  };
  return std::ranges::all_of(spec.operators, [&](const Operator& op) {
    return std::ranges::all_of(op.inputs, whole) &&
           std::ranges::all_of(op.outputs, [&](const Output& o) { return whole(o.target); });
  });
}

/// The tensor, and those that operators channel by channel make it of, back to products that
/// change: all of these may be written with their channels last, and no operator between them moves
/// elements. False where one of them comes from elsewhere. So a product is changed in the same way
/// alone and as a part.
bool may_change(const WorkloadSpec& spec, TensorId t, const Window& of, const Names& changing,
                std::vector<TensorId>& all) {
  if (std::ranges::find(all, t) != all.end()) return true;
  const auto writes = [t](const Operator& op) {
    return std::ranges::any_of(op.outputs, [t](const Output& o) { return o.target.tensor == t; });
  };
  const auto op = std::ranges::find_if(spec.operators, writes);
  if (op == spec.operators.end() || op->running || op->outputs.size() != 1 ||
      std::ranges::find(spec.outputs, t) != spec.outputs.end() || !whole_channels(spec, t, of))
    return false;
  all.push_back(t);
  const Output& out = op->outputs.front();
  bool of_channels = false;
  for (const Access& a : op->inputs) {
    if (!keeps_channels(out, a, of.channel_at)) continue;
    of_channels = true;
    if (!may_change(spec, a.tensor, of, changing, all)) return false;
  }
  return of_channels || std::ranges::find(changing, op->name) != changing.end();
}

void change(WorkloadSpec& spec, TensorId t, const std::vector<std::size_t>& order,
            std::int64_t channels) {
  Tensor& tensor = spec.tensors[t.index()];
  tensor.shape = in_order(tensor.shape, order);
  tensor.shape.back() = channels;
  const auto reordered = [&](Access& a) {
    if (a.tensor == t) a.index = in_order(a.index, order);
  };
  for (Operator& op : spec.operators) {
    std::ranges::for_each(op.inputs, reordered);
    for (Output& o : op.outputs) reordered(o.target);
    rewrite::name_loops(op);
  }
}

/// An operator that writes the elements of an input at `from` to a tensor of its own, in whose
/// order they are read at `to` there.
Operator copied(WorkloadSpec& spec, Operator& op, std::size_t input, Access from, Access to,
                std::vector<std::int64_t> shape, Access read) {
  const Tensor& before = spec.tensors[from.tensor.index()];
  Tensor tensor{.name = rewrite::unused(spec.tensors, before.name + "_last"),
                .shape = std::move(shape),
                .dtype = before.dtype};
  to.tensor = read.tensor = TensorId(spec.tensors.size());
  Operator copy{.name = rewrite::unused(spec.operators, tensor.name),
                .loops = {},
                .inputs = {std::move(from)},
                .outputs = {}};
  copy.outputs.push_back(
      {.target = std::move(to), .value = {.kind = Expr::Kind::input, .input = 0}});
  rewrite::name_loops(copy);
  spec.tensors.push_back(std::move(tensor));
  op.inputs[input] = std::move(read);
  rewrite::name_loops(op);
  return copy;
}

/// The image and the weights of an operator of few channels, copied.
void few_channels_last(WorkloadSpec& spec, std::size_t at, const Window& of,
                       std::vector<Operator>& copies) {
  Operator& op = spec.operators[at];
  const Access read = op.inputs[of.image], weights = op.inputs[1 - of.image];
  const Tensor tensor = spec.tensors[read.tensor.index()];
  const std::int64_t size = size_of(tensor.dtype), row = kRowsAt / std::gcd(kRowsAt, of.few * size);
  const auto loop = [&](const std::string& name, std::int64_t n) {
    return Affine{.terms = {{.loop = rewrite::add_loop(spec, name, n)}}};
  };
  const Affine channel = loop(spec.loops[of.channel.index()].name, of.few);
  Access from{.tensor = read.tensor, .index = {}}, to{.tensor = {}, .index = {}}, in = read;
  std::vector<std::int64_t> shape;
  for (std::size_t d = 0; d < read.index.size(); ++d) {
    std::int64_t all = tensor.shape[d];
    if (d == of.beside) {
      // As far as the last point's last tap.
      all = 1;
      for (const Term& t : read.index[d].terms) all += t.coefficient * (extent(spec, t.loop) - 1);
      all = round_up(all, row);
    }
    to.index.push_back(d == of.channel_at ? channel
                                          : loop(tensor.name + "_" + std::to_string(d), all));
    from.index.push_back(to.index.back());
    shape.push_back(d == of.channel_at ? of.few : all);
  }
  in.index[of.channel_at] = channel;
  from.index[of.beside].offset = std::exchange(in.index[of.beside].offset, 0);
  const std::vector<std::size_t> order = with_last(shape.size(), of.channel_at);
  for (Access* a : {&to, &in}) a->index = in_order(a->index, order);
  copies.push_back(copied(spec, op, of.image, from, to, in_order(shape, order), in));
  // Loops of one iteration first, rows, taps.
  Access own{.tensor = weights.tensor, .index = weights.index}, its;
  shape.clear();
  for (Affine& i : own.index)
    if (i.plain_loop() == of.channel) i = channel;
  std::vector<LoopId> loops = of.ones;
  loops.push_back(of.rows);
  loops.insert(loops.end(), of.taps.begin(), of.taps.end());
  for (const LoopId l : loops) {
    its.index.push_back({.terms = {{.loop = l}}});
    shape.push_back(extent(spec, l));
  }
  shape.back() = round_up(shape.back(), row);
  its.index.push_back(channel), shape.push_back(of.few);
  copies.push_back(copied(spec, spec.operators[at], 1 - of.image, own, its, std::move(shape), its));
}

/// Whether they are so already.
bool has_few_last(const WorkloadSpec& spec, const Operator& op, const Window& of) {
  const Access &read = op.inputs[of.image], &weights = op.inputs[1 - of.image];
  const std::vector<std::int64_t>& shape = spec.tensors[read.tensor.index()].shape;
  std::int64_t reach = 0;
  for (const Term& t : read.index[of.beside].terms)
    reach += t.coefficient * (extent(spec, t.loop) - 1);
  return read.index.back().plain_loop() == of.channel && extent(spec, of.channel) == of.few &&
         read.index[of.beside].offset == 0 && reach < shape[of.beside] &&
         weights.index.back().plain_loop() == of.channel;
}

bool has_image_last(const WorkloadSpec& spec, const Operator& op, const Window& of) {
  const Access& read = op.inputs[of.image];
  const Tensor& tensor = spec.tensors[read.tensor.index()];
  return read.index.back().plain_loop() == of.channel && is_last(tensor, tensor.shape.size() - 1);
}
bool has_weights_last(const WorkloadSpec& spec, const Operator& op, const Window& of) {
  const Access& read = op.inputs[1 - of.image];
  const Tensor& tensor = spec.tensors[read.tensor.index()];
  std::vector<LoopId> taps;
  for (const Affine& i : read.index)
    if (const LoopId l = *i.plain_loop(); extent(spec, l) > 1 && l != of.rows && l != of.channel)
      taps.push_back(l);
  return read.index.back().plain_loop() == of.channel && is_last(tensor, tensor.shape.size() - 1) &&
         taps == of.taps;
}

/// Copies of tensors, by which dimension has the channels.
using Copies = std::map<std::pair<TensorId, std::size_t>, TensorId>;

/// The image of the operator at `at` gets its channels last: so it is written, or a copy is.
void image_last(WorkloadSpec& spec, std::size_t at, const Window& of, const Names& changing,
                std::vector<Operator>& copies, Copies& copied_before) {
  Operator& op = spec.operators[at];
  const Access read = op.inputs[of.image];
  const Tensor tensor = spec.tensors[read.tensor.index()];
  const std::int64_t channels = padded(spec, of, tensor.dtype);
  const std::vector<std::size_t> order = with_last(tensor.shape.size(), of.channel_at);
  if (std::vector<TensorId> all; may_change(spec, read.tensor, of, changing, all)) {
    for (const TensorId t : all) change(spec, t, order, channels);
    return;
  }
  Access in_copy{.tensor = {}, .index = in_order(read.index, order)};
  const std::pair what{read.tensor, of.channel_at};
  if (const auto before = copied_before.find(what); before != copied_before.end()) {
    in_copy.tensor = before->second;
    op.inputs[of.image] = std::move(in_copy);
    rewrite::name_loops(op);
    return;
  }
  Access from{.tensor = read.tensor, .index = {}};
  for (std::size_t d = 0; d < read.index.size(); ++d) {
    const auto loop = read.index[d].plain_loop();
    const std::int64_t all = tensor.shape[d];
    from.index.push_back(
        {.terms = {
             {.loop = loop && extent(spec, *loop) == all
                          ? *loop
                          : rewrite::add_loop(spec, tensor.name + "_" + std::to_string(d), all)}}});
  }
  std::vector<std::int64_t> shape = in_order(tensor.shape, order);
  shape.back() = channels;
  copies.push_back(copied(spec, op, of.image, from,
                          {.tensor = {}, .index = in_order(from.index, order)}, std::move(shape),
                          std::move(in_copy)));
  copied_before[what] = copies.back().outputs.front().target.tensor;
}

/// Its weights: rows, taps in the order of the image's dimensions, channels; loops of one iteration
/// first.
void weights_last(WorkloadSpec& spec, std::size_t at, const Window& of,
                  std::vector<Operator>& copies) {
  Operator& op = spec.operators[at];
  const Access read = op.inputs[1 - of.image];
  const Tensor& tensor = spec.tensors[read.tensor.index()];
  std::vector<LoopId> loops = of.ones;
  loops.push_back(of.rows);
  loops.insert(loops.end(), of.taps.begin(), of.taps.end());
  loops.push_back(of.channel);
  Access to;
  std::vector<std::int64_t> shape;
  for (const LoopId l : loops) {
    to.index.push_back({.terms = {{.loop = l}}});
    shape.push_back(extent(spec, l));
  }
  shape.back() = padded(spec, of, tensor.dtype);
  copies.push_back(copied(spec, op, 1 - of.image, read, to, std::move(shape), to));
}

/// What it would change of an operator, if anything.
std::optional<Window> to_change(const WorkloadSpec& spec, const Operator& op) {
  const auto window = window_of(spec, op);
  if (window && window->few > 0) return has_few_last(spec, op, *window) ? std::nullopt : window;
  return window && !(has_image_last(spec, op, *window) && has_weights_last(spec, op, *window))
             ? window
             : std::nullopt;
}

Result<Workload> with_channels_last(const Workload& w, std::string_view text) {
  WorkloadSpec spec = w.spec();
  const Names changing = rewrite::split(text, ';');
  for (const std::string_view name : changing) {
    if (!to_change(w.spec(), w.op(rewrite::operator_named(w, name, "channels-last:OP;OP"))))
      return Reason{
          formatted("operator {} is no convolution of one group, with as many channels as 16 bytes "
                    "have or few beside a row of its window, that are not last yet",
                    name)};
  }
  Copies images;
  for (const std::string_view name : changing) {
    const auto at = [&] { return std::ranges::find(spec.operators, name, &Operator::name); };
    std::vector<Operator> copies;
    const auto before = [&] {
      spec.operators.insert(at(), copies.begin(), copies.end());
      copies.clear();
    };
    const auto place = [&] { return static_cast<std::size_t>(at() - spec.operators.begin()); };
    Window window = *to_change(w.spec(), w.op(*w.find_op(name)));
    // Those before may have changed its image, too.
    const std::vector<Affine>& image = at()->inputs[window.image].index;
    window.channel_at = static_cast<std::size_t>(
        std::ranges::find_if(image,
                             [&](const Affine& i) { return i.plain_loop() == window.channel; }) -
        image.begin());
    if (window.few > 0) {
      takes_few(spec, *at(), window);  // its dimensions may have changed their order
      few_channels_last(spec, place(), window, copies);
      before();
      continue;
    }
    if (!has_image_last(spec, *at(), window)) {
      image_last(spec, place(), window, changing, copies, images);
      before();
    }
    if (!has_weights_last(spec, *at(), window)) {
      weights_last(spec, place(), window, copies);
      before();
    }
  }
  // Loops of few channels that copies have more of.
  rewrite::drop(spec, std::vector<bool>(spec.operators.size(), false));
  return Workload::create(std::move(spec));
}

}  // namespace

std::vector<OpId> channels_to_be_last(const Workload& w) {
  const WorkloadSpec& spec = w.spec();
  std::vector<OpId> all;
  for (std::size_t i = 0; i < spec.operators.size(); ++i)
    if (to_change(spec, spec.operators[i])) all.emplace_back(i);
  return all;
}

Rewrite channels_last() {
  return {.name = "channels-last",
          .summary =
              "convolutions read images and weights whose channels lie side by side, in "
              "rows that begin at multiples of 16 bytes: written so by the operator before, "
              "or copied",
          .source = "cuDNN's layout NHWC: NVIDIA, Tensor Layouts In Memory",
          .function = nullptr,
          .argument = "OP;OP",
          .with = with_channels_last};
}

}  // namespace tilewright
