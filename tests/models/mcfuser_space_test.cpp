// MCFuser's expressions, their statements, and the counts of the space, held against the paper's
// example and against enumerations that share nothing with the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "core/machine/machine.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/text.h"
#include "models/mcfuser/mcfuser.h"

namespace tilewright::mcfuser {
namespace {

Chain chain(const std::string& workload) {
  const auto c = chain_of(std::make_shared<const Workload>(named_workload(workload)));
  if (!c) throw std::runtime_error(c.reason());
  return *c;
}
/// A100: 163 KiB a block, as the example's figures were made with.
Device a100(const Chain& c) {
  const Machine m = named_machine("a100");
  return device_of(m, *m.find("shared"), *c.workload).value();
}
/// The paper's m, n, k, h.
Chain example() { return chain("gemm-chain:m=1024,l=1024,k=512,n=512,dtype=f16"); }

const Space::Count& count(const Space& s, const std::string& rule) {
  return *std::ranges::find(s.counts, rule, &Space::Count::rule);
}
std::set<std::string> classes(const Chain& c, const Space& s, bool kept) {
  std::set<std::string> out;
  for (const Class& k : s.classes)
    if (!kept || !k.overwhelmed) out.insert(paper_text(c, k.sub.rest));
  return out;
}

TEST(McfuserSpace, ThePapersExample) {
  const Chain c = example();
  const Device d = a100(c);
  EXPECT_EQ(d.shared, Bytes(163 * 1024));
  const Space s = space_of(c, d, {}).value();
  EXPECT_EQ(count(s, "generated").expressions, 26);
  EXPECT_EQ(count(s, "generated").candidates, 109'051'904);
  EXPECT_EQ(count(s, "rule1").expressions, 5);
  EXPECT_EQ(count(s, "rule2").expressions, 3);
  EXPECT_EQ(count(s, "rule2").tuples, 4'194'304);
  EXPECT_EQ(count(s, "rule3").tuples, 1764);
  EXPECT_EQ(count(s, "rule4").tuples, 1078);
  EXPECT_EQ(count(s, "rule4").candidates, 3234);
  EXPECT_EQ(classes(c, s, false), (std::set<std::string>{"nk", "kn", "nhk", "khn", "n(k,h)"}));
  EXPECT_EQ(classes(c, s, true), (std::set<std::string>{"nk", "nhk", "n(k,h)"}));
}

TEST(McfuserSpace, TheOtherReadings) {
  const Chain c = example();
  const Device d = a100(c);
  const Space always = space_of(c, d, {.blocks = Blocks::always}).value();
  EXPECT_EQ(classes(c, always, false), (std::set<std::string>{"nk", "kn", "n(k,h)"}));
  const Space all = space_of(c, d, {.shared = Shared::all}).value();
  EXPECT_EQ(count(all, "rule4").tuples, 751);  // 57.4 % of 1764 pruned
  const Space deep = space_of(c, d, {.flat = false}).value();
  EXPECT_EQ(count(deep, "generated").expressions, 24);
  Options unpruned;
  unpruned.rules[0] = unpruned.rules[1] = unpruned.rules[3] = false;
  const Space wide = space_of(c, d, unpruned).value();
  EXPECT_EQ(count(wide, "rule4").candidates, 26 * 1764);
}

// ---- Expressions by brute force -----------------------------------------------------------------

/// Rooted labelled forests on the loops, as parents (-1: none), in which the loops of every product
/// lie on one path. Siblings are not ordered: exactly the expressions, a part each.
std::vector<std::vector<int>> forests(int loops, const std::vector<std::set<int>>& products) {
  std::vector<std::vector<int>> out;
  std::vector<int> parent(static_cast<std::size_t>(loops), -1);
  const auto above = [&](int a, int b) {  // a on the way from b to its root
    int steps = 0;
    for (int p = b; p != -1 && steps <= loops; p = parent[static_cast<std::size_t>(p)], ++steps)
      if (p == a) return true;
    return false;
  };
  const auto valid = [&] {
    for (int i = 0; i < loops; ++i) {  // no cycle
      int steps = 0;
      for (int p = i; p != -1; p = parent[static_cast<std::size_t>(p)])
        if (++steps > loops) return false;
    }
    for (const auto& p : products)
      for (int a : p)
        for (int b : p)
          if (!above(a, b) && !above(b, a)) return false;
    return true;
  };
  const auto fill = [&](const auto& self, int at) -> void {
    if (at == loops) {
      if (valid()) out.push_back(parent);
      return;
    }
    for (int p = -1; p < loops; ++p) {
      if (p == at) continue;
      parent[static_cast<std::size_t>(at)] = p;
      self(self, at + 1);
    }
    parent[static_cast<std::size_t>(at)] = -1;
  };
  fill(fill, 0);
  return out;
}

void parents_of(const Expression& e, int above, std::vector<int>& parent,
                const std::map<int, int>& position) {
  for (LoopId l : e.nest) {
    parent[static_cast<std::size_t>(position.at(l.value))] = above;
    above = position.at(l.value);
  }
  for (const Expression& p : e.parts) parents_of(p, above, parent, position);
}

void expect_all_forests(const Chain& c) {
  std::map<int, int> position;
  for (std::size_t i = 0; i < c.dims.size(); ++i) position[c.dims[i].value] = static_cast<int>(i);
  std::vector<std::set<int>> products;
  for (OpId p : c.products) {
    products.emplace_back();
    for (LoopId l : c.workload->op(p).loops)
      if (position.contains(l.value)) products.back().insert(position[l.value]);
  }
  const auto brute = forests(static_cast<int>(c.dims.size()), products);
  std::set<std::vector<int>> ours;
  const std::vector<Expression> all = all_expressions(c);
  for (const Expression& e : all) {
    std::vector<int> parent(c.dims.size(), -1);
    parents_of(e, -1, parent, position);
    ours.insert(parent);
    EXPECT_EQ(parse_expression(c, to_text(c, e)), e) << to_text(c, e);
  }
  EXPECT_EQ(ours.size(), all.size());
  EXPECT_EQ(ours, std::set(brute.begin(), brute.end()));
}

TEST(McfuserSpace, ExpressionsAreAllForestsThatKeepEachProductOnOnePath) {
  expect_all_forests(chain("gemm"));
  expect_all_forests(example());
  expect_all_forests(chain("gemm-chain3"));
  expect_all_forests(chain("attention"));
  EXPECT_EQ(all_expressions(chain("gemm")).size(), 6u);
  EXPECT_EQ(all_expressions(chain("gemm-chain3")).size(), 146u);
}

// ---- The rules by brute force -------------------------------------------------------------------

/// Rule 1 on the text of an expression with the paper's letters, two products: m is bound; h unless
/// parts hold it or it stands between n and k.
std::string sub_text(std::string text, bool between) {
  std::erase(text, 'm');
  if (text.find('(') != std::string::npos) return text;
  const auto at = [&](char ch) { return text.find(ch); };
  const bool stays =
      between && at('h') > std::min(at('n'), at('k')) && at('h') < std::max(at('n'), at('k'));
  if (!stays) std::erase(text, 'h');
  return text;
}

TEST(McfuserSpace, CountsAreThoseOfAnEnumerationOnRandomShapes) {
  const unsigned seed = 5;
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const auto draw = [&] {
    // Powers of two, multiples of 16, and others.
    switch (std::uniform_int_distribution<int>(0, 2)(rng)) {
      case 0:
        return std::int64_t{1} << std::uniform_int_distribution<int>(4, 8)(rng);
      case 1:
        return std::int64_t{16} * std::uniform_int_distribution<std::int64_t>(1, 12)(rng);
      default:
        return std::uniform_int_distribution<std::int64_t>(17, 200)(rng);
    }
  };
  std::vector<std::string> texts;
  for (const Expression& e : all_expressions(example())) texts.push_back(paper_text(example(), e));
  int skipped = 0;
  for (int round = 0; round < 100 + skipped; ++round) {
    const std::int64_t m = draw(), n = draw(), k = draw(), h = draw();
    const bool between = round % 2 == 0, loaded = round % 4 < 2;
    const Chain c = chain("gemm-chain:m=" + std::to_string(m) + ",l=" + std::to_string(n) +
                          ",k=" + std::to_string(k) + ",n=" + std::to_string(h) + ",dtype=f16");
    Device d = a100(c);
    d.shared = Bytes(1024 * std::uniform_int_distribution<std::int64_t>(8, 164)(rng));
    const Space s = space_of(c, d,
                             {.blocks = between ? Blocks::between : Blocks::always,
                              .shared = loaded ? Shared::loaded : Shared::all})
                        .value();
    std::set<std::string> rule1, rule2;
    for (const std::string& t : texts) rule1.insert(sub_text(t, between));
    for (const std::string& t : rule1)
      if (t.find('n') < t.find('k')) rule2.insert(t);
    // Every tuple, one by one: no list of tile sizes.
    std::int64_t tuples = 0, after3 = 0, after4 = 0;
    const auto little = [](std::int64_t x, std::int64_t t) {
      std::int64_t covered = 0;
      while (covered < x) covered += t;
      const bool power = (x & (x - 1)) == 0;
      return power ? covered == x : 20 * (covered - x) <= x;
    };
    for (std::int64_t a = 16; a < m + 16; a += 16)
      for (std::int64_t b = 16; b < n + 16; b += 16)
        for (std::int64_t x = 16; x < k + 16; x += 16)
          for (std::int64_t y = 16; y < h + 16; y += 16) {
            ++tuples;
            if (!little(m, a) || !little(n, b) || !little(k, x) || !little(h, y)) continue;
            ++after3;
            std::int64_t elements = a * x + x * b + b * y;
            if (!loaded) elements += a * b + a * y;
            after4 += 2 * elements * 10 <= 12 * d.shared.value ? 1 : 0;
          }
    if (!s.notes.empty()) {  // a dimension that rule 3 leaves without a tile
      ++skipped;
      continue;
    }
    EXPECT_EQ(count(s, "generated").candidates, 26 * tuples);
    EXPECT_EQ(count(s, "rule1").expressions, static_cast<std::int64_t>(rule1.size()));
    EXPECT_EQ(count(s, "rule2").expressions, static_cast<std::int64_t>(rule2.size()));
    EXPECT_EQ(count(s, "rule3").tuples, after3) << m << " " << n << " " << k << " " << h;
    EXPECT_EQ(count(s, "rule4").tuples, after4) << m << " " << n << " " << k << " " << h;
  }
}

/// Three products: the rules on forests (loops m, l, k, n, p as 0 to 4, in the workload's own
/// order).
TEST(McfuserSpace, CountsOfThreeProductsAreThoseOfAnEnumeration) {
  const Chain c = chain("gemm-chain3:m=256,l=128,k=64,n=96,p=80,dtype=f16");
  const auto id = [&](const char* name) {
    const LoopId l = *c.workload->find_loop(name);
    return static_cast<int>(std::ranges::find(c.dims, l) - c.dims.begin());
  };
  const int m = id("m"), l = id("l"), k = id("k"), n = id("n"), p = id("p");
  const auto all = forests(5, {{m, k, l}, {m, l, n}, {m, n, p}});
  std::set<std::vector<int>> rule1, rule2;
  for (std::vector<int> f : all) {
    const auto ancestors = [&](int x) {
      std::set<int> out;
      for (int q = f[static_cast<std::size_t>(x)]; q != -1; q = f[static_cast<std::size_t>(q)])
        out.insert(q);
      return out;
    };
    const auto drop = [&](int x) {
      for (int& q : f)
        if (q == x) q = f[static_cast<std::size_t>(x)];
      f[static_cast<std::size_t>(x)] = -2;
    };
    drop(m);
    // p, which only the last product has, is bound unless a reduced loop is outside it and another
    // inside, or it is in one of several parts.
    bool outside = false, inside = false, parts = false;
    for (int x : {l, k, n}) {
      outside |= ancestors(p).contains(x);
      inside |= ancestors(x).contains(p);
      parts |= !ancestors(p).contains(x) && !ancestors(x).contains(p);
    }
    if (!parts && !(outside && inside)) drop(p);
    rule1.insert(f);
    // C[m,l] has many partial tiles where k is outside l, E[m,n] where l is outside n.
    if (!ancestors(l).contains(k) && !ancestors(n).contains(l)) rule2.insert(f);
  }
  const Device d = a100(c);
  const Space s = space_of(c, d, {}).value();
  // The tiles, one tuple after the other: C = A B, E = C D, G = E F; A, B, D and F are loaded.
  std::int64_t tuples = 0, after3 = 0, after4 = 0;
  const auto fits = [](std::int64_t extent, std::int64_t tile) {
    const std::int64_t covered = (extent + tile - 1) / tile * tile;
    return (extent & (extent - 1)) == 0 ? covered == extent : 20 * (covered - extent) <= extent;
  };
  for (std::int64_t tm = 16; tm <= 256; tm += 16)
    for (std::int64_t tl = 16; tl <= 128; tl += 16)
      for (std::int64_t tk = 16; tk <= 64; tk += 16)
        for (std::int64_t tn = 16; tn <= 96; tn += 16)
          for (std::int64_t tp = 16; tp <= 80; tp += 16) {
            ++tuples;
            if (!fits(256, tm) || !fits(128, tl) || !fits(64, tk) || !fits(96, tn) || !fits(80, tp))
              continue;
            ++after3;
            const std::int64_t elements = tm * tk + tk * tl + tl * tn + tn * tp;
            after4 += 2 * elements * 10 <= 12 * d.shared.value ? 1 : 0;
          }
  EXPECT_EQ(count(s, "generated").candidates, static_cast<std::int64_t>(all.size()) * tuples);
  EXPECT_EQ(count(s, "rule3").tuples, after3);
  EXPECT_EQ(count(s, "rule4").tuples, after4);
  EXPECT_EQ(count(s, "generated").expressions, static_cast<std::int64_t>(all.size()));
  EXPECT_EQ(count(s, "rule1").expressions, static_cast<std::int64_t>(rule1.size()));
  EXPECT_EQ(count(s, "rule2").expressions, static_cast<std::int64_t>(rule2.size()));
  EXPECT_GT(rule2.size(), 0u);
  EXPECT_GT(rule1.size(), rule2.size());
}

TEST(McfuserSpace, ATinyPowerOfTwoKeepsTheTileThatPadsLeast) {
  const Chain c = chain("gemm:m=64,n=64,k=1,dtype=f16");
  const Space s = space_of(c, a100(c), {}).value();
  EXPECT_EQ(s.notes.size(), 1u);
  EXPECT_EQ(count(s, "rule3").tuples, 9);
}

// ---- Statements ---------------------------------------------------------------------------------

std::string placed(const Chain& c, const std::string& expression, const std::string& once,
                   Hoist hoist, Stores stores = Stores::once) {
  const SubExpression s = sub_expression(c, parse_expression(c, expression), Blocks::between);
  Mask mask = 0;
  for (char l : once) mask |= Mask{1} << c.workload->find_loop(std::string(1, l))->index();
  return to_text(c, place(c, s, mask, hoist, stores));
}

TEST(McfuserSpace, ALoopThatAMaskLacksStillTellsChainsApart) {
  const auto batch = [](const char* mask, const char* keys) {
    const Chain c = chain_of(std::make_shared<const Workload>(workload_from_yaml(
                                 std::string("loops: {h: 6, m: 64, l: 64, k: 32, n: 32}\n"
                                             "operators:\n  - \"qk: S[h,m,l] += Q[h,m,k] * ") +
                                     keys + "\"\n  - \"mask: T[h,m,l] = S[h,m,l] + " + mask +
                                     "\"\n  - \"pv: E[h,m,n] += T[h,m,l] * V[h,l,n]\"\n",
                                 "t")))
                        .value();
    return c.batch.size();
  };
  EXPECT_EQ(batch("M[h,m,l]", "K[h,l,k]"), 1u);
  EXPECT_EQ(batch("M[m,l]", "K[h,l,k]"), 1u);
  EXPECT_EQ(batch("M[m,l]", "K[l,k]"), 0u);  // keys that all heads share are read again in each
}

TEST(McfuserStatements, AsThePaperPlacesThem) {
  const Chain c = example();  // its mhnk is our mnlk
  EXPECT_EQ(placed(c, "mnlk", "", Hoist::none), "mnl(k(L_A,L_B,C_C),L_D,C_E,S_E)");
  EXPECT_EQ(placed(c, "mnlk", "", Hoist::scope), "mn(l(k(L_A,L_B,C_C),L_D,C_E),S_E)");
  // With k of one trip L_A moves to m, and saves h n times (Fig. 4 b); so does the other reading,
  // but not out of the loops bound to blockIdx.
  EXPECT_EQ(placed(c, "mnlk", "k", Hoist::dag), "m(L_A,n(l(L_B,C_C,L_D,C_E),S_E))");
  EXPECT_EQ(placed(c, "mnlk", "k", Hoist::block), "mn(L_A,l(L_B,C_C,L_D,C_E),S_E)");
  EXPECT_EQ(placed(c, "mnlk", "k", Hoist::scope), "mn(l(k(L_A,L_B,C_C),L_D,C_E),S_E)");
}

TEST(McfuserStatements, FlatAndUnboundExpressions) {
  const Chain c = example();
  EXPECT_EQ(placed(c, "ml(k,n)", "", Hoist::dag), "m(l(k(L_A,L_B,C_C),n(L_D,C_E)),S_E)");
  EXPECT_EQ(placed(c, "ml(k,n)", "", Hoist::dag, Stores::each),
            "ml(k(L_A,L_B,C_C),n(L_D,C_E,S_E))");
  EXPECT_EQ(placed(c, "mlnk", "", Hoist::dag), "m(ln(k(L_A,L_B,C_C),L_D,C_E),S_E)");
  // A reduction outside: the consumer follows it, with its own loop.
  EXPECT_EQ(placed(c, "mnkl", "", Hoist::dag), "mn(k(L_A,l(L_B,C_C)),l(L_D,C_E),S_E)");
}

TEST(McfuserStatements, SoftmaxFollowsItsProductAndOnlineSoftmaxStaysInTheLoop) {
  const Chain plain = chain("attention:heads=2,m=64,l=64,k=32,n=32,dtype=f16");
  EXPECT_EQ(placed(plain, "mnlk", "", Hoist::dag),
            "mn(l(k(L_Q,L_K,C_S),C_R),l(C_P,C_Z,L_V,C_O),C_E,S_E)");
  const Chain online = chain_of(std::make_shared<const Workload>(
                                    tilewright::apply("online-softmax", *plain.workload).value()))
                           .value();
  EXPECT_EQ(placed(online, "mnlk", "", Hoist::dag),
            "mn(l(k(L_Q,L_K,C_S),C_R,C_P,C_Z,C_alpha,L_V,C_O),C_E,S_E)");
}

TEST(McfuserStatements, DagLosesTheLoopOfOneTripAndItsEdges) {
  const Chain c = example();
  const Dag before = dag_of(c, 0);
  EXPECT_EQ(before.loops.size(), 4u);
  EXPECT_EQ(before.statements,
            (std::vector<std::string>{"L_A", "L_B", "C_C", "L_D", "C_E", "S_E"}));
  const auto scoped = [](const Dag& d, const char* loop) {
    return std::ranges::count(d.scope, std::string(loop), [](const auto& e) { return e.first; });
  };
  EXPECT_EQ(scoped(before, "k"), 3);  // L_A, L_B, C_C
  const Dag after = dag_of(c, Mask{1} << c.workload->find_loop("k")->index());
  EXPECT_EQ(after.loops.size(), 3u);
  EXPECT_EQ(scoped(after, "k"), 0);
  EXPECT_EQ(after.order, before.order);
}

TEST(McfuserSpace, RefusesWhatIsNoChainOfProducts) {
  for (const char* name : {"layernorm", "softmax", "conv-chain"})
    EXPECT_FALSE(chain_of(std::make_shared<const Workload>(named_workload(name))).ok()) << name;
}

TEST(McfuserSpace, BadExpressionsAreRefused) {
  const Chain c = example();
  for (const char* text : {"", "mnl", "mnlkk", "mnlx", "m(l,nk)", "ml(n,k)", "ml(k,n", "ml(,kn)",
                           "ml(k,n)m", "mnlk)", "(((((((((((", "m-nlk"})
    EXPECT_THROW(parse_expression(c, text), InputError) << text;
}

}  // namespace
}  // namespace tilewright::mcfuser
