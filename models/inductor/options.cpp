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

}  // namespace

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = {
      limit("inductor-reads", "4", 0,
            "a value with several readers is written to memory where it reads more tensors than "
            "this",
            "config.realize_reads_threshold"),
      limit("inductor-gathered-reads", "8", 0,
            "a value with one reader is written to memory where it reads more tensors "
            "than this",
            "config.realize_acc_reads_threshold"),
      limit("inductor-operations", "30", 1,
            "a value is written to memory where it takes more operations than this, with those of "
            "the values that it is made of",
            "config.realize_opcount_threshold"),
      limit("inductor-unrolled", "8", 1,
            "a reduction of at most this many terms is written out without a loop",
            "config.unroll_reductions_threshold"),
      limit("inductor-nests", "64", 1, "values that a kernel writes at most",
            "config.max_fusion_size"),
      limit("inductor-shared-bytes", "10", 0,
            "two kernels of which neither reads the other are fused where they share at least "
            "this many bytes",
            "config.score_fusion_memory_threshold"),
      yes_or_no("inductor-overlap",
                "element-wise kernels that read the same tensors at different indices may be "
                "fused",
                "config.min_overlap_ratio"),
      yes_or_no("inductor-reorder",
                "in a last round, loops may be reordered so that two kernels can be fused",
                "config.loop_ordering_after_fusion"),
      yes_or_no("inductor-phases", "a few long sums along columns are divided into two kernels",
                "config.split_reductions"),
      {.name = "inductor-products",
       .kind = OptionKind::choice,
       .names = {"points", "ridge"},
       .standard = "points",
       .help = "contractions that are left to a library. points: those with more iterations than "
               "elements; ridge: those whose intensity is above the ridge point of f32"}};
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
  // The explorer's compiler calls a function wrongly whose result is a template that nothing has
  // used yet.
  static_assert(sizeof(std::optional<stitching::Products>) > 0);
  o.kernels.products = s.choice("inductor-products", stitching::products_from_name);
  return o;
}

}  // namespace tilewright::inductor
