#include "harness/micro_kernels.h"

#include <algorithm>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "codegen/micro_kernels.h"
#include "core/base/error.h"

namespace tilewright::harness {

void check_micro_kernel(std::string_view target, std::string_view variant,
                        const std::optional<std::string>& name) {
  if (!name) return;
  std::vector<std::string> names;
  for (const codegen::MicroKernelRecord& r : codegen::micro_kernel_records())
    if (r.target == target && r.variant == variant) names.emplace_back(r.name);
  if (std::ranges::find(names, *name) != names.end()) return;
  throw InputError(
      {.where = "--micro-kernel",
       .value = name->empty() ? "nothing" : *name,
       .problem = "is no micro-kernel for " + std::string(variant.empty() ? target : variant),
       .accepted = join(names)});
}

nlohmann::ordered_json micro_kernels_json(std::string_view target, bool usable) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  const std::string_view of = target == "cuda-emulated" ? "cuda" : target;
  for (const codegen::MicroKernelRecord& r : codegen::micro_kernel_records()) {
    if (r.target != of) continue;
    std::vector<std::string> types;
    for (DType t : r.types) types.emplace_back(name_of(t));
    const auto isa = cpu::isa_from_name(r.variant);
    all.push_back({{"name", r.name},
                   {"variant", r.variant.empty() ? nlohmann::ordered_json(nullptr)
                                                 : nlohmann::ordered_json(r.variant)},
                   {"types", types},
                   {"block", r.block},
                   {"operands", r.operands},
                   {"needs", r.needs.empty() ? nlohmann::ordered_json(nullptr)
                                             : nlohmann::ordered_json(r.needs)},
                   {"usable", usable && (!isa || cpu::host_runs(*isa))},
                   {"summary", r.summary}});
  }
  return all;
}

}  // namespace tilewright::harness
