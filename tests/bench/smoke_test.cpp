// The program as `make bench` starts it, on little work and without peers: it ends, and its
// document says what it must. No speed is asserted.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

namespace tilewright::test {
namespace {

nlohmann::json document(std::vector<std::string> arguments) {
  const Folder folder;
  arguments.insert(arguments.end(), {"--json", folder.path("bench.json")});
  const Outcome outcome = tilewright_command(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return nlohmann::json::parse(std::ifstream(folder.path("bench.json")));
}

TEST(Bench, KernelsDocument) {
  const auto json = document({"--only", "kernels", "--row", "gemm-chain:m=64,n=32,k=32,l=64",
                              "--threads", "1", "--rounds", "2", "--turn", "0", "--peers", "none"});
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["source"], "measured");
  for (const char* key : {"cpu", "compiler", "date", "command", "system"})
    EXPECT_FALSE(json[key].get<std::string>().empty()) << key;
  ASSERT_EQ(json["kernels"].size(), 1U);
  const auto& row = json["kernels"][0];
  EXPECT_EQ(row["flops"], 2.0 * 64 * 64 * (32 + 32));
  EXPECT_GT(row["peak_gflops"], 0);
  ASSERT_EQ(row["contestants"].size(), 1U) << row["notes"];
  const auto& ours = row["contestants"][0];
  EXPECT_EQ(ours["name"], "tilewright");
  EXPECT_EQ(ours["samples"], 2);
  EXPECT_GT(ours["seconds_min"], 0);
  EXPECT_LE(ours["seconds_min"], ours["seconds_median"]);
  EXPECT_NEAR(ours["gflops"].get<double>() * ours["seconds_median"].get<double>() * 1e9,
              row["flops"].get<double>(), 1);
  EXPECT_NEAR(ours["of_peak"].get<double>() * row["peak_gflops"].get<double>(),
              ours["gflops"].get<double>(), 1e-6);
  EXPECT_EQ(json["geometric_means"].size(), 1U);
}

TEST(Bench, EveryKindOfKernel) {
  const auto json = document({"--only", "kernels", "--row", "attention:m=16,l=16,k=8,n=8", "--row",
                              "conv-chain:ic=4,h=9,w=9,oc1=4,oc2=4,relu=1", "--threads", "1",
                              "--rounds", "1", "--turn", "0", "--peers", "none"});
  ASSERT_EQ(json["kernels"].size(), 2U);
  for (const auto& row : json["kernels"])
    EXPECT_EQ(row["contestants"].size(), 1U) << row["notes"];
}

TEST(Bench, BandwidthDocument) {
  const auto json =
      document({"--only", "bandwidth", "--threads", "1", "--rounds", "1", "--turn", "0"});
  ASSERT_FALSE(json["bandwidth"].empty());
  EXPECT_EQ(json["bandwidth"].back()["level"], "DRAM");
  EXPECT_EQ(json["bandwidth"].size() % 3, 0U);
  for (const auto& b : json["bandwidth"]) EXPECT_GT(b["bytes_per_second_median"], 0) << b;
}

TEST(Bench, TilingsInPartsEndWithOneDocument) {
  const Folder folder;
  const std::vector<std::string> arguments = {
      "--only", "tilings", "--row", "gemm-chain:m=48,n=32,k=32,l=48", "--row",
      "gemm-chain:m=32,n=32,k=32,l=64", "--threads", "1", "--rounds", "1", "--turn", "0",
      "--tilings", "8", "--journal", folder.path("journal"), "--part"};
  auto part = arguments;
  part.emplace_back("0.001");  // the first row is begun whatever it takes, the second is not
  const auto first = document(part);
  EXPECT_EQ(first["rows_left"], 1);
  ASSERT_EQ(first["tilings"].size(), 1U);
  part.back() = "60";
  const auto last = document(part);
  EXPECT_EQ(last["rows_left"], 0);
  ASSERT_EQ(last["tilings"].size(), 2U);
  EXPECT_EQ(last["tilings"][0], first["tilings"][0]) << "timed once";
  for (const auto& row : last["tilings"]) {
    EXPECT_EQ(row["drawn"].get<int>() + row["failed"].get<int>(), 8) << row;
    EXPECT_EQ(row["failed"], 0) << row;
    EXPECT_DOUBLE_EQ(row["ratio"].get<double>(),
                     row["model"]["seconds_median"].get<double>() /
                         row["fastest_drawn"]["seconds_median"].get<double>());
  }
}

TEST(Bench, BadInputIsOneLine) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--only", "speed"},
        {"--threads", "0"},
        {"--rounds", "0"},
        {"--isa", "mmx"},
        {"--peers", "Eigen"},
        {"--rows", "G99"},
        {"--turn", "-1"},
        {"--fast"},
        {"--set", "small"},
        {"--part", "10"},
        {"--part", "-1", "--journal", "j"},
        {"--row", "layernorm:rows=8,cols=8", "--peers", "none", "--only", "kernels"}}) {
    const Outcome outcome = tilewright_command(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments[0] << " " << outcome.err;
    EXPECT_EQ(outcome.lines_of_err(), 1) << outcome.err;
  }
}

}  // namespace
}  // namespace tilewright::test
