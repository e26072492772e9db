// Which barriers a plan must have: hand cases, and a witness that follows every element through
// random plans and sees which block makes it and which reads it.
#include "core/plan/dependence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <set>

#include "core/plan/stream.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

const char* const kSums =
    "name: sums\nloops: {m: 6, k: 8, n: 4}\ntensors: {A: [m, k], B: [n]}\noperators:\n"
    "  - \"C[m] += A[m,k]\"\n  - \"E[m,n] = C[m] * B[n]\"\n";
const char* const kFan =
    "name: fan\nloops: {r: 6, c: 4}\noperators:\n  - \"a: a[r,c] = exp(x[r,c])\"\n"
    "  - \"b: b[r,c] = x[r,c] * 2\"\n  - \"y: y[r,c] = a[r,c] + b[r,c]\"\n";
const char* const kBoth =
    "name: both\nloops: {m: 6, n: 4}\noutputs: [C, E]\noperators:\n  - \"C[m] = exp(A[m])\"\n"
    "  - \"E[m,n] = C[m] * B[n]\"\n";

/// The reason why not; empty: it is legal.
std::string refusal(const std::string& workload, const std::string& tree,
                    const std::map<std::string, Pin>& pins = {}, const std::string& level = {},
                    const std::string& machine = "h200") {
  const bool file = workload.find('\n') != std::string::npos;
  auto w = std::make_shared<const Workload>(file ? workload_from_yaml(workload, "test")
                                                 : named_workload(workload));
  Plan plan;
  plan.kernels.push_back({.level = level, .tree = parse_tree(tree), .pins = pins});
  const auto s = resolve(plan, w, std::make_shared<const Machine>(named_machine(machine)));
  if (s.ok()) return "";
  return s.reason();
}

const std::map<std::string, Pin> kHome = {{"C", {.level = "DRAM"}}};

/// On the H200 registers are a thread's own, shared memory the block's.
TEST(Dependences, UnitsDoNotWriteTheSameElementsHome) {
  const std::string tree = "m/6@grid n/1@lane ( C.C C.E )";
  EXPECT_THAT(refusal(kBoth, tree, {}, "registers"),
              HasSubstr("every lane of loop n@lane would write C home"));
  EXPECT_EQ(refusal(kBoth, tree, {}, "shared"), "");
  EXPECT_EQ(refusal(kBoth, "m/6@grid ( C.C S.C n/1@lane ( C.E ) )", {}, "registers"), "");
}

/// Readers that need less than all of a tensor begin their blocks elsewhere: b of all columns, y of
/// those that z reads at c + 1.
TEST(Dependences, BlocksBeginWhereTheirReadersNeedThem) {
  const char* const text =
      "name: shifted\nloops: {r: 4, c: 8}\noutputs: [b, z]\noperators:\n  - \"a: a[r,c] = "
      "exp(x[r,c])\"\n"
      "  - \"b: b[r,c] = a[r,c] * 2\"\n  - \"y: y[r,c] = a[r,c] + g[r]\"\n  - \"z: z[r,c] = "
      "y[r,c+1]\"\n";
  const std::string tree =
      "r/1@grid c/4@grid ( L.x C.a C.b S.b ) Y.grid r/1@grid c/4@grid ( L.g C.y S.y ) Y.grid "
      "r/1@grid c/4@grid ( L.y C.z S.z )";
  EXPECT_THAT(refusal(text, tree, {{"y", {.level = "DRAM"}}}),
              HasSubstr("and C.y reads it in another: pin it to DRAM"));
}

TEST(Dependences, BlocksReadWhatOthersWrite) {
  EXPECT_EQ(refusal(kSums, "m/1@grid ( k/8 ( C.C ) S.C ) m/1@grid ( n/4 ( L.C C.E ) )", kHome), "");
  EXPECT_THAT(
      refusal(kSums, "m/2@grid ( k/8 ( C.C ) S.C ) m/1@grid ( n/4 ( L.C C.E ) )", kHome),
      HasSubstr("L.C reads what S.C of other blocks has written: Y.grid must stand between"));
  EXPECT_EQ(
      refusal(kSums, "m/2@grid ( k/8 ( C.C ) S.C ) Y.grid m/1@grid ( n/4 ( L.C C.E ) )", kHome),
      "");
  EXPECT_THAT(refusal(kSums, "m/2@grid ( k/8 ( C.C ) ) Y.grid m/1@grid ( n/4 ( L.C C.E ) )", kHome),
              HasSubstr("L.C reads what other blocks have of C: S.C and then Y.grid must stand"));
  EXPECT_THAT(
      refusal(kSums, "m/2@grid ( k/8 ( C.C ) S.C ) Y.block m/1@grid ( n/4 ( L.C C.E ) )", kHome),
      HasSubstr("Y.grid must stand between"));
  // Blocks of one loop, numbered otherwise: another loop within, or beside the dimension.
  EXPECT_THAT(refusal(kSums, "m/2@grid ( k/8 ( C.C ) S.C ) m/2@grid n/1@grid ( L.C C.E )", kHome),
              HasSubstr("Y.grid must stand between"));
  EXPECT_THAT(refusal(kSums, "m/2@grid ( k/8 ( C.C ) S.C ) n/1@grid ( m/2 ( L.C C.E ) )", kHome),
              HasSubstr("Y.grid must stand between"));
}

TEST(Dependences, SumsOverBlocksAreReadAfterAllHaveAdded) {
  const std::string sums = "m/2@grid k/2@grid ( C.C S.C!atomic )";
  EXPECT_THAT(refusal(kSums, sums + " m/2@grid ( n/4 ( L.C C.E ) )", kHome),
              HasSubstr("S.C of other blocks"));
  EXPECT_EQ(refusal(kSums, sums + " Y.grid m/2@grid ( n/4 ( L.C C.E ) )", kHome), "");
  // The same blocks on both sides have only their own parts of the sums.
  EXPECT_THAT(
      refusal(kSums, "k/2@grid ( m/6 ( C.C ) S.C!atomic ) n/1@grid ( m/6 ( L.C C.E ) )", kHome),
      HasSubstr("Y.grid must stand between"));
}

TEST(Dependences, OnChipOnlyTheBlockThatMadeIt) {
  EXPECT_EQ(refusal(kSums, "m/2@grid ( k/8 ( C.C ) ) m/2@grid ( n/4 ( C.E ) )"), "");
  EXPECT_THAT(refusal(kSums, "m/2@grid ( k/8 ( C.C ) ) Y.grid m/1@grid ( n/4 ( C.E ) )"),
              HasSubstr("pin it to"));
  EXPECT_THAT(refusal(kSums, "m/2@grid ( k/8 ( C.C ) ) Y.grid m/2@grid n/1@grid ( C.E )"),
              HasSubstr("pin it to"));
  EXPECT_THAT(refusal(kSums, "k/8 m/6 ( C.C ) Y.grid m/2@grid ( n/4 ( C.E ) )"),
              HasSubstr("pin it to"));
}

TEST(Dependences, PartsOfAPackAreOtherBlocks) {
  const std::map<std::string, Pin> home = {{"a", {.level = "DRAM"}}, {"b", {.level = "DRAM"}}};
  const std::string parts = "( r/2@grid ( c/4 ( C.a ) S.a ) | r/2@grid ( c/4 ( C.b ) S.b ) )";
  const std::string rest = "r/2@grid ( c/4 ( L.a L.b C.y ) )";
  EXPECT_EQ(refusal(kFan, "( " + parts + " Y.grid " + rest + " )", home), "");
  // a's blocks are the first ones again, b's are not.
  EXPECT_THAT(refusal(kFan, "( " + parts + " " + rest + " )", home),
              HasSubstr("L.b reads what S.b"));
  EXPECT_THAT(refusal(kFan, "( " + parts + " Y.grid " + rest + " )", {{"a", {.level = "DRAM"}}}),
              HasSubstr("pin"));
  EXPECT_THAT(
      refusal(kFan, "( ( r/2@grid ( C.a S.a ) Y.grid | r/2@grid ( C.b S.b ) ) " + rest + " )",
              home),
      HasSubstr("part of a pack"));
}

TEST(Dependences, TheNextIterationWritesAgain) {
  const std::string inner = "m/2@grid ( k/8 ( C.C ) S.C ) Y.grid m/1@grid ( L.C C.E )";
  EXPECT_THAT(
      refusal(kSums, "n/1 ( " + inner + " )", kHome),
      HasSubstr("C.C writes C again in the next iteration of n, while other blocks may still "
                "be at L.C: Y.grid must stand between"));
  EXPECT_EQ(refusal(kSums, "n/1 ( " + inner + " Y.grid )", kHome), "");
  EXPECT_EQ(refusal(kSums, "n/1 ( Y.grid " + inner + " )", kHome), "");
  // Each iteration has its own rows.
  EXPECT_EQ(
      refusal(kSums, "m/3 ( m/2@grid ( k/8 ( C.C ) S.C ) Y.grid m/1@grid ( n/4 ( L.C C.E ) ) )",
              kHome),
      "");
}

TEST(Dependences, OutputsThatOtherBlocksReadMayGoHome) {
  EXPECT_EQ(refusal(kBoth, "m/2@grid ( C.C S.C ) Y.grid m/1@grid ( n/4 ( L.C C.E ) )", kHome), "");
  EXPECT_THAT(refusal(kBoth, "m/2@grid ( C.C S.C ) m/1@grid ( n/4 ( L.C C.E ) )", kHome),
              HasSubstr("Y.grid must stand between"));
}

TEST(Dependences, WarpsAndLanes) {
  const std::string w = "layernorm:rows=8,cols=64";
  EXPECT_THAT(
      refusal(w,
              "r/1@grid ( c/2@lane ( C.sum ) C.mean c/2@lane ( C.sub C.sq C.varsum ) Y.warp "
              "C.rstd c/2@lane ( C.norm ) )"),
      HasSubstr("C.mean reads what C.sum of other lanes of its warp has written: Y.warp must"));
  EXPECT_THAT(
      refusal(w,
              "r/1@grid ( c/2@thread ( C.sum ) Y.warp C.mean c/2@thread ( C.sub C.sq "
              "C.varsum ) Y.block C.rstd c/2@thread ( C.norm ) )"),
      HasSubstr("C.mean reads what C.sum of other warps of its block has written: Y.block"));
  EXPECT_EQ(
      refusal(w,
              "r/1@grid ( c/2@thread ( C.sum ) Y.block C.mean c/2@thread ( C.sub C.sq C.varsum ) "
              "Y.grid C.rstd c/2@thread ( C.norm ) )"),
      "kernel1: Y.grid stands inside loop r@grid: blocks that have no iteration left would not "
      "come to "
      "it");
  // Registers' sums are known to all lanes.
  EXPECT_EQ(refusal(w,
                    "r/1@grid ( c/2@lane ( C.sum ) C.mean c/2@lane ( C.sub C.sq C.varsum ) "
                    "C.rstd c/2@lane ( C.norm ) )",
                    {}, "registers"),
            "");
  EXPECT_THAT(
      refusal(w,
              "r/8@grid ( r/1@warp ( c/2@lane ( C.sum ) Y.block C.mean c/2@lane ( C.sub C.sq "
              "C.varsum ) Y.warp C.rstd c/2@lane ( C.norm ) ) )"),
      HasSubstr("Y.block stands inside loop r@warp"));
  // A row's sum is replaced by the next row's.
  const std::string rows =
      "name: rows\nloops: {r: 8, c: 64}\noperators:\n  - \"s: s[r] += x[r,c]\"\n"
      "  - \"y: y[r,c] = x[r,c] - s[r]\"\n";
  const std::string row = "c/2@lane ( C.s ) Y.warp c/2@lane ( C.y )";
  EXPECT_THAT(refusal(rows, "r/4@grid ( r/1 ( " + row + " ) )"),
              HasSubstr("C.s writes s again in the next iteration of r, while other lanes of its "
                        "warp may still be at C.y: Y.warp must stand between"));
  EXPECT_EQ(refusal(rows, "r/4@grid ( r/1 ( " + row + " Y.warp ) )"), "");
}

/// Every element that one block makes and another reads, seen by walking the plan.
class Witness {
 public:
  explicit Witness(const Schedule& s) : s_(s) {
    walk(s, [&](const AccessEvent& e) { see(e); });
  }
  /// (tensor, reader, whether it is read before it is written again).
  std::set<std::tuple<TensorId, NodeId, bool>> found;

 private:
  struct Element {
    std::set<std::int64_t> makers;
    std::set<std::pair<NodeId, std::int64_t>> readers;
  };

  void see(const AccessEvent& e) {
    if (e.kind == AccessKind::update)
      each(e.box, [&](std::int64_t at) { made(e, elements_[{e.tensor, at}]); });
    const ScheduledKernel& k = s_.kernels.front();
    if (e.kind == AccessKind::load && k.node(e.node).flush.valid() &&
        !k.buffer(e.buffer).outer.valid())
      each(e.box, [&](std::int64_t at) { read(e, elements_[{e.tensor, at}]); });
  }
  void made(const AccessEvent& e, Element& element) {
    // (Blocks of one nest may each make what they read, all the same.)
    if (!element.readers.empty() && element.makers.contains(e.block)) {
      for (const auto& [reader, block] : element.readers)
        if (block != e.block) found.emplace(e.tensor, reader, true);
      element = {};
    }
    element.makers.insert(e.block);
  }
  void read(const AccessEvent& e, Element& element) {
    element.readers.emplace(e.node, e.block);
    if (!element.makers.contains(e.block)) found.emplace(e.tensor, e.node, false);
  }
  template <class F>
  static void each(const Box& box, F&& f) {
    std::vector<std::int64_t> at;
    for (Interval i : box) at.push_back(i.lo);
    if (box.empty()) return;
    for (;;) {
      std::int64_t flat = 0;
      for (std::int64_t i : at) flat = flat * 4096 + i;
      f(flat);
      int d = box.rank() - 1;
      for (; d >= 0 && ++at[static_cast<std::size_t>(d)] >= box[d].hi; --d)
        at[static_cast<std::size_t>(d)] = box[d].lo;
      if (d < 0) return;
    }
  }

  const Schedule& s_;
  std::map<std::pair<TensorId, std::int64_t>, Element> elements_;
};

/// No exchange between blocks goes unseen, and most of those that are said to be do take place.
TEST(Dependences, RandomPlansExchangeNothingUnseen) {
  std::uint64_t seed = 16;
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed = std::strtoull(other, nullptr, 10);
  std::mt19937_64 random(seed);
  int legal = 0, said = 0, seen = 0, with_barrier = 0;
  for (int i = 0; i < 20000 && legal < 1000; ++i) {
    const auto c = testing::random_case(random, {.kernels = false, .phases = true});
    if (!c) continue;
    std::optional<Schedule> s;
    try {
      auto resolved = resolve(c->plan, c->workload, c->machine);
      if (resolved.ok()) s = std::move(resolved).value();
    } catch (const InputError&) {
    }
    if (!s) continue;
    ++legal;
    const ScheduledKernel& k = s->kernels.front();
    with_barrier += k.co_resident;
    std::set<std::tuple<TensorId, NodeId, bool>> between;
    for (const Dependence& d : dependences(*s, k)) {
      EXPECT_TRUE(barrier_of(k, d).valid());
      if (d.scope == Unit::machine && !d.buffer.valid())
        between.emplace(d.tensor, d.reader, d.loop.valid());
    }
    const Witness witness(*s);
    for (const auto& [tensor, reader, again] : witness.found)
      ASSERT_TRUE(between.contains({tensor, reader, again}))
          << c->workload->tensor(tensor).name << (again ? " again" : "") << "\n"
          << testing::describe(*c) << to_text(s->resolved.kernels.front().tree);
    for (const auto& d : between) ++said, seen += witness.found.contains(d);
  }
  std::cout << legal << " plans, " << with_barrier << " with Y.grid; " << said
            << " exchanges between blocks said, " << seen << " of them seen\n";
  EXPECT_EQ(legal, 1000);
  EXPECT_GT(with_barrier, 500);
  EXPECT_GT(seen, said * 7 / 10);
}

}  // namespace
}  // namespace tilewright
