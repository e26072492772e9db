// The ways to reproduce, a line each. Hand-written, so that nothing depends on what a linker keeps.
#include <algorithm>

#include "experiments/report/experiment.h"

namespace tilewright::harness {
namespace {

using Options = ReproduceOptions;

/// A method that needs nothing but the experiment's file.
template <Reproduced (*F)(const Experiment&)>
Reproduced plain(const Experiment& e, const Run&) {
  return F(e);
}

Reproduced not_at_all(const Experiment& e, const Run&) {
  TW_CHECK(false, "an experiment that cannot be run: " + e.id);
  return {};
}

std::optional<std::string> what_it_needs(const Experiment& e, const Options&) {
  return "it needs " + e.needs.value_or("");
}

constexpr Method kMethods[] = {
    // What a model says, beside what its paper prints.
    {"devices", Reproduction::analysis, plain<reproduce_devices>},
    {"chains", Reproduction::analysis, reproduce_chains},
    {"formulas", Reproduction::analysis, plain<reproduce_formulas>},
    {"reuse", Reproduction::analysis, plain<reproduce_reuse>},
    {"fusion", Reproduction::analysis, reproduce_fusion},
    {"searches", Reproduction::analysis, reproduce_searches},
    {"intensity", Reproduction::analysis, plain<reproduce_intensity>},
    {"space", Reproduction::analysis, plain<reproduce_space>},
    {"cluster-space", Reproduction::analysis, plain<reproduce_cluster_space>},
    {"works", Reproduction::analysis, plain<reproduce_works>},
    {"configurations", Reproduction::analysis, reproduce_configurations},
    {"tuning", Reproduction::analysis, reproduce_tuning},
    {"shared", Reproduction::analysis, reproduce_shared},
    {"bounds", Reproduction::analysis, plain<reproduce_bounds>},
    {"graphs", Reproduction::analysis, plain<reproduce_graphs>},
    {"units", Reproduction::analysis, plain<reproduce_units>},
    {"steps", Reproduction::analysis, reproduce_steps},
    {"cluster-rules", Reproduction::analysis, plain<reproduce_cluster_rules>},
    {"cluster-plans", Reproduction::analysis, reproduce_cluster_plans},
    {"gir", Reproduction::analysis, reproduce_gir},
    {"gir-text", Reproduction::analysis, plain<reproduce_gir_text>},
    {"gir-merging", Reproduction::analysis, plain<reproduce_gir_merging>},
    {"breakdown", Reproduction::analysis, reproduce_breakdown},
    {"kernels", Reproduction::analysis, reproduce_kernels},
    {"graph-speedups", Reproduction::analysis, reproduce_graph_speedups},
    {"graph-search", Reproduction::analysis, reproduce_graph_search},
    // Held against a simulation.
    {"validate", Reproduction::simulation, reproduce_validation},
    {"panels", Reproduction::simulation, reproduce_panels},
    {"levels", Reproduction::simulation, reproduce_levels},
    {"npu-fusion", Reproduction::simulation, reproduce_npu_fusion},
    {"comparison", Reproduction::simulation, reproduce_comparison},
    {"blocks", Reproduction::simulation, reproduce_blocks},
    {"counters", Reproduction::simulation, reproduce_counters, counters_missing, counters_files},
    {"memory", Reproduction::simulation, reproduce_memory, recording_missing, recording_files},
    // What was counted and timed on another machine.
    {"speedups", Reproduction::recorded, reproduce_speedups, recording_missing, recording_files},
    {"times", Reproduction::recorded, reproduce_times, recording_missing, recording_files},
    {"traffic", Reproduction::recorded, reproduce_traffic, recording_missing, recording_files},
    {"graph-times", Reproduction::recorded, reproduce_graph_times, recording_missing,
     recording_files},
    {"graph-counters", Reproduction::recorded, reproduce_graph_counters, recording_missing,
     recording_files},
    {"graph-ranking", Reproduction::recorded, reproduce_graph_ranking, recording_missing,
     recording_files},
    {"gir-ranking", Reproduction::recorded, reproduce_gir_ranking, recording_missing,
     recording_files},
    {"side-by-side", Reproduction::recorded, reproduce_side_by_side, recording_missing,
     recording_files},
    {"contest", Reproduction::recorded, reproduce_contest, recording_missing, recording_files},
    // Built and timed here.
    {"ablation", Reproduction::measurement, reproduce_ablation, compiler_missing},
    {"needs", Reproduction::needs, not_at_all, what_it_needs},
};

}  // namespace

std::string_view name_of(Reproduction r) {
  switch (r) {
    case Reproduction::analysis:
      return "analysis";
    case Reproduction::simulation:
      return "simulation";
    case Reproduction::recorded:
      return "recorded";
    case Reproduction::measurement:
      return "measurement";
    case Reproduction::needs:
      return "needs";
  }
  return "";
}

std::span<const Method> methods() { return kMethods; }

const Method& method_of(const Experiment& e) {
  std::vector<std::string> names;
  for (const Method& m : kMethods) {
    if (m.name == e.method) return m;
    names.emplace_back(m.name);
  }
  const std::string near = nearest(e.method, names);
  throw InputError({.where = e.where,
                    .field = "method",
                    .value = e.method,
                    .problem = "is not a method",
                    .accepted = join(names) + (near.empty() ? "" : " (nearest: " + near + ")")});
}

std::optional<std::string> missing(const Experiment& e, const ReproduceOptions& options) {
  const Method& m = method_of(e);
  return m.missing == nullptr ? std::nullopt : m.missing(e, options);
}

std::string fingerprint_of(const Experiment& e, const ReproduceOptions& options) {
  const Method& m = method_of(e);
  std::string all = build_hash() + "\n" + e.text + "\n";
  all += options.samples ? std::to_string(*options.samples) : "-";
  all += "\n" + options.size.value_or("-");
  if (m.files != nullptr)
    for (const std::string& path : m.files(e, options))
      all += "\n" + path + " " + hash_text(read_file(path, "--data"));
  // Several as one depend on their parts' files.
  if (e.method == "panels")
    for (const Field& panel : Field(*e.document, e.where).at("panels").items())
      all += "\n" + fingerprint_of(find_experiment(panel.text()), options);
  return hash_text(all);
}

}  // namespace tilewright::harness
