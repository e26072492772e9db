// What meters' sources print becomes bytes at the right boundaries, and what they cannot count says
// why.
//
// The texts below are written by hand after the tools' documentation and sources (cachegrind's
// apart, which is what it wrote here): no machine that this was written on has counters to record
// from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/machine/machine.h"
#include "profilers/cachegrind.h"
#include "profilers/event_table.h"
#include "profilers/formula.h"
#include "profilers/likwid.h"
#include "profilers/meter.h"
#include "profilers/pcm.h"
#include "profilers/perf.h"
#include "profilers/valgrind.h"

namespace tilewright::profilers {
namespace {

using ::testing::HasSubstr;

Machine three_caches() { return parse_synthetic_machine("cache:32K/8,1M/16,8M/16"); }

double value(std::string_view text) {
  const std::map<std::string, double> counts = {{"A", 5}, {"B.C_1", 7}};
  return Formula(text, "test").value([&](const std::string& name) { return counts.at(name); });
}

TEST(Formula, FollowsPrecedenceAndParentheses) {
  EXPECT_EQ(value("64 * (A + B.C_1)"), 768);
  EXPECT_EQ(value("A + B.C_1 * 2 - 1"), 18);
  EXPECT_EQ(value("20 / A / 2"), 2);
  EXPECT_EQ(value("-A - -B.C_1"), 2);
  EXPECT_EQ(value("1.0E-09*A*64.0"), 5 * 64e-9);
  EXPECT_EQ(Formula("A * A + B.C_1", "test").names(), (std::vector<std::string>{"A", "B.C_1"}));
}

TEST(Formula, RefusesWhatIsNone) {
  for (const char* text : {"", "A +", "(A", "A)", "A B", "2 ** 3", "a;b", "*A", "1e999", ".", "A$"})
    EXPECT_THROW(Formula(text, "test"), InputError) << text;
  EXPECT_THROW(Formula(std::string(5000, '('), "test"), InputError);
  EXPECT_THROW(Formula(std::string(5000, '-') + "1", "test"), InputError);
}

TEST(EventTables, AreWholeAndSayWhereTheyComeFrom) {
  std::set<std::string> names;
  for (const EventTable& t : event_tables()) {
    EXPECT_TRUE(names.insert(t.name).second) << t.name;
    EXPECT_FALSE(t.checked.empty()) << t.name;
    std::set<std::string> used;
    for (const BoundaryFormulas& b : t.boundaries)
      for (const auto* f : {&b.read, &b.written})
        if (*f) used.insert((*f)->names().begin(), (*f)->names().end());
    std::set<std::uint64_t> configs;
    for (const Event& e : t.events) {
      EXPECT_FALSE(e.source.empty()) << e.name;
      EXPECT_TRUE(used.contains(e.name)) << t.name << ": nothing uses " << e.name;
      EXPECT_TRUE(configs.insert(e.config()).second) << t.name << ": " << e.name << " twice";
    }
  }
  EXPECT_GE(names.size(), 5U);
}

TEST(EventTables, EncodeAsLinuxTakesThem) {
  EXPECT_EQ((Event{.code = 0x51, .umask = 0x01}).config(), 0x151U);
  // AMD's twelve bits: the upper four are bits 32 to 35.
  EXPECT_EQ((Event{.code = 0x18e, .umask = 0x07}).config(), 0x10000078EU);
}

TEST(EventTables, AreFoundByProcessor) {
  const ProcessorId id = processor_id(
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
      "model name\t: Intel(R) Xeon(R) Gold 6240 CPU @ 2.60GHz\n");
  EXPECT_EQ(id.vendor, "GenuineIntel");
  EXPECT_EQ(id.family, 6);
  EXPECT_EQ(id.model, 85);
  ASSERT_NE(table_for(id), nullptr);
  EXPECT_THAT(table_for(id)->name, HasSubstr("Cascade Lake"));
  EXPECT_EQ(table_for({"GenuineIntel", 6, 1}), nullptr);
  EXPECT_EQ(table_for({"AuthenticAMD", 6, 85}), nullptr);
  EXPECT_EQ(table_for(processor_id("")), nullptr);
  EXPECT_EQ(processor_id(":\n : x\nmodel").model, -1);
}

TEST(EventTables, RefuseWhatIsWrong) {
  const std::string good =
      "name: x\nvendor: y\nfamily: 1\nchecked: none\n"
      "events:\n  A: {event: 0x1, umask: 0x2, source: s}\n"
      "boundaries:\n  - {cache: 1, read: 64 * A, note: n}\n";
  EXPECT_EQ(event_table_from_yaml(good, "t").events.size(), 1U);
  const auto with = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    return text.replace(text.find(what), what.size(), by);
  };
  for (const std::string& bad :
       {with("64 * A", "64 * B"), with("0x1", "17"), with("0x2", "0x100"), with(", note: n", ""),
        with("64 * A", "64 *"), with("cache: 1", "cache: 0"), with("vendor: y", "vendors: y"),
        with("event: 0x1", "event: 0x1000")})
    EXPECT_THROW(event_table_from_yaml(bad, "t"), InputError) << bad;
}

std::map<std::string, Reading> cascade_lake_readings() {
  const auto counted = [](double n) { return Reading{.count = n, .enabled = 10, .running = 10}; };
  return {{"L1D.REPLACEMENT", counted(1000)},
          {"L1D.M_EVICT", counted(300)},
          {"L2_LINES_IN.ALL", counted(200)},
          {"L2_TRANS.L2_WB", counted(50)},
          {"LONGEST_LAT_CACHE.MISS", counted(20)}};
}

TEST(Perf, BytesByTheTablesFormulas) {
  const EventTable& table = *table_for({"GenuineIntel", 6, 85});
  const Measurement m = measurement_of(table, three_caches(), cascade_lake_readings());
  EXPECT_EQ(m.traffic.source, Source::measured);
  EXPECT_EQ(m.traffic.total("L2/L1").read, Bytes(64000));
  EXPECT_EQ(m.traffic.total("L2/L1").written, Bytes(19200));
  EXPECT_EQ(m.traffic.total("L3/L2").read, Bytes(12800));
  EXPECT_EQ(m.traffic.total("L3/L2").written, Bytes(3200));
  EXPECT_EQ(m.traffic.total("DRAM/L3").read, Bytes(1280));
  EXPECT_FALSE(m.traffic.counts.write_back) << "what memory is written is not counted";
  EXPECT_EQ(m.traffic.entries.front().boundary, "DRAM/L3");
}

TEST(Perf, MultiplexedCountsAreScaledAndSaySo) {
  auto readings = cascade_lake_readings();
  readings["L1D.REPLACEMENT"] = {.count = 500, .enabled = 200, .running = 100};
  const Measurement m =
      measurement_of(*table_for({"GenuineIntel", 6, 85}), three_caches(), readings);
  EXPECT_EQ(m.traffic.total("L2/L1").read, Bytes(64000));
  EXPECT_THAT(m.notes, ::testing::Contains(HasSubstr("50.0 % of the time")));
}

TEST(Perf, WhatWasNeverCountedIsNotAvailable) {
  auto readings = cascade_lake_readings();
  readings["L2_LINES_IN.ALL"].running = 0;
  const Measurement m =
      measurement_of(*table_for({"GenuineIntel", 6, 85}), three_caches(), readings);
  ASSERT_TRUE(m.traffic.unavailable.contains("L3/L2"));
  EXPECT_THAT(m.traffic.unavailable.at("L3/L2"), HasSubstr("L2_LINES_IN.ALL"));
  EXPECT_EQ(m.traffic.total("L3/L2").read, Bytes(0));
  EXPECT_EQ(m.traffic.total("L2/L1").read, Bytes(64000));
  for (const TrafficEntry& e : m.traffic.entries) EXPECT_NE(e.boundary, "L3/L2");
}

TEST(Perf, DemandAndPrefetchAddUpOnZen) {
  std::map<std::string, Reading> readings;
  double n = 1;
  for (const Event& e : table_for({"AuthenticAMD", 25, 17})->events)
    readings[e.name] = {.count = n *= 10, .enabled = 1, .running = 1};
  const Measurement m =
      measurement_of(*table_for({"AuthenticAMD", 25, 17}), three_caches(), readings);
  EXPECT_EQ(m.traffic.total("L2/L1").read, Bytes(64 * 10));
  EXPECT_EQ(m.traffic.total("L3/L2").read, Bytes(64 * (1000 + 10000 + 100000)));
  EXPECT_EQ(m.traffic.total("DRAM/L3").read, Bytes(64 * (100 + 100000)));
}

TEST(Likwid, DataVolumesOfItsGroups) {
  EXPECT_EQ(likwid_unit("L2D load data volume [GBytes]"), 1e9);
  EXPECT_EQ(likwid_unit("L2D load bandwidth [MBytes/s]"), std::nullopt);
  // The metrics of LIKWID 5.2's groups for Cascade Lake.
  const Measurement m = likwid_measurement({{"L2", "L2D load bandwidth [MBytes/s]", 9},
                                            {"L2", "L2D load data volume [GBytes]", 0.5},
                                            {"L2", "L2D evict data volume [GBytes]", 0.25},
                                            {"L2", "L2 data volume [GBytes]", 0.8},
                                            {"L3", "L3 load data volume [GBytes]", 0.125},
                                            {"L3", "L3 evict data volume [GBytes]", 0.01},
                                            {"L3", "L3|MEM evict data volume [GBytes]", 0.02},
                                            {"MEM", "Memory read data volume [GBytes]", 0.003},
                                            {"MEM", "Memory write data volume [GBytes]", 0.001}},
                                           three_caches());
  EXPECT_EQ(m.traffic.total("L2/L1").read, Bytes(500'000'000));
  EXPECT_EQ(m.traffic.total("L2/L1").written, Bytes(250'000'000));
  EXPECT_EQ(m.traffic.total("L3/L2").read, Bytes(125'000'000));
  EXPECT_EQ(m.traffic.total("L3/L2").written, Bytes(20'000'000));
  EXPECT_EQ(m.traffic.total("DRAM/L3").read, Bytes(3'000'000));
  EXPECT_EQ(m.traffic.total("DRAM/L3").written, Bytes(1'000'000));
  EXPECT_TRUE(m.traffic.counts.write_back);
}

TEST(Likwid, AGroupThatIsNotThereIsNotAvailable) {
  const Measurement m =
      likwid_measurement({{"L2", "L2 data volume [GBytes]", 0.5}}, three_caches());
  EXPECT_EQ(m.traffic.total("L2/L1").read, Bytes(500'000'000));
  EXPECT_FALSE(m.traffic.counts.write_back);
  EXPECT_TRUE(m.traffic.unavailable.contains("L3/L2"));
  EXPECT_TRUE(m.traffic.unavailable.contains("DRAM/L3"));
  EXPECT_FALSE(likwid_measurement({{"L2", "L2 data volume [GBytes]", 1e300}}, three_caches())
                   .traffic.unavailable.empty());
}

TEST(Pcm, SystemColumnsOfBothSeparators) {
  const std::string text =
      "System;;;;;;;;Socket0;;;\nDate;Time;EXEC;L3MISS;L2MISS;L3HIT;READ;WRITE;L3MISS;READ;WRITE;\n"
      "2023-04-14;13:52:31.359;0.5;0.25;0.75;N/A;1.5;0.125;9;9;9;\n";
  for (const char separator : {';', ','}) {
    std::string csv = text;
    std::replace(csv.begin(), csv.end(), ';', separator);
    const auto columns = pcm_system_columns(csv);
    ASSERT_TRUE(columns.ok()) << columns.reason();
    EXPECT_EQ(columns->at("READ"), 1.5);
    EXPECT_EQ(columns->at("WRITE"), 0.125);
    EXPECT_EQ(columns->at("L3MISS"), 0.25);
    EXPECT_EQ(columns->at("L2MISS"), 0.75);
    EXPECT_FALSE(columns->contains("L3HIT"));
  }
  EXPECT_FALSE(pcm_system_columns("").ok());
  EXPECT_FALSE(pcm_system_columns("a\nb\nc\n").ok());
  EXPECT_FALSE(pcm_system_columns("System;\nREAD;\n").ok());
}

TEST(Cachegrind, TotalsOfItsFile) {
  const auto totals = cachegrind_totals(
      "desc: I1 cache:         32768 B, 64 B, 8-way associative\ncmd: ./d\n"
      "events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw \nfl=d.cpp\nfn=main\n"
      "0 5048 3 3 4 1 0 1008 1002 1001\n"
      "summary: 140595 1312 1290 31104 1408 1073 12465 1511 1446\n");
  ASSERT_TRUE(totals.ok()) << totals.reason();
  EXPECT_EQ(totals->at("D1mr"), 1408);
  EXPECT_EQ(totals->at("DLmw"), 1446);
  for (const char* bad :
       {"", "events: A\n", "summary: 1\n", "events: A B\nsummary: 1\n", "events: A\nsummary: x\n",
        "events: A\nsummary: -1\n", "events: A A\nsummary: 1 1\n",
        "events: A\nevents: A\nsummary: 1\n", "events: A\nsummary: 99999999999999999999\n"})
    EXPECT_FALSE(cachegrind_totals(bad).ok()) << bad;
}

TEST(Cachegrind, TheMachinesFirstAndLastCache) {
  const auto c = cachegrind_caches(three_caches());
  ASSERT_TRUE(c.ok()) << c.reason();
  EXPECT_EQ(c->d1, "32768,8,64");
  EXPECT_EQ(c->ll, "8388608,16,64");
  EXPECT_EQ(c->first_boundary, "L2/L1");
  EXPECT_EQ(c->last_boundary, "DRAM/L3");
  EXPECT_TRUE(c->unavailable.contains("L3/L2"));
  // 48 KiB of 12 ways are 64 sets; 24.75 MiB of 11 are 36,864, which is no power of two.
  const auto gold = cachegrind_caches(named_machine("xeon-gold-6240"));
  ASSERT_TRUE(gold.ok()) << gold.reason();
  EXPECT_TRUE(gold->last_boundary.empty());
  EXPECT_THAT(gold->unavailable.at("DRAM/L3"), HasSubstr("power of two"));
  EXPECT_FALSE(cachegrind_caches(parse_synthetic_machine("scratchpad:32K")).ok());
  EXPECT_FALSE(cachegrind_caches(parse_synthetic_machine("cache:24K/4,1M/16")).ok());
}

TEST(Cachegrind, RefusesWhatValgrindCannotRun) {
  if (!valgrind_here().usable) GTEST_SKIP() << valgrind_here().reason;
  BuiltKernel k{.arena = 0x10000000, .end = 0x10001000, .workspace = 0x10001000, .isa = "avx2"};
  EXPECT_EQ(valgrind_refuses(k), std::nullopt);
  k.isa = "avx512";
  EXPECT_THAT(valgrind_refuses(k)->text, HasSubstr("--isa avx2"));
  k.isa = "avx2", k.threads = 2;
  EXPECT_THAT(valgrind_refuses(k)->text, HasSubstr("--threads 1"));
  k.threads = 1, k.workspace = 0x60000000;
  EXPECT_THAT(valgrind_refuses(k)->text, HasSubstr("MiB"));
}

/// The contract of every meter: usable, or a reason; and where it is not, it measures nothing.
TEST(Meters, SayWhyTheyAreNotUsable) {
  std::set<std::string_view> names;
  for (const MeterRecord& m : meters()) {
    SCOPED_TRACE(std::string(m.name));
    EXPECT_TRUE(names.insert(m.name).second);
    const Availability here = m.here();
    EXPECT_EQ(here.usable, here.reason.empty());
    if (m.make == nullptr) {
      EXPECT_EQ(m.counts, Counts::itself);
      continue;
    }
    if (here.usable) continue;
    BuiltKernel kernel{.prefix = "none", .isa = "avx2", .run = [] { return 0.0; }};
    const auto measured = m.make()->measure(kernel, three_caches());
    ASSERT_FALSE(measured.ok());
    EXPECT_FALSE(measured.reason().empty());
  }
  for (const char* name : {"cachegrind", "perf", "likwid", "pcm"})
    EXPECT_TRUE(names.contains(name));
}

}  // namespace
}  // namespace tilewright::profilers
