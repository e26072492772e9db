// Networks of convolutions against the same networks in plain loops over images, and their counts.
#include "tests/core/networks.h"

namespace tilewright {
namespace {

struct Picture {
  std::size_t channels = 0, size = 0;  ///< rows, and as many columns
  Numbers v = {};
  double at(std::size_t c, std::ptrdiff_t y, std::ptrdiff_t x) const {
    const auto n = static_cast<std::ptrdiff_t>(size);
    if (y < 0 || x < 0 || y >= n || x >= n) return 0;
    return v[(c * size + static_cast<std::size_t>(y)) * size + static_cast<std::size_t>(x)];
  }
};

struct Filter {
  std::size_t groups = 1, kernel = 1, stride = 1, dilation = 1;
};

/// Weights by output channel, channel within the group, row, column; padding keeps the rows.
Picture convolve(const Picture& in, const Numbers& weights, const Filter& f) {
  const std::size_t k = f.kernel, of = in.channels / f.groups, out = weights.size() / of / k / k;
  const auto pad = static_cast<std::ptrdiff_t>(f.dilation * (k - 1) / 2);
  Picture made{out, (in.size + f.stride - 1) / f.stride, {}};
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t y = 0; y < made.size; ++y)
      for (std::size_t x = 0; x < made.size; ++x) {
        double sum = 0;
        for (std::size_t i = 0; i < of; ++i)
          for (std::size_t r = 0; r < k; ++r)
            for (std::size_t s = 0; s < k; ++s)
              sum += weights[((o * of + i) * k + r) * k + s] *
                     in.at(o / (out / f.groups) * of + i,
                           static_cast<std::ptrdiff_t>(f.stride * y + f.dilation * r) - pad,
                           static_cast<std::ptrdiff_t>(f.stride * x + f.dilation * s) - pad);
        made.v.push_back(sum);
      }
  return made;
}

Picture with_bias(Picture p, const Numbers& bias) {
  EXPECT_EQ(bias.size(), p.channels);
  for (std::size_t i = 0; i < p.v.size(); ++i) p.v[i] += bias[i / p.size / p.size];
  return p;
}

Picture relu(Picture p) {
  for (double& x : p.v) x = std::max(x, 0.0);
  return p;
}

Picture swish(Picture p) {
  for (double& x : p.v) x *= sigmoid(x);
  return p;
}

Picture plus(Picture p, const Picture& q) {
  EXPECT_EQ(p.v.size(), q.v.size());
  for (std::size_t i = 0; i < p.v.size(); ++i) p.v[i] += q.v[i];
  return p;
}

Picture max_pool(const Picture& in) {
  Picture made{in.channels, (in.size + 1) / 2, {}};
  for (std::size_t c = 0; c < in.channels; ++c)
    for (std::size_t y = 0; y < made.size; ++y)
      for (std::size_t x = 0; x < made.size; ++x) {
        double most = -1e300;
        for (std::size_t j = 2 * y == 0 ? 0 : 2 * y - 1; j <= std::min(2 * y + 1, in.size - 1); ++j)
          for (std::size_t i = 2 * x == 0 ? 0 : 2 * x - 1; i <= std::min(2 * x + 1, in.size - 1);
               ++i)
            most = std::max(most, in.v[(c * in.size + j) * in.size + i]);
        made.v.push_back(most);
      }
  return made;
}

Numbers means(const Picture& p) {
  Numbers out(p.channels);
  const std::size_t each = p.size * p.size;
  for (std::size_t i = 0; i < p.v.size(); ++i) out[i / each] += p.v[i] / static_cast<double>(each);
  return out;
}

/// Weights by output, input.
Numbers dense(const Numbers& in, const Numbers& weights, const Numbers& bias) {
  Numbers out = bias;
  for (std::size_t o = 0; o < out.size(); ++o)
    for (std::size_t i = 0; i < in.size(); ++i) out[o] += weights[o * in.size() + i] * in[i];
  return out;
}

/// A network's inputs and results, by the names of its layers.
struct Network : Evaluated {
  explicit Network(const std::string& name) : Evaluated(name + ",dtype=f64", 1), called(name) {}

  Picture image(std::size_t channels) const {
    const Numbers& v = input("image");
    return {channels, static_cast<std::size_t>(std::llround(std::sqrt(v.size() / channels))), v};
  }
  Picture layer(const std::string& name, const Picture& x, const Filter& f = {}) const {
    return with_bias(convolve(x, input("W_" + name), f), input("b_" + name));
  }
  Numbers product(const std::string& name, const Numbers& x) const {
    return dense(x, input("W_" + name), input("b_" + name));
  }
  /// Each block is compared, not only what is left of it at the end.
  void is(const std::string& tensor, const Numbers& wanted) const {
    expect_near(result(tensor), wanted, called + ": " + tensor);
  }
  void ends(const Picture& x) const { is("fc_b", product("fc", means(x))); }

  std::string called;
};

std::string block(std::size_t stage, std::size_t b) {
  return "s" + std::to_string(stage) + "b" + std::to_string(b);
}

TEST(VisionNetworks, ResNextIsItsBlocks) {
  struct Size {
    std::size_t size, channels, groups, width, stages, blocks;
  };
  for (const Size& s :
       {Size{33, 6, 3, 2, 4, 2}, {20, 4, 2, 1, 2, 3}, {9, 5, 1, 4, 1, 1}, {1, 2, 4, 1, 4, 1}}) {
    const auto n = [](std::size_t x) { return std::to_string(x); };
    const Network e("resnext101:size=" + n(s.size) + ",channels=" + n(s.channels) +
                    ",groups=" + n(s.groups) + ",width=" + n(s.width) + ",stages=" + n(s.stages) +
                    ",blocks=" + n(s.blocks) + ",classes=7");
    Picture x = max_pool(relu(e.layer("stem", e.image(3), {1, 7, 2})));
    e.is("pool", x.v);
    for (std::size_t stage = 1; stage <= s.stages; ++stage)
      for (std::size_t b = 1; b <= s.blocks; ++b) {
        const std::string name = block(stage, b);
        const std::size_t stride = b == 1 && stage > 1 ? 2 : 1;
        Picture y = relu(e.layer(name + "in", x));
        y = relu(e.layer(name + "mid", y, {s.groups, 3, stride}));
        y = e.layer(name + "out", y);
        EXPECT_EQ(y.channels, (4 * s.channels) << (stage - 1));
        x = relu(plus(y, b == 1 ? e.layer(name + "short", x, {1, 1, stride}) : x));
        e.is(name + "add_r", x.v);
      }
    e.ends(x);
  }
}

TEST(VisionNetworks, ResNextHasTheContractionsAndBytesOfSoufflesTables) {
  const Workload w = named_workload("resnext101");
  EXPECT_EQ(contractions(w), 105u);  // 104 convolutions and the last product
  EXPECT_EQ(w.tensor(*w.find_tensor("s4b3add_r")).shape, (std::vector<std::int64_t>{2048, 7, 7}));
  EXPECT_EQ(read_by_contractions(w), 456'045'312);
  // 83,455,272 parameters, of which 101,440 are the second of a normalised channel's two.
  EXPECT_EQ(w.compulsory_bytes().value, 4 * (83'455'272 - 101'440 + 3 * 224 * 224 + 1000));
}

TEST(VisionNetworks, EfficientNetIsItsBlocks) {
  struct Stage {
    std::size_t expand, kernel, stride, out, blocks;
  };
  const Stage table[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                         {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
  struct Size {
    std::size_t size, channels, stages, blocks;
  };
  for (const Size& s :
       {Size{35, 4, 7, 2}, {17, 8, 6, 1}, {10, 4, 4, 4}, {8, 12, 1, 1}, {1, 4, 3, 1}}) {
    const auto n = [](std::size_t x) { return std::to_string(x); };
    const Network e("efficientnet-b0:size=" + n(s.size) + ",channels=" + n(s.channels) +
                    ",stages=" + n(s.stages) + ",blocks=" + n(s.blocks) + ",classes=9");
    Picture x = swish(e.layer("stem", e.image(3), {1, 3, 2}));
    for (std::size_t stage = 1; stage <= s.stages; ++stage) {
      const Stage& t = table[stage - 1];
      for (std::size_t b = 1; b <= std::min(t.blocks, s.blocks); ++b) {
        const std::string name = block(stage, b);
        Picture y = t.expand == 1 ? x : swish(e.layer(name + "expand", x));
        EXPECT_EQ(y.channels, t.expand * x.channels);
        y = swish(e.layer(name + "each", y, {y.channels, t.kernel, b == 1 ? t.stride : 1}));
        Numbers gate = e.product(name + "se_less", means(y));
        EXPECT_EQ(gate.size(), std::max<std::size_t>(1, x.channels / 4));
        for (double& g : gate) g *= sigmoid(g);
        gate = e.product(name + "se_more", gate);
        for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] *= sigmoid(gate[i / y.size / y.size]);
        y = e.layer(name + "project", y);
        EXPECT_EQ(y.channels, t.out * s.channels / 32);
        x = b == 1 ? y : plus(y, x);
        e.is(name + (b == 1 ? "project_b" : "add"), x.v);
      }
    }
    e.ends(swish(e.layer("head", x)));
  }
}

TEST(VisionNetworks, EfficientNetHasItsConvolutions) {
  const Workload w = named_workload("efficientnet-b0");
  EXPECT_EQ(contractions(w), 82u);
  std::int64_t gated = 0;  // what squeeze and excitation reads
  for (OpId op : w.topological_order())
    if (w.op(op).name.ends_with("se_mean_sum"))
      gated += w.tensor(w.op(op).inputs.front().tensor).bytes().value;
  EXPECT_EQ(read_by_contractions(w), 48'289'264);
  EXPECT_EQ(gated, 9'226'112);
  // 5,288,548 parameters, of which 21,008 are the second of a normalised channel's two.
  EXPECT_EQ(w.compulsory_bytes().value, 4 * (5'288'548 - 21'008 + 3 * 224 * 224 + 1000));
}

// ---- ShuffleNet -------------------------------------------------------------------------------

/// Channels [first, first + count).
Picture part(const Picture& p, std::size_t first, std::size_t count) {
  const std::size_t each = p.size * p.size;
  const auto from = p.v.begin() + static_cast<std::ptrdiff_t>(first * each);
  return {count, p.size, Numbers(from, from + static_cast<std::ptrdiff_t>(count * each))};
}

/// One after the other, then channel i of each beside the other's.
Picture shuffled(const Picture& a, const Picture& b) {
  EXPECT_EQ(a.v.size(), b.v.size());
  Picture made{a.channels + b.channels, a.size, {}};
  for (std::size_t c = 0; c < a.channels; ++c)
    for (const Picture* from : {&a, &b}) {
      const Picture one = part(*from, c, 1);
      made.v.insert(made.v.end(), one.v.begin(), one.v.end());
    }
  return made;
}

TEST(VisionNetworks, ShuffleNetIsItsUnits) {
  struct Size {
    std::size_t size, stem, channels, stages, blocks;
  };
  for (const Size& s :
       {Size{33, 5, 12, 3, 8}, {18, 3, 8, 2, 3}, {9, 4, 8, 1, 4}, {1, 1, 20, 1, 2}}) {
    const auto n = [](std::size_t x) { return std::to_string(x); };
    const Network e("shufflenet-v2:size=" + n(s.size) + ",stem=" + n(s.stem) +
                    ",channels=" + n(s.channels) + ",stages=" + n(s.stages) +
                    ",blocks=" + n(s.blocks) + ",head=11,classes=7");
    Picture x = max_pool(relu(e.layer("stem", e.image(3), {1, 3, 2})));
    const std::size_t units[] = {4, 8, 4};
    for (std::size_t stage = 1; stage <= s.stages; ++stage)
      for (std::size_t b = 1; b <= std::min(units[stage - 1], s.blocks); ++b) {
        const std::string name = block(stage, b);
        const std::size_t half = (s.channels << (stage - 1)) / 2, stride = b == 1 ? 2 : 1;
        Picture passed = part(x, 0, b == 1 ? x.channels : half);
        if (b == 1)
          passed = relu(e.layer(name + "near", e.layer(name + "side", x, {x.channels, 3, 2})));
        Picture y = b == 1 ? x : part(x, half, half);
        y = relu(e.layer(name + "in", y));
        y = relu(e.layer(name + "far", e.layer(name + "each", y, {half, 3, stride})));
        x = shuffled(passed, y);
        EXPECT_EQ(x.channels, 2 * half);
        e.is(name, x.v);
      }
    e.ends(relu(e.layer("head", x)));
  }
}

TEST(VisionNetworks, ShuffleNetHasItsConvolutions) {
  const Workload w = named_workload("shufflenet-v2");
  // Stem, head, the last product; five in a unit of stride 2, three in others.
  EXPECT_EQ(contractions(w), 3u + 3 * 5 + 13 * 3);
  // 2,278,604 parameters, of which 8,090 are the second of a normalised channel's two.
  EXPECT_EQ(input_bytes(w), 4 * (2'278'604 - 8'090 + 3 * 224 * 224));
}

// ---- involutions, dilation --------------------------------------------------------------------

Picture involve(const Network& e, const std::string& name, const Picture& in, std::size_t group,
                std::size_t kernel, std::size_t stride) {
  Picture at{in.channels, in.size / stride, {}};
  for (std::size_t c = 0; c < in.channels; ++c)
    for (std::size_t y = 0; y < at.size; ++y)
      for (std::size_t x = 0; x < at.size; ++x) {
        double sum = 0;
        for (std::size_t r = 0; r < stride; ++r)
          for (std::size_t t = 0; t < stride; ++t)
            sum += in.v[(c * in.size + y * stride + r) * in.size + x * stride + t];
        at.v.push_back(sum / static_cast<double>(stride * stride));
      }
  const Picture taps = e.layer(name + "_taps", relu(e.layer(name + "_less", at)));
  EXPECT_EQ(taps.channels, in.channels / group * kernel * kernel);
  Picture made{in.channels, at.size, {}};
  const auto pad = static_cast<std::ptrdiff_t>(kernel / 2);
  for (std::size_t c = 0; c < in.channels; ++c)
    for (std::size_t y = 0; y < at.size; ++y)
      for (std::size_t x = 0; x < at.size; ++x) {
        double sum = 0;
        for (std::size_t r = 0; r < kernel; ++r)
          for (std::size_t t = 0; t < kernel; ++t) {
            const std::size_t tap = (c / group * kernel + r) * kernel + t;
            sum += taps.v[(tap * at.size + y) * at.size + x] *
                   in.at(c, static_cast<std::ptrdiff_t>(stride * y + r) - pad,
                         static_cast<std::ptrdiff_t>(stride * x + t) - pad);
          }
        made.v.push_back(sum);
      }
  return with_bias(made, e.input("b_" + name));
}

TEST(VisionNetworks, RedNetIsItsInvolutions) {
  struct Size {
    std::size_t size, channels, group, kernel, stages, blocks;
  };
  for (const Size& s :
       {Size{32, 8, 4, 7, 4, 2}, {16, 12, 3, 5, 2, 3}, {9, 4, 1, 3, 1, 1}, {13, 8, 2, 7, 1, 3}}) {
    const auto n = [](std::size_t x) { return std::to_string(x); };
    const Network e("rednet50:size=" + n(s.size) + ",channels=" + n(s.channels) +
                    ",group=" + n(s.group) + ",kernel=" + n(s.kernel) + ",stages=" + n(s.stages) +
                    ",blocks=" + n(s.blocks) + ",classes=7");
    Picture x = relu(e.layer("stem", e.image(3), {1, 3, 2}));
    x = relu(involve(e, "stem_i", x, s.group, 3, 1));
    x = max_pool(relu(e.layer("stem_o", x, {1, 3, 1})));
    for (std::size_t stage = 1; stage <= s.stages; ++stage)
      for (std::size_t b = 1; b <= s.blocks; ++b) {
        const std::string name = block(stage, b);
        const std::size_t stride = b == 1 && stage > 1 ? 2 : 1;
        Picture y = relu(e.layer(name + "in", x));
        EXPECT_EQ(y.channels, s.channels << (stage - 1));
        y = relu(involve(e, name + "mid", y, s.group, s.kernel, stride));
        y = e.layer(name + "out", y);
        x = relu(plus(y, b == 1 ? e.layer(name + "short", x, {1, 1, stride}) : x));
        e.is(name + "add_r", x.v);
      }
    e.ends(x);
  }
}

TEST(VisionNetworks, RedNetHasItsProducts) {
  const Workload w = named_workload("rednet50");
  // Five in each of 16 blocks and its stem, 4 shortcuts, the last product.
  EXPECT_EQ(contractions(w), 17u * 5 + 4 + 1);
  // 15.51 million parameters, as published.
  EXPECT_EQ(input_bytes(w), 4 * (15'513'230 + 3 * 224 * 224));
}

// A product of values made from one another, sixteen times in line, would leave every type's range.
TEST(VisionNetworks, DeepOnesStayWithinRange) {
  for (const char* name : {"rednet50:size=32,channels=32,group=8,classes=10",
                           "resnext101:size=32,channels=16,groups=8,classes=10",
                           "efficientnet-b0:size=32,channels=4,classes=10",
                           "shufflenet-v2:size=32,channels=16,classes=10"}) {
    const Workload w = named_workload(name);
    const TensorValues all = evaluate(w, random_inputs(w, 1), {});
    for (std::size_t t = 0; t < all.size(); ++t)
      for (const double x : all[t])
        ASSERT_LT(std::abs(x), 1e4) << name << " " << w.tensor(TensorId(t)).name;
  }
}

TEST(VisionNetworks, SarDrnTakesItsNoiseAway) {
  for (const auto& [size, channels] : {std::pair{11, 5}, {4, 3}, {1, 2}, {16, 8}}) {
    const Network e("sar-drn:size=" + std::to_string(size) +
                    ",channels=" + std::to_string(channels));
    const Picture noisy = e.image(1);
    const auto layer = [&](int number, const Picture& x, std::size_t dilation) {
      return e.layer("conv" + std::to_string(number), x, {1, 3, 1, dilation});
    };
    const Picture first = relu(layer(1, noisy, 1));
    const Picture third = relu(layer(3, relu(layer(2, first, 2)), 3));
    const Picture fourth = relu(layer(4, plus(first, third), 4));
    const Picture sixth = relu(layer(6, relu(layer(5, fourth, 3)), 2));
    Picture clean = layer(7, plus(fourth, sixth), 1);
    for (std::size_t i = 0; i < clean.v.size(); ++i) clean.v[i] = noisy.v[i] - clean.v[i];
    e.is("clean", clean.v);
  }
  EXPECT_EQ(contractions(named_workload("sar-drn")), 7u);
}

TEST(VisionNetworks, RefuseWhatIsNoMultiple) {
  for (const auto& [name, line] :
       {std::pair{"efficientnet-b0:channels=34",
                  "channels: 34 is not accepted; accepted: multiples of 4"},
        {"shufflenet-v2:channels=10", "channels: 10 is not accepted; accepted: multiples of 4"},
        {"rednet50:group=5", "channels: 64 is not accepted; accepted: multiples of 10"},
        {"rednet50:size=100", "size: 100 is not accepted; accepted: multiples of 32"}})
    try {
      named_workload(name);
      ADD_FAILURE() << name;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(line), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace tilewright
