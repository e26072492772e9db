// Does bad input end in status 2, one line that names it, and nothing else?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/command.h"

namespace tilewright::test {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr const char* kChain = "gemm-chain:m=10,n=6,k=7,l=9";
constexpr const char* kTree = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )";

void expect_refused(const Arguments& arguments, const std::string& named) {
  const Outcome o = tilewright_command(arguments);
  std::string line;
  for (const std::string& a : arguments) line += a + " ";
  SCOPED_TRACE(line);
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(o.lines_of_err(), 1) << o.err;
  EXPECT_THAT(o.err, HasSubstr(named));
  EXPECT_THAT(o.err, HasSubstr("tilewright: "));
}

Arguments simulate(const Arguments& more) {
  Arguments a = {"simulate", kChain, "-m", "scratchpad:4K"};
  a.insert(a.end(), more.begin(), more.end());
  return a;
}

TEST(BadInput, CommandLine) {
  const std::vector<std::pair<Arguments, std::string>> table = {
      {{}, "verb"},
      {{"expalin"}, "explain"},
      {{"no/such"}, "no/such"},
      {{"--machine", "host"}, "verb"},
      {{"plan"}, "W"},
      {{"plan", kChain}, "-m"},
      {{"plan", kChain, "-m"}, "--machine"},
      {{"plan", kChain, "-m", "hots"}, "host"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--no-such"}, "--no-such"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--jsn"}, "--json"},
      {{"plan", kChain, "-m", "scratchpad:4K", "-m", "host"}, "--machine"},
      {{"plan", kChain, "more", "-m", "scratchpad:4K"}, "more"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--model", "chimaera"}, "chimera"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--model", "exact"}, "exact"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--reading", "loose"}, "loose"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--model", "chimera", "--edges", "half"}, "half"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--memory", "all"}, "--memory"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--min-tile", "0"}, "--min-tile"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--min-tile", "x"}, "--min-tile"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--write-weight", "-1"}, "--write-weight"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--level", "L7"}, "L7"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--level", "DRAM"}, "DRAM"},
      {{"plan", kChain, "-m", "scratchpad:1K,4K", "--level", "all", "--capacity", "4K", "--model",
        "chimera"},
       "--capacity"},
      {{"explain", kChain, "-m", "scratchpad:1K,4K", "--level", "all", "--order", "mlkn"},
       "--order"},
      {{"predict", kChain, "-m", "scratchpad:1K,4K", "--model", "chimera", "--level", "all",
        "--tiles", "m=2"},
       "--tiles"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--capacity", "e"}, "--capacity"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--capacity", "-4K"}, "--capacity"},
      {{"plan", kChain, "-m", "scratchpad:4K", "--capacity", "9999999999999999999e"}, "--capacity"},
      {{"plan", kChain, "-m", "scratchpad:4K", "-o", "/no/such/folder/plan.yaml"}, "-o"},
      {{"explain", kChain, "-m", "scratchpad:4K", "--order", "mlk"}, "mlk lacks n"},
      {{"explain", kChain, "-m", "scratchpad:4K", "--order", "mlkk"}, "mlkk has k twice"},
      {{"explain", kChain, "-m", "scratchpad:4K", "--order", ""}, "order"},
      {{"explain", kChain, "-m", "scratchpad:4K", "--tiles", "z=4"}, "z"},
      {{"explain", kChain, "-m", "scratchpad:4K", "--tiles", "m=11"}, "11"},
      {{"explain", kChain, "--curve", "--tree", kTree}, "--curve"},
      {{"explain", "gem-chain", "--curve"}, "gemm-chain"},
      {{"predict", kChain, "-m", "scratchpad:4K", "--tree", kTree}, "--model"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--hoist", "up"}, "--hoist"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--rule1", "x"}, "--rule1"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--rule4", ""}, "--rule4"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--stores", "x"}, "--stores"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--phi", "x"}, "--phi"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--rules", "1,5"}, "--rules"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--rules", "1,"}, "--rules"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--slack", "-1"}, "--slack"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--tile-step", "0"}, "--tile-step"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--search", "luck"}, "luck"},
      {{"plan", kChain, "-m", "a100", "--model", "mcfuser", "--top", "0"}, "--top"},
      {{"predict", kChain, "-m", "a100", "--model", "mcfuser", "--edges", "half"}, "half"},
      {{"explain", kChain, "-m", "a100", "--expression", "mnlx"}, "--expression"},
      {{"explain", kChain, "-m", "a100", "--expression", "ml(n,k)"}, "ml(n,k)"},
      {{"compare", kChain}, "-m"},
      {{"plan", kChain, "-m", "a100", "--level"}, "--level stands without its value"},
      {{"plan", kChain, "-m", "a100", "-m", "h100"}, "--machine is given 2 times"},
      {{"plan", kChain, "more", "-m", "a100"},
       "more is one argument too many; accepted: one W and"},
      {{"compare", kChain, "-m", "a100", "--models", "mcfuse"}, "mcfuser"},
      {{"compare", kChain, "-m", "a100", "--models", "exact"}, "exact"},
      {{"compare", kChain, "-m", "a100", "--models", ""}, "an empty text"},
      {{"emit", kChain, "-m", "host", "--order", "mlkn"}, "-o"},
      {{"run", kChain, "-m", "host", "--order", "mlkn", "--target", "gpu"}, "gpu"},
      {{"run", kChain, "-m", "host", "--order", "mlkn", "--isa", "sse"}, "sse"},
      {{"run", kChain, "-m", "host", "--order", "mlkn", "--threads", "0"}, "--threads"},
      {{"validate", kChain, "-m", "cache:4K/8", "--orders", "mlkn,"}, "--orders"},
      {{"validate", kChain, "-m", "cache:4K/8", "--samples", "0"}, "--samples"},
      {{"validate", kChain, "-m", "cache:4K/8", "--samples", "-3"}, "--samples"},
      {{"validate", kChain, "-m", "cache:4K/8", "--truth", "hearsay"}, "hearsay"},
      {{"validate", kChain, "-m", "cache:4K/8", "--truth", "cachegrind", "--layout", "tiled"},
       "tiled"},
      {{"measure", kChain, "-m", "cache:4K/8", "--meter", "ruler"}, "ruler"},
      {{"measure", kChain, "-m", "cache:4K/8", "--target", "abacus"}, "abacus"},
      {{"measure", kChain, "-m", "cache:4K/8", "--isa", "mmx"}, "mmx"},
      {{"validate", kChain, "-m", "cache:4K/8", "--min-r2", "2"}, "--min-r2"},
      {{"validate", kChain, "-m", "cache:4K/8", "--spill", "A"}, "A"},
      {{"validate", kChain, "-m", "cache:4K/8", "--seed", "-1"}, "--seed"},
      {{"simulate", kChain, "-m", "h200", "--order", "mlkn", "--schedule", "luck"},
       "timed, lockstep, serial"},
      {{"simulate", kChain, "-m", "h200", "--order", "mlkn", "--partitions", "3"}, "--partitions"},
      {{"simulate", kChain, "-m", "h200", "--order", "mlkn", "--jitter", "1"}, "--jitter"},
      {{"simulate", kChain, "-m", "cache:4K", "--order", "mlkn", "--sample-waves", "2"},
       "--sample-waves"},
      {{"simulate", kChain, "-m", "h200", "--order", "mlkn", "--cores", "1", "--blocks-per-sm",
        "2"},
       "--blocks-per-sm"},
      {{"reproduce", "chimera/fig99"}, "chimera/fig99"},
      {{"reproduce", "chimera/table3", "--out", "/proc/no/such"}, "-o"},
      {{"reproduce", "chimera/table3", "--size", "small"}, "--size"},
      {{"reproduce", "chimera/table3", "--data", "."}, "--data"},
      {{"reproduce", "validation/polybench", "--size", "mini"}, "small, medium, large"},
      {{"machines", "extra"}, "extra"},
  };
  for (const auto& [arguments, named] : table) expect_refused(arguments, named);
}

/// They were taken, and did nothing.
TEST(BadInput, OptionsWithoutAnythingToDo) {
  const std::vector<std::pair<Arguments, std::string>> table = {
      {{"run", kChain, "-m", "host", "--tune-log", "log"}, "--tune"},
      {{"run", kChain, "-m", "host", "--profile", "--tune", "1", "--tune-log", "log"}, "network"},
      {{"run", kChain, "-m", "host", "-o", "answers"}, "--batch"},
      {{"run", "--batch", "/dev/null", "-m", "host", "--tune", "2"}, "--batch"},
      {{"emit", kChain, "-m", "h200", "--target", "cuda", "--arch", "sm_9000", "-o", "out"},
       "sm_90a"},
      {{"emit", kChain, "-m", "h200", "--target", "cuda", "--arch", "9", "-o", "out"}, "sm_90a"},
      {{"emit", kChain, "-m", "h200", "--target", "cuda-emulated", "--arch", "sm_70", "-o", "out"},
       "sm_80"},
      {{"validate", kChain, "-m", "scratchpad:4K", "--samples", "2", "--beam", "2"}, "--beam"},
      {{"workloads", "--yaml"}, "--yaml"},
      {{"machines", "-o", "file"}, "--out"},
  };
  for (const auto& [arguments, named] : table) expect_refused(arguments, named);
}

TEST(BadInput, WorkloadsAndMachines) {
  for (const auto& [name, named] : std::vector<std::pair<std::string, std::string>>{
           {"gemm-chian:m=4", "gemm-chain"},
           {"gemm-chain:mm=4", "mm"},
           {"gemm-chain:m=0", "0"},
           {"gemm-chain:m=-4", "-4"},
           {"gemm-chain:m=9223372036854775807,n=9223372036854775807", "9223372036854775807"},
           {"gemm-chain:m=4294967296,k=4294967296", "gemm-chain"},
           {"gemm-chain:m=4,m=5", "m"},
           {"gemm-chain:dtype=f31", "f31"},
           {"chimera/G99", "chimera/G"},
           {"no-such.yaml", "no-such.yaml"},
           {"", "W"}})
    expect_refused({"plan", name, "-m", "scratchpad:4K"}, named);
  for (const char* machine :
       {"scratchpad:", "scratchpad:0B", "scratchpad:-4K", "scratchpad:4Q", "cache:48K/0",
        "cache:", "cache:99999999999999999999K", "no.yaml", ""})
    expect_refused({"plan", kChain, "-m", machine}, machine);
}

TEST(BadInput, Trees) {
  for (const auto& [tree, named] : std::vector<std::pair<std::string, std::string>>{
           {"", "--tree"},
           {"m l ( k ( C.gemm1 )", "--tree"},
           {"m l ( k ( C.gemm1 ) ) )", "--tree"},
           {"m/0 ( C.gemm1 )", "0"},
           {"m@gird ( C.gemm1 )", "gird"},
           {"z ( C.gemm1 C.gemm2 )", "z"},
           {"m l ( k ( C.gemm9 ) n ( C.gemm2 ) )", "gemm9"},
           {std::string(100000, '('), "--tree"}})
    expect_refused(simulate({"--tree", tree, "--tiles", "m=4,n=3,k=4,l=5"}), named);
  for (const auto& [tiles, named] :
       std::vector<std::pair<std::string, std::string>>{{"m=11,n=3,k=4,l=5", "11"},
                                                        {"m=0,n=3,k=4,l=5", "m"},
                                                        {"m=4,m=4", "m"},
                                                        {"q=4", "q"},
                                                        {"m", "m"},
                                                        {"m=99999999999999999999", "m"},
                                                        {"m=4,n=3,k=4", "l"}})
    expect_refused(simulate({"--tree", kTree, "--tiles", tiles}), named);
  expect_refused(simulate({"--tree", kTree, "--tiles", "m=4,n=3,k=4,l=5", "--pin", "X=dram"}), "X");
  expect_refused(simulate({"--tree", kTree, "--tiles", "m=4,n=3,k=4,l=5", "--pin", "C"}), "C");
  expect_refused(simulate({"--tree", kTree, "--tiles", "m=4,n=3,k=4,l=5", "--pin", "C=L9"}), "L9");
  expect_refused(simulate({"--tree", kTree, "--tiles", "m=4,n=3,k=4,l=5", "--flag", "C=fast"}),
                 "fast");
  expect_refused(simulate({"--pin", "C=dram"}), "--tree");
  expect_refused(simulate({"--tiles", "m=4"}), "--tiles");
  expect_refused(simulate({"--model", "exact"}), "makes none");
}

TEST(BadInput, Files) {
  const Folder folder;
  const std::vector<std::pair<std::string, std::string>> table = {
      {"loops: {m: 4}\noperator: []\n", "operator"},
      {"loops: {m: 0}\noperators: [\"B[m] = A[m]\"]\n", "m"},
      {"loops: {m: -1}\noperators: [\"B[m] = A[m]\"]\n", "m"},
      {"loops: {m: 9223372036854775808}\noperators: [\"B[m] = A[m]\"]\n", "m"},
      {"loops: {m: 4, n: 3}\noperators: [\"B[m] = A[m]\"]\n", "n"},
      {"loops: {m: 4}\noperators: [\"B[m] = A[q]\"]\n", "q"},
      {"loops: {m: 4}\noperators: [\"B[m] = A[m]\", \"A[m] = B[m]\"]\n", "A"},
      {"loops: {m: 4}\noperators: [\"B[m] = \"]\n", "workload.yaml:2: operators[0]"},
      {"loops: {\"m;rm\": 4}\noperators: []\n", "m;rm"},
      {"loops: [\n", "workload.yaml"},
      {"", "workload.yaml"},
      {"kernels: 3\n", "workload.yaml"},
      {"loops: {h: 5}\ntensors: {X: [h-97]}\noperators: [\"B[h] = X[h]\"]\n",
       "h-97 is -92 elements"},
      {std::string((4 << 20) + 1, '#'), "4194304"},
      {std::string("\0\1\2", 3), "workload.yaml"},
  };
  for (const auto& [text, named] : table) {
    const std::string path = folder.write("workload.yaml", text);
    SCOPED_TRACE(text);
    expect_refused({"plan", path, "-m", "scratchpad:4K", "-o", folder.path("plan.yaml")}, named);
  }
  for (const char* text : {"name: x\n", "name: x\nlevels: []\n", "levels: 4\n", "[]\n"})
    expect_refused({"plan", kChain, "-m", folder.write("machine.yaml", text)}, "machine.yaml");
  // Of a rate of nothing, times are infinite.
  const std::string idle =
      "name: x\nkind: cpu\nlevels:\n- {name: DRAM, kind: home}\n- {name: L1, kind: scratchpad, "
      "capacity: {value: 4K, source: s}}\nunits:\n- {name: core, peak: {f32: {value: 0 FLOP/s, "
      "source: s}}}\n";
  expect_refused({"plan", kChain, "-m", folder.write("machine.yaml", idle)},
                 "machine.yaml:7: unit core: peak f32");
  expect_refused(
      {"plan", kChain, "-m", folder.write("machine.yaml", std::string((4 << 20) + 1, '#'))},
      "4194304");
  expect_refused({"plan", folder.path(""), "-m", "scratchpad:4K"}, folder.path(""));
  // Nothing half-written is left behind.
  EXPECT_THAT(folder.names(), ::testing::UnorderedElementsAre("workload.yaml", "machine.yaml"));
}

}  // namespace
}  // namespace tilewright::test
