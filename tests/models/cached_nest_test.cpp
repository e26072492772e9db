// What `cached` says of accesses and of the touches before one, beside a walk of every iteration.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "models/cached/window.h"

namespace tilewright::cached {
namespace {

constexpr std::int64_t kLine = 64;
using Lines = std::set<std::int64_t>;

struct Planned {
  std::shared_ptr<const Workload> workload;
  std::unique_ptr<Schedule> schedule;
};

Planned planned(const std::string& workload, const std::string& kernels) {
  const PlanFile file =
      plan_file_from_yaml("workload: \"" + workload + "\"\nkernels:\n" + kernels, "the plan");
  Planned out{.workload = std::make_shared<const Workload>(file.workload), .schedule = {}};
  auto s = resolve(file.plan, out.workload,
                   std::make_shared<const Machine>(named_machine("cache:9K/9,100K/5")));
  EXPECT_TRUE(s.ok()) << s.reason();
  out.schedule = std::make_unique<Schedule>(std::move(*s));
  return out;
}

/// A touch: its compute, which use, and the iterations of all nodes on the way.
struct Touch {
  int node = 0;
  std::size_t use = 0;
  std::vector<std::int64_t> at;
  auto operator<=>(const Touch&) const = default;
};

Touch touch_of(const Path& path) {
  Touch t{.node = path.back().node, .use = path.use, .at = {}};
  for (std::size_t f = 1; f < path.size(); ++f) t.at.push_back(path.at(f).iteration);
  return t;
}

/// Calls f(path, use, line) for all touches of tensors at home below a node, one after the other.
template <class F>
void walk(const Nest& nest, Path& path, int at, F&& f) {
  const NestNode& n = nest.node(at);
  const std::int64_t count = n.kind == NodeKind::loop ? nest.trips_of(at, path.back()) : 1;
  const std::size_t size = path.size();
  for (std::int64_t i = 0; i < count; ++i) {
    nest.enter(path, at, i);
    for (path.use = 0; path.use < n.uses.size(); ++path.use) {
      const Use& u = n.uses[path.use];
      const Box box = u.reach.box(path.back().ranges);
      if (box.empty() || nest.array(u.array).packed) continue;
      nest.map().runs(nest.array(u.array).tensor, box,
                      [&](std::int64_t address, std::int64_t bytes) {
                        for (auto l = address / kLine; l <= (address + bytes - 1) / kLine; ++l)
                          f(path, u, l);
                      });
    }
    for (const int c : n.children) walk(nest, path, c, f);
    path.cut(size);
  }
}

/// Lines of each use below every kernel: those of the walk, and those of the pieces of one sweep.
void compare_sweeps(const std::string& workload, const std::string& kernels, Layout layout,
                    bool exact) {
  const Planned p = planned(workload, kernels);
  const Nest nest(*p.schedule, layout);
  for (const int kernel : nest.node(0).children) {
    Path path;
    nest.begin(path);
    std::map<std::pair<int, std::size_t>, Lines> touched;
    walk(nest, path, kernel, [&](const Path& now, const Use&, std::int64_t line) {
      touched[{now.back().node, now.use}].insert(line);
    });
    const bool loop = nest.node(kernel).kind == NodeKind::loop;
    const Interval all{0, loop ? nest.trips_of(kernel, path.back()) : 1};
    for (const auto& [key, walked] : touched) {
      Lines swept;
      nest.sweep_use(path, path.back(), kernel, all, key.first, key.second,
                     [&](const Use& u, const Piece& piece) {
                       std::vector<std::pair<std::int64_t, std::int64_t>> rows;
                       list_rows(rows_of(nest.array(u.array), piece, kLine), kLine, rows);
                       for (const auto& [first, last] : rows)
                         for (auto l = first; l < last; ++l) swept.insert(l);
                       return false;
                     });
      const std::string& tensor =
          p.workload->tensor(nest.array(nest.node(key.first).uses[key.second].array).tensor).name;
      for (const std::int64_t l : walked)
        ASSERT_TRUE(swept.contains(l)) << workload << " " << tensor << " line " << l;
      if (exact) {
        EXPECT_EQ(swept.size(), walked.size()) << workload << " " << tensor;
      }
    }
  }
}

TEST(CachedNest, StridesLeaveOutTheRowsThatNoTileReads) {
  // Rows of 38 floats in planes of 31: every other row, and of a tile of three the same.
  const std::string every = "conv-chain:ic=4,h=31,w=76,oc1=3,oc2=2,st1=2,st2=1,k1=1,k2=1";
  const std::string second = "  - {tree: 'w/4 h/1 oc1/3 oc2/2 ( C.conv2 )'}\n";
  for (const std::string tile : {"1", "3"})
    compare_sweeps(every,
                   "  - {tree: 'r1/1 y/" + tile + " oc1/3 ic/1 s1/1 x/38 ( C.conv1 )'}\n" + second,
                   Layout::row_major, tile == "1");
}

TEST(CachedNest, StridesThroughWindowsMissNoLine) {
  for (const Layout layout : {Layout::tiled, Layout::row_major})
    for (const std::string k : {"1", "3"})
      for (const std::string stride : {"1", "2", "3"})
        for (const std::string tile : {"1", "2", "4"})
          compare_sweeps(
              "conv-chain:ic=3,h=23,w=29,oc1=4,oc2=2,st1=" + stride + ",st2=2,k1=" + k + ",k2=3",
              "  - {tree: 'y/" + tile + " x/" + tile +
                  " oc1/2 ic/2 r1/1 s1/1 ( C.conv1 )'}\n"
                  "  - {tree: 'h/" +
                  tile + " w/3 oc2/1 r2/1 s2/2 oc1/4 ( C.conv2 )'}\n",
              layout, false);
}

/// Looks back from the end for lines of each tensor that is written.
void compare_last(const std::string& workload, const std::string& kernels, Layout layout) {
  const Planned p = planned(workload, kernels);
  const Nest nest(*p.schedule, layout);
  std::map<std::int64_t, Touch> last, written;
  std::map<std::int64_t, Lines> since;  // by line: those touched after its last write
  Path path;
  nest.begin(path);
  std::vector<std::int64_t> order;
  std::map<std::int64_t, std::size_t> place;  // of the last write, in the order
  for (const int kernel : nest.node(0).children)
    walk(nest, path, kernel, [&](const Path& now, const Use& u, std::int64_t line) {
      last[line] = touch_of(now);
      if (u.write) written[line] = touch_of(now), place[line] = order.size();
      order.push_back(line);
    });
  const Lookback look(nest);
  Window window(nest);
  Path end, before;
  nest.begin(end);
  int reads = 0;  // lines that are read after they were written
  for (std::size_t n = 0; n < nest.arrays().size(); ++n) {
    const Array& a = nest.array(static_cast<int>(n));
    if (a.packed) continue;
    Box whole(a.rank);
    for (int d = 0; d < a.rank; ++d) whole[d] = {0, a.extent[static_cast<std::size_t>(d)]};
    pieces(a, whole, nullptr, [&](const Piece& piece) {
      for (int k = 0; k < 7; ++k) {
        std::array<double, kMaxRank> where{};
        for (std::size_t d = 0; d < where.size(); ++d)
          where[d] = std::fmod(0.5 + k * (0.618 + 0.07 * static_cast<double>(d)), 1.0);
        const Spot x = spot(a, static_cast<int>(n), piece, kLine, where);
        const std::int64_t line = x.address / kLine;
        window.clear();
        ASSERT_EQ(look.last(end, x, before, window), last.contains(line));
        if (last.contains(line)) {
          EXPECT_EQ(touch_of(before), last[line]) << workload;
        }
        window.clear();
        ASSERT_EQ(look.last(end, x, before, window, true), written.contains(line)) << workload;
        if (!written.contains(line)) continue;
        EXPECT_EQ(touch_of(before), written[line]) << workload;
        reads += last[line] != written[line] ? 1 : 0;
        // What is touched since is counted, each line once, the line itself left out.
        const Lines after(order.begin() + static_cast<std::ptrdiff_t>(place[line]) + 1,
                          order.end());
        const double others = static_cast<double>(after.size() - (after.contains(line) ? 1 : 0));
        window.settle(x, kLine, 1 << 12);
        ASSERT_TRUE(window.listed());
        EXPECT_EQ(window.in_set(x, kLine, 1, 1e9), others) << workload;
        constexpr std::int64_t kSets = 6;
        const auto in_set = std::ranges::count_if(after, [&](std::int64_t other) {
          return other != line && (other - line) % kSets == 0;
        });
        EXPECT_EQ(window.in_set(x, kLine, kSets, 1e9), static_cast<double>(in_set)) << workload;
        window.settle(x, kLine, 0);
        ASSERT_FALSE(window.listed() && others > 0);
        EXPECT_NEAR(window.in_set(x, kLine, 1, 1e9), others, 2 + 0.02 * others) << workload;
      }
    });
  }
  EXPECT_GT(reads, 0) << workload;
}

TEST(CachedNest, TheLastTouchAndTheLastWriteAreThoseOfAWalk) {
  for (const Layout layout : {Layout::tiled, Layout::row_major}) {
    compare_last("gemm-chain:m=48,n=32,k=16,l=64",
                 "  - {tree: 'm/8 l/16 k/4 ( C.gemm1 )'}\n"
                 "  - {tree: 'n/16 m/16 l/32 ( C.gemm2 )'}\n",
                 layout);
    compare_last("softmax:rows=24,cols=48",
                 "  - {tree: 'r/3 c/16 ( C.rowmax )'}\n  - {tree: 'c/48 r/6 ( C.exp )'}\n"
                 "  - {tree: 'r/24 c/16 ( C.rowsum )'}\n  - {tree: 'c/16 r/4 ( C.divide )'}\n",
                 layout);
  }
}

}  // namespace
}  // namespace tilewright::cached
