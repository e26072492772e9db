// What meters read: cachegrind's files, event tables and their formulas, pcm's tables, LIKWID's
// names, Nsight Compute's tables.
#include <cmath>
#include <string>

#include "profilers/cachegrind.h"
#include "profilers/event_table.h"
#include "profilers/likwid.h"
#include "profilers/ncu.h"
#include "profilers/pcm.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {

void one(std::string_view input) {
  using namespace profilers;
  (void)cachegrind_totals(input);
  (void)pcm_system_columns(input);
  (void)processor_id(input);
  (void)likwid_unit(input);
  (void)ncu_listed(input);
  if (const auto launches = ncu_launches(input))
    for (const NcuLaunch& l : *launches)
      for (const auto& [name, value] : l.metrics) TW_CHECK(std::isfinite(value), name);
  refusable([&] {
    const Formula f(input, "f");
    (void)f.value([](const std::string&) { return 1.0; });
    TW_CHECK(Formula(f.text(), "again").names() == f.names(), f.text());
  });
  refusable([&] {
    for (const BoundaryFormulas& b : event_table_from_yaml(input, "f").boundaries)
      for (const auto* f : {&b.read, &b.written})
        if (*f) (void)(*f)->value([](const std::string&) { return 2.0; });
  });
}

}  // namespace tilewright::fuzz
