// Target npu: programs for the cores of an NPU, run by its emulator.
#include "codegen/target.h"

#include <algorithm>

#include "codegen/micro_kernels.h"
#include "codegen/npu/emulated/loaded.h"
#include "codegen/npu/npu.h"
#include "codegen/npu/options.h"

namespace tilewright::npu {
namespace {

using nlohmann::ordered_json;

/// Programs are made when somebody asks for them: a plan is taken or refused without.
class NpuEmitted final : public codegen::Emitted {
 public:
  NpuEmitted(const Schedule& schedule, EmitOptions options, std::optional<std::string> timeline)
      : schedule_(schedule), options_(std::move(options)), timeline_(std::move(timeline)) {}

  void describe(ordered_json& json) const override {
    json["micro_kernel"] = source().micro_kernel;
    json["kernels"] = ordered_json::array();
    for (const KernelSource& k : source().kernels) {
      ordered_json kernel = {{"name", k.program.name},
                             {"blocks", k.program.blocks},
                             {"statements", k.statements},
                             {"instructions", k.instructions},
                             {"flags", k.flags}};
      kernel["tiles"] = ordered_json::array();
      for (const TileUse& t : k.tiles)
        kernel["tiles"].push_back({{"tensor", t.tensor},
                                   {"level", t.level},
                                   {"layout", t.layout},
                                   {"type", t.type},
                                   {"copies", t.copies},
                                   {"bytes", t.bytes}});
      json["kernels"].push_back(std::move(kernel));
    }
    json["notes"] = source().notes;
  }
  std::vector<codegen::File> files() const override {
    return {{source().file_name, source().text}};
  }
  std::optional<Reason> build(bool, ordered_json&) override { return std::nullopt; }
  Result<std::unique_ptr<codegen::TargetKernel>> load(const std::shared_ptr<codegen::Device>&,
                                                      ordered_json&) override {
    return std::unique_ptr<codegen::TargetKernel>(
        std::make_unique<LoadedKernel>(source(), schedule_, timeline_));
  }

 private:
  const Source& source() const {
    if (!source_) {
      Result<Source> made = emit(schedule_, options_);
      TW_CHECK(made, made.reason());  // refuses() has walked the same
      source_ = std::move(made).value();
    }
    return *source_;
  }

  Schedule schedule_;
  EmitOptions options_;
  mutable std::optional<Source> source_;
  std::optional<std::string> timeline_;
};

Result<std::unique_ptr<codegen::Emitted>> emit_for(const Schedule& schedule,
                                                   const Settings& settings, int) {
  const auto micro_kernel = settings.find_text("micro-kernel");
  codegen::check_micro_kernel("npu", "", micro_kernel);
  const auto timeline = settings.find_text("timeline");
  const EmitOptions options{.micro_kernel = micro_kernel.value_or("")};
  if (auto why = refuses(schedule, options)) return *why;
  return std::unique_ptr<codegen::Emitted>(
      std::make_unique<NpuEmitted>(schedule, options, timeline));
}

Availability here() {
  return {.usable = true,
          .detail = "emulated on this CPU: programs run on simulator/npu, on no device"};
}

}  // namespace
}  // namespace tilewright::npu

namespace tilewright::codegen {

const Target kNpu = {
    .name = "npu",
    .summary = "assembly for the cores of an emulated Ascend-like NPU",
    .here = npu::here,
    .options = npu::option_specs,
    .micro_kernels = "npu",
    .clock = Clock::simulated,
    .emit = npu::emit_for,
    .refuses = [](const Schedule& s, const Settings&, int) { return npu::refuses(s); },
    .needs = [](DType, const Settings&) { return TargetNeeds{.every_level = true}; },
    .meters = [] { return std::vector<std::string_view>{"emulator"}; },
    .predicted_seconds = [](const Schedule& s, std::int64_t most_steps) -> Result<Predicted> {
      npu::EmitOptions options;
      options.most_instructions = std::min(options.most_instructions, most_steps);
      Predicted its;
      const Result<double> seconds = npu::predicted_seconds(s, options, &its.steps);
      if (!seconds) return seconds.why();
      its.seconds = *seconds;
      return its;
    },
};

}  // namespace tilewright::codegen
