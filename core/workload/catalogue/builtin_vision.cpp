// Networks of convolutions, batch 1, as graphs of single operators. Batch normalisation is folded
// into weights and a bias. Groups, shuffles and splits are dimensions of their own, and layers of
// the same extents share their loops.
#include <algorithm>
#include <array>

#include "core/workload/catalogue/builtin_images.h"

namespace tilewright::builtin {
namespace {

std::string block_name(std::int64_t stage, std::int64_t block, const char* what) {
  return "s" + std::to_string(stage) + "b" + std::to_string(block) + what;
}

void demand_multiple(const Values& v, const char* field, std::int64_t of) {
  if (v[field] % of != 0)
    throw InputError({.field = field,
                      .value = std::to_string(v[field]),
                      .problem = "is not accepted",
                      .accepted = "multiples of " + std::to_string(of)});
}

// ---- ResNeXt ----------------------------------------------------------------------------------

/// 1x1, 3x3 in groups, 1x1, and a shortcut; a stage's first block has the stride and a product in
/// the shortcut.
RawWorkload resnext101(const Values& v) {
  ConvNet net(v.dtype);
  Image x = net.input(3, v["size"]);
  x = net.relu(net.biased(net.convolution("stem", x, net.channels(v["channels"], x), {7, 2})));
  x = net.pooled("pool", x);
  const std::string groups = net.loop("g", v["groups"]);
  constexpr std::array<std::int64_t, 4> kBlocks = {3, 4, 23, 3};
  for (std::int64_t stage = 0; stage < v["stages"]; ++stage)
    for (std::int64_t b = 0; b < std::min(kBlocks[static_cast<std::size_t>(stage)], v["blocks"]);
         ++b) {
      const auto name = [&](const char* what) { return block_name(stage + 1, b + 1, what); };
      const std::int64_t stride = b == 0 && stage > 0 ? 2 : 1, width = v["width"] << stage;
      const Image in = net.convolution(name("in"), x, {groups, net.loop("k", width)});
      const Image mid = net.convolution(name("mid"), net.relu(net.biased(in)),
                                        {groups, net.loop("w", width)}, {3, stride});
      const Image through = net.relu(net.biased(mid));
      const Loops wide = b > 0 ? x.channels : net.channels((4 * v["channels"]) << stage, x);
      const Image out = net.biased(net.convolution(name("out"), through, wide));
      if (b == 0) x = net.biased(net.convolution(name("short"), x, wide, {1, stride}));
      x = net.relu(net.added(name("add"), out, x));
    }
  return net.classified(x, v["classes"]);
}

// ---- EfficientNet -----------------------------------------------------------------------------

/// Multiplies each channel by a gate made of the means of all.
Image gated(ConvNet& net, const std::string& name, const Image& in, std::int64_t squeezed) {
  const std::string c = ConvNet::text(in.channels), j = net.loop("j", squeezed);
  const std::string less = name + "_less", more = name + "_more", swish = name + "_swish",
                    gate = name + "_gate";
  net.mean(name + "_mean", in);
  net.product(less, name + "_mean", in.channels, j);
  net.op(swish + ": " + swish + "[" + j + "] = " + less + "_b[" + j + "] * sigmoid(" + less +
         "_b[" + j + "])");
  net.product(more, swish, {j}, c);
  net.op(gate + ": " + gate + "[" + c + "] = sigmoid(" + more + "_b[" + c + "])");
  return net.mapped("gated", in, "{} * " + gate + "[" + c + "]");
}

/// Channels are in eighths of 32 or more, as many as `channels` / 4 a unit.
RawWorkload efficientnet_b0(const Values& v) {
  demand_multiple(v, "channels", 4);
  struct Stage {
    std::int64_t expand, kernel, stride, out, blocks;
  };
  constexpr Stage kStages[] = {{1, 3, 1, 2, 1},  {6, 3, 2, 3, 2},  {6, 5, 2, 5, 2},
                               {6, 3, 2, 10, 3}, {6, 5, 1, 14, 3}, {6, 5, 2, 24, 4},
                               {6, 3, 1, 40, 1}};
  const std::int64_t unit = v["channels"] / 4;
  ConvNet net(v.dtype);
  Image x = net.input(3, v["size"]);
  x = net.swish(net.biased(net.convolution("stem", x, net.channels(v["channels"], x), {3, 2})));
  for (std::int64_t s = 0; s < v["stages"]; ++s) {
    const Stage& stage = kStages[s];
    for (std::int64_t b = 0; b < std::min(stage.blocks, v["blocks"]); ++b) {
      const auto name = [&](const char* what) { return block_name(s + 1, b + 1, what); };
      const std::int64_t in = net.extent(x.channels), stride = b == 0 ? stage.stride : 1;
      Image y = x;
      if (stage.expand > 1)
        y = net.swish(
            net.biased(net.convolution(name("expand"), x, net.channels(stage.expand * in, x))));
      y = net.swish(
          net.biased(net.convolution(name("each"), y, y.channels, {stage.kernel, stride})));
      y = gated(net, name("se"), y, std::max<std::int64_t>(1, in / 4));
      y = net.biased(net.convolution(name("project"), y, net.channels(stage.out * unit, y)));
      x = b == 0 ? y : net.added(name("add"), y, x);
    }
  }
  x = net.swish(net.biased(net.convolution("head", x, net.channels(160 * unit, x))));
  return net.classified(x, v["classes"]);
}

// ---- ShuffleNet -------------------------------------------------------------------------------

/// A unit's output is Y[c,h]: channel 2 * c + h is c of half h, which is what concatenating two
/// halves and shuffling them makes. The rows of Y from the middle on go through the unit; those
/// before pass, as P[c] = Y[channel c], a sum over rows j of Y[j,c-2*j], of which one lies inside.
class Shuffled {
 public:
  explicit Shuffled(DType dtype) : net(dtype), side_(net.loop("h", 2)) {}

  /// A unit of stride 2: both halves are made from all channels.
  Image shrunk(const std::string& name, const Image& x, std::int64_t half) {
    const Image y = net.convolution(name + "side", x, x.channels, {3, 2});
    const Image a = last(name + "near", net.biased(y), half);
    const Image b = last(name + "far", far_each(name, x, half, 2), half);
    return joined(name, a, b);
  }
  /// A unit of stride 1.
  Image kept(const std::string& name, const Image& x, std::int64_t half) {
    const std::string c = net.loop("c", half), j = net.loop("j", half / 2);
    const Image through{name + "pass", {c, "0"}, x.size};
    const std::string rows = "," + net.loop("y", x.size) + "," + net.loop("x", x.size);
    declare_half(through, half);
    net.op(through.tensor + ": " + through.tensor + net.at(through) + " += " + x.tensor + "[" + j +
           "," + c + "-2*" + j + rows + "]");
    const std::string in = name + "in", o = net.loop("e", half);
    net.op(in + ": " + in + "[" + o + rows + "] += " + x.tensor + "[" + j + "+" +
           std::to_string(half / 2) + "," + side_ + rows + "] * W_" + in + "[" + o + "," + j + "," +
           side_ + "]");
    net.weights("W_" + in, half);
    const Image y = net.relu(net.biased({in, {o}, x.size}));
    const Image each = net.biased(net.convolution(name + "each", y, y.channels, {3, 1}));
    return joined(name, through, last(name + "far", each, half));
  }

  ConvNet net;

 private:
  Image far_each(const std::string& name, const Image& x, std::int64_t half, std::int64_t stride) {
    const Image y = net.relu(net.biased(net.convolution(name + "in", x, net.channels(half, x))));
    return net.biased(net.convolution(name + "each", y, y.channels, {3, stride}));
  }
  void declare_half(const Image& i, std::int64_t half) {
    const std::string rows = std::to_string(i.size);
    net.declare(i.tensor, std::to_string(half) + ",1," + rows + "," + rows);
  }
  /// A product over channels, a bias and a ReLU, as half of a concatenation.
  Image last(const std::string& name, const Image& in, std::int64_t half) {
    const Image y = net.biased(net.convolution(name, in, net.channels(half, in)));
    const Image made{name + "_half", {y.channels.front(), "0"}, y.size};
    declare_half(made, half);
    net.op(made.tensor + ": " + made.tensor + net.at(made) + " = relu(" + y.tensor + net.at(y) +
           ")");
    return made;
  }
  /// Outside of a half there are zeros: the sum of one and of the other, shifted, is both.
  Image joined(const std::string& name, const Image& a, const Image& b) {
    const Image made{name, {a.channels.front(), side_}, a.size};
    const std::string rows = "," + net.loop("y", a.size) + "," + net.loop("x", a.size) + "]";
    net.op(name + ": " + name + net.at(made) + " = " + a.tensor + net.at(made) + " + " + b.tensor +
           "[" + a.channels.front() + "," + side_ + "-1" + rows);
    return made;
  }

  std::string side_;
};

RawWorkload shufflenet_v2(const Values& v) {
  demand_multiple(v, "channels", 4);
  Shuffled shuffled(v.dtype);
  ConvNet& net = shuffled.net;
  Image x = net.input(3, v["size"]);
  x = net.relu(net.biased(net.convolution("stem", x, net.channels(v["stem"], x), {3, 2})));
  x = net.pooled("pool", x);
  constexpr std::array<std::int64_t, 3> kUnits = {4, 8, 4};
  for (std::int64_t stage = 0; stage < v["stages"]; ++stage) {
    const std::int64_t half = (v["channels"] << stage) / 2;
    for (std::int64_t b = 0; b < std::min(kUnits[static_cast<std::size_t>(stage)], v["blocks"]);
         ++b) {
      const std::string name = block_name(stage + 1, b + 1, "");
      x = b == 0 ? shuffled.shrunk(name, x, half) : shuffled.kept(name, x, half);
    }
  }
  x = net.relu(net.biased(net.convolution("head", x, net.channels(v["head"], x))));
  return net.classified(x, v["classes"]);
}

// ---- involutions, dilation --------------------------------------------------------------------

// An involution multiplies an image by weights that are made from it. Sixteen in line, with drawn
// weights, leave every type's range, where a trained network has its normalisations. So the weights
// of a window are mostly their biases, and what a block adds is small beside what it adds it to.
constexpr std::int64_t kDampedTaps = 4096, kDampedBlock = 16;

/// Each place has weights of its own, made from what is there, one window for a group of channels.
Image involution(ConvNet& net, const std::string& name, const Image& in, const Window& w) {
  Image at = in;
  if (w.stride > 1) {  // the mean of as many rows and columns
    at = {name + "_mean", in.channels, in.size / w.stride};
    const std::string c = ConvNet::text(in.channels), y = net.loop("y", at.size),
                      x = net.loop("x", at.size), r = net.loop("r", w.stride),
                      s = net.loop("s", w.stride), n = std::to_string(w.stride) + "*";
    net.op(name + "_sum: " + name + "_sum" + net.at(at) + " += " + in.tensor + "[" + c + "," + n +
           y + "+" + r + "," + n + x + "+" + s + "]");
    net.op(name + "_mean: " + name + "_mean" + net.at(at) + " = " + name + "_sum" + net.at(at) +
           " * " + number_text(1.0 / static_cast<double>(w.stride * w.stride)));
  }
  const std::int64_t channels = net.extent(in.channels);
  const Image less = net.relu(net.biased(net.convolution(
      name + "_less", at, {net.loop("j", std::max<std::int64_t>(1, channels / 4))})));
  const Loops taps = {in.channels.front(), net.loop("r", w.kernel), net.loop("s", w.kernel)};
  const Image made_from = net.convolution(name + "_taps", less, taps, {}, kDampedTaps);
  const Image weights = net.biased(made_from);
  net.weights("b_" + made_from.tensor, w.kernel * w.kernel);
  const Image made{name, in.channels, at.size};
  net.op(name + ": " + name + net.at(made) + " += " + in.tensor + net.windowed(in, made, w) +
         " * " + weights.tensor + net.at(weights));
  return made;
}

RawWorkload rednet50(const Values& v) {
  demand_multiple(v, "channels", 2 * v["group"]);
  // A mean of 2 by 2 and a window of stride 2 meet in even sizes only.
  if (v["stages"] > 1) demand_multiple(v, "size", std::int64_t{4} << (v["stages"] - 1));
  ConvNet net(v.dtype);
  const auto grouped = [&](std::int64_t channels) -> Loops {
    return {net.loop("g", channels / v["group"]), net.loop("k", v["group"])};
  };
  Image x = net.input(3, v["size"]);
  x = net.relu(net.biased(net.convolution("stem", x, grouped(v["channels"] / 2), {3, 2})));
  x = net.relu(net.biased(involution(net, "stem_i", x, {3, 1})));
  x = net.relu(net.biased(net.convolution("stem_o", x, net.channels(v["channels"], x), {3, 1})));
  x = net.pooled("pool", x);
  constexpr std::array<std::int64_t, 4> kBlocks = {3, 4, 6, 3};
  for (std::int64_t stage = 0; stage < v["stages"]; ++stage)
    for (std::int64_t b = 0; b < std::min(kBlocks[static_cast<std::size_t>(stage)], v["blocks"]);
         ++b) {
      const auto name = [&](const char* what) { return block_name(stage + 1, b + 1, what); };
      const std::int64_t stride = b == 0 && stage > 0 ? 2 : 1;
      const Image in =
          net.relu(net.biased(net.convolution(name("in"), x, grouped(v["channels"] << stage))));
      const Image mid =
          net.relu(net.biased(involution(net, name("mid"), in, {v["kernel"], stride})));
      const Loops wide = b > 0 ? x.channels : net.channels((4 * v["channels"]) << stage, x);
      const Image out = net.biased(net.convolution(name("out"), mid, wide, {}, kDampedBlock));
      if (b == 0) x = net.biased(net.convolution(name("short"), x, wide, {1, stride}));
      x = net.relu(net.added(name("add"), out, x));
    }
  return net.classified(x, v["classes"]);
}

/// Seven dilated convolutions find the noise of a grey image; what comes out of the first is added
/// after the third, of the fourth before the last.
RawWorkload sar_drn(const Values& v) {
  ConvNet net(v.dtype);
  const Image noisy = net.input(1, v["size"]);
  Image x = noisy, kept;
  constexpr std::array<std::int64_t, 7> kDilations = {1, 2, 3, 4, 3, 2, 1};
  for (std::size_t layer = 1; layer <= 7; ++layer) {
    const std::string name = "conv" + std::to_string(layer);
    const Loops out = layer == 7 ? noisy.channels : net.channels(v["channels"], x);
    x = net.biased(net.convolution(name, x, out, {3, 1, kDilations[layer - 1]}));
    if (layer == 7) break;
    x = net.relu(x);
    if (layer == 1 || layer == 4) kept = x;
    if (layer == 3 || layer == 6) x = net.added("add" + std::to_string(layer), x, kept);
  }
  net.op("clean: clean" + net.at(noisy) + " = image" + net.at(noisy) + " - " + x.tensor +
         net.at(noisy));
  return net.take();
}

}  // namespace

std::vector<Family> vision_families() {
  return {
      {"resnext101",
       "ResNeXt-101, 64 groups of 4, on an image: batch normalisation folded into biases; "
       "blocks=N: at most "
       "N blocks in each of the first stages",
       "Xie et al., Aggregated residual transformations, CVPR 2017; Souffle, table 2",
       {{"size", 224, 1, 4096},
        {"channels", 64, 1, 4096},
        {"groups", 64, 1, 4096},
        {"width", 4, 1, 4096},
        {"stages", 4, 1, 4},
        {"blocks", 23, 1, 23},
        {"classes", 1000, 1, 1048576}},
       resnext101,
       {"image"}},
      {"efficientnet-b0",
       "EfficientNet-b0 on an image: batch normalisation folded into biases; channels=N of the "
       "stem, others "
       "in proportion; blocks=N: at most N in each of the first stages",
       "Tan and Le, EfficientNet, ICML 2019; Souffle, table 2",
       {{"size", 224, 1, 4096},
        {"channels", 32, 4, 4096},
        {"stages", 7, 1, 7},
        {"blocks", 4, 1, 4},
        {"classes", 1000, 1, 1048576}},
       efficientnet_b0,
       {"image"}},
      {"shufflenet-v2",
       "ShuffleNet v2 on an image: halves of the channels concatenated and shuffled after each "
       "unit; "
       "blocks=N: at most N units in each of the first stages",
       "Ma et al., ShuffleNet v2, ECCV 2018; PowerFusion, figure 3",
       {{"size", 224, 1, 4096},
        {"stem", 24, 1, 4096},
        {"channels", 116, 4, 4096},
        {"stages", 3, 1, 3},
        {"blocks", 8, 1, 8},
        {"head", 1024, 1, 65536},
        {"classes", 1000, 1, 1048576}},
       shufflenet_v2,
       {"image"}},
      {"sar-drn",
       "SAR-DRN: seven dilated convolutions with two shortcuts take the noise from a grey image",
       "Zhang et al., Learning a dilated residual network for SAR image despeckling, Remote "
       "Sensing 2018; "
       "PowerFusion, section 7",
       {{"size", 256, 1, 65536}, {"channels", 64, 1, 4096}},
       sar_drn,
       {"image"}},
      {"rednet50",
       "RedNet-50 on an image: ResNet-50 with involutions of 7 by 7; blocks=N: at most N in each "
       "of the "
       "first stages",
       "Li et al., Involution, CVPR 2021; PowerFusion, section 7",
       {{"size", 224, 1, 4096},
        {"channels", 64, 2, 4096},
        {"group", 16, 1, 4096},
        {"kernel", 7, 1, 15},
        {"stages", 4, 1, 4},
        {"blocks", 6, 1, 6},
        {"classes", 1000, 1, 1048576}},
       rednet50,
       {"image"}},
  };
}

}  // namespace tilewright::builtin
