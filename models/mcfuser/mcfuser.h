// MCFuser (Zhang et al., SC 2024): tiling expressions of a chain of matrix products, where each
// statement of an expression goes, the pruned space, the time model, and the search.
//
// The paper's dimensions m, k, n, h of A[m,k] B[k,n] -> C[m,n], C D[n,h] -> E[m,h] are a built-in
// chain's m, k, l, n; expressions are written with the workload's own loops (paper_text
// translates). The paper's symbols: an expression is Expression; T_x is Tiles; l_x is a loop's
// trips; Shm_estm is Quick::memory; t_estm, t_mem, t_comp and alpha are Quick's. What the paper
// leaves open is an option that names its readings; what it gets wrong stays wrong here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/workload/workload.h"

namespace tilewright::mcfuser {

/// How far the analysis of loops and statements moves loads and stores (section III-B).
enum class Hoist : std::uint8_t {
  none,   ///< beside their compute
  scope,  ///< to the right-most loop that indexes the tensor (as Chimera and Ansor do)
  /// The same after loops of one trip are removed from the DAG (Fig. 5 b): the paper's. A load may
  /// so leave a loop that is bound to blockIdx, although every block must load for itself.
  dag,
  block,  ///< as `dag`, but never out of a loop bound to blockIdx
};

/// Which spatial loops rule 1 binds to blockIdx. Those that every product has always are.
enum class Blocks : std::uint8_t {
  /// All but those strictly between two loops that stay, and those in a sequence: five classes for
  /// the paper's example, as it says.
  between,
  always,  ///< all but those in a sequence: three classes
};

/// Which tensors eq. (1) sums over.
enum class Shared : std::uint8_t {
  loaded,  ///< those that are loaded: 38.9 % of the example's tiles pruned (the text: 40 %)
  all,     ///< intermediates and outputs too: 57.4 %
};

/// Where an output is stored whose reduction encloses one of its own loops (sub-expressions nhk and
/// n(k,h)).
enum class Stores : std::uint8_t {
  once,  ///< after the reduction, the tiles of all those loops kept on chip
  each,  ///< at its right-most related loop as the text has it: partial results, every time
};

/// The denominator of section II-A's ratio.
enum class Ratio : std::uint8_t {
  written_once,  ///< T_M T_N + T_M K + T_N K: gives the paper's 227 and 2
  printed,       ///< 2 T_M T_N + ...
};

std::string_view name_of(Hoist h);
std::string_view name_of(Blocks b);
std::string_view name_of(Shared s);
std::string_view name_of(Stores s);
std::string_view name_of(Ratio r);
std::optional<Hoist> hoist_from_name(std::string_view name);
std::optional<Blocks> blocks_from_name(std::string_view name);
std::optional<Shared> shared_from_name(std::string_view name);
std::optional<Stores> stores_from_name(std::string_view name);
std::optional<Ratio> ratio_from_name(std::string_view name);

struct Options {
  Hoist hoist = Hoist::dag;
  Blocks blocks = Blocks::between;
  Shared shared = Shared::loaded;
  Stores stores = Stores::once;
  Ratio ratio = Ratio::written_once;
  bool flat = true;  ///< false: deep expressions only, Chimera's space (MCFuser-Chimera)
  bool rules[4] = {true, true, true, true};  ///< which of the four rules prune
  double slack = 1.2;                        ///< rule 4: Shm_estm may be this many times Shm_max
  double padding = 0.05;        ///< rule 3: at most this part of a dimension, if no power of two
  std::int64_t tile_step = 16;  ///< tiles are multiples of it (section III-A)
};

// ---- The chain ----------------------------------------------------------------------------------

/// A set of loops, by LoopId.
using Mask = std::uint64_t;

/// A workload as MCFuser sees it: products in a line, each reading the one before, perhaps through
/// element-wise operators and reductions (softmax), whose loops are among a product's.
struct Chain {
  std::shared_ptr<const Workload> workload;
  std::vector<LoopId> dims;          ///< the independent cross-tile loops, in the workload's order
  std::vector<LoopId> batch;         ///< outermost, one element a tile, bound to blockIdx
  std::vector<OpId> products;        ///< compute-intensive operators, first to last
  std::vector<Mask> op_loops;        ///< by OpId; of dims
  std::vector<Mask> op_reduced;      ///< by OpId; of dims
  std::vector<Mask> tensor_loops;    ///< by TensorId; of dims
  std::vector<std::uint64_t> feeds;  ///< by OpId: the operators it needs, directly or not
  Mask spatial = 0;                  ///< of dims: index the last product's output
};
/// Most loops of a chain (eight would be 40,320 deep expressions).
inline constexpr std::size_t kMostLoops = 7;

/// A Reason for what is no such chain, or has more than kMostLoops loops.
Result<Chain> chain_of(std::shared_ptr<const Workload> w);

// ---- Expressions --------------------------------------------------------------------------------

/// expr := loop expr | '(' expr ',' expr ... ')'. No parts: all nested (deep).
struct Expression {
  std::vector<LoopId> nest;
  std::vector<Expression> parts;  ///< in sequence inside the nest: none, or two and more
  bool deep() const { return parts.empty(); }
  friend bool operator==(const Expression&, const Expression&) = default;
};

/// "mlnk", "ml(k,n)"; names longer than a letter are parted by blanks: "m oc1 (k,oc2)".
std::string to_text(const Chain& c, const Expression& e);
/// The same with the paper's letters: m, k, n, h by their roles. Longer chains go on p, q, r.
std::string paper_text(const Chain& c, const Expression& e);
/// Reads to_text back. Throws InputError unless every loop of the chain is there once, every
/// operator's loops are nested in each other, and parts stand in the order of their operators.
Expression parse_expression(const Chain& c, std::string_view text,
                            std::string_view where = "--expression");
/// Every expression: all x! deep ones, then the flat ones. 26 for two products, 146 for three.
std::vector<Expression> all_expressions(const Chain& c);

/// Rule 1: the loops bound to blockIdx, and what is left for one block.
struct SubExpression {
  std::vector<LoopId> bound;  ///< in the expression's order
  Expression rest;
};
SubExpression sub_expression(const Chain& c, const Expression& e, Blocks reading);
/// Rule 2: the loop of the first product whose partial result needs many tiles, in words; none if
/// kept. An intermediate needs them where a reduction of its product encloses one of its own loops
/// inside the block. The last product's output is not asked (flat expressions would vanish).
std::optional<std::string> overwhelms(const Chain& c, const SubExpression& s);

// ---- Statements ---------------------------------------------------------------------------------

enum class Kind : std::uint8_t { load, compute, store };

/// A statement or a loop of an expression with statements.
struct Item {
  LoopId loop;             ///< valid: a loop
  bool bound = false;      ///< loop: to blockIdx
  std::vector<Item> body;  ///< loop
  Kind kind = Kind::compute;
  OpId op;          ///< a statement: the compute, or the one that it serves
  TensorId tensor;  ///< load, store
};
/// The text of section III-B: "mh(n(k(L_A,L_B,C_C),L_D,C_E),S_E)".
std::string to_text(const Chain& c, const std::vector<Item>& items);

/// The expression with statements, loops with one trip (`once`) removed where `hoist` does so.
/// A product is computed at its right-most related loop, which a loop bound to blockIdx always
/// encloses; a consumer inside an unfinished reduction of its producer comes after it, with its own
/// copies of the loops in there. `bound` loops come first.
std::vector<Item> place(const Chain& c, const SubExpression& s, Mask once, Hoist hoist,
                        Stores stores);

/// The DAG of Fig. 5.
struct Dag {
  std::vector<std::string> loops, statements;
  std::vector<std::pair<std::string, std::string>> scope;  ///< loop -> statement
  std::vector<std::pair<std::string, std::string>> order;  ///< statement -> statement
};
/// With every loop whose trips are in `once` removed, and its edges; Mask{0} removes none.
Dag dag_of(const Chain& c, Mask once);

// ---- Price --------------------------------------------------------------------------------------

/// By LoopId; batch loops 1. May exceed a loop's extent (padding).
using Tiles = std::vector<std::int64_t>;

/// Where it runs.
struct Device {
  double bandwidth = 0;      ///< W, bytes a second from home
  double peak = 0;           ///< P, flops a second
  std::int64_t units = 1;    ///< N_SM
  Bytes shared;              ///< Shm_max, for one block
  std::int64_t element = 4;  ///< bytes
};
/// W is the bandwidth into the first level under home on the way to `level`, all its instances
/// together; P the peak for the workload's type; a GPU's block can use its SM's memory but 1 KiB. A
/// Reason where the machine does not say.
Result<Device> device_of(const Machine& m, LevelId level, const Workload& w);

struct Quick {
  double seconds = 0;  ///< t_estm
  double memory_seconds = 0, compute_seconds = 0, slowdown = 1;
  std::int64_t blocks = 1;
};

struct StatementPrice {
  Kind kind;
  OpId op;
  TensorId tensor;            ///< load, store
  std::string name;           ///< "L_A", "C_C", "S_E"
  std::vector<LoopId> loops;  ///< around it, loops of one trip included unless removed
  double trips = 1;           ///< batch included
  double amount = 0;          ///< a tile's elements, or its flops
  double total = 0;           ///< bytes, or flops
  double points = 0;          ///< compute: points of the operator in a tile
  double true_edges = 0;      ///< load, store: bytes with partial tiles at their true size
};

struct Price {
  Quick time;
  Bytes bytes;       ///< all loads and stores
  double flops = 0;  ///< all computes, recomputation included
  Bytes memory;      ///< Shm_estm, by Options::shared
  std::vector<StatementPrice> statements;
};

/// The compiled form of a class of expressions, for pricing many tiles fast: tens of nanoseconds.
class Pricer {
 public:
  Pricer(const Chain& c, const SubExpression& s, const Device& d, const Options& o);
  ~Pricer();
  Pricer(Pricer&&) noexcept;
  /// Eq. (2) to (5). Not for two threads at once.
  Quick quick(std::span<const std::int64_t> tiles);
  Price price(const Tiles& tiles);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Eq. (1) in bytes.
std::int64_t shared_memory(const Chain& c, const Device& d, Shared reading,
                           std::span<const std::int64_t> tiles);

/// The same model of any plan's schedule: computes where its tree has them, loads and stores
/// hoisted from there by `hoist` whatever the plan says of them; kernels add up. Equals Pricer on
/// plan_of's plans where tiles divide their loops. Edge tiles count as full ones.
Result<Price> price(const Schedule& s, const Device& d, const Options& o);

/// Section II-A for one product in tiles of `tile`: flops an element, and whether that is below
/// P/W in flops an element of the device: memory-bound.
struct Intensity {
  OpId op;
  double ratio = 0;      ///< phi
  double threshold = 0;  ///< P / W times the bytes of an element
  bool memory_bound = false;
};
double intensity(double tile_m, double tile_n, double k, Ratio reading);
/// Of each product of the chain, its tile clipped to its loops: M and N the largest of its output's
/// loops in each factor, K the product of its reduced ones.
std::vector<Intensity> intensities(const Chain& c, const Device& d, Ratio reading,
                                   std::int64_t tile = 256);

// ---- The space ----------------------------------------------------------------------------------

struct Class {
  SubExpression sub;
  Expression first;          ///< the first expression of it, in all_expressions' order
  std::int64_t members = 0;  ///< expressions
  std::optional<std::string> overwhelmed;  ///< rule 2's verdict
};

struct Space {
  std::vector<Expression> expressions;
  std::vector<Class> classes;                    ///< after rule 1 (without it: one an expression)
  std::vector<const Class*> kept() const;        ///< after rule 2
  std::vector<std::vector<std::int64_t>> sizes;  ///< by position in dims, before rule 3
  std::vector<std::vector<std::int64_t>> kept_sizes;  ///< after rule 3
  bool rule2 = true;
  /// Candidates before, and after each rule in turn; saturated at 2^63 - 1. Tuples are tile sizes
  /// without expressions.
  struct Count {
    std::string rule;
    std::int64_t expressions = 0, tuples = 0, candidates = 0;
  };
  std::vector<Count> counts;
  std::vector<std::string> notes;
};
/// A dimension where rule 3 leaves nothing (a power of two below tile_step) keeps the size that
/// pads least, with a note. Counting after rule 4 visits every tuple that rule 3 keeps; past 2^26
/// of them it is left out, with a note. A Reason where a loop has more than 2^20 sizes.
Result<Space> space_of(const Chain& c, const Device& d, const Options& o);
/// The same space of one expression's class alone, rule 2 aside.
Space narrowed(const Chain& c, Space space, const Expression& e, const Options& o);

// ---- The search ---------------------------------------------------------------------------------

struct Candidate {
  const Class* group = nullptr;
  Tiles tiles;
  double seconds = 0;
};

/// How long a candidate truly takes; negative: it does not run.
using Measure = std::function<double(const Candidate&)>;

/// Algorithm 1's parameters. N, epsilon and a cap are not in the paper.
struct Evolution {
  std::int64_t population = 512;   ///< N
  std::int64_t top = 8;            ///< n: measured each round
  double epsilon = 0.001;          ///< of the best so far; the difference that ends the search
  std::int64_t patience = 4;       ///< rounds in a row within epsilon (the paper: 1)
  std::int64_t generations = 200;  ///< at most
  std::uint64_t seed = 1;
  /// Algorithm 1, line 11 returns the last round's best, which may be worse than an earlier one's.
  bool guard = true;
  Measure measure = {};  ///< none: the model's own estimate
};

/// One round of the evolutionary search.
struct Round {
  std::int64_t evaluated = 0;  ///< candidates priced so far
  double seconds = 0;          ///< the round's best; infinite where none runs
  double best = 0;             ///< the best so far
};

struct Found {
  std::vector<Candidate> best;  ///< the best first; exhaustive: `keep` of them
  std::int64_t evaluated = 0;
  std::int64_t measured = 0;
  std::int64_t generations = 0;
  std::vector<Round> rounds;  ///< evolutionary: the search's convergence
  double seconds = 0;  ///< wall clock
};

/// Every candidate of the pruned space; the `keep` best by t_estm. Ties, which the paper leaves open, go
/// to the larger tiles, by the bytes of all of them: the model has no cost of a loop's turn, so that
/// the tile of a reduction may be anything. Then in the space's order. A Reason where nothing is left. Cost: some 40 ns a candidate; candidates
/// past 2^30 are a Reason.
Result<Found> search_all(const Chain& c, const Space& s, const Device& d, const Options& o,
                         std::size_t keep = 64);
/// Algorithm 1: expressions never mutate, one loop's tile size does.
Result<Found> evolve(const Chain& c, const Space& s, const Device& d, const Options& o,
                     const Evolution& e);

/// `count` different candidates of the pruned space, drawn with equal probability, or all that a
/// thousand draws for each have found. The same for the same seed.
std::vector<Candidate> draw_candidates(const Chain& c, const Space& s, const Device& d,
                                       const Options& o, std::size_t count, std::uint64_t seed);

// ---- Plans --------------------------------------------------------------------------------------

/// One kernel at `level`: bound loops `@grid`, outermost; loads and stores where `place` puts them,
/// but inside the grid loops. Loops of one trip are left out.
Plan plan_of(const Chain& c, const SubExpression& s, const Tiles& tiles, const Machine& m,
             LevelId level, const Options& o = {});
/// The expression and tiles whose plan has this schedule's loops around its computes (loops of one
/// trip, loads, stores and bindings aside). A Reason where none has.
struct Reading {
  Expression expression;
  Tiles tiles;
};
Result<Reading> expression_of(const Chain& c, const Schedule& s);

/// A candidate with its plan.
struct Ranked {
  Candidate candidate;
  Plan plan;
  std::int64_t before = 0;  ///< better candidates of the search, taken or left out
};
/// What a target says of a plan's schedule.
using Accepts = std::function<bool(const Schedule&)>;
/// Candidates that the paper measures of each round: n of Algorithm 1.
inline constexpr std::size_t kRanked = 8;
/// The best `count` of a search's candidates in order, no two with the same plan, whose schedules are
/// legal and fit the level: to be measured, or to stand in for one another. With `accepts`, those that
/// a target takes: it may pad tiles to the blocks of its micro-kernel, which the model knows nothing
/// of. Cost: a resolve a candidate, and what `accepts` takes.
std::vector<Ranked> ranked_plans(const Chain& c, const Machine& m, LevelId level, const Device& d,
                                 const Options& o, const Found& found, std::size_t count = kRanked,
                                 const Accepts& accepts = {});

struct BestPlan {
  Plan plan;
  Candidate chosen;  ///< its group points into `space`
  std::shared_ptr<const Space> space;
  Found found;
  std::int64_t overflowed = 0;  ///< better candidates whose plan does not fit or is not taken
};
/// What `plan --model mcfuser` prints: the fastest by the model whose schedule fits the level (the
/// paper's own are weeded out by the PTX lowering) and that `accepts` takes. `evolution`: that search
/// instead. `only`: of that expression's class alone.
Result<BestPlan> best_plan(const Chain& c, const Machine& m, LevelId level, const Device& d,
                           const Options& o, const std::optional<Evolution>& evolution = {},
                           const std::optional<Expression>& only = {},
                           const Accepts& accepts = {});

}  // namespace tilewright::mcfuser
