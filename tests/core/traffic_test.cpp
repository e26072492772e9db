// Traffic: sums, differences that refuse to mix counts, and the JSON of design/interface.md.
#include "core/plan/traffic.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/plan/file.h"

namespace tilewright {
namespace {

Traffic sample() {
  Traffic t;
  t.source = Source::simulated;
  t.by = "cache";
  t.machine = "cache:48K/12,1M/16";
  t.entries = {{"A", "DRAM/L2", Bytes(100), Bytes(0), 7, 2, Bytes(0)},
               {"E", "DRAM/L2", Bytes(40), Bytes(60), 5, 1, Bytes(64)},
               {"A", "L2/L1", Bytes(300), Bytes(0), 9, 4, Bytes(0)}};
  t.counts = {.write_allocate = true};
  t.memory = {{"L1", Bytes(56)}};
  t.operations = {{"gemm1", Operations(630)}};
  t.seconds = 0.1;
  t.unavailable = {{"L1/registers", "no counter"}};
  return t;
}

TEST(Traffic, TotalsAndLookups) {
  const Traffic t = sample();
  const TrafficEntry sum = t.total("DRAM/L2");
  EXPECT_EQ(sum.read, Bytes(140));
  EXPECT_EQ(sum.written, Bytes(60));
  EXPECT_EQ(sum.hits, 12);
  EXPECT_EQ(sum.misses, 3);
  EXPECT_EQ(sum.resident_dirty, Bytes(64));
  EXPECT_EQ(t.total("DRAM/L9").read, Bytes(0));
  EXPECT_EQ(t.at("A", "L2/L1").read, Bytes(300));
  EXPECT_EQ(t.at("Z", "L2/L1"), (TrafficEntry{.tensor = "Z", .boundary = "L2/L1"}));
}

TEST(Traffic, DifferenceIsEntryByEntry) {
  const Traffic a = sample();
  Traffic b = sample();
  b.by = "exact";
  b.entries[0].read = Bytes(70);
  b.entries.erase(b.entries.begin() + 1);
  b.entries.push_back({.tensor = "B", .boundary = "DRAM/L2", .read = Bytes(11)});
  b.operations["gemm1"] = Operations(600);
  const Result<Traffic> d = subtract(a, b);
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->at("A", "DRAM/L2").read, Bytes(30));
  EXPECT_EQ(d->at("E", "DRAM/L2").written, Bytes(60));
  EXPECT_EQ(d->at("B", "DRAM/L2").read, Bytes(-11));
  EXPECT_EQ(d->at("A", "L2/L1").read, Bytes(0));
  EXPECT_EQ(d->operations.at("gemm1"), Operations(30));
  EXPECT_EQ(d->by, "cache - exact");
  EXPECT_EQ(d->seconds, 0.0);
  // Entries of a boundary stay together.
  ASSERT_EQ(d->entries.size(), 4U);
  EXPECT_EQ(d->entries[2].tensor, "B");
  EXPECT_EQ(d->entries[3].boundary, "L2/L1");
}

TEST(Traffic, WhatCountsDifferentThingsIsNotSubtracted) {
  const Traffic a = sample();
  for (bool Counts::*flag : {&Counts::write_allocate, &Counts::write_back, &Counts::prefetch}) {
    Traffic b = sample();
    b.counts.*flag = !(b.counts.*flag);
    const Result<Traffic> d = subtract(a, b);
    ASSERT_FALSE(d.ok());
    EXPECT_NE(d.reason().find("count different things"), std::string::npos);
  }
  Traffic aggregate = sample();
  aggregate.entries = {{.tensor = "all", .boundary = "DRAM/L2", .read = Bytes(140)}};
  const Result<Traffic> d = subtract(a, aggregate);
  ASSERT_FALSE(d.ok());
  EXPECT_NE(d.reason().find("DRAM/L2"), std::string::npos);
}

TEST(Traffic, UnavailableStaysUnavailable) {
  Traffic b = sample();
  b.unavailable["L2/L1"] = "a shared cache";
  b.entries.pop_back();
  const Result<Traffic> d = subtract(sample(), b);
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->unavailable.at("L2/L1"), "a shared cache");
  for (const TrafficEntry& e : d->entries) EXPECT_NE(e.boundary, "L2/L1");
}

TEST(Traffic, JsonHasTheKeysOfTheInterfaceAndReadsBack) {
  const Traffic t = sample();
  const auto j = to_json(t);
  EXPECT_EQ(j["schema"], 1);
  EXPECT_EQ(j["source"], "simulated");
  EXPECT_EQ(j["by"], "cache");
  EXPECT_EQ(j["machine"], "cache:48K/12,1M/16");
  EXPECT_EQ(j["traffic"][0]["tensor"], "A");
  EXPECT_EQ(j["traffic"][0]["boundary"], "DRAM/L2");
  EXPECT_EQ(j["traffic"][0]["read_bytes"], 100);
  EXPECT_EQ(j["traffic"][1]["written_bytes"], 60);
  EXPECT_EQ(j["traffic"][1]["resident_dirty_bytes"], 64);
  EXPECT_EQ(j["counts"]["write_allocate"], true);
  EXPECT_EQ(j["memory"]["L1"], 56);
  EXPECT_EQ(j["operations"]["gemm1"], 630);
  EXPECT_EQ(j["seconds"], 0.1);
  EXPECT_EQ(traffic_from_json(nlohmann::json::parse(j.dump()), "t.json"), t);

  Traffic plain;
  plain.entries = {{.tensor = "A", .boundary = "DRAM/L1", .read = Bytes(1)}};
  const auto p = to_json(plain);
  EXPECT_TRUE(p["seconds"].is_null());
  EXPECT_FALSE(p["traffic"][0].contains("hits"));
  EXPECT_FALSE(p.contains("unavailable"));
  EXPECT_EQ(traffic_from_json(nlohmann::json::parse(p.dump()), "t.json"), plain);
}

TEST(Traffic, BadJsonSaysWhatIsWrong) {
  const auto good = nlohmann::json::parse(to_json(sample()).dump());
  const auto refused = [&](auto&& edit, const char* says) {
    auto j = good;
    edit(j);
    try {
      traffic_from_json(j, "t.json");
      ADD_FAILURE() << "accepted " << says;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
    }
  };
  using J = nlohmann::json;
  refused([](J& j) { j["schema"] = 2; }, "schema");
  refused([](J& j) { j["source"] = "guessed"; }, "predicted, simulated");
  refused([](J& j) { j.erase("traffic"); }, "traffic: is missing");
  refused([](J& j) { j["traffic"] = 3; }, "traffic");
  refused([](J& j) { j["traffic"][0]["read_bytes"] = 1.5; }, "traffic[0].read_bytes");
  refused([](J& j) { j["traffic"][0]["read_bytes"] = "7"; }, "traffic[0].read_bytes");
  refused([](J& j) { j["traffic"][1].erase("written_bytes"); }, "traffic[1].written_bytes");
  refused([](J& j) { j["counts"]["prefetch"] = 1; }, "counts.prefetch");
  refused([](J& j) { j["seconds"] = "soon"; }, "seconds");
  refused([](J& j) { j = J::array(); }, "t.json");
}

TEST(Traffic, SourcesReadBack) {
  for (Source s : {Source::predicted, Source::simulated, Source::measured, Source::paper}) {
    EXPECT_EQ(source_from_name(name_of(s)), s);
  }
}

}  // namespace
}  // namespace tilewright
