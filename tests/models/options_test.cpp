// Options of models: their defaults are those of the structures that the models compute with.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/chimera/options.h"
#include "models/fusionstitching/options.h"
#include "models/mcfuser/options.h"

namespace tilewright {
namespace {

const OptionValues kPublished = {{"published", {"on"}}};

TEST(OptionsOf, ChimeraDefaults) {
  const auto of = [](const OptionValues& values) {
    return chimera::options_of({chimera::option_specs(), values, "chimera"});
  };
  const chimera::Options ours, o = of({});
  EXPECT_EQ(o.reading, ours.reading);
  EXPECT_EQ(o.edges, ours.edges);
  EXPECT_EQ(o.memory, ours.memory);
  EXPECT_EQ(o.write_weight, ours.write_weight);
  EXPECT_EQ(o.min_tile, ours.min_tile);
  EXPECT_EQ(chimera::objective_of({chimera::option_specs(), {}, "chimera"}),
            chimera::LevelsOptions{}.objective);
  EXPECT_EQ(of(kPublished).reading, chimera::Reading::literal);
  EXPECT_EQ(of(kPublished).memory, chimera::Memory::paper);
}

TEST(OptionsOf, McfuserDefaults) {
  const Settings defaults(mcfuser::option_specs(), {}, "mcfuser");
  const Settings published(mcfuser::option_specs(), kPublished, "mcfuser");
  const mcfuser::Options ours, o = mcfuser::options_of(defaults, true);
  EXPECT_EQ(o.hoist, ours.hoist);
  EXPECT_EQ(o.blocks, ours.blocks);
  EXPECT_EQ(o.shared, ours.shared);
  EXPECT_EQ(o.stores, ours.stores);
  EXPECT_EQ(o.ratio, ours.ratio);
  EXPECT_TRUE(std::equal(o.rules, o.rules + 4, ours.rules));
  EXPECT_EQ(o.slack, ours.slack);
  EXPECT_EQ(o.padding, ours.padding);
  EXPECT_EQ(o.tile_step, ours.tile_step);
  EXPECT_EQ(mcfuser::evolution_of(defaults, 1), std::nullopt);
  EXPECT_EQ(mcfuser::options_of(published, true).stores, mcfuser::Stores::each);
  const auto search = mcfuser::evolution_of(
      {mcfuser::option_specs(), {{"search", {"evolutionary"}}}, "mcfuser"}, 1);
  const mcfuser::Evolution evolution;
  ASSERT_TRUE(search);
  EXPECT_EQ(search->population, evolution.population);
  EXPECT_EQ(search->top, evolution.top);
  EXPECT_EQ(search->epsilon, evolution.epsilon);
  EXPECT_EQ(search->patience, evolution.patience);
  EXPECT_EQ(search->generations, evolution.generations);
  EXPECT_EQ(search->guard, evolution.guard);
  const auto paper = mcfuser::evolution_of(published, 1);
  ASSERT_TRUE(paper);
  EXPECT_EQ(paper->patience, 1);
  EXPECT_FALSE(paper->guard);
}

TEST(OptionsOf, McfuserRules) {
  const auto rules = [](const char* text) {
    return mcfuser::options_of({mcfuser::option_specs(), {{"rules", {text}}}, "mcfuser"}, true);
  };
  const auto o = rules("4,1");
  EXPECT_TRUE(o.rules[0] && !o.rules[1] && !o.rules[2] && o.rules[3]);
  EXPECT_FALSE(rules("none").rules[0]);
  for (const char* text : {"5", "1,", ",1", "12", "1,,2", "1 2"})
    EXPECT_THROW(rules(text), InputError) << text;
}

TEST(OptionsOf, FusionStitchingDefaults) {
  namespace fs = fusionstitching;
  const auto of = [](const OptionValues& values) {
    return fs::options_of({fs::option_specs(), values, "fusionstitching"});
  };
  EXPECT_EQ(of({}), fs::Options{});
  const fs::Options paper = of(kPublished);
  EXPECT_EQ(paper.beam, 3);
  EXPECT_EQ(paper.last_step, fs::LastStep::select);
  EXPECT_EQ(paper.latency, fs::Latency::published);
  EXPECT_FALSE(paper.written);
  EXPECT_FALSE(paper.compose);
  EXPECT_TRUE(of({{"published", {"on"}}, {"stitch", {"compose=yes"}}}).compose);
  EXPECT_FALSE(of({{"xla-seed", {"no"}}}).seed);
  EXPECT_EQ(of({{"stitch", {"schedule=7"}}}).schedule, 7);
}

}  // namespace
}  // namespace tilewright
