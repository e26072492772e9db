// Tiles of block kernels in shared memory where there is not room for all of them, and products
// whose operands or sums are met in unusual ways: what the emulated kernels compute, and move.
#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/lowering/gpu/block_work.h"
#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_barriers.h"

namespace tilewright {
namespace {

struct Case {
  std::string workload, tree;
  std::int64_t room = 0;  ///< bytes of shared memory in which there is room by turns alone
  double tolerance = 1e-5;
  bool makeshift = false;  ///< it has not the form that the plan asks for
};

Schedule schedule_of(const Case& c) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(c.workload, "test"));
  Plan plan;
  plan.kernels.push_back({.name = "one", .tree = parse_tree(c.tree)});
  auto s = resolve(plan, w, std::make_shared<const Machine>(named_machine("h200")));
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

/// Bytes read and written into shared memory and back, by tensor.
std::map<std::string, std::pair<std::int64_t, std::int64_t>> moved(const Schedule& s) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> all;
  for (const TrafficEntry& e : exact(s).entries)
    if (e.boundary == "L2/shared") all[e.tensor] = {e.read.value, e.written.value};
  return all;
}

bool takes_turns(const cuda::Source& source) {
  return std::ranges::any_of(source.program, [](const std::string& line) {
    return line.find("between its uses the place of others") != std::string::npos;
  });
}

struct Program {
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
};
/// Each is emitted in its room.
Program emitted(const std::vector<Case>& cases) {
  Program p;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.tree);
    p.schedules.push_back(schedule_of(c));
    cuda::EmitOptions options{.prefix = formatted("k{}", p.sources.size())};
    // The rooms are those of fused multiply-adds.
    if (!c.makeshift && schedule_of(c).workload->dtype() == DType::f32)
      options.micro_kernel = "simt";
    if (c.makeshift) {
      options.shared_room = c.room;
    } else if (c.room > 0) {
      options.warps = 2, options.registers = false;
      const auto roomy = cuda::emit(p.schedules.back(), options);
      EXPECT_TRUE(roomy) << roomy.reason();
      if (!roomy) break;
      EXPECT_GT(roomy->launches.back().shared_bytes, c.room);
      EXPECT_FALSE(takes_turns(*roomy));
      options.shared_room = c.room, options.stages = 1;
    }
    auto source = cuda::emit(p.schedules.back(), options);
    EXPECT_TRUE(source) << source.reason();
    if (!source) break;
    EXPECT_EQ(takes_turns(*source), c.room > 0);
    EXPECT_EQ(source->makeshift.has_value(), c.makeshift);
    p.sources.push_back(std::move(source).value());
  }
  return p;
}

/// Computed tiles that are not used at the same time have one place in turn, in loops too; each
/// barrier between them counts. Of the depth, products by fused multiply-adds read what there is:
/// an operand that is kept over steps of single points needs no block of 16 for each. Sums may be
/// rescaled by a factor of each column, where softmax runs down the columns.
TEST(CudaTiles, AreRightAndMoveWhatIsCounted) {
  std::vector<Case> cases{
      {"name: rows\ndtype: f32\nloops: {m: 14, n: 19}\noperators:\n"
       "  - \"a: A[m,n] = x[m,n] * x[m,n]\"\n  - \"b: B[m,n] = A[m,n] + 1\"\n"
       "  - \"c: C[m] += B[m,n] * B[m,n]\"\n  - \"d: D[m,n] = x[m,n] / C[m]\"\n"
       "  - \"e: E[m,n] = D[m,n] + x[m,n]\"\n  - \"y: y[m,n] = exp(E[m,n]) - D[m,n]\"\n",
       "m/7@grid ( L.x n/7 ( C.a C.b C.c ) C.d n/7 ( C.e C.y S.y ) )", 2304},
      {"name: product\ndtype: f32\nloops: {m: 23, k: 21, l: 19, n: 18}\noperators:\n"
       "  - \"p: P[m,l] += x[m,k] * u[k,l]\"\n  - \"a: A[m,l] = P[m,l] + 1\"\n"
       "  - \"b: B[m,l] = A[m,l] * A[m,l]\"\n  - \"q: Q[m,n] += B[m,l] * w[l,n]\"\n"
       "  - \"y: y[m,n] = Q[m,n] * Q[m,n]\"\n",
       "m/23@grid ( k/5 ( L.x L.u C.p ) C.a C.b L.w C.q C.y S.y )", 14500},
      // Of three weights each has the place in turn, of two in every iteration of a loop.
      {"name: layers\ndtype: f32\nloops: {m: 20, h: 3, a: 33, b: 30, c: 29, d: 18}\noperators:\n"
       "  - \"p: P[h,m,b] += x[m,a] * U[h,a,b]\"\n  - \"q: Q[m,c] += P[h,m,b] * V[h,b,c]\"\n"
       "  - \"r: R[m,d] += Q[m,c] * W[c,d]\"\n",
       "m/20@grid ( L.x h/1 ( L.U C.p L.V C.q ) L.W C.r S.R )", 18000},
      {"name: kept\ndtype: f32\nloops: {t: 20, s: 37, d: 9, v: 10}\noperators:\n"
       "  - \"value: V[s,v] += x[s,d] * W[d,v]\"\n  - \"pv: O[t,v] += P[t,s] * V[s,v]\"\n",
       "t/20@grid ( s/1 ( L.x L.W C.value ) s/1 ( L.P C.pv ) S.O )"}};
  for (const auto& [type, tolerance] : {std::pair("f16", 3e-3), std::pair("f32", 1e-5)})
    cases.push_back(
        {formatted("name: columns\ndtype: {}\nloops: {{n: 40, m: 27, l: 70, k: 18}}\noperators:\n"
                   "  - \"qk: S[l,m] += K[l,k] * Q[k,m]\"\n"
                   "  - \"rowmax: R[m] max= S[l,m]; T[m] = before(R) - after(R) running\"\n"
                   "  - \"exp: P[l,m] = exp(S[l,m] - R[m])\"\n"
                   "  - \"rowsum: Z[m] += P[l,m] rescale(exp(T[m])) running\"\n"
                   "  - \"pv: O[n,m] += V[n,l] * P[l,m] rescale(exp(T[m])) running\"\n"
                   "  - \"divide: E[n,m] = O[n,m] / Z[m]\"\n",
                   type),
         "m/16@grid ( l/32 ( L.K L.Q C.qk C.rowmax C.exp C.rowsum L.V C.pv ) C.divide S.E )", 0,
         tolerance});
  // Past the product's rows a concatenation reads zeros, which its sums do not hold.
  cases.push_back(
      {"name: joined\ndtype: f32\nloops: {j: 96, m: 48, k: 20, n: 13}\n"
       "tensors: {R: [48, n]}\noperators:\n  - \"p: P[m,n] += x[m,k] * u[k,n]\"\n"
       "  - \"a: A[m,n] = P[m,n] - 3\"\n  - \"z: Z[j,n] = A[j,n] + R[j-48,n]\"\n",
       "j/32@grid n/13@grid ( k/20 ( C.p ) C.a C.z S.Z )"});
  // As the plan has them, tiles of odd rows have room; for a micro-kernel they have not.
  const std::string odd =
      "name: odd\ndtype: f32\nloops: {m: 22, k: 19, l: 7, n: 13}\noperators:\n"
      "  - \"p: P[m,l] += x[m,k] * u[k,l]\"\n  - \"y: y[m,n] += P[m,l] * w[l,n]\"\n";
  cases.push_back({odd, "m/11@grid ( L.x L.u C.p L.w C.y S.y )", 1800, 1e-5, true});
  // One block has all parts of a sum that a cluster's blocks would share.
  cases.push_back(
      {"name: shared\ndtype: f32\nloops: {m: 9, k: 20, n: 11}\noperators:\n"
       "  - \"c: C[m,n] += x[m,k] * u[k,n]\"\n",
       "m/4@grid ( k/7@cluster ( k/4 ( L.x L.u C.c ) ) S.C )", 0, 1e-5, true});
  const Program p = emitted(cases);
  ASSERT_FALSE(HasFailure());
  const auto waits = [](const cuda::TileUse& t) {
    return t.reason == "there is no room to copy it ahead of its use";
  };
  EXPECT_GE(std::ranges::count_if(p.sources[2].tiles, waits), 2);
  const auto& tiles = p.sources[3].tiles;
  const auto v = std::ranges::find(tiles, "V", &cuda::TileUse::tensor);
  ASSERT_NE(v, tiles.end());
  EXPECT_EQ(v->bytes, 37 * 16 * 4);
  const auto module = testing::build_cuda(p.sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].tree);
    const auto done = testing::run_cuda(*module, p.sources[i], *p.schedules[i].workload, 3 + i);
    ASSERT_TRUE(done) << done.reason();
    EXPECT_TRUE(done->report.clean()) << done->report.findings.front().text;
    EXPECT_LT(done->error, cases[i].tolerance);
    EXPECT_EQ(done->bytes, moved(p.schedules[i]));
  }
  testing::BarriersLeftOut seen;
  seen.look(*module, p.sources[0], *p.schedules[0].workload, 5, cases[0].tree);
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 2);
}

/// Rows that begin anywhere are moved together in registers: of tiles with all sizes of rows, at
/// every edge of the tensor, and where its last elements are no whole piece of 8 bytes.
TEST(CudaTiles, RowsThatBeginAnywhereAreRightAtEveryEdge) {
  std::mt19937 random(20261128);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  std::vector<Case> cases;
  for (int i = 0; i < 16; ++i) {
    const int tall = 16 * draw(1, 4), wide = 16 * draw(1, 12), deep = 16 * draw(1, 5),
              long_ = 16 * draw(1, 10);
    const int m = draw(1, 2 * tall), n = 2 * draw(1, wide) - draw(0, 1), k = 2 * draw(2, deep) - 1,
              l = 2 * draw(2, long_) - draw(0, 1);
    cases.push_back(
        {formatted(
             "name: odd\ndtype: {}\nloops: {{b: {}, m: {}, n: {}, k: {}, l: {}}}\noperators:\n"
             "  - \"p: P[b,m,l] += x[b,m,k] * u[b,k,l]\"\n"
             "  - \"q: Q[b,m,n] += P[b,m,l] * w[b,l,n]\"\n",
             i % 2 == 0 ? "f16" : "bf16", draw(1, 2), m, n, k, l),
         formatted("b/1@grid m/{}@grid n/{}@grid ( l/{} ( k/{} ( C.p ) C.q ) S.Q )",
                   std::min(tall, m), std::min(wide, n), std::min(long_, l), std::min(deep, k)),
         0, 2e-2});
  }
  const Program p = emitted(cases);
  ASSERT_FALSE(HasFailure());
  const auto module = testing::build_cuda(p.sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].workload + cases[i].tree);
    EXPECT_NE(p.sources[i].text.find("copy_shifted_rows<"), std::string::npos);
    const auto done = testing::run_cuda(*module, p.sources[i], *p.schedules[i].workload, 7 + i);
    ASSERT_TRUE(done) << done.reason();
    EXPECT_TRUE(done->report.clean()) << done->report.findings.front().text;
    EXPECT_LT(done->error, cases[i].tolerance);
    EXPECT_EQ(done->bytes, moved(p.schedules[i]));
  }
}

/// Where there is no room to copy ahead, computing warps copy in pieces as wide as the rows at home
/// allow, and wait for them: without that the kernel is wrong.
TEST(CudaTiles, ComputingWarpsWaitForWhatTheyCopy) {
  const auto layers = [](const char* type, int b, int c) {
    return formatted(
        "name: layers\ndtype: {}\nloops: {{m: 20, h: 3, a: 33, b: {}, c: {}}}\noperators:\n"
        "  - \"p: P[h,m,b] += x[m,a] * U[h,a,b]\"\n  - \"q: Q[m,c] += P[h,m,b] * V[h,b,c]\"\n",
        type, b, c);
  };
  struct Form {
    std::string workload, copies;
    double tolerance;
  };
  const std::vector<Form> forms = {{layers("f16", 64, 72), "copy_rows<64, 16, ", 1e-2},
                                   {layers("f16", 64, 64), "copy_whole<64, ", 1e-2},
                                   {layers("f32", 30, 38), "copy_rows<64, 8, ", 1e-5},
                                   {layers("f32", 31, 37), "copy_rows<64, 4, ", 1e-5},
                                   {layers("f16", 31, 37), "copy_shifted_rows<64, ", 1e-2}};
  const std::string wait = "cp_async_wait<0>();";
  for (const Form& f : forms) {
    SCOPED_TRACE(f.copies);
    const Schedule s = schedule_of({f.workload, "m/20@grid ( L.x h/1 ( L.U C.p L.V C.q ) S.Q )"});
    cuda::EmitOptions options{.prefix = "k"};
    options.warps = 2, options.registers = false, options.stages = 1;
    auto source = cuda::emit(s, options);
    ASSERT_TRUE(source) << source.reason();
    // The most room in which a tile waits for its place.
    for (options.shared_room = source->launches.back().shared_bytes;
         source && source->text.find(f.copies) == std::string::npos; options.shared_room -= 512)
      source = cuda::emit(s, options);
    ASSERT_TRUE(source) << source.reason();
    cuda::Source hasty = *source;
    for (std::size_t at; (at = hasty.text.find(wait)) != std::string::npos;)
      hasty.text.erase(at, wait.size());
    for (const bool waits : {true, false}) {
      const auto module = testing::build_cuda({waits ? *source : hasty});
      ASSERT_TRUE(module) << module.reason();
      const auto done = testing::run_cuda(*module, *source, *s.workload, 11);
      ASSERT_TRUE(done) << done.reason();
      const bool asynchronous = source->text.find(wait) != std::string::npos;
      EXPECT_EQ(asynchronous, !f.copies.starts_with("copy_shifted"));
      EXPECT_EQ(done->report.clean(), waits || !asynchronous);
      if (!waits) continue;
      EXPECT_LT(done->error, f.tolerance);
      EXPECT_EQ(done->bytes, moved(s));
    }
  }
}

/// A loop of a single turn begins where its range does: boxes that it would move begin at multiples
/// of what the other loops move them by, and rows of windows at those of their steps, not of their
/// sizes. What a tensor has behind its last whole piece of 8 bytes is right too.
TEST(CudaTiles, RowsBeginWhereTurnsOfLoopsMoveThem) {
  const auto chain = [](int h, int r, int s) {
    return formatted(
        "name: chain\ndtype: f16\nloops: {{h: {}, y: {}, r: {}, s: {}}}\noperators:\n"
        "  - \"a: M[y] += I[y+r] * W[r]\"\n  - \"b: O[h] += M[h+s] * V[s]\"\n",
        h, h + s - 1, r, s);
  };
  struct Form {
    Case of;
    bool together;  ///< some rows are moved together in registers
  };
  const std::vector<Form> forms = {
      {{chain(150, 3, 5), "s/5 h/48@grid ( r/3 ( C.a ) C.b )", 0, 1e-2}, false},
      {{chain(150, 3, 5), "s/5 h/50@grid ( r/3 ( C.a ) C.b )", 0, 1e-2}, true},
      {{chain(151, 3, 5), "s/5 h/48@grid ( r/1 ( C.a ) C.b )", 0, 1e-2}, true},
      {{chain(149, 5, 7), "s/1 h/50@grid ( r/5 ( C.a ) C.b )", 0, 1e-2}, true}};
  std::vector<Case> cases;
  for (const Form& f : forms) cases.push_back(f.of);
  const Program p = emitted(cases);
  ASSERT_FALSE(HasFailure());
  const auto module = testing::build_cuda(p.sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < forms.size(); ++i) {
    SCOPED_TRACE(cases[i].tree);
    EXPECT_EQ(p.sources[i].text.find("copy_shifted<") != std::string::npos, forms[i].together);
    const auto done = testing::run_cuda(*module, p.sources[i], *p.schedules[i].workload, 3 + i);
    ASSERT_TRUE(done) << done.reason();
    EXPECT_TRUE(done->report.clean()) << done->report.findings.front().text;
    EXPECT_LT(done->error, cases[i].tolerance);
    const auto work = lowering::block_work(p.schedules[i], 0, {});
    ASSERT_TRUE(work) << work.reason();
    EXPECT_EQ(std::ranges::any_of(work->phases.front().copies,
                                  [](const lowering::CopyRun& c) {
                                    return c.is(lowering::BlockStep::Way::shifted);
                                  }),
              forms[i].together);
  }
}

/// A running maximum and sum go from one turn to the next: no tile that is loaded in a turn has
/// their place.
/// What several operators read, some of it shifted, is as long as their reads reach from a turn of
/// the loop: it was laid out as if each turn had all columns, 300 KB of A, and the plan was
/// refused.
TEST(CudaTiles, WhatIsReadShiftedIsAsLongAsTheReads) {
  const Case c{.workload =
                   "name: shifted\nloops: {r: 400, c: 192}\noperators:\n"
                   "  - \"A[r,c] = abs(X[r,c])\"\n  - \"B[c] max= A[r,c]\"\n"
                   "  - \"D[c] = B[c + 1]\"\n  - \"E[c] = D[c + 1] + D[c]\"\n"
                   "  - \"F[r,c] = A[r,c] - D[c]\"\n",
               .tree = "c/4 ( r/8 ( C.A C.B ) C.D r/8 ( C.F ) C.E )"};
  const Schedule s = schedule_of(c);
  const auto source = cuda::emit(s, {.prefix = "k"});
  ASSERT_TRUE(source.ok()) << source.reason();
  for (const cuda::TileUse& t : source->tiles) {
    const std::int64_t rows = t.tensor == "A" ? 400 : t.tensor == "B" ? 1 : 192;
    EXPECT_LE(t.bytes, rows * 16 * 4) << t.tensor;
  }
}

TEST(CudaTiles, RunningResultsHaveNoPlaceOfATileThatWaits) {
  std::mt19937 random(27112);
  const auto number = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  std::vector<std::string> texts;
  for (int tries = 0; tries < 60 && sources.size() < 6; ++tries) {
    const int tile = 16 * number(2, 6), keys = tile * number(2, 3) - number(0, 20),
              rows = number(1, 16), columns = 8 * number(1, 6);
    const Case c{
        formatted("name: online\ndtype: {}\nloops: {{m: {}, l: {}, k: {}, n: {}}}\noperators:\n"
                  "  - \"qk: S[m,l] += Q[m,k] * K[l,k]\"\n  - \"scaled: T[m,l] = S[m,l] * 0.3\"\n"
                  "  - \"rowmax: R[m] max= T[m,l]; shift[m] = before(R) - after(R) running\"\n"
                  "  - \"exp: P[m,l] = exp(T[m,l] - R[m])\"\n"
                  "  - \"rowsum: Z[m] += P[m,l] rescale(exp(shift[m])) running\"\n"
                  "  - \"pv: O[m,n] += P[m,l] * V[l,n] rescale(exp(shift[m])) running\"\n"
                  "  - \"divide: E[m,n] = O[m,n] / Z[m]\"\n",
                  tries % 2 == 0 ? "f32" : "bf16", rows, keys, 8 * number(3, 12), columns),
        formatted("m/{}@grid n/{}@grid ( L.Q l/{} ( L.K C.qk C.scaled C.rowmax C.exp C.rowsum L.V "
                  "C.pv ) C.divide S.E )",
                  rows, columns, tile)};
    const Schedule s = schedule_of(c);
    cuda::EmitOptions options{.prefix = formatted("k{}", sources.size())};
    options.warps = number(1, 4), options.registers = false;
    auto source = cuda::emit(s, options);
    const auto waits = [&] {
      return std::ranges::any_of(source->tiles, [](const cuda::TileUse& t) {
        return t.reason == "there is no room to copy it ahead of its use";
      });
    };
    if (!source) continue;
    // The least room of those in which a tile waits: others have its place in turn.
    std::optional<cuda::Source> least;
    for (options.shared_room = source->launches.back().shared_bytes; source;
         options.shared_room -= 512) {
      if (waits() && !source->makeshift) least = *source;
      source = cuda::emit(s, options);
    }
    if (!least) continue;
    schedules.push_back(s), sources.push_back(*std::move(least)),
        texts.push_back(c.workload + c.tree);
  }
  ASSERT_EQ(sources.size(), 6u);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SCOPED_TRACE(texts[i]);
    const auto done = testing::run_cuda(*module, sources[i], *schedules[i].workload, 17 + i);
    ASSERT_TRUE(done) << done.reason();
    EXPECT_TRUE(done->report.clean()) << done->report.findings.front().text;
    EXPECT_LT(done->error, schedules[i].workload->dtype() == DType::f32 ? 1e-5 : 3e-2);
    EXPECT_EQ(done->bytes, moved(schedules[i]));
  }
}

/// Products by fused multiply-adds with as many copying as computing warps: for sm_90a alone they
/// share out registers, more blocks fit a multiprocessor the fewer sums a thread has, and sums of
/// 128 a thread stay in registers. Rows that begin anywhere are copied in pieces of 4 bytes, sums
/// end in zeros, and four neighbours are added at once where they begin at 16 bytes.
TEST(CudaTiles, CopyingWarpsGiveRegistersInF32) {
  struct Drawn {
    int m, n, k;
    bool along, added;
    int rows, columns, warps, blocks;  ///< blocks: of a multiprocessor, as the launch says
    const char* registers;
  };
  const Drawn drawn[] = {{70, 68, 45, false, false, 64, 64, 4, 3, "more_registers<120>"},
                         {70, 68, 48, false, false, 64, 64, 4, 4, "more_registers<104>"},
                         {66, 71, 37, true, false, 64, 64, 4, 3, "more_registers<120>"},
                         {130, 132, 36, true, true, 128, 128, 4, 2, "more_registers<232>"},
                         {130, 129, 41, false, true, 128, 128, 4, 2, "more_registers<216>"},
                         {257, 132, 32, false, false, 256, 128, 8, 1, "more_registers<240>"}};
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  for (const Drawn& d : drawn) {
    const std::string sum =
        d.added ? "k/16@grid ( k/16 ( C.c ) S.C!atomic )" : "( k/16 ( C.c ) S.C )";
    const Case c{formatted("name: product\ndtype: f32\nloops: {{m: {}, n: {}, k: {}}}\noperators:\n"
                           "  - \"c: C[m,n] += x[m,k] * u[{}]\"\n",
                           d.m, d.n, d.k, d.along ? "n,k" : "k,n"),
                 formatted("m/{}@grid n/{}@grid {}", d.rows, d.columns, sum)};
    SCOPED_TRACE(c.tree);
    schedules.push_back(schedule_of(c));
    for (const bool hopper : {true, false}) {
      auto source = cuda::emit(schedules.back(), {.micro_kernel = "simt",
                                                  .warps = d.warps,
                                                  .stages = 2,

                                                  .warpgroups = hopper,
                                                  .prefix = formatted("k{}", sources.size())});
      ASSERT_TRUE(source) << source.reason();
      const auto has = [&](const std::string& what) {
        return source->text.find(what) != std::string::npos;
      };
      EXPECT_EQ(has(d.registers), hopper) << source->text;
      // Without setmaxnreg, too, a launch asks for a block where it has one an SM.
      EXPECT_EQ(has(formatted("__launch_bounds__({}, {})", 32 * (d.warps + 4), d.blocks)),
                hopper || d.blocks == 1);
      EXPECT_EQ(has("copy_rows<128, 4, "), d.k % 2 != 0 || d.n % 2 != 0);
      EXPECT_FALSE(has("copy_shifted"));
      if (hopper) sources.push_back(std::move(source).value());
    }
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SCOPED_TRACE(sources[i].text);
    const auto done = testing::run_cuda(*module, sources[i], *schedules[i].workload, 7 + i);
    ASSERT_TRUE(done) << done.reason();
    EXPECT_TRUE(done->report.clean()) << done->report.findings.front().text;
    EXPECT_LT(done->error, 1e-5);
    EXPECT_EQ(done->bytes, moved(schedules[i]));
  }
}

}  // namespace
}  // namespace tilewright
