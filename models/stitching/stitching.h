// Kernels of memory-intensive operators whose values stay on chip between them: which sets of
// operators one kernel can hold, how a kernel's rows, warps and lanes can be laid out, what each
// layout asks of a GPU and takes, and its tree. What to put together is for the models that plan by
// it. Sections are those of FusionStitching (Zheng et al., arXiv:2009.10924), after whose stitching
// schemes it is made. Predictions only: nothing here runs or counts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/plan/traffic.h"
#include "core/workload/bytes_read.h"
#include "core/workload/workload.h"
#include "models/stitching/loop_set.h"
#include "models/stitching/overlap.h"

namespace tilewright::stitching {

/// Section 4's classes of operators; a product is compute-intensive and stays a kernel of its own
/// (Products); any other contraction is a reduction.
enum class Kind : std::uint8_t { light, expensive, reduction, product };
std::string_view name_of(Kind k);

enum class Groupings : std::uint8_t { few, each };  ///< of expensive operators: see stitch()
/// Which contractions are compute-intensive: those of a higher arithmetic intensity than the
/// machine's ridge point (Williams et al., Roofline, CACM 2009), or those that have more points
/// than their largest tensor has elements.
enum class Products : std::uint8_t { ridge, points };
enum class Latency : std::uint8_t { overlap, published };  ///< what a kernel takes: overlap.h, or L
std::string_view name_of(Groupings g);
std::string_view name_of(Products p);
std::string_view name_of(Latency l);
std::optional<Groupings> groupings_from_name(std::string_view name);
std::optional<Products> products_from_name(std::string_view name);
std::optional<Latency> latency_from_name(std::string_view name);

/// How schedules are written and priced; what its users call by these names, each with its default.
struct Options {
  int most_operators = 64;  ///< of a pattern, at most 64; keeps the search linear
  Groupings groupings = Groupings::few;
  Products products = Products::ridge;
  bool written = true;  ///< schedules that a plan can say, priced as it says them: see stitch()
  Latency latency = Latency::overlap;
  bool bandwidth =
      false;         ///< `published`: a kernel takes at least its compulsory bytes at DRAM's rate
  int schedule = 1;  ///< by their time, of the kernel that takes longest; 1: the best
  bool few_sizes = false;  ///< of `written` blocks, fewer sizes: where there are many kernels
  friend bool operator==(const Options&, const Options&) = default;
};

/// What a machine file says of a GPU, as the evaluators need it.
struct Device {
  std::int64_t sms = 0;
  std::int64_t threads_per_sm = 0;
  std::int64_t blocks_per_sm = 0;
  std::int64_t registers_per_sm = 0;
  std::int64_t shared_per_sm = 0;  ///< bytes
  double clock_hz = 0;
  double dram_bytes_per_second = 0;
  double f32_flops_per_second = 0;     ///< by FMA; 0: the machine file does not say
  double shared_bytes_per_second = 0;  ///< 128 bytes a clock and SM
  double light = 0, expensive = 0, shuffle = 0, shared = 0, global = 0, barrier = 0;  ///< cycles
  double fill_bytes_per_second = 0;  ///< of an SM, from L2
  double l2 = 260;                   ///< cycles until a load from L2 is there
  double dram = 800;                 ///< cycles until a load from DRAM is there
  double dispatch = 1.1;   ///< cycles from one block given out to the next, of the whole GPU
  double block = 700;      ///< cycles of a block besides its own: being given its place, ending
  double launch = 3000;    ///< cycles of a kernel before its first block and after its last
  double launch_unit = 0;  ///< more of it for each SM that has blocks
  bool adds_bf16 = true;   ///< in memory, two at once; else they are compared and swapped
  double l2_bytes = 0;     ///< that L2 holds
  double working_set = 0;  ///< bytes of the program, which it uses again and again; 0: unknown
  double stays = 0;        ///< the part that L2 keeps of what is used again: see with_working_set
  double grid_barrier = 2500, grid_barrier_block = 0;  ///< of all blocks, and of each of them
  double launch_together = 0;  ///< more of a launch whose blocks wait for one another
  std::shared_ptr<const Machine> machine;
  friend bool operator==(const Device&, const Device&) = default;
  /// Cycles until a load from home is there that no other block has made.
  double home() const { return stays * l2 + (1 - stays) * dram; }
  /// At least, for all SMs to bring so many bytes: what L2 keeps comes from there.
  double brought_seconds(double bytes) const {
    return bytes * ((1 - stays) / dram_bytes_per_second +
                    stays / (fill_bytes_per_second * static_cast<double>(sms)));
  }
};
/// As it is for a program that uses so many bytes again and again.
Device with_working_set(Device d, double bytes);
/// A Reason where the machine is no GPU or its file gives no cycles of instructions.
Result<Device> device_of(const Machine& m);
/// Flops a byte from which on a contraction is a product, as Options::products says: f32 FMA peak,
/// which is what a stitched kernel adds up with, over DRAM's rate. 0: by its points (also where the
/// machine file gives no peak).
double ridge_of(const Device& d, const Options& o);

/// One consumer of a vertex's tensor.
struct Edge {
  int from = -1, to = -1;  ///< vertices
  TensorId tensor;
  std::int64_t bytes = 0;  ///< that the consumer reads of it
  LoopSet bad;             ///< loops along which blocks would need each other's parts
  LoopSet indexed;         ///< the producer's loops that index the tensor
};

/// An operator. Vertices are numbered in topological order.
struct Vertex {
  OpId op;
  Kind kind = Kind::light;
  LoopSet loops, reduced;
  std::int64_t light = 0, expensive = 0;  ///< instructions a point
  /// What a point's functions take beyond exponentials: instructions in f32; exponentials of f64.
  double called = 0, called_f64 = 0;
  std::int64_t outside_inputs = 0;  ///< accesses to inputs of the workload
  std::int64_t row_bytes = 0;       ///< of one element of each output
  std::int64_t outputs = 0;
  bool leaves = false;         ///< writes an output of the workload
  std::vector<int> in, out;    ///< positions in Graph::edges
  std::vector<int> consumers;  ///< vertices, each once, ascending
};

struct NamelessPart;  // alike.h

/// What a part's schedule asks of a machine, and what it took to find out.
struct AskedSchedule {
  std::optional<Demand> demand;  ///< none: no threads can do as the tree says
  std::size_t tree = 0;          ///< a hash of the tree's text without names
  std::int64_t effort = 0;       ///< core/base/effort.h
};
/// Of parts, by their vertices: the effort of each schedule, by its tree.
using EffortOfSchedules = std::map<std::vector<int>, std::map<std::size_t, std::int64_t>>;

/// The workload as the explorer sees it. Cost: linear, but for reachability, which is a bit for
/// each pair of vertices.
class Graph {
 public:
  /// `ridge`: ridge_of(). `products`: the operators that may be products, all where it is null.
  static Result<Graph> create(std::shared_ptr<const Workload> w, double ridge = 0,
                              const std::set<OpId>* products = nullptr);

  const Workload& workload() const { return *workload_; }
  const std::shared_ptr<const Workload>& shared_workload() const { return workload_; }
  /// What schedules of its parts ask of a machine, as far as they have been priced: many patterns
  /// have the same parts. Shared by copies; not for several threads.
  struct Priced {
    std::shared_ptr<const Machine> machine;
    std::map<std::vector<int>, std::shared_ptr<const NamelessPart>> parts;  ///< by their vertices
    /// By the text of their trees; graphs of parts of one workload may share them.
    std::shared_ptr<std::map<std::string, AskedSchedule>> schedules;
    /// Schedules whose effort has been spent, here or by whoever stitched what is like it.
    EffortOfSchedules spent;
    std::int64_t effort = 0;  ///< all of that
    /// Where stitched_like() lists what its kernel asks for; null: nobody keeps it.
    EffortOfSchedules* listed = nullptr;
    /// Spends the effort, but once.
    void spend(const std::vector<int>& vertices, std::size_t tree, std::int64_t units);
    /// The last pattern whose text was asked for (alike.h).
    std::pair<std::vector<int>, std::string> text;
  };
  Priced& priced() const { return *priced_; }
  /// The same, without what was priced on another machine.
  Priced& priced_on(const std::shared_ptr<const Machine>& machine) const;
  /// What is priced of the one is known of the other: operators, loops and tensors of one name are
  /// the same, and so is the machine.
  void share_schedules(const Graph& other) {
    if (!other.priced_->schedules)
      other.priced_->schedules = std::make_shared<std::map<std::string, AskedSchedule>>();
    priced_->schedules = other.priced_->schedules;
    priced_->machine = other.priced_->machine;
  }
  std::span<const Vertex> vertices() const { return vertices_; }
  std::span<const Edge> edges() const { return edges_; }
  const Vertex& vertex(int v) const { return vertices_[static_cast<std::size_t>(v)]; }
  const Edge& edge(int e) const { return edges_[static_cast<std::size_t>(e)]; }
  int size() const { return static_cast<int>(vertices_.size()); }
  std::int64_t extent(int loop) const { return extents_[static_cast<std::size_t>(loop)]; }
  /// Product of the extents of a set of loops.
  double points(const LoopSet& loops) const;
  /// Whether every path between two of the vertices (ascending) stays among them (figure 6).
  bool convex(std::span<const int> vertices) const;
  /// What a block of the part sees of it: of a loop that blocks split its part alone.
  Graph in_block(const Component& c) const;

 private:
  void connect();
  void close();
  std::shared_ptr<const Workload> workload_;
  std::shared_ptr<Priced> priced_ = std::make_shared<Priced>();
  std::vector<Vertex> vertices_;
  std::vector<Edge> edges_;
  std::vector<std::int64_t> extents_;
  std::size_t words_ = 0;
  std::vector<std::uint64_t> after_, before_;  ///< row v: vertices that v reaches; that reach v
};

/// Operators of one kernel: vertices, ascending, none twice.
using Pattern = std::vector<int>;

/// A connected part of a pattern. Its blocks split `rows`: along these loops no block needs what
/// another makes, every reduction is whole but those in `partial`, and every root has them.
struct Component {
  std::vector<int> vertices;
  LoopSet rows;
  double row_count = 1;
  std::vector<int> partial;  ///< sums along rows, too: blocks add their parts (column_roots.h)
  int along = -1;            ///< a loop along contiguous elements, of which a block takes `columns`
                             ///< in every row; -1: none
  std::int64_t columns = 1;
  /// All loops that blocks split.
  LoopSet split() const {
    return along < 0 ? rows : rows | LoopSet(static_cast<std::size_t>(along));
  }
};
/// The parts of a pattern, or nothing where it cannot be generated: more than most_operators, a
/// product among others, a cycle (figure 6), or a part that would need blocks to communicate.
std::optional<std::vector<Component>> components_of(const Graph& g, std::span<const int> pattern,
                                                    int most_operators);

/// The ways to pack the parts of a pattern, components_of() first. Another one where some of them
/// read the same elements from home and run over the same loops: those are one part, whose loop
/// reads them once (section 4.1: operators of the same parallelism share a loop). Others where a
/// part hands on sums over columns: its blocks take several columns each (Component::along). Empty
/// where the pattern cannot be generated.
std::vector<std::vector<Component>> packings_of(const Graph& g, std::span<const int> pattern,
                                                int most_operators);

/// Kernels, each of some vertices, with every vertex in one: producers before consumers. Fewer than
/// given where some wait for each other.
std::vector<Pattern> launch_order(const Graph& g, std::vector<Pattern> kernels);
// ---- The code generator's search (section 4) ----------------------------------------------------

/// Where a row's work is done and, for a sub-root, how its readers get its value (figure 3).
enum class Scheme : std::uint8_t {
  thread,  ///< a row a thread; registers
  warp,    ///< a row a warp; the first lane's register, read by shuffles
  block,   ///< a row a block; shared memory
};
std::string_view name_of(Scheme s);

/// A group: the operators that feed one sub-root or root, up to the next sub-roots.
struct Group {
  int root = -1;          ///< vertex
  bool sub_root = false;  ///< its value is read by other groups
  Scheme scheme = Scheme::thread;
  std::vector<int> vertices;  ///< an operator may be in several groups: it is computed in each
};

/// What a row's loops besides the contiguous one do where an operator has several (written
/// schedules).
enum class Spread : std::uint8_t {
  turns,       ///< every thread goes over all of them
  others,      ///< they take the lanes that the contiguous loop leaves, and a block's warps
  contiguous,  ///< the same, and a block's warps go along the contiguous loop first
};

/// How one part of a kernel is stitched.
struct Stitched {
  Component component;
  std::vector<Group> groups;  ///< in topological order of their roots
  std::int64_t vector = 1;    ///< elements that a thread takes at once (written schedules)
  std::int64_t turns = 1;     ///< of a thread over a block's points (written schedules)
  std::int64_t across = 1;    ///< elements of the crossing loop that a thread takes at once, too
  std::int64_t lanes_across = 1;  ///< of a warp, that differ in the crossing loop (crossing_loops())
  /// Points of a window's image that a thread has along and down it; 0: no such tiles
  /// (window_tiles.h). Of points with channels side by side, channels of each, too; of others,
  /// results of each.
  std::int64_t window_along = 0, window_down = 0, window_beside = 1;
  std::int64_t splits = 1;  ///< blocks that a sum over columns is cut over (written schedules)
  Spread spread = Spread::turns;
  std::int64_t rows_in_turn = 1;  ///< that a block (a warp of it) takes: with partial sums only
  std::int64_t rows_per_block = 1;
  std::int64_t blocks = 0;
  std::int64_t added_bytes = 0;   ///< that all blocks together add atomically (written schedules)
  double cycles_per_warp = 0;     ///< L_warp
  std::int64_t shared_bytes = 0;  ///< a block's, after sharing
  std::int64_t shared_unshared_bytes = 0;
  std::int64_t registers = 0;  ///< a thread's
  double recomputed = 1;       ///< evaluations of operators over points of operators
  bool written = false;        ///< a plan can say it
  Demand demand;               ///< of a written one
};
struct StitchedKernel {
  std::vector<Stitched> parts;  ///< several: packing
  std::int64_t threads = 0;     ///< a block's
  std::int64_t warps = 0;       ///< N_warp
  std::int64_t occupancy = 0;   ///< resident warps of the whole GPU
  double waves = 0;             ///< N_wave, rounded up
  double cycles = 0;            ///< L, equation 1
  Overlap overlap;              ///< of written parts
  double seconds = 0;           ///< by Options::latency
  std::int64_t schedules = 0;   ///< enumerated that keep locality
  std::string without_units;    ///< why it is the kernel without units; empty: it is not
  bool written() const;         ///< all its parts are
};
/// The best launch dimension, grouping and scheme of each sub-root by the latency-evaluator, or a
/// Reason where nothing fits. Groupings of expensive operators: `few` tries none as sub-root, those
/// whose value is read at more points than it has, and all; `each` tries every subset of at most 8
/// of them. More than 6 groups: the 64 best combinations of schemes a group are gone on with.
///
/// With Options::written a schedule is what bound_tree() can say: one scheme for all groups, an
/// operator computed once, an input loaded once, 1 to 16 bytes an access, sums over columns cut
/// over blocks; values kept between passes count as registers. Where none fits, the kernel is
/// without_units(), as where operators are running; by `published`, which has no time for that, and
/// for running operators whose tiles have no room, the paper's schedules are tried, and
/// Stitched::written is false. Without Options::written all are the paper's: groups of
/// different schemes, recomputation, an element an access. So all kernels of one choice of options
/// are priced by one evaluator. Every one of packings_of() is tried. Cost: schedules times
/// operators.
Result<StitchedKernel> stitch(const Graph& g, const Device& d, const Pattern& p, const Options& o);
/// All of them that can be written, no two with the same tree, the best first (of a pack's parts
/// the one that takes longest varies). Empty where none can. Ties keep the order of enumeration.
std::vector<StitchedKernel> ranked(const Graph& g, const Device& d, const Pattern& p,
                                   const Options& o);
/// The kernel without units: all warps of a block share its work, tiles lie in shared memory; as
/// many rows a block as take the least time, by lowering::block_time. A Reason where the tiles fit
/// no SM. `why` becomes StitchedKernel::without_units. Cost: ten or so numbers of rows, each tree
/// resolved and priced.
Result<StitchedKernel> without_units(const Graph& g, const Device& d, const Pattern& p,
                                     const Options& o, std::string why);
/// What may run for the pattern, in the order in which it is to be tried: ranked(), then the kernel
/// without units where its tiles fit. Each has a price of its own. For whoever knows more than this
/// model about what a target takes. Cost: every schedule.
std::vector<StitchedKernel> choices(const Graph& g, const Device& d, const Pattern& p,
                                    const Options& o);
/// About the seconds of a kernel of these parts, without a search for its schedules: what blocks of
/// a row each bring, do and wait for, by overlap(). For whoever looks for what to put together.
/// Cost: linear in accesses.
double guessed_seconds(const Graph& g, const Device& d, std::span<const Component> parts);
/// Bytes that operators of one part must read and write once.
Bytes compulsory_of(const Graph& g, std::span<const int> pattern);

/// One request for shared memory: `vertex` writes so many bytes, which `readers` read.
struct SharedRequest {
  int vertex = -1;
  std::int64_t bytes = 0;
  std::vector<int> readers;
};
struct SharedSpace {
  std::vector<std::int64_t> offsets;  ///< by request
  std::int64_t bytes = 0;
};
/// Section 4.4: a request takes a previous one's space where that is large enough and its writer
/// and all its readers dominate the vertex (Cooper, Harvey and Kennedy's trees over the part's
/// edges, under a virtual entry), so that nothing still reads it. Requests in topological order.
SharedSpace share(const Graph& g, std::span<const int> vertices,
                  std::span<const SharedRequest> requests);

/// What a whole plan takes: the evaluator over its kernels, products left out (they are the
/// same in every plan).
struct PlanPrice {
  double seconds = 0;
  std::vector<StitchedKernel> kernels;  ///< in launch order; a product's is empty
  std::vector<Pattern> patterns;        ///< theirs
};
using Known =
    std::map<Pattern, Result<StitchedKernel>>;  ///< patterns stitched before, for the same options
/// Disjoint patterns; every other operator is a kernel of its own. The operators of a pattern that
/// fits no kernel are a kernel each. A Reason where one of those does not fit either.
Result<PlanPrice> price(const Graph& g, const Device& d, std::span<const Pattern> patterns,
                        const Options& o, Known* known = nullptr);
/// The kernels with two made one wherever they share a tensor and one takes less time than both,
/// those that save most first; nothing where none do. `make`: stitch(), or what knows alike
/// kernels. Cost: at most 200 times that.
std::optional<std::vector<Pattern>> joined(
    const Graph& g, const Device& d, const Options& o, const PlanPrice& p, Known& known,
    const std::function<Result<StitchedKernel>(const Pattern&)>& make = {});
/// The operators that each kernel of any plan computes.
std::vector<Pattern> patterns_of(const Graph& g, const Plan& plan);
/// Bytes of tensors that kernels read and write from and to home, each once a kernel, at the
/// boundary of the machine's default level. Without seconds.
Traffic traffic_of(const Machine& machine, const Graph& g, std::span<const Pattern> kernels);

/// What each part of its kernels computes: operators that share what they read from home.
std::vector<Pattern> parts_of(const PlanPrice& p);

/// The plan with the o.schedule-th of ranked() in the kernel that takes longest by L; a Reason
/// where that has fewer.
Result<PlanPrice> with_schedule(const Graph& g, const Device& d, PlanPrice p, const Options& o);

// ---- Compositions -------------------------------------------------------------------------------

/// The workload with light operators computed by each reader (core/workload/rewrite).
struct Composition {
  std::vector<std::string> rewrites;  ///< in order
  std::shared_ptr<const Workload> workload;
};
/// Those that differ from it: slices and the like ("compose"), gathers ("compose-gathers"), both,
/// variances of long sums ("split-variance"); but for those in which more operators would read a
/// tensor at several places, whose tiles would be too large.
std::vector<Composition> compositions(const Workload& w);

/// A plan with what it was priced by.
struct Priced {
  const Graph& graph;
  const Device& device;
  const PlanPrice& price;
};
/// What plans of a workload are compared by: their kernels' predicted seconds, a kernel taking at
/// least the bytes that it moves over DRAM's bandwidth whether or not Options::bandwidth has it so.
/// Looked-up elements are counted for every operator that gathers, at every point: none keeps what
/// another has looked up. Products, which are the same in every plan, count for nothing.
double compared_seconds(const Priced& p);
/// Whether the first takes fewer compared_seconds() than the second.
bool is_better(const Priced& a, const Priced& b);

/// The plan in the plan language without units: a kernel a pattern in launch order, a grid over the
/// rows, operators in topological order, values on chip; a part whose sums nobody waits for is cut
/// within its rows too. For any machine.
Plan plan_of(const Graph& g, const PlanPrice& p);

/// The plan with the schedules that were chosen: kernels at level `registers`, their loops bound to
/// warps, lanes and threads (bound_tree.h).
struct WrittenPlan {
  Plan plan;
  std::vector<std::string> unbound;  ///< by kernel: why its tree is plan_of()'s; empty: it is not
};
/// Checked by resolve(): a kernel that is illegal there is written without units, with that reason.
/// Products always are. Cost: a resolve, and one more a kernel where that fails.
WrittenPlan write_plan(const Graph& g, const Device& d, const PlanPrice& p,
                       const std::shared_ptr<const Machine>& machine);

/// A kernel of the plan as it may be written.
struct WrittenKernel {
  Kernel kernel;              ///< with the name that it has in the plan
  double seconds = 0;         ///< predicted; 0: a product's, which is not priced
  std::string without_units;  ///< why its tree is bound to nothing below blocks; empty: it is
};
/// choices() for kernel `k` of the plan, written: what to put in its place, in this order, where a
/// target refuses it. The first is the plan's own unless Options::schedule has asked for another;
/// the last one is without units. Of a product, smaller and smaller tiles. Not checked by
/// resolve(). Cost: choices().
std::vector<WrittenKernel> kernel_choices(const Graph& g, const Device& d, const PlanPrice& p,
                                          std::size_t k, const Options& o);

}  // namespace tilewright::stitching
