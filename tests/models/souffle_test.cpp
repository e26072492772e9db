// Souffle's classes, composition, partition, phases and barriers: on the networks it was shown on,
// and on graphs that nobody named, held against slow and obvious computations of the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/plan/file.h"
#include "core/plan/schedule.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "models/souffle/model.h"
#include "tests/support/drawn_graphs.h"

namespace tilewright::souffle {
namespace {

using ::testing::HasSubstr;

Question asked(const std::string& workload, const std::string& machine = "a100") {
  return {.name = workload,
          .workload = std::make_shared<const Workload>(workload.find('\n') == std::string::npos
                                                           ? named_workload(workload)
                                                           : workload_from_yaml(workload, "test")),
          .machine = std::make_shared<const Machine>(named_machine(machine))};
}

Planned plan_of(const std::string& workload, const Options& o = {},
                const std::string& machine = "a100") {
  Result<Planned> p = planned(asked(workload, machine), o);
  EXPECT_TRUE(p.ok()) << workload << ": " << (p.ok() ? "" : p.reason());
  return std::move(p).value();
}

int syncs_of(const Planned& p) {
  int n = 0;
  for (const KernelCount& k : p.counts.kernels) n += k.phases - 1;
  return n;
}

std::int64_t read_of(const Planned& p, const std::string& tensor) {
  return p.counts.tensors[p.workload->find_tensor(tensor)->index()].first.value;
}

/// Table 4's versions.
Options step(int to) {
  return {.horizontal = to >= 1,
          .concat = to >= 1,
          .pack = to >= 1,
          .vertical = to >= 2,
          .global_sync = to >= 3,
          .reuse = to >= 4};
}

std::string random_graph(int seed) {
  return "random-graph:rows=40,cols=64,seed=" + std::to_string(seed) +
         (seed % 3 == 0 ? ",indices=1" : "");
}

// ---- analysis
// ------------------------------------------------------------------------------------

TEST(Souffle, ClassesOfBert) {
  const Workload w = named_workload("bert");
  const Analysis a = analyse(w, {});
  std::size_t many = 0, intensive = 0;
  for (const Expression& e : a.of) many += e.many, intensive += e.intensive;
  EXPECT_EQ(a.of.size(), 240U);
  EXPECT_EQ(many, 156U);
  EXPECT_EQ(intensive, 96U);
  EXPECT_EQ(a.reused.size(), 60U);
}

TEST(Souffle, IntensityOfTheMix) {
  const Workload w = named_workload("mmoe");
  const Options ratio{.intensive = Intensive::ratio};
  const Expression mix = analyse(w, ratio).of[w.find_op("mix")->index()];
  EXPECT_EQ(mix.operations, 512);
  EXPECT_EQ(mix.elements, 176);
  EXPECT_FALSE(mix.intensive);
  EXPECT_TRUE(analyse(w, {.intensive = Intensive::ratio, .threshold = 2.9})
                  .of[w.find_op("mix")->index()]
                  .intensive);
}

/// Pairs of readers with a path between them, by walking the graph from each.
TEST(Souffle, ReuseInSpaceAndTime) {
  for (int seed = 1; seed <= 30; ++seed) {
    const Workload w = named_workload(random_graph(seed));
    const auto leads = [&w](OpId from, OpId to) {
      std::vector<OpId> next = {from};
      std::set<OpId> seen;
      while (!next.empty()) {
        const OpId at = next.back();
        next.pop_back();
        for (const Output& o : w.op(at).outputs)
          for (OpId r : w.consumers(o.target.tensor)) {
            if (r == to) return true;
            if (seen.insert(r).second) next.push_back(r);
          }
      }
      return false;
    };
    const Analysis a = analyse(w, {});
    std::size_t found = 0;
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      const auto readers = w.consumers(TensorId(t));
      if (readers.size() < 2) continue;
      std::int64_t in_time = 0, all = 0;
      for (OpId x : readers)
        for (OpId y : readers)
          if (x < y) ++all, in_time += leads(x, y) || leads(y, x);
      ASSERT_LT(found, a.reused.size());
      EXPECT_EQ(a.reused[found].tensor, TensorId(t)) << seed;
      EXPECT_EQ(a.reused[found].in_time, in_time) << seed;
      EXPECT_EQ(a.reused[found].in_space, all - in_time) << seed;
      ++found;
    }
    EXPECT_EQ(found, a.reused.size());
  }
}

/// Figure 4: relu, a strided slice of columns, a transpose. The printed order reads elsewhere.
TEST(Souffle, MapsCompose) {
  const IndexMap slice{{{1, 0}, {0, 2}}, {0, 1}}, transpose{{{0, 1}, {1, 0}}, {0, 0}};
  const IndexMap both = *composed(slice, transpose);
  EXPECT_EQ(both, (IndexMap{{{0, 1}, {2, 0}}, {0, 1}}));
  EXPECT_NE(*composed(transpose, slice), both);
  std::mt19937 draw(5);
  const auto number = [&draw] { return static_cast<std::int64_t>(draw() % 7) - 3; };
  const auto apply_to = [](const IndexMap& m, const std::vector<std::int64_t>& v) {
    std::vector<std::int64_t> out = m.offset;
    for (std::size_t r = 0; r < m.matrix.size(); ++r)
      for (std::size_t c = 0; c < v.size(); ++c) out[r] += m.matrix[r][c] * v[c];
    return out;
  };
  for (int i = 0; i < 200; ++i) {
    const auto map = [&](std::size_t rows, std::size_t columns) {
      IndexMap m;
      for (std::size_t r = 0; r < rows; ++r) {
        m.matrix.emplace_back();
        for (std::size_t c = 0; c < columns; ++c) m.matrix.back().push_back(number());
        m.offset.push_back(number());
      }
      return m;
    };
    const std::size_t a = 1 + draw() % 3, b = 1 + draw() % 3, c = 1 + draw() % 3;
    const IndexMap inner = map(a, b), outer = map(b, c);
    std::vector<std::int64_t> v;
    for (std::size_t k = 0; k < c; ++k) v.push_back(number());
    EXPECT_EQ(apply_to(*composed(inner, outer), v), apply_to(inner, apply_to(outer, v)));
  }
  EXPECT_FALSE(composed(IndexMap{{{1}}, {0}}, slice));
}

// ---- partition
// -------------------------------------------------------------------------------------

TEST(Souffle, WhatIsFeasible) {
  const Device d{.sms = 108, .registers = 65536, .shared = Bytes(164 * 1024), .blocks = 32};
  const auto tile = [](std::int64_t blocks, std::int64_t threads, std::int64_t registers,
                       std::int64_t shared) {
    return std::vector<Tile>{
        {.blocks = blocks, .threads = threads, .registers = registers, .shared = Bytes(shared)}};
  };
  EXPECT_TRUE(feasible(d, {}, tile(216, 256, 128, 1024)));  // two a multiprocessor, by registers
  EXPECT_FALSE(feasible(d, {}, tile(217, 256, 128, 1024)));
  EXPECT_FALSE(feasible(d, {.bound = Bound::strict}, tile(216, 256, 128, 1024)));
  EXPECT_TRUE(feasible(d, {}, tile(108, 256, 255, 164 * 1024)));
  EXPECT_FALSE(feasible(d, {}, tile(109, 256, 32, 90 * 1024)));
  EXPECT_FALSE(feasible(d, {}, tile(109, 1025, 32, 0)));  // threads
  // Of all multiprocessors together, 90 KB of 164 are less than one block each.
  EXPECT_TRUE(feasible(d, {.criterion = Criterion::total}, tile(109, 256, 32, 90 * 1024)));
  EXPECT_TRUE(feasible(d, {}, {}));
}

/// Every operator once, no operator before what it reads, and no subprogram that is not feasible
/// but one that has a single intensive operator.
TEST(Souffle, PartitionsAreInOrder) {
  for (const std::string& name :
       {std::string("bert:layers=2"), std::string("bert-large:layers=2"),
        std::string("transformer-block:tokens=300"), std::string("lstm:steps=5,layers=3"),
        random_graph(4), random_graph(6)})
    for (const Order order : {Order::topological, Order::bfs})
      for (const Criterion criterion : {Criterion::per_sm, Criterion::total}) {
        const Question q = asked(name);
        const Workload& w = *q.workload;
        const Options o{.criterion = criterion, .order = order};
        const Device d = *device_of(*q.machine, w.dtype(), {});
        const Analysis a = analyse(w, o);
        TileTable table;
        std::set<OpId> before;
        for (const Subprogram& s : partition(w, a, d, o)) {
          std::vector<Tile> tiles;
          for (OpId id : s.ops) {
            for (const Access& in : w.op(id).inputs) {
              const OpId p = w.producer(in.tensor);
              EXPECT_TRUE(!p.valid() || before.contains(p)) << name;
            }
            EXPECT_TRUE(before.insert(id).second);
            if (a.of[id.index()].intensive) tiles.push_back(schedule_of(d, w, id, o, table));
          }
          EXPECT_TRUE(tiles.size() < 2 || feasible(d, o, tiles)) << name;
        }
        EXPECT_EQ(before.size(), w.operators().size());
      }
}

// ---- phases
// ----------------------------------------------------------------------------------------

TEST(Souffle, ABertLayerIsTheArtifacts) {
  const Planned p = plan_of("bert:layers=1,dtype=f16", {.concat = false});
  ASSERT_EQ(p.plan.kernels.size(), 1U);
  EXPECT_EQ(p.counts.kernels[0].phases, 9);
  std::vector<std::vector<std::string>> nests;
  for (const Nest& n : p.programs[0].nests) {
    nests.emplace_back();
    for (OpId id : n.ops()) nests.back().push_back(p.workload->op(id).name);
  }
  EXPECT_EQ(nests, (std::vector<std::vector<std::string>>{{"q1", "k1", "v1"},
                                                          {"qk1", "exp1", "rowsum1"},
                                                          {"share1"},
                                                          {"pv1"},
                                                          {"proj1", "add1", "sum1", "sumsq1"},
                                                          {"norm1"},
                                                          {"fc11", "relu1"},
                                                          {"fc21", "addf1", "sumf1", "sumsqf1"},
                                                          {"normf1"}}));
  EXPECT_EQ(p.counts.kernels[0].kept, (std::vector<std::string>{"C1", "F1", "P1"}));
  EXPECT_EQ(syncs_of(plan_of("bert:dtype=f16", {.split = Split::none})), 107);
}

TEST(Souffle, StepsOfTable4) {
  std::vector<std::size_t> kernels;
  for (int to = 0; to <= 4; ++to)
    kernels.push_back(plan_of("bert:layers=1,dtype=f16", step(to)).plan.kernels.size());
  EXPECT_EQ(kernels, (std::vector<std::size_t>{20, 16, 9, 1, 1}));
}

TEST(Souffle, TheLstmReadsItsWeightsOnce) {
  for (const char* form :
       {"lstm:steps=12,layers=4,hidden=64", "lstm:steps=12,layers=4,hidden=64,wavefront=1"}) {
    const Planned p = plan_of(form, {}, "h200");
    EXPECT_EQ(p.plan.kernels.size(), 1U);
    EXPECT_EQ(syncs_of(p), 12 + 4 - 2) << form;
    EXPECT_EQ(read_of(p, "W") + read_of(p, "U"), 2 * 4 * 4 * 64 * 64 * 4) << form;
    Options o;
    o.reuse = false;
    EXPECT_GE(read_of(plan_of(form, o, "h200"), "W"), 12 * 4 * 64 * 64 * 4) << form;
  }
  const Planned p = plan_of("lstm:wavefront=1", {}, "h200");
  EXPECT_EQ(syncs_of(p), 108);
  EXPECT_EQ(read_of(p, "W") + read_of(p, "U"), 20971520);
}

TEST(Souffle, ExpertsAndModules) {
  const Planned mmoe = plan_of("mmoe");
  EXPECT_EQ(mmoe.plan.kernels.size(), 1U);
  EXPECT_EQ(syncs_of(mmoe), 1);
  EXPECT_EQ(mmoe.workload->compulsory_bytes().value - 2 * 16 * 4, 58000);
  const Planned module = plan_of("se-module/M0");
  EXPECT_EQ(module.plan.kernels.size(), 1U);
  EXPECT_EQ(syncs_of(module), 2);
  EXPECT_EQ(read_of(module, "X"), 1605632);
}

/// Barriers alone read X again: its tile is dropped before each.
TEST(Souffle, WithoutReuseTilesAreLoadedAgain) {
  for (const int m : {0, 5, 9}) {
    const std::string module = "se-module/M" + std::to_string(m);
    const Planned reused = plan_of(module, {}, "h200");
    Options o;
    o.reuse = o.pipeline = false;
    const Planned again = plan_of(module, o, "h200");
    EXPECT_EQ(again.plan.kernels.size(), 1U);
    EXPECT_EQ(syncs_of(again), syncs_of(reused));
    EXPECT_EQ(read_of(again, "X"), 2 * read_of(reused, "X")) << module;
    EXPECT_TRUE(again.counts.kernels[0].kept.empty()) << module;
    const Result<Schedule> s = resolve(again.plan, again.workload, asked(module, "h200").machine);
    ASSERT_TRUE(s.ok()) << s.reason();
    std::int64_t read = 0;
    for (const TrafficEntry& e : exact(*s).entries)
      if (e.tensor == "X" && e.boundary.starts_with("L2/")) read += e.read.value;
    EXPECT_EQ(read, read_of(again, "X"));
  }
}

/// On any graph: what a nest reads of another of its kernel was made in an earlier phase, no phase
/// is empty, every operator is computed once, and resolve takes every kernel.
/// Rows of windows, caches that grow, shuffles: every operator in one kernel, and every kernel
/// fits.
TEST(Souffle, NetworksArePlanned) {
  // Whole on one machine each; on the others with few of the blocks that repeat.
  const bool all = std::getenv("TILEWRIGHT_LONG") != nullptr;
  const std::vector<std::pair<std::string, std::string>> networks = {
      {"swin-b", "blocks=2"},       {"gpt2", "layers=2"},       {"shufflenet-v2", "blocks=2"},
      {"rednet50", "blocks=2"},     {"resnext101", "blocks=2"}, {"efficientnet-b0", "blocks=2"},
      {"vit-b16", "layers=2"},      {"sar-drn", "channels=32"}, {"bert-large", "layers=3"},
      {"lstm:steps=20", "layers=3"}};
  for (std::size_t n = 0; n < networks.size(); ++n)
    for (std::size_t m = 0; m < 3; ++m) {
      const char* const machine = std::array{"a100", "h200", "rtx3080"}[m];
      const auto& [name, fewer] = networks[n];
      const bool whole = all || n % 3 == m;
      const char* const join = name.find(':') == std::string::npos ? ":" : ",";
      const std::string network = whole ? name : name + join + fewer;
      const Planned p = plan_of(network, {}, machine);
      std::vector<int> computed(p.workload->operators().size(), 0);
      for (const Program& program : p.programs)
        for (const Nest& n : program.nests)
          for (OpId id : n.ops()) ++computed[id.index()];
      EXPECT_THAT(computed, ::testing::Each(1)) << network << " on " << machine;
      const Result<Schedule> s =
          resolve(p.plan, p.workload, std::make_shared<const Machine>(named_machine(machine)));
      EXPECT_TRUE(s.ok()) << network << " on " << machine << ": " << s.reason();
    }
}

/// Barriers of the plan, after all that holds of any.
int check_phases(const std::string& graph, const Options& o) {
  const Planned p = plan_of(graph, o);
  const Workload& w = *p.workload;
  std::set<OpId> computed;
  int barriers = 0;
  for (const Program& program : p.programs) {
    std::map<OpId, std::pair<int, std::size_t>> at;  // phase, nest
    std::set<int> phases;
    for (std::size_t n = 0; n < program.nests.size(); ++n)
      for (OpId id : program.nests[n].ops()) {
        EXPECT_TRUE(computed.insert(id).second);
        at[id] = {program.nests[n].phase, n};
        phases.insert(program.nests[n].phase);
      }
    EXPECT_EQ(static_cast<int>(phases.size()), program.phases);
    EXPECT_EQ(*phases.rbegin(), program.phases - 1);
    for (const auto& [id, place] : at)
      for (const Access& a : w.op(id).inputs)
        if (const auto from = at.find(w.producer(a.tensor));
            from != at.end() && from->second.second != place.second) {
          // A phase before, or the same blocks before in the same phase.
          const auto [phase, nest] = from->second;
          const std::vector<Cut>& grid = program.nests[place.second].grid;
          EXPECT_TRUE(phase < place.first ||
                      (phase == place.first && nest < place.second &&
                       program.nests[nest].grid == grid && reads_own_tile(w, grid, a, from->first)))
              << graph << " " << w.op(id).name;
        }
    barriers += program.phases - 1;
  }
  EXPECT_EQ(computed.size(), w.operators().size());
  const Result<Schedule> s = resolve(p.plan, p.workload, asked("gemm").machine);
  EXPECT_TRUE(s.ok()) << graph << ": " << (s.ok() ? "" : s.reason());
  return barriers;
}

TEST(Souffle, PhasesOfRandomGraphs) {
  int barriers = 0;
  for (int seed = 1; seed <= 80; ++seed)
    for (int to = 0; to <= 4; ++to) {
      Options o = step(to);
      o.units = seed % 2 == 0;  // kernels that need no barrier, and tiles with barriers
      barriers += check_phases(random_graph(seed), o);
    }
  EXPECT_GT(barriers, 60);
}

/// Products, batched ones, sums over several dimensions, transposes, shifts, lookups, two outputs:
/// also their classes and reuse, against the notation.
TEST(Souffle, PhasesOfDrawnGraphs) {
  int barriers = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string text = testing::GraphDrawer(seed).text(4 + static_cast<int>(seed % 9));
    for (int to = 0; to <= 4; ++to) barriers += check_phases(text, step(to));
    const Workload w = workload_from_yaml(text, "test");
    const Analysis a = analyse(w, {});
    for (std::size_t i = 0; i < w.operators().size(); ++i) {
      const Operator& op = w.operators()[i];
      // A loop that no target has is summed; a product has two inputs and a "*" between them.
      bool many = false;
      for (LoopId l : op.loops)
        many = many || std::ranges::none_of(op.outputs, [&](const Output& o) {
                 return std::ranges::any_of(o.target.index, [&](const Affine& f) {
                   return std::ranges::any_of(f.terms, [&](const Term& t) { return t.loop == l; });
                 });
               });
      EXPECT_EQ(a.of[i].many, many) << op.name;
      EXPECT_EQ(a.of[i].intensive, many && op.inputs.size() == 2) << op.name;
    }
    for (const Reused& r : a.reused) EXPECT_GT(r.readers.size(), 1U);
  }
  EXPECT_GT(barriers, 40);
}

/// Rows of a tensor in one phase, columns in the next: each shape has a place, so that both are one
/// kernel where the longest tile by the widest would have no room.
TEST(Souffle, RowsThenColumnsOfOneTensor) {
  const auto machine = std::make_shared<const Machine>(named_machine("h200"));
  const auto turn = [](int rows) {
    const std::string size = std::to_string(rows);
    return "name: turn\nloops: {r: " + size + ", c: 2688}\noperators:\n" +
           "  - \"f: T[r,c] = exp(X[r,c])\"\n  - \"s: S[r] += T[r,c]\"\n" +
           "  - \"g: G[r,c] = T[r,c] * S[r]\"\n  - \"t: U[c] += G[r,c]\"\n" +
           "  - \"o: O[r,c] = G[r,c] - U[c]\"\n";
  };
  for (const std::string& graph :
       {turn(40), turn(5299),
        std::string("random-graph:vertices=6,rows=5299,cols=2688,seed=659")}) {
    const Planned p = plan_of(graph, {}, "h200");
    EXPECT_EQ(p.plan.kernels.size(), 1U) << graph;
    const Result<Schedule> s = resolve(p.plan, p.workload, machine);
    ASSERT_TRUE(s) << graph << ": " << s.reason();
    const auto why = misfit(*s);
    EXPECT_FALSE(why) << graph << ": " << why->text;
  }
}

/// Tiles that are remembered are those that would be chosen: of products alike but for names, and
/// of ones that differ in a single extent, type or index.
TEST(Souffle, RememberedTilesAreTheChosenOnes) {
  const auto of = [](const std::string& text) { return workload_from_yaml(text, "test"); };
  const auto device = [](const Workload& w) {
    return *device_of(named_machine("h200"), w.dtype(), {});
  };
  TileTable table;
  std::mt19937 draw(3);
  for (int i = 0; i < 24; ++i) {
    const std::string m = std::to_string(16 << draw() % 3), n = std::to_string(64 << draw() % 2),
                      type = draw() % 2 == 0 ? "f16" : "f32", b = i % 3 == 0 ? "b,n" : "n,b";
    const Workload w = of("name: t\ndtype: " + type + "\nloops: {m: " + m + ", n: " + n +
                          ", b: 96}\noperators:\n  - \"p: P[m,n] += X[m,b] * W[" + b + "]\"\n");
    const Device d = device(w);
    const Slice one[] = {{.op = OpId(0)}};
    const TileAsked asked{.most_blocks = draw() % 2 == 0 ? 132 : 0, .warps = kWarps};
    const std::vector<Tile> known = table.of(d, w, one, asked),
                            chosen = product_tiles(d, w, one, asked);
    ASSERT_EQ(known.size(), chosen.size());
    for (std::size_t t = 0; t < known.size(); ++t) {
      EXPECT_EQ(known[t].grid, chosen[t].grid);
      EXPECT_EQ(known[t].inner, chosen[t].inner);
      EXPECT_EQ(known[t].shared, chosen[t].shared);
    }
  }
}

/// What a transform does, on graphs drawn for it: off, it is nowhere; on, each of its kernels keeps
/// its rules, and some have it.
TEST(Souffle, ConcatenationAndPacks) {
  int concatenated = 0, packed = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string text = testing::drawn_branches(seed);
    for (const bool concat : {false, true})
      for (const bool pack : {false, true})
        for (const int to : {1, 2, 4}) {
          Options o = step(to);
          o.concat = concat;
          o.pack = pack;
          o.units = false;  // tiles alone are packed here
          check_phases(text, o);
          const Planned p = plan_of(text, o, "h200");
          for (const Program& program : p.programs)
            for (std::size_t i = 0; i < program.nests.size(); ++i)
              for (std::size_t j = 0; j < i; ++j) {
                const Nest &a = program.nests[j], &b = program.nests[i];
                if (a.phase != b.phase) continue;
                if (a.unit != b.unit) continue;
                const bool apart = a.first + a.blocks <= b.first || b.first + b.blocks <= a.first;
                EXPECT_TRUE(apart || (a.first == 0 && b.first == 0));
                // Columns of one product: tiles of one size.
                const bool wide = !pack && apart;
                packed += pack && apart;
                concatenated += wide;
                EXPECT_TRUE(!wide || concat);
                EXPECT_TRUE(!wide || a.grid.front() == b.grid.front());  // of rows
                if (wide && a.grid.size() > 1 && b.grid.size() > 1) {
                  const auto whole = [&p](const Cut& c) { return !is_cut(*p.workload, c); };
                  EXPECT_TRUE(a.grid[1].step == b.grid[1].step || whole(a.grid[1]) ||
                              whole(b.grid[1]));
                }
              }
        }
  }
  EXPECT_GT(concatenated, 8);
  EXPECT_GT(packed, 8);
}

/// A long sum of few results is cut among blocks, and not where that is off; what it moves is what
/// `exact` counts of the same plan.
TEST(Souffle, SumsInParts) {
  int cut = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string text = testing::drawn_branches(seed);
    for (const Reduction reduction : {Reduction::split, Reduction::atomic, Reduction::local})
      for (const int to : {2, 4}) {
        Options o = step(to);
        o.reduction = reduction;
        o.units = false;  // tiles alone
        check_phases(text, o);
        const Planned p = plan_of(text, o, "h200");
        const Workload& w = *p.workload;
        const Result<Schedule> s = resolve(p.plan, p.workload, asked(text, "h200").machine);
        ASSERT_TRUE(s.ok()) << s.reason();
        std::map<std::string, std::int64_t> written;
        for (const TrafficEntry& e : exact(*s).entries)
          if (e.boundary.starts_with("L2/")) written[e.tensor] += e.written.value;
        for (const Program& program : p.programs)
          for (const Nest& n : program.nests)
            for (const Nest::Sum& sum : n.sums)
              for (const Cut& c : n.grid) {
                if (!is_cut(w, c) || !w.is_reduction(sum.op, c.loop)) continue;
                EXPECT_EQ(reduction, Reduction::split);
                ++cut;
                const Tensor& t = w.tensor(w.op(sum.op).outputs.front().target.tensor);
                const std::int64_t parts = ceil_div(w.loop(c.loop).extent, c.step);
                EXPECT_EQ(written[t.name], (parts + 1) * t.bytes().value);
                EXPECT_EQ(p.counts.tensors[w.find_tensor(t.name)->index()].second.value,
                          written[t.name]);
              }
      }
  }
  EXPECT_GT(cut, 8);
}

TEST(Souffle, RefusesWhatItCannotSay) {
  const Result<Planned> running = planned(asked("attention:online=1"), {});
  ASSERT_FALSE(running.ok());
  EXPECT_THAT(running.reason(), HasSubstr("running"));
  const Result<Planned> cpu = planned(asked("mmoe", "xeon-gold-6240"), {});
  ASSERT_FALSE(cpu.ok());
  EXPECT_THAT(cpu.reason(), HasSubstr("Souffle plans for GPUs"));
}

/// Any plan has a price: here another model's shape of kernels, by hand.
/// Slices of one tensor, which no loop tells apart, are tiles of their own, whether the plan says
/// where they are loaded or not.
TEST(Souffle, SlicesAreReadWhetherOrNotTheirLoadsAreWritten) {
  for (const char* name : {"lstm-cell:batch=3,hidden=5,dtype=bf16", "swiglu:rows=7,cols=9",
                           "rotary:tokens=5,heads=3,half=4", "shuffle-unit:channels=4,size=6"}) {
    SCOPED_TRACE(name);
    const Planned p = plan_of(name);
    const auto s =
        resolve(p.plan, p.workload, std::make_shared<const Machine>(named_machine("a100")));
    ASSERT_TRUE(s.ok()) << s.reason();
    const PlanCount again = count(*p.workload, p.device, Options{}, s->resolved);
    EXPECT_EQ(again.read().value, p.counts.read().value);
    Bytes moved;
    for (const auto& [read, written] : again.tensors) moved += read + written;
    EXPECT_GE(moved.value, p.workload->compulsory_bytes().value);
    EXPECT_DOUBLE_EQ(again.seconds(), p.counts.seconds());
  }
}

/// Two sums over one operand, in two phases: it is held whole while the sums are walked.
TEST(Souffle, OperandOfSeveralSumsIsHeld) {
  const std::string text =
      "name: lora\ndtype: f16\nloops: {r: 1, m: 3, n: 1, k: 5536}\noperators:\n"
      "  - \"base: Y[m,n] += X[m,k] * W[n,k]\"\n  - \"down: D[m,r] += X[m,k] * A[r,k]\"\n"
      "  - \"up: U[m,n] += D[m,r] * B[n,r]\"\n  - \"out: Z[m,n] = Y[m,n] + 0.5 * U[m,n]\"\n";
  for (const char* machine : {"a100", "h100", "rtx3080"})
    EXPECT_GT(plan_of(text, {}, machine).counts.kernels.size(), 0U) << machine;
}

TEST(Souffle, PricesAPlanByHand) {
  const Question q = asked("gemm-chain:m=64,n=64,k=64,l=64,dtype=f16");
  const Device d = *device_of(*q.machine, DType::f16, {});
  Plan plan;
  plan.kernels.push_back({.tree = parse_tree("m/32@grid ( L.A L.B C.gemm1 S.C ) Y.grid m/32@grid "
                                             "n/32@grid ( L.C L.D C.gemm2 S.E )")});
  const PlanCount c = count(*q.workload, d, {.launch_us = 3, .sync_us = 2}, plan);
  ASSERT_EQ(c.kernels.size(), 1U);
  EXPECT_EQ(c.kernels[0].phases, 2);
  const std::int64_t tensor = 64 * 64 * 2;
  EXPECT_EQ(c.kernels[0].read.value, 4 * tensor);  // A and B, then C and D
  EXPECT_EQ(c.kernels[0].written.value, 2 * tensor);
  EXPECT_GT(c.seconds(), 5e-6);
}

// ---- the rewrite
// -----------------------------------------------------------------------------------

TEST(ShareLoops, ProductsOfOneTensor) {
  for (const char* name : {"bert:layers=2,seq=6,hidden=8,heads=2,ffn=10",
                           "bert:layers=1,seq=5,hidden=8,heads=4,ffn=6,standard=1"}) {
    const Workload before = named_workload(name);
    const Result<Workload> after = tilewright::apply("share-loops", before);
    ASSERT_TRUE(after.ok()) << after.reason();
    EXPECT_LT(check_rewrite(before, *after, 3).relative_error, 1e-12);
    const auto loops = [&](const char* op) {
      return std::set<LoopId>(after->op(*after->find_op(op)).loops.begin(),
                              after->op(*after->find_op(op)).loops.end());
    };
    EXPECT_EQ(loops("q1"), loops("k1"));
    EXPECT_EQ(loops("q1"), loops("v1"));
  }
  const Result<Workload> none =
      tilewright::apply("share-loops", named_workload("gemm-chain:m=8,n=8,k=8,l=8"));
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.reason(), HasSubstr("no two products"));
}

/// A reader whose shape differs keeps its loops; a readers' loops follow only whole dimensions.
TEST(ShareLoops, OthersStayAsTheyAre) {
  const std::string text =
      "name: t\nloops: {a: 5, b: 6, c: 7, d: 5, e: 6, g: 4}\noperators:\n"
      "  - \"p: P[a,b] += X[a,c] * U[c,b]\"\n  - \"q: Q[d,e] += X[d,c] * V[c,e]\"\n"
      "  - \"r: R[d,g] += X[d,c] * T[c,g]\"\n  - \"s: S[d,e] = relu(Q[d,e])\"\n  - \"z: Z[g,e] = "
      "Q[g+1,e]\"\n";
  const Workload before = workload_from_yaml(text, "test");
  const Result<Workload> after = tilewright::apply("share-loops", before);
  ASSERT_TRUE(after.ok()) << after.reason();
  EXPECT_LT(check_rewrite(before, *after, 3).relative_error, 1e-12);
  EXPECT_EQ(to_text(*after, *after->find_op("q")), "q: Q[a,b] += X[a,c] * V[c,b]");
  EXPECT_EQ(to_text(*after, *after->find_op("s")), "s: S[a,b] = relu(Q[a,b])");
  EXPECT_EQ(to_text(*after, *after->find_op("z")), "z: Z[g,e] = Q[g+1,e]");
  EXPECT_EQ(to_text(*after, *after->find_op("r")), "r: R[d,g] += X[d,c] * T[c,g]");
}

}  // namespace
}  // namespace tilewright::souffle
