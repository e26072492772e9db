// reproduce as its users run it: what is listed, killed and gone on with, several at once.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "tests/cli/command.h"
#include "tests/support/places.h"

namespace tilewright::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json answer(std::vector<std::string> arguments, int status = 0) {
  arguments.emplace_back("--json");
  const Outcome o = tilewright_command(arguments);
  EXPECT_EQ(o.status, status) << o.err;
  return json::parse(o.out);
}

TEST(Experiments, EveryTableAndResultsFigureHasAnEntryWithItsStatus) {
  std::map<std::string, json> by_id;
  const json listed = answer({"experiments"});
  for (const json& e : listed["experiments"]) by_id[e["id"]] = e;
  for (const char* id : {"chimera/table1",       "chimera/table2",         "chimera/table3",
                         "chimera/table4",       "chimera/table5",         "chimera/fig2",
                         "chimera/fig5",         "chimera/fig6",           "chimera/fig7",
                         "chimera/fig8",         "chimera/fig9",           "chimera/fig10",
                         "mcfuser/table1",       "mcfuser/table2",         "mcfuser/table3",
                         "mcfuser/table4",       "mcfuser/fig2",           "mcfuser/fig7",
                         "mcfuser/fig8",         "mcfuser/fig9",           "mcfuser/fig10",
                         "mcfuser/fig11",        "fusionstitching/table1", "fusionstitching/table2",
                         "fusionstitching/fig1", "fusionstitching/fig7",   "flashfuser/table3",
                         "flashfuser/speedups"})
    EXPECT_TRUE(by_id.contains(id)) << id;
  const std::set<std::string> statuses{"analysis", "simulation", "recorded", "measurement",
                                       "needs"};
  for (const auto& [id, e] : by_id) {
    EXPECT_TRUE(statuses.contains(e["status"])) << id;
    EXPECT_EQ(e["available"].get<bool>(), e["reason"].is_null()) << id;
    if (e["status"] != "needs") continue;
    EXPECT_FALSE(e["available"].get<bool>()) << id;
    EXPECT_FALSE(e["needs"].get<std::string>().empty()) << id;
  }
}

TEST(Experiments, WhatIsNotReproducedSaysWhatItWouldNeed) {
  const Folder folder;
  const json j = answer({"reproduce", "mcfuser/fig9", "--out", folder.path("out")}, 3);
  EXPECT_THAT(j["reason"].get<std::string>(), HasSubstr("whole networks"));
  EXPECT_EQ(j["paper_numbers"].size(), 2u);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
}

TEST(Experiments, AReportSaysOursThePapersAndWhy) {
  const Folder folder;
  const json j = answer({"reproduce", "mcfuser/fig2", "--out", folder.path("out")});
  ASSERT_EQ(j["compared"].size(), 2u);
  for (const json& c : j["compared"]) {
    EXPECT_NEAR(c["ours"].get<double>(), c["paper"].get<double>(), 1);
    EXPECT_THAT(c["ours_source"].get<std::string>(), HasSubstr("predicted"));
    EXPECT_THAT(c["paper_source"].get<std::string>(), HasSubstr("MCFuser"));
  }
  std::ostringstream report;
  report << std::ifstream(folder.path("out/report.md")).rdbuf();
  for (const char* part : {"(analysis)", "## Ours beside the paper's",
                           "Why they differ: ", "Not reproduced here: it would need ", "figure.svg",
                           "Every condition of the experiment holds."})
    EXPECT_THAT(report.str(), HasSubstr(part));
  EXPECT_TRUE(std::filesystem::exists(folder.path("out/figure.svg")));
}

TEST(Experiments, SeveralLeaveAnIndexAndAreNotRepeated) {
  const Folder folder;
  const std::vector<std::string> arguments{"reproduce", "mcfuser/fig2,mcfuser/fig9,chimera/table1",
                                           "--out", folder.path("out")};
  const json first = answer(arguments);
  ASSERT_EQ(first["experiments"].size(), 3u);
  EXPECT_EQ(first["hold"], 2);
  EXPECT_EQ(first["not_available"], 1);
  EXPECT_EQ(first["already_there"], 0);
  const auto written =
      std::filesystem::last_write_time(folder.path("out/mcfuser/fig2/result.json"));
  const json second = answer(arguments);
  EXPECT_EQ(second["already_there"], 2);
  EXPECT_EQ(std::filesystem::last_write_time(folder.path("out/mcfuser/fig2/result.json")), written);
  EXPECT_EQ(json::parse(std::ifstream(folder.path("out/index.json")))["already_there"], 2);
  // Alone, it is asked for and made again.
  answer({"reproduce", "mcfuser/fig2", "--out", folder.path("out/mcfuser/fig2")});
  EXPECT_NE(std::filesystem::last_write_time(folder.path("out/mcfuser/fig2/result.json")), written);
  for (const auto& [wrong, says] : {std::pair<std::vector<std::string>, const char*>{
                                        {"reproduce", "--all", "mcfuser/fig2"}, "--all"},
                                    {{"reproduce", "mcfuser", "--size", "small"}, "--size"},
                                    {{"reproduce", "mcfuser/fig2,chimera/fig77"}, "chimera/fig77"},
                                    {{"reproduce"}, "ID"}}) {
    const Outcome o = tilewright_command(wrong);
    EXPECT_EQ(o.status, 2);
    EXPECT_EQ(o.lines_of_err(), 1);
    EXPECT_THAT(o.err, HasSubstr(says));
  }
}

/// Starts the command and leaves it running.
pid_t started(std::vector<std::string> arguments) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, 1);
  ::dup2(null, 2);
  std::string program = test::in_build("tilewright");
  std::vector<char*> argv{program.data()};
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

using Journals = std::map<std::string, std::vector<std::string>>;

/// The whole lines of every journal below a folder.
Journals journals_in(const std::string& folder) {
  Journals journals;
  if (!std::filesystem::exists(folder)) return journals;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().filename() != "journal.jsonl") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    auto& lines = journals[std::filesystem::relative(entry.path(), folder)];
    std::istringstream in(text.str().substr(0, text.str().rfind('\n') + 1));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
  return journals;
}

std::size_t lines_of(const Journals& journals) {
  std::size_t n = 0;
  for (const auto& [name, lines] : journals) n += lines.size();
  return n;
}

/// Nothing that was finished is gone or was done again: every journal only grew.
void expect_grown(const Journals& before, const Journals& after) {
  for (const auto& [name, lines] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    const auto& now = after.at(name);
    ASSERT_GE(now.size(), lines.size()) << name;
    EXPECT_TRUE(std::equal(lines.begin(), lines.end(), now.begin())) << name;
  }
}

void expect_once_each(const Journals& journals) {
  for (const auto& [name, lines] : journals) {
    std::set<std::string> points;
    for (const std::string& line : lines) {
      const json j = json::parse(line);
      if (j.contains("point")) {
        EXPECT_TRUE(points.insert(j["point"]).second) << name << " " << j["point"];
      }
    }
  }
}

TEST(Experiments, KilledAtAnyPointTheyGoOn) {
  const Folder folder;
  const std::string out = folder.path("out");
  const std::vector<std::string> arguments{
      "reproduce", "chimera/table3,chimera/fig8d,chimera/fig8f", "--samples", "6", "--threads",
      "2"};
  auto killed = arguments;
  killed.insert(killed.end(), {"--out", out});
  Journals before;
  // Killed once this many more points are there: at the first, and within experiments.
  for (const std::size_t more : {1, 3, 5, 6}) {
    const pid_t child = started(killed);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    int status = 0;
    while (lines_of(journals_in(out)) < lines_of(before) + more &&
           ::waitpid(child, &status, WNOHANG) == 0 && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    const Journals now = journals_in(out);
    EXPECT_GT(lines_of(now), lines_of(before));
    expect_grown(before, now);
    before = now;
  }
  const auto table3 = std::filesystem::last_write_time(out + "/chimera/table3/result.json");
  // A line that the kill tore is begun again, not believed.
  const std::string journal = out + "/chimera/fig8d/journal.jsonl";
  if (!std::filesystem::exists(out + "/chimera/fig8d/result.json"))
    std::ofstream(journal, std::ios::app) << "{\"point\": \"chim";
  // So few tilings need not reach the R² that must hold.
  killed.emplace_back("--json");
  const json done = json::parse(tilewright_command(killed).out);
  EXPECT_EQ(done["not_available"], 0);
  EXPECT_EQ(done["experiments"].size(), 3u);
  EXPECT_GE(done["already_there"], 1);
  EXPECT_EQ(std::filesystem::last_write_time(out + "/chimera/table3/result.json"), table3);
  const Journals all = journals_in(out);
  expect_grown(before, all);
  expect_once_each(all);

  auto whole = arguments;
  whole.insert(whole.end(), {"--out", folder.path("whole")});
  tilewright_command(whole);
  const auto validation = [](const std::string& path) {
    return json::parse(std::ifstream(path + "/chimera/fig8f/result.json"))["validation"];
  };
  EXPECT_EQ(validation(out), validation(folder.path("whole")));
}

}  // namespace
}  // namespace tilewright::test
