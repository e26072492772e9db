// The solver and the search against brute force that shares no code with them.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/chimera/chimera.h"
#include "models/chimera/solver.h"

namespace tilewright::chimera {
namespace {

Workload gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t l) {
  return named_workload("gemm-chain:m=" + std::to_string(m) + ",n=" + std::to_string(n) +
                        ",k=" + std::to_string(k) + ",l=" + std::to_string(l));
}

// ---- Brute force for a GEMM chain: loops are 0 m, 1 n, 2 k, 3 l -------------------------------

constexpr int kM = 0, kN = 1, kK = 2, kL = 3;
using Four = std::array<std::int64_t, 4>;

/// DV of one tiling, observed reading, full edges: Algorithm 1 by hand for A, B, D, E.
std::int64_t brute_volume(const std::array<int, 4>& order, const Four& t, const Four& trips) {
  static constexpr int tensors[4][2] = {{kM, kK}, {kK, kL}, {kL, kN}, {kM, kN}};
  std::int64_t volume = 0;
  for (int x = 0; x < 4; ++x) {
    const auto [a, b] = tensors[x];
    std::int64_t dm = t[static_cast<std::size_t>(a)] * t[static_cast<std::size_t>(b)];
    bool keep = true;
    for (int i = 3; i >= 0; --i) {
      const int loop = order[static_cast<std::size_t>(i)];
      if (x >= 2 && loop == kK) continue;  // erased after gemm1
      if (loop == a || loop == b) keep = false;
      if (!keep) dm *= trips[static_cast<std::size_t>(loop)];
    }
    volume += dm;
  }
  return volume;
}

bool brute_legal(const std::array<int, 4>& at, const Four& trips) {
  if (trips[kK] == 1 || trips[kN] == 1 || at[kK] > at[kN]) return true;
  return !(trips[kM] > 1 && at[kM] > at[kN]) && !(trips[kL] > 1 && at[kL] > at[kN]);
}

/// max(A + B + C_req, C_req + D + E)
std::int64_t brute_memory(const std::array<int, 4>& at, const Four& t, const Four& trips,
                          const Four& x) {
  std::int64_t c = 1;
  for (int loop : {kM, kL}) {
    const auto i = static_cast<std::size_t>(loop);
    c *= trips[kK] > 1 && at[i] > at[kK] ? x[i] : t[i];
  }
  return c + std::max(t[kM] * t[kK] + t[kK] * t[kL], t[kL] * t[kN] + t[kM] * t[kN]);
}

std::int64_t brute_best(const Four& x, std::int64_t capacity) {
  std::vector<std::array<int, 4>> orders, positions;
  std::array<int, 4> order{0, 1, 2, 3};
  do {
    orders.push_back(order);
    std::array<int, 4> at{};
    for (int i = 0; i < 4; ++i)
      at[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = i;
    positions.push_back(at);
  } while (std::next_permutation(order.begin(), order.end()));
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  Four t{};
  for (t[0] = 1; t[0] <= x[0]; ++t[0])
    for (t[1] = 1; t[1] <= x[1]; ++t[1])
      for (t[2] = 1; t[2] <= x[2]; ++t[2])
        for (t[3] = 1; t[3] <= x[3]; ++t[3]) {
          if (t[0] * t[3] + std::max((t[0] + t[3]) * t[2], (t[0] + t[3]) * t[1]) > capacity) break;
          Four trips{};
          for (std::size_t i = 0; i < 4; ++i) trips[i] = (x[i] + t[i] - 1) / t[i];
          for (std::size_t o = 0; o < orders.size(); ++o) {
            if (!brute_legal(positions[o], trips) ||
                brute_memory(positions[o], t, trips, x) > capacity)
              continue;
            best = std::min(best, brute_volume(orders[o], t, trips));
          }
        }
  return best;
}

TEST(ChimeraSolver, NoWorseThanBruteForceOverOrdersAndTilings) {
  const unsigned seed = 24;
  std::printf("seed %u\n", seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 200; ++round) {
    Four x{};
    for (std::int64_t& e : x) e = std::uniform_int_distribution<std::int64_t>(1, 24)(rng);
    const std::int64_t capacity = std::uniform_int_distribution<std::int64_t>(3, 400)(rng);
    const Workload w = gemm(x[kM], x[kN], x[kK], x[kL]);
    const Search s = search(w, Elements(capacity), {});
    const std::int64_t brute = brute_best(x, capacity);
    const Solution& top = s.ranked.front();
    if (brute == std::numeric_limits<std::int64_t>::max()) {
      EXPECT_FALSE(top.feasible);
      continue;
    }
    ASSERT_TRUE(top.feasible) << top.reason;
    EXPECT_EQ(top.price.volume.value, brute)
        << w.name() << " m" << x[0] << " n" << x[1] << " k" << x[2] << " l" << x[3] << " in "
        << capacity << ": " << to_text(w, top.order);
    for (const Solution& each : s.ranked) {
      if (!each.feasible) continue;
      EXPECT_TRUE(each.proven);
      EXPECT_LE(each.price.memory.value, capacity);
      EXPECT_TRUE(legality(w, each.order, each.tiles).legal);
      EXPECT_EQ(price(w, each.order, each.tiles, {}), each.price);
    }
  }
}

TEST(ChimeraSolver, NoWorseThanEveryTileOfMlknOnLargeShapes) {
  const unsigned seed = 4096;
  std::printf("seed %u\n", seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 50; ++round) {
    Four x{};
    for (std::int64_t& e : x) e = std::uniform_int_distribution<std::int64_t>(1, 4096)(rng);
    const std::int64_t capacity = std::int64_t{1}
                                  << std::uniform_int_distribution<std::int64_t>(4, 22)(rng);
    const Workload w = gemm(x[kM], x[kN], x[kK], x[kL]);
    // T_K = T_N = 1: they multiply nothing, pad nothing and need least memory.
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t tm = 1; tm <= x[kM]; ++tm) {
      const std::int64_t nm = (x[kM] + tm - 1) / tm, most = (capacity - tm) / (tm + 1);
      for (std::int64_t tl = 1; tl <= std::min(x[kL], most); ++tl) {
        const std::int64_t nl = (x[kL] + tl - 1) / tl;
        best = std::min(best, (x[kK] + x[kN]) * (tm * nm * nl + tl * nl * nm));
      }
    }
    const auto s = solve(w, parse_order(w, "mlkn"), Elements(capacity), {});
    ASSERT_TRUE(s.ok()) << s.reason();
    EXPECT_TRUE(s->proven);
    EXPECT_LE(s->price.volume.value, best) << round;
    EXPECT_LE(s->price.memory.value, capacity);
  }
}

/// Every option against every integer tiling, by this library's own pricing (which has its own
/// tests): the solver's shortcuts lose nothing.
TEST(ChimeraSolver, EveryOptionAgainstEveryTiling) {
  const unsigned seed = 11;
  std::printf("seed %u\n", seed);
  std::mt19937 rng(seed);
  const auto draw = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(rng);
  };
  for (int round = 0; round < 160; ++round) {
    const bool three = round % 4 == 3;
    const std::int64_t hi = three ? 5 : 11;
    std::string yaml = "name: w\nloops: {m: " + std::to_string(draw(1, hi)) +
                       ", n: " + std::to_string(draw(1, hi)) +
                       ", k: " + std::to_string(draw(1, hi)) +
                       ", l: " + std::to_string(draw(1, hi));
    if (three) yaml += ", p: " + std::to_string(draw(1, hi));
    yaml += "}\noperators:\n  - C[m,l] += A[m,k] * B[k,l]\n";
    yaml += round % 4 == 2 ? "  - R[m,l] = relu(C[m,l])\n  - E[m,n] += R[m,l] * D[l,n]\n"
                           : "  - E[m,n] += C[m,l] * D[l,n]\n";
    if (three) yaml += "  - G[m,p] += E[m,n] * F[n,p]\n";
    const Workload w = workload_from_yaml(yaml, "test");
    Options o{.reading = static_cast<Reading>(draw(0, 2)),
              .edges = static_cast<Edges>(draw(0, 1)),
              .memory = static_cast<Memory>(draw(0, 3)),
              .write_weight = draw(0, 1) == 0 ? 1.0 : 2.0,
              .min_tile = draw(0, 1) == 0 ? 1 : draw(1, 4)};
    if (draw(0, 3) == 0) o.spilled = {*w.find_tensor("C")};
    const std::vector<Order> orders = all_orders(w);
    const Order order =
        orders[static_cast<std::size_t>(draw(0, static_cast<int>(orders.size()) - 1))];
    const std::int64_t capacity = draw(3, 200);
    const Pricer pricer(w, order, o);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    Tiles t, least;
    for (const Loop& l : w.loops()) least.push_back(std::min(o.min_tile, l.extent));
    t = least;
    for (bool more = true; more;) {
      const Pricer::Quick q = pricer.quick(t);
      if (q.memory <= capacity && q.volume < best && legality(w, order, t).legal) best = q.volume;
      more = false;
      for (std::size_t i = 0; i < t.size() && !more; ++i) {
        more = ++t[i] <= w.loops()[i].extent;
        if (!more) t[i] = least[i];
      }
    }
    const auto s = solve(w, order, Elements(capacity), o);
    const std::string what = yaml + to_text(w, order) + " capacity " + std::to_string(capacity) +
                             " " + std::string(name_of(o.reading)) + " " +
                             std::string(name_of(o.edges)) + " " + std::string(name_of(o.memory)) +
                             " min " + std::to_string(o.min_tile);
    if (best == std::numeric_limits<std::int64_t>::max()) {
      EXPECT_TRUE(!s.ok() || !s->feasible) << what;
      continue;
    }
    ASSERT_TRUE(s.ok()) << what << s.reason();
    EXPECT_TRUE(s->feasible) << what;
    EXPECT_EQ(s->price.volume.value, best) << what;
    EXPECT_LE(s->price.memory.value, capacity) << what;
    for (std::size_t i = 0; i < t.size(); ++i) EXPECT_GE(s->tiles[i], least[i]) << what;
  }
}

TEST(ChimeraSolver, RealOptimumIsTheClosedFormForMlkn) {
  const Workload w = gemm(4096, 512, 512, 4096);
  const Order order = parse_order(w, "mlkn");
  const auto closed = closed_form(w, order, Elements(65536), 1);
  const auto s = solve(w, order, Elements(65536), {.edges = Edges::exact, .memory = Memory::paper});
  ASSERT_TRUE(closed.ok() && s.ok());
  EXPECT_NEAR(s->real_volume / closed->volume, 1.0, 1e-3);
  EXPECT_LE(s->real_volume, static_cast<double>(s->price.volume.value) * (1 + 1e-4));
}

TEST(ChimeraClosedForm, ThePapersExample) {
  const Workload w = gemm(1024, 64, 64, 512);
  const auto c = closed_form(w, parse_order(w, "mlkn"), Elements(262144), 1);
  ASSERT_TRUE(c.ok());
  EXPECT_NEAR(c->tile, 511.0, 0.01);
  EXPECT_EQ(c->tiles[w.find_loop("m")->index()], 511);
  EXPECT_EQ(c->tiles[w.find_loop("l")->index()], 511);
  EXPECT_EQ(c->tiles[w.find_loop("k")->index()], 1);
  EXPECT_EQ(c->price.volume.value, 1024 * 64 * 2 + 64 * 512 * 3 + 64 * 512 * 3 + 1024 * 64 * 2);
  const auto best = solve(w, parse_order(w, "mlkn"), Elements(262144), {.edges = Edges::exact});
  ASSERT_TRUE(best.ok());
  EXPECT_NEAR(
      static_cast<double>(c->price.volume.value) / static_cast<double>(best->price.volume.value),
      1.40, 0.005);
}

TEST(ChimeraClosedForm, StaysWithinThePapersBound) {
  const unsigned seed = 5;
  std::printf("seed %u\n", seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 1000; ++round) {
    Four x{};
    for (std::int64_t& e : x) e = std::uniform_int_distribution<std::int64_t>(1, 5000)(rng);
    const Workload w = gemm(x[0], x[1], x[2], x[3]);
    const std::int64_t alpha = std::uniform_int_distribution<std::int64_t>(1, 32)(rng);
    const Elements capacity(std::uniform_int_distribution<std::int64_t>(2000, 4000000)(rng));
    const auto c = closed_form(w, parse_order(w, "mlkn"), capacity, alpha);
    ASSERT_TRUE(c.ok()) << c.reason();
    EXPECT_LE(static_cast<double>(c->price.volume.value) / c->volume, c->bound * (1 + 1e-12));
    EXPECT_LE(c->price.memory_paper, capacity);
  }
}

TEST(ChimeraClosedForm, OnlyForMlkn) {
  const Workload w = gemm(64, 64, 64, 64);
  EXPECT_FALSE(closed_form(w, parse_order(w, "lmkn"), Elements(4096), 1).ok());
  EXPECT_FALSE(closed_form(w, parse_order(w, "mlkn"), Elements(2), 1).ok());
  const Workload batch = named_workload("gemm-chain:m=64,n=64,k=64,l=64,batch=3");
  const auto one = closed_form(w, parse_order(w, "mlkn"), Elements(1024), 1);
  const auto three = closed_form(batch, parse_order(batch, "mlkn"), Elements(1024), 1);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_DOUBLE_EQ(three->volume, 3 * one->volume);
  EXPECT_EQ(three->price.volume.value, 3 * one->price.volume.value);
  const Workload conv = named_workload("chimera/C7");
  EXPECT_FALSE(closed_form(conv, order_loops(conv), Elements(4096), 1).ok());
}

TEST(ChimeraSearch, ReportsWhatItDidAndHowLongItTook) {
  for (const char* name :
       {"chimera/G1", "chimera/G2", "chimera/G12", "gemm-chain:m=1024,n=1024,k=1024,l=1024",
        "gemm-chain:m=4096,n=4096,k=4096,l=4096", "gemm-chain:m=4093,n=4057,k=4001,l=3989"}) {
    const Workload w = named_workload(name);
    for (std::int64_t capacity : {8192, 262144}) {
      Search s = search(w, Elements(capacity), {});
      for (int again = 0; again < 4; ++again)  // the quickest of five: others may run here
        s.seconds = std::min(s.seconds, search(w, Elements(capacity), {}).seconds);
      EXPECT_EQ(s.ranked.size(), 24u);
      EXPECT_EQ(s.counted.at("orders"), 24);
      EXPECT_EQ(s.counted.at("illegal_orders"), 6);
      EXPECT_EQ(s.counted.at("unproven"), 0);
      for (std::size_t i = 1; i < s.ranked.size(); ++i)
        EXPECT_TRUE(!s.ranked[i].feasible ||
                    s.ranked[i - 1].price.volume <= s.ranked[i].price.volume);
      std::printf("%-42s %7lld elements: 24 orders in %.2f ms, %lld points, best %s\n", name,
                  static_cast<long long>(capacity), s.seconds * 1e3,
                  static_cast<long long>(s.counted.at("evaluated")),
                  to_text(w, s.ranked.front().order).c_str());
    }
  }
}

TEST(ChimeraSearch, WhatDoesNotFitSaysWhy) {
  const Workload w = gemm(8, 8, 8, 8);
  const auto s = solve(w, parse_order(w, "mlkn"), Elements(2), {});
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.reason().find("3 elements"), std::string::npos) << s.reason();
  const Search none = search(w, Elements(2), {});
  ASSERT_EQ(none.ranked.size(), 24u);
  for (const Solution& each : none.ranked) {
    EXPECT_FALSE(each.feasible);
    EXPECT_FALSE(each.reason.empty());
    EXPECT_TRUE(each.tiles.empty());
  }
}

TEST(ChimeraSearch, ConvolutionChainsAreSolvedAndSearchedWithinALimit) {
  for (const char* name : {"chimera/C1", "chimera/C6"}) {
    const Workload w = named_workload(name);
    const Search s = search(w, Elements(32768), {});
    ASSERT_EQ(s.ranked.size(), 120u);
    ASSERT_FALSE(s.notes.empty());
    EXPECT_GT(s.counted.at("not_enumerated"), 0);
    const Solution& top = s.ranked.front();
    ASSERT_TRUE(top.feasible);
    EXPECT_LE(top.price.memory.value, 32768);
    std::printf("%s: %.1f ms, %s\n", name, s.seconds * 1e3,
                to_text(tree_of(w, top.order, top.tiles)).c_str());
    // The same order a second way, and against random tilings of it.
    const unsigned seed = 3;
    std::mt19937 rng(seed);
    const Pricer pricer(w, top.order, {});
    for (int round = 0; round < 2000; ++round) {
      Tiles t = top.tiles;
      for (const char* loop : {"oc1", "oc2", "ic", "h", "w"}) {
        const LoopId l = *w.find_loop(loop);
        t[l.index()] = std::uniform_int_distribution<std::int64_t>(1, w.loop(l).extent)(rng);
      }
      const Pricer::Quick q = pricer.quick(t);
      if (q.memory <= 32768 && legality(w, top.order, t).legal) {
        EXPECT_GE(q.volume, top.price.volume.value) << "seed " << seed;
      }
    }
  }
}

TEST(ChimeraSearch, ManyLoopsAreSearchedByThoseThatAreCut) {
  std::string chain;
  for (int i = 0; i + 2 < 9; ++i)
    chain += "  - T" + std::to_string(i + 1) + "[m,x" + std::to_string(i + 1) + "] += T" +
             std::to_string(i) + "[m,x" + std::to_string(i) + "] * W" + std::to_string(i) + "[x" +
             std::to_string(i) + ",x" + std::to_string(i + 1) + "]\n";
  const Workload w = workload_from_yaml(
      "name: long\nloops: {m: 4, x0: 4, x1: 4, x2: 4, x3: 4, x4: 4, x5: 4, x6: 4, x7: 4}\n"
      "operators:\n" +
          chain,
      "test");
  EXPECT_TRUE(all_orders(w).empty());
  const auto s = try_search(w, Elements(1000), {});
  ASSERT_TRUE(s.ok()) << s.reason();
  ASSERT_FALSE(s->ranked.empty());
  EXPECT_TRUE(s->ranked.front().feasible);
  EXPECT_NE(s->notes.back().find("of 9 loops are cut"), std::string::npos) << s->notes.back();
  const auto one = solve(w, order_loops(w), Elements(1000), {});
  ASSERT_TRUE(one.ok()) << one.reason();
  EXPECT_LE(s->ranked.front().price.volume.value, one->price.volume.value);
  // What is left out of the search changes nothing that is found.
  const auto uncounted = try_search(w, Elements(1000), {.counts = false});
  ASSERT_TRUE(uncounted.ok()) << uncounted.reason();
  ASSERT_EQ(uncounted->ranked.size(), s->ranked.size());
  for (std::size_t i = 0; i < s->ranked.size(); ++i) {
    EXPECT_EQ(uncounted->ranked[i].order, s->ranked[i].order);
    EXPECT_EQ(uncounted->ranked[i].tiles, s->ranked[i].tiles);
  }
}

struct Drawn {
  std::string name;
  Elements capacity;
};

/// Products in a row, m x x0 by x0 x x1 and so on.
std::string products(int count, const std::function<std::string()>& extent) {
  std::string loops = "m: " + extent() + ", x0: " + extent(), operators;
  for (int i = 0; i < count; ++i) {
    const std::string from = std::to_string(i), to = std::to_string(i + 1);
    loops += ", x" + to + ": " + extent();
    operators += "  - T" + to + "[m,x" + to + "] += T" + from + "[m,x" + from + "] * W" + from +
                 "[x" + from + ",x" + to + "]\n";
  }
  return "name: products\nloops: {" + loops + "}\noperators:\n" + operators;
}

Drawn drawn_search(std::mt19937& rng, std::size_t round) {
  const auto drawn = [&](std::int64_t least, std::int64_t most) {
    std::uniform_real_distribution<double> log(std::log(least), std::log(most));
    return std::to_string(std::llround(std::exp(log(rng))));
  };
  const auto x = [&] { return drawn(2, 400); };
  const std::array<std::string, 5> names = {
      "gemm-chain:m=" + x() + ",n=" + x() + ",k=" + x() + ",l=" + x(),
      "gemm-chain3:m=" + x() + ",n=" + x() + ",k=" + x() + ",l=" + x() + ",p=" + x(),
      "attention:m=" + x() + ",l=" + x() + ",k=" + drawn(2, 90) + ",n=" + drawn(2, 90),
      "softmax:rows=" + x() + ",cols=" + x(),
      "conv-chain:ic=" + drawn(2, 40) + ",h=" + drawn(6, 40) + ",w=" + drawn(6, 40) +
          ",oc1=" + drawn(2, 40) + ",oc2=" + drawn(2, 40)};
  return {names[round % names.size()], Elements(std::stoll(drawn(40, 100'000)))};
}

TEST(ChimeraSearch, TheBestOrderIsTheFirstOfAll) {
  std::mt19937 rng(27112026);
  int feasible = 0, none = 0;
  for (std::size_t round = 0; round < 100; ++round) {
    Drawn d = drawn_search(rng, round);
    // More than 120 orders.
    const bool many = round % 12 == 11;
    if (many)
      d.name = products(4 + static_cast<int>(round / 12) % 2, [&] {
        return std::to_string(std::uniform_int_distribution<int>(2, 60)(rng));
      });
    const Workload w = many ? workload_from_yaml(d.name, "test") : named_workload(d.name);
    const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng); };
    const Options o{.reading = static_cast<Reading>(pick(3)),
                    .edges = static_cast<Edges>(pick(2)),
                    .memory = static_cast<Memory>(pick(4)),
                    .write_weight = pick(2) == 0 ? 1.0 : 2.0,
                    .min_tile = pick(3) == 0 ? 4 : 1};
    SCOPED_TRACE(d.name + ", " + std::to_string(d.capacity.value) + " elements, round " +
                 std::to_string(round));
    const Search all = search(w, d.capacity, o);
    const auto first = best_order(w, d.capacity, o);
    ASSERT_EQ(first.ok(), !all.ranked.empty());
    if (!first) {
      ++none;
      continue;
    }
    const Solution& front = all.ranked.front();
    EXPECT_EQ(to_text(w, first->order), to_text(w, front.order));
    EXPECT_EQ(first->tiles, front.tiles);
    EXPECT_EQ(first->price.volume, front.price.volume);
    EXPECT_EQ(first->price.memory, front.price.memory);
    EXPECT_EQ(first->feasible, front.feasible);
    EXPECT_EQ(first->fits, front.fits);
    EXPECT_EQ(first->reason, front.reason);
    ++(front.feasible ? feasible : none);
  }
  EXPECT_GT(feasible, 60);
  EXPECT_GT(none, 3);
}

TEST(ChimeraSearch, TheBestFitIsThePlans) {
  std::mt19937 rng(27112027);
  int fit = 0, others = 0;
  for (std::size_t round = 0; round < 120; ++round) {
    const Drawn d = drawn_search(rng, round);
    const Workload w = named_workload(d.name);
    const Machine m = named_machine("scratchpad:1M");
    const LevelId level = m.default_level();
    SCOPED_TRACE(d.name + ", " + std::to_string(d.capacity.value) + " elements, round " +
                 std::to_string(round));
    const auto plan = best_plan(w, m, level, {}, d.capacity);
    const auto fits = best_fit(w, m, level, {}, d.capacity);
    if (!plan) continue;
    ASSERT_TRUE(fits.ok()) << fits.reason();
    ++fit;
    const auto first = best_order(w, d.capacity, {});
    ASSERT_TRUE(first.ok()) << first.reason();
    others += first->order != fits->order || first->tiles != fits->tiles ? 1 : 0;
    EXPECT_EQ(to_text(w, fits->order), to_text(w, plan->solution.order));
    EXPECT_EQ(fits->tiles, plan->solution.tiles);
    EXPECT_EQ(fits->price.volume, plan->solution.price.volume);
  }
  EXPECT_GT(fit, 60);
  EXPECT_GT(others, 5);  // whose first order does not fit
}

TEST(ChimeraSearch, CutLoopsFindWhatEveryOrderFinds) {
  std::mt19937 rng(24112026);
  int feasible = 0, none = 0;
  for (std::size_t round = 0; round < 60; ++round) {
    const auto [name, capacity] = drawn_search(rng, round);
    const Workload w = named_workload(name);
    for (Memory memory : {Memory::creq, Memory::held}) {
      Options o;
      o.memory = memory;
      SCOPED_TRACE(name + ", " + std::to_string(capacity.value) + " elements");
      const Search all = search(w, capacity, o);
      const auto cut = detail::search_cut_loops(w, capacity, o);
      ASSERT_FALSE(all.ranked.empty());
      if (!all.ranked.front().feasible) {
        ++none;
        EXPECT_TRUE(!cut.ok() || !cut->ranked.front().feasible);
        continue;
      }
      ++feasible;
      ASSERT_TRUE(cut.ok()) << cut.reason();
      std::int64_t best = cut->ranked.front().price.volume.value;
      for (const Solution& s : cut->ranked) best = std::min(best, s.price.volume.value);
      EXPECT_EQ(best, all.ranked.front().price.volume.value);
    }
  }
  EXPECT_GT(feasible, 80);
  EXPECT_GT(none, 3);
}

/// A loop of 2^57 has 2^29 tiles of different trips.
TEST(ChimeraSolver, TakesSomeOfTheTilesOfAnEndlessLoop) {
  const std::int64_t extent = std::int64_t{1} << 57;
  const auto some = detail::candidates(extent, 1);
  EXPECT_LT(some.size(), 100000u);
  EXPECT_EQ(some.back().tile, extent);
  EXPECT_EQ(some.back().trips, 1);
}

}  // namespace
}  // namespace tilewright::chimera
