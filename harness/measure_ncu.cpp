// measure --meter ncu: many plans in one process of Nsight Compute, each beside what models say.
#include "harness/measure_ncu.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "core/base/format.h"
#include "core/base/toolchain.h"
#include "core/lowering/gpu/box_bytes.h"
#include "core/workload/reference/touched.h"
#include "harness/ask.h"
#include "harness/meters.h"
#include "harness/parallel.h"
#include "harness/pipeline.h"
#include "models/exact/exact.h"
#include "profilers/ncu.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using profilers::CacheControl;
using profilers::NcuLaunch;

bool is_command = false;

/// This program, or where it only carries the library (Python), the command on the PATH.
Result<std::string> own_command() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error && is_command) return self.string();
  const std::filesystem::path found = find_program("tilewright");
  if (!found.empty()) return found.string();
  return Reason{"ncu starts the command tilewright, and there is none on the PATH"};
}

// ---- What models say of a plan ------------------------------------------------------------------

/// What crosses from the boundary's outer level into any inner one: a kernel may fill shared memory
/// and registers from it.
ordered_json totals_json(const Traffic& t, const std::string& boundary) {
  const std::string outer = boundary.substr(0, boundary.find('/') + 1);
  std::int64_t read = 0, written = 0;
  for (const TrafficEntry& e : t.entries)
    if (e.boundary.starts_with(outer)) read += e.read.value, written += e.written.value;
  return {{"read_bytes", read}, {"written_bytes", written}};
}

/// Bytes, time, or why the model does not price this plan.
ordered_json model_json(const Model& model, const Job& job, const std::string& edges) {
  Request request = job.request;
  request.order.reset();
  const Result<Price> said = model.price(question_of(request, job.on.setting, model), job.on.plan,
                                         settings_with(request, model, "edges", edges, true));
  if (!said) return {{"reason", said.reason()}};
  std::int64_t read = 0, written = 0;
  for (const TrafficEntry& e : said->traffic.entries)
    read += e.read.value, written += e.written.value;
  return {{"read_bytes", read},
          {"written_bytes", written},
          {"seconds", or_null(said->traffic.seconds)}};
}

/// What kernels must read and write at least where caches are emptied before each: inputs once,
/// outputs once. Of a gather the sectors that it touches, its indices being those that the kernel
/// is verified and counted with.
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

void add_predictions(Job& job) {
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
  const LevelId level = s.kernels.front().level;
  if (const TrafficEntry between = traffic.total("cluster/" + m.level(level).name);
      between.read.value > 0)
    json["between_blocks_bytes"] = between.read.value;
  // Boxes of the TMA unit are counted whole, where all kernels copy by it.
  if (const auto maps = job.json.find("launches");
      maps != job.json.end() && std::ranges::all_of(*maps, [](const ordered_json& launch) {
        return launch.contains("maps");
      }))
    if (const auto bytes = lowering::box_bytes(s)) json["boxes_read_bytes"] = *bytes;
  Compulsory compulsory(s, job.request.seed);
  json["compulsory_read_bytes"] = compulsory.read();
  json["compulsory_bytes"] = compulsory.read() + compulsory.written();
  json["each_kernel_once"] = compulsory.each_kernel_once();
  json["kernels"] = s.kernels.size();
  // Partial tiles at their true size are what is counted; models of time take full ones.
  for (const Model& model : models()) {
    if (model.price == nullptr || find_option(model.options, "edges") == nullptr) continue;
    const bool first = &model == &standard_model();
    json[model.name] = model_json(model, job, first ? "exact" : "full");
    if (first) json[model.name + "_full_edges"] = model_json(model, job, "full");
  }
}

namespace {

// ---- The child ----------------------------------------------------------------------------------

/// An option's texts as a line of a batch has them.
ordered_json option_json(const OptionSpec& spec, const std::vector<std::string>& texts) {
  if (spec.repeated) return texts;
  if (spec.kind == OptionKind::flag) return texts.back() == "on";
  if (spec.kind == OptionKind::integer || spec.kind == OptionKind::number)
    return ordered_json::parse(texts.back());
  return texts.back();
}

/// What the child needs of one job: its plan, and how it was emitted, so that it finds what was
/// built.
ordered_json child_line(const Job& job, std::size_t index, const std::filesystem::path& folder) {
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
  ordered_json line = {{"name", job.json["name"]}, {"plan", plan}};
  for (const OptionSpec& spec : job.target().options())
    if (const auto given = job.request.target_options.find(spec.name);
        given != job.request.target_options.end())
      line[as_key(spec)] = option_json(spec, given->second);
  return line;
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
std::optional<Reason> add_counts(Job& job, CacheControl control, std::span<const NcuLaunch> all) {
  const std::vector<codegen::NamedLaunch> launches = job.emitted->launches();
  std::vector<std::string> symbols;
  for (const codegen::NamedLaunch& l : launches) symbols.push_back(l.symbol);
  const auto own = profilers::ncu_launches_of(all, symbols);
  if (!own) return Reason{own.reason()};
  for (std::size_t i = 0; i < own->size(); ++i)
    if ((*own)[i].blocks != 0 && (*own)[i].blocks != launches[i].blocks)
      return Reason{formatted("ncu has counted {} blocks of {}, and it has {}", (*own)[i].blocks,
                              symbols[i], launches[i].blocks)};
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
  Counting(std::vector<Job>& jobs, const Request& request, bool cold_only)
      : jobs_(jobs), request_(request), cold_only_(cold_only) {}

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
              std::string(jobs_.front().target().name),
              "--batch",
              file("lines"),
              "--count",
              "--threads",
              std::to_string(threads_of(request_)),
              "--seed",
              std::to_string(request_.seed),
              "-o",
              file("answers"),
              "--json"};
    count(CacheControl::all);
    if (!cold_only_) count(CacheControl::none);
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
      Job& job = jobs_[i];
      std::string text;
      std::getline(answers, text);
      const ordered_json answer = ordered_json::parse(text, nullptr, false);
      if (answer.is_object())
        for (const char* key : {"verified", "relative_error", "tolerance", "reference_seconds",
                                "device", "architecture"})
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

  std::vector<Job>& jobs_;
  const Request& request_;
  bool cold_only_;
  TemporaryDirectory folder_;
  std::filesystem::path ncu_;
  profilers::NcuMetrics metrics_;
  std::vector<std::size_t> asked_;
  std::vector<std::string> child_;
};

}  // namespace

void run_as_command() { is_command = true; }

Counted count_by_ncu(std::vector<Job>& jobs, const Request& request,
                     const MeasureOptions& options) {
  if (!options.build_only)
    if (const auto why = absent(find_meter("ncu", "--meter"))) return {.refusal = why->text};
  const TemporaryDirectory folder;
  const auto standard = [](Job& job, const char* option, const std::string& value) {
    if (find_option(job.target().options(), option) != nullptr)
      job.request.target_options.try_emplace(option, std::vector{value});
  };
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    // The child finds what was built here, and tells the kernels of one from those of another.
    standard(jobs[i], "cache", (folder.path() / "built").string());
    standard(jobs[i], "prefix", "p" + std::to_string(i));
    jobs[i].options.build_only = options.build_only;
  }
  parallel_for(
      jobs.size(), threads_of(request),
      [&](std::size_t i) {
        guarded(jobs[i], emit_job);
        guarded(jobs[i], add_predictions);
        guarded(jobs[i], compile_job);
      },
      request.progress, "building");
  Counted counted;
  if (options.build_only) return counted;
  Counting counting(jobs, request, options.cold_only);
  if (const auto why = counting.run()) return {.refusal = why->text};
  counted.metrics_refused = counting.metrics().refused;
  counted.command = counting.command(CacheControl::all);
  return counted;
}

Answer measure_by_process(Job asked, const MeasureOptions& options) {
  const Request request = asked.request;
  std::vector<Job> jobs = {std::move(asked)};
  Job& job = jobs.front();
  job.request.progress = {};
  Job first = job;
  emit_job(first);  // bad input is thrown here, and not made an outcome
  job.json["meter"] = first.json["meter"] = options.meter;
  job.json["name"] = first.json["name"] = first.on.setting.workload_name;
  if (first.refusal) return first.answer();
  const Counted counted = count_by_ncu(jobs, request, options);
  if (!job.refusal && counted.refusal) job.refusal = counted.refusal;
  if (!job.refusal && job.json.contains("counted")) {
    merge(job.json, job.json["counted"]["all"]);
    job.json["notes"].push_back(
        "the traffic is that of cache control all: caches are flushed before each kernel");
    job.json["command"] = counted.command;
  }
  return job.answer();
}

Answer measure_batch(const Request& request, const MeasureOptions& options,
                     const std::string& batch, const std::optional<std::string>& out) {
  const codegen::Target& target = target_named(options.target ? options.target : request.target);
  const profilers::MeterRecord& meter = find_meter(options.meter, "--meter");
  if (!measures(meter, target) || meter.counts != profilers::Counts::process) {
    const profilers::MeterRecord& ncu = find_meter("ncu", "--meter");
    throw InputError({.where = "--batch",
                      .value = batch,
                      .problem = "is for another target or meter than " + std::string(target.name) +
                                 ", " + options.meter,
                      .accepted = "--target " + std::string(target_of(ncu).name) + " --meter " +
                                  std::string(ncu.name)});
  }
  std::vector<Job> jobs = batch_jobs(batch, request, {.target = std::string(target.name)});
  auto json = document();
  json["target"] = target.name;
  json["meter"] = options.meter;
  const Counted counted = count_by_ncu(jobs, request, options);
  json["command"] = counted.command;
  json["metrics_refused"] = counted.metrics_refused;
  json["results"] = ordered_json::array();
  bool any = false;
  std::string lines;
  for (const Job& job : jobs) {
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
