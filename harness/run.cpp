// emit and run: a schedule to source, to a verified kernel, to seconds.
#include <algorithm>
#include <chrono>

#include "codegen/cpu/cpu.h"
#include "harness/meters.h"
#include "harness/micro_kernels.h"
#include "harness/registry.h"
#include "harness/run_cuda.h"
#include "harness/run_npu.h"
#include "harness/schedules.h"
#include "harness/statistics.h"
#include "harness/verbs.h"
#include "harness/verified_kernel.h"
#include "models/exact/exact.h"

namespace tilewright::harness {
namespace {

std::optional<cpu::Isa> named_isa(const std::optional<std::string>& name) {
  return name ? std::optional(isa_named(*name)) : std::nullopt;
}

/// The source of a schedule for the processor; bad input where an option names what is not there.
Result<cpu::Source> source_of(const Scheduled& on, cpu::Isa isa,
                              const std::optional<std::string>& micro_kernel, bool prefetch,
                              int threads) {
  check_micro_kernel("cpu", cpu::name_of(cpu::micro_kernel_for(isa, "")->isa), micro_kernel);
  return cpu::emit(*on.schedule, {.isa = isa,
                                  .threads = threads,
                                  .micro_kernel = micro_kernel.value_or(""),
                                  .prefetch = prefetch});
}

/// Which tiles are packed, and what that costs: every byte that a packed tile is loaded or written
/// with is copied once more.
nlohmann::ordered_json packing_json(const Scheduled& on, const cpu::Source& source) {
  nlohmann::ordered_json json = {{"tiles", nlohmann::ordered_json::array()}};
  for (const cpu::TileUse& t : source.tiles)
    json["tiles"].push_back(
        {{"tensor", t.tensor}, {"level", t.level}, {"packed", t.packed}, {"reason", t.reason}});
  json["copied_bytes"] = nullptr;
  if (on.schedule->kernels.size() != 1) return json;
  const Result<Alone> alone =
      alone_at(on.setting, on.plan, on.schedule->kernels.front().level);
  if (!alone) return json;
  Bytes copied;
  for (const TrafficEntry& e : alone->exact.entries)
    for (const cpu::TileUse& t : source.tiles)
      if (t.packed && t.tensor == e.tensor) copied += e.read + e.written;
  json["copied_bytes"] = copied.value;
  return json;
}

nlohmann::ordered_json head(const Scheduled& on, const std::string& target) {
  auto json = document();
  name_workload(json, on.setting);
  json["machine"] = on.setting.machine->name;
  json["target"] = target;
  return json;
}

bool is_cuda(const std::string& target) { return target == "cuda" || target == "cuda-emulated"; }

std::string build_script(const cpu::Source& source) {
  std::string flags;
  for (const std::string& f : source.flags) flags += " " + f;
  return "#!/bin/sh\n# Builds " + source.file_name +
         " into a shared object with a C interface (see the top of the source).\nset -e\ncd \"$(dirname \"$0\")\"\n"
         "exec \"${CXX:-c++}\"" + flags + " -o kernel.so " + source.file_name + "\n";
}

constexpr double kSeconds = 2;  // of timing, where --seconds says nothing

struct Timing {
  std::vector<double> seconds;
  std::vector<double> peak;  ///< GFLOP/s
};

/// Kernel and peak turn by turn, so that what else the machine does falls on both alike.
Timing time(VerifiedKernel& kernel, cpu::Isa isa, double budget, const Progress& progress) {
  constexpr int kLeast = 5, kMost = 200;
  constexpr double kPeakSeconds = 0.03;
  const int threads = kernel.source().threads;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Timing timing;
  for (int round = 0; round < kMost && (round < kLeast || elapsed() < budget); ++round) {
    timing.peak.push_back(cpu::fma_peak_gflops(isa, threads, kPeakSeconds));
    // Short kernels several times a turn, so that the turn is about as long as the peak's.
    double turn = 0;
    do {
      timing.seconds.push_back(kernel.run());
      turn += timing.seconds.back();
    } while (turn < kPeakSeconds);
    if (progress) progress("timing", std::min(1.0, elapsed() / budget));
    // A kernel that takes seconds is timed less often: convention 1 bounds the whole verb.
    if (round + 1 >= 3 && elapsed() > 4 * budget) break;
  }
  return timing;
}

/// The request with the plan, where a model makes it, suited to the target.
Request suited(Request request, const std::string& target, const std::optional<std::string>& isa,
               const std::optional<std::string>& micro_kernel) {
  if (!request.target) request.target = target;
  request.isa = isa;
  request.micro_kernel = micro_kernel;
  return request;
}

}  // namespace

Answer emit(const Request& request, const EmitOptions& options) {
  if (options.out.empty())
    throw InputError({.where = "-o",
                      .value = "nothing",
                      .problem = "names no folder",
                      .accepted = "the folder to write the source into"});
  find_target(options.target);
  if (is_cuda(options.target)) return emit_cuda(request, options);
  if (options.target == "npu") return emit_npu(request, options);
  const auto named = named_isa(options.isa);
  Scheduled on = schedule_for_threads(suited(request, options.target, options.isa, options.micro_kernel));
  if (!on.schedule) return on.refusal;
  const cpu::Isa isa = named.value_or(cpu::host_isa(on.setting.workload->dtype()));
  const Result<cpu::Source> source =
      source_of(on, isa, options.micro_kernel, options.prefetch, request.threads.value_or(1));
  auto json = head(on, options.target);
  if (!source) return refuse(std::move(json), "target cpu cannot emit this schedule: " + source.reason());
  make_folder(options.out, "-o");
  write_file(options.out + "/" + source->file_name, source->text, "-o");
  write_file(options.out + "/build.sh", build_script(*source), "-o");
  json["isa"] = cpu::name_of(source->isa);
  json["micro_kernel"] = source->micro_kernel;
  json["threads"] = source->threads;
  json["files"] = {options.out + "/" + source->file_name, options.out + "/build.sh"};
  json["build"] = source->build_command_text;
  json["flags"] = source->flags;
  json["prefetch"] = options.prefetch;
  json["packing"] = packing_json(on, *source);
  json["symbols"] = {source->prefix + "_workspace", source->prefix + "_run"};
  json["notes"] = source->notes;
  return {std::move(json), Status::done};
}

Answer run(const Request& request, const RunOptions& options) {
  find_target(options.target);
  if (options.timeline && options.target != "npu")
    throw InputError({.where = "--timeline",
                      .value = *options.timeline,
                      .problem = "is of the emulated NPU",
                      .accepted = "--target npu"});
  if (is_cuda(options.target)) return run_cuda(request, options);
  if (options.target == "npu") return run_npu(request, options);
  const auto named = named_isa(options.isa);
  Scheduled on = schedule_for_threads(suited(request, options.target, options.isa, options.micro_kernel));
  if (!on.schedule) return on.refusal;
  const cpu::Isa isa = named.value_or(cpu::host_isa(on.setting.workload->dtype()));
  auto json = head(on, options.target);
  json["isa"] = cpu::name_of(isa);
  if (!cpu::host_runs(isa))
    return refuse(std::move(json),
                  "this processor does not run " + std::string(cpu::name_of(isa)));
  const double flops = on.setting.as_named().flops();
  const Result<cpu::Source> source =
      source_of(on, isa, options.micro_kernel, options.prefetch, request.threads.value_or(1));
  if (!source) return refuse(std::move(json), "target cpu cannot emit this schedule: " + source.reason());
  if (request.progress) request.progress("building", 0);
  Result<cpu::Kernel> kernel = cpu::build(*source);
  if (!kernel) return refuse(std::move(json), "the kernel cannot be built: " + kernel.reason());

  if (request.progress) request.progress("verifying", 0);
  VerifyResult checked = verify(std::move(kernel).value(), on.setting, request.seed, &*on.schedule);
  json["seed"] = request.seed;
  add_json(json, checked.verification, *on.setting.workload);
  if (!checked.kernel)
    return refuse(std::move(json), "verification failed: " +
                                       reason_of(checked.verification, *on.setting.workload) +
                                       "; the kernel is not timed");

  const Timing timing = time(*checked.kernel, isa, options.seconds.value_or(kSeconds), request.progress);
  const double seconds = median(timing.seconds);
  json["seconds_median"] = seconds;
  json["seconds_min"] = *std::min_element(timing.seconds.begin(), timing.seconds.end());
  json["runs"] = timing.seconds.size();
  json["flops"] = flops;
  json["gflops"] = flops / seconds * 1e-9;
  json["peak_gflops"] = median(timing.peak);
  json["peak_source"] = "measured: fused multiply-adds in the same run";
  json["threads"] = source->threads;
  json["micro_kernel"] = source->micro_kernel;
  json["prefetch"] = options.prefetch;
  json["packing"] = packing_json(on, *source);
  json["notes"] = source->notes;
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
