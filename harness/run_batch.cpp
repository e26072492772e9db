// Many runs on one target: all emitted and built first, in parallel, then one after the other.
#include <map>
#include <sstream>

#include "core/base/format.h"
#include "harness/files.h"
#include "harness/parallel.h"
#include "harness/pipeline.h"
#include "harness/verb.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// Options that a line may give: those of a run but for where it runs and what it writes.
const Verb& line_verb() {
  static const Verb verb = [] {
    Verb line{.name = "batch",
              .summary = "",
              .options = shared_options({"machine", "rewrite", "model", "tree", "tiles", "pin",
                                         "flag", "level", "capacity", "order"}),
              .models = true,
              .targets = true};
    line.options.push_back({.name = "name", .help = "of its answer"});
    line.options.push_back({.name = "workload", .help = "a workload"});
    line.options.push_back({.name = "plan", .help = "a plan file"});
    return line;
  }();
  return verb;
}

/// One line of a batch over the options that all of them share.
Job line_job(const ordered_json& object, const std::string& where, const Job& shared) {
  const Verb& verb = line_verb();
  const Asked asked{.options = option_values(options_of(verb), object, where)};
  const Settings settings = settings_of(verb, asked);
  const Request line = request_of(verb, asked);
  Job job = shared;
  read_given(job.request, request_options(), settings);
  for (const auto& [name, texts] : line.options) job.request.options[name] = texts;
  for (const auto& [name, texts] : line.target_options) job.request.target_options[name] = texts;
  for (const char* subject : {"workload", "plan"})
    if (settings.has(subject)) job.request.subject = settings.text(subject);
  if (job.request.subject.empty())
    throw InputError({.where = where,
                      .value = object.dump(),
                      .problem = "names nothing to run",
                      .accepted = "\"workload\" or \"plan\""});
  job.json["name"] = settings.has("name") ? settings.text("name") : where;
  return job;
}

}  // namespace

std::vector<Job> batch_jobs(const std::string& file, const Request& request,
                            const RunOptions& options) {
  Job shared = job_of(request, options);
  shared.request.progress = {};
  std::vector<Job> jobs;
  std::istringstream lines(read_file(file, "--batch"));
  int number = 0;
  for (std::string text; std::getline(lines, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = file + ":" + std::to_string(number);
    const ordered_json object = ordered_json::parse(text, nullptr, false);
    if (!object.is_object())
      throw InputError(
          {.where = where,
           .value = text,
           .problem = "is not a request",
           .accepted = R"(a JSON object, {"workload": "mcfuser/G1", "model": "NAME"})"});
    jobs.push_back(line_job(object, where, shared));
  }
  if (jobs.empty())
    throw InputError(
        {.where = file, .problem = "has no runs in it", .accepted = "a JSON object a line"});
  return jobs;
}

void guarded(Job& job, const std::function<void(Job&)>& step) {
  if (job.refusal) return;
  try {
    step(job);
  } catch (const InputError& e) {
    job.refuse_with(e.what());
  }
}

namespace {

/// What says which reference a job's kernel is verified on: elements are by the rewritten
/// workload's TensorIds.
std::string reference_key(const Job& job) {
  return join(job.on.setting.rewrites) + "|" + job.on.setting.workload_name;
}

/// What the kernels are verified on, once for every workload of the batch, for as long as a job
/// needs it: of large workloads a reference is gigabytes.
class References {
 public:
  explicit References(const std::vector<Job>& jobs) {
    for (const Job& job : jobs)
      if (!job.refusal) ++all_[reference_key(job)].users;
  }

  /// Evaluates those that are too small for several threads side by side.
  void prepare(const std::vector<Job>& jobs, int threads, const Progress& progress) {
    std::vector<const Job*> small;
    for (const Job& job : jobs)
      if (!job.refusal && is_small(*job.on.setting.workload) && !all_[reference_key(job)].begun)
        small.push_back(&job), all_[reference_key(job)].begun = true;
    parallel_for(
        small.size(), threads, [&](std::size_t i) { evaluate(*small[i]); }, progress,
        "evaluating the references");
  }
  /// Of a job that is not refused: evaluated on all cores where it was not yet.
  const Reference& of(const Job& job) {
    Entry& entry = all_.at(reference_key(job));
    if (!entry.reference) evaluate(job);
    return *entry.reference;
  }
  void done_with(const Job& job) {
    const auto entry = all_.find(reference_key(job));
    if (entry != all_.end() && --entry->second.users == 0) entry->second.reference.reset();
  }

 private:
  struct Entry {
    int users = 0;
    bool begun = false;
    std::optional<Reference> reference = {};
  };

  static bool is_small(const Workload& w) {
    constexpr std::int64_t kMost = std::int64_t{1} << 20;  // elements
    std::int64_t elements = 0;
    for (const Tensor& t : w.tensors()) elements += t.elements().value;
    return elements <= kMost;
  }
  void evaluate(const Job& job) {
    all_.at(reference_key(job)).reference = reference_of(job.on.setting, job.request.seed);
  }

  std::map<std::string, Entry> all_;
};

/// Answers as they come, a line each.
class LineStream {
 public:
  explicit LineStream(const std::optional<std::string>& path) {
    if (path) out_.emplace(*path, "-o", OutputFile::Becomes::line_by_line);
  }
  void add(const Job& job) {
    if (!out_) return;
    out_->stream() << job.answer().json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)
                   << '\n';
    out_->flush();
  }

 private:
  std::optional<OutputFile> out_;
};

/// Runs them in order. After a fault the device is opened afresh; after a kernel that does not end
/// nothing more runs in this process.
void run_all(std::vector<Job>& jobs, Result<std::shared_ptr<codegen::Device>> device,
             References& references, LineStream& stream, const Progress& progress) {
  std::string hung;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    const bool uses_reference = !job.refusal;
    if (!job.refusal && !hung.empty()) job.refuse_with("not run: the device hangs on " + hung);
    if (!job.refusal && device && *device && device.value()->faulted()) {
      device = Reason{"closed"};  // before it can be opened again
      device = open_device(job.target());
    }
    if (!job.refusal && !device) job.refuse_with(device.reason());
    if (!job.refusal) {
      verify_job(job, *device, references.of(job));
      time_job(job);
      job.kernel.reset();
      if (*device && device.value()->hung()) hung = job.json["name"].get<std::string>();
    }
    if (uses_reference) references.done_with(job);
    stream.add(job);
    if (progress)
      progress("running", static_cast<double>(i + 1) / static_cast<double>(jobs.size()));
  }
}

}  // namespace

Answer run_batch(const Request& request, const RunOptions& options, const std::string& batch,
                 const std::optional<std::string>& out) {
  std::vector<Job> jobs = batch_jobs(batch, request, options);
  const codegen::Target& target = jobs.front().target();
  auto json = document();
  json["target"] = target.name;
  Result<std::shared_ptr<codegen::Device>> device = std::shared_ptr<codegen::Device>();
  if (!options.build_only) {
    device = open_device(target);
    if (!device) return refuse(std::move(json), device.reason());
    if (*device) device.value()->describe(json);
  }
  LineStream stream(out);
  const int threads = threads_of(request);
  parallel_for(
      jobs.size(), threads,
      [&](std::size_t i) {
        guarded(jobs[i], emit_job);
        guarded(jobs[i], build_job);
      },
      request.progress, "building");
  if (options.build_only) {
    for (const Job& job : jobs) stream.add(job);
  } else {
    References references(jobs);
    references.prepare(jobs, threads, request.progress);
    run_all(jobs, std::move(device), references, stream, request.progress);
  }
  json["results"] = ordered_json::array();
  bool any = false;
  for (const Job& job : jobs) {
    json["results"].push_back(job.answer().json);
    any = any || !job.refusal;
  }
  if (!any) return refuse(std::move(json), "none of the batch succeeded: " + *jobs.front().refusal);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
