// Names of what FusionStitching's options may be.

#include "core/base/name_table.h"
#include "models/fusionstitching/fusionstitching.h"

namespace tilewright::fusionstitching {
namespace {

constexpr NameTable<LastStep, 2> kLastSteps{
    {{LastStep::unite, "unite"}, {LastStep::select, "select"}}};
constexpr NameTable<Penalty, 2> kPenalties{
    {{Penalty::difference, "difference"}, {Penalty::whole, "whole"}}};
constexpr NameTable<Pick, 2> kPicks{{{Pick::latency, "latency"}, {Pick::score, "score"}}};

}  // namespace

std::string_view name_of(LastStep s) { return name_in(kLastSteps, s); }
std::string_view name_of(Penalty p) { return name_in(kPenalties, p); }
std::string_view name_of(Pick p) { return name_in(kPicks, p); }
std::optional<LastStep> last_step_from_name(std::string_view n) { return value_in(kLastSteps, n); }
std::optional<Penalty> penalty_from_name(std::string_view n) { return value_in(kPenalties, n); }
std::optional<Pick> pick_from_name(std::string_view n) { return value_in(kPicks, n); }

}  // namespace tilewright::fusionstitching
