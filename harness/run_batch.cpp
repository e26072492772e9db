// Many runs on one device: all emitted and built first, in parallel, then one after the other.
#include <map>
#include <set>
#include <sstream>

#include "core/base/format.h"
#include "harness/files.h"
#include "harness/parallel.h"
#include "harness/registry.h"
#include "harness/run_cuda.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void bad(const std::string& where, const std::string& field, const ordered_json& value,
                      const std::string& accepted) {
  throw InputError({.where = where,
                    .field = field,
                    .value = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace),
                    .problem = "is not accepted",
                    .accepted = accepted});
}

/// One line of a batch over the options that all of them share.
class Line {
 public:
  Line(const ordered_json& object, std::string where) : object_(object), where_(std::move(where)) {}

  void text(const char* name, std::optional<std::string>& to) {
    if (const ordered_json* v = find(name)) to = string(name, *v);
  }
  void text(const char* name, std::string& to) {
    if (const ordered_json* v = find(name)) to = string(name, *v);
  }
  void texts(const char* name, std::vector<std::string>& to) {
    const ordered_json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_array()) bad(where_, name, *v, "a list of strings");
    to.clear();
    for (const ordered_json& item : *v) to.push_back(string(name, item));
  }
  void count(const char* name, int most, std::optional<int>& to) {
    const ordered_json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_number_integer() || v->get<std::int64_t>() < 1 || v->get<std::int64_t>() > most)
      bad(where_, name, *v, "a whole number from 1 to " + std::to_string(most));
    to = v->get<int>();
  }
  void flag(const char* name, bool& to) {
    const ordered_json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_boolean()) bad(where_, name, *v, "true or false");
    to = v->get<bool>();
  }
  /// {"m": 64} or "m=64".
  void tiles(std::optional<std::string>& to) {
    const ordered_json* v = find("tiles");
    if (v == nullptr || v->is_string()) return text("tiles", to);
    if (!v->is_object()) bad(where_, "tiles", *v, "{\"m\": 64} or \"m=64\"");
    std::vector<std::string> parts;
    for (const auto& [loop, size] : v->items()) parts.push_back(loop + "=" + size.dump());
    to = join(parts);
  }
  /// Of every model; whoever makes the plan checks whether it has them.
  void model_options(Request& request) {
    const auto read = [&](std::span<const OptionSpec> specs) {
      for (const OptionSpec& spec : specs)
        if (const ordered_json* v = find(as_key(spec).c_str()))
          request.options[spec.name] = option_texts(spec, *v, where_, as_key(spec));
    };
    read(defaults_options());
    for (const ModelRecord& m : models()) read(m.options);
  }
  void finish() const {
    for (const auto& [name, value] : object_.items())
      if (!known_.contains(name)) {
        const std::vector<std::string> names(known_.begin(), known_.end());
        bad(where_, name, value, join(names));
      }
  }

 private:
  const ordered_json* find(const char* name) {
    known_.insert(name);
    const auto at = object_.find(name);
    return at == object_.end() ? nullptr : &*at;
  }
  std::string string(const char* name, const ordered_json& value) const {
    if (!value.is_string()) bad(where_, name, value, "a string");
    return value.get<std::string>();
  }
  const ordered_json& object_;
  std::string where_;
  std::set<std::string> known_;
};

CudaJob job_of(const ordered_json& object, const std::string& where, const CudaJob& shared) {
  CudaJob job = shared;
  Line line(object, where);
  std::string name;
  line.text("name", name);
  line.text("workload", job.request.subject);
  line.text("plan", job.request.subject);
  line.texts("rewrites", job.request.rewrites);
  line.text("machine", job.request.machine);
  line.text("model", job.request.model);
  line.text("tree", job.request.tree);
  line.tiles(job.request.tiles);
  line.texts("pins", job.request.pins);
  line.texts("flags", job.request.flags);
  line.text("level", job.request.level);
  line.text("capacity", job.request.capacity);
  line.text("order", job.request.order);
  line.model_options(job.request);
  line.text("micro_kernel", job.options.micro_kernel);
  line.count("warps", 16, job.options.cuda.warps);
  line.count("stages", 8, job.options.cuda.stages);
  line.flag("cold", job.options.cuda.cold);
  line.text("prefix", job.options.cuda.prefix);
  line.finish();
  job.json["name"] = name.empty() ? where : name;
  return job;
}

}  // namespace

std::vector<CudaJob> batch_jobs(const std::string& file, const CudaJob& shared) {
  std::vector<CudaJob> jobs;
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
           .problem = "is no request",
           .accepted = R"(a JSON object, {"workload": "mcfuser/G1", "model": "mcfuser"})"});
    jobs.push_back(job_of(object, where, shared));
  }
  if (jobs.empty())
    throw InputError({.where = file,
                      .value = "nothing",
                      .problem = "asks for no run",
                      .accepted = "a JSON object a line"});
  return jobs;
}

void guarded(CudaJob& job, const std::function<void(CudaJob&)>& step) {
  if (job.refusal) return;
  try {
    step(job);
  } catch (const InputError& e) {
    job.refuse_with(e.what());
  }
}

namespace {

/// What says which reference a job's kernel is verified on: elements are by the rewritten workload's
/// TensorIds.
std::string reference_key(const CudaJob& job) {
  return join(job.on.setting.rewrites) + "|" + job.on.setting.workload_name;
}

/// What the kernels are verified on, once for every workload of the batch, for as long as a job needs
/// it: of large workloads a reference is gigabytes.
class References {
 public:
  explicit References(const std::vector<CudaJob>& jobs) {
    for (const CudaJob& job : jobs)
      if (!job.refusal) ++all_[reference_key(job)].users;
  }

  /// Evaluates those that are too small for several threads side by side.
  void prepare(const std::vector<CudaJob>& jobs, int threads, const Progress& progress) {
    std::vector<const CudaJob*> small;
    for (const CudaJob& job : jobs)
      if (!job.refusal && is_small(*job.on.setting.workload) && !all_[reference_key(job)].begun)
        small.push_back(&job), all_[reference_key(job)].begun = true;
    parallel_for(
        small.size(), threads, [&](std::size_t i) { evaluate(*small[i]); }, progress,
        "evaluating the references");
  }
  /// Of a job that is not refused: evaluated on all cores where it was not yet.
  const Reference& of(const CudaJob& job) {
    Entry& entry = all_.at(reference_key(job));
    if (!entry.reference) evaluate(job);
    return *entry.reference;
  }
  void done_with(const CudaJob& job) {
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
  void evaluate(const CudaJob& job) {
    all_.at(reference_key(job)).reference = reference_of(job.on.setting, job.request.seed);
  }

  std::map<std::string, Entry> all_;
};

/// Answers as they come, a line each.
class Stream {
 public:
  explicit Stream(const std::optional<std::string>& path) {
    if (path) out_.emplace(*path, "-o", OutputFile::Becomes::line_by_line);
  }
  void add(const CudaJob& job) {
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
void run_all(std::vector<CudaJob>& jobs, References& references, Stream& stream,
             const Progress& progress) {
  Result<std::shared_ptr<cuda::Device>> device = cuda::Device::open();
  std::string hung;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    CudaJob& job = jobs[i];
    const bool uses_reference = !job.refusal;
    if (!job.refusal && !hung.empty()) job.refuse_with("not run: the device hangs on " + hung);
    if (!job.refusal && device && device.value()->faulted()) {
      device = Reason{"closed"};  // before it can be opened again
      device = cuda::Device::open();
    }
    if (!job.refusal && !device)
      job.refuse_with("target cuda is not available: " + device.reason());
    if (!job.refusal) {
      run_job(job, *device, references.of(job));
      if (device.value()->hung()) hung = job.json["name"].get<std::string>();
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
  if (options.target != "cuda")
    throw InputError({.where = "--batch",
                      .value = batch,
                      .problem = "is for another target than " + options.target,
                      .accepted = "--target cuda"});
  CudaJob shared{.request = request, .options = options};
  shared.request.progress = {};
  std::vector<CudaJob> jobs = batch_jobs(batch, shared);
  auto json = document();
  json["target"] = options.target;
  std::optional<cuda::DeviceInfo> info;
  if (!options.cuda.build_only) {
    const Result<cuda::DeviceInfo> here = cuda::Device::describe();
    if (!here) return refuse(std::move(json), "target cuda is not available: " + here.reason());
    info = *here;
    json["device"] = device_json(*info);
  }
  Stream stream(out);
  const int threads = threads_of(request);
  parallel_for(
      jobs.size(), threads,
      [&](std::size_t i) {
        guarded(jobs[i], emit_job);
        guarded(jobs[i], [&](CudaJob& job) { build_job(job, info ? &*info : nullptr); });
      },
      request.progress, "building");
  if (options.cuda.build_only) {
    for (const CudaJob& job : jobs) stream.add(job);
  } else {
    References references(jobs);
    references.prepare(jobs, threads, request.progress);
    run_all(jobs, references, stream, request.progress);
  }
  json["results"] = ordered_json::array();
  bool any = false;
  for (const CudaJob& job : jobs) {
    json["results"].push_back(job.answer().json);
    any = any || !job.refusal;
  }
  if (!any) return refuse(std::move(json), "none of the batch succeeded: " + *jobs.front().refusal);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
