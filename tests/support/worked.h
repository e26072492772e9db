// The worked rows of design/plan.md as workloads, machines and plans, with the numbers they must give.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/machine/machine.h"
#include "core/plan/schedule.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/text.h"

namespace tilewright::testing {

/// What one row says, in elements; a key is "TENSOR BOUNDARY read|written". Keys that a row does not
/// name are not checked.
struct WorkedRow {
  std::string name;
  std::string workload;  // YAML
  std::string machine;   // "scratchpad:..." or "two-level"
  std::string tree;
  std::string rewrite = {};  // applied to the workload first
  std::map<std::string, std::int64_t> tiles = {};
  std::map<std::string, Pin> pins = {};
  std::map<std::string, TensorFlags> flags = {};
  std::map<std::string, std::int64_t> traffic = {};
  std::map<std::string, std::int64_t> operations = {};
  std::map<std::string, std::int64_t> memory = {};  // elements by level
};

inline const char* const kChain = R"yaml(
name: worked-chain
loops: {m: 10, n: 6, k: 7, l: 9}
operators:
  - "gemm1: C[m,l] += A[m,k] * B[k,l]"
  - "gemm2: E[m,n] += C[m,l] * D[l,n]"
)yaml";
inline const char* const kGemm = R"yaml(
name: worked-gemm
loops: {m: 5, n: 6, k: 7}
operators: ["gemm: C[m,n] += A[m,k] * B[k,n]"]
)yaml";
inline const char* const kConv = R"yaml(
name: worked-conv
loops: {h: 10, y: 12, r: 3, s: 3}
operators:
  - "conv1: M[y] += I[y+r] * W[r]"
  - "conv2: O[h] += M[h+s] * V[s]"
)yaml";

inline std::shared_ptr<const Workload> worked_workload(const WorkedRow& row) {
  Workload w = workload_from_yaml(row.workload, "worked");
  if (!row.rewrite.empty()) w = tilewright::apply(row.rewrite, w).value();
  return std::make_shared<const Workload>(std::move(w));
}

/// DRAM over L1 over L0, both software-managed and private to a block.
inline Machine two_level_machine(std::int64_t l1_bytes = 65536, std::int64_t l0_bytes = 4096) {
  Machine m = parse_synthetic_machine("scratchpad:" + std::to_string(l1_bytes) + "B");
  Level inner = m.levels.back();
  inner.name = "L0";
  inner.capacity = Bytes(l0_bytes);
  inner.filled_by = {"L1"};
  m.levels.push_back(inner);
  m.name = "two-level";
  return m;
}

inline std::shared_ptr<const Machine> worked_machine(const std::string& name) {
  return std::make_shared<const Machine>(name == "two-level" ? two_level_machine()
                                                             : parse_synthetic_machine(name));
}

inline Plan worked_plan(const WorkedRow& row) {
  Kernel k{.tree = parse_tree(row.tree), .tiles = row.tiles, .pins = row.pins, .flags = row.flags};
  return Plan{.kernels = {k}};
}

inline std::vector<WorkedRow> worked_rows() {
  const std::map<std::string, std::int64_t> steps{{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}};
  const auto chain = [&](std::string name, std::string tree, std::int64_t a, std::int64_t b,
                         std::int64_t d, std::int64_t e_read, std::int64_t e_written,
                         std::int64_t times, std::int64_t memory) {
    return WorkedRow{.name = std::move(name), .workload = kChain, .machine = "scratchpad:4096B",
                     .tree = std::move(tree), .tiles = steps,
                     .traffic = {{"A DRAM/L1 read", a}, {"B DRAM/L1 read", b}, {"D DRAM/L1 read", d},
                                 {"E DRAM/L1 read", e_read}, {"E DRAM/L1 written", e_written},
                                 {"C DRAM/L1 read", 0}, {"C DRAM/L1 written", 0}},
                     .operations = {{"gemm1", 630 * times}, {"gemm2", 540}},
                     .memory = {{"L1", memory}}};
  };
  std::vector<WorkedRow> rows{
      chain("mlkn", "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", 140, 189, 162, 60, 120, 1, 56),
      chain("row of C", "m ( k ( l ( C.gemm1 ) ) n ( l ( C.gemm2 ) ) )", 70, 189, 162, 0, 60, 1, 72),
      chain("recomputed", "m n l ( k ( C.gemm1 ) C.gemm2 )", 280, 378, 162, 0, 60, 2, 68)};

  WorkedRow held = chain("mlkn, n whole", "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", 140, 189, 162, 0, 60,
                         1, 80);
  held.tiles["n"] = 6;
  rows.push_back(held);

  WorkedRow spilled = rows[0];
  spilled.name = "mlkn, C spilled";
  spilled.pins = {{"C", Pin{.level = "dram"}}};
  spilled.traffic["C DRAM/L1 read"] = 90;
  spilled.traffic["C DRAM/L1 written"] = 90;
  spilled.memory.clear();
  rows.push_back(spilled);

  rows.push_back({.name = "two-level gemm", .workload = kGemm, .machine = "two-level",
                  .tree = "m/4 n/3 ( k/4 ( L.A@L1 L.B@L1 m/2 n/2 ( k/2 ( L.A@L0 L.B@L0 C.gemm ) "
                          "S.C@L1 ) ) S.C@dram )",
                  .traffic = {{"A DRAM/L1 read", 70}, {"B DRAM/L1 read", 84},
                              {"C DRAM/L1 written", 30}, {"C DRAM/L1 read", 0},
                              {"A L1/L0 read", 140}, {"B L1/L0 read", 126}, {"C L1/L0 read", 30},
                              {"C L1/L0 written", 60}},
                  .operations = {{"gemm", 210}},
                  .memory = {{"L1", 40}, {"L0", 12}}});
  rows.push_back({.name = "split reduction", .workload = kGemm, .machine = "scratchpad:4096B",
                  .tree = "k/4@grid m/4 n/3 ( C.gemm S.C!atomic )",
                  .traffic = {{"A DRAM/L1 read", 35}, {"B DRAM/L1 read", 84},
                              {"C DRAM/L1 written", 90}, {"C DRAM/L1 read", 0}},
                  .operations = {{"gemm", 210}}});

  const auto conv = [](std::string name, std::string tree, bool slide_i, bool slide_m,
                       std::int64_t i, std::int64_t operations) {
    WorkedRow r{.name = std::move(name), .workload = kConv, .machine = "scratchpad:4096B",
                .tree = std::move(tree), .tiles = {{"h", 4}},
                .traffic = {{"I DRAM/L1 read", i}, {"M DRAM/L1 read", 0}, {"M DRAM/L1 written", 0},
                            {"O DRAM/L1 written", 10}},
                .operations = {{"conv1", operations}, {"conv2", 30}}};
    if (slide_i) r.flags["I"].sliding = true;
    if (slide_m) r.flags["M"].sliding = true;
    return r;
  };
  const std::string fused = "h ( C.conv1 C.conv2 )";
  rows.push_back(conv("conv", fused, false, false, 22, 48));
  rows.push_back(conv("conv, I slides", fused, true, false, 14, 48));
  rows.push_back(conv("conv, M slides", fused, false, true, 18, 36));
  rows.push_back(conv("conv, both slide", fused, true, true, 14, 36));
  rows.push_back(conv("conv, y cut", "h/4 ( y/4 ( C.conv1 ) C.conv2 )", false, false, 26, 48));

  rows.push_back({.name = "attention",
                  .workload = R"yaml(
name: worked-attention
loops: {m: 4, l: 6, k: 2, n: 2}
operators:
  - "qk: S[m,l] += Q[m,k] * K[l,k]"
  - "rowmax: mx[m] max= S[m,l]"
  - "exp: P[m,l] = exp(S[m,l] - mx[m])"
  - "rowsum: sum[m] += P[m,l]"
  - "pv: O[m,n] += P[m,l] * V[l,n]"
  - "divide: E[m,n] = O[m,n] / sum[m]"
)yaml",
                  .machine = "scratchpad:4096B",
                  .tree = "m@grid ( l ( k ( C.qk ) C.rowmax C.exp C.rowsum C.rescale C.pv ) C.divide "
                          "S.E )",
                  .rewrite = "online-softmax",
                  .tiles = {{"m", 2}, {"l", 4}, {"k", 2}},
                  .traffic = {{"Q DRAM/L1 read", 8}, {"K DRAM/L1 read", 24}, {"V DRAM/L1 read", 24},
                              {"E DRAM/L1 written", 8}, {"E DRAM/L1 read", 0},
                              {"O DRAM/L1 written", 0}}});

  const char* const layer_norm = R"yaml(
name: worked-layernorm
loops: {r: 5, c: 7}
operators:
  - "sum: s[r] += x[r,c]"
  - "mean: u[r] = s[r] / 7"
  - "sub: d[r,c] = x[r,c] - u[r]"
  - "sq: q[r,c] = d[r,c] * d[r,c]"
  - "varsum: v[r] += q[r,c]"
  - "rstd: t[r] = rsqrt(v[r] / 7 + 0.00001)"
  - "norm: y[r,c] = d[r,c] * t[r] * gain[c]"
outputs: [y]
)yaml";
  rows.push_back({.name = "layer norm", .workload = layer_norm, .machine = "scratchpad:4096B",
                  .tree = "r/1@grid ( L.x c ( C.sum ) C.mean c ( C.sub C.sq C.varsum ) C.rstd "
                          "c ( C.norm S.y ) )",
                  .tiles = {{"c", 4}},
                  .traffic = {{"x DRAM/L1 read", 35}, {"gain DRAM/L1 read", 35},
                              {"y DRAM/L1 written", 35}, {"y DRAM/L1 read", 0}}});
  WorkedRow unloaded = rows.back();
  unloaded.name = "layer norm, no L.x";
  unloaded.tree = "r/1@grid ( c ( C.sum ) C.mean c ( C.sub C.sq C.varsum ) C.rstd c ( C.norm S.y ) )";
  unloaded.traffic["x DRAM/L1 read"] = 70;
  rows.push_back(unloaded);
  return rows;
}

}  // namespace tilewright::testing
