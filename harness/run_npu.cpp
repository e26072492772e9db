#include "harness/run_npu.h"
#include "harness/micro_kernels.h"

#include <algorithm>
#include <chrono>

#include "harness/cuda_source.h"
#include "harness/registry.h"
#include "models/exact/exact.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

void add_source(ordered_json& json, const npu::Source& source) {
  json["micro_kernel"] = source.micro_kernel;
  json["kernels"] = ordered_json::array();
  for (const npu::KernelSource& k : source.kernels) {
    ordered_json kernel = {{"name", k.program.name},
                           {"blocks", k.program.blocks},
                           {"statements", k.statements},
                           {"instructions", k.instructions},
                           {"flags", k.flags}};
    kernel["tiles"] = ordered_json::array();
    for (const npu::TileUse& t : k.tiles)
      kernel["tiles"].push_back({{"tensor", t.tensor},
                                 {"level", t.level},
                                 {"layout", t.layout},
                                 {"type", t.type},
                                 {"copies", t.copies},
                                 {"bytes", t.bytes}});
    json["kernels"].push_back(std::move(kernel));
  }
  json["notes"] = source.notes;
}

/// Cycles of every pipe that did anything, of the core that has most to do with it.
ordered_json pipes_json(const npu::Report& r) {
  ordered_json pipes = ordered_json::array();
  for (int p = 0; p < npu::kPipes; ++p) {
    const npu::PipeTimes* most = nullptr;
    for (const auto& core : r.pipes)
      if (const npu::PipeTimes& t = core[static_cast<std::size_t>(p)];
          t.instructions > 0 && (most == nullptr || t.busy > most->busy))
        most = &t;
    if (most == nullptr) continue;
    ordered_json json = {{"pipe", npu::name_of(static_cast<npu::Pipe>(p))},
                         {"instructions", most->instructions},
                         {"busy_cycles", most->busy},
                         {"barrier_cycles", most->barrier},
                         {"unissued_cycles", most->empty},
                         {"idle_cycles", most->idle},
                         {"bandwidth_cycles", most->bandwidth},
                         {"bank_cycles", most->bank}};
    ordered_json flags = ordered_json::object();
    for (int q = 0; q < npu::kPipes; ++q)
      if (const std::int64_t n = most->flag[static_cast<std::size_t>(q)]; n > 0)
        flags[std::string(npu::name_of(static_cast<npu::Pipe>(q)))] = n;
    json["flag_cycles"] = std::move(flags);
    pipes.push_back(std::move(json));
  }
  return pipes;
}

ordered_json findings_json(const npu::Report& r, const std::string& kernel) {
  ordered_json findings = ordered_json::array();
  for (const npu::Finding& f : r.findings)
    findings.push_back({{"fault", npu::name_of(f.fault)},
                        {"kernel", kernel},
                        {"block", f.block},
                        {"statement", f.statement},
                        {"text", f.text},
                        {"count", f.count}});
  return findings;
}

void check_timeline(const std::string& path) {
  if (path.ends_with(".json") || path.ends_with(".svg")) return;
  throw InputError({.where = "--timeline",
                    .value = path,
                    .problem = "has no ending that says how to write it",
                    .accepted = "FILE.json or FILE.svg"});
}

/// A kernel's timeline in `path`, of several each in one of its own. Returns the files.
std::vector<std::string> write_timelines(const std::string& path, const npu::Source& source,
                                         const std::vector<npu::Report>& reports) {
  const std::size_t dot = path.rfind('.');
  const std::string ending = path.substr(dot);
  std::vector<std::string> files;
  for (std::size_t k = 0; k < reports.size(); ++k) {
    const npu::Program& program = source.kernels[k].program;
    files.push_back(reports.size() == 1 ? path
                                        : path.substr(0, dot) + "-" + program.name + ending);
    write_file(files.back(),
               ending == ".svg" ? npu::timeline_svg(reports[k], program)
                                : npu::trace_json(reports[k], program) + "\n",
               "--timeline");
  }
  return files;
}

}  // namespace

NpuJob npu_job(const Request& asked, const std::optional<std::string>& micro_kernel) {
  check_micro_kernel("npu", "", micro_kernel);
  Request request = asked;
  request.target = "npu";
  request.micro_kernel = micro_kernel;
  NpuJob job{.on = schedule_of(request)};
  name_workload(job.json, job.on.setting);
  job.json["machine"] = job.on.setting.machine->name;
  job.json["target"] = "npu";
  if (!job.on.schedule) {
    job.refusal = job.on.refusal;
    return job;
  }
  Result<npu::Source> source =
      npu::emit(*job.on.schedule, {.micro_kernel = micro_kernel.value_or("")});
  if (!source) {
    job.refusal = refuse(job.json, "target npu cannot emit this schedule: " + source.reason());
    return job;
  }
  add_source(job.json, *source);
  job.source = std::move(source).value();
  return job;
}

Answer emit_npu(const Request& request, const EmitOptions& options) {
  NpuJob job = npu_job(request, options.micro_kernel);
  if (job.refusal) return *job.refusal;
  make_folder(options.out, "-o");
  const std::string path = options.out + "/" + job.source->file_name;
  write_file(path, job.source->text, "-o");
  job.json["files"] = {path};
  return {std::move(job.json), Status::done};
}

void add_reports(ordered_json& json, const npu::Source& source,
                 const std::vector<npu::Report>& reports) {
  json["findings"] = ordered_json::array();
  std::int64_t cycles = 0, macs = 0;
  for (std::size_t k = 0; k < reports.size(); ++k) {
    const npu::Report& r = reports[k];
    ordered_json& kernel = json["kernels"][k];
    kernel["cores"] = r.cores;
    kernel["cycles"] = r.cycles.value;
    kernel["multiply_accumulates"] = r.useful_macs;
    kernel["cube_utilisation"] = r.cube_utilisation();
    kernel["pipes"] = pipes_json(r);
    cycles += r.cycles.value;
    macs += r.macs;
    for (ordered_json& f : findings_json(r, source.kernels[k].program.name))
      json["findings"].push_back(std::move(f));
  }
  json["faults"] = json["findings"].size();
  json["cycles"] = cycles;
  json["emulated_multiply_accumulates"] = macs;
}

Result<VerifiedNpu> verified_npu(NpuJob& job, const Request& request,
                                 const npu::EmulatorOptions& options) {
  const Workload& w = *job.on.setting.workload;
  auto made = std::make_unique<NpuKernel>(*job.source, w, *job.on.setting.machine, options);
  NpuKernel& kernel = *made;
  double seconds = 0;
  if (request.progress) request.progress("emulating", 0);
  const auto start = std::chrono::steady_clock::now();
  VerifyResult checked = verify(std::move(made), w, reference_of(job.on.setting, request.seed), [&] {
    add_reports(job.json, *job.source, kernel.reports());
    for (const npu::Report& r : kernel.reports()) seconds += r.seconds;
  }, &*job.on.schedule);
  job.json["emulation_seconds"] =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  job.json["seed"] = request.seed;
  add_json(job.json, checked.verification, w);
  if (checked.failure) return Reason{"the kernel failed: " + checked.failure->text};
  if (job.json["faults"] != 0)
    return Reason{"the program is faulty: " + job.json["findings"][0]["text"].get<std::string>()};
  if (!checked.kernel) return Reason{"verification failed: " + reason_of(checked.verification, w)};
  return VerifiedNpu{.kernel = std::move(checked.kernel), .running = &kernel, .seconds = seconds};
}

Answer run_npu(const Request& request, const RunOptions& options) {
  if (options.timeline) check_timeline(*options.timeline);
  NpuJob job = npu_job(request, options.micro_kernel);
  if (job.refusal) return *job.refusal;
  const Result<VerifiedNpu> run =
      verified_npu(job, request, {.timeline = options.timeline.has_value()});
  if (!run) return refuse(std::move(job.json), run.reason());
  if (options.timeline)
    job.json["files"] = write_timelines(*options.timeline, *job.source, run->running->reports());
  const Workload& w = *job.on.setting.workload;
  job.json["simulated_seconds"] = run->seconds;
  job.json["flops"] = w.flops();
  job.json["simulated_gflops"] = w.flops() / run->seconds * 1e-9;
  job.json["peak_gflops"] = nullptr;
  if (const auto peak = file_peak(*job.on.setting.machine, w.dtype())) {
    job.json["peak_gflops"] = peak->gflops;
    job.json["peak_source"] = peak->source;
  }
  return {std::move(job.json), Status::done};
}

Answer measure_npu(const Request& request, const MeasureOptions& options) {
  NpuJob job = npu_job(request, options.micro_kernel);
  job.json["meter"] = options.meter;
  if (job.refusal) return *job.refusal;
  const Result<VerifiedNpu> run = verified_npu(job, request, {});
  if (!run) return refuse(std::move(job.json), run.reason());
  const Schedule& schedule = *job.on.schedule;
  Traffic counted =
      emulated_traffic(run->running->reports(), *schedule.workload, *schedule.machine);
  counted.seconds = run->seconds;
  merge(job.json, to_json(counted));
  const Traffic predicted = exact(schedule);
  job.json["predicted"] = to_json(predicted);
  job.json["differences"] = ordered_json::array();
  for (const PathDifference& d : path_differences(predicted, counted))
    job.json["differences"].push_back({{"tensor", d.tensor},
                                       {"boundary", d.boundary},
                                       {"exact_bytes", d.exact.value},
                                       {"emulated_bytes", d.emulated.value}});
  return {std::move(job.json), Status::done};
}

}  // namespace tilewright::harness
