// A network as a program: a plan of many kernels, each compiled once for all launches that differ
// in names alone, run one after the other over one arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/arena.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "harness/verified_kernel.h"

namespace tilewright::harness {

/// What a program is made of.
struct ProgramPlan {
  Setting setting;  ///< of the rewritten workload that the plan is of
  Plan plan;
  nlohmann::ordered_json parts;    ///< as SplitPlan has them; null: planned as a whole
  std::vector<std::string> notes;  ///< what models refused
};
/// The request's own plan, or what --split says. Else the model plans the whole; where it refuses,
/// and of many operators on a machine of caches our planner, parts: a contraction or sum and what
/// follows it element by element (cut_followed). Parts are planned by the model named, else by the
/// planning model; what that refuses, by whichever of the others moves the fewest bytes, at last by
/// the operators' own loops. A Reason where even that does not fit; throws InputError for bad
/// input.
Result<ProgramPlan> program_plan(const Request& request, const std::optional<std::string>& split);

/// A kernel of a program, under names of its own (without_names).
struct ProgramKernel {
  std::shared_ptr<const Workload> workload;
  Kernel plan;
  Schedule schedule;
  std::shared_ptr<codegen::Emitted> emitted;
  /// Seconds by the planning model; `again`: where its tensors are in a core's caches already.
  struct Seconds {
    std::optional<double> predicted = {}, again = {};
  };
  Seconds shared = {};  ///< on all threads
  Seconds alone = {};   ///< left to one of several threads
  std::optional<double> least() const {
    return alone.predicted && (!shared.predicted || *alone.predicted < *shared.predicted)
               ? alone.predicted
               : shared.predicted;
  }
  std::optional<std::int64_t> bytes = {};  ///< that it moves from and to home, by exact
  std::unique_ptr<VerifiedKernel> verified = {};
  std::unique_ptr<codegen::TargetKernel> loaded = {};  ///< where nobody asked for verification
  codegen::TargetKernel& kernel() const { return verified ? verified->kernel() : *loaded; }
  bool on_network_values = false;  ///< verified on what it reads there, not on drawn inputs
  /// The model's other choices, best first: each is timed, too, and the fastest runs.
  std::vector<ProgramKernel> others = {};
  bool tuned = false;  ///< one of them it is
};

/// One launch of it.
struct Launch {
  std::size_t kernel = 0;            ///< position in Program::kernels
  std::string name;                  ///< of the plan's kernel
  std::string by;                    ///< the model that proposed it; empty: none
  std::vector<OpId> operators;       ///< of the whole
  std::vector<TensorId> tensors;     ///< by the kernel's TensorId: the whole's
  std::vector<double> seconds = {};  ///< of each timed run
};

struct Program {
  std::shared_ptr<const Workload> workload;
  std::vector<ProgramKernel> kernels;
  std::vector<Launch> launches;
  std::vector<std::string> notes;
  int threads = 1;  ///< that may share a launch
  /// What a kernel would copy into its result may lie there already: kernels for threads of this
  /// machine find out.
  bool joins_in_place = false;
};

/// The plan's kernels, emitted for the request's target and threads. A kernel that the target
/// refuses is planned again, operator by operator, and `notes` say so. A Reason where the target
/// refuses that too. `tune` choices of the planning model at most are others of each kernel.
Result<Program> program_of(const Request& request, const ProgramPlan& made, std::size_t tune = 0);

/// Positions in Program::launches in the order in which they run: first the `prepared` ones that
/// depend on weights alone and run once.
struct RunOrder {
  std::vector<std::size_t> launches;
  std::size_t prepared = 0;
};
RunOrder run_order(const Program& program);

/// How long every tensor that lies between launches is needed; `tensors` says which they are.
std::vector<Lifetime> lifetimes(const Program& program, std::vector<TensorId>& tensors);

/// Where tensors between launches lie.
struct HandedOn {
  std::vector<TensorId> kept;         ///< what launches make once, in memory of its own
  std::vector<TensorId> tensors;      ///< the others, in one arena
  std::vector<std::int64_t> offsets;  ///< of these
  std::int64_t bytes = 0;             ///< of the arena
  std::int64_t bytes_alone = 0;       ///< of these, each in memory of its own
};
HandedOn handed_on(const Program& program);

/// Predicted seconds of every launch among the others: between its kernel's two predictions, by
/// the share of its bytes that a core's last cache still has of the launches before (of a tensor
/// that launches read in pieces, these). What a thread reads and another has written comes from
/// that one's cache: all of it, or a part where it reads a part; nothing where threads share both
/// launches along the same dimension. On one thread or on all, whichever is less. Joins of what
/// lies in its place take nothing. A GPU's launch waits for its instructions, where kernels are
/// built and those that have run since have put them out of the multiprocessors' caches.
/// `alone`: of each launch in runs of its own, as a GPU's profile times it.
std::vector<std::optional<double>> predicted_seconds(const Program& program, const Machine& m,
                                                     bool alone = false);

/// Compiles all kernels, several at a time. A Reason where the compiler fails.
std::optional<Reason> build_kernels(Program& program, const codegen::Target& target,
                                    bool for_device, const Progress& progress);
/// Verifies every kernel on inputs drawn by seed, and where these make no numbers on those that it
/// has in the network: `values`, by the whole's TensorId. Weights that are all equal, as synthetic
/// models have them, would show less. `worst` becomes the largest relative error.
std::optional<Reason> verify_kernels(Program& program,
                                     const std::shared_ptr<codegen::Device>& device,
                                     const TensorValues& values, std::uint64_t seed,
                                     const Progress& progress, double& worst);

/// How verify_launches has a program run: one launch, by its place in the order, and the elements
/// of a tensor of the whole as they are then.
struct Stepping {
  std::function<Result<double>(std::size_t)> run;
  std::function<Result<std::vector<std::byte>>(TensorId)> read;
};
/// Every launch in that order, on what those before it have left: held against the reference of
/// these inputs, as kernels alone are. Small errors that a network makes large (a softmax of sums
/// of 1e9) do not add up here. Before, the launches' workloads together are evaluated in float64,
/// which must make `expected`. A Reason where a launch is wrong, or cannot be verified. `inputs`
/// and `expected` are by the whole's TensorId. Cost: about three evaluations of the network.
std::optional<Reason> verify_launches(const Program& program, std::span<const std::size_t> order,
                                      TensorValues inputs, const TensorValues& expected,
                                      const Stepping& device);

/// What a right program's outputs may be off by, relative to the largest: the square root of the
/// type's unit roundoff. Kernels alone are held to what rounding explains, element by element.
double tolerance_of(DType type);
/// What another runtime makes of the same inputs, by TensorId (empty: not known), against the
/// reference: within the tolerance of the whole, or off by no more than four times what rounding
/// alone has `moved` ours by (relative to the largest; 0: ours is within the tolerance), or than
/// rounding explains of the whole network, element by element. A Reason where it is none of these;
/// `by_rounding` says whether it is not the first. Cost: of the last two to three evaluations.
std::optional<Reason> differs(const Workload& w, const TensorValues& inputs,
                              const TensorValues& expected, const TensorValues& theirs,
                              double moved, bool& by_rounding);

/// What `run` answers of a network: every kernel verified alone against the reference evaluator on
/// drawn inputs, the whole end to end on inputs drawn by seed, seconds of
/// the whole and of every launch; for an ONNX file also what onnxruntime makes of the same inputs,
/// where a Python has it. `device` is device_for() the request.
Answer run_program(const Request& request, const RunOptions& options,
                   const std::shared_ptr<codegen::Device>& device);

}  // namespace tilewright::harness
