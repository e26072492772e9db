#include "models/inductor/inductor.h"

namespace tilewright::inductor {
namespace {

OptionSpec limit(const char* name, const char* standard, std::int64_t low, const char* help,
                 const char* source) {
  return {.name = name,
          .kind = OptionKind::integer,
          .low = low,
          .high = 1 << 20,
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
  static const std::vector<OptionSpec> specs = {
      limit("inductor-reads", "4", 0,
            "a value with several readers that reads more tensors is written to memory",
            "config.realize_reads_threshold"),
      limit("inductor-gathered-reads", "8", 0, "the same of a value with one reader",
            "config.realize_acc_reads_threshold"),
      limit("inductor-operations", "30", 1,
            "a value that takes more operations, those before it with it, is written to memory",
            "config.realize_opcount_threshold"),
      limit("inductor-unrolled", "8", 1, "terms of a reduction that is written out, at most",
            "config.unroll_reductions_threshold"),
      limit("inductor-nests", "64", 1, "written values of a kernel, at most",
            "config.max_fusion_size"),
      limit("inductor-shared-bytes", "10", 0,
            "bytes that two kernels share, from which on they are fused where neither reads the "
            "other",
            "config.score_fusion_memory_threshold"),
      yes_or_no("inductor-overlap",
                "element-wise kernels that read the same tensors at other indices may be fused",
                "config.min_overlap_ratio"),
      yes_or_no("inductor-reorder", "at last, loops may be put in the order of another kernel's",
                "config.loop_ordering_after_fusion"),
      yes_or_no("inductor-phases", "few long sums down columns are taken by two kernels",
                "config.split_reductions"),
      {.name = "inductor-products",
       .kind = OptionKind::choice,
       .names = {"points", "ridge"},
       .standard = "points",
       .help = "contractions that are calls of a library: of more points than elements, or above "
               "the ridge point of f32"}};
  return specs;
}

Options options_of(const Settings& s) {
  Options o;
  o.reads = s.integer("inductor-reads");
  o.gathered_reads = s.integer("inductor-gathered-reads");
  o.operations = s.integer("inductor-operations");
  o.unrolled = s.integer("inductor-unrolled");
  o.nests = s.integer("inductor-nests");
  o.shared_bytes = s.integer("inductor-shared-bytes");
  o.overlap = s.text("inductor-overlap") == "yes";
  o.reorder = s.text("inductor-reorder") == "yes";
  o.phases = s.text("inductor-phases") == "yes";
  o.kernels.products = s.choice("inductor-products", stitching::products_from_name);
  return o;
}

}  // namespace tilewright::inductor
