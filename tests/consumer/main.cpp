// What a user of the library writes: a workload, the plan that Chimera's model makes of it for a
// scratchpad, and what that plan truly moves.
#include <cstdio>
#include <memory>

#include "core/machine/machine.h"
#include "core/plan/schedule.h"
#include "core/workload/text.h"
#include "models/chimera/chimera.h"
#include "models/exact/exact.h"

int main() {
  using namespace tilewright;
  const auto workload = std::make_shared<const Workload>(workload_from_yaml(R"(
loops: {m: 512, n: 64, k: 64, l: 512}
operators:
  - gemm1: C[m,l] += A[m,k] * B[k,l]
  - gemm2: E[m,n] += C[m,l] * D[l,n]
)",
                                                                            "main.cpp"));
  const auto machine = std::make_shared<const Machine>(named_machine("scratchpad:64K"));
  const LevelId level = machine->default_level();

  const auto best = chimera::best_plan(*workload, *machine, level, {});
  if (!best) return std::printf("no plan: %s\n", best.reason().c_str()), 1;
  const auto schedule = resolve(best->plan, workload, machine);
  if (!schedule) return std::printf("illegal: %s\n", schedule.reason().c_str()), 1;

  Bytes moved;
  const Traffic traffic = exact(*schedule);
  for (const TrafficEntry& row : traffic.entries) moved += row.read + row.written;
  std::printf("tree %s\n", to_text(best->plan.kernels[0].tree).c_str());
  std::printf("moves %lld bytes of at least %lld\n", static_cast<long long>(moved.value),
              static_cast<long long>(workload->compulsory_bytes().value));
}
