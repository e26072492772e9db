// Kernels of several nests of blocks with Y.grid between: a BERT attention sub-graph as one kernel,
// counted to the byte at full size and executed at a small one, and what blocks keep for
// themselves.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/plan/file.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/support/places.h"

namespace tilewright {
namespace {

struct Case {
  std::string workload, tree;
  std::map<std::string, Pin> pins = {};
};

Schedule schedule_of(const Case& c) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(c.workload, "test"));
  Plan plan;
  plan.kernels.push_back({.name = "one", .tree = parse_tree(c.tree), .pins = c.pins});
  auto s = resolve(plan, w, std::make_shared<const Machine>(named_machine("h200")));
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

/// Souffle's BERT attention: three products of X, softmax without a maximum, residual, layer norm
/// by sums of values and squares. exp's and add's tiles never leave the blocks that made them.
Case attention(int tokens, int heads, int width, int m1, int m2, int m4, int n5) {
  const int hidden = heads * width;
  const std::string of_head = formatted("{}*h+e", width);
  Case c;
  c.workload = formatted(
      "name: bert-attention\ndtype: f16\nloops: {{h: {}, m: {}, l: {}, e: {}, d: {}, n: {}}}\n"
      "tensors: {{X: [{}, {}], Wq: [d, {}], Wk: [d, {}], Wv: [d, {}], Wo: [{}, n]}}\noperators:\n",
      heads, tokens, tokens, width, hidden, hidden, tokens, hidden, hidden, hidden, hidden, hidden);
  c.workload += formatted(
      "  - \"qkv: Q[h,m,e] += X[m,d] * Wq[d,{}]; K[h,m,e] += X[m,d] * Wk[d,{}]; V[h,m,e] += X[m,d] "
      "* "
      "Wv[d,{}]\"\n",
      of_head, of_head, of_head);
  c.workload +=
      "  - \"qk: T[h,m,l] += Q[h,m,e] * K[h,l,e]\"\n  - \"exp: U[h,m,l] = exp(T[h,m,l] * 0.004)\"\n"
      "  - \"rowsum: Z[h,m] += U[h,m,l]\"\n  - \"share: P[h,m,l] = U[h,m,l] / Z[h,m]\"\n"
      "  - \"pv: A[h,m,e] += P[h,m,l] * V[h,l,e]\"\n";
  c.workload += formatted(
      "  - \"proj: O[m,n] += A[h,m,e] * Wo[{},n]\"\n  - \"add: R[m,n] = O[m,n] + X[m,n]\"\n"
      "  - \"sum: s[m] += R[m,n]\"\n  - \"squares: q[m] += R[m,n] * R[m,n]\"\n"
      "  - \"norm: E[m,n] = (R[m,n] - s[m] / {}) / sqrt(q[m] / {} - s[m] / {} * (s[m] / {}) + "
      "0.00001)\"\n",
      of_head, hidden, hidden, hidden, hidden);
  c.tree = formatted(
      "h/1@grid m/{}@grid ( d/{} ( L.X L.Wq L.Wk L.Wv C.qkv ) S.Q S.K S.V ) Y.grid "
      "h/1@grid m/{}@grid l/{}@grid ( L.Q L.K C.qk C.exp C.rowsum S.Z!atomic ) Y.grid "
      "h/1@grid m/{}@grid l/{}@grid ( L.Z C.share S.P ) Y.grid "
      "h/1@grid m/{}@grid ( l/{} ( L.P L.V C.pv ) S.A ) Y.grid "
      "m/{}@grid n/{}@grid ( h/1 ( L.A L.Wo C.proj ) L.X C.add C.sum C.squares S.s!atomic "
      "S.q!atomic ) "
      "Y.grid m/{}@grid n/{}@grid ( L.s L.q C.norm S.E )",
      m1, std::min(64, hidden), m2, m2, m2, m2, m4, m4, m4, n5, m4, n5);
  for (const char* t : {"Q", "K", "V", "Z", "P", "A", "s", "q"}) c.pins[t].level = "DRAM";
  return c;
}

using Moved = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;

/// Bytes read and written into shared memory and back, by tensor.
Moved moved(const Traffic& t) {
  Moved all;
  for (const TrafficEntry& e : t.entries)
    if (e.boundary == "L2/shared") all[e.tensor] = {e.read.value, e.written.value};
  return all;
}

void run(const Case& c, double tolerance) {
  const Schedule s = schedule_of(c);
  const auto source = cuda::emit(s, {.prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  EXPECT_EQ(source->launches.back().cooperative, c.tree.find("Y.grid") != std::string::npos);
  const auto module = testing::build_cuda({*source});
  ASSERT_TRUE(module) << module.reason();
  const auto got = testing::run_cuda(*module, *source, *s.workload, 5);
  ASSERT_TRUE(got) << got.reason();
  EXPECT_TRUE(got->report.clean()) << got->report.findings.front().text;
  EXPECT_LT(got->error, tolerance);
  EXPECT_EQ(got->bytes, moved(exact(s)));
}

TEST(Phases, AttentionIsCountedToTheByte) {
  const Schedule s = schedule_of(attention(384, 12, 64, 96, 128, 64, 64));
  EXPECT_TRUE(s.kernels.front().co_resident);
  const Traffic t = exact(s);
  const Moved want = {{"X", {7667712, 0}},       {"Wq", {4718592, 0}},     {"Wk", {4718592, 0}},
                      {"Wv", {4718592, 0}},      {"Wo", {7077888, 0}},     {"Q", {1769472, 589824}},
                      {"K", {1769472, 589824}},  {"V", {3538944, 589824}}, {"Z", {27648, 36864}},
                      {"P", {3538944, 3538944}}, {"A", {7077888, 589824}}, {"s", {9216, 9984}},
                      {"q", {9216, 9984}},       {"E", {0, 589824}}};
  EXPECT_EQ(moved(t), want);
  // Two tiles of 128 x 128 for the softmax, kept over a barrier, and what else is alive with them.
  EXPECT_LT(t.memory.at("shared"), Bytes(232448));
  EXPECT_FALSE(misfit(s));
}

/// Blocks that wait for one another are resident together: two a multiprocessor have half of its
/// shared memory each, and their rings are shorter.
TEST(Phases, BlocksThatWaitShareSharedMemory) {
  const auto launched = [](int blocks, bool wait) {
    const int rows = 32;
    const Schedule s = schedule_of(
        {formatted("name: two\ndtype: f16\nloops: {{m: {}, n: 256, k: 512, p: 16}}\noperators:\n"
                   "  - \"first: C[m,n] += A[m,k] * B[k,n]\"\n"
                   "  - \"second: E[m,p] += C[m,n] * D[n,p]\"\n",
                   blocks * rows),
         formatted(
             "m/{0}@grid ( k/128 ( L.A L.B C.first ) S.C ) {1} m/{0}@grid ( L.C L.D C.second S.E )",
             rows, wait ? "Y.grid" : ""),
         {{"C", {.level = "DRAM"}}}});
    EXPECT_EQ(s.kernels.front().co_resident, wait);
    const auto source = cuda::emit(s, {});
    EXPECT_TRUE(source) << source.reason();
    std::map<std::string, int> stages;
    if (source)
      for (const cuda::TileUse& t : source->tiles) stages[t.tensor] = t.stages;
    return std::pair(source ? source->launches.back().shared_bytes : 0, stages["B"]);
  };
  const Machine h200 = named_machine("h200");
  const std::int64_t sms = h200.units.front().count;
  const auto shared = std::ranges::find(h200.levels, "shared", &Level::name);
  ASSERT_NE(shared, h200.levels.end());
  const std::int64_t all = shared->capacity.value;
  const auto [one, stages_of_one] = launched(static_cast<int>(sms), true);
  const auto [two, stages_of_two] = launched(static_cast<int>(2 * sms), true);
  EXPECT_EQ(stages_of_one, 2);
  EXPECT_GT(2 * (one + 1024), all);
  EXPECT_EQ(stages_of_two, 1);
  EXPECT_LE(2 * (two + 1024), all);
}

TEST(Phases, AttentionRuns) {
  run(attention(32, 2, 32, 16, 16, 16, 64), 3e-3);
  run(attention(45, 3, 16, 20, 24, 16, 32), 3e-3);
}

TEST(Phases, SumsOverBlocksAreReadByAll) {
  const std::string w =
      "name: sums\nloops: {m: 37, k: 50, n: 21}\ntensors: {A: [m, k], B: [n]}\noperators:\n"
      "  - \"C[m] += A[m,k]\"\n  - \"E[m,n] = C[m] * B[n]\"\n";
  run({w,
       "m/8@grid k/16@grid ( C.C S.C!atomic ) Y.grid m/8@grid n/4@grid ( L.C C.E S.E )",
       {{"C", {.level = "DRAM"}}}},
      1e-5);
  // One block has no loop over blocks in its nest.
  run({w,
       "m/37 ( k/16 ( C.C ) S.C ) Y.grid m/8@grid n/4@grid ( L.C C.E S.E )",
       {{"C", {.level = "DRAM"}}}},
      1e-5);
}

TEST(Phases, BlocksKeepTheirOwnParts) {
  const std::string w =
      "name: pair\ndtype: f16\nloops: {m: 37, k: 24, l: 28, n: 20}\noperators:\n"
      "  - \"first: C[m,l] += A[m,k] * B[k,l]\"\n  - \"second: E[m,n] += C[m,l] * D[l,n]\"\n";
  const Case c{w, "m/16@grid ( k/8 ( C.first ) ) Y.grid m/16@grid ( l/28 n/20 ( C.second ) )"};
  const Schedule s = schedule_of(c);
  // C 16 x 28 and not 37 x 28; with it D 28 x 20 and E 16 x 20, or A 16 x 8 and B 8 x 28.
  EXPECT_EQ(memory_use(s).at("shared"), Bytes(2 * (16 * 28 + 28 * 20 + 16 * 20)));
  run(c, 3e-3);
}

/// A phase reads squares of X, another whole rows: each shape has a buffer, and the longest by the
/// widest of them, 32 x 192 floats, has no room of its own.
TEST(Phases, TilesOfTwoShapesHaveAPlaceEach) {
  const std::string w =
      "name: shapes\nloops: {m: 64, k: 192, n: 64}\noperators:\n"
      "  - \"product: C[m,n] += X[m,k] * W[k,n]\"\n  - \"sum: s[m] += C[m,n]\"\n"
      "  - \"scale: E[m,k] = X[m,k] * s[m]\"\n";
  const Case c{w,
               "m/32@grid n/32@grid ( k/16 ( L.X L.W C.product ) S.C ) Y.grid "
               "m/4@grid ( L.C C.sum L.X C.scale S.E )",
               {{"C", {.level = "DRAM"}}}};
  const Schedule s = schedule_of(c);
  const auto of_x = [&](const Buffer& b) {
    return s.workload->tensor(b.tensor).name == "X" && b.role == BufferRole::input;
  };
  EXPECT_EQ(std::ranges::count_if(s.kernels.front().buffers, of_x), 2);
  EXPECT_EQ(memory_use(s).at("shared"), Bytes(4 * (32 * 16 + 16 * 32 + 32 * 32)));
  const auto source = cuda::emit(s);
  ASSERT_TRUE(source) << source.reason();
  EXPECT_LT(source->launches.back().shared_bytes, 4 * 32 * 192);
  run(c, 1e-5);
  // Rows alone: what the first phase has brought, the second finds.
  const Case rows{w,
                  "m/4@grid ( n/64 k/192 ( L.X L.W C.product ) S.C ) Y.grid "
                  "m/4@grid ( L.C C.sum L.X C.scale S.E )",
                  {{"C", {.level = "DRAM"}}}};
  EXPECT_EQ(std::ranges::count_if(schedule_of(rows).kernels.front().buffers, of_x), 1);
  EXPECT_EQ(moved(exact(schedule_of(rows))).at("X").first, 4 * 64 * 192);
  run(rows, 1e-5);
}

/// Phases that differ in names and numbers alone (one in the size of its tiles, too) are one
/// function; one that computes something else is none of them. What they compute and move stays the
/// same.
TEST(Phases, ThoseThatRepeatAreOneFunction) {
  std::string w = "name: steps\nloops: {m: 37, k: 24}\ntensors: {T0: [m, k]}\noperators:\n", tree;
  Case c;
  for (int i = 1; i <= 8; ++i) {
    w += formatted("  - \"o{}: T{}[m,k] = {}(T{}[36-m,k]) * W[{},k] + V[m]\"\n", i, i,
                   i == 5 ? "exp" : "abs", i - 1, i + 2);
    const int rows = i == 3 ? 4 : 8;
    tree += formatted("{}m/{}@grid ( L.T{} L.W L.V C.o{} S.T{} )", i == 1 ? "" : " Y.grid ", rows,
                      i - 1, i, i);
    if (i < 8) c.pins[formatted("T{}", i)].level = "DRAM";
  }
  c.workload = w;
  c.tree = tree;
  run(c, 1e-5);
  const auto source = cuda::emit(schedule_of(c), {.prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  const auto count = [&](const std::string& what) {
    int n = 0;
    for (std::size_t at = source->text.find(what); at != std::string::npos;
         at = source->text.find(what, at + 1))
      ++n;
    return n;
  };
  // Phases 2 to 7 lie between two barriers: six are alike for the warps that copy, five for those
  // that compute.
  EXPECT_EQ(count("TW_CALLED void"), 2);
  EXPECT_EQ(count("k_0_phase0<") + count("k_0_phase1<"), 11);
}

/// What a part of a pack has loaded, the same blocks find in the next nest.
TEST(Phases, AfterAPackBlocksGoOnWithWhatTheyHave) {
  const std::string w =
      "name: fan\nloops: {r: 40, c: 16}\noperators:\n  - \"a: a[r,c] = exp(x[r,c])\"\n"
      "  - \"b: b[r,c] = x[r,c] * 2\"\n  - \"y: y[r,c] = x[r,c] + 1\"\n";
  const Case c{w,
               "( r/8@grid ( L.x C.a S.a ) | r/8@grid ( L.x C.b S.b ) ) Y.grid "
               "r/8@grid ( L.x C.y S.y )"};
  const Traffic t = exact(schedule_of(c));
  EXPECT_EQ(moved(t).at("x").first, 2 * 40 * 16 * 4);
  run(c, 1e-5);
}

/// The plan says where a part's blocks begin: the next nest finds what those of its own have.
TEST(Phases, PartsBeginWhereThePlanSays) {
  const std::string w =
      "name: fan\nloops: {r: 40, c: 16}\noperators:\n  - \"a: a[r,c] = exp(x[r,c])\"\n"
      "  - \"b: b[r,c] = x[r,c] * 2\"\n  - \"y: y[r,c] = x[r,c] + 1\"\n";
  const auto at = [&](const std::string& second, const std::string& next) {
    return Case{w, "( r/8@grid ( L.x C.a S.a ) | " + second +
                       ": r/8@grid ( L.x C.b S.b ) ) Y.grid ( " + next +
                       ": r/8@grid ( L.x C.y S.y ) )"};
  };
  for (const auto& [next, times] : {std::pair{"7", 2}, {"0", 2}, {"6", 3}, {"12", 3}}) {
    SCOPED_TRACE(next);
    const Case c = at("7", next);
    EXPECT_EQ(moved(exact(schedule_of(c))).at("x").first, times * 40 * 16 * 4);
    run(c, 1e-5);
  }
  EXPECT_EQ(schedule_of(at("7", "7")).kernels[0].blocks, 12);
  try {
    schedule_of(at("4", "0"));
    ADD_FAILURE() << "two parts have block 4";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("blocks 4 to 8 of a part of a pack"));
  }
}

/// Parts without a loop over blocks, in a kernel that has more blocks than the first part.
TEST(Phases, EveryPartOfAPackRuns) {
  const std::string w =
      "name: fan\nloops: {r: 3, c: 10}\noperators:\n  - \"a: a[r,c] = exp(x[r,c])\"\n"
      "  - \"s: s[c] += x[r,c]\"\n  - \"y: y[r,c] = a[r,c] * s[c]\"\n  - \"z: z[c] += y[r,c]\"\n"
      "outputs: [z]\n";
  Case c{w, "c/5 ( ( c/5 ( C.a S.a ) | c/1 ( C.s ) S.s ) Y.grid c/3@grid ( C.y C.z ) )"};
  c.pins["a"].level = c.pins["s"].level = "DRAM";
  run(c, 1e-5);
}

/// The first block of all would load what the second part's block reads.
TEST(Phases, ALoadBesideAPackIsForItsFirstPart) {
  const std::string w =
      "name: pair\nloops: {m: 11, k: 2, l: 5, n: 9}\noperators:\n"
      "  - \"left: X[m,l] += A[m,k] * B[k,l]\"\n  - \"right: Y[m,n] += P[m,k] * Q[k,n]\"\n";
  run({w, "m/9@grid ( L.B ( C.left | L.Q C.right ) )"}, 1e-5);
  const auto source =
      cuda::emit(schedule_of({w, "m/9@grid ( L.Q ( C.left | C.right ) )"}), {.prefix = "k"});
  ASSERT_FALSE(source);
  EXPECT_THAT(source.reason(), ::testing::HasSubstr("only one of its blocks would run"));
}

/// Phases with tiles of one tensor, first of a row, then of several: rows of the first are further
/// apart.
TEST(Phases, TilesOfOneTensorDifferInSize) {
  const std::string w =
      "name: sizes\ndtype: f16\nloops: {h: 3, m: 20, d: 18, e: 16, n: 17}\noperators:\n"
      "  - \"a: A[m,h,e] += X[m,h,d] * W[h,d,e]\"\n  - \"b: B[m,h,d] = X[m,h,d] * 2\"\n"
      "  - \"c: C[m,h,n] += B[m,h,d] * V[d,n]\"\n";
  for (const char* tree :
       {"h/1@grid m/16@grid ( L.X L.W C.a S.A ) Y.grid "
        "m/16@grid ( L.X C.b S.B ) Y.grid m/16@grid h/1@grid ( L.B L.V C.c S.C )",
        "m/16@grid ( L.X C.b S.B ) Y.grid m/16@grid ( h/1 ( L.X L.W C.a S.A ) ) Y.grid "
        "m/16@grid h/1@grid ( L.B L.V C.c S.C )"}) {
    SCOPED_TRACE(tree);
    run({w, tree, {{"B", {.level = "DRAM"}}}}, 3e-3);
  }
}

/// In the last blocks nothing of i0 is in reach: nobody loads its tile, and nobody reads it.
TEST(Phases, ATileOfNothingIsNotRead) {
  run({"name: past\ndtype: f64\nloops: {a: 64, c: 64}\n"
       "tensors: {i0: [62, 193], i1: [63, 192]}\noperators:\n"
       "  - \"t0[a,c] = i0[a, 3*c] - i1[c, 2*a + c + 2]\"\n"
       "  - \"t1[a] = i0[a, a] + i0[a, a - 2] + t0[a, a]\"\noutputs: [t1]\n",
       "a/1@grid ( ( L.i0@shared L.i1@shared C.t0 ) ( L.i0@shared C.t1 ) )",
       {}},
      1e-12);
}

/// Each barrier of the sub-graph left out.
TEST(Phases, BarriersLeftOutAreFound) {
  const Schedule s = schedule_of(attention(20, 1, 16, 8, 8, 8, 16));
  const auto source = cuda::emit(s, {.prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  const auto module = testing::build_cuda({*source});
  ASSERT_TRUE(module) << module.reason();
  testing::BarriersLeftOut seen;
  seen.look(*module, *source, *s.workload, 5, "attention");
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 10);
}

/// What an H200 counted of the sub-graph as one kernel, beside what is counted here: from memory
/// hardly more than must come, into shared memory by whole sectors.
TEST(Phases, RecordedBytesAreNearThePredicted) {
  std::ifstream file(test::in_sources("experiments/results/h200-phases.json"));
  const auto row = nlohmann::json::parse(file)["rows"][0];
  Case c{.workload = row["workload"], .tree = row["trees"][0]};
  for (const auto& [tensor, pin] : row["pins"].items()) c.pins[tensor].level = pin;
  const Schedule s = schedule_of(c);
  std::int64_t read = 0, written = 0;
  for (const auto& [tensor, bytes] : moved(exact(s))) read += bytes.first, written += bytes.second;
  const auto& counted = row["counted"];
  EXPECT_EQ(read, counted["exact"]["read_bytes"].get<std::int64_t>());
  EXPECT_EQ(written, counted["exact"]["written_bytes"].get<std::int64_t>());
  for (const auto& entry : counted["traffic"]) {
    const auto bytes = entry["read_bytes"].get<double>();
    const bool memory = entry["boundary"] == "DRAM/L2";
    const double predicted = memory ? counted["compulsory_read_bytes"].get<double>() : double(read);
    EXPECT_GE(bytes, predicted);
    EXPECT_LT(bytes, predicted * (memory ? 1.03 : 1.2));
  }
}

}  // namespace
}  // namespace tilewright
