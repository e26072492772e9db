// Are the bounds bounds, and are the attainable points attained?
#include "models/bounds/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "core/ir/files.h"
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

INSTANTIATE_TEST_SUITE_P(Seeds, BoundsRandom, ::testing::Range<std::uint64_t>(1, 9));

}  // namespace
}  // namespace tilewright
