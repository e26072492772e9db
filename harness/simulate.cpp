// simulate: what a plan moves, by a walk over its access stream.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "harness/schedules.h"
#include "harness/simulate_json.h"
#include "harness/verbs.h"
#include "simulator/simulator.h"

namespace tilewright::harness {

namespace {

std::vector<std::string> tensor_names(const Workload& w) {
  std::vector<std::string> names;
  for (const Tensor& t : w.tensors()) names.push_back(t.name);
  return names;
}

/// A trace on its way: a file beside the one asked for, which it becomes when it is whole.
class TraceFile {
 public:
  TraceFile(std::string path, const std::vector<std::string>& tensors)
      : path_(std::move(path)),
        part_(path_ + ".part" + std::to_string(::getpid())),
        out_(part_, std::ios::binary | std::ios::trunc) {
    if (!out_) fail();
    writer_.emplace(out_, tensors);
  }
  ~TraceFile() {
    std::error_code ignored;
    if (!part_.empty()) std::filesystem::remove(part_, ignored);
  }
  TraceWriter& writer() { return *writer_; }
  void finish() {
    writer_->finish();
    out_.close();
    std::error_code error;
    std::filesystem::rename(part_, path_, error);
    if (!out_ || error) fail();
    part_.clear();
  }

 private:
  [[noreturn]] void fail() const {
    throw InputError({.where = "--save-trace",
                      .value = path_.empty() ? "an empty name" : path_,
                      .problem = "cannot be written",
                      .accepted = "a file in a folder that can be written"});
  }
  std::string path_, part_;
  std::ofstream out_;
  std::optional<TraceWriter> writer_;
};

}  // namespace

Answer simulate(const Request& request, const WalkOptions& options) {
  if (options.trace) return simulate_trace(request, options);
  const Layout layout = layout_of(request);
  Scheduled on = schedule_of(request);
  if (!on.schedule) return on.refusal;
  const Schedule& schedule = *on.schedule;

  auto json = document();
  json["workload"] = on.setting.workload_name;
  json["legal"] = true;
  if (const auto why = misfit(schedule)) {
    json["machine"] = on.setting.machine->name;
    json["fits"] = false;
    json["memory"] = memory_json(memory_use(schedule));
    return refuse(std::move(json), why->text);
  }
  json["fits"] = true;
  const Machine& machine = *on.setting.machine;
  const std::vector<std::string> tensors = tensor_names(*schedule.workload);
  SimulateOptions how{.layout = layout,
                      .cores = options.cores,
                      .seed = request.seed,
                      .attribute = options.attribute,
                      .skip = options.skip,
                      .threads = request.threads ? threads_of(request) : 1};
  const bool curve = options.curve || options.csv;
  std::optional<CachesOf> caches;  // that anything beside the traffic is of
  for (const auto& [asked, option] :
       {std::pair(curve, "--curve"), std::pair(options.attribute, "--attribute"),
        std::pair(options.cores != 1, "--cores"),
        std::pair(options.occupancy.has_value(), "--occupancy"),
        std::pair(options.save_trace.has_value(), "--save-trace")})
    if (asked) caches = caches_of(machine, option);
  std::optional<Curves> curves;
  if (curve) {
    curves.emplace(caches->levels.front(), static_cast<int>(tensors.size()));
    how.distances = {&curves->associative(), &curves->sets()};
  }
  std::optional<TraceFile> file;
  if (options.save_trace) {
    file.emplace(*options.save_trace, tensors);
    how.trace = &file->writer();
  }
  std::optional<OccupancyFile> occupancy;
  if (options.stride && !options.occupancy)
    throw InputError({.where = "--stride",
                      .value = std::to_string(*options.stride),
                      .problem = "is of samples that are not asked for",
                      .accepted = "--stride N beside --occupancy FILE"});
  if (options.occupancy) {
    occupancy.emplace(*options.occupancy, options.stride);
    how.occupancy = &occupancy->samples();
  }
  if (request.progress) request.progress("simulating", 0);
  const Simulated result = simulate_in_detail(schedule, how);
  if (file) file->finish();
  if (options.csv) write_file(*options.csv, curves->csv(tensors), "--csv");

  if (occupancy)
    occupancy->write(on.setting.workload_name, machine.name, caches->levels, tensors);

  merge(json, to_json(result.traffic));
  json["layout"] = name_of(layout);
  json["packing_bytes"] = AddressMap(schedule, layout).packing_bytes().value;
  if (auto more = behaviour_json(result.caches); !more.empty()) json["behaviour"] = std::move(more);
  json["skipped"] = skipped_json(result.skipped);
  if (how.threads != 1) {
    json["threads"] = result.threads;
    if (!result.why_serial.empty()) json["why_serial"] = result.why_serial;
  }
  if (occupancy) json["occupancy"] = occupancy->summary();
  if (options.cores != 1) json["cores"] = options.cores;
  if (options.attribute) json["attribution"] = blame_json(result.blame, result.loops, tensors);
  if (machine.level(machine.home()).rows.row_bytes != 0) json["dram"] = dram_json(result.dram);
  if (options.curve) json["curve"] = curves->json(tensors);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
