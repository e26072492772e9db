// An option is written in one place: of a model and of a verb that only this test has, each with an
// option of its own, that option is in the help, on the command line, in JSON as Python gives it,
// in lines of a batch, in sweeps, in answers and in the records that Python's functions and the
// reference pages are made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/parse.h"
#include "core/base/error.h"
#include "experiments/report/verbs.h"
#include "harness/ask.h"
#include "harness/sweep.h"
#include "harness/verbs.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr const char* kChain = "gemm-chain:m=64,n=32,k=32,l=64";

/// Everything that is written of the option.
const std::vector<OptionSpec> kOptions = {{.name = "loud-ness",
                                           .kind = OptionKind::integer,
                                           .high = 9,
                                           .standard = "3",
                                           .help = "how loud the toy is"}};

/// Chimera's plans, and what it was asked.
class ToyModel : public ::testing::Test {
 protected:
  void SetUp() override {
    Model toy = find_model("chimera");
    toy.name = "toy";
    toy.options = kOptions;
    toy.propose = [chimera = toy.propose](const Question& question, const Settings& settings) {
      Result<Proposal> best = chimera(question, settings_of({}, find_model("chimera")));
      if (best) best.value().detail["options"] = settings.to_json();
      if (best) best.value().price.traffic.by = "toy";
      return best;
    };
    toy.price = [chimera = toy.price](const Question& question, const Plan& plan,
                                      const Settings& settings) {
      Result<Price> price = chimera(question, plan, settings_of({}, find_model("chimera")));
      if (price) price.value().traffic.by = "toy";
      if (price) price.value().detail["loud_ness"] = settings.integer("loud-ness");
      return price;
    };
    toy.notation = {};
    toy.texts = nullptr;
    toy.canonical = nullptr;
    toy.explain = nullptr;
    toy.written = nullptr;
    toy.draw = nullptr;
    add_model(std::move(toy));
  }
  void TearDown() override { remove_model("toy"); }

  static const Verb& plan() { return *find_verb("plan"); }
  static ordered_json planned(OptionValues options) {
    options.insert({{"machine", {"scratchpad:16K"}}, {"model", {"toy"}}});
    return ask(plan(), {.subject = kChain, .options = std::move(options)}).json;
  }
  static std::string error_of(const std::function<void()>& what) {
    try {
      what();
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  }
};

TEST_F(ToyModel, IsListedPricedComparedAndValidated) {
  const auto json = list_models().json;
  bool listed = false;
  for (const ordered_json& m : json["models"]) listed = listed || m["name"] == "toy";
  EXPECT_TRUE(listed);
  const Request request{.subject = kChain, .machine = "scratchpad:16K", .model = "toy"};
  const Answer predicted = predict(request);
  ASSERT_TRUE(predicted.ok()) << predicted.json;
  EXPECT_EQ(predicted.json["by"], "toy");
  const Answer compared = compare({.subject = kChain, .machine = "scratchpad:16K"}, "toy,chimera");
  ASSERT_TRUE(compared.ok()) << compared.json;
  ASSERT_EQ(compared.json["plans"].size(), 2u);
  for (const ordered_json& row : compared.json["plans"]) {
    ASSERT_EQ(row["prices"].size(), 2u) << row;
    EXPECT_EQ(row["prices"][0]["volume_bytes"], row["prices"][1]["volume_bytes"]);
  }
}

/// The target refuses clusters: the next choice stands in its place, with its time.
TEST_F(ToyModel, WhatIsPlannedIsWhatTheTargetTakes) {
  Model toy = find_model("toy");
  remove_model("toy");
  toy.propose = [](const Question& question, const Settings&) {
    Result<Proposal> best =
        find_model("chimera").propose(question, settings_of({}, find_model("chimera")));
    if (!best) return best;
    Proposal& p = best.value();
    const Kernel plain = p.plan.kernels.front();
    p.plan.kernels.front().launch.cluster = 2;
    p.price.traffic.seconds = 9e-6;
    p.detail["seconds"] = 9e-6;
    p.choices = [own = p.plan.kernels.front(), plain](std::size_t) {
      return std::vector<KernelChoice>{{.kernel = own, .seconds = 4e-6},
                                       {.kernel = plain, .seconds = 7e-6, .note = "no cluster"}};
    };
    return best;
  };
  add_model(std::move(toy));
  Request request{.subject = kChain, .machine = "h200", .model = "toy"};
  const Answer alone = harness::plan(request, std::nullopt);
  ASSERT_TRUE(alone.ok()) << alone.json;
  EXPECT_EQ(alone.json["seconds"], 9e-6);
  EXPECT_EQ(alone.json["plan"]["kernels"][0]["launch"]["cluster"], 2);
  request.target = "cuda";
  const Answer a = harness::plan(request, std::nullopt);
  ASSERT_TRUE(a.ok()) << a.json;
  EXPECT_NEAR(a.json["seconds"].get<double>(), 12e-6, 1e-12);
  EXPECT_FALSE(a.json["plan"]["kernels"][0].contains("launch"));
  const ordered_json& replaced = a.json["replaced"];
  ASSERT_EQ(replaced.size(), 1u);
  EXPECT_EQ(replaced[0]["choice"], 1);
  EXPECT_EQ(replaced[0]["refused_seconds"], 4e-6);
  EXPECT_EQ(replaced[0]["note"], "no cluster");
  EXPECT_THAT(replaced[0]["refused"].get<std::string>(), ::testing::HasSubstr("cluster"));
  const Answer emitted = run(request, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(emitted.ok()) << emitted.json;
  // The emulation's architecture has no warpgroups, and says so.
  request.target = "cuda-emulated";
  EXPECT_EQ(emitted.json["replaced"], harness::plan(request, std::nullopt).json["replaced"]);
  for (const char* key : {"kernel", "choice", "refused_seconds", "note"})
    EXPECT_EQ(emitted.json["replaced"][0][key], replaced[0][key]) << key;
}

/// A kernel whose work all warps would share stands in only where no choice has a form of its own.
TEST_F(ToyModel, MakeshiftsAreTakenLast) {
  Model toy = find_model("toy");
  remove_model("toy");
  bool choices = true;
  toy.propose = [&choices](const Question& question, const Settings&) {
    Result<Proposal> best =
        find_model("chimera").propose(question, settings_of({}, find_model("chimera")));
    if (!best) return best;
    Kernel own = best->plan.kernels.front(), plain = own;
    own.tiles = plain.tiles = {};
    own.tree = parse_tree("m/16@grid n/8@thread ( n/1@lane ( k/16 ( C.gemm ) ) )");
    plain.tree = parse_tree("m/16@grid n/8 ( k/16 ( C.gemm ) )");
    best.value().plan.kernels = {own};
    best.value().choices = {};
    if (choices)
      best.value().choices = [own, plain](std::size_t) {
        return std::vector<KernelChoice>{{.kernel = own}, {.kernel = plain}};
      };
    return best;
  };
  add_model(std::move(toy));
  const Request request{
      .subject = "gemm:m=32,n=16,k=32", .machine = "h200", .model = "toy", .target = "cuda"};
  const Answer a = harness::plan(request, std::nullopt);
  ASSERT_TRUE(a.ok()) << a.json;
  ASSERT_TRUE(a.json.contains("replaced")) << a.json;
  EXPECT_THAT(a.json["replaced"][0]["refused"].get<std::string>(), HasSubstr("bound to lanes"));
  choices = false;
  const Answer alone = run(request, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(alone.ok()) << alone.json;
  EXPECT_FALSE(alone.json.contains("replaced"));
  EXPECT_THAT(alone.json["notes"].dump(), HasSubstr("all warps share the work"));
}

/// A target without room for a plan says how much is missing: the model is asked again with less,
/// and of what the user gave never with more. What the user wrote is not replaced.
TEST_F(ToyModel, AsksAgainWithLessRoomForWhatTheTargetHasNoneFor) {
  constexpr const char* kProduct = "gemm:m=512,n=256,k=16,dtype=f16";
  Model toy = find_model("toy");
  remove_model("toy");
  std::vector<std::int64_t> rooms;
  toy.propose = [&rooms](const Question& question, const Settings&) -> Result<Proposal> {
    const Bytes room = question.room_at(question.planned_level());
    rooms.push_back(room.value);
    if (room.value < 90 << 10) return Reason{"nothing is that small"};
    Result<Proposal> best =
        find_model("chimera").propose(question, settings_of({}, find_model("chimera")));
    const std::int64_t tile = room.value > 100 << 10 ? 512 : 64;
    if (best)
      best.value().plan.kernels.front().tiles = {
          {"m", tile}, {"n", std::min<std::int64_t>(tile, 256)}, {"k", 16}};
    if (best) best.value().plan.kernels.front().tree = parse_tree("m@grid n@grid ( k ( C.gemm ) )");
    return best;
  };
  add_model(std::move(toy));
  Request request{.subject = kProduct, .machine = "h200", .model = "toy", .target = "cuda"};
  const Answer a = harness::plan(request, std::nullopt);
  ASSERT_TRUE(a.ok()) << a.json;
  EXPECT_EQ(a.json["plan"]["kernels"][0]["tiles"]["m"], 64);
  const ordered_json& again = a.json["asked_again"];
  EXPECT_EQ(again["room_bytes"], rooms.back());
  EXPECT_EQ(again["refused"][0]["room_bytes"], rooms.front());
  EXPECT_EQ(again["refused"][0]["plan"][0]["tiles"]["m"], 512);
  EXPECT_THAT(again["refused"][0]["refused"].get<std::string>(), HasSubstr("shared memory"));
  // Below 90 KB the toy has nothing, above 100 KB the target takes nothing: both were met.
  EXPECT_LT(*std::ranges::min_element(rooms), 90 << 10);
  EXPECT_GE(rooms.back(), 90 << 10);
  EXPECT_LE(rooms.back(), 100 << 10);

  const Answer ran = run(request, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(ran.ok()) << ran.json;
  EXPECT_EQ(ran.json["asked_again"], again);
  EXPECT_THAT(ran.json["notes"].dump(), HasSubstr("asked again"));

  rooms.clear();
  request.capacity = "120K";
  ASSERT_TRUE(harness::plan(request, std::nullopt).ok());
  EXPECT_EQ(*std::ranges::max_element(rooms), 120 << 10);

  rooms.clear();
  request.capacity.reset();
  request.model.reset();
  request.tree = "m@grid n@grid ( k ( C.gemm ) )";
  request.tiles = "m=512,n=256,k=16";
  const Answer written = run(request, {.target = "cuda-emulated", .seconds = 0.0});
  EXPECT_FALSE(written.ok());
  EXPECT_FALSE(written.json.contains("asked_again"));
  EXPECT_TRUE(rooms.empty());
}

/// A model with no notation: its own plan's tiles are redrawn.
TEST_F(ToyModel, ValidatesPlansWhoseTilesAreRedrawn) {
  const Request request{.subject = kChain, .machine = "cache:4K/8", .model = "toy"};
  const Answer a = validate(request, {.samples = 6});
  ASSERT_TRUE(a.ok()) << a.json;
  EXPECT_EQ(a.json["model"], "toy");
  EXPECT_EQ(a.json["valid"], 6);
  std::set<std::string> tiles;
  for (const ordered_json& p : a.json["points"]) {
    EXPECT_TRUE(p.contains("tree"));
    EXPECT_GT(p["true_bytes"], 0);
    tiles.insert(p["tiles"].dump());
  }
  EXPECT_EQ(tiles.size(), 6u);
}

TEST_F(ToyModel, IsInTheHelpOfEveryVerbThatPlans) {
  for (const Verb& verb : verbs()) {
    const std::string help = cli::help_of(verb, {"all"});
    EXPECT_EQ(verb.models, help.find("\nOptions of toy:\n") != std::string::npos) << verb.name;
    EXPECT_EQ(verb.models, help.find("--loud-ness N") != std::string::npos) << verb.name;
    if (verb.models) {
      EXPECT_THAT(help, HasSubstr("how loud the toy is (default 3)"));
    }
  }
}

TEST_F(ToyModel, IsOnTheCommandLineAndInAnswers) {
  const cli::Invocation asked = cli::parse_arguments(
      plan(), {kChain, "-m", "scratchpad:16K", "--model", "toy", "--loud-ness", "7"});
  EXPECT_EQ(ask(plan(), asked.asked).json["options"]["loud_ness"], 7);
  EXPECT_EQ(planned({})["options"]["loud_ness"], 3);
  EXPECT_THAT(error_of([] {
                planned({{"loud-ness", {"10"}}});
              }),
              HasSubstr("--loud-ness: 10 is not accepted; accepted: a whole number from 1 to 9"));
  // No model is named: the only one that has the option plans.
  const ordered_json own =
      ask(plan(),
          {.subject = kChain, .options = {{"machine", {"scratchpad:16K"}}, {"loud-ness", {"7"}}}})
          .json;
  EXPECT_EQ(own["model"], "toy");
  EXPECT_EQ(own["options"]["loud_ness"], 7);
}

TEST_F(ToyModel, IsInJson) {
  const auto values = [](const ordered_json& object) {
    return option_values(options_of(plan()), object, "line 2");
  };
  EXPECT_EQ(values({{"loud_ness", 7}}), (OptionValues{{"loud-ness", {"7"}}}));
  EXPECT_THAT(
      error_of([&] {
        values({{"loud_ness", "x"}});
      }),
      HasSubstr("line 2: loud_ness: \"x\" is not accepted; accepted: a whole number from 1 to 9"));
  EXPECT_THAT(error_of([&] { values({{"loud_nes", 7}}); }), HasSubstr("nearest loud_ness"));
}

// Python's functions and docs/reference are made of these.
TEST_F(ToyModel, IsInTheRecords) {
  int verbs_with_it = 0;
  const ordered_json records = verbs_json();
  for (const ordered_json& verb : records["verbs"])
    for (const ordered_json& option : verb["options"])
      if (option["key"] == "loud_ness") {
        ++verbs_with_it;
        EXPECT_EQ(option["of"], "toy");
        EXPECT_EQ(option["text"], "how loud the toy is (default 3)");
      }
  EXPECT_EQ(verbs_with_it, std::ranges::count_if(verbs(), &Verb::models));
  const ordered_json models = list_models().json["models"];
  const auto toy = std::ranges::find_if(models, [](const auto& m) { return m["name"] == "toy"; });
  ASSERT_NE(toy, models.end());
  EXPECT_EQ((*toy)["options"][0]["name"], "--loud-ness");
}

TEST_F(ToyModel, IsInSweeps) {
  const std::string head = "name: a\nverb: plan\nworkloads: [\"" + std::string(kChain) +
                           "\"]\nmachines: [scratchpad:16K]\nmodels: [toy, chimera]\n";
  const Sweep sweep = read_sweep(head + "options: {loud_ness: [2, 4]}\n", "test");
  ASSERT_EQ(sweep.points.size(), 3u);  // chimera's point is not of it
  const auto rows = sweep_rows(sweep.points);
  EXPECT_EQ(rows[0]["loud_ness"], "2");
  EXPECT_EQ(rows[0]["status"], "done");
  EXPECT_THAT(error_of([&] { read_sweep(head + "options: {loud_nes: [2]}\n", "test"); }),
              HasSubstr("nearest loud_ness"));
}

TEST_F(ToyModel, IsInLinesOfABatch) {
  const tilewright::TemporaryFolder folder;
  const auto answers = [&](const std::string& line) {
    const std::string file = folder.write("batch.jsonl", line + "\n");
    const Request request{.machine = "h200", .threads = 1};
    return run_batch(request, {.target = "cuda", .build_only = true}, file).json;
  };
  const std::string line =
      R"({"workload": "gemm-chain:m=64,n=64,k=64,l=64,dtype=f16", "model": "toy", )";
  EXPECT_THAT(error_of([&] { answers(line + R"("loud_ness": 20})"); }),
              HasSubstr("batch.jsonl:1: loud_ness: 20 is not accepted; accepted: a whole number"));
  const auto taken = answers(line + R"("loud_ness": 2})")["results"][0].value("reason", "");
  EXPECT_THAT(taken, ::testing::Not(HasSubstr("loud-ness")));
  EXPECT_THAT(error_of([&] { answers(line + R"("loudness": 2})"); }),
              HasSubstr("nearest loud_ness"));
}

TEST_F(ToyModel, IsInCompareAndValidate) {
  const auto with = [](const char* verb, const char* value) {
    const char* models = std::string_view(verb) == "compare" ? "models" : "model";
    ask(*find_verb(verb),
        {.subject = kChain,
         .options = {{"machine", {"scratchpad:16K"}}, {models, {"toy"}}, {"loud-ness", {value}}}});
  };
  for (const char* verb : {"compare", "validate"}) {
    EXPECT_EQ(error_of([&] { with(verb, "5"); }), "no error") << verb;
    EXPECT_THAT(error_of([&] { with(verb, "10"); }), HasSubstr("--loud-ness: 10 is not accepted"));
  }
}

struct Shout {
  std::int64_t volume = 0;
  bool twice = false;
  std::vector<std::string> words = {};
};

const std::vector<Bound<Shout>> kShout = {
    {{.name = "volume",
      .kind = OptionKind::integer,
      .high = 11,
      .standard = "5",
      .help = "how loud"},
     into<&Shout::volume>},
    {{.name = "twice", .kind = OptionKind::flag, .help = "two times"}, into<&Shout::twice>},
    {{.name = "word", .help = "what is said", .repeated = true, .key = "words"},
     into<&Shout::words>}};

const Verb kVerb{.name = "shout",
                 .summary = "says it",
                 .options = specs_of(kShout),
                 .run = [](const Request&, const Settings& s) {
                   const Shout asked = read(kShout, s);
                   auto json = document();
                   json["said"] = {asked.volume, asked.twice, asked.words};
                   return Answer{std::move(json), Status::done};
                 }};

TEST(ToyVerb, HasItsOptionsEverywhere) {
  const auto said = [](std::vector<std::string> arguments) {
    return ask(kVerb, cli::parse_arguments(kVerb, std::move(arguments)).asked).json["said"].dump();
  };
  EXPECT_EQ(said({}), "[5,false,[]]");
  EXPECT_EQ(said({"--volume", "11", "--twice", "--word", "a", "--word", "b"}),
            R"([11,true,["a","b"]])");
  EXPECT_THROW(said({"--volume", "12"}), InputError);
  const auto from_json = [](const ordered_json& object) {
    return ask(kVerb, {.options = option_values(options_of(kVerb), object, "")})
        .json["said"]
        .dump();
  };
  EXPECT_EQ(from_json({{"volume", 2}, {"words", {"c"}}}), R"([2,false,["c"]])");
  EXPECT_THROW(from_json({{"twice", 1}}), InputError);
  EXPECT_THAT(cli::help_of(kVerb), HasSubstr("--volume N"));
  EXPECT_EQ(to_json(kVerb)["options"][2]["key"], "words");
}

}  // namespace
}  // namespace tilewright::harness
