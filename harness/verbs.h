// The verbs, as functions: the command line and Python call these and only print. Each returns the
// JSON document of design/interface.md, throws InputError for bad input, and says no by
// Status::refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/answer.h"
#include "harness/request.h"

namespace tilewright::harness {

// ---- What is there ------------------------------------------------------------------------------
Answer list_models();
Answer list_machines();
Answer show_machine(const Request& request, const std::optional<std::string>& out);
Answer list_workloads();
/// The request's workload as a workload file, also written to `out`. Throws InputError.
Answer show_workload(const Request& request, const std::optional<std::string>& out);
/// Usable here or not, and why: looks for a compiler and the processor's instruction sets.
Answer list_targets();
Answer list_meters();
/// What works on this machine and what is missing, with a command that would bring it: the host as
/// a machine, every target and every meter, and what to try next. Refused where the target that
/// verbs take by themselves cannot run a kernel. Cost: that of list_targets and list_meters.
Answer doctor();

// ---- Files of others
// -----------------------------------------------------------------------------
struct ImportOptions {
  std::vector<std::string> bind = {};   ///< "batch=1,seq=128"
  bool skip = false;                    ///< import what is supported
  std::optional<std::string> out = {};  ///< the workload file to write
};
/// The request's subject, an .onnx file, as a workload: what it has, what is said otherwise, what
/// is skipped. Cost: milliseconds to seconds, by nodes; weights are not read.
Answer import_model(const Request& request, const ImportOptions& options);

// ---- Models -------------------------------------------------------------------------------------
/// A workload: every order asked for (--order; all by default) priced, ranked by volume, the tiles
/// solved for the level's capacity where --tiles is not given. A plan with `resolved`: the schedule
/// in the plan's notation. Cost: about a millisecond for the 24 orders of a GEMM chain.
Answer explain(const Request& request, bool resolved = false);
/// The same; with models that fuse graphs, the drawing of the graph written to `out` (.dot, or
/// .svg through Graphviz; refused where that is not here).
Answer explain(const Request& request, bool resolved, const std::optional<std::string>& out);

/// The least bytes by buffer size, proven and attainable, each operator alone and fused: the ski
/// slope, its minima, and the size from which on fusion pays. A machine's levels are marked where
/// -m names one. Cost: a millisecond (a product of 4096^3) to tens of them (a chain of 32k
/// extents).
Answer explain_curve(const Request& request);

/// The model's best plan, its volume and memory, the proven and the attainable bound and the gaps
/// to them. Writes the plan file to `out` where given. Refused where nothing fits. Cost:
/// milliseconds.
Answer plan(const Request& request, const std::optional<std::string>& out = {});

/// One model's price of a plan (convention 12). Refused where the model does not price such a plan.
Answer predict(const Request& request);

/// Every model's plan (`models`: "all", or names with commas) priced by each of them, counted by
/// exact and by the simulator at the level as a scratchpad, with the gap to the bound and where
/// each price differs from exact's count, by tensor and cause. A plan whose walk has more than
/// `most_steps` steps (by default about five seconds) is not simulated. Refused where no model has
/// a plan.
Answer compare(const Request& request, const std::string& models = "all", double most_steps = 2e7);

struct WalkOptions {
  std::optional<std::string> trace = {};       ///< a trace's file instead of a plan
  std::optional<std::string> save_trace = {};  ///< where to write what the caches are touched with
  std::optional<std::string> csv = {};         ///< of --curve, every size at which anything changes
  bool curve = false;                          ///< misses of LRU caches of every size
  bool attribute = false;                     ///< misses by kind, who evicted whom, which loop pays
  std::optional<std::string> occupancy = {};  ///< where to write who holds what, .csv or .json
  std::optional<std::int64_t> stride = {};    ///< of occupancy, accesses
  std::optional<std::int64_t> computes = {};  ///< that the walk ends after
  bool skip = true;                           ///< passes over iterations that repeat themselves
  std::optional<int> cores = {};              ///< that blocks are dealt to (SimulateOptions::cores)
  // On a GPU, see gpu::Options.
  std::optional<std::string> schedule = {};  ///< timed, lockstep, serial
  std::optional<std::int64_t> blocks_per_sm = {};
  std::optional<int> partitions = {};
  std::optional<double> jitter = {};
  std::optional<std::int64_t> sample_waves = {};
};
/// Simulated traffic of a plan, or of a trace, at every boundary. Refused for an illegal plan and
/// for one that overflows a software-managed level (`fits` false). Cost: one visit a line touched.
Answer simulate(const Request& request, const WalkOptions& options = {});

/// A machine file of this machine whose numbers are measured, written to `out`
/// (harness/calibrate.h). Refused where numbers scatter. Cost: a minute or two.
Answer calibrate(const Request& request, const std::string& out);

// ---- Targets ------------------------------------------------------------------------------------
/// The request's `target` and `target_options` say what for; without a target it is the first of
/// the registry.
///
/// Writes the source and how to build it into the folder `out`. Refused where the target or the
/// schedule is not available.
Answer emit(const Request& request, const std::string& out, bool explain = false);

struct RunOptions {
  std::optional<std::string> target = {};  ///< before the request's
  std::optional<double> seconds = {};      ///< timing goes on for about as long; none: the target's
  bool build_only = false;                 ///< stop before a device is needed
  /// Instead of timing, the verified kernel once more, for a profiler that starts when told to.
  bool count = false;
  /// So many of the plans that the model offers are timed, and the fastest one is the answer; none:
  /// the model's own alone.
  std::optional<std::int64_t> tune = {};
  /// The file that their times are kept in; those that are there already are not measured again.
  std::optional<std::string> tune_log = {};
  // Of a network (harness/program.h).
  std::optional<std::string> split = {};   ///< its parts, as plan_in_parts takes them
  bool profile = false;                    ///< print a line a kernel; the answer has them anyway
  std::optional<std::string> trace = {};   ///< the trace file to write
  std::optional<std::string> beside = {};  ///< a Python that has onnxruntime; "none": not asked
};
/// Emits, builds, verifies against the reference evaluator, times. Refused, untimed, where
/// verification fails. One thread unless the request says more (convention 10).
Answer run(const Request& request, const RunOptions& options = {});

/// Many runs: of every line of the file `batch`, a JSON object of a request's options (their names
/// as in Python, the subject's "workload" or "plan", and "name"), what it does not say taken from
/// `request` and `options`. All are emitted and built first, on --threads threads, then run one
/// after the other. Each answer is added to the file `out`, where given, as a line, as soon as it
/// is there.
/// {"results": [the answers of run, each with its "name"; one that says no has its "reason"]}.
/// Refused where none succeeded. Throws InputError for a line that is no such object.
Answer run_batch(const Request& request, const RunOptions& options, const std::string& batch,
                 const std::optional<std::string>& out = {});

struct MeasureOptions {
  std::optional<std::string> target = {};  ///< before the request's
  std::string meter = "cachegrind";
  bool executed = false;    ///< also the addresses executed, through simulated caches
  bool build_only = false;  ///< ncu: stop before a device is needed
  bool cold_only = false;   ///< ncu: count only with caches emptied before every kernel
};
/// Measured traffic of the plan's kernel, built and verified before. Refused where the meter is not
/// usable here, saying what is missing. With `executed`, why the count differs from the simulation
/// of the plan, by cause. Cost: cachegrind runs the kernel some hundred times slower, twice. By ncu
/// also "predicted", what models say of the plan, and "counted" under both settings of the tool's
/// cache control.
Answer measure(const Request& request, const MeasureOptions& options = {});

/// The same of many plans by ncu, in one process of it: as run_batch, answers to `out` once all are
/// counted.
Answer measure_batch(const Request& request, const MeasureOptions& options,
                     const std::string& batch, const std::optional<std::string>& out = {});

// ---- Validation ---------------------------------------------------------------------------------
struct ValidateOptions {
  std::vector<std::string> orders = {};  ///< empty: the model's best order
  std::int64_t samples = 60;
  std::string truth = "simulator";
  std::optional<double> min_r2 = {};  ///< about y = x; below it the answer is refused
  bool beyond = false;                ///< tilings past half the capacity too, in their own block
  std::optional<std::string> spill = {};     ///< an intermediate pinned to home
  std::optional<std::string> csv = {};       ///< the points
  std::optional<std::string> recorded = {};  ///< truth ncu: a file of experiments/gpu/counters
  Once once = {};  ///< keeps tilings that are finished; none: all are computed
};
/// Predicted against true bytes over N seeded tilings (convention 8). Points are simulated on
/// --threads threads; the answer does not depend on how many.
Answer validate(const Request& request, const ValidateOptions& options);

}  // namespace tilewright::harness
