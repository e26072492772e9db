// Chains of convolutions.
#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {
namespace {

/// stride * rows + kernel - padding, as an index.
std::string window(std::int64_t stride, const char* rows, const char* kernel,
                   std::int64_t padding) {
  std::string out = stride == 1 ? rows : std::to_string(stride) + "*" + rows;
  out += std::string("+") + kernel;
  return padding == 0 ? out : out + "-" + std::to_string(padding);
}

/// Rows of the output of a convolution: padding is half the kernel on both sides.
std::int64_t output_rows(std::int64_t rows, std::int64_t kernel, std::int64_t stride) {
  return (rows + 2 * (kernel / 2) - kernel) / stride + 1;
}

RawWorkload conv_chain(const Values& v) {
  const std::string b = v["batch"] > 1 ? "b," : "";
  const std::int64_t y = output_rows(v["h"], v["k1"], v["st1"]);
  const std::int64_t x = output_rows(v["w"], v["k1"], v["st1"]);
  Draft d(v.dtype);
  if (v["batch"] > 1) d.loop("b", v["batch"]);
  d.loop("oc1", v["oc1"]).loop("y", y).loop("x", x);
  d.loop("ic", v["ic"]).loop("r1", v["k1"]).loop("s1", v["k1"]);
  d.loop("oc2", v["oc2"]);
  d.loop("h", output_rows(y, v["k2"], v["st2"])).loop("w", output_rows(x, v["k2"], v["st2"]));
  d.loop("r2", v["k2"]).loop("s2", v["k2"]);
  d.tensor("I", b + "ic," + std::to_string(v["h"]) + "," + std::to_string(v["w"]));
  d.tensor("W1", "oc1,ic,r1,s1").tensor("M", b + "oc1,y,x");
  if (v["relu"] == 1) d.tensor("M1", b + "oc1,y,x");
  d.tensor("W2", "oc2,oc1,r2,s2").tensor("O", b + "oc2,h,w");
  const std::int64_t p1 = v["k1"] / 2;
  const std::int64_t p2 = v["k2"] / 2;
  d.op("conv1: M[" + b + "oc1,y,x] += I[" + b + "ic," + window(v["st1"], "y", "r1", p1) + "," +
       window(v["st1"], "x", "s1", p1) + "] * W1[oc1,ic,r1,s1]");
  if (v["relu"] == 1) d.op("relu: M1[" + b + "oc1,y,x] = relu(M[" + b + "oc1,y,x])");
  const std::string mid = v["relu"] == 1 ? "M1[" : "M[";
  d.op("conv2: O[" + b + "oc2,h,w] += " + mid + b + "oc1," + window(v["st2"], "h", "r2", p2) + "," +
       window(v["st2"], "w", "s2", p2) + "] * W2[oc2,oc1,r2,s2]");
  return d.take();
}

RawWorkload conv1d_chain(const Values& v) {
  const std::int64_t y = v["h"] + v["s"] - 1;
  return Draft(v.dtype)
      .loop("y", y).loop("r", v["r"]).loop("h", v["h"]).loop("s", v["s"])
      .tensor("I", std::to_string(y + v["r"] - 1)).tensor("W", "r").tensor("M", "y")
      .tensor("V", "s").tensor("O", "h")
      .op("conv1: M[y] += I[y+r] * W[r]")
      .op("conv2: O[h] += M[h+s] * V[s]")
      .take();
}

}  // namespace

std::vector<Family> conv_families() {
  return {
      {"conv-chain",
       "two convolutions, perhaps with a ReLU between; padding k/2 rounded down; O[oc2,h,w] from "
       "M[oc1,y,x] from I[ic,...]",
       "Chimera, table V",
       {{"ic", 64}, {"h", 112}, {"w", 112}, {"oc1", 192}, {"oc2", 128}, {"st1", 2}, {"st2", 1},
        {"k1", 3}, {"k2", 1}, {"relu", 0, 0, 1}, {"batch", 1}},
       conv_chain},
      {"conv1d-chain",
       "two 1D convolutions without padding: M[y] += I[y+r] W[r]; O[h] += M[h+s] V[s]", "", {{"h", 10}, {"r", 3}, {"s", 3}}, conv1d_chain},
  };
}

}  // namespace tilewright::builtin
