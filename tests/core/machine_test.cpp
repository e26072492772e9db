// Machines: the carried files, synthetic ones, paths between levels, and bad files.
#include "core/machine/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "core/base/error.h"
#include "core/machine/files/machine_files.h"
#include "core/plan/file.h"
#include "tests/support/temporary_folder.h"

namespace tilewright {
namespace {

LevelId id(const Machine& m, std::string_view name) {
  const auto found = m.find(name);
  EXPECT_TRUE(found) << name;
  return found.value_or(LevelId(0));
}

std::string text_of(const Machine& m, const std::vector<std::pair<LevelId, LevelId>>& path) {
  std::string s;
  for (const auto& [a, b] : path) s += m.level(a).name + ">" + m.level(b).name + " ";
  return s;
}

// Carried files -----------------------------------------------------------------------------------

TEST(MachineFiles, AreThoseOfTheInterface) {
  EXPECT_EQ(machine_names(),
            (std::vector<std::string>{"host", "xeon-gold-6240", "core-i9-10980xe", "epyc-zen5",
                                      "a100", "h100", "h200", "rtx3080", "v100", "ascend910",
                                      "ascend910-256", "ascend910b", "mlu370"}));
}

TEST(MachineFiles, EveryNumberHasASourceAndEveryFileReadsBack) {
  for (const MachineFile& file : machine_files()) {
    SCOPED_TRACE(file.name);
    const Machine m = named_machine(file.name);
    EXPECT_EQ(m.name, file.name);
    EXPECT_FALSE(m.summary.empty());
    EXPECT_NO_THROW(check(m));
    EXPECT_EQ(machine_from_yaml(to_yaml(m), "again"), m) << to_yaml(m);
    const auto stated = [&](const auto& sources, const char* field) {
      return sources.contains(field) && !sources.at(field).empty();
    };
    for (const Level& l : m.levels) {
      SCOPED_TRACE(l.name);
      if (l.kind == LevelKind::home) continue;
      EXPECT_TRUE(stated(l.sources, "capacity"));
      EXPECT_EQ(stated(l.sources, "bandwidth"), l.bandwidth.value > 0);
      EXPECT_TRUE(stated(l.sources, "instances") || l.instances == 1);
      if (l.kind != LevelKind::cache) continue;
      EXPECT_TRUE(stated(l.sources, "line"));
      EXPECT_TRUE(stated(l.sources, "ways"));
      EXPECT_EQ(l.sets() * l.ways * l.line.value, l.capacity.value);
    }
    ASSERT_FALSE(m.units.empty());
    EXPECT_FALSE(m.units.front().peak.empty());
    for (const ComputeUnit& u : m.units) {
      EXPECT_TRUE(stated(u.sources, "count"));
      for (const auto& [type, rate] : u.peak) {
        EXPECT_TRUE(stated(u.sources, ("peak." + type).c_str())) << type;
        EXPECT_GT(rate.value, 1e11);
      }
    }
  }
}

TEST(MachineFiles, NumbersThatPapersGive) {
  const Machine xeon = named_machine("xeon-gold-6240");
  EXPECT_EQ(xeon.level(id(xeon, "L1")).capacity, Bytes(32 << 10));
  EXPECT_EQ(xeon.level(id(xeon, "L3")).sets(), 18 * 2048);
  EXPECT_EQ(xeon.level(id(xeon, "L3")).bandwidth.value, 131e9);
  EXPECT_EQ(xeon.units[0].peak.at("f32").value, 2995.2e9);
  EXPECT_EQ(xeon.default_level(), id(xeon, "L1"));
  EXPECT_EQ(xeon.level(id(xeon, "L3")).private_to, Unit::machine);
  EXPECT_EQ(xeon.level(id(xeon, "L1")).private_to, Unit::grid);

  const Machine a100 = named_machine("a100");
  EXPECT_EQ(a100.units[0].count, 108);
  EXPECT_EQ(a100.units[0].peak.at("f16").value, 312e12);
  EXPECT_EQ(a100.default_level(), id(a100, "shared"));
  EXPECT_EQ(a100.level(id(a100, "L2")).sector, Bytes(32));
  EXPECT_EQ(a100.level(id(a100, "L2")).line, Bytes(128));

  const Machine ascend = named_machine("ascend910");
  EXPECT_EQ(ascend.default_level(), id(ascend, "L1"));
  EXPECT_EQ(ascend.level(id(ascend, "L0C")).capacity, Bytes(256 << 10));
}

// Paths -------------------------------------------------------------------------------------------

TEST(MachinePaths, LinearHierarchiesGoThroughAdjacentPairs) {
  const Machine m = parse_synthetic_machine("cache:48K/12,1M/16,32M/16");
  EXPECT_EQ(text_of(m, m.path(m.home(), id(m, "L1"))), "DRAM>L3 L3>L2 L2>L1 ");
  EXPECT_EQ(text_of(m, m.path(id(m, "L1"), m.home())), "L1>L2 L2>L3 L3>DRAM ");
  EXPECT_TRUE(m.path(m.home(), m.home()).empty());
  EXPECT_EQ(m.boundary(id(m, "L1"), id(m, "L2")), "L2/L1");
  EXPECT_EQ(m.boundary(id(m, "L2"), id(m, "L1")), "L2/L1");
}

TEST(MachinePaths, SiblingsFollowFilledBy) {
  const Machine m = named_machine("ascend910");
  EXPECT_EQ(text_of(m, m.path(m.home(), id(m, "L0A"))), "DRAM>L2 L2>L1 L1>L0A ");
  EXPECT_EQ(text_of(m, m.path(id(m, "L0C"), m.home())), "L0C>UB UB>L2 L2>DRAM ");
  EXPECT_EQ(text_of(m, m.path(m.home(), id(m, "L0C"))), "DRAM>L2 L2>UB UB>L0C ");
  EXPECT_EQ(text_of(m, m.path(id(m, "L0C"), id(m, "UB"))), "L0C>UB ");
  EXPECT_EQ(m.boundary(id(m, "L0C"), id(m, "UB")), "UB/L0C");

  const Machine gpu = named_machine("h200");
  EXPECT_EQ(text_of(gpu, gpu.path(gpu.home(), id(gpu, "registers"))), "DRAM>L2 L2>registers ");
  EXPECT_EQ(text_of(gpu, gpu.path(id(gpu, "shared"), id(gpu, "registers"))), "shared>registers ");
}

TEST(MachineNames, FindIgnoresCaseAndKnowsHome) {
  const Machine m = named_machine("ascend910");
  EXPECT_EQ(m.find("l0a"), m.find("L0A"));
  EXPECT_EQ(m.find("dram"), m.home());
  EXPECT_EQ(m.find("HOME"), m.home());
  EXPECT_EQ(m.find("L9"), std::nullopt);
}

TEST(MachineNames, AsScratchpadKeepsOneLevel) {
  const Machine m = named_machine("xeon-gold-6240");
  const Machine s = as_scratchpad(m, id(m, "L2"));
  EXPECT_NO_THROW(check(s));
  ASSERT_EQ(s.levels.size(), 2U);
  EXPECT_EQ(s.levels[1].managed, Managed::software);
  EXPECT_EQ(s.levels[1].capacity, Bytes(1 << 20));
  EXPECT_EQ(s.levels[1].bandwidth.value, 50.54e9);
  EXPECT_EQ(text_of(s, s.path(s.home(), LevelId(1))), "DRAM>L2 ");
  EXPECT_EQ(machine_from_yaml(to_yaml(s), "again"), s);
  EXPECT_THROW(as_scratchpad(m, m.home()), InputError);
}

// Synthetic ---------------------------------------------------------------------------------------

TEST(SyntheticMachine, Scratchpads) {
  const Machine m = parse_synthetic_machine("scratchpad:4096B");
  ASSERT_EQ(m.levels.size(), 2U);
  EXPECT_EQ(m.levels[0].name, "DRAM");
  EXPECT_EQ(m.levels[1].name, "L1");
  EXPECT_EQ(m.levels[1].managed, Managed::software);
  EXPECT_EQ(m.levels[1].capacity, Bytes(4096));
  EXPECT_EQ(m.default_level(), LevelId(1));

  const Machine two = parse_synthetic_machine("scratchpad:1024e,64K");
  ASSERT_EQ(two.levels.size(), 3U);
  EXPECT_EQ(two.levels[1].name, "L2");
  EXPECT_EQ(two.levels[1].capacity, Bytes(64 << 10));
  EXPECT_EQ(two.levels[2].name, "L1");
  EXPECT_EQ(two.levels[2].capacity, Bytes(4096));
  EXPECT_EQ(parse_synthetic_machine("scratchpad:64Ke").levels[1].capacity, Bytes(256 << 10));
}

TEST(SyntheticMachine, Caches) {
  const Machine m = parse_synthetic_machine("cache:48K/12,1M/16,32M/16");
  ASSERT_EQ(m.levels.size(), 4U);
  EXPECT_EQ(m.levels[3].name, "L1");
  EXPECT_EQ(m.levels[3].sets(), 64);
  EXPECT_EQ(m.levels[3].line, Bytes(64));
  EXPECT_EQ(m.levels[3].policy, "lru");
  EXPECT_EQ(m.levels[1].private_to, Unit::machine);
  EXPECT_EQ(m.levels[2].private_to, Unit::grid);
  EXPECT_EQ(parse_synthetic_machine("cache:48K/12,1M/16").levels[1].private_to, Unit::grid);
  // The number of sets need not be a power of two.
  EXPECT_EQ(parse_synthetic_machine("cache:33K/11").levels[1].sets(), 48);
  EXPECT_EQ(parse_synthetic_machine("cache:4K").levels[1].ways, 0);
  EXPECT_EQ(parse_synthetic_machine("cache:4K").levels[1].sets(), 1);
}

TEST(SyntheticMachine, BadSpecsAreRefused) {
  for (const char* bad : {"",
                          "scratchpad",
                          "scratchpad:",
                          "scratchpad:,",
                          "scratchpad:0B",
                          "scratchpad:-4K",
                          "scratchpad:4Q",
                          "scratchpad:4K,",
                          "scratchpad:4K/8",
                          "scratchpad:64K,4K",
                          "scratchpad:9223372036854775807K",
                          "scratchpad:9223372036854775807e",
                          "scratchpad:e",
                          "cache:48K/0",
                          "cache:48K/-1",
                          "cache:48K/x",
                          "cache:48K/",
                          "cache:48K/13",
                          "cache:100B/1",
                          "cache:1024e",
                          "cache:8G/16",
                          "cache:1M/16,48K/12",
                          "cash:48K/12",
                          "cache:48K/12/2",
                          "cache:48K/9223372036854775807",
                          "scratchpad:4 K",
                          "Cache:48K/12"}) {
    SCOPED_TRACE(bad);
    try {
      parse_synthetic_machine(bad);
      ADD_FAILURE() << "accepted";
    } catch (const InputError& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(SyntheticMachine, RoundTripsThroughYaml) {
  for (const char* spec :
       {"scratchpad:4096B", "scratchpad:4K,64K,1M", "cache:48K/12,1M/16,32M/16", "cache:4K"}) {
    const Machine m = named_machine(spec);
    EXPECT_EQ(m.name, spec);
    EXPECT_EQ(machine_from_yaml(to_yaml(m), "again"), m) << to_yaml(m);
  }
}

TEST(SyntheticMachine, MutatedSpecsParseOrFailCleanly) {
  const unsigned seed = 20240713;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::string alphabet = "0123456789KMGBe/,:-xT ";
  for (int round = 0; round < 20'000; ++round) {
    std::string spec = random() % 2 == 0 ? "cache:48K/12,1M/16,32M/16" : "scratchpad:1024e,64K";
    for (unsigned e = 0; e < 1 + random() % 3; ++e) {
      const std::size_t at = random() % spec.size();
      if (random() % 2 == 0) {
        spec[at] = alphabet[random() % alphabet.size()];
      } else {
        spec.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
    }
    try {
      const Machine m = parse_synthetic_machine(spec);
      ASSERT_NO_THROW(check(m)) << "seed " << seed << ": " << spec;
    } catch (const InputError&) {
    }
  }
}

// Files -------------------------------------------------------------------------------------------

const char* const kFile = R"(name: small
kind: cpu
levels:
  - name: DRAM
    kind: home
  - name: L2
    kind: cache
    capacity: {value: 64K, source: test}
    ways: {value: 16, source: test}
    bandwidth: {value: 12.5 GB/s, source: test}
  - name: L1
    kind: cache
    capacity: {value: 4K, source: test}
    ways: {value: 8, source: test}
    filled_by: [L2, DRAM]
units:
  - name: core
    count: {value: 2, source: test}
    clock: {value: 2.6 GHz, source: test}
    peak:
      f32: {value: 166.4 GFLOP/s, source: test}
)";

TEST(MachineYaml, Reads) {
  const Machine m = machine_from_yaml(kFile, "small.yaml");
  EXPECT_EQ(m.level(id(m, "L2")).bandwidth.value, 12.5e9);
  EXPECT_EQ(m.level(id(m, "L2")).filled_by, std::vector<std::string>{"DRAM"});
  EXPECT_EQ(text_of(m, m.path(m.home(), id(m, "L1"))), "DRAM>L1 ");
  EXPECT_EQ(m.units[0].clock_hz, 2.6e9);
  EXPECT_EQ(m.units[0].peak.at("f32").value, 166.4e9);
  EXPECT_EQ(machine_from_yaml(to_yaml(m), "again"), m);
}

struct BadMachine {
  const char* from;
  const char* to;
  const char* says;
};
const BadMachine kBadMachines[] = {
    {"  - name: DRAM\n    kind: home\n", "", "bad.yaml:4: level L2: kind"},
    {"capacity: {value: 64K", "capacity: {value: -64K",
     "bad.yaml:8: levels[1].capacity.value: -64K"},
    {"capacity: {value: 64K", "capacity: {value: 0B", "bad.yaml:8: level L2: capacity"},
    {"value: 16, source: test", "value: 15, source: test", "bad.yaml:9: level L2: ways"},
    {"value: 16, source: test", "value: -16, source: test", "bad.yaml:9"},
    {"filled_by: [L2, DRAM]", "filled_by: [L7]", "bad.yaml:15: level L1: filled_by: L7"},
    {"filled_by: [L2, DRAM]", "filled_by: [L1]", "bad.yaml:15: level L1: filled_by"},
    {"filled_by: [L2, DRAM]", "filled_by: [L2, l2]", "twice"},
    {"{value: 64K, source: test}", "64K", "without a source"},
    {"{value: 64K, source: test}", "{value: 64K}", "source: is missing"},
    {"{value: 64K, source: test}", "{value: 64K, source: \"\"}", "is not a source"},
    {"    capacity: {value: 64K, source: test}\n", "", "capacity: is missing"},
    {"ways:", "way:", "did you mean ways"},
    {"units:", "unit:", "did you mean units"},
    {"kind: cpu", "kind: cpux", "cpu, gpu"},
    {"kind: cpu", "kind: cpu\ndefault_level: L5", "bad.yaml:3: default_level: L5"},
    {"12.5 GB/s", "12.5 GiB/s", "bandwidth.value"},
    {"12.5 GB/s", "-12.5 GB/s", "bandwidth.value"},
    {"12.5 GB/s", "1e999 GB/s", "bandwidth.value"},
    {"12.5 GB/s", "nan", "bandwidth.value"},
    {"f32:", "f31:", "f31"},
    {"name: L1", "name: L2", "names two levels"},
    {"name: L1", "name: dram", "names home"},
    {"name: L1", "name: \"L 1\"", "level 2: name"},
    {"name: L1", "name: L1x2", "x and digits"},
    {"name: L1\n    kind: cache", "name: L1\n    kind: home", "second home"},
    {"name: L1\n    kind: cache", "name: L1\n    kind: tape", "home, cache, scratchpad, registers"},
    {"kind: home", "kind: home\n    bandwidth: {value: 1 GB/s, source: test}", "bandwidth"},
    {"count: {value: 2", "count: {value: 0", "units[0].count.value"},
    {"levels:", "levels: 7\nsummary:", "bad.yaml"},
    {"name: small\n", "", "name: is missing"},
    {"name: small\n", "name: small\nname: small\n", "given twice"},
    {"name: small", "name: [", "bad.yaml"},
};

TEST(MachineYaml, BadFilesSayWhere) {
  for (const BadMachine& bad : kBadMachines) {
    std::string text = kFile;
    const std::size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    text.replace(at, std::string(bad.from).size(), bad.to);
    SCOPED_TRACE(text);
    try {
      machine_from_yaml(text, "bad.yaml");
      ADD_FAILURE() << "accepted";
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(bad.says), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_THROW(machine_from_yaml("name: x\nkind: cpu\nlevels: []\n", "none.yaml"), InputError);
  EXPECT_THROW(
      machine_from_yaml("name: x\nkind: cpu\nlevels: [{name: DRAM, kind: home}]\n", "one.yaml"),
      InputError);
}

TEST(MachineYaml, MutatedFilesReadOrFailCleanly) {
  const unsigned seed = 20240714;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::string alphabet = ":[]{}&*#-,'\"|> \n0xKG!";
  int read = 0;
  for (int round = 0; round < 1'500; ++round) {
    std::string text = random() % 4 == 0 ? std::string(machine_files()[7].text) : kFile;
    const unsigned edits = 1 + random() % 3;
    for (unsigned e = 0; e < edits; ++e) {
      const std::size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        case 2:
          text.erase(at, 1 + random() % 6);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
          break;
      }
    }
    try {
      const Machine m = machine_from_yaml(text, "fuzz.yaml");
      ++read;
      ASSERT_EQ(machine_from_yaml(to_yaml(m), "again"), m) << "seed " << seed << "\n" << text;
    } catch (const InputError& e) {
      ASSERT_EQ(std::string(e.what()).find('\n'), std::string::npos) << text;
    }
  }
  EXPECT_GT(read, 50) << "seed " << seed;
}

// Names and files ---------------------------------------------------------------------------------

TEST(MachineNames, NamedMachineTakesFilesAndRefusesTheRest) {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", kFile);
  EXPECT_EQ(named_machine(file), machine_from_yaml(kFile, "small.yaml"));
  const std::string broken = folder.write("broken.yaml", "name: x\n");
  EXPECT_THROW(named_machine(broken), InputError);
  EXPECT_THROW(named_machine(folder.path() + "/none.yaml"), InputError);
  std::filesystem::create_directory(folder.path() + "/folder.yaml");
  EXPECT_THROW(named_machine(folder.path() + "/folder.yaml"), InputError);
  EXPECT_THROW(named_machine(""), InputError);
  try {
    named_machine("a1000");
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean a100"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find(
                  "a100, h100, v100 or another name that tilewright machines lists"),
              std::string::npos)
        << e.what();
  }
}

// Behaviour of caches
// ------------------------------------------------------------------------------

const std::string kBehaving = R"yaml(name: mine
kind: cpu
levels:
  - name: DRAM
    kind: home
    row_buffer: {value: 8K, source: "JEDEC"}
    banks: {value: 16, source: "JEDEC"}
  - name: L3
    kind: cache
    capacity: {value: 24K, source: "a test"}
    line: {value: 64B, source: "a test"}
    ways: {value: 3, source: "a test"}
    policy: qlru_h11_m1_r0_u0
    inclusion: victim
    clean_victims: {value: 0.25, source: "measured"}
    write: through
    write_miss: around
    index: slices
    slices: {value: 4, source: "a test"}
    private_to: machine
  - name: L1
    kind: cache
    capacity: {value: 4K, source: "a test"}
    line: {value: 64B, source: "a test"}
    ways: {value: 8, source: "a test"}
    policy: tree_plru
    prefetch:
      - {kind: next_line}
      - {kind: stride, degree: {value: 2, source: "assumed"}}
)yaml";

TEST(MachineBehaviour, IsReadAndWrittenBack) {
  const Machine m = machine_from_yaml(kBehaving, "mine.yaml");
  EXPECT_EQ(m.levels[0].rows, (DramRows{.row_bytes = 8192, .banks = 16}));
  const Level& l3 = m.levels[1];
  EXPECT_EQ(l3.policy, "qlru_h11_m1_r0_u0");
  EXPECT_EQ(l3.behaviour, (CacheBehaviour{.inclusion = Inclusion::victim,
                                          .clean_victims = 0.25,
                                          .write = WriteHit::through,
                                          .write_miss = WriteMiss::around,
                                          .index = Index::slices,
                                          .slices = 4}));
  EXPECT_EQ(l3.sources.at("clean_victims"), "measured");
  EXPECT_EQ(
      m.levels[2].behaviour.prefetch,
      (std::vector<Prefetch>{{.kind = PrefetchKind::next_line},
                             {.kind = PrefetchKind::stride, .degree = 2, .source = "assumed"}}));
  EXPECT_EQ(machine_from_yaml(to_yaml(m), "again"), m) << to_yaml(m);
  // What is not said is as it was before anything could be said.
  const Machine plain = parse_synthetic_machine("cache:4K/8");
  EXPECT_TRUE(plain.levels[1].behaviour.plain());
  EXPECT_EQ(plain.levels[1].policy, "lru");
  EXPECT_TRUE(as_scratchpad(m, id(m, "L3")).levels[1].behaviour.plain());
}

TEST(MachineBehaviour, WhatIsWrongIsSaidWithItsLine) {
  const auto refuses = [](const std::string& from, const std::string& to, const std::string& what) {
    std::string text = kBehaving;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    try {
      machine_from_yaml(text, "mine.yaml");
      ADD_FAILURE() << to << " was accepted";
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("mine.yaml:"), std::string::npos) << e.what();
    }
  };
  refuses("policy: tree_plru", "policy: plru", "policy");
  refuses("policy: tree_plru", "polcy: tree_plru", "policy");
  refuses("inclusion: victim", "inclusion: some", "exclusive");
  refuses("value: 0.25", "value: 1.25", "clean_victims");
  refuses("clean_victims: {value: 0.25, source: \"measured\"}", "clean_victims: 0.25", "source");
  refuses("write: through", "write: often", "through");
  refuses("write_miss: around", "write_miss: never", "validate");
  refuses("slices: {value: 4", "slices: {value: 3", "slices");
  refuses("index: slices\n", "index: modulo\n", "slices");
  refuses("kind: next_line", "kind: next", "next_line");
  refuses("degree: {value: 2", "degree: {value: 65", "degree");
  refuses("banks: {value: 16", "banks: {value: 100000", "banks");
  refuses("kind: home\n    row_buffer", "kind: home\n    policy: fifo\n    row_buffer", "policy");
}

TEST(MachineBehaviour, PoliciesWithAStateTakeUpTo64Ways) {
  Machine m = parse_synthetic_machine("cache:16K/128");
  m.levels[1].policy = "fifo";
  EXPECT_NO_THROW(check(m));
  m.levels[1].policy = "tree_plru";
  EXPECT_THROW(check(m), InputError);
  m = parse_synthetic_machine("cache:12K/4");
  m.levels[1].behaviour.index = Index::folded;  // 48 sets
  EXPECT_THROW(check(m), InputError);
}

TEST(Machine, CyclesOfInstructionsHaveSources) {
  const Machine v100 = named_machine("v100");
  const ComputeUnit& sm = v100.units.front();
  for (std::string_view c : instruction_classes()) {
    EXPECT_GT(sm.cycles.at(std::string(c)), 0) << c;
    EXPECT_FALSE(sm.sources.at("cycles." + std::string(c)).empty()) << c;
  }
  EXPECT_EQ(machine_from_yaml(to_yaml(v100), "t"), v100);
  std::string text = to_yaml(v100);
  text.replace(text.find("shuffle:"), 7, "shuffel");
  try {
    machine_from_yaml(text, "t");
    FAIL() << "accepted";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("not a class of instructions"), std::string::npos);
  }
}

}  // namespace
}  // namespace tilewright
