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

}  // namespace

std::span<const OptionSpec> option_specs() {
  constexpr const char* kModel = "gpu_performance_model_base.h";
  static const std::vector<OptionSpec> specs = {
      number("xla-launch-us", "1", 1e6, "microseconds that a kernel launch takes", kModel),
      number("xla-parallelism", "0.95", 1,
             "how far computation and memory accesses overlap: with 1 a kernel takes the longer "
             "of the two times, with 0 their sum",
             kModel),
      number("xla-l2-speedup", "2.5", 1e6,
             "how many times faster than DRAM a tensor is read again that fits into L2", kModel),
      number("xla-l1-speedup", "8", 1e6,
             "how many times faster than L2 a tensor is read again that fits into all L1 "
             "caches",
             kModel),
      {.name = "xla-operands",
       .kind = OptionKind::integer,
       .low = 2,
       .high = 4096,
       .standard = "96",
       .help = "operands and results of a kernel at most (64 in older versions)",
       .source = "gpu_fusible.h"},
      yes_or_no("xla-duplicate",
                "an operator that several kernels read is computed again in each of them; no: it "
                "is not fused",
                "priority_fusion.cc"),
      yes_or_no("xla-multi-output",
                "after the priority queue, kernels are merged into ones with several results",
                "multi_output_fusion.cc"),
      {.name = "xla-products",
       .kind = OptionKind::choice,
       .names = {"points", "ridge"},
       .standard = "points",
       .help = "contractions that are left to a library. points: those with more iterations than "
               "elements; ridge: those whose intensity is above the ridge point of f32"}};
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
  // The explorer's compiler calls a function wrongly whose result is a template that nothing has
  // used yet.
  static_assert(sizeof(std::optional<stitching::Products>) > 0);
  o.kernels.products = s.choice("xla-products", stitching::products_from_name);
  return o;
}

}  // namespace tilewright::xlapriority
