// Options: what a spec accepts, and what settings make of values, given and filled in.
#include "core/base/option.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace tilewright {
namespace {

const std::vector<OptionSpec>& specs() {
  static const std::vector<OptionSpec> all = {
      {.name = "hoist",
       .kind = OptionKind::choice,
       .names = {"dag", "none"},
       .standard = "dag",
       .published = "none",
       .help = "how far loads leave loops"},
      {.name = "tile-step", .kind = OptionKind::integer, .high = 64, .standard = "16"},
      {.name = "slack", .kind = OptionKind::number, .standard = "1.2"},
      {.name = "guard", .kind = OptionKind::flag},
      {.name = "seed",
       .kind = OptionKind::integer,
       .low = 0,
       .high = UINT64_MAX,
       .in_answers = false},
      {.name = "expression", .accepted = "such as ml(k,n)"},
      {.name = "pin", .repeated = true},
      {.name = "xla-seed",
       .kind = OptionKind::choice,
       .names = {"yes", "no"},
       .standard = "yes",
       .answer_name = "seed"},
      {.name = "toy", .kind = OptionKind::assignment, .repeated = true, .in_answers = false}};
  return all;
}

Settings settings(const OptionValues& values) { return {specs(), values, "model toy"}; }

std::string error_of(const OptionValues& values) {
  try {
    settings(values);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(Option, FillsDefaultsIn) {
  const Settings s = settings({});
  EXPECT_EQ(s.text("hoist"), "dag");
  EXPECT_EQ(s.integer("tile-step"), 16);
  EXPECT_EQ(s.number("slack"), 1.2);
  EXPECT_FALSE(s.flag("guard"));
  EXPECT_FALSE(s.given("hoist"));
  EXPECT_FALSE(s.has("seed"));
  EXPECT_EQ(s.find_integer("seed"), std::nullopt);
  EXPECT_EQ(s.text("expression"), "");
  EXPECT_TRUE(s.texts("pin").empty());
  EXPECT_EQ(s.defaults(), std::nullopt);
}

TEST(Option, ReadsWhatIsGiven) {
  const Settings s = settings({{"slack", {"1e3"}},
                               {"guard", {"on"}},
                               {"pin", {"A=dram", "B=dram"}},
                               {"seed", {"18446744073709551615"}}});
  EXPECT_EQ(s.number("slack"), 1000);
  EXPECT_TRUE(s.flag("guard"));
  EXPECT_EQ(s.texts("pin"), (std::vector<std::string>{"A=dram", "B=dram"}));
  EXPECT_EQ(s.whole("seed"), UINT64_MAX);
  EXPECT_TRUE(s.given("slack"));
}

TEST(Option, PublishedValuesHoldUnlessGiven) {
  EXPECT_EQ(settings({{"published", {"on"}}}).text("hoist"), "none");
  EXPECT_EQ(settings({{"published", {"on"}}}).integer("tile-step"), 16);
  EXPECT_EQ(settings({{"published", {"on"}}, {"hoist", {"dag"}}}).text("hoist"), "dag");
  EXPECT_EQ(settings({{"ours", {"on"}}}).text("hoist"), "dag");
  EXPECT_EQ(settings({{"published", {"off"}}}).text("hoist"), "dag");
  EXPECT_NE(error_of({{"published", {"on"}}, {"ours", {"on"}}}).find("one of them"),
            std::string::npos);
}

TEST(Option, RefusesWithWhatIsAccepted) {
  EXPECT_EQ(error_of({{"hoist", {"dog"}}}), "--hoist: dog is not accepted; accepted: dag, none");
  EXPECT_EQ(error_of({{"tile-step", {"65"}}}),
            "--tile-step: 65 is not accepted; accepted: a whole number from 1 to 64");
  EXPECT_EQ(error_of({{"tile-step", {"1.5"}}}),
            "--tile-step: 1.5 is not accepted; accepted: a whole number from 1 to 64");
  EXPECT_EQ(error_of({{"seed", {"-1"}}}),
            "--seed: -1 is not accepted; accepted: a whole number from 0");
  for (const char* text : {"", "nan", "inf", "1e7", "-1", "1x", " 1", "0x10"})
    EXPECT_NE(error_of({{"slack", {text}}}).find("accepted: a number from 0 to 1e6"),
              std::string::npos)
        << text;
  EXPECT_EQ(error_of({{"expression", {""}}}),
            "--expression: an empty text is not accepted; accepted: such as ml(k,n)");
  EXPECT_EQ(error_of({{"slak", {"1"}}}),
            "model toy: --slak is not one of its options; accepted: --hoist, --tile-step, --slack, "
            "--guard, --seed, --expression, --pin, --xla-seed, --toy (nearest: --slack)");
}

TEST(Option, AnswersSayEveryValue) {
  EXPECT_EQ(
      settings({{"tile-step", {"8"}}}).to_json().dump(),
      R"({"hoist":"dag","tile_step":8,"slack":1.2,"guard":false,"expression":null,"pin":null,"seed":"yes"})");
  EXPECT_EQ(settings({{"published", {"on"}}}).to_json()["defaults"], "published");
}

TEST(Option, ReadsJson) {
  using nlohmann::ordered_json;
  const auto texts = [](const char* name, const ordered_json& value) {
    return option_texts(*find_option(specs(), name), value, "line 3", name);
  };
  EXPECT_EQ(texts("guard", true), std::vector<std::string>{"on"});
  EXPECT_EQ(texts("slack", 2), std::vector<std::string>{"2"});
  EXPECT_EQ(texts("slack", 0.1), std::vector<std::string>{"0.1"});
  EXPECT_EQ(texts("tile-step", 8), std::vector<std::string>{"8"});
  EXPECT_EQ(texts("pin", {"A=dram"}), std::vector<std::string>{"A=dram"});
  EXPECT_THROW(texts("slack", "2"), InputError);
  EXPECT_THROW(texts("tile-step", 8.0), InputError);
  EXPECT_THROW(texts("tile-step", true), InputError);
  EXPECT_THROW(texts("guard", "on"), InputError);
  EXPECT_THROW(texts("hoist", 1), InputError);
  EXPECT_EQ(texts("pin", "A=dram"), std::vector<std::string>{"A=dram"});
  EXPECT_THROW(texts("pin", 3), InputError);
  EXPECT_THROW(texts("pin", ordered_json::array({3})), InputError);
  try {
    texts("hoist", "dog");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "line 3: hoist: \"dog\" is not accepted; accepted: dag, none");
  }
}

// What files and Python may give beside a text.
TEST(Option, ReadsJsonByKind) {
  using nlohmann::ordered_json;
  const auto text = [](OptionKind kind, const ordered_json& value, bool repeated = false) {
    return join(option_texts({.name = "a", .kind = kind, .repeated = repeated}, value, "", "a"),
                "|");
  };
  const ordered_json tiles = {{"m", 64}, {"l", 32}};
  EXPECT_EQ(text(OptionKind::pairs, tiles), "m=64,l=32");
  EXPECT_EQ(text(OptionKind::pairs, "m=64"), "m=64");
  EXPECT_EQ(text(OptionKind::pairs, tiles, true), "m=64|l=32");
  EXPECT_EQ(text(OptionKind::assignment, {{"beam", 5}, {"pick", "time"}}, true),
            "beam=5|pick=time");
  EXPECT_EQ(text(OptionKind::list, ordered_json::array({"m", "oc1"})), "m,oc1");
  EXPECT_EQ(text(OptionKind::list, ordered_json::parse(R"([["m", "oc1"], ["oc1", "m"]])"), true),
            "m,oc1;|oc1,m;");
  EXPECT_EQ(text(OptionKind::size, 4096), "4096B");
  EXPECT_EQ(text(OptionKind::size, "4K"), "4K");
  EXPECT_THROW(text(OptionKind::size, 1.5), InputError);
  EXPECT_THROW(text(OptionKind::list, ordered_json::array()), InputError);
  EXPECT_THROW(text(OptionKind::path, tiles), InputError);
}

TEST(Option, TakesAssignments) {
  const Settings s = settings({{"toy", {"seed=no", "tile-step=8", "hoist=none"}}});
  EXPECT_EQ(s.text("xla-seed"), "no");
  EXPECT_EQ(s.integer("tile-step"), 8);
  EXPECT_TRUE(s.given("hoist"));
  EXPECT_EQ(error_of({{"toy", {"tilestep=8"}}}),
            "--toy: tilestep=8 names no option; accepted: NAME=VALUE of hoist, tile-step, slack, "
            "guard, expression, pin, seed (nearest: tile-step)");
  EXPECT_NE(error_of({{"toy", {"slack"}}}).find("slack gives no value"), std::string::npos);
  EXPECT_EQ(error_of({{"toy", {"tile-step=65"}}}),
            "--toy: tile-step=65 is not accepted; accepted: tile-step=a whole number from 1 to 64");
}

TEST(Option, NamesItself) {
  EXPECT_EQ(as_argument(specs()[1]), "--tile-step");
  EXPECT_EQ(as_key(specs()[1]), "tile_step");
  EXPECT_EQ(default_text(specs()[3]), "off");
  EXPECT_EQ(options_among({{"hoist", {"x"}}, {"other", {"y"}}}, specs()).size(), 1u);
}

}  // namespace
}  // namespace tilewright
