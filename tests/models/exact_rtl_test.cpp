// A fused GEMM chain counted in RTL (TileFlow's artifact: a 16x16 systolic array, 16-bit words, a
// buffer under memory) against `exact` of the plan that the accelerator runs: all rows, to the
// word.
//
// The accelerator: each tile of m is a task of its own, which finds nothing in the buffer (@grid).
// C's row of blocks is made in the buffer k tile by k tile, and then consumed l tile by l tile. The
// array holds one 16x16 block of its first operand (A, then C) still, streams the second (B, D)
// past it and adds onto partial sums that come from the buffer and go back to it. Two things in its
// counts are no part of C = A B; E = C D:
// - it has no way to begin a sum, so the first partial sums, which are zero, are read like any
// other
//   (here: ZC and ZE, made in the buffer, each element read once);
// - C crosses the registers once more between the two products (here: F = C, as an activation
// would). What tells: in every row, with X = M L K / 16 + M L N / 16, buf_to_reg is 2 X + M K + 2 M
// L and reg_to_buf is X + M L. Streams and sums read make 2 X, sums written X, blocks held still M
// K + M L, and F reads and writes M L. The rows all have K = N, so they cannot tell M K from M N.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "tests/support/places.h"

namespace tilewright {
namespace {

using Row = std::map<std::string, std::int64_t>;

std::filesystem::path data_file() {
  const char* shared = std::getenv("TILEWRIGHT_SHARED");
  return std::filesystem::path(shared ? shared : test::in_sources("../shared")) / "data" /
         "tileflow_rtl_gemm_chain.csv";
}

std::vector<Row> read_rows(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> names;
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream cells(line);
    Row row;
    std::size_t column = 0;
    const bool header = names.empty();
    for (std::string cell; std::getline(cells, cell, ',');) {
      if (header)
        names.push_back(cell);
      else
        row[names.at(column++)] = std::stoll(cell);
    }
    if (!header) rows.push_back(row);
  }
  return rows;
}

/// Memory, the buffer, and in the array a register file for each port: the operand that stays, the
/// one that streams, partial sums in and out. `First` is the sums' port for the zeros that begin
/// them.
Machine accelerator() {
  Machine m = parse_synthetic_machine("scratchpad:128K");
  m.name = "16x16 systolic array";
  m.levels[1].name = "Buffer";
  for (const char* port : {"Still", "Moving", "Sums", "First"}) {
    Level l = m.levels[1];
    l.name = port;
    l.capacity = Bytes(2 * 16 * 16);
    l.filled_by = {"Buffer"};
    m.levels.push_back(l);
  }
  m.levels.back().name = "First";
  m.levels.back().capacity = m.levels[1].capacity;
  return m;
}

Workload chain(const Row& r) {
  std::ostringstream text;
  text << "name: rtl-chain\ndtype: f16\nloops: {m: " << r.at("M") << ", n: " << r.at("N")
       << ", k: " << r.at("K") << ", l: " << r.at("L") << "}\n"
       << R"yaml(
operators:
  - "zero1: ZC[m,l] = 0"
  - "gemm1: C[m,l] += A[m,k] * B[k,l] + ZC[m,l]"
  - "pass: F[m,l] = C[m,l]"
  - "zero2: ZE[m,n] = 0"
  - "gemm2: E[m,n] += F[m,l] * D[l,n] + ZE[m,n]"
outputs: [E]
)yaml";
  return workload_from_yaml(text.str(), "rtl");
}

Plan plan(const Row& r) {
  const auto step = [&](const char* loop, const char* column) {
    return std::string(loop) + "/" + std::to_string(r.at(column)) + " ";
  };
  const std::string tree =
      "m/" + std::to_string(r.at("tileM")) + "@grid ( C.zero1 C.zero2 L.ZC@First " +
      step("k", "tileK") +
      "( L.A@Buffer L.B@Buffer m/16 k/16 ( L.A@Still l/16 ( L.B@Moving C.gemm1 S.C@Buffer ) ) ) "
      "m/16 l/16 ( L.C@Moving C.pass S.F@Buffer ) L.ZE@First " +
      step("l", "tileL2") +
      "( L.D@Buffer m/16 l/16 ( L.F@Still n/16 ( L.D@Moving C.gemm2 S.E@Buffer ) ) ) S.E@DRAM )";
  Kernel k{.level = "Moving", .tree = parse_tree(tree)};
  k.pins = {{"C", {.level = "Sums"}},
            {"F", {.level = "Sums"}},
            {"E", {.level = "Sums"}},
            {"ZC", {.level = "Buffer"}},
            {"ZE", {.level = "Buffer"}}};
  return Plan{.kernels = {k}};
}

TEST(ExactRtl, CountsEveryRowToTheWord) {
  if (!std::filesystem::exists(data_file()))
    GTEST_SKIP() << "no " << data_file() << ": the RTL counts are not here";
  const std::vector<Row> rows = read_rows(data_file());
  ASSERT_EQ(rows.size(), 131u);
  const auto machine = std::make_shared<const Machine>(accelerator());
  for (const Row& r : rows) {
    const auto workload = std::make_shared<const Workload>(chain(r));
    const auto schedule = resolve(plan(r), workload, machine);
    ASSERT_TRUE(schedule.ok()) << schedule.reason();
    const Traffic t = exact(*schedule);
    Row words;
    words["mem_to_buf"] = t.total("DRAM/Buffer").read.value / 2;
    words["buf_to_mem"] = t.total("DRAM/Buffer").written.value / 2;
    for (const char* port : {"Buffer/Still", "Buffer/Moving", "Buffer/Sums", "Buffer/First"}) {
      words["buf_to_reg"] += t.total(port).read.value / 2;
      words["reg_to_buf"] += t.total(port).written.value / 2;
    }
    for (const auto& [column, count] : words)
      EXPECT_EQ(count, r.at(column))
          << column << ", M " << r.at("M") << " N " << r.at("N") << " K " << r.at("K") << " L "
          << r.at("L") << " tiles " << r.at("tileM") << " " << r.at("tileK") << " "
          << r.at("tileL2");
    if (HasFailure()) {
      for (const auto& e : t.entries)
        std::cout << e.tensor << " " << e.boundary << " " << e.read.value / 2 << " "
                  << e.written.value / 2 << "\n";
      return;
    }
  }
}

}  // namespace
}  // namespace tilewright
