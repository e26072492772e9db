// Workload, machine and plan files.
#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {

namespace {

/// A workload is rewritten into one that prints and reads back, or there is a reason; never bad input.
void rewrite(const Workload& w) {
  if (w.operators().size() > 32) return;  // what few operators do, many do not do otherwise
  for (const Rewrite& r : rewrites()) {
    if (r.function == nullptr) continue;
    try {
      const Result<Workload> made = r.function(w);
      if (made) TW_CHECK(workload_from_yaml(to_yaml(*made), "made") == *made, to_yaml(*made));
    } catch (const InputError& e) {
      TW_CHECK(false, r.name + " of " + to_yaml(w) + ": " + e.what());
    }
  }
}

}  // namespace

void one(std::string_view input) {
  refusable([&] {
    const Workload w = workload_from_yaml(input, "f");
    use(w);
    TW_CHECK(workload_from_yaml(to_yaml(w), "again") == w, to_yaml(w));
    rewrite(w);
  });
  refusable([&] {
    const Machine m = machine_from_yaml(input, "f");
    TW_CHECK(machine_from_yaml(to_yaml(m), "again") == m, to_yaml(m));
  });
  refusable([&] {
    const PlanFile p = plan_file_from_yaml(input, "f");
    const PlanFile again = plan_file_from_yaml(to_yaml(p), "again");
    TW_CHECK(again.plan == p.plan && again.workload == p.workload && again.rewrites == p.rewrites,
             to_yaml(p));
  });
}

}  // namespace tilewright::fuzz
