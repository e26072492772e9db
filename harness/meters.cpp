#include "harness/meters.h"

#include <algorithm>
#include <cstdlib>

namespace tilewright::harness {

const profilers::MeterRecord& find_meter(std::string_view name, std::string_view option,
                                         std::string_view before) {
  std::vector<std::string> names;
  if (!before.empty()) names.emplace_back(before);
  for (const profilers::MeterRecord& m : profilers::meters()) {
    if (m.name == name) return m;
    names.emplace_back(m.name);
  }
  throw InputError(
      {.where = std::string(option),
       .value = name.empty() ? "an empty text" : std::string(name),
       .problem = before.empty() ? "is not a meter" : "is neither simulator nor a meter",
       .accepted = join(names)});
}

std::optional<Reason> absent(const profilers::MeterRecord& meter) {
  const Availability here = meter.here();
  if (here.usable) return std::nullopt;
  return Reason{"meter " + std::string(meter.name) + " is not available: " + here.reason +
                (here.help.empty() ? "" : "; try: " + here.help)};
}

bool measures(const profilers::MeterRecord& meter, const codegen::Target& target) {
  if (target.meters == nullptr) return false;
  const std::vector<std::string_view> names = target.meters();
  return std::ranges::find(names, meter.name) != names.end();
}

const codegen::Target& target_of(const profilers::MeterRecord& meter) {
  for (const codegen::Target* t : codegen::targets())
    if (measures(meter, *t)) return *t;
  TW_CHECK(false, "a meter that measures no target's kernels");
  std::abort();
}

}  // namespace tilewright::harness
