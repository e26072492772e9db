// What a target is: it makes kernels of schedules and runs them. One record a target, in
// registry.cpp; the harness emits, builds, loads, verifies and times through it and knows no target
// by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/availability.h"
#include "core/base/error.h"
#include "core/base/option.h"
#include "core/plan/launch_before.h"
#include "core/plan/schedule.h"
#include "core/plan/target_needs.h"
#include "core/plan/traffic.h"
#include "core/workload/workload.h"

namespace tilewright::codegen {

struct File {
  std::string name;  ///< in the folder that the user asks for; of a run's files the whole path
  std::string text;
};

/// What a timed kernel took.
struct Timing {
  std::vector<double> seconds;  ///< a run, one entry a turn; a turn may average over several runs
  std::int64_t runs = 0;        ///< in all turns
  /// GFLOP/s that the machine reached, measured in turn with the kernel; empty: the machine file's
  /// peak is what a speed is held against.
  std::vector<double> peak_gflops = {};
  std::string peak_source = {};
  nlohmann::ordered_json detail = nlohmann::ordered_json::object();  ///< further keys of the answer
};

/// Told now and then what is being done, and the fraction of it that is done.
using Progress = std::function<void(std::string_view what, double done)>;

/// A kernel on tensors that stay where they are, for runs without a look at anything else.
class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  /// One of `parts` parts of a run, by one of the kernel's threads (TargetKernel::threads): parts
  /// run in any order and side by side, those of one thread one after the other.
  virtual void run(int thread, int part, int parts) = 0;
  /// From the next run on the tensor lies there. Not one whose elements no run changes.
  virtual void place(TensorId tensor, void* elements) = 0;
};

/// A loaded kernel, whatever it runs on: what verification, timing and counting ask of it.
class TargetKernel {
 public:
  virtual ~TargetKernel() = default;
  /// Whether it reads or writes the tensor at home. Of others nothing is written or read.
  virtual bool needs(TensorId tensor) const = 0;
  /// The tensor's elements, row-major, Tensor::bytes() of them, to where the kernel runs and back.
  /// A Reason where the target failed.
  virtual std::optional<Reason> write(TensorId tensor, const void* elements) = 0;
  virtual std::optional<Reason> read(TensorId tensor, void* elements) = 0;
  /// From now on the tensor lies there, Tensor::bytes() bytes that whoever asks keeps; the kernel's
  /// own memory of it is given up. False: this target's kernels keep their tensors themselves.
  virtual bool place(TensorId /*tensor*/, void* /*elements*/) { return false; }
  /// One run on the tensors as they are. Returns the seconds that it took.
  virtual Result<double> run() = 0;
  /// Working memory of a thread, in bytes: what a run writes there before it reads it. 0: none, or
  /// the kernel keeps it to itself.
  virtual std::int64_t scratch_bytes() const { return 0; }
  /// From now on its working memory lies there, from a multiple of 4096 bytes, so many bytes a
  /// thread, at least scratch_bytes(); its own is given up. Kernels that run one after the other
  /// may share it, so that caches have it once. Not of what bound() has given before.
  virtual void share_scratch(std::shared_ptr<void> /*memory*/, std::int64_t /*bytes*/) {}
  /// How many threads the host may share a run of it among (BoundKernel::run); 1: it has no parts.
  virtual int threads() const { return 1; }
  /// The kernel on the tensors as they are now, which hold what no run changes; stays valid as long
  /// as both. Null: only run() runs it.
  virtual std::unique_ptr<BoundKernel> bound() { return nullptr; }

  /// Into an answer: what the last run showed beside its values.
  virtual void describe_run(nlohmann::ordered_json&) const {}
  /// What the last run did wrong though it ended: a race, an access out of bounds. `right`: its
  /// values are right.
  virtual std::optional<Reason> fault(bool /*right*/) const { return std::nullopt; }
  /// What the target's options ask to be kept of the last run.
  virtual std::vector<File> files() const { return {}; }
  /// Bytes that the last run moved; none: the target does not count.
  virtual std::optional<Traffic> counted() const { return std::nullopt; }
  /// Runs for about `budget` seconds; none: as long as the target finds right. Only where the
  /// target has a Clock.
  virtual Result<Timing> time(std::optional<double> budget, const Progress& progress);
  /// One more run, marked for a profiler that starts when told to.
  virtual std::optional<Reason> run_profiled();
};

/// Where kernels run one after the other, where that must be opened.
class Device {
 public:
  virtual ~Device() = default;
  virtual void describe(nlohmann::ordered_json& answer) const = 0;
  virtual bool faulted() const { return false; }  ///< nothing more works on it: open it again
  virtual bool hung() const { return false; }     ///< only the end of this process frees it
};

/// What a meter of this machine must know of a kernel that is a shared object: it exports
/// PREFIX_run and PREFIX_workspace.
struct HostObject {
  std::string prefix;
  int threads = 1;
  std::string isa;
};

struct NamedLaunch {
  std::string symbol;
  std::int64_t blocks = 1;
};

/// What timed launches of a sequence took.
struct SequenceTiming {
  Timing whole;                               ///< all of them
  std::vector<std::vector<double>> launches;  ///< of each: seconds a run
  std::string launches_timed_by = {};         ///< in the runs of the whole, or how else
};

/// Launches of loaded kernels, one after the other, over memory that they share: what a program of
/// a whole network runs on.
class LaunchSequence {
 public:
  virtual ~LaunchSequence() = default;
  /// Memory where the kernels run, kept as long as this, every byte 0xff, so that an element that
  /// is read and never written shows. From a multiple of 256 bytes. The host may read and write it
  /// by write() and read() alone.
  virtual Result<void*> take(std::int64_t bytes) = 0;
  virtual std::optional<Reason> write(void* to, const void* from, std::int64_t bytes) = 0;
  virtual std::optional<Reason> read(void* to, const void* from, std::int64_t bytes) = 0;
  /// One more launch, of a kernel that stays, on tensors there, by its TensorId. The kernel's own
  /// memory of its tensors is given up. A Reason where the kernel does not let itself be placed.
  virtual std::optional<Reason> add(TargetKernel& kernel, std::span<void* const> tensors) = 0;
  /// From the next run on a launch has that tensor there, Tensor::bytes() bytes that whoever asks
  /// keeps. A Reason where this target's launches stay on the memory that they were added with.
  virtual std::optional<Reason> place(std::size_t launch, TensorId tensor, void* elements) {
    static_cast<void>(launch), static_cast<void>(tensor), static_cast<void>(elements);
    return Reason{"launches stay on the memory that they were added with"};
  }
  /// Runs [first, last) for about `budget` seconds, or some times where one takes longer, to find
  /// which of them threads share. What they write is that of a run. A Reason where one failed.
  virtual std::optional<Reason> choose_parts(std::size_t first, std::size_t last, double budget) {
    static_cast<void>(first), static_cast<void>(last), static_cast<void>(budget);
    return std::nullopt;
  }
  /// The launches [first, last) once, in the order in which they were added. Returns seconds.
  virtual Result<double> run(std::size_t first, std::size_t last) = 0;
  /// Runs of them for about `budget` seconds.
  virtual Result<SequenceTiming> time(std::size_t first, std::size_t last, double budget,
                                      const Progress& progress) = 0;
};

/// A schedule as the target's source, until it runs.
class Emitted {
 public:
  virtual ~Emitted() = default;
  /// Into an answer: micro-kernels, tiles, notes.
  virtual void describe(nlohmann::ordered_json& answer) const = 0;
  /// What `emit` writes: the source, and what it takes to build it.
  virtual std::vector<File> files() const = 0;
  /// Into the answer of `emit` alone: how the files are built.
  virtual void describe_files(nlohmann::ordered_json&) const {}
  /// What the threads of each kernel do, for people, line by line; empty: the target does not say.
  virtual std::vector<std::string> program() const { return {}; }
  /// What is launched, in order, as a profiler names it.
  virtual std::vector<NamedLaunch> launches() const { return {}; }
  /// Right, but not in the form that the plan asks for, and why: a model's next choice that has
  /// its own form is likely to be faster. None: as the plan says.
  virtual std::optional<Reason> makeshift() const { return std::nullopt; }
  /// Of the instructions of all its launches; 0: they are not built, or the target does not say.
  virtual std::int64_t code_bytes() const { return 0; }
  /// Tensors whose tiles are copied once more when they are loaded or written; none: the target
  /// says nothing of that.
  virtual std::optional<std::vector<std::string>> packed() const { return std::nullopt; }

  /// Why what is built cannot run on this machine.
  virtual std::optional<Reason> cannot_run() const { return std::nullopt; }
  /// Builds for this machine's device or, without `for_device`, for the target's standard one. Safe
  /// from several threads for different sources. Into the answer goes what was built.
  virtual std::optional<Reason> build(bool for_device, nlohmann::ordered_json& answer) = 0;
  /// build(), with the shared object kept there. A Reason where the target's kernels are none.
  virtual Result<HostObject> build_object(const std::filesystem::path& object);
  /// After build(). `device` as Target::open gave it. The kernel may outlive this.
  virtual Result<std::unique_ptr<TargetKernel>> load(const std::shared_ptr<Device>& device,
                                                     nlohmann::ordered_json& answer) = 0;
};

/// Seconds that a target's time model gives, and the steps of the walk that found them, each about
/// a microsecond.
struct Predicted {
  double seconds = 0;
  std::int64_t steps = 0;
};

/// What a target's seconds are.
enum class Clock : std::uint8_t {
  none,       ///< nothing that says how fast the kernel is
  measured,   ///< on the hardware
  simulated,  ///< an emulator's, of the machine that it emulates
};

struct Target {
  std::string_view name;
  std::string_view summary;
  /// Usable here or not, and why.
  Availability (*here)();
  /// Of emitting, building, running; also in every answer's errors and help.
  std::span<const OptionSpec> (*options)();
  /// Of the records in micro_kernels.h, those of this MicroKernelRecord::target are its own.
  std::string_view micro_kernels;
  Clock clock = Clock::none;
  /// Kernels run on as many threads of this machine as the user says.
  bool threads = false;
  /// A Reason: what of the schedule cannot be emitted, and why. Throws InputError for options that
  /// no schedule could make right.
  Result<std::unique_ptr<Emitted>> (*emit)(const Schedule&, const Settings&, int threads);
  /// emit() of one kernel of a program, where launches of a sequence may overlap. Null: they never
  /// do.
  Result<std::unique_ptr<Emitted>> (*emit_behind)(const Schedule&, const Settings&,
                                                  const LaunchBefore&) = nullptr;
  /// Why it does not emit the schedule in the form that the plan asks for, as emit() and
  /// Emitted::makeshift() say, for whoever asks of many plans: no makeshift is looked for. Null:
  /// emit() is asked.
  std::optional<Reason> (*refuses)(const Schedule&, const Settings&, int threads) = nullptr;
  /// build() of all of these at once, for this machine, in less time than one by one; null: they
  /// are built one by one.
  std::optional<Reason> (*build_together)(std::span<const std::shared_ptr<Emitted>>) = nullptr;
  /// `device` as open() gave it. Null: no program is made of several kernels.
  Result<std::unique_ptr<LaunchSequence>> (*sequence)(const std::shared_ptr<Device>&) = nullptr;
  /// What plans for it should be like; null: nothing particular.
  TargetNeeds (*needs)(DType type, const Settings&) = nullptr;
  /// Null: nothing to open.
  Result<std::shared_ptr<Device>> (*open)() = nullptr;
  /// Names of the meters that measure its kernels.
  std::vector<std::string_view> (*meters)() = nullptr;
  /// Options that kernels are emitted with to run under Valgrind, which knows no AVX-512; null:
  /// none are needed.
  OptionValues (*under_valgrind)() = nullptr;
  /// Seconds of a schedule's kernels, one after the other, as the target emits them: predicted by a
  /// model of the target's own, and nothing runs. A Reason where the target would refuse the
  /// schedule. Null: it has no such model.
  /// So it is where that would take more than `most_steps`.
  Result<Predicted> (*predicted_seconds)(const Schedule&, std::int64_t most_steps) = nullptr;
  /// Our own planner gives machines of this kind (Machine::kind) what this target can run, even
  /// where no target is named; empty: of none.
  std::string_view plans_of = {};
};

/// Those of this package, and those that were added, in order; the first is the default.
std::vector<const Target*> targets();
/// Throws InputError with the names there are.
const Target& find_target(std::string_view name);
/// The first whose `plans_of` is that kind; null: no target is.
const Target* own_target(std::string_view machine_kind);
/// From now on a target like the others; `target` must stay. For tests and programs that bring
/// their own. Throws InputError for a name that there is.
void add_target(const Target& target);

// ---- The records, each in its target's folder ---------------------------------------------------
extern const Target kCpu;
extern const Target kCuda;
extern const Target kCudaEmulated;
extern const Target kNpu;

}  // namespace tilewright::codegen
