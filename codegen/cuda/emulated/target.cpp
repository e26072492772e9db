// Target cuda-emulated: the CUDA text executed on the CPU, every access checked.
#include "codegen/cuda/target.h"

#include <algorithm>
#include <cstring>

#include "codegen/common/host_sequence.h"
#include "codegen/cuda/options.h"
#include "core/base/format.h"
#include "core/base/toolchain.h"
#include "simulator/cuda_host/cuda_host.h"

namespace tilewright::cuda {
namespace {

using nlohmann::ordered_json;

/// Tensors in the host's memory. The report is of the last run.
class EmulatedKernel final : public codegen::TargetKernel {
 public:
  EmulatedKernel(cuda_host::Module module, const Source& source, const Workload& w)
      : module_(std::move(module)), source_(source), index_(w.tensors().size(), -1) {
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      if (t >= source.needed.size() || !source.needed[t]) continue;
      index_[t] = static_cast<int>(memory_.size());
      own_.emplace_back(static_cast<std::size_t>(w.tensors()[t].bytes().value));
      bytes_.push_back(own_.back().size());
      memory_.push_back(own_.back().data());
      names_.push_back(w.tensors()[t].name);
      element_bytes_.push_back(static_cast<int>(size_of(w.tensors()[t].dtype)));
      initialised_.push_back(w.is_input(TensorId(t)));
      written_before_.push_back(source.written_before.empty() || source.written_before[t]);
    }
  }
  bool needs(TensorId tensor) const override { return index_[tensor.index()] >= 0; }
  std::optional<Reason> write(TensorId tensor, const void* elements) override {
    std::memcpy(memory_[at(tensor)], elements, bytes_[at(tensor)]);
    return std::nullopt;
  }
  std::optional<Reason> read(TensorId tensor, void* elements) override {
    std::memcpy(elements, memory_[at(tensor)], bytes_[at(tensor)]);
    return std::nullopt;
  }
  bool place(TensorId tensor, void* elements) override {
    memory_[at(tensor)] = static_cast<std::byte*>(elements);
    own_[at(tensor)] = {};
    return true;
  }
  Result<double> run() override {
    std::vector<cuda_host::Tensor> tensors;
    for (std::size_t i = 0; i < memory_.size(); ++i)
      tensors.push_back({.name = names_[i],
                         .data = memory_[i],
                         .bytes = static_cast<std::int64_t>(bytes_[i]),
                         .element_bytes = element_bytes_[i],
                         .initialised = initialised_[i],
                         .written_before = written_before_[i]});
    std::vector<cuda_host::Launch> launches;
    for (const Launch& l : source_.launches) {
      launches.push_back({.kernel = l.symbol,
                          .workspace = l.workspace,
                          .workspace_offset = l.workspace_offset,
                          .blocks = l.blocks,
                          .threads = l.threads,
                          .shared_bytes = l.shared_bytes,
                          .cooperative = l.cooperative,
                          .early = l.early,
                          .cluster = l.cluster});
      for (TensorId t : l.tensors) launches.back().tensors.push_back(index_[t.index()]);
      for (lowering::BoxMap m : l.maps) {
        m.tensor = TensorId(static_cast<std::size_t>(index_[m.tensor.index()]));
        launches.back().maps.push_back(m);
      }
    }
    Result<cuda_host::Report> report =
        module_.run(launches, tensors, {.workspace_bytes = source_.workspace_bytes});
    if (!report) return Reason{report.reason()};
    report_ = std::move(report).value();
    return report_.seconds;
  }
  void describe_run(ordered_json& json) const override;
  std::optional<Reason> fault(bool right) const override;

 private:
  ordered_json traffic_json() const;
  std::size_t at(TensorId tensor) const { return static_cast<std::size_t>(index_[tensor.index()]); }
  cuda_host::Module module_;
  Source source_;
  std::vector<int> index_;                   ///< by TensorId: into the rest; -1: not needed
  std::vector<std::vector<std::byte>> own_;  ///< empty: lies where place() said
  std::vector<std::byte*> memory_;
  std::vector<std::size_t> bytes_;
  std::vector<std::string> names_;
  std::vector<int> element_bytes_;
  std::vector<bool> initialised_, written_before_;
  cuda_host::Report report_;
};

/// Bytes by tensor over all launches, as the kernels asked for them; through L1 apart.
ordered_json EmulatedKernel::traffic_json() const {
  ordered_json traffic = ordered_json::array();
  for (std::size_t t = 0; t <= names_.size(); ++t) {
    cuda_host::TensorBytes sum;
    for (const cuda_host::LaunchCounts& l : report_.launches) {
      if (t >= l.tensors.size()) continue;
      sum.read += l.tensors[t].read;
      sum.written += l.tensors[t].written;
      sum.atomic += l.tensors[t].atomic;
      sum.read_through_l1 += l.tensors[t].read_through_l1;
      sum.written_through_l1 += l.tensors[t].written_through_l1;
    }
    if (sum == cuda_host::TensorBytes{}) continue;
    traffic.push_back({{"tensor", t < names_.size() ? names_[t] : "workspace"},
                       {"read_bytes", sum.read},
                       {"written_bytes", sum.written},
                       {"atomic_bytes", sum.atomic},
                       {"read_through_l1_bytes", sum.read_through_l1},
                       {"written_through_l1_bytes", sum.written_through_l1}});
  }
  return traffic;
}

ordered_json findings_json(const cuda_host::Report& report) {
  ordered_json findings = ordered_json::array();
  for (const cuda_host::Finding& f : report.findings)
    findings.push_back({{"fault", cuda_host::name_of(f.fault)},
                        {"kernel", f.kernel},
                        {"block", f.block},
                        {"thread", f.thread},
                        {"line", f.place.line},
                        {"text", f.text},
                        {"count", f.count}});
  return findings;
}

void EmulatedKernel::describe_run(ordered_json& json) const {
  json["faults"] = report_.findings.size() + static_cast<std::size_t>(report_.findings_left_out);
  json["findings"] = findings_json(report_);
  json["traffic"] = traffic_json();
  std::int64_t between = 0;
  for (const cuda_host::LaunchCounts& l : report_.launches) between += l.cluster_read;
  if (between > 0) json["cluster_read_bytes"] = between;
  json["emulation_seconds"] = report_.seconds;
  json["emulation_notes"] = report_.notes;
}

/// Wrong values come first: what they come from is among the findings.
std::optional<Reason> EmulatedKernel::fault(bool right) const {
  if (!right || report_.findings.empty()) return std::nullopt;
  return Reason{"the kernel computes the right values, with faults: " +
                report_.findings.front().text};
}

cuda_host::Program program_of(const Source& source) {
  cuda_host::Program program{.file_name = source.file_name, .text = source.text};
  for (const DeviceHeader& h : device_headers())
    program.headers.push_back({std::string(h.name), std::string(h.text)});
  for (const Launch& l : source.launches)
    if (std::find(program.kernels.begin(), program.kernels.end(), l.symbol) ==
        program.kernels.end())
      program.kernels.push_back(l.symbol);
  return program;
}

class OnHost final : public CudaEmitted {
 public:
  using CudaEmitted::CudaEmitted;

  std::vector<codegen::File> files() const override {
    std::vector<codegen::File> files = CudaEmitted::files();
    std::vector<codegen::File> headers;
    for (const cuda_host::Header& h : cuda_host::host_headers())
      headers.push_back({std::string(h.name), std::string(h.text)});
    files.insert(files.end() - 1, headers.begin(), headers.end());
    return files;
  }
  std::optional<Reason> build(bool, ordered_json&) override {
    Result<cuda_host::Module> module = cuda_host::Module::build(program_of(source()));
    if (!module) return Reason{module.reason()};
    module_ = std::move(module).value();
    return std::nullopt;
  }
  Result<std::unique_ptr<codegen::TargetKernel>> load(const std::shared_ptr<codegen::Device>&,
                                                      ordered_json&) override {
    return std::unique_ptr<codegen::TargetKernel>(
        std::make_unique<EmulatedKernel>(*module_, source(), workload()));
  }

 private:
  std::optional<cuda_host::Module> module_;
};

TargetNeeds needs_of_host(DType, const Settings& settings) {
  return needs_of(settings, settings.find_text("arch").value_or(""));
}

Result<std::unique_ptr<codegen::Emitted>> emit_for_host(const Schedule& schedule,
                                                        const Settings& settings,
                                                        const LaunchBefore* before) {
  Result<Source> source =
      source_of(schedule, settings, settings.find_text("arch").value_or(""), false, before);
  if (!source) return source.why();
  return std::unique_ptr<codegen::Emitted>(
      std::make_unique<OnHost>(std::move(source).value(), schedule.workload));
}

Result<std::unique_ptr<codegen::Emitted>> emit_alone_for_host(const Schedule& schedule,
                                                              const Settings& settings, int) {
  return emit_for_host(schedule, settings, nullptr);
}

Result<std::unique_ptr<codegen::Emitted>> emit_behind_for_host(const Schedule& schedule,
                                                               const Settings& settings,
                                                               const LaunchBefore& before) {
  return emit_for_host(schedule, settings, &before);
}

std::optional<Reason> host_refuses(const Schedule& schedule, const Settings& settings, int) {
  const auto source = source_of(schedule, settings, settings.find_text("arch").value_or(""), true);
  return source ? std::nullopt : std::optional(source.why());
}

Availability emulated_here() {
  const Result<std::vector<std::string>> compiler = compiler_command("");
  if (!compiler) return {.reason = compiler.reason()};
  return {.usable = true, .detail = "executed on this CPU, built by " + join(*compiler, " ")};
}

}  // namespace
}  // namespace tilewright::cuda

namespace tilewright::codegen {

const Target kCudaEmulated = {
    .name = "cuda-emulated",
    .summary = "the same CUDA text executed on the CPU, its faults and races found",
    .here = cuda::emulated_here,
    .options = cuda::emulated_option_specs,
    .micro_kernels = "cuda",
    .clock = Clock::none,
    .emit = cuda::emit_alone_for_host,
    .emit_behind = cuda::emit_behind_for_host,
    .refuses = cuda::host_refuses,
    .sequence = codegen::host_sequence,
    .needs = cuda::needs_of_host,
};

}  // namespace tilewright::codegen
