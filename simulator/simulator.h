// Simulated traffic of a schedule: a walk over its access stream.
#pragma once

#include <functional>

#include "core/plan/schedule.h"
#include "core/plan/stream.h"
#include "core/plan/traffic.h"
#include "simulator/attribution.h"
#include "simulator/cache.h"
#include "simulator/occupancy.h"
#include "simulator/scratchpad.h"
#include "simulator/skipping.h"
#include "simulator/stack_distance.h"
#include "simulator/trace.h"

namespace tilewright {

struct SimulateOptions {
  /// How tensors lie in memory; only hardware caches see it. What `tiled` costs to pack and unpack
  /// is AddressMap::packing_bytes, never part of the Traffic.
  Layout layout = Layout::tiled;
  /// Cores that share the machine's outer caches. Block b of a kernel runs on core b modulo cores,
  /// one whole block after the other, in linear order: what blocks leave in private caches is their
  /// core's, and no two run at once.
  int cores = 1;
  std::uint64_t seed = 1;  ///< of policies that draw, and of the values that gathers are indexed by
  bool attribute = false;  ///< also Simulated::blame; one core; some fifty times slower

  /// Passes over iterations that would only repeat themselves, see Skipping: counts are the same.
  /// Of no effect where touches are told to anybody, below or by attribute.
  bool skip = true;
  /// Each walks the plan and touches a share of the sets: the same counts. One where sets are not
  /// by themselves, see Simulated::why_serial.
  int threads = 1;
  bool contents = false;  ///< also Simulated::contents
  /// The walk ends, unfinished, after about so much work; 0: it does not. A line of 64 bytes
  /// touched is 1, a compute kWorkOfCompute: nanoseconds or two.
  std::int64_t most_work = 0;
  static constexpr std::int64_t kWorkOfCompute = 100;
  /// The walk ends, unfinished, after so many computes and before whatever follows; 0: it does not.
  std::int64_t most_computes = 0;
  /// Told now and then, on the walk's thread, which part of its computes is behind it, about.
  std::function<void(double)> progress = {};

  // Told of every touch that enters the caches at the innermost one, in order; not owned.
  std::vector<StackDistances*> distances = {};
  Occupancy* occupancy = nullptr;
  TraceWriter* trace = nullptr;  ///< a line touched is an access of its bytes
};

/// One boundary's blame.
struct Blame {
  std::string boundary;
  LevelBlame level;
};

/// Where a walk is that SimulateOptions::most_computes ended.
struct Stop {
  std::int64_t computes = 0;
  int kernel = 0;
  OpId op;                                        ///< of the last compute
  std::vector<std::pair<TensorId, Box>> touched;  ///< by it, inputs first
  std::vector<BufferContents::Held> buffers;      ///< that software manages, of that kernel
};

struct Simulated {
  Traffic traffic;
  // Of hardware caches, innermost first, by the boundary outwards of each.
  std::vector<std::pair<std::string, std::vector<CacheCount>>> caches;  ///< by tensor
  std::vector<Blame> blame;                                             ///< with attribute
  std::vector<std::string> loops;  ///< that LevelBlame::by_loop speaks of, before its last row
  int threads = 1;                 ///< that shared the sets
  std::string why_serial;          ///< where more were asked for than were
  /// Else everything here is of a part of the walk: see most_work and most_computes.
  bool finished = true;
  Stop stop;  ///< with most_computes
  Skipped skipped;
  /// With contents: what each cache is left with, by set, see CacheHierarchy::contents.
  std::vector<std::vector<std::vector<CacheLine>>> contents;
  DramCount dram;  ///< where the machine file says how rows lie
};

/// Bytes moved at every boundary of the machine, per tensor, source `simulated`.
///
/// Software-managed levels (`by` "scratchpad" where all are): the walk keeps what each buffer holds
/// and counts each movement of design/plan.md's rules 8 to 12 at every boundary it crosses.
///
/// Hardware caches (`by` "cache"): set-associative, of the machine's policies, see CacheHierarchy.
/// Each compute touches its inputs as written, then its outputs (each line read unless initialised,
/// then written). One whose operands do not fit the innermost cache does so in steps that fit, in
/// the order of with_loops_inside (core/lowering/inside_tiles.h). Lines are touched in contiguous
/// runs of rows along the last dimension, at the addresses of
/// AddressMap; touches enter at the innermost cache. A gather touches the elements that the indices
/// of random_inputs(workload, seed) name, in rows where it reads along one. Where a
/// software-managed level lies inside caches (shared memory under an L2, registers under an L1),
/// what moves between its buffers and home touches the caches in between instead. Blocks run one
/// after the other in linear order, and so do all units, on one core unless options say more: each
/// level is one instance, and a cache private to a core is shared by all blocks that it runs. Hits
/// and misses are counted in line touches, one for each line of a run; at outer levels they are the
/// requests from within.
///
/// Entries that would be all zero are left out; `operations` has every operator that ran.
/// Cost: one visit for each node of the walk, and one for each line touched, of those iterations of
/// the plan's loops that are not passed over (SimulateOptions::skip).
/// Throws InputError for tensors too large for a cache's address space (2^52 bytes together).
Traffic simulate(const Schedule& schedule, const SimulateOptions& options = {});
/// The same, and what else the caches know. Throws InputError too where a trace or distances are
/// asked for and not every touch enters at the innermost cache.
Simulated simulate_in_detail(const Schedule& schedule, const SimulateOptions& options = {});

}  // namespace tilewright
