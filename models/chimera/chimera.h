// Chimera (HPCA 2023, section IV): the data movement and memory of a chain of operators under an
// order of its tiled loops (Algorithm 1), the best tiles for an order, and the best order.
//
// The paper's symbols: Perm is Order; S = (T_M, T_N, ...) is Tiles; DF and DM are TensorPrice's
// footprint and movement; DV is Price::volume; MU is Price::memory_paper; MC is `capacity`.
// What the paper gets wrong stays wrong here, behind the options that name the readings.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright::chimera {

/// Readings of Algorithm 1's line 11, "l in op.allLoops()", and of line 12.
enum class Reading : std::uint8_t {
  /// All loops of the fused nest that are not erased yet: a consumer's private loop multiplies the
  /// producer's tensors when it lies outside their first moving loop. Agrees with the paper's prose
  /// ("under mnlk order, loops n, l will cause data movement for matrix A"), Fig. 2 and Fig. 8.
  observed,
  /// As printed: loops that the operator does not have are skipped. Makes mlnk equal mlkn.
  literal,
  /// `observed`, and a loop of one trip never ends reuse: what a buffer of one tile really does.
  trip_one,
};

/// How partial tiles at the edges count.
enum class Edges : std::uint8_t {
  full,   ///< as printed: footprint of a full tile times ceil(L / s)
  exact,  ///< at their true size, as Table III writes it (M K ceil(L / T_L))
};

/// What is held against the capacity.
enum class Memory : std::uint8_t {
  paper,  ///< MU: largest operator, every tensor one tile (Algorithm 1, line 20)
  /// MU with each on-chip intermediate's buffer as large as tree_of's loop tree needs: every tile
  /// of its own loops that lie inside its producer's outermost unfinished reduction. Exact where no
  /// input or output tile is held across a switch of operators.
  creq,
  sum,  ///< all tensors at once, intermediates as in creq
  /// creq plus the tiles that stay held while other operators run: what the plan's schedule has
  /// alive. Never less for chains without halos (more only where a loop makes two trips); a halo
  /// through an element-wise operator may need more, so best_plan asks memory_use. Not one of the
  /// command line's choices.
  held,
};

std::string_view name_of(Reading r);  ///< "observed", "literal", "trip-one"
std::string_view name_of(Edges e);    ///< "full", "exact"
std::string_view name_of(Memory m);   ///< "paper", "creq", "sum", "held"
std::optional<Reading> reading_from_name(std::string_view name);
std::optional<Edges> edges_from_name(std::string_view name);
std::optional<Memory> memory_from_name(std::string_view name);

struct Options {
  Reading reading = Reading::observed;
  Edges edges = Edges::full;
  Memory memory = Memory::creq;
  double write_weight = 1.0;  ///< multiplies the movement of what is written (Ditto uses 2)
  std::int64_t min_tile = 1;  ///< alpha: no tile is smaller, except where the loop itself is
  std::map<LoopId, std::int64_t> min_tiles = {};  ///< by loop, in place of min_tile
  /// By loop: the solver takes only multiples of this (a vector's lanes), or the whole loop.
  std::map<LoopId, std::int64_t> multiples = {};
  /// By loop: the one tile that the solver may take.
  std::map<LoopId, std::int64_t> pinned = {};
  /// By OpId, where not empty: what the movement of an operator's tensors counts. A level of a
  /// hierarchy has there how often the outer levels run the operator.
  std::vector<double> op_weights = {};
  /// Intermediates forced to home (Fig. 8f): input and output tensors of Algorithm 1 like others.
  std::set<TensorId> spilled = {};
  /// Whether Search::counted is asked for. Where it is not, orders that cannot be the best are not
  /// looked into; `ranked` is the same.
  bool counts = true;
};

/// Loops from outer to inner. Batch loops are not in it (they are outermost, one element a tile)
/// unless the user named them. Nor are inferred loops: a producer's output loop that consumers
/// index through another form than that very loop (a convolution's rows), whose tile follows from
/// theirs.
using Order = std::vector<LoopId>;

/// The loops that an order permutes, in the workload's order: neither batch nor inferred.
std::vector<LoopId> order_loops(const Workload& w);
/// "mlkn" (names of one letter) or "m,l,k,n". Throws InputError unless it is a permutation of
/// order_loops(w), batch loops optional.
Order parse_order(const Workload& w, std::string_view text);
/// The letters run together, or comma-separated where a name is longer; parse_order reads it back.
std::string to_text(const Workload& w, const Order& order);
/// Every order, lexicographic by position in the workload's loops. At most kMostOrders; empty if
/// there would be more (see search for what is done then).
std::vector<Order> all_orders(const Workload& w);
inline constexpr std::int64_t kMostOrders = 5040;

/// By LoopId. Entries of batch loops that the order does not name count as 1, those of inferred
/// loops are ignored; others must lie in [1, extent].
using Tiles = std::vector<std::int64_t>;

/// Whole loops (batch loops 1), replaced by the named entries. Throws InputError for an unknown
/// loop, a tile below one or above the loop's extent. `where` names the option in errors.
Tiles tiles_from(const Workload& w, const std::map<std::string, std::int64_t>& named,
                 std::string_view where = "--tiles");

struct TensorPrice {
  TensorId tensor;
  Elements footprint;      ///< DF: one tile
  Elements movement;       ///< DM, over all operators that use it, weighted; 0 for an intermediate
  Elements buffer;         ///< what the plan holds: DF, or an intermediate's whole region (C_req)
  std::string decided_by;  ///< the loop that first ends reuse, "held throughout", or "on chip"
  std::vector<LoopId> reused;  ///< the order's loops that do not multiply it (Fig. 2's table)
  friend bool operator==(const TensorPrice&, const TensorPrice&) = default;
};

struct Price {
  Elements volume;                     ///< DV
  Elements memory;                     ///< by Options::memory
  Elements memory_paper;               ///< MU
  std::vector<TensorPrice> tensors;    ///< in the workload's tensor order
  std::vector<Operations> operations;  ///< by OpId, recomputation by tree_of's tree included
  /// operations beyond each point once: what the paper does not count.
  Operations recomputed;
  friend bool operator==(const Price&, const Price&) = default;
};

/// Algorithm 1 for any chain and order. Element-wise operators are operators like any other. Line
/// 17, "private to op", is read as: no later operator has the loop (observation 3 of section IV-B);
/// for two operators the two are the same. A producer's inferred loops count as accessed by the
/// consumer's loops that they follow (its window loops only where they are cut). Throws InputError
/// for tiles out of range or a volume past 2^63. Cost: about a microsecond; Pricer is the fast way.
Price price(const Workload& w, const Order& order, const Tiles& tiles, const Options& options);

struct Legality {
  bool legal = true;
  std::string reason;  ///< empty when legal
  friend bool operator==(const Legality&, const Legality&) = default;
};

/// An order is no legal program where a loop that only consumers have lies inside an unfinished
/// reduction of their producer and outside one of the producer's output loops: the producer would
/// have to be finished and is not; nor where a running producer's output loop, around its consumers
/// too, lies inside its reduction: what it has accumulated would be dropped between two blocks.
/// Loops of one trip do not count. Empty tiles: every loop longer
/// than one has several trips. (tree_of still gives such an order a legal tree, with the producer
/// hoisted.)
Legality legality(const Workload& w, const Order& order, const Tiles& tiles);

struct Solution {
  Order order;
  Tiles tiles;  ///< empty where nothing fits
  Price price;
  Legality legality;         ///< at these tiles
  Legality order_legality;   ///< with several trips of every loop that may be cut
  bool feasible = true;      ///< within the capacity by Options::memory, and legal at these tiles
  bool fits = true;          ///< within the capacity by Memory::held too: a plan of it fits
  std::string reason;        ///< why not feasible
  bool closed_form = false;  ///< the paper's closed form already was the best
  bool proven = true;        ///< false: branch and bound stopped at its budget of points
  double real_volume = 0;    ///< optimum over real tiles without ceilings (Lagrange); 0: not found
};

/// The best integer tiles for one order: real optimum, its integer neighbours, then branch and
/// bound over trip counts that proves the result best among all legal integer tilings. Convolution
/// windows and other loops that share a subscript with an earlier loop stay whole. Where no tiling
/// that fits is legal, the best illegal one with feasible = false. A Reason when nothing fits at
/// all. Ties: a plan that truly fits, then less memory.
Result<Solution> solve(const Workload& w, const Order& order, Elements capacity,
                       const Options& options);

/// Section IV-B's Lagrange solution for mlkn with T_N = T_K = alpha.
struct ClosedForm {
  double tile = 0;    ///< T* = -alpha + sqrt(alpha^2 + MC)
  double volume = 0;  ///< DV* = 2 M L (K + N) / T*, times batch
  Tiles tiles;        ///< T_X = min(floor(T*), X), T_N = T_K = min(alpha, X)
  Price price;        ///< of those tiles, exact edges (Table III's form), the paper's memory
  double bound = 0;   ///< max over X in {M, L} of 1 + T*/X + 1/T_X, on price.volume / volume
};

/// A Reason unless the workload is two chained matrix products, the order is m,l,k,n in their
/// roles, and the capacity gives T* >= 1.
Result<ClosedForm> closed_form(const Workload& w, const Order& order, Elements capacity,
                               std::int64_t alpha);

struct Search {
  /// One an order: feasible ones by volume (ties: fits, then fewer operations recomputed, then less
  /// memory, then the order), then the others.
  std::vector<Solution> ranked;
  double seconds = 0;
  /// orders (solved), illegal_orders (with several trips everywhere), infeasible, evaluated (points
  /// that branch and bound looked at), pruned (subtrees that its bound cut), unproven (orders that
  /// it stopped at its budget), not_enumerated (orders left out, see notes).
  std::map<std::string, std::int64_t> counted;
  std::vector<std::string> notes;  ///< what was left out and why
};

/// All orders with their best tiles. With more than kMostOrders orders, only the loops that may be
/// cut are permuted, the others (windows) outermost, where Algorithm 1 prices them least. With more
/// than 120 of those, sets of loops that are cut, each in all its orders; `ranked` has the best
/// ones then. A Reason where nothing fits. Cost: 24 orders of a GEMM chain of extents 1024 take
/// milliseconds, 13,700 of a transformer block half a second.
Result<Search> try_search(const Workload& w, Elements capacity, const Options& options);
/// The same; where try_search gives a Reason, `ranked` is empty and `notes` says why.
Search search(const Workload& w, Elements capacity, const Options& options);
/// The first of try_search's `ranked`. Only orders that a bound does not exclude are solved; all
/// where no order is feasible.
Result<Solution> best_order(const Workload& w, Elements capacity, const Options& options);

/// The loop tree of an order. A reduction loop with several trips encloses its producer and what
/// feeds it only; consumers' loops inside it come after it, with their own copies of shared loops.
/// A consumer's private loop encloses the producer (recomputed) only where one of the producer's
/// loops with several trips lies inside it. A loop of one trip never parts operators: where it
/// would, it is innermost. Batch loops are outermost, `b/1`. Other steps come from the tile table.
/// Empty tiles: every loop has several trips.
///   mlkn: m l ( k ( C.gemm1 ) n ( C.gemm2 ) )      mnlk: m n l ( k ( C.gemm1 ) C.gemm2 )
///   mkln: m ( k l ( C.gemm1 ) l n ( C.gemm2 ) )    mnkl: m n ( k l ( C.gemm1 ) l ( C.gemm2 ) )
Node tree_of(const Workload& w, const Order& order, const Tiles& tiles);
/// The tile table that goes with it: by loop name, for the loops that the tree cuts.
std::map<std::string, std::int64_t> tile_table(const Workload& w, const Order& order,
                                               const Tiles& tiles);

/// The orders that nest the loops with several trips as a tree does, whoever made it; those of one
/// trip are outermost, where Algorithm 1 prices them least. At most kMostOrders; whether tree_of
/// any of them is that tree is for the caller to see.
std::vector<Order> orders_of(const Workload& w, const Node& tree, const Tiles& tiles);

/// One kernel at `level`: tree, tiles, and spilled intermediates pinned to the machine's home. Of a
/// GPU whose blocks have the level for themselves, independent outer loops are bound to blocks.
Plan plan_of(const Workload& w, const Order& order, const Tiles& tiles, const Machine& m,
             LevelId level, const Options& options = {});
Plan plan_of(const Workload& w, const Solution& s, const Machine& m, LevelId level,
             const Options& options = {});

struct BestPlan {
  Plan plan;
  Solution solution;
  Search search;  ///< the search it was chosen from
  Elements capacity;
  bool tightened = false;  ///< Options::memory's best did not truly fit: searched again with `held`
  std::int64_t blocks = 1;  ///< thread blocks that share a GPU
  Elements moved;           ///< by these blocks together; of one block the solution's volume
};

/// What `plan --model chimera` prints: the best solution whose schedule's memory_use at `level`
/// stays within `capacity` (that level's own, in elements of the workload's type, when not given).
/// A Reason when none does.
Result<BestPlan> best_plan(const Workload& w, const Machine& m, LevelId level,
                           const Options& options, std::optional<Elements> capacity = {});

/// A plan that moves as little, `search` left empty: orders are not ranked.
Result<BestPlan> best_plan_alone(const Workload& w, const Machine& m, LevelId level,
                                 const Options& options, std::optional<Elements> capacity = {});

/// The solution that best_plan takes, without ranking every order; where it takes none, the first
/// that try_search ranks.
Result<Solution> best_fit(const Workload& w, const Machine& m, LevelId level,
                          const Options& options, std::optional<Elements> capacity = {});

/// The compiled form of (workload, order, options), for pricing many tilings fast: well under a
/// microsecond a tiling. Not for use by two threads at once; copies are independent.
class Pricer {
 public:
  Pricer(const Workload& w, Order order, Options options);
  ~Pricer();
  Pricer(Pricer&&) noexcept;
  Pricer& operator=(Pricer&&) noexcept;

  struct Quick {
    std::int64_t volume = 0;        ///< DV, elements; saturates at 2^63 - 1
    std::int64_t memory = 0;        ///< by Options::memory, elements
    std::int64_t memory_paper = 0;  ///< MU, elements
  };
  /// Tiles by LoopId, in range (unchecked).
  Quick quick(std::span<const std::int64_t> tiles) const;
  Price price(const Tiles& tiles) const;
  const Workload& workload() const;
  const Order& order() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::chimera
