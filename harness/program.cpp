// run of a network: its kernels built together, each verified alone, then all of them as a program.
#include "harness/program.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "core/base/format.h"
#include "core/workload/cut.h"
#include "core/workload/import/onnx_import.h"
#include "core/workload/reference/elements.h"
#include "harness/beside.h"
#include "harness/pipeline.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

using Elements = std::vector<std::byte>;

/// Memory of a whole network: inputs and outputs of their own, what launches hand on in an arena.
class Memory {
 public:
  Memory(const Program& program, codegen::LaunchSequence& sequence)
      : w_(*program.workload), sequence_(sequence), at_(w_.tensors().size(), nullptr) {}

  std::optional<Reason> fill(const Program& program, const TensorValues& inputs) {
    for (std::size_t t = 0; t < at_.size(); ++t) {
      const TensorId id(t);
      if (!w_.is_input(id) && !w_.is_output(id)) continue;
      const std::int64_t bytes = w_.tensor(id).bytes().value;
      if (auto why = take(bytes, at_[t])) return why;
      if (!w_.is_input(id)) continue;
      Elements elements(static_cast<std::size_t>(bytes));
      encode_elements(w_.tensor(id).dtype, inputs[t], elements.data());
      if (auto why = sequence_.write(at_[t], elements.data(), bytes)) return why;
    }
    return hand_on(program);
  }
  void* at(TensorId t) const { return at_[t.index()]; }
  Result<Elements> read(TensorId t) const {
    Elements elements(static_cast<std::size_t>(w_.tensor(t).bytes().value));
    if (auto why = sequence_.read(elements.data(), at(t), std::ssize(elements))) return *why;
    return elements;
  }

  std::int64_t arena_bytes = 0;
  std::int64_t bytes_alone = 0;  ///< of what the arena holds, each in memory of its own

 private:
  std::optional<Reason> hand_on(const Program& program) {
    const HandedOn on = handed_on(program);
    for (TensorId t : on.kept)
      if (auto why = take(w_.tensor(t).bytes().value, at_[t.index()])) return why;
    arena_bytes = on.bytes;
    bytes_alone = on.bytes_alone;
    void* base = nullptr;
    if (auto why = take(on.bytes, base)) return why;
    for (std::size_t i = 0; i < on.tensors.size(); ++i)
      at_[on.tensors[i].index()] = static_cast<char*>(base) + on.offsets[i];
    return std::nullopt;
  }
  std::optional<Reason> take(std::int64_t bytes, void*& at) {
    const Result<void*> memory = sequence_.take(bytes);
    if (!memory) return memory.why();
    at = *memory;
    return std::nullopt;
  }

  const Workload& w_;
  codegen::LaunchSequence& sequence_;
  std::vector<void*> at_;  ///< by TensorId; null: never at home
};

/// A built and verified program over its memory: what depends on weights alone, then the rest.
class Running {
 public:
  Running(Program& program, codegen::LaunchSequence& sequence)
      : program_(program), sequence_(sequence), order_(run_order(program)) {}

  std::optional<Reason> add(const Memory& memory) {
    for (std::size_t i : order_.launches) {
      const Launch& l = program_.launches[i];
      codegen::TargetKernel& kernel = program_.kernels[l.kernel].kernel();
      std::vector<void*> tensors(l.tensors.size(), nullptr);
      for (std::size_t t = 0; t < tensors.size(); ++t)
        if (kernel.needs(TensorId(t))) tensors[t] = memory.at(l.tensors[t]);
      if (auto why = sequence_.add(kernel, tensors))
        return Reason{formatted("kernel {}: {}", l.name, why->text)};
    }
    return std::nullopt;
  }
  /// Everything once.
  std::optional<Reason> run() {
    for (const auto& [first, last] :
         {std::pair(std::size_t{0}, prepared()), std::pair(prepared(), order_.launches.size())})
      if (const Result<double> seconds = sequence_.run(first, last); !seconds)
        return Reason{"the program failed: " + seconds.reason()};
    return std::nullopt;
  }
  /// Everything once more, launch by launch, each verified.
  std::optional<Reason> verify_each(const Memory& memory, const TensorValues& inputs,
                                    const TensorValues& expected) {
    return verify_launches(program_, order_.launches, inputs, expected,
                           {.run = [&](std::size_t i) { return sequence_.run(i, i + 1); },
                            .read = [&](TensorId t) { return memory.read(t); }});
  }
  /// Times what is not prepared; each launch's seconds go to it.
  Result<codegen::SequenceTiming> time(double budget, const Progress& progress) {
    Result<codegen::SequenceTiming> timing =
        sequence_.time(prepared(), order_.launches.size(), budget, progress);
    if (timing)
      for (std::size_t i = prepared(); i < order_.launches.size(); ++i)
        std::ranges::copy(timing->launches[i - prepared()],
                          std::back_inserter(program_.launches[order_.launches[i]].seconds));
    return timing;
  }

  /// How many launches depend on weights alone.
  std::size_t prepared() const { return order_.prepared; }

 private:
  Program& program_;
  codegen::LaunchSequence& sequence_;
  RunOrder order_;
};

/// The largest relative error of the outputs; adds each to the answer. A Reason where one is too
/// large.
std::optional<Reason> verify_whole(const Memory& memory, const Workload& w,
                                   const TensorValues& expected, ordered_json& json) {
  std::optional<Reason> wrong;
  double worst = 0;
  json["outputs"] = ordered_json::array();
  for (TensorId t : w.outputs()) {
    const Tensor& tensor = w.tensor(t);
    const Result<Elements> got = memory.read(t);
    if (!got) return got.why();
    const double error = relative_error(tensor.dtype, got->data(), expected[t.index()]);
    const double most = tolerance_of(tensor.dtype);
    json["outputs"].push_back({{"tensor", tensor.name},
                               {"shape", tensor.shape},
                               {"dtype", name_of(tensor.dtype)},
                               {"relative_error", number_or_null(error)},
                               {"tolerance", most}});
    worst = std::max(worst, error);
    if (!(error <= most) && !wrong)
      wrong =
          std::isfinite(error)
              ? Reason{formatted("output {} is off by {:.3g} of its largest element, more "
                                 "than {:.3g}",
                                 tensor.name, error, most)}
              : Reason{formatted("output {} or its reference has no finite values", tensor.name)};
  }
  json["verified"] = !wrong;
  json["relative_error"] = number_or_null(worst);
  return wrong;
}

/// Which inputs were drawn, and what stays the same in every run.
ordered_json inputs_json(const Workload& w) {
  ordered_json drawn = ordered_json::array();
  std::int64_t weights = 0, bytes = 0;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    if (!w.is_input(TensorId(t))) continue;
    const Tensor& tensor = w.tensors()[t];
    if (tensor.values) ++weights, bytes += tensor.bytes().value;
    if (tensor.drawn()) drawn.push_back(tensor.name);
  }
  return {{"drawn", drawn}, {"weights", weights}, {"weight_bytes", bytes}};
}

/// The least that a machine takes for these bytes and operations; none where its file has no rates.
std::optional<double> roof(const Machine& m, std::int64_t bytes, double flops, DType type) {
  const LevelId first = m.path(m.home(), m.default_level()).front().second;
  std::optional<double> seconds = seconds_into(m, first, Bytes(bytes));
  for (const ComputeUnit& unit : m.units)
    if (const auto peak = unit.peak.find(std::string(name_of(type))); peak != unit.peak.end())
      seconds = std::max(seconds.value_or(0), flops / peak->second.value);
  return seconds;
}

/// Bytes of weights that the target packs before the first run and keeps.
std::int64_t packed_once(const ProgramKernel& kernel) {
  ordered_json json;
  kernel.emitted->describe(json);
  return json.contains("packing") ? json["packing"].value("once_bytes", std::int64_t{0}) : 0;
}

ordered_json kernels_json(const Program& program, const Machine& m) {
  ordered_json all = ordered_json::array();
  const std::vector<bool> constant = constant_operators(*program.workload);
  const auto predicted = predicted_seconds(program, m, m.kind == "gpu");
  for (const Launch& l : program.launches) {
    const ProgramKernel& kernel = program.kernels[l.kernel];
    const Workload& w = *kernel.workload;
    ordered_json operators = ordered_json::array();
    for (OpId op : l.operators) operators.push_back(program.workload->op(op).name);
    const bool once =
        std::ranges::all_of(l.operators, [&](OpId op) { return constant[op.index()]; });
    const auto least = roof(m, w.compulsory_bytes().value, w.flops(), w.dtype());
    ordered_json line = {{"kernel", l.name},
                         {"operators", std::move(operators)},
                         {"model", l.by.empty() ? ordered_json(nullptr) : ordered_json(l.by)},
                         {"compiled", l.kernel},
                         {"once", once},
                         {"packed_once_bytes", packed_once(kernel)},
                         {"predicted_seconds", number_or_null(predicted[all.size()])},
                         {"seconds", nullptr},
                         {"seconds_min", nullptr},
                         {"flops", w.flops()},
                         {"compulsory_bytes", w.compulsory_bytes().value},
                         {"exact_bytes", kernel.bytes ? ordered_json(*kernel.bytes) : nullptr},
                         {"roof", nullptr}};
    if (!once && !l.seconds.empty()) {
      const double seconds = median(l.seconds);
      line["seconds"] = seconds;
      line["seconds_min"] = *std::ranges::min_element(l.seconds);
      if (least && seconds > 0) line["roof"] = *least / seconds;
    }
    all.push_back(std::move(line));
  }
  return all;
}

/// How far predicted seconds are from measured ones, by kernel: |predicted / measured - 1|. Null
/// where no kernel has both.
ordered_json prediction_json(const ordered_json& kernels) {
  double sum = 0, weighted = 0, predicted = 0, measured = 0, worst = -1;
  std::size_t count = 0;
  std::string name;
  for (const ordered_json& k : kernels) {
    if (k["seconds"].is_null() || k["predicted_seconds"].is_null()) continue;
    const double s = k["seconds"].get<double>(), p = k["predicted_seconds"].get<double>();
    if (!(s > 0)) continue;
    const double error = std::abs(p / s - 1);
    ++count, sum += error, weighted += error * s, predicted += p, measured += s;
    if (error > worst) worst = error, name = k["kernel"].get<std::string>();
  }
  if (count == 0) return nullptr;
  return {{"kernels", count},
          {"whole", predicted / measured},
          {"mean_error", sum / static_cast<double>(count)},
          {"mean_error_by_seconds", weighted / measured},
          {"worst_error", worst},
          {"worst_kernel", name}};
}

/// The median run as Chrome's trace events: microseconds, kernel after kernel.
std::string trace_of(const Program& program, const ordered_json& kernels) {
  ordered_json events = ordered_json::array();
  double at = 0;
  for (const ordered_json& k : kernels) {
    if (k["seconds"].is_null()) continue;
    const double us = k["seconds"].get<double>() * 1e6;
    events.push_back(
        {{"name", k["kernel"]},
         {"cat", "kernel"},
         {"ph", "X"},
         {"pid", 1},
         {"tid", 1},
         {"ts", at},
         {"dur", us},
         {"args",
          {{"operators", k["operators"]},
           {"model", k["model"]},
           {"predicted_us", k["predicted_seconds"].is_null()
                                ? ordered_json(nullptr)
                                : ordered_json(k["predicted_seconds"].get<double>() * 1e6)},
           {"bytes", k["exact_bytes"]},
           {"roof", k["roof"]}}}});
    at += us;
  }
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", 1},
                    {"args", {{"name", program.workload->name() + ": medians of each kernel"}}}});
  return ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(1) + "\n";
}

/// Inputs by the rewritten workload's TensorIds, as the named one's are drawn.
TensorValues drawn_inputs(const Setting& setting, std::uint64_t seed) {
  if (!setting.original) return random_inputs(*setting.workload, seed);
  const Workload &named = *setting.original, &w = *setting.workload;
  TensorValues drawn = random_inputs(named, seed), inputs(w.tensors().size());
  for (std::size_t t = 0; t < inputs.size(); ++t)
    if (w.is_input(TensorId(t)))
      inputs[t] = std::move(drawn[named.find_tensor(w.tensors()[t].name)->index()]);
  return inputs;
}

/// The outputs that are right, by the rewritten workload's TensorIds, where they are those of the
/// workload as it is named.
std::optional<TensorValues> expected_outputs(const Setting& setting, std::uint64_t seed) {
  if (!setting.original) return std::nullopt;
  const Workload &named = *setting.original, &w = *setting.workload;
  TensorValues of = evaluate(named, random_inputs(named, seed), {.outputs_only = true});
  TensorValues expected(w.tensors().size());
  for (TensorId t : w.outputs())
    expected[t.index()] = std::move(of[named.find_tensor(w.tensor(t).name)->index()]);
  return expected;
}

void add_seconds(ordered_json& json, const codegen::Timing& timing, double flops) {
  const std::vector<double>& seconds = timing.seconds;
  json["seconds_median"] = median(seconds);
  json["seconds_min"] = *std::ranges::min_element(seconds);
  json["runs"] = timing.runs;
  merge(json, timing.detail);
  json["flops"] = flops;
  json["gflops"] = flops / median(seconds) * 1e-9;
}

/// What a run has of its own, step by step.
class Run {
 public:
  Run(const Request& request, const RunOptions& options,
      const std::shared_ptr<codegen::Device>& device)
      : request_(request),
        options_(options),
        target_(target_named(request.target)),
        device_(device) {}

  Answer answer() {
    if (auto why = made()) return refuse(std::move(json_), why->text);
    if (options_.build_only) {
      add_kernels();
      return {std::move(json_), Status::done};
    }
    if (auto why = finished()) return refuse(std::move(json_), why->text);
    return {std::move(json_), Status::done};
  }

 private:
  void say(std::string_view what, double done = 0) const {
    if (request_.progress) request_.progress(what, done);
  }

  std::optional<Reason> made() {
    settings_for(target_, request_.target_options);  // bad input before anything is planned
    auto start = Clock::now();
    Result<ProgramPlan> plan = program_plan(request_, options_.split);
    if (!plan) return plan.why();
    plan_ = std::move(plan).value();
    name_workload(json_, plan_->setting);
    json_["machine"] = plan_->setting.machine->name;
    json_["target"] = target_.name;
    json_["threads"] = request_.threads.value_or(1);
    json_["plan_seconds"] = since(start);
    start = Clock::now();
    say("emitting");
    Result<Program> program =
        program_of(request_, *plan_, static_cast<std::size_t>(options_.tune.value_or(0)));
    if (!program) return program.why();
    program_ = std::move(program).value();
    json_["launches"] = program_.launches.size();
    json_["compiled"] = program_.kernels.size();
    json_["notes"] = program_.notes;
    if (!plan_->parts.is_null()) json_["parts"] = plan_->parts;
    if (!options_.build_only)
      for (const ProgramKernel& kernel : program_.kernels)
        if (const auto why = kernel.emitted->cannot_run()) return why;
    if (auto why = build_kernels(program_, target_, !options_.build_only, request_.progress))
      return why;
    json_["build_seconds"] = since(start);
    return std::nullopt;
  }

  std::optional<Reason> finished() {
    const Workload& w = *program_.workload;
    if (device_) device_->describe(json_);
    const std::uint64_t seed = request_.seed;
    json_["seed"] = seed;
    merge(json_, inputs_json(w));
    say("the reference evaluator");
    const auto start = Clock::now();
    TensorValues values = evaluate(w, drawn_inputs(plan_->setting, seed));
    const std::optional<TensorValues> named = expected_outputs(plan_->setting, seed);
    double worst = 0;
    if (auto why = verify_kernels(program_, device_, values, seed, request_.progress, worst)) {
      json_["verified"] = false;
      return why;
    }
    for (std::size_t t = 0; t < values.size(); ++t)
      if (!w.is_input(TensorId(t)) && !w.is_output(TensorId(t))) values[t] = {};
    const TensorValues &inputs = values, &expected = named ? *named : values;
    json_["kernels_verified"] = program_.kernels.size();
    json_["kernels_on_network_values"] =
        std::ranges::count_if(program_.kernels, &ProgramKernel::on_network_values);
    json_["kernels_relative_error"] = worst;
    if (options_.tune)
      json_["kernels_tuned"] = std::ranges::count_if(program_.kernels, &ProgramKernel::tuned);
    json_["verify_seconds"] = since(start);
    const Result<std::unique_ptr<codegen::LaunchSequence>> sequence = target_.sequence(device_);
    if (!sequence) return sequence.why();
    Memory memory(program_, **sequence);
    if (auto why = memory.fill(program_, inputs)) return why;
    json_["arena_bytes"] = memory.arena_bytes;
    json_["handed_on_bytes"] = memory.bytes_alone;
    Running running(program_, **sequence);
    if (auto why = running.add(memory)) return why;
    json_["prepared"] = running.prepared();
    if (auto why = running.run()) return why;
    json_["verified_by"] = "the whole";
    if (auto why = verify_whole(memory, w, expected, json_)) {
      if (!std::isfinite(json_["relative_error"].is_number() ? json_["relative_error"].get<double>()
                                                             : HUGE_VAL))
        return why;
      say("verifying each launch in the network");
      if (auto still = running.verify_each(memory, inputs, expected))
        return Reason{formatted("{}, and launch by launch: {}", why->text, still->text)};
      json_["verified"] = true;
      json_["verified_by"] = "each launch in the network";
    }
    if (auto why = time(running, memory, inputs)) return why;
    add_kernels();
    std::optional<Reason> apart;
    if (!theirs_.empty()) {
      bool by_rounding = false;
      const double moved =
          json_["verified_by"] == "the whole" ? 0 : json_["relative_error"].get<double>();
      apart = differs(w, inputs, expected, theirs_, moved, by_rounding);
      beside_["agrees"] = !apart;
      if (!apart) beside_["agrees_by"] = by_rounding ? "what rounding explains" : "the whole";
      if (apart) json_["verified"] = false;
    }
    const bool pairs = beside_.contains("saturation_error");
    if (!beside_.is_null()) json_["onnxruntime"] = std::move(beside_);
    if (apart)
      return Reason{"onnxruntime has another result: " + apart->text +
                    (pairs ? "; on this processor it may add products of computed bytes in pairs, "
                             "in 16 bits that saturate"
                           : "")};
    return std::nullopt;
  }

  /// Ours, and where onnxruntime is asked the two in turn, so that what else the machine does falls
  /// on both.
  std::optional<Reason> time(Running& running, const Memory& memory, const TensorValues& inputs) {
    if (target_.clock == codegen::Clock::none) return std::nullopt;
    constexpr double kSeconds = 2, kLeastOfTurns = 0.3;
    constexpr int kTurns = 3;
    const double budget = options_.seconds.value_or(kSeconds);
    const bool beside =
        names_onnx(request_.subject) && !request_.subject_text && options_.beside != "none";
    const int turns = beside && budget >= kLeastOfTurns ? kTurns : 1;
    codegen::Timing whole;
    std::vector<double> theirs;
    for (int turn = 0; turn < turns; ++turn) {
      Result<codegen::SequenceTiming> timing = running.time(budget / turns, request_.progress);
      if (!timing) return timing.why();
      std::vector<double>& seconds = timing.value().whole.seconds;
      whole.runs += timing->whole.runs;
      whole.detail = timing->whole.detail;
      whole.seconds.insert(whole.seconds.end(), seconds.begin(), seconds.end());
      json_["launches_timed_by"] = timing->launches_timed_by;
      if (!beside || (turn > 0 && !beside_["available"].get<bool>())) continue;
      if (auto why = add_turn(memory, inputs, budget / turns, theirs)) return why;
    }
    add_seconds(json_, whole, plan_->setting.as_named().flops());
    if (!theirs.empty()) {
      const double median_of_theirs = median(theirs);
      const ordered_json outputs = std::move(beside_["outputs"]);
      beside_.erase("outputs");
      beside_["seconds_median"] = median_of_theirs;
      beside_["seconds_min"] = *std::ranges::min_element(theirs);
      beside_["runs"] = theirs.size();
      beside_["turns"] = turns;
      beside_["outputs"] = outputs;
      beside_["ratio"] = json_["seconds_median"].get<double>() / median_of_theirs;
    }
    return std::nullopt;
  }

  void add_kernels() {
    const Machine& machine = *plan_->setting.machine;
    const ordered_json kernels = kernels_json(program_, machine);
    std::optional<double> whole = 0;
    const auto predicted = predicted_seconds(program_, machine);
    for (std::size_t i = 0; i < predicted.size(); ++i)
      if (!kernels[i]["once"].get<bool>())
        whole = whole && predicted[i] ? std::optional(*whole + *predicted[i]) : std::nullopt;
    json_["predicted_seconds"] = number_or_null(whole);
    if (options_.profile) {
      json_["profile"] = kernels;
      json_["prediction"] = prediction_json(kernels);
    }
    if (options_.trace) {
      write_file(*options_.trace, trace_of(program_, kernels), "--trace");
      json_["trace"] = *options_.trace;
    }
  }

  /// onnxruntime's turn: what it says becomes `beside_`, its seconds are added to `theirs`.
  std::optional<Reason> add_turn(const Memory& memory, const TensorValues& inputs, double budget,
                                 std::vector<double>& theirs) {
    const Workload& w = *program_.workload;
    BesideAsked asked{.subject = request_.subject,
                      .python = options_.beside.value_or("python3"),
                      .threads = request_.threads.value_or(1),
                      .seconds = budget,
                      .values = theirs_.empty()};
    const auto names = import_named_onnx(request_.subject).tensors;
    for (const auto& [onnx, name] : names) {
      const auto id = w.find_tensor(name);
      if (!id) continue;
      const Tensor& tensor = w.tensor(*id);
      if (w.is_input(*id)) {
        asked.inputs[onnx] = inputs[id->index()];
        continue;
      }
      const Result<Elements> got = memory.read(*id);
      if (!got) return got.why();
      asked.outputs[onnx] = decode_elements(tensor.dtype, got->data(),
                                            static_cast<std::size_t>(tensor.elements().value));
    }
    say("onnxruntime");
    Beside answer = beside_onnxruntime(asked);
    ordered_json& said = answer.json;
    const bool available = said.value("available", false);
    if (available && theirs_.empty()) theirs_.resize(w.tensors().size());
    for (auto& [onnx, values] : answer.outputs)
      theirs_[w.find_tensor(names.at(onnx))->index()] = std::move(values);
    if (available)
      for (const ordered_json& s : said["seconds"]) theirs.push_back(s.get<double>());
    said.erase("seconds");
    if (beside_.contains("saturation_error"))  // of the turn that asked for values
      said["saturation_error"] = beside_["saturation_error"];
    if (available || beside_.is_null()) beside_ = std::move(said);
    return std::nullopt;
  }

  const Request& request_;
  const RunOptions& options_;
  const codegen::Target& target_;
  const std::shared_ptr<codegen::Device>& device_;
  ordered_json json_ = document();
  ordered_json beside_;  ///< what onnxruntime makes of it; null: not asked
  TensorValues theirs_;  ///< by TensorId, its outputs; empty: not asked
  std::optional<ProgramPlan> plan_;
  Program program_;
};

}  // namespace

Answer run_program(const Request& request, const RunOptions& options,
                   const std::shared_ptr<codegen::Device>& device) {
  return Run(request, options, device).answer();
}

}  // namespace tilewright::harness
