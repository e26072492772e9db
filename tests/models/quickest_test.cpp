// The planner: are partitions the best there are where all can be counted, plans the same each
// time, and bytes those of a count by hand?
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "core/workload/cut.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "models/quickest/partition.h"
#include "tests/models/planner_support.h"

namespace tilewright::quickest {
namespace {

/// Seconds that are drawn for a group from its operators alone: no structure that a search could
/// use.
double drawn_seconds(const Part& ops, std::uint64_t seed) {
  std::uint64_t h = seed;
  for (OpId op : ops) h = (h ^ static_cast<std::uint64_t>(op.value + 1)) * 0x9e3779b97f4a7c15u;
  std::mt19937_64 random(h);
  return static_cast<double>(ops.size()) * (0.5 + static_cast<double>(random() % 1000) / 1000);
}

struct Brute {
  const Workload& w;
  std::uint64_t seed;
  double best = 1e300;

  bool connected(const Part& ops) const {
    std::vector<bool> in(w.operators().size(), false), seen = in;
    for (OpId op : ops) in[op.index()] = true;
    std::vector<OpId> open{ops.front()};
    seen[ops.front().index()] = true;
    std::size_t met = 0;
    while (!open.empty()) {
      const OpId at = open.back();
      open.pop_back();
      ++met;
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (!in[i] || seen[i]) continue;
        bool edge = false;
        for (const auto& [a, b] : {std::pair{at, OpId(i)}, std::pair{OpId(i), at}})
          for (const Access& x : w.op(b).inputs) edge = edge || w.producer(x.tensor) == a;
        if (edge) seen[i] = true, open.emplace_back(i);
      }
    }
    return met == ops.size();
  }
  bool acyclic(const std::vector<Part>& parts) const {
    std::map<OpId, std::size_t> of;
    for (std::size_t p = 0; p < parts.size(); ++p)
      for (OpId op : parts[p]) of[op] = p;
    std::vector<bool> done(parts.size(), false);
    for (std::size_t round = 0; round < parts.size(); ++round)
      for (std::size_t p = 0; p < parts.size(); ++p) {
        bool ready = true;
        for (OpId op : parts[p])
          for (const Access& x : w.op(op).inputs)
            if (const OpId m = w.producer(x.tensor); m.valid() && of[m] != p)
              ready = ready && done[of[m]];
        if (ready) done[p] = true;
      }
    return std::ranges::count(done, true) == static_cast<long>(parts.size());
  }
  /// Every way to put operator `next` and those behind it into parts.
  void go(std::size_t next, std::vector<Part>& parts) {
    if (next == w.operators().size()) {
      double total = 0;
      for (const Part& p : parts) {
        if (p.size() > 1 && (!connected(p) || no_subgraph(w, p))) return;
        total += drawn_seconds(p, seed);
      }
      if (total < best && acyclic(parts)) best = total;
      return;
    }
    for (std::size_t p = 0; p < parts.size(); ++p) {
      parts[p].emplace_back(next);
      go(next + 1, parts);
      parts[p].pop_back();
    }
    parts.push_back({OpId(next)});
    go(next + 1, parts);
    parts.pop_back();
  }
};

/// Rewrites that no part of a random graph takes: none's plan is then that of another.
const std::vector<std::string> kSoftmax = {"scale-late", "online-softmax"};

TEST(Planner, PartitionsOfSmallGraphsAreTheBestThereAre) {
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const Ptr w = workload("random-graph:vertices=" + std::to_string(3 + seed % 3) +
                           ",rows=8,cols=8,reach=3,seed=" + std::to_string(seed));
    if (w->operators().size() > 7) continue;
    Brute brute{*w, seed};
    std::vector<Part> parts;
    brute.go(0, parts);
    Partitioner search(w, [&](const Group& g) {
      Best b{.seconds = drawn_seconds(g.ops, seed)};
      b.rewrites = kSoftmax;  // equal structure is no equal price here
      return std::optional(b);
    });
    const Result<Partition> found = search.run(asked(w));
    ASSERT_TRUE(found.ok()) << "seed " << seed << ": " << found.reason();
    EXPECT_TRUE(found->exact);
    EXPECT_NEAR(found->seconds, brute.best, 1e-9 * brute.best) << "seed " << seed;
    ++checked;
  }
  EXPECT_GE(checked, 4);
}

/// Layers alike are looked up once, also where their plans are of rewritten operators.
TEST(Planner, PartsOfOneStructureAreLookedForOnceAlsoWhereTheyAreRewritten) {
  const Ptr w = workload("bert:layers=3,seq=32,hidden=32,heads=2,ffn=64,standard=1");
  std::map<std::string, int> times;
  Partitioner search(w, [&](const Group& g) {
    Best b{.seconds = g.ops.size() > 1 ? 100.0 : 1.0};
    if (rewritten(g.workload, kSoftmax) != nullptr) {
      b.seconds = 0.5;  // attention alone is worth joining
      b.rewrites = kSoftmax;
      ++times[signature(*g.workload)];
    }
    return std::optional(b);
  });
  const Result<Partition> found = search.run(asked(w));
  ASSERT_TRUE(found.ok()) << found.reason();
  EXPECT_FALSE(times.empty());
  for (const auto& [shape, n] : times) EXPECT_EQ(n, 1) << shape;
}

/// What depends on nothing that a run is given is computed before all runs, where it is alone.
TEST(Planner, WhatIsComputedOnceIsAPartOfItsOwn) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: scaled\nloops: {i: 8, j: 8}\ntensors: {X: [i, j]}\noperators:\n"
      "  - K[i,j] = 0.5\n  - Y[i,j] = X[i,j] * K[i,j]\n  - Z[i,j] = relu(Y[i,j])\n",
      "test"));
  const auto find = [](const Group& g) {  // launches cost most
    return std::optional(
        Best{.seconds = 1 + 0.1 * static_cast<double>(g.ops.size()), .rewrites = kSoftmax});
  };
  const Result<Partition> each = Partitioner(w, find).run(asked(w)),
                          once = Partitioner(w, find, {}, {}, constant_operators(*w)).run(asked(w));
  ASSERT_TRUE(each.ok() && once.ok());
  EXPECT_EQ(each->groups.size(), 1u);
  ASSERT_EQ(once->groups.size(), 2u);
  EXPECT_EQ(once->groups.front().ops, Part{*w->find_op("K")});
  EXPECT_DOUBLE_EQ(once->seconds, 1.2);
}

/// Where groups are too many to count, none is left whose join would gain.
TEST(Planner, NoTwoPartsOfALargerGraphWouldGain) {
  const Ptr w = workload("random-graph:vertices=18,rows=8,cols=8,reach=4,seed=5");
  ASSERT_GT(w->operators().size(), 7u);
  Partitioner search(w, [&](const Group& g) {
    Best b{.seconds = drawn_seconds(g.ops, 3)};
    b.rewrites = kSoftmax;
    return std::optional(b);
  });
  const Result<Partition> found = search.run(asked(w));
  ASSERT_TRUE(found.ok()) << found.reason();
  std::vector<int> times(w->operators().size(), 0);
  for (const Group& g : found->groups)
    for (OpId op : g.ops) ++times[op.index()];
  EXPECT_EQ(std::ranges::count(times, 1), static_cast<long>(times.size()));
  double single = 0;
  for (std::size_t i = 0; i < w->operators().size(); ++i) single += drawn_seconds({OpId(i)}, 3);
  EXPECT_LE(found->seconds, single);
}

/// Parts of late and of early operators lie on ways between others: whoever looks at places of
/// operators alone joins parts that then wait for one another.
TEST(Planner, NoPartsOfALargerGraphWaitForOneAnother) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Ptr w =
        workload("random-graph:vertices=70,rows=8,cols=8,reach=34,seed=" + std::to_string(seed));
    Partitioner search(w, [&](const Group& g) {
      Best b{.seconds = 1 + 0.01 * drawn_seconds(g.ops, seed)};  // launches cost most
      b.rewrites = kSoftmax;
      return std::optional(b);
    });
    const Result<Partition> found = search.run(asked(w));
    ASSERT_TRUE(found.ok()) << found.reason();
    std::vector<Part> parts;
    for (const Group& g : found->groups) parts.push_back(g.ops);
    EXPECT_LT(parts.size(), w->operators().size());
    EXPECT_TRUE((Brute{*w, seed}.acyclic(parts))) << "seed " << seed;
  }
}

TEST(Planner, EqualQuestionsHaveEqualAnswers) {
  for (const char* w :
       {"gemm:m=100,n=300,k=77", "gemm-chain:m=96,l=80,k=40,n=72,relu=1",
        "layernorm:rows=64,cols=96", "transformer-block:tokens=16,heads=2,size=8,hidden=32"}) {
    const Question q = question(w, "epyc-zen5", 2);
    const Result<Proposal> a = planner().propose(q, standard()),
                           b = planner().propose(q, standard());
    ASSERT_TRUE(a.ok() && b.ok()) << w << (a.ok() ? "" : a.reason());
    EXPECT_EQ(a->plan, b->plan) << w;
    const auto s = resolve(a->plan, q.workload, q.machine);
    ASSERT_TRUE(s.ok()) << w << s.reason();
    EXPECT_GT(*a->price.traffic.seconds, 0) << w;
    // The plan's price is the sum that it was chosen by.
    if (!a->rewrites.empty()) continue;
    const Result<Price> price = planner().price(q, a->plan, standard());
    ASSERT_TRUE(price.ok()) << w;
    EXPECT_NEAR(*price->traffic.seconds, *a->price.traffic.seconds, 1e-12) << w;
  }
}

TEST(Planner, EveryBuiltInWorkloadHasAPlanOnAProcessor) {
  const bool all = std::getenv("TILEWRIGHT_LONG") != nullptr;
  int planned = 0;
  for (const char* w : {"gemm",
                        "gemm-chain3",
                        "attention",
                        "attention:online=1",
                        "attention:causal=1,m=64,l=64",
                        "softmax",
                        "layernorm",
                        "conv-chain",
                        "conv1d-chain",
                        "gelu",
                        "batchnorm",
                        "groupnorm",
                        "adam",
                        "lstm-cell",
                        "masked-softmax",
                        "squeeze-excite",
                        "rotary",
                        "column-norm",
                        "cross-entropy",
                        "rmsnorm",
                        "swiglu",
                        "transformer-block",
                        "layernorm-backward",
                        "rmsnorm-backward",
                        "residual-layernorm",
                        "attention-unit",
                        "add-layernorm-gelu",
                        "mmoe",
                        "bert:layers=12",
                        "vit-b16",
                        "gpt2:layers=2"}) {
    const Question q = question(w, "epyc-zen5");
    if (q.workload->operators().size() > 30 && !all) continue;
    const Result<Proposal> p = planner().propose(q, standard());
    EXPECT_TRUE(p.ok()) << w << ": " << (p.ok() ? "" : p.reason());
    planned += p.ok();
  }
  EXPECT_GE(planned, 20);
}

/// Bytes into the planned level at the most that a model of bytes counts; a model may say fewer of
/// its own plan than are moved.
double most_bytes(const Question& q, const Plan& plan, std::shared_ptr<const Workload> w) {
  Question of = q;
  of.workload = std::move(w);
  const std::string boundary = boundary_into(*q.machine, q.planned_level());
  double most = 0;
  for (const Model* m : q.others) {
    if (m->times || m->price == nullptr) continue;
    const Result<Price> price = m->price(of, plan, {m->options, {}, m->name});
    if (!price) continue;
    const TrafficEntry all = price->traffic.total(boundary);
    most = std::max(most, static_cast<double>(all.read.value + all.written.value));
  }
  return most;
}

/// Where nobody knows time (scratchpads; on NPUs, what PowerFusion does not price): the plan of
/// fewest bytes that any model proposes, of the whole or of its parts.
TEST(Planner, WithoutTimesTheFewestBytesAreTaken) {
  std::mt19937_64 random(24112026);
  const auto x = [&] { return std::to_string(1 + random() % 300); };
  std::vector<std::string> names = {"gemm",      "attention", "conv-chain",       "softmax",
                                    "layernorm", "gated-ffn", "transformer-block"};
  for (int i = 0; i < 6; ++i)
    names.push_back("gemm-chain:m=" + x() + ",n=" + x() + ",k=" + x() + ",l=" + x());
  int fewer = 0, by_bytes = 0;
  for (const char* machine : {"ascend910", "mlu370", "scratchpad:3000B", "scratchpad:200K"})
    for (const std::string& name : names) {
      SCOPED_TRACE(name + " on " + machine);
      Question q = question(name, machine);
      for (const Model& m : builtin_models())
        if (m.name != planner().name) q.others.push_back(&m);
      const Result<Proposal> ours = planner().propose(q, standard());
      ASSERT_TRUE(ours.ok()) << ours.reason();
      const auto whole = rewritten(q.workload, ours->rewrites);
      const auto schedule = resolve(ours->plan, whole, q.machine);
      ASSERT_TRUE(schedule.ok()) << schedule.reason();
      if (ours->price.traffic.seconds.has_value()) {  // some model knows time after all
        EXPECT_FALSE(ours->detail.contains("volume_bytes"));
        continue;
      }
      ++by_bytes;
      const auto said = ours->detail.at("volume_bytes").get<std::int64_t>();
      const std::string boundary = boundary_into(*q.machine, q.planned_level());
      const TrafficEntry all = tilewright::exact(*schedule).total(boundary);
      EXPECT_LE(all.read.value + all.written.value, said);
      for (const Model* m : q.others) {
        if (m->propose == nullptr) continue;
        const Result<Proposal> other = m->propose(q, {m->options, {}, m->name});
        if (!other) continue;
        const auto its = rewritten(q.workload, other->rewrites);
        const double volume = most_bytes(q, other->plan, its);
        if (volume == 0) continue;  // nobody counts it
        EXPECT_LE(static_cast<double>(said), volume) << m->name;
        fewer += static_cast<double>(said) < volume;
      }
    }
  EXPECT_GT(fewer, 3);
  EXPECT_GE(by_bytes, 26);  // every one on the scratchpads
}

/// A cache that no counting model knows, of a machine that says no speeds: the plan's bytes are
/// what the planner says of it again, kernel by kernel, and nobody makes up seconds.
TEST(Planner, UnknownCachesHaveBytesAndNoSeconds) {
  const char* file = R"(name: prefetching
kind: cpu
levels:
  - {name: DRAM, kind: home}
  - name: L1
    kind: cache
    capacity: {value: 16K, source: assumed}
    line: {value: 32, source: assumed}
    ways: {value: 4, source: assumed}
    prefetch: [{kind: stride}]
)";
  const auto machine = std::make_shared<const Machine>(machine_from_yaml(file, "the test"));
  std::size_t most_kernels = 0;
  for (const char* name : {"gemm-chain:m=96,n=40,k=64,l=72", "transformer-block"}) {
    SCOPED_TRACE(name);
    Question q{.name = name, .workload = workload(name), .machine = machine};
    for (const Model& m : builtin_models())
      if (m.name != planner().name) q.others.push_back(&m);
    const Result<Proposal> ours = planner().propose(q, standard());
    ASSERT_TRUE(ours.ok()) << ours.reason();
    most_kernels = std::max(most_kernels, ours->plan.kernels.size());
    q.workload = rewritten(q.workload, ours->rewrites);
    const Result<Price> price = planner().price(q, ours->plan, standard());
    ASSERT_TRUE(price.ok()) << price.reason();
    EXPECT_FALSE(price->traffic.seconds);
    const TrafficEntry all = price->traffic.total("DRAM/L1");
    EXPECT_EQ(all.read.value + all.written.value, ours->detail.at("volume_bytes"));
    EXPECT_EQ(price->traffic.operations.size(), q.workload->operators().size());
  }
  EXPECT_GT(most_kernels, 1);
}

/// Three products of a gate, more than a kernel that is searched for: on a processor others' plans
/// of a small whole count all the same.
TEST(Planner, AWholeOfManyProductsIsAskedOfOthers) {
  std::mt19937_64 random(27112026);
  const auto x = [&] { return std::to_string(1 + random() % 40); };
  int faster = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string name =
        "gated-ffn:m=" + x() + ",n=" + x() + ",k=" + x() + ",l=" + x() + ",dtype=bf16";
    SCOPED_TRACE(name);
    Question q = question(name, "epyc-zen5");
    for (const Model& m : builtin_models())
      if (m.name != planner().name) q.others.push_back(&m);
    const Result<Proposal> ours = planner().propose(q, standard());
    ASSERT_TRUE(ours.ok()) << ours.reason();
    for (const Model* m : q.others) {
      if (m->propose == nullptr) continue;
      const Result<Proposal> other = m->propose(q, {m->options, {}, m->name});
      if (!other || !other->rewrites.empty()) continue;
      const Result<Price> its = planner().price(q, other->plan, standard());
      if (!its) continue;
      EXPECT_LE(*ours->price.traffic.seconds, 1.05 * *its->traffic.seconds) << m->name;
      faster += *ours->price.traffic.seconds < *its->traffic.seconds;
    }
  }
  EXPECT_GT(faster, 0);
}

Result<Rates> rates(const Question& q) { return rates_of(q); }

/// By hand, within 15 % (capacities have no sharp edge here): what fits is brought once; a matrix
/// that does not fit is brought again for each block of rows; a whole that is packed is packed as
/// often as its one buffer holds another tile.
TEST(Planner, BytesAreThoseOfACountByHand) {
  const Question q = question("gemm:m=512,n=1040,k=1040", "cache:32K/8,1M/16");
  const Result<Rates> r = rates(q);
  ASSERT_TRUE(r.ok()) << r.reason();
  const auto bytes = [&](const char* tree) {
    Kernel k{.name = "k", .level = "L2", .tree = parse_tree(tree)};
    const auto s = resolve({.kernels = {k}}, q.workload, q.machine);
    EXPECT_TRUE(s.ok()) << (s.ok() ? "" : s.reason());
    return kernel_time(*s, s->kernels[0], *r);
  };
  const double a = 512 * 1040 * 4, b = 1040.0 * 1040 * 4, c = 512 * 1040 * 4;
  // Rows of 64 around columns of 64: B, 4 MiB, passes through L2 for each of 8 blocks of rows.
  const KernelTime rows = bytes("m/64 n/64 ( C.gemm )");
  ASSERT_EQ(rows.bytes.size(), 2u);
  EXPECT_NEAR(rows.bytes[1], a + 8 * b + 2 * c, 0.15 * (8 * b));
  // Columns of 64 around rows: a panel of B, 260 KiB, stays; A, 2 MiB, passes for each of 17
  // panels.
  const KernelTime columns = bytes("n/64 m/64 ( C.gemm )");
  EXPECT_NEAR(columns.bytes[1], 16.25 * a + b + 2 * c, 0.15 * (17 * a));
  EXPECT_GT(rows.seconds, 0);
}

/// Steps of a product follow one another in the second cache and are there in time: cutting the
/// depth so that panels stay in the first one gains nothing, and loads and stores the sums more
/// often. On a Zen 4, whose rates these are, the cut depths take 1.02 times as long.
TEST(Planner, DepthsAreNotCutForTheFirstCache) {
  struct Row {
    const char *workload, *whole, *cut;
  };
  for (const Row& row :
       {Row{"gemm:m=58,n=416,k=288", "m/58 k/288 n/416 ( C.gemm )", "n/416 k/80 m/58 ( C.gemm )"},
        Row{"gemm:m=288,n=1072,k=275", "m/288 k/275 n/1072 ( C.gemm )",
            "n/64 k/80 m/288 ( C.gemm )"}}) {
    const Question q = question(row.workload, "cache:32K/8,1M/8");
    const Result<Rates> assumed = rates(q);
    ASSERT_TRUE(assumed.ok()) << assumed.reason();
    Rates r = *assumed;
    r.cycle = 1 / 3.66e9, r.lanes = 16, r.fma = 1.04 * r.cycle, r.call = r.cycle;
    r.micro_kernels = {{6, 4}, {5, 5}};
    r.caches[0].core = 1 / 78.8e9, r.caches[1].core = 1 / 13.5e9, r.caches[1].all = 1 / 21.3e9;
    const auto seconds = [&](const char* tree) {
      Kernel k{.name = "k", .level = "L2", .tree = parse_tree(tree)};
      const auto s = resolve({.kernels = {k}}, q.workload, q.machine);
      EXPECT_TRUE(s.ok()) << (s.ok() ? "" : s.reason());
      return kernel_time(*s, s->kernels[0], r).seconds;
    };
    EXPECT_LT(seconds(row.whole), seconds(row.cut)) << row.workload;
  }
}

/// The price is of the blocks that are emitted: 96 x 128 over 32 steps are 4x3 in 16 registers, as
/// codegen/cpu has it (tests/codegen/micro_kernel_test.cpp), whatever a multiply-add takes.
TEST(Planner, BlocksArePricedAsTheyAreEmitted) {
  const Result<Rates> assumed = rates(question("gemm", "cache:32K/8,1M/8"));
  ASSERT_TRUE(assumed.ok()) << assumed.reason();
  Rates r = *assumed;
  for (const std::int64_t registers : {16, 32}) {
    const auto of = register_blocks(registers);
    r.micro_kernels.assign(of.begin(), of.end());
    r.lanes = registers == 16 ? 8 : 16;
    std::mt19937_64 random(11);
    for (int i = 0; i < 300; ++i) {
      const auto drawn = [&](int most) { return 1 + static_cast<std::int64_t>(random() % most); };
      const std::int64_t m = i == 0 ? 96 : drawn(100), n = i == 0 ? 128 : drawn(300),
                         k = i == 0 ? 32 : drawn(600);
      r.fma = r.cycle * (i % 2 == 0 ? 0.5 : 1.1);
      const RegisterBlock& b = of[block_fitting(of, m, ceil_div(n, r.lanes), k)];
      const auto most =
          blocks_of(r, static_cast<double>(m), static_cast<double>(n), static_cast<double>(k)).most;
      EXPECT_EQ(most, (std::array{b.rows, b.vectors})) << m << " " << n << " " << k;
      if (i == 0 && registers == 16) {
        EXPECT_EQ(most, (std::array<std::int64_t, 2>{4, 3}));
      }
    }
  }
}

TEST(Planner, MoreWorkTakesLonger) {
  const Question q = question("gemm", "epyc-zen5");
  const Result<Rates> r = rates(q);
  ASSERT_TRUE(r.ok());
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    const double m = 1 + static_cast<double>(random() % 300),
                 n = 1 + static_cast<double>(random() % 600),
                 k = 1 + static_cast<double>(random() % 500);
    const double t = product_seconds(*r, m, n, k);
    EXPECT_GE(t, m * n * k / static_cast<double>(r->lanes) * r->fma * 0.999)
        << m << " " << n << " " << k;
    EXPECT_LE(t, product_seconds(*r, m, n, k + 8)) << m << " " << n << " " << k;
    EXPECT_LE(t, 1.001 * product_seconds(*r, 2 * m, n, k)) << m << " " << n << " " << k;
  }
}

/// What may be read outside of its tensor is no product of a micro-kernel.
TEST(Planner, AReadOutsideOfATensorIsNoProduct) {
  const auto text = [](const char* index) {
    return std::string("name: c\nloops: {b: 8, o: 16, c: 64, r: 3}\ntensors: {X: [8, 64, 3]}\n") +
           "operators: [\"Y[b,o] += X[b,c," + index + "] * W[o,c,r]\"]\n";
  };
  EXPECT_TRUE(product_of(workload_from_yaml(text("r"), "test"), OpId(0)));
  EXPECT_FALSE(product_of(workload_from_yaml(text("r-1"), "test"), OpId(0)));
}

/// 16-bit tensors are converted as they are copied, which takes longer than f32 that lies in place;
/// a processor that multiplies bf16 in pairs takes less for it.
TEST(Planner, TypesOfSixteenBitsHaveTheirPrice) {
  const auto seconds = [](const std::string& workload, bool pairs) {
    Question q = question(workload, "epyc-zen5");
    auto m = std::make_shared<Machine>(*q.machine);
    ComputeUnit& u = m->units.front();
    u.clock_hz = 4e9, u.vector_width.value = 64, u.cycles["widen_f16"] = 2;
    u.peak["f32"] = FlopsPerSecond(static_cast<double>(u.count) * 128e9);
    if (pairs) u.peak["bf16"] = FlopsPerSecond(static_cast<double>(u.count) * 256e9);
    q.machine = m;
    const auto found = planner().propose(q, standard());
    return found.ok() ? found->price.traffic.seconds.value_or(0) : 0.0;
  };
  const double f32 = seconds("gelu:rows=256,cols=256", false);
  const double f16 = seconds("gelu:rows=256,cols=256,dtype=f16", false);
  // Rows of 16 vectors are widened, two cycles each, and rounded.
  EXPECT_GT(f16, f32 + 256 * 16 * 2 / 4e9);
  const double whole = seconds("gemm:m=256,n=256,k=256,dtype=bf16", false);
  const double paired = seconds("gemm:m=256,n=256,k=256,dtype=bf16", true);
  EXPECT_LT(paired, 0.8 * whole);
  EXPECT_GT(paired, 0.5 * whole);
  EXPECT_DOUBLE_EQ(seconds("gemm:m=256,n=256,k=256", true),
                   seconds("gemm:m=256,n=256,k=256", false));
}

/// A rough price may be wrong: what it joined for nothing is taken apart again, what it was right
/// about stays.
TEST(Planner, WhatARoughPriceWasWrongAboutIsTakenApart) {
  const Ptr w = workload("random-graph:vertices=18,rows=8,cols=8,reach=4,seed=5");
  for (const double dear : {100.0, 0.5}) {
    const auto truth = [&](const Part& ops) {
      return static_cast<double>(ops.size()) * (ops.size() > 1 ? dear : 1.0);
    };
    Partitioner search(
        w,
        [&](const Group& g) {
          Best b{.seconds = truth(g.ops)};
          b.rewrites = kSoftmax;
          return std::optional(b);
        },
        [&](const Part& ops) { return std::optional(ops.size() > 1 ? 0.5 * ops.size() : 1.0); });
    const Result<Partition> found = search.run(asked(w));
    ASSERT_TRUE(found.ok()) << found.reason();
    const auto operators = static_cast<double>(w->operators().size());
    if (dear > 1)
      EXPECT_DOUBLE_EQ(found->seconds, operators);
    else
      EXPECT_LT(found->seconds, operators);
    std::size_t covered = 0;
    for (const Group& g : found->groups) covered += g.ops.size();
    EXPECT_EQ(covered, w->operators().size());
  }
}

TEST(Planner, SaysWhyAnOperatorHasNoKernel) {
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("name: gathered\nloops: {i: 2000000, j: 2000000}\ntensors: {X: [3, 5], n: "
                         "[i]}\ndtypes: {n: i32}\noperators: [\"t[i,j] = X[i - j, n[i]]\"]\n",
                         "test"));
  for (const char* machine : {"h200", "epyc-zen5"}) {
    const Result<Proposal> p = planner().propose(asked(w, machine), standard());
    ASSERT_FALSE(p.ok()) << machine;
    EXPECT_NE(p.reason().find("t: kernel1: t reads X by another tensor's values and beyond its "),
              std::string::npos)
        << p.reason();
  }
}

}  // namespace
}  // namespace tilewright::quickest
