// What is planned is what runs: of what a model proposes, the first that a target takes.
#pragma once

#include <memory>

#include "codegen/target.h"
#include "harness/schedules.h"

namespace tilewright::harness {

/// A plan that the target takes, emitted.
struct Taken {
  std::unique_ptr<codegen::Emitted> emitted;
  /// Kernels that another choice of the model's stands in the place of: [{"kernel", "refused": why,
  /// "choice": its number after the model's own, "seconds": predicted or null, "note"}].
  nlohmann::ordered_json replaced = nlohmann::ordered_json::array();
  /// Plans of the model that the target has no room for, best first: [{"room_bytes": that it was
  /// made for, "refused": why, "plan": its kernels}]; what is taken was made for less. Empty: the
  /// first was taken.
  nlohmann::ordered_json for_more_room = nlohmann::ordered_json::array();
  Bytes room = {};                   ///< that the plan was made for; said where it was asked again
  std::optional<Proposal> proposal;  ///< the model's, where it was asked again

  /// "replaced" and "asked_again" (with "room_bytes" and "refused"), each where there is one.
  nlohmann::ordered_json json() const;
  /// The same, a line for people each.
  std::vector<std::string> notes() const;
};

/// Emits the schedule. Where the target refuses a kernel, the first of the model's choices that is
/// legal and that the target takes goes in its place. Where it has none and the refusal is for want
/// of room, the model is asked again with as much less room as was short, a few times at most. What
/// the target emits as a makeshift (Emitted::makeshift) counts as refused, unless all of this comes
/// to nothing. `on` then has the plan that was taken. A Reason: the first refusal, where that has
/// no end. What a target takes is found by emitting a kernel alone, so that no second set of rules
/// can disagree with the emitter. Cost: emitting, and for each refused kernel a resolve and
/// emitting that kernel for every choice that is tried; a search of the model each time that it is
/// asked again.
Result<Taken> emit_taken(Scheduled& on, const codegen::Target& target, const Settings& settings,
                         int threads);

/// The same of a model's plan: `best` becomes what the target takes, its seconds those of the
/// kernels that are taken, and `setting` that of its workload. `again` may be null.
Result<Taken> take(Proposal& best, Setting& setting, const codegen::Target& target,
                   const Request& request, const Again& again);

/// The plan itself and those that differ from it in one kernel, at most `count`: every kernel's
/// first choice before any kernel's second. Legal ones alone.
std::vector<Scheduled> candidates_of(const Scheduled& on, std::size_t count);

}  // namespace tilewright::harness
