#include "harness/cuda_source.h"

#include <algorithm>

#include "core/base/format.h"
#include "harness/micro_kernels.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

Result<cuda::Source> cuda_source_of(const Scheduled& on,
                                    const std::optional<std::string>& micro_kernel,
                                    const CudaOptions& options) {
  check_micro_kernel("cuda", "", micro_kernel);
  return cuda::emit(*on.schedule, {.micro_kernel = micro_kernel.value_or(""),
                                   .warps = options.warps.value_or(0),
                                   .stages = options.stages.value_or(0),
                                   .prefix = options.prefix.value_or("tilewright")});
}

namespace {

/// FNV-1a: tells texts apart, guards nothing.
std::string fnv64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return formatted("{:016x}", hash);
}

}  // namespace

void add_source(ordered_json& json, const cuda::Source& source) {
  json["source_fnv64"] = fnv64(source.text);
  json["micro_kernel"] = source.micro_kernel;
  json["tiles"] = ordered_json::array();
  for (const cuda::TileUse& t : source.tiles)
    json["tiles"].push_back({{"tensor", t.tensor},
                             {"level", t.level},
                             {"place", t.place},
                             {"stages", t.stages},
                             {"shared_bytes", t.bytes},
                             {"reason", t.reason}});
  json["workspace_bytes"] = source.workspace_bytes;
  json["notes"] = source.notes;
}

ordered_json launches_json(const cuda::Source& source, const cuda::Binary* binary) {
  ordered_json launches = ordered_json::array();
  for (const cuda::Launch& l : source.launches) {
    launches.push_back({{"kernel", l.symbol},
                        {"blocks", l.blocks},
                        {"threads", l.threads},
                        {"shared_bytes", l.shared_bytes},
                        {"cooperative", l.cooperative}});
    if (binary == nullptr) continue;
    const auto built =
        std::find_if(binary->kernels.begin(), binary->kernels.end(),
                     [&l](const cuda::KernelFigures& k) { return k.symbol == l.symbol; });
    if (built == binary->kernels.end()) continue;
    ordered_json& json = launches.back();
    json["registers"] = built->registers;
    json["stack_bytes"] = built->stack_bytes;
    json["spill_store_bytes"] = built->spill_store_bytes;
    json["spill_load_bytes"] = built->spill_load_bytes;
    json["static_shared_bytes"] = built->static_shared_bytes;
    json["barriers"] = built->barriers;
  }
  return launches;
}

ordered_json device_json(const cuda::DeviceInfo& info) {
  return {{"name", info.name},
          {"driver_version", cuda::version_text(info.driver_version)},
          {"compute_capability", std::to_string(info.major) + "." + std::to_string(info.minor)},
          {"multiprocessors", info.multiprocessors},
          {"l2_bytes", info.l2_bytes},
          {"memory_bytes", info.memory_bytes}};
}

std::optional<FilePeak> file_peak(const Machine& machine, DType type) {
  const std::string name(name_of(type));
  for (const ComputeUnit& unit : machine.units) {
    const auto peak = unit.peak.find(name);
    if (peak == unit.peak.end()) continue;
    const auto source = unit.sources.find("peak." + name);
    return FilePeak{peak->second.value * 1e-9,
                    "machine file " + machine.name +
                        (source == unit.sources.end() ? "" : ": " + source->second)};
  }
  return std::nullopt;
}

}  // namespace tilewright::harness
