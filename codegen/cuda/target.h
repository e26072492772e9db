// What the targets that emit CUDA share: options, the emitted source, what an answer says of it.
#pragma once

#include "codegen/cuda/build.h"
#include "codegen/cuda/cuda.h"
#include "codegen/target.h"

namespace tilewright::cuda {

/// `architecture`: the one that the text is for; empty: all that the target builds for. `own_form`,
/// `before`: as of EmitOptions. Throws InputError for a micro-kernel that there is none of.
Result<Source> source_of(const Schedule& schedule, const Settings& settings,
                         const std::string& architecture, bool own_form = false,
                         const LaunchBefore* before = nullptr);

/// What plans may count on of the same text: wgmma is of sm_90a alone.
TargetNeeds needs_of(const Settings& settings, const std::string& architecture);

/// Every launch, and of what was built its registers, spills and shared memory.
nlohmann::ordered_json launches_json(const Source& source, const Binary* binary);

/// A source that is to be built; how is left to whoever runs it.
class CudaEmitted : public codegen::Emitted {
 public:
  CudaEmitted(Source source, std::shared_ptr<const Workload> workload)
      : source_(std::move(source)), workload_(std::move(workload)) {}
  /// source_fnv64 (equal where the text is), micro_kernel, tiles, workspace_bytes, notes, launches
  /// and what each is given in order: what another program that loads the cubin must know.
  void describe(nlohmann::ordered_json& answer) const override;
  std::vector<codegen::File> files() const override;
  void describe_files(nlohmann::ordered_json& answer) const override;
  std::vector<std::string> program() const override { return source_.program; }
  std::vector<codegen::NamedLaunch> launches() const override;
  std::optional<Reason> makeshift() const override { return source_.makeshift; }

 protected:
  nlohmann::ordered_json launches_of(const Binary* binary) const;
  const Source& source() const { return source_; }
  const Workload& workload() const { return *workload_; }

 private:
  Source source_;
  std::shared_ptr<const Workload> workload_;
};

/// A source and what was built of it, to be loaded on a device: for sources that are not emitted.
std::shared_ptr<codegen::Emitted> with_binary(Source source, Binary binary,
                                              std::shared_ptr<const Workload> workload,
                                              const Settings& settings);

}  // namespace tilewright::cuda
