// Transformers against the same networks in plain loops over matrices of tokens, and their counts.
#include "tests/core/networks.h"

namespace tilewright {
namespace {

/// A network's inputs and results, of one of its layers.
struct Layer {
  const Evaluated& e;
  std::string number;
  const Numbers& of(const std::string& name) const { return e.input(name + number); }
};

/// Rows of tokens, each less its mean over its deviation, with gain and offset.
Numbers normal(const Layer& n, const std::string& name, Numbers x) {
  const Numbers &gain = n.of("gain" + name), &offset = n.of("offset" + name);
  const std::size_t width = gain.size();
  for (std::size_t first = 0; first < x.size(); first += width) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < width; ++c) mean += x[first + c] / static_cast<double>(width);
    for (std::size_t c = 0; c < width; ++c)
      variance += std::pow(x[first + c] - mean, 2) / static_cast<double>(width);
    for (std::size_t c = 0; c < width; ++c)
      x[first + c] = (x[first + c] - mean) / std::sqrt(variance + 1e-5) * gain[c] + offset[c];
  }
  return x;
}

Numbers with_bias(Numbers x, const Numbers& bias) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += bias[i % bias.size()];
  return x;
}

Numbers plus(Numbers x, const Numbers& y) {
  EXPECT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  return x;
}

double gelu_by_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_by_tanh(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/// x and what two products make of it.
Numbers feed_forward(const Layer& n, const Numbers& x, double (*gelu)(double)) {
  const std::size_t rows = x.size() / n.of("b2").size();
  Numbers h = with_bias(product(normal(n, "f", x), n.of("W1"), rows), n.of("b1"));
  for (double& y : h) y = gelu(y);
  return plus(with_bias(product(h, n.of("W2"), rows), n.of("b2")), x);
}

Numbers projected(const Layer& n, const std::string& what, const Numbers& x) {
  const std::size_t rows = x.size() / (n.of("W" + what).size() / n.of("b" + what).size());
  return with_bias(product(x, n.of("W" + what), rows), n.of("b" + what));
}

/// Queries of some rows, each over the keys and values of some rows: all heads, head after head in
/// a row. `score(head, i, j)` is added to the scaled product.
template <class Score>
Numbers attend(const Numbers& q, const Numbers& k, const Numbers& v, std::size_t width,
               std::size_t heads, Score score) {
  const std::size_t rows = q.size() / width, keys = k.size() / width, size = width / heads;
  Numbers out(q.size());
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t i = 0; i < rows; ++i) {
      Numbers share(keys);
      double sum = 0;
      for (std::size_t j = 0; j < keys; ++j) {
        double dot = 0;
        for (std::size_t c = h * size; c < (h + 1) * size; ++c)
          dot += q[i * width + c] * k[j * width + c];
        sum += share[j] = std::exp(dot / std::sqrt(static_cast<double>(size)) + score(h, i, j));
      }
      for (std::size_t c = h * size; c < (h + 1) * size; ++c)
        for (std::size_t j = 0; j < keys; ++j)
          out[i * width + c] += share[j] / sum * v[j * width + c];
    }
  return out;
}

double nothing(std::size_t, std::size_t, std::size_t) { return 0; }

Numbers rows_of(const Numbers& all, std::size_t first, std::size_t count) {
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(first);
  return Numbers(from, from + static_cast<std::ptrdiff_t>(count));
}

std::string text(std::size_t n) { return std::to_string(n); }

/// Weights by output, input.
Numbers classes(const Evaluated& e, const Numbers& x) {
  Numbers out = e.input("bh");
  for (std::size_t o = 0; o < out.size(); ++o)
    for (std::size_t i = 0; i < x.size(); ++i) out[o] += e.input("Wh")[o * x.size() + i] * x[i];
  return out;
}

TEST(Transformers, VisionTransformerIsItsLayers) {
  struct Size {
    std::size_t size, patch, layers, hidden, heads, mlp;
  };
  for (const Size& s : {Size{6, 2, 2, 12, 3, 20}, {5, 5, 1, 6, 1, 7}, {9, 3, 3, 10, 5, 8}}) {
    const std::string name = "vit-b16:size=" + text(s.size) + ",patch=" + text(s.patch) +
                             ",layers=" + text(s.layers) + ",hidden=" + text(s.hidden) +
                             ",heads=" + text(s.heads) + ",mlp=" + text(s.mlp) +
                             ",classes=5,dtype=f64";
    const Evaluated e(name, 0.7);
    // Patches are rows of 3 * patch * patch values; weights are by output.
    const std::size_t deep = 3 * s.patch * s.patch, patches = e.input("image").size() / deep;
    Numbers x = e.input("first");
    for (std::size_t t = 0; t < patches; ++t)
      for (std::size_t d = 0; d < s.hidden; ++d) {
        double sum = e.input("bp")[d];
        for (std::size_t i = 0; i < deep; ++i)
          sum += e.input("image")[t * deep + i] * e.input("Wp")[d * deep + i];
        x.push_back(sum);
      }
    x = plus(x, e.input("place"));
    for (std::size_t l = 1; l <= s.layers; ++l) {
      const Layer n{e, text(l)};
      const Numbers y = normal(n, "", x);
      const Numbers a = attend(projected(n, "q", y), projected(n, "k", y), projected(n, "v", y),
                               s.hidden, s.heads, nothing);
      x = feed_forward(n, plus(projected(n, "o", a), x), gelu_by_erf);
      expect_near(e.result("X" + text(l)), x, name + " layer " + text(l));
    }
    x = normal({e, text(s.layers)}, "end", x);
    expect_near(e.result("Yb"), classes(e, rows_of(x, 0, s.hidden)), name);
  }
}

TEST(Transformers, VisionTransformerHasItsParameters) {
  const Workload w = named_workload("vit-b16");
  EXPECT_EQ(contractions(w), 12u * 8 + 2);
  EXPECT_EQ(input_bytes(w), 4 * (86'567'656 + 3 * 224 * 224));
}

TEST(Transformers, Gpt2ReadsItsCache) {
  struct Size {
    std::size_t batch, past, layers, hidden, heads, mlp;
  };
  for (const Size& s :
       {Size{3, 5, 2, 12, 3, 20}, {1, 1, 1, 6, 1, 7}, {2, 9, 3, 10, 5, 8}, {1, 1030, 1, 4, 2, 5}}) {
    const std::string name = "gpt2:batch=" + text(s.batch) + ",past=" + text(s.past) +
                             ",layers=" + text(s.layers) + ",hidden=" + text(s.hidden) +
                             ",heads=" + text(s.heads) + ",mlp=" + text(s.mlp) +
                             ",vocabulary=11,dtype=f64";
    const Evaluated e(name, 1);
    const std::size_t size = s.hidden / s.heads, all = s.past + 1;
    Numbers x;
    for (std::size_t b = 0; b < s.batch; ++b)
      for (std::size_t d = 0; d < s.hidden; ++d)
        x.push_back(e.input("words")[static_cast<std::size_t>(e.input("ids")[b]) * s.hidden + d] +
                    e.input("places")[s.past * s.hidden + d]);
    for (std::size_t l = 1; l <= s.layers; ++l) {
      const Layer n{e, text(l)};
      const Numbers y = normal(n, "", x);
      const Numbers qkv = projected(n, "qkv", y);
      Numbers q, k, v, context;  // of a sequence one after the other
      for (std::size_t i = 0; i < qkv.size(); ++i)
        (i / s.hidden % 3 == 0 ? q : i / s.hidden % 3 == 1 ? k : v).push_back(qkv[i]);
      for (std::size_t b = 0; b < s.batch; ++b) {
        // The cache is by head, then by token.
        const auto rows = [&](const Numbers& past, const Numbers& own) {
          Numbers out(all * s.hidden);
          for (std::size_t t = 0; t < all; ++t)
            for (std::size_t c = 0; c < s.hidden; ++c)
              out[t * s.hidden + c] =
                  t == s.past ? own[b * s.hidden + c]
                              : past[((b * s.heads + c / size) * s.past + t) * size + c % size];
          return out;
        };
        const Numbers a = attend(rows_of(q, b * s.hidden, s.hidden), rows(n.of("pastK"), k),
                                 rows(n.of("pastV"), v), s.hidden, s.heads, nothing);
        context.insert(context.end(), a.begin(), a.end());
      }
      x = feed_forward(n, plus(projected(n, "o", context), x), gelu_by_tanh);
      expect_near(e.result("X" + text(l)), x, name + " layer " + text(l));
    }
    x = normal({e, text(s.layers)}, "end", x);
    Numbers logits(s.batch * 11);
    for (std::size_t i = 0; i < logits.size(); ++i)
      for (std::size_t d = 0; d < s.hidden; ++d)
        logits[i] += x[i / 11 * s.hidden + d] * e.input("words")[i % 11 * s.hidden + d];
    expect_near(e.result("Y"), logits, name);
  }
}

TEST(Transformers, Gpt2HasItsParametersAndCache) {
  const Workload w = named_workload("gpt2:batch=2,past=100");
  EXPECT_EQ(contractions(w), 12u * 6 + 1);
  const std::int64_t cache = 2 * 12 * (2 * 100 * 768), ids = 2;
  EXPECT_EQ(input_bytes(w), 4 * (124'439'808 + cache + ids));
  EXPECT_EQ(w.outputs().size(), 25u);
}

// ---- windows ----------------------------------------------------------------------------------

/// Rows and columns of tokens in windows as the network stores them: window, row, window, column.
struct Grid {
  std::size_t side, window, width;
  std::size_t at(std::size_t y, std::size_t x) const {
    return (((y / window * window + y % window) * (side / window) + x / window) * window +
            x % window) *
           width;
  }
};

/// Attention within windows of tokens that are first moved by `shift` rows and columns.
Numbers windows(const Layer& n, const Numbers& x, const Grid& g, std::size_t heads,
                std::size_t shift) {
  const std::size_t w = g.window;
  Numbers out(x.size());
  for (std::size_t wy = 0; wy < g.side; wy += w)
    for (std::size_t wx = 0; wx < g.side; wx += w) {
      Numbers tokens;
      std::vector<std::size_t> from, region;
      for (std::size_t i = 0; i < w * w; ++i) {
        const std::size_t y = wy + i / w, z = wx + i % w;  // of the moved tokens
        from.push_back(g.at((y + shift) % g.side, (z + shift) % g.side));
        const Numbers token = rows_of(x, from.back(), g.width);
        tokens.insert(tokens.end(), token.begin(), token.end());
        const auto part = [&](std::size_t at) {
          return at < g.side - w ? 0 : at < g.side - shift ? 1 : 2;
        };
        region.push_back(static_cast<std::size_t>(part(y) * 3 + part(z)));
      }
      const Numbers& near = n.of("near");
      const auto score = [&](std::size_t h, std::size_t i, std::size_t j) {
        const std::size_t dy = i / w + w - 1 - j / w, dx = i % w + w - 1 - j % w;
        return near[(dy * (2 * w - 1) + dx) * heads + h] +
               (shift > 0 && region[i] != region[j] ? -100 : 0);
      };
      const Numbers a = attend(projected(n, "q", tokens), projected(n, "k", tokens),
                               projected(n, "v", tokens), g.width, heads, score);
      const Numbers b = projected(n, "o", a);
      for (std::size_t i = 0; i < w * w; ++i)
        for (std::size_t c = 0; c < g.width; ++c) out[from[i] + c] = b[i * g.width + c];
    }
  return out;
}

TEST(Transformers, SwinIsItsWindows) {
  struct Size {
    std::size_t size, patch, window, width, heads, mlp, stages, blocks;
  };
  for (const Size& s : {Size{24, 2, 3, 4, 2, 2, 2, 4},
                        {16, 1, 2, 2, 1, 1, 3, 2},
                        {15, 1, 5, 6, 3, 3, 1, 2},
                        {14, 2, 7, 4, 1, 2, 1, 2},
                        {40, 1, 5, 2, 1, 1, 4, 2}}) {
    const std::string name =
        "swin-b:size=" + text(s.size) + ",patch=" + text(s.patch) + ",window=" + text(s.window) +
        ",width=" + text(s.width) + ",heads=" + text(s.heads) + ",mlp=" + text(s.mlp) +
        ",stages=" + text(s.stages) + ",blocks=" + text(s.blocks) + ",classes=5,dtype=f64";
    const Evaluated e(name, 1);
    Grid g{s.size / s.patch, s.window, s.width};
    Numbers x(g.side * g.side * g.width);
    for (std::size_t y = 0; y < g.side; ++y)
      for (std::size_t z = 0; z < g.side; ++z)
        for (std::size_t d = 0; d < g.width; ++d) {
          double sum = e.input("bp")[d];
          for (std::size_t c = 0; c < 3; ++c)
            for (std::size_t r = 0; r < s.patch; ++r)
              for (std::size_t t = 0; t < s.patch; ++t)
                sum += e.input("image")[(c * s.size + y * s.patch + r) * s.size + z * s.patch + t] *
                       e.input("Wp")[((d * 3 + c) * s.patch + r) * s.patch + t];
          x[g.at(y, z) + d] = sum;
        }
    x = normal({e, ""}, "first", x);
    std::size_t number = 0, heads = s.heads;
    const std::size_t depths[] = {2, 2, 18, 2};
    for (std::size_t stage = 0; stage < s.stages; ++stage) {
      for (std::size_t b = 0; b < std::min(s.blocks, depths[stage]); ++b) {
        const Layer n{e, text(++number)};
        const std::size_t shift = b % 2 == 1 && g.side > g.window ? g.window / 2 : 0;
        x = plus(windows(n, normal(n, "", x), g, heads, shift), x);
        x = feed_forward(n, x, gelu_by_erf);
        expect_near(e.result("X" + n.number), x, name + " block " + n.number);
      }
      if (stage + 1 == s.stages) break;
      const Grid half{g.side / 2, g.window, 2 * g.width};
      const Layer n{e, text(stage + 1)};
      Numbers next(half.side * half.side * half.width);
      for (std::size_t y = 0; y < half.side; ++y)
        for (std::size_t z = 0; z < half.side; ++z) {
          Numbers four;  // (0, 0), (1, 0), (0, 1), (1, 1) in rows and columns
          for (const auto& [dy, dx] :
               {std::pair<std::size_t, std::size_t>{0, 0}, {1, 0}, {0, 1}, {1, 1}}) {
            const Numbers token = rows_of(x, g.at(2 * y + dy, 2 * z + dx), g.width);
            four.insert(four.end(), token.begin(), token.end());
          }
          four = normal(n, "four", four);
          for (std::size_t d = 0; d < half.width; ++d)
            for (std::size_t c = 0; c < four.size(); ++c)
              next[half.at(y, z) + d] += four[c] * n.of("Wm")[d * four.size() + c];
        }
      x = next;
      g = half;
      heads *= 2;
      expect_near(e.result("merged" + n.number), x, name + " merge " + n.number);
    }
    x = normal({e, text(number)}, "end", x);
    Numbers mean(g.width);
    for (std::size_t i = 0; i < x.size(); ++i)
      mean[i % g.width] += x[i] / static_cast<double>(g.side * g.side);
    expect_near(e.result("Yb"), classes(e, mean), name);
  }
}

TEST(Transformers, SwinHasItsParameters) {
  const Workload w = named_workload("swin-b");
  EXPECT_EQ(contractions(w), 24u * 8 + 1 + 3 + 1);
  EXPECT_EQ(input_bytes(w), 4 * (87'768'224 + 3 * 224 * 224));
}

TEST(Transformers, RefuseWhatIsNotSharedOut) {
  for (const auto& [name, line] :
       {std::pair{"vit-b16:size=225", "size: 225 is not shared out evenly over patches"},
        {"gpt2:heads=5",
         "hidden: 768 is not shared out evenly over heads; accepted: multiples of 5"},
        {"swin-b:size=256",
         "size: 256 is not shared out evenly over windows; accepted: multiples of 224"}})
    try {
      named_workload(name);
      ADD_FAILURE() << name;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(line), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace tilewright
