// Target cuda: built by nvcc or NVRTC, run by the driver.
#include "codegen/cuda/target.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "codegen/cuda/loaded.h"
#include "codegen/cuda/options.h"
#include "codegen/cuda/sequence.h"
#include "codegen/micro_kernels.h"
#include "core/base/format.h"

namespace tilewright::cuda {

using codegen::File;
using nlohmann::ordered_json;

Result<Source> source_of(const Schedule& schedule, const Settings& settings,
                         const std::string& architecture, bool own_form,
                         const LaunchBefore* before) {
  const auto micro_kernel = settings.find_text("micro-kernel");
  codegen::check_micro_kernel("cuda", "", micro_kernel);
  return emit(schedule, {.micro_kernel = micro_kernel.value_or(""),
                         .warps = static_cast<int>(settings.find_integer("warps").value_or(0)),
                         .stages = static_cast<int>(settings.find_integer("stages").value_or(0)),
                         .warpgroups = architecture == "sm_90a",
                         .prefix = settings.text("prefix"),
                         .own_form = own_form,
                         .before = before});
}

TargetNeeds needs_of(const Settings& settings, const std::string& architecture) {
  const bool hopper = architecture == "sm_90a" && !settings.find_text("micro-kernel");
  return {.capability = hopper ? 9.0 : 8.0};
}

namespace {

/// FNV-1a: tells texts apart, guards nothing.
std::string fnv64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return formatted("{:016x}", hash);
}

/// What the file is built for. Warpgroups and the TMA unit, which has maps, clusters and launches
/// that overlap are of sm_90a.
std::vector<std::string> architectures_of(const Source& source) {
  const bool anywhere = std::ranges::all_of(source.launches, [](const Launch& l) {
    return l.maps.empty() && !l.early && l.cluster == 1;
  });
  if (anywhere) return {"sm_80", "sm_90a"};
  return {"sm_90a"};
}

std::string build_script(const Source& source) {
  const bool anywhere = architectures_of(source).size() > 1;
  return "#!/bin/sh\n# Builds " + source.file_name + " into a cubin; ARCH is " +
         (anywhere ? "sm_90a or sm_80" : "sm_90a, whose instructions the file has") +
         ".\nset -e\ncd \"$(dirname \"$0\")\"\n"
         "ARCH=\"${ARCH:-sm_90a}\"\n"
         "exec \"${NVCC:-nvcc}\" -std=c++17 -O3 -lineinfo -gencode "
         "\"arch=compute_${ARCH#sm_},code=$ARCH\" -Xptxas -v -I . -cubin -o kernel.cubin " +
         source.file_name + "\n";
}

}  // namespace

ordered_json launches_json(const Source& source, const Binary* binary) {
  ordered_json launches = ordered_json::array();
  for (const Launch& l : source.launches) {
    launches.push_back({{"kernel", l.symbol},
                        {"blocks", l.blocks},
                        {"threads", l.threads},
                        {"shared_bytes", l.shared_bytes},
                        {"cooperative", l.cooperative}});
    if (l.early) launches.back()["early"] = true;
    if (l.cluster > 1) launches.back()["cluster"] = l.cluster;
    if (binary == nullptr) continue;
    const auto built = std::ranges::find(binary->kernels, l.symbol, &KernelFigures::symbol);
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

ordered_json CudaEmitted::launches_of(const Binary* binary) const {
  ordered_json json = launches_json(source_, binary);
  for (std::size_t i = 0; i < json.size(); ++i) {
    json[i]["tensors"] = ordered_json::array();
    for (TensorId t : source_.launches[i].tensors)
      json[i]["tensors"].push_back(workload_->tensor(t).name);
    json[i]["workspace"] = source_.launches[i].workspace;
    if (source_.launches[i].workspace)
      json[i]["workspace_offset"] = source_.launches[i].workspace_offset;
    for (const lowering::BoxMap& m : source_.launches[i].maps) {
      const auto first = [&](const lowering::BoxMap::Sizes& sizes, std::size_t from) {
        return std::span(sizes).subspan(from, static_cast<std::size_t>(m.rank) - from);
      };
      json[i]["maps"].push_back({{"tensor", workload_->tensor(m.tensor).name},
                                 {"type", name_of(m.type)},
                                 {"extents", first(m.extent, 0)},
                                 {"stride_bytes", first(m.stride, 1)},
                                 {"box", first(m.box, 0)},
                                 {"steps", first(m.steps, 0)}});
    }
  }
  return json;
}

void CudaEmitted::describe(ordered_json& json) const {
  json["source_fnv64"] = fnv64(source_.text);
  json["micro_kernel"] = source_.micro_kernel;
  json["tiles"] = ordered_json::array();
  for (const TileUse& t : source_.tiles)
    json["tiles"].push_back({{"tensor", t.tensor},
                             {"level", t.level},
                             {"place", t.place},
                             {"stages", t.stages},
                             {"shared_bytes", t.bytes},
                             {"reason", t.reason}});
  json["workspace_bytes"] = source_.workspace_bytes;
  json["notes"] = source_.notes;
  json["launches"] = launches_of(nullptr);
  json["tensor_elements"] = ordered_json::object();
  for (std::size_t t = 0; t < source_.needed.size(); ++t)
    if (const Tensor& tensor = workload_->tensor(TensorId(t)); source_.needed[t])
      json["tensor_elements"][tensor.name] = tensor.elements().value;
}

std::vector<File> CudaEmitted::files() const {
  std::vector<File> files = {{source_.file_name, source_.text}};
  for (const DeviceHeader& h : device_headers())
    files.push_back({std::string(h.name), std::string(h.text)});
  files.push_back({"build.sh", build_script(source_)});
  return files;
}

void CudaEmitted::describe_files(ordered_json& json) const {
  json["build"] = source_.build_command_text;
}

std::vector<codegen::NamedLaunch> CudaEmitted::launches() const {
  std::vector<codegen::NamedLaunch> launches;
  for (const Launch& l : source_.launches) launches.push_back({l.symbol, l.blocks});
  return launches;
}

namespace {

std::string unavailable(const std::string& reason) {
  return "target cuda is not available: " + reason;
}

class OnDevice final : public CudaEmitted {
 public:
  OnDevice(Source source, std::shared_ptr<const Workload> workload, const Settings& settings,
           std::optional<Binary> binary = {})
      : CudaEmitted(std::move(source), std::move(workload)),
        arch_(settings.find_text("arch")),
        cache_(settings.find_text("cache")),
        cold_(settings.flag("cold")),
        launch_(settings.find_text("launch").value_or("graph") == "stream" ? LaunchBy::stream
                                                                           : LaunchBy::graph),
        binary_(std::move(binary)) {}

  /// What ptxas says for the architectures; of one that does not build, why.
  void describe_files(ordered_json& json) const override {
    CudaEmitted::describe_files(json);
    json["builds"] = ordered_json::array();
    std::vector<std::string> architectures = architectures_of(source());
    if (arch_) architectures = {*arch_};
    for (const std::string& arch : architectures) {
      ordered_json& one = json["builds"].emplace_back(ordered_json{{"architecture", arch}});
      const Result<Binary> binary = cuda::build(source(), build_options(arch));
      if (!binary) {
        one["reason"] = binary.reason();
        continue;
      }
      one["builder"] = binary->builder;
      one["launches"] = launches_json(source(), &*binary);
    }
  }
  std::optional<Reason> cannot_run() const override {
    const Result<DeviceInfo> here = cuda::Device::describe();
    if (here) return std::nullopt;
    return Reason{unavailable(here.reason())};
  }
  std::optional<Reason> build(bool for_device, ordered_json& json) override {
    std::string arch = arch_.value_or("sm_90a");
    if (!arch_ && for_device)
      if (const auto device = cuda::Device::describe())
        arch = architecture_of(device->major, device->minor);
    Result<Binary> binary = cuda::build(source(), build_options(arch));
    if (!binary) return Reason{binary.reason()};
    binary_ = std::move(binary).value();
    json["architecture"] = binary_->architecture;
    json["builder"] = binary_->builder;
    json["build_seconds"] = binary_->seconds;
    json["launches"] = launches_of(&*binary_);
    if (!binary_->file.empty()) json["cubin"] = binary_->file.string();
    return std::nullopt;
  }
  std::int64_t code_bytes() const override {
    return binary_ ? cuda::code_bytes(binary_->cubin) : 0;
  }
  Result<std::unique_ptr<codegen::TargetKernel>> load(
      const std::shared_ptr<codegen::Device>& opened, ordered_json& json) override {
    const auto& device = dynamic_cast<const OpenDevice&>(*opened).device();
    std::vector<std::int64_t> bytes;
    for (const Tensor& t : workload().tensors()) bytes.push_back(t.bytes().value);
    const int copies = cold_ ? copies_past_l2(device->info(), bytes, source().needed) : 1;
    Result<Kernel> loaded = Kernel::load(device, source(), *binary_, bytes, copies);
    if (!loaded) return Reason{loaded.reason()};
    for (std::size_t i = 0; i < source().launches.size(); ++i) {
      json["launches"][i]["blocks_a_multiprocessor"] = loaded->resident_blocks()[i];
      json["launches"][i]["local_bytes"] = loaded->figures()[i].local_bytes;
    }
    return std::unique_ptr<codegen::TargetKernel>(
        std::make_unique<LoadedKernel>(std::move(loaded).value(), launch_));
  }

 private:
  BuildOptions build_options(const std::string& arch) const {
    return {.architecture = arch, .cache = cache_.value_or("")};
  }
  std::optional<std::string> arch_, cache_;
  bool cold_;
  LaunchBy launch_;
  std::optional<Binary> binary_;
};

void make_cache(const Settings& settings) {
  const auto cache = settings.find_text("cache");
  if (!cache) return;
  std::error_code error;
  if (!cache->empty()) std::filesystem::create_directories(*cache, error);
  if (cache->empty() || error || !std::filesystem::is_directory(*cache))
    settings.refuse("cache", "cannot be made" + (error ? ": " + error.message() : std::string()),
                    "a folder that can be written");
}

/// The one asked for, or the device's; empty: neither is there.
std::string known_architecture(const Settings& settings) {
  if (const auto arch = settings.find_text("arch")) {
    check_architecture(*arch);
    return *arch;
  }
  const auto device = cuda::Device::describe();
  return device ? architecture_of(device->major, device->minor) : "";
}

/// Of the machine that plans are for; empty: its file does not say.
std::string architecture_for(const Machine& machine) {
  const double capability = machine.units.empty() ? 0 : machine.units.front().capability;
  if (capability == 0) return "";
  const int tenths = static_cast<int>(std::lround(10 * capability));
  return architecture_of(tenths / 10, tenths % 10);
}

/// Where no architecture is known, plans are for the machine's own instructions, and so is the
/// text.
TargetNeeds needs(DType, const Settings& settings) {
  const std::string architecture = known_architecture(settings);
  if (architecture.empty() && !settings.find_text("micro-kernel")) return {};
  return needs_of(settings, architecture);
}

/// The one that a schedule's text is for.
std::string architecture_for(const Schedule& schedule, const Settings& settings) {
  const std::string known = known_architecture(settings);
  return known.empty() ? architecture_for(*schedule.machine) : known;
}

Result<std::unique_ptr<codegen::Emitted>> emit_for(const Schedule& schedule,
                                                   const Settings& settings,
                                                   const LaunchBefore* before) {
  make_cache(settings);
  Result<Source> source =
      source_of(schedule, settings, architecture_for(schedule, settings), false, before);
  if (!source) return source.why();
  return std::unique_ptr<codegen::Emitted>(
      std::make_unique<OnDevice>(std::move(source).value(), schedule.workload, settings));
}

Result<std::unique_ptr<codegen::Emitted>> emit_alone(const Schedule& schedule,
                                                     const Settings& settings, int) {
  return emit_for(schedule, settings, nullptr);
}

Result<std::unique_ptr<codegen::Emitted>> emit_behind(const Schedule& schedule,
                                                      const Settings& settings,
                                                      const LaunchBefore& before) {
  return emit_for(schedule, settings, &before);
}

std::optional<Reason> refuses(const Schedule& schedule, const Settings& settings, int) {
  const auto source = source_of(schedule, settings, architecture_for(schedule, settings), true);
  return source ? std::nullopt : std::optional(source.why());
}

Result<std::shared_ptr<codegen::Device>> open() {
  Result<std::shared_ptr<Device>> device = Device::open();
  if (!device) return Reason{unavailable(device.reason())};
  return std::shared_ptr<codegen::Device>(std::make_shared<OpenDevice>(std::move(device).value()));
}

Availability here() {
  const std::filesystem::path nvcc = find_nvcc();
  const Result<std::string> nvrtc = nvrtc_version();
  const std::string builder = !nvcc.empty() ? nvcc.string() : nvrtc ? *nvrtc : "";
  const Result<DeviceInfo> device = Device::describe();
  if (!device)
    return {.reason =
                device.reason() +
                (builder.empty() ? "; nothing to build with either: no nvcc, and " + nvrtc.reason()
                                 : "; it can be emitted and built (" + builder + ")")};
  if (builder.empty()) return {.reason = "nothing to build with: no nvcc, and " + nvrtc.reason()};
  return {.usable = true,
          .detail = formatted("{}, driver for CUDA {}, {}", device->name,
                              version_text(device->driver_version), builder)};
}

}  // namespace

std::shared_ptr<codegen::Emitted> with_binary(Source source, Binary binary,
                                              std::shared_ptr<const Workload> workload,
                                              const Settings& settings) {
  return std::make_shared<OnDevice>(std::move(source), std::move(workload), settings,
                                    std::move(binary));
}

}  // namespace tilewright::cuda

namespace tilewright::codegen {

const Target kCuda = {
    .name = "cuda",
    .summary = "CUDA for NVIDIA GPUs, built with nvcc or NVRTC, run through the driver",
    .here = cuda::here,
    .options = cuda::option_specs,
    .micro_kernels = "cuda",
    .clock = Clock::measured,
    .emit = cuda::emit_alone,
    .emit_behind = cuda::emit_behind,
    .refuses = cuda::refuses,
    .sequence = cuda::device_sequence,
    .needs = cuda::needs,
    .open = cuda::open,
    .meters = [] { return std::vector<std::string_view>{"ncu"}; },
    .plans_of = "gpu",
};

}  // namespace tilewright::codegen
