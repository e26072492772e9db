// Schedules of a kernel, drawn over their ranking, so that the ranking can be held against times.
#include <algorithm>
#include <random>

#include "core/base/format.h"
#include "models/fusionstitching/model.h"
#include "models/stitching/bound_tree.h"

namespace tilewright::fusionstitching {
namespace {

namespace fs = fusionstitching;
using nlohmann::ordered_json;

std::string described(const fs::StitchedKernel& k, std::size_t rank, std::size_t all) {
  std::string text = formatted("{} of {}: {} threads", rank, all, k.threads);
  for (const fs::Stitched& s : k.parts) {
    text += formatted(", {} of {} elements", fs::name_of(s.groups.front().scheme), s.vector);
    if (s.turns > 1) text += formatted(", {} turns", s.turns);
    if (!s.component.partial.empty())
      text += formatted(", {} rows in turn", s.rows_in_turn);
    if (s.splits > 1) text += formatted(" in {} blocks", s.splits);
  }
  return text;
}

std::string tree_of(const StitchedPlan& found, const fs::StitchedKernel& k) {
  std::string text;
  for (const fs::Stitched& s : k.parts) {
    const auto tree = fs::bound_tree(found.graph, found.device, s, k.threads);
    if (tree) text += (text.empty() ? "" : " | ") + to_text(tree->tree);
  }
  return text;
}

/// What each resource takes by itself (models/stitching/overlap.h), and what that follows from.
ordered_json terms_json(const fs::Overlap& t) {
  return {{"launch_seconds", t.launch},   {"dispatch_seconds", t.dispatch},
          {"dram_seconds", t.dram},       {"fill_seconds", t.fill},
          {"issue_seconds", t.issue},     {"special_seconds", t.special},
          {"local_seconds", t.local},     {"latency_seconds", t.latency},
          {"added_seconds", t.added},
          {"seconds", t.seconds},         {"blocks", t.blocks},
          {"resident_blocks", t.resident}, {"chain_cycles", t.chain},   {"registers", t.registers},
          {"turns", t.turns}};
}

/// The given options but the schedule, as assignments.
std::vector<std::string> other_options(const OptionValues& values) {
  std::vector<std::string> options;
  for (const OptionSpec& spec : fs::option_specs()) {
    const auto given = values.find(spec.name);
    if (given == values.end()) continue;
    for (const std::string& text : given->second)
      options.push_back(spec.kind == OptionKind::assignment ? text
                                                            : answer_name(spec) + "=" + text);
  }
  std::erase_if(options, [](const std::string& o) { return o.starts_with("schedule="); });
  return options;
}

}  // namespace

ordered_json drawn_schedules(const ExplainAsked& asked, std::uint64_t seed,
                             const StitchedPlan& found) {
  ordered_json drawn = ordered_json::array();
  const fs::PlanPrice& plan = found.price();
  const auto longest = std::ranges::max_element(plan.kernels, {}, &fs::StitchedKernel::seconds);
  if (longest == plan.kernels.end() || longest->parts.empty()) return drawn;
  const auto at = static_cast<std::size_t>(longest - plan.kernels.begin());
  const auto all = fs::ranked(found.graph, found.device, plan.patterns[at], found.options);
  const auto wanted = static_cast<std::size_t>(*asked.samples);
  const std::size_t parts = std::min(wanted, all.size());
  std::mt19937_64 random(seed);
  const std::vector<std::string> others = other_options(asked.given);
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t first = i * all.size() / parts, end = (i + 1) * all.size() / parts;
    const std::size_t at_rank = first + random() % (end - first);
    const fs::StitchedKernel& k = all[at_rank];
    std::vector<std::string> options = others;
    options.push_back(formatted("schedule={}", at_rank + 1));
    drawn.push_back({{"schedule", described(k, at_rank + 1, all.size())},
                     {"rank", at_rank + 1},
                     {"seconds", plan.seconds - longest->seconds + k.seconds},
                     {"latency_seconds", k.cycles / found.device.clock_hz},
                     {"terms", terms_json(k.overlap)},
                     {"tree", tree_of(found, k)},
                     {"request", {{"stitch", options}}}});
    if (!asked.rewrites.empty()) drawn.back()["request"]["rewrites"] = asked.rewrites;
  }
  return drawn;
}

}  // namespace tilewright::fusionstitching
