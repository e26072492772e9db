// Iterations of a walk that need not be made, because the caches would only repeat themselves.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/plan/loop_translation.h"
#include "core/plan/stream.h"
#include "simulator/cache_image.h"

namespace tilewright {

/// What was passed over.
struct Skipped {
  std::int64_t computes = 0;     ///< that were not walked, of
  std::int64_t of_computes = 0;  ///< so many
  struct OfLoop {
    std::string kernel, loop;     ///< the loop's name and step, `m/64`
    std::int64_t iterations = 0;  ///< passed over at this loop itself, not those within them
  };
  std::vector<OfLoop> loops;
  std::string why_none;  ///< where nothing could be: the reason
};

/// Warping, after Morelli and Reineke ("Warping cache simulation of polyhedral programs", PLDI
/// 2022), on the loops of a plan. Where the iterations of a loop touch what the ones before
/// touched, each region some bytes further (LoopTranslation), and after d of them every level holds
/// what it held before, the lines of each region moved by d times its bytes and all sets turned by
/// one number, then so it goes on: a replacement policy sees lines of a set, not their names. The
/// remaining multiples of d are counted by multiplication and what is held is moved as far.
///
/// d is such that every region moves by whole lines of each level, and that all of a level's lines
/// turn by the same number of sets: with regions that stay in place (a tile that is kept), by a
/// multiple of sets * line.
///
/// A loop that is run again over the same ranges (gemm1's k for every tile of n, recomputed) makes
/// the same touches again. Where it has come to what the caches held at the same iteration of the
/// run before, the rest of it goes as it went then, up to its last iteration.
///
/// States are compared whole, entry for entry: owners, dirtiness and the
/// policy's state too. Exact, not an estimate.
class Skipping {
 public:
  /// What is multiplied beside the caches' own counts.
  struct Counters {
    std::vector<std::int64_t>* operations = nullptr;  ///< by operator; negative: never ran
    std::int64_t* computes = nullptr;
    const std::int64_t* lines = nullptr;  ///< touched so far: not multiplied, the walk's own work
  };
  /// Of moves by multiples of `granule` bytes only.
  Skipping(const Schedule& s, const AddressMap& map, CacheHierarchy& caches,
           const Counters& counters, std::int64_t granule = 1);

  /// Whether a hierarchy and a map are of the kind that this is about; if not, why.
  static std::string refusal(const AddressMap& map, const CacheHierarchy& caches);

  /// A LoopSteer. Cost: an image of the caches now and then, in proportion to the lines touched.
  std::int64_t steer(const LoopPoint& point);

  Skipped result() const;

 private:
  /// All that is counted and held, before an iteration.
  struct Mark {
    std::int64_t iteration = 0;
    cache::Image image;
    std::vector<std::int64_t> operations;
    std::int64_t computes = 0;
  };
  /// A loop run over and over.
  struct Reruns {
    bool watching = false;
    int failures = 0;        // in a row
    std::int64_t rest = 0;   // runs to sit out
    std::int64_t began = 0;  // lines touched before this run
    std::int64_t from = 0;   // iterations before this one have not been enough
    LoopRun before, now;
    std::vector<Mark> marks, running;  // of the run before, of this one; the last: count - 1
  };

  /// One loop node, of which one instance runs at a time.
  struct Loop {
    // Over all instances.
    std::int64_t skipped = 0;
    int failures = 0;       // in a row
    std::int64_t rest = 0;  // instances to sit out
    std::int64_t work = 0;  // when it was last compared
    // This instance.
    bool watching = false, based = false;
    LoopTranslation moves;
    std::int64_t period = 1;
    std::int64_t base_at = 0;  // iteration
    std::int64_t tests = 0, power = 1;
    cache::Image base;
    std::vector<std::int64_t> base_operations;
    std::int64_t base_computes = 0;
    Reruns again;
  };

  void begin(Loop& l, const LoopPoint& point);
  void take_base(Loop& l, std::int64_t at);
  static void give_up(Loop& l);
  /// Iterations after which moves are whole lines and turn all sets alike; 0: none that helps.
  std::int64_t period_of(const LoopTranslation& moves, std::int64_t most) const;
  std::int64_t pass(Loop& l, const LoopPoint& point);
  std::int64_t steer_steps(Loop& l, const LoopPoint& point);

  void begin_run(Reruns& r, const LoopPoint& point);
  /// Marks an iteration of a run; where the run before stood alike there, goes to its last one.
  std::int64_t mark(Loop& l, std::int64_t iteration, std::int64_t count);
  void mark_now(Mark& m, std::int64_t iteration) const;
  void add_counters(std::int64_t times, const std::vector<std::int64_t>& before,
                    const std::vector<std::int64_t>& after, std::int64_t computes_before,
                    std::int64_t computes_after);

  std::size_t region_of(std::int64_t address) const;
  std::uint64_t turn(const cache::LevelImage& level, const LoopTranslation& moves,
                     std::int64_t iterations) const;
  /// Whether `to` is `from` moved as by so many iterations.
  bool moved(const cache::Image& from, const cache::Image& to, const LoopTranslation& moves,
             std::int64_t iterations) const;
  /// Moves what an image holds so; false where a line would leave its region.
  bool move(cache::Image& image, const LoopTranslation& moves, std::int64_t iterations) const;

  const Schedule& s_;
  const AddressMap& map_;
  CacheHierarchy& caches_;
  Counters counters_;
  std::int64_t granule_;
  std::vector<AddressMap::Region> regions_;
  std::vector<std::vector<Loop>> loops_;  // by kernel, node
  cache::Image now_;                      // kept for its memory
  std::int64_t lines_ = 0;                // that the caches hold
  std::int64_t skipped_computes_ = 0;
};

}  // namespace tilewright
