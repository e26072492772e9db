#include "codegen/cuda/options.h"

#include "codegen/micro_kernels.h"

namespace tilewright::cuda {
namespace {

std::vector<OptionSpec> make_specs(const OptionSpec& arch) {
  return {codegen::micro_kernel_option("cuda"),
          {.name = "warps",
           .kind = OptionKind::integer,
           .high = 16,
           .fallback = "by the tiles",
           .help = "warps that compute, a block"},
          {.name = "stages",
           .kind = OptionKind::integer,
           .high = 8,
           .fallback = "two where they fit",
           .help = "copies of a loaded tile"},
          arch,
          {.name = "prefix",
           .accepted = "an identifier",
           .standard = "tilewright",
           .value = "NAME",
           .help = "of the kernels' names, so that a profiler tells them apart",
           .verbs = {"batch"}}};
}

std::vector<OptionSpec> make_emulated() {
  return make_specs({.name = "arch",
                     .kind = OptionKind::choice,
                     .names = {"sm_80", "sm_90a"},
                     .fallback = "sm_80",
                     .help = "whose instructions the text has"});
}

std::vector<OptionSpec> make_built() {
  std::vector<OptionSpec> specs = make_specs({.name = "arch",
                                              .fallback = "the device's, else the machine's",
                                              .value = "NAME",
                                              .help = "built for it: sm_80, sm_90a"});
  const std::vector<OptionSpec> more = {
      {.name = "cache",
       .kind = OptionKind::path,
       .value = "DIR",
       .help = "a folder where built kernels are kept and found again"},
      {.name = "cold",
       .kind = OptionKind::flag,
       .help = "time on tensors in turn that are together larger than L2",
       .verbs = {"run", "batch"}},
      {.name = "launch",
       .kind = OptionKind::choice,
       .names = {"graph", "stream"},
       .standard = "graph",
       .help = "time runs in a CUDA graph, or with each kernel launched by itself; of a network "
               "always in a graph",
       .verbs = {"run", "batch"}}};
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

}  // namespace

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = make_built();
  return specs;
}

std::span<const OptionSpec> emulated_option_specs() {
  static const std::vector<OptionSpec> specs = make_emulated();
  return specs;
}

}  // namespace tilewright::cuda
