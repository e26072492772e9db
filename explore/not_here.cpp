// What the page leaves to the command: files of the host, programs, targets, meters. Each says so.
#include "codegen/micro_kernels.h"
#include "core/base/leftovers.h"
#include "core/base/mapped_file.h"
#include "core/base/toolchain.h"
#include "core/machine/host_facts.h"
#include "harness/metered_kernel.h"
#include "harness/meters.h"
#include "harness/registry.h"
#include "harness/taken.h"
#include "harness/validate_cuda.h"
#include "harness/validate_npu.h"
#include "harness/verbs.h"
#include "profilers/meter.h"

namespace tilewright {
namespace {

[[noreturn]] void not_here(std::string what) {
  throw InputError({.value = std::move(what),
                    .problem = "is not part of the explorer",
                    .accepted = "the tilewright command, which has it"});
}

}  // namespace

void leftover(const std::filesystem::path&) {}
void no_leftover(const std::filesystem::path&) {}
MappedFile::MappedFile(const std::string& path, std::string_view) { not_here(path); }
TemporaryDirectory::TemporaryDirectory(const std::filesystem::path&) {
  not_here("a folder of files");
}
TemporaryDirectory::~TemporaryDirectory() {}
bool on_path(const std::string&) { return false; }
std::string text_of(const std::filesystem::path& file) { not_here(file.string()); }
std::optional<Reason> run_program(const std::vector<std::string>&, const std::filesystem::path&,
                                  const std::vector<std::string>&) {
  return Reason{"programs are not started by the explorer"};
}
std::optional<HostTopology> topology_from_hwloc() { return std::nullopt; }
std::optional<HostTopology> topology_from_sysfs(const std::string&) { return std::nullopt; }
std::optional<HostTopology> topology_from_cpuid() { return std::nullopt; }
HostProcessor processor_from_files(const std::string&, const std::string&) {
  not_here("the machine host");
}

namespace codegen {
std::vector<const Target*> targets() { return {}; }
const Target* own_target(std::string_view) { return nullptr; }
const Target& find_target(std::string_view name) { not_here("target " + std::string(name)); }
std::vector<MicroKernelRecord> micro_kernel_records() { return {}; }
}  // namespace codegen

namespace profilers {
std::span<const MeterRecord> meters() { return {}; }
}  // namespace profilers

namespace harness {
const codegen::Target& target_named(const std::optional<std::string>& name) {
  not_here("target " + name.value_or("cpu"));
}
Settings settings_for(const codegen::Target& target, const OptionValues&) {
  not_here("target " + std::string(target.name));
}
TargetNeeds target_needs(const Request& request, DType) {
  if (request.target) not_here("target " + *request.target);
  return {};
}
const profilers::MeterRecord& find_meter(std::string_view name, std::string_view,
                                         std::string_view) {
  not_here("meter " + std::string(name));
}
std::optional<Reason> absent(const profilers::MeterRecord&) { return Reason{"no meter"}; }
const codegen::Target& target_of(const profilers::MeterRecord&) { not_here("a meter"); }
Result<std::unique_ptr<MeteredKernel>> MeteredKernel::make(const Schedule&,
                                                           const profilers::MeterRecord&,
                                                           const Reference&) {
  not_here("a meter");
}
Reference reference_of(const Setting&, std::uint64_t) { not_here("verification"); }
nlohmann::ordered_json Taken::json() const { return {}; }
Result<Taken> take(Proposal&, Setting&, const codegen::Target&, const Request&, const Again&) {
  not_here("a target");
}
bool on_gpu(std::string_view) { return false; }
Answer validate_npu(const Request&, const ValidateOptions&) { not_here("validate on an NPU"); }
Answer validate_cuda(const Request&, const ValidateOptions&) { not_here("validate on a GPU"); }
Answer import_model(const Request&, const ImportOptions&) { not_here("import"); }
Answer calibrate(const Request&, const std::string&) { not_here("calibrate"); }
Answer emit(const Request&, const std::string&, bool) { not_here("emit"); }
Answer run(const Request&, const RunOptions&) { not_here("run"); }
Answer run_batch(const Request&, const RunOptions&, const std::string&,
                 const std::optional<std::string>&) {
  not_here("run");
}
Answer measure(const Request&, const MeasureOptions&) { not_here("measure"); }
Answer measure_batch(const Request&, const MeasureOptions&, const std::string&,
                     const std::optional<std::string>&) {
  not_here("measure");
}
}  // namespace harness
}  // namespace tilewright
