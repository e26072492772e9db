// What measures a kernel that has been built: one interface, whatever counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/availability.h"
#include "core/base/error.h"
#include "core/machine/machine.h"
#include "core/plan/traffic.h"

namespace tilewright::profilers {

/// A tensor of a kernel and where it lies in the arena while a meter runs the kernel.
struct PlacedTensor {
  std::string name;
  std::int64_t address = 0;  ///< 0: the kernel needs no memory for it
  std::int64_t bytes = 0;
  const void* before = nullptr;  ///< what it holds when the kernel starts
};

/// A kernel as meters take it. Only the harness makes one, of a kernel that it has verified.
struct BuiltKernel {
  std::filesystem::path object;  ///< shared object that exports PREFIX_run, PREFIX_workspace
  std::string prefix;
  std::vector<PlacedTensor> tensors;  ///< by TensorId
  std::int64_t arena = 0, end = 0;    ///< all tensors lie in [arena, end)
  std::int64_t workspace = 0;         ///< where its working memory goes: packed tiles and the like
  int threads = 1;
  std::string isa;  ///< "avx2", ...
  /// Runs it once in this process, on memory of its own. Returns the seconds that it took.
  std::function<double()> run;
  /// Whether the arena, as a run elsewhere has left it, holds the outputs that it should.
  std::function<std::optional<Reason>(const std::byte* arena)> check;

  // ---- For meters that count a process, instead of the above
  /// A process that verifies the kernels and then runs each once between cuProfilerStart and Stop.
  std::vector<std::string> counted;
  std::vector<std::string> symbols;  ///< of its launches, in order
};

/// What a meter found.
struct Measurement {
  /// A meter that cannot tell tensors apart has one, "total". Boundaries that it cannot count are
  /// in `unavailable` with the reason; what of read and written it counts, `counts` says.
  Traffic traffic;
  std::vector<std::pair<std::string, double>> counters;  ///< as the source names them, of one run
  std::vector<std::string> notes;                        ///< what a reader of the numbers must know
  std::string command;  ///< that was run, where another program counted
};

class Meter {
 public:
  virtual ~Meter() = default;
  /// Bytes that one run of the kernel moves between the machine's levels. A Reason where it cannot
  /// be measured: nothing is put in its place.
  virtual Result<Measurement> measure(const BuiltKernel& kernel, const Machine& machine) = 0;
};

/// What a meter counts.
enum class Counts : std::uint8_t {
  object,   ///< a kernel that is a shared object, BuiltKernel::object
  process,  ///< a process that marks when each kernel runs, BuiltKernel::counted
  itself,   ///< nothing: the target's kernels count themselves as they run
};

struct MeterRecord {
  std::string_view name;
  std::string_view summary;
  Availability (*here)();
  std::unique_ptr<Meter> (*make)();
  bool valgrind = false;  ///< runs kernels under Valgrind, which knows no AVX-512
  Counts counts = Counts::object;
};
std::span<const MeterRecord> meters();

// ---- The records' functions, each in the file of its meter --------------------------------------
Availability cachegrind_here();
std::unique_ptr<Meter> make_cachegrind();
Availability perf_here();
std::unique_ptr<Meter> make_perf();
Availability likwid_here();
std::unique_ptr<Meter> make_likwid();
Availability pcm_here();
std::unique_ptr<Meter> make_pcm();
Availability ncu_here();
std::unique_ptr<Meter> make_ncu();

}  // namespace tilewright::profilers
