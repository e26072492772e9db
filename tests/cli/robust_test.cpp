// Does the command stand what is odd: statistics of nothing, workloads without rows, outputs that are no
// files? Each case ended in a wrong answer, an internal error or a signal once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

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
  const json j =
      document({"validate", "adam:size=32", "-m", "cache:4K/8", "--samples", "4", "--min-r2", "0"}, 3);
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

}  // namespace
}  // namespace tilewright::test
