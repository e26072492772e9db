// A built kernel under Valgrind, at stated addresses, and nothing else on them.
//
// A driver process maps the arena at its address from a file that holds what the tensors hold before
// the run, loads the kernel's shared object, calls it, and writes the arena to another file, which is
// checked. Filling and writing are system calls: the simulated caches see no access to the arena but
// the kernel's own, so that they are cold of it when the kernel starts. A store to each of two lines
// of a page below the arena marks where the kernel begins and ends.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/ir/availability.h"
#include "core/ir/error.h"
#include "core/ir/process.h"
#include "profilers/meter.h"

namespace tilewright::profilers {

/// Whether Valgrind and a compiler for the driver are here.
Availability valgrind_here();

/// Below the arena: stored to just before the kernel begins, and just after it has ended.
struct Markers {
  std::int64_t begin = 0, end = 0;
};
Markers markers_of(const BuiltKernel& kernel);

/// The driver and its files, for one kernel. The kernel must outlive it.
class ValgrindRuns {
 public:
  /// A Reason where the kernel cannot be run so: several threads, AVX-512, too large for the room that
  /// Valgrind leaves at these addresses, no compiler. Cost: one compilation a process.
  static Result<std::unique_ptr<ValgrindRuns>> prepare(const BuiltKernel& kernel);

  /// Runs the driver under `valgrind OPTIONS`, with the kernel or, all else being equal, without it.
  /// A Reason where it fails or the kernel's outputs are wrong.
  std::optional<Reason> run(const std::vector<std::string>& options, bool kernel);
  const std::filesystem::path& directory() const { return directory_.path(); }
  /// As the last run was started.
  const std::string& command() const { return command_; }

 private:
  explicit ValgrindRuns(const BuiltKernel& kernel) : kernel_(kernel) {}
  std::optional<Reason> write_image() const;
  std::optional<Reason> check_result() const;

  const BuiltKernel& kernel_;
  TemporaryDirectory directory_;
  std::string driver_, command_;
};

/// Executes the kernel under Valgrind's lackey, which prints every address that it loads and stores,
/// into `file` (several instructions make a line each: some 20 bytes). Between the markers it is the
/// kernel's. A Reason where it cannot.
std::optional<Reason> trace_execution(const BuiltKernel& kernel, const std::filesystem::path& file);

}  // namespace tilewright::profilers
