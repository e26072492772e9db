#include "models/xlapriority/xlapriority.h"

namespace tilewright::xlapriority {
namespace {

OptionSpec number(const char* name, const char* standard, double most, const char* help,
                  const char* source) {
  return {.name = name,
          .kind = OptionKind::number,
          .most = most,
          .standard = standard,
          .help = help,
          .source = source};
}

OptionSpec yes_or_no(const char* name, const char* help, const char* source) {
  return {.name = name,
          .kind = OptionKind::choice,
          .names = {"yes", "no"},
          .standard = "yes",
          .help = help,
          .source = source};
}

}  // namespace

std::span<const OptionSpec> option_specs() {
  constexpr const char* kModel = "gpu_performance_model_base.h";
  static const std::vector<OptionSpec> specs = {
      number("xla-launch-us", "1", 1e6, "microseconds of a kernel's launch", kModel),
      number("xla-parallelism", "0.95", 1,
             "of computing and memory: 1 takes the longer of both, 0 their sum", kModel),
      number("xla-l2-speedup", "2.5", 1e6, "of what is read again and fits L2, over DRAM", kModel),
      number("xla-l1-speedup", "8", 1e6, "of what is read again and fits all L1, over L2", kModel),
      {.name = "xla-operands",
       .kind = OptionKind::integer,
       .low = 2,
       .high = 4096,
       .standard = "96",
       .help = "operands and results of a kernel, at most (64 in older versions)",
       .source = "gpu_fusible.h"},
      yes_or_no("xla-duplicate",
                "a producer that several kernels read is computed in each; no: it is not fused",
                "priority_fusion.cc"),
      yes_or_no("xla-multi-output", "after the queue, kernels of several results",
                "multi_output_fusion.cc"),
      {.name = "xla-products",
       .kind = OptionKind::choice,
       .names = {"points", "ridge"},
       .standard = "points",
       .help = "contractions that are calls of a library: of more points than elements, or above "
               "the ridge point of f32"}};
  return specs;
}

Options options_of(const Settings& s) {
  Options o;
  o.launch_seconds = s.number("xla-launch-us") * 1e-6;
  o.parallelism = s.number("xla-parallelism");
  o.l2_speedup = s.number("xla-l2-speedup");
  o.l1_speedup = s.number("xla-l1-speedup");
  o.most_operands = static_cast<int>(s.integer("xla-operands"));
  o.duplicate = s.text("xla-duplicate") == "yes";
  o.multi_output = s.text("xla-multi-output") == "yes";
  o.kernels.products = s.choice("xla-products", stitching::products_from_name);
  return o;
}

}  // namespace tilewright::xlapriority
