// The experiments that the library carries: one YAML file a table or figure of a paper.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/ir/document.h"
#include "harness/answer.h"
#include "harness/verbs.h"

namespace tilewright::harness {

/// An experiment's file. What depends on the method stays a document that the method reads.
struct Experiment {
  std::string id;      ///< "chimera/fig8d"
  std::string title;
  std::string source;  ///< paper, section, figure
  std::string method;  ///< "validate", "formulas", "reuse", "panels", "bounds", "counters", "blocks"
  std::string about;   ///< what is done here and how it differs from the paper
  std::string where;   ///< the file, for errors
  std::shared_ptr<const DocumentValue> document;
};

/// Every experiment, read. Throws InputError for a file that is wrong.
const std::vector<Experiment>& experiments();
/// Throws InputError with the nearest id.
const Experiment& find_experiment(std::string_view id);

/// What a method found: the result's document (with "holds"), the points as CSV, and a report's text.
struct Reproduced {
  nlohmann::ordered_json result;
  std::string csv;
  std::string report;  ///< Markdown
  bool holds = false;
  std::string reason;  ///< what does not hold
};
/// It does not hold, for one more reason.
void fail(Reproduced& done, const std::string& reason);
/// What an experiment asks about: a workload on a machine.
Request request_for(const std::string& workload, const std::string& machine);

/// Chimera's predictions against the simulator over drawn tilings; `paper` may give the paper's R².
Reproduced reproduce_validation(const Experiment& e, const Request& request,
                                const ReproduceOptions& options);
/// The model's movement and footprint of each tensor against the paper's formulas, at several shapes.
Reproduced reproduce_formulas(const Experiment& e);
/// The loops along which each tensor is reused under every order.
Reproduced reproduce_reuse(const Experiment& e);

/// The bounds by buffer size, with a paper's minima and measurements beside them.
Reproduced reproduce_bounds(const Experiment& e);
/// PolyBench's kernels simulated, against counted misses that lie in a folder outside the library.
Reproduced reproduce_counters(const Experiment& e, const Request& request,
                              const ReproduceOptions& options);
/// A tiled product on a GPU by size, with what hardware counted beside it.
Reproduced reproduce_blocks(const Experiment& e, const Request& request);
/// Why it cannot: nothing where its data are there.
std::optional<std::string> counters_missing(const ReproduceOptions& options);
/// MCFuser's: section II-A's ratio, the counts of the space, the compared works, the rows of a
/// configuration table with both models' plans, tuning times beside ours. "table" and "columns" in the
/// result hold the cells.
Reproduced reproduce_intensity(const Experiment& e);
Reproduced reproduce_space(const Experiment& e);
Reproduced reproduce_works(const Experiment& e);
Reproduced reproduce_configurations(const Experiment& e);
Reproduced reproduce_tuning(const Experiment& e);
/// Eq. (1) against the shared memory that the emitted kernels of drawn candidates ask for, in the
/// quadrants of Fig. 10; where nvcc is, ptxas says the same of a sample.
Reproduced reproduce_shared(const Experiment& e);
/// `compare` over many workloads, a row a plan. Exact and the simulator must agree.
Reproduced reproduce_comparison(const Experiment& e);

/// Chimera's: peaks over bandwidths and the shares of operators; rows of a configuration table with the
/// model's plan and what small tiles compute again; how long searches take.
Reproduced reproduce_devices(const Experiment& e);
Reproduced reproduce_chains(const Experiment& e);
Reproduced reproduce_searches(const Experiment& e);
/// Chains fused against a kernel an operator, both planned over every level: simulated hit rates and
/// traffic by level; times that the model predicts, the compute's at the machine's peak included.
Reproduced reproduce_levels(const Experiment& e, const Request& request);
Reproduced reproduce_fusion(const Experiment& e, const Request& request);

/// Chains on an emulated NPU, fused and with a kernel an operator, planned over the core's paths:
/// simulated times of verified programs.
Reproduced reproduce_npu_fusion(const Experiment& e, const Request& request);

/// What experiments/gpu has recorded, beside a paper's: times over PyTorch's, MCFuser's predicted
/// against measured times, predicted against counted bytes.
bool is_recorded(std::string_view method);
/// Why there is none here; nothing where there is.
std::optional<std::string> recording_missing(const Experiment& e, const ReproduceOptions& options);
Reproduced reproduce_speedups(const Experiment& e, const ReproduceOptions& options);
Reproduced reproduce_times(const Experiment& e, const ReproduceOptions& options);
Reproduced reproduce_traffic(const Experiment& e, const ReproduceOptions& options);
/// Recorded plans simulated again: bytes from memory.
Reproduced reproduce_memory(const Experiment& e, const Request& request,
                            const ReproduceOptions& options);
/// Where an experiment's recording lies: in --data, else in experiments/results.
std::string recording_path(const Experiment& e, const ReproduceOptions& options);
/// The device, the day and the command of a recording, in its result and its report.
void add_provenance(Reproduced& done, const Field& recording, const std::string& path);

/// The methods' only way to a number of the paper's: printed beside ours, never used.
struct ExperimentFile {
  std::string_view name;  ///< "chimera/fig8d"
  std::string_view text;
};
std::span<const ExperimentFile> experiment_files();

}  // namespace tilewright::harness
