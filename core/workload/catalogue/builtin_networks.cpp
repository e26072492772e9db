// Networks that the papers were shown on, as graphs of single operators. A reshape is no operator: head
// splits and gates are dimensions of their own, and layers share their loops.
#include <cmath>

#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {
namespace {

std::string numbered(const std::string& name, std::int64_t layer) {
  return name + std::to_string(layer);
}

// ---- BERT -------------------------------------------------------------------------------------

/// Tokens m read tokens l; heads h of size e (v of the values); width d, n after attention; f within
/// the feed-forward network.
class Bert {
 public:
  explicit Bert(const Values& v) : v_(v), d_(v.dtype) {
    if (v["hidden"] % v["heads"] != 0)
      throw InputError({.field = "heads",
                        .value = std::to_string(v["heads"]),
                        .problem = "does not divide the hidden size",
                        .accepted = "a divisor of " + std::to_string(v["hidden"])});
    const std::int64_t size = v["hidden"] / v["heads"];
    d_.loop("m", v["seq"]).loop("l", v["seq"]).loop("h", v["heads"]).loop("e", size);
    d_.loop("v", size).loop("d", v["hidden"]).loop("n", v["hidden"]).loop("f", v["ffn"]);
    d_.tensor("X0", "m,d");
    scale_ = number_text(1.0 / std::sqrt(static_cast<double>(size)));
    each_ = number_text(1.0 / static_cast<double>(v["hidden"]));
  }

  RawWorkload take() {
    for (layer_ = 1; layer_ <= v_["layers"]; ++layer_) {
      v_["standard"] == 1 ? standard() : of_artifact();
      for (const char* name : {"Wq", "Wk", "Wv", "Wo", "W1"}) d_.weights(t(name), v_["hidden"]);
      d_.weights(t("W2"), v_["ffn"]);
    }
    d_.output(numbered("X", v_["layers"]));
    return d_.take();
  }

 private:
  std::string t(const std::string& name) const { return numbered(name, layer_); }
  /// "name_: T_[index] = value", the layer's number for each underscore; X^ is the layer's input.
  void op(std::string text) {
    const std::string number = std::to_string(layer_), before = std::to_string(layer_ - 1);
    std::string out;
    for (char c : text) out += c == '_' ? number : c == '^' ? before : std::string(1, c);
    d_.op(out);
  }

  void products() {
    op("q_: Q_[h,m,e] += X^[m,d] * Wq_[d,h,e]");
    op("k_: K_[h,l,e] += X^[l,d] * Wk_[d,h,e]");
    op("v_: V_[h,l,v] += X^[l,d] * Wv_[d,h,v]");
  }

  /// As the artifact has it: no maximum, no biases, and a normalisation by two sums of one pass.
  void of_artifact() {
    products();
    op("qk_: S_[h,m,l] += Q_[h,m,e] * K_[h,l,e]");
    op("exp_: P_[h,m,l] = exp(S_[h,m,l] * " + scale_ + ")");
    op("rowsum_: Z_[h,m] += P_[h,m,l]");
    op("share_: N_[h,m,l] = P_[h,m,l] / Z_[h,m]");
    op("pv_: A_[h,m,v] += N_[h,m,l] * V_[h,l,v]");
    op("proj_: B_[m,n] += A_[h,m,v] * Wo_[h,v,n]");
    op("add_: C_[m,n] = B_[m,n] + X^[m,n]");
    normalise("", "C_", "E_", "n");
    op("fc1_: U_[m,f] += E_[m,n] * W1_[n,f]");
    op("relu_: G_[m,f] = relu(U_[m,f])");
    op("fc2_: M_[m,d] += G_[m,f] * W2_[f,d]");
    op("addf_: F_[m,d] = M_[m,d] + E_[m,d]");
    normalise("f", "F_", "X_", "d");
  }

  void normalise(const std::string& name, const std::string& from, const std::string& to,
                 const std::string& c) {
    const std::string sum = "s" + name + "_[m]", sq = "r" + name + "_[m]", at = "[m," + c + "]";
    op("sum" + name + "_: " + sum + " += " + from + at);
    op("sumsq" + name + "_: " + sq + " += square(" + from + at + ")");
    op("norm" + name + "_: " + to + at + " = (" + from + at + " - " + sum + " * " + each_ +
       ") * rsqrt(" + sq + " * " + each_ + " - square(" + sum + " * " + each_ + ") + 1e-05)");
  }

  /// With biases, a softmax less its maximum, GELU by tanh, and a normalisation in two passes.
  void standard() {
    products();
    op("qb_: Qb_[h,m,e] = Q_[h,m,e] + bq_[h,e]");
    op("kb_: Kb_[h,l,e] = K_[h,l,e] + bk_[h,e]");
    op("vb_: Vb_[h,l,v] = V_[h,l,v] + bv_[h,v]");
    op("qk_: S_[h,m,l] += Qb_[h,m,e] * Kb_[h,l,e]");
    op("scaled_: T_[h,m,l] = S_[h,m,l] * " + scale_);
    op("rowmax_: R_[h,m] max= T_[h,m,l]");
    op("exp_: P_[h,m,l] = exp(T_[h,m,l] - R_[h,m])");
    op("rowsum_: Z_[h,m] += P_[h,m,l]");
    op("share_: N_[h,m,l] = P_[h,m,l] / Z_[h,m]");
    op("pv_: A_[h,m,v] += N_[h,m,l] * Vb_[h,l,v]");
    op("proj_: B_[m,n] += A_[h,m,v] * Wo_[h,v,n]");
    op("add_: C_[m,n] = B_[m,n] + bo_[n] + X^[m,n]");
    normalise_in_two("", "C_", "E_", "n");
    op("fc1_: U_[m,f] += E_[m,n] * W1_[n,f]");
    op("biased_: H_[m,f] = U_[m,f] + b1_[f]");
    op("gelu_: G_[m,f] = 0.5 * H_[m,f] * (1 + tanh(0.7978845608028654 * (H_[m,f] + 0.044715 * "
       "H_[m,f] * square(H_[m,f]))))");
    op("fc2_: M_[m,d] += G_[m,f] * W2_[f,d]");
    op("addf_: F_[m,d] = M_[m,d] + b2_[d] + E_[m,d]");
    normalise_in_two("f", "F_", "X_", "d");
  }

  void normalise_in_two(const std::string& name, const std::string& from, const std::string& to,
                        const std::string& c) {
    const std::string at = "[m," + c + "]", mean = "mean" + name + "_[m]",
                      sub = "sub" + name + "_" + at, rstd = "rstd" + name + "_[m]";
    op("sum" + name + "_: s" + name + "_[m] += " + from + at);
    op("mean" + name + "_: " + mean + " = s" + name + "_[m] * " + each_);
    op("sub" + name + "_: " + sub + " = " + from + at + " - " + mean);
    op("varsum" + name + "_: r" + name + "_[m] += square(" + sub + ")");
    op("rstd" + name + "_: " + rstd + " = rsqrt(r" + name + "_[m] * " + each_ + " + 1e-05)");
    op("norm" + name + "_: " + to + at + " = " + sub + " * " + rstd + " * gain" + name + "_[" + c +
       "] + offset" + name + "_[" + c + "]");
  }

  const Values& v_;
  Draft d_;
  std::int64_t layer_ = 1;
  std::string scale_, each_;
};

RawWorkload bert(const Values& v) { return Bert(v).take(); }

// ---- LSTM -------------------------------------------------------------------------------------

/// Gates in the order input, cell, forget, output; the forget gate's bias is 1.
std::string cell_state(const std::string& gates, const std::string& before) {
  const auto gate = [&](int g) {
    std::string text;
    for (char c : gates) text += c == '@' ? std::to_string(g) : std::string(1, c);
    return text;
  };
  return "sigmoid(" + gate(2) + " + 1) * " + before + " + sigmoid(" + gate(0) + ") * tanh(" +
         gate(1) + ")";
}

/// An operator for each product, state and output of each step of each layer.
void add_cells(Draft& d, const Values& v) {
  const std::int64_t steps = v["steps"], layers = v["layers"];
  const auto name = [](const char* what, std::int64_t step, std::int64_t layer) {
    return what + std::to_string(step) + "_" + std::to_string(layer);
  };
  for (std::int64_t t = 1; t <= steps; ++t)
    for (std::int64_t n = 0; n < layers; ++n) {
      const std::string layer = std::to_string(n);
      const std::string x = n == 0 ? "x[" + std::to_string(t - 1) + ",k]" : name("h", t, n - 1) + "[k]";
      const std::string h = t == 1 ? "h0[" + layer + ",k]" : name("h", t - 1, n) + "[k]";
      const std::string c = t == 1 ? "c0[" + layer + ",j]" : name("c", t - 1, n) + "[j]";
      const std::string u = name("u", t, n), w = name("w", t, n), now = name("c", t, n),
                        out = name("h", t, n);
      d.op(name("in", t, n) + ": " + u + "[g,j] += " + x + " * W[" + layer + ",g,j,k]");
      d.op(name("own", t, n) + ": " + w + "[g,j] += " + h + " * U[" + layer + ",g,j,k]");
      d.op(name("state", t, n) + ": " + now + "[j] = " +
           cell_state("(" + u + "[@,j] + " + w + "[@,j])", c));
      d.op(name("out", t, n) + ": " + out + "[j] = sigmoid(" + u + "[3,j] + " + w + "[3,j]) * tanh(" +
           now + "[j])");
    }
  for (std::int64_t n = 0; n < layers; ++n)
    d.output(name("h", steps, n)).output(name("c", steps, n));
}

/// Step t of layer n beside step t - 1 of layer n + 1: three operators a wave over all layers. Layers
/// that have no step in a wave keep their state.
void add_waves(Draft& d, const Values& v) {
  const std::int64_t steps = v["steps"], layers = v["layers"], waves = steps + layers - 1;
  d.tensor("h0", "n,k").tensor("c0", "n,j");
  for (std::int64_t w = 1; w <= waves; ++w) {
    const std::string now = std::to_string(w), before = std::to_string(w - 1);
    const std::string h = "h" + before, c = "c" + before;
    // What is above reads the layer below; outside of a tensor there are zeros.
    std::string x = layers == 1 ? "" : h + "[n-1,k]";
    if (w <= steps) {
      const std::string first = "x[" + before + ",k]";
      x = layers == 1 ? first : "select(lt(n, 1), " + first + ", " + x + ")";
    }
    d.tensor("u" + now, "n,4,j").tensor("c" + now, "n,j").tensor("h" + now, "n,j");
    d.op("gates" + now + ": u" + now + "[n,g,j] += " + x + " * W[n,g,j,k] + " + h +
         "[n,k] * U[n,g,j,k]");
    // Layer n has step w - n, from 1 to the last.
    std::string idle;
    if (w < layers) idle = "lt(" + std::to_string(w - 1) + ", n)";
    if (w > steps) idle = idle.empty() ? "lt(n, " + std::to_string(w - steps) + ")" : idle;
    const auto kept = [&](const std::string& old, const std::string& value) {
      if (w < layers && w > steps)
        return "select(lt(" + std::to_string(w - 1) + ", n), " + old + ", select(lt(n, " +
               std::to_string(w - steps) + "), " + old + ", " + value + "))";
      return idle.empty() ? value : "select(" + idle + ", " + old + ", " + value + ")";
    };
    d.op("state" + now + ": c" + now + "[n,j] = " +
         kept(c + "[n,j]", cell_state("u" + now + "[n,@,j]", c + "[n,j]")));
    d.op("out" + now + ": h" + now + "[n,j] = " +
         kept(h + "[n,j]", "sigmoid(u" + now + "[n,3,j]) * tanh(c" + now + "[n,j])"));
  }
  d.output("h" + std::to_string(waves)).output("c" + std::to_string(waves));
}

RawWorkload lstm(const Values& v) {
  Draft d(v.dtype);
  const bool waves = v["wavefront"] == 1;
  const std::string layers = std::to_string(v["layers"]), hidden = std::to_string(v["hidden"]);
  if (waves) d.loop("n", v["layers"]);
  d.loop("g", 4).loop("j", v["hidden"]).loop("k", v["hidden"]);
  d.tensor("x", std::to_string(v["steps"]) + "," + hidden);
  if (!waves) d.tensor("h0", layers + "," + hidden).tensor("c0", layers + "," + hidden);
  d.tensor("W", layers + ",4," + hidden + "," + hidden);
  d.tensor("U", layers + ",4," + hidden + "," + hidden);
  d.weights("W", 2 * v["hidden"]).weights("U", 2 * v["hidden"]);
  waves ? add_waves(d, v) : add_cells(d, v);
  return d.take();
}

// ---- experts, squeeze and excitation ----------------------------------------------------------

RawWorkload mmoe(const Values& v) {
  return Draft(v.dtype)
      .loop("i", v["input"])
      .loop("u", v["units"])
      .loop("x", v["experts"])
      .loop("t", v["tasks"])
      .op("experts: H[x,u] += in[i] * We[x,i,u]")
      .op("relu: R[x,u] = relu(H[x,u])")
      .op("gates: G[t,x] += in[i] * Wg[t,i,x]")
      .op("exp: P[t,x] = exp(G[t,x])")
      .op("sum: Z[t] += P[t,x]")
      .op("div: D[t,x] = P[t,x] / Z[t]")
      .op("mix: Y[t,u] += D[t,x] * R[x,u]")
      .weights("We", v["input"])
      .weights("Wg", v["input"])
      .take();
}

RawWorkload se_module(const Values& v) {
  const std::string each = number_text(1.0 / (static_cast<double>(v["size"]) *
                                              static_cast<double>(v["size"])));
  return Draft(v.dtype)
      .loop("c", v["channels"])
      .loop("y", v["size"])
      .loop("x", v["size"])
      .loop("j", v["squeezed"])
      .op("sum: s[c] += X[c,y,x]")
      .op("mean: p[c] = s[c] * " + each)
      .op("reduce: r[j] += p[c] * W1[c,j]")
      .op("biased1: q[j] = r[j] + b1[j]")
      .op("swish: a[j] = q[j] * sigmoid(q[j])")
      .op("expand: e[c] += a[j] * W2[j,c]")
      .op("biased2: f[c] = e[c] + b2[c]")
      .op("gate: g[c] = sigmoid(f[c])")
      .op("scale: Y[c,y,x] = X[c,y,x] * g[c]")
      .weights("W1", v["channels"])
      .weights("W2", v["squeezed"])
      .take();
}

}  // namespace

std::vector<Family> network_families() {
  return {
      {"bert",
       "BERT encoder layers: by default as Souffle's artifact has them (20 operators a layer, no biases, "
       "softmax without its maximum); standard=1: with both, GELU, and layer normalisation with gain",
       "Devlin et al., BERT, NAACL 2019; Souffle, table 2, and its artifact",
       {{"layers", 12, 1, 1000},
        {"seq", 384},
        {"hidden", 768, 1, 1048576},
        {"heads", 12, 1, 65536},
        {"ffn", 3072, 1, 1048576},
        {"standard", 0, 0, 1}},
       bert,
       {"X0"}},
      {"lstm",
       "LSTM layers over steps, batch 1: four operators for each step of each layer; wavefront=1: three for "
       "each wave of steps that do not wait for one another",
       "Souffle, table 2 (LSTM: 100 steps, 10 layers, 256 hidden units)",
       {{"steps", 100, 1, 10000},
        {"layers", 10, 1, 1000},
        {"hidden", 256, 1, 65536},
        {"wavefront", 0, 0, 1}},
       lstm,
       {"x", "h0", "c0"}},
      {"mmoe",
       "multi-gate mixture of experts, batch 1: experts, a softmax gate for each task, their mix",
       "Ma et al., Modeling task relationships in multi-task learning with MMoE, KDD 2018; Souffle, table 2",
       {{"input", 100}, {"units", 16}, {"experts", 8}, {"tasks", 2}},
       mmoe,
       {"in"}},
      {"se-module",
       "squeeze and excitation as EfficientNet has it, batch 1: mean, two products with biases, swish, gate",
       "Tan and Le, EfficientNet, ICML 2019; Souffle, figure 6",
       {{"size", 112, 1, 16384}, {"channels", 32}, {"squeezed", 8}},
       se_module,
       {"X"}},
  };
}

std::vector<Row> network_rows() {
  std::vector<Row> rows = {{"bert-large", "bert", "BERT large", "Devlin et al., NAACL 2019", DType::f32,
                            {{"layers", 24}, {"hidden", 1024}, {"heads", 16}, {"ffn", 4096}}}};
  // Souffle's artifact, figure 6: size, channels, squeezed channels.
  constexpr std::int64_t kModules[][3] = {{112, 32, 8},  {56, 96, 4},   {56, 144, 6},  {28, 144, 6},
                                          {28, 240, 10}, {14, 240, 10}, {14, 480, 20}, {14, 672, 28},
                                          {7, 672, 28},  {7, 1152, 48}};
  std::int64_t number = 0;
  for (const auto& [size, channels, squeezed] : kModules)
    rows.push_back({numbered("se-module/M", number++),
                    "se-module",
                    "EfficientNet-b0's squeeze and excitation",
                    "Souffle, figure 6",
                    DType::f32,
                    {{"size", size}, {"channels", channels}, {"squeezed", squeezed}}});
  return rows;
}

}  // namespace tilewright::builtin
