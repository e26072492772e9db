#include "harness/meters.h"

namespace tilewright::harness {

const profilers::MeterRecord& find_meter(std::string_view name, std::string_view option,
                                         std::string_view before) {
  std::vector<std::string> names;
  if (!before.empty()) names.emplace_back(before);
  for (const profilers::MeterRecord& m : profilers::meters()) {
    if (m.name == name) return m;
    names.emplace_back(m.name);
  }
  throw InputError({.where = std::string(option),
                    .value = name.empty() ? "nothing" : std::string(name),
                    .problem = before.empty() ? "is no meter" : "is no truth",
                    .accepted = join(names)});
}

std::optional<Reason> absent(const profilers::MeterRecord& meter) {
  const Availability here = meter.here();
  if (here.usable) return std::nullopt;
  return Reason{"meter " + std::string(meter.name) + " is not available: " + here.reason +
                (here.help.empty() ? "" : "; try: " + here.help)};
}

cpu::Isa isa_named(const std::string& name) {
  if (const auto isa = cpu::isa_from_name(name)) return *isa;
  throw InputError({.where = "--isa",
                    .value = name.empty() ? "nothing" : name,
                    .problem = "is no instruction set",
                    .accepted = "avx512_bf16, avx512, avx2, generic"});
}

}  // namespace tilewright::harness
