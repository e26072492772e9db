// What contestants are held against: a right answer is near the reference, one wrong element is
// not.
#include "bench/chain.h"

#include <gtest/gtest.h>

#include <set>

#include "bench/peer.h"
#include "core/plan/file.h"
#include "harness/request.h"
#include "harness/verified_kernel.h"

namespace tilewright::bench {
namespace {

std::shared_ptr<const Workload> workload(const std::string& name) {
  return harness::workload_of({.subject = name}).workload;
}

void two_products(const Chain& c) {
  for (std::int64_t b = 0; b < c.batch(); ++b)
    for (std::int64_t i = 0; i < c.m(); ++i) {
      for (std::int64_t j = 0; j < c.l(); ++j) {
        float sum = 0;
        for (std::int64_t p = 0; p < c.k(); ++p)
          sum += c.a(b)[i * c.k() + p] * c.b(b)[p * c.l() + j];
        c.c(b)[i * c.l() + j] = sum;
      }
      for (std::int64_t j = 0; j < c.n(); ++j) {
        float sum = 0;
        for (std::int64_t p = 0; p < c.l(); ++p)
          sum += c.c(b)[i * c.l() + p] * c.d(b)[p * c.n() + j];
        c.e(b)[i * c.n() + j] = sum;
      }
    }
}

class Chains : public ::testing::TestWithParam<const char*> {};

TEST_P(Chains, HoldAnswersAgainstTheReference) {
  const auto w = workload(GetParam());
  const Result<Chain> chain = Chain::create(*w, 1);
  ASSERT_TRUE(chain.ok()) << chain.reason();
  EXPECT_FALSE(chain->right()) << "nothing computed yet";
  two_products(*chain);
  EXPECT_TRUE(chain->right());
  chain->e(chain->batch() - 1)[chain->m() * chain->n() - 1] += 0.01F;
  EXPECT_FALSE(chain->right()) << "one wrong element";
  two_products(*chain);
  chain->forget();
  EXPECT_FALSE(chain->right()) << "forgotten";
}

/// Every peer that is here, in each of its ways; odd sizes, so that edges and strides matter.
TEST_P(Chains, PeersComputeThem) {
  const auto w = workload(GetParam());
  const Result<Chain> chain = Chain::create(*w, 2);
  ASSERT_TRUE(chain.ok()) << chain.reason();
  std::set<std::string> names;
  int here = 0;
  const std::vector<std::string> known = peer_names();
  const std::vector<Peer> all = peers();
  ASSERT_EQ(all.size(), known.size());
  for (const Peer& peer : all) {
    EXPECT_EQ(peer.name, known[static_cast<std::size_t>(&peer - all.data())]);
    if (!peer.missing.empty()) {
      EXPECT_FALSE(peer.prepare);
      continue;
    }
    EXPECT_FALSE(peer.description.empty());
    ++here;
    for (int threads : {1, 2})
      for (const Entry& entry : peer.prepare(*chain, threads)) {
        names.insert(entry.name);
        chain->forget();
        entry.run();
        if (entry.collect) entry.collect();
        EXPECT_TRUE(chain->right()) << chain->error() << " " << entry.name << ", " << threads;
      }
  }
  if (here == 0) GTEST_SKIP() << "no peer library is installed here";
  EXPECT_FALSE(names.empty());
}

INSTANTIATE_TEST_SUITE_P(Rows, Chains,
                         ::testing::Values("gemm-chain:m=37,n=20,k=13,l=29,batch=3",
                                           "gemm-chain:m=40,n=33,k=7,l=50"),
                         [](const auto& info) { return info.index == 0 ? "Batch" : "Single"; });

TEST(Chain, RefusesWhatIsNone) {
  EXPECT_FALSE(Chain::create(*workload("layernorm:rows=8,cols=8"), 1).ok());
  EXPECT_FALSE(Chain::create(*workload("gemm-chain:m=8,n=8,k=8,l=8,dtype=f16"), 1).ok());
}

TEST(Split, DealsEveryElementOnce) {
  for (int threads : {1, 2, 3}) {
    std::vector<int> seen(7, 0);
    split(7, threads, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(seen, std::vector<int>(7, 1)) << threads;
  }
}

}  // namespace
}  // namespace tilewright::bench
