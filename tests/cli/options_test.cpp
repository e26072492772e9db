// Options of models on the command line: every verb that plans takes those of the model asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace tilewright::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kChain = "gemm-chain:m=64,n=32,k=32,l=64";

json document(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const auto done = tilewright_command(arguments);
  EXPECT_EQ(done.status, 0) << done.err;
  return json::parse(done.out, nullptr, false);
}

std::string error_of(const std::vector<std::string>& arguments) {
  const auto done = tilewright_command(arguments);
  EXPECT_EQ(done.status, 2) << done.out;
  return done.err;
}

TEST(ModelOptions, EveryVerbThatPlansTakesThem) {
  const json plan =
      document({"plan", kChain, "-m", "a100", "--model", "mcfuser", "--expression", "mnlk"});
  EXPECT_EQ(plan["expression"], "mnlk");
  EXPECT_EQ(plan["candidates"]["after"].contains("rule1"), true);
  const json run = document({"run", kChain, "-m", "a100", "--model", "mcfuser", "--expression",
                             "mnlk", "--target", "cpu", "--isa", "generic", "--seconds", "0"});
  EXPECT_EQ(run["verified"], true);
  for (const char* verb :
       {"explain", "plan", "predict", "compare", "simulate", "emit", "run", "measure", "validate"})
    for (const char* option : {"--reading", "--slack", "--beam", "--published", "--ours"})
      EXPECT_THAT(tilewright_command({verb, "--help", "all"}).out, HasSubstr(option)) << verb;
}

// What is planned is what runs: the expression with the tiles that plan shows.
TEST(ModelOptions, ExpressionWithoutTilesHasItsBestEverywhere) {
  const std::vector<std::string> of = {kChain,    "-m",           "a100", "--model",
                                       "mcfuser", "--expression", "lmnk"};
  const auto with = [&of](std::vector<std::string> verb) {
    verb.insert(verb.end(), of.begin(), of.end());
    return document(verb);
  };
  const json plan = with({"plan"}), price = with({"predict"}), shown = with({"explain"});
  EXPECT_EQ(price["seconds"], plan["seconds"]);
  EXPECT_EQ(shown["shown"]["tiles"], plan["expression_tiles"]);
  EXPECT_EQ(shown["shown"]["tree"], plan["plan"]["kernels"][0]["tree"]);
}

TEST(ModelOptions, OfAnotherModelAreRefusedByName) {
  const std::string error =
      error_of({"plan", kChain, "-m", "a100", "--model", "mcfuser", "--reading", "literal"});
  EXPECT_THAT(
      error,
      HasSubstr("model mcfuser: --reading is not one of its options; accepted: --expression"));
  // Without --model: the only model that has the option; of several, none is guessed.
  EXPECT_THAT(
      error_of({"plan", kChain, "-m", "a100", "--slack", "2"}),
      HasSubstr("--slack is an option of several models, and none is named; accepted: --model "
                "mcfuser or --model mcfuser-chimera"));
  EXPECT_EQ(document({"plan", kChain, "-m", "a100", "--min-tile", "2"})["model"], "chimera");
  EXPECT_EQ(document({"plan", kChain, "-m", "a100", "--why"})["model"], "tilewright");
  EXPECT_THAT(error_of({"predict", kChain, "-m", "a100", "--model", "exact", "--order", "mlkn",
                        "--slack", "2"}),
              HasSubstr("model exact, chimera: --slack"));
  EXPECT_THAT(error_of({"run", kChain, "-m", "a100", "--model", "bounds", "--beam", "3"}),
              HasSubstr("model bounds: --beam is not one of its options; accepted: none"));
  EXPECT_THAT(error_of({"plan", kChain, "-m", "a100", "--slac", "2"}),
              HasSubstr("nearest --slack"));
}

// An option of the model that made the plan, beside another that prices it.
TEST(ModelOptions, OfTheModelThatSaysThePlan) {
  const auto volume = [](const char* reading) {
    return document({"predict", kChain, "-m", "a100", "--model", "exact", "--order", "mlnk",
                     "--reading", reading})["memory"];
  };
  EXPECT_NE(volume("observed"), nullptr);
  EXPECT_NE(volume("literal"), nullptr);
}

TEST(ModelOptions, GoToEachModelOfCompareThatHasThem) {
  const json j = document({"compare", kChain, "-m", "a100", "--models", "chimera,mcfuser",
                           "--hoist", "block", "--reading", "literal"});
  ASSERT_EQ(j["plans"].size(), 2u);
  EXPECT_THAT(
      error_of({"compare", kChain, "-m", "a100", "--models", "chimera", "--hoist", "block"}),
      HasSubstr("model chimera: --hoist"));
}

TEST(ModelOptions, PublishedAndOurs) {
  const auto options = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "plan", "layernorm:rows=64,cols=256", "-m", "h200", "--model", "fusionstitching"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return document(arguments)["options"];
  };
  const json plain = options({}), ours = options({"--ours"}), published = options({"--published"});
  EXPECT_FALSE(plain.contains("defaults"));
  EXPECT_EQ(ours["defaults"], "ours");
  EXPECT_EQ(published["defaults"], "published");
  EXPECT_EQ(ours["beam"], 8);
  EXPECT_EQ(published["beam"], 3);
  EXPECT_EQ(published["last_step"], "select");
  EXPECT_EQ(options({"--published", "--beam", "5"})["beam"], 5);
  EXPECT_EQ(options({"--published", "--stitch", "beam=5"})["beam"], 5);
  EXPECT_THAT(error_of({"plan", kChain, "-m", "a100", "--ours", "--published"}),
              HasSubstr("one of them"));
}

TEST(ModelOptions, StandUnderTheirModelInHelp) {
  const std::string help = tilewright_command({"run", "--help", "all"}).out;
  const std::size_t own = help.find("--target"), model = help.find("Options of mcfuser");
  ASSERT_NE(model, std::string::npos);
  EXPECT_LT(own, model);
  EXPECT_LT(model, help.find("--slack"));
  EXPECT_THAT(help, HasSubstr("(default 1.2)"));
  const std::string own_alone = tilewright_command({"run", "--help"}).out;
  EXPECT_THAT(own_alone, AllOf(HasSubstr("--target"), HasSubstr("\n  mcfuser, "), HasSubstr("\n  target cpu\n"),
                               Not(HasSubstr("--slack")), Not(HasSubstr("--isa"))));
  for (const std::vector<std::string>& asked : std::vector<std::vector<std::string>>{
           {"run", "--help", "mcfuser"}, {"run", kChain, "--model", "mcfuser,chimera", "--help"}})
    EXPECT_THAT(tilewright_command(asked).out,
                AllOf(HasSubstr("--slack"), Not(HasSubstr("--beam")), Not(HasSubstr("--isa"))));
  EXPECT_THAT(tilewright_command({"help", "run", "cpu"}).out,
              AllOf(HasSubstr("--isa"), Not(HasSubstr("--slack"))));
  EXPECT_THAT(tilewright_command({"machines", "--help"}).out, Not(HasSubstr("--slack")));
}

TEST(Help, ANameThatIsNoneIsAnError) {
  for (const std::vector<std::string>& asked : std::vector<std::vector<std::string>>{
           {"plan", "--help", "mcfusor"}, {"help", "plan", "mcfusor"}, {"plan", "-h", "cpu,mcfusor"}}) {
    const Outcome said = tilewright_command(asked);
    EXPECT_EQ(said.status, 2);
    EXPECT_EQ(said.out, "");
    EXPECT_EQ(said.lines_of_err(), 1);
    EXPECT_THAT(said.err, HasSubstr("--help: mcfusor is not a model or a target; accepted: nearest mcfuser"));
  }
  // A model without options of its own is a name, too, and so is every target.
  for (const char* name : {"exact", "cuda-emulated", "all"})
    EXPECT_EQ(tilewright_command({"machines", "--help", name}).status, 0) << name;
}

TEST(Machines, OneAsAFileToStartFrom) {
  const json said = document({"machines", "h200"});
  const Outcome text = tilewright_command({"machines", "h200"});
  ASSERT_EQ(text.status, 0);
  EXPECT_EQ(text.out, said["file"].get<std::string>());
  const Folder folder;
  const std::string path = folder.write("mine.yaml", text.out);
  const auto moved = [&](const std::string& machine) {
    std::vector<std::string> words{"plan", kChain, "-m", machine, "--model", "chimera"};
    return document(words)["exact_bytes"];
  };
  EXPECT_EQ(moved(path), moved("h200"));
  const Outcome none = tilewright_command({"machines", "h20"});
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.lines_of_err(), 1);
  EXPECT_THAT(none.err, HasSubstr("h200"));
}

TEST(Validate, ItsTableExplainsAPoorR2) {
  const Outcome said = tilewright_command({"validate", "gemm-chain:m=256,n=32,k=32,l=256", "-m",
                                           "cache:16K/8,256K/16", "--orders", "mlkn", "--samples", "20"});
  ASSERT_EQ(said.status, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("R2 about y=x"), HasSubstr("mean error"),
                              HasSubstr("touched in one iteration, of the capacity"),
                              HasSubstr("the cache keeps")));
}

TEST(Doctor, NamesEveryTargetAndMeterAndWhatToTry) {
  const json said = document({"doctor"});
  std::map<std::string, int> kinds;
  for (const json& p : said["parts"]) {
    ++kinds[p["kind"]];
    EXPECT_EQ(p["usable"].get<bool>(), p["reason"].is_null()) << p;
  }
  const json targets = document({"targets"}), meters = document({"meters"});
  EXPECT_EQ(kinds["target"], static_cast<int>(targets["targets"].size()));
  EXPECT_EQ(kinds["meter"], static_cast<int>(meters["meters"].size()));
  EXPECT_FALSE(said["next"].empty());
  EXPECT_THAT(tilewright_command({"doctor"}).out, HasSubstr("try next\n  tilewright compare"));
}

/// What bash completes of a line, by the script that the command prints.
std::string completed(const std::string& words) {
  const Folder folder;
  const std::string script = folder.write(
      "complete.bash", tilewright_command({"--completion", "bash"}).out + "COMP_WORDS=(" + words +
                           ")\nCOMP_CWORD=$((${#COMP_WORDS[@]}-1))\n_tilewright\n"
                           "echo \"${COMPREPLY[*]}\"\n");
  FILE* shell = ::popen(("bash '" + script + "'").c_str(), "r");
  std::string out;
  for (int c = std::fgetc(shell); c != EOF; c = std::fgetc(shell)) out += static_cast<char>(c);
  EXPECT_EQ(::pclose(shell), 0) << out;
  return out;
}

TEST(Completion, OfVerbsOptionsAndNames) {
  EXPECT_EQ(completed("tilewright pl"), "plan\n");
  EXPECT_EQ(completed("tilewright plan gemm-ch"), "gemm-chain gemm-chain3\n");
  EXPECT_EQ(completed("tilewright plan gemm -m h2"), "h200\n");
  EXPECT_THAT(completed("tilewright plan gemm --mod"), HasSubstr("--model"));
  EXPECT_THAT(completed("tilewright plan gemm --model mcf"), HasSubstr("mcfuser-chimera"));
  EXPECT_EQ(completed("tilewright plan gemm --hoist sc"), "scope\n");
  EXPECT_THAT(
      tilewright_command({"--completion", "fish"}).out,
      HasSubstr("complete -c tilewright -n '__fish_seen_subcommand_from plan' -l machine -s m"));
  EXPECT_EQ(
      error_of({"--completion", "tcsh"}),
      "tilewright: --completion: tcsh is not a shell with a completion script; accepted: bash, "
      "zsh, fish\n");
  EXPECT_THAT(error_of({"--completion"}), HasSubstr("accepted: bash, zsh, fish"));
}

TEST(ManualPage, HasEveryVerbAndNoStrayControlLine) {
  const std::string page = tilewright_command({"--manual"}).out;
  EXPECT_THAT(page, HasSubstr(".SH calibrate\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-m, \\-\\-machine\\fR"));
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || (line[0] != '.' && line[0] != '\'')) continue;
    EXPECT_TRUE(line.starts_with(".SH ") || line.starts_with(".TH ") || line.starts_with(".B ") ||
                line.starts_with(".I ") || line == ".TP" || line == ".PP")
        << line;
  }
}

}  // namespace
}  // namespace tilewright::test
