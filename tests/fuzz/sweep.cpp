// Sweeps' files, points, experiments' journals.
#include "harness/sweep.h"

#include "harness/points.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {

void one(std::string_view input) {
  using nlohmann::ordered_json;
  refusable([&] {
    const harness::Sweep sweep = harness::read_sweep(input, "f", 2000);
    if (sweep.points.empty()) return;
    const harness::SweepPoint& p = sweep.points.back();
    TW_CHECK(harness::sweep_point_from_json(ordered_json::parse(harness::to_json(p).dump())) == p,
             p.workload);
  });
  const ordered_json point = ordered_json::parse(input, nullptr, false);
  if (!point.is_discarded()) refusable([&] { harness::sweep_point_from_json(point); });
  const harness::Journal journal = harness::read_journal(input);
  TW_CHECK(journal.end <= input.size() && (journal.end == 0 || input[journal.end - 1] == '\n'), "");
  const harness::Journal again = harness::read_journal(input.substr(0, journal.end));
  TW_CHECK(again.end == journal.end && again.points == journal.points, "whole lines read back");
}

}  // namespace tilewright::fuzz
