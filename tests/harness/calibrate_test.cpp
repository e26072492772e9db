// calibrate: what is believed, and what a machine file says of it.
#include <gtest/gtest.h>

#include <fstream>

#include "core/machine/host_facts.h"
#include "harness/gauges.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

TEST(Calibrate, NumbersThatScatterAreRefusedWithTheNumbers) {
  const auto good = gauged("copy", {{1.02}, {5.0}, {1.0}, {1.01}, {1.03}, {1.04}, {9.0}});
  ASSERT_TRUE(good.ok()) << good.reason();
  ASSERT_EQ(good->size(), 1U);
  EXPECT_DOUBLE_EQ(good->front().seconds, 1.0);
  EXPECT_NEAR(good->front().spread, 0.04, 1e-12);
  EXPECT_EQ(good->front().samples, 7);
  const auto bad = gauged("copy", {{1.0}, {1.3}, {1.5}, {1.7}, {2.0}, {2.5}});
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.reason().find("copy"), std::string::npos);
  EXPECT_NE(bad.reason().find("100 %"), std::string::npos) << bad.reason();
  EXPECT_FALSE(gauged("copy", {{1.0}, {1.0}, {1.0}, {1.0}}).ok());
  EXPECT_FALSE(gauged("copy", {{0.0}, {0.0}, {0.0}, {0.0}, {0.0}}).ok());
}

// Three rows and one, at full speed 330 and 130, at half of it 660 and 260. Rows were 330 - 260 of
// least times once where the second number met no core at full speed, which none says of itself.
TEST(Calibrate, NumbersThatAreTakenFromOneAnotherAreOfOneRound) {
  std::vector<Round> rounds;
  for (int i = 0; i < 6; ++i) {
    rounds.push_back({660.0 + i, 260.0 + i});
    rounds.push_back({330.0 + i, 130.0 + i});
    rounds.push_back({320.0 + i, 260.0 + i});  // the speed changed within the round
  }
  const auto both = gauged("points", rounds);
  ASSERT_TRUE(both.ok()) << both.reason();
  EXPECT_DOUBLE_EQ((*both)[0].seconds - (*both)[1].seconds, 200);
  // Another pass that took longer over all leaves both as they were, though one of them is less.
  const auto known = met_again(*both, {{.seconds = 325}, {.seconds = 150}});
  EXPECT_DOUBLE_EQ(known[0].seconds, 330);
  EXPECT_DOUBLE_EQ(known[1].seconds, 130);
  EXPECT_EQ(known[0].met, 2);
  EXPECT_EQ(known[1].met, 2);
}

// A core beside a busy one takes 1.585 ns each time that it is asked within a second.
TEST(Calibrate, ANumberIsBelievedThatTwoPassesMeet) {
  const auto of = [](double seconds) {
    return std::vector<Gauged>{{.seconds = seconds, .samples = 40}};
  };
  const auto meet = [&](const Gauged& known, double seconds) {
    return met_again({known}, of(seconds)).front();
  };
  Gauged known = meet(of(1.585e-9).front(), 0.606e-9);
  EXPECT_DOUBLE_EQ(known.seconds, 0.606e-9);
  EXPECT_LT(known.met, kMet);
  known = meet(known, 1.6e-9);
  EXPECT_DOUBLE_EQ(known.seconds, 0.606e-9);
  EXPECT_LT(known.met, kMet);
  known = meet(known, 0.600e-9);
  EXPECT_DOUBLE_EQ(known.seconds, 0.600e-9);
  EXPECT_EQ(known.met, kMet);
}

// Each of these lines once ended the command as an internal error.
TEST(Calibrate, LinesOfAnotherFormAreMeasuredAgain) {
  const std::string path = ::testing::TempDir() + "/numbers.part";
  const std::string good =
      R"({"name": "cycle", "seconds": 1e-9, "spread": 0.01, "samples": 40, "date": "d"})";
  std::ofstream(path) << R"({"name": 3, "seconds": 1, "spread": 0, "samples": 1, "date": "d"})"
                      << "\n"
                      << R"({"name": "a", "seconds": "x", "spread": 0, "samples": 1, "date": "d"})"
                      << "\n"
                      << R"({"name": "b", "seconds": 0, "spread": 0, "samples": 1, "date": "d"})"
                      << "\n"
                      << R"({"name": "c", "seconds": 1, "spread": null, "samples": 1.5, "date": 4})"
                      << "\n[1]\n\n"
                      << good << "\n"
                      << good.substr(0, 40);
  const auto known = read_part(path);
  ASSERT_EQ(known.size(), 1U);
  EXPECT_EQ(known.begin()->first, "cycle");
  EXPECT_DOUBLE_EQ(known.begin()->second.seconds, 1e-9);
  EXPECT_EQ(known.begin()->second.samples, 40);
  EXPECT_EQ(known.begin()->second.met, 1);
  EXPECT_TRUE(read_part(path + ".none").empty());
}

std::map<std::string, Gauged> numbers() {
  std::map<std::string, Gauged> all;
  const auto add = [&](const char* name, double seconds) {
    all[name] = {.seconds = seconds, .spread = 0.01, .samples = 40, .date = "2026-11-24T00:00:00Z"};
  };
  add("cycle", 0.25e-9);
  add("bandwidth L2", 1e-11), add("bandwidth L3", 2e-11);
  add("bandwidth home", 3e-11), add("bandwidth home, one core", 5e-11);
  add("latency L2", 4e-9), add("latency L3", 20e-9), add("latency home", 90e-9);
  add("writing L2", 2e-11), add("writing home", 8e-11), add("writing past caches", 5e-11);
  add("copy", 1e-9), add("copy, short rows", 3e-9);
  add("product, as it lies", 1000 * 0.25e-9), add("product, turned", (1000 + 256 * 7) * 0.25e-9);
  // 512 rows in tiles of two and of sixteen: 256 and 32 tiles, 50 cycles each.
  add("sums read, few rows", (512 * 20 + 256 * 50) * 0.25e-9);
  add("sums read, many rows", (512 * 20 + 32 * 50) * 0.25e-9);
  add("visits of vectors", (3 + 5) * 0.25e-9);  // three cycles, four operations and a store
  add("taps", 0.5e-9), add("taps, apart", 1e-9);
  // 96 x 64 in blocks of 6 rows and 4 vectors of 16 lanes: 384 vectors, 16 blocks; a vector's
  // multiply-add a cycle, 20 cycles a block, half a cycle of loads and stores for every vector.
  // Panels of 64 steps of 256 bytes are half of the first cache, 32 KiB.
  add(kDeepProduct, (64 * 384 + 16 * 20 + 0.5 * 384) * 0.25e-9);
  add("product short", (32 * 384 + 16 * 20 + 0.5 * 384) * 0.25e-9);
  // Rows of 64 vectors, three operations and a half each, a cycle an operation; 50 to begin.
  add("points light", (3 * 64 * 3.5 + 50) * 0.25e-9);
  add("points light, one row", (64 * 3.5 + 50) * 0.25e-9);
  add(kMoreOperations, (3 * 64 * 9.5 + 50) * 0.25e-9);
  // Rows of 64 vectors that are converted, beside two operations and a half.
  for (const auto& [name, cycles] : {std::pair{"widened, f16", 2.0},
                                     {"widened, bf16", 3.0},
                                     {"narrowed, f16", 4.0},
                                     {"narrowed, bf16", 6.0}}) {
    add((std::string(name) + ", 2").c_str(), (2 * 64 * (2.5 + cycles) + 50) * 0.25e-9);
    add((std::string(name) + ", 1").c_str(), (64 * (2.5 + cycles) + 50) * 0.25e-9);
  }
  // Half a cycle a vector's multiply-add; an operand's vector is widened (3 cycles) and paired (5).
  for (const int m : {96, 24})
    for (const int k : {256, 32})
      add(("pairs, " + std::to_string(m) + " rows, " + std::to_string(k) + " steps").c_str(),
          (k * (m * 8 * 0.5 + (m + 128) / 16.0 * (3 + 5)) + 70) * 0.25e-9);
  // A sixteenth of a cycle; a left operand's row is copied, a right one's vector put together in 4.
  for (const int m : {384, 128})
    for (const int k : {1024, 256})
      add(("quads, " + std::to_string(m) + " rows, " + std::to_string(k) + " steps").c_str(),
          (k * (m * 8 / 16.0 + m / 16.0 * 0.4 + 128 / 16.0 * 4) + 3000) * 0.25e-9);
  add("what another core has written", 1e-10);
  add("points expensive", 3e-9);
  add("points divide", (2.5 + 6) * 0.25e-9);
  // Points one by one: half a cycle an operation, and 9 and 40 more of the functions.
  add("points alone, light", 3.5 * 0.5 * 0.25e-9);
  add("points alone, expensive", (1.5 * 0.5 + 9) * 0.25e-9);
  add("points alone, library", (1.5 * 0.5 + 40) * 0.25e-9);
  add("parts", (3.5 + 2) * 0.25e-9), add("joins", (1.5 + 7) * 0.25e-9);
  // A launch of 30 cycles; small kernels take 230 of them in turn and 900 more after other code.
  add("launch", 30 * 0.25e-9);
  add("launch, in turn", 230 * 0.25e-9), add("launch, after other code", 1130 * 0.25e-9);
  add("region", 2e-6);
  return all;
}

Machine a_host() {
  HostTopology t{.caches = {{.level = 1, .size = 32 << 10, .line = 64, .ways = 8, .instances = 2},
                            {.level = 2, .size = 1 << 20, .line = 64, .ways = 8, .instances = 2},
                            {.level = 3, .size = 32 << 20, .line = 64, .ways = 16, .instances = 1}},
                 .cores = 2,
                 .source = "test"};
  return machine_of_host(
      t,
      {.model = "test", .cores = 2, .vector_bytes = 64, .registers = 32, .vector_name = "AVX-512"});
}

TEST(Calibrate, AMachineFileSaysWhatWasMeasuredAndReadsBack) {
  const Machine m = with_measured(a_host(), numbers());
  const ComputeUnit& core = m.units.front();
  EXPECT_NEAR(core.clock_hz, 4e9, 1);
  EXPECT_NEAR(core.peak.at("f32").value, 2 * 4e9 * 32, 1e6);  // two cores, 16 lanes, 2 operations
  EXPECT_NEAR(core.cycles.at("call"), 20, 0.01);
  EXPECT_NEAR(core.cycles.at("light"), 1, 0.01);
  EXPECT_NEAR(core.cycles.at("store"), 1, 0.01);
  EXPECT_NEAR(core.cycles.at("stream"), 12.8, 0.01);
  EXPECT_NEAR(core.cycles.at("dram"), 360, 0.5);
  EXPECT_NEAR(core.cycles.at("take_over"), 25.6, 0.01);
  EXPECT_NEAR(core.peak.at("i8").value, 2 * 4e9 * 32 * 16, 1e9);
  EXPECT_NEAR(core.cycles.at("quad"), 4, 0.01);
  EXPECT_NEAR(core.cycles.at("turn"), 7, 0.01);
  EXPECT_NEAR(core.cycles.at("write_l2"), 5.12, 0.01);
  EXPECT_NEAR(core.cycles.at("write_dram"), 20.48, 0.01);
  EXPECT_NEAR(core.cycles.at("write_past"), 12.8, 0.01);
  EXPECT_FALSE(core.cycles.contains("write_l3"));  // not measured
  EXPECT_NEAR(core.cycles.at("copy_row"), 8, 0.01);
  EXPECT_NEAR(core.cycles.at("reread"), 50, 0.01);
  EXPECT_NEAR(core.cycles.at("visit"), 3, 0.02);
  EXPECT_NEAR(core.cycles.at("divide"), 6, 0.01);
  EXPECT_NEAR(core.cycles.at("light_one"), 0.5, 0.01);
  EXPECT_NEAR(core.cycles.at("expensive_one"), 9, 0.01);
  EXPECT_NEAR(core.cycles.at("library_one"), 40, 0.01);
  EXPECT_NEAR(core.cycles.at("part"), 2, 0.01);
  EXPECT_NEAR(core.cycles.at("join"), 7, 0.01);
  EXPECT_NEAR(core.cycles.at("tap"), 2, 0.01);
  EXPECT_NEAR(core.cycles.at("widen_f16"), 2, 0.01);
  EXPECT_NEAR(core.cycles.at("widen_bf16"), 3, 0.01);
  EXPECT_NEAR(core.cycles.at("narrow_f16"), 4, 0.01);
  EXPECT_NEAR(core.cycles.at("narrow_bf16"), 6, 0.01);
  EXPECT_NEAR(core.cycles.at("pair"), 5, 0.01);
  EXPECT_NEAR(core.peak.at("bf16").value / core.peak.at("f32").value, 2, 0.01);
  EXPECT_NEAR(core.cycles.at("tap_apart"), 4, 0.01);
  EXPECT_NEAR(core.cycles.at("launch"), 30, 0.01);
  EXPECT_NEAR(core.cycles.at("launch_code"), 900, 0.01);
  EXPECT_NEAR(m.levels[1].bandwidth.value, 1 / 3e-11, 1);
  EXPECT_NEAR(m.levels[2].bandwidth.value, 1 / 2e-11, 1);
  EXPECT_NEAR(m.levels[3].bandwidth.value, 1 / 1e-11, 1);
  for (const char* key : {"clock", "peak.f32", "cycles.call", "cycles.region"})
    EXPECT_TRUE(core.sources.at(key).starts_with("measured 2026-11-24T00:00:00Z: ")) << key;
  EXPECT_NE(m.levels[1].sources.at("bandwidth").find("within 1.0 %"), std::string::npos);
  EXPECT_EQ(machine_from_yaml(to_yaml(m), "host.yaml"), m);
}

/// Blocks are those of the instruction set's own micro-kernels: with AVX2, 96 rows of 8 vectors
/// are 64 blocks, whether 4x3 (two panels of three vectors and one of two: 2 x 24 + 16) or 6x2.
/// Panels of 256 steps of 64 bytes are half of the first cache.
TEST(Calibrate, BlocksAreThoseOfTheInstructionSet) {
  auto all = numbers();
  const auto product = [](double steps) { return (steps * 384 + 64 * 20 + 0.5 * 768) * 0.25e-9; };
  all[kDeepProduct].seconds = product(256);
  all["product short"].seconds = product(32);
  Machine host = a_host();
  host.units.front().registers = 16, host.units.front().vector_width = Bytes(32);
  const ComputeUnit core = with_measured(host, all).units.front();
  EXPECT_NEAR(core.cycles.at("call"), 20, 0.01);
  EXPECT_NEAR(core.peak.at("f32").value, 2 * 4e9 * 32, 1e6);  // two cores, two vectors a cycle
  EXPECT_NE(core.sources.at("peak.f32").find("256 steps"), std::string::npos);
  // Twice the first cache, twice the steps.
  host.levels[3].capacity = Bytes(64 << 10);
  all[kDeepProduct].seconds = product(512);
  EXPECT_NEAR(with_measured(host, all).units.front().cycles.at("call"), 20, 0.01);
}

// Pairs and quads whose instructions a processor lacks are f32: a rate of them would be priced.
TEST(Calibrate, RatesOfInstructionsThatAreMissingAreLeftOut) {
  std::map<std::string, Gauged> measured = numbers();
  for (const int m : {96, 24})
    for (const int k : {256, 32})
      measured.at("pairs, " + std::to_string(m) + " rows, " + std::to_string(k) + " steps")
          .seconds = (k * (m * 8 * 0.95 + (m + 128) / 16.0 * 3) + 70) * 0.25e-9;
  for (const int m : {384, 128})
    for (const int k : {1024, 256})
      measured.at("quads, " + std::to_string(m) + " rows, " + std::to_string(k) + " steps")
          .seconds = (k * (m * 8 * 1.0 + m / 16.0 * 0.4 + 128 / 16.0 * 4) + 3000) * 0.25e-9;
  const Machine m = with_measured(a_host(), measured);
  const ComputeUnit& core = m.units.front();
  EXPECT_TRUE(core.peak.contains("f32"));
  for (const char* type : {"bf16", "i8"}) EXPECT_FALSE(core.peak.contains(type)) << type;
  for (const char* what : {"pair", "quad"}) EXPECT_FALSE(core.cycles.contains(what)) << what;
}

/// Six operations more that take no longer say nothing of an operation, nor of what is measured
/// beside it.
TEST(Calibrate, OperationsThatTakeNoTimeLeaveOutWhatStandsBesideThem) {
  auto all = numbers();
  all[kMoreOperations].seconds = 0.9 * all["points light"].seconds;
  const ComputeUnit core = with_measured(a_host(), all).units.front();
  for (const char* what : {"light", "store", "divide", "visit", "widen_f16", "part"})
    EXPECT_FALSE(core.cycles.contains(what)) << what;
  EXPECT_TRUE(core.cycles.contains("expensive"));
}

/// A visit that is not told from the operations beside it is not said to take nothing: tiles of
/// nothing would be planned.
TEST(Calibrate, AVisitThatIsNotToldFromItsOperationsIsLeftOut) {
  auto all = numbers();
  all["visits of vectors"].seconds = 2 * 0.25e-9;
  EXPECT_FALSE(with_measured(a_host(), all).units.front().cycles.contains("visit"));
}

/// Of 32 MiB a core that shares its cache with others may find less. Bytes that are read again come
/// from the cache at 20 ps each and from home at 50: half of them at 35.
TEST(Calibrate, TheLastCacheIsAsLargeAsWhatIsFoundThereAgain) {
  using Times = std::vector<std::pair<double, double>>;  // MiB, picoseconds a byte
  const auto found = [](const Times& times, double home = 50) {
    auto all = numbers();
    all["bandwidth home, one core"].seconds = home * 1e-12;
    for (const auto& [size, seconds] : times)
      all[std::to_string(static_cast<std::int64_t>(size * (1 << 20))) + " bytes read again"] = {
          .seconds = seconds * 1e-12, .spread = 0.01, .samples = 40, .date = "2026-11-24"};
    return with_measured(a_host(), all).levels[1];
  };
  constexpr double kUnit = 64 * 16;  // a line of each set's ways
  const auto expect = [&](const Times& times, double half) {
    const Level last = found(times);
    EXPECT_NEAR(static_cast<double>(last.capacity.value), half * (1 << 20) / 0.95, kUnit);
    EXPECT_EQ(last.capacity.value % static_cast<std::int64_t>(kUnit), 0);
    EXPECT_EQ(last.sources.at("capacity"),
              "measured 2026-11-24: what one thread finds there again");
  };
  expect({{4, 20}, {8, 20}, {16, 50}}, 12);  // half way from the last size to the next
  expect({{4, 20}, {8, 30}, {16, 40}}, 12);  // between the two around a half
  expect({{4, 20}, {8, 34}, {16, 50}, {24, 50}}, 8 + 8.0 / 16);
  expect({{8, 21}, {16, 50}, {24, 20}}, 8 + 8 * 14.0 / 29);  // the first that comes from home
  const auto unchanged = [&](const Times& times, double home = 50) {
    const Level last = found(times, home);
    EXPECT_EQ(last.capacity.value, 32 << 20);
    EXPECT_FALSE(last.sources.at("capacity").starts_with("measured"));
  };
  unchanged({});
  unchanged({{4, 20}, {8, 21}, {31, 34}});      // half of all is found everywhere
  unchanged({{28, 20}, {48, 50}});              // more than there is
  unchanged({{4, 50}, {8, 50}, {16, 50}});      // not even the smallest is found
  unchanged({{4, 20}, {8, 20}, {16, 25}}, 25);  // home is as near: nothing is told from it
}

/// Two threads, and what each further one adds.
TEST(Calibrate, MoreThreadsTakeLongerToBegin) {
  auto all = numbers();
  all["region, all threads"] = {
      .seconds = 16e-6, .spread = 0.01, .samples = 40, .date = "2026-11-24T00:00:00Z"};
  Machine host = a_host();
  host.units.front().count = 16;
  const Machine m = with_measured(host, all);
  EXPECT_NEAR(m.units.front().cycles.at("region"), 2e-6 * 4e9, 1);
  EXPECT_NEAR(m.units.front().cycles.at("region_thread"), 1e-6 * 4e9, 1);
  EXPECT_FALSE(with_measured(a_host(), all).units.front().cycles.contains("region_thread"));
}

/// What was not measured keeps what the machine said.
TEST(Calibrate, NothingIsMadeUp) {
  auto some = numbers();
  for (const char* name : {"cycle", "bandwidth home", kDeepProduct}) some.erase(name);
  const Machine before = a_host(), m = with_measured(before, some);
  EXPECT_EQ(m.units.front().clock_hz, before.units.front().clock_hz);
  EXPECT_EQ(m.levels[1].bandwidth.value, 0);
  EXPECT_FALSE(m.units.front().peak.contains("f32"));
  EXPECT_FALSE(m.units.front().cycles.contains("call"));
}

/// A number that scatters is left out of the file: the others are what they are with it.
TEST(Calibrate, ANumberThatIsMissingChangesNoOther) {
  const auto all = numbers();
  const Machine full = with_measured(a_host(), all);
  for (const auto& [name, one] : all) {
    if (name == "cycle" || name.starts_with("product ")) continue;  // no file without these
    auto some = all;
    some.erase(name);
    const Machine m = with_measured(a_host(), some);
    EXPECT_NE(m, full) << name << " says nothing";
    for (const auto& [key, cycles] : m.units.front().cycles)
      EXPECT_EQ(cycles, full.units.front().cycles.at(key)) << key << " without " << name;
    for (std::size_t i = 1; i < m.levels.size(); ++i)
      EXPECT_TRUE(m.levels[i].bandwidth.value == 0 ||
                  m.levels[i].bandwidth == full.levels[i].bandwidth)
          << m.levels[i].name << " without " << name;
  }
}

}  // namespace
}  // namespace tilewright::harness
