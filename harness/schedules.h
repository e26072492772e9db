// From a request to a schedule, with the refusals that every verb on a plan shares.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/schedule.h"
#include "core/plan/traffic.h"
#include "harness/answer.h"
#include "harness/request.h"
#include "models/exact/exact.h"
#include "models/model.h"

namespace tilewright::harness {

/// A model's plan for so much room of its level; `setting` becomes that of the plan's workload.
using Again = std::function<Result<Proposal>(Bytes room, Setting& setting)>;
/// `before`: the setting as it was when the model was first asked. `level`: what it planned for.
Again asked_again(const Model& model, const Request& request, const Setting& before, LevelId level);

/// Either a schedule to go on with, or the answer to give instead.
struct Scheduled {
  Setting setting;
  Plan plan;
  /// The model's, asked again: its plan where the level has this much room. Null: the plan is none
  /// of a model's own.
  Again again = {};
  Bytes room = {};  ///< that the plan was made for
  /// The model's, of the plan: what may stand in its kernels' places.
  std::function<std::vector<KernelChoice>(std::size_t kernel)> choices = {};
  std::optional<Schedule> schedule = {};
  Answer refusal = {};  ///< where there is no schedule: "legal": false and the reason
};

/// Reads the request, makes the plan it says, resolves it. Throws InputError for bad input.
Scheduled schedule_of(const Request& request);
/// The same; where a model made the plan, for as many threads of a processor as the request says. A
/// model knows of one thread: where its tiles leave some threads idle for a tenth of the time or
/// more, one loop's tiles are made smaller, so that every thread has as many.
Scheduled schedule_for_threads(const Request& request);
/// The plan with that changed; itself where nothing is gained. Of the loops of outputs that threads
/// can share, as the tree has them or, where that is legal, around everything else, it is the one
/// whose operations, those computed again included, take the threads the least time; of equals, the
/// one that moves the fewest bytes (both by `exact`). Plans of one kernel without blocks. Cost:
/// `exact` on a handful of plans.
Plan shared_by_threads(const Plan& plan, const Setting& setting, int threads);

/// What crosses from and to home.
Traffic from_home(Traffic traffic, const Machine& m);

/// Operations of a plan over the least that the workload takes: above 1 where something is computed
/// more than once. None where the traffic has no operations.
std::optional<double> over_least(const Traffic& traffic, const Workload& w);

/// Kernels of a plan that differ in names alone.
struct SameKernels {
  Schedule schedule;  ///< of one of them, resolved alone
  std::size_t count = 1;
};

/// A plan's traffic from and to home, its level taken as a scratchpad over that; where the plan
/// names others too, each of them, without the caches that it does not name.
struct Alone {
  Traffic exact;
  Schedule schedule;
  std::vector<SameKernels> kernels;
  Bytes total() const;  ///< read and written, all tensors
};
/// A Reason where the plan is illegal there or exact does not say. Cost: resolve of the whole;
/// exact of every kernel, but those that differ in names alone are counted once, together by at
/// most `most_nodes` (models/exact/exact.h).
Result<Alone> alone_at(const Setting& setting, const Plan& plan, LevelId level,
                       std::int64_t most_nodes = kMostExactNodes);
/// Bytes that the plan's tiles take at a level, at most at one time.
Bytes held_at(const Traffic& exact, const Machine& m, LevelId level);
/// Said beside bytes that are MovedAt::walked.
inline constexpr const char* kWalkedTiles =
    "tiles are larger than the cache: counted as kernels for processors walk them";
/// What a plan moves into a level, read and written.
struct MovedAt {
  Bytes bytes;
  /// The level is a cache that the plan's tiles do not fit: the bytes are those of a walk of the
  /// tiles, by a model that counts anybody's plans, else simulated; with what is left to be written
  /// at the end.
  bool walked = false;
};
/// By `exact`, which is `alone`'s, where the tiles fit into what is asked for of the level or
/// software manages it. A Reason where nothing says it. Cost: elsewhere a model's price, some
/// milliseconds, or a simulation of seconds at most.
Result<MovedAt> moved_at(const Request& request, const Setting& setting, const Plan& plan,
                         LevelId level, const Alone& alone);
/// Every kernel's inputs and outputs, each once a kernel; none where a kernel's operators are no
/// workload of their own.
std::optional<Bytes> each_kernel_once(const Plan& plan, const Workload& w);

}  // namespace tilewright::harness
