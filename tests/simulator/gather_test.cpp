// Are gathers followed to the elements that their indices' values name, and do caches see these?
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "simulator/gather_walk.h"
#include "simulator/gpu/gpu.h"
#include "simulator/simulator.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

/// Rows of 64 bytes: a line each.
constexpr const char* kBags =
    "loops: {b: 12, t: 7, d: 16}\ntensors: {T: [40, d], ids: [b, t]}\ndtypes: {ids: i32}\n"
    "operators:\n  - \"bag: y[b,d] += w[b,t] * T[ids[b,t],d]\"\n";
constexpr std::uint64_t kSeed = 7;

std::shared_ptr<const Workload> bags() {
  return std::make_shared<const Workload>(workload_from_yaml(kBags, "bags"));
}

Schedule scheduled(std::shared_ptr<const Workload> w, const std::string& tree, Machine machine) {
  const Plan plan{.kernels = {{.tree = parse_tree(tree)}}};
  auto s = resolve(plan, std::move(w), std::make_shared<const Machine>(std::move(machine)));
  if (!s) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

TrafficEntry entry(const Traffic& t, const std::string& tensor, const std::string& boundary) {
  for (const TrafficEntry& e : t.entries)
    if (e.tensor == tensor && e.boundary == boundary) return e;
  return {};
}

/// The rows that the indices name.
std::set<std::int64_t> named_rows(const Workload& w) {
  const TensorValues values = random_inputs(w, kSeed);
  const std::vector<double>& ids = values[w.find_tensor("ids")->index()];
  return {ids.begin(), ids.end()};
}

TEST(Gathers, ScratchpadsReadAnElementAPoint) {
  const auto w = bags();
  const Traffic t = simulate(scheduled(w, "b/5 t/3 ( C.bag )", named_machine("scratchpad:8K")));
  EXPECT_EQ(entry(t, "T", "DRAM/L1").read, Bytes(12 * 7 * 16 * 4));
  EXPECT_EQ(entry(t, "ids", "DRAM/L1").read, Bytes(12 * 7 * 4));
}

TEST(Gathers, IndicesMoveLikeAnyInput) {
  const auto w = bags();
  const Traffic t =
      simulate(scheduled(w, "d/4 ( b/5 ( t/3 ( C.bag ) ) )", named_machine("scratchpad:8K")));
  EXPECT_EQ(entry(t, "T", "DRAM/L1").read, Bytes(12 * 7 * 16 * 4));
  EXPECT_EQ(entry(t, "ids", "DRAM/L1").read, Bytes(4 * 12 * 7 * 4));
}

/// A cache that holds everything misses once a row that some index names, at 64 bytes a line.
TEST(Gathers, CachesAreAskedForTheRowsThatAreNamed) {
  const auto w = bags();
  const auto rows = static_cast<std::int64_t>(named_rows(*w).size());
  ASSERT_LT(rows, 40);  // or the test would not tell them from all
  for (const char* tree : {"b/5 t/3 ( C.bag )", "t/2 ( b/4 ( C.bag ) )"}) {
    const TrafficEntry e = entry(
        simulate(scheduled(w, tree, named_machine("cache:64K")), {.seed = kSeed}), "T", "DRAM/L1");
    EXPECT_EQ(e.read, Bytes(rows * 64)) << tree;
    EXPECT_EQ(e.misses, rows) << tree;
    EXPECT_EQ(e.hits + e.misses, 12 * 7) << tree;
  }
  const Traffic other =
      simulate(scheduled(w, "b/5 t/3 ( C.bag )", named_machine("cache:64K")), {.seed = kSeed + 1});
  EXPECT_NE(entry(other, "T", "DRAM/L1").misses, 0);
}

/// Behind a cache, software's level is filled by what the indices name; across it comes every
/// point.
TEST(Gathers, ACacheBehindScratchpadsHoldsRows) {
  const auto w = bags();
  Machine m = parse_synthetic_machine("cache:32K,64K");  // L1, L2: named from within
  m.levels[2].kind = LevelKind::scratchpad;
  m.levels[2].managed = Managed::software;
  const Traffic t = simulate(scheduled(w, "b/5 t/3 ( C.bag )", m), {.seed = kSeed});
  EXPECT_EQ(entry(t, "T", m.levels[1].name + "/" + m.levels[2].name).read, Bytes(12 * 7 * 64));
  const auto rows = static_cast<std::int64_t>(named_rows(*w).size());
  EXPECT_EQ(entry(t, "T", m.levels[0].name + "/" + m.levels[1].name).read, Bytes(rows * 64));
}

/// A step to either side of a row of sixteen, and the diagonal of a table of rows: what lies beyond
/// an edge moves nothing.
TEST(Gathers, NothingIsReadBeyondAnEdge) {
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("loops: {b: 12, s: 3, d: 16}\ntensors: {T: [40, d], U: [40, 6, 9], ids: "
                         "[b]}\ndtypes: {ids: i32}\noperators:\n  - \"look: y[b,s,d] = "
                         "T[ids[b],d + s - 1] + U[ids[b],d - 2,d]\"\n",
                         "edges"));
  for (const char* tree : {"( C.look )", "b/5 d/4 ( C.look )", "d/3 ( s/1 ( b/1 ( C.look ) ) )"}) {
    const Schedule s = scheduled(w, tree, named_machine("scratchpad:64K"));
    const Traffic t = simulate(s);
    EXPECT_EQ(entry(t, "T", "DRAM/L1").read, Bytes(12 * (15 + 16 + 15) * 4)) << tree;
    if (std::string(tree).find("s/1") == std::string::npos)  // d from 2 to 7, in both dimensions
      EXPECT_EQ(entry(t, "U", "DRAM/L1").read, Bytes(12 * 6 * 4)) << tree;
    else
      EXPECT_EQ(entry(t, "U", "DRAM/L1").read, Bytes(3 * 12 * 6 * 4)) << tree;
  }
}

TEST(Gathers, BlocksOfAGpuMeetInL2) {
  const auto w = bags();
  const auto rows = static_cast<std::int64_t>(named_rows(*w).size());
  const Schedule s = scheduled(w, "b/1@grid t/3 ( C.bag )", named_machine("h200"));
  ASSERT_TRUE(gpu::simulates(*s.machine));
  for (int threads : {1, 2}) {
    const Traffic t = gpu::simulate_blocks(s, {.seed = kSeed, .threads = threads}).traffic;
    std::int64_t from_dram = 0, inward = 0;
    for (const TrafficEntry& e : t.entries) {
      if (e.tensor != "T") continue;
      const bool outer = e.boundary.starts_with(s.machine->levels.front().name + "/");
      (outer ? from_dram : inward) += e.read.value;
    }
    EXPECT_EQ(from_dram, rows * 64) << threads;
    EXPECT_GE(inward, 12 * 7 * 64) << threads;
  }
}

/// What GatherWalk visits, against the definition: each point of the operator's loops that say
/// which element, once.
TEST(Gathers, AreFollowedPointByPoint) {
  std::mt19937_64 random(20261123);
  int seen = 0;
  for (int i = 0; i < 300; ++i) {
    const auto c = testing::random_case(random, {.gathers = true});
    if (!c) continue;
    std::optional<Schedule> s;
    try {
      auto resolved = resolve(c->plan, c->workload, c->machine);
      if (resolved) s = std::move(resolved).value();
    } catch (const InputError&) {
    }
    if (!s) continue;
    const Workload& w = *c->workload;
    const TensorValues values = gather_indices(w, kSeed);
    GatherWalk gathers(w, kSeed);
    walk(*s, [&](const AccessEvent& e) {
      if (e.kind != AccessKind::gather) return;
      ++seen;
      const ScheduledKernel& k = s->kernels[static_cast<std::size_t>(e.kernel)];
      const Operator& op = w.op(e.op);
      const Access& a = op.inputs[static_cast<std::size_t>(e.input)];
      std::map<std::vector<std::int64_t>, int> visited, expected;
      gathers.each(k, e, [&](const Box& box) {
        std::vector<std::int64_t> at;
        for (const Interval& d : box) at.push_back(d.lo);
        for (; at.back() < box[box.rank() - 1].hi; ++at.back()) ++visited[at];
      });
      const auto ranges = ranges_of(*s, k, *e.ranges, e.op);
      std::vector<std::int64_t> point;
      for (const Interval& r : ranges) point.push_back(r.lo);
      const auto value = [&](const Affine& index) {
        std::int64_t v = index.offset;
        for (const Term& t : index.terms)
          v += t.coefficient * point[static_cast<std::size_t>(w.local_index(e.op, t.loop))];
        return v;
      };
      const std::vector<int> loops = gather_loops(op, a);
      std::int64_t points = 0;
      for (bool more = true; more;) {
        std::vector<std::int64_t> at;
        for (const Affine& index : a.index) {
          if (index.gathered < 0) {
            at.push_back(value(index));
            continue;
          }
          const Access& by = op.inputs[static_cast<std::size_t>(index.gathered)];
          const auto& shape = w.tensor(by.tensor).shape;
          std::int64_t offset = 0;
          bool there = true;
          for (std::size_t d = 0; d < shape.size(); ++d) {
            const std::int64_t v = value(by.index[d]);
            there = there && v >= 0 && v < shape[d];
            offset = offset * shape[d] + v;
          }
          at.push_back(there ? static_cast<std::int64_t>(
                                   values[by.tensor.index()][static_cast<std::size_t>(offset)])
                             : 0);
        }
        // Beyond an edge nothing is read; which elements values name, nobody knows beforehand.
        bool inside = true, counts = true;
        for (std::size_t d = 0; d < at.size(); ++d) {
          const bool there = at[d] >= 0 && at[d] < w.tensor(a.tensor).shape[d];
          inside = inside && there;
          if (a.index[d].gathered < 0) counts = counts && there;
        }
        if (counts) ++points;
        if (inside) ++expected[at];
        more = false;
        for (std::size_t l = loops.size(); l-- > 0 && !more;) {
          const auto at_loop = static_cast<std::size_t>(loops[l]);
          more = ++point[at_loop] < ranges[at_loop].hi;
          if (!more) point[at_loop] = ranges[at_loop].lo;
        }
      }
      EXPECT_EQ(points, e.elements) << testing::describe(*c);
      EXPECT_EQ(visited, expected) << testing::describe(*c);
    });
    if (HasFailure()) return;
  }
  EXPECT_GT(seen, 500);
}

/// Passing over what repeats, and sharing the sets among threads, changes no count.
TEST(Gathers, SkippingAndThreadsCountTheSame) {
  std::mt19937_64 random(20261124);
  int compared = 0;
  for (int i = 0; i < 200 && compared < 40; ++i) {
    auto c = testing::random_case(
        random, {.max_extent = 24, .two_levels = false, .units = false, .gathers = true});
    if (!c) continue;
    Machine m = parse_synthetic_machine("cache:1K/2,4K/4");
    m.levels.back().name = c->machine->levels.back().name;
    try {
      const auto s = resolve(c->plan, c->workload, std::make_shared<const Machine>(m));
      if (!s) continue;
      const auto count = [&](bool skip, int threads) {
        std::vector<std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::int64_t>>
            all;
        for (const TrafficEntry& e :
             simulate(*s, {.seed = kSeed, .skip = skip, .threads = threads}).entries)
          all.emplace_back(e.tensor, e.boundary, e.read.value, e.written.value, e.misses);
        return all;
      };
      const auto plain = count(false, 1);
      EXPECT_EQ(count(true, 1), plain) << testing::describe(*c);
      EXPECT_EQ(count(true, 3), plain) << testing::describe(*c);
      ++compared;
    } catch (const InputError&) {
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(compared, 40);
}

}  // namespace
}  // namespace tilewright
