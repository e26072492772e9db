// What every experiment has to keep: the paper's numbers stay out of ours, journals, pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <fstream>

#include "core/base/error.h"
#include "experiments/report/experiment.h"
#include "tests/support/places.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using Value = DocumentValue;

// ---- The paper's numbers
// --------------------------------------------------------------------------

bool is_others(const std::string& key) {
  return key.starts_with("paper") || key == "measured" || key == "must_hold";
}

/// Every number below is another one.
void change_numbers(Value& value) {
  for (Value& item : value.items) change_numbers(item);
  for (auto& entry : value.entries) change_numbers(entry.second);
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [at, error] = std::from_chars(value.text.data(), end, number);
  if (value.text.empty() || error != std::errc() || at != end) return;
  const bool whole = value.text.find_first_not_of("0123456789") == std::string::npos;
  value.text =
      whole ? std::to_string(static_cast<std::int64_t>(number) + 1) : std::to_string(number * 1.25);
}

int change_others(Value& value) {
  int changed = 0;
  for (auto& [key, entry] : value.entries) {
    if (is_others(key))
      change_numbers(entry), ++changed;
    else
      changed += change_others(entry);
  }
  for (Value& item : value.items) changed += change_others(item);
  return changed;
}

/// One small workload where there are many: the same code in a second.
void make_small(Value& value) {
  for (auto& [key, entry] : value.entries) {
    if (key == "workloads" && entry.items.size() > 1) {
      if (entry.items.size() > 9 && entry.items[9].text == "chimera/G10")
        entry.items[0] = entry.items[9];
      entry.items.resize(1);
    }
    if (key == "workload" && entry.text.find("2048") != std::string::npos)
      entry.text = "gemm-chain:m=96,n=96,k=96,l=96";
    if (key == "workload" && entry.text.starts_with("bert:")) entry.text += ",layers=1,seq=32";
    if (key == "workload" && entry.text.starts_with("lstm:")) entry.text += ",steps=4,layers=2";
    if (key == "candidates" || key == "samples") entry.text = "2";
    if (key == "points") entry.text = "1";
    if (key == "rows" && !entry.items.empty() && entry.items[0].entries[0].first == "n")
      entry.items.resize(2);
    if (key == "rows")
      std::erase_if(entry.items, [](const Value& row) {
        return std::ranges::any_of(row.entries, [](const auto& of) {
          return of.first == "workload" &&
                 (of.second.text == "resnext101" || of.second.text == "efficientnet-b0" ||
                  of.second.text == "swin-b");
        });
      });
    if (key == "ptxas_sample") entry.text = "0";
    make_small(entry);
  }
  for (Value& item : value.items) make_small(item);
}

Experiment with(const Experiment& e, Value document) {
  Experiment other = e;
  other.document = std::make_shared<const Value>(std::move(document));
  return other;
}

/// What is ours of a result: without the paper's numbers, what follows from both, and times of this
/// run.
void keep_ours(ordered_json& j) {
  if (j.is_object()) {
    for (const char* key : {"holds", "reason", "checked", "measured", "error", "agreement",
                            "search_seconds", "must_hold", "formula"})
      j.erase(key);
    std::vector<std::string> drop;
    for (const auto& [key, value] : j.items())
      if (key.find("paper") != std::string::npos || key.starts_with("measured"))
        drop.push_back(key);
    for (const std::string& key : drop) j.erase(key);
    if (j.contains("columns") && j.contains("table")) {
      const auto columns = j["columns"].get<std::vector<std::string>>();
      for (ordered_json& row : j["table"])
        for (std::size_t c = 0; c < columns.size(); ++c)
          for (const char* not_ours :
               {"paper", "the same here", " ms", "measured here", "removed here"})
            if (columns[c].find(not_ours) != std::string::npos) row[c] = nullptr;
    }
  }
  if (j.is_structured())
    for (ordered_json& item : j) keep_ours(item);
}

ordered_json ours_of(const Experiment& e) {
  Points points;
  const Request request;
  ReproduceOptions options;
  // Of counted graphs: the twelve small ones, one of which has lookups that are simulated.
  if (e.method == "graph-counters") options.samples = 12;
  if (method_of(e).files == recording_files) {
    options.data = test::in_sources("experiments/results");
    // What no GPU has recorded yet: the recordings that were made by hand for tests.
    if (missing(e, options)) options.data = test::in_sources("tests/harness/recordings");
  }
  const Reproduced done = method_of(e).run(e, {request, options, points});
  ordered_json ours = {{"result", done.result}};
  keep_ours(ours);
  for (const Compared& c : done.compared)
    if (c.ours && c.ours_source.find("clock") == std::string::npos)
      ours["compared"][c.what] = *c.ours;
  return ours;
}

/// By ID, of those that can be run here and are no collection of others.
std::vector<const Experiment*> runnable() {
  std::vector<const Experiment*> all;
  for (const Experiment& e : experiments())
    // "graph-search" and "ablation" have times only.
    if (e.method != "needs" && e.method != "panels" && e.method != "counters" &&
        e.method != "memory" && e.method != "graph-search" && e.method != "ablation")
      all.push_back(&e);
  return all;
}

class EveryExperiment : public ::testing::TestWithParam<const Experiment*> {};

TEST_P(EveryExperiment, TakesNoNumberFromThePaper) {
  const Experiment& e = *GetParam();
  Value small = *e.document;
  make_small(small);
  Value changed = small;
  if (change_others(changed) == 0) GTEST_SKIP() << "it has no number of a paper";
  ordered_json ours = ours_of(with(e, small));
  ordered_json theirs = ours_of(with(e, changed));
  // A row of the paper's that is found by its K is not found any more.
  for (const auto& [what, number] : ours["compared"].items())
    if (theirs["compared"].contains(what)) {
      EXPECT_EQ(number, theirs["compared"][what]) << what;
    }
  EXPECT_EQ(ours["result"], theirs["result"]);
}

INSTANTIATE_TEST_SUITE_P(All, EveryExperiment, ::testing::ValuesIn(runnable()),
                         [](const auto& info) {
                           std::string name = info.param->id;
                           for (char& c : name)
                             if (c == '/' || c == '-') c = '_';
                           return name;
                         });

/// Structures of figures whose numbers are ours, and recordings that are held to a bound.
TEST(Experiment, PowerFusionsFiguresHold) {
  for (const char* id :
       {"fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fragments", "graphs", "ranking"}) {
    const Experiment& e = find_experiment(std::string("powerfusion/") + id);
    Points points;
    const Request request;
    const ReproduceOptions options{.data = test::in_sources("experiments/results")};
    const Reproduced done = method_of(e).run(e, {request, options, points});
    EXPECT_TRUE(done.holds) << id << ": " << done.reason;
  }
}

TEST(Experiment, RefusesWhatItDoesNotKnow) {
  const std::string head = "id: a/b\ntitle: t\nsource: s\nabout: x\n";
  const auto refused = [&](const std::string& rest) {
    try {
      const Experiment e = read_experiment(head + rest, "a/b.yaml");
      document_of(e, {"workload"});
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused("method: formulas\nworkload: w\ndifference: d\n"), "");
  EXPECT_THAT(refused("method: formula\n"), HasSubstr("nearest: formulas"));
  EXPECT_THAT(refused("method: formulas\nwork: w\n"), HasSubstr("work"));
  EXPECT_THAT(refused("method: needs\n"), HasSubstr("needs"));
}

// ---- Journals
// -------------------------------------------------------------------------------------

TEST(Points, AreComputedOnceAndFoundAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/journal.jsonl";
  int computed = 0;
  const auto compute = [&computed] { return ordered_json{{"n", ++computed}}; };
  {
    Points points;
    points.open(path, "a", "f", false);
    EXPECT_EQ(points.once("a", "one", compute)["n"], 1);
    EXPECT_EQ(points.once("a", "one", compute)["n"], 1);
    EXPECT_EQ(points.once("a", "two", compute)["n"], 2);
    EXPECT_THROW(
        points.once("a", "bad", []() -> ordered_json { throw InputError({.where = "x"}); }),
        InputError);
    Points other;
    EXPECT_THROW(other.open(path, "a", "f", false), InputError);  // one process at a time
  }
  std::ofstream(path, std::ios::app) << "{\"point\": \"a|three\", \"val";  // torn
  {
    Points points;
    points.open(path, "a", "f", false);
    EXPECT_EQ(points.once("a", "two", compute)["n"], 2);
    EXPECT_EQ(points.once("a", "three", compute)["n"], 3);
    EXPECT_EQ(points.found(), 1);
  }
  {
    Points adopting;
    adopting.adopt(path, "a", "other");
    EXPECT_EQ(adopting.once("a", "one", compute)["n"], 4);
    adopting.adopt(path, "a", "f");
    EXPECT_EQ(adopting.once("a", "three", compute)["n"], 3);
  }
  Points anew;
  anew.open(path, "a", "another build", false);
  EXPECT_EQ(anew.once("a", "one", compute)["n"], 5);
}

TEST(Points, AFingerprintDependsOnWhatNumbersDependOn) {
  const Experiment& e = find_experiment("chimera/fig8d");
  const std::string usual = fingerprint_of(e, {});
  EXPECT_EQ(usual, fingerprint_of(e, {.id = "x", .out = "elsewhere"}));
  EXPECT_NE(usual, fingerprint_of(e, {.samples = 3}));
  Experiment edited = e;
  edited.text += "#";
  EXPECT_NE(usual, fingerprint_of(edited, {}));
  EXPECT_EQ(build_hash().size(), 16u);
  EXPECT_NE(build_hash(), hash_text(""));  // the code's file was found and read
}

// ---- Pictures
// -------------------------------------------------------------------------------------

TEST(Charts, HaveAMarkerAPointAndNoBareMarkup) {
  Chart chart{.title = "a < b & c", .identity = true};
  chart.series = {{.name = "s", .x = {1, 10, 0}, .y = {2, 20, 5}}};
  const std::string svg = to_svg(chart);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  std::size_t circles = 0;
  for (std::size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos; ++at) ++circles;
  EXPECT_EQ(circles, 3u);  // two that can be drawn, one in the legend
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  const Pair pairs[] = {{"gain", "38 %", "75 %", 38, 75}, {"loss", "-10 %", "-46 %", -10, -46}};
  const std::string bars = pairs_svg("t", pairs, "c");
  EXPECT_THAT(bars, HasSubstr("-46 %"));
  EXPECT_EQ(bars.find("width=\"-"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::harness
