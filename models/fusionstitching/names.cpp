// Names of what FusionStitching's options may be.
#include <array>
#include <utility>

#include "models/fusionstitching/fusionstitching.h"

namespace tilewright::fusionstitching {
namespace {

template <class T, std::size_t N>
using Names = std::array<std::pair<T, std::string_view>, N>;

constexpr Names<LastStep, 2> kLastSteps{{{LastStep::unite, "unite"}, {LastStep::select, "select"}}};
constexpr Names<Penalty, 2> kPenalties{
    {{Penalty::difference, "difference"}, {Penalty::whole, "whole"}}};
constexpr Names<Pick, 2> kPicks{{{Pick::latency, "latency"}, {Pick::score, "score"}}};

template <class T, std::size_t N>
std::string_view name_in(const Names<T, N>& names, T value) {
  for (const auto& [v, name] : names)
    if (v == value) return name;
  return "?";
}
template <class T, std::size_t N>
std::optional<T> value_in(const Names<T, N>& names, std::string_view name) {
  for (const auto& [value, text] : names)
    if (text == name) return value;
  return std::nullopt;
}

}  // namespace

std::string_view name_of(LastStep s) { return name_in(kLastSteps, s); }
std::string_view name_of(Penalty p) { return name_in(kPenalties, p); }
std::string_view name_of(Pick p) { return name_in(kPicks, p); }
std::optional<LastStep> last_step_from_name(std::string_view n) { return value_in(kLastSteps, n); }
std::optional<Penalty> penalty_from_name(std::string_view n) { return value_in(kPenalties, n); }
std::optional<Pick> pick_from_name(std::string_view n) { return value_in(kPicks, n); }

}  // namespace tilewright::fusionstitching
