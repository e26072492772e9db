// Transformers as graphs of single operators: vision, text with a cache of keys and values,
// windows. A head split, a window and a patch are dimensions of their own.
#include <algorithm>
#include <cmath>

#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {
namespace {

/// Refuses a value of `field` that is no multiple of what it is shared out over.
void demand_shares(const char* field, std::int64_t value, std::int64_t shares, const char* over) {
  if (value % shares != 0)
    throw InputError({.field = field,
                      .value = std::to_string(value),
                      .problem = std::string("is not shared out evenly over ") + over,
                      .accepted = "multiples of " + std::to_string(shares)});
}

/// Layers of a transformer that normalises first. `rows` are the loops of a token.
class Layers {
 public:
  explicit Layers(DType dtype) : d(dtype) {}

  /// "name_: T_[index] = value": the layer's number for each underscore, the token's loops for @.
  void op(const std::string& notation) { d.op(named(notation)); }
  void weights(const std::string& tensor, std::int64_t terms) { d.weights(named(tensor), terms); }
  std::string named(const std::string& pattern) const {
    std::string out;
    for (char c : pattern) out += c == '_' ? number : c == '@' ? rows : std::string(1, c);
    return out;
  }

  /// `to` = `from` less its mean, over its deviation, with gain and offset; `c` are the loops of a
  /// token's `width` values.
  void normalise(const std::string& name, const std::string& from, const std::string& to,
                 const std::string& c, std::int64_t width) {
    const std::string at = "[@," + c + "]", each = number_text(1.0 / static_cast<double>(width));
    op("sum" + name + "_: s" + name + "_[@] += " + from + at);
    op("mean" + name + "_: mean" + name + "_[@] = s" + name + "_[@] * " + each);
    op("sub" + name + "_: sub" + name + "_" + at + " = " + from + at + " - mean" + name + "_[@]");
    op("varsum" + name + "_: r" + name + "_[@] += square(sub" + name + "_" + at + ")");
    op("rstd" + name + "_: rstd" + name + "_[@] = rsqrt(r" + name + "_[@] * " + each + " + 1e-05)");
    op("norm" + name + "_: " + to + at + " = sub" + name + "_" + at + " * rstd" + name +
       "_[@] * gain" + name + "_[" + c + "] + offset" + name + "_[" + c + "]");
  }

  /// T_[row, of] to P_[row, of], both shares of a row's exponentials.
  void softmax(const std::string& row, const std::string& of) {
    const std::string at = "[" + row + "," + of + "]", r = "[" + row + "]";
    op("rowmax_: R_" + r + " max= T_" + at);
    op("exp_: Y_" + at + " = exp(T_" + at + " - R_" + r + ")");
    op("rowsum_: Z_" + r + " += Y_" + at);
    op("share_: P_" + at + " = Y_" + at + " / Z_" + r);
  }

  /// `to` = C_ and what two products make of C_; GELU by `gelu`, of which {} is the argument.
  void feed_forward(const std::string& to, const std::string& c, const std::string& f,
                    std::int64_t width, std::int64_t wide, const std::string& gelu) {
    normalise("f", "C_", "E_", c, width);
    op("fc1_: U_[@," + f + "] += E_[@," + c + "] * W1_[" + c + "," + f + "]");
    op("biased_: H_[@," + f + "] = U_[@," + f + "] + b1_[" + f + "]");
    std::string value = gelu;
    for (std::size_t i = value.find("{}"); i != value.npos; i = value.find("{}"))
      value.replace(i, 2, "H_[@," + f + "]");
    op("gelu_: G_[@," + f + "] = " + value);
    op("fc2_: M_[@," + c + "] += G_[@," + f + "] * W2_[" + f + "," + c + "]");
    op("addf_: " + to + "[@," + c + "] = M_[@," + c + "] + b2_[" + c + "] + C_[@," + c + "]");
    weights("W1_", width);
    weights("W2_", wide);
  }

  Draft d;
  std::string rows, number;
};

constexpr const char* kGelu = "gelu({})";
constexpr const char* kGeluByTanh =
    "0.5 * {} * (1 + tanh(0.7978845608028654 * ({} + 0.044715 * {} * square({}))))";

std::string over_root(std::int64_t size) {
  return number_text(1.0 / std::sqrt(static_cast<double>(size)));
}

// ---- vision -----------------------------------------------------------------------------------

/// The image is stored patch by patch, so that a patch's number is an index.
RawWorkload vit_b16(const Values& v) {
  demand_shares("hidden", v["hidden"], v["heads"], "heads");
  demand_shares("size", v["size"], v["patch"], "patches");
  const std::int64_t side = v["size"] / v["patch"], size = v["hidden"] / v["heads"];
  Layers n(v.dtype);
  n.rows = "m";
  n.d.loop("t", side * side).loop("c", 3).loop("r", v["patch"]).loop("s", v["patch"]);
  n.d.loop("m", side * side + 1).loop("l", side * side + 1).loop("h", v["heads"]).loop("e", size);
  n.d.loop("v", size).loop("d", v["hidden"]).loop("f", v["mlp"]).loop("k", v["classes"]);
  n.d.tensor("first", "1,d").tensor("tokens", "t,d");
  n.op("patches: patches[t,d] += image[t,c,r,s] * Wp[d,c,r,s]");
  n.weights("Wp", 3 * v["patch"] * v["patch"]);
  n.op("tokens: tokens[t,d] = patches[t,d] + bp[d]");
  n.op("placed: X0[m,d] = first[m,d] + tokens[m-1,d] + place[m,d]");
  for (std::int64_t layer = 1; layer <= v["layers"]; ++layer) {
    const std::string before = "X" + std::to_string(layer - 1);
    n.number = std::to_string(layer);
    n.normalise("", before, "N_", "d", v["hidden"]);
    n.op("q_: Q_[h,m,e] += N_[m,d] * Wq_[d,h,e]");
    n.op("k_: K_[h,l,e] += N_[l,d] * Wk_[d,h,e]");
    n.op("v_: V_[h,l,v] += N_[l,d] * Wv_[d,h,v]");
    n.op("qb_: Qb_[h,m,e] = Q_[h,m,e] + bq_[h,e]");
    n.op("kb_: Kb_[h,l,e] = K_[h,l,e] + bk_[h,e]");
    n.op("vb_: Vb_[h,l,v] = V_[h,l,v] + bv_[h,v]");
    n.op("qk_: S_[h,m,l] += Qb_[h,m,e] * Kb_[h,l,e]");
    n.op("scaled_: T_[h,m,l] = S_[h,m,l] * " + over_root(size));
    n.softmax("h,m", "l");
    n.op("pv_: A_[h,m,v] += P_[h,m,l] * Vb_[h,l,v]");
    n.op("proj_: B_[m,d] += A_[h,m,v] * Wo_[h,v,d]");
    n.op("add_: C_[m,d] = B_[m,d] + bo_[d] + " + before + "[m,d]");
    for (const char* w : {"Wq_", "Wk_", "Wv_", "Wo_"}) n.weights(w, v["hidden"]);
    n.feed_forward("X_", "d", "f", v["hidden"], v["mlp"], kGelu);
  }
  n.normalise("end", "X_", "last", "d", v["hidden"]);
  n.op("head: Y[k] += last[0,d] * Wh[k,d]");
  n.op("classes: Yb[k] = Y[k] + bh[k]");
  n.weights("Wh", v["hidden"]);
  return n.d.take();
}

// ---- text -------------------------------------------------------------------------------------

/// One token each of a batch after `past` of them, whose keys and values are inputs; outside of a
/// tensor there are zeros, so a sum of two tensors, one of them shifted, is their concatenation.
/// Queries, keys and values are one product, as GPT-2's own code has it: 3 * heads heads `g`, of
/// which the first are the queries'. There are GPT-2's 1,024 positions, and more where `past` needs
/// them.
RawWorkload gpt2(const Values& v) {
  demand_shares("hidden", v["hidden"], v["heads"], "heads");
  const std::int64_t size = v["hidden"] / v["heads"];
  const std::string past = std::to_string(v["past"]);
  const std::string k_at = "h+" + std::to_string(v["heads"]);
  const std::string v_at = "h+" + std::to_string(2 * v["heads"]);
  Layers n(v.dtype);
  n.rows = "b";
  n.d.loop("b", v["batch"]).loop("l", v["past"] + 1).loop("h", v["heads"]).loop("e", size);
  n.d.loop("g", 3 * v["heads"]);
  n.d.loop("v", size).loop("d", v["hidden"]).loop("f", v["mlp"]).loop("k", v["vocabulary"]);
  n.d.tensor("words", "k,d").weights("words", v["hidden"]).type("ids", DType::i32);
  n.d.tensor("places", std::to_string(std::max<std::int64_t>(1024, v["past"] + 1)) + ",d");
  n.op("placed: X0[b,d] = words[ids[b],d] + places[" + past + ",d]");
  for (std::int64_t layer = 1; layer <= v["layers"]; ++layer) {
    const std::string before = "X" + std::to_string(layer - 1);
    n.number = std::to_string(layer);
    n.d.tensor(n.named("pastK_"), "b,h," + past + ",e")
        .tensor(n.named("pastV_"), "b,h," + past + ",v");
    n.d.tensor(n.named("QKV_"), "b,g,e").tensor(n.named("bqkv_"), "g,e");
    n.d.tensor(n.named("Kb_"), "b,h,1,e").tensor(n.named("Vb_"), "b,h,1,v");
    n.normalise("", before, "N_", "d", v["hidden"]);
    n.op("qkv_: QKV_[b,g,e] += N_[b,d] * Wqkv_[d,g,e]");
    n.op("qb_: Qb_[b,h,e] = QKV_[b,h,e] + bqkv_[h,e]");
    n.op("kb_: Kb_[b,h,0,e] = QKV_[b," + k_at + ",e] + bqkv_[" + k_at + ",e]");
    n.op("vb_: Vb_[b,h,0,v] = QKV_[b," + v_at + ",v] + bqkv_[" + v_at + ",v]");
    n.op("keys_: allK_[b,h,l,e] = pastK_[b,h,l,e] + Kb_[b,h,l-" + past + ",e]");
    n.op("values_: allV_[b,h,l,v] = pastV_[b,h,l,v] + Vb_[b,h,l-" + past + ",v]");
    n.op("qk_: S_[b,h,l] += Qb_[b,h,e] * allK_[b,h,l,e]");
    n.op("scaled_: T_[b,h,l] = S_[b,h,l] * " + over_root(size));
    n.softmax("b,h", "l");
    n.op("pv_: A_[b,h,v] += P_[b,h,l] * allV_[b,h,l,v]");
    n.op("proj_: B_[b,d] += A_[b,h,v] * Wo_[h,v,d]");
    n.op("add_: C_[b,d] = B_[b,d] + bo_[d] + " + before + "[b,d]");
    for (const char* w : {"Wqkv_", "Wo_"}) n.weights(w, v["hidden"]);
    n.feed_forward("X_", "d", "f", v["hidden"], v["mlp"], kGeluByTanh);
    n.d.output(n.named("allK_")).output(n.named("allV_"));
  }
  n.normalise("end", "X_", "last", "d", v["hidden"]);
  n.op("logits: Y[b,k] += last[b,d] * words[k,d]");
  n.d.output("Y");
  return n.d.take();
}

// ---- windows ----------------------------------------------------------------------------------

/// One of Swin's stages: rows y of windows, rows i within one and j of what they read; columns x.
class Swin {
 public:
  explicit Swin(const Values& v)
      : v_(v), n_(v.dtype), side_(v["size"] / v["patch"]), width_(v["width"]) {
    demand_shares("width", v["width"], v["heads"], "heads");
    demand_shares("size", v["size"], (v["patch"] * v["window"]) << (v["stages"] - 1), "windows");
    for (const char* axis : {"iy", "ix", "jy", "jx"}) n_.d.loop(axis, v["window"]);
    if (v["stages"] > 1) n_.d.loop("py", 2).loop("px", 2);
    n_.d.loop("c", 3).loop("r", v["patch"]).loop("s", v["patch"]).loop("k", v["classes"]);
    const std::string rows = std::to_string(v["size"]);
    n_.d.tensor("image", "c," + rows + "," + rows);
  }

  RawWorkload take() {
    open_stage();
    patches();
    constexpr std::int64_t kBlocks[] = {2, 2, 18, 2};
    for (std::int64_t stage = 0;; ++stage) {
      for (std::int64_t b = 0; b < std::min(kBlocks[stage], v_["blocks"]); ++b) block(b % 2 == 1);
      if (stage + 1 == v_["stages"]) break;
      merge();
    }
    n_.normalise("end", now_, "last", d_, width_);
    n_.op("pool: total[" + d_ + "] += last[@," + d_ + "]");
    n_.op("mean: mean[" + d_ + "] = total[" + d_ + "] * " +
          number_text(1.0 / (static_cast<double>(side_) * static_cast<double>(side_))));
    n_.op("head: Y[k] += mean[" + d_ + "] * Wh[k," + d_ + "]");
    n_.op("classes: Yb[k] = Y[k] + bh[k]");
    n_.weights("Wh", width_);
    return n_.d.take();
  }

 private:
  /// Loops of a stage of `side_` rows of tokens, each of `width_` values.
  void open_stage() {
    const auto loop = [&](const std::string& role, std::int64_t extent) {
      const std::string name = role + std::to_string(stage_);
      n_.d.loop(name, extent);
      return name;
    };
    ++stage_;
    windows_ = side_ / v_["window"];
    y_ = loop("y", windows_), x_ = loop("x", windows_);
    h_ = loop("h", v_["heads"] << (stage_ - 1));
    e_ = loop("e", v_["width"] / v_["heads"]), u_ = loop("u", v_["width"] / v_["heads"]);
    d_ = loop("d", width_), f_ = loop("f", v_["mlp"] * width_);
    n_.rows = y_ + ",iy," + x_ + ",ix";
  }

  void patches() {
    const auto pixel = [&](const std::string& window, const char* row, const char* tap) {
      return std::to_string(v_["patch"] * v_["window"]) + "*" + window + "+" +
             std::to_string(v_["patch"]) + "*" + row + "+" + tap;
    };
    n_.op("patches: patches[@," + d_ + "] += image[c," + pixel(y_, "iy", "r") + "," +
          pixel(x_, "ix", "s") + "] * Wp[" + d_ + ",c,r,s]");
    n_.weights("Wp", 3 * v_["patch"] * v_["patch"]);
    n_.op("tokens: tokens[@," + d_ + "] = patches[@," + d_ + "] + bp[" + d_ + "]");
    n_.normalise("first", "tokens", "X0", d_, width_);
    now_ = "X0";
  }

  /// Sums over both axes of `from` read at each of the pairs of a window and a row in it. All but
  /// one lie outside.
  using Places = std::vector<std::pair<std::string, std::string>>;
  std::string at_one_of(const std::string& from, const Places& ys, const Places& xs,
                        const std::string& rest) {
    std::string sum;
    for (const auto& [y, iy] : ys)
      for (const auto& [x, ix] : xs)
        sum += (sum.empty() ? "" : " + ") + from + "[" + y + "," + iy + "," + x + "," + ix + "," +
               rest + "]";
    return sum;
  }

  /// Moves tokens by so many rows and columns, those that leave at one side to the other.
  void roll(const std::string& name, const std::string& from, const std::string& to,
            std::int64_t by) {
    const std::int64_t step = by > 0 ? 1 : -1, window = v_["window"];
    const auto plus = [](const std::string& l, std::int64_t n) {
      return n == 0 ? l : l + (n < 0 ? "-" : "+") + std::to_string(std::abs(n));
    };
    const auto places = [&](const std::string& w, const std::string& i) -> Places {
      return {{w, plus(i, by)},
              {plus(w, step), plus(i, by - step * window)},
              {plus(w, step - step * windows_), plus(i, by - step * window)}};
    };
    n_.op(name + ": " + to + "[@," + d_ +
          "] = " + at_one_of(from, places(y_, "iy"), places(x_, "ix"), d_));
  }

  /// 1 where, in the last window of rolled tokens, one of two comes from the first rows, else 0.
  std::string apart(const std::string& w, const std::string& i, const std::string& j) {
    const std::string kept = std::to_string(v_["window"] - v_["window"] / 2);
    return "select(lt(" + w + ", " + std::to_string(windows_ - 1) + "), 0, abs(lt(" + i + ", " +
           kept + ") - lt(" + j + ", " + kept + ")))";
  }

  void block(bool shifted) {
    n_.number = std::to_string(++layer_);
    const std::int64_t shift = windows_ > 1 && shifted ? v_["window"] / 2 : 0;
    const std::string row = y_ + "," + x_ + "," + h_ + ",iy,ix",
                      of = y_ + "," + x_ + "," + h_ + ",jy,jx";
    const std::string he = h_ + "," + e_, hu = h_ + "," + u_, read = y_ + ",jy," + x_ + ",jx," + d_;
    const std::string at = "[@," + d_ + "]", last = std::to_string(v_["window"] - 1);
    n_.normalise("", now_, shift > 0 ? "O_" : "N_", d_, width_);
    if (shift > 0) roll("roll_", "O_", "N_", shift);
    n_.op("q_: Q_[" + row + "," + e_ + "] += N_" + at + " * Wq_[" + d_ + "," + he + "]");
    n_.op("k_: K_[" + of + "," + e_ + "] += N_[" + read + "] * Wk_[" + d_ + "," + he + "]");
    n_.op("v_: V_[" + of + "," + u_ + "] += N_[" + read + "] * Wv_[" + d_ + "," + hu + "]");
    n_.op("qb_: Qb_[" + row + "," + e_ + "] = Q_[" + row + "," + e_ + "] + bq_[" + he + "]");
    n_.op("kb_: Kb_[" + of + "," + e_ + "] = K_[" + of + "," + e_ + "] + bk_[" + he + "]");
    n_.op("vb_: Vb_[" + of + "," + u_ + "] = V_[" + of + "," + u_ + "] + bv_[" + hu + "]");
    n_.op("qk_: S_[" + row + ",jy,jx] += Qb_[" + row + "," + e_ + "] * Kb_[" + of + "," + e_ + "]");
    const std::string mask =
        shift == 0 ? ""
                   : " - 100 * max(" + apart(y_, "iy", "jy") + ", " + apart(x_, "ix", "jx") + ")";
    n_.op("scaled_: T_[" + row + ",jy,jx] = S_[" + row + ",jy,jx] * " +
          over_root(v_["width"] / v_["heads"]) + " + near_[iy-jy+" + last + ",ix-jx+" + last + "," +
          h_ + "]" + mask);
    n_.softmax(row, "jy,jx");
    n_.op("pv_: A_[" + row + "," + u_ + "] += P_[" + row + ",jy,jx] * Vb_[" + of + "," + u_ + "]");
    n_.op("proj_: B_" + at + " += A_[" + row + "," + u_ + "] * Wo_[" + hu + "," + d_ + "]");
    for (const char* w : {"Wq_", "Wk_", "Wv_", "Wo_"}) n_.weights(w, width_);
    n_.op("bo_: D_" + at + " = B_" + at + " + bo_[" + d_ + "]");
    if (shift > 0) roll("back_", "D_", "F_", -shift);
    n_.op("add_: C_" + at + " = " + (shift > 0 ? "F_" : "D_") + at + " + " + now_ + at);
    n_.feed_forward("X_", d_, f_, width_, v_["mlp"] * width_, kGelu);
    now_ = n_.named("X_");
  }

  /// Four neighbours become one token of twice the width.
  void merge() {
    const std::string before = d_, from = now_, window = std::to_string(v_["window"]);
    n_.number = std::to_string(stage_);
    side_ /= 2;
    width_ *= 2;
    open_stage();
    const auto places = [&](const std::string& w, const std::string& i,
                            const std::string& p) -> Places {
      const std::string row = "2*" + i + "+" + p;
      return {{"2*" + w, row}, {"2*" + w + "+1", row + "-" + window}};
    };
    const std::string four = "px,py," + before;
    n_.op("four_: four_[@," + four +
          "] = " + at_one_of(from, places(y_, "iy", "py"), places(x_, "ix", "px"), before));
    n_.normalise("four", "four_", "fours_", four, 2 * width_);
    n_.op("merge_: merged_[@," + d_ + "] += fours_[@," + four + "] * Wm_[" + d_ + "," + four + "]");
    n_.weights("Wm_", 2 * width_);
    now_ = n_.named("merged_");
  }

  const Values& v_;
  Layers n_;
  std::int64_t side_, width_, windows_ = 1, stage_ = 0, layer_ = 0;
  std::string now_, y_, x_, h_, e_, u_, d_, f_;
};

RawWorkload swin_b(const Values& v) { return Swin(v).take(); }

}  // namespace

std::vector<Family> transformer_families() {
  return {
      {"vit-b16",
       "vision transformer, base, patches of 16, one image, stored patch by patch: GELU, biases, "
       "the class "
       "from the first token",
       "Dosovitskiy et al., An image is worth 16x16 words, ICLR 2021; PowerFusion, section 7",
       {{"size", 224, 1, 4096},
        {"patch", 16, 1, 256},
        {"layers", 12, 1, 1000},
        {"hidden", 768, 1, 65536},
        {"heads", 12, 1, 65536},
        {"mlp", 3072, 1, 1048576},
        {"classes", 1000, 1, 1048576}},
       vit_b16,
       {"image"}},
      {"gpt2",
       "GPT-2 with a cache of keys and values: one token for each of a batch after `past` tokens; "
       "the "
       "logits, and the longer cache",
       "Radford et al., Language models are unsupervised multitask learners, 2019; PowerFusion, "
       "section 7",
       {{"batch", 128, 1, 65536},
        {"past", 127, 1, 65536},
        {"layers", 12, 1, 1000},
        {"hidden", 768, 1, 65536},
        {"heads", 12, 1, 65536},
        {"mlp", 3072, 1, 1048576},
        {"vocabulary", 50257, 1, 1048576}},
       gpt2,
       {"ids", "past*"}},
      {"swin-b",
       "Swin transformer, base, on an image: attention within windows, every other block's shifted "
       "by half "
       "of one; blocks=N: at most N in each of the first stages",
       "Liu et al., Swin transformer, ICCV 2021; Souffle, table 2",
       {{"size", 224, 1, 4096},
        {"patch", 4, 1, 256},
        {"window", 7, 2, 256},
        {"width", 128, 1, 65536},
        {"heads", 4, 1, 4096},
        {"mlp", 4, 1, 64},
        {"stages", 4, 1, 4},
        {"blocks", 18, 1, 18},
        {"classes", 1000, 1, 1048576}},
       swin_b,
       {"image"}},
  };
}

}  // namespace tilewright::builtin
