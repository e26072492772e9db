// measure --target cuda: many plans in one process of Nsight Compute, each beside what models say.
#include "harness/measure_cuda.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "core/base/format.h"
#include "core/base/toolchain.h"
#include "core/workload/reference/touched.h"
#include "harness/meters.h"
#include "harness/parallel.h"
#include "harness/run_cuda.h"
#include "models/exact/exact.h"
#include "profilers/ncu.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using profilers::CacheControl;
using profilers::NcuLaunch;

/// This program, or where it only carries the library (Python), the command on the PATH.
Result<std::string> own_command() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error && self.filename() == "tilewright") return self.string();
  const std::filesystem::path found = find_program("tilewright");
  if (!found.empty()) return found.string();
  return Reason{"ncu starts the command tilewright, and there is none on the PATH"};
}

// ---- What models say of a plan ------------------------------------------------------------------

/// What crosses from the boundary's outer level into any inner one: a kernel may fill shared memory and
/// registers from it.
ordered_json totals_json(const Traffic& t, const std::string& boundary) {
  const std::string outer = boundary.substr(0, boundary.find('/') + 1);
  std::int64_t read = 0, written = 0;
  for (const TrafficEntry& e : t.entries)
    if (e.boundary.starts_with(outer)) read += e.read.value, written += e.written.value;
  return {{"read_bytes", read}, {"written_bytes", written}};
}

/// Bytes, time, or why the model does not price this plan.
ordered_json model_json(const char* name, const CudaJob& job, const char* edges) {
  Request request = job.request;
  request.tree.reset(), request.tiles.reset(), request.order.reset();
  request.pins.clear(), request.flags.clear();
  request.options.erase("expression");
  request.model = name, request.options["edges"] = {edges};
  Setting setting = job.on.setting;
  setting.file = PlanFile{.workload = *setting.workload,
                          .workload_name = setting.workload_name,
                          .machine = request.machine,
                          .model = {},
                          .plan = job.on.plan};
  const Answer answer = find_model(name).price(request, setting);
  if (!answer.ok()) return {{"reason", answer.json.value("reason", std::string())}};
  std::int64_t read = 0, written = 0;
  for (const ordered_json& e : answer.json["traffic"]) {
    read += e["read_bytes"].get<std::int64_t>();
    written += e["written_bytes"].get<std::int64_t>();
  }
  ordered_json json = {{"read_bytes", read}, {"written_bytes", written}};
  if (answer.json.contains("seconds")) json["seconds"] = answer.json["seconds"];
  return json;
}

/// What kernels must read and write at least where caches are emptied before each: inputs once, outputs
/// once. Of a gather the sectors that it touches, its indices being those that the kernel is verified
/// and counted with.
class Compulsory {
 public:
  Compulsory(const Schedule& s, std::uint64_t seed) : s_(s), w_(*s.workload), seed_(seed) {}

  /// Every kernel's, and what is zeroed before it.
  ordered_json each_kernel_once() {
    std::int64_t read = 0, written = 0;
    for (const ScheduledKernel& k : s_.kernels) {
      read += read_by(k.ops);
      const auto here = [&k](OpId op) { return std::ranges::find(k.ops, op) != k.ops.end(); };
      for (OpId op : k.ops)
        for (const Output& output : w_.op(op).outputs) {
          const TensorId t = output.target.tensor;
          const bool wanted = w_.is_output(t) || !std::ranges::all_of(w_.consumers(t), here);
          // Of kernels that compute the same, one writes it.
          const bool leaves = std::ranges::any_of(k.buffers, [t](const Buffer& b) {
            return b.tensor == t && (b.role == BufferRole::output || b.leaves);
          });
          if (wanted && leaves) written += w_.tensor(t).bytes().value;
        }
      for (TensorId t : k.zeroed) written += w_.tensor(t).bytes().value;
    }
    return {{"read_bytes", read}, {"written_bytes", written}};
  }

  /// Of the workload as one kernel.
  std::int64_t read() { return read_by(w_.topological_order()); }
  std::int64_t written() const {
    std::int64_t bytes = 0;
    for (TensorId t : w_.outputs()) bytes += w_.tensor(t).bytes().value;
    return bytes;
  }

 private:
  /// Of what operators elsewhere, or none, have made.
  std::int64_t read_by(std::span<const OpId> ops) {
    std::optional<TouchedSectors> gathered;
    std::map<std::size_t, std::int64_t> reads;
    for (OpId id : ops) {
      const Operator& op = w_.op(id);
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const TensorId t = op.inputs[i].tensor;
        const OpId producer = w_.producer(t);
        if (producer.valid() && std::ranges::find(ops, producer) != ops.end()) continue;
        if (is_gather(op.inputs[i])) {
          if (!gathered) gathered.emplace(w_, indices(), sector());
          gathered->add(id, static_cast<int>(i));
          reads.try_emplace(t.index(), 0);
        } else {
          reads[t.index()] += w_.operations(id).value * size_of(w_.tensor(t).dtype);
        }
      }
    }
    std::int64_t bytes = 0;
    for (const auto& [t, direct] : reads) {
      const std::int64_t looked_up = gathered ? gathered->of(TensorId(t)).value : 0;
      bytes += std::min(w_.tensor(TensorId(t)).bytes().value, direct + looked_up);
    }
    return bytes;
  }

  const TensorValues& indices() {
    if (!indices_) indices_ = gather_indices(w_, seed_);
    return *indices_;
  }
  /// In which the level next to memory is filled.
  std::int64_t sector() const {
    const Machine& m = *s_.machine;
    return m.levels.size() > 1 ? m.levels[1].sector.value : 1;
  }

  const Schedule& s_;
  const Workload& w_;
  std::uint64_t seed_;
  std::optional<TensorValues> indices_;
};

}  // namespace

void add_predictions(CudaJob& job) {
  if (job.refusal) return;
  const Schedule& s = *job.on.schedule;
  const Machine& m = *s.machine;
  const std::string boundary = boundary_into(m, s.kernels.front().level);
  ordered_json& json = job.json["predicted"] = {{"boundary", boundary}};
  const Traffic traffic = exact(s);
  if (const auto why = traffic.unavailable.find(boundary); why != traffic.unavailable.end())
    json["exact"] = {{"reason", why->second}};
  else
    json["exact"] = totals_json(traffic, boundary);
  Compulsory compulsory(s, job.request.seed);
  json["compulsory_read_bytes"] = compulsory.read();
  json["compulsory_bytes"] = compulsory.read() + compulsory.written();
  json["each_kernel_once"] = compulsory.each_kernel_once();
  json["kernels"] = s.kernels.size();
  json["chimera"] = model_json("chimera", job, "exact");
  json["chimera_full_edges"] = model_json("chimera", job, "full");
  json["mcfuser"] = model_json("mcfuser", job, "full");
}

namespace {

// ---- The child ----------------------------------------------------------------------------------

/// What the child needs of one job: its plan, and how it was emitted, so that it finds what was
/// built.
ordered_json child_line(const CudaJob& job, std::size_t index,
                        const std::filesystem::path& folder) {
  std::optional<std::string> machine = job.request.machine;
  if (job.request.machine_text) {
    machine = (folder / formatted("machine{}.yaml", index)).string();
    write_file(*machine, *job.request.machine_text, "--machine");
  }
  const std::string plan = (folder / formatted("plan{}.yaml", index)).string();
  write_file(plan,
             to_yaml(PlanFile{.workload = job.on.setting.as_named(),
                              .workload_name = job.on.setting.workload_name,
                              .machine = machine,
                              .model = {},
                              .plan = job.on.plan,
                              .rewrites = job.on.setting.rewrites}),
             "--batch");
  ordered_json line = {
      {"name", job.json["name"]}, {"plan", plan}, {"prefix", *job.options.cuda.prefix}};
  if (job.options.micro_kernel) line["micro_kernel"] = *job.options.micro_kernel;
  if (job.options.cuda.warps) line["warps"] = *job.options.cuda.warps;
  if (job.options.cuda.stages) line["stages"] = *job.options.cuda.stages;
  return line;
}

std::vector<std::string> symbols_of(const CudaJob& job) {
  std::vector<std::string> symbols;
  for (const cuda::Launch& l : job.source->launches) symbols.push_back(l.symbol);
  return symbols;
}

ordered_json counters_json(std::span<const NcuLaunch> launches) {
  ordered_json json = ordered_json::array();
  for (const NcuLaunch& l : launches) {
    ordered_json one = {{"kernel", l.kernel}, {"blocks", l.blocks}};
    for (const auto& [metric, value] : l.metrics) one[metric] = value;
    if (!l.missing.empty()) one["missing"] = l.missing;
    json.push_back(std::move(one));
  }
  return json;
}

/// The launches of a job, into its document. A Reason where they are not those that were emitted.
std::optional<Reason> add_counts(CudaJob& job, CacheControl control,
                                 std::span<const NcuLaunch> all) {
  const std::vector<std::string> symbols = symbols_of(job);
  const auto own = profilers::ncu_launches_of(all, symbols);
  if (!own) return Reason{own.reason()};
  for (std::size_t i = 0; i < own->size(); ++i)
    if ((*own)[i].blocks != 0 && (*own)[i].blocks != job.source->launches[i].blocks)
      return Reason{formatted("ncu has counted {} blocks of {}, and it has {}", (*own)[i].blocks,
                              symbols[i], job.source->launches[i].blocks)};
  const Traffic traffic = profilers::ncu_traffic(*own, *job.on.setting.machine);
  ordered_json& json = job.json["counted"][std::string(name_of(control))];
  json = to_json(traffic);
  json["launches"] = counters_json(*own);
  json["metrics"] = ordered_json::object();  // of one run: summed over its launches
  for (const NcuLaunch& l : *own)
    for (const auto& [metric, value] : l.metrics)
      json["metrics"][metric] = json["metrics"].value(metric, 0.0) + value;
  return std::nullopt;
}

/// A batch on its way through ncu.
class Counting {
 public:
  Counting(std::vector<CudaJob>& jobs, const Request& request, const CudaOptions& cuda)
      : jobs_(jobs), request_(request), cuda_(cuda) {}

  /// Builds nothing: what the child needs was built before. A Reason where nothing can be counted.
  std::optional<Reason> run() {
    if (folder_.path().empty()) return Reason{"no temporary directory"};
    const auto self = own_command();
    if (!self) return Reason{self.reason()};
    ncu_ = profilers::find_ncu();
    auto metrics = profilers::ncu_available(ncu_);
    if (!metrics) return Reason{metrics.reason()};
    metrics_ = std::move(metrics).value();
    std::string lines;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].refusal) continue;
      lines += child_line(jobs_[i], i, folder_.path()).dump() + "\n";
      asked_.push_back(i);
    }
    if (asked_.empty()) return Reason{"none of the plans can be built"};
    write_file(file("lines"), lines, "--batch");
    child_ = {*self,
              "run",
              "--target",
              "cuda",
              "--batch",
              file("lines"),
              "--count",
              "--cache",
              *cuda_.cache,
              "--threads",
              std::to_string(threads_of(request_)),
              "--seed",
              std::to_string(request_.seed),
              "-o",
              file("answers"),
              "--json"};
    if (cuda_.arch) child_.insert(child_.end(), {"--arch", *cuda_.arch});
    count(CacheControl::all);
    if (!cuda_.cold_only) count(CacheControl::none);
    return std::nullopt;
  }
  const profilers::NcuMetrics& metrics() const { return metrics_; }
  std::string command(CacheControl control) const {
    return join(profilers::ncu_command(ncu_, metrics_, control, "LOG", child_), " ");
  }

 private:
  std::string file(const char* name) const { return (folder_.path() / name).string(); }

  void count(CacheControl control) {
    if (request_.progress) request_.progress("counting", control == CacheControl::all ? 0 : 0.5);
    write_file(file("answers"), "", "-o");
    const auto all = profilers::ncu_count(ncu_, metrics_, control, child_);
    std::istringstream answers(text_of(file("answers")));
    for (const std::size_t i : asked_) {
      CudaJob& job = jobs_[i];
      std::string text;
      std::getline(answers, text);
      const ordered_json answer = ordered_json::parse(text, nullptr, false);
      if (answer.is_object())
        for (const char* key :
             {"verified", "relative_error", "tolerance", "reference_seconds", "device", "architecture"})
          if (answer.contains(key)) job.json[key] = answer[key];
      std::optional<Reason> why;
      if (answer.is_object() && answer.contains("reason"))
        why = Reason{answer["reason"].get<std::string>()};
      else if (!all)
        why = Reason{all.reason()};
      else
        why = add_counts(job, control, *all);
      if (why) job.refusal = why->text;
    }
  }

  std::vector<CudaJob>& jobs_;
  const Request& request_;
  CudaOptions cuda_;
  TemporaryDirectory folder_;
  std::filesystem::path ncu_;
  profilers::NcuMetrics metrics_;
  std::vector<std::size_t> asked_;
  std::vector<std::string> child_;
};

}  // namespace

Counted count_cuda(std::vector<CudaJob>& jobs, const Request& request, CudaOptions cuda) {
  const TemporaryDirectory folder;
  if (!cuda.cache) cuda.cache = (folder.path() / "cubins").string();
  make_folder(*cuda.cache, "--cache");
  std::optional<cuda::DeviceInfo> info;
  if (const auto here = cuda::Device::describe()) info = *here;
  parallel_for(
      jobs.size(), threads_of(request),
      [&](std::size_t i) {
        CudaJob& job = jobs[i];
        job.options.cuda.cache = cuda.cache;
        if (!job.options.cuda.prefix) job.options.cuda.prefix = "p" + std::to_string(i);
        guarded(job, emit_job);
        guarded(job, add_predictions);
        guarded(job, [&](CudaJob& j) { build_job(j, info ? &*info : nullptr); });
      },
      request.progress, "building");
  Counted counted;
  if (cuda.build_only) return counted;
  const profilers::MeterRecord& meter = find_meter("ncu", "--meter");
  if (const auto why = absent(meter)) return {.refusal = why->text};
  if (!info)
    return {.refusal = "target cuda is not available: " + cuda::Device::describe().reason()};
  Counting counting(jobs, request, cuda);
  if (const auto why = counting.run()) return {.refusal = why->text};
  counted.metrics_refused = counting.metrics().refused;
  counted.command = counting.command(CacheControl::all);
  return counted;
}

namespace {

Answer one_answer(const Request& request, const MeasureOptions& options) {
  std::vector<CudaJob> jobs = {
      {.request = request,
       .options = {.target = "cuda", .micro_kernel = options.micro_kernel, .cuda = options.cuda}}};
  jobs.front().request.progress = {};
  emit_job(jobs.front());  // bad input is thrown here, and not made an outcome
  jobs.front().json["meter"] = options.meter;
  jobs.front().json["name"] = jobs.front().on.setting.workload_name;
  if (jobs.front().refusal) return jobs.front().answer();
  const Counted counted = count_cuda(jobs, request, options.cuda);
  CudaJob& job = jobs.front();
  if (!job.refusal && counted.refusal) job.refusal = counted.refusal;
  if (!job.refusal && job.json.contains("counted")) {
    merge(job.json, job.json["counted"]["all"]);
    job.json["notes"].push_back(
        "the traffic is that of cache control all: caches are flushed before each kernel");
    job.json["command"] = counted.command;
  }
  return job.answer();
}

}  // namespace

Answer measure_cuda(const Request& request, const MeasureOptions& options) {
  return one_answer(request, options);
}

Answer measure_batch(const Request& request, const MeasureOptions& options,
                     const std::string& batch, const std::optional<std::string>& out) {
  if (options.target != "cuda" || options.meter != "ncu")
    throw InputError(
        {.where = "--batch",
         .value = batch,
         .problem = "is for another target or meter than " + options.target + ", " + options.meter,
         .accepted = "--target cuda --meter ncu"});
  CudaJob shared{
      .request = request,
      .options = {.target = "cuda", .micro_kernel = options.micro_kernel, .cuda = options.cuda}};
  shared.request.progress = {};
  std::vector<CudaJob> jobs = batch_jobs(batch, shared);
  auto json = document();
  json["target"] = options.target;
  json["meter"] = options.meter;
  const Counted counted = count_cuda(jobs, request, options.cuda);
  json["command"] = counted.command;
  json["metrics_refused"] = counted.metrics_refused;
  json["results"] = ordered_json::array();
  bool any = false;
  std::string lines;
  for (const CudaJob& job : jobs) {
    json["results"].push_back(job.answer().json);
    lines +=
        json["results"].back().dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    any = any || !job.refusal;
  }
  if (out) write_file(*out, lines, "-o");
  if (counted.refusal) return refuse(std::move(json), *counted.refusal);
  if (!any) return refuse(std::move(json), "none of the batch succeeded: " + *jobs.front().refusal);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
