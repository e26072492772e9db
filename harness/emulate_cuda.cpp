// cuda-emulated: the emitted CUDA text executed on the CPU, every access checked.
#include <algorithm>

#include "core/base/format.h"
#include "core/base/toolchain.h"
#include "harness/run_cuda.h"
#include "simulator/cuda_host/cuda_host.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// Tensors in the host's memory. The report is of the last run.
class EmulatedKernel final : public TargetKernel {
 public:
  EmulatedKernel(cuda_host::Module module, const cuda::Source& source, const Workload& w)
      : module_(std::move(module)), source_(source), index_(w.tensors().size(), -1) {
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      if (t >= source.needed.size() || !source.needed[t]) continue;
      index_[t] = static_cast<int>(memory_.size());
      memory_.emplace_back(static_cast<std::size_t>(w.tensors()[t].bytes().value));
      names_.push_back(w.tensors()[t].name);
      element_bytes_.push_back(static_cast<int>(size_of(w.tensors()[t].dtype)));
      initialised_.push_back(w.is_input(TensorId(t)));
    }
  }
  bool needs(TensorId tensor) const override { return index_[tensor.index()] >= 0; }
  std::optional<Reason> write(TensorId tensor, const void* elements) override {
    std::vector<std::byte>& to = memory_of(tensor);
    std::copy_n(static_cast<const std::byte*>(elements), to.size(), to.begin());
    return std::nullopt;
  }
  std::optional<Reason> read(TensorId tensor, void* elements) override {
    const std::vector<std::byte>& from = memory_of(tensor);
    std::copy(from.begin(), from.end(), static_cast<std::byte*>(elements));
    return std::nullopt;
  }
  Result<double> run() override {
    std::vector<cuda_host::Tensor> tensors;
    for (std::size_t i = 0; i < memory_.size(); ++i)
      tensors.push_back({.name = names_[i],
                         .data = memory_[i].data(),
                         .bytes = static_cast<std::int64_t>(memory_[i].size()),
                         .element_bytes = element_bytes_[i],
                         .initialised = initialised_[i]});
    std::vector<cuda_host::Launch> launches;
    for (const cuda::Launch& l : source_.launches) {
      launches.push_back({.kernel = l.symbol,
                          .workspace = l.workspace,
                          .blocks = l.blocks,
                          .threads = l.threads,
                          .shared_bytes = l.shared_bytes,
                          .cooperative = l.cooperative});
      for (TensorId t : l.tensors) launches.back().tensors.push_back(index_[t.index()]);
    }
    Result<cuda_host::Report> report =
        module_.run(launches, tensors, {.workspace_bytes = source_.workspace_bytes});
    if (!report) return Reason{report.reason()};
    report_ = std::move(report).value();
    return report_.seconds;
  }
  const cuda_host::Report& report() const { return report_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::byte>& memory_of(TensorId tensor) {
    return memory_[static_cast<std::size_t>(index_[tensor.index()])];
  }
  cuda_host::Module module_;
  const cuda::Source& source_;
  std::vector<int> index_;  ///< by TensorId: into the rest; -1: not needed
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::string> names_;
  std::vector<int> element_bytes_;
  std::vector<bool> initialised_;
  cuda_host::Report report_;
};

/// Bytes by tensor over all launches, as the kernels asked for them; through L1 apart.
ordered_json traffic_json(const EmulatedKernel& kernel) {
  ordered_json traffic = ordered_json::array();
  for (std::size_t t = 0; t <= kernel.names().size(); ++t) {
    cuda_host::TensorBytes sum;
    for (const cuda_host::LaunchCounts& l : kernel.report().launches) {
      if (t >= l.tensors.size()) continue;
      sum.read += l.tensors[t].read;
      sum.written += l.tensors[t].written;
      sum.atomic += l.tensors[t].atomic;
      sum.read_through_l1 += l.tensors[t].read_through_l1;
      sum.written_through_l1 += l.tensors[t].written_through_l1;
    }
    if (sum == cuda_host::TensorBytes{}) continue;
    traffic.push_back({{"tensor", t < kernel.names().size() ? kernel.names()[t] : "workspace"},
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

cuda_host::Program program_of(const cuda::Source& source) {
  cuda_host::Program program{.file_name = source.file_name, .text = source.text};
  for (const cuda::DeviceHeader& h : cuda::device_headers())
    program.headers.push_back({std::string(h.name), std::string(h.text)});
  for (const cuda::Launch& l : source.launches)
    if (std::find(program.kernels.begin(), program.kernels.end(), l.symbol) ==
        program.kernels.end())
      program.kernels.push_back(l.symbol);
  return program;
}

}  // namespace

Availability cuda_emulated_here() {
  const Result<std::vector<std::string>> compiler = compiler_command("");
  if (!compiler) return {.reason = compiler.reason()};
  return {.usable = true, .detail = "executed on this CPU, built by " + join(*compiler, " ")};
}

std::vector<std::pair<std::string, std::string>> emulated_headers() {
  std::vector<std::pair<std::string, std::string>> headers;
  for (const cuda_host::Header& h : cuda_host::host_headers()) headers.emplace_back(h.name, h.text);
  return headers;
}

void emulate_job(CudaJob& job, const Reference& reference) {
  const Workload& w = *job.on.setting.workload;
  Result<cuda_host::Module> module = cuda_host::Module::build(program_of(*job.source));
  if (!module) return job.refuse_with("the kernel cannot be built: " + module.reason());
  auto kernel = std::make_unique<EmulatedKernel>(std::move(module).value(), *job.source, w);
  EmulatedKernel& running = *kernel;
  job.json["reference_seconds"] = reference.seconds;
  const VerifyResult checked = verify(std::move(kernel), w, reference, [&] {
    const cuda_host::Report& report = running.report();
    job.json["faults"] =
        report.findings.size() + static_cast<std::size_t>(report.findings_left_out);
    job.json["findings"] = findings_json(report);
    job.json["traffic"] = traffic_json(running);
    job.json["emulation_seconds"] = report.seconds;
    job.json["emulation_notes"] = report.notes;
  }, &*job.on.schedule);
  add_verification(job, checked);
  if (!job.refusal && job.json["faults"] != 0)
    job.refuse_with("the kernel computes the right values, with faults: " +
                    job.json["findings"][0]["text"].get<std::string>());
}

}  // namespace tilewright::harness
