// Are the bounds bounds, and are the attainable points attained?
#include "models/bounds/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <set>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

using bounds::Curve;
using bounds::Freedom;
using testing::describe;
using testing::RandomCase;

std::shared_ptr<const Workload> named(const std::string& name) {
  return std::make_shared<const Workload>(named_workload(name));
}

std::shared_ptr<const Workload> gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  return std::make_shared<const Workload>(workload_from_yaml(
      "name: g\nloops: {m: " + std::to_string(m) + ", n: " + std::to_string(n) +
          ", k: " + std::to_string(k) + "}\noperators: [\"gemm: C[m,n] += A[m,k] * B[k,n]\"]\n",
      "test"));
}

std::shared_ptr<const Machine> memory_of(Bytes size) {
  return std::make_shared<const Machine>(
      parse_synthetic_machine("scratchpad:" + std::to_string(size.value) + "B"));
}

Bytes moved(const Schedule& s) {
  Bytes sum;
  for (const TrafficEntry& e : exact(s).entries) sum += e.read + e.written;
  return sum;
}

bool recomputes(const Schedule& s) {
  for (const auto& [op, n] : exact(s).operations)
    if (n > s.workload->operations(*s.workload->find_op(op))) return true;
  return false;
}

/// Every point of a curve: its plan resolves, fits, and moves those bytes.
int expect_attained(const std::shared_ptr<const Workload>& w, const Curve& curve,
                    std::size_t every) {
  int n = 0;
  Bytes last(INT64_MAX);
  for (std::size_t i = 0; i < curve.points().size(); ++i) {
    const Curve::Point& p = curve.points()[i];
    EXPECT_LT(p.traffic, last) << "curves fall";
    last = p.traffic;
    EXPECT_LE(bounds::proven(*w, p.buffer), p.traffic);
    if (i % every != 0) continue;
    const auto machine = memory_of(p.buffer);
    const Plan plan = curve.plan(p.buffer);
    const auto schedule = resolve(plan, w, machine);
    std::string text = w->name() + " at " + std::to_string(p.buffer.value / 4) + " words:";
    for (const Kernel& k : plan.kernels) text += " " + to_text(k.tree);
    EXPECT_TRUE(schedule.ok()) << text;
    if (!schedule) return n;
    EXPECT_FALSE(misfit(*schedule)) << text << " " << misfit(*schedule)->text;
    EXPECT_EQ(moved(*schedule).value / 4, p.traffic.value / 4) << text;
    if (::testing::Test::HasFailure()) return n;
    ++n;
  }
  return n;
}

}  // namespace

bool operator<=(const bounds::Proven& p, Bytes b) { return p.bytes <= b; }

namespace {

TEST(Attained, EveryPointOfAProduct) {
  int n = 0;
  for (auto [m, nn, k] : {std::array{5, 6, 7},
                          {11, 4, 9},
                          {3, 17, 2},
                          {13, 13, 13},
                          {1, 9, 8},
                          {6, 1, 5},
                          {7, 8, 1},
                          {1, 1, 6},
                          {96, 40, 7}}) {
    const auto w = gemm(m, nn, k);
    const auto curve = bounds::attainable_unfused(*w);
    ASSERT_TRUE(curve.ok());
    n += expect_attained(w, *curve, 1);
    if (HasFailure()) return;
    EXPECT_EQ(curve->points().back().traffic, w->compulsory_bytes());
  }
  EXPECT_GT(n, 70);
}

/// The figures of Orojenesis: bounds/chain-32k and bounds/gemm4096.
TEST(Published, Minima) {
  const auto chain = named("gemm-chain:m=32768,k=4096,l=16384,n=4096,dtype=f16");
  const auto fused = bounds::attainable_fused(*chain), unfused = bounds::attainable_unfused(*chain);
  EXPECT_EQ(unfused->points().back().traffic.value, 11LL << 28);             // 2.75 GiB
  EXPECT_EQ(fused->points().back().traffic.value, 3LL << 28);                // 0.75 GiB
  EXPECT_EQ(fused->points().back().buffer.value, 2 * (16385 * 8192LL + 1));  // 256.02 MiB
  EXPECT_GT(fused->at(Bytes(10'000'000)), unfused->at(Bytes(10'000'000)));
  const auto small = named("gemm-chain:m=512,k=64,l=512,n=64");
  EXPECT_EQ(bounds::attainable_fused(*small)->points().back().traffic.value, 4 * 131072);
}

TEST(Published, BoundsOverPerfectFactors) {
  const auto w = gemm(4096, 4096, 4096);
  const auto curve = bounds::attainable_unfused(*w, bounds::Steps::dividing);
  const std::pair<int, int> rows[] = {{2, 1088}, {24, 320}, {40, 256}, {50, 256}};
  for (const auto& [buffer, bound] : rows)
    EXPECT_EQ(curve->at(Bytes(buffer << 20))->value, std::int64_t{bound} << 20);
  EXPECT_EQ(bounds::attainable_unfused(*w)->at(Bytes(2 << 20))->value, 832LL << 20);
}

/// The form 2MNK/sqrt(S) + MN is above what a plan moves; ours is not.
TEST(Proven, WhereTheFormWithTheOutputAddedIsNoBound) {
  const auto w = gemm(100, 100, 4);
  const Bytes memory(21 * 4);
  const auto curve = bounds::attainable_unfused(*w);
  EXPECT_EQ(curve->at(memory)->value / 4, 20400);
  EXPECT_LT(20400, 2 * 100 * 100 * 4 / std::sqrt(21.0) + 100 * 100);
  EXPECT_LE(bounds::proven(*w, memory), *curve->at(memory));
  EXPECT_GT(bounds::proven(*w, memory).bytes.value / 4, 17000);
}

/// Below every attainable point, falling with the buffer, in the order of the freedoms.
TEST(Proven, OrderedAndFalling) {
  for (const char* name : {"gemm-chain:m=512,k=64,l=512,n=64", "gemm-chain:m=300,k=7,l=200,n=90",
                           "gemm-chain:m=64,k=512,l=64,n=512,batch=4"}) {
    const auto w = named(name);
    const auto fused = bounds::attainable_fused(*w), unfused = bounds::attainable_unfused(*w);
    Bytes last(INT64_MAX);
    for (std::int64_t words = 4; words < 1 << 20; words = words * 9 / 8 + 1) {
      const Bytes size(4 * words);
      const Bytes any = bounds::proven(*w, size).bytes;
      const Bytes once = bounds::proven(*w, size, Freedom::no_recomputation).bytes;
      const Bytes alone = bounds::proven(*w, size, Freedom::unfused).bytes;
      EXPECT_LE(any, last);
      EXPECT_LE(any, once);
      EXPECT_LE(once, alone);
      EXPECT_GE(any, w->compulsory_bytes());
      if (const auto at = unfused->at(size)) {
        EXPECT_LE(alone, *at);
      }
      if (const auto at = fused->at(size)) {
        EXPECT_LE(any, *at);
      }
      last = any;
    }
  }
}

Bytes above_compulsory(const Workload& w, Bytes memory, Freedom freedom) {
  return bounds::proven(w, memory, freedom).bytes - w.compulsory_bytes();
}

std::shared_ptr<const Workload> of(const std::string& loops, const std::string& operators,
                                   const std::string& more = {}) {
  return std::make_shared<const Workload>(workload_from_yaml(
      "name: w\nloops: {" + loops + "}\n" + more + "operators: [" + operators + "]\n", "test"));
}

/// Attention is the chain of its two products; row sums and exponentials add nothing to it.
TEST(Proven, AttentionAsItsChain) {
  for (const char* sizes : {"m=64,l=64,k=16,n=16", "m=33,l=100,k=7,n=40", "m=200,l=30,k=64,n=8"}) {
    const auto chain = named(std::string("gemm-chain:") + sizes);
    const auto attention = named(std::string("attention:") + sizes);
    for (Freedom f : {Freedom::any, Freedom::no_recomputation})
      for (std::int64_t memory : {64, 256, 1024, 4096})
        EXPECT_EQ(above_compulsory(*attention, Bytes(memory), f),
                  above_compulsory(*chain, Bytes(memory), f))
            << sizes << " " << memory;
    EXPECT_GT(above_compulsory(*attention, Bytes(64), Freedom::any).value, 0) << sizes;
  }
}

/// What a causal mask hides need not be computed.
TEST(Proven, MaskedAttentionIsCompulsory) {
  const auto w = named("attention:m=64,l=64,k=16,n=16,causal=1");
  EXPECT_EQ(bounds::proven(*w, Bytes(256)).bytes, w->compulsory_bytes());
}

/// Bytes of a mask need not be a whole number of the products' words.
TEST(Proven, BytesAreNotRoundedToWordsOfAnotherType) {
  const Workload w = workload_from_yaml(
      "loops: {m: 5, n: 3, k: 8}\ndtypes: {mask: i8}\noperators:\n"
      "  - \"P[m,n] += A[m,k] * B[k,n]\"\n  - \"Q[m,n] = select(mask[m,n], 0, P[m,n])\"\n",
      "test");
  EXPECT_EQ(w.compulsory_bytes().value % 4, 3);
  EXPECT_EQ(bounds::proven(w, Bytes(1 << 20)).bytes, w.compulsory_bytes());
}

/// Three products of one input are one product with all their columns.
TEST(Proven, ProductsOfOneInput) {
  const auto three = of("m: 40, k: 30, n: 20",
                        "\"Q[m,n] += X[m,k] * A[k,n]\", \"K[m,n] += X[m,k] * B[k,n]\", "
                        "\"V[m,n] += X[m,k] * C[k,n]\"");
  const auto one = gemm(40, 60, 30);
  for (Freedom f : {Freedom::any, Freedom::no_recomputation})
    for (std::int64_t memory : {64, 256, 1024})
      EXPECT_EQ(bounds::proven(*three, Bytes(memory), f), bounds::proven(*one, Bytes(memory), f));
  EXPECT_GT(above_compulsory(*three, Bytes(64), Freedom::any).value, 0);
}

/// A convolution whose places have no element in common is the product of its patches; where they
/// have, each element serves nine pairs of a place and a tap, and the bound is a third.
TEST(Proven, ConvolutionsAsProducts) {
  const std::string loops = "o: 16, h: 10, w: 10, c: 8, r: 3, s: 3";
  const auto apart = of(loops, "\"O[o,h,w] += I[c,3*h+r,3*w+s] * F[o,c,r,s]\"");
  const auto product = gemm(100, 16, 72);
  const auto near = of(loops, "\"O[o,h,w] += I[c,h+r,w+s] * F[o,c,r,s]\"");
  for (std::int64_t memory : {64, 256, 1024})
    EXPECT_EQ(bounds::proven(*apart, Bytes(memory)).bytes,
              bounds::proven(*product, Bytes(memory)).bytes);
  const double whole = double(bounds::proven(*apart, Bytes(64)).bytes.value);
  EXPECT_NEAR(double(bounds::proven(*near, Bytes(64)).bytes.value), whole / 3, 4);
}

TEST(Attained, LongLoopsToo) {
  int n = 0;
  for (const char* name : {"gemm-chain:m=512,k=64,l=512,n=64", "gemm-chain:m=301,k=7,l=211,n=97"}) {
    const auto w = named(name);
    const auto fused = bounds::attainable_fused(*w), unfused = bounds::attainable_unfused(*w);
    n += expect_attained(w, *fused, 11) + expect_attained(w, *unfused, 11);
  }
  EXPECT_GT(n, 40);
}

TEST(Attained, WhatIsNoProductHasAReason) {
  EXPECT_FALSE(bounds::attainable_unfused(*named("layernorm:rows=8,cols=8")).ok());
  EXPECT_FALSE(bounds::attainable_fused(*gemm(4, 4, 4)).ok());
  const auto w = named("layernorm:rows=8,cols=8");
  EXPECT_EQ(bounds::proven(*w, Bytes(64)).bytes, w->compulsory_bytes());
}

TEST(Attained, EveryPointOfAChain) {
  int n = 0;
  for (const char* name :
       {"gemm-chain:m=5,n=4,k=3,l=6", "gemm-chain:m=10,n=6,k=7,l=9", "gemm-chain:m=4,n=13,k=2,l=11",
        "gemm-chain:m=12,n=3,k=9,l=5", "gemm-chain:m=7,n=7,k=2,l=3", "gemm-chain:m=2,n=12,k=2,l=12",
        "gemm-chain:m=6,n=5,k=4,l=7,batch=3", "gemm-chain:m=48,n=20,k=9,l=36"}) {
    const auto w = named(name);
    const auto curve = bounds::attainable_fused(*w);
    ASSERT_TRUE(curve.ok());
    n += expect_attained(w, *curve, 1);
    if (HasFailure()) return;
    EXPECT_EQ(curve->points().back().traffic, w->compulsory_bytes()) << name;
  }
  std::cout << n << " points\n";
  EXPECT_GT(n, 130);
}

/// No legal random tree moves less than the curve with the memory that it uses, nor than the
/// bounds.
struct Held {
  int plans = 0;
  int above = 0;  ///< with words to spare
  int on = 0;     ///< exactly on the curve
};

Held hold(std::uint64_t seed, int wanted, bool chain, std::int64_t extent) {
  testing::RandomOptions options{.max_extent = extent,
                                 .most_operators = chain ? 2 : 1,
                                 .gemm_chains_only = true,
                                 .two_levels = false,
                                 .grid = false,
                                 .units = false};
  std::mt19937_64 random(seed);
  Held held;
  for (int tries = 0; held.plans < wanted && tries < 400 * wanted; ++tries) {
    const auto c = random_case(random, options);
    if (!c || c->workload->operators().size() != (chain ? 2u : 1u)) continue;
    std::optional<Schedule> schedule;
    try {
      auto resolved = resolve(c->plan, c->workload, c->machine);
      if (resolved.ok()) schedule = std::move(resolved).value();
    } catch (const InputError&) {
    }
    if (!schedule) continue;
    const Bytes memory = memory_use(*schedule).at("L1"), bytes = moved(*schedule);
    const Workload& w = *c->workload;
    EXPECT_LE(bounds::proven(w, memory), bytes) << describe(*c);
    if (!recomputes(*schedule)) {
      EXPECT_LE(bounds::proven(w, memory, Freedom::no_recomputation), bytes) << describe(*c);
    }
    const auto unfused = bounds::attainable_unfused(w);
    if (!unfused) continue;
    std::optional<Bytes> best = unfused->at(memory);
    if (c->plan.kernels.size() > 1 && best) {
      EXPECT_LE(bounds::proven(w, memory, Freedom::unfused), bytes) << describe(*c);
      EXPECT_LE(*best, bytes) << describe(*c);
    }
    if (chain) {
      const auto fused = bounds::attainable_fused(w);
      if (!fused) continue;
      if (const auto at = fused->at(memory)) best = best ? std::min(*best, *at) : *at;
    }
    ++held.plans;
    EXPECT_TRUE(best.has_value()) << describe(*c) << memory.value / 4;
    if (!best) return held;
    EXPECT_LE(*best, bytes) << "seed " << seed << "\n"
                            << describe(*c) << "words " << memory.value / 4 << " moved "
                            << bytes.value / 4 << " attainable " << best->value / 4;
    if (::testing::Test::HasFailure()) return held;
    held.above += *best < bytes;
    held.on += *best == bytes;
  }
  return held;
}

class BoundsRandom : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(BoundsRandom, NoTreeOfAProductMovesLess) {
  const Held held = hold(GetParam(), 400, false, 9);
  EXPECT_EQ(held.plans, 400);
  EXPECT_GT(held.on, 10);
  EXPECT_GT(held.above, 100);
}

TEST_P(BoundsRandom, NoTreeOfAChainMovesLess) {
  const Held held = hold(GetParam() + 100, 400, true, 7);
  EXPECT_EQ(held.plans, 400);
  EXPECT_GT(held.on, 5);
  EXPECT_GT(held.above, 100);
}

/// Nests as good plans have them: cuts around everything with loads and a store at any depth, then
/// cuts of each product by itself, steps of one often. Random ones of these come on the curve
/// often.
class NestMaker {
 public:
  NestMaker(std::mt19937_64& random, bool chain) : random_(random), chain_(chain) {}

  Plan make(const Workload& w) {
    w_ = &w;
    text_.clear();
    ends_.clear();
    free_ = chain_ ? std::vector<std::string>{"A", "B", "D"} : std::vector<std::string>{"A", "B"};
    stored_ = false;
    const std::vector<std::string> around = chain_
                                                ? std::vector<std::string>{"m", "l", "m", "l", "n"}
                                                : std::vector<std::string>{"m", "n", "k"};
    places();
    for (int cuts = pick(0, chain_ ? 4 : 5); cuts > 0; --cuts) {
      cut(around[static_cast<std::size_t>(pick(0, static_cast<int>(around.size()) - 1))], 0.3);
      places();
    }
    if (chain_) {
      part("gemm1", {"k", "m", "l"});
      part("gemm2", {"n", "m", "l"});
    } else {
      part("gemm", {"k", "m", "n"});
    }
    while (!ends_.empty()) {
      text_ += ends_.back();
      ends_.pop_back();
    }
    return Plan{.kernels = {Kernel{.tree = parse_tree(text_)}}};
  }

 private:
  int pick(int lo, int hi) { return std::uniform_int_distribution<>(lo, hi)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  void cut(const std::string& loop, double one) {
    const int extent = static_cast<int>(w_->loop(*w_->find_loop(loop)).extent);
    text_ += loop + "/" + std::to_string(chance(one) ? 1 : pick(1, extent)) + " ( ";
    ends_.push_back(") ");
  }
  void places() {
    for (std::size_t i = 0; i < free_.size();)
      if (chance(0.25)) {
        text_ += "L." + free_[i] + " ";
        free_.erase(free_.begin() + static_cast<long>(i));
      } else {
        ++i;
      }
    if (stored_ || !chance(0.3)) return;
    stored_ = true;
    ends_.push_back(chain_ ? "S.E " : "S.C ");
  }
  void part(const std::string& op, std::vector<std::string> loops) {
    const std::size_t depth = ends_.size();
    std::ranges::shuffle(loops, random_);
    loops.resize(static_cast<std::size_t>(pick(0, 3)));
    for (const std::string& l : loops) cut(l, 0.8);
    text_ += "C." + op + " ";
    for (; ends_.size() > depth; ends_.pop_back()) text_ += ends_.back();
  }

  std::mt19937_64& random_;
  bool chain_;
  const Workload* w_ = nullptr;
  std::string text_;
  std::vector<std::string> ends_, free_;
  bool stored_ = false;
};

Held hold_nests(std::uint64_t seed, const std::shared_ptr<const Workload>& w, int tries) {
  std::mt19937_64 random(seed);
  const bool chain = w->operators().size() == 2;
  const auto curve = chain ? bounds::attainable_fused(*w) : bounds::attainable_unfused(*w);
  const auto machine = memory_of(Bytes(1 << 20));
  NestMaker maker(random, chain);
  Held held;
  std::set<Bytes> met;
  for (int i = 0; i < tries; ++i) {
    const Plan plan = maker.make(*w);
    const auto schedule = resolve(plan, w, machine);
    if (!schedule) continue;
    ++held.plans;
    const Bytes memory = memory_use(*schedule).at("L1"), bytes = moved(*schedule);
    const std::string text = w->name() + " " + to_text(plan.kernels[0].tree) + " " +
                             std::to_string(memory.value / 4) + " words, moves " +
                             std::to_string(bytes.value / 4);
    EXPECT_LE(bounds::proven(*w, memory), bytes) << text;
    if (!recomputes(*schedule)) {
      EXPECT_LE(bounds::proven(*w, memory, Freedom::no_recomputation), bytes) << text;
    }
    const auto best = curve->at(memory);
    EXPECT_TRUE(best) << text;
    if (!best) return held;
    EXPECT_LE(*best, bytes) << text << " attainable " << best->value / 4;
    if (::testing::Test::HasFailure()) return held;
    if (*best == bytes && met.insert(memory).second) ++held.on;
  }
  return held;
}

TEST_P(BoundsRandom, NoNestMovesLess) {
  const auto seed = static_cast<std::int64_t>(GetParam());
  const auto product = gemm(3 + seed % 4, 5 - seed % 3, 2 + seed % 5);
  const Held alone = hold_nests(GetParam() + 200, product, 1000);
  if (HasFailure()) return;
  EXPECT_GT(alone.on, 5) << "sizes at which a random nest is as good as the curve";
  const auto chain =
      named("gemm-chain:m=" + std::to_string(3 + seed % 3) + ",l=" + std::to_string(5 - seed % 3) +
            ",k=" + std::to_string(2 + seed % 4) + ",n=" + std::to_string(2 + seed % 3));
  const Held fused = hold_nests(GetParam() + 300, chain, 2500);
  if (HasFailure()) return;
  EXPECT_GT(fused.on, 5);
  EXPECT_GT(fused.plans, 600);
}

/// Random plans of random graphs move no less than the bounds with the memory that they use.
struct Graphs {
  int plans = 0;
  int compulsory = 0;    ///< whose bound says more than compulsory
  double nearest = 1e9;  ///< bytes over the bound, of these
};

Graphs hold_graphs(std::uint64_t seed, int wanted, testing::RandomOptions options) {
  options.two_levels = options.grid = options.units = false;
  std::mt19937_64 random(seed);
  Graphs held;
  for (int tries = 0; held.plans < wanted && tries < 100 * wanted; ++tries) {
    const auto c = random_case(random, options);
    if (!c) continue;
    std::optional<Schedule> schedule;
    try {
      auto resolved = resolve(c->plan, c->workload, c->machine);
      if (resolved.ok()) schedule = std::move(resolved).value();
    } catch (const InputError&) {
    }
    if (!schedule) continue;
    const Workload& w = *c->workload;
    const Bytes memory = memory_use(*schedule).at("L1"), bytes = moved(*schedule);
    ++held.plans;
    Bytes bound = bounds::proven(w, memory).bytes;
    EXPECT_LE(bound, bytes) << describe(*c);
    if (!recomputes(*schedule)) {
      const Bytes once = bounds::proven(w, memory, Freedom::no_recomputation).bytes;
      EXPECT_LE(bound, once) << describe(*c);
      EXPECT_LE(once, bytes) << describe(*c);
      bound = once;
    }
    if (::testing::Test::HasFailure()) return held;
    if (bound == w.compulsory_bytes()) continue;
    ++held.compulsory;
    held.nearest = std::min(held.nearest, double(bytes.value) / double(bound.value));
  }
  return held;
}

TEST_P(BoundsRandom, NoPlanOfAGraphMovesLess) {
  const testing::RandomOptions kinds[] = {{.most_operators = 4},
                                          {.planes = true},
                                          {.most_operators = 5, .einsums = true},
                                          {.recompute = true},
                                          {.most_operators = 3, .indices = true}};
  for (const testing::RandomOptions& options : kinds) {
    const Graphs held = hold_graphs(GetParam() + 400, 300, options);
    if (HasFailure()) return;
    EXPECT_EQ(held.plans, 300);
    std::cout << held.plans << " plans, " << held.compulsory
              << " with more than compulsory, nearest " << held.nearest << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, BoundsRandom, ::testing::Range<std::uint64_t>(1, 7));

}  // namespace
}  // namespace tilewright
