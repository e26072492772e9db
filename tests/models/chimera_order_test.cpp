// Orders, their legality and their loop trees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/workload/text.h"
#include "models/chimera/chimera.h"

namespace tilewright::chimera {
namespace {

using testing::HasSubstr;

Workload chain() { return named_workload("gemm-chain:m=10,n=6,k=7,l=9"); }
const std::map<std::string, std::int64_t> kCut{{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}};

std::string tree(const Workload& w, std::string_view order,
                 const std::map<std::string, std::int64_t>& tiles) {
  return to_text(tree_of(w, parse_order(w, order), tiles_from(w, tiles)));
}

TEST(ChimeraOrder, ParsesLettersAndNames) {
  const Workload w = chain();
  EXPECT_EQ(to_text(w, parse_order(w, "mlkn")), "mlkn");
  EXPECT_EQ(parse_order(w, "m,l,k,n"), parse_order(w, "mlkn"));
  EXPECT_EQ(parse_order(w, " m, l ,k,n"), parse_order(w, "mlkn"));
  EXPECT_EQ(all_orders(w).size(), 24u);
  for (const Order& o : all_orders(w)) EXPECT_EQ(parse_order(w, to_text(w, o)), o);
  const Workload b = named_workload("gemm-chain:m=10,n=6,k=7,l=9,batch=3");
  EXPECT_EQ(all_orders(b).size(), 24u);
  EXPECT_EQ(to_text(b, parse_order(b, "bmlkn")), "bmlkn");
}

TEST(ChimeraOrder, RefusesWhatIsNoPermutation) {
  const Workload w = chain();
  for (const char* bad : {"", "m", "mlk", "mlkm", "mlknn", "mlkq", "m,l,k", "m,l,,n", "mlkn,",
                          "MLKN", ",", "m;l;k;n"}) {
    try {
      parse_order(w, bad);
      ADD_FAILURE() << bad;
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr("permutation")) << bad;
      EXPECT_THAT(e.what(), testing::Not(HasSubstr("\n")));
    }
  }
}

TEST(ChimeraOrder, SixOrdersOfAGemmChainAreIllegal) {
  const Workload w = chain();
  int illegal = 0;
  for (const Order& o : all_orders(w)) {
    const std::string text = to_text(w, o);
    const Legality all = legality(w, o, {});
    EXPECT_EQ(all, legality(w, o, tiles_from(w, kCut)));
    const bool expected = text.find('k') < text.find('n') && text.back() != 'n';
    EXPECT_EQ(all.legal, !expected) << text;
    illegal += all.legal ? 0 : 1;
    if (!all.legal) {
      EXPECT_THAT(all.reason, HasSubstr("loop n")) << text;
      EXPECT_THAT(all.reason, HasSubstr("reduction k")) << text;
    }
    // A loop of one trip is in nobody's way.
    for (const char* one : {"k", "n"}) {
      auto tiles = kCut;
      tiles.erase(one);
      EXPECT_TRUE(legality(w, o, tiles_from(w, tiles)).legal) << text << one;
    }
  }
  EXPECT_EQ(illegal, 6);
  auto one_l = kCut;
  one_l.erase("l");
  EXPECT_TRUE(legality(w, parse_order(w, "mknl"), tiles_from(w, one_l)).legal);
  EXPECT_FALSE(legality(w, parse_order(w, "knml"), tiles_from(w, one_l)).legal);
}

TEST(ChimeraOrder, TreesOfAGemmChain) {
  const Workload w = chain();
  EXPECT_EQ(tree(w, "mlkn", kCut), "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )");
  EXPECT_EQ(tree(w, "mnlk", kCut), "m n l ( k ( C.gemm1 ) C.gemm2 )");
  EXPECT_EQ(tree(w, "mkln", kCut), "m ( k l ( C.gemm1 ) l n ( C.gemm2 ) )");
  EXPECT_EQ(tree(w, "mnkl", kCut), "m n ( k l ( C.gemm1 ) l ( C.gemm2 ) )");
  EXPECT_EQ(tree(w, "klmn", kCut), "k l m ( C.gemm1 ) l m n ( C.gemm2 )");
  EXPECT_EQ(to_text(tree_of(w, parse_order(w, "mnkl"), {})),
            "m n ( k l ( C.gemm1 ) l ( C.gemm2 ) )");
  for (const Order& o : all_orders(w)) {
    const Node t = tree_of(w, o, {});
    EXPECT_EQ(parse_tree(to_text(t)), t);
  }
}

TEST(ChimeraOrder, ReductionsOfOneTripForceNothing) {
  const Workload w = chain();
  auto one_k = kCut;
  one_k["k"] = 7;
  EXPECT_EQ(tree(w, "mkln", one_k), "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )");
  // Nothing of gemm1's turns inside n, so gemm1 need not run again for each n.
  EXPECT_EQ(tree(w, "mlnk", one_k), "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )");
  EXPECT_EQ(tree(w, "mnlk", one_k), "m n l ( k ( C.gemm1 ) C.gemm2 )");
  EXPECT_EQ(tree(w, "mlkn", {}), "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )");
}

TEST(ChimeraOrder, BatchIsOutermostOneAtATime) {
  const Workload b = named_workload("gemm-chain:m=10,n=6,k=7,l=9,batch=3");
  EXPECT_EQ(tree(b, "mlkn", kCut), "b/1 m l ( k ( C.gemm1 ) n ( C.gemm2 ) )");
  EXPECT_EQ(tree(b, "mblkn", kCut), "m b l ( k ( C.gemm1 ) n ( C.gemm2 ) )");
  const auto table = tile_table(b, parse_order(b, "mlkn"), tiles_from(b, kCut));
  EXPECT_EQ(table, kCut);
}

TEST(ChimeraOrder, LongerChainsAndElementwiseOperators) {
  const Workload relu = workload_from_yaml(
      "name: r\nloops: {m: 10, n: 6, k: 7, l: 9}\noperators:\n  - C[m,l] += A[m,k] * B[k,l]\n"
      "  - R[m,l] = relu(C[m,l])\n  - E[m,n] += R[m,l] * D[l,n]\n",
      "test");
  EXPECT_EQ(to_text(tree_of(relu, parse_order(relu, "mlkn"), {})),
            "m l ( k ( C." + relu.operators()[0].name + " ) C." + relu.operators()[1].name +
                " n ( C." + relu.operators()[2].name + " ) )");
  const Workload three = workload_from_yaml(
      "name: t\nloops: {m: 12, k: 10, l: 14, n: 9, p: 11}\noperators:\n"
      "  - C[m,l] += A[m,k] * B[k,l]\n  - E[m,n] += C[m,l] * D[l,n]\n"
      "  - G[m,p] += E[m,n] * F[n,p]\n",
      "test");
  const auto name = [&](int i) {
    return "C." + three.operators()[static_cast<std::size_t>(i)].name;
  };
  EXPECT_EQ(to_text(tree_of(three, parse_order(three, "mlknp"), {})),
            "m ( l ( k ( " + name(0) + " ) n ( " + name(1) + " ) ) n p ( " + name(2) + " ) )");
  EXPECT_EQ(to_text(tree_of(three, parse_order(three, "mnlkp"), {})),
            "m n ( l ( k ( " + name(0) + " ) " + name(1) + " ) p ( " + name(2) + " ) )");
  EXPECT_EQ(to_text(tree_of(three, parse_order(three, "mpnlk"), {})),
            "m p n ( l ( k ( " + name(0) + " ) " + name(1) + " ) " + name(2) + " )");
  EXPECT_FALSE(legality(three, parse_order(three, "mlpnk"), {}).legal);
}

TEST(ChimeraOrder, AConvolutionsMidRowsStandInForTheConsumersRows) {
  const Workload w = workload_from_yaml(
      "name: c\nloops: {y: 12, i: 4, r: 3, h: 10, s: 3}\noperators:\n"
      "  - M[y] += I[i,y+r] * W[i,r]\n  - O[h] += M[h+s] * V[s]\n",
      "test");
  const auto op = [&](std::size_t i) { return "C." + w.operators()[i].name; };
  const std::map<std::string, std::int64_t> cut{{"h", 4}, {"i", 2}};
  EXPECT_EQ(tree(w, "rshi", cut), "s h ( i r ( " + op(0) + " ) " + op(1) + " )");
  // i unfinished outside h: conv1 alone walks its own rows, in as many tiles, without halo.
  EXPECT_EQ(tree(w, "irsh", cut), "i r y ( " + op(0) + " ) s h ( " + op(1) + " )");
  EXPECT_EQ(tile_table(w, parse_order(w, "irsh"), tiles_from(w, cut)).at("y"), 4);
}

}  // namespace
}  // namespace tilewright::chimera
