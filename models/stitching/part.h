// One part of a kernel with what its schedules have in common: their groups (stitch.cpp), what they
// need and take (latency.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "models/stitching/bound_tree.h"
#include "models/stitching/loops.h"

namespace tilewright::stitching {

/// Instructions that an expensive one is expanded to, and of these those of the special function
/// units: 24 and 8 exponentials of all of an SM's warps (h100-unit-costs.json).
inline constexpr double kOfExpensive = 7;
inline constexpr double kSpecial = 1;
inline constexpr double kWavefrontBytes = 128;  ///< of shared memory in a cycle
inline constexpr double kIndependent = 4;       ///< instructions of a warp under way together
inline double ceil_over(double a, double b) { return std::ceil(a / b); }

/// Adds to a block what so many points of an operator take, and so many of them of a thread.
inline void count_operations(Demand& block, const Vertex& x, double points, double of_thread,
                             const Device& d) {
  const auto light = static_cast<double>(x.light), expensive = static_cast<double>(x.expensive);
  block.instructions += points / kWarp * (light + kOfExpensive * expensive + x.called);
  block.special += points / kWarp * kSpecial * expensive;
  block.chain +=
      of_thread * ((light + x.called) * d.light + expensive * d.expensive) / kIndependent;
}

/// Warps that are resident on the whole GPU at once.
std::int64_t occupancy(const Device& d, std::int64_t registers, std::int64_t shared,
                       std::int64_t threads);

/// Blocks that an SM has at once; registers are given out in eights.
double resident_blocks(const Device& d, const Demand& w, std::int64_t shared);
/// Of the parts of a kernel: what its blocks, which are alike, must have room for.
Demand largest_of(std::span<const Demand> parts);
/// L_warp of a kernel of these operators: cycles of a warp whose instructions wait for one another.
double warp_cycles(const Graph& g, std::span<const int> vertices, const Device& d,
                   const lowering::ThreadProgram& p);
/// What schedules of one pattern are compared by: L in cycles, or seconds.
double price_of(const StitchedKernel& k, const Options& o);
/// What a price may be off by where nothing but it tells two kernels apart (docs/gpu.md).
inline constexpr double kTied = 0.005;

/// The part's tree without units: a grid over the rows, Stitched::rows_per_block of them a block.
Node tree_without_units(const Graph& g, const Stitched& s);

/// Numbers of threads a block that are tried.
std::span<const std::int64_t> threads_of(const Options& o);
/// stitch(), whatever was stitched before.
Result<StitchedKernel> stitched_anew(const Graph& g, const Device& d, const Pattern& p,
                                     const Options& o);
/// Parts with their schedules as one kernel, priced.
StitchedKernel put_together(const Graph& g, const Device& d, const Options& o,
                            std::vector<Stitched> parts, std::int64_t threads);

/// The loops of an image over which a part's windows lie: `along` its contiguous dimension, `down`
/// the next one (-1: none). Or `beside` is the contiguous one, and no window lies over it: channels
/// that points have side by side (-1: none). Of channels in groups `beside` is the groups, and
/// `within` the results' channels of one; else it is a loop of the results that the image has not,
/// of which a thread may have several.
struct WindowLoops {
  int along = -1, down = -1, beside = -1, within = -1;
  friend bool operator==(const WindowLoops&, const WindowLoops&) = default;
};

class Part {
 public:
  Part(const Graph& g, const Device& d, const Component& c, const Options& o);
  Part(const Part&) = delete;

  using Seen = std::function<void(const Stitched&)>;
  /// A schedule whose tree is made, not priced yet.
  struct Candidate {
    Stitched schedule;
    std::int64_t threads = 0;
    BoundTree tree;
    std::string text;  ///< of the tree
    double least = 0;  ///< seconds
  };
  /// Every schedule for blocks of so many threads that keeps locality and fits, priced.
  void each(std::int64_t threads, const Seen& f) const;
  /// Those that can be written, each tree once.
  std::vector<Candidate> candidates(std::int64_t threads) const;
  /// Prices it; false where it does not fit.
  bool place(Candidate& c) const;
  /// The best of them, the first one among equals; none where nothing fits.
  std::optional<Stitched> best(std::int64_t threads, std::int64_t& tried);
  /// L or seconds, by Options::latency, of a part alone in its kernel.
  double latency(const Stitched& s, std::int64_t threads) const;
  /// Its groups where reductions alone are sub-roots.
  std::vector<Group> groups() const { return groups_of(groupings().front()); }
  /// Whether it has a schedule at all.
  bool any();
  /// Why no schedule of it can be written.
  std::string why_unwritten() const;

 private:
  // stitch.cpp: groups and schemes
  std::vector<std::vector<bool>> groupings() const;
  std::vector<Group> groups_of(const std::vector<bool>& sub_roots) const;
  std::vector<int> feeding(int root, const std::vector<bool>& sub_roots) const;
  void each_of_paper(Stitched& s, std::int64_t threads, const Seen& f) const;
  void each_by_beam(Stitched& s, std::int64_t threads, const Seen& f) const;
  /// Not priced, whether they can be written or not.
  void each_written(std::int64_t threads, const std::function<void(Stitched&)>& f) const;
  void each_run(Stitched& s, std::int64_t threads, const std::function<void(Stitched&)>& f) const;
  void each_tile(Stitched& s, const std::function<void(Stitched&)>& f) const;
  bool local(const Stitched& s) const;
  /// Fits and keeps locality; then it is priced.
  bool try_one(Stitched& s, std::int64_t threads, const Seen& f) const;

  // latency.cpp
  void sum_up();
  double least(const BoundTree& tree, std::int64_t threads) const;
  std::optional<Demand> demand(const BoundTree& tree, const std::string& text) const;
  bool place(Stitched& s, std::int64_t threads) const;
  bool place_written(Stitched& s, const BoundTree& tree, const std::string& text) const;
  bool fits(const Stitched& s, std::int64_t threads) const;
  bool place_shared(Stitched& s, std::int64_t threads) const;
  void rows_and_blocks(Stitched& s, std::int64_t threads) const;
  void runs_and_blocks(Stitched& s) const;
  std::int64_t registers(const Stitched& s) const;
  std::int64_t within(const Group& g) const;
  std::vector<double> evaluations(const Group& g) const;
  void cost(Stitched& s, std::int64_t threads) const;
  void read(const Stitched& s, const Group& own, int from, double& each, double& once) const;
  double exchange(const Stitched& s, const Group& g, std::int64_t threads) const;
  double rounds(const Stitched& s, Scheme scheme, double points, std::int64_t threads) const;

  bool in(int v) const { return std::ranges::binary_search(c_.vertices, v); }
  std::size_t place_of(int v) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(c_.vertices, v) - c_.vertices.begin());
  }
  bool read_inside(int v) const {
    return std::ranges::any_of(g_.vertex(v).consumers, [this](int c) { return in(c); });
  }
  bool written_home(int v) const {
    const Vertex& x = g_.vertex(v);
    return x.leaves || std::ranges::any_of(x.consumers, [this](int c) { return !in(c); });
  }
  /// Points of a row.
  double inner(int v) const { return g_.points(g_.vertex(v).loops & ~c_.rows); }
  /// Elements of a row's result.
  double tile(int v) const {
    const Vertex& x = g_.vertex(v);
    return g_.points(x.loops & ~x.reduced & ~c_.rows);
  }
  /// Groups that read a sub-root's value.
  template <class F>
  void each_reader(const Stitched& s, int sub_root, F&& f) const {
    for (const Group& g : s.groups) {
      const bool reads = std::ranges::any_of(g.vertices, [&](int v) {
        return v != sub_root && std::ranges::any_of(g_.vertex(v).in, [&](int e) {
                 return g_.edge(e).from == sub_root;
               });
      });
      if (reads) f(g);
    }
  }

  std::optional<Graph> in_block_;  ///< of a part whose blocks take several columns
  const Graph& g_;
  const Device& d_;
  const Component& c_;
  const Options& o_;
  bool columns_ = false;       ///< sums_columns()
  bool over_columns_ = false;  ///< runs_over_columns()
  bool points_ = false;        ///< a row is a point
  bool nested_ = false;        ///< has_nested_rows()
  std::int64_t widest_ = 1;
  Crossing crossing_;                 ///< of points, crossing_loops()
  std::optional<WindowLoops> image_;  ///< of windows, window_loops()
  double dram_bytes_ = 0;             ///< compulsory
  Demand all_;                        ///< of all its points, by one thread, or of a block's columns
};

}  // namespace tilewright::stitching
