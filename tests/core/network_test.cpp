// The networks against the same networks written as plain loops over matrices, and against the
// counts that Souffle's tables rest on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/core/networks.h"

namespace tilewright {
namespace {

// ---- BERT -------------------------------------------------------------------------------------

struct BertSize {
  std::size_t layers, seq, hidden, heads, ffn;
};

/// Attention of one head: columns [first, first + size) of q, k and v, of `width` columns.
void attend(const Numbers& q, const Numbers& k, const Numbers& v, std::size_t seq,
            std::size_t width, std::size_t first, std::size_t size, Numbers& out) {
  for (std::size_t i = 0; i < seq; ++i) {
    Numbers share(seq);
    double sum = 0;
    for (std::size_t j = 0; j < seq; ++j) {
      double score = 0;
      for (std::size_t e = first; e < first + size; ++e) score += q[i * width + e] * k[j * width + e];
      sum += share[j] = std::exp(score / std::sqrt(static_cast<double>(size)));
    }
    for (std::size_t e = first; e < first + size; ++e)
      for (std::size_t j = 0; j < seq; ++j)
        out[i * width + e] += share[j] / sum * v[j * width + e];
  }
}

void normalise(Numbers& x, std::size_t rows, const Numbers* gain, const Numbers* offset) {
  const std::size_t cols = x.size() / rows;
  for (std::size_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < cols; ++c) mean += x[r * cols + c] / static_cast<double>(cols);
    for (std::size_t c = 0; c < cols; ++c)
      variance += std::pow(x[r * cols + c] - mean, 2) / static_cast<double>(cols);
    for (std::size_t c = 0; c < cols; ++c) {
      double& y = x[r * cols + c];
      y = (y - mean) / std::sqrt(variance + 1e-5);
      if (gain != nullptr) y = y * (*gain)[c] + (*offset)[c];
    }
  }
}

void add_columns(Numbers& x, const Numbers& bias) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += bias[i % bias.size()];
}

void check_bert(const BertSize& s, bool standard) {
  const Evaluated e("bert:layers=" + std::to_string(s.layers) + ",seq=" + std::to_string(s.seq) +
                    ",hidden=" + std::to_string(s.hidden) + ",heads=" + std::to_string(s.heads) +
                    ",ffn=" + std::to_string(s.ffn) + ",dtype=f64" + (standard ? ",standard=1" : ""));
  const std::size_t size = s.hidden / s.heads;
  Numbers x = e.input("X0");
  for (std::size_t n = 1; n <= s.layers; ++n) {
    const auto of = [&](const std::string& name) -> const Numbers& {
      return e.input(name + std::to_string(n));
    };
    Numbers q = product(x, of("Wq"), s.seq), k = product(x, of("Wk"), s.seq),
            v = product(x, of("Wv"), s.seq), context(s.seq * s.hidden);
    if (standard) add_columns(q, of("bq")), add_columns(k, of("bk")), add_columns(v, of("bv"));
    for (std::size_t h = 0; h < s.heads; ++h)
      attend(q, k, v, s.seq, s.hidden, h * size, size, context);
    Numbers y = product(context, of("Wo"), s.seq);
    if (standard) add_columns(y, of("bo"));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
    normalise(y, s.seq, standard ? &of("gain") : nullptr, standard ? &of("offset") : nullptr);
    Numbers f = product(y, of("W1"), s.seq);
    if (standard) add_columns(f, of("b1"));
    for (double& a : f)
      a = !standard ? std::max(0.0, a)
                    : 0.5 * a * (1 + std::tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));
    x = product(f, of("W2"), s.seq);
    if (standard) add_columns(x, of("b2"));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    normalise(x, s.seq, standard ? &of("gainf") : nullptr, standard ? &of("offsetf") : nullptr);
    expect_near(e.result("X" + std::to_string(n)), x, "layer " + std::to_string(n));
  }
}

TEST(Networks, BertIsItsLayers) {
  for (const bool standard : {false, true}) {
    check_bert({2, 7, 12, 3, 20}, standard);
    check_bert({1, 5, 8, 1, 6}, standard);
    check_bert({3, 4, 10, 5, 8}, standard);
  }
}

std::size_t reductions(const Workload& w) {
  std::size_t n = 0;
  for (OpId op : w.topological_order()) n += w.reduction_loops(op).empty() ? 0 : 1;
  return n;
}

TEST(Networks, BertHasTheOperatorsOfSoufflesArtifact) {
  const Workload w = named_workload("bert");
  EXPECT_EQ(w.operators().size(), 240u);
  EXPECT_EQ(reductions(w), 156u);
  std::size_t several = 0;
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    several += w.consumers(TensorId(t)).size() > 1 ? 1 : 0;
  EXPECT_EQ(several, 60u);
  std::int64_t weights = 0;  // of a layer: four of hidden x hidden, two of hidden x ffn
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_input(TensorId(t)) && w.tensors()[t].name.starts_with("W"))
      weights += w.tensors()[t].elements().value;
  EXPECT_EQ(weights, 12 * (4 * 768 * 768 + 2 * 768 * 3072));
  EXPECT_EQ(named_workload("bert-large").operators().size(), 480u);
}

// ---- LSTM -------------------------------------------------------------------------------------

/// h and c of every layer after the last step.
std::pair<Numbers, Numbers> run_lstm(const Evaluated& e, std::size_t steps, std::size_t layers,
                                     std::size_t hidden) {
  Numbers h = e.input("h0"), c = e.input("c0");
  const Numbers &W = e.input("W"), &U = e.input("U");
  for (std::size_t t = 0; t < steps; ++t) {
    Numbers below(e.input("x").begin() + static_cast<std::ptrdiff_t>(t * hidden),
                  e.input("x").begin() + static_cast<std::ptrdiff_t>((t + 1) * hidden));
    for (std::size_t n = 0; n < layers; ++n) {
      Numbers gates(4 * hidden), next(hidden);
      for (std::size_t g = 0; g < 4 * hidden; ++g)
        for (std::size_t k = 0; k < hidden; ++k) {
          const std::size_t at = (n * 4 * hidden + g) * hidden + k;
          gates[g] += below[k] * W[at] + h[n * hidden + k] * U[at];
        }
      for (std::size_t j = 0; j < hidden; ++j) {
        double& cell = c[n * hidden + j];
        cell = sigmoid(gates[2 * hidden + j] + 1) * cell +
               sigmoid(gates[j]) * std::tanh(gates[hidden + j]);
        next[j] = sigmoid(gates[3 * hidden + j]) * std::tanh(cell);
      }
      std::ranges::copy(next, h.begin() + static_cast<std::ptrdiff_t>(n * hidden));
      below = next;
    }
  }
  return {h, c};
}

TEST(Networks, LstmInBothFormsIsItsSteps) {
  // More steps than layers, fewer, as many; one of either.
  for (const auto& [steps, layers] : {std::pair{5, 3}, {2, 4}, {3, 3}, {1, 3}, {4, 1}, {1, 1}}) {
    const std::size_t hidden = 6, l = static_cast<std::size_t>(layers);
    const std::string size = "lstm:steps=" + std::to_string(steps) + ",layers=" + std::to_string(layers) +
                             ",hidden=6,dtype=f64";
    const Evaluated cells(size), waves(size + ",wavefront=1");
    const auto [h, c] = run_lstm(cells, static_cast<std::size_t>(steps), l, hidden);
    for (std::size_t n = 0; n < l; ++n) {
      const auto row = [&](const Numbers& all) {
        return Numbers(all.begin() + static_cast<std::ptrdiff_t>(n * hidden),
                       all.begin() + static_cast<std::ptrdiff_t>((n + 1) * hidden));
      };
      const std::string last = std::to_string(steps) + "_" + std::to_string(n);
      expect_near(cells.result("h" + last), row(h), size);
      expect_near(cells.result("c" + last), row(c), size);
    }
    const auto [hw, cw] = run_lstm(waves, static_cast<std::size_t>(steps), l, hidden);
    const std::string wave = std::to_string(steps + layers - 1);
    expect_near(waves.result("h" + wave), hw, size + " in waves");
    expect_near(waves.result("c" + wave), cw, size + " in waves");
  }
}

TEST(Networks, LstmReadsTheBytesOfSoufflesTables) {
  for (const char* form : {"lstm", "lstm:wavefront=1"}) {
    const Workload w = named_workload(form);
    EXPECT_EQ(input_bytes(w), 21'094'400) << form;  // table 6: 21.11 MB
    EXPECT_EQ(w.tensor(*w.find_tensor("W")).bytes().value + w.tensor(*w.find_tensor("U")).bytes().value,
              20'971'520);
  }
  EXPECT_EQ(named_workload("lstm:wavefront=1").operators().size(), 3u * 109);
  EXPECT_EQ(named_workload("lstm").operators().size(), 4u * 1000);
}

// ---- experts, squeeze and excitation ----------------------------------------------------------

TEST(Networks, MmoeMixesItsExperts) {
  const Evaluated e("mmoe:input=9,units=4,experts=3,tasks=2,dtype=f64");
  const Numbers &x = e.input("in"), &We = e.input("We"), &Wg = e.input("Wg");
  Numbers wanted(2 * 4);
  for (std::size_t t = 0; t < 2; ++t) {
    Numbers share(3);
    double sum = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      double gate = 0;
      for (std::size_t i = 0; i < 9; ++i) gate += x[i] * Wg[(t * 9 + i) * 3 + k];
      sum += share[k] = std::exp(gate);
    }
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t u = 0; u < 4; ++u) {
        double expert = 0;
        for (std::size_t i = 0; i < 9; ++i) expert += x[i] * We[(k * 9 + i) * 4 + u];
        wanted[t * 4 + u] += share[k] / sum * std::max(0.0, expert);
      }
  }
  expect_near(e.result("Y"), wanted, "mmoe");
  const Workload w = named_workload("mmoe");
  EXPECT_EQ(w.operators().size(), 7u);
  EXPECT_EQ(reductions(w), 4u);
  EXPECT_EQ(input_bytes(w), 58'000);  // table 5: 0.058 MB
}

TEST(Networks, SqueezeAndExcitationGatesItsChannels) {
  const Evaluated e("se-module:size=5,channels=6,squeezed=2,dtype=f64");
  const Numbers &x = e.input("X"), &W1 = e.input("W1"), &W2 = e.input("W2");
  Numbers mean(6), wanted(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) mean[i / 25] += x[i] / 25;
  Numbers a = product(mean, W1, 1);
  add_columns(a, e.input("b1"));
  for (double& v : a) v *= sigmoid(v);
  Numbers gate = product(a, W2, 1);
  add_columns(gate, e.input("b2"));
  for (std::size_t i = 0; i < x.size(); ++i) wanted[i] = x[i] * sigmoid(gate[i / 25]);
  expect_near(e.result("Y"), wanted, "se-module");
  const Workload m0 = named_workload("se-module/M0");
  EXPECT_EQ(m0.tensor(*m0.find_tensor("X")).bytes().value, 1'605'632);
}

TEST(Networks, RefuseWhatDoesNotDivide) {
  try {
    named_workload("bert:hidden=100,heads=3");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("heads: 3 does not divide"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tilewright
