// Algorithm 1 against the paper's own tables and hand-computed cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/workload/text.h"
#include "models/chimera/chimera.h"

namespace tilewright::chimera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Workload gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t l,
              std::int64_t batch = 1) {
  return named_workload("gemm-chain:m=" + std::to_string(m) + ",n=" + std::to_string(n) +
                        ",k=" + std::to_string(k) + ",l=" + std::to_string(l) +
                        ",batch=" + std::to_string(batch));
}

Workload from(std::string_view yaml) { return workload_from_yaml(yaml, "test"); }

Price price_at(const Workload& w, std::string_view order,
               const std::map<std::string, std::int64_t>& tiles, Options options = {}) {
  return price(w, parse_order(w, order), tiles_from(w, tiles), options);
}

const TensorPrice& of(const Workload& w, const Price& p, std::string_view tensor) {
  return p.tensors[w.find_tensor(tensor)->index()];
}
std::int64_t moved(const Workload& w, const Price& p, std::string_view tensor) {
  return of(w, p, tensor).movement.value;
}

TEST(ChimeraPrice, TableThreeOnRandomShapes) {
  const unsigned seed = 20230225;
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const auto draw = [&](std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(1, hi)(rng);
  };
  for (int round = 0; round < 300; ++round) {
    const std::int64_t m = draw(200), n = draw(200), k = draw(200), l = draw(200), b = draw(3);
    const std::int64_t tm = draw(m), tn = draw(n), tk = draw(k), tl = draw(l);
    const Workload w = gemm(m, n, k, l, b);
    for (Reading reading : {Reading::observed, Reading::literal}) {
      const Price p = price_at(w, "mlkn", {{"m", tm}, {"n", tn}, {"k", tk}, {"l", tl}},
                               {.reading = reading, .edges = Edges::exact});
      EXPECT_EQ(moved(w, p, "A"), b * m * k * ceil_div(l, tl));
      EXPECT_EQ(moved(w, p, "B"), b * k * l * ceil_div(m, tm));
      EXPECT_EQ(moved(w, p, "C"), 0);
      EXPECT_EQ(moved(w, p, "D"), b * n * l * ceil_div(m, tm));
      EXPECT_EQ(moved(w, p, "E"), b * m * n * ceil_div(l, tl));
      EXPECT_EQ(of(w, p, "A").footprint.value, tm * tk);
      EXPECT_EQ(of(w, p, "B").footprint.value, tk * tl);
      EXPECT_EQ(of(w, p, "C").footprint.value, tm * tl);
      EXPECT_EQ(of(w, p, "D").footprint.value, tl * tn);
      EXPECT_EQ(of(w, p, "E").footprint.value, tm * tn);
      EXPECT_EQ(p.memory_paper.value,
                std::max(tm * tk + tk * tl + tm * tl, tm * tl + tl * tn + tm * tn));
      EXPECT_EQ(p.recomputed.value, 0);
    }
  }
}

TEST(ChimeraPrice, FullEdgesChargeWholeTiles) {
  const Workload w = gemm(10, 6, 7, 9);
  const std::map<std::string, std::int64_t> tiles{{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}};
  const Price p = price_at(w, "mlkn", tiles);
  EXPECT_EQ(moved(w, p, "A"), (4 * 3) * (4 * 2) * 2);
  EXPECT_EQ(moved(w, p, "B"), (4 * 2) * (5 * 2) * 3);
  EXPECT_EQ(moved(w, p, "D"), (5 * 2) * (3 * 2) * 3);
  EXPECT_EQ(moved(w, p, "E"), (4 * 3) * (3 * 2) * 2);
  // plan.md's first row, exact edges: A 140, B 189, D 162, E 60 read and 120 written (the paper
  // counts E once: 10 * 6 * 2), memory 56.
  const Price e = price_at(w, "mlkn", tiles, {.edges = Edges::exact});
  EXPECT_EQ(moved(w, e, "A"), 140);
  EXPECT_EQ(moved(w, e, "B"), 189);
  EXPECT_EQ(moved(w, e, "D"), 162);
  EXPECT_EQ(moved(w, e, "E"), 120);
  EXPECT_EQ(e.memory.value, 56);
  EXPECT_EQ(price_at(w, "mlkn", tiles, {.edges = Edges::exact, .write_weight = 2}).volume.value,
            e.volume.value + 120);
}

TEST(ChimeraPrice, MemoryModesOnThePlansWorkedRows) {
  const Workload w = gemm(10, 6, 7, 9);
  const std::map<std::string, std::int64_t> tiles{{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}};
  const auto memory = [&](std::string_view order, Memory mode, std::int64_t n = 3) {
    auto t = tiles;
    t["n"] = n;
    return price_at(w, order, t, {.memory = mode}).memory.value;
  };
  EXPECT_EQ(memory("mlkn", Memory::paper), 56);
  EXPECT_EQ(memory("mlkn", Memory::creq), 56);
  EXPECT_EQ(memory("mlkn", Memory::held), 56);
  // E's whole row is one tile and stays held over l: 56 + 24.
  EXPECT_EQ(memory("mlkn", Memory::creq, 6), 74);
  EXPECT_EQ(memory("mlkn", Memory::held, 6), 80);
  // C's row of blocks: 4 x 9, not 4 x 5 and not 4 x 10.
  EXPECT_EQ(memory("mkln", Memory::paper), 56);
  EXPECT_EQ(memory("mkln", Memory::creq), 16 + 20 + 36);
  // E lives through gemm1.
  EXPECT_EQ(memory("mnlk", Memory::creq), 56);
  EXPECT_EQ(memory("mnlk", Memory::held), 68);
  EXPECT_EQ(memory("mlkn", Memory::sum), 16 + 20 + 20 + 15 + 12);
  EXPECT_EQ(memory("mkln", Memory::sum), 16 + 20 + 36 + 15 + 12);
  // An unfinished k that makes one trip needs no row.
  auto t = tiles;
  t["k"] = 7;
  EXPECT_EQ(price_at(w, "mkln", t).memory.value, 28 + 35 + 20);
  EXPECT_EQ(of(w, price_at(w, "mkln", tiles), "C").buffer.value, 36);
  EXPECT_EQ(of(w, price_at(w, "mkln", tiles), "C").footprint.value, 20);
}

TEST(ChimeraPrice, FigureTwosReuse) {
  const Workload w = gemm(64, 64, 64, 64);
  const std::map<std::string, std::int64_t> tiles{{"m", 8}, {"n", 8}, {"k", 8}, {"l", 8}};
  const auto reused = [&](std::string_view order, std::string_view tensor) {
    std::string names;
    const Price p = price_at(w, order, tiles);
    for (LoopId l : of(w, p, tensor).reused) names += w.loop(l).name;
    return names;
  };
  // "A is reused along dimension l; B is not reused; D and E are always reused along k."
  EXPECT_EQ(reused("mnkl", "A"), "l");
  EXPECT_EQ(reused("mnkl", "B"), "");
  EXPECT_EQ(reused("mnkl", "D"), "k");
  EXPECT_EQ(reused("mnkl", "E"), "kl");
  // Observation 1 and 2: under mknl, n and l move nothing of A; under mnlk they do.
  EXPECT_EQ(reused("mknl", "A"), "nl");
  EXPECT_EQ(reused("mnlk", "A"), "");
  // Row six: A and B over n, D over k, E over k.
  EXPECT_EQ(reused("mlkn", "A"), "n");
  EXPECT_EQ(reused("mlkn", "B"), "n");
  EXPECT_EQ(reused("mlkn", "D"), "k");
  EXPECT_EQ(reused("mlkn", "E"), "k");
  for (const Order& order : all_orders(w))
    for (const char* tensor : {"D", "E"})
      EXPECT_THAT(reused(to_text(w, order), tensor), HasSubstr("k"));
}

TEST(ChimeraPrice, ReadingsDifferWhereTheyShould) {
  const Workload w = gemm(60, 50, 40, 70);
  const std::map<std::string, std::int64_t> tiles{{"m", 8}, {"n", 9}, {"k", 7}, {"l", 16}};
  const auto volume = [&](std::string_view order, Reading r) {
    return price_at(w, order, tiles, {.reading = r}).volume.value;
  };
  EXPECT_EQ(volume("mlnk", Reading::literal), volume("mlkn", Reading::literal));
  EXPECT_GT(volume("mlnk", Reading::observed), volume("mlkn", Reading::observed));
  EXPECT_EQ(volume("mlkn", Reading::observed), volume("mlkn", Reading::literal));
  EXPECT_EQ(volume("mlnk", Reading::trip_one), volume("mlnk", Reading::observed));
  // One trip of k: A's tile is its whole row, which n no longer evicts; the paper says it does.
  auto one = tiles;
  one["k"] = 40;
  const Price observed = price_at(w, "mlnk", one, {.edges = Edges::exact});
  const Price flag =
      price_at(w, "mlnk", one, {.reading = Reading::trip_one, .edges = Edges::exact});
  EXPECT_EQ(moved(w, observed, "A"), 60 * 40 * 6 * 5);
  EXPECT_EQ(of(w, observed, "A").decided_by, "k");
  EXPECT_EQ(moved(w, flag, "A"), 60 * 40);
  EXPECT_EQ(of(w, flag, "A").decided_by, "m");
  EXPECT_EQ(of(w, flag, "C").decided_by, "on chip");
}

TEST(ChimeraPrice, RecomputationIsReportedNotPriced) {
  const Workload w = gemm(10, 6, 7, 9);
  const Price p = price_at(w, "mnlk", {{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}});
  EXPECT_EQ(p.operations[0].value, 2 * 10 * 7 * 9);
  EXPECT_EQ(p.operations[1].value, 10 * 6 * 9);
  EXPECT_EQ(p.recomputed.value, 10 * 7 * 9);
}

TEST(ChimeraPrice, SpillingTheIntermediateAddsTwoOfIt) {
  const Workload w = gemm(60, 50, 40, 70);
  const std::map<std::string, std::int64_t> tiles{{"m", 8}, {"n", 9}, {"k", 7}, {"l", 16}};
  const Price on = price_at(w, "mlkn", tiles, {.edges = Edges::exact});
  const Price off =
      price_at(w, "mlkn", tiles, {.edges = Edges::exact, .spilled = {*w.find_tensor("C")}});
  EXPECT_EQ(off.volume.value, on.volume.value + 2 * 60 * 70);
  EXPECT_EQ(moved(w, off, "C"), 2 * 60 * 70);
}

TEST(ChimeraPrice, BatchIsOutermostAndMultiplies) {
  const Workload one = gemm(60, 50, 40, 70), many = gemm(60, 50, 40, 70, 12);
  const std::map<std::string, std::int64_t> tiles{{"m", 8}, {"n", 9}, {"k", 7}, {"l", 16}};
  for (const Order& order : all_orders(one)) {
    const Price a = price_at(one, to_text(one, order), tiles);
    const Price b = price_at(many, to_text(one, order), tiles);
    EXPECT_EQ(b.volume.value, 12 * a.volume.value);
    EXPECT_EQ(b.memory, a.memory);
    EXPECT_EQ(b.recomputed.value, 12 * a.recomputed.value);
  }
}

TEST(ChimeraPrice, ReluInBetweenIsAnOperatorOfTheChain) {
  const Workload plain = gemm(60, 50, 40, 70);
  const Workload w = from(
      "name: relu-chain\nloops: {m: 60, n: 50, k: 40, l: 70}\noperators:\n"
      "  - C[m,l] += A[m,k] * B[k,l]\n  - C1[m,l] = relu(C[m,l])\n"
      "  - E[m,n] += C1[m,l] * D[l,n]\n");
  const std::map<std::string, std::int64_t> tiles{{"m", 8}, {"n", 9}, {"k", 7}, {"l", 16}};
  for (const Order& order : all_orders(plain)) {
    const std::string text = to_text(plain, order);
    EXPECT_EQ(price_at(w, text, tiles).volume, price_at(plain, text, tiles).volume) << text;
  }
  EXPECT_EQ(price_at(w, "mlkn", tiles).memory_paper.value,
            std::max({8 * 7 + 7 * 16 + 8 * 16, 2 * 8 * 16, 8 * 16 + 16 * 9 + 8 * 9}));
}

Workload three() {
  return from(
      "name: three\nloops: {m: 12, k: 10, l: 14, n: 9, p: 11}\noperators:\n"
      "  - C[m,l] += A[m,k] * B[k,l]\n  - E[m,n] += C[m,l] * D[l,n]\n"
      "  - G[m,p] += E[m,n] * F[n,p]\n");
}

TEST(ChimeraPrice, ThreeOperators) {
  const Workload w = three();
  EXPECT_EQ(all_orders(w).size(), 120u);
  const std::map<std::string, std::int64_t> tiles{{"m", 4}, {"k", 5}, {"l", 7}, {"n", 3}, {"p", 6}};
  const Price p = price_at(w, "mlknp", tiles, {.edges = Edges::exact});
  // gemm1 and gemm2 inside l; gemm3 after it: l only appears in its producers and is erased.
  EXPECT_EQ(moved(w, p, "A"), 12 * 10 * 2);
  EXPECT_EQ(moved(w, p, "B"), 10 * 14 * 3);
  EXPECT_EQ(moved(w, p, "D"), 14 * 9 * 3);
  EXPECT_EQ(moved(w, p, "F"), 9 * 11 * 3);
  EXPECT_EQ(moved(w, p, "G"), 12 * 11 * 3);  // n is outside p
  // E accumulates over l while gemm1 runs: its row of blocks is alive there, C's one tile too.
  EXPECT_EQ(of(w, p, "E").buffer.value, 4 * 9);
  EXPECT_EQ(of(w, p, "C").buffer.value, 4 * 7);
  EXPECT_EQ(p.memory.value, 4 * 5 + 5 * 7 + 4 * 7 + 4 * 9);
  EXPECT_EQ(p.memory_paper.value, 4 * 5 + 5 * 7 + 4 * 7);
}

TEST(ChimeraPrice, ConvChainFollowsTheConsumersTiles) {
  // Mid rows 2*h + r2 of 25 (no padding): I rows 3*y + r1 of 75.
  const Workload w = from(
      "name: convs\nloops: {o: 4, y: 25, x: 25, i: 3, r: 3, s: 3, c: 5, h: 12, v: 12, q: 2, t: 2}\n"
      "operators:\n  - M[o,y,x] += I[i,3*y+r,3*x+s] * W[o,i,r,s]\n"
      "  - O[c,h,v] += M[o,2*h+q,2*v+t] * V[c,o,q,t]\n");
  std::vector<std::string> loops;
  for (LoopId l : order_loops(w)) loops.push_back(w.loop(l).name);
  EXPECT_EQ(join(loops, ""), "oirschvqt");  // y and x follow h and v
  const Price p = price_at(w, "hvoirscqt", {{"h", 4}, {"v", 5}, {"o", 2}, {"i", 1}, {"c", 5}});
  // Mid tile edge (T_h - 1) st2 + k2, input edge (mid - 1) st1 + k1.
  const std::int64_t mh = 3 * 2 + 2, mv = 4 * 2 + 2, ih = (mh - 1) * 3 + 3, iv = (mv - 1) * 3 + 3;
  EXPECT_EQ(of(w, p, "M").footprint.value, 2 * mh * mv);
  EXPECT_EQ(of(w, p, "I").footprint.value, 1 * ih * iv);
  EXPECT_EQ(of(w, p, "W").footprint.value, 2 * 1 * 9);
  EXPECT_EQ(of(w, p, "O").footprint.value, 5 * 4 * 5);
  // I: its window loops end reuse at once (observed), so o counts too: h 3, v 3, o 2, i 3.
  EXPECT_EQ(moved(w, p, "I"), ih * iv * 3 * 3 * 2 * 3);
  // Exact edges: h tiles of 4 need mid rows 8, no overlap as k2 = st2; v tiles 5, 5, 2.
  const Price e = price_at(w, "hvoirscqt", {{"h", 4}, {"v", 5}, {"o", 2}, {"i", 1}, {"c", 5}},
                           {.edges = Edges::exact});
  EXPECT_EQ(moved(w, e, "I"), (3 * 24) * (30 + 30 + 12) * 3 * 2);
}

TEST(ChimeraPrice, HalosAreReadAgainAndComputedAgain) {
  const Workload w = from(
      "name: conv1d\nloops: {y: 12, r: 3, h: 10, s: 3}\noperators:\n"
      "  - M[y] += I[y+r] * W[r]\n  - O[h] += M[h+s] * V[s]\n");
  const Price p = price_at(w, "rsh", {{"h", 4}}, {.edges = Edges::exact});
  // plan.md: `h/4 ( C.conv1 C.conv2 )`: I 22, conv1 48 operations.
  EXPECT_EQ(moved(w, p, "I"), 22);
  EXPECT_EQ(p.operations[0].value, 48);
  EXPECT_EQ(of(w, p, "M").buffer.value, 6);
  EXPECT_EQ(moved(w, price_at(w, "rsh", {{"h", 4}}), "I"), 8 * 3);
}

TEST(ChimeraPrice, PricerAgrees) {
  const unsigned seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (const Workload& w : {three(), gemm(33, 21, 17, 40, 2)})
    for (const Order& order : all_orders(w))
      for (Memory mode : {Memory::paper, Memory::creq, Memory::sum, Memory::held}) {
        const Options o{.reading = Reading::trip_one, .edges = Edges::exact, .memory = mode};
        const Pricer pricer(w, order, o);
        Tiles tiles;
        for (const Loop& l : w.loops())
          tiles.push_back(std::uniform_int_distribution<std::int64_t>(1, l.extent)(rng));
        for (std::size_t l = 0; l < tiles.size(); ++l)
          if (w.is_batch(LoopId(l))) tiles[l] = 1;
        const Price p = price(w, order, tiles, o);
        EXPECT_EQ(pricer.price(tiles), p);
        const Pricer::Quick q = pricer.quick(tiles);
        EXPECT_EQ(q.volume, p.volume.value);
        EXPECT_EQ(q.memory, p.memory.value);
        EXPECT_EQ(q.memory_paper, p.memory_paper.value);
        EXPECT_LE(q.memory_paper, price(w, order, tiles, {.memory = Memory::creq}).memory.value);
      }
}

TEST(ChimeraPrice, BadTilesAndVolumesPastSixtyFourBitsAreBadInput) {
  const Workload w = gemm(10, 6, 7, 9);
  EXPECT_THROW(price(w, parse_order(w, "mlkn"), {10, 6, 7}, {}), InputError);
  EXPECT_THROW(price(w, parse_order(w, "mlkn"), {0, 6, 7, 9}, {}), InputError);
  EXPECT_THROW(price(w, parse_order(w, "mlkn"), {11, 11, 11, 11}, {}), InputError);
  EXPECT_THROW(tiles_from(w, {{"q", 1}}), InputError);
  EXPECT_THROW(tiles_from(w, {{"m", 11}}), InputError);
  const Workload big = gemm(1 << 15, 1 << 15, 1 << 15, 1 << 17);
  const Tiles ones = tiles_from(big, {{"m", 1}, {"n", 1}, {"l", 1}, {"k", 1}});
  EXPECT_GT(price(big, parse_order(big, "mlkn"), ones, {}).volume.value, 0);
  EXPECT_THROW(price(big, parse_order(big, "mnlk"), ones, {.write_weight = 1e6}), InputError);
}

}  // namespace
}  // namespace tilewright::chimera
