#include "harness/run_cuda.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/format.h"
#include "harness/cuda_kernel.h"
#include "harness/statistics.h"
#include "harness/stitch_request.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr double kSeconds = 0.25;  // of timing, where --seconds says nothing

std::vector<std::int64_t> bytes_of_tensors(const Workload& w) {
  std::vector<std::int64_t> bytes;
  for (const Tensor& t : w.tensors()) bytes.push_back(t.bytes().value);
  return bytes;
}

void add_timing(CudaJob& job, const CudaTiming& timing, int copies) {
  const Workload& w = job.on.setting.as_named();
  const double seconds = median(timing.seconds);
  ordered_json& json = job.json;
  json["seconds_median"] = seconds;
  json["seconds_min"] = *std::min_element(timing.seconds.begin(), timing.seconds.end());
  json["batches"] = timing.seconds.size();
  json["runs_a_batch"] = timing.runs_a_graph * timing.graphs_a_batch;
  json["runs"] = timing.seconds.size() * json["runs_a_batch"].get<std::size_t>();
  json["timed_by"] = formatted("events around {} launches of a CUDA graph of {} runs",
                               timing.graphs_a_batch, timing.runs_a_graph);
  json["l2"] = copies > 1 ? formatted("cold: {} sets of tensors in turn", copies)
                          : std::string("warm: every run on the same tensors");
  json["flops"] = w.flops();
  json["gflops"] = w.flops() / seconds * 1e-9;
  json["peak_gflops"] = nullptr;
  if (const auto peak = file_peak(*job.on.setting.machine, w.dtype())) {
    json["peak_gflops"] = peak->gflops;
    json["peak_source"] = peak->source;
  }
}

cuda::BuildOptions build_options(const std::string& architecture, const CudaOptions& options) {
  if (options.cache) make_folder(*options.cache, "--cache");
  return {.architecture = architecture, .cache = options.cache.value_or("")};
}

/// The launches, and what each is given in order: what another program that loads the cubin must
/// know.
ordered_json launches_of(const CudaJob& job) {
  ordered_json json = launches_json(*job.source, job.binary ? &*job.binary : nullptr);
  for (std::size_t i = 0; i < json.size(); ++i) {
    const cuda::Launch& launch = job.source->launches[i];
    json[i]["tensors"] = ordered_json::array();
    for (TensorId t : launch.tensors)
      json[i]["tensors"].push_back(job.on.setting.workload->tensor(t).name);
    json[i]["workspace"] = launch.workspace;
  }
  return json;
}

std::string build_script(const cuda::Source& source) {
  return "#!/bin/sh\n# Builds " + source.file_name +
         " into a cubin; ARCH is sm_90a or sm_80.\nset -e\ncd \"$(dirname \"$0\")\"\n"
         "ARCH=\"${ARCH:-sm_90a}\"\n"
         "exec \"${NVCC:-nvcc}\" -std=c++17 -O3 -lineinfo -gencode "
         "\"arch=compute_${ARCH#sm_},code=$ARCH\" -Xptxas -v -I . -cubin -o kernel.cubin " +
         source.file_name + "\n";
}

/// What ptxas says for the architectures; of one that does not build, why.
ordered_json figures_json(const cuda::Source& source, const CudaOptions& options) {
  ordered_json builds = ordered_json::array();
  std::vector<std::string> architectures = {"sm_80", "sm_90a"};
  if (options.arch) architectures = {*options.arch};
  for (const std::string& arch : architectures) {
    builds.push_back({{"architecture", arch}});
    const Result<cuda::Binary> binary = cuda::build(source, build_options(arch, options));
    if (!binary) {
      builds.back()["reason"] = binary.reason();
      continue;
    }
    builds.back()["builder"] = binary->builder;
    builds.back()["launches"] = launches_json(source, &*binary);
  }
  return builds;
}

/// Writes the kernel that the emitter has refused ("stitch2: ...") without units, where a model
/// that stitches has made the plan; false, with nothing changed, where it is not one, was written
/// so before, or has the schedule that was asked for: another one in its place would say nothing of
/// it.
bool without_units(CudaJob& job, const std::string& reason, std::set<std::string>& kernels) {
  const std::string name = reason.substr(0, reason.find(':'));
  const auto is_it = [&name](const Kernel& k) { return k.name == name; };
  if (!job.request.model || plan_in_place(job.request, job.on.setting) ||
      std::ranges::none_of(job.on.plan.kernels, is_it) || !kernels.insert(name).second)
    return false;
  if (stitch_settings(job.request).given("schedule-rank")) return false;
  const auto stitcher = stitcher_of(find_model(*job.request.model).name);
  if (!stitcher) return false;
  Result<Plan> plan = without_units(job.request, setting_of(job.request), *stitcher, kernels);
  if (!plan) return false;
  Result<Schedule> schedule = resolve(*plan, job.on.setting.workload, job.on.setting.machine);
  if (!schedule) return false;
  job.on.plan = std::move(plan).value();
  job.on.schedule = std::move(schedule).value();
  job.json["without_units"].push_back({{"kernel", name}, {"reason", reason}});
  return true;
}

}  // namespace

void add_verification(CudaJob& job, const VerifyResult& checked) {
  job.json["seed"] = job.request.seed;
  add_json(job.json, checked.verification, *job.on.setting.workload);
  if (checked.failure)
    job.refuse_with("the kernel failed: " + checked.failure->text);
  else if (!checked.kernel)
    job.refuse_with("verification failed: " +
                    reason_of(checked.verification, *job.on.setting.workload) +
                    "; the kernel is not timed");
}

void emit_job(CudaJob& job) {
  job.request.target = job.options.target;
  job.request.micro_kernel = job.options.micro_kernel;
  job.on = schedule_of(job.request);
  name_workload(job.json, job.on.setting);
  job.json["machine"] = job.on.setting.machine->name;
  job.json["target"] = job.options.target;
  if (!job.on.schedule) {
    merge(job.json, job.on.refusal.json);
    return job.refuse_with(job.on.refusal.json.value("reason", "no schedule"));
  }
  Result<cuda::Source> source = cuda_source_of(job.on, job.options.micro_kernel, job.options.cuda);
  std::set<std::string> refused;
  while (!source && without_units(job, source.reason(), refused))
    source = cuda_source_of(job.on, job.options.micro_kernel, job.options.cuda);
  if (!source)
    return job.refuse_with("target " + job.options.target +
                           " cannot emit this schedule: " + source.reason());
  job.source = std::move(source).value();
  const Workload& w = *job.on.setting.workload;
  add_source(job.json, *job.source);
  if (job.json.contains("without_units"))
    for (const ordered_json& k : job.json["without_units"])
      job.json["notes"].push_back(
          formatted("{} is planned without units, and is slower than the model says: {}",
                    k["kernel"].get<std::string>(), k["reason"].get<std::string>()));
  job.json["launches"] = launches_of(job);
  job.json["workspace_bytes"] = job.source->workspace_bytes;
  job.json["tensor_elements"] = ordered_json::object();
  for (std::size_t t = 0; t < job.source->needed.size(); ++t)
    if (const Tensor& tensor = w.tensor(TensorId(t)); job.source->needed[t])
      job.json["tensor_elements"][tensor.name] = tensor.elements().value;
}

void build_job(CudaJob& job, const cuda::DeviceInfo* device) {
  if (job.refusal) return;
  const CudaOptions& options = job.options.cuda;
  const std::string arch = options.arch ? *options.arch
                           : device     ? cuda::architecture_of(device->major, device->minor)
                                        : "sm_90a";
  Result<cuda::Binary> binary = cuda::build(*job.source, build_options(arch, options));
  if (!binary) return job.refuse_with("the kernel cannot be built: " + binary.reason());
  job.binary = std::move(binary).value();
  job.json["architecture"] = job.binary->architecture;
  job.json["builder"] = job.binary->builder;
  job.json["build_seconds"] = job.binary->seconds;
  job.json["launches"] = launches_of(job);
  if (!job.binary->file.empty()) job.json["cubin"] = job.binary->file.string();
}

void run_job(CudaJob& job, const std::shared_ptr<cuda::Device>& device,
             const Reference& reference) {
  if (job.refusal) return;
  const Workload& w = *job.on.setting.workload;
  job.json["device"] = device_json(device->info());
  job.json["reference_seconds"] = reference.seconds;
  const std::vector<std::int64_t> bytes = bytes_of_tensors(w);
  const int copies =
      job.options.cuda.cold ? copies_past_l2(device->info(), bytes, job.source->needed) : 1;
  Result<cuda::Kernel> loaded = cuda::Kernel::load(device, *job.source, *job.binary, bytes, copies);
  if (!loaded) return job.refuse_with("the kernel does not run here: " + loaded.reason());
  for (std::size_t i = 0; i < job.source->launches.size(); ++i) {
    job.json["launches"][i]["blocks_a_multiprocessor"] = loaded->resident_blocks()[i];
    job.json["launches"][i]["local_bytes"] = loaded->figures()[i].local_bytes;
  }
  const VerifyResult checked =
      verify(std::make_unique<CudaKernel>(std::move(loaded).value()), w, reference, {},
             job.on.schedule ? &*job.on.schedule : nullptr);
  add_verification(job, checked);
  if (!checked.kernel) return;
  auto& kernel = static_cast<CudaKernel&>(checked.kernel->kernel()).kernel();
  if (job.options.cuda.count) {
    if (const auto why = kernel.run_profiled())
      job.refuse_with("the kernel failed while it was counted: " + why->text);
    return;
  }
  const Result<CudaTiming> timing = time(kernel, job.options.seconds.value_or(kSeconds));
  if (!timing) return job.refuse_with("the kernel failed while it was timed: " + timing.reason());
  add_timing(job, *timing, copies);
}

Answer run_cuda(const Request& request, const RunOptions& options) {
  CudaJob job{.request = request, .options = options};
  emit_job(job);
  const bool emulated = options.target == "cuda-emulated";
  if (job.refusal) return job.answer();
  std::optional<cuda::DeviceInfo> info;
  if (!emulated && !options.cuda.build_only) {
    const Result<cuda::DeviceInfo> here = cuda::Device::describe();
    if (!here) job.refuse_with("target cuda is not available: " + here.reason());
    if (here) info = *here;
  }
  if (request.progress) request.progress("building", 0);
  if (!emulated) build_job(job, info ? &*info : nullptr);
  if (job.refusal || options.cuda.build_only) return job.answer();
  if (request.progress) request.progress("verifying", 0);
  const Reference reference = reference_of(job.on.setting, request.seed);
  if (emulated) {
    emulate_job(job, reference);
    return job.answer();
  }
  const Result<std::shared_ptr<cuda::Device>> device = cuda::Device::open();
  if (device)
    run_job(job, *device, reference);
  else
    job.refuse_with("target cuda is not available: " + device.reason());
  return job.answer();
}

Answer emit_cuda(const Request& request, const EmitOptions& options) {
  CudaJob job{
      .request = request,
      .options = {
          .target = options.target, .micro_kernel = options.micro_kernel, .cuda = options.cuda}};
  emit_job(job);
  if (job.refusal) return job.answer();
  make_folder(options.out, "-o");
  job.json["files"] = ordered_json::array();
  const auto write = [&](std::string_view name, std::string_view text) {
    const std::string path = options.out + "/" + std::string(name);
    write_file(path, text, "-o");
    job.json["files"].push_back(path);
  };
  write(job.source->file_name, job.source->text);
  for (const cuda::DeviceHeader& header : cuda::device_headers()) write(header.name, header.text);
  if (options.target == "cuda-emulated")
    for (const auto& [name, text] : emulated_headers()) write(name, text);
  write("build.sh", build_script(*job.source));
  job.json["build"] = job.source->build_command_text;
  if (options.target == "cuda") job.json["builds"] = figures_json(*job.source, options.cuda);
  return job.answer();
}

Availability cuda_here() {
  const std::filesystem::path nvcc = cuda::find_nvcc();
  const Result<std::string> nvrtc = cuda::nvrtc_version();
  const std::string builder = !nvcc.empty() ? nvcc.string() : nvrtc ? *nvrtc : "";
  const Result<cuda::DeviceInfo> device = cuda::Device::describe();
  if (!device)
    return {.reason =
                device.reason() +
                (builder.empty() ? "; nothing to build with either: no nvcc, and " + nvrtc.reason()
                                 : "; it can be emitted and built (" + builder + ")")};
  if (builder.empty()) return {.reason = "nothing to build with: no nvcc, and " + nvrtc.reason()};
  return {.usable = true,
          .detail = formatted("{}, driver for CUDA {}, {}", device->name,
                              cuda::version_text(device->driver_version), builder)};
}

}  // namespace tilewright::harness
