#include "codegen/npu/options.h"

#include "codegen/micro_kernels.h"

namespace tilewright::npu {

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = {
      codegen::micro_kernel_option("npu"),
      {.name = "timeline",
       .kind = OptionKind::path,
       .writes = Writes::file,
       .endings = {".svg", ".json"},
       .accepted = "FILE.svg, FILE.json",
       .help =
           "what every pipe does when: .svg (core 0), or .json for Perfetto and chrome://tracing",
       .verbs = {"run"}}};
  return specs;
}

}  // namespace tilewright::npu
