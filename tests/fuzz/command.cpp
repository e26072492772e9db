// The command line: an argument a line. What is asked is read and checked, names of workloads,
// machines, trees, tiles and pins included, and not done; a plan in place is resolved.
#include <string>
#include <vector>

#include "cli/parse.h"
#include "core/plan/schedule.h"
#include "experiments/report/verbs.h"
#include "harness/request.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {
namespace {

std::ptrdiff_t nodes(const Node& n) {
  std::ptrdiff_t count = 1;
  for (const Node& child : n.children) count += nodes(child);
  return count;
}

/// Resolving a schedule changes nothing.
void check_resolved(const Plan& plan, const harness::Setting& s) {
  if (nodes(plan.kernels.front().tree) > 40) return;  // the cost is quadratic, and stated
  const Result<Schedule> schedule = resolve(plan, s.workload, s.machine);
  if (!schedule) return;
  const Result<Schedule> again = resolve(schedule->resolved, s.workload, s.machine);
  TW_CHECK(again.ok(), again.reason());
  TW_CHECK(again->resolved == schedule->resolved, to_text(again->resolved.kernels[0].tree));
}

}  // namespace

void one(std::string_view input) {
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin < input.size();) {
    const std::size_t end = std::min(input.find('\n', begin), input.size());
    arguments.emplace_back(input.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::size_t at = cli::find_verb_position(arguments);
  if (at == arguments.size()) return;
  const harness::Verb* verb = harness::find_verb(arguments[at]);
  if (verb == nullptr) return;
  arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
  refusable([&] {
    harness::Request r = harness::request_of(*verb, cli::parse_arguments(*verb, arguments).asked);
    if (r.machine == "host") r.machine = "h100";  // looking around takes longer than reading
    const harness::Setting s = harness::setting_of(r);
    refusable([&] {
      if (const auto plan = harness::plan_in_place(r, s)) check_resolved(*plan, s);
    });
    refusable([&] { harness::tiles_of(r, *s.workload); });
    refusable([&] { harness::layout_of(r); });
    refusable([&] {
      const LevelId level = harness::level_of(r, *s.machine);
      harness::capacity_of(r, s, level);
    });
  });
}

}  // namespace tilewright::fuzz
