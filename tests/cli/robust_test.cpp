// Does the command stand what is odd: statistics of nothing, workloads without rows, outputs that
// are no files? Each case ended in a wrong answer, an internal error or a signal once.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "harness/request.h"
#include "tests/cli/command.h"
#include "tests/core/onnx_models.h"
#include "tests/support/places.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

std::string line_of(const Arguments& arguments) {
  std::string line;
  for (const std::string& a : arguments) line += a + " ";
  return line;
}

/// The document of a command that ends with this status.
json document(Arguments arguments, int status = 0) {
  arguments.emplace_back("--json");
  const Outcome o = tilewright_command(arguments);
  EXPECT_EQ(o.status, status) << line_of(arguments) << "\n" << o.err;
  return json::parse(o.out, nullptr, false);
}

/// Ends, with an answer or a refusal, and says so in one line.
void expect_stands(const Arguments& arguments) {
  const Outcome o = tilewright_command(arguments);
  SCOPED_TRACE(line_of(arguments) + "\n" + o.err);
  EXPECT_TRUE(o.status == 0 || o.status == 2 || o.status == 3) << o.status;
  EXPECT_EQ(o.lines_of_err(), o.status == 0 ? 0 : 1);
}

/// A million zeros, which ArgMax over one element makes, stand in the file one by one.
TEST(Files, LongListsOfValuesStandBesideTheFile) {
  const TemporaryFolder folder;
  const std::string model = folder.path() + "/long.onnx", out = folder.path() + "/w.yaml";
  const std::vector<std::int64_t> shape = {1, 1'000'000, 1};
  std::ofstream(model, std::ios::binary) << onnx_test::model(
      {.nodes = {onnx_test::node("ArgMax", {"x"}, {"zeros"}, {onnx_test::attribute_int("axis", 2)}),
                 onnx_test::node("Cast", {"zeros"}, {"y"}, {onnx_test::attribute_int("to", 1)})},
       .inputs = {onnx_test::value("x", shape)},
       .outputs = {onnx_test::value("y", shape)}});
  for (const Arguments& words :
       {Arguments{"import", model, "-o", out}, Arguments{"workloads", model, "-o", out},
        Arguments{"plan", model, "-m", "cache:1M/16", "-o", out}}) {
    const Outcome o = tilewright_command(words);
    EXPECT_EQ(o.status, 0) << line_of(words) << o.err;
    EXPECT_EQ(std::filesystem::file_size(out + ".values"), 8'000'000u);
    EXPECT_LT(std::filesystem::file_size(out), 10'000u);
    // It is read again: a plan by what prices one.
    const bool plan = words[0] == "plan";
    document({plan ? "predict" : "plan", out, "-m", "cache:1M/16", "--model",
              plan ? "cached" : "tilewright"});
    std::filesystem::remove(out + ".values"), std::filesystem::remove(out);
  }
}

TEST(Files, WhatIsTooLongToBeReadIsNotWritten) {
  const TemporaryFolder folder;
  const std::string model = folder.path() + "/long.onnx", out = folder.path() + "/w.yaml";
  onnx_test::Graph deep{.inputs = {onnx_test::value("x0", {4})}};
  const std::string name(60, 'x');
  std::string before = "x0";
  for (int i = 1; i <= 30'000; ++i) {
    const std::string next = name + std::to_string(i);
    deep.nodes.push_back(onnx_test::node("Tanh", {before}, {next}));
    before = next;
  }
  deep.outputs = {onnx_test::value(before, {4})};
  std::ofstream(model, std::ios::binary) << onnx_test::model(deep);
  for (const Arguments& words :
       {Arguments{"import", model, "-o", out}, Arguments{"workloads", model, "-o", out}}) {
    const Outcome o = tilewright_command(words);
    EXPECT_EQ(o.status, 2) << line_of(words);
    EXPECT_THAT(o.err, HasSubstr("too many"));
    EXPECT_EQ(o.lines_of_err(), 1);
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

TEST(Statistics, OfNoTilingAreNullWithTheReason) {
  const Arguments none = {"validate", "attention:m=64,l=64", "-m", "cache:4K/8", "--samples", "4"};
  const json j = document(none, 3);
  EXPECT_EQ(j["valid"], 0);
  for (const char* key : {"r2_identity", "r2_fit", "mape", "worst", "bias"}) {
    EXPECT_TRUE(j[key].is_null()) << key << " " << j[key];
    EXPECT_TRUE(j["full_edges"][key].is_null()) << key;
  }
  EXPECT_EQ(j["undefined"], "there are no points");
  EXPECT_EQ(j["reason"], "no tiling fits half the capacity");
  const Outcome table = tilewright_command(none);
  EXPECT_EQ(table.status, 3);
  EXPECT_THAT(table.out, ::testing::Not(HasSubstr("1.0000")));
}

TEST(Statistics, WithoutSpreadReachNoR2) {
  const json j = document(
      {"validate", "adam:size=32", "-m", "cache:4K/8", "--samples", "4", "--min-r2", "0"}, 3);
  EXPECT_EQ(j["valid"], 1);
  EXPECT_TRUE(j["r2_identity"].is_null());
  EXPECT_TRUE(j["mape"].is_number());
}

TEST(Stands, WorkloadsOfOneLoopOrNone) {
  const Folder folder;
  const std::string sum = folder.write("sum.yaml",
                                       "name: s\ndtype: f32\nloops: {m: 64}\n"
                                       "tensors: {X: [m], Y: []}\noperators:\n  - Y[] += X[m]\n"
                                       "outputs: [Y]\n");
  expect_stands({"validate", "adam:size=32", "-m", "epyc-zen5", "--samples", "4"});
  expect_stands({"validate", "adam:size=64", "-m", "scratchpad:4096B"});
  expect_stands({"explain", "adam:size=1", "--curve", "-m", "h200"});
  expect_stands({"predict", sum, "-m", "h200", "--model", "fusionstitching"});
  expect_stands({"compare", sum, "-m", "h200"});
}

TEST(Stands, RewritesUnderCompare) {
  const json j = document({"compare", "squeeze-excite:batch=4,channels=16,size=9,squeezed=4", "-m",
                           "h200", "--rewrite", "compose-all"});
  EXPECT_TRUE(j["bound_is"].is_string());
}

/// A model that counts at every level of a hierarchy is shown with what comes into the one planned
/// for.
TEST(Stands, CompareHasThePlansOwnBytes) {
  for (const char* w : {"gemm-chain:m=40,n=20,k=30,l=10", "softmax:rows=40,cols=50"}) {
    const char* machine = "cache:48K/12,1M/16";
    const json plan = document({"plan", w, "-m", machine});
    const json all = document({"compare", w, "-m", machine, "--models", "tilewright"});
    int seen = 0;
    for (const json& price : all["plans"][0]["prices"]) {
      if (price["by"] != "tilewright") continue;
      EXPECT_EQ(price["volume_bytes"], plan["volume_bytes"]) << w;
      ++seen;
    }
    EXPECT_EQ(seen, 1) << w;
  }
}

/// A plan that the GPU target takes in its own form has a time, however much room the price gives
/// its tiles: scores of 777 columns are padded there, and take turns in the kernel.
TEST(Stands, PlansThatTheTargetTakesHaveATime) {
  const json j = document({"compare", "attention:heads=5,m=333,l=777,dtype=f16", "-m", "h200",
                           "--models", "mcfuser,souffle"});
  ASSERT_EQ(j["plans"].size(), 2u);
  for (const json& plan : j["plans"]) EXPECT_TRUE(plan["seconds"].is_number()) << plan;
}

// ---- Outputs ------------------------------------------------------------------------------------

constexpr const char* kChain = "gemm-chain:m=10,n=6,k=7,l=9";

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Arguments plan_into(const std::string& file) {
  return {"plan", kChain, "-m", "scratchpad:4K", "-o", file};
}

/// 200 products in a row: more loops than Chimera orders. The other models' rows go on.
TEST(Stands, MoreLoopsThanAModelOrders) {
  std::string loops = "x: 4", operators;
  for (int i = 0; i <= 200; ++i)
    loops += ", d" + std::to_string(i) + ": " + std::to_string(2 + i % 3);
  for (int i = 0; i < 200; ++i) {
    const std::string a = std::to_string(i), b = std::to_string(i + 1);
    operators += "  - g" + a + ": T" + b + "[x,d" + b + "] += T" + a + "[x,d" + a + "] * W" + a +
                 "[d" + a + ",d" + b + "]\n";
  }
  const Folder folder;
  const std::string path =
      folder.write("chain200.yaml", "name: chain200\ndtype: f32\nloops: {" + loops +
                                        "}\noperators:\n" + operators + "outputs: [T200]\n");
  const json none = document({"plan", path, "-m", "scratchpad:4K", "--model", "chimera"}, 3);
  EXPECT_THAT(none["reason"].get<std::string>(), HasSubstr("at most 64"));
  EXPECT_EQ(document({"plan", path, "-m", "scratchpad:4K"})["model"], "tilewright");
  const json some = document({"compare", path, "-m", "h100", "--models", "chimera,unfused"});
  EXPECT_EQ(some["plans"].size(), 2u);
}

/// A device without an end was read into memory until there was none left.
TEST(Files, WithoutAnEndAreRefusedAtOnce) {
  const Folder folder;
  const std::string endless = folder.path("endless.yaml");
  std::filesystem::create_symlink("/dev/zero", endless);
  for (const Arguments& words :
       {Arguments{"plan", endless, "-m", "h200"},
        Arguments{"plan", kChain, "-m", "h200", "--split", endless},
        Arguments{"run", "--batch", endless, "--target", "cuda", "-m", "h200"}}) {
    const Outcome o = tilewright_command(words);
    EXPECT_EQ(o.status, 2) << line_of(words);
    EXPECT_THAT(o.err, HasSubstr("too large"));
    EXPECT_EQ(o.lines_of_err(), 1);
  }
}

/// A workload that was given for the log of times was emptied.
TEST(Output, ATuneLogReplacesNothingElse) {
  const Folder folder;
  const std::string text = "loops: {m: 4}\noperators: [\"B[m] = A[m]\"]\n";
  const std::string file = folder.write("w.yaml", text), torn = folder.write("torn", "{\"sch");
  for (const std::string& log : {file, std::string("/dev/null")}) {
    const Outcome o = tilewright_command(
        {"run", file, "-m", "host", "--tune", "1", "--seconds", "0", "--tune-log", log});
    EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_EQ(o.lines_of_err(), 1);
    EXPECT_THAT(o.err, HasSubstr("--tune-log: " + log));
  }
  EXPECT_EQ(slurp(file), text);
  EXPECT_EQ(document({"run", file, "-m", "host", "--tune", "1", "--seconds", "0", "--tune-log",
                      torn})["verified"],
            true);
  EXPECT_THAT(slurp(torn), HasSubstr("point"));
}

TEST(Output, DrawingsHaveTheFormThatTheirNameSays) {
  const Folder folder;
  const auto drawn = [&](const std::string& name) {
    return tilewright_command({"explain", "softmax:rows=4,cols=8", "-m", "h200", "--model",
                               "fusionstitching", "-o", folder.path(name)});
  };
  EXPECT_EQ(drawn("x.dot").status, 0);
  EXPECT_THAT(slurp(folder.path("x.dot")), HasSubstr("digraph"));
  const Outcome o = drawn("x.pdf");
  EXPECT_EQ(o.status, 2);
  EXPECT_THAT(o.err, HasSubstr(".svg"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("x.pdf")));
}

/// It measured for a quarter of a minute first, and left its numbers beside the folder.
TEST(Output, CalibrateLooksAtItsFileFirst) {
  const Folder folder;
  const std::string into = folder.path("taken");
  std::filesystem::create_directory(into);
  const Outcome o = tilewright_command({"calibrate", "-m", "host", "-o", into});
  EXPECT_EQ(o.status, 2);
  EXPECT_THAT(o.err, HasSubstr("a folder"));
  EXPECT_FALSE(std::filesystem::exists(into + ".part"));
}

/// Sixteen million blocks were all walked, before the target said that they are too many: minutes
/// and gigabytes.
/// A network that one model plans as one part: what parting a kernel costs was asked of the rest of
/// the network each time, more than 197 s for 64 layers.
TEST(Stands, EdgesOfANetworkThatIsOnePart) {
  const json said = document({"explain", "bert-large:layers=24", "-m", "ascend910-256"});
  std::size_t fused = 0;
  for (const json& e : said["edges"]) {
    if (!e["fused"].get<bool>() || e["seconds_fused"].is_null()) continue;
    ++fused;
    EXPECT_LT(e["seconds_fused"].get<double>(), 0.1 * said["seconds"].get<double>()) << e;
  }
  EXPECT_GT(fused, 24u);
}

TEST(Stands, PlansOfMillionsOfBlocksForTheNpu) {
  const auto begin = std::chrono::steady_clock::now();
  expect_stands({"plan", "groupnorm:batch=16777217,groups=1,channels=2", "-m", "ascend910",
                 "--target", "npu"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Output, LinksStayLinks) {
  const Folder folder;
  const std::string file = folder.write("file.yaml", "before");
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  const std::string link = folder.path("link"), next = folder.path("next"),
                    other = folder.path("other"), dangling = folder.path("dangling");
  std::filesystem::create_symlink("file.yaml", link);
  std::filesystem::create_symlink(link, next);
  std::filesystem::create_hard_link(file, other);
  std::filesystem::create_symlink("made.yaml", dangling);
  for (const std::string& name : {next, dangling}) {
    EXPECT_EQ(tilewright_command(plan_into(name)).status, 0);
    EXPECT_TRUE(std::filesystem::is_symlink(name)) << name;
    EXPECT_THAT(slurp(name), HasSubstr("kernels"));
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_regular_file(folder.path("made.yaml")));
  EXPECT_TRUE(std::filesystem::equivalent(file, other));
  EXPECT_THAT(slurp(other), HasSubstr("kernels"));
  std::filesystem::remove(other);
  EXPECT_EQ(tilewright_command(plan_into(file)).status, 0);
  struct stat now = {};
  ASSERT_EQ(::stat(file.c_str(), &now), 0);
  EXPECT_EQ(now.st_mode & 07777, 0640U);
  EXPECT_EQ(folder.names().size(), 5U);  // nothing half-written
}

TEST(Output, PipesAndDevicesAreWrittenThrough) {
  const Folder folder;
  for (const Arguments& verb :
       {plan_into(""),
        Arguments{"simulate", kChain, "-m", "cache:4K/8", "--model", "chimera", "--csv", ""},
        Arguments{"simulate", kChain, "-m", "cache:4K/8", "--model", "chimera", "--save-trace",
                  ""}}) {
    const std::string pipe = folder.path("pipe");
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::string got;
    std::thread reader([&] { got = slurp(pipe); });
    Arguments arguments = verb;
    arguments.back() = pipe;
    const Outcome o = tilewright_command(arguments);
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_TRUE(std::filesystem::is_fifo(pipe)) << line_of(arguments);
    // A reader of a pipe that nobody opens would wait for ever; so would one of a pipe that stays
    // open.
    if (const int wake = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK); wake >= 0) ::close(wake);
    reader.join();
    EXPECT_GT(got.size(), 80U) << line_of(arguments);
    std::filesystem::remove_all(pipe);
  }
  // A device of our own, where we may make one: the number of /dev/null.
  const std::string device = folder.path("null");
  if (::mknod(device.c_str(), S_IFCHR | 0666, ::makedev(1, 3)) != 0) return;
  const Outcome o = tilewright_command(plan_into(device));
  EXPECT_TRUE(std::filesystem::is_character_file(device));
  EXPECT_TRUE(o.status == 0 || o.status == 2) << o.err;  // 2: a folder mounted without devices
}

TEST(Output, StandardOutputHasAName) {
  const Outcome o = tilewright_command(plan_into("/dev/stdout"));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("kernels:"));  // the plan, and then the table
  EXPECT_THAT(o.out, HasSubstr("volume"));
}

TEST(Output, ThatCannotBeWrittenIsSaid) {
  const Folder folder;
  EXPECT_EQ(tilewright_command(plan_into(folder.path("no/such"))).status, 2);
  if (!std::filesystem::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const Outcome into = tilewright_command(plan_into("/dev/full"));
  EXPECT_EQ(into.status, 2);
  EXPECT_EQ(into.lines_of_err(), 1) << into.err;
  const Outcome trace =
      tilewright_command({"simulate", kChain, "-m", "cache:4K/8", "--save-trace", "/dev/full"});
  EXPECT_EQ(trace.status, 2);
  EXPECT_THAT(trace.err, HasSubstr("--save-trace: /dev/full"));
  for (const Arguments& arguments :
       {Arguments{"models"}, Arguments{"--help"}, Arguments{"--version"},
        Arguments{"plan", "--help"}, Arguments{"plan", kChain, "-m", "scratchpad:4K", "--json"}}) {
    const Outcome o = tilewright_command(arguments, {}, "/dev/full");
    EXPECT_EQ(o.status, 2) << line_of(arguments);
    EXPECT_EQ(o.lines_of_err(), 1) << o.err;
    EXPECT_THAT(o.err, HasSubstr("standard output"));
  }
}

TEST(Output, OfManyThreadsIsOneOfThem) {
  const Folder folder;
  const std::string path = folder.path("file");
  std::vector<std::thread> threads;
  for (char c = 'a'; c < 'i'; ++c)
    threads.emplace_back([&, c] {
      for (int i = 0; i < 40; ++i) harness::write_file(path, std::string(10000, c), "-o");
    });
  for (std::thread& t : threads) t.join();
  const std::string text = slurp(path);
  ASSERT_EQ(text.size(), 10000U);
  EXPECT_EQ(text, std::string(10000, text.front()));
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(Output, AnInterruptLeavesNothing) {
  const Folder folder, tools;
  const std::string compiler = tools.write("compiler", "#!/bin/sh\nexec sleep 5\n");
  ASSERT_EQ(::chmod(compiler.c_str(), 0700), 0);
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("TMPDIR", folder.path("").c_str(), 1);
      ::setenv("CXX", compiler.c_str(), 1);
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, 1), ::dup2(null, 2);
      const std::string command = test::in_build("tilewright");
      ::execl(command.c_str(), command.c_str(), "run", kChain, "-m", "host", "--model", "chimera",
              nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 500 && folder.names().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(folder.names().empty());
    ::kill(child, signal);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_TRUE(folder.names().empty()) << folder.names().front();
  }
}

}  // namespace
}  // namespace tilewright::test
