// FlashFuser (HPCA 2026, arXiv:2512.12949): two products in a line fused in clusters of thread
// blocks, whose blocks exchange tiles through distributed shared memory (DSM).
//
// The paper's C[m,n] = A[m,k] B[k,n], E[m,l] = C[m,n] D[n,l] is here C[m,j] = A[m,k] B[k,j],
// E[m,n] = C[m,j] D[j,n]: j joins the two products. In a built-in gemm-chain j is the loop l. No
// code is public; every point that the paper leaves open is an option or one of the model's stated
// assumptions. Predictions only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright::flashfuser {

/// The four dimensions: m, the join j of both products, the first's reduction k, the second's n.
enum Role : std::uint8_t { kM, kJ, kK, kN };
inline constexpr std::size_t kRoles = 4;
template <class T>
using ByRole = std::array<T, kRoles>;

// ---- The chain ----------------------------------------------------------------------------------

/// A tensor that comes from or goes to memory, with the dimensions that index it.
struct Moved {
  TensorId tensor;
  unsigned roles = 0;   ///< a set of Role: bit r
  bool second = false;  ///< of the second product or what follows it
  bool staged = false;  ///< read by a product: a tile of it waits in shared memory
  bool written = false;
};

struct Chain {
  std::shared_ptr<const Workload> workload;
  ByRole<LoopId> loops;
  std::vector<LoopId> batch;  ///< a thread block has one element
  std::vector<OpId> first;    ///< products over k: one, or the two of a gated FFN
  std::vector<OpId> between;  ///< element-wise, over m and j
  OpId second;                ///< the product over j
  std::vector<OpId> after;    ///< element-wise, over m and n
  TensorId joint;             ///< what the second product reads of the first
  TensorId partial;           ///< what the second product writes
  std::vector<Moved> moved;
  std::int64_t extent(Role r) const { return workload->loop(loops[r]).extent; }
  std::int64_t batches() const;
};
/// A Reason for what is no such chain.
Result<Chain> chain_of(std::shared_ptr<const Workload> w);

// ---- The space ----------------------------------------------------------------------------------

/// Which dimensions are loops of a cluster, outermost first; the others are spatial: spread over
/// clusters. At least one is spatial.
using LoopSchedule = std::vector<Role>;
/// All 41.
std::vector<LoopSchedule> all_schedules();
/// "j n k | m": loops, then spatial dimensions, by the workload's names.
std::string to_text(const Chain& c, const LoopSchedule& s);
/// Rule 3: where something lies between the products the first's reduction must be complete: k is
/// the innermost loop, or spatial, when one cluster spans it.
bool reduces_first(const LoopSchedule& s);
/// Rule 4: n is a loop.
bool loops_over_n(const LoopSchedule& s);

/// Blocks of a cluster along each dimension.
using Cluster = ByRole<std::int64_t>;
/// Readings of rule 2, "the product of cluster dimensions of each product at most 16, and equal".
enum class ClusterRule : std::uint8_t {
  whole,    ///< shuffle and reduce groups are whole: the second product has as many blocks
  equal,    ///< m j k = m j n: the dimensions named by each product, taken literally
  at_most,  ///< m j k and m j n at most 16, not equal
  counted,  ///< 2 <= m j k <= 16, k divides n: the reading whose count is the paper's
};
std::string_view name_of(ClusterRule r);
inline constexpr std::array kClusterRules = {ClusterRule::whole, ClusterRule::equal,
                                             ClusterRule::at_most, ClusterRule::counted};
/// Sizes 1, 2, 4, ... to `most` a dimension.
std::vector<Cluster> clusters(ClusterRule rule, std::int64_t most);

using Tiles = ByRole<std::int64_t>;  ///< of one block
struct Candidate {
  LoopSchedule schedule;
  Cluster cluster = {1, 1, 1, 1};
  Tiles tiles = {1, 1, 1, 1};
  friend bool operator==(const Candidate&, const Candidate&) = default;
};
/// Blocks that all-gather the joint tile for the second product: cls_n / cls_k.
std::int64_t shuffle_group(const Cluster& c);
/// Blocks that add up one tile of the output: cls_j / shuffle.
std::int64_t reduce_group(const Cluster& c);

struct Options {
  std::int64_t cluster = 16;  ///< most blocks of a cluster
  std::int64_t tile_step = 16;
  bool busy = true;         ///< bandwidths are those of the SMs that have blocks
  double dsm = 3.27e12;     ///< bytes a second of the whole machine
  double shared = 128;      ///< bytes a clock of an SM
  double registers = 0.75;  ///< part of an SM's registers that holds results
};
/// Rule 1: multiples of the step that divide the extent. Of an extent that is no multiple of it:
/// steps doubled while below it, and the extent.
std::vector<std::int64_t> tiles_of(std::int64_t extent, const Options& o);

// ---- The price ----------------------------------------------------------------------------------

struct Device {
  bool timed = true;       ///< false: the machine gives no bandwidth, seconds are bytes from home
  double global = 0;       ///< bytes a second from home, all SMs
  double into_shared = 0;  ///< into one SM; 0: unknown
  double dsm = 0, shared = 0;  ///< all SMs; 0: there is none, or unknown
  std::int64_t units = 1;
  Bytes shared_capacity;  ///< of one block
  Bytes registers;        ///< of one SM; 0: unknown, nothing is held there
};
Result<Device> device_of(const Machine& m, LevelId level, const Options& o);

/// Where a tensor is held between its uses, nearest first.
enum class Place : std::uint8_t { registers, shared, dsm, global };
std::string_view name_of(Place p);

struct Volume {
  TensorId tensor;
  double read = 0, written = 0;  ///< bytes
};
struct Price {
  double seconds = 0;  ///< the largest of the three
  double global_s = 0, dsm_s = 0, shared_s = 0;
  double global = 0;                              ///< bytes
  double exchange = 0, shuffle = 0, scatter = 0;  ///< DSM, bytes
  double shared = 0;                              ///< operands read from shared memory, bytes
  double blocks = 0;
  double shared_used = 0, registers_used = 0;  ///< bytes of one block
  Place joint = Place::registers, partial = Place::registers;
  double joint_bytes = 0, partial_bytes = 0;  ///< that one block would hold of each
  std::vector<Volume> volumes;                ///< by Chain::moved, then of spills; if asked for
  double dsm_bytes() const { return exchange + shuffle + scatter; }
};
/// Nothing where the candidate cannot run: a block without work, groups that are not whole, a
/// partial result between the products (rule 3), tiles that do not fit. A tensor that no level on
/// the chip holds goes to Place::global. `volumes`: fill them.
std::optional<Price> price(const Chain& c, const Device& d, const Options& o, const Candidate& one,
                           bool volumes = false);

// ---- Search -------------------------------------------------------------------------------------

struct Count {
  std::string rule;
  double ours = 0;  ///< candidates left
  std::optional<double> paper = {};
  std::optional<double> as_counted = {};  ///< under ClusterRule::counted
};
struct Ranked {
  Candidate candidate;
  double seconds = 0;  ///< of the slowest level
  double sum = 0;      ///< of all levels
};
struct Found {
  std::vector<Ranked> best;  ///< best first
  bool spills = false;       ///< no candidate passes rule 5: these spill
  std::int64_t priced = 0, feasible = 0;
  double seconds = 0;
};
/// The candidates left after each rule, of this workload and device.
std::vector<Count> funnel_of(const Chain& c, const Device& d, const Options& o);
/// Every candidate that the rules leave, priced; the `keep` best. Ties: less time at all levels
/// together, then the order of the space. Cost: linear in the candidates.
Found search(const Chain& c, const Device& d, const Options& o, std::size_t keep);

/// One block a cluster, k a loop.
Candidate without_clusters(const Candidate& one);
/// A candidate without clusters as a loop tree; `p`: its price, which says what spills.
Plan plan_of(const Chain& c, const Machine& m, LevelId level, const Candidate& one, const Price& p);
/// The candidate of one block a cluster whose tree this is; a Reason where there is none.
Result<Candidate> candidate_of(const Chain& c, const Machine& m, LevelId level, const Device& d,
                               const Options& o, const Plan& plan);

}  // namespace tilewright::flashfuser
