#include "codegen/npu/emulated/loaded.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tilewright::npu {

using nlohmann::ordered_json;

namespace {

/// Cycles of every pipe that did anything, of the core that has most to do with it.
ordered_json pipes_json(const Report& r) {
  ordered_json pipes = ordered_json::array();
  for (int p = 0; p < kPipes; ++p) {
    const PipeTimes* most = nullptr;
    for (const auto& core : r.pipes)
      if (const PipeTimes& t = core[static_cast<std::size_t>(p)];
          t.instructions > 0 && (most == nullptr || t.busy > most->busy))
        most = &t;
    if (most == nullptr) continue;
    ordered_json json = {{"pipe", name_of(static_cast<Pipe>(p))},
                         {"instructions", most->instructions},
                         {"busy_cycles", most->busy},
                         {"barrier_cycles", most->barrier},
                         {"unissued_cycles", most->empty},
                         {"idle_cycles", most->idle},
                         {"bandwidth_cycles", most->bandwidth},
                         {"bank_cycles", most->bank}};
    ordered_json flags = ordered_json::object();
    for (int q = 0; q < kPipes; ++q)
      if (const std::int64_t n = most->flag[static_cast<std::size_t>(q)]; n > 0)
        flags[std::string(name_of(static_cast<Pipe>(q)))] = n;
    json["flag_cycles"] = std::move(flags);
    pipes.push_back(std::move(json));
  }
  return pipes;
}

ordered_json findings_json(const Report& r, const std::string& kernel) {
  ordered_json findings = ordered_json::array();
  for (const Finding& f : r.findings)
    findings.push_back({{"fault", name_of(f.fault)},
                        {"kernel", kernel},
                        {"block", f.block},
                        {"statement", f.statement},
                        {"text", f.text},
                        {"count", f.count}});
  return findings;
}

/// Elements of a tensor that its operator does not write: readers ask for none of them.
std::int64_t beyond_its_writer(const Workload& w, TensorId t) {
  for (const Output& o : w.op(w.producer(t)).outputs) {
    if (o.target.tensor != t) continue;
    std::int64_t written = 1;
    for (const Affine& index : o.target.index)
      if (const auto loop = index.plain_loop()) written *= w.loop(*loop).extent;
    return w.tensor(t).elements().value - written;
  }
  return 0;
}

}  // namespace

std::optional<Reason> LoadedKernel::write(TensorId tensor, const void* elements) {
  const tilewright::Tensor& t = workload_->tensor(tensor);
  std::vector<std::byte>& to = data_[t.name];
  to.resize(static_cast<std::size_t>(t.bytes().value));
  std::memcpy(to.data(), elements, to.size());
  return std::nullopt;
}

std::optional<Reason> LoadedKernel::read(TensorId tensor, void* elements) {
  const std::vector<std::byte>& from = data_.at(workload_->tensor(tensor).name);
  std::copy(from.begin(), from.end(), static_cast<std::byte*>(elements));
  return std::nullopt;
}

Result<double> LoadedKernel::run() {
  reports_.clear();
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  for (const KernelSource& k : source_.kernels) {
    TensorData data;  // a kernel is given what it reads: the rest holds nothing
    EmulatorOptions options{.timeline = timeline_.has_value()};
    for (const Tensor& t : k.program.tensors) {
      if (t.role == Role::input) data[t.name] = data_.at(t.name);
      const auto id = workload_->find_tensor(t.name);
      if (t.role != Role::output || !id || workload_->is_input(*id)) continue;
      if (const std::int64_t n = beyond_its_writer(*workload_, *id); n > 0)
        options.unwritten[t.name] = n;
    }
    reports_.push_back(emulate(k.program, *machine_, data, options));
    for (auto& [name, elements] : data) data_[name] = std::move(elements);
    seconds += reports_.back().seconds;
  }
  wall_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return seconds;
}

Traffic emulated_traffic(const std::vector<Report>& reports, const Workload& w, const Machine& m) {
  Traffic traffic{.source = tilewright::Source::simulated, .by = "emulator", .machine = m.name};
  const auto entry = [&](const std::string& tensor, const std::string& boundary) -> TrafficEntry& {
    for (TrafficEntry& e : traffic.entries)
      if (e.tensor == tensor && e.boundary == boundary) return e;
    traffic.entries.push_back({.tensor = tensor, .boundary = boundary});
    return traffic.entries.back();
  };
  for (const Report& r : reports)
    for (const PathBytes& p : r.paths) {
      const auto from = m.find(level_of(p.from)), to = m.find(level_of(p.to));
      const auto tensor = w.find_tensor(p.tensor);
      TW_CHECK(from && to && tensor, "a path or a tensor that the machine or the workload has not");
      const Bytes bytes = bytes_of(Elements(p.elements), w.tensor(*tensor).dtype);
      const std::string boundary = m.boundary(*from, *to);
      const bool inward = boundary.ends_with("/" + m.level(*to).name);
      TrafficEntry& e = entry(p.tensor, boundary);
      (inward ? e.read : e.written) += bytes;
    }
  const auto rank = [&](const TrafficEntry& e) {
    const std::size_t slash = e.boundary.find('/');
    return std::tuple(m.find(e.boundary.substr(0, slash))->index(),
                      m.find(e.boundary.substr(slash + 1))->index(),
                      w.find_tensor(e.tensor)->index());
  };
  std::ranges::sort(traffic.entries, {}, rank);
  traffic.unavailable["DRAM/L2"] =
      "the emulator counts what DRAM gives L2 by lines, first reads only";
  return traffic;
}

void LoadedKernel::describe_run(ordered_json& json) const {
  json["findings"] = ordered_json::array();
  std::int64_t cycles = 0, macs = 0;
  for (std::size_t k = 0; k < reports_.size(); ++k) {
    const Report& r = reports_[k];
    ordered_json& kernel = json["kernels"][k];
    kernel["cores"] = r.cores;
    kernel["cycles"] = r.cycles.value;
    kernel["multiply_accumulates"] = r.useful_macs;
    kernel["cube_utilisation"] = r.cube_utilisation();
    kernel["pipes"] = pipes_json(r);
    cycles += r.cycles.value;
    macs += r.macs;
    for (ordered_json& f : findings_json(r, source_.kernels[k].program.name))
      json["findings"].push_back(std::move(f));
  }
  json["faults"] = json["findings"].size();
  json["cycles"] = cycles;
  json["emulated_multiply_accumulates"] = macs;
  json["emulation_seconds"] = wall_seconds_;
}

std::optional<Reason> LoadedKernel::fault(bool) const {
  for (const Report& r : reports_)
    if (!r.findings.empty()) return Reason{"the program is faulty: " + r.findings.front().text};
  return std::nullopt;
}

std::vector<codegen::File> LoadedKernel::files() const {
  std::vector<codegen::File> files;
  if (!timeline_) return files;
  const std::size_t dot = timeline_->rfind('.');
  const std::string ending = timeline_->substr(dot);
  for (std::size_t k = 0; k < reports_.size(); ++k) {
    const Program& program = source_.kernels[k].program;
    files.push_back({reports_.size() == 1 ? *timeline_
                                          : timeline_->substr(0, dot) + "-" + program.name + ending,
                     ending == ".svg" ? timeline_svg(reports_[k], program)
                                      : trace_json(reports_[k], program) + "\n"});
  }
  return files;
}

std::optional<Traffic> LoadedKernel::counted() const {
  Traffic traffic = emulated_traffic(reports_, *workload_, *machine_);
  double seconds = 0;
  for (const Report& r : reports_) seconds += r.seconds;
  traffic.seconds = seconds;
  return traffic;
}

Result<codegen::Timing> LoadedKernel::time(std::optional<double>, const codegen::Progress&) {
  double seconds = 0;
  for (const Report& r : reports_) seconds += r.seconds;
  return codegen::Timing{.seconds = {seconds}, .runs = 1};
}

}  // namespace tilewright::npu
