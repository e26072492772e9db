// What was recorded on a GPU, read back: correlations, residuals and tables by hand-made recordings
// (recordings/, in which nothing was measured).
#include "harness/recorded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/base/toolchain.h"
#include "experiments/report/reproduce.h"
#include "harness/statistics.h"
#include "harness/verbs.h"
#include "tests/support/places.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFolder = test::in_sources("tests/harness/recordings");

ReproduceOptions of(const char* id, const TemporaryDirectory& out,
                    const std::string& data = kFolder) {
  return {.id = id, .out = out.path().string(), .data = data};
}

TEST(Correlation, OfValuesAndOfRanks) {
  const std::vector<double> x = {1, 2, 3, 4}, y = {1, 4, 9, 16}, ties = {1, 1, 2, 2};
  EXPECT_NEAR(correlation(x, y).value(), 0.9843740387, 1e-9);
  EXPECT_DOUBLE_EQ(rank_correlation(x, y).value(), 1);
  EXPECT_NEAR(rank_correlation(x, ties).value(), 0.894427191, 1e-9);
  EXPECT_DOUBLE_EQ(correlation(x, std::vector<double>{4, 3, 2, 1}).value(), -1);
  EXPECT_FALSE(correlation(x, std::vector<double>(4, 7.0)).has_value());
}

TEST(Recorded, TimesSayWhatTheFirstChoiceLoses) {
  const TemporaryDirectory out;
  const Answer answer = reproduce({}, of("mcfuser/fig11", out));
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  const ordered_json& g1 = answer.json["rows"]["mcfuser/G1"];
  EXPECT_DOUBLE_EQ(g1["pearson"], 0.5);
  EXPECT_DOUBLE_EQ(g1["first_choice_over_best"], 2);
  EXPECT_DOUBLE_EQ(g1["best_of_first_eight_over_best"], 1);
  EXPECT_DOUBLE_EQ(g1["paper_pearson"], 0.86);
  EXPECT_DOUBLE_EQ(answer.json["rows"]["mcfuser/G4"]["spearman"], 1);
}

TEST(Recorded, TrafficPartsChimerasBias) {
  const TemporaryDirectory out;
  const Answer answer = reproduce({}, of("chimera/fig8-gpu", out));
  // Every expression is judged, and of one tiling, as of ml(k,n), there is no R².
  EXPECT_FALSE(answer.ok());
  EXPECT_THAT(answer.json.dump(), HasSubstr("ml(k,n): exact's R² about y = x is not defined"));
  const ordered_json& said = answer.json["agreement"];
  EXPECT_EQ(said["exact"]["points"], 3);
  EXPECT_EQ(said["chimera"]["points"], 2);
  EXPECT_NEAR(said["residuals"]["edges"], 0.1, 1e-12);      // 20 % and none
  EXPECT_NEAR(said["residuals"]["retention"], 0.1, 1e-12);  // 10 % each
  EXPECT_NEAR(said["residuals"]["l2"], 0, 1e-12);
  EXPECT_NEAR(said["chimera_full_edges"]["bias"], 0.2, 1e-12);
  EXPECT_NEAR(said["groups"]["ml(k,n)"]["exact"]["bias"], 0.025, 1e-12);
  EXPECT_TRUE(said["groups"]["ml(k,n)"]["chimera"].is_null());
}

TEST(Recorded, KernelsThatMoveMoreForAKnownReasonStandApart) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "points.json").string();
  const auto point = [](const std::string& tiles, const std::string& more) {
    return R"({"name": "a", "expression": "mnlk", "tiles": ")" + tiles + "\"" + more +
           R"(, "predicted": {"exact": {"read_bytes": 1}}, "counted": {"all": {"metrics": )"
           R"({"l1tex__m_xbar2l1tex_read_bytes.sum": 1}}}})";
  };
  std::ofstream(path) << R"({"block": {"points": [)" << point("m=48,l=64,k=64,n=16", "") << ", "
                      << point("m=48,l=80,k=64,n=16", R"(, "spill_store_bytes": 0)") << ", "
                      << point("m=64,l=80,k=64,n=16", R"(, "spill_store_bytes": 8)") << "]}}";
  const DocumentValue value = read_recording(path, "--data");
  const auto points = counted_points(Field(value, path).at("block"), "all");
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(points[0].group, "mnlk");
  EXPECT_EQ(points[1].group, "mnlk");
  EXPECT_EQ(points[2].group, "mnlk, registers spill");
}

TEST(Recorded, MemoryIsSimulatedAgain) {
  const TemporaryDirectory out;
  const Answer answer = reproduce({}, of("validation/dram-gpu", out));
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  // A and B once each fit in the L2: 2 x 64 x 64 x 4 bytes from memory, C's lines apart.
  EXPECT_EQ(answer.json["cold"]["points"], 1);
  EXPECT_EQ(answer.json["table"][0][3], "0.03");
  EXPECT_GE(std::stod(answer.json["table"][0][5].get<std::string>()), 1);
  EXPECT_LE(std::stod(answer.json["table"][0][5].get<std::string>()), 1.5);
  EXPECT_THAT(answer.json["table"][1][8].get<std::string>(), HasSubstr("longer than asked for"));
}

TEST(Recorded, ValidateTakesTimesFromARecordingOnly) {
  Request request{.subject = "mcfuser/G1", .machine = "h200"};
  ValidateOptions options{.truth = "cuda-events"};
  EXPECT_FALSE(validate(request, options).ok());
  options.recorded = kFolder + "/h200-counters.json";
  const Answer answer = validate(request, options);
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_DOUBLE_EQ(answer.json["times"]["pearson"], 0.5);
  EXPECT_EQ(answer.json["points"].size(), 3U);
  request.model = "chimera";
  EXPECT_THROW(validate(request, options), InputError);
  request.model.reset(), request.subject = "mcfuser/G5";
  EXPECT_THROW(validate(request, options), InputError);
}

/// Blocks are told by what they hold, whatever experiment they were recorded for.
TEST(Recorded, BlocksAreFoundByTheirWorkload) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "recording.json").string();
  std::ofstream(path)
      << R"({"any": {"workload": "softmax", "points": [{"counted": 1}], "failed": []},
    "several": {"one": {"workload": "softmax", "points": [{"seconds_median": 2}], "failed": []},
                "two": {"workload": "layernorm", "points": [{"seconds_median": 3}], "failed": []}},
    "without": {"workload": "gelu", "points": [{"seconds_median": 4}]}, "device": {"name": "x"}})";
  const auto found = [&](const char* workload, const char* figure) {
    return recorded_block(path, workload, figure, "times")["points"][0][figure].get<int>();
  };
  EXPECT_EQ(found("softmax", "counted"), 1);
  EXPECT_EQ(found("softmax", "seconds_median"), 2);
  EXPECT_EQ(found("layernorm", "seconds_median"), 3);
  const auto said = [&](const char* workload, const char* figure) -> std::string {
    try {
      recorded_block(path, workload, figure, "times");
    } catch (const InputError& e) {
      return e.what();
    }
    return "nothing";
  };
  EXPECT_THAT(said("gelu", "seconds_median"),
              AllOf(HasSubstr("gelu is not a workload of this recording of times"),
                    HasSubstr("softmax, layernorm")));
  EXPECT_THAT(said("softmax", "registers"), HasSubstr("accepted: a recording of times"));
}

TEST(Recorded, SpeedupsHaveTheGeometricMean) {
  const TemporaryDirectory out;
  const Answer answer = reproduce({}, of("chimera/fig6", out));
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_DOUBLE_EQ(answer.json["means"]["chimera/G"]["geometric_mean"], 4);
  EXPECT_DOUBLE_EQ(answer.json["means"]["chimera/G"]["paper"], 2.77);
  // None of mcfuser's rows is in it.
  EXPECT_FALSE(reproduce({}, of("mcfuser/fig8", out)).ok());
}

TEST(Recorded, GraphsBesideOtherCompilers) {
  const TemporaryDirectory out;
  const Answer answer = reproduce({}, of("fusionstitching/graphs", out));
  EXPECT_FALSE(answer.ok());
  const ordered_json& means = answer.json["means"];
  // 2 and 1 times the kernels' time, 4 and 1 times the wall's; what was wrong does not count.
  EXPECT_NEAR(means["all"]["kernels_over_xla"]["geometric_mean"], std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(means["all"]["wall_over_xla"]["geometric_mean"], 2, 1e-12);
  EXPECT_NEAR(means["large"]["wall_over_best"]["geometric_mean"], 1.5, 1e-12);
  EXPECT_NEAR(means["small"]["wall_over_best"]["geometric_mean"], 0.5, 1e-12);
  EXPECT_NEAR(means["all"]["kernels_over_best"]["geometric_mean"], std::sqrt(0.6), 1e-12);
  EXPECT_EQ(means["all"]["wall_over_xla"]["rows"], 2);
  EXPECT_EQ(answer.json["table"].size(), 3U);
  EXPECT_EQ(answer.json["table"][2][2], "-");  // ours was not emitted
  // Ours by measurement is shown, and is in no mean.
  const ordered_json& softmax = answer.json["table"][1];
  ASSERT_GE(softmax.size(), 4U);
  EXPECT_EQ(ordered_json(std::vector(softmax.end() - 4, softmax.end())),
            ordered_json({"5.00", "4.00", "3", "1.2"}));
  EXPECT_THAT(answer.json["reason"].get<std::string>(),
              AllOf(HasSubstr("best of the others over ours: 0.87, below 0.95"),
                    Not(HasSubstr("kernel time"))));
}

TEST(Recorded, CountedGraphs) {
  const TemporaryDirectory out;
  const Answer answer = reproduce({}, of("fusionstitching/counters", out));
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  const ordered_json& memory = answer.json["memory"];
  EXPECT_EQ(memory["points"], 2);
  EXPECT_NEAR(memory["mape"], 20.0 / 1020 / 2, 1e-12);
  EXPECT_NEAR(memory["r2_identity"], 1 - 400.0 / (2 * 1990 * 1990), 1e-12);
  EXPECT_EQ(answer.json["into_sms"]["points"], 1);
  EXPECT_TRUE(answer.json["into_sms"]["r2_identity"].is_null());  // of one point
}

TEST(Recorded, OneKernelReadsWhatIsCompulsory) {
  const TemporaryDirectory out, data;
  std::ifstream from(kFolder + "/h200-graphs.json");
  ordered_json recording = ordered_json::parse(from);
  recording["counters"]["points"][0]["counted"]["all"]["metrics"]["dram__bytes_read.sum"] = 1060;
  const std::string folder = data.path().string();
  std::ofstream(folder + "/h200-graphs.json") << recording;
  const Answer answer = reproduce({}, of("fusionstitching/counters", out, folder.c_str()));
  EXPECT_FALSE(answer.ok());
  EXPECT_THAT(answer.json["reason"].get<std::string>(),
              HasSubstr("layernorm:rows=32768,cols=1024, one kernel"));
}

TEST(Recorded, RankedSchedules) {
  const TemporaryDirectory out;
  const Answer answer = reproduce({}, of("fusionstitching/ranking", out));
  // Ranks 1 2 3 against 1 3 2; three schedules are too few, and 0.5 is too little.
  EXPECT_DOUBLE_EQ(answer.json["graphs"]["layernorm"]["spearman"].get<double>(), 0.5);
  EXPECT_FALSE(answer.ok());
  EXPECT_THAT(answer.json["reason"].get<std::string>(),
              HasSubstr("3 schedules timed, fewer than 30"));
  EXPECT_THAT(answer.json["reason"].get<std::string>(),
              HasSubstr("rank correlation 0.500, below 0.8"));
}

TEST(Recorded, SchedulesTimedTwiceSayWhatNoiseLeaves) {
  const TemporaryDirectory out, data;
  std::ifstream from(kFolder + "/h200-ranking.json");
  ordered_json recording = ordered_json::parse(from);
  ordered_json points = ordered_json::array();
  for (int i = 1; i <= 30; ++i)
    points.push_back({{"predicted_seconds", 1e-6 * i},
                      {"seconds_median", 1e-6 * i},
                      {"seconds_layouts", {1e-6 * i, 1e-6 * (31 - i)}}});
  const ordered_json failed = ordered_json::array();
  ordered_json backwards = points;
  for (int i = 0; i < 30; ++i) backwards[i]["seconds_median"] = 1e-6 * (30 - i);
  recording["ranking"] = {
      {"gelu", {{"size", "small"}, {"points", points}, {"failed", failed}}},
      {"gelu middle", {{"size", "middle"}, {"points", backwards}, {"failed", failed}}}};
  for (const char* file : {"/h200-ranking.json", "/h200-ranking-held-out.json"})
    std::ofstream(data.path().string() + file) << recording;
  const std::string folder = data.path().string();
  const Answer answer = reproduce({}, of("fusionstitching/ranking", out, folder.c_str()));
  EXPECT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_DOUBLE_EQ(answer.json["graphs"]["gelu"]["spearman"].get<double>(), 1);
  EXPECT_THAT(answer.json["table"].dump(), HasSubstr("-1.000"));
  EXPECT_FALSE(answer.json["graphs"].contains("gelu middle"));
  const Answer held = reproduce({}, of("fusionstitching/ranking-held-out", out, folder.c_str()));
  EXPECT_FALSE(held.ok());
  EXPECT_DOUBLE_EQ(held.json["graphs"]["gelu middle"]["spearman"].get<double>(), -1);
}

/// Known by tree and threads, whatever rank they had.
TEST(Recorded, SchedulesArePredictedAgain) {
  const TemporaryDirectory out, data;
  Request request{.subject = "softmax:rows=4096,cols=768", .machine = "h200"};
  request.model = "fusionstitching";
  request.samples = 1000;
  const Answer said = explain(request);
  std::ifstream from(kFolder + "/h200-ranking.json");
  ordered_json recording = ordered_json::parse(from), points = ordered_json::array();
  for (const ordered_json& s : said.json["drawn"]) {
    const std::string schedule = s["schedule"];
    points.push_back({{"schedule", "1 of 1" + schedule.substr(schedule.find(':'))},
                      {"tree", s["tree"]},
                      {"predicted_seconds", -s["seconds"].get<double>()},
                      {"seconds_median", s["seconds"]}});
  }
  ASSERT_GE(points.size(), 30);
  const auto table = [&] {
    recording["ranking"] = {{"softmax",
                             {{"workload", request.subject},
                              {"size", "small"},
                              {"points", points},
                              {"failed", ordered_json::array()}}}};
    std::ofstream(data.path().string() + "/h200-ranking.json") << recording;
    const std::string folder = data.path().string();
    return reproduce({}, of("fusionstitching/ranking", out, folder.c_str())).json["table"].dump();
  };
  EXPECT_THAT(table(), Not(HasSubstr("\"1.000\"")));  // which model it was is not said
  recording["model"] = "fusionstitching";
  EXPECT_THAT(table(), HasSubstr("\"-1.000\",\"1.000\""));
  points[3]["tree"] = "another";
  EXPECT_THAT(table(), HasSubstr("\"1.000 (" + std::to_string(points.size() - 1) + ")\""));
}

TEST(Recorded, WithoutARecordingThereIsNoNumber) {
  const TemporaryDirectory out;
  for (const char* id :
       {"mcfuser/fig11", "mcfuser/fig8", "chimera/fig6", "chimera/fig8-gpu", "validation/dram-gpu",
        "fusionstitching/graphs", "fusionstitching/counters", "fusionstitching/ranking",
        "fusionstitching/ranking-held-out"}) {
    const Answer answer = reproduce({}, of(id, out, "/proc/no/such"));
    EXPECT_FALSE(answer.ok());
    EXPECT_THAT(answer.json["reason"].get<std::string>(), HasSubstr("needs a recording of a GPU"));
    EXPECT_FALSE(answer.json.contains("table"));
  }
}

TEST(Recorded, ValidateReadsARecording) {
  Request request{.subject = "gemm-chain:m=256,l=256,k=64,n=64,dtype=f16", .machine = "h200"};
  ValidateOptions options{.truth = "ncu", .recorded = kFolder + "/h200-counters.json"};
  const Answer answer = validate(request, options);
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["asked"], 4);
  EXPECT_EQ(answer.json["valid"], 3);
  EXPECT_EQ(answer.json["points"][0]["true_bytes"], 1000);
  EXPECT_TRUE(answer.json["points"][2]["predicted_bytes"].is_null());
  options.min_r2 = 0.99;
  EXPECT_FALSE(validate(request, options).ok());
  request.subject = "gemm-chain:m=512,l=256,k=64,n=64,dtype=f16";
  EXPECT_THROW(validate(request, options), InputError);
  options.truth = "simulator";
  EXPECT_THROW(validate(request, options), InputError);
}

}  // namespace
}  // namespace tilewright::harness
