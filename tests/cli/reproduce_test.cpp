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
#include "tests/cli/document.h"
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

TEST(Command, ReproducesBounds) {
  const Folder folder;
  const json gemm = document({"reproduce", "bounds/gemm4096", "--out", folder.path("gemm")});
  EXPECT_TRUE(gemm["holds"]);
  for (const json& row : gemm["measured"]) {
    EXPECT_GE(row["measured_bytes"], row["attainable_bytes"]);
    EXPECT_GE(row["attainable_bytes"], row["proven_bytes"]);
    EXPECT_EQ(row["attainable_dividing_bytes"], row["paper_bound_bytes"]);
  }
  EXPECT_EQ(gemm["measured"].size(), 8);
  const json chain = document({"reproduce", "bounds/chain-32k", "--out", folder.path("chain")});
  EXPECT_TRUE(chain["holds"]);
  EXPECT_EQ(chain["minimum"]["fused"]["buffer_bytes"], 2 * (16385 * 8192 + 1));
}

// "rows" of these files are a number: how many rows an activation has.
TEST(Command, ReproducesTablesInUnits) {
  const Folder folder;
  for (const char* id : {"souffle/table1", "souffle/table5"})
    EXPECT_TRUE(document({"reproduce", id, "--out", folder.path("out")})["holds"]) << id;
}

TEST(Command, ReproducesTables) {
  const Folder folder;
  for (const char* id : {"chimera/table3", "chimera/fig2"}) {
    const json j = document({"reproduce", id, "--out", folder.path("out")});
    EXPECT_TRUE(j["holds"]) << j["reason"];
    EXPECT_FALSE(j["rows"].empty());
    for (const char* file : {"out/report.md", "out/result.json", "out/points.csv"})
      EXPECT_TRUE(std::filesystem::exists(folder.path(file))) << file;
  }
}

TEST(Command, ReproducesMcfusersTables) {
  const Folder folder;
  for (const char* id : {"mcfuser/fig2", "mcfuser/fig7", "mcfuser/table1", "mcfuser/table2",
                         "mcfuser/table3", "mcfuser/table4", "mcfuser/compare"}) {
    const json j = document({"reproduce", id, "--out", folder.path("out")});
    EXPECT_TRUE(j["holds"]) << j["reason"];
    EXPECT_FALSE(j["table"].empty());
    for (const json& row : j["table"]) EXPECT_EQ(row.size(), j["columns"].size()) << row;
  }
}

TEST(Command, CountsFlashFusersSpaceByReading) {
  const Folder folder;
  const json j = document({"reproduce", "flashfuser/table3", "--out", folder.path("out")});
  EXPECT_TRUE(j["holds"]) << j["reason"];
  // By hand: 41 schedules, 5^4 cluster sizes; 16 x 1024 x 256 x 256 tiles, of which 5 x 11 x 9 x 9
  // divide.
  EXPECT_EQ(j["compared"][0]["ours"], 41. * 625 * 16 * 1024 * 256 * 256);
  EXPECT_EQ(j["compared"][1]["ours"], 41. * 625 * 5 * 11 * 9 * 9);
  // 140 cluster sizes: of each k (15, 10, 6, 3, 1 pairs of m and n), as many l as are no smaller.
  EXPECT_EQ(j["compared"][2]["ours"], 41. * (15 * 5 + 10 * 4 + 6 * 3 + 3 * 2 + 1) * 4455);
  EXPECT_EQ(j["compared"][3]["ours"], 26. * 140 * 4455);
  EXPECT_EQ(j["compared"][4]["ours"], 16. * 140 * 4455);
}

TEST(Command, ReproducesFig8InSmall) {
  const Folder folder;
  const Outcome o = tilewright_command(
      {"reproduce", "chimera/fig8d", "--out", folder.path("out"), "--samples", "2", "--json"});
  const json j = json::parse(o.out);
  EXPECT_EQ(j["validation"]["asked"], 2);
}

/// A folder as the artifact's: every kernel counted as `l1` and `l2` misses.
void write_counts(const Folder& folder, const json& kernels, const char* l1, const char* l2) {
  std::string papi = "KERNEL ACCESS L1_MISS L2_MISS L1_CI_LOW L1_CI_HIGH L2_CI_LOW L2_CI_HIGH\n";
  std::string dinero = "KERNEL ACCESS L1_MISS L2_MISS\n";
  for (const json& k : kernels) {
    const std::string start = k.get<std::string>() + " -1 " + l1 + " " + l2;
    papi += start + " 1 9223372036854775806 1 2000\n";
    dinero += start + "\n";
  }
  folder.write("papi-small-o2.csv", papi);
  folder.write("dinero-small-l1-l2.csv", dinero);
}

const json kPolybench = {"2mm",
                         "3mm",
                         "adi",
                         "atax",
                         "bicg",
                         "cholesky",
                         "correlation",
                         "covariance",
                         "deriche",
                         "doitgen",
                         "durbin",
                         "fdtd-2d",
                         "floyd-warshall",
                         "gemm",
                         "gemver",
                         "gesummv",
                         "gramschmidt",
                         "heat-3d",
                         "jacobi-1d",
                         "jacobi-2d",
                         "lu",
                         "ludcmp",
                         "mvt",
                         "nussinov",
                         "seidel-2d",
                         "symm",
                         "syr2k",
                         "syrk",
                         "trisolv",
                         "trmm"};

TEST(Command, ReproducesCountedMisses) {
  const Folder folder;
  write_counts(folder, kPolybench, "10000", "0");
  const Arguments arguments{"reproduce", "validation/polybench", "--size", "small",
                            "--data",    folder.path(""),        "--out",  folder.path("out")};
  const json j = document(arguments);
  EXPECT_TRUE(j["holds"]);
  ASSERT_EQ(j["kernels"].size(), 30u);
  EXPECT_EQ(j["by"], (json{"simulated", "no-walks", "lru", "dinero"}));
  const json& gemm = j["kernels"][13];
  EXPECT_EQ(gemm["kernel"], "gemm");
  EXPECT_EQ(gemm["accesses"], 60 * 70 * 2 + 60 * 70 * 80 * 4);
  EXPECT_EQ(gemm["L1"]["lru"], 43125);  // Dinero IV's count of the compiled kernel
  EXPECT_EQ(gemm["L2"]["lru"], 1825);
  EXPECT_NEAR(gemm["L1"]["error"]["lru"].get<double>(), 3.3125, 1e-12);
  EXPECT_EQ(gemm["L1"]["error"]["dinero"], 0);
  EXPECT_EQ(gemm["L2"]["error"]["lru"], 1);
  EXPECT_TRUE(gemm["L1"]["ci_high"].is_null());
  EXPECT_EQ(gemm["L2"]["ci_high"], 2000);
  EXPECT_EQ(j["errors"]["L1"]["dinero"]["median"], 0);
  EXPECT_EQ(j["errors"]["L1"]["simulated"]["kernels"], 30);
  // The chains of GEMMs walked as plans: the same loops, but for the order in which one step's
  // elements are touched and where arrays begin.
  ASSERT_EQ(j["plans"].size(), 2u);
  for (const json& plan : j["plans"]) {
    EXPECT_EQ(plan["L1"]["recorded"],
              j["kernels"][plan["kernel"] == "2mm" ? 0 : 1]["L1"]["no-walks"]);
    EXPECT_NEAR(plan["L1"]["difference"].get<double>(), 0, 0.01);
    EXPECT_NEAR(plan["L2"]["difference"].get<double>(), 0, 0.01);
    EXPECT_GT(plan["L1"]["misses"], 5000);
  }
  for (const char* file : {"out/report.md", "out/result.json", "out/points.csv"})
    EXPECT_TRUE(std::filesystem::exists(folder.path(file))) << file;
  Arguments one = arguments;
  one.insert(one.end(), {"--threads", "1"});
  EXPECT_EQ(document(one), j);
  const Outcome table = tilewright_command(arguments);
  EXPECT_THAT(table.out, HasSubstr("median of the absolute"));
}

TEST(Command, CountedMissesThatAreNotThereOrWrong) {
  const Folder folder;
  Arguments arguments{"reproduce", "validation/polybench", "--size", "small",
                      "--data",    folder.path("none"),    "--out",  folder.path("out")};
  const json j = document(arguments, 3);
  EXPECT_THAT(j["reason"].get<std::string>(), HasSubstr("--data DIR"));
  const Outcome text = tilewright_command(arguments);
  EXPECT_EQ(text.status, 3);
  EXPECT_EQ(text.lines_of_err(), 1);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));

  arguments[5] = folder.path("");
  const auto refused = [&](const char* what) {
    const Outcome o = tilewright_command(arguments);
    EXPECT_EQ(o.status, 2);
    EXPECT_EQ(o.lines_of_err(), 1);
    EXPECT_THAT(o.err, HasSubstr(what));
  };
  write_counts(folder, kPolybench, "many", "0");
  refused("papi-small-o2.csv:2");
  write_counts(folder, {"gemm"}, "1", "1");
  refused("2mm");
  folder.write("papi-small-o2.csv", "kernels\n");
  refused("papi-small-o2.csv:1");
}

}  // namespace
}  // namespace tilewright::test
