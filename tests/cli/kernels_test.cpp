// Commands that emit, build and run kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/command.h"
#include "tests/cli/document.h"

namespace tilewright::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(Command, Run) {
  const json j =
      document({"run", "gemm-chain:m=61,n=19,k=23,l=47", "-m", "host", "--model", "chimera"});
  expect_keys(j, {"verified", "relative_error", "seconds_median", "gflops", "peak_gflops", "isa",
                  "threads"});
  EXPECT_TRUE(j["verified"]);
  EXPECT_LT(j["relative_error"].get<double>(), j["tolerance"].get<double>());
}

// A chain whose tiles leave partial ones at every edge.
const Arguments kCuda = {
    "gemm-chain:m=61,n=40,k=24,l=47,dtype=f16", "-m",      "h200",          "--tree",
    "m@grid ( l ( k ( C.gemm1 ) C.gemm2 ) )",   "--tiles", "m=32,l=32,k=16"};

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Command, EmitCudaWritesSourceHeadersAndScript) {
  const Folder folder;
  const json j = document(
      Arguments{"emit"} + kCuda +
      Arguments{"--target", "cuda", "-o", folder.path("k"), "--stages", "2", "--warps", "2"});
  std::set<std::string> kinds;
  for (const json& file : j["files"]) {
    const std::filesystem::path path = file.get<std::string>();
    EXPECT_TRUE(std::filesystem::exists(path)) << file;
    kinds.insert(path.extension());
  }
  EXPECT_THAT(kinds, testing::IsSupersetOf({".cu", ".h"})) << j["files"];
  // Launches that begin early are of Hopper alone.
  ASSERT_EQ(j["builds"].size(), 1u) << j["builds"];
  EXPECT_EQ(j["builds"][0]["architecture"], "sm_90a");
  Arguments for_ampere = kCuda;
  std::ranges::replace(for_ampere, std::string("h200"), std::string("a100"));
  const json older = document(Arguments{"emit"} + for_ampere +
                              Arguments{"--target", "cuda", "-o", folder.path("a")});
  ASSERT_EQ(older["builds"].size(), 2u) << older["builds"];
  for (const json* document : {&j, &older})
    for (const json& build : (*document)["builds"]) {
      if (build.contains("reason")) GTEST_SKIP() << build["reason"];
      EXPECT_GT(build["launches"][0]["registers"], 0) << build;
    }
  const Outcome o = tilewright_command(
      Arguments{"emit"} + kCuda +
      Arguments{"--target", "cuda", "-o", folder.path("bad"), "--micro-kernel", "6x4"});
  EXPECT_EQ(o.status, 2);
  EXPECT_THAT(o.err, HasSubstr("mma"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("bad")));
}

TEST(Command, RunCudaEmulated) {
  const json j = document(Arguments{"run"} + kCuda + Arguments{"--target", "cuda-emulated"});
  EXPECT_TRUE(j["verified"]);
  EXPECT_GT(j["relative_error"], 0);  // rounded to f16
  EXPECT_LT(j["relative_error"], j["tolerance"]);
  EXPECT_EQ(j["faults"], 0);
  EXPECT_FALSE(j.contains("seconds_median"));
  bool stored = false;
  for (const json& t : j["traffic"])
    if (t["tensor"] == "E") stored = t["written_bytes"] == 61 * 40 * 2;
  EXPECT_TRUE(stored) << j["traffic"];
}

TEST(Command, RunCudaWithoutADriverSaysSo) {
  const json targets = document({"targets"});
  for (const json& t : targets["targets"])
    if (t["name"] == "cuda" && t["usable"]) GTEST_SKIP() << "there is a device here";
  const json j = document(Arguments{"run"} + kCuda + Arguments{"--target", "cuda"}, 3);
  EXPECT_THAT(j["reason"].get<std::string>(),
              HasSubstr("target cuda is not available: no NVIDIA driver"));
  EXPECT_FALSE(j.contains("verified"));
  const Folder folder;
  const std::string batch =
      folder.write("batch.jsonl", R"({"workload": "mcfuser/G1", "model": "mcfuser"})");
  document({"run", "--target", "cuda", "-m", "h200", "--batch", batch}, 3);
}

/// A file with Hopper's own instructions assembles for sm_90a alone, and its script says so.
TEST(Command, TheBuildScriptSaysWhatTheFileAssemblesFor) {
  struct Case {
    const char* machine;
    const char* says;
  };
  // On an h200 launches overlap, which no older device has.
  for (const Case& c : {Case{"h200", "ARCH is sm_90a, whose instructions the file has."},
                        Case{"a100", "ARCH is sm_90a or sm_80."}}) {
    const Folder folder;
    const Outcome o = tilewright_command(
        {"emit", "gemm:m=64,n=64,k=64", "-m", c.machine, "--target", "cuda", "--tree",
         "m/32@grid n/32@grid ( k/16 ( C.gemm ) )", "-o", folder.path("out")});
    ASSERT_EQ(o.status, 0) << o.err;
    std::ifstream file(folder.path("out") + "/build.sh");
    const std::string script{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(script, HasSubstr(c.says)) << c.machine;
  }
}

TEST(Command, BatchBuildsEachLineAndKeepsTheOrder) {
  const Folder folder;
  const std::string tree = R"j("tree": "m@grid ( l ( k ( C.gemm1 ) C.gemm2 ) )")j";
  const std::string batch =
      folder.write("batch.jsonl",
                   R"j({"name": "a", )j" + tree + R"j(, "tiles": {"m": 32, "l": 32, "k": 16}})j" +
                       "\n\n" + R"j({"name": "b", )j" + tree + R"j(, "tiles": "m=99,l=32,k=16"})j" +
                       "\n" + R"j({"name": "c", "model": "mcfuser", "stages": 1})j" + "\n");
  const Outcome o = tilewright_command(
      {"run", kCuda[0], "-m", "h200", "--target", "cuda", "--batch", batch, "--build-only",
       "--arch", "sm_80", "-o", folder.path("out"), "--cache", folder.path("cache"), "--json"});
  if (o.err.find("nothing here builds CUDA") != std::string::npos) GTEST_SKIP() << o.err;
  ASSERT_EQ(o.status, 0) << o.err;
  const json j = json::parse(o.out);
  ASSERT_EQ(j["results"].size(), 3u);
  EXPECT_EQ(j["results"][0]["name"], "a");
  EXPECT_EQ(j["results"][0]["architecture"], "sm_80");
  EXPECT_GT(j["results"][0]["launches"][0]["registers"], 0);
  EXPECT_THAT(j["results"][1]["reason"].get<std::string>(), HasSubstr("99"));
  EXPECT_EQ(j["results"][2]["name"], "c");
  EXPECT_FALSE(j["results"][2].contains("reason")) << j["results"][2];
  // A cubin and its figures, twice; the answers once more, a line each.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("cache")), {}), 4);
  std::ifstream lines(folder.path("out"));
  std::string line;
  for (const json& r : j["results"]) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(json::parse(line), r);
  }
}

TEST(Command, BatchRefusesWhatIsNoRequest) {
  const Folder folder;
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "has no runs in it"},
           {"[1, 2]\n", "batch.jsonl:1"},
           {"{\"workload\": \"gemm\"}\n{\"stage\": 2}\n", "batch.jsonl:2: stage"},
           {"{\"stages\": 9}\n", "1 to 8"},
           {"{\"tiles\": 4}\n", "tiles"}}) {
    const Outcome o = tilewright_command({"run", "--target", "cuda", "-m", "h200", "--build-only",
                                          "--batch", folder.write("batch.jsonl", text)});
    EXPECT_EQ(o.status, 2) << text;
    EXPECT_THAT(o.err, HasSubstr(part));
  }
  EXPECT_EQ(tilewright_command({"run", "--target", "cpu", "-m", "host", "--batch",
                                folder.write("batch.jsonl", "{}")})
                .status,
            2);
}

TEST(Command, EmitWritesWhatBuilds) {
  const Folder folder;
  const json j = document({"emit", kChain, "-m", "host", "--order", "mlkn", "--target", "cpu", "-o",
                           folder.path("kernel")});
  for (const json& file : j["files"])
    EXPECT_TRUE(std::filesystem::exists(file.get<std::string>())) << file;
}

}  // namespace
}  // namespace tilewright::test
