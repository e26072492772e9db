// The planner where no model knows time: its plans' bytes beside every other model's, beside all
// trees of small workloads, and in more room.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <set>

#include "core/base/effort.h"
#include "core/base/format.h"
#include "core/plan/file.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "models/quickest/fewest.h"
#include "models/quickest/partition.h"
#include "models/registry.h"
#include "tests/support/random_trees.h"

namespace tilewright::quickest {
namespace {

using Ptr = std::shared_ptr<const Workload>;
using testing::RandomOptions;

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others.
int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

const Model& planner() { return builtin_models().back(); }

Question question(const Ptr& w, std::int64_t room) {
  Question q{.workload = w};
  q.machine =
      std::make_shared<const Machine>(named_machine("scratchpad:" + std::to_string(room) + "B"));
  for (const Model& m : builtin_models())
    if (m.name != planner().name) q.others.push_back(&m);
  return q;
}

/// Bytes of a plan that fits; nothing of another.
std::optional<std::int64_t> bytes_of(const Question& q, const Plan& plan, const Ptr& w) {
  const auto s = resolved(plan, w, q);
  if (!s) return std::nullopt;
  const Traffic traffic = tilewright::exact(*s);
  if (!traffic.unavailable.empty()) return std::nullopt;
  const TrafficEntry all = traffic.total(boundary_into(*q.machine, q.planned_level()));
  return (all.read + all.written).value;
}

/// Of the model's own plan.
std::optional<std::int64_t> bytes_by(const Model& m, const Question& q) {
  if (m.propose == nullptr) return std::nullopt;
  try {
    const Result<Proposal> p = m.propose(q, {m.options, {}, m.name});
    if (!p) return std::nullopt;
    const auto w = rewritten(q.workload, p->rewrites);
    if (w == nullptr) return std::nullopt;
    const auto bytes = bytes_of(q, p->plan, w);
    // What it says of its plan is what the plan moves.
    if (m.name == planner().name && bytes) {
      EXPECT_EQ(p->detail.at("volume_bytes").get<std::int64_t>(), *bytes);
    }
    return bytes;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Of a class, as text; nothing where what was drawn is no workload.
Ptr drawn(const std::string& of, std::mt19937_64& random, std::int64_t extent) {
  const auto x = [&] { return std::to_string(1 + random() % static_cast<unsigned>(extent)); };
  RandomOptions o{.max_extent = extent};
  try {
    std::string text;
    if (of == "chains" || of == "gathers" || of == "convolutions" || of == "einsums") {
      o.gathers = of == "gathers", o.planes = of == "convolutions", o.einsums = of == "einsums";
      o.gemm_chains_only = of == "chains";
      const auto c = random_case(random, o);
      return c ? c->workload : nullptr;
    }
    if (of == "softmax") text = "softmax:rows=" + x() + ",cols=" + x();
    if (of == "reductions") text = "layernorm:rows=" + x() + ",cols=" + x();
    if (of == "graphs")
      text = "random-graph:vertices=" + std::to_string(2 + random() % 4) + ",rows=" + x() +
             ",cols=" + x() + ",reach=3,seed=" + std::to_string(random() % 1000);
    if (!text.empty()) return std::make_shared<const Workload>(named_workload(text));
    const std::string n = std::to_string(2 + random() % 9), m = x(), k = x();
    if (of == "shared inputs")
      text = "loops: {m: " + m + ", n: " + n + ", k: " + k +
             "}\noperators:\n"
             "  - \"one: A[m,n] += X[m,k] * V[k,n]\"\n  - \"two: B[m,n] += X[m,k] * W[k,n]\"\n";
    else  // several outputs
      text = "loops: {m: " + m + ", k: " + k +
             "}\noperators:\n"
             "  - \"sum: S[m] += X[m,k]\"\n  - \"most: M[m] max= X[m,k]\"\n"
             "  - \"both: Y[m,k] = X[m,k] * S[m] + M[m]\"\n";
    return std::make_shared<const Workload>(workload_from_yaml(text, "drawn"));
  } catch (const InputError&) {
    return nullptr;
  }
}

const std::vector<std::string> kClasses = {"chains",  "gathers",       "convolutions",
                                           "einsums", "softmax",       "reductions",
                                           "graphs",  "shared inputs", "several outputs"};

std::int64_t drawn_room(std::mt19937_64& random, const Workload& w) {
  const double all = static_cast<double>(w.compulsory_bytes().value);
  return static_cast<std::int64_t>(
      std::exp(std::uniform_real_distribution<>(std::log(48), std::log(1.5 * all + 96))(random)));
}

TEST(FewestBytes, NoOtherModelsPlanMovesFewer) {
  const int cases = setting("TILEWRIGHT_CASES", 2);
  for (const std::string& of : kClasses) {
    std::mt19937_64 random(static_cast<unsigned>(setting("TILEWRIGHT_SEED", 271126)));
    double worst = 0;
    int planned = 0, beside = 0;
    for (int tries = 0; planned < cases && tries < 20 * cases; ++tries) {
      const Ptr w = drawn(of, random, 40);
      if (w == nullptr) continue;
      const Question q = question(w, drawn_room(random, *w));
      std::optional<std::int64_t> least;
      std::string whose;
      for (const Model* m : q.others)
        if (const auto its = bytes_by(*m, q); its && (!least || *its < *least))
          least = its, whose = m->name;
      const auto ours = bytes_by(planner(), q);
      if (!ours && !least) continue;  // nothing fits
      ASSERT_TRUE(ours.has_value()) << whose << " has a plan\n" << to_yaml(*w) << q.machine->name;
      ++planned;
      if (!least) continue;
      ++beside;
      EXPECT_LE(*ours, *least) << whose << "\n" << to_yaml(*w) << q.machine->name;
      worst = std::max(worst, static_cast<double>(*ours) / static_cast<double>(*least));
    }
    std::cout << of << ": " << planned << " planned, " << beside
              << " of them by others too; over the best of these at most " << worst << "\n";
    EXPECT_GE(planned, cases / 2) << of;
  }
}

/// Every tree of a class: loops around all operators, with every step, in every order; below them
/// each operator in its other loops, one element a turn, in every order.
class EveryTree {
 public:
  EveryTree(const Question& q, std::vector<OpId> ops)
      : q_(q), w_(*q.workload), ops_(std::move(ops)) {}

  std::optional<std::int64_t> least() {
    outer({});
    return least_;
  }

 private:
  using Loops = std::vector<std::pair<LoopId, std::int64_t>>;

  static Node nest(const Workload& w, const Loops& loops, Node body) {
    for (auto l = loops.rbegin(); l != loops.rend(); ++l)
      body = loop(w.loop(l->first).name, std::move(body), l->second);
    return body;
  }
  static bool has(const Loops& loops, LoopId l) {
    return std::ranges::any_of(loops, [&](const auto& x) { return x.first == l; });
  }

  void outer(const Loops& chosen) {
    inner(chosen, 0, {});
    if (chosen.size() == 3) return;
    for (std::size_t i = 0; i < w_.loops().size(); ++i) {
      const LoopId l(i);
      if (w_.loop(l).extent == 1 || has(chosen, l)) continue;
      for (std::int64_t step = 1; step < w_.loop(l).extent; ++step) {
        Loops more = chosen;
        more.emplace_back(l, step);
        outer(more);
      }
    }
  }
  void inner(const Loops& around, std::size_t op, const std::vector<Node>& body) {
    if (counted == kMost) return;
    if (op == ops_.size()) return count(nest(w_, around, sequence(body)));
    std::vector<LoopId> own;
    for (LoopId l : w_.op(ops_[op]).loops)
      if (!has(around, l) && w_.loop(l).extent > 1) own.push_back(l);
    std::ranges::sort(own);
    do {
      Loops loops;
      for (LoopId l : own) loops.emplace_back(l, 1);
      std::vector<Node> more = body;
      more.push_back(nest(w_, loops, compute(w_.op(ops_[op]).name)));
      inner(around, op + 1, more);
    } while (std::ranges::next_permutation(own).found);
  }
  void count(Node tree) {
    if (counted == kMost) return;
    ++counted;
    const auto bytes =
        bytes_of(q_, {.kernels = {{.name = "k", .tree = std::move(tree)}}}, q_.workload);
    if (bytes && (!least_ || *bytes < *least_)) least_ = bytes;
  }

 public:
  static constexpr int kMost = 1500;  ///< trees; a workload that has more is not looked at
  int counted = 0;

 private:
  const Question& q_;
  const Workload& w_;
  std::vector<OpId> ops_;
  std::optional<std::int64_t> least_;
};

TEST(FewestBytes, NoTreeOfASmallWorkloadMovesFewer) {
  const int cases = setting("TILEWRIGHT_CASES", 2);
  int all = 0;
  for (const std::string& of : kClasses) {
    std::mt19937_64 random(static_cast<unsigned>(setting("TILEWRIGHT_SEED", 19)));
    double worst = 0;
    int planned = 0, trees = 0;
    for (int tries = 0; planned < cases && tries < 12 * cases; ++tries) {
      const Ptr w = drawn(of, random, of == "convolutions" ? 2 : 4);
      if (w == nullptr || w->operators().size() > 5) continue;
      if (std::ranges::count_if(w->loops(), [](const Loop& l) { return l.extent > 1; }) > 3)
        continue;
      const Question q = question(w, 16 + static_cast<std::int64_t>(random() % 200));
      const auto order = w->topological_order();
      EveryTree every(q, {order.begin(), order.end()});
      const auto least = every.least();
      if (!least || every.counted == EveryTree::kMost) continue;
      trees += every.counted;
      const auto ours = bytes_by(planner(), q);
      ASSERT_TRUE(ours.has_value()) << to_yaml(*w) << q.machine->name;
      ++planned;
      EXPECT_LE(*ours, *least) << to_yaml(*w) << q.machine->name;
      worst = std::max(worst, static_cast<double>(*ours) / static_cast<double>(*least));
    }
    std::cout << of << ": " << planned << " planned, over the best of " << trees
              << " trees at most " << worst << "\n";
    all += planned;
  }
  EXPECT_GE(all, 6);
}

/// What fits fits into more room, too.
TEST(FewestBytes, MoreRoomMovesNoMore) {
  const int cases = setting("TILEWRIGHT_CASES", 1);
  for (const std::string& of : kClasses) {
    std::mt19937_64 random(static_cast<unsigned>(setting("TILEWRIGHT_SEED", 3411)));
    double worst = 0;
    for (int i = 0; i < cases; ++i) {
      const Ptr w = drawn(of, random, 16);
      if (w == nullptr) continue;
      std::set<std::int64_t> rooms;
      while (rooms.size() < 3)
        rooms.insert(drawn_room(random, *w) + static_cast<long>(rooms.size()));
      std::optional<std::int64_t> last;
      for (const std::int64_t room : rooms) {
        const Question q = question(w, room);
        const auto ours = bytes_by(planner(), q);
        if (ours && last) {
          EXPECT_LE(*ours, *last) << to_yaml(*w) << q.machine->name;
          worst = std::max(worst, static_cast<double>(*ours) / static_cast<double>(*last));
        }
        if (ours) last = ours;
      }
    }
    std::cout << of << ": over what is moved in less room at most " << worst << "\n";
  }
}

/// Two kernels that other models plan may move less than all trees of the planner's own: the whole
/// moves no more than two parts that are asked about apart.
TEST(FewestBytes, NoTwoPartsMoveLess) {
  for (const char* name :
       {"gated-ffn:m=64,n=96,k=128,l=160", "gemm-chain3:m=60,n=40,k=80,l=48,p=36"}) {
    const auto w = std::make_shared<const Workload>(named_workload(name));
    const std::size_t n = w->operators().size();
    constexpr std::int64_t room = 16384;
    const auto whole = bytes_by(planner(), question(w, room));
    ASSERT_TRUE(whole) << name;
    for (std::size_t some = 1; some + 1 < std::size_t{1} << n; ++some) {
      std::vector<OpId> parts[2];
      for (std::size_t i = 0; i < n; ++i) parts[some >> i & 1].emplace_back(i);
      std::int64_t sum = 0;
      bool all = true;
      for (const auto& part : parts) {
        all = all && !no_subgraph(*w, part);
        if (!all) break;
        const auto its = bytes_by(
            planner(), question(std::make_shared<const Workload>(subgraph(*w, part)), room));
        all = its.has_value();
        if (all) sum += *its;
      }
      if (all) {
        EXPECT_LE(*whole, sum) << name << " in " << room << " bytes, parts " << some;
      }
    }
  }
}

/// Tensors between kernels lie in memory as one of them has them, so that kernels of which each
/// moves little alone may move much together: the planner's bytes are those of its whole plan, and
/// no other model's plan moves fewer.
TEST(FewestBytes, OnCachesPlansAreCountedAsAWhole) {
  for (const char* name : {"residual-layernorm:rows=163,cols=360,dtype=f32",
                           "conv-chain:ic=16,h=56,w=56,oc1=20,oc2=52,st1=1,st2=1,k1=1,k2=1"}) {
    SCOPED_TRACE(name);
    Question q{.workload = std::make_shared<const Workload>(named_workload(name))};
    q.machine = std::make_shared<const Machine>(named_machine("cache:9K/9,100K/5"));
    for (const Model& m : builtin_models())
      if (m.name != planner().name) q.others.push_back(&m);
    const auto bytes = [&](const Proposal& p) -> std::optional<std::int64_t> {
      Question of = q;
      of.workload = rewritten(q.workload, p.rewrites);
      const Result<Price> price = planner().price(of, p.plan, {planner().options, {}, "planner"});
      if (!price) return std::nullopt;
      const TrafficEntry all = price->traffic.total(boundary_into(*q.machine, q.planned_level()));
      return (all.read + all.written).value;
    };
    const Result<Proposal> ours = planner().propose(q, {planner().options, {}, "planner"});
    ASSERT_TRUE(ours.ok()) << ours.reason();
    const auto own = bytes(*ours);
    ASSERT_TRUE(own);
    EXPECT_EQ(ours->detail.at("volume_bytes").get<std::int64_t>(), *own);
    for (const Model* m : q.others) {
      if (m->propose == nullptr) continue;
      const Result<Proposal> other = m->propose(q, {m->options, {}, m->name});
      if (!other) continue;
      const auto its = bytes(*other);
      EXPECT_LE(*own, its.value_or(*own)) << m->name;
    }
  }
}

/// The steps of a sequence read one slice of an input each: one of them is searched.
TEST(FewestBytes, SlicesElsewhereAreNotSearchedAgain) {
  std::optional<Candidates> seen;
  std::optional<std::int64_t> bytes;
  for (int step = 0; step < 5; ++step) {
    const std::string at = std::to_string(step);
    const std::string text = "loops: {i" + at + ": 40, j" + at + ": 36}\ntensors: {x" + at +
                             ": [5, 2, i" + at + "]}\noperators:\n  - \"u" + at + ": u" + at +
                             "[i" + at + "] += h" + at + "[j" + at + "] * w" + at + "[i" + at +
                             ",j" + at + "]\"\n  - \"y" + at + ": y" + at + "[i" + at +
                             "] = sigmoid(x" + at + "[" + at + ",0,i" + at + "] + u" + at + "[i" +
                             at + "]) * x" + at + "[" + at + ",1,i" + at + "]\"\n";
    const auto w = std::make_shared<const Workload>(workload_from_yaml(text, "step" + at));
    const Question q = question(w, 900);
    Candidates own;
    constexpr std::int64_t kMost = 1'000'000'000;
    const Effort limit(kMost);
    const std::optional<Kernel> k = fewest_bytes(q, *w, 300, own);
    EXPECT_EQ(Effort::remaining() == kMost, step > 0) << step;  // trees that were resolved
    ASSERT_TRUE(k);
    if (!seen) seen = own, bytes = bytes_of(q, {.kernels = {*k}}, w);
    EXPECT_GT(own.priced, 0);
    EXPECT_EQ(own.generated, seen->generated);
    EXPECT_EQ(own.priced, seen->priced);
    ASSERT_TRUE(bytes);
    EXPECT_EQ(bytes_of(q, {.kernels = {*k}}, w), bytes);
  }
}

}  // namespace
}  // namespace tilewright::quickest
