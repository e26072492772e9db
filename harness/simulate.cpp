// simulate: what a plan moves, by a walk over its access stream.
#include "harness/files.h"
#include "harness/schedules.h"
#include "harness/simulate_json.h"
#include "harness/verbs.h"
#include "simulator/gpu/gpu.h"
#include "simulator/simulator.h"

namespace tilewright::harness {

namespace {

std::vector<std::string> tensor_names(const Workload& w) {
  std::vector<std::string> names;
  for (const Tensor& t : w.tensors()) names.push_back(t.name);
  return names;
}

/// What asks for the walk of blocks one after the other, on a GPU too: those that follow each
/// touch.
bool asks_for_walk(const WalkOptions& o) {
  return o.cores || o.curve || o.csv || o.attribute || o.occupancy || o.stride || o.save_trace ||
         o.computes;
}

/// The first of the options for blocks side by side that is given.
std::optional<std::pair<const char*, std::string>> gpu_option(const WalkOptions& o) {
  if (o.schedule) return std::pair("--schedule", *o.schedule);
  if (o.blocks_per_sm) return std::pair("--blocks-per-sm", std::to_string(*o.blocks_per_sm));
  if (o.partitions) return std::pair("--partitions", std::to_string(*o.partitions));
  if (o.jitter) return std::pair("--jitter", std::to_string(*o.jitter));
  if (o.sample_waves) return std::pair("--sample-waves", std::to_string(*o.sample_waves));
  return std::nullopt;
}

gpu::Options gpu_options(const Request& request, const WalkOptions& options) {
  gpu::Options how{.blocks_per_sm = options.blocks_per_sm,
                   .partitions = options.partitions.value_or(1),
                   .seed = request.seed,
                   .threads = request.threads ? threads_of(request) : 1,
                   .sample_waves = options.sample_waves.value_or(0),
                   .walk_all = !options.skip};
  if (request.layout) how.layout = layout_of(request);
  if (options.jitter) how.jitter = *options.jitter;
  if (!options.schedule) return how;
  const auto order = gpu::block_order_from_name(*options.schedule);
  if (!order)
    throw InputError({.where = "--schedule",
                      .value = options.schedule->empty() ? "an empty text" : *options.schedule,
                      .problem = "is not a way to run blocks",
                      .accepted = "timed, lockstep, serial"});
  how.order = *order;
  return how;
}

/// Blocks side by side on the SMs of a GPU.
Answer simulate_side_by_side(nlohmann::ordered_json json, const Scheduled& on,
                             const Request& request, const WalkOptions& options) {
  const gpu::Options how = gpu_options(request, options);
  if (request.progress) request.progress("simulating", 0);
  const gpu::Simulated result = gpu::simulate_blocks(*on.schedule, how);
  merge(json, to_json(result.traffic));
  json["layout"] = name_of(how.layout);
  json["packing_bytes"] = AddressMap(*on.schedule, how.layout).packing_bytes().value;
  json["seed"] = how.seed;
  json["gpu"] = gpu_json(result, how);
  return {std::move(json), Status::done};
}

}  // namespace

Answer simulate(const Request& request, const WalkOptions& options) {
  if (options.trace) return simulate_trace(request, options);
  const Layout layout = layout_of(request);
  Scheduled on = schedule_of(request);
  if (!on.schedule) return on.refusal;
  const Schedule& schedule = *on.schedule;

  auto json = document();
  name_workload(json, on.setting);
  json["legal"] = true;
  if (const auto why = misfit(schedule)) {
    json["machine"] = on.setting.machine->name;
    json["fits"] = false;
    json["memory"] = memory_json(memory_use(schedule));
    return refuse(std::move(json), why->text);
  }
  json["fits"] = true;
  const Machine& machine = *on.setting.machine;
  const bool side_by_side = gpu::simulates(machine) && !asks_for_walk(options);
  if (const auto asked = gpu_option(options); asked && !side_by_side)
    throw InputError({.where = asked->first,
                      .value = asked->second,
                      .problem = "is for blocks that run side by side on a GPU",
                      .accepted =
                          "a GPU with an L2, such as h200, without --cores, --curve, --csv, "
                          "--attribute, --occupancy, --save-trace, --computes"});
  if (side_by_side) return simulate_side_by_side(std::move(json), on, request, options);
  const std::vector<std::string> tensors = tensor_names(*schedule.workload);
  SimulateOptions how{.layout = layout,
                      .cores = options.cores.value_or(1),
                      .seed = request.seed,
                      .attribute = options.attribute,
                      .skip = options.skip,
                      .threads = request.threads && !options.computes ? threads_of(request) : 1,
                      .contents = options.computes.has_value(),
                      .most_computes = options.computes.value_or(0)};
  const bool curve = options.curve || options.csv;
  std::optional<CachesOf> caches;  // that anything beside the traffic is of
  for (const auto& [asked, option] :
       {std::pair(curve, "--curve"), std::pair(options.attribute, "--attribute"),
        std::pair(options.cores.value_or(1) != 1, "--cores"),
        std::pair(options.occupancy.has_value(), "--occupancy"),
        std::pair(options.save_trace.has_value(), "--save-trace")})
    if (asked) caches = caches_of(machine, option);
  std::optional<Curves> curves;
  if (curve) {
    curves.emplace(caches->levels.front(), static_cast<int>(tensors.size()));
    how.distances = {&curves->associative(), &curves->sets()};
  }
  std::optional<OutputFile> file;
  std::optional<TraceWriter> trace;
  if (options.save_trace) {
    file.emplace(*options.save_trace, "--save-trace");
    how.trace = &trace.emplace(file->stream(), tensors);
  }
  std::optional<OccupancyFile> occupancy;
  if (options.stride && !options.occupancy)
    throw InputError({.where = "--stride",
                      .value = std::to_string(*options.stride),
                      .problem = "needs --occupancy, whose samples it spaces",
                      .accepted = "--stride N beside --occupancy FILE"});
  if (options.occupancy) {
    occupancy.emplace(*options.occupancy, options.stride);
    how.occupancy = &occupancy->samples();
  }
  if (request.progress) how.progress = [&](double done) { request.progress("simulating", done); };
  const Simulated result = simulate_in_detail(schedule, how);
  if (trace) {
    trace->finish();
    file->finish();
  }
  if (options.csv) write_file(*options.csv, curves->csv(tensors), "--csv");

  if (occupancy) occupancy->write(on.setting.workload_name, machine.name, caches->levels, tensors);

  merge(json, to_json(result.traffic));
  json["layout"] = name_of(layout);
  json["packing_bytes"] = AddressMap(schedule, layout).packing_bytes().value;
  if (auto more = behaviour_json(result.caches); !more.empty()) json["behaviour"] = std::move(more);
  json["skipped"] = skipped_json(result.skipped);
  if (how.threads != 1) {
    json["threads"] = result.threads;
    if (!result.why_serial.empty()) json["why_serial"] = result.why_serial;
  }
  if (options.computes) json["stop"] = stop_json(result, schedule);
  if (occupancy) json["occupancy"] = occupancy->summary();
  if (options.cores.value_or(1) != 1) json["cores"] = *options.cores;
  if (options.attribute) json["attribution"] = blame_json(result.blame, result.loops, tensors);
  if (machine.level(machine.home()).rows.row_bytes != 0) json["dram"] = dram_json(result.dram);
  if (options.curve) json["curve"] = curves->json(tensors);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
