// Workloads that reduce along rows: attention, softmax, layer normalisation.
#include <cmath>

#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {
namespace {

/// Query heads h of one group share the keys and values of b, so b is a loop of every tensor and h
/// one of what has queries. A loop of one iteration is left out.
///
/// A causal mask lets the last row read all columns (FlashAttention's convention where there are
/// more columns than rows). What is masked is -inf: its exponential is zero beside any score, so
/// that blocks of which nothing else is left need not be computed. Every row reads its first
/// column, so that no maximum is -inf, whose difference from itself is no number.
RawWorkload attention(const Values& v) {
  const std::int64_t group = v["groups"], shared = v["heads"] / group;
  if (v["heads"] % group != 0)
    throw InputError({.field = "groups",
                      .value = std::to_string(group),
                      .problem = "does not divide the heads",
                      .accepted = "a divisor of " + std::to_string(v["heads"])});
  const bool causal = v["causal"] == 1;
  if (causal && v["l"] < v["m"])
    throw InputError({.field = "l",
                      .value = std::to_string(v["l"]),
                      .problem = "leaves rows without a column that a causal mask lets them read",
                      .accepted = "m (" + std::to_string(v["m"]) + ") or more"});
  const std::string kv = shared > 1 ? "b," : "";
  const std::string q = kv + (group > 1 ? "h," : "");
  Draft d(v.dtype);
  if (shared > 1) d.loop("b", shared);
  if (group > 1) d.loop("h", group);
  d.loop("m", v["m"]).loop("l", v["l"]).loop("k", v["k"]).loop("n", v["n"]);
  d.tensor("Q", q + "m,k").tensor("K", kv + "l,k").tensor("V", kv + "l,n");
  d.tensor("S", q + "m,l");
  if (v["scale"] == 1) d.tensor("T", q + "m,l");
  if (causal) d.tensor("U", q + "m,l");
  d.tensor("R", q + "m").tensor("P", q + "m,l").tensor("Z", q + "m");
  d.tensor("O", q + "m,n").tensor("E", q + "m,n");
  const bool online = v["online"] == 1;
  if (online) d.tensor("shift", q + "m").tensor("alpha", q + "m");
  const auto at = [&](const char* tensor, const char* loops) {
    return tensor + ("[" + q) + loops + "]";
  };
  const auto given = [&](const char* tensor, const char* loops) {
    return tensor + ("[" + kv) + loops + "]";
  };
  const std::string m = "[" + q + "m]";
  const std::string unmasked = at(v["scale"] == 1 ? "T" : "S", "m,l");
  const std::string scores = causal ? at("U", "m,l") : unmasked;
  d.op("qk: " + at("S", "m,l") + " += " + at("Q", "m,k") + " * " + given("K", "l,k"));
  if (v["scale"] == 1)
    d.op("scaled: " + unmasked + " = " + at("S", "m,l") + " * " +
         number_text(1.0 / std::sqrt(static_cast<double>(v["k"]))));
  if (causal) {
    const std::int64_t more = v["l"] - v["m"];
    d.op("masked: " + scores + " = select(lt(m" + (more == 0 ? "" : " + " + std::to_string(more)) +
         ", l), -inf, " + unmasked + ")");
  }
  const std::string shift = "shift" + m, alpha = "alpha" + m;
  d.op("rowmax: R" + m + " max= " + scores +
       (online ? "; " + shift + " = before(R) - after(R) running" : ""));
  d.op("exp: " + at("P", "m,l") + " = exp(" + scores + " - R" + m + ")");
  d.op("rowsum: Z" + m + " += " + at("P", "m,l") +
       (online ? " rescale(exp(" + shift + ")) running" : ""));
  if (online) d.op("rescale: " + alpha + " = exp(" + shift + ")");
  d.op("pv: " + at("O", "m,n") + " += " + at("P", "m,l") + " * " + given("V", "l,n") +
       (online ? " rescale(" + alpha + ") running" : ""));
  d.op("divide: " + at("E", "m,n") + " = " + at("O", "m,n") + " / Z" + m);
  return d.take();
}

RawWorkload softmax(const Values& v) {
  return Draft(v.dtype)
      .loop("r", v["rows"]).loop("c", v["cols"])
      .tensor("x", "r,c").tensor("R", "r").tensor("P", "r,c").tensor("Z", "r").tensor("y", "r,c")
      .op("rowmax: R[r] max= x[r,c]")
      .op("exp: P[r,c] = exp(x[r,c] - R[r])")
      .op("rowsum: Z[r] += P[r,c]")
      .op("divide: y[r,c] = P[r,c] / Z[r]")
      .take();
}

RawWorkload layernorm(const Values& v) {
  const std::string cols = std::to_string(v["cols"]);
  return Draft(v.dtype)
      .loop("r", v["rows"]).loop("c", v["cols"])
      .tensor("x", "r,c").tensor("gain", "c")
      .tensor("sum", "r").tensor("mean", "r").tensor("sub", "r,c").tensor("sq", "r,c")
      .tensor("varsum", "r").tensor("rstd", "r").tensor("y", "r,c")
      .op("sum: sum[r] += x[r,c]")
      .op("mean: mean[r] = sum[r] / " + cols)
      .op("sub: sub[r,c] = x[r,c] - mean[r]")
      .op("sq: sq[r,c] = square(sub[r,c])")
      .op("varsum: varsum[r] += sq[r,c]")
      .op("rstd: rstd[r] = rsqrt(varsum[r] / " + cols + " + 1e-05)")
      .op("norm: y[r,c] = sub[r,c] * rstd[r] * gain[c]")
      .take();
}

}  // namespace

std::vector<Family> row_families() {
  return {
      {"attention",
       "softmax(Q K^T) V with the softmax as separate operators; scale=1 divides by sqrt(k), "
       "online=1 sums in one pass, groups query heads share keys and values; causal=1 lets row i "
       "read columns up to i + l - m, and l be no less than m",
       "MCFuser, table III; Chimera, section VI (BMM + softmax + BMM)",
       {{"heads", 1},
        {"m", 512},
        {"l", 512},
        {"k", 64},
        {"n", 64},
        {"scale", 0, 0, 1},
        {"online", 0, 0, 1},
        {"groups", 1},
        {"causal", 0, 0, 1}},
       attention},
      {"softmax",
       "softmax along rows, as four operators",
       "",
       {{"rows", 4096}, {"cols", 768}},
       softmax},
      {"layernorm",
       "layer normalisation with gain, without bias, as seven operators",
       "FusionStitching, figure 1",
       {{"rows", 4096}, {"cols", 768}},
       layernorm},
  };
}

}  // namespace tilewright::builtin
