// Target cpu: C++ for this machine's processor, built by its compiler.
#include "codegen/target.h"

#include <cstdlib>
#include <sstream>
#include <thread>

#include "codegen/common/host_sequence.h"
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/loaded.h"
#include "codegen/cpu/options.h"
#include "codegen/micro_kernels.h"
#include "core/base/toolchain.h"

namespace tilewright::cpu {
namespace {

using codegen::File;
using nlohmann::ordered_json;

Availability here() {
  const Result<std::vector<std::string>> compiler = compiler_command("");
  if (!compiler) return {.reason = compiler.reason()};
  return {.usable = true,
          .detail = join(*compiler, " ") + ", " + std::string(name_of(host_isa())) + ", " +
                    std::to_string(std::thread::hardware_concurrency()) + " threads"};
}

class CpuEmitted final : public codegen::Emitted {
 public:
  CpuEmitted(Source source, Schedule schedule, EmitOptions options)
      : source_(std::move(source)), schedule_(std::move(schedule)), options_(std::move(options)) {}

  void describe(ordered_json& json) const override {
    json["isa"] = name_of(source_.isa);
    json["threads"] = source_.threads;
    json["micro_kernel"] = source_.micro_kernel;
    json["prefetch"] = options_.prefetch;
    json["packing"] = {{"once_bytes", source_.kept_bytes}, {"tiles", ordered_json::array()}};
    for (const TileUse& t : source_.tiles)
      json["packing"]["tiles"].push_back(
          {{"tensor", t.tensor}, {"level", t.level}, {"packed", t.packed}, {"reason", t.reason}});
    json["notes"] = source_.notes;
  }
  std::vector<File> files() const override {
    std::string flags;
    for (const std::string& f : source_.flags) flags += " " + f;
    return {{source_.file_name, source_.text},
            {"build.sh", "#!/bin/sh\n# Builds " + source_.file_name +
                             " into a shared object with a C interface (see the top of the "
                             "source).\nset -e\ncd \"$(dirname \"$0\")\"\nexec \"${CXX:-c++}\"" +
                             flags + " -shared -fPIC -o kernel.so " + source_.file_name + "\n"}};
  }
  void describe_files(ordered_json& json) const override {
    json["build"] = source_.build_command_text;
    json["flags"] = source_.flags;
    json["symbols"] = {source_.prefix + "_workspace", source_.prefix + "_run"};
    if (source_.in_parts) json["symbols"].push_back(source_.prefix + "_part");
    if (source_.kept_bytes > 0) json["symbols"].push_back(source_.prefix + "_prepare");
  }
  std::optional<std::vector<std::string>> packed() const override {
    std::vector<std::string> tensors;
    for (const TileUse& t : source_.tiles)
      if (t.packed) tensors.push_back(t.tensor);
    return tensors;
  }
  std::optional<Reason> cannot_run() const override {
    if (host_runs(source_.isa)) return std::nullopt;
    return Reason{"this processor does not run " + std::string(name_of(source_.isa))};
  }
  Result<codegen::HostObject> build_object(const std::filesystem::path& object) override {
    Result<Kernel> kernel = cpu::build(source_, {.object = object});
    if (!kernel) return Reason{kernel.reason()};
    kernel_ = std::move(kernel).value();
    return codegen::HostObject{source_.prefix, source_.threads, std::string(name_of(source_.isa))};
  }
  std::optional<Reason> build(bool, ordered_json&) override {
    Result<Kernel> kernel = cpu::build(source_);
    if (!kernel) return Reason{kernel.reason()};
    kernel_ = std::move(kernel).value();
    return std::nullopt;
  }
  Result<std::unique_ptr<codegen::TargetKernel>> load(const std::shared_ptr<codegen::Device>&,
                                                      ordered_json&) override {
    return std::unique_ptr<codegen::TargetKernel>(
        std::make_unique<LoadedKernel>(*kernel_, *schedule_.workload));
  }
  /// The same source with symbols of another name.
  Result<Source> named(std::string prefix) const {
    EmitOptions options = options_;
    options.prefix = std::move(prefix);
    return emit(schedule_, options);
  }
  void take(Kernel kernel) { kernel_ = std::move(kernel); }

 private:
  Source source_;
  Schedule schedule_;
  EmitOptions options_;
  std::optional<Kernel> kernel_;
};

std::vector<std::string> names_in_list(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream all(text);
  for (std::string name; std::getline(all, name, ',');) names.push_back(name);
  return names;
}

Result<std::unique_ptr<codegen::Emitted>> emit_for(const Schedule& schedule,
                                                   const Settings& settings, int threads) {
  const Isa isa =
      settings.given("isa") ? settings.choice("isa", isa_from_name) : host_isa(*schedule.workload);
  const auto micro_kernel = settings.find_text("micro-kernel");
  // Wider sets have the micro-kernels of the one that they extend.
  codegen::check_micro_kernel("cpu", name_of(micro_kernel_for(isa, "")->isa), micro_kernel);
  const EmitOptions options{.isa = isa,
                            .threads = threads,
                            .micro_kernel = micro_kernel.value_or(""),
                            .prefetch = settings.flag("prefetch"),
                            .constant = names_in_list(settings.find_text("constant").value_or(""))};
  Result<Source> source = emit(schedule, options);
  if (!source) return source.why();
  return std::unique_ptr<codegen::Emitted>(
      std::make_unique<CpuEmitted>(std::move(source).value(), schedule, options));
}

std::optional<Reason> build_together(std::span<const std::shared_ptr<codegen::Emitted>> emitted) {
  std::vector<Source> sources;
  for (std::size_t i = 0; i < emitted.size(); ++i) {
    Result<Source> source =
        static_cast<const CpuEmitted&>(*emitted[i]).named("kernel" + std::to_string(i));
    if (!source) return source.why();
    sources.push_back(std::move(source).value());
  }
  Result<std::vector<Kernel>> kernels = build_all(sources);
  if (!kernels) return kernels.why();
  for (std::size_t i = 0; i < emitted.size(); ++i)
    static_cast<CpuEmitted&>(*emitted[i]).take(std::move(kernels.value()[i]));
  return std::nullopt;
}

/// Chimera's own CPU configuration takes 0.8 of each cache (HPCA 2023, section VI).
TargetNeeds needs(DType type, const Settings& settings) {
  TargetNeeds needs{.cache_percent = 80};
  const Isa isa = settings.given("isa") ? settings.choice("isa", isa_from_name) : host_isa();
  const Result<MicroKernel> kernel =
      micro_kernel_for(isa, settings.find_text("micro-kernel").value_or(""));
  if (kernel && kernel->vector_bytes > 0)
    needs.register_tile = {.rows = kernel->rows,
                           .vectors = kernel->vectors,
                           .lanes = kernel->vector_bytes / size_of(type)};
  return needs;
}

}  // namespace
}  // namespace tilewright::cpu

namespace tilewright::codegen {

const Target kCpu = {
    .name = "cpu",
    .summary = "C++ for the host with AVX-512 or AVX2 outer-product micro-kernels",
    .here = cpu::here,
    .options = cpu::option_specs,
    .micro_kernels = "cpu",
    .clock = Clock::measured,
    .threads = true,
    .emit = cpu::emit_for,
    .build_together = cpu::build_together,
    .sequence = codegen::host_sequence,
    .needs = cpu::needs,
    .meters =
        [] {
          return std::vector<std::string_view>{"cachegrind", "perf", "likwid", "pcm"};
        },
    .under_valgrind =
        [] {
          const bool wide = cpu::host_runs(cpu::Isa::avx2);
          return OptionValues{{"isa", {wide ? "avx2" : "generic"}}};
        },
};

}  // namespace tilewright::codegen
