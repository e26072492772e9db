// Does the explorer's engine (explore/engine.cpp) link from its own list of sources and its stubs,
// and answer what the command prints? Here it is compiled for this machine: a missing symbol or an
// answer that is no JSON shows without the compiler for WebAssembly. What only that compiler
// refuses, headers that its library lacks, is looked for in the sources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/cli/command.h"
#include "tests/support/places.h"

extern "C" char* room(int bytes);
extern "C" const char* ask(const char* question, int bytes);

namespace tilewright::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

/// As the page asks (explore/engine.js).
json asked(const json& question) {
  const std::string text = question.dump();
  const int bytes = static_cast<int>(text.size());
  char* at = room(bytes);
  std::memcpy(at, text.data(), text.size());
  return json::parse(ask(at, bytes));
}

void same_as_the_command(const Words& words) {
  SCOPED_TRACE(testing::PrintToString(words));
  const json said = asked({{"words", words}});
  Words line = words;
  line.push_back("--json");
  const Outcome command = tilewright_command(line);
  ASSERT_EQ(said["status"], command.status);
  if (said.contains("error")) {
    EXPECT_EQ("tilewright: " + said["error"].get<std::string>() + "\n", command.err);
    return;
  }
  json answer = said["answer"], printed = json::parse(command.out);
  for (json* each : {&answer, &printed}) each->erase("search_seconds");  // a clock's
  EXPECT_EQ(json::diff(printed, answer), json::array());
}

TEST(Explorer, AnswersAreTheCommands) {
  const Words chain = {"gemm-chain:m=40,n=24,k=16,l=56", "--machine", "scratchpad:8K"};
  const auto of = [&](const char* verb, const Words& more) {
    Words words = chain;
    words.insert(words.begin(), verb);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Words plan = {"--order", "mlkn", "--tiles", "m=20,l=14,k=16,n=12"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), plan.begin(), plan.end());
    return more;
  };
  same_as_the_command(of("explain", {"--model", "chimera", "--capacity", "4000B"}));
  same_as_the_command(of("explain", {"--order", "best", "--capacity", "4000B"}));
  same_as_the_command(of("explain", {"--curve"}));
  same_as_the_command(of("explain", with({"--resolved"})));
  same_as_the_command(of("predict", with({"--model", "exact"})));
  same_as_the_command(of("predict", with({"--model", "chimera"})));
  same_as_the_command(of("simulate", plan));
  same_as_the_command(of("simulate", with({"--computes", "3"})));
  same_as_the_command({"explain", "conv-chain:ic=8,h=12,w=12,oc1=8,oc2=8", "-m", "xeon-gold-6240"});
  same_as_the_command({"workloads", "gemm"});
  same_as_the_command({"explain", "gemm-chian:m=64", "--machine", "scratchpad:8K"});
  same_as_the_command(of("explain", {"--tiles", "m=0"}));
}

TEST(Explorer, AWorkloadOfThePageIsAnswered) {
  const json said = asked(
      {{"words", {"simulate", "workload.yaml", "-m", "scratchpad:8K"}},
       {"subject", "loops: {m: 24, n: 8, k: 16}\noperators:\n  - C[m,n] += A[m,k] * B[k,n]\n"}});
  ASSERT_EQ(said["status"], 0) << said;
  EXPECT_FALSE(said["answer"]["traffic"].empty());
}

/// It is compiled without threads: these headers declare nothing there, and these names are not
/// declared.
TEST(Explorer, SourcesIncludeWhatItsLibraryHas) {
  const std::regex lacking(
      R"(#include <(future|condition_variable|semaphore|latch|barrier|stop_token|execution)>|std::(scoped_lock|this_thread|call_once)\b)");
  int sources = 0;
  const auto look = [&](const std::filesystem::path& file) {
    std::ifstream in(file);
    ASSERT_TRUE(in) << file;
    std::stringstream text;
    text << in.rdbuf();
    ++sources;
    EXPECT_FALSE(std::regex_search(text.str(), lacking))
        << file << ": use std::thread, std::mutex and std::lock_guard";
  };
  const std::filesystem::path top = test::kSourceFolder;
  std::stringstream host(TILEWRIGHT_HOST_SOURCES);
  std::set<std::string> left_out;
  for (std::string name; std::getline(host, name, ',');) left_out.insert("harness/" + name);
  for (const char* folder : {"core", "models", "simulator", "harness"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top / folder)) {
      const std::string name = std::filesystem::relative(entry.path(), top).string();
      const bool here = name.starts_with("simulator/cuda_host/") || left_out.contains(name);
      if (!here && (name.ends_with(".h") || name.ends_with(".cpp"))) look(entry.path());
    }
  EXPECT_GT(sources, 400);
}

}  // namespace
}  // namespace tilewright::test
