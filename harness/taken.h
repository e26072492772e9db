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
};

/// Emits the schedule. Where the target refuses a kernel, the first of the model's choices that is
/// legal and that the target takes goes in its place; `on` then has the plan that was taken. A
/// Reason: the first refusal, where the model has nothing for that kernel. What a target takes is
/// found by emitting a kernel alone, so that no second set of rules can disagree with the emitter.
/// Cost: emitting, and for each refused kernel a resolve and emitting that kernel for every choice
/// that is tried.
Result<Taken> emit_taken(Scheduled& on, const codegen::Target& target, const Settings& settings,
                         int threads);

/// The same of a model's plan: `best` becomes what the target takes, its seconds those of the kernels
/// that are taken. Returns what was replaced, empty where nothing was.
Result<nlohmann::ordered_json> take(Proposal& best, const Setting& setting,
                                    const codegen::Target& target, const Request& request);

/// A line for people of every kernel that was replaced.
std::vector<std::string> notes_of(const nlohmann::ordered_json& replaced);

/// The plan itself and those that differ from it in one kernel, at most `count`: every kernel's
/// first choice before any kernel's second. Legal ones alone.
std::vector<Scheduled> candidates_of(const Scheduled& on, std::size_t count);

}  // namespace tilewright::harness
