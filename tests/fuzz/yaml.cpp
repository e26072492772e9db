// Workload, machine and plan files.
#include "core/ir/files.h"
#include "core/ir/machine.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {

void one(std::string_view input) {
  refusable([&] {
    const Workload w = workload_from_yaml(input, "f");
    use(w);
    TW_CHECK(workload_from_yaml(to_yaml(w), "again") == w, to_yaml(w));
  });
  refusable([&] {
    const Machine m = machine_from_yaml(input, "f");
    TW_CHECK(machine_from_yaml(to_yaml(m), "again") == m, to_yaml(m));
  });
  refusable([&] {
    const PlanFile p = plan_file_from_yaml(input, "f");
    const PlanFile again = plan_file_from_yaml(to_yaml(p), "again");
    TW_CHECK(again.plan == p.plan && again.workload == p.workload, to_yaml(p));
  });
}

}  // namespace tilewright::fuzz
