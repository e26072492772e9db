// Matrix multiplications and chains of them.
#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {
namespace {

/// Adds the batch loop b in front when there is more than one.
std::string batched(const Values& v) { return v["batch"] > 1 ? "b," : ""; }
Draft draft(const Values& v) {
  Draft d(v.dtype);
  if (v["batch"] > 1) d.loop("b", v["batch"]);
  return d;
}

RawWorkload gemm(const Values& v) {
  const std::string b = batched(v);
  return draft(v)
      .loop("m", v["m"]).loop("n", v["n"]).loop("k", v["k"])
      .tensor("A", b + "m,k").tensor("B", b + "k,n").tensor("C", b + "m,n")
      .op("gemm: C[" + b + "m,n] += A[" + b + "m,k] * B[" + b + "k,n]")
      .take();
}

RawWorkload gemm_chain(const Values& v) {
  const std::string b = batched(v);
  Draft d = draft(v);
  d.loop("m", v["m"]).loop("n", v["n"]).loop("k", v["k"]).loop("l", v["l"]);
  d.tensor("A", b + "m,k").tensor("B", b + "k,l").tensor("C", b + "m,l");
  if (v["relu"] == 1) d.tensor("C1", b + "m,l");
  d.tensor("D", b + "l,n").tensor("E", b + "m,n");
  d.op("gemm1: C[" + b + "m,l] += A[" + b + "m,k] * B[" + b + "k,l]");
  if (v["relu"] == 1) d.op("relu: C1[" + b + "m,l] = relu(C[" + b + "m,l])");
  const std::string mid = v["relu"] == 1 ? "C1[" : "C[";
  d.op("gemm2: E[" + b + "m,n] += " + mid + b + "m,l] * D[" + b + "l,n]");
  return d.take();
}

RawWorkload gemm_chain3(const Values& v) {
  const std::string b = batched(v);
  return draft(v)
      .loop("m", v["m"]).loop("k", v["k"]).loop("l", v["l"]).loop("n", v["n"]).loop("p", v["p"])
      .tensor("A", b + "m,k").tensor("B", b + "k,l").tensor("C", b + "m,l")
      .tensor("D", b + "l,n").tensor("E", b + "m,n")
      .tensor("F", b + "n,p").tensor("G", b + "m,p")
      .op("gemm1: C[" + b + "m,l] += A[" + b + "m,k] * B[" + b + "k,l]")
      .op("gemm2: E[" + b + "m,n] += C[" + b + "m,l] * D[" + b + "l,n]")
      .op("gemm3: G[" + b + "m,p] += E[" + b + "m,n] * F[" + b + "n,p]")
      .take();
}

RawWorkload gated_ffn(const Values& v) {
  const std::string b = batched(v);
  return draft(v)
      .loop("m", v["m"]).loop("n", v["n"]).loop("k", v["k"]).loop("l", v["l"])
      .tensor("A", b + "m,k").tensor("B", b + "k,l").tensor("V", b + "k,l")
      .tensor("G", b + "m,l").tensor("U", b + "m,l").tensor("H", b + "m,l")
      .tensor("D", b + "l,n").tensor("E", b + "m,n")
      .op("gate: G[" + b + "m,l] += A[" + b + "m,k] * B[" + b + "k,l]")
      .op("up: U[" + b + "m,l] += A[" + b + "m,k] * V[" + b + "k,l]")
      .op("gated: H[" + b + "m,l] = G[" + b + "m,l] * sigmoid(G[" + b + "m,l]) * U[" + b + "m,l]")
      .op("down: E[" + b + "m,n] += H[" + b + "m,l] * D[" + b + "l,n]")
      .take();
}

}  // namespace

std::vector<Family> gemm_families() {
  return {
      {"gemm", "one GEMM: C[m,n] += A[m,k] * B[k,n]", "",
       {{"m", 512}, {"n", 512}, {"k", 512}, {"batch", 1}}, gemm},
      {"gemm-chain", "two GEMMs, C = A B and E = C D, perhaps with a ReLU between",
       "Chimera, section IV; MCFuser, section II, with its N as l and its H as n",
       {{"m", 512}, {"n", 64}, {"k", 64}, {"l", 512}, {"batch", 1}, {"relu", 0, 0, 1}},
       gemm_chain},
      {"gemm-chain3", "three GEMMs: C = A B, E = C D, G = E F", "",
       {{"m", 512}, {"n", 64}, {"k", 64}, {"l", 512}, {"p", 64}, {"batch", 1}}, gemm_chain3},
      {"gated-ffn",
       "a feed-forward layer with a SiLU gate: H = silu(A B) * (A V), E = H D",
       "FlashFuser, the table of gated feed-forward layers, with its N as l and its L as n",
       {{"m", 128}, {"n", 512}, {"k", 512}, {"l", 1024}, {"batch", 1}}, gated_ffn},
  };
}

}  // namespace tilewright::builtin
