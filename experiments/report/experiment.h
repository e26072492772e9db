// The experiments that the library carries: one YAML file a table or figure of a paper.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/document.h"
#include "experiments/report/chart.h"
#include "experiments/report/reproduce.h"
#include "harness/answer.h"
#include "harness/points.h"
#include "harness/verbs.h"

namespace tilewright::harness {

/// An experiment's file. What depends on the method stays a document that the method reads. A
/// paper's numbers are under keys that begin with `paper` (what others measured: `measured`):
/// methods print them beside ours and judge by them, and no number of ours depends on them (a test
/// changes them all).
struct Experiment {
  std::string id;  ///< "chimera/fig8d"
  std::string title;
  std::string source;  ///< paper, section, figure
  std::string method;  ///< a name of methods()
  std::string about;   ///< what is done here and how it differs from the paper
  std::optional<std::string> difference = {};  ///< why ours and the paper's numbers differ
  std::optional<std::string> needs = {};       ///< what the part that is not reproduced would need
  std::string where;                           ///< the file, for errors
  std::string text;                            ///< the file's
  std::shared_ptr<const DocumentValue> document;
};

/// Every experiment, read. Throws InputError for a file that is wrong.
const std::vector<Experiment>& experiments();
/// One file's. Throws InputError.
Experiment read_experiment(std::string_view text, const std::string& where);
/// Throws InputError with the nearest id.
const Experiment& find_experiment(std::string_view id);
/// The document of an experiment, its keys checked: those that every experiment has, and `keys`.
Field document_of(const Experiment& e, std::initializer_list<const char*> keys);

/// A number of ours beside one of the paper's.
struct Compared {
  std::string what;
  std::string unit;  ///< "", "%", "bytes", "seconds"
  std::optional<double> ours = {};
  std::string ours_source;  ///< "predicted (chimera)", "simulated (cache)", "measured (clock)"
  std::optional<double> paper = {};
  std::string paper_source = {};  ///< empty: the experiment's
};

/// What a method found: the result's document (with "holds"), the points as CSV, and a report's
/// text.
struct Reproduced {
  nlohmann::ordered_json result;
  std::string csv;
  std::string report;  ///< Markdown
  bool holds = false;
  std::string reason;  ///< what does not hold
  std::vector<Compared> compared = {};
  std::string note = {};  ///< what a reader of the picture must know of its labels
  Chart chart = {};       ///< empty: the picture is of what was compared
};
/// It does not hold, for one more reason.
void fail(Reproduced& done, const std::string& reason);
/// What an experiment asks about: a workload on a machine.
Request request_for(const std::string& workload, const std::string& machine);

/// How an experiment's numbers come about; of several, the one that costs most.
enum class Reproduction : std::uint8_t {
  analysis,     ///< models and closed forms, and the search's own time
  simulation,   ///< walks through simulated memories
  recorded,     ///< counters and clocks of a machine that a recording names
  measurement,  ///< kernels built, verified and timed on this machine
  needs,        ///< not at all: the file says what it would need
};
std::string_view name_of(Reproduction r);

/// What a method is given beside the experiment. It keeps what takes long point by point in
/// `points`.
struct Run {
  const Request& request;  ///< threads and progress
  const ReproduceOptions& options;
  Points& points;
};

/// A way to reproduce; `method:` of an experiment names it. Adding one: a function in a
/// reproduce_*.cpp, its line in methods.cpp.
struct Method {
  std::string_view name;
  Reproduction how;
  Reproduced (*run)(const Experiment&, const Run&);
  /// Why it cannot be run here; nothing where it can. Null: it always can.
  std::optional<std::string> (*missing)(const Experiment&, const ReproduceOptions&) = nullptr;
  /// The files that it reads beside the experiment's own. Null: none.
  std::vector<std::string> (*files)(const Experiment&, const ReproduceOptions&) = nullptr;
};
std::span<const Method> methods();
/// Throws InputError naming the experiment's file where there is no such method.
const Method& method_of(const Experiment& e);
/// Why the experiment cannot be run here: its method says so, or it has none.
std::optional<std::string> missing(const Experiment& e, const ReproduceOptions& options);
/// A hash of all that an experiment's numbers depend on: its file, what it reads, the options, the
/// build.
std::string fingerprint_of(const Experiment& e, const ReproduceOptions& options);

/// Runs the experiment and writes its folder: report.md, points.csv, figure.svg where there is a
/// number to draw and, last, result.json, which marks it finished. The journal of its points,
/// journal.jsonl, is gone on with where the experiment was not finished. A folder that is finished
/// is begun anew, or, with `keep`, left as it is (the answer then has "already_there": true).
/// `beside`: the folder above, where other experiments' journals may lie.
Answer reproduce_into(const Experiment& e, const Request& request, const ReproduceOptions& options,
                      const std::string& folder, bool keep, const std::string& beside);
/// Several, one after the other, each in `folder`/ID, and an index. See reproduce.
Answer reproduce_all(std::span<const Experiment* const> all, const Request& request,
                     const ReproduceOptions& options, const std::string& folder);

/// Chimera's predictions against the simulator over drawn tilings; `paper` may give the paper's R².
Reproduced reproduce_validation(const Experiment& e, const Run& run);
/// The model's movement and footprint of each tensor against the paper's formulas, at several
/// shapes.
Reproduced reproduce_formulas(const Experiment& e);
/// The loops along which each tensor is reused under every order.
Reproduced reproduce_reuse(const Experiment& e);

/// The bounds by buffer size, with a paper's minima and measurements beside them.
Reproduced reproduce_bounds(const Experiment& e);
/// PolyBench's kernels simulated, against counted misses that lie in a folder outside the library.
Reproduced reproduce_counters(const Experiment& e, const Run& run);
/// A tiled product on a GPU by size, with what hardware counted beside it.
Reproduced reproduce_blocks(const Experiment& e, const Run& run);
/// Why it cannot: nothing where its data are there.
std::optional<std::string> counters_missing(const Experiment& e, const ReproduceOptions& options);
std::vector<std::string> counters_files(const Experiment& e, const ReproduceOptions& options);
/// PowerFusion's: workloads' kernels by class, bytes and GIR; GIRs written out, rewritten; a
/// recording's schedules ranked by their trees.
Reproduced reproduce_gir(const Experiment& e, const Run& run);
Reproduced reproduce_gir_text(const Experiment& e);
Reproduced reproduce_gir_merging(const Experiment& e);
Reproduced reproduce_gir_ranking(const Experiment& e, const Run& run);
/// Several models' plans of every workload beside one another, with what recordings measured; and
/// what must hold of recordings of models beside other compilers.
Reproduced reproduce_side_by_side(const Experiment& e, const Run& run);
Reproduced reproduce_contest(const Experiment& e, const Run& run);
/// FlashFuser's: candidates rule by rule; chains' best plans in clusters and the search's time.
Reproduced reproduce_cluster_rules(const Experiment& e);
Reproduced reproduce_cluster_plans(const Experiment& e, const Run& run);
/// MCFuser's: section II-A's ratio, the counts of the space, the compared works, the rows of a
/// configuration table with both models' plans, tuning times beside ours. "table" and "columns" in
/// the result hold the cells.
Reproduced reproduce_intensity(const Experiment& e);
Reproduced reproduce_space(const Experiment& e);
Reproduced reproduce_works(const Experiment& e);
Reproduced reproduce_configurations(const Experiment& e, const Run& run);
Reproduced reproduce_tuning(const Experiment& e, const Run& run);
/// Eq. (1) against the shared memory that the emitted kernels of drawn candidates ask for, in the
/// quadrants of Fig. 10; where nvcc is, ptxas says the same of a sample.
Reproduced reproduce_shared(const Experiment& e, const Run& run);
/// `compare` over many workloads, a row a plan. Exact and the simulator must agree.
Reproduced reproduce_comparison(const Experiment& e, const Run& run);

/// FlashFuser's: how many plans its pruning rules leave, in each reading.
Reproduced reproduce_cluster_space(const Experiment& e);

/// FusionStitching's: graphs and what they are made of; the printed table's sums and our own table
/// in its form; kernels of XLA's rule and stitched; speedups; how long the explorer takes by size.
Reproduced reproduce_graphs(const Experiment& e);
Reproduced reproduce_breakdown(const Experiment& e, const Run& run);
Reproduced reproduce_units(const Experiment& e);
Reproduced reproduce_steps(const Experiment& e, const Run& run);
Reproduced reproduce_kernels(const Experiment& e, const Run& run);
Reproduced reproduce_graph_speedups(const Experiment& e, const Run& run);
Reproduced reproduce_graph_search(const Experiment& e, const Run& run);

/// Chimera's: peaks over bandwidths and the shares of operators; rows of a configuration table with
/// the model's plan and what small tiles compute again; how long searches take.
Reproduced reproduce_devices(const Experiment& e);
Reproduced reproduce_chains(const Experiment& e, const Run& run);
Reproduced reproduce_searches(const Experiment& e, const Run& run);
/// Chains fused against a kernel an operator, both planned over every level: simulated hit rates
/// and traffic by level; times that the model predicts, the compute's at the machine's peak
/// included.
Reproduced reproduce_levels(const Experiment& e, const Run& run);
Reproduced reproduce_fusion(const Experiment& e, const Run& run);

/// Chains on an emulated NPU, fused and with a kernel an operator, planned over the core's paths:
/// simulated times of verified programs.
Reproduced reproduce_npu_fusion(const Experiment& e, const Run& run);

/// Chains on this processor with cost model, fusion and micro-kernel each on and off: measured
/// times.
Reproduced reproduce_ablation(const Experiment& e, const Run& run);
/// Why no kernel can be built here; nothing where one can.
std::optional<std::string> compiler_missing(const Experiment& e, const ReproduceOptions& options);

/// What experiments/gpu has recorded, beside a paper's: times over PyTorch's, MCFuser's predicted
/// against measured times, predicted against counted bytes.
/// Why there is none here; nothing where there is.
std::optional<std::string> recording_missing(const Experiment& e, const ReproduceOptions& options);
Reproduced reproduce_speedups(const Experiment& e, const Run& run);
Reproduced reproduce_times(const Experiment& e, const Run& run);
Reproduced reproduce_traffic(const Experiment& e, const Run& run);
/// Stitched graphs on a GPU beside other compilers: wall and kernel times; their bytes, predicted
/// and counted.
Reproduced reproduce_graph_times(const Experiment& e, const Run& run);
Reproduced reproduce_graph_counters(const Experiment& e, const Run& run);
/// Their schedules' predicted and measured times: how well one ranks the other.
Reproduced reproduce_graph_ranking(const Experiment& e, const Run& run);
/// Recorded plans simulated again: bytes from memory.
Reproduced reproduce_memory(const Experiment& e, const Run& run);
/// Where an experiment's recording (one, or each of `recordings`) lies: in --data, else in
/// experiments/results of the working directory or of what the program came with.
std::string recording_path(const Experiment& e, const ReproduceOptions& options);
std::vector<std::string> recording_files(const Experiment& e, const ReproduceOptions& options);
/// The device, the day and the command of a recording, in its result and its report.
void add_provenance(Reproduced& done, const Field& recording, const std::string& path);

/// Several experiments as one.
Reproduced reproduce_panels(const Experiment& e, const Run& run);

/// A file of experiments/, embedded.
struct ExperimentFile {
  std::string_view name;  ///< "chimera/fig8d"
  std::string_view text;
};
std::span<const ExperimentFile> experiment_files();

}  // namespace tilewright::harness
